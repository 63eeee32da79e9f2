/* SPDX-License-Identifier: Apache-2.0 */
/* sim_carry.c - a transfer carried out, box by box, into new files */
#include "cli/sim_sides.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/signals.h"
#include "cli/transform.h"
#include "formats/digest.h"
#include "kernels/kernels.h"

#define LL(x) ((long long)(x))

/* One byte to spoil: of which rank and group, and where. */
struct spoiled {
	int rank, group;		/* rank -1: none */
	int64_t index[KVT_NAXES];
	int64_t byte;
};

/* One group of one rank. */
struct carrying {
	const struct sides *sides;
	struct kvt_writer *writer;
	int rank, group;		/* of the destination */
	struct cut cut;
	const struct spoiled *spoiled;
	carry_fn *fn;
	void *context;
	int64_t moved;			/* under the pipeline's lock */
};

/* ---- copying on this machine ----------------------------------------- */

static void run_pair(uint8_t *dst, const uint8_t *src, const struct kvt_nest *nest,
		     int64_t *moved)
{
	struct kvt_xfer_region region;
	struct kvt_xfer_regions regions;

	kvt_xfer_regions_start(&regions, nest);
	while (kvt_xfer_region_next(&region, &regions)) {
		kvt_cpu_copy(dst, src, &region.plan);
		*moved += kvt_plan_nbytes(&region.plan);
	}
}

enum kvt_status carry_copy(void *context, struct worker *worker,
			   const struct carry_box *box, uint8_t *dst, int64_t *moved,
			   struct kvt_error *err)
{
	struct kvt_pair_walk walk = { 0, 0 };
	struct sim_window w;
	struct kvt_pair pair;
	struct kvt_nest nest;
	enum kvt_status status = window_of(&w, box, err);

	(void)context;
	if (status)
		return status;
	while (!status && kvt_pair_next(&pair, &walk, &w.xfer)) {
		if (pair.dst_rank != box->rank)
			continue;
		if (!(status = kvt_nest_init(&nest, &w.xfer, &pair, err)) &&
		    !(status = read_window(worker, box, &w, (int)pair.src_rank,
					   worker->buffer[1], err)))
			run_pair(dst, worker->buffer[1], &nest, moved);
	}
	window_done(&w);
	return status;
}

/* ---- one box --------------------------------------------------------- */

static struct carry_box part_of_box(const struct sides *sides, int part, int rank,
				    const struct kvt_box *box)
{
	const int64_t *begin = box->begin, *end = box->end;
	const int64_t layers[2] = { begin[KVT_AXIS_L], end[KVT_AXIS_L] };
	const int64_t blocks[2] = { begin[KVT_AXIS_B], end[KVT_AXIS_B] };

	return carry_box_at(sides, part, rank, layers, blocks);
}

static enum kvt_status spoil(const struct carrying *c, const struct placed *to,
			     int64_t elem, struct kvt_error *err)
{
	int64_t at[KVT_NAXES];
	struct kvt_views views;
	enum kvt_status status;

	if (c->spoiled->rank != c->rank || c->spoiled->group != c->group)
		return KVT_OK;
	for (int a = 0; a < KVT_NAXES; a++) {
		int64_t i = c->spoiled->index[a];

		if (i < to->box.begin[a] || i >= to->box.end[a])
			return KVT_OK;
		at[a] = i - to->box.begin[a];
	}
	if ((status = kvt_layout_views(&views, to->layout, &to->box, elem, err)))
		return status;
	to->bytes[kvt_views_at(&views, at) + c->spoiled->byte] ^= 0xff;
	return KVT_OK;
}

/* Snapshots have a hash of each (layer, block, head, kv). */
static enum kvt_status put_cells(struct worker *worker, const struct carrying *c,
				 const struct placed *to, const struct kvt_shape *shape,
				 struct kvt_error *err)
{
	int64_t cell = shape->n[KVT_AXIS_S] * shape->n[KVT_AXIS_D] * shape->elem;
	struct placed sorted = { &cell_layout, to->box, worker->buffer[3] };
	uint64_t *cells = (uint64_t *)(void *)worker->buffer[2];
	enum kvt_status status;
	int64_t n = 1;

