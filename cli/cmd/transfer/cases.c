/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases.c - small reference cases, computed anew
 *
 * Nothing that a case says about its result is read.
 */
#include "formats/parse/sha256.h"
#include "cli/cmd/transfer/options.h"
#include "cli/json_out.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct small_case {
	const char *path, *name;
	json_t *object;
	struct kvt_transfer_end src, dst;
	uint32_t *ids[2];
	int64_t tokens;
	enum kvt_scope scope;
};

static enum kvt_status get_int(int64_t *out, const struct small_case *c,
			       const char *key, struct kvt_error *err)
{
	json_t *value = json_object_get(c->object, key);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: case %s: '%s' is no whole number of 0 or more",
				c->path, c->name, key);
	*out = json_integer_value(value);
	return KVT_OK;
}

static enum kvt_status get_text(const char **out, const struct small_case *c,
				const char *key, struct kvt_error *err)
{
	*out = json_string_value(json_object_get(c->object, key));
	if (!*out)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: case %s: '%s' is no text",
				c->path, c->name, key);
	return KVT_OK;
}

static enum kvt_status get_scope(struct small_case *c, struct kvt_error *err)
{
	const char *text;
	enum kvt_status status = get_text(&text, c, "scope", err);
	int scope = 0;

	if (status)
		return status;
	while (scope < KVT_NSCOPES && strcmp(kvt_scope_name(scope), text))
		scope++;
	if (scope == KVT_NSCOPES)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: case %s: scope is '%.40s', expected max, rfc or "
				"layer", c->path, c->name, text);
	c->scope = scope;
	return KVT_OK;
}

static enum kvt_status get_ids(struct small_case *c, int side, const char *key,
			       struct kvt_block_table *table, struct kvt_error *err)
{
	json_t *list = json_object_get(c->object, key);
	size_t n = json_array_size(list);

	if (!json_is_array(list))
		return kvt_fail(err, KVT_BAD_INPUT, "%s: case %s: '%s' is no list",
				c->path, c->name, key);
	if (!(c->ids[side] = malloc((n + 1) * sizeof(uint32_t))))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (size_t i = 0; i < n; i++) {
		json_t *id = json_array_get(list, i);

		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) > UINT32_MAX)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: case %s: '%s' holds what is no block id",
					c->path, c->name, key);
		c->ids[side][i] = (uint32_t)json_integer_value(id);
	}
	table->ids = c->ids[side];
	table->nids = (int64_t)n;
	return KVT_OK;
}

static enum kvt_status get_end(struct small_case *c, int side,
			       struct kvt_transfer_end *end, struct kvt_error *err)
{
	static const char *const keys[2][5] = {
		{ "src_tp", "src_block_size", "src_pool_blocks", "src_layout",
		  "src_block_ids" },
		{ "dst_tp", "dst_block_size", "dst_pool_blocks", "dst_layout",
		  "dst_block_ids" },
	};
	const char *const *key = keys[side];
	const char *layout;
	enum kvt_status status;

	end->spec = (struct kvt_spec){ .kind = KVT_FULL_ATTENTION,
				       .tokens_per_state = { 1, 1 } };
	if ((status = get_int(&end->layers, c, "layers", err)) ||
	    (status = get_int(&end->spec.total_heads, c, "kv_heads", err)) ||
	    (status = get_int(&end->spec.state_content_size, c, "content_bytes", err)) ||
	    (status = get_int(&end->ranks, c, key[0], err)) ||
	    (status = get_int(&end->spec.block_size, c, key[1], err)) ||
	    (status = get_int(&end->table.pool, c, key[2], err)) ||
	    (status = get_text(&layout, c, key[3], err)) ||
	    (status = get_ids(c, side, key[4], &end->table, err)))
		return status;
	end->table.states = end->spec.block_size;
	status = kvt_layout_parse(&end->layout, layout, err);
	return status == KVT_USAGE ? KVT_BAD_INPUT : status;
}

/* ---- computing ---------------------------------------------------------- */

struct pair_sum {
	int64_t ops, bytes;
	struct sha256_text hash;
};

static enum kvt_status hash_pair(struct pair_sum *out, const struct kvt_nest *nest,
				 enum kvt_scope scope)
{
	struct pair_sum sum = { 0 };
	struct sha256 hash;
	struct kvt_ops ops;
	struct kvt_op op;
	char line[80];

