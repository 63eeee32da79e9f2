/* SPDX-License-Identifier: Apache-2.0 */
/*
 * formats.c - the table of formats, and opening a dump of any of them
 *
 * What is common to all formats is done here once: finding the format, the checks
 * between the fields, the ordering of parts.  Reading is in file/reader.c, writing
 * in commit.c.
 */
#include "formats/format.h"
#include "formats/file/tree.h"
#include "formats/manifest/manifest.h"
#include "formats/model/config.h"
#include "formats/store/prompt.h"
#include "lib/base/nearest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the table ---------------------------------------------------------- */

/* In the order of probing: whatever is not the others may be raw. */
static const struct kvt_format *const formats[] = {
	&kvt_hdf5_format, &kvt_npy_format,
	/* names of files are keys; some look like safetensors and are not */
	&kvt_lmcache_format, &kvt_mooncake_format,
	/* before those of one file, for their folders, and shards */
	&kvt_mlx_blocks_format,
	/* a file of tensors may say that they are a cache of transformers or mlx */
	&kvt_mlx_format, &kvt_cache_format, &kvt_safetensors_format,
	&kvt_llama_format, &kvt_ggsq_format, &kvt_ggsn_format,
	&kvt_npz_format, &kvt_torch_format,
	&kvt_offload_format, &kvt_hicache_format, &kvt_trtllm_format,
	&kvt_flexkv_format, &kvt_kvbm_format, &kvt_kvbm_objects_format,
	/* before the connector's, which takes any folder */
	&kvt_layer_files_format,
	&kvt_folder_format, &kvt_raw_format, &kvt_canonical_format, &kvt_null_format,
};
enum { NFORMATS = sizeof(formats) / sizeof(formats[0]) };

const struct kvt_format_info *kvt_format_info(int i)
{
	return i >= 0 && i < NFORMATS ? &formats[i]->info : NULL;
}

const struct kvt_format *kvt_format_at(int i)
{
	return i >= 0 && i < NFORMATS ? formats[i] : NULL;
}

/* What people call a format by the ending of its files, or of another program. */
static const struct {
	const char *alias, *name;
} aliases[] = {
	{ "h5", "hdf5" }, { "kvh5", "hdf5" }, { "numpy", "npy" }, { "bin", "raw" },
	{ "pt", "torch" }, { "pth", "torch" }, { "huggingface", "transformers" },
	{ "hf", "transformers" }, { "llama.cpp", "llama" }, { "st", "safetensors" },
};
enum { NALIASES = sizeof(aliases) / sizeof(aliases[0]) };

const struct kvt_format *kvt_format_find(const char *name)
{
	for (int i = 0; i < NALIASES; i++)
		if (!strcmp(aliases[i].alias, name))
			name = aliases[i].name;
	for (int i = 0; i < NFORMATS; i++) {
		const struct kvt_format *f = formats[i];

		if (!strcmp(f->info.name, name))
			return f;
		for (int j = 0; f->presets && f->presets[j]; j++)
			if (!strcmp(f->presets[j], name))
				return f;
	}
	return NULL;
}

enum kvt_status kvt_format_unknown(const char *name, struct kvt_error *err)
{
	enum kvt_status status = kvt_format_unread(name, strlen(name), err);
	struct kvt_nearest near;

	if (status)
		return status;
	near = kvt_nearest_start(name);
	for (int i = 0; i < NFORMATS; i++) {
		kvt_nearest_offer(&near, formats[i]->info.name);
		for (int j = 0; formats[i]->presets && formats[i]->presets[j]; j++)
			kvt_nearest_offer(&near, formats[i]->presets[j]);
	}
	return kvt_fail(err, KVT_USAGE, "there is no format '%.60s'%s", name,
			kvt_nearest_hint(&near, "; see kvtool help formats").s);
}

/* ---- opening ------------------------------------------------------------ */

enum { HEAD_BYTES = 4096 };

