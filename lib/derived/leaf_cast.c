/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_cast.c - a dump whose numbers are of another type
 *
 * A leaf over a dump of plain numbers: what is content is decoded first, below it.
 * Elements stay where their layout has them, so a box is read in that layout and cast in
 * runs that have one scale; rows of a content are encoded one by one.  Where that has
 * pages of planes, the slots of a block, or of a part of it, become one:
 *
 *	[S 16][H 2][K 2][D 64]	--->	[S 1] of planes with 32 rows, head by head
 */
#include "lib/derived/leaf_cast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/kvt/kernels.h"

struct cast_leaf {
	struct kvt_leaf leaf;
	bool one_by_one;
	struct kvt_dump *source;	/* owned; numbers */
	bool cast[KVT_MAX_GROUPS];	/* false: as it is */
	struct kvt_caster caster[KVT_MAX_GROUPS];
	int64_t page[KVT_MAX_GROUPS];	/* slots that become one */
	/* What numbers are multiplied by when they are read, and divided by; owned. */
	struct cast_scales times[KVT_MAX_GROUPS], by[KVT_MAX_GROUPS];
};

static void free_parts(struct cast_leaf *l)
{
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		free(l->times[g].scale);
		free(l->by[g].scale);
	}
	kvt_dump_close(l->source);
}

/* ---- what the result says of itself -------------------------------------------- */

/* Splits by 16 bytes are as many elements as the new type has there. */
static struct kvt_layout settled(const struct kvt_layout *layout, int64_t elem)
{
	struct kvt_layout out = *layout;

	for (int p = 0; p < out.nplanes; p++)
		for (int i = 0; i < out.plane[p].nparts; i++) {
			struct kvt_part *part = &out.plane[p].part[i];

			if (part->kind != KVT_WHOLE && !part->split)
				part->split = 16 / elem;
		}
	return out;
}

/* NULL: ones. */
static enum kvt_status copy_scales(struct cast_scales *out, const struct kvt_group *group,
				   const struct kvt_scales *scales, struct kvt_error *err)
{
	int64_t n = group->shape.n[KVT_AXIS_L] * 2 * (scales ? scales->heads : 1);

	out->heads = scales ? scales->heads : 1;
	if (!(out->scale = malloc(((size_t)n + 1) * sizeof(*out->scale))))
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < n; i++) {
		out->scale[i] = scales ? scales->scale[i] : 1;
		if (!(out->scale[i] > 0) || !isfinite(out->scale[i]))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: a scale of layer %lld is %g, expected a number above 0",
					group->id, LL(kvt_layer_id(group, i / 2 /
								   out->heads)),
					(double)out->scale[i]);
	}
	return KVT_OK;
}

/* So many slots of a block, with all their heads, become one page. */
static void join_slots(struct kvt_group *group, int64_t page)
{
	group->shape.n[KVT_AXIS_S] /= page;
	group->tokens_per_slot *= page;
	group->shape.n[KVT_AXIS_H] = group->total_heads = 1;
	free(group->block_valid);
	group->block_valid = NULL;
}

static enum kvt_status cast_group(struct kvt_group *group, const struct kvt_caster *c,
				  int64_t page, const struct kvt_group *from,
				  const char *was, struct kvt_error *err)
{
	bool content = c->packing.content.type;
	struct kvt_error why;

	snprintf(group->cast_from, sizeof(group->cast_from), "%.47s", was);
	free(group->scales);
	group->scales = NULL;
	group->scale_heads = 0;
	group->page_bytes = group->page_offset = 0;
	group->dtype = c->dtype;
	group->content = c->packing.content;
	group->shape.elem = c->dtype->elem;
	if (!content)
		return KVT_OK;
	if (!group->content.type->pairs &&
	    c->packing.halves != group->shape.n[KVT_AXIS_K])
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: %s is %s, and the group has %s", group->id,
				group->content.type->name,
				c->packing.halves > 1 ? "keys and values" : "a latent",
				group->shape.n[KVT_AXIS_K] > 1 ? "keys and values" :
								 "not both");
	if (c->packing.halves > 1)
		group->shape.n[KVT_AXIS_K] = 1;
	group->shape.n[KVT_AXIS_D] = c->nbytes;
	if (group->ncomponents && kvt_group_half(from) < 0)
		group->ncomponents = 0;
	else if (group->ncomponents)
		group->component[0].length = c->nbytes;
	if (group->content.type->planar)
		join_slots(group, page);
	if (group->content.type->planar)
		return kvt_layout_parse(&group->layout, "LBSC", err);
	if (kvt_content_keeps(&group->content, &group->layout, &group->shape, &why))
		group->layout = kvt_layout_slots;
	return KVT_OK;
}

