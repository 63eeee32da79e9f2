/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - what formats.c and the formats share; nobody outside formats/
 * includes it
 *
 * A format is a const struct of functions.  It fills a reader's snapshot and,
 * per group, either parts of files (flat, read by file/flat.c) or a tiling.
 */
#ifndef KVT_FORMAT_H
#define KVT_FORMAT_H

#include <time.h>

#include "formats/hints.h"
#include "formats/stage.h"
#include "lib/run/leaf.h"
#include "lib/run/turn.h"
#include "lib/run/writer.h"

struct kvt_file_proof;

/* ---- flat groups -------------------------------------------------------- */

/*
 * A box of a group that lies in one file.  views count from box.begin; their
 * offsets are file offsets.  The parts a reader has tile the group exactly;
 * those of a writer may overlap, and a box is then written to each of them.
 */
struct kvt_file_part {
	int file;			/* index into kvt_files; -1: nowhere, zeros */
	struct kvt_box box;
	struct kvt_views views;
};

/*
 * A dump of a file a block has as many parts as blocks, and their views differ
 * in where they begin: so views are kept apart, and few of them.
 */
struct kvt_placed {
	int file;
	int32_t views;			/* index */
	int64_t offset;			/* behind the views' own */
	struct kvt_box box;
};

struct kvt_flat {
	int64_t nparts;		/* 0: the group is tiled */
	struct kvt_placed *placed;	/* owned */
	int32_t nviews;
	struct kvt_views *views;	/* owned */
	int64_t span[2];		/* most layers, most blocks in one run */
};

/* The i-th part as it was added. */
struct kvt_file_part kvt_flat_part(const struct kvt_flat *flat, int64_t i);

/*
 * Bytes that lie in no file: they are worked out of those of others whenever they are
 * read, from any number of threads.  One block of memory, which begins with this.
 */
struct kvt_computed {
	enum kvt_status (*read)(const struct kvt_computed *computed, void *buf,
				int64_t nbytes, int64_t offset, struct kvt_error *err);
};

struct kvt_file {
	int fd;				/* -1: parked, opened for each access */
	int64_t nbytes;			/* at open */
	dev_t dev;
	ino_t ino;
	struct timespec changed;	/* at open, too */
	char *path;
	struct kvt_file_proof *proof;	/* what is read is held against it; or NULL */
	struct turn *writing;		/* kvt_files_written(); owned; or NULL */
	int64_t unit;			/* no write crosses a multiple; 0: any may */
	struct kvt_computed *computed;	/* owned; it is no file then; or NULL */
};

struct kvt_files {
	int64_t count;
	struct kvt_file *file;		/* owned, as are the fds */
};

/*
 * Opens a regular file for reading (never a FIFO or device, and without
 * blocking on one).  KVT_SYSTEM if it cannot be opened, KVT_BAD_INPUT if it is
 * no regular file.
 */
KVT_MUST_CHECK enum kvt_status
kvt_files_open(struct kvt_files *files, int *index, const char *path,
	       struct kvt_error *err);
/* Lists a file that is known already, parked; takes its path. */
KVT_MUST_CHECK enum kvt_status
kvt_files_list(struct kvt_files *files, int *index, const struct kvt_file *file,
	       struct kvt_error *err);
/* Lists what is no file; takes it, also when it fails.  'path' is for messages. */
KVT_MUST_CHECK enum kvt_status
kvt_files_compute(struct kvt_files *files, int *index, struct kvt_computed *computed,
		  int64_t nbytes, const char *path, struct kvt_error *err);
/* Creates a file of 'nbytes' zeros for writing; it must not exist. */
KVT_MUST_CHECK enum kvt_status
kvt_files_create(struct kvt_files *files, int *index, const char *path,
		 int64_t nbytes, struct kvt_error *err);
/* The file is written by several threads, as one that was created is. */
KVT_MUST_CHECK enum kvt_status
kvt_files_written(struct kvt_files *files, int index, struct kvt_error *err);
/*
 * Gives a descriptor back: a dump of many small files would need more of them
 * than a process may have.  Later accesses open the file again and check that
 * it is still the same one.
 */
