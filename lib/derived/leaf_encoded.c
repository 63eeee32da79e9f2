/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_encoded.c - a dump whose numbers are kept as another type
 *
 * A leaf over another dump, and over the same as float32 (leaf_decoded.c).  Rows of
 * numbers are cast one by one; what keeps its type is moved, byte by byte:
 *
 *	group g, K 2, float16	--->	g.k  q8_0, a row of 34 bytes for 32 numbers
 *				--->	g.v  float16, as it was
 *
 * Where heads would tear blocks of a type, one row has all of them.
 */
#include "lib/dump/map.h"
#include "lib/kvt/cast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A group of the result. */
struct target {
	int from;			/* group of the source */
	int kv;				/* half that it is cut out of; -1: none is */
	int half;			/* that it is; -1: both, or neither */
	bool moved;			/* bytes, not numbers */
	bool same;			/* and they are as they were */
};

struct encoded_leaf {
	struct kvt_leaf leaf;
	struct kvt_dump *source, *numbers;	/* owned; the second as float32 */
	struct target target[KVT_MAX_GROUPS];
	bool pairs;
};

/* ---- what the result says of itself -------------------------------------------- */

/* The content of keys and values, or of one; of the other one nothing is rotated. */
static struct kvt_content content_of(const struct kvt_encoding to[2], int half,
				     const struct kvt_group *group)
{
	struct kvt_content out = to[half > 0].content;

	if (out.type && half == 1)
		out.turn[0] = 1;
	else if (out.type)
		out.turn[1] = half < 0 && group->shape.n[KVT_AXIS_K] == 2 ?
			      to[1].content.turn[1] : 1;
	return out;
}

static enum kvt_status set_type(struct kvt_group *group, const struct kvt_group *numbers,
				const struct kvt_encoding to[2], int half,
				struct kvt_error *err)
{
	const struct kvt_content content = content_of(to, half, group);
	int64_t *n = group->shape.n, vector = numbers->shape.n[KVT_AXIS_D];
	int64_t heads = numbers->shape.n[KVT_AXIS_H];
	struct kvt_packing packing;
	struct kvt_error why;
	enum kvt_status status;

	/* numbers are multiplied by them */
	free(group->scales);
	group->scales = NULL;
	group->scale_heads = 0;
	group->dtype = to[half > 0].dtype;
	group->content = content;
	group->shape.elem = group->dtype->elem;
	group->tokens_per_slot = numbers->tokens_per_slot;
	group->total_heads = numbers->total_heads;
	n[KVT_AXIS_S] = numbers->shape.n[KVT_AXIS_S];
	n[KVT_AXIS_H] = heads;
	n[KVT_AXIS_D] = vector;
	if (!content.type)
		return KVT_OK;
	if (content.n) {
		group->total_heads = n[KVT_AXIS_H] = 1;
		vector *= heads;
	}
	n[KVT_AXIS_D] = kvt_content_row_of(&content, vector);
	if ((status = kvt_packing_init(&packing, &group->content, &group->shape,
				       group->tokens_per_slot, &why)) ||
	    (status = kvt_packing_readable(&packing, &why)))
		return kvt_fail(err, status, "%s: %.400s", group->id, why.text);
	return KVT_OK;
}

/* A group that has changed lies in the order in which it is read. */
static enum kvt_status set_layout(struct kvt_group *group, struct kvt_error *err)
{
	group->page_bytes = group->page_offset = 0;
	group->layout = kvt_layout_slots;
	return group->kind == KVT_MLA ? kvt_layout_parse(&group->layout, "LBSC", err) :
					KVT_OK;
}

static void name_half(struct kvt_group *group, int kv)
{
	group->shape.n[KVT_AXIS_K] = 1;
	group->ncomponents = 1;
	group->component[0] = (struct kvt_component){ .name = { "kv"[kv] } };
	if (group->content.turn[kv])
		group->content.turn[!kv] = 1;
	snprintf(group->id + strnlen(group->id, sizeof(group->id) - 3), 3, ".%c",
		 "kv"[kv]);
}

