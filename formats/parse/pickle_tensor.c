/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_tensor.c - the names that are allowed, and the tensors they make
 *
 * In: a node that is a call, with its arguments.  Out: its storage, type, and of each
 * axis the extent and the stride in bytes:
 *
 *	_rebuild_tensor_v2(storage, offset, shape, strides, gradient, hooks)
 *	_rebuild_tensor_v3(the same, type)	the storage is of bytes
 *
 * A tensor is believed once its last element is inside its storage, and no two elements
 * are in one place: of any two axes with more than one element one steps over all that
 * the other spans.
 */
#include "formats/parse/pickle.h"

#include <string.h>

/* ---- names -------------------------------------------------------------- */

enum kind { CALL, STORAGE, CLASS, PLAIN };

enum {
	CACHE = KVT_CLASS_CACHE, LAYER = KVT_CLASS_LAYER, FIXED = KVT_CLASS_FIXED,
	WINDOW = KVT_CLASS_WINDOW, CODED = KVT_CLASS_CODED, PART = KVT_CLASS_PART,
	ANY = -1,
};

#define CACHE_UTILS "transformers.cache_utils"
#define MODELS      "transformers.models."
#define MODEL(name) MODELS name ".modeling_" name
#define QUANTO      "optimum.quanto.tensor."

/*
 * All there is.  Types that had no storage of their own when torch gave up on
 * those are stored as bytes, and a third kind of call names the type.  Classes
 * are those of transformers 4.36 to 5.24 that hold keys, values, keys of an indexer
 * and recurrent states as they are, or as codes of HQQ and quanto.
 */
