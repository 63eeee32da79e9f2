/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_walk.c - the tensors in dicts, lists, tuples and caches of transformers
 *
 *	cache	{layers: [layer, ..]}  or  {key_cache: [..], value_cache: [..]}  or
 *		{self_attention_cache: cache, cross_attention_cache: cache}
 *	layer	{keys, values, sliding_window, cumulative_length}
 *		or (keys, values[, window]), as iterating over a cache gives them
 *	codes	{_quantized_keys, _quantized_values} of a layer;
 *		{_quantized_key_cache, _quantized_value_cache} of a cache; in
 *		transformers 4.54 and 4.55 of its cache_processor
 *	beside	indexer_keys, conv_states, recurrent_states, ..: dicts, lists by number
 *
 * Each tensor gets its path as its name, "layers.3.keys", and what its layer says of it.
 * An object's other attributes are its own.  Nothing is executed: the pickle is data.
 */
#include "formats/tensor/torch_walk.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/little_endian.h"
#include "formats/parse/pickle.h"
#include "lib/base/grow.h"
#include "formats/tensor/names.h"

enum { MAX_DEPTH = 16, MAX_STEPS = 1 << 20, MAX_NOTES = 256 };

/* ---- tensors ------------------------------------------------------------ */

/* A new tensor by the name of the path. */
static enum kvt_status add(struct kvt_tensor **out, struct torch_walk *w)
{
	struct kvt_tensors *list = w->out;
	struct kvt_tensor *tensor;

	if (!KVT_GROW(&list->tensor, list->count))
		return kvt_no_memory(w->err, w->file->path);
	tensor = &list->tensor[list->count];
	*tensor = (struct kvt_tensor){
		.name = strdup(w->path[0] ? w->path : "tensor"), .held = w->held };
	if (!tensor->name)
		return kvt_no_memory(w->err, w->file->path);
	list->count++;
	*out = tensor;
	return KVT_OK;
}

static enum kvt_status add_placed(struct torch_walk *w, int32_t node,
				  const struct kvt_pickle_tensor *t, int64_t begin)
{
	struct kvt_tensor *tensor;
	enum kvt_status status;

	if ((status = add(&tensor, w)))
		return status;
	tensor->dtype = t->dtype;
	tensor->rank = t->rank;
	tensor->begin = begin;
	tensor->end = tensor->begin + t->size;
	tensor->strided = t->strided;
	tensor->held.fixed |= w->pickle.node[node].number != 0;
	memcpy(tensor->shape, t->shape, sizeof(t->shape));
	memcpy(tensor->stride, t->stride, sizeof(t->stride));
	snprintf(tensor->type, sizeof(tensor->type), "%s", t->type);
	return KVT_OK;
}

static enum kvt_status add_tensor(struct torch_walk *w, int32_t node)
{
	struct kvt_pickle_tensor t;
	enum kvt_status status;
	int64_t begin = 0;

	status = kvt_torch_place(&t, &begin, w, node);
	return status ? status : add_placed(w, node, &t, begin);
}

/* Stands for a tensor that a layer has not got. */
static enum kvt_status add_nothing(struct torch_walk *w)
{
	enum kvt_status status;
	struct kvt_tensor *tensor;

	if ((status = add(&tensor, w)))
		return status;
	tensor->rank = 1;
	strcpy(tensor->type, "nothing");
	return KVT_OK;
}

/* A tensor of one whole number; *found stays false for any other. */
static enum kvt_status read_number(int64_t *out, bool *found, struct torch_walk *w,
				   int32_t node)
{
	struct kvt_pickle_tensor t;
	enum kvt_status status;
	int64_t begin = 0;
	uint8_t bytes[8];

	if ((status = kvt_torch_place(&t, &begin, w, node)))
		return status;
	if (t.size != 8 || !t.dtype || strcmp(t.dtype->name, "int64"))
		return KVT_OK;
	if ((status = kvt_torch_take(w, bytes, 8, begin)))
		return status;
	*out = (int64_t)kvt_le(bytes, 8);
	*found = true;
	return KVT_OK;
}

