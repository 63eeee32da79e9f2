/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - where in the whole the heads and channels of each rank stand */
#include "lib/dump/merge.h"

#include <stdlib.h>
#include <string.h>

#include "lib/dump/slice.h"
#include "lib/ops/compare/same.h"

#define LL(x) ((long long)(x))

/* ---- heads -------------------------------------------------------------- */

/* Must be just what the rank owns; then together they are all heads. */
static enum kvt_status join_heads(struct source_part *part, struct kvt_range *before,
				  const struct kvt_group *group, struct kvt_rank rank,
				  struct kvt_error *err)
{
	int64_t first = group->head_start, count = group->shape.n[KVT_AXIS_H];
	struct kvt_range own;
	enum kvt_status status;

	if (group->kind == KVT_OPAQUE && rank.size > 1)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: nobody knows how opaque content is dealt to ranks",
				group->id);
	if ((status = kvt_owned(&own, group->total_heads, rank, err)))
		return status;
	if (own.begin != first || own.end != first + count)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: heads %lld to %lld, but rank %lld of %lld holds %lld to %lld",
				group->id, LL(first), LL(first + count - 1),
				LL(rank.index), LL(rank.size), LL(own.begin),
				LL(own.end - 1));
	if (own.begin == before->begin && own.end == before->end)
		return KVT_OK;		/* a replica: nothing new */
	*before = own;
	part->heads = (struct source_run){ first, 0, count };
	part->nruns = 1;
	part->run[0] = (struct source_run){ 0, 0, group->shape.n[KVT_AXIS_D] };
	return KVT_OK;
}

/* ---- channels ----------------------------------------------------------- */

/* Channels of one part that one rank holds. */
struct stretch {
	int64_t begin, length, from;
	int file;
};

static int by_begin(const void *a, const void *b)
{
	const struct stretch *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->file - y->file;
}

static const struct kvt_component *find_part(const struct kvt_group *group,
					     const char *name)
{
	for (int i = 0; i < group->ncomponents; i++)
		if (!strcmp(group->component[i].name, name))
			return &group->component[i];
	return NULL;
}

static enum kvt_status stretches_of(struct stretch *out, const char *name, int g,
				    const struct rank_file *files, int nfiles,
				    struct kvt_error *err)
{
	for (int i = 0; i < nfiles; i++) {
		const struct kvt_group *group = reader_group(files[i].reader, g);
		const struct kvt_component *c = find_part(group, name);

		enum kvt_status status;
		struct kvt_error why;

		if (!c)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: %s has no part '%s', which %s has",
					files[i].name, group->id, name, files[0].name);
		if ((status = check_parts(group, &why)))
			return kvt_fail(err, status, "%s: %.400s", files[i].name,
					why.text);
		out[i] = (struct stretch){ c->global_start, c->length, c->start, i };
	}
	qsort(out, (size_t)nfiles, sizeof(*out), by_begin);
	return KVT_OK;
}

/*
 * The stretches of a part follow each other, or are the same as the one before
 * them.  The part after one that was left out begins anywhere.
 */
static enum kvt_status join_part(struct source_group *map, struct kvt_component *part,
				 const struct kvt_component *before, int g,
				 const struct rank_file *files, int nfiles,
				 struct stretch *stretch, struct kvt_error *err)
{
	enum kvt_status status;
	int64_t begin = before ? before->global_start + before->length : 0, end;

	if ((status = stretches_of(stretch, part->name, g, files, nfiles, err)))
		return status;
	if (!part_follows(before ? before->name : NULL, part->name) &&
	    stretch[0].begin > begin)
		begin = stretch[0].begin;
	end = begin;
	part->start = before ? before->start + before->length : 0;
	part->global_start = begin;
	for (int i = 0; i < nfiles; i++) {
		const struct stretch *s = &stretch[i], *last = &stretch[i ? i - 1 : 0];
		struct source_part *to = &map->part[s->file];

		if (i && s->begin == last->begin && s->length == last->length)
			continue;
		if (s->begin != end)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s and %s: channels of part %s end at %lld and go on at %lld",
					files[last->file].name, files[s->file].name,
					part->name, LL(end), LL(s->begin));
		to->run[to->nruns++] = (struct source_run){
			part->start + end - begin, s->from, s->length,
		};
		end += s->length;
	}
	part->length = end - begin;
	return KVT_OK;
}

static enum kvt_status join_channels(struct source_group *map, struct kvt_group *group,
				     int g, const struct rank_file *files, int nfiles,
				     struct kvt_error *err)
{
	struct stretch *stretch = calloc((size_t)nfiles, sizeof(*stretch));
	const struct kvt_component *before = NULL;
	enum kvt_status status = KVT_OK;

