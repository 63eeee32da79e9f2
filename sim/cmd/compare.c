/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c - kvtool transfer-sim compare: what changed between two results
 *
 * Two trees of JSON are walked together; what is in one alone, or differs, is told with
 * its path.  Objects of a list are paired by the keys that tell them apart (identity[])
 * where they have such, whatever their order; else by place.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/opt.h"
#include "formats/parse/json.h"
#include "print/out/json_out.h"
#include "print/out/text_file.h"
#include "sim/cmd/options.h"

enum { MOST_BYTES = 64 << 20, MOST_DEPTH = 16, MOST_PATH = 512 };

struct comparison {
	int64_t differences;
	bool json, no_memory;
	struct json_out out;
	json_t *list;
};

/* What tells the objects of a list apart; their order does not count then. */
static const char *const identity[] = {
	"group", "name", "src_layout", "dst_layout", "src_block_size", "dst_block_size",
	"src_tp", "dst_tp", "scope", "sge", "stage_bytes", "src_rank", "dst_rank", "axis",
	"because", "from_bytes",
};

static bool same_identity(const json_t *a, const json_t *b)
{
	bool any = false;

	for (size_t i = 0; i < sizeof(identity) / sizeof(identity[0]); i++) {
		const json_t *x = json_object_get(a, identity[i]);
		const json_t *y = json_object_get(b, identity[i]);

		if ((!x != !y) || (x && !json_equal(x, y)))
			return false;
		any |= !!x;
	}
	return any;
}

static bool has_identity(const json_t *value)
{
	return json_is_object(value) && same_identity(value, value);
}

/* "nhd nhd 16 64 4 8 rfc 0": the values that tell an object apart. */
static void identity_text(char *out, size_t room, const json_t *value)
{
	size_t n = 0;

	out[0] = '\0';
	for (size_t i = 0; i < sizeof(identity) / sizeof(identity[0]) && n < room; i++) {
		const json_t *part = json_object_get(value, identity[i]);

		if (json_is_string(part))
			n += (size_t)snprintf(out + n, room - n, "%s%.40s", n ? " " : "",
					      json_string_value(part));
		else if (part)
			n += (size_t)snprintf(out + n, room - n, "%s%lld", n ? " " : "",
					      LL(json_integer_value(part)));
	}
}

static void report(struct comparison *c, const char *path, json_t *a, json_t *b)
{
	size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15);
	char *from, *to;

	c->differences++;
	if (c->json) {
		json_t *o = json_append_object(&c->out, c->list);

		json_put_text(&c->out, o, "path", path);
		json_put(&c->out, o, "old", a ? json_incref(a) : json_null());
		json_put(&c->out, o, "new", b ? json_incref(b) : json_null());
		return;
	}
	from = a ? json_dumps(a, flags) : NULL;
	to = b ? json_dumps(b, flags) : NULL;
	plainf("%s: %s -> %s", path, from ? from : "nothing", to ? to : "nothing");
	if (json_is_number(a) && json_is_number(b) && json_number_value(a) != 0)
		plainf(" (%.4g times)", json_number_value(b) / json_number_value(a));
	putchar('\n');
	free(from);
	free(to);
}

static void compare(struct comparison *c, const char *path, json_t *a, json_t *b,
		    int depth);

static void compare_objects(struct comparison *c, const char *path, json_t *a, json_t *b,
			    int depth)
{
	char inner[MOST_PATH];
	const char *key;
	json_t *value;

	json_object_foreach(a, key, value) {
		snprintf(inner, sizeof(inner), "%s%s%s", path, *path ? "." : "", key);
		compare(c, inner, value, json_object_get(b, key), depth + 1);
	}
	json_object_foreach(b, key, value) {
		snprintf(inner, sizeof(inner), "%s%s%s", path, *path ? "." : "", key);
		if (!json_object_get(a, key))
			compare(c, inner, NULL, value, depth + 1);
	}
}

/* 1 and 1.0 are one number, which json_equal() does not know. */
static bool same(const json_t *a, const json_t *b)
{
	if (json_is_integer(a) && json_is_integer(b))
		return json_integer_value(a) == json_integer_value(b);
	if (json_is_number(a) && json_is_number(b))
		return json_number_value(a) == json_number_value(b);
	return json_equal(a, b);
}

/*
 * Which value of a list is this one, of those that are no other's?  By its identity,
 * or at its place; of several that have it an equal one.  -1: none.
 */
