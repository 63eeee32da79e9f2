/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_cast.c - casts and encoders beside memcpy, a relayout and ggml, on one thread
 *
 *	bench_cast [--json] [--only=ROW] [LIBGGML-BASE LIBGGML-CPU]
 *
 * Contenders run in turn, round by round, as a shared machine changes within minutes; the
 * best round of each counts, in time of the processor.  Figures are bytes of input a
 * second.  Casts are of more than caches hold, as a relayout of the same bytes is;
 * encoders of what they need not wait for.  bench_casts.py runs torch beside all that.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/kvt/cast.h"
#include "lib/kvt/kernels.h"

enum { NUMBERS = 32 << 20, ENCODED = 4 << 20, DIM = 1024, ROUNDS = 25 };

static const double enough = 2;		/* seconds of a row that is slow */

static unsigned char *in, *out;
static bool json;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- ggml --------------------------------------------------------------- */

typedef void ggml_from_float(const float *x, void *to, int64_t n);
struct ggml_traits {
	ggml_from_float *from_float;
	void *dot;
	int dot_type;
	int64_t nrows;
};
static const struct ggml_traits *(*traits)(int type);

static void open_ggml(const char *base, const char *cpu)
{
	void *library = dlopen(base, RTLD_NOW | RTLD_GLOBAL) ?
			dlopen(cpu, RTLD_NOW) : NULL;
	void (*init)(void);
	void *symbol = library ? dlsym(library, "ggml_cpu_init") : NULL;

	memcpy(&init, &symbol, sizeof(init));
	if (init)
		init();
	symbol = library ? dlsym(library, "ggml_get_type_traits_cpu") : NULL;
	memcpy(&traits, &symbol, sizeof(traits));
	if (!traits)
		fprintf(stderr, "no ggml there: %s\n", dlerror());
}

/* ---- contenders --------------------------------------------------------- */

struct row {
	const char *from, *to;
	int ggml;			/* its number there; 0: not */
	struct kvt_caster caster;	/* of an encoder */
};

/* One round of a contender; false: it has no such row, or does not run here. */
typedef bool contender_fn(const struct row *row, int kernel);

static bool copies(const struct row *row, int kernel)
{
	(void)kernel;
	memcpy(out, in, (size_t)(NUMBERS * kvt_dtype_find(row->from)->elem));
	return true;
}

/* NHD to HND, 16 slots by 8 heads. */
static bool relayouts(const struct row *row, int kernel)
{
	const int64_t run = 128 * kvt_dtype_find(row->from)->elem, slots = 16, heads = 8;
	const struct kvt_plan plan = {
		.run = run, .nloops = 3,
		.n = { NUMBERS / 128 / slots / heads, heads, slots },
		.src_stride = { slots * heads * run, run, heads * run },
		.dst_stride = { slots * heads * run, slots * run, run },
	};

	(void)kernel;
	kvt_cpu_copy(out, in, &plan);
	return true;
}

static bool casts(const struct row *row, int kernel)
{
	const struct kvt_cast_kernel *k = kvt_cpu_cast_kernel(kernel);
	const struct kvt_dtype *to = kvt_dtype_find(row->to);

	if (!k || !k->runs_here())
		return false;
	kvt_cpu_cast_with(k, out, to, in, kvt_dtype_find(row->from), NUMBERS, 1,
			  to->elem == 1 ? 0.037f : 1);
	return true;
}

static bool encodes(const struct row *row, int kernel)
{
	const float *x = (const float *)(const void *)in;

	(void)kernel;
	for (int64_t i = 0; i < ENCODED / DIM; i++)
		kvt_cast_row(&row->caster, out + i * row->caster.nbytes, 0, x + i * DIM,
			     0, 1);
	return true;
}

static bool ggml_encodes(const struct row *row, int kernel)
{
	const float *x = (const float *)(const void *)in;

	(void)kernel;
	if (!traits || !row->ggml)
		return false;
	for (int64_t i = 0; i < ENCODED / DIM; i++)
		traits(row->ggml)->from_float(x + i * DIM,
					      out + i * row->caster.nbytes, DIM);
	return true;
}

struct contender {
	const char *name;
	contender_fn *fn;
	int kernel;
};

