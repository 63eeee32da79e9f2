/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.c - the dumps of all ranks of a model as one
 *
 * First: do the files belong together?  Every rank is there once, and all say the
 * same of the model, the pool and the requests.  Then: where in the whole the heads
 * and channels of each rank stand.  Heads must be just what the rank owns, channels
 * of a part must follow each other; ranks that hold what an earlier one holds
 * (replicas) give nothing.
 */
#include "lib/derived/merge.h"
#include "lib/derived/slice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which ranks -------------------------------------------------------- */

static const struct kvt_snapshot *said(const struct rank_file *file)
{
	return kvt_dump_snapshot(file->reader);
}

static int by_rank(const void *a, const void *b)
{
	const struct kvt_parallel *x = &said(a)->parallel, *y = &said(b)->parallel;

	return x->tp_rank < y->tp_rank ? -1 : x->tp_rank > y->tp_rank;
}

static enum kvt_status check_ranks(const struct rank_file *files, int nfiles,
				   struct kvt_error *err)
{
	int64_t size = said(files)->parallel.tp_size;

	for (int i = 0; i < nfiles; i++) {
		const struct kvt_parallel *p = &said(&files[i])->parallel;

		if (p->tp_size != size)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s is one of %lld ranks, but %s is one of %lld",
					files[i].name, LL(p->tp_size), files[0].name,
					LL(size));
		if (i && size == 1)
			return kvt_fail(err, KVT_BAD_INPUT,
					"neither %s nor %s carries a rank number; if they are listed in the order of the ranks, add --in-order",
					files[i - 1].name, files[i].name);
		if (i && p->tp_rank == said(&files[i - 1])->parallel.tp_rank)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s and %s are both rank %lld of %lld",
					files[i - 1].name, files[i].name,
					LL(p->tp_rank), LL(size));
		/* they ascend, so the first gap is the first that is missing */
		if (p->tp_rank != i)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s is one of %lld ranks, and none of the files is rank %d",
					files[i].name, LL(size), i);
	}
	if (nfiles != size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is one of %lld ranks, and none of the files is rank %d",
				files[0].name, LL(size), nfiles);
	return KVT_OK;
}

/* ---- the same of the same model ----------------------------------------- */

/* Two files and where they are being compared. */
struct pair {
	const struct rank_file *a, *b;
	const char *where;		/* id of a group or request; "": neither */
	struct kvt_error *err;
};

static enum kvt_status unlike(const struct pair *p, const char *what)
{
	return kvt_fail(p->err, KVT_BAD_INPUT, "%s and %s differ: %s%s%s",
			p->a->name, p->b->name, p->where, *p->where ? ": " : "", what);
}

static enum kvt_status same_int(const struct pair *p, const char *what, int64_t a,
				int64_t b)
{
	if (a == b)
		return KVT_OK;
	return kvt_fail(p->err, KVT_BAD_INPUT,
			"%s and %s differ: %s%s%s is %lld in one and %lld in the other",
			p->a->name, p->b->name, p->where, *p->where ? ": " : "",
			what, LL(a), LL(b));
}

static enum kvt_status same_table(const struct pair *p, const char *what,
				  const void *a, const void *b, int64_t n, size_t elem)
{
	if (!a == !b && (!a || !n || !memcmp(a, b, (size_t)n * elem)))
		return KVT_OK;
	return unlike(p, what);
}

static enum kvt_status same_extents(const struct pair *p, const struct kvt_group *a,
				    const struct kvt_group *b)
{
	for (int axis = 0; axis < KVT_NAXES; axis++) {
		char what[32];
		enum kvt_status status;

		/* these are what ranks are dealt */
		if (axis == KVT_AXIS_H ||
		    (axis == KVT_AXIS_D && a->kind == KVT_MAMBA_CONV))
			continue;
		snprintf(what, sizeof(what), "%s extent", kvt_axis_name(axis));
		if ((status = same_int(p, what, a->shape.n[axis], b->shape.n[axis])))
			return status;
	}
	return KVT_OK;
}

