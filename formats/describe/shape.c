/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape.c - the shape of an array against what was said of it
 *
 * With a layout the shape tells what was not said, and contradicts what was; without one
 * the layouts that it allows are listed, with all else that is missing.
 */
#include "formats/describe/describe.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/print.h"

/* ---- from the shape ----------------------------------------------------- */

/* Axes of an array in the order of a layout; planes that are apart have no K. */
static int axes_of(enum kvt_axis out[KVT_MAX_PARTS + 1], const struct kvt_layout *layout,
		   const struct kvt_array *array)
{
	const struct kvt_order *order = &layout->plane[0];
	int count = 0;

	if (layout->nplanes == 2 && !array->apart)
		out[count++] = KVT_AXIS_K;
	for (int i = 0; i < order->nparts; i++)
		out[count++] = order->part[i].axis;
	return count;
}

/* Extents above 1; 'fuse' joins K and D.  Returns how many. */
static int squeeze(int64_t out[32], const struct kvt_group *group,
		   const enum kvt_axis *axis, int naxes, bool fuse)
{
	int count = 0;

	for (int i = 0; i < naxes; i++) {
		int64_t n = group->shape.n[axis[i]];

		if (fuse && axis[i] == KVT_AXIS_K && i + 1 < naxes &&
		    axis[i + 1] == KVT_AXIS_D)
			n *= group->shape.n[axis[++i]];
		if (n != 1)
			out[count++] = n;
	}
	return count;
}

/*
 * An array with as many axes as the layout has must have them in the layout's order, or
 * in the one that engines declare for it: else the bytes would be there, in the wrong
 * places.  One with fewer has some of them joined, which says nothing.  One of both
 * planes has the planes first.
 */
enum kvt_status kvt_manifest_fit_axes(const struct kvt_group *group,
				  const struct kvt_array *array, struct kvt_error *err)
{
	enum kvt_axis axis[KVT_MAX_PARTS + 1];
	struct kvt_layout declared;
	int64_t here[32], axes[32];
	int count = 0, naxes;
	bool is_packed;

	if (!kvt_layout_declared(&declared, &is_packed, &group->layout))
		return KVT_OK;
	naxes = axes_of(axis, &declared, array);
	if (array->rank != naxes || group->page_bytes)
		return KVT_OK;
	for (int i = 0; i < array->rank; i++)
		if (array->shape[i] != 1)
			here[count++] = array->shape[i];
	for (int fuse = 0; fuse < 2; fuse++)
		if (squeeze(axes, group, axis, naxes, fuse) == count &&
		    !memcmp(here, axes, (size_t)count * sizeof(*here)))
			return KVT_OK;
	for (int i = 0; i < naxes; i++)
		axes[i] = group->shape.n[axis[i]];
	return kvt_fail(err, KVT_BAD_INPUT,
			"%.160s: shape is %.100s, but layout %s has %.100s", array->name,
			kvt_extents_text(array->rank, array->shape).s,
			kvt_layout_string(&group->layout).s,
			kvt_extents_text(naxes, axes).s);
}

/* ---- no layout ---------------------------------------------------------- */

static bool has_sides(const struct kvt_manifest *manifest)
{
	return manifest->hints && manifest->hints->has_sides;
}

enum kvt_status kvt_manifest_fit_other(const struct kvt_manifest *manifest,
				       const struct kvt_array *array,
				       struct kvt_error *err)
{
	const struct kvt_group *group = &manifest->snapshot.group[0];
	char list[260];
	bool flat;
	int count = kvt_manifest_readings(list, sizeof(list), &flat, group, array);
	const char *other = has_sides(manifest) ?
			    "each its own, --a=layout=LAYOUT --b=layout=LAYOUT" :
			    "another --layout";
	bool said = group->shape.n[KVT_AXIS_H] >= 0 && group->shape.n[KVT_AXIS_D] >= 0;

	return kvt_fail(err, KVT_BAD_INPUT,
			"%.90s: layout %s has no reading of its shape, %.60s, which %s%s: give %s, or %ssizes, such as --heads and --head-dim",
			array->name, kvt_layout_called(&group->layout).s,
			kvt_extents_text(array->rank, array->shape).s,
			count ? "could be " : "is that of no layout with a name", list,
			other, said ? "other " : "");
}

