/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content.c - which bytes of a group of some shape are what
 *
 *	a row		[field 0][field 1] ...		of a slot, head, key or value
 *	a page of	[field 0 of row 0][.. of row 1] ...	plane 0
 *	planes		[field 1 of row 0][.. of row 1] ...	plane 1
 *	blocks		[scale, codes][scale, codes] ...	of 32 numbers each
 *
 * In: a content type and the shape that a group of bytes has.  Out: a packing: how many
 * rows there are, of how many numbers, and of each field where its first element is, the
 * step from row to row, its coding, and which field scales it or is added.  A row that
 * may be of any number of elements gets it from its width: wider with each step, so it
 * is found by bisection.  What does not add up to the byte is refused.
 */
#include "lib/kvt/content.h"
#include "lib/layout/content_types.h"

#include <string.h>

/* ---- shapes ------------------------------------------------------------- */

static enum kvt_status check_shape(const struct kvt_content *content,
				   const struct kvt_shape *shape, struct kvt_error *err)
{
	const struct kvt_content_type *type = content->type;
	bool one_head = type->planar || type->kind == KVT_MLA || kvt_content_row(content);

	if (shape->elem != 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is bytes, but elements have %lld of them",
				type->name, LL(shape->elem));
	if (shape->n[KVT_AXIS_K] != 1 && !type->pairs)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is the whole content of a slot, but keys and values are separate",
				type->name);
	if (shape->n[KVT_AXIS_H] != 1 && one_head)
		return kvt_fail(err, KVT_BAD_INPUT, "%s has no heads, but there are %lld",
				type->name, LL(shape->n[KVT_AXIS_H]));
	return KVT_OK;
}

/* ---- rows --------------------------------------------------------------- */

/* The numbers of a head vector whose row has 'width' bytes; 0 if none has. */
static int64_t solve_dim(const struct content_recipe *recipe, int64_t width)
{
	int64_t step = recipe->step ? recipe->step : 1, low = 0, high;

	if (width < 1 || width > INT64_C(1) << 40)
		return 0;
	/* wider with each step; no number has less than two bits */
	for (high = 4 * width / step + 1; low + 1 < high;) {
		int64_t middle = low + (high - low) / 2;

		if (kvt_content_row_width(recipe, middle * step) <= width)
			low = middle;
		else
			high = middle;
	}
	return low && kvt_content_row_width(recipe, low * step) == width ? low * step : 0;
}

static enum kvt_status no_row(const struct kvt_packing *p, int64_t step,
			      int64_t least, struct kvt_error *err)
{
	int64_t fixed = p->dim ? kvt_content_row_width(content_recipe_of(&p->content),
						   p->dim) :
		kvt_content_row(&p->content);

	if (fixed)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld rows of %s have %lld bytes, expected %lld each",
				LL(p->rows), p->content.type->name, LL(p->nbytes),
				LL(fixed));
	if (step)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld rows of %s have %lld bytes, expected at least %lld each, in steps of %lld",
				LL(p->rows), p->content.type->name, LL(p->nbytes),
				LL(least), LL(step));
	return kvt_fail(err, KVT_BAD_INPUT,
			"%lld rows of %s have %lld bytes, which is that of no head vector; expected at least %lld each",
			LL(p->rows), p->content.type->name, LL(p->nbytes), LL(least));
}

/* Numbers of a vector that may be rotated together, of what engines do today. */
enum { TURNED = 64 };

/*
 * Heads that are cut out of no row, and what is rotated together: of a vector of another
 * size nothing is.
 */
static enum kvt_status settle_vectors(struct kvt_packing *p, int64_t nkv,
				      struct kvt_error *err)
{
	int64_t dim = p->content.n ? p->content.n : p->dim;

	if (p->dim % dim)
		return kvt_fail(err, KVT_BAD_INPUT,
				"rows of %s have %lld numbers, which are no vectors of %lld",
				p->content.type->name, LL(p->dim), LL(dim));
	p->fold = p->dim / dim;
	for (int kv = 0; kv < 2; kv++) {
		p->turn[kv] = p->content.turn[kv < nkv ? kv : 0];
		if (p->turn[kv] > 1 && (dim % p->turn[kv] || p->turn[kv] > MAX_ROTATED))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: vectors of %lld numbers cannot be rotated by %lld together, of %d at most",
					kvt_content_name(&p->content).s, LL(dim),
					LL(p->turn[kv]), MAX_ROTATED);
		if (!p->turn[kv] && dim % TURNED)
			p->turn[kv] = 1;
	}
	return KVT_OK;
}

