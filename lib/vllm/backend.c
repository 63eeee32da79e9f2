/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.c - what vLLM's attention backends support, and what they refuse
 *
 * A configuration is held against the row of a backend in a release, question by question
 * in the order in which vLLM asks; each reason is a bit.  What only a device decides
 * counts as supported until the device is known, and kernels of another maker's are not
 * asked at all.
 */
#include "lib/vllm/backend.h"

#include <limits.h>
#include <string.h>

/* ---- words of vLLM for the bits of a row --------------------------------- */

static const char *const dtypes[] = { "float16", "bfloat16", "float32" };
static const char *const types[] = { "encoder", "encoder_only", "encoder_decoder" };

static const struct {
	const char *name;
	unsigned bit;
} cache_dtypes[] = {
	{ "auto", AUTO }, { "float16", C_F16 }, { "bfloat16", C_BF16 },
	{ "fp8", FP8 }, { "fp8_e4m3", E4M3 }, { "fp8_e5m2", E5M2 },
	{ "fp8_ds_mla", DS_MLA }, { "nvfp4_ds_mla", NVFP4_DS_MLA },
	{ "nvfp4", NVFP4 }, { "nvfp4_4over6", NVFP4_4OVER6 },
	{ "int4_per_token_head", INT4_HEAD }, { "int8_per_token_head", PER_HEAD },
	{ "fp8_per_token_head", PER_HEAD }, { "turboquant_k8v4", TURBO },
	{ "turboquant_4bit_nc", TURBO }, { "turboquant_k3v4_nc", TURBO },
	{ "turboquant_3bit_nc", TURBO }, { "ultraquant_4bit", ULTRA },
	{ "fp8_inc", 0 },
};
enum { NCACHE_DTYPES = sizeof(cache_dtypes) / sizeof(cache_dtypes[0]) };

/* ---- names --------------------------------------------------------------- */

/* Rows of one backend follow each other; the first one stands for it. */
static bool is_first(int i)
{
	return !i || strcmp(kvt_backend_row(i - 1)->name, kvt_backend_row(i)->name);
}

const struct kvt_backend *kvt_backend_at(int i)
{
	for (int row = 0; i >= 0 && kvt_backend_row(row); row++)
		if (is_first(row) && !i--)
			return kvt_backend_row(row);
	return NULL;
}

const struct kvt_backend *kvt_backend_find(const char *name)
{
	for (int i = 0; kvt_backend_row(i); i++)
		if (!strcmp(kvt_backend_row(i)->name, name))
			return kvt_backend_row(i);
	return NULL;
}

const struct kvt_backend *kvt_backend_of(const struct kvt_backend *backend,
					 enum kvt_release release)
{
	const struct kvt_backend *row;

	for (int i = 0; (row = kvt_backend_row(i)); i++)
		if (!strcmp(row->name, backend->name) && row->since <= release)
			return row->can & NOTHING ? NULL : row;
	return NULL;
}

const char *kvt_backend_name(const struct kvt_backend *backend)
{
	return backend->name;
}

bool kvt_backend_in(const struct kvt_backend *backend, enum kvt_release release)
{
	return kvt_backend_of(backend, release) != NULL;
}

bool kvt_backend_has_connector(const struct kvt_backend *backend,
			       enum kvt_release release)
{
	const struct kvt_backend *row = kvt_backend_of(backend, release);

	return row && row->can & CONNECTOR;
}

/* ---- kinds of layers ----------------------------------------------------- */

enum { KIND_FULL, KIND_WINDOW, KIND_MLA, KIND_MLA_WINDOW, KIND_ENCODER_ONLY, KIND_CROSS,
       NKINDS };
static const char *const kinds[NKINDS] = {
	"full_attention", "sliding_window", "mla_attention", "sliding_window_mla",
	"encoder_only_attention", "cross_attention",
};

const char *kvt_backend_kind_at(int i)
{
	return i < NKINDS ? kinds[i] : NULL;
}

const char *kvt_backend_kind(const struct kvt_backend_config *config)
{
	if (config->type && !strcmp(config->type, "encoder_only"))
		return kinds[KIND_ENCODER_ONLY];
	if (config->type && !strcmp(config->type, "encoder_decoder"))
		return kinds[KIND_CROSS];
	return kinds[config->mla ? (int)KIND_MLA + config->sliding_window :
				   (int)KIND_FULL + config->sliding_window];
}

