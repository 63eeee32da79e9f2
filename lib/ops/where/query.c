/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query.c - coordinates as people write them: layer=3,block=17,kv=v,...
 *
 * In goes a list of KEY=VALUE, out comes the place of one element, or of a run of
 * them.  The words are cut up first; then each key is taken in a fixed order, for the
 * group decides what the others may be.  A block is named by its id in the pool, its
 * position in the dump, or a token of a request; a key with one possible value may be
 * left out.  Every refusal repeats the question and says what was expected.
 */
#include "lib/ops/where/where.h"
#include "lib/base/keys.h"
#include "lib/base/number.h"

#include <stddef.h>
#include <string.h>

enum key {
	AT_GROUP, AT_LAYER, AT_LAYER_ID, AT_BLOCK, AT_BLOCK_ID, AT_POSITION, AT_REQUEST,
	AT_TOKEN, AT_SLOT, AT_HEAD, AT_LOCAL_HEAD, AT_KV, AT_DIM, AT_BYTE, AT_ROW,
	AT_COUNT, NKEYS
};

static const char *const key_names[NKEYS] = {
	[AT_GROUP] = "group", [AT_LAYER] = "layer",
	[AT_LAYER_ID] = "layer_id", [AT_BLOCK] = "block",
	[AT_BLOCK_ID] = "block_id", [AT_POSITION] = "position",
	[AT_REQUEST] = "request", [AT_TOKEN] = "token", [AT_SLOT] = "slot",
	[AT_HEAD] = "head", [AT_LOCAL_HEAD] = "local_head", [AT_KV] = "kv",
	[AT_DIM] = "dim", [AT_BYTE] = "byte", [AT_ROW] = "row", [AT_COUNT] = "count",
};

/* What a key was called before; the words of old commands still do. */
static const char *const old_names[NKEYS] = { [AT_SLOT] = "state" };

/* A coordinate while it is read. */
struct at {
	const struct kvt_snapshot *s;
	char asked[140];		/* "--at=layer=3,...", for messages */
	char text[512];			/* what the values point into */
	const char *value[NKEYS];	/* NULL: not given */
	const struct kvt_group *group;
	struct kvt_where *out;
	struct kvt_element_run *run;		/* NULL: an element is asked for */
	int64_t token;			/* if it is given */
	struct kvt_error *err;
};

static enum kvt_status wrong(const struct at *at, const char *what)
{
	return kvt_fail(at->err, KVT_USAGE, "%s: %s", at->asked, what);
}

/* ---- keys --------------------------------------------------------------- */

/* Elements have bytes, runs of them have a length. */
static bool is_key(const struct at *at, int key)
{
	return at->run ? key != AT_BYTE : key != AT_ROW && key != AT_COUNT;
}

static enum kvt_status take_words(struct at *at, const char *query)
{
	struct kvt_key key[NKEYS + 1] = { { NULL, KVT_KEY_TEXT, 0, NULL } };
	struct kvt_keys keys = { at->asked, key, at, 0 };
	int n = 0;

	for (int i = 0; i < NKEYS; i++)
		if (is_key(at, i))
			key[n++] = (struct kvt_key){
				key_names[i], KVT_KEY_TEXT, offsetof(struct at, value) +
				(size_t)i * sizeof(at->value[0]), old_names[i] };
	if (snprintf(at->text, sizeof(at->text), "%s", query) >=
	    (int)sizeof(at->text))
		return wrong(at, "too long");
	return kvt_keys_parse(&keys, at->text, at->err);
}

/* ---- values ------------------------------------------------------------- */

static enum kvt_status out_of_range(const struct at *at, enum key key,
				    const char *is, int64_t first, int64_t count)
{
	if (!count)
		return kvt_fail(at->err, KVT_USAGE,
				"%s: %s is %.60s, but the dump has none", at->asked,
				key_names[key], is);
	return kvt_fail(at->err, KVT_USAGE,
			"%s: %s is %.60s, expected %lld to %lld", at->asked,
			key_names[key], is, LL(first), LL(first + count - 1));
}

/*
 * Names all keys that an element's coordinate lacks, with the question as it would be
 * complete; a run of elements begins at the first where nothing is said.
 */
