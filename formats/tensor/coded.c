/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coded.c - elements worked out of codes and scales when they are read
 *
 * coded.h draws the table.  A read is cut into ranges that are a run of units and a run
 * of scales each, so it needs the same little room however long the tensor is.  Steps
 * round as torch rounds them: in float32, and then to the type of the scales.
 */
#include "formats/tensor/coded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/little_endian.h"

enum { MOST = 8192, MOST_UNIT = 4, MOST_TYPE = 4 };

/* Units, scales and zeros of a range. */
struct scratch {
	uint8_t unit[MOST * MOST_UNIT];
	uint8_t scale[(MOST + 1) * MOST_TYPE], zero[(MOST + 1) * MOST_TYPE];
};

int64_t kvt_coded_bytes(const struct kvt_coded *c)
{
	return c->shape[CODED_BATCH] * c->shape[CODED_HEADS] * c->shape[CODED_TOKENS] *
	       c->shape[CODED_DIM] * c->dtype->elem;
}

/* ---- numbers ------------------------------------------------------------ */

static float load(const struct kvt_dtype *type, const uint8_t *bytes)
{
	float out;
	uint32_t bits;

	if (type->elem == 2 && type->exponent != 8)
		return (float)kvt_dtype_decode(type, bytes);
	bits = type->elem == 4 ? kvt_le32(bytes) : (uint32_t)kvt_le(bytes, 2) << 16;
	memcpy(&out, &bits, sizeof(out));
	return out;
}

/* Of a value that the type has. */
static void store(const struct kvt_dtype *type, uint8_t *bytes, float value)
{
	uint32_t bits;

	if (type->elem == 2 && type->exponent != 8) {
		kvt_dtype_encode(type, bytes, (double)value);
		return;
	}
	memcpy(&bits, &value, sizeof(bits));
	for (int i = 0; i < type->elem; i++)
		bytes[i] = (uint8_t)(bits >> (8 * (4 - type->elem + i)));
}

/* To the nearest of the type, ties to even. */
static float round_to(const struct kvt_dtype *type, float value)
{
	uint8_t bytes[MOST_TYPE];
	uint32_t bits;

	if (type->elem == 4)
		return value;
	if (type->exponent == 8 && isfinite(value)) {
		memcpy(&bits, &value, sizeof(bits));
		bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
		memcpy(&value, &bits, sizeof(value));
		return value;
	}
	kvt_dtype_encode(type, bytes, (double)value);
	return load(type, bytes);
}

static float decode(const struct kvt_coded *c, int code, float scale, float zero)
{
	if (c->scale_first)
		return round_to(c->type, round_to(c->type, (float)code * scale) - zero);
	return round_to(c->type, round_to(c->type, (float)code - zero) * scale);
}

/* The code of a part of a unit. */
static int code_of(const struct kvt_code_table *t, const uint8_t *unit, int part)
{
	int at = t->high_first ? t->per - 1 - part : part;

	return (int)(kvt_le(unit, t->unit) >> (at * t->bits)) & ((1 << t->bits) - 1);
}

/* ---- codes -------------------------------------------------------------- */

static enum kvt_status fetch(const struct kvt_coded *c, uint8_t *to, int64_t at,
			     int64_t first, int64_t n, int elem, struct kvt_error *err)
{
	return kvt_file_read(&c->files->file[c->file], to, n * elem, at + first * elem,
			     err);
}

static enum kvt_status fetch_scales(struct scratch *p, const struct kvt_coded *c,
				    int64_t first, int64_t n, struct kvt_error *err)
{
	enum kvt_status status = fetch(c, p->scale, c->scale, first, n, c->type->elem,
				       err);

	return status ? status : fetch(c, p->zero, c->zero, first, n, c->type->elem, err);
}

/* Element i of a range, whose scale is the k-th of those that were fetched. */
static float element(const struct kvt_coded *c, const struct scratch *p, int64_t i,
		     int64_t k, int part)
{
	int elem = c->type->elem;

	return decode(c, code_of(&c->table, p->unit + i * c->table.unit, part),
		      load(c->type, p->scale + k * elem),
		      load(c->type, p->zero + k * elem));
}

/* Elements 'first' on of the coded ones, in the order in which they lie. */
static enum kvt_status read_rows(const struct kvt_coded *c, struct scratch *p,
				 uint8_t *out, int64_t first, int64_t n,
				 struct kvt_error *err)
{
	const struct kvt_code_table *t = &c->table;
	int64_t part_size = t->step * t->columns;
	enum kvt_status status;

