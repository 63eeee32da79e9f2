/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.h - new dumps in any format: staged, finished, verified, then published
 *
 * A writer is opened and closed by one thread.  Which of its calls may run at once
 * is said at each.
 */
#ifndef KVT_WRITE_H
#define KVT_WRITE_H

#include "lib/kvt/dump.h"
#include "lib/kvt/run.h"

struct kvt_writer;
struct kvt_tiling;
struct kvt_format_info;

/* Where the data of a file are that has none itself: in group 0 of another snapshot. */
struct kvt_virtual_part {
	const char *path;		/* from the folder of the output */
	const char *id;			/* of the group there */
	struct kvt_patch patch;
};

struct kvt_create_options {
	const char *format;		/* NULL: by the name's ending */
	bool force;			/* an existing file may be replaced */
	bool no_sync;			/* faster, but a power cut may lose it */
	bool uncompressed;		/* hdf5: no filters, contiguous */
	bool no_digest;			/* hdf5: without content cells */
	bool as_is;			/* mlx, transformers: whoever ordered elements */
	int level;			/* zstd; 0: default */
	int64_t tile_bytes;		/* hdf5: least bytes of a tile; 0: default */
	int64_t row_ranks;		/* offload: of a row; 0: as the input */
	const char *row_form;		/* there: "canonical", "ranks"; NULL: likewise */
	/* keep these tile extents if they fit, so that tiles can move; may be NULL */
	const struct kvt_tiling *like;
	/* hdf5: virtual datasets of these; nothing is to be written then; or NULL */
	const struct kvt_virtual_part *parts;
	int64_t nparts;
	/* ggsq, ggsn: a state file of the build and model that is to read it */
	const char *template_path;
	const char *key_order;		/* there: "pairs", "halves"; or NULL */
	/* or the model's GGUF, and "KEY=VALUE,..." of the context; or NULL */
	const char *model_path, *context;
};

/*
 * kvt_create() writes in a folder beside 'path', PATH.tmp-PID; the file (or folder)
 * takes its name only in kvt_publish().  'info' is copied.  An existing 'path'
 * without force is KVT_SYSTEM.  With force, too, it is KVT_USAGE, here and in
 * kvt_publish(), if a dump of this process that is open reads a file of that name, or
 * of the manifest's, or the folder around it; derived dumps keep those open that they
 * are of.  'options' NULL: all zero.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_create(struct kvt_writer **out, const char *path,
	   const struct kvt_create_options *options,
	   const struct kvt_snapshot *info, struct kvt_error *err);

/* The writer's own copy of 'info', as the file will say it. */
KVT_API const struct kvt_snapshot *kvt_writer_snapshot(const struct kvt_writer *writer);
const struct kvt_tiling *kvt_writer_tiling(const struct kvt_writer *writer, int group);
const char *kvt_writer_format(const struct kvt_writer *writer);
const struct kvt_format_info *kvt_writer_format_info(const struct kvt_writer *writer);

/* Flat groups; may be called from many threads at once for disjoint boxes. */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_write_box(struct kvt_writer *writer, int group, const struct kvt_box *box,
	      const void *buf, struct kvt_error *err);

/*
 * Tiled groups: the file offset at which the bytes of a tile of this size must
 * then be written.  The file is laid out
 * in the order of these calls.
 */
KVT_MUST_CHECK enum kvt_status
kvt_place_tile(struct kvt_writer *writer, int group,
	       const int64_t begin[KVT_NAXES], const struct kvt_stored *stored,
	       int64_t *offset, struct kvt_error *err);
/* Writes one tile, or several neighbours; from many threads at once. */
KVT_MUST_CHECK enum kvt_status
kvt_write_tiles(struct kvt_writer *writer, const void *bytes, int64_t nbytes,
		int64_t offset, struct kvt_error *err);
/* Does this writer keep cells?  If so all of them must be stored. */
bool kvt_writer_has_cells(const struct kvt_writer *writer, int group);
KVT_MUST_CHECK enum kvt_status
kvt_store_cells(struct kvt_writer *writer, int group, const struct kvt_box *box,
		const uint64_t *cells, struct kvt_error *err);

