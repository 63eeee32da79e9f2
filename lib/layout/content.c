/* SPDX-License-Identifier: Apache-2.0 */
/* content.c - quantised contents: a table of them, and which bytes are what */
#include "lib/kvt/content.h"
#include "lib/base/print.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- table -------------------------------------------------------------- */

enum { MAX_PLANES = 2 };

/* A negative 'at' counts from the end of the row; a count of 0 is all up to there. */
struct field_recipe {
	const char *name;
	enum kvt_field_role role;
	const char *dtype;		/* "fp8": which one must be said */
	int64_t count, at;
	int plane, scale;
};

struct recipe {
	struct kvt_content_type type;
	int64_t plane[MAX_PLANES];	/* bytes of a row; 0: as many as there are */
	int64_t multiple;		/* of which a row must be; 0: any */
	int nfields;
	struct field_recipe field[KVT_MAX_FIELDS];
	const char *fp8;		/* if all engines have the same */
	const char *unreadable;		/* why; NULL: it can be read */
};

#define VALUES(name, dtype, n, at, plane, scale) \
	{ name, KVT_FIELD_VALUES, dtype, n, at, plane, scale }
#define SCALES(dtype, n, at, plane) \
	{ "scales", KVT_FIELD_SCALES, dtype, n, at, plane, -1 }
#define OTHER(name, n, at, plane) \
	{ name, KVT_FIELD_OTHER, "uint8", n, at, plane, -1 }

/* A float32 that scales a head vector, behind it. */
#define PER_TOKEN_HEAD(dtype) \
	.plane = { 0 }, .nfields = 2, \
	.field = { VALUES("values", dtype, 0, 0, 0, 1), SCALES("float32", 1, -4, 0) }
/* 128 numbers and one scale a row, numbers before scales. */
#define INDEXER \
	.plane = { 128, 4 }, .nfields = 2, \
	.field = { VALUES("values", "fp8", 128, 0, 0, 1), SCALES("float32", 1, 0, 1) }
/* Rows of 576 bytes, then for each 7 scales, of 64 values each, and a byte. */
#define DSV4 \
	.plane = { 576, 8 }, .nfields = 4, \
	.field = { VALUES("nope", "fp8", 448, 0, 0, 2), \
		   VALUES("rope", "bfloat16", 64, 448, 0, -1), \
		   SCALES("float8_e8m0", 7, 0, 1), OTHER("pad", 1, 7, 1) }
/* Bytes that only move. */
#define BYTES(n, why) \
	.plane = { 0 }, .multiple = n, .nfields = 1, \
	.field = { OTHER("bytes", 0, 0, 0) }, .unreadable = why

#define NIBBLES "which number of a byte comes first is not documented"
#define GGML "blocks of ggml are not decoded here"
#define ROWS_ARE_PACKED "how the numbers of a row are packed is not documented"

