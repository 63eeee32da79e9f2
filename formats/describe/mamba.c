/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mamba.c - manifests of pages that hold a conv and an SSM state
 *
 *	{"layout": "mamba-page", "page_bytes": 65536, "conv_layout": "SD" or "DS",
 *	 "conv": {"shape": [3, 512], "dtype": .., "byte_offset": 0,
 *		  "x": [0, 256], "global_x": [256, 512], "B": [256, 384], ..},
 *	 "ssm": {"shape": [8, 64, 128], "dtype": .., "byte_offset": 3072,
 *		 "heads": [8, 16], "total_heads": 32},
 *	 "sizes": {"layers": .., "num_blocks": .., "block_size": ..}}
 *
 * Two groups that share one page of the engine, each at its offset in it.  A part of the
 * conv state is a range of channels here, and in the whole model; without that it is all
 * there is.
 */
#include "formats/describe/describe.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/print.h"

/* "x": [0, 128] and "global_x": [128, 256]. */
static enum kvt_status take_range(int64_t range[2], const struct kvt_json *in,
				  const char *key, size_t least)
{
	const json_t *list = NULL;
	enum kvt_status status;

	if ((status = kvt_json_array(&list, in, key)) || (!list && !least))
		return status;
	for (size_t i = 0; i < 2; i++)
		if ((status = kvt_json_int_at(&range[i], in, key, list, i, 0, KVT_MOST)))
			return status;
	if (json_array_size(list) != 2 || range[1] < range[0])
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: %s is not a range [begin, end)", in->name, key);
	return KVT_OK;
}

static enum kvt_status take_conv_parts(struct kvt_group *conv,
				       const struct kvt_json *in)
{
	static const char *const parts[][2] = {
		{ "x", "global_x" }, { "B", "global_B" }, { "C", "global_C" },
		{ "q", "global_q" }, { "k", "global_k" }, { "v", "global_v" },
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		int64_t here[2] = { 0, 0 }, global[2];
		enum kvt_status status;

		if (!json_object_get(in->object, parts[i][0]))
			continue;
		if ((status = take_range(here, in, parts[i][0], 1)))
			return status;
		global[0] = here[0];
		global[1] = here[1];
		if ((status = take_range(global, in, parts[i][1], 0)))
			return status;
		if (global[1] - global[0] != here[1] - here[0])
			return kvt_fail(in->err, KVT_BAD_INPUT,
					"%s: %s and %s differ in length", in->name,
					parts[i][0], parts[i][1]);
		if ((status = kvt_manifest_add_component(conv, parts[i][0], here[0],
					    here[1] - here[0], global[0], in)))
			return status;
	}
	return KVT_OK;
}

/* The shape of one state, and the product of all extents but the first. */
static enum kvt_status take_state_shape(int64_t n[KVT_STATE_AXES], size_t *count,
					int64_t *rest, const struct kvt_json *in,
					const char *what)
{
	const json_t *shape = NULL;
	enum kvt_status status;
	int64_t extent;

	if ((status = kvt_json_array(&shape, in, "shape")))
		return status;
	*count = json_array_size(shape);
	if (*count < 2)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: %s needs a shape of at least 2 extents", in->name, what);
	*rest = 1;
	for (size_t i = 0; i < *count; i++) {
		if ((status = kvt_json_int_at(&extent, in, "shape", shape, i, 1,
					      KVT_MOST)))
			return status;
		if (i < KVT_STATE_AXES)
			n[i] = extent;
		if (i && __builtin_mul_overflow(*rest, extent, rest))
			return kvt_fail(in->err, KVT_BAD_INPUT,
					"%s: the shape of %s overflows", in->name, what);
	}
	return KVT_OK;
}

