/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_transfer.c - any two sides, strides and block ids: the plan is refused,
 * or its count and its walk agree
 */
#include <stdlib.h>
#include <string.h>

#include "lib/kvt/transfer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_IDS = 16, MOST_OPS = 20000, MOST_STEPS = 1 << 17 };

struct input {
	const uint8_t *at, *end;
};

/* The next byte, as a small number; now and then a large or negative one. */
static int64_t number(struct input *in)
{
	int64_t n = in->at < in->end ? *in->at++ : 1;

	if (n < 224)
		return n % 32;
	return n < 240 ? (int64_t)1 << (n - 180) : n < 248 ? -n : n * 1000003;
}

static enum kvt_status side(struct kvt_xfer_side *out, struct input *in,
			    const struct kvt_spec *spec)
{
	static const char *const layouts[] = {
		"nhd", "hnd", "bhlsc", "kv-first-nhd", "rocm-paged", "LBDS", "BLSD",
		"aiter-shuffle",
	};
	struct kvt_spec own = *spec;
	struct kvt_layout layout;
	int64_t strides[KVT_NAXES] = { 0 }, ranks = number(in), layers = number(in);
	int64_t pool = number(in), odd = number(in);
	enum kvt_status status;

	own.block_size = number(in);
	if (odd % 4 == 1)
		strides[KVT_AXIS_B] = number(in);
	if (odd % 4 == 2)
		strides[KVT_AXIS_L] = number(in);
	if ((status = kvt_layout_parse(&layout, layouts[(uint64_t)number(in) % 8], NULL)))
		return status;
	status = kvt_xfer_side_init(out, &own, ranks, &layout, layers, pool, strides,
				    odd / 4, NULL);
	out->replicas = odd % 5 ? KVT_GROUPED : KVT_MODULO;
	return status;
}

static enum kvt_status entries(struct kvt_block_span *entry, int64_t *n,
			       struct input *in, const struct kvt_xfer_side sides[2])
{
	uint32_t ids[2][MOST_IDS];
	struct kvt_block_table t[2];

	for (int s = 0; s < 2; s++) {
		const struct kvt_shape *shape = &sides[s].views.view[0].shape;
		bool state = sides[s].spec.tokens_per_slot.num < 0;

		t[s] = (struct kvt_block_table){ ids[s], MOST_IDS,
			state ? 1 : shape->n[KVT_AXIS_S], shape->n[KVT_AXIS_B], 0 };
		for (int i = 0; i < MOST_IDS; i++)
			ids[s][i] = (uint32_t)number(in) % 16;
	}
	return kvt_xfer_entries(entry, n, 2 * MOST_IDS, &t[0], &t[1], number(in),
				number(in), NULL);
}

static void compare(const struct kvt_nest *nest)
{
	for (int scope = 0; scope < KVT_NSCOPES; scope++) {
		struct kvt_tally tally = { 0 };
		struct kvt_ops ops;
		struct kvt_op op, last = { -1, 0, 0 };
		int64_t n = 0, nbytes = 0;

		if (kvt_pair_tally(&tally, NULL, nest, scope, NULL) ||
		    tally.ops > MOST_OPS)
			continue;
		kvt_ops_start(&ops, nest, scope);
		for (; kvt_op_next(&op, &ops); n++, last = op, nbytes += op.len)
			if (op.src < last.src + last.len)
				abort();
		if (n != tally.ops || nbytes != tally.bytes)
			abort();
	}
}

/*
 * A tally may step over each index of an axis that the sides split differently,
 * whatever moves: large extents would only take the fuzzer's time.
 */
static bool too_long(const struct kvt_xfer *x)
{
	const struct kvt_shape *shape = &x->src.views.view[0].shape;
	int64_t steps = x->nentries;

	for (int a = 0; a < KVT_NAXES; a++)
		if (a != KVT_AXIS_B &&
		    (__builtin_mul_overflow(steps, shape->n[a], &steps) ||
		     steps > MOST_STEPS))
			return true;
	return false;
}

static void plan(struct input *in, const struct kvt_spec *spec)
{
	struct kvt_block_span entry[2 * MOST_IDS];
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_xfer_side sides[2];
	struct kvt_pair pair;
	struct kvt_nest nest;
	struct kvt_xfer x;
	int64_t n = 0;

	if (side(&sides[0], in, spec) || side(&sides[1], in, spec) ||
	    entries(entry, &n, in, sides) ||
	    kvt_xfer_init(&x, &sides[0], &sides[1], entry, n, NULL) || too_long(&x))
		return;
	for (int i = 0; i < 16 && kvt_pair_next(&pair, &walk, &x); i++)
		if (!kvt_nest_init(&nest, &x, &pair, NULL))
			compare(&nest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const presets[] = {
		"gqa", "mla", "mamba2-conv", "mamba2-ssm", "mamba1-conv", "indexer",
		"compressed", "gdn-conv",
	};
	struct input in = { data, data + size };
	struct kvt_spec_args args = {
		.block_size = number(&in), .heads = number(&in), .head_dim = number(&in),
		.latent = 3, .ratio = 2, .inter = 8, .groups = number(&in),
		.state_size = 2, .key_heads = 2, .key_dim = 2, .kernel = number(&in),
	};
	struct kvt_rank one = { 1, 0 };
	struct kvt_spec spec;

	if (!kvt_spec_make(&spec, presets[(uint64_t)number(&in) % 8], &args, one, NULL))
		plan(&in, &spec);
	return 0;
}
