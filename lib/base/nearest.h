/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nearest.h - a mistyped word and what it is nearest to
 *
 * Start with the word, offer every name it could have been, ask.  Borrows all
 * strings; allocates nothing.
 */
#ifndef KVT_NEAREST_H
#define KVT_NEAREST_H

#include "lib/kvt/base.h"

struct kvt_nearest {
	const char *word, *best;
	int distance;
};
struct kvt_nearest kvt_nearest_start(const char *word);
void kvt_nearest_offer(struct kvt_nearest *n, const char *candidate);
/* NULL if nothing offered is near enough to be meant. */
const char *kvt_nearest_found(const struct kvt_nearest *n);
/* The end of a sentence: ", did you mean 'X'?", or 'otherwise' if nothing is near. */
struct kvt_text kvt_nearest_hint(const struct kvt_nearest *n, const char *otherwise);

#endif
