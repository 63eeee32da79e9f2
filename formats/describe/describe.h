/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe.h - building up what is known of a group, from whatever says something
 *
 *	group.c, mamba.c, caches.c	a JSON object: manifests, snapshots as JSON
 *	fill.c				what the user says, where nothing else does
 *	spec_hint.c, model_hint.c	of it --spec and --model
 *	fit.c				against the file: sizes and type must agree
 *	shape.c, match.c, readings.c	against an array's shape; layouts that it allows
 *	content.c			what follows from a content type
 *	hints.c				last, of any format: is all that was said so?
 *
 * A group begins blank: extents -1, no type, no kind.  What is said is never overridden,
 * and said twice it must be the same.  What is open in the end is asked for, all at
 * once.
 */
#ifndef KVT_FORMATS_DESCRIBE_H
#define KVT_FORMATS_DESCRIBE_H

#include "formats/format.h"
#include "formats/parse/json.h"

/* The one group that an object without "groups" describes. */
void kvt_manifest_group(struct kvt_manifest *out, struct kvt_group *group,
			const struct kvt_json *in);
/* Layout "mamba-page": a conv and an SSM group in one page. */
void kvt_manifest_mamba(struct kvt_manifest *out, const struct kvt_json *in);

/* What a group needs that follows from the rest of it and from TP. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_finish_group(struct kvt_group *group, const struct kvt_parallel *parallel,
			  const char *name, struct kvt_error *err);

/* Words that hints fill in, and ranks that they must not deny. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_hints(struct kvt_manifest *out, const struct kvt_hints *hints,
		   const char *name, struct kvt_error *err);
/* The element type, but of arrays that name it themselves; own: theirs, or NULL. */
void kvt_manifest_fill_dtype(struct kvt_group *group, const struct kvt_hints *hints,
			     const struct kvt_dtype *own);
/* Numbers of a group that hints fill in, and what a spec says. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_fill(struct kvt_manifest *manifest, int g, const char *name,
		  struct kvt_error *err);

/* What hints->spec says of kind, window, pages and parts, as far as nothing does. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_spec(struct kvt_group *group, const struct kvt_hints *hints,
		  const struct kvt_parallel *parallel, const char *name,
		  struct kvt_error *err);

/* Far above anything real, and small enough that sums of two do not overflow. */
#define KVT_MOST INT64_C(0x3fffffffffffffff)

/* Keys of a group, each as far as it is there. */
void kvt_manifest_take_extent(struct kvt_group *group, enum kvt_axis axis,
			      const struct kvt_json *in, const char *key);
void kvt_manifest_take_dtype(struct kvt_group *group, const struct kvt_json *in);
void kvt_manifest_take_content_type(struct kvt_group *group, const struct kvt_json *in);
void kvt_manifest_take_tables(struct kvt_group *group, const struct kvt_json *in);
void kvt_manifest_add_component(struct kvt_group *group, const char *name, int64_t start,
				int64_t length, int64_t global,
				const struct kvt_json *in);

/*
 * What follows from the rest where there is no array to fit it to: KVT_BAD_INPUT if
 * layout, type or an extent of a group is not given.
 */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_complete(struct kvt_manifest *manifest, const char *name,
		      struct kvt_error *err);

/* Sizes and type that follow from a content type, where no others were given. */
void kvt_content_defaults(struct kvt_group *group);
/* Tokens a row stands for, where its type has any number: as many as fill a block. */
int64_t kvt_content_ratio(const struct kvt_group *group);
/* Makes a slot of each page whose rows lie in planes, if it is not one yet. */
KVT_MUST_CHECK enum kvt_status
kvt_content_fold(struct kvt_group *group, const char *name, struct kvt_error *err);

/* What an array lacks or joins of the axes of a layout. */
struct kvt_reading {
	bool fuse;		/* K and D are one axis; opaque content has no K */
	bool no_heads;		/* of opaque content */
	bool one_layer;		/* there is no L: a tensor of one layer */
	bool one_head;		/* of opaque content, which has an axis of 1 for it */
	bool declared;		/* by an engine; its bytes lie in another order */
	bool flat;		/* B and S are one axis, */
	int64_t tokens;		/* of so many */
	bool joined;		/* the last axis is all that comes after the others */
};

/*
 * The extents of an array in this layout: the first way to read it that fits, and fits
 * what 'n' has already, where -1 is not known.  'slots' of a block, or -1: then blocks
 * and slots stay -1 if the array is flat.  False: no way fits.
 */
bool kvt_match_shape(int64_t n[KVT_NAXES], struct kvt_reading *as,
		     const struct kvt_layout *layout, bool latent, int64_t slots,
		     const struct kvt_array *array);
/* Slots of a block, where each is a token; -1: not known. */
int64_t kvt_group_slots(const struct kvt_group *group);
/*
 * The layout whose axes a shape has: an engine may declare another one than the bytes
 * have (*is_packed).  False: no shape shows it.
 */
bool kvt_layout_declared(struct kvt_layout *out, bool *is_packed,
			 const struct kvt_layout *layout);

/*
 * "nhd (5 layers, ...), hnd (...)": the presets that have this shape, with the sizes it
 * then has.  Returns how many there are; *flat: the first does not say what is a block.
 */
int kvt_manifest_readings(char *list, size_t size, bool *flat,
			  const struct kvt_group *group, const struct kvt_array *array);

/* What fit.c asks about shapes.  Each refuses with KVT_BAD_INPUT. */

/* Extents that were not given, from the shape; those that were given must agree. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_fit_shape(struct kvt_group *group, const struct kvt_array *array,
		       struct kvt_error *err);
/* The array has the axes of the layout in another order. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_fit_axes(const struct kvt_group *group, const struct kvt_array *array,
		      struct kvt_error *err);
/* The manifest's file_shape is not the array's. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_fit_file_shape(const struct kvt_manifest *manifest,
			    const struct kvt_array *array, struct kvt_error *err);
/* There is one, and numbers are open that its shape does not tell; lists others. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_fit_other(const struct kvt_manifest *manifest,
		       const struct kvt_array *array, struct kvt_error *err);
/* There is no layout; lists those that the shape allows. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_fit_presets(const struct kvt_manifest *manifest,
			 const struct kvt_array *array, struct kvt_error *err);
/* Is the content of this group no key and value? */
bool kvt_group_opaque(const struct kvt_group *group);

/* A group of which nothing is known yet. */
void kvt_manifest_blank_group(struct kvt_group *group, const char *id);
/* Adds a blank one; KVT_BAD_INPUT if there are too many. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_add_group(struct kvt_group **out, struct kvt_snapshot *snapshot,
		       const char *id, const char *name, struct kvt_error *err);

/* Is the content opaque, as the presets of this layout have it? */
bool kvt_layout_latent(const struct kvt_layout *layout);

#endif
