/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mlx_facts.c - what files of mlx say of a layer's cache, and what it means
 *
 * A class, and numbers of its own: how many tokens it was given, and of a ring where the
 * next one goes.  They stand in the metadata of the header, or since mlx-lm 0.32 in
 * arrays of one number.  Which of several orders the numbers have is told by how many
 * there are (orders[]).  Where each stands is drawn in mlx.c.
 *
 * A class that is not known here, and a ring whose numbers do not say where it stands,
 * is 'disordered': no reader may number its slots.
 */
#include "formats/tensor/mlx_facts.h"

#include <stdlib.h>
#include <string.h>

#include "formats/parse/json.h"
#include "lib/base/little_endian.h"

enum { MOST_NUMBERS = 5 };

/* ---- texts and numbers -------------------------------------------------- */

/* Of a layer: its number stands between two texts. */
const char *mlx_note(const struct source *s, const char *before, int64_t layer,
		     const char *after)
{
	char key[64];

	snprintf(key, sizeof(key), "%s%lld%s", before, (long long)layer, after);
	return kvt_tensors_note(s->tensors, key);
}

int64_t mlx_number(const char *text)
{
	size_t n = text ? strspn(text, "0123456789") : 0;

	if (text && (!strcmp(text, "True") || !strcmp(text, "False")))
		return text[0] == 'T';
	return n && n < 19 && !text[n] ? strtoll(text, NULL, 10) : -1;
}

/* An array of one whole number; -1 if it is none, or negative. */
enum kvt_status mlx_read_number(int64_t *out, const struct source *s,
				const struct kvt_tensor *t)
{
	int64_t n = t->end - t->begin;
	uint8_t bytes[8] = { 0 };
	enum kvt_status status;

	*out = -1;
	if (t->rank || (strcmp(t->type, "I32") && strcmp(t->type, "I64") &&
			strcmp(t->type, "BOOL")))
		return KVT_OK;
	status = kvt_file_read(s->file, bytes, n, s->tensors->data + t->begin, s->err);
	if (!status && !(bytes[n - 1] & 0x80))
		*out = (int64_t)kvt_le(bytes, (int)n);
	return status;
}

/* ---- classes ------------------------------------------------------------ */

/*
 * Those whose slot i is token i, unless it is a slot of a ring that was used again, a
 * chunk, which has lost the first ones, or a batch, whose rows begin with padding.
 */
static const struct {
	const char *name;
	bool ring, chunk, batch;
} classes[] = {
	{ .name = "KVCache" }, { .name = "ConcatenateKVCache" },
	{ .name = "QuantizedKVCache" }, { .name = "kv" }, { .name = "simple_kv" },
	{ .name = "minimax_m3" },
	{ "RotatingKVCache", .ring = true }, { "rotating_kv", .ring = true },
	{ "ChunkedKVCache", .chunk = true },
	{ "BatchKVCache", .batch = true },
	{ "BatchRotatingKVCache", .ring = true, .batch = true },
};
enum { NCLASSES = sizeof(classes) / sizeof(classes[0]) };

static int class_of(const char *name)
{
	int i = 0;

	while (i < NCLASSES && strcmp(classes[i].name, name))
		i++;
	return i;
}

bool mlx_has_class(const char *name)
{
	return class_of(name) < NCLASSES;
}

static void take_class(struct facts *out, const char *name)
{
	int i;

	snprintf(out->class, sizeof(out->class), "%s", name ? name : "");
	i = class_of(out->class);
	out->ring = i < NCLASSES && classes[i].ring;
	out->chunk = i < NCLASSES && classes[i].chunk;
	out->batch = i < NCLASSES && classes[i].batch;
}

/* ---- mlx-lm ------------------------------------------------------------- */

/* The orders that the numbers were written in; a member by its place in struct facts. */
#define AT(name) offsetof(struct facts, name)
enum { UNUSED = AT(class) };
static const struct {
	bool ring, chunk, batch;	/* whose */
	bool arrays;
	int count;
	size_t at[MOST_NUMBERS];
} orders[] = {
	{ true, false, false, false, 5,
	  { AT(keep), AT(max_size), UNUSED, AT(offset), AT(next) } },
	{ true, false, false, false, 4,
	  { AT(keep), AT(max_size), AT(offset), AT(next) } },
	{ true, false, false, true, 4,
	  { AT(offset), AT(keep), AT(max_size), AT(next) } },
	{ false, true, false, false, 2, { AT(max_size), AT(start) } },
	{ false, true, false, true, 3, { AT(offset), AT(max_size), AT(start) } },
	{ false, false, true, true, 1, { AT(next) } },
	{ true, false, true, false, 4,
	  { AT(max_size), UNUSED, AT(next), AT(turned) } },
	{ true, false, true, true, 4, { AT(max_size), UNUSED, AT(next), AT(turned) } },
};
enum { NORDERS = sizeof(orders) / sizeof(orders[0]) };

