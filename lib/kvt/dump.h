/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump.h - KV caches that can be read, wherever they are
 *
 * A dump is groups of layers, block tables and data.  There are two kinds, and
 * operations do not tell them apart:
 *
 *   leaf      has data of its own: files of one format, a buffer, a constant.
 *   derived   is a list of parts of leaves (derive.h).  Deriving from a derived
 *             dump composes the lists, so that parts always name leaves, a read
 *             needs the scratch of one leaf however long the chain was, and a
 *             stored tile is found as directly as in the file itself.
 *
 * Ownership: a derived dump holds references to its leaves and needs neither the
 * dumps that it was made of nor their order of closing.
 *
 * Threads: a dump never changes once it exists.  Any number of threads may read
 * it at once, each with a worker of its own; formats serialise what their library
 * cannot do at once, in the whole process.
 */
#ifndef KVT_DUMP_H
#define KVT_DUMP_H

#include <sys/types.h>

#include "lib/kvt/run.h"
#include "lib/kvt/snapshot.h"

struct kvt_dump;

/* Neighbouring layers and blocks of a group, by their positions, with all of them. */
struct kvt_patch {
	int group;
	int64_t layer, nlayers, block, nblocks;
};

/* ---- leaves ------------------------------------------------------------- */

/* "KEY=VALUE" each: what one format alone may have to be told. */
struct kvt_facts {
	int n;
	const char *s[64];
};

/*
 * What the user knows and the file may not.  All fields optional (NULL, 0).  What is
 * said here is of all groups that have such a thing; of one group the next one says it.
 */
struct kvt_model;

struct kvt_hints {
	/* options of kvtool(1), a row of kvt_hint_at() each */
	const char *manifest;		/* path */
	bool trust_manifest;		/* also where its checksum is not the data's */
	const char *format;		/* row of the format table, or a preset of it */
	const char *spec;		/* see kvt_model_group_parse() */
	const char *model;		/* path of a config.json, a GGUF, a folder */
	const char *layout;
	const char *dtype;
	const char *content_type;	/* kvt_content_find() */
	int64_t layers, blocks, block_size, heads, head_dim, content;
	int64_t skip;			/* bytes before the data (raw) */
	struct kvt_facts facts;		/* keys that the format does not know: refused */
	struct kvt_facts blocks_of;	/* "A=5,2,9:21" or "@FILE", kvtool(1) */
	struct kvt_facts prompts;	/* "A=FILE" or "A=1,2,3": token ids of requests */
	const char *seq_lens;		/* "21,40" or "@FILE": tokens of these requests */
	const char *slot_mapping;	/* path: the slot of each token, instead */

	const struct kvt_hints *next;	/* of one group each, borrowed; count more */

	const char *group;		/* in that list: its id */
	/* the file is rank tp_rank of tp_size, of a model of total_heads */
	int64_t tp_size, tp_rank, total_heads;	/* tp_size 0: nothing is said */
	bool one_of_several;		/* what describes it must say its rank, too */
	bool empty;			/* a state of nothing is opened, too */
	bool has_sides;			/* --a and --b say which of two files is meant */
	/* hears of all that kvt_open() refuses a snapshot for, not of the first only */
	const struct kvt_inspector *inspector;
	const struct kvt_model *of_model;	/* kvt_open() fills it in */
	/* files of a tree whose bytes are to tell who wrote it; 0: it is not asked */
	int64_t look_into;
	/* of a tree of files, open so many, evenly chosen; 0: all */
	int64_t sample;
};

/* An option that fills in a member of struct kvt_hints. */
struct kvt_hint {
	const char *name;		/* "block-size"; several may be of one member */
	const char *member;		/* "block_size" */
	enum kvt_hint_type {
		KVT_HINT_FLAG,		/* bool */
		KVT_HINT_STRING,	/* const char * */
		KVT_HINT_COUNT,		/* int64_t, 1 or more */
		KVT_HINT_BYTES,		/* int64_t, 0 or more */
		KVT_HINT_FACTS,		/* struct kvt_facts */
		KVT_HINT_GROUPS,	/* const struct kvt_hints *, a list */
	} type;
	size_t offset;
	bool of_group;			/* can be said of one group */
	const char *arg, *help;		/* words of --help */
};
KVT_API const struct kvt_hint *kvt_hint_at(int i);	/* NULL past the last */
/* Whatever 'more' says, 'hints' says afterwards. */
KVT_API void kvt_hints_overlay(struct kvt_hints *hints, const struct kvt_hints *more);
KVT_API bool kvt_hint_said(const struct kvt_hints *hints, const struct kvt_hint *hint);