static enum kvt_status ask_for_rest(const struct at *at)
{
	const int64_t *n = at->group->shape.n;
	bool block = at->value[AT_BLOCK] || at->value[AT_BLOCK_ID] ||
		     at->value[AT_POSITION];
	const struct {
		enum key key;
		bool missing;
		const char *example;
		int64_t first;
	} rows[] = {
		{ AT_LAYER, !at->value[AT_LAYER_ID] && n[KVT_AXIS_L] > 1, NULL, 0 },
		{ AT_BLOCK, !block && !at->value[AT_REQUEST] && n[KVT_AXIS_B] > 1, NULL,
		  (int64_t)kvt_block_id(at->group, 0) },
		{ AT_SLOT, block && n[KVT_AXIS_S] > 1, NULL, 0 },
		{ AT_HEAD, !at->value[AT_LOCAL_HEAD] && n[KVT_AXIS_H] > 1, NULL,
		  at->group->head_start },
		{ AT_KV, n[KVT_AXIS_K] > 1, "k", 0 },
		{ AT_DIM, n[KVT_AXIS_D] > 1, NULL, 0 },
	};
	char names[80] = "", rest[160] = "", value[24];
	size_t used = 0, said = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *name = key_names[rows[i].key];

		if (!rows[i].missing || at->value[rows[i].key])
			continue;
		said += (size_t)snprintf(names + said, sizeof(names) - said, "%s%s",
					 said ? ", " : "", name);
		if (rows[i].example)
			snprintf(value, sizeof(value), "%s", rows[i].example);
		else
			snprintf(value, sizeof(value), "%lld", LL(rows[i].first));
		used += (size_t)snprintf(rest + used, sizeof(rest) - used, ",%s=%s", name,
					 value);
	}
	return kvt_fail(at->err, KVT_USAGE, "%s: expected %s, too, such as %s%s",
			at->asked, names, strchr(at->asked, '=') + 1, rest);
}

static bool is_coordinate(enum key key)
{
	return key == AT_LAYER || key == AT_BLOCK || key == AT_SLOT || key == AT_HEAD ||
	       key == AT_DIM;
}

/* A number in first <= n < first + count; absent is 0 if it is the only one. */
static enum kvt_status take_number(struct at *at, int64_t *out, enum key key,
				   int64_t first, int64_t count)
{
	const char *value = at->value[key];
	int64_t n;

	*out = 0;
	if (!value && (count == 1 || (at->run && count > 0)))
		return KVT_OK;
	if (!value && (at->run || !is_coordinate(key)))
		return out_of_range(at, key, "missing", first, count);
	if (!value)
		return ask_for_rest(at);
	if (!kvt_number_parse(&n, value))
		return kvt_fail(at->err, KVT_USAGE,
				"%s: %s is '%.60s', expected a whole number",
				at->asked, key_names[key], value);
	if (n < first || n - first >= count)
		return out_of_range(at, key, value, first, count);
	*out = n - first;
	return KVT_OK;
}

static enum kvt_status take_group(struct at *at)
{
	const struct kvt_snapshot *s = at->s;
	const char *id = at->value[AT_GROUP];
	int g = 0;

	if (!id && s->ngroups > 1)
		return kvt_fail(at->err, KVT_USAGE,
				"%s: group is missing, there are %d such as %s",
				at->asked, s->ngroups, s->group[0].id);
	while (id && g < s->ngroups && strcmp(id, s->group[g].id))
		g++;
	if (g == s->ngroups)
		return kvt_fail(at->err, KVT_USAGE,
				"%s: there is no group '%.60s', the first is %s",
				at->asked, id, s->group[0].id);
	at->out->group = g;
	at->group = &s->group[g];
	return KVT_OK;
}

/* By its index in the group, or its number in the model. */
static enum kvt_status take_layer(struct at *at)
{
	int64_t n = at->group->shape.n[KVT_AXIS_L], id;
	const char *value = at->value[AT_LAYER_ID];

	if (!value)
		return take_number(at, &at->out->index[KVT_AXIS_L], AT_LAYER, 0, n);
	if (at->value[AT_LAYER])
		return wrong(at, "layer and layer_id are given, expected one");
	if (!kvt_number_parse(&id, value))
		return kvt_fail(at->err, KVT_USAGE,
				"%s: layer_id is '%.60s', expected a whole number",
				at->asked, value);
	for (int64_t l = 0; l < n; l++)
		if ((int64_t)kvt_layer_id(at->group, l) == id) {
			at->out->index[KVT_AXIS_L] = l;
			return KVT_OK;
		}
	return kvt_fail(at->err, KVT_USAGE,
			"%s: no layer of group %s is layer %lld of the model",
			at->asked, at->group->id, LL(id));
}