/* A group of the result: keys and values that become one type, or one of both. */
static enum kvt_status set_target(struct kvt_group *group, struct target *target,
				 const struct encoded_leaf *l,
				 const struct kvt_encoding to[2], struct kvt_error *err)
{
	int half = target->kv >= 0 ? target->kv : kvt_group_half(group);
	bool turned = l->pairs && half < 1 && group->kind != KVT_MLA;
	const struct kvt_group *numbers;
	enum kvt_status status;

	target->half = half;
	target->moved = !to[half > 0].dtype;
	target->same = target->moved && !turned;
	if (target->same && target->kv < 0)
		return KVT_OK;
	numbers = target->moved ? group : kvt_dump_group(l->numbers, target->from);
	if (turned && (numbers->content.type || numbers->shape.n[KVT_AXIS_D] % 2))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"group %s holds %s, whose keys cannot be put in pairs",
				group->id, kvt_group_type(group).s);
	if (target->kv >= 0)
		name_half(group, target->kv);
	if (!target->moved && (status = set_type(group, numbers, to, half, err)))
		return status;
	if (half >= 0)
		group->component[0].length = group->shape.n[KVT_AXIS_D];
	return set_layout(group, err);
}

/* Do keys and values of a group become two types, or does one stay as it is? */
static bool part(const struct kvt_group *group, const struct kvt_encoding to[2])
{
	return group->shape.n[KVT_AXIS_K] == 2 &&
	       (to[0].dtype != to[1].dtype ||
		to[0].content.type != to[1].content.type ||
		to[0].content.n != to[1].content.n);
}

static enum kvt_status describe(struct kvt_snapshot *out, struct encoded_leaf *l,
				const struct kvt_encodings to[KVT_MAX_GROUPS],
				struct kvt_error *err)
{
	const struct kvt_snapshot *before = kvt_dump_snapshot(l->source);
	enum kvt_status status = kvt_snapshot_copy(out, before, err);

	if (status)
		return status;
	for (int from = 0, g = 0; !status && from < before->ngroups; from++) {
		bool two = part(&out->group[g], to[from].half);

		if (two)
			status = kvt_snapshot_double(out, g, err);
		for (int kv = 0; !status && kv < 1 + two; kv++, g++) {
			l->target[g].from = from;
			l->target[g].kv = two ? kv : -1;
			status = set_target(&out->group[g], &l->target[g], l,
					   to[from].half, err);
		}
	}
	if (status)
		kvt_snapshot_free(out);
	return status;
}

/* ---- rows ---------------------------------------------------------------------- */

struct encoding {
	const struct target *target;
	const struct kvt_group *from, *to;	/* numbers, or what is moved */
	struct kvt_caster caster;
	int64_t heads;			/* of 'from' in a row */
	uint8_t *row, *out;		/* of each */
};

/* The first halves of all pairs, then the second ones, become pairs. */
static void put_in_pairs(uint8_t *row, uint8_t *room, int64_t n, int64_t elem)
{
	for (int64_t i = 0; i < n; i++)
		memcpy(room + i * elem, row + (i % 2 * (n / 2) + i / 2) * elem,
		       (size_t)elem);
	memcpy(row, room, (size_t)(n * elem));
}

/* Elements of a model's cache are numbers, if they were. */
static enum kvt_status check_elements(const struct encoding *e, const float *number,
				      struct kvt_error *err)
{
	const struct kvt_dtype *dtype = e->to->dtype;

	for (int64_t i = 0; !e->to->content.type && i < e->caster.n; i++)
		if (isfinite(number[i]) &&
		    !isfinite(kvt_dtype_decode(dtype, e->out + i * dtype->elem)))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: a number is %g, which %s cannot hold",
					e->to->id, (double)number[i], dtype->name);
	return KVT_OK;
}

static enum kvt_status encode_row(const struct encoding *e, int64_t kv,
				  struct kvt_error *err)
{
	const float *number = (const float *)(const void *)e->row;
	struct kvt_error why;

