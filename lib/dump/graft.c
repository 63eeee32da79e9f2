/* SPDX-License-Identifier: Apache-2.0 */
/* graft.c - the groups of two dumps that can exchange blocks, and a source */
#include "lib/dump/graft.h"

#include <stdlib.h>
#include <string.h>

#include "lib/ops/compare/same.h"

#define LL(x) ((long long)(x))

/* ---- the same group of both --------------------------------------------- */

static bool has_layer(const struct kvt_group *group, uint64_t id)
{
	for (int64_t l = 0; l < group->shape.n[KVT_AXIS_L]; l++)
		if (kvt_layer_id(group, l) == id)
			return true;
	return false;
}

/* Groups are the same if they are of one kind and share a layer. */
static enum kvt_status find_partner(struct copy_pair *pair,
				    const struct copy_blocks *copy,
				    struct kvt_error *err)
{
	const struct kvt_group *base = copy_group_of(pair, COPY_BASE);
	const struct kvt_snapshot *from = pair->snapshot[COPY_FROM];
	uint64_t first = kvt_layer_id(base, 0);

	for (int g = 0; g < from->ngroups; g++)
		if (from->group[g].kind == base->kind &&
		    has_layer(&from->group[g], first)) {
			pair->group[COPY_FROM] = g;
			return KVT_OK;
		}
	return kvt_fail(err, KVT_BAD_INPUT,
			"%.150s: no group is %s and has layer %llu, as %s of %.150s",
			copy->name[COPY_FROM], kvt_kind_name(base->kind),
			(unsigned long long)first, base->id, copy->name[COPY_BASE]);
}

static enum kvt_status check_numbers(const struct copy_pair *pair,
				     const struct copy_blocks *copy,
				     struct kvt_error *err)
{
	const struct kvt_group *base = copy_group_of(pair, COPY_BASE);
	const struct kvt_group *from = copy_group_of(pair, COPY_FROM);
	const int64_t *nb = base->shape.n, *nf = from->shape.n;
	const struct {
		const char *what;
		int64_t base, from;
		const char *advice;
	} rows[] = {
		{ "tokens a block", base->block_size, from->block_size,
		  ": kvtool reblock makes them equal" },
		{ "tokens a state", base->tokens_per_state, from->tokens_per_state, "" },
		{ "states a block", nb[KVT_AXIS_S], nf[KVT_AXIS_S], "" },
		{ "heads of the model", base->total_heads, from->total_heads, "" },
		{ "first head", base->head_start, from->head_start, "" },
		{ "heads", nb[KVT_AXIS_H], nf[KVT_AXIS_H], "" },
		{ "keys and values", nb[KVT_AXIS_K], nf[KVT_AXIS_K], "" },
		{ "elements of a head", nb[KVT_AXIS_D], nf[KVT_AXIS_D], "" },
		{ "layers", nb[KVT_AXIS_L], nf[KVT_AXIS_L], "" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].base != rows[i].from)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: %s: %lld in %.120s, %lld in %.120s%s",
					base->id, rows[i].what, LL(rows[i].from),
					copy->name[COPY_FROM], LL(rows[i].base),
					copy->name[COPY_BASE], rows[i].advice);
	return KVT_OK;
}

/* Channels of a rank are others on another, and so is what nobody can read. */
static enum kvt_status check_ranks(const struct copy_pair *pair, struct kvt_error *err)
{
	const struct kvt_parallel *base = &pair->snapshot[COPY_BASE]->parallel;
	const struct kvt_parallel *from = &pair->snapshot[COPY_FROM]->parallel;

	if (copy_group_of(pair, COPY_BASE)->kind != KVT_OPAQUE ||
	    (base->tp_size == from->tp_size && base->tp_rank == from->tp_rank))
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: opaque content of rank %lld of %lld cannot be that of rank %lld of %lld",
			copy_group_of(pair, COPY_BASE)->id, LL(from->tp_rank),
			LL(from->tp_size), LL(base->tp_rank), LL(base->tp_size));
}

