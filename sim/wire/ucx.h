/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx.h - the bytes of frames over UCX, for two processes that TCP joined
 *
 * libucp is opened when it is asked for; builds without its headers refuse.
 */
#ifndef KVTOOL_WIRE_UCX_H
#define KVTOOL_WIRE_UCX_H

#include "lib/kvt/kvt.h"

struct wire_ucx;

/* Was this built with UCX?  KVT_UNSUPPORTED if not. */
KVT_MUST_CHECK enum kvt_status wire_ucx_built(struct kvt_error *err);

/*
 * Opens the library and a way to be reached: *address, of *nbytes bytes, which
 * the peer needs and which stays until the end.  'fd' is the TCP connection to
 * the peer, whose end means that the peer is gone.
 */
KVT_MUST_CHECK enum kvt_status
wire_ucx_open(struct wire_ucx **out, const void **address, int64_t *nbytes, int fd,
	      struct kvt_error *err);
/* To the peer with that address, which libucp believes. */
KVT_MUST_CHECK enum kvt_status
wire_ucx_connect(struct wire_ucx *u, const void *address, struct kvt_error *err);
/* Waits, for at most a second, until what was sent is on its way.  NULL is fine. */
void wire_ucx_close(struct wire_ucx *u);

/* All n bytes, or KVT_SYSTEM when they are not through in time, by wire_now_ms(). */
KVT_MUST_CHECK enum kvt_status
wire_ucx_send(struct wire_ucx *u, const void *bytes, int64_t n, int64_t until,
	      struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
wire_ucx_receive(struct wire_ucx *u, void *bytes, int64_t n, int64_t until,
		 struct kvt_error *err);

#endif
