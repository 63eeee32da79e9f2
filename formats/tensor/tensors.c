/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.c - lists of named tensors: finding one of them, and by their names which
 * layer each is of and whether it holds keys or values
 *
 * Lists are in the order of bytes; by_name[] is the same, sorted, so that a name is
 * found in log n steps.
 */
#include "formats/tensor/tensors.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "formats/file/proof.h"
#include "formats/parse/zip.h"
#include "lib/base/order.h"
#include "lib/base/print.h"

static void free_proof(struct kvt_file_proof *proof)
{
	if (proof)
		kvt_proof_free(proof);
	free(proof);
}

void kvt_tensor_free(struct kvt_tensor *tensor)
{
	free(tensor->name);
	free(tensor->coded);
}

void kvt_tensors_free(struct kvt_tensors *tensors)
{
	for (int64_t i = 0; i < tensors->count; i++)
		kvt_tensor_free(&tensors->tensor[i]);
	free(tensors->tensor);
	free(tensors->by_name);
	free(tensors->manifest);
	free_proof(tensors->proof);
	for (int64_t i = 0; i < tensors->nnotes; i++) {
		free(tensors->note[i].name);
		free(tensors->note[i].text);
	}
	free(tensors->given);
	free(tensors->note);
	*tensors = (struct kvt_tensors){ 0 };
}

enum kvt_status kvt_tensors_sums(struct kvt_tensors *out, const struct kvt_zip *zip,
				 bool zero_is_none, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (!(out->proof = calloc(1, sizeof(*out->proof))))
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; !status && i < zip->count; i++) {
		const struct kvt_zip_member *m = &zip->member[i];

		if (m->crc32 || !zero_is_none)
			status = kvt_proof_add_member(out->proof, m->data, m->nbytes,
						      m->crc32, m->name, err);
	}
	return status;
}

void kvt_tensors_prove(struct kvt_reader *reader, int file, struct kvt_tensors *tensors)
{
	reader->files.file[file].proof = tensors->proof;
	tensors->proof = NULL;
}

void kvt_tensors_close(struct kvt_reader *reader)
{
	for (int64_t i = 0; i < reader->files.count; i++)
		free_proof(reader->files.file[i].proof);
}

static int by_name(const void *a, const void *b)
{
	const struct kvt_tensor *const *s = a, *const *t = b;

	return strcmp((*s)->name, (*t)->name);
}

const struct kvt_tensor *kvt_tensors_find(const struct kvt_tensors *tensors,
					  const char *name)
{
	const struct kvt_tensor key = { .name = (char *)name }, *p = &key;
	const struct kvt_tensor **found;

	if (!tensors->count)
		return NULL;
	found = bsearch(&p, tensors->by_name, (size_t)tensors->count,
			sizeof(*tensors->by_name), by_name);
	return found ? *found : NULL;
}

const char *kvt_tensors_note(const struct kvt_tensors *tensors, const char *name)
{
	const struct kvt_note key = { .name = (char *)name };
	const struct kvt_note *found;

	if (!tensors->nnotes)
		return NULL;
	found = bsearch(&key, tensors->note, (size_t)tensors->nnotes,
			sizeof(*tensors->note), kvt_by_name);
	return found ? found->text : NULL;
}

struct kvt_array kvt_tensor_array(const struct kvt_tensor *tensor, const char *name)
{
	struct kvt_array array = {
		.name = name, .rank = tensor->rank, .dtype = tensor->dtype,
		.elem = tensor->dtype ? tensor->dtype->elem : tensor->elem,
		.nbytes = tensor->end - tensor->begin,
	};

	memcpy(array.shape, tensor->shape, sizeof(array.shape));
	return array;
}

static bool same_shape(const struct kvt_tensor *a, const struct kvt_tensor *b)
{
	return a->rank == b->rank &&
	       !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof(*a->shape));
}

bool kvt_tensors_alike(const struct kvt_tensor *a, const struct kvt_tensor *b)
{
	return same_shape(a, b) && !strcmp(a->type, b->type);
}

