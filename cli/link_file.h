/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_file.h - a link by the name of a preset, or from a JSON file
 *
 *	{"name": "rack 7", "overlap": 2, "setup_us": 54.8, "op_ns": 60,
 *	 "post_ns": 40, "rate_gbps": 45.7, "slice": 65536,
 *	 "quality": "given", "source": "measured on site"}
 *
 * overlap is 1, 2, 4 or "inf", rate_gbps counts 10^9 bytes a second, and null is
 * an infinite rate.  overlap, setup_us and op_ns must be there, and rate_gbps;
 * posting is half of an operation unless post_ns says otherwise.
 */
#ifndef KVTOOL_LINK_FILE_H
#define KVTOOL_LINK_FILE_H

#include "cli/json_out.h"
#include "lib/kvt/link.h"

/* Where a link and its words live; it is not to be copied. */
struct link_file {
	struct kvt_link link;
	char name[64], source[512];
};

/*
 * The preset of that name, or else the file.  A preset that has no figures is
 * taken, too: link_has_figures() tells.
 */
KVT_MUST_CHECK enum kvt_status
link_take(struct link_file *out, const char *text, struct kvt_error *err);

/* Refuses (KVT_BAD_INPUT) a link that was never measured. */
KVT_MUST_CHECK enum kvt_status
link_has_figures(const struct kvt_link *link, struct kvt_error *err);

/* 'path' is for messages. */
KVT_MUST_CHECK enum kvt_status
link_parse(struct link_file *out, const char *text, size_t nbytes, const char *path,
	   struct kvt_error *err);

/* The fields above, into 'object'. */
void link_put(struct json_out *out, json_t *object, const struct kvt_link *link);

/* For option tables; the variable begins with the default. */
#define OPT_LINK(p)    { "link", 0, OPT_STRING, p, "NAME|FILE", \
			 "the link; 'list' prints the presets; default cx7-400g-verbs" }
#define LINK_DEFAULT   "cx7-400g-verbs"

/* What --link=list prints. */
void link_print_presets(void);

#endif
