/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packing.c - the numbers of a packed content, by the fields that content.c made
 *
 *	number = (code - zero) * scale + added, rounded where its maker rounds
 *
 * In: bytes and a packing.  Out: numbers in double, the same for each in any order; and
 * how far off each may be for having been rounded to a code.  Codes are bits, the lowest
 * first, in the orders of enum kvt_scale_order.  Of what is rotated a number needs all
 * that were rotated with it.
 */
#include "lib/kvt/content.h"
#include "lib/layout/content_types.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- elements ----------------------------------------------------------- */

int64_t kvt_field_bit(const struct kvt_field *field, int64_t row, int64_t i)
{
	int64_t half = field->block / 2, before = 0;

	if (field->block) {
		before = i / field->block * field->step;
		i %= field->block;
	}
	switch (field->order) {
	case KVT_SCALES_BY_FOUR:
		i = 8 * (i % 4) + i / 4;
		break;
	case KVT_SCALES_BY_ROWS:
		i = 4 * i + row % 4;
		row -= row % 4;
		break;
	case KVT_NIBBLES_APART:
		i = i < half ? 2 * i : 2 * (i - half) + 1;
		break;
	default:
		break;
	}
	return 8 * (field->at + row * field->stride + before) + i * field->bits;
}

/* The byte in which it does. */
static int64_t byte_of(const struct kvt_field *field, int64_t row, int64_t i)
{
	return kvt_field_bit(field, row, i) / 8;
}

/* Its bits that lie in the field, first the lowest of the first byte. */
static uint64_t own_bits(const struct kvt_field *field, const unsigned char *bytes,
			int64_t row, int64_t i)
{
	int64_t at = kvt_field_bit(field, row, i);
	const unsigned char *from = bytes + at / 8;
	int shift = (int)(at % 8);
	uint64_t bits = 0;

	for (int b = 0; 8 * b < shift + field->bits; b++)
		bits |= (uint64_t)from[b] << (8 * b);
	bits >>= shift;
	return field->bits < 8 ? bits & ((1u << field->bits) - 1) : bits;
}

static uint64_t bits_of(const struct kvt_field *field, const unsigned char *bytes,
			int64_t row, int64_t i)
{
	uint64_t bits = own_bits(field, bytes, row, i);

	return field->high ? bits | own_bits(field - 1, bytes, row, i) << field->bits :
			     bits;
}

static double number_of(const struct kvt_field *field, const unsigned char *bytes,
			int64_t row, int64_t i)
{
	const struct content_coding *coding;

	if (field->coding < 0)
		return kvt_dtype_decode(field->dtype, bytes + byte_of(field, row, i));
	coding = kvt_content_coding_at(field->coding);
	return coding->number((uint32_t)bits_of(field, bytes, row, i));
}

double kvt_field_number(const struct kvt_field *field, const void *bytes, int64_t row,
			int64_t i)
{
	return number_of(field, bytes, row, i);
}

/* ---- scales ------------------------------------------------------------- */

/* The one for number i; 1 if there is none. */
static double scale_of(const struct kvt_packing *packing, const struct kvt_field *field,
		       const unsigned char *bytes, int64_t row, int64_t i)
{
	const struct kvt_field *scales;

	if (field->scale < 0)
		return 1;
	scales = &packing->field[field->scale];
	return number_of(scales, bytes, row, i / (field->count / scales->count));
}

/* Where the zero of codes is: in the lowest bits of the scale. */
static double zero_of(const struct kvt_packing *packing, const struct kvt_field *field,
		      const unsigned char *bytes, int64_t row)
{
	if (field->added < 0 || field->added != field->scale)
		return 0;
	return (double)(bits_of(&packing->field[field->scale], bytes, row, 0) & 15);
}

/* What is added to number i. */
static double added_of(const struct kvt_packing *packing, const struct kvt_field *field,
		       const unsigned char *bytes, int64_t row, int64_t i)
{
	const struct kvt_field *added;

	if (field->added < 0 || field->added == field->scale)
		return 0;
	added = &packing->field[field->added];
	return number_of(added, bytes, row, i / (field->count / added->count));
}

/* To the nearest of an IEEE type, ties to even. */
static double rounded(const struct kvt_dtype *type, double number)
{
	unsigned char bytes[8];
	int exponent, cut;
	uint64_t bits;

	if (!type)
		return number;
	memcpy(&bits, &number, sizeof(bits));
	exponent = (int)(bits >> 52 & 0x7ff) - 1023;
	/* what is neither too small nor too large for it only loses bits */
	if (exponent > -type->bias && exponent < type->bias) {
		cut = 52 - type->fraction;
		bits += (UINT64_C(1) << (cut - 1)) - 1 + (bits >> cut & 1);
		bits &= ~UINT64_C(0) << cut;
		memcpy(&number, &bits, sizeof(bits));
		return number;
	}
	if (!(bits << 1))
		return number;
	kvt_dtype_encode(type, bytes, number);
	return kvt_dtype_decode(type, bytes);
}

