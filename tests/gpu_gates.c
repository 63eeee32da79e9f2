/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_gates.c - what only the executor can tell: traffic, and planted faults
 */
#include "tests/gpu_check.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

struct kvt_plan gpu_plan_nhd(int64_t blocks, int64_t run)
{
	const int64_t slots = 16, heads = 8;

	return (struct kvt_plan){
		.run = run, .nloops = 3, .n = { blocks, heads, slots },
		.src_stride = { slots * heads * run, run, heads * run },
		.dst_stride = { slots * heads * run, slots * run, run },
	};
}

/* A pair of buffers without misalignment: 256 as the driver gives. */
static bool plain_pair(struct gpu_buffer *dst, struct gpu_buffer *src,
		       struct gpu_test *t, int64_t nbytes)
{
	struct kvt_error err = { "" };
	void *p[2];

	if (kvt_device_alloc(&p[0], t->device, nbytes, &err) ||
	    kvt_device_alloc(&p[1], t->device, nbytes, &err))
		return gpu_good(KVT_SYSTEM, &err);
	*dst = (struct gpu_buffer){ .device = p[0], .nbytes = nbytes };
	*src = (struct gpu_buffer){ .device = p[1], .nbytes = nbytes };
	return true;
}

/* ---- coalescing --------------------------------------------------------- */

struct ratios {
	double load_sector, store_sector;	/* useful bytes of each touched */
	double load_lines, store_lines;		/* for each request of a warp */
};

static bool measure(struct ratios *out, struct gpu_test *t, enum gpu_method method,
		    int64_t run)
{
	const struct kvt_plan plan = gpu_plan_nhd(4, run);
	struct kvt_exec_traffic loads, stores;
	struct gpu_buffer src, dst;
	struct kvt_error err = { "" };
	bool ok;

	if (!plain_pair(&dst, &src, t, kvt_plan_nbytes(&plan)))
		return false;
	t->exec_count(1);
	ok = gpu_good(kvt_gpu_copy(t->device, method, dst.device, src.device, &plan,
				   NULL, &err), &err);
	t->exec_read(&loads, &stores);
	t->exec_count(0);
	gpu_buffer_free(&src, t);
	gpu_buffer_free(&dst, t);
	*out = (struct ratios){
		(double)loads.bytes / (double)loads.sectors,
		(double)stores.bytes / (double)stores.sectors,
		(double)loads.lines / (double)loads.requests,
		(double)stores.lines / (double)stores.requests,
	};
	printf("# run %4lld: loads %4.1f B/sector %5.2f lines/request, "
	       "stores %4.1f and %4.2f\n", (long long)run, out->load_sector,
	       out->load_lines, out->store_sector, out->store_lines);
	return ok && loads.bytes == kvt_plan_nbytes(&plan) &&
	       stores.bytes == kvt_plan_nbytes(&plan);
}

/*
 * What may not get worse: bytes used of a sector read, lines of a request.  A
 * write is always of whole sectors, 4 lines a request.
 */
static const struct gate {
	enum gpu_method method;
	int64_t run;
	double sector, lines;
} gates[] = {
	{ GPU_SPREAD, 2, 8.0, 2.0 },     { GPU_SPREAD, 6, 5.1, 4.7 },
	{ GPU_SPREAD, 16, 32.0, 16.0 },  { GPU_SPREAD, 32, 32.0, 16.0 },
	{ GPU_SPREAD, 48, 24.0, 13.8 },  { GPU_SPREAD, 64, 32.0, 8.0 },
	{ GPU_SPREAD, 96, 32.0, 8.5 },   { GPU_SPREAD, 128, 32.0, 4.0 },
	{ GPU_SPREAD, 256, 32.0, 4.0 },  { GPU_SPREAD, 512, 32.0, 4.0 },
	{ GPU_SPREAD, 576, 32.0, 4.9 },  { GPU_SPREAD, 1152, 32.0, 4.0 },
	{ GPU_LANES, 2048, 32.0, 4.0 },  { GPU_LANES, 4096, 32.0, 4.0 },
	{ GPU_BEST, 2, 32.0, 4.0 },      { GPU_BEST, 6, 32.0, 4.0 },
	{ GPU_BEST, 8, 32.0, 4.0 },      { GPU_BEST, 16, 32.0, 4.0 },
	{ GPU_BEST, 24, 32.0, 4.0 },     { GPU_BEST, 32, 32.0, 4.0 },
	{ GPU_BEST, 48, 32.0, 4.0 },     { GPU_BEST, 64, 32.0, 4.0 },
	{ GPU_BEST, 96, 32.0, 4.0 },
	{ GPU_BEST, 128, 32.0, 4.0 },    { GPU_BEST, 1152, 32.0, 4.0 },
	{ GPU_BEST, 4096, 32.0, 4.0 },
};
enum { NGATES = sizeof(gates) / sizeof(gates[0]) };

