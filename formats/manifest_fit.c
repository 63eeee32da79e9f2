/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest_fit.c - what was said of a dump, against the file that holds it
 *
 * An extent that nobody gave may follow from the array's shape or, if it is the
 * only one, from the size.  A layout never does: many layouts have one shape.
 */
#include "formats/manifest.h"

#include <stdlib.h>
#include <string.h>

#define LL(x) ((long long)(x))

/* "5 x 48 x 16" */
struct shape_text {
	char s[200];
};

static struct shape_text print_shape(int rank, const int64_t *shape)
{
	struct shape_text text = { "a single element" };
	size_t used = 0;

	for (int i = 0; i < rank && used < sizeof(text.s); i++)
		used += (size_t)snprintf(text.s + used, sizeof(text.s) - used, "%s%lld",
					 i ? " x " : "", LL(shape[i]));
	return text;
}

/* ---- from the shape ----------------------------------------------------- */

/*
 * The extents that an array of this shape has if its axes are those of the
 * order.  Opaque content lacks K and perhaps H; else the last two, K and D, may
 * be one.  False if the shape does not fit, or not what is known.
 */
static bool match_axes(int64_t n[KVT_NAXES], const struct kvt_order *order,
		       bool latent, bool fuse, bool drop, int rank,
		       const int64_t *shape)
{
	int64_t found[KVT_NAXES];
	int at = 0;

	for (int a = 0; a < KVT_NAXES; a++)
		found[a] = 1;
	for (int i = 0; i < order->nparts; i++) {
		enum kvt_axis axis = order->part[i].axis;

		if (order->part[i].kind != KVT_WHOLE)
			return false;
		if (fuse && axis == KVT_AXIS_K) {
			if (!latent && (i + 1 == order->nparts ||
					order->part[i + 1].axis != KVT_AXIS_D))
				return false;
			continue;
		}
		if (drop && axis == KVT_AXIS_H)
			continue;
		if (at == rank)
			return false;
		found[axis] = shape[at++];
	}
	if (at != rank)
		return false;
	if (fuse && !latent) {
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

static bool match_shape(int64_t n[KVT_NAXES], const struct kvt_layout *layout,
			bool latent, int rank, const int64_t *shape)
{
	for (int drop = 0; drop <= latent; drop++)
		for (int fuse = 0; fuse < 2; fuse++)
			if (layout->nplanes == 1 &&
			    match_axes(n, &layout->plane[0], latent, fuse, drop, rank,
				       shape))
				return true;
	return false;
}

/* Extents above 1; 'fuse' makes one of K and D.  Returns how many. */
static int squeeze(int64_t out[32], const struct kvt_group *group, bool fuse)
{
	const struct kvt_order *order = &group->layout.plane[0];
	int count = 0;

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

/*
 * An array with as many axes as the layout has must have them in the layout's
 * order: else the bytes would be there, in the wrong places.  One with fewer
 * has some of them joined, which says nothing.
 */
static enum kvt_status check_axes(const struct kvt_group *group,
				  const struct kvt_array *array, struct kvt_error *err)
{
	int count = 0, nparts = group->layout.plane[0].nparts;
	int64_t here[32], axes[32];

	if (group->layout.nplanes != 1 || array->rank != nparts || group->page_bytes)
		return KVT_OK;
	for (int i = 0; i < nparts; i++)
		if (group->layout.plane[0].part[i].kind != KVT_WHOLE)
			return KVT_OK;
	for (int i = 0; i < array->rank; i++)
		if (array->shape[i] != 1)
			here[count++] = array->shape[i];
	for (int fuse = 0; fuse < 2; fuse++)
		if (squeeze(axes, group, fuse) == count &&
		    !memcmp(here, axes, (size_t)count * sizeof(*here)))
			return KVT_OK;
	for (int i = 0; i < nparts; i++)
		axes[i] = group->shape.n[group->layout.plane[0].part[i].axis];
	return kvt_fail(err, KVT_BAD_INPUT,
			"%.160s: shape is %.100s, but layout %s has %.100s", array->name,
			print_shape(array->rank, array->shape).s,
			kvt_layout_string(&group->layout).s, print_shape(nparts, axes).s);
}

/* ---- no layout ---------------------------------------------------------- */

/* Names of kvtool's own presets that have this shape, separated by commas. */
static void list_presets(char *list, size_t size, const struct kvt_group *group,
			 const struct kvt_array *array)
{
	const struct kvt_preset *preset;
	struct kvt_layout layout;
	size_t used = 0;

	list[0] = '\0';
	for (int i = 0; (preset = kvt_preset_at(i)); i++) {
		int64_t n[KVT_NAXES];

		memcpy(n, group->shape.n, sizeof(n));
		if (strchr(preset->name, ':') ||
		    kvt_layout_parse(&layout, preset->axes, NULL) ||
		    !match_shape(n, &layout, preset->latent, array->rank, array->shape) ||
		    used + strlen(preset->name) + 3 > size)
			continue;
		used += (size_t)snprintf(list + used, size - used, "%s%s",
					 used ? ", " : "", preset->name);
	}
}

static enum kvt_status no_layout(const struct kvt_manifest *manifest,
				 const struct kvt_array *array, struct kvt_error *err)
{
	char list[240];

	if (!array->rank)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.160s: nothing says how its %lld bytes are laid out; give --layout or --manifest",
				array->name, LL(array->nbytes));
	list_presets(list, sizeof(list), &manifest->snapshot.group[0], array);
	return kvt_fail(err, KVT_BAD_INPUT,
			"%.100s: shape %.60s fits %s; give --layout or --manifest",
			array->name, print_shape(array->rank, array->shape).s,
			list[0] ? list : "no layout with a name");
}

/* ---- what follows within a group ---------------------------------------- */

static enum kvt_status settle_states(struct kvt_group *group, const char *name,
				     struct kvt_error *err)
{
	int64_t *states = &group->shape.n[KVT_AXIS_S];
	int64_t tokens = group->tokens_per_state;

	if (tokens < 1) {
		if (*states < 0)
			*states = 1;
		return KVT_OK;
	}
	if (group->block_size >= 0 && group->block_size % tokens)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: blocks of %lld tokens are no multiple of %lld tokens a state",
				name, LL(group->block_size), LL(tokens));
	if (group->block_size >= 0)
		return kvt_manifest_extent(group, KVT_AXIS_S, group->block_size / tokens,
					   "block_size", name, err);
	if (*states >= 0 && __builtin_mul_overflow(*states, tokens, &group->block_size))
		return kvt_fail(err, KVT_BAD_INPUT, "%s: block size overflows", name);
	return KVT_OK;
}

static bool opaque(const struct kvt_group *group)
{
	return kvt_layout_latent(&group->layout) || group->kind == KVT_MLA ||
	       group->kind == KVT_MAMBA_CONV || group->kind == KVT_MAMBA_SSM ||
	       group->kind == KVT_OPAQUE;
}

static enum kvt_status settle_group(struct kvt_group *group, const char *name,
				    struct kvt_error *err)
{
	int64_t *n = group->shape.n;

	if (kvt_layout_latent(&group->layout) && n[KVT_AXIS_K] == 2)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: content of layout %s is opaque, so it has a size (content), no head_dim",
				name, kvt_layout_string(&group->layout).s);
	if (n[KVT_AXIS_K] < 0)
		n[KVT_AXIS_K] = opaque(group) ? 1 : 2;
	if (n[KVT_AXIS_H] < 0 && opaque(group) && group->kind != KVT_MAMBA_SSM)
		n[KVT_AXIS_H] = 1;
	if (group->tokens_per_state == 0)
		group->tokens_per_state = group->kind == KVT_MAMBA_CONV ||
					  group->kind == KVT_MAMBA_SSM ? -1 : 1;
	if (group->kind == KVT_NKINDS && group->window)
		group->kind = KVT_SLIDING_WINDOW;
	else if (group->kind == KVT_NKINDS && n[KVT_AXIS_K] == 2)
		group->kind = KVT_FULL_ATTENTION;
	return settle_states(group, name, err);
}

