/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.c - which slots of each row are tokens, and which are padding
 *
 * The file says it, as mlx-lm does; or an attention mask is saved beside the cache; or
 * the user tells it.  A cache that was put together of single ones has zeros where a row
 * has no token, which no token has in all layers: these are taken for padding, and that
 * is said.  What a model computed for padding is no zeros, so no zeros prove nothing.
 */
#include "formats/caches/open.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tensor/names.h"

/* ---- a mask --------------------------------------------------------------- */

/* Bytes of a number; of booleans a container has no name for the type. */
static int64_t number_bytes(const struct kvt_tensor *t)
{
	int64_t count = t->shape[0] * t->shape[1];

	return count > 0 ? (t->end - t->begin) / count : 0;
}

/* One of these rows in whole numbers; others are none that can be read. */
static bool is_mask(const struct cache_opening *o, const struct kvt_tensor *t)
{
	const char *after;

	return kvt_cache_role(t, &after) == o->masked && t->rank == 2 &&
	       t->shape[0] == o->nrows && number_bytes(t) > 0 && number_bytes(t) <= 8 &&
	       (t->dtype ? strstr(t->dtype->name, "int") != NULL : number_bytes(t) == 1);
}

/* The mask that stands nearest: "a.b.attention_mask" before that of a, for a.b.layers. */
static void find_mask(struct cache_opening *o)
{
	const char *name = o->nlayers ? o->layer[0].name : "";
	size_t most = 0;

	for (int64_t i = 0; i < o->tensors.count; i++) {
		const struct kvt_tensor *t = &o->tensors.tensor[i];
		const char *dot = strrchr(t->name, '.');
		size_t n = dot ? (size_t)(dot - t->name) + 1 : 0;

		if (!is_mask(o, t) || strncmp(t->name, name, n) || (o->mask && n < most))
			continue;
		o->mask = t;
		most = n;
	}
}

/* *out: 0 or 1. */
static enum kvt_status look_up(int *out, const struct cache_opening *o, int64_t row,
			       int64_t column)
{
	const struct kvt_tensor *t = o->mask;
	int64_t elem = number_bytes(t);
	int64_t at = t->strided ? row * t->stride[0] + column * t->stride[1] :
		     (row * t->shape[1] + column) * elem;
	uint8_t bytes[8] = { 0 };
	enum kvt_status status;

	status = kvt_file_read(&o->reader->files.file[o->file], bytes, elem,
			       o->tensors.data + t->begin + at, o->err);
	*out = bytes[0];
	for (int64_t i = 1; i < elem; i++)
		*out = bytes[i] ? 2 : *out;
	if (!status && *out > 1)
		status = kvt_fail(o->err, KVT_BAD_INPUT,
				  "%s: tensor %.100s has another number than 0 and 1 for row %lld",
				  o->reader->leaf.path, t->name, LL(row));
	return status;
}

/* What it has no column for was given later, and is a token. */
static enum kvt_status read_mask(struct cache_row *row, const struct cache_opening *o,
				 int64_t r)
{
	enum kvt_status status = KVT_OK;
	int64_t count = 0;
	int one = 1;

	*row = (struct cache_row){ o->seen, o->seen };
	for (int64_t i = 0; !status && i < o->seen; i++) {
		if (i < o->mask->shape[1])
			status = look_up(&one, o, r, i);
		else
			one = 1;
		if (!one)
			continue;
		if (!count++)
			row->begin = i;
		row->end = i + 1;
	}
	if (!status && row->end - row->begin != count && !kvt_fact(o->hints, "tokens"))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: by %.100s row %lld has padding between its tokens; give --set tokens=N to take slots as tokens",
				o->reader->leaf.path, o->mask->name, LL(r));
	return status;
}

/* ---- zeros ---------------------------------------------------------------- */

