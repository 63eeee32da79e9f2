/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.h - what the parts of the reader of transformers' caches share
 *
 * The tokens of all rows and layers lie on one axis of slots: as many as the cache
 * was given, padding included.  A layer holds a run of them that ends where the
 * axis does, or, where it was made with more slots than it was given tokens,
 * before these.
 */
#ifndef KVT_CACHE_OPEN_H
#define KVT_CACHE_OPEN_H

#include <string.h>

#include "formats/file/tokens.h"
#include "formats/tensor/tensors.h"

enum { CACHE_BATCH, CACHE_HEADS, CACHE_TOKENS, CACHE_DIM, CACHE_RANK };

/* In the place of what a layer has not got: no tensor, or one of each row's nothing. */
static inline bool cache_is_nothing(const struct kvt_tensor *t)
{
	return (t->rank == 1 || t->rank == 2) && !t->shape[t->rank - 1];
}

/* Elements that a tensor has of each row. */
struct cache_part {
	int file;
	int64_t begin;			/* byte of it */
	int64_t stride[CACHE_RANK];	/* bytes */
	int64_t width;
};

/* Keys or values of a layer: one tensor, or codes, their scales and what is added. */
enum { CACHE_PARTS = 3 };
struct cache_half {
	const struct kvt_tensor *tensor;	/* the first */
	struct kvt_content content;	/* of several, whose rows are bytes */
	int64_t shape[CACHE_RANK];
	int nparts;
	struct cache_part part[CACHE_PARTS];
};

struct cache_layer {
	const char *name;		/* of the tensor of keys; borrowed */
	int64_t number;			/* in the model */
	struct cache_half half[2];	/* keys, values; or rows of one kind alone */
	int64_t part;			/* of the layer; those of one make groups */
	struct kvt_held held;		/* settled by kvt_cache_slots() */
	int64_t first, count;		/* the slots it holds */
	int group;			/* of its keys */
	int64_t place;			/* among the layers of that group */
};

/* Keys of an indexer, keys that are values too, and what else is one row a token. */
static inline bool cache_is_alone(const struct cache_layer *l)
{
	return !l->half[1].tensor;
}

/*
 * Latents of MLA stand where keys do, and their rotary part, of which there is much less,
 * where values do.
 */
static inline bool cache_is_latent(const struct cache_layer *l)
{
	return !cache_is_alone(l) && l->half[0].shape[CACHE_HEADS] == 1 &&
	       l->half[1].shape[CACHE_DIM] <= l->half[0].shape[CACHE_DIM] / 2;
}

/* Keys and values that differ in width or type are groups of their own. */
static inline bool cache_is_apart(const struct cache_layer *l)
{
	return !cache_is_alone(l) && !cache_is_latent(l) &&
	       (l->half[0].shape[CACHE_DIM] != l->half[1].shape[CACHE_DIM] ||
		strcmp(l->half[0].tensor->type, l->half[1].tensor->type));
}

/* A recurrent state of a layer. */
struct cache_state {
	const struct kvt_tensor *tensor;
	enum kvt_role role;
	int64_t number;			/* of the layer, in the model */
	int64_t which;			/* of the states of the layer */
	int group;
	int64_t place;			/* among the layers of that group */
};

/* The slots that are tokens of a row. */
struct cache_row {
	int64_t begin, end;
};

struct cache_opening {
	struct kvt_reader *reader;
	const struct kvt_hints *hints;
	struct kvt_tensors tensors;
	struct cache_layer *layer;	/* owned, in the model's order, indexers last */
	int64_t nlayers;
	struct cache_state *state;	/* owned, sorted by number, part and layer */
	int64_t nstates;
	bool stacked;			/* all layers in one tensor, without names */
	const char *axes;		/* of the tensors of keys and values */
	bool cross;			/* what a decoder looks at of an encoder */
	enum kvt_role masked;		/* what a mask is called that is this cache's */
	const struct kvt_tensor *mask;	/* that of the rows; or NULL */
	int base;			/* groups of the snapshot before these */
	int64_t nrows;
	struct cache_row *row;		/* owned */
	int64_t seen;			/* slots of the axis */
	int64_t first[KVT_MAX_GROUPS];	/* slot that the layers of each hold */
	int64_t end[KVT_MAX_GROUPS];	/* after the last one, where they say it; or 0 */
	int file;
	struct kvt_error *err;
};

/*
 * Makes a half of codes one of bytes, with the tensors beside them; KVT_BAD_INPUT if they
 * are not there or do not fit each other.
 */
KVT_MUST_CHECK enum kvt_status
kvt_cache_pack(struct cache_half *half, const struct cache_opening *o);

/* The layers that hold anything, in [batch, heads, tokens, elements], and the states. */
KVT_MUST_CHECK enum kvt_status kvt_cache_layers(struct cache_opening *o);
KVT_MUST_CHECK enum kvt_status kvt_cache_find_states(struct cache_opening *o);

/*
 * Whether slots of plain tensors are tokens in order, or a ring as the user says;
 * KVT_BAD_INPUT, with what is to be given, where there is a sign of another order.
 */
KVT_MUST_CHECK enum kvt_status kvt_cache_order(struct cache_opening *o);

/*
 * Which slots each holds and which are tokens: as the file says, or the user;
 * KVT_BAD_INPUT, with the option to be given, where neither does.
 */
KVT_MUST_CHECK enum kvt_status kvt_cache_slots(struct cache_opening *o);

/* The last of it: which slots are tokens of which row. */
KVT_MUST_CHECK enum kvt_status kvt_cache_rows(struct cache_opening *o, bool left);
/*
 * Where a part of keys or values of a layer is, from slot 0 of a row on, and in which
 * group; which of them they are, and of which block, is left to the caller.
 */
void kvt_cache_run(struct kvt_token_run *run, int *group, const struct cache_layer *layer,
		   int kv, int part, int64_t row);

/* Fills the snapshot with groups of layers that are alike; blocks are not counted yet. */
KVT_MUST_CHECK enum kvt_status kvt_cache_groups(struct cache_opening *o);
KVT_MUST_CHECK enum kvt_status kvt_cache_state_groups(struct cache_opening *o);
/* Where the states are, once all groups are there. */
KVT_MUST_CHECK enum kvt_status kvt_cache_state_data(struct cache_opening *o);

#endif
