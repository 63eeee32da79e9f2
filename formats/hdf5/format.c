/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.c - the row of the format table, and the calls on tiles and cells
 *
 * Chunks are read and written as they are stored, never through HDF5's filters:
 * its decoder trusts what a frame says, and one thread at a time may run it.
 */
#include "formats/hdf5/hdf5.h"

#include <string.h>

static void close_reader(struct kvt_reader *reader)
{
	kvt_h5_file_free(reader->own);
	reader->own = NULL;
}

static void abandon(struct kvt_writer *writer)
{
	kvt_h5_file_free(writer->own);
	writer->own = NULL;
}

static bool probe(const char *path, const uint8_t *head, int64_t nhead)
{
	static const uint8_t signature[] = "\x89HDF\r\n\x1a\n";

	(void)path;
	/* 0, or a power of two after a user block */
	for (int64_t at = 0; head && at + 8 <= nhead; at = at ? 2 * at : 512)
		if (!memcmp(head + at, signature, 8))
			return true;
	return false;
}

/* ---- tiles -------------------------------------------------------------- */

/* Which dataset, and where in it. */
static hid_t dataset_of(hsize_t *offset, const struct kvt_h5_group *own,
			const int64_t begin[KVT_NAXES])
{
	int plane = own->nplanes == 2 ? (int)begin[KVT_AXIS_K] : 0;

	kvt_h5_chunk_offset(offset, &own->axes[plane], begin);
	return own->data[plane];
}

static bool begins_tile(const struct kvt_tiling *tiling, const struct kvt_shape *shape,
			const int64_t begin[KVT_NAXES])
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (begin[a] < 0 || begin[a] >= shape->n[a] || begin[a] % tiling->n[a])
			return false;
	return true;
}

/* Does the tile reach beyond the end of an axis? */
static bool is_cut(const struct kvt_tiling *tiling, const struct kvt_shape *shape,
		   const int64_t begin[KVT_NAXES])
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (begin[a] > shape->n[a] - tiling->n[a])
			return true;
	return false;
}

static enum kvt_status bad_tile(const struct kvt_reader *reader, int group,
				const int64_t begin[KVT_NAXES], const char *what,
				struct kvt_error *err)
{
	const struct kvt_group *g = &reader->leaf.snapshot.group[group];

	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: group %s: tile at layer %lld, block %llu, slot %lld, head %lld, kv %lld: %s",
			reader->leaf.path, g->id, LL(begin[KVT_AXIS_L]),
			(unsigned long long)kvt_block_id(g, begin[KVT_AXIS_B]),
			LL(begin[KVT_AXIS_S]), LL(begin[KVT_AXIS_H]),
			LL(begin[KVT_AXIS_K]), what);
}

static enum kvt_status find_chunk(const struct kvt_reader *reader, int group,
				  const int64_t begin[KVT_NAXES],
				  struct kvt_extent *out, struct kvt_error *err)
{
	const struct kvt_h5_file *own = reader->own;
	int64_t most = reader->files.file[0].nbytes;
	hsize_t offset[KVT_MAX_PARTS], nbytes = 0;
	hid_t data = dataset_of(offset, &own->group[group], begin);

	if (!kvt_h5_find_chunk(out, own->catch, data, offset)) {
		if (own->fault.what)
			return kvt_h5_check_fault(&own->fault, reader->leaf.path, err);
		if (H5Dget_chunk_storage_size(data, offset, &nbytes) < 0)
			return bad_tile(reader, group, begin, "unreadable index", err);
		return bad_tile(reader, group, begin,
				nbytes == 0 ? "missing" : "unreadable", err);
	}
	if (out->nbytes < 1)
		return bad_tile(reader, group, begin, "missing", err);
	if (out->nbytes > kvt_stored_bound(&reader->leaf.tiling[group]) ||
	    out->nbytes > most)
		return bad_tile(reader, group, begin, "larger than is possible", err);
	if (out->offset < 0 || out->offset > most - out->nbytes)
		return bad_tile(reader, group, begin, "not inside the file", err);
	return KVT_OK;
}

static enum kvt_status find_tile(const struct kvt_reader *reader, int group,
				 const int64_t begin[KVT_NAXES],
				 struct kvt_extent *out, struct kvt_error *err)
{
	const struct kvt_h5_group *own =
		&((const struct kvt_h5_file *)reader->own)->group[group];
	const struct kvt_tiling *tiling = &reader->leaf.tiling[group];
	const struct kvt_shape *shape = &reader->leaf.snapshot.group[group].shape;
	struct kvt_h5_entry entry;
	enum kvt_status status;

	if (!tiling->nbytes || !begins_tile(tiling, shape, begin))
		return kvt_fail(err, KVT_USAGE, "%s: no tile begins at these coordinates",
				reader->leaf.path);
	entry = kvt_h5_enter();
	status = find_chunk(reader, group, begin, out, err);
	kvt_h5_leave(&entry);
	/* HDF5 then leaves the filters out without saying so in the mask */
	if (!status && own->raw_edges[own->nplanes == 2 && begin[KVT_AXIS_K]] &&
	    is_cut(tiling, shape, begin))
		out->filter_mask = (1u << (tiling->shuffle + tiling->zstd +
					   tiling->fletcher32)) - 1;
	return status;
}

