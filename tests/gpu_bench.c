/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_bench.c - bandwidth of the kernels on a device, and copies that are large
 *
 * Each row's result is compared with the naive kernel's.  On the executor it
 * only shows that this program works: times there mean nothing.
 */
#include "tests/gpu_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 3, TIMES = 21, PART = 16 << 20, SMALL = 256 << 10 };

#define CAST_BY	0.0371f			/* as a calibrated scale may be */

/* Two sets of buffers of 'nbytes', so that no cache serves a repeat. */
struct bench {
	struct gpu_test *t;
	int64_t nbytes;
	int warm, times;
	uint8_t *src[2], *dst[2], *pinned[2];
	struct kvt_device_run *list, *host_list;	/* of the row that has one */
	int64_t nruns;
	struct kvt_device_factors *factors;	/* one, of the rows of casts */
	void *begin, *end;
	double d2d;				/* bytes a second, both ways */
	FILE *json;
	int bad;
};

static void must(enum kvt_status status, const struct kvt_error *err)
{
	if (status)
		check_bail_out(err->text);
}

/* ---- content ------------------------------------------------------------ */

static void random_content(struct bench *b, uint8_t *dst, int64_t nbytes)
{
	struct kvt_device *d = b->t->device;
	struct kvt_error err;
	uint64_t word;

	for (int64_t at = 0; at < nbytes; at += PART) {
		const int64_t n = nbytes - at < PART ? nbytes - at : PART;

		for (int64_t i = 0; i < n; i += 8) {
			word = check_random();
			memcpy(b->pinned[0] + i, &word, 8);
		}
		must(kvt_device_copy_in(d, dst + at, b->pinned[0], n, NULL, &err), &err);
		must(kvt_device_wait(d, NULL, &err), &err);
	}
}

static int64_t bytes_that_differ(struct bench *b, const uint8_t *x,
				 const uint8_t *y, int64_t nbytes)
{
	struct kvt_device *d = b->t->device;
	struct kvt_error err;
	int64_t bad = 0;

	for (int64_t at = 0; at < nbytes; at += PART) {
		const int64_t n = nbytes - at < PART ? nbytes - at : PART;

		must(kvt_device_copy_out(d, b->pinned[0], x + at, n, NULL, &err), &err);
		must(kvt_device_copy_out(d, b->pinned[1], y + at, n, NULL, &err), &err);
		must(kvt_device_wait(d, NULL, &err), &err);
		if (!memcmp(b->pinned[0], b->pinned[1], (size_t)n))
			continue;
		for (int64_t i = 0; i < n; i++)
			bad += b->pinned[0][i] != b->pinned[1][i];
	}
	return bad;
}

/* ---- what is timed ------------------------------------------------------ */

struct row {
	const char *pair;
	int64_t run;
	struct kvt_plan plan;
	int64_t part;			/* of a list; 0: it is a plan */
	const char *from, *to;		/* types of a cast; NULL: it is none */
	enum gpu_method method;
	enum { KERNEL, WITHIN, IN, OUT } copy;	/* a ceiling: by the driver */
	double least;			/* fraction that is wanted */
};

/* What a copy from or to pinned memory has. */
static int64_t host_part(const struct bench *b)
{
	return b->nbytes < PART ? b->nbytes : PART;
}

/* As many elements as both buffers hold, each divided by a scale. */
static struct kvt_device_cast cast_of(const struct bench *b, const struct row *r)
{
	struct kvt_device_cast c = { .from = kvt_dtype_find(r->from),
				     .to = kvt_dtype_find(r->to),
				     .factors = b->factors };

	c.plan.run = b->nbytes / (c.from->elem > c.to->elem ? c.from->elem : c.to->elem);
	return c;
}

static enum kvt_status run_row(struct bench *b, const struct row *r, int set,
			       struct kvt_error *err)
{
	struct kvt_device *d = b->t->device;

