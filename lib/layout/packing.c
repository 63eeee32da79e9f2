/* SPDX-License-Identifier: Apache-2.0 */
/* packing.c - the numbers of a packed content, by the fields that content.c made */
#include "lib/kvt/content.h"

#include <math.h>
#include <stddef.h>

/* Numbers of one field and row, or how they were rounded. */
static void decode_field(double *out, bool rounding, const struct kvt_packing *packing,
			 const struct kvt_field *field, const unsigned char *bytes,
			 int64_t row, int64_t first, int64_t count)
{
	const unsigned char *from = bytes + field->at + row * field->stride;
	const struct kvt_field *scales = NULL;
	int64_t group = 1;

	if (field->scale >= 0) {
		scales = &packing->field[field->scale];
		group = field->count / scales->count;
	}
	for (int64_t i = 0; i < count; i++) {
		int64_t at = (first + i) / group;

		out[i] = kvt_dtype_decode(field->dtype,
					  from + (first + i) * field->dtype->elem);
		if (rounding)
			out[i] = kvt_dtype_rounding(field->dtype, out[i]);
		if (scales)
			out[i] *= kvt_dtype_decode(scales->dtype, bytes + scales->at +
						   row * scales->stride +
						   at * scales->dtype->elem);
		if (rounding)
			out[i] = fabs(out[i]);
	}
}

static void decode(double *out, bool rounding, const struct kvt_packing *packing,
		   const void *bytes, int64_t first, int64_t count)
{
	while (count > 0) {
		int64_t row = first / packing->row_values, done = 0;
		int64_t left = first % packing->row_values;

		for (int i = 0; i < packing->nfields && done < count; i++) {
			const struct kvt_field *field = &packing->field[i];
			int64_t n;

			if (field->role != KVT_FIELD_VALUES)
				continue;
			if (left >= field->count) {
				left -= field->count;
				continue;
			}
			n = field->count - left < count - done ? field->count - left :
								 count - done;
			decode_field(out + done, rounding, packing, field, bytes, row,
				     left, n);
			done += n;
			left = 0;
		}
		out += done;
		first += done;
		count -= done;
	}
}

void kvt_packing_decode(double *out, const struct kvt_packing *packing,
			const void *bytes, int64_t first, int64_t count)
{
	decode(out, false, packing, bytes, first, count);
}

void kvt_packing_rounding(double *out, const struct kvt_packing *packing,
			  const void *bytes, int64_t first, int64_t count)
{
	decode(out, true, packing, bytes, first, count);
}

int64_t kvt_packing_at(const struct kvt_packing *packing, int64_t value)
{
	int64_t row = value / packing->row_values, left = value % packing->row_values;
	const struct kvt_field *field = packing->field;

	while (field->role != KVT_FIELD_VALUES || left >= field->count) {
		if (field->role == KVT_FIELD_VALUES)
			left -= field->count;
		field++;
	}
	return field->at + row * field->stride + left * field->dtype->elem;
}

bool kvt_packing_find(struct kvt_packed_element *out, const struct kvt_packing *packing,
		      int64_t byte)
{
	for (int i = 0; i < packing->nfields; i++) {
		const struct kvt_field *field = &packing->field[i];
		int64_t from = byte - field->at;

		if (from < 0 || from / field->stride >= packing->rows ||
		    from % field->stride / field->dtype->elem >= field->count)
			continue;
		*out = (struct kvt_packed_element){
			i, from / field->stride,
			from % field->stride / field->dtype->elem,
		};
		return true;
	}
	return false;
}
