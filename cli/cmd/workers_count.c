/* SPDX-License-Identifier: Apache-2.0 */
/* workers_count.c - countdowns of requests, and who has reported */
#include "lib/ops/workers/workers_impl.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 1 << 24 };

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

struct entry *workers_entry(const struct replay *r, const char *id,
			    enum kvt_direction direction)
{
	return r->room ? *find_slot(r, id, direction) : NULL;
}

static enum kvt_status grow(struct replay *r)
{
	struct replay larger = *r;

	if (r->nentries >= MAX_ENTRIES)
		return kvt_fail(r->err, KVT_UNSUPPORTED,
				"%s: line %lld: more than %d requests", r->name,
				LL(r->line), MAX_ENTRIES);
	if (r->room && r->nentries < r->room / 2)
		return KVT_OK;
	larger.room = r->room ? r->room * 2 : 64;
	larger.slot = calloc(larger.room, sizeof(*larger.slot));
	if (!larger.slot)
		return workers_no_memory(r);
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
		return workers_no_memory(r);
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
		return workers_no_memory(r);
	if (e->countdown.left == 0) {
		memset(e->from, 0, nbytes);
		e->since = r->step;
	}
	if (e->from[r->worker / 8] & bit && e->countdown.expected <= r->totals->workers)
		workers_problem(r, PROBLEM_REPEATED, r->worker, e->id,
			"%s of '%.100s': worker %lld reports it twice, which counts for a worker that did not",
			kvt_direction_name(e->direction), e->id, LL(r->worker));
	e->from[r->worker / 8] |= bit;
	return KVT_OK;
}

static enum kvt_status emit(struct replay *r, struct entry *e)
{
	if (r->nemitted == r->emitted_room) {
		size_t room = r->emitted_room ? r->emitted_room * 2 : 64;
		struct entry **more = realloc(r->emitted, room * sizeof(*more));

		if (!more)
			return workers_no_memory(r);
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

enum kvt_status workers_report(struct replay *r, const char *id,
			       enum kvt_direction direction)
{
	struct entry *e;
	enum kvt_status status;

	if (r->dropped) {
		workers_problem(r, PROBLEM_LOST, r->worker, id,
			"%s of '%.100s': worker %lld reports it in a step without output, where nothing is counted",
			kvt_direction_name(direction), id, LL(r->worker));
		return KVT_OK;
	}
	if ((status = entry_of(&e, r, id, direction)))
		return status;
	if (e->countdown.rounds && !e->countdown.left)
		workers_problem(r, PROBLEM_EXCEEDED, r->worker, id,
			"%s of '%.100s': worker %lld reports it, but %lld of %lld had by step %lld",
			kvt_direction_name(direction), id, LL(r->worker),
			LL(e->countdown.expected), LL(e->countdown.expected),
			LL(e->finished));
	if ((status = note_worker(r, e)))
		return status;
	return kvt_countdown_report(&e->countdown, r->expected) ? emit(r, e) : KVT_OK;
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
			used += (size_t)snprintf(out + used, size - used, "%s%lld", used ?
						 ", " : "; none of worker ", LL(w));
		else
			others++;
	}
	if (others)
		snprintf(out + used, size - used, " and %lld more", LL(others));
}

void workers_incomplete(struct replay *r)
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
	if (n)
		qsort(r->slot, n, sizeof(*r->slot), by_step);
	for (size_t i = 0; i < n; i++) {
		const struct entry *e = r->slot[i];

		if (!e->countdown.left)
			continue;
		list_silent(silent, sizeof(silent), r, e);
		workers_problem(r, PROBLEM_INCOMPLETE, -1, e->id,
			"%s of '%.100s': %lld of %lld reports since step %lld%s",
			kvt_direction_name(e->direction), e->id,
			LL(e->countdown.expected - e->countdown.left),
			LL(e->countdown.expected), LL(e->since), silent);
	}
}

void workers_free(struct replay *r)
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
	free(r->invalid.slot);
}

