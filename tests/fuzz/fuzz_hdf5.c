/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_hdf5.c - any bytes as a snapshot: it is refused, or what it says of
 * itself holds and its first tiles, runs and cells can be asked for
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/kvt/tile.h"
#include "lib/kvt/write.h"
#include "tests/temporary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__lsan_default_suppressions(void);

/* libhdf5 1.10 loses what it had read of an object when it refuses the rest. */
const char *__lsan_default_suppressions(void)
{
	return "leak:libhdf5";
}

enum { MOST_BYTES = 1 << 20, MOST_TILES = 8 };

static bool next_tile(int64_t begin[KVT_NAXES], const struct kvt_tiling *tiling,
		      const struct kvt_shape *shape)
{
	for (int a = KVT_NAXES - 1; a >= 0; a--) {
		begin[a] += tiling->n[a];
		if (begin[a] < shape->n[a])
			return true;
		begin[a] = 0;
	}
	return false;
}

static bool is_empty(const struct kvt_shape *shape)
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (shape->n[a] == 0)
			return true;
	return false;
}

static void read_tiles(struct kvt_dump *reader, int g,
		       const struct kvt_group *group)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(reader, g);
	struct kvt_stored stored = { .capacity = kvt_stored_bound(tiling) };
	int64_t begin[KVT_NAXES] = { 0 };
	struct kvt_codec_scratch *scratch;
	int tiles = 0;
	uint8_t *tile;

	if (tiling->nbytes > MOST_BYTES || kvt_codec_scratch_new(&scratch, NULL))
		return;
	tile = malloc((size_t)tiling->nbytes);
	stored.bytes = malloc((size_t)stored.capacity);
	do {
		if (!kvt_read_tile(reader, g, begin, &stored, NULL) &&
		    !kvt_stored_check(&stored, tiling, NULL) &&
		    kvt_decode(tile, &stored, tiling, scratch, NULL))
			continue;
	} while (++tiles < MOST_TILES && next_tile(begin, tiling, &group->shape));
	kvt_codec_scratch_free(scratch);
	free(stored.bytes);
	free(tile);
}

/* One element, by its cell and, of a run of bytes, by itself. */
static void read_one(struct kvt_dump *reader, int g)
{
	struct kvt_box box;
	uint64_t cell, element[2];

	for (int a = 0; a < KVT_NAXES; a++) {
		box.begin[a] = 0;
		box.end[a] = 1;
	}
	if (kvt_dump_has_cells(reader, g) &&
	    kvt_read_cells(reader, g, &box, &cell, NULL))
		return;
	/* a layout that splits an axis has no box of one element */
	if (!kvt_dump_tiling(reader, g) &&
	    kvt_dump_read(reader, g, &box, NULL, element, NULL))
		return;
}

static void read_all(struct kvt_dump *reader)
{
	const struct kvt_snapshot *snapshot = kvt_dump_snapshot(reader);
	struct kvt_snapshot copy;

	/* touches every table and string */
	if (!kvt_snapshot_copy(&copy, snapshot, NULL))
		kvt_snapshot_free(&copy);
	if (kvt_snapshot_check(snapshot, NULL))
		abort();
	for (int g = 0; g < snapshot->ngroups; g++) {
		if (is_empty(&snapshot->group[g].shape))
			continue;
		if (kvt_dump_tiling(reader, g))
			read_tiles(reader, g, &snapshot->group[g]);
		read_one(reader, g);
	}
}

/* libhdf5 asks for the real name of a file: an unnamed one would not do. */
static char path[TEMPORARY_NAME];
static int fd = -1;

static void remove_file(void)
{
	unlink(path);
}

static void write_file(const uint8_t *data, size_t size)
{
	if (fd < 0) {
		temporary_name(path, "/dev/shm", "kvt-fuzz-XXXXXX");
		fd = mkstemp(path);
		atexit(remove_file);
	}
	if (fd < 0 || ftruncate(fd, 0) ||
	    pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct kvt_hints hints = { .format = "hdf5" };
	struct kvt_dump *reader = NULL;
	struct kvt_error err;

	write_file(data, size);
	if (kvt_open(&reader, path, &hints, &err))
		return 0;
	read_all(reader);
	kvt_dump_close(reader);
	return 0;
}
