/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ids.c - the block ids of a request: patterns, lists, an aged free list
 *
 *	contig	0 1 2 3 ..	reverse		n-1 .. 1 0
 *	scatter	0 2 4 6 ..	half		n/2 .. n-1, then 0 .. n/2-1
 *	random:SEED		drawn from the pool, none twice
 *	aged:SEED		from the front of a free list that was in use
 *	list:3:0:.., file:PATH	as they are; colons and blanks are between them
 *
 * The same words and seed give the same ids everywhere: random numbers are those of
 * splitmix64.
 */
#include "lib/base/nearest.h"
#include "sim/ops/transfer.h"
#include "lib/base/random.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Beyond any deployment; tables of these sizes still fit a small machine. */
enum { MOST_BLOCKS = 1 << 22 };

/* ---- splitmix64 ----------------------------------------------------------- */

static int64_t below(uint64_t *state, int64_t n)
{
	return (int64_t)(kvt_random(state) % (uint64_t)n);
}

static void shuffle(uint32_t *v, int64_t n, uint64_t *state)
{
	for (int64_t i = n - 1; i > 0; i--) {
		int64_t j = below(state, i + 1);
		uint32_t x = v[i];

		v[i] = v[j];
		v[j] = x;
	}
}

/* ---- patterns ----------------------------------------------------------- */

static void contig(uint32_t *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		v[i] = (uint32_t)i;
}

static void scatter(uint32_t *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		v[i] = (uint32_t)(2 * i);
}

static void reverse(uint32_t *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		v[i] = (uint32_t)(n - 1 - i);
}

/* Two halves, swapped. */
static void half(uint32_t *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		v[i] = (uint32_t)((i + n / 2) % n);
}

/* n of the pool's blocks, drawn without putting back. */
static void random_ids(uint32_t *v, int64_t pool, uint64_t seed)
{
	contig(v, pool);
	shuffle(v, pool, &seed);
}

/*
 * A free list after a while of use: requests of random lengths took blocks from
 * its front and gave them back at its end, in reverse order as vLLM does, so
 * that later requests get runs of mixed length.
 */
static void aged(uint32_t *v, int64_t pool, uint64_t seed)
{
	int64_t longest = pool / 8 + 1;

	contig(v, pool);
	for (int64_t left = 16 * pool; left > 0;) {
		int64_t n = below(&seed, longest) + 1, from;

		if (n > pool)
			n = pool;
		from = below(&seed, pool - n + 1);
		for (int64_t i = 0; i < n / 2; i++) {
			uint32_t x = v[from + i];

			v[from + i] = v[from + n - 1 - i];
			v[from + n - 1 - i] = x;
		}
		left -= n;
	}
}

/* ---- lists -------------------------------------------------------------- */

/* Of the word at 'text', as far as a message shows it. */
static int word_length(const char *text)
{
	size_t n = strcspn(text, ": \t\r\n");

	return n < 40 ? (int)n : 40;
}

static enum kvt_status parse_list(uint32_t *v, int64_t n, const char *text,
				  const char *what, struct kvt_error *err)
{
	const char *p = text;
	int64_t count = 0;

	for (;; count++) {
		char *end;
		unsigned long long id;

		while (*p == ':' || isspace((unsigned char)*p))
			p++;
		if (!*p)
			break;
		errno = 0;
		id = strtoull(p, &end, 10);
		if (!isdigit((unsigned char)*p) || errno || id > UINT32_MAX)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: '%.*s' is not a block id", what,
					word_length(p), p);
		if (count < n)
			v[count] = (uint32_t)id;
		p = end;
	}
	if (count != n)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: there are %lld block ids, the request has %lld blocks", what, LL(count), LL(n));
	return KVT_OK;
}

static size_t list_most(int64_t n)
{
	return (size_t)n * 24 + 4094;
}

size_t kvt_id_list_most(void)
{
	return list_most(MOST_BLOCKS) + 1;
}

static enum kvt_status parse_file(uint32_t *v, int64_t n, const struct kvt_id_pattern *p,
				  struct kvt_error *err)
{
	const char *name = p->words + 5;

	if (p->nbytes > list_most(n) || memchr(p->list, 0, p->nbytes))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: this is not a list of %lld block ids", name, LL(n));
	return parse_list(v, n, p->list, name, err);
}

/* ---- all of them -------------------------------------------------------- */

static bool seed_of(uint64_t *seed, const char *text)
{
	char *end;

	errno = 0;
	*seed = strtoull(text, &end, 10);
	return isdigit((unsigned char)*text) && !*end && !errno;
}

static const struct {
	const char *name;
	void (*make)(uint32_t *v, int64_t n);
	int spread;			/* ids reach up to that many times n */
} patterns[] = {
	{ "contig", contig, 1 }, { "scatter", scatter, 2 },
	{ "reverse", reverse, 1 }, { "half", half, 1 },
};
enum { NPATTERNS = sizeof(patterns) / sizeof(patterns[0]) };

static enum kvt_status no_pattern(const char *pattern, struct kvt_error *err)
{
	static const char list[] =
		"contig, scatter, reverse, half, random:SEED, aged:SEED, list:N:N:... or file:PATH";
	struct kvt_nearest near = kvt_nearest_start(pattern);

	for (int i = 0; i < NPATTERNS; i++)
		kvt_nearest_offer(&near, patterns[i].name);
	if (kvt_nearest_found(&near))
		return kvt_fail(err, KVT_USAGE,
				"ids are '%.60s', did you mean '%s'? Expected %s", pattern,
				kvt_nearest_found(&near), list);
	return kvt_fail(err, KVT_USAGE, "ids are '%.60s', expected %s", pattern, list);
}

static enum kvt_status fill(uint32_t *v, int64_t pool, const struct kvt_id_pattern *p,
			    int64_t n, struct kvt_error *err)
{
	const char *pattern = p->words;
	uint64_t seed = 0;

	for (int i = 0; i < NPATTERNS; i++)
		if (!strcmp(patterns[i].name, pattern)) {
			patterns[i].make(v, n);
			return KVT_OK;
		}
	if (!strncmp(pattern, "list:", 5))
		return parse_list(v, n, pattern + 5, "ids", err);
	if (!strncmp(pattern, "file:", 5) && p->list)
		return parse_file(v, n, p, err);
	if (!strncmp(pattern, "random:", 7) && seed_of(&seed, pattern + 7)) {
		random_ids(v, pool, seed);
		return KVT_OK;
	}
	if (!strncmp(pattern, "aged:", 5) && seed_of(&seed, pattern + 5)) {
		aged(v, pool, seed);
		return KVT_OK;
	}
	return no_pattern(pattern, err);
}

enum kvt_status kvt_block_ids(uint32_t **ids, int64_t *pool,
			      const struct kvt_id_pattern *pattern, int64_t n,
			      struct kvt_error *err)
{
	int64_t most = *pool ? *pool : 2 * n + 3;
	uint32_t *v;
	enum kvt_status status;

	if (n > MOST_BLOCKS || most > KVT_MOST_POOL)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld blocks of a pool of %lld, expected at most %d of %d", LL(n), LL(most), MOST_BLOCKS,
				KVT_MOST_POOL);
	if (most < n)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the request has %lld blocks, the pool %lld",
				LL(n), LL(most));
	if (!(v = malloc((size_t)(most + 1) * sizeof(*v))))
		return kvt_fail(err, KVT_SYSTEM, "no memory for %lld block ids",
				LL(most));
	if ((status = fill(v, most, pattern, n, err))) {
		free(v);
		return status;
	}
	*ids = v;
	*pool = most;
	return KVT_OK;
}
