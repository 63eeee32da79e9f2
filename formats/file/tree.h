/* SPDX-License-Identifier: Apache-2.0 */
/* tree.h - the files below a folder: dumps that are many of them begin here */
#ifndef KVT_TREE_H
#define KVT_TREE_H

#include "formats/format.h"

struct kvt_tree_file {
	char *name;			/* below the folder: "a/b/c.bin"; owned */
	int64_t nbytes;			/* when it was seen */
	dev_t dev;
	ino_t ino;
	struct timespec changed;
	uint64_t key;			/* of a sample: the smallest are in it */
};

struct kvt_tree {
	const char *path;		/* of the folder; borrowed */
	int64_t count;
	struct kvt_tree_file *file;	/* owned; sorted by name, bytes compared */
	int64_t name_bytes;		/* of all names */
};

/*
 * All regular files below 'path', at any depth.  Hidden files and folders and
 * temporary files, which a writer has not finished, are left out.  A symbolic link, and
 * whatever else is neither file nor folder, is KVT_BAD_INPUT: it is not
 * followed, and to leave it out would lose data silently.  So are names
 * that are no UTF-8 or hold control characters, and more entries, longer names
 * and deeper folders than any dump has.
 */
KVT_MUST_CHECK enum kvt_status
kvt_tree_walk(struct kvt_tree *out, const char *path, struct kvt_error *err);

/* Who wants to know of all files, and to have a few: memory is that of those. */
struct kvt_tree_watch {
	int64_t keep;			/* so many, by their names; any number is seen */
	void *context;			/* of the others */
	/* false: it is no file of the tree */
	bool (*seen)(void *context, const char *name, int64_t nbytes);
	void (*skipped)(void *context, const char *name);	/* as below */
};
KVT_MUST_CHECK enum kvt_status
kvt_tree_sample(struct kvt_tree *out, const char *path,
		const struct kvt_tree_watch *watch, struct kvt_error *err);
/* Those without a length (nbytes < 0) are no longer of it. */
void kvt_tree_drop(struct kvt_tree *tree);
void kvt_tree_free(struct kvt_tree *tree);

/* The file of that name below the folder; -1: there is none. */
int64_t kvt_tree_find(const struct kvt_tree *tree, const char *name);

/* What follows the last slash, or all of it. */
const char *kvt_path_base(const char *path);
/* Is there a name before this ending? */
bool kvt_path_ends(const char *path, const char *ending);
bool kvt_is_folder(const char *path);
/* "folder/name" and the ending, malloc()ed; NULL when out of memory. */
char *kvt_path_join(const char *folder, const char *name, const char *ending);

/*
 * Files that are passed over, with their names below 'path': hidden and temporary
 * ones.  What cannot be read is left out.
 */
void kvt_tree_each_skipped(const char *path,
			   void (*fn)(void *context, const char *name), void *context);

/*
 * Lists file 'i' among those of a reader, parked: nothing is opened.  Reading it
 * fails if it is no longer the file that was seen.
 */
KVT_MUST_CHECK enum kvt_status
kvt_tree_list(struct kvt_files *files, int *index, const struct kvt_tree *tree,
	      int64_t i, struct kvt_error *err);

/*
 * For probes: do files of a folder look like what 'like' knows?  It is asked
 * for names below 'path', in no order, until it says yes, a few hundred entries
 * have been seen, or there are no more.  Nothing is refused.
 */
bool kvt_tree_has(const char *path, bool (*like)(const char *name));

/*
 * All of a small text file, malloc()ed with a NUL after it; KVT_BAD_INPUT if it
 * has more than 'most' bytes.  It is listed among the files of the reader.
 */
KVT_MUST_CHECK enum kvt_status
kvt_tree_text(char **out, size_t *nbytes, struct kvt_files *files, const char *path,
	      int64_t most, struct kvt_error *err);

#endif
