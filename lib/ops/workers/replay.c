/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - vLLM's aggregation of what workers report, step by step
 *
 * In go the events of a log in order: the number of workers, then for each step the
 * reports of its workers and perhaps what the engine made of them.  Every (request,
 * direction) has a countdown that its first report begins at the expected number of
 * reports; at 0 the request is finished.  The invalid blocks of a step are the union
 * over its workers.  Counts are upstream's (kvt_countdown_report() in lib/transfer).
 *
 * Upstream forgets an id once it is finished and does not ask who reports.  That is
 * where its silent failures are, so the replay remembers both, and compares what it
 * finds with the engine's own aggregate where the log has that.
 *
 * Steps, and the workers of a step, ascend.  Memory grows with the requests that were
 * seen and the invalid blocks of one step; an event costs what its lists are long, as
 * both tables are hashed.
 */
#include "lib/ops/workers/workers.h"
#include "lib/base/print.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

enum { MAX_ENTRIES = 1 << 24 };

/*
 * A request in one direction; or in none, KVT_NDIRECTIONS: the scheduler output that it
 * is new in.
 */
struct entry {
	char *id;
	enum kvt_direction direction;
	struct kvt_countdown countdown;
	int64_t since, finished;	/* step of the first and the last report */
	int64_t awaited;		/* since this step, plus 1; 0: it is not */
	int64_t both;			/* told of this step, plus 1 */
	bool reported;			/* in this log, finished or failed */
	bool engine_has;		/* so does the engine's own aggregate */
	bool failed;			/* receiving did, and it is not finished yet */
	bool failed_now, engine_failed;	/* in the step of 'finished'; the engine's */
	uint8_t *from;			/* bitmap of the workers of this round */
};

/*
 * Invalid blocks of one step: buckets of another step are free, so that a new step
 * begins without clearing them.
 */
struct blocks {
	struct block_bucket {
		int64_t id, step;	/* a step is stored plus 1; 0: never used */
		bool engine_has;
	} *bucket;			/* open addressing; 'room' is a power of two */
	int64_t *id;			/* in the order of the log */
	size_t n, room;
};

struct kvt_workers {
	const struct kvt_workers_listener *tell;
	struct kvt_workers_totals totals;
	int64_t step, worker, expected;
	bool awaits[KVT_NDIRECTIONS];	/* of each new request */
	bool dropped, closed;		/* this step: no output; aggregate was seen */
	struct entry **bucket;		/* open addressing; 'room' is a power of two */
	size_t nentries, room;
	struct entry **emitted;		/* finished in this step */
	size_t nemitted;
	struct blocks invalid;		/* of this step */
};

const char *kvt_worker_problem_name(enum kvt_worker_problem problem)
{
	static const char *const names[] = {
		"incomplete", "exceeded", "repeated", "lost", "invented", "none",
		"both",
	};

	return names[problem];
}

static void problem(struct kvt_workers *w, enum kvt_worker_problem which, int64_t worker,
		    const char *id, const char *format, ...) KVT_PRINTF(5, 6);

static void problem(struct kvt_workers *w, enum kvt_worker_problem which, int64_t worker,
		    const char *id, const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	w->totals.problems++;
	w->tell->problem(w->tell->context, which, w->step, worker, id, text);
}

/* ---- requests ----------------------------------------------------------- */

static size_t hash(const char *id, enum kvt_direction direction)
{
	uint64_t h = UINT64_C(14695981039346656037) + direction;

	for (; *id; id++)
		h = (h ^ (uint8_t)*id) * UINT64_C(1099511628211);
	return (size_t)(h ^ h >> 32);
}

static struct entry **find_bucket(const struct kvt_workers *w, const char *id,
				  enum kvt_direction direction)
{
	size_t at = hash(id, direction) & (w->room - 1);

	while (w->bucket[at] && (w->bucket[at]->direction != direction ||
				 strcmp(w->bucket[at]->id, id)))
		at = (at + 1) & (w->room - 1);
	return &w->bucket[at];
}

/* NULL: no worker has reported it. */
static struct entry *find_entry(const struct kvt_workers *w, const char *id,
				enum kvt_direction direction)
{
	return w->room ? *find_bucket(w, id, direction) : NULL;
}