static enum kvt_status take_conv(struct kvt_manifest *out, const struct kvt_json *in,
				 const struct kvt_json *state)
{
	int64_t shape[KVT_STATE_AXES], first, rest = 0;
	const char *order = NULL;
	struct kvt_group *conv;
	enum kvt_status status;
	size_t n;
	bool ds;

	if ((status = kvt_manifest_add_group(&conv, &out->snapshot, "conv", in->name,
					     in->err)) ||
	    (status = kvt_manifest_take_dtype(conv, state)) ||
	    (status = take_state_shape(shape, &n, &rest, state, "conv")) ||
	    (status = kvt_json_string(&order, in, "conv_layout")))
		return status;
	first = shape[0];
	if (order ? strcmp(order, "SD") && strcmp(order, "DS") : first > 1 && rest > 1)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: conv_layout is %.20s, expected SD (taps outside channels) or DS",
				in->name, order ? order : "not given");
	ds = order && !strcmp(order, "DS");
	conv->kind = KVT_MAMBA_CONV;
	conv->shape.n[KVT_AXIS_S] = ds ? rest : first;
	conv->shape.n[KVT_AXIS_D] = ds ? first : rest;
	conv->shape.n[KVT_AXIS_H] = conv->total_heads = 1;
	conv->head_start = 0;
	conv->replication = 1;
	if ((status = kvt_layout_parse(&conv->layout,
				       ds ? "conv-ds" : "conv-sd", in->err)) ||
	    (status = kvt_json_int(&conv->page_offset, state, "byte_offset", 0,
				   KVT_MOST)))
		return status;
	return take_conv_parts(conv, state);
}

static enum kvt_status take_ssm(struct kvt_manifest *out, const struct kvt_json *in,
				const struct kvt_json *state)
{
	int64_t shape[KVT_STATE_AXES] = { 0 }, heads, content = 0, owned[2] = { -1, -1 };
	struct kvt_group *ssm;
	enum kvt_status status;
	size_t n = 0;

	if ((status = kvt_manifest_add_group(&ssm, &out->snapshot, "ssm",
					     in->name, in->err)) ||
	    (status = kvt_manifest_take_dtype(ssm, state)) ||
	    (status = take_state_shape(shape, &n, &content, state, "ssm")) ||
	    (status = take_range(owned, state, "heads", 0)) ||
	    (status = kvt_json_int(&ssm->page_offset, state, "byte_offset", 0,
				   KVT_MOST)) ||
	    (status = kvt_json_int(&ssm->total_heads, state, "total_heads", 1,
				   KVT_MOST)) ||
	    (status = kvt_layout_parse(&ssm->layout, "ssm", in->err)))
		return status;
	heads = shape[0];
	kvt_group_set_state(ssm, shape + 1, (int)n - 1);
	if (owned[0] >= 0 && owned[1] - owned[0] != heads)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: ssm holds heads %lld to %lld, but its shape has %lld",
				in->name, LL(owned[0]), LL(owned[1] - 1), LL(heads));
	ssm->kind = KVT_MAMBA_SSM;
	ssm->shape.n[KVT_AXIS_S] = 1;
	ssm->shape.n[KVT_AXIS_H] = heads;
	ssm->shape.n[KVT_AXIS_D] = content;
	ssm->head_start = owned[0];
	/* heads of recurrent states are never replicated */
	if (ssm->total_heads < 0 &&
	    __builtin_mul_overflow(heads, out->snapshot.parallel.tp_size,
				   &ssm->total_heads))
		return kvt_fail(in->err, KVT_BAD_INPUT, "%s: too many heads", in->name);
	return KVT_OK;
}

enum kvt_status kvt_manifest_mamba(struct kvt_manifest *out, const struct kvt_json *in)
{
	struct kvt_json conv, ssm;
	enum kvt_status status;

	if ((status = kvt_json_object(&conv, in, "conv")) ||
	    (status = kvt_json_object(&ssm, in, "ssm")))
		return status;
	if (!conv.object || !ssm.object || !json_object_get(in->object, "page_bytes"))
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: layout mamba-page needs conv, ssm and page_bytes",
				in->name);
	if ((status = take_conv(out, in, &conv)) || (status = take_ssm(out, in, &ssm)))
		return status;
	for (int g = 0; g < 2; g++) {
		struct kvt_group *group = &out->snapshot.group[g];
		struct kvt_json sizes;

		group->shape.n[KVT_AXIS_K] = 1;
		group->tokens_per_slot = -1;
		if ((status = kvt_json_object(&sizes, in, "sizes")) ||
		    (status = kvt_manifest_take_extent(group, KVT_AXIS_L, &sizes,
						       "layers")) ||
		    (status = kvt_manifest_take_extent(group, KVT_AXIS_B, &sizes,
						       "num_blocks")) ||
		    (status = kvt_json_int(&group->block_size, &sizes, "block_size", 0,
					   KVT_MOST)) ||
		    (status = kvt_json_int(&group->page_bytes, in, "page_bytes", 1,
					   KVT_MOST)) ||
		    (status = kvt_manifest_take_tables(group, in)))
			return status;
	}
	out->has_layout = true;
	return KVT_OK;
}
