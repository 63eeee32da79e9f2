/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload.h - the tree that vLLM's file-system offloading and llm-d write
 *
 * <root>/<model>_<digest>/config.json says what is in
 * <root>/<model>_<digest>_r<rank>/<hhh>/<hh>_g<group>/<hash>.bin
 */
#ifndef KVT_OFFLOAD_H
#define KVT_OFFLOAD_H

#include <jansson.h>

#include "formats/store.h"

struct kvt_offload_group {
	int64_t block_size, nlayers;
	const json_t *layers;		/* names */
};

struct kvt_offload_config {
	json_t *json;			/* owned; what follows lies in it */
	const char *model, *dtype, *canonical;
	int64_t blocks_per_file, tp_size, pp_size, pcp_size, dcp_size;
	int ngroups;			/* 0: it does not say */
	struct kvt_offload_group group[KVT_MAX_GROUPS];
};

/* Both generations of keys; 'name' is for messages. */
KVT_MUST_CHECK enum kvt_status
kvt_offload_parse(struct kvt_offload_config *out, const char *text, size_t nbytes,
		  const char *name, struct kvt_error *err);
void kvt_offload_free(struct kvt_offload_config *config);

/* As Python writes it, \uabcd in small letters; malloc()ed, NULL: no memory. */
char *kvt_offload_text(const json_t *config, size_t flags);
/* The digest that is in the folder's name; false: out of memory. */
bool kvt_offload_digest(char out[13], const json_t *config);

/* "hhh/hh_g1/HASH.bin"; false: no such name. */
bool kvt_offload_name(struct kvt_part_of_name *hash, int *group, const char *name);

/* What begins a note that holds the config of the tree a dump came from. */
#define KVT_OFFLOAD_NOTE "offload config: "

/* The members create and finish of the format. */
KVT_MUST_CHECK enum kvt_status
kvt_offload_create(struct kvt_writer *writer, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_offload_finish(struct kvt_writer *writer, struct kvt_error *err);

#endif
