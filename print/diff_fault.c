/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_fault.c - the known fault that makes B of A, for people
 *
 * One line: the fault with its arguments, what it is limited to, what lies where, and
 * how much of the difference it explains; or where to look next, if there is none.
 */
#include "print/diff.h"

static const char *request_name(const struct diff_result *r, int64_t i)
{
	return kvt_dump_snapshot(r->pair->side[SIDE_B]->dump)->request[i].id;
}

/* ---- limits ------------------------------------------------------------- */

static int64_t count(const uint8_t *struck, int64_t n)
{
	int64_t sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += struck[i];
	return sum;
}

/* "heads 2, 5-7" */
static void print_struck(FILE *f, const struct diff_result *r, const char *what,
			 const uint8_t *struck, int64_t n,
			 int64_t (*id)(const struct diff_result *r, int64_t i))
{
	int ranges = 0;

	fplainf(f, " %s%s", what, plural(count(struck, n)));

	for (int64_t i = 0, end; i < n; i = end) {
		end = i + 1;
		if (!struck[i])
			continue;
		while (end < n && struck[end])
			end++;
		if (++ranges > 4) {
			fplainf(f, ", ...");
			return;
		}
		fplainf(f, ranges > 1 ? ", %lld" : " %lld", LL(id(r, i)));
		if (end - i > 1)
			fplainf(f, "-%lld", LL(id(r, end - 1)));
	}
}

static void print_requests(FILE *f, const struct diff_result *r, const uint8_t *struck)
{
	int64_t n = kvt_dump_snapshot(r->pair->side[SIDE_B]->dump)->nrequests;
	int named = 0;

	fplainf(f, " request%s", plural(count(struck, n)));
	for (int64_t i = 0; i < n && named < 4; i++)
		if (struck[i])
			fplainf(f, named++ ? ", %s" : " %s", request_name(r, i));
	if (named == 4)
		fplainf(f, ", ...");
}

/* Are they all heads of one rank, if every rank has as many? */
static void print_rank(FILE *f, const uint8_t *struck, int64_t n)
{
	int64_t first = 0, each = count(struck, n);

	while (!struck[first])
		first++;
	if (n % each == 0 && first % each == 0 && count(struck + first, each) == each)
		fplainf(f, " (%s of rank %lld of %lld)", each > 1 ? "those" : "that",
		       LL(first / each), LL(n / each));
}

static void print_limits(FILE *f, const struct diff_result *r)
{
	const struct diff_diagnosis *d = r->diagnosis;
	const char *between = " in";

	if (d->only_layers) {
		fplainf(f, "%s", between);
		print_struck(f, r, "layer", d->only_layers, r->pair->nlayers,
			     kvt_diff_layer);
		between = ",";
	}
	if (d->only_heads) {
		fplainf(f, "%s", between);
		print_struck(f, r, "head", d->only_heads, r->pair->nheads, kvt_diff_head);
		print_rank(f, d->only_heads, r->pair->nheads);
		between = ",";
	}
	if (d->only_kv) {
		fplainf(f, "%s %s only", between, d->only_kv[0] ? "keys" : "values");
		between = ",";
	}
	if (d->only_requests) {
		fplainf(f, "%s", between);
		print_requests(f, r, d->only_requests);
	}
}

/* ---- the line ----------------------------------------------------------- */

/* The axis along which the difference ends tells most. */
static void print_next_step(FILE *f, const struct diff_result *r)
{
	const struct diff_diagnosis *d = r->diagnosis;
	const struct diff_pair *p = r->pair;
	const int64_t *a = p->group[SIDE_A]->shape.n, *b = p->group[SIDE_B]->shape.n;
	enum diff_axis rows = p->by_tokens ? DIFF_TOKEN : DIFF_BLOCK;
	bool known, all_known;
	bool dims = diff_only_some(r, DIFF_DIM, &known);
	bool some = diff_only_some(r, rows, &all_known);

	known = known && all_known;
	fplainf(f, "none: no known fault explains them (kvtool help faults); they are");
	if (d->only_layers || d->only_heads || d->only_kv || d->only_requests)
		print_limits(f, r);
	else
		fplainf(f, !known ? " where memory does not suffice to say" :
			dims ? " in some dims" : !some ? " everywhere" :
			p->by_tokens ? " in some tokens" : " in some blocks");
	fplainf(f, ", see --table=%s", d->only_layers ? "layer" : d->only_heads ? "head" :
		dims ? "dim" : d->only_kv ? "kv" :
		some || p->by_tokens ? kvt_diff_axis_name(rows) : "layer");
	if (!p->recurrent && a[KVT_AXIS_S] != b[KVT_AXIS_S])
		fplainf(f,
			"; blocks of %lld and %lld slots hide moves: reblock one first",
		       LL(a[KVT_AXIS_S]), LL(b[KVT_AXIS_S]));
}

static void print_hypotheses(FILE *f, const struct diff_diagnosis *d)
{
	const char *between = "";

	for (int i = 0; i < d->found.nhypotheses; i++) {
		const struct kvt_hypothesis *h = &d->found.hypothesis[i];

		if (h->verdict < KVT_EXPLAINS)
			continue;
		fplainf(f, "%s%s", between, h->fault->name);
		if (d->args[i].s[0])
			fplainf(f, " %s", d->args[i].s);
		between = ", ";
	}
}

/* "100 % of 1024 elements" */
static void print_share(FILE *f, const struct diff_diagnosis *d)
{
	const struct kvt_hypothesis *h = d->found.decided;
	int64_t n = d->found.difference.count;

	if (h && h->explained + h->unknown < n)
		fplainf(f, "%.1f %% of ", 100.0 * (double)h->explained / (double)n);
	else if (d->found.nexplain)
		fplainf(f, "100 %% of ");
	fplainf(f, "%lld element%s", LL(n), plural(n));
	if (h && h->verdict == KVT_EXPLAINS_PART)
		fplainf(f, ", more differs");
}

void diff_fault_words(FILE *f, const struct diff_result *r)
{
	const struct diff_diagnosis *d = r->diagnosis;

	/* nothing differs by more than values of the two types must */
	if (!d->found.difference.count) {
		fplainf(f, "none: rounding alone can cause these differences");
	} else if (!d->found.nexplain && !d->found.decided) {
		print_next_step(f, r);
	} else {
		if (!d->found.decided)
			fplainf(f, "several are possible: ");
		print_hypotheses(f, d);
		print_limits(f, r);
	}
	if (d->found.decided && d->says.s[0])
		fplainf(f, ": %s", d->says.s);
	if (d->found.decided)
		fplainf(f, ": %s", d->found.decided->fault->summary);
	fplainf(f, " (");
	print_share(f, d);
	fplainf(f, "; %lld layer%s x %lld block%s examined)", LL(d->layers),
		plural(d->layers), LL(d->blocks), plural(d->blocks));
}

void diff_text_fault(const struct diff_result *r)
{
	plainf("  fault   ");
	diff_fault_words(stdout, r);
	plainf("\n");
}
