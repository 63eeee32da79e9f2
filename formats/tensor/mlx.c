/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mlx.c - what mlx-lm, mlx-vlm and oMLX say of the arrays in their safetensors files
 *
 *			arrays of layer l		metadata
 *	mlx-lm to 0.31	{l}.0 keys, {l}.1 values	0.{l}.{i} numbers, 2.{l} class
 *	mlx-lm 0.32	the same, {l}.2, .. numbers	1.{l} class
 *	    of codes	{l}.0.{i}, {l}.1.{i}: codes, scales, biases of keys, of values
 *	mlx-vlm		c{l}_k, c{l}_v			c{l}_kind, c{l}_offset, c{l}_idx
 *	a shard		k{l}, v{l}			block_hashes, block_size
 *	oMLX		layer_{l}_state_0, .._1		layer_cache_types, token_count
 *
 * Each layer of such a cache has a class, and numbers of its own (mlx_facts.c).  It may
 * be a CacheList, whose parts have classes and numbers of their own, and of a batch rows
 * have their own lengths (mlx_batch.c); of DeepSeek V4.1 it has rows of several tokens
 * (mlx_rows.c).  Read from mlx-lm 0.21 to 0.32 and mlx-vlm 0.7.
 */
#include "formats/tensor/mlx_batch.h"
#include "formats/tensor/mlx_facts.h"
#include "formats/tensor/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

#include "formats/file/tree.h"
#include "lib/base/little_endian.h"
#include "lib/base/print.h"

enum { MOST_HEADER = 16 << 20 };

/* ---- all tensors -------------------------------------------------------- */

/* Who wrote a file, and how it names things. */
struct maker {
	const char *names;		/* as for --set=names */
	const char *prefix[2];		/* of a tensor, before the number of its layer */
	mlx_read_fn *read;
};

static const struct maker cut = { "{l}.0,{l}.1", { "", "" }, mlx_read_cut };
static const struct maker whole = { "{l}.0,{l}.1", { "", "" }, mlx_read_whole };
static const struct maker exact = { "c{l}_k,c{l}_v", { "c", "c" }, mlx_read_exact };
static const struct maker shard = { "k{l},v{l}", { "k", "v" }, mlx_read_shard };
static const struct maker omlx = {
	"layer_{l}_state_0,layer_{l}_state_1", { "layer_", "layer_" }, mlx_read_omlx
};

/* Until its version 3. */
static const struct maker older = {
	"layer_{l}_keys,layer_{l}_values", { "layer_", "layer_" }, mlx_read_omlx
};

