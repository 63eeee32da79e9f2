/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep.c - a sweep as a table, CSV, JSON and in one sentence
 *
 *	layout            block      tp scope            ops      bytes       time ..
 *	blshc                16       1 rfc              128    256 MiB    5.93 ms ..
 *
 *	blshc is fastest: 128 operations, most of which end at a block. In nhd, hnd, ...
 *
 * Rows come ranked, the fastest first.  The sentence says why the first is, then by each
 * cause in the order of enum kvt_sweep_cause which layouts lose by it: a row that is
 * refused, staged or as fast as the first loses nothing.  A layout is named once for a
 * cause, and not for where its runs end (placement, scope) if an earlier cause has it:
 * what breaks inside a block comes first.
 */
#include "sim/print/transfer.h"

#include <inttypes.h>
#include <string.h>

#include "sim/print/link.h"

enum { SENTENCE = 2048 };

static const char *cause_name(enum kvt_sweep_cause cause)
{
	static const char *const name[] = {
		"tp", "block_size", "layout", "placement", "scope", "none",
	};

	return name[cause];
}

/* ---- what the rows say together ------------------------------------------ */

struct sentence {
	char *text;
	size_t room, n;
};

static void say(struct sentence *s, const char *words)
{
	size_t len = strlen(words);

	if (len >= s->room - s->n)
		len = s->room - s->n - 1;
	memcpy(s->text + s->n, words, len);
	s->text[s->n += len] = '\0';
}

static void name_of(char *out, size_t room, const struct kvt_sweep_row *r)
{
	if (strcmp(r->layout[0], r->layout[1]))
		snprintf(out, room, "%s to %s", r->layout[0], r->layout[1]);
	else
		snprintf(out, room, "%s", r->layout[0]);
}

static bool same_layouts(const struct kvt_sweep_row *a, const struct kvt_sweep_row *b)
{
	return !strcmp(a->layout[0], b->layout[0]) && !strcmp(a->layout[1], b->layout[1]);
}

static bool loses(const struct kvt_sweep *sweep, int64_t i, enum kvt_sweep_cause cause)
{
	const struct kvt_sweep_row *r = &sweep->row[i];

	return r->why.cause == cause && !r->stage && !r->refused[0] &&
	       r->ns != sweep->row[0].ns;
}

/* What is broken inside a block has been named; where it ends is no news then. */
static bool named_before(const struct kvt_sweep *sweep, int64_t i,
			 enum kvt_sweep_cause cause)
{
	for (int64_t j = 0; j < sweep->n; j++) {
		if (!same_layouts(&sweep->row[j], &sweep->row[i]))
			continue;
		if (j < i && loses(sweep, j, cause))
			return true;
		for (int c = 0; cause >= KVT_SWEEP_PLACE && c < (int)cause; c++)
			if (loses(sweep, j, (enum kvt_sweep_cause)c))
				return true;
	}
	return false;
}

/* The first that loses so and was not named before; from i on, or -1. */
static int64_t next_loser(const struct kvt_sweep *sweep, enum kvt_sweep_cause cause,
			  int64_t i)
{
	for (; i < sweep->n; i++)
		if (loses(sweep, i, cause) && !named_before(sweep, i, cause))
			return i;
	return -1;
}

/* The names of the losers with this cause, each once. */
static void say_losers(struct sentence *s, const struct kvt_sweep *sweep,
		       enum kvt_sweep_cause cause)
{
	int64_t i = next_loser(sweep, cause, 0);
	const char *before = "";

	for (; i >= 0; i = next_loser(sweep, cause, i + 1)) {
		char name[160];

		name_of(name, sizeof(name), &sweep->row[i]);
		say(s, before);
		say(s, name);
		before = ", ";
	}
}

static void say_cause(struct sentence *s, const struct kvt_sweep *sweep,
		      enum kvt_sweep_cause cause)
{
	static const char *const start[] = {
		"different TP breaks ", "different block sizes break ",
		"different orders of axes break ", "in ", "in ", "",
	};
	int64_t first = next_loser(sweep, cause, 0);
	const struct kvt_sweep_break *b;
	char words[256] = "";

	if (first < 0 || cause == KVT_SWEEP_WHOLE)
		return;
	b = &sweep->row[first].why;
	say(s, s->n ? "; " : "");
	say(s, start[cause]);
	say_losers(s, sweep, cause);
	if (cause >= KVT_SWEEP_PLACE)
		snprintf(words, sizeof(words), " a run ends with each %s",
			 kvt_axis_name(b->axis));
	else if (cause == KVT_SWEEP_TP)
		snprintf(words, sizeof(words),
			 " (a run ends at a %s: %lld of %lld %s of a %s rank move)",
			 kvt_axis_name(b->axis), LL(b->part),
			 LL(b->of), b->channels ? "channels" : "heads",
			 b->at_source ? "source" : "destination");
	else if (cause == KVT_SWEEP_BLOCKS)
		snprintf(words, sizeof(words),
			 " (a run ends at a %s: %lld of %lld slots of a %s block go together)",
			 kvt_axis_name(b->axis),
			 LL(b->part), LL(b->of),
			 b->at_source ? "source" : "destination");
	else
		snprintf(words, sizeof(words), " (a run ends at a %s)",
			 kvt_axis_name(b->axis));
	say(s, words);
}

