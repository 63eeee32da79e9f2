/* SPDX-License-Identifier: Apache-2.0 */
/* wire_socket.h - frames over TCP or UCX, with a deadline for every step */
#ifndef KVTOOL_WIRE_SOCKET_H
#define KVTOOL_WIRE_SOCKET_H

#include "cli/wire_frame.h"

struct wire {
	int fd;				/* -1: not connected */
	int timeout_ms;			/* without a single byte */
	uint8_t *payload;		/* [WIRE_MOST]; owned */
	struct wire_ucx *ucx;		/* owned; NULL: frames go over TCP */
};

/* HOST:PORT; port 0 is any.  'port' becomes the one that was taken. */
KVT_MUST_CHECK enum kvt_status
wire_listen(int *fd, int *port, const char *where, struct kvt_error *err);
/* 'fd' stays open. */
KVT_MUST_CHECK enum kvt_status
wire_accept(struct wire *out, int fd, int timeout_ms, struct kvt_error *err);
/* Tries again until the time is over: the other side may start later. */
KVT_MUST_CHECK enum kvt_status
wire_connect(struct wire *out, const char *where, int timeout_ms, struct kvt_error *err);
void wire_close(struct wire *wire);
/* Both sides of a connection: from now on its frames go over UCX. */
KVT_MUST_CHECK enum kvt_status wire_use_ucx(struct wire *wire, struct kvt_error *err);

/* A payload in two parts, either of which may be empty. */
KVT_MUST_CHECK enum kvt_status
wire_send(struct wire *wire, enum wire_type type, const void *a, int64_t na,
	  const void *b, int64_t nb, struct kvt_error *err);
/* Into wire->payload.  A peer that gave up is an error with its sentence. */
KVT_MUST_CHECK enum kvt_status
wire_receive(struct wire *wire, struct wire_head *head, struct kvt_error *err);
/* Tells the peer why; whether it hears is not asked. */
void wire_give_up(struct wire *wire, enum kvt_status status, const struct kvt_error *why);

#endif
