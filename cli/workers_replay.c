/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers_replay.c - vLLM's aggregation of worker outputs, step by step
 *
 * The counts are upstream's (kvt_countdown_report()).  Upstream forgets an id
 * once it is finished and does not ask who reports; the replay remembers both,
 * for that is where its silent failures are.
 */
#include "cli/workers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 16 << 20, MAX_ENTRIES = 1 << 24 };

/* A request in one direction. */
struct entry {
	char *id;
	enum kvt_direction direction;
	struct kvt_countdown countdown;
	int64_t since, finished;	/* step of the first and the last report */
	bool engine_has;		/* the engine's own line of that step has it */
	uint8_t *from;			/* bitmap of the workers of this round */
};

struct blocks {
	int64_t *id;
	size_t n, room;
};

struct replay {
	const char *name;
	const struct workers_listener *tell;
	struct workers_totals *totals;
	struct kvt_error *err;
	int64_t line, step, worker, expected;
	bool dropped, closed;		/* this step: no output; aggregated was seen */
	struct entry **slot;		/* open addressing; 'room' is a power of two */
	size_t nentries, room;
	struct entry **emitted;		/* of this step */
	size_t nemitted, emitted_room;
	struct blocks invalid;		/* of this step, ascending */
};

const char *workers_problem_name(enum workers_problem problem)
{
	static const char *const names[] = {
		"incomplete", "exceeded", "repeated", "lost", "invented",
	};

	return names[problem];
}

static enum kvt_status no_memory(struct replay *r)
{
	return kvt_fail(r->err, KVT_SYSTEM, "%s: out of memory", r->name);
}

static void KVT_PRINTF(5, 6)
problem(struct replay *r, enum workers_problem which, int64_t worker, const char *id,
	const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	r->totals->problems++;
	r->tell->problem(r->tell->arg, which, r->step, worker, id, text);
}

/* ---- requests ----------------------------------------------------------- */

static size_t hash(const char *id, enum kvt_direction direction)
{
	uint64_t h = UINT64_C(14695981039346656037) + direction;

	for (; *id; id++)
		h = (h ^ (uint8_t)*id) * UINT64_C(1099511628211);
	return (size_t)(h ^ h >> 32);
}

static struct entry **find_slot(const struct replay *r, const char *id,
				enum kvt_direction direction)
{
	size_t at = hash(id, direction) & (r->room - 1);

	while (r->slot[at] && (r->slot[at]->direction != direction ||
			       strcmp(r->slot[at]->id, id)))
		at = (at + 1) & (r->room - 1);
	return &r->slot[at];
}

static enum kvt_status grow(struct replay *r)
{
	struct replay larger = *r;

	if (r->nentries >= MAX_ENTRIES)
		return kvt_fail(r->err, KVT_UNSUPPORTED,
				"%s: line %" PRId64 ": more than %d requests", r->name,
				r->line, MAX_ENTRIES);
	if (r->room && r->nentries < r->room / 2)
		return KVT_OK;
	larger.room = r->room ? r->room * 2 : 64;
	larger.slot = calloc(larger.room, sizeof(*larger.slot));
	if (!larger.slot)
		return no_memory(r);
	for (size_t i = 0; i < r->room; i++)
		if (r->slot[i])
			*find_slot(&larger, r->slot[i]->id,
				   r->slot[i]->direction) = r->slot[i];
	free(r->slot);
	*r = larger;
	return KVT_OK;
}

static enum kvt_status entry_of(struct entry **out, struct replay *r, const char *id,
				enum kvt_direction direction)
{
	enum kvt_status status = grow(r);
	struct entry **slot, *e;

	if (status)
		return status;
	slot = find_slot(r, id, direction);
	*out = *slot;
	if (*slot)
		return KVT_OK;
	e = calloc(1, sizeof(*e));
	if (!e || !(e->id = strdup(id))) {
		free(e);
		return no_memory(r);
	}
	e->direction = direction;
	e->finished = -1;
	*out = *slot = e;
	r->nentries++;
	return KVT_OK;
}

/* ---- reports ------------------------------------------------------------ */

/* With one report a worker, a second one stands for a worker that is silent. */
static enum kvt_status note_worker(struct replay *r, struct entry *e)
{
	uint8_t bit = (uint8_t)(1u << (r->worker % 8));
	size_t nbytes = (size_t)(r->totals->workers + 7) / 8;