static const struct recipe recipes[] = {
	{ { "fp8-ds-mla", "DeepSeek V3.2: 512 fp8, 4 float32 scales, 64 bf16",
	    KVT_MLA, 1, false, false },
	  .plane = { 656 }, .nfields = 3, .fp8 = "float8_e4m3fn",
	  .field = { VALUES("nope", "fp8", 512, 0, 0, 1),
		     SCALES("float32", 4, 512, 0),
		     VALUES("rope", "bfloat16", 64, 528, 0, -1) } },
	{ { "indexer", "DeepSeek V3.2: 128 fp8 and a float32 scale; planes",
	    KVT_OPAQUE, 1, true, false }, INDEXER },
	{ { "dsv4-indexer", "DeepSeek V4: indexer rows of 4 tokens; planes",
	    KVT_OPAQUE, 4, true, false }, INDEXER },
	{ { "dsv4-c4a", "DeepSeek V4: 448 fp8, 64 bf16, 7 scales; 4 tokens; planes",
	    KVT_MLA, 4, true, false }, DSV4 },
	{ { "dsv4-c128a", "the same of 128 tokens", KVT_MLA, 128, true, false },
	  DSV4 },
	{ { "dsv4-swa", "the same of each token of the sliding window",
	    KVT_MLA, 1, true, false }, DSV4 },
	{ { "int8-per-token-head", "int8 and a float32 scale a head vector",
	    KVT_FULL_ATTENTION, 1, false, true }, PER_TOKEN_HEAD("int8") },
	{ { "fp8-per-token-head", "fp8 and a float32 scale a head vector",
	    KVT_FULL_ATTENTION, 1, false, true }, PER_TOKEN_HEAD("fp8") },
	{ { "int4-per-token-head", "4 bits and a float32 scale a head vector",
	    KVT_FULL_ATTENTION, 1, false, true },
	  .plane = { 0 }, .nfields = 2, .unreadable = NIBBLES,
	  .field = { OTHER("values", 0, 0, 0), SCALES("float32", 1, -4, 0) } },
	{ { "mla-per-token-head", "a latent row and two float32 scales",
	    KVT_MLA, 1, false, false },
	  BYTES(0, "which scale is for which numbers is not documented") },
	{ { "nvfp4", "4 bits, fp8 scales of 16, perhaps swizzled; planes",
	    KVT_OPAQUE, 1, true, false },
	  BYTES(18, NIBBLES) },
	{ { "q4_0", "llama.cpp: 18 bytes for 32 numbers",
	    KVT_FULL_ATTENTION, 1, false, true }, BYTES(18, GGML) },
	{ { "q4_1", "llama.cpp: 20 bytes for 32 numbers",
	    KVT_FULL_ATTENTION, 1, false, true }, BYTES(20, GGML) },
	{ { "q5_0", "llama.cpp: 22 bytes for 32 numbers",
	    KVT_FULL_ATTENTION, 1, false, true }, BYTES(22, GGML) },
	{ { "q5_1", "llama.cpp: 24 bytes for 32 numbers",
	    KVT_FULL_ATTENTION, 1, false, true }, BYTES(24, GGML) },
	{ { "q8_0", "llama.cpp: 34 bytes for 32 numbers",
	    KVT_FULL_ATTENTION, 1, false, true }, BYTES(34, GGML) },
	{ { "iq4_nl", "llama.cpp: 18 bytes for 32 numbers",
	    KVT_FULL_ATTENTION, 1, false, true }, BYTES(18, GGML) },
	{ { "turboquant-k8v4", "rows of fp8 keys, 4-bit values",
	    KVT_FULL_ATTENTION, 1, false, false }, BYTES(2, ROWS_ARE_PACKED) },
	{ { "turboquant-4bit-nc", "rows of 4-bit keys and values",
	    KVT_FULL_ATTENTION, 1, false, false }, BYTES(2, ROWS_ARE_PACKED) },
	{ { "turboquant-k3v4-nc", "rows of 3-bit keys, 4-bit values",
	    KVT_FULL_ATTENTION, 1, false, false }, BYTES(2, ROWS_ARE_PACKED) },
	{ { "turboquant-3bit-nc", "rows of 3-bit keys and values",
	    KVT_FULL_ATTENTION, 1, false, false }, BYTES(2, ROWS_ARE_PACKED) },
};
enum { NRECIPES = sizeof(recipes) / sizeof(recipes[0]) };

static const struct recipe *recipe_of(const struct kvt_content *content)
{
	/* a type is handed out only as the first member of its recipe */
	return (const struct recipe *)content->type;
}

/* ---- names -------------------------------------------------------------- */

/* What follows "float8_" in the names of the types. */
static const char *const flavours[] = { "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz" };
enum { NFLAVOURS = sizeof(flavours) / sizeof(flavours[0]), PREFIX = 7 };

static const struct kvt_dtype *flavour_at(int i)
{
	char name[32];

	snprintf(name, sizeof(name), "float8_%s", flavours[i]);
	return kvt_dtype_find(name);
}

static bool has_fp8(const struct recipe *recipe)
{
	for (int i = 0; i < recipe->nfields; i++)
		if (!strcmp(recipe->field[i].dtype, "fp8"))
			return true;
	return false;
}

static int lowered(char c)
{
	return c == '_' ? '-' : tolower((unsigned char)c);
}

/* Is 'name' the first 'length' characters of 'text'? */
static bool same_name(const char *name, const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (lowered(name[i]) != lowered(text[i]))
			return false;
	return !name[length];
}

