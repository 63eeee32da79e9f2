/* SPDX-License-Identifier: Apache-2.0 */
/* regions.h - tables of what a connector registered, see kvtool-regions(5) */
#ifndef KVT_LOG_REGIONS_H
#define KVT_LOG_REGIONS_H

#include <stddef.h>

#include "lib/transfer/region_table.h"

/* A table, and the text and lists that it points into. */
struct kvt_regions {
	struct kvt_region_table table;
	int64_t *members;
	void *json;
};

/* Does the text begin as such a table does?  It need not be all of it. */
bool kvt_regions_probe(const char *text, size_t nbytes);

/*
 * 'text' need not end with a zero.  KVT_BAD_INPUT where it is no JSON, or of another
 * version, or holds a key that means nothing there; 'name' is for messages.
 */
KVT_MUST_CHECK enum kvt_status
kvt_regions_parse(struct kvt_regions *out, const char *text, size_t nbytes,
		  const char *name, struct kvt_error *err);
void kvt_regions_free(struct kvt_regions *regions);

#endif
