/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c - the manifest of a snapshot
 *
 *	{"file": "kv.npy", "file_bytes": .., "sample_crc32": .., "npy_dtype": "<u2",
 *	 "file_shape": [..],			of which file: proof.c; and its array
 *	 "model": .., "source_format": .., "tp_size": .., .., "null_block": ..,
 *	 "num_tokens": {"A": 21}, "token_ids": {"A": [..]},	requests, by their id
 *	 "groups": [
 *	  {"id": "g0", "kind": "full_attention", "layout": "LBKSHD", "dtype": ..,
 *	   "sizes": {"layers": .., "num_blocks": .., "block_size": .., ..},
 *	   "layer_names": [..], "block_ids": [..], ..,	tables
 *	   "block_table": {"A": [5, 2]}}]}		of each request, ids of blocks
 *
 * With one group its keys are those of the object itself, without "groups".
 * kvtool-manifest(5) has all keys and what they mean.
 *
 * Everything that the snapshot holds is in it, so that reading it back gives
 * the same one: with kinds, totals and layouts spelled out even where a reader
 * could derive them.
 */
#include "formats/format.h"
#include "formats/parse/json.h"

#include <string.h>

#include <jansson.h>

/*
 * Building JSON fails only for lack of memory or for text that is no UTF-8.
 * Both make 'ok' false, and what was built is thrown away at the end.
 */
struct text {
	bool ok;
};

static void put(struct text *t, json_t *object, const char *key, json_t *value)
{
	/* takes 'value', also on failure */
	if (json_object_set_new(object, key, value))
		t->ok = false;
}

static void append(struct text *t, json_t *array, json_t *value)
{
	if (json_array_append_new(array, value))
		t->ok = false;
}

static void put_int(struct text *t, json_t *object, const char *key, int64_t n)
{
	put(t, object, key, json_integer(n));
}

static void put_string(struct text *t, json_t *object, const char *key, const char *s)
{
	if (s)
		put(t, object, key, json_string(s));
}

/* ---- groups ------------------------------------------------------------- */

static json_t *sizes_of(struct text *t, const struct kvt_group *group)
{
	json_t *sizes = json_object();
	const int64_t *n = group->shape.n;

	put_int(t, sizes, "layers", n[KVT_AXIS_L]);
	put_int(t, sizes, "num_blocks", n[KVT_AXIS_B]);
	put_int(t, sizes, "block_size", group->block_size);
	/* elsewhere it follows from the block size */
	if (group->tokens_per_slot < 1)
		put_int(t, sizes, "slots", n[KVT_AXIS_S]);
	put_int(t, sizes, "num_kv_heads", n[KVT_AXIS_H]);
	put_int(t, sizes, n[KVT_AXIS_K] == 2 ? "head_dim" : "content", n[KVT_AXIS_D]);
	return sizes;
}

static json_t *components_of(struct text *t, const struct kvt_group *group)
{
	json_t *list = json_array();

	for (int i = 0; i < group->ncomponents; i++) {
		const struct kvt_component *c = &group->component[i];
		json_t *entry = json_object();

		put_string(t, entry, "name", c->name);
		put_int(t, entry, "start", c->start);
		put_int(t, entry, "length", c->length);
		put_int(t, entry, "global_start", c->global_start);
		append(t, list, entry);
	}
	return list;
}

static json_t *strings_of(struct text *t, char *const *strings, int64_t n)
{
	json_t *list = json_array();

	for (int64_t i = 0; i < n; i++)
		append(t, list, json_string(strings[i]));
	return list;
}

static json_t *u32_of(struct text *t, const uint32_t *table, int64_t n)
{
	json_t *list = json_array();

	for (int64_t i = 0; i < n; i++)
		append(t, list, json_integer(table[i]));
	return list;
}

static void put_tables(struct text *t, json_t *out, const struct kvt_group *group)
{
	int64_t layers = group->shape.n[KVT_AXIS_L], blocks = group->shape.n[KVT_AXIS_B];

	if (group->layer_names)
		put(t, out, "layer_names", strings_of(t, group->layer_names, layers));
	if (group->layer_ids)
		put(t, out, "layer_ids", u32_of(t, group->layer_ids, layers));
	if (group->block_ids) {
		json_t *list = json_array();

		for (int64_t i = 0; i < blocks; i++)
			append(t, list, json_integer((json_int_t)group->block_ids[i]));
		put(t, out, "block_ids", list);
	}
	if (group->block_valid)
		put(t, out, "block_valid", u32_of(t, group->block_valid, blocks));
	if (group->block_names)
		put(t, out, "block_names", strings_of(t, group->block_names, blocks));
}

