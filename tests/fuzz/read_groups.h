/* SPDX-License-Identifier: Apache-2.0 */
/* read_groups.h - what was accepted can be read, all of it, or has a wrong checksum */
#ifndef KVT_TESTS_FUZZ_READ_GROUPS_H
#define KVT_TESTS_FUZZ_READ_GROUPS_H

#include <stdlib.h>
#include <string.h>

#include "lib/kvt/write.h"

/* Aborts where it cannot; leaves out what is larger than 'most' bytes or in tiles. */
static inline void read_groups(struct kvt_dump *reader, int64_t most)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(reader);
	struct kvt_error err;

	if (kvt_snapshot_check(s, &err))
		abort();
	for (int g = 0; g < s->ngroups; g++) {
		struct kvt_box box = kvt_box_whole(&s->group[g].shape);
		int64_t nbytes;
		void *buf;

		if (kvt_shape_nbytes(&nbytes, &s->group[g].shape, &err))
			abort();
		if (nbytes > most || kvt_dump_tiling(reader, g))
			continue;
		buf = malloc((size_t)nbytes + 1);
		if (kvt_dump_read(reader, g, &box, NULL, buf, &err) &&
		    !strstr(err.text, "its CRC-32 is"))
			abort();
		free(buf);
	}
}

#endif
