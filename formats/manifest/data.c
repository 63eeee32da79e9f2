/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.c - the data of a manifest that was named instead of it
 *
 * A manifest may say the name of its file; else it lies where kvt_open() of one file
 * looks for it first, or second.  Of two such files neither is taken: to guess would be
 * to describe data with another's words.
 */
#define _GNU_SOURCE		/* asprintf */
#include "formats/manifest/manifest.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/file/tree.h"

/* In the folder of the manifest, where its file would be; NULL: out of memory. */
static char *beside(const char *path, const char *name)
{
	int folder = (int)(kvt_path_base(path) - path);
	char *out;

	return asprintf(&out, "%.*s%s", folder, path, name) < 0 ? NULL : out;
}

/* ---- by its name ---------------------------------------------------------- */

struct search {
	const char *path;		/* of the manifest */
	const struct kvt_hints *hints;
	kvt_manifest_question *is_of;
	int which;			/* of the two names of a manifest */
	char *found[2];			/* the second only to be told of */
};

/* Names that begin as the manifest's does are the only ones that can be. */
static bool may_be(const char *name, const char *path)
{
	const char *base = kvt_path_base(path);
	size_t stem = strlen(base) - strlen(".json");

	return !strncmp(name, base, stem) && (!name[stem] || name[stem] == '.');
}

static enum kvt_status offer(struct search *s, const char *name, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	char *file, *manifest;

	if (s->found[1] || !may_be(name, s->path))
		return KVT_OK;
	file = beside(s->path, name);
	manifest = file ? kvt_manifest_name(file, s->which) : NULL;
	if (manifest && !strcmp(manifest, s->path) && s->is_of(s->path, file, s->hints)) {
		s->found[s->found[0] != NULL] = file;
		file = NULL;
	}
	if (!manifest)
		status = kvt_no_memory(err, s->path);
	free(file);
	free(manifest);
	return status;
}

static enum kvt_status search(struct search *s, struct kvt_error *err)
{
	char *folder = beside(s->path, ".");
	DIR *dir = folder ? opendir(folder) : NULL;
	enum kvt_status status = KVT_OK;
	const struct dirent *entry;

	if (!folder)
		status = kvt_no_memory(err, s->path);
	/* of a folder that cannot be listed nothing is known: none is found */
	while (dir && !status && (entry = readdir(dir)))
		status = offer(s, entry->d_name, err);
	if (dir)
		closedir(dir);
	free(folder);
	return status;
}

/* ---- of what it says ------------------------------------------------------ */

static enum kvt_status no_data(const struct kvt_manifest *m, const struct search *s,
			       struct kvt_error *err)
{
	if (s->found[1])
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: is the manifest of %.200s or %.200s, by its name; name the one that is meant",
				s->path, s->found[0], s->found[1]);
	if (m->file[0])
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: is the manifest of %.100s, which is not beside it; name the data, with --manifest=%s",
				s->path, kvt_path_base(m->file), s->path);
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: is a manifest and does not say of which file; name the data, with --manifest=%s",
			s->path, s->path);
}

/* What has another name now must prove that it is the one that was meant. */
static enum kvt_status choose(char **out, const struct kvt_manifest *m, struct search *s,
			      struct kvt_error *err)
{
	char *named = m->file[0] ? beside(s->path, kvt_path_base(m->file)) : NULL;
	enum kvt_status status = KVT_OK;
	struct stat st;

	if (m->file[0] && !named)
		return kvt_no_memory(err, s->path);
	if (named && !stat(named, &st) && strcmp(named, s->path) != 0) {
		*out = named;
		return KVT_OK;
	}
	free(named);
	for (; !status && s->which < 2 && !s->found[0]; s->which++)
		status = search(s, err);
	if (status)
		return status;
	if (s->found[0] && !s->found[1] && (!m->file[0] || m->sum.crc32 >= 0)) {
		*out = s->found[0];
		s->found[0] = NULL;
	} else if (s->found[0] || m->file[0] || m->has_layout) {
		status = no_data(m, s, err);
	}
	return status;
}

/* Of a name that ends so; what has a manifest is data, whatever it is called. */
static enum kvt_status may_be_manifest(bool *out, const char *path, struct kvt_error *err)
{
	char *own = kvt_manifest_name(path, 0);
	struct stat st;

	if (!own)
		return kvt_no_memory(err, path);
	*out = kvt_path_ends(path, ".json") && stat(own, &st);
	free(own);
	return KVT_OK;
}

enum kvt_status kvt_manifest_data(char **out, const char *path,
				  const struct kvt_hints *hints,
				  kvt_manifest_question *is_of, struct kvt_error *err)
{
	struct search s = { .path = path, .hints = hints, .is_of = is_of };
	struct kvt_manifest m;
	enum kvt_status status;
	struct kvt_error why;
	bool may = false;
	char *name;

	*out = NULL;
	if (hints && (hints->format || hints->manifest))
		return KVT_OK;
	if ((status = may_be_manifest(&may, path, err)) || !may)
		return status;
	if (!(name = strdup(path)))
		return kvt_no_memory(err, path);
	if (kvt_manifest_read(&m, name, &why))
		return KVT_OK;
	status = choose(out, &m, &s, err);
	kvt_manifest_free(&m);
	free(s.found[0]);
	free(s.found[1]);
	return status;
}
