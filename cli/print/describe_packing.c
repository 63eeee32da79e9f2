/* SPDX-License-Identifier: Apache-2.0 */
/* describe_packing.c - which bytes of packed content are what */
#include "cli/print/describe.h"

/*
 *   row       nope 512 x float8_e4m3fn, scales 4 x float32, rope 64 x bfloat16
 *   page      64 rows; values 128 x uint8 from 0, scales 1 x float32 from 8192
 */
void describe_packing(const struct kvt_group *group)
{
	struct kvt_packing packing = kvt_group_packing(group);
	bool planar = group->content.type->planar;
	struct kvt_error why;

	describe_label(planar ? "page" : "row");
	if (planar)
		plainf("%lld rows; ", (long long)packing.rows);
	for (int i = 0; i < packing.nfields; i++) {
		const struct kvt_field *field = &packing.field[i];

		plainf("%s%s %lld x %s", i ? ", " : "", field->name,
		       (long long)field->count, field->dtype->name);
		if (planar)
			plainf(" from %lld", (long long)field->at);
	}
	putchar('\n');
	if (kvt_packing_readable(&packing, &why)) {
		describe_label("");
		plainf("%s\n", why.text);
	}
}
