/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.c - records of a kv_cache.data that has no kv_cache.meta
 *
 * A record is a header, its key, zeros up to a multiple of 4096 from where it begins,
 * and the value.  What the allocator gives is rounded up to an eighth of a power of two,
 * and no record has less than 4096 bytes: so each begins at a multiple of 512, and all
 * of these places are looked at.
 *
 *	u32 key   u32 value   u64 number   u32 flags   u32 crc   key   0 ... 0   value
 *
 * A file is made anew whenever the store starts without kv_cache.meta, so numbers are of
 * one life: of two records that share bytes the lesser one was written over.  What was
 * evicted and not yet written over is found as well, and nothing in the file tells it.
 * Facts: storage_backend.cpp of 2026-08, and stores that Mooncake 0.3.13 wrote.
 */
#include "formats/mooncake/mooncake.h"

#include <stdlib.h>

#include "lib/base/little_endian.h"
#include "lib/hash/crc32c.h"

enum {
	STEP = 512,
	WINDOW = 1 << 20, READ_BYTES = 256 << 10,
	HEAD = KVT_MOONCAKE_RECORD,
	ALIGNED = KVT_MOONCAKE_ALIGNED,
	PATIENCE = 8,			/* bytes summed in vain, a byte of the file */
};

struct scan {
	struct kvt_mooncake *o;
	const struct kvt_file *file;
	int data;			/* its number among those of the reader */
	int64_t stale, patience;
};

/* ---- one record ---------------------------------------------------------- */

enum kvt_status kvt_mooncake_sum_is(bool *out, const struct kvt_file *file,
				    const struct kvt_mooncake_record *r,
				    const uint8_t *head, struct kvt_error *err)
{
	uint32_t crc = kvt_crc32c(kvt_crc32c(0, head, 20), head + KVT_MOONCAKE_RECORD,
				  (size_t)r->key);
	uint8_t *bytes = malloc(READ_BYTES);
	enum kvt_status status = KVT_OK;
	int64_t n;

	if (!bytes)
		return kvt_no_memory(err, file->path);
	for (int64_t done = 0; !status && done < r->nbytes; done += n) {
		n = r->nbytes - done < READ_BYTES ? r->nbytes - done : READ_BYTES;
		if (!(status = kvt_file_read(file, bytes, n, r->value + done, err)))
			crc = kvt_crc32c(crc, bytes, (size_t)n);
	}
	free(bytes);
	*out = !status && crc == r->crc;
	return status;
}

/* Cheap to see, and seldom true of other data. */
static bool may_begin(const uint8_t *head, int64_t left)
{
	int64_t key = kvt_le32(head), value = kvt_le32(head + 4);
	uint32_t flags = kvt_le32(head + 16);

	return key >= 1 && key <= KVT_MOONCAKE_KEY && !(flags & ~1u) &&
	       (flags || (value && !kvt_le32(head + 20))) && value <= left - ALIGNED;
}

/* Without a checksum a key must be text, but for the NUL behind its tenant. */
static bool is_text(const uint8_t *key, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (key[i] && (key[i] < ' ' || key[i] > '~'))
			return false;
	return true;
}

/* Of a record that was written over, in part, only the header is as it was. */
static enum kvt_status check_sum(struct scan *s, bool *right, const uint8_t *head,
				 const struct kvt_mooncake_record *r)
{
	enum kvt_status status = kvt_mooncake_sum_is(right, s->file, r, head, s->o->err);

	if (status || *right)
		return status;
	s->stale++;
	s->patience -= r->nbytes;
	return s->patience >= 0 ? KVT_OK :
	       kvt_fail(s->o->err, KVT_BAD_INPUT,
			"%s: bytes at %lld offsets look like records, but their checksums are wrong: it is no kv_cache.data",
			s->file->path, LL(s->stale));
}

/* Is there a record at 'at'?  Then it is the last of the values, and *end is its end. */
static enum kvt_status look(struct scan *s, int64_t at, int64_t *end)
{
	const struct kvt_mooncake_extent extent = { at, s->file->nbytes - at };
	uint8_t head[HEAD + KVT_MOONCAKE_KEY + ALIGNED];
	struct kvt_mooncake_record r;
	enum kvt_status status;
	struct kvt_error why;
	bool right = true;

