/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hip_on_cuda.h - AMD's builtins for nvcc, so that an NVIDIA GPU runs the HIP file
 *
 * Shows that its macros and its list are right and that it copies the right
 * bytes.  Says nothing about code for AMD, waves of 64 or AMD's driver.
 */
#ifndef HIP_ON_CUDA_H
#define HIP_ON_CUDA_H

#include <stdint.h>

#define GPU_HIP_ON_CUDA	1

struct alignas(16) gpu_unit16 {
	uint32_t word[4];
};

#define GPU_THREADS_256	__launch_bounds__(256)
#define __builtin_amdgcn_workitem_id_x()	threadIdx.x
#define __builtin_amdgcn_workgroup_id_x()	blockIdx.x
#define __builtin_amdgcn_grid_size_x()		(gridDim.x * blockDim.x)
#define __builtin_amdgcn_fence(order, scope)	__threadfence_block()
#define __builtin_amdgcn_s_barrier()		__syncthreads()

#endif