	kvt_sha256_start(&hash);
	kvt_ops_start(&ops, nest, scope);
	while (kvt_op_next(&op, &ops)) {
		int n = snprintf(line, sizeof(line),
				 "%" PRId64 " %" PRId64 " %" PRId64 "\n",
				 op.src, op.dst, op.len);

		kvt_sha256_add(&hash, line, (size_t)n);
		sum.ops++;
		sum.bytes += op.len;
	}
	sum.hash = kvt_sha256_end(&hash);
	*out = sum;
	return KVT_OK;
}

static enum kvt_status put_pairs(struct json_out *out, json_t *object,
				 const struct kvt_transfer_group *g, enum kvt_scope scope,
				 struct kvt_error *err)
{
	json_t *pairs = json_put_array(out, object, "pairs");
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_pair pair;
	enum kvt_status status;

	while (kvt_pair_next(&pair, &walk, &g->xfer)) {
		json_t *o = json_append_object(out, pairs), *heads;
		struct pair_sum sum;
		struct kvt_nest nest;

		if ((status = kvt_nest_init(&nest, &g->xfer, &pair, err)) ||
		    (status = hash_pair(&sum, &nest, scope)))
			return status;
		json_put_int(out, o, "src_rank", pair.src_rank);
		json_put_int(out, o, "dst_rank", pair.dst_rank);
		heads = json_put_array(out, o, "heads");
		for (int64_t i = 0; i < pair.exchange.range[0].count; i++)
			json_append_int(out, heads, pair.global + i);
		json_put_int(out, o, "ops", sum.ops);
		json_put_int(out, o, "bytes", sum.bytes);
		json_put_text(out, o, "sha256", sum.hash.s);
	}
	return KVT_OK;
}

static enum kvt_status print_case(const struct small_case *c,
				  const struct kvt_transfer_group *g,
				  struct kvt_figures *f, struct kvt_error *err)
{
	struct json_out out = { json_object(), false };
	enum kvt_status status;

	if ((status = kvt_figures_add(f, g, c->scope, err)))
		return status;
	json_put_text(&out, out.root, "name", c->name);
	json_put_int(&out, out.root, "ops", f->tally.ops);
	json_put_int(&out, out.root, "bytes", f->tally.bytes);
	json_put_int(&out, out.root, "op_min", kvt_sizes_at(&f->sizes, 0));
	json_put_int(&out, out.root, "op_median",
		     kvt_sizes_at(&f->sizes, (f->tally.ops - 1) / 2));
	json_put_int(&out, out.root, "op_max", kvt_sizes_at(&f->sizes, f->tally.ops - 1));
	status = put_pairs(&out, out.root, g, c->scope, err);
	if (!status)
		status = json_print(&out, true, err);
	json_free(&out);
	return status;
}

static enum kvt_status run_case(struct small_case *c, struct kvt_error *err)
{
	struct kvt_transfer_group group;
	struct kvt_figures figures;
	enum kvt_status status;

	if ((status = get_int(&c->tokens, c, "tokens", err)) ||
	    (status = get_scope(c, err)) ||
	    (status = get_end(c, 0, &c->src, err)) ||
	    (status = get_end(c, 1, &c->dst, err)))
		return status;
	if ((status = kvt_transfer_group_init_one(&group, c->name, &c->src, &c->dst, 0,
						  c->tokens, err)))
		return status;
	if (!(status = kvt_figures_init(&figures, err))) {
		status = print_case(c, &group, &figures, err);
		kvt_figures_free(&figures);
	}
	kvt_transfer_group_free(&group);
	return status;
}

static bool cannot_open(const json_error_t *why)
{
	return json_error_code(why) == json_error_cannot_open_file;
}

enum kvt_status transfer_cases(const char *path, struct kvt_error *err)
{
	json_error_t why;
	json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why), *cases;
	enum kvt_status status = KVT_OK;

	if (!root)
		return kvt_fail(err, cannot_open(&why) ? KVT_SYSTEM : KVT_BAD_INPUT,
				"%s:%d: %s", path, why.line, why.text);
	cases = json_object_get(root, "cases");
	if (!json_is_array(cases))
		status = kvt_fail(err, KVT_BAD_INPUT, "%s: there is no list 'cases'",
				  path);
	for (size_t i = 0; !status && i < json_array_size(cases); i++) {
		struct small_case c = { .path = path,
					.object = json_array_get(cases, i) };

		c.name = json_string_value(json_object_get(c.object, "name"));
		if (!c.name)
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s: case %zu has no name", path, i);
		else
			status = run_case(&c, err);
		free(c.ids[0]);
		free(c.ids[1]);
	}
	json_decref(root);
	return status;
}
