/* SPDX-License-Identifier: Apache-2.0 */
/* canonical.h - one tensor for all groups, a kind of raw bytes */
#ifndef KVT_CANONICAL_FORMAT_H
#define KVT_CANONICAL_FORMAT_H

#include "formats/format.h"

/* For a manifest with row_bytes: fills the reader, as raw.c does for others. */
KVT_MUST_CHECK enum kvt_status
kvt_canonical_fit(struct kvt_reader *reader, struct kvt_manifest *manifest, int index,
		  struct kvt_error *err);

/* The same for one with tensors and references into them: caches.c. */
KVT_MUST_CHECK enum kvt_status
kvt_caches_fit(struct kvt_reader *reader, struct kvt_manifest *manifest, int index,
	       struct kvt_error *err);

/* The file, and where each group is in it. */
KVT_MUST_CHECK enum kvt_status
kvt_canonical_create(struct kvt_writer *writer, struct kvt_error *err);

#endif
