/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_kernels.c - every CPU kernel against the definition; --bench: its speed
 *
 * Needs libc and threads only.  Prints TAP.  A failure says with which --seed
 * it comes back.
 */

#include "tests/kernel_check.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	MOST      = 32 << 10,	/* bytes of a case copied, about */
	ARENA     = 512 << 10,	/* room for it, padding and poison around */
	MOST_POOL = 2 << 20,	/* large enough to be shared */
	ARENA_POOL = 64 << 20,
	NKERNELS  = 16,
	MAX_PARTS = 7,
	POOL_CASES = 12,
};

static struct {
	uint64_t seed;
	int64_t cases;
	const char *kernel;
	bool bench;
	struct bench_options speed;
} options = { .cases = 2000, .speed = { .mib = 512, .rounds = 7 } };

/* ---- memory ------------------------------------------------------------- */

/* Against one guard or the other, or anywhere, aligned or not. */
static int64_t random_place(const struct arena *a, int64_t nbytes)
{
	int64_t last = (int64_t)a->size - nbytes;

	switch (check_below(4)) {
	case 0:  return 0;
	case 1:  return last;
	case 2:  return check_below(last / 64 + 1) * 64;
	default: return check_below(last + 1);
	}
}

/* One case, where it lies, and what must come out for two poisons. */
struct setting {
	struct check_case c;
	struct arena src, dst, expect[2];
	int64_t src_at, dst_at;
};
static const uint8_t poisons[2] = { 0xa5, 0x3c };

static struct setting setting_new(size_t size)
{
	struct setting s = { .src = arena_new(size), .dst = arena_new(size),
			     .expect = { arena_new(size), arena_new(size) } };

	for (size_t i = 0; i < size; i += 8) {
		uint64_t word = check_random();

		memcpy(s.src.bytes + i, &word, 8);
	}
	return s;
}

static void setting_free(struct setting *s)
{
	arena_free(&s->src);
	arena_free(&s->dst);
	arena_free(&s->expect[0]);
	arena_free(&s->expect[1]);
}

static void setting_next(struct setting *s, int64_t most, int64_t elem)
{
	struct kvt_error err;

	do {
		if (!case_random(&s->c, most, elem, &err))
			check_bail_out(err.text);
	} while (s->c.src.nbytes > (int64_t)s->src.size ||
		 s->c.dst.nbytes > (int64_t)s->dst.size);
	s->src_at = random_place(&s->src, s->c.src.nbytes);
	s->dst_at = random_place(&s->dst, s->c.dst.nbytes);
	for (int i = 0; i < 2; i++) {
		memset(s->expect[i].bytes, poisons[i], s->dst.size);
		case_copy(s->expect[i].bytes + s->dst_at,
			  s->src.bytes + s->src_at, &s->c);
	}
}

/* ---- one check ---------------------------------------------------------- */

/* What runs a plan: a kernel, the library's choice, or a pool. */
struct runner {
	const struct kvt_kernel *kernel;	/* NULL: the choice */
	struct kernel_pool *pool;
	bool many;				/* cut first, in one call */
};

static void run(const struct runner *r, void *dst, const void *src,
		const struct kvt_plan *plan)
{
	const struct kvt_plans two = { 2, { kvt_plan_part(plan, 0, 2),
					    kvt_plan_part(plan, 1, 2) } };
	struct kvt_plan parts[MAX_PARTS];

	for (int i = 0; i < MAX_PARTS; i++)
		parts[i] = kvt_plan_part(plan, i, MAX_PARTS);
	if (r->many && !r->pool)
		kvt_cpu_copy_all(dst, src, &two);
	else if (r->many)
		kernel_pool_copy_many(r->pool, dst, src, parts, MAX_PARTS);
	else if (r->pool)
		kernel_pool_copy(r->pool, dst, src, plan);
	else if (r->kernel)
		r->kernel->copy(dst, src, plan);
	else
		kvt_cpu_copy(dst, src, plan);
}

/* A crash must say where, too. */
static char current[160];

static void on_crash(int signal_number)
{
	ssize_t n = write(STDOUT_FILENO, current, strlen(current));

	(void)n, (void)signal_number;
	_exit(1);
}

static void set_current(const char *name, int64_t i, int parts)
{
	snprintf(current, sizeof(current),
		 "\nBail out! %s touches memory that is not its own: "
		 "--seed=%llu, case %lld, %d parts\n",
		 name, (unsigned long long)options.seed, (long long)i, parts);
}