/* Of one head, slots from 'slot' on; false as well where elements are not in a row. */
static enum kvt_status are_zeros(bool *out, const struct cache_opening *o,
				 const struct cache_half *h, int64_t row, int64_t head,
				 int64_t slot, int64_t count)
{
	int64_t elem = kvt_tensor_array(h->tensor, "").elem;
	int64_t n = h->shape[CACHE_DIM] * elem;
	const struct cache_part *part = &h->part[0];
	int64_t at = part->begin + row * part->stride[CACHE_BATCH] +
		     head * part->stride[CACHE_HEADS] + slot * part->stride[CACHE_TOKENS];
	enum kvt_status status = KVT_OK;
	uint8_t bytes[4096];

	*out = h->nparts == 1 &&
	       (h->shape[CACHE_DIM] < 2 || part->stride[CACHE_DIM] == elem);
	for (; *out && !status && count > 0; count--) {
		for (int64_t i = 0, size; *out && !status && i < n; i += size) {
			size = n - i < (int64_t)sizeof(bytes) ? n - i :
			       (int64_t)sizeof(bytes);
			status = kvt_file_read(&o->reader->files.file[o->file], bytes,
					       size, at + i, o->err);
			for (int64_t j = 0; *out && j < size; j++)
				*out = !bytes[j];
		}
		at += part->stride[CACHE_TOKENS];
	}
	return status;
}

/* Of all layers that hold all slots: keys and values of all heads. */
static enum kvt_status is_empty(bool *out, const struct cache_opening *o, int64_t row,
				int64_t slot)
{
	enum kvt_status status = KVT_OK;
	bool looked = false;

	*out = true;
	for (int64_t i = 0; *out && !status && i < o->nlayers; i++) {
		const struct cache_layer *l = &o->layer[i];

		if (l->held.sliding || l->first || cache_is_alone(l))
			continue;
		looked = true;
		for (int kv = 0; kv < 2; kv++)
			for (int64_t h = 0; *out && !status &&
			     h < l->half[kv].shape[CACHE_HEADS]; h++)
				status = are_zeros(out, o, &l->half[kv], row, h, slot, 1);
	}
	*out &= looked;
	return status;
}

/* *found stays as it is where a row has no zeros at either end. */
static enum kvt_status read_zeros(struct cache_row *row, bool *found,
				  const struct cache_opening *o, int64_t r)
{
	enum kvt_status status = KVT_OK;
	bool empty = true;

	*row = (struct cache_row){ 0, o->seen };
	while (row->begin < row->end &&
	       !(status = is_empty(&empty, o, r, row->begin)) && empty)
		row->begin++;
	while (!status && row->begin < row->end &&
	       !(status = is_empty(&empty, o, r, row->end - 1)) && empty)
		row->end--;
	*found |= row->begin > 0 || row->end < o->seen;
	return status;
}

/* ---- what is told --------------------------------------------------------- */

/* Fills the rows; *known: something says them. */
static enum kvt_status find_rows(bool *known, struct cache_opening *o)
{
	bool mask = o->mask != NULL, zeros = false;
	bool look = !mask && o->nrows > 1 && !kvt_fact(o->hints, "tokens");
	enum kvt_status status = KVT_OK;

	*known = o->tensors.given || mask;
	if (o->tensors.given && o->tensors.ngiven != o->nrows)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: says the lengths of %lld rows, but has %lld",
				o->reader->leaf.path, LL(o->tensors.ngiven),
				LL(o->nrows));
	for (int64_t r = 0; !status && r < o->nrows; r++) {
		if (o->tensors.given)
			o->row[r] = (struct cache_row){ o->seen - o->tensors.given[r],
							o->seen };
		else if (mask)
			status = read_mask(&o->row[r], o, r);
		else if (look)
			status = read_zeros(&o->row[r], &zeros, o, r);
	}
	if (!status && zeros) {
		*known = true;
		o->reader->leaf.unnoticed =
			"slots of zeros at the ends of rows were taken for padding";
	}
	return status;
}

