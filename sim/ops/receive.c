/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receive.c - what vLLM's receivers do to blocks, done to a group of a dump
 *
 * A block that arrived is a permutation of itself: kvt_receive_plan() in lib/transfer
 * has it.  Here the group is read whole, in an order in which such a block is one run,
 * and every marked block is copied through a buffer of one block.
 */
#include "sim/ops/receive.h"

#include <stdlib.h>
#include <string.h>

#include "lib/kvt/kernels.h"
#include "lib/run/pipeline.h"

/* ---- in memory ---------------------------------------------------------- */

/* nblocks blocks, of which those that are marked are changed. */
static enum kvt_status receive_blocks(uint8_t *blocks, int64_t nblocks,
				      const uint8_t *marked, const struct kvt_plan *plan,
				      struct kvt_error *err)
{
	int64_t nbytes = kvt_plan_nbytes(plan);
	uint8_t *before = malloc((size_t)nbytes);

	if (!before)
		return kvt_no_memory(err, NULL);
	for (int64_t b = 0; b < nblocks; b++) {
		if (!marked[b])
			continue;
		memcpy(before, blocks + b * nbytes, (size_t)nbytes);
		kvt_cpu_copy(blocks + b * nbytes, before, plan);
	}
	free(before);
	return KVT_OK;
}

/* ---- which function, and what it calls a block --------------------------- */

/* The axes of one plane, without those of extent 1. */
static bool orders_as(const struct kvt_layout *layout, const struct kvt_shape *shape,
		      const char *axes)
{
	struct kvt_layout wanted;

	return !kvt_layout_parse(&wanted, axes, NULL) &&
	       kvt_layout_agree(layout, &wanted, shape);
}

static const struct {
	const char *axes;
	enum kvt_receive which;
	bool apart;			/* keys and values are blocks of their own */
} orders[] = {
	{ "LBHSC", KVT_RECEIVE_BLOCKS, false }, { "BLHSC", KVT_RECEIVE_BLOCKS, false },
	{ "LBSHC", KVT_RECEIVE_BOTH, false }, { "BLSHC", KVT_RECEIVE_BOTH, false },
	{ "LBKHSD", KVT_RECEIVE_BLOCKS, true }, { "LKBHSD", KVT_RECEIVE_BLOCKS, true },
	{ "BLKHSD", KVT_RECEIVE_BLOCKS, true },
	{ "LBKSHD", KVT_RECEIVE_BOTH, true }, { "LKBSHD", KVT_RECEIVE_BOTH, true },
	{ "BLKSHD", KVT_RECEIVE_BOTH, true },
};

static enum kvt_status choose(struct received *out, bool *apart,
			      const struct kvt_group *g, struct kvt_error *err)
{
	const char *read = NULL;

	for (size_t i = 0; !read && i < sizeof(orders) / sizeof(orders[0]); i++) {
		if (!orders_as(&g->layout, &g->shape, orders[i].axes))
			continue;
		out->which = orders[i].which;
		*apart = orders[i].apart;
		read = out->which == KVT_RECEIVE_BLOCKS ? (*apart ? "LBKHSD" : "LBHSC") :
		       *apart ? "LBKSHD" : "LBSHC";
	}
	if (!read)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s is %s; expected heads, slots and content, or slots, heads and content, in each block", g->id,
				kvt_layout_string(&g->layout).s);
	return kvt_layout_parse(&out->layout, read, err);
}

static enum kvt_status plan_of(struct received *out, const struct kvt_group *g,
			       bool apart, int64_t ratio, bool back,
			       struct kvt_error *err)
{
	const int64_t *n = g->shape.n;

	out->block = (struct kvt_receive_block){
		n[KVT_AXIS_H], n[KVT_AXIS_S],
		n[KVT_AXIS_D] * g->shape.elem * (apart ? 1 : n[KVT_AXIS_K]), ratio };
	return kvt_receive_plan(&out->plan, out->which, &out->block, back, err);
}