	if (e->target->moved) {
		memcpy(e->out, e->row, (size_t)(e->caster.n * e->to->shape.elem));
		return KVT_OK;
	}
	kvt_cast_row(&e->caster, e->out, 0, number, kv, 1);
	if (kvt_cast_holds(&e->caster, e->out, number, &why))
		return kvt_fail(err, KVT_BAD_INPUT, "%s: %s", e->to->id, why.text);
	return check_elements(e, number, err);
}

/* Row r of 'rows' [slots, heads, halves], of which 'from' has more heads. */
static void take_row(const struct encoding *e, const uint8_t *rows, int64_t r,
		     int64_t halves, bool pairs)
{
	int64_t bytes = e->from->shape.n[KVT_AXIS_D] * e->from->shape.elem;
	int64_t first = r / halves * e->heads * halves + r % halves;

	for (int64_t h = 0; h < e->heads; h++) {
		memcpy(e->row + h * bytes, rows + (first + h * halves) * bytes,
		       (size_t)bytes);
		if (pairs)
			put_in_pairs(e->row + h * bytes, e->out,
				     e->from->shape.n[KVT_AXIS_D], e->from->shape.elem);
	}
}

/* All rows of the box, which lie as they are read. */
static enum kvt_status encode_box(uint8_t *buf, const struct encoding *e, bool pairs,
				  const uint8_t *rows, const struct kvt_box *box,
				  struct kvt_error *err)
{
	int64_t first = box->begin[KVT_AXIS_D], elem = e->to->shape.elem, nrows = 1;
	int64_t count = box->end[KVT_AXIS_D] - first;
	int64_t halves = box->end[KVT_AXIS_K] - box->begin[KVT_AXIS_K];
	enum kvt_status status = KVT_OK;

	for (int a = 0; a < KVT_AXIS_D; a++)
		nrows *= box->end[a] - box->begin[a];
	for (int64_t r = 0; !status && r < nrows; r++) {
		int64_t k = e->target->half >= 0 ? e->target->half :
			    box->begin[KVT_AXIS_K] + r % halves;

		take_row(e, rows, r, halves, pairs && !k && e->to->kind != KVT_MLA);
		status = encode_row(e, k, err);
		memcpy(buf + r * count * elem, e->out + first * elem,
		       (size_t)(count * elem));
	}
	return status;
}

/* Where the rows of a box come from, as kvt_layout_slots has them. */
static struct kvt_box box_there(const struct encoding *e, const struct kvt_box *box)
{
	struct kvt_box there = *box;

	if (e->target->kv > 0)
		box_take(&there, KVT_AXIS_K, 1, 1);
	if (e->heads > 1)
		box_take(&there, KVT_AXIS_H, 0, e->heads);
	box_take(&there, KVT_AXIS_D, 0, e->from->shape.n[KVT_AXIS_D]);
	return there;
}

static enum kvt_status read_encoded(const struct encoded_leaf *l, struct encoding *e,
				    const struct kvt_box *box, void *buf,
				    struct kvt_error *err)
{
	const struct kvt_dump *dump = e->target->moved ? l->source : l->numbers;
	const struct kvt_box there = box_there(e, box);
	const struct kvt_shape shape = kvt_box_shape(&there, e->from->shape.elem);
	size_t in = (size_t)(e->heads * shape.n[KVT_AXIS_D] * shape.elem);
	size_t out = (size_t)(e->to->shape.n[KVT_AXIS_D] * e->to->shape.elem);
	int64_t nbytes;
	uint8_t *rows;
	enum kvt_status status;

	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)))
		return status;
	rows = malloc((size_t)nbytes + 1);
	e->row = malloc(in + 1);
	e->out = malloc((in > out ? in : out) + 1);
	if (!rows || !e->row || !e->out)
		status = kvt_no_memory(err, NULL);
	if (!status && !(status = kvt_dump_read(dump, e->target->from, &there,
						&kvt_layout_slots, rows, err)))
		status = encode_box(buf, e, l->pairs, rows, box, err);
	free(rows);
	free(e->row);
	free(e->out);
	return status;
}

