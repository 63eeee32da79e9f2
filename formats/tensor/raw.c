/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw.c - headerless bytes, which a manifest or the user describes
 *
 *	[skip bytes][group 0][group 1] ...	each an array in its layout, without gaps
 *
 *	but with "tensors" in the manifest	caches.c: pages of several tensors
 *	with "rows"				canonical.c: rows of blocks
 *
 * The size must be what the description makes, to the byte: nothing else about such a
 * file can be checked.  A file that is known for something else, by its first bytes,
 * says so instead: a row of known[].
 */
#include "formats/tensor/canonical.h"

#include <stdlib.h>
#include <string.h>

static bool raw_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	(void)path;
	(void)nhead;
	/* any file at all: raw is probed after all others */
	return head != NULL;
}

static enum kvt_status fit(struct kvt_reader *reader, struct kvt_manifest *manifest,
			   int index, struct kvt_error *err)
{
	int64_t skip = manifest->skip, size = reader->files.file[index].nbytes;
	const char *path = reader->leaf.path;
	struct kvt_array array = { .name = path };
	enum kvt_status status;

	if (skip > size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has %lld bytes, but data would begin at byte %lld",
				path, LL(size), LL(skip));
	array.nbytes = size - skip;
	if ((status = kvt_manifest_fit(manifest, &array, err)) ||
	    (status = kvt_flats_whole(reader->flat, &manifest->snapshot,
				      manifest->pages, index, skip, err)))
		return status;
	/* a manifest that knows the size has noticed a cut */
	if (manifest->derived && manifest->proof != KVT_PROOF_SIZE &&
	    manifest->proof != KVT_PROOF_SAMPLES)
		reader->leaf.unnoticed = KVT_DERIVED;
	return kvt_manifest_adopt(reader, manifest, err);
}

#define PICKLE "is a pickle; kvtool reads what torch.save() writes"

/* What has no layout is no raw cache, and may be something else that is known. */
static const struct known {
	const char *magic;
	int nmagic;
	const char *within;		/* somewhere in the first bytes, too; or NULL */
	const char *what;		/* and what to do with it */
} known[] = {
	{ "GGUF", 4, NULL,
	  "is a GGUF, the weights of a model and no cache; kvtool size takes it, and --model beside a cache" },
	{ "{", 1, "\"n_layers\"",
	  "is a model's configuration and no cache; kvtool size takes it, and --model beside a cache" },
	{ "{", 1, "\"model_type\"",
	  "is a model's configuration and no cache; kvtool size takes it, and --model beside a cache" },
	{ "\200\002", 2, NULL, PICKLE }, { "\200\003", 2, NULL, PICKLE },
	{ "\200\004", 2, NULL, PICKLE }, { "\200\005", 2, NULL, PICKLE },
	{ "\037\213", 2, NULL, "is compressed with gzip; unpack it first" },
	{ "\050\265\057\375", 4, NULL, "is compressed with zstd; unpack it first" },
};
enum { NKNOWN = sizeof(known) / sizeof(known[0]), KNOWN_BYTES = 65536 };

static bool is_within(const char *text, int64_t n, const char *word)
{
	const int64_t length = (int64_t)strlen(word);

	for (int64_t i = 0; i + length <= n; i++)
		if (!memcmp(text + i, word, (size_t)length))
			return true;
	return false;
}

static const char *what_is_known(const struct kvt_file *file)
{
	int64_t n = file->nbytes < KNOWN_BYTES ? file->nbytes : KNOWN_BYTES;
	char *head = malloc(KNOWN_BYTES);
	struct kvt_error why;
	const char *what = n ? NULL : "is empty";

	if (!head || kvt_file_pread(file, head, n, 0, &why))
		n = 0;
	for (int i = 0; !what && i < NKNOWN; i++)
		if (n >= known[i].nmagic &&
		    !memcmp(head, known[i].magic, (size_t)known[i].nmagic) &&
		    (!known[i].within || is_within(head, n, known[i].within)))
			what = known[i].what;
	free(head);
	return what;
}

static enum kvt_status undescribed(const struct kvt_file *file, const char *path,
				   bool passed_over, struct kvt_error *err)
{
	static const char needs[] =
		"--layout, --dtype and all but one of --layers, --blocks, --block-size, --heads and --head-dim";
	const char *what = what_is_known(file);

	if (what)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: %s", path, what);
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: in no format that kvtool knows; raw bytes need %s, or --manifest%s; kvtool guess finds a layout",
			path, needs, passed_over ?
			" (the one beside it belongs to another file)" : "");
}

static enum kvt_status raw_open(struct kvt_reader *reader, const char *path,
				const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_manifest manifest;
	enum kvt_status status;
	bool found;
	int index;

	if ((status = kvt_files_open(&reader->files, &index, path, err)) ||
	    (status = kvt_manifest_load(&manifest, &found, &reader->files.file[index],
					hints, err)))
		return status;
	if (!found && !manifest.has_layout)
		status = undescribed(&reader->files.file[index], path,
				     manifest.passed_over, err);
	else if (manifest.caches)
		status = kvt_caches_fit(reader, &manifest, index, err);
	else if (manifest.tensor.row_bytes)
		status = kvt_canonical_fit(reader, &manifest, index, err);
	else
		status = fit(reader, &manifest, index, err);
	kvt_manifest_free(&manifest);
	return status;
}

/* ---- writing ------------------------------------------------------------ */

static enum kvt_status raw_create(struct kvt_writer *writer, struct kvt_error *err)
{
	const struct kvt_snapshot *s = &writer->head.snapshot;
	bool pages = kvt_snapshot_has_pages(s);
	const struct kvt_dtype *dtype;
	enum kvt_status status;
	int64_t shape[8], nbytes;
	int rank, index;

	/* one array, though it has no header to say so: a manifest describes one */
	if ((status = kvt_snapshot_file_shape(&rank, shape, &dtype, s, "raw", err)) ||
	    (status = kvt_snapshot_file_bytes(&nbytes, s, pages, err)) ||
	    (status = kvt_files_create(&writer->files, &index, writer->temporary, nbytes,
				       err)))
		return status;
	return kvt_flats_whole(writer->flat, s, pages, index, 0, err);
}

static enum kvt_status raw_finish(struct kvt_writer *writer, struct kvt_error *err)
{
	return kvt_sidecar_write(writer, NULL, 0, NULL, err);
}

static const char *const raw_endings[] = { ".bin", ".raw", NULL };

const struct kvt_format kvt_raw_format = {
	.info = { "raw", "bytes without a header, beside a JSON manifest",
		  .reads = true, .writes = true, .keeps_scales = true },
	.endings = raw_endings,
	.checks = "length",
	.sidecar = true,
	.takes = KVT_TAKES_MANIFEST | KVT_TAKES_SKIP,
	.probe = raw_probe,
	.open = raw_open,
	.create = raw_create,
	.finish = raw_finish,
};

/* By its manifest it is raw that finds it. */
static const char *const canonical_endings[] = { ".canonical", NULL };

const struct kvt_format kvt_canonical_format = {
	.info = { "canonical", "one tensor for all groups, with a JSON manifest",
		  .reads = true, .writes = true, .one_pool = true,
		  .keeps_scales = true },
	.endings = canonical_endings,
	.checks = "rows, length",
	.sidecar = true,
	.takes = KVT_TAKES_MANIFEST | KVT_TAKES_SKIP,
	.open = raw_open,
	.create = kvt_canonical_create,
	.finish = raw_finish,
};
