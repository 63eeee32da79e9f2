/* SPDX-License-Identifier: Apache-2.0 */
/*
 * views.c - a side, and what a pair compares of it
 *
 * A side is one dump, whether it is one file or those of all ranks.  A view selects
 * of it just the layers, heads, keys or values and channels of the pair, and the
 * blocks that its segments are in, each once, in the order of the segments.  It is
 * read in the order L B S H K D: so equal slots are equal runs of bytes, and what
 * the pair does not compare is not read.
 */
#include "lib/ops/diff/internal.h"
#include "lib/ops/compare/compare.h"

#include <stdlib.h>

/* ---- sides -------------------------------------------------------------- */

static enum kvt_status join(struct diff_side *side, const struct kvt_run *run,
			    struct kvt_error *err)
{
	enum kvt_status status = rank_files_check(side->file, side->nfiles, err);

	if (status ||
	    (status = rank_files_join(&side->merged, side->file, side->nfiles, err)))
		return status;
	side->dump = side->merged;
	/* else it would depend on which replica is read */
	return replicas_check(side->file, side->nfiles, run, err);
}

enum kvt_status kvt_diff_side_init(struct diff_side *side, const char *name,
				   struct rank_file *files, int nfiles,
				   const struct kvt_run *run, struct kvt_error *err)
{
	*side = (struct diff_side){ .name = name, .nfiles = nfiles, .file = files };
	if (nfiles > 1)
		return join(side, run, err);
	side->dump = files[0].reader;
	return KVT_OK;
}

enum kvt_status kvt_diff_side_unchanged(const struct diff_side *side,
					struct kvt_error *err)
{
	return kvt_dump_unchanged(side->dump, err);
}

void kvt_diff_side_free(struct diff_side *side)
{
	kvt_dump_close(side->merged);
}

enum kvt_status kvt_diff_sides_init(struct diff_side side[NSIDES],
				    struct rank_file file[NSIDES],
				    const struct kvt_run *run, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < NSIDES; s++)
		status = kvt_diff_side_init(&side[s], file[s].name, &file[s], 1, run,
					    err);
	return status;
}

void kvt_diff_sides_free(struct diff_side side[NSIDES])
{
	for (int s = 0; s < NSIDES; s++)
		kvt_diff_side_free(&side[s]);
}

/* ---- views -------------------------------------------------------------- */

enum kvt_status pair_view(struct diff_pair *p, int side, struct kvt_error *err)
{
	int64_t nblocks = p->nsegments ? p->segment[p->nsegments - 1].at[side] + 1 : 0;
	struct kvt_segment channel[KVT_MAX_COMPONENTS];
	struct kvt_select select = {
		.group = p->number[side], .nlayers = p->nlayers, .nblocks = nblocks,
		.layer = p->layer[side], .heads = { 0, p->head[side], p->nheads },
		.kv = { 0, p->kv[side], p->nkv }, .nchannels = p->nruns,
		.channel = channel,
	};
	struct kvt_error why = { "" };
	enum kvt_status status;
	int64_t *block;

	if (!(block = calloc((size_t)nblocks + 1, sizeof(*block))))
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < p->nsegments; i++)
		block[p->segment[i].at[side]] = p->segment[i].block[side];
	if (p->row[side]) {		/* all of it, as it lies */
		select.heads.count = select.nchannels = 1;
		channel[0] = (struct kvt_segment){
			0, 0, p->group[side]->shape.n[KVT_AXIS_D] };
	}
	for (int i = 0; !p->row[side] && i < p->nruns; i++)
		channel[i] = (struct kvt_segment){
			p->run[i].at, p->run[i].from[side],
			p->decoded ? p->stored[side] : p->run[i].count,
		};
	select.block = block;
	status = kvt_dump_select(&p->view[side], p->side[side]->dump, &select, &why);
	free(block);
	/* what no part brings would be compared with nothing */
	return status ? kvt_fail(err, status, "%s: %s: %.400s", p->id,
				 p->side[side]->name, why.text) : KVT_OK;
}

enum kvt_status pair_views(struct diff_pair *p, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < NSIDES; s++)
		status = pair_view(p, s, err);
	return status;
}
