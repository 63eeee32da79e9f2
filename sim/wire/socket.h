/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socket.h - frames over TCP or UCX, with a deadline for each and one for all
 *
 * Deadlines are points in time; no byte that arrives moves one.
 */
#ifndef KVTOOL_WIRE_SOCKET_H
#define KVTOOL_WIRE_SOCKET_H

#include "sim/ops/wire.h"
#include "sim/wire/handshake.h"

struct wire_limits {
	int frame_ms;			/* for a frame, from when it is waited for */
	int64_t end_ms;			/* for all, by wire_now_ms() */
};

struct wire {
	int fd;				/* -1: not connected */
	struct wire_limits limits;
	bool old_peer;			/* speaks version 1 */
	uint8_t *payload;		/* [WIRE_MOST]; owned */
	struct wire_ucx *ucx;		/* owned; NULL: frames go over TCP */
};

/* Milliseconds of a monotonic clock. */
int64_t wire_now_ms(void);

/* KVT_USAGE if the address is not on the loopback interface and there is no secret. */
KVT_MUST_CHECK enum kvt_status
wire_check_address(const char *where, bool listens, const struct wire_secret *secret,
		   struct kvt_error *err);

/* HOST:PORT; port 0 is any.  'port' becomes the one that was taken. */
KVT_MUST_CHECK enum kvt_status
wire_listen(int *fd, int *port, const char *where, const struct wire_secret *secret,
	    struct kvt_error *err);

/* Connections that were not the peer: other protocols, no secret, silence. */
struct wire_rejected {
	int64_t n;
	struct kvt_error last;		/* why it was rejected */
};

/* The first that speaks the protocol and has the secret; 'fd' stays open. */
KVT_MUST_CHECK enum kvt_status
wire_accept(struct wire *out, struct wire_rejected *rejected, int fd,
	    const struct wire_limits *limits, const struct wire_secret *secret,
	    struct kvt_error *err);
/* Tries again until the time is over: the other side may start later, or be crowded. */
KVT_MUST_CHECK enum kvt_status
wire_connect(struct wire *out, const char *where, const struct wire_limits *limits,
	     const struct wire_secret *secret, struct kvt_error *err);
/* Over a connection that is there, which is closed if this fails. */
KVT_MUST_CHECK enum kvt_status
wire_start(struct wire *out, int fd, const struct wire_limits *limits,
	   struct kvt_error *err);
void wire_close(struct wire *wire);
/* Both sides of a connection: from now on its frames go over UCX. */
KVT_MUST_CHECK enum kvt_status wire_use_ucx(struct wire *wire, struct kvt_error *err);

/* A payload in two parts, either of which may be empty. */
KVT_MUST_CHECK enum kvt_status
wire_send(struct wire *wire, enum wire_type type, const void *a, int64_t na,
	  const void *b, int64_t nb, struct kvt_error *err);
/* Sending and receiving for the protocol; borrows the connection. */
struct wire_peer wire_peer(struct wire *wire);
/* Tells the peer why; whether it hears is not asked. */
void wire_give_up(struct wire *wire, enum kvt_status status, const struct kvt_error *why);

#endif
