/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pairs.c - kvt_diff_align(): two sides, group by group
 *
 * In: what each side says of itself.  Which request is which comes first, for all groups
 * alike (partners.c); then each group of A is tried with each of B: what both have of
 * layers, heads and channels (align.c), of slots (slots.c), views of these (views.c), and
 * the basis of one that does not say it (basis.c).
 */
#include "lib/ops/diff/internal.h"

#include <stdlib.h>
#include <string.h>

/* Groups of one kind that share a layer. */
static enum kvt_status try_pair(struct diff_pairs *out,
				const struct diff_side side[NSIDES], int ga, int gb,
				const struct diff_alignment *how, struct kvt_error *err)
{
	struct diff_pair *p = &out->pair[out->n];
	enum kvt_status status = pair_shape(p, side, (const int[]){ ga, gb }, how,
					    &out->unmatched, err);

	p->index = out->n;
	if (!status && p->nlayers &&
	    !(status = pair_segments(p, how, &out->unmatched, err)) &&
	    !(status = pair_views(p, err)) && !(status = pair_basis(p, err))) {
		out->n++;
		return KVT_OK;
	}
	pair_free(p);
	return status;
}

/* The same layers of the side's group. */
static bool same_layers(const struct diff_pair *a, const struct diff_pair *b, int side)
{
	return a->nlayers == b->nlayers &&
	       !memcmp(a->layer[side], b->layer[side],
		       (size_t)a->nlayers * sizeof(*a->layer[side]));
}

/* Of keys and values together the other side may have one half, or both as two groups. */
static void unmatched_half(struct diff_pairs *out, const struct diff_pair *p, int side)
{
	if (p->nkv > 1 || p->half < 0 || p->group[side]->shape.n[KVT_AXIS_K] < 2)
		return;
	for (int i = 0; i < out->n; i++)
		if (out->pair[i].number[side] == p->number[side] &&
		    out->pair[i].nkv == 1 && out->pair[i].half == !p->half &&
		    same_layers(&out->pair[i], p, side))
			return;
	unmatched_add(&out->unmatched, side, "%s of %s", p->half ? "keys" : "values",
		      p->group[side]->id);
}

enum kvt_status kvt_diff_align(struct diff_pairs *out,
			       const struct diff_side sides[NSIDES],
			       const struct diff_alignment *how, struct kvt_error *err)
{
	int na = kvt_dump_snapshot(sides[SIDE_A].dump)->ngroups;
	int nb = kvt_dump_snapshot(sides[SIDE_B].dump)->ngroups;
	struct diff_alignment with = *how;
	struct kvt_error memory = { "" };
	enum kvt_status status;

	if (!na != !nb)
		return kvt_fail(err, KVT_BAD_INPUT, "nothing in common: %c is empty",
				"AB"[!nb]);
	out->pair = calloc((size_t)na * (size_t)nb + 1, sizeof(*out->pair));
	if (!out->pair)
		return kvt_no_memory(err, NULL);
	for (int s = 0; s < NSIDES; s++)
		unmatched_layers(&out->unmatched, sides, s, &memory);
	if (memory.text[0])
		return kvt_fail(err, KVT_SYSTEM, "%s", memory.text);
	status = find_partners(&out->partners, sides, how, err);
	with.partners = &out->partners;
	for (int a = 0; !status && a < na; a++)
		for (int b = 0; !status && b < nb; b++)
			status = try_pair(out, sides, a, b, &with, err);
	for (int i = 0; !status && i < out->n; i++)
		for (int s = 0; s < NSIDES; s++)
			unmatched_half(out, &out->pair[i], s);
	if (!status && !out->n && na)
		status = nothing_in_common(sides, err);
	return status;
}

void kvt_diff_pairs_free(struct diff_pairs *pairs)
{
	for (int i = 0; i < pairs->n; i++)
		pair_free(&pairs->pair[i]);
	free(pairs->pair);
	for (int s = 0; s < NSIDES; s++)
		free(pairs->partners.of[s]);
	free(pairs->partners.found);
}
