/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.c - a part of a dump that keeps its place in the model
 *
 * Layers and blocks are chosen by their ids, blocks also by the requests that remain;
 * their tables are cut to the same lists, and the tables of requests renumbered.
 * Then each group is narrowed: to the heads of a rank, or a range of them, to what a
 * rank sends to another, to channels, to components.  A group of which nothing
 * remains is left out and the others move up.
 *
 * Cost: layers + blocks + entries of tables.  Nothing here looks at data.
 */
#include "lib/derived/slice.h"
#include "lib/base/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- is what is named there? -------------------------------------------- */

/* All ids of an axis, ascending and each once; NULL: out of memory. */
static uint64_t *all_ids(int64_t *count, const struct kvt_snapshot *snapshot,
			 enum kvt_axis axis, id_fn *id_of)
{
	int64_t n = 0, kept = 0;
	uint64_t *ids;

	for (int g = 0; g < snapshot->ngroups; g++)
		n += snapshot->group[g].shape.n[axis];
	if (!(ids = calloc((size_t)n + 1, sizeof(*ids))))
		return NULL;
	n = 0;
	for (int g = 0; g < snapshot->ngroups; g++)
		for (int64_t i = 0; i < snapshot->group[g].shape.n[axis]; i++)
			ids[n++] = id_of(&snapshot->group[g], i);
	qsort(ids, (size_t)n, sizeof(*ids), kvt_by_uint64);
	for (int64_t i = 0; i < n; i++)
		if (!kept || ids[kept - 1] != ids[i])
			ids[kept++] = ids[i];
	*count = kept;
	return ids;
}

static enum kvt_status check_ranges(const struct kvt_snapshot *snapshot,
				    const struct kvt_ranges *ranges, enum kvt_axis axis,
				    id_fn *id_of, struct kvt_error *err)
{
	uint64_t *ids;
	int64_t n = 0;
	enum kvt_status status = KVT_OK;

	if (!(ids = all_ids(&n, snapshot, axis, id_of)))
		return kvt_no_memory(err, NULL);
	for (int i = 0; !status && i < ranges->n; i++) {
		uint64_t want = (uint64_t)ranges->range[i].begin;
		int64_t at = 0;

		while (at < n && ids[at] < want)
			at++;
		/* ends at the first that is missing, at the latest behind the last */
		while (at < n && ids[at] == want &&
		       want < (uint64_t)ranges->range[i].end) {
			want++;
			at++;
		}
		if (want < (uint64_t)ranges->range[i].end)
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "no %s %llu among the %lld from %llu to %llu",
					  kvt_axis_name(axis), (unsigned long long)want,
					  LL(n), (unsigned long long)(n ? ids[0] : 0),
					  (unsigned long long)(n ? ids[n - 1] : 0));
	}
	free(ids);
	return status;
}

/* ---- heads -------------------------------------------------------------- */

static enum kvt_status take_heads(struct step_part *part, struct kvt_group *group,
				  struct kvt_range want, const char *who,
				  struct kvt_error *err)
{
	int64_t first = group->head_start, count = group->shape.n[KVT_AXIS_H];

	if (want.begin < first || want.end > first + count || want.begin >= want.end)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %s heads %lld to %lld, the dump has %lld to %lld",
				group->id, who, LL(want.begin), LL(want.end - 1),
				LL(first), LL(first + count - 1));
	part->heads = (struct kvt_segment){ 0, want.begin - first,
					   want.end - want.begin };
	group->head_start = want.begin;
	group->shape.n[KVT_AXIS_H] = want.end - want.begin;
	return KVT_OK;
}

static enum kvt_status heads_of_rank(struct step_part *part, struct kvt_group *group,
				     struct kvt_rank rank, struct kvt_error *err)
{
	struct kvt_range own;
	enum kvt_status status;
	struct kvt_error why;
	char who[64];

	if (group->kind == KVT_OPAQUE)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: it is not known how opaque content is divided among ranks",
				group->id);
	if (group->kind == KVT_MAMBA_SSM && group->total_heads % rank.size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld state heads cannot be divided evenly among %lld ranks",
				group->id, LL(group->total_heads), LL(rank.size));
	if ((status = kvt_owned(&own, group->total_heads, rank, &why)))
		return kvt_fail(err, status, "%s: %.400s", group->id, why.text);
	snprintf(who, sizeof(who), "rank %lld of %lld holds", LL(rank.index),
		 LL(rank.size));
	group->replication = kvt_is_replicated(group->total_heads, rank.size) ?
			     rank.size / group->total_heads : 1;
	return take_heads(part, group, own, who, err);
}