static int64_t partner(const json_t *list, const bool *taken, const json_t *value,
		       size_t at)
{
	size_t n = json_array_size(list);
	int64_t found = -1;

	if (!has_identity(value))
		return at < n && !taken[at] && !has_identity(json_array_get(list, at)) ?
		       (int64_t)at : -1;
	/* lists are mostly in one order: look there first */
	if (at < n && !taken[at] && same(json_array_get(list, at), value))
		return (int64_t)at;
	for (size_t i = 0; i < n; i++) {
		const json_t *other = json_array_get(list, i);

		if (taken[i] || !same_identity(other, value))
			continue;
		if (same(other, value))
			return (int64_t)i;
		if (found < 0 || i == at)
			found = (int64_t)i;
	}
	return found;
}

static void compare_value(struct comparison *c, const char *path, const json_t *value,
			  size_t i, json_t *a, json_t *b, int depth)
{
	char inner[MOST_PATH], name[256];

	if (has_identity(value))
		identity_text(name, sizeof(name), value);
	else
		snprintf(name, sizeof(name), "%zu", i);
	snprintf(inner, sizeof(inner), "%s[%s]", path, name);
	compare(c, inner, a, b, depth + 1);
}

static void compare_lists(struct comparison *c, const char *path, json_t *a, json_t *b,
			  int depth)
{
	bool *taken = calloc(json_array_size(b) + 1, sizeof(*taken));

	if (!taken) {
		c->no_memory = true;
		return;
	}
	for (size_t i = 0; i < json_array_size(a); i++) {
		json_t *value = json_array_get(a, i);
		int64_t j = partner(b, taken, value, i);

		if (j >= 0)
			taken[j] = true;
		compare_value(c, path, value, i, value,
			      j < 0 ? NULL : json_array_get(b, (size_t)j), depth);
	}
	for (size_t j = 0; j < json_array_size(b); j++)
		if (!taken[j])
			compare_value(c, path, json_array_get(b, j), j, NULL,
				      json_array_get(b, j), depth);
	free(taken);
}

static void compare(struct comparison *c, const char *path, json_t *a, json_t *b,
		    int depth)
{
	if (same(a, b))
		return;
	if (depth < MOST_DEPTH && json_is_object(a) && json_is_object(b))
		compare_objects(c, path, a, b, depth);
	else if (depth < MOST_DEPTH && json_is_array(a) && json_is_array(b))
		compare_lists(c, path, a, b, depth);
	else
		report(c, path, a, b);
}

static enum kvt_status load(json_t **out, const char *path, struct kvt_error *err)
{
	size_t nbytes;
	char *text;
	enum kvt_status status = text_file_read(&text, &nbytes, path, MOST_BYTES, err);

	if (status)
		return status;
	status = kvt_json_parse(out, text, nbytes, path, err);
	free(text);
	if (!status && !json_is_array(json_object_get(*out, "rows")) &&
	    !json_is_array(json_object_get(*out, "groups"))) {
		json_decref(*out);
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: no result of 'transfer-sim plan', 'sweep' or 'matrix' with --json", path);
	}
	return status;
}

static enum kvt_status compare_files(struct comparison *c, char **path,
				     struct kvt_error *err)
{
	json_t *a = NULL, *b = NULL;
	enum kvt_status status = load(&a, path[0], err);

	/* what could not be loaded is freed already */
	if (status)
		return status;
	if (!(status = load(&b, path[1], err))) {
		if (!json_object_get(a, "rows") != !json_object_get(b, "rows"))
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s and %s: one is a sweep or a matrix, one is a plan",
					  path[0], path[1]);
		else
			compare(c, "", a, b, 0);
		if (c->no_memory)
			status = kvt_no_memory(err, NULL);
		json_decref(b);
	}
	json_decref(a);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct comparison c = { 0 };
	const struct opt opts[] = {
		OPT_JSON(&c.json),
		{ 0 }
	};
	enum kvt_status status;
	int n = opt_parse(&transfer_compare, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (n != 2)
		return kvt_fail(err, KVT_USAGE,
				"expected two JSON files, which plan, sweep or matrix printed with --json, got %d",
				n);
	json_start(&c.out);
	c.list = json_put_array(&c.out, c.out.root, "differences");
	status = compare_files(&c, argv, err);
	if (!status && c.json)
		status = json_print(&c.out, false, err);
	json_free(&c.out);
	if (!status && c.differences)
		status = kvt_fail(err, KVT_MISMATCH, "%lld %s",
				  LL(c.differences), c.differences == 1 ?
				  "value differs" : "values differ");
	return status;
}

const struct command transfer_compare = {
	.name = "transfer-sim compare",
	.args = "OLD NEW",
	.summary = "say what differs between two results of plan, sweep or matrix --json",
	.run = run,
	.examples =
		"  kvtool transfer-sim sweep -m llama-3.1-8b --tps=4:8 --json >new.json\n"
		"  kvtool transfer-sim compare old.json new.json\n",
};