	if (r->copy == WITHIN)
		return kvt_device_copy_within(d, b->dst[set], b->src[set], b->nbytes,
					      NULL, err);
	if (r->copy == IN)
		return kvt_device_copy_in(d, b->dst[set], b->pinned[set], host_part(b),
					  NULL, err);
	if (r->copy == OUT)
		return kvt_device_copy_out(d, b->pinned[set], b->src[set], host_part(b),
					   NULL, err);
	if (r->to) {
		const struct kvt_device_cast cast = cast_of(b, r);

		return kvt_device_cast(d, b->dst[set], b->src[set], &cast, NULL, err);
	}
	if (r->part)
		return kvt_device_copy_runs(d, b->dst[set], b->src[set], b->list,
					    b->nruns, r->part, NULL, err);
	return kvt_gpu_copy(d, r->method, b->dst[set], b->src[set], &r->plan, NULL,
			    err);
}

static int ascending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median of many, in milliseconds; negative where the method takes no such plan. */
static double time_row(struct bench *b, const struct row *r)
{
	struct kvt_device *d = b->t->device;
	struct kvt_error err;
	double ms[TIMES];

	for (int i = -b->warm; i < b->times; i++) {
		enum kvt_status status;

		must(kvt_device_event_record(d, b->begin, NULL, &err), &err);
		status = run_row(b, r, i & 1, &err);
		if (status == KVT_UNSUPPORTED)
			return -1;
		must(status, &err);
		must(kvt_device_event_record(d, b->end, NULL, &err), &err);
		must(kvt_device_event_elapsed(&ms[i < 0 ? 0 : i], d, b->begin, b->end,
					      &err), &err);
	}
	qsort(ms, (size_t)b->times, sizeof(ms[0]), ascending);
	return ms[b->times / 2];
}

static int64_t differ_list(const struct bench *b, const uint8_t *dst, const uint8_t *src,
			   int64_t part)
{
	int64_t bad = 0;

	for (int64_t i = 0; i < b->nruns; i++)
		for (int64_t k = 0; k < part; k++)
			bad += dst[b->host_list[i].dst + k] !=
			       src[b->host_list[i].src + k];
	return bad;
}

/* Against the CPU's, a part at a time. */
static int64_t differ_cast(const struct bench *b, const uint8_t *dst, const uint8_t *src,
			   const struct row *r)
{
	const struct kvt_device_cast c = cast_of(b, r);
	uint8_t want[4096];
	const int64_t most = (int64_t)sizeof(want) / c.to->elem;
	int64_t bad = 0;

	for (int64_t at = 0, n; at < c.plan.run; at += n) {
		n = c.plan.run - at < most ? c.plan.run - at : most;
		kvt_cpu_cast(want, c.to, src + at * c.from->elem, c.from, n, 1, CAST_BY);
		for (int64_t i = 0; i < n * c.to->elem; i++)
			bad += want[i] != dst[at * c.to->elem + i];
	}
	return bad;
}

/* On the host, which has room for both sides. */
static int64_t check_on_host(struct bench *b, const struct row *r)
{
	struct kvt_device *d = b->t->device;
	uint8_t *src = malloc((size_t)b->nbytes), *dst = malloc((size_t)b->nbytes);
	struct kvt_error err;
	int64_t bad;

	if (!src || !dst)
		check_bail_out("out of memory");
	must(kvt_device_copy_out(d, src, b->src[0], b->nbytes, NULL, &err), &err);
	must(kvt_device_copy_out(d, dst, b->dst[0], b->nbytes, NULL, &err), &err);
	must(kvt_device_wait(d, NULL, &err), &err);
	bad = r->to ? differ_cast(b, dst, src, r) : differ_list(b, dst, src, r->part);
	free(src);
	free(dst);
	return bad;
}