/* Its caster, of pages where it has such. */
static enum kvt_status init_caster(struct kvt_caster *c, int64_t *page,
				   const struct kvt_group *from,
				   const struct kvt_cast *cast, struct kvt_error *err)
{
	const int64_t *n = from->shape.n;
	struct kvt_error why;
	enum kvt_status status = kvt_caster_init(c, cast->dtype, &cast->content,
						 n[KVT_AXIS_D], &why);

	*page = 1;
	if (!status && c->packing.content.type && c->packing.content.type->planar) {
		if (n[KVT_AXIS_H] != from->total_heads)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s: pages of %s hold all heads, and these are %lld of %lld; kvtool merge first",
					from->id, c->packing.content.type->name,
					LL(n[KVT_AXIS_H]), LL(from->total_heads));
		status = kvt_caster_pages(c, page, n[KVT_AXIS_S], n[KVT_AXIS_H],
					  from->tokens_per_slot, &why);
	}
	return status ? kvt_fail(err, status, "%s: %.400s", from->id, why.text) : KVT_OK;
}

/* ---- one by one ---------------------------------------------------------------- */

/* The largest instead of infinity, which fp8 types of IEEE's have, too. */
static double saturated(const struct kvt_dtype *to, double x)
{
	double most = to->elem > 1 || to->number != KVT_IEEE ? INFINITY :
		      ldexp(2 - ldexp(1, -to->fraction), to->bias);

	return x > most ? most : x < -most ? -most : x;
}

static void put_number(const struct cast_job *p, const uint8_t *from, uint8_t *to,
		       struct kvt_device_factors f)
{
	double x = kvt_dtype_decode(p->from->dtype, from);
	float nan;

	/* rounded to float32 where the engine's arithmetic is */
	x = (double)(float)((double)(float)((double)(float)x * (double)f.times) /
			    (double)f.by);
	if (isnan(x)) {		/* what else is in its bits is the arithmetic's */
		kvt_cast_load(&nan, p->from->dtype, from, 1);
		kvt_cast_store(to, p->to->dtype, &nan, 1);
		return;
	}
	kvt_dtype_encode(p->to->dtype, to, saturated(p->to->dtype, x));
}

/* Elements of a box by their coordinates, in the arithmetic of doubles. */
static enum kvt_status cast_each(const struct cast_job *p, const struct kvt_box *box,
				 const struct kvt_layout *layout, struct kvt_error *err)
{
	int64_t at[KVT_NAXES] = { 0 };
	struct kvt_views from, to;
	enum kvt_status status = kvt_layout_views(&from, layout, box, p->from->shape.elem,
						  err);
	int a = 0;

	if (!status)
		status = kvt_layout_views(&to, layout, box, p->to->shape.elem, err);
	while (!status && a < KVT_NAXES) {
		struct kvt_device_factors f = cast_factors(
			p, box->begin[KVT_AXIS_L] + at[KVT_AXIS_L],
			box->begin[KVT_AXIS_H] + at[KVT_AXIS_H],
			box->begin[KVT_AXIS_K] + at[KVT_AXIS_K]);

		put_number(p, p->src + kvt_views_at(&from, at),
			   p->dst + kvt_views_at(&to, at), f);
		for (a = 0; a < KVT_NAXES; a++) {
			if (++at[a] < box->end[a] - box->begin[a])
				break;
			at[a] = 0;
		}
	}
	return status;
}