/* ---- configurations ----------------------------------------------------- */

static bool has_head_size(const struct kvt_backend *b, int64_t size)
{
	if (b->step)
		return size >= b->least && size % b->step == 0 &&
		       (!b->most || size <= b->most);
	for (int i = 0; i < KVT_BACKEND_MAX_SIZES && b->size[i]; i++)
		if (b->size[i] == size)
			return true;
	return !b->size[0];	/* no list: any */
}

static bool has_dtype(const struct kvt_backend *b, const char *name)
{
	const struct kvt_dtype *dtype = kvt_dtype_find(name);

	for (unsigned i = 0; dtype && i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		if (!strcmp(dtypes[i], dtype->name))
			return b->dtypes >> i & 1;
	return false;
}

const char *kvt_backend_cache_dtype(int i)
{
	return i < NCACHE_DTYPES ? cache_dtypes[i].name : NULL;
}

static unsigned cache_dtype_bit(const char *name)
{
	for (int i = 0; name && i < NCACHE_DTYPES; i++)
		if (!strcmp(cache_dtypes[i].name, name))
			return cache_dtypes[i].bit;
	return 0;
}

static bool has_block_size(const struct kvt_backend *b, int64_t size)
{
	for (int i = 0; i < KVT_BACKEND_MAX_BLOCKS && b->block[i]; i++)
		if (b->exact_block ? size == b->block[i] : size % b->block[i] == 0)
			return true;
	return false;
}

static bool has_major(unsigned majors, int capability)
{
	int major = capability / 10;

	return major < 32 && majors >> major & 1;
}

static bool has_capability(const struct kvt_backend *b, int capability)
{
	return !capability ||
	       ((!b->majors || has_major(b->majors, capability)) &&
		(!b->least_capability || capability >= b->least_capability) &&
		(!b->most_capability || capability <= b->most_capability));
}

/* Of its types the engine asks for one. */
static bool lacks_type(const struct kvt_backend *b, const struct kvt_backend_config *c,
		       unsigned type)
{
	for (unsigned i = 0; c->type && i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(types[i], c->type))
			return type == 1u << i && !(b->types & type);
	return false;
}

/* Is the part of a backend wanted that the device decides? */
static bool wants(const struct kvt_backend_device *d, const struct kvt_backend_config *c)
{
	switch (d->reason) {
	case KVT_BACKEND_SINKS:
		return c->sinks;
	case KVT_BACKEND_LENGTHS:
		return c->adaptive_verification;
	case KVT_BACKEND_CACHE_DTYPE:
		return cache_dtype_bit(c->cache_dtype) & d->cache_dtypes;
	case KVT_BACKEND_BLOCK_SIZE:
		return c->block_size && c->block_size % d->block;
	default:
		return false;
	}
}

static unsigned device_reasons(const struct kvt_backend *b,
			       const struct kvt_backend_config *c)
{
	const struct kvt_backend_device *d;
	unsigned reasons = 0;

	for (int i = 0; c->capability && (d = kvt_backend_device_at(i)); i++)
		if (!strcmp(d->name, b->name) && d->since <= c->release &&
		    d->until >= c->release && wants(d, c) &&
		    !has_major(d->majors, c->capability))
			reasons |= 1u << d->reason;
	return reasons;
}

unsigned kvt_backend_majors(const struct kvt_backend *b,
			    const struct kvt_backend_config *c)
{
	const struct kvt_backend_device *d;
	unsigned out = UINT_MAX;

	for (int i = 0; (d = kvt_backend_device_at(i)); i++)
		if (!strcmp(d->name, b->name) && d->since <= c->release &&
		    d->until >= c->release && wants(d, c))
			out &= d->majors;
	return out;
}

/* What earlier releases did not ask, they did not refuse. */
static const struct {
	enum kvt_backend_reason reason;
	enum kvt_release since;
} questions[] = {
	{ KVT_BACKEND_CONNECTOR, KVT_VLLM_0_24 },
	{ KVT_BACKEND_SLIDING_WINDOW, KVT_VLLM_0_26 },
	{ KVT_BACKEND_PCP, KVT_VLLM_0_26 }, { KVT_BACKEND_RSWA, KVT_VLLM_0_32 },
	{ KVT_BACKEND_NON_CAUSAL_DCP, KVT_VLLM_0_32 },
	{ KVT_BACKEND_DCP, KVT_VLLM_0_32 }, { KVT_BACKEND_LENGTHS, KVT_VLLM_0_32 },
};

static unsigned asked(enum kvt_release release)
{
	unsigned reasons = ~0u;

	for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++)
		if (release < questions[i].since)
			reasons &= ~(1u << questions[i].reason);
	return reasons;
}

