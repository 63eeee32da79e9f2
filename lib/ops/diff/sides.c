/* SPDX-License-Identifier: Apache-2.0 */
/* sides.c - one side of a comparison: a file, or the files of all ranks */
#include "lib/ops/diff/diff.h"

#include <stdlib.h>

static enum kvt_status join(struct side *side, const struct kvt_run *run,
			    struct kvt_error *err)
{
	enum kvt_status status = rank_files_check(side->file, side->nfiles, err);

	if (status ||
	    (status = join_source(&side->source, side->reader, side->file,
				  side->nfiles, err)))
		return status;
	/* else it would depend on which replica is read */
	return replicas_check(side->file, side->nfiles, run, err);
}

enum kvt_status side_open(struct side *side, char **names, int nfiles,
			  const struct kvt_hints *hints,
			  const struct kvt_run *run, struct kvt_error *err)
{
	enum kvt_status status;

	side->name = nfiles == 1 ? names[0] : side->name;
	side->nfiles = nfiles;
	side->file = calloc((size_t)nfiles, sizeof(*side->file));
	side->reader = calloc((size_t)nfiles, sizeof(*side->reader));
	if (!side->file || !side->reader)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int i = 0; i < nfiles; i++) {
		side->file[i].name = names[i];
		if ((status = open_as_told(&side->file[i].reader, names[i], hints, err)))
			return status;
	}
	if (nfiles > 1)
		return join(side, run, err);
	side->reader[0] = side->file[0].reader;
	side->source = source_whole(side->reader);
	return KVT_OK;
}

enum kvt_status side_unchanged(const struct side *side, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < side->nfiles; i++)
		status = kvt_dump_unchanged(side->file[i].reader, err);
	return status;
}

void side_close(struct side *side)
{
	source_free(&side->source);
	for (int i = 0; side->file && i < side->nfiles; i++)
		kvt_dump_close(side->file[i].reader);
	free(side->file);
	free(side->reader);
}

/* ---- where the parts of a group come from ------------------------------- */

int side_parts(const struct side *side, int group)
{
	return side->source.whole ? 1 : side->source.group[group].nparts;
}

struct source_part side_part(const struct side *side, int group, int i)
{
	const int64_t *n;

	if (!side->source.whole)
		return side->source.group[group].part[i];
	n = reader_group(side->reader[0], group)->shape.n;
	return (struct source_part){ .heads = { 0, 0, n[KVT_AXIS_H] },
				     .kv = { 0, 0, n[KVT_AXIS_K] }, .nruns = 1,
				     .run = { { 0, 0, n[KVT_AXIS_D] } } };
}

int64_t side_layer(const struct side *side, int group, int64_t i)
{
	return side->source.whole ? i : side->source.group[group].layer[i];
}

int64_t side_block(const struct side *side, int group, int64_t i)
{
	return side->source.whole ? i : side->source.group[group].block[i];
}

/* ---- one element -------------------------------------------------------- */

/* False if the part does not have it. */
static bool move_into(int64_t *index, const struct source_run *run)
{
	if (*index < run->at || *index >= run->at + run->count)
		return false;
	*index += run->from - run->at;
	return true;
}

static bool move_into_part(int64_t index[KVT_NAXES], const struct source_part *part)
{
	if (!move_into(&index[KVT_AXIS_H], &part->heads) ||
	    !move_into(&index[KVT_AXIS_K], &part->kv))
		return false;
	for (int i = 0; i < part->nruns; i++)
		if (move_into(&index[KVT_AXIS_D], &part->run[i]))
			return true;
	return false;
}

/* An index of the side as one of a reader. */
static int find_reader(int64_t out[KVT_NAXES], const struct side *side, int group,
		       const int64_t index[KVT_NAXES])
{
	for (int i = 0; i < side_parts(side, group); i++) {
		struct source_part part = side_part(side, group, i);

		for (int a = 0; a < KVT_NAXES; a++)
			out[a] = index[a];
		if (!move_into_part(out, &part))
			continue;
		out[KVT_AXIS_L] = side_layer(side, group, index[KVT_AXIS_L]);
		out[KVT_AXIS_B] = side_block(side, group, index[KVT_AXIS_B]);
		return part.reader;
	}
	return 0;	/* every index is in a part */
}

struct place side_place(const struct side *side, int group,
			const int64_t index[KVT_NAXES])
{
	int64_t at[KVT_NAXES], buffer;
	int r = find_reader(at, side, group, index);
	const struct kvt_dump *reader = side->reader[r];
	int from = side->source.whole ? group : side->source.group[group].from;
	struct place place = { .file = side->name, .offset = -1, .dim = at[KVT_AXIS_D],
			       .in_memory = kvt_dump_tiling(reader, from) != NULL };
	enum kvt_space space = place.in_memory ? KVT_MEMORY : KVT_FILES;

	for (int i = 0; i < side->nfiles; i++)
		if (side->file[i].reader == reader)
			place.file = side->file[i].name;
	if (kvt_dump_locate(&buffer, &place.offset, reader, space, from, at, NULL) ||
	    buffer < 0)
		place.offset = -1;
	else
		place.buffer = kvt_dump_buffer_name(reader, space, buffer);
	return place;
}
