/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - two dumps element by element, by what the elements are */
#include "lib/ops/compare/compare.h"

#include <stdlib.h>
#include <string.h>

#include "lib/dump/ids.h"
#include "lib/ops/compare/address.h"

#define LL(x) ((long long)(x))

/* ---- which element is which --------------------------------------------- */

/* What the index of an axis is in the model or in the engine's pool. */
static uint64_t identity(const struct kvt_group *group, enum kvt_axis axis, int64_t i)
{
	switch (axis) {
	case KVT_AXIS_L:
		return kvt_layer_id(group, i);
	case KVT_AXIS_B:
		return kvt_block_id(group, i);
	case KVT_AXIS_H:
		return (uint64_t)(group->head_start + i);
	default:
		return group->kind == KVT_MAMBA_CONV ? kvt_head_id(group, i) :
						       (uint64_t)i;
	}
}

/* Channels of equal parts are the same ones, even where no part has them. */
static bool same_parts(const struct kvt_group *a, const struct kvt_group *b)
{
	if (a->shape.n[KVT_AXIS_D] != b->shape.n[KVT_AXIS_D] ||
	    a->ncomponents != b->ncomponents)
		return false;
	for (int i = 0; i < a->ncomponents; i++) {
		const struct kvt_component *x = &a->component[i], *y = &b->component[i];

		if (strcmp(x->name, y->name) || x->start != y->start ||
		    x->length != y->length || x->global_start != y->global_start)
			return false;
	}
	return true;
}

static enum kvt_status map_axis(struct correspondence *s, enum kvt_axis axis,
				struct kvt_error *err)
{
	const struct kvt_group *a = kvt_dump_group(s->a, s->group_a);
	const struct kvt_group *b = kvt_dump_group(s->b, s->group_b);
	int64_t na = a->shape.n[axis], nb = b->shape.n[axis];
	struct id_index *known = calloc((size_t)na + 1, sizeof(*known));
	int64_t *map = calloc((size_t)nb + 1, sizeof(*map));

	s->map[axis] = map;
	if (!known || !map) {
		free(known);
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	}
	if (axis == KVT_AXIS_D && same_parts(a, b)) {
		for (int64_t i = 0; i < nb; i++)
			map[i] = i;
		s->shared[axis] = nb;
		free(known);
		return KVT_OK;
	}
	for (int64_t i = 0; i < na; i++)
		known[i] = (struct id_index){ identity(a, axis, i), i };
	id_index_sort(known, na);
	for (int64_t i = 0; i < nb; i++) {
		const struct id_index *found =
			id_index_find(known, na, identity(b, axis, i));

		map[i] = found ? found->index : -1;
		s->shared[axis] += found != NULL;
	}
	free(known);
	return KVT_OK;
}

static const enum kvt_axis mapped[] = {
	KVT_AXIS_L, KVT_AXIS_B, KVT_AXIS_H, KVT_AXIS_D,
};
enum { NMAPPED = sizeof(mapped) / sizeof(mapped[0]) };

/* Of keys and values 'b' may hold one half only. */
static bool same_kv(struct correspondence *s, const struct kvt_group *a,
		    const struct kvt_group *b)
{
	int half = kvt_group_half(b);

	if (a->shape.n[KVT_AXIS_K] == b->shape.n[KVT_AXIS_K])
		return half == kvt_group_half(a);
	s->kv = half;
	return half >= 0 && a->shape.n[KVT_AXIS_K] == 2;
}

enum kvt_status correspond_by_ids(struct correspondence *s, const struct kvt_dump *a,
				  int group_a,
			     const struct kvt_dump *b, int group_b, struct kvt_error *err)
{
	const struct kvt_group *ga = kvt_dump_group(a, group_a);
	const struct kvt_group *gb = kvt_dump_group(b, group_b);
	enum kvt_status status = KVT_OK;

	*s = (struct correspondence){ .a = a, .b = b, .group_a = group_a,
	.group_b = group_b };
	if (ga->dtype != gb->dtype ||
	    ga->shape.n[KVT_AXIS_S] != gb->shape.n[KVT_AXIS_S] || !same_kv(s, ga, gb))
		return kvt_fail(err, KVT_BAD_INPUT,
				"groups %s and %s hold states of another shape or type",
				ga->id, gb->id);
	for (int i = 0; !status && i < NMAPPED; i++)
		status = map_axis(s, mapped[i], err);
	if (status)
		correspondence_free(s);
	return status;
}

