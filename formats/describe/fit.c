/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fit.c - what was said of a dump, against the file that holds it
 *
 * An extent that was not given may follow from the array's shape or, if it is the only
 * one, from the size.  A layout never does: many layouts have one shape.
 *
 * In order, for one group and one array: extents of the shape, what follows within a
 * group (S of block size, K of the content), type, the size, and then the total of all
 * bytes, as dense arrays or as pages.  Of several groups everything must have been said.
 *
 * It is tried with the numbers of the user, on a copy.  Where that fails, but fits
 * without them, the message names the number that is wrong.
 */
#include "formats/describe/describe.h"

#include <string.h>

/* ---- what follows within a group ---------------------------------------- */

static enum kvt_status settle_slots(struct kvt_group *group, const char *name,
				    struct kvt_error *err)
{
	int64_t *slots = &group->shape.n[KVT_AXIS_S];
	int64_t tokens = group->tokens_per_slot;

	if (tokens < 1) {
		if (*slots < 0)
			*slots = 1;
		return KVT_OK;
	}
	if (group->block_size >= 0 && group->block_size % tokens)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: blocks of %lld tokens are not a multiple of %lld tokens per slot",
				name, LL(group->block_size), LL(tokens));
	if (group->block_size >= 0)
		return kvt_manifest_extent(group, KVT_AXIS_S, group->block_size / tokens,
					   "block_size", name, err);
	if (*slots >= 0 && __builtin_mul_overflow(*slots, tokens, &group->block_size))
		return kvt_fail(err, KVT_BAD_INPUT, "%s: block size overflows", name);
	return KVT_OK;
}

static enum kvt_status settle_group(struct kvt_group *group, const char *name,
				    struct kvt_error *err)
{
	int64_t *n = group->shape.n;

	if (kvt_layout_latent(&group->layout) && n[KVT_AXIS_K] == 2)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: content of layout %s is opaque: give its size as content, not as head_dim",
				name, kvt_layout_string(&group->layout).s);
	if (n[KVT_AXIS_K] < 0)
		n[KVT_AXIS_K] = kvt_group_opaque(group) ? 1 : 2;
	if (n[KVT_AXIS_H] < 0 && kvt_group_opaque(group) && group->kind != KVT_MAMBA_SSM)
		n[KVT_AXIS_H] = 1;
	if (group->tokens_per_slot == 0)
		group->tokens_per_slot = kvt_is_recurrent(group->kind) ? -1 :
					 kvt_content_ratio(group);
	if (group->kind == KVT_NKINDS && group->window)
		group->kind = KVT_SLIDING_WINDOW;
	else if (group->kind == KVT_NKINDS && n[KVT_AXIS_K] == 2)
		group->kind = KVT_FULL_ATTENTION;
	return settle_slots(group, name, err);
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
	/* one head of how many?  Replicas have one, shares may */
	if (group->total_heads < 0 && tp > 1 && heads == 1 && group->kind != KVT_MLA)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: rank %lld of %lld holds one head, its own or one that other ranks hold, too; give --total-heads, which is %lld if each rank has its own, or total_kv_heads in the manifest",
				name, LL(parallel->tp_rank), LL(tp), LL(tp));
	if (group->total_heads < 0)
		group->total_heads = group->kind == KVT_MLA || heads > INT32_MAX / tp ?
				     heads : heads * tp;
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
				"%s: the element type is not known; give --dtype, such as --dtype=bfloat16",
				array->name);
	group->shape.elem = group->dtype->elem;
	/* integers may carry the bits of another type, as numpy's must */
	if (array->dtype && array->dtype != group->dtype && array->dtype->is_float)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: elements are %s, but dtype is %s", array->name,
				array->dtype->name, group->dtype->name);
	/* pages with gaps are arrays of bytes, whatever is inside */
	if (array->elem == 1 && kvt_group_has_gaps(group))
		return KVT_OK;
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
	       "--content-size" : options[axis];
}

