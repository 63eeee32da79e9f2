/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - what named tensors make together
 *
 * Three arrangements are read: one tensor for all layers, keys and values in a
 * tensor each, and a tensor (or such a pair) for each layer.  In a layout of latents a
 * pair is two planes of its rows, the latent and its rotary part (vLLM on Ascend).
 */
#include "formats/tensor/names.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/print.h"

/* ---- reading ------------------------------------------------------------ */

struct opening {
	struct kvt_reader *reader;
	const struct kvt_tensors *tensors;
	struct kvt_manifest manifest;
	const char *names;		/* as for --set=names, said or guessed */
	char *guessed;			/* owned */
	bool in_memory_order;		/* so the group's layout has been made */
	int file;
	struct kvt_error *err;
};

static const struct kvt_tensor *partner(const struct opening *o,
					const struct kvt_tensor *keys)
{
	return kvt_tensors_partner(o->tensors, keys->name, o->names);
}

/*
 * A view of dense bytes becomes one of a tensor that is not: each of its factors
 * is a part of one axis of the tensor, in the same order.
 */
static bool restride(struct kvt_view *view, const struct kvt_tensor *t)
{
	int i = view->nfactors;

	for (int axis = t->rank - 1; axis >= 0; axis--) {
		int64_t n = t->shape[axis], stride = t->stride[axis];

		for (; n > 1; i--) {
			struct kvt_factor *f;

			if (!i)
				return false;
			f = &view->factor[i - 1];
			if (f->n < 1 || n % f->n)
				return false;
			f->stride = stride;
			/* within the tensor's extent, which passed as a product */
			stride *= f->n;
			n /= f->n;
		}
	}
	while (i > 0 && view->factor[i - 1].n == 1)
		i--;
	return i == 0;
}

/* The file that a tensor is in. */
static int file_of(const struct opening *o, const struct kvt_tensor *t)
{
	return t->file ? t->file : o->file;
}

/* Not a folder with a file a layer: then --from=transformers takes it, too. */
static bool is_one_file(const struct opening *o)
{
	return o->reader->files.count == 1;
}

/* Adds a range that is a tensor, or a part of one. */
static enum kvt_status add_range(struct opening *o, int g, struct kvt_file_part *range,
				 const struct kvt_tensor *t)
{
	const struct kvt_group *group = &o->manifest.snapshot.group[g];
	bool dense = !t->strided || o->in_memory_order;

	if (!dense && (range->views.count != 1 || !restride(&range->views.view[0], t)))
		return kvt_fail(o->err, KVT_UNSUPPORTED,
				"%s: tensor %.100s is not contiguous, and its axes are not those of layout %s",
				o->reader->leaf.path, t->name,
				kvt_layout_string(&group->layout).s);
	return kvt_flat_add(&o->reader->flat[g], range, o->err);
}

/*
 * The layout of the group becomes that of memory, if 'count' tensors have one; the index
 * of each is that of a layer, NULL of the one tensor there is.
 */
static void take_strides(struct opening *o, const struct kvt_tensor *first,
			 const struct kvt_layer *layer, int64_t count)
{
	struct kvt_group *group = &o->manifest.snapshot.group[0];
	struct kvt_layout memory;

	for (int64_t i = 0; layer && i < count; i++) {
		const struct kvt_tensor *t = &o->tensors->tensor[layer[i].index];

		if (t->strided != first->strided || t->rank != first->rank ||
		    memcmp(t->stride, first->stride,
			   (size_t)t->rank * sizeof(*t->stride)))
			return;
	}
	if (!kvt_tensor_memory(&memory, &group->layout, &group->shape, first,
			       layer != NULL))
		return;
	o->reader->leaf.indexed = group->layout;
	group->layout = memory;
	o->in_memory_order = true;
}

