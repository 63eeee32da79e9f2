/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.h - one request as a cache of mlx-lm or of transformers
 *
 * Of a group every layer has the same tensors: so what a file holds is a few strips, each
 * a tensor of one shape for all layers of a group, one behind the other.
 */
#ifndef KVT_CACHE_WRITE_H
#define KVT_CACHE_WRITE_H

#include "formats/tensor/tensors.h"

/* What a strip is to a layer. */
enum cache_use {
	CACHE_KEYS, CACHE_VALUES,		/* or their codes */
	CACHE_KEY_SCALES, CACHE_VALUE_SCALES, CACHE_KEY_BIASES, CACHE_VALUE_BIASES,
	CACHE_CONV, CACHE_STATE, CACHE_USES
};

struct cache_strip {
	enum cache_use use;
	int group;
	const struct kvt_dtype *dtype;	/* of the tensor */
	int64_t kv;			/* of the K axis of the group */
	int64_t dim[2];			/* elements of a row, of those of the group */
	/* slots: the first 'keep' tokens, then those from 'first' on; of a state 0 */
	int64_t keep, first, slots;
	int64_t needed;			/* the first token that may not be zeros */
	int64_t window;			/* 0: none */
	int rank;
	int64_t shape[KVT_TENSOR_MAX_RANK];
	int64_t nbytes, begin;		/* of the tensor of one layer, in the data */
};

/* A tensor of a layer; strip NULL: it has none. */
struct cache_place {
	const struct cache_strip *strip;
	int64_t place;			/* of the layer, in the strip */
};

struct cache_written {
	int64_t number;			/* in the model */
	struct cache_place part[CACHE_USES];
};

/* Which of the tokens of a window an engine keeps, and how it lays states out. */
struct cache_rules {
	const char *engine;
	const char *source;		/* kvt_snapshot.source_format of its own caches */
	int64_t spare;			/* of a window, tokens that are not kept */
	bool rings;			/* can it hold the first tokens and the newest? */
	bool taps_first;
	bool codes;			/* of mlx, with scales and biases */
};

enum { CACHE_STRIPS = 6 * KVT_MAX_GROUPS };

struct cache_writing {
	struct kvt_writer *writer;
	const struct cache_rules *rules;
	struct kvt_snapshot *snapshot;	/* the writer's */
	const struct kvt_request *request;
	int64_t end;			/* tokens, with those before the first one */
	int nstrips;
	struct cache_strip strip[CACHE_STRIPS];
	int64_t nlayers;
	struct cache_written *layer;	/* owned; in the model's order */
	struct kvt_error *err;
};

/*
 * Fills strips and layers, but for where they begin, and gives the groups the layouts
 * that the file has.  KVT_UNSUPPORTED or KVT_BAD_INPUT, with what it is, if the rules
 * have no place for something; no data is read.
 */
KVT_MUST_CHECK enum kvt_status kvt_cache_plan(struct cache_writing *w);

/* Of codes of mlx: bits of each, and how many have one scale; false of others. */
bool kvt_cache_codes(int64_t *bits, int64_t *group, const struct kvt_group *g);

/* The parts of the writer's groups, once strips have their places behind 'data'. */
KVT_MUST_CHECK enum kvt_status
kvt_cache_place(struct cache_writing *w, int file, int64_t data);

/* kvt_format.create and .finish of the format. */
KVT_MUST_CHECK enum kvt_status
kvt_cache_create(struct kvt_writer *writer, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_cache_finish(struct kvt_writer *writer, struct kvt_error *err);

#endif