static enum kvt_status take_kv(struct at *at)
{
	static const char *const words[][2] = {
		{ "k", "v" }, { "key", "value" }, { "keys", "values" }, { "0", "1" },
	};
	const char *value = at->value[AT_KV];

	if (at->group->shape.n[KVT_AXIS_K] == 1 && !value)
		return KVT_OK;
	if (at->group->shape.n[KVT_AXIS_K] == 1)
		return wrong(at, "kv is given, but the content is not keys and values");
	if (!value && at->run)
		return KVT_OK;
	if (!value)
		return ask_for_rest(at);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		for (int k = 0; k < 2; k++)
			if (!strcmp(value, words[i][k])) {
				at->out->index[KVT_AXIS_K] = k;
				return KVT_OK;
			}
	return kvt_fail(at->err, KVT_USAGE, "%s: kv is '%.60s', expected k or v",
			at->asked, value);
}

static enum kvt_status take_head(struct at *at)
{
	int64_t *h = &at->out->index[KVT_AXIS_H], n = at->group->shape.n[KVT_AXIS_H];

	if (at->value[AT_HEAD] && at->value[AT_LOCAL_HEAD])
		return wrong(at, "head and local_head are given, expected one");
	if (at->value[AT_LOCAL_HEAD])
		return take_number(at, h, AT_LOCAL_HEAD, 0, n);
	return take_number(at, h, AT_HEAD, at->group->head_start, n);
}

/* ---- blocks, and what else leads to them -------------------------------- */

/* By the id in the pool, which is the position where the dump lists no ids. */
static enum kvt_status take_id(struct at *at, enum key key)
{
	const struct kvt_group *group = at->group;
	int64_t n = group->shape.n[KVT_AXIS_B], id, b = 0;

	if (!group->block_ids || !at->value[key])
		return take_number(at, &at->out->index[KVT_AXIS_B], key, 0, n);
	if (!kvt_number_parse(&id, at->value[key]))
		return kvt_fail(at->err, KVT_USAGE,
				"%s: %s is '%.60s', expected a whole number", at->asked,
				key_names[key], at->value[key]);
	while (b < n && group->block_ids[b] != (uint64_t)id)
		b++;
	if (b == n)
		return kvt_fail(at->err, KVT_USAGE,
				"%s: no block of group %s has id %lld", at->asked,
				group->id, LL(id));
	at->out->index[KVT_AXIS_B] = b;
	return KVT_OK;
}

static enum kvt_status take_pool_block(struct at *at)
{
	if (at->value[AT_POSITION])
		return take_number(at, &at->out->index[KVT_AXIS_B], AT_POSITION, 0,
				   at->group->shape.n[KVT_AXIS_B]);
	return take_id(at, at->value[AT_BLOCK_ID] ? AT_BLOCK_ID : AT_BLOCK);
}

static enum kvt_status find_request(const struct at *at, const struct kvt_request **out)
{
	const char *id = at->value[AT_REQUEST];

	if (!(*out = kvt_request_named(at->s, id)))
		return kvt_fail(at->err, KVT_USAGE,
				"%s: there is no request '%.60s', the dump has %lld",
				at->asked, id, LL(at->s->nrequests));
	if (!(*out)->nblocks[at->out->group])
		return kvt_fail(at->err, KVT_USAGE,
				"%s: request %.60s has no blocks in group %s",
				at->asked, (*out)->id, at->group->id);
	return KVT_OK;
}

/* The entry of the table that holds a token; without one, the last. */
static enum kvt_status find_entry(struct at *at, const struct kvt_request *request,
				  int64_t *entry, int64_t *token)
{
	int64_t n = request->nblocks[at->out->group], size = at->group->block_size;
	const struct kvt_table t = kvt_table_of(at->s, at->out->group, request);
	bool infinite = at->group->tokens_per_slot < 1;
	enum kvt_status status;

	*entry = n - 1;
	*token = 0;
	if (infinite && !at->value[AT_TOKEN])
		return KVT_OK;
	if ((status = take_number(at, token, AT_TOKEN, request->first_token,
				  request->ntokens)))
		return status;
	*token += request->first_token;
	if (infinite && n == 1)
		return KVT_OK;
	*entry = *token / size - t.first;
	if (infinite ? !kvt_table_is_whole(at->s, at->out->group, request) :
	    *entry < 0 || *entry >= n)
		return kvt_fail(at->err, KVT_UNSUPPORTED,
				"%s: the %lld blocks of request %.60s do not cover all its tokens; give block instead",
				at->asked, LL(n), request->id);
	return KVT_OK;
}

