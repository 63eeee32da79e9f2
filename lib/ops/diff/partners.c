/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partners.c - which request of one side is which of the other
 *
 * First as the caller says, then by equal names.  Engines append what is random to names,
 * so of what is left requests are paired by what they hold (alike.c), where that leaves
 * no choice, and then by names that are one but for a random end.  What is still left on
 * both sides is asked: out->ask is the option to type.  None of it is guessed: a pair of
 * other names is told, with how it is known.
 */
#include "lib/ops/diff/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- as the caller says, and by name ------------------------------------ */

struct naming {
	struct diff_partners *out;
	const struct kvt_snapshot *of[NSIDES];
};

static const char *id_of(const struct naming *n, int side, int64_t r)
{
	return n->of[side]->request[r].id;
}

static void join_requests(struct diff_partners *out, int64_t a, int64_t b)
{
	out->of[SIDE_A][a] = b;
	out->of[SIDE_B][b] = a;
}

/* Is 'text' the match a=b? */
static bool is_match(const char *text, const char *a, const char *b)
{
	size_t n = strlen(a);

	return !strncmp(text, a, n) && text[n] == '=' && !strcmp(text + n + 1, b);
}

/* A name that is mistyped must not leave its request to the one of equal name. */
static enum kvt_status find_match(int64_t found[NSIDES], const char *text,
				  const struct naming *n, struct kvt_error *err)
{
	for (int64_t i = 0; i < n->of[SIDE_A]->nrequests; i++)
		for (int64_t k = 0; k < n->of[SIDE_B]->nrequests; k++)
			if (is_match(text, id_of(n, SIDE_A, i), id_of(n, SIDE_B, k))) {
				found[SIDE_A] = i;
				found[SIDE_B] = k;
				return KVT_OK;
			}
	return kvt_fail(err, KVT_BAD_INPUT,
			"--match is '%.80s', but A and B have no such requests; their first ones are '%.60s' and '%.60s'",
			text, id_of(n, SIDE_A, 0), id_of(n, SIDE_B, 0));
}

/* The match that took a request before; a request has one partner at most. */
static const char *match_of(const struct naming *n, const struct diff_alignment *how,
			    int until, const int64_t found[NSIDES])
{
	const int64_t *of = n->out->of[SIDE_A];
	int64_t a = of[found[SIDE_A]] < 0 ? n->out->of[SIDE_B][found[SIDE_B]] :
					    found[SIDE_A];

	for (int i = 0; a >= 0 && i < until; i++)
		if (is_match(how->match[i], id_of(n, SIDE_A, a), id_of(n, SIDE_B, of[a])))
			return how->match[i];
	return NULL;
}

static enum kvt_status join_matches(const struct naming *n,
				    const struct diff_alignment *how,
				    struct kvt_error *err)
{
	for (int i = 0; i < how->nmatches; i++) {
		const char *before;
		int64_t found[NSIDES] = { 0, 0 };
		enum kvt_status status = find_match(found, how->match[i], n, err);

		if (status)
			return status;
		if ((before = match_of(n, how, i, found)))
			return kvt_fail(err, KVT_USAGE,
					"--match is '%.80s' and '%.80s': each request can be paired with only one",
					before, how->match[i]);
		join_requests(n->out, found[SIDE_A], found[SIDE_B]);
	}
	return KVT_OK;
}

static void join_names(const struct naming *n)
{
	for (int64_t i = 0; i < n->of[SIDE_A]->nrequests; i++)
		for (int64_t k = 0; k < n->of[SIDE_B]->nrequests; k++)
			if (n->out->of[SIDE_A][i] < 0 && n->out->of[SIDE_B][k] < 0 &&
			    !strcmp(id_of(n, SIDE_A, i), id_of(n, SIDE_B, k)))
				join_requests(n->out, i, k);
}

/* ---- by name, without a random end -------------------------------------- */

/*
 * How much of "cmpl-123-4fe1" names the request, with the last separator: the end is no
 * counter, and what is before it has a number.  0: nothing can be left away.
 */
static size_t stem_length(const char *id)
{
	size_t all = strlen(id), stem = all, digits = 0, numbers = 0;

	while (stem && !strchr("-_.:/#@", id[stem - 1]))
		stem--;
	for (size_t i = stem; i < all; i++)
		digits += isdigit((unsigned char)id[i]) != 0;
	for (size_t i = 0; i < stem; i++)
		numbers += isdigit((unsigned char)id[i]) != 0;
	if (!numbers || all - stem < 3 || (digits == all - stem && digits < 8))
		return 0;
	return stem;
}