/* ---- blocks ------------------------------------------------------------- */

static enum kvt_status mark(uint8_t *marked, const struct kvt_group *g, int64_t id,
			    struct kvt_error *err)
{
	for (int64_t b = 0; b < g->shape.n[KVT_AXIS_B]; b++)
		if ((g->block_ids ? (int64_t)g->block_ids[b] : b) == id) {
			marked[b] = 1;
			return KVT_OK;
		}
	return kvt_fail(err, KVT_USAGE, "%s has no block %lld", g->id, LL(id));
}

static enum kvt_status mark_all(uint8_t *marked, const struct kvt_group *g,
				const struct kvt_range *ids, int nids,
				struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (!ids)
		memset(marked, 1, (size_t)g->shape.n[KVT_AXIS_B]);
	for (int i = 0; ids && !status && i < nids; i++)
		for (int64_t id = ids[i].begin; !status && id < ids[i].end; id++)
			status = mark(marked, g, id, err);
	return status;
}

/* Each layer has all blocks; keys and values of one are marked alike. */
static enum kvt_status change(struct received *out, const struct kvt_group *g, bool apart,
			      const uint8_t *marked, struct kvt_error *err)
{
	int64_t planes = apart ? g->shape.n[KVT_AXIS_K] : 1;
	int64_t blocks = g->shape.n[KVT_AXIS_B], layers = g->shape.n[KVT_AXIS_L];
	uint8_t *each = malloc((size_t)(blocks * planes) + 1);
	enum kvt_status status = KVT_OK;

	if (!each)
		return kvt_no_memory(err, NULL);
	for (int64_t b = 0; b < blocks; b++) {
		memset(each + b * planes, marked[b], (size_t)planes);
		out->nblocks += marked[b];
	}
	for (int64_t l = 0; l < layers && !status; l++)
		status = receive_blocks(out->bytes + l * blocks * planes *
					kvt_plan_nbytes(&out->plan), blocks * planes,
					each, &out->plan, err);
	free(each);
	return status;
}

static enum kvt_status check_memory(int64_t *nbytes, const struct kvt_group *g,
				    const struct kvt_run *run, struct kvt_error *err)
{
	int64_t limit = kvt_run_memory(run);
	enum kvt_status status = kvt_shape_nbytes(nbytes, &g->shape, err);

	if (status || *nbytes <= limit)
		return status;
	return kvt_fail(err, KVT_UNSUPPORTED,
			"%s has %s, more than the %s of --mem-limit; slice the dump, or give more", g->id, kvt_size_string(*nbytes).s,
			kvt_size_string(limit).s);
}

enum kvt_status kvt_receive_group(struct received *out, const struct kvt_dump *dump,
				  int group, int64_t ratio, const struct kvt_range *ids,
				  int nids, bool back, const struct kvt_run *run,
				  struct kvt_error *err)
{
	const struct kvt_group *g = kvt_dump_group(dump, group);
	const struct kvt_box whole = kvt_box_whole(&g->shape);
	uint8_t *marked = calloc(1, (size_t)g->shape.n[KVT_AXIS_B] + 1);
	enum kvt_status status;
	bool apart = false;
	int64_t nbytes;

	*out = (struct received){ .bytes = NULL };
	if (!marked)
		return kvt_no_memory(err, NULL);
	if ((status = choose(out, &apart, g, err)) ||
	    (status = plan_of(out, g, apart, ratio, back, err)) ||
	    (status = mark_all(marked, g, ids, nids, err)) ||
	    (status = check_memory(&nbytes, g, run, err)))
		goto end;
	if (!(out->bytes = malloc((size_t)nbytes + 1)))
		status = kvt_no_memory(err, NULL);
	else if (!(status = kvt_dump_read(dump, group, &whole, &out->layout, out->bytes,
					  err)))
		status = change(out, g, apart, marked, err);
end:
	free(marked);
	return status;
}

void kvt_received_free(struct received *received)
{
	free(received->bytes);
	received->bytes = NULL;
}
