/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw_block.c - chunks in slots of one file, which LMCache's raw_block keeps
 *
 *	[container 0][container 1] ...  [slot 0][slot 1] ...
 *	0                               base, a multiple of align
 *
 *	container	LMCIDX01, u32 version, u64 number, u64 length and u32 CRC-32 of
 *			a text of JSON, which begins 'align' bytes on
 *	slot		LMCBLK01, u64 identity, u64 length, zeros up to 'header' bytes;
 *			then the chunk
 *
 * Containers are written in turn, so of two that are whole the greater number is the
 * newer.  The text says where they are, how long slots and headers are, and of each key
 * its slot, length and mostly shape and type.  It is older than the slots: one that was
 * given to another chunk has another identity, BLAKE2b of the key or the hash itself,
 * and the entry is then none, as for LMCache when it starts.  Facts: raw_block/core.py
 * of LMCache 0.5.6.
 */
#include "formats/lmcache/lmcache.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "formats/parse/json.h"
#include "lib/base/little_endian.h"
#include "lib/hash/blake2b.h"

enum {
	HEAD = 32, SLOT_HEAD = 24,
	MAX_ALIGN = 1 << 16,
	MAX_TEXT = 64 << 20,		/* some 250,000 entries */
	MAX_SHAPE = 8,
};

static const char magic[] = "LMCIDX01", slot_magic[] = "LMCBLK01";

struct index {
	struct kvt_lmcache *o;
	const struct kvt_file *file;
	int at;				/* its number among those of the reader */
	uint64_t seq;			/* of the newest container so far */
	json_t *json;			/* owned; NULL: none is whole */
	int64_t align, base, header, slot, next, stale;
};

bool kvt_lmcache_is_raw_block(const uint8_t *head, int64_t nhead)
{
	return nhead >= HEAD && !memcmp(head, magic, 8);
}

/* ---- containers ----------------------------------------------------------- */

/* The text, malloc()ed; NULL without an error where there is none that is whole. */
static enum kvt_status read_text(char **out, size_t *nbytes, const struct index *x,
				 const uint8_t head[HEAD], int64_t at)
{
	int64_t n = (int64_t)kvt_le64(head + 20);
	enum kvt_status status;

	*out = NULL;
	if (n < 1 || n > x->file->nbytes - at)
		return KVT_OK;
	if (n > MAX_TEXT)
		return kvt_fail(x->o->err, KVT_UNSUPPORTED,
				"%s: its checkpoint has %lld bytes; at most %d are read",
				x->file->path, LL(n), MAX_TEXT);
	if (!(*out = malloc((size_t)n)))
		return kvt_no_memory(x->o->err, x->o->path);
	*nbytes = (size_t)n;
	status = kvt_file_read(x->file, *out, n, at, x->o->err);
	if (status || crc32(0, (const Bytef *)*out, (uInt)n) != kvt_le32(head + 28)) {
		free(*out);
		*out = NULL;
	}
	return status;
}

/* What a container at 'at' has is kept if it is newer; of no other alignment. */
static enum kvt_status take_container(struct index *x, int64_t at, int64_t align)
{
	uint8_t head[HEAD];
	enum kvt_status status;
	size_t nbytes;
	uint64_t seq;
	json_t *json;
	char *text;

	if (at > x->file->nbytes - align)
		return KVT_OK;
	if ((status = kvt_file_read(x->file, head, HEAD, at, x->o->err)))
		return status;
	seq = kvt_le64(head + 12);
	if (memcmp(head, magic, 8) || kvt_le32(head + 8) != 1 ||
	    (x->json && seq <= x->seq))
		return KVT_OK;
	if ((status = read_text(&text, &nbytes, x, head, at + align)) || !text)
		return status;
	status = kvt_json_parse(&json, text, nbytes, x->file->path, x->o->err);
	free(text);
	if (status)
		return status;
	json_decref(x->json);
	x->json = json;
	x->seq = seq;
	x->align = align;
	return KVT_OK;
}

/* Where containers and slots are, by the text that was found. */
static enum kvt_status take_geometry(struct index *x, int64_t *meta)
{
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { x->json, x->file->path, x->o->err, &status };
	int64_t version = 0, align = x->align, base = -1;

