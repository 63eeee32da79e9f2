/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit.c - writing a dump so that its name never shows half of one
 *
 * Everything is written in a stage (stage.h), made durable, and only then given
 * its own name.  Whatever goes wrong before that leaves nothing behind and the old
 * file as it was.
 */
#include "formats/format.h"
#include "formats/stage.h"
#include "formats/file/tree.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names -------------------------------------------------------------- */

static enum kvt_status choose_format(const struct kvt_format **out, const char *path,
				     const char *name, struct kvt_error *err)
{
	struct kvt_text list = { "" };
	const struct kvt_format *f;
	size_t n = 0;

	if (name) {
		if (!(*out = kvt_format_find(name)))
			return kvt_format_unknown(name, err);
		if (!(*out)->create)
			return kvt_fail(err, KVT_UNSUPPORTED, "%s cannot be written",
					name);
		return KVT_OK;
	}
	for (int i = 0; (f = kvt_format_at(i)); i++)
		for (int j = 0; f->create && f->endings && f->endings[j]; j++) {
			if (kvt_path_ends(path, f->endings[j])) {
				*out = f;
				return KVT_OK;
			}
			n += (size_t)snprintf(list.s + n, sizeof(list.s) - n, "%s%s",
					      n ? ", " : "", f->endings[j]);
		}
	return kvt_fail(err, KVT_USAGE,
			"%s: no format has this ending (%s); give --format, see kvtool help formats",
			path, list.s);
}

enum kvt_status kvt_output_format(const struct kvt_format_info **out, const char *path,
				  const char *format, struct kvt_error *err)
{
	const struct kvt_format *found;
	enum kvt_status status = choose_format(&found, path, format, err);

	*out = status ? NULL : &found->info;
	return status;
}

enum kvt_status kvt_output_retype(struct kvt_dump **out, int from[KVT_MAX_GROUPS],
				  struct kvt_create_options *options, const char *path,
				  const struct kvt_dump *dump, const char *rotation,
				  struct kvt_error *err)
{
	const struct kvt_format *format;
	struct kvt_writer *writer;
	enum kvt_status status = choose_format(&format, path, options->format, err);

	if (status)
		return status;
	if (!format->retype)
		return kvt_fail(err, KVT_USAGE,
				"%s takes its types from no template; --cache-dtype=template goes with --format=ggsq or ggsn",
				format->info.name);
	if (!(writer = calloc(1, sizeof(*writer))))
		return kvt_no_memory(err, path);
	writer->format = format;
	writer->options = *options;
	status = kvt_snapshot_copy(&writer->head.snapshot, kvt_dump_snapshot(dump), err);
	if (!status)
		status = format->retype(out, from, writer, dump, rotation, err);
	options->key_order = writer->options.key_order;
	kvt_snapshot_free(&writer->head.snapshot);
	free(writer);
	return status;
}

const char *kvt_output_ending(const char *format)
{
	const struct kvt_format *f = kvt_format_find(format);

	return f && f->endings && f->endings[0] ? f->endings[0] : "";
}

static char *without_last_slashes(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	return strndup(path, n);
}

static enum kvt_status choose_names(struct kvt_writer *w, const char *path,
				    struct kvt_error *err)
{
	w->path = without_last_slashes(path);
	if (w->path && w->format->sidecar)
		w->sidecar = kvt_manifest_name(w->path, 0);
	if (!w->path || (w->format->sidecar && !w->sidecar))
		return kvt_no_memory(err, path);
	if (w->sidecar && kvt_path_ends(w->path, ".json"))
		return kvt_fail(err, KVT_USAGE,
				"%s: names that end in .json are for manifests; give the output another name",
				path);
	return KVT_OK;
}

/* ---- what may be written ------------------------------------------------ */

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
	status = kvt_stage_check(w->path, w->format->directory, w->options.force,
				 w->format->info.name, err);
	if (!status && w->sidecar)
		status = kvt_stage_check(w->sidecar, false, w->options.force,
					 w->format->info.name, err);
	if (!status && w->sidecar)
		status = kvt_sidecar_check(w->sidecar, w->path, err);
	return status;
}

static enum kvt_status open_stage(struct kvt_writer *w, struct kvt_error *err)
{
	enum kvt_status status = kvt_stage_open(&w->stage, w->path, w->sidecar,
						w->format->directory,
						w->options.force, err);

