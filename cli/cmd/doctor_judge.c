/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_judge.c - from what was found to one verdict and the next command
 *
 * What comes first decides: a dump that cannot be read; a difference that a fault with a
 * name explains; what is wrong in one dump alone; any other difference.  Of findings a
 * layout that the data contradicts comes first, then errors, what is strange, warnings.
 */
#include "cli/cmd/doctor.h"
#include "cli/expect/guess.h"
#include "print/out/streams.h"

#include <ctype.h>
#include <string.h>

/* ---- a command that can be typed ---------------------------------------- */

static void append(struct doctor *d, const char *text)
{
	size_t n = strlen(d->next);

	snprintf(d->next + n, sizeof(d->next) - n, "%s", text);
}

/* As a shell takes it. */
static void append_word(struct doctor *d, const char *word)
{
	bool plain = *word != '\0';

	for (const char *c = word; *c; c++)
		plain &= isalnum((unsigned char)*c) || strchr("_./=:,+%@-", *c) != NULL;
	append(d, plain ? " " : " '");
	for (const char *c = word; *c; c++)
		append(d, *c == '\'' ? "'\\''" : (char[]){ *c, '\0' });
	append(d, plain ? "" : "'");
}

/* Does 'text' have this option? */
static bool is_among(const char *word, const char *text)
{
	const char *end = strchr(word, '=');
	char option[64];

	snprintf(option, sizeof(option), "%.*s", end ? (int)(end - word + 1) : 60, word);
	return strstr(text, option) != NULL;
}

/* "kvtool fsck --layout=nhd FILE"; what does not fit is no command. */
static void next_is(struct doctor *d, const char *command,
		    const struct doctor_said *said, const struct patient *p)
{
	d->next[0] = '\0';
	append(d, command);
	for (int i = 0; i < said->n; i++)
		if (!is_among(said->word[i], p->guessed))
			append_word(d, said->word[i]);
	append(d, p->guessed);
	append_word(d, p->name);
	if (!strcmp(p->name, stream_in_path))
		d->next[0] = '\0';	/* what came through a pipe is gone */
	if (strlen(d->next) + 1 >= sizeof(d->next))
		d->next[0] = '\0';
}

static void next_of_both(struct doctor *d, const char *command,
			 const struct doctor_said *said)
{
	const struct patient *b = &d->patient[SIDE_B];

	next_is(d, command, said, &d->patient[SIDE_A]);
	if (!d->next[0])
		return;
	append_word(d, b->name);
	if (strlen(d->next) + 1 >= sizeof(d->next) || b->guessed[0] ||
	    !strcmp(b->name, stream_in_path))
		d->next[0] = '\0';
}

/* ---- one dump ----------------------------------------------------------- */

static const struct kvt_finding *worst_finding(const struct kvt_findings *r,
					       enum kvt_severity severity)
{
	for (int i = 0; i < r->nfindings; i++)
		if (kvt_rule_at(r->finding[i].rule)->severity == severity)
			return &r->finding[i];
	return NULL;
}

static const struct kvt_strange *worst_strange(const struct patient *p)
{
	for (int g = 0; p->strange && g < p->facts->snapshot->ngroups; g++)
		for (int i = 0; i < p->strange[g].n; i++)
			if (p->strange[g].found[i].sure > KVT_PERHAPS)
				return &p->strange[g].found[i];
	return NULL;
}

/* What shows a finding: numbers at its coordinate, tables, or all findings. */
static void next_of_finding(struct doctor *d, const struct doctor_said *said,
			    const struct patient *p, const struct kvt_finding *f)
{
	const char *rule = kvt_rule_at(f->rule)->name;
	char command[256];

	if (strstr(rule, ".nonfinite") && f->at[0]) {
		snprintf(command, sizeof(command), "kvtool describe --peek=%s", f->at);
		next_is(d, command, said, p);
	} else if (!strncmp(rule, "table.", 6) || !strncmp(rule, "valid.", 6)) {
		next_is(d, "kvtool describe --block-tables", said, p);
	} else if (strstr(rule, ".zero")) {
		next_is(d, "kvtool describe --stats", said, p);
	} else {
		next_is(d, "kvtool fsck", said, p);
	}
}

static void tell_finding(struct doctor *d, const struct doctor_said *said,
			 const struct patient *p, const struct kvt_finding *f)
{
	snprintf(d->sentence, sizeof(d->sentence), "%s: something is wrong: %s%s%s",
		 p->name, f->at, *f->at ? ": " : "", f->text);
	next_of_finding(d, said, p, f);
}

