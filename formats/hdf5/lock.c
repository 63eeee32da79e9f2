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

/*
 * What HDF5 allocates when a thread first calls it is found by the id of the thread
 * alone, and is no loss: LeakSanitizer, if it is linked in, does not ask for that.
 */
#ifdef KVT_LSAN
#include <sanitizer/lsan_interface.h>
#else
#define __lsan_disable() ((void)0)
#define __lsan_enable()  ((void)0)
#endif

static pthread_mutex_t entered = PTHREAD_MUTEX_INITIALIZER;

struct kvt_h5_entry kvt_h5_enter(void)
{
	struct kvt_h5_entry entry = { NULL, NULL };

	pthread_mutex_lock(&entered);
	__lsan_disable();
	/*
	 * A file that could not be closed, for a full disk, crashes libhdf5 1.10
	 * when it cleans up at exit.  All that must be closed we close.
	 */
	H5dont_atexit();
	H5Eget_auto2(H5E_DEFAULT, &entry.function, &entry.data);
	/* without memory its first call fails, and it would print for ever */
	if (H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0)
		H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	__lsan_enable();
	return entry;
}

void kvt_h5_leave(const struct kvt_h5_entry *entry)
{
	H5Eset_auto2(H5E_DEFAULT, entry->function, entry->data);
	pthread_mutex_unlock(&entered);
}
