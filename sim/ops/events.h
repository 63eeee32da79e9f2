/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.h - pending events of a replay, by time; private to replay.c
 *
 * What is due at one time is handled in the order in which it was pushed.
 */
#ifndef KVT_OPS_EVENTS_H
#define KVT_OPS_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

struct job;

enum event_kind {
	EVENT_PIECE,		/* of a request is ready */
	EVENT_POST,		/* a batch, if its rank is free */
	EVENT_EXPIRE,		/* the lease of a request */
	EVENT_DOWN, EVENT_UP,	/* a rail */
	EVENT_DEAD,		/* the peer */
};

struct event {
	int64_t at, serial;	/* serial: order of pushing */
	enum event_kind kind;
	int64_t request;
	struct job *job;	/* of EVENT_POST */
};

/* A binary heap, the next event first.  Empty if zeroed. */
struct events {
	struct event *heap;	/* owned */
	int64_t n, serial;
};

/* Sets the serial number; false when out of memory. */
bool events_push(struct events *events, struct event event);
struct event events_pop(struct events *events);	/* which must not be empty */
void events_free(struct events *events);

#endif
