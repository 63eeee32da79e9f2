/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content_types.c - the table of quantised contents
 *
 * A row is a layout of bytes; content_types.h says what a row of the table means, and
 * kvtool-content(7) what each content is.  Where from: words of engines and layouts of
 * latents and indexers are those of vLLM 0.32, SGLang 0.5.23, FlashMLA and FlashInfer,
 * which the words name; mlx's and ggml's as in content_write.c and ggml.c; transformers'
 * fp8 of 5.24.
 */
#include "lib/layout/content_types.h"

#include <string.h>

/* ---- rows of the table -------------------------------------------------- */

#define VALUES(label, of, count, in, by) \
	{ .name = label, .role = KVT_FIELD_VALUES, .type = of, .n = count, \
	  .plane = in, .scale = by, .added = -1 }
#define ROTATED(label, of, count, in, by, how) \
	{ .name = label, .role = KVT_FIELD_VALUES, .type = of, .n = count, \
	  .plane = in, .scale = by, .added = -1, .rotation = how }
#define SCALES(label, of, count, in) \
	{ .name = label, .role = KVT_FIELD_SCALES, .type = of, .n = count, \
	  .plane = in, .scale = -1, .added = -1 }
#define OTHER(label, of, count, in) \
	{ .name = label, .role = KVT_FIELD_OTHER, .type = of, .n = count, \
	  .plane = in, .scale = -1, .added = -1 }
/* As many as a head has numbers, or a scale for some of them. */
#define HEAD(label, of, in, by) \
	{ .name = label, .role = KVT_FIELD_VALUES, .type = of, .per = 1, \
	  .plane = in, .scale = by, .added = -1 }
#define HEAD_SCALES(label, of, numbers, in, how) \
	{ .name = label, .role = KVT_FIELD_SCALES, .type = of, .per = numbers, \
	  .plane = in, .scale = -1, .added = -1, .order = how }

/* Words of engines; does a page hold all heads? */
#define NO_WORDS NULL, NULL, NULL, false
#define OF_VLLM(words) words, NULL, NULL, false
#define OF_FLASHINFER "nvfp4 nvfp4_4over6", NULL, NULL, true

#define E4M3 "float8_e4m3fn"
#define E2M1 "float4_e2m1"
#define BF16 "bfloat16"

/* A float32 that scales a head vector, behind it. */
#define PER_TOKEN_HEAD(of) \
	.nfields = 2, .field = { HEAD("values", of, 0, 1), \
				 SCALES("scales", "float32", 1, 0) }
/* 128 numbers and one scale a row, numbers before scales. */
#define INDEXER(most) \
	.nfields = 2, .page_rows = most, .unwritten = NOT_OF_CACHES, \
	.field = { VALUES("values", "fp8", 128, 0, 1), \
		   SCALES("scales", "float32", 1, 1) }
/* Rows of 576 bytes, then for each 7 scales, of 64 values each, and a byte. */
#define DSV4 \
	.nfields = 4, .tile = &dsv4, .field = { VALUES("nope", "fp8", 448, 0, 2), \
				 VALUES("rope", BF16, 64, 0, -1), \
				 SCALES("scales", "float8_e8m0", 7, 1), \
				 OTHER("pad", "uint8", 1, 1) }
/* The rotary part is quantised with the rest; scales in that plane. */
#define DSV41(in) \
	.nfields = 2, .fp8 = E4M3, .tile = &dsv4, \
	.field = { VALUES("latent", "fp8", 512, 0, 1), \
		   SCALES("scales", "float8_e8m0", 16, in) }
#define DSV41_FP4(in) \
	.nfields = 2, .tile = &dsv41_fp4, .field = { VALUES("latent", E2M1, 512, 0, 1), \
				 SCALES("scales", E4M3, 32, in) }
/* Without a rotary part; any scale, not powers of two only. */
#define NOPE(fields) \
	.nfields = fields, .fp8 = E4M3, \
	.field = { VALUES("latent", "fp8", 512, 0, 1), \
		   SCALES("scales", "float32", 4, 0), \
		   OTHER("reserved", "uint8", 128, 0) }