static enum kvt_status check_same(const struct sharing *s, struct kvt_error *err)
{
	const struct kvt_group *base = reader_group(s->b, s->group_b);
	const int64_t *n = base->shape.n;

	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++)
		if (s->map[KVT_AXIS_L][l] < 0)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: no layer %llu on the other side", base->id,
					(unsigned long long)kvt_layer_id(base, l));
	for (int64_t d = 0; d < n[KVT_AXIS_D]; d++)
		if (s->map[KVT_AXIS_D][d] != d)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: channel %lld is not the same on both sides",
					base->id, LL(d));
	return KVT_OK;
}

/* Which layer of FROM is which, if the groups can exchange blocks at all. */
static enum kvt_status same_layers(int64_t **out, struct kvt_dump *readers[NCOPY],
				   const struct copy_pair *pair,
				   const struct copy_blocks *copy, struct kvt_error *err)
{
	const struct kvt_group *base = copy_group_of(pair, COPY_BASE);
	const struct kvt_group *from = copy_group_of(pair, COPY_FROM);
	enum kvt_status status;
	struct sharing s;

	if (!kvt_group_same_type(base, from))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: dtype is %s in %.150s, %s in %.150s", base->id,
				kvt_group_type(from).s, copy->name[COPY_FROM],
				kvt_group_type(base).s, copy->name[COPY_BASE]);
	if ((status = check_numbers(pair, copy, err)) ||
	    (status = check_ranks(pair, err)) ||
	    (status = sharing_init(&s, readers[COPY_FROM], pair->group[COPY_FROM],
				   readers[COPY_BASE], pair->group[COPY_BASE], err)))
		return status;
	if (!(status = check_same(&s, err))) {
		*out = s.map[KVT_AXIS_L];
		s.map[KVT_AXIS_L] = NULL;
	}
	sharing_free(&s);
	return status;
}

/* ---- the source --------------------------------------------------------- */

static enum kvt_status graft_group(struct source *out, int g, struct copy_blocks *copy,
				   struct kvt_error *err)
{
	struct kvt_dump **readers = out->reader;
	struct source_group *map = &out->group[g];
	struct copy_pair pair = {
		.snapshot = { kvt_dump_snapshot(readers[COPY_BASE]),
			      kvt_dump_snapshot(readers[COPY_FROM]) },
		.group = { g, -1 },
	};
	const struct kvt_group *base = copy_group_of(&pair, COPY_BASE);
	enum kvt_status status;

	if (!base->shape.n[KVT_AXIS_L])
		/* then its blocks may be any number, with no bytes behind them */
		return kvt_fail(err, KVT_BAD_INPUT, "%.150s: %s has no layers",
				copy->name[COPY_BASE], base->id);
	if (!(map->graft = calloc(1, sizeof(*map->graft))))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	if ((status = find_partner(&pair, copy, err)) ||
	    (status = source_map_whole(map, base, g, err)) ||
	    (status = source_map_whole(map->graft, base, pair.group[COPY_FROM], err)))
		return status;
	free(map->graft->layer);
	free(map->graft->block);
	map->graft->layer = map->graft->block = NULL;
	map->graft->part->reader = COPY_FROM;
	copy->group[g].from = pair.group[COPY_FROM];
	if ((status = same_layers(&map->graft->layer, readers, &pair, copy, err)))
		return status;
	return copied_blocks(&map->graft->block, &copy->group[g].count, &pair, copy, err);
}

enum kvt_status copy_source(struct source *out, struct kvt_dump *readers[NCOPY],
			    struct copy_blocks *copy, struct kvt_error *err)
{
	const struct kvt_snapshot *base = kvt_dump_snapshot(readers[COPY_BASE]);
	const struct kvt_snapshot *from = kvt_dump_snapshot(readers[COPY_FROM]);
	int64_t total = 0;
	enum kvt_status status;

