/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size_pool.c - the pool that vLLM makes for the caches of a model
 *
 * In: a row, and the report's layout, memory and tokens.  Out: which layers share a
 * block id (lib/model/pack.c), the ids that fit into the memory, those that a request
 * needs at most, ranks that hold the same, and whether new blocks are zeroed.  No pool,
 * or a request that cannot be, is a text in the result and no failure.  Releases but the
 * newest have none.
 */
#include "print/size.h"

#include <stdio.h>

#include "lib/kvt/choice.h"

/*
 * Caches of one model that differ in type differ in bytes of an element: all that is
 * packed or fp8 is bytes to vLLM.
 */
static bool zeroing(const struct size_row *row)
{
	static const char *const type[] = {
		[0] = "uint8", [1] = "uint8", [2] = "bfloat16", [4] = "float32",
		[8] = "int64",
	};
	struct kvt_zeroing_spec cache[KVT_MODEL_GROUPS];

	for (int i = 0; i < row->size.ngroups; i++) {
		const struct kvt_spec *spec = &row->size.group[i].spec;
		const int64_t elem = spec->elem;

		cache[i] = (struct kvt_zeroing_spec){
			.kind = kvt_is_recurrent(spec->kind) ? KVT_ZEROING_STATE :
				KVT_ZEROING_ATTENTION,
			.dtype = elem >= 0 && elem <= 8 ? type[elem] : NULL,
		};
	}
	return kvt_needs_zeroing(KVT_NEWEST_RELEASE, cache, row->size.ngroups);
}

void size_pool(struct size_pool *out, const struct size_report *r,
	       const struct size_row *row)
{
	struct kvt_error why = { "" };

	*out = (struct size_pool){ .block_ids = 0 };
	if (r->release != KVT_NEWEST_RELEASE) {
		snprintf(out->why_not, sizeof(out->why_not),
			 "its groups are known of release %s alone",
			 kvt_release_name(KVT_NEWEST_RELEASE));
		return;
	}
	if (kvt_model_pack(&out->pack, &row->size, &r->layout, &why)) {
		snprintf(out->why_not, sizeof(out->why_not), "%.250s", why.text);
		return;
	}
	out->zeroing = zeroing(row);
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
