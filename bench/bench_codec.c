/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_codec.c - how small and how fast tiles get, by tile size and by the
 * parameters of zstd; the table in lib/tile/zstd_frame.c is from here
 *
 * Times are CPU seconds of one thread, the best of several rounds.  The first
 * rows of a block are zstd alone, on planes that are shuffled already; "codec"
 * is kvt_encode() and kvt_decode() with everything that a stored tile needs.
 *
 * bench_codec [FOLDER]: the table, of the real dumps in that folder
 * bench_codec --parts SNAPSHOT: CPU seconds of decoding, permuting and encoding
 * all of it, for bench_files.py
 */
#define ZSTD_STATIC_LINKING_ONLY	/* experimental parameters, where offered */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <zstd.h>

#include "lib/kvt/kernels.h"
#include "lib/kvt/tile.h"
#include "lib/kvt/write.h"
#include "lib/tile/zstd_frame.h"

enum { ELEM = 2, ROUNDS = 5 };
static const double ROUND_SECONDS = 0.03;

struct data {
	const char *name;
	uint8_t *bytes;			/* runs of one layer, head, and K or V */
	int64_t nbytes;
};

static void die(const char *why)
{
	fprintf(stderr, "bench_codec: %s\n", why);
	exit(1);
}

/* ---- data --------------------------------------------------------------- */

static double uniform(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t *state)
{
	double u = uniform(state), v = uniform(state);

	return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static uint16_t bfloat16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Channels differ in scale, and keys in mean; the rest is noise. */
static struct data synthetic(void)
{
	enum { LAYERS = 4, HEADS = 4, SLOTS = 1024, DIM = 128 };
	int64_t n = (int64_t)LAYERS * HEADS * 2 * SLOTS * DIM;
	uint16_t *out = malloc((size_t)n * sizeof(*out)), *at = out;
	uint64_t state = 1;

	for (int run = 0; run < LAYERS * HEADS * 2; run++) {
		double scale[DIM], mean[DIM];

		for (int d = 0; d < DIM; d++) {
			scale[d] = exp(0.7 * normal(&state));
			mean[d] = run % 2 ? 0 : scale[d] * normal(&state);
		}
		for (int i = 0; i < SLOTS * DIM; i++)
			*at++ = bfloat16((float)(scale[i % DIM] * normal(&state) +
						 mean[i % DIM]));
	}
	return (struct data){ "synthetic", (uint8_t *)out, n * ELEM };
}

/* Blocks that requests fill; the others are zeros, or were somebody else's. */
static int64_t keep_live(uint8_t *bytes, const struct kvt_group *group)
{
	const int64_t *n = group->shape.n;
	int64_t block = n[KVT_AXIS_S] * n[KVT_AXIS_D] * ELEM, kept = 0;
	int64_t runs = n[KVT_AXIS_L] * n[KVT_AXIS_H] * n[KVT_AXIS_K];

	for (int64_t i = 0; i < runs * n[KVT_AXIS_B]; i++)
		if (group->block_valid &&
		    group->block_valid[i % n[KVT_AXIS_B]] == n[KVT_AXIS_S]) {
			memmove(bytes + kept, bytes + i * block, (size_t)block);
			kept += block;
		}
	return kept;
}

/* A dump of one bfloat16 group, in the order L H K B S D, as tiles have it. */
static struct data real(const char *name, const char *path)
{
	const struct kvt_group *group;
	struct kvt_dump *reader;
	struct kvt_layout order;
	struct kvt_views from, to;
	struct kvt_plans plans;
	struct kvt_plan_walk walk;
	struct kvt_error err;
	struct kvt_box box;
	uint8_t *raw, *out;
	int64_t kept;

	if (kvt_open(&reader, path, NULL, &err))
		die(err.text);
	group = &kvt_dump_snapshot(reader)->group[0];
	box = kvt_box_whole(&group->shape);
	if (group->shape.elem != ELEM ||
	    kvt_layout_parse(&order, "LHKBSD", &err) ||
	    kvt_layout_views(&from, &group->layout, &box, ELEM, &err) ||
	    kvt_layout_views(&to, &order, &box, ELEM, &err) ||
	    kvt_plans_init(&plans, &to, &from, &err) || plans.count != 1)
		die(path);
	raw = malloc((size_t)from.nbytes);
	out = malloc((size_t)to.nbytes);
	if (kvt_dump_read(reader, 0, &box, NULL, raw, &err))
		die(err.text);
	kvt_plan_walk_start(&walk, &plans.plan[0]);
	for (; !walk.done; kvt_plan_walk_next(&walk))
		memcpy(out + walk.dst, raw + walk.src,
		       (size_t)plans.plan[0].run);
	kept = keep_live(out, group);
	free(raw);
	kvt_dump_close(reader);
	return (struct data){ name, out, kept };
}

/* ---- ways to encode a tile ---------------------------------------------- */

struct bench {
	int64_t tile, ntiles, room;
	const struct data *data;
	uint8_t *planes;		/* all tiles, shuffled */
	uint8_t *stored, *back;
	int64_t *nstored;
	ZSTD_CCtx *c;
	ZSTD_DCtx *d;
	struct kvt_tiling tiling;
	struct kvt_codec_scratch *scratch;
};

static const struct way {
	const char *name;
	int level, min_match, hash_log, target;
	bool huffman, codec;
} ways[] = {
	{ "level 3",                        3, 0, 0,  0,  false, false },
	{ "level 1",                        1, 0, 0,  0,  false, false },
	{ "level 1, minMatch 7, hashLog 10", 1, 7, 10, 0,  false, false },
	{ "tuned",                          1, 7, 14, 64, true,  false },
	{ "codec",                          1, 0, 0,  0,  false, true },
};

static void set_parameters(ZSTD_CCtx *c, const struct way *way)
{
	ZSTD_CCtx_reset(c, ZSTD_reset_session_and_parameters);
	ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, way->level);
	ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
	if (way->min_match)
		ZSTD_CCtx_setParameter(c, ZSTD_c_minMatch, way->min_match);
	if (way->hash_log)
		ZSTD_CCtx_setParameter(c, ZSTD_c_hashLog, way->hash_log);
	if (way->target)
		ZSTD_CCtx_setParameter(c, ZSTD_c_targetLength, way->target);
#ifdef ZSTD_c_literalCompressionMode
	if (way->huffman)
		ZSTD_CCtx_setParameter(c, ZSTD_c_literalCompressionMode,
				       ZSTD_lcm_huffman);
#endif
}