/* ---- numbers of a field and row ----------------------------------------- */

/* Elements of a field, of which so many are rotated together. */
struct part {
	int64_t first, count, turn;
};

static void decode_plain(double *out, const struct kvt_packing *packing,
			 const struct kvt_field *field, const unsigned char *bytes,
			 int64_t row, const struct part *part)
{
	double zero = zero_of(packing, field, bytes, row);
	int64_t first = part->first;

	for (int64_t i = 0; i < part->count; i++) {
		out[i] = number_of(field, bytes, row, first + i) - zero;
		if (field->scale >= 0)
			out[i] *= scale_of(packing, field, bytes, row, first + i);
		out[i] = rounded(field->product, out[i]);
		if (field->added >= 0)
			out[i] += added_of(packing, field, bytes, row, first + i);
		out[i] = rounded(field->result, out[i]);
	}
}

/* All of a vector, whose direction and norm are kept apart. */
static void decode_unit(double *out, const struct kvt_packing *packing,
			const struct kvt_field *field, const unsigned char *bytes,
			int64_t row)
{
	double square = 0, norm = scale_of(packing, field, bytes, row, 0);

	for (int64_t i = 0; i < field->count; i++) {
		out[i] = number_of(field, bytes, row, i);
		square += out[i] * out[i];
	}
	for (int64_t i = 0; i < field->count; i++)
		out[i] = norm * (out[i] / sqrt(square));
}

/* The model's numbers: each needs all that are rotated with it. */
static void decode_rotated(double *out, const struct kvt_packing *packing,
			   const struct kvt_field *field, const unsigned char *bytes,
			   int64_t row, const struct part *part)
{
	enum kvt_rotation rotation = field->rotation ? field->rotation :
						       KVT_ROTATION_HADAMARD;
	double vector[MAX_ROTATED];

	for (int64_t done = 0, n; done < part->count; done += n) {
		int64_t at = part->first + done, left = at % part->turn;

		n = part->turn - left < part->count - done ? part->turn - left :
							      part->count - done;
		if (field->unit)
			decode_unit(vector, packing, field, bytes, row);
		else
			decode_plain(vector, packing, field, bytes, row,
				     &(struct part){ at - left, part->turn, 1 });
		kvt_rotation_undo(rotation, vector, part->turn);
		memcpy(out + done, vector + left, (size_t)n * sizeof(*vector));
	}
}

static double gap_of(const struct kvt_field *field, const unsigned char *bytes,
		     int64_t row, int64_t i)
{
	const struct content_coding *coding;

	if (field->coding < 0)
		return kvt_dtype_rounding(field->dtype, number_of(field, bytes, row, i));
	coding = kvt_content_coding_at(field->coding);
	return (coding->gap ? coding->gap((uint32_t)bits_of(field, bytes, row, i)) :
			      coding->step) / 2;
}

/* What a block adds: its scale, and what is added, were rounded behind their use. */
static double block_gap(const struct kvt_packing *packing, const struct kvt_field *field,
			const unsigned char *bytes, int64_t row, int64_t i)
{
	const struct kvt_dtype *half = packing->field[field->scale].dtype;
	double code = fabs(number_of(field, bytes, row, i));
	double gap = code * kvt_dtype_rounding(half, scale_of(packing, field, bytes, row,
							      i));

	if (field->added >= 0)
		gap += kvt_dtype_rounding(half, added_of(packing, field, bytes, row, i));
	return gap;
}

static void round_plain(double *out, const struct kvt_packing *packing,
			const struct kvt_field *field, const unsigned char *bytes,
			int64_t row, const struct part *part)
{
	int64_t first = part->first;

	for (int64_t i = 0; i < part->count; i++) {
		out[i] = fabs(gap_of(field, bytes, row, first + i) *
			      scale_of(packing, field, bytes, row, first + i));
		if (field->block)
			out[i] += block_gap(packing, field, bytes, row, first + i);
	}
}

