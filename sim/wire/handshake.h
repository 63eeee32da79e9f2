/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handshake.h - how two processes prove to each other that they share a secret
 *
 * The source sends a nonce, the destination, which listens, sends one back; where
 * there is a secret the source then proves that it has it, and only then gets the
 * proof of the destination, as a proof allows to try secrets offline.
 * A proof is the HMAC-SHA-256 under the secret of the side's name and both nonces,
 * so that none can be sent back, or again.
 *
 * Nothing here reads or writes a socket.
 */
#ifndef KVTOOL_WIRE_HANDSHAKE_H
#define KVTOOL_WIRE_HANDSHAKE_H

#include <stddef.h>

#include "sim/ops/frame.h"

enum {
	WIRE_SECRET_MOST = 4096,
	WIRE_HANDSHAKE_MOST = WIRE_HEAD + WIRE_NONCE_BYTES, /* of one frame */
};

struct wire_secret {
	size_t n;			/* 0: there is none */
	uint8_t bytes[WIRE_SECRET_MOST];
};

/*
 * What a regular file holds, but for an end of line; one that others can read or write
 * is refused.
 */
KVT_MUST_CHECK enum kvt_status
wire_secret_read(struct wire_secret *out, const char *path, struct kvt_error *err);
/* A random one. */
KVT_MUST_CHECK enum kvt_status
wire_secret_make(struct wire_secret *out, struct kvt_error *err);

struct wire_handshake {
	const struct wire_secret *secret;	/* borrowed */
	bool listens;
	bool has_nonce, done;
	uint8_t mine[32], theirs[32];
};

KVT_MUST_CHECK enum kvt_status
wire_handshake_start(struct wire_handshake *out, const struct wire_secret *secret,
		     bool listens, struct kvt_error *err);
/* These put a frame into 'bytes' and return its length. */
int64_t wire_handshake_nonce(uint8_t bytes[WIRE_HANDSHAKE_MOST],
			     const struct wire_handshake *m);
int64_t wire_handshake_proof(uint8_t bytes[WIRE_HANDSHAKE_MOST],
			     const struct wire_handshake *m);
/* The next frame of the other side, its nonce and then its proof; KVT_BAD_INPUT. */
KVT_MUST_CHECK enum kvt_status
wire_handshake_take(struct wire_handshake *m, const struct wire_head *head,
		    const uint8_t *payload, struct kvt_error *err);

#endif
