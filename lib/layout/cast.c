/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.c - rows of numbers as another type
 *
 * A row of float32 becomes elements, each divided by a scale that is kept elsewhere, or a
 * row of a content, which has its scales inside.  So a caster is a type and a packing,
 * and what a row becomes depends on the row and the scale alone.
 */
#include "lib/kvt/cast.h"
#include "lib/base/print.h"
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

static enum kvt_status init_packing(struct kvt_caster *out,
				    const struct kvt_content *content, int64_t dim,
				    struct kvt_error *err)
{
	const struct content_recipe *recipe = content_recipe_of(content);
	struct kvt_content of = *content;
	int64_t fixed = kvt_content_row(&of);
	struct kvt_shape shape = { .elem = 1 };
	enum kvt_status status;

	for (int a = 0; a < KVT_NAXES; a++)
		shape.n[a] = 1;
	if (recipe->told && !of.n)
		of.n = dim;
	shape.n[KVT_AXIS_D] = fixed ? fixed : kvt_content_row_of(&of, dim);
	if (!shape.n[KVT_AXIS_D])
		return kvt_fail(err, KVT_UNSUPPORTED,
				"head vectors of %lld numbers cannot be %s", LL(dim),
				kvt_content_name(content).s);
	if ((status = kvt_packing_init(&out->packing, &of, &shape,
				       of.type->ratio ? of.type->ratio : 1, err)) ||
	    (status = recipe->write ? kvt_packing_readable(&out->packing, err) :
				      kvt_packing_writable(&out->packing, err)))
		return status;
	if (out->packing.row_values != dim * out->packing.halves)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s is %lld numbers, and there are %lld", of.type->name,
				LL(out->packing.row_values), LL(dim));
	return KVT_OK;
}

enum kvt_status kvt_caster_init(struct kvt_caster *out, const struct kvt_dtype *dtype,
				const struct kvt_content *content, int64_t dim,
				struct kvt_error *err)
{
	enum kvt_status status;

	*out = (struct kvt_caster){ .dtype = dtype, .n = dim,
				    .nbytes = dim * dtype->elem };
	if (!content->type && (!dtype->is_float || dtype->number == KVT_POWER))
		return kvt_fail(err, KVT_UNSUPPORTED, "numbers are not written as %s",
				dtype->name);
	if (!content->type)
		return KVT_OK;
	if ((status = init_packing(out, content, dim, err)))
		return status;
	out->n = out->packing.row_values;
	out->nbytes = out->packing.nbytes;
	return KVT_OK;
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

void kvt_cast_row(const struct kvt_caster *caster, void *bytes, const float *numbers,
		  int64_t kv, float scale)
{
	enum { CHUNK = 256 };
	float part[CHUNK];
	unsigned char *to = bytes;

	if (is_content(caster)) {
		kvt_packing_write(bytes, &caster->packing, kv, numbers, scale);
		return;
	}
	for (int64_t at = 0, n; at < caster->n; at += n) {
		n = caster->n - at < CHUNK ? caster->n - at : CHUNK;
		for (int64_t i = 0; i < n; i++)
			part[i] = numbers[at + i] / scale;
		kvt_cast_store(to + at * caster->dtype->elem, caster->dtype, part, n);
	}
}

void kvt_cast_back(const struct kvt_caster *caster, float *numbers, const void *bytes,
		   int64_t kv, float scale)
{
	enum { CHUNK = 256 };
	double part[CHUNK];

	if (!is_content(caster)) {
		kvt_cast_load(numbers, caster->dtype, bytes, caster->n);
		for (int64_t i = 0; i < caster->n; i++)
			numbers[i] *= scale;
		return;
	}
	for (int64_t at = 0, n; at < caster->n; at += n) {
		n = caster->n - at < CHUNK ? caster->n - at : CHUNK;
		kvt_packing_decode(part, &caster->packing, kv, bytes, at, n);
		for (int64_t i = 0; i < n; i++)
			numbers[at + i] = (float)part[i];
	}
}
