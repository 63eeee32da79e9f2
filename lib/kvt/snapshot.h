/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot.h - KV dumps on disk, whatever their format
 *
 * A snapshot is a list of groups: layers that share spec, layout and shape.
 * The bytes of a group are reached in one of two ways.  A flat group is an
 * array somewhere in one or several files; any box of it can be read.  A tiled
 * group is stored as pieces that are encoded one by one (the chunks of HDF5);
 * a tile is fetched, and decoded apart from that, so that many threads can
 * decode and so that a tile can move to another file undecoded.
 *
 * Nothing here prints or exits.  A reader or writer is opened and closed by one
 * thread, while others do as they like with readers and writers of their own.  Which
 * calls on one of them may run at once is said at each.
 */
#ifndef KVT_SNAPSHOT_H
#define KVT_SNAPSHOT_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "lib/kvt/content.h"

/* ---- what a file says about itself -------------------------------------- */

/* A named range of the content (or of the channels of a conv state). */
struct kvt_component {
	char name[32];			/* "x", "B", "C", "kv_c_normed", ... */
	int64_t start, length;		/* in elements, on this rank */
	int64_t global_start;		/* in the model; = start if not sharded */
};

enum { KVT_MAX_COMPONENTS = 8, KVT_MAX_GROUPS = 32 };

struct kvt_group {
	char id[32];			/* "g0", "conv", "ssm" */
	enum kvt_kind kind;
	const struct kvt_dtype *dtype;
	struct kvt_content content;	/* dtype is uint8 if it has a type */
	struct kvt_layout layout;
	struct kvt_shape shape;		/* L B S H K D on this rank */
	int64_t block_size;		/* tokens a block */
	int64_t tokens_per_state;	/* 1, N, or -1: one state for all tokens */
	int64_t total_heads;		/* of the model */
	int64_t head_start;		/* first head of this rank */
	int64_t replication;		/* ranks that hold the same heads; 1 */
	int64_t page_bytes;		/* a block of a layer in the engine; 0: dense */
	int64_t page_offset;		/* of this group's content inside that page */
	int64_t window;			/* or chunk, in tokens; 0: none, or unknown */
	int64_t retained;		/* tokens kept besides a sliding window */
	bool has_null;			/* it has a null block of its own: */
	int64_t null_block;		/* index into B; -1: none */
	char pool[32];			/* groups of one name share blocks; "": alone */
	int ncomponents;
	struct kvt_component component[KVT_MAX_COMPONENTS];

	/* Tables; NULL where the file has none.  Owned by the snapshot. */
	char     **layer_names;		/* [L] */
	uint32_t  *layer_ids;		/* [L] index in the model */
	uint64_t  *block_ids;		/* [B] id in the engine's pool */
	uint32_t  *block_valid;		/* [B] states that hold a live token */
	char     **block_names;		/* [B] what a store calls it: a hash, ... */
};

/*
 * Positions [begin, end) of a request that have no state in a group: an engine
 * has removed them, or a cache with a window has passed them.  Their slots stay,
 * so that a token is where its position says, and count for nothing.
 */
struct kvt_hole {
	int64_t group, begin, end;
};

struct kvt_request {
	char *id;
	int64_t ntokens;		/* tokens in the cache, those in holes too */
	int64_t first_token;		/* position of the first of them; see below */
	int64_t prompt_tokens;		/* of its tokens, the prompt's; 0: unknown */
	int32_t *token_ids;		/* NULL if unknown */
	int64_t ntoken_ids;
	uint32_t *blocks[KVT_MAX_GROUPS];	/* indices into B, token order */
	int64_t nblocks[KVT_MAX_GROUPS];
	int64_t nholes;
	struct kvt_hole *hole;		/* by group and position, not touching */
};

/*
 * Tables begin with the block that the first token is in, which need not be its
 * first token: how many others stand before it there.
 */
static inline int64_t kvt_request_skip(const struct kvt_request *request,
				       const struct kvt_group *group)
{
	return group->block_size ? request->first_token % group->block_size : 0;
}

/*
 * The first run of positions in [begin, end), of those from the first token on, that
 * are in no hole of the group; empty at 'end' if there is none.
 */
