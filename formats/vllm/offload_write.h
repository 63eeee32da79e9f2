/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload_write.h - an offload tree while it is written: its config, then its files
 */
#ifndef KVT_OFFLOAD_WRITE_H
#define KVT_OFFLOAD_WRITE_H

#include "formats/describe/describe.h"
#include "formats/parse/json.h"
#include "formats/vllm/offload.h"

struct writing {
	struct kvt_writer *writer;
	struct kvt_error *err;
	json_t *config;
	bool old;			/* keys of the first generation */
	bool rows;			/* files of vLLM's tier; else of llm-d */
	bool is_new;			/* the dump came from no such tree */
	bool resized;			/* it did, and has blocks of another size now */
	struct kvt_offload_row row;
	int64_t per_file;
	size_t number[KVT_MAX_GROUPS];	/* of each group, in names of folders */
	char *folder;			/* of the rank */
};

/* Which block of its file a name means: 3 of "HASH:3", 0 of "HASH"; -1: none. */
int64_t kvt_offload_place(const char *name, size_t *length);

/* w->config, whose files they are, and how many blocks one has. */
KVT_MUST_CHECK enum kvt_status kvt_offload_make_config(struct writing *w);
/* w->row, of vLLM's files, what the config says of it, and the layout of each group. */
KVT_MUST_CHECK enum kvt_status kvt_offload_make_rows(struct writing *w);

#endif
