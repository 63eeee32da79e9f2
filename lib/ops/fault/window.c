/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.c - a group in memory, and what is live in it
 *
 * In: a dump and a group.  Out: a struct kvt_window of all its layers and blocks, and
 * its data in that order.  What a slot holds follows from the block tables: of a group
 * that forgets tokens, live is what a request still needs; of others all of a block
 * that a request has, or as much of it as block_valid says.  The rest is stale, but
 * without tables all slots are live.
 *
 * Cost: one pass over the data; for a group without block_valid time of the tables
 * times the blocks.
 */
#include "lib/ops/fault/window.h"

#include <stdlib.h>
#include <string.h>

/* ---- facts -------------------------------------------------------------- */

static bool in_use(const struct kvt_snapshot *snapshot, int group, int64_t block)
{
	for (int64_t r = 0; r < snapshot->nrequests; r++)
		for (int64_t i = 0; i < snapshot->request[r].nblocks[group]; i++)
			if (snapshot->request[r].blocks[group][i] == block)
				return true;
	return false;
}

/* Slots of a block that hold something; all, where the dump does not say. */
static int64_t live_slots(const struct kvt_snapshot *snapshot, int group, int64_t block)
{
	const struct kvt_group *g = &snapshot->group[group];

	if (g->block_valid)
		return g->block_valid[block];
	if (snapshot->nrequests && !in_use(snapshot, group, block))
		return 0;
	return g->shape.n[KVT_AXIS_S];
}

/* Where a group lets go of tokens a count of slots says too little. */
static bool find_live(bool **out, const struct kvt_snapshot *snapshot, int group)
{
	*out = NULL;
	if (!snapshot->nrequests || !kvt_group_forgets(snapshot, group))
		return true;
	*out = kvt_live_slots(snapshot, group);
	return *out != NULL;
}

static uint8_t *make_use(const struct kvt_snapshot *snapshot, int group)
{
	const int64_t *n = snapshot->group[group].shape.n;
	int64_t slots = n[KVT_AXIS_S], null = kvt_null_block(snapshot, group);
	uint8_t *use = malloc((size_t)(n[KVT_AXIS_B] * slots) + 1);
	bool *live;

	if (!find_live(&live, snapshot, group)) {
		free(use);
		return NULL;
	}
	for (int64_t b = 0; use && b < n[KVT_AXIS_B]; b++) {
		int64_t count = live ? 0 : live_slots(snapshot, group, b);

		for (int64_t s = 0; s < slots; s++)
			use[b * slots + s] = b == null ? KVT_NULL_BLOCK :
				s < count || (live && live[b * slots + s]) ? KVT_LIVE :
				KVT_STALE;
	}
	free(live);
	return use;
}

enum { NO_REQUEST = -3 };

void kvt_window_neighbours(int64_t *out, const struct kvt_snapshot *snapshot, int group,
			   int64_t first, int64_t n, int step)
{
	for (int64_t i = 0; i < n; i++)
		out[i] = NO_REQUEST;
	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		const uint32_t *blocks = snapshot->request[r].blocks[group];
		int64_t nblocks = snapshot->request[r].nblocks[group];

		for (int64_t i = 0; i < nblocks; i++) {
			int64_t at = blocks[i] - first, j = i + step;
			int64_t next = KVT_NOT_THERE;

			if (at < 0 || at >= n)
				continue;
			if (j >= 0 && j < nblocks)
				next = blocks[j] - first;
			if (j >= 0 && j < nblocks && (next < 0 || next >= n))
				next = KVT_NOT_HERE;
			/* requests that share a block may not agree */
			out[at] = out[at] == NO_REQUEST || out[at] == next ?
				  next : KVT_NOT_HERE;
		}
	}
	for (int64_t i = 0; i < n; i++)
		if (out[i] == NO_REQUEST)
			out[i] = KVT_NOT_THERE;
}

enum kvt_status kvt_window_tables(struct kvt_window *window, int64_t *request,
				  int64_t *entry, const struct kvt_snapshot *snapshot,
				  int group, int64_t first, int64_t n,
				  struct kvt_error *err)
{
	struct kvt_blocks_of *table = calloc((size_t)snapshot->nrequests + 1,
					     sizeof(*table));

	if (!table)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < n; i++) {
		request[i] = NO_REQUEST;
		entry[i] = 0;
	}
	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		table[r].block = snapshot->request[r].blocks[group];
		table[r].n = snapshot->request[r].nblocks[group];
		for (int64_t e = table[r].n - 1; e >= 0; e--) {
			int64_t i = table[r].block[e] - first;

			if (i < 0 || i >= n)
				continue;
			/* of one that several have nobody knows whose it is */
			request[i] = request[i] == NO_REQUEST ? r : -1;
			entry[i] = e;
		}
	}
	for (int64_t i = 0; i < n; i++)
		if (request[i] == NO_REQUEST)
			request[i] = -1;
	window->table = table;
	window->ntables = snapshot->nrequests;
	window->first_block = first;
	window->request = request;
	window->entry = entry;
	return KVT_OK;
}

static int64_t *neighbours(const struct kvt_snapshot *snapshot, int group, int step)
{
	int64_t n = snapshot->group[group].shape.n[KVT_AXIS_B];
	int64_t *out = malloc((size_t)n * sizeof(*out) + 1);

	if (out)
		kvt_window_neighbours(out, snapshot, group, 0, n, step);
	return out;
}

