/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot_write.c - writing a dump so that its name never shows half of one
 *
 * Everything is written under a temporary name in the same folder, made
 * durable, and only then given its own name.  Whatever goes wrong before that
 * leaves nothing behind and the old file as it was.
 */
#include "formats/format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum kvt_status system_error(struct kvt_error *err, const char *path,
				    const char *what)
{
	return kvt_fail(err, KVT_SYSTEM, "%s: cannot %s: %s", path, what,
			strerror(errno));
}

/* ---- names -------------------------------------------------------------- */

static bool ends_with(const char *s, const char *ending)
{
	size_t n = strlen(s), m = strlen(ending);

	return n > m && !strcmp(s + n - m, ending);
}

static enum kvt_status choose_format(const struct kvt_format **out,
				     const char *path, const char *name,
				     struct kvt_error *err)
{
	const struct kvt_format *f;

	if (name) {
		if (!(*out = kvt_format_find(name)))
			return kvt_fail(err, KVT_USAGE, "unknown format '%s'", name);
		if (!(*out)->create)
			return kvt_fail(err, KVT_UNSUPPORTED, "%s cannot be written",
					name);
		return KVT_OK;
	}
	for (int i = 0; (f = kvt_format_at(i)); i++)
		for (int j = 0; f->create && f->endings && f->endings[j]; j++)
			if (ends_with(path, f->endings[j])) {
				*out = f;
				return KVT_OK;
			}
	return kvt_fail(err, KVT_USAGE,
			"%s: cannot tell the format from the name; give it with --format",
			path);
}

/* The name without trailing slashes, then 'suffix'. */
static char *name_plus(const char *path, const char *suffix)
{
	size_t n = strlen(path), m = strlen(suffix);
	char *out = malloc(n + m + 1);

	while (n > 1 && path[n - 1] == '/')
		n--;
	if (!out)
		return NULL;
	memcpy(out, path, n);
	memcpy(out + n, suffix, m + 1);
	return out;
}

static char *sidecar_name(const char *path)
{
	const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
	char *out = name_plus(path, ".json");

	/* a dot that begins the name begins no ending */
	if (out && dot && dot > (slash ? slash + 1 : path))
		strcpy(out + (dot - path), ".json");
	return out;
}

static enum kvt_status choose_names(struct kvt_writer *w, const char *path,
				    struct kvt_error *err)
{
	char suffix[32];

	snprintf(suffix, sizeof(suffix), ".tmp-%ld", (long)getpid());
	w->path = name_plus(path, "");
	w->temporary = name_plus(path, suffix);
	if (w->path && w->format->sidecar) {
		w->sidecar = sidecar_name(w->path);
		w->sidecar_temporary = w->sidecar ? name_plus(w->sidecar, suffix) : NULL;
	}
	if (!w->path || !w->temporary || (w->format->sidecar && !w->sidecar_temporary))
		return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", path);
	if (w->sidecar && !strcmp(w->sidecar, w->path))
		return kvt_fail(err, KVT_USAGE,
				"%s: its manifest would have the same name", path);
	return KVT_OK;
}

/* ---- what may be written ------------------------------------------------ */

static bool empty_folder(const char *path)
{
	DIR *dir = opendir(path);
	bool empty = dir != NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			empty = false;
	if (dir)
		closedir(dir);
	return empty;
}

/* Is 'path' free, or may what is there be replaced? */
static enum kvt_status check_target(const struct kvt_writer *w, const char *path,
				    struct kvt_error *err)
{
	struct stat st;

	if (stat(path, &st)) {
		if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
			return system_error(err, path, "stat");
		if (lstat(path, &st))
			return KVT_OK;
	}
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: not a regular file, and %s needs one", path,
				w->format->info.name);
	if (!w->force)
		return kvt_fail(err, KVT_SYSTEM,
				"%s: exists; --force replaces it", path);
	if (S_ISDIR(st.st_mode) && !(w->format->directory && empty_folder(path)))
		return kvt_fail(err, KVT_SYSTEM, "%s: %s", path,
				w->format->directory ?
				"is a folder with something in it, which is never replaced" :
				"is a folder");
	if (!S_ISDIR(st.st_mode) && w->format->directory)
		return kvt_fail(err, KVT_SYSTEM, "%s: is not a folder", path);
	return KVT_OK;
}