/* All of a group in one tensor, or each plane in its own. */
static enum kvt_status add_whole(struct opening *o, int g, const struct kvt_tensor *t,
				 const struct kvt_tensor *values, bool pages)
{
	const struct kvt_group *group = &o->manifest.snapshot.group[g];
	struct kvt_box box = kvt_box_whole(&group->shape);
	int64_t at = o->tensors->data + t->begin;
	struct kvt_file_part range;
	enum kvt_status status;

	if (values)
		box.end[KVT_AXIS_K] = 1;
	if ((status = kvt_file_part_init(&range, group, &box, pages && !values,
				     file_of(o, t), at, o->err)) ||
	    (status = add_range(o, g, &range, t)) || !values)
		return status;
	box.begin[KVT_AXIS_K] = 1;
	box.end[KVT_AXIS_K] = 2;
	/* the view of the values begins after the keys, the tensor need not */
	at = o->tensors->data + values->begin - (t->end - t->begin);
	if ((status = kvt_file_part_init(&range, group, &box, false, file_of(o, values),
					 at, o->err)))
		return status;
	return add_range(o, g, &range, values);
}

static enum kvt_status check_pair(const struct opening *o, const struct kvt_tensor *k,
				  const struct kvt_tensor *v)
{
	return kvt_tensors_alike(k, v) ? KVT_OK :
	       kvt_tensors_unlike(k, v, v == partner(o, k), KVT_BAD_INPUT,
				  o->reader->leaf.path, o->err);
}

/* ---- planes of a row ----------------------------------------------------- */

/* Has a token one row, without heads, keys and values? */
static bool has_rows(const struct kvt_group *group)
{
	const struct kvt_order *order = &group->layout.plane[0];

	if (kvt_group_opaque(group))
		return true;
	for (int i = 0; i < order->nparts; i++) {
		enum kvt_axis axis = order->part[i].axis;

		if (axis == KVT_AXIS_H || axis == KVT_AXIS_K)
			return false;
	}
	return group->layout.nplanes == 1;
}

/* The one axis in which the tensors of a pair differ; -1: they are no planes. */
static int plane_axis(const struct opening *o, const struct kvt_tensor *k,
		      const struct kvt_tensor *v)
{
	int axis = -1;

	if (!v || k->rank != v->rank || strcmp(k->type, v->type))
		return -1;
	/* said to be blocks of anything else, they are not */
	if (o->manifest.has_layout && !has_rows(&o->manifest.snapshot.group[0]))
		return -1;
	for (int i = 0; i < k->rank; i++) {
		if (k->shape[i] == v->shape[i])
			continue;
		if (axis >= 0)
			return -1;
		axis = i;
	}
	return axis;
}

/* The array that two planes would be if each row was one run. */
static enum kvt_status join_planes(struct kvt_array *out, const struct opening *o,
				   const struct kvt_tensor *k, const struct kvt_tensor *v)
{
	int axis = plane_axis(o, k, v);

	*out = kvt_tensor_array(k, o->reader->leaf.path);
	if (__builtin_add_overflow(out->shape[axis], v->shape[axis], &out->shape[axis]) ||
	    __builtin_add_overflow(out->nbytes, v->end - v->begin, &out->nbytes))
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: rows of 2^63 bytes",
				o->reader->leaf.path);
	return KVT_OK;
}

/* The elements of a row that are in one of the planes. */
static enum kvt_status plane_box(struct kvt_box *box, const struct opening *o,
				 const struct kvt_tensor *k, const struct kvt_tensor *v,
				 int half)
{
	int64_t width = o->manifest.snapshot.group[0].shape.n[KVT_AXIS_D], first;
	int axis = plane_axis(o, k, v);
	int64_t all = k->shape[axis] + v->shape[axis];

	if (__builtin_mul_overflow(width, k->shape[axis], &first) || first % all)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: rows of %lld elements cannot be %.100s and %.100s, of %lld and %lld",
				o->reader->leaf.path, LL(width), k->name, v->name,
				LL(k->shape[axis]), LL(v->shape[axis]));
	first /= all;
	box->begin[KVT_AXIS_D] = half ? first : 0;
	box->end[KVT_AXIS_D] = half ? width : first;
	return KVT_OK;
}

