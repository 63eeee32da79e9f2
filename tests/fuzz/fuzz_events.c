/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_events.c - any bytes as a recording of cache events: it is refused with a reason,
 * or what was where adds up
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "formats/events/cache_events.h"
#include "lib/ops/why/hashes.h"
#include "lib/ops/why/watch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct run {
	struct kvt_cache_replay *replay;
	struct kvt_why_watch watch;
	struct kvt_why_hashes hashes;
	struct kvt_cache_event last;
	int64_t told;
};

static void tell(void *context, const struct kvt_cache_finding *f)
{
	struct run *run = context;

	if (!f->text[0] || f->what >= KVT_CACHE_NFINDINGS || f->event < 0)
		abort();
	run->told++;
}

static enum kvt_status take(void *context, const struct kvt_cache_event *event,
			    struct kvt_error *err)
{
	struct run *run = context;
	enum kvt_status status = kvt_cache_replay_take(run->replay, event, err);

	for (size_t i = 0; event->kind == KVT_CACHE_STORED && i < event->ntokens; i++)
		if (event->token[i] < 0)
			abort();
	run->last = *event;
	if (!status && event->kind == KVT_CACHE_BATCH)
		status = kvt_why_watch_look(&run->watch, event, err);
	if (!status)
		status = kvt_why_hashes_take(&run->hashes, event, err);
	return status;
}

/* Blocks of each place, counted anew. */
static void check(const struct run *run)
{
	const struct kvt_cache_block *block;
	const struct kvt_cache_place *place;
	int64_t told = 0;

	for (int64_t p = 0; (place = kvt_cache_replay_place(run->replay, p)); p++) {
		int64_t n = 0;

		for (size_t i = 0; (block = kvt_cache_replay_at(run->replay, i)); i++)
			for (int k = 0; k < block->ncopies; k++)
				n += block->copy[k].place == p &&
				     block->copy[k].copies > 0;
		if (n != place->resident || place->peak < n || place->stored < n)
			abort();
	}
	for (int i = 0; i < KVT_CACHE_NFINDINGS; i++)
		told += kvt_cache_replay_totals(run->replay)->found[i];
	if (told != run->told)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const int64_t tokens[] = { 1, 2, 3, 4, 5, 300, 70000, 0 };
	struct kvt_why_prompt prompt = { .name = "p", .token = tokens, .ntokens = 8 };
	struct kvt_error err = { "" };
	struct run run = { .replay = NULL };
	enum kvt_status status;

	prompt.rule.key.rule = kvt_prefix_rule_find("vllm");
	prompt.rule.block = 4;
	if (kvt_cache_replay_new(&run.replay, tell, &run, &err) ||
	    kvt_why_watch_new(&run.watch, run.replay, &prompt, 1, &err))
		abort();
	run.hashes.replay = run.replay;
	run.hashes.key = &prompt.rule.key;
	status = kvt_cache_events_read((const char *)data, size, "events", take, &run,
				       &err);
	if (status && !err.text[0])
		abort();
	if (!status) {
		run.last.kind = KVT_CACHE_BATCH;
		kvt_cache_replay_end(run.replay, &run.last);
		if (kvt_why_watch_look(&run.watch, &run.last, &err))
			abort();
		kvt_why_watch_end(&run.watch);
		check(&run);
	}
	kvt_why_watch_free(&run.watch);
	kvt_why_hashes_free(&run.hashes);
	kvt_cache_replay_free(run.replay);
	return 0;
}