static const struct {
	const char *module, *what;
	enum kind kind;
	int n;				/* arguments, bytes of an element, or flags */
	const char *dtype;
	enum kvt_pickle_call call;
} names[] = {
	{ "torch._utils", "_rebuild_tensor_v2", CALL, 6, NULL, KVT_CALL_TENSOR },
	{ "torch._utils", "_rebuild_tensor_v3", CALL, 7, NULL, KVT_CALL_TENSOR },
	{ "torch._tensor", "_rebuild_from_type_v2", CALL, 4, NULL, KVT_CALL_RETYPE },
	{ "torch._utils", "_rebuild_parameter", CALL, 3, NULL, KVT_CALL_PARAMETER },
	{ "torch._utils", "_rebuild_wrapper_subclass", CALL, 8, NULL, KVT_CALL_WRAPPER },
	{ "torch", "Size", CALL, 1, NULL, KVT_CALL_SAME },
	{ "torch.serialization", "_get_layout", CALL, 1, NULL, KVT_CALL_IGNORED },
	{ "collections", "OrderedDict", CALL, 0, NULL, KVT_CALL_DICT },
	{ "torch", "device", CALL, ANY, NULL, KVT_CALL_IGNORED },
	{ "__builtin__", "set", CALL, 1, NULL, KVT_CALL_IGNORED },
	{ "torch", "FloatStorage", STORAGE, 4, "float32", 0 },
	{ "torch", "HalfStorage", STORAGE, 2, "float16", 0 },
	{ "torch", "BFloat16Storage", STORAGE, 2, "bfloat16", 0 },
	{ "torch", "DoubleStorage", STORAGE, 8, "float64", 0 },
	{ "torch", "ByteStorage", STORAGE, 1, "uint8", 0 },
	{ "torch", "CharStorage", STORAGE, 1, "int8", 0 },
	{ "torch", "BoolStorage", STORAGE, 1, NULL, 0 },
	{ "torch", "ShortStorage", STORAGE, 2, "int16", 0 },
	{ "torch", "IntStorage", STORAGE, 4, "int32", 0 },
	{ "torch", "LongStorage", STORAGE, 8, "int64", 0 },
	{ "torch.storage", "UntypedStorage", STORAGE, 1, "uint8", 0 },
	{ "torch", "Tensor", PLAIN, 0, NULL, 0 },
	{ CACHE_UTILS, "DynamicLayer", CLASS, LAYER, NULL, 0 },
	{ CACHE_UTILS, "DynamicSlidingWindowLayer", CLASS, LAYER | WINDOW, NULL, 0 },
	{ CACHE_UTILS, "StaticLayer", CLASS, LAYER | FIXED, NULL, 0 },
	{ CACHE_UTILS, "StaticSlidingWindowLayer", CLASS, LAYER | FIXED | WINDOW,
	  NULL, 0 },
	{ CACHE_UTILS, "SlidingWindowLayer", CLASS, LAYER | FIXED | WINDOW, NULL, 0 },
	{ CACHE_UTILS, "ChunkedSlidingLayer", CLASS, LAYER | FIXED | WINDOW, NULL, 0 },
	{ CACHE_UTILS, "DummyLayer", CLASS, LAYER, NULL, 0 },
	{ CACHE_UTILS, "DynamicIndexedLayer", CLASS, LAYER, NULL, 0 },
	{ CACHE_UTILS, "StaticIndexedLayer", CLASS, LAYER | FIXED, NULL, 0 },
	{ CACHE_UTILS, "Fp8QuantizedLayer", CLASS, LAYER, NULL, 0 },
	{ CACHE_UTILS, "LinearAttentionLayer", CLASS, LAYER, NULL, 0 },
	{ CACHE_UTILS, "LinearAttentionAndFullAttentionLayer", CLASS, LAYER, NULL, 0 },
	{ CACHE_UTILS, "LinearAttentionAndSlidingWindowAttentionLayer", CLASS,
	  LAYER | WINDOW, NULL, 0 },
	{ CACHE_UTILS, "LinearAttentionAndStaticFullAttentionLayer", CLASS, LAYER | FIXED,
	  NULL, 0 },
	{ CACHE_UTILS, "LinearAttentionAndStaticSlidingWindowAttentionLayer", CLASS,
	  LAYER | FIXED | WINDOW, NULL, 0 },
	{ MODELS "minimax_m3_vl.modeling_minimax_m3_vl", "MiniMaxM3VLSparseCacheLayer",
	  CLASS, LAYER, NULL, 0 },
	{ MODELS "minimax_m3_vl.modeling_minimax_m3_vl",
	  "MiniMaxM3VLSparseStaticCacheLayer", CLASS, LAYER | FIXED, NULL, 0 },
	{ MODELS "deepseek_v4.modeling_deepseek_v4", "DeepseekV4HCACache", CLASS,
	  LAYER | WINDOW | KVT_CLASS_COMPRESSES, NULL, 0 },
	{ MODELS "deepseek_v4.modeling_deepseek_v4", "DeepseekV4CSACache", CLASS,
	  LAYER | WINDOW | KVT_CLASS_COMPRESSES, NULL, 0 },
	{ CACHE_UTILS, "DynamicCache", CLASS, CACHE, NULL, 0 },
	{ CACHE_UTILS, "MtpCache", CLASS, CACHE, NULL, 0 },
	{ CACHE_UTILS, "DFlashCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("minimax"), "MiniMaxCache", CLASS, CACHE, NULL, 0 },
	{ CACHE_UTILS, "QuantizedCache", CLASS, CACHE, NULL, 0 },
	{ CACHE_UTILS, "MambaCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("mamba"), "MambaCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("falcon_mamba"), "FalconMambaCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("mamba2"), "Mamba2Cache", CLASS, CACHE, NULL, 0 },
	{ MODEL("jamba"), "HybridMambaAttentionDynamicCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("bamba"), "HybridMambaAttentionDynamicCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("zamba"), "HybridMambaAttentionDynamicCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("granitemoehybrid"), "HybridMambaAttentionDynamicCache", CLASS, CACHE,
	  NULL, 0 },
	{ MODEL("falcon_h1"), "FalconHybridMambaAttentionDynamicCache", CLASS, CACHE,
	  NULL, 0 },
	{ MODEL("zamba"), "ZambaHybridDynamicCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("zamba2"), "Zamba2HybridDynamicCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("nemotron_h"), "NemotronHHybridDynamicCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("olmo_hybrid"), "OlmoHybridDynamicCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("qwen3_next"), "Qwen3NextDynamicCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("qwen3_5"), "Qwen3_5DynamicCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("qwen3_5_moe"), "Qwen3_5MoeDynamicCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("lfm2"), "Lfm2HybridConvCache", CLASS, CACHE, NULL, 0 },
	{ MODEL("lfm2_moe"), "Lfm2MoeHybridConvCache", CLASS, CACHE, NULL, 0 },
	{ "torch.nn.modules.activation", "SiLU", CLASS, PART, NULL, 0 },
	{ CACHE_UTILS, "OffloadedCache", CLASS, CACHE, NULL, 0 },
	{ CACHE_UTILS, "EncoderDecoderCache", CLASS, CACHE, NULL, 0 },
	{ CACHE_UTILS, "StaticCache", CLASS, CACHE | FIXED, NULL, 0 },
	{ CACHE_UTILS, "OffloadedStaticCache", CLASS, CACHE | FIXED, NULL, 0 },
	{ CACHE_UTILS, "HybridCache", CLASS, CACHE | FIXED, NULL, 0 },
	{ CACHE_UTILS, "HybridChunkedCache", CLASS, CACHE | FIXED, NULL, 0 },
	{ CACHE_UTILS, "OffloadedHybridCache", CLASS, CACHE | FIXED, NULL, 0 },
	{ CACHE_UTILS, "SlidingWindowCache", CLASS, CACHE | FIXED | WINDOW, NULL, 0 },
	{ CACHE_UTILS, "QuantoQuantizedCache", CLASS, CACHE | CODED, NULL, 0 },
	{ CACHE_UTILS, "HQQQuantizedCache", CLASS, CACHE | CODED, NULL, 0 },
	{ CACHE_UTILS, "QuantoQuantizedLayer", CLASS, LAYER | CODED, NULL, 0 },
	{ CACHE_UTILS, "HQQQuantizedLayer", CLASS, LAYER | CODED, NULL, 0 },
	{ CACHE_UTILS, "HQQQuantizedCacheProcessor", CLASS, PART, NULL, 0 },
	{ CACHE_UTILS, "QuantoQuantizedCacheProcessor", CLASS, PART, NULL, 0 },
	{ "hqq.core.quantize", "Quantizer", PLAIN, 0, NULL, 0 },
	{ QUANTO "weights.qbits", "WeightQBitsTensor", CLASS, PART, NULL, 0 },
	{ QUANTO "packed", "PackedTensor", CLASS, PART, NULL, 0 },
	{ QUANTO "qbits.qbits", "QBitsTensor", CLASS, PART, NULL, 0 },
	{ QUANTO "qbits.packed", "PackedTensor", CLASS, PART, NULL, 0 },
	{ QUANTO "qtype", "qtype", CLASS, PART, NULL, 0 },
	{ QUANTO "optimizers.max_optimizer", "MaxOptimizer", CLASS, PART, NULL, 0 },
};
enum { NNAMES = sizeof(names) / sizeof(names[0]) };

/* The types of torch follow these. */
static const struct kvt_dtype *type_of(int name)
{
	return kvt_dtype_at(name - NNAMES);
}

static bool is(const char *text, int n, const char *wanted)
{
	return (size_t)n == strlen(wanted) && !memcmp(text, wanted, (size_t)n);
}

int kvt_pickle_name(const char *module, int nmodule, const char *what, int nwhat)
{
	for (int i = 0; i < NNAMES; i++)
		if (is(module, nmodule, names[i].module) &&
		    is(what, nwhat, names[i].what))
			return i;
	for (int i = 0; is(module, nmodule, "torch") && kvt_dtype_at(i); i++)
		if (kvt_dtype_at(i)->torch && is(what, nwhat, kvt_dtype_at(i)->torch))
			return NNAMES + i;
	return -1;
}

enum kvt_pickle_call kvt_pickle_call(int name)
{
	return name < NNAMES ? names[name].call : KVT_CALL_NONE;
}

int kvt_pickle_arguments(int name)
{
	return name < NNAMES ? names[name].n : 0;
}

int kvt_pickle_class(int name)
{
	return name < NNAMES && names[name].kind == CLASS ? names[name].n : 0;
}

int64_t kvt_pickle_storage_elem(int name)
{
	return name < NNAMES && names[name].kind == STORAGE ? names[name].n : 0;
}

static int64_t type_elem(int name)
{
	return name < NNAMES ? 0 : type_of(name)->elem;
}

/* As it is called: "BFloat16Storage". */
static const char *type_name(int name)
{
	return name < NNAMES ? names[name].what : type_of(name)->torch;
}

const struct kvt_dtype *kvt_pickle_dtype(int name)
{
	if (name >= NNAMES)
		return type_of(name);
	return names[name].dtype ? kvt_dtype_find(names[name].dtype) : NULL;
}

/* ---- tensors ------------------------------------------------------------ */

static const struct kvt_pickle_node *argument(const struct kvt_pickle *p, int32_t node,
					      int i, enum kvt_pickle_kind kind)
{
	const struct kvt_pickle_node *found = &p->node[p->node[node].items.node[i]];

	return found->kind == kind ? found : NULL;
}

static enum kvt_status take_numbers(int64_t *out, const struct kvt_pickle *p,
				    const struct kvt_pickle_node *tuple, const char *name,
				    struct kvt_error *err)
{
	for (int32_t i = 0; i < tuple->items.count; i++) {
		const struct kvt_pickle_node *n = &p->node[tuple->items.node[i]];

		if (n->kind != KVT_PICKLE_INT || n->number < 0)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: a tensor's sizes and strides are no natural numbers",
					name);
		out[i] = n->number;
	}
	return KVT_OK;
}

/* Strides in elements: inside the storage, and no two elements in one place. */
static enum kvt_status check_extent(struct kvt_pickle_tensor *t, int64_t numel,
				    int64_t offset, const char *name,
				    struct kvt_error *err)
{
	int64_t last = offset, size = 1, dense = 1;
	bool empty = false;

	for (int i = t->rank - 1; i >= 0; i--) {
		int64_t n = t->shape[i], step;

		empty |= !n;
		if (n < 2)
			continue;
		if (__builtin_mul_overflow(n - 1, t->stride[i], &step) ||
		    __builtin_add_overflow(last, step, &last) ||
		    __builtin_mul_overflow(size, n, &size))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: a tensor is larger than 2^63 elements", name);
		t->strided |= t->stride[i] != dense;
		dense *= n;
	}
	if (offset > numel || (!empty && last >= numel))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a tensor ends at element %lld of a storage of %lld", name,
				LL(last), LL(numel));
	t->size = empty ? 0 : size;
	if (empty)
		t->strided = false;
	return KVT_OK;
}

/* Of two axes one must step over all that the other one spans. */
static bool overlaps(const struct kvt_pickle_tensor *t)
{
	for (int i = 0; i < t->rank; i++)
		for (int j = 0; j < t->rank; j++)
			if (t->shape[i] > 1 && t->shape[j] > 1 && i != j &&
			    t->stride[i] < t->stride[j] * t->shape[j] &&
			    t->stride[j] < t->stride[i] * t->shape[i])
				return true;
	for (int i = 0; i < t->rank; i++)
		if (t->shape[i] > 1 && !t->stride[i])
			return true;
	return false;
}

static enum kvt_status check_arguments(const struct kvt_pickle *p, int32_t node,
				       const char *name, struct kvt_error *err)
{
	const struct kvt_pickle_node *hooks = argument(p, node, 5, KVT_PICKLE_DICT);
	const struct kvt_pickle_node *size = argument(p, node, 2, KVT_PICKLE_TUPLE);
	const struct kvt_pickle_node *stride = argument(p, node, 3, KVT_PICKLE_TUPLE);
	const struct kvt_pickle_node *offset = argument(p, node, 1, KVT_PICKLE_INT);

	if (!argument(p, node, 0, KVT_PICKLE_STORAGE) || !offset || offset->number < 0 ||
	    !size || !stride || size->items.count != stride->items.count ||
	    !argument(p, node, 4, KVT_PICKLE_BOOL) || !hooks || hooks->items.count)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a tensor is made of the wrong arguments", name);
	if (size->items.count > KVT_TENSOR_MAX_RANK)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a tensor has %d axes, at most %d",
				name, size->items.count, KVT_TENSOR_MAX_RANK);
	return KVT_OK;
}

