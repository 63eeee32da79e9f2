/* SPDX-License-Identifier: Apache-2.0 */
/*
 * made_dump.h - dumps in memory for the tests of operations
 *
 * A snapshot is made field by field, and its elements by a function of their indices.
 */
#ifndef MADE_DUMP_H
#define MADE_DUMP_H

#include "tests/unit/formats/dump_fixture.h"

/* The bytes of one element. */
typedef void element_fn(uint8_t *element, int64_t elem, const int64_t i[KVT_NAXES]);

static inline void hashed_element(uint8_t *element, int64_t elem,
				  const int64_t i[KVT_NAXES])
{
	for (int64_t b = 0; b < elem; b++)
		element[b] = byte_at(i, b);
}

/* A dump in memory, and its bytes. */
struct made {
	struct kvt_dump *dump;
	uint8_t *bytes[KVT_MAX_GROUPS];
};

static inline void made_init(struct made *m, const struct kvt_snapshot *s,
			     element_fn *element)
{
	const void *bytes[KVT_MAX_GROUPS] = { NULL };

	*m = (struct made){ .dump = NULL };
	for (int g = 0; g < s->ngroups; g++) {
		const struct kvt_group *group = &s->group[g];
		struct kvt_box box = kvt_box_whole(&group->shape);
		int64_t i[KVT_NAXES] = { 0 };

		bytes[g] = m->bytes[g] = malloc((size_t)box_bytes(group, &box));
		assert_non_null(m->bytes[g]);
		do
			element(m->bytes[g] + dense_at(group, &box, i),
				group->shape.elem, i);
		while (next_index(i, &box));
	}
	ok(kvt_dump_of_memory(&m->dump, s, bytes, &why));
}

static inline void made_free(struct made *m)
{
	kvt_dump_close(m->dump);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		free(m->bytes[g]);
}

/* ---- tables of a snapshot ----------------------------------------------- */

static inline void set_layer_ids(struct kvt_group *g, const uint32_t *ids)
{
	size_t nbytes = (size_t)g->shape.n[NL] * sizeof(*ids);

	g->layer_ids = malloc(nbytes);
	assert_non_null(g->layer_ids);
	memcpy(g->layer_ids, ids, nbytes);
}

static inline void set_block_ids(struct kvt_group *g, const uint64_t *ids)
{
	size_t nbytes = (size_t)g->shape.n[NB] * sizeof(*ids);

	g->block_ids = malloc(nbytes);
	assert_non_null(g->block_ids);
	memcpy(g->block_ids, ids, nbytes);
}

/* The second of two tensor-parallel ranks: its heads are the upper half. */
static inline void set_second_rank(struct kvt_snapshot *s)
{
	s->parallel.tp_size = 2;
	s->parallel.tp_rank = 1;
	s->has_parallel = true;
	for (int g = 0; g < s->ngroups; g++) {
		s->group[g].head_start = s->group[g].shape.n[NH];
		s->group[g].total_heads = 2 * s->group[g].shape.n[NH];
	}
}

#endif