/* ---- the leaf ------------------------------------------------------------------ */

static enum kvt_status read_cast(struct kvt_worker *worker, const struct cast_leaf *l,
				 int g, const struct kvt_box *box, void *buf,
				 struct kvt_error *err)
{
	const struct kvt_group *to = &l->leaf.snapshot.group[g];
	const struct kvt_group *from = kvt_dump_group(l->source, g);
	bool content = to->content.type;
	struct kvt_layout layout = content ? kvt_layout_slots :
				   settled(&to->layout, to->shape.elem);
	struct kvt_box there = *box;
	struct kvt_shape shape;
	struct cast_job p = { .from = from, .to = to, .dst = buf, .times = &l->times[g],
			   .by = &l->by[g] };
	struct cast_rows rows = { .caster = &l->caster[g], .page = l->page[g],
			     .one_by_one = l->one_by_one, .there = &there };
	enum kvt_status status;
	uint8_t *bytes;
	int64_t nbytes;

	if (content)
		there = cast_rows_box(&rows, from, box);
	if (content && box->end[KVT_AXIS_D] - box->begin[KVT_AXIS_D] !=
		       to->shape.n[KVT_AXIS_D])
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: a part of a row of %s is not made alone", to->id,
				kvt_group_type(to).s);
	shape = kvt_box_shape(&there, from->shape.elem);
	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)))
		return status;
	if (!nbytes)
		return KVT_OK;
	if (!(bytes = malloc((size_t)nbytes)))
		return kvt_no_memory(err, NULL);
	p.src = bytes;
	status = kvt_dump_read(l->source, g, &there, &layout, bytes, err);
	if (!status)
		status = content ? cast_rows_of(&p, &rows, box, err) :
			 l->one_by_one ? cast_each(&p, box, &layout, err) :
				   cast_elements(worker, &p, box, &layout,
						 nbytes / from->shape.elem, err);
	free(bytes);
	return status;
}

static enum kvt_status cast_read_by(struct kvt_worker *worker,
				    const struct kvt_leaf *leaf, int g,
				    const struct kvt_box *box, void *buf,
				    struct kvt_error *err)
{
	const struct cast_leaf *l = (const struct cast_leaf *)leaf;

	return l->cast[g] ? read_cast(worker, l, g, box, buf, err) :
	       kvt_dump_read(l->source, g, box, &leaf->snapshot.group[g].layout, buf,
			     err);
}

static enum kvt_status cast_read(const struct kvt_leaf *leaf, int g,
				 const struct kvt_box *box, void *buf,
				 struct kvt_error *err)
{
	return cast_read_by(NULL, leaf, g, box, buf, err);
}

/* On a device are elements before they are cast, and what they become. */
static int64_t cast_worked_on(const struct kvt_leaf *leaf, int g)
{
	const struct cast_leaf *l = (const struct cast_leaf *)leaf;

	return l->cast[g] && !leaf->snapshot.group[g].content.type ?
	       kvt_dump_group(l->source, g)->shape.elem : 0;
}

static bool cast_has_file(const struct kvt_leaf *leaf, dev_t dev, ino_t ino)
{
	return kvt_dump_has_file(((const struct cast_leaf *)leaf)->source, dev, ino);
}

static enum kvt_status cast_unchanged(const struct kvt_leaf *leaf, struct kvt_error *err)
{
	return kvt_dump_unchanged(((const struct cast_leaf *)leaf)->source, err);
}

static void cast_close(struct kvt_leaf *leaf)
{
	free_parts((struct cast_leaf *)leaf);
	free(leaf);
}

static const struct kvt_leaf_ops cast_ops = {
	.read_box = cast_read, .read_by = cast_read_by, .worked_on = cast_worked_on,
	.has_file = cast_has_file, .unchanged = cast_unchanged, .close = cast_close,
};

