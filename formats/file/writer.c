/* SPDX-License-Identifier: Apache-2.0 */
/* writer.c - asking a writer, and writing through it */
#define _GNU_SOURCE		/* sync_file_range */
#include "formats/format.h"

#include <fcntl.h>
#include <stdatomic.h>

const char *kvt_writer_staged(const struct kvt_writer *writer)
{
	return writer->temporary && !writer->published ? writer->temporary : "";
}

const struct kvt_snapshot *kvt_writer_snapshot(const struct kvt_writer *writer)
{
	return &writer->snapshot;
}

void kvt_writer_hints(const struct kvt_writer *writer, struct kvt_hints *hints)
{
	for (int i = 0; i < writer->facts.n; i++)
		hints->facts.s[hints->facts.n++] = writer->facts.s[i];
	if (writer->preset)
		hints->format = writer->preset;
}

const char *kvt_writer_sidecar(const struct kvt_writer *writer)
{
	return writer->sidecar;
}

const struct kvt_format_info *kvt_writer_format_info(const struct kvt_writer *writer)
{
	return &writer->format->info;
}

const struct kvt_tiling *kvt_writer_tiling(const struct kvt_writer *writer, int group)
{
	return writer->tiling[group].nbytes ? &writer->tiling[group] : NULL;
}

const char *kvt_writer_format(const struct kvt_writer *writer)
{
	return writer->format->info.name;
}

/* ---- data --------------------------------------------------------------- */

/*
 * Let the disk begin while we work: what is dirty is handed over now and then,
 * so that the fsync() of kvt_commit() finds little left.  Only a hint: where it
 * is unknown or fails nothing is lost, and it is not for durability.
 */
static void write_behind(struct kvt_writer *writer, int64_t nbytes)
{
#if defined(SYNC_FILE_RANGE_WRITE)
	enum { STEP = 32 << 20 };
	int64_t before = atomic_fetch_add(&writer->written, nbytes);

	if (writer->behind >= 0 && before / STEP != (before + nbytes) / STEP)
		sync_file_range(writer->behind, 0, 0, SYNC_FILE_RANGE_WRITE);
#else
	(void)writer, (void)nbytes;
#endif
}

static enum kvt_status no_group(struct kvt_error *err, const struct kvt_writer *w,
				int group)
{
	return kvt_fail(err, KVT_USAGE, "%s: no group %d that can be written so",
			w->path ? w->path : w->format->info.name, group);
}

enum kvt_status kvt_write_box(struct kvt_writer *writer, int group,
			      const struct kvt_box *box, const void *buf,
			      struct kvt_error *err)
{
	const struct kvt_group *to = &writer->snapshot.group[group];
	struct kvt_shape shape;
	enum kvt_status status;
	int64_t nbytes;

	if (group < 0 || group >= writer->snapshot.ngroups ||
	    kvt_writer_tiling(writer, group))
		return no_group(err, writer, group);
	status = kvt_flat_write(&writer->flat[group], &writer->files, to, box, buf,
				err);
	shape = kvt_box_shape(box, to->shape.elem);
	if (!status && !(status = kvt_shape_nbytes(&nbytes, &shape, err)))
		write_behind(writer, nbytes);
	return status;
}

enum kvt_status kvt_place_tile(struct kvt_writer *writer, int group,
			       const int64_t begin[KVT_NAXES],
			       const struct kvt_stored *stored, int64_t *offset,
			       struct kvt_error *err)
{
	if (group < 0 || group >= writer->snapshot.ngroups ||
	    !writer->format->place_tile)
		return no_group(err, writer, group);
	return writer->format->place_tile(writer, group, begin, stored, offset, err);
}

enum kvt_status kvt_write_tiles(struct kvt_writer *writer, const void *bytes,
				int64_t nbytes, int64_t offset,
				struct kvt_error *err)
{
	enum kvt_status status = kvt_file_write(&writer->files.file[0], bytes,
						nbytes, offset, err);

	if (!status)
		write_behind(writer, nbytes);
	return status;
}

enum kvt_status kvt_store_tile(struct kvt_writer *writer, int group,
			       const int64_t begin[KVT_NAXES],
			       const struct kvt_stored *stored,
			       struct kvt_error *err)
{
	enum kvt_status status;
	int64_t offset;

	status = kvt_place_tile(writer, group, begin, stored, &offset, err);
	if (status)
		return status;
	return kvt_write_tiles(writer, stored->bytes, stored->nbytes, offset, err);
}

bool kvt_writer_has_cells(const struct kvt_writer *writer, int group)
{
	return group >= 0 && group < writer->snapshot.ngroups &&
	       writer->format->store_cells && !writer->options.no_digest;
}

enum kvt_status kvt_store_cells(struct kvt_writer *writer, int group,
				const struct kvt_box *box, const uint64_t *cells,
				struct kvt_error *err)
{
	if (!kvt_writer_has_cells(writer, group))
		return no_group(err, writer, group);
	return writer->format->store_cells(writer, group, box, cells, err);
}
