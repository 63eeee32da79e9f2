/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf.c - the wire format of protocol buffers, as far as stores use it
 *
 * A message is fields one after the other, in any order, and has no length of its own:
 *
 *	varint	number of the field << 3 | type
 *	varint	the value (type 0), or n (type 2), then n bytes: text or another message
 *
 * A varint has seven bits a byte, the lowest first, and 80 in each byte but its last.
 * Types of fixed width (1, 5) and groups (3, 4) are in no message read here and refused.
 */
#include "formats/parse/protobuf.h"

struct kvt_pb kvt_pb_open(const void *bytes, int64_t nbytes, const char *name,
			  struct kvt_error *err)
{
	const uint8_t *p = bytes;

	return (struct kvt_pb){ p, p, p + nbytes, name, err };
}

static enum kvt_status refuse(const struct kvt_pb *pb, const char *what)
{
	return kvt_fail(pb->err, KVT_BAD_INPUT, "%s: byte %lld of the message: %s",
			pb->name, LL(pb->at - pb->begin), what);
}

/* Seven bits a byte, lowest first; ten bytes hold 64. */
static enum kvt_status take_varint(struct kvt_pb *pb, uint64_t *out)
{
	const uint8_t *p = pb->at;

	*out = 0;
	for (int shift = 0; shift < 64; shift += 7) {
		if (p == pb->end)
			return refuse(pb, "a number is cut off");
		if (shift == 63 && *p > 1)
			break;
		*out |= (uint64_t)(*p & 0x7f) << shift;
		if (*p++ < 0x80) {
			pb->at = p;
			return KVT_OK;
		}
	}
	return refuse(pb, "a number has more than 64 bits");
}

enum kvt_status kvt_pb_begin(struct kvt_pb *pb, struct kvt_pb_field *out, bool *more)
{
	enum { VARINT = 0, BYTES = 2 };
	enum kvt_status status;
	uint64_t key;

	*more = pb->at < pb->end;
	if (!*more)
		return KVT_OK;
	if ((status = take_varint(pb, &key)))
		return status;
	if (key >> 3 < 1 || key >> 3 > 0x1fffffff)
		return refuse(pb, "no number of a field");
	if ((key & 7) != VARINT && (key & 7) != BYTES)
		return refuse(pb, "a type of field that is not expected here");
	*out = (struct kvt_pb_field){ .number = (uint32_t)(key >> 3),
				      .is_bytes = (key & 7) == BYTES };
	if ((status = take_varint(pb, &out->value)))
		return status;
	out->bytes = pb->at;
	return KVT_OK;
}

enum kvt_status kvt_pb_next(struct kvt_pb *pb, struct kvt_pb_field *out, bool *more)
{
	enum kvt_status status = kvt_pb_begin(pb, out, more);

	if (status || !*more || !out->is_bytes)
		return status;
	if (out->value > (uint64_t)(pb->end - pb->at))
		return refuse(pb, "a field is longer than what is left");
	pb->at += out->value;
	return KVT_OK;
}
