/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peek.c - the first numbers of some places
 *
 * A place is a run of elements along D, or the same run in each field of packed
 * content.  All of its D is read and then decoded from where the run begins, so that
 * fields whose scales are elsewhere in the row can be.  Costs one read a place.
 */
#include "lib/ops/describe/describe.h"

#include <stdlib.h>
#include <string.h>

#include "lib/dump/read.h"

/* ---- reading ------------------------------------------------------------ */

struct looking {
	struct kvt_dump *dump;
	const struct kvt_peek *peek;
	uint8_t *out;			/* elements along D */
};

static enum kvt_status look(struct kvt_worker *worker, void *context, int64_t i,
			    struct kvt_error *err)
{
	const struct looking *l = context;
	const struct kvt_where *p = &l->peek->run.place;
	const struct kvt_group *group = l->peek->group;
	struct kvt_box box = kvt_box_whole(&group->shape);
	int64_t index[KVT_NAXES];
	struct kvt_views views;
	struct placed there;
	enum kvt_status status;

	(void)i;
	box_take(&box, KVT_AXIS_L, p->index[KVT_AXIS_L], 1);
	box_take(&box, KVT_AXIS_B, p->index[KVT_AXIS_B], 1);
	if ((status = read_around(&there, worker, leaf_of(l->dump), p->group, &box,
				  err)) ||
	    (status = kvt_layout_views(&views, there.layout, &there.box,
				       group->shape.elem, err)))
		return status;
	for (int a = 0; a < KVT_NAXES; a++)
		index[a] = p->index[a] - there.box.begin[a];
	for (int64_t d = 0; d < group->shape.n[KVT_AXIS_D]; d++) {
		index[KVT_AXIS_D] = d;
		memcpy(l->out + d * group->shape.elem,
		       there.bytes + kvt_views_at(&views, index),
		       (size_t)group->shape.elem);
	}
	return KVT_OK;
}

static enum kvt_status read_place(uint8_t *out, const struct kvt_description *d,
				  const struct kvt_peek *peek, const struct kvt_run *run,
				  struct kvt_error *err)
{
	struct looking l = { d->dump, peek, out };
	struct kvt_work work = { .fn = look, .context = &l, .count = 1 };

	work_needs_ranges(&work, leaf_of(d->dump), peek->run.place.group, 1, 1);
	return kvt_work_run(&work, run, err);
}

/* ---- numbers ------------------------------------------------------------ */

/* Room for those from 'first' on that there are, at most 'count'; NULL: none. */
static struct kvt_peek_field *add_field(struct kvt_peek *peek, const char *name,
					const char *dtype, int64_t first, int64_t there)
{
	struct kvt_peek_field *g = &peek->field[peek->nfields];

	*g = (struct kvt_peek_field){ .name = name, .dtype = dtype, .first = first,
			      .count = there - first };
	if (g->count < 1)
		return NULL;
	if (g->count > peek->run.count)
		g->count = peek->run.count;
	g->value = calloc((size_t)g->count + 1, sizeof(*g->value));
	peek->nfields++;
	return g;
}

static void elements(const struct kvt_peek_field *g, const struct kvt_dtype *dtype,
		     const uint8_t *bytes)
{
	bytes += g->first * dtype->elem;
	for (int64_t i = 0; g->value && i < g->count; i++)
		g->value[i] = kvt_dtype_decode(dtype, bytes + i * dtype->elem);
}

/* The first scale shown is that of the first number. */
static int64_t first_scale(const struct kvt_packing *packing, int field, int64_t first)
{
	for (int i = 0; i < packing->nfields; i++)
		if (packing->field[i].scale == field)
			return first * packing->field[field].count /
			       packing->field[i].count;
	return first;
}

static void peek_packed(struct kvt_peek *peek, const uint8_t *bytes, double scale)
{
	struct kvt_packing packing = kvt_group_packing(peek->group);
	int64_t first = peek->run.place.index[KVT_AXIS_D], row = peek->run.row;
	bool readable = !kvt_packing_readable(&packing, &peek->raw);
	int64_t before = row * packing.row_values;

	for (int i = 0; i < packing.nfields; i++) {
		const struct kvt_field *f = &packing.field[i];
		bool number = readable && f->role == KVT_FIELD_VALUES;
		struct kvt_peek_field *g = add_field(peek, f->name, f->type,
						     first_scale(&packing, i,
								 first), f->count);

		if (g && number)
			g->turn = f->rotation ? f->count : !f->block ? 0 :
				  packing.turn[peek->run.place.index[KVT_AXIS_K]];
		if (g && number && g->value)
			kvt_packing_decode(g->value, &packing,
					   peek->run.place.index[KVT_AXIS_K], bytes,
					   before + g->first, g->count);
		for (int64_t v = 0; g && number && g->value && v < g->count; v++)
			g->value[v] *= scale;
		for (int64_t v = 0; g && !number && g->value && v < g->count; v++)
			g->value[v] = kvt_field_number(f, bytes, row, g->first + v);
		before += number ? f->count : 0;
	}
}

static enum kvt_status take_peek(struct kvt_peek *peek, const struct kvt_description *d,
				 const char *text, const double scales[2],
				 const struct kvt_run *run, struct kvt_error *err)
{
	enum kvt_status status = kvt_where_parse_run(&peek->run, d->snapshot, text, err);
	const struct kvt_shape *shape;
	struct kvt_peek_field *g = NULL;
	uint8_t *bytes;
	double scale;

	if (status)
		return status;
	peek->group = &d->snapshot->group[peek->run.place.group];
	shape = &peek->group->shape;
	scale = kvt_scale_of(scales, peek->group, peek->run.place.index[KVT_AXIS_K]);
	if (!(bytes = malloc((size_t)(shape->n[KVT_AXIS_D] * shape->elem) + 1)))
		return kvt_no_memory(err, NULL);
	if (!(status = read_place(bytes, d, peek, run, err))) {
		if (peek->group->content.type)
			peek_packed(peek, bytes, scale);
		else if ((g = add_field(peek, "values", peek->group->dtype->name,
					peek->run.place.index[KVT_AXIS_D],
					shape->n[KVT_AXIS_D])))
			elements(g, peek->group->dtype, bytes);
		for (int64_t v = 0; g && g->value && v < g->count; v++)
			g->value[v] *= scale;
	}
	free(bytes);
	for (int i = 0; i < peek->nfields; i++)
		if (!peek->field[i].value)
			status = kvt_no_memory(err, NULL);
	return status;
}

enum kvt_status kvt_describe_peeks(struct kvt_description *d, const char *const *places,
				   int n, const double scale[2],
				   const struct kvt_run *run, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	d->peeks = calloc(1, sizeof(*d->peeks));
	if (!d->peeks || !(d->peeks->peek = calloc((size_t)n, sizeof(*d->peeks->peek))))
		return kvt_no_memory(err, NULL);
	for (int i = 0; !status && i < n; i++)
		status = take_peek(&d->peeks->peek[d->peeks->n++], d, places[i], scale,
				   run, err);
	return status;
}

void kvt_peeks_free(struct kvt_peeks *peeks)
{
	for (int i = 0; peeks && i < peeks->n; i++)
		for (int j = 0; j < peeks->peek[i].nfields; j++)
			free(peeks->peek[i].field[j].value);
	if (peeks)
		free(peeks->peek);
	free(peeks);
}