/* ---- the way ------------------------------------------------------------ */

/* Adds a name to the path; returns where it ended before, or -1. */
static int descend(struct torch_walk *w, const char *name, int n)
{
	int used = (int)strlen(w->path);

	for (int i = 0; i < n; i++)
		if (!(name[i] & ~0x1f) || name[i] == 0x7f)
			return -1;
	if (used + n + 2 > TORCH_MAX_PATH)
		return -1;
	snprintf(w->path + used, sizeof(w->path) - (size_t)used, "%s%.*s",
		 used ? "." : "", n, name);
	return used;
}

static int descend_number(struct torch_walk *w, int64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", LL(number));
	return descend(w, text, (int)strlen(text));
}

static enum kvt_status refuse_key(const struct torch_walk *w)
{
	return kvt_fail(w->err, KVT_UNSUPPORTED,
			"%s: a dict has keys that are neither plain strings nor integers",
			w->file->path);
}

static enum kvt_status walk_node(struct torch_walk *w, int32_t node, int depth);

/* Codes, and what is not coded yet, as one tensor. */
static enum kvt_status walk_coded(struct torch_walk *w, const char *name, int32_t codes,
				  int32_t rest)
{
	int end = descend(w, name, (int)strlen(name));
	struct kvt_coded *coded = NULL;
	struct kvt_tensor *tensor;
	enum kvt_status status;

	if (end < 0)
		return refuse_key(w);
	status = kvt_torch_coded(&coded, w, codes, rest);
	if (!status && w->held.seen >= 0 && coded->shape[CODED_TOKENS] != w->held.seen)
		status = kvt_fail(w->err, KVT_BAD_INPUT,
				  "%s: %.100s has %lld tokens, but its layer was given %lld",
				  w->file->path, w->path, LL(coded->shape[CODED_TOKENS]),
				  LL(w->held.seen));
	if (!status && !(status = add(&tensor, w))) {
		tensor->coded = coded;
		tensor->dtype = coded->dtype;
		tensor->rank = CODED_RANK;
		memcpy(tensor->shape, coded->shape, sizeof(coded->shape));
		tensor->end = kvt_coded_bytes(coded);
		snprintf(tensor->type, sizeof(tensor->type), "%s", coded->dtype->name);
	} else {
		free(coded);
	}
	w->path[end] = '\0';
	return status;
}

/* A tensor, or nothing in the place of one. */
static enum kvt_status walk_half(struct torch_walk *w, const char *name, int32_t node)
{
	int end = descend(w, name, (int)strlen(name));
	enum kvt_status status;

	if (end < 0)
		return refuse_key(w);
	if (node >= 0 && w->pickle.node[node].kind == KVT_PICKLE_TENSOR)
		status = add_tensor(w, node);
	else
		status = add_nothing(w);
	w->path[end] = '\0';
	return status;
}

/* ---- layers that are tuples --------------------------------------------- */

static enum kvt_pickle_kind kind_of(const struct torch_walk *w,
				    const struct kvt_pickle_node *n, int i)
{
	return w->pickle.node[n->items.node[i]].kind;
}

/* (keys, values) of a layer, or those and its window; both may be None. */
static bool is_layer(const struct torch_walk *w, const struct kvt_pickle_node *n)
{
	enum kvt_pickle_kind first;

	if (n->kind != KVT_PICKLE_TUPLE || !w->path[0] || n->items.count < 2 ||
	    n->items.count > 3)
		return false;
	first = kind_of(w, n, 0);
	if ((first != KVT_PICKLE_TENSOR && first != KVT_PICKLE_NONE) ||
	    kind_of(w, n, 1) != first)
		return false;
	return n->items.count == 2 || kind_of(w, n, 2) == KVT_PICKLE_NONE ||
	       kind_of(w, n, 2) == KVT_PICKLE_TENSOR;
}