/* All that are open but one, which the size tells: that of blocks if it is there. */
static enum kvt_status ask_open(const struct kvt_group *group,
				const struct kvt_array *array, struct kvt_error *err)
{
	const char *ask[KVT_NAXES + 1];
	struct kvt_text list = { "" };
	size_t used = 0;
	int n = 0;

	if (!group->dtype && !array->dtype)
		ask[n++] = "--dtype";
	for (int a = 0; a < KVT_NAXES; a++)
		if (group->shape.n[a] < 0 && a != KVT_AXIS_B &&
		    (!n || ask[n - 1] != option_of(a, group)))
			ask[n++] = option_of(a, group);
	if (!n)
		ask[n++] = option_of(KVT_AXIS_B, group);
	for (int i = 0; i < n; i++)
		used += (size_t)snprintf(list.s + used, sizeof(list.s) - used, "%s%s",
					 i ? i + 1 < n ? ", " : " and " : "", ask[i]);
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: its sizes are not known; give %s%s", array->name, list.s,
			n > 1 ? ", or --spec instead of sizes" : "");
}

static int count_open(const struct kvt_group *group)
{
	int n = 0;

	for (int a = 0; a < KVT_NAXES; a++)
		n += group->shape.n[a] < 0;
	return n;
}

/* Are tokens all that is known of blocks? */
static bool is_flat(const struct kvt_group *group)
{
	return count_open(group) == 2 && group->shape.n[KVT_AXIS_B] < 0 &&
	       group->shape.n[KVT_AXIS_S] < 0;
}

/* The only open extent is what divides the size exactly. */
static enum kvt_status derive_open(struct kvt_manifest *manifest,
				   const struct kvt_array *array, struct kvt_error *err)
{
	struct kvt_group *group = &manifest->snapshot.group[0];
	struct kvt_shape shape = group->shape;
	int open = -1, nopen = count_open(group);
	int64_t nbytes;

	for (int a = 0; a < KVT_NAXES; a++)
		if (shape.n[a] < 0) {
			open = a;
			shape.n[a] = 1;
		}
	if (!nopen)
		return KVT_OK;
	if (group->page_bytes && (open == KVT_AXIS_L || open == KVT_AXIS_B)) {
		shape.n[KVT_AXIS_S] = shape.n[KVT_AXIS_H] = shape.n[KVT_AXIS_K] = 1;
		shape.n[KVT_AXIS_D] = group->page_bytes;
		shape.elem = 1;
	}
	if (nopen > 1 && array->rank > 1 && !is_flat(group))
		return kvt_manifest_fit_other(manifest, array, err);
	if (nopen > 1 || kvt_shape_nbytes(&nbytes, &shape, NULL) || !nbytes)
		return ask_open(group, array, err);
	if (array->nbytes % nbytes)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has %lld bytes, not a multiple of the %lld of one %s: it was cut, or another size is wrong; give %s to hold all against it",
				array->name, LL(array->nbytes), LL(nbytes),
				kvt_axis_name(open), option_of(open, group));
	group->shape.n[open] = array->nbytes / nbytes;
	manifest->derived = true;
	return KVT_OK;
}

/* ---- all of it ---------------------------------------------------------- */

static enum kvt_status fit_single(struct kvt_manifest *manifest,
				  const struct kvt_array *array, struct kvt_error *err)
{
	struct kvt_group *group = &manifest->snapshot.group[0];
	enum kvt_status status;

	kvt_content_defaults(group);
	/* what is there counts before what may follow: H of MLA, say */
	if ((status = kvt_manifest_fit_shape(group, array, err)) ||
	    (status = settle_group(group, array->name, err)))
		return status;
	if (!group->dtype && !array->dtype && !array->rank && count_open(group) > 1)
		return ask_open(group, array, err);
	if ((status = fit_dtype(group, array, err)) ||
	    (status = derive_open(manifest, array, err)) ||
	    (status = settle_slots(group, array->name, err)) ||
	    (status = kvt_manifest_fit_axes(group, array, err)))
		return status;
	return kvt_content_fold(group, array->name, err);
}