void correspondence_free(struct correspondence *s)
{
	for (int i = 0; i < NMAPPED; i++)
		free(s->map[mapped[i]]);
	memset(s->map, 0, sizeof(s->map));
}

bool correspondence_any(const struct correspondence *s)
{
	for (int i = 0; i < NMAPPED; i++)
		if (!s->shared[mapped[i]])
			return false;
	return true;
}

/* ---- comparing ---------------------------------------------------------- */

struct comparing {
	const struct correspondence *s;
	struct kvt_cut cut;
	bool same_content;	/* along D both have the same, in order */
};

/* First element along D that differs; -1: none. */
static int64_t head_differs(const struct comparing *c, const struct addresses *a,
			    const uint8_t *pa, const struct addresses *b,
			    const uint8_t *pb)
{
	const int64_t *map = c->s->map[KVT_AXIS_D];
	int64_t n = b->view.shape.n[KVT_AXIS_D], elem = b->view.shape.elem;

	if (c->same_content && a->terms.dense && b->terms.dense &&
	    !memcmp(pa, pb, (size_t)(n * elem)))
		return -1;
	for (int64_t d = 0; d < n; d++)
		if (map[d] >= 0 && memcmp(pa + a->terms.at[KVT_AXIS_D][map[d]],
					  pb + b->terms.at[KVT_AXIS_D][d],
					  (size_t)elem))
			return d;
	return -1;
}

static enum kvt_status differs(const struct correspondence *s,
			       const int64_t at[KVT_NAXES],
			       struct kvt_error *err)
{
	const struct kvt_group *group = kvt_dump_group(s->b, s->group_b);
	long long layer = LL(identity(group, KVT_AXIS_L, at[KVT_AXIS_L]));
	long long block = LL(identity(group, KVT_AXIS_B, at[KVT_AXIS_B]));
	long long dim = LL(identity(group, KVT_AXIS_D, at[KVT_AXIS_D]));

	if (group->kind == KVT_MAMBA_CONV)
		return kvt_fail(err, KVT_MISMATCH,
				"%s: layer %lld block %lld tap %lld channel %lld differs",
				group->id, layer, block, LL(at[KVT_AXIS_S]), dim);
	return kvt_fail(err, KVT_MISMATCH,
			"%s: layer %lld block %lld state %lld head %lld kv %lld dim %lld differs",
			group->id, layer, block, LL(at[KVT_AXIS_S]),
			LL(identity(group, KVT_AXIS_H, at[KVT_AXIS_H])),
			LL(s->kv + at[KVT_AXIS_K]), dim);
}

/* The states and heads of one block of one layer; at[] has L, B and K of 'b'. */
static enum kvt_status compare_block(const struct comparing *c, const struct addresses *a,
				     const struct addresses *b, int64_t at[KVT_NAXES],
				     struct kvt_error *err)
{
	const int64_t *n = b->view.shape.n;
	int64_t there[KVT_NAXES] = { 0 };

	there[KVT_AXIS_L] = c->s->map[KVT_AXIS_L][at[KVT_AXIS_L]];
	there[KVT_AXIS_B] = c->s->map[KVT_AXIS_B][at[KVT_AXIS_B]];
	for (int64_t i = 0; i < n[KVT_AXIS_S] * n[KVT_AXIS_H]; i++) {
		int64_t h = i % n[KVT_AXIS_H];

		at[KVT_AXIS_S] = there[KVT_AXIS_S] = i / n[KVT_AXIS_H];
		at[KVT_AXIS_H] = h;
		there[KVT_AXIS_H] = c->s->map[KVT_AXIS_H][h];
		if (there[KVT_AXIS_H] < 0)
			continue;
		at[KVT_AXIS_D] = 0;
		at[KVT_AXIS_D] = head_differs(c, a, address_of(a, there), b,
					      address_of(b, at));
		if (at[KVT_AXIS_D] >= 0)
			return differs(c->s, at, err);
	}
	return KVT_OK;
}

