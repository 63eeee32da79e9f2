/* SPDX-License-Identifier: Apache-2.0 */
/* protobuf.h - the fields of a message, one after the other */
#ifndef KVT_PROTOBUF_H
#define KVT_PROTOBUF_H

#include "formats/format.h"

/* What is left of a message; 'begin' stays, for messages about offsets. */
struct kvt_pb {
	const uint8_t *begin, *at, *end;
	const char *name;
	struct kvt_error *err;
};

/* A number, or bytes: those types are all that the formats here use. */
struct kvt_pb_field {
	uint32_t number;
	bool is_bytes;
	uint64_t value;			/* the number, or how many bytes */
	const uint8_t *bytes;		/* inside the message */
};

struct kvt_pb kvt_pb_open(const void *bytes, int64_t nbytes, const char *name,
			  struct kvt_error *err);

/* The next field; *more is false, and there is none, at the end. */
KVT_MUST_CHECK enum kvt_status
kvt_pb_next(struct kvt_pb *pb, struct kvt_pb_field *out, bool *more);

/*
 * The same, but the bytes of the field may reach beyond those at hand: only
 * where they begin is known, and how many there should be.
 */
KVT_MUST_CHECK enum kvt_status
kvt_pb_begin(struct kvt_pb *pb, struct kvt_pb_field *out, bool *more);

#endif
