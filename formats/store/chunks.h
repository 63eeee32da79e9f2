/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunks.h - dumps of chunks: runs of tokens that a store knows by a hash
 *
 * Such a hash is of all tokens up to the end of the chunk, so requests that begin
 * alike share chunks; which chunk follows which cannot be told from hashes.  Each
 * is a request of its own, unless the user has a list of what belongs together, or
 * chunks say which one they follow: then each that none follows ends a request.
 */
#ifndef KVT_CHUNKS_H
#define KVT_CHUNKS_H

#include "formats/format.h"

/* The fact that names the list: a line a request, its name and its chunks. */
#define KVT_CHUNKS_ORDER "order"
/* The fact that says how many tokens a chunk has that was not the last one. */
#define KVT_CHUNKS_SIZE "chunk-size"
/* The fact that says how many tokens come before chunks whose parent is not there. */
#define KVT_CHUNKS_BEFORE "before"

/* For leaf.unnoticed, of chunks that are bare. */
#define KVT_CHUNKS_UNNOTICED \
	"only the length of a file says how many tokens it holds: a cut file cannot be " \
	"noticed"

struct kvt_chunk {
	const char *id;			/* borrowed */
	int64_t layer;			/* the only one in it; -1: all are */
	int file;			/* of the reader */
	int64_t offset, nbytes;		/* there; arrays of all groups in turn */
	int64_t tokens;			/* -1: what 'nbytes' make */
	const char *parent;		/* "": it is a first one; NULL: not known */
	const int32_t *ids;		/* of its tokens; NULL: not known; borrowed */
	int64_t first;			/* tokens before it, also if its parent is lost */
};

/* All chunks of an id: one, or one a layer. */
struct kvt_chunk_run {
	int64_t first, count;
	int64_t block;			/* its first one; -1: none */
};

struct kvt_chunks {
	const char *where;		/* of the dump, for messages; borrowed */
	bool halves;			/* layer 0: keys of a chunk, 1: its values */
	bool bare;			/* only their lengths tell their tokens */
	const char *whole;		/* why none is shorter; NULL: a last one may be */
	int64_t full;			/* tokens of one that is not shorter; 0 so far */
	int64_t count;
	struct kvt_chunk *chunk;	/* owned; by id and layer once sorted */
	int64_t nruns;
	struct kvt_chunk_run *run;	/* owned; by id */
	/* of chunks that say which one they follow: */
	bool again;			/* one that comes twice counts once */
	const char *named_by;		/* kvt_named_find(); NULL: ids are no hashes */
	bool elsewhere;			/* the format adds the parts */
	int64_t nlost;			/* of no request, for want of what they follow */
	const struct kvt_chunk *lost;	/* the first of those whose parent is not there */
};

/* Appends a copy. */
KVT_MUST_CHECK enum kvt_status
kvt_chunks_add(struct kvt_chunks *chunks, const struct kvt_chunk *chunk,
	       struct kvt_error *err);
/*
 * Puts them in order and makes runs; *layers is how many each id has, -1 if they
 * are in one chunk.  A chunk that comes twice, a layer that is missing, and
 * layers of unlike tokens are KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
kvt_chunks_sort(struct kvt_chunks *chunks, int64_t *layers, struct kvt_error *err);
/*
 * The groups of the reader, which lack nothing but blocks and block size, get
 * both, and parts; the snapshot gets requests.  Blocks have hints->block_size
 * tokens, or those of the longest chunk.  A chunk without a byte is a request of no
 * tokens; in a list of the user's it is KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
kvt_chunks_place(struct kvt_reader *reader, struct kvt_chunks *chunks,
		 const struct kvt_hints *hints, struct kvt_error *err);
/* The run of that id; NULL: there is none. */
const struct kvt_chunk_run *kvt_chunks_find(const struct kvt_chunks *chunks,
					    const char *id);
void kvt_chunks_free(struct kvt_chunks *chunks);

/* ---- groups of chunks: chunk_group.c ------------------------------------- */

/*
 * The layout of an array of tokens, B S where the text has S ("KLSHD"), or both;
 * KVT_BAD_INPUT if there is no such place in it.  'layers': each array is one,
 * so L is outermost if the text has none.
 */
KVT_MUST_CHECK enum kvt_status
kvt_chunks_layout(struct kvt_layout *out, const char *text, bool layers,
		  struct kvt_error *err);
/* That which the user says, for a group without one. */
KVT_MUST_CHECK enum kvt_status
kvt_chunks_asked_layout(struct kvt_group *group, bool layers,
			const struct kvt_hints *hints, struct kvt_error *err);
/*
 * The same of chunks that are a page each, in any layout of pages: where its blocks are
 * makes no difference.  'halves': keys are not with values, so K is outermost.
 */
KVT_MUST_CHECK enum kvt_status
kvt_chunks_page_layout(struct kvt_group *group, bool halves,
		       const struct kvt_hints *hints, struct kvt_error *err);
/* Is it that of a group of chunks?  For kvt_format.in_layout. */
bool kvt_chunks_in_layout(const struct kvt_group *group, const struct kvt_layout *said);
/* The same where chunks may be pages. */
bool kvt_chunks_in_page_layout(const struct kvt_group *group,
			       const struct kvt_layout *said);
/*
 * Extents out of what the user says alone, for chunks without a header; 'layers'
 * as from kvt_chunks_sort().  KVT_BAD_INPUT lists the options that are missing.
 */
KVT_MUST_CHECK enum kvt_status
kvt_chunks_said(struct kvt_group *group, int64_t layers, const struct kvt_hints *hints,
		const char *name, struct kvt_error *err);
/* Heads and their size in 'width' elements of a token. */
KVT_MUST_CHECK enum kvt_status
kvt_chunks_heads(struct kvt_group *group, int64_t width, const struct kvt_hints *hints,
		 const char *name, struct kvt_error *err);
/*
 * A group with layout, type and extents but for B and S becomes a group that only
 * lacks those.
 */
KVT_MUST_CHECK enum kvt_status
kvt_chunks_finish(struct kvt_group *group, const struct kvt_parallel *parallel,
		  const struct kvt_hints *hints, const char *name, struct kvt_error *err);
/* Tokens of chunks that do not say how many they hold; none of one without a byte. */
KVT_MUST_CHECK enum kvt_status
kvt_chunks_count(struct kvt_chunks *chunks, const struct kvt_files *files,
		 const struct kvt_group *group, struct kvt_error *err);

#endif
