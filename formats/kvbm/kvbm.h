/* SPDX-License-Identifier: Apache-2.0 */
/* kvbm.h - what a layout descriptor of Dynamo's KVBM says */
#ifndef KVT_KVBM_H
#define KVT_KVBM_H

#include <stddef.h>

#include "lib/kvt/kvt.h"

struct kvt_kvbm {
	int64_t blocks, layers, outer, page, inner, alignment, width;
	int64_t heads;			/* 0: not given */
	int64_t region;			/* bytes of the first; 0: not given */
	bool separate;			/* a region, so a file, for each layer */
	char axes[16];			/* "BLKSHD"; "" if unknown */
};

/* A descriptor of version 1, or only the config in it; 'name' is for messages. */
KVT_MUST_CHECK enum kvt_status
kvt_kvbm_parse(struct kvt_kvbm *out, const char *text, size_t nbytes, const char *name,
	       struct kvt_error *err);

#endif
