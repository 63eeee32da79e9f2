/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - what a recording of cache events says, as kvtool-json(5) has it
 *
 *	{"file": "events", "batches": 2, "events": 2, .., "media": [{"medium": "GPU", ..,
 *	   "stored": 2, "removed": 0, "most": 2, "resident": 2, "block_size": 2}],
 *	 "residency": [{"batch": 1, "time": 2.5, "blocks": {"GPU": 0}}, ..],
 *	 "counts": {"parent-unknown": 1, ..}, "problems": [{"problem": .., ..}, ..],
 *	 "not_judged": 0, "prompts": [..]}
 *
 * The same as print.c says: of problems those that are kept, ten of a kind without
 * --all.  There are up to 256 samples over time, and an object for each prompt in each
 * group.
 */
#include "cli/why/events.h"

#include <math.h>

static void put_places(struct why_replay *r, struct json_out *out)
{
	json_t *list = json_put_array(out, out->root, "media"), *o;
	const struct kvt_cache_place *p;

	for (int64_t i = 0; (p = kvt_cache_replay_place(r->replay, i)); i++) {
		o = json_append_object(out, list);
		json_put_text(out, o, "medium", *p->medium ? p->medium : NULL);
		json_put_text(out, o, "owner", *p->owner ? p->owner : NULL);
		json_put_known(out, o, "group", p->group, p->group >= 0);
		json_put_known(out, o, "rank", p->rank, p->rank >= 0);
		json_put_text(out, o, "topic", *p->topic ? p->topic : NULL);
		json_put_int(out, o, "stored", p->stored);
		json_put_int(out, o, "removed", p->removed);
		json_put_int(out, o, "most", p->peak);
		json_put_int(out, o, "resident", p->resident);
		json_put_int(out, o, "block_size", p->block_size);
	}
}

static void put_samples(struct why_replay *r, struct json_out *out)
{
	const struct kvt_cache_totals *t = kvt_cache_replay_totals(r->replay);
	json_t *list = json_put_array(out, out->root, "residency"), *o, *media;
	const struct kvt_cache_sample *s[256];
	int n = kvt_cache_replay_samples(s, 256, r->replay);

	for (int i = 0; i < n; i++) {
		o = json_append_object(out, list);
		json_put_int(out, o, "batch", s[i]->batch);
		json_put_real(out, o, "time", s[i]->time);
		media = json_put_object(out, o, "blocks");
		for (int m = 0; m < t->nmedia; m++)
			json_put_int(out, media, t->medium[m], s[i]->resident[m]);
	}
}

static void put_findings(struct why_replay *r, struct json_out *out)
{
	const struct kvt_cache_totals *t = kvt_cache_replay_totals(r->replay);
	json_t *counts = json_put_object(out, out->root, "counts"), *list, *o;

	for (int i = 0; i < KVT_CACHE_NFINDINGS; i++)
		if (t->found[i])
			json_put_int(out, counts, kvt_cache_problem_name(i), t->found[i]);
	list = json_put_array(out, out->root, "problems");
	for (size_t i = 0; i < r->nfindings; i++) {
		const struct why_finding *f = &r->finding[i];

		o = json_append_object(out, list);
		json_put_text(out, o, "problem", kvt_cache_problem_name(f->f.what));
		json_put_bool(out, o, "note", f->f.what >= KVT_CACHE_NPROBLEMS);
		json_put_int(out, o, "event", f->f.event);
		json_put_known(out, o, "batch", f->f.sequence, f->f.sequence >= 0);
		json_put_known(out, o, "earlier", f->f.earlier, f->f.earlier > 0);
		json_put_text(out, o, "hash", f->id.nbytes ? why_id(&f->id).s : NULL);
		json_put_text(out, o, "text", f->text);
	}
	json_put_int(out, out->root, "not_judged", t->unjudged);
}

static void put_instead(struct json_out *out, json_t *o, const struct kvt_why_instead *s)
{
	json_put_known(out, o, "same_tokens_event", s->same, s->same > 0);
	json_put_text(out, o, "same_tokens_lora", *s->lora ? s->lora : NULL);
	json_put_text(out, o, "same_tokens_salt", *s->salt ? s->salt : NULL);
	json_put_known(out, o, "same_tokens_block_size", s->same_block_size, s->same > 0);
	json_put_known(out, o, "other_tokens_event", s->other, s->other > 0);
	json_put_known(out, o, "token", s->token, s->other > 0);
}

static void put_prompt(struct why_replay *r, json_t *list, int64_t i, int k)
{
	struct json_out *out = &r->w->out;
	const struct kvt_why_watched *p = &r->watch.prompt[i];
	const struct kvt_why_seen_in *in = &p->in[k];
	const struct why_reason *reason = why_reason_at(r, i, k);
	double rate = why_hit_rate(r, p, in);
	json_t *o = json_append_object(out, list);

	json_put_text(out, o, "prompt", r->w->prompt[i].name);
	json_put_known(out, o, "group", in->group, in->group >= 0);
	json_put_int(out, o, "blocks", p->chain.nblocks);
	json_put_int(out, o, "tokens_over", p->chain.over);
	json_put_int(out, o, "reachable", in->now);
	json_put_int(out, o, "most", in->best);
	json_put_real(out, o, "hit_rate", rate >= 0 ? rate : NAN);
	json_put_int(out, o, "not_reachable", in->after);
	json_put_text(out, o, "why", kvt_why_gone_name(in->gone));
	json_put_known(out, o, "event", in->event, in->event > 0);
	json_put_text(out, o, "elsewhere", in->elsewhere < 0 ? NULL :
		      kvt_cache_place_text(r->replay, in->elsewhere).s);
	put_instead(out, o, &reason->instead);
	why_put_near(r->w, o, &reason->near);
}

void why_put_events(struct why_replay *r)
{
	const struct kvt_cache_totals *t = kvt_cache_replay_totals(r->replay);
	struct json_out *out = &r->w->out;
	json_t *list;

	json_put_text(out, out->root, "file", r->w->events);
	json_put_int(out, out->root, "batches", t->batches);
	json_put_int(out, out->root, "events", t->events);
	json_put_int(out, out->root, "blocks", t->blocks);
	json_put_real(out, out->root, "seconds", t->end - t->begin);
	json_put_bool(out, out->root, "begins_late", t->late);
	put_places(r, out);
	put_samples(r, out);
	put_findings(r, out);
	list = json_put_array(out, out->root, "prompts");
	for (int64_t i = 0; i < r->watch.nprompts; i++)
		for (int k = 0; k < r->watch.prompt[i].nin; k++)
			put_prompt(r, list, i, k);
}
