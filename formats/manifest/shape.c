/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape.c - shapes of arrays against axes: of one layout, of all presets
 *
 * An array has a dimension for each part of the layout's order, the first ones perhaps
 * joined, or it is flat.
 */
#include "formats/manifest/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/print.h"

/* ---- from the shape ----------------------------------------------------- */

/* What an array may lack or join of the axes of an order. */
struct reading {
	bool fuse;		/* K and D are one axis; opaque content has no K */
	bool no_heads;		/* of opaque content */
	bool one_layer;		/* there is no L: a tensor of one layer */
};

/*
 * The extents that an array of this shape has if its axes are those of the order, read
 * that way.  False if the shape does not fit, or not what is known.
 */
static bool match_axes(int64_t n[KVT_NAXES], const struct kvt_order *order,
		       bool latent, struct reading as, int rank, const int64_t *shape)
{
	int64_t found[KVT_NAXES];
	int at = 0;

	for (int a = 0; a < KVT_NAXES; a++)
		found[a] = 1;
	for (int i = 0; i < order->nparts; i++) {
		enum kvt_axis axis = order->part[i].axis;

		if (order->part[i].kind != KVT_WHOLE)
			return false;
		if (as.fuse && axis == KVT_AXIS_K) {
			if (!latent && (i + 1 == order->nparts ||
					order->part[i + 1].axis != KVT_AXIS_D))
				return false;
			continue;
		}
		if ((as.no_heads && axis == KVT_AXIS_H) ||
		    (as.one_layer && axis == KVT_AXIS_L))
			continue;
		if (at == rank)
			return false;
		found[axis] = shape[at++];
	}
	if (at != rank)
		return false;
	if (as.fuse && !latent) {
		if (found[KVT_AXIS_D] % 2)
			return false;
		found[KVT_AXIS_D] /= 2;
		found[KVT_AXIS_K] = 2;
	}
	if (found[KVT_AXIS_K] != (latent ? 1 : 2))
		return false;
	for (int a = 0; a < KVT_NAXES; a++)
		if (n[a] >= 0 && n[a] != found[a])
			return false;
	memcpy(n, found, sizeof(found));
	return true;
}

/* The first way to read it that fits: all axes before those of one layer. */
static bool match_shape(int64_t n[KVT_NAXES], struct reading *as,
			const struct kvt_layout *layout, bool latent, int rank,
			const int64_t *shape)
{
	for (int i = 0; i < 8; i++) {
		*as = (struct reading){ i & 1, i & 2, i & 4 };
		if (layout->nplanes == 1 && (latent || !as->no_heads) &&
		    match_axes(n, &layout->plane[0], latent, *as, rank, shape))
			return true;
	}
	return false;
}

/* Extents above 1, of two planes 2 first; 'fuse' joins K and D.  Returns how many. */
static int squeeze(int64_t out[32], const struct kvt_group *group, bool fuse)
{
	const struct kvt_order *order = &group->layout.plane[0];
	int count = 0;

	if (group->layout.nplanes == 2)
		out[count++] = 2;
	for (int i = 0; i < order->nparts; i++) {
		int64_t n = group->shape.n[order->part[i].axis];

		if (fuse && order->part[i].axis == KVT_AXIS_K &&
		    i + 1 < order->nparts && order->part[i + 1].axis == KVT_AXIS_D)
			n *= group->shape.n[order->part[++i].axis];
		if (n != 1)
			out[count++] = n;
	}
	return count;
}

/* Does each part stand for one axis of an array?  Of two planes, in the same order. */
static bool has_axes(const struct kvt_layout *layout)
{
	const struct kvt_order *order = layout->plane, *other = &layout->plane[1];

	for (int i = 0; i < order->nparts; i++)
		if (order->part[i].kind != KVT_WHOLE ||
		    (layout->nplanes == 2 &&
		     (order->part[i].axis == KVT_AXIS_K || i >= other->nparts ||
		      other->part[i].kind != KVT_WHOLE ||
		      other->part[i].axis != order->part[i].axis)))
			return false;
	return true;
}

