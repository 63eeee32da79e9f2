/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libraries.h - which libraries formats/ runs with
 *
 * For --version: only formats/ may ask these libraries themselves.
 */
#ifndef KVT_LIBRARIES_H
#define KVT_LIBRARIES_H

#include <stdbool.h>

struct kvt_library {
	const char *name;		/* "HDF5" */
	int major, minor, patch;	/* of what runs, whatever the headers say */
	const char *opened;		/* or, instead: its file, opened when needed */
};

/* The i-th library; false past the last one. */
bool kvt_library_at(struct kvt_library *out, int i);

#endif