	if ((status = copy_box(&sorted, to, &to->box, shape->elem, err)))
		return status;
	for (int a = 0; a < KVT_NAXES; a++)
		if (a != KVT_AXIS_S && a != KVT_AXIS_D)
			n *= to->box.end[a] - to->box.begin[a];
	for (int64_t i = 0; i < n; i++)
		cells[i] = kvt_cell_hash(sorted.bytes + i * cell, cell);
	pipeline_lock(worker);
	status = kvt_store_cells(c->writer, c->group, &to->box, cells, err);
	pipeline_unlock(worker);
	return status;
}

static enum kvt_status carry_box(struct worker *worker, void *context, int64_t i,
				 struct kvt_error *err)
{
	struct carrying *c = context;
	const struct kvt_group *g = &side_rank(&c->sides->dst, c->rank)->group[c->group];
	struct kvt_box box = cut_box(&c->cut, i);
	struct kvt_shape shape = kvt_box_shape(&box, g->shape.elem);
	struct placed to = { &g->layout, box, worker->buffer[0] };
	enum kvt_status status = KVT_OK;
	int64_t nbytes, moved = 0;

	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)))
		return status;
	if (c->sides->dst.made)
		memset(to.bytes, c->sides->fill, (size_t)nbytes);
	else
		status = read_box(worker, c->sides->dst.file[c->rank].reader, c->group,
				  &box, to.bytes, err);
	for (int p = 0; !status && p < c->sides->sim.ngroups; p++) {
		struct carry_box part = part_of_box(c->sides, p, c->rank, &box);

		if (c->sides->sim.group[p].dst_group == c->group && part.nspans)
			status = c->fn(c->context, worker, &part, to.bytes, &moved, err);
	}
	if (!status)
		status = spoil(c, &to, shape.elem, err);
	if (!status && kvt_writer_has_cells(c->writer, c->group))
		status = put_cells(worker, c, &to, &shape, err);
	if (!status)
		status = kvt_write_box(c->writer, c->group, &box, to.bytes, err);
	pipeline_lock(worker);
	c->moved += moved;
	pipeline_unlock(worker);
	pipeline_progress(worker, nbytes);
	return status;
}

/* ---- how large boxes may be ------------------------------------------ */

/* Most blocks of the source that a box needs; -1: 'err' says why not. */
static int64_t most_blocks(const struct sides *sides, int group, const struct cut *cut,
			   struct kvt_error *err)
{
	int64_t most = 1;

	for (int64_t i = 0; i < cut->nboxes; i++) {
		struct kvt_box box = cut_box(cut, i);

		if (box.begin[KVT_AXIS_L])
			break;		/* all layers have the same blocks */
		for (int p = 0; p < sides->sim.ngroups; p++) {
			struct carry_box part = part_of_box(sides, p, 0, &box);
			struct sim_window w;

			if (sides->sim.group[p].dst_group != group || !part.nspans)
				continue;
			if (window_of(&w, &part, err))
				return -1;
			most = w.nblocks > most ? w.nblocks : most;
			window_done(&w);
		}
	}
	return most;
}

static int64_t window_bytes(const struct sides *sides, int src_group,
			    const struct cut *cut, int64_t blocks)
{
	const struct kvt_snapshot *src = side_rank(&sides->src, 0);
	const struct kvt_shape *shape = &src->group[src_group].shape;
	int64_t nbytes = shape->elem * cut->layers * blocks;

	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++)
		nbytes *= shape->n[a];
	return nbytes;
}

/* The group of the source that goes to this one. */
static int source_of(const struct sides *sides, int group)
{
	for (int p = 0; p < sides->sim.ngroups; p++)
		if (sides->sim.group[p].dst_group == group)
			return sides->sim.group[p].src_group;
	return 0;
}

