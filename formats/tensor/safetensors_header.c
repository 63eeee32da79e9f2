/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_header.c - names, types, shapes and places of tensors, as JSON
 *
 *	0	u64 n, little-endian
 *	8	n bytes: {"kv_cache": {"dtype": "BF16", "shape": [2, 3],
 *			  "data_offsets": [0, 12]}, .., "__metadata__": {"key": "text"}}
 *		and blanks, written up to a multiple of 8
 *	8 + n	data of the tensors, where data_offsets count from
 *
 * The rules are those of the reference reader (safetensors/src/tensor.rs at 24b0b285):
 * offsets follow each other without holes, sizes are exact, and the file ends where
 * the last tensor does.  A tensor is its elements in order, the last axis innermost.
 */
#include "formats/tensor/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

#include "formats/parse/json.h"
#include "lib/base/little_endian.h"

enum { MAX_JSON = 100 * 1000 * 1000, MAX_NAME = 4096 };

/* Types of the format that are none of ours, whose sizes are checked all the same. */
static const struct {
	const char *name;
	int bits;
} others[] = {
	{ "F4", 4 }, { "F6_E2M3", 6 }, { "F6_E3M2", 6 }, { "C64", 64 },
};
enum { NOTHERS = sizeof(others) / sizeof(others[0]) };

/* ---- one tensor --------------------------------------------------------- */

static enum kvt_status take_type(struct kvt_tensor *out, int *bits,
				 const struct kvt_json *in)
{
	const char *type = NULL;
	enum kvt_status status = kvt_json_string(&type, in, "dtype");
	const struct kvt_dtype *dtype;

	if (status)
		return status;
	*bits = 0;
	for (int i = 0; type && (dtype = kvt_dtype_at(i)); i++)
		if (dtype->safetensors && !strcmp(dtype->safetensors, type)) {
			out->dtype = dtype;
			*bits = 8 * dtype->elem;
		}
	for (int i = 0; type && i < NOTHERS; i++)
		if (!strcmp(type, others[i].name))
			*bits = others[i].bits;
	if (!*bits)
		return kvt_json_refuse(in, KVT_UNSUPPORTED,
				       "tensor %.100s has dtype %.40s", out->name,
				       type ? type : "(none)");
	snprintf(out->type, sizeof(out->type), "%s", type);
	return KVT_OK;
}

static enum kvt_status take_shape(struct kvt_tensor *out, const struct kvt_json *in)
{
	const json_t *shape = NULL;
	enum kvt_status status = kvt_json_array(&shape, in, "shape");

	if (status)
		return status;
	if (!shape || json_array_size(shape) > KVT_TENSOR_MAX_RANK)
		return kvt_json_bad(in, "tensor %.100s has %s", out->name,
				    shape ? "more than 32 axes" : "no shape");
	for (; (size_t)out->rank < json_array_size(shape); out->rank++)
		if ((status = kvt_json_int_at(&out->shape[out->rank], in, "shape", shape,
					      (size_t)out->rank, 0, INT64_MAX)))
			return status;
	return KVT_OK;
}

static enum kvt_status take_offsets(struct kvt_tensor *out, const struct kvt_json *in,
				    int64_t ndata)
{
	const json_t *offsets = NULL;
	enum kvt_status status;

	if ((status = kvt_json_array(&offsets, in, "data_offsets")) ||
	    (status = kvt_json_int_at(&out->begin, in, "data_offsets", offsets, 0, 0,
				      ndata)) ||
	    (status = kvt_json_int_at(&out->end, in, "data_offsets", offsets, 1,
				      out->begin, ndata)))
		return status;
	if (json_array_size(offsets) != 2)
		return kvt_json_bad(in, "tensor %.100s has %zu data_offsets, expected 2",
				    out->name, json_array_size(offsets));
	return KVT_OK;
}

/* An extent of 0 makes no bytes, but does not hide an overflow of the others. */
static enum kvt_status check_size(const struct kvt_tensor *t, int bits,
				  const struct kvt_json *in)
{
	int64_t n = bits;
	bool empty = false, overflow = false;

	for (int i = 0; i < t->rank; i++) {
		empty |= t->shape[i] == 0;
		overflow |= __builtin_mul_overflow(n, t->shape[i] ? t->shape[i] : 1, &n);
	}
	if (empty)
		n = 0;
	if (overflow || n % 8 || n / 8 != t->end - t->begin)
		return kvt_json_bad(in,
				    "tensor %.100s has %lld bytes, but its shape and type make %lld%s",
				    t->name, LL(t->end - t->begin),
				    overflow ? INT64_MAX : LL(n / 8),
				    overflow ? " or more" : n % 8 ? " and a part" : "");
	return KVT_OK;
}

