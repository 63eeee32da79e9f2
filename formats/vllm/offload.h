/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload.h - the trees that vLLM's file-system tier and llm-d write
 *
 *	<root>/<model>_<digest>/config.json		which groups there are
 *	<root>/<model>_<digest>_r<rank>/		of vLLM rank 0 alone
 *		<hash, 3 digits>/<2 more>_g<group>/<hash>.bin	blocks of a group
 *
 *	model	its name, slashes as bars
 *	digest	12 digits of the config's SHA-256 (offload_config.c)
 *	group	the engine's number of it: those that it does not store are left out
 *	hash	of the last block in the file and all tokens before (lib/prefix)
 *
 * Names are the same, files are not: one of llm-d has blocks of one rank
 * (offload_llmd.c), one of vLLM is a row of the cells of all ranks (kvt_offload_row).
 */
#ifndef KVT_OFFLOAD_H
#define KVT_OFFLOAD_H

#include <jansson.h>

#include "formats/store/store.h"

/* Presets of the format: whose files they are. */
#define KVT_OFFLOAD_VLLM "vllm-offload"
#define KVT_OFFLOAD_LLMD "llmd"

struct kvt_offload_group {
	int64_t block_size, nlayers;
	const json_t *layers;		/* names */
};

struct kvt_offload_config {
	json_t *json;			/* owned; what follows lies in it */
	const char *model, *dtype, *canonical;
	int64_t tokens_per_hash;	/* 0: it does not say */
	int64_t blocks_per_file, tp_size, pp_size, pcp_size, dcp_size;
	bool older_keys;		/* those of llm-d and of vLLM until 0.25 */
	/* sizes are 1 for every TP whose bytes are the same in order of ranks */
	bool agnostic, says_agnostic;
	bool replicated;		/* one copy of latents that all ranks hold */
	int ngroups;			/* 0: it does not say */
	struct kvt_offload_group group[KVT_MAX_GROUPS];
};

/* Both generations of keys; 'name' is for messages. */
KVT_MUST_CHECK enum kvt_status
kvt_offload_parse(struct kvt_offload_config *out, const char *text, size_t nbytes,
		  const char *name, struct kvt_error *err);
void kvt_offload_free(struct kvt_offload_config *config);

/* As Python writes it, \uabcd in small letters; malloc()ed, NULL: no memory. */
char *kvt_offload_text(const json_t *config, size_t flags);
/* The digest that is in the folder's name; false: out of memory. */
bool kvt_offload_digest(char out[13], const json_t *config);

/* "hhh/hh_g1/HASH.bin"; false: no such name. */
bool kvt_offload_name(struct kvt_name_part *hash, int *group, const char *name);

/* Layers of the largest group, at least 'layers'. */
int64_t kvt_offload_most_layers(const struct kvt_offload_config *config, int64_t layers);

enum { KVT_OFFLOAD_MOST_RANKS = 1 << 16, KVT_OFFLOAD_MOST_ALIGN = 1 << 30 };
#define KVT_OFFLOAD_MOST_PAGE (INT64_C(1) << 40)

/* ---- rows --------------------------------------------------------------- */

/*
 * A file of vLLM's tier.  Ranks follow each other, each with what its
 * tensors hold of the file's blocks:
 *
 *	layers outermost ("LB...")	layer, block, page
 *	blocks outermost ("B...")	block, all layers as the layout has them
 *
 * Groups begin at the same place, as they do in the engine's memory: the largest
 * one says how much a rank has, and what a smaller one leaves over are stale
 * bytes.  Then follow zeros up to a multiple of the machine's page.
 *
 * In canonical form each page has the heads of all ranks, and there is one of
 * them; the file is as long as if all ranks had theirs.
 */
struct kvt_offload_row {
	int64_t ranks;			/* whose cells it has */
	bool canonical;			/* in pages that they share */
	int64_t per_file;		/* blocks */
	int64_t layers;			/* of the largest group */
	int64_t page;			/* from a block of a layer on; 0: no padding */
	int64_t align;			/* the machine's page; 0: 4096 */
	/* kvt_offload_row_measure() says */
	int64_t rank_bytes;		/* from a rank to the next */
	int64_t used, nbytes;		/* before the zeros; of the file */
};

/*
 * The layout of a row for what the engine calls its own: without L and B they
 * become its outermost axes.  KVT_UNSUPPORTED for one in which a block of a layer
 * would not be one run, as the engine's has to be.
 */
KVT_MUST_CHECK enum kvt_status
kvt_offload_row_layout(struct kvt_layout *layout, struct kvt_error *err);
/* Is the engine's this one?  For kvt_format.in_layout. */
bool kvt_offload_in_layout(const struct kvt_group *group, const struct kvt_layout *said);
/*
 * Is a group in the order that "canonical_format" says?  KVT_BAD_INPUT if not;
 * any is where it says nothing (NULL).
 */
KVT_MUST_CHECK enum kvt_status
kvt_offload_check_canonical(const char *said, const struct kvt_group *group,
			    const char *name, struct kvt_error *err);
/*
 * Makes config and row those of "canonical" files, or of files of "ranks", of groups in
 * the order of this one.  KVT_USAGE for another word; NULL: as it is.
 */
KVT_MUST_CHECK enum kvt_status
kvt_offload_set_form(json_t *config, struct kvt_offload_row *row,
		     const struct kvt_snapshot *s, const char *form,
		     struct kvt_error *err);
/* Sizes, for a group with all heads; KVT_BAD_INPUT if ranks cannot share those. */
KVT_MUST_CHECK enum kvt_status
kvt_offload_row_measure(struct kvt_offload_row *row, const struct kvt_group *group,
			const char *name, struct kvt_error *err);
