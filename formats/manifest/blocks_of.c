/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks_of.c - requests that the user tells: which blocks, how many tokens
 *
 * What is told becomes the two objects that a manifest would have, and is read as they
 * are, so there is one reader of block tables:
 *
 *	--blocks-of=A=5,2,9:21		{"block_table": {"A": [5, 2, 9]},
 *					 "num_tokens": {"A": 21}}
 *
 * A dump that has requests itself must say the same.
 */
#include "formats/manifest/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "formats/describe/number_rows.h"
#include "lib/base/number.h"

struct told {
	json_t *tables, *tokens;	/* by request; owned */
	bool cut;			/* rows may be longer than their requests are */
	int64_t each, blocks;		/* tokens a block, blocks of the pool */
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
};

/* Tables that one option says hold for groups whose blocks are alike. */
static enum kvt_status find_blocks(struct told *t, const struct kvt_snapshot *s)
{
	for (int g = 0; g < s->ngroups; g++) {
		const struct kvt_group *group = &s->group[g];

		if (kvt_is_recurrent(group->kind) || group->block_size < 1)
			return kvt_fail(t->err, KVT_BAD_INPUT,
					"%s: group %s has no blocks of tokens; which blocks are whose is said in a manifest: --manifest=FILE",
					t->path, group->id);
		if (g && group->block_size != t->each)
			return kvt_fail(t->err, KVT_BAD_INPUT,
					"%s: group %s has blocks of %lld tokens, the first group of %lld; which blocks are whose is said in a manifest: --manifest=FILE",
					t->path, group->id, LL(group->block_size),
					LL(t->each));
		t->each = group->block_size;
		t->blocks = group->shape.n[KVT_AXIS_B];
	}
	return KVT_OK;
}

/* ---- words of the command line ------------------------------------------- */

static enum kvt_status bad_word(const struct told *t, const char *word)
{
	return kvt_fail(t->err, KVT_USAGE,
			"--blocks-of is '%.100s', expected a request, its blocks and how many tokens it has: --blocks-of=A=5,2,9:21, or --blocks-of=@FILE",
			word);
}

static enum kvt_status has_twice(const struct told *t, const char *name)
{
	return kvt_fail(t->err, KVT_USAGE, "--blocks-of has request %.64s twice", name);
}

/* "5" or "5-12". */
static enum kvt_status take_range(struct told *t, json_t *list, const char **at,
				  const char *word)
{
	int64_t first, last;

	if (!kvt_number_take(&first, at))
		return bad_word(t, word);
	last = first;
	if (**at == '-') {
		(*at)++;
		if (!kvt_number_take(&last, at) || last < first)
			return bad_word(t, word);
	}
	if (last - first >= t->blocks)
		return kvt_fail(t->err, KVT_BAD_INPUT,
				"%s: --blocks-of has the %lld blocks from %lld to %lld, the dump has %lld",
				t->path, LL(last - first + 1), LL(first), LL(last),
				LL(t->blocks));
	for (int64_t i = first; i <= last; i++)
		if (json_array_append_new(list, json_integer(i)))
			return kvt_no_memory(t->err, t->path);
	return KVT_OK;
}

static enum kvt_status take_blocks(struct told *t, const char *name, json_t *list,
				   const char *text, const char *word)
{
	enum kvt_status status = KVT_OK;
	int64_t tokens;

	do {
		status = take_range(t, list, &text, word);
	} while (!status && *text == ',' && *++text);
	if (status || !*text)
		return status;
	if (*text++ != ':' || !kvt_number_parse(&tokens, text) || tokens < 1)
		return bad_word(t, word);
	return json_object_set_new(t->tokens, name, json_integer(tokens)) ?
	       kvt_no_memory(t->err, t->path) : KVT_OK;
}

/* "A=5,2,9:21": names of requests may have a '='. */
static enum kvt_status take_word(struct told *t, const char *word)
{
	const char *text = strrchr(word, '=');
	char *name = text && text > word ? strndup(word, (size_t)(text - word)) : NULL;
	json_t *list = json_array();
	enum kvt_status status;

