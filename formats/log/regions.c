/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions.c - tables of what a connector registered: JSON, one object
 *
 *	{"kvtool_regions": 1, "engine": .., "connector": .., "role": ..,
 *	 "groups": [{"id": .., "block_size": .., "blocks": ..}],
 *	 "memory": [{"base": "0x7f..", "length": ..}],
 *	 "layers": [{"name": .., the same as of regions}],
 *	 "regions": [{"base": .., "stride": .., "blocks": .., "block_len": ..}]}
 *
 * A key that is not known is refused: a misspelled one would be a fact that is lost.
 * What an entry says is checked by itself here, and so that no sum of it overflows;
 * whether entries agree with each other is for lib/ops/regions.  kvtool-regions(5) has
 * all keys.
 */
#include "formats/log/regions.h"
#include "formats/parse/json.h"
#include "lib/base/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1 };
static const char mark[] = "\"kvtool_regions\"";

bool kvt_regions_probe(const char *text, size_t nbytes)
{
	size_t at = 0;

	while (at < nbytes && memchr(" \t\r\n", text[at], 4))
		at++;
	if (at == nbytes || text[at] != '{')
		return false;
	for (; at + sizeof(mark) - 1 <= nbytes; at++)
		if (!memcmp(text + at, mark, sizeof(mark) - 1))
			return true;
	return false;
}

/* ---- keys --------------------------------------------------------------- */

static const char *const top_keys[] = {
	"kvtool_regions", "engine", "connector", "role", "tp_size", "tp_rank", "pairing",
	"note", "groups", "memory", "layers", "regions", NULL
};
static const char *const group_keys[] = {
	"id", "block_size", "kernel_block_size", "blocks", "note", NULL
};
static const char *const memory_keys[] = { "base", "length", "device", "note", NULL };
static const char *const layer_keys[] = {
	"name", "group", "part", "base", "stride", "blocks", "block_len",
	"padded_block_len", "heads", "first_head", "shares", "note", NULL
};
static const char *const region_keys[] = {
	"base", "stride", "blocks", "block_len", "layers", "group", "part", "ids",
	"device", "note", NULL
};

static enum kvt_status missing(const struct kvt_json *in, const char *key)
{
	return kvt_json_bad(in, "%s is missing", key);
}

static enum kvt_status need_int(int64_t *out, const struct kvt_json *in, const char *key,
				int64_t min, int64_t max)
{
	*out = -1;
	kvt_json_int(out, in, key, min, max);
	return *out >= 0 ? KVT_OK : missing(in, key);
}

/* A number, or hexadecimal digits in a string as a debugger prints them. */
static enum kvt_status need_address(int64_t *out, const struct kvt_json *in)
{
	const json_t *value = json_object_get(in->object, "base");
	const char *text = json_string_value(value);
	char *end;
	unsigned long long n;

	if (!text)
		return need_int(out, in, "base", 0, KVT_MOST_ADDRESS);
	n = strtoull(text, &end, 16);
	if (strncmp(text, "0x", 2) || !text[2] || *end || n > KVT_MOST_ADDRESS)
		return kvt_json_bad(in,
				    "base is '%.40s', expected a number or a string such as 0x7f0000000000",
				    text);
	*out = (int64_t)n;
	return KVT_OK;
}

static enum kvt_status take_word(int *out, const struct kvt_json *in, const char *key,
				 const char *const *words)
{
	const char *text = NULL;

	if (kvt_json_string(&text, in, key) || !text)
		return *in->status;
	for (int i = 0; words[i]; i++)
		if (!strcmp(words[i], text)) {
			*out = i;
			return KVT_OK;
		}
	return kvt_json_bad(in, "%s is '%.40s', expected %s or %s", key, text, words[0],
			    words[1]);
}

static enum kvt_status take_part(enum kvt_region_part *out, const struct kvt_json *in)
{
	const char *text = NULL;

	*out = KVT_REGION_KV;
	if (kvt_json_string(&text, in, "part") || !text)
		return *in->status;
	for (int p = 0; p < KVT_NREGION_PARTS; p++)
		if (!strcmp(kvt_region_part_name((enum kvt_region_part)p), text)) {
			*out = (enum kvt_region_part)p;
			return KVT_OK;
		}
	return kvt_json_bad(in, "part is '%.40s', expected kv, k, v or state (recurrent)",
			    text);
}

