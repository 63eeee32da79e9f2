/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.c - the folders of an output that is one, as they are made
 *
 * A writer lists them, so that what is not published can go away again without a
 * mistake emptying somebody's folder.
 */
#include "formats/format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/grow.h"

enum kvt_status kvt_writer_folder(struct kvt_writer *w, const char *path,
				  struct kvt_error *err)
{
	char *own;

	/* nothing is made that nobody remembers */
	if (!KVT_GROW(&w->folder, w->nfolders) || !(own = strdup(path)))
		return kvt_no_memory(err, path);
	if (!mkdir(path, 0777)) {
		w->folder[w->nfolders++] = own;
		return KVT_OK;
	}
	free(own);
	return errno == EEXIST ? KVT_OK :
	       kvt_fail(err, KVT_SYSTEM, "%s: cannot create: %s", path, strerror(errno));
}

void kvt_writer_remove_folders(const struct kvt_writer *w)
{
	for (int64_t i = 0; i < w->files.count; i++)
		unlink(w->files.file[i].path);
	for (int64_t i = w->nfolders - 1; i >= 0; i--)
		rmdir(w->folder[i]);
}