static bool looks_like(const struct kvt_format *format, const char *path,
		       const uint8_t *head, int64_t nhead)
{
	return (format->probe && format->probe(path, head, nhead)) ||
	       (!head && format->holds && kvt_tree_has(path, format->holds));
}

static enum kvt_status probe(const struct kvt_format **out, const char *path,
			     const uint8_t *head, int64_t nhead, struct kvt_error *err)
{
	for (int i = 0; i < NFORMATS; i++)
		if (looks_like(formats[i], path, head, nhead)) {
			*out = formats[i];
			return KVT_OK;
		}
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: not in a format that kvtool knows; see kvtool help formats",
			path);
}

static enum kvt_status probe_file(const struct kvt_format **out, const char *path,
				  struct kvt_error *err)
{
	struct kvt_files files = { 0 };
	uint8_t head[HEAD_BYTES];
	enum kvt_status status;
	int64_t nhead;
	int index;

	if ((status = kvt_files_open(&files, &index, path, err)))
		return status;
	nhead = files.file[index].nbytes;
	if (nhead > HEAD_BYTES)
		nhead = HEAD_BYTES;
	status = kvt_file_read(&files.file[index], head, nhead, 0, err);
	kvt_files_close(&files);
	return status ? status : probe(out, path, head, nhead, err);
}

static enum kvt_status choose_format(const struct kvt_format **out, const char *path,
				     const struct kvt_hints *hints, struct kvt_error *err)
{
	enum kvt_status status;
	struct stat st;

	if (hints && hints->format) {
		*out = kvt_format_find(hints->format);
		if (!*out)
			return kvt_format_unknown(hints->format, err);
		if (!(*out)->open)
			return kvt_fail(err, KVT_UNSUPPORTED, "%s cannot be read",
					(*out)->info.name);
		return KVT_OK;
	}
	if (stat(path, &st)) {
		status = kvt_path_unread(path, err);
		return status ? status : kvt_fail(err, KVT_SYSTEM, "%s: cannot open: %s",
						  path, strerror(errno));
	}
	if (S_ISDIR(st.st_mode))
		return probe(out, path, NULL, 0, err);
	status = probe_file(out, path, err);
	if (!status && kvt_cache_is_meant(*out, path, hints))
		*out = &kvt_cache_format;
	return status;
}

/* Their names fit; what is a dump of another format is none. */
bool kvt_is_manifest_of(const char *path, const char *data, const struct kvt_hints *hints)
{
	const struct kvt_format *of, *own;
	bool named = false;
	struct kvt_error why;

	for (int i = 0; !named && i < 2; i++) {
		char *name = kvt_manifest_name(data, i);

		named = name && !strcmp(name, path) && strcmp(data, path) != 0;
		free(name);
	}
	return named && !choose_format(&own, path, NULL, &why) &&
	       own == &kvt_raw_format && !choose_format(&of, data, hints, &why) &&
	       (of->takes & KVT_TAKES_MANIFEST);
}

/* What holds whatever the format. */
static enum kvt_status settle(struct kvt_reader *reader, const struct kvt_hints *hints,
			      struct kvt_error *err)
{
	struct kvt_snapshot *snapshot = &reader->leaf.snapshot;
	const char *path = reader->leaf.path;
	enum kvt_status status;
	struct kvt_error why;

	if (reader->empty && !(hints && hints->empty))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: is an empty state file: it has no tokens of any request",
				path);
	if (hints && hints->inspector && !reader->empty)
		kvt_snapshot_inspect(snapshot, hints->inspector);
	if (!reader->empty && (status = kvt_snapshot_check(snapshot, &why)))
		return kvt_fail(err, status, "%s: %.400s", path, why.text);
	if ((status = kvt_snapshot_complete(snapshot, err)))
		return status;
	for (int g = 0; g < snapshot->ngroups && !reader->joined; g++)
		if ((status = kvt_flat_seal(&reader->flat[g], &reader->files,
					    &snapshot->group[g], err)))
			return status;
	if (reader->format->tell && !reader->empty &&
	    (status = reader->format->tell(reader, err)))
		return status;
	if (!snapshot->source_format) {
		snapshot->source_format = strdup(reader->format->info.name);
		if (!snapshot->source_format)
			return kvt_no_memory(err, path);
	}
	return KVT_OK;
}

