/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pass.c - the look as a pass of its own: each box is read in cell order, once
 *
 * Threads read boxes and look at them.  What each saw is taken in by the order of the
 * boxes, so the result does not depend on threads, and shards may divide the boxes.
 */
#include "lib/ops/numbers/numbers.h"

#include "lib/dump/read.h"
#include "lib/run/pipeline.h"

struct passing {
	struct kvt_dump *dump;
	int group;
	struct kvt_cut cut;
	struct kvt_looking *looking;
};

static enum kvt_status look_box(struct kvt_worker *worker, void *context, int64_t i,
				struct kvt_error *err)
{
	const struct passing *p = context;
	struct kvt_box box = kvt_cut_box(&p->cut, i);
	enum kvt_status status;

	if ((status = kvt_read(worker, p->dump, p->group, &box, &cell_layout,
			       worker->buffer[0], err)))
		return status;
	worker->nresult = kvt_look_at_box(worker->result, p->looking, &box,
					  worker->buffer[0]);
	kvt_worker_progress(worker, p->cut.box_bytes);
	return KVT_OK;
}

/* kvt_merge_fn */
static bool take_box(void *context, int64_t i, const void *result, int64_t nbytes)
{
	const struct passing *p = context;
	struct kvt_box box = kvt_cut_box(&p->cut, i);

	return kvt_looking_take(p->looking, &box, result, nbytes);
}

enum kvt_status kvt_look(struct kvt_numbers *out, struct kvt_dump *dump, int g,
			 const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	struct passing p = { .dump = dump, .group = g };
	struct kvt_work work = { .fn = look_box, .context = &p, .label = "looking",
				 .merge = take_box, .part = g };
	int64_t limit = run->memory ? run->memory / 4 : INT64_MAX;
	enum kvt_status status;

	if (!(p.looking = kvt_looking_new(out, s, g)))
		return kvt_no_memory(err, NULL);
	p.cut = kvt_cut_choose(&s->group[g], kvt_dump_tiling(dump, g), NULL, NULL, limit);
	if (!(status = kvt_shape_nbytes(&work.total_bytes, &s->group[g].shape, err))) {
		work.count = work.total_bytes ? p.cut.nboxes : 0;
		work.buffer_bytes[0] = p.cut.box_bytes;
		if (work.count)
			work.result_bytes = kvt_looking_bytes(p.looking, p.cut.layers,
							      p.cut.blocks);
		kvt_work_reads(&work, dump, g, &p.cut, &cell_layout);
		status = kvt_work_run(&work, run, err);
	}
	if (!status && !kvt_looking_finish(p.looking))
		status = kvt_no_memory(err, NULL);
	kvt_looking_free(p.looking);
	return status;
}
