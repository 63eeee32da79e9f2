/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_reblock.c - blocks of one size into blocks of another, and shares of ranks
 *
 * Tokens lie behind block tables in random order, the last block is full in part.
 * A plan moves the slots that are neighbours on both sides, as reblock and transfers
 * do it; what must come out is known from the coordinates of each element.
 */
#include "tests/gpu_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { L = 2, H = 4, K = 2, D = 8, ELEM = 2, TOKENS = 117, MOST_BLOCKS = 20,
       MOST_RUNS = 1 << 15, POISON = 0x6b };

static const char *const layouts[] = { "nhd", "hnd", "blshc", "bhlsc", "kv-first-nhd",
				       "cross-hnd" };
enum { NLAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

/* One side of a copy: a pool of blocks, and the heads that it holds. */
struct pool {
	struct kvt_layout layout;
	struct kvt_views views;
	int64_t slots, first_head, heads;
	int64_t table[MOST_BLOCKS];	/* blocks of the tokens, in their order */
	struct gpu_buffer bytes;
};

static int64_t nblocks(const struct pool *p)
{
	return (TOKENS + p->slots - 1) / p->slots;
}

/* A few blocks more than the tokens need, so that the table picks. */
static bool pool_new(struct pool *p, struct gpu_test *t, const char *layout, int poison)
{
	const int64_t room = nblocks(p) + 3;
	const struct kvt_box box = { { 0 }, { L, room, p->slots, p->heads, K, D } };
	int64_t block[MOST_BLOCKS + 3];
	struct kvt_error err = { "" };

	for (int64_t i = 0; i < room; i++)
		block[i] = i;
	for (int64_t i = 0; i < nblocks(p); i++) {
		const int64_t j = i + check_below(room - i), x = block[i];

		p->table[i] = block[i] = block[j];
		block[j] = x;
	}
	return gpu_good(kvt_layout_parse(&p->layout, layout, &err), &err) &&
	       gpu_good(kvt_layout_views(&p->views, &p->layout, &box, ELEM, &err),
			&err) &&
	       gpu_buffer_new(&p->bytes, t, p->views.nbytes, poison);
}

static int64_t place(const struct pool *p, int64_t token, int64_t l, int64_t head,
		     int64_t k, int64_t d)
{
	const int64_t index[KVT_NAXES] = {
		l, p->table[token / p->slots], token % p->slots,
		head - p->first_head, k, d
	};

	return kvt_views_at(&p->views, index);
}

/* The heads that both sides have. */
struct common {
	int64_t begin, end;
};

static struct common common_heads(const struct pool *a, const struct pool *b)
{
	const int64_t end_a = a->first_head + a->heads, end_b = b->first_head + b->heads;