/* Room for one more request. */
static enum kvt_status grow(struct kvt_workers *w, struct kvt_error *err)
{
	struct kvt_workers larger = *w;

	if (w->nentries >= MAX_ENTRIES)
		return kvt_fail(err, KVT_UNSUPPORTED, "more than %d requests",
				MAX_ENTRIES);
	if (w->room && w->nentries < w->room / 2)
		return KVT_OK;
	larger.room = w->room ? w->room * 2 : 64;
	larger.bucket = calloc(larger.room, sizeof(*larger.bucket));
	if (!larger.bucket)
		return kvt_no_memory(err, NULL);
	for (size_t i = 0; i < w->room; i++)
		if (w->bucket[i])
			*find_bucket(&larger, w->bucket[i]->id,
				     w->bucket[i]->direction) = w->bucket[i];
	free(w->bucket);
	*w = larger;
	return KVT_OK;
}

static enum kvt_status entry_of(struct entry **out, struct kvt_workers *w, const char *id,
				enum kvt_direction direction, struct kvt_error *err)
{
	enum kvt_status status = grow(w, err);
	struct entry **bucket, *e;

	if (status)
		return status;
	bucket = find_bucket(w, id, direction);
	*out = *bucket;
	if (*bucket)
		return KVT_OK;
	e = calloc(1, sizeof(*e));
	if (!e || !(e->id = strdup(id))) {
		free(e);
		return kvt_no_memory(err, NULL);
	}
	e->direction = direction;
	e->finished = -1;
	*out = *bucket = e;
	w->nentries++;
	return KVT_OK;
}

/* ---- reports ------------------------------------------------------------ */

/* With one report a worker, a second one stands for a worker that is silent. */
static enum kvt_status note_worker(struct kvt_workers *w, struct entry *e,
				   struct kvt_error *err)
{
	uint8_t bit = (uint8_t)(1u << (w->worker % 8));
	size_t nbytes = (size_t)(w->totals.workers + 7) / 8;

	if (!e->from && !(e->from = calloc(1, nbytes)))
		return kvt_no_memory(err, NULL);
	if (e->countdown.left == 0) {
		memset(e->from, 0, nbytes);
		e->since = w->step;
	}
	if (e->from[w->worker / 8] & bit && e->countdown.expected <= w->totals.workers)
		problem(w, KVT_REPORTS_REPEATED, w->worker, e->id,
			"%s of '%.100s': worker %lld reports it twice, and the engine "
			"counts it as two workers",
			kvt_direction_name(e->direction), e->id, LL(w->worker));
	e->from[w->worker / 8] |= bit;
	return KVT_OK;
}

static enum kvt_status emit(struct kvt_workers *w, struct entry *e, struct kvt_error *err)
{
	if (!KVT_GROW(&w->emitted, w->nemitted))
		return kvt_no_memory(err, NULL);
	w->emitted[w->nemitted++] = e;
	e->finished = w->step;
	e->awaited = 0;
	e->engine_has = e->failed_now = e->engine_failed = false;
	free(e->from);
	e->from = NULL;
	w->totals.finished++;
	w->tell->finished(w->tell->context, w->step, e->direction, e->id,
			  e->countdown.expected, e->since);
	return KVT_OK;
}

static enum kvt_status take_report(struct kvt_workers *w, const char *id,
				   enum kvt_direction direction, struct kvt_error *err)
{
	struct entry *e;
	enum kvt_status status;

	if (w->dropped) {
		problem(w, KVT_REPORTS_LOST, w->worker, id,
			"%s of '%.100s': worker %lld reports it in a step without "
			"output, where nothing is counted",
			kvt_direction_name(direction), id, LL(w->worker));
		return KVT_OK;
	}
	if ((status = entry_of(&e, w, id, direction, err)))
		return status;
	e->reported = true;
	if (e->countdown.rounds && !e->countdown.left)
		problem(w, KVT_REPORTS_EXCEEDED, w->worker, id,
			"%s of '%.100s': worker %lld reports it, but it was finished "
			"with %lld of %lld reports in step %lld",
			kvt_direction_name(direction), id, LL(w->worker),
			LL(e->countdown.expected), LL(e->countdown.expected),
			LL(e->finished));
	if ((status = note_worker(w, e, err)))
		return status;
	return kvt_countdown_report(&e->countdown, w->expected) ? emit(w, e,
								       err) : KVT_OK;
}

