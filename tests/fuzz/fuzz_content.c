/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_content.c - any line as the name of a content, any sizes, any bytes in it
 *
 * Behind the line are the tokens of a slot and the bytes of one, 8 bytes each.  What is
 * accepted lies inside those bytes, and decoding reads no others.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/kvt/cast.h"
#include "lib/layout/content_types.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_VALUES = 1 << 16 };

static void check_fields(const struct kvt_packing *p)
{
	for (int i = 0; i < p->nfields; i++) {
		const struct kvt_field *f = &p->field[i];
		int64_t last = kvt_field_bytes_of(f, kvt_field_run(f)) +
			       (kvt_field_runs(f) - 1) * f->step;

		if (f->count < 1 || f->at < 0 || f->step < 0 || last > f->stride ||
		    f->at + (p->rows - 1) * f->stride + last > p->nbytes)
			abort();
	}
}

static void check_numbers(const struct kvt_packing *p, const uint8_t *bytes, int64_t n)
{
	int64_t values = kvt_packing_values(p);
	double *out = malloc((size_t)n * sizeof(*out) + 1);

	if (!out)
		return;
	kvt_packing_decode(out, p, 1, bytes, 0, n);
	kvt_packing_decode(out, p, 1, bytes, values - n, n);
	if (kvt_packing_bounded(p))
		kvt_packing_rounding(out, p, 1, bytes, values - n, n);
	for (int64_t i = 0; i < n; i++) {
		struct kvt_packed_element at;

		if (!kvt_packing_find(&at, p, kvt_packing_at(p, i)) ||
		    at.row != i / p->row_values)
			abort();
		kvt_packing_bits(p, bytes, values - 1 - i);
	}
	free(out);
}

/* Numbers that were read are written, to as many bytes as there are, both ways. */
static void check_written(const struct kvt_packing *p, const uint8_t *bytes)
{
	const struct kvt_caster caster = { .packing = *p, .n = p->row_values };
	int64_t n = p->row_values;
	double *number = malloc((size_t)n * sizeof(*number) + 1);
	float *row = malloc((size_t)n * sizeof(*row) + 1);
	uint8_t *out[] = { malloc((size_t)p->nbytes), malloc((size_t)p->nbytes) };

	for (int64_t r = 0; number && row && out[0] && out[1] && r < p->rows; r++) {
		kvt_packing_decode(number, p, 1, bytes, r * n, n);
		for (int64_t i = 0; i < n; i++)
			row[i] = (float)number[i];
		kvt_cast_row(&caster, out[0], r, row, 1, 0.5f);
		kvt_cast_prove(&caster, out[1], r, row, 1, 0.5f);
		/* blocks hold nothing else */
		if (!kvt_cast_holds(&caster, out[0], row, NULL) &&
		    memcmp(out[0], out[1], (size_t)p->nbytes))
			abort();
	}
	free(number);
	free(row);
	free(out[0]);
	free(out[1]);
}

static void use(const struct kvt_content *content, const uint8_t *data, size_t size)
{
	struct kvt_shape shape = { { 1, 1, 1, 1, 1, 0 }, 1 };
	struct kvt_packing p;
	int64_t tokens;
	uint8_t *bytes;

	if (size < 16)
		return;
	memcpy(&tokens, data, 8);
	memcpy(&shape.n[KVT_AXIS_D], data + 8, 8);
	/* extents of a group are not negative */
	shape.n[KVT_AXIS_D] &= INT64_MAX;
	if (kvt_packing_init(&p, content, &shape, tokens, NULL))
		return;
	check_fields(&p);
	if (kvt_packing_readable(&p, NULL) || p.nbytes > (int64_t)size - 16)
		return;
	/* just as many as there are said to be */
	if (!(bytes = malloc((size_t)p.nbytes)))
		return;
	memcpy(bytes, data + 16, (size_t)p.nbytes);
	check_numbers(&p, bytes, kvt_packing_values(&p) < MOST_VALUES ?
			     kvt_packing_values(&p) : MOST_VALUES);
	if (!content_recipe_of(content)->unwritten &&
	    kvt_packing_values(&p) < MOST_VALUES)
		check_written(&p, bytes);
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
	size_t length = end ? (size_t)(end - data) : size;
	struct kvt_error err = { "" };
	struct kvt_content content, again;
	char *name = malloc(length + 1);

	if (!name)
		return 0;
	memcpy(name, data, length);
	name[length] = '\0';
	if (kvt_content_parse(&content, name, &err)) {
		if (!err.text[0])
			abort();
	} else {
		if (kvt_content_parse(&again, kvt_content_name(&content).s, &err) ||
		    !kvt_content_equal(&content, &again))
			abort();
		if (end)
			use(&content, end + 1, size - length - 1);
	}
	free(name);
	return 0;
}