void gpu_check_traffic(struct gpu_test *t)
{
	for (int i = 0; i < NGATES; i++) {
		const struct gate *g = &gates[i];
		const double slack = 0.05;	/* the gates are rounded */
		struct ratios r;
		bool ok = measure(&r, t, g->method, g->run);

		gpu_point(ok && r.load_sector >= g->sector - slack &&
			  r.load_lines <= g->lines + slack &&
			  r.store_sector > 31.999 && r.store_lines <= 4.001,
			  "traffic of NHD to HND, runs of %lld, %s",
			  (long long)g->run, g->method == GPU_SPREAD ? "spread" :
			  g->method == GPU_LANES ? "lanes" : "the choice");
	}
}

/* The same bytes a thread on the wider side, and whole sectors on the other one. */
void gpu_check_cast_traffic(struct gpu_test *t)
{
	const struct kvt_device_cast c = {
		.from = kvt_dtype_find("bfloat16"), .to = kvt_dtype_find("float8_e4m3fn"),
		.plan = { .run = 65536 },
	};
	struct kvt_exec_traffic loads = { 0 }, stores = { 0 };
	struct gpu_buffer src, dst;
	struct kvt_error err = { "" };
	bool ok = plain_pair(&dst, &src, t, 2 * c.plan.run);

	t->exec_count(1);
	ok = ok && gpu_good(kvt_device_cast(t->device, dst.device, src.device, &c, NULL,
					    &err), &err);
	t->exec_read(&loads, &stores);
	t->exec_count(0);
	gpu_point(ok && loads.bytes == 2 * c.plan.run &&
		  loads.sectors == loads.bytes / 32 &&
		  loads.lines == 4 * loads.requests && stores.bytes == c.plan.run &&
		  stores.sectors == stores.bytes / 32 &&
		  stores.lines == 2 * stores.requests,
		  "traffic of bfloat16 to fp8: 16 bytes in and 8 out a thread, in order");
	gpu_buffer_free(&src, t);
	gpu_buffer_free(&dst, t);
}

/* ---- planted faults ----------------------------------------------------- */

static const struct planted {
	int number;
	const char *what;
	enum gpu_method method;
	int64_t blocks, run;
	const char *trouble;	/* what the executor says, in part */
} planted[] = {
	{ 1, "no barrier before the tile is written out", GPU_TILE, 4, 6,
	  "no barrier between a write and a read|nobody wrote" },
	{ 2, "a bound off by one", GPU_SPREAD, 0, 48, "outside every allocation" },
	{ 3, "a run longer by one access", GPU_LANES, 4, 4080,
	  "outside every allocation" },
	{ 4, "a tile that does not end at the edge", GPU_TILE, 0, 40, "outside" },
	{ 5, "a place in shared memory too far on", GPU_TILE, 64, 16,
	  "nobody wrote|outside shared memory" },
	{ 6, "a barrier that one thread leaves out", GPU_TILE, 4, 6,
	  "different barriers|not every thread" },
	{ 7, "no barrier before the next tiles", GPU_TILE, 64, 64,
	  "no barrier between a read and a write|no barrier between a write and a read" },
	{ 8, "a list's parts taken as aligned", GPU_BEST, -1, 8, "misaligned" },
	{ 9, "a cast past the end of a run", GPU_BEST, -2, 100,
	  "outside every allocation" },
};
enum { NPLANTED = sizeof(planted) / sizeof(planted[0]) };

