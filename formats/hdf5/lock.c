/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock.c - one thread in HDF5 at a time, in the whole process
 *
 * Debian's library is built without thread safety, and its error handler is one for
 * all.  Every function that a format gives to the engine enters here before its first
 * call and leaves after its last; nothing called in between goes back up, so this lock
 * is always the innermost.
 */
#include "formats/hdf5/hdf5.h"

#include <pthread.h>

static pthread_mutex_t entered = PTHREAD_MUTEX_INITIALIZER;

struct kvt_h5_entry kvt_h5_enter(void)
{
	struct kvt_h5_entry entry = { NULL, NULL };

	pthread_mutex_lock(&entered);
	/*
	 * A file that could not be closed, for a full disk, crashes libhdf5 1.10
	 * when it cleans up at exit.  All that must be closed we close.
	 */
	H5dont_atexit();
	H5Eget_auto2(H5E_DEFAULT, &entry.function, &entry.data);
	/* without memory its first call fails, and it would print for ever */
	if (H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0)
		H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	return entry;
}

void kvt_h5_leave(const struct kvt_h5_entry *entry)
{
	H5Eset_auto2(H5E_DEFAULT, entry->function, entry->data);
	pthread_mutex_unlock(&entered);
}
