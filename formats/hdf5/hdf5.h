/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hdf5.h - what the files of the HDF5 format share
 *
 *	/			format, format_version, complete, tables_checksum, ..
 *	  model, provenance, parallel	optional: attributes alone	schema.c
 *	  groups			the attribute ids: groups in their order
 *	    <id>			kind, dtype, axes, block_size, ..	schema.c
 *	      data, or data_k and data_v	elements: a dimension an axis	data.c
 *	      data_checksum		u64 of each 64 KiB, if data are one run	proof.c
 *	      layer_names, layer_ids, block_ids, block_valid, block_names,
 *	      scales, components	optional				tables.c
 *	      content_digest		u64 [layer, block, head, K]	read.c, write.c
 *	  requests
 *	    <number>			request_id, num_computed_tokens, ..	tables.c
 *	      token_ids			i32, optional
 *	      block_table/<id>		u32: places on the block axis of a group
 *	      holes/<id>		u64: pairs of positions
 *
 *	a tile		shuffle, zstd, Fletcher-32: one layer, head, and keys or values
 *	complete	is written last, and 1
 *
 * kvtool-snapshot(5) defines it; what is not said here is said there.  Its names say
 * state for what the rest of the tree calls a slot.
 *
 * A file is foreign until proven otherwise: class, size and rank of everything
 * are checked before it is read, nothing is ever converted, and no filtered
 * data goes through H5Dread(), whose decoder trusts the file.
 */
#ifndef KVT_HDF5_IMPL_H
#define KVT_HDF5_IMPL_H

#include "formats/file/proof.h"
#include "formats/hdf5/calls.h"

/*
 * Releases any kind of id and leaves the error stack as it is; a failed id
 * (negative) is ignored.
 */
void kvt_h5_drop(hid_t id);

/* ---- entering HDF5 (error.c) -------------------------------------------- */

/*
 * libhdf5 is usually built without thread support, and its state is the process's:
 * open files, the error stack, which handler prints that.  Between these two one
 * thread has it for itself, and HDF5 prints nothing; the caller's handler is put
 * back after.
 *
 * Each function of the format's row enters once, and only what lies between calls
 * HDF5 or looks at its files' faults.  The lock is the innermost one: nothing that
 * is called under it takes another, waits for a thread, or enters again, as kvt_open()
 * does.  A program that calls HDF5 itself must not do so at the same time.
 */
struct kvt_h5_entry {
	H5E_auto2_t function;
	void *data;
};
struct kvt_h5_entry kvt_h5_enter(void);
void kvt_h5_leave(const struct kvt_h5_entry *entry);

/* ---- errors (error.c) --------------------------------------------------- */

/*
 * For a call of HDF5 that just failed: "PATH: WHAT (reason)".  The status is
 * KVT_SYSTEM if the operating system is to blame, else 'status'.
 */
enum kvt_status kvt_h5_failed(struct kvt_error *err, enum kvt_status status,
			      const char *path, const char *what);

/* ---- reading a foreign file --------------------------------------------- */

/*
 * The reader remembers its first error.  After it nothing is read and nothing said:
 * numbers are 0, counts too, strings and tables NULL, ids negative.  So a caller asks
 * once, at its end, and before what was read becomes a length or an index.
 */
struct kvt_h5_in {
	const char *path;
	const struct kvt_h5_fault *fault;
	enum kvt_status status;
	struct kvt_error *err;
	/* what HDF5 could not tell was not taken for absent: KVT_OK, or why not */
	enum kvt_status untold;
	struct kvt_error why;
	hid_t file;
	int64_t nbytes;			/* of the file */
	int64_t left;			/* see kvt_h5_spend() */
	int64_t version[2];		/* of the schema, once the root is read */
};

/* "PATH: OBJECT: ..." as KVT_BAD_INPUT, or as the status given; false. */
bool kvt_h5_bad(struct kvt_h5_in *in, hid_t object, const char *format, ...)
		KVT_PRINTF(3, 4);
bool kvt_h5_refuse(struct kvt_h5_in *in, hid_t object, enum kvt_status status,
		   const char *format, ...) KVT_PRINTF(4, 5);

/*
 * Tables are stored as they are, each for itself, so that all of them together
 * cannot be larger than the file.  Counting what was read stops a file in which
 * a million links lead to one table.
 */
KVT_MUST_CHECK bool kvt_h5_spend(struct kvt_h5_in *in, hid_t object, int64_t nbytes);

/* ---- integers and strings (attr.c, dataset.c) --------------------------- */

