/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.c - several dumps of one command line
 *
 * A shell's * names all that is in a folder: dumps, and what belongs to them.
 */
#include "cli/set.h"

#include <string.h>

static bool ends_in_json(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && !strcmp(name + n - 5, ".json");
}

int pass_over_manifests(char **operands, int n, const struct kvt_hints *hints)
{
	int left = 0;

	for (int i = 0; i < n; i++) {
		bool manifest = false;

		if (ends_in_json(operands[i]))
			/* one that is left may have come to lie before i, no other */
			for (int j = 0; j < n && !manifest; j++)
				manifest = (j < left || j > i) &&
					   kvt_is_manifest_of(operands[i], operands[j],
							      hints);
		if (!manifest)
			operands[left++] = operands[i];
	}
	return left;
}
