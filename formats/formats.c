/* SPDX-License-Identifier: Apache-2.0 */
/*
 * formats.c - dumps of any format: finding the format, reading, and the calls
 * that a format implements
 *
 * What is common to all formats is done here once: the checks between the
 * fields, the ordering of pieces, the errors of calls that a group does not
 * have.  Writing, up to the final name, is in snapshot_write.c.
 */
#include "formats/format.h"

#include <assert.h>
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
	&kvt_safetensors_format,
	&kvt_llama_format, &kvt_npz_format, &kvt_cache_format, &kvt_torch_format,
	&kvt_offload_format, &kvt_hicache_format, &kvt_trtllm_format,
	&kvt_flexkv_format, &kvt_kvbm_format,
	&kvt_folder_format, &kvt_raw_format, &kvt_null_format,
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

const struct kvt_format *kvt_format_find(const char *name)
{
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

/* ---- opening ------------------------------------------------------------ */

enum { HEAD_BYTES = 4096 };

static enum kvt_status probe(const struct kvt_format **out, const char *path,
			     const uint8_t *head, int64_t nhead,
			     struct kvt_error *err)
{
	for (int i = 0; i < NFORMATS; i++)
		if (formats[i]->probe && formats[i]->probe(path, head, nhead)) {
			*out = formats[i];
			return KVT_OK;
		}
	return kvt_fail(err, KVT_BAD_INPUT, "%s: not in a format that kvtool knows",
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

static enum kvt_status choose_format(const struct kvt_format **out,
				     const char *path,
				     const struct kvt_hints *hints,
				     struct kvt_error *err)
{
	struct stat st;

	if (hints && hints->format) {
		*out = kvt_format_find(hints->format);
		if (!*out)
			return kvt_fail(err, KVT_USAGE, "unknown format '%s'",
					hints->format);
		if (!(*out)->open)
			return kvt_fail(err, KVT_UNSUPPORTED, "%s cannot be read",
					(*out)->info.name);
		return KVT_OK;
	}
	if (stat(path, &st))
		return kvt_fail(err, KVT_SYSTEM, "%s: cannot open: %s", path,
				strerror(errno));
	if (S_ISDIR(st.st_mode))
		return probe(out, path, NULL, 0, err);
	return probe_file(out, path, err);
}

/* What holds whatever the format. */
static enum kvt_status settle(struct kvt_dump *reader, const struct kvt_hints *hints,
			      struct kvt_error *err)
{
	struct kvt_snapshot *snapshot = &reader->snapshot;
	enum kvt_status status;
	struct kvt_error why;

	if (reader->empty && !(hints && hints->empty))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: is an empty state: it holds no tokens of any request",
				reader->path);
	if (hints && hints->inspector && !reader->empty)
		kvt_snapshot_inspect(snapshot, hints->inspector);
	if (!reader->empty && (status = kvt_snapshot_check(snapshot, &why)))
		return kvt_fail(err, status, "%s: %.400s", reader->path, why.text);
	if ((status = kvt_snapshot_complete(snapshot, err)))
		return status;
	for (int g = 0; g < snapshot->ngroups; g++)
		if ((status = kvt_flat_seal(&reader->flat[g], &reader->files,
					    &snapshot->group[g], err)))
			return status;
	if (!snapshot->source_format) {
		snapshot->source_format = strdup(reader->format->info.name);
		if (!snapshot->source_format)
			return kvt_fail(err, KVT_SYSTEM, "%s: out of memory",
					reader->path);
	}
	return KVT_OK;
}

enum kvt_status kvt_open(struct kvt_dump **out, const char *path,
			 const struct kvt_hints *hints, struct kvt_error *err)
{
	const struct kvt_format *format = NULL;
	struct kvt_dump *reader;
	enum kvt_status status;

	if ((status = choose_format(&format, path, hints, err)) ||
	    (status = kvt_facts_check(hints, format, err)))
		return status;
	reader = calloc(1, sizeof(*reader));
	if (!reader || !(reader->path = strdup(path))) {
		free(reader);
		return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", path);
	}
	reader->format = format;
	kvt_snapshot_init(&reader->snapshot);
	if ((status = format->open(reader, path, hints, err)) ||
	    (status = settle(reader, hints, err)) ||
	    (status = kvt_spec_check_dump(&reader->snapshot, hints, path, err))) {
		kvt_dump_close(reader);
		return status;
	}
	*out = reader;
	return KVT_OK;
}

void kvt_dump_close(struct kvt_dump *reader)
{
	if (!reader)
		return;
	if (reader->format->close)
		reader->format->close(reader);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		kvt_flat_free(&reader->flat[g]);
	kvt_files_close(&reader->files);
	kvt_snapshot_free(&reader->snapshot);
	free(reader->manifest);
	free(reader->path);
	free(reader);
}

/* ---- asking ------------------------------------------------------------- */

const struct kvt_snapshot *kvt_dump_snapshot(const struct kvt_dump *reader)
{
	return &reader->snapshot;
}

const char *kvt_dump_format(const struct kvt_dump *reader)
{
	return reader->format->info.name;
}

int64_t kvt_dump_file_bytes(const struct kvt_dump *reader)
{
	int64_t nbytes = 0;

	for (int64_t i = 0; i < reader->files.count; i++)
		nbytes += reader->files.file[i].nbytes;
	return nbytes;
}

int64_t kvt_dump_files(const struct kvt_dump *reader)
{
	return reader->files.count;
}

const char *kvt_dump_checks(const struct kvt_dump *reader)
{
	return reader->checks;
}

bool kvt_dump_unlisted(const struct kvt_dump *reader)
{
	return reader->format->unlisted;
}

enum kvt_manifest_proof kvt_dump_proof(const struct kvt_dump *reader)
{
	return reader->proof;
}

const char *kvt_dump_manifest(const struct kvt_dump *reader)
{
	return reader->manifest;
}

bool kvt_dump_has_file(const struct kvt_dump *reader, dev_t dev, ino_t ino)
{
	for (int64_t i = 0; i < reader->files.count; i++)
		if (reader->files.file[i].dev == dev && reader->files.file[i].ino == ino)
			return true;
	return false;
}

enum kvt_status kvt_dump_unchanged(const struct kvt_dump *reader,
				     struct kvt_error *err)
{
	return kvt_files_unchanged(&reader->files, err);
}

const struct kvt_proven *kvt_dump_proven(const struct kvt_dump *reader)
{
	return &reader->proven;
}

const struct kvt_tiling *kvt_dump_tiling(const struct kvt_dump *reader, int group)
{
	return reader->tiling[group].nbytes ? &reader->tiling[group] : NULL;
}

/* ---- reading ------------------------------------------------------------ */

static enum kvt_status no_group(struct kvt_error *err, const char *path, int group)
{
	return kvt_fail(err, KVT_USAGE, "%s: no group %d that can be read so", path,
			group);
}

enum kvt_status kvt_read_box(struct kvt_dump *reader, int group,
			     const struct kvt_box *box, void *buf,
			     struct kvt_error *err)
{
	if (group < 0 || group >= reader->snapshot.ngroups ||
	    kvt_dump_tiling(reader, group))
		return no_group(err, reader->path, group);
	return kvt_flat_read(&reader->flat[group], &reader->files,
			     &reader->snapshot.group[group], box, buf, err);
}

enum kvt_status kvt_find_tile(struct kvt_dump *reader, int group,
			      const int64_t begin[KVT_NAXES],
			      struct kvt_extent *out, struct kvt_error *err)
{
	if (group < 0 || group >= reader->snapshot.ngroups ||
	    !reader->format->find_tile)
		return no_group(err, reader->path, group);
	return reader->format->find_tile(reader, group, begin, out, err);
}

enum kvt_status kvt_load_tile(struct kvt_dump *reader,
			      const struct kvt_extent *extent,
			      struct kvt_stored *out, struct kvt_error *err)
{
	assert(out->capacity >= extent->nbytes);
	out->nbytes = extent->nbytes;
	out->filter_mask = extent->filter_mask;
	out->path = reader->path;
	return kvt_file_read(&reader->files.file[0], out->bytes, extent->nbytes,
			     extent->offset, err);
}

enum kvt_status kvt_fetch_tile(struct kvt_dump *reader, int group,
			       const int64_t begin[KVT_NAXES],
			       struct kvt_stored *out, struct kvt_error *err)
{
	struct kvt_extent extent;
	enum kvt_status status;

	if ((status = kvt_find_tile(reader, group, begin, &extent, err)))
		return status;
	return kvt_load_tile(reader, &extent, out, err);
}

bool kvt_dump_has_cells(const struct kvt_dump *reader, int group)
{
	return reader->format->has_cells && reader->format->has_cells(reader, group);
}

enum kvt_status kvt_fetch_cells(struct kvt_dump *reader, int group,
				const struct kvt_box *box, uint64_t *cells,
				struct kvt_error *err)
{
	if (!kvt_dump_has_cells(reader, group))
		return no_group(err, reader->path, group);
	return reader->format->fetch_cells(reader, group, box, cells, err);
}
