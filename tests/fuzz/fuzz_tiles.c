/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tiles.c - a snapshot with content hashes whose data and hashes are damaged:
 * a tile is refused, or what it holds can be held against its hashes, and passes
 * for what was written only if it is that
 *
 * The first byte chooses how the snapshot is stored, the second how much of the
 * input goes over its data; the rest goes over the hashes.  Zero bytes change
 * nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/kvt/write.h"
#include "lib/run/leaf.h"
#include "lib/tile/hash.h"
#include "tests/sample.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__lsan_default_suppressions(void);

/* libhdf5 1.10 loses what it had read of an object when it refuses the rest. */
const char *__lsan_default_suppressions(void)
{
	return "leak:libhdf5";
}

enum { L = 2, B = 3, S = 4, H = 2, K = 2, D = 4, ELEM = 2,
       CELL = S * D * ELEM, NCELLS = L * B * H * K, NBYTES = NCELLS * CELL };

/* A cell is a run in this layout, and cells are in the order of their hashes. */
static const char layout[] = "L B H K S D";
static const struct kvt_shape shape = { { L, B, S, H, K, D }, ELEM };

struct sample {
	struct kvt_create_options options;
	uint8_t *image;			/* of the file */
	size_t nbytes;
	int nparts;
	struct kvt_extent part[NCELLS];	/* of the file: data, tile by tile */
	size_t hashes;			/* where they are in the file */
};

static struct sample samples[] = {
	{ .options = { .tile_bytes = 1 } },
	{ .options = { .tile_bytes = 1 << 10 } },
	{ .options = { .uncompressed = true } },
};
enum { NSAMPLES = sizeof(samples) / sizeof(samples[0]) };

static uint8_t written[NBYTES];
static uint64_t hash[NCELLS];
static char path[TEMPORARY_NAME];

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* ---- the samples -------------------------------------------------------- */

/* Cells of a tile in its own order: those of the whole, with its extents. */
static int64_t cell_of(const struct kvt_box *box, int i)
{
	int64_t h = box->end[KVT_AXIS_H] - box->begin[KVT_AXIS_H];
	int64_t k = box->end[KVT_AXIS_K] - box->begin[KVT_AXIS_K];
	int64_t b = box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B];

	return (((box->begin[KVT_AXIS_L] + i / k / h / b) * B +
		 box->begin[KVT_AXIS_B] + i / k / h % b) * H +
		box->begin[KVT_AXIS_H] + i / k % h) * K + box->begin[KVT_AXIS_K] + i % k;
}

static bool is_there(const struct kvt_box *box, int i)
{
	int64_t hk = (box->end[KVT_AXIS_H] - box->begin[KVT_AXIS_H]) *
		     (box->end[KVT_AXIS_K] - box->begin[KVT_AXIS_K]);
	int64_t b = box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B];

	/* a tile may reach beyond the group */
	return box->begin[KVT_AXIS_B] + i / hk % b < B &&
	       box->begin[KVT_AXIS_L] + i / hk / b < L;
}

static void write_tiles(struct kvt_writer *w, const struct kvt_tiling *tiling)
{
	struct kvt_stored stored = { .capacity = kvt_stored_bound(tiling) };
	uint8_t *tile = calloc(1, (size_t)tiling->nbytes);
	int64_t begin[KVT_NAXES] = { 0 };
	struct kvt_codec_scratch *scratch;

	stored.bytes = malloc((size_t)stored.capacity);
	must(tile && stored.bytes && !kvt_codec_scratch_new(&scratch, NULL));
	do {
		struct kvt_box box = sample_tile_box(tiling, begin);

		for (int i = 0; i < tiling->nbytes / CELL; i++)
			if (is_there(&box, i))
				memcpy(tile + i * CELL,
				       written + cell_of(&box, i) * CELL, CELL);
		must(!kvt_encode(&stored, tile, tiling, scratch, NULL) &&
		     !sample_store_tile(w, 0, begin, &stored, NULL));
	} while (sample_next_tile(begin, tiling, &shape));
	kvt_codec_scratch_free(scratch);
	free(stored.bytes);
	free(tile);
}

