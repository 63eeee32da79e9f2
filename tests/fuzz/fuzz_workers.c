/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_workers.c - any text as a line of a log of workers: it is refused with a
 * reason, or all that it says can be read
 */
#include <stdint.h>
#include <stdlib.h>

#include "formats/log/workers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(const struct kvt_log_line *line)
{
	bool head = line->kind == KVT_LOG_HEAD;

	if (head ? line->workers < 1 : line->step < 0)
		abort();
	if (line->kind == KVT_LOG_WORKER && line->worker < 0)
		abort();
	if (line->expected < 0)
		abort();
	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		for (size_t i = 0; i < line->nids[d]; i++)
			if (!kvt_log_id(line, (enum kvt_direction)d, i)[0])
				abort();
	for (size_t i = 0; i < line->nblocks; i++)
		if (kvt_log_block(line, i) < 0)
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
	check_line(&line);
	kvt_log_free(&line);
	return 0;
}
