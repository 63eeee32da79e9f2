/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h - digests of both sides of a transfer: transfer_digests.c */
#ifndef KVT_OPS_COMPARE_TRANSFER_H
#define KVT_OPS_COMPARE_TRANSFER_H

#include "lib/ops/transfer/exec.h"

/* Do all tokens of both sides move?  Then their digests are equal. */
bool same_requests(const struct kvt_sides *sides);
KVT_MUST_CHECK enum kvt_status
compare_digests(struct kvt_verified *out, const struct kvt_sides *sides,
		const struct kvt_ranks *after, const struct kvt_run *run,
		struct kvt_error *err);

#endif
