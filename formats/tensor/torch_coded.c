/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_coded.c - what HQQ and quanto leave of keys or values in a pickle
 *
 *	HQQ	(codes, {packing, nbits, group_size, axis, shape, scale, zero, ..})
 *		axis 0: a table [group_size, groups]; axis 1: [groups, group_size]
 *	quanto	{_data: {_data: codes, _bits}, _scale, _shift, _qtype, _group_size, _axis}
 *		groups are rows along axis 0; along axis -1 the table is turned
 *
 * coded.h draws a table.  Whatever either library would compute otherwise than kvt_coded
 * says is refused by name.
 */
#include "formats/tensor/torch_walk.h"

#include <stdlib.h>
#include <string.h>

struct coding {
	const struct torch_walk *w;
	struct kvt_coded *out;
	const char *quantiser;
};

static const struct kvt_pickle_node *node_at(const struct coding *c, int32_t i)
{
	return &c->w->pickle.node[i];
}

static enum kvt_status refuse(const struct coding *c, const char *what)
{
	return kvt_fail(c->w->err, KVT_UNSUPPORTED,
			"%s: %.100s: %s %s, which kvtool cannot decode; save what the layer's update() returns",
			c->w->file->path, c->w->path, c->quantiser, what);
}

static enum kvt_status damaged(const struct coding *c, const char *what)
{
	return kvt_fail(c->w->err, KVT_BAD_INPUT, "%s: %.100s: %s %s", c->w->file->path,
			c->w->path, c->quantiser, what);
}

/* ---- attributes --------------------------------------------------------- */

/* NULL: it is none, or of another kind. */
static const struct kvt_pickle_node *find(const struct coding *c,
					  const struct kvt_pickle_node *object,
					  const char *name, enum kvt_pickle_kind kind)
{
	int32_t i = kvt_torch_attribute(c->w, object, name);

	return i >= 0 && node_at(c, i)->kind == kind ? node_at(c, i) : NULL;
}

static bool is_number(const struct coding *c, const struct kvt_pickle_node *object,
		      const char *name, int64_t *out)
{
	const struct kvt_pickle_node *n = find(c, object, name, KVT_PICKLE_INT);

	if (n)
		*out = n->number;
	return n != NULL;
}

/* False: absent, or False. */
static bool is_true(const struct coding *c, const struct kvt_pickle_node *object,
		    const char *name)
{
	const struct kvt_pickle_node *n = find(c, object, name, KVT_PICKLE_BOOL);

	return n ? n->number != 0 : kvt_torch_attribute(c->w, object, name) >= 0;
}

/* The numbers of a tuple of that many; products of them are below 2^62. */
static bool take_sizes(const struct coding *c, const struct kvt_pickle_node *tuple, int n,
		       int64_t *out)
{
	int64_t all = 1;

	if (!tuple || tuple->kind != KVT_PICKLE_TUPLE || tuple->items.count != n)
		return false;
	for (int i = 0; i < n; i++) {
		const struct kvt_pickle_node *size = node_at(c, tuple->items.node[i]);

		if (size->kind != KVT_PICKLE_INT || size->number < 1 ||
		    __builtin_mul_overflow(all, size->number, &all) || all >> 60)
			return false;
		out[i] = size->number;
	}
	return true;
}

/* A dense tensor of two axes; false: there is none, or another. */
static enum kvt_status take_table(bool *taken, struct kvt_pickle_tensor *t,
				  int64_t *begin, const struct coding *c,
				  const struct kvt_pickle_node *object, const char *name)
{
	int32_t i = kvt_torch_attribute(c->w, object, name);
	enum kvt_status status;

	*taken = i >= 0 && node_at(c, i)->kind == KVT_PICKLE_TENSOR;
	if (!*taken)
		return KVT_OK;
	status = kvt_torch_place(t, begin, c->w, i);
	*taken = !status && t->rank == 2 && !t->strided && t->size;
	return status;
}

/* ---- scales ------------------------------------------------------------- */

static bool is_rounded(const struct kvt_dtype *type)
{
	return type && (!strcmp(type->name, "float32") ||
			!strcmp(type->name, "float16") ||
			!strcmp(type->name, "bfloat16"));
}

