/* SPDX-License-Identifier: Apache-2.0 */
/* spot.c - saying what is wrong with an element, and whose it is */
#include "lib/ops/compare/transfer.h"

#define LL(x) ((long long)(x))

/* Whose state is it?  Any request that has the block will do. */
static const struct kvt_request *find_token(int64_t *token, const struct verifying *v,
					    const struct spot *p)
{
	const struct kvt_snapshot *s = kvt_ranks_snapshot(v->after, 0);
	const struct kvt_group *g = group_of(v, 0);

	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_request *q = &s->request[r];

		if (!is_moved(v->sides, q->id) ||
		    !request_named(kvt_ranks_snapshot(&v->sides->src, 0), q->id))
			continue;
		for (int64_t i = 0; i < q->nblocks[v->group]; i++)
			if (q->blocks[v->group][i] == p->b) {
				*token = g->tokens_per_state < 0 ? i :
					 (q->first_token / g->block_size + i) *
					 g->block_size + p->s * g->tokens_per_state;
				return q;
			}
	}
	return NULL;
}

static int64_t first_byte(const uint8_t *a, const uint8_t *b, int64_t n)
{
	int64_t i = 0;

	while (i < n - 1 && a[i] == b[i])
		i++;
	return i;
}

enum kvt_status spot_differs(const struct verifying *v, int rank, const struct spot *p,
			     int k, const uint8_t *is, const uint8_t *was,
			     struct kvt_error *err)
{
	const struct kvt_group *g = group_of(v, rank);
	int64_t elem = g->shape.elem, token = 0, byte = first_byte(is, was, elem);
	const struct kvt_request *q = find_token(&token, v, p);
	const char *id = q ? q->id : "?";

	if (is_conv(v))
		return kvt_fail(err, KVT_MISMATCH,
				"%s: rank %d: request %s layer %lld tap %lld channel %lld byte %lld is 0x%02x, expected 0x%02x",
				g->id, rank, id, LL(kvt_layer_id(g, p->l)),
				LL(p->s), LL(kvt_head_id(g, p->d)), LL(byte),
				is[byte], was[byte]);
	return kvt_fail(err, KVT_MISMATCH,
			"%s: rank %d: request %s layer %lld token %lld head %lld byte %lld is 0x%02x, expected 0x%02x",
			g->id, rank, id, LL(kvt_layer_id(g, p->l)), LL(token),
			LL(g->head_start + p->h),
			LL((k * g->shape.n[KVT_AXIS_D] + p->d) * elem + byte), is[byte],
			was[byte]);
}

enum kvt_status spot_touched(const struct verifying *v, int rank, const struct spot *p,
			     int k, const uint8_t *is, const uint8_t *was,
			     struct kvt_error *err)
{
	const struct kvt_group *g = group_of(v, rank);
	int64_t elem = g->shape.elem, byte = first_byte(is, was, elem);

	return kvt_fail(err, KVT_MISMATCH,
			"%s: rank %d: layer %lld block %llu state %lld head %lld byte %lld is 0x%02x, but was 0x%02x",
			g->id, rank, LL(kvt_layer_id(g, p->l)),
			(unsigned long long)kvt_block_id(g, p->b), LL(p->s),
			LL(g->head_start + p->h),
			LL((k * g->shape.n[KVT_AXIS_D] + p->d) * elem + byte), is[byte],
			was[byte]);
}
