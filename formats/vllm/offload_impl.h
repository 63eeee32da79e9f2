/* SPDX-License-Identifier: Apache-2.0 */
/* offload_impl.h - an offload tree while it is opened */
#ifndef KVT_OFFLOAD_IMPL_H
#define KVT_OFFLOAD_IMPL_H

#include "formats/vllm/offload.h"

/* Files of one group, as the tree has them. */
struct kvt_offload_files {
	int64_t count, largest;
	const char *name;		/* of the largest */
	const struct kvt_offload_group *config;	/* NULL: it does not say */
};

struct kvt_offload {
	struct kvt_dump *reader;
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
	bool rows;			/* files are rows of vLLM's tier */
	struct kvt_offload_row row;
};

/* Is this the folder of a config, by its name? */
bool kvt_offload_is_base(const char *path);
/* Fills config, base, folder and rank. */
KVT_MUST_CHECK enum kvt_status kvt_offload_find(struct kvt_offload *o);
/* Who wrote it: fills rows; after the tree was walked. */
KVT_MUST_CHECK enum kvt_status kvt_offload_find_writer(struct kvt_offload *o);

/* To hints->inspector, if there is one. */
void kvt_offload_tell_leftovers(const struct kvt_offload *o);

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
 * the files say of a group; ready: after all groups; add: blocks and pieces.
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

/* What the user says of a group of one block; all of it must be known. */
KVT_MUST_CHECK enum kvt_status
kvt_offload_fit(struct kvt_offload *o, struct kvt_group *group, int64_t nbytes);

#endif