	if (status)
		return status;
	w->temporary = w->stage.file[0].file;
	w->sidecar_temporary = w->stage.file[1].file;
	return KVT_OK;
}

/* ---- making durable ----------------------------------------------------- */

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
		return kvt_fail_errno(err, path, "open");
	while (!status && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (!(name = malloc(strlen(path) + strlen(entry->d_name) + 2))) {
			status = kvt_no_memory(err, path);
			break;
		}
		sprintf(name, "%s/%s", path, entry->d_name);
		if (lstat(name, &st))
			status = kvt_fail_errno(err, name, "stat");
		else if (S_ISDIR(st.st_mode) && depth > 0)
			status = sync_folder(name, depth - 1, err);
		else if (S_ISREG(st.st_mode))
			status = kvt_sync_path(name, err);
		free(name);
	}
	closedir(dir);
	return status ? status : kvt_sync_path(path, err);
}

static enum kvt_status sync_all(const struct kvt_writer *w, struct kvt_error *err)
{
	enum kvt_status status = w->format->directory ?
		sync_folder(w->temporary, MAX_DEPTH, err) :
		kvt_sync_path(w->temporary, err);

	if (!status && w->sidecar)
		status = kvt_sync_path(w->sidecar_temporary, err);
	return status;
}

/* ---- the end ------------------------------------------------------------ */

/* What proves itself when it is opened must do so before it gets a name. */
static enum kvt_status open_again(const struct kvt_writer *writer, struct kvt_error *err)
{
	const struct kvt_hints hints = { .format = writer->format->info.name };
	struct kvt_error why = { "" };
	struct kvt_dump *again;

	if (kvt_open(&again, writer->temporary, &hints, &why))
		return kvt_fail(err, KVT_SYSTEM, "%s: cannot be read again: %.300s",
				writer->temporary, why.text);
	kvt_dump_close(again);
	return KVT_OK;
}

static enum kvt_status finish(struct kvt_writer *writer, struct kvt_error *err)
{
	enum kvt_status status;

	if (writer->finished)
		return KVT_OK;
	status = writer->format->finish(writer, err);
	/* virtual datasets are of other files, which the staged one does not find */
	if (!status && writer->format->open_again && !writer->options.nparts)
		status = open_again(writer, err);
	if (!status)
		status = kvt_files_finish(&writer->files, err);
	if (!status && !writer->format->nowhere && !writer->options.no_sync)
		status = sync_all(writer, err);
	writer->finished = !status;
	return status;
}

/* ---- closing ------------------------------------------------------------ */

static void close_writer(struct kvt_writer *writer)
{
	if (writer->format->abandon)
		writer->format->abandon(writer);
	if (writer->temporary && writer->format->directory && !writer->published)
		kvt_writer_remove_folders(writer);
	for (int64_t i = 0; i < writer->nfolders; i++)
		free(writer->folder[i]);
	free(writer->folder);
	kvt_stage_close(&writer->stage);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		kvt_flat_free(&writer->flat[g]);
	kvt_files_close(&writer->files);
	if (writer->behind >= 0)
		close(writer->behind);
	kvt_snapshot_free(&writer->head.snapshot);
	free((char *)(uintptr_t)writer->options.format);
	free(writer->use);
	free(writer->path);
	free(writer->sidecar);
	free(writer);
}

/* ---- a writer of files ---------------------------------------------------- */

static enum kvt_status place_tile(struct kvt_writer *writer, int group,
				  const int64_t begin[KVT_NAXES],
				  const struct kvt_stored *stored, int64_t *offset,
				  struct kvt_error *err)
{
	return writer->format->place_tile(writer, group, begin, stored, offset, err);
}

static bool has_cells(const struct kvt_writer *writer, int group)
{
	(void)group;
	return writer->format->store_cells && !writer->options.no_digest;
}

static enum kvt_status store_cells(struct kvt_writer *writer, int group,
				   const struct kvt_box *box, const uint64_t *cells,
				   struct kvt_error *err)
{
	return writer->format->store_cells(writer, group, box, cells, err);
}

static const struct kvt_writer_ops writer_ops = {
	.write_box = kvt_writer_box, .place_tile = place_tile,
	.write_tiles = kvt_writer_tiles, .has_cells = has_cells,
	.store_cells = store_cells, .finish = finish, .close = close_writer,
};

/* ---- creating ----------------------------------------------------------- */

