/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content_names.c - what users, files and engines call a content
 *
 * A name of this program means one type.  Words of engines are taken from the table:
 * one that stands in several rows means several contents, and is not guessed.
 */
#include "lib/layout/content_types.h"

#include "lib/base/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What follows "float8_" in the names of the types. */
static const char *const flavours[] = { "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz" };
enum { NFLAVOURS = sizeof(flavours) / sizeof(flavours[0]), PREFIX = 7 };

/* Sizes of rows that only forks or changes that were not merged write. */
static const struct {
	const char *name, *whose;
} foreign[] = {
	{ "432", "b12x in a fork of vLLM (of GLM and of DeepSeek V4)" },
	{ "416", "SGLang's change #35237, not merged" },
	{ "368", "b12x in a fork of vLLM, and SGLang's change #37138, not merged" },
	{ "304", "b12x in a fork of vLLM (GLM_NEXT)" },
	{ "b12x", "a fork of vLLM, with rows of 432, 368 and 304 bytes" },
	{ "glm_next", "b12x in a fork of vLLM, 304 bytes" },
};

/* ---- words -------------------------------------------------------------- */

static bool same_text(const char *a, const char *b, size_t length, bool dashes)
{
	for (size_t i = 0; i < length; i++) {
		int x = tolower((unsigned char)a[i]), y = tolower((unsigned char)b[i]);

		if (dashes) {
			x = x == '_' ? '-' : x;
			y = y == '_' ? '-' : y;
		}
		if (x != y)
			return false;
	}
	return !a[length];
}

/* Is the text one of the words? */
static bool among(const char *words, const char *text, size_t length)
{
	while (words && *words) {
		size_t n = strcspn(words, " ");

		if (n == length && !strncasecmp(words, text, n))
			return true;
		words += n + (words[n] == ' ');
	}
	return false;
}

static bool is_word_of(const struct content_recipe *recipe, const char *text,
		       size_t length)
{
	const struct kvt_content_type *type = &recipe->type;

	return !recipe->told && (among(type->vllm, text, length) ||
				 among(type->sglang, text, length) ||
				 among(type->kernels, text, length));
}

/* ---- candidates --------------------------------------------------------- */

struct candidates {
	int n;
	const struct content_recipe *first;
	char text[320];
};

static void add_candidate(struct candidates *c, const struct content_recipe *recipe,
			  const char *part)
{
	size_t used = strlen(c->text);

	c->first = c->n++ ? c->first : recipe;
	snprintf(c->text + used, sizeof(c->text) - used, "%s%s%s", used ? ", " : "",
		 recipe->type.name, part);
}

/* Types whose rows, or those of their first plane, have so many bytes. */
static void add_sized(struct candidates *c, int64_t bytes)
{
	const struct content_recipe *recipe;

	for (int i = 0; (recipe = kvt_content_recipe_at(i)); i++) {
		const struct kvt_content content = { .type = &recipe->type };

		if (kvt_content_row(&content) == bytes)
			add_candidate(c, recipe, "");
		else if (kvt_content_row(&content) && recipe->type.planar &&
			 kvt_content_plane_width(recipe, 0, 0) == bytes)
			add_candidate(c, recipe, " (its data)");
		for (int64_t dim = 64; recipe->told && dim <= 512; dim *= 2)
			if (kvt_content_row_width(recipe, dim) == 2 * bytes)
				add_candidate(c, recipe, " (a head vector)");
	}
}

static enum kvt_status refuse_size(const char *name, struct kvt_error *err)
{
	struct candidates c = { .n = 0 };

	add_sized(&c, strtoll(name, NULL, 10));
	if (!c.n)
		return kvt_fail(err, KVT_USAGE,
				"content type '%.60s' is no name; see kvtool help contents",
				name);
	return kvt_fail(err, KVT_BAD_INPUT,
			"%.60s bytes are no name of a content: %s %s so many; give the name",
			name, c.text, c.n > 1 ? "have" : "has");
}

static enum kvt_status refuse_name(const char *name, struct kvt_error *err)
{
	struct kvt_nearest near = kvt_nearest_start(name);
	const struct kvt_content_type *type;

	for (int i = 0; (type = kvt_content_type_at(i)); i++)
		kvt_nearest_offer(&near, type->name);
	return kvt_fail(err, KVT_USAGE, "content type '%.60s' is not known%s", name,
			kvt_nearest_hint(&near, "; see kvtool help contents").s);
}

/* Nothing has that name: say why. */
static enum kvt_status refuse(const char *name, size_t length, struct kvt_error *err)
{
	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
		if (among(foreign[i].name, name, length))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"content type '%.60s' is not read: only %s has it",
					name, foreign[i].whose);
	if (length && strspn(name, "0123456789") == length && length < 10)
		return refuse_size(name, err);
	return refuse_name(name, err);
}

/* ---- behind the slash ---------------------------------------------------- */

static const struct kvt_dtype *flavour_at(int i)
{
	char name[32];

	snprintf(name, sizeof(name), "float8_%s", flavours[i]);
	return kvt_dtype_find(name);
}