/* Each number is a sum of all that are rotated with it, and of what they may be off. */
static void round_rotated(double *out, const struct kvt_packing *packing,
			  const struct kvt_field *field, const unsigned char *bytes,
			  int64_t row, const struct part *part)
{
	double gap[MAX_ROTATED];

	for (int64_t i = 0; i < part->count; i++) {
		int64_t at = part->first + i, left = at % part->turn;
		double sum = 0;

		if (i && left) {
			out[i] = out[i - 1];
			continue;
		}
		round_plain(gap, packing, field, bytes, row,
			    &(struct part){ at - left, part->turn, 1 });
		for (int64_t j = 0; j < part->turn; j++)
			sum += gap[j];
		out[i] = sum / sqrt((double)part->turn);
	}
}

/* ---- rows --------------------------------------------------------------- */

typedef void decoder(double *out, const struct kvt_packing *packing,
		     const struct kvt_field *field, const unsigned char *bytes,
		     int64_t row, const struct part *part);

/* How many numbers of a field are rotated together; 1: none are. */
static int64_t turn_of(const struct kvt_packing *packing, const struct kvt_field *field,
		       int64_t kv)
{
	return field->rotation ? field->count : field->block ? packing->turn[kv] : 1;
}

/* By 'how', or of rotated fields by 'rotated'. */
static void decode(double *out, decoder *how, decoder *rotated,
		   const struct kvt_packing *packing, int64_t kv, const void *bytes,
		   int64_t first, int64_t count)
{
	while (count > 0) {
		int64_t row = first / packing->row_values, done = 0;
		int64_t left = first % packing->row_values;

		for (int i = 0; i < packing->nfields && done < count; i++) {
			const struct kvt_field *field = &packing->field[i];
			int64_t n, turn = turn_of(packing, field, kv);

			if (field->role != KVT_FIELD_VALUES)
				continue;
			if (left >= field->count) {
				left -= field->count;
				continue;
			}
			n = field->count - left < count - done ? field->count - left :
								 count - done;
			(turn > 1 ? rotated : how)(out + done, packing, field, bytes, row,
						   &(struct part){ left, n, turn });
			done += n;
			left = 0;
		}
		out += done;
		first += done;
		count -= done;
	}
}

void kvt_packing_decode(double *out, const struct kvt_packing *packing, int64_t kv,
			const void *bytes, int64_t first, int64_t count)
{
	decode(out, decode_plain, decode_rotated, packing, kv, bytes, first, count);
}

/* Is it a code whose neighbours stand for what is next to it? */
static bool has_gap(const struct kvt_field *field)
{
	const struct content_coding *coding = field->coding < 0 ? NULL :
					      kvt_content_coding_at(field->coding);

	return !coding || coding->gap || coding->step > 0;
}

bool kvt_packing_bounded(const struct kvt_packing *packing)
{
	for (int i = 0; i < packing->nfields; i++) {
		const struct kvt_field *field = &packing->field[i];

		if (field->rotation || (field->block && !has_gap(field)) ||
		    (!field->block && (field->added >= 0 || field->result)))
			return false;
	}
	return true;
}

void kvt_packing_rounding(double *out, const struct kvt_packing *packing, int64_t kv,
			  const void *bytes, int64_t first, int64_t count)
{
	decode(out, round_plain, round_rotated, packing, kv, bytes, first, count);
}

/* ---- writing ------------------------------------------------------------ */

/* Bits of an element, in bytes that were zeros. */
static void put_bits(unsigned char *bytes, const struct kvt_field *field, int64_t i,
		     uint64_t bits)
{
	int64_t at = kvt_field_bit(field, 0, i);

	bits <<= at % 8;
	for (int b = 0; bits; b++, bits >>= 8)
		bytes[at / 8 + b] |= (unsigned char)bits;
}

static void put_block(unsigned char *bytes, const struct kvt_packing *packing,
		      const struct kvt_field *field, int64_t b,
		      const struct ggml_block *block)
{
	const struct kvt_field *scales = &packing->field[field->scale];

	kvt_dtype_encode(scales->dtype, bytes + byte_of(scales, 0, b),
			 (double)block->scale);
	if (field->added >= 0) {
		scales = &packing->field[field->added];
		kvt_dtype_encode(scales->dtype, bytes + byte_of(scales, 0, b),
				 (double)block->added);
	}
	for (int64_t i = 0; i < GGML_BLOCK; i++) {
		uint64_t code = block->code[i], at = (uint64_t)(b * GGML_BLOCK + i);

		put_bits(bytes, field, (int64_t)at, code & ((1u << field->bits) - 1));
		if (field->high)
			put_bits(bytes, field - 1, (int64_t)at, code >> field->bits);
	}
}

