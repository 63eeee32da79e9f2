/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - what is drawn of a dump: its pool, and maps of its numbers
 *
 * A map has rows of layers and columns of heads, or of tokens.  Where there are more of
 * them than a person can tell apart, neighbours are one: so a map has at most a few
 * thousand cells, whatever the dump.
 */
#ifndef KVT_VIEW_MAPS_H
#define KVT_VIEW_MAPS_H

#include "lib/kvt/dump.h"

/* ---- numbers ------------------------------------------------------------- */

struct kvt_view_cell {
	int64_t finite, zero, nan, inf;	/* zero: of the finite ones */
	double sum, squares, largest;	/* largest: of magnitudes */
	int64_t nsteps;			/* differences to the token before in a block */
	double steps;			/* sum of their squares */
};
double kvt_view_rms(const struct kvt_view_cell *cell);	/* NaN: nothing is finite */
double kvt_view_mean(const struct kvt_view_cell *cell);
/* Root mean square of the difference to the token before; NaN: there is none. */
double kvt_view_step(const struct kvt_view_cell *cell);

/*
 * Powers of two that magnitudes of numbers are counted by: bin i has those in
 * [2^(LOW+i), 2^(LOW+i+1)); the first has all that are smaller, but not 0, the last all
 * that are larger.
 */
enum { KVT_VIEW_LOW = -30, KVT_VIEW_BINS = 50 };

/* One axis of a map: cell i has members [i * total / n, (i + 1) * total / n). */
struct kvt_view_axis {
	int64_t total, n;
};
/* The first member of a cell. */
int64_t kvt_view_member(const struct kvt_view_axis *axis, int64_t cell);

struct kvt_view_maps {
	const struct kvt_group *group;	/* borrowed */
	int64_t kv;			/* extent of K */
	struct kvt_view_axis layers, heads, positions;
	/*
	 * The blocks of that axis, as positions in the dump: those of requests in the
	 * order of their tokens, each once; without requests all of them.
	 */
	int64_t nblocks;
	int64_t *block;			/* owned; [nblocks] */
	int64_t *request, *token;	/* owned; [nblocks]: whose it was listed for */
	struct kvt_view_cell *by_head;	/* owned; [layers][heads][K] */
	struct kvt_view_cell *by_position;	/* owned; [layers][positions][K] */
	int64_t *exponent;		/* owned; [layers][K][KVT_VIEW_BINS] */
	int64_t read_bytes, bytes;	/* of its data; fewer were read: a sample */
};

/*
 * Fills 'maps' from the data of a group; of more than 'most' bytes boxes here and there
 * are read, and a map has at most 'cells' cells of each component.  Only slots with a
 * live token count where the dump says which these are.
 * KVT_BAD_INPUT: its elements are no numbers.  Free it either way.
 */
KVT_MUST_CHECK enum kvt_status
kvt_view_maps(struct kvt_view_maps *maps, struct kvt_dump *dump, int group, int64_t most,
	      int64_t cells, const struct kvt_run *run, struct kvt_error *err);
void kvt_view_maps_free(struct kvt_view_maps *maps);

/* ---- what is stored ------------------------------------------------------- */

/* Tiles of neighbouring layers, as their index in the file has them. */
struct kvt_view_row {
	int64_t layer;			/* the first of them, as an index */
	int64_t tiles, seen;		/* that there are; that were looked up */
	int64_t plain, stored;		/* bytes of those: as elements, in the file */
	int64_t least, most;		/* bytes there of the smallest, the largest */
};

struct kvt_view_tiles {
	const struct kvt_tiling *tiling;	/* borrowed; NULL: there are no tiles */
	int64_t nrows;
	struct kvt_view_row *row;	/* owned */
};

/*
 * Looks up how large tiles are, here and there of more than 'most', and reads none.
 * KVT_BAD_INPUT: one is missing.  Free it either way.
 */
KVT_MUST_CHECK enum kvt_status
kvt_view_tiles(struct kvt_view_tiles *tiles, const struct kvt_dump *dump, int group,
	       int64_t most, struct kvt_error *err);
void kvt_view_tiles_free(struct kvt_view_tiles *tiles);

/* ---- the pool ------------------------------------------------------------ */

enum kvt_view_use {
	KVT_VIEW_FREE, KVT_VIEW_NULL, KVT_VIEW_OWNED, KVT_VIEW_SHARED,
	KVT_VIEW_PASSED,	/* of a request, but all of its tokens are in holes */
	KVT_VIEW_OTHER,		/* of a request in another group of the same pool */
};

/* Neighbouring blocks, also by their ids, of which the same is to be said. */
struct kvt_view_run {
	int64_t block, count;		/* positions in the dump */
	enum kvt_view_use use;
	int64_t request;		/* the first that has them; -1: none */
};

struct kvt_view_pool {
	bool known;			/* there are block tables */
	int64_t used, shared, nruns;
	struct kvt_view_run *run;	/* owned */
};

KVT_MUST_CHECK enum kvt_status
kvt_view_pool(struct kvt_view_pool *pool, const struct kvt_snapshot *snapshot, int group,
	      struct kvt_error *err);
void kvt_view_pool_free(struct kvt_view_pool *pool);

#endif
