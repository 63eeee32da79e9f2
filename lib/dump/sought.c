/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sought.c - what a dump has of the prompts that it was opened with
 *
 * Of each prompt and group: how many files there are, from the first on without a gap,
 * and which are missing.  What lies behind a gap is there, but no engine comes to it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lib/dump/map.h"
#include "lib/run/leaf.h"

void kvt_leaf_free_sought(struct kvt_leaf *leaf)
{
	for (int64_t i = 0; i < leaf->nsought; i++) {
		free(leaf->sought[i].prompt);
		free(leaf->sought[i].missing);
	}
	free(leaf->sought);
	leaf->sought = NULL;
	leaf->nsought = 0;
}

const struct kvt_sought *kvt_dump_sought(const struct kvt_dump *dump, int64_t i)
{
	const struct kvt_leaf *leaf = dump->nleaves ? dump->leaf[0] : NULL;

	return leaf && i >= 0 && i < leaf->nsought ? &leaf->sought[i] : NULL;
}

const char *kvt_dump_named_by(const struct kvt_dump *dump)
{
	const struct kvt_leaf *leaf = dump->nleaves ? dump->leaf[0] : NULL;

	return leaf && leaf->named_by[0] ? leaf->named_by : NULL;
}

/* ---- in words ------------------------------------------------------------- */

struct sentence {
	char *s;
	size_t n, room;
	bool full;
};

/* "13 to 20 present, not reachable"; what has no room is dots. */
static void say(struct sentence *to, int64_t begin, int64_t end, const char *what)
{
	char text[96];
	int n;

	if (begin == end || to->full)
		return;
	n = end - begin > 1 ?
	    snprintf(text, sizeof(text), "%s%lld to %lld %s", to->n ? "; " : "",
		     LL(begin), LL(end - 1), what) :
	    snprintf(text, sizeof(text), "%s%lld %s", to->n ? "; " : "", LL(begin), what);
	to->full = to->n + (size_t)n + 6 > to->room;
	to->n += (size_t)snprintf(to->s + to->n, to->room - to->n, "%s",
				  to->full ? "; ..." : text);
}

struct kvt_sought_text kvt_sought_text(const struct kvt_sought *q)
{
	struct kvt_sought_text out = { "" };
	struct sentence to = { out.s, 0, sizeof(out.s), false };
	int64_t at = 0;

	if (!q->files) {
		snprintf(out.s, sizeof(out.s), "shorter than a block, so it has no name");
		return out;
	}
	to.n = (size_t)snprintf(out.s, sizeof(out.s), "%s ",
				q->files == 1 ? "block" : "blocks");
	to.s += to.n;
	to.room -= to.n;
	to.n = 0;
	for (int64_t i = 0; i <= q->nmissing; i++) {
		int64_t end = i < q->nmissing ? q->missing[i].begin : q->files;
		int64_t reached = q->reached < at ? at :
				  q->reached < end ? q->reached : end;

		say(&to, at, reached, "present");
		say(&to, reached, end, "present, not reachable");
		if (i < q->nmissing)
			say(&to, end, q->missing[i].end, "missing");
		at = i < q->nmissing ? q->missing[i].end : end;
	}
	return out;
}