/* A box that a tensor holds as a dense array. */
static enum kvt_status add_part(struct opening *o, struct kvt_file_part *range,
				const struct kvt_tensor *t)
{
	const struct kvt_group *group = &o->manifest.snapshot.group[0];
	enum kvt_status status = kvt_layout_views(&range->views, &group->layout,
						  &range->box, group->shape.elem, o->err);

	for (int i = 0; !status && i < range->views.count; i++)
		range->views.view[i].offset += o->tensors->data + t->begin;
	range->file = file_of(o, t);
	return status ? status : add_range(o, 0, range, t);
}

/* Both planes of layers [l, end). */
static enum kvt_status add_planes(struct opening *o, int64_t l, int64_t end,
				  const struct kvt_tensor *k, const struct kvt_tensor *v)
{
	const struct kvt_group *group = &o->manifest.snapshot.group[0];
	enum kvt_status status = KVT_OK;

	for (int half = 0; !status && half < 2; half++) {
		struct kvt_file_part range = { .box = kvt_box_whole(&group->shape) };

		range.box.begin[KVT_AXIS_L] = l;
		range.box.end[KVT_AXIS_L] = end;
		if (!(status = plane_box(&range.box, o, k, v, half)))
			status = add_part(o, &range, half ? v : k);
	}
	return status;
}

static int find_axis(const struct kvt_order *order, enum kvt_axis axis)
{
	int at = 0;

	while (at < order->nparts && order->part[at].axis != axis)
		at++;
	return at;
}

/*
 * Where keys and values are tensors of their own K stands outside of their axes, said or
 * not: BSHD, KBSHD and LKBSHD are all two planes LBSHD.
 */
static void take_apart(struct kvt_layout *layout)
{
	struct kvt_order *order = &layout->plane[0];
	int at = find_axis(order, KVT_AXIS_K), outside = !find_axis(order, KVT_AXIS_L);

	if (layout->nplanes != 1 || find_axis(order, KVT_AXIS_H) == order->nparts ||
	    (at < order->nparts && at > outside))
		return;
	if (at < order->nparts) {
		order->nparts--;
		memmove(&order->part[at], &order->part[at + 1],
			(size_t)(order->nparts - at) * sizeof(order->part[0]));
	}
	layout->plane[1] = *order;
	layout->nplanes = 2;
}

/* The layout must say the same as the tensors: planes together, or apart. */
static enum kvt_status check_apart(const struct opening *o, const struct kvt_layout *l,
				   bool apart)
{
	if (!o->manifest.has_layout || kvt_layout_apart(l) == apart)
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: keys and values are %s, but layout %s has them %s",
			o->reader->leaf.path,
			apart ? "separate" : "in one tensor",
			kvt_layout_string(l).s, apart ? "together" : "apart");
}

/* One tensor, or one pair, for all layers. */
static enum kvt_status open_single(struct opening *o, const struct kvt_tensor *t,
				   const struct kvt_tensor *values)
{
	struct kvt_array array = kvt_tensor_array(t, o->reader->leaf.path);
	struct kvt_group *group = &o->manifest.snapshot.group[0];
	bool planes = plane_axis(o, t, values) >= 0, apart = values && !planes;
	enum kvt_status status;

	if (apart && o->manifest.has_layout)
		take_apart(&group->layout);
	if ((status = kvt_tensor_check(t, o->reader->leaf.path, o->err)) ||
	    (values && (status = kvt_tensor_check(values, o->reader->leaf.path,
						  o->err))) ||
	    (apart && (status = check_pair(o, t, values))) ||
	    (apart && (status = check_apart(o, &group->layout, true))) ||
	    (planes && (status = join_planes(&array, o, t, values))))
		return status;
	if (apart)
		array.nbytes *= 2;
	array.apart = apart;
	array.is_tensor = is_one_file(o);
	if ((status = kvt_manifest_fit(&o->manifest, &array, o->err)))
		return status;
	if (!values && !o->manifest.pages)
		take_strides(o, t, NULL, 1);
	return planes ? add_planes(o, 0, group->shape.n[KVT_AXIS_L], t, values) :
			add_whole(o, 0, t, values, o->manifest.pages);
}

