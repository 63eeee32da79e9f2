/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - an open file and what is kept of it, for readers and writers */
#include "formats/hdf5/hdf5.h"

#include <stdlib.h>

struct kvt_h5_file *kvt_h5_file_new(void)
{
	struct kvt_h5_file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	file->driver = file->file = -1;
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		file->group[g].data[0] = file->group[g].data[1] =
			file->group[g].cells = -1;
	return file;
}

/* Closing the file closes every object in it. */
void kvt_h5_file_free(struct kvt_h5_file *file)
{
	struct kvt_h5_entry entry;

	if (!file)
		return;
	entry = kvt_h5_enter();
	if (file->file >= 0)
		H5Fclose(file->file);
	kvt_h5_drop(file->driver);
	kvt_h5_leave(&entry);
	kvt_proof_free(&file->proof);
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		free(file->group[g].sum[0]);
		free(file->group[g].sum[1]);
	}
	free(file);
}
