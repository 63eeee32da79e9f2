/* SPDX-License-Identifier: Apache-2.0 */
/* peek.c - the first numbers of a place: --peek */
#include "cli/print/describe.h"

#include <stdlib.h>
#include <string.h>

#include "lib/dump/map.h"
#include "lib/ops/where/where.h"

/* Elements of one field; content of one type is one field. */
struct glance {
	const char *name, *dtype;
	int64_t first, count;
	double *value;
};

struct peek {
	struct kvt_element_run run;
	const struct kvt_group *group;
	struct kvt_error raw;		/* why bytes are not numbers; or empty */
	int nglances;
	struct glance glance[KVT_MAX_FIELDS];
};

struct peeks {
	int n;
	struct peek *peek;
};

/* ---- reading ------------------------------------------------------------ */

struct looking {
	struct kvt_dump *reader;
	const struct peek *peek;
	uint8_t *out;			/* elements along D */
};

static enum kvt_status look(struct worker *worker, void *context, int64_t i,
			    struct kvt_error *err)
{
	const struct looking *l = context;
	const struct kvt_place *p = &l->peek->run.place;
	const struct kvt_group *group = l->peek->group;
	struct kvt_box box = kvt_box_whole(&group->shape);
	int64_t index[KVT_NAXES];
	struct kvt_views views;
	struct placed there;
	enum kvt_status status;