	for (int64_t m; n > 0; first += m, n -= m, out += m * c->dtype->elem) {
		int64_t row = first / t->columns, column = first % t->columns;
		int64_t at = first % part_size;

		m = n < MOST ? n : MOST;
		if (m > part_size - at)
			m = part_size - at;
		if (!c->row_scales && m > t->columns - column)
			m = t->columns - column;
		status = fetch(c, p->unit, t->at, at, m, t->unit, err);
		if (!status)
			status = c->row_scales ?
				fetch_scales(p, c, row, (first + m - 1) / t->columns -
					     row + 1, err) :
				fetch_scales(p, c, column, m, err);
		if (status)
			return status;
		for (int64_t i = 0; i < m; i++)
			store(c->dtype, out + i * c->dtype->elem,
			      element(c, p, i, c->row_scales ?
				      (first + i) / t->columns - row : i,
				      (int)(first / part_size)));
	}
	return KVT_OK;
}

/*
 * Of a table that is turned: tokens-and-heads [begin, end), elements [d0, d1) of each.
 * Their columns are 'count' from 'first' on, with others between.
 */
struct block {
	int64_t begin, end, d0, d1;
	int64_t first, count;
};

static void find_columns(struct block *b, const struct kvt_coded *c)
{
	int64_t groups = c->table.columns / c->shape[CODED_DIM], rows = c->table.rows;

	b->first = b->d0 * groups + b->begin / rows;
	b->count = (b->d1 - 1) * groups + (b->end - 1) / rows + 1 - b->first;
}

/* Those of the block that are in a row; 'out' has 'pitch' bytes for each i. */
static enum kvt_status read_turned_row(const struct kvt_coded *c, struct scratch *p,
				       uint8_t *out, int64_t pitch, const struct block *b,
				       int64_t row, struct kvt_error *err)
{
	const struct kvt_code_table *t = &c->table;
	int64_t groups = t->columns / c->shape[CODED_DIM];
	int64_t at = row % t->step * t->columns + b->first;
	enum kvt_status status = fetch(c, p->unit, t->at, at, b->count, t->unit, err);

	for (int64_t g = b->begin / t->rows; !status && g * t->rows + row < b->end; g++) {
		int64_t i = g * t->rows + row;

		for (int64_t d = b->d0; i >= b->begin && d < b->d1; d++) {
			int64_t k = d * groups + g - b->first;

			store(c->dtype, out + (i - b->begin) * pitch +
					(d - b->d0) * c->dtype->elem,
			      element(c, p, k, k, (int)(row / t->step)));
		}
	}
	return status;
}

/* As many elements at a time as have their columns in the scratch. */
static enum kvt_status read_block(const struct kvt_coded *c, struct scratch *p,
				  uint8_t *out, const struct block *whole,
				  struct kvt_error *err)
{
	int64_t groups = c->table.columns / c->shape[CODED_DIM], rows = c->table.rows;
	int64_t pitch = (whole->d1 - whole->d0) * c->dtype->elem;
	int64_t span = (whole->end - 1) / rows - whole->begin / rows + 1;
	int64_t n = whole->end - whole->begin, used = n < rows ? n : rows;
	int64_t step = 1 + (MOST - span) / groups;
	enum kvt_status status = KVT_OK;

	for (int64_t d = whole->d0; !status && d < whole->d1; d += step) {
		struct block b = *whole;

		b.d0 = d;
		b.d1 = d + step < whole->d1 ? d + step : whole->d1;
		find_columns(&b, c);
		status = fetch_scales(p, c, b.first, b.count, err);
		for (int64_t r = 0; !status && r < used; r++)
			status = read_turned_row(c, p, out + (d - whole->d0) *
						 c->dtype->elem, pitch, &b,
						 (b.begin + r) % rows, err);
	}
	return status;
}

/* As read_rows(). */
static enum kvt_status read_turned(const struct kvt_coded *c, struct scratch *p,
				   uint8_t *out, int64_t first, int64_t n,
				   struct kvt_error *err)
{
	int64_t dim = c->shape[CODED_DIM], rows = c->table.rows;
	enum kvt_status status = KVT_OK;

	for (int64_t m; !status && n > 0; first += m, n -= m, out += m * c->dtype->elem) {
		int64_t d = first % dim, begin = first / dim;
		int64_t most = (begin / rows + MOST) * rows;
		struct block b = { .begin = begin, .end = begin + 1, .d0 = d };

		if (!d && n >= dim)
			b.end = begin + n / dim < most ? begin + n / dim : most;
		b.d1 = d + n < dim ? d + n : dim;
		m = (b.end - b.begin) * (b.d1 - b.d0);
		status = read_block(c, p, out, &b, err);
	}
	return status;
}

