/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_cast_avx512.c - casts of elements of 64-byte vectors */
#if defined(__x86_64__)

#define TARGET	__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

#include "kernels/cpu/cpu_cast.h"

CAST_ISA(avx512)

#else
extern int cpu_cast_avx512_is_empty;	/* ISO C wants a declaration in each file */
#endif