/* The command undoes it, in another file. */
static void tell_pages(struct doctor *d, const struct doctor_said *said,
		       const struct patient *p, const struct kvt_guess_pages *pages)
{
	const struct kvt_snapshot *s = p->facts->snapshot;
	const char *dot = strrchr(p->name, '.');
	char command[256], mended[64];

	snprintf(d->sentence, sizeof(d->sentence),
		 "%s: the layout is not what it is said to be, %s: by its data it is %s%s%s",
		 p->name, kvt_layout_called(&pages->said).s,
		 pages->is_layout ? kvt_layout_called(&pages->layout).s : "",
		 pages->is_layout ? ", " : "", pages->text);
	snprintf(command, sizeof(command), "%s%s%.60s", guess_undo(pages).s,
		 s->ngroups > 1 ? " --group=" : "",
		 s->ngroups > 1 ? s->group[pages - p->pages].id : "");
	next_is(d, command, said, p);
	snprintf(mended, sizeof(mended), "mended%s",
		 dot && !strchr(dot, '/') && strlen(dot) < 16 ? dot : ".h5");
	if (d->next[0])
		append_word(d, mended);
}

/* False: nothing is wrong with it alone. */
static bool judge_alone(struct doctor *d, const struct doctor_said *said,
			const struct patient *p)
{
	const struct kvt_finding *error = worst_finding(&p->check, KVT_ERROR);
	const struct kvt_finding *warning = worst_finding(&p->check, KVT_WARNING);
	const struct kvt_strange *strange = worst_strange(p);
	const struct kvt_guess_pages *pages = patient_pages(p);

	/* first what may be why there are errors */
	if (pages) {
		tell_pages(d, said, p, pages);
	} else if (p->contradicted) {
		snprintf(d->sentence, sizeof(d->sentence),
			 "%s: the layout is not what was said: by its data it is%s",
			 p->name, p->guessed);
		next_is(d, "kvtool describe", said, p);
	} else if (error) {
		tell_finding(d, said, p, error);
	} else if (strange) {
		/* what comes behind a colon is why, and is told below */
		snprintf(d->sentence, sizeof(d->sentence), "%s: %s: %.*s", p->name,
			 strange->sure == KVT_CERTAIN ? "something is wrong" :
			 "something is wrong, likely",
			 (int)strcspn(strange->text, ":"), strange->text);
		next_is(d, strange->kind == KVT_STRANGE_TWICE ?
			"kvtool describe --block-tables" : "kvtool describe --stats",
			said, p);
	} else if (warning) {
		tell_finding(d, said, p, warning);
	} else {
		return false;
	}
	return true;
}

static void tell_unreadable(struct doctor *d, const struct doctor_said *said,
			    const struct patient *p)
{
	snprintf(d->sentence, sizeof(d->sentence), "%s cannot be read: %s", p->name,
		 kvt_without_path(p->refused.text, p->name));
	next_is(d, strstr(p->refused.text, "--layout") ? "kvtool guess" : "kvtool fsck",
		said, p);
}

/* ---- two dumps ---------------------------------------------------------- */

static const struct diff_result *first_difference(const struct diff *diff)
{
	for (int i = 0; i < diff->pairs.n; i++)
		if (diff->result[i].differs)
			return &diff->result[i];
	return NULL;
}

struct where {
	char s[256];
};

static void add_range(struct where *out, const char *word, int64_t first, int64_t last)
{
	size_t n = strlen(out->s);

	if (first == last)
		snprintf(out->s + n, sizeof(out->s) - n, "%s %lld", word, LL(first));
	else
		snprintf(out->s + n, sizeof(out->s) - n, "%ss %lld-%lld", word,
			 LL(first), LL(last));
}

/* "heads 2-3 of layers 0-4": the smallest ranges that hold all that differs. */
static struct where where_of(const struct diff_result *r)
{
	int64_t heads = r->pair->nheads, layers = r->pair->nlayers;
	int64_t low[2] = { INT64_MAX, INT64_MAX }, high[2] = { -1, -1 };
	struct where out = { "" };

	for (int64_t i = 0; r->measured && i < layers * heads; i++) {
		const int64_t at[2] = { i / heads, i % heads };

		for (int a = 0; a < 2 && r->by_head[i].bad; a++) {
			low[a] = at[a] < low[a] ? at[a] : low[a];
			high[a] = at[a] > high[a] ? at[a] : high[a];
		}
	}
	if (high[0] < 0)
		return out;
	if (high[1] - low[1] + 1 < heads) {
		add_range(&out, " in head", kvt_diff_head(r, low[1]),
			  kvt_diff_head(r, high[1]));
		add_range(&out, " of layer", kvt_diff_layer(r, low[0]),
			  kvt_diff_layer(r, high[0]));
	} else {
		add_range(&out, " in layer", kvt_diff_layer(r, low[0]),
			  kvt_diff_layer(r, high[0]));
	}
	return out;
}

static void say_fault(char *out, size_t room, const struct diff_result *r,
		      const struct kvt_hypothesis *h)
{
	const char *args = r->diagnosis->args[h - r->diagnosis->found.hypothesis].s;

	snprintf(out, room, "%s%s%s: %s", h->fault->name, *args ? " " : "", args,
		 h->fault->summary);
}

