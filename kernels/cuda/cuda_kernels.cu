/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels.cu - the GPU kernels as nvcc sees them */
#include <stdint.h>

struct alignas(16) gpu_unit16 {
	uint32_t word[4];
};

#define GPU_ENTRY	extern "C" __global__ __launch_bounds__(256)
#define GPU_INLINE	static __device__ __forceinline__
#define GPU_THREAD	threadIdx.x
#define GPU_BLOCK	blockIdx.x
#define GPU_GRID	gridDim.x
#define GPU_UNROLL	_Pragma("unroll")
#define GPU_NO_UNROLL _Pragma("unroll 1")
#define GPU_BARRIER()	__syncthreads()
#define GPU_LOAD(p)	(*(p))
#define GPU_STORE(p, v)	(*(p) = (v))
#define GPU_SLOAD(p)	(*(p))
#define GPU_SSTORE(p, v) (*(p) = (v))
#define GPU_SHARED(type, name, n) __shared__ type name[n]
#define GPU_MULHI(a, b)	__umulhi(a, b)
#define GPU_FAULT(n)	0

#include "kernels/gpu_body.inl"
