/* SPDX-License-Identifier: Apache-2.0 */
/* values.c - the numbers of a slot, plain or packed, one after the other */
#include "lib/ops/numbers/numbers.h"

enum kvt_status kvt_values_init(struct kvt_values *out, const struct kvt_group *group,
				struct kvt_error *err)
{
	*out = (struct kvt_values){ .group = group, .n = group->shape.n[KVT_AXIS_D] };
	if (group->content.type) {
		out->packing = kvt_group_packing(group);
		out->n = kvt_packing_values(&out->packing);
		return kvt_packing_readable(&out->packing, err);
	}
	if (group->dtype->is_float)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"type %s has no values; give an element type with --dtype",
			group->dtype->name);
}

void kvt_values_decode(double *out, const struct kvt_values *v, int64_t kv,
		       const uint8_t *slot)
{
	const struct kvt_group *group = v->group;

	if (group->content.type)
		kvt_packing_decode(out, &v->packing, kv, slot, 0, v->n);
	else
		for (int64_t i = 0; i < v->n; i++)
			out[i] = kvt_dtype_decode(group->dtype,
						  slot + i * group->shape.elem);
}