static int64_t heads_in_a_row(const struct kvt_group *group)
{
	return group->content.type ? kvt_group_packing(group).fold : 1;
}

/* ---- both --------------------------------------------------------------- */

enum kvt_status slice_width(struct step_part *part, struct kvt_group *group,
			   const struct kvt_snapshot *whole,
			   const struct kvt_slice_options *options,
			   struct kvt_error *err)
{
	const struct kvt_parallel *parallel = &whole->parallel;
	const struct kvt_rank *rank = &options->rank;
	bool conv = group->kind == KVT_MAMBA_CONV;

	*part = (struct step_part){
		.heads = { 0, 0, group->shape.n[KVT_AXIS_H] },
		.kv = { 0, 0, group->shape.n[KVT_AXIS_K] },
		.nchannels = 1, .channel = { { 0, 0, group->shape.n[KVT_AXIS_D] } },
	};
	if (options->heads.n && conv)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a convolution state has no heads; expected --tp-size and --tp-rank",
				group->id);
	if (options->heads.n && group->content.type && group->content.type->all_heads)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: a page of %s holds all heads, which cannot be divided",
				group->id, group->content.type->name);
	/* what it is already needs no number of groups */
	if (!options->heads.n &&
	    (!rank->size || (rank->size == parallel->tp_size &&
			     rank->index == parallel->tp_rank)))
		return KVT_OK;
	if (heads_in_a_row(group) > 1)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: %lld heads are one row, for they cut blocks of %s: they cannot be divided; kvtool convert --decode=float32 makes numbers of them, which can be",
				group->id, LL(heads_in_a_row(group)),
				group->content.type->name);
	if (options->heads.n)
		return take_heads(part, group, options->heads.range[0], "--heads are",
				  err);
	return conv ? slice_channels(part, group, whole, options, err) :
		      heads_of_rank(part, group, *rank, err);
}

/* ---- pages -------------------------------------------------------------- */

static int64_t content_bytes(const struct kvt_group *group)
{
	int64_t nbytes = group->shape.elem;

	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++)
		nbytes *= group->shape.n[a];
	return nbytes;
}

/*
 * The groups of a page follow each other, each at a multiple of its element.
 * Padding behind them belonged to another allocation.
 */
void place_in_pages(struct kvt_snapshot *snapshot)
{
	for (int g = 0; g < snapshot->ngroups; ) {
		int64_t page = snapshot->group[g].page_bytes, at = 0;
		int64_t offset = snapshot->group[g].page_offset;
		int end = g + 1;

		while (page && end < snapshot->ngroups &&
		       snapshot->group[end].page_bytes == page &&
		       snapshot->group[end].page_offset > offset)
			offset = snapshot->group[end++].page_offset;
		for (int i = g; page && i < end; i++) {
			struct kvt_group *group = &snapshot->group[i];

			at = (at + group->shape.elem - 1) / group->shape.elem *
			     group->shape.elem;
			group->page_offset = at;
			at += content_bytes(group);
		}
		for (int i = g; page && i < end; i++)
			snapshot->group[i].page_bytes = at;
		g = end;
	}
}

/* ---- one group ---------------------------------------------------------- */

/* Indices along an axis whose id is wanted and that 'used' has, if given. */
static int64_t *list_of(int64_t *count, const struct kvt_group *group, enum kvt_axis axis,
			id_fn *id_of, const struct kvt_ranges *ranges, const bool *used)
{
	int64_t n = group->shape.n[axis], kept = 0;
	int64_t *list = calloc((size_t)n + 1, sizeof(*list));

	for (int64_t i = 0; list && i < n; i++)
		if (ranges_have(ranges, id_of(group, i)) && (!used || used[i]))
			list[kept++] = i;
	*count = kept;
	return list;
}

