/* SPDX-License-Identifier: Apache-2.0 */
/*
 * views.c - a side, and what a pair compares of it
 *
 * A side reads like one dump, whether it is one file or those of all ranks.  A view
 * is a source over the same readers with one group, in the order L B S H K D: just
 * the layers, heads, keys or values and channels of the pair, and the blocks that its
 * segments are in, each once, in the order of the segments.  So equal states are
 * equal runs of bytes, and what the pair does not compare is not read.
 *
 * A view borrows the side's readers and reads nothing when it is made.
 */
#include "lib/ops/diff/internal.h"

#include <stdlib.h>

/* ---- sides -------------------------------------------------------------- */

static enum kvt_status join(struct diff_side *side, const struct kvt_run *run,
			    struct kvt_error *err)
{
	enum kvt_status status = rank_files_check(side->file, side->nfiles, err);

	if (status ||
	    (status = join_source(&side->source, side->reader, side->file,
				  side->nfiles, err)))
		return status;
	/* else it would depend on which replica is read */
	return replicas_check(side->file, side->nfiles, run, err);
}

enum kvt_status kvt_diff_side_init(struct diff_side *side, const char *name,
				   struct rank_file *files, int nfiles,
				   const struct kvt_run *run, struct kvt_error *err)
{
	*side = (struct diff_side){ .name = name, .nfiles = nfiles, .file = files };
	side->reader = calloc((size_t)nfiles, sizeof(*side->reader));
	if (!side->reader)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	if (nfiles > 1)
		return join(side, run, err);
	side->reader[0] = files[0].reader;
	side->source = source_whole(side->reader);
	return KVT_OK;
}

enum kvt_status kvt_diff_side_unchanged(const struct diff_side *side,
					struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < side->nfiles; i++)
		status = kvt_dump_unchanged(side->file[i].reader, err);
	return status;
}

void kvt_diff_side_free(struct diff_side *side)
{
	source_free(&side->source);
	free(side->reader);
}

int side_parts(const struct diff_side *side, int group)
{
	return side->source.whole ? 1 : side->source.group[group].nparts;
}

struct source_part side_part(const struct diff_side *side, int group, int i)
{
	const int64_t *n;

	if (!side->source.whole)
		return side->source.group[group].part[i];
	n = reader_group(side->reader[0], group)->shape.n;
	return (struct source_part){ .heads = { 0, 0, n[KVT_AXIS_H] },
				     .kv = { 0, 0, n[KVT_AXIS_K] }, .nruns = 1,
				     .run = { { 0, 0, n[KVT_AXIS_D] } } };
}

int64_t side_layer(const struct diff_side *side, int group, int64_t i)
{
	return side->source.whole ? i : side->source.group[group].layer[i];
}

int64_t side_block(const struct diff_side *side, int group, int64_t i)
{
	return side->source.whole ? i : side->source.group[group].block[i];
}

/* ---- views -------------------------------------------------------------- */

/* A state is one run: then equal states are found by comparing bytes. */
static const struct kvt_layout state_order = {
	.nplanes = 1,
	.plane = { { .nparts = 6, .part = {
		{ KVT_AXIS_L, KVT_WHOLE, 0 }, { KVT_AXIS_B, KVT_WHOLE, 0 },
		{ KVT_AXIS_S, KVT_WHOLE, 0 }, { KVT_AXIS_H, KVT_WHOLE, 0 },
		{ KVT_AXIS_K, KVT_WHOLE, 0 }, { KVT_AXIS_D, KVT_WHOLE, 0 },
	} } },
};

static struct source_run overlap(const struct source_run *run, int64_t from, int64_t at,
				 int64_t count)
{
	int64_t begin = run->at > from ? run->at : from;
	int64_t end = run->at + run->count < from + count ? run->at + run->count :
							    from + count;

	return (struct source_run){ at + begin - from, run->from + begin - run->at,
				    end > begin ? end - begin : 0 };
}

