/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - a model out of what people have of it: a file, or a folder with one in it
 *
 * A folder is that of a model: config.json, params.json as Mistral publishes it, or a
 * GGUF; or the one that a hub's cache has of it, whose snapshots are such folders.
 */
#include "formats/file/reads.h"
#include "formats/file/tree.h"
#include "formats/format.h"
#include "formats/model/beside.h"
#include "formats/model/config.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16 << 20 };

static enum kvt_status parse(struct kvt_model_config *out, const char *text,
			     size_t nbytes, const char *name,
			     const struct kvt_config_hints *hints, struct kvt_error *err)
{
	struct kvt_error why;
	char *config = NULL;
	enum kvt_status status = kvt_params_text(&config, text, nbytes, name, &why);

	/* what is no JSON is refused by the one that says so best */
	if (status == KVT_UNSUPPORTED)
		return kvt_fail(err, status, "%s", why.text);
	if (config)
		status = kvt_model_config_parse(out, config, strlen(config), name, hints,
						err);
	else
		status = kvt_model_config_parse(out, text, nbytes, name, hints, err);
	free(config);
	return status;
}

/* Without a type in the file, that of the weights beside it. */
static void take_weights(struct kvt_model_config *out, const char *text, size_t nbytes,
			 const char *path, const struct kvt_config_hints *hints)
{
	const char *slash = strrchr(path, '/'), *type, *set[65];
	struct kvt_config_hints more = *hints;
	struct kvt_model_config config;
	struct kvt_error why;
	char folder[PATH_MAX], file[256], word[64];

	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) : 1,
		 slash ? path : ".");
	if (out->dtype || hints->nset > 64 ||
	    !(type = kvt_weights_type(slash == path ? "/" : folder, file)))
		return;
	for (int i = 0; i < hints->nset; i++)
		set[i] = hints->set[i];
	snprintf(word, sizeof(word), "torch_dtype=%s", type);
	set[more.nset++] = word;
	more.set = set;
	if (parse(&config, text, nbytes, path, &more, &why) || !config.dtype)
		return;
	*out = config;
	if (out->nnotes < KVT_CONFIG_NOTES)
		snprintf(out->note[out->nnotes++], sizeof(out->note[0]),
			 "dtype is missing: %s, as the weights in %.80s have it", type,
			 file);
}

static enum kvt_status parse_file(struct kvt_model_config *out,
				  const struct kvt_file *file,
				  const struct kvt_config_hints *hints,
				  struct kvt_error *err)
{
	enum kvt_status status;
	char *text;

	if (file->nbytes > MOST)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has %lld bytes, more than the %d of a config.json",
				file->path, LL(file->nbytes), MOST);
	if (!(text = malloc((size_t)file->nbytes + 1)))
		return kvt_no_memory(err, NULL);
	if (!(status = kvt_file_pread(file, text, file->nbytes, 0, err)))
		status = parse(out, text, (size_t)file->nbytes, file->path, hints, err);
	if (!status)
		take_weights(out, text, (size_t)file->nbytes, file->path, hints);
	free(text);
	return status;
}

static enum kvt_status open_gguf(struct kvt_model_config *out,
				 const struct kvt_file *file,
				 const struct kvt_config_hints *hints,
				 struct kvt_error *err)
{
	if (hints->family || hints->nset || hints->ssm_dtype)
		return kvt_fail(err, KVT_USAGE,
				"%s: is a GGUF, not a config.json; leave out --as, --set and --ssm-dtype",
				file->path);
	return kvt_gguf_read(out, file, err);
}

static enum kvt_status open_file(struct kvt_model_config *out, const char *path,
				 const struct kvt_config_hints *hints,
				 struct kvt_error *err)
{
	struct kvt_files files = { .count = 0 };
	enum kvt_status status;
	struct stat st;
	int index;

	if (!(status = kvt_files_open(&files, &index, path, err))) {
		if (!stat(path, &st))
			kvt_reads_add(&st);
		status = kvt_gguf_is(path) ?
			 open_gguf(out, &files.file[index], hints, err) :
			 parse_file(out, &files.file[index], hints, err);
	}
	kvt_files_close(&files);
	return status;
}