/*
 * An array with as many axes as the layout has must have them in the layout's
 * order: else the bytes would be there, in the wrong places.  One with fewer
 * has some of them joined, which says nothing.  One of both planes has the planes first.
 */
enum kvt_status kvt_manifest_fit_axes(const struct kvt_group *group,
				  const struct kvt_array *array, struct kvt_error *err)
{
	const struct kvt_order *order = &group->layout.plane[0];
	bool planes = group->layout.nplanes == 2;
	int count = 0, nparts = order->nparts + planes;
	int64_t here[32], axes[32] = { 2 };

	if (array->rank != nparts || group->page_bytes || !has_axes(&group->layout))
		return KVT_OK;
	for (int i = 0; i < array->rank; i++)
		if (array->shape[i] != 1)
			here[count++] = array->shape[i];
	for (int fuse = 0; fuse < 2; fuse++)
		if (squeeze(axes, group, fuse) == count &&
		    !memcmp(here, axes, (size_t)count * sizeof(*here)))
			return KVT_OK;
	axes[0] = 2;
	for (int i = 0; i < order->nparts; i++)
		axes[i + planes] = group->shape.n[order->part[i].axis];
	return kvt_fail(err, KVT_BAD_INPUT,
			"%.160s: shape is %.100s, but layout %s has %.100s", array->name,
			kvt_extents_text(array->rank, array->shape).s,
			kvt_layout_string(&group->layout).s,
			kvt_extents_text(nparts, axes).s);
}

/* ---- no layout ---------------------------------------------------------- */

/* A preset whose axes an array has. */
struct fit {
	const struct kvt_preset *preset;
	struct reading as;
	int64_t n[KVT_NAXES];
};

enum { MAX_FITS = 64 };

/* Of one layer presets are alike that have L at different places. */
static bool is_alike(const struct fit *a, const struct fit *b)
{
	struct kvt_layout x, y;
	const struct kvt_shape shape = { .elem = 1, .n = {
		a->n[0], a->n[1], a->n[2], a->n[3], a->n[4], a->n[5] } };

	return a->as.one_layer && b->as.one_layer && !memcmp(a->n, b->n, sizeof(a->n)) &&
	       !kvt_layout_parse(&x, a->preset->axes, NULL) &&
	       !kvt_layout_parse(&y, b->preset->axes, NULL) &&
	       kvt_layout_agree(&x, &y, &shape);
}

static int proof_of(const struct fit *fit)
{
	return fit->preset->latent ? 2 : fit->as.fuse;
}

/* Those that have an axis for K, which must be 2, before those where any number fits. */
static int by_proof(const void *a, const void *b)
{
	const struct fit *x = a, *y = b;
	int more = proof_of(x) - proof_of(y);

	return more ? more : x->preset < y->preset ? -1 : x->preset > y->preset;
}

/* Of kvtool's own presets. */
static int find_fits(struct fit out[MAX_FITS], const struct kvt_group *group,
		     const struct kvt_array *array)
{
	const struct kvt_preset *preset;
	struct kvt_layout layout;
	int count = 0;

	for (int i = 0; (preset = kvt_preset_at(i)) && count < MAX_FITS; i++) {
		struct fit *fit = &out[count];
		int same = 0;

		fit->preset = preset;
		memcpy(fit->n, group->shape.n, sizeof(fit->n));
		if (strchr(preset->name, ':') ||
		    kvt_layout_parse(&layout, preset->axes, NULL) ||
		    !match_shape(fit->n, &fit->as, &layout, preset->latent, array->rank,
				 array->shape))
			continue;
		while (same < count && !is_alike(&out[same], fit))
			same++;
		count += same == count;
	}
	qsort(out, (size_t)count, sizeof(*out), by_proof);
	return count;
}

/* The first one in words; the others are "(2, 64 of 16, 8 of 32)". */
static struct kvt_text print_fit(const struct fit *fit, bool first)
{
	const char *blocks = first ? " blocks" : "", *tokens = first ? " tokens" : "";
	const int64_t *n = fit->n;
	struct kvt_text t;
	int used;

