/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompts.c - the token ids of prompts: a list on the command line, or a file
 *
 *	[NAME=]1,2,3		nothing but digits and commas
 *	[NAME=]FILE		a file of rows (formats/describe/number_rows.c)
 *
 * "A=prompt.json" is a file where there is one of that name after the '='.
 */
#include "formats/manifest/prompts.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"
#include "formats/describe/number_rows.h"
#include "lib/base/number.h"

enum { MOST_PROMPTS = 1 << 16, MOST_NAME = 200 };

/* Takes 'list' as a prompt; an empty name: its number. */
static enum kvt_status add(struct kvt_prompts *all, const char *name, const json_t *list,
			   struct kvt_error *err)
{
	size_t n = json_array_size(list);
	struct kvt_prompt *p;
	char number[24];

	if (all->count == MOST_PROMPTS)
		return kvt_fail(err, KVT_UNSUPPORTED, "--prompt: more than %d prompts",
				MOST_PROMPTS);
	snprintf(number, sizeof(number), "%lld", LL(all->count));
	if (!KVT_GROW(&all->prompt, all->count))
		return kvt_no_memory(err, "--prompt");
	p = &all->prompt[all->count++];
	*p = (struct kvt_prompt){ .name = strdup(*name ? name : number),
				  .token = calloc(n + 1, sizeof(*p->token)),
				  .ntokens = (int64_t)n };
	if (!p->name || !p->token)
		return kvt_no_memory(err, "--prompt");
	for (size_t i = 0; i < n; i++)
		p->token[i] = json_integer_value(json_array_get(list, i));
	if (!n)
		return kvt_fail(err, KVT_BAD_INPUT, "prompt %.80s has no token", p->name);
	return KVT_OK;
}

/* "1,2,3" and nothing else. */
static bool is_list(const char *text)
{
	return *text >= '0' && *text <= '9' && !text[strspn(text, "0123456789,")];
}

static enum kvt_status add_list(struct kvt_prompts *all, const char *name,
				const char *text, struct kvt_error *err)
{
	json_t *list = json_array();
	enum kvt_status status = list ? KVT_OK : kvt_no_memory(err, "--prompt");
	const char *at = text;
	int64_t token;

	while (!status && *at) {
		if (!kvt_number_take(&token, &at) || (*at && (*at != ',' || !at[1])))
			status = kvt_fail(err, KVT_USAGE,
					  "--prompt is '%.100s', expected tokens as 1,2,3",
					  text);
		else if (json_array_append_new(list, json_integer(token)))
			status = kvt_no_memory(err, "--prompt");
		at += *at == ',';
	}
	if (!status)
		status = add(all, name, list, err);
	json_decref(list);
	return status;
}

/* A file of one list calls it "0", which is a name among its own alone. */
static bool is_number(const char *key, bool one)
{
	return one && !strcmp(key, "0");
}

static enum kvt_status add_file(struct kvt_prompts *all, const char *name,
				const char *path, struct kvt_error *err)
{
	enum kvt_status status;
	json_t *rows, *row;
	const char *key;
	bool one;

	if ((status = kvt_number_rows_read(&rows, path, err)))
		return status;
	one = json_object_size(rows) == 1;
	if (!json_object_size(rows))
		status = kvt_fail(err, KVT_BAD_INPUT, "%.200s: has no prompt", path);
	else if (*name && !one)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%.200s: has %zu prompts, which cannot all be called %.80s; leave out the name",
				  path, json_object_size(rows), name);
	json_object_foreach(rows, key, row)
		if (!status)
			status = add(all, *name ? name : is_number(key, one) ? "" : key,
				     row, err);
	json_decref(rows);
	return status;
}

/* The name ends at the first '=': names of files may have one, too. */
static enum kvt_status add_said(struct kvt_prompts *all, const char *said,
				struct kvt_error *err)
{
	const char *equals = strchr(said, '=');
	char name[MOST_NAME + 1] = "";

	if (equals && (equals == said || equals - said > MOST_NAME || !equals[1]))
		return kvt_fail(err, KVT_USAGE,
				"--prompt is '%.100s', expected [NAME=]FILE or [NAME=]1,2,3", said);
	if (equals) {
		memcpy(name, said, (size_t)(equals - said));
		said = equals + 1;
	}
	return is_list(said) ? add_list(all, name, said, err) :
			       add_file(all, name, said, err);
}

static int by_name(const void *a, const void *b)
{
	const struct kvt_prompt *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static enum kvt_status check_names(const struct kvt_prompts *all, struct kvt_error *err)
{
	const struct kvt_prompt **sorted;
	enum kvt_status status = KVT_OK;

	if (!(sorted = calloc((size_t)all->count + 1, sizeof(*sorted))))
		return kvt_no_memory(err, "--prompt");
	for (int64_t i = 0; i < all->count; i++)
		sorted[i] = &all->prompt[i];
	qsort(sorted, (size_t)all->count, sizeof(*sorted), by_name);
	for (int64_t i = 1; !status && i < all->count; i++)
		if (!strcmp(sorted[i]->name, sorted[i - 1]->name))
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "two prompts are called %.80s; --prompt=NAME=FILE names them",
					  sorted[i]->name);
	free(sorted);
	return status;
}

enum kvt_status kvt_prompts_read(struct kvt_prompts *out, const struct kvt_facts *said,
				 struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	*out = (struct kvt_prompts){ 0 };
	for (int i = 0; !status && i < said->n; i++)
		status = add_said(out, said->s[i], err);
	if (!status)
		status = check_names(out, err);
	if (status)
		kvt_prompts_free(out);
	return status;
}

void kvt_prompts_free(struct kvt_prompts *prompts)
{
	for (int64_t i = 0; i < prompts->count; i++) {
		free(prompts->prompt[i].name);
		free(prompts->prompt[i].token);
	}
	free(prompts->prompt);
	*prompts = (struct kvt_prompts){ 0 };
}