/* Plans against the naive kernel. */
static int64_t check_row(struct bench *b, const struct row *r)
{
	struct kvt_device *d = b->t->device;
	struct kvt_error err;

	for (int i = 0; i < 2; i++)
		must(kvt_device_fill(d, b->dst[i], 0xa5, b->nbytes, NULL, &err), &err);
	must(run_row(b, r, 0, &err), &err);
	if (r->part || r->to)
		return check_on_host(b, r);
	must(kvt_gpu_copy(d, GPU_NAIVE, b->dst[1], b->src[0], &r->plan, NULL, &err),
	     &err);
	must(kvt_device_wait(d, NULL, &err), &err);
	return bytes_that_differ(b, b->dst[0], b->dst[1], b->nbytes);
}

static const char *kernel_of(const struct bench *b, const struct row *r)
{
	static const char *const names[] = { "", "spread", "lanes", "tile", "naive" };

	if (r->copy)
		return "(driver copy)";
	if (r->part)
		return "kvt_list";
	if (r->to)
		return "kvt_cast";
	if (r->method != GPU_BEST)
		return names[r->method];
	return kvt_gpu_kernel_name(kvt_gpu_choice(&r->plan, b->dst[0], b->src[0]));
}

static void print_row(struct bench *b, const struct row *r)
{
	const double ms = time_row(b, r), again = ms < 0 ? ms : time_row(b, r);
	const struct kvt_device_cast cast = r->to ? cast_of(b, r) :
					    (struct kvt_device_cast){ 0 };
	const int64_t moved = r->part ? b->nruns * r->part :
			      r->copy == WITHIN ? b->nbytes :
			      r->copy ? host_part(b) : kvt_plan_nbytes(&r->plan);
	/* device memory is read and written; the host's link has one direction */
	const int64_t traffic = r->to ?
				cast.plan.run * (cast.from->elem + cast.to->elem) :
				r->copy > WITHIN ? moved : 2 * moved;
	const double rate = (double)traffic / (ms / 1e3);
	int64_t bad;

	if (ms < 0)
		return;
	if (r->copy == WITHIN)
		b->d2d = rate;
	bad = r->copy ? 0 : check_row(b, r);
	b->bad += bad != 0;
	printf("%7lld  %-14s %-18s %10.4f %8.3f %8.3f %6.3f %5.2f %8lld\n",
	       (long long)r->run, r->pair, kernel_of(b, r), ms, again / ms,
	       rate / 1e12, rate / b->d2d, r->least, (long long)bad);
	if (b->json)
		fprintf(b->json, "%s\n    {\"run\": %lld, \"pair\": \"%s\", "
			"\"kernel\": \"%s\", \"bytes\": %lld, \"ms\": %.6f, "
			"\"ms_again\": %.6f, \"of_copy\": %.4f, \"wanted\": %.2f, "
			"\"bad_bytes\": %lld}", r->copy == WITHIN ? "" : ",", (long long)r->run,
			r->pair, kernel_of(b, r), (long long)traffic, ms, again,
			rate / b->d2d, r->least, (long long)bad);
	fflush(stdout);
}

/* ---- the rows ----------------------------------------------------------- */

static const enum gpu_method methods[] = { GPU_BEST, GPU_SPREAD, GPU_LANES, GPU_TILE,
					   GPU_NAIVE };

/* The aims of the project, as fractions of the copy; the naive one has none. */
static double aim(enum gpu_method method, int64_t run)
{
	if (method != GPU_BEST)
		return 0;
	return run >= 128 ? 0.92 : run >= 32 ? 0.85 : 0.80;
}

static void rows_of(struct bench *b, const char *pair, struct kvt_plan plan)
{
	for (size_t m = 0; m < sizeof(methods) / sizeof(methods[0]); m++) {
		const struct row r = { .pair = pair, .run = plan.run, .plan = plan,
				       .method = methods[m],
				       .least = aim(methods[m], plan.run) };

		print_row(b, &r);
	}
}