/* Where the first of them is, which tells what was cut at a token or a block. */
static void say_first(char *out, size_t room, const struct diff_result *r)
{
	struct diff_coordinates c;

	snprintf(out, room, "no known fault explains it");
	if (!r->measured || !r->first.set)
		return;
	c = kvt_diff_locate(r->pair, &r->first);
	if (c.request)
		snprintf(out, room,
			 "no known fault explains it; the first is %s %lld of request %.60s",
			 c.recurrent ? "entry" : "token", LL(c.token), c.request);
	else
		snprintf(out, room,
			 "no known fault explains it; the first is in block %lld, slot %lld",
			 LL(c.block[SIDE_B]), LL(c.slot[SIDE_B]));
}

static void say_cause(char *out, size_t room, const struct diff_result *r)
{
	const struct kvt_hypothesis *h =
		r->diagnosis ? r->diagnosis->found.decided : NULL;
	double apart = kvt_diff_rel_l2(&r->sums);

	if (h)
		say_fault(out, room, r, h);
	else if (r->measured && apart < 0.02 && !r->sums.lost)
		snprintf(out, room,
			 "so little (rel-l2 %.2g) as other kernels or another rounding leave, which no fault explains",
			 apart);
	else
		say_first(out, room, r);
}

static void judge_difference(struct doctor *d, const struct doctor_said *said,
			     const struct diff_result *r)
{
	char cause[640];

	say_cause(cause, sizeof(cause), r);
	snprintf(d->sentence, sizeof(d->sentence), "%s differs from %s%s%s%s: %s",
		 d->patient[SIDE_B].name, d->patient[SIDE_A].name, where_of(r).s,
		 d->diff->pairs.n > 1 ? " of " : "",
		 d->diff->pairs.n > 1 ? r->pair->id : "", cause);
	next_of_both(d, d->diff->common ? "kvtool diff --common --map" :
		     "kvtool diff --map", said);
}

static void judge_both(struct doctor *d, const struct doctor_said *said)
{
	const struct diff_result *r = d->compared ? first_difference(d->diff) : NULL;
	const struct diff_unmatched *only =
		d->compared ? &d->diff->pairs.unmatched : NULL;

	if (!d->compared) {
		d->verdict = DOCTOR_APART;
		snprintf(d->sentence, sizeof(d->sentence),
			 "%s and %s cannot be compared: %s", d->patient[SIDE_A].name,
			 d->patient[SIDE_B].name, d->apart.text);
		next_of_both(d, "kvtool describe", said);
	} else if (r) {
		d->verdict = DOCTOR_DIFFERS;
		judge_difference(d, said, r);
	} else if (only->n) {
		d->verdict = DOCTOR_DIFFERS;
		snprintf(d->sentence, sizeof(d->sentence),
			 "what both have is the same, but only %s has %s",
			 d->patient[only->item[0].side].name, only->item[0].text);
		next_of_both(d, "kvtool diff --common", said);
	} else {
		d->verdict = DOCTOR_SAME;
		snprintf(d->sentence, sizeof(d->sentence),
			 "%s and %s hold the same, and nothing wrong was found",
			 d->patient[SIDE_A].name, d->patient[SIDE_B].name);
	}
}

/* Does a fault with a name make the one of the other? */
static bool is_explained(const struct doctor *d)
{
	const struct diff_result *r = d->compared ? first_difference(d->diff) : NULL;

	return r && r->diagnosis && r->diagnosis->found.decided;
}

/* ---- the verdict -------------------------------------------------------- */

static enum kvt_status judge(struct doctor *d, const struct doctor_said *said)
{
	for (int i = 0; i < d->npatients; i++)
		if (!d->patient[i].dump) {
			d->verdict = DOCTOR_UNREADABLE;
			tell_unreadable(d, said, &d->patient[i]);
			return d->patient[i].status;
		}
	if (is_explained(d)) {
		judge_both(d, said);
		return KVT_MISMATCH;
	}
	for (int i = 0; i < d->npatients; i++)
		if (judge_alone(d, said, &d->patient[i])) {
			d->verdict = DOCTOR_WRONG;
			return KVT_MISMATCH;
		}
	if (d->npatients < 2) {
		d->verdict = DOCTOR_SOUND;
		snprintf(d->sentence, sizeof(d->sentence),
			 "%s: nothing wrong was found; a dump to compare with would show more",
			 d->patient[SIDE_A].name);
		return KVT_OK;
	}
	judge_both(d, said);
	return d->verdict == DOCTOR_APART ? KVT_BAD_INPUT :
	       d->verdict == DOCTOR_SAME ? KVT_OK : KVT_MISMATCH;
}

enum kvt_status doctor_judge(struct doctor *d, const struct doctor_said *said)
{
	enum kvt_status status = judge(d, said);

	for (int i = 0; i < d->npatients; i++)
		status = worse(status, d->patient[i].status);
	if (said->of_sides && strncmp(d->next, "kvtool diff", 11))
		d->next[0] = '\0';
	return status;
}