/* The storage has a type, or is bytes and the last argument has it. */
static enum kvt_status take_type(struct kvt_pickle_tensor *out, int64_t *numel,
				 const struct kvt_pickle *p, int32_t node,
				 const char *name, struct kvt_error *err)
{
	const struct kvt_pickle_node *storage = argument(p, node, 0, KVT_PICKLE_STORAGE);
	const struct kvt_pickle_node *type = storage;
	int64_t unit = kvt_pickle_storage_elem(storage->global);

	out->elem = unit;
	if (p->node[node].items.count == 7) {
		type = argument(p, node, 6, KVT_PICKLE_GLOBAL);
		if (!type || !type_elem(type->global) || unit != 1)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: a tensor is made of the wrong arguments", name);
		out->elem = type_elem(type->global);
	}
	if (__builtin_mul_overflow(storage->number, unit, &out->nbytes))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a storage is larger than 2^63 bytes", name);
	*numel = out->nbytes / out->elem;
	out->dtype = kvt_pickle_dtype(type->global);
	out->type = type_name(type->global);
	out->key = storage->text;
	out->nkey = storage->ntext;
	return KVT_OK;
}

enum kvt_status kvt_pickle_tensor(struct kvt_pickle_tensor *out,
				  const struct kvt_pickle *p, int32_t node,
				  const char *name, struct kvt_error *err)
{
	struct kvt_pickle_tensor t = { .rank = 0 };
	const struct kvt_pickle_node *size, *stride;
	enum kvt_status status;
	int64_t numel = 0, offset;

	if ((status = check_arguments(p, node, name, err)) ||
	    (status = take_type(&t, &numel, p, node, name, err)))
		return status;
	offset = argument(p, node, 1, KVT_PICKLE_INT)->number;
	size = argument(p, node, 2, KVT_PICKLE_TUPLE);
	stride = argument(p, node, 3, KVT_PICKLE_TUPLE);
	t.rank = size->items.count;
	if ((status = take_numbers(t.shape, p, size, name, err)) ||
	    (status = take_numbers(t.stride, p, stride, name, err)) ||
	    (status = check_extent(&t, numel, offset, name, err)))
		return status;
	if (t.strided && overlaps(&t))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: elements of a tensor share their bytes; save a clone() of it",
				name);
	/* all below the storage's bytes: no product overflows, but of empty axes */
	t.offset = t.size ? offset * t.elem : 0;
	t.size *= t.elem;
	for (int i = 0; i < t.rank; i++)
		t.stride[i] = t.shape[i] > 1 && t.size ? t.stride[i] * t.elem : t.elem;
	*out = t;
	return KVT_OK;
}