static void take_order(struct facts *out, bool arrays, const int64_t *n, int count)
{
	for (int i = 0; i < NORDERS; i++) {
		if (orders[i].ring != out->ring || orders[i].chunk != out->chunk ||
		    orders[i].batch != out->batch || orders[i].arrays != arrays ||
		    orders[i].count != count)
			continue;
		for (int j = 0; j < count; j++)
			if (orders[i].at[j] != UNUSED)
				memcpy((char *)out + orders[i].at[j], &n[j], sizeof(*n));
	}
}

/* Those of codes: in 0.26 a step comes first. */
static void take_codes(struct facts *out, const int64_t *n, int count)
{
	int step = count == 4;

	if (strcmp(out->class, "QuantizedKVCache") || (count != 3 && count != 4))
		return;
	out->offset = n[step];
	out->group = n[step + 1];
	out->bits = n[step + 2];
}

/* Until 0.31: numbers in the metadata, and arrays that were cut to the tokens. */
enum kvt_status mlx_read_cut(struct facts *out, const struct source *s,
			     const struct spot *spot)
{
	int64_t n[MOST_NUMBERS];
	const char *text;
	char name[80];
	int count = 0;

	take_class(out, spot->class);
	out->offset = INT64_MAX;
	for (; count < MOST_NUMBERS; n[count++] = mlx_number(text)) {
		snprintf(name, sizeof(name), "%s.%d", spot->numbers, count);
		if (!(text = kvt_tensors_note(s->tensors, name)))
			break;
	}
	take_order(out, false, n, count);
	take_codes(out, n, count);
	/* a chunk that lost tokens is cut where it had slots, not where it had tokens */
	if (out->chunk && out->start)
		out->offset = -1;
	return KVT_OK;
}

/* Since 0.32: numbers in arrays, after keys and values, and arrays of a batch. */
enum kvt_status mlx_read_whole(struct facts *out, const struct source *s,
			       const struct spot *spot)
{
	enum kvt_status status = KVT_OK;
	const struct kvt_tensor *found;
	int64_t n[MOST_NUMBERS];
	char name[80];
	int count = 0;

	take_class(out, spot->class);
	while (!status && count < MOST_NUMBERS) {
		snprintf(name, sizeof(name), "%s.%d", spot->numbers,
			 count + (out->batch ? 4 : 2));
		if (!(found = kvt_tensors_find(s->tensors, name)))
			break;
		status = mlx_read_number(&n[count++], s, found);
	}
	if (count && !out->batch)
		out->offset = n[0];
	take_order(out, true, n, count);
	take_codes(out, n, count);
	return status;
}

/* ---- mlx-vlm, oMLX ------------------------------------------------------ */

enum kvt_status mlx_read_exact(struct facts *out, const struct source *s,
			       const struct spot *spot)
{
	int64_t layer = spot->layer;

	take_class(out, mlx_note(s, "c", layer, "_kind"));
	out->offset = mlx_number(mlx_note(s, "c", layer, "_offset"));
	if (out->offset < 0)
		out->offset = mlx_number(mlx_note(s, "c", layer, "_cache_length"));
	out->keep = mlx_number(mlx_note(s, "c", layer, "_keep"));
	out->max_size = mlx_number(mlx_note(s, "c", layer, "_max_size"));
	out->next = mlx_number(mlx_note(s, "c", layer, "_idx"));
	return KVT_OK;
}

/* The hash of the block that one follows. */
static bool read_parent(int64_t *parent, const char *meta)
{
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { NULL, "meta", NULL, &status };
	json_t *json;
	bool told;

	if (!meta || kvt_json_parse(&json, meta, strlen(meta), "meta", NULL))
		return false;
	in.object = json;
	*parent = 0;
	told = json_object_get(json, "parent_hash") &&
	       !kvt_json_int(parent, &in, "parent_hash", INT64_MIN, INT64_MAX);
	json_decref(json);
	return told;
}

