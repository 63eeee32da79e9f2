/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hip_kernels.hip - the GPU kernels as clang sees them for AMD
 *
 * On the compiler's builtins, without HIP's headers and device libraries: those
 * of a release know fewer processors than its compiler does.
 */
#include <stdint.h>

#ifndef GPU_HIP_ON_CUDA	/* a test builds this file with nvcc */
/* An array of structs would go through memory, one of vectors stays in registers. */
typedef uint32_t gpu_unit16 __attribute__((ext_vector_type(4)));

#define __global__	__attribute__((global))
#define __device__	__attribute__((device))
#define __shared__	__attribute__((shared))
#define GPU_THREADS_256	__attribute__((amdgpu_flat_work_group_size(256, 256)))
#endif

#define GPU_ENTRY	extern "C" __global__ GPU_THREADS_256
#define GPU_INLINE	static __device__ inline __attribute__((always_inline))
#define GPU_THREAD	((uint32_t)__builtin_amdgcn_workitem_id_x())
#define GPU_BLOCK	((uint32_t)__builtin_amdgcn_workgroup_id_x())
#define GPU_GRID	((uint32_t)__builtin_amdgcn_grid_size_x() / GPU_THREADS)
#define GPU_UNROLL	_Pragma("unroll")
#define GPU_NO_UNROLL	_Pragma("unroll 1")
#define GPU_BARRIER()	(__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), \
			 __builtin_amdgcn_s_barrier(), \
			 __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
#define GPU_LOAD(p)	(*(p))
#define GPU_STORE(p, v)	(*(p) = (v))
#define GPU_SLOAD(p)	(*(p))
#define GPU_SSTORE(p, v) (*(p) = (v))
#define GPU_SHARED(type, name, n) __shared__ type name[n]
#define GPU_MULHI(a, b)	((uint32_t)((uint64_t)(a) * (b) >> 32))
#define GPU_FAULT(n)	0

#include "kernels/gpu_body.inl"
