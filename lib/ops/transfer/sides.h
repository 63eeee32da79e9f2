/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sides.h - a transfer of real bytes: the files of all ranks of both sides
 *
 * exec and wire are this: sides_open() finds out who is who, carry_out() moves
 * bytes box by box into new files, sides_verify() reads these again.
 */
#ifndef KVTOOL_SIM_SIDES_H
#define KVTOOL_SIM_SIDES_H

#include "lib/dump/merge.h"
#include "lib/ops/digest/digest.h"
#include "lib/ops/digest/digest.h"
#include "lib/ops/transfer/transfer.h"

/* ---- both sides --------------------------------------------------------- */

struct side {
	int n;				/* ranks */
	struct rank_file *file;		/* [n]; a side that is new has none */
	struct kvt_snapshot *made;	/* [n]; of a new side, else NULL */
};

struct sides {
	struct side src, dst;
	struct sim sim;
	struct kvt_block_span **span;	/* of each group of sim, by destination block */
	uint8_t fill;			/* what a new destination is filled with */
	bool whole, all_states;
	const char *request;		/* NULL: all */
	int64_t cached;
};

/* What exec and wire are asked for alike. */
struct exec_args {
	struct sim_args sim;
	struct kvt_create_options create;
	const char *output;		/* "%r" becomes the rank */
	int64_t fill, corrupt;		/* op to corrupt; -1: none */
	int64_t threads, memory;
	struct kvt_run run;		/* its device copies; verifying does without */
	bool json, quiet, dry_run;
	void (*leftovers)(const char *path);	/* told each name; or NULL */
};

/*
 * The first operand says how many ranks the source has; those that follow them
 * are the destination, unless --dst describes a new one.
 */
KVT_MUST_CHECK enum kvt_status
sides_open(struct sides *out, const struct exec_args *args, int n, char **argv,
	   struct kvt_error *err);
void sides_free(struct sides *sides);

/* All ranks of a side that exists; free it even if this fails. */
KVT_MUST_CHECK enum kvt_status
ranks_open(struct side *side, int n, char **names, struct kvt_error *err);
void ranks_free(struct side *side);
/* KVT_BAD_INPUT if a file of either side changed while it was read. */
KVT_MUST_CHECK enum kvt_status
sides_unchanged(const struct sides *sides, struct kvt_error *err);

/* What a rank holds, according to its file or as it will be. */
const struct kvt_snapshot *side_rank(const struct side *side, int rank);

/* The snapshots of all ranks of a new destination: sim_made.c. */
KVT_MUST_CHECK enum kvt_status
make_destination(struct sides *sides, const struct sim_args *args,
		 struct kvt_error *err);

/* The name of a rank's output; KVT_USAGE if several ranks would have one. */
KVT_MUST_CHECK enum kvt_status
output_name(char *out, size_t room, const char *pattern, int rank, int nranks,
	    struct kvt_error *err);

/* ---- carrying it out: sim_carry.c --------------------------------------- */

/* Blocks of one box of all ranks, and the part of a transfer that writes there. */
struct carry_box {
	const struct sides *sides;
	int part;			/* group of sides->sim */
	int64_t layers[2], blocks[2];	/* of the destination: begin, end */
	const struct kvt_block_span *span;	/* by destination block */
	int64_t nspans;
	int64_t rank_bytes;		/* from the box of one rank to the next */
};

struct carry_box carry_box_of(const struct sides *sides, int part,
			      const struct kvt_box *box);

/*
 * How a group is cut into boxes, and the room that reading them takes: about a
 * cache's size for all ranks, less where a thread's share of the memory would not
 * hold the blocks they come from.  'tiling' is of what is written: sim_cut.c.
 */
KVT_MUST_CHECK enum kvt_status
carry_cut(struct cut *cut, struct work *work, const struct sides *sides, int group,
	  const struct kvt_tiling *tiling, int64_t mem_limit, struct kvt_error *err);

/* The most that the blocks of a box take on one rank of the source. */
int64_t carry_window_room(int64_t mem_limit);

/*
 * The same as a transfer of its own: only those layers, destination blocks from
 * 0 on, and of the source just the blocks that are read, in ascending order.
 */
struct sim_window {
	struct kvt_xfer xfer;
	struct kvt_block_span *entry;	/* owned */
	int64_t *block, nblocks;	/* of the source; owned */
};
KVT_MUST_CHECK enum kvt_status
window_of(struct sim_window *out, const struct carry_box *box, struct kvt_error *err);
void window_done(struct sim_window *window);

