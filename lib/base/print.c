/* SPDX-License-Identifier: Apache-2.0 */
/* print.c - extents as people write them */
#include "lib/base/print.h"

#include <stdio.h>

struct kvt_text kvt_extents_text(int n, const int64_t *extent)
{
	struct kvt_text out = { "a single element" };
	size_t used = 0;

	for (int i = 0; i < n && used < sizeof(out.s); i++)
		used += (size_t)snprintf(out.s + used, sizeof(out.s) - used, "%s%lld",
					 i ? " x " : "", LL(extent[i]));
	return out;
}
