/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_bench.c - speed of the CPU kernels beside the limits of the machine
 *
 * Memory bandwidth of a shared machine changes within minutes, so everything
 * that is compared runs in turn, round by round, and the ratios count.
 */
#include "tests/kernel_check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* ---- contenders --------------------------------------------------------- */

/* Share 'i' of 'n' of the work. */
typedef void share_fn(const struct work *work, int i, int n);

static void share_memcpy(const struct work *work, int i, int n)
{
	const struct kvt_plan all = { .run = work->nbytes };
	struct kvt_plan p = kvt_plan_part(&all, i, n);

	memcpy(work->dst + p.dst_offset, work->src + p.src_offset, (size_t)p.run);
}

static void share_stream(const struct work *work, int i, int n)
{
	const struct kvt_plan all = { .run = work->nbytes };
	struct kvt_plan p = kvt_plan_part(&all, i, n);

	kvt_cpu_choose(&all)->copy(work->dst, work->src, &p);
}

static void share_kernel(const struct work *work, int i, int n)
{
	struct kvt_plan p = kvt_plan_part(work->plan, i, n);
	int from = work->nplans * i / n, to = work->nplans * (i + 1) / n;

	if (work->nplans == 1)
		work->kernel->copy(work->dst, work->src, &p);
	else
		for (int k = from; k < to; k++)
			work->kernel->copy(work->dst, work->src, &work->plan[k]);
}

static void share_ref(const struct work *work, int i, int n)
{
	struct work ref = *work;

	ref.kernel = kvt_cpu_kernel(0);
	share_kernel(&ref, i, n);
}

/* The library as its users call it; 'pool' brings the threads. */
static void whole_pool(const struct work *work, int i, int n)
{
	(void)i, (void)n;
	kernel_pool_copy_many(work->pool, work->dst, work->src, work->plan,
			       work->nplans);
}

static void whole_alone(const struct work *work, int i, int n)
{
	(void)i, (void)n;
	kernel_pool_copy_many(work->alone, work->dst, work->src, work->plan,
			       work->nplans);
}

static const struct contender {
	const char *name;
	share_fn *share;
	int nthreads;		/* that the benchmark brings */
	bool permutes;
} contenders[] = {
	{ "memcpy 2t", share_memcpy, 2, false },
	{ "stream 2t", share_stream, 2, false },
	{ "ref 2t",    share_ref,    2, true },
	{ "pool 2t",   whole_pool,   1, true },
	{ "kernel 2t", share_kernel, 2, true },
	{ "memcpy 1t", share_memcpy, 1, false },
	{ "stream 1t", share_stream, 1, false },
	{ "pool 1t",   whole_alone,  1, true },
	{ "kernel 1t", share_kernel, 1, true },
};
enum { NCONTENDERS = sizeof(contenders) / sizeof(contenders[0]) };

/* The columns that were asked for. */
static bool enters(const struct bench_options *options,
		   const struct contender *c)
{
	return (options->kernel || c->share != share_kernel) &&
	       (!options->one_thread || strstr(c->name, "2t") == NULL);
}

/* ---- running ------------------------------------------------------------ */

/* A second thread that stays alive: starting one takes as long as a copy. */
static struct helper {
	pthread_mutex_t lock;
	pthread_cond_t change;
	share_fn *share;		/* NULL: nothing to do */
	const struct work *work;
} helper = { .lock = PTHREAD_MUTEX_INITIALIZER,
	     .change = PTHREAD_COND_INITIALIZER };

static void *helper_main(void *arg)
{
	struct helper *h = arg;

	pthread_mutex_lock(&h->lock);
	for (;;) {
		while (!h->share)
			pthread_cond_wait(&h->change, &h->lock);
		pthread_mutex_unlock(&h->lock);
		h->share(h->work, 1, 2);
		pthread_mutex_lock(&h->lock);
		h->share = NULL;
		pthread_cond_broadcast(&h->change);
	}
	return NULL;
}

static void run_two(share_fn *share, const struct work *work)
{
	pthread_mutex_lock(&helper.lock);
	helper.share = share;
	helper.work = work;
	pthread_cond_broadcast(&helper.change);
	pthread_mutex_unlock(&helper.lock);
	share(work, 0, 2);
	pthread_mutex_lock(&helper.lock);
	while (helper.share)
		pthread_cond_wait(&helper.change, &helper.lock);
	pthread_mutex_unlock(&helper.lock);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double time_of(const struct contender *c, const struct work *work)
{
	double start = seconds();

	if (c->nthreads == 2)
		run_two(c->share, work);
	else
		c->share(work, 0, 1);
	return seconds() - start;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* FNV over words: enough to notice that a contender did other work. */
static uint64_t digest(const char *p, int64_t nbytes)
{
	uint64_t h = 14695981039346656037u, word;

	for (int64_t i = 0; i + 8 <= nbytes; i += 8) {
		memcpy(&word, p + i, 8);
		h = (h ^ word) * 1099511628211u;
	}
	return h;
}

/* ---- the table ---------------------------------------------------------- */

static double median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof(*values), compare);
	return values[n / 2];
}