/* Keys or values of layers and blocks that were read together. */
static enum kvt_status compare_piece(const struct comparing *c,
				     const struct placed *a, const struct placed *b,
				     const struct kvt_box *piece, int k,
				     struct kvt_error *err)
{
	int64_t elem = kvt_dump_group(c->s->b, c->s->group_b)->shape.elem;
	struct addresses ha = { 0 }, hb = { 0 };
	int64_t at[KVT_NAXES] = { 0 };
	enum kvt_status status;

	if (!(status = addresses_init(&ha, a, c->s->kv + k, elem, err)))
		status = addresses_init(&hb, b, k, elem, err);
	for (int64_t l = piece->begin[0]; !status && l < piece->end[0]; l++)
		for (int64_t i = piece->begin[1]; !status && i < piece->end[1]; i++) {
			at[KVT_AXIS_L] = l;
			at[KVT_AXIS_B] = i;
			at[KVT_AXIS_K] = k;
			status = compare_block(c, &ha, &hb, at, err);
		}
	address_terms_free(&ha.terms);
	address_terms_free(&hb.terms);
	return status;
}

static enum kvt_status compare_box(struct kvt_worker *worker, void *context, int64_t i,
				   struct kvt_error *err)
{
	const struct comparing *c = context;
	const struct correspondence *s = c->s;
	const struct kvt_group *ga = kvt_dump_group(s->a, s->group_a);
	const struct kvt_group *gb = kvt_dump_group(s->b, s->group_b);
	struct placed a, b = { &gb->layout, kvt_cut_box(&c->cut, i), worker->buffer[0] };
	struct pieces p = pieces_of(&b.box, s->map[KVT_AXIS_L], s->map[KVT_AXIS_B],
				    kvt_dump_tiling(s->a, s->group_a));
	enum kvt_status status = kvt_read(worker, s->b, s->group_b, &b.box, NULL, b.bytes,
					  err);

	while (!status && piece_next(&p)) {
		struct kvt_box there = piece_there(&p);

		if (there.begin[KVT_AXIS_L] < 0 || there.begin[KVT_AXIS_B] < 0)
			continue;
		box_take(&there, KVT_AXIS_H, 0, ga->shape.n[KVT_AXIS_H]);
		box_take(&there, KVT_AXIS_K, 0, ga->shape.n[KVT_AXIS_K]);
		box_take(&there, KVT_AXIS_D, 0, ga->shape.n[KVT_AXIS_D]);
		status = read_around(&a, worker, leaf_of(s->a), s->group_a, &there, err);
		for (int k = 0; !status && k < gb->shape.n[KVT_AXIS_K]; k++)
			status = compare_piece(c, &a, &b, &p.here, k, err);
	}
	kvt_worker_progress(worker, c->cut.box_bytes);
	return status;
}

enum kvt_status compare_elements(const struct correspondence *s, const char *label,
				const struct kvt_run *run,
				struct kvt_error *err)
{
	const struct kvt_group *ga = kvt_dump_group(s->a, s->group_a);
	const struct kvt_group *gb = kvt_dump_group(s->b, s->group_b);
	const struct kvt_tiling *tiling = kvt_dump_tiling(s->b, s->group_b);
	int64_t limit = run->memory ? run->memory : INT64_MAX;
	struct comparing c = { .s = s };
	struct kvt_work work = { .fn = compare_box, .context = &c, .label = label };

	if (!correspondence_any(s))
		return KVT_OK;
	c.cut = kvt_cut_choose(gb, tiling, &ga->layout, NULL, limit / 4);
	c.same_content = ga->shape.n[KVT_AXIS_D] == gb->shape.n[KVT_AXIS_D];
	for (int64_t d = 0; d < gb->shape.n[KVT_AXIS_D]; d++)
		c.same_content &= s->map[KVT_AXIS_D][d] == d;
	work.count = c.cut.nboxes;
	work.total_bytes = c.cut.nboxes * c.cut.box_bytes;
	work.buffer_bytes[0] = c.cut.box_bytes;
	work_needs_tiles(&work, tiling);
	work_needs_pieces(&work, leaf_of(s->a), s->group_a, c.cut.layers, c.cut.blocks);
	return kvt_work_run(&work, run, err);
}

/* ---- a source and what was written -------------------------------------- */

/* Every layer and block must be in each reader, heads and channels in any. */
static enum kvt_status verify_reader(const struct correspondence *s,
				     bool *seen[KVT_NAXES],
				     const struct kvt_run *run,
				     struct kvt_error *err)
{
	const struct kvt_group *group = kvt_dump_group(s->b, s->group_b);

