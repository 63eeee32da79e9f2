/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.c - kvtool why of a recording of cache events
 *
 * It is read once for what was where, and a second time, where prompts miss a block, for
 * what came in its place.
 */
#include "cli/why/events.h"

#include <stdlib.h>
#include <string.h>

#include "formats/events/cache_events.h"
#include "lib/base/grow.h"
#include "print/out/text_file.h"

enum { LISTED = 10 };			/* of each kind, without --all */

static void keep(void *context, const struct kvt_cache_finding *f)
{
	struct why_replay *r = context;
	const struct kvt_cache_totals *t = kvt_cache_replay_totals(r->replay);
	struct why_finding *more;

	if (!r->w->all && t->found[f->what] > LISTED)
		return;
	if (!KVT_GROW(&r->finding, r->nfindings)) {
		r->out_of_memory = true;
		return;
	}
	more = &r->finding[r->nfindings];
	*more = (struct why_finding){ *f, { 0 }, strdup(f->text) };
	if (f->id)
		more->id = *f->id;
	more->f.id = NULL;
	if (more->text)
		r->nfindings++;
	else
		r->out_of_memory = true;
}

/* ---- the first reading -------------------------------------------------- */

static enum kvt_status take(void *context, const struct kvt_cache_event *event,
			    struct kvt_error *err)
{
	struct why_replay *r = context;
	enum kvt_status status = kvt_cache_replay_take(r->replay, event, err);

	r->last = *event;
	if (!status && event->kind == KVT_CACHE_BATCH)
		status = kvt_why_watch_look(&r->watch, event, err);
	if (!status && r->hashes.key)
		status = kvt_why_hashes_take(&r->hashes, event, err);
	if (!status && r->out_of_memory)
		status = kvt_no_memory(err, NULL);
	return status;
}

static enum kvt_status replay(struct why_replay *r, struct kvt_error *err)
{
	struct why *w = r->w;
	enum kvt_status status = kvt_cache_replay_new(&r->replay, keep, r, err);

	if (!status)
		status = kvt_why_watch_new(&r->watch, r->replay, w->prompt,
					   w->prompt ? w->prompts.count : 0, err);
	if (w->rule.key.rule)
		r->hashes = (struct kvt_why_hashes){ .replay = r->replay,
						     .key = &w->rule.key };
	if (!status)
		status = kvt_cache_events_read(w->bytes, w->nbytes, w->events, take, r,
					       err);
	if (!status) {
		r->last.kind = KVT_CACHE_BATCH;
		kvt_cache_replay_end(r->replay, &r->last);
		status = kvt_why_watch_look(&r->watch, &r->last, err);
	}
	if (!status)
		kvt_why_watch_end(&r->watch);
	return status;
}

/* ---- hashes, and files -------------------------------------------------- */

/* Where none is right the rule is wrong, and not the events. */
static enum kvt_status judge_hashes(struct why_replay *r, struct kvt_error *err)
{
	const struct kvt_why_hashes *h = &r->hashes;

	if (h->ndiffers && !h->same)
		return r->w->prompts.count ? KVT_OK :
		       kvt_fail(err, KVT_BAD_INPUT,
				"%s: by this rule none of %lld hashes is that of its tokens: the engine, its seed or hash is another one, or was not told; kvtool why --prompt=TOKENS tries others",
				r->w->events, LL(h->ndiffers));
	for (int64_t i = 0; i < h->ndiffers; i++)
		kvt_cache_replay_tell(r->replay, &(struct kvt_cache_finding){
			KVT_CACHE_HASH, h->differs[i].event, h->differs[i].batch,
			h->differs[i].sequence, 0, &h->differs[i].id,
			"the tokens before it and its own have another hash" });
	return KVT_OK;
}

static bool has_file(void *context, const struct kvt_block_id *id, int64_t group)
{
	const struct why *w = context;

	return kvt_file_hashes_find_id(&w->files, id, (int)group);
}

static enum kvt_status judge_files(struct why_replay *r, struct kvt_error *err)
{
	struct why *w = r->w;
	enum kvt_status status;

	if (!w->tree)
		return KVT_OK;
	status = kvt_why_files(&r->files, r->replay, w->medium, has_file, w, err);
	if (!status && !r->files.told)
		status = kvt_fail(err, KVT_USAGE,
				  "%s: no block is told to be in a medium of files at the end: say which medium %s is, such as --medium=CPU",
				  w->events, w->tree);
	return status;
}

