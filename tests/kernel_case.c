/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_case.c - random copies and what they mean
 *
 * The definition shares nothing with what it checks: a place in a buffer comes
 * from its coordinates, digit by digit, and never from a stride or a plan.
 */
#include "tests/kernel_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t state;

void check_seed(uint64_t seed)
{
	state = seed;
}

uint64_t check_random(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

int64_t check_below(int64_t n)
{
	return (int64_t)(check_random() % (uint64_t)n);
}

static bool one_in(int64_t n)
{
	return check_below(n) == 0;
}

/* ---- the definition ----------------------------------------------------- */

/* A mixed-radix number: the parts are its digits, slowest first. */
static int64_t place(const struct side *side, const int64_t index[])
{
	int64_t at = 0;

	for (int i = 0; i < side->nparts; i++) {
		const struct side_part *p = &side->part[i];

		at = at * p->room + p->first + index[p->axis] / p->div % p->mod;
	}
	return at;
}

void case_copy(uint8_t *dst, const uint8_t *src, const struct check_case *c)
{
	const int64_t *n = c->n;
	int64_t i[KVT_NAXES];

	for (i[0] = 0; i[0] < n[0]; i[0]++)
	for (i[1] = 0; i[1] < n[1]; i[1]++)
	for (i[2] = 0; i[2] < n[2]; i[2]++)
	for (i[3] = 0; i[3] < n[3]; i[3]++)
	for (i[4] = 0; i[4] < n[4]; i[4]++)
	for (i[5] = 0; i[5] < n[5]; i[5]++)
		memcpy(dst + place(&c->dst, i) * c->elem,
		       src + place(&c->src, i) * c->elem, (size_t)c->elem);
}

/* ---- random sides ------------------------------------------------------- */

static void swap_parts(struct side *side, int a, int b)
{
	struct side_part t = side->part[a];

	side->part[a] = side->part[b];
	side->part[b] = t;
}

/* Whole, or in two parts: of 'split' entries each, and of those. */
static void add_axis(struct side *side, int axis, int64_t n, int64_t split)
{
	struct side_part outer = { axis, split, n / split, n / split, 0 };
	struct side_part inner = { axis, 1, split, split, 0 };

	/* a few places more than are used: TP shares, padded pages */
	if (one_in(4)) {
		outer.room += 1 + check_below(3);
		outer.first = check_below(outer.room - n / split + 1);
	}
	side->part[side->nparts++] = outer;
	if (split > 1)
		side->part[side->nparts++] = inner;
}

static void random_side(struct side *side, const struct check_case *c)
{
	*side = (struct side){ .nbytes = c->elem };
	for (int a = 0; a < KVT_NAXES; a++) {
		int64_t split = 1;

		if ((a == KVT_AXIS_S || a == KVT_AXIS_D) && one_in(3))
			split = 2 << check_below(3);
		add_axis(side, a, c->n[a], c->n[a] % split ? 1 : split);
	}
	for (int i = side->nparts - 1; i > 0; i--)
		swap_parts(side, i, (int)check_below(i + 1));
	for (int i = 0; i < side->nparts; i++)
		side->nbytes *= side->part[i].room;
}

/* Extents whose product, in bytes, stays below 'most'. */
static void random_extents(struct check_case *c, int64_t most)
{
	int64_t left = most / c->elem;

	for (int a = 0; a < KVT_NAXES; a++)
		c->n[a] = 1;
	for (int tries = 0; tries < 8 && left > 1; tries++) {
		int a = (int)check_below(KVT_NAXES);
		int64_t n = 1 + check_below(left < 96 ? left : 96);

		/* axes of engines are mostly round numbers */
		if (one_in(2) && left >= 32)
			n = 2 << check_below(5);
		if (c->n[a] > 1 || n > left)
			continue;
		c->n[a] = n;
		left /= n;
	}
}

static int64_t random_elem(void)
{
	if (one_in(4))
		return 1 + check_below(1200);
	if (one_in(4))
		return 64 * (1 + check_below(32));
	return 1 << check_below(5);
}

/* ---- plans of lib/ ------------------------------------------------------ */

/* The whole buffer as a view, narrowed to what is used. */
static enum kvt_status view_of_side(struct kvt_view *view,
				    const struct side *side,
				    const struct check_case *c,
				    struct kvt_error *err)
{
	int64_t stride = c->elem, first[KVT_NAXES] = { 0 };
	enum kvt_status status = KVT_OK;

	*view = (struct kvt_view){ .nfactors = side->nparts,
				   .shape.elem = c->elem };
	for (int a = 0; a < KVT_NAXES; a++)
		view->shape.n[a] = 1;
	for (int i = side->nparts - 1; i >= 0; i--) {
		const struct side_part *p = &side->part[i];

		view->factor[i] = (struct kvt_factor){
			(enum kvt_axis)p->axis, p->div, p->room, stride };
		view->shape.n[p->axis] *= p->room;
		first[p->axis] += p->first * p->div;
		stride *= p->room;
	}
	for (int a = 0; a < KVT_NAXES && !status; a++)
		status = kvt_view_narrow(view, view, (enum kvt_axis)a, first[a],
					 first[a] + c->n[a], err);
	return status;
}

bool case_random(struct check_case *c, int64_t most, int64_t elem,
		 struct kvt_error *err)
{
	struct kvt_view src, dst;

	*c = (struct check_case){ .elem = elem ? elem : random_elem() };
	random_extents(c, most);
	random_side(&c->src, c);
	random_side(&c->dst, c);
	return !view_of_side(&src, &c->src, c, err) &&
	       !view_of_side(&dst, &c->dst, c, err) &&
	       !kvt_plan_init(&c->plan, &dst, &src, err);
}

/* ---- printing ----------------------------------------------------------- */

static void print_side(const char *name, const struct side *side)
{
	printf("#   %s:", name);
	for (int i = 0; i < side->nparts; i++) {
		const struct side_part *p = &side->part[i];

		printf(" %c/%lld%%%lld@%lld:%lld",
		       kvt_axis_letter((enum kvt_axis)p->axis),
		       (long long)p->div, (long long)p->mod,
		       (long long)p->first, (long long)p->room);
	}
	printf("\n");
}

void case_print(const struct check_case *c)
{
	const struct kvt_plan *p = &c->plan;

	print_side("src", &c->src);
	print_side("dst", &c->dst);
	printf("#   plan: run %lld, src +%lld, dst +%lld;", (long long)p->run,
	       (long long)p->src_offset, (long long)p->dst_offset);
	for (int i = 0; i < p->nloops; i++)
		printf(" %lld x (%lld, %lld)", (long long)p->n[i],
		       (long long)p->src_stride[i], (long long)p->dst_stride[i]);
	printf("\n");
}

/* ---- memory ------------------------------------------------------------- */

enum { GUARD = 64 << 10 };

void check_bail_out(const char *why)
{
	printf("Bail out! %s\n", why);
	exit(1);
}

struct arena arena_new(size_t size)
{
	uint8_t *p = mmap(NULL, size + 2 * GUARD, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || mprotect(p + GUARD, size, PROT_READ | PROT_WRITE))
		check_bail_out("out of memory");
	return (struct arena){ p + GUARD, size };
}

void arena_free(struct arena *a)
{
	munmap(a->bytes - GUARD, a->size + 2 * GUARD);
}