	if (!e->from && !(e->from = calloc(1, nbytes)))
		return no_memory(r);
	if (e->countdown.left == 0) {
		memset(e->from, 0, nbytes);
		e->since = r->step;
	}
	if (e->from[r->worker / 8] & bit && e->countdown.expected <= r->totals->workers)
		problem(r, PROBLEM_REPEATED, r->worker, e->id,
			"%s of '%.100s': worker %" PRId64 " reports it twice, which counts for a worker that did not",
			kvt_direction_name(e->direction), e->id, r->worker);
	e->from[r->worker / 8] |= bit;
	return KVT_OK;
}

static enum kvt_status emit(struct replay *r, struct entry *e)
{
	if (r->nemitted == r->emitted_room) {
		size_t room = r->emitted_room ? r->emitted_room * 2 : 64;
		struct entry **more = realloc(r->emitted, room * sizeof(*more));

		if (!more)
			return no_memory(r);
		r->emitted = more;
		r->emitted_room = room;
	}
	r->emitted[r->nemitted++] = e;
	e->finished = r->step;
	e->engine_has = false;
	free(e->from);
	e->from = NULL;
	r->totals->finished++;
	r->tell->finished(r->tell->arg, r->step, e->direction, e->id,
			  e->countdown.expected, e->since);
	return KVT_OK;
}

static enum kvt_status report(struct replay *r, const char *id,
			      enum kvt_direction direction)
{
	struct entry *e;
	enum kvt_status status;

	if (r->dropped) {
		problem(r, PROBLEM_LOST, r->worker, id,
			"%s of '%.100s': worker %" PRId64 " reports it in a step without output, where nothing is counted",
			kvt_direction_name(direction), id, r->worker);
		return KVT_OK;
	}
	if ((status = entry_of(&e, r, id, direction)))
		return status;
	if (e->countdown.rounds && !e->countdown.left)
		problem(r, PROBLEM_EXCEEDED, r->worker, id,
			"%s of '%.100s': worker %" PRId64 " reports it, but %" PRId64 " of %" PRId64 " had by step %" PRId64,
			kvt_direction_name(direction), id, r->worker,
			e->countdown.expected, e->countdown.expected, e->finished);
	if ((status = note_worker(r, e)))
		return status;
	return kvt_countdown_report(&e->countdown, r->expected) ? emit(r, e) : KVT_OK;
}

/* ---- blocks ------------------------------------------------------------- */

