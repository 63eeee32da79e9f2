/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_digest.c - digests against a second implementation of their definition
 *
 * The model here walks the cells by their coordinates, with the definition of
 * kvtool-digest(1) at hand and nothing of lib/ but the snapshot.
 */
#include "tests/fewer.h"
#include "tests/unit/fixture.h"

#include <xxhash.h>

#include "lib/ops/digest/digest.h"

struct sum {
	uint64_t lo, hi;
};

static void add(struct sum *to, struct sum x)
{
	to->lo += x.lo;
	to->hi += x.hi;
}

static struct sum hash(const void *bytes, size_t n)
{
	XXH128_hash_t h = XXH3_128bits(bytes, n);

	return (struct sum){ h.low64, h.high64 };
}

static struct sum cell_at(struct sum content, uint64_t layer, uint64_t position,
			  uint64_t slot, uint64_t head, uint64_t component)
{
	uint64_t word[7] = { content.lo, content.hi, layer, position, slot, head,
			     component };
	uint8_t message[56];

	for (int i = 0; i < 56; i++)
		message[i] = (uint8_t)(word[i / 8] >> i % 8 * 8);
	return hash(message, sizeof(message));
}

enum { MAX_REQUESTS = 4, MAX_LAYERS = 4, MAX_HEADS = 4, MAX_BLOCKS = 8,
       MAX_CONTENT = 4096 };

struct model {
	struct sum tokens, blocks;
	struct sum request[MAX_REQUESTS];
	struct sum head[DIGEST_NSCOPES][MAX_LAYERS][MAX_HEADS];
	struct sum block[DIGEST_NSCOPES][MAX_BLOCKS];
};

static struct sum times_request(struct sum x, const char *id)
{
	struct sum m = hash(id, strlen(id));

	return (struct sum){ x.lo * (m.lo | 1), x.hi * (m.hi | 1) };
}

static void model_cell(struct model *m, const struct kvt_snapshot *s,
		       int64_t i[KVT_NAXES])
{
	const struct kvt_group *g = &s->group[0];
	int64_t elem = g->shape.elem, l = i[NL], b = i[NB], h = i[NH];
	uint8_t bytes[MAX_CONTENT * 2];
	uint64_t layer = g->layer_ids[l], head = (uint64_t)(g->head_start + h);
	struct sum content, x;

	for (i[ND] = 0; i[ND] < g->shape.n[ND]; i[ND]++)
		for (int64_t byte = 0; byte < elem; byte++)
			bytes[i[ND] * elem + byte] = byte_at(i, byte);
	i[ND] = 0;
	content = hash(bytes, (size_t)(g->shape.n[ND] * elem));
	x = cell_at(content, layer, g->block_ids[b], (uint64_t)i[NS], head,
		    (uint64_t)i[NK]);
	add(&m->blocks, x);
	add(&m->head[DIGEST_BLOCKS][l][h], x);
	add(&m->block[DIGEST_BLOCKS][b], x);
	for (int64_t r = 0; r < s->nrequests; r++)
		for (int64_t j = 0; j < s->request[r].nblocks[0]; j++) {
			int64_t position = j * g->shape.n[NS] + i[NS];

			if (s->request[r].blocks[0][j] != b ||
			    position >= s->request[r].ntokens)
				continue;
			x = cell_at(content, layer, (uint64_t)position, 0, head,
				    (uint64_t)i[NK]);
			add(&m->request[r], x);
			x = times_request(x, s->request[r].id);
			add(&m->tokens, x);
			add(&m->head[DIGEST_TOKENS][l][h], x);
			add(&m->block[DIGEST_TOKENS][b], x);
		}
}

static void model_of(struct model *m, const struct kvt_snapshot *s)
{
	const int64_t *n = s->group[0].shape.n;
	int64_t i[KVT_NAXES] = { 0 };

	memset(m, 0, sizeof(*m));
	for (i[NL] = 0; i[NL] < n[NL]; i[NL]++)
	for (i[NB] = 0; i[NB] < n[NB]; i[NB]++)
	for (i[NS] = 0; i[NS] < n[NS]; i[NS]++)
	for (i[NH] = 0; i[NH] < n[NH]; i[NH]++)
	for (i[NK] = 0; i[NK] < n[NK]; i[NK]++)
		model_cell(m, s, i);
}