/* Kept until the request is finished, in whichever step. */
static enum kvt_status take_failed(struct kvt_workers *w,
				   const struct kvt_worker_event *event,
				   struct kvt_error *err)
{
	enum kvt_status status;
	struct entry *e;

	for (size_t i = 0; i < event->nfailed; i++) {
		if (w->dropped) {
			problem(w, KVT_REPORTS_LOST, w->worker, event->failed[i],
				"failed_recving of '%.100s': worker %lld reports it in a "
				"step without output, where nothing is counted",
				event->failed[i], LL(w->worker));
			continue;
		}
		if ((status = entry_of(&e, w, event->failed[i], KVT_RECVING, err)))
			return status;
		e->failed = e->reported = true;
	}
	return KVT_OK;
}

/*
 * The scheduler frees a request that was aborted when receiving is finished, and then
 * asserts that the one that finished sending is still there.
 */
static void tell_both(struct kvt_workers *w)
{
	for (size_t i = 0; i < w->nemitted; i++) {
		const struct entry *received;
		struct entry *sent = w->emitted[i];

		if (sent->direction != KVT_SENDING || sent->both == w->step + 1)
			continue;
		sent->both = w->step + 1;
		received = find_entry(w, sent->id, KVT_RECVING);
		if (received && received->finished == w->step)
			problem(w, KVT_REPORTS_BOTH, -1, sent->id,
				"'%.100s' has finished sending and receiving in one "
				"step: if it was aborted, vLLM's scheduler frees it and "
				"fails with AssertionError", sent->id);
	}
}

static void tell_failed(struct kvt_workers *w)
{
	for (size_t i = 0; i < w->nemitted; i++) {
		struct entry *e = w->emitted[i];

		if (e->direction != KVT_RECVING || !e->failed)
			continue;
		e->failed = false;
		e->failed_now = true;
		w->tell->failed(w->tell->context, w->step, e->id);
	}
}

/* When all workers of a step have reported; the engine's own lines are compared after. */
static void end_step(struct kvt_workers *w)
{
	if (w->closed)
		return;
	tell_failed(w);
	tell_both(w);
}

/* ---- what the scheduler says ---------------------------------------------- */

static enum kvt_status await(struct kvt_workers *w, const char *id,
			     enum kvt_direction direction, int64_t step,
			     struct kvt_error *err)
{
	struct entry *e;
	enum kvt_status status = entry_of(&e, w, id, direction, err);

	if (!status && !e->awaited)
		e->awaited = step + 1;
	return status;
}

static enum kvt_status take_scheduled(struct kvt_workers *w,
				      const struct kvt_worker_event *event,
				      struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (size_t i = 0; !status && i < event->nfresh; i++) {
		struct entry *fresh;

		if ((status = entry_of(&fresh, w, event->fresh[i], KVT_NDIRECTIONS, err)))
			return status;
		w->totals.scheduled += !fresh->reported;
		fresh->reported = true;
		fresh->since = event->step;
		for (int d = 0; !status && d < KVT_NDIRECTIONS; d++)
			if (w->awaits[d])
				status = await(w, fresh->id, d, event->step, err);
	}
	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		for (size_t i = 0; !status && i < event->nids[d]; i++)
			status = await(w, event->ids[d][i], d, event->step, err);
	return status;
}

/* ---- blocks ------------------------------------------------------------- */

static struct block_bucket *find_block(const struct blocks *b, int64_t id, int64_t step)
{
	uint64_t h = (uint64_t)id * UINT64_C(0x9e3779b97f4a7c15);
	size_t at = (size_t)(h ^ h >> 32) & (b->room - 1);

	while (b->bucket[at].step == step + 1 && b->bucket[at].id != id)
		at = (at + 1) & (b->room - 1);
	return &b->bucket[at];
}

static bool has_block(const struct kvt_workers *w, int64_t id)
{
	return w->invalid.n && find_block(&w->invalid, id, w->step)->step == w->step + 1;
}

/* Room for one more, in the list and in the table. */
static enum kvt_status make_room(struct kvt_workers *w, struct kvt_error *err)
{
	struct blocks *b = &w->invalid, larger = *b;