static const struct maker *find_maker(const struct kvt_tensors *t)
{
	const char *third = kvt_tensors_note(t, "2.0");
	const char *layout = kvt_tensors_note(t, "layout");
	bool is_omlx = kvt_tensors_note(t, "layer_cache_types");

	/* the third list is of classes, or of arrays, and then an empty text is first */
	if (third)
		return *third ? &cut : &whole;
	if (layout && !strcmp(layout, "exact_cache_v1"))
		return &exact;
	if (layout && !strncmp(layout, "layer_major_", strlen("layer_major_")))
		return &shard;
	for (int64_t i = 0; i < t->count; i++)
		if (kvt_path_ends(t->tensor[i].name, "_keys") && is_omlx)
			return &older;
	return is_omlx ? &omlx : NULL;
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

/* ---- parts of a layer ---------------------------------------------------- */

/* A text that is an array: of each character its number. */
static enum kvt_status read_text(char out[KVT_HELD_CLASS], const struct source *s,
				 const struct kvt_tensor *t)
{
	bool fits = t && t->rank == 1 && !strcmp(t->type, "I32") && t->shape[0] > 0 &&
		    t->shape[0] < KVT_HELD_CLASS;
	uint8_t bytes[4 * KVT_HELD_CLASS];
	enum kvt_status status;

	strcpy(out, "CacheList of an unknown cache");
	if (!fits)
		return KVT_OK;
	if ((status = kvt_file_read(s->file, bytes, t->end - t->begin,
				    s->tensors->data + t->begin, s->err)))
		return status;
	for (int64_t i = 0; i < t->shape[0]; i++) {
		uint64_t letter = kvt_le(bytes + 4 * i, 4);

		if (letter < 0x20 || letter > 0x7e)
			return strcpy(out, "CacheList of an unknown cache"), KVT_OK;
		out[i] = (char)letter;
	}
	out[t->shape[0]] = '\0';
	return KVT_OK;
}

/*
 * Until 0.31 "L.J.N", the class in the metadata, and in those before that neither is
 * said; since 0.32 "L.J.0.N", and "L.J.1" is the class.
 */
static enum kvt_status find_part(struct spot *out, const struct source *s, bool newer,
				 const struct kvt_tensor *t)
{
	size_t digits = strspn(out->rest, "0123456789");
	const char *text, *after = out->rest + digits;
	char name[80];

	strcpy(out->class, "CacheList of unnamed parts");
	if (!digits || digits > 4)
		return KVT_OK;
	out->part = strtoll(out->rest, NULL, 10);
	out->parts = true;
	if (!newer) {
		snprintf(name, sizeof(name), "0.%lld.0.%lld", LL(out->layer),
			 LL(out->part));
		if (*after != '.' || !(text = kvt_tensors_note(s->tensors, name)))
			return KVT_OK;
		snprintf(out->class, sizeof(out->class), "%s", text);
		snprintf(out->numbers, sizeof(out->numbers), "0.%lld.1.%lld",
			 LL(out->layer), LL(out->part));
		snprintf(out->arrays, sizeof(out->arrays), "%lld.%lld", LL(out->layer),
			 LL(out->part));
		out->rest = after + 1;
		return KVT_OK;
	}
	if (!strcmp(after, ".1") && t->rank == 1)
		out->class[0] = '\0';
	if (strncmp(after, ".0.", 3))
		return KVT_OK;
	snprintf(out->numbers, sizeof(out->numbers), "%lld.%lld.0", LL(out->layer),
		 LL(out->part));
	strcpy(out->arrays, out->numbers);
	snprintf(name, sizeof(name), "%lld.%lld.1", LL(out->layer), LL(out->part));
	out->rest = after + 3;
	return read_text(out->class, s, kvt_tensors_find(s->tensors, name));
}

static enum kvt_status find_spot(struct spot *out, const struct source *s,
				 const struct maker *maker, const struct kvt_tensor *t)
{
	const char *class;

	*out = (struct spot){ .layer = layer_of(t->name, maker), .rest = "" };
	if (out->layer < 0 || (maker != &cut && maker != &whole))
		return KVT_OK;
	out->rest = t->name + strspn(t->name, "0123456789");
	out->rest += *out->rest == '.';
	class = mlx_note(s, maker == &cut ? "2." : "1.", out->layer, "");
	snprintf(out->class, sizeof(out->class), "%s", class ? class : "");
	snprintf(out->numbers, sizeof(out->numbers), "%s%lld", maker == &cut ? "0." : "",
		 LL(out->layer));
	snprintf(out->arrays, sizeof(out->arrays), "%lld", LL(out->layer));
	return strcmp(out->class, "CacheList") ? KVT_OK :
	       find_part(out, s, maker == &whole, t);
}

/* Keys and values of a part have no names that a pattern could match. */
static void take_part(struct kvt_tensor *t, const struct spot *spot)
{
	bool keys = !strcmp(spot->rest, "0"), values = !strcmp(spot->rest, "1");

	if (!spot->parts || (!keys && !values))
		return;
	t->held.role = keys ? KVT_ROLE_KEYS : KVT_ROLE_VALUES;
	t->held.layer = spot->layer;
	t->held.part = spot->part;
}

/* ---- recurrent states ----------------------------------------------------- */

/*
 * The newest inputs of a convolution, [batch, taps, channels], and what the recurrence
 * made of all, [batch, heads, ...].  How many arrays a cache has tells which is which:
 * one of a model that has the first alone, or the second; both; RWKV has another input
 * after them; and Kimi's queries, keys and values have a convolution each.
 */
static const char *const arrays_of[] = { "", "?", "cs", "csc", "cccs" };

static enum kvt_role role_of(const struct kvt_tensor *t, int64_t which, int64_t count)
{
	char role = which < count && count < 5 ? arrays_of[count][which] : '-';

	if (role == '?')
		role = t->rank == 3 ? 'c' : t->rank == 4 ? 's' : '-';
	if (role == 'c' && t->rank == 3)
		return KVT_ROLE_CONV;
	return role == 's' && t->rank > 2 ? KVT_ROLE_STATE : KVT_ROLE_UNKNOWN;
}

/* Arrays of nothing are counted, too: a layer that has not run yet. */
static int64_t count_arrays(const struct source *s, const char *name, const char *last)
{
	char other[80];
	int64_t n = 0;

	for (; n < 6; n++) {
		snprintf(other, sizeof(other), "%.*s%lld", (int)(last - name), name,
			 LL(n));
		if (!kvt_tensors_find(s->tensors, other))
			break;
	}
	return n;
}

/* "N", or since 0.32 "0.N", beside "1" and "2", what is left of the padding of rows. */
static void take_states(struct kvt_tensor *t, const struct source *s,
			const struct spot *spot, bool newer)
{
	const char *last = spot->rest;
	int64_t which;

	if (t->begin == t->end || !spot->class[0] || mlx_has_class(spot->class))
		return;
	if (newer && !strncmp(last, "0.", 2))
		last += 2;
	else if (newer && t->rank == 1 && t->type[0] == 'I')
		return;
	which = mlx_number(last);
	t->held.role = KVT_ROLE_UNKNOWN;
	if (which >= 0 && (!strcmp(spot->class, "ArraysCache") ||
			   !strcmp(spot->class, "MambaCache")))
		t->held.role = role_of(t, which, count_arrays(s, t->name, last));
	snprintf(t->held.class, sizeof(t->held.class), "%s", spot->class);
	t->held.layer = spot->layer;
	t->held.taps_first = true;
}

/* ---- arrays that have names ---------------------------------------------- */

/*
 * Files of mlx-vlm and oMLX, after the number of the layer.  One class of each has
 * states, as those of mlx-lm are.
 */
static const struct {
	const struct maker *maker;
	const char *pair[2], *state, *states;	/* states: the class that has these */
} endings[] = {
	{ &exact, { "_k", "_v" }, "_s", "arrays" },
	{ &shard, { "", "" }, NULL, "" },
	{ &omlx, { "_state_0", "_state_1" }, "_state_", "ArraysCache" },
	{ &older, { "_keys", "_values" }, NULL, "" },
};
enum { NENDINGS = sizeof(endings) / sizeof(endings[0]) };

static enum kvt_role role_named(const struct kvt_tensor *t, const struct source *s, int i,
				const char *class, const char *after)
{
	const char *state = endings[i].state;
	bool states = !strcmp(class, endings[i].states);
	size_t n = state ? strlen(state) : 0;
	int64_t which = n && !strncmp(after, state, n) ? mlx_number(after + n) : -1;

	if (!states && (!strcmp(after, endings[i].pair[0]) ||
			!strcmp(after, endings[i].pair[1])))
		return t->rank == 4 || mlx_has_class(class) ? KVT_ROLE_PAIR :
							      KVT_ROLE_UNKNOWN;
	if (states && which >= 0)
		return role_of(t, which, count_arrays(s, t->name, after + n));
	return !strcmp(after, "_index_keys") ? KVT_ROLE_INDEX : KVT_ROLE_UNKNOWN;
}

/* Whatever their names leave out would be lost, so it is something, or not known. */
static void take_others(struct kvt_tensor *t, const struct source *s,
			const struct maker *maker, const struct spot *spot)
{
	struct facts facts = { .offset = -1 };
	const char *after = t->name + strcspn(t->name, "0123456789");
	int i = 0;

	while (i < NENDINGS && endings[i].maker != maker)
		i++;
	if (i == NENDINGS || t->begin == t->end)
		return;
	strcpy(facts.class, "cache that has no layer");
	if (spot->layer >= 0 && maker->read(&facts, s, spot))
		return;
	t->held.role = spot->layer < 0 ? KVT_ROLE_UNKNOWN :
		       role_named(t, s, i, facts.class,
				  after + strspn(after, "0123456789"));
	if (!t->held.role)
		return;
	strcpy(t->held.class, facts.class[0] ? facts.class : "class that is not named");
	t->held.layer = spot->layer;
	t->held.taps_first = true;
}

/* ---- whose file it is --------------------------------------------------- */

/* A key in quotes, and the beginning of its value, with any space around the colon. */
bool kvt_header_has(const uint8_t *text, int64_t n, const char *key, const char *value)
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
	return kvt_header_has(header, n, "\"__metadata__\"", "{") &&
	       (kvt_header_has(header, n, "\"2.0\"", "\"") ||
		kvt_header_has(header, n, "\"layer_cache_types\"", "\"") ||
		kvt_header_has(header, n, "\"layout\"", "\"exact_cache_v1\"") ||
		kvt_header_has(header, n, "\"layout\"", "\"layer_major_"));
}

