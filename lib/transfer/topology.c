/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.c - which ranks of other engines a rank reads from
 *
 * In: the sizes of both engines and a rank of this one.  Out: remote ranks to shake
 * hands with, and of these the ones to read which heads from.  Of ranks that hold the
 * same heads the first is asked.  As vLLM 0.32 divides them; lib/kvt/topology.h has the
 * words.
 */
#include "lib/kvt/topology.h"

#include <string.h>

#include "lib/kvt/connect.h"

/* ---- sizes -------------------------------------------------------------- */

static enum kvt_status need(const char *what, int64_t value, int64_t least, int64_t most,
			    struct kvt_error *err)
{
	if (value >= least && value <= most)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT, "%s is %lld, expected %lld to %lld", what,
			LL(value), LL(least), LL(most));
}

enum kvt_status kvt_topology_check(const struct kvt_topology *t, struct kvt_error *err)
{
	const int64_t many = INT32_MAX;
	enum kvt_status status;

	if ((status = need("TP size", t->tp_size, 1, KVT_MAX_REMOTE_RANKS, err)) ||
	    (status = need("TP rank", t->tp_rank, 0, t->tp_size - 1, err)) ||
	    (status = need("block size", t->block_size, 1, many, err)) ||
	    (status = need("number of KV heads", t->kv_heads, 1, many, err)))
		return status;
	return need("DCP size", t->dcp_size, 1, t->tp_size, err);
}

enum kvt_status kvt_remote_check(const struct kvt_topology *t, const struct kvt_remote *r,
				 struct kvt_error *err)
{
	const int64_t many = INT32_MAX;
	enum kvt_status status;

	if (t->engine && r->engine && !strcmp(t->engine, r->engine))
		return kvt_fail(err, KVT_BAD_INPUT,
				"'%.60s' is the engine itself, and cannot be a remote one",
				r->engine);
	if ((status = need("remote TP size", r->tp_size, 1, KVT_MAX_REMOTE_RANKS, err)) ||
	    (status = need("remote PP rank", r->pp_rank, 0, many, err)) ||
	    (status = need("remote block size", r->block_size, 1, many, err)) ||
	    (status = need("bytes of a remote block", r->block_len, 0, INT64_MAX, err)) ||
	    (status = need("physical blocks", r->physical, 1, many, err)) ||
	    (status = need("first layer", r->start_layer, 0, many, err)) ||
	    (status = need("end of layers", r->end_layer, r->start_layer, many, err)))
		return status;
	return need("remote DCP size", r->dcp_size, 1, r->tp_size, err);
}

int64_t kvt_topology_heads(const struct kvt_topology *t)
{
	int64_t heads = t->kv_heads / t->tp_size;

	return heads ? heads : 1;
}

bool kvt_topology_replicates(const struct kvt_topology *t)
{
	return t->mla || t->tp_size > t->kv_heads;
}

bool kvt_remote_replicates(const struct kvt_topology *t, const struct kvt_remote *r)
{
	return t->mla || r->tp_size > t->kv_heads;
}

/* ---- ranks -------------------------------------------------------------- */

static void add(struct kvt_rank_list *out, int64_t rank)
{
	out->at[out->n++] = rank;
}

static void add_range(struct kvt_rank_list *out, int64_t begin, int64_t end)
{
	for (int64_t i = begin; i < end; i++)
		add(out, i);
}

/* Where the sequence itself is sharded: every rank with a part of this one's. */
static void add_shards(struct kvt_rank_list *out, const struct kvt_topology *t,
		       const struct kvt_remote *r)
{
	int64_t mine = t->tp_rank % t->dcp_size;

	if (t->dcp_size > r->dcp_size) {
		add(out, mine % r->dcp_size);
		return;
	}
	for (int64_t i = mine; i < r->tp_size; i += t->dcp_size)
		add(out, i);
}

enum kvt_status kvt_handshake_ranks(struct kvt_rank_list *out,
				    const struct kvt_topology *t,
				    const struct kvt_remote *r, struct kvt_error *err)
{
	const struct kvt_rank mine = { .index = t->tp_rank, .size = t->tp_size };
	struct kvt_range range;
	enum kvt_status status;

	out->n = 0;
	if (r->dcp_size > 1) {
		add_shards(out, t, r);
		return KVT_OK;
	}
	if ((status = kvt_target_ranks(&range, mine, r->tp_size, err)))
		return status;
	add_range(out, range.begin, range.end);
	return KVT_OK;
}