static enum kvt_status take_token(struct at *at)
{
	const struct kvt_request *request = NULL;
	int64_t entry, token;
	enum kvt_status status;

	if ((status = find_request(at, &request)) ||
	    (status = find_entry(at, request, &entry, &token)))
		return status;
	at->token = token;
	at->out->index[KVT_AXIS_B] = request->blocks[at->out->group][entry];
	if (at->group->tokens_per_slot < 1)
		return KVT_OK;
	if (at->value[AT_SLOT])
		return wrong(at, "slot and token are given, expected one");
	at->out->index[KVT_AXIS_S] = token % at->group->block_size /
				     at->group->tokens_per_slot;
	return KVT_OK;
}

static enum kvt_status take_block(struct at *at)
{
	const int64_t *n = at->group->shape.n;
	int ways = !!at->value[AT_BLOCK] + !!at->value[AT_BLOCK_ID] +
		   !!at->value[AT_POSITION] + !!at->value[AT_REQUEST];
	enum kvt_status status;

	if (ways > 1)
		return wrong(at, "expected one of block, position and request");
	if (at->value[AT_TOKEN] && !at->value[AT_REQUEST])
		return wrong(at, "token is given without its request");
	if (at->value[AT_REQUEST]) {
		if ((status = take_token(at)))
			return status;
		if (at->group->tokens_per_slot > 0)
			return KVT_OK;
	} else if ((status = take_pool_block(at))) {
		return status;
	}
	return take_number(at, &at->out->index[KVT_AXIS_S], AT_SLOT, 0, n[KVT_AXIS_S]);
}

/* All but dim. */
static enum kvt_status take_place(struct at *at, const char *query)
{
	enum kvt_status status;

	at->out->region = KVT_ELEMENT;
	snprintf(at->asked, sizeof(at->asked), "--%s=%.120s", at->run ? "peek" : "at",
		 query);
	if ((status = take_words(at, query)) ||
	    (status = take_group(at)) ||
	    (status = take_layer(at)) ||
	    (status = take_block(at)) ||
	    (status = take_head(at)))
		return status;
	return take_kv(at);
}

enum kvt_status kvt_where_parse_at(struct kvt_where *out, const struct kvt_snapshot *s,
				   const char *text, struct kvt_error *err)
{
	struct kvt_where place = { .region = KVT_ELEMENT };
	struct at at = { .s = s, .out = &place, .err = err };
	enum kvt_status status;

	if ((status = take_place(&at, text)) ||
	    (status = take_number(&at, &place.index[KVT_AXIS_D], AT_DIM, 0,
				  at.group->shape.n[KVT_AXIS_D])) ||
	    (at.value[AT_BYTE] &&
	     (status = take_number(&at, &place.byte, AT_BYTE, 0, at.group->shape.elem))))
		return status;
	*out = place;
	return KVT_OK;
}

/* The row of a page of planes: as given, or that of the token. */
static enum kvt_status take_row(struct at *at, const struct kvt_packing *packing)
{
	const struct kvt_content_type *type = packing->content.type;

	if (at->value[AT_ROW] && at->value[AT_TOKEN])
		return wrong(at, "row and token are given, expected one");
	if (!at->value[AT_TOKEN] || !type->planar)
		return take_number(at, &at->run->row, AT_ROW, 0, packing->rows);
	at->run->row = at->token % at->group->tokens_per_slot / packing->row_tokens;
	return KVT_OK;
}

enum kvt_status kvt_where_parse_run(struct kvt_element_run *out,
				    const struct kvt_snapshot *s,
				const char *text, struct kvt_error *err)
{
	struct kvt_element_run run = { .count = 8 };
	struct at at = { .s = s, .out = &run.place, .run = &run,
			 .err = err };
	enum kvt_status status = take_place(&at, text);
	int64_t most;

	if (status)
		return status;
	most = at.group->shape.n[KVT_AXIS_D];
	if (at.group->content.type) {
		struct kvt_packing packing = kvt_group_packing(at.group);

		most = packing.row_values ? packing.row_values : packing.nbytes;
		status = take_row(&at, &packing);
	} else if (at.value[AT_ROW]) {
		return wrong(&at, "row is given, but the content is not a page of rows");
	}
	if (status ||
	    (status = take_number(&at, &run.place.index[KVT_AXIS_D], AT_DIM, 0, most)) ||
	    (at.value[AT_COUNT] &&
	     (status = take_number(&at, &run.count, AT_COUNT, 0, KVT_MAX_RUN + 1))))
		return status;
	*out = run;
	return KVT_OK;
}