enum kvt_status kvt_manifest_finish_group(struct kvt_group *group,
					  const struct kvt_parallel *parallel,
					  const char *name, struct kvt_error *err)
{
	int64_t heads = group->shape.n[KVT_AXIS_H], tp = parallel->tp_size, total;

	if (group->kind == KVT_NKINDS)
		group->kind = heads == 1 ? KVT_MLA : KVT_OPAQUE;
	if (group->block_size < 0)
		group->block_size = 0;
	/* one head of how many?  A share and a replica look the same */
	if (group->total_heads < 0 && tp > 1 && group->kind != KVT_MLA)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: rank %lld of %lld holds %lld heads of an unknown number; total_kv_heads is missing",
				name, LL(parallel->tp_rank), LL(tp), LL(heads));
	if (group->total_heads < 0)
		group->total_heads = heads;
	total = group->total_heads;
	if (group->head_start < 0)
		group->head_start = total > 0 && total < INT32_MAX ?
				    parallel->tp_rank * total / tp : 0;
	if (group->replication < 0)
		group->replication = tp > total && total > 0 && tp % total == 0 ?
				     tp / total : 1;
	return KVT_OK;
}

/* ---- element type ------------------------------------------------------- */

static enum kvt_status fit_dtype(struct kvt_group *group,
				 const struct kvt_array *array, struct kvt_error *err)
{
	if (!group->dtype)
		group->dtype = array->dtype;
	if (!group->dtype)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: element type is not given; give --dtype", array->name);
	group->shape.elem = group->dtype->elem;
	/* integers may carry the bits of another type, as numpy's must */
	if (array->dtype && array->dtype != group->dtype && array->dtype->is_float)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: elements are %s, but dtype is %s", array->name,
				array->dtype->name, group->dtype->name);
	if (array->elem && array->elem != group->shape.elem)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: elements have %lld bytes, but dtype %s has %d",
				array->name, LL(array->elem), group->dtype->name,
				group->dtype->elem);
	return KVT_OK;
}

