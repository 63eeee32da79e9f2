/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.c - rows of numbers as another type
 *
 * A row of float32 becomes elements, each divided by a scale that is kept elsewhere, or a
 * row of a content, which has its scales inside.  So a caster is a type and a packing,
 * and what a row becomes depends on the row and the scale alone.
 */
#include "lib/kvt/cast.h"
#include "lib/layout/content_types.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- names -------------------------------------------------------------- */

enum kvt_status kvt_cast_parse(const struct kvt_dtype **dtype,
			       struct kvt_content *content, const char *name,
			       struct kvt_error *err)
{
	enum kvt_status status;
	struct kvt_error why;
	char fp8[32];

	*content = (struct kvt_content){ .n = 0 };
	if (!strcasecmp(name, "fp8"))	/* that of vLLM */
		name = "fp8_e4m3";
	snprintf(fp8, sizeof(fp8), "fp8_%.20s", name);
	if ((*dtype = kvt_dtype_find(name)) || (*dtype = kvt_dtype_find(fp8)))
		return KVT_OK;
	*dtype = kvt_dtype_find("uint8");
	status = kvt_content_parse(content, name, &why);
	if (status == KVT_USAGE)
		return kvt_fail(err, KVT_USAGE,
				"'%.60s' is neither an element type nor a content type; see kvtool help dtypes and contents",
				name);
	return status ? kvt_fail(err, status, "%s", why.text) : KVT_OK;
}

/* ---- rows --------------------------------------------------------------- */

static bool is_content(const struct kvt_caster *caster)
{
	return caster->packing.content.type;
}

/* Of one row, of so many bytes. */
static enum kvt_status init_packing(struct kvt_packing *out,
				    const struct kvt_content *content, int64_t nbytes,
				    int64_t tokens, struct kvt_error *err)
{
	struct kvt_shape shape = { .elem = 1 };

	for (int a = 0; a < KVT_NAXES; a++)
		shape.n[a] = 1;
	shape.n[KVT_AXIS_D] = nbytes;
	return kvt_packing_init(out, content, &shape, tokens, err);
}

/* Its numbers are those of the vectors. */
static enum kvt_status settle(struct kvt_caster *c, struct kvt_error *err)
{
	const struct kvt_packing *p = &c->packing;
	enum kvt_status status = kvt_packing_readable(p, err);

	if (!status && p->row_values != c->n * p->halves)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s is %lld numbers, and there are %lld",
				p->content.type->name, LL(p->row_values), LL(c->n));
	c->n *= p->halves;
	return status;
}

static enum kvt_status init_content(struct kvt_caster *out,
				    const struct kvt_content *content, int64_t dim,
				    struct kvt_error *err)
{
	const struct content_recipe *recipe = content_recipe_of(content);
	struct kvt_content of = *content;
	int64_t fixed = kvt_content_row(&of), row;
	enum kvt_status status;

	if (recipe->unwritten)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"numbers are not written as %s: %s", recipe->type.name,
				recipe->unwritten);
	if (recipe->told && !of.n)
		of.n = dim;
	else if (!recipe->told && recipe->type.planar)
		of.n = 0;		/* rows of a page, which is not known yet */
	row = fixed ? fixed : kvt_content_row_of(&of, dim);
	if (!row)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"head vectors of %lld numbers cannot be %s", LL(dim),
				kvt_content_name(content).s);
	if ((status = init_packing(&out->packing, &of, row,
				   of.type->ratio ? of.type->ratio : 1, err)))
		return status;
	out->nbytes = out->packing.nbytes;
	out->packing.content.n = recipe->told ? of.n : content->n;
	/* of pages, kvt_caster_pages() */
	return recipe->type.planar ? KVT_OK : settle(out, err);
}

enum kvt_status kvt_caster_pages(struct kvt_caster *caster, int64_t *slots_of_page,
				 int64_t slots, int64_t heads, int64_t tokens_per_slot,
				 struct kvt_error *err)
{
	const struct kvt_content content = caster->packing.content;
	const struct content_recipe *recipe = content_recipe_of(&content);
	int64_t rows = recipe->told || !content.n ? recipe->page_rows : content.n;
	int64_t nbytes, tokens;
	enum kvt_status status;