/*
 * Where a group's blocks from 'block' on are in a file: a part a rank; of ranks
 * that hold the same heads only the first one's, or, with 'copies', all.
 */
KVT_MUST_CHECK enum kvt_status
kvt_offload_row_place(struct kvt_flat *flat, const struct kvt_offload_row *row,
		      const struct kvt_group *group, int64_t block, int file,
		      bool copies, struct kvt_error *err);

/* ---- notes -------------------------------------------------------------- */

/* What begins a note that holds the config of the tree a dump came from. */
#define KVT_OFFLOAD_NOTE "offload config: "
/* The same for rows, with what their config leaves open in between. */
#define KVT_OFFLOAD_ROW_NOTE "offload rows: "

/* malloc()ed; 'row' is NULL for a tree of llm-d.  NULL: out of memory. */
char *kvt_offload_note(const struct kvt_offload_config *config,
		       const struct kvt_offload_row *row);
/*
 * The inverse: false if it is no such note.  *has_row tells whether it is one of
 * rows; *config is the JSON text in it.
 */
bool kvt_offload_read_note(const char **config, struct kvt_offload_row *row,
			   bool *has_row, const char *note);

/* The members create and finish of the format. */
KVT_MUST_CHECK enum kvt_status
kvt_offload_create(struct kvt_writer *writer, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_offload_finish(struct kvt_writer *writer, struct kvt_error *err);

/* ---- a tree while it is opened ------------------------------------------ */

/* Files of one group, as the tree has them. */
struct kvt_offload_files {
	int64_t count, largest;
	const char *name;		/* of the largest */
	const struct kvt_offload_group *config;	/* NULL: it does not say */
};

struct kvt_offload_census;

struct kvt_offload {
	struct kvt_reader *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	struct kvt_offload_config config;
	char *base;			/* <root>/<model>_<digest> */
	char *folder;			/* of the rank: <base>_r<rank> */
	int64_t rank;
	bool other_ranks;		/* some rank but 0 has a folder, too */
	struct kvt_tree tree;		/* below folder */
	struct kvt_offload_files of[KVT_MAX_GROUPS];	/* by the number in names */
	int number[KVT_MAX_GROUPS];	/* in names, of each group of the snapshot */
	struct kvt_offload_census *census;	/* of a sample; or NULL */
	bool rows;			/* files are rows of vLLM's tier */
	struct kvt_offload_row row;
};

/* Is this the folder of a config, by its name, that of a rank, or one with such in it? */
bool kvt_offload_is_tree(const char *path);
/* Fills config, base, folder and rank. */
KVT_MUST_CHECK enum kvt_status kvt_offload_find(struct kvt_offload *o);
/* Which of the two wrote it: fills rows; after the tree was walked. */
KVT_MUST_CHECK enum kvt_status kvt_offload_find_writer(struct kvt_offload *o);

/* To hints->inspector, if there is one: all of them; one, by its name in the folder. */
void kvt_offload_tell_leftovers(const struct kvt_offload *o);
void kvt_offload_tell_leftover(const struct kvt_offload *o, const char *name);

/* Fills tree, which is a sample where hints->sample asks for one. */
KVT_MUST_CHECK enum kvt_status kvt_offload_walk(struct kvt_offload *o);
/* Has the tree files of it, in the sample or not? */
bool kvt_offload_has_group(const struct kvt_offload *o, int number);
/*
 * Tells hints->inspector of a file whose name is none, or of all of another length than
 * the many, which then are no longer of the tree (names: after kvt_tree_drop()).  False:
 * there is no inspector, or the tree has no such many; then it must be refused.
 */
bool kvt_offload_leave_names(struct kvt_offload *o, int64_t i);
bool kvt_offload_leave_lengths(struct kvt_offload *o, int64_t nbytes);

/* The number of the group that file 'i' of the tree is of. */
int kvt_offload_group_of(const struct kvt_offload *o, int64_t i);
/* Bytes of a block of a layer, without padding. */
KVT_MUST_CHECK enum kvt_status
kvt_offload_page(int64_t *out, const struct kvt_group *group, struct kvt_error *err);
/* Names of the last 'n' blocks of a file. */
KVT_MUST_CHECK enum kvt_status
kvt_offload_name_blocks(struct kvt_offload *o, char **names, int64_t file, int64_t n);

/*
 * What differs between the writers.  fit: the extents of a block and what else
 * the files say of a group; ready: after all groups; add: blocks and parts.
 */
struct kvt_offload_kind {
	const char *checks;		/* for kvt_dump_checks() */
	enum kvt_status (*start)(struct kvt_offload *o);
	enum kvt_status (*fit)(struct kvt_offload *o, struct kvt_group *group,
			       const struct kvt_offload_files *files);
	enum kvt_status (*ready)(struct kvt_offload *o);
	enum kvt_status (*add)(struct kvt_offload *o, int group);
};
extern const struct kvt_offload_kind kvt_offload_llmd, kvt_offload_rows;

/*
 * What the bytes of a group say of who wrote it: leaf.written_by, and rules where that
 * is not what is said of it.  'first': where the reader has its first file.
 */
KVT_MUST_CHECK enum kvt_status
kvt_offload_written(struct kvt_offload *o, int group, int64_t first);
/* The same of a tree that cannot be read yet: "TP 2: likely (..)"; false: unknown. */
bool kvt_offload_fits_ranks(char *out, size_t room, struct kvt_offload *o,
			    const struct kvt_group *group, int number);

/* What the user says of a group of one block; all of it must be known. */
KVT_MUST_CHECK enum kvt_status
kvt_offload_fit(struct kvt_offload *o, struct kvt_group *group, int64_t nbytes);

#endif