static enum kvt_status encoded_read(const struct kvt_leaf *leaf, int g,
				    const struct kvt_box *box, void *buf,
				    struct kvt_error *err)
{
	const struct encoded_leaf *l = (const struct encoded_leaf *)leaf;
	struct encoding e = { .target = &l->target[g], .to = &leaf->snapshot.group[g],
			      .heads = 1 };
	struct kvt_box there = *box;

	for (int a = 0; a < KVT_NAXES; a++)
		if (box->end[a] <= box->begin[a])
			return KVT_OK;
	if (e.target->same) {
		if (e.target->kv > 0)
			box_take(&there, KVT_AXIS_K, 1, 1);
		return kvt_dump_read(l->source, e.target->from, &there, &e.to->layout,
				     buf, err);
	}
	e.from = kvt_dump_group(e.target->moved ? l->source : l->numbers, e.target->from);
	e.caster = (struct kvt_caster){ .dtype = e.to->dtype };
	if (e.to->content.type && !e.target->moved) {
		e.caster.packing = kvt_group_packing(e.to);
		e.heads = e.caster.packing.fold;
	}
	e.caster.n = e.heads * e.from->shape.n[KVT_AXIS_D];
	return read_encoded(l, &e, box, buf, err);
}

/* ---- the leaf ------------------------------------------------------------------ */

static bool encoded_has_file(const struct kvt_leaf *leaf, dev_t dev, ino_t ino)
{
	return kvt_dump_has_file(((const struct encoded_leaf *)leaf)->source, dev, ino);
}

static enum kvt_status encoded_unchanged(const struct kvt_leaf *leaf,
					 struct kvt_error *err)
{
	return kvt_dump_unchanged(((const struct encoded_leaf *)leaf)->source, err);
}

static void encoded_close(struct kvt_leaf *leaf)
{
	struct encoded_leaf *l = (struct encoded_leaf *)leaf;

	kvt_dump_close(l->source);
	kvt_dump_close(l->numbers);
	free(leaf);
}

static const struct kvt_leaf_ops encoded_ops = {
	.read_box = encoded_read, .has_file = encoded_has_file,
	.unchanged = encoded_unchanged, .close = encoded_close,
};

/* The dump, and its numbers where any change. */
static enum kvt_status take_sources(struct encoded_leaf *l, const struct kvt_dump *dump,
				    const struct kvt_encodings to[KVT_MAX_GROUPS],
				    struct kvt_error *err)
{
	const struct kvt_slice_options all = { .mamba_groups = 0 };
	enum kvt_status status = kvt_dump_slice(&l->source, dump, &all, err);
	bool any = false;

	for (int g = 0; g < kvt_dump_snapshot(dump)->ngroups; g++)
		any |= to[g].half[0].dtype || to[g].half[1].dtype;
	if (status || !any)
		return status;
	return kvt_dump_decode(&l->numbers, dump, kvt_dtype_find("float32"), NULL, err);
}

enum kvt_status kvt_dump_encode(struct kvt_dump **out, int from[KVT_MAX_GROUPS],
				const struct kvt_dump *dump,
				const struct kvt_encodings to[KVT_MAX_GROUPS],
				bool pairs, struct kvt_error *err)
{
	struct encoded_leaf *l = calloc(1, sizeof(*l));
	struct kvt_snapshot snapshot;
	enum kvt_status status;

	if (!l)
		return kvt_no_memory(err, NULL);
	l->pairs = pairs;
	if (!(status = take_sources(l, dump, to, err)) &&
	    !(status = describe(&snapshot, l, to, err))) {
		status = leaf_init(&l->leaf, &encoded_ops, "encoded", &snapshot, err);
		kvt_snapshot_free(&snapshot);
	}
	if (status) {
		encoded_close(&l->leaf);
		return status;
	}
	for (int g = 0; g < l->leaf.snapshot.ngroups; g++)
		from[g] = l->target[g].from;
	return kvt_dump_of_leaf(out, &l->leaf, err);
}
