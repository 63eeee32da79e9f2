/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flat.c - groups that are arrays in files: finding the parts of a box and moving their
 * bytes
 *
 *	part	{file, offset, views, box}	a box of the group and where its bytes are
 *	flat	parts in the order of their first layer, then first block
 *
 * What is asked for is a box, in memory in the layout of the group.  Of each part that
 * has some of it the two views are narrowed to what they share, a plan of runs made of
 * these, and the runs read or written.  Parts are found by binary search: none is longer
 * than span[] along L or B, so those that begin that much before the box, or behind it,
 * are skipped.
 *
 * Runs that are short and near each other go through a buffer of 256 KiB in one system
 * call.  A read may take along up to seven bytes for each that is wanted; a write never
 * does, as what is between belongs to others.
 */
#include "formats/format.h"
#include "lib/dump/read.h"

#include <stdlib.h>
#include <string.h>

/* ---- finding the parts of a box ---------------------------------------- */

/* First part from 'from' on that begins at (layer, block) or later. */
static int64_t lower_bound(const struct kvt_flat *flat, int64_t from,
			   int64_t layer, int64_t block)
{
	int64_t to = flat->nparts;

	while (from < to) {
		int64_t mid = from + (to - from) / 2;
		const int64_t *begin = flat->placed[mid].box.begin;

		if (begin[KVT_AXIS_L] < layer ||
		    (begin[KVT_AXIS_L] == layer && begin[KVT_AXIS_B] < block))
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

/*
 * Where the search goes on after looking at parts before 'at': parts are in
 * order of their first layer, then first block, and none holds more than
 * span[] of either, so most of them need no look.
 */
static int64_t next_candidate(const struct kvt_flat *flat, int64_t at,
			      const struct kvt_box *box)
{
	int64_t first = box->begin[KVT_AXIS_B] - flat->span[1] + 1;

	while (at < flat->nparts) {
		const int64_t *begin = flat->placed[at].box.begin;

		if (begin[KVT_AXIS_L] >= box->end[KVT_AXIS_L])
			break;
		if (begin[KVT_AXIS_B] < first)
			at = lower_bound(flat, at, begin[KVT_AXIS_L], first);
		else if (begin[KVT_AXIS_B] >= box->end[KVT_AXIS_B])
			at = lower_bound(flat, at, begin[KVT_AXIS_L] + 1, INT64_MIN);
		else
			return at;
	}
	return flat->nparts;
}

/* ---- moving bytes ------------------------------------------------------- */

enum {
	SCRATCH = 256 * 1024,	/* stays in the second-level cache */
	DIRECT = 32 * 1024,	/* runs this long gain nothing from a detour */
	SLACK = 8,		/* bytes read for one wanted, at most */
};

/* One copy between a file and memory. */
struct move {
	const struct kvt_file *file;	/* NULL: zeros */
	char *buf;
	char *scratch;			/* SCRATCH bytes once needed; or NULL */
	bool write;
};

/*
 * Small runs that lie close together in the file move in one system call: the
 * loops outside 'level' are walked, 'm' entries of that loop and all of those
 * inside go through the scratch buffer at once.
 */
struct batch {
	int level;
	int64_t m, inner;		/* bytes that the inner loops span */
};

static bool choose_batch(struct batch *out, const struct kvt_plan *plan,
			 const int64_t *stride, int64_t slack)
{
	int64_t extent = plan->run, bytes = plan->run;
	bool found = false;

	for (int i = plan->nloops - 1; i >= 0 && extent < DIRECT; i--) {
		int64_t m;

		if (stride[i] < 1)
			break;
		m = 1 + (SCRATCH - extent) / stride[i];
		if (m > plan->n[i])
			m = plan->n[i];
		if (m > 1 && (m - 1) * stride[i] + extent <= slack * bytes * m) {
			*out = (struct batch){ i, m, extent };
			found = true;
		}
		if (m < plan->n[i])
			break;
		extent += (m - 1) * stride[i];
		bytes *= m;
	}
	return found;
}

/* The runs of one batch, between the scratch buffer and memory. */
static void copy_runs(const struct move *move, const struct kvt_plan *plan)
{
	struct kvt_plan_walk walk;

	for (kvt_plan_walk_start(&walk, plan); !walk.done; kvt_plan_walk_next(&walk))
		if (move->write)
			memcpy(move->scratch + walk.dst, move->buf + walk.src,
			       (size_t)plan->run);
		else
			memcpy(move->buf + walk.dst, move->scratch + walk.src,
			       (size_t)plan->run);
}

static enum kvt_status move_batch(const struct move *move, const struct kvt_plan *inner,
				  int64_t extent, struct kvt_error *err)
{
	struct kvt_plan plan = *inner;
	int64_t at = move->write ? plan.dst_offset : plan.src_offset;
	enum kvt_status status;

	if (move->write) {
		plan.dst_offset = 0;
		copy_runs(move, &plan);
		return kvt_file_write(move->file, move->scratch, extent, at, err);
	}
	plan.src_offset = 0;
	if ((status = kvt_file_read(move->file, move->scratch, extent, at, err)))
		return status;
	copy_runs(move, &plan);
	return KVT_OK;
}

/* The plan without the loops before 'level'. */
static struct kvt_plan inner_plan(const struct kvt_plan *plan, int level)
{
	struct kvt_plan out = { .run = plan->run, .nloops = plan->nloops - level };

	memcpy(out.n, plan->n + level, (size_t)out.nloops * sizeof(*out.n));
	memcpy(out.src_stride, plan->src_stride + level,
	       (size_t)out.nloops * sizeof(*out.n));
	memcpy(out.dst_stride, plan->dst_stride + level,
	       (size_t)out.nloops * sizeof(*out.n));
	return out;
}

static enum kvt_status move_batches(struct move *move, const struct kvt_plan *plan,
				    const struct batch *batch, struct kvt_error *err)
{
	const int64_t *stride = move->write ? plan->dst_stride : plan->src_stride;
	struct kvt_plan outer = *plan, inner = inner_plan(plan, batch->level);
	int64_t n = plan->n[batch->level];
	struct kvt_plan_walk walk;
	enum kvt_status status;

	if (!move->scratch && !(move->scratch = malloc(SCRATCH)))
		return kvt_fail(err, KVT_SYSTEM, "out of memory for %d bytes", SCRATCH);
	outer.nloops = batch->level;
	for (kvt_plan_walk_start(&walk, &outer); !walk.done; kvt_plan_walk_next(&walk))
		for (int64_t at = 0; at < n; at += batch->m) {
			int64_t m = n - at < batch->m ? n - at : batch->m;

			inner.n[0] = m;
			inner.src_offset = walk.src + at * inner.src_stride[0];
			inner.dst_offset = walk.dst + at * inner.dst_stride[0];
			status = move_batch(move, &inner,
					    (m - 1) * stride[batch->level] + batch->inner,
					    err);
			if (status)
				return status;
		}
	return KVT_OK;
}

static enum kvt_status move_plan(struct move *move, const struct kvt_plan *plan,
				 struct kvt_error *err)
{
	const int64_t *stride = move->write ? plan->dst_stride : plan->src_stride;
	struct kvt_plan_walk walk;
	struct batch batch;

	/* what lies between the runs may be read along but never written */
	if (move->file && choose_batch(&batch, plan, stride, move->write ? 1 : SLACK))
		return move_batches(move, plan, &batch, err);
	for (kvt_plan_walk_start(&walk, plan); !walk.done; kvt_plan_walk_next(&walk)) {
		enum kvt_status status = KVT_OK;

		if (!move->file)
			memset(move->buf + walk.dst, 0, (size_t)plan->run);
		else if (move->write)
			status = kvt_file_write(move->file, move->buf + walk.src,
						plan->run, walk.dst, err);
		else
			status = kvt_file_read(move->file, move->buf + walk.dst,
					       plan->run, walk.src, err);
		if (status)
			return status;
	}
	return KVT_OK;
}

/* The common part of a box and a part. */
static enum kvt_status move_part(struct move *move, const struct kvt_file_part *part,
				 const struct kvt_views *dense, const struct kvt_box *box,
				 const struct kvt_box *common, struct kvt_error *err)
{
	struct kvt_box in_part = box_inside(common, &part->box);
	struct kvt_box in_buf = box_inside(common, box);
	struct kvt_views file, buf;
	struct kvt_plans plans;
	enum kvt_status status;

	if ((status = kvt_views_narrow(&buf, dense, &in_buf, err)))
		return status;
	if (part->file < 0)
		file = buf;
	else if ((status = kvt_views_narrow(&file, &part->views, &in_part, err)))
		return status;
	status = move->write ? kvt_plans_init(&plans, &file, &buf, err) :
			       kvt_plans_init(&plans, &buf, &file, err);
	for (int i = 0; !status && i < plans.count; i++)
		status = move_plan(move, &plans.plan[i], err);
	return status;
}

static enum kvt_status check_box(const struct kvt_group *group,
				 const struct kvt_box *box, struct kvt_error *err)
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (box->begin[a] < 0 || box->end[a] < box->begin[a] ||
		    box->end[a] > group->shape.n[a])
			return kvt_fail(err, KVT_USAGE,
					"%s range %lld:%lld is outside 0:%lld",
					kvt_axis_name(a), LL(box->begin[a]),
					LL(box->end[a]), LL(group->shape.n[a]));
	return KVT_OK;
}

static enum kvt_status move_box(struct move *move, const struct kvt_flat *flat,
				const struct kvt_files *files,
				const struct kvt_group *group,
				const struct kvt_box *box, struct kvt_error *err)
{
	int64_t first = box->begin[KVT_AXIS_L] - flat->span[0] + 1, at;
	struct kvt_views dense;
	struct kvt_box common;
	enum kvt_status status;

	if ((status = check_box(group, box, err)) ||
	    (status = kvt_layout_views(&dense, &group->layout, box,
				       group->shape.elem, err)))
		return status;
	at = next_candidate(flat, lower_bound(flat, 0, first, INT64_MIN), box);
	for (; at < flat->nparts; at = next_candidate(flat, at + 1, box)) {
		const struct kvt_placed *placed = &flat->placed[at];
		struct kvt_file_part part;

		if (!box_common(&common, &placed->box, box) ||
		    (placed->file < 0 && move->write))
			continue;
		part = kvt_flat_part(flat, at);
		move->file = part.file < 0 ? NULL : &files->file[part.file];
		status = move_part(move, &part, &dense, box, &common, err);
		if (status)
			break;
	}
	free(move->scratch);
	return status;
}

enum kvt_status kvt_flat_read(const struct kvt_flat *flat, const struct kvt_files *files,
			      const struct kvt_group *group, const struct kvt_box *box,
			      void *buf, struct kvt_error *err)
{
	struct move move = { .buf = buf };

	return move_box(&move, flat, files, group, box, err);
}

enum kvt_status kvt_flat_write(const struct kvt_flat *flat, const struct kvt_files *files,
			       const struct kvt_group *group, const struct kvt_box *box,
			       const void *buf, struct kvt_error *err)
{
	/* never written to: 'write' says so */
	struct move move = { .buf = (char *)buf, .write = true };

	return move_box(&move, flat, files, group, box, err);
}