/* *taken stays false if the third of them is no window. */
static enum kvt_status walk_tuple(bool *taken, struct torch_walk *w,
				  const struct kvt_pickle_node *n)
{
	bool three = n->items.count == 3;
	struct kvt_held before = w->held;
	enum kvt_status status = KVT_OK;

	*taken = true;
	if (three) {
		w->held = (struct kvt_held){ .told = true, .seen = -1 };
		if (kind_of(w, n, 2) == KVT_PICKLE_TENSOR) {
			*taken = false;
			status = read_number(&w->held.window, taken, w, n->items.node[2]);
			w->held.sliding = true;
		}
	}
	if (!status && *taken && !(status = walk_half(w, "k", n->items.node[0])))
		status = walk_half(w, "v", n->items.node[1]);
	w->held = before;
	return status;
}

/* ---- objects ------------------------------------------------------------ */

/* A number, or a tensor of one; otherwise *out stays as it is. */
static enum kvt_status take_number(int64_t *out, struct torch_walk *w,
				   const struct kvt_pickle_node *object, const char *name)
{
	int32_t node = kvt_torch_attribute(w, object, name);
	bool found = false;

	if (node < 0)
		return KVT_OK;
	if (w->pickle.node[node].kind == KVT_PICKLE_INT)
		*out = w->pickle.node[node].number;
	else if (w->pickle.node[node].kind == KVT_PICKLE_TENSOR)
		return read_number(out, &found, w, node);
	return KVT_OK;
}

/* States of all layers in one tensor: as many tensors, by number. */
static enum kvt_status walk_stack(struct torch_walk *w, int32_t node)
{
	struct kvt_pickle_tensor all, one;
	enum kvt_status status;
	int64_t begin = 0;

	if ((status = kvt_torch_place(&all, &begin, w, node)))
		return status;
	if (all.rank < 2 || !all.size)
		return add_tensor(w, node);
	one = all;
	one.rank--;
	one.size /= all.shape[0];
	memmove(one.shape, all.shape + 1, (size_t)one.rank * sizeof(*one.shape));
	memmove(one.stride, all.stride + 1, (size_t)one.rank * sizeof(*one.stride));
	for (int64_t i = 0; !status && i < all.shape[0]; i++) {
		int end = descend_number(w, i);

		if (end < 0 || ++w->steps > MAX_STEPS)
			return refuse_key(w);
		status = add_placed(w, node, &one, begin + i * all.stride[0]);
		w->path[end] = '\0';
	}
	return status;
}

/*
 * LFM2's cache has a state for every layer, and says which are none: those of attention
 * are zeros that nobody looks at.
 */
static bool is_unused(const struct torch_walk *w, const struct kvt_pickle_node *object,
		      int32_t layer)
{
	int32_t i = kvt_torch_attribute(w, object, "layer_types");
	const struct kvt_pickle_node *n = w->pickle.node;

	if (i < 0 || n[i].kind != KVT_PICKLE_LIST || layer >= n[i].items.count)
		return false;
	n = &n[n[i].items.node[layer]];
	return n->kind == KVT_PICKLE_STRING && n->ntext == 14 &&
	       !memcmp(n->text, "full_attention", 14);
}

/* States of layers in a list. */
static enum kvt_status walk_states(struct torch_walk *w,
				   const struct kvt_pickle_node *object,
				   const struct kvt_pickle_node *list, int depth)
{
	enum kvt_status status = KVT_OK;

	for (int32_t i = 0; !status && i < list->items.count; i++) {
		int end = descend_number(w, i);

		if (end < 0)
			return refuse_key(w);
		if (!is_unused(w, object, i))
			status = walk_node(w, list->items.node[i], depth + 1);
		w->path[end] = '\0';
	}
	return status;
}