/* What of a part of the side belongs to the pair; false: nothing. */
static bool narrow_part(struct source_part *out, const struct source_part *part,
			const struct diff_pair *p, int side)
{
	*out = (struct source_part){ .reader = part->reader, .kv = part->kv };
	out->heads = overlap(&part->heads, p->head[side], 0, p->nheads);
	out->kv = overlap(&part->kv, p->kv[side], 0, p->nkv);
	for (int i = 0; i < part->nruns; i++)
		for (int j = 0; j < p->nruns && out->nruns < KVT_MAX_COMPONENTS; j++) {
			const struct diff_channels *c = &p->run[j];
			int64_t count = p->decoded ? p->stored[side] : c->count;

			out->run[out->nruns] = overlap(&part->run[i], c->from[side],
						       c->at, count);
			out->nruns += out->run[out->nruns].count > 0;
		}
	return out->heads.count > 0 && out->kv.count > 0 && out->nruns > 0;
}

/* What no part brings would be compared with nothing. */
static enum kvt_status narrow_parts(struct source_group *map, const struct diff_pair *p,
				    int side, struct kvt_error *err)
{
	int64_t left = p->nheads * p->nkv * p->stored[side];

	for (int i = 0; i < side_parts(p->side[side], p->number[side]); i++) {
		struct source_part part = side_part(p->side[side], p->number[side], i);
		struct source_part *to = &map->part[map->nparts];

		if (!narrow_part(to, &part, p, side))
			continue;
		map->nparts++;
		for (int j = 0; j < to->nruns; j++)
			left -= to->heads.count * to->kv.count * to->run[j].count;
	}
	return !left ? KVT_OK :
		kvt_fail(err, KVT_BAD_INPUT, "%s: states of %s are %lld elements short",
			 p->id, p->side[side]->name, (long long)left);
}

static struct kvt_group narrow_group(const struct diff_pair *p, int side, int64_t nblocks)
{
	struct kvt_group group = *p->group[side];

	group.layout = state_order;
	group.shape.n[KVT_AXIS_L] = p->nlayers;
	group.shape.n[KVT_AXIS_B] = nblocks;
	group.shape.n[KVT_AXIS_H] = p->nheads;
	group.shape.n[KVT_AXIS_K] = p->nkv;
	group.shape.n[KVT_AXIS_D] = p->stored[side];
	group.layer_names = NULL;
	group.layer_ids = NULL;
	group.block_ids = NULL;
	group.block_valid = NULL;
	group.block_names = NULL;
	return group;
}

static enum kvt_status make_view(struct diff_pair *p, int side, struct kvt_error *err)
{
	const struct diff_side *from = p->side[side];
	int64_t nblocks = p->nsegments ? p->segment[p->nsegments - 1].at[side] + 1 : 0;
	int g = p->number[side], nparts = side_parts(from, g);
	struct source *view = &p->view[side];
	struct source_group *map = &view->group[0];
	enum kvt_status status;

	*view = (struct source){ .nreaders = from->nfiles, .reader = from->reader };
	kvt_snapshot_init(&view->snapshot);
	view->snapshot.ngroups = 1;
	view->snapshot.group[0] = narrow_group(p, side, nblocks);
	map->from = from->source.whole ? g : from->source.group[g].from;
	map->layer = calloc((size_t)p->nlayers, sizeof(*map->layer));
	map->block = calloc((size_t)nblocks + 1, sizeof(*map->block));
	map->part = calloc((size_t)nparts, sizeof(*map->part));
	if (!map->layer || !map->block || !map->part)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int64_t i = 0; i < p->nlayers; i++)
		map->layer[i] = side_layer(from, g, p->layer[side][i]);
	for (int64_t i = 0; i < p->nsegments; i++) {
		const struct diff_segment *segment = &p->segment[i];

		map->block[segment->at[side]] = side_block(from, g, segment->block[side]);
	}
	if ((status = narrow_parts(map, p, side, err)))
		return status;
	source_seal(view);
	return KVT_OK;
}

enum kvt_status pair_views(struct diff_pair *p, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < NSIDES; s++)
		status = make_view(p, s, err);
	return status;
}
