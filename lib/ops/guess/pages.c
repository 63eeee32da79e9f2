/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.c - do the rows of a page lie in the order that its layout has?
 *
 * A label may be wrong where every size is right: [S,H] rows under a shape of [H,S].
 * Layouts that the shape rules out are no candidates.  So a fault of pages is undone, of
 * those that the table of faults has: rows of D are put elsewhere in their page, and the
 * same sample is measured again.  What then has the most gain, and is told from all
 * others as candidates are, speaks against the layout.
 *
 * Zeros do not count here: what was never written lies together in memory, and makes
 * order of any layout that has it together, too.
 *
 * Rows that hold copies of each other, and random numbers, can lead by some margins
 * (2.6 was the most that was seen; real faults lead by 7 and more), so that a fault is
 * only told at CLEAR of them.
 *
 * Cost: the sample is read once for all of them.
 */
#include "lib/ops/guess/impl.h"
#include "lib/ops/guess/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * What was done to pages.  Where the letters of 'said' are together in the layout, the
 * bytes are those of one that has them as in 'lie'.
 */
static const struct turned {
	const char *fault;
	int64_t way, rows;
	const char *said, *lie, *text;
} TURNED[] = {
	{ "swap-heads-slots", 0, 0, "HS", "SH", "[S,H] rows under a shape of [H,S]" },
	{ "swap-heads-slots", 1, 0, "SH", "HS", "[H,S] rows under a shape of [S,H]" },
#define BY_ROWS "keys and values in turn under a shape of halves"
#define HALVES "halves of keys and values under a shape that has them in turn"
	{ "split-kv", 0, 0, "KSH", "SHK", BY_ROWS },
	{ "split-kv", 0, 1, "KHS", "HSK", BY_ROWS },
	{ "split-kv", 0, 2, "KS", "SK", BY_ROWS },
	{ "split-kv", 1, 0, "SHK", "KSH", HALVES },
	{ "split-kv", 1, 1, "HSK", "KHS", HALVES },
	{ "split-kv", 1, 2, "SK", "KS", HALVES },
};
#define CLEAR 4.0		/* margins */
enum { NTURNED = sizeof(TURNED) / sizeof(TURNED[0]) };
_Static_assert(NTURNED + 1 == (int)GUESS_TURNS, "and one more, as it is");

static struct kvt_fault_args args_of(const struct turned *t, bool undo)
{
	return (struct kvt_fault_args){ .n = { undo ? !t->way : t->way, t->rows } };
}

/* False: the bytes as they lie are in no order of axes. */
static bool lies_as(struct kvt_layout *out, const struct kvt_layout *said,
		    const struct turned *t)
{
	struct kvt_text text = kvt_layout_string(said);
	size_t n = strlen(text.s);
	bool found = false;

	if (said->nplanes == 1 && n && text.s[n - 1] == 'C' && n + 1 < sizeof(text.s))
		memcpy(text.s + n - 1, "KD", sizeof("KD"));
	for (char *at = text.s; (at = strstr(at, t->said)); found = true)
		memcpy(at, t->lie, strlen(t->lie));
	return found && !kvt_layout_parse(out, text.s, NULL);
}

/* The first is as it is said; which of the others is the best? */
static int best_of(const struct kvt_guess_measures *is, int n)
{
	int most = 0, best;

	for (int i = 1; i < n; i++)
		if (is[i].gain > is[most].gain)
			most = i;
	best = most;
	for (int i = 0; i < n; i++)
		if (kvt_guess_same_channels(&is[most], &is[i]) &&
		    is[i].kinship > is[best].kinship)
			best = i;
	return best;
}

/* As the confidence of a layout is found. */
static double evidence_of(const struct kvt_guess_measures *is, int n, int best)
{
	double needed = kvt_guess_gain_needed(&is[best]);
	double evidence = fmax(is[best].gain, 0) / needed;

	for (int i = 0; i < n; i++)
		if (i != best)
			evidence = fmin(evidence,
					kvt_guess_evidence(&is[best], &is[i], needed));
	return is[best].live_blocks < GUESS_LEAST_BLOCKS ? 0 : evidence;
}