	if (!KVT_GROW(&b->id, b->n))
		return kvt_no_memory(err, NULL);
	larger.id = b->id;
	if (b->room && b->n < b->room / 2)
		return KVT_OK;
	larger.room = b->room ? b->room * 2 : 128;
	larger.bucket = calloc(larger.room, sizeof(*larger.bucket));
	if (!larger.bucket)
		return kvt_no_memory(err, NULL);
	for (size_t i = 0; i < b->n; i++)
		*find_block(&larger, b->id[i], w->step) =
			*find_block(b, b->id[i], w->step);
	free(b->bucket);
	*b = larger;
	return KVT_OK;
}

static enum kvt_status add_block(struct kvt_workers *w, int64_t id,
				 struct kvt_error *err)
{
	enum kvt_status status = make_room(w, err);

	if (status)
		return status;
	*find_block(&w->invalid, id, w->step) =
		(struct block_bucket){ id, w->step + 1, false };
	w->invalid.id[w->invalid.n++] = id;
	return KVT_OK;
}

static enum kvt_status take_invalid_blocks(struct kvt_workers *w,
					   const struct kvt_worker_event *event,
					   struct kvt_error *err)
{
	enum kvt_status status;

	for (size_t i = 0; i < event->nblocks; i++) {
		int64_t block = event->blocks[i];

		if (w->dropped) {
			problem(w, KVT_REPORTS_LOST, w->worker, NULL,
				"invalid block %lld: worker %lld reports it in a step "
				"without output, where nothing is counted",
				LL(block), LL(w->worker));
			continue;
		}
		if (has_block(w, block))
			continue;
		if ((status = add_block(w, block, err)))
			return status;
		w->totals.invalid++;
		w->tell->invalid(w->tell->context, w->step, block);
	}
	return KVT_OK;
}

/* ---- what the engine made of it ----------------------------------------- */

static void compare_ids(struct kvt_workers *w, const struct kvt_worker_event *event,
			enum kvt_direction direction)
{
	for (size_t i = 0; i < event->nids[direction]; i++) {
		const char *id = event->ids[direction][i];
		struct entry *e = find_entry(w, id, direction);

		if (e && e->finished == w->step)
			e->engine_has = true;
		else
			problem(w, KVT_REPORTS_INVENTED, -1, id,
				"%s of '%.100s': the engine has it finished in step "
				"%lld, the reports do not",
				kvt_direction_name(direction), id, LL(w->step));
	}
}

static void compare_blocks(struct kvt_workers *w, const struct kvt_worker_event *event)
{
	const struct blocks *b = &w->invalid;

	for (size_t i = 0; i < event->nblocks; i++) {
		int64_t block = event->blocks[i];

		if (has_block(w, block))
			find_block(b, block, w->step)->engine_has = true;
		else
			problem(w, KVT_REPORTS_INVENTED, -1, NULL,
				"invalid block %lld: the engine has it in step %lld, the "
				"reports do not",
				LL(block), LL(w->step));
	}
	for (size_t i = 0; i < b->n; i++)
		if (!find_block(b, b->id[i], w->step)->engine_has)
			problem(w, KVT_REPORTS_LOST, -1, NULL,
				"invalid block %lld: reported in step %lld, and the "
				"engine does not have it",
				LL(b->id[i]), LL(w->step));
}

static void compare_failed(struct kvt_workers *w, const struct kvt_worker_event *event)
{
	for (size_t i = 0; i < event->nfailed; i++) {
		struct entry *e = find_entry(w, event->failed[i], KVT_RECVING);

		if (e && e->finished == w->step && e->failed_now)
			e->engine_failed = true;
		else
			problem(w, KVT_REPORTS_INVENTED, -1, event->failed[i],
				"failed_recving of '%.100s': the engine has it in step "
				"%lld, the reports do not", event->failed[i],
				LL(w->step));
	}
	for (size_t i = 0; i < w->nemitted; i++)
		if (w->emitted[i]->failed_now && !w->emitted[i]->engine_failed)
			problem(w, KVT_REPORTS_LOST, -1, w->emitted[i]->id,
				"failed_recving of '%.100s': reported until step %lld, "
				"and the engine does not have it", w->emitted[i]->id,
				LL(w->step));
}

