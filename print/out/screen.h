/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen.h - standard output when a person looks at it: its width, its colours
 *
 * Nothing here changes what goes into a pipe or a file, but --color=always.
 */
#ifndef KVTOOL_SCREEN_H
#define KVTOOL_SCREEN_H

#include <stddef.h>
#include <stdio.h>

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
/* Text in a colour; what is foreign in it is made plain. */
void screen_say(enum screen_colour colour, const char *text);

/*
 * Columns of the terminal; 0: there is none, or one so narrow that nothing is fitted
 * into it.
 */
size_t screen_width(void);

/* May characters beyond ASCII be drawn?  On a terminal that has UTF-8, not a dumb one. */
bool screen_draws(void);

/*
 * What is printed between these two is kept, as it would be on the screen, or if 'plain'
 * as a program would get it; to be freed, NULL without memory.  Not one in another.
 */
void screen_take_begin(bool plain);
char *screen_take_end(void);
/* Text that was printed into memory, so that what is foreign in it is plain already. */
void screen_put(const char *text);
/* Can all of the screen be drawn on?  On a terminal that is not a dumb one. */
bool screen_whole(void);
/* The same instead of all that is on the screen, cut where that ends. */
void screen_frame(FILE *out, const char *text);

/* Columns that a picture may have, and rows: those of the terminal, or 80 and 24. */
int screen_room(void);
int screen_rows(void);
/* The ground of what is printed next: the i-th of seven colours; -1: none. */
void screen_shade(FILE *f, int i);
/* The same in ten steps from pale to deep. */
void screen_heat(FILE *f, int tenth);
/* Are colours wanted where half a character can have one of its own? */
bool screen_halves(void);
/*
 * A character of two such cells, how deep each is from 0 to 1; below 0: nothing is
 * there.  screen_heat(f, -1) ends a line of them.
 */
void screen_half(FILE *f, double upper, double lower);

/*
 * Lines printed between these two are folded at the width of the terminal, at blanks
 * behind column 'hang', where their other lines begin: that of the text behind a label.
 */
void screen_fold_begin(int hang);
void screen_fold_end(void);

#endif
