/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_cast.c - casts and encoders beside memcpy, on one thread
 *
 * Contenders run in turn, round by round, as a shared machine changes within minutes; the
 * best round of each counts.  Figures are bytes of input a second; with the paths of
 * libggml-base.so and libggml-cpu.so as arguments ggml runs beside its types.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/kvt/cast.h"
#include "lib/kvt/kernels.h"

enum { NUMBERS = 4 << 20, DIM = 1024, ROUNDS = 7 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static unsigned char *in, *out;

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

static double since(double start, double best)
{
	double took = now() - start;

	return took < best ? took : best;
}

static double copying(void)
{
	double best = 1e9;

	for (int r = 0; r < ROUNDS; r++) {
		double start = now();

		memcpy(out, in, NUMBERS * 2);
		best = since(start, best);
	}
	return NUMBERS * 2 / best / 1e9;
}

static void bench_casts(void)
{
	static const char *const names[] = { "float32", "float16", "bfloat16",
					     "float8_e4m3fn", "float8_e4m3fnuz",
					     "float8_e5m2" };
	const struct kvt_dtype *from = kvt_dtype_find("bfloat16");

	for (size_t t = 0; t < sizeof(names) / sizeof(names[0]); t++) {
		printf("bfloat16 to %-16s", names[t]);
		for (int k = 0; kvt_cpu_cast_kernel(k); k++) {
			const struct kvt_cast_kernel *kernel = kvt_cpu_cast_kernel(k);
			double best = 1e9;

			for (int r = 0; kernel->runs_here() && r < ROUNDS; r++) {
				double start = now();

				kvt_cpu_cast_with(kernel, out, kvt_dtype_find(names[t]),
						  in, from, NUMBERS, 1, 0.037f);
				best = since(start, best);
			}
			printf("  %s %6.2f", kernel->name, NUMBERS * 2 / best / 1e9);
		}
		printf("  memcpy %6.2f GB/s\n", copying());
	}
}

static void bench_encoder(const char *name, int ggml)
{
	const struct kvt_dtype *dtype;
	struct kvt_content content;
	struct kvt_caster c;
	struct kvt_error err;
	double best = 1e9, other = 1e9;

	if (kvt_cast_parse(&dtype, &content, name, &err) ||
	    kvt_caster_init(&c, dtype, &content, DIM, &err)) {
		printf("%s: %s\n", name, err.text);
		return;
	}
	for (int r = 0; r < ROUNDS; r++) {
		const float *x = (const float *)(const void *)in;
		double start = now();

		for (int64_t i = 0; i < NUMBERS / DIM; i++)
			kvt_cast_row(&c, out + i * c.nbytes, x + i * DIM, 0, 1);
		best = since(start, best);
		start = now();
		for (int64_t i = 0; traits && ggml && i < NUMBERS / DIM; i++)
			traits(ggml)->from_float(x + i * DIM, out + i * c.nbytes, DIM);
		other = since(start, other);
	}
	printf("float32 to %-28s %6.2f GB/s", name, NUMBERS * 4. / best / 1e9);
	if (traits && ggml)
		printf("  ggml %6.2f GB/s, %.2f of it", NUMBERS * 4. / other / 1e9,
		       other / best);
	printf("\n");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int ggml;		/* its number there; 0: not */
	} encoders[] = {
		{ "q8_0/plain", 8 }, { "q4_0/plain", 2 }, { "q4_1/plain", 3 },
		{ "q5_0/plain", 6 }, { "q5_1/plain", 7 }, { "iq4_nl/plain", 20 },
		{ "int8-per-token-head", 0 }, { "fp8-per-token-head/e4m3fn", 0 },
		{ "mlx-affine/4/64/bfloat16", 0 }, { "transformers-fp8/bfloat16", 0 },
	};
	uint64_t state = 88172645463325252u;

	in = malloc(NUMBERS * 4);
	out = malloc(NUMBERS * 4);
	if (!in || !out)
		return 1;
	for (int64_t i = 0; i < NUMBERS; i++) {
		float x;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		x = (float)(int64_t)state * 0x1p-61f;
		memcpy(in + i * 4, &x, sizeof(x));
	}
	if (argc > 2)
		open_ggml(argv[1], argv[2]);
	bench_casts();
	for (size_t i = 0; i < sizeof(encoders) / sizeof(encoders[0]); i++)
		bench_encoder(encoders[i].name, encoders[i].ggml);
	free(in);
	free(out);
	return 0;
}