struct kvt_range kvt_request_live(const struct kvt_request *request, int group,
				  int64_t begin, int64_t end);
/* How many of the request's tokens the group has no state of. */
int64_t kvt_request_missing(const struct kvt_request *request, int group);
/* Of positions [begin, end) only. */
void kvt_request_cut_holes(struct kvt_request *request, int64_t begin, int64_t end);
/* Appends one; those of a group must come in order.  False: out of memory. */
KVT_MUST_CHECK bool kvt_request_add_hole(struct kvt_request *request, int group,
					 int64_t begin, int64_t end);

struct kvt_parallel {
	int64_t tp_size, tp_rank, pp_size, pp_rank, dp_size, dp_rank,
		dcp_size, dcp_rank;	/* sizes are 1 where unknown */
};

struct kvt_snapshot {
	int ngroups;
	struct kvt_group group[KVT_MAX_GROUPS];
	int64_t nrequests;
	struct kvt_request *request;
	struct kvt_parallel parallel;
	bool has_parallel;		/* the file says so itself */
	int64_t null_block;		/* index into B of each; -1: none or unknown */
	char *model;			/* name; NULL if unknown */
	char *source_format;		/* provenance: "npy", ...; NULL */
	char *note;			/* free text of a manifest; NULL */
};

/* The block of a group that holds no token, whoever's table has it; -1: none. */
static inline int64_t kvt_null_block(const struct kvt_snapshot *snapshot, int group)
{
	return snapshot->group[group].has_null ? snapshot->group[group].null_block :
						 snapshot->null_block;
}

static inline void kvt_set_null(struct kvt_snapshot *snapshot, int group, int64_t block)
{
	snapshot->group[group].has_null = true;
	snapshot->group[group].null_block = block;
}
/* After all were set: says it once where it is the same for all. */
void kvt_share_null(struct kvt_snapshot *snapshot);

/*
 * Do blocks of these groups that have one id lie in the same memory?  Each block
 * belongs to one of them at a time.
 */
static inline bool kvt_groups_share(const struct kvt_group *a, const struct kvt_group *b)
{
	return a->pool[0] && !strcmp(a->pool, b->pool);
}

/*
 * Keys alone (0) or values alone (1): attention content of kv extent 1 that is
 * one component named k or v.  -1: both, or content that is neither.
 */
int kvt_group_half(const struct kvt_group *group);

/* What the elements are: the type of the content, or of each element. */
struct kvt_text kvt_group_type(const struct kvt_group *group);
bool kvt_group_same_type(const struct kvt_group *a, const struct kvt_group *b);
/* Of a group with a content type that passed kvt_snapshot_check(). */
struct kvt_packing kvt_group_packing(const struct kvt_group *group);

/*
 * What people know a block by: its id in the engine's pool.  Tables of requests
 * and everything else in memory have its position in the dump, 'b', which is the
 * id only where the dump lists none.
 */
static inline uint64_t kvt_block_id(const struct kvt_group *group, int64_t b)
{
	return group->block_ids ? group->block_ids[b] : (uint64_t)b;
}
/* The same of a layer, by its number in the model. */
static inline uint64_t kvt_layer_id(const struct kvt_group *group, int64_t l)
{
	return group->layer_ids ? group->layer_ids[l] : (uint64_t)l;
}
/* The named range that a channel is in; NULL if none is known. */
const struct kvt_component *kvt_group_component(const struct kvt_group *group, int64_t d);
/* Of a head in the model; of a conv state, of a channel. */
uint64_t kvt_head_id(const struct kvt_group *group, int64_t h);

/*
 * Fills what follows from the rest: names of layers, and how many states of a
 * block are live where requests say so.
 */
KVT_MUST_CHECK enum kvt_status
kvt_snapshot_complete(struct kvt_snapshot *snapshot, struct kvt_error *err);

/* An empty snapshot (sizes 1, null_block -1). */
void kvt_snapshot_init(struct kvt_snapshot *snapshot);
/* Forgets block_names; before the number of blocks changes. */
void kvt_group_drop_names(struct kvt_group *group);
/* Deep copy; on failure 'out' is empty. */
KVT_MUST_CHECK enum kvt_status
kvt_snapshot_copy(struct kvt_snapshot *out, const struct kvt_snapshot *in,
		  struct kvt_error *err);
