/* SPDX-License-Identifier: Apache-2.0 */
/* size_sample.h - kvtool size --on-disk: how well snapshots compress, from one of them */
#ifndef KVTOOL_SIZE_SAMPLE_H
#define KVTOOL_SIZE_SAMPLE_H

#include "print/size.h"

/*
 * KVT_BAD_INPUT: it is not compressed, or its ratio is not that of blocks in use.
 * KVT_UNSUPPORTED: it has more than elements of one type.
 */
KVT_MUST_CHECK enum kvt_status
size_sample_read(struct size_sample *out, const char *path, struct kvt_error *err);

/* Bytes that so many of a cache of this type take; -1: the sample is of another type. */
int64_t size_sample_bytes(const struct size_sample *sample, int64_t nbytes,
			  const char *cache_dtype);

#endif
