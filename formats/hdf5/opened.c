/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opened.c - the table of HDF5's functions, filled when the first file asks for it
 *
 * KVT_HDF5_LIBRARY is the name that the linker would have noted: of the headers that this
 * was compiled with.  It stays open; if the process has it already, that one is used.
 */
#define KVT_H5_TABLE
#include "formats/hdf5/calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define NAME(name) #name,

struct kvt_h5_calls kvt_h5;

static char missing[400];		/* why it is not there; "": it is */

const char *kvt_h5_library(void)
{
	return KVT_HDF5_LIBRARY;
}

/*
 * A program that is linked with HDF5 may have copies of its ids, which the library then
 * uses, too: those that it has itself stay as they were before it began.
 */
static hid_t *in_use(void *program, hid_t *own, const char *name)
{
	hid_t *copy = *own < 0 && program ? dlsym(program, name) : NULL;

	return copy ? copy : own;
}

static void find_ids(void)
{
	void *program = dlopen(NULL, RTLD_NOW);

	kvt_h5.H5dont_atexit();		/* see lock.c */
	if (kvt_h5.H5open() < 0)
		snprintf(missing, sizeof(missing), "%s: cannot begin", KVT_HDF5_LIBRARY);
#define FIND(name) kvt_h5.name = in_use(program, kvt_h5.name, #name);
	KVT_H5_IDS(FIND)
	if (program)
		dlclose(program);
}

static void fill(void)
{
	static const char *const names[] = { KVT_H5_FUNCTIONS(NAME) KVT_H5_IDS(NAME) };
	enum { N = sizeof(names) / sizeof(names[0]) };
	void *found[N], *library = dlopen(KVT_HDF5_LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(missing, sizeof(missing), "%s", dlerror());
		return;
	}
	for (int i = 0; i < N; i++) {
		found[i] = dlsym(library, names[i]);
		if (found[i])
			continue;
		snprintf(missing, sizeof(missing), "%s has no %s", KVT_HDF5_LIBRARY,
			 names[i]);
		return;
	}
	/* ISO C has no cast between pointers to objects and to functions */
	_Static_assert(sizeof(found) == sizeof(kvt_h5), "one pointer a name");
	memcpy(&kvt_h5, found, sizeof(found));
	find_ids();
}

enum kvt_status kvt_h5_load(const char *path, struct kvt_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, fill);
	if (!missing[0])
		return KVT_OK;
	return kvt_fail(err, KVT_UNSUPPORTED,
			"%s: HDF5 cannot be loaded: %.300s; on Debian libhdf5-dev brings it",
			path, missing);
}
