/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integrity.c - is every byte of a dump what was written?
 *
 * Every tile is decoded, which checks its Fletcher-32, its frame and the frame's
 * checksum; of a run of bytes, its ranges have checksums.  Where the file has content
 * cells, they are computed again from what was decoded.  A damaged tile does not end
 * the search for others; its cells are not compared.
 *
 * Boxes are checked by any worker, their results added in the boxes' order, so that
 * what is kept are the first findings, whatever the number of threads.  Costs
 * one read of the data, and a hash of it where there are cells; who wants its numbers
 * looked at, too, has them looked at here, for the bytes are at hand.
 */
#include "lib/ops/check/integrity.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "lib/ops/write/plan.h"
#include "lib/run/leaf.h"
#include "lib/run/pipeline.h"
#include "lib/tile/hash.h"

struct verifying {
	struct kvt_dump *dump;
	const char *path;
	int group;
	struct kvt_cut cut;
	int64_t box_cells;		/* (layer, block, head, kv) of a full box */
	bool has_cells;
	struct kvt_looking *looking;	/* at what was read; or NULL */
	struct kvt_integrity *result;
};

/* One box.  What is found waits here until the box's turn, so that order is fixed. */
struct checked {
	const struct verifying *v;
	struct kvt_box box;
	uint8_t *cells;			/* the box in cell order */
	uint8_t *bad;			/* [cells] 1: in a damaged tile */
	struct kvt_integrity result;
};

static void note(struct kvt_integrity *r, const int64_t at[KVT_NAXES], bool damaged,
		 const char *text)
{
	struct kvt_damage *f = &r->found[r->nfound];

	if (r->nfound == KVT_MAX_DAMAGES)
		return;
	memcpy(f->at, at, sizeof(f->at));
	f->damaged = damaged;
	snprintf(f->text, sizeof(f->text), "%s", text);
	r->nfound++;
}

static const struct kvt_group *group_of(const struct verifying *v)
{
	return &kvt_dump_snapshot(v->dump)->group[v->group];
}

/* Number of a cell in the box's cell order. */
static int64_t cell_number(const struct checked *c, const int64_t at[KVT_NAXES])
{
	const int64_t *n = group_of(c->v)->shape.n, *begin = c->box.begin;
	int64_t nb = c->box.end[KVT_AXIS_B] - begin[KVT_AXIS_B];
	int64_t page = (at[KVT_AXIS_L] - begin[KVT_AXIS_L]) * nb +
		       at[KVT_AXIS_B] - begin[KVT_AXIS_B];

	return (page * n[KVT_AXIS_H] + at[KVT_AXIS_H]) * n[KVT_AXIS_K] + at[KVT_AXIS_K];
}

static bool next_cell(int64_t at[KVT_NAXES], const struct kvt_box *box)
{
	static const enum kvt_axis order[] = { KVT_AXIS_K, KVT_AXIS_H, KVT_AXIS_B,
					       KVT_AXIS_L };

	for (int i = 0; i < 4; i++) {
		if (++at[order[i]] < box->end[order[i]])
			return true;
		at[order[i]] = box->begin[order[i]];
	}
	return false;
}

static void mark_bad(struct checked *c, const struct kvt_box *part)
{
	int64_t at[KVT_NAXES];

	memcpy(at, part->begin, sizeof(at));
	do {
		c->bad[cell_number(c, at)] = 1;
	} while (next_cell(at, part));
}

/*
 * Reading refuses data that does not match its cells where these are its only checksum.
 * They are compared here one by one: so such data is taken as it lies.
 */
static const struct kvt_leaf *held_leaf(const struct verifying *v)
{
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(v->dump);

	return leaf && leaf->held[v->group] && v->has_cells ? leaf : NULL;
}

static enum kvt_status load_tile(const struct verifying *v,
				 const int64_t begin[KVT_NAXES], struct kvt_stored *out,
				 struct kvt_error *err)
{
	const struct kvt_leaf *leaf = held_leaf(v);
	struct kvt_extent extent;
	enum kvt_status status;

	if (!leaf)
		return kvt_read_tile(v->dump, v->group, begin, out, err);
	status = leaf->ops->find_tile(leaf, v->group, begin, &extent, err);
	return status ? status : leaf->ops->load_tile(leaf, &extent, out, err);
}

