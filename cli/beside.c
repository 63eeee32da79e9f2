/* SPDX-License-Identifier: Apache-2.0 */
/*
 * beside.c - folders that belong to the program, found from where it lies
 *
 * So that one that was built, one that was installed and one that was moved with what
 * lay beside it find them.
 */
#include "cli/cli.h"
#include "cli/models.h"
#include "formats/file/tree.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* The path of the program, also in a root where nobody has mounted /proc. */
static bool find_program(char out[static PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
	const char *as_run = (const char *)(uintptr_t)getauxval(AT_EXECFN);

	if (n < 0)
		return as_run && realpath(as_run, out);
	out[n] = '\0';
	return true;
}

bool beside_program(char out[static PATH_MAX], const char *below)
{
	char *slash;

	if (!find_program(out) || !(slash = strrchr(out, '/')) ||
	    (size_t)(slash + 1 - out) + strlen(below) >= PATH_MAX)
		return false;
	strcpy(slash + 1, below);
	return kvt_is_folder(out);
}

void model_beside(const char **name)
{
	static char path[PATH_MAX];
	size_t n;

	if (access(*name, F_OK) && model_of_id(*name))
		*name = model_of_id(*name);
	if (strchr(*name, '/') || !access(*name, F_OK) || strlen(*name) > NAME_MAX - 6 ||
	    (!beside_program(path, "models") &&
	     !beside_program(path, "../share/kvtool/models")))
		return;
	n = strlen(path);
	snprintf(path + n, sizeof(path) - n, "/%s.json", *name);
	if (!access(path, F_OK))
		*name = path;
}

bool plugin_folder(char out[static PATH_MAX])
{
	return beside_program(out, "plugin") ||
	       beside_program(out, "../lib/kvtool/hdf5-plugin");
}