static enum kvt_status same_tables(const struct pair *p, const struct kvt_group *a,
				   const struct kvt_group *b)
{
	int64_t layers = a->shape.n[KVT_AXIS_L], blocks = a->shape.n[KVT_AXIS_B];
	enum kvt_status status;

	for (int64_t i = 0; i < layers; i++)
		if (strcmp(a->layer_names[i], b->layer_names[i]))
			return unlike(p, "layer names");
	if ((status = same_table(p, "layer ids", a->layer_ids, b->layer_ids, layers,
				 sizeof(*a->layer_ids))) ||
	    (status = same_table(p, "block ids", a->block_ids, b->block_ids, blocks,
				 sizeof(*a->block_ids))))
		return status;
	if (!a->block_names != !b->block_names)
		return unlike(p, "names of blocks");
	for (int64_t i = 0; a->block_names && i < blocks; i++)
		if (strcmp(a->block_names[i], b->block_names[i]))
			return unlike(p, "names of blocks");
	return same_table(p, "live slots of blocks", a->block_valid, b->block_valid,
			  blocks, sizeof(*a->block_valid));
}

static enum kvt_status same_group(struct pair p, const struct kvt_group *a,
				  const struct kvt_group *b)
{
	const struct {
		const char *what;
		int64_t a, b;
	} rows[] = {
		{ "block size", a->block_size, b->block_size },
		{ "tokens per slot", a->tokens_per_slot, b->tokens_per_slot },
		{ "number of heads in the model", a->total_heads, b->total_heads },
		{ "window", a->window, b->window },
		{ "retained tokens", a->retained, b->retained },
		{ "number of parts", a->ncomponents, b->ncomponents },
	};
	enum kvt_status status;

	p.where = a->id;
	if (strcmp(a->id, b->id))
		return unlike(&p, "the other has a different group at this index");
	if (a->kind != b->kind)
		return unlike(&p, "kind");
	if (!kvt_group_same_type(a, b))
		return unlike(&p, "element type");
	if (!kvt_group_same_state(a, b))
		return unlike(&p, "shape of states");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if ((status = same_int(&p, rows[i].what, rows[i].a, rows[i].b)))
			return status;
	if ((status = same_extents(&p, a, b)))
		return status;
	if (strcmp(a->cast_from, b->cast_from))
		return unlike(&p, "type before it was cast");
	if (a->scale_heads != b->scale_heads)
		return unlike(&p, "scales");
	if ((status = same_table(&p, "scales", a->scales, b->scales,
				 kvt_group_nscales(a), sizeof(*a->scales))))
		return status;
	return same_tables(&p, a, b);
}

static enum kvt_status same_request(struct pair p, const struct kvt_request *a,
				    const struct kvt_request *b, int ngroups)
{
	enum kvt_status status;

	p.where = a->id;
	if (strcmp(a->id, b->id))
		return unlike(&p, "the other has a different request at this index");
	if ((status = same_int(&p, "number of tokens", a->ntokens, b->ntokens)) ||
	    (status = same_int(&p, "first token", a->first_token, b->first_token)) ||
	    (status = same_int(&p, "number of token ids", a->ntoken_ids,
			       b->ntoken_ids)) ||
	    (status = same_table(&p, "token ids", a->token_ids, b->token_ids,
				 a->ntoken_ids, sizeof(*a->token_ids))) ||
	    (status = same_int(&p, "number of holes", a->nholes, b->nholes)) ||
	    (status = same_table(&p, "holes", a->hole, b->hole, a->nholes,
				 sizeof(*a->hole))))
		return status;
	for (int g = 0; g < ngroups; g++)
		if ((status = same_int(&p, "number of blocks", a->nblocks[g],
				       b->nblocks[g])) ||
		    (status = same_table(&p, "block table", a->blocks[g], b->blocks[g],
					 a->nblocks[g], sizeof(*a->blocks[g]))))
			return status;
	return KVT_OK;
}

