/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvt.h - layout algebra for KV-cache memory
 *
 * Everything kvtool knows about KV-cache layouts and nothing else: no I/O, no
 * allocation, no printing, no global state.  Every function is pure and may be
 * called from any thread.
 *
 * Conventions used throughout:
 *
 *   - Axes have names, never positions.  What is at (layer 3, block 7, slot
 *     0, head 2) is one thing, wherever a layout puts it.
 *   - Sizes, strides and offsets are in BYTES and have type int64_t; extents
 *     count elements.
 *   - Structs declared here are plain values: copy them freely, there is
 *     nothing to release.
 *   - A function that can fail returns enum kvt_status.  Its outputs are
 *     written only on KVT_OK.  'err' may be NULL; otherwise it receives one
 *     sentence for a person to read.
 */
#ifndef KVT_H
#define KVT_H

#include "lib/kvt/base.h"
#include "lib/kvt/kind.h"
#include "lib/kvt/layout.h"
#include "lib/kvt/plan.h"
#include "lib/kvt/view.h"

#define KVT_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* KVT_VERSION of the library that is linked, to hold against that of the headers. */
KVT_API const char *kvt_version(void);

#ifdef __cplusplus
}
#endif

#endif
