/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_decoded.c - a dump as the numbers that its bytes stand for
 *
 * A leaf over another dump: a box is read from there and decoded, all slots, heads and
 * halves of its blocks, because a number may need all of its row.  A page of planes
 * becomes a slot for each of its rows.
 */
#include "lib/dump/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct decoded_leaf {
	struct kvt_leaf leaf;
	struct kvt_dump *source;	/* owned; reads what the caller's did */
	bool as_is[KVT_MAX_GROUPS];
	bool told;			/* scale[]; else what groups say */
	double scale[2];
};

/* ---- what the result says of itself -------------------------------------------- */

/* A half stays one, as wide as its numbers. */
static void decode_components(struct kvt_group *group, int half)
{
	if (half < 0) {
		group->ncomponents = 0;
		return;
	}
	group->component[0].length = group->shape.n[KVT_AXIS_D];
}

/* The rows of a page: heads, and the slots of each. */
static enum kvt_status unfold(struct kvt_group *group, const struct kvt_packing *p,
			      const struct kvt_parallel *parallel, struct kvt_error *err)
{
	int64_t *n = group->shape.n;

	if (p->heads > 1 && parallel->tp_size > 1)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: rank %lld of %lld has %lld heads in a page of %s; how many the model has is not said",
				group->id, LL(parallel->tp_rank), LL(parallel->tp_size),
				LL(p->heads), group->content.type->name);
	n[KVT_AXIS_S] *= p->rows / p->heads;
	n[KVT_AXIS_H] = p->heads;
	group->tokens_per_slot = p->row_tokens;
	group->total_heads = p->heads > 1 ? p->heads : group->total_heads;
	free(group->block_valid);
	group->block_valid = NULL;
	return KVT_OK;
}

/* The head vectors of a row; a rank that has some has a part of the model's. */
static enum kvt_status unfold_heads(struct kvt_group *group, const struct kvt_packing *p,
				    const struct kvt_parallel *parallel,
				    struct kvt_error *err)
{
	if (parallel->tp_size > 1)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: rank %lld of %lld has %lld heads in a row of %s; how many the model has is not said",
				group->id, LL(parallel->tp_rank), LL(parallel->tp_size),
				LL(p->fold), group->content.type->name);
	group->shape.n[KVT_AXIS_H] = group->total_heads = p->fold;
	return KVT_OK;
}

static enum kvt_status decode_group(struct kvt_group *group,
				    const struct kvt_dtype *dtype,
				    const struct kvt_parallel *parallel,
				    struct kvt_error *err)
{
	const struct kvt_content_type *type = group->content.type;
	int half = kvt_group_half(group);
	struct kvt_packing p;
	struct kvt_error why;
	enum kvt_status status;

	group->page_bytes = group->page_offset = 0;
	free(group->scales);
	group->scales = NULL;
	group->scale_heads = 0;
	group->shape.elem = dtype->elem;
	if (!type) {
		if (!group->dtype->is_float)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: type %s has no values; give --content-type",
					group->id, group->dtype->name);
		group->dtype = dtype;
		return KVT_OK;
	}
	group->shape.elem = 1;
	p = kvt_group_packing(group);
	group->shape.elem = dtype->elem;
	if ((status = kvt_packing_readable(&p, &why)))
		return kvt_fail(err, status, "%s: %.400s", group->id, why.text);
	if (type->planar && (status = unfold(group, &p, parallel, err)))
		return status;
	if (p.fold > 1 && (status = unfold_heads(group, &p, parallel, err)))
		return status;
	if (p.halves == 2) {
		group->shape.n[KVT_AXIS_K] = 2;
		if (group->kind == KVT_OPAQUE || group->kind == KVT_MLA)
			group->kind = KVT_FULL_ATTENTION;
	}
	if (type->planar || p.halves == 2 || p.fold > 1)
		group->layout = kvt_layout_slots;
	group->shape.n[KVT_AXIS_D] = p.row_values / p.halves / p.fold;
	group->dtype = dtype;
	group->content = (struct kvt_content){ .n = 0 };
	decode_components(group, half);
	return KVT_OK;
}

/* ---- numbers ------------------------------------------------------------------- */

/* A box of the source as kvt_layout_slots has it, and what it stands for. */
struct decoding {
	const struct kvt_group *from;
	struct kvt_packing packing;	/* if it has a content type */
	int64_t rows;			/* of a head in a slot of the source */
	const double *scale;		/* NULL: what the group says */
	const uint8_t *bytes;
};

static double scale_of(const struct decoding *d, const int64_t index[KVT_NAXES])
{
	int half = kvt_group_half(d->from);
	int64_t k = index[KVT_AXIS_K];

	return d->scale ? d->scale[half >= 0 ? half : k] :
	       (double)kvt_group_scale(d->from, index[KVT_AXIS_L], index[KVT_AXIS_H], k);
}

