/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mlx.c - what mlx-lm, mlx-vlm and oMLX say of the arrays in their safetensors files
 *
 * Each layer of such a cache has a class, and numbers of its own: how many tokens it
 * was given, and of a ring where the next one goes.  They stand in the metadata of the
 * header, or since mlx-lm 0.32 in arrays of one number.  Which of several orders the
 * numbers have is told by how many there are.  Read from mlx-lm 0.21 to 0.32 and
 * mlx-vlm 0.7.
 *
 * A class that is not known here, and a ring whose numbers do not say where it stands,
 * is 'disordered': no reader may number its slots.
 */
#include "formats/tensor/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

#include "formats/parse/json.h"
#include "formats/parse/little_endian.h"

enum { MOST_NUMBERS = 5, MOST_HEADER = 16 << 20 };

struct source {
	struct kvt_tensors *tensors;
	const struct kvt_file *file;
	struct kvt_error *err;
};

/* What a file says of a layer; -1: it does not. */
struct facts {
	char class[KVT_HELD_CLASS];	/* "": nothing is said */
	bool ring;
	int64_t offset;			/* tokens it was given */
	int64_t keep, max_size, next;	/* of a ring */
	int64_t group, bits;		/* of codes */
};

/* ---- texts and numbers -------------------------------------------------- */

/* Of a layer: its number stands between two texts. */
static const char *note(const struct source *s, const char *before, int64_t layer,
			const char *after)
{
	char key[64];

	snprintf(key, sizeof(key), "%s%lld%s", before, (long long)layer, after);
	return kvt_tensors_note(s->tensors, key);
}

static int64_t number(const char *text)
{
	size_t n = text ? strspn(text, "0123456789") : 0;

	return n && n < 19 && !text[n] ? strtoll(text, NULL, 10) : -1;
}

/* An array of one whole number; -1 if it is none, or negative. */
static enum kvt_status read_number(int64_t *out, const struct source *s,
				   const struct kvt_tensor *t)
{
	int64_t n = t->end - t->begin;
	uint8_t bytes[8] = { 0 };
	enum kvt_status status;

	*out = -1;
	if (t->rank || (strcmp(t->type, "I32") && strcmp(t->type, "I64")))
		return KVT_OK;
	status = kvt_file_read(s->file, bytes, n, s->tensors->data + t->begin, s->err);
	if (!status && !(bytes[n - 1] & 0x80))
		*out = (int64_t)kvt_le(bytes, (int)n);
	return status;
}

/* ---- classes ------------------------------------------------------------ */

/* Those whose slot i is token i, unless it is a slot of a ring that was used again. */
static const struct {
	const char *name;
	bool ring;
} classes[] = {
	{ "KVCache", false }, { "ConcatenateKVCache", false },
	{ "QuantizedKVCache", false }, { "kv", false }, { "simple_kv", false },
	{ "minimax_m3", false },
	{ "RotatingKVCache", true }, { "rotating_kv", true },
};
enum { NCLASSES = sizeof(classes) / sizeof(classes[0]) };

static int class_of(const char *name)
{
	int i = 0;

	while (i < NCLASSES && strcmp(classes[i].name, name))
		i++;
	return i;
}

static void take_class(struct facts *out, const char *name)
{
	int i;

	snprintf(out->class, sizeof(out->class), "%s", name ? name : "");
	i = class_of(out->class);
	out->ring = i < NCLASSES && classes[i].ring;
}

/* ---- mlx-lm ------------------------------------------------------------- */

/* The orders that the numbers of a ring were written in. */
static const struct {
	bool arrays;
	int count, offset, keep, max_size, next;
} orders[] = {
	{ false, 5, 3, 0, 1, 4 },	/* keep, max_size, step, offset, next */
	{ false, 4, 2, 0, 1, 3 },
	{ true, 4, 0, 1, 2, 3 },
};
enum { NORDERS = sizeof(orders) / sizeof(orders[0]) };

