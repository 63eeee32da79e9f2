/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.c - the rules, one after the other; the first that tells anything ends it
 *
 *	cut off		numbers stop at the largest of the type: at least 8, twice as many
 *			as of the number before, and 1 of 10,000
 *	swapped		keys and values exchanged: swapped.c
 *	scale		layers or ranks larger or smaller than their like: scale.c
 *
 * Rows that are exchanged have another scale, too: that would be told as a second fault.
 */
#include "lib/ops/strange/internal.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_CELLS = 1 << 14 };		/* heads of all layers: models have less */

static void seek_cut_off(struct kvt_strangeness *out, const struct strange_seen *seen)
{
	const struct strange_region r = { -1, 0, seen->group->shape.n[KVT_AXIS_H] };
	double share = out->elements ? (double)out->top / (double)out->elements : 0;
	struct kvt_strange found = { .kind = KVT_STRANGE_CUT_OFF };

	/* what runs out by itself has as many of the number before */
	if (out->top < 8 || out->top < 2 * out->below || share < 1e-4)
		return;
	found.score = share / 1e-4;
	found.sure = share >= 1e-3 ? KVT_LIKELY : KVT_PERHAPS;
	strange_say_where(&found, seen, &r);
	snprintf(found.text, sizeof(found.text),
		 "numbers too large for %s were cut off: %lld of %lld (%.2g %%) are its largest, %lld the one below; is the scale too small?",
		 seen->group->dtype->name, LL(out->top), LL(out->elements), 100 * share,
		 LL(out->below));
	strange_add(out, &found);
}

static bool is_told(const struct kvt_strangeness *out)
{
	for (int i = 0; i < out->n; i++)
		if (out->found[i].sure > KVT_PERHAPS)
			return true;
	return false;
}

/* Rows that are exchanged or there twice have another scale: that is no second fault. */
bool strange_judge(struct kvt_strangeness *out, const struct strange_seen *seen)
{
	const int64_t *n = seen->group->shape.n;
	double *scratch;

	seek_cut_off(out, seen);
	if (!out->measured || is_told(out) || n[KVT_AXIS_H] > MOST_CELLS / n[KVT_AXIS_L])
		return true;
	if (!(scratch = calloc((size_t)n[KVT_AXIS_L] + 1, sizeof(*scratch))))
		return false;
	if (n[KVT_AXIS_K] == 2)
		strange_seek_swapped(out, seen, scratch);
	free(scratch);
	if (is_told(out))
		return true;
	strange_seek_scales(out, seen);
	return true;
}
