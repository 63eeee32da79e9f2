/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - where in the whole the heads and channels of each rank stand */
#include "lib/dump/merge.h"

#include <stdlib.h>
#include <string.h>

#include "lib/dump/slice.h"

#define LL(x) ((long long)(x))

/* ---- heads -------------------------------------------------------------- */

/* Must be just what the rank owns; then together they are all heads. */
static enum kvt_status join_heads(struct step_part *part, struct kvt_range *before,
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
	part->heads = (struct kvt_segment){ first, 0, count };
	part->nchannels = 1;
	part->channel[0] = (struct kvt_segment){ 0, 0, group->shape.n[KVT_AXIS_D] };
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
		const struct kvt_group *group = kvt_dump_group(files[i].reader, g);
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
static enum kvt_status join_part(struct step_group *map, struct kvt_component *part,
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
		struct step_part *to = &map->part[s->file];

		if (i && s->begin == last->begin && s->length == last->length)
			continue;
		if (s->begin != end)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s and %s: channels of part %s end at %lld and go on at %lld",
					files[last->file].name, files[s->file].name,
					part->name, LL(end), LL(s->begin));
		to->channel[to->nchannels++] = (struct kvt_segment){
			part->start + end - begin, s->from, s->length,
		};
		end += s->length;
	}
	part->length = end - begin;
	return KVT_OK;
}

static enum kvt_status join_channels(struct step_group *map, struct kvt_group *group,
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

static enum kvt_status join_group(struct derivation *d, int g,
				  const struct rank_file *files, int nfiles,
				  struct kvt_error *err)
{
	struct step_group *map = &d->group[g];
	struct kvt_group *group = &d->snapshot.group[g];
	struct kvt_range before = { -1, -1 };
	enum kvt_status status = KVT_OK;
	int kept = 0;

	map->from = g;
	map->part = calloc((size_t)nfiles, sizeof(*map->part));
	if (!map->part)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int i = 0; !status && i < nfiles; i++) {
		struct kvt_error why = { "" };

		map->part[i].source = i;
		map->part[i].heads = (struct kvt_segment){ 0, 0, 1 };
		map->part[i].kv = (struct kvt_segment){ 0, 0,
						       group->shape.n[KVT_AXIS_K] };
		if (group->kind == KVT_MAMBA_CONV)
			continue;
		status = join_heads(&map->part[i], &before,
				    kvt_dump_group(files[i].reader, g),
				    (struct kvt_rank){ nfiles, i }, &why);
		if (status)
			kvt_fail(err, status, "%s: %.400s", files[i].name, why.text);
	}
	if (!status && group->kind == KVT_MAMBA_CONV)
		status = join_channels(map, group, g, files, nfiles, err);
	else if (!status)
		group->shape.n[KVT_AXIS_H] = group->total_heads;
	for (int i = 0; i < nfiles; i++)
		if (map->part[i].nchannels)
			map->part[kept++] = map->part[i];
	map->nparts = kept;
	group->head_start = 0;
	group->replication = 1;
	return status;
}

/* Files are in the order of their ranks. */
static enum kvt_status join(struct derivation *d, const struct rank_file *files,
			    int nfiles, struct kvt_error *err)
{
	struct kvt_snapshot *snapshot = &d->snapshot;
	enum kvt_status status = kvt_snapshot_copy(snapshot,
						   kvt_dump_snapshot(d->source[0]),
						   err);

	for (int g = 0; !status && g < snapshot->ngroups; g++)
		status = join_group(d, g, files, nfiles, err);
	if (status)
		return status;
	snapshot->parallel.tp_size = 1;
	snapshot->parallel.tp_rank = 0;
	if (nfiles > 1)
		place_in_pages(snapshot);
	return KVT_OK;
}

enum kvt_status rank_files_join(struct kvt_dump **out, const struct rank_file *files,
				int nfiles, struct kvt_error *err)
{
	const struct kvt_dump **source = calloc((size_t)nfiles, sizeof(*source));
	struct derivation d = { .nsources = nfiles, .source = source };
	enum kvt_status status;

	if (!source)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int i = 0; i < nfiles; i++)
		source[i] = files[i].reader;
	kvt_snapshot_init(&d.snapshot);
	if (!(status = join(&d, files, nfiles, err)))
		status = derive(out, &d, err);
	else
		derivation_free(&d);
	free(source);
	return status;
}

enum kvt_status kvt_dump_merge(struct kvt_dump **out, const struct kvt_dump *const *dumps,
			       const char *const *names, int n, struct kvt_error *err)
{
	struct rank_file *files = calloc((size_t)n, sizeof(*files));
	enum kvt_status status;

	if (!files)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int i = 0; i < n; i++)
		files[i] = (struct rank_file){
			names[i], (struct kvt_dump *)(uintptr_t)dumps[i], /* only read */
		};
	if (!(status = rank_files_check(files, n, err)))
		status = rank_files_join(out, files, n, err);
	free(files);
	return status;
}