/* Whether all rows whose two sides differ in both ways are broken inside. */
static bool nothing_survives(const struct kvt_sweep *sweep)
{
	int64_t both = 0;

	for (int64_t i = 0; i < sweep->n; i++) {
		const struct kvt_sweep_row *r = &sweep->row[i];

		if (r->tp[0] == r->tp[1] || r->block_size[0] == r->block_size[1] ||
		    r->stage || r->refused[0])
			continue;
		if (r->why.cause > KVT_SWEEP_ORDER)
			return false;
		both++;
	}
	return both > 0;
}

/* Why the first row is first; nothing if no other is slower. */
static void say_winner(struct sentence *s, const struct kvt_sweep *sweep)
{
	const struct kvt_sweep_row *best = &sweep->row[0];
	bool slower = false;
	char name[160], words[1024];

	for (int64_t i = 1; i < sweep->n; i++)
		slower |= sweep->row[i].refused[0] || sweep->row[i].ns > best->ns;
	if (!slower || best->refused[0])
		return;
	name_of(name, sizeof(name), best);
	snprintf(words, sizeof(words), "%s%s is fastest: %s operation%s, ", name,
		 best->stage ? " through buffers" : "", human_count(best->ops).s,
		 plural(best->ops));
	say(s, words);
	if (best->stage)
		snprintf(words, sizeof(words), "as large as the buffers");
	else if (best->why.cause == KVT_SWEEP_WHOLE)
		snprintf(words, sizeof(words), "one for each pair of ranks");
	else
		snprintf(words, sizeof(words), "most of which end at a %s",
			 kvt_axis_name(best->why.axis));
	say(s, words);
}

/* "Different TP breaks nhd and blshc ..." */
static void put_sentence(char *out, size_t room, const struct kvt_sweep *sweep)
{
	char why[1536] = "";
	struct sentence s = { out, room, 0 }, losers = { why, sizeof(why), 0 };

	out[0] = '\0';
	say_winner(&s, sweep);
	for (int c = 0; c < KVT_SWEEP_NCAUSES; c++)
		say_cause(&losers, sweep, (enum kvt_sweep_cause)c);
	if (nothing_survives(sweep))
		say(&losers, "; where both differ no layout here keeps its runs whole");
	if (sweep->row[0].refused[0])
		say(&losers, "all are refused");
	else if (!losers.n && !s.n)
		say(&losers, sweep->n > 1 ? "all are equally fast" :
					    "there is nothing to compare");
	if (why[0] >= 'a' && why[0] <= 'z')
		why[0] = (char)(why[0] - 'a' + 'A');
	say(&s, s.n && losers.n ? ". " : "");
	say(&s, why);
	say(&s, ".");
}

/* ---- text and CSV -------------------------------------------------------- */

/* "16", or "16:64" where the sides differ. */
static struct human both(int64_t src, int64_t dst)
{
	struct human out;

	if (src == dst)
		snprintf(out.s, sizeof(out.s), "%" PRId64, src);
	else
		snprintf(out.s, sizeof(out.s), "%" PRId64 ":%" PRId64, src, dst);
	return out;
}

static struct human layouts(const struct kvt_sweep_row *r)
{
	struct human out;

	if (strcmp(r->layout[0], r->layout[1]))
		snprintf(out.s, sizeof(out.s), "%s:%s", r->layout[0], r->layout[1]);
	else
		snprintf(out.s, sizeof(out.s), "%s", r->layout[0]);
	return out;
}

static double times_best(const struct kvt_sweep *s, const struct kvt_sweep_row *r)
{
	return s->row[0].ns ? (double)r->ns / (double)s->row[0].ns : 1;
}

/* "rfc", "nixl", "rfc, sge 4", "staged" */
static struct human stack(const struct kvt_sweep_row *r)
{
	struct human out;

	if (r->stage)
		snprintf(out.s, sizeof(out.s), "staged");
	else if (r->sge > 1)
		snprintf(out.s, sizeof(out.s), "%s, sge %" PRId64,
			 kvt_stack_name(r->stack), r->sge);
	else
		snprintf(out.s, sizeof(out.s), "%s", kvt_stack_name(r->stack));
	return out;
}

static void print_row(const struct kvt_sweep *s, const struct kvt_sweep_row *r, int width)
{
	plainf("%-15s %7s %7s %-*s ", layouts(r).s,
	       both(r->block_size[0], r->block_size[1]).s, both(r->tp[0], r->tp[1]).s,
	       width, stack(r).s);
	if (r->refused[0])
		plainf("%12s %10s %10s %8s   %s\n", "-", "-", "-", "-", r->refused);
	else
		plainf("%12" PRId64 " %10s %10s %8.3g %s %s\n", r->ops,
		       kvt_size_string(r->bytes).s, human_time(r->ns).s, times_best(s, r),
		       r->pareto ? "*" : " ", r->stage ? "buffer" :
		       r->why.ops ? kvt_axis_name(r->why.axis) : "nothing");
}

