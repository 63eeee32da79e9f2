/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requests.c - requests and their block tables
 *
 *	"num_tokens": {"A": 21}			of the dump
 *	"block_table": {"A": [5, 2, 9]}		of each group: ids in the order of tokens
 *
 * A manifest names blocks by their id in the engine's pool, a snapshot by their index on
 * the B axis.  Both are the same unless there is a list block_ids.
 */
#include "formats/manifest/manifest.h"
#include "lib/base/order.h"

#include <stdlib.h>
#include <string.h>

/* ---- ids to indices ----------------------------------------------------- */

struct id {
	uint64_t id;
	uint32_t index;
};

/* Of one group; sorted by id.  count -1: ids are indices. */
struct ids {
	struct id *id;
	int64_t count;
};

static void read_ids(struct ids *out, const struct kvt_group *group,
		     const struct kvt_json *in)
{
	int64_t n = group->shape.n[KVT_AXIS_B];

	*out = (struct ids){ .count = -1 };
	if (!group->block_ids)
		return;
	if (n > UINT32_MAX || !(out->id = calloc(n ? (size_t)n : 1, sizeof(*out->id)))) {
		kvt_json_no_memory(in);
		return;
	}
	for (int64_t i = 0; i < n; i++)
		out->id[i] = (struct id){ group->block_ids[i], (uint32_t)i };
	qsort(out->id, (size_t)n, sizeof(*out->id), kvt_by_uint64);
	out->count = n;
	for (int64_t i = 1; i < n; i++)
		if (out->id[i].id == out->id[i - 1].id)
			kvt_json_bad(in, "block_ids has %llu twice",
				     (unsigned long long)out->id[i].id);
}

/* -1: not in this dump. */
static int64_t find_id(const struct ids *ids, int64_t id)
{
	struct id key = { (uint64_t)id, 0 };
	const struct id *found;

	if (ids->count < 0)
		return id;
	found = bsearch(&key, ids->id, (size_t)ids->count, sizeof(key), kvt_by_uint64);
	return found ? (int64_t)found->index : -1;
}

/* ---- names of requests -------------------------------------------------- */

/* Appends the keys of an object; the JSON object 'index' is a set in order. */
static void add_names(json_t *index, const struct kvt_json *in, const char *key)
{
	struct kvt_json object;
	const char *name;
	json_t *value;

	kvt_json_object(&object, in, key);
	json_object_foreach((json_t *)object.object, name, value) {
		json_int_t next = (json_int_t)json_object_size(index);

		if (!json_object_get(index, name) &&
		    json_object_set_new(index, name, json_integer(next)))
			kvt_json_no_memory(in);
	}
}

static void collect_names(json_t *index, const struct kvt_json *in, const json_t *groups)
{
	add_names(index, in, "num_tokens");
	add_names(index, in, "tokens_seen");
	add_names(index, in, "block_table");
	add_names(index, in, "token_ids");
	for (size_t g = 0; g < json_array_size(groups); g++) {
		struct kvt_json group = kvt_json_of(in, json_array_get(groups, g));

		add_names(index, &group, "block_table");
	}
}

/* ---- one request -------------------------------------------------------- */

static void take_ntokens(struct kvt_request *request, const struct kvt_json *in)
{
	struct kvt_json tokens, seen, first, prompt;
	const json_t *list = NULL;
	int64_t n = -1;

	kvt_json_object(&tokens, in, "num_tokens");
	kvt_json_object(&seen, in, "tokens_seen");
	kvt_json_object(&first, in, "first_token");
	kvt_json_object(&prompt, in, "prompt_tokens");
	kvt_json_int(&request->first_token, &first, request->id, 0, KVT_MOST);
	kvt_json_int(&request->prompt_tokens, &prompt, request->id, 0, KVT_MOST);
	kvt_json_int(&n, &tokens, request->id, 0, KVT_MOST);
	kvt_json_array(&list, &seen, request->id);
	/* recurrent states: one entry a block, the last is where it stands */
	if (n < 0 && json_array_size(list))
		kvt_json_int_at(&n, &seen, request->id, list, json_array_size(list) - 1,
				0, KVT_MOST);
	if (n < 0)
		kvt_json_bad(in, "num_tokens lacks request %.64s", request->id);
	request->ntokens = n;
}

static void take_token_ids(struct kvt_request *request, const struct kvt_json *in)
{
	struct kvt_json object;
	const json_t *list = NULL;
	size_t n;

	kvt_json_object(&object, in, "token_ids");
	kvt_json_array(&list, &object, request->id);
	if (!list)
		return;
	n = json_array_size(list);
	request->token_ids = calloc(n ? n : 1, sizeof(*request->token_ids));
	if (!request->token_ids)
		kvt_json_no_memory(in);
	else
		request->ntoken_ids = (int64_t)n;
	for (size_t i = 0; i < n && !*in->status; i++) {
		int64_t id = 0;

		kvt_json_int_at(&id, &object, request->id, list, i, INT32_MIN, INT32_MAX);
		request->token_ids[i] = (int32_t)id;
	}
}

static void take_table(struct kvt_request *request, int g, const struct kvt_json *tables,
		       const struct ids *ids)
{
	const json_t *list = NULL;
	size_t n;

	kvt_json_array(&list, tables, request->id);
	if (!list)
		return;
	n = json_array_size(list);
	request->blocks[g] = calloc(n ? n : 1, sizeof(*request->blocks[g]));
	if (!request->blocks[g])
		kvt_json_no_memory(tables);
	else
		request->nblocks[g] = (int64_t)n;
	for (size_t i = 0; i < n && !*tables->status; i++) {
		int64_t id = 0, index;

		kvt_json_int_at(&id, tables, request->id, list, i, 0,
				ids->count < 0 ? UINT32_MAX : KVT_MOST);
		index = find_id(ids, id);
		if (index < 0)
			kvt_json_bad(tables,
				     "request %.64s: block %lld is not in block_ids",
				     request->id, LL(id));
		request->blocks[g][i] = (uint32_t)index;
	}
}

