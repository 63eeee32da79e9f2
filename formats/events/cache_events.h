/* SPDX-License-Identifier: Apache-2.0 */
/* cache_events.h - recordings of what engines publish of their prefix caches */
#ifndef KVT_CACHE_EVENTS_H
#define KVT_CACHE_EVENTS_H

#include "lib/transfer/cache_event.h"

typedef enum kvt_status kvt_cache_event_fn(void *context,
					   const struct kvt_cache_event *event,
					   struct kvt_error *err);

/*
 * Hands each event to 'take', in order; each batch begins with one of KVT_CACHE_BATCH.
 * What an event points at may be read during the call.  A failure, also that of 'take',
 * ends the reading and is told with the line, or the byte, of the batch.
 */
KVT_MUST_CHECK enum kvt_status
kvt_cache_events_read(const char *bytes, size_t nbytes, const char *name,
		      kvt_cache_event_fn *take, void *context, struct kvt_error *err);

#endif
