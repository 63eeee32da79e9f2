/* SPDX-License-Identifier: Apache-2.0 */
/* beyond.c - orders of axes that no layout with a name has */
#include "lib/ops/guess/guess.h"

#include <math.h>
#include <string.h>

/* Read for each order that has no name, unless blocks are larger. */
enum { BEYOND_NBYTES = 1 << 19, BEYOND_BLOCKS = 8 };

static enum kvt_status measure_order(struct guess_candidate *c, struct guess_sample *s,
				     const char *order, struct kvt_error *err)
{
	struct kvt_dump *reader;
	enum kvt_status status = guess_open(&reader, c, s, order, err);

	if (status)
		return status;
	status = guess_read(c, s, reader, err);
	kvt_dump_close(reader);
	return status;
}

static void exchange(char *a, char *b)
{
	char t = *a;

	*a = *b;
	*b = t;
}

/* The next order of letters by the alphabet; false after the last. */
static bool next_order(char *letters, int n)
{
	int i = n - 2, j = n - 1;

	while (i >= 0 && letters[i] >= letters[i + 1])
		i--;
	if (i < 0)
		return false;
	while (letters[j] <= letters[i])
		j--;
	exchange(letters + i, letters + j);
	for (i++, j = n - 1; i < j; i++, j--)
		exchange(letters + i, letters + j);
	return true;
}

/*
 * The right layout may have no name; the best of the wrong ones must not pass for
 * it then.  A smaller sample will do, of the winner too.
 */
enum kvt_status guess_look_beyond(struct guess *g, struct kvt_error *err)
{
	bool latent = g->candidate[0].group.shape.n[KVT_AXIS_K] == 1;
	char order[8], letters[] = "BHKLS", opaque[] = "BHLS";
	char *letter = latent ? opaque : letters;
	struct guess_sample s = g->sample;
	struct guess_candidate c, winner = g->candidate[0];
	struct kvt_dump *reader;
	double best, akin;
	int64_t few;
	enum kvt_status status;

	few = winner.views.nbytes / winner.group.shape.n[KVT_AXIS_L] /
	      winner.group.shape.n[KVT_AXIS_B] * BEYOND_BLOCKS;
	if (s.nbytes > BEYOND_NBYTES && s.nbytes > few)
		s.nbytes = few > BEYOND_NBYTES ? few : BEYOND_NBYTES;
	if ((status = guess_open(&reader, &c, &s,
				 kvt_layout_string(&winner.layout).s, err)))
		return status;
	status = guess_read(&c, &s, reader, err);
	kvt_dump_close(reader);
	if (status)
		return status;
	winner.is = c.is;
	best = c.is.gain + guess_gain_needed(&c.is);
	akin = c.is.kinship;
	do {
		/* states outside of blocks leave every channel what it is */
		if (strchr(letter, 'S') < strchr(letter, 'B'))
			continue;
		snprintf(order, sizeof(order), "%sD", letter);
		if (latent)
			order[4] = 'C';
		status = measure_order(&c, &s, order, err);
		if (status == KVT_SYSTEM)
			return status;
		if (status || !(c.is.gain > best ||
				(guess_same_channels(&c.is, &winner.is) &&
				 c.is.kinship > akin)))
			continue;
		best = fmax(best, c.is.gain);
		akin = fmax(akin, c.is.kinship);
		g->better = c.layout;
		g->has_better = true;
	} while (next_order(letter, (int)strlen(letter)));
	return KVT_OK;
}

