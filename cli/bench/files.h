/* SPDX-License-Identifier: Apache-2.0 */
/* files.h - how fast whole commands are here, on files in a folder */
#ifndef KVTOOL_BENCH_FILES_H
#define KVTOOL_BENCH_FILES_H

#include <stddef.h>

#include "lib/kvt/run.h"

/* What one thread of one process takes. */
struct file_rates {
	double start_seconds;		/* a process that does nothing */
	double unit_seconds;		/* a result in a file, synced and named */
	/* of bytes of data, in a second */
	double digest, digest_hdf5, diff, fsck, fsck_hdf5, write, write_hdf5;
};

/* Writes two files of 'nbytes' into the folder, times commands on them, removes them. */
KVT_MUST_CHECK enum kvt_status
bench_files(struct file_rates *out, const char *folder, int64_t nbytes, int rounds,
	    struct kvt_error *err);

/* The fields, for who prints and reads them; NULL past the last. */
struct file_rate {
	const char *key;
	size_t offset;			/* of a double */
};
const struct file_rate *file_rate_at(int i);
static inline double *file_rate_of(struct file_rates *rates, const struct file_rate *r)
{
	return (double *)(void *)((char *)rates + r->offset);
}

#endif