/* All rows are of one size, and of a size that rows can have. */
static enum kvt_status settle_rows(struct kvt_packing *p, struct kvt_error *err)
{
	const struct content_recipe *recipe = content_recipe_of(&p->content);
	int64_t fixed = kvt_content_row(&p->content), step = recipe->step;
	int64_t width = p->nbytes / p->rows;
	int64_t least = kvt_content_row_width(recipe, step ? step : 1);

	if (recipe->told)
		p->dim = p->content.n;
	if (p->dim && p->dim % step)
		return kvt_fail(err, KVT_BAD_INPUT,
				"a head vector of %s has a multiple of %lld numbers, not %lld",
				recipe->type.name, LL(step), LL(p->dim));
	if (p->nbytes % p->rows || (fixed && width != fixed))
		return no_row(p, step, least, err);
	if (!fixed && !p->dim) {
		p->dim = solve_dim(recipe, width);
		if (!p->dim)
			return no_row(p, !step ? 1 : recipe->unreadable ? step : 0, least,
				      err);
	}
	if (p->dim && kvt_content_row_width(recipe, p->dim) != width)
		return no_row(p, step, least, err);
	return KVT_OK;
}

/* Of pages whose rows are any number of tokens: as many as fill it. */
static enum kvt_status count_rows(struct kvt_packing *p, int64_t tokens,
				  struct kvt_error *err)
{
	const struct content_recipe *recipe = content_recipe_of(&p->content);
	const struct kvt_content_type *type = &recipe->type;
	int64_t width = kvt_content_row(&p->content), ratio = type->ratio;

	p->rows = p->heads = p->row_tokens = 1;
	if (!type->planar)
		return KVT_OK;
	if (tokens < 1 || (ratio && tokens % ratio))
		return kvt_fail(err, KVT_BAD_INPUT,
				"a page of %s holds %lld tokens, expected a multiple of %lld",
				type->name, LL(tokens), LL(ratio ? ratio : 1));
	p->row_tokens = ratio;
	p->rows = ratio ? tokens / ratio : p->nbytes / width;
	if (recipe->told && !p->content.n) {
		/* bytes, as long as nobody says more */
		p->rows = 1;
		p->row_tokens = tokens;
		return KVT_OK;
	}
	if (recipe->told) {
		/* a row of each head */
		width = kvt_content_row_width(recipe, p->content.n);
		p->heads = width ? p->nbytes / width / tokens : 0;
		p->rows = p->heads * tokens;
	}
	if (p->rows < 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"a page of %s has %lld bytes, less than a row for each token",
				type->name, LL(p->nbytes));
	if (!ratio && tokens % p->rows)
		return kvt_fail(err, KVT_BAD_INPUT,
				"a page of %s holds %lld tokens, expected a multiple of its %lld rows",
				type->name, LL(tokens), LL(p->rows));
	if (!ratio)
		p->row_tokens = tokens / p->rows;
	if (!recipe->told && p->content.n && p->rows != p->content.n)
		return kvt_fail(err, KVT_BAD_INPUT,
				"a page of %s has %lld rows, but %lld were said",
				type->name, LL(p->rows), LL(p->content.n));
	return KVT_OK;
}

/* ---- fields ------------------------------------------------------------- */

static void set_type(struct kvt_field *field, const char *type,
		     const struct kvt_dtype *fp8)
{
	field->coding = kvt_content_coding_find(type);
	if (field->coding >= 0) {
		field->type = kvt_content_coding_at(field->coding)->name;
		field->bits = kvt_content_coding_at(field->coding)->bits;
		return;
	}
	field->dtype = strcmp(type, "fp8") ? kvt_dtype_find(type) : fp8;
	if (!field->dtype)		/* bytes, as long as nobody says more */
		field->dtype = kvt_dtype_find("uint8");
	field->type = field->dtype->name;
	field->bits = 8 * field->dtype->elem;
}

