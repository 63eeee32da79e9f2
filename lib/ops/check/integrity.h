/* SPDX-License-Identifier: Apache-2.0 */
/* integrity.h - is the data of a group what was written? */
#ifndef KVT_INTEGRITY_H
#define KVT_INTEGRITY_H

#include "lib/kvt/run.h"
#include "lib/kvt/dump.h"
#include "lib/ops/numbers/numbers.h"

/* The first are kept to be named, the rest is counted. */
enum { KVT_MAX_DAMAGES = 16 };
struct kvt_damage {
	int64_t at[KVT_NAXES];		/* the first element of it */
	bool damaged;			/* else: sound, but not what its cell says */
	char text[200];
};

struct kvt_integrity {
	int64_t tiles, damaged;		/* tiles 0: 'damaged' counts blocks of a layer */
	int64_t cells, differing;	/* content cells that were compared */
	int nfound;
	struct kvt_damage found[KVT_MAX_DAMAGES];
};

/*
 * Reads all data of the group.  Damage is a result and no failure; a failure is that
 * of reading, and of a file without checksums that cannot be decoded.  'path' is what
 * messages of the dump begin with; damage is told without it.  'looking' sees what is
 * not damaged; NULL: nobody looks.
 */
KVT_MUST_CHECK enum kvt_status
kvt_check_integrity(struct kvt_integrity *out, struct kvt_dump *dump, int group,
		    const char *path, struct kvt_looking *looking,
		    const struct kvt_run *run, struct kvt_error *err);

/* The checksum that stored data of a group has, the one that sees most; NULL: none. */
const char *kvt_checksum_name(const struct kvt_dump *dump, int group);

/* A message without the path that it begins with: who tells it names the file. */
const char *kvt_without_path(const char *text, const char *path);

#endif