/*
 * Finds the format by content; by names only that of a folder, and of files whose
 * name is a key.  Everything that can be known to be wrong without reading the data
 * is refused here.  'hints' may be NULL.  A hint that contradicts the file is
 * KVT_BAD_INPUT.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_open(struct kvt_dump **out, const char *path, const struct kvt_hints *hints,
	 struct kvt_error *err);
/* Is 'path' no dump, but where kvt_open() of 'data' looks for its manifest? */
bool kvt_is_manifest_of(const char *path, const char *data,
			const struct kvt_hints *hints);

/*
 * Dense arrays in memory: bytes[g] of each group, in its layout, borrowed until
 * the last dump that reads them is closed.  'info' is copied and checked.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_dump_of_memory(struct kvt_dump **out, const struct kvt_snapshot *info,
		   const void *const bytes[], struct kvt_error *err);
struct kvt_device;

/*
 * Part of a group, in a tensor of whatever strides: 'box' says which, 'view' where its
 * elements are from 'data' on, with indices that count from box.begin.
 */
struct kvt_tensor_part {
	int group;
	struct kvt_box box;
	const void *data;		/* borrowed until the last dump of it is closed */
	struct kvt_view view;
	struct kvt_device *device;	/* of its memory, borrowed too; NULL: the host */
};
/*
 * Tensors in memory, read where they are.  The parts must have each element of 'info'
 * once, in views that kvt_view_end() takes: KVT_BAD_INPUT otherwise.  The layout of a
 * group is only the order in which it is read.
 *
 * Of a tensor on a device (kvt_device_open()) only what is asked for comes over, by the
 * device's default stream: what other streams write must have been waited for.  16 MiB of
 * the device's memory, and of the host's, are held until the last dump is closed.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_dump_of_tensors(struct kvt_dump **out, const struct kvt_snapshot *info,
		    const struct kvt_tensor_part *parts, int64_t nparts,
		    struct kvt_error *err);
/* Every byte of every group is 'fill': what a new pool holds. */
KVT_MUST_CHECK enum kvt_status
kvt_dump_of_constant(struct kvt_dump **out, const struct kvt_snapshot *info,
		     uint8_t fill, struct kvt_error *err);

KVT_API void kvt_dump_close(struct kvt_dump *dump);	/* NULL is allowed */

/* ---- facts; none of these reads data ------------------------------------- */

/* What it says of itself; the dump's, until it is closed. */
KVT_API const struct kvt_snapshot *kvt_dump_snapshot(const struct kvt_dump *dump);

static inline const struct kvt_group *kvt_dump_group(const struct kvt_dump *dump, int g)
{
	return &kvt_dump_snapshot(dump)->group[g];
}

/*
 * The i-th leaf as a dump of its own, borrowed; NULL past the last.  Of a leaf:
 * itself.
 */
const struct kvt_dump *kvt_dump_leaf(const struct kvt_dump *dump, int i);

/* The number there of the group that has elements of this one; -1: none has. */
int kvt_dump_leaf_group(const struct kvt_dump *dump, int i, int group);

/*
 * The leaf that has an element, as kvt_dump_leaf(), and the group and indices there;
 * NULL: none has it, and it reads as zero.
 */
const struct kvt_dump *kvt_dump_trace(const struct kvt_dump *dump, int group,
				      const int64_t index[KVT_NAXES], int *leaf_group,
				      int64_t there[KVT_NAXES]);