/* ---- folders --------------------------------------------------------------- */

/* Of a model that was split, the first file alone. */
static bool is_later_part(const char *name)
{
	const char *of = strstr(name, "-of-");

	return of && of - name > 6 && of[-6] == '-' && strncmp(of - 5, "00001", 5) != 0;
}

static bool is_model(const char *name)
{
	return kvt_path_ends(name, ".gguf") && !is_later_part(name) &&
	       strncmp(name, "mmproj", 6) != 0;
}

static bool is_snapshot(const char *name)
{
	return name[0] != '.';
}

/* The only entry that 'wanted' takes; KVT_BAD_INPUT: there are several, or none. */
static enum kvt_status find_one(char out[static PATH_MAX], const char *folder,
				bool (*wanted)(const char *name), const char *what,
				struct kvt_error *err)
{
	char first[256] = "", second[256] = "";
	DIR *dir = opendir(folder);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (wanted(entry->d_name))
			snprintf(first[0] ? second : first, sizeof(first), "%s",
				 entry->d_name);
	if (dir)
		closedir(dir);
	if (second[0])
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.300s: has several %s, such as %.60s and %.60s: give one of them",
				folder, what, first, second);
	if (!first[0] || snprintf(out, PATH_MAX, "%s/%s", folder, first) >= PATH_MAX)
		return kvt_fail(err, KVT_BAD_INPUT, "%.300s: has no %s", folder, what);
	return KVT_OK;
}

/* "models--ORG--NAME" of the hub's cache: one snapshot, or that of main. */
static enum kvt_status find_snapshot(char out[static PATH_MAX], const char *folder,
				     struct kvt_error *err)
{
	char path[PATH_MAX], commit[128] = "";
	FILE *file;

	if (snprintf(path, sizeof(path), "%.3900s/refs/main", folder) > 0 &&
	    (file = fopen(path, "re"))) {
		if (!fgets(commit, sizeof(commit), file))
			commit[0] = '\0';
		fclose(file);
	}
	commit[strcspn(commit, "\r\n")] = '\0';
	if (commit[0] && !strchr(commit, '/') && commit[0] != '.' &&
	    snprintf(out, PATH_MAX, "%.3900s/snapshots/%s", folder, commit) > 0 &&
	    kvt_is_folder(out))
		return KVT_OK;
	snprintf(path, sizeof(path), "%.4000s/snapshots", folder);
	return find_one(out, path, is_snapshot, "snapshots", err);
}

static enum kvt_status find_file(char out[static PATH_MAX], const char *folder,
				 struct kvt_error *err)
{
	static const char *const names[] = { "config.json", "params.json" };
	struct kvt_error why = { "" };
	enum kvt_status status;
	struct stat st;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (snprintf(out, PATH_MAX, "%s/%s", folder, names[i]) < PATH_MAX &&
		    !stat(out, &st))
			return KVT_OK;
	status = find_one(out, folder, is_model, "GGUFs", &why);
	if (!status)
		return KVT_OK;
	if (strstr(why.text, "several"))
		return kvt_fail(err, status, "%s", why.text);
	return kvt_fail(err, KVT_SYSTEM,
			"%.300s: is a folder without config.json, params.json or a GGUF",
			folder);
}

enum kvt_status kvt_model_open(struct kvt_model_config *out, const char *path,
			       const struct kvt_config_hints *hints,
			       struct kvt_error *err)
{
	char folder[PATH_MAX], file[PATH_MAX], inside[PATH_MAX];
	enum kvt_status status;

	if (!kvt_is_folder(path))
		return open_file(out, path, hints, err);
	if (snprintf(folder, sizeof(folder), "%s", path) >= PATH_MAX)
		return kvt_fail(err, KVT_USAGE, "the name of a model is too long");
	if (snprintf(inside, sizeof(inside), "%.4000s/snapshots", path) > 0 &&
	    kvt_is_folder(inside) && (status = find_snapshot(folder, path, err)))
		return status;
	status = find_file(file, folder, err);
	return status ? status : open_file(out, file, hints, err);
}