/*
 * All of dumps[i] into writers[i], which was created for its snapshot or for one that
 * differs in the layout, and completes it; kvt_publish() comes next.  Several are ranks
 * of one model: groups of one shape, layout and tiling, else KVT_USAGE.  What they have
 * of the same blocks of a leaf is read once.  'run' NULL: a quiet run on the CPU.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_write(struct kvt_writer *const *writers, const struct kvt_dump *const *dumps, int n,
	  const struct kvt_run *run, struct kvt_error *err);
/*
 * Completes the output and makes it durable, where it is: kvt_writer_staged() can
 * be opened and verified then, and nothing can be written any more.  kvt_write() has
 * done this.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_finish(struct kvt_writer *writer, struct kvt_error *err);
/*
 * Gives n finished outputs their names, all of them or none: whatever fails, the
 * old files are there as they were.  Two of one name are KVT_USAGE.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_publish(struct kvt_writer *const *writers, int n, struct kvt_error *err);
/* Both, for one. */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_commit(struct kvt_writer *writer, struct kvt_error *err);

/* Leaves nothing that was not published.  NULL is fine. */
KVT_API void kvt_close_writer(struct kvt_writer *writer);

/* In a sentence about an output that is not published: the name that it will have. */
KVT_API void kvt_writer_retell(const struct kvt_writer *writer, struct kvt_error *err);

/*
 * What the output does not say itself: adds facts, and a format if its files are
 * those of several, to hints that describe its groups.
 */
KVT_API void kvt_writer_hints(const struct kvt_writer *writer, struct kvt_hints *hints);

/* The manifest that kvt_commit() will write beside the output; NULL: none. */
KVT_API const char *kvt_writer_sidecar(const struct kvt_writer *writer);

/* Lines of a program that load the output, each with its line feed; NULL: none. */
const char *kvt_writer_use(const struct kvt_writer *writer);

/*
 * A manifest of what a reader has open, as a new file; it is KVT_SYSTEM if there
 * is one of that name.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_write_manifest(const struct kvt_dump *reader, const char *path,
		   struct kvt_error *err);

/* Opens what a finished writer has staged, to be verified before it is published. */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_open_written(struct kvt_dump **out, const struct kvt_writer *writer,
		 struct kvt_error *err);

/* Where the output is until it is published; "" after that, or if it is nowhere. */
KVT_API const char *kvt_writer_staged(const struct kvt_writer *writer);

/* ---- formats ------------------------------------------------------------ */

/* Names and summaries for --help and --version; NULL past the last one. */
struct kvt_format_info {
	const char *name;		/* "hdf5", "safetensors", "npy", "raw", ... */
	const char *summary;
	bool reads, writes;
	bool one_pool;			/* each block once: see kvt_dump_one_pool() */
	bool one_request;		/* written: its tokens in a row, and no blocks */
	bool by_tokens;			/* written: tokens of requests, in other blocks */
	bool keeps_scales;		/* written: those of fp8, kvt_group.scales */
};
KVT_API const struct kvt_format_info *kvt_format_info(int i);
/* What kvt_create() would write there; 'format' is that of its options. */
KVT_MUST_CHECK enum kvt_status
kvt_output_format(const struct kvt_format_info **out, const char *path,
		  const char *format, struct kvt_error *err);
/*
 * The dump as the file at 'path' is to hold it by options->template_path: with types of
 * the template, whose build rotates what 'rotation' says (kvtool-convert(1); or NULL).
 * Group i of *out is of group from[i] of the dump.  *out NULL: it has these types.
 * KVT_USAGE for formats without templates; options->key_order may change.
 */
KVT_MUST_CHECK enum kvt_status
kvt_output_retype(struct kvt_dump **out, int from[KVT_MAX_GROUPS],
		  struct kvt_create_options *options, const char *path,
		  const struct kvt_dump *dump, const char *rotation,
		  struct kvt_error *err);
/* What names of its files end in, such as ".h5"; "" where nothing does, or no format. */
const char *kvt_output_ending(const char *format);

#endif