	used = snprintf(t.s, sizeof(t.s), "%s (%lld%s, %lld%s of %lld%s, ",
			fit->preset->name, LL(n[KVT_AXIS_L]),
			!first ? "" : n[KVT_AXIS_L] == 1 ? " layer" : " layers",
			LL(n[KVT_AXIS_B]), blocks, LL(n[KVT_AXIS_S]), tokens);
	if (fit->preset->latent)
		snprintf(t.s + used, sizeof(t.s) - (size_t)used, "rows of %lld)",
			 LL(n[KVT_AXIS_D]));
	else
		snprintf(t.s + used, sizeof(t.s) - (size_t)used, "%lld%s of %lld)",
			 LL(n[KVT_AXIS_H]), first ? " heads" : "", LL(n[KVT_AXIS_D]));
	return t;
}

/* Presets that have this shape, with the sizes it then has. */
static void list_presets(char *list, size_t size, const struct kvt_group *group,
			 const struct kvt_array *array)
{
	struct fit fit[MAX_FITS];
	int count = find_fits(fit, group, array);
	size_t used = 0;

	snprintf(list, size, "none that has a name");
	for (int i = 0; i < count; i++) {
		const struct kvt_text text = print_fit(&fit[i], !i);

		if (used + strlen(text.s) + sizeof(" and 99 more") > size) {
			snprintf(list + used, size - used, " and %d more", count - i);
			return;
		}
		used += (size_t)snprintf(list + used, size - used, "%s%s", i ? ", " : "",
					 text.s);
	}
}

enum kvt_status kvt_manifest_fit_other(const struct kvt_group *group,
				       const struct kvt_array *array,
				       struct kvt_error *err)
{
	char list[260];

	list_presets(list, sizeof(list), group, array);
	return kvt_fail(err, KVT_BAD_INPUT,
			"%.90s: layout %s has no reading of its shape, %.60s, which could be %s: give another --layout, or sizes, such as --heads and --head-dim",
			array->name, kvt_layout_called(&group->layout).s,
			kvt_extents_text(array->rank, array->shape).s, list);
}

/* "--layout, --dtype and --heads" of what is not known yet. */
static void list_missing(char *list, size_t size, const struct kvt_manifest *manifest,
			 const struct kvt_array *array)
{
	const struct kvt_group *group = &manifest->snapshot.group[0];
	const struct {
		const char *option;
		bool open;
	} rows[] = {
		{ "--layout", true },
		{ "--dtype", !group->dtype && !array->dtype },
		{ "--layers", !array->rank && group->shape.n[KVT_AXIS_L] < 0 },
		{ "--block-size", !array->rank && group->block_size < 0 },
		{ "--heads", !array->rank && group->shape.n[KVT_AXIS_H] < 0 },
		{ "--head-dim", !array->rank && group->shape.n[KVT_AXIS_D] < 0 },
		{ "--in-order", manifest->lacks_rank },
		{ "--total-heads", manifest->lacks_rank },
	};
	size_t used = 0;
	int left = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		left += rows[i].open;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && used < size; i++)
		if (rows[i].open)
			used += (size_t)snprintf(list + used, size - used, "%s%s",
						 rows[i].option, --left > 1 ? ", " :
						 left ? " and " : "");
}

