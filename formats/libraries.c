/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libraries.c - versions of what is loaded at run time
 *
 * Each library is asked itself, so the answer is of the one that runs; but HDF5, which
 * that would load or begin, is told by its headers where it is linked in, else by its
 * file.
 */
#include "formats/libraries.h"

#include <stdio.h>

#include <jansson.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#include "formats/hdf5/calls.h"

static void hdf5(struct kvt_library *l)
{
	/* asking would load or begin it; what is linked in is of its headers' version */
	if ((l->opened = kvt_h5_library()))
		return;
	l->major = H5_VERS_MAJOR;
	l->minor = H5_VERS_MINOR;
	l->patch = H5_VERS_RELEASE;
}

/* zstd and xxHash count alike: 10504 is 1.5.4. */
static void from_number(struct kvt_library *l, unsigned n)
{
	l->major = (int)(n / 10000);
	l->minor = (int)(n / 100 % 100);
	l->patch = (int)(n % 100);
}

static void zstd(struct kvt_library *l)
{
	from_number(l, ZSTD_versionNumber());
}

static void jansson(struct kvt_library *l)
{
	/* the library itself can tell since 2.13; its text is "2.14" */
	sscanf(jansson_version_str(), "%d.%d.%d", &l->major, &l->minor, &l->patch);
}

static void xxhash(struct kvt_library *l)
{
	from_number(l, XXH_versionNumber());
}

static void zlib(struct kvt_library *l)
{
	sscanf(zlibVersion(), "%d.%d.%d", &l->major, &l->minor, &l->patch);
}

static const struct {
	const char *name;
	void (*ask)(struct kvt_library *);
} libraries[] = {
	{ "HDF5", hdf5 },
	{ "zstd", zstd },
	{ "jansson", jansson },
	{ "xxHash", xxhash },
	{ "zlib", zlib },
};

bool kvt_library_at(struct kvt_library *out, int i)
{
	if (i < 0 || i >= (int)(sizeof(libraries) / sizeof(libraries[0])))
		return false;
	*out = (struct kvt_library){ .name = libraries[i].name };
	libraries[i].ask(out);
	return true;
}
