/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals.h - ending early without leaving anything behind
 *
 * Who writes calls signals_catch() first and looks at 'interrupted' between
 * tiles.  If it is set, he closes his writer (which removes the temporary file)
 * and returns; main() then lets the process die by the signal, as its parent
 * expects.  The same signal a second time kills at once.
 */
#ifndef KVT_SIGNALS_H
#define KVT_SIGNALS_H

#include <signal.h>

extern volatile sig_atomic_t interrupted;	/* the signal, or 0 */

/* SIGINT, SIGTERM and SIGHUP, where they are not ignored already. */
void signals_catch(void);

/* For main(): a limit on file sizes is an error of a write, not a death. */
void signals_ignore_limits(void);

/* Dies by the signal that came; returns if none did. */
void signals_die(void);

#endif