/* One scale and one zero for each row of the table, or for each column. */
static enum kvt_status take_scales(const struct coding *c,
				   const struct kvt_pickle_node *object,
				   const char *scale_name, const char *zero_name)
{
	struct kvt_pickle_tensor scale = { 0 }, zero = { 0 };
	struct kvt_coded *out = c->out;
	const struct kvt_code_table *t = &out->table;
	bool has_scale = false, has_zero = false;
	enum kvt_status status;

	if ((status = take_table(&has_scale, &scale, &out->scale, c, object,
				 scale_name)) ||
	    (status = take_table(&has_zero, &zero, &out->zero, c, object, zero_name)))
		return status;
	if (!has_scale || !has_zero || scale.dtype != zero.dtype ||
	    !is_rounded(scale.dtype))
		return refuse(c,
			      "scales and zeros that are not two tables of one float type");
	if (memcmp(scale.shape, zero.shape, 2 * sizeof(*scale.shape)))
		return damaged(c, "scales and zeros of unlike shapes");
	out->row_scales = scale.shape[0] == t->rows && scale.shape[1] == 1;
	if (!out->row_scales && (scale.shape[0] != 1 || scale.shape[1] != t->columns))
		return damaged(c, "scales that are not one for each group of codes");
	out->type = out->dtype = scale.dtype;
	return KVT_OK;
}

/* ---- HQQ ---------------------------------------------------------------- */

/* By what its dict calls the packing. */
static const struct packing {
	const char *name, *type;
	int unit, bits, per;
} packings[] = {
	{ "8bit_u8", "uint8", 1, 8, 1 }, { "4bit_u8", "uint8", 1, 4, 2 },
	{ "2bit_u8", "uint8", 1, 2, 4 }, { "1bit_u8", "uint8", 1, 1, 8 },
	{ "3bit_32", "int32", 4, 3, 10 },
};

static const struct packing *find_packing(const struct kvt_pickle_node *name)
{
	for (size_t i = 0; name && i < sizeof(packings) / sizeof(packings[0]); i++)
		if ((size_t)name->ntext == strlen(packings[i].name) &&
		    !memcmp(name->text, packings[i].name, (size_t)name->ntext))
			return &packings[i];
	return NULL;
}

/* How its tokens are a table of groups. */
static enum kvt_status hqq_table(const struct coding *c,
				 const struct kvt_pickle_node *meta)
{
	const struct packing *p = find_packing(find(c, meta, "packing",
						    KVT_PICKLE_STRING));
	struct kvt_code_table *t = &c->out->table;
	int64_t bits = 0, size = 0, axis = -1, all = 1;

	if (!p || is_true(c, meta, "view_as_float"))
		return refuse(c, "codes of another packing");
	if (is_true(c, meta, "quant_scale") || is_true(c, meta, "quant_zero"))
		return refuse(c, "scales that are codes themselves");
	/* codes of 5 and 6 bits take a byte */
	if (!is_number(c, meta, "nbits", &bits) || bits > p->bits ||
	    (bits < p->bits && (p->bits != 8 || bits < 5)))
		return refuse(c, "codes of other bits than their packing");
	if (!is_number(c, meta, "group_size", &size) ||
	    !is_number(c, meta, "axis", &axis) || (axis != 0 && axis != 1))
		return refuse(c, "codes without groups");
	for (int i = 0; i < CODED_RANK; i++)
		all *= c->out->shape[i];
	if (size < 1 || all % size)
		return damaged(c, "groups that do not divide its shape");
	/* its own unpacking takes the wrong number of rows then */
	if (p->per == 10 && axis)
		return refuse(c, "codes of 3 bits along axis 1");
	c->out->nbits = (int)bits;
	*t = (struct kvt_code_table){ .rows = axis ? all / size : size,
		.columns = axis ? size : all / size, .unit = p->unit, .bits = p->bits,
		.per = p->per, .high_first = true };
	t->step = (t->rows + p->per - 1) / p->per;
	return KVT_OK;
}

