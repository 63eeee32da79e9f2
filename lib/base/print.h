/* SPDX-License-Identifier: Apache-2.0 */
/* print.h - what formats for people need */
#ifndef KVT_PRINT_H
#define KVT_PRINT_H

/* For %lld, whatever int64_t is. */
#define LL(x) ((long long)(x))

#endif
