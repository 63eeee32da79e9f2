/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - folders where an engine keeps pages of KV cache, a file each
 *
 * What the formats of such folders share: a table of the files that belong to
 * one cache of one rank, chosen among others by what the user says.
 */
#ifndef KVT_STORE_H
#define KVT_STORE_H

#include "formats/file/tree.h"
#include "formats/store/pages.h"

/* A part of a file's name; not terminated. */
struct kvt_name_part {
	const char *s;
	size_t n;
};
bool kvt_name_part_equal(const struct kvt_name_part *part, const char *text);

/*
 * One more value of something that all files must share, such as a rank: the
 * first is kept, another one is KVT_BAD_INPUT, and the sentence says which
 * --set would choose.  'asked' is what the user said: then only that counts, and
 * *skip is true for others.
 */
struct kvt_store_choice {
	const char *key, *what;		/* "rank", "ranks" */
	const char *asked;		/* NULL: nothing */
	struct kvt_name_part first;
	bool any;
};
KVT_MUST_CHECK enum kvt_status
kvt_store_choose(bool *skip, struct kvt_store_choice *choice,
		 const struct kvt_name_part *here,
		 const char *path, struct kvt_error *err);
/* After all files: KVT_BAD_INPUT if what was asked for is in none. */
KVT_MUST_CHECK enum kvt_status
kvt_store_chosen(const struct kvt_store_choice *choice, const char *path,
		 struct kvt_error *err);

/*
 * Folders of files without a header whose names have numbers: how files are named is a
 * row and a function of the format; what is chosen of them, and in which order, is not.
 */
struct kvt_store_file {
	int64_t number[2];		/* files are in this order; 0: a name has none */
	struct kvt_name_part part;	/* what all of them must share */
	int64_t at;			/* in the tree; not the format's */
};
struct kvt_store_names {
	const char *key, *what;		/* of the choice: "pool", "pools" */
	const char *expected;		/* "not a block of ..., expected ..." */
	bool (*parse)(struct kvt_store_file *out, const char *name);
};
struct kvt_store_files {
	struct kvt_tree tree;		/* of all files */
	struct kvt_store_file *file;	/* owned: those that are chosen */
	int64_t count;
};
/*
 * KVT_BAD_INPUT where a file has another name, where what is to be shared is not and the
 * user has not chosen, and if none is left.
 */
KVT_MUST_CHECK enum kvt_status
kvt_store_list(struct kvt_store_files *out, const char *path,
	       const struct kvt_store_names *names, const struct kvt_hints *hints,
	       struct kvt_error *err);
static inline const struct kvt_tree_file *
kvt_store_file(const struct kvt_store_files *files, int64_t i)
{
	return &files->tree.file[files->file[i].at];
}
void kvt_store_files_free(struct kvt_store_files *files);

/* A copy of a part; NULL when out of memory. */
char *kvt_name_part_copy(const struct kvt_name_part *part);

/* The same axes with blocks outermost, then layers if 'layers'. */
struct kvt_layout kvt_layout_blocks_first(const struct kvt_layout *in, bool layers);
/* A layout that the user says becomes the group's so. */
KVT_MUST_CHECK enum kvt_status
kvt_store_layout(struct kvt_group *group, const struct kvt_hints *hints, bool layers,
		 struct kvt_error *err);
/* Is it that of the group, with layers where they are?  For kvt_format.in_layout. */
bool kvt_store_in_layout(const struct kvt_group *group, const struct kvt_layout *said);

/* Names come from dumps of others: may this be one in a folder of ours? */
bool kvt_name_is_safe(const char *name);

/*
 * What a group may not be where files without a header say nothing of it and it
 * would come back as something else; 'format' is for messages.  First:
 * KVT_UNSUPPORTED for keys alone or values alone, which look like latents.
 */
KVT_MUST_CHECK enum kvt_status
kvt_store_check_kv(const struct kvt_group *group, const char *format,
		   struct kvt_error *err);

/* KVT_UNSUPPORTED unless the heads are those that TP deals to the rank. */
KVT_MUST_CHECK enum kvt_status
kvt_store_check_heads(const struct kvt_group *group, const struct kvt_parallel *parallel,
		      const char *format, struct kvt_error *err);

/* Both, and KVT_UNSUPPORTED unless the kind is full attention, or MLA if 'mla'. */
KVT_MUST_CHECK enum kvt_status
kvt_store_check_group(const struct kvt_group *group, const struct kvt_parallel *parallel,
		      bool mla, const char *format, struct kvt_error *err);

/*
 * KVT_UNSUPPORTED unless each layer's name has the number that the layer has in the
 * model: where files keep names alone.
 */
KVT_MUST_CHECK enum kvt_status
kvt_store_check_layers(const struct kvt_group *group, const char *format,
		       struct kvt_error *err);

/* Room for the names of all blocks of a group, all NULL. */
KVT_MUST_CHECK enum kvt_status
kvt_store_new_names(struct kvt_group *group, struct kvt_error *err);

#endif
