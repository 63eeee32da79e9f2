/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_gpu.c - the GPU kernels, on the executor or on a device
 *
 * Needs libc only, and the executor's shared object.  Prints TAP.
 */
#include "tests/fewer.h"
#include "tests/gpu_check.h"

#include <dlfcn.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	const char *executor, *device, *json, *image;
	bool open_only, bench, small;
	uint64_t seed;
	int64_t cases, bytes;
} options = { .seed = 1 };

static int points, failures;

void gpu_point(bool ok, const char *format, ...)
{
	va_list args;

	printf("%sok %d - ", ok ? "" : "not ", ++points);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	failures += !ok;
}

bool gpu_good(enum kvt_status status, const struct kvt_error *err)
{
	if (status)
		printf("# status %d: %s\n", (int)status, err->text);
	return !status;
}

/* ---- the device --------------------------------------------------------- */

/*
 * The first vendor's row, whose library is the executor: all that the host does
 * for a GPU is done for it.
 */
static enum kvt_status open_executor(struct gpu_test *t, const char *path,
				     struct kvt_error *err)
{
	static struct gpu_vendor row;
	enum kvt_status status;
	void *library;

	row = *kvt_gpu_vendor(0);
	row.library[0] = row.missing = path;
	row.kernels_in_library = true;
	status = kvt_gpu_open(&t->device, &row, 0, err);
	if (status)
		return status;
	library = t->device->library;
	t->executor = true;
#define FIND(name) do {							\
	void *symbol = dlsym(library, "kvt_" #name);			\
	if (!symbol)							\
		check_bail_out("the executor has no kvt_" #name);	\
	memcpy(&t->name, &symbol, sizeof(symbol));			\
} while (0)
	FIND(exec_seed);
	FIND(exec_fault);
	FIND(exec_trouble);
	FIND(exec_reset);
	FIND(exec_count);
	FIND(exec_read);
#undef FIND
	t->exec_seed(t->seed);
	return KVT_OK;
}

/* cuda:0 with other device code: what the file holds. */
static enum kvt_status open_image(struct gpu_test *t, const char *path,
				  struct kvt_error *err)
{
	static struct gpu_vendor row;
	FILE *f = fopen(path, "rb");
	unsigned char *bytes;
	long size;