void kvt_snapshot_free(struct kvt_snapshot *snapshot);

/*
 * Checks everything that must hold between the fields, whatever file they come
 * from: extents, heads against TP, block tables inside the pool, valid counts,
 * splits that divide, sizes that do not overflow.  KVT_BAD_INPUT otherwise.
 */
KVT_MUST_CHECK enum kvt_status
kvt_snapshot_check(const struct kvt_snapshot *snapshot, struct kvt_error *err);

/* The same for who wants to hear of all flaws, with names (kvtool-fsck(1)). */
struct kvt_inspector {
	void (*found)(void *context, const char *name, const char *text);
	void *context;
};
void kvt_snapshot_inspect(const struct kvt_snapshot *snapshot,
			  const struct kvt_inspector *inspector);

/*
 * How many states of each block the requests say hold a live token, raised in
 * 'live' [B] (zeros before; NULL: only ask).  False: their tables do not tell.
 */
bool kvt_snapshot_live(uint32_t *live, const struct kvt_snapshot *snapshot, int group);

/*
 * ---- which states of a request are needed ----------------------------------
 *
 * Everything that asks whether a state is live asks here: digest, diff, describe,
 * fsck, where, slice and transfers.  States count from token 0 of the request; of a
 * recurrent group each entry of the table is one.
 */
struct kvt_table {
	const struct kvt_group *group;
	const struct kvt_request *request;	/* whose holes count */
	int number;			/* of the group */
	const uint32_t *blocks;		/* of the snapshot */
	int64_t nblocks;
	int64_t each;			/* states a block; 1 if recurrent */
	int64_t first;			/* entry 0 is this block of the request */
	int64_t null_block;
	struct kvt_range states;	/* that have a token, and an entry */
	struct kvt_range dead;		/* of them, what is needed no more */
};
/*
 * A table that is shorter than the request is the end of one, if there may be such.
 * States of several tokens are dead when all these are.  Older states of a recurrent
 * group are for others that begin alike: those let go of are in the null block.
 */
struct kvt_table kvt_table_of(const struct kvt_snapshot *snapshot, int group,
			      const struct kvt_request *request);

/* All states that it names are live here, null blocks and dead ones, too. */
struct kvt_table kvt_table_named(const struct kvt_snapshot *snapshot, int group,
				 const struct kvt_request *request);

/* Neighbours in one block that are all live, or all not. */
struct kvt_stretch {
	int64_t begin, end;
	bool live;
	int64_t block, state;		/* where the first one is; -1: nowhere */
};
/* The one that begins with state 'at'; INT64_MAX ends one that nothing follows. */
struct kvt_stretch kvt_table_at(const struct kvt_table *table, int64_t at);
/* Are all tokens of the state in holes of the request? */
bool kvt_table_lacks(const struct kvt_table *table, int64_t at);
/* Is it needed, wherever it is?  Of what is in the null block nothing is live. */
static inline bool kvt_table_needs(const struct kvt_table *t, int64_t at)
{
	return at >= t->states.begin && at < t->states.end &&
	       (at < t->dead.begin || at >= t->dead.end) && !kvt_table_lacks(t, at);
}
/* The next states from 'at' on that are live, over blocks; empty: none is left. */
struct kvt_range kvt_table_next(const struct kvt_table *table, int64_t at);

/* Does an entry stand for live states, wherever they would be?  Then it is no null. */
bool kvt_entry_needed(const struct kvt_table *table, int64_t entry);
/* Can the null block stand there?  It can where nobody knows what is needed. */
bool kvt_entry_may_be_null(const struct kvt_table *table, int64_t entry,
			   const struct kvt_request *request);
/* Does it stand for no token yet? */
bool kvt_entry_is_spare(const struct kvt_table *table, int64_t entry);

/* May tables of the group be the end of one, without what a window has passed? */
bool kvt_table_may_end(const struct kvt_group *group);

struct kvt_retention kvt_group_retention(const struct kvt_group *group,
					 const struct kvt_request *request);
