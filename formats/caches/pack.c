/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.c - codes of a quantised cache, with the scales that stand beside them
 *
 * A library keeps codes in one tensor, and in others the scales of each row and what is
 * added to it.  Here they are the fields of one row of bytes, in the order of its
 * content, which says how wide each must be.  A tensor of one number scales every row.
 */
#include "formats/caches/open.h"

#include <stdio.h>
#include <string.h>

/* Bytes of the last axis, from which the axes before it are reached as before. */
static enum kvt_status take_part(struct cache_part *out, const struct cache_opening *o,
				  const struct kvt_tensor *t)
{
	int64_t elem = kvt_tensor_array(t, "").elem, dense = elem;
	int64_t count = t->rank ? t->shape[t->rank - 1] : 1;

	/* an axis of none makes any other one free */
	if (count > INT32_MAX)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tensor %.100s has %lld elements for each row",
				o->reader->leaf.path, t->name, LL(count));
	if (t->strided && count > 1 && t->stride[t->rank - 1] != elem)
		return kvt_fail(o->err, KVT_UNSUPPORTED,
				"%s: tensor %.100s has gaps in a row, expected codes or scales side by side",
				o->reader->leaf.path, t->name);
	*out = (struct cache_part){ .file = o->file, .begin = o->tensors.data + t->begin,
				     .width = count * elem };
	for (int i = CACHE_RANK - 1; t->rank == CACHE_RANK && i >= 0; i--) {
		out->stride[i] = t->strided ? t->stride[i] : dense;
		dense *= t->shape[i];
	}
	out->stride[CACHE_DIM] = 1;
	return KVT_OK;
}

/* Rows like those of the codes, or one number for all of them. */
static enum kvt_status check_rows(const struct cache_opening *o,
				  const struct kvt_tensor *codes,
				  const struct kvt_tensor *t)
{
	enum kvt_status status = kvt_tensor_check(t, o->reader->leaf.path, o->err);

	if (status || !t->rank || (t->rank == 1 && t->shape[0] == 1) ||
	    (t->rank == CACHE_RANK &&
	     !memcmp(t->shape, codes->shape, CACHE_DIM * sizeof(*t->shape))))
		return status;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: tensor %.100s has other rows than %.100s, whose numbers it scales",
			o->reader->leaf.path, t->name, codes->name);
}

/* mlx has bytes where the content has a small float. */
static bool is_type(const struct kvt_field *field, const struct kvt_tensor *t)
{
	return t->dtype && field->dtype &&
	       (!strcmp(t->dtype->name, field->dtype->name) ||
		(!strcmp(t->dtype->name, "uint8") && field->bits == 8));
}

/* Each tensor is one field: its type and, with codes of so many numbers, its width. */
static enum kvt_status check_fields(const struct cache_opening *o,
				    const struct cache_half *half,
				    const struct kvt_tensor *const *tensor)
{
	struct kvt_shape shape = { .elem = 1 };
	struct kvt_packing packing;

	for (int a = 0; a < KVT_NAXES; a++)
		shape.n[a] = a == KVT_AXIS_D ? half->shape[CACHE_DIM] : 1;
	if (kvt_packing_init(&packing, &half->content, &shape, 1, NULL) ||
	    packing.nfields != half->nparts)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: codes %.100s and %d tensors beside them have %lld bytes for each row, which no head vector of %s has",
				o->reader->leaf.path, tensor[0]->name, half->nparts - 1,
				LL(half->shape[CACHE_DIM]), half->content.type->name);
	for (int i = 0; i < half->nparts; i++)
		if ((i && !is_type(&packing.field[i], tensor[i])) ||
		    kvt_field_bytes(&packing.field[i]) != half->part[i].width)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: tensor %.100s has %lld bytes of %s for each row, %s of %s has %lld of %s",
					o->reader->leaf.path, tensor[i]->name,
					LL(half->part[i].width), tensor[i]->type,
					packing.field[i].name, half->content.type->name,
					LL(kvt_field_bytes(&packing.field[i])),
					packing.field[i].type);
	return KVT_OK;
}

enum kvt_status kvt_cache_pack(struct cache_half *half, const struct cache_opening *o)
{
	const struct kvt_tensor *tensor[CACHE_PARTS] = { half->tensor };
	enum kvt_status status = kvt_content_parse(&half->content,
						   tensor[0]->held.content, o->err);
	char name[256];

	half->nparts = 0;
	half->shape[CACHE_DIM] = 0;
	for (int i = 0; !status && i < CACHE_PARTS; i++) {
		int n = snprintf(name, sizeof(name), "%s.%d", tensor[0]->name, i);

		if (i && (n >= (int)sizeof(name) ||
			  !(tensor[i] = kvt_tensors_find(&o->tensors, name))))
			break;
		if (!(status = check_rows(o, tensor[0], tensor[i])))
			status = take_part(&half->part[i], o, tensor[i]);
		half->shape[CACHE_DIM] += half->part[i].width;
		half->nparts++;
	}
	return status ? status : check_fields(o, half, tensor);
}