	*slots_of_page = rows && rows < slots ? rows : slots;
	if (slots % *slots_of_page || (!recipe->told && content.n > slots))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"blocks of %lld slots do not divide into pages of %lld rows of %s; reblock first",
				LL(slots), LL(rows), recipe->type.name);
	if (heads > 1 && !recipe->type.all_heads)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s is a latent, and there are %lld heads",
				recipe->type.name, LL(heads));
	if (recipe->type.ratio && recipe->type.ratio != tokens_per_slot)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"a row of %s is of %lld tokens, and a slot of %lld",
				recipe->type.name, LL(recipe->type.ratio),
				LL(tokens_per_slot));
	if (__builtin_mul_overflow(*slots_of_page * heads, caster->nbytes, &nbytes) ||
	    __builtin_mul_overflow(*slots_of_page, tokens_per_slot, &tokens))
		return kvt_fail(err, KVT_UNSUPPORTED, "a page has too many bytes");
	caster->nbytes = nbytes;
	status = init_packing(&caster->packing, &content, nbytes, tokens, err);
	return status ? status : settle(caster, err);
}

enum kvt_status kvt_caster_init(struct kvt_caster *out, const struct kvt_dtype *dtype,
				const struct kvt_content *content, int64_t dim,
				struct kvt_error *err)
{
	*out = (struct kvt_caster){ .dtype = dtype, .n = dim,
				    .nbytes = dim * dtype->elem };
	if (!content->type && (!dtype->is_float || dtype->number == KVT_POWER))
		return kvt_fail(err, KVT_UNSUPPORTED, "numbers are not written as %s",
				dtype->name);
	return content->type ? init_content(out, content, dim, err) : KVT_OK;
}

bool kvt_cast_scaled(const struct kvt_dtype *dtype, const struct kvt_content *content)
{
	return content->type ? content_recipe_of(content)->scaled :
	       dtype->elem == 1 && dtype->is_float && dtype->number != KVT_POWER;
}

bool kvt_caster_scaled(const struct kvt_caster *caster)
{
	return kvt_cast_scaled(caster->dtype, &caster->packing.content);
}

/* vLLM counts the largest number of the types without negative 0 as 224, not as 240. */
static float largest_of(const struct kvt_dtype *dtype)
{
	return dtype->number == KVT_FNUZ ? dtype->fraction == 3 ? 224.0f : 57344.0f :
	       dtype->fraction == 3 ? 448.0f : 57344.0f;
}

float kvt_caster_scale(const struct kvt_caster *caster, float largest)
{
	const struct kvt_dtype *fp8 = is_content(caster) ? kvt_dtype_find("fp8_e4m3") :
							   caster->dtype;
	float scale;

	if (!kvt_caster_scaled(caster) || isinf(largest))
		return 1;
	scale = largest / largest_of(fp8);
	if (is_content(caster))		/* as transformers has it */
		return scale > FLT_MIN ? scale : FLT_MIN;
	return scale > 0 ? scale : 1;
}

void kvt_cast_row(const struct kvt_caster *caster, void *bytes, int64_t row,
		  const float *numbers, int64_t kv, float scale)
{
	enum { CHUNK = 256 };
	float part[CHUNK];
	unsigned char *to = bytes;

	if (is_content(caster)) {
		kvt_packing_write(bytes, &caster->packing, row, kv, numbers, scale);
		return;
	}
	for (int64_t at = 0, n; at < caster->n; at += n) {
		n = caster->n - at < CHUNK ? caster->n - at : CHUNK;
		for (int64_t i = 0; i < n; i++)
			part[i] = numbers[at + i] / scale;
		kvt_cast_store(to + at * caster->dtype->elem, caster->dtype, part, n);
	}
}

enum kvt_status kvt_cast_holds(const struct kvt_caster *caster, const void *bytes,
			       const float *numbers, struct kvt_error *err)
{
	const struct kvt_packing *p = &caster->packing;
	const char *name;

	if (!is_content(caster) || !content_recipe_of(&p->content)->blocks)
		return KVT_OK;
	name = p->content.type->name;
	for (int64_t i = 0; i < caster->n; i++)
		if (!isfinite(numbers[i]))
			return kvt_fail(err, KVT_BAD_INPUT,
					"a number is %g, and blocks of %s hold none such",
					(double)numbers[i], name);
	for (int f = 0; f < p->nfields; f++) {
		const struct kvt_field *field = &p->field[f];
		const unsigned char *at = (const unsigned char *)bytes + field->at;

		/* a float16 whose exponent is all ones is no number */
		for (int64_t i = 0; field->role == KVT_FIELD_SCALES && i < field->count;
		     i++, at += field->step)
			if ((at[1] & 0x7c) == 0x7c)
				return kvt_fail(err, KVT_BAD_INPUT,
						"numbers are too large for the scales of %s",
						name);
	}
	return KVT_OK;
}

void kvt_cast_prove(const struct kvt_caster *caster, void *bytes, int64_t row,
		    const float *numbers, int64_t kv, float scale)
{
	kvt_packing_prove(bytes, &caster->packing, row, kv, numbers, scale);
}