	x->header = x->slot = *meta = 0;
	kvt_json_int(&version, &in, "version", 0, INT32_MAX);
	kvt_json_int(&align, &in, "block_align", 1, MAX_ALIGN);
	kvt_json_int(&x->header, &in, "header_bytes", SLOT_HEAD, 1 << 30);
	kvt_json_int(&x->slot, &in, "slot_bytes", 1, INT64_MAX);
	kvt_json_int(meta, &in, "meta_total_bytes", 1, INT64_MAX);
	kvt_json_int(&base, &in, "data_base_offset", 0, INT64_MAX);
	kvt_json_int(&x->next, &in, "next_slot", 0, INT64_MAX);
	if (version != 1)
		kvt_json_refuse(&in, KVT_UNSUPPORTED,
				"version %lld of its checkpoint is not one that kvtool knows, 1",
				LL(version));
	x->base = base < 0 ? *meta : base;
	if (!x->header || x->slot <= x->header || !*meta || x->base != *meta ||
	    align != x->align)
		kvt_json_bad(&in,
			     "its checkpoint says slots of %lld bytes with headers of %lld from %lld on, aligned to %lld, which contradict each other",
			     LL(x->slot), LL(x->header), LL(x->base), LL(align));
	return status;
}

/* No container is whole: why, and what to do. */
static enum kvt_status lacks_checkpoint(const struct index *x)
{
	return kvt_fail(x->o->err, KVT_BAD_INPUT,
			"%s: is a raw_block store of LMCache, but no checkpoint in it is whole, and only that says which chunk is in which slot; let LMCache open and close it, or read the copy again",
			x->file->path);
}

/* The first says where the second is; else the defaults of the two that write it. */
static enum kvt_status find_checkpoint(struct index *x)
{
	enum { NALIGNS = 8, NMETAS = 2 };
	static const int64_t aligns[NALIGNS] = { 4096, 512, 1024, 2048, 8192, 16384,
						 32768, MAX_ALIGN };
	static const int64_t metas[NMETAS] = { 256 << 20, 128 << 20 };
	enum kvt_status status = KVT_OK;
	int64_t meta = 0, half;

	for (int i = 0; !status && !x->json && i < NALIGNS; i++)
		status = take_container(x, 0, aligns[i]);
	for (int i = 0; !status && !x->json && i < NMETAS; i++)
		status = take_container(x, metas[i] / 2, 4096);
	if (!status && !x->json)
		status = lacks_checkpoint(x);
	if (status || (status = take_geometry(x, &meta)))
		return status;
	half = meta / 2 / x->align * x->align;
	if ((status = take_container(x, half, x->align)))
		return status;
	return take_geometry(x, &meta);
}

/* ---- entries --------------------------------------------------------------- */

/* What is in the header of a slot, if the key was stored in it. */
static uint64_t identity_of(const char *text, const struct kvt_lmcache_key *key)
{
	const char *hash = key->hash + (*key->hash == '-');
	size_t digits = strlen(hash);
	uint8_t digest[8];
	uint64_t n;

	if (key->group >= 0) {
		kvt_blake2b(digest, sizeof(digest), text, strlen(text));
		return kvt_le64(digest);
	}
	/* its low 64 bits */
	n = strtoull(hash + (digits > 16 ? digits - 16 : 0), NULL, 16);
	return hash > key->hash ? -n : n;
}

/* Shape and type, where they are of a cache and make just these bytes. */
static enum kvt_status take_shape(const struct index *x, struct kvt_lmcache_part *part,
				  const json_t *entry)
{
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { entry, x->file->path, x->o->err, &status };
	const char *fmt = NULL, *dtype = NULL;
	const json_t *list = NULL;
	int64_t shape[MAX_SHAPE];
	size_t n;

	kvt_json_string(&fmt, &in, "fmt");
	kvt_json_string(&dtype, &in, "dtype");
	kvt_json_array(&list, &in, "shape");
	n = json_array_size(list);
	if (!fmt || !dtype || !n || n > MAX_SHAPE)
		return status;
	for (size_t i = 0; i < n; i++)
		if (kvt_json_int_at(&shape[i], &in, "shape", list, i, 0, INT64_MAX))
			return status;
	if (!strncmp(dtype, "torch.", 6))
		dtype += 6;
	part->said.dtype = kvt_dtype_find(dtype);
	if (!part->said.dtype || !kvt_lmcache_shape(part, fmt, shape, (int)n))
		part->fmt = 0;
	return KVT_OK;
}