	if (!name)
		status = text && text > word ? kvt_no_memory(t->err, t->path) :
			 bad_word(t, word);
	else if (json_object_get(t->tables, name))
		status = has_twice(t, name);
	else if (!list || json_object_set(t->tables, name, list))
		status = kvt_no_memory(t->err, t->path);
	else
		status = take_blocks(t, name, list, text + 1, word);
	json_decref(list);
	free(name);
	return status;
}

static enum kvt_status take_file(struct told *t, const char *file)
{
	enum kvt_status status;
	const char *name;
	json_t *rows, *row;

	if ((status = kvt_number_rows_read(&rows, file, t->err)))
		return status;
	t->cut = true;
	json_object_foreach(rows, name, row)
		if (!status && json_object_get(t->tables, name))
			status = has_twice(t, name);
		else if (!status && json_object_set(t->tables, name, row))
			status = kvt_no_memory(t->err, t->path);
	json_decref(rows);
	return status;
}

/* ---- lengths -------------------------------------------------------------- */

/* "21,40" or "@FILE", as a list. */
static enum kvt_status read_lengths(json_t **out, const struct told *t, const char *text)
{
	enum kvt_status status = KVT_OK;
	const char *at = text;
	json_t *rows = NULL;

	*out = NULL;
	if (*text == '@') {
		if ((status = kvt_number_rows_read(&rows, text + 1, t->err)))
			return status;
		if (json_object_size(rows) == 1)
			*out = json_incref(json_object_get(rows, "0"));
		json_decref(rows);
		return *out ? KVT_OK :
		       kvt_fail(t->err, KVT_BAD_INPUT,
				"%s: is not a list of lengths, one for each request",
				text + 1);
	}
	if (!(*out = json_array()))
		return kvt_no_memory(t->err, t->path);
	do {
		int64_t n;

		if (!kvt_number_take(&n, &at) || n < 1 || (*at && *at != ','))
			return kvt_fail(t->err, KVT_USAGE,
					"--seq-lens is '%.100s', expected how many tokens each request has: 21,40, or @FILE",
					text);
		if (json_array_append_new(*out, json_integer(n)))
			return kvt_no_memory(t->err, t->path);
	} while (*at++ == ',');
	return KVT_OK;
}

/* In the order of the requests, none of which has one yet. */
static enum kvt_status take_lengths(struct told *t, const json_t *lengths)
{
	const char *name;
	json_t *row;
	size_t i = 0;

	if (json_array_size(lengths) != json_object_size(t->tables) ||
	    json_object_size(t->tokens))
		return kvt_fail(t->err, KVT_USAGE,
				"%s: --seq-lens has %zu lengths, expected one for each of the %zu requests%s",
				t->path, json_array_size(lengths),
				json_object_size(t->tables),
				json_object_size(t->tokens) ?
				", which have some in --blocks-of already" : "");
	json_object_foreach(t->tables, name, row)
		if (json_object_set(t->tokens, name, json_array_get(lengths, i++)))
			return kvt_no_memory(t->err, t->path);
	return KVT_OK;
}

/* ---- slots ----------------------------------------------------------------- */

/* The blocks of 'n' tokens from slot 'at' of the row on. */
static enum kvt_status take_slots(struct told *t, const char *name, const json_t *row,
				  size_t at, size_t n)
{
	json_t *list = json_array();
	int64_t before = -1;

	if (!list || json_object_set_new(t->tables, name, list) ||
	    json_object_set_new(t->tokens, name, json_integer((json_int_t)n)))
		return kvt_no_memory(t->err, t->path);
	for (size_t i = 0; i < n; i++) {
		int64_t slot = json_integer_value(json_array_get(row, at + i));
		bool begins = !(i % (size_t)t->each);

		if (begins ? slot % t->each != 0 : slot != before + 1)
			return kvt_fail(t->err, KVT_BAD_INPUT,
					"%s: --slot-mapping has token %zu of request %.64s in slot %lld, expected %s, with blocks of %lld; where several requests follow one another, --seq-lens=N,N says how long each is",
					t->path, i, name, LL(slot), begins ?
					"the first of a block" : "the one behind the token before",
					LL(t->each));
		before = slot;
		if (begins && json_array_append_new(list, json_integer(slot / t->each)))
			return kvt_no_memory(t->err, t->path);
	}
	return KVT_OK;
}

