/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.h - what two processes say to each other during a transfer
 *
 * The destination pulls: it asks for a box, the source answers with the ops that
 * write there and their bytes.  A frame is a head of 16 bytes (magic, type,
 * length of the payload) and a payload; numbers are little endian.  Nothing here
 * reads or writes a socket, and nothing that is taken is believed.
 */
#ifndef KVTOOL_OPS_TRANSFER_FRAME_H
#define KVTOOL_OPS_TRANSFER_FRAME_H

#include "lib/kvt/transfer.h"

enum wire_type {
	WIRE_HELLO = 1,			/* both: hash of the plan */
	WIRE_ASK,			/* destination: a box */
	WIRE_OPS,			/* source: ops of it, with their bytes */
	WIRE_END,			/* source: those were all */
	WIRE_FAIL,			/* either: status and sentence */
	WIRE_BYE,			/* destination: all is well */
	WIRE_ADDRESS,			/* both, for UCX: where a worker is reached */
	WIRE_NONCE,			/* both, first of all: sim/wire/handshake.h */
	WIRE_PROOF,
	WIRE_NTYPES
};

enum {
	WIRE_VERSION = 2,
	WIRE_HEAD = 16,
	WIRE_NONCE_BYTES = 1 + 32,	/* is there a secret? the nonce */
	WIRE_PROOF_BYTES = 32,
	WIRE_RANGE = 1 << 20,		/* bytes of a frame; longer ops are cut */
	WIRE_OP = 24,			/* source offset, destination offset, length */
	WIRE_MOST_OPS = 4096,		/* of a frame */
	WIRE_MOST_ADDRESS = 1 << 16,
	WIRE_MOST = 8 + WIRE_MOST_OPS * WIRE_OP + WIRE_RANGE,
};

struct wire_head {
	enum wire_type type;
	int64_t length;
};
void wire_head_put(uint8_t bytes[WIRE_HEAD], enum wire_type type, int64_t length);
/* The same as a peer of version 1 reads it, which can only be told why not. */
void wire_head_put_old(uint8_t bytes[WIRE_HEAD], enum wire_type type, int64_t length);
bool wire_head_is_old(const uint8_t bytes[WIRE_HEAD]);
KVT_MUST_CHECK enum kvt_status
wire_head_take(struct wire_head *out, const uint8_t bytes[WIRE_HEAD],
	       struct kvt_error *err);

/* One box of a part of the plan. */
struct wire_ask {
	int64_t part, rank;
	int64_t layers[2], blocks[2];
};
enum { WIRE_ASK_BYTES = 48 };
void wire_ask_put(uint8_t bytes[WIRE_ASK_BYTES], const struct wire_ask *ask);
KVT_MUST_CHECK enum kvt_status
wire_ask_take(struct wire_ask *out, const uint8_t *bytes, int64_t length,
	      struct kvt_error *err);

/* Ops of one source rank; their bytes follow each other in 'data'. */
struct wire_ops {
	int64_t src_rank, n;
	const uint8_t *list, *data;	/* borrowed */
	int64_t nbytes;
};
KVT_MUST_CHECK enum kvt_status
wire_ops_take(struct wire_ops *out, const uint8_t *bytes, int64_t length,
	      struct kvt_error *err);
void wire_op_put(uint8_t bytes[WIRE_OP], const struct kvt_op *op);
struct kvt_op wire_op_take(const uint8_t bytes[WIRE_OP]);

/* The status that is to be ended with; 'err' becomes the peer's sentence. */
enum kvt_status wire_fail_take(const uint8_t *bytes, int64_t length,
			       struct kvt_error *err);

void wire_put(uint8_t *bytes, int nbytes, uint64_t value);
uint64_t wire_take(const uint8_t *bytes, int nbytes);

#endif