bool kvt_tensors_types_fit(const struct kvt_tensor *a, const struct kvt_tensor *b)
{
	return !strcmp(a->type, b->type) ||
	       (same_shape(a, b) && a->dtype && b->dtype && a->dtype->is_float &&
		b->dtype->is_float && a->dtype->elem > 1 && b->dtype->elem > 1);
}

bool kvt_tensors_two(const struct kvt_tensor **first, const struct kvt_tensor **second,
		     const struct kvt_tensors *tensors)
{
	static const char *const names[][2] = { { "0", "1" }, { "arr_0", "arr_1" } };
	const struct kvt_tensor *a, *b;

	for (size_t i = 0; tensors->count == 2 && i < 2; i++) {
		a = kvt_tensors_find(tensors, names[i][0]);
		b = kvt_tensors_find(tensors, names[i][1]);
		if (!a || !b || !kvt_tensors_alike(a, b))
			continue;
		*first = a;
		*second = b;
		return true;
	}
	return false;
}

/* ---- what is not alike --------------------------------------------------- */

/* Is there a number in 'b' for each row of 'a', as scales of codes have it? */
static bool has_scales(const struct kvt_tensor *a, const struct kvt_tensor *b)
{
	int rows = a->rank - 1;

	return strcmp(a->type, b->type) && rows > 0 &&
	       (b->rank == rows || (b->rank == a->rank && b->shape[rows] == 1)) &&
	       !memcmp(a->shape, b->shape, (size_t)rows * sizeof(*a->shape));
}

/* "layers.{l}.k"; false: it has no number, or several. */
static bool name_pattern(char out[128], const char *name)
{
	size_t at = strcspn(name, "0123456789"), n = strspn(name + at, "0123456789");

	return n && !name[at + n + strcspn(name + at + n, "0123456789")] &&
	       snprintf(out, 128, "%.*s{l}%s", (int)at, name, name + at + n) < 128;
}

enum kvt_status kvt_tensors_unlike(const struct kvt_tensor *a, const struct kvt_tensor *b,
				   bool pair, enum kvt_status status, const char *path,
				   struct kvt_error *err)
{
	bool shape = same_shape(a, b), scales = has_scales(a, b);
	const char *next = shape ? "save both as one type" : scales ?
			   "the second may be scales, which are not applied: save the numbers that both make" :
			   pair ? "keys and values of a layer must be alike" :
			   "save those of one shape and type in a file of their own";
	char one[128], other[128], option[200] = "";

	if (!shape && (scales || !pair) && name_pattern(one, a->name) &&
	    name_pattern(other, b->name) && strcmp(one, other))
		snprintf(option, sizeof(option),
			 ", or give --set=names=%s to read those like the first", one);
	return kvt_fail(err, status,
			"%s: tensors %.60s and %.60s differ in shape or type, %.60s of %s and %.60s of %s; %s%s",
			path, a->name, b->name, kvt_extents_text(a->rank, a->shape).s,
			a->dtype ? a->dtype->name : a->type,
			kvt_extents_text(b->rank, b->shape).s,
			b->dtype ? b->dtype->name : b->type, next, option);
}

/* ---- finding them -------------------------------------------------------- */

enum kvt_status kvt_tensors_index(struct kvt_tensors *tensors, const char *path,
				  struct kvt_error *err)
{
	size_t n = (size_t)tensors->count;

	tensors->by_name = calloc(n ? n : 1, sizeof(*tensors->by_name));
	if (!tensors->by_name)
		return kvt_no_memory(err, path);
	for (size_t i = 0; i < n; i++)
		tensors->by_name[i] = &tensors->tensor[i];
	qsort(tensors->by_name, n, sizeof(*tensors->by_name), by_name);
	if (tensors->nnotes)
		qsort(tensors->note, (size_t)tensors->nnotes, sizeof(*tensors->note),
		      kvt_by_name);
	for (size_t i = 1; i < n; i++)
		if (!strcmp(tensors->by_name[i - 1]->name, tensors->by_name[i]->name))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: two tensors named %.100s", path,
					tensors->by_name[i]->name);
	return KVT_OK;
}

enum kvt_status kvt_tensor_check(const struct kvt_tensor *tensor, const char *path,
				 struct kvt_error *err)
{
	const struct kvt_held *held = &tensor->held;

