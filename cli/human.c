/* SPDX-License-Identifier: Apache-2.0 */
/* human.c - layouts as people name them */
#include "cli/cli.h"

#include <string.h>

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
