/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_file.h - a link from a JSON file
 *
 *	{"name": "rack 7", "overlap": 2, "setup_us": 54.8, "op_ns": 60,
 *	 "post_ns": 40, "rate_gbps": 45.7, "slice": 65536,
 *	 "quality": "given", "source": "measured on site"}
 *
 * overlap is 1, 2, 4 or "inf", rate_gbps counts 10^9 bytes a second, and null is
 * an infinite rate.  overlap, setup_us and op_ns must be there, and rate_gbps;
 * posting is half of an operation unless post_ns says otherwise.
 */
#ifndef KVT_FORMATS_LINK_FILE_H
#define KVT_FORMATS_LINK_FILE_H

#include <stddef.h>

#include "lib/kvt/link.h"

/* Where a link and its words live; it is not to be copied. */
struct link_file {
	struct kvt_link link;
	char name[64], source[512];
};

/* 'path' is for messages. */
KVT_MUST_CHECK enum kvt_status
link_parse(struct link_file *out, const char *text, size_t nbytes, const char *path,
	   struct kvt_error *err);

#endif
