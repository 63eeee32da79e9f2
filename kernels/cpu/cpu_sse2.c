/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_sse2.c - leaves for 16-byte vectors, which every x86-64 has */
#if defined(__x86_64__)

#define TARGET

#include "kernels/cpu/cpu_x86.h"

TILES_16
PAST(16)
STREAM(16)

const struct cpu_isa kvt_cpu_isa_sse2 = ISA(16, NULL);

#else
extern int cpu_sse2_is_empty;	/* ISO C wants a declaration in each file */
#endif