	*out = (struct source){ .nreaders = NCOPY, .reader = readers };
	kvt_snapshot_init(&out->snapshot);
	if (base->ngroups != from->ngroups)
		return kvt_fail(err, KVT_BAD_INPUT, "%d groups in %.200s, %d in %.200s",
				from->ngroups, copy->name[COPY_FROM], base->ngroups,
				copy->name[COPY_BASE]);
	if ((status = kvt_snapshot_copy(&out->snapshot, base, err)))
		return status;
	for (int g = 0; g < base->ngroups; g++) {
		if ((status = graft_group(out, g, copy, err)))
			return status;
		total += copy->group[g].count;
		/* the name of a block is of its content */
		if (copy->group[g].count)
			kvt_group_drop_names(&out->snapshot.group[g]);
	}
	if (!total)
		return kvt_fail(err, KVT_BAD_INPUT, "no block is to be copied");
	source_seal(out);
	return KVT_OK;
}

/* ---- what was written --------------------------------------------------- */

/* 'block' says which blocks came from the other one; 'side' is the one to ask. */
static enum kvt_status compare_side(struct kvt_dump *reader, int group, int side,
				    struct kvt_dump *written, int g,
				    const int64_t *block,
				    const struct kvt_run *run,
				    struct kvt_error *err)
{
	struct sharing s;
	enum kvt_status status = sharing_init(&s, reader, group, written, g, err);

	if (status)
		return status;
	for (int64_t b = 0; b < reader_group(written, g)->shape.n[KVT_AXIS_B]; b++) {
		if (side == COPY_FROM)
			s.map[KVT_AXIS_B][b] = block[b];
		else if (block[b] >= 0)
			s.map[KVT_AXIS_B][b] = -1;
		else if (s.map[KVT_AXIS_B][b] < 0)
			status = KVT_MISMATCH;
	}
	/* of which there may be none now, and it would not look */
	s.shared[KVT_AXIS_B] = 1;
	status = status ? kvt_fail(err, status, "%s: blocks are lost",
				   reader_group(written, g)->id) :
			  sharing_compare(&s, "verifying", run, err);
	sharing_free(&s);
	return status;
}

enum kvt_status copy_verify(struct kvt_dump *readers[NCOPY],
			    struct kvt_dump *written, const struct copy_blocks *copy,
			    const struct kvt_run *run,
			    struct kvt_error *err)
{
	const struct kvt_snapshot *base = kvt_dump_snapshot(readers[COPY_BASE]);
	const struct kvt_snapshot *now = kvt_dump_snapshot(written);
	enum kvt_status status = KVT_OK;

	if (now->ngroups != base->ngroups)
		return kvt_fail(err, KVT_MISMATCH, "%d groups became %d", base->ngroups,
				now->ngroups);
	for (int g = 0; !status && g < now->ngroups; g++) {
		struct copy_pair pair = {
			.snapshot = { now, kvt_dump_snapshot(readers[COPY_FROM]) },
			.group = { g, copy->group[g].from },
		};
		struct kvt_error why = { "" };
		int64_t *block, count;

		if (memcmp(now->group[g].shape.n, base->group[g].shape.n,
			   sizeof(base->group[g].shape.n)))
			return kvt_fail(err, KVT_MISMATCH, "%s: shapes differ",
					base->group[g].id);
		if ((status = copied_blocks(&block, &count, &pair, copy, err)))
			return status;
		for (int s = 0; !status && s < NCOPY; s++) {
			status = compare_side(readers[s], s == COPY_BASE ? g :
					      copy->group[g].from, s, written, g, block,
					      run, &why);
			if (status)
				kvt_fail(err, status, "not as in %.200s: %.300s",
					 copy->name[s], why.text);
		}
		free(block);
	}
	return status;
}