/* The blocks of a window from one rank of the source, dense, in its layout. */
KVT_MUST_CHECK enum kvt_status
read_window(struct worker *worker, const struct carry_box *box,
	    const struct sim_window *window, int src_rank, uint8_t *buf,
	    struct kvt_error *err);

/*
 * How bytes get from a window of the source into the boxes of all ranks, which
 * are dense and follow each other; '*moved' grows by the bytes written.
 * worker->buffer[1] has room for a window.
 */
typedef enum kvt_status carry_fn(void *context, struct worker *worker,
				 const struct carry_box *box, uint8_t *dst,
				 int64_t *moved, struct kvt_error *err);

/* Ordinary copies on this machine; no context. */
carry_fn carry_copy;

struct carried {
	int n;
	struct kvt_writer **writer;	/* one a rank */
	int64_t bytes, boxes, memory;
	int64_t strangers;		/* of wire: connections that were turned away */
	double seconds;			/* reading, moving and writing */
};

double seconds_now(void);		/* of a clock that never jumps */

/*
 * Writes the outputs of all ranks and completes them; the caller verifies and
 * publishes them.  Also after a failure carried_free() removes what has no name.
 */
KVT_MUST_CHECK enum kvt_status
carry_out(struct carried *out, const struct sides *sides, const struct exec_args *args,
	  carry_fn *fn, void *context, struct kvt_error *err);
void carried_free(struct carried *carried);

/* ---- was it right?  sim_verify.c ---------------------------------------- */

struct verified {
	int64_t bytes, untouched;	/* compared with the source; as before */
	enum digest_version version;	/* of them */
	bool has_digest;		/* both sides hold just the same requests */
	struct kvt_digest digest[2];	/* tokens, of each side */
	double seconds;			/* reading and comparing */
};

/*
 * Reads the outputs again, where they are staged.  Where each element comes from
 * follows from tables, heads and layouts of both files alone.  KVT_MISMATCH says what
 * differs.
 */
KVT_MUST_CHECK enum kvt_status
sides_verify(struct verified *out, const struct sides *sides,
	     const struct carried *carried, const struct exec_args *args,
	     struct kvt_error *err);

/* ---- telling ------------------------------------------------------------ */

#define EXEC_OPTS(a) \
	{ "output", 'o', OPT_STRING, &(a)->output, "FILE", \
	  "where to write; %r becomes the rank" }, \
	{ "dst", 0, OPT_STRING, &(a)->sim.dst.text, "KEY=VALUE,...", \
	  "make the destination: layout, tp, block-size, pool, ids" }, \
	{ "fill", 0, OPT_INT, &(a)->fill, "BYTE", \
	  "what a new destination holds where nothing arrives; default 0" }, \
	{ "request", 0, OPT_STRING, &(a)->sim.request, "ID", \
	  "the request that moves; default: all that both sides have" }, \
	{ "cached", 0, OPT_INT, &(a)->sim.cached, "N", \
	  "tokens in front that the destination has already" }, \
	{ "partial", 0, OPT_STRING, &(a)->sim.partial, "valid|whole", \
	  "of a last block in part: its valid states (default), or all of it" }, \
	{ "conv", 0, OPT_STRING, &(a)->sim.conv, "ds|sd", \
	  "order of conv states in a new destination; default: as in the source" }, \
	{ "mamba-groups", 0, OPT_COUNT, &(a)->sim.mamba_groups, "N", \
	  "groups of B and C in the model" }, \
	{ "all-states", 0, OPT_FLAG, &(a)->sim.all_states, NULL, \
	  "of recurrent groups every block of a table, not only the last" }, \
	{ "corrupt-op", 0, OPT_INT, &(a)->corrupt, "N", \
	  "spoil one byte of op N (from 0, scope rfc), to see it found" }, \
	{ "uncompressed", 0, OPT_FLAG, &(a)->create.uncompressed, NULL, \
	  "hdf5: one contiguous, mappable array a group" }, \
	{ "no-sync", 0, OPT_FLAG, &(a)->create.no_sync, NULL, \
	  "do not wait for the disk: a power cut may lose the output" }, \
	OPT_FORCE(&(a)->create.force), \
	OPT_THREADS(&(a)->threads), \
	OPT_MEMORY(&(a)->memory), \
	OPT_JSON(&(a)->json), \
	OPT_QUIET(&(a)->quiet)

/* The same without the device: what it did is not judged by it. */
struct kvt_run exec_run_on_cpu(const struct exec_args *args);
KVT_MUST_CHECK enum kvt_status
exec_report(const struct sides *sides, const struct exec_args *args,
	    const struct carried *carried, const struct verified *verified,
	    struct kvt_error *err);

#endif
