/* SPDX-License-Identifier: Apache-2.0 */
/*
 * say.c - how what is found is kept and said
 *
 * A rank is so many heads one after the other, as many as divide all; the largest that a
 * finding holds for is told, and nothing within it again.
 */
#include "lib/ops/strange/internal.h"

#include <stdio.h>

enum { MOST_PERHAPS = 3 };

const char *kvt_strange_name(enum kvt_strange_kind kind)
{
	static const char *const names[KVT_NSTRANGE] = {
		[KVT_STRANGE_SWAPPED] = "swapped-kv", [KVT_STRANGE_SCALE] = "scale",
		[KVT_STRANGE_TWICE] = "twice", [KVT_STRANGE_CUT_OFF] = "cut-off",
	};

	return names[kind];
}

const char *kvt_sure_name(enum kvt_sure sure)
{
	static const char *const names[] = { "perhaps", "likely", "certain" };

	return names[sure];
}

/* Of what is perhaps strange a few are enough, so that they leave room for the rest. */
void strange_add(struct kvt_strangeness *out, const struct kvt_strange *found)
{
	int perhaps = 0;

	for (int i = 0; i < out->n; i++)
		perhaps += out->found[i].sure == KVT_PERHAPS;
	out->count++;
	if (out->n < KVT_MAX_STRANGE &&
	    (found->sure > KVT_PERHAPS || perhaps < MOST_PERHAPS))
		out->found[out->n++] = *found;
}

void strange_say_where(struct kvt_strange *found, const struct strange_seen *seen,
		      const struct strange_region *r)
{
	const struct kvt_group *group = seen->group;
	int at = snprintf(found->at, sizeof(found->at), "group=%.64s", group->id);

	if (r->layer >= 0)
		at += snprintf(found->at + at, sizeof(found->at) - (size_t)at,
			       ",layer=%lld", LL(kvt_layer_id(group, r->layer)));
	if (r->heads < group->shape.n[KVT_AXIS_H])
		snprintf(found->at + at, sizeof(found->at) - (size_t)at, ",head=%lld",
			 LL(group->head_start + r->head));
}

/* "layer 2", "heads 2-3 of layer 2", "heads 2-3 of every layer" */
struct kvt_text strange_region_text(const struct strange_seen *seen,
				   const struct strange_region *r)
{
	const struct kvt_group *group = seen->group;
	int64_t first = group->head_start + r->head;
	struct kvt_text out = { "" };
	int at = 0;

	if (r->heads == 1 && group->shape.n[KVT_AXIS_H] > 1)
		at = snprintf(out.s, sizeof(out.s), "head %lld of ", LL(first));
	else if (r->heads < group->shape.n[KVT_AXIS_H])
		at = snprintf(out.s, sizeof(out.s), "heads %lld-%lld of ", LL(first),
			      LL(first + r->heads - 1));
	if (r->layer < 0)
		snprintf(out.s + at, sizeof(out.s) - (size_t)at, "every layer");
	else
		snprintf(out.s + at, sizeof(out.s) - (size_t)at, "layer %lld",
			 LL(kvt_layer_id(group, r->layer)));
	return out;
}
