/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whose.h - in which order the rows of an offload tree were written, from bytes alone
 *
 * Values of the first layer depend on the token alone: no position and no other token
 * went into them.  So a token that occurs twice, at two positions, has the same row
 * twice, and no row of a later layer is ever seen twice.  Cut in parts of a head of a
 * block of a layer, a file shows by where such rows are which parts are those of the
 * first layer, and each number of ranks puts them elsewhere:
 *
 *	3 layers, 4 heads	TP 1  0000 1111 2222
 *	0: layer 0		TP 2  001122 001122
 *				TP 4  012 012 012 012
 *
 * Nothing is claimed unless the parts with repeated rows are exactly those.  Parts in
 * random order do that once in 'odds'.  Which order slots and heads have in a page, the
 * same rows tell: all heads of a token must repeat together.
 *
 * Rows at the same place of two files do not count: two prompts that begin alike have
 * them in all layers.
 */
#ifndef KVT_WHOSE_H
#define KVT_WHOSE_H

#include "lib/kvt/kvt.h"

/* A row of a page: what a token has of a head, its keys or its values. */
struct kvt_whose_shape {
	int64_t layers, heads, blocks, slots;	/* of a file; heads of all ranks */
	int64_t row;			/* bytes */
};

/* What is outermost in a rank's share: it shows where a file has several blocks. */
enum kvt_whose_family { KVT_WHOSE_LAYERS, KVT_WHOSE_BLOCKS, KVT_WHOSE_HEADS };

enum kvt_whose_page { KVT_WHOSE_UNKNOWN, KVT_WHOSE_NHD, KVT_WHOSE_HND, KVT_WHOSE_NPAGES };

enum { KVT_WHOSE_ORDERS = 64 };

struct kvt_whose_order {
	enum kvt_whose_family family;
	int64_t ranks;
	/* bits: those of the first layer; where keys come first, those of its values */
	uint64_t *parts, *halves;
};

struct kvt_whose;

/* NULL: out of memory, or nothing can be told of this shape (kvt_whose_can_tell()). */
struct kvt_whose *kvt_whose_new(const struct kvt_whose_shape *shape, int64_t files);
void kvt_whose_free(struct kvt_whose *w);
bool kvt_whose_can_tell(const struct kvt_whose_shape *shape);
int64_t kvt_whose_bytes(const struct kvt_whose_shape *shape);	/* of a file */

/* The next file: its kvt_whose_bytes(). */
void kvt_whose_see(struct kvt_whose *w, const uint8_t *bytes);

/* What is said of a tree, or of a file.  order -1: not known. */
struct kvt_whose_answer {
	int order;			/* of kvt_whose_order_at() */
	enum kvt_whose_page page;
};

/* After all files were seen, before anything is asked. */
void kvt_whose_settle(struct kvt_whose *w);

struct kvt_whose_answer kvt_whose_file(const struct kvt_whose *w, int64_t file);
/* Of all together; order -1 also if they are not of one. */
struct kvt_whose_answer kvt_whose_all(const struct kvt_whose *w);
/* Its pages, if it is of that order. */
enum kvt_whose_page kvt_whose_page(const struct kvt_whose *w, int64_t file, int order);
/* A bit for each order that a file does not contradict. */
uint64_t kvt_whose_fits(const struct kvt_whose *w, int64_t file);
const struct kvt_whose_order *kvt_whose_order_at(const struct kvt_whose *w, int i);
/* The order that has the same bytes as this; -1: none, ranks do not divide the heads. */
int kvt_whose_order_of(const struct kvt_whose *w, enum kvt_whose_family family,
		       int64_t ranks);
/* Parts in random order claim an order once in so many; after kvt_whose_all(). */
double kvt_whose_odds(const struct kvt_whose *w, int order);
/*
 * Has a file no row of another one, where nearly all have half of theirs?  Then it is of
 * another model, or of tokens that no other has.
 */
bool kvt_whose_is_foreign(const struct kvt_whose *w, int64_t file);

#endif
