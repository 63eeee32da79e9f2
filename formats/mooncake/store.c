/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c - messages and records around the values of a Mooncake store
 *
 *	entry	0a n name  12 n value		a value without bytes may be left out
 *	meta	08 size  12 n name, of each value  1a n place, of each value
 *	place	08 offset of the name  10 bytes of it  18 bytes of the value
 *
 *	record	 0 u32 bytes of the name	 4 u32 bytes of the value
 *		 8 u64 number			16 u32 flags: 1, there is a CRC
 *		20 u32 CRC-32C of bytes 0 to 19, name and value; 0 without that flag
 *		24 name, then zeros, and at the next multiple of 4096 from the record
 *		on the value
 *
 * The first three are messages of protocol buffers (parse/protobuf.c), n is a varint,
 * and a field that is 0 is left out.  A bucket has names and values in turn, without
 * gaps, as its message says; where it was written without the page cache, zeros up to a
 * multiple of 4096.  Everything must add up to the byte.  Records are of version 3.
 * Facts: as in mooncake/format.c.
 */
#include "formats/mooncake/mooncake.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/little_endian.h"
#include "formats/parse/protobuf.h"
#include "lib/base/grow.h"

enum { ALIGNED = KVT_MOONCAKE_ALIGNED };

/* ---- values -------------------------------------------------------------- */

static bool is_text(const char *s)
{
	for (const char *c = s; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return false;
	return *s && kvt_is_text(s);
}

bool kvt_mooncake_has_text(const struct kvt_mooncake_value *value)
{
	return is_text(value->key);
}

const char *kvt_mooncake_shown(const struct kvt_mooncake_value *value)
{
	return kvt_mooncake_has_text(value) ? value->key : "(no text)";
}

/* Tenant and key of a name, which the value takes. */
static enum kvt_status take_name(struct kvt_mooncake_value *out, char *text,
				 int64_t ntext,
				 int64_t number, const char *name, struct kvt_error *err)
{
	size_t first = strlen(text);
	bool tenant = (int64_t)first < ntext;

	out->text = text;
	out->ntext = ntext;
	out->tenant = tenant ? text : "default";
	out->key = tenant ? text + first + 1 : text;
	if (!*out->key || out->key + strlen(out->key) != text + ntext)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: name %lld of %lld bytes is neither KEY nor TENANT NUL KEY",
				name, LL(number), LL(ntext));
	if (!is_text(out->tenant) || *out->tenant == '_')
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: name %lld begins with %zu bytes that cannot be a tenant",
				name, LL(number), first);
	return KVT_OK;
}

enum kvt_status kvt_mooncake_values_add(struct kvt_mooncake_values *values,
					const void *text, int64_t ntext,
					const struct kvt_mooncake_value *value,
					const char *name, struct kvt_error *err)
{
	int64_t n = values->count;
	enum kvt_status status;
	char *copy;

	if (ntext < 1 || ntext > KVT_MOONCAKE_KEY)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: key %lld has %lld bytes, expected 1 to %d", name, LL(n),
				LL(ntext), KVT_MOONCAKE_KEY);
	if (!KVT_GROW(&values->value, n))
		return kvt_no_memory(err, name);
	if (!(copy = malloc((size_t)ntext + 1)))
		return kvt_no_memory(err, name);
	memcpy(copy, text, (size_t)ntext);
	copy[ntext] = '\0';
	values->value[n] = *value;
	if ((status = take_name(&values->value[n], copy, ntext, n, name, err)))
		free(copy);
	else
		values->count++;
	return status;
}

void kvt_mooncake_values_free(struct kvt_mooncake_values *values)
{
	for (int64_t i = 0; i < values->count; i++)
		free(values->value[i].text);
	free(values->value);
	*values = (struct kvt_mooncake_values){ 0 };
}

/* ---- one key a file ------------------------------------------------------ */

static enum kvt_status odd_field(const struct kvt_pb *pb, const struct kvt_pb_field *f)
{
	return kvt_fail(pb->err, KVT_BAD_INPUT,
			"%s: field %u of the message occurs twice, or is not expected",
			pb->name, (unsigned)f->number);
}

/* Is that what a key becomes as the name of a file? */
static bool makes_name(const struct kvt_pb_field *key, const char *base)
{
	if (strlen(base) != key->value)
		return false;
	for (uint64_t i = 0; i < key->value; i++) {
		char c = (char)key->bytes[i];

		/* the NUL after a tenant is among them */
		if (base[i] != (!c || strchr("/\\:*?\"<>|", c) ? '_' : c))
			return false;
	}
	return true;
}