/* ---- numbers beside the codes ------------------------------------------- */

/* A row of one token, or a part of it from element d on. */
static enum kvt_status read_rest(const struct kvt_coded *c, uint8_t *out,
				 const int64_t at[CODED_RANK], int64_t n,
				 struct kvt_error *err)
{
	const struct kvt_dtype *from = c->rest_type;
	enum kvt_status status = KVT_OK;
	uint8_t bytes[MOST_TYPE];
	int64_t begin = c->rest;

	for (int a = 0; a < CODED_RANK; a++)
		begin += at[a] * c->rest_stride[a];
	if (from == c->dtype && c->rest_stride[CODED_DIM] == from->elem)
		return fetch(c, out, begin, 0, n, from->elem, err);
	for (int64_t i = 0; !status && i < n; i++) {
		status = fetch(c, bytes, begin + i * c->rest_stride[CODED_DIM], 0, 1,
			       from->elem, err);
		store(c->dtype, out + i * c->dtype->elem, load(from, bytes));
	}
	return status;
}

/* ---- all of them -------------------------------------------------------- */

/* Elements of one batch and head from 'x' on, either codes or a row of the others. */
static enum kvt_status read_some(const struct kvt_coded *c, struct scratch *p,
				 uint8_t *out, int64_t head, int64_t x, int64_t n,
				 struct kvt_error *err)
{
	int64_t dim = c->shape[CODED_DIM], coded = c->ncoded * dim;
	int64_t at[CODED_RANK] = { head / c->shape[CODED_HEADS],
				   head % c->shape[CODED_HEADS], x / dim - c->ncoded,
				   x % dim };

	if (x >= coded)
		return read_rest(c, out, at, n, err);
	return c->table.turned ? read_turned(c, p, out, head * coded + x, n, err) :
				 read_rows(c, p, out, head * coded + x, n, err);
}

static enum kvt_status coded_read(const struct kvt_computed *computed, void *buf,
				  int64_t nbytes, int64_t offset, struct kvt_error *err)
{
	const struct kvt_coded *c = (const struct kvt_coded *)computed;
	int64_t dim = c->shape[CODED_DIM], all = c->shape[CODED_TOKENS] * dim;
	int64_t elem = c->dtype->elem, coded = c->ncoded * dim;
	int64_t first = offset / elem, n = nbytes / elem, m;
	struct scratch *p = malloc(sizeof(*p));
	enum kvt_status status = KVT_OK;
	uint8_t *out = buf;

	if (!p)
		return kvt_fail(err, KVT_SYSTEM, "out of memory for codes");
	for (; !status && n > 0; first += m, n -= m, out += m * elem) {
		int64_t x = first % all;

		m = x < coded ? coded - x : dim - x % dim;
		if (m > n)
			m = n;
		status = read_some(c, p, out, first / all, x, m, err);
	}
	free(p);
	return status;
}

/* ---- as files ----------------------------------------------------------- */

/* One quantiser has made all; what is written of the dump says it, too. */
static enum kvt_status say(struct kvt_reader *reader, const struct kvt_coded *c,
			   struct kvt_error *err)
{
	char text[sizeof(reader->leaf.decoded)], *from;
	struct kvt_leaf *leaf = &reader->leaf;

	snprintf(text, sizeof(text), "%s codes of %d bit%s", c->quantiser, c->nbits,
		 c->nbits > 1 ? "s" : "");
	if (leaf->decoded[0] && strcmp(leaf->decoded, text))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: holds %s and %s, expected one kind",
				leaf->path, leaf->decoded, text);
	if (leaf->decoded[0])
		return KVT_OK;
	memcpy(leaf->decoded, text, sizeof(text));
	if (!(from = malloc(sizeof(text) + 40)))
		return kvt_no_memory(err, leaf->path);
	snprintf(from, sizeof(text) + 40, "transformers, decoded from %s", text);
	leaf->snapshot.source_format = from;
	return KVT_OK;
}

enum kvt_status kvt_coded_files(struct kvt_reader *reader, int file,
				struct kvt_tensors *tensors, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < tensors->count; i++) {
		struct kvt_tensor *t = &tensors->tensor[i];
		struct kvt_coded *c = t->coded;

		if (!c || (status = say(reader, c, err)))
			continue;
		t->coded = NULL;
		c->computed.read = coded_read;
		c->files = &reader->files;
		c->file = file;
		status = kvt_files_compute(&reader->files, &t->file, &c->computed,
					   kvt_coded_bytes(c), reader->leaf.path, err);
	}
	return status;
}