/* ---- data of other dumps ---------------------------------------------------- */

/* Dumps over dumps over dumps are none that kvtool writes. */
static _Thread_local bool inside;

/* Layers and blocks say which they are: parts that changed places are found. */
static bool same_ids(const struct kvt_group *whole, const struct kvt_group *part,
		     const struct kvt_patch *patch)
{
	bool same = part->shape.n[KVT_AXIS_L] == patch->nlayers &&
		    part->shape.n[KVT_AXIS_B] == patch->nblocks;

	for (int64_t l = 0; same && l < patch->nlayers; l++)
		same = kvt_layer_id(part, l) == kvt_layer_id(whole, patch->layer + l);
	for (int64_t b = 0; same && b < patch->nblocks; b++)
		same = kvt_block_id(part, b) == kvt_block_id(whole, patch->block + b);
	return same;
}

static enum kvt_status open_source(struct kvt_dump **out, const struct kvt_reader *reader,
				   const struct kvt_source *source, struct kvt_error *err)
{
	const struct kvt_hints hints = { .format = reader->format->info.name };
	const char *whole = reader->leaf.path, *slash = strrchr(whole, '/');
	size_t n = slash ? (size_t)(slash + 1 - whole) : 0;
	char *path = malloc(n + strlen(source->path) + 1);
	enum kvt_status status;

	if (!path)
		return kvt_no_memory(err, whole);
	memcpy(path, whole, n);
	strcpy(path + n, source->path);
	status = kvt_open(out, path, &hints, err);
	free(path);
	if (status)
		return status;
	if (kvt_dump_snapshot(*out)->ngroups != 1 ||
	    strcmp(kvt_dump_group(*out, 0)->id, source->group))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: is over group %.60s of %.200s, which is not its one group",
				whole, source->group, source->path);
	if (!same_ids(&reader->leaf.snapshot.group[source->patch.group],
		      kvt_dump_group(*out, 0), &source->patch))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has other layers or blocks than are expected of %.200s",
				whole, source->path);
	return KVT_OK;
}

/* Is what is read of it held against checksums? */
static bool is_proven(const struct kvt_dump *part)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(part, 0);

	return tiling ? tiling->fletcher32 : kvt_dump_proven(part)->flat[0];
}

static enum kvt_status open_sources(struct kvt_reader *reader, struct kvt_dump **part,
				    struct kvt_patch *patch, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	inside = true;
	for (int64_t i = 0; !status && i < reader->nsources; i++) {
		patch[i] = reader->source[i].patch;
		if (!(status = open_source(&part[i], reader, &reader->source[i], err)))
			reader->leaf.proven.flat[patch[i].group] &= is_proven(part[i]);
	}
	inside = false;
	return status;
}

static enum kvt_status join_sources(struct kvt_reader *reader, struct kvt_error *err)
{
	size_t n = (size_t)reader->nsources;
	struct kvt_dump **part = calloc(n + 1, sizeof(struct kvt_dump *));
	struct kvt_patch *patch = calloc(n + 1, sizeof(*patch));
	const char *path = reader->leaf.path;
	struct kvt_error why = { "" };
	enum kvt_status status;

	if (inside)
		status = kvt_fail(err, KVT_UNSUPPORTED,
				  "%s: a virtual dataset is of a virtual dataset", path);
	else if (!part || !patch)
		status = kvt_no_memory(err, path);
	else if (!(status = open_sources(reader, part, patch, err)) &&
		 (status = kvt_reader_join(reader, part, patch, reader->nsources, &why)))
		kvt_fail_about(err, status, path, &why);
	for (size_t i = 0; part && i < n; i++)
		kvt_dump_close(part[i]);
	free(part);
	free(patch);
	return status;
}