/* What a layer, or a cache, has besides keys and values. */
static enum kvt_status walk_beside(struct torch_walk *w,
				   const struct kvt_pickle_node *object, int depth)
{
	static const char *const names[] = { "indexer_keys", "idx_keys", "conv_states",
		"conv_states_q", "conv_states_k", "conv_states_v", "conv_cache",
		"recurrent_states", "ssm_states", "linear_cache", NULL };
	bool whole = kvt_pickle_class(object->global) & KVT_CLASS_CACHE;
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && names[i]; i++) {
		int32_t node = kvt_torch_attribute(w, object, names[i]);
		int end;

		if (node < 0)
			continue;
		if ((end = descend(w, names[i], (int)strlen(names[i]))) < 0)
			return refuse_key(w);
		if (whole && w->pickle.node[node].kind == KVT_PICKLE_TENSOR)
			status = walk_stack(w, node);
		else if (whole && w->pickle.node[node].kind == KVT_PICKLE_LIST)
			status = walk_states(w, object, &w->pickle.node[node], depth + 1);
		else
			status = walk_node(w, node, depth + 1);
		w->path[end] = '\0';
	}
	return status;
}

/* Rows of several tokens, and what waits to become one. */
static enum kvt_status walk_compressed(struct torch_walk *w,
				       const struct kvt_pickle_node *object, int64_t seen)
{
	struct kvt_held before = w->held;
	enum kvt_status status = KVT_OK;
	struct torch_state state;
	int end;

	w->single = true;
	for (int i = 0; !status && i < TORCH_STATES; i++) {
		state.held = before;
		if ((status = kvt_torch_compressed(&state, w, object, seen, i)) ||
		    state.node < 0)
			continue;
		end = descend(w, state.attribute, (int)strlen(state.attribute));
		if (end < 0 || descend(w, state.key, (int)strlen(state.key)) < 0)
			return refuse_key(w);
		w->held = state.held;
		status = add_tensor(w, state.node);
		w->path[end] = '\0';
	}
	w->held = before;
	return status;
}

/* The type of numbers that codes become is that of an empty tensor in their place. */
static enum kvt_status take_content(struct torch_walk *w,
				    const struct kvt_pickle_node *object,
				    const char *name, int32_t codes)
{
	int32_t plain = kvt_torch_attribute(w, object, name);
	struct kvt_pickle_tensor t = { .type = "nothing" }, c;
	enum kvt_status status = kvt_pickle_tensor(&c, &w->pickle, codes, w->file->path,
						   w->err);

	if (!status && plain >= 0 && w->pickle.node[plain].kind == KVT_PICKLE_TENSOR)
		status = kvt_pickle_tensor(&t, &w->pickle, plain, w->file->path, w->err);
	if (status)
		return status;
	snprintf(w->held.content, sizeof(w->held.content), "transformers-fp8/%.12s",
		 t.dtype ? t.dtype->name : "");
	if (t.size || !kvt_content_find(&(struct kvt_content){ 0 }, w->held.content) ||
	    !c.dtype || strcmp(c.dtype->name, "float8_e4m3fn"))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s: %.100s.%s are codes of %s that become %s, expected float8_e4m3fn and an empty tensor of bfloat16, float16 or float32",
				w->file->path, w->path, name, c.type, t.type);
	return KVT_OK;
}

/* Keys or values; codes that are worked out, or of fp8 and the scale of all of them. */
static enum kvt_status walk_layer_half(struct torch_walk *w,
				       const struct kvt_pickle_node *object, bool coded,
				       const char *name, const char *quantised)
{
	int32_t node = kvt_torch_attribute(w, object, quantised);
	const struct kvt_pickle_node *pair = node < 0 ? NULL : &w->pickle.node[node];
	enum kvt_status status;
	int end;

	if (!pair || pair->kind == KVT_PICKLE_NONE)
		return walk_half(w, name, kvt_torch_attribute(w, object, name));
	if (coded)
		return walk_coded(w, name, node, kvt_torch_attribute(w, object, name));
	if (pair->kind != KVT_PICKLE_TUPLE || pair->items.count != 2 ||
	    kind_of(w, pair, 0) != KVT_PICKLE_TENSOR ||
	    kind_of(w, pair, 1) != KVT_PICKLE_TENSOR)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s: %.100s.%s are not a tensor of fp8 and its scale",
				w->file->path, w->path, quantised);
	if ((status = take_content(w, object, name, pair->items.node[0])) ||
	    (status = walk_half(w, name, pair->items.node[0])))
		return status;
	if ((end = descend(w, name, (int)strlen(name))) < 0)
		return refuse_key(w);
	w->held.content[0] = '\0';
	w->held.role = KVT_ROLE_SCALES;
	status = walk_half(w, "1", pair->items.node[1]);
	w->held.role = KVT_ROLE_PAIR;
	w->path[end] = '\0';
	return status;
}

