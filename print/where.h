/* SPDX-License-Identifier: Apache-2.0 */
/* where.h - printing what kvtool where found out */
#ifndef KVTOOL_PRINT_WHERE_H
#define KVTOOL_PRINT_WHERE_H

#include "lib/ops/where/where.h"
#include "print/out/json_out.h"

struct where_answer {
	const char *option, *query;	/* "at", "layer=3,..." */
	struct kvt_whereabouts is;
};

/* 'path' is what the user called the dump. */
void where_text(const char *path, struct kvt_dump *dump, const struct where_answer *a);
void where_json(struct json_out *out, const char *path, struct kvt_dump *dump,
		const struct where_answer *answer, int n);

#endif
