/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_cast_avx2.c - casts of elements of 32-byte vectors */
#if defined(__x86_64__)

#define TARGET	__attribute__((target("avx2")))

#include "kernels/cpu/cpu_cast.h"

CAST_ISA(avx2)

#else
extern int cpu_cast_avx2_is_empty;	/* ISO C wants a declaration in each file */
#endif