static enum kvt_status place_tile(struct kvt_writer *writer, int group,
				  const int64_t begin[KVT_NAXES],
				  const struct kvt_stored *stored, int64_t *out,
				  struct kvt_error *err)
{
	const struct kvt_h5_file *own = writer->own;
	const struct kvt_tiling *tiling = &writer->head.tiling[group];
	struct kvt_h5_entry entry;
	hsize_t offset[KVT_MAX_PARTS];
	enum kvt_status status;
	hid_t data;

	if (!tiling->nbytes ||
	    !begins_tile(tiling, &writer->head.snapshot.group[group].shape, begin))
		return kvt_fail(err, KVT_USAGE, "%s: no tile begins at these coordinates",
				writer->path);
	data = dataset_of(offset, &own->group[group], begin);
	entry = kvt_h5_enter();
	if (!kvt_h5_place_chunk(out, own->catch, data, offset, stored))
		status = kvt_h5_failed(err, KVT_SYSTEM, writer->temporary,
				       "cannot write");
	else
		status = kvt_h5_check_fault(&own->fault, writer->temporary, err);
	kvt_h5_leave(&entry);
	return status;
}

/* ---- cells -------------------------------------------------------------- */

/* The box of the table that a box of the group has; its dataspaces. */
static bool select_cells(hid_t *memory, hid_t *file, hid_t cells,
			 const struct kvt_group *group, const struct kvt_box *box)
{
	const struct kvt_shape shape = kvt_box_shape(box, 1);
	hsize_t begin[KVT_H5_CELL_RANK], count[KVT_H5_CELL_RANK];
	int rank = kvt_h5_cell_dims(begin, group, box->begin);

	kvt_h5_cell_dims(count, group, shape.n);
	*memory = H5Screate_simple(rank, count, NULL);
	*file = H5Dget_space(cells);
	return *memory >= 0 && *file >= 0 &&
	       H5Sselect_hyperslab(*file, H5S_SELECT_SET, begin, NULL, count, NULL) >= 0;
}

static bool is_inside(const struct kvt_box *box, const struct kvt_shape *shape)
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (box->begin[a] < 0 || box->end[a] < box->begin[a] ||
		    box->end[a] > shape->n[a])
			return false;
	return true;
}

static bool has_cells(const struct kvt_reader *reader, int group)
{
	return group >= 0 && group < reader->leaf.snapshot.ngroups &&
	       ((const struct kvt_h5_file *)reader->own)->group[group].cells >= 0;
}

static enum kvt_status fetch_cells(const struct kvt_reader *reader, int group,
				   const struct kvt_box *box, uint64_t *out,
				   struct kvt_error *err)
{
	const struct kvt_group *info = &reader->leaf.snapshot.group[group];
	hid_t cells = ((struct kvt_h5_file *)reader->own)->group[group].cells;
	hid_t memory = -1, file = -1;
	struct kvt_h5_entry entry;
	enum kvt_status status;

	if (!is_inside(box, &info->shape))
		return kvt_fail(err, KVT_USAGE, "%s: no such cells", reader->leaf.path);
	entry = kvt_h5_enter();
	status = kvt_h5_check_cells(reader, group, err);
	if (!status &&
	    (!select_cells(&memory, &file, cells, info, box) ||
	     H5Dread(cells, kvt_h5_int_type(KVT_H5_U64), memory, file,
		     H5P_DEFAULT, out) < 0))
		status = kvt_h5_failed(err, KVT_BAD_INPUT, reader->leaf.path,
				       "cannot read content_digest");
	kvt_h5_drop(file);
	kvt_h5_drop(memory);
	kvt_h5_leave(&entry);
	return status;
}

static enum kvt_status store_cells(struct kvt_writer *writer, int group,
				   const struct kvt_box *box,
				   const uint64_t *in, struct kvt_error *err)
{
	const struct kvt_group *info = &writer->head.snapshot.group[group];
	struct kvt_h5_file *own = writer->own;
	hid_t cells = own->group[group].cells;
	hid_t memory = -1, file = -1;
	struct kvt_h5_entry entry;
	enum kvt_status status;

	if (!is_inside(box, &info->shape))
		return kvt_fail(err, KVT_USAGE, "%s: no such cells", writer->path);
	entry = kvt_h5_enter();
	kvt_h5_note_cells(&own->group[group], info, box, in);
	if (!select_cells(&memory, &file, cells, info, box) ||
	    H5Dwrite(cells, kvt_h5_int_type(KVT_H5_U64), memory, file,
		     H5P_DEFAULT, in) < 0)
		status = kvt_h5_failed(err, KVT_SYSTEM, writer->temporary,
				       "cannot write");
	else
		status = kvt_h5_check_fault(&own->fault, writer->temporary, err);
	kvt_h5_drop(file);
	kvt_h5_drop(memory);
	kvt_h5_leave(&entry);
	return status;
}

/* ---- the row ------------------------------------------------------------ */

static const char *const endings[] = { ".h5", ".hdf5", ".kvh5", NULL };

const struct kvt_format kvt_hdf5_format = {
	.info = { "hdf5", "kvtool snapshot: HDF5, zstd, checksums",
		  .reads = true, .writes = true, .keeps_scales = true },
	.endings     = endings,
	.checks      = "attributes, extents, checksums that it has",
	.open_again  = true,
	.probe       = probe,
	.open        = kvt_h5_open,
	.close       = close_reader,
	.create      = kvt_h5_create,
	.finish      = kvt_h5_finish,
	.abandon     = abandon,
	.find_tile   = find_tile,
	.has_cells   = has_cells,
	.fetch_cells = fetch_cells,
	.place_tile  = place_tile,
	.store_cells = store_cells,
};
