/* SPDX-License-Identifier: Apache-2.0 */
/*
 * print.c - what a recording of cache events says, for people
 *
 *	events: 2 batches, 2 events of 2 blocks, 1.000 s
 *	where    stored   removed      most    at end  block
 *	GPU           2         0         2         2      2
 *	blocks over time
 *	  seconds       0.000    1.000    1.000
 *	  GPU               0        2        2
 *	event 2 of batch number 1: removed-unstored: 0000000000000009: removed from ...
 *	events: 2 problems: 1 removed-unstored, 1 parent-unknown
 *
 * Problems come as they are found: event by event, then hashes, then files; notes behind
 * them.  Then prompts: how many blocks are there at the end and over time, and why the
 * first missing one is not.
 */
#include "cli/why/events.h"

#include <string.h>

enum { COLUMNS = 9 };			/* of the table over time */

struct human why_id(const struct kvt_block_id *id)
{
	struct human text = { "" };

	for (int i = 0; i < id->nbytes; i++)
		snprintf(text.s + 2 * i, 3, "%02x", id->bytes[i]);
	return text;
}

double why_hit_rate(const struct why_replay *r, const struct kvt_why_watched *p,
		    const struct kvt_why_seen_in *in)
{
	const struct kvt_cache_totals *t = kvt_cache_replay_totals(r->replay);

	return t->end > t->begin && p->chain.nblocks ?
	       in->area / (t->end - t->begin) / (double)p->chain.nblocks : -1;
}

static void print_head(const struct why_replay *r)
{
	const struct kvt_cache_totals *t = kvt_cache_replay_totals(r->replay);

	plainf("%s: %lld batch%s, %lld event%s of %lld block%s", r->w->events,
	       LL(t->batches), t->batches == 1 ? "" : "es", LL(t->events),
	       plural(t->events), LL(t->blocks), plural(t->blocks));
	if (t->end > t->begin)
		plainf(", %.3f s", t->end - t->begin);
	plainf("\n");
	if (t->late)
		plainf("batches before the first are missing, and what they stored\n");
	if (t->unnumbered)
		plainf("batches have no numbers: lost ones are not noticed\n");
}

static void print_places(const struct why_replay *r)
{
	const struct kvt_cache_place *p;
	int width = 5;

	for (int64_t i = 0; kvt_cache_replay_place(r->replay, i); i++) {
		int n = (int)strlen(kvt_cache_place_text(r->replay, i).s);

		width = n > width ? n : width;
	}
	plainf("%-*s  %8s  %8s  %8s  %8s  %5s\n", width, "where", "stored", "removed",
	       "most", "at end", "block");
	for (int64_t i = 0; (p = kvt_cache_replay_place(r->replay, i)); i++)
		plainf("%-*s  %8lld  %8lld  %8lld  %8lld  %5lld\n", width,
		       kvt_cache_place_text(r->replay, i).s, LL(p->stored),
		       LL(p->removed), LL(p->peak), LL(p->resident), LL(p->block_size));
}

static void print_samples(const struct why_replay *r)
{
	const struct kvt_cache_totals *t = kvt_cache_replay_totals(r->replay);
	const struct kvt_cache_sample *s[COLUMNS];
	int n = kvt_cache_replay_samples(s, COLUMNS, r->replay);
	bool timed = t->end > t->begin;

	if (n < 3)
		return;
	plainf("blocks over time\n  %-10s", timed ? "seconds" : "batch");
	for (int i = 0; i < n; i++)
		if (timed)
			plainf("  %7.3f", s[i]->time - t->begin);
		else
			plainf("  %7lld", LL(s[i]->batch));
	for (int m = 0; m < t->nmedia; m++) {
		plainf("\n  %-10.10s", *t->medium[m] ? t->medium[m] : "-");
		for (int i = 0; i < n; i++)
			plainf("  %7lld", LL(s[i]->resident[m]));
	}
	plainf("\n");
}

static void print_finding(const struct why_finding *f)
{
	plainf("%sevent %lld", f->f.what >= KVT_CACHE_NPROBLEMS ? "note: " : "",
	       LL(f->f.event));
	if (f->f.sequence >= 0)
		plainf(" of batch number %lld", LL(f->f.sequence));
	plainf(": %s: ", kvt_cache_problem_name(f->f.what));
	if (f->id.nbytes)
		plainf("%.32s: ", why_id(&f->id).s);
	plainf("%s\n", f->text);
}

static void print_findings(const struct why_replay *r)
{
	const struct kvt_cache_totals *t = kvt_cache_replay_totals(r->replay);
	int64_t left[KVT_CACHE_NFINDINGS];

	memcpy(left, t->found, sizeof(left));
	for (int notes = 0; notes < 2; notes++)
		for (size_t i = 0; i < r->nfindings; i++) {
			enum kvt_cache_problem what = r->finding[i].f.what;

			if (notes != (what >= KVT_CACHE_NPROBLEMS))
				continue;
			print_finding(&r->finding[i]);
			left[what]--;
		}
	for (int kind = 0; kind < KVT_CACHE_NFINDINGS; kind++)
		if (left[kind])
			plainf("%s%s: and %lld more; --all lists them\n",
			       kind >= KVT_CACHE_NPROBLEMS ? "note: " : "",
			       kvt_cache_problem_name(kind), LL(left[kind]));
	if (t->unjudged)
		plainf("not judged: %lld, as it hangs on batches that are not there\n",
		       LL(t->unjudged));
}