static size_t place_of(const struct blocks *b, int64_t id)
{
	size_t low = 0, high = b->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (b->id[middle] < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool has_block(const struct blocks *b, int64_t id)
{
	size_t at = place_of(b, id);

	return at < b->n && b->id[at] == id;
}

static enum kvt_status add_block(struct replay *r, struct blocks *b, int64_t id)
{
	size_t at = place_of(b, id);

	if (at < b->n && b->id[at] == id)
		return KVT_OK;
	if (b->n == b->room) {
		size_t room = b->room ? b->room * 2 : 64;
		int64_t *more = realloc(b->id, room * sizeof(*more));

		if (!more)
			return no_memory(r);
		b->id = more;
		b->room = room;
	}
	memmove(b->id + at + 1, b->id + at, (b->n - at) * sizeof(*b->id));
	b->id[at] = id;
	b->n++;
	return KVT_OK;
}

static enum kvt_status report_blocks(struct replay *r, const struct kvt_log_line *line)
{
	enum kvt_status status;

	for (size_t i = 0; i < line->nblocks; i++) {
		int64_t block = kvt_log_block(line, i);

		if (r->dropped) {
			problem(r, PROBLEM_LOST, r->worker, NULL,
				"invalid block %" PRId64 ": worker %" PRId64 " reports it in a step without output, where nothing is counted",
				block, r->worker);
			continue;
		}
		if (has_block(&r->invalid, block))
			continue;
		if ((status = add_block(r, &r->invalid, block)))
			return status;
		r->totals->invalid++;
		r->tell->invalid(r->tell->arg, r->step, block);
	}
	return KVT_OK;
}

/* ---- what the engine made of it ----------------------------------------- */

static enum kvt_status compare_ids(struct replay *r, const struct kvt_log_line *line,
				   enum kvt_direction direction)
{
	struct entry *e;

	for (size_t i = 0; i < line->nids[direction]; i++) {
		const char *id = kvt_log_id(line, direction, i);

		e = r->room ? *find_slot(r, id, direction) : NULL;
		if (e && e->finished == r->step)
			e->engine_has = true;
		else
			problem(r, PROBLEM_INVENTED, -1, id,
				"%s of '%.100s': the engine has it finished in step %" PRId64 ", the reports do not",
				kvt_direction_name(direction), id, r->step);
	}
	return KVT_OK;
}

static enum kvt_status compare_blocks(struct replay *r, const struct kvt_log_line *line)
{
	struct blocks engine = { NULL, 0, 0 };
	enum kvt_status status = KVT_OK;

	for (size_t i = 0; !status && i < line->nblocks; i++) {
		int64_t block = kvt_log_block(line, i);

		if (!has_block(&r->invalid, block))
			problem(r, PROBLEM_INVENTED, -1, NULL,
				"invalid block %" PRId64 ": the engine has it in step %" PRId64 ", the reports do not",
				block, r->step);
		status = add_block(r, &engine, block);
	}
	for (size_t i = 0; !status && i < r->invalid.n; i++)
		if (!has_block(&engine, r->invalid.id[i]))
			problem(r, PROBLEM_LOST, -1, NULL,
				"invalid block %" PRId64 ": reported in step %" PRId64 ", and the engine does not have it",
				r->invalid.id[i], r->step);
	free(engine.id);
	return status;
}

static enum kvt_status compare(struct replay *r, const struct kvt_log_line *line)
{
	enum kvt_status status;

	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		if ((status = compare_ids(r, line, (enum kvt_direction)d)))
			return status;
	for (size_t i = 0; i < r->nemitted; i++)
		if (!r->emitted[i]->engine_has)
			problem(r, PROBLEM_LOST, -1, r->emitted[i]->id,
				"%s of '%.100s': finished in step %" PRId64 ", and the engine does not have it",
				kvt_direction_name(r->emitted[i]->direction),
				r->emitted[i]->id, r->step);
	return compare_blocks(r, line);
}

/* ---- lines -------------------------------------------------------------- */

static enum kvt_status refuse(struct replay *r, const char *what)
{
	return kvt_fail(r->err, KVT_BAD_INPUT, "%s: line %" PRId64 ": %s", r->name,
			r->line, what);
}

static enum kvt_status take_head(struct replay *r, const struct kvt_log_line *line)
{
	if (r->totals->workers)
		return refuse(r, "the number of workers is given twice");
	r->totals->workers = line->workers;
	r->expected = line->expected ? line->expected : line->workers;
	return KVT_OK;
}

static enum kvt_status take_worker(struct replay *r, const struct kvt_log_line *line)
{
	enum kvt_status status;

	if (line->worker >= r->totals->workers)
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: line %" PRId64 ": worker is %" PRId64 ", expected less than %" PRId64,
				r->name, r->line, line->worker, r->totals->workers);
	if (line->worker <= r->worker)
		return refuse(r, "workers of a step are not in ascending order");
	r->worker = line->worker;
	/* of a step without output not even the count is read */
	if (!r->dropped)
		r->expected = kvt_expected_reports(r->expected, line->expected);
	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		for (size_t i = 0; i < line->nids[d]; i++)
			if ((status = report(r, kvt_log_id(line, d, i), d)))
				return status;
	return report_blocks(r, line);
}

static enum kvt_status enter_step(struct replay *r, const struct kvt_log_line *line)
{
	if (line->step < r->step)
		return refuse(r, "steps are not in ascending order");
	if (line->step == r->step) {
		if (r->closed)
			return refuse(r, "more of a step behind what was made of it");
		if (line->kind == KVT_LOG_NO_OUTPUT)
			return refuse(r, "the absence of output stands behind the beginning of its step");
		return KVT_OK;
	}
	r->step = line->step;
	r->worker = -1;
	r->dropped = line->kind == KVT_LOG_NO_OUTPUT;
	r->closed = false;
	r->nemitted = r->invalid.n = 0;
	r->totals->steps++;
	return KVT_OK;
}

static enum kvt_status take_line(struct replay *r, const struct kvt_log_line *line)
{
	enum kvt_status status;

	if (line->kind == KVT_LOG_HEAD)
		return take_head(r, line);
	if (!r->totals->workers)
		return refuse(r, "expected the number of workers first");
	if ((status = enter_step(r, line)))
		return status;
	if (line->kind == KVT_LOG_WORKER)
		return take_worker(r, line);
	if (line->kind == KVT_LOG_NO_OUTPUT)
		return KVT_OK;
	r->closed = true;
	return compare(r, line);
}

/* ---- the end ------------------------------------------------------------ */

static int by_step(const void *a, const void *b)
{
	const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;

	if (x->since != y->since)
		return x->since < y->since ? -1 : 1;
	if (x->direction != y->direction)
		return x->direction < y->direction ? -1 : 1;
	return strcmp(x->id, y->id);
}

/* "worker 1, 3 and 5 more" of those that did not report. */
static void list_silent(char *out, size_t size, const struct replay *r,
			const struct entry *e)
{
	int64_t others = 0;
	size_t used = 0;

	out[0] = '\0';
	for (int64_t w = 0; w < r->totals->workers; w++) {
		if (e->from[w / 8] >> (w % 8) & 1)
			continue;
		if (used < 40)
			used += (size_t)snprintf(out + used, size - used, "%s%" PRId64,
						 used ? ", " : "; none of worker ", w);
		else
			others++;
	}
	if (others)
		snprintf(out + used, size - used, " and %" PRId64 " more", others);
}

static void report_incomplete(struct replay *r)
{
	size_t n = 0;
	char silent[100];

	/* the table is not needed any more: entries that run, in order */
	for (size_t i = 0; i < r->room; i++) {
		struct entry *e = r->slot[i];

		r->slot[i] = NULL;
		if (e)
			r->slot[n++] = e;
	}
	qsort(r->slot, n, sizeof(*r->slot), by_step);
	for (size_t i = 0; i < n; i++) {
		const struct entry *e = r->slot[i];

		if (!e->countdown.left)
			continue;
		list_silent(silent, sizeof(silent), r, e);
		problem(r, PROBLEM_INCOMPLETE, -1, e->id,
			"%s of '%.100s': %" PRId64 " of %" PRId64 " reports since step %" PRId64 "%s",
			kvt_direction_name(e->direction), e->id,
			e->countdown.expected - e->countdown.left, e->countdown.expected,
			e->since, silent);
	}
}

static void replay_free(struct replay *r)
{
	for (size_t i = 0; i < r->room; i++)
		if (r->slot[i]) {
			free(r->slot[i]->from);
			free(r->slot[i]->id);
			free(r->slot[i]);
		}
	free(r->slot);
	free(r->emitted);
	free(r->invalid.id);
}

/* ---- reading ------------------------------------------------------------ */

struct line {
	char *text;
	size_t n, room;
};

/* The next line without its end; 'more' is false behind the last one. */
static enum kvt_status read_line(struct replay *r, struct line *line, bool *more, FILE *in)
{
	int c;

	line->n = 0;
	while ((c = getc_unlocked(in)) != EOF && c != '\n') {
		if (line->n == MAX_LINE)
			return refuse(r, "is longer than 16 MiB");
		if (line->n == line->room) {
			size_t room = line->room ? line->room * 2 : 4096;
			char *text = realloc(line->text, room);

			if (!text)
				return no_memory(r);
			line->text = text;
			line->room = room;
		}
		line->text[line->n++] = (char)c;
	}
	if (ferror(in))
		return kvt_fail(r->err, KVT_SYSTEM, "%s: %s", r->name, strerror(errno));
	*more = c != EOF || line->n > 0;
	return KVT_OK;
}

static bool is_blank(const struct line *line)
{
	for (size_t i = 0; i < line->n; i++)
		if (!strchr(" \t\r", line->text[i]) || !line->text[i])
			return false;
	return true;
}

static enum kvt_status replay_line(struct replay *r, const struct line *text)
{
	struct kvt_log_line line;
	enum kvt_status status;
	char name[300];

	snprintf(name, sizeof(name), "%.250s: line %" PRId64, r->name, r->line);
	if ((status = kvt_log_parse(&line, text->text, text->n, name, r->err)))
		return status;
	status = take_line(r, &line);
	kvt_log_free(&line);
	return status;
}

enum kvt_status workers_replay(struct workers_totals *out, FILE *in, const char *name,
			       const struct workers_listener *listener,
			       struct kvt_error *err)
{
	struct replay r = { .name = name, .tell = listener, .totals = out, .err = err,
			    .step = -1, .worker = -1 };
	struct line line = { NULL, 0, 0 };
	enum kvt_status status;
	bool more = true;

	*out = (struct workers_totals){ 0 };
	for (r.line = 1; !(status = read_line(&r, &line, &more, in)) && more; r.line++)
		if (!is_blank(&line) && (status = replay_line(&r, &line)))
			break;
	if (!status && !out->workers)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: nothing says how many workers there are", name);
	if (!status)
		report_incomplete(&r);
	free(line.text);
	replay_free(&r);
	return status;
}