/* Blocks that the remaining requests use. */
static bool *used_blocks(const struct kvt_snapshot *snapshot, int group)
{
	bool *used = calloc((size_t)snapshot->group[group].shape.n[KVT_AXIS_B] + 1, 1);

	for (int64_t r = 0; used && r < snapshot->nrequests; r++)
		for (int64_t i = 0; i < snapshot->request[r].nblocks[group]; i++)
			used[snapshot->request[r].blocks[group][i]] = true;
	return used;
}

/* Each of these keeps the entries of a list, which ascends, in place. */
static void keep_names(char **names, int64_t n, const int64_t *list, int64_t count)
{
	int64_t j = 0;

	for (int64_t i = 0; names && i < n; i++) {
		char *name = names[i];

		names[i] = NULL;
		if (j < count && list[j] == i)
			names[j++] = name;
		else
			free(name);
	}
}

static void keep_u32(uint32_t *table, const int64_t *list, int64_t count)
{
	for (int64_t i = 0; table && i < count; i++)
		table[i] = table[list[i]];
}

bool keep_layers(struct kvt_group *group, const int64_t *list, int64_t count)
{
	int64_t n = group->shape.n[KVT_AXIS_L];

	if (!group->layer_ids && count < n) {
		group->layer_ids = calloc((size_t)n, sizeof(*group->layer_ids));
		if (!group->layer_ids)
			return false;
		for (int64_t i = 0; i < n; i++)
			group->layer_ids[i] = (uint32_t)i;
	}
	keep_u32(group->layer_ids, list, count);
	for (int64_t i = 0; group->scales && i < count; i++)
		memmove(group->scales + i * 2 * group->scale_heads,
			group->scales + list[i] * 2 * group->scale_heads,
			(size_t)(2 * group->scale_heads) * sizeof(*group->scales));
	keep_names(group->layer_names, n, list, count);
	group->shape.n[KVT_AXIS_L] = count;
	return true;
}

bool keep_blocks(struct kvt_group *group, const int64_t *list, int64_t count)
{
	int64_t n = group->shape.n[KVT_AXIS_B];

	if (!group->block_ids && count < n) {
		group->block_ids = calloc((size_t)n, sizeof(*group->block_ids));
		if (!group->block_ids)
			return false;
		for (int64_t i = 0; i < n; i++)
			group->block_ids[i] = (uint64_t)i;
	}
	for (int64_t i = 0; group->block_ids && i < count; i++)
		group->block_ids[i] = group->block_ids[list[i]];
	keep_u32(group->block_valid, list, count);
	keep_names(group->block_names, n, list, count);
	group->shape.n[KVT_AXIS_B] = count;
	return true;
}

/* Where each block went, and the null block with it. */
static enum kvt_status renumber(struct kvt_snapshot *snapshot, int group, int64_t nblocks,
				const int64_t *list, struct kvt_error *err)
{
	int64_t null = kvt_null_block(snapshot, group);

	int64_t *inverse = malloc(((size_t)nblocks + 1) * sizeof(*inverse));
	int64_t count = snapshot->group[group].shape.n[KVT_AXIS_B];

	if (!inverse)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < nblocks; i++)
		inverse[i] = -1;
	for (int64_t i = 0; i < count; i++)
		inverse[list[i]] = i;
	kvt_set_null(snapshot, group, null < 0 ? -1 : inverse[null]);
	renumber_requests(snapshot, group, inverse);
	free(inverse);
	return KVT_OK;
}

/* ---- all groups --------------------------------------------------------- */

/* A group without layers or blocks is left out; the others move up. */
static void move_group(struct kvt_snapshot *snapshot, int to, int from)
{
	if (to == from)
		return;
	snapshot->group[to] = snapshot->group[from];
	memset(&snapshot->group[from], 0, sizeof(snapshot->group[from]));
	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		struct kvt_request *request = &snapshot->request[r];

		request->blocks[to] = request->blocks[from];
		request->nblocks[to] = request->nblocks[from];
		request->blocks[from] = NULL;
		request->nblocks[from] = 0;
		for (int64_t i = 0; i < request->nholes; i++)
			if (request->hole[i].group == from)
				request->hole[i].group = to;
	}
}

static void drop_holes(struct kvt_request *request, int group)
{
	int64_t kept = 0;

	for (int64_t i = 0; i < request->nholes; i++)
		if (request->hole[i].group != group)
			request->hole[kept++] = request->hole[i];
	request->nholes = kept;
}