/* Of blocks of mlx-vlm, which need not be in order. */
static bool is_of_shard(const uint8_t *header, int64_t n)
{
	return kvt_header_has(header, n, "\"__metadata__\"", "{") &&
	       (kvt_header_has(header, n, "\"layout\"", "\"layer_major_") ||
		kvt_header_has(header, n, "\"layout\"", "\"token_major_"));
}

bool kvt_header_probe(const char *path, const uint8_t *head, int64_t nhead,
		      bool (*is)(const uint8_t *header, int64_t n))
{
	int64_t length = nhead >= 10 ? (int64_t)kvt_le(head, 8) : 0;
	struct kvt_files files = { 0 };
	uint8_t *header = NULL;
	bool found = false;
	int file = 0;

	if (length < 2 || length > MOST_HEADER || head[8] != '{')
		return false;
	if (length <= nhead - 8)
		return is(head + 8, length);
	if (!kvt_files_open(&files, &file, path, NULL) &&
	    files.file[file].nbytes >= 8 + length && (header = malloc((size_t)length)) &&
	    !kvt_file_read(&files.file[file], header, length, 8, NULL))
		found = is(header, length);
	free(header);
	kvt_files_close(&files);
	return found;
}

bool kvt_mlx_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	return kvt_header_probe(path, head, nhead, is_of_mlx);
}