/* All of a row in turn; nbytes of input each. */
static void run_row(const struct row *row, const struct contender *c, int n,
		    double nbytes)
{
	double best[8], began = now();
	char name[96];

	for (int i = 0; i < n; i++)
		best[i] = 1e9;
	for (int r = 0; r < ROUNDS && (r < 3 || now() - began < enough); r++)
		for (int i = 0; i < n; i++) {
			double start = now(), took;

			if (!c[i].fn(row, c[i].kernel))
				continue;
			took = now() - start;
			best[i] = took < best[i] ? took : best[i];
		}
	snprintf(name, sizeof(name), "%s to %s", row->from, row->to);
	printf(json ? "{\"row\": \"%s\"" : "%-36s", name);
	for (int i = 0; i < n; i++)
		if (best[i] < 1e9)
			printf(json ? ", \"%s\": %.3f" : "  %s %.2f", c[i].name,
			       nbytes / best[i] / 1e9);
	printf(json ? "}\n" : " GB/s\n");
	fflush(stdout);
}

/* ---- rows --------------------------------------------------------------- */

static void run_cast(const struct row *row)
{
	struct contender c[8] = { { "memcpy", copies, 0 }, { "relayout", relayouts, 0 } };
	int n = 2;

	for (int k = 0; kvt_cpu_cast_kernel(k); k++)
		c[n++] = (struct contender){ kvt_cpu_cast_kernel(k)->name, casts, k };
	run_row(row, c, n, (double)(NUMBERS * kvt_dtype_find(row->from)->elem));
}

static void run_encoder(struct row *row)
{
	static const struct contender c[] = { { "kvtool", encodes, 0 },
					      { "ggml", ggml_encodes, 0 } };
	const struct kvt_dtype *dtype;
	struct kvt_content content;
	struct kvt_error err;

	if (kvt_cast_parse(&dtype, &content, row->to, &err) ||
	    kvt_caster_init(&row->caster, dtype, &content, DIM, &err)) {
		printf("%s: %s\n", row->to, err.text);
		return;
	}
	run_row(row, c, 2, ENCODED * 4.);
}

static void fill(void)
{
	uint64_t state = 88172645463325252u;

	for (int64_t i = 0; i < NUMBERS; i++) {
		float x;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		x = (float)(int64_t)state * 0x1p-61f;
		memcpy(in + i * 4, &x, sizeof(x));
	}
}

int main(int argc, char **argv)
{
	static struct row rows[] = {
		{ .from = "bfloat16", .to = "float32" },
		{ .from = "bfloat16", .to = "float16" },
		{ .from = "bfloat16", .to = "float8_e4m3fn" },
		{ .from = "bfloat16", .to = "float8_e4m3fnuz" },
		{ .from = "bfloat16", .to = "float8_e5m2" },
		{ .from = "float16", .to = "bfloat16" },
		{ .from = "float32", .to = "bfloat16" },
		{ .from = "float32", .to = "float8_e4m3fn" },
		{ .from = "float8_e4m3fn", .to = "bfloat16" },
		{ .from = "float32", .to = "q8_0/plain", .ggml = 8 },
		{ .from = "float32", .to = "q4_0/plain", .ggml = 2 },
		{ .from = "float32", .to = "q4_1/plain", .ggml = 3 },
		{ .from = "float32", .to = "q5_0/plain", .ggml = 6 },
		{ .from = "float32", .to = "q5_1/plain", .ggml = 7 },
		{ .from = "float32", .to = "iq4_nl/plain", .ggml = 20 },
		{ .from = "float32", .to = "int8-per-token-head" },
		{ .from = "float32", .to = "fp8-per-token-head/e4m3fn" },
		{ .from = "float32", .to = "mlx-affine/4/64/bfloat16" },
		{ .from = "float32", .to = "transformers-fp8/bfloat16" },
	};
	const char *only = "";
	int at = 1;

	for (; at < argc && !strncmp(argv[at], "--", 2); at++) {
		json |= !strcmp(argv[at], "--json");
		if (!strncmp(argv[at], "--only=", 7))
			only = argv[at] + 7;
	}
	if (argc - at > 1)
		open_ggml(argv[at], argv[at + 1]);
	in = malloc((size_t)NUMBERS * 4);
	out = malloc((size_t)NUMBERS * 4);
	if (!in || !out)
		return 1;
	memset(out, 1, (size_t)NUMBERS * 4);
	fill();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char name[96];

		snprintf(name, sizeof(name), "%s to %s", rows[i].from, rows[i].to);
		if (*only && strcmp(only, name))
			continue;
		if (kvt_dtype_find(rows[i].to))
			run_cast(&rows[i]);
		else
			run_encoder(&rows[i]);
	}
	free(in);
	free(out);
	return 0;
}
