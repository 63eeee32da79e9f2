/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader.c - what a format has opened, as a leaf: the files of its arrays or tiles
 *
 * Arrays are read through the parts that the format has listed (flat.c); tiles are
 * found by the format and read from its first file; places are in locate.c.  Or a file
 * says which other dumps its data are of, and these are read.
 */
#include "formats/file/proof.h"
#include "formats/file/reads.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/kvt/derive.h"
#include "lib/snapshot/saved.h"

static enum kvt_status read_box(const struct kvt_leaf *leaf, int group,
				const struct kvt_box *box, void *buf,
				struct kvt_error *err)
{
	const struct kvt_reader *reader = kvt_leaf_reader(leaf);

	return kvt_flat_read(&reader->flat[group], &reader->files,
			     &leaf->snapshot.group[group], box, buf, err);
}

static enum kvt_status find_tile(const struct kvt_leaf *leaf, int group,
				 const int64_t begin[KVT_NAXES], struct kvt_extent *out,
				 struct kvt_error *err)
{
	const struct kvt_reader *reader = kvt_leaf_reader(leaf);

	return reader->format->find_tile(reader, group, begin, out, err);
}

static enum kvt_status load_tile(const struct kvt_leaf *leaf,
				 const struct kvt_extent *extent,
				 struct kvt_stored *out, struct kvt_error *err)
{
	assert(out->capacity >= extent->nbytes);
	out->nbytes = extent->nbytes;
	out->filter_mask = extent->filter_mask;
	out->path = leaf->path;
	return kvt_file_read(&kvt_leaf_reader(leaf)->files.file[0], out->bytes,
			     extent->nbytes, extent->offset, err);
}

static bool has_cells(const struct kvt_leaf *leaf, int group)
{
	const struct kvt_reader *reader = kvt_leaf_reader(leaf);

	return reader->format->has_cells && reader->format->has_cells(reader, group);
}

static enum kvt_status fetch_cells(const struct kvt_leaf *leaf, int group,
				   const struct kvt_box *box, uint64_t *cells,
				   struct kvt_error *err)
{
	const struct kvt_reader *reader = kvt_leaf_reader(leaf);

	return reader->format->fetch_cells(reader, group, box, cells, err);
}

static int64_t count_files(const struct kvt_leaf *leaf, int64_t *nbytes)
{
	const struct kvt_files *files = &kvt_leaf_reader(leaf)->files;
	int64_t count = 0;

	for (int64_t i = 0; i < files->count; i++)
		if (!files->file[i].computed) {
			*nbytes += files->file[i].nbytes;
			count++;
		}
	return count;
}

static bool has_file(const struct kvt_leaf *leaf, dev_t dev, ino_t ino)
{
	const struct kvt_files *files = &kvt_leaf_reader(leaf)->files;

	for (int64_t i = 0; i < files->count; i++)
		if (files->file[i].dev == dev && files->file[i].ino == ino)
			return true;
	return false;
}

static enum kvt_status unchanged(const struct kvt_leaf *leaf, struct kvt_error *err)
{
	return kvt_files_unchanged(&kvt_leaf_reader(leaf)->files, err);
}

static enum kvt_status settle(const struct kvt_leaf *leaf, int64_t *i, bool all,
			      const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_files *files = &kvt_leaf_reader(leaf)->files;
	enum kvt_status status = KVT_OK;
	int64_t before = 0, here;

	for (int64_t f = 0; !status && f < files->count; f++) {
		const struct kvt_file *file = &files->file[f];

		if (!file->proof)
			continue;
		if (*i < before + file->proof->nruns) {
			here = *i - before;
			status = kvt_proof_settle(file, &here, all, run, err);
			*i = before + here;
		}
		before += file->proof->nruns;
	}
	return status;
}

static bool settles(const struct kvt_files *files)
{
	for (int64_t f = 0; f < files->count; f++)
		if (files->file[f].proof && kvt_proof_settles(files->file[f].proof))
			return true;
	return false;
}