	if (!f || fseek(f, 0, SEEK_END) || (size = ftell(f)) < 1 ||
	    fseek(f, 0, SEEK_SET) || !(bytes = malloc((size_t)size + 1)) ||
	    fread(bytes, 1, (size_t)size, f) != (size_t)size)
		return kvt_fail(err, KVT_SYSTEM, "%s: cannot be read", path);
	fclose(f);
	row = *kvt_gpu_vendor(0);
	row.image = bytes;
	row.image_end = bytes + size;
	return kvt_gpu_open(&t->device, &row, 0, err);
}

static void print_facts(struct gpu_test *t)
{
	struct kvt_device_facts f;
	struct kvt_error err = { "" };

	if (!gpu_good(kvt_device_facts(&f, t->device, &err), &err))
		return;
	printf("# %s: %s, driver %s, capability %d.%d, %d multiprocessors, warp %d, "
	       "L2 %lld MiB, memory %lld MiB, free %lld MiB\n", f.spec, f.name,
	       f.driver, f.major, f.minor, f.multiprocessors, f.warp,
	       (long long)f.l2 >> 20, (long long)f.memory >> 20,
	       (long long)f.free >> 20);
}

/*
 * What a command does with a device, in small, and what it would say: for the
 * tests of messages.  Images do not matter, so that these run without nvcc.
 */
static int open_only(const char *spec)
{
	const struct kvt_plan plan = gpu_plan_nhd(2, 64);
	struct kvt_device *d = NULL;
	struct kvt_error err = { "" };
	struct gpu_vendor row;
	enum kvt_status status;
	void *dst = NULL, *src = NULL;

	if (strchr(spec, '!')) {
		row = *kvt_gpu_vendor(!strncmp(spec, "hip", 3));
		row.kernels_in_library = true;
		status = kvt_gpu_open(&d, &row, atoi(strchr(spec, '!') + 1), &err);
	} else {
		status = kvt_device_open(&d, spec, &err);
	}
	if (!status && !(status = kvt_device_alloc(&dst, d, 16384, &err)) &&
	    !(status = kvt_device_alloc(&src, d, 16384, &err)) &&
	    !(status = kvt_device_copy(d, dst, src, &plan, NULL, &err)))
		status = kvt_device_wait(d, NULL, &err);
	if (d) {
		kvt_device_free(d, dst);
		kvt_device_free(d, src);
	}
	kvt_device_close(d);
	if (status)
		fprintf(stderr, "%s\n", err.text);
	return status;
}

/* ---- what belongs to no file -------------------------------------------- */

/* The host and the kernels agree on it, so it must be the same everywhere. */
static void check_division(void)
{
	bool ok = true;

	for (int64_t i = 0; i < 200000 && ok; i++) {
		const uint32_t n = i < 5000 ? (uint32_t)i + 1 :
				   (uint32_t)check_below(INT_MAX) + 1;
		const uint32_t x[] = { (uint32_t)check_below(INT_MAX), 0, n - 1, n,
				       INT_MAX, INT_MAX / n * n, INT_MAX / n * n - 1 };
		struct gpu_div d;

		kvt_gpu_div_init(&d, n);
		for (int k = 0; k < 7; k++) {
			const uint32_t high = (uint32_t)((uint64_t)x[k] * d.mul >> 32);

			if (x[k] <= INT_MAX && (high + x[k]) >> d.shift != x[k] / n)
				ok = false;
		}
	}
	gpu_point(ok, "division by multiplication is exact below 2^31");
}

/* The limits that a launch must keep, which the executor watches. */
static void check_limits(struct gpu_test *t)
{
	const struct gpu_driver *r = &t->device->driver;
	void *f = NULL;

	gpu_point(r->function_get(&f, t->device->module, "kvt_nothing") == 500,
		  "a kernel that does not exist is not found");
	gpu_point(r->launch(t->device->kernel[0], 1, 1, 1, 2048, 1, 1, 0, NULL,
			    NULL, NULL) &&
		  r->launch(t->device->kernel[0], 1, 70000, 1, 256, 1, 1, 0, NULL,
			    NULL, NULL) &&
		  r->launch(t->device->kernel[0], 0, 1, 1, 256, 1, 1, 0, NULL, NULL,
			    NULL), "launches beyond the limits are refused");
}

static void check_specs(void)
{
	static const char *const bad[] = { "", "cpu", "cuda:", "cuda:x", "cuda:1x",
					   "cuda:-1", "hip1", "cudahip", "auto:0" };
	struct kvt_device *d = NULL;
	struct kvt_error err = { "" };
	bool ok = true;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ok = ok && kvt_device_open(&d, bad[i], &err) == KVT_USAGE;
	gpu_point(ok && strstr(err.text, "'auto:0'"), "specs that are none are refused");
}

/* ---- command line ------------------------------------------------------- */

static const struct option rows[] = {
	{ "executor", required_argument, NULL, 'e' },
	{ "device",   required_argument, NULL, 'd' },
	{ "open",     required_argument, NULL, 'o' },
	{ "seed",     required_argument, NULL, 's' },
	{ "cases",    required_argument, NULL, 'n' },
	{ "bench",    no_argument,       NULL, 'b' },
	{ "json",     required_argument, NULL, 'j' },
	{ "bytes",    required_argument, NULL, 'B' },
	{ "small",    no_argument,       NULL, 'S' },
	{ "image",    required_argument, NULL, 'i' },
	{ 0 }
};

static bool parse(int argc, char **argv)
{
	int c;

	options.cases = fewer(2304);
	while ((c = getopt_long(argc, argv, "", rows, NULL)) != -1) {
		switch (c) {
		case 'e': options.executor = optarg; break;
		case 'd': options.device = optarg; break;
		case 'o': options.open_only = true; options.device = optarg; break;
		case 's': options.seed = strtoull(optarg, NULL, 0); break;
		case 'n': options.cases = strtoll(optarg, NULL, 0); break;
		case 'b': options.bench = true; break;
		case 'j': options.json = optarg; break;
		case 'B': options.bytes = strtoll(optarg, NULL, 0); break;
		case 'S': options.small = true; break;
		case 'i': options.image = optarg; break;
		default:  return false;
		}
	}
	return optind == argc && options.cases > 0;
}

static void run_tests(struct gpu_test *t)
{
	check_division();
	check_specs();
	gpu_check_plans(t);
	gpu_check_layouts(t);
	gpu_check_reblock(t);
	gpu_check_lists(t);
	gpu_check_casts(t);
	gpu_check_stream(t, options.small);
	if (t->executor) {
		check_limits(t);
		gpu_check_traffic(t);
		gpu_check_cast_traffic(t);
		gpu_check_faults(t);
	} else if (!options.small) {
		gpu_check_large(t);
	}
	printf("1..%d\n", points);
}

int main(int argc, char **argv)
{
	const char *build = getenv("KVT_BUILD");
	struct gpu_test t = { 0 };
	struct kvt_error err = { "" };
	enum kvt_status status;
	char path[4096];

	if (!parse(argc, argv)) {
		fprintf(stderr, "usage: check_gpu [--executor=FILE | --device=SPEC] "
			"[--seed=N] [--cases=N]\n"
			"                 [--image=FILE] [--small]\n"
			"                 [--bench [--bytes=N] [--json=FILE]]\n"
			"       check_gpu --open=SPEC\n");
		return 2;
	}
	if (options.open_only)
		return open_only(options.device);
	check_seed(options.seed);
	t.seed = options.seed;
	t.cases = options.cases;
	snprintf(path, sizeof(path), "%s/gpu_executor.so", build ? build : "build");
	if (options.image)
		status = open_image(&t, options.image, &err);
	else if (options.device)
		status = kvt_device_open(&t.device, options.device, &err);
	else
		status = open_executor(&t, options.executor ? options.executor : path,
				       &err);
	if (status) {
		fprintf(stderr, "check_gpu: %s\n", err.text);
		return status;
	}
	printf("# seed %llu\n", (unsigned long long)options.seed);
	print_facts(&t);
	if (options.bench)
		failures = gpu_bench(&t, options.bytes, options.json);
	else
		run_tests(&t);
	kvt_device_close(t.device);
	return failures != 0;
}