/* ---- opening a dump --------------------------------------------------------- */

/* The model is read once, whoever asks for what it has. */
static enum kvt_status open_of_model(struct kvt_dump **out, const char *path,
				     const struct kvt_hints *hints, struct kvt_error *err)
{
	const struct kvt_config_hints none = { .nset = 0 };
	struct kvt_model_config *config = malloc(sizeof(*config));
	struct kvt_hints told = *hints;
	enum kvt_status status;

	if (!config)
		return kvt_no_memory(err, path);
	if (!(status = kvt_model_open(config, hints->model, &none, err))) {
		told.of_model = &config->model;
		status = kvt_open(out, path, &told, err);
	}
	free(config);
	return status;
}

enum kvt_status kvt_hints_of_model(struct kvt_hints *hints, struct kvt_error *err)
{
	const struct kvt_config_hints none = { .nset = 0 };
	struct kvt_model_config *config;
	enum kvt_status status;

	if (!hints->model)
		return KVT_OK;
	if (!(config = malloc(sizeof(*config))))
		return kvt_no_memory(err, NULL);
	if (!(status = kvt_model_open(config, hints->model, &none, err))) {
		hints->of_model = &config->model;
		status = kvt_hints_take_model(hints, NULL, err);
		hints->of_model = NULL;
	}
	free(config);
	return status;
}

/* Data with the manifest that was named. */
static enum kvt_status open_with(struct kvt_dump **out, const char *path,
				 const char *manifest, const struct kvt_hints *said,
				 struct kvt_error *err)
{
	struct kvt_hints hints = said ? *said : (struct kvt_hints){ .manifest = NULL };

	hints.manifest = manifest;
	return kvt_open(out, path, &hints, err);
}

enum kvt_status kvt_open(struct kvt_dump **out, const char *path,
			 const struct kvt_hints *hints, struct kvt_error *err)
{
	static const struct kvt_hints none;
	const struct kvt_format *format = NULL;
	struct kvt_reader *reader;
	enum kvt_status status;
	char *data = NULL;

	if (hints && hints->model && !hints->of_model)
		return open_of_model(out, path, hints, err);
	if ((status = choose_format(&format, path, hints, err)))
		return status;
	if (format == &kvt_raw_format &&
	    (status = kvt_manifest_data(&data, path, hints, kvt_is_manifest_of, err)))
		return status;
	if (data) {
		status = open_with(out, data, path, hints, err);
		free(data);
		return status;
	}
	if ((status = kvt_hints_check(hints, format, path, err)) ||
	    (status = kvt_facts_check(hints, format, err)))
		return status;
	reader = calloc(1, sizeof(*reader));
	if (!reader || !(reader->leaf.path = strdup(path))) {
		free(reader);
		return kvt_no_memory(err, path);
	}
	reader->format = format;
	kvt_snapshot_init(&reader->leaf.snapshot);
	if ((status = format->open(reader, path, hints ? hints : &none, err)) ||
	    (reader->nsources && (status = join_sources(reader, err))) ||
	    (hints && hints->prompts.n &&
	     (status = kvt_prompt_place(reader, hints, err))) ||
	    (status = kvt_manifest_blocks_of(&reader->leaf.snapshot, hints, path, err)) ||
	    (status = settle(reader, hints, err)) ||
	    (status = kvt_hints_compare(hints, reader, err)) ||
	    (status = kvt_spec_check_dump(&reader->leaf.snapshot, hints, path, err)) ||
	    (status = kvt_model_check_dump(&reader->leaf.snapshot, hints, path, err))) {
		kvt_reader_free(reader);
		return status;
	}
	return kvt_reader_dump(out, reader, err);
}