/* Numbers that are rotated together, or a block, to the blocks from number 'at' on. */
static void put_turn(unsigned char *bytes, const struct kvt_packing *packing, int64_t kv,
		     const struct kvt_field *field, int64_t at, int64_t turn,
		     double *vector, bool one_by_one)
{
	const struct content_recipe *recipe = content_recipe_of(&packing->content);
	float block[GGML_BLOCK];

	/* the matrix is its own inverse */
	for (int64_t i = 0; packing->turn[kv] > 1 && i < turn; i += packing->turn[kv])
		kvt_rotation_undo(KVT_ROTATION_HADAMARD, vector + i, packing->turn[kv]);
	for (int64_t i = 0; i < turn; i++) {
		struct ggml_block out = { .scale = 0 };

		block[i % GGML_BLOCK] = (float)vector[i];
		if (i % GGML_BLOCK < GGML_BLOCK - 1)
			continue;
		if (!one_by_one) {
			recipe->blocks(bytes + (at + i) / GGML_BLOCK * field->step, block,
				       1);
			continue;
		}
		recipe->encode(&out, block);
		put_block(bytes, packing, field, (at + i) / GGML_BLOCK, &out);
	}
}

void kvt_packing_put_blocks(void *bytes, const struct kvt_packing *packing, int64_t kv,
			    const float *numbers, bool one_by_one)
{
	const struct kvt_field *field = packing->field;
	double vector[MAX_ROTATED];
	int64_t turn;

	while (field->role != KVT_FIELD_VALUES)
		field++;
	if (!one_by_one && packing->turn[kv] <= 1) {
		content_recipe_of(&packing->content)->blocks(bytes, numbers,
							     field->count / GGML_BLOCK);
		return;
	}
	turn = packing->turn[kv] > GGML_BLOCK ? packing->turn[kv] : GGML_BLOCK;
	memset(bytes, 0, (size_t)packing->nbytes);
	for (int64_t at = 0; at < field->count; at += turn) {
		for (int64_t i = 0; i < turn; i++)
			vector[i] = (double)numbers[at + i];
		put_turn(bytes, packing, kv, field, at, turn, vector, one_by_one);
	}
}

/* ---- where a number is -------------------------------------------------- */

/* Its field, row and element. */
static const struct kvt_field *find_value(const struct kvt_packing *packing,
					  int64_t value, int64_t *row, int64_t *element)
{
	const struct kvt_field *field = packing->field;
	int64_t left = value % packing->row_values;

	*row = value / packing->row_values;
	while (field->role != KVT_FIELD_VALUES || left >= field->count) {
		if (field->role == KVT_FIELD_VALUES)
			left -= field->count;
		field++;
	}
	*element = left;
	return field;
}

int64_t kvt_packing_at(const struct kvt_packing *packing, int64_t value)
{
	int64_t row, element;
	const struct kvt_field *field = find_value(packing, value, &row, &element);

	return byte_of(field, row, element);
}

uint64_t kvt_packing_bits(const struct kvt_packing *packing, const void *bytes,
			  int64_t value)
{
	int64_t row, element;
	const struct kvt_field *field = find_value(packing, value, &row, &element);

	return bits_of(field, bytes, row, element);
}

/* The element whose bytes these are, from its place in the row or the four rows. */
static void unpermute(const struct kvt_field *field, int64_t *row, int64_t *byte)
{
	int64_t i = *byte;

	if (field->order == KVT_SCALES_BY_FOUR)
		*byte = i % 8 * 4 + i / 8;
	if (field->order != KVT_SCALES_BY_ROWS)
		return;
	i += *row % 4 * field->stride;
	*row += i % 4 - *row % 4;
	*byte = i / 4;
}

/* The first element that begins in the byte: one that began before may end there. */
static int64_t first_of(const struct kvt_field *field, int64_t byte)
{
	if (field->order == KVT_NIBBLES_APART)
		return byte;
	return field->bits < 8 ? (byte * 8 + field->bits - 1) / field->bits :
				 byte / (field->bits / 8);
}

bool kvt_packing_find(struct kvt_packed_element *out, const struct kvt_packing *packing,
		      int64_t byte)
{
	for (int i = 0; i < packing->nfields; i++) {
		const struct kvt_field *field = &packing->field[i];
		int64_t from = byte - field->at, before = 0, row, in_row;

		if (from < 0 || from / field->stride >= packing->rows)
			continue;
		row = from / field->stride;
		in_row = from % field->stride;
		if (field->block) {
			before = in_row / field->step * field->block;
			in_row %= field->step;
		}
		if (in_row >= kvt_field_bytes_of(field, kvt_field_run(field)))
			continue;
		unpermute(field, &row, &in_row);
		*out = (struct kvt_packed_element){ i, row,
						    before + first_of(field, in_row) };
		return true;
	}
	return false;
}