static enum kvt_status start(struct kvt_writer *w, const char *path,
			     const struct kvt_snapshot *info, struct kvt_error *err)
{
	enum kvt_status status;

	if ((status = kvt_snapshot_copy(&w->head.snapshot, info, err)) ||
	    (status = kvt_snapshot_complete(&w->head.snapshot, err)))
		return status;
	if (!w->format->nowhere && ((status = choose_names(w, path, err)) ||
				    (status = check_targets(w, err)) ||
				    (status = open_stage(w, err))))
		return status;
	if ((status = w->format->create(w, err)))
		return status;
	for (int g = 0; g < w->head.snapshot.ngroups; g++)
		if ((status = kvt_flat_seal(&w->flat[g], &w->files,
					    &w->head.snapshot.group[g], err)))
			return status;
	return KVT_OK;
}

/* What a model goes on from must be numbers; an engine's pool has its scales. */
static enum kvt_status check_scales(const struct kvt_format *format,
				    const struct kvt_snapshot *s, struct kvt_error *err)
{
	if (format->info.keeps_scales || !(format->info.one_request ||
					   format->info.by_tokens))
		return KVT_OK;
	for (int g = 0; g < s->ngroups; g++)
		if (s->group[g].scales)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s keeps no scales, and those of group %s say what its numbers are; write numbers, such as with --cache-dtype=bfloat16",
					format->info.name, s->group[g].id);
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
	    (status = kvt_snapshot_check(info, err)) ||
	    (status = check_scales(format, info, err)))
		return status;
	if ((options->row_ranks || options->row_form) && !format->row_ranks)
		return kvt_fail(err, KVT_USAGE,
				"%s has no files of several ranks; --row-ranks and --row-form are only for offload",
				format->info.name);
	if (options->nparts && strcmp(format->info.name, "hdf5"))
		return kvt_fail(err, KVT_USAGE,
				"%s has no virtual datasets, as only hdf5 has; --one-file writes the data themselves",
				format->info.name);
	if ((options->template_path || options->context || options->key_order) &&
	    !format->info.by_tokens)
		return kvt_fail(err, KVT_USAGE,
				"%s is not a state of llama.cpp; --template, --context and --key-order go with --format=ggsq or ggsn",
				format->info.name);
	if (!(writer = calloc(1, sizeof(*writer))))
		return kvt_no_memory(err, path);
	writer->format = format;
	writer->head.ops = &writer_ops;
	writer->head.info = &format->info;
	writer->head.name = format->info.name;
	writer->options = *options;
	if (options->format)
		writer->options.format = strdup(options->format);
	writer->behind = -1;
	kvt_snapshot_init(&writer->head.snapshot);
	if (options->format && !writer->options.format)
		status = kvt_no_memory(err, path);
	else
		status = start(writer, path, info, err);
	if (status) {
		kvt_stage_retell(&writer->stage, err);
		kvt_close_writer(writer);
		return status;
	}
	if (writer->path)
		writer->head.name = writer->path;
	if (!format->directory && !format->nowhere && !options->no_sync)
		writer->behind = open(writer->temporary, O_RDONLY | O_CLOEXEC);
	*out = writer;
	return KVT_OK;
}

/* ---- publishing ---------------------------------------------------------- */

enum kvt_status kvt_publish(struct kvt_writer *const *writers, int n,
			    struct kvt_error *err)
{
	struct kvt_stage **stages = calloc((size_t)n + 1, sizeof(struct kvt_stage *));
	enum kvt_status status;
	bool sync = false;
	int nstages = 0;

	if (!stages)
		return kvt_no_memory(err, NULL);
	for (int i = 0; i < n; i++) {
		assert(writers[i]->finished);
		if (writers[i]->format->nowhere)
			continue;
		stages[nstages++] = &writers[i]->stage;
		sync |= !writers[i]->options.no_sync;
	}
	status = kvt_stage_publish(stages, nstages, sync, err);
	for (int i = 0; i < n; i++)
		writers[i]->published = writers[i]->format->nowhere ? !status :
			writers[i]->stage.file[0].state == KVT_DONE;
	free(stages);
	return status;
}

enum kvt_status kvt_commit(struct kvt_writer *writer, struct kvt_error *err)
{
	enum kvt_status status = kvt_finish(writer, err);

	return status ? status : kvt_publish(&writer, 1, err);
}

void kvt_writer_retell(const struct kvt_writer *writer, struct kvt_error *err)
{
	if (writer && !writer->published)
		kvt_stage_retell(&writer->stage, err);
}
