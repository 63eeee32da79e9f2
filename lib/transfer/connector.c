/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connector.c - arithmetic of vLLM's connectors, and what they do to blocks
 *
 * Ratios of TP and block sizes and the ranks to read from are its own, with an error
 * where it would divide with a remainder.  What a receiver does to a block that arrived,
 * of another layout or block size, is a permutation of that block in place: here it is a
 * plan from one view of it to another.
 */
#include "lib/kvt/connect.h"

#include "lib/layout/words.h"

/* ---- ratios and ranks --------------------------------------------------- */

static enum kvt_status check_sizes(const char *what, int64_t local,
				   int64_t remote, struct kvt_error *err)
{
	if (local < 1 || remote < 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is %lld here and %lld on the other side", what,
				LL(local), LL(remote));
	return KVT_OK;
}

enum kvt_status kvt_tp_ratio(int64_t *out, int64_t local, int64_t remote,
			     struct kvt_error *err)
{
	enum kvt_status status = check_sizes("TP size", local, remote, err);
	bool larger = local >= remote;

	if (status)
		return status;
	if (larger ? local % remote : remote % local)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s TP size %lld is not a multiple of the %s one, %lld",
				larger ? "local" : "remote",
				LL(larger ? local : remote),
				larger ? "remote" : "local", LL(larger ? remote : local));
	*out = larger ? local / remote : -(remote / local);
	return KVT_OK;
}

enum kvt_status kvt_block_size_ratio(int64_t *out, int64_t local, int64_t remote,
				     struct kvt_error *err)
{
	enum kvt_status status = check_sizes("block size", local, remote, err);

	if (status)
		return status;
	if (local % remote)
		return kvt_fail(err, KVT_BAD_INPUT,
				"local block size %lld is not a multiple of the remote one, %lld", LL(local), LL(remote));
	*out = local / remote;
	return KVT_OK;
}

enum kvt_status kvt_target_ranks(struct kvt_range *out, struct kvt_rank local,
				 int64_t remote_ranks, struct kvt_error *err)
{
	enum kvt_status status;
	int64_t ratio;

	if ((status = kvt_tp_ratio(&ratio, local.size, remote_ranks, err)))
		return status;
	if (local.index < 0 || local.index >= local.size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"rank is %lld, expected 0 to %lld",
				LL(local.index), LL(local.size) - 1);
	if (ratio > 0)
		*out = (struct kvt_range){ local.index / ratio,
					   local.index / ratio + 1 };
	else
		*out = (struct kvt_range){ local.index * -ratio,
					   (local.index + 1) * -ratio };
	return KVT_OK;
}

/* ---- predicates --------------------------------------------------------- */

bool kvt_blocks_first(const struct kvt_layout *layout, const struct kvt_shape *shape)
{
	struct kvt_shape one_layer = *shape;

	/* axes of extent 1 do not count, but B does where there is one block */
	one_layer.n[KVT_AXIS_L] = 1;
	if (one_layer.n[KVT_AXIS_B] < 2)
		one_layer.n[KVT_AXIS_B] = 2;
	return kvt_layout_predicates(layout, &one_layer).block_outermost;
}

bool kvt_splits_k_and_v(const struct kvt_layout *layout, const struct kvt_shape *shape)
{
	int k = kvt_order_find(&layout->plane[0], KVT_AXIS_K);
	int b = kvt_order_find(&layout->plane[0], KVT_AXIS_B);

	if (shape->n[KVT_AXIS_K] < 2)
		return false;
	if (k < 0)	/* planes in buffers of their own */
		return layout->nplanes == 2;
	return k < b;
}

/* ---- after receiving ---------------------------------------------------- */

const char *kvt_receive_name(enum kvt_receive which)
{
	static const char *const names[KVT_NRECEIVES] = {
		[KVT_RECEIVE_LAYOUT] = "kv_postprocess_layout_on_receive",
		[KVT_RECEIVE_BLOCKS] = "kv_postprocess_blksize_on_receive",
		[KVT_RECEIVE_BOTH] = "kv_postprocess_blksize_and_layout_on_receive",
	};

	return names[which];
}

/* 'ratio' blocks of [H][S/ratio]. */
static struct kvt_view small_blocks(const struct kvt_shape *shape, int64_t ratio)
{
	int64_t content = shape->n[KVT_AXIS_D], heads = shape->n[KVT_AXIS_H];
	int64_t slots = shape->n[KVT_AXIS_S] / ratio;

	return (struct kvt_view){
		.shape = *shape, .nfactors = 4, .factor = {
			{ KVT_AXIS_S, slots, ratio, heads * slots * content },
			{ KVT_AXIS_H, 1, heads, slots * content },
			{ KVT_AXIS_S, 1, slots, content },
			{ KVT_AXIS_D, 1, content, 1 },
		},
	};
}

/* One block of [S][H]. */
static struct kvt_view slots_first(const struct kvt_shape *shape)
{
	int64_t content = shape->n[KVT_AXIS_D], heads = shape->n[KVT_AXIS_H];

	return (struct kvt_view){
		.shape = *shape, .nfactors = 3, .factor = {
			{ KVT_AXIS_S, 1, shape->n[KVT_AXIS_S], heads * content },
			{ KVT_AXIS_H, 1, heads, content },
			{ KVT_AXIS_D, 1, content, 1 },
		},
	};
}

enum kvt_status kvt_receive_plan(struct kvt_plan *out, enum kvt_receive which,
				 const struct kvt_receive_block *block, bool back,
				 struct kvt_error *err)
{
	struct kvt_shape shape = { { 1, 1, block->slots, block->heads, 1,
				     block->content }, 1 };
	int64_t ratio = which == KVT_RECEIVE_LAYOUT ? 1 : block->ratio, nbytes;
	struct kvt_view received, wanted;
	enum kvt_status status;

	if (block->heads < 1 || block->slots < 1 || block->content < 1 || ratio < 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"a block of %lld heads, %lld slots, %lld bytes and %lld small blocks", LL(block->heads),
				LL(block->slots), LL(block->content),
				LL(ratio));
	if (block->slots % ratio)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld slots are not %lld blocks of one size",
				LL(block->slots), LL(ratio));
	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)))
		return status;
	received = small_blocks(&shape, ratio);
	wanted = which == KVT_RECEIVE_BLOCKS ? small_blocks(&shape, 1) :
					       slots_first(&shape);
	return back ? kvt_plan_init(out, &received, &wanted, err) :
		      kvt_plan_init(out, &wanted, &received, err);
}

/* ---- copying blocks ----------------------------------------------------- */

enum kvt_status kvt_copy_blocks_check(const struct kvt_block_table *src,
				      const struct kvt_block_table *dst,
				      uint8_t *seen, struct kvt_error *err)
{
	if (src->nids < 1 || src->nids != dst->nids)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld source blocks and %lld destination blocks cannot be copied", LL(src->nids), LL(dst->nids));
	for (int64_t i = 0; i < src->nids; i++)
		if (src->ids[i] >= src->pool)
			return kvt_fail(err, KVT_BAD_INPUT,
					"source block id %u is outside the pool of %lld", src->ids[i], LL(src->pool));
	return kvt_block_ids_check(dst->ids, dst->nids, dst->pool, seen, err);
}