static void take_ring(struct facts *out, bool arrays, const int64_t *n, int count)
{
	for (int i = 0; out->ring && i < NORDERS; i++)
		if (orders[i].arrays == arrays && orders[i].count == count) {
			out->offset = n[orders[i].offset];
			out->keep = n[orders[i].keep];
			out->max_size = n[orders[i].max_size];
			out->next = n[orders[i].next];
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
static enum kvt_status read_cut(struct facts *out, const struct source *s, int64_t layer)
{
	int64_t n[MOST_NUMBERS];
	const char *text;
	char after[8];
	int count = 0;

	take_class(out, note(s, "2.", layer, ""));
	out->offset = INT64_MAX;
	for (; count < MOST_NUMBERS; n[count++] = number(text)) {
		snprintf(after, sizeof(after), ".%d", count);
		if (!(text = note(s, "0.", layer, after)))
			break;
	}
	take_ring(out, false, n, count);
	take_codes(out, n, count);
	return KVT_OK;
}

/* Since 0.32: numbers in arrays, after those of keys and values. */
static enum kvt_status read_whole(struct facts *out, const struct source *s,
				  int64_t layer)
{
	enum kvt_status status = KVT_OK;
	const struct kvt_tensor *found;
	int64_t n[MOST_NUMBERS];
	char name[48];
	int count = 0;

	take_class(out, note(s, "1.", layer, ""));
	while (!status && count < MOST_NUMBERS) {
		snprintf(name, sizeof(name), "%lld.%d", (long long)layer, count + 2);
		if (!(found = kvt_tensors_find(s->tensors, name)))
			break;
		status = read_number(&n[count++], s, found);
	}
	if (count)
		out->offset = n[0];
	take_ring(out, true, n, count);
	take_codes(out, n, count);
	return status;
}

/* ---- mlx-vlm, oMLX ------------------------------------------------------ */

static enum kvt_status read_exact(struct facts *out, const struct source *s,
				  int64_t layer)
{
	take_class(out, note(s, "c", layer, "_kind"));
	out->offset = number(note(s, "c", layer, "_offset"));
	out->keep = number(note(s, "c", layer, "_keep"));
	out->max_size = number(note(s, "c", layer, "_max_size"));
	out->next = number(note(s, "c", layer, "_idx"));
	return KVT_OK;
}

/* Does no block come before the first one? */
static bool is_first(const char *meta)
{
	int64_t parent = -1;
	json_t *json;

	if (!meta || kvt_json_parse(&json, meta, strlen(meta), "b0_meta", NULL))
		return false;
	if (kvt_json_int(&parent, &(struct kvt_json){ json, "b0_meta", NULL },
			 "parent_hash", 0, INT64_MAX))
		parent = -1;
	json_decref(json);
	return parent == 0;
}

/* As many blocks as hashes; zeros follow. */
static enum kvt_status read_shard(struct facts *out, const struct source *s,
				  int64_t layer)
{
	const char *at = kvt_tensors_note(s->tensors, "block_hashes");
	int64_t size = number(kvt_tensors_note(s->tensors, "block_size"));
	int64_t blocks = at && *at;

	(void)layer;
	for (; at && *at; at++)
		blocks += *at == ',';
	take_class(out, is_first(kvt_tensors_note(s->tensors, "b0_meta")) ?
		   "KVCache" : "shard that begins with a later block");
	if (size < 0 || __builtin_mul_overflow(size, blocks, &out->offset))
		out->offset = -1;
	return KVT_OK;
}

/* Classes are a JSON list of names. */
static enum kvt_status read_omlx(struct facts *out, const struct source *s,
				 int64_t layer)
{
	const char *list = kvt_tensors_note(s->tensors, "layer_cache_types");
	const char *begin = strchr(list, '"'), *end = NULL;
	char name[KVT_HELD_CLASS];

	for (; begin && (end = strchr(begin + 1, '"')) && layer > 0; layer--)
		begin = strchr(end + 1, '"');
	if (!begin || !end)
		return KVT_OK;
	snprintf(name, sizeof(name), "%.*s", (int)(end - begin - 1 < KVT_HELD_CLASS ?
						   end - begin - 1 : KVT_HELD_CLASS),
		 begin + 1);
	take_class(out, name);
	out->offset = number(kvt_tensors_note(s->tensors, "token_count"));
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

static void take_held(struct kvt_held *out, const struct facts *f, int64_t slots)
{
	int64_t seen = f->offset == INT64_MAX ? slots : f->offset;

	strcpy(out->class, f->class);
	out->turned = is_turned(f, slots);
	out->disordered = class_of(f->class) == NCLASSES ||
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

/* ---- all tensors -------------------------------------------------------- */

/* Who wrote a file, and how it names things. */
struct maker {
	const char *names;		/* as for --set=names */
	const char *prefix[2];		/* of a tensor, before the number of its layer */
	enum kvt_status (*read)(struct facts *, const struct source *, int64_t layer);
};

static const struct maker cut = { "{l}.0,{l}.1", { "", "" }, read_cut };
static const struct maker whole = { "{l}.0,{l}.1", { "", "" }, read_whole };
static const struct maker exact = { "c{l}_k,c{l}_v", { "c", "c" }, read_exact };
static const struct maker shard = { "k{l},v{l}", { "k", "v" }, read_shard };
static const struct maker omlx = {
	"layer_{l}_state_0,layer_{l}_state_1", { "layer_", "layer_" }, read_omlx
};

static const struct maker *find_maker(const struct kvt_tensors *t)
{
	const char *third = kvt_tensors_note(t, "2.0");
	const char *layout = kvt_tensors_note(t, "layout");

	/* the third list is of classes, or of arrays, and then an empty text is first */
	if (third)
		return *third ? &cut : &whole;
	if (layout && !strcmp(layout, "exact_cache_v1"))
		return &exact;
	if (layout && !strncmp(layout, "layer_major_", strlen("layer_major_")))
		return &shard;
	return kvt_tensors_note(t, "layer_cache_types") ? &omlx : NULL;
}

/*
 * Recurrent states: the newest inputs of a convolution, [batch, taps, channels], and what
 * the recurrence made of all, [batch, heads, ...], in this order; a model may have the
 * first alone.  Named "L.N", or since 0.32 "L.0.N".
 */
static void take_states(struct kvt_tensor *t, const struct source *s,
			const struct maker *maker, int64_t layer)
{
	const char *class = note(s, maker == &cut ? "2." : "1.", layer, "");
	const char *at = t->name + strspn(t->name, "0123456789");
	int64_t which;

	if ((maker != &cut && maker != &whole) || !class || t->begin == t->end ||
	    class_of(class) < NCLASSES)
		return;
	if (!strncmp(at, ".0.", 3))
		at += 2;
	which = *at == '.' ? number(at + 1) : -1;
	t->held.role = KVT_ROLE_UNKNOWN;
	if (!strcmp(class, "ArraysCache") || !strcmp(class, "MambaCache"))
		t->held.role = which == 0 && t->rank == 3 ? KVT_ROLE_CONV :
			       which == 1 && t->rank > 2 ? KVT_ROLE_STATE :
			       KVT_ROLE_UNKNOWN;
	snprintf(t->held.class, sizeof(t->held.class), "%s", class);
	t->held.layer = layer;
	t->held.taps_first = true;
}

static int64_t layer_of(const char *name, const struct maker *maker)
{
	for (int i = 0; i < 2; i++) {
		size_t n = strlen(maker->prefix[i]), digits;

		if (strncmp(name, maker->prefix[i], n))
			continue;
		digits = strspn(name + n, "0123456789");
		if (digits && digits < 10)
			return strtoll(name + n, NULL, 10);
	}
	return -1;
}

/* ---- whose file it is --------------------------------------------------- */

/* A key in quotes, and the beginning of its value, with any space around the colon. */
static bool has(const uint8_t *text, int64_t n, const char *key, const char *value)
{
	const uint8_t *at = text, *end = text + n, *next;
	size_t nkey = strlen(key), nvalue = strlen(value);

	while ((at = memchr(at, key[0], (size_t)(end - at)))) {
		next = at + nkey;
		if ((size_t)(end - at++) < nkey || memcmp(at - 1, key, nkey))
			continue;
		while (next < end && (*next == ' ' || *next == ':'))
			next++;
		if ((size_t)(end - next) >= nvalue && !memcmp(next, value, nvalue))
			return true;
	}
	return false;
}

/* What the metadata of a maker have, and those of no other file. */
static bool is_of_mlx(const uint8_t *header, int64_t n)
{
	return has(header, n, "\"__metadata__\"", "{") &&
	       (has(header, n, "\"2.0\"", "\"") ||
		has(header, n, "\"layer_cache_types\"", "\"") ||
		has(header, n, "\"layout\"", "\"exact_cache_v1\"") ||
		has(header, n, "\"layout\"", "\"layer_major_"));
}

bool kvt_mlx_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	int64_t length = nhead >= 10 ? (int64_t)kvt_le(head, 8) : 0;
	struct kvt_files files = { 0 };
	uint8_t *header = NULL;
	bool found = false;
	int file = 0;

	if (length < 2 || length > MOST_HEADER || head[8] != '{')
		return false;
	if (length <= nhead - 8)
		return is_of_mlx(head + 8, length);
	if (!kvt_files_open(&files, &file, path, NULL) &&
	    files.file[file].nbytes >= 8 + length && (header = malloc((size_t)length)) &&
	    !kvt_file_read(&files.file[file], header, length, 8, NULL))
		found = is_of_mlx(header, length);
	free(header);
	kvt_files_close(&files);
	return found;
}

enum kvt_status kvt_mlx_tell(struct kvt_tensors *tensors, const struct kvt_file *file,
			     struct kvt_error *err)
{
	const struct source s = { tensors, file, err };
	const struct maker *maker = find_maker(tensors);
	enum kvt_status status = KVT_OK;

	if (!maker)
		return KVT_OK;
	tensors->names = maker->names;
	for (int64_t i = 0; !status && i < tensors->count; i++) {
		struct facts facts = { .offset = -1, .keep = -1, .max_size = -1,
				       .next = -1, .group = -1, .bits = -1 };
		struct kvt_tensor *t = &tensors->tensor[i];
		int64_t layer = layer_of(t->name, maker);

		if (layer < 0)
			continue;
		take_states(t, &s, maker, layer);
		/* [batch, heads, tokens, elements] */
		if ((t->held.role && t->held.role != KVT_ROLE_UNKNOWN) || t->rank != 4)
			continue;
		status = maker->read(&facts, &s, layer);
		if (facts.class[0])
			take_held(&t->held, &facts, t->shape[2]);
	}
	return status;
}