static void write_sample(const struct sample *s, const struct kvt_snapshot *snapshot)
{
	struct kvt_box box = kvt_box_whole(&snapshot->group[0].shape);
	struct kvt_create_options options = s->options;
	struct kvt_writer *w;

	options.format = "hdf5";
	options.force = options.no_sync = true;
	must(!kvt_create(&w, path, &options, snapshot, NULL));
	must(kvt_writer_has_cells(w, 0) && !kvt_store_cells(w, 0, &box, hash, NULL));
	if (kvt_writer_tiling(w, 0))
		write_tiles(w, kvt_writer_tiling(w, 0));
	else
		must(!kvt_write_box(w, 0, &box, written, NULL));
	must(!kvt_commit(w, NULL));
	kvt_close_writer(w);
}

static size_t find_hashes(const struct sample *s)
{
	for (size_t i = 0; i + sizeof(hash) <= s->nbytes; i++)
		if (!memcmp(s->image + i, hash, sizeof(hash)))
			return i;
	abort();
}

static void find_parts(struct sample *s)
{
	static const int64_t first[KVT_NAXES] = { 0 };
	struct kvt_dump *reader;
	const struct kvt_tiling *tiling;
	int64_t begin[KVT_NAXES] = { 0 }, buffer;

	must(!kvt_open(&reader, path, NULL, NULL));
	s->hashes = find_hashes(s);
	tiling = kvt_dump_tiling(reader, 0);
	must(!tiling || (tiling->n[KVT_AXIS_S] == S && tiling->n[KVT_AXIS_D] == D));
	if (!tiling) {
		s->nparts = 1;
		s->part[0].nbytes = NBYTES;
		must(!kvt_dump_locate(&buffer, &s->part[0].offset, reader, KVT_FILES, 0,
					first, NULL));
	} else {
		do {
			const struct kvt_leaf *leaf = kvt_dump_is_leaf(reader);

			must(!leaf->ops->find_tile(leaf, 0, begin,
						   &s->part[s->nparts++], NULL));
		} while (sample_next_tile(begin, tiling, &shape));
	}
	kvt_dump_close(reader);
}

static void load(struct sample *s)
{
	FILE *f = fopen(path, "rb");

	must(f && !fseek(f, 0, SEEK_END));
	s->nbytes = (size_t)ftell(f);
	rewind(f);
	s->image = malloc(s->nbytes);
	must(s->image && fread(s->image, 1, s->nbytes, f) == s->nbytes);
	fclose(f);
}

static void remove_file(void)
{
	unlink(path);
}

static void begin(void)
{
	struct kvt_snapshot snapshot;
	struct kvt_group *g;
	int fd;

	for (int i = 0; i < NBYTES; i++)	/* not all alike, but it compresses */
		written[i] = (uint8_t)(i % 5 ? i / CELL : i * 7);
	for (int i = 0; i < NCELLS; i++)
		hash[i] = kvt_cell_hash(written + i * CELL, CELL);
	temporary_name(path, "/dev/shm", "kvt-fuzz-XXXXXX");
	must((fd = mkstemp(path)) >= 0);
	close(fd);
	atexit(remove_file);
	kvt_snapshot_init(&snapshot);
	snapshot.ngroups = 1;
	g = &snapshot.group[0];
	*g = (struct kvt_group){ .id = "g0", .kind = KVT_FULL_ATTENTION, .block_size = S,
				 .dtype = kvt_dtype_find("bfloat16"), .total_heads = H,
				 .tokens_per_slot = 1, .replication = 1,
				 .shape = shape };
	must(!kvt_layout_parse(&g->layout, layout, NULL));
	for (int i = 0; i < NSAMPLES; i++) {
		write_sample(&samples[i], &snapshot);
		load(&samples[i]);
		find_parts(&samples[i]);
	}
	kvt_snapshot_free(&snapshot);
}

/* ---- damage ------------------------------------------------------------- */