/* One frame whose blocks end where the planes do. */
static int64_t encode_planes(struct bench *b, int64_t i)
{
	ZSTD_outBuffer out = { b->stored + i * b->room, (size_t)b->room, 0 };
	ZSTD_inBuffer in = { b->planes + i * b->tile, 0, 0 };

	ZSTD_CCtx_reset(b->c, ZSTD_reset_session_only);
	ZSTD_CCtx_setPledgedSrcSize(b->c, (size_t)b->tile);
	for (int p = 1; p <= ELEM; p++) {
		in.size = (size_t)(b->tile / ELEM * p);
		if (ZSTD_compressStream2(b->c, &out, &in, p == ELEM ?
					 ZSTD_e_end : ZSTD_e_flush))
			die("zstd failed");
	}
	return (int64_t)out.pos;
}

static void encode(struct bench *b, const struct way *way, int64_t i)
{
	struct kvt_stored stored = { .bytes = b->stored + i * b->room,
				     .capacity = b->room };

	if (!way->codec) {
		b->nstored[i] = encode_planes(b, i);
		return;
	}
	if (kvt_encode(&stored, b->data->bytes + i * b->tile, &b->tiling,
		       b->scratch, NULL) || stored.filter_mask)
		die("kvt_encode failed");
	b->nstored[i] = stored.nbytes;
}

static void decode(struct bench *b, const struct way *way, int64_t i)
{
	struct kvt_stored stored = { .bytes = b->stored + i * b->room,
				     .capacity = b->room,
				     .nbytes = b->nstored[i] };

	if (!way->codec) {
		if (ZSTD_decompressDCtx(b->d, b->back, (size_t)b->tile,
					stored.bytes, (size_t)stored.nbytes) !=
		    (size_t)b->tile)
			die("zstd failed");
		return;
	}
	if (kvt_decode(b->back, &stored, &b->tiling, b->scratch, NULL))
		die("kvt_decode failed");
}