const struct kvt_content_type *kvt_content_type_at(int i)
{
	return i >= 0 && i < NRECIPES ? &recipes[i].type : NULL;
}

bool kvt_content_find(struct kvt_content *out, const char *name)
{
	size_t length = strcspn(name, "/");
	struct kvt_content found = { NULL, NULL };

	for (int i = 0; i < NRECIPES && !found.type; i++)
		if (strlen(recipes[i].type.name) == length &&
		    same_name(recipes[i].type.name, name, length))
			found.type = &recipes[i].type;
	if (!found.type)
		return false;
	if (recipe_of(&found)->fp8)
		found.fp8 = kvt_dtype_find(recipe_of(&found)->fp8);
	if (name[length]) {
		const char *flavour = name + length + 1;

		found.fp8 = NULL;
		for (int i = 0; i < NFLAVOURS && has_fp8(recipe_of(&found)); i++)
			if (strlen(flavours[i]) == strlen(flavour) &&
			    same_name(flavours[i], flavour, strlen(flavour)))
				found.fp8 = flavour_at(i);
		if (!found.fp8)
			return false;
	}
	*out = found;
	return true;
}

struct kvt_text kvt_content_name(const struct kvt_content *content)
{
	struct kvt_text text = { "" };
	const char *usual;

	if (!content->type)
		return text;
	usual = recipe_of(content)->fp8;
	if (!content->fp8 || (usual && !strcmp(content->fp8->name, usual)))
		snprintf(text.s, sizeof(text.s), "%s", content->type->name);
	else
		snprintf(text.s, sizeof(text.s), "%s/%s", content->type->name,
			 content->fp8->name + PREFIX);
	return text;
}

bool kvt_content_equal(const struct kvt_content *a, const struct kvt_content *b)
{
	return a->type == b->type && a->fp8 == b->fp8;
}

int64_t kvt_content_row(const struct kvt_content *content)
{
	int64_t row = 0;

	for (int i = 0; content->type && i < MAX_PLANES; i++)
		row += recipe_of(content)->plane[i];
	return row;
}

/* ---- fields ------------------------------------------------------------- */

static enum kvt_status check_shape(const struct kvt_content_type *type,
				   const struct kvt_shape *shape, struct kvt_error *err)
{
	bool one_head = type->planar || type->kind == KVT_MLA;

	if (shape->elem != 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is bytes, but elements have %lld of them",
				type->name, LL(shape->elem));
	if (shape->n[KVT_AXIS_K] != 1 && !type->pairs)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is the whole content of a slot, but keys and values "
				"are separate",
				type->name);
	if (shape->n[KVT_AXIS_H] != 1 && one_head)
		return kvt_fail(err, KVT_BAD_INPUT, "%s has no heads, but there are %lld",
				type->name, LL(shape->n[KVT_AXIS_H]));
	if (shape->n[KVT_AXIS_S] != 1 && type->planar)
		return kvt_fail(err, KVT_BAD_INPUT,
				"a block of %s is one page of planes, so one slot, not "
				"%lld",
				type->name, LL(shape->n[KVT_AXIS_S]));
	return KVT_OK;
}

/* The rows of a page stand for its tokens. */
static enum kvt_status count_rows(int64_t *rows, int64_t *width,
				  const struct kvt_content *content, int64_t nbytes,
				  int64_t tokens, struct kvt_error *err)
{
	const struct recipe *recipe = recipe_of(content);
	const char *name = recipe->type.name;
	int64_t fixed = kvt_content_row(content), least = 1;

	*rows = recipe->type.planar ? tokens / recipe->type.ratio : 1;
	if (*rows < 1 || (recipe->type.planar && tokens % recipe->type.ratio))
		return kvt_fail(err, KVT_BAD_INPUT,
				"a page of %s holds %lld tokens, expected a multiple of "
				"%lld",
				name, LL(tokens), LL(recipe->type.ratio));
	*width = nbytes / *rows;
	for (int i = 0; i < recipe->nfields; i++)
		if (recipe->field[i].at < 0 && least <= -recipe->field[i].at)
			least = 1 - recipe->field[i].at;
	if (nbytes % *rows || (fixed ? *width != fixed : *width < least) ||
	    (recipe->multiple && *width % recipe->multiple)) {
		if (fixed)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%lld rows of %s have %lld bytes, expected %lld "
					"each",
					LL(*rows), name, LL(nbytes), LL(fixed));
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld rows of %s have %lld bytes, expected at least %lld "
				"each, in steps of %lld",
				LL(*rows), name, LL(nbytes), LL(least),
				LL(recipe->multiple ? recipe->multiple : 1));
	}
	return KVT_OK;
}