void kvt_files_park(struct kvt_files *files, int index);
void kvt_files_close(struct kvt_files *files);
/*
 * Gives all descriptors of written files back and hears of writes that failed
 * only then; the files stay listed.
 */
KVT_MUST_CHECK enum kvt_status
kvt_files_finish(struct kvt_files *files, struct kvt_error *err);

/* KVT_BAD_INPUT if one of the files is not as it was when it was opened. */
KVT_MUST_CHECK enum kvt_status
kvt_files_unchanged(const struct kvt_files *files, struct kvt_error *err);

/* Of 'nbytes' at 'offset', those that the first call of pwrite() should take. */
int64_t kvt_file_write_bytes(const struct kvt_file *file, int64_t nbytes, int64_t offset);
/* pread() and pwrite() of all bytes, whatever they are; a short read is KVT_BAD_INPUT. */
KVT_MUST_CHECK enum kvt_status
kvt_file_pread(const struct kvt_file *file, void *buf, int64_t nbytes, int64_t offset,
	       struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_file_pwrite(const struct kvt_file *file, const void *buf, int64_t nbytes,
		int64_t offset, struct kvt_error *err);
/*
 * The same for a file that may have a proof (formats/file/proof.h): bytes that are
 * not those that were written are KVT_BAD_INPUT; those written make the proof.
 */
KVT_MUST_CHECK enum kvt_status
kvt_file_read(const struct kvt_file *file, void *buf, int64_t nbytes,
	      int64_t offset, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_file_write(const struct kvt_file *file, const void *buf, int64_t nbytes,
	       int64_t offset, struct kvt_error *err);

/*
 * All bytes of a small file, malloc()ed and terminated; KVT_BAD_INPUT if there are more
 * than 'most', which are too many for 'what'.
 */
KVT_MUST_CHECK enum kvt_status
kvt_read_whole(char **bytes, int64_t *nbytes, const char *path, int64_t most,
	       const char *what, struct kvt_error *err);

/* Appends a copy. */
KVT_MUST_CHECK enum kvt_status
kvt_flat_add(struct kvt_flat *flat, const struct kvt_file_part *part,
	     struct kvt_error *err);
/*
 * Puts the parts in order and checks that each lies inside its group and its
 * file.  kvt_open() and kvt_create() do this for every group, so a format only
 * adds.
 */
KVT_MUST_CHECK enum kvt_status
kvt_flat_seal(struct kvt_flat *flat, const struct kvt_files *files,
	      const struct kvt_group *group, struct kvt_error *err);
void kvt_flat_free(struct kvt_flat *flat);

KVT_MUST_CHECK enum kvt_status
kvt_flat_read(const struct kvt_flat *flat, const struct kvt_files *files,
	      const struct kvt_group *group, const struct kvt_box *box,
	      void *buf, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_flat_write(const struct kvt_flat *flat, const struct kvt_files *files,
	       const struct kvt_group *group, const struct kvt_box *box,
	       const void *buf, struct kvt_error *err);

/* A file that is one tensor for all groups, a row of each block; 0: it is none. */
struct kvt_rows {
	int64_t rows, row_bytes;
};

/* Or several, and where each layer is in them: formats/describe/caches.h. */
struct kvt_caches;

/* ---- readers, writers, formats ------------------------------------------ */

/* Another dump, whose one group is a patch of this one. */
struct kvt_source {
	char path[512];			/* from the folder of this one */
	char group[512];		/* its id */
	struct kvt_patch patch;
};

/* A leaf of files.  The format fills what is said; formats.c does the rest. */
struct kvt_reader {
	struct kvt_leaf leaf;		/* first: the engine knows only this */
	const struct kvt_format *format;
	bool empty;			/* sound, and there is nothing in it */
	int64_t skip;			/* bytes before the data, as was said */
	bool other_dtype;		/* hints->dtype is of what was coded as these */
	/* of files that are named by hashes: who names, tokens a hash, blocks a file */
	const char *named_by;		/* "vllm"; NULL: they are not */
	int64_t named_unit, named_blocks;	/* 0: a block, 1 */
	struct kvt_files files;		/* of the flat groups; others may be listed */
	struct kvt_flat flat[KVT_MAX_GROUPS];	/* where there is no tiling */
	/* or the data are of others, which kvt_open() joins; both owned */
	int64_t nsources;
	struct kvt_source *source;
	struct kvt_dump *joined;
	void *own;			/* the format's */
	/* among those that are open, and the folder that it is of: file/reads.c */
	bool entered;
	struct kvt_reader *before, *next;
	dev_t folder_dev;
	ino_t folder_ino;		/* 0: of a file */
};

struct kvt_writer {
	struct kvt_writer_head head;	/* first: the engine knows only this */
	const struct kvt_format *format;
	char *path;			/* final name; owned, as is 'sidecar' */
	char *sidecar;			/* manifest beside a data file; NULL: none */
	/* where both are written until they get these names; the stage's */
	const char *temporary, *sidecar_temporary;
	struct kvt_stage stage;
	bool finished, published;
	struct kvt_create_options options;	/* its format is a copy, owned */
	int behind;			/* fd of the temporary file, for hints; or -1 */
	/* what somebody who reads it has to say; the format's create() fills it */
	struct kvt_facts facts;
	char fact[6][48];		/* of 'facts' */
	int64_t head_dim;		/* that of keys, where 'facts' have no heads; 0 */
	const char *preset;		/* NULL: none */
	char *use;			/* what loads it, in lines; owned; or NULL */
	struct kvt_rows tensor;		/* what the manifest says of the file */
	_Atomic int64_t written;	/* bytes of data, by all threads */
	struct kvt_files files;
	char **folder;			/* owned: where they are, as it was made */
	int64_t nfolders;
	struct kvt_flat flat[KVT_MAX_GROUPS];
	void *own;
};

/* What formats do alike: writer.c, commit.c. */
KVT_MUST_CHECK enum kvt_status
kvt_writer_box(struct kvt_writer *writer, int group, const struct kvt_box *box,
	       const void *buf, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_writer_tiles(struct kvt_writer *writer, const void *bytes, int64_t nbytes,
		 int64_t offset, struct kvt_error *err);

/* Data that patches of other dumps are: kvt_dump_join().  These may be closed then. */
KVT_MUST_CHECK enum kvt_status
kvt_reader_join(struct kvt_reader *reader, struct kvt_dump *const *parts,
		const struct kvt_patch *patches, int64_t n, struct kvt_error *err);
/* A dump of a reader that is filled in and sealed; it takes the reader. */
KVT_MUST_CHECK enum kvt_status
kvt_reader_dump(struct kvt_dump **out, struct kvt_reader *reader, struct kvt_error *err);
/* One that is no dump yet. */
void kvt_reader_free(struct kvt_reader *reader);
/* The reader that a leaf is the beginning of. */
static inline const struct kvt_reader *kvt_leaf_reader(const struct kvt_leaf *leaf)
{
	return (const struct kvt_reader *)leaf;
}
/* The reader of a dump that was opened; borrowed. */
const struct kvt_reader *kvt_reader_of(const struct kvt_dump *dump);

/* ---- places: file/locate.c ------------------------------------------------ */

/* As kvt_dump_locate() and its like, of the leaf of a reader. */
KVT_MUST_CHECK enum kvt_status
kvt_reader_locate(int64_t *buffer, int64_t *offset, const struct kvt_leaf *leaf,
		  enum kvt_space space, int group, const int64_t index[KVT_NAXES],
		  struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_reader_at(struct kvt_where *out, const struct kvt_leaf *leaf, enum kvt_space space,
	      int64_t buffer, int64_t offset, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_reader_find_buffer(int64_t *out, const struct kvt_leaf *leaf, enum kvt_space space,
		       const char *name, struct kvt_error *err);
const char *kvt_reader_buffer_name(const struct kvt_leaf *leaf, enum kvt_space space,
				   int64_t buffer);
bool kvt_reader_has_padding(const struct kvt_leaf *leaf, int group);
KVT_MUST_CHECK enum kvt_status
kvt_reader_read_padding(uint8_t *page, const struct kvt_leaf *leaf, int group,
			int64_t layer, int64_t block, struct kvt_error *err);

/*
 * Makes a folder of a writer's output, its own ('temporary') or one below it, unless
 * it has been made; goes away with the writer if nothing is published.
 */
KVT_MUST_CHECK enum kvt_status
kvt_writer_folder(struct kvt_writer *writer, const char *path, struct kvt_error *err);
/* Files and folders of the output, as far as this writer made them. */
void kvt_writer_remove_folders(const struct kvt_writer *writer);

/*
 * Fills in the numbers that 'spec' has and are not given otherwise; of a rank's
 * share, where the rank is known.
 */
KVT_MUST_CHECK enum kvt_status
kvt_hints_take_spec(struct kvt_hints *hints, const struct kvt_parallel *parallel,
		    struct kvt_error *err);

/* The window that 'spec' has; *out stays where it has none. */
KVT_MUST_CHECK enum kvt_status
kvt_hints_window(int64_t *out, const struct kvt_hints *hints, struct kvt_error *err);

/*
 * The same of what all layers of hints->of_model that keep tokens have in common; and
 * heads of those whose keys have 'width' elements, 0 if there are none.
 */
KVT_MUST_CHECK enum kvt_status
kvt_hints_take_model(struct kvt_hints *hints, const struct kvt_parallel *parallel,
		     struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_hints_model_heads(int64_t *heads, int64_t width, const struct kvt_hints *hints,
		      const char *path, struct kvt_error *err);

/* The window of its layers that have one, where that is one number. */
void kvt_hints_model_window(int64_t *out, const struct kvt_hints *hints);

/* Its layers that keep all tokens, and those that keep a window. */
void kvt_hints_model_layers(int64_t *all, int64_t *windowed,
			    const struct kvt_hints *hints);

/* KVT_BAD_INPUT if a group is of no layers that the hints' model has. */
KVT_MUST_CHECK enum kvt_status
kvt_model_check_dump(const struct kvt_snapshot *snapshot, const struct kvt_hints *hints,
		     const char *path, struct kvt_error *err);

/* KVT_BAD_INPUT if no group is what the hints' spec says; one is enough. */
KVT_MUST_CHECK enum kvt_status
kvt_spec_check_dump(const struct kvt_snapshot *snapshot, const struct kvt_hints *hints,
		    const char *path, struct kvt_error *err);

struct kvt_format {
	struct kvt_format_info info;
	const char *const *endings;	/* ".h5", ...; NULL-terminated; NULL: none */
	const char *const *presets;	/* other names for it; NULL: none */
	const char *const *facts;	/* keys of hints->facts it asks; NULL: none */
	const char *checks;		/* for kvt_dump_checks(), unless open() says */
	unsigned takes;			/* KVT_TAKES_MANIFEST, ...: others are refused */
	/* Is it what a user calls so whose layout is of the engine's memory?  Or NULL. */
	bool (*in_layout)(const struct kvt_group *, const struct kvt_layout *said);
	bool directory;			/* writes a folder */
	bool sidecar;			/* writes a manifest beside the file */
	bool nowhere;			/* writes no file at all */
	bool open_again;		/* opening it proves what was written */
	bool row_ranks;			/* options.row_ranks means something to it */

	/*
	 * Does this look like the format?  'head' holds the first nhead bytes of
	 * a regular file; for a directory head is NULL.
	 */
	bool (*probe)(const char *path, const uint8_t *head, int64_t nhead);
	/* Does a folder look so that has a file of this name below it?  Or NULL. */
	bool (*holds)(const char *name);

	/*
	 * Fills reader->leaf.snapshot and the flats or tilings; hints are never NULL.
	 * NULL: write only.
	 */
	enum kvt_status (*open)(struct kvt_reader *reader, const char *path,
				const struct kvt_hints *hints,
				struct kvt_error *err);
	void (*close)(struct kvt_reader *reader);	/* frees reader->own */
	/* What is seen only once the parts are in order: leaf.unnoticed.  Or NULL. */
	enum kvt_status (*tell)(struct kvt_reader *reader, struct kvt_error *err);

	/*
	 * The dump with the types that the file is to have by options.template_path, as
	 * kvt_output_retype(); the writer has options and snapshot only.  NULL: those of
	 * a dump are its own.
	 */
	enum kvt_status (*retype)(struct kvt_dump **out, int from[KVT_MAX_GROUPS],
				  struct kvt_writer *writer, const struct kvt_dump *dump,
				  const char *rotation, struct kvt_error *err);
	/*
	 * Creates writer->temporary (already chosen) and fills the flats or
	 * tilings.  NULL: read only.
	 */
	enum kvt_status (*create)(struct kvt_writer *writer, struct kvt_error *err);
	/*
	 * Everything but fsync and rename, which commit.c does; creates
	 * writer->sidecar_temporary if the format has a sidecar.
	 */
	enum kvt_status (*finish)(struct kvt_writer *writer, struct kvt_error *err);
	void (*abandon)(struct kvt_writer *writer);	/* frees writer->own */

	/* Tiled formats only; the tiles are in file 0. */
	enum kvt_status (*find_tile)(const struct kvt_reader *, int group,
				     const int64_t begin[KVT_NAXES],
				     struct kvt_extent *, struct kvt_error *);
	bool (*has_cells)(const struct kvt_reader *, int group);
	enum kvt_status (*fetch_cells)(const struct kvt_reader *, int group,
				       const struct kvt_box *, uint64_t *,
				       struct kvt_error *);
	enum kvt_status (*place_tile)(struct kvt_writer *, int group,
				      const int64_t begin[KVT_NAXES],
				      const struct kvt_stored *,
				      int64_t *offset, struct kvt_error *);
	enum kvt_status (*store_cells)(struct kvt_writer *, int group,
				       const struct kvt_box *, const uint64_t *,
				       struct kvt_error *);
};

extern const struct kvt_format kvt_hdf5_format, kvt_safetensors_format,
	kvt_npy_format, kvt_raw_format, kvt_canonical_format, kvt_folder_format,
	kvt_null_format,
	kvt_npz_format, kvt_torch_format, kvt_cache_format, kvt_mlx_format,
	kvt_llama_format, kvt_ggsq_format, kvt_ggsn_format,
	kvt_hicache_format, kvt_offload_format, kvt_trtllm_format, kvt_flexkv_format,
	kvt_kvbm_format, kvt_kvbm_objects_format, kvt_lmcache_format, kvt_mooncake_format,
	kvt_mlx_blocks_format, kvt_layer_files_format;

/*
 * Is a file of tensors that this format reads a cache of transformers, by what is in it?
 * Not where something is said of blocks, in 'hints' or by a manifest.
 */
bool kvt_cache_is_meant(const struct kvt_format *format, const char *path,
			const struct kvt_hints *hints);

/* The i-th format of the table, NULL past the last one. */
const struct kvt_format *kvt_format_at(int i);
/* By its name or a preset's; NULL if there is none. */
const struct kvt_format *kvt_format_find(const char *name);
/*
 * KVT_UNSUPPORTED, with what to do instead, if a store of that name, or what such a URL
 * is of, is known and not read; KVT_OK if it is neither.
 */
KVT_MUST_CHECK enum kvt_status
kvt_format_unread(const char *name, size_t n, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_path_unread(const char *path, struct kvt_error *err);
/*
 * KVT_USAGE: there is none of this name, and which one may be meant; or the status
 * above.
 */
KVT_MUST_CHECK enum kvt_status
kvt_format_unknown(const char *name, struct kvt_error *err);

/* ---- facts that one format alone asks for ------------------------------- */

/*
 * The value that the user gave for a key; NULL if none.  A format lists all
 * keys it asks for, in kvt_format.facts, so that kvt_open() can refuse others.
 */
const char *kvt_fact(const struct kvt_hints *hints, const char *key);
/* A whole number in [min, max]; without the key *out stays as it is. */
KVT_MUST_CHECK enum kvt_status
kvt_fact_int(int64_t *out, const struct kvt_hints *hints, const char *key,
	     int64_t min, int64_t max, struct kvt_error *err);
/* KVT_USAGE: no KEY=VALUE, a key that the format does not know, or one twice. */
KVT_MUST_CHECK enum kvt_status
kvt_facts_check(const struct kvt_hints *hints, const struct kvt_format *format,
		struct kvt_error *err);

/* Tells hints->inspector, if there is one, of something that is no reason to stop. */
void kvt_tell(const struct kvt_hints *hints, const char *rule, const char *format, ...)
	KVT_PRINTF(3, 4);

/* ---- manifests ---------------------------------------------------------- */

/* What a manifest holds to know its file by; -1: not given. */
struct kvt_file_sum {
	int64_t nbytes;
	int64_t crc32;			/* of samples, see manifest/proof.c */
};

/* The sum of a file as it is now; reads 4 MiB of it at most. */
KVT_MUST_CHECK enum kvt_status
kvt_file_sum(struct kvt_file_sum *out, const struct kvt_file *file,
	     struct kvt_error *err);

/*
 * A manifest (kvtool-manifest(5)) in a form the flat formats share: the
 * snapshot it describes and what it says of the file.  Extents that nothing
 * has said so far are -1 until kvt_manifest_fit().
 */
struct kvt_manifest {
	struct kvt_snapshot snapshot;
	bool has_layout;		/* false: a hint or the file must say it */
	const struct kvt_hints *hints;	/* fill what is open; borrowed, or NULL */
	int rank;			/* of file_shape; 0: not given */
	int64_t file_shape[8];
	int64_t skip;			/* bytes before the data */
	struct kvt_rows tensor;
	struct kvt_caches *caches;	/* NULL: none; owned */
	char file[256];			/* name of the data file; "" if not given */
	char npy_dtype[16];		/* what numpy calls the elements; "" likewise */
	char *path;			/* of the manifest; NULL: none was read */
	bool pages;			/* the file holds pages, not dense arrays */
	bool derived;			/* an extent follows from the bytes alone */
	struct kvt_file_sum sum;	/* of the data file, as far as it says */
	enum kvt_manifest_proof proof;		/* what the file has made of that */
	bool passed_over;		/* one beside the file is of another file */
	bool lacks_rank;		/* of several files; this one says no rank */
};

/* For leaf.unnoticed, where ->derived. */
#define KVT_DERIVED \
	"one extent follows from the length of the files, so a cut file cannot be " \
	"noticed unless another one is longer; give that extent, too"

/*
 * The manifest for a data file: hints->manifest, or one of the two names of
 * kvt_manifest_name() beside it, or nothing ('found' false).  One that is not
 * of this file is KVT_BAD_INPUT, unless hints->trust_manifest.
 * Hints fill what the manifest leaves open, numbers not before kvt_manifest_fit();
 * what contradicts them kvt_open() finds.
 * Also with no manifest at all, hints alone may describe the dump.
 */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_load(struct kvt_manifest *out, bool *found, const struct kvt_file *data,
		  const struct kvt_hints *hints, struct kvt_error *err);
/*
 * Where it may lie: 0 is the name that kvtool writes (kv.npy: kv.json, kv.bin:
 * kv.bin.json), 1 the other one.  malloc()ed; NULL when out of memory.
 */
char *kvt_manifest_name(const char *path, int which);
/* The same from text; 'name' is for messages. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_parse(struct kvt_manifest *out, const char *text, size_t nbytes,
		   const char *name, const struct kvt_hints *hints,
		   struct kvt_error *err);

/* An array as its own file describes it. */
struct kvt_array {
	const char *name;		/* of the file, for messages */
	int rank;			/* 0: nothing is known of its shape */
	int64_t shape[32];
	int64_t elem;			/* bytes of one element; 0: unknown */
	const struct kvt_dtype *dtype;	/* if the file says so; or NULL */
	int64_t nbytes;			/* of all there is */
	bool apart;			/* keys and values in two tensors of this shape */
	bool of_layers;			/* tensors of a layer each: the first axis */
	bool either;			/* two of them, or one's keys and values */
	bool is_tensor;			/* of a file that --from=transformers takes */
};

/*
 * Derives what the manifest leaves open from the array that holds the data and
 * checks that both agree, to the byte; sets ->pages and ->derived.  Without a layout
 * it is KVT_BAD_INPUT, and the sentence lists the presets that have this shape.
 */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_fit(struct kvt_manifest *manifest, const struct kvt_array *array,
		 struct kvt_error *err);

/* Sets an extent, or checks it against what was said before. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_extent(struct kvt_group *group, enum kvt_axis axis, int64_t n,
		    const char *what, const char *name, struct kvt_error *err);

/* Content types that a user names, or of one its fp8, as far as they are not known. */
void kvt_snapshot_hint_content(struct kvt_snapshot *snapshot,
			       const struct kvt_hints *hints);

/* The data file, as far as its manifest is to say something of it. */
struct kvt_data_file {
	const char *name;		/* without folders; or NULL */
	const struct kvt_file_sum *sum;	/* or NULL */
	const char *npy_dtype;		/* or NULL */
	int64_t skip;
	struct kvt_rows tensor;
	int rank;			/* 0: no shape */
	const int64_t *shape;
};

/* Text of a manifest for a snapshot, malloc()ed; NULL when out of memory. */
char *kvt_manifest_text(const struct kvt_snapshot *snapshot,
			const struct kvt_data_file *file);
/* Nothing is known yet. */
void kvt_manifest_init(struct kvt_manifest *manifest);
void kvt_manifest_free(struct kvt_manifest *manifest);

/*
 * The same, written to writer->sidecar_temporary.  The data must be complete:
 * its sum is taken from the file, which is the writer's first.
 */
KVT_MUST_CHECK enum kvt_status
kvt_sidecar_write(struct kvt_writer *writer, const char *npy_dtype, int rank,
		  const int64_t *shape, struct kvt_error *err);
/* KVT_SYSTEM if 'sidecar' is the manifest of another file, which lies beside it. */
KVT_MUST_CHECK enum kvt_status
kvt_sidecar_check(const char *sidecar, const char *path, struct kvt_error *err);

/*
 * Hands a manifest's snapshot to the reader and lists the manifest among its
 * files.  The manifest is left empty.
 */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_adopt(struct kvt_reader *reader, struct kvt_manifest *manifest,
		   struct kvt_error *err);

/* ---- groups in arrays --------------------------------------------------- */

/*
 * Engines keep some groups in pages larger than their content; a file holds
 * either those pages, which groups may share, or dense arrays.
 */
bool kvt_snapshot_has_pages(const struct kvt_snapshot *snapshot);
bool kvt_group_has_gaps(const struct kvt_group *group);

/*
 * Where 'box' of a group is if the dense array of its layout, or its pages,
 * begin at byte 'offset' of the file.
 */
KVT_MUST_CHECK enum kvt_status
kvt_file_part_init(struct kvt_file_part *out, const struct kvt_group *group,
	       const struct kvt_box *box, bool pages, int file, int64_t offset,
	       struct kvt_error *err);

/*
 * Bytes that all groups take in one file: the pages that they share, or their
 * dense arrays one behind the other.  KVT_BAD_INPUT if groups that should
 * share pages disagree.
 */
KVT_MUST_CHECK enum kvt_status
kvt_snapshot_file_bytes(int64_t *out, const struct kvt_snapshot *snapshot,
			bool pages, struct kvt_error *err);

/* A shape for the dense array of a group, or of one plane of two apart. */
KVT_MUST_CHECK enum kvt_status
kvt_group_array_shape(int *rank, int64_t shape[8], const struct kvt_group *group,
		      struct kvt_error *err);
/* Are keys and values in buffers of their own? */
bool kvt_layout_apart(const struct kvt_layout *layout);

/*
 * The same for a file that holds these groups as one array, in elements of
 * 'dtype' (bytes, if there are pages).  KVT_UNSUPPORTED, with 'name' of the
 * format, if no single array holds them.
 */
KVT_MUST_CHECK enum kvt_status
kvt_snapshot_file_shape(int *rank, int64_t shape[8], const struct kvt_dtype **dtype,
			const struct kvt_snapshot *snapshot, const char *name,
			struct kvt_error *err);

/*
 * One part a group, all of them in one file from 'offset' on.  Takes the
 * flats, not the reader, for readers and writers alike.
 */
KVT_MUST_CHECK enum kvt_status
kvt_flats_whole(struct kvt_flat *flats, const struct kvt_snapshot *snapshot,
		bool pages, int file, int64_t offset, struct kvt_error *err);

/* The same for one group with a tensor of its own. */
KVT_MUST_CHECK enum kvt_status
kvt_flat_whole(struct kvt_flat *flat, const struct kvt_group *group, bool pages,
	       int file, int64_t offset, struct kvt_error *err);

#endif