static enum kvt_status same_dump(struct pair p)
{
	const struct kvt_snapshot *a = said(p.a), *b = said(p.b);
	const struct kvt_parallel *x = &a->parallel, *y = &b->parallel;
	const struct {
		const char *what;
		int64_t a, b;
	} rows[] = {
		{ "number of groups", a->ngroups, b->ngroups },
		{ "number of requests", a->nrequests, b->nrequests },
		{ "pp size", x->pp_size, y->pp_size },
		{ "pp rank", x->pp_rank, y->pp_rank },
		{ "dp size", x->dp_size, y->dp_size },
		{ "dp rank", x->dp_rank, y->dp_rank },
		{ "dcp size", x->dcp_size, y->dcp_size },
		{ "dcp rank", x->dcp_rank, y->dcp_rank },
	};
	enum kvt_status status;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if ((status = same_int(&p, rows[i].what, rows[i].a, rows[i].b)))
			return status;
	if (strcmp(a->model ? a->model : "", b->model ? b->model : ""))
		return unlike(&p, "model");
	for (int g = 0; g < a->ngroups; g++)
		if ((status = same_group(p, &a->group[g], &b->group[g])) ||
		    (status = same_int(&p, "null block", kvt_null_block(a, g),
				       kvt_null_block(b, g))))
			return status;
	for (int64_t r = 0; r < a->nrequests; r++)
		if ((status = same_request(p, &a->request[r], &b->request[r],
					   a->ngroups)))
			return status;
	return KVT_OK;
}

/* Context parallel ranks hold other tokens of the same heads. */
static enum kvt_status check_alone(const struct rank_file *file, struct kvt_error *err)
{
	const struct kvt_snapshot *s = said(file);

	if (s->parallel.dcp_size > 1)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: rank %lld of %lld context parallel ranks; their tokens cannot be merged",
				file->name, LL(s->parallel.dcp_rank),
				LL(s->parallel.dcp_size));
	for (int g = 0; g < s->ngroups; g++)
		if (!s->group[g].shape.n[KVT_AXIS_L])
			return kvt_fail(err, KVT_BAD_INPUT, "%s: %s has no layers",
					file->name, s->group[g].id);
	return KVT_OK;
}

enum kvt_status rank_files_check(struct rank_file *files, int nfiles,
				 struct kvt_error *err)
{
	enum kvt_status status;

	qsort(files, (size_t)nfiles, sizeof(*files), by_rank);
	if ((status = check_ranks(files, nfiles, err)))
		return status;
	for (int i = 0; i < nfiles; i++) {
		struct pair p = { &files[0], &files[i], "", err };

		if ((status = check_alone(&files[i], err)) || (status = same_dump(p)))
			return status;
	}
	return KVT_OK;
}

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
				"%s: it is not known how opaque content is divided among ranks",
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

static enum kvt_status stretches_of(struct stretch *out, const char *name, int g,
				    const struct rank_file *files, int nfiles,
				    struct kvt_error *err)
{
	for (int i = 0; i < nfiles; i++) {
		const struct kvt_group *group = kvt_dump_group(files[i].reader, g);
		const struct kvt_component *c = kvt_component_named(group, name);

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
					"%s and %s: channels of part %s end at %lld and continue at %lld",
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
		return kvt_no_memory(err, NULL);
	if (!group->ncomponents)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: %s has no parts x, B and C",
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
		return kvt_no_memory(err, NULL);
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
						   kvt_dump_snapshot(d->source[0]), err);

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
		return kvt_no_memory(err, NULL);
	for (int i = 0; i < nfiles; i++)
		source[i] = files[i].reader;
	kvt_snapshot_init(&d.snapshot);
	status = derive(out, &d, join(&d, files, nfiles, err), err);
	free(source);
	return status;
}

enum kvt_status kvt_dump_merge(struct kvt_dump **out, const struct kvt_dump *const *dumps,
			       const char *const *names, int n, struct kvt_error *err)
{
	struct rank_file *files = calloc((size_t)n, sizeof(*files));
	enum kvt_status status;

	if (!files)
		return kvt_no_memory(err, NULL);
	for (int i = 0; i < n; i++)
		files[i] = (struct rank_file){
			names[i], (struct kvt_dump *)(uintptr_t)dumps[i], /* only read */
		};
	if (!(status = rank_files_check(files, n, err)))
		status = rank_files_join(out, files, n, err);
	free(files);
	return status;
}