/* 'in_row' counts the bytes of each plane that are taken. */
static void add_field(struct kvt_packing *out, const struct field_recipe *from,
		      const struct content_recipe *recipe, int64_t in_row[MAX_PLANES])
{
	struct kvt_field *field = &out->field[out->nfields];
	int64_t before = 0, width = out->nbytes / out->rows;

	for (int p = 0; p < from->plane; p++)
		before += kvt_content_plane_width(recipe, p, out->dim) * out->rows;
	*field = (struct kvt_field){
		.name = from->name, .role = from->role, .scale = from->scale,
		.added = from->added, .high = from->high,
		.rotation = from->rotation, .unit = from->unit, .order = from->order,
		.at = before + in_row[from->plane],
		.count = kvt_field_recipe_count(from, out->dim),
		.stride = recipe->type.planar ?
			  kvt_content_plane_width(recipe, from->plane, out->dim) : width,
	};
	if (from->role == KVT_FIELD_VALUES && recipe->product)
		field->product = kvt_dtype_find(recipe->product);
	if (from->role == KVT_FIELD_VALUES && recipe->result)
		field->result = kvt_dtype_find(recipe->result);
	set_type(field, from->type, out->content.fp8);
	field->bits -= from->high;
	if (recipe->block) {
		field->block = recipe->block / from->per;
		field->step = width / (out->dim / recipe->block);
	}
	if (!from->n && !from->per)	/* what rounds the row up */
		field->count = width - in_row[from->plane];
	in_row[from->plane] += kvt_field_bytes_of(field, kvt_field_run(field));
	out->nfields += field->count > 0;
}

static void add_fields(struct kvt_packing *out)
{
	const struct content_recipe *recipe = content_recipe_of(&out->content);
	int64_t in_row[MAX_PLANES] = { 0 };

	for (int i = 0; i < recipe->nfields; i++)
		add_field(out, &recipe->field[i], recipe, in_row);
}

/* All that is there, of which too little is said. */
static void add_bytes(struct kvt_packing *out)
{
	struct kvt_field *field = &out->field[out->nfields++];

	*field = (struct kvt_field){ .name = "bytes", .role = KVT_FIELD_OTHER,
				     .count = out->nbytes / out->rows,
				     .stride = out->nbytes / out->rows,
				     .scale = -1, .added = -1 };
	set_type(field, "uint8", NULL);
}

static void count_values(struct kvt_packing *p)
{
	p->row_values = 0;
	for (int i = 0; i < p->nfields && !kvt_packing_readable(p, NULL); i++)
		if (p->field[i].role == KVT_FIELD_VALUES)
			p->row_values += p->field[i].count;
}

enum kvt_status kvt_packing_init(struct kvt_packing *out,
				 const struct kvt_content *content,
				 const struct kvt_shape *shape, int64_t tokens_per_slot,
				 struct kvt_error *err)
{
	const struct content_recipe *recipe = content_recipe_of(content);
	struct kvt_packing packing = { .content = *content, .halves = 1, .fold = 1,
				       .nbytes = shape->n[KVT_AXIS_D] };
	enum kvt_status status;

	if ((status = check_shape(content, shape, err)) ||
	    (status = count_rows(&packing, tokens_per_slot, err)))
		return status;
	/* an array of rows is no array of pages */
	if (recipe->type.planar && packing.rows == 1 && shape->n[KVT_AXIS_S] > 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"a block of %s is one page of planes, so one slot, not %lld",
				recipe->type.name, LL(shape->n[KVT_AXIS_S]));
	if (packing.nbytes < packing.rows)
		return kvt_fail(err, KVT_BAD_INPUT,
				"a slot of %s has %lld bytes, less than one for a row",
				recipe->type.name, LL(packing.nbytes));
	if (recipe->told && !content->n)
		add_bytes(&packing);
	else if ((status = settle_rows(&packing, err)))
		return status;
	if (recipe->block &&
	    (status = settle_vectors(&packing, shape->n[KVT_AXIS_K], err)))
		return status;
	if (!packing.nfields)
		add_fields(&packing);
	if (recipe->halves)
		packing.halves = recipe->halves;
	count_values(&packing);
	*out = packing;
	return KVT_OK;
}