/* Returns whether a byte has changed. */
static bool damage(const struct sample *s, const uint8_t *data, size_t ndata,
		   const uint8_t *hashes, size_t nhashes)
{
	uint8_t *image = malloc(s->nbytes);
	FILE *f = fopen(path, "wb");
	size_t done = 0;
	bool changed;

	must(image && f);
	memcpy(image, s->image, s->nbytes);
	for (int p = 0; p < s->nparts; p++)
		for (int64_t i = 0; i < s->part[p].nbytes && done < ndata; i++)
			image[s->part[p].offset + i] ^= data[done++];
	for (size_t i = 0; i < nhashes && i < sizeof(hash); i++)
		image[s->hashes + i] ^= hashes[i];
	must(fwrite(image, 1, s->nbytes, f) == s->nbytes && !fclose(f));
	changed = memcmp(image, s->image, s->nbytes) != 0;
	free(image);
	return changed;
}

/* Does a cell pass?  If its hash is the one that was written, it is what was. */
static int passes(const uint8_t *bytes, uint64_t is, int64_t cell)
{
	if (kvt_cell_hash(bytes, CELL) != is)
		return 0;
	if (is == hash[cell])
		must(!memcmp(bytes, written + cell * CELL, CELL));
	return 1;
}

/* How many cells pass, here and below. */
static int check_tiles(struct kvt_dump *reader, const struct kvt_tiling *tiling,
			const uint64_t *is)
{
	struct kvt_stored stored = { .capacity = kvt_stored_bound(tiling) };
	uint8_t *tile = malloc((size_t)tiling->nbytes);
	int64_t begin[KVT_NAXES] = { 0 };
	struct kvt_codec_scratch *scratch;
	int n = 0;

	stored.bytes = malloc((size_t)stored.capacity);
	must(tile && stored.bytes && !kvt_codec_scratch_new(&scratch, NULL));
	do {
		struct kvt_box box = sample_tile_box(tiling, begin);
		struct kvt_error err = { "" };

		if (kvt_read_tile(reader, 0, begin, &stored, &err) ||
		    kvt_stored_check(&stored, tiling, &err) ||
		    kvt_decode(tile, &stored, tiling, scratch, &err)) {
			must(err.text[0]);
			continue;
		}
		for (int i = 0; i < tiling->nbytes / CELL; i++)
			if (is_there(&box, i))
				n += passes(tile + i * CELL, is[cell_of(&box, i)],
					    cell_of(&box, i));
	} while (sample_next_tile(begin, tiling, &shape));
	kvt_codec_scratch_free(scratch);
	free(stored.bytes);
	free(tile);
	return n;
}

static int check(struct kvt_dump *reader)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(reader, 0);
	struct kvt_box box = kvt_box_whole(&kvt_dump_snapshot(reader)->group[0].shape);
	uint64_t is[NCELLS];
	uint8_t bytes[NBYTES];
	struct kvt_error err = { "" };
	int n = 0;

	if (kvt_read_cells(reader, 0, &box, is, &err)) {
		must(err.text[0]);
		return 0;
	}
	if (tiling)
		return check_tiles(reader, tiling, is);
	if (kvt_dump_read(reader, 0, &box, NULL, bytes, &err)) {
		must(err.text[0]);
		return 0;
	}
	for (int i = 0; i < NCELLS; i++)
		n += passes(bytes + i * CELL, is[i], i);
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_error err = { "" };
	struct kvt_dump *reader;
	size_t ndata;
	bool changed;

	if (!samples[0].image)
		begin();
	if (size < 2)
		return 0;
	ndata = (size - 2) * data[1] / 255;
	changed = damage(&samples[data[0] % NSAMPLES], data + 2, ndata, data + 2 + ndata,
			 size - 2 - ndata);
	if (kvt_open(&reader, path, NULL, &err)) {
		must(changed && err.text[0]);
		return 0;
	}
	must(check(reader) == NCELLS || changed);
	kvt_dump_close(reader);
	return 0;
}