/* No tile divides it, and all loops of the kernel for two are used. */
static struct kvt_plan plan_edges(int64_t run)
{
	const int64_t a = 101, b = 67;

	return (struct kvt_plan){
		.run = run, .nloops = 2, .n = { a, b },
		.src_stride = { run, run * a }, .dst_stride = { run * b, run },
	};
}

/* Three parts, the second at 8 bytes. */
static enum kvt_status copy_list(void **list, struct gpu_test *t, void *dst,
				 const void *src, struct kvt_error *err)
{
	const struct kvt_device_run run[] = { { 0, 0, 64 }, { 72, 72, 48 },
					      { 128, 128, 16 } };

	if (kvt_device_alloc(list, t->device, sizeof(run), err) ||
	    kvt_device_copy_in(t->device, *list, run, sizeof(run), NULL, err) ||
	    kvt_device_wait(t->device, NULL, err))
		return KVT_SYSTEM;
	return kvt_device_copy_runs(t->device, dst, src, *list, 3, 64, NULL, err);
}

/* What the row is about: a plan, a list, or a cast of as much as there is room for. */
static enum kvt_status copy_planted(void **list, struct gpu_test *t,
				    const struct planted *p, void *dst, const void *src,
				    const struct kvt_plan *plan, struct kvt_error *err)
{
	struct kvt_device_cast cast = { .to = kvt_dtype_find("bfloat16"),
					.from = kvt_dtype_find("float8_e5m2") };

	cast.plan.run = kvt_plan_nbytes(plan) / 2 - 1;
	if (p->blocks == -2)
		return kvt_device_cast(t->device, dst, src, &cast, NULL, err);
	if (p->blocks < 0)
		return copy_list(list, t, dst, src, err);
	return kvt_gpu_copy(t->device, p->method, dst, src, plan, NULL, err);
}

/*
 * Runs the plan with fault 'number', and what the executor said of it.  A device
 * that is dead frees nothing, so it is brought back first.
 */
static bool runs_well(char said[256], struct gpu_test *t, const struct planted *p,
		      int number)
{
	const struct kvt_plan plan = p->blocks > 0 ? gpu_plan_nhd(p->blocks, p->run) :
				     plan_edges(p->run);
	struct gpu_buffer src, dst;
	struct kvt_error err = { "" };
	enum kvt_status status;
	void *list = NULL;

	if (!plain_pair(&dst, &src, t, kvt_plan_nbytes(&plan)))
		return false;
	t->exec_fault(number);
	status = copy_planted(&list, t, p, dst.device, src.device, &plan, &err);
	t->exec_fault(0);
	if (!status)
		status = kvt_device_wait(t->device, NULL, &err);
	snprintf(said, 256, "%s", t->exec_trouble());
	t->exec_reset();
	kvt_device_free(t->device, list);
	gpu_buffer_free(&src, t);
	gpu_buffer_free(&dst, t);
	return !status;
}

/* Does the text hold one of the words between bars? */
static bool holds(const char *text, const char *words)
{
	char word[64];

	for (size_t n; *words; words += n + (words[n] == '|')) {
		n = strcspn(words, "|");
		snprintf(word, sizeof(word), "%.*s", (int)n, words);
		if (strstr(text, word))
			return true;
	}
	return false;
}

void gpu_check_faults(struct gpu_test *t)
{
	t->device->blocks_max = 1;	/* the loop over tiles goes round */
	for (int i = 0; i < NPLANTED; i++) {
		const struct planted *p = &planted[i];
		char said[256];
		bool caught = runs_well(said, t, p, 0);

		/* whatever the order of threads and blocks */
		for (uint64_t seed = 1; seed <= 3 && caught; seed++) {
			t->exec_seed(t->seed + seed);
			caught = !runs_well(said, t, p, p->number) &&
				 holds(said, p->trouble);
		}
		if (!caught)
			printf("# executor: %s\n", said);
		gpu_point(caught, "caught: %s", p->what);
	}
	t->device->blocks_max = INT_MAX;
}