/* All numbers of a slot, head and half of the result; l and b count from the box. */
static void decode_row(double *out, const struct decoding *d, int64_t block,
		       const int64_t index[KVT_NAXES], int64_t count)
{
	const int64_t *n = d->from->shape.n;
	int64_t k = index[KVT_AXIS_K], h = index[KVT_AXIS_H], s = index[KVT_AXIS_S];
	bool planar = d->from->content.type && d->from->content.type->planar;
	bool halves = d->from->content.type && d->packing.halves == 2;
	bool fold = d->from->content.type && d->packing.fold > 1;
	double scale = scale_of(d, index);
	int64_t row = planar ? h * d->rows + s % d->rows : 0;
	int64_t slot = (block * n[KVT_AXIS_S] + s / d->rows) * n[KVT_AXIS_H];
	const uint8_t *from = d->bytes +
			      ((slot + (planar || fold ? 0 : h)) * n[KVT_AXIS_K] +
			       (halves ? 0 : k)) * n[KVT_AXIS_D] * d->from->shape.elem;

	if (d->from->content.type)
		kvt_packing_decode(out, &d->packing, k, from,
				   row * d->packing.row_values +
				   (halves ? k * count : fold ? h * count : 0), count);
	else
		for (int64_t i = 0; i < count; i++)
			out[i] = kvt_dtype_decode(d->from->dtype, from +
						  i * d->from->shape.elem);
	for (int64_t i = 0; i < count; i++)
		out[i] *= scale;
}

/* False: it is a number, and the type has none that is as large. */
static bool put(uint8_t *to, double value, const struct kvt_dtype *dtype)
{
	float single = (float)value;

	if (dtype->elem < 4) {
		kvt_dtype_encode(dtype, to, value);
		return !isfinite(value) || isfinite(kvt_dtype_decode(dtype, to));
	}
	memcpy(to, dtype->elem == 4 ? (void *)&single : (void *)&value,
	       (size_t)dtype->elem);
	return true;
}

/* The next index of slots, heads and halves of the box; false: there was none. */
static bool advance(int64_t index[KVT_NAXES], const struct kvt_box *box)
{
	static const enum kvt_axis axes[] = { KVT_AXIS_K, KVT_AXIS_H, KVT_AXIS_S,
					      KVT_AXIS_B, KVT_AXIS_L };

	for (size_t i = 0; i < sizeof(axes) / sizeof(axes[0]); i++) {
		if (++index[axes[i]] < box->end[axes[i]])
			return true;
		index[axes[i]] = box->begin[axes[i]];
	}
	return false;
}

static enum kvt_status decode_box(uint8_t *buf, double *row, const struct decoding *d,
				  const struct kvt_group *group,
				  const struct kvt_box *box, struct kvt_error *err)
{
	int64_t index[KVT_NAXES], at[KVT_NAXES], count = group->shape.n[KVT_AXIS_D];
	int64_t blocks = box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B];
	struct kvt_views views;
	enum kvt_status status = kvt_layout_views(&views, &group->layout, box,
						  group->shape.elem, err);

	if (status)
		return status;
	memcpy(index, box->begin, sizeof(index));
	do {
		for (int a = 0; a < KVT_NAXES; a++)
			at[a] = index[a] - box->begin[a];
		decode_row(row, d, at[KVT_AXIS_L] * blocks + at[KVT_AXIS_B], index,
			   count);
		for (int64_t i = box->begin[KVT_AXIS_D]; i < box->end[KVT_AXIS_D]; i++) {
			at[KVT_AXIS_D] = i - box->begin[KVT_AXIS_D];
			if (!put(buf + kvt_views_at(&views, at), row[i], group->dtype))
				return kvt_fail(err, KVT_BAD_INPUT,
						"%s: a number is %g, which %s cannot hold",
						group->id, row[i], group->dtype->name);
		}
	} while (advance(index, box));
	return KVT_OK;
}

static bool is_empty(const struct kvt_box *box)
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (box->end[a] <= box->begin[a])
			return true;
	return false;
}

static enum kvt_status decoded_read(const struct kvt_leaf *leaf, int g,
				    const struct kvt_box *box, void *buf,
				    struct kvt_error *err)
{
	const struct decoded_leaf *l = (const struct decoded_leaf *)leaf;
	const struct kvt_group *group = &leaf->snapshot.group[g];
	struct decoding d = { .from = kvt_dump_group(l->source, g), .rows = 1,
			      .scale = l->told ? l->scale : NULL };
	struct kvt_box there = kvt_box_whole(&d.from->shape);
	struct kvt_shape shape;
	int64_t nbytes;
	uint8_t *bytes;
	double *row;
	enum kvt_status status;