/* What was to be done to codes before they are used next. */
static enum kvt_status check_pending(const struct torch_walk *w,
				     const struct kvt_pickle_node *object)
{
	int32_t node = kvt_torch_attribute(w, object, "_pending_beam_idx");

	if (node < 0 || w->pickle.node[node].kind == KVT_PICKLE_NONE)
		return KVT_OK;
	return kvt_fail(w->err, KVT_UNSUPPORTED,
			"%s: the rows of %.100s are to be put in another order (_pending_beam_idx); save it after its next update()",
			w->file->path, w->path);
}

static enum kvt_status walk_layer(struct torch_walk *w,
				  const struct kvt_pickle_node *object, int class,
				  int depth)
{
	bool coded = class & KVT_CLASS_CODED;
	struct kvt_held before = w->held, *held = &w->held;
	enum kvt_status status;

	*held = (struct kvt_held){ .told = true, .fixed = class & KVT_CLASS_FIXED,
				   .sliding = class & KVT_CLASS_WINDOW, .seen = -1 };
	/* with a window and slots, that of two counts which is no tensor goes on */
	(void)((status = check_pending(w, object)) ||
	       (status = take_number(&held->window, w, object, "sliding_window")) ||
	       (status = take_number(&held->seen, w, object, "cumulative_length")) ||
	       (status = take_number(&held->seen, w, object, "cumulative_length_int")) ||
	       (status = walk_layer_half(w, object, coded, "keys",
					  "_quantized_keys")) ||
	       (status = walk_layer_half(w, object, coded, "values",
					  "_quantized_values")) ||
	       (status = walk_beside(w, object, depth)));
	if (!status && class & KVT_CLASS_COMPRESSES)
		status = walk_compressed(w, object, held->seen);
	w->held = before;
	return status;
}

/* Codes of all layers in a list; what is not coded yet in another, or in their layers. */
static enum kvt_status walk_coded_half(struct torch_walk *w, const char *name,
				       int32_t codes, int32_t rest)
{
	int end = descend(w, "layers", (int)strlen("layers"));
	const struct kvt_pickle_node *n = w->pickle.node;
	enum kvt_status status = KVT_OK;

	if (end < 0 || rest < 0 || codes < 0 || n[rest].kind != KVT_PICKLE_LIST ||
	    n[codes].kind != KVT_PICKLE_LIST ||
	    n[rest].items.count != n[codes].items.count)
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"%s: codes and %s are not lists of as many layers",
				w->file->path, name);
	for (int32_t i = 0; !status && i < n[rest].items.count; i++) {
		int32_t one = n[rest].items.node[i];
		int below = descend_number(w, i);

		if (below < 0)
			return refuse_key(w);
		if (n[one].kind == KVT_PICKLE_OBJECT)
			one = kvt_torch_attribute(w, &n[one], name);
		status = walk_coded(w, name, n[codes].items.node[i], one);
		w->path[below] = '\0';
	}
	w->path[end] = '\0';
	return status;
}