/* ---- measuring ---------------------------------------------------------- */

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* GB/s of plain bytes: the best round, each of as many passes as it takes. */
static double speed(struct bench *b, const struct way *way,
		    void (*step)(struct bench *, const struct way *, int64_t))
{
	double best = 0;

	for (int round = 0; round < ROUNDS; round++) {
		double start = cpu_seconds(), now;
		int64_t passes = 0;

		do {
			for (int64_t i = 0; i < b->ntiles; i++)
				step(b, way, i);
			passes++;
			now = cpu_seconds();
		} while (now - start < ROUND_SECONDS);
		now = (double)(passes * b->ntiles * b->tile) / (now - start);
		best = now > best ? now : best;
	}
	return best * 1e-9;
}

static void measure(struct bench *b)
{
	for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
		const struct way *way = &ways[w];
		double encoding, decoding;
		int64_t total = 0;

		set_parameters(b->c, way);
		encoding = speed(b, way, encode);
		decoding = speed(b, way, decode);
		for (int64_t i = 0; i < b->ntiles; i++)
			total += b->nstored[i];
		printf("%-10s %4lld KiB  %-32s %6.3f %6.2f %6.2f\n",
		       b->data->name, (long long)b->tile >> 10, way->name,
		       (double)(b->ntiles * b->tile) / (double)total, encoding,
		       decoding);
		fflush(stdout);
	}
}

static void bench(const struct data *data, int64_t tile)
{
	struct bench b = { .tile = tile, .ntiles = data->nbytes / tile,
		.data = data, .c = ZSTD_createCCtx(), .d = ZSTD_createDCtx(),
		.tiling = { .nbytes = tile, .elem = ELEM, .shuffle = true,
			    .zstd = true, .fletcher32 = true,
			    .level = KVT_ZSTD_LEVEL } };

	if (kvt_codec_scratch_new(&b.scratch, NULL))
		die("out of memory");
	b.room = kvt_stored_bound(&b.tiling);
	b.planes = malloc((size_t)(b.ntiles * tile));
	b.stored = malloc((size_t)(b.ntiles * b.room));
	b.nstored = calloc((size_t)b.ntiles, sizeof(*b.nstored));
	b.back = malloc((size_t)tile);
	for (int64_t i = 0; i < b.ntiles; i++)
		kvt_shuffle(b.planes + i * tile, data->bytes + i * tile, tile, ELEM);
	measure(&b);
	kvt_codec_scratch_free(b.scratch);
	ZSTD_freeCCtx(b.c);
	ZSTD_freeDCtx(b.d);
	free(b.planes);
	free(b.stored);
	free(b.nstored);
	free(b.back);
}

/* ---- the parts of a conversion ------------------------------------------ */

struct parts {
	double decode, permute, encode;	/* CPU seconds of one core */
	int64_t nbytes;
};

/* From the group's layout to that of its tiles, a box that fits the cache. */
static void permute(struct parts *parts, const struct kvt_group *group)
{
	enum { BOX = 4 << 20 };
	struct kvt_box box = kvt_box_whole(&group->shape);
	int64_t page = group->shape.elem, passes;
	struct kvt_views from, to;
	struct kvt_layout order;
	struct kvt_plans plans;
	uint8_t *buf[2];
	double start;

	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++)
		page *= group->shape.n[a];
	box.end[KVT_AXIS_L] = 1;
	if (box.end[KVT_AXIS_B] > BOX / page)
		box.end[KVT_AXIS_B] = BOX / page + (page > BOX);
	if (kvt_layout_parse(&order, "LHKBSD", NULL) ||
	    kvt_layout_views(&from, &group->layout, &box, group->shape.elem, NULL) ||
	    kvt_layout_views(&to, &order, &box, group->shape.elem, NULL) ||
	    kvt_plans_init(&plans, &to, &from, NULL))
		die("no plan for a box of the group");
	for (int i = 0; i < 2; i++)
		memset(buf[i] = aligned_alloc(64, (size_t)(from.nbytes + 63) / 64 * 64),
		       i, (size_t)from.nbytes);
	passes = parts->nbytes / from.nbytes + 1;
	start = cpu_seconds();
	for (int64_t i = 0; i < passes; i++)
		kvt_cpu_copy_all(buf[1], buf[0], &plans);
	parts->permute = (cpu_seconds() - start) / (double)passes *
			 (double)parts->nbytes / (double)from.nbytes;
	free(buf[0]);
	free(buf[1]);
}

