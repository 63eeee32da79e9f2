/* SPDX-License-Identifier: Apache-2.0 */
/* run_defaults.c - processors of a run that names none, and its warnings */
#define _GNU_SOURCE		/* CPU_COUNT, sched_getaffinity */
#include "lib/kvt/run.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void kvt_run_warn(const struct kvt_run *run, const char *format, ...)
{
	char text[512];
	va_list args;

	if (!run->warn)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	run->warn(run->context, text);
}

int kvt_usable_cpus(void)
{
	cpu_set_t set;
	long n;

	/* a container or taskset may allow fewer than there are */
	if (!sched_getaffinity(0, sizeof(set), &set))
		return CPU_COUNT(&set);
	n = sysconf(_SC_NPROCESSORS_ONLN);
	return n > 0 ? (int)n : 1;
}
