/* SPDX-License-Identifier: Apache-2.0 */
/* size_pool.c - the pool that vLLM makes for the caches of a model */
#include "cli/print/size.h"

#include <stdio.h>

void size_pool(struct size_pool *out, const struct size_report *r,
	       const struct size_row *row)
{
	struct kvt_error why = { "" };

	*out = (struct size_pool){ .block_ids = 0 };
	if (kvt_model_pack(&out->pack, &row->size, &r->layout, &why)) {
		snprintf(out->why_not, sizeof(out->why_not), "%.250s", why.text);
		return;
	}
	out->copies = row->tp;
	for (int i = 0; i < row->size.ngroups; i++)
		out->copies = kvt_gcd(out->copies,
				      kvt_spec_copies(row->size.group[i].keeps, row->tp,
						      r->demand.dcp));
	if (r->memory && out->pack.block_nbytes)
		out->block_ids = r->memory / out->pack.block_nbytes;
	if (r->tokens && kvt_pack_request(&out->request, &row->size, &out->pack,
					  &r->demand, &why)) {
		out->request = 0;
		snprintf(out->too_long, sizeof(out->too_long), "%.250s", why.text);
	}
}