static enum kvt_status take_rows(struct kvt_rows *out, const struct kvt_json *in)
{
	const int64_t most = KVT_MOST_ADDRESS;

	if (need_address(&out->base, in) ||
	    need_int(&out->stride, in, "stride", 1, most) ||
	    need_int(&out->blocks, in, "blocks", 1, most) ||
	    need_int(&out->len, in, "block_len", 1, most))
		return *in->status;
	if (out->blocks - 1 <= most / out->stride &&
	    (out->blocks - 1) * out->stride <= most - out->base &&
	    kvt_rows_end(out) <= most)
		return KVT_OK;
	return kvt_json_bad(in, "%lld blocks every %lld bytes end beyond 2^60",
			    LL(out->blocks), LL(out->stride));
}

/* ---- entries ------------------------------------------------------------ */

/* While a table is made: what is said when something is wrong. */
struct reader {
	struct kvt_regions *out;
	json_t *numbers;		/* of layer names */
	const char *name;
	struct kvt_error *err;
	int64_t nmembers;
};

typedef enum kvt_status take_fn(struct reader *r, int64_t i, const struct kvt_json *in);

static enum kvt_status take_group(struct reader *r, int64_t i, const struct kvt_json *in)
{
	struct kvt_region_table *t = &r->out->table;
	struct kvt_region_group *g = &t->group[i];
	const int64_t most = INT32_MAX;

	kvt_json_only(in, group_keys);
	need_int(&g->id, in, "id", 0, most);
	need_int(&g->block_size, in, "block_size", 1, most);
	g->kernel_size = g->block_size;
	kvt_json_int(&g->kernel_size, in, "kernel_block_size", 1, most);
	if (kvt_json_int(&g->blocks, in, "blocks", 1, KVT_MOST_ADDRESS))
		return *in->status;
	for (int64_t k = 0; k < i; k++)
		if (t->group[k].id == g->id)
			return kvt_json_bad(in, "there are two groups of id %lld",
					    LL(g->id));
	if (g->block_size % g->kernel_size)
		return kvt_json_bad(in,
				    "block_size is %lld, expected a multiple of kernel_block_size, which is %lld",
				    LL(g->block_size), LL(g->kernel_size));
	return KVT_OK;
}

static enum kvt_status take_memory(struct reader *r, int64_t i, const struct kvt_json *in)
{
	struct kvt_memory *m = &r->out->table.memory[i];

	kvt_json_only(in, memory_keys);
	if (!need_address(&m->base, in))
		need_int(&m->length, in, "length", 1, KVT_MOST_ADDRESS - m->base);
	return kvt_json_string(&m->device, in, "device");
}

/* Kernel blocks in one of the manager's. */
static int64_t ratio_of(const struct kvt_region_table *t, int64_t group)
{
	for (int64_t i = 0; i < t->ngroups; i++)
		if (t->group[i].id == group)
			return t->group[i].block_size / t->group[i].kernel_size;
	return 1;
}

static enum kvt_status take_name(struct reader *r, struct kvt_layer_view *v,
				 const struct kvt_json *in)
{
	struct kvt_region_table *t = &r->out->table;
	const json_t *number;

	kvt_json_string(&v->name, in, "name");
	if (!v->name || !*v->name)
		return missing(in, "name");
	if (!(number = json_object_get(r->numbers, v->name))) {
		v->layer = t->nnames;
		t->name[t->nnames++] = v->name;
		if (json_object_set_new(r->numbers, v->name, json_integer(v->layer)))
			return kvt_no_memory(r->err, NULL);
		return KVT_OK;
	}
	v->layer = json_integer_value(number);
	return KVT_OK;
}

static enum kvt_status check_view(const struct kvt_layer_view *v,
				  const struct kvt_json *in)
{
	if (v->at.blocks < v->ratio || v->at.stride > KVT_MOST_ADDRESS / v->ratio)
		return kvt_json_bad(in,
				    "%lld blocks of the kernel, expected at least the %lld of one block of the manager",
				    LL(v->at.blocks), LL(v->ratio));
	if (v->at.blocks > 1 && v->padded > v->at.stride)
		return kvt_json_bad(in,
				    "%s is %lld, expected at most the stride, which is %lld",
				    v->padded > v->at.len ? "padded_block_len" :
				    "block_len", LL(v->padded), LL(v->at.stride));
	return KVT_OK;
}

