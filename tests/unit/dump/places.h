/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places.h - dumps in memory whose elements say where they are in the model
 *
 * An element is a number made of its layer, block, slot, head, kv and channel, as
 * the model and the engine's pool number them, and of whose dump it is.  So what was
 * derived is right if each element says what the tables there say of its place, and
 * the tables are what the test expects.
 */
#ifndef PLACES_H
#define PLACES_H

#include "tests/unit/formats/dump_fixture.h"

#include "lib/kvt/derive.h"

/* Never 0, which is what reads where no leaf has data. */
static inline uint32_t place_number(int who, int64_t layer, int64_t block,
				    int64_t slot, int64_t head, int64_t kv,
				    int64_t channel)
{
	assert_true(who < 4 && layer < 16 && block < 256 && slot < 32 && head < 16 &&
		    kv < 2 && channel < 128);
	return UINT32_C(1) << 31 | (uint32_t)who << 29 | (uint32_t)layer << 25 |
	       (uint32_t)block << 17 | (uint32_t)slot << 12 | (uint32_t)head << 8 |
	       (uint32_t)kv << 7 | (uint32_t)channel;
}

/* What the group's tables say of an element. */
static inline uint32_t number_of(const struct kvt_group *g, int who,
				 const int64_t i[KVT_NAXES])
{
	int64_t kv = i[NK], channel = i[ND];

	for (int c = 0; c < g->ncomponents; c++) {
		const struct kvt_component *part = &g->component[c];

		if (g->kind != KVT_MAMBA_CONV && !strcmp(part->name, "v"))
			kv = 1;
		else if (g->kind == KVT_MAMBA_CONV && i[ND] >= part->start &&
			 i[ND] < part->start + part->length)
			channel = part->global_start + i[ND] - part->start;
	}
	return place_number(who, g->layer_ids ? g->layer_ids[i[NL]] : i[NL],
			    g->block_ids ? (int64_t)g->block_ids[i[NB]] : i[NB], i[NS],
			    g->head_start + i[NH], kv, channel);
}

/* ---- snapshots ---------------------------------------------------------- */

/* Elements of four bytes, a token a slot; recurrent: a slot for all tokens. */
static inline struct kvt_group *new_group(struct kvt_snapshot *s, const char *id,
					  enum kvt_kind kind, const char *layout,
					  const int64_t n[KVT_NAXES])
{
	struct kvt_group *g = &s->group[s->ngroups++];
	bool recurrent = kind == KVT_MAMBA_CONV || kind == KVT_MAMBA_SSM;

	*g = (struct kvt_group){
		.kind = kind, .dtype = kvt_dtype_find("float32"), .replication = 1,
		.block_size = recurrent ? 0 : n[NS], .total_heads = n[NH],
		.tokens_per_slot = recurrent ? -1 : 1,
	};
	strcpy(g->id, id);
	ok(kvt_layout_parse(&g->layout, layout, NULL));
	memcpy(g->shape.n, n, sizeof(g->shape.n));
	g->shape.elem = 4;
	return g;
}

static inline void add_part(struct kvt_group *g, const char *name, int64_t start,
			    int64_t length, int64_t global_start)
{
	struct kvt_component *c = &g->component[g->ncomponents++];

	*c = (struct kvt_component){ .start = start, .length = length,
				     .global_start = global_start };
	strcpy(c->name, name);
}

static inline void number_layers(struct kvt_group *g, const uint32_t *ids)
{
	g->layer_ids = malloc((size_t)g->shape.n[NL] * sizeof(*ids) + 1);
	assert_non_null(g->layer_ids);
	memcpy(g->layer_ids, ids, (size_t)g->shape.n[NL] * sizeof(*ids));
}

static inline void number_blocks(struct kvt_group *g, const uint64_t *ids)
{
	g->block_ids = malloc((size_t)g->shape.n[NB] * sizeof(*ids) + 1);
	assert_non_null(g->block_ids);
	memcpy(g->block_ids, ids, (size_t)g->shape.n[NB] * sizeof(*ids));
}

/* The table of the last request in another group than the first. */
static inline void add_table(struct kvt_snapshot *s, int group, int n,
			     const uint32_t *blocks)
{
	struct kvt_request *r = &s->request[s->nrequests - 1];

	r->nblocks[group] = n;
	r->blocks[group] = malloc((size_t)n * sizeof(*blocks) + 1);
	assert_non_null(r->blocks[group]);
	memcpy(r->blocks[group], blocks, (size_t)n * sizeof(*blocks));
}

static inline void set_rank(struct kvt_snapshot *s, int64_t size, int64_t rank)
{
	s->parallel.tp_size = size;
	s->parallel.tp_rank = rank;
	s->has_parallel = true;
}

/* ---- dumps -------------------------------------------------------------- */

