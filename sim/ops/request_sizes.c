/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request_sizes.c - what a request of any length moves
 *
 * It is planned for up to two units u of tokens, beyond which everything is periodic:
 * both sides begin a block with each unit, and windows are full.  So for n of more than
 * 2 u, with k whole units taken off:
 *
 *	sizes(n) = sizes(n - k u) + k (sizes(2 u) - sizes(u))	u < n - k u <= 2 u
 */
#include "sim/ops/replay.h"

#include <stdlib.h>

enum { UNIT_MOST = 1 << 16 };

/* Tokens after which both sides begin a block, and a chunk, with windows full. */
static enum kvt_status find_unit(struct kvt_request_sizes *s, struct kvt_error *err)
{
	struct kvt_model_transfer one = *s->from;
	int64_t unit = 1, window = 0;
	struct kvt_transfer_plan transfer;
	enum kvt_status status;

	one.tokens = 1;
	if ((status = kvt_transfer_of_model(&transfer, &one, err)))
		return status;
	s->slots = 1;
	for (int g = 0; g < transfer.ngroups; g++) {
		const struct kvt_xfer *x = &transfer.group[g].xfer;
		bool chunks = x->src.spec.kind == KVT_CHUNKED_LOCAL;

		if (x->src.spec.tokens_per_slot.num < 0)
			continue;
		unit = kvt_lcm(unit, x->src.spec.block_size);
		unit = kvt_lcm(unit, x->dst.spec.block_size);
		s->slots = x->dst.spec.block_size;
		if (x->src.spec.window > window)
			window = x->src.spec.window;
		/* what is left of a chunk comes again with every one */
		if (chunks && window <= UNIT_MOST && unit <= UNIT_MOST)
			unit = kvt_lcm(unit, x->src.spec.window);
		if (unit > UNIT_MOST || window > UNIT_MOST)
			break;
	}
	kvt_transfer_free(&transfer);
	if (unit > UNIT_MOST || window > UNIT_MOST)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"block sizes that meet only every %lld tokens",
				LL(unit > window ? unit : window));
	s->unit = unit * (window / unit + 1);
	return KVT_OK;
}

enum kvt_status kvt_request_sizes_init(struct kvt_request_sizes *out,
				       const struct kvt_model_transfer *from,
				       const struct kvt_batch_how *how,
				       struct kvt_error *err)
{
	struct kvt_request_sizes s = { .from = from, .how = how };
	enum kvt_status status = find_unit(&s, err);

	if (status)
		return status;
	s.of = calloc((size_t)(2 * s.unit + 1), sizeof(*s.of));
	if (!s.of)
		return kvt_no_memory(err, NULL);
	*out = s;
	return KVT_OK;
}

void kvt_request_sizes_free(struct kvt_request_sizes *s)
{
	for (int64_t i = 0; s->of && i <= 2 * s->unit; i++)
		kvt_batches_free(&s->of[i]);
	free(s->of);
	s->of = NULL;
}

/* Of 1 to 2 * unit tokens. */
static enum kvt_status exact(const struct kvt_batches **out, struct kvt_request_sizes *s,
			     int64_t tokens, struct kvt_error *err)
{
	struct kvt_model_transfer some = *s->from;
	struct kvt_transfer_plan transfer;
	enum kvt_status status;

	if (!s->of[tokens].n) {
		some.tokens = tokens;
		if ((status = kvt_transfer_of_model(&transfer, &some, err)))
			return status;
		status = kvt_batches_count(&s->of[tokens], &transfer, s->how, err);
		kvt_transfer_free(&transfer);
		if (status)
			return status;
	}
	*out = &s->of[tokens];
	return KVT_OK;
}

enum kvt_status kvt_request_sizes_pairs(const struct kvt_batches **out,
					struct kvt_request_sizes *s,
					struct kvt_error *err)
{
	return exact(out, s, 1, err);
}

enum kvt_status kvt_request_sizes_get(struct kvt_batch *out, struct kvt_request_sizes *s,
				      int64_t tokens, struct kvt_error *err)
{
	int64_t more = tokens > 2 * s->unit ? (tokens - s->unit - 1) / s->unit : 0;
	const struct kvt_batches *rest, *one, *two;
	enum kvt_status status;

	if ((status = exact(&rest, s, tokens - more * s->unit, err)) ||
	    (status = exact(&one, s, s->unit, err)) ||
	    (status = exact(&two, s, 2 * s->unit, err)))
		return status;
	for (int64_t i = 0; i < rest->n; i++) {
		const struct kvt_batch *a = &one->batch[i], *b = &two->batch[i];

		out[i] = rest->batch[i];
		out[i].listed += more * (b->listed - a->listed);
		out[i].merged += more * (b->merged - a->merged);
		out[i].ops += more * (b->ops - a->ops);
		out[i].bytes += more * (b->bytes - a->bytes);
	}
	return KVT_OK;
}
