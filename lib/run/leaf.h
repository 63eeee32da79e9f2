/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf.h - what a source of data implements: formats/, memory, a constant
 *
 * All functions may be called from any number of threads at once: a library that
 * cannot do so is locked inside its format, and no call goes back up, so that lock
 * is always the innermost.
 */
#ifndef KVT_LEAF_H
#define KVT_LEAF_H

#include "lib/kvt/dump.h"
#include "lib/kvt/run.h"
#include "lib/kvt/tile.h"

struct kvt_saved;
struct kvt_worker;

struct kvt_leaf {
	const struct kvt_leaf_ops *ops;
	_Atomic int refs;
	const char *format;		/* "hdf5", "memory", ... */
	char *path;			/* owned; NULL: none */
	struct kvt_snapshot snapshot;	/* checked and complete; owned */
	struct kvt_tiling tiling[KVT_MAX_GROUPS];	/* nbytes 0: an array */
	struct kvt_layout runs[KVT_MAX_GROUPS];	/* of tiles: tile_runs() */
	struct kvt_layout indexed;	/* kvt_dump_indexed(); no planes: NULL */
	struct kvt_proven proven;
	/* data that has no checksum of its own is read by lib/dump/leaf_held.c */
	bool held[KVT_MAX_GROUPS];
	bool settles;			/* ops->settle has something to do */
	const char *checks;		/* what was held against what; or NULL */
	bool unlisted;			/* nothing says which files there should be */
	const char *unnoticed;		/* what else could be wrong with them; or NULL */
	char *said;			/* that, where a reader made it; owned; or NULL */
	struct kvt_saved *saved;		/* kvt_dump_saved(); owned; or NULL */
	char *written_by;		/* kvt_dump_written_by(); owned; or NULL */
	int64_t files_of;		/* kvt_dump_files_of() */
	char decoded[64];		/* kvt_dump_decoded(); "": nothing */
	int64_t nsought;
	struct kvt_sought *sought;	/* kvt_dump_sought(); owned */
	char named_by[128];		/* kvt_dump_named_by(); "": none */
	int64_t rows, row_bytes;	/* of a file that is one tensor; 0: it is none */
	char *manifest;			/* path; owned; NULL: none,
	or in the file itself */
	enum kvt_manifest_proof proof;
	struct kvt_dump *self;		/* this leaf as a dump; not a reference */
};

/* NULL where not said otherwise: the leaf has nothing of that kind. */
struct kvt_leaf_ops {
	/* Arrays: the dense box in the group's layout.  Never NULL. */
	enum kvt_status (*read_box)(const struct kvt_leaf *leaf, int group,
				    const struct kvt_box *box, void *buf,
				    struct kvt_error *err);
	/* The same for a worker, whose device may do what is computed of it. */
	enum kvt_status (*read_by)(struct kvt_worker *worker,
				   const struct kvt_leaf *leaf, int group,
				   const struct kvt_box *box, void *buf,
				   struct kvt_error *err);
	/* Bytes of an element as the device gets it for that; 0: it does not. */
	int64_t (*worked_on)(const struct kvt_leaf *leaf, int group);
	/*
	 * What was read counts only after this: files may have one checksum of much
	 * more than was read.  Of all there are, or of those of what was read, from
	 * the *i-th on; after KVT_BAD_INPUT *i is the one after the damaged one.
	 */
	enum kvt_status (*settle)(const struct kvt_leaf *leaf, int64_t *i, bool all,
				  const struct kvt_run *run, struct kvt_error *err);
	/* The whole group in its layout, where it lies; NULL: it must be read. */
	const void *(*bytes)(const struct kvt_leaf *leaf, int group);

	/* Tiles.  Decoding is lib/tile's, for whoever wants it. */
	enum kvt_status (*find_tile)(const struct kvt_leaf *leaf, int group,
				     const int64_t begin[KVT_NAXES],
				     struct kvt_extent *out, struct kvt_error *err);
	enum kvt_status (*load_tile)(const struct kvt_leaf *leaf,
				     const struct kvt_extent *extent,
				     struct kvt_stored *out, struct kvt_error *err);
	bool (*has_cells)(const struct kvt_leaf *leaf, int group);
	enum kvt_status (*fetch_cells)(const struct kvt_leaf *leaf, int group,
				       const struct kvt_box *box, uint64_t *cells,
				       struct kvt_error *err);

	/* Places in files and in the engine's tensors: as kvt_dump_locate() etc. */
	enum kvt_status (*locate)(int64_t *buffer, int64_t *offset,
				  const struct kvt_leaf *leaf, enum kvt_space space,
				  int group, const int64_t index[KVT_NAXES],
				  struct kvt_error *err);
	enum kvt_status (*at)(struct kvt_where *out, const struct kvt_leaf *leaf,
			      enum kvt_space space, int64_t buffer, int64_t offset,
			      struct kvt_error *err);
	enum kvt_status (*find_buffer)(int64_t *out, const struct kvt_leaf *leaf,
				       enum kvt_space space, const char *name,
				       struct kvt_error *err);
	const char *(*buffer_name)(const struct kvt_leaf *leaf, enum kvt_space space,
				   int64_t buffer);
	bool (*has_padding)(const struct kvt_leaf *leaf, int group);
	enum kvt_status (*read_padding)(uint8_t *page, const struct kvt_leaf *leaf,
					int group, int64_t layer, int64_t block,
					struct kvt_error *err);

	/* Files. */
	int64_t (*files)(const struct kvt_leaf *leaf, int64_t *nbytes);
	bool (*has_file)(const struct kvt_leaf *leaf, dev_t dev, ino_t ino);
	enum kvt_status (*unchanged)(const struct kvt_leaf *leaf, struct kvt_error *err);

	/* Frees what is the source's own, and the leaf, whose fields are freed. */
	void (*close)(struct kvt_leaf *leaf);
};

/* leaf->sought. */
void kvt_leaf_free_sought(struct kvt_leaf *leaf);

/*
 * What leaves in memory begin with: checked copy of 'info'.  On failure 'leaf' holds
 * nothing.
 */
KVT_MUST_CHECK enum kvt_status
leaf_init(struct kvt_leaf *leaf, const struct kvt_leaf_ops *ops, const char *format,
	  const struct kvt_snapshot *info, struct kvt_error *err);

/*
 * A dump of a leaf that is filled in; it takes the leaf, also where it fails.
 * Snapshot and tilings must not change any more.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_of_leaf(struct kvt_dump **out, struct kvt_leaf *leaf, struct kvt_error *err);

/* The leaf of a dump that is one; NULL if it is derived. */
struct kvt_leaf *kvt_dump_is_leaf(const struct kvt_dump *dump);

#endif