static int64_t id_of(const struct kvt_group *group, int64_t index)
{
	return (int64_t)kvt_block_id(group, index);
}

/* What is live, beside the tables. */
static void put_retention(struct text *t, json_t *out, const struct kvt_group *group)
{
	if (group->window)
		put_int(t, out, "window", group->window);
	if (group->retained)
		put_int(t, out, "retained_tokens", group->retained);
	if (group->pool[0])
		put_string(t, out, "pool", group->pool);
}

static void put_state(struct text *t, json_t *out, const struct kvt_group *group)
{
	int64_t shape[KVT_STATE_AXES];
	int n = kvt_group_state_shape(shape, group);
	json_t *list;

	if (group->state_order)
		put_string(t, out, "state_order",
			   kvt_state_order_name(group->state_order));
	if (!n)
		return;
	list = json_array();
	for (int i = 0; i < n; i++)
		append(t, list, json_integer(shape[i]));
	put(t, out, "state_shape", list);
}

/* Of what its numbers were made, and what elements are to be multiplied by. */
static void put_cast(struct text *t, json_t *out, const struct kvt_group *group)
{
	const int64_t heads = group->scale_heads;
	json_t *cast = json_object(), *all = json_array();
	const float *scale = group->scales;

	put_string(t, cast, "from", group->cast_from);
	for (int64_t l = 0; scale && l < group->shape.n[KVT_AXIS_L]; l++) {
		json_t *layer = json_array();

		for (int k = 0; k < 2; k++, scale += heads) {
			json_t *half = json_array();

			for (int64_t h = 0; h < heads; h++)
				append(t, half, json_real((double)scale[h]));
			append(t, layer, half);
		}
		append(t, all, layer);
	}
	if (group->scales)
		put(t, cast, "scales", all);
	else
		json_decref(all);
	put(t, out, "cast", cast);
}

static void put_group(struct text *t, json_t *out, const struct kvt_group *group)
{
	if (strcmp(group->id, "g0"))
		put_string(t, out, "id", group->id);
	put_string(t, out, "kind", kvt_kind_name(group->kind));
	put_string(t, out, "layout", kvt_layout_string(&group->layout).s);
	put_string(t, out, "dtype", group->dtype->name);
	if (group->content.type)
		put_string(t, out, "content_type", kvt_content_name(&group->content).s);
	put(t, out, "sizes", sizes_of(t, group));
	put_state(t, out, group);
	put_int(t, out, "tokens_per_slot", group->tokens_per_slot);
	put_int(t, out, "total_kv_heads", group->total_heads);
	put_int(t, out, "head_start", group->head_start);
	put_int(t, out, "head_count", group->shape.n[KVT_AXIS_H]);
	put_int(t, out, "replicas", group->replication);
	if (group->page_bytes) {
		put_int(t, out, "page_bytes", group->page_bytes);
		put_int(t, out, "page_offset", group->page_offset);
	}
	put_retention(t, out, group);
	if (group->cast_from[0])
		put_cast(t, out, group);
	if (group->ncomponents)
		put(t, out, "content", components_of(t, group));
	put_tables(t, out, group);
}

/* ---- requests ----------------------------------------------------------- */

/* [[begin, end], ...] of the requests that lack positions in this group. */
static void put_holes(struct text *t, json_t *out, const struct kvt_snapshot *s, int g)
{
	json_t *all = json_object();

	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_request *request = &s->request[r];
		json_t *list;

		if (!kvt_request_missing(request, g))
			continue;
		list = json_array();
		for (int64_t i = 0; i < request->nholes; i++)
			if (request->hole[i].group == g)
				append(t, list, json_pack("[II]",
					(json_int_t)request->hole[i].begin,
					(json_int_t)request->hole[i].end));
		put(t, all, request->id, list);
	}
	if (json_object_size(all))
		put(t, out, "holes", all);
	else
		json_decref(all);
}

static void put_block_tables(struct text *t, json_t *out, const struct kvt_snapshot *s,
			     int g)
{
	json_t *tables = json_object();

	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_request *request = &s->request[r];
		json_t *list;

		if (!request->blocks[g])
			continue;
		list = json_array();
		for (int64_t i = 0; i < request->nblocks[g]; i++)
			append(t, list, json_integer(id_of(&s->group[g],
							   request->blocks[g][i])));
		put(t, tables, request->id, list);
	}
	put(t, out, "block_table", tables);
	put_holes(t, out, s, g);
}