static void take_holes_of(struct kvt_request *request, int g,
			  const struct kvt_json *holes)
{
	const json_t *list = NULL;

	kvt_json_array(&list, holes, request->id);
	for (size_t i = 0; !*holes->status && i < json_array_size(list); i++) {
		const json_t *pair = json_array_get(list, i);
		int64_t at[2] = { 0, 0 };

		if (json_array_size(pair) != 2)
			kvt_json_bad(holes,
				     "holes of request %.64s are not pairs of positions",
				     request->id);
		for (size_t k = 0; k < 2; k++)
			kvt_json_int_at(&at[k], holes, request->id, pair, k, 0, KVT_MOST);
		if (!*holes->status && !kvt_request_add_hole(request, g, at[0], at[1]))
			kvt_json_no_memory(holes);
	}
}

/* Positions that requests lack, of a group or of all of them. */
static void take_holes(struct kvt_snapshot *out, int g, const struct kvt_json *in,
		       const json_t *groups)
{
	struct kvt_json object = kvt_json_of(in, json_array_get(groups, (size_t)g));
	struct kvt_json holes;

	kvt_json_object(&holes, &object, "holes");
	if (!holes.object && out->group[g].tokens_per_slot >= 0)
		kvt_json_object(&holes, in, "holes");
	for (int64_t r = 0; r < out->nrequests; r++)
		take_holes_of(&out->request[r], g, &holes);
}

/* The tables of a group: its own, or those that hold for all groups. */
static void take_tables(struct kvt_snapshot *out, int g, const struct kvt_json *in,
			const json_t *groups, const struct ids *ids)
{
	struct kvt_json object = kvt_json_of(in, json_array_get(groups, (size_t)g));
	struct kvt_json tables;

	kvt_json_object(&tables, &object, "block_table");
	if (!tables.object)
		kvt_json_object(&tables, in, "block_table");
	for (int64_t r = 0; r < out->nrequests; r++)
		take_table(&out->request[r], g, &tables, ids);
}

/* ---- all of it ---------------------------------------------------------- */

static void take_names(struct kvt_snapshot *out, json_t *index, const struct kvt_json *in)
{
	size_t n = json_object_size(index);
	const char *name;
	json_t *value;

	if (*in->status || !n)
		return;
	if (!(out->request = calloc(n, sizeof(*out->request)))) {
		kvt_json_no_memory(in);
		return;
	}
	json_object_foreach(index, name, value) {
		struct kvt_request *request = &out->request[out->nrequests++];

		if (!(request->id = strdup(name))) {
			kvt_json_no_memory(in);
			return;
		}
		take_ntokens(request, in);
		take_token_ids(request, in);
	}
}

/*
 * Its own one must be among its blocks.  One that is said for all groups is that of
 * those which have it: where only used blocks were kept, a group may have used none.
 */
static void take_null_block(struct kvt_snapshot *out, int g, const struct kvt_json *in,
			    const json_t *groups, const struct ids *ids)
{
	struct kvt_json object = kvt_json_of(in, json_array_get(groups, (size_t)g));
	int64_t all = -1, own = -2, index;

	kvt_json_int(&all, in, "null_block", -1, KVT_MOST);
	kvt_json_int(&own, &object, "null_block", -1, KVT_MOST);
	if (own > -2)
		all = own;
	index = all < 0 ? -1 : find_id(ids, all);
	kvt_set_null(out, g, index);
	if (own >= 0 && index < 0)
		kvt_json_bad(in, "group %s: null block %lld is not in block_ids",
			     out->group[g].id, LL(own));
}

/*
 * Tokens a block, where only tokens_seen tells: all states of a request but its
 * last are taken after full blocks.
 */
static void take_interval(struct kvt_snapshot *out, const struct kvt_json *in)
{
	struct kvt_json seen;
	int64_t interval = 0;

	kvt_json_object(&seen, in, "tokens_seen");
	for (int64_t r = 0; !*in->status && r < out->nrequests; r++) {
		const json_t *list = NULL;
		int64_t n = 0;

		kvt_json_array(&list, &seen, out->request[r].id);
		if (json_array_size(list) > 1)
			kvt_json_int_at(&n, &seen, out->request[r].id, list, 0, 1,
					KVT_MOST);
		if (n && interval && n != interval)
			kvt_json_bad(in, "tokens_seen begins with %lld and with %lld",
				     LL(interval), LL(n));
		interval = n ? n : interval;
	}
	for (int g = 0; g < out->ngroups; g++)
		if (out->group[g].tokens_per_slot == -1 && out->group[g].block_size < 0)
			out->group[g].block_size = interval;
}

void kvt_manifest_requests(struct kvt_snapshot *out, const struct kvt_json *in,
			   const json_t *groups)
{
	json_t *index = json_object();

	if (!index)
		kvt_json_no_memory(in);
	collect_names(index, in, groups);
	take_names(out, index, in);
	take_interval(out, in);
	json_decref(index);
	for (int g = 0; !*in->status && g < out->ngroups; g++) {
		struct ids ids;

		read_ids(&ids, &out->group[g], in);
		take_tables(out, g, in, groups, &ids);
		take_holes(out, g, in, groups);
		take_null_block(out, g, in, groups, &ids);
		free(ids.id);
	}
	if (!*in->status && out->ngroups)
		kvt_share_null(out);
}