/* Is what is in the slot what the entry says?  What was given away is not. */
static enum kvt_status check_slot(struct index *x, bool *stale, const char *text,
				  const struct kvt_lmcache_part *part, int64_t slot)
{
	char *copy = strdup(text);
	uint8_t head[SLOT_HEAD];
	struct kvt_lmcache_key key;
	struct kvt_error why;
	enum kvt_status status;

	if (!copy)
		return kvt_no_memory(x->o->err, x->o->path);
	if ((status = kvt_lmcache_key_parse(&key, copy, &why)))
		status = kvt_fail(x->o->err, status, "%.200s: '%.100s' %s", x->file->path,
				  text, why.text);
	else
		status = kvt_file_read(x->file, head, SLOT_HEAD, slot, x->o->err);
	if (!status)
		*stale = memcmp(head, slot_magic, 8) ||
			 kvt_le64(head + 8) != identity_of(text, &key) ||
			 (int64_t)kvt_le64(head + 16) != part->nbytes;
	free(copy);
	return status;
}

static enum kvt_status take_entry(struct index *x, const char *text, const json_t *entry)
{
	struct kvt_lmcache_part part = { .backend = KVT_LMCACHE_SLOT, .file = x->at };
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { entry, x->file->path, x->o->err, &status };
	int64_t slot = -1;
	bool stale = false;
	char *copy;

	part.nbytes = -1;
	if (!json_is_object(entry) ||
	    (status = kvt_json_int(&slot, &in, "offset", 0, INT64_MAX)) ||
	    (status = kvt_json_int(&part.nbytes, &in, "size", 1, INT64_MAX)))
		return json_is_object(entry) ? status :
		       kvt_fail(x->o->err, KVT_BAD_INPUT,
				"%s: entry %.100s is not an object", x->file->path, text);
	if (slot < x->base || (slot - x->base) % x->slot || part.nbytes < 1 ||
	    part.nbytes > x->slot - x->header)
		return kvt_fail(x->o->err, KVT_BAD_INPUT,
				"%s: chunk %.100s is said to have %lld bytes at %lld, which is no slot: these are at %lld + n * %lld and hold %lld",
				x->file->path, text, LL(part.nbytes), LL(slot),
				LL(x->base), LL(x->slot), LL(x->slot - x->header));
	if (slot > x->file->nbytes - x->header - part.nbytes)
		return kvt_fail(x->o->err, KVT_BAD_INPUT,
				"%s: chunk %.100s ends at %lld, but the file has %lld bytes: it was cut",
				x->file->path, text, LL(slot + x->header + part.nbytes),
				LL(x->file->nbytes));
	part.offset = slot + x->header;
	if ((status = take_shape(x, &part, entry)) ||
	    (status = check_slot(x, &stale, text, &part, slot)))
		return status;
	if (stale) {
		x->stale++;
		kvt_tell(x->o->hints, "store.stale",
			 "slot %lld no longer holds chunk %.200s",
			 LL((slot - x->base) / x->slot), text);
		return KVT_OK;
	}
	if (!(copy = strdup(text)))
		return kvt_no_memory(x->o->err, x->o->path);
	return kvt_lmcache_add(x->o, copy, &part);
}

static enum kvt_status take_entries(struct index *x)
{
	json_t *entries = json_object_get(x->json, "entries"), *entry;
	enum kvt_status status;
	const char *text;

	if (!json_is_object(entries))
		return kvt_fail(x->o->err, KVT_BAD_INPUT,
				"%s: its checkpoint has no entries", x->file->path);
	json_object_foreach(entries, text, entry)
		if ((status = take_entry(x, text, entry)))
			return status;
	return x->o->count ? KVT_OK :
	       kvt_fail(x->o->err, KVT_BAD_INPUT,
			"%s: its checkpoint names %lld chunks, of which %lld lie in slots that hold others by now; let LMCache close the store",
			x->file->path, LL(json_object_size(entries)), LL(x->stale));
}

/* Chunks that were stored after the checkpoint, or deleted before it. */
static enum kvt_status count_others(struct index *x)
{
	int64_t others = -x->o->count, last = (x->file->nbytes - x->base) / x->slot;
	enum kvt_status status;
	uint8_t head[8];

	for (int64_t i = 0; i < last && i <= x->next; i++) {
		if ((status = kvt_file_read(x->file, head, sizeof(head),
					    x->base + i * x->slot, x->o->err)))
			return status;
		others += !memcmp(head, slot_magic, 8);
	}
	if (others > 0)
		kvt_tell(x->o->hints, "store.stale",
			 "%lld slots hold chunks that the checkpoint does not name: they were stored after it, or deleted", LL(others));
	return KVT_OK;
}

enum kvt_status kvt_lmcache_raw_block(struct kvt_lmcache *o, int file)
{
	struct index x = { .o = o, .at = file, .file = &o->reader->files.file[file] };
	enum kvt_status status = find_checkpoint(&x);

	o->recorded = true;
	if (!status && !(status = take_entries(&x)) && o->hints->inspector)
		status = count_others(&x);
	json_decref(x.json);
	return status;
}
