/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend_rows.c - what the attention backends of each release of vLLM can do
 *
 * One row is a backend since a release, until the next row of its name begins: the newest
 * first.  Read from the source text of vLLM 0.22.1, 0.24.0, 0.26.0 and 0.32.0; where a
 * class asks the device or its own code, devices[] and backend_own.c have it.
 */
#include "lib/vllm/backend.h"

#include <stddef.h>

#define HALF (F16 | BF16)
#define PLAIN (AUTO | C_F16 | C_BF16)
#define FP8S (FP8 | E4M3)
#define ANY_TYPE (ENCODER | ENCODER_ONLY | CROSS)
#define USUAL (CONNECTOR | LENGTHS)
#define LATENT { 320, 512, 576 }
#define LATENT_WITH_ROPE { 320, 576 }
#define SM(major) (1u << (major))
#define V4 { 512 }

/*
 * In the order of the newest release's list.  What an installed library decides, a
 * device of ROCm or the model's own numbers, counts as supported: of FLASH_ATTN and its
 * like sinks, a prefix, scales of heads, fp8 and heads above 256; of AITER non-causal
 * latents.  What a device of CUDA decides stands in 'devices'.
 */
static const struct kvt_backend rows[] = {
	{ .name = "FLASH_ATTN", .since = KVT_VLLM_0_24,
	  .can = SINKS | PREFIX | SCALES | WINDOW | RSWA | NON_CAUSAL | INVARIANT
		  | DCP | USUAL, .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .types = ANY_TYPE, .least = 8, .step = 8, .most = 512, .block = { 16 },
	  .least_capability = 80 },
	{ .name = "FLASH_ATTN",
	  .can = SINKS | SCALES | WINDOW | RSWA | NON_CAUSAL | INVARIANT | DCP
		  | USUAL, .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .types = ANY_TYPE, .least = 8, .step = 8, .most = 512, .block = { 16 },
	  .least_capability = 80 },
	{ .name = "FLASH_ATTN_DIFFKV", .since = KVT_VLLM_0_24,
	  .can = SINKS | PREFIX | SCALES | WINDOW | RSWA | NON_CAUSAL | INVARIANT
		  | DCP | USUAL, .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .types = ANY_TYPE, .least = 8, .step = 8, .most = 512, .block = { 16 },
	  .least_capability = 80 },
	{ .name = "FLASH_ATTN_DIFFKV",
	  .can = SINKS | SCALES | WINDOW | RSWA | NON_CAUSAL | INVARIANT | DCP
		  | USUAL, .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .types = ANY_TYPE, .least = 8, .step = 8, .most = 512, .block = { 16 },
	  .least_capability = 80 },
	{ .name = "TRITON_ATTN", .since = KVT_VLLM_0_26,
	  .can = SINKS | PREFIX | WINDOW | RSWA | NON_CAUSAL | INVARIANT | USUAL,
	  .dtypes = HALF | F32,
	  .cache_dtypes = PLAIN | FP8S | E5M2 | INT4_HEAD | PER_HEAD,
	  .types = ANY_TYPE, .least = 32, .step = 1, .block = { 16 } },
	{ .name = "TRITON_ATTN", .since = KVT_VLLM_0_24,
	  .can = SINKS | PREFIX | WINDOW | RSWA | NON_CAUSAL | INVARIANT | USUAL,
	  .dtypes = HALF | F32, .cache_dtypes = PLAIN | FP8S | E5M2 | PER_HEAD,
	  .types = ANY_TYPE, .least = 32, .step = 1, .block = { 16 } },
	{ .name = "TRITON_ATTN",
	  .can = SINKS | PREFIX | WINDOW | RSWA | INVARIANT | USUAL,
	  .dtypes = HALF | F32, .cache_dtypes = PLAIN | FP8S | E5M2 | PER_HEAD,
	  .types = ANY_TYPE, .least = 32, .step = 1, .block = { 16 } },
	{ .name = "TRITON_ATTN_DIFFKV", .since = KVT_VLLM_0_32,
	  .can = SINKS | PREFIX | WINDOW | RSWA | NON_CAUSAL | INVARIANT | USUAL,
	  .dtypes = HALF | F32, .cache_dtypes = AUTO | C_BF16 | FP8S, .least = 32,
	  .step = 1, .block = { 16 } },
	{ .name = "TRITON_ATTN_DIFFKV", .since = KVT_VLLM_0_24,
	  .can = SINKS | PREFIX | WINDOW | RSWA | NON_CAUSAL | INVARIANT | USUAL,
	  .dtypes = HALF | F32, .cache_dtypes = AUTO | C_BF16, .least = 32, .step = 1,
	  .block = { 16 } },
	{ .name = "TRITON_FLASH_ATTN", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = PREFIX | SCALES | WINDOW | RSWA | CONNECTOR, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S, .size = { 256, 512 }, .block = { 16 },
	  .majors = SM(9) },
	{ .name = "ROCM_ATTN", .on = ROCM, .since = KVT_VLLM_0_32,
	  .can = WINDOW | NON_CAUSAL | LENGTHS, .dtypes = HALF | F32,
	  .cache_dtypes = PLAIN | FP8S | E5M2, .types = ENCODER | ENCODER_ONLY,
	  .size = { 32, 64, 80, 96, 128, 160, 192, 224, 256 }, .block = { 16 } },
	{ .name = "ROCM_ATTN", .on = ROCM, .can = PREFIX | WINDOW | NON_CAUSAL | LENGTHS,
	  .dtypes = HALF | F32, .cache_dtypes = PLAIN | FP8S | E5M2,
	  .types = ENCODER | ENCODER_ONLY,
	  .size = { 32, 64, 80, 96, 128, 160, 192, 224, 256 }, .block = { 16 } },
	{ .name = "ROCM_SEGMENTED_ATTN", .on = ROCM, .since = KVT_VLLM_0_32,
	  .can = SINKS | WINDOW | NON_CAUSAL | LENGTHS, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S, .size = { 64, 128, 256 }, .block = { 16 } },
	{ .name = "ROCM_AITER_MLA", .on = ROCM, .since = KVT_VLLM_0_32,
	  .can = MLA | NON_CAUSAL | NON_CAUSAL_DCP | PCP | DCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S | E5M2, .block = { 1 } },
	{ .name = "ROCM_AITER_MLA", .on = ROCM, .can = MLA | NON_CAUSAL_DCP | PCP | DCP
		  | USUAL, .dtypes = HALF, .cache_dtypes = PLAIN | FP8S | E5M2,
	  .block = { 1 } },
	{ .name = "ROCM_AITER_TRITON_MLA", .on = ROCM, .since = KVT_VLLM_0_32,
	  .can = MLA | NON_CAUSAL | NON_CAUSAL_DCP | PCP | DCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S | E5M2, .block = { 1 } },
	{ .name = "ROCM_AITER_TRITON_MLA", .on = ROCM,
	  .can = MLA | NON_CAUSAL_DCP | PCP | DCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S | E5M2, .block = { 1 } },
	{ .name = "ROCM_AITER_FA", .on = ROCM, .since = KVT_VLLM_0_24,
	  .can = SINKS | WINDOW | NON_CAUSAL | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S | E5M2, .size = { 64, 128, 256 },
	  .block = { 16, 32 } },
	{ .name = "ROCM_AITER_FA", .on = ROCM, .can = WINDOW | NON_CAUSAL | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S | E5M2, .size = { 64, 128, 256 },
	  .block = { 16, 32 } },
	{ .name = "ROCM_AITER_MLA_SPARSE", .on = ROCM, .since = KVT_VLLM_0_32,
	  .can = MLA | SPARSE | SINKS | PCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S, .block = { 1, 16 } },
	{ .name = "ROCM_AITER_MLA_SPARSE", .on = ROCM, .can = MLA | SPARSE | PCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S, .block = { 1, 16 } },
	{ .name = "XPU_MLA_SPARSE", .on = XPU, .can = MLA | SPARSE | PCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN, .size = { 576 }, .block = { 1 } },
	{ .name = "TORCH_SDPA", .can = NOTHING },
	{ .name = "FLASHINFER", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = SINKS | WINDOW | NON_CAUSAL | DCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S | E5M2 | NVFP4 | NVFP4_4OVER6
		  | NVFP4_DS_MLA,
	  .size = { 64, 128, 256, 512 }, .block = { 16, 32, 64 },
	  .least_capability = 80, .most_capability = 121 },
	{ .name = "FLASHINFER", .on = CUDA, .since = KVT_VLLM_0_24,
	  .can = SINKS | WINDOW | NON_CAUSAL | DCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S | E5M2 | NVFP4, .size = { 64, 128, 256, 512 },
	  .block = { 16, 32, 64 }, .least_capability = 80, .most_capability = 121 },
	{ .name = "FLASHINFER", .on = CUDA, .can = SINKS | WINDOW | DCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S | E5M2 | NVFP4,
	  .size = { 64, 128, 256, 512 }, .block = { 16, 32, 64 },
	  .least_capability = 75, .most_capability = 121 },
	{ .name = "TRITON_FLASHINFER", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = PREFIX | WINDOW | CONNECTOR, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S | E5M2, .size = { 256, 512 }, .block = { 64 },
	  .majors = SM(10) },
	{ .name = "FLASHINFER_MLA", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = MLA | NON_CAUSAL | NON_CAUSAL_DCP | PCP | DCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S, .size = LATENT,
	  .block = { 32, 64 }, .majors = SM(10) },
	{ .name = "FLASHINFER_MLA", .on = CUDA, .can = MLA | NON_CAUSAL_DCP | PCP | DCP
		  | USUAL, .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .size = LATENT_WITH_ROPE, .block = { 32, 64 }, .majors = SM(10) },
	{ .name = "TOKENSPEED_MLA", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = MLA | NON_CAUSAL | NON_CAUSAL_DCP | PCP | DCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = FP8S, .size = LATENT, .block = { 32, 64 },
	  .majors = SM(10) },
	{ .name = "TOKENSPEED_MLA", .on = CUDA, .can = MLA | NON_CAUSAL_DCP | PCP | DCP
		  | USUAL, .dtypes = HALF, .cache_dtypes = FP8S,
	  .size = LATENT_WITH_ROPE, .block = { 32, 64 }, .majors = SM(10) },
	{ .name = "FLASHINFER_MLA_SPARSE", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = MLA | SPARSE | PCP | DCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S, .size = { 512, 576 }, .block = { 32 },
	  .majors = SM(10) },
	{ .name = "FLASHINFER_MLA_SPARSE", .on = CUDA, .can = MLA | SPARSE | PCP | DCP
		  | USUAL, .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .size = { 576 }, .block = { 32 }, .majors = SM(10) },
	{ .name = "FLASHINFER_MLA_SPARSE_SM120", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = MLA | SPARSE | PCP | USUAL, .dtypes = BF16,
	  .cache_dtypes = AUTO | FP8S | DS_MLA, .size = { 512, 576 }, .block = { 64 },
	  .majors = SM(12) },
	{ .name = "FLASHINFER_MLA_SPARSE_SM120", .on = CUDA, .since = KVT_VLLM_0_24,
	  .can = MLA | SPARSE | PCP | USUAL, .dtypes = BF16,
	  .cache_dtypes = AUTO | FP8S | DS_MLA, .size = { 576 }, .block = { 64 },
	  .majors = SM(12) },
	{ .name = "FLASHINFER_MLA_SPARSE_SM90", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = MLA | SPARSE | PCP | USUAL, .dtypes = BF16,
	  .cache_dtypes = AUTO | C_BF16 | FP8S, .size = { 512, 576 }, .block = { 64 },
	  .majors = SM(9) },
	{ .name = "TRITON_MLA", .since = KVT_VLLM_0_32,
	  .can = MLA | NON_CAUSAL | INVARIANT | PCP | DCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S, .block = { 16 } },
	{ .name = "TRITON_MLA", .can = MLA | INVARIANT | PCP | DCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S, .block = { 16 } },
	{ .name = "CUTLASS_MLA", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = MLA | PCP | DCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S, .size = LATENT, .block = { 128 },
	  .majors = SM(10) },
	{ .name = "CUTLASS_MLA", .on = CUDA, .can = MLA | PCP | DCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S, .size = LATENT_WITH_ROPE,
	  .block = { 128 }, .majors = SM(10) },
	{ .name = "FLASHMLA", .on = CUDA, .since = KVT_VLLM_0_32, .can = MLA | PCP | DCP
		  | USUAL, .dtypes = HALF, .cache_dtypes = PLAIN | FP8S, .size = LATENT,
	  .block = { 64 }, .majors = SM(9) | SM(10) },
	{ .name = "FLASHMLA", .on = CUDA, .can = MLA | PCP | DCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S, .size = LATENT_WITH_ROPE, .block = { 64 },
	  .majors = SM(9) | SM(10) },
	{ .name = "FLASHMLA_SPARSE", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = MLA | SPARSE | PCP | DCP | USUAL, .dtypes = BF16,
	  .cache_dtypes = AUTO | C_BF16 | DS_MLA | FP8 | NVFP4_DS_MLA,
	  .size = { 512, 576 }, .block = { 64 }, .majors = SM(9) | SM(10) },
	{ .name = "FLASHMLA_SPARSE", .on = CUDA, .can = MLA | SPARSE | PCP | DCP | USUAL,
	  .dtypes = BF16, .cache_dtypes = AUTO | C_BF16 | DS_MLA | FP8,
	  .size = { 576 }, .block = { 64 }, .majors = SM(9) | SM(10) },
	{ .name = "FLASHMLA_SPARSE_DSV4", .on = CUDA, .since = KVT_VLLM_0_24,
	  .can = MLA | SPARSE | SINKS | USUAL, .dtypes = BF16,
	  .cache_dtypes = AUTO | DS_MLA | FP8, .size = V4, .block = { 256 },
	  .majors = SM(9) | SM(10) },
	{ .name = "FLASHINFER_MLA_SPARSE_DSV4", .on = CUDA, .since = KVT_VLLM_0_24,
	  .can = MLA | SPARSE | SINKS | USUAL, .dtypes = BF16,
	  .cache_dtypes = AUTO | C_BF16 | FP8S | DS_MLA, .size = V4, .block = { 256 },
	  .majors = SM(10) | SM(12) },
	{ .name = "ROCM_FLASHMLA_SPARSE_DSV4", .on = ROCM, .since = KVT_VLLM_0_24,
	  .can = MLA | SPARSE | SINKS | USUAL, .dtypes = BF16,
	  .cache_dtypes = AUTO | DS_MLA | FP8, .size = V4, .block = { 256 },
	  .majors = SM(9) | SM(10) },
	{ .name = "FLASHMLA_SPARSE_DSV41", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = MLA | SPARSE | SINKS | USUAL, .dtypes = BF16,
	  .cache_dtypes = AUTO | DS_MLA | FP8, .size = V4, .block = { 64, 128 },
	  .majors = SM(9) | SM(10) },
	{ .name = "FLASHINFER_MLA_SPARSE_DSV41", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = MLA | SPARSE | SINKS | USUAL, .dtypes = BF16,
	  .cache_dtypes = AUTO | C_BF16 | FP8S | DS_MLA, .size = V4, .block = { 128 },
	  .majors = SM(10) | SM(12) },
	{ .name = "FLASHMLA_MEGA_ATTN_DSV41", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = MLA | SPARSE | SINKS | USUAL, .dtypes = BF16,
	  .cache_dtypes = AUTO | DS_MLA | FP8 | NVFP4_DS_MLA, .size = V4,
	  .block = { 128 }, .majors = SM(10) },
	{ .name = "B12X", .on = CUDA, .since = KVT_VLLM_0_32, .can = SINKS | WINDOW
		  | USUAL, .dtypes = BF16, .cache_dtypes = AUTO | C_BF16 | FP8S,
	  .size = { 64, 128, 192, 256 }, .block = { 64, 128 }, .exact_block = true,
	  .least_capability = 120, .most_capability = 121 },
	{ .name = "FLASH_ATTN_MLA", .on = CUDA, .since = KVT_VLLM_0_32,
	  .can = MLA | INVARIANT | PCP | DCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN, .size = LATENT, .block = { 16 }, .majors = SM(9) },
	{ .name = "FLASH_ATTN_MLA", .on = CUDA, .can = MLA | INVARIANT | PCP | DCP
		  | USUAL, .dtypes = HALF, .cache_dtypes = PLAIN,
	  .size = LATENT_WITH_ROPE, .block = { 16 }, .majors = SM(9) },
	{ .name = "FLASH_ATTN_MLA_SPARSE", .on = CUDA, .since = KVT_VLLM_0_26,
	  .can = MLA | SPARSE | PCP | USUAL, .dtypes = HALF, .cache_dtypes = PLAIN,
	  .block = { 64 }, .majors = SM(9) },
	{ .name = "MINIMAX_M3_SPARSE", .since = KVT_VLLM_0_24, .can = SPARSE | USUAL,
	  .dtypes = HALF, .cache_dtypes = C_BF16 | FP8S | E5M2, .size = { 128 },
	  .block = { 128 } },
	{ .name = "CUTLASS_MSA", .on = CUDA, .since = KVT_VLLM_0_32, .can = SPARSE
		  | USUAL, .dtypes = HALF, .cache_dtypes = C_BF16 | FP8S | E5M2,
	  .size = { 128 }, .block = { 128 } },
	{ .name = "TRITON_MSA", .since = KVT_VLLM_0_32, .can = SPARSE | USUAL,
	  .dtypes = HALF, .cache_dtypes = C_BF16 | FP8S | E5M2, .size = { 128 },
	  .block = { 128 } },
	{ .name = "NO_ATTENTION", .can = NOTHING },
	{ .name = "FLEX_ATTENTION",
	  .can = PREFIX | WINDOW | RSWA | NON_CAUSAL | INVARIANT | USUAL,
	  .dtypes = HALF | F32, .cache_dtypes = PLAIN, .types = ENCODER_ONLY,
	  .block = { 16 } },
	{ .name = "HPC_ATTN", .on = CUDA, .since = KVT_VLLM_0_32, .can = USUAL,
	  .dtypes = HALF, .cache_dtypes = AUTO | C_BF16 | E4M3, .size = { 128 },
	  .block = { 64 }, .least_capability = 90, .most_capability = 90 },
	{ .name = "HPC_ATTN", .on = CUDA, .since = KVT_VLLM_0_26, .can = USUAL,
	  .dtypes = HALF, .cache_dtypes = AUTO | C_BF16 | E4M3, .size = { 128 },
	  .block = { 64 }, .least_capability = 90 },
	{ .name = "ROCM_AITER_UNIFIED_ATTN", .on = ROCM, .since = KVT_VLLM_0_32,
	  .can = SINKS | WINDOW | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S | E5M2, .types = ANY_TYPE, .least = 32,
	  .step = 1, .block = { 16 } },
	{ .name = "ROCM_AITER_UNIFIED_ATTN", .on = ROCM, .since = KVT_VLLM_0_26,
	  .can = SINKS | PREFIX | WINDOW | LENGTHS, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S | E5M2, .types = ANY_TYPE, .least = 32,
	  .step = 1, .block = { 16 } },
	{ .name = "ROCM_AITER_UNIFIED_ATTN", .on = ROCM, .can = SINKS | PREFIX | WINDOW
		  | LENGTHS, .dtypes = HALF | F32, .cache_dtypes = PLAIN | FP8S | E5M2,
	  .types = ANY_TYPE, .least = 32, .step = 1, .block = { 16 } },
	{ .name = "CPU_ATTN", .on = CPU, .since = KVT_VLLM_0_32,
	  .can = WINDOW | NON_CAUSAL | USUAL, .dtypes = HALF | F32,
	  .cache_dtypes = AUTO | FP8S | E5M2, .types = ANY_TYPE,
	  .size = { 32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512 },
	  .block = { 32 } },
	{ .name = "CPU_ATTN", .on = CPU, .since = KVT_VLLM_0_26,
	  .can = WINDOW | NON_CAUSAL | USUAL, .dtypes = HALF | F32,
	  .cache_dtypes = AUTO | FP8S | E5M2, .types = ANY_TYPE,
	  .size = { 32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512 },
	  .block = { 16 } },
	{ .name = "CPU_ATTN", .on = CPU, .can = WINDOW | USUAL, .dtypes = HALF | F32,
	  .cache_dtypes = AUTO | FP8S | E5M2, .types = ANY_TYPE,
	  .size = { 32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512 },
	  .block = { 16 } },
	{ .name = "CPU_MLA", .on = CPU, .since = KVT_VLLM_0_32, .can = MLA | PCP | USUAL,
	  .dtypes = HALF | F32, .cache_dtypes = AUTO, .size = { 576 },
	  .block = { 16 }, .exact_block = true },
	{ .name = "AMX_MLA", .on = CPU, .since = KVT_VLLM_0_32, .can = MLA | PCP | USUAL,
	  .dtypes = BF16, .cache_dtypes = PLAIN, .size = { 576 }, .block = { 32 } },
	{ .name = "TURBOQUANT", .can = USUAL, .dtypes = HALF, .cache_dtypes = TURBO,
	  .block = { 16, 32, 64, 128 } },
	{ .name = "ULTRAQUANT", .since = KVT_VLLM_0_32, .can = USUAL, .dtypes = BF16,
	  .cache_dtypes = ULTRA, .block = { 16, 32, 64, 128 } },
	{ .name = "CUSTOM", .can = NOTHING },
};
enum { NROWS = sizeof(rows) / sizeof(rows[0]) };

