/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.c - pending events by time, as a binary heap
 *
 * Entry i is not later than its children 2 i + 1 and 2 i + 2, so the first is the next.
 * Events of one time come in the order in which they were pushed, by a serial number: a
 * replay gives the same at every run.
 */
#include "sim/ops/events.h"

#include <stdlib.h>

#include "lib/base/grow.h"

static bool sooner(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->serial < b->serial;
}

bool events_push(struct events *events, struct event e)
{
	int64_t i = events->n;

	if (!KVT_GROW(&events->heap, i))
		return false;
	e.serial = events->serial++;
	events->n++;
	for (; i && sooner(&e, &events->heap[(i - 1) / 2]); i = (i - 1) / 2)
		events->heap[i] = events->heap[(i - 1) / 2];
	events->heap[i] = e;
	return true;
}

struct event events_pop(struct events *events)
{
	struct event *heap = events->heap, first = heap[0], last = heap[--events->n];
	int64_t i = 0, child;

	while ((child = 2 * i + 1) < events->n) {
		if (child + 1 < events->n && sooner(&heap[child + 1], &heap[child]))
			child++;
		if (!sooner(&heap[child], &last))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = last;
	return first;
}

void events_free(struct events *events)
{
	free(events->heap);
	*events = (struct events){ 0 };
}
