/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side_words.c - --src and --dst: what one side of a transfer is, in words
 *
 *	KEY=VALUE,..	layout, tp, block-size, pool, dcp, interleave, ids
 *	tp4, bs16, nhd	the same without a key; "tp4:nhd" as well as "tp4,nhd"
 *
 * A word ends at a comma, but not before a digit where it has a =: an axis tuple has
 * commas of its own, layout=rfc:0,1,3,2,4.  What is not said stays as it was, so the
 * destination begins as the source.  ids=file:PATH is read here.
 */
#include "sim/cmd/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/keys.h"
#include "print/out/text_file.h"

static enum kvt_status take_ids(struct kvt_transfer_pool *p, struct side_ids *ids,
				const char *name, const char *value,
				struct kvt_error *err)
{
	p->ids = (struct kvt_id_pattern){ .words = ids->words };
	if (snprintf(ids->words, sizeof(ids->words), "%s",
		     value) < (int)sizeof(ids->words))
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE,
			"--%s: ids are longer than %zu characters: write them to a file",
			name, sizeof(ids->words) - 1);
}

/* What is longer than any list of use is cut, and refused when it is parsed. */
static enum kvt_status read_ids(struct kvt_id_pattern *out, struct side_ids *ids,
				struct kvt_error *err)
{
	const char *path = ids->words + 5;
	size_t most = kvt_id_list_most(), room = 4096, n = 0;
	FILE *file = text_file_open(path);
	enum kvt_status status = KVT_OK;

	if (!file)
		return kvt_fail(err, KVT_SYSTEM, "%s: %s", path, strerror(errno));
	free(ids->list);
	ids->list = malloc(room + 1);
	while (ids->list && (n += fread(ids->list + n, 1, room - n, file)) == room &&
	       room < most) {
		char *more;

		room = 2 * room < most ? 2 * room : most;
		if (!(more = realloc(ids->list, room + 1)))
			free(ids->list);
		ids->list = more;
	}
	if (!ids->list)
		status = kvt_no_memory(err, NULL);
	else if (ferror(file))
		status = kvt_fail(err, KVT_SYSTEM, "%s: cannot be read", path);
	else
		ids->list[n] = '\0';
	text_file_close(file);
	out->list = ids->list;
	out->nbytes = n;
	return status;
}

const char *side_bare_key(const char **value, const char *word)
{
	struct kvt_layout layout;

	*value = word + 2;
	if (word[2] && !word[2 + strspn(word + 2, "0123456789")]) {
		if (!strncmp(word, "tp", 2))
			return "tp";
		if (!strncmp(word, "bs", 2))
			return "block-size";
	}
	*value = word;
	return kvt_layout_parse(&layout, word, NULL) ? NULL : "layout";
}

/* "tp4:nhd" as well as "tp4,nhd": cuts after the first word; the rest, or NULL. */
static char *cut_bare(char *word)
{
	size_t n = strcspn(word, ",:");
	bool tp = word[n] == ':' && !strncmp(word, "tp", 2) &&
		  2 + strspn(word + 2, "0123456789") == n;
	char *end = tp ? word + n : strchr(word, ',');

	if (end)
		*end++ = '\0';
	return end;
}

/* What a side is said with; what lies in the pool is taken from it when all is read. */
struct side_said {
	const char *layout, *ids;
	int64_t tp, block_size, pool, dcp, interleave;
};

#define SIDE(name, type, field) { name, type, offsetof(struct side_said, field), NULL }
static const struct kvt_key side_keys[] = {
	SIDE("layout", KVT_KEY_TEXT, layout), SIDE("tp", KVT_KEY_COUNT, tp),
	SIDE("block-size", KVT_KEY_COUNT, block_size), SIDE("pool", KVT_KEY_COUNT, pool),
	SIDE("dcp", KVT_KEY_COUNT, dcp), SIDE("interleave", KVT_KEY_COUNT, interleave),
	SIDE("ids", KVT_KEY_TEXT, ids), { NULL, KVT_KEY_FLAG, 0, NULL },
};

/* One word at *text, which moves to the next; a value's commas are before digits. */
static enum kvt_status take_word(struct kvt_keys *keys, char **text,
				 struct kvt_error *err)
{
	char *at = *text, *value = strchr(at, '='), *next;
	const char *bare, *key;

	if (!value || strcspn(at, ",") < (size_t)(value - at)) {
		*text = cut_bare(at);
		if ((key = side_bare_key(&bare, at)))
			return kvt_keys_put(keys, key, strlen(key), bare, err);
		return kvt_fail(err, KVT_USAGE,
				"%s: '%.60s', expected KEY=VALUE, such as layout=hnd or tp=4",
				keys->what, at);
	}
	next = strchr(value, ',');
	while (next && next[1] >= '0' && next[1] <= '9')
		next = strchr(next + 1, ',');
	if (next)
		*next++ = '\0';
	*text = next;
	return kvt_keys_put(keys, at, (size_t)(value - at), value + 1, err);
}

static enum kvt_status take_side(struct kvt_transfer_pool *p, struct side_ids *ids,
				 const char *name, const struct side_said *w,
				 struct kvt_error *err)
{
	enum kvt_status status;

	if (w->layout && (status = kvt_layout_parse(&p->layout, w->layout, err)))
		return status;
	p->ranks = w->tp ? w->tp : p->ranks;
	p->block_size = w->block_size ? w->block_size : p->block_size;
	p->blocks = w->pool ? w->pool : p->blocks;
	p->dcp = w->dcp ? w->dcp : p->dcp;
	p->interleave = w->interleave ? w->interleave : p->interleave;
	return w->ids ? take_ids(p, ids, name, w->ids, err) : KVT_OK;
}

/* "KEY=VALUE,..."; an axis tuple after rfc: or vllm: has commas of its own. */
enum kvt_status pool_take(struct kvt_transfer_pool *p, struct side_ids *ids,
			  const char *name, const char *text, struct kvt_error *err)
{
	char words[2048], what[32], *at = words;
	struct side_said said = { .tp = 0 };
	struct kvt_keys keys = { what, side_keys, &said, 0 };
	enum kvt_status status = KVT_OK;

	snprintf(what, sizeof(what), "--%s", name);
	if (snprintf(words, sizeof(words), "%s", text) >= (int)sizeof(words))
		return kvt_fail(err, KVT_USAGE, "%s is longer than %zu characters", what,
				sizeof(words) - 1);
	while (!status && at)
		status = take_word(&keys, &at, err);
	if (status || (status = take_side(p, ids, name, &said, err)) ||
	    p->ids.words != ids->words || strncmp(ids->words, "file:", 5))
		return status;
	return read_ids(&p->ids, ids, err);
}
