/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proof.c - checksums of what HDF5 keeps none of: tables, content cells, and
 * data that is one run
 *
 * Version 1.1 has them; what 1.0 says of itself is taken as it is, and its data held
 * against the content cells, if there are any.
 */
#include "formats/hdf5/hdf5.h"

#include <stdio.h>
#include <stdlib.h>

#include "formats/file/proof.h"
#include "formats/file/snapshot_hash.h"

static const char tables_checksum[] = "tables_checksum";

struct sums_name {
	char s[32];
};

static struct sums_name sums_name(const struct kvt_group *group, int plane)
{
	struct sums_name name;

	snprintf(name.s, sizeof(name.s), "%s_checksum",
		 kvt_h5_plane_name(&group->layout, plane));
	return name;
}

/* ---- tables ------------------------------------------------------------- */

static void hash_data(struct kvt_hash *hash, const struct kvt_h5_file *own, int g)
{
	const struct kvt_h5_group *group = &own->group[g];

	for (int p = 0; p < group->nplanes; p++) {
		const struct kvt_h5_axes *axes = &group->axes[p];

		kvt_hash_text(hash, kvt_h5_axes_string(axes).s);
		kvt_hash_number(hash, axes->rank);
		for (int i = 0; i < axes->rank; i++)
			kvt_hash_number(hash, axes->extent[i]);
		kvt_hash_table(hash, group->sum[p], group->nsums[p],
			       sizeof(*group->sum[p]));
	}
	kvt_hash_number(hash, group->cells >= 0);
	if (group->cells >= 0)
		kvt_hash_number(hash, (int64_t)group->cells_sum);
}

/* The order of all of this is that of kvtool-snapshot(5). */
static bool hash_tables(uint64_t *out, const struct kvt_snapshot *snapshot,
			const struct kvt_h5_file *own)
{
	struct kvt_hash *hash = kvt_hash_new();

	if (!hash)
		return false;
	kvt_hash_number(hash, own->version[0]);
	kvt_hash_number(hash, own->version[1]);
	kvt_hash_root(hash, snapshot);
	for (int g = 0; g < snapshot->ngroups; g++) {
		kvt_hash_group(hash, &snapshot->group[g]);
		hash_data(hash, own, g);
	}
	kvt_hash_requests(hash, snapshot);
	kvt_hash_liveness(hash, snapshot);
	*out = kvt_hash_end(hash);
	return true;
}

/* All 64 bits are in use, which kvt_h5_get_int() takes for a mistake. */
static uint64_t get_sum(struct kvt_h5_in *in, hid_t object, const char *name)
{
	hid_t attr = -1, type = -1, space = -1;
	uint64_t sum = 0;

	if (!kvt_h5_has_attr(in, object, name))
		kvt_h5_bad(in, object,
			   "attribute %s is missing, which version %lld.%lld has", name,
			   LL(in->version[0]), LL(in->version[1]));
	else if ((attr = H5Aopen(object, name, H5P_DEFAULT)) < 0 ||
		 (type = H5Aget_type(attr)) < 0 || (space = H5Aget_space(attr)) < 0 ||
		 H5Tequal(type, kvt_h5_int_type(KVT_H5_U64)) <= 0 ||
		 H5Sget_simple_extent_type(space) != H5S_SCALAR ||
		 H5Aread(attr, type, &sum) < 0)
		kvt_h5_bad(in, object,
			   "attribute %s is not a little-endian integer of 8 bytes, unsigned",
			   name);
	kvt_h5_drop(space);
	kvt_h5_drop(type);
	kvt_h5_drop(attr);
	return sum;
}

static bool put_sum(hid_t object, const char *name, uint64_t sum)
{
	/* the same 64 bits */
	return kvt_h5_put_int(object, name, KVT_H5_U64, (int64_t)sum);
}

/* ---- reading ------------------------------------------------------------ */

/* Does a file of this version have checksums? */
static bool has_proof(const struct kvt_h5_in *in)
{
	return in->version[0] > 1 || in->version[1] >= 1;
}

void kvt_h5_read_sums(struct kvt_reader *reader, int index, int plane,
		      struct kvt_h5_in *in, hid_t object)
{
	struct kvt_h5_group *own = &((struct kvt_h5_file *)reader->own)->group[index];
	struct sums_name name = sums_name(&reader->leaf.snapshot.group[index], plane);

