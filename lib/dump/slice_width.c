/* SPDX-License-Identifier: Apache-2.0 */
/* slice_width.c - the heads and channels of a rank, or those that were named */
#include "lib/dump/slice.h"

#include <stdio.h>
#include <string.h>

#define LL(x) ((long long)(x))

/* ---- heads -------------------------------------------------------------- */

static enum kvt_status take_heads(struct step_part *part, struct kvt_group *group,
				  struct kvt_range want, const char *who,
				  struct kvt_error *err)
{
	int64_t first = group->head_start, count = group->shape.n[KVT_AXIS_H];

	if (want.begin < first || want.end > first + count || want.begin >= want.end)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %s heads %lld to %lld, the dump has %lld to %lld",
				group->id, who, LL(want.begin), LL(want.end - 1),
				LL(first), LL(first + count - 1));
	part->heads = (struct kvt_segment){ 0, want.begin - first,
					   want.end - want.begin };
	group->head_start = want.begin;
	group->shape.n[KVT_AXIS_H] = want.end - want.begin;
	return KVT_OK;
}

static enum kvt_status heads_of_rank(struct step_part *part, struct kvt_group *group,
				     struct kvt_rank rank, struct kvt_error *err)
{
	struct kvt_range own;
	enum kvt_status status;
	struct kvt_error why;
	char who[64];

	if (group->kind == KVT_OPAQUE)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: nobody knows how opaque content is dealt to ranks",
				group->id);
	if (group->kind == KVT_MAMBA_SSM && group->total_heads % rank.size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld state heads cannot be dealt to %lld ranks evenly",
				group->id, LL(group->total_heads), LL(rank.size));
	if ((status = kvt_owned(&own, group->total_heads, rank, &why)))
		return kvt_fail(err, status, "%s: %.400s", group->id, why.text);
	snprintf(who, sizeof(who), "rank %lld of %lld holds", LL(rank.index),
		 LL(rank.size));
	group->replication = kvt_is_replicated(group->total_heads, rank.size) ?
			     rank.size / group->total_heads : 1;
	return take_heads(part, group, own, who, err);
}

/* ---- both --------------------------------------------------------------- */

enum kvt_status slice_width(struct step_part *part, struct kvt_group *group,
			   const struct kvt_snapshot *whole,
			   const struct kvt_slice_options *options,
			   struct kvt_error *err)
{
	const struct kvt_parallel *parallel = &whole->parallel;
	const struct kvt_rank *rank = &options->rank;
	bool conv = group->kind == KVT_MAMBA_CONV;

	*part = (struct step_part){
		.heads = { 0, 0, group->shape.n[KVT_AXIS_H] },
		.kv = { 0, 0, group->shape.n[KVT_AXIS_K] },
		.nchannels = 1, .channel = { { 0, 0, group->shape.n[KVT_AXIS_D] } },
	};
	if (options->heads.n && conv)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a convolution state has no heads; expected --tp-size and --tp-rank",
				group->id);
	if (options->heads.n)
		return take_heads(part, group, options->heads.range[0], "--heads are",
				  err);
	/* what it is already needs no number of groups */
	if (!rank->size || (rank->size == parallel->tp_size &&
			    rank->index == parallel->tp_rank))
		return KVT_OK;
	return conv ? slice_channels(part, group, whole, options, err) :
		      heads_of_rank(part, group, *rank, err);
}

/* ---- pages -------------------------------------------------------------- */

static int64_t content_bytes(const struct kvt_group *group)
{
	int64_t nbytes = group->shape.elem;

	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++)
		nbytes *= group->shape.n[a];
	return nbytes;
}

/*
 * The groups of a page follow each other, each at a multiple of its element.
 * Padding behind them belonged to another allocation.
 */
void place_in_pages(struct kvt_snapshot *snapshot)
{
	for (int g = 0; g < snapshot->ngroups; ) {
		int64_t page = snapshot->group[g].page_bytes, at = 0;
		int64_t offset = snapshot->group[g].page_offset;
		int end = g + 1;

		while (page && end < snapshot->ngroups &&
		       snapshot->group[end].page_bytes == page &&
		       snapshot->group[end].page_offset > offset)
			offset = snapshot->group[end++].page_offset;
		for (int i = g; page && i < end; i++) {
			struct kvt_group *group = &snapshot->group[i];

			at = (at + group->shape.elem - 1) / group->shape.elem *
			     group->shape.elem;
			group->page_offset = at;
			at += content_bytes(group);
		}
		for (int i = g; page && i < end; i++)
			snapshot->group[i].page_bytes = at;
		g = end;
	}
}