/* (codes, dict) */
static enum kvt_status take_hqq(const struct coding *c,
				const struct kvt_pickle_node *pair)
{
	const struct kvt_pickle_node *meta = node_at(c, pair->items.node[1]), *type;
	struct kvt_pickle_tensor codes = { 0 };
	struct kvt_code_table *t = &c->out->table;
	enum kvt_status status;

	if (!take_sizes(c, find(c, meta, "shape", KVT_PICKLE_TUPLE), CODED_RANK,
			c->out->shape))
		return damaged(c,
			       "codes whose shape is not batch, heads, tokens and elements");
	if ((status = hqq_table(c, meta)) ||
	    (status = take_scales(c, meta, "scale", "zero")) ||
	    (status = kvt_torch_place(&codes, &t->at, c->w, pair->items.node[0])))
		return status;
	if (codes.rank != 2 || codes.strided || codes.elem != t->unit || !codes.dtype ||
	    strcmp(codes.dtype->name, t->unit == 4 ? "int32" : "uint8"))
		return refuse(c, "codes that are not a table of bytes, or of int32");
	/* of rows that fill no unit the library drops some, except of 3 bits */
	if (codes.shape[0] != t->step || codes.shape[1] != t->columns ||
	    (t->rows % t->per && t->per != 10))
		return damaged(c,
			       "codes that are not as many as its shape and groups say");
	type = find(c, meta, "compute_dtype", KVT_PICKLE_GLOBAL);
	if (!type || kvt_pickle_dtype(type->global) != c->out->type)
		return refuse(c,
			      "codes that are computed in another type than their scales");
	return KVT_OK;
}

/* ---- quanto ------------------------------------------------------------- */

/* An object's arguments, where it wraps a tensor; NULL: it does not. */
static const struct kvt_pickle_node *arguments(const struct coding *c,
					       const struct kvt_pickle_node *object)
{
	const struct kvt_pickle_node *args;

	if (object->kind != KVT_PICKLE_OBJECT || object->items.count != 2)
		return NULL;
	args = node_at(c, object->items.node[1]);
	return args->items.count == 8 ? args : NULL;
}

static enum kvt_status quanto_codes(const struct coding *c,
				    const struct kvt_pickle_node *object)
{
	const struct kvt_pickle_node *data = find(c, object, "_data", KVT_PICKLE_OBJECT);
	struct kvt_code_table *t = &c->out->table;
	struct kvt_pickle_tensor codes = { 0 };
	const struct kvt_pickle_node *args;
	int64_t bits = 0, size[2];
	enum kvt_status status;
	bool taken = false;

	args = data ? arguments(c, data) : NULL;
	if (!args || !is_number(c, data, "_bits", &bits) || bits != t->bits ||
	    !take_sizes(c, node_at(c, args->items.node[2]), 2, size))
		return refuse(c, "codes that are packed otherwise");
	if ((status = take_table(&taken, &codes, &t->at, c, data, "_data")))
		return status;
	if (!taken || !codes.dtype || strcmp(codes.dtype->name, "uint8"))
		return refuse(c, "codes that are not a table of bytes");
	if (size[0] != t->rows || size[1] != t->columns || codes.shape[0] != t->step ||
	    codes.shape[1] != t->columns)
		return damaged(c,
			       "codes that are not as many as its shape and groups say");
	return KVT_OK;
}

static enum kvt_status quanto_table(const struct coding *c,
				    const struct kvt_pickle_node *object)
{
	const struct kvt_pickle_node *type = find(c, object, "_qtype", KVT_PICKLE_OBJECT);
	int64_t bits = 0, size = 0, axis = 1, all = 1, of_axis;
	struct kvt_code_table *t = &c->out->table;

	if (!type || !is_number(c, type, "bits", &bits) || (bits != 2 && bits != 4) ||
	    is_true(c, type, "is_floating_point"))
		return refuse(c, "codes of another type than qint2 and qint4");
	if (!is_number(c, object, "_group_size", &size) ||
	    !is_number(c, object, "_axis", &axis) || (axis != 0 && axis != -1))
		return refuse(c, "codes without groups");
	for (int i = 0; i < CODED_RANK; i++)
		all *= c->out->shape[i];
	of_axis = all / c->out->shape[axis ? CODED_DIM : CODED_BATCH];
	if (size < 1 || of_axis % size)
		return damaged(c, "groups that do not divide its shape");
	c->out->nbits = (int)bits;
	c->out->scale_first = true;
	*t = (struct kvt_code_table){ .rows = axis ? size : all / size,
		.columns = axis ? all / size : size, .unit = 1, .bits = (int)bits,
		.per = 8 / (int)bits, .turned = axis };
	t->step = (t->rows + t->per - 1) / t->per;
	return KVT_OK;
}