/* "--layout, --dtype and --heads" of what is not known yet. */
static void list_missing(char *list, size_t size, const struct kvt_manifest *manifest,
			 const struct kvt_array *array, bool flat)
{
	const struct kvt_group *group = &manifest->snapshot.group[0];
	const struct {
		const char *option;
		bool open;
	} rows[] = {
		{ "--layout", true },
		{ "--dtype", !group->dtype && !array->dtype },
		{ "--layers", !array->rank && group->shape.n[KVT_AXIS_L] < 0 },
		{ "--block-size", (!array->rank || flat) && group->block_size < 0 },
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

/* What may stand before heads, tokens and elements in a cache that is no blocks. */
static const struct {
	const char *first;
	bool two;			/* keys and values in two tensors */
} plain[] = {
	{ "LB", true }, { "L", true }, { "B", true }, { "", true },
	{ "LKB", false }, { "KLB", false }, { "LK", false }, { "KL", false },
};
enum { NPLAIN = sizeof(plain) / sizeof(plain[0]) };

/* More layers than models have, or sequences in a batch, are blocks. */
static bool fits_plain(const struct kvt_array *array, int i)
{
	enum { MOST_LAYERS = 256, MOST_ROWS = 64 };
	const int64_t *n = array->shape + array->either;
	const char *first = plain[i].first;
	bool fits = plain[i].two == array->either && n[0] <= MOST_LAYERS &&
		    array->rank - array->either == (int)strlen(first) + 3;

	for (int j = 0; fits && first[j]; j++)
		fits = n[j] && (first[j] == 'K' ? n[j] == 2 :
				n[j] <= (first[j] == 'L' ? MOST_LAYERS : MOST_ROWS));
	return fits;
}

/* ", or --from=transformers --set=axes=LKHTD (THD: tokens first) if it is no blocks" */
static struct kvt_text plain_text(const struct kvt_array *array)
{
	struct kvt_text t = { "" };
	size_t used = 0;

	if (array->apart || array->of_layers != array->either ||
	    (!array->is_tensor && array->rank != 5))
		return t;
	for (int i = 0; i < NPLAIN; i++)
		if (fits_plain(array, i))
			used += (size_t)snprintf(t.s + used, sizeof(t.s) - used, "%s%s%s",
						 used ? " or " : array->is_tensor ?
						 ", or --from=transformers --set=axes=" :
						 ", or --layout=", plain[i].first,
						 array->is_tensor ? "HTD" : "HSD");
	if (used)
		snprintf(t.s + used, sizeof(t.s) - used,
			 " (%s: tokens first) if it is no blocks",
			 array->is_tensor ? "THD" : "SHD");
	return t;
}

enum kvt_status kvt_manifest_fit_presets(const struct kvt_manifest *manifest,
				 const struct kvt_array *array, struct kvt_error *err)
{
	const struct kvt_group *group = &manifest->snapshot.group[0];
	const char *aside = manifest->passed_over ?
			    " (the one beside it belongs to another file)" : "";
	char list[sizeof(err->text)], missing[128], elements[32] = "", head[400];
	bool flat = false;
	size_t n = 0;

	if (array->rank)
		kvt_manifest_readings(list, sizeof(list), &flat, group, array);
	list_missing(missing, sizeof(missing), manifest, array, flat);
	if (!array->rank)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.160s: %lld bytes, no header, no manifest%s; give %s, or --manifest; kvtool guess may help",
				array->name, LL(array->nbytes), aside, missing);
	if (array->dtype)
		snprintf(elements, sizeof(elements), "%s, ", array->dtype->name);
	else if (array->elem)
		snprintf(elements, sizeof(elements), "%lld-byte elements, ",
			 LL(array->elem));
	n = (size_t)snprintf(head, sizeof(head),
			     "%.90s: %s of %s%.60s, no manifest%s; give %s%s, or --manifest (kvtool guess may help)%s; ",
			     array->name, array->apart ? "keys and values" :
			     array->either ? "two tensors" : "array", elements,
			     kvt_extents_text(array->rank - array->either,
					      array->shape + array->either).s,
			     aside, missing, has_sides(manifest) ?
			     " (for each its own: --a=layout=LAYOUT --b=layout=LAYOUT)" : "",
			     plain_text(array).s);
	/* last, because a long list is cut where there is no room for it */
	if (!kvt_manifest_readings(list, sizeof(list) - n - sizeof("it could be "), &flat,
				   group, array))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%sno layout with a name has this shape", head);
	return kvt_fail(err, KVT_BAD_INPUT, "%sit could be %s", head, list);
}

/* ---- what is given ------------------------------------------------------- */

bool kvt_group_opaque(const struct kvt_group *group)
{
	return kvt_layout_latent(&group->layout) || group->kind == KVT_MLA ||
	       kvt_is_recurrent(group->kind) || group->kind == KVT_OPAQUE;
}

/* The shape fits, but not with these numbers, of which 'n' has others. */
static enum kvt_status refuse_sizes(const struct kvt_group *group, const int64_t *n,
				    const struct kvt_array *array, struct kvt_error *err)
{
	static const enum kvt_axis axes[KVT_NAXES] = {
		KVT_AXIS_L, KVT_AXIS_B, KVT_AXIS_H, KVT_AXIS_K, KVT_AXIS_D, KVT_AXIS_S };

	/* slots last: a block size may be of the engine, and not of the bytes */
	for (int i = 0; i < KVT_NAXES; i++) {
		enum kvt_axis a = axes[i];
		int64_t said = a == KVT_AXIS_S ? kvt_group_slots(group) :
						 group->shape.n[a];

		if (said >= 0 && n[a] >= 0 && said != n[a])
			return kvt_fail(err, KVT_BAD_INPUT,
					"%.160s: shape %.120s in layout %s has %lld for the %s extent, not %lld",
					array->name,
					kvt_extents_text(array->rank, array->shape).s,
					kvt_layout_string(&group->layout).s, LL(n[a]),
					kvt_axis_name(a), LL(said));
	}
	return KVT_OK;
}

/* Extents that were not given, from the shape; those that were given must agree. */
enum kvt_status kvt_manifest_fit_shape(struct kvt_group *group,
				 const struct kvt_array *array, struct kvt_error *err)
{
	bool latent = kvt_group_opaque(group) || group->shape.n[KVT_AXIS_K] == 1,
	     open = false;
	int64_t slots = kvt_group_slots(group), n[KVT_NAXES];
	struct kvt_reading as;

	for (int a = 0; a < KVT_NAXES; a++)
		open |= group->shape.n[a] < 0;
	if (!open || !array->rank || group->page_bytes)
		return KVT_OK;
	memcpy(n, group->shape.n, sizeof(n));
	n[KVT_AXIS_S] = slots;
	if (kvt_match_shape(n, &as, &group->layout, latent, slots, array)) {
		memcpy(group->shape.n, n, sizeof(n));
		return KVT_OK;
	}
	memset(n, 0xff, sizeof(n));	/* -1: unknown */
	if (!kvt_match_shape(n, &as, &group->layout, latent, -1, array) || as.declared)
		return KVT_OK;		/* perhaps the size tells */
	if (as.flat && slots > 0 && as.tokens % slots)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.160s: shape %.120s in layout %s has %lld tokens, which are no blocks of %lld",
				array->name,
				kvt_extents_text(array->rank, array->shape).s,
				kvt_layout_string(&group->layout).s, LL(as.tokens),
				LL(slots));
	return refuse_sizes(group, n, array, err);
}

enum kvt_status kvt_manifest_fit_file_shape(const struct kvt_manifest *manifest,
					    const struct kvt_array *array,
					    struct kvt_error *err)
{
	int rank = manifest->rank;
	bool whole = array->rank && !array->apart;
	int64_t nbytes = manifest->snapshot.group[0].shape.elem;

	if (!rank)
		return KVT_OK;
	if (whole &&
	    (rank != array->rank ||
	     memcmp(manifest->file_shape, array->shape, (size_t)rank * sizeof(int64_t))))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.160s: shape is %.120s, but file_shape is %.120s",
				array->name,
				kvt_extents_text(array->rank, array->shape).s,
				kvt_extents_text(rank, manifest->file_shape).s);
	if (whole)
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