static enum kvt_status take_layer(struct reader *r, int64_t i, const struct kvt_json *in)
{
	struct kvt_region_table *t = &r->out->table;
	struct kvt_layer_view *v = &t->layer[i];
	const char *shares = NULL;

	if (kvt_json_only(in, layer_keys) || take_name(r, v, in))
		return *in->status;
	kvt_json_int(&v->group, in, "group", 0, INT32_MAX);
	take_part(&v->part, in);
	take_rows(&v->at, in);
	v->padded = v->at.len;
	kvt_json_int(&v->padded, in, "padded_block_len", v->at.len, KVT_MOST_ADDRESS);
	kvt_json_int(&v->heads, in, "heads", 1, INT32_MAX);
	kvt_json_int(&v->first_head, in, "first_head", 0, INT32_MAX);
	if (kvt_json_string(&shares, in, "shares"))
		return *in->status;
	v->shares = shares != NULL;
	if (v->heads && t->tp_size > 1 && !json_object_get(in->object, "first_head"))
		return kvt_json_bad(in,
				    "first_head is missing: which heads of the model has rank %lld?",
				    LL(t->tp_rank));
	v->ratio = ratio_of(t, v->group);
	for (int64_t k = 0; k < i; k++)
		v->nth += t->layer[k].layer == v->layer && t->layer[k].part == v->part;
	return check_view(v, in);
}

static enum kvt_status take_members(struct reader *r, struct kvt_registered *region,
				    const struct kvt_json *in)
{
	int64_t *member = r->out->members + r->nmembers;
	const json_t *list = NULL, *number;
	enum kvt_status status = kvt_json_array(&list, in, "layers");
	const char *name;

	region->layer = member;
	region->nlayers = (int64_t)json_array_size(list);
	if (!status && r->nmembers + region->nlayers > KVT_MOST_MEMBERS)
		return kvt_json_bad(in, "more than %d layers of regions",
				    KVT_MOST_MEMBERS);
	for (int64_t k = 0; !status && k < region->nlayers; k++) {
		if ((status = kvt_json_string_at(&name, in, "layers", list, (size_t)k)))
			return status;
		if (!(number = json_object_get(r->numbers, name)))
			return kvt_json_bad(in, "'%.100s' is none of the table's layers",
					    name);
		member[k] = json_integer_value(number);
	}
	r->nmembers += region->nlayers;
	qsort(member, (size_t)region->nlayers, sizeof(*member), kvt_by_int64);
	for (int64_t k = 1; !status && k < region->nlayers; k++)
		if (member[k] == member[k - 1])
			return kvt_json_bad(in, "names '%.100s' twice",
					    r->out->table.name[member[k]]);
	return status;
}

/* Where both kinds of block are one, it need not be said whose ids count. */
static bool ids_matter(const struct kvt_region_table *t,
		       const struct kvt_registered *region)
{
	for (int64_t i = 0; i < t->nlayers; i++) {
		if (t->layer[i].ratio == 1)
			continue;
		if (region->group == t->layer[i].group)
			return true;
		for (int64_t k = 0; k < region->nlayers; k++)
			if (region->layer[k] == t->layer[i].layer)
				return true;
	}
	return false;
}

static enum kvt_status take_region(struct reader *r, int64_t i, const struct kvt_json *in)
{
	static const char *const words[] = { "kernel", "manager", NULL };
	struct kvt_registered *region = &r->out->table.region[i];
	int ids = -1;

	region->group = -1;
	kvt_json_only(in, region_keys);
	take_rows(&region->at, in);
	take_part(&region->part, in);
	kvt_json_int(&region->group, in, "group", -1, INT32_MAX);
	take_word(&ids, in, "ids", words);
	kvt_json_string(&region->device, in, "device");
	if (take_members(r, region, in))
		return *in->status;
	region->manager = ids == 1;
	if (ids < 0 && ids_matter(&r->out->table, region))
		return kvt_json_bad(in,
				    "ids is missing: do the ids of its blocks count kernel blocks or the manager's?");
	return KVT_OK;
}

/* ---- lists -------------------------------------------------------------- */

