/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases.c FILE - small reference cases, computed anew: an object a line, as in
 * testdata/golden/transfer_cases.json
 *
 * Nothing that a case says about its result is read.
 */
#include "tests/reference/reference.h"

#include <inttypes.h>

#include <jansson.h>

#include "lib/hash/sha256.h"
#include "sim/ops/transfer.h"

struct small_case {
	const char *name;
	json_t *object;
	struct kvt_transfer_end end[2];
	uint32_t *ids[2];
	int64_t tokens;
	enum kvt_scope scope;
};

static int64_t get_int(const struct small_case *c, const char *key)
{
	json_t *value = json_object_get(c->object, key);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		wrong(c->name, "there is no whole number where one should be");
	return json_integer_value(value);
}

static const char *get_text(const struct small_case *c, const char *key)
{
	const char *text = json_string_value(json_object_get(c->object, key));

	if (!text)
		wrong(c->name, "there is no text where one should be");
	return text;
}

static void get_ids(struct small_case *c, int side, const char *key)
{
	json_t *list = json_object_get(c->object, key);
	size_t n = json_array_size(list);
	uint32_t *ids = c->ids[side] = room(n * sizeof(*ids));

	if (!json_is_array(list))
		wrong(c->name, "block ids are no list");
	for (size_t i = 0; i < n; i++) {
		json_t *id = json_array_get(list, i);

		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) > UINT32_MAX)
			wrong(c->name, "what is no block id");
		ids[i] = (uint32_t)json_integer_value(id);
	}
	c->end[side].table.ids = ids;
	c->end[side].table.nids = (int64_t)n;
}

static void get_end(struct small_case *c, int side)
{
	static const char *const keys[2][5] = {
		{ "src_tp", "src_block_size", "src_pool_blocks", "src_layout",
		  "src_block_ids" },
		{ "dst_tp", "dst_block_size", "dst_pool_blocks", "dst_layout",
		  "dst_block_ids" },
	};
	const char *const *key = keys[side];
	struct kvt_transfer_end *end = &c->end[side];
	struct kvt_error err;

	end->spec = (struct kvt_spec){
		.kind = KVT_FULL_ATTENTION, .tokens_per_slot = { 1, 1 },
		.total_heads = get_int(c, "kv_heads"),
		.content_size = get_int(c, "content_bytes"),
		.block_size = get_int(c, key[1]),
	};
	end->layers = get_int(c, "layers");
	end->ranks = get_int(c, key[0]);
	end->table.pool = get_int(c, key[2]);
	end->table.slots = end->spec.block_size;
	if (kvt_layout_parse(&end->layout, get_text(c, key[3]), &err))
		wrong(c->name, err.text);
	get_ids(c, side, key[4]);
}

/* ---- computing ---------------------------------------------------------- */

static json_t *take(json_t *made)
{
	if (!made)
		wrong("jansson", "out of memory");
	return made;
}

static json_t *sum_pair(const struct small_case *c, const struct kvt_pair *pair,
			const struct kvt_nest *nest)
{
	int64_t nops = 0, nbytes = 0;
	json_t *heads = take(json_array());
	struct sha256 hash;
	struct kvt_ops ops;
	struct kvt_op op;
	char line[80];

	kvt_sha256_start(&hash);
	kvt_ops_start(&ops, nest, c->scope);
	while (kvt_op_next(&op, &ops)) {
		int n = snprintf(line, sizeof(line),
				 "%" PRId64 " %" PRId64 " %" PRId64 "\n",
				 op.src, op.dst, op.len);

		kvt_sha256_add(&hash, line, (size_t)n);
		nops++;
		nbytes += op.len;
	}
	for (int64_t i = 0; i < pair->exchange.range[0].count; i++)
		json_array_append_new(heads, json_integer(pair->global + i));
	return take(json_pack("{sI sI so sI sI ss}",
			      "src_rank", (json_int_t)pair->src_rank,
			      "dst_rank", (json_int_t)pair->dst_rank, "heads", heads,
			      "ops", (json_int_t)nops, "bytes", (json_int_t)nbytes,
			      "sha256", kvt_sha256_end(&hash).s));
}

static void print_case(const struct small_case *c, const struct kvt_transfer_group *g,
		       struct kvt_figures *f)
{
	json_t *pairs = take(json_array()), *out;
	struct kvt_pair_walk walk = { 0, 0 };
	int64_t n;
	struct kvt_pair pair;
	struct kvt_error err;

	must(kvt_figures_add(f, g, c->scope, &err), c->name, &err);
	while (kvt_pair_next(&pair, &walk, &g->xfer)) {
		struct kvt_nest nest;

		must(kvt_nest_init(&nest, &g->xfer, &pair, &err), c->name, &err);
		json_array_append_new(pairs, sum_pair(c, &pair, &nest));
	}
	n = f->tally.ops;
	out = take(json_pack("{ss sI sI sI sI sI so}", "name", c->name,
			     "ops", (json_int_t)n, "bytes", (json_int_t)f->tally.bytes,
			     "op_min", (json_int_t)kvt_sizes_at(&f->sizes, 0),
			     "op_median", (json_int_t)kvt_sizes_at(&f->sizes, (n - 1) / 2),
			     "op_max", (json_int_t)kvt_sizes_at(&f->sizes, n - 1),
			     "pairs", pairs));
	json_dumpf(out, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(out);
}

static void run_case(struct small_case *c)
{
	struct kvt_transfer_group group;
	struct kvt_transfer_move move;
	struct kvt_figures figures;
	struct kvt_error err;

	c->tokens = get_int(c, "tokens");
	c->scope = scope_of(c->name, get_text(c, "scope"));
	get_end(c, 0);
	get_end(c, 1);
	move = (struct kvt_transfer_move){ c->end[0].table, c->end[1].table, 0,
					   c->tokens };
	must(kvt_transfer_group_init(&group, c->name, &c->end[0], &c->end[1], &move, 1,
				     &err), c->name, &err);
	must(kvt_figures_init(&figures, &err), c->name, &err);
	print_case(c, &group, &figures);
	kvt_figures_free(&figures);
	kvt_transfer_group_free(&group);
	free(c->ids[0]);
	free(c->ids[1]);
}

int main(int argc, char **argv)
{
	const char *path = argc == 2 ? argv[1] : "FILE";
	json_error_t why;
	json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why), *list;

	if (!root)
		wrong(path, why.text);
	list = json_object_get(root, "cases");
	if (!json_is_array(list))
		wrong(path, "there is no list 'cases'");
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct small_case c = { .object = json_array_get(list, i) };

		c.name = json_string_value(json_object_get(c.object, "name"));
		if (!c.name)
			wrong(path, "a case has no name");
		run_case(&c);
	}
	json_decref(root);
	return 0;
}
