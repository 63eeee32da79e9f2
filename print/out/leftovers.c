/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leftovers.c - what runs that were killed left beside an output
 *
 * The folder of a stage says whose it is: OUT.tmp-PID.  It is told of if no process has
 * that number, or if this one has it: what this one has open itself is not among them.
 * Of a process that lives nothing is said, as it may still be writing.
 */
#include "print/out/leftovers.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "print/out/say.h"
#include "formats/stage.h"

static void tell(void *context, const char *left)
{
	long pid = atol(strrchr(left, '.') + strlen(".tmp-"));

	(void)context;
	/* in containers the next run often has the same number */
	if (pid == getpid() || (pid > 0 && kill((pid_t)pid, 0) && errno == ESRCH))
		fplainf(stderr, "kvtool: %s: temporary folder of a kvtool that was "
				"killed; remove it\n", left);
}

void tell_leftovers(const char *path)
{
	kvt_stage_leftovers(NULL, path, tell, NULL);
}