	*end = 0;
	if ((status = kvt_file_read(s->file, head, HEAD, at, s->o->err)))
		return status;
	if (kvt_mooncake_record_parse(&r, head, &extent, "", &why))
		return KVT_OK;
	if ((status = kvt_file_read(s->file, head + HEAD, r.value - at - HEAD, at + HEAD,
				    s->o->err)))
		return status;
	for (int64_t i = HEAD + r.key; right && i < r.value - at; i++)
		right = !head[i];
	if (right && r.has_crc)
		status = check_sum(s, &right, head, &r);
	else if (right)
		right = is_text(head + HEAD, r.key);
	if (status || !right)
		return status;
	*end = r.value + r.nbytes;
	return kvt_mooncake_values_add(&s->o->values, head + HEAD, r.key,
				       &(struct kvt_mooncake_value){ .file = s->data,
						   .offset = r.value,
						   .nbytes = r.nbytes, .seq = r.seq },
				       s->file->path, s->o->err);
}

/* ---- all of them ---------------------------------------------------------- */

/*
 * Behind a record whose checksum is right the search goes on; in one without any
 * another may lie, which was written over it.
 */
static enum kvt_status scan_window(struct scan *s, const uint8_t *bytes, int64_t begin,
				   int64_t n, int64_t *next)
{
	while (*next < begin + n && *next + HEAD <= s->file->nbytes) {
		const uint8_t *head = bytes + (*next - begin);
		enum kvt_status status;
		int64_t end = 0;

		if (may_begin(head, s->file->nbytes - *next) &&
		    (status = look(s, *next, &end)))
			return status;
		*next = end && kvt_le32(head + 16) ? (end + STEP - 1) / STEP * STEP :
						     *next + STEP;
	}
	return KVT_OK;
}

static enum kvt_status scan_file(struct scan *s)
{
	uint8_t *bytes = malloc(WINDOW);
	enum kvt_status status = KVT_OK;
	int64_t next = 0;

	if (!bytes)
		return kvt_no_memory(s->o->err, s->o->path);
	while (!status && next + HEAD <= s->file->nbytes) {
		int64_t begin = next, n = s->file->nbytes - begin;

		n = n < WINDOW ? n : WINDOW;
		if (!(status = kvt_file_read(s->file, bytes, n, begin, s->o->err)))
			status = scan_window(s, bytes, begin, n, &next);
	}
	free(bytes);
	return status;
}

static int64_t begin_of(const struct kvt_mooncake_value *v)
{
	return v->offset - (HEAD + v->ntext + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* Values are in the order of their places; what is left shares no bytes. */
static void drop_overwritten(struct kvt_mooncake_values *values)
{
	struct kvt_mooncake_value *v = values->value;
	int64_t n = 0;

	for (int64_t i = 0; i < values->count; i++) {
		struct kvt_mooncake_value here = v[i];

		while (n && v[n - 1].offset + v[n - 1].nbytes > begin_of(&here) &&
		       v[n - 1].seq <= here.seq)
			free(v[--n].text);
		if (n && v[n - 1].offset + v[n - 1].nbytes > begin_of(&here))
			free(here.text);
		else
			v[n++] = here;
	}
	values->count = n;
}

enum kvt_status kvt_mooncake_scan(struct kvt_mooncake *o, int data)
{
	const struct kvt_file *file = &o->reader->files.file[data];
	struct scan s = { .o = o, .data = data, .file = file };
	enum kvt_status status;

	if (__builtin_mul_overflow(file->nbytes, PATIENCE, &s.patience))
		s.patience = INT64_MAX;
	status = scan_file(&s);
	drop_overwritten(&o->values);
	if (s.stale)
		kvt_tell(o->hints, "store.stale",
			 "%lld records of kv_cache.data have wrong checksums: they were written over, or are damaged", LL(s.stale));
	o->reader->leaf.unnoticed = "records were found by scanning, as kv_cache.meta is "
				    "not there: values that were evicted may be among them, and those that are lost cannot be noticed";
	return status;
}