bool kvt_mooncake_is_entry(const uint8_t *head, int64_t nhead, int64_t nbytes,
			   const char *base)
{
	struct kvt_pb pb = kvt_pb_open(head, nhead, base, NULL);
	struct kvt_pb_field key, value;
	bool more;

	if (kvt_pb_next(&pb, &key, &more) || !more || key.number != 1 || !key.is_bytes)
		return false;
	if (makes_name(&key, base))
		return true;
	return !kvt_pb_begin(&pb, &value, &more) && more && value.number == 2 &&
	       value.is_bytes && value.value == (uint64_t)(nbytes - (value.bytes - head));
}

enum kvt_status kvt_mooncake_entry_parse(struct kvt_mooncake_values *out,
					 const uint8_t *head,
					 int64_t nhead, int64_t nbytes, int file,
					 const char *name, struct kvt_error *err)
{
	struct kvt_pb pb = kvt_pb_open(head, nhead, name, NULL);
	struct kvt_pb_field key, value;
	enum kvt_status status;
	int64_t offset;
	bool more;

	if (kvt_pb_next(&pb, &key, &more) || !more || key.number != 1 || !key.is_bytes)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: is not a value of a Mooncake store: it does not begin with a key",
				name);
	pb.err = err;
	if ((status = kvt_pb_begin(&pb, &value, &more)))
		return status;
	/* messages leave out what is empty; the head may end there as well */
	if (!more && nhead == nbytes)
		return kvt_mooncake_values_add(out, key.bytes, (int64_t)key.value,
					       &(struct kvt_mooncake_value){
					       .file = file, .offset = nbytes },
					       name, err);
	if (!more || value.number != 2 || !value.is_bytes)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: has no value after the key",
				name);
	offset = value.bytes - head;
	if (value.value != (uint64_t)(nbytes - offset))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the value has %llu bytes, but %lld are left", name,
				(unsigned long long)value.value, LL(nbytes - offset));
	return kvt_mooncake_values_add(out, key.bytes, (int64_t)key.value,
				       &(struct kvt_mooncake_value){ .file = file,
						   .offset = offset,
						   .nbytes = nbytes - offset },
				       name, err);
}

/* ---- buckets ------------------------------------------------------------- */

/* A bucket's message while it is read; keys and places are two lists in it. */
struct bucket {
	struct kvt_pb pb;
	uint64_t data_size;
	int64_t nplaces;
	int64_t end;			/* of what is explained so far */
};

/* Messages leave out what is 0. */
static enum kvt_status take_place(struct kvt_mooncake_value *out, int64_t *nkey,
				  struct kvt_pb pb)
{
	uint64_t n[4] = { 0 };
	struct kvt_pb_field f;
	enum kvt_status status;
	bool more, seen[4] = { false };

	for (;;) {
		if ((status = kvt_pb_next(&pb, &f, &more)))
			return status;
		if (!more)
			break;
		if (f.is_bytes || f.number > 3 || seen[f.number])
			return odd_field(&pb, &f);
		seen[f.number] = true;
		n[f.number] = f.value;
	}
	for (int i = 1; i < 4; i++)
		if (n[i] > INT64_MAX)
			return kvt_fail(pb.err, KVT_BAD_INPUT,
					"%s: an offset in the bucket is negative", pb.name);
	out->offset = (int64_t)n[1];
	*nkey = (int64_t)n[2];
	out->nbytes = (int64_t)n[3];
	return KVT_OK;
}

/* The place of value 'i', whose key came before all places. */
static enum kvt_status place_value(struct kvt_mooncake_values *out, struct bucket *b,
				   int64_t first, const struct kvt_pb_field *f)
{
	struct kvt_mooncake_value place = { .file = -1 }, *value;
	struct kvt_pb pb = kvt_pb_open(f->bytes, (int64_t)f->value, b->pb.name,
				       b->pb.err);
	enum kvt_status status;
	int64_t nkey = 0, end;

	if ((status = take_place(&place, &nkey, pb)))
		return status;
	if (first + b->nplaces >= out->count)
		return kvt_fail(pb.err, KVT_BAD_INPUT, "%s: has more offsets than keys",
				pb.name);
	value = &out->value[first + b->nplaces];
	if (nkey != value->ntext || place.offset != b->end ||
	    __builtin_add_overflow(place.offset + nkey, place.nbytes, &end))
		return kvt_fail(
			pb.err, KVT_BAD_INPUT,
			"%s: value %lld is said to be at %lld after a key of %lld bytes, expected at %lld after %lld",
			pb.name, LL(b->nplaces), LL(place.offset), LL(nkey), LL(b->end),
			LL(value->ntext));
	value->offset = place.offset + nkey;
	value->nbytes = place.nbytes;
	b->end = end;
	b->nplaces++;
	return KVT_OK;
}