/* Data and scales of all keys, then of all values; order of the latter's scales. */
#define NVFP4(how) \
	.told = true, .step = 16, .halves = 2, .nfields = 4, .tile = &nvfp4_kv, \
	.field = { HEAD("keys", E2M1, 0, 1), \
		   HEAD_SCALES("key scales", E4M3, 16, 1, KVT_SCALES_IN_ORDER), \
		   HEAD("values", E2M1, 2, 3), \
		   HEAD_SCALES("value scales", E4M3, 16, 3, how) }
/* Codes of the numbers of a unit vector, and its norm; rounded numbers of a value. */
#define TURBOQUANT(key, value) \
	.step = 8, .even = 2, .halves = 2, .nfields = 6, .unwritten = NOT_ONE_SUM, \
	.field = { { .name = "keys", .role = KVT_FIELD_VALUES, .type = key, .per = 1, \
		     .scale = 1, .added = -1, .rotation = KVT_ROTATION_HADAMARD, \
		     .unit = true }, \
		   SCALES("norm", "float16", 1, 0), \
		   { .name = "values", .role = KVT_FIELD_VALUES, .type = value, \
		     .per = 1, .scale = 3, .added = 4 }, \
		   SCALES("scale", "float16", 1, 0), \
		   SCALES("minimum", "float16", 1, 0), \
		   OTHER("pad", "uint8", 0, 0) }
/* Codes of mlx: a scale and a bias for so many; each step is rounded to their type. */
#define AFFINE(bits, group, of) \
	{ { "mlx-affine/" #bits "/" #group "/" of, \
	    "/BITS/GROUP/TYPE: codes of mlx, scales and biases of groups", \
	    KVT_FULL_ATTENTION, 1, false, true, NO_WORDS }, \
	  .step = group, .product = of, .result = of, .nfields = 3, \
	  .write = kvt_write_affine, \
	  .field = { { .name = "codes", .role = KVT_FIELD_VALUES, .type = "uint" #bits, \
		       .per = 1, .scale = 1, .added = 2 }, \
		     HEAD_SCALES("scales", of, group, 0, KVT_SCALES_IN_ORDER), \
		     HEAD_SCALES("biases", of, group, 0, KVT_SCALES_IN_ORDER) } }
#define AFFINE_TYPES(bits, group) \
	AFFINE(bits, group, BF16), AFFINE(bits, group, "float16"), \
	AFFINE(bits, group, "float32")
#define AFFINE_GROUPS(bits) \
	AFFINE_TYPES(bits, 32), AFFINE_TYPES(bits, 64), AFFINE_TYPES(bits, 128)
/* Small floats of mlx, which are bfloat16 when they are read. */
#define MLX_FLOAT(label, text, of, group, by, how) \
	{ { label, text, KVT_FULL_ATTENTION, 1, false, true, NO_WORDS }, \
	  .step = group, .result = BF16, .nfields = 2, .tile = &how, \
	  .field = { HEAD("values", of, 0, 1), \
		     HEAD_SCALES("scales", by, group, 0, KVT_SCALES_IN_ORDER) } }
/* One scale for a tensor, which each row has; the product is float32 first. */
#define TRANSFORMERS_FP8(of) \
	{ { "transformers-fp8/" of, "/TYPE: fp8 and a float32 scale, read as TYPE", \
	    KVT_FULL_ATTENTION, 1, false, true, NO_WORDS }, \
	  .product = "float32", .result = of, .nfields = 2, \
	  .write = kvt_write_transformers_fp8, .scaled = true, \
	  .field = { HEAD("values", E4M3, 0, 1), SCALES("scale", "float32", 1, 0) } }
/* Bytes that only move. */
#define BYTES(n, why) \
	.step = n, .unreadable = why, .unwritten = why, .nfields = 1, \
	.field = { { .name = "bytes", .role = KVT_FIELD_OTHER, .type = "uint8", \
		     .per = 1, .scale = -1, .added = -1 } }

/*
 * Blocks of ggml, of 32 numbers: a scale, perhaps what is added, perhaps the highest
 * bit of each number, then 4 or 8 bits of each.  Its decoders round to float32.
 */