/*
 * Boxes of about a cache's size, smaller where a thread's share of the memory
 * would not hold the blocks that one comes from.
 */
enum kvt_status carry_cut(struct cut *cut, struct work *work, const struct sides *sides,
			  int rank, int group, int64_t mem_limit, struct kvt_error *err)
{
	const struct kvt_group *g = &side_rank(&sides->dst, rank)->group[group];
	int64_t limit = mem_limit ? mem_limit : 256 << 20, blocks, last = 0;
	int from = source_of(sides, group);

	for (int64_t room = limit / 8; ; room /= 2) {
		*cut = cut_choose(g, NULL, &g->layout, NULL, room);
		if ((blocks = most_blocks(sides, group, cut, err)) < 0)
			return KVT_BAD_INPUT;
		if (2 * window_bytes(sides, from, cut, blocks) + cut->box_bytes <=
		    limit / 2 || room < 2 || cut->box_bytes == last)
			break;
		last = cut->box_bytes;
	}
	work->count = cut->nboxes;
	work->buffer_bytes[0] = cut->box_bytes;
	work->buffer_bytes[1] = window_bytes(sides, from, cut, blocks);
	for (int i = 0; i < sides->src.n; i++)
		work_needs_pieces(work, sides->src.file[i].reader, from, cut->layers,
				  blocks);
	if (!sides->dst.made)
		work_needs_tiles(work, kvt_reader_tiling(sides->dst.file[rank].reader,
							 group));
	return KVT_OK;
}

/* ---- all groups of all ranks ----------------------------------------- */

static void needs_cells(struct work *work, const struct carrying *c,
			const struct kvt_group *g)
{
	if (!kvt_writer_has_cells(c->writer, c->group))
		return;
	work->buffer_bytes[2] = c->cut.layers * c->cut.blocks * g->shape.n[KVT_AXIS_H] *
				g->shape.n[KVT_AXIS_K] * 8;
	work->buffer_bytes[3] = c->cut.box_bytes;
}

static enum kvt_status carry_group(struct carried *out, struct carrying *c,
				   const struct exec_args *args, struct kvt_error *err)
{
	const struct kvt_group *g = &side_rank(&c->sides->dst, c->rank)->group[c->group];
	struct pipeline_options options = exec_pipeline(args);
	struct work work = { .fn = carry_box, .context = c, .label = "moving" };
	enum kvt_status status;
	int64_t memory;

	c->moved = 0;
	if ((status = kvt_shape_nbytes(&work.total_bytes, &g->shape, err)) ||
	    (status = carry_cut(&c->cut, &work, c->sides, c->rank, c->group,
				args->mem_limit, err)))
		return status;
	needs_cells(&work, c, g);
	memory = pipeline_memory(&work, &options);
	out->boxes += c->cut.nboxes;
	out->memory = memory > out->memory ? memory : out->memory;
	if (!args->dry_run && work.total_bytes)
		status = pipeline_run(&work, &options, err);
	out->bytes += c->moved;
	return status;
}

/* Where op N of all the plan's ops ends up. */
static enum kvt_status find_op(struct spoiled *out, const struct sim *sim, int64_t n,
			       struct kvt_error *err)
{
	int64_t left = n;

	out->rank = -1;
	for (int g = 0; n >= 0 && g < sim->ngroups; g++) {
		const struct kvt_xfer *x = &sim->group[g].xfer;
		struct kvt_pair_walk walk = { 0, 0 };
		struct kvt_pair pair;

		while (kvt_pair_next(&pair, &walk, x)) {
			struct kvt_nest nest;
			struct kvt_ops ops;
			struct kvt_op op;
			enum kvt_status status = kvt_nest_init(&nest, x, &pair, err);

			if (status)
				return status;
			kvt_ops_start(&ops, &nest, KVT_SCOPE_RFC);
			while (kvt_op_next(&op, &ops)) {
				if (left--)
					continue;
				out->rank = (int)pair.dst_rank;
				out->group = sim->group[g].dst_group;
				out->byte = 0;
				if (kvt_views_find(&x->dst.views, op.dst, out->index))
					return KVT_OK;
			}
		}
	}
	return n < 0 ? KVT_OK : kvt_fail(err, KVT_BAD_INPUT,
					 "--corrupt-op is %lld, there are %lld ops",
					 LL(n), LL(n - left));
}