/* Of the first leaf: "hdf5", "memory", ...; its path, "" if it has none. */
KVT_API const char *kvt_dump_format(const struct kvt_dump *dump);
KVT_API const char *kvt_dump_path(const struct kvt_dump *dump);
/* Files of all leaves, metadata included: how many, and their bytes. */
KVT_API int64_t kvt_dump_files(const struct kvt_dump *dump);
KVT_API int64_t kvt_dump_file_bytes(const struct kvt_dump *dump);
/* Is this file (by device and inode) one that a leaf has open? */
bool kvt_dump_has_file(const struct kvt_dump *dump, dev_t dev, ino_t ino);
/*
 * KVT_BAD_INPUT if a file of a leaf has changed since it was opened, by its size
 * and time: asked after the data was read, before anybody believes it.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_dump_unchanged(const struct kvt_dump *dump, struct kvt_error *err);

/* ---- of the first leaf: how far its source proves itself ------------------ */

/*
 * What the format has held against what, for a person to read ("lengths, names");
 * NULL: it does not say.
 */
/*
 * The axes of the tensor that a file has, in the order of its indices, where strides put
 * them in memory in another one, which is the layout of group 0; NULL: they do not.
 */
const struct kvt_layout *kvt_dump_indexed(const struct kvt_dump *dump);
KVT_API const char *kvt_dump_checks(const struct kvt_dump *dump);
/* Are these files that no index lists, so that a missing one is not noticed? */
KVT_API bool kvt_dump_unlisted(const struct kvt_dump *dump);
#define KVT_UNLISTED \
	"this format keeps no list of its files, so kvtool cannot tell if one is missing"
/*
 * What else may be wrong with the files without being noticed, for a person to read,
 * as where only its length says what a file holds; NULL: nothing of that kind.
 */
KVT_API const char *kvt_dump_unnoticed(const struct kvt_dump *dump);
/* What its bytes say of who wrote it: "TP 2: likely (..)"; NULL: nothing, unasked. */
const char *kvt_dump_written_by(const struct kvt_dump *dump);
/* Files that the tree has, of which this opened a sample; 0: all are open. */
int64_t kvt_dump_files_of(const struct kvt_dump *dump);

/*
 * What is there of a prompt that was opened with (hints->prompts), in files that are
 * named by the hash of all tokens up to their end.
 */
struct kvt_sought {
	char *prompt;			/* the request's name */
	char group[32];
	int64_t tokens;			/* of the prompt */
	int64_t each;			/* tokens of a file; the last may have fewer */
	int64_t files, present;		/* that there should be, that there are */
	int64_t reached;		/* that follow each other, from the first on */
	int64_t nmissing;
	struct kvt_range *missing;	/* runs of those that are not there */
};
/* The i-th, by prompts and groups; NULL past the last. */
const struct kvt_sought *kvt_dump_sought(const struct kvt_dump *dump, int64_t i);
/* "blocks 0 to 11 present; 12 missing; 13 to 20 present, not reachable" */
struct kvt_sought_text {
	char s[400];
};
struct kvt_sought_text kvt_sought_text(const struct kvt_sought *sought);
/* How their names were made: "sha256, seed 0, by vLLM 0.31 and later"; or NULL. */
const char *kvt_dump_named_by(const struct kvt_dump *dump);

/*
 * What the elements are worked out of where the file does not have them as such, for a
 * person to read ("HQQ codes of 4 bits"); NULL: it has them.
 */
const char *kvt_dump_decoded(const struct kvt_dump *dump);

/* What ties the manifest that was read to the data; see kvtool-manifest(5). */
enum kvt_manifest_proof {
	KVT_PROOF_NO_MANIFEST,
	KVT_PROOF_NONE,			/* it holds nothing to know its file by */
	KVT_PROOF_SIZE,
	KVT_PROOF_SAMPLES,		/* size and a checksum of samples */
	KVT_PROOF_HEADER,		/* it is in the file itself */
	KVT_PROOF_FAILED,		/* the data is not what it was written for */
};
KVT_API enum kvt_manifest_proof kvt_dump_proof(const struct kvt_dump *dump);
/* Path of that manifest; NULL if there is none, or none outside the file. */
KVT_API const char *kvt_dump_manifest(const struct kvt_dump *dump);

/* What is held against checksums of the dump; those of tiles: see their tiling. */
struct kvt_proven {
	bool can_be;			/* the format has such checksums */
	bool tables;			/* and whatever else is said of the data */
	bool cells[KVT_MAX_GROUPS];	/* kvt_read_cells() refuses damaged ones */
	bool flat[KVT_MAX_GROUPS];	/* so does reading boxes of arrays */
};
const struct kvt_proven *kvt_dump_proven(const struct kvt_dump *dump);