/* One tile, decoded and encoded again. */
static void recode(struct parts *parts, const struct kvt_stored *stored,
		   struct kvt_stored *again, uint8_t *tile,
		   const struct kvt_tiling *tiling,
		   struct kvt_codec_scratch *scratch)
{
	double start = cpu_seconds(), middle;

	if (kvt_decode(tile, stored, tiling, scratch, NULL))
		die("a tile is damaged");
	middle = cpu_seconds();
	if (kvt_encode(again, tile, tiling, scratch, NULL))
		die("out of memory");
	parts->decode += middle - start;
	parts->encode += cpu_seconds() - middle;
	parts->nbytes += tiling->nbytes;
}

/* What a conversion of group 0 of a snapshot cannot do without, on one core. */
static void print_parts(const char *path)
{
	struct kvt_codec_scratch *scratch;
	struct kvt_stored stored = { 0 }, again = { 0 };
	const struct kvt_tiling *tiling;
	int64_t at[KVT_NAXES] = { 0 };
	const struct kvt_group *group;
	struct kvt_dump *reader;
	struct parts parts = { 0 };
	struct kvt_error err;
	uint8_t *tile;
	int a;

	if (kvt_open(&reader, path, NULL, &err))
		die(err.text);
	group = &kvt_dump_snapshot(reader)->group[0];
	if (!(tiling = kvt_dump_tiling(reader, 0)) ||
	    kvt_codec_scratch_new(&scratch, NULL))
		die("group 0 has no tiles");
	stored.capacity = again.capacity = kvt_stored_bound(tiling);
	stored.bytes = malloc((size_t)stored.capacity);
	again.bytes = malloc((size_t)again.capacity);
	tile = malloc((size_t)tiling->nbytes);
	do {
		if (kvt_read_tile(reader, 0, at, &stored, &err))
			die(err.text);
		recode(&parts, &stored, &again, tile, tiling, scratch);
		for (a = KVT_NAXES - 1; a >= 0; a--) {
			if ((at[a] += tiling->n[a]) < group->shape.n[a])
				break;
			at[a] = 0;
		}
	} while (a >= 0);
	permute(&parts, group);
	printf("%.4f %.4f %.4f\n", parts.decode, parts.permute, parts.encode);
	kvt_codec_scratch_free(scratch);
	kvt_dump_close(reader);
	free(stored.bytes);
	free(again.bytes);
	free(tile);
}

int main(int argc, char **argv)
{
	static const char folder[] = "testdata/kv";
	const char *kv = argc > 1 ? argv[1] : folder;
	char path[2][512];
	struct data data[3];

	if (argc == 3 && !strcmp(argv[1], "--parts")) {
		print_parts(argv[2]);
		return 0;
	}
	snprintf(path[0], sizeof(path[0]),
		 "%s/gqa64/paged_bs16/packed_hnd.bf16.npy", kv);
	snprintf(path[1], sizeof(path[1]),
		 "%s/s260k/paged_bs16/packed_hnd.bf16.npy", kv);
	data[0] = synthetic();
	data[1] = real("gqa64", path[0]);
	data[2] = real("s260k", path[1]);
	printf("%-10s %8s  %-32s %6s %6s %6s\n", "bfloat16", "tile", "parameters",
	       "ratio", "enc", "dec GB/s a core");
	for (int i = 0; i < 3; i++) {
		for (int64_t tile = 16 << 10; tile <= 128 << 10; tile *= 2)
			bench(&data[i], tile);
		free(data[i].bytes);
	}
	return 0;
}