const struct kvt_backend *kvt_backend_row(int i)
{
	return i >= 0 && i < NROWS ? &rows[i] : NULL;
}

/* ---- devices of CUDA ---------------------------------------------------- */

#define IN(first, last) KVT_VLLM_0_##first, KVT_VLLM_0_##last

static const struct kvt_backend_device devices[] = {
	{ "FLASH_ATTN", IN(22, 26), KVT_BACKEND_CACHE_DTYPE, SM(9), FP8S, 0 },
	{ "FLASH_ATTN", IN(32, 32), KVT_BACKEND_CACHE_DTYPE, SM(9) | SM(10), FP8S, 0 },
	{ "FLASH_ATTN_DIFFKV", IN(22, 26), KVT_BACKEND_CACHE_DTYPE, SM(9), FP8S, 0 },
	{ "FLASH_ATTN_DIFFKV", IN(32, 32), KVT_BACKEND_CACHE_DTYPE, SM(9) | SM(10),
	  FP8S, 0 },
	{ "FLASHINFER", IN(22, 26), KVT_BACKEND_SINKS, SM(10), 0, 0 },
	{ "FLASHINFER", IN(32, 32), KVT_BACKEND_SINKS, SM(9) | SM(10) | SM(12), 0, 0 },
	{ "FLASHINFER", IN(26, 26), KVT_BACKEND_CACHE_DTYPE, SM(10), NVFP4, 0 },
	{ "FLASHINFER", IN(32, 32), KVT_BACKEND_CACHE_DTYPE,
	  SM(8) | SM(9) | SM(10) | SM(12), NVFP4, 0 },
	/* whatever begins with nvfp4, also what no layer of its own would have */
	{ "FLASHINFER", IN(32, 32), KVT_BACKEND_CACHE_DTYPE, SM(10),
	  NVFP4_4OVER6 | NVFP4_DS_MLA, 0 },
	{ "FLASHINFER", IN(32, 32), KVT_BACKEND_LENGTHS, SM(10), 0, 0 },
	{ "FLASHMLA_SPARSE_DSV41", IN(32, 32), KVT_BACKEND_BLOCK_SIZE, SM(9), 0, 128 },
};
enum { NDEVICES = sizeof(devices) / sizeof(devices[0]) };

const struct kvt_backend_device *kvt_backend_device_at(int i)
{
	return i < NDEVICES ? &devices[i] : NULL;
}
