/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_executor.h - the CPU executor, beside the driver's calls that it offers
 *
 * A shared object that a test loads in place of libcuda.so.1 or libamdhip64.so.
 * Kernels run on the thread that waits for them; what is wrong with them is kept,
 * as a device keeps it, until kvt_exec_reset().
 */
#ifndef GPU_EXECUTOR_H
#define GPU_EXECUTOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order of blocks and of threads comes from this. */
typedef void kvt_exec_seed_fn(uint64_t seed);

/* Plants a fault of gpu_body.inl; 0: none. */
typedef void kvt_exec_fault_fn(int n);

/* What went wrong, "" if nothing; and a device that works again. */
typedef const char *kvt_exec_trouble_fn(void);
typedef void kvt_exec_reset_fn(void);

/* Accesses to device memory by the requests of warps of 32, since kvt_exec_count(). */
struct kvt_exec_traffic {
	int64_t requests, sectors, lines, bytes;
};
typedef void kvt_exec_count_fn(int on);
typedef void kvt_exec_read_fn(struct kvt_exec_traffic *loads,
				 struct kvt_exec_traffic *stores);

#ifdef __cplusplus
}
#endif

#endif