/* Ids as the file has them, or numbers in its order. */
static int64_t *layer_ids(const struct kvt_group *g)
{
	int64_t *ids = malloc((size_t)g->shape.n[KVT_AXIS_L] * sizeof(*ids) + 1);

	for (int64_t l = 0; ids && l < g->shape.n[KVT_AXIS_L]; l++)
		ids[l] = g->layer_ids ? (int64_t)g->layer_ids[l] : l;
	return ids;
}

static int64_t *block_ids(const struct kvt_group *g)
{
	int64_t *ids = malloc((size_t)g->shape.n[KVT_AXIS_B] * sizeof(*ids) + 1);

	for (int64_t b = 0; ids && b < g->shape.n[KVT_AXIS_B]; b++)
		ids[b] = (int64_t)kvt_block_id(g, b);
	return ids;
}

/* Components that do not fill a row in order are of no use here. */
static int row_parts(struct kvt_row_part *out, const struct kvt_group *g)
{
	int64_t start = 0;

	for (int i = 0; i < g->ncomponents; i++) {
		if (g->component[i].start != start || g->component[i].length < 1)
			return 0;
		out[i].start = start;
		out[i].length = g->component[i].length;
		start += g->component[i].length;
	}
	return start == g->shape.n[KVT_AXIS_D] ? g->ncomponents : 0;
}

/* Frees the window if it fails. */
static enum kvt_status add_tables(struct kvt_window *out,
				  const struct kvt_snapshot *snapshot, int group,
				  struct kvt_error *err)
{
	int64_t n = out->shape.n[KVT_AXIS_B];
	int64_t *request = malloc((size_t)n * sizeof(*request) + 1);
	int64_t *entry = malloc((size_t)n * sizeof(*entry) + 1);
	enum kvt_status status = KVT_SYSTEM;

	if (request && entry)
		status = kvt_window_tables(out, request, entry, snapshot, group, 0, n,
					   err);
	else
		kvt_no_memory(err, NULL);
	if (!status)
		return KVT_OK;
	free(request);
	free(entry);
	kvt_window_free(out);
	return status;
}

enum kvt_status kvt_window_init(struct kvt_window *out,
				const struct kvt_snapshot *snapshot,
				int group, struct kvt_error *err)
{
	const struct kvt_group *g = &snapshot->group[group];

	*out = (struct kvt_window){
		.shape = g->shape, .dtype = g->dtype, .kind = g->kind,
		.use = make_use(snapshot, group),
		.layer_ids = layer_ids(g), .block_ids = block_ids(g),
		.head_start = g->head_start, .layout = &g->layout,
		.page_bytes = g->page_offset ? 0 : g->page_bytes,
	};
	out->nparts = row_parts(out->part, g);
	if (snapshot->nrequests) {
		out->prev = neighbours(snapshot, group, -1);
		out->next = neighbours(snapshot, group, 1);
	}
	if (!out->use || !out->layer_ids || !out->block_ids ||
	    (snapshot->nrequests && (!out->prev || !out->next))) {
		kvt_window_free(out);
		return kvt_no_memory(err, NULL);
	}
	return snapshot->nrequests ? add_tables(out, snapshot, group, err) : KVT_OK;
}

void kvt_window_free(struct kvt_window *window)
{
	free((void *)window->use);
	free((void *)window->prev);
	free((void *)window->next);
	free((void *)window->request);
	free((void *)window->entry);
	free((void *)window->table);
	free((void *)window->layer_ids);
	free((void *)window->block_ids);
	memset(window, 0, sizeof(*window));
}

/* ---- data --------------------------------------------------------------- */

struct window_read {
	const struct kvt_dump *dump;
	int group;
	struct kvt_cut cut;
	struct placed all;
};

static enum kvt_status read_one_box(struct kvt_worker *worker, void *context, int64_t i,
				    struct kvt_error *err)
{
	const struct window_read *r = context;
	const struct kvt_group *g = kvt_dump_group(r->dump, r->group);
	struct kvt_box box = kvt_cut_box(&r->cut, i);
	struct placed part = { &kvt_layout_slots, box, worker->buffer[0] };
	enum kvt_status status = kvt_read(worker, r->dump, r->group, &box, part.layout,
					  part.bytes, err);

	return status ? status :
	       copy_box(worker, &r->all, &part, &box, g->shape.elem, err);
}

enum kvt_status kvt_window_read(uint8_t *out, const struct kvt_dump *dump, int group,
				const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_group *g = kvt_dump_group(dump, group);
	struct window_read r = {
		.dump = dump, .group = group,
		.cut = kvt_cut_choose(g, kvt_dump_tiling(dump, group), NULL, NULL,
				  run->memory ? run->memory / 4 : INT64_MAX),
		.all = { &kvt_layout_slots, kvt_box_whole(&g->shape), out },
	};
	struct kvt_work work = { .fn = read_one_box, .context = &r,
	.count = r.cut.nboxes };

	work.buffer_bytes[0] = r.cut.box_bytes;
	kvt_work_reads(&work, dump, group, &r.cut, &kvt_layout_slots);
	return kvt_work_run(&work, run, err);
}