	if (has_proof(in))
		own->sum[plane] = kvt_h5_get_table(in, object, name.s, KVT_H5_U64, -1,
						   &own->nsums[plane]);
}

/*
 * Another program may have put tiles in place of a run, which have checksums of
 * their own, or one run in place of tiles, which then has none and is held against
 * the content cells.
 */
static void prove_data(struct kvt_reader *reader, int index, struct kvt_h5_in *in)
{
	struct kvt_h5_file *own = reader->own;
	struct kvt_h5_group *group = &own->group[index];

	if (reader->leaf.tiling[index].nbytes)
		return;
	reader->leaf.proven.flat[index] = true;
	for (int p = 0; !in->status && p < group->nplanes; p++)
		if (!group->nbytes[p])
			continue;
		else if (!group->sum[p])
			reader->leaf.held[index] = true;
		else if (group->nsums[p] != kvt_range_count(group->nbytes[p]))
			kvt_h5_bad(in, group->data[p],
				   "data has %lld checksums, expected %lld",
				   LL(group->nsums[p]),
				   LL(kvt_range_count(group->nbytes[p])));
		else
			in->status = kvt_proof_add(&own->proof, group->at[p],
						   group->nbytes[p], group->sum[p],
						   in->err);
	reader->leaf.proven.flat[index] &= !reader->leaf.held[index];
}

/* Of files of version 1.0, which have no checksums. */
static void accept_old(struct kvt_reader *reader, struct kvt_h5_in *in)
{
	const struct kvt_h5_file *own = reader->own;

	for (int g = 0; g < reader->leaf.snapshot.ngroups; g++)
		reader->leaf.held[g] |= own->group[g].cells >= 0;
	if (kvt_h5_has_attr(in, in->file, tables_checksum))
		kvt_h5_bad(in, -1,
			   "format_version is 1.0, which has no attribute %s, but there is one",
			   tables_checksum);
}

void kvt_h5_check_proof(struct kvt_reader *reader, struct kvt_h5_in *in)
{
	struct kvt_h5_file *own = reader->own;
	const struct kvt_snapshot *snapshot = &reader->leaf.snapshot;
	uint64_t is, expected;

	reader->leaf.proven.can_be = true;
	own->version[0] = in->version[0];
	own->version[1] = in->version[1];
	if (!has_proof(in)) {
		accept_old(reader, in);
		return;
	}
	expected = get_sum(in, in->file, tables_checksum);
	for (int g = 0; g < snapshot->ngroups; g++)
		if (own->group[g].cells >= 0)
			own->group[g].cells_sum = get_sum(in, own->group[g].cells,
							  "checksum");
	if (in->status)
		return;
	if (!hash_tables(&is, snapshot, own))
		in->status = kvt_no_memory(in->err, in->path);
	else if (is != expected)
		kvt_h5_bad(in, -1,
			   "tables or attributes are damaged: their XXH3 is %016llx, attribute %s says %016llx",
			   (unsigned long long)is, tables_checksum,
			   (unsigned long long)expected);
	reader->leaf.proven.tables = !in->status;
	for (int g = 0; g < snapshot->ngroups && !in->status; g++) {
		reader->leaf.proven.cells[g] = own->group[g].cells >= 0;
		prove_data(reader, g, in);
	}
	reader->files.file[0].proof = &own->proof;
}

/* ---- content cells ------------------------------------------------------ */

static int64_t count_cells(const struct kvt_group *group)
{
	const int64_t *n = group->shape.n;

	return n[KVT_AXIS_L] * n[KVT_AXIS_B] * n[KVT_AXIS_H] * n[KVT_AXIS_K];
}

/* All of the table once, when some of it is asked for first. */
enum kvt_status kvt_h5_check_cells(const struct kvt_reader *reader, int index,
				   struct kvt_error *err)
{
	enum { MOST = 4096 };
	struct kvt_h5_group *own = &((struct kvt_h5_file *)reader->own)->group[index];
	int64_t n = count_cells(&reader->leaf.snapshot.group[index]);
	enum kvt_status status;
	uint64_t cells[MOST], sum = 0;
	haddr_t at;