/* A dump and what it borrows. */
struct placed_dump {
	struct kvt_dump *dump;
	uint32_t *numbers[KVT_MAX_GROUPS];
};

/* Numbers every element as its group says; takes the snapshot. */
static inline struct placed_dump number_dump(struct kvt_snapshot *s, int who)
{
	struct placed_dump out = { NULL, { NULL } };
	const void *bytes[KVT_MAX_GROUPS] = { NULL };

	for (int g = 0; g < s->ngroups; g++) {
		const struct kvt_group *group = &s->group[g];
		struct kvt_box box = kvt_box_whole(&group->shape);
		int64_t i[KVT_NAXES] = { 0 };

		bytes[g] = out.numbers[g] = malloc((size_t)box_bytes(group, &box));
		assert_non_null(bytes[g]);
		do
			out.numbers[g][dense_at(group, &box, i) / 4] =
				number_of(group, who, i);
		while (next_index(i, &box));
	}
	ok(kvt_dump_of_memory(&out.dump, s, bytes, &why));
	kvt_snapshot_free(s);
	return out;
}

static inline void drop_dump(struct placed_dump *p)
{
	kvt_dump_close(p->dump);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		free(p->numbers[g]);
}

/* ---- reading ------------------------------------------------------------ */

/* All of a group in the order of its indices; free() it. */
static inline uint32_t *read_numbers(const struct kvt_dump *dump, int g)
{
	const struct kvt_group *group = kvt_dump_group(dump, g);
	struct kvt_box all = kvt_box_whole(&group->shape);
	int64_t nbytes = box_bytes(group, &all);
	uint32_t *numbers = malloc((size_t)nbytes + 1);
	struct kvt_layout order;

	ok(kvt_layout_parse(&order, "LBSHKD", NULL));
	memset(numbers, 0x5a, (size_t)nbytes);
	ok(kvt_dump_read(dump, g, &all, &order, numbers, &why));
	return numbers;
}

static inline void expect_number(uint32_t got, uint32_t want, const int64_t i[KVT_NAXES])
{
	if (got != want)
		fail_msg("l %d b %d s %d h %d k %d d %d: %08x, expected %08x",
			 (int)i[NL], (int)i[NB], (int)i[NS], (int)i[NH], (int)i[NK],
			 (int)i[ND], (unsigned)got, (unsigned)want);
}

/* Every element is the one that the tables of its group say. */
static inline void check_places(const struct kvt_dump *dump, int who)
{
	for (int g = 0; g < kvt_dump_snapshot(dump)->ngroups; g++) {
		const struct kvt_group *group = kvt_dump_group(dump, g);
		struct kvt_box all = kvt_box_whole(&group->shape);
		uint32_t *numbers = read_numbers(dump, g), *at = numbers;
		int64_t i[KVT_NAXES] = { 0 };

		do
			expect_number(*at++, number_of(group, who, i), i);
		while (next_index(i, &all));
		free(numbers);
	}
}

/* ---- tables ------------------------------------------------------------- */

static inline void expect_shape(const struct kvt_group *g, const int64_t n[KVT_NAXES])
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (g->shape.n[a] != n[a])
			fail_msg("%s: %s extent is %d, expected %d", g->id,
				 kvt_axis_name(a), (int)g->shape.n[a], (int)n[a]);
}

static inline void expect_layers(const struct kvt_group *g, int n, const uint32_t *ids)
{
	assert_int_equal(g->shape.n[NL], n);
	for (int l = 0; l < n; l++)
		assert_int_equal(kvt_layer_id(g, l), ids[l]);
}

static inline void expect_blocks(const struct kvt_group *g, int n, const uint64_t *ids)
{
	assert_int_equal(g->shape.n[NB], n);
	for (int b = 0; b < n; b++)
		assert_int_equal(kvt_block_id(g, b), ids[b]);
}

static inline void expect_table(const struct kvt_dump *dump, int64_t r, int g, int n,
				const uint32_t *blocks)
{
	const struct kvt_request *q = &kvt_dump_snapshot(dump)->request[r];

	assert_true(r < kvt_dump_snapshot(dump)->nrequests);
	assert_int_equal(q->nblocks[g], n);
	for (int i = 0; i < n; i++)
		assert_int_equal(q->blocks[g][i], blocks[i]);
}

static inline void expect_tokens(const struct kvt_dump *dump, int64_t r, const char *id,
				 int64_t first, int64_t ntokens)
{
	const struct kvt_request *q = &kvt_dump_snapshot(dump)->request[r];

	assert_true(r < kvt_dump_snapshot(dump)->nrequests);
	assert_string_equal(q->id, id);
	assert_int_equal(q->first_token, first);
	assert_int_equal(q->ntokens, ntokens);
}

#endif