static enum kvt_status take_bucket(struct kvt_mooncake_values *out, struct bucket *b,
				   int file)
{
	int64_t first = out->count;
	struct kvt_pb_field f;
	enum kvt_status status;
	bool more, sized = false;

	for (;;) {
		if ((status = kvt_pb_next(&b->pb, &f, &more)) || !more)
			break;
		if (f.number == 1 && !f.is_bytes && !sized) {
			b->data_size = f.value;
			sized = true;
		} else if (f.number == 2 && f.is_bytes && !b->nplaces) {
			status = kvt_mooncake_values_add(out, f.bytes, (int64_t)f.value,
							 &(struct kvt_mooncake_value){
							 .file = file },
							 b->pb.name, b->pb.err);
		} else if (f.number == 3 && f.is_bytes) {
			status = place_value(out, b, first, &f);
		} else {
			status = odd_field(&b->pb, &f);
		}
		if (status)
			break;
	}
	if (!status && (b->nplaces != out->count - first || !b->nplaces))
		status = kvt_fail(b->pb.err, KVT_BAD_INPUT,
				  "%s: has %lld keys but %lld offsets",
				  b->pb.name, LL(out->count - first), LL(b->nplaces));
	return status;
}

enum kvt_status kvt_mooncake_bucket_parse(struct kvt_mooncake_values *out,
					  const void *meta,
					  int64_t nmeta, int64_t nbytes, int file,
					  const char *name, struct kvt_error *err)
{
	struct bucket b = { .pb = kvt_pb_open(meta, nmeta, name, err) };
	enum kvt_status status = take_bucket(out, &b, file);

	if (status)
		return status;
	if (b.data_size != (uint64_t)b.end)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: data_size is %llu, but keys and values make %lld", name,
				(unsigned long long)b.data_size, LL(b.end));
	if (nbytes != b.end && (nbytes < b.end || nbytes % ALIGNED ||
				nbytes - b.end >= ALIGNED))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: describes %lld bytes, but the bucket has %lld", name, LL(b.end),
				LL(nbytes));
	return KVT_OK;
}

/* ---- records ------------------------------------------------------------- */

enum kvt_status kvt_mooncake_record_parse(struct kvt_mooncake_record *out,
					  const uint8_t head[KVT_MOONCAKE_RECORD],
					  const struct kvt_mooncake_extent *extent,
					  const char *name, struct kvt_error *err)
{
	uint32_t flags = kvt_le32(head + 16);
	struct kvt_mooncake_record r = {
		.key = kvt_le32(head), .nbytes = kvt_le32(head + 4),
		.seq = kvt_le64(head + 8), .has_crc = flags & 1,
		.crc = kvt_le32(head + 20),
	};
	int64_t at = extent->offset, taken;

	if (flags & ~1u)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: the record at %lld has flags 0x%x, of which only 1 is known",
				name, LL(at), (unsigned)flags);
	/* written as 0 where nothing is counted */
	if (!r.has_crc && r.crc)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the record at %lld has no flag and checksum 0x%08x, expected 0",
				name, LL(at), (unsigned)r.crc);
	if (r.key < 1 || r.key > KVT_MOONCAKE_KEY)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the record at %lld has a key of %lld bytes, expected 1 to %d",
				name, LL(at), LL(r.key), KVT_MOONCAKE_KEY);
	/* all below 2^33: nothing overflows */
	r.value = (KVT_MOONCAKE_RECORD + r.key + ALIGNED - 1) / ALIGNED * ALIGNED;
	taken = r.value + r.nbytes;
	if (taken > extent->nbytes)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the record at %lld has %lld bytes, but %lld were allocated",
				name, LL(at), LL(taken), LL(extent->nbytes));
	r.value += at;
	*out = r;
	return KVT_OK;
}