/* One row of all requests. */
static enum kvt_status split_slots(struct told *t, const json_t *row,
				   const json_t *lengths)
{
	enum kvt_status status = KVT_OK;
	size_t at = 0, all = json_array_size(row);

	for (size_t i = 0; !status && i < json_array_size(lengths); i++) {
		size_t n = (size_t)json_integer_value(json_array_get(lengths, i));
		char name[24];

		snprintf(name, sizeof(name), "%zu", i);
		if (n > all - at)
			return kvt_fail(t->err, KVT_BAD_INPUT,
					"%s: --slot-mapping has %zu slots, --seq-lens says more",
					t->path, all);
		status = take_slots(t, name, row, at, n);
		at += n;
	}
	if (!status && at != all)
		status = kvt_fail(t->err, KVT_BAD_INPUT,
				  "%s: --slot-mapping has %zu slots, --seq-lens says %zu",
				  t->path, all, at);
	return status;
}

static enum kvt_status take_mapping(struct told *t, const json_t *lengths)
{
	enum kvt_status status;
	const char *name;
	json_t *rows, *row;

	if ((status = kvt_number_rows_read(&rows, t->hints->slot_mapping, t->err)))
		return status;
	if (!lengths)
		json_object_foreach(rows, name, row)
			status = status ? status :
				 take_slots(t, name, row, 0, json_array_size(row));
	else if (json_object_size(rows) == 1)
		status = split_slots(t, json_object_get(rows, "0"), lengths);
	else
		status = kvt_fail(t->err, KVT_USAGE,
				  "%s: has %zu rows of slots, which say themselves how long each is: leave out --seq-lens",
				  t->hints->slot_mapping, json_object_size(rows));
	json_decref(rows);
	return status;
}

/* ---- what was told -------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	json_int_t x = json_integer_value(*(json_t *const *)a);
	json_int_t y = json_integer_value(*(json_t *const *)b);

	return x < y ? -1 : x > y;
}

/* A block that a request has twice is padding of its row. */
static enum kvt_status check_twice(const struct told *t, const char *name,
				   const json_t *row)
{
	size_t n = json_array_size(row), i = 1;
	const json_t **sorted = calloc(n + 1, sizeof(const json_t *));

	if (!sorted)
		return kvt_no_memory(t->err, t->path);
	for (size_t k = 0; k < n; k++)
		sorted[k] = json_array_get(row, k);
	qsort(sorted, n, sizeof(*sorted), by_value);
	while (i < n && by_value(&sorted[i - 1], &sorted[i]))
		i++;
	if (i < n)
		kvt_fail(t->err, KVT_BAD_INPUT,
			 "%s: request %.64s has block %lld twice; where rows are padded, --seq-lens=N,N says how many tokens each request has",
			 t->path, name, LL(json_integer_value(sorted[i])));
	free(sorted);
	return i < n ? KVT_BAD_INPUT : KVT_OK;
}

/* Tokens of those of which nothing says how many: as many as their blocks have. */
static enum kvt_status finish_row(const struct told *t, const char *name, json_t *row)
{
	int64_t tokens = json_integer_value(json_object_get(t->tokens, name));
	size_t need = tokens > 0 ? (size_t)((tokens - 1) / t->each + 1) : 0;

	while (t->cut && need && json_array_size(row) > need)
		json_array_remove(row, json_array_size(row) - 1);
	if (!need) {
		tokens = (int64_t)json_array_size(row) * t->each;
		if (json_object_set_new(t->tokens, name, json_integer(tokens)))
			return kvt_no_memory(t->err, t->path);
	}
	if (json_array_size(row) < need)
		return kvt_fail(t->err, KVT_BAD_INPUT,
				"%s: request %.64s has %lld tokens, which do not fit into its %zu blocks of %lld",
				t->path, name, LL(tokens), json_array_size(row),
				LL(t->each));
	return check_twice(t, name, row);
}

static enum kvt_status take_all(struct told *t)
{
	const struct kvt_hints *hints = t->hints;
	enum kvt_status status = KVT_OK;
	json_t *lengths = NULL, *row;
	const char *name;