static bool same(const struct setting *s, int poison, const char *name,
		 int64_t i, int parts)
{
	const uint8_t *got = s->dst.bytes, *want = s->expect[poison].bytes;
	const size_t half = (size_t)(s->dst_at + s->c.dst.nbytes) / 2;
	size_t at = 0;
	bool equal;

	/* the end first: a pool that does not wait is still writing there */
	equal = !memcmp(got + half, want + half, s->dst.size - half);
	if (!memcmp(got, want, half) && equal)
		return true;
	while (at < s->dst.size && got[at] == want[at])
		at++;
	if (at == s->dst.size) {
		printf("# %s: bytes were still changing\n", name);
		return false;
	}
	printf("# %s, --seed=%llu, case %lld in %d parts: "
	       "byte %lld is %02x, expected %02x (poison %02x)\n",
	       name, (unsigned long long)options.seed, (long long)i, parts,
	       (long long)at - s->dst_at, got[at], want[at], poisons[poison]);
	case_print(&s->c);
	return false;
}

/* The plan in 'parts' shares, last share first, on fresh poison. */
static bool check_one(struct setting *s, const struct runner *r, int poison,
		      const char *name, int64_t i, int parts)
{
	set_current(name, i, parts);
	memset(s->dst.bytes, poisons[poison], s->dst.size);
	for (int k = parts - 1; k >= 0; k--) {
		struct kvt_plan p = kvt_plan_part(&s->c.plan, k, parts);

		run(r, s->dst.bytes + s->dst_at, s->src.bytes + s->src_at, &p);
	}
	return same(s, poison, name, i, parts);
}

/* ---- the checks --------------------------------------------------------- */

static int points, failures;

static void point(bool ok, const char *what)
{
	printf("%sok %d - %s\n", ok ? "" : "not ", ++points, what);
	fflush(stdout);
	failures += !ok;
}

static bool wanted(const struct kvt_kernel *k)
{
	return !options.kernel || !strcmp(options.kernel, k->name);
}

static void report(const char *name, int64_t whole, int64_t shares)
{
	char text[160];

	snprintf(text, sizeof(text), "%s: %lld random plans, two poisons", name,
		 (long long)options.cases);
	point(!whole, text);
	snprintf(text, sizeof(text), "%s: the same in 2 to %d shares", name,
		 MAX_PARTS);
	point(!shares, text);
}

/* All kernels see each case, so that the definition runs once for all. */
static void check_kernels(void)
{
	struct setting s = setting_new(ARENA);
	int64_t whole[NKERNELS] = { 0 }, shares[NKERNELS] = { 0 };
	const struct kvt_kernel *k;

	for (int64_t i = 0; i < options.cases; i++) {
		int parts = 2 + (int)check_below(MAX_PARTS - 1);

		setting_next(&s, 64 + check_below(MOST), 0);
		for (int j = 0; (k = kvt_cpu_kernel(j)); j++) {
			const struct runner r = { .kernel = k };

			if (!wanted(k) || !k->runs_here() ||
			    (k->takes && !k->takes(&s.c.plan)) || whole[j] > 4)
				continue;
			whole[j] += !check_one(&s, &r, 0, k->name, i, 1);
			whole[j] += !check_one(&s, &r, 1, k->name, i, 1);
			shares[j] += !check_one(&s, &r, 0, k->name, i, parts);
		}
	}
	for (int j = 0; (k = kvt_cpu_kernel(j)); j++) {
		if (wanted(k) && k->runs_here())
			report(k->name, whole[j], shares[j]);
		else
			printf("ok %d - %s # SKIP %s\n", ++points, k->name,
			       wanted(k) ? "this processor cannot run it" :
			       "not asked for");
	}
	setting_free(&s);
}

/* Pools share out large plans only, and the choice depends on size. */
static void check_pools(void)
{
	struct setting s = setting_new(ARENA_POOL);
	int64_t failed[5] = { 0 };
	char text[80];

	for (int64_t i = 0; i < POOL_CASES; i++) {
		int64_t most = i ? MOST_POOL : ARENA_POOL * 3 / 4;

		setting_next(&s, most, i % 2 ? 2 : 512);
		for (int n = 0; n <= 4; n++) {
			struct runner r = { .pool = n ? kernel_pool_new(n) : NULL };

			if (n && !r.pool)
				check_bail_out("no threads");
			/* again and again: later the threads are there */
			failed[n] += !check_one(&s, &r, 0, "pool", i, 1);
			failed[n] += !check_one(&s, &r, 1, "pool", i, 1);
			r.many = true;
			failed[n] += !check_one(&s, &r, 0, "pool", i, 1);
			kernel_pool_free(r.pool);
		}
	}
	point(!failed[0], "kvt_cpu_copy and kvt_cpu_copy_all");
	for (int n = 1; n <= 4; n++) {
		snprintf(text, sizeof(text),
			 "pool of %d, with one plan and with many", n);
		point(!failed[n], text);
	}
	setting_free(&s);
}