/* ---- stored tiles and cells ----------------------------------------------- */

struct kvt_tiling;			/* tile.h */
struct kvt_stored;
struct kvt_extent;

/*
 * How a group is cut and encoded if tiles of leaves are tiles of this dump; NULL
 * if the group is an array, or if what was derived cuts every tile.
 */
const struct kvt_tiling *kvt_dump_tiling(const struct kvt_dump *dump, int group);
/*
 * Is every tile that begins in the box stored just so in a leaf?  Costs a look at
 * each layer and block of the box.  False: the box must be read.
 */
bool kvt_dump_has_tiles(const struct kvt_dump *dump, int group,
			const struct kvt_box *box);
/* Content cells (kvtool-snapshot(5), content_digest) of all blocks? */
bool kvt_dump_has_cells(const struct kvt_dump *dump, int group);
/* Are they those that were stored?  Others must be made again, not copied. */
bool kvt_dump_cells_proven(const struct kvt_dump *dump, int group);

/*
 * The stored tile at begin[], of a box for which kvt_dump_has_tiles() holds.  A
 * missing tile, or one that is not inside its file or larger than
 * kvt_stored_bound(), is KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
kvt_read_tile(const struct kvt_dump *dump, int group, const int64_t begin[KVT_NAXES],
	      struct kvt_stored *out, struct kvt_error *err);
/* Where that tile lies in its file; its bytes are not read. */
KVT_MUST_CHECK enum kvt_status
kvt_find_tile(const struct kvt_dump *dump, int group, const int64_t begin[KVT_NAXES],
	      struct kvt_extent *out, struct kvt_error *err);
/* One XXH64 per (layer, block, head, kv) of the box, C order; it holds all H and K. */
KVT_MUST_CHECK enum kvt_status
kvt_read_cells(const struct kvt_dump *dump, int group, const struct kvt_box *box,
	       uint64_t *cells, struct kvt_error *err);

/* ---- reading -------------------------------------------------------------- */

/*
 * The dense box in 'layout' (NULL: the group's own); elements in no leaf are 0.
 * The box may be any; along a split axis it must hold whole inner parts or stay
 * inside one.  Allocates what it needs: for few large boxes.  Operations on all
 * data use kvt_read() of lib/run/pipeline.h, whose workers keep their buffers.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_dump_read(const struct kvt_dump *dump, int group, const struct kvt_box *box,
	      const struct kvt_layout *layout, void *buf, struct kvt_error *err);

/* ---- addresses ---------------------------------------------------------- */

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

struct kvt_where {
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
kvt_dump_find_buffer(int64_t *out, const struct kvt_dump *dump,
		       enum kvt_space space, const char *name,
		       struct kvt_error *err);
/* The name that finds it; NULL if it needs none. */
const char *kvt_dump_buffer_name(const struct kvt_dump *dump,
				   enum kvt_space space, int64_t buffer);

/*
 * The first byte of an element.  Buffer -1: the element is in no file and reads
 * as zeros.  Elements of a tiled group are in no byte of a file that could be
 * named: KVT_UNSUPPORTED.  An index outside the group is KVT_USAGE.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_locate(int64_t *buffer, int64_t *offset,
		  const struct kvt_dump *dump, enum kvt_space space, int group,
		  const int64_t index[KVT_NAXES], struct kvt_error *err);

/*
 * What byte 'offset' of a buffer belongs to.  In a file that has tiles, all
 * bytes but those of flat groups are KVT_UNSUPPORTED.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_at(struct kvt_where *out, const struct kvt_dump *dump,
	      enum kvt_space space, int64_t buffer, int64_t offset,
	      struct kvt_error *err);

/*
 * The page of a block of a layer with zeros where content of groups is: padding
 * alone.  False: the file holds no pages with padding for this group, or they
 * were read with an earlier group that shares them.
 */
bool kvt_dump_has_padding(const struct kvt_dump *dump, int group);
KVT_MUST_CHECK enum kvt_status
kvt_read_padding(uint8_t *page, const struct kvt_dump *dump, int group,
		 int64_t layer, int64_t block, struct kvt_error *err);


#endif
