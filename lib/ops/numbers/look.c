/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look.c - what is in a box: first which bits there are, then which numbers
 *
 * Each part of a row is looked at by words, which tells zeros for certain and finds
 * where something may be NaN or infinite.  Only such a slot is looked at by elements.
 *
 * In: a box in cell order.  Out, in memory of the caller, for each page in turn:
 *
 *	struct box_seen | u64 nonzero[pages][1 + words] | u32 flag[pages][slots]
 *
 * nonzero: does any slot count, then a bit for each head and column (keys or values,
 * part) that has more than zeros in those.  flag: a bit a column, and SLOT_COUNTS,
 * SLOT_IS_ODD.
 */
#include "lib/ops/numbers/internal.h"

#include <math.h>
#include <string.h>

/* A page of the box, and where what is seen of it goes. */
struct page {
	const struct kvt_looking *l;
	const struct kvt_group *group;
	const uint8_t *bytes;
	int64_t layer, block;
	uint64_t *nonzero;		/* [1 + words] */
	uint32_t *flag;			/* [slots] */
};

static int64_t row_bytes(const struct kvt_group *group)
{
	return group->shape.n[KVT_AXIS_D] * group->shape.elem;
}

/* In cell order. */
static const uint8_t *row_at(const struct page *p, int64_t h, int64_t k, int64_t s)
{
	const int64_t *n = p->group->shape.n;

	return p->bytes + ((h * n[KVT_AXIS_K] + k) * n[KVT_AXIS_S] + s) *
			  row_bytes(p->group);
}

/* ---- bits ------------------------------------------------------------------- */

/* A part of rows that follow each other. */
static struct kvt_seen_rows look_at_part(const struct kvt_look_part *part,
					 const uint8_t *row, int64_t stride, int rows)
{
	struct kvt_seen_rows seen = { 0, 0 };

	for (int64_t u = 0; u < part->units; u++) {
		struct kvt_seen_rows unit =
			kvt_look_at_rows(row + part->at + u * part->stride, part->nbytes,
					 stride, rows, part->pattern);

		seen.any |= unit.any;
		seen.odd |= unit.odd;
	}
	return seen;
}

/* The rows of a head, of one column each. */
static void look_at_column(struct page *p, int64_t h, int64_t k, int part)
{
	const struct kvt_numbers *n = p->l->out;
	int64_t rows = p->group->shape.n[KVT_AXIS_S], each = rows / p->l->slots;
	int64_t column = k * n->nparts + part, bit = h * n->ncolumns + column;
	uint32_t any = 0;

	for (int64_t s = 0; s < rows; s += 64) {
		int count = rows - s < 64 ? (int)(rows - s) : 64;
		struct kvt_seen_rows seen = look_at_part(&n->part[part],
							 row_at(p, h, k, s),
							 row_bytes(p->group), count);

		for (int i = 0; i < count; i++) {
			uint32_t *flag = &p->flag[each == 1 ? s + i : (s + i) / each];
			uint32_t has = seen.any >> i & 1;

			*flag |= has << column | (seen.odd >> i & 1 ? SLOT_IS_ODD : 0);
			any |= *flag & (has ? SLOT_COUNTS : 0);
		}
	}
	p->nonzero[1 + bit / 64] |= (uint64_t)(any != 0) << bit % 64;
}

/* ---- numbers ---------------------------------------------------------------- */

static double number_at(const struct page *p, const struct kvt_look_part *part,
			const uint8_t *row, int64_t r, int64_t i)
{
	if (part->field)
		return kvt_field_number(part->field, row, r, i);
	return kvt_dtype_decode(p->group->dtype,
				row + part->at + i * p->group->shape.elem);
}

/* Of a row of a page: it may be there although its tokens are not. */
static void count_row(struct kvt_odd *full, struct kvt_odd *left, const struct page *p,
		      const int64_t at[KVT_NAXES], int part, int64_t r)
{
	const struct kvt_look_part *look = &p->l->out->part[part];
	const uint8_t *row = row_at(p, at[KVT_AXIS_H], at[KVT_AXIS_K], at[KVT_AXIS_S]);
	int64_t slot = at[KVT_AXIS_S] * p->l->slots / p->group->shape.n[KVT_AXIS_S];
	struct kvt_odd *to = duty_is_full(&p->l->duty, p->l->out, p->block, slot, r) ?
			     full : left;
	int64_t count = look->field ? look->field->count :
			look->nbytes / p->group->shape.elem;

	for (int64_t i = 0; i < count; i++) {
		double x = number_at(p, look, row, r, i);

		if (isfinite(x))
			continue;
		if (!to->slots++) {
			memcpy(to->at, at, sizeof(to->at));
			to->at[KVT_AXIS_D] = look->first + i;
			to->part = part;
			to->row = r;
		}
		to->nan += isnan(x) != 0;
		to->inf += isinf(x) != 0;
	}
}