/* Several groups, each with the tensors of its name. */
static enum kvt_status open_groups(struct opening *o)
{
	struct kvt_snapshot *s = &o->manifest.snapshot;
	struct kvt_array array = { .name = o->reader->leaf.path };
	enum kvt_status status;

	for (int64_t i = 0; i < o->tensors->count; i++)
		array.nbytes += o->tensors->tensor[i].end - o->tensors->tensor[i].begin;
	if ((status = kvt_manifest_fit(&o->manifest, &array, o->err)))
		return status;
	for (int g = 0; g < s->ngroups; g++) {
		bool apart = kvt_layout_apart(&s->group[g].layout);
		const struct kvt_tensor *t, *values = NULL;
		char name[40];
		int64_t nbytes;

		snprintf(name, sizeof(name), "%s%s", s->group[g].id, apart ? ".k" : "");
		/* a group of keys alone may be called g0.k, and has no other half */
		if ((t = kvt_tensors_find(o->tensors, name)) && apart)
			values = kvt_tensors_partner(o->tensors, name, o->names);
		if (!t || (apart && !values))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: no tensor '%s' for group %s", o->reader->leaf.path,
					name, s->group[g].id);
		if ((status = kvt_shape_nbytes(&nbytes, &s->group[g].shape, o->err)))
			return status;
		if (nbytes != (t->end - t->begin) * (values ? 2 : 1) ||
		    t->dtype != s->group[g].dtype)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: tensor %s does not fit group %s of %lld bytes of %s",
					o->reader->leaf.path, name, s->group[g].id,
					(long long)nbytes, s->group[g].dtype->name);
		if ((status = add_whole(o, g, t, values, false)))
			return status;
	}
	return KVT_OK;
}

/* ---- a tensor for each layer -------------------------------------------- */

static enum kvt_status check_alike(const struct opening *o,
				   const struct kvt_layer *layer, int64_t count)
{
	const struct kvt_tensor *first = &o->tensors->tensor[layer[0].index];
	const struct kvt_tensor *other = partner(o, first);
	enum kvt_status status = KVT_OK;

	if (plane_axis(o, first, other) < 0)
		other = first;
	for (int64_t i = 0; !status && i < count; i++) {
		const struct kvt_tensor *t = &o->tensors->tensor[layer[i].index];
		const struct kvt_tensor *values = partner(o, t);

		if (!(status = kvt_tensor_check(t, o->reader->leaf.path, o->err)))
			status = check_pair(o, first, t);
		if (!status && values)
			status = check_pair(o, other, values);
	}
	return status;
}

/* Axes of the tensor of one layer: that of the layers stands outside. */
static void add_layers_axis(struct kvt_layout *layout)
{
	for (int i = 0; i < layout->nplanes; i++) {
		struct kvt_order *order = &layout->plane[i];
		int at = find_axis(order, KVT_AXIS_L);

		if (at < order->nparts || at == KVT_MAX_PARTS)
			continue;
		for (int j = order->nparts++; j > 0; j--)
			order->part[j] = order->part[j - 1];
		order->part[0] = (struct kvt_part){ KVT_AXIS_L, KVT_WHOLE, 0 };
	}
}

/* Layers that are files or tensors of their own stand outside all else. */
static enum kvt_status check_outermost(const struct opening *o,
				       const struct kvt_layout *layout)
{
	for (int i = 0; i < layout->nplanes; i++)
		if (layout->plane[i].part[0].axis != KVT_AXIS_L)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: has a tensor for each layer, but in layout %s layers are not outermost",
					o->reader->leaf.path,
					kvt_layout_string(layout).s);
	return KVT_OK;
}

