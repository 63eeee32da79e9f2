/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_ops.c - the operations of a plan, one a line; none of them is kept
 *
 *	pair,src_rank,dst_rank,group,slice,layer0,..,heads,src_off,dst_off,len
 *	0,0,0,attn,head,0,1,0,1,0,1,0,0,512
 *
 *	{"pair": 0, "src_rank": 0, "dst_rank": 0, "group": "attn", .., "len": 512}
 *
 *	0 0 512			src_off dst_off len, of --pair where there is one group
 *
 * By group, pair of ranks and ascending offset of the source.  A pair has the same
 * number in all groups.
 */
#include "sim/print/transfer.h"
#include "lib/base/number.h"

#include <inttypes.h>
#include <stdlib.h>

struct listing {
	const struct kvt_transfer_plan *transfer;
	enum kvt_scope scope;
	bool json;
	int64_t src, dst;		/* of the one pair that is asked for, or -1 */
	struct kvt_batches pairs;		/* of all groups, to number them */
	char *name;			/* owned; of the group, as JSON */
	int64_t printed;
};

static int64_t number_of(const struct listing *l, const struct kvt_pair *pair)
{
	int64_t i = 0;

	while (l->pairs.batch[i].src_rank != pair->src_rank ||
	       l->pairs.batch[i].dst_rank != pair->dst_rank)
		i++;
	return i;
}

void print_op_content(const struct kvt_op_content *w)
{
	plainf("%s,%lld,%lld,%lld,%lld,%lld,%lld", w->slice, LL(w->layer), LL(w->layers),
	       LL(w->slot), LL(w->slots), LL(w->head), LL(w->heads));
}

static void print_csv(int64_t number, const struct kvt_op_index *places,
		      const struct kvt_pair *pair, const struct kvt_op *op)
{
	struct kvt_op_content where = kvt_op_content(places, pair, op);

	plainf("%" PRId64 ",%" PRId64 ",%" PRId64 ",%s,", number, pair->src_rank,
	       pair->dst_rank, places->group->name);
	print_op_content(&where);
	plainf(",%" PRId64 ",%" PRId64 ",%" PRId64 "\n", op->src, op->dst, op->len);
}

static void print_json(int64_t number, const char *name,
		       const struct kvt_op_index *places, const struct kvt_pair *pair,
		       const struct kvt_op *op)
{
	struct kvt_op_content w = kvt_op_content(places, pair, op);

	plainf("{\"pair\": %" PRId64 ", \"src_rank\": %" PRId64 ", \"dst_rank\": %" PRId64
	       ", \"group\": %s", number, pair->src_rank, pair->dst_rank, name);
	plainf(", \"slice\": \"%s\", \"layer0\": %" PRId64 ", \"layers\": %" PRId64
	       ", \"token0\": %" PRId64 ", \"tokens\": %" PRId64 ", \"head0\": %" PRId64
	       ", \"heads\": %" PRId64, w.slice, w.layer, w.layers, w.slot, w.slots,
	       w.head, w.heads);
	plainf(", \"src_off\": %" PRId64 ", \"dst_off\": %" PRId64 ", \"len\": %" PRId64
	       "}\n", op->src, op->dst, op->len);
}

static enum kvt_status print_pair(struct listing *l, const struct kvt_op_index *places,
				  const struct kvt_pair *pair, struct kvt_error *err)
{
	int64_t number = number_of(l, pair);
	struct kvt_nest nest;
	struct kvt_ops ops;
	struct kvt_op op;
	enum kvt_status status = kvt_nest_init(&nest, &places->group->xfer, pair, err);

	if (status)
		return status;
	kvt_ops_start(&ops, &nest, l->scope);
	while (kvt_op_next(&op, &ops) && !ferror(stdout)) {
		if (l->json)
			print_json(number, l->name, places, pair, &op);
		else if (l->src < 0 || l->transfer->ngroups > 1)
			print_csv(number, places, pair, &op);
		else
			plainf("%" PRId64 " %" PRId64 " %" PRId64 "\n", op.src, op.dst,
			       op.len);
	}
	l->printed++;
	return KVT_OK;
}

static enum kvt_status print_group(struct listing *l,
				   const struct kvt_transfer_group *group,
				   struct kvt_error *err)
{
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_op_index places;
	struct kvt_pair pair;
	enum kvt_status status = kvt_op_index_init(&places, group, err);

	if (!status && !(l->name = json_quoted(group->name)))
		status = kvt_no_memory(err, NULL);
	while (!status && kvt_pair_next(&pair, &walk, &group->xfer))
		if (l->src < 0 || (pair.src_rank == l->src && pair.dst_rank == l->dst))
			status = print_pair(l, &places, &pair, err);
	kvt_op_index_free(&places);
	free(l->name);
	l->name = NULL;
	return status;
}

static bool pair_parse(int64_t *src, int64_t *dst, const char *text)
{
	return kvt_number_take(src, &text) && *text++ == ':' &&
	       kvt_number_take(dst, &text) && !*text;
}

enum kvt_status plan_ops(const struct kvt_transfer_plan *transfer, enum kvt_scope scope,
			 bool json, const char *only, struct kvt_error *err)
{
	struct listing l = { .transfer = transfer, .scope = scope, .json = json,
			     .src = -1 };
	enum kvt_status status;

	if (only && !pair_parse(&l.src, &l.dst, only))
		return kvt_fail(err, KVT_USAGE, "--pair is '%.40s', expected SRC:DST",
				only);
	if ((status = kvt_batches_of_scope(&l.pairs, transfer, scope, NULL, err)))
		return status;
	if (!json && (!only || transfer->ngroups > 1))
		puts("pair,src_rank,dst_rank,group," OP_CONTENT_COLUMNS
		     ",src_off,dst_off,len");
	for (int g = 0; !status && g < transfer->ngroups; g++)
		status = print_group(&l, &transfer->group[g], err);
	kvt_batches_free(&l.pairs);
	if (!status && only && !l.printed)
		return kvt_fail(err, KVT_BAD_INPUT,
				"rank %lld gives nothing to rank %lld", LL(l.src),
				LL(l.dst));
	return status;
}
