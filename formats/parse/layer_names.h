/* SPDX-License-Identifier: Apache-2.0 */
/* layer_names.h - which layer a name means, where names are all there is */
#ifndef KVT_LAYER_NAMES_H
#define KVT_LAYER_NAMES_H

#include "formats/format.h"

struct kvt_layer {
	const char *name;		/* borrowed */
	int64_t number;			/* in the model */
	int64_t index;			/* the caller's: where the layer came from */
};

/*
 * For layers that are files: fills the numbers from the names
 * ("model.layers.12.self_attn.attn" is 12) and sorts by them.  A name without a number,
 * two with the same one, or a gap between them, where a file may be missing, is
 * KVT_BAD_INPUT; 'where' is for messages.
 */
KVT_MUST_CHECK enum kvt_status
kvt_layers_sort(struct kvt_layer *layer, int64_t count, const char *where,
		struct kvt_error *err);

/*
 * For layers in one file, whose numbers are known: sorts by them.  A model may keep
 * nothing for a layer, so a gap is none of the file's; two of one number are refused.
 */
KVT_MUST_CHECK enum kvt_status
kvt_layers_order(struct kvt_layer *layer, int64_t count, const char *where,
		 struct kvt_error *err);

/* Names and numbers of sorted layers as the tables of a group. */
KVT_MUST_CHECK enum kvt_status
kvt_layers_tables(struct kvt_group *group, const struct kvt_layer *layer,
		  int64_t count, const char *where, struct kvt_error *err);

#endif
