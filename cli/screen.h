/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen.h - standard output when a person looks at it: its width, its colours
 *
 * Nothing here changes what goes into a pipe or a file, but --color=always.
 */
#ifndef KVTOOL_SCREEN_H
#define KVTOOL_SCREEN_H

#include "lib/kvt/kvt.h"

/* The three uses of colour. */
enum screen_colour {
	SCREEN_NAME,		/* what is meant: a file, a group */
	SCREEN_MISSING,
	SCREEN_DIFFERS,
};

/*
 * Removes --color=WHEN from the words of a command line: auto, always, never.  KVT_USAGE:
 * it is another word.
 */
KVT_MUST_CHECK enum kvt_status
screen_take_option(int *argc, char **argv, struct kvt_error *err);

/* Standard output is no terminal, whatever it is: mpirun has one of its own there. */
void screen_none(void);

/* What is printed from here on is in this colour, if colours are wanted. */
void screen_paint(enum screen_colour colour);
void screen_plain(void);

/*
 * Lines printed between these two are folded at the width of the terminal, at blanks
 * behind column 'hang', where their other lines begin: that of the text behind a label.
 */
void screen_fold_begin(int hang);
void screen_fold_end(void);

#endif