static void count_slot(struct kvt_odd *full, struct kvt_odd *left, const struct page *p,
		       int64_t slot)
{
	const struct kvt_numbers *n = p->l->out;
	const int64_t *shape = p->group->shape.n;
	int64_t each = shape[KVT_AXIS_S] / p->l->slots;
	int64_t rows = n->part[0].field ? n->packing.rows : 1;
	int64_t at[KVT_NAXES] = { p->layer, p->block };

	for (at[KVT_AXIS_H] = 0; at[KVT_AXIS_H] < shape[KVT_AXIS_H]; at[KVT_AXIS_H]++)
	for (at[KVT_AXIS_K] = 0; at[KVT_AXIS_K] < shape[KVT_AXIS_K]; at[KVT_AXIS_K]++)
	for (int64_t s = slot * each; s < (slot + 1) * each; s++)
		for (int part = 0; part < n->nparts; part++) {
			at[KVT_AXIS_S] = s;
			for (int64_t r = 0; n->part[part].pattern >= 0 && r < rows; r++)
				count_row(full, left, p, at, part, r);
		}
	full->slots = full->slots > 0;
	left->slots = left->slots > 0;
}

static void take_odd_slot(struct box_seen *out, const struct page *p, int64_t slot)
{
	enum kvt_duty duty = duty_of(&p->l->duty, p->block, slot);
	struct kvt_odd full = { .nan = 0 }, left = { .nan = 0 };

	if (p->l->duty.overlaid && duty != KVT_DUTY_LIVE && duty != KVT_DUTY_NULL)
		return;
	count_slot(&full, &left, p, slot);
	if (full.slots)
		odd_add(&out->by[duty], &full);
	if (left.slots)
		odd_add(&out->by[KVT_DUTY_LEFT], &left);
	if (full.slots && duty == KVT_DUTY_LIVE && out->nlive++ < KVT_MAX_PLACES)
		out->live[out->nlive - 1] = full;
}

/* ---- the box ---------------------------------------------------------------- */

static void look_at_page(struct box_seen *out, struct page *p)
{
	const int64_t *n = p->group->shape.n;
	bool odd = false;

	for (int64_t s = 0; s < p->l->slots; s++)
		if (duty_counts(p->l, duty_of(&p->l->duty, p->block, s))) {
			p->flag[s] |= SLOT_COUNTS;
			p->nonzero[0] = 1;
		}
	for (int64_t h = 0; h < n[KVT_AXIS_H]; h++)
		for (int64_t k = 0; k < n[KVT_AXIS_K]; k++)
			for (int part = 0; part < p->l->out->nparts; part++)
				look_at_column(p, h, k, part);
	for (int64_t s = 0; s < p->l->slots; s++)
		odd |= (p->flag[s] & SLOT_IS_ODD) != 0;
	for (int64_t s = 0; odd && s < p->l->slots; s++)
		if (p->flag[s] & SLOT_IS_ODD)
			take_odd_slot(out, p, s);
}

int64_t kvt_looking_bytes(const struct kvt_looking *l, int64_t layers, int64_t blocks)
{
	int64_t pages = layers * blocks;

	return (int64_t)sizeof(struct box_seen) + pages * (1 + l->words) * 8 +
	       (pages * l->slots * 4 + 7) / 8 * 8;
}

int64_t kvt_look_at_box(void *result, const struct kvt_looking *l,
			const struct kvt_box *box, const uint8_t *cells)
{
	const struct kvt_group *group = l->duty.group;
	const int64_t *n = group->shape.n, *begin = box->begin, *end = box->end;
	int64_t layers = end[KVT_AXIS_L] - begin[KVT_AXIS_L];
	int64_t blocks = end[KVT_AXIS_B] - begin[KVT_AXIS_B];
	int64_t nbytes = kvt_looking_bytes(l, layers, blocks);
	struct box_seen *out = result;
	struct page p = { .l = l, .group = group, .bytes = cells,
			  .nonzero = (uint64_t *)(void *)(out + 1) };

	memset(result, 0, (size_t)nbytes);
	p.flag = (uint32_t *)(void *)(p.nonzero + layers * blocks * (1 + l->words));
	for (p.layer = begin[KVT_AXIS_L]; p.layer < end[KVT_AXIS_L]; p.layer++)
		for (p.block = begin[KVT_AXIS_B]; p.block < end[KVT_AXIS_B]; p.block++) {
			look_at_page(out, &p);
			p.bytes += n[KVT_AXIS_H] * n[KVT_AXIS_K] * n[KVT_AXIS_S] *
				   row_bytes(group);
			p.nonzero += 1 + l->words;
			p.flag += l->slots;
		}
	return nbytes;
}
