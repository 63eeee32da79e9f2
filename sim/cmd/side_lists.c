/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side_lists.c - --src and --dst that say many sides: "tp=1,2,4,layout=nhd,hnd"
 *
 * The words are those of one side, where a key may have several values.  Each choice of
 * values is written as one side and read by what reads one, so that both mean the same.
 */
#include "sim/cmd/side_lists.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { LAYOUT, BLOCK_SIZE, TP, REST };

static const char *const keys[SIDE_KEYS] = { "layout", "block-size", "tp" };

/* ---- reading --------------------------------------------------------------- */

static int key_of(const char *word, size_t n)
{
	int k = 0;

	while (k < SIDE_KEYS && (strlen(keys[k]) != n || strncmp(keys[k], word, n)))
		k++;
	return k == SIDE_KEYS && n == 10 && !strncmp(word, "block_size", n) ? BLOCK_SIZE :
	       k;
}

static enum kvt_status add_value(struct side_list *list, int key, const char *value,
				 const char *name, struct kvt_error *err)
{
	if (list->key[key].n == SIDE_VALUES)
		return kvt_fail(err, KVT_USAGE, "--%s has more than %d values of %s",
				name, SIDE_VALUES, keys[key]);
	list->key[key].value[list->key[key].n++] = value;
	return KVT_OK;
}

static enum kvt_status add_rest(struct side_list *list, const char *word,
				const char *name, struct kvt_error *err)
{
	size_t n = strlen(list->rest), room = sizeof(list->rest) - n;

	if (snprintf(list->rest + n, room, "%s%s", n ? "," : "", word) < (int)room)
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE, "--%s is too long", name);
}

/* One word between commas; '*key' is that of the word before, then of this one. */
static enum kvt_status take_word(struct side_list *list, int *key, char *word,
				 const char *name, struct kvt_error *err)
{
	const char *equals = strchr(word, '='), *bare, *bare_value;

	if (equals) {
		*key = key_of(word, (size_t)(equals - word));
		if (*key == REST)
			return add_rest(list, word, name, err);
		if (list->key[*key].n)
			return kvt_fail(err, KVT_USAGE,
					"--%s says %s twice: several values go between commas, as in %s=%s,%.40s",
					name, keys[*key], keys[*key],
					list->key[*key].value[0], equals + 1);
		return add_value(list, *key, equals + 1, name, err);
	}
	if (isdigit((unsigned char)*word) && (*key == TP || *key == BLOCK_SIZE))
		return add_value(list, *key, word, name, err);
	if (isdigit((unsigned char)*word) && *key == LAYOUT) {
		word[-1] = ',';		/* vllm:0,2,1 is one value */
		return KVT_OK;
	}
	if (!(bare = side_bare_key(&bare_value, word)))
		return add_rest(list, word, name, err);
	*key = key_of(bare, strlen(bare));
	return add_value(list, *key, bare_value, name, err);
}

enum kvt_status side_list_parse(struct side_list *out, const char *name, const char *text,
				struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	int key = REST;

	memset(out, 0, sizeof(*out));
	if (snprintf(out->text, sizeof(out->text), "%s", text ? text : "") >=
	    (int)sizeof(out->text))
		return kvt_fail(err, KVT_USAGE, "--%s is too long", name);
	for (char *at = out->text, *next; !status && at && *at; at = next) {
		if ((next = strchr(at, ',')))
			*next++ = '\0';
		status = take_word(out, &key, at, name, err);
	}
	return status;
}

void side_list_inherit(struct side_list *list, const struct side_list *from)
{
	for (int k = 0; k < SIDE_KEYS; k++)
		if (!list->key[k].n)
			list->key[k] = from->key[k];
}

/* ---- sides ----------------------------------------------------------------- */

/* The i-th value of a key and so on: the last key's vary fastest. */
static enum kvt_status make_side(struct kvt_matrix_side *out, struct side_ids *ids,
				 const char *name, const struct side_list *list,
				 int64_t i, struct kvt_error *err)
{
	char text[4096] = "";
	size_t n = 0;

	out->made.pool.ids.words = "contig";
	for (int k = SIDE_KEYS - 1; k >= 0; k--) {
		const char *value;

		if (!list->key[k].n)
			continue;
		value = list->key[k].value[i % list->key[k].n];
		i /= list->key[k].n;
		if (k == LAYOUT)
			out->layout = value;
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s=%s",
				      n ? "," : "", keys[k], value);
	}
	if (list->rest[0])
		snprintf(text + n, sizeof(text) - n, "%s%s", n ? "," : "", list->rest);
	out->as_it_is = !text[0];
	return out->as_it_is ? KVT_OK : pool_take(&out->made.pool, ids, name, text, err);
}

enum kvt_status side_set_make(struct side_set *out, const char *name,
			      const struct side_list *list, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	int64_t n = 1;

	for (int k = 0; k < SIDE_KEYS; k++)
		n *= list->key[k].n ? list->key[k].n : 1;
	out->n = n;
	out->side = calloc((size_t)n, sizeof(*out->side));
	out->ids = calloc((size_t)n, sizeof(*out->ids));
	if (!out->side || !out->ids)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; !status && i < n; i++)
		status = make_side(&out->side[i], &out->ids[i], name, list, i, err);
	return status;
}

void side_set_free(struct side_set *set)
{
	for (int64_t i = 0; set->ids && i < set->n; i++)
		free(set->ids[i].list);
	free(set->side);
	free(set->ids);
}
