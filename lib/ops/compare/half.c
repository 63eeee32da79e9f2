/* SPDX-License-Identifier: Apache-2.0 */
/* half.c - the keys or the values of a box in memory, by address */
#include "lib/ops/compare/half.h"

enum kvt_status half_init(struct half *out, const struct placed *at, int k, int64_t elem,
			  struct kvt_error *err)
{
	struct kvt_views views;
	enum kvt_status status;

	out->at = at;
	if ((status = kvt_layout_views(&views, at->layout, &at->box, elem, err)) ||
	    (status = view_of_k(&out->view, &views, k, err)))
		return status;
	return terms_init(&out->terms, &out->view) ? KVT_OK :
	       kvt_fail(err, KVT_SYSTEM, "out of memory");
}

const uint8_t *half_at(const struct half *half, const int64_t index[KVT_NAXES])
{
	int64_t at[KVT_NAXES];

	for (int a = 0; a < KVT_NAXES; a++)
		at[a] = index[a] - half->at->box.begin[a];
	at[KVT_AXIS_K] = 0;
	return half->at->bytes + half->view.offset + terms_offset(&half->terms, at);
}