static enum kvt_status add_layer(struct opening *o, int64_t l,
				 const struct kvt_tensor *t, int k)
{
	const struct kvt_group *group = &o->manifest.snapshot.group[0];
	struct kvt_file_part range = { .box = kvt_box_whole(&group->shape) };

	range.box.begin[KVT_AXIS_L] = l;
	range.box.end[KVT_AXIS_L] = l + 1;
	if (k >= 0) {
		range.box.begin[KVT_AXIS_K] = k;
		range.box.end[KVT_AXIS_K] = k + 1;
	}
	return add_part(o, &range, t);
}

static enum kvt_status add_layers(struct opening *o, const struct kvt_layer *layer,
				  int64_t count, bool apart)
{
	enum kvt_status status = KVT_OK;

	for (int64_t l = 0; !status && l < count; l++) {
		const struct kvt_tensor *t = &o->tensors->tensor[layer[l].index];

		if (plane_axis(o, t, partner(o, t)) >= 0) {
			status = add_planes(o, l, l + 1, t, partner(o, t));
			continue;
		}
		status = add_layer(o, l, t, apart ? 0 : -1);
		if (!status && apart)
			status = add_layer(o, l, partner(o, t), 1);
	}
	return status;
}

/* Puts an axis for 'count' tensors of a layer each before those of one. */
static void stack_layers(struct kvt_array *array, int64_t count)
{
	array->of_layers = true;
	if (array->rank == KVT_TENSOR_MAX_RANK) {
		array->rank = 0;
		return;
	}
	memmove(array->shape + 1, array->shape,
		(size_t)array->rank * sizeof(*array->shape));
	array->shape[0] = count;
	array->rank++;
}

/* The array that the layers would be if they were one. */
static enum kvt_status fit_layers(struct opening *o, const struct kvt_layer *layer,
				  int64_t count, bool apart)
{
	struct kvt_group *group = &o->manifest.snapshot.group[0];
	const struct kvt_tensor *first = &o->tensors->tensor[layer[0].index];
	struct kvt_array array = kvt_tensor_array(first, o->reader->leaf.path);
	const struct kvt_tensor *a, *b;
	enum kvt_status status;

	if (o->manifest.has_layout)
		add_layers_axis(&group->layout);
	if (apart && plane_axis(o, first, partner(o, first)) >= 0) {
		apart = false;
		if ((status = join_planes(&array, o, first, partner(o, first))))
			return status;
	}
	if (apart && o->manifest.has_layout)
		take_apart(&group->layout);
	if ((status = kvt_manifest_extent(group, KVT_AXIS_L, count, "tensors",
					  o->reader->leaf.path, o->err)) ||
	    (status = check_apart(o, &group->layout, apart)) ||
	    (o->manifest.has_layout && (status = check_outermost(o, &group->layout))))
		return status;
	if (__builtin_mul_overflow(array.nbytes, apart ? 2 * count : count,
				   &array.nbytes))
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: too many tensors",
				o->reader->leaf.path);
	array.apart = apart;
	stack_layers(&array, count);
	array.either = !o->manifest.has_layout && kvt_tensors_two(&a, &b, o->tensors);
	array.is_tensor = is_one_file(o);
	if ((status = kvt_manifest_fit(&o->manifest, &array, o->err)))
		return status;
	if (!partner(o, first))
		take_strides(o, first, layer, count);
	return kvt_layers_tables(group, layer, count, o->reader->leaf.path, o->err);
}

static enum kvt_status open_layers(struct opening *o)
{
	struct kvt_layer *layer;
	enum kvt_status status;
	int64_t count = 0;
	bool apart;

	if ((status = kvt_tensors_layers(&layer, &count, &apart, o->tensors, o->names,
					 o->reader->leaf.path, o->err)))
		return status;
	(void)((status = check_alike(o, layer, count)) ||
	       (status = fit_layers(o, layer, count, apart)) ||
	       (status = add_layers(o, layer, count, apart)));
	free(layer);
	return status;
}

/* ---- which arrangement -------------------------------------------------- */

