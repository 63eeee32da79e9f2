/* SPDX-License-Identifier: Apache-2.0 */
/* leftovers.h - what runs that were killed left beside an output */
#ifndef KVTOOL_LEFTOVERS_H
#define KVTOOL_LEFTOVERS_H

/*
 * A line on standard error for each folder that a run which is no more left when it
 * wrote 'path'.  One whose process still lives, on this machine, is none.
 */
void tell_leftovers(const char *path);

#endif