	if (held->disordered && held->ring && held->seen > tensor->shape[2])
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: tensor %.100s is the ring of a %.60s: its %lld slots cannot hold what its numbers say of %lld tokens",
				path, tensor->name, held->class, LL(tensor->shape[2]),
				LL(held->seen));
	if (held->disordered)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: tensor %.100s is of a %.60s, which need not hold tokens in order from the first one on; kvtool reads those of a KVCache",
				path, tensor->name, held->class);
	if (tensor->dtype || tensor->elem)
		return KVT_OK;
	return kvt_fail(err, KVT_UNSUPPORTED, "%s: tensor %.100s has elements of %s",
			path, tensor->name, tensor->type);
}

/* ---- what people call them ---------------------------------------------- */

/* Words that tell the keys of a pair from its values, the last one in a name. */
static const struct {
	const char *keys, *values;
} pairs[] = {
	{ "k", "v" }, { "K", "V" },
	{ "key", "value" }, { "keys", "values" },
	{ "k_cache", "v_cache" }, { "key_cache", "value_cache" },
};
enum { NPAIRS = sizeof(pairs) / sizeof(pairs[0]) };

/* Where names are divided into words: "k.3", "k_3", "k3". */
static bool is_divided(char c)
{
	return !isalpha((unsigned char)c);
}

static const char *last_word(const char *name, const char *word)
{
	const char *found = NULL, *at;
	size_t n = strlen(word);

	for (at = strstr(name, word); at; at = strstr(at + 1, word))
		if ((at == name || is_divided(at[-1])) && is_divided(at[n]))
			found = at;
	return found;
}

bool kvt_names_values(char out[KVT_MAX_NAME + 16], bool *more, const char *name, int i)
{
	const char *word;

	*more = i < NPAIRS;
	if (!*more || strlen(name) > KVT_MAX_NAME ||
	    !(word = last_word(name, pairs[i].keys)))
		return false;
	snprintf(out, KVT_MAX_NAME + 16, "%.*s%s%s", (int)(word - name), name,
		 pairs[i].values, word + strlen(pairs[i].keys));
	return true;
}

/* ---- what the user calls them ------------------------------------------- */

/* A name with {l} where the number of the layer stands. */
struct pattern {
	const char *before, *after;
	size_t nbefore, nafter;
};

enum { PATTERNS = 2 };

/* One pattern, or one for keys and one for values. */
static enum kvt_status read_patterns(struct pattern out[PATTERNS], int *count,
				     const char *names, struct kvt_error *err)
{
	const char *at = names, *end, *hole;

	for (*count = 0;; at = end + 1) {
		end = at + strcspn(at, ",");
		hole = strstr(at, "{l}");
		if (*count == PATTERNS || strlen(names) > KVT_MAX_NAME || !hole ||
		    hole >= end || (strstr(hole + 1, "{l}") &&
				    strstr(hole + 1, "{l}") < end))
			return kvt_fail(err, KVT_USAGE,
					"names '%.200s' are not one or two names with one {l} each",
					names);
		out[(*count)++] = (struct pattern){
			at, hole + 3, (size_t)(hole - at), (size_t)(end - hole - 3) };
		if (!*end)
			return KVT_OK;
	}
}

static bool match(int64_t *layer, const struct pattern *p, const char *name)
{
	size_t n = strlen(name);

	if (n <= p->nbefore + p->nafter || n - p->nbefore - p->nafter > 6 ||
	    strncmp(name, p->before, p->nbefore) ||
	    strncmp(name + n - p->nafter, p->after, p->nafter))
		return false;
	*layer = 0;
	for (size_t i = p->nbefore; i < n - p->nafter; i++) {
		if (!isdigit((unsigned char)name[i]))
			return false;
		*layer = *layer * 10 + name[i] - '0';
	}
	return true;
}

bool kvt_names_match(int64_t *layer, int *half, const char *names, const char *name)
{
	struct pattern p[PATTERNS];
	int count;

	if (read_patterns(p, &count, names, NULL))
		return false;
	for (*half = 0; *half < count; ++*half)
		if (match(layer, &p[*half], name))
			return true;
	return false;
}

