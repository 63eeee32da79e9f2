/* SPDX-License-Identifier: Apache-2.0 */
/* offload_impl.h - an offload tree while it is opened */
#ifndef KVT_OFFLOAD_IMPL_H
#define KVT_OFFLOAD_IMPL_H

#include "formats/offload.h"

struct kvt_offload {
	struct kvt_reader *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	struct kvt_offload_config config;
	char *base;			/* <root>/<model>_<digest> */
	char *folder;			/* of the rank: <base>_r<rank> */
	int64_t rank;
	struct kvt_tree tree;		/* below folder */
};

/* Is this the folder of a config, by its name? */
bool kvt_offload_is_base(const char *path);
/* Fills config, base, folder and rank. */
KVT_MUST_CHECK enum kvt_status kvt_offload_find(struct kvt_offload *o);

#endif