enum kvt_h5_int { KVT_H5_U8, KVT_H5_U32, KVT_H5_I32, KVT_H5_U64, KVT_H5_I64,
		  KVT_H5_F32 };		/* of tables only */

hid_t kvt_h5_int_type(enum kvt_h5_int type);	/* borrowed */

/*
 * Text has a fixed length and is padded with NULs.  Strings of variable length
 * are in heaps without checksums, whose sizes libhdf5 1.10 takes as they are:
 * one flipped bit there makes H5Aread() read, or write, beyond its buffers.  So
 * the one attribute that has to have them, DIMENSION_LABELS, is never read.
 */
hid_t kvt_h5_text_type(size_t nbytes);		/* to be dropped */
size_t kvt_h5_text_bytes(hid_t type);		/* 0: it is no such type */
/* A copy without the padding; NULL: out of memory. */
char *kvt_h5_take_text(const char *raw, size_t nbytes);
/* Copies, each padded to '*nbytes'; to be freed, NULL: out of memory. */
char *kvt_h5_join_texts(const char *const *value, int64_t n, size_t *nbytes);

/*
 * Is there an attribute, or a link, of this name?  If HDF5 cannot tell, the answer
 * is no and in->untold is set, which kvt_h5_open() looks at before it believes.
 */
bool kvt_h5_has_attr(struct kvt_h5_in *in, hid_t object, const char *name);
bool kvt_h5_has_link(struct kvt_h5_in *in, hid_t parent, const char *name);

/* These require the attribute.  Strings are malloc()ed. */
int64_t kvt_h5_get_int(struct kvt_h5_in *in, hid_t object, const char *name,
		       enum kvt_h5_int type);
char *kvt_h5_get_str(struct kvt_h5_in *in, hid_t object, const char *name);
/* A list of 1 to 'most'; returns how many. */
int kvt_h5_get_ints(struct kvt_h5_in *in, hid_t object, const char *name,
		    enum kvt_h5_int type, int64_t *out, int most);
int kvt_h5_get_strs(struct kvt_h5_in *in, hid_t object, const char *name, char **out,
		    int most);

/* False when HDF5 refused; its error stack says why. */
bool kvt_h5_put_int(hid_t object, const char *name, enum kvt_h5_int type, int64_t value);
bool kvt_h5_put_ints(hid_t object, const char *name, enum kvt_h5_int type,
		     const int64_t *value, int n);
bool kvt_h5_put_str(hid_t object, const char *name, const char *value);
bool kvt_h5_put_strs(hid_t object, const char *name, const char *const *value, int n);
/* DIMENSION_LABELS, where and as HDF5's dimension scales have them. */
bool kvt_h5_put_labels(hid_t dataset, const char *const *label, int n);

/*
 * Opens a group or a dataset at the end of a hard link of 'parent'; negative if there
 * is no such link.  A dataset comes checked for everything that could make reading it
 * reach outside the file.
 */
hid_t kvt_h5_child(struct kvt_h5_in *in, hid_t parent, const char *name, H5I_type_t type);
/* The same, and it is bad input if it is missing. */
hid_t kvt_h5_need(struct kvt_h5_in *in, hid_t parent, const char *name, H5I_type_t type);

/*
 * Is this dataset a plain array of 'rank' dimensions of 'type', all of it in
 * the file and unfiltered, so that H5Dread() is only a copy?
 */
KVT_MUST_CHECK bool kvt_h5_check_plain(struct kvt_h5_in *in, hid_t dataset, hid_t type,
				       int rank, hsize_t *dims);

/*
 * A one-dimensional table of 'n' entries, or of any number if 'n' is -1, to be freed,
 * also if empty; NULL if there is no such dataset.
 */
void *kvt_h5_get_table(struct kvt_h5_in *in, hid_t parent, const char *name,
		       enum kvt_h5_int type, int64_t n, int64_t *count);
char **kvt_h5_get_str_table(struct kvt_h5_in *in, hid_t parent, const char *name,
			    int64_t n, int64_t *count);
bool kvt_h5_put_table(hid_t parent, const char *name, enum kvt_h5_int type,
		      const void *value, int64_t n);
bool kvt_h5_put_str_table(hid_t parent, const char *name,
			  const char *const *value, int64_t n);

/* Creation properties of groups and datasets: no times, compact attributes. */
hid_t kvt_h5_object_plist(hid_t class);
hid_t kvt_h5_new_group(hid_t parent, const char *name);

/* ---- element types (type.c) --------------------------------------------- */

