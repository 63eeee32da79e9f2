/* SPDX-License-Identifier: Apache-2.0 */
/* merge_ranks.c - do these files belong together, and are they all? */
#include "lib/dump/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LL(x) ((long long)(x))

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
			p->a->name, p->b->name, p->where, *p->where ? ": " : "",
			what);
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
	return same_table(p, "live states of blocks", a->block_valid, b->block_valid,
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
		{ "tokens per state", a->tokens_per_state, b->tokens_per_state },
		{ "number of heads in the model", a->total_heads, b->total_heads },
		{ "window", a->window, b->window },
		{ "retained tokens", a->retained, b->retained },
		{ "number of parts", a->ncomponents, b->ncomponents },
	};
	enum kvt_status status;

	p.where = a->id;
	if (strcmp(a->id, b->id))
		return unlike(&p, "the other has another group in this place");
	if (a->kind != b->kind)
		return unlike(&p, "kind");
	if (!kvt_group_same_type(a, b))
		return unlike(&p, "element type");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if ((status = same_int(&p, rows[i].what, rows[i].a, rows[i].b)))
			return status;
	if ((status = same_extents(&p, a, b)))
		return status;
	return same_tables(&p, a, b);
}

static enum kvt_status same_request(struct pair p, const struct kvt_request *a,
				    const struct kvt_request *b, int ngroups)
{
	enum kvt_status status;

	p.where = a->id;
	if (strcmp(a->id, b->id))
		return unlike(&p, "the other has another request in this place");
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
