/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_layouts.c - real layouts on a device: from every preset to the usual ones,
 * whole and as the share of a rank
 */
#include "tests/gpu_check.h"

#include <stdio.h>
#include <string.h>

enum { L = 2, B = 3, S = 16, H = 4, K = 2, D = 16, ELEM = 2, POISON = 0x5c };

static const char *const targets[] = { "nhd", "hnd", "blhsc", "bhlsc", "kv-first-nhd",
				       "cross-hnd", "rocm-paged", "aiter-shuffle" };
enum { NTARGETS = sizeof(targets) / sizeof(targets[0]) };

static struct kvt_box heads(int64_t begin, int64_t end)
{
	struct kvt_box box = { { 0 }, { L, B, S, H, K, D } };

	box.begin[KVT_AXIS_H] = begin;
	box.end[KVT_AXIS_H] = end;
	return box;
}

/* The definition: each element from its coordinates on both sides. */
static void copy_elements(uint8_t *dst, const struct kvt_views *to,
			  const uint8_t *src, const struct kvt_views *from,
			  int64_t nheads)
{
	int64_t i[KVT_NAXES];

	for (i[0] = 0; i[0] < L; i[0]++)
	for (i[1] = 0; i[1] < B; i[1]++)
	for (i[2] = 0; i[2] < S; i[2]++)
	for (i[3] = 0; i[3] < nheads; i[3]++)
	for (i[4] = 0; i[4] < K; i[4]++)
	for (i[5] = 0; i[5] < D; i[5]++)
		memcpy(dst + kvt_views_at(to, i), src + kvt_views_at(from, i), ELEM);
}

/* Heads [first, first + n) of a cache in one layout, alone in the other. */
static bool copy_heads(struct gpu_test *t, const struct kvt_layout *to,
		       const struct kvt_layout *from, int64_t first, int64_t n)
{
	const struct kvt_box all = heads(0, H), share = heads(first, first + n);
	const struct kvt_box alone = heads(0, n);
	struct kvt_views whole, src_views, dst_views;
	struct gpu_buffer src, dst;
	struct kvt_plans plans;
	struct kvt_error err = { "" };
	bool ok;

	if (kvt_layout_views(&whole, from, &all, ELEM, &err) ||
	    kvt_views_narrow(&src_views, &whole, &share, &err) ||
	    kvt_layout_views(&dst_views, to, &alone, ELEM, &err) ||
	    kvt_plans_init(&plans, &dst_views, &src_views, &err))
		return gpu_good(KVT_BAD_INPUT, &err);
	if (!gpu_buffer_new(&src, t, whole.nbytes, -1) ||
	    !gpu_buffer_new(&dst, t, dst_views.nbytes, POISON))
		return false;
	copy_elements(gpu_expect(&dst), &dst_views, gpu_expect(&src), &src_views, n);
	ok = gpu_copy_plans(t, gpu_at(&dst), gpu_at(&src), &plans) &&
	     gpu_buffer_same(&dst, t, "layout");
	gpu_buffer_free(&src, t);
	gpu_buffer_free(&dst, t);
	return ok;
}

void gpu_check_layouts(struct gpu_test *t)
{
	const struct kvt_box all = heads(0, H);
	const struct kvt_preset *p;
	int64_t copies = 0, failed = 0;

	for (int i = 0; (p = kvt_preset_at(i)) && i < t->cases; i++) {
		struct kvt_layout from, to;
		struct kvt_views views;

		/* some are for caches without heads, or with other splits */
		if (p->latent || kvt_layout_parse(&from, p->axes, NULL) ||
		    kvt_layout_views(&views, &from, &all, ELEM, NULL))
			continue;
		for (int j = 0; j < NTARGETS && failed < 5; j++) {
			bool ok = !kvt_layout_parse(&to, targets[j], NULL) &&
				  copy_heads(t, &to, &from, 0, H) &&
				  copy_heads(t, &to, &from, 2, 1);

			copies += 2;
			failed += !ok;
			if (!ok)
				printf("# from %s to %s\n", p->axes, targets[j]);
		}
	}
	gpu_point(!failed && copies, "%lld copies between layouts of engines, whole and "
		  "by head", (long long)copies);
}