/* The type of 'dtype' in a file, to be dropped; negative on failure. */
hid_t kvt_h5_element_type(const struct kvt_dtype *dtype);

/* ---- axes and tiles (axes.c, tiling.c) ---------------------------------- */

/* The dimensions of one dataset, slowest first: a plane's order without K. */
struct kvt_h5_axes {
	int rank;
	struct kvt_part part[KVT_MAX_PARTS];
	int64_t split[KVT_MAX_PARTS];	/* 1 if whole */
	int64_t extent[KVT_MAX_PARTS];	/* in parts */
	bool content;			/* D is all of the content: no K */
	bool conv;			/* S are taps, D channels */
};

/* Fails if the shape does not fit the layout. */
KVT_MUST_CHECK enum kvt_status
kvt_h5_axes(struct kvt_h5_axes *out, const struct kvt_group *group, int plane,
	    struct kvt_error *err);
/* What a part divides its axis by: a number also for x, 1 if it is whole. */
int64_t kvt_h5_split(const struct kvt_part *part, int64_t elem);
const char *kvt_h5_label(const struct kvt_h5_axes *axes, int dim);
struct kvt_text kvt_h5_axes_string(const struct kvt_h5_axes *axes);

/* The dataset of a plane: "data", or "data_k" and "data_v". */
const char *kvt_h5_plane_name(const struct kvt_layout *layout, int plane);

/* The extents of a tile, and where one begins, in dimensions of the dataset. */
void kvt_h5_chunk_dims(hsize_t *out, const struct kvt_h5_axes *axes,
		       const int64_t n[KVT_NAXES]);
void kvt_h5_chunk_offset(hsize_t *out, const struct kvt_h5_axes *axes,
			 const int64_t begin[KVT_NAXES]);

/*
 * What content_digest has of extents or indices 'n': L B H, and K where there
 * are keys and values.  Returns its rank.
 */
enum { KVT_H5_CELL_RANK = 4 };
int kvt_h5_cell_dims(hsize_t dims[KVT_H5_CELL_RANK],
		     const struct kvt_group *group, const int64_t n[KVT_NAXES]);

/* The tiles a new file gets. */
KVT_MUST_CHECK enum kvt_status
kvt_h5_choose_tiling(struct kvt_tiling *out, const struct kvt_group *group,
		     const struct kvt_create_options *options, struct kvt_error *err);
/* The tiles that a dataset has; 'dcpl' are its creation properties. */
KVT_MUST_CHECK bool
kvt_h5_read_tiling(struct kvt_tiling *out, struct kvt_h5_in *in, hid_t dataset,
		   hid_t dcpl, const struct kvt_group *group,
		   const struct kvt_h5_axes *axes);
bool kvt_h5_set_filters(hid_t dcpl, const struct kvt_tiling *tiling);

/* ---- the schema (schema.c, tables.c) ------------------------------------ */

/* Attributes of the root, the model, the ranks; then the groups' own. */
void kvt_h5_read_root(struct kvt_h5_in *in, struct kvt_snapshot *snapshot);
/* The version that new files have. */
void kvt_h5_version(int64_t version[2]);
bool kvt_h5_write_root(hid_t file, const struct kvt_snapshot *snapshot);

/* Everything of a group but its data and tables; 'group->shape' is not set. */
void kvt_h5_read_group(struct kvt_h5_in *in, hid_t object, struct kvt_group *group);
/* What a group says of its shape must be what its data has. */
void kvt_h5_check_shape(struct kvt_h5_in *in, hid_t object,
			const struct kvt_group *group);
bool kvt_h5_write_group(hid_t object, const struct kvt_group *group);

void kvt_h5_read_tables(struct kvt_h5_in *in, hid_t object, struct kvt_group *group);
bool kvt_h5_write_tables(hid_t object, const struct kvt_group *group);
void kvt_h5_read_requests(struct kvt_h5_in *in, struct kvt_snapshot *snapshot);
bool kvt_h5_write_requests(hid_t file, const struct kvt_snapshot *snapshot);

/* ---- chunks, without their bytes (driver.c) ----------------------------- */

/* The first call of the system that failed, or fell short, under HDF5. */
struct kvt_h5_fault {
	const char *what;		/* NULL: none did */
	int error;			/* errno; 0: the file has become shorter */
};

struct kvt_h5_catch {
	struct kvt_h5_fault *fault;
	int fd;				/* HDF5's */
	const void *wanted;		/* the buffer of the access to catch; or NULL */
	int count;			/* accesses since */
	int64_t offset, nbytes;		/* of the last one */
};