/* Plans that no random shape makes: a run and nothing around it, or no run. */
static void check_edges(void)
{
	static uint8_t src[8192], dst[8192];
	const struct kvt_plan nothing = { .nloops = 1, .n = { 3 } };
	const struct kvt_kernel *k;
	bool ok = true;

	for (int i = 0; i < 8192; i++)
		src[i] = (uint8_t)check_random();
	for (int j = 0; (k = kvt_cpu_kernel(j)); j++) {
		if (!k->runs_here())
			continue;
		for (int64_t run_bytes = 0; run_bytes < 4200; run_bytes++) {
			struct kvt_plan p = { .run = run_bytes, .src_offset = 5,
					      .dst_offset = run_bytes % 64 };

			memset(dst, 0x77, sizeof(dst));
			k->copy(dst, src, &nothing);
			k->copy(dst, src, &p);
			ok = ok && !memcmp(dst + p.dst_offset, src + 5,
					   (size_t)run_bytes);
			for (int64_t i = 0; i < 8192; i++)
				ok = ok && (dst[i] == 0x77 ||
					    (i >= p.dst_offset &&
					     i < p.dst_offset + run_bytes));
		}
	}
	point(ok, "one run of 0 to 4199 bytes, and no run at all");
}

static void check_choice(void)
{
	struct kvt_plan p = { .run = 1 };
	bool ok = true;

	for (; p.run < (int64_t)1 << 40; p.run = p.run * 3 + 1) {
		const struct kvt_kernel *k = kvt_cpu_choose(&p);

		ok = ok && k && k->runs_here() && (!k->takes || k->takes(&p));
	}
	point(ok && !strcmp(kvt_cpu_kernel(0)->name, "ref"),
	      "the choice runs here, and the reference comes first");
}

/* ---- command line ------------------------------------------------------- */

static const struct option rows[] = {
	{ "seed",   required_argument, NULL, 's' },
	{ "cases",  required_argument, NULL, 'n' },
	{ "kernel", required_argument, NULL, 'k' },
	{ "bench",  no_argument,       NULL, 'b' },
	{ "mib",    required_argument, NULL, 'm' },
	{ "rounds", required_argument, NULL, 'r' },
	{ "only",   required_argument, NULL, 'o' },
	{ "single", no_argument,       NULL, '1' },
	{ "json",   no_argument,       NULL, 'j' },
	{ 0 }
};

static bool parse(int argc, char **argv)
{
	struct bench_options *speed = &options.speed;
	int c;

	while ((c = getopt_long(argc, argv, "", rows, NULL)) != -1) {
		switch (c) {
		case 's': options.seed = strtoull(optarg, NULL, 0); break;
		case 'n': options.cases = strtoll(optarg, NULL, 0); break;
		case 'k': options.kernel = speed->kernel = optarg; break;
		case 'b': options.bench = true; break;
		case 'm': speed->mib = strtoll(optarg, NULL, 0); break;
		case 'r': speed->rounds = atoi(optarg); break;
		case 'o': speed->only = optarg; break;
		case '1': speed->one_thread = true; break;
		case 'j': speed->json = true; break;
		default:  return false;
		}
	}
	return optind == argc && options.cases > 0 && speed->mib > 0 &&
	       speed->rounds > 0 && speed->rounds <= BENCH_MAX_ROUNDS;
}

int main(int argc, char **argv)
{
	options.seed = 1;
	if (!parse(argc, argv)) {
		fprintf(stderr,
			"usage: check_kernels [--seed=N] [--cases=N] [--kernel=NAME]\n"
			"       check_kernels --bench [--mib=N] [--rounds=N] [--only=TEXT]\n"
			"                     [--kernel=NAME] [--single] [--json]\n");
		return 2;
	}
	check_seed(options.seed);
	if (options.bench)
		return kernel_bench(&options.speed);
	printf("# seed %llu\n", (unsigned long long)options.seed);
	fflush(stdout);
	signal(SIGSEGV, on_crash);
	signal(SIGBUS, on_crash);
	check_kernels();
	if (!options.kernel) {
		check_pools();
		check_edges();
		check_choice();
	}
	printf("1..%d\n", points);
	return failures != 0;
}
