/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_workers.c - any text as a line of a log of workers: it is refused with a
 * reason, or all that it says can be read
 */
#include <stdint.h>
#include <stdlib.h>

#include "formats/log/workers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_event(const struct kvt_worker_event *event)
{
	bool head = event->kind == KVT_EVENT_HEAD;

	if (head ? event->workers < 1 : event->step < 0)
		abort();
	if (event->kind == KVT_EVENT_WORKER && event->worker < 0)
		abort();
	if (event->expected < 0)
		abort();
	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		for (size_t i = 0; i < event->nids[d]; i++)
			if (!event->ids[d][i][0])
				abort();
	for (size_t i = 0; i < event->nblocks; i++)
		if (event->blocks[i] < 0)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_error err = { "" };
	struct kvt_log_line line;

	if (kvt_log_parse(&line, (const char *)data, size, "line", &err)) {
		if (!err.text[0])
			abort();
		return 0;
	}
	check_event(&line.event);
	kvt_log_free(&line);
	return 0;
}