static enum kvt_status take_tensor(struct kvt_tensors *out, const char *name,
				   const json_t *entry, int64_t ndata,
				   const struct kvt_json *in)
{
	struct kvt_json object = kvt_json_of(in, entry);
	struct kvt_tensor tensor = { .rank = 0 };
	enum kvt_status status;
	int bits;

	if (!json_is_object(entry) || !*name || strlen(name) > MAX_NAME)
		return kvt_json_bad(in, "header entry '%.100s' describes no tensor",
				    name);
	if (!(tensor.name = strdup(name)))
		return kvt_json_no_memory(in);
	/* from here on the name is freed with the list */
	out->tensor[out->count++] = tensor;
	if ((status = take_type(&tensor, &bits, &object)) ||
	    (status = take_shape(&tensor, &object)) ||
	    (status = take_offsets(&tensor, &object, ndata)) ||
	    (status = check_size(&tensor, bits, &object)))
		return status;
	out->tensor[out->count - 1] = tensor;
	return KVT_OK;
}

/* ---- the header --------------------------------------------------------- */

static enum kvt_status add_note(struct kvt_tensors *out, const char *key,
				const char *text, const struct kvt_json *in)
{
	struct kvt_note *note = &out->note[out->nnotes++];

	*note = (struct kvt_note){ strdup(key), strdup(text) };
	return note->name && note->text ? KVT_OK : kvt_json_no_memory(in);
}

static enum kvt_status take_metadata(struct kvt_tensors *out, const json_t *entry,
				     const struct kvt_json *in)
{
	struct kvt_json metadata = kvt_json_of(in, entry);
	const char *key, *text;
	enum kvt_status status;
	json_t *value;

	if (!json_is_object(entry))
		return kvt_json_bad(in, "__metadata__ is not an object");
	if (!(out->note = calloc(json_object_size(entry) + 1, sizeof(*out->note))))
		return kvt_json_no_memory(in);
	json_object_foreach((json_t *)entry, key, value) {
		if (!json_is_string(value))
			return kvt_json_bad(in,
					    "__metadata__ entry %.60s is not a string",
					    key);
		if (strcmp(key, "kvtool")) {
			if ((status = add_note(out, key, json_string_value(value), in)))
				return status;
			continue;
		}
		if ((status = kvt_json_string(&text, &metadata, key)))
			return status;
		if (!(out->manifest = strdup(text)))
			return kvt_json_no_memory(in);
	}
	return KVT_OK;
}

static int by_place(const void *a, const void *b)
{
	const struct kvt_tensor *s = a, *t = b;

	if (s->begin != t->begin)
		return s->begin < t->begin ? -1 : 1;
	return s->end < t->end ? -1 : s->end > t->end;
}

static enum kvt_status check_places(struct kvt_tensors *out, int64_t ndata,
				    const char *name, struct kvt_error *err)
{
	int64_t at = 0;

	qsort(out->tensor, (size_t)out->count, sizeof(*out->tensor), by_place);
	for (int64_t i = 0; i < out->count; i++) {
		if (out->tensor[i].begin != at)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: tensor %.100s begins at byte %lld of the data, expected %lld",
					name, out->tensor[i].name,
					LL(out->tensor[i].begin), LL(at));
		at = out->tensor[i].end;
	}
	if (at != ndata)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has %lld bytes of data, but the tensors have %lld",
				name, LL(ndata), LL(at));
	return KVT_OK;
}

static enum kvt_status take_header(struct kvt_tensors *out, int64_t ndata,
				   const struct kvt_json *in)
{
	size_t n = json_object_size(in->object);
	enum kvt_status status = KVT_OK;
	const char *name;
	json_t *entry;

	if (!(out->tensor = calloc(n ? n : 1, sizeof(*out->tensor))))
		return kvt_json_no_memory(in);
	json_object_foreach((json_t *)in->object, name, entry) {
		if (!strcmp(name, "__metadata__"))
			status = take_metadata(out, entry, in);
		else
			status = take_tensor(out, name, entry, ndata, in);
		if (status)
			return status;
	}
	if ((status = check_places(out, ndata, in->name, in->err)))
		return status;
	return kvt_tensors_index(out, in->name, in->err);
}