#define GGML(label, text) \
	{ #label, text, KVT_FULL_ATTENTION, 1, false, true, NO_WORDS }, \
	.block = GGML_BLOCK, .step = GGML_BLOCK, .result = "float32", \
	.encode = kvt_ggml_##label, .blocks = kvt_ggml_rows_##label
#define BLOCK(label, what, of, numbers) \
	{ .name = label, .role = what, .type = of, .per = numbers, \
	  .scale = -1, .added = -1 }
#define BLOCK_SCALES BLOCK("scales", KVT_FIELD_SCALES, "float16", 32)
#define BLOCK_MINIMA BLOCK("minima", KVT_FIELD_SCALES, "float16", 32)
#define BLOCK_BITS BLOCK("high bits", KVT_FIELD_OTHER, "uint1", 1)
#define BLOCK_VALUES(of, less, bits, how) \
	{ .name = "values", .role = KVT_FIELD_VALUES, .type = of, .per = 1, \
	  .added = less, .high = bits, .order = how }
#define WHICH_SCALE "which scale is for which numbers is not documented"
#define WHICH_ORDER "the order of the scales of values depends on the GPU: give " \
		    "nvfp4-plain/N or nvfp4-sm100/N, N the numbers of a head vector"

/* ---- how they are written ----------------------------------------------- */

enum { OF_FP8 = -1 };			/* tile_rule.over */

/* vLLM 0.32, but where it says mlx; those of DeepSeek get bfloat16. */
static const struct tile_rule per_token_head = { /* its Triton kernel */
	.over = OF_FP8, .floor = 1e-6f, .inverse = true };
static const struct tile_rule ds_mla = { /* concat_and_cache_ds_mla, of CUDA */
	.over = OF_FP8, .floor = 1.17549435e-38f };
static const struct tile_rule nvfp4_ds_mla = { /* the Triton kernel of V3.2 */
	.times = 1.0f / 6, .floor = 0x1p-9f, .kept = TILE_NEAREST, .inverse = true };
static const struct tile_rule dsv4 = { /* quantize_and_insert_k_cache */
	.least = 1e-4f, .over = OF_FP8, .kept = TILE_POWER };
static const struct tile_rule dsv41_fp4 = { /* its kernel of rotary parts and rows */
	.times = 1.0f / 6, .floor = 0x1p-9f, .kept = TILE_NEAREST };
static const struct tile_rule nvfp4_kv = { /* ref_nvfp4_quant, with a scale of 1 */
	.times = 1.0f / 6, .kept = TILE_NEAREST, .inverse = true };
static const struct tile_rule mlx_nvfp4 = { /* mx.quantize on a CPU, of bfloat16 */
	.over = 6, .kept = TILE_NEAREST, .first = true, .through = BF16 };
static const struct tile_rule mlx_mxfp4 = {
	.over = 6, .kept = TILE_POWER, .first = true, .through = BF16 };
static const struct tile_rule mlx_mxfp8 = {
	.over = OF_FP8, .kept = TILE_POWER, .through = BF16 };

#define NOT_OF_ROWS "its rows have no scale; --cache-dtype=fp8 writes the same bytes, " \
		    "and keeps theirs"
#define NOT_OF_CACHES "it is not made of keys and values, or of latents"
#define NOT_ONE_SUM "its vectors are rotated by sums whose order is the GPU's, so the " \
		    "last bits are, too"
#define NOT_RUN "no writer of it has been compared with this program"
#define NOT_EXACT "vLLM's kernel divides with the GPU's approximation, so codes next " \
		  "to a middle are the GPU's"

static const struct content_recipe recipes[] = {
	/* latents: rows */
	{ { "fp8-ds-mla", "DeepSeek V3.2: 512 fp8, 4 float32 scales, 64 bf16",
	    KVT_MLA, 1, false, false, "fp8_ds_mla", NULL, "V32", false },
	  .fp8 = E4M3, .nfields = 3, .tile = &ds_mla,
	  .field = { VALUES("nope", "fp8", 512, 0, 1), SCALES("scales", "float32", 4, 0),
		     VALUES("rope", BF16, 64, 0, -1) } },
	{ { "mla-fp8", "512 and 64 fp8, scaled by the layer",
	    KVT_MLA, 1, false, false, NO_WORDS },
	  .fp8 = E4M3, .nfields = 2, .unwritten = NOT_OF_ROWS,
	  .field = { VALUES("nope", "fp8", 512, 0, -1),
		     VALUES("rope", "fp8", 64, 0, -1) } },
	{ { "nvfp4-ds-mla", "512 of 4 bits, 64 fp8, 32 fp8 scales out of order",
	    KVT_MLA, 1, false, false, OF_VLLM("nvfp4_ds_mla") },
	  .nfields = 3, .tile = &nvfp4_ds_mla,
	  .field = { VALUES("nope", E2M1, 512, 0, 2), VALUES("rope", E4M3, 64, 0, -1),
		     { .name = "scales", .role = KVT_FIELD_SCALES, .type = E4M3,
		       .n = 32, .scale = -1, .added = -1,
		       .order = KVT_SCALES_BY_FOUR } } },
	{ { "glm53-nope", "GLM-5.3 without rotary part: 512 fp8, 4 float32 scales",
	    KVT_MLA, 1, false, false, NULL, "V32_NO_ROPE", "GLM53_NOPE V32_NO_ROPE",
	    false },
	  NOPE(2), .unwritten = NOT_RUN },
	{ { "glm53-nope-656", "the same, padded to the 656 bytes of V3.2",
	    KVT_MLA, 1, false, false, OF_VLLM("fp8_ds_mla") },
	  NOPE(3), .tile = &ds_mla },
	{ { "dsv4-fp8", "DeepSeek V4: 448 and 64 fp8, scaled by the layer",
	    KVT_MLA, 1, false, false, NO_WORDS },
	  .fp8 = E4M3, .nfields = 2, .unwritten = NOT_OF_ROWS,
	  .field = { VALUES("nope", "fp8", 448, 0, -1),
		     VALUES("rope", "fp8", 64, 0, -1) } },
	{ { "dsv41-row", "DeepSeek V4.1: 512 fp8, then 16 scales",
	    KVT_MLA, 1, false, false, NULL, "v41_new", "V41_NEW", false },
	  DSV41(0) },
	{ { "dsv41-fp4-row", "DeepSeek V4.1: 512 of 4 bits, then 32 fp8 scales",
	    KVT_MLA, 1, false, false, NULL, NULL, "V41_FP4_NEW", false },
	  DSV41_FP4(0) },

	/* latents: pages of planes */
	{ { "dsv4", "DeepSeek V4, V4.1: 448 fp8, 64 bf16, 7 scales; planes",
	    KVT_MLA, 0, true, false, "fp8_ds_mla", "v4", "V4 DSV4", false },
	  DSV4 },
	{ { "dsv4-c4a", "the same of 4 tokens",
	    KVT_MLA, 4, true, false, "fp8_ds_mla", "v4", "V4 DSV4", false },
	  DSV4, .page_rows = 64 },
	{ { "dsv4-c128a", "the same of 128 tokens",
	    KVT_MLA, 128, true, false, "fp8_ds_mla", "v4", "V4 DSV4", false },
	  DSV4, .page_rows = 2 },
	{ { "dsv4-swa", "the same of each token of the sliding window",
	    KVT_MLA, 1, true, false, "fp8_ds_mla", "v4", "V4 DSV4", false }, DSV4 },
	{ { "dsv4-nvfp4", "DeepSeek V4: 448 of 4 bits, 64 bf16, 28 fp8 scales; planes",
	    KVT_MLA, 0, true, false, NULL, NULL, "DSV4_NVFP4", false },
	  .nfields = 4, .unwritten = NOT_RUN,
	  .field = { VALUES("nope", E2M1, 448, 0, 2), VALUES("rope", BF16, 64, 0, -1),
		     SCALES("scales", E4M3, 28, 1), OTHER("owner", "uint8", 4, 1) } },
	{ { "dsv41", "DeepSeek V4.1: 512 fp8, 16 scales; planes",
	    KVT_MLA, 0, true, false, "fp8_ds_mla", "v41", "V41", false },
	  DSV41(1) },
	{ { "dsv41-fp4", "DeepSeek V4.1, compressed: 512 of 4 bits, 32 scales; planes",
	    KVT_MLA, 0, true, false, "nvfp4_ds_mla", NULL, "V41_FP4", false },
	  DSV41_FP4(1) },

	/* keys of indexers */
	{ { "indexer", "DeepSeek V3.2: 128 fp8 and a float32 scale; planes",
	    KVT_OPAQUE, 1, true, false, NO_WORDS }, INDEXER(64) },
	{ { "dsv4-indexer", "DeepSeek V4: indexer rows of 4 tokens; planes",
	    KVT_OPAQUE, 4, true, false, NO_WORDS }, INDEXER(64) },
	{ { "dsv41-indexer", "DeepSeek V4.1: indexer rows; planes",
	    KVT_OPAQUE, 0, true, false, NO_WORDS }, INDEXER(128) },
	{ { "indexer-mxfp4", "128 of 4 bits and 4 scales; planes",
	    KVT_OPAQUE, 0, true, false, OF_VLLM("mxfp4") },
	  .nfields = 2, .page_rows = 128, .unwritten = NOT_OF_CACHES,
	  .field = { VALUES("values", E2M1, 128, 0, 1),
		     SCALES("scales", "float8_e8m0", 4, 1) } },
	{ { "indexer-nvfp4", "MiniMax M3: 128 of 4 bits and 8 fp8 scales",
	    KVT_OPAQUE, 1, false, false, NO_WORDS },
	  .nfields = 2, .unwritten = NOT_OF_CACHES,
	  .field = { VALUES("values", E2M1, 128, 0, 1), SCALES("scales", E4M3, 8, 0) } },
	{ { "kpool-indexer", "GLM-5.3: indexer rows of pooled keys, rotated; planes",
	    KVT_OPAQUE, 0, true, false, NO_WORDS },
	  .fp8 = E4M3, .nfields = 2, .page_rows = 64, .unwritten = NOT_OF_CACHES,
	  .field = { ROTATED("values", "fp8", 128, 0, 1, KVT_ROTATION_HADAMARD),
		     SCALES("scales", "float32", 1, 1) } },

	/* rings of what is not a row of the cache yet */
	{ { "kpool-tail", "GLM-5.3: ring of raw keys and gates, 128 bf16 each; planes",
	    KVT_OPAQUE, 1, true, false, NO_WORDS },
	  .nfields = 2, .unwritten = NOT_OF_CACHES,
	  .field = { VALUES("keys", BF16, 128, 0, -1),
		     VALUES("gates", BF16, 128, 1, -1) } },
	{ { "dsv41-ring", "DeepSeek V4.1: ring of the compressor, 512 and 512 float32",
	    KVT_OPAQUE, 1, false, false, NO_WORDS },
	  .nfields = 2, .unwritten = NOT_OF_CACHES,
	  .field = { VALUES("kv", "float32", 512, 0, -1),
		     VALUES("scores", "float32", 512, 0, -1) } },
	{ { "qsa-ring", "Qwen4: ring of raw keys, 128 bf16 and 3 positions",
	    KVT_OPAQUE, 1, false, false, NO_WORDS },
	  .nfields = 2, .unwritten = NOT_OF_CACHES,
	  .field = { VALUES("key", BF16, 128, 0, -1),
		     OTHER("positions", "int64", 3, 0) } },

	/* keys and values */
	{ { "int8-per-token-head", "int8 and a float32 scale a head vector",
	    KVT_FULL_ATTENTION, 1, false, true, OF_VLLM("int8_per_token_head") },
	  PER_TOKEN_HEAD("int8"), .write = kvt_write_int8 },
	{ { "fp8-per-token-head", "fp8 and a float32 scale a head vector",
	    KVT_FULL_ATTENTION, 1, false, true, OF_VLLM("fp8_per_token_head") },
	  PER_TOKEN_HEAD("fp8"), .tile = &per_token_head },
	{ { "int4-per-token-head", "4 bits, scale and zero point a rotated head vector",
	    KVT_FULL_ATTENTION, 1, false, true, OF_VLLM("int4_per_token_head") },
	  .step = 2, .nfields = 2, .unwritten = NOT_ONE_SUM,
	  .field = { { .name = "values", .role = KVT_FIELD_VALUES, .type = "uint4",
		       .per = 1, .scale = 1, .added = 1,
		       .rotation = KVT_ROTATION_SIGNED_HADAMARD },
		     SCALES("scales", "float32_and_zero", 1, 0) } },
	{ { "mla-per-token-head", "a latent row and two float32 scales",
	    KVT_MLA, 1, false, false, NO_WORDS }, BYTES(1, WHICH_SCALE) },
	{ { "nvfp4", "4 bits, fp8 scales of 16, perhaps swizzled; planes",
	    KVT_OPAQUE, 1, true, false, OF_FLASHINFER },
	  BYTES(18, WHICH_ORDER) },
	{ { "nvfp4-plain", "nvfp4 whose scales are in order; planes",
	    KVT_OPAQUE, 1, true, false, OF_FLASHINFER },
	  NVFP4(KVT_SCALES_IN_ORDER) },
	{ { "nvfp4-sm100", "nvfp4 with the scales of values as SM100 has them; planes",
	    KVT_OPAQUE, 1, true, false, OF_FLASHINFER },
	  NVFP4(KVT_SCALES_BY_ROWS) },
	{ { "turboquant-k8v4", "rows of fp8 keys, 4-bit values",
	    KVT_FULL_ATTENTION, 1, false, false, OF_VLLM("turboquant_k8v4") },
	  .step = 8, .even = 2, .halves = 2, .nfields = 5, .unwritten = NOT_EXACT,
	  .field = { HEAD("keys", "fp8", 0, -1),
		     { .name = "values", .role = KVT_FIELD_VALUES, .type = "uint4",
		       .per = 1, .scale = 2, .added = 3 },
		     SCALES("scale", "float16", 1, 0),
		     SCALES("minimum", "float16", 1, 0), OTHER("pad", "uint8", 0, 0) } },
	{ { "turboquant-4bit-nc", "rows of rotated 4-bit keys, 4-bit values",
	    KVT_FULL_ATTENTION, 1, false, false, OF_VLLM("turboquant_4bit_nc") },
	  TURBOQUANT("index4", "uint4") },
	{ { "turboquant-k3v4-nc", "rows of rotated 3-bit keys, 4-bit values",
	    KVT_FULL_ATTENTION, 1, false, false, OF_VLLM("turboquant_k3v4_nc") },
	  TURBOQUANT("index3", "uint4") },
	{ { "turboquant-3bit-nc", "rows of rotated 3-bit keys, 3-bit values",
	    KVT_FULL_ATTENTION, 1, false, false, OF_VLLM("turboquant_3bit_nc") },
	  TURBOQUANT("index3", "uint3") },
	{ { "ultraquant-4bit", "rows of rotated 4-bit keys, 4-bit values, their scales",
	    KVT_FULL_ATTENTION, 1, false, false, OF_VLLM("ultraquant_4bit") },
	  .step = 32, .halves = 2, .nfields = 4, .unwritten = NOT_ONE_SUM,
	  .field = { { .name = "keys", .role = KVT_FIELD_VALUES, .type = E2M1, .per = 1,
		       .scale = 1, .added = -1, .rotation = KVT_ROTATION_HADAMARD },
		     HEAD_SCALES("key scales", "float8_e8m0_or_0", 32, 0,
				 KVT_SCALES_IN_ORDER),
		     HEAD("values", E2M1, 0, 3),
		     HEAD_SCALES("value scales", "float8_e8m0_or_0", 32, 0,
				 KVT_SCALES_IN_ORDER) } },
	AFFINE_GROUPS(2), AFFINE_GROUPS(3), AFFINE_GROUPS(4),
	AFFINE_GROUPS(5), AFFINE_GROUPS(6), AFFINE_GROUPS(8),
	MLX_FLOAT("mlx-mxfp4", "mlx: 4 bits, a power of two for 32",
		  E2M1, 32, "float8_e8m0", mlx_mxfp4),
	MLX_FLOAT("mlx-mxfp8", "mlx: fp8, a power of two for 32",
		  E4M3, 32, "float8_e8m0", mlx_mxfp8),
	MLX_FLOAT("mlx-nvfp4", "mlx: 4 bits, an fp8 scale for 16", E2M1, 16, E4M3,
		  mlx_nvfp4),
	TRANSFORMERS_FP8(BF16), TRANSFORMERS_FP8("float16"), TRANSFORMERS_FP8("float32"),
	{ GGML(q4_0, "llama.cpp: 4 bits, a scale for 32"), .nfields = 2,
	  .field = { BLOCK_SCALES,
		     BLOCK_VALUES("uint4_less_8", -1, false, KVT_NIBBLES_APART) } },
	{ GGML(q4_1, "llama.cpp: 4 bits, scale and minimum for 32"), .nfields = 3,
	  .field = { BLOCK_SCALES, BLOCK_MINIMA,
		     BLOCK_VALUES("uint4", 1, false, KVT_NIBBLES_APART) } },
	{ GGML(q5_0, "llama.cpp: 5 bits, a scale for 32"), .nfields = 3,
	  .field = { BLOCK_SCALES, BLOCK_BITS,
		     BLOCK_VALUES("uint5_less_16", -1, true, KVT_NIBBLES_APART) } },
	{ GGML(q5_1, "llama.cpp: 5 bits, scale and minimum for 32"), .nfields = 4,
	  .field = { BLOCK_SCALES, BLOCK_MINIMA, BLOCK_BITS,
		     BLOCK_VALUES("uint5", 1, true, KVT_NIBBLES_APART) } },
	{ GGML(q8_0, "llama.cpp: 8 bits, a scale for 32"), .nfields = 2,
	  .field = { BLOCK_SCALES,
		     BLOCK_VALUES("int8", -1, false, KVT_SCALES_IN_ORDER) } },
	{ GGML(iq4_nl, "llama.cpp: 4 bits of a code book, a scale for 32"),
	  .nfields = 2, .field = { BLOCK_SCALES,
		     BLOCK_VALUES("iq4_nl", -1, false, KVT_NIBBLES_APART) } },
};
enum { NRECIPES = sizeof(recipes) / sizeof(recipes[0]) };

const struct content_recipe *kvt_content_recipe_at(int i)
{
	return i >= 0 && i < NRECIPES ? &recipes[i] : NULL;
}

const struct kvt_content_type *kvt_content_type_at(int i)
{
	const struct content_recipe *recipe = kvt_content_recipe_at(i);

	return recipe ? &recipe->type : NULL;
}

bool kvt_content_has_fp8(const struct content_recipe *recipe)
{
	for (int i = 0; i < recipe->nfields; i++)
		if (!strcmp(recipe->field[i].type, "fp8"))
			return true;
	return false;
}

/* ---- sizes -------------------------------------------------------------- */

static int64_t bits_of(const struct field_recipe *field)
{
	int coding = kvt_content_coding_find(field->type);

	if (coding >= 0)
		return kvt_content_coding_at(coding)->bits - field->high;
	return strcmp(field->type, "fp8") ? 8 * kvt_dtype_find(field->type)->elem : 8;
}

int64_t kvt_field_recipe_count(const struct field_recipe *field, int64_t dim)
{
	return field->per ? dim / field->per : field->n;
}

int64_t kvt_content_plane_width(const struct content_recipe *recipe, int plane,
				int64_t dim)
{
	int64_t width = 0;

	for (int i = 0; i < recipe->nfields; i++)
		if (recipe->field[i].plane == plane)
			width += (kvt_field_recipe_count(&recipe->field[i], dim) *
				  bits_of(&recipe->field[i]) + 7) / 8;
	return width;
}

int64_t kvt_content_row_width(const struct content_recipe *recipe, int64_t dim)
{
	int64_t width = 0, even = recipe->even ? recipe->even : 1;

	for (int p = 0; p < MAX_PLANES; p++)
		width += kvt_content_plane_width(recipe, p, dim);
	return (width + even - 1) / even * even;
}

static bool is_fixed(const struct content_recipe *recipe)
{
	for (int i = 0; i < recipe->nfields; i++)
		if (recipe->field[i].per)
			return false;
	return true;
}

int64_t kvt_content_row(const struct kvt_content *content)
{
	const struct content_recipe *recipe = content_recipe_of(content);

	return recipe && is_fixed(recipe) ? kvt_content_row_width(recipe, 0) : 0;
}

int64_t kvt_content_page_rows(const struct kvt_content *content)
{
	return content->type ? content_recipe_of(content)->page_rows : 0;
}

int64_t kvt_content_row_of(const struct kvt_content *content, int64_t head_dim)
{
	const struct content_recipe *recipe = content_recipe_of(content);
	int64_t step = recipe && recipe->step ? recipe->step : 1;

	if (!recipe || head_dim < 1 || head_dim > INT32_MAX || head_dim % step ||
	    is_fixed(recipe) || (recipe->unreadable && !recipe->type.pairs))
		return 0;
	return kvt_content_row_width(recipe, head_dim);
}
