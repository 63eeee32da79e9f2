/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - what the numbers of a pair are in the model and in the dumps */
#include "lib/ops/diff/diff.h"

#include "lib/ops/digest/digest.h"

#define LL(x) ((long long)(x))

/* The channel of the side that channel d of the pair is. */
static int64_t channel_of(const struct pair *p, int side, int64_t d)
{
	for (int i = 0; i < p->nruns; i++)
		if (d >= p->run[i].at && d < p->run[i].at + p->run[i].count)
			return d - p->run[i].at + p->run[i].from[side];
	return d;
}

/* Where along D of the side element d of the pair is stored. */
static int64_t stored_at(const struct pair *p, int side, int64_t d)
{
	const struct kvt_packing *packing = &p->packing[side];

	if (p->decoded)
		return packing->nfields ? kvt_packing_at(packing, d) : d;
	return channel_of(p, side, d);
}

struct coordinate spot_coordinate(const struct pair *p, const struct spot *spot)
{
	const struct kvt_group *a = p->group[SIDE_A];
	const struct span *span = &p->span[p->ordered[spot->key[1]]];
	int64_t l = p->layer[SIDE_A][spot->key[KVT_AXIS_L]];
	int64_t each = p->recurrent ? 1 : a->tokens_per_state;
	bool conv = a->kind == KVT_MAMBA_CONV;
	struct coordinate c = { .token = -1, .kv = -1, .recurrent = p->recurrent };

	c.layer = (int64_t)kvt_layer_id(a, l);
	c.layer_name = a->layer_names ? a->layer_names[l] : NULL;
	if (span->request >= 0) {
		c.request = source_snapshot(&p->side[SIDE_A]->source)
				    ->request[span->request].id;
		c.token = (span->position + (p->recurrent ? 0 : spot->key[2])) * each;
	}
	c.head = conv ? -1 : a->head_start + p->head[SIDE_A] + spot->key[KVT_AXIS_H];
	if (p->half >= 0)
		c.kv = p->half + spot->key[KVT_AXIS_K];
	c.dim = channel_of(p, SIDE_A, spot->key[KVT_AXIS_D]);
	for (int s = 0; s < NSIDES; s++) {
		const int64_t index[KVT_NAXES] = {
			p->layer[s][spot->key[KVT_AXIS_L]], span->block[s],
			span->state[s] + spot->key[KVT_AXIS_S],
			p->head[s] + spot->key[KVT_AXIS_H],
			p->kv[s] + spot->key[KVT_AXIS_K],
			stored_at(p, s, spot->key[KVT_AXIS_D]),
		};

		c.block[s] = (int64_t)kvt_block_id(p->group[s], index[KVT_AXIS_B]);
		c.position[s] = index[KVT_AXIS_B];
		c.state[s] = index[KVT_AXIS_S];
		c.place[s] = side_place(p->side[s], p->number[s], index);
	}
	if (conv)
		c.dim = (int64_t)kvt_head_id(a, c.dim);
	return c;
}

int64_t result_layer(const struct result *r, int64_t l)
{
	const struct pair *p = r->pair;

	return (int64_t)kvt_layer_id(p->group[SIDE_A], p->layer[SIDE_A][l]);
}

/* "A:0-15": from the first token of the column on; or "block 3-4". */
struct human column_name(const struct result *r, int64_t column)
{
	const struct pair *p = r->pair;
	int64_t begin = column_begin(r, column), end = column_begin(r, column + 1);
	const struct span *first = &p->span[p->ordered[begin]];
	const struct span *last = &p->span[p->ordered[end - 1]];
	int64_t each = p->recurrent ? 1 : p->group[SIDE_A]->tokens_per_state;
	int64_t more = p->recurrent ? 1 : last->count;
	const struct kvt_request *request;
	struct human name;

	if (first->request < 0) {
		int64_t x = (int64_t)kvt_block_id(p->group[SIDE_A], first->block[0]);
		int64_t y = (int64_t)kvt_block_id(p->group[SIDE_A], last->block[0]);

		if (x == y)
			snprintf(name.s, sizeof(name.s), "block %lld", LL(x));
		else
			snprintf(name.s, sizeof(name.s), "block %lld-%lld", LL(x), LL(y));
		return name;
	}
	request = source_snapshot(&p->side[SIDE_A]->source)->request;
	if (first->request == last->request)
		snprintf(name.s, sizeof(name.s), "%.100s:%lld-%lld",
			 request[first->request].id, LL(first->position * each),
			 LL((last->position + more) * each - 1));
	else
		snprintf(name.s, sizeof(name.s), "%.100s:%lld to %.100s:%lld",
			 request[first->request].id, LL(first->position * each),
			 request[last->request].id,
			 LL((last->position + more) * each - 1));
	return name;
}