static enum kvt_status take_quanto(const struct coding *c,
				   const struct kvt_pickle_node *object)
{
	const struct kvt_pickle_node *args = arguments(c, object), *type;
	enum kvt_status status;

	if (!args || !take_sizes(c, node_at(c, args->items.node[2]), CODED_RANK,
				 c->out->shape))
		return damaged(c,
			       "codes whose shape is not batch, heads, tokens and elements");
	if ((status = quanto_table(c, object)) ||
	    (status = take_scales(c, object, "_scale", "_shift")) ||
	    (status = quanto_codes(c, object)))
		return status;
	/* a table that is turned has its groups in columns */
	if (c->out->table.turned && c->out->row_scales && c->out->table.rows > 1)
		return damaged(c, "scales that are not one for each group of codes");
	type = node_at(c, args->items.node[1]);
	if (type->kind != KVT_PICKLE_GLOBAL ||
	    kvt_pickle_dtype(type->global) != c->out->type)
		return refuse(c, "a tensor of another type than its scales");
	return KVT_OK;
}

/* ---- tokens that are not coded yet -------------------------------------- */

/* A float32 holds both types where they differ, as torch.cat() finds, too. */
static enum kvt_status take_rest(const struct coding *c, int32_t node)
{
	struct kvt_pickle_tensor t = { 0 };
	struct kvt_coded *out = c->out;
	enum kvt_status status;

	out->ncoded = out->shape[CODED_TOKENS];
	if (node < 0 || node_at(c, node)->kind == KVT_PICKLE_NONE)
		return KVT_OK;
	if (node_at(c, node)->kind != KVT_PICKLE_TENSOR)
		return damaged(c, "with newest tokens in something else than a tensor");
	if ((status = kvt_torch_place(&t, &out->rest, c->w, node)))
		return status;
	if (t.rank == 1 && !t.shape[0])
		return KVT_OK;
	if (t.rank != CODED_RANK || t.shape[0] != out->shape[0] ||
	    t.shape[1] != out->shape[1] || t.shape[3] != out->shape[3] || !t.size)
		return damaged(c, "codes and newest tokens of unlike shapes");
	if (!is_rounded(t.dtype))
		return refuse(c, "codes and newest tokens of another float type");
	out->rest_type = t.dtype;
	if (t.dtype != out->dtype)
		out->dtype = kvt_dtype_find("float32");
	out->shape[CODED_TOKENS] += t.shape[CODED_TOKENS];
	memcpy(out->rest_stride, t.stride, sizeof(out->rest_stride));
	return KVT_OK;
}

enum kvt_status kvt_torch_coded(struct kvt_coded **out, const struct torch_walk *w,
				int32_t codes, int32_t rest)
{
	const struct kvt_pickle_node *n = &w->pickle.node[codes];
	struct coding c = { .w = w, .out = calloc(1, sizeof(*c.out)) };
	bool pair = n->kind == KVT_PICKLE_TUPLE && n->items.count == 2;
	enum kvt_status status;

	if (!c.out)
		return kvt_no_memory(w->err, w->file->path);
	c.out->quantiser = c.quantiser = pair ? "HQQ" : "quanto";
	if (pair && node_at(&c, n->items.node[0])->kind == KVT_PICKLE_TENSOR &&
	    node_at(&c, n->items.node[1])->kind == KVT_PICKLE_DICT)
		status = take_hqq(&c, n);
	else
		status = take_quanto(&c, n);
	if (!status)
		status = take_rest(&c, rest);
	if (status)
		free(c.out);
	else
		*out = c.out;
	return status;
}
