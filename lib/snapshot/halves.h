/* SPDX-License-Identifier: Apache-2.0 */
/* halves.h - keys and values that are groups of their own belong together */
#ifndef KVT_HALVES_H
#define KVT_HALVES_H

#include "lib/kvt/snapshot.h"

/* KVT_BAD_INPUT, with both groups, if a layer has other heads of keys than of values. */
KVT_MUST_CHECK enum kvt_status
halves_check(const struct kvt_snapshot *snapshot, struct kvt_error *err);

#endif