/* Of each round by itself: a slow second of the machine hits both. */
static double ratio(const double *base, const double *seconds_of, int rounds)
{
	double ratios[BENCH_MAX_ROUNDS];

	for (int r = 0; r < rounds; r++)
		ratios[r] = base[r] / seconds_of[r];
	return median(ratios, rounds);
}

static void print_row(const struct bench_options *options, const char *name,
		      const struct work *work,
		      double seconds_of[][BENCH_MAX_ROUNDS])
{
	const char *sep = "";
	double base[BENCH_MAX_ROUNDS];
	bool first = true;

	printf(options->json ? "{\"case\":\"%s\",\"run\":%lld" : "%-18s %8lld",
	       name, (long long)work->plan[0].run);
	for (int i = 0; i < NCONTENDERS; i++) {
		double *s = seconds_of[i], middle, most, against;

		if (!enters(options, &contenders[i]))
			continue;
		if (first)
			memcpy(base, s, sizeof(base));
		first = false;
		against = ratio(base, s, options->rounds);
		middle = (double)work->nbytes / median(s, options->rounds) * 1e-9;
		most = (double)work->nbytes / s[0] * 1e-9;
		if (options->json)
			printf(",\"%s\":{\"median\":%.2f,\"best\":%.2f,\"ratio\":%.3f}",
			       contenders[i].name, middle, most, against);
		else
			printf("%s %5.1f %5.1f %4.2f", sep, middle, most,
			       against);
		sep = " |";
	}
	printf(options->json ? "}\n" : "\n");
	fflush(stdout);
}

static void bench_case(const struct bench_options *options,
		       int c, struct work *work)
{
	static double took[NCONTENDERS][BENCH_MAX_ROUNDS];
	uint64_t expected;

	bench_case_plan(work, c, options->mib << 20);
	share_ref(work, 0, 1);
	expected = digest(work->dst, work->nbytes);
	for (int r = 0; r < options->rounds; r++) {
		for (int i = 0; i < NCONTENDERS; i++) {
			if (!enters(options, &contenders[i]))
				continue;
			if (!r && contenders[i].permutes)
				memset(work->dst, 0, (size_t)work->nbytes);
			took[i][r] = time_of(&contenders[i], work);
			if (!r && contenders[i].permutes &&
			    digest(work->dst, work->nbytes) != expected)
				check_bail_out(contenders[i].name);
		}
	}
	print_row(options, bench_case_name(c), work, took);
}

static char *new_buffer(int64_t nbytes)
{
	char *p = mmap(NULL, (size_t)nbytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		check_bail_out("out of memory");
	madvise(p, (size_t)nbytes, MADV_HUGEPAGE);
	for (int64_t i = 0; i < nbytes; i += 8) {
		uint64_t word = check_random();

		memcpy(p + i, &word, 8);
	}
	return p;
}

static const struct kvt_kernel *kernel_named(const char *name)
{
	for (int i = 0; kvt_cpu_kernel(i); i++)
		if (!strcmp(kvt_cpu_kernel(i)->name, name) &&
		    kvt_cpu_kernel(i)->runs_here())
			return kvt_cpu_kernel(i);
	check_bail_out("no such kernel here");
	return NULL;
}

int kernel_bench(const struct bench_options *options)
{
	struct work work = { .dst = new_buffer(options->mib << 20),
			     .src = new_buffer(options->mib << 20) };
	pthread_t thread;

	work.plan = calloc(BENCH_MAX_PLANS, sizeof(*work.plan));
	work.pool = kernel_pool_new(2);
	work.alone = kernel_pool_new(1);
	if (!work.plan || !work.pool || !work.alone ||
	    pthread_create(&thread, NULL, helper_main, &helper))
		check_bail_out("out of memory or threads");
	if (options->kernel)
		work.kernel = kernel_named(options->kernel);
	if (!options->json) {
		printf("# GB/s: median, best; ratio to the first column in its round\n");
		printf("%-18s %8s", "case", "run");
		for (int i = 0; i < NCONTENDERS; i++)
			if (enters(options, &contenders[i]))
				printf(" %-18s", contenders[i].name);
		printf("\n");
	}
	for (int i = 0; bench_case_name(i); i++)
		if (!options->only || strstr(bench_case_name(i), options->only))
			bench_case(options, i, &work);
	kernel_pool_free(work.pool);
	kernel_pool_free(work.alone);
	free(work.plan);
	return 0;
}
