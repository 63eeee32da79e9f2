/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - the table of faults, and what a row of it makes of an element
 *
 * The table is five, one after the other, each with its functions: heads.c, pages.c,
 * shifts.c, moves.c, values.c.  A row predicts from where in the expected cache, or of
 * what value, an element of the suspect is: planting applies that, and a diagnosis
 * compares with it, so that one cannot differ from the other.
 */
#include "lib/fault/fault.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- rows --------------------------------------------------------------- */

const struct fault *kvt_fault_row(int i)
{
	static const struct {
		const struct fault *row;
		int n;
	} parts[] = {
		{ kvt_head_faults, NHEADS }, { kvt_page_faults, NPAGES },
		{ kvt_place_faults, NPLACES }, { kvt_move_faults, NMOVES },
		{ kvt_value_faults, NVALUES },
	};

	for (size_t p = 0; i >= 0 && p < sizeof(parts) / sizeof(parts[0]); p++) {
		if (i < parts[p].n)
			return &parts[p].row[i];
		i -= parts[p].n;
	}
	return NULL;
}

const struct kvt_fault *kvt_fault_at(int i)
{
	const struct fault *row = kvt_fault_row(i);

	return row ? &row->says : NULL;
}

const struct kvt_fault *kvt_fault_find(const char *name)
{
	const struct kvt_fault *fault;

	/* its name before slots had theirs */
	if (!strcmp(name, "swap-heads-states"))
		name = "swap-heads-slots";
	for (int i = 0; (fault = kvt_fault_at(i)); i++)
		if (!strcmp(fault->name, name))
			return fault;
	return NULL;
}

int64_t kvt_fault_id(const struct kvt_fault_arg *arg, const struct kvt_window *window,
		     int64_t index)
{
	if (arg->axis == 'L' && window->layer_ids)
		return window->layer_ids[index];
	if (arg->axis == 'B' && window->block_ids)
		return window->block_ids[index];
	return arg->axis == 'H' ? window->head_start + index : index;
}

struct kvt_text kvt_fault_text(const struct kvt_fault *fault,
			       const struct kvt_fault_args *args,
			       const struct kvt_window *window)
{
	struct kvt_text text = { "" };
	size_t n = 0;

	for (int i = 0; i < KVT_FAULT_ARGS && fault->arg[i].name; i++)
		n += (size_t)snprintf(text.s + n, sizeof(text.s) - n, "%s%s=%" PRId64,
				      n ? "," : "", fault->arg[i].name,
				      kvt_fault_id(&fault->arg[i], window, args->n[i]));
	if (fault->has_factor)
		snprintf(text.s + n, sizeof(text.s) - n, "%sfactor=%.9g", n ? "," : "",
			 args->factor);
	return text;
}

/* ---- elements ----------------------------------------------------------- */

static bool is_unseen(const struct kvt_window *w, int64_t block, int64_t slot)
{
	return w->use && w->use[block * w->shape.n[KVT_AXIS_S] + slot] == KVT_UNSEEN;
}

bool kvt_fault_value(uint8_t value[8], const struct fault_case *c, const struct fault *f,
		     const struct kvt_fault_args *args, const int64_t at[KVT_NAXES])
{
	const int64_t elem = c->window->shape.elem;
	int64_t from[KVT_NAXES];

	memcpy(from, at, sizeof(from));
	switch (f->predict(&(struct fault_element){ c, args->n, at, from })) {
	case FROM_OUTSIDE:
		return false;
	case FROM_ZERO:
		memset(value, 0, (size_t)elem);
		return true;
	case FROM_NAN:
		kvt_dtype_encode(c->window->dtype, value, NAN);
		return true;
	case FROM_ELEMENT:
		if (is_unseen(c->window, from[KVT_AXIS_B], from[KVT_AXIS_S]))
			return false;
		break;
	}
	memcpy(value, c->expected + kvt_fault_offset(c->window, from), (size_t)elem);
	for (int64_t i = 0; f->swaps_bytes && i < elem / 2; i++) {
		uint8_t byte = value[i];

		value[i] = value[elem - 1 - i];
		value[elem - 1 - i] = byte;
	}
	if (f->says.has_factor && (args->n[0] == 2 || args->n[0] == at[KVT_AXIS_K]))
		kvt_fault_scale(value, c->window->dtype, value, args->factor);
	return true;
}

/* ---- rows of a page ----------------------------------------------------- */

bool kvt_fault_rows(int64_t *from, const struct kvt_fault *fault,
		    const struct kvt_fault_args *args, const struct kvt_window *window)
{
	const struct fault *row = NULL;
	const int64_t *n = window->shape.n;
	int64_t at[KVT_NAXES] = { 0 }, to[KVT_NAXES], i = 0;
	struct fault_case c;
	const struct fault_element e = { &c, args->n, at, to };

	for (int f = 0; (row = kvt_fault_row(f)) && &row->says != fault; f++)
		;
	kvt_fault_case_init(&c, window, NULL, NULL);
	if (!row || !row->applies(&c) || (row->valid && !row->valid(&c, args)))
		return false;
	do {
		/* rows that are taken apart show it at their end */
		at[KVT_AXIS_D] = n[KVT_AXIS_D] - 1;
		memcpy(to, at, sizeof(to));
		if (row->predict(&e) != FROM_ELEMENT || to[KVT_AXIS_L] ||
		    to[KVT_AXIS_B] || to[KVT_AXIS_D] != at[KVT_AXIS_D])
			return false;
		from[i++] = (to[KVT_AXIS_S] * n[KVT_AXIS_H] + to[KVT_AXIS_H]) *
			    n[KVT_AXIS_K] + to[KVT_AXIS_K];
	} while (kvt_fault_next(at, &window->shape, KVT_AXIS_S, KVT_AXIS_K));
	return true;
}