static enum kvt_status verify_tile(struct kvt_worker *worker, void *context,
				   const int64_t begin[KVT_NAXES], struct kvt_error *err)
{
	struct checked *c = context;
	const struct verifying *v = c->v;
	const struct kvt_group *group = group_of(v);
	const struct kvt_tiling *tiling = kvt_dump_tiling(v->dump, v->group);
	struct kvt_stored stored = { .bytes = worker->stored,
				     .capacity = kvt_stored_bound(tiling) };
	struct placed tile = { &group->layout, tile_box(tiling, begin), worker->tile };
	struct placed cells = { &cell_layout, c->box, c->cells };
	struct kvt_box part = box_cut(&tile.box, &group->shape);
	struct kvt_error found = { "" };
	enum kvt_status status;

	c->result.tiles++;
	status = load_tile(v, begin, &stored, &found);
	stored.path = NULL;	/* whoever tells it names the file */
	if (!status)
		status = kvt_decode(worker->tile, &stored, tiling, worker->scratch,
				    &found);
	if (status == KVT_BAD_INPUT) {
		c->result.damaged++;
		note(&c->result, begin, true, found.text);
		mark_bad(c, &part);
		return KVT_OK;
	}
	if (status)
		return kvt_fail(err, status, "%s", found.text);
	return copy_box(worker, &cells, &tile, &part, group->shape.elem, err);
}

static enum kvt_status verify_cells(struct kvt_worker *worker, struct checked *c,
				    struct kvt_error *err)
{
	const struct kvt_shape *shape = &group_of(c->v)->shape;
	int64_t nbytes = shape->n[KVT_AXIS_S] * shape->n[KVT_AXIS_D] * shape->elem;
	uint64_t *stored = (uint64_t *)worker->buffer[2];
	int64_t at[KVT_NAXES], i = 0;
	enum kvt_status status;

	status = kvt_read_cells(c->v->dump, c->v->group, &c->box, stored, err);
	if (status)
		return status;
	memcpy(at, c->box.begin, sizeof(at));
	do {
		c->result.cells += !c->bad[i];
		if (!c->bad[i] &&
		    kvt_cell_hash(c->cells + i * nbytes, nbytes) != stored[i]) {
			c->result.differing++;
			note(&c->result, at, false, "content cell differs");
		}
		i++;
	} while (next_cell(at, &c->box));
	return KVT_OK;
}

/* Bytes of one that found this much. */
static int64_t result_bytes(int nfound)
{
	return (int64_t)offsetof(struct kvt_integrity, found) +
	       nfound * (int64_t)sizeof(struct kvt_damage);
}

static void add_result(struct kvt_integrity *to, const struct kvt_integrity *r)
{
	to->tiles += r->tiles;
	to->damaged += r->damaged;
	to->cells += r->cells;
	to->differing += r->differing;
	for (int i = 0; i < r->nfound; i++)
		note(to, r->found[i].at, r->found[i].damaged, r->found[i].text);
}

const char *kvt_without_path(const char *text, const char *path)
{
	size_t n = strlen(path);

	return !strncmp(text, path, n) && !strncmp(text + n, ": ", 2) ? text + n + 2 :
									text;
}

/* In the order of cells, if these are looked at; else as they are. */
static const struct kvt_layout *order_of(const struct verifying *v)
{
	return v->has_cells || v->looking ? &cell_layout : NULL;
}

static enum kvt_status read_part(struct kvt_worker *worker, struct checked *c,
				 const struct kvt_box *part, struct kvt_error *err)
{
	const struct kvt_group *group = group_of(c->v);
	struct placed from = { &group->layout, *part, worker->buffer[3] };
	struct placed cells = { &cell_layout, c->box, c->cells };
	const struct kvt_leaf *leaf = held_leaf(c->v);
	enum kvt_status status = leaf ?
		leaf->ops->read_box(leaf, c->v->group, part, from.bytes, err) :
		kvt_dump_read(c->v->dump, c->v->group, part, NULL, from.bytes, err);

	if (status || !order_of(c->v))
		return status;
	return copy_box(worker, &cells, &from, part, group->shape.elem, err);
}

static enum kvt_status read_whole(struct kvt_worker *worker, struct checked *c,
				  struct kvt_error *err)
{
	if (held_leaf(c->v))
		return read_part(worker, c, &c->box, err);
	return kvt_read(worker, c->v->dump, c->v->group, &c->box, order_of(c->v),
			c->cells, err);
}

/*
 * No tiles: it can be read, or is refused for its checksums, and cells may say
 * more.  Where something is damaged, it is sought block by block.
 */
static enum kvt_status read_flat(struct kvt_worker *worker, struct checked *c,
				 struct kvt_error *err)
{
	struct kvt_error found = { "" }, first = { "" };
	enum kvt_status status = read_whole(worker, c, &first);
	const int64_t before = c->result.damaged;
	struct kvt_box part = c->box;

	if (!status)
		return KVT_OK;
	if (status != KVT_BAD_INPUT || !kvt_dump_proven(c->v->dump)->flat[c->v->group])
		return kvt_fail(err, status, "%s", first.text);
	for (int64_t l = c->box.begin[0]; l < c->box.end[0]; l++)
		for (int64_t b = c->box.begin[1]; b < c->box.end[1]; b++) {
			part.begin[0] = l, part.end[0] = l + 1;
			part.begin[1] = b, part.end[1] = b + 1;
			status = read_part(worker, c, &part, &found);
			if (status == KVT_BAD_INPUT) {
				c->result.damaged++;
				note(&c->result, part.begin, true,
				     kvt_without_path(found.text, c->v->path));
				mark_bad(c, &part);
			} else if (status) {
				return kvt_fail(err, status, "%s", found.text);
			}
		}
	/* bytes that are right the second time are no reason to trust them */
	return c->result.damaged > before ? KVT_OK :
	       kvt_fail(err, KVT_BAD_INPUT, "%s", first.text);
}