	for (int i = 0; !status && i < hints->blocks_of.n; i++)
		status = *hints->blocks_of.s[i] == '@' ?
			 take_file(t, hints->blocks_of.s[i] + 1) :
			 take_word(t, hints->blocks_of.s[i]);
	if (!status && hints->seq_lens)
		status = read_lengths(&lengths, t, hints->seq_lens);
	if (!status && hints->slot_mapping)
		status = take_mapping(t, lengths);
	else if (!status && lengths)
		status = take_lengths(t, lengths);
	json_decref(lengths);
	if (!status && !json_object_size(t->tables))
		status = kvt_fail(t->err, KVT_BAD_INPUT,
				  "%s: --%s says of no request which blocks it has", t->path,
				  hints->slot_mapping ? "slot-mapping" : "blocks-of");
	json_object_foreach(t->tables, name, row)
		status = status ? status : finish_row(t, name, row);
	return status;
}

/* ---- beside what the dump says -------------------------------------------- */

static bool is_same(const struct kvt_request *a, const struct kvt_request *b, int ngroups)
{
	bool same = b && a->ntokens == b->ntokens && a->first_token == b->first_token;

	for (int g = 0; same && g < ngroups; g++)
		same = a->nblocks[g] == b->nblocks[g] && a->blocks[g] && b->blocks[g] &&
		       !memcmp(a->blocks[g], b->blocks[g],
			       (size_t)a->nblocks[g] * sizeof(*a->blocks[g]));
	return same;
}

static enum kvt_status compare(const struct told *t, const struct kvt_snapshot *told,
			       const struct kvt_snapshot *is)
{
	for (int64_t r = 0; r < told->nrequests; r++) {
		const struct kvt_request *request = &told->request[r];

		if (!is_same(request, kvt_request_named(is, request->id), is->ngroups))
			return kvt_fail(t->err, KVT_BAD_INPUT,
					"%s: --%s says what blocks request %.64s has, but the dump has %lld requests of its own, %s",
					t->path, t->hints->slot_mapping ? "slot-mapping" :
					"blocks-of", request->id, LL(is->nrequests),
					kvt_request_named(is, request->id) ?
					"and other blocks or tokens for that one" :
					"none of that name");
	}
	return KVT_OK;
}

/* Nothing but the requests of the copy is its own. */
static enum kvt_status read_told(const struct told *t, struct kvt_snapshot *snapshot)
{
	enum kvt_status status = KVT_OK;
	const struct kvt_json in = {
		json_pack("{s:O, s:O}", "block_table", t->tables, "num_tokens",
			  t->tokens),
		t->path, t->err, &status
	};
	struct kvt_snapshot *told = malloc(sizeof(*told));

	if (!in.object || !told) {
		status = kvt_no_memory(t->err, t->path);
	} else {
		*told = *snapshot;
		told->nrequests = 0;
		told->request = NULL;
		kvt_manifest_requests(told, &in, NULL);
		if (!status && snapshot->nrequests)
			status = compare(t, told, snapshot);
		if (!status && !snapshot->nrequests) {
			snapshot->nrequests = told->nrequests;
			snapshot->request = told->request;
		} else {
			kvt_requests_free(told->request, told->nrequests);
		}
	}
	free(told);
	json_decref((json_t *)in.object);
	return status;
}

enum kvt_status kvt_manifest_blocks_of(struct kvt_snapshot *snapshot,
				       const struct kvt_hints *hints, const char *path,
				       struct kvt_error *err)
{
	struct told t = { .path = path, .hints = hints, .err = err };
	enum kvt_status status;

	if (!hints || (!hints->blocks_of.n && !hints->slot_mapping && !hints->seq_lens))
		return KVT_OK;
	if (hints->seq_lens && !hints->blocks_of.n && !hints->slot_mapping)
		return kvt_fail(err, KVT_USAGE,
				"%s: --seq-lens says how many tokens requests have; --blocks-of or --slot-mapping says which blocks",
				path);
	if (hints->blocks_of.n && hints->slot_mapping)
		return kvt_fail(err, KVT_USAGE,
				"%s: --blocks-of and --slot-mapping say the same: give one of them",
				path);
	if ((status = find_blocks(&t, snapshot)))
		return status;
	t.tables = json_object();
	t.tokens = json_object();
	status = !t.tables || !t.tokens ? kvt_no_memory(err, path) : take_all(&t);
	if (!status)
		status = read_told(&t, snapshot);
	json_decref(t.tables);
	json_decref(t.tokens);
	return status;
}