/* Does each block follow the one before it? */
static bool is_chain(const struct source *s)
{
	const char *list = kvt_tensors_note(s->tensors, "block_hashes");
	int64_t before = 0, parent, i = 0;
	bool chain = list != NULL;

	for (char *end; chain && *list; list = *end ? end + 1 : end, i++) {
		chain = read_parent(&parent, mlx_note(s, "b", i, "_meta")) &&
			parent == before;
		before = strtoll(list, &end, 10);
		chain &= end > list && (!*end || *end == ',');
	}
	return chain && i;
}

/* As many blocks as hashes; zeros follow. */
enum kvt_status mlx_read_shard(struct facts *out, const struct source *s,
			       const struct spot *spot)
{
	const char *at = kvt_tensors_note(s->tensors, "block_hashes");
	int64_t size = mlx_number(kvt_tensors_note(s->tensors, "block_size"));
	int64_t blocks = at && *at;

	(void)spot;
	for (; at && *at; at++)
		blocks += *at == ',';
	take_class(out, is_chain(s) ? "KVCache" : "shard with gaps, or of later blocks");
	if (size < 0 || __builtin_mul_overflow(size, blocks, &out->offset))
		out->offset = -1;
	return KVT_OK;
}

/* Classes are a JSON list of names. */
enum kvt_status mlx_read_omlx(struct facts *out, const struct source *s,
			      const struct spot *spot)
{
	const char *list = kvt_tensors_note(s->tensors, "layer_cache_types");
	const char *begin = strchr(list, '"'), *end = NULL;
	int64_t layer = spot->layer;
	char name[KVT_HELD_CLASS];

	for (; begin && (end = strchr(begin + 1, '"')) && layer > 0; layer--)
		begin = strchr(end + 1, '"');
	if (!begin || !end)
		return KVT_OK;
	snprintf(name, sizeof(name), "%.*s", (int)(end - begin - 1 < KVT_HELD_CLASS ?
						   end - begin - 1 : KVT_HELD_CLASS),
		 begin + 1);
	take_class(out, name);
	out->offset = mlx_number(kvt_tensors_note(s->tensors, "token_count"));
	return KVT_OK;
}

/* ---- what it means ------------------------------------------------------ */

/* No slot was used twice. */
static bool is_in_order(const struct facts *f, int64_t slots)
{
	return !f->ring || (f->offset >= 0 && f->offset <= slots &&
			    f->next == f->offset && f->max_size > 0 && f->keep >= 0);
}

/*
 * One that is full has as many slots as it may; after many tokens at once it may have
 * more, and then they are in order again, behind the first ones that it keeps.
 */
static bool is_turned(const struct facts *f, int64_t slots)
{
	return f->ring && f->offset > slots && f->offset != INT64_MAX && f->keep >= 0 &&
	       f->max_size > f->keep && slots >= f->max_size && f->next <= slots &&
	       (f->next > f->keep || (f->next == f->keep && slots == f->max_size)) &&
	       (slots == f->max_size || f->next == slots);
}

/* Of a chunk 'start' tokens are gone; how many slots have one is not always said. */
static void take_chunk(struct kvt_held *out, const struct facts *f, int64_t slots)
{
	int64_t seen = f->offset == INT64_MAX ? slots : f->offset;

	strcpy(out->class, f->class);
	out->disordered = f->start < 0 || f->max_size < 1 || f->start > INT64_MAX / 2 ||
			  (seen >= 0 && (seen < f->start || seen - f->start > slots));
	if (out->disordered)
		return;
	out->told = out->fixed = out->sliding = out->chunk = true;
	out->seen = seen;
	out->start = f->start;
	out->window = f->max_size;
}

static void take_slots(struct kvt_held *out, const struct facts *f, int64_t slots)
{
	int64_t seen = f->offset == INT64_MAX ? slots : f->offset;

	strcpy(out->class, f->class);
	out->turned = is_turned(f, slots);
	out->disordered = !mlx_has_class(f->class) ||
			  (!is_in_order(f, slots) && !out->turned);
	out->ring = f->ring;
	out->seen = seen;
	out->bits = f->bits;
	out->bits_group = f->group;
	if (out->disordered || seen < 0)
		return;
	out->told = true;
	out->fixed = seen != slots;
	if (out->turned) {
		out->keep = f->keep;
		out->next = f->next;
	}
	/* one that keeps the first tokens saves memory; no model attends so */
	out->sliding = f->ring && !f->keep;
	out->window = out->sliding ? f->max_size : 0;
}

void mlx_take_held(struct kvt_held *out, const struct facts *f, int64_t slots)
{
	(f->chunk ? take_chunk : take_slots)(out, f, slots);
}