	(void)i;
	box_take(&box, KVT_AXIS_L, p->index[KVT_AXIS_L], 1);
	box_take(&box, KVT_AXIS_B, p->index[KVT_AXIS_B], 1);
	if ((status = read_around(&there, worker, l->reader, p->group, &box, err)) ||
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

static enum kvt_status read_place(uint8_t *out, const struct description *d,
				  const struct peek *peek,
				  const struct kvt_run *run,
				  struct kvt_error *err)
{
	struct looking l = { d->reader, peek, out };
	struct work work = { .fn = look, .context = &l, .count = 1 };

	work_needs_pieces(&work, d->reader, peek->run.place.group, 1, 1);
	return pipeline_run(&work, run, err);
}

/* ---- numbers ------------------------------------------------------------ */

/* Room for those from 'first' on that there are, at most 'count'; NULL: none. */
static struct glance *add_glance(struct peek *peek, const char *name, const char *dtype,
				 int64_t first, int64_t there)
{
	struct glance *g = &peek->glance[peek->nglances];

	*g = (struct glance){ .name = name, .dtype = dtype, .first = first,
			      .count = there - first };
	if (g->count < 1)
		return NULL;
	if (g->count > peek->run.count)
		g->count = peek->run.count;
	g->value = calloc((size_t)g->count + 1, sizeof(*g->value));
	peek->nglances++;
	return g;
}

static void elements(const struct glance *g, const struct kvt_dtype *dtype,
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

static void peek_packed(struct peek *peek, const uint8_t *bytes, double scale)
{
	struct kvt_packing packing = kvt_group_packing(peek->group);
	int64_t first = peek->run.place.index[KVT_AXIS_D], row = peek->run.row;
	bool readable = !kvt_packing_readable(&packing, &peek->raw);
	int64_t before = row * packing.row_values;

	for (int i = 0; i < packing.nfields; i++) {
		const struct kvt_field *f = &packing.field[i];
		bool number = readable && f->role == KVT_FIELD_VALUES;
		struct glance *g = add_glance(peek, f->name, f->dtype->name,
					      first_scale(&packing, i, first), f->count);

		if (g && number && g->value)
			kvt_packing_decode(g->value, &packing, bytes, before + g->first,
					   g->count);
		for (int64_t v = 0; g && number && g->value && v < g->count; v++)
			g->value[v] *= scale;
		if (g && !number)
			elements(g, f->dtype, bytes + f->at + row * f->stride);
		before += number ? f->count : 0;
	}
}

static enum kvt_status take_peek(struct peek *peek, const struct description *d,
				 const char *text, const struct describe_options *options,
				 struct kvt_error *err)
{
	enum kvt_status status = kvt_where_parse_run(&peek->run, d->snapshot, text, err);
	const struct kvt_shape *shape;
	struct glance *g = NULL;
	uint8_t *bytes;
	double scale;

	if (status)
		return status;
	peek->group = &d->snapshot->group[peek->run.place.group];
	shape = &peek->group->shape;
	scale = scale_of(options, peek->group, peek->run.place.index[KVT_AXIS_K]);
	if (!(bytes = malloc((size_t)(shape->n[KVT_AXIS_D] * shape->elem) + 1)))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	if (!(status = read_place(bytes, d, peek, &options->run, err))) {
		if (peek->group->content.type)
			peek_packed(peek, bytes, scale);
		else if ((g = add_glance(peek, "values", peek->group->dtype->name,
					 peek->run.place.index[KVT_AXIS_D],
					 shape->n[KVT_AXIS_D])))
			elements(g, peek->group->dtype, bytes);
		for (int64_t v = 0; g && g->value && v < g->count; v++)
			g->value[v] *= scale;
	}
	free(bytes);
	for (int i = 0; i < peek->nglances; i++)
		if (!peek->glance[i].value)
			status = kvt_fail(err, KVT_SYSTEM, "out of memory");
	return status;
}

enum kvt_status describe_peek(struct description *d,
			      const struct describe_options *options,
			      struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	d->peeks = calloc(1, sizeof(*d->peeks));
	if (!d->peeks ||
	    !(d->peeks->peek = calloc((size_t)options->peek.n, sizeof(*d->peeks->peek))))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int i = 0; !status && i < options->peek.n; i++)
		status = take_peek(&d->peeks->peek[d->peeks->n++], d, options->peek.s[i],
				   options, err);
	return status;
}

void peeks_free(struct peeks *peeks)
{
	for (int i = 0; peeks && i < peeks->n; i++)
		for (int j = 0; j < peeks->peek[i].nglances; j++)
			free(peeks->peek[i].glance[j].value);
	if (peeks)
		free(peeks->peek);
	free(peeks);
}

/* ---- telling ------------------------------------------------------------ */

static bool is_page(const struct peek *peek)
{
	return peek->group->content.type && peek->group->content.type->planar;
}

void peeks_text(const struct peeks *peeks)
{
	for (int i = 0; i < peeks->n; i++) {
		const struct peek *p = &peeks->peek[i];
		const int64_t *at = p->run.place.index;

		plainf("\n  %-10slayer %lld, block %llu, state %lld, head %lld, %s",
		       p->group->id, (long long)at[KVT_AXIS_L],
		       (unsigned long long)kvt_block_id(p->group, at[KVT_AXIS_B]),
		       (long long)at[KVT_AXIS_S],
		       (long long)(p->group->head_start + at[KVT_AXIS_H]),
		       component_name(p->group, at[KVT_AXIS_K]));
		if (is_page(p))
			plainf(", row %lld", (long long)p->run.row);
		puts(p->raw.text[0] ? ", as bytes:" : "");
		if (p->raw.text[0]) {
			describe_label("");
			plainf("%s\n", p->raw.text);
		}
		for (int j = 0; j < p->nglances; j++) {
			const struct glance *g = &p->glance[j];

			describe_label(g->name);
			plainf("%s from %lld:", g->dtype, (long long)g->first);
			for (int64_t v = 0; v < g->count; v++)
				plainf(" %.7g", g->value[v]);
			putchar('\n');
		}
	}
}

static void put_glance(struct json_out *out, json_t *o, const struct glance *g)
{
	json_t *list;

	json_put_text(out, o, "name", g->name);
	json_put_text(out, o, "dtype", g->dtype);
	json_put_int(out, o, "first", g->first);
	list = json_put_array(out, o, "values");
	for (int64_t i = 0; i < g->count; i++)
		json_append_real(out, list, g->value[i]);
}

void peeks_json(struct json_out *out, const struct peeks *peeks)
{
	json_t *list = json_put_array(out, out->root, "peeks");

	for (int i = 0; i < peeks->n; i++) {
		const struct peek *p = &peeks->peek[i];
		const int64_t *at = p->run.place.index;
		json_t *o = json_append_object(out, list), *fields;

		json_put_text(out, o, "group", p->group->id);
		json_put_int(out, o, "layer", at[KVT_AXIS_L]);
		json_put_int(out, o, "block",
			     (int64_t)kvt_block_id(p->group, at[KVT_AXIS_B]));
		json_put_int(out, o, "position", at[KVT_AXIS_B]);
		json_put_int(out, o, "state", at[KVT_AXIS_S]);
		json_put_int(out, o, "head", p->group->head_start + at[KVT_AXIS_H]);
		json_put_text(out, o, "component",
			      component_name(p->group, at[KVT_AXIS_K]));
		json_put_int(out, o, "row", p->run.row);
		json_put_text(out, o, "raw", p->raw.text[0] ? p->raw.text : NULL);
		fields = json_put_array(out, o, "fields");
		for (int j = 0; j < p->nglances; j++)
			put_glance(out, json_append_object(out, fields), &p->glance[j]);
	}
}