static unsigned refused(const struct kvt_backend *b, const struct kvt_backend_config *c)
{
	const bool no[KVT_NBACKEND_REASONS] = {
		[KVT_BACKEND_HEAD_SIZE] = c->head_size && !has_head_size(b, c->head_size),
		[KVT_BACKEND_DTYPE] = c->dtype && !has_dtype(b, c->dtype),
		[KVT_BACKEND_CACHE_DTYPE] = c->cache_dtype &&
					    !(cache_dtype_bit(c->cache_dtype) &
					      b->cache_dtypes),
		[KVT_BACKEND_BLOCK_SIZE] = c->block_size &&
					   !has_block_size(b, c->block_size),
		[KVT_BACKEND_MM_PREFIX] = c->mm_prefix && !(b->can & PREFIX),
		[KVT_BACKEND_MLA] = c->mla && !(b->can & MLA),
		[KVT_BACKEND_NON_MLA] = !c->mla && b->can & MLA,
		[KVT_BACKEND_SINKS] = c->sinks && !(b->can & SINKS),
		[KVT_BACKEND_SPARSE] = c->sparse && !(b->can & SPARSE),
		[KVT_BACKEND_NON_SPARSE] = !c->sparse && b->can & SPARSE,
		[KVT_BACKEND_HEAD_SCALES] = c->head_scales && !(b->can & SCALES),
		[KVT_BACKEND_CAPABILITY] = !has_capability(b, c->capability),
		[KVT_BACKEND_ENCODER] = lacks_type(b, c, ENCODER),
		[KVT_BACKEND_ENCODER_ONLY] = lacks_type(b, c, ENCODER_ONLY),
		[KVT_BACKEND_ENCODER_DECODER] = lacks_type(b, c, CROSS),
		[KVT_BACKEND_SLIDING_WINDOW] = c->sliding_window && !(b->can & WINDOW),
		[KVT_BACKEND_RSWA] = c->rswa && !(b->can & RSWA),
		[KVT_BACKEND_NON_CAUSAL] = c->non_causal && !(b->can & NON_CAUSAL),
		[KVT_BACKEND_NON_CAUSAL_DCP] = c->mla && c->non_causal && c->dcp &&
					       !(b->can & NON_CAUSAL_DCP),
		[KVT_BACKEND_INVARIANT] = c->batch_invariant && !(b->can & INVARIANT),
		[KVT_BACKEND_CONNECTOR] = c->connector && !(b->can & CONNECTOR),
		[KVT_BACKEND_PCP] = c->pcp && !(b->can & PCP),
		[KVT_BACKEND_DCP] = c->dcp && !(b->can & DCP),
		[KVT_BACKEND_LENGTHS] = c->adaptive_verification && !(b->can & LENGTHS),
		[KVT_BACKEND_OWN] = kvt_backend_own_reason(b, c) != NULL,
	};
	unsigned reasons = device_reasons(b, c);

	for (int i = 0; i < KVT_NBACKEND_REASONS; i++)
		reasons |= (unsigned)no[i] << i;
	return reasons;
}

/* Where it is to run; a compute capability is one of CUDA. */
static enum kvt_maker maker_of(const struct kvt_backend_config *c)
{
	return c->rocm ? ROCM : c->capability ? CUDA : ANY_MAKER;
}

unsigned kvt_backend_check(const struct kvt_backend *backend,
			   const struct kvt_backend_config *c)
{
	const struct kvt_backend *b = kvt_backend_of(backend, c->release);

	if (!b)
		return 1u << KVT_BACKEND_NO_CODE;
	/* kernels that are not there cannot be asked */
	if (b->on && maker_of(c) && b->on != maker_of(c))
		return 1u << ((int)KVT_BACKEND_CUDA_ONLY + (int)b->on - (int)CUDA);
	return refused(b, c) & asked(c->release);
}