enum kvt_status kvt_tensors_parse(struct kvt_tensors *out, const char *text,
				  int64_t ntext, int64_t ndata, const char *name,
				  struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { NULL, name, err, &status };
	json_t *json;

	*out = (struct kvt_tensors){ 0 };
	if (ntext < 1 || text[0] != '{')
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: safetensors header does not begin with {", name);
	if ((status = kvt_json_parse(&json, text, (size_t)ntext, name, err)))
		return status;
	in.object = json;
	status = take_header(out, ndata, &in);
	json_decref(json);
	if (status)
		kvt_tensors_free(out);
	return status;
}

static int64_t get_u64(const uint8_t b[8])
{
	uint64_t n = kvt_le64(b);

	return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

enum kvt_status kvt_tensors_read(struct kvt_tensors *out, const struct kvt_file *file,
				 struct kvt_error *err)
{
	int64_t size = file->nbytes, ntext;
	enum kvt_status status;
	uint8_t head[8];
	char *text;

	if (size < 8)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld bytes are not a safetensors file", file->path,
				LL(size));
	if ((status = kvt_file_read(file, head, 8, 0, err)))
		return status;
	ntext = get_u64(head);
	if (ntext > size - 8 || ntext > MAX_JSON)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: safetensors header of %lld bytes, expected at most %lld",
				file->path, LL(ntext),
				LL(size - 8 < MAX_JSON ? size - 8 : MAX_JSON));
	if (!(text = malloc((size_t)ntext + 1)))
		return kvt_no_memory(err, file->path);
	if (!(status = kvt_file_read(file, text, ntext, 8, err)))
		status = kvt_tensors_parse(out, text, ntext, size - 8 - ntext,
					   file->path, err);
	free(text);
	if (status)
		return status;
	out->data = 8 + ntext;
	kvt_cache_tell(out);
	if ((status = kvt_mlx_tell(out, file, err)))
		kvt_tensors_free(out);
	return status;
}

/* ---- writing ------------------------------------------------------------ */

static json_t *tensor_entry(const struct kvt_tensor *t)
{
	json_t *shape = json_array();

	for (int i = 0; i < t->rank; i++)
		if (json_array_append_new(shape, json_integer(t->shape[i]))) {
			json_decref(shape);
			return NULL;
		}
	return json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->type, "shape", shape,
			 "data_offsets", (json_int_t)t->begin, (json_int_t)t->end);
}

/* NULL: out of memory, or names that are no UTF-8. */
static char *print_json(struct kvt_tensors *tensors, const char *manifest)
{
	json_t *json = json_object(), *notes = json_object();
	char *text = NULL;
	bool ok = true;

	if (manifest)
		ok &= !json_object_set_new(notes, "kvtool", json_string(manifest));
	for (int64_t i = 0; i < tensors->nnotes; i++)
		ok &= !json_object_set_new(notes, tensors->note[i].name,
					   json_string(tensors->note[i].text));
	if (json_object_size(notes))
		ok &= !json_object_set(json, "__metadata__", notes);
	json_decref(notes);
	for (int64_t i = 0; i < tensors->count; i++)
		ok &= !json_object_set_new(json, tensors->tensor[i].name,
					   tensor_entry(&tensors->tensor[i]));
	if (ok)
		text = kvt_json_dump(json, JSON_COMPACT);
	json_decref(json);
	return text;
}

enum kvt_status kvt_tensors_print(char **out, int64_t *nbytes,
				  struct kvt_tensors *tensors, const char *manifest,
				  struct kvt_error *err)
{
	char *text = print_json(tensors, manifest), *head = NULL;
	size_t n = text ? strlen(text) : 0, padded = (n + 7) / 8 * 8;

	if (n > MAX_JSON) {
		free(text);
		return kvt_fail(err, KVT_UNSUPPORTED,
				"a safetensors header of %zu bytes is too long", n);
	}
	if (text)
		head = malloc(8 + padded);
	if (head) {
		kvt_put_le((uint8_t *)head, padded, 8);
		memcpy(head + 8, text, n);
		memset(head + 8 + n, ' ', padded - n);
	}
	free(text);
	if (!head)
		return kvt_fail(err, KVT_SYSTEM, "cannot make a safetensors header");
	*out = head;
	*nbytes = (int64_t)(8 + padded);
	return KVT_OK;
}