enum kvt_status kvt_manifest_fit_presets(const struct kvt_manifest *manifest,
				 const struct kvt_array *array, struct kvt_error *err)
{
	const struct kvt_group *group = &manifest->snapshot.group[0];
	const char *aside = manifest->passed_over ?
			    " (the one beside it belongs to another file)" : "";
	char list[190], missing[128], elements[32] = "";

	list_missing(missing, sizeof(missing), manifest, array);
	if (!array->rank && array->elem)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.160s: %lld bytes of keys and values in tensors of their own, no manifest%s; give %s, or --manifest",
				array->name, LL(array->nbytes), aside, missing);
	if (!array->rank)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.160s: %lld bytes, no header, no manifest%s; give %s, or --manifest; kvtool guess may help",
				array->name, LL(array->nbytes), aside, missing);
	list_presets(list, sizeof(list), group, array);
	if (array->dtype)
		snprintf(elements, sizeof(elements), "%s, ", array->dtype->name);
	else if (array->elem)
		snprintf(elements, sizeof(elements), "%lld-byte elements, ",
			 LL(array->elem));
	return kvt_fail(err, KVT_BAD_INPUT,
			"%.90s: array of %s%.60s, no manifest%s; could be %s: give %s, or --manifest; kvtool guess may help",
			array->name, elements,
			kvt_extents_text(array->rank, array->shape).s,
			aside, list, missing);
}

/* ---- what is given ------------------------------------------------------- */

bool kvt_group_opaque(const struct kvt_group *group)
{
	return kvt_layout_latent(&group->layout) || group->kind == KVT_MLA ||
	       kvt_is_recurrent(group->kind) || group->kind == KVT_OPAQUE;
}

/* Extents that were not given, from the shape; those that were given must agree. */
enum kvt_status kvt_manifest_fit_shape(struct kvt_group *group,
				 const struct kvt_array *array, struct kvt_error *err)
{
	bool latent = kvt_group_opaque(group) || group->shape.n[KVT_AXIS_K] == 1,
	     open = false;
	struct reading as;
	int64_t n[KVT_NAXES];

	for (int a = 0; a < KVT_NAXES; a++)
		open |= group->shape.n[a] < 0;
	if (!open || !array->rank || group->page_bytes)
		return KVT_OK;
	memcpy(n, group->shape.n, sizeof(n));
	if (match_shape(n, &as, &group->layout, latent, array->rank, array->shape)) {
		memcpy(group->shape.n, n, sizeof(n));
		return KVT_OK;
	}
	memset(n, 0xff, sizeof(n));	/* -1: unknown */
	if (!match_shape(n, &as, &group->layout, latent, array->rank, array->shape))
		return KVT_OK;		/* perhaps the size tells */
	for (int a = 0; a < KVT_NAXES; a++)
		if (group->shape.n[a] >= 0 && group->shape.n[a] != n[a])
			return kvt_fail(err, KVT_BAD_INPUT,
					"%.160s: shape %.120s in layout %s has %lld for the %s extent, not %lld",
					array->name,
					kvt_extents_text(array->rank, array->shape).s,
					kvt_layout_string(&group->layout).s, LL(n[a]),
					kvt_axis_name(a), LL(group->shape.n[a]));
	return KVT_OK;
}

enum kvt_status kvt_manifest_fit_file_shape(const struct kvt_manifest *manifest,
					    const struct kvt_array *array,
					    struct kvt_error *err)
{
	int rank = manifest->rank;
	int64_t nbytes = manifest->snapshot.group[0].shape.elem;

	if (!rank)
		return KVT_OK;
	if (array->rank &&
	    (rank != array->rank ||
	     memcmp(manifest->file_shape, array->shape, (size_t)rank * sizeof(int64_t))))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.160s: shape is %.120s, but file_shape is %.120s",
				array->name,
				kvt_extents_text(array->rank, array->shape).s,
				kvt_extents_text(rank, manifest->file_shape).s);
	if (array->rank)
		return KVT_OK;
	/* "<u2": its last digit is the size */
	if (manifest->npy_dtype[0])
		nbytes = atoi(manifest->npy_dtype + 2);
	for (int i = 0; i < rank; i++)
		if (__builtin_mul_overflow(nbytes, manifest->file_shape[i], &nbytes))
			nbytes = -1;
	if (nbytes != array->nbytes)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.160s: has %lld bytes of data, but file_shape %.120s makes %lld",
				array->name, LL(array->nbytes),
				kvt_extents_text(rank, manifest->file_shape).s,
				LL(nbytes));
	return KVT_OK;
}
