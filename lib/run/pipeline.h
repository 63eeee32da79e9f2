/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline.h - read, decode, run plans, encode, write: boxes and threads
 *
 * A command that touches the data of a group cuts it into boxes (some layers x some
 * blocks x everything else) and hands them to worker threads.  Memory is bounded by
 * workers x buffers of one box, whatever the file's size.  Output does not depend on the
 * number of threads: how a group is cut does not either, and what is in order waits for
 * its turn (pipeline.c).
 */
#ifndef KVTOOL_PIPELINE_H
#define KVTOOL_PIPELINE_H

#include "lib/kvt/dump.h"

struct buffer_set;
struct copied;
struct kvt_leaf;
struct seen;

/* How a group is cut: boxes of 'layers' x 'blocks', in L-major order. */
struct kvt_cut {
	struct kvt_shape shape;
	int64_t layers, blocks;		/* of one box */
	int64_t nboxes;
	int64_t box_bytes;		/* dense, of a full box */
};

/*
 * Choose boxes that begin and end at tile borders of both sides (NULL: flat),
 * about 4 MiB each, shaped so that flat files are read and written in long
 * runs.  'dst_layout' may be NULL when only reading.
 */
struct kvt_cut kvt_cut_choose(const struct kvt_group *group,
		      const struct kvt_tiling *src_tiling,
		      const struct kvt_layout *dst_layout,
		      const struct kvt_tiling *dst_tiling, int64_t box_limit);
/* The box limit for kvt_cut_choose() where a worker has the boxes of n dumps at once. */
int64_t kvt_cut_limit(const struct kvt_run *run, int n);
/*
 * The most that a box should be that is wider for its tiles' sake: two workers have room
 * for such a box, its tiles and what it is read from in the default memory, and more of
 * them in more.
 */
int64_t kvt_cut_most(const struct kvt_run *run);

/*
 * Rows of tiles that are decoded for the boxes of the first layers of a cut, all boxes
 * together; -1: out of memory.
 */
typedef int64_t kvt_cut_rows_fn(const void *context, const struct kvt_cut *cut);
/*
 * Where the boxes of a cut decode more than a quarter more tiles than one box would:
 * boxes of as few layers as 'least' has, and of more blocks, while they are not above
 * the limit.
 */
KVT_MUST_CHECK enum kvt_status
kvt_cut_gather(struct kvt_cut *cut, const struct kvt_cut *least, int64_t box_limit,
	       kvt_cut_rows_fn *rows, const void *context, struct kvt_error *err);
struct kvt_box kvt_cut_box(const struct kvt_cut *cut, int64_t i);

/* Buffers of a worker; the last one belongs to kvt_read() and its like. */
enum { NBUFFERS = 5, RANGE_BUFFER = 4 };

/* A box of a leaf that RANGE_BUFFER has. */
struct range_kept {
	const struct kvt_leaf *leaf;
	int group;
	struct kvt_box box;
	int64_t at;			/* bytes from the beginning of the buffer */
};

/* What one thread owns. */
struct kvt_worker {
	struct pipeline *pipeline;
	bool passed;			/* the turn of the box at hand */
	struct kvt_codec_scratch *scratch;
	uint8_t *buffer[NBUFFERS];		/* the command's; sizes as asked for */
	uint8_t *tile, *spare;		/* one plain tile each */
	uint8_t *stored;		/* one stored tile */
	uint8_t *unordered;		/* device_bytes: a box that the device permutes */
	uint8_t *result;		/* of the box at hand, to be merged */
	int64_t nresult;		/* bytes of it; at most result_bytes */
	struct kvt_device_pool *device;		/* NULL: the CPU */
	struct buffer_set *set;		/* of the device, while it is held */
	/* what RANGE_BUFFER holds: boxes of several dumps read what they share once */
	struct range_kept *kept;	/* owned */
	int nkept, kept_next;	/* next: the one after the last found */
	int64_t kept_bytes;
	struct kvt_leaf_list {
		const struct kvt_leaf **leaf;	/* owned; each once */
		int n;
	} touched;			/* of those that kvt_worker_settle() asks */
	struct copied *copied;		/* owned: what copy_part() did last; or NULL */
};

/* Does box i.  Called in any order by any worker. */
typedef enum kvt_status kvt_work_fn(struct kvt_worker *worker, void *context, int64_t i,
				struct kvt_error *err);
/*
 * Takes in the result of box i, which may be of another process.  One call at a time, in
 * the order of the boxes.  False: these bytes are no result of this box.
 */
typedef bool kvt_merge_fn(void *context, int64_t i, const void *result, int64_t nbytes);

/*
 * What a run needs.  Buffers are allocated per worker before the first box;
 * fewer workers start if the memory limit does not allow more.
 */
struct kvt_work {
	kvt_work_fn *fn;
	void *context;
	int64_t count;
	int64_t buffer_bytes[NBUFFERS];	/* 0: not needed */
	int64_t tile_bytes, stored_bytes;
	bool share;			/* parts of a block are read by several dumps */
	struct seen *seen;		/* gets what is decoded of leaves; or NULL */
	int64_t device_bytes;		/* only with a device; kvt_work_reads() */
	int64_t worked_bytes;		/* of the device alone: what it works on */
	const char *label;		/* of the progress line; NULL: none */
	int64_t total_bytes;		/* for the progress line */
	/*
	 * NULL: fn does all.  Else fn leaves the result of its box in the worker, and
	 * several processes may divide the boxes: lib/kvt/share.h.
	 */
	kvt_merge_fn *merge;
	int64_t result_bytes;		/* the most that a result has */
	bool commutes;			/* results may be merged in any order */
	bool writes;			/* bad data is a failure, not a result */
	const char *follows;		/* struct kvt_pass */
	int64_t part;
};

/* Runs all of it.  The first failure by index ends the run and is returned. */
KVT_MUST_CHECK enum kvt_status
kvt_work_run(const struct kvt_work *work, const struct kvt_run *run,
	     struct kvt_error *err);

/* Bytes of all workers together: run->memory, or the default. */
int64_t kvt_run_memory(const struct kvt_run *run);

/* Peak memory of kvt_work_run() in bytes, without running; 0 if it cannot fit. */
int64_t kvt_work_memory(const struct kvt_work *work, const struct kvt_run *run);

const struct kvt_work *worker_work(const struct kvt_worker *worker);

/* Before something is read of a leaf. */
KVT_MUST_CHECK enum kvt_status
worker_touches(struct kvt_worker *worker, const struct kvt_leaf *leaf,
	       struct kvt_error *err);
/*
 * May what this worker has read be believed?  kvt_work_run() asks at the end, before it
 * says that all is well; only who lets go of bytes earlier has to ask before that.
 */
KVT_MUST_CHECK enum kvt_status
kvt_worker_settle(const struct kvt_worker *worker, struct kvt_error *err);

/* What several workers change goes between these two. */
void kvt_worker_lock(struct kvt_worker *worker);
void kvt_worker_unlock(struct kvt_worker *worker);

/*
 * Waits until every box before i is through its ordered part, then enters it
 * (holding the lock); false: another box failed, give up without a message.
 * Leave with kvt_worker_unlock(), and the turn passes on when the kvt_work_fn returns;
 * or with kvt_worker_pass(), and it does so at once.
 */
bool kvt_worker_turn(struct kvt_worker *worker, int64_t i);
void kvt_worker_pass(struct kvt_worker *worker, int64_t i);

void kvt_worker_progress(struct kvt_worker *worker, int64_t nbytes);

#endif