/* Undone[i + 1] is what turns.rows[i + 1] undoes; 'rows' is room for their lists. */
static struct guess_turns turns_of(const struct turned *undone[GUESS_TURNS],
				   int64_t *rows, const struct kvt_group *group)
{
	const struct kvt_window window = { .shape = group->shape, .kind = group->kind };
	const int64_t *n = group->shape.n;
	struct guess_turns turns = { .n = 1, .rows = { NULL } };

	for (int i = 0; i < NTURNED; i++) {
		struct kvt_fault_args undo = args_of(&TURNED[i], true);

		undone[turns.n] = &TURNED[i];
		if (!kvt_fault_rows(rows, kvt_fault_find(TURNED[i].fault), &undo,
				    &window))
			continue;
		turns.rows[turns.n++] = rows;
		rows += n[KVT_AXIS_S] * n[KVT_AXIS_H] * n[KVT_AXIS_K];
	}
	return turns;
}

enum kvt_status kvt_guess_turn_pages(struct kvt_guess_pages *out,
				     const struct kvt_guess_candidate *c,
				     struct guess_sample *s, struct kvt_dump *dump,
				     struct kvt_error *err)
{
	const int64_t *n = c->group.shape.n;
	int64_t nrows = n[KVT_AXIS_S] * n[KVT_AXIS_H] * n[KVT_AXIS_K];
	int64_t *rows = malloc((size_t)(nrows * NTURNED) * sizeof(*rows));
	const struct turned *undone[GUESS_TURNS], *t;
	struct kvt_guess_measures is[GUESS_TURNS];
	struct guess_turns turns;
	double evidence;
	int best;
	enum kvt_status status;

	*out = (struct kvt_guess_pages){ .fault = NULL };
	if (!rows)
		return kvt_no_memory(err, NULL);
	turns = turns_of(undone, rows, &c->group);
	status = turns.n > 1 ? kvt_guess_read_turned(is, &turns, c, s, dump, err) :
			       KVT_OK;
	free(rows);
	if (status || turns.n == 1)
		return status;
	/* parts that were never written are zeros in the order of the memory */
	for (int i = 0; i < turns.n; i++)
		is[i].gain -= is[i].of_zeros;
	best = best_of(is, turns.n);
	evidence = evidence_of(is, turns.n, best);
	if (!best || evidence < 1)
		return KVT_OK;
	t = undone[best];
	*out = (struct kvt_guess_pages){ .fault = kvt_fault_find(t->fault),
		.args = args_of(t, false), .undo = args_of(t, true), .text = t->text,
		.said = c->layout, .gain = is[best].gain, .evidence = evidence };
	out->clear = is[best].gain - is[0].gain >=
		     CLEAR * kvt_guess_gain_needed(&is[best]);
	out->is_layout = lies_as(&out->layout, &c->layout, t);
	return KVT_OK;
}

/* ---- a dump that says its layout ---------------------------------------- */

static bool can_tell(const struct kvt_group *group)
{
	return group->dtype && group->dtype->is_float && group->dtype->elem < 8 &&
	       group->dtype->number != KVT_POWER;
}

/* The mean magnitude of an element; false: there is none. */
static enum kvt_status find_unit(bool *found, struct guess_sample *s,
				 struct kvt_dump *dump, const struct kvt_dtype *dtype,
				 struct kvt_error *err)
{
	uint8_t *bytes = NULL;
	int64_t nbytes;
	enum kvt_status status = kvt_guess_bytes(&bytes, &nbytes, s, dump, err);

	*found = !status && nbytes / dtype->elem >= GUESS_LEAST_ELEMENTS &&
		 !isinf(kvt_guess_type_bits(&s->unit, dtype, false, bytes, nbytes));
	free(bytes);
	return status;
}

enum kvt_status kvt_guess_pages(struct kvt_guess_pages *out, struct kvt_dump *dump, int g,
				int64_t nbytes, struct kvt_error *err)
{
	const struct kvt_group *group = &kvt_dump_snapshot(dump)->group[g];
	struct kvt_guess_candidate c = { .layout = group->layout, .group = *group };
	struct guess_sample s = { .g = g, .nbytes = nbytes };
	const struct kvt_box whole = kvt_box_whole(&group->shape);
	bool found = false;
	enum kvt_status status;

	*out = (struct kvt_guess_pages){ .fault = NULL };
	if (!can_tell(group))
		return KVT_OK;
	if ((status = kvt_layout_views(&c.views, &c.layout, &whole, group->shape.elem,
				       err)) ||
	    (status = find_unit(&found, &s, dump, group->dtype, err)))
		return status;
	if (found)
		status = kvt_guess_turn_pages(out, &c, &s, dump, err);
	free(s.value);
	return status;
}