static void drop_group(struct kvt_snapshot *snapshot, int group)
{
	struct kvt_group *g = &snapshot->group[group];

	keep_names(g->layer_names, g->shape.n[KVT_AXIS_L], NULL, 0);
	free(g->layer_names);
	free(g->layer_ids);
	free(g->scales);
	free(g->block_ids);
	free(g->block_valid);
	kvt_group_drop_names(g);
	memset(g, 0, sizeof(*g));
	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		free(snapshot->request[r].blocks[group]);
		snapshot->request[r].blocks[group] = NULL;
		drop_holes(&snapshot->request[r], group);
		snapshot->request[r].nblocks[group] = 0;
	}
}

/* Lists for one group; it is moved to 'to' if anything of it remains. */
static enum kvt_status slice_group(struct derivation *d, int *to, int from,
				  const struct kvt_slice_options *options,
				  const struct kvt_exchange *given, struct kvt_error *err)
{
	struct kvt_snapshot *snapshot = &d->snapshot;
	struct step_group *map = &d->group[*to];
	struct kvt_group *group = &snapshot->group[from];
	bool some = options->requests.n || options->tokens.n;
	bool *used = some ? used_blocks(snapshot, from) : NULL;
	int64_t nblocks = group->shape.n[KVT_AXIS_B], nl, nb;
	bool wanted = slice_wants(group, options) && (!options->to.size || given->count);

	map->from = from;
	map->layer = list_of(&nl, group, KVT_AXIS_L, kvt_layer_id, &options->layers,
			     NULL);
	map->block = list_of(&nb, group, KVT_AXIS_B, kvt_block_id, &options->blocks,
			     used);
	map->part = calloc(1, sizeof(*map->part));
	map->nparts = 1;
	if ((some && !used) || !map->layer || !map->block || !map->part) {
		free(used);
		return kvt_no_memory(err, NULL);
	}
	free(used);
	if (!wanted || !nl || !nb) {
		drop_group(snapshot, from);
		free(map->layer);
		free(map->block);
		free(map->part);
		memset(map, 0, sizeof(*map));
		return KVT_OK;
	}
	if (!keep_layers(group, map->layer, nl) || !keep_blocks(group, map->block, nb))
		return kvt_no_memory(err, NULL);
	move_group(snapshot, *to, from);
	group = &snapshot->group[(*to)++];
	return renumber(snapshot, *to - 1, nblocks, map->block, err);
}

static enum kvt_status slice_groups(struct derivation *d,
				    const struct kvt_slice_options *options,
				   const struct kvt_exchange *given,
				   struct kvt_error *err)
{
	struct kvt_snapshot *snapshot = &d->snapshot;
	int ngroups = snapshot->ngroups, kept = 0;

	for (int g = 0; g < ngroups; g++) {
		enum kvt_status status = slice_group(d, &kept, g, options, &given[g],
						     err);

		if (status)
			return status;
	}
	if (!kept && !options->to.size)
		return kvt_fail(err, KVT_BAD_INPUT, "nothing of the dump remains");
	snapshot->ngroups = kept;
	snapshot->null_block = -1;
	if (kept)
		kvt_share_null(snapshot);
	return KVT_OK;
}

/* Along heads, channels and components. */
static enum kvt_status slice_widths(struct derivation *d,
				    const struct kvt_slice_options *options,
				   const struct kvt_exchange *given,
				   struct kvt_error *err)
{
	const struct kvt_snapshot *whole = kvt_dump_snapshot(d->source[0]);
	struct kvt_snapshot *snapshot = &d->snapshot;
	bool changed = snapshot->ngroups != whole->ngroups;

	for (int g = 0; g < snapshot->ngroups; g++) {
		struct kvt_group *group = &snapshot->group[g];
		struct step_part *part = d->group[g].part;
		struct kvt_shape before = group->shape;
		enum kvt_status status;

		if ((status = slice_width(part, group, whole, options, err)) ||
		    (options->to.size &&
		     (status = slice_given(part, group, &given[d->group[g].from],
					   err))) ||
		    (status = slice_component(part, group, &options->components, err)))
			return status;
		changed |= memcmp(before.n, group->shape.n, sizeof(before.n)) != 0;
	}
	if (changed)
		place_in_pages(snapshot);
	if (options->rank.size) {
		snapshot->parallel.tp_size = options->rank.size;
		snapshot->parallel.tp_rank = options->rank.index;
		snapshot->has_parallel = true;
	}
	return KVT_OK;
}

