/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals.h - ending early without leaving anything behind
 *
 * Who writes calls signals_catch() first and looks at 'interrupted' between
 * tiles.  If it is set, he closes his writer (which removes what it staged) and
 * returns; main() then lets the process die by the signal, as its parent
 * expects.  The same signal a second time kills at once.
 *
 * Outputs are published between signals_hold() and signals_release(): a signal
 * before that leaves the old files, one after it is too late and ends nothing.
 */
#ifndef KVT_SIGNALS_H
#define KVT_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

extern volatile sig_atomic_t interrupted;	/* the signal, or 0 */

/* SIGINT, SIGTERM and SIGHUP, where they are not ignored already. */
void signals_catch(void);

/* And SIGQUIT and SIGPIPE: called before anything is staged. */
void signals_catch_all(void);

/* False if a signal came before it; then nothing is held. */
bool signals_hold(void);
void signals_release(bool published);

/* For main(): a limit on file sizes is an error of a write, not a death. */
void signals_ignore_limits(void);

/*
 * Dies by the signal that came; returns if none did, or after publication, but not if
 * what was published is one output of several (of shards) and the rest is unfinished.
 */
void signals_die(bool unfinished);

#endif