static void same(const struct kvt_digest *is, struct sum wanted, const char *what)
{
	if (is->lo != wanted.lo || is->hi != wanted.hi)
		fail_msg("%s: %016llx%016llx, expected %016llx%016llx", what,
			 (unsigned long long)is->hi, (unsigned long long)is->lo,
			 (unsigned long long)wanted.hi, (unsigned long long)wanted.lo);
}

static void check(struct kvt_dump *dump, const struct model *m,
		  const struct kvt_snapshot *s, const struct kvt_run *run)
{
	const struct kvt_group *g = &s->group[0];
	struct digests d;

	ok(kvt_digests_compute(&d, dump, DIGEST_NEWEST, run, &why));
	assert_int_equal(d.version, DIGEST_KVD1);
	same(&d.whole[DIGEST_BLOCKS], m->blocks, "blocks");
	same(&d.whole[DIGEST_TOKENS], m->tokens, "tokens");
	for (int64_t r = 0; r < s->nrequests; r++)
		same(&d.request[r], m->request[r], s->request[r].id);
	for (int scope = 0; scope < DIGEST_NSCOPES; scope++) {
		for (int64_t l = 0; l < g->shape.n[NL]; l++)
			for (int64_t h = 0; h < g->shape.n[NH]; h++)
				same(&d.group[0].head[scope][l * g->shape.n[NH] + h],
				     m->head[scope][l][h], "a head");
		for (int64_t b = 0; b < g->shape.n[NB]; b++)
			same(&d.group[0].block[scope][b], m->block[scope][b], "a block");
	}
	kvt_digests_free(&d);
}

/* Blocks that two requests share, one that none has, and a rank that is not the first. */
static struct kvt_snapshot *some_requests(const char *layout)
{
	struct kvt_snapshot *s = small_snapshot(layout, "bf16", false);

	number_layers(&s->group[0], (const uint32_t[]){ 4, 7, 9 });
	number_blocks(&s->group[0], (const uint64_t[]){ 10, 3, 8, 1, 6 });
	set_second_rank(s);
	add_request(s, "alpha", 40, IDS(2, 0, 4));
	add_request(s, "beta", 20, IDS(2, 1));
	return s;
}

/* Whatever the layout: the model knows none. */
static void test_definition(void)
{
	static const char *const layouts[] = { "nhd", "hnd", "rocm-paged" };
	const struct kvt_run run = { .threads = 1 };
	struct model m;

	for (int i = 0; i < 3; i++) {
		struct kvt_snapshot *s = some_requests(layouts[i]);
		struct kvt_dump *made;

		made = make_dump(s, hashed, 0)->dump;
		if (!i)
			model_of(&m, s);
		check(made, &m, s, &run);
	}
}

/* Sums of boxes, some layers or some blocks of one, in whatever order threads come. */
static void test_threads(void)
{
	struct kvt_snapshot *s = some_requests("nhd");
	struct kvt_dump *made;
	struct model m;

	s->group[0].shape.n[ND] = MAX_CONTENT;
	made = make_dump(s, hashed, 0)->dump;
	model_of(&m, s);
	for (int threads = every() == 1 ? 1 : 4; threads <= 4; threads += 3)
		for (int small = 0; small < 2; small++) {
			const struct kvt_run run = { .threads = threads,
						     .memory = small ? 6 << 20 : 0 };

			check(made, &m, s, &run);
		}
}

static void test_text(void)
{
	const struct kvt_digest d = { 0x0123456789abcdef, 0xf };

	assert_string_equal(kvt_digest_text(DIGEST_TOKENS, DIGEST_KVD2, &d).s,
			    "kvd2:tokens:000000000000000f0123456789abcdef");
	/* blocks mean the same in every version */
	assert_string_equal(kvt_digest_text(DIGEST_BLOCKS, DIGEST_KVD2, &d).s,
			    "kvd1:blocks:000000000000000f0123456789abcdef");
}

TESTS("digest",
	TEST(test_definition), TEST(test_threads), TEST(test_text))