/*
 * For H5Pset_driver().  To be dropped after the file is closed: HDF5 1.10 calls
 * the driver once more when the file has let go of it.
 */
hid_t kvt_h5_driver_new(void);
/*
 * What it keeps for an open file; NULL: HDF5 refused.  Errors go to 'fault', which
 * outlives the file, so that those of closing it are heard of.
 */
struct kvt_h5_catch *kvt_h5_driver_catch(hid_t file, struct kvt_h5_fault *fault);

/* KVT_OK if there was none. */
KVT_MUST_CHECK enum kvt_status
kvt_h5_check_fault(const struct kvt_h5_fault *fault, const char *path,
		   struct kvt_error *err);

/*
 * Where a chunk is; where one of that size goes, whose bytes the caller writes.
 * False when HDF5 refused; its error stack says why.
 */
bool kvt_h5_find_chunk(struct kvt_extent *out, struct kvt_h5_catch *catch,
		       hid_t data, const hsize_t *offset);
bool kvt_h5_place_chunk(int64_t *at, struct kvt_h5_catch *catch, hid_t data,
			const hsize_t *offset, const struct kvt_stored *stored);

/* ---- an open file ------------------------------------------------------- */

struct kvt_h5_group {
	int nplanes;
	struct kvt_h5_axes axes[2];
	hid_t data[2];
	hid_t cells;			/* content_digest; negative: none */
	uint64_t cells_sum;		/* its checksum; of a writer, so far */
	bool cells_checked;
	int64_t at[2], nbytes[2];	/* of data that is one run */
	uint64_t *sum[2];		/* of its parts; NULL: none; owned */
	int64_t nsums[2];
	bool raw_edges[2];		/* cut tiles at the end have no filters */
	int64_t first_source, nsources;	/* of the reader's, for virtual data */
};

struct kvt_h5_file {
	hid_t driver, file;
	struct kvt_h5_fault fault;	/* under it */
	struct kvt_h5_catch *catch;	/* of the driver */
	int64_t version[2];		/* of the schema */
	struct kvt_file_proof proof;		/* of data that is one run */
	struct kvt_h5_group group[KVT_MAX_GROUPS];
};

struct kvt_h5_file *kvt_h5_file_new(void);	/* NULL: out of memory */
void kvt_h5_file_free(struct kvt_h5_file *file);

/* The data of a group: layout, shape, and how it is stored. */
void kvt_h5_read_data(struct kvt_reader *reader, int index, struct kvt_h5_in *in,
		      hid_t object);

/* ---- data in other files (virtual.c) ------------------------------------- */

/* Is it known which boxes of which files they are, without opening these? */
bool kvt_h5_virtual_fixed(hid_t dcpl);
/* Those of a plane, into reader->source. */
void kvt_h5_add_sources(struct kvt_reader *reader, int index, int plane,
			struct kvt_h5_in *in, hid_t data, hid_t dcpl);

/* ---- checksums (proof.c) ------------------------------------------------ */

/* Those of the data of a plane, if it has any. */
void kvt_h5_read_sums(struct kvt_reader *reader, int index, int plane,
		      struct kvt_h5_in *in, hid_t object);
/* When all else was read: is it what was written? */
void kvt_h5_check_proof(struct kvt_reader *reader, struct kvt_h5_in *in);
/* The same of content_digest, which is read when it is asked for. */
KVT_MUST_CHECK enum kvt_status
kvt_h5_check_cells(const struct kvt_reader *reader, int index, struct kvt_error *err);

/* Of data that is one run, of cells, and of all when they are written. */
KVT_MUST_CHECK enum kvt_status
kvt_h5_new_sums(struct kvt_h5_file *own, int index, int plane, struct kvt_error *err);
void kvt_h5_note_cells(struct kvt_h5_group *own, const struct kvt_group *group,
		       const struct kvt_box *box, const uint64_t *cells);
KVT_MUST_CHECK enum kvt_status
kvt_h5_write_proof(struct kvt_writer *writer, struct kvt_error *err);

/* The functions of the format's row; format.c has the calls on tiles. */
enum kvt_status kvt_h5_open(struct kvt_reader *reader, const char *path,
			    const struct kvt_hints *hints, struct kvt_error *err);
enum kvt_status kvt_h5_create(struct kvt_writer *writer, struct kvt_error *err);
enum kvt_status kvt_h5_finish(struct kvt_writer *writer, struct kvt_error *err);

#endif