/* What is multiplied and divided; a group says it where its rows do not. */
static enum kvt_status take_scales(struct cast_leaf *l, struct kvt_group *to, int g,
				   const struct kvt_cast *cast, struct kvt_error *err)
{
	const struct kvt_group *from = kvt_dump_group(l->source, g);
	enum kvt_status status = KVT_OK;
	int64_t nbytes;

	if (cast->from[g])
		status = copy_scales(&l->times[g], from, cast->from[g], err);
	if (status || !kvt_caster_scaled(&l->caster[g]) ||
	    (status = copy_scales(&l->by[g], from, cast->scales[g], err)) ||
	    to->content.type)
		return status;
	nbytes = to->shape.n[KVT_AXIS_L] * 2 * l->by[g].heads *
		 (int64_t)sizeof(*to->scales);
	if (!(to->scales = malloc((size_t)nbytes + 1)))
		return kvt_no_memory(err, NULL);
	memcpy(to->scales, l->by[g].scale, (size_t)nbytes);
	to->scale_heads = l->by[g].heads;
	return KVT_OK;
}

/* Nothing is to be done then. */
static bool same_type(const struct kvt_group *group, const struct kvt_cast *cast)
{
	return group->dtype == cast->dtype &&
	       kvt_content_equal(&group->content, &cast->content) &&
	       !kvt_cast_scaled(cast->dtype, &cast->content);
}

/* Fills what is in the leaf of its groups. */
static enum kvt_status describe(struct kvt_snapshot *out, struct cast_leaf *l,
				const struct kvt_dump *dump, const struct kvt_cast *cast,
				struct kvt_error *err)
{
	const struct kvt_snapshot *is = kvt_dump_snapshot(l->source);
	enum kvt_status status = kvt_snapshot_copy(out, is, err);
	int n = 0;

	for (int g = 0; !status && g < is->ngroups; g++) {
		const struct kvt_group *from = &is->group[g];

		if (!kvt_group_casts(from))
			continue;
		n++;
		if (same_type(kvt_dump_group(dump, g), cast)) {
			if (cast->content.type)
				status = kvt_fail(err, KVT_BAD_INPUT, "%s: is %s already",
						  from->id, kvt_group_type(from).s);
			continue;
		}
		l->cast[g] = true;
		if (!(status = init_caster(&l->caster[g], &l->page[g], from, cast, err)))
			status = cast_group(&out->group[g], &l->caster[g], l->page[g],
					    from,
					    kvt_group_type(kvt_dump_group(dump, g)).s,
					    err);
		if (!status)
			status = take_scales(l, &out->group[g], g, cast, err);
	}
	if (!status && !n)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "no group is keys and values, or latents, of numbers; give --content-type");
	return status;
}

static enum kvt_status make(struct cast_leaf *l, const struct kvt_dump *dump,
			    const struct kvt_cast *cast, struct kvt_error *err)
{
	const struct kvt_slice_options all = { .mamba_groups = 0 };
	struct kvt_snapshot snapshot = { .ngroups = 0 };
	bool content = false;
	enum kvt_status status;

	for (int g = 0; g < kvt_dump_snapshot(dump)->ngroups; g++)
		content |= kvt_group_casts(kvt_dump_group(dump, g)) &&
			   kvt_dump_group(dump, g)->content.type;
	status = content ? kvt_dump_decode_contents(&l->source, dump, err) :
			   kvt_dump_slice(&l->source, dump, &all, err);
	if (!status)
		status = describe(&snapshot, l, dump, cast, err);
	if (!status)
		status = leaf_init(&l->leaf, &cast_ops, "cast", &snapshot, err);
	kvt_snapshot_free(&snapshot);
	return status;
}

enum kvt_status kvt_dump_cast(struct kvt_dump **out, const struct kvt_dump *dump,
			      const struct kvt_cast *cast, struct kvt_error *err)
{
	struct cast_leaf *l = calloc(1, sizeof(*l));
	enum kvt_status status;

	if (!l)
		return kvt_no_memory(err, NULL);
	l->one_by_one = cast->one_by_one;
	if (!(status = make(l, dump, cast, err)))
		return kvt_dump_of_leaf(out, &l->leaf, err);
	free_parts(l);
	free(l);
	return status;
}