bool kvt_mlx_is_shard(const char *path, const uint8_t *head, int64_t nhead)
{
	return kvt_header_probe(path, head, nhead, is_of_shard);
}

/* Arrays of DeepSeek V4.1; one that does not fit stays what is not known. */
static enum kvt_status tell_rows(struct kvt_tensor *t, const struct source *s,
				 const struct spot *spot)
{
	const struct kvt_tensor *found;
	enum kvt_status status;
	int64_t offset = -1;
	char name[64];

	snprintf(name, sizeof(name), "%s.5", spot->arrays);
	found = kvt_tensors_find(s->tensors, name);
	if (found == t && !t->rank)
		t->held.role = KVT_ROLE_PAIR;	/* a number, as of other classes */
	if (t->rank != 3 || !found || t->held.role != KVT_ROLE_UNKNOWN)
		return KVT_OK;
	if (!(status = mlx_read_number(&offset, s, found)) &&
	    !kvt_mlx_rows(&t->held, s->tensors, spot->layer, (int)mlx_number(spot->rest),
			  offset))
		t->held.role = KVT_ROLE_UNKNOWN;
	return status;
}

/* [batch, heads, tokens, elements] */
static enum kvt_status tell(struct kvt_tensor *t, const struct source *s,
			    const struct maker *maker, const struct spot *spot)
{
	struct facts f = { .offset = -1, .keep = -1, .max_size = -1, .next = -1,
			   .start = -1, .turned = -1, .group = -1, .bits = -1 };
	enum kvt_status status = maker->read(&f, s, spot);

	if (status || !f.class[0])
		return status;
	take_part(t, spot);
	if (f.batch) {
		struct mlx_batch batch = {
			f.class, spot->arrays, t->shape[0], t->shape[2], f.ring,
			f.turned, f.next, f.max_size
		};

		return kvt_mlx_batch(&t->held, s->tensors, s->file, &batch, s->err);
	}
	mlx_take_held(&t->held, &f, t->shape[2]);
	return KVT_OK;
}

enum kvt_status kvt_mlx_tell(struct kvt_tensors *tensors, const struct kvt_file *file,
			     struct kvt_error *err)
{
	const struct source s = { tensors, file, err };
	const struct maker *maker = find_maker(tensors);
	enum kvt_status status = KVT_OK;
	struct spot spot;

	if (!maker)
		return KVT_OK;
	tensors->names = maker->names;
	tensors->mlx = true;
	for (int64_t i = 0; !status && i < tensors->count; i++) {
		struct kvt_tensor *t = &tensors->tensor[i];

		if ((status = find_spot(&spot, &s, maker, t)))
			break;
		take_others(t, &s, maker, &spot);
		if (spot.layer < 0)
			continue;
		take_states(t, &s, &spot, maker == &whole);
		if (!strcmp(spot.class, "LayerCache") && maker == &whole &&
		    (status = tell_rows(t, &s, &spot)))
			break;
		if ((t->held.role && t->held.role != KVT_ROLE_UNKNOWN &&
		     t->held.role != KVT_ROLE_INDEX) || t->rank != 4)
			continue;
		status = tell(t, &s, maker, &spot);
	}
	return status;
}
