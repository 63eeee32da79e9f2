/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.c - writing the data of a dump into its files
 *
 * Of arrays a box, of tiles bytes at an offset that the format gave out.  Also opening
 * again what was staged, for --verify and for checksums: as the format reads it, and
 * where bytes alone do not say what they are, with what the writer was told.
 */
#define _GNU_SOURCE		/* sync_file_range */
#include "formats/format.h"

#include <fcntl.h>
#include <stdatomic.h>

const char *kvt_writer_staged(const struct kvt_writer *writer)
{
	return writer->temporary && !writer->published ? writer->temporary : "";
}

void kvt_writer_hints(const struct kvt_writer *writer, struct kvt_hints *hints)
{
	for (int i = 0; i < writer->facts.n; i++)
		hints->facts.s[hints->facts.n++] = writer->facts.s[i];
	if (writer->head_dim)
		hints->head_dim = writer->head_dim;
	if (writer->preset)
		hints->format = writer->preset;
}

/* Bytes without a header need to be told what they are, and so did the writer. */
static enum kvt_status open_described(struct kvt_dump **out,
				      const struct kvt_writer *writer,
				      struct kvt_error *err)
{
	const struct kvt_snapshot *written = &writer->head.snapshot;
	const struct kvt_group *group = &written->group[0];
	bool halves = group->shape.n[KVT_AXIS_K] == 2;
	struct kvt_text layout = kvt_layout_string(&group->layout);
	struct kvt_hints hints = {
		.format = writer->options.format, .layout = layout.s,
		.dtype = group->dtype->name, .block_size = group->block_size,
		.heads = group->shape.n[KVT_AXIS_H],
		.head_dim = halves ? group->shape.n[KVT_AXIS_D] : 0,
		.content = halves ? 0 : group->shape.n[KVT_AXIS_D],
	};
	char heads[48];

	if (writer->format->info.by_tokens)
		hints = (struct kvt_hints){ .format = writer->options.format };

	else if (written->parallel.tp_size > 1) {
		snprintf(heads, sizeof(heads), "total-heads=%lld",
			 LL(group->total_heads));
		hints.facts = (struct kvt_facts){ 1, { heads } };
	}
	kvt_writer_hints(writer, &hints);
	return kvt_open(out, kvt_writer_staged(writer), &hints, err);
}

enum kvt_status kvt_open_written(struct kvt_dump **out, const struct kvt_writer *writer,
				 struct kvt_error *err)
{
	struct kvt_hints hints = { .format = writer->options.format };
	enum kvt_status status;

	/* what the file does not say is not guessed, either */
	if (writer->format->info.by_tokens)
		return open_described(out, writer, err);
	status = kvt_open(out, kvt_writer_staged(writer), &hints, err);

	if (status == KVT_BAD_INPUT && !open_described(out, writer, NULL))
		status = KVT_OK;
	return status;
}

const char *kvt_writer_use(const struct kvt_writer *writer)
{
	return writer->use;
}

const char *kvt_writer_sidecar(const struct kvt_writer *writer)
{
	return writer->sidecar;
}

/* ---- data --------------------------------------------------------------- */

/*
 * Let the disk begin while we work: what is dirty is handed over now and then,
 * so that the fsync() of kvt_finish() finds little left.  Only a hint: where it
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

enum kvt_status kvt_writer_box(struct kvt_writer *writer, int group,
			       const struct kvt_box *box, const void *buf,
			       struct kvt_error *err)
{
	const struct kvt_group *to = &writer->head.snapshot.group[group];
	struct kvt_shape shape = kvt_box_shape(box, to->shape.elem);
	enum kvt_status status = kvt_flat_write(&writer->flat[group], &writer->files, to,
						box, buf, err);
	int64_t nbytes;

	if (!status && !(status = kvt_shape_nbytes(&nbytes, &shape, err)))
		write_behind(writer, nbytes);
	return status;
}

enum kvt_status kvt_writer_tiles(struct kvt_writer *writer, const void *bytes,
				 int64_t nbytes, int64_t offset, struct kvt_error *err)
{
	enum kvt_status status = kvt_file_write(&writer->files.file[0], bytes, nbytes,
						offset, err);

	if (!status)
		write_behind(writer, nbytes);
	return status;
}