/* Batch, heads, tokens and elements, perhaps of all layers: fewer are of an engine. */
static bool has_cache_axes(const struct opening *o)
{
	for (int64_t i = 0; !o->manifest.has_layout && i < o->tensors->count; i++)
		if (o->tensors->tensor[i].rank == 4 || o->tensors->tensor[i].rank == 5)
			return true;
	return false;
}

/*
 * Keys and values apart: as likely as blocks a cache as transformers has it.  So are
 * those of one sequence without its axis, unless they begin with more than a model has
 * heads.
 */
static const struct kvt_tensor *like_cache(const struct opening *o)
{
	for (int64_t i = 0; i < o->tensors->count; i++) {
		const struct kvt_tensor *t = &o->tensors->tensor[i];

		if ((t->rank == 4 || t->rank == 5 ||
		     (t->rank == 3 && t->shape[0] <= KVT_MOST_HEADS)) && partner(o, t))
			return t;
	}
	return NULL;
}

/* Layers that are keys and values of one sequence; blocks are several. */
static const struct kvt_tensor *like_fused(const struct opening *o)
{
	const struct kvt_tensor *t = o->tensors->tensor;

	return o->tensors->count > 1 && t->rank == 5 && t->shape[0] == 2 &&
	       t->shape[1] == 1 ? t : NULL;
}

/* Layouts that pairs like this one could have if they are blocks; "" if one has none. */
static void list_pairs(char *list, size_t size, const struct opening *o,
		       const struct kvt_tensor *t)
{
	struct kvt_array array = kvt_tensor_array(t, o->reader->leaf.path);
	struct kvt_manifest said = o->manifest;
	struct kvt_group *group = &said.snapshot.group[0];
	struct kvt_layer *layer;
	int64_t count;
	bool flat;

	*list = '\0';
	if (kvt_manifest_fill(&said, 0, array.name, NULL))
		return;
	array.apart = true;
	if (!kvt_tensors_layers(&layer, &count, &array.apart, o->tensors, o->names,
				array.name, NULL)) {
		free(layer);
		stack_layers(&array, count);
		group->shape.n[KVT_AXIS_L] = count;
	}
	/* one block is as good as none */
	if (array.apart && t->shape[0] != 1)
		kvt_manifest_readings(list, size, &flat, group, &array);
}

/* Where neither manifest nor user said what the axes are: all that they may be. */
static enum kvt_status refuse_axes(const struct opening *o, const struct kvt_tensor *t,
				   bool fused)
{
	const struct kvt_tensor *values = partner(o, t);
	const char *path = o->reader->leaf.path;
	char before[300] = "--from=transformers ", list[150];
	bool single = o->tensors->count == 2;

	if (o->tensors->names)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: a cache that a program of mlx saved; give --from=mlx",
				path);
	/* neither as blocks nor as a cache */
	if (values && (t->rank != values->rank || !kvt_tensors_types_fit(t, values)))
		return check_pair(o, t, values);
	if (o->names)
		snprintf(before, sizeof(before),
			 "--from=transformers --set=names=%.200s ", o->names);
	list_pairs(list, sizeof(list), o, t);
	/* a pair without a number is of all layers */
	return kvt_axes_ask(o->tensors, t, fused ? "KB" : t->rank == 3 ? "" :
			    t->rank == 5 ? "LB" :
			    single && !kvt_name_is_numbered(t->name) ? "L" : "B",
			    before, values && strcmp(t->type, values->type) ? NULL : list,
			    path, o->err);
}

static enum kvt_status open_tensors(struct opening *o)
{
	const struct kvt_tensor *first = o->tensors->tensor, *values = NULL, *cache;
	int64_t count = o->tensors->count;
	enum kvt_status status;

