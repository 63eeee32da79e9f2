/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layouts.c - are two dumps equal, element by element?
 *
 * It reads both again and finds each element by adding up the terms of its
 * address.  Plans and kernels, which made the one from the other, have no part
 * in this.
 */
#include "lib/ops/compare/address.h"
#include "lib/ops/compare/compare.h"

#include <string.h>

struct comparing {
	const struct kvt_dump *a, *b;
	int group;
	struct kvt_cut cut;
};

/* First element of a cell that differs; -1 if none. */
static int64_t cell_differs(const uint8_t *a, const struct address_terms *ta,
			    const uint8_t *b, const struct address_terms *tb,
			    int64_t d, int64_t elem)
{
	if (ta->dense && tb->dense && !memcmp(a, b, (size_t)(d * elem)))
		return -1;
	for (int64_t i = 0; i < d; i++)
		if (memcmp(a + ta->at[KVT_AXIS_D][i], b + tb->at[KVT_AXIS_D][i],
			   (size_t)elem))
			return i;
	return -1;
}

static bool next_cell(int64_t at[KVT_NAXES], const int64_t n[KVT_NAXES])
{
	for (int a = KVT_AXIS_K; a >= 0; a--) {
		if (++at[a] < n[a])
			return true;
		at[a] = 0;
	}
	return false;
}

static enum kvt_status compare_views(const struct comparing *c,
				     const struct kvt_box *box, int k,
				     const uint8_t *a, const struct kvt_view *va,
				     const uint8_t *b, const struct kvt_view *vb,
				     struct kvt_error *err)
{
	const struct kvt_group *group = &kvt_dump_snapshot(c->a)->group[c->group];
	const int64_t *n = va->shape.n, d = n[KVT_AXIS_D];
	struct address_terms ta = { { 0 }, NULL, false }, tb = { { 0 }, NULL, false };
	int64_t at[KVT_NAXES] = { 0 }, i = -1;

	if (!address_terms_init(&ta, va) || !address_terms_init(&tb, vb)) {
		address_terms_free(&ta);
		address_terms_free(&tb);
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	}
	a += va->offset;
	b += vb->offset;
	do {
		i = cell_differs(a + address_terms_offset(&ta, at), &ta,
				 b + address_terms_offset(&tb,
							  at), &tb, d, va->shape.elem);
	} while (i < 0 && next_cell(at, n));
	address_terms_free(&ta);
	address_terms_free(&tb);
	if (i < 0)
		return KVT_OK;
	return kvt_fail(err, KVT_MISMATCH,
			"%s: layer %lld block %llu state %lld head %lld kv %lld dim %lld differs",
			group->id, (long long)(box->begin[KVT_AXIS_L] + at[KVT_AXIS_L]),
			(unsigned long long)kvt_block_id(
				group, box->begin[KVT_AXIS_B] + at[KVT_AXIS_B]),
			(long long)at[KVT_AXIS_S], (long long)at[KVT_AXIS_H],
			(long long)(k + at[KVT_AXIS_K]), (long long)i);
}

static enum kvt_status compare_box(struct kvt_worker *worker, void *context,
				   int64_t i, struct kvt_error *err)
{
	const struct comparing *c = context;
	const struct kvt_group *ga = &kvt_dump_snapshot(c->a)->group[c->group];
	const struct kvt_group *gb = &kvt_dump_snapshot(c->b)->group[c->group];
	struct kvt_box box = kvt_cut_box(&c->cut, i);
	struct kvt_shape shape = kvt_box_shape(&box, ga->shape.elem);
	struct kvt_views va, vb;
	enum kvt_status status;
	int64_t nbytes;

	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)) || !nbytes)
		return status;
	if ((status = kvt_read(worker, c->a, c->group, &box, NULL, worker->buffer[0],
			       err)) ||
	    (status = kvt_read(worker, c->b, c->group, &box, NULL, worker->buffer[1],
			       err)) ||
	    (status = kvt_layout_views(&va, &ga->layout, &box, shape.elem, err)) ||
	    (status = kvt_layout_views(&vb, &gb->layout, &box, shape.elem, err)))
		return status;
	for (int k = 0; !status && k < shape.n[KVT_AXIS_K]; k++) {
		struct kvt_view a, b;

		if ((status = views_half(&a, &va, k, err)) ||
		    (status = views_half(&b, &vb, k, err)))
			break;
		status = compare_views(c, &box, k, worker->buffer[0], &a,
				       worker->buffer[1], &b, err);
	}
	kvt_worker_progress(worker, nbytes);
	return status;
}

enum kvt_status verify_equal(const struct kvt_dump *a, const struct kvt_dump *b,
			     const struct kvt_run *run,
			     struct kvt_error *err)
{
	const struct kvt_snapshot *sa = kvt_dump_snapshot(a);
	const struct kvt_snapshot *sb = kvt_dump_snapshot(b);
	int64_t limit = run->memory ? run->memory : INT64_MAX;

	if (sa->ngroups != sb->ngroups)
		return kvt_fail(err, KVT_MISMATCH, "%d groups became %d",
				sa->ngroups, sb->ngroups);
	for (int g = 0; g < sa->ngroups; g++) {
		const struct kvt_group *ga = &sa->group[g], *gb = &sb->group[g];
		struct comparing c = { .a = a, .b = b, .group = g };
		struct kvt_work work = { .fn = compare_box, .context = &c,
				     .label = "verifying" };
		enum kvt_status status;

		if (memcmp(&ga->shape, &gb->shape, sizeof(ga->shape)))
			return kvt_fail(err, KVT_MISMATCH, "%s: shapes differ", ga->id);
		c.cut = kvt_cut_choose(ga, kvt_dump_tiling(a, g), &gb->layout,
				   kvt_dump_tiling(b, g), limit / 4);
		work.count = c.cut.nboxes;
		work.buffer_bytes[0] = work.buffer_bytes[1] = c.cut.box_bytes;
		if ((status = kvt_shape_nbytes(&work.total_bytes, &ga->shape, err)))
			return status;
		kvt_work_reads(&work, a, g, &c.cut, NULL);
		kvt_work_reads(&work, b, g, &c.cut, NULL);
		if ((status = kvt_work_run(&work, run, err)))
			return status;
	}
	return KVT_OK;
}