/* ---- prompts: the second reading ---------------------------------------- */

static enum kvt_status look_again(void *context, const struct kvt_cache_event *event,
				  struct kvt_error *err)
{
	const struct why_replay *r = context;

	(void)err;
	for (int64_t i = 0; i < r->watch.nprompts; i++)
		for (int k = 0; k < r->watch.prompt[i].nin; k++)
			if (r->watch.prompt[i].in[k].gone == KVT_WHY_NEVER)
				kvt_why_instead(&why_reason_at(r, i, k)->instead, event);
	return KVT_OK;
}

/* Salts and LoRAs of the recording are those to try. */
static void look_near(struct why_replay *r, int64_t i, int k)
{
	struct why_reason *reason = why_reason_at(r, i, k);
	struct kvt_why_seen seen = { 0 };

	if (*reason->instead.salt)
		seen.salt[seen.nsalts++] = reason->instead.salt;
	if (*reason->instead.lora)
		seen.lora[seen.nloras++] = reason->instead.lora;
	kvt_why_near(&reason->near, &r->w->prompt[i], &seen, kvt_why_was_stored,
		     r->replay);
}

static enum kvt_status find_reasons(struct why_replay *r, struct kvt_error *err)
{
	const struct kvt_why_watch *w = &r->watch;
	bool any = false;
	enum kvt_status status;

	for (int64_t i = 0; i < w->nprompts; i++)
		if (w->prompt[i].nin > r->reasons)
			r->reasons = w->prompt[i].nin;
	r->reason = calloc((size_t)(w->nprompts * r->reasons) + 1, sizeof(*r->reason));
	if (!r->reason)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < w->nprompts; i++)
		for (int k = 0; k < w->prompt[i].nin; k++) {
			const struct kvt_why_seen_in *in = &w->prompt[i].in[k];

			why_reason_at(r, i, k)->instead = (struct kvt_why_instead){
				.prompt = &r->w->prompt[i],
				.chain = &w->prompt[i].chain, .missing = in->now,
				.token = -1 };
			any |= in->gone == KVT_WHY_NEVER;
		}
	if (!any)
		return KVT_OK;
	status = kvt_cache_events_read(r->w->bytes, r->w->nbytes, r->w->events,
				       look_again, r, err);
	for (int64_t i = 0; !status && i < w->nprompts; i++)
		for (int k = 0; k < w->prompt[i].nin; k++)
			if (w->prompt[i].in[k].gone == KVT_WHY_NEVER &&
			    !w->prompt[i].in[k].now)
				look_near(r, i, k);
	return status;
}

/* ---- all of it ---------------------------------------------------------- */

static bool is_bad(const struct why_replay *r)
{
	const struct kvt_cache_totals *t = kvt_cache_replay_totals(r->replay);

	for (int i = 0; i < KVT_CACHE_NPROBLEMS; i++)
		if (t->found[i])
			return true;
	for (int64_t i = 0; i < r->watch.nprompts; i++)
		for (int k = 0; k < r->watch.prompt[i].nin; k++)
			if (r->watch.prompt[i].in[k].gone != KVT_WHY_ALL_THERE)
				return true;
	return false;
}

static void free_replay(struct why_replay *r)
{
	kvt_why_watch_free(&r->watch);
	kvt_why_hashes_free(&r->hashes);
	kvt_cache_replay_free(r->replay);
	for (size_t i = 0; i < r->nfindings; i++)
		free(r->finding[i].text);
	free(r->finding);
	free(r->reason);
}

enum kvt_status why_events(struct why *w, struct kvt_error *err)
{
	struct why_replay r = { .w = w };
	enum kvt_status status = KVT_OK;

	if (w->prompts.count || why_has_rule(w))
		status = why_rules(w, err);
	if (!status)
		status = replay(&r, err);
	if (!status)
		status = judge_hashes(&r, err);
	if (!status)
		status = judge_files(&r, err);
	if (!status)
		status = find_reasons(&r, err);
	if (!status && r.out_of_memory)
		status = kvt_no_memory(err, w->events);
	if (!status && w->json) {
		why_put_events(&r);
		status = json_print(&w->out, false, err);
	} else if (!status) {
		why_print_events(&r);
	}
	if (!status && is_bad(&r))
		status = KVT_MISMATCH;
	free_replay(&r);
	return status;
}
