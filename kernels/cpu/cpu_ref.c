/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_ref.c - the definition of a strided copy
 *
 * Every other kernel, on every backend, must leave the bytes that this one
 * leaves.  It stays the plainest code that can be written.
 */
#include "kernels/cpu/cpu_kernels.h"

#include <string.h>

void kvt_cpu_copy_ref(void *dst, const void *src, const struct kvt_plan *plan)
{
	struct kvt_plan_walk walk;

	kvt_plan_walk_start(&walk, plan);
	for (; !walk.done; kvt_plan_walk_next(&walk))
		memcpy((char *)dst + walk.dst, (const char *)src + walk.src,
		       (size_t)plan->run);
}