	return (struct common){
		a->first_head > b->first_head ? a->first_head : b->first_head,
		end_a < end_b ? end_a : end_b,
	};
}

static void expect(const struct pool *dst, const struct pool *src)
{
	const struct common c = common_heads(dst, src);

	for (int64_t token = 0; token < TOKENS; token++)
	for (int64_t l = 0; l < L; l++)
	for (int64_t h = c.begin; h < c.end; h++)
	for (int64_t k = 0; k < K; k++)
	for (int64_t d = 0; d < D; d++)
		memcpy(gpu_expect(&dst->bytes) + place(dst, token, l, h, k, d),
		       gpu_expect(&src->bytes) + place(src, token, l, h, k, d), ELEM);
}

static struct kvt_box slots_of(const struct pool *p, int64_t token, int64_t count,
			       const struct common *c)
{
	const int64_t block = p->table[token / p->slots], s = token % p->slots;

	return (struct kvt_box){
		{ 0, block, s, c->begin - p->first_head, 0, 0 },
		{ L, block + 1, s + count, c->end - p->first_head, K, D },
	};
}

/* Tokens from this one on that stay in one block on both sides. */
static int64_t span(const struct pool *dst, const struct pool *src, int64_t token)
{
	const int64_t a = dst->slots - token % dst->slots;
	const int64_t b = src->slots - token % src->slots;
	const int64_t n = a < b ? a : b;

	return n < TOKENS - token ? n : TOKENS - token;
}

static bool plan_of(struct kvt_plans *out, const struct pool *dst,
		    const struct pool *src, int64_t token)
{
	const struct common c = common_heads(dst, src);
	const int64_t n = span(dst, src, token);
	const struct kvt_box to = slots_of(dst, token, n, &c);
	const struct kvt_box from = slots_of(src, token, n, &c);
	struct kvt_views d, s;
	struct kvt_error err = { "" };

	return gpu_good(kvt_views_narrow(&d, &dst->views, &to, &err), &err) &&
	       gpu_good(kvt_views_narrow(&s, &src->views, &from, &err), &err) &&
	       gpu_good(kvt_plans_init(out, &d, &s, &err), &err);
}

/* ---- as plans, and as a list -------------------------------------------- */

static bool by_plans(struct gpu_test *t, const struct pool *dst, const struct pool *src)
{
	struct kvt_plans plans;

	for (int64_t token = 0; token < TOKENS; token += span(dst, src, token))
		if (!plan_of(&plans, dst, src, token) ||
		    !gpu_copy_plans(t, gpu_at(&dst->bytes), gpu_at(&src->bytes), &plans))
			return false;
	return true;
}

static int64_t list_runs(struct kvt_device_run *list, const struct kvt_plans *plans)
{
	struct kvt_plan_walk walk;
	int64_t n = 0;

	for (int i = 0; i < plans->count; i++) {
		kvt_plan_walk_start(&walk, &plans->plan[i]);
		for (; !walk.done; kvt_plan_walk_next(&walk))
			list[n++] = (struct kvt_device_run){ walk.src, walk.dst,
							     plans->plan[i].run };
	}
	return n;
}

/* All runs of all plans in one launch. */
static bool by_list(struct gpu_test *t, const struct pool *dst, const struct pool *src)
{
	struct kvt_device_run *host = malloc(MOST_RUNS * sizeof(*host));
	const int64_t each = (int64_t)sizeof(*host);
	struct kvt_error err = { "" };
	struct kvt_plans plans;
	void *list = NULL;
	int64_t n = 0;
	bool ok = host != NULL;

	for (int64_t token = 0; ok && token < TOKENS; token += span(dst, src, token)) {
		ok = plan_of(&plans, dst, src, token);
		n += ok ? list_runs(host + n, &plans) : 0;
	}
	ok = ok && gpu_good(kvt_device_alloc(&list, t->device, n * each, &err), &err) &&
	     gpu_good(kvt_device_copy_in(t->device, list, host, n * each, NULL, &err),
		      &err) &&
	     gpu_good(kvt_device_copy_runs(t->device, gpu_at(&dst->bytes),
					   gpu_at(&src->bytes), list, n, host[0].len,
					   NULL, &err), &err) &&
	     gpu_good(kvt_device_wait(t->device, NULL, &err), &err);
	kvt_device_free(t->device, list);
	free(host);
	return ok;
}

/* ---- one copy ----------------------------------------------------------- */

/* Tensor parallel ranks of both sides; more ranks than heads share them. */
struct ranks {
	int64_t src_size, src, dst_size, dst;
};

static void take_heads(struct pool *p, int64_t size, int64_t rank)
{
	p->heads = size < H ? H / size : 1;
	p->first_head = rank * H / size;
}

static bool copy_one(struct gpu_test *t, const char *to, const char *from,
		     const int64_t sizes[2], const struct ranks *r)
{
	struct pool src = { .slots = sizes[0] }, dst = { .slots = sizes[1] };
	bool ok = true;

	take_heads(&src, r->src_size, r->src);
	take_heads(&dst, r->dst_size, r->dst);
	if (!pool_new(&src, t, from, -1) || !pool_new(&dst, t, to, POISON))
		return false;
	expect(&dst, &src);
	for (int list = 0; list < 2 && ok; list++) {
		struct kvt_error err = { "" };

		ok = gpu_good(kvt_device_fill(t->device, dst.bytes.device, POISON,
					      dst.bytes.before + dst.bytes.nbytes +
					      dst.bytes.after, NULL, &err), &err) &&
		     (list ? by_list : by_plans)(t, &dst, &src) &&
		     gpu_buffer_same(&dst.bytes, t, list ? "list" : "plans");
	}
	gpu_buffer_free(&src.bytes, t);
	gpu_buffer_free(&dst.bytes, t);
	if (!ok)
		printf("# from %s to %s, rank %lld of %lld to %lld of %lld\n", from, to,
		       (long long)r->src, (long long)r->src_size, (long long)r->dst,
		       (long long)r->dst_size);
	return ok;
}

void gpu_check_reblock(struct gpu_test *t)
{
	static const int64_t sizes[][2] = { { 16, 24 }, { 24, 16 }, { 16, 64 },
					    { 64, 16 }, { 16, 16 } };
	static const struct ranks ranks[] = {
		{ 1, 0, 1, 0 },		/* all of it */
		{ 1, 0, 4, 2 },		/* one head of four */
		{ 4, 3, 2, 1 },		/* one head into two */
		{ 2, 1, 8, 5 },		/* a head that ranks 4 and 5 have */
	};
	enum { NSIZES = sizeof(sizes) / sizeof(sizes[0]),
	       NRANKS = sizeof(ranks) / sizeof(ranks[0]) };

	for (int i = 0; i < NSIZES; i++) {
		int64_t copies = 0;
		bool ok = true;

		for (int j = 0; j < NLAYOUTS * NRANKS && j < t->cases && ok; j++) {
			const char *from = layouts[j / NRANKS];
			const char *to = layouts[(j + i + 1) % NLAYOUTS];

			ok = copy_one(t, to, from, sizes[i], &ranks[j % NRANKS]);
			copies++;
		}
		gpu_point(ok, "blocks of %lld into blocks of %lld: %lld copies, of ranks "
			  "1 to 1, 1 to 4, 4 to 2, 2 to 8", (long long)sizes[i][0],
			  (long long)sizes[i][1], (long long)copies);
	}
}