static bool take_number(int64_t *out, const char *text, size_t length)
{
	if (!length || length > 7 || strspn(text, "0123456789") < length)
		return false;
	*out = strtoll(text, NULL, 10);
	return *out > 0;
}

/* "k128", "v64", "plain": a half that is not named is not rotated. */
static bool take_turn(struct kvt_content *content, const char *text, size_t length)
{
	int64_t *turn = content->turn, n;
	int kv = text[0] == 'v' || text[0] == 'V';

	if (length == 5 && !strncasecmp(text, "plain", length) && !turn[0] && !turn[1]) {
		turn[0] = turn[1] = 1;
		return true;
	}
	if (!length || !strchr("kKvV", text[0]) ||
	    !take_number(&n, text + 1, length - 1) || n < 2 || n & (n - 1) ||
	    turn[kv] > 1 || (turn[kv] && turn[!kv] < 2))
		return false;
	turn[kv] = n;
	if (!turn[!kv])
		turn[!kv] = 1;
	return true;
}

/* The fp8, the number or what is rotated; false: none, or not of this type. */
static bool take_suffix(struct kvt_content *content, const char *text, size_t length)
{
	const struct content_recipe *recipe = content_recipe_of(content);

	for (int i = 0; i < NFLAVOURS && kvt_content_has_fp8(recipe); i++)
		if (strlen(flavours[i]) == length &&
		    same_text(flavours[i], text, length, true)) {
			content->fp8 = flavour_at(i);
			return true;
		}
	if (recipe->block && take_turn(content, text, length))
		return true;
	return (recipe->type.planar || recipe->block) && !recipe->unreadable &&
	       !content->n && take_number(&content->n, text, length);
}

static enum kvt_status take_suffixes(struct kvt_content *content, const char *name,
				     const char *at, struct kvt_error *err)
{
	while (*at == '/') {
		size_t length = strcspn(++at, "/");

		if (!take_suffix(content, at, length))
			return kvt_fail(err, KVT_USAGE,
					"content type '%.60s' is not known: '%.*s' is neither an fp8 that %s has nor anything else of it; see kvtool help contents",
					name, (int)(length < 30 ? length : 30), at,
					content->type->name);
		at += length;
	}
	return KVT_OK;
}

/* ---- both ways ---------------------------------------------------------- */

static const struct content_recipe *named(const char *name, size_t length, bool dashes)
{
	const struct content_recipe *recipe;

	for (int i = 0; (recipe = kvt_content_recipe_at(i)); i++)
		if (strlen(recipe->type.name) == length &&
		    same_text(recipe->type.name, name, length, dashes))
			return recipe;
	return NULL;
}

enum kvt_status kvt_content_parse(struct kvt_content *out, const char *name,
				  struct kvt_error *err)
{
	const struct content_recipe *recipe = named(name, strlen(name), false);
	size_t length = recipe ? strlen(name) : strcspn(name, "/");
	struct kvt_content found = { .n = 0 };
	struct candidates c = { .n = 0 };
	enum kvt_status status;

	if (!recipe)
		recipe = named(name, length, false);
	for (int i = 0; !recipe && kvt_content_recipe_at(i); i++)
		if (is_word_of(kvt_content_recipe_at(i), name, length))
			add_candidate(&c, kvt_content_recipe_at(i), "");
	if (c.n > 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"content type '%.60s' means several contents: give one of %s",
				name, c.text);
	if (!recipe)
		recipe = c.n ? c.first : named(name, length, true);
	if (!recipe)
		return refuse(name, length, err);
	found.type = &recipe->type;
	if (recipe->fp8)
		found.fp8 = kvt_dtype_find(recipe->fp8);
	if ((status = take_suffixes(&found, name, name + length, err)))
		return status;
	*out = found;
	return KVT_OK;
}

bool kvt_content_find(struct kvt_content *out, const char *name)
{
	return !kvt_content_parse(out, name, NULL);
}

struct kvt_text kvt_content_name(const struct kvt_content *content)
{
	struct kvt_text text = { "" };
	const char *usual;
	size_t n;

	if (!content->type)
		return text;
	usual = content_recipe_of(content)->fp8;
	snprintf(text.s, sizeof(text.s), "%s", content->type->name);
	n = strlen(text.s);
	if (content->fp8 && !(usual && !strcmp(content->fp8->name, usual)))
		snprintf(text.s + n, sizeof(text.s) - n, "/%s",
			 content->fp8->name + PREFIX);
	n = strlen(text.s);
	if (content->n)
		snprintf(text.s + n, sizeof(text.s) - n, "/%lld", LL(content->n));
	if (content->turn[0] == 1 && content->turn[1] == 1)
		strcat(text.s, "/plain");
	for (int kv = 0; kv < 2; kv++) {
		n = strlen(text.s);
		if (content->turn[kv] > 1)
			snprintf(text.s + n, sizeof(text.s) - n, "/%c%lld", "kv"[kv],
				 LL(content->turn[kv]));
	}
	return text;
}

bool kvt_content_equal(const struct kvt_content *a, const struct kvt_content *b)
{
	return a->type == b->type && a->fp8 == b->fp8 && a->n == b->n &&
	       a->turn[0] == b->turn[0] && a->turn[1] == b->turn[1];
}
