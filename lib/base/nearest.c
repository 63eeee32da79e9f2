/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nearest.c - which word was meant: edit distance with swaps
 *
 * Of two words of n and m letters n * m steps, in three rows of memory; words above 40
 * letters are not compared.
 */
#include "lib/base/nearest.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 40 };

static int least(int a, int b, int c)
{
	int ab = a < b ? a : b;

	return ab < c ? ab : c;
}

/* Case and the kind of dash are no mistake. */
static int fold(char c)
{
	return c == '_' ? '-' : tolower((unsigned char)c);
}

/* Insertions, deletions, replacements and swaps of neighbours, 1 each. */
static int distance(const char *a, const char *b)
{
	int rows[3][LONGEST + 1];
	int *before = rows[0], *above = rows[1], *row = rows[2], *spare;
	int na = (int)strlen(a), nb = (int)strlen(b);

	if (na > LONGEST || nb > LONGEST)
		return INT_MAX;
	for (int j = 0; j <= nb; j++)
		before[j] = above[j] = j;
	for (int i = 1; i <= na; i++) {
		row[0] = i;
		for (int j = 1; j <= nb; j++) {
			row[j] = least(above[j] + 1, row[j - 1] + 1,
				       above[j - 1] + (fold(a[i - 1]) != fold(b[j - 1])));
			if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
			    fold(a[i - 2]) == fold(b[j - 1]))
				row[j] = least(row[j], before[j - 2] + 1, row[j]);
		}
		spare = before;
		before = above;
		above = row;
		row = spare;
	}
	return above[nb];
}

struct kvt_nearest kvt_nearest_start(const char *word)
{
	return (struct kvt_nearest){ word, NULL, INT_MAX };
}

void kvt_nearest_offer(struct kvt_nearest *n, const char *candidate)
{
	int d = distance(n->word, candidate);

	if (d < n->distance) {
		n->distance = d;
		n->best = candidate;
	}
}

const char *kvt_nearest_found(const struct kvt_nearest *n)
{
	/* one slip in three letters, and never a whole other word */
	return n->distance <= (int)(strlen(n->word) + 2) / 3 ? n->best : NULL;
}

struct kvt_text kvt_nearest_hint(const struct kvt_nearest *n, const char *otherwise)
{
	const char *found = kvt_nearest_found(n);
	struct kvt_text out = { "" };

	/* the word is a right one, and something else is wrong with it */
	if (found && !strcmp(found, n->word))
		return out;
	snprintf(out.s, sizeof(out.s), found ? ", did you mean '%.100s'?" : "%.155s",
		 found ? found : otherwise);
	return out;
}
