/* SPDX-License-Identifier: Apache-2.0 */
/* leftovers.c - what runs that were killed left beside an output */
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