static bool same_stem(const char *a, const char *b)
{
	size_t n = stem_length(a);

	return n && n == stem_length(b) && !memcmp(a, b, n);
}

/* The only one that is left on a side whose name has the stem of 'id'; -1. */
static int64_t only_of_stem(const struct naming *n, int side, const char *id)
{
	int64_t found = -1;

	for (int64_t r = 0; r < n->of[side]->nrequests; r++) {
		if (n->out->of[side][r] >= 0 || !same_stem(id, id_of(n, side, r)))
			continue;
		if (found >= 0)
			return -1;
		found = r;
	}
	return found;
}

static void join_stems(const struct naming *n)
{
	struct diff_partners *out = n->out;

	for (int64_t a = 0; a < n->of[SIDE_A]->nrequests; a++) {
		const char *id = id_of(n, SIDE_A, a);
		int64_t b = out->of[SIDE_A][a] < 0 ? only_of_stem(n, SIDE_B, id) : -1;

		if (b < 0 || only_of_stem(n, SIDE_A, id) != a)
			continue;
		join_requests(out, a, b);
		out->found[out->nfound++] = (struct diff_found){ { a, b }, true, 0, 0 };
	}
}

/* ---- what is left ------------------------------------------------------- */

static int64_t next_left(const struct naming *n, int side, int64_t r)
{
	while (r < n->of[side]->nrequests && n->out->of[side][r] >= 0)
		r++;
	return r;
}

static bool some_left(const struct naming *n)
{
	for (int s = 0; s < NSIDES; s++)
		if (next_left(n, s, 0) == n->of[s]->nrequests)
			return false;
	return true;
}

/* Can a shell be given it as it is? */
static bool is_word(const char *text)
{
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && !strchr("-_.:/#@=+,", *text))
			return false;
	return true;
}

/* In the order in which they are named; the first four. */
static void ask(const struct naming *n)
{
	int64_t a = next_left(n, SIDE_A, 0), b = next_left(n, SIDE_B, 0);
	char *text = n->out->ask;
	size_t room = sizeof(n->out->ask), used = 0;

	for (int i = 0; i < 4; i++) {
		const char *one, *other, *quote;

		if (a == n->of[SIDE_A]->nrequests || b == n->of[SIDE_B]->nrequests)
			break;
		one = id_of(n, SIDE_A, a);
		other = id_of(n, SIDE_B, b);
		quote = is_word(one) && is_word(other) ? "" : "'";
		if (strlen(one) + strlen(other) + 16 > room - used)
			break;
		used += (size_t)snprintf(text + used, room - used, "%s--match=%s%s=%s%s",
					 i ? " " : "", quote, one, other, quote);
		a = next_left(n, SIDE_A, a + 1);
		b = next_left(n, SIDE_B, b + 1);
	}
	if (!used)
		snprintf(text, room, "--match=A=B");
}

enum kvt_status find_partners(struct diff_partners *out,
			      const struct diff_side side[NSIDES],
			      const struct diff_alignment *how, struct kvt_error *err)
{
	struct naming n = { .out = out };
	enum kvt_status status;

	for (int s = 0; s < NSIDES; s++) {
		n.of[s] = kvt_dump_snapshot(side[s].dump);
		out->of[s] = calloc((size_t)n.of[s]->nrequests + 1, sizeof(*out->of[s]));
		if (!out->of[s])
			return kvt_no_memory(err, NULL);
		for (int64_t r = 0; r < n.of[s]->nrequests; r++)
			out->of[s][r] = -1;
	}
	out->found = calloc((size_t)n.of[SIDE_A]->nrequests + 1, sizeof(*out->found));
	if (!out->found)
		return kvt_no_memory(err, NULL);
	if (how->by == BY_BLOCKS || !n.of[SIDE_A]->nrequests || !n.of[SIDE_B]->nrequests)
		return KVT_OK;
	if ((status = join_matches(&n, how, err)))
		return status;
	join_names(&n);
	if (some_left(&n) && how->run && (status = find_alike(out, side, how, err)))
		return status;
	if (some_left(&n))
		join_stems(&n);
	if (some_left(&n))
		ask(&n);
	return KVT_OK;
}
