/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - a transfer between two processes, op by op
 *
 * Both plan on their own.  The destination asks for boxes and checks each op that
 * comes against its own plan, so that neither has to trust the other.
 */
#ifndef KVTOOL_OPS_TRANSFER_WIRE_H
#define KVTOOL_OPS_TRANSFER_WIRE_H

#include "sim/ops/exec.h"
#include "sim/ops/frame.h"

/* How frames go to the other process and come from it. */
struct wire_peer {
	void *context;
	/* A payload in two parts, either of which may be empty. */
	enum kvt_status (*send)(void *context, enum wire_type type, const void *a,
				int64_t na, const void *b, int64_t nb,
				struct kvt_error *err);
	/*
	 * The next frame; its payload is valid until the one after it.  A peer that
	 * gave up is an error with its sentence.
	 */
	enum kvt_status (*receive)(void *context, struct wire_head *head,
				   const uint8_t **payload, struct kvt_error *err);
};

/* Each says which plan it has; two different ones are KVT_BAD_INPUT. */
KVT_MUST_CHECK enum kvt_status
wire_hello(const struct wire_peer *peer, const struct kvt_sides *sides,
	   struct kvt_error *err);

/* The destination: asks for a box and takes its ops.  The context is a wire_peer. */
kvt_carry_fn wire_pull;

/* The source: answers until the destination has all. */
KVT_MUST_CHECK enum kvt_status
wire_serve(const struct wire_peer *peer, const struct kvt_sides *sides,
	   const struct kvt_run *run, struct kvt_error *err);

#endif