static enum kvt_status fit_one_of_many(struct kvt_group *group, const char *name,
				       struct kvt_error *err)
{
	enum kvt_status status;

	kvt_content_defaults(group);
	if (!group->layout.nplanes)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: layout of group %s is not given",
				name, group->id);
	if ((status = settle_group(group, name, err)))
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
	return kvt_content_fold(group, name, err);
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
	struct kvt_error why = { "" };
	enum kvt_status status;

	if ((status = kvt_snapshot_file_bytes(&dense, s, false, &why)))
		return kvt_fail(err, status, "%s: %.400s", array->name, why.text);
	/* groups with different pages can only be dense */
	if (paged && kvt_snapshot_file_bytes(&pages, s, true, NULL))
		paged = false;
	manifest->pages = paged && pages == array->nbytes;
	if (manifest->pages || dense == array->nbytes)
		return KVT_OK;
	if (paged)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has %lld bytes of data, but its pages make %lld",
				array->name, LL(array->nbytes), LL(pages));
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: has %lld bytes of data, but layout, sizes and type make %lld",
			array->name, LL(array->nbytes), LL(dense));
}

/* With the numbers that were said, or without; one array for a single group, or NULL. */
static enum kvt_status fit_groups(struct kvt_manifest *manifest, bool numbers,
				  const struct kvt_array *array, const char *name,
				  struct kvt_error *err)
{
	struct kvt_snapshot *s = &manifest->snapshot;
	enum kvt_status status;

	for (int g = 0; g < s->ngroups; g++) {
		kvt_manifest_fill_dtype(&s->group[g], manifest->hints,
					array ? array->dtype : NULL);
		if ((numbers && (status = kvt_manifest_fill(manifest, g, name, err))) ||
		    (status = array && s->ngroups == 1 ?
			      fit_single(manifest, array, err) :
			      fit_one_of_many(&s->group[g], name, err)) ||
		    (status = kvt_manifest_finish_group(&s->group[g], &s->parallel, name,
							err)))
			return status;
	}
	return KVT_OK;
}

enum kvt_status kvt_manifest_complete(struct kvt_manifest *manifest, const char *name,
				      struct kvt_error *err)
{
	if (!manifest->has_layout)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: the layout is not given", name);
	return fit_groups(manifest, true, NULL, name, err);
}

static enum kvt_status fit_array(struct kvt_manifest *manifest, bool numbers,
				 const struct kvt_array *array, struct kvt_error *err)
{
	enum kvt_status status;

	if ((status = fit_groups(manifest, numbers, array, array->name, err)) ||
	    (status = kvt_manifest_fit_file_shape(manifest, array, err)))
		return status;
	return fit_bytes(manifest, array, err);
}

/* Of numbers with which an array does not fit it tells itself which are wrong, if any. */
enum kvt_status kvt_manifest_fit(struct kvt_manifest *manifest,
				 const struct kvt_array *array, struct kvt_error *err)
{
	struct kvt_manifest filled = *manifest;
	struct kvt_error why = { "" };
	enum kvt_status status;

	if (manifest->tensor.row_bytes || manifest->caches)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: its manifest has %s, which are of a file without a header", array->name,
				manifest->caches ? "tensors" : "rows and row_bytes");
	if (!array->rank && array->elem)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: is a single number, an array without axes; expected one with axes for layers, tokens and heads",
				array->name);
	if (!manifest->has_layout) {
		kvt_manifest_fill_dtype(&filled.snapshot.group[0], manifest->hints,
					array->dtype);
		status = kvt_manifest_fill(&filled, 0, array->name, err);
		return status ? status : kvt_manifest_fit_presets(&filled, array, err);
	}
	status = fit_array(&filled, true, array, err);
	if (!status)
		*manifest = filled;
	else if (!fit_array(manifest, false, array, NULL) &&
		 kvt_hints_compare_numbers(manifest->hints, &manifest->snapshot,
					   array->name, &why))
		return kvt_fail(err, status, "%s", why.text);
	return status;
}