/* Do its live states differ from all states that its tables name? */
bool kvt_group_forgets(const struct kvt_snapshot *snapshot, int group);
/*
 * The states of each block that live tokens of requests are in: true in live[B][S].
 * NULL if memory is out.
 */
bool *kvt_live_states(const struct kvt_snapshot *snapshot, int group);

/* The number of a layer by its name ("model.layers.12.self_attn.attn"). */
bool kvt_layer_number(int64_t *out, const char *name);

/* ---- tiles -------------------------------------------------------------- */

/*
 * How a tiled group is cut and encoded.  A tile covers n[a] entries along each
 * axis, the last one of an axis possibly fewer (the stored tile is padded with
 * zeros to full size).  Its plain bytes are the dense box of the group's layout
 * (kvt_layout_views() with the full-size box).
 */
struct kvt_tiling {
	int64_t n[KVT_NAXES];
	int64_t nbytes;			/* of a plain tile */
	int64_t elem;			/* bytes of one element, for the shuffle */
	bool shuffle;			/* HDF5 filter 2 in the pipeline */
	bool zstd;			/* HDF5 filter 32015 */
	bool fletcher32;		/* HDF5 filter 3 */
	int level;			/* of zstd */
};

/* Do stored tiles of both have the same meaning, byte for byte? */
bool kvt_tiling_same_codec(const struct kvt_tiling *a, const struct kvt_tiling *b);

/* A tile as it lies in the file. */
struct kvt_stored {
	uint8_t *bytes;			/* caller's buffer */
	int64_t capacity;
	int64_t nbytes;
	uint32_t filter_mask;		/* bit i: stage i was skipped */
	const char *path;		/* for messages; kvt_load_tile() sets it */
};

/* Where it lies there. */
struct kvt_extent {
	int64_t offset, nbytes;
	uint32_t filter_mask;
};

/* Room that any stored form of a tile needs (bound of the encoder too). */
int64_t kvt_stored_bound(const struct kvt_tiling *tiling);

/*
 * decode: checks the Fletcher-32, the frame and its checksum; anything wrong is
 * KVT_BAD_INPUT.  encode: never fails on content.  Both are pure functions of
 * their arguments and of 'scratch', of which each thread has its own.
 */
struct kvt_codec_scratch;
KVT_MUST_CHECK enum kvt_status
kvt_codec_scratch_new(struct kvt_codec_scratch **out, struct kvt_error *err);
void kvt_codec_scratch_free(struct kvt_codec_scratch *scratch);

