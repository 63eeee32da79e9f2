/* SPDX-License-Identifier: Apache-2.0 */
/*
 * terminal.h - a whole terminal for a while, given back however the program ends
 *
 * Between enter and leave its other screen is shown, without a cursor, and keys are read
 * one by one.  What ends or stops the program gives the terminal back first: an exit, and
 * every signal that can be caught.
 */
#ifndef KVTOOL_TERMINAL_H
#define KVTOOL_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>

/* False: standard output is no terminal that can do this. */
bool terminal_enter(void);
void terminal_leave(void);

enum { TERMINAL_TIMEOUT = -1, TERMINAL_RESIZED = -2 };
/* A key, or one of these, within so many milliseconds. */
int terminal_wait(int64_t ms);

#endif
