/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.c - the type of a model's weights, where its config.json does not say
 *
 * The header of a .safetensors file beside it names the type of each tensor.  Taken is
 * the one that most bytes of floating point have: norms are float32 in many models, and
 * quantised weights are no type that a model runs in.
 */
#include "formats/file/tree.h"
#include "formats/model/beside.h"
#include "formats/parse/json.h"
#include "lib/base/little_endian.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 << 20 };

static const struct {
	const char *in_file, *name;
} types[] = { { "BF16", "bfloat16" }, { "F16", "float16" }, { "F32", "float32" } };
enum { NTYPES = sizeof(types) / sizeof(types[0]) };

/* Bytes of the data that an entry spans; 0: it is none of a tensor. */
static double span_of(const json_t *entry)
{
	const json_t *at = json_object_get(entry, "data_offsets");

	return json_number_value(json_array_get(at, 1)) -
	       json_number_value(json_array_get(at, 0));
}

static const char *most_of(const json_t *header)
{
	double sum[NTYPES] = { 0 }, most = 0;
	const char *key, *found = NULL;
	const json_t *entry;

	json_object_foreach((json_t *)header, key, entry) {
		const char *type = json_string_value(json_object_get(entry, "dtype"));

		for (int i = 0; type && i < NTYPES; i++)
			if (!strcmp(type, types[i].in_file))
				sum[i] += span_of(entry);
	}
	for (int i = 0; i < NTYPES; i++)
		if (sum[i] > most) {
			most = sum[i];
			found = types[i].name;
		}
	return found;
}

static const char *type_in(const struct kvt_file *file)
{
	uint8_t length[8];
	struct kvt_error why;
	const char *found = NULL;
	json_t *root = NULL;
	int64_t n;
	char *text;

	if (file->nbytes < 8 || kvt_file_pread(file, length, 8, 0, &why))
		return NULL;
	if (kvt_le64(length) > MOST ||
	    (n = (int64_t)kvt_le64(length)) > file->nbytes - 8 ||
	    !(text = malloc((size_t)n + 1)))
		return NULL;
	if (!kvt_file_pread(file, text, n, 8, &why) &&
	    !kvt_json_parse(&root, text, (size_t)n, file->path, &why))
		found = most_of(root);
	json_decref(root);
	free(text);
	return found;
}

const char *kvt_weights_type(const char *folder, char file[static 256])
{
	char path[PATH_MAX];
	struct kvt_files files = { .count = 0 };
	const char *found = NULL;
	struct kvt_error why;
	struct dirent *entry;
	DIR *dir = opendir(folder);
	int index;

	/* the first by name: which one a folder lists first is chance */
	for (file[0] = '\0'; dir && (entry = readdir(dir));)
		if (kvt_path_ends(entry->d_name, ".safetensors") &&
		    strlen(entry->d_name) < 256 &&
		    (!file[0] || strcmp(entry->d_name, file) < 0))
			snprintf(file, 256, "%s", entry->d_name);
	if (dir)
		closedir(dir);
	if (!file[0] || snprintf(path, sizeof(path), "%s/%s", folder, file) >= PATH_MAX)
		return NULL;
	if (!kvt_files_open(&files, &index, path, &why))
		found = type_in(&files.file[index]);
	kvt_files_close(&files);
	return found;
}