/* Left by somebody else, or being written: not ours to touch. */
static enum kvt_status check_unused(const char *path, struct kvt_error *err)
{
	struct stat st;

	if (lstat(path, &st))
		return KVT_OK;
	return kvt_fail(err, KVT_SYSTEM, "%s: temporary file exists", path);
}

/* Streams under names of files: even where they lead to a file, it is open. */
static bool is_stream(const char *path)
{
	return !strcmp(path, "-") || !strcmp(path, "/dev/stdout") ||
	       !strcmp(path, "/dev/stderr") || !strncmp(path, "/dev/fd/", 8);
}

static enum kvt_status check_targets(const struct kvt_writer *w, struct kvt_error *err)
{
	enum kvt_status status;

	if (is_stream(w->path))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s needs a seekable file, not standard output",
				w->format->info.name);
	if ((status = check_target(w, w->path, err)) ||
	    (status = check_unused(w->temporary, err)))
		return status;
	if (w->sidecar && ((status = check_target(w, w->sidecar, err)) ||
			   (status = check_unused(w->sidecar_temporary, err))))
		return status;
	return KVT_OK;
}

/* ---- creating ----------------------------------------------------------- */

static enum kvt_status start(struct kvt_writer *w, const char *path,
			     const struct kvt_snapshot *info, struct kvt_error *err)
{
	enum kvt_status status;

	if ((status = kvt_snapshot_copy(&w->snapshot, info, err)) ||
	    (status = kvt_snapshot_complete(&w->snapshot, err)))
		return status;
	if (!w->format->nowhere) {
		if ((status = choose_names(w, path, err)))
			return status;
		if ((status = check_targets(w, err))) {
			/* what has these names is not ours to remove */
			free(w->temporary);
			w->temporary = NULL;
			return status;
		}
	}
	if ((status = w->format->create(w, err)))
		return status;
	for (int g = 0; g < w->snapshot.ngroups; g++)
		if ((status = kvt_flat_seal(&w->flat[g], &w->files,
					    &w->snapshot.group[g], err)))
			return status;
	return KVT_OK;
}

enum kvt_status kvt_create(struct kvt_writer **out, const char *path,
			   const struct kvt_create_options *options,
			   const struct kvt_snapshot *info, struct kvt_error *err)
{
	static const struct kvt_create_options defaults;
	const struct kvt_format *format = NULL;
	struct kvt_writer *writer;
	enum kvt_status status;

	if (!options)
		options = &defaults;
	if ((status = choose_format(&format, path, options->format, err)) ||
	    (status = kvt_snapshot_check(info, err)))
		return status;
	if (!(writer = calloc(1, sizeof(*writer))))
		return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", path);
	writer->format = format;
	writer->options = *options;
	writer->force = options->force;
	writer->behind = -1;
	kvt_snapshot_init(&writer->snapshot);
	if ((status = start(writer, path, info, err))) {
		kvt_close_writer(writer);
		return status;
	}
	if (!format->directory && !format->nowhere && !options->no_sync)
		writer->behind = open(writer->temporary, O_RDONLY | O_CLOEXEC);
	*out = writer;
	return KVT_OK;
}

/* ---- making durable ----------------------------------------------------- */

static enum kvt_status sync_path(const char *path, struct kvt_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	enum kvt_status status = KVT_OK;

	if (fd < 0)
		return system_error(err, path, "open");
	if (fsync(fd))
		status = system_error(err, path, "write to disk");
	close(fd);
	return status;
}

/* Folders of ours are no deeper than that. */
enum { MAX_DEPTH = 4 };

static enum kvt_status sync_folder(const char *path, int depth, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct dirent *entry;
	DIR *dir = opendir(path);
	struct stat st;
	char *name;

	if (!dir)
		return system_error(err, path, "open");
	while (!status && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (!(name = malloc(strlen(path) + strlen(entry->d_name) + 2))) {
			status = kvt_fail(err, KVT_SYSTEM, "%s: out of memory", path);
			break;
		}
		sprintf(name, "%s/%s", path, entry->d_name);
		if (lstat(name, &st))
			status = system_error(err, name, "stat");
		else if (S_ISDIR(st.st_mode) && depth > 0)
			status = sync_folder(name, depth - 1, err);
		else if (S_ISREG(st.st_mode))
			status = sync_path(name, err);
		free(name);
	}
	closedir(dir);
	return status ? status : sync_path(path, err);
}

