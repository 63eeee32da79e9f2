/* SPDX-License-Identifier: Apache-2.0 */
/* words.h - how layouts are read and named, and what an order says; not installed */
#ifndef KVT_LAYOUT_WORDS_H
#define KVT_LAYOUT_WORDS_H

#include <stddef.h>

#include "lib/kvt/layout.h"

/* Text of a layout can be no longer; the longest axis string has 132. */
enum { KVT_MAX_LAYOUT_TEXT = 159 };

/*
 * Read the axis string in text[0..length).  'in_plane' says that it is one of
 * two, where C would hide whether there is a K.  The sentence in 'err' begins
 * with what is wrong; the caller puts the text before it.
 */
KVT_MUST_CHECK enum kvt_status
kvt_order_parse(struct kvt_order *out, const char *text, size_t length,
		bool in_plane, struct kvt_error *err);

bool kvt_order_equal(const struct kvt_order *a, const struct kvt_order *b);

/* Index of the first part of 'axis'; -1 if the order lacks it. */
int kvt_order_find(const struct kvt_order *order, enum kvt_axis axis);
/* Is part 'i' all of the axis? */
bool kvt_order_whole(const struct kvt_order *order, int i, enum kvt_axis axis);
/* Is B slower than L, so that layers of a block are neighbours? */
bool kvt_order_blocks_first(const struct kvt_order *order);

/* Find by name, or by the letters of its one plane; NULL if there is none. */
const struct kvt_preset *kvt_preset_find(const char *name);

/*
 * Refuse a name that is known but says too little (KVT_BAD_INPUT), or names
 * what the algebra cannot express (KVT_UNSUPPORTED).  KVT_OK for all others.
 */
KVT_MUST_CHECK enum kvt_status
kvt_preset_refuse(const char *name, struct kvt_error *err);

#endif
