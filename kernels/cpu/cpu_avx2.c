/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_avx2.c - leaves for 32-byte vectors */
#if defined(__x86_64__)

#define TARGET	__attribute__((target("avx2")))

#include "kernels/cpu/cpu_x86.h"

TILES_16
TILES_32
PAST(32)
STREAM(32)

const struct cpu_isa kvt_cpu_isa_avx2 = ISA(32, &kvt_cpu_isa_sse2);

#else
extern int cpu_avx2_is_empty;	/* ISO C wants a declaration in each file */
#endif
