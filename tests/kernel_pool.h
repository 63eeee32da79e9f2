/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_pool.h - one plan on several threads, to measure kernels by */
#ifndef KVT_TESTS_KERNEL_POOL_H
#define KVT_TESTS_KERNEL_POOL_H

#include "lib/kvt/kernels.h"

/*
 * A pool of threads that stay alive between calls (the kernel may run a fresh
 * thread on its creator's CPU for a while).  The caller of a copy is one of
 * them, so 1 starts none.  NULL if none could be started.  Callers on different
 * threads wait for each other.
 */
struct kernel_pool;
struct kernel_pool *kernel_pool_new(int nthreads);
void kernel_pool_free(struct kernel_pool *pool);
void kernel_pool_copy(struct kernel_pool *pool, void *dst, const void *src,
		       const struct kvt_plan *plan);

/*
 * The same for many plans that write different bytes, such as one per block:
 * the kernel is chosen by the size of all together, and nobody waits in
 * between.
 */
void kernel_pool_copy_many(struct kernel_pool *pool, void *dst,
			    const void *src, const struct kvt_plan *plan,
			    int nplans);

#endif
