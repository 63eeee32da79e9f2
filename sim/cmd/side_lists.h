/* SPDX-License-Identifier: Apache-2.0 */
/* side_lists.h - --src and --dst that say many sides: "tp=1,2,4,layout=nhd,hnd" */
#ifndef KVTOOL_TRANSFER_SIDE_LISTS_H
#define KVTOOL_TRANSFER_SIDE_LISTS_H

#include "sim/cmd/options.h"
#include "sim/ops/matrix.h"

enum { SIDE_KEYS = 3, SIDE_VALUES = 32 };

/* The values of each key, in the order of --help; what else is said is of all sides. */
struct side_list {
	char text[2048], rest[1024];
	struct {
		int n;
		const char *value[SIDE_VALUES];	/* into some list's text */
	} key[SIDE_KEYS];
};

/* Of "--NAME"; KVT_USAGE if it is no such list. */
KVT_MUST_CHECK enum kvt_status
side_list_parse(struct side_list *out, const char *name, const char *text,
		struct kvt_error *err);

/* Takes the values of 'from' where it has none. */
void side_list_inherit(struct side_list *list, const struct side_list *from);

/* All sides of a list; they borrow it. */
struct side_set {
	int64_t n;
	struct kvt_matrix_side *side;	/* owned */
	struct side_ids *ids;		/* owned; of each */
};
KVT_MUST_CHECK enum kvt_status
side_set_make(struct side_set *out, const char *name, const struct side_list *list,
	      struct kvt_error *err);
void side_set_free(struct side_set *set);

#endif