static void compare(struct kvt_workers *w, const struct kvt_worker_event *event)
{
	compare_failed(w, event);
	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		compare_ids(w, event, (enum kvt_direction)d);
	for (size_t i = 0; i < w->nemitted; i++)
		if (!w->emitted[i]->engine_has)
			problem(w, KVT_REPORTS_LOST, -1, w->emitted[i]->id,
				"%s of '%.100s': finished in step %lld, and the engine "
				"does not have it",
				kvt_direction_name(w->emitted[i]->direction),
				w->emitted[i]->id, LL(w->step));
	compare_blocks(w, event);
}

/* ---- countdowns that still run ------------------------------------------ */

static int by_step(const void *a, const void *b)
{
	const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;

	if (x->since != y->since)
		return x->since < y->since ? -1 : 1;
	if (x->direction != y->direction)
		return x->direction < y->direction ? -1 : 1;
	return strcmp(x->id, y->id);
}

/* "; none of worker 1, 3 and 5 more": those that did not report. */
static void list_silent(char *out, size_t size, const struct kvt_workers *w,
			const struct entry *e)
{
	int64_t others = 0;
	size_t used = 0;

	out[0] = '\0';
	for (int64_t i = 0; i < w->totals.workers; i++) {
		if (e->from[i / 8] >> (i % 8) & 1)
			continue;
		if (used < 40)
			used += (size_t)snprintf(out + used, size - used, "%s%lld", used ?
						 ", " : "; none of worker ", LL(i));
		else
			others++;
	}
	if (others)
		snprintf(out + used, size - used, " and %lld more", LL(others));
}

static bool is_reported(const struct kvt_workers *w, const char *id)
{
	bool found = false;

	for (int d = 0; d < KVT_NDIRECTIONS; d++) {
		const struct entry *e = find_entry(w, id, d);

		found |= e && e->reported;
	}
	return found;
}

/* A new request of which no worker has said anything: perhaps it needs no transfer. */
static void find_unnamed(struct kvt_workers *w)
{
	for (size_t i = 0; i < w->room; i++) {
		struct entry *e = w->bucket[i];

		if (e && e->direction == KVT_NDIRECTIONS)
			e->reported = is_reported(w, e->id);
	}
}

static void tell_silence(struct kvt_workers *w, const struct entry *e)
{
	if (e->direction == KVT_NDIRECTIONS && !e->reported) {
		w->totals.unnamed++;
		w->tell->unnamed(w->tell->context, e->since, e->id);
	} else if (e->awaited && !e->countdown.left) {
		problem(w, KVT_REPORTS_NONE, -1, e->id,
			"%s of '%.100s': awaited since step %lld, and no report of it "
			"was counted", kvt_direction_name(e->direction), e->id,
			LL(e->awaited - 1));
	}
}

static void tell_incomplete(struct kvt_workers *w)
{
	size_t n = 0;
	char silent[100];

	find_unnamed(w);
	/* the table is not needed any more: it becomes the list of its entries */
	for (size_t i = 0; i < w->room; i++) {
		struct entry *e = w->bucket[i];

		w->bucket[i] = NULL;
		if (e)
			w->bucket[n++] = e;
	}
	if (n)
		qsort(w->bucket, n, sizeof(*w->bucket), by_step);
	for (size_t i = 0; i < n; i++) {
		const struct entry *e = w->bucket[i];

		tell_silence(w, e);
		if (!e->countdown.left) {
			if (e->failed)
				problem(w, KVT_REPORTS_INCOMPLETE, -1, e->id,
					"failed_recving of '%.100s': reported, but "
					"receiving was not finished after it", e->id);
			continue;
		}
		list_silent(silent, sizeof(silent), w, e);
		problem(w, KVT_REPORTS_INCOMPLETE, -1, e->id,
			"%s of '%.100s': %lld of %lld reports since step %lld%s",
			kvt_direction_name(e->direction), e->id,
			LL(e->countdown.expected - e->countdown.left),
			LL(e->countdown.expected), LL(e->since), silent);
	}
}

/* ---- events ------------------------------------------------------------- */