/* ---- from the size ------------------------------------------------------ */

static const char *option_of(enum kvt_axis axis, const struct kvt_group *group)
{
	static const char *const options[KVT_NAXES] = {
		[KVT_AXIS_L] = "--layers", [KVT_AXIS_B] = "--blocks",
		[KVT_AXIS_S] = "--block-size", [KVT_AXIS_H] = "--heads",
		[KVT_AXIS_K] = "--head-dim", [KVT_AXIS_D] = "--head-dim",
	};

	return axis == KVT_AXIS_D && group->shape.n[KVT_AXIS_K] == 1 ?
	       "--content" : options[axis];
}

/* The only open extent is what divides the size exactly. */
static enum kvt_status derive_open(struct kvt_group *group,
				   const struct kvt_array *array,
				   struct kvt_error *err)
{
	struct kvt_shape shape = group->shape;
	int open = -1, nopen = 0;
	int64_t nbytes;

	for (int a = 0; a < KVT_NAXES; a++)
		if (shape.n[a] < 0) {
			open = a;
			nopen++;
			shape.n[a] = 1;
		}
	if (!nopen)
		return KVT_OK;
	if (group->page_bytes && (open == KVT_AXIS_L || open == KVT_AXIS_B)) {
		shape.n[KVT_AXIS_S] = shape.n[KVT_AXIS_H] = shape.n[KVT_AXIS_K] = 1;
		shape.n[KVT_AXIS_D] = group->page_bytes;
		shape.elem = 1;
	}
	if (nopen > 1 || kvt_shape_nbytes(&nbytes, &shape, NULL) || !nbytes ||
	    array->nbytes % nbytes)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the number of %ss is not known; give %s",
				array->name, kvt_axis_name(open), option_of(open, group));
	group->shape.n[open] = array->nbytes / nbytes;
	return KVT_OK;
}

/* ---- all of it ---------------------------------------------------------- */

static enum kvt_status check_shape(const struct kvt_manifest *manifest,
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
				array->name, print_shape(array->rank, array->shape).s,
				print_shape(rank, manifest->file_shape).s);
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
				print_shape(rank, manifest->file_shape).s, LL(nbytes));
	return KVT_OK;
}

