/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h - a row of the table of vLLM's attention backends */
#ifndef KVT_BACKEND_H
#define KVT_BACKEND_H

#include "lib/kvt/connect.h"

enum { KVT_BACKEND_MAX_SIZES = 12, KVT_BACKEND_MAX_BLOCKS = 4 };

enum { KVT_BACKEND_CAN_MLA = 1 << 0 };

struct kvt_backend {
	const char *name;
	unsigned can;			/* bits of backend.c, as all that follow */
	unsigned dtypes, cache_dtypes, types;
	/* head sizes: a list, or from 'least' to 'most' by 'step' */
	int least, step, most;
	int size[KVT_BACKEND_MAX_SIZES];
	int block[KVT_BACKEND_MAX_BLOCKS];	/* of kernels: multiples of any */
	bool exact_block;		/* of these sizes, no multiples */
	int older_block;		/* that a release before this one had; 0: none */
	/* vLLM's names, the first preferred; NULL: any */
	const char *layouts;
	unsigned majors;		/* compute capabilities, by bit; 0: all */
};

/* Name i of vLLM's types of caches; NULL: there are no more. */
const char *kvt_backend_cache_dtype(int i);

/* vLLM's is_quantized_kv_cache(); NULL: the type is not known. */
bool kvt_backend_quantised(const char *cache_dtype);

#endif