static enum kvt_status take_head(struct kvt_workers *w,
				 const struct kvt_worker_event *event,
				 struct kvt_error *err)
{
	if (w->totals.workers)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the number of workers is given twice");
	w->totals.workers = event->workers;
	w->expected = event->expected ? event->expected : event->workers;
	return KVT_OK;
}

static enum kvt_status take_worker(struct kvt_workers *w,
				   const struct kvt_worker_event *event,
				   struct kvt_error *err)
{
	enum kvt_status status;

	if (event->worker >= w->totals.workers)
		return kvt_fail(err, KVT_BAD_INPUT,
				"worker is %lld, expected less than %lld",
				LL(event->worker), LL(w->totals.workers));
	if (event->worker <= w->worker)
		return kvt_fail(err, KVT_BAD_INPUT,
				"workers of a step are not in ascending order");
	w->worker = event->worker;
	if (event->silent)
		return KVT_OK;
	/* of a step without output not even the count is read */
	if (!w->dropped)
		w->expected = kvt_expected_reports(w->expected, event->expected);
	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		for (size_t i = 0; i < event->nids[d]; i++)
			if ((status = take_report(w, event->ids[d][i], d, err)))
				return status;
	if ((status = take_failed(w, event, err)))
		return status;
	return take_invalid_blocks(w, event, err);
}

static enum kvt_status enter_step(struct kvt_workers *w,
				  const struct kvt_worker_event *event,
				  struct kvt_error *err)
{
	if (event->step < w->step)
		return kvt_fail(err, KVT_BAD_INPUT, "steps are not in ascending order");
	if (event->step == w->step) {
		if (w->closed)
			return kvt_fail(err, KVT_BAD_INPUT,
					"a step continues after its line with aggregated");
		if (event->kind == KVT_EVENT_NO_OUTPUT)
			return kvt_fail(err, KVT_BAD_INPUT,
					"the line with output is not the first of its step");
		return KVT_OK;
	}
	end_step(w);
	w->step = event->step;
	w->worker = -1;
	w->dropped = event->kind == KVT_EVENT_NO_OUTPUT;
	w->closed = false;
	w->nemitted = w->invalid.n = 0;
	w->totals.steps++;
	return KVT_OK;
}

enum kvt_status kvt_workers_take(struct kvt_workers *w,
				 const struct kvt_worker_event *event,
				 struct kvt_error *err)
{
	enum kvt_status status;

	if (event->kind == KVT_EVENT_HEAD)
		return take_head(w, event, err);
	if (event->kind == KVT_EVENT_SCHEDULED)
		return take_scheduled(w, event, err);
	if (!w->totals.workers)
		return kvt_fail(err, KVT_BAD_INPUT,
				"expected the number of workers first");
	if ((status = enter_step(w, event, err)))
		return status;
	if (event->kind == KVT_EVENT_WORKER)
		return take_worker(w, event, err);
	if (event->kind == KVT_EVENT_NO_OUTPUT)
		return KVT_OK;
	end_step(w);
	w->closed = true;
	compare(w, event);
	return KVT_OK;
}

/* ---- a log -------------------------------------------------------------- */

enum kvt_status kvt_workers_new(struct kvt_workers **out,
				const struct kvt_workers_listener *listener,
				struct kvt_error *err)
{
	struct kvt_workers *w = calloc(1, sizeof(*w));

	if (!w)
		return kvt_no_memory(err, NULL);
	w->tell = listener;
	w->step = w->worker = -1;
	*out = w;
	return KVT_OK;
}

enum kvt_status kvt_workers_end(struct kvt_workers_totals *out, struct kvt_workers *w,
				struct kvt_error *err)
{
	if (!w->totals.workers)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the first line with the number of workers is missing");
	end_step(w);
	tell_incomplete(w);
	*out = w->totals;
	return KVT_OK;
}

void kvt_workers_await(struct kvt_workers *w, enum kvt_direction direction)
{
	w->awaits[direction] = true;
}

void kvt_workers_free(struct kvt_workers *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->room; i++)
		if (w->bucket[i]) {
			free(w->bucket[i]->from);
			free(w->bucket[i]->id);
			free(w->bucket[i]);
		}
	free(w->bucket);
	free(w->emitted);
	free(w->invalid.id);
	free(w->invalid.bucket);
	free(w);
}