/* Where no layer has its codes: in transformers 4.54 and 4.55 a processor had them. */
static enum kvt_status walk_quantised(struct torch_walk *w,
				      const struct kvt_pickle_node *object)
{
	static const char *const lists[2][3] = {
		{ "keys", "_quantized_key_cache", "key_cache" },
		{ "values", "_quantized_value_cache", "value_cache" } };
	static const char *const processed[2][3] = {
		{ "keys", "_quantized_keys", "layers" },
		{ "values", "_quantized_values", "layers" } };
	int32_t processor = kvt_torch_attribute(w, object, "cache_processor");
	const char *const (*names)[3] = processor < 0 ? lists : processed;
	const struct kvt_pickle_node *by =
		processor < 0 ? object : &w->pickle.node[processor];
	enum kvt_status status = KVT_OK;

	for (int h = 0; !status && h < 2; h++)
		status = walk_coded_half(w, names[h][0],
					 kvt_torch_attribute(w, by, names[h][1]),
					 kvt_torch_attribute(w, object, names[h][2]));
	return status;
}

/* Are its codes elsewhere than in its layers? */
static bool is_quantised(const struct torch_walk *w, const struct kvt_pickle_node *object,
			 int class)
{
	int32_t processor = kvt_torch_attribute(w, object, "cache_processor");

	if (processor >= 0)
		return w->pickle.node[processor].kind == KVT_PICKLE_OBJECT;
	return class & KVT_CLASS_CODED && kvt_torch_attribute(w, object, "layers") < 0;
}

/* Keys or values of all layers, of which some may have none. */
static enum kvt_status walk_halves(struct torch_walk *w, const struct kvt_pickle_node *n)
{
	enum kvt_status status = KVT_OK;

	for (int32_t i = 0; !status && i < n->items.count; i++) {
		char number[16];

		snprintf(number, sizeof(number), "%d", i);
		status = walk_half(w, number, n->items.node[i]);
	}
	return status;
}

/* Only what holds keys and values; an object has attributes for its own use. */
static enum kvt_status walk_cache(struct torch_walk *w,
				  const struct kvt_pickle_node *object, int class,
				  int depth)
{
	static const char *const halves[] = { "self_attention_cache",
		"cross_attention_cache", NULL };
	static const char *const own[] = { "layers", "key_cache", "value_cache", NULL };
	bool two = kvt_torch_attribute(w, object, halves[0]) >= 0;
	const char *const *names = two ? halves : own;
	struct kvt_held before = w->held;
	enum kvt_status status = KVT_OK;

	w->held = (struct kvt_held){ .told = true, .fixed = class & KVT_CLASS_FIXED,
				     .sliding = class & KVT_CLASS_WINDOW, .seen = -1 };
	w->out->ncaches += !two;
	if (is_quantised(w, object, class)) {
		names = &own[3];
		status = walk_quantised(w, object);
	}
	for (; !status && *names; names++) {
		int32_t node = kvt_torch_attribute(w, object, *names);
		bool list;
		int end;

		if (node < 0)
			continue;
		if ((end = descend(w, *names, (int)strlen(*names))) < 0)
			return refuse_key(w);
		list = w->pickle.node[node].kind == KVT_PICKLE_LIST && *names != own[0];
		status = list ? walk_halves(w, &w->pickle.node[node]) :
				walk_node(w, node, depth + 1);
		w->path[end] = '\0';
	}
	if (!status && !two)
		status = walk_beside(w, object, depth);
	w->held = before;
	return status;
}

static enum kvt_status walk_object(struct torch_walk *w, const struct kvt_pickle_node *n,
				   int depth)
{
	int class = kvt_pickle_class(n->global);

	if (class & KVT_CLASS_PART)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s: %.100s is codes of a quantised tensor outside a layer; save the cache, or what the layers' update() returns",
				w->file->path, w->path);
	return class & KVT_CLASS_CACHE ? walk_cache(w, n, class, depth) :
					 walk_layer(w, n, class, depth);
}

/* ---- dicts, lists and tuples -------------------------------------------- */

