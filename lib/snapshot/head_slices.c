/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head_slices.c - what a head of one token takes in a page
 *
 * Whatever would make a slice by heads wrong makes the page opaque: tokens dealt out to
 * ranks, heads that several ranks hold, scales apart from their rows, slots of several
 * tokens.
 */
#include "lib/kvt/snapshot.h"

struct kvt_head_slices kvt_head_slices_of(const struct kvt_snapshot *snapshot, int group)
{
	const struct kvt_group *g = &snapshot->group[group];
	const int64_t *n = g->shape.n;
	struct kvt_head_slices out = { 0, 0, 0, false };

	if (snapshot->parallel.dcp_size > 1 || kvt_is_recurrent(g->kind) ||
	    g->kind == KVT_OPAQUE)
		return out;
	out.replicated = g->kind == KVT_MLA;
	if (out.replicated || g->replication > 1 || g->content.type ||
	    g->tokens_per_slot != 1)
		return out;
	out.h_stride = n[KVT_AXIS_K] * n[KVT_AXIS_D] * g->shape.elem;
	if (__builtin_mul_overflow(g->total_heads, out.h_stride, &out.bs_stride))
		return (struct kvt_head_slices){ 0, 0, 0, false };
	out.n_heads = g->total_heads;
	return out;
}
