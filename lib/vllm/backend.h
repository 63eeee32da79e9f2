/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.h - rows of facts about vLLM's attention backends, by release
 *
 * A backend is one or more rows that follow each other, the newest first; each holds
 * from its release up to the row before it.  Before the last one there was none.
 */
#ifndef KVT_BACKEND_H
#define KVT_BACKEND_H

#include "lib/kvt/connect.h"

enum { KVT_BACKEND_MAX_SIZES = 12, KVT_BACKEND_MAX_BLOCKS = 4 };

/* Whose kernels they are; in the order of the reasons from KVT_BACKEND_CUDA_ONLY on. */
enum kvt_maker { ANY_MAKER, CUDA, ROCM, CPU, XPU };

struct kvt_backend {
	const char *name;
	enum kvt_maker on;
	enum kvt_release since;
	unsigned can;			/* bits from below, as all that follow */
	unsigned dtypes, cache_dtypes, types;
	/* head sizes: a list, or from 'least' to 'most' by 'step' */
	int least, step, most;
	int size[KVT_BACKEND_MAX_SIZES];
	int block[KVT_BACKEND_MAX_BLOCKS];	/* of kernels: multiples of any */
	bool exact_block;		/* of these sizes, no multiples */
	/* compute capabilities: majors by bit, and limits such as 80; 0: any */
	unsigned majors;
	int least_capability, most_capability;
};

/* Types of a model. */
enum { F16 = 1 << 0, BF16 = 1 << 1, F32 = 1 << 2 };

/* Types of a cache: vLLM's names, of which some are always taken together. */
enum {
	AUTO = 1 << 0, C_F16 = 1 << 1, C_BF16 = 1 << 2, FP8 = 1 << 3, E4M3 = 1 << 4,
	E5M2 = 1 << 5, DS_MLA = 1 << 6, NVFP4 = 1 << 7, NVFP4_4OVER6 = 1 << 8,
	NVFP4_DS_MLA = 1 << 9, INT4_HEAD = 1 << 10, PER_HEAD = 1 << 11,
	TURBO = 1 << 12, ULTRA = 1 << 13,
};

/* What queries attend to; without a bit only decoders are supported. */
enum { ENCODER = 1 << 0, ENCODER_ONLY = 1 << 1, CROSS = 1 << 2 };

enum {
	MLA = 1 << 0, SPARSE = 1 << 1, SINKS = 1 << 2, PREFIX = 1 << 3,
	SCALES = 1 << 4, WINDOW = 1 << 5, RSWA = 1 << 6, NON_CAUSAL = 1 << 7,
	NON_CAUSAL_DCP = 1 << 8, INVARIANT = 1 << 9, CONNECTOR = 1 << 10,
	PCP = 1 << 11, DCP = 1 << 12, LENGTHS = 1 << 13,
	NOTHING = 1 << 14,		/* a name without code */
};

/* Row i of the table; NULL past the last. */
const struct kvt_backend *kvt_backend_row(int i);

/* The row of a backend for a release; NULL: there was none. */
const struct kvt_backend *kvt_backend_of(const struct kvt_backend *backend,
					 enum kvt_release release);

/*
 * Where a device of CUDA decides: a part of a backend that holds on some majors only,
 * and then for these types of a cache, or for blocks that are no multiple of 'block'.
 */
struct kvt_backend_device {
	const char *name;
	enum kvt_release since, until;
	enum kvt_backend_reason reason;
	unsigned majors;
	unsigned cache_dtypes;
	int block;
};
const struct kvt_backend_device *kvt_backend_device_at(int i);

/* Major compute capabilities that have every part which is wanted: bit i is i. */
unsigned kvt_backend_majors(const struct kvt_backend *b,
			    const struct kvt_backend_config *c);

/* Name i of vLLM's types of caches; NULL: there are no more. */
const char *kvt_backend_cache_dtype(int i);

/* vLLM's is_quantized_kv_cache(); NULL: the type is not known. */
bool kvt_backend_quantised(const char *cache_dtype);

#endif