static enum kvt_status walk_items(struct torch_walk *w, const struct kvt_pickle_node *n,
				  int depth)
{
	bool dict = n->kind == KVT_PICKLE_DICT, taken = false;
	enum kvt_status status = KVT_OK;

	if (is_layer(w, n) && ((status = walk_tuple(&taken, w, n)) || taken))
		return status;
	for (int32_t i = 0; !status && i < n->items.count; i += 1 + dict) {
		const struct kvt_pickle_node *key = &w->pickle.node[n->items.node[i]];
		int end = -1;

		if (!dict)
			end = descend_number(w, i);
		else if (key->kind == KVT_PICKLE_STRING)
			end = descend(w, key->text, key->ntext);
		else if (key->kind == KVT_PICKLE_INT)
			end = descend_number(w, key->number);
		if (end < 0)
			return refuse_key(w);
		status = walk_node(w, n->items.node[i + dict], depth + 1);
		w->path[end] = '\0';
	}
	return status;
}

/* Of a number or a text beside the tensors: it may say what they are. */
static enum kvt_status add_note(struct torch_walk *w, const struct kvt_pickle_node *n)
{
	struct kvt_tensors *out = w->out;
	struct kvt_note *note;
	char number[24];

	snprintf(number, sizeof(number), "%lld", LL(n->number));
	/* of long lists of numbers the first will do */
	if (!w->path[0] || out->nnotes == MAX_NOTES)
		return KVT_OK;
	if (!out->note && !(out->note = calloc(MAX_NOTES, sizeof(*out->note))))
		return kvt_no_memory(w->err, w->file->path);
	note = &out->note[out->nnotes++];
	note->name = strdup(w->path);
	note->text = n->kind == KVT_PICKLE_STRING ?
		     strndup(n->text, (size_t)n->ntext) : strdup(number);
	return note->name && note->text ? KVT_OK : kvt_no_memory(w->err, w->file->path);
}

static enum kvt_status walk_node(struct torch_walk *w, int32_t node, int depth)
{
	const struct kvt_pickle_node *n = &w->pickle.node[node];

	/* lists may be in each other, and one in many places */
	if (depth > MAX_DEPTH || ++w->steps > MAX_STEPS)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s: dicts and lists are nested too deeply, or too many",
				w->file->path);
	switch (n->kind) {
	case KVT_PICKLE_TENSOR:
		return add_tensor(w, node);
	case KVT_PICKLE_DICT: case KVT_PICKLE_LIST: case KVT_PICKLE_TUPLE:
		return walk_items(w, n, depth);
	case KVT_PICKLE_OBJECT:
		return walk_object(w, n, depth);
	case KVT_PICKLE_STORAGE: case KVT_PICKLE_MARK:
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s: %.100s is a storage, expected tensors",
				w->file->path, w->path);
	case KVT_PICKLE_BOOL: case KVT_PICKLE_INT: case KVT_PICKLE_STRING:
		return add_note(w, n);
	default:
		return KVT_OK;	/* None, or a type */
	}
}

/* What stands beside the layers of a cache is none of them, but a mask says of them. */
static void keep_told(struct kvt_tensors *list)
{
	const char *after;
	int64_t kept = 0;

	for (int64_t i = 0; i < list->count; i++) {
		enum kvt_role role = kvt_cache_role(&list->tensor[i], &after);

		if (list->tensor[i].held.told || role == KVT_ROLE_MASK ||
		    role == KVT_ROLE_DECODER_MASK)
			list->tensor[kept++] = list->tensor[i];
		else
			kvt_tensor_free(&list->tensor[i]);
	}
	list->count = kept;
}

enum kvt_status kvt_torch_walk(struct torch_walk *w)
{
	enum kvt_status status = walk_node(w, w->pickle.root, 0);

	if (!status && w->out->ncaches)
		keep_told(w->out);
	for (int64_t i = 0; w->single && i < w->out->count; i++)
		w->out->tensor[i].held.single = w->out->tensor[i].held.sliding;
	return status;
}
