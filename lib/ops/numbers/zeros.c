/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zeros.c - which layers, columns and heads are zeros throughout
 *
 * Of a list of pages (all that count, or those of a request) it is known of each layer
 * which columns of which heads hold anything.  Neighbouring layers that are the same in
 * that are told together.
 */
#include "lib/ops/numbers/internal.h"

#include <string.h>

#include "lib/base/grow.h"

/* Columns of a head that must hold something and are zeros. */
static unsigned zero_columns(const struct kvt_looking *l, const uint64_t *list, int64_t h)
{
	unsigned zero = 0;

	for (int c = 0; c < l->out->ncolumns; c++) {
		int64_t bit = h * l->out->ncolumns + c;

		zero |= (unsigned)!(list[1 + bit / 64] >> bit % 64 & 1) << c;
	}
	return zero & l->must;
}

/* Those of all heads. */
static unsigned common_columns(const struct kvt_looking *l, const uint64_t *list)
{
	unsigned common = l->must;

	for (int64_t h = 0; h < l->duty.group->shape.n[KVT_AXIS_H]; h++)
		common &= zero_columns(l, list, h);
	return common;
}

static bool is_all_zero(const struct kvt_looking *l, const uint64_t *list)
{
	for (int64_t w = 1; w <= l->words; w++)
		if (list[w])
			return false;
	return list[0] > 0;
}

static bool add_zeros(struct kvt_looking *l, struct kvt_zeros zeros)
{
	struct kvt_numbers *n = l->out;

	if (!KVT_GROW(&n->zeros, n->nzeros))
		return false;
	n->zeros[n->nzeros++] = zeros;
	return true;
}

/* Neighbouring heads with the same columns, but for those that 'told' has. */
static bool add_heads(struct kvt_looking *l, struct kvt_zeros zeros, const uint64_t *list,
		      const uint64_t *of_all, unsigned told)
{
	int64_t heads = l->duty.group->shape.n[KVT_AXIS_H];
	bool ok = true;

	for (int64_t h = 0, end; ok && h < heads; h = end) {
		unsigned columns = zero_columns(l, list, h) & ~told;
		unsigned known = of_all ? zero_columns(l, of_all, h) : 0;

		for (end = h + 1; end < heads; end++)
			if ((zero_columns(l, list, end) & ~told) != columns ||
			    (of_all && zero_columns(l, of_all, end) != known))
				break;
		zeros.head = h;
		zeros.nheads = end - h;
		zeros.columns = columns == (l->must & ~told) && !told ? 0 : columns;
		if (columns & ~known)
			ok = add_zeros(l, zeros);
	}
	return ok;
}

/* Of neighbouring layers that are alike. */
static bool add_layers(struct kvt_looking *l, int64_t which, int64_t layer, int64_t n)
{
	const uint64_t *list = list_at(l, which, layer);
	struct kvt_zeros zeros = { .layer = layer, .nlayers = n, .request = which - 1 };
	unsigned common = common_columns(l, list);

	if (which && is_all_zero(l, list))
		return is_all_zero(l, list_at(l, 0, layer)) || add_zeros(l, zeros);
	/* of a request these are told slot by slot, and its only head is all of it */
	if (which)
		return l->duty.group->shape.n[KVT_AXIS_H] < 2 || common == l->must ||
		       add_heads(l, zeros, list, list_at(l, 0, layer), common);
	if (is_all_zero(l, list))
		return add_zeros(l, zeros);
	zeros.columns = common;
	if (common && !add_zeros(l, zeros))
		return false;
	return add_heads(l, zeros, list, NULL, common);
}

static bool are_alike(const struct kvt_looking *l, int64_t which, int64_t a, int64_t b)
{
	const uint64_t *x = list_at(l, which, a), *y = list_at(l, which, b);

	return !x[0] == !y[0] &&
	       !memcmp(x + 1, y + 1, (size_t)l->words * sizeof(*x)) &&
	       (!which || are_alike(l, 0, a, b));
}

static bool add_list(struct kvt_looking *l, int64_t which)
{
	int64_t layers = l->duty.group->shape.n[KVT_AXIS_L];
	bool ok = true;

	for (int64_t i = 0, end; ok && i < layers; i = end) {
		for (end = i + 1; end < layers; end++)
			if (!are_alike(l, which, i, end))
				break;
		if (list_at(l, which, i)[0])
			ok = add_layers(l, which, i, end - i);
	}
	return ok;
}

/* Where nothing is known to be in use, all may be empty. */
static bool is_empty(const struct kvt_looking *l)
{
	for (int64_t i = 0; i < l->duty.group->shape.n[KVT_AXIS_L]; i++)
		if (!is_all_zero(l, list_at(l, 0, i)))
			return false;
	return !l->out->known;
}

/* ---- slots ------------------------------------------------------------------ */

static void add_places(struct kvt_slots *to, const struct kvt_looking *l, int64_t layer,
		       int kind)
{
	int64_t at = layer * (1 + l->out->ncolumns) + kind, count = l->zeros[at];

	for (int i = 0; layer < MOST_LAYERS && i < count && i < KVT_MAX_PLACES &&
	     to->n < KVT_MAX_PLACES; i++)
		to->first[to->n++] = (struct kvt_slot_place){
			layer, l->zero_at[at].first[i].block,
			l->zero_at[at].first[i].slot };
	to->count += count;
}

static void add_slots(struct kvt_looking *l, int64_t layer)
{
	const uint64_t *list = list_at(l, 0, layer);
	unsigned told = common_columns(l, list);

	if (!is_all_zero(l, list))
		add_places(&l->out->zero, l, layer, 0);
	for (int c = 0; c < l->out->ncolumns; c++)
		if (!(told >> c & 1))
			add_places(&l->out->column[c], l, layer, 1 + c);
}

bool kvt_looking_finish(struct kvt_looking *l)
{
	bool ok = true;

	if (!l->nonzero)		/* there are no elements */
		return true;
	for (int64_t i = 0; i < l->duty.group->shape.n[KVT_AXIS_L]; i++)
		add_slots(l, i);
	l->out->empty = is_empty(l);
	for (int64_t i = 0; ok && !l->out->empty && i < l->nlists; i++)
		ok = add_list(l, i);
	return ok;
}
