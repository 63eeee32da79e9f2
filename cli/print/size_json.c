/* SPDX-License-Identifier: Apache-2.0 */
/* size_json.c - the caches of a model for programs, see kvtool-json(5) */
#include "cli/json_out.h"
#include "cli/print/size.h"

/* Whole numbers stay whole. */
static void put_number(struct json_out *out, json_t *object, const char *key, double x)
{
	if (x == (double)(int64_t)x)
		json_put_int(out, object, key, (int64_t)x);
	else
		json_put_real(out, object, key, x);
}

static void put_or_null(struct json_out *out, json_t *object, const char *key, int64_t n,
			bool known)
{
	if (known)
		json_put_int(out, object, key, n);
	else
		json_put(out, object, key, json_null());
}

static void put_caches(struct json_out *out, const struct size_report *r)
{
	const struct kvt_model *model = &r->config.model;
	json_t *array;

	json_put_text(out, out->root, "config", r->path);
	json_put_text(out, out->root, "family",
		      r->config.family[0] ? r->config.family : NULL);
	json_put_int(out, out->root, "layers", r->config.layers);
	json_put_text(out, out->root, "dtype",
		      r->config.dtype ? r->config.dtype->name : NULL);
	json_put_int(out, out->root, "block_size", r->config.block_size);
	array = json_put_array(out, out->root, "notes");
	for (int i = 0; i < r->config.nnotes; i++)
		json_append_text(out, array, r->config.note[i]);
	array = json_put_array(out, out->root, "groups");
	for (int i = 0; i < model->ngroups; i++) {
		json_t *group = json_append_object(out, array);

		json_put_text(out, group, "name", model->group[i].name);
		json_put_text(out, group, "spec",
			      kvt_model_group_text(&model->group[i]).s);
		json_put_int(out, group, "layers", model->group[i].layers);
	}
}

static void put_group(struct json_out *out, json_t *array, const struct kvt_group_size *g)
{
	json_t *group = json_append_object(out, array);
	int64_t block = g->page * g->group.layers;

	json_put_text(out, group, "name", g->group.name);
	json_put_text(out, group, "spec", kvt_model_group_text(&g->group).s);
	put_or_null(out, group, "block_size", g->block_size, g->block_size);
	json_put_int(out, group, "unpadded_bytes", g->unpadded);
	json_put_int(out, group, "page_bytes", g->page);
	json_put_int(out, group, "block_bytes", block);
	if (g->block_size)
		put_number(out, group, "token_bytes",
			   (double)block / (double)g->block_size);
	else
		json_put(out, group, "token_bytes", json_null());
	put_or_null(out, group, "replication", g->spec.replication, g->block_size);
	put_or_null(out, group, "most_blocks", g->most_blocks, g->most_blocks);
}

static void put_sums(struct json_out *out, json_t *object, const struct size_report *r,
		     const struct size_row *row)
{
	struct size_sums sums = size_sums(row);
	int64_t fit;

	json_put_int(out, object, "block_size", row->size.block_size);
	put_number(out, object, "token_bytes", sums.token);
	put_number(out, object, "window_token_bytes", sums.window);
	put_number(out, object, "all_ranks_token_bytes", sums.all_ranks);
	put_number(out, object, "unique_token_bytes", sums.unique);
	json_put_int(out, object, "window_bytes", sums.windows);
	json_put_int(out, object, "state_bytes", sums.states);
	json_put_int(out, object, "state_page_bytes", row->size.state_padded);
	put_or_null(out, object, "request_bytes",
		    kvt_model_request(&row->size, r->tokens), r->tokens);
	fit = r->memory ? size_fit(r, row) : -1;
	put_or_null(out, object, "tokens", fit, fit >= 0 && fit < KVT_ANY_TOKENS);
	json_put_bool(out, object, "fits", r->memory && fit >= 0);
}

enum kvt_status size_json(const struct size_report *r, struct kvt_error *err)
{
	struct json_out out;
	enum kvt_status status;
	json_t *array;

	json_start(&out);
	put_caches(&out, r);
	put_or_null(&out, out.root, "memory", r->memory, r->memory);
	json_put_int(&out, out.root, "requests", r->requests);
	array = json_put_array(&out, out.root, "sizes");
	for (int i = 0; i < r->nrows; i++) {
		const struct size_row *row = &r->row[i];
		json_t *object = json_append_object(&out, array), *groups;

		json_put_int(&out, object, "tp", row->tp);
		json_put_text(&out, object, "cache_dtype", row->cache_dtype);
		json_put_text(&out, object, "error",
			      row->why_not[0] ? row->why_not : NULL);
		if (row->why_not[0])
			continue;
		put_sums(&out, object, r, row);
		groups = json_put_array(&out, object, "groups");
		for (int g = 0; g < row->size.ngroups; g++)
			put_group(&out, groups, &row->size.group[g]);
	}
	status = json_print(&out, false, err);
	json_free(&out);
	return status;
}
