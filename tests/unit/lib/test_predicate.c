/* SPDX-License-Identifier: Apache-2.0 */
/* test_predicate.c - what orders promise about runs */
#include "lib/kvt/kvt.h"
#include "tests/unit/tests.h"

static struct predicate_case {
	const char *what, *layout;
	int64_t n[KVT_NAXES];
	const char *yes;	/* of "LBCORN", one letter each, as below */
	int kv;
} cases[] = {
	/* LAYOUTS 10: the six packed orders */
	{ "NHD", "nhd", { 2, 4, 32, 4, 2, 64 }, "LB...N", 4 },
	{ "HND", "hnd", { 2, 4, 32, 4, 2, 64 }, "LBC.R.", 4 },
	{ "BLSHC", "blshc", { 2, 4, 32, 4, 2, 64 }, ".B.O..", 4 },
	{ "BLHSC", "blhsc", { 2, 4, 32, 4, 2, 64 }, ".BCOR.", 4 },
	{ "BHLSC", "bhlsc", { 2, 4, 32, 4, 2, 64 }, "...OR.", 4 },
	{ "LHBSC", "lhbsc", { 2, 4, 32, 4, 2, 64 }, "L...RN", 4 },

	/* keys apart from values */
	{ "KV first: a page is two runs", "kv-first-nhd",
	  { 2, 4, 32, 4, 2, 64 }, "L....N", 1 },
	{ "blocks first: K stands between B and S", "blocks-first-nhd",
	  { 2, 4, 32, 4, 2, 64 }, "LB....", 2 },
	{ "flex: S follows B", "flex-split", { 2, 4, 32, 4, 2, 64 }, "LB...N", 3 },
	{ "head halves: one head is one run", "head-halves",
	  { 2, 4, 32, 4, 2, 64 }, "LBC.R.", 3 },
	{ "K outermost", "hicache-page-first",
	  { 2, 4, 32, 4, 2, 64 }, ".....N", 0 },
	{ "two buffers are K outermost", "sglang-pool",
	  { 2, 4, 32, 4, 2, 64 }, ".....N", 0 },

	/* planes: packed inside a head, so heads can be cut, slots cannot */
	{ "CPU AMX", "cpu-amx", { 2, 4, 32, 4, 2, 64 }, "LBC.R.", 3 },
	{ "ROCm paged", "rocm-paged", { 2, 4, 32, 4, 2, 64 }, "L.....", 1 },
	{ "AITER shuffle", "aiter-shuffle", { 2, 4, 32, 4, 2, 64 }, "LB....", 2 },

	/* axes of extent 1 are nowhere */
	{ "one head: NHD is HND, and more", "nhd",
	  { 2, 4, 32, 1, 2, 64 }, "LBC.RN", 3 },
	{ "one head: HND as well", "hnd", { 2, 4, 32, 1, 2, 64 }, "LBC.RN", 3 },
	{ "MLA", "mla", { 2, 4, 32, 1, 1, 576 }, "LBC.RN", -1 },
	{ "one layer: blocks are outermost", "nhd",
	  { 1, 4, 32, 4, 2, 64 }, "LB.O.N", 3 },
	{ "one block is outermost", "nhd", { 2, 1, 32, 4, 2, 64 }, "LB.O.N", 3 },
	{ "one block could still be cut into several", "hnd",
	  { 2, 1, 32, 4, 2, 64 }, "LBCOR.", 3 },
	{ "one slot cannot be cut", "hnd", { 2, 4, 1, 4, 2, 64 }, "LBC.RN", 3 },
	{ "values only: K is nowhere", "blocks-first-hnd",
	  { 2, 4, 32, 4, 1, 64 }, "LBC.R.", -1 },
	{ "values only, of one of two buffers that differ", "K:LBHSD V:LBSHD",
	  { 2, 4, 32, 4, 1, 64 }, "LB....", -1 },
	{ "a split whose outer part is 1 is none", "L B S/32 H S%32 C",
	  { 2, 4, 32, 1, 2, 64 }, "LBC.RN", 3 },
};

static void test_predicates(void **state)
{
	const struct predicate_case *c = *state;
	struct kvt_shape shape = { .elem = 2 };
	struct kvt_layout layout;
	struct kvt_predicates p;
	char yes[7] = "";

	memcpy(shape.n, c->n, sizeof(shape.n));
	ok(kvt_layout_parse(&layout, c->layout, NULL));
	p = kvt_layout_predicates(&layout, &shape);
	yes[0] = p.layer_compact ? 'L' : '.';
	yes[1] = p.block_compact ? 'B' : '.';
	yes[2] = p.block_contiguous ? 'C' : '.';
	yes[3] = p.block_outermost ? 'O' : '.';
	yes[4] = p.head_run ? 'R' : '.';
	yes[5] = p.kernel_split_neutral ? 'N' : '.';
	assert_string_equal(yes, c->yes);
	assert_int_equal(p.kv_position, c->kv);
}

TESTS("predicate",
	EACH(cases, test_predicates))