/* What the columns are. */
static void print_legend(void)
{
	plainf("\nops, bytes: operations and bytes, sums over all ranks\n"
	       "scope: what an operation may cross, or the stack that posts it (--scopes=list)\n"
	       "x best: how many times the time of the fastest line\n"
	       "*: no line has fewer ops, less time or fewer copies without more of another\n"
	       "ends at: where most operations end\n");
}

void sweep_text(const struct kvt_sweep *s, struct assumed assumed)
{
	char words[SENTENCE];
	int width = 7;

	if (s->model)
		plainf("%s: ", s->model);
	plainf("%" PRId64 " token%s over link %s%s, figures %s\n\n", s->tokens,
	       plural(s->tokens), s->link->name, assumed.link ? " (default)" : "",
	       kvt_quality_name(s->link->quality));
	for (int64_t i = 0; i < s->n; i++)
		if ((int)strlen(stack(&s->row[i]).s) > width)
			width = (int)strlen(stack(&s->row[i]).s);
	plainf("%-15s %7s %7s %-*s %12s %10s %10s %8s   %s\n", "layout", "block", "tp",
	       width, "scope", "ops", "bytes", "time", "x best", "ends at");
	for (int64_t i = 0; i < s->n; i++)
		print_row(s, &s->row[i], width);
	put_sentence(words, sizeof(words), s);
	plainf("\n%s\n", words);
	print_legend();
}

void sweep_csv(const struct kvt_sweep *s)
{
	puts("src_layout,dst_layout,src_block_size,dst_block_size,src_tp,dst_tp,scope,"
	     "stage_bytes,ops,bytes,copied_bytes,time_ns,pareto,cause,axis,sge,refused");
	for (int64_t i = 0; i < s->n; i++) {
		const struct kvt_sweep_row *r = &s->row[i];

		plainf("%s,%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%s,%" PRId64
		       ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%d,%s,%s,%" PRId64 ",\"%s\"\n",
		       r->layout[0], r->layout[1], r->block_size[0], r->block_size[1],
		       r->tp[0], r->tp[1], kvt_stack_name(r->stack), r->stage, r->ops,
		       r->bytes, r->copied, r->ns, r->pareto,
		       cause_name(r->why.cause),
		       r->why.ops ? kvt_axis_name(r->why.axis) : "", r->sge, r->refused);
	}
}

/* ---- JSON ---------------------------------------------------------------- */

void sweep_put_plan(struct json_out *out, json_t *o, const struct kvt_sweep_row *r)
{
	json_put_text(out, o, "src_layout", r->layout[0]);
	json_put_text(out, o, "dst_layout", r->layout[1]);
	json_put_int(out, o, "src_block_size", r->block_size[0]);
	json_put_int(out, o, "dst_block_size", r->block_size[1]);
	json_put_int(out, o, "src_tp", r->tp[0]);
	json_put_int(out, o, "dst_tp", r->tp[1]);
	json_put_text(out, o, "scope", kvt_stack_name(r->stack));
	json_put_int(out, o, "sge", r->sge);
	json_put_int(out, o, "stage_bytes", r->stage);
	json_put_int(out, o, "ops", r->ops);
	json_put_int(out, o, "bytes", r->bytes);
	json_put_int(out, o, "copied_bytes", r->copied);
	json_put_int(out, o, "time_ns", r->ns);
}

static void put_row(struct json_out *out, json_t *list, const struct kvt_sweep *s,
		    const struct kvt_sweep_row *r)
{
	json_t *o = json_append_object(out, list), *why;

	sweep_put_plan(out, o, r);
	json_put_real(out, o, "of_best", times_best(s, r));
	json_put_bool(out, o, "pareto", r->pareto);
	json_put_text(out, o, "refused", r->refused[0] ? r->refused : NULL);
	why = json_put_object(out, o, "most_end");
	json_put_text(out, why, "cause", cause_name(r->why.cause));
	json_put_text(out, why, "axis", r->why.ops ? kvt_axis_name(r->why.axis) : NULL);
	json_put_int(out, why, "ops", r->why.ops);
}

enum kvt_status sweep_json(const struct kvt_sweep *s, struct assumed assumed,
			   struct kvt_error *err)
{
	struct json_out out;
	char words[SENTENCE];
	json_t *list;

	json_start(&out);
	json_put_text(&out, out.root, "model", s->model);
	json_put_int(&out, out.root, "tokens", s->tokens);
	link_put(&out, json_put_object(&out, out.root, "link"), s->link);
	assumed_put(&out, out.root, assumed);
	list = json_put_array(&out, out.root, "rows");
	for (int64_t i = 0; i < s->n; i++)
		put_row(&out, list, s, &s->row[i]);
	put_sentence(words, sizeof(words), s);
	json_put_text(&out, out.root, "sentence", words);
	return json_print(&out, false, err);
}