	if (is_empty(box))
		return KVT_OK;
	if (l->as_is[g])
		return kvt_dump_read(l->source, g, box, &group->layout, buf, err);
	for (int a = KVT_AXIS_L; a <= KVT_AXIS_B; a++)
		box_take(&there, (enum kvt_axis)a, box->begin[a],
			 box->end[a] - box->begin[a]);
	if (d.from->content.type) {
		d.packing = kvt_group_packing(d.from);
		d.rows = d.packing.rows / d.packing.heads;
	}
	shape = kvt_box_shape(&there, d.from->shape.elem);
	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)))
		return status;
	bytes = malloc((size_t)nbytes + 1);
	row = calloc((size_t)group->shape.n[KVT_AXIS_D] + 1, sizeof(*row));
	d.bytes = bytes;
	if (!bytes || !row)
		status = kvt_no_memory(err, NULL);
	if (!status &&
	    !(status = kvt_dump_read(l->source, g, &there, &kvt_layout_slots, bytes,
				     err)))
		status = decode_box(buf, row, &d, group, box, err);
	free(bytes);
	free(row);
	return status;
}

/* ---- the leaf ------------------------------------------------------------------ */

static bool decoded_has_file(const struct kvt_leaf *leaf, dev_t dev, ino_t ino)
{
	return kvt_dump_has_file(((const struct decoded_leaf *)leaf)->source, dev, ino);
}

static enum kvt_status decoded_unchanged(const struct kvt_leaf *leaf,
					 struct kvt_error *err)
{
	return kvt_dump_unchanged(((const struct decoded_leaf *)leaf)->source, err);
}

static void decoded_close(struct kvt_leaf *leaf)
{
	kvt_dump_close(((struct decoded_leaf *)leaf)->source);
	free(leaf);
}

static const struct kvt_leaf_ops decoded_ops = {
	.read_box = decoded_read, .has_file = decoded_has_file,
	.unchanged = decoded_unchanged, .close = decoded_close,
};

static enum kvt_status describe(struct kvt_snapshot *out, const struct decoded_leaf *l,
				const struct kvt_dump *dump,
				const struct kvt_dtype *dtype, struct kvt_error *err)
{
	enum kvt_status status = kvt_snapshot_copy(out, kvt_dump_snapshot(dump), err);

	if (status)
		return status;
	for (int g = 0; !status && g < out->ngroups; g++)
		if (!l->as_is[g])
			status = decode_group(&out->group[g], dtype, &out->parallel, err);
	if (status)
		kvt_snapshot_free(out);
	return status;
}

/* Takes 'l'. */
static enum kvt_status make(struct kvt_dump **out, struct decoded_leaf *l,
			    const struct kvt_dump *dump, const struct kvt_dtype *dtype,
			    struct kvt_error *err)
{
	const struct kvt_slice_options all = { .mamba_groups = 0 };
	struct kvt_snapshot snapshot = { .ngroups = 0 };
	enum kvt_status status = describe(&snapshot, l, dump, dtype, err);

	if (!status && !(status = kvt_dump_slice(&l->source, dump, &all, err)) &&
	    (status = leaf_init(&l->leaf, &decoded_ops, "decoded", &snapshot, err)))
		kvt_dump_close(l->source);
	kvt_snapshot_free(&snapshot);
	if (status) {
		free(l);
		return status;
	}
	return kvt_dump_of_leaf(out, &l->leaf, err);
}

enum kvt_status kvt_dump_decode(struct kvt_dump **out, const struct kvt_dump *dump,
				const struct kvt_dtype *dtype, const double scale[2],
				struct kvt_error *err)
{
	struct decoded_leaf *l;

	if (!dtype->is_float || dtype->elem < 2)
		return kvt_fail(err, KVT_USAGE,
				"numbers are decoded to float32, float64, float16 or bfloat16, not to %s",
				dtype->name);
	if (!(l = calloc(1, sizeof(*l))))
		return kvt_no_memory(err, NULL);
	l->told = scale != NULL;
	for (int k = 0; scale && k < 2; k++)
		l->scale[k] = scale[k];
	return make(out, l, dump, dtype, err);
}

enum kvt_status kvt_dump_decode_contents(struct kvt_dump **out,
					 const struct kvt_dump *dump,
					 struct kvt_error *err)
{
	struct decoded_leaf *l = calloc(1, sizeof(*l));

	if (!l)
		return kvt_no_memory(err, NULL);
	for (int g = 0; g < kvt_dump_snapshot(dump)->ngroups; g++)
		l->as_is[g] = !kvt_dump_group(dump, g)->content.type ||
			      !kvt_group_casts(kvt_dump_group(dump, g));
	return make(out, l, dump, kvt_dtype_find("float32"), err);
}