/* Takes 'object', which is left out if it is empty. */
static void put_some(struct text *t, json_t *out, const char *key, json_t *object)
{
	if (json_object_size(object))
		put(t, out, key, object);
	else
		json_decref(object);
}

static void put_requests(struct text *t, json_t *out, const struct kvt_snapshot *s)
{
	json_t *tokens = json_object(), *ids = json_object(), *first = json_object();
	json_t *prompt = json_object();

	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_request *request = &s->request[r];
		json_t *list;

		put_int(t, tokens, request->id, request->ntokens);
		if (request->first_token)
			put_int(t, first, request->id, request->first_token);
		if (request->prompt_tokens)
			put_int(t, prompt, request->id, request->prompt_tokens);
		if (!request->token_ids)
			continue;
		list = json_array();
		for (int64_t i = 0; i < request->ntoken_ids; i++)
			append(t, list, json_integer(request->token_ids[i]));
		put(t, ids, request->id, list);
	}
	put(t, out, "num_tokens", tokens);
	put_some(t, out, "first_token", first);
	put_some(t, out, "prompt_tokens", prompt);
	put_some(t, out, "token_ids", ids);
}

/* ---- the whole ---------------------------------------------------------- */

static void put_parallel(struct text *t, json_t *out, const struct kvt_parallel *p)
{
	put_int(t, out, "tp_size", p->tp_size);
	put_int(t, out, "tp_rank", p->tp_rank);
	put_int(t, out, "pp_size", p->pp_size);
	put_int(t, out, "pp_rank", p->pp_rank);
	put_int(t, out, "dp_size", p->dp_size);
	put_int(t, out, "dp_rank", p->dp_rank);
	put_int(t, out, "dcp_size", p->dcp_size);
	put_int(t, out, "dcp_rank", p->dcp_rank);
}

static void put_file(struct text *t, json_t *out, const struct kvt_data_file *file)
{
	json_t *shape = json_array();

	put_string(t, out, "file", file->name);
	if (file->sum) {
		put_int(t, out, "file_bytes", file->sum->nbytes);
		put_int(t, out, "sample_crc32", file->sum->crc32);
	}
	put_string(t, out, "npy_dtype", file->npy_dtype);
	if (file->skip)
		put_int(t, out, "skip", file->skip);
	if (file->tensor.row_bytes) {
		put_int(t, out, "rows", file->tensor.rows);
		put_int(t, out, "row_bytes", file->tensor.row_bytes);
	}
	for (int i = 0; i < file->rank; i++)
		append(t, shape, json_integer(file->shape[i]));
	if (file->rank)
		put(t, out, "file_shape", shape);
	else
		json_decref(shape);
}

static int64_t null_id(const struct kvt_snapshot *s, int g)
{
	int64_t block = kvt_null_block(s, g);

	return block < 0 ? -1 : id_of(&s->group[g], block);
}

/* Said once, it is looked up among the blocks of each group. */
static bool has_one_null(const struct kvt_snapshot *s)
{
	for (int g = 1; g < s->ngroups; g++)
		if (null_id(s, g) != null_id(s, 0))
			return false;
	return true;
}

static void put_snapshot(struct text *t, json_t *out, const struct kvt_snapshot *s)
{
	json_t *groups;

	put_string(t, out, "model", s->model);
	put_string(t, out, "source_format", s->source_format);
	put_string(t, out, "note", s->note);
	if (s->has_parallel)
		put_parallel(t, out, &s->parallel);
	if (has_one_null(s) && null_id(s, 0) >= 0)
		put_int(t, out, "null_block", null_id(s, 0));
	if (s->nrequests)
		put_requests(t, out, s);
	if (s->ngroups == 1) {
		put_group(t, out, &s->group[0]);
		if (s->nrequests)
			put_block_tables(t, out, s, 0);
		return;
	}
	groups = json_array();
	for (int g = 0; g < s->ngroups; g++) {
		json_t *group = json_object();

		put_group(t, group, &s->group[g]);
		if (!has_one_null(s))
			put_int(t, group, "null_block", null_id(s, g));
		if (s->nrequests)
			put_block_tables(t, group, s, g);
		append(t, groups, group);
	}
	put(t, out, "groups", groups);
}

char *kvt_manifest_text(const struct kvt_snapshot *snapshot,
			const struct kvt_data_file *file)
{
	struct text t = { true };
	json_t *out = json_object();
	char *text = NULL;

	put_file(&t, out, file);
	put_snapshot(&t, out, snapshot);
	if (t.ok)
		text = kvt_json_dump(out, JSON_COMPACT);
	json_decref(out);
	return text;
}