/* Blocks of layers: LBSHC to BLSHC, and LBHSC to BHLSC (HND to one per head). */
static void rows_of_layers(struct bench *b)
{
	const int64_t l = b->nbytes > SMALL ? 32 : 2, h = 8, page = 16 * 256;
	const int64_t blocks = b->nbytes / l / h / page;
	const struct kvt_plan slabs = {
		.run = h * page, .nloops = 2, .n = { blocks, l },
		.src_stride = { h * page, h * page * blocks },
		.dst_stride = { h * page * l, h * page },
	};
	const struct kvt_plan heads = {
		.run = page, .nloops = 3, .n = { blocks, h, l },
		.src_stride = { h * page, page, h * page * blocks },
		.dst_stride = { h * page * l, page * l, page },
	};

	rows_of(b, "LBSHC-BLSHC", slabs);
	rows_of(b, "LBHSC-BHLSC", heads);
}

/* Parts of the whole source in random order. */
static void row_of_list(struct bench *b, int64_t part)
{
	const struct row r = { .pair = "scattered", .run = part, .part = part,
			       .least = part >= 256 ? 0.85 : 0 };
	const int64_t n = b->nbytes / part;
	struct kvt_device_run *host = malloc((size_t)n * sizeof(*host));
	struct kvt_error err;
	void *list;

	if (!host)
		check_bail_out("out of memory");
	for (int64_t i = 0; i < n; i++)
		host[i] = (struct kvt_device_run){ i * part, i * part, part };
	for (int64_t i = n - 1; i > 0; i--) {
		const int64_t j = check_below(i + 1), x = host[i].src;

		host[i].src = host[j].src;
		host[j].src = x;
	}
	must(kvt_device_alloc(&list, b->t->device, n * (int64_t)sizeof(*host), &err),
	     &err);
	must(kvt_device_copy_in(b->t->device, list, host, n * (int64_t)sizeof(*host),
				NULL, &err), &err);
	must(kvt_device_wait(b->t->device, NULL, &err), &err);
	b->list = list;
	b->host_list = host;
	b->nruns = n;
	print_row(b, &r);
	kvt_device_free(b->t->device, list);
	free(host);
}

/* Elements in their order, which is all that a cast alone is. */
static void rows_of_casts(struct bench *b)
{
	static const struct row rows[] = {
		{ .pair = "bf16 to e4m3fn", .from = "bfloat16", .to = "float8_e4m3fn",
		  .least = 0.80 },
		{ .pair = "e4m3fn to bf16", .from = "float8_e4m3fn", .to = "bfloat16",
		  .least = 0.80 },
		{ .pair = "f32 to e4m3fn", .from = "float32", .to = "float8_e4m3fn",
		  .least = 0.80 },
		{ .pair = "f32 to bf16", .from = "float32", .to = "bfloat16",
		  .least = 0.80 },
	};
	const struct kvt_device_factors factors = { 1, CAST_BY };
	struct kvt_error err;
	void *room;

	must(kvt_device_alloc(&room, b->t->device, sizeof(factors), &err), &err);
	must(kvt_device_copy_in(b->t->device, room, &factors, sizeof(factors), NULL,
				&err), &err);
	must(kvt_device_wait(b->t->device, NULL, &err), &err);
	b->factors = room;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		print_row(b, &rows[i]);
	kvt_device_free(b->t->device, room);
}

static void all_rows(struct bench *b)
{
	static const int64_t runs[] = { 2, 6, 16, 32, 48, 64, 128, 256, 512, 576, 1152 };
	static const int64_t parts[] = { 256, 1024, 16384 };
	static const struct row ceilings[] = {
		{ .pair = "within", .copy = WITHIN },
		{ .pair = "pinned in", .copy = IN },
		{ .pair = "pinned out", .copy = OUT },
	};

	printf("%7s  %-14s %-18s %10s %8s %8s %6s %5s %8s\n", "run", "pair", "kernel",
	       "ms", "again", "TB/s", "of d2d", "aim", "bad");
	for (int i = 0; i < 3; i++)
		print_row(b, &ceilings[i]);
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		rows_of(b, "NHD-HND", gpu_plan_nhd(b->nbytes / 128 / runs[i], runs[i]));
	rows_of_layers(b);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		row_of_list(b, parts[i]);
	rows_of_casts(b);
}

