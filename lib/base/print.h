/* SPDX-License-Identifier: Apache-2.0 */
/* print.h - what formats for people need */
#ifndef KVT_PRINT_H
#define KVT_PRINT_H

#include "lib/kvt/base.h"

/* "5 x 48 x 16"; of no extents "a single element". */
struct kvt_text kvt_extents_text(int n, const int64_t *extent);

#endif
