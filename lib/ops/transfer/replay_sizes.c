/* SPDX-License-Identifier: Apache-2.0 */
/* replay_sizes.c - what requests of any length move, from a few plans */
#include "lib/ops/transfer/replay.h"

#include <stdlib.h>
#include <string.h>

enum { UNIT_MOST = 1 << 16 };

static int64_t common_multiple(int64_t a, int64_t b)
{
	int64_t x = a, y = b;

	while (y) {
		int64_t rest = x % y;

		x = y;
		y = rest;
	}
	return a / x * b;
}

/* Only where blocks lie alike all along does a unit add what the last one did. */
static enum kvt_status check_ids(const struct sim_args *a, struct kvt_error *err)
{
	const char *texts[] = { a->src.text, a->dst.text };

	for (int i = 0; i < 2; i++) {
		const char *ids = texts[i] ? strstr(texts[i], "ids=") : NULL;

		if (ids && strncmp(ids + 4, "contig", 6) &&
		    strncmp(ids + 4, "scatter", 7) && strncmp(ids + 4, "reverse", 7))
			return kvt_fail(
				err, KVT_USAGE,
				"ids of a trace's requests are contig, scatter or reverse, not '%.40s'",
				ids + 4);
	}
	if (a->src.file || a->cached || (a->src.text && strstr(a->src.text, "pool=")) ||
	    (a->dst.text && strstr(a->dst.text, "pool=")))
		return kvt_fail(err, KVT_USAGE,
				"requests of a trace have pools of their own: no dumps, pool or --cached");
	return KVT_OK;
}

/* Tokens after which both sides begin a block, and a chunk, with windows full. */
static enum kvt_status find_unit(struct sizes *s, struct kvt_error *err)
{
	struct sim_args one = *s->args;
	int64_t unit = 1, window = 0;
	struct sim sim;
	enum kvt_status status;

	one.tokens = 1;
	if ((status = sim_load(&sim, &one, err)))
		return status;
	s->states = 1;
	for (int g = 0; g < sim.ngroups; g++) {
		const struct kvt_xfer *x = &sim.group[g].xfer;
		bool chunks = x->src.spec.kind == KVT_CHUNKED_LOCAL;

		if (x->src.spec.tokens_per_state.num < 0)
			continue;
		unit = common_multiple(unit, x->src.spec.block_size);
		unit = common_multiple(unit, x->dst.spec.block_size);
		s->states = x->dst.spec.block_size;
		if (x->src.spec.window > window)
			window = x->src.spec.window;
		/* what is left of a chunk comes again with every one */
		if (chunks && window <= UNIT_MOST && unit <= UNIT_MOST)
			unit = common_multiple(unit, x->src.spec.window);
		if (unit > UNIT_MOST || window > UNIT_MOST)
			break;
	}
	sim_free(&sim);
	if (unit > UNIT_MOST || window > UNIT_MOST)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"block sizes that meet only every %lld tokens",
				(long long)(unit > window ? unit : window));
	s->unit = unit * (window / unit + 1);
	return KVT_OK;
}

enum kvt_status sizes_init(struct sizes *out, const struct sim_args *args,
			   const struct posts_how *how, struct kvt_error *err)
{
	struct sizes s = { .args = args, .how = how };
	enum kvt_status status;

	if ((status = check_ids(args, err)) || (status = find_unit(&s, err)))
		return status;
	s.of = calloc((size_t)(2 * s.unit + 1), sizeof(*s.of));
	if (!s.of)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	*out = s;
	return KVT_OK;
}

void sizes_free(struct sizes *s)
{
	for (int64_t i = 0; s->of && i <= 2 * s->unit; i++)
		posts_free(&s->of[i]);
	free(s->of);
	s->of = NULL;
}

/* Of 1 to 2 * unit tokens. */
static enum kvt_status exact(const struct posts **out, struct sizes *s, int64_t tokens,
			     struct kvt_error *err)
{
	struct sim_args some = *s->args;
	struct sim sim;
	enum kvt_status status;

	if (!s->of[tokens].n) {
		some.tokens = tokens;
		if ((status = sim_load(&sim, &some, err)))
			return status;
		status = posts_count(&s->of[tokens], &sim, s->how, err);
		sim_free(&sim);
		if (status)
			return status;
	}
	*out = &s->of[tokens];
	return KVT_OK;
}

enum kvt_status sizes_pairs(const struct posts **out, struct sizes *s,
			    struct kvt_error *err)
{
	return exact(out, s, 1, err);
}

enum kvt_status sizes_get(struct posts_batch *out, struct sizes *s, int64_t tokens,
			  struct kvt_error *err)
{
	int64_t more = tokens > 2 * s->unit ? (tokens - s->unit - 1) / s->unit : 0;
	const struct posts *rest, *one, *two;
	enum kvt_status status;

	if ((status = exact(&rest, s, tokens - more * s->unit, err)) ||
	    (status = exact(&one, s, s->unit, err)) ||
	    (status = exact(&two, s, 2 * s->unit, err)))
		return status;
	for (int64_t i = 0; i < rest->n; i++) {
		const struct posts_batch *a = &one->batch[i], *b = &two->batch[i];

		out[i] = rest->batch[i];
		out[i].listed += more * (b->listed - a->listed);
		out[i].merged += more * (b->merged - a->merged);
		out[i].ops += more * (b->ops - a->ops);
		out[i].bytes += more * (b->bytes - a->bytes);
	}
	return KVT_OK;
}