	if (!count)
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: has no tensors",
				o->reader->leaf.path);
	if (o->manifest.snapshot.ngroups > 1)
		return open_groups(o);
	if (!o->names && !o->tensors->names && count > 1) {
		if ((status = kvt_names_guess(&o->guessed, o->tensors,
					      o->reader->leaf.path,
					      has_cache_axes(o) ?
					      "--from=transformers " : "", o->err)))
			return status;
		o->names = o->guessed;
	}
	if (!o->manifest.has_layout && ((cache = like_cache(o)) || o->tensors->names))
		return refuse_axes(o, cache, false);
	if (!o->manifest.has_layout && (cache = like_fused(o)))
		return refuse_axes(o, cache, true);
	if (o->names)
		return open_layers(o);
	if (count == 1)
		return open_single(o, first, NULL);
	if (count == 2) {
		values = partner(o, first);
		if (!values && (values = partner(o, first + 1))) {
			values = first;
			first = first + 1;
		}
	}
	if (o->manifest.has_layout &&
	    kvt_layout_apart(&o->manifest.snapshot.group[0].layout))
		kvt_tensors_two(&first, &values, o->tensors);
	/* of planes a number is that of their layer, the only one */
	if (values && plane_axis(o, first, values) >= 0 &&
	    kvt_name_is_numbered(first->name))
		values = NULL;
	return values ? open_single(o, first, values) : open_layers(o);
}

static enum kvt_status load_manifest(struct opening *o, const struct kvt_file *data,
				     const struct kvt_hints *hints)
{
	enum kvt_status status;
	bool found;

	if (!o->tensors->manifest || (hints && hints->manifest))
		return kvt_manifest_load(&o->manifest, &found, data, hints, o->err);
	status = kvt_manifest_parse(&o->manifest, o->tensors->manifest,
				    strlen(o->tensors->manifest), o->reader->leaf.path,
				    hints,
				    o->err);
	/* one file, whose tensors fill it to the byte */
	o->manifest.proof = KVT_PROOF_HEADER;
	return status;
}

/* 'data' is the file, or the folder, beside which there may be a manifest. */
static enum kvt_status make(struct kvt_reader *reader, const struct kvt_tensors *tensors,
			    int file, const struct kvt_file *data,
			    const struct kvt_hints *hints, struct kvt_error *err)
{
	struct opening o = { .reader = reader, .tensors = tensors, .err = err,
			     .file = file, .names = kvt_fact(hints, "names") };
	enum kvt_status status = load_manifest(&o, data, hints);

	if (status)
		return status;
	if (!(status = open_tensors(&o)))
		status = kvt_manifest_adopt(reader, &o.manifest, err);
	kvt_manifest_free(&o.manifest);
	free(o.guessed);
	return status;
}

enum kvt_status kvt_tensors_open(struct kvt_reader *reader, const char *path,
				 const struct kvt_hints *hints,
				 kvt_tensors_fn *read, struct kvt_error *err)
{
	struct kvt_tensors tensors;
	enum kvt_status status;
	int file;

	if ((status = kvt_files_open(&reader->files, &file, path, err)) ||
	    (status = read(&tensors, &reader->files.file[file], err)))
		return status;
	kvt_tensors_prove(reader, file, &tensors);
	if (!(status = kvt_tensors_cut(reader, &tensors, &reader->files.file[file],
				       hints, err)))
		status = make(reader, &tensors, file, &reader->files.file[file], hints,
			      err);
	kvt_tensors_free(&tensors);
	return status;
}

enum kvt_status kvt_tensors_make(struct kvt_reader *reader,
				 const struct kvt_tensors *tensors,
				 const struct kvt_hints *hints, struct kvt_error *err)
{
	const struct kvt_file folder = { .path = reader->leaf.path };

	return make(reader, tensors, 0, &folder, hints, err);
}

bool kvt_tensors_in_layout(const struct kvt_group *group, const struct kvt_layout *said)
{
	struct kvt_layout layers = *said;

	add_layers_axis(&layers);
	if (kvt_layout_apart(&group->layout))
		take_apart(&layers);
	return kvt_layout_agree(&layers, &group->layout, &group->shape);
}

const char *const kvt_tensors_facts[] = { "names", "padded", NULL };