/* ---- the mapping -------------------------------------------------------- */

static int64_t head_of(const struct kvt_topology *t, const struct kvt_remote *r,
		       int64_t rank)
{
	return rank * t->kv_heads / r->tp_size;
}

/* Of ranks that hold the same heads only the first one is asked. */
static void add_attention(struct kvt_rank_list *out, const struct kvt_topology *t,
			  const struct kvt_remote *r)
{
	int64_t each = r->tp_size / t->tp_size, first = t->tp_rank * each;

	if (t->mla && r->dcp_size > 1) {
		add_shards(out, t, r);
	} else if (t->mla || t->tp_size >= r->tp_size) {
		add(out, t->tp_rank * r->tp_size / t->tp_size);
	} else {
		for (int64_t i = first; i < first + each; i++)
			if (i == first || head_of(t, r, i) != head_of(t, r, i - 1))
				add(out, i);
	}
}

static void add_states(struct kvt_rank_list *out, const struct kvt_topology *t,
		       const struct kvt_remote *r, const struct kvt_rank_list *attention)
{
	int64_t each = r->tp_size / t->tp_size;

	if (!t->has_states)
		return;
	if (t->tp_size < r->tp_size)
		add_range(out, t->tp_rank * each, (t->tp_rank + 1) * each);
	else
		*out = *attention;
}

/* Both ascend. */
static void merge(struct kvt_rank_list *out, const struct kvt_rank_list *a,
		  const struct kvt_rank_list *b)
{
	int64_t i = 0, j = 0;

	while (i < a->n || j < b->n) {
		int64_t rank = j == b->n || (i < a->n && a->at[i] < b->at[j]) ? a->at[i] :
			       b->at[j];

		i += i < a->n && a->at[i] == rank;
		j += j < b->n && b->at[j] == rank;
		add(out, rank);
	}
}

/* The last source with the same first head says where a rank's heads go. */
static void find_slots(struct kvt_tp_mapping *m, const struct kvt_topology *t,
		       const struct kvt_remote *r)
{
	for (int64_t i = 0; i < m->all.n; i++) {
		int64_t head = head_of(t, r, m->all.at[i]);

		m->slot[i] = 0;
		for (int64_t j = 0; j < m->attention.n; j++)
			if (head_of(t, r, m->attention.at[j]) == head)
				m->slot[i] = j;
	}
}

static int64_t offset_of(const struct kvt_tp_mapping *m, const struct kvt_topology *t,
			 const struct kvt_remote *r)
{
	if (t->mla || t->tp_size <= r->tp_size)
		return 0;
	if (t->tp_size > t->kv_heads)
		return t->tp_rank * t->kv_heads / t->tp_size -
		       head_of(t, r, m->attention.at[0]);
	return t->tp_rank % (t->tp_size / r->tp_size);
}

static enum kvt_status consumers_of(int64_t *out, const struct kvt_topology *t,
				    const struct kvt_remote *r, struct kvt_error *err)
{
	enum kvt_status status;
	int64_t ratio;

	if (r->dcp_size > 1)
		ratio = t->dcp_size == 1 ? t->tp_size : t->dcp_size / r->dcp_size;
	else if ((status = kvt_tp_ratio(&ratio, t->tp_size, r->tp_size, err)))
		return status;
	*out = ratio > 1 ? ratio : 1;
	return KVT_OK;
}

enum kvt_status kvt_tp_mapping(struct kvt_tp_mapping *m, const struct kvt_topology *t,
			       const struct kvt_remote *r, struct kvt_error *err)
{
	enum kvt_status status;

	m->attention.n = m->states.n = m->all.n = 0;
	if ((status = kvt_topology_check(t, err)) ||
	    (status = kvt_remote_check(t, r, err)) ||
	    (status = consumers_of(&m->consumers, t, r, err)))
		return status;
	add_attention(&m->attention, t, r);
	add_states(&m->states, t, r, &m->attention);
	merge(&m->all, &m->attention, &m->states);
	find_slots(m, t, r);
	m->offset = offset_of(m, t, r);
	return KVT_OK;
}
