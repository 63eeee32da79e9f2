/* SPDX-License-Identifier: Apache-2.0 */
/* device_pool.h - what device.c and device_pool.c share */
#ifndef KVTOOL_DEVICE_POOL_H
#define KVTOOL_DEVICE_POOL_H

#include "lib/kvt/device.h"
#include "lib/run/device.h"

#include <pthread.h>

/* One stream a direction, and one between them. */
enum { UPLOAD, KERNEL, DOWNLOAD, NSTREAMS };

/*
 * Memory of a set: what a copy reads, what it writes, and what stays from one
 * copy to the next.
 */
enum { FROM, TO, KEPT, NAREAS };

struct buffer_set {
	struct buffer_set *next;	/* in the list of free ones */
	void *area[NAREAS];
	void *after[NSTREAMS];		/* events: what this set had done there */
	const uint8_t *held;		/* the host's bytes that KEPT has; or NULL */
	int64_t held_bytes;
};

enum { MOST_SETS = 64 };

struct kvt_device_pool {
	struct kvt_device *gpu;
	struct kvt_run run;		/* whom to tell */
	char spec[16];
	bool automatic, gone;
	void *stream[NSTREAMS];
	int64_t room;			/* of an area */
	int nsets;
	struct buffer_set set[MOST_SETS];
	pthread_mutex_t lock;		/* of what follows */
	pthread_cond_t given;
	struct buffer_set *free;
	int64_t nbytes;
};

/* Waits until one is free. */
struct buffer_set *set_take(struct kvt_device_pool *device);
void set_give(struct kvt_device_pool *device, struct buffer_set *set);

#endif
