/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_avx512.c - leaves for 64-byte vectors: a line is one store */
#if defined(__x86_64__)

#define TARGET	__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

#include "kernels/cpu/cpu_x86.h"

TILES_16
TILES_32
TILES_64
PAST(64)
STREAM(64)

const struct cpu_isa kvt_cpu_isa_avx512 = ISA(64, &kvt_cpu_isa_avx2);

#else
extern int cpu_avx512_is_empty;	/* ISO C wants a declaration in each file */
#endif
