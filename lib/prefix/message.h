/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.h - Python values as the bytes that engines hash: a pickle, or CBOR
 *
 * Pickle, protocol 5, of (parent, (1, 300), None); one frame, as nothing is longer:
 *
 *	80 05 95 <u64 bytes that follow>
 *	43 20 <32 bytes> 94		bytes, remembered
 *	4b 01 4d 2c 01 86 94		1, 300, a tuple of two, remembered
 *	4e 87 94 2e			None, a tuple of three, end
 *
 * What was remembered is numbered from 0, and what comes again as the same object is its
 * number: 68 <u8>, 6a <u32>.  Whether two equal strings are one object is not in the
 * values, so a message with two is refused.  CBOR (RFC 8949, deterministic) has no such
 * thing: 83 58 20 <32 bytes> 82 01 19 012c f6.
 */
#ifndef KVT_PREFIX_MESSAGE_H
#define KVT_PREFIX_MESSAGE_H

#include "lib/kvt/prefix.h"

/* Words of vLLM that are in all messages one object each. */
enum kvt_message_tag { KVT_TAG_LORA, KVT_TAG_MM, KVT_TAG_SALT, KVT_NTAGS };

enum {
	KVT_MESSAGE_BYTES = 64 << 10,	/* a pickle's frame is no longer */
	KVT_MESSAGE_TEXTS = 32,
};

struct kvt_message {
	bool cbor;
	bool full, again;		/* what it could not take */
	size_t n;
	uint32_t remembered;
	uint32_t tag[KVT_NTAGS];	/* their number; UINT32_MAX: not yet */
	int ntexts;
	const char *text[KVT_MESSAGE_TEXTS];
	uint8_t bytes[KVT_MESSAGE_BYTES];
};

void kvt_message_start(struct kvt_message *m, bool cbor);
/* KVT_UNSUPPORTED: it was too long; KVT_BAD_INPUT: two equal strings in a pickle. */
KVT_MUST_CHECK enum kvt_status
kvt_message_end(struct kvt_message *m, struct kvt_error *err);

/* Before and after the n items of a tuple. */
void kvt_message_tuple(struct kvt_message *m, size_t n);
void kvt_message_tuple_end(struct kvt_message *m, size_t n);

void kvt_message_none(struct kvt_message *m);
void kvt_message_int(struct kvt_message *m, int64_t value);
void kvt_message_unsigned(struct kvt_message *m, uint64_t value);
void kvt_message_bytes(struct kvt_message *m, const uint8_t *bytes, uint8_t n);
void kvt_message_text(struct kvt_message *m, const char *text);
void kvt_message_tag(struct kvt_message *m, enum kvt_message_tag tag);

#endif
