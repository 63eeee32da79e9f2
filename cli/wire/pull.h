/* SPDX-License-Identifier: Apache-2.0 */
/* pull.h - boxes of a destination from another process, op by op */
#ifndef KVTOOL_WIRE_PULL_H
#define KVTOOL_WIRE_PULL_H

#include "cli/wire/socket.h"
#include "lib/ops/transfer/exec.h"

/* Each says which plan it has; two different ones are KVT_BAD_INPUT. */
KVT_MUST_CHECK enum kvt_status
wire_hello(struct wire *wire, const struct kvt_sides *sides, struct kvt_error *err);

/* The destination: asks for a box and takes its ops.  The context is the wire. */
kvt_carry_fn wire_pull;

/* The source: answers until the destination has all. */
KVT_MUST_CHECK enum kvt_status
wire_serve(struct wire *wire, const struct kvt_sides *sides, const struct kvt_run *run,
	   struct kvt_error *err);

#endif
