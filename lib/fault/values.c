/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.c - elements in their place, with another value
 *
 * Zeros, no numbers, bytes in the other order, and what scale.c explains: factors, limits
 * and flipped bits, which are not predicted element by element but tested all at once.
 */
#include "lib/fault/fault.h"

#include <math.h>

static bool always(const struct fault_case *c)
{
	(void)c;
	return true;
}

static enum fault_source in_place(const struct fault_element *e)
{
	(void)e;
	return FROM_ELEMENT;
}

/* ---- zeros -------------------------------------------------------------- */

static enum fault_source zero(const struct fault_element *e)
{
	(void)e;
	return FROM_ZERO;
}

static bool has_pairs(const struct fault_case *c)
{
	return c->kv == 2;
}

static struct kvt_range either_kv(const struct fault_case *c, int arg)
{
	(void)c, (void)arg;
	return (struct kvt_range){ 0, 2 };
}

/* What is intact in the other refutes that the block was lost. */
static enum fault_source zero_kv(const struct fault_element *e)
{
	return e->at[KVT_AXIS_K] == e->n[0] ? FROM_ZERO : FROM_ELEMENT;
}

static bool has_memory(const struct fault_case *c)
{
	return c->has_memory;
}

/* The tail begins with the first byte in memory that differs. */
static struct kvt_range where_tail_begins(const struct fault_case *c, int arg)
{
	(void)arg;
	if (c->suspect)
		return (struct kvt_range){ c->tail, c->tail + 1 };
	return (struct kvt_range){ 0, c->memory.nbytes };
}

static bool whole_elements(const struct fault_case *c, const struct kvt_fault_args *args)
{
	return args->n[0] % c->window->shape.elem == 0;
}

static enum fault_source cut_tail(const struct fault_element *e)
{
	return kvt_views_at(&e->c->memory, e->at) >= e->n[0] ? FROM_ZERO : FROM_ELEMENT;
}

/* ---- bytes and bits ----------------------------------------------------- */

static bool has_bytes(const struct fault_case *c)
{
	return c->window->shape.elem > 1;
}

static struct kvt_range few(const struct fault_case *c, int arg)
{
	(void)c, (void)arg;
	return (struct kvt_range){ 1, MAX_FLIPS + 1 };
}

/* ---- what is no number ------------------------------------------------- */

static bool has_nan(const struct fault_case *c)
{
	const struct kvt_dtype *dtype = c->window->dtype;
	uint8_t value[8];

	kvt_dtype_encode(dtype, value, NAN);
	return dtype->is_float && isnan(kvt_dtype_decode(dtype, value));
}

static enum fault_source no_number(const struct fault_element *e)
{
	(void)e;
	return FROM_NAN;
}

/* ---- factors ------------------------------------------------------------ */

static bool has_reals(const struct fault_case *c)
{
	return kvt_fault_can_scale(c->window->dtype);
}

static struct kvt_range which_kv(const struct fault_case *c, int arg)
{
	(void)arg;
	return (struct kvt_range){ c->kv == 2 ? 0 : 2, 3 };
}

/* How many are cut follows, so nothing is to be chosen. */
static struct kvt_range kv_and_count(const struct fault_case *c, int arg)
{
	return arg ? (struct kvt_range){ 0, 1 } : which_kv(c, arg);
}

const struct fault kvt_value_faults[NVALUES] = {
	{ .says = {
		.name = "zero-block",
		.summary = "blocks are all zeros" },
	  .needs = "data",
	  .applies = always, .predict = zero, .one_block = true },
	{ .says = {
		.name = "zero-kv",
		.summary = "keys alone, or values alone, of blocks are all zeros",
		.arg = { { "kv", 0, "0: keys; 1: values" } } },
	  .needs = "keys and values",
	  .part = PER_KV, .applies = has_pairs, .range = either_kv, .predict = zero_kv,
	  .one_block = true },
	{ .says = {
		.name = "zero-tail",
		.summary = "from some offset in memory on, all bytes are zero",
		.arg = { { "offset", 0, "the first zero byte, in the memory of the "
					"layout" } } },
	  .needs = "a layout whose memory is one buffer",
	  .part = ALL_AT_ONCE, .applies = has_memory, .range = where_tail_begins,
	  .valid = whole_elements, .predict = cut_tail },
	{ .says = {
		.name = "byte-order",
		.summary = "the bytes of each element are reversed" },
	  .needs = "elements of two bytes or more",
	  .part = PER_SLOT | PER_HEAD | PER_KV, .applies = has_bytes,
	  .predict = in_place, .swaps_bytes = true },
	{ .says = {
		.name = "flip-bits",
		.summary = "single bits are flipped",
		.arg = { { "count", 0, "number of elements that are changed" } } },
	  .needs = "data",
	  .applies = always, .range = few, .predict = in_place,
	  .explains = kvt_explain_flips },
	{ .says = {
		.name = "scale",
		.summary = "values are multiplied by a constant",
		.arg = { { "kv", 0, "0: keys; 1: values; 2: both" } },
		.has_factor = true },
	  .needs = "elements of a floating point type",
	  .applies = has_reals, .range = which_kv, .predict = in_place,
	  .explains = kvt_explain_scale },
	{ .says = {
		.name = "saturate",
		.summary = "values are multiplied by a constant, and cut at the largest "
			   "of the type",
		.arg = { { "kv", 0, "0: keys; 1: values; 2: both" },
			 { "cut", 0, "elements that were cut, which follows" } },
		.has_factor = true },
	  .needs = "elements of a floating point type",
	  .applies = has_reals, .range = kv_and_count, .predict = in_place,
	  .explains = kvt_explain_saturation },
	{ .says = {
		.name = "nan",
		.summary = "values became NaN or infinite" },
	  .needs = "elements of a type that has NaN",
	  .applies = has_nan, .predict = no_number, .one_block = true,
	  .explains = kvt_explain_nan },
};