/* Extents that nobody gave, from the shape; those that were given must agree. */
static enum kvt_status fit_shape(struct kvt_group *group,
				 const struct kvt_array *array, struct kvt_error *err)
{
	bool latent = opaque(group) || group->shape.n[KVT_AXIS_K] == 1, open = false;
	int64_t n[KVT_NAXES];

	for (int a = 0; a < KVT_NAXES; a++)
		open |= group->shape.n[a] < 0;
	if (!open || !array->rank || group->page_bytes)
		return KVT_OK;
	memcpy(n, group->shape.n, sizeof(n));
	if (match_shape(n, &group->layout, latent, array->rank, array->shape)) {
		memcpy(group->shape.n, n, sizeof(n));
		return KVT_OK;
	}
	memset(n, 0xff, sizeof(n));	/* -1: unknown */
	if (!match_shape(n, &group->layout, latent, array->rank, array->shape))
		return KVT_OK;		/* perhaps the size tells */
	for (int a = 0; a < KVT_NAXES; a++)
		if (group->shape.n[a] >= 0 && group->shape.n[a] != n[a])
			return kvt_fail(err, KVT_BAD_INPUT,
					"%.160s: shape %.120s in layout %s has %lld for the %s extent, not %lld",
					array->name,
					print_shape(array->rank, array->shape).s,
					kvt_layout_string(&group->layout).s, LL(n[a]),
					kvt_axis_name(a), LL(group->shape.n[a]));
	return KVT_OK;
}

static enum kvt_status fit_single(struct kvt_group *group,
				  const struct kvt_array *array, struct kvt_error *err)
{
	enum kvt_status status;

	/* what is there counts before what may follow: H of MLA, say */
	if ((status = fit_shape(group, array, err)) ||
	    (status = fit_dtype(group, array, err)) ||
	    (status = settle_group(group, array->name, err)) ||
	    (status = derive_open(group, array, err)) ||
	    (status = settle_states(group, array->name, err)))
		return status;
	return check_axes(group, array, err);
}

static enum kvt_status fit_one_of_many(struct kvt_group *group, const char *name,
				       struct kvt_error *err)
{
	enum kvt_status status = settle_group(group, name, err);

	if (status)
		return status;
	if (!group->dtype)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: element type of group %s is not given", name,
				group->id);
	for (int a = 0; a < KVT_NAXES; a++)
		if (group->shape.n[a] < 0)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: %s extent of group %s is not given", name,
					kvt_axis_name(a), group->id);
	return KVT_OK;
}

/*
 * Pages, or dense arrays: the size tells.  Where groups fill their pages both
 * have the same; one array of several groups then holds pages, as engines do.
 */
static enum kvt_status fit_bytes(struct kvt_manifest *manifest,
				 const struct kvt_array *array, struct kvt_error *err)
{
	const struct kvt_snapshot *s = &manifest->snapshot;
	bool paged = kvt_snapshot_has_pages(s);
	int64_t dense, pages = -1;
	enum kvt_status status;

	if ((status = kvt_snapshot_file_bytes(&dense, s, false, err)) ||
	    (paged && (status = kvt_snapshot_file_bytes(&pages, s, true, err))))
		return status;
	manifest->pages = pages == array->nbytes;
	if (manifest->pages || dense == array->nbytes)
		return KVT_OK;
	if (paged)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has %lld bytes of data, but its pages make %lld",
				array->name, LL(array->nbytes), LL(pages));
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: has %lld bytes of data, "
			"but layout, sizes and type make %lld",
			array->name, LL(array->nbytes), LL(dense));
}

enum kvt_status kvt_manifest_fit(struct kvt_manifest *manifest,
				 const struct kvt_array *array, struct kvt_error *err)
{
	struct kvt_snapshot *s = &manifest->snapshot;
	enum kvt_status status;

	if (!manifest->has_layout)
		return no_layout(manifest, array, err);
	for (int g = 0; g < s->ngroups; g++) {
		if (s->ngroups == 1)
			status = fit_single(&s->group[g], array, err);
		else
			status = fit_one_of_many(&s->group[g], array->name, err);
		if (status || (status = kvt_manifest_finish_group(&s->group[g],
						&s->parallel, array->name, err)))
			return status;
	}
	if ((status = check_shape(manifest, array, err)))
		return status;
	return fit_bytes(manifest, array, err);
}