/* "N" for all rows, or "N,N,..." for each; the rest of what is left comes back. */
static enum kvt_status next_count(int64_t *out, const char **at,
				  const struct cache_opening *o, int64_t r)
{
	const char *text = kvt_fact(o->hints, "tokens");
	size_t n = strspn(*at, "0123456789");

	*out = n && n < 19 ? strtoll(*at, NULL, 10) : -1;
	if (*out < 0 || *out > o->seen)
		return kvt_fail(o->err, KVT_USAGE,
				"tokens is '%.60s', expected 0 to %lld, once or for each of %lld sequences",
				text, LL(o->seen), LL(o->nrows));
	if ((*at)[n] == ',' && r + 1 < o->nrows)
		*at += n + 1;
	else if ((*at)[n] || (*at != text && r + 1 < o->nrows))
		return kvt_fail(o->err, KVT_USAGE,
				"tokens is '%.60s', expected one number, or one for each of %lld sequences",
				text, LL(o->nrows));
	return KVT_OK;
}

static enum kvt_status take_tokens(struct cache_opening *o, bool known, bool left)
{
	const char *at = kvt_fact(o->hints, "tokens");
	enum kvt_status status;

	for (int64_t r = 0; r < o->nrows; r++) {
		struct cache_row *row = &o->row[r];
		int64_t tokens = o->seen;

		if (at && (status = next_count(&tokens, &at, o, r)))
			return status;
		if (known && at && tokens != row->end - row->begin)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: row %lld has %lld tokens by what is saved, but %lld was given",
					o->reader->leaf.path, LL(r),
					LL(row->end - row->begin), LL(tokens));
		if (known)
			continue;
		row->begin = left ? o->seen - tokens : 0;
		row->end = row->begin + tokens;
	}
	return KVT_OK;
}

/* The side that the user tells is that of what is saved. */
static enum kvt_status check_side(const struct cache_opening *o)
{
	const char *padding = kvt_fact(o->hints, "padding");
	bool left = padding && !strcmp(padding, "left");

	for (int64_t r = 0; padding && r < o->nrows; r++)
		if (o->row[r].begin < o->row[r].end &&
		    (left ? o->row[r].end < o->seen : o->row[r].begin > 0))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: the padding of row %lld is on the %s, but padding=%s was given",
					o->reader->leaf.path, LL(r),
					left ? "right" : "left", padding);
	return KVT_OK;
}

/* A window that moved over padding has lost tokens of a row that it still needs. */
static enum kvt_status check_row(const struct cache_opening *o, int64_t r)
{
	const struct cache_row *row = &o->row[r];

	for (int64_t i = 0; row->end > row->begin && i < o->nlayers; i++) {
		const struct cache_layer *l = &o->layer[i];
		int64_t need = row->end - l->held.window + 1;

		if (need < row->begin)
			need = row->begin;
		if (l->held.each > 1 && row->begin)
			return kvt_fail(o->err, KVT_UNSUPPORTED,
					"%s: rows of %.100s stand for %lld tokens each, padding on the left of sequence %lld included",
					o->reader->leaf.path, l->name,
					LL(l->held.each), LL(r));
		if (l->held.sliding && !l->held.each && need < row->end &&
		    l->first > need)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: %.100s holds slots %lld to %lld, but the window of sequence %lld begins at %lld; give --set padding=left",
					o->reader->leaf.path, l->name, LL(l->first),
					LL(o->seen - 1), LL(r), LL(need));
	}
	return KVT_OK;
}

enum kvt_status kvt_cache_rows(struct cache_opening *o, bool left)
{
	enum kvt_status status;
	bool known;

	if (!(o->row = calloc((size_t)o->nrows + 1, sizeof(*o->row))))
		return kvt_no_memory(o->err, o->reader->leaf.path);
	find_mask(o);
	if ((status = find_rows(&known, o)))
		return status;
	if (o->nrows > 1 && !known && !kvt_fact(o->hints, "tokens"))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: the file does not record which of the %lld slots of %lld sequences are padding; give --set tokens=N or N,N..., and padding=left if the padding is first",
				o->reader->leaf.path, LL(o->seen), LL(o->nrows));
	status = take_tokens(o, known, left);
	if (!status && known)
		status = check_side(o);
	for (int64_t r = 0; !status && r < o->nrows; r++)
		status = check_row(o, r);
	return status;
}
