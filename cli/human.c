/* SPDX-License-Identifier: Apache-2.0 */
/* human.c - sizes and layouts as people count them */
#include "cli/cli.h"

#include <string.h>

struct human human_size(int64_t nbytes)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB",
					    "PiB", "EiB" };
	struct human out;
	double n = (double)nbytes;
	bool whole;
	int u = 0;

	for (; n >= 1024 && u < 6; u++)
		n /= 1024;
	whole = n == (double)(int64_t)n;
	snprintf(out.s, sizeof(out.s), "%.*f %s",
		 whole ? 0 : n < 10 ? 2 : 1, n, unit[u]);
	return out;
}

struct human human_layout(const struct kvt_layout *layout)
{
	struct human out;
	const char *name;
	size_t n;

	n = (size_t)snprintf(out.s, sizeof(out.s), "%s",
			     kvt_layout_string(layout).s);
	for (int i = 0; (name = kvt_layout_name(layout, i)); i++)
		if (n + strlen(name) + 4 < sizeof(out.s))
			n += (size_t)sprintf(out.s + n, "%s%s", i ? ", " : " (",
					     name);
	if (kvt_layout_name(layout, 0))
		strcpy(out.s + n, ")");
	return out;
}
