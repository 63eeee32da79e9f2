/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_transfer.c - plans of 128k tokens of Llama-3.1-70B, TP 4 to 8
 *
 * In nhd these are 84 million ops, of which nothing is stored: how long counting
 * them takes, and how fast they are walked, on one thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "lib/kvt/transfer.h"

enum { LAYERS = 80, HEADS = 8, DIM = 128, TOKENS = 131072, BLOCK = 16,
       BLOCKS = TOKENS / BLOCK, POOL = 2 * BLOCKS + 3 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct result {
	int64_t ops, walked;
	double plan, walk;
};

static enum kvt_status run(struct result *out, const struct kvt_xfer *x,
			   struct kvt_error *err)
{
	static struct kvt_size_count bins[4096];
	struct kvt_sizes sizes = { bins, 0, 4096 };
	struct kvt_tally tally = { 0 };
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_pair pair;
	struct kvt_nest nest;
	struct kvt_ops ops;
	struct kvt_op op;
	enum kvt_status status;
	double start;

	while (kvt_pair_next(&pair, &walk, x)) {
		start = now();
		if ((status = kvt_nest_init(&nest, x, &pair, err)) ||
		    (status = kvt_pair_tally(&tally, &sizes, &nest, KVT_SCOPE_RFC, err)))
			return status;
		out->plan += now() - start;
		start = now();
		kvt_ops_start(&ops, &nest, KVT_SCOPE_RFC);
		while (kvt_op_next(&op, &ops))
			out->walked++;
		out->walk += now() - start;
	}
	out->ops = tally.ops;
	return KVT_OK;
}

static enum kvt_status bench(const char *name, struct kvt_error *err)
{
	static uint32_t ids[BLOCKS];
	static struct kvt_block_span entry[2 * BLOCKS];
	struct kvt_spec_args args = { .block_size = BLOCK, .heads = HEADS,
				      .head_dim = DIM };
	struct kvt_block_table table = { ids, BLOCKS, BLOCK, POOL, 0 };
	struct kvt_rank one = { 1, 0 };
	struct kvt_xfer_side src, dst;
	struct kvt_layout layout;
	struct kvt_spec spec;
	struct kvt_xfer x;
	struct result r = { 0 };
	int64_t n = 0;
	enum kvt_status status;
	double start = now();

	for (uint32_t i = 0; i < BLOCKS; i++)
		ids[i] = 2 * i;
	if ((status = kvt_spec_make(&spec, "gqa", &args, one, err)) ||
	    (status = kvt_layout_parse(&layout, name, err)) ||
	    (status = kvt_xfer_side_init(&src, &spec, 4, &layout, LAYERS, POOL, NULL, 0,
					 err)) ||
	    (status = kvt_xfer_side_init(&dst, &spec, 8, &layout, LAYERS, POOL, NULL, 0,
					 err)) ||
	    (status = kvt_xfer_entries(entry, &n, 2 * BLOCKS, &table, &table, 0, TOKENS,
				       err)) ||
	    (status = kvt_xfer_init(&x, &src, &dst, entry, n, err)))
		return status;
	r.plan = now() - start;
	if ((status = run(&r, &x, err)))
		return status;
	printf("%-8s %10lld ops: plan %6.1f ms, walk %6.1f M ops/s%s\n", name,
	       (long long)r.ops, r.plan * 1e3, (double)r.walked / r.walk / 1e6,
	       r.walked == r.ops ? "" : ", NOT ALL OF THEM");
	return r.walked == r.ops ? KVT_OK : KVT_MISMATCH;
}

int main(void)
{
	static const char *const names[] = { "nhd", "hnd", "blshc", "bhlsc" };
	struct kvt_error err = { "" };
	struct rusage usage;

	for (int i = 0; i < 4; i++)
		if (bench(names[i], &err)) {
			fprintf(stderr, "bench_transfer: %s\n", err.text);
			return EXIT_FAILURE;
		}
	getrusage(RUSAGE_SELF, &usage);
	printf("%.1f MiB of memory\n", (double)usage.ru_maxrss / 1024);
	return EXIT_SUCCESS;
}
