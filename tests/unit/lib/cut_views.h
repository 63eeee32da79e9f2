/* SPDX-License-Identifier: Apache-2.0 */
/* cut_views.h - what two ranks exchange, as views of the arrays of both */
#ifndef KVT_CUT_VIEWS_H
#define KVT_CUT_VIEWS_H

#include "lib/kvt/spec.h"

struct cut_views {
	int count;
	struct kvt_view src[KVT_MAX_SPEC_PARTS], dst[KVT_MAX_SPEC_PARTS];
};

static inline enum kvt_status
cut_views(struct cut_views *out, const struct kvt_side *src,
	  const struct kvt_view *source, const struct kvt_side *dst,
	  const struct kvt_view *destination, struct kvt_error *err)
{
	struct kvt_exchange x = { .count = 0 };
	enum kvt_status status = kvt_exchange_init(&x, src, dst, err);

	out->count = x.count;
	for (int i = 0; !status && i < x.count; i++) {
		const struct kvt_exchange_range *r = &x.range[i];

		if (!(status = kvt_view_narrow(&out->src[i], source, x.axis, r->src,
					       r->src + r->count, err)))
			status = kvt_view_narrow(&out->dst[i], destination, x.axis,
						 r->dst, r->dst + r->count, err);
	}
	return status;
}

#endif
