/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serde.c - what LMCache may have made of a chunk before it stored it
 *
 * The adapters of the second level may be told to code chunks; names stay as they are
 * and nothing in a store says so.  Read is what proves itself or is a plain cast:
 *
 *	fp8		each element as 8 bits, in the same order, without a scale
 *	checksum	1, 8 bytes of the chunk's hash, XXH3-64 (big endian), the chunk
 *
 * Facts: LMCache 0.5.6, lmcache/v1/distributed/serde; checksum is of its main branch.
 */
#include "formats/lmcache/lmcache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/little_endian.h"

enum {
	FRAME = 17,			/* bytes before a chunk with a checksum */
	SEALED = 29,			/* bytes that aesgcm adds: version, IV, tag */
	READ_BYTES = 256 << 10,
};

static const struct row {
	const char *name;
	const char *why;		/* it cannot be read; NULL: it can */
} rows[] = {
	[KVT_LMCACHE_PLAIN] = { "none", NULL },
	[KVT_LMCACHE_FP8] = { "fp8", NULL },
	[KVT_LMCACHE_CHECKSUM] = { "checksum", NULL },
	[KVT_LMCACHE_AESGCM] = { "aesgcm", "they are encrypted" },
	[KVT_LMCACHE_TURBOQUANT] = { "turboquant", "their keys are rotated at random" },
	[KVT_LMCACHE_ASYM] = { "asym_k16_v8", "their scales are apart" },
	[KVT_LMCACHE_CACHEGEN] = { "cachegen", "they are entropy coded" },
};
enum { NROWS = sizeof(rows) / sizeof(rows[0]) };

/* ---- what the user says -------------------------------------------------- */

static enum kvt_status refuse_coded(const struct kvt_lmcache *o, const char *path,
				    enum kvt_lmcache_serde serde)
{
	return kvt_fail(o->err, KVT_UNSUPPORTED,
			"%.200s: chunks that LMCache's serde %s has coded cannot be read: %s; let LMCache load and store them without it",
			path, rows[serde].name, rows[serde].why);
}

enum kvt_status kvt_lmcache_take_serde(struct kvt_lmcache *o)
{
	const char *said = kvt_fact(o->hints, "serde");
	int i = 0;

	if (!said)
		return KVT_OK;
	while (i < NROWS && (!rows[i].name || strcmp(rows[i].name, said)))
		i++;
	if (i == NROWS)
		return kvt_fail(o->err, KVT_USAGE,
				"serde is '%.40s', expected none, fp8, checksum, aesgcm, turboquant, asym_k16_v8 or cachegen", said);
	o->serde = (enum kvt_lmcache_serde)i;
	return rows[i].why ? refuse_coded(o, o->path, o->serde) : KVT_OK;
}

/* fp8 is e4m3 unless the user says e5m2; another type is what the cache had before. */
const struct kvt_dtype *kvt_lmcache_dtype(const struct kvt_lmcache *o, const char *group)
{
	const struct kvt_dtype *said = kvt_hint_dtype(NULL, o->hints, group);

	if (o->serde != KVT_LMCACHE_FP8)
		return kvt_hint_dtype(o->part[0].key.dtype, o->hints, group);
	/* what else was said is of the cache before it was coded */
	o->reader->other_dtype = true;
	return said && said->is_float && said->elem == 1 ? said :
	       kvt_dtype_find("float8_e4m3fn");
}

/* ---- what a file says ---------------------------------------------------- */

/* Does it begin with the first 8 bytes of its own hash, after a 1? */
static bool is_framed(const uint8_t *head, const struct kvt_lmcache_key *key)
{
	char hex[17];

	for (int i = 0; i < 8; i++)
		snprintf(hex + 2 * i, 3, "%02x", head[1 + i]);
	return head[0] == 1 && !strncmp(hex, key->hash, 16);
}

/* The chunk behind the frame is the one that was stored. */
static enum kvt_status check_frame(const struct kvt_lmcache *o, const uint8_t *head,
				   const struct kvt_file *file, int64_t at, int64_t end)
{
	XXH3_state_t *state = XXH3_createState();
	uint8_t *bytes = malloc(READ_BYTES);
	enum kvt_status status = KVT_OK;
	uint64_t said = 0, is;
	int64_t n;

	if (state && bytes)
		XXH3_64bits_reset(state);
	else
		status = kvt_no_memory(o->err, o->path);
	for (; !status && at < end; at += n) {
		n = end - at < READ_BYTES ? end - at : READ_BYTES;
		if (!(status = kvt_file_read(file, bytes, n, at, o->err)))
			XXH3_64bits_update(state, bytes, (size_t)n);
	}
	for (int i = 9; i < FRAME; i++)
		said = said << 8 | head[i];
	is = status ? said : XXH3_64bits_digest(state);
	XXH3_freeState(state);
	free(bytes);
	if (is != said)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: its checksum is 0x%016llx, expected 0x%016llx: the file was cut or changed", file->path,
				(unsigned long long)is, (unsigned long long)said);
	return status;
}

enum kvt_status kvt_lmcache_decode(struct kvt_lmcache *o, struct kvt_chunk *chunk,
				   const struct kvt_lmcache_part *part)
{
	static const uint8_t asym[8] = "LMCKV\1\0\1";
	const struct kvt_file *file = &o->reader->files.file[part->file];
	uint8_t head[FRAME] = { 0 };
	int64_t n = part->nbytes < FRAME ? part->nbytes : FRAME;
	enum kvt_status status = kvt_file_read(file, head, n, part->offset, o->err);

	if (status)
		return status;
	if (!memcmp(head, asym, sizeof(asym)))
		return refuse_coded(o, file->path, KVT_LMCACHE_ASYM);
	if (o->serde != KVT_LMCACHE_CHECKSUM)
		return !is_framed(head, &part->key) ? KVT_OK :
		       kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: begins with its hash, as LMCache's serde checksum writes it; give --set=serde=checksum", file->path);
	if (n < FRAME || !is_framed(head, &part->key))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: does not begin with its hash, as serde checksum writes it; leave out --set=serde", file->path);
	chunk->offset += FRAME;
	chunk->nbytes -= FRAME;
	return check_frame(o, head, file, chunk->offset, chunk->offset + chunk->nbytes);
}

enum kvt_status kvt_lmcache_check_sealed(const struct kvt_lmcache *o, int64_t token)
{
	for (int64_t i = 0; i < o->chunks.count && token > SEALED; i++) {
		const struct kvt_chunk *c = &o->chunks.chunk[i];

		if (c->nbytes % token == SEALED)
			return kvt_fail(o->err, KVT_UNSUPPORTED,
					"%s: chunk %.80s has %lld bytes, %d more than %lld tokens: LMCache's serde aesgcm has encrypted it",
					o->reader->files.file[c->file].path, c->id,
					LL(c->nbytes), SEALED, LL(c->nbytes / token));
	}
	return KVT_OK;
}

/* ---- what nobody says ---------------------------------------------------- */

const char *kvt_lmcache_unnoticed(const struct kvt_lmcache *o)
{
	const bool said = kvt_fact(o->hints, "serde");

	if (o->headers || o->serde == KVT_LMCACHE_CHECKSUM)
		return NULL;
	if (o->recorded)
		return said ? NULL : "a value that a serde of LMCache has coded cannot "
				     "be noticed; see serde in kvtool-formats(7)";
	return said || o->first->backend == KVT_LMCACHE_DISK ? KVT_CHUNKS_UNNOTICED :
	       KVT_CHUNKS_UNNOTICED ", nor one that a serde of LMCache has coded";
}