KVT_MUST_CHECK enum kvt_status
kvt_decode(void *tile, const struct kvt_stored *stored,
	   const struct kvt_tiling *tiling, struct kvt_codec_scratch *scratch,
	   struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_encode(struct kvt_stored *stored, const void *tile,
	   const struct kvt_tiling *tiling, struct kvt_codec_scratch *scratch,
	   struct kvt_error *err);
/*
 * What can be known of a stored tile without decoding it: the Fletcher-32 and
 * the frame's declared size.  Called before a tile moves undecoded.
 */
KVT_MUST_CHECK enum kvt_status
kvt_stored_check(const struct kvt_stored *stored,
		 const struct kvt_tiling *tiling, struct kvt_error *err);

/* ---- reading ------------------------------------------------------------ */

struct kvt_dump;

/* "KEY=VALUE" each: what one format alone may have to be told. */
struct kvt_facts {
	int n;
	const char *s[16];
};

/* What the user knows and the file may not.  All fields optional (NULL, 0). */
struct kvt_hints {
	const char *manifest;		/* path */
	const char *layout;
	const char *dtype;
	const char *content_type;	/* kvt_content_find() */
	const char *format;		/* row of the format table, or a preset of it */
	const char *spec;		/* see kvt_model_group_parse() */
	int64_t layers, blocks, block_size, heads, head_dim, content;
	int64_t skip;			/* bytes before the data (raw) */
	struct kvt_facts facts;		/* keys that the format does not know: refused */
	bool empty;			/* a state of nothing is opened, too */
	bool trust_manifest;		/* also where its checksum is not the data's */
	/* hears of all that kvt_open() refuses a snapshot for, not of the first only */
	const struct kvt_inspector *inspector;
};

/*
 * kvt_open() finds the format by content; by names only that of a folder, and of
 * files whose name is a key.  Everything that can be known to be wrong without
 * reading the data is refused here.  'hints' may be NULL.  A hint that contradicts
 * the file is KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
kvt_open(struct kvt_dump **out, const char *path,
	 const struct kvt_hints *hints, struct kvt_error *err);
void kvt_dump_close(struct kvt_dump *reader);	/* NULL is fine */

const struct kvt_snapshot *kvt_dump_snapshot(const struct kvt_dump *reader);
const char *kvt_dump_format(const struct kvt_dump *reader);	/* "hdf5" */
/* Bytes of all files of the dump, metadata included. */
int64_t kvt_dump_file_bytes(const struct kvt_dump *reader);

/* Files of the dump, metadata included. */
int64_t kvt_dump_files(const struct kvt_dump *reader);
/*
 * What the format has held against what, for a person to read ("lengths, names");
 * NULL: it does not say.
 */
const char *kvt_dump_checks(const struct kvt_dump *reader);
/* Are these files that nothing lists, so that nobody misses one? */
bool kvt_dump_unlisted(const struct kvt_dump *reader);

/* What ties the manifest that was read to the data; see kvtool-manifest(5). */
enum kvt_manifest_proof {
	KVT_PROOF_NO_MANIFEST,
	KVT_PROOF_NONE,			/* it holds nothing to know its file by */
	KVT_PROOF_SIZE,
	KVT_PROOF_SAMPLES,		/* size and a checksum of samples */
	KVT_PROOF_HEADER,		/* it is in the file itself */
	KVT_PROOF_FAILED,		/* the data is not what it was written for */
};
enum kvt_manifest_proof kvt_dump_proof(const struct kvt_dump *reader);
/* Path of that manifest; NULL if there is none, or none outside the file. */
const char *kvt_dump_manifest(const struct kvt_dump *reader);
/* Is this file (by device and inode) part of what the reader has open? */
bool kvt_dump_has_file(const struct kvt_dump *reader, dev_t dev, ino_t ino);

/*
 * KVT_BAD_INPUT if a file of the dump has changed since it was opened, by its size
 * and time: asked after the data was read, before anybody believes it.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_unchanged(const struct kvt_dump *reader, struct kvt_error *err);

/* What is held against checksums of the dump; those of tiles: see their tiling. */
struct kvt_proven {
	bool can_be;			/* the format has such checksums */
	bool tables;			/* and whatever else is said of the data */
	bool cells[KVT_MAX_GROUPS];	/* kvt_fetch_cells() refuses damaged ones */
	bool flat[KVT_MAX_GROUPS];	/* so does kvt_read_box() */
};
const struct kvt_proven *kvt_dump_proven(const struct kvt_dump *reader);

/* NULL if the group is flat. */
const struct kvt_tiling *kvt_dump_tiling(const struct kvt_dump *reader, int group);

/*
 * Flat groups: fill 'buf' with the dense box of the group's layout.  May be
 * called from many threads at once.
 */
KVT_MUST_CHECK enum kvt_status
kvt_read_box(struct kvt_dump *reader, int group, const struct kvt_box *box,
	     void *buf, struct kvt_error *err);

/*
 * Tiled groups: where the tile is that begins at begin[] (a multiple of
 * tiling->n along each axis); may be called from many threads at once, which then
 * wait for each other.  A missing tile, or one that is not inside the file or
 * larger than kvt_stored_bound(), is KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
kvt_find_tile(struct kvt_dump *reader, int group,
	      const int64_t begin[KVT_NAXES], struct kvt_extent *out,
	      struct kvt_error *err);
/* Reads it, from many threads at once without waiting. */
KVT_MUST_CHECK enum kvt_status
kvt_load_tile(struct kvt_dump *reader, const struct kvt_extent *extent,
	      struct kvt_stored *out, struct kvt_error *err);
/* Both. */
KVT_MUST_CHECK enum kvt_status
kvt_fetch_tile(struct kvt_dump *reader, int group,
	       const int64_t begin[KVT_NAXES], struct kvt_stored *out,
	       struct kvt_error *err);

/*
 * Content cells (kvtool-snapshot(5), content_digest): one XXH64 per (layer,
 * block, head, kv) of the box, C order.  false: the file has none.  May be called
 * from many threads at once.
 */
bool kvt_dump_has_cells(const struct kvt_dump *reader, int group);
KVT_MUST_CHECK enum kvt_status
kvt_fetch_cells(struct kvt_dump *reader, int group, const struct kvt_box *box,
		uint64_t *cells, struct kvt_error *err);

/* ---- places ------------------------------------------------------------- */

/*
 * Bytes are counted in buffers: the files of the dump, or the tensors that the
 * engine had, as far as a dump tells.  Those are the dense arrays of the groups,
 * separate planes behind each other, or pages with their gaps; groups that share
 * pages share one tensor.
 */
enum kvt_space { KVT_FILES, KVT_MEMORY };

/* What a byte belongs to. */
enum kvt_region {
	KVT_ELEMENT,
	KVT_HEADER,			/* before all data */
	KVT_PADDING,			/* of a page */
	KVT_GAP,			/* between data, but no padding */
	KVT_BEYOND,			/* behind all data */
};

struct kvt_place {
	enum kvt_region region;
	int group;			/* of an element, or of a padded page */
	int64_t index[KVT_NAXES];	/* the same; only L and B of a page */
	int64_t byte;			/* of the element, or of the page */
	int64_t begin, end;		/* what this buffer has data in */
};

/*
 * The number of a buffer: a file by its name inside a folder, a tensor by the
 * id of its group.  NULL: the only one that has data.  KVT_USAGE if there is no
 * such buffer, or several.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_find_buffer(int64_t *out, const struct kvt_dump *reader,
		       enum kvt_space space, const char *name,
		       struct kvt_error *err);
/* The name that finds it; NULL if it needs none. */
const char *kvt_dump_buffer_name(const struct kvt_dump *reader,
				   enum kvt_space space, int64_t buffer);

/*
 * The first byte of an element.  Buffer -1: the element is in no file and reads
 * as zeros.  Elements of a tiled group are in no byte of a file that could be
 * named: KVT_UNSUPPORTED.  An index outside the group is KVT_USAGE.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_locate(int64_t *buffer, int64_t *offset,
		  const struct kvt_dump *reader, enum kvt_space space, int group,
		  const int64_t index[KVT_NAXES], struct kvt_error *err);

/*
 * What byte 'offset' of a buffer belongs to.  In a file that has tiles, all
 * bytes but those of flat groups are KVT_UNSUPPORTED.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_at(struct kvt_place *out, const struct kvt_dump *reader,
	      enum kvt_space space, int64_t buffer, int64_t offset,
	      struct kvt_error *err);

/*
 * The page of a block of a layer with zeros where content of groups is: padding
 * alone.  False: the file holds no pages with padding for this group, or they
 * were read with an earlier group that shares them.
 */
bool kvt_dump_has_padding(const struct kvt_dump *reader, int group);
KVT_MUST_CHECK enum kvt_status
kvt_read_padding(uint8_t *page, const struct kvt_dump *reader, int group,
		 int64_t layer, int64_t block, struct kvt_error *err);

/* ---- writing ------------------------------------------------------------ */

struct kvt_writer;
struct kvt_format_info;

struct kvt_create_options {
	const char *format;		/* NULL: by the name's ending */
	bool force;			/* an existing file may be replaced */
	bool no_sync;			/* faster, but a power cut may lose it */
	bool uncompressed;		/* hdf5: no filters, contiguous */
	bool no_digest;			/* hdf5: without content cells */
	int level;			/* zstd; 0: default */
	int64_t tile_bytes;		/* hdf5: least bytes of a tile; 0: default */
	int64_t row_ranks;		/* offload: of a row; 0: as the input */
	/* keep these tile extents if they fit, so that tiles can move; may be NULL */
	const struct kvt_tiling *like;
};

/*
 * kvt_create() writes in a folder beside 'path', PATH.tmp-PID; the file (or folder)
 * takes its name only in kvt_publish().  'info' is copied.  An existing 'path'
 * without force is KVT_SYSTEM.
 */
KVT_MUST_CHECK enum kvt_status
kvt_create(struct kvt_writer **out, const char *path,
	   const struct kvt_create_options *options,
	   const struct kvt_snapshot *info, struct kvt_error *err);

/* The writer's own copy of 'info', as the file will say it. */
const struct kvt_snapshot *kvt_writer_snapshot(const struct kvt_writer *writer);
const struct kvt_tiling *kvt_writer_tiling(const struct kvt_writer *writer, int group);
const char *kvt_writer_format(const struct kvt_writer *writer);
const struct kvt_format_info *kvt_writer_format_info(const struct kvt_writer *writer);

/* Flat groups; may be called from many threads at once for disjoint boxes. */
KVT_MUST_CHECK enum kvt_status
kvt_write_box(struct kvt_writer *writer, int group, const struct kvt_box *box,
	      const void *buf, struct kvt_error *err);

/*
 * Tiled groups: the file offset at which the bytes of a tile of this size must
 * then be written.  May be called from many threads at once; the file is laid out
 * in the order of these calls, so who wants the same file again gives them an order.
 */
KVT_MUST_CHECK enum kvt_status
kvt_place_tile(struct kvt_writer *writer, int group,
	       const int64_t begin[KVT_NAXES], const struct kvt_stored *stored,
	       int64_t *offset, struct kvt_error *err);
/* Writes one tile, or several neighbours; from many threads at once. */
KVT_MUST_CHECK enum kvt_status
kvt_write_tiles(struct kvt_writer *writer, const void *bytes, int64_t nbytes,
		int64_t offset, struct kvt_error *err);
/* Both. */
KVT_MUST_CHECK enum kvt_status
kvt_store_tile(struct kvt_writer *writer, int group,
	       const int64_t begin[KVT_NAXES], const struct kvt_stored *stored,
	       struct kvt_error *err);
/*
 * Does this writer keep cells?  If so all of them must be stored, each once, by any
 * threads at once.
 */
bool kvt_writer_has_cells(const struct kvt_writer *writer, int group);
KVT_MUST_CHECK enum kvt_status
kvt_store_cells(struct kvt_writer *writer, int group, const struct kvt_box *box,
		const uint64_t *cells, struct kvt_error *err);

/*
 * Completes the output and makes it durable, where it is: kvt_writer_staged() can
 * be opened and verified then, and nothing can be written any more.
 */
KVT_MUST_CHECK enum kvt_status
kvt_finish(struct kvt_writer *writer, struct kvt_error *err);
/*
 * Gives n finished outputs their names, all of them or none: whatever fails, the
 * old files are there as they were.
 */
KVT_MUST_CHECK enum kvt_status
kvt_publish(struct kvt_writer *const *writers, int n, struct kvt_error *err);
/* Both, for one. */
KVT_MUST_CHECK enum kvt_status
kvt_commit(struct kvt_writer *writer, struct kvt_error *err);

/* Leaves nothing that was not published.  NULL is fine. */
void kvt_close_writer(struct kvt_writer *writer);

/* In a sentence about an output that is not published: the name that it will have. */
void kvt_writer_retell(const struct kvt_writer *writer, struct kvt_error *err);

/*
 * What the output does not say itself: adds facts, and a format if its files are
 * those of several, to hints that describe its groups.
 */
void kvt_writer_hints(const struct kvt_writer *writer, struct kvt_hints *hints);

/* The manifest that kvt_commit() will write beside the output; NULL: none. */
const char *kvt_writer_sidecar(const struct kvt_writer *writer);

/*
 * A manifest of what a reader has open, as a new file; it is KVT_SYSTEM if there
 * is one of that name.
 */
KVT_MUST_CHECK enum kvt_status
kvt_write_manifest(const struct kvt_dump *reader, const char *path,
		   struct kvt_error *err);

/* Where the output is until it is published; "" after that, or if it is nowhere. */
const char *kvt_writer_staged(const struct kvt_writer *writer);

/* ---- formats ------------------------------------------------------------ */

/* Names and summaries for --help and --version; NULL past the last one. */
struct kvt_format_info {
	const char *name;		/* "hdf5", "safetensors", "npy", "raw", ... */
	const char *summary;
	bool reads, writes;
};
const struct kvt_format_info *kvt_format_info(int i);

#endif
