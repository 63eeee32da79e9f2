/* SPDX-License-Identifier: Apache-2.0 */
/* say.h - printing for people: strings made plain, numbers as they are read */
#ifndef KVT_SAY_H
#define KVT_SAY_H

#include <stdio.h>

#include "lib/kvt/kvt.h"

/* ---- what is printed for people: plain.c -------------------------------- */

/*
 * printf() and fprintf(), with strings made plain: see kvt_plain_next() in
 * lib/kvt/kvt.h.  No file of cli/ prints in another way, except those that write a
 * format with an escape of its own (tests/check_layers.sh lists them).  Conversions
 * are %d %i %u %x %X %o %e %f %g %c %s, lengths l, ll, j, z.
 */
void plainf(const char *format, ...) KVT_PRINTF(1, 2);
void fplainf(FILE *out, const char *format, ...) KVT_PRINTF(2, 3);

/* The higher of two statuses: what several inputs together end with. */
static inline enum kvt_status worse(enum kvt_status a, enum kvt_status b)
{
	return a > b ? a : b;
}

/* ---- lines with a word before them: label.c ------------------------------ */

/* The first word of a line of text: label.c. */
void print_label(const char *text);
/* From now on lines are to be compared: a tab behind the label, and no sizes of files. */
void labels_are_facts(bool yes);
bool labels_facts_alone(void);

/* ---- for people: human.c ------------------------------------------------ */

struct human {
	char s[256];
};

/* Behind a word that is counted: "1 block", "2 blocks". */
static inline const char *plural(int64_t n)
{
	return n == 1 ? "" : "s";
}

/* "LBHSC (hnd, lbhnc)": the axis string and every name it has. */
struct human human_layout(const struct kvt_layout *layout);
/* "1,310,720" */
struct human human_count(int64_t n);
/* "2.1 ms" */
struct human human_time(int64_t ns);

#endif