	if (!reader->leaf.proven.cells[index] || own->cells_checked || !n)
		return KVT_OK;
	at = H5Dget_offset(own->cells);
	if (at == HADDR_UNDEF || at > INT64_MAX)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: group %s: content_digest is not one run",
				reader->leaf.path, reader->leaf.snapshot.group[index].id);
	for (int64_t i = 0; i < n; i += MOST) {
		int64_t count = n - i < MOST ? n - i : MOST;

		status = kvt_file_read(&reader->files.file[0], cells, count * 8,
				       (int64_t)at + i * 8, err);
		if (status)
			return status;
		sum += kvt_cells_sum(cells, count, i);
	}
	if (sum != own->cells_sum)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: group %s: content_digest is damaged: its checksum is %016llx, expected %016llx",
				reader->leaf.path, reader->leaf.snapshot.group[index].id,
				(unsigned long long)sum,
				(unsigned long long)own->cells_sum);
	own->cells_checked = true;
	return KVT_OK;
}

/* What these cells, all heads of some layers and blocks, add to the sum. */
void kvt_h5_note_cells(struct kvt_h5_group *own, const struct kvt_group *group,
		       const struct kvt_box *box, const uint64_t *cells)
{
	const int64_t *n = group->shape.n;
	int64_t kv = box->end[KVT_AXIS_K] - box->begin[KVT_AXIS_K];

	for (int64_t l = box->begin[0]; l < box->end[0]; l++)
	for (int64_t b = box->begin[1]; b < box->end[1]; b++)
	for (int64_t h = box->begin[3]; h < box->end[3]; h++) {
		int64_t row = (l * n[KVT_AXIS_B] + b) * n[KVT_AXIS_H] + h;

		own->cells_sum += kvt_cells_sum(cells, kv, row * n[KVT_AXIS_K] +
						box->begin[KVT_AXIS_K]);
		cells += kv;
	}
}

/* ---- writing ------------------------------------------------------------ */

enum kvt_status kvt_h5_new_sums(struct kvt_h5_file *own, int index, int plane,
				struct kvt_error *err)
{
	struct kvt_h5_group *group = &own->group[index];
	int64_t n = kvt_range_count(group->nbytes[plane]);

	group->nsums[plane] = n;
	group->sum[plane] = calloc((size_t)n, sizeof(*group->sum[plane]));
	if (!group->sum[plane])
		return kvt_fail(err, KVT_SYSTEM, "out of memory for %lld checksums",
				LL(n));
	return kvt_proof_add(&own->proof, group->at[plane], group->nbytes[plane],
			     group->sum[plane], err);
}

static bool put_sums(const struct kvt_writer *writer, int g, hid_t object)
{
	const struct kvt_h5_file *own = writer->own;
	const struct kvt_h5_group *group = &own->group[g];

	if (group->cells >= 0 && !put_sum(group->cells, "checksum", group->cells_sum))
		return false;
	for (int p = 0; p < group->nplanes; p++)
		if (group->sum[p] &&
		    !kvt_h5_put_table(object,
				      sums_name(&writer->head.snapshot.group[g], p).s,
				      KVT_H5_U64, group->sum[p], group->nsums[p]))
			return false;
	return true;
}

static bool put_all_sums(const struct kvt_writer *writer)
{
	const struct kvt_h5_file *own = writer->own;
	hid_t parent = H5Gopen2(own->file, "groups", H5P_DEFAULT);
	bool ok = parent >= 0;

	for (int g = 0; ok && g < writer->head.snapshot.ngroups; g++) {
		hid_t object = H5Gopen2(parent, writer->head.snapshot.group[g].id,
					H5P_DEFAULT);

		ok = object >= 0 && put_sums(writer, g, object);
		kvt_h5_drop(object);
	}
	kvt_h5_drop(parent);
	return ok;
}

enum kvt_status kvt_h5_write_proof(struct kvt_writer *writer, struct kvt_error *err)
{
	struct kvt_h5_file *own = writer->own;
	enum kvt_status status;
	uint64_t sum;

	if ((status = kvt_proof_complete(&writer->files.file[0], err)))
		return status;
	kvt_h5_version(own->version);
	if (!hash_tables(&sum, &writer->head.snapshot, own))
		return kvt_no_memory(err, writer->temporary);
	if (!put_all_sums(writer) || !put_sum(own->file, tables_checksum, sum))
		return kvt_h5_failed(err, KVT_SYSTEM, writer->temporary, "cannot write");
	return KVT_OK;
}