static const struct kvt_tensor *find_named(const struct kvt_tensors *tensors,
					   const char *name, const char *names)
{
	struct pattern p[PATTERNS];
	char other[KVT_MAX_NAME + 8];
	int64_t layer;
	int count;

	/* with the number as it is written there: 07, say */
	if (read_patterns(p, &count, names, NULL) || count != PATTERNS ||
	    !match(&layer, &p[0], name))
		return NULL;
	snprintf(other, sizeof(other), "%.*s%.*s%.*s", (int)p[1].nbefore, p[1].before,
		 (int)(strlen(name) - p[0].nbefore - p[0].nafter), name + p[0].nbefore,
		 (int)p[1].nafter, p[1].after);
	return kvt_tensors_find(tensors, other);
}

const struct kvt_tensor *kvt_tensors_partner(const struct kvt_tensors *tensors,
					     const char *name, const char *names)
{
	const struct kvt_tensor *found = NULL;
	char values[KVT_MAX_NAME + 16];
	bool more = true;

	if (names)
		return find_named(tensors, name, names);
	for (int i = 0; !found && more; i++)
		if (kvt_names_values(values, &more, name, i))
			found = kvt_tensors_find(tensors, values);
	return found;
}

/* ---- layers ------------------------------------------------------------- */

static enum kvt_status list_named(struct kvt_layer *layer, int64_t *count, bool *apart,
				  const struct kvt_tensors *tensors, const char *names,
				  const char *path, struct kvt_error *err)
{
	struct pattern p[PATTERNS];
	enum kvt_status status;
	int npatterns;

	if ((status = read_patterns(p, &npatterns, names, err)))
		return status;
	*apart = npatterns == PATTERNS;
	for (int64_t i = 0; i < tensors->count; i++) {
		const char *name = tensors->tensor[i].name;
		int64_t number;

		if (!match(&number, &p[0], name))
			continue;
		if (*apart && !kvt_tensors_partner(tensors, name, names))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: no values for the keys %.100s", path, name);
		layer[(*count)++] = (struct kvt_layer){ name, number, i };
	}
	if (!*count)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: no tensor is named %.100s, but %.100s", path,
				names, tensors->tensor[0].name);
	return kvt_layers_order(layer, *count, path, err);
}

static enum kvt_status list_all(struct kvt_layer *layer, int64_t *count, bool *apart,
				const struct kvt_tensors *tensors, const char *path,
				struct kvt_error *err)
{
	int64_t npairs = 0;

	for (int64_t i = 0; i < tensors->count; i++)
		npairs += !!kvt_tensors_partner(tensors, tensors->tensor[i].name, NULL);
	*apart = npairs > 0;
	for (int64_t i = 0; i < tensors->count; i++) {
		const char *name = tensors->tensor[i].name;

		if (!*apart || kvt_tensors_partner(tensors, name, NULL))
			layer[(*count)++] = (struct kvt_layer){ name, -1, i };
	}
	if (*apart && 2 * npairs != tensors->count)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld tensors are not %lld pairs of keys and values; give --set names=KEYS,VALUES",
				path, LL(tensors->count), LL(npairs));
	for (int64_t i = 0; i < *count; i++)
		if (!kvt_layer_number(&layer[i].number, layer[i].name))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: cannot tell the layer of '%.100s'; give --set names=KEYS,VALUES, with {l} for the layer",
					path, layer[i].name);
	return kvt_layers_order(layer, *count, path, err);
}

enum kvt_status kvt_tensors_layers(struct kvt_layer **out, int64_t *count, bool *apart,
				   const struct kvt_tensors *tensors, const char *names,
				   const char *path, struct kvt_error *err)
{
	struct kvt_layer *layer = calloc((size_t)tensors->count + 1, sizeof(*layer));
	enum kvt_status status;

	if (!layer)
		return kvt_no_memory(err, path);
	*count = 0;
	if (!tensors->count)
		status = kvt_fail(err, KVT_BAD_INPUT, "%s: has no tensors", path);
	else if (names)
		status = list_named(layer, count, apart, tensors, names, path, err);
	else
		status = list_all(layer, count, apart, tensors, path, err);
	if (status)
		free(layer);
	else
		*out = layer;
	return status;
}
