/* SPDX-License-Identifier: Apache-2.0 */
/* human.c - sizes, layouts and processors as people count them */
#define _GNU_SOURCE		/* CPU_COUNT, sched_getaffinity */
#include "cli/cli.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

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

int usable_cpus(void)
{
	cpu_set_t set;
	long n;

	/* a container or taskset may allow fewer than there are */
	if (!sched_getaffinity(0, sizeof(set), &set))
		return CPU_COUNT(&set);
	n = sysconf(_SC_NPROCESSORS_ONLN);
	return n > 0 ? (int)n : 1;
}