/* Fills the derivation; free it if this fails. */
static enum kvt_status slice(struct derivation *d,
			     const struct kvt_slice_options *options,
			     struct kvt_error *err)
{
	const struct kvt_snapshot *from = kvt_dump_snapshot(d->source[0]);
	struct kvt_exchange given[KVT_MAX_GROUPS] = { { .count = 0 } };
	struct kvt_snapshot *to = &d->snapshot;
	enum kvt_status status;

	for (int g = 0; g < from->ngroups; g++)
		/* then its blocks may be any number, with no bytes for them */
		if (!from->group[g].shape.n[KVT_AXIS_L])
			return kvt_fail(err, KVT_BAD_INPUT, "%s has no layers",
					from->group[g].id);
	if ((status = kvt_snapshot_copy(to, from, err)) ||
	    (status = check_ranges(from, &options->layers, KVT_AXIS_L, kvt_layer_id,
				   err)) ||
	    (status = check_ranges(from, &options->blocks, KVT_AXIS_B, kvt_block_id,
				   err)) ||
	    (status = slice_check_components(from, &options->components, err)) ||
	    (status = slice_exchanges(given, from, options, err)) ||
	    (status = slice_requests(to, &options->requests, err)) ||
	    (status = slice_tokens(to, options, err)) ||
	    (status = slice_groups(d, options, given, err)) ||
	    (status = slice_widths(d, options, given, err)))
		return status;
	cut_requests(to, from);
	return KVT_OK;
}

enum kvt_status kvt_dump_slice(struct kvt_dump **out, const struct kvt_dump *dump,
			       const struct kvt_slice_options *options,
			       struct kvt_error *err)
{
	struct derivation d = { .nsources = 1, .source = &dump };

	kvt_snapshot_init(&d.snapshot);
	return derive(out, &d, slice(&d, options, err), err);
}

static enum kvt_status rename_requests(struct kvt_snapshot *s, const char *const *name,
				       struct kvt_error *err)
{
	for (int64_t r = 0; r < s->nrequests; r++) {
		char *copy = strdup(name[r]);

		if (!copy)
			return kvt_no_memory(err, NULL);
		free(s->request[r].id);
		s->request[r].id = copy;
	}
	return KVT_OK;
}

enum kvt_status kvt_dump_rename(struct kvt_dump **out, const struct kvt_dump *dump,
				const char *const *name, struct kvt_error *err)
{
	static const struct kvt_slice_options all = { .mamba_groups = 0 };
	struct derivation d = { .nsources = 1, .source = &dump };
	enum kvt_status status;

	kvt_snapshot_init(&d.snapshot);
	if (!(status = slice(&d, &all, err)))
		status = rename_requests(&d.snapshot, name, err);
	return derive(out, &d, status, err);
}

/* Layers keep their names. */
static enum kvt_status number_layers(struct kvt_snapshot *s,
				     const struct kvt_snapshot *as, struct kvt_error *err)
{
	for (int g = 0; g < s->ngroups; g++) {
		struct kvt_group *group = &s->group[g];
		int64_t n = group->shape.n[KVT_AXIS_L];

		free(group->layer_ids);
		group->layer_ids = calloc((size_t)n + 1, sizeof(*group->layer_ids));
		if (!group->layer_ids)
			return kvt_no_memory(err, NULL);
		for (int64_t l = 0; l < n; l++)
			group->layer_ids[l] = (uint32_t)kvt_layer_id(&as->group[g], l);
	}
	return KVT_OK;
}

enum kvt_status kvt_dump_renumber(struct kvt_dump **out, const struct kvt_dump *dump,
				  const struct kvt_snapshot *as, struct kvt_error *err)
{
	static const struct kvt_slice_options all = { .mamba_groups = 0 };
	struct derivation d = { .nsources = 1, .source = &dump };
	enum kvt_status status;

	kvt_snapshot_init(&d.snapshot);
	if (!(status = slice(&d, &all, err)))
		status = number_layers(&d.snapshot, as, err);
	return derive(out, &d, status, err);
}