static void add_field(struct kvt_packing *out, const struct field_recipe *from,
		      const struct recipe *recipe, int64_t width)
{
	struct kvt_field *field = &out->field[out->nfields++];
	int64_t at = from->at, before = 0, end = width;

	for (int p = 0; p < from->plane; p++)
		before += recipe->plane[p] * out->rows;
	*field = (struct kvt_field){
		.name = from->name, .role = from->role, .scale = from->scale,
		.dtype = strcmp(from->dtype, "fp8") ? kvt_dtype_find(from->dtype) :
			 out->content.fp8,
		.at = before + (at < 0 ? width + at : at), .count = from->count,
		.stride = recipe->plane[from->plane] ? recipe->plane[from->plane] : width,
	};
	if (!field->dtype)		/* bytes, as long as nobody says more */
		field->dtype = kvt_dtype_find("uint8");
	if (field->count)
		return;
	for (int i = 0; i < recipe->nfields; i++)
		if (recipe->field[i].at < 0)
			end = width + recipe->field[i].at;
	field->count = (end - at) / field->dtype->elem;
}

enum kvt_status kvt_packing_init(struct kvt_packing *out,
				 const struct kvt_content *content,
				 const struct kvt_shape *shape, int64_t tokens_per_slot,
				 struct kvt_error *err)
{
	const struct recipe *recipe = recipe_of(content);
	struct kvt_packing packing = { .content = *content,
				       .nbytes = shape->n[KVT_AXIS_D] };
	enum kvt_status status;
	int64_t width = 0;

	if ((status = check_shape(content->type, shape, err)) ||
	    (status = count_rows(&packing.rows, &width, content, packing.nbytes,
				 tokens_per_slot, err)))
		return status;
	for (int i = 0; i < recipe->nfields; i++)
		add_field(&packing, &recipe->field[i], recipe, width);
	for (int i = 0; i < packing.nfields && !kvt_packing_readable(&packing, NULL); i++)
		if (packing.field[i].role == KVT_FIELD_VALUES)
			packing.row_values += packing.field[i].count;
	*out = packing;
	return KVT_OK;
}

enum kvt_status kvt_packing_readable(const struct kvt_packing *packing,
				     struct kvt_error *err)
{
	const struct recipe *recipe = recipe_of(&packing->content);

	if (recipe->unreadable)
		return kvt_fail(err, KVT_UNSUPPORTED, "numbers of %s cannot be read: %s",
				recipe->type.name, recipe->unreadable);
	if (has_fp8(recipe) && !packing->content.fp8)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s has an unknown fp8 type; give %s/e4m3fn, /e4m3fnuz, "
				"/e5m2 or /e5m2fnuz",
				recipe->type.name, recipe->type.name);
	return KVT_OK;
}

/* ---- layouts ------------------------------------------------------------ */

/* Anything behind D is inside a row, be it another part of D. */
static bool tears(const struct kvt_order *order, const struct kvt_shape *shape)
{
	bool behind = false;

	for (int i = 0; i < order->nparts; i++) {
		enum kvt_axis axis = order->part[i].axis;

		if (behind && shape->n[axis] > 1)
			return true;
		behind |= axis == KVT_AXIS_D;
	}
	return false;
}

enum kvt_status kvt_content_keeps(const struct kvt_content *content,
				  const struct kvt_layout *layout,
				  const struct kvt_shape *shape, struct kvt_error *err)
{
	for (int p = 0; content->type && p < layout->nplanes; p++)
		if (tears(&layout->plane[p], shape))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"layout %s does not keep the rows of %s "
					"contiguous",
					kvt_layout_string(layout).s,
					content->type->name);
	return KVT_OK;
}