static enum kvt_status sync_parent(const char *path, struct kvt_error *err)
{
	const char *slash = strrchr(path, '/');
	enum kvt_status status;
	char *parent;

	if (!slash)
		return sync_path(".", err);
	parent = strndup(path, slash == path ? 1 : (size_t)(slash - path));
	if (!parent)
		return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", path);
	status = sync_path(parent, err);
	free(parent);
	return status;
}

static enum kvt_status sync_all(const struct kvt_writer *w, struct kvt_error *err)
{
	enum kvt_status status = w->format->directory ?
		sync_folder(w->temporary, MAX_DEPTH, err) : sync_path(w->temporary, err);

	if (!status && w->sidecar)
		status = sync_path(w->sidecar_temporary, err);
	return status;
}

/* ---- giving the name ---------------------------------------------------- */

/*
 * rename() replaces what is there, so without force the name is made by
 * link(), which does not: somebody may have created it since kvt_create().
 */
static enum kvt_status publish(const struct kvt_writer *w, const char *from,
			       const char *to, struct kvt_error *err)
{
	if (!w->force && !w->format->directory) {
		if (!link(from, to)) {
			unlink(from);
			return KVT_OK;
		}
		if (errno == EEXIST)
			return kvt_fail(err, KVT_SYSTEM,
					"%s: created by somebody else meanwhile", to);
		/* no hard links on this file system: take the small risk */
	}
	if (rename(from, to))
		return system_error(err, to, "give the file this name");
	return KVT_OK;
}

/* Both names or none, as far as two renames can be one. */
static enum kvt_status publish_all(struct kvt_writer *w, struct kvt_error *err)
{
	enum kvt_status status;

	if (w->sidecar && (status = publish(w, w->sidecar_temporary, w->sidecar, err)))
		return status;
	status = publish(w, w->temporary, w->path, err);
	if (status && w->sidecar && !w->force)
		unlink(w->sidecar);
	return status;
}

enum kvt_status kvt_commit(struct kvt_writer *writer, struct kvt_error *err)
{
	enum kvt_status status = writer->format->finish(writer, err);

	if (writer->format->nowhere) {
		writer->committed = !status;
		return status;
	}
	if (!status && !writer->options.no_sync)
		status = sync_all(writer, err);
	if (status || (status = publish_all(writer, err)))
		return status;
	writer->committed = true;
	return writer->options.no_sync ? KVT_OK : sync_parent(writer->path, err);
}

/* ---- closing ------------------------------------------------------------ */

/* Only what this writer made, so that a mistake cannot empty somebody's folder. */
static void remove_folder(const struct kvt_writer *w)
{
	for (int64_t i = 0; i < w->files.count; i++)
		unlink(w->files.file[i].path);
	for (int64_t i = 0; i < w->files.count; i++) {
		char *path = w->files.file[i].path, *slash = strrchr(path, '/');

		/* up to the folder itself; those that hold more stay for now */
		while (slash && (size_t)(slash - path) > strlen(w->temporary)) {
			*slash = 0;
			if (rmdir(path))
				break;
			slash = strrchr(path, '/');
		}
	}
	rmdir(w->temporary);
}

static void remove_temporaries(const struct kvt_writer *w)
{
	if (!w->temporary)
		return;
	if (w->format->directory)
		remove_folder(w);
	else
		unlink(w->temporary);
	if (w->sidecar_temporary)
		unlink(w->sidecar_temporary);
}

void kvt_close_writer(struct kvt_writer *writer)
{
	if (!writer)
		return;
	if (writer->format->abandon)
		writer->format->abandon(writer);
	if (!writer->committed)
		remove_temporaries(writer);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		kvt_flat_free(&writer->flat[g]);
	kvt_files_close(&writer->files);
	if (writer->behind >= 0)
		close(writer->behind);
	kvt_snapshot_free(&writer->snapshot);
	free(writer->path);
	free(writer->temporary);
	free(writer->sidecar);
	free(writer->sidecar_temporary);
	free(writer);
}