/* ---- prompts ------------------------------------------------------------ */

/* What stands where the prompt's first block, or its next one, would be. */
static void print_never(const struct why_replay *r, const struct why_reason *reason)
{
	const struct kvt_why_instead *s = &reason->instead;

	if (reason->near.changed)
		plainf("; by another rule it was: %s", reason->near.text);
	else if (s->same && *s->lora)
		plainf("; event %lld stored these tokens of LoRA %s",
		       LL(s->same), s->lora);
	else if (s->same && *s->salt)
		plainf("; event %lld stored these tokens with salt %s", LL(s->same),
		       s->salt);
	else if (s->same && s->has_extra)
		plainf("; event %lld stored these tokens with extra keys", LL(s->same));
	else if (s->same && s->same_block_size != r->w->rule.block)
		plainf("; event %lld stored these tokens in blocks of %lld", LL(s->same),
		       LL(s->same_block_size));
	else if (s->same)
		plainf("; event %lld stored these tokens by another seed, hash or engine",
		       LL(s->same));
	else if (s->other) {
		plainf("; event %lld stored other tokens there: token %lld differs",
		       LL(s->other), LL(s->token));
		if (r->w->tokens)
			plainf(" (%lld)", LL(s->prompt->token[s->token]));
	}
}

static void print_gone(const struct why_replay *r, const struct kvt_why_seen_in *in,
		       const struct why_reason *reason)
{
	plainf("\n  block %lld: %s", LL(in->now), kvt_why_gone_name(in->gone));
	if (in->gone == KVT_WHY_EVICTED || in->gone == KVT_WHY_CLEARED)
		plainf(" by event %lld", LL(in->event));
	else if (in->elsewhere >= 0)
		plainf(": event %lld stored it in %s", LL(in->event),
		       kvt_cache_place_text(r->replay, in->elsewhere).s);
	else
		print_never(r, reason);
	if (in->after)
		plainf("; %lld block%s behind it %s there, not reachable", LL(in->after),
		       plural(in->after), in->after == 1 ? "is" : "are");
}

static void print_prompts(const struct why_replay *r)
{
	for (int64_t i = 0; i < r->watch.nprompts; i++) {
		const struct kvt_why_watched *p = &r->watch.prompt[i];

		for (int k = 0; k < p->nin; k++) {
			const struct kvt_why_seen_in *in = &p->in[k];
			double rate = why_hit_rate(r, p, in);

			plainf("%s", r->w->prompt[i].name);
			if (in->group >= 0)
				plainf(", group %lld", LL(in->group));
			plainf(": %lld of %lld blocks at the end, at most %lld",
			       LL(in->now), LL(p->chain.nblocks), LL(in->best));
			if (in->best)
				plainf(" from event %lld on", LL(in->best_event));
			if (rate >= 0)
				plainf(", %.1f %% over time", 100 * rate);
			if (in->gone != KVT_WHY_ALL_THERE)
				print_gone(r, in, why_reason_at(r, i, k));
			else if (p->chain.over)
				plainf("; the last %lld token%s no full block",
				       LL(p->chain.over),
				       p->chain.over == 1 ? " is" : "s are");
			plainf("\n");
		}
		if (!p->nin)
			plainf("%s: no event stores anything\n", r->w->prompt[i].name);
	}
}

static void print_totals(const struct why_replay *r)
{
	const struct kvt_cache_totals *t = kvt_cache_replay_totals(r->replay);
	int64_t problems = 0;
	const char *before = ": ";

	for (int i = 0; i < KVT_CACHE_NPROBLEMS; i++)
		problems += t->found[i];
	plainf("%s: %lld problem%s", r->w->events, LL(problems), plural(problems));
	for (int i = 0; i < KVT_CACHE_NPROBLEMS; i++)
		if (t->found[i]) {
			plainf("%s%lld %s", before, LL(t->found[i]),
			       kvt_cache_problem_name(i));
			before = ", ";
		}
	plainf("\n");
}

void why_print_events(const struct why_replay *r)
{
	const struct kvt_why_hashes *h = &r->hashes;

	print_head(r);
	print_places(r);
	print_samples(r);
	if (h->key)
		plainf("hashes: %lld of their tokens, %lld not, %lld cannot be told\n",
		       LL(h->same), LL(h->ndiffers), LL(h->unknown));
	if (r->w->tree)
		plainf("%s: has %lld of %lld blocks that are told to be in files\n",
		       r->w->tree, LL(r->files.found), LL(r->files.told));
	print_findings(r);
	print_prompts(r);
	print_totals(r);
}