static enum kvt_status take_list(struct reader *r, const struct kvt_json *in,
				 const char *key, take_fn *take, int64_t *n, void **room,
				 size_t size)
{
	const json_t *list = NULL;
	enum kvt_status status = kvt_json_array(&list, in, key);
	char at[320];

	*n = 0;
	if (status)
		return status;
	if (json_array_size(list) > KVT_MOST_REGIONS)
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: %s has %zu entries, at most %d", r->name, key, json_array_size(list), KVT_MOST_REGIONS);
	if (!(*room = calloc(json_array_size(list) + 1, size)))
		return kvt_no_memory(r->err, NULL);
	for (size_t i = 0; !status && i < json_array_size(list); i++) {
		struct kvt_json entry = { json_array_get(list, i), at, r->err,
					  in->status };

		snprintf(at, sizeof(at), "%.250s: %s[%zu]", r->name, key, i);
		if (!json_is_object(entry.object))
			return kvt_fail(r->err, KVT_BAD_INPUT, "%s is not an object", at);
		status = take(r, (int64_t)i, &entry);
		*n = (int64_t)i + 1;
	}
	return status;
}

static enum kvt_status take_head(struct kvt_region_table *t, const struct kvt_json *in)
{
	static const char *const words[] = { "order", "layer", NULL };
	int64_t version;
	int pairing = 0;

	need_int(&version, in, "kvtool_regions", 0, INT32_MAX);
	if (version != VERSION)
		return kvt_json_refuse(in, KVT_UNSUPPORTED,
				       "is of version %lld, this kvtool reads version %d",
				       LL(version), VERSION);
	t->tp_size = 1;
	kvt_json_only(in, top_keys);
	kvt_json_string(&t->engine, in, "engine");
	kvt_json_string(&t->connector, in, "connector");
	kvt_json_string(&t->role, in, "role");
	kvt_json_int(&t->tp_size, in, "tp_size", 1, 65536);
	kvt_json_int(&t->tp_rank, in, "tp_rank", 0, t->tp_size - 1);
	take_word(&pairing, in, "pairing", words);
	t->by_layer = pairing == 1;
	return *in->status;
}

static enum kvt_status take_table(struct reader *r, const struct kvt_json *in)
{
	struct kvt_region_table *t = &r->out->table;
	const json_t *layers = json_object_get(in->object, "layers");
	enum kvt_status status;

	t->name = calloc(json_array_size(layers) + 1, sizeof(*t->name));
	r->out->members = calloc(KVT_MOST_MEMBERS, sizeof(*r->out->members));
	if (!t->name || !r->out->members || !r->numbers)
		return kvt_no_memory(r->err, NULL);
	if ((status = take_head(t, in)) ||
	    (status = take_list(r, in, "groups", take_group, &t->ngroups,
				(void **)&t->group, sizeof(*t->group))) ||
	    (status = take_list(r, in, "memory", take_memory, &t->nmemory,
				(void **)&t->memory, sizeof(*t->memory))) ||
	    (status = take_list(r, in, "layers", take_layer, &t->nlayers,
				(void **)&t->layer, sizeof(*t->layer))))
		return status;
	return take_list(r, in, "regions", take_region, &t->nregions,
			 (void **)&t->region, sizeof(*t->region));
}

enum kvt_status kvt_regions_parse(struct kvt_regions *out, const char *text,
				  size_t nbytes, const char *name, struct kvt_error *err)
{
	struct reader r = { out, NULL, name, err, 0 };
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { NULL, name, err, &status };
	json_t *json;

	*out = (struct kvt_regions){ .members = NULL };
	if ((status = kvt_json_parse(&json, text, nbytes, name, err)))
		return status;
	out->json = json;
	in.object = json;
	r.numbers = json_object();
	status = take_table(&r, &in);
	if (!status && !out->table.nregions)
		status = kvt_fail(err, KVT_BAD_INPUT, "%s: has no regions", name);
	json_decref(r.numbers);
	if (status)
		kvt_regions_free(out);
	return status;
}

void kvt_regions_free(struct kvt_regions *regions)
{
	free(regions->table.group);
	free(regions->table.memory);
	free(regions->table.layer);
	free(regions->table.name);
	free(regions->table.region);
	free(regions->members);
	json_decref(regions->json);
	*regions = (struct kvt_regions){ .members = NULL };
}
