/* SPDX-License-Identifier: Apache-2.0 */
/*
 * where.c - what a byte of a dump is, where an element is, and whose it is
 *
 * Offsets come from the dump's own locate() and at(), tiles from how its groups are
 * cut, tenants from the block tables: an entry of a table that names the block is a
 * tenant if the slot it stands for holds one of the request's tokens.  Whether a
 * slot is live is asked of the tables first, then of the counts of valid slots; where
 * neither says anything, it is unknown.  A search looks at every table entry once.
 */
#include "lib/ops/where/where.h"
#include "lib/dump/read.h"

#include <stdio.h>
#include <string.h>

#include "lib/run/pipeline.h"
#include "lib/base/number.h"

/* ---- where it is -------------------------------------------------------- */

/* The offsets of an element, wherever it has one. */
static enum kvt_status locate(struct kvt_whereabouts *a, struct kvt_dump *dump,
			      struct kvt_error *err)
{
	const struct kvt_where *p = &a->place;
	enum kvt_status status;

	a->in_files = !kvt_dump_tiling(dump, p->group) && !kvt_dump_decoded(dump);
	a->in_memory = true;
	if (a->in_files &&
	    (status = kvt_dump_locate(&a->file, &a->file_offset, dump, KVT_FILES,
					p->group, p->index, err)))
		return status;
	if ((status = kvt_dump_locate(&a->tensor, &a->memory_offset, dump,
					KVT_MEMORY, p->group, p->index, err)))
		return status;
	a->file_offset += p->byte;
	a->memory_offset += p->byte;
	return KVT_OK;
}

enum kvt_status kvt_where_at(struct kvt_whereabouts *out, struct kvt_dump *dump,
			     const char *text, struct kvt_error *err)
{
	struct kvt_whereabouts at = { .in_files = false };
	enum kvt_status status;

	if ((status = kvt_where_parse_at(&at.place, kvt_dump_snapshot(dump), text,
					 err)) ||
	    (status = locate(&at, dump, err)))
		return status;
	*out = at;
	return KVT_OK;
}

static enum kvt_status parse_offset(int64_t *buffer, int64_t *offset,
				    struct kvt_dump *dump, enum kvt_space space,
				    const char *text, struct kvt_error *err)
{
	const char *colon = strrchr(text, ':');
	char name[4096];

	if (!kvt_number_parse(offset, colon ? colon + 1 : text))
		return kvt_fail(err, KVT_USAGE,
				"--offset is '%.200s', expected a whole number, or NAME:number",
				text);
	if (!colon)
		return kvt_dump_find_buffer(buffer, dump, space, NULL, err);
	if (snprintf(name, sizeof(name), "%.*s", (int)(colon - text), text) >=
	    (int)sizeof(name))
		return kvt_fail(err, KVT_USAGE, "--offset: the name is too long");
	return kvt_dump_find_buffer(buffer, dump, space, name, err);
}

enum kvt_status kvt_where_offset(struct kvt_whereabouts *out, struct kvt_dump *dump,
				 enum kvt_space space, const char *text,
				 struct kvt_error *err)
{
	struct kvt_whereabouts a = { .in_files = false };
	int64_t buffer, offset;
	struct kvt_error why = { "" };
	enum kvt_status status;

	if ((status = parse_offset(&buffer, &offset, dump, space, text, err)))
		return status;
	status = kvt_dump_at(&a.place, dump, space, buffer, offset, &why);
	if (status)
		return kvt_fail(err, status, "%.460s%s", why.text,
				status == KVT_UNSUPPORTED ? "; use --memory" : "");
	if (a.place.region == KVT_ELEMENT) {
		if ((status = locate(&a, dump, err)))
			return status;
	} else {
		a.in_files = space == KVT_FILES;
		a.in_memory = !a.in_files;
		a.file = a.tensor = buffer;
		a.file_offset = a.memory_offset = offset;
	}
	*out = a;
	return KVT_OK;
}

/* ---- what it is --------------------------------------------------------- */

bool kvt_where_tile(struct kvt_tile_place *out, struct kvt_dump *dump,
		    const struct kvt_where *place)
{
	const struct kvt_tiling *t = kvt_dump_tiling(dump, place->group);
	const struct kvt_group *group = &kvt_dump_snapshot(dump)->group[place->group];
	int64_t inside[KVT_NAXES];
	struct kvt_views views;
	struct kvt_box box;

	if (!t)
		return false;
	for (int a = 0; a < KVT_NAXES; a++) {
		inside[a] = place->index[a] % t->n[a];
		out->begin[a] = place->index[a] - inside[a];
	}
	box = tile_box(t, out->begin);
	if (kvt_layout_views(&views, &group->layout, &box, group->shape.elem, NULL))
		return false;
	out->byte = kvt_views_at(&views, inside) + place->byte;
	out->nbytes = t->nbytes;
	return true;
}

