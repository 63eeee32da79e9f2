/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - another program that is run, and waited for */
#ifndef KVTOOL_CHILD_H
#define KVTOOL_CHILD_H

#include "lib/kvt/kvt.h"

enum { CHILD_MAX_SET = 2 };

struct child {
	const char *program;		/* a path */
	const char *const *argv;	/* ends with NULL */
	const char *folder;		/* where it is started; NULL: here */
	const char *set[CHILD_MAX_SET][2];	/* environment: name, value; NULL ends */
	int out;			/* its standard output and error */
};

/*
 * Its exit status, or 128 and the signal that ended it, as a shell says it.  Standard
 * input is empty.  It is a group of its own, which a signal to this process ends, too:
 * then KVT_SYSTEM, "interrupted".
 */
KVT_MUST_CHECK enum kvt_status
child_run(int *exit_status, const struct child *child, struct kvt_error *err);

#endif
