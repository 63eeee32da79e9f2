/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caches.h - vLLM's CanonicalKVCaches in a manifest: tensors of pages, and of each layer
 * a reference into them
 */
#ifndef KVT_CACHES_H
#define KVT_CACHES_H

#include "formats/describe/describe.h"

struct kvt_page_ref {
	char *layer;			/* its name; NULL: the references are in order */
	int64_t tensor, offset;		/* of the first byte in a page of the tensor */
	int64_t page_bytes;
	/* as struct kvt_head_slices has them; -1: not said */
	int64_t n_heads, h_stride, bs_stride, replicated;
};

struct kvt_caches {
	int64_t ntensors;
	struct kvt_rows *tensor;	/* one after the other in the file */
	int ngroups;
	int64_t nrefs[KVT_MAX_GROUPS];
	struct kvt_page_ref *ref[KVT_MAX_GROUPS];	/* then in the order of layers */
};

/* NULL in *out if the manifest has none. */
void kvt_caches_parse(struct kvt_caches **out, const struct kvt_json *in);
void kvt_caches_free(struct kvt_caches *caches);	/* NULL is allowed */

/* Extents and names that the references tell, where nothing else does. */
KVT_MUST_CHECK enum kvt_status
kvt_caches_fill(struct kvt_manifest *manifest, const char *name, struct kvt_error *err);
/* A reference for each layer, which says nothing else of it than the group does. */
KVT_MUST_CHECK enum kvt_status
kvt_caches_check(struct kvt_manifest *manifest, const char *name, struct kvt_error *err);

#endif
