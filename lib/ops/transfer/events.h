/* SPDX-License-Identifier: Apache-2.0 */
/* events.h - what is to happen, by time; for sim_serve.c */
#ifndef KVTOOL_SIM_EVENTS_H
#define KVTOOL_SIM_EVENTS_H

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
	int64_t at, serial;	/* serial: the order of what is at one time */
	enum event_kind kind;
	int64_t request;
	struct job *job;	/* of EVENT_POST */
};

/* A heap, the next event first.  Zeroed where nothing is to happen. */
struct events {
	struct event *heap;	/* owned */
	int64_t n, room, serial;
};

/* Sets the serial number; false when out of memory. */
bool events_push(struct events *events, struct event event);
struct event events_pop(struct events *events);
void events_free(struct events *events);

#endif