const struct kvt_component *kvt_where_component(const struct kvt_group *group,
						int64_t dim)
{
	for (int i = 0; i < group->ncomponents; i++) {
		const struct kvt_component *c = &group->component[i];

		if (dim >= c->start && dim - c->start < c->length)
			return c;
	}
	return NULL;
}

/* ---- whose it is -------------------------------------------------------- */

/* One slot stands for all tokens so far: of how many, at this entry? */
static int64_t seen_at(const struct kvt_snapshot *s, int group,
		       const struct kvt_request *request, int64_t entry)
{
	int64_t size = s->group[group].block_size, n = request->nblocks[group];

	if (n == 1)
		return request->ntokens;
	if (!kvt_table_is_whole(s, group, request))
		return -1;
	if (request->ntokens / size <= entry)
		return request->ntokens;
	return (entry + 1) * size;
}

/* False if the entry's slot is after the last token. */
static bool tenant_of(struct kvt_tenant *out, const struct kvt_snapshot *s,
		      const struct kvt_where *place,
		      const struct kvt_request *request, int64_t entry)
{
	const struct kvt_group *group = &s->group[place->group];
	const struct kvt_table t = kvt_table_of(s, place->group, request);
	int64_t each = group->tokens_per_slot, left, end, at;

	*out = (struct kvt_tenant){ request, -1, -1, -1 };
	if (each < 1) {
		out->seen = seen_at(s, place->group, request, entry);
		return true;
	}
	/* blocks may be reserved for more tokens than there are */
	if (kvt_entry_is_spare(&t, entry))
		return false;
	end = request->first_token + request->ntokens;
	at = ((t.first + entry) * t.each + place->index[KVT_AXIS_S]) * each;
	left = end - at;
	if (left <= 0 || at < request->first_token)
		return false;
	out->token = at;
	out->ntokens = left < each ? left : each;
	return true;
}

bool kvt_next_tenant(struct kvt_tenant *out, struct kvt_tenancy *at,
		     const struct kvt_snapshot *s, const struct kvt_where *place)
{
	int64_t block = place->index[KVT_AXIS_B];

	for (; at->request < s->nrequests; at->request++, at->entry = 0) {
		const struct kvt_request *request = &s->request[at->request];

		while (at->entry < request->nblocks[place->group]) {
			int64_t entry = at->entry++;

			if (request->blocks[place->group][entry] == block &&
			    tenant_of(out, s, place, request, entry))
				return true;
		}
	}
	return false;
}

/* Tables say it all: what none of them needs is stale, though one may name it. */
static enum kvt_holding forgetful_holds(const struct kvt_snapshot *s,
					const struct kvt_where *place)
{
	int64_t block = place->index[KVT_AXIS_B], slot = place->index[KVT_AXIS_S];
	bool any = false;

	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_table t = kvt_table_of(s, place->group, &s->request[r]);

		any |= t.nblocks > 0;
		for (int64_t i = 0; i < t.nblocks; i++)
			if (t.blocks[i] == block &&
			    kvt_table_needs(&t, (t.first + i) * t.each + slot))
				return KVT_HOLDS_LIVE;
	}
	return any ? KVT_HOLDS_STALE : KVT_HOLDS_UNKNOWN;
}

enum kvt_holding kvt_where_holds(const struct kvt_snapshot *s,
				 const struct kvt_where *place)
{
	const struct kvt_group *group = &s->group[place->group];
	int64_t block = place->index[KVT_AXIS_B];
	struct kvt_tenancy at = { 0, 0 };
	bool unsure = true;
	struct kvt_tenant t;

	if (block == kvt_null_block(s, place->group))
		return KVT_HOLDS_NULL;
	if (kvt_group_forgets(s, place->group) && group->tokens_per_slot > 0)
		return forgetful_holds(s, place);
	for (int64_t r = 0; r < s->nrequests; r++)
		unsure &= !s->request[r].nblocks[place->group];
	while (kvt_next_tenant(&t, &at, s, place)) {
		if (t.token >= 0 || group->tokens_per_slot < 1)
			return KVT_HOLDS_LIVE;
		unsure = true;
	}
	if (group->block_valid)
		return place->index[KVT_AXIS_S] < group->block_valid[block] ?
		       KVT_HOLDS_LIVE : KVT_HOLDS_STALE;
	return unsure ? KVT_HOLDS_UNKNOWN : KVT_HOLDS_STALE;
}

const char *kvt_holding_name(enum kvt_holding holding)
{
	static const char *const names[] = {
		[KVT_HOLDS_UNKNOWN] = "unknown", [KVT_HOLDS_LIVE] = "live",
		[KVT_HOLDS_STALE] = "stale", [KVT_HOLDS_NULL] = "null",
	};

	return names[holding];
}