/* Do its numbers need what cannot be undone? */
static enum kvt_status check_rotation(const struct kvt_packing *packing,
				      struct kvt_error *err)
{
	const char *why;

	for (int i = 0; i < packing->nfields; i++) {
		const struct kvt_field *field = &packing->field[i];

		if (field->rotation != KVT_ROTATION_NONE &&
		    !kvt_rotation_defined(field->rotation, field->count, &why))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"numbers of %s cannot be read: %s, and a head vector has %lld",
					packing->content.type->name, why,
					LL(field->count));
		if (field->order == KVT_SCALES_BY_ROWS &&
		    (packing->rows / packing->heads % 4 || field->count % 4))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"numbers of %s cannot be read: its scales are in fours, but a page has %lld tokens and a head vector %lld scales",
					packing->content.type->name,
					LL(packing->rows / packing->heads),
					LL(field->count));
	}
	return KVT_OK;
}

bool kvt_packing_may_turn(const struct kvt_packing *packing)
{
	return content_recipe_of(&packing->content)->block &&
	       (!packing->turn[0] || !packing->turn[1]);
}

/* The largest power of two that divides a key. */
static int64_t turn_of_keys(const struct kvt_packing *packing)
{
	int64_t dim = packing->content.n ? packing->content.n : packing->dim;

	return dim & -dim;
}

void kvt_packing_take_turn(struct kvt_packing *packing, bool rotated)
{
	for (int kv = 0; kv < 2; kv++)
		if (!packing->turn[kv])
			packing->turn[kv] = !rotated ? 1 : kv ? TURNED :
					    turn_of_keys(packing);
	count_values(packing);
}

enum kvt_status kvt_packing_readable(const struct kvt_packing *packing,
				     struct kvt_error *err)
{
	const struct content_recipe *recipe = content_recipe_of(&packing->content);
	const char *name = recipe->type.name;

	if (recipe->unreadable)
		return kvt_fail(err, KVT_UNSUPPORTED, "numbers of %s cannot be read: %s",
				name, recipe->unreadable);
	if (kvt_content_has_fp8(recipe) && !packing->content.fp8)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s has an unknown fp8 type; give %s/e4m3fn, /e4m3fnuz, /e5m2 or /e5m2fnuz",
				name, name);
	if (kvt_packing_may_turn(packing))
		return kvt_fail(err, KVT_BAD_INPUT,
				"whether numbers of %s are rotated is not said, as llama.cpp may have done since 2026-04; give %s/plain if not, %s/k%lld/v%d if so, or --set=rotation=none or hadamard of a state file",
				name, name, name, LL(turn_of_keys(packing)), TURNED);
	if (recipe->told && !packing->content.n)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s does not say how many numbers a head vector has; give %s/128 or what it is",
				name, name);
	return check_rotation(packing, err);
}

enum kvt_rotation kvt_packing_rotation(const struct kvt_packing *packing)
{
	for (int i = 0; i < packing->nfields; i++)
		if (packing->field[i].rotation != KVT_ROTATION_NONE)
			return packing->field[i].rotation;
	return packing->turn[0] > 1 || packing->turn[1] > 1 ? KVT_ROTATION_HADAMARD :
							      KVT_ROTATION_NONE;
}

/* ---- layouts ------------------------------------------------------------ */

/* Anything behind D is inside a row, be it another part of D. */
static bool tears(const struct kvt_order *order, const struct kvt_shape *shape)
{
	bool behind = false;

	for (int i = 0; i < order->nparts; i++) {
		enum kvt_axis axis = order->part[i].axis;

		if (behind && shape->n[axis] > 1)
			return true;
		behind |= axis == KVT_AXIS_D;
	}
	return false;
}

enum kvt_status kvt_content_keeps(const struct kvt_content *content,
				  const struct kvt_layout *layout,
				  const struct kvt_shape *shape, struct kvt_error *err)
{
	for (int p = 0; content->type && p < layout->nplanes; p++)
		if (tears(&layout->plane[p], shape))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"layout %s does not keep the rows of %s contiguous",
					kvt_layout_string(layout).s, content->type->name);
	return KVT_OK;
}
