/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.c - asking a writer of any format, and writing through it
 *
 * A writer begins with struct kvt_writer_head, which has the snapshot, the tilings and
 * the calls of its format: lib knows no format by name.
 */
#include "lib/run/writer.h"

/* A pointer to a struct is one to its first member. */
static struct kvt_writer_head *head_of(struct kvt_writer *writer)
{
	return (struct kvt_writer_head *)(void *)writer;
}

static const struct kvt_writer_head *head(const struct kvt_writer *writer)
{
	return (const struct kvt_writer_head *)(const void *)writer;
}

const struct kvt_snapshot *kvt_writer_snapshot(const struct kvt_writer *writer)
{
	return &head(writer)->snapshot;
}

const struct kvt_format_info *kvt_writer_format_info(const struct kvt_writer *writer)
{
	return head(writer)->info;
}

const struct kvt_tiling *kvt_writer_tiling(const struct kvt_writer *writer, int group)
{
	return head(writer)->tiling[group].nbytes ? &head(writer)->tiling[group] : NULL;
}

const char *kvt_writer_format(const struct kvt_writer *writer)
{
	return head(writer)->info->name;
}

static enum kvt_status no_group(struct kvt_error *err, const struct kvt_writer *writer,
				int group)
{
	return kvt_fail(err, KVT_USAGE, "%s: no group %d that can be written so",
			head(writer)->name, group);
}

static bool has_group(const struct kvt_writer *writer, int group)
{
	return group >= 0 && group < head(writer)->snapshot.ngroups;
}

enum kvt_status kvt_write_box(struct kvt_writer *writer, int group,
			      const struct kvt_box *box, const void *buf,
			      struct kvt_error *err)
{
	if (!has_group(writer, group) || kvt_writer_tiling(writer, group))
		return no_group(err, writer, group);
	return head_of(writer)->ops->write_box(writer, group, box, buf, err);
}

enum kvt_status kvt_place_tile(struct kvt_writer *writer, int group,
			       const int64_t begin[KVT_NAXES],
			       const struct kvt_stored *stored, int64_t *offset,
			       struct kvt_error *err)
{
	if (!has_group(writer, group) || !kvt_writer_tiling(writer, group))
		return no_group(err, writer, group);
	return head_of(writer)->ops->place_tile(writer, group, begin, stored, offset,
						err);
}

enum kvt_status kvt_write_tiles(struct kvt_writer *writer, const void *bytes,
				int64_t nbytes, int64_t offset, struct kvt_error *err)
{
	return head_of(writer)->ops->write_tiles(writer, bytes, nbytes, offset, err);
}

bool kvt_writer_has_cells(const struct kvt_writer *writer, int group)
{
	return has_group(writer, group) && head(writer)->ops->has_cells(writer, group);
}

enum kvt_status kvt_store_cells(struct kvt_writer *writer, int group,
				const struct kvt_box *box, const uint64_t *cells,
				struct kvt_error *err)
{
	if (!kvt_writer_has_cells(writer, group))
		return no_group(err, writer, group);
	return head_of(writer)->ops->store_cells(writer, group, box, cells, err);
}

enum kvt_status kvt_finish(struct kvt_writer *writer, struct kvt_error *err)
{
	return head_of(writer)->ops->finish(writer, err);
}

void kvt_close_writer(struct kvt_writer *writer)
{
	if (writer)
		head_of(writer)->ops->close(writer);
}