	for (int i = 0; i < NMAPPED; i++) {
		enum kvt_axis axis = mapped[i];

		for (int64_t j = 0; j < group->shape.n[axis]; j++) {
			bool found = s->map[axis][j] >= 0;

			if (!found && (axis == KVT_AXIS_L || axis == KVT_AXIS_B))
				return kvt_fail(err, KVT_MISMATCH,
						"%s: %s %lld is not in the input",
						group->id, kvt_axis_name(axis),
						LL(identity(group, axis, j)));
			if (seen[axis])
				seen[axis][j] |= found;
		}
	}
	return compare_elements(s, "verifying", run, err);
}

/* What is in its place is what was to be written there, not other layers of it. */
static enum kvt_status check_places(const struct kvt_group *wanted,
				    const struct kvt_group *group, struct kvt_error *err)
{
	for (int i = 0; i < NMAPPED; i++)
		for (int64_t j = 0; j < group->shape.n[mapped[i]]; j++) {
			uint64_t is = identity(group, mapped[i], j);
			uint64_t should = identity(wanted, mapped[i], j);

			if (is != should)
				return kvt_fail(err, KVT_MISMATCH,
						"%s: %s %lld is in the place of %lld",
						group->id, kvt_axis_name(mapped[i]),
						LL(is), LL(should));
		}
	return KVT_OK;
}

static enum kvt_status check_seen(const struct kvt_group *group,
				  bool *const seen[KVT_NAXES], struct kvt_error *err)
{
	for (int axis = KVT_AXIS_H; axis < KVT_NAXES; axis++)
		for (int64_t j = 0; seen[axis] && j < group->shape.n[axis]; j++)
			if (!seen[axis][j])
				return kvt_fail(err, KVT_MISMATCH,
						"%s: %s %lld is in none of the inputs",
						group->id, kvt_axis_name(axis),
						LL(identity(group, axis, j)));
	return KVT_OK;
}

static enum kvt_status verify_group(const struct kvt_dump *source,
				    const struct kvt_dump *written, int g,
				    const struct kvt_run *run,
				    struct kvt_error *err)
{
	const struct kvt_group *group = kvt_dump_group(written, g);
	const struct kvt_dump *leaf;
	enum kvt_status status = KVT_OK;
	bool *seen[KVT_NAXES] = {
		[KVT_AXIS_H] = calloc((size_t)group->shape.n[KVT_AXIS_H], 1),
		[KVT_AXIS_D] = calloc((size_t)group->shape.n[KVT_AXIS_D], 1),
	};

	if (!seen[KVT_AXIS_H] || !seen[KVT_AXIS_D])
		status = kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int i = 0; !status && (leaf = kvt_dump_leaf(source, i)); i++) {
		int from = kvt_dump_leaf_group(source, i, g);
		struct correspondence both;

		if (from < 0)
			continue;
		if ((status = correspond_by_ids(&both, leaf, from, written, g, err)))
			break;
		status = verify_reader(&both, seen, run, err);
		correspondence_free(&both);
	}
	if (!status)
		status = check_seen(group, seen, err);
	free(seen[KVT_AXIS_H]);
	free(seen[KVT_AXIS_D]);
	return status;
}

enum kvt_status verify_source(const struct kvt_dump *source,
			      const struct kvt_dump *written,
			      const struct kvt_run *run,
			      struct kvt_error *err)
{
	const struct kvt_snapshot *wanted = kvt_dump_snapshot(source);
	int ngroups = kvt_dump_snapshot(written)->ngroups;
	enum kvt_status status = KVT_OK;

	if (ngroups != wanted->ngroups)
		return kvt_fail(err, KVT_MISMATCH, "%d groups became %d",
				wanted->ngroups, ngroups);
	for (int g = 0; !status && g < ngroups; g++) {
		const int64_t *n = wanted->group[g].shape.n;
		const struct kvt_group *group = kvt_dump_group(written, g);

		if (memcmp(n, group->shape.n, sizeof(group->shape.n)))
			return kvt_fail(err, KVT_MISMATCH, "%s: shapes differ",
					group->id);
		status = check_places(&wanted->group[g], group, err);
		if (!status)
			status = verify_group(source, written, g, run, err);
	}
	return status;
}
