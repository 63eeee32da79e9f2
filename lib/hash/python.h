/* SPDX-License-Identifier: Apache-2.0 */
/* python.h - hash() of CPython 3.11 and later, on 64 bits, as far as names use it */
#ifndef KVT_PYTHON_HASH_H
#define KVT_PYTHON_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Of a str of ASCII, in a process with PYTHONHASHSEED=seed, 0 to 2^32-1. */
int64_t kvt_python_hash_text(const char *text, uint32_t seed);

int64_t kvt_python_hash_int(int64_t value);

/* Of a tuple: start, add the hash of each item, end with how many there were. */
#define KVT_PYTHON_TUPLE UINT64_C(2870177450012600261)
void kvt_python_tuple_add(uint64_t *acc, int64_t hash);
int64_t kvt_python_tuple_end(uint64_t acc, size_t n);

#endif
