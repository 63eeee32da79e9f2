/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find.c - the manifest of a data file, among those that lie beside it
 *
 * Two names are looked for.  The first is the one that kvtool writes, and no two
 * data files with an ending have it in common; the second is what others may
 * have chosen, so that it can be another file's.
 */
#include "formats/manifest/manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_MANIFEST = 16 * 1024 * 1024 };

/* ---- names -------------------------------------------------------------- */

/* The length of a path without its last ending; a dot that begins a name is none. */
static size_t stem_of(const char *path)
{
	const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');

	return dot && dot > (slash ? slash + 1 : path) ? (size_t)(dot - path) :
							 strlen(path);
}

char *kvt_manifest_name(const char *path, int which)
{
	size_t whole = strlen(path), stem = stem_of(path);
	bool npy = !strcmp(path + stem, ".npy");
	size_t n = (which == 0) == npy ? stem : whole;
	char *out = malloc(n + sizeof(".json"));

	if (!out)
		return NULL;
	memcpy(out, path, n);
	strcpy(out + n, ".json");
	return out;
}

/* ---- reading ------------------------------------------------------------ */

/* Hints are left for when it is known whose manifest it is. */
enum kvt_status kvt_manifest_read(struct kvt_manifest *out, char *name,
				  struct kvt_error *err)
{
	int64_t nbytes = 0;
	char *text;
	enum kvt_status status = kvt_read_whole(&text, &nbytes, name, MAX_MANIFEST,
						 "a manifest", err);

	if (!status)
		status = kvt_manifest_parse(out, text, (size_t)nbytes, name, NULL, err);
	free(text);
	if (status)
		free(name);
	else
		out->path = name;
	return status;
}

/* Nothing but hints. */
static enum kvt_status hints_alone(struct kvt_manifest *out, const char *path,
				   struct kvt_error *err)
{
	struct kvt_group *group;
	enum kvt_status status;

	kvt_manifest_init(out);
	status = kvt_manifest_add_group(&group, &out->snapshot, "g0", path, err);
	if (status)
		kvt_manifest_free(out);
	return status;
}

/* ---- finding ------------------------------------------------------------ */

/* Reads it and holds it against the file; 'own' false: it is another file's. */
static enum kvt_status take(struct kvt_manifest *out, bool *own, char *name,
			    const struct kvt_file *data, const struct kvt_hints *hints,
			    struct kvt_error *err)
{
	enum kvt_status status = kvt_manifest_read(out, name, err);

	if (status)
		return status;
	if ((status = kvt_manifest_prove(out, own, data, hints, err)) || !*own)
		kvt_manifest_free(out);
	return status;
}

enum kvt_status kvt_manifest_there(bool *there, const char *name, struct kvt_error *err)
{
	struct stat st;

	*there = !stat(name, &st);
	if (*there || errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG)
		return KVT_OK;
	return kvt_fail(err, KVT_SYSTEM, "%s: %s", name, strerror(errno));
}

/* Of those beside the file the first that is its own. */
static enum kvt_status find(struct kvt_manifest *out, bool *found, bool *passed_over,
			    const struct kvt_file *data, const struct kvt_hints *hints,
			    struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	*found = *passed_over = false;

	for (int i = 0; !status && !*found && i < 2; i++) {
		char *name = kvt_manifest_name(data->path, i);
		bool there;

		if (!name)
			return kvt_no_memory(err, data->path);
		if ((status = kvt_manifest_there(&there, name, err)) || !there ||
		    !strcmp(name, data->path)) {
			free(name);
			continue;
		}
		status = take(out, found, name, data, hints, err);
		*passed_over |= !status && !*found;
	}
	return status;
}

static enum kvt_status find_told(struct kvt_manifest *out, bool *found,
				 const struct kvt_file *data,
				 const struct kvt_hints *hints, struct kvt_error *err)
{
	char *name = strdup(hints->manifest);

	if (!name)
		return kvt_no_memory(err, data->path);
	return take(out, found, name, data, hints, err);
}

enum kvt_status kvt_manifest_load(struct kvt_manifest *out, bool *found,
				  const struct kvt_file *data,
				  const struct kvt_hints *hints, struct kvt_error *err)
{
	bool passed_over = false;
	enum kvt_status status;

	status = hints && hints->manifest ?
		 find_told(out, found, data, hints, err) :
		 find(out, found, &passed_over, data, hints, err);
	if (status)
		return status;
	if (!*found && (status = hints_alone(out, data->path, err)))
		return status;
	out->passed_over = passed_over;
	status = kvt_manifest_hints(out, hints, *found ? out->path : data->path, err);
	if (status)
		kvt_manifest_free(out);
	return status;
}