static void close_reader(struct kvt_leaf *leaf)
{
	struct kvt_reader *reader = (struct kvt_reader *)leaf;

	kvt_reads_leave(reader);
	if (reader->format->close)
		reader->format->close(reader);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		kvt_flat_free(&reader->flat[g]);
	kvt_files_close(&reader->files);
	kvt_dump_close(reader->joined);
	free(reader->source);
	free(reader);
}

static const struct kvt_leaf_ops reader_ops = {
	.read_box = read_box, .settle = settle,
	.find_tile = find_tile, .load_tile = load_tile,
	.has_cells = has_cells, .fetch_cells = fetch_cells,
	.locate = kvt_reader_locate, .at = kvt_reader_at,
	.find_buffer = kvt_reader_find_buffer, .buffer_name = kvt_reader_buffer_name,
	.has_padding = kvt_reader_has_padding, .read_padding = kvt_reader_read_padding,
	.files = count_files, .has_file = has_file, .unchanged = unchanged,
	.close = close_reader,
};

/* ---- data of other dumps ------------------------------------------------ */

static enum kvt_status joined_read(const struct kvt_leaf *leaf, int group,
				   const struct kvt_box *box, void *buf,
				   struct kvt_error *err)
{
	return kvt_dump_read(kvt_leaf_reader(leaf)->joined, group, box,
			     &leaf->snapshot.group[group].layout, buf, err);
}

static int64_t joined_files(const struct kvt_leaf *leaf, int64_t *nbytes)
{
	const struct kvt_dump *joined = kvt_leaf_reader(leaf)->joined;

	*nbytes += kvt_dump_file_bytes(joined);
	return count_files(leaf, nbytes) + kvt_dump_files(joined);
}

static bool joined_has_file(const struct kvt_leaf *leaf, dev_t dev, ino_t ino)
{
	return has_file(leaf, dev, ino) ||
	       kvt_dump_has_file(kvt_leaf_reader(leaf)->joined, dev, ino);
}

static enum kvt_status joined_unchanged(const struct kvt_leaf *leaf,
					struct kvt_error *err)
{
	enum kvt_status status = unchanged(leaf, err);

	return status ? status : kvt_dump_unchanged(kvt_leaf_reader(leaf)->joined, err);
}

static const struct kvt_leaf_ops joined_ops = {
	.read_box = joined_read, .files = joined_files, .has_file = joined_has_file,
	.unchanged = joined_unchanged, .close = close_reader,
};

enum kvt_status kvt_reader_join(struct kvt_reader *reader, struct kvt_dump *const *parts,
				const struct kvt_patch *patches, int64_t n,
				struct kvt_error *err)
{
	return kvt_dump_join(&reader->joined, &reader->leaf.snapshot,
			     (const struct kvt_dump *const *)parts, patches, n, err);
}

/* ---- as a dump ---------------------------------------------------------- */

const struct kvt_reader *kvt_reader_of(const struct kvt_dump *dump)
{
	return kvt_leaf_reader(kvt_dump_is_leaf(dump));
}

enum kvt_status kvt_reader_dump(struct kvt_dump **out, struct kvt_reader *reader,
				struct kvt_error *err)
{
	reader->leaf.ops = reader->joined ? &joined_ops : &reader_ops;
	reader->leaf.format = reader->format->info.name;
	reader->leaf.settles = settles(&reader->files);
	if (reader->joined)	/* each of those sees to its own data */
		memset(reader->leaf.held, 0, sizeof(reader->leaf.held));
	if (!reader->leaf.checks)
		reader->leaf.checks = reader->format->checks;
	kvt_reads_enter(reader);
	return kvt_dump_of_leaf(out, &reader->leaf, err);
}

void kvt_reader_free(struct kvt_reader *reader)
{
	kvt_snapshot_free(&reader->leaf.snapshot);
	free(reader->leaf.manifest);
	free(reader->leaf.path);
	free(reader->leaf.said);
	kvt_saved_free(reader->leaf.saved);
	free(reader->leaf.written_by);
	kvt_leaf_free_sought(&reader->leaf);
	close_reader(&reader->leaf);
}