/* ---- beginning and end -------------------------------------------------- */

static void bench_begin(struct bench *b, struct gpu_test *t, int64_t nbytes)
{
	struct kvt_error err;

	*b = (struct bench){ .t = t, .nbytes = nbytes,
			     .warm = nbytes > SMALL ? WARM : 0,
			     .times = nbytes > SMALL ? TIMES : 1 };
	for (int i = 0; i < 2; i++) {
		void *p[3];

		must(kvt_device_alloc(&p[0], t->device, nbytes, &err), &err);
		must(kvt_device_alloc(&p[1], t->device, nbytes, &err), &err);
		must(kvt_device_pinned_alloc(&p[2], t->device, PART, &err), &err);
		b->src[i] = p[0];
		b->dst[i] = p[1];
		b->pinned[i] = p[2];
	}
	must(kvt_device_event_new(&b->begin, t->device, &err), &err);
	must(kvt_device_event_new(&b->end, t->device, &err), &err);
	random_content(b, b->src[0], nbytes);
	random_content(b, b->src[1], nbytes);
}

static void bench_end(struct bench *b)
{
	for (int i = 0; i < 2; i++) {
		kvt_device_free(b->t->device, b->src[i]);
		kvt_device_free(b->t->device, b->dst[i]);
		kvt_device_pinned_free(b->t->device, b->pinned[i]);
	}
	kvt_device_event_free(b->t->device, b->begin);
	kvt_device_event_free(b->t->device, b->end);
}

int gpu_bench(struct gpu_test *t, int64_t nbytes, const char *json)
{
	struct kvt_device_facts f;
	struct kvt_error err;
	struct bench b;

	must(kvt_device_facts(&f, t->device, &err), &err);
	if (!nbytes)
		nbytes = t->executor ? SMALL : (int64_t)2 << 30;
	bench_begin(&b, t, nbytes);
	if (json) {
		b.json = fopen(json, "w");
		if (!b.json)
			check_bail_out("the JSON file cannot be written");
		fprintf(b.json, "{\n  \"device\": \"%s\", \"driver\": \"%s\",\n"
			"  \"multiprocessors\": %d, \"rows\": [", f.name, f.driver,
			f.multiprocessors);
	}
	all_rows(&b);
	if (b.json) {
		fprintf(b.json, "\n  ]\n}\n");
		if (fclose(b.json))
			check_bail_out("the JSON file cannot be written");
	}
	bench_end(&b);
	printf("# %d rows with bad bytes\n", b.bad);
	return b.bad;
}

/* ---- large copies ------------------------------------------------------- */

/*
 * More than 2^31 accesses, and offsets beyond 2^32: 2-byte runs of 5 GiB, and
 * long runs of it, against the naive kernel.
 */
void gpu_check_large(struct gpu_test *t)
{
	static const struct {
		int64_t run;
		enum gpu_method method;
		const char *what;
	} cases[] = {
		{ 2, GPU_SPREAD, "2^31 accesses and more" },
		{ 2, GPU_TILE, "tiles beyond 4 GiB" },
		{ 128, GPU_BEST, "offsets beyond 4 GiB" },
		{ 4096, GPU_BEST, "long runs beyond 4 GiB" },
	};
	const int64_t nbytes = (int64_t)5 << 30;
	struct kvt_device_facts f;
	struct kvt_error err;
	struct bench b;

	must(kvt_device_facts(&f, t->device, &err), &err);
	if (f.free < 4 * nbytes + ((int64_t)1 << 30)) {
		gpu_point(true, "large copies # SKIP less than 21 GiB free");
		return;
	}
	bench_begin(&b, t, nbytes);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct row r = { .run = cases[i].run, .method = cases[i].method,
			.plan = gpu_plan_nhd(nbytes / 128 / cases[i].run,
					     cases[i].run) };

		gpu_point(!check_row(&b, &r), "%s", cases[i].what);
	}
	bench_end(&b);
}