	if (!stretch)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	if (!group->ncomponents)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: %s does not say where its parts x, B and C are",
				  files[0].name, group->id);
	for (int i = 0; !status && i < group->ncomponents; i++) {
		status = join_part(map, &group->component[i], before, g, files, nfiles,
				   stretch, err);
		before = &group->component[i];
	}
	free(stretch);
	if (!status)
		group->shape.n[KVT_AXIS_D] = before->start + before->length;
	return status;
}

/* ---- all groups --------------------------------------------------------- */

static int64_t *count_up(int64_t n)
{
	int64_t *list = calloc((size_t)n + 1, sizeof(*list));

	for (int64_t i = 0; list && i < n; i++)
		list[i] = i;
	return list;
}

static enum kvt_status join_group(struct source *out, int g,
				  const struct rank_file *files, int nfiles,
				  struct kvt_error *err)
{
	struct source_group *map = &out->group[g];
	struct kvt_group *group = &out->snapshot.group[g];
	struct kvt_range before = { -1, -1 };
	enum kvt_status status = KVT_OK;
	int kept = 0;

	map->from = g;
	map->layer = count_up(group->shape.n[KVT_AXIS_L]);
	map->block = count_up(group->shape.n[KVT_AXIS_B]);
	map->part = calloc((size_t)nfiles, sizeof(*map->part));
	if (!map->layer || !map->block || !map->part)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int i = 0; !status && i < nfiles; i++) {
		struct kvt_error why = { "" };

		map->part[i].reader = i;
		map->part[i].heads = (struct source_run){ 0, 0, 1 };
		map->part[i].kv = (struct source_run){ 0, 0,
						       group->shape.n[KVT_AXIS_K] };
		if (group->kind == KVT_MAMBA_CONV)
			continue;
		status = join_heads(&map->part[i], &before,
				    reader_group(files[i].reader, g),
				    (struct kvt_rank){ nfiles, i }, &why);
		if (status)
			kvt_fail(err, status, "%s: %.400s", files[i].name, why.text);
	}
	if (!status && group->kind == KVT_MAMBA_CONV)
		status = join_channels(map, group, g, files, nfiles, err);
	else if (!status)
		group->shape.n[KVT_AXIS_H] = group->total_heads;
	for (int i = 0; i < nfiles; i++)
		if (map->part[i].nruns)
			map->part[kept++] = map->part[i];
	map->nparts = kept;
	group->head_start = 0;
	group->replication = 1;
	return status;
}

enum kvt_status join_source(struct source *out, struct kvt_dump **readers,
			    const struct rank_file *files, int nfiles,
			    struct kvt_error *err)
{
	struct kvt_snapshot *snapshot = &out->snapshot;
	enum kvt_status status;

	*out = (struct source){ .nreaders = nfiles, .reader = readers };
	kvt_snapshot_init(snapshot);
	for (int i = 0; i < nfiles; i++)
		readers[i] = files[i].reader;
	if ((status = kvt_snapshot_copy(snapshot, kvt_dump_snapshot(readers[0]), err)))
		return status;
	for (int g = 0; g < snapshot->ngroups; g++)
		if ((status = join_group(out, g, files, nfiles, err)))
			return status;
	snapshot->parallel.tp_size = 1;
	snapshot->parallel.tp_rank = 0;
	if (nfiles > 1)
		place_in_pages(snapshot);
	source_seal(out);
	return KVT_OK;
}

/* ---- replicas ----------------------------------------------------------- */

static enum kvt_status compare_files(const struct rank_file *a,
				     const struct rank_file *b, int g,
				     const struct kvt_run *run,
				     bool *shared, struct kvt_error *err)
{
	struct kvt_error why = { "" };
	struct sharing sharing;
	enum kvt_status status = sharing_init(&sharing, a->reader, g, b->reader, g, &why);

	if (!status) {
		*shared = sharing_any(&sharing);
		status = sharing_compare(&sharing, "replicas", run, &why);
		sharing_free(&sharing);
	}
	if (status)
		kvt_fail(err, status, "%s and %s: %.300s", a->name, b->name, why.text);
	return status;
}

/* With the first that holds the same; the rest follows. */
enum kvt_status replicas_check(const struct rank_file *files, int nfiles,
			       const struct kvt_run *run,
			       struct kvt_error *err)
{
	int ngroups = kvt_dump_snapshot(files[0].reader)->ngroups;

	for (int g = 0; g < ngroups; g++)
		for (int j = 1; j < nfiles; j++) {
			bool shared = false;

			for (int i = 0; i < j && !shared; i++) {
				enum kvt_status status =
					compare_files(&files[i], &files[j], g,
						      run, &shared, err);

				if (status)
					return status;
			}
		}
	return KVT_OK;
}