static enum kvt_status open_output(struct kvt_writer **out, const struct sides *sides,
				   const struct exec_args *args, int rank,
				   struct kvt_error *err)
{
	struct kvt_create_options options = args->create;
	const struct kvt_snapshot *s = side_rank(&sides->dst, rank);
	enum kvt_status status;
	char name[4096];

	options.uncompressed = true;
	if ((status = output_name(name, sizeof(name), args->output, rank, sides->dst.n,
				  err)) ||
	    (status = kvt_create(out, name, &options, s, err)))
		return status;
	for (int g = 0; g < s->ngroups; g++)
		if (kvt_writer_tiling(*out, g))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s: format %s stores pieces, expected one that stores arrays",
					name, kvt_writer_format(*out));
	return KVT_OK;
}

static enum kvt_status carry_rank(struct carried *out, struct carrying *c,
				  const struct exec_args *args, struct kvt_error *err)
{
	const struct kvt_snapshot *s = side_rank(&c->sides->dst, c->rank);
	enum kvt_status status = KVT_OK;

	for (c->group = 0; !status && c->group < s->ngroups; c->group++)
		status = carry_group(out, c, args, err);
	return status;
}

/* What arrived must be what the plan says, byte for byte. */
static enum kvt_status check_bytes(const struct sides *sides, int64_t moved,
				   struct kvt_error *err)
{
	int64_t want = 0;

	for (int g = 0; g < sides->sim.ngroups; g++) {
		int64_t bytes, unique;
		enum kvt_status status = kvt_xfer_nbytes(&bytes, &unique,
							 &sides->sim.group[g].xfer, err);

		if (status)
			return status;
		want += bytes;
	}
	return moved == want ? KVT_OK :
	       kvt_fail(err, KVT_MISMATCH, "%lld bytes were moved, expected %lld",
			LL(moved), LL(want));
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* All outputs are complete before the first of them gets its name. */
static enum kvt_status carry_all(struct carried *out, struct carrying *c,
				 struct kvt_writer **writer, const struct exec_args *args,
				 struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (c->rank = 0; !status && c->rank < c->sides->dst.n; c->rank++) {
		status = open_output(&writer[c->rank], c->sides, args, c->rank, err);
		c->writer = writer[c->rank];
		if (!status)
			status = carry_rank(out, c, args, err);
	}
	if (!status && !args->dry_run)
		status = check_bytes(c->sides, out->bytes, err);
	for (int r = 0; !status && !args->dry_run && r < c->sides->dst.n; r++)
		status = kvt_commit(writer[r], err);
	return status;
}

enum kvt_status carry_out(struct carried *out, const struct sides *sides,
			  const struct exec_args *args, carry_fn *fn, void *context,
			  struct kvt_error *err)
{
	struct kvt_writer **writer = calloc((size_t)sides->dst.n, sizeof(*writer));
	struct spoiled spoiled;
	struct carrying c = { .sides = sides, .spoiled = &spoiled, .fn = fn,
			      .context = context };
	enum kvt_status status;
	double start = now();

	*out = (struct carried){ .bytes = 0 };
	if (!writer)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	signals_catch();
	if (!(status = find_op(&spoiled, &sides->sim, args->corrupt, err)))
		status = carry_all(out, &c, writer, args, err);
	for (int r = 0; r < sides->dst.n; r++)
		kvt_close_writer(writer[r]);
	free(writer);
	out->seconds = now() - start;
	return status;
}