static enum kvt_status verify_box(struct kvt_worker *worker, void *context, int64_t i,
				  struct kvt_error *err)
{
	const struct verifying *v = context;
	const struct kvt_tiling *tiling = kvt_dump_tiling(v->dump, v->group);
	struct checked c = { .v = v, .box = kvt_cut_box(&v->cut, i),
			     .cells = worker->buffer[0], .bad = worker->buffer[1] };
	enum kvt_status status;

	memset(c.bad, 0, (size_t)v->box_cells);
	if (tiling)
		status = each_tile(worker, tiling, &c.box, verify_tile, &c, err);
	else
		status = read_flat(worker, &c, err);
	if (!status && v->has_cells)
		status = verify_cells(worker, &c, err);
	if (status)
		return status;
	kvt_worker_progress(worker, v->cut.box_bytes);
	worker->nresult = result_bytes(c.result.nfound);
	memcpy(worker->result, &c.result, (size_t)worker->nresult);
	/* what cannot be decoded cannot be looked at */
	if (v->looking && !c.result.damaged)
		worker->nresult += kvt_look_at_box(worker->result + worker->nresult,
						   v->looking, &c.box, c.cells);
	return KVT_OK;
}

/* kvt_merge_fn */
static bool take_result(void *context, int64_t i, const void *result, int64_t nbytes)
{
	const struct kvt_integrity *found = result;
	const struct verifying *v = context;
	struct kvt_box box = kvt_cut_box(&v->cut, i);
	int64_t own;

	if (nbytes < result_bytes(0) || found->nfound < 0 ||
	    found->nfound > KVT_MAX_DAMAGES || nbytes < result_bytes(found->nfound))
		return false;
	add_result(v->result, found);
	own = result_bytes(found->nfound);
	if (!v->looking || found->damaged)
		return nbytes == own;
	return kvt_looking_take(v->looking, &box, (const uint8_t *)result + own,
				nbytes - own);
}

const char *kvt_checksum_name(const struct kvt_dump *dump, int g)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(dump, g);
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);

	if (leaf && leaf->settles)
		return "crc32";
	if (!tiling)
		return kvt_dump_proven(dump)->flat[g] ? "xxh3" : NULL;
	return tiling->fletcher32 ? "fletcher32" : tiling->zstd ? "zstd" : NULL;
}

enum kvt_status kvt_check_integrity(struct kvt_integrity *out, struct kvt_dump *dump,
				    int g, const char *path, struct kvt_looking *looking,
				    const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_group *group = &kvt_dump_snapshot(dump)->group[g];
	const struct kvt_tiling *tiling = kvt_dump_tiling(dump, g);
	struct verifying v = { .dump = dump, .path = path, .group = g, .result = out,
			       .looking = looking };
	struct kvt_work work = { .fn = verify_box, .context = &v, .label = "verifying",
				 .merge = take_result, .part = g,
				 .result_bytes = result_bytes(KVT_MAX_DAMAGES) };
	int64_t limit = run->memory ? run->memory / 4 : INT64_MAX;
	enum kvt_status status;

	*out = (struct kvt_integrity){ .tiles = 0 };
	if ((status = kvt_shape_nbytes(&work.total_bytes, &group->shape, err)))
		return status;
	v.has_cells = kvt_dump_has_cells(dump, g);
	v.cut = kvt_cut_choose(group, tiling, NULL, NULL, limit);
	v.box_cells = v.cut.layers * v.cut.blocks * group->shape.n[KVT_AXIS_H] *
		      group->shape.n[KVT_AXIS_K];
	work.count = work.total_bytes ? v.cut.nboxes : 0;
	work.buffer_bytes[0] = v.cut.box_bytes;
	work.buffer_bytes[1] = v.box_cells;
	work.buffer_bytes[2] = v.has_cells ? v.box_cells * 8 : 0;
	/* a block, where the checksums of a flat file are wrong; or all, as it lies */
	if (!tiling && work.count)
		work.buffer_bytes[3] = held_leaf(&v) ? v.cut.box_bytes :
				       v.cut.box_bytes / v.cut.layers / v.cut.blocks;
	if (looking && work.count)
		work.result_bytes += kvt_looking_bytes(looking, v.cut.layers,
						       v.cut.blocks);
	if (!tiling)
		kvt_work_reads(&work, dump, g, &v.cut, order_of(&v));
	work_needs_tiles(&work, tiling);
	return kvt_work_run(&work, run, err);
}
