/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connector_scan.c - what lies in a connector folder; nothing outside it is touched
 *
 *	DUMP/REQUEST/LAYER.safetensors		a folder of requests, or
 *	DUMP/LAYER.safetensors			that of one; each has the same layers
 *
 * In: a folder.  Out: names of its files without the ending, and of its folders, both
 * sorted, so that no order depends on the file system.  lstat() alone looks at an entry:
 * a link named like a layer is refused, other files and hidden ones are passed over.
 */
#include "formats/vllm/connector.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/grow.h"
#include "lib/base/order.h"

enum { MAX_ENTRIES = 1 << 16 };

static const char ending[] = ".safetensors";

void kvt_connector_names_free(struct kvt_connector_names *names)
{
	for (int64_t i = 0; i < names->count; i++)
		free(names->name[i]);
	free(names->name);
	*names = (struct kvt_connector_names){ 0 };
}

static enum kvt_status add(struct kvt_connector_names *names, const char *name,
			   size_t length, const char *path, struct kvt_error *err)
{
	int64_t n = names->count;
	char *copy;

	if (n == MAX_ENTRIES)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has more than %d entries, which no dump has", path, MAX_ENTRIES);
	if (!KVT_GROW(&names->name, n))
		return kvt_no_memory(err, path);
	if (!(copy = strndup(name, length)))
		return kvt_no_memory(err, path);
	names->name[names->count++] = copy;
	return KVT_OK;
}

static enum kvt_status look(struct kvt_connector_names *tensors,
			    struct kvt_connector_names *folders, const char *folder,
			    const char *name, struct kvt_error *err)
{
	size_t n = strlen(name), m = strlen(ending);
	bool tensor = kvt_path_ends(name, ending);
	char *path = kvt_path_join(folder, name, "");
	enum kvt_status status = KVT_OK;
	struct stat st;

	if (!path)
		return kvt_no_memory(err, folder);
	if (lstat(path, &st))
		status = kvt_fail(err, KVT_SYSTEM, "%s: cannot stat: %s", path,
				  strerror(errno));
	else if (tensor && !S_ISREG(st.st_mode))
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: is not a regular file; links are refused", path);
	else if (tensor)
		status = add(tensors, name, n - m, folder, err);
	else if (S_ISDIR(st.st_mode))
		status = add(folders, name, n, folder, err);
	free(path);
	return status;
}

static void sort(struct kvt_connector_names *names)
{
	if (names->count)
		qsort(names->name, (size_t)names->count, sizeof(*names->name),
		      kvt_by_name);
}

enum kvt_status kvt_connector_scan(struct kvt_connector_names *tensors,
				   struct kvt_connector_names *folders,
				   const char *path, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct dirent *entry;
	DIR *dir = opendir(path);

	*tensors = *folders = (struct kvt_connector_names){ 0 };
	if (!dir && errno == ENOTDIR)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: is not a folder", path);
	if (!dir)
		return kvt_fail(err, KVT_SYSTEM, "%s: cannot open: %s", path,
				strerror(errno));
	while (!status && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && !kvt_stage_is_one(entry->d_name))
			status = look(tensors, folders, path, entry->d_name, err);
	closedir(dir);
	if (status) {
		kvt_connector_names_free(tensors);
		kvt_connector_names_free(folders);
		return status;
	}
	sort(tensors);
	sort(folders);
	return KVT_OK;
}
