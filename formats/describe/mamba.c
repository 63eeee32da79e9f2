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

#include <string.h>

/* "x": [0, 128] and "global_x": [128, 256]. */
static void take_range(int64_t range[2], const struct kvt_json *in, const char *key,
		       size_t least)
{
	const json_t *list = NULL;

	kvt_json_array(&list, in, key);
	if (!list && !least)
		return;
	for (size_t i = 0; i < 2; i++)
		kvt_json_int_at(&range[i], in, key, list, i, 0, KVT_MOST);
	if (json_array_size(list) != 2 || range[1] < range[0])
		kvt_json_bad(in, "%s is not a range [begin, end)", key);
}

static void take_conv_parts(struct kvt_group *conv, const struct kvt_json *in)
{
	static const char *const parts[][2] = {
		{ "x", "global_x" }, { "B", "global_B" }, { "C", "global_C" },
		{ "q", "global_q" }, { "k", "global_k" }, { "v", "global_v" },
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		int64_t here[2] = { 0, 0 }, global[2];

		if (!json_object_get(in->object, parts[i][0]))
			continue;
		take_range(here, in, parts[i][0], 1);
		global[0] = here[0];
		global[1] = here[1];
		take_range(global, in, parts[i][1], 0);
		if (global[1] - global[0] != here[1] - here[0])
			kvt_json_bad(in, "%s and %s differ in length", parts[i][0],
				     parts[i][1]);
		kvt_manifest_add_component(conv, parts[i][0], here[0], here[1] - here[0],
					   global[0], in);
	}
}

/* The shape of one state, and the product of all extents but the first: how many. */
static int take_state_shape(int64_t n[KVT_STATE_AXES], int64_t *rest,
			    const struct kvt_json *in, const char *what)
{
	const json_t *shape = NULL;
	int64_t extent = 0;
	size_t count;

	kvt_json_array(&shape, in, "shape");
	count = json_array_size(shape);
	if (count < 2)
		kvt_json_bad(in, "%s needs a shape of at least 2 extents", what);
	*rest = 1;
	for (size_t i = 0; i < count && !*in->status; i++) {
		kvt_json_int_at(&extent, in, "shape", shape, i, 1, KVT_MOST);
		if (i < KVT_STATE_AXES)
			n[i] = extent;
		if (i && __builtin_mul_overflow(*rest, extent, rest))
			kvt_json_bad(in, "the shape of %s overflows", what);
	}
	return (int)count;
}

/* NULL: there is an error. */
static struct kvt_group *add_group(struct kvt_manifest *out, const char *id,
				   const struct kvt_json *state)
{
	struct kvt_group *group = NULL;

	if (!*state->status)
		*state->status = kvt_manifest_add_group(&group, &out->snapshot, id,
							state->name, state->err);
	return group;
}

static void take_conv(struct kvt_manifest *out, const struct kvt_json *in,
		      const struct kvt_json *state)
{
	struct kvt_group *conv = add_group(out, "conv", state);
	int64_t shape[KVT_STATE_AXES] = { 0 }, first, rest;
	const char *order = NULL;
	bool ds;

	if (!conv)
		return;
	kvt_manifest_take_dtype(conv, state);
	take_state_shape(shape, &rest, state, "conv");
	kvt_json_string(&order, in, "conv_layout");
	first = shape[0];
	if (order ? strcmp(order, "SD") && strcmp(order, "DS") : first > 1 && rest > 1)
		kvt_json_bad(in,
			     "conv_layout is %.20s, expected SD (taps outside channels) or DS",
			     order ? order : "not given");
	ds = order && !strcmp(order, "DS");
	conv->kind = KVT_MAMBA_CONV;
	conv->shape.n[KVT_AXIS_S] = ds ? rest : first;
	conv->shape.n[KVT_AXIS_D] = ds ? first : rest;
	conv->shape.n[KVT_AXIS_H] = conv->total_heads = 1;
	conv->head_start = 0;
	conv->replication = 1;
	if (!*in->status)
		*in->status = kvt_layout_parse(&conv->layout, ds ? "conv-ds" : "conv-sd",
					       in->err);
	kvt_json_int(&conv->page_offset, state, "byte_offset", 0, KVT_MOST);
	take_conv_parts(conv, state);
}

static void take_ssm(struct kvt_manifest *out, const struct kvt_json *in,
		     const struct kvt_json *state)
{
	struct kvt_group *ssm = add_group(out, "ssm", state);
	int64_t shape[KVT_STATE_AXES] = { 0 }, content, owned[2] = { -1, -1 };
	int n;

	if (!ssm)
		return;
	kvt_manifest_take_dtype(ssm, state);
	n = take_state_shape(shape, &content, state, "ssm");
	take_range(owned, state, "heads", 0);
	kvt_json_int(&ssm->page_offset, state, "byte_offset", 0, KVT_MOST);
	kvt_json_int(&ssm->total_heads, state, "total_heads", 1, KVT_MOST);
	if (*in->status || (*in->status = kvt_layout_parse(&ssm->layout, "ssm", in->err)))
		return;
	kvt_group_set_state(ssm, shape + 1, n - 1);
	if (owned[0] >= 0 && owned[1] - owned[0] != shape[0])
		kvt_json_bad(in, "ssm holds heads %lld to %lld, but its shape has %lld",
			     LL(owned[0]), LL(owned[1] - 1), LL(shape[0]));
	ssm->kind = KVT_MAMBA_SSM;
	ssm->shape.n[KVT_AXIS_S] = 1;
	ssm->shape.n[KVT_AXIS_H] = shape[0];
	ssm->shape.n[KVT_AXIS_D] = content;
	ssm->head_start = owned[0];
	/* heads of recurrent states are never replicated */
	if (ssm->total_heads < 0 &&
	    __builtin_mul_overflow(shape[0], out->snapshot.parallel.tp_size,
				   &ssm->total_heads))
		kvt_json_bad(in, "too many heads");
}

void kvt_manifest_mamba(struct kvt_manifest *out, const struct kvt_json *in)
{
	struct kvt_json conv, ssm;

	kvt_json_object(&conv, in, "conv");
	kvt_json_object(&ssm, in, "ssm");
	if (!conv.object || !ssm.object || !json_object_get(in->object, "page_bytes"))
		kvt_json_bad(in, "layout mamba-page needs conv, ssm and page_bytes");
	take_conv(out, in, &conv);
	take_ssm(out, in, &ssm);
	for (int g = 0; g < 2; g++) {
		struct kvt_group *group = &out->snapshot.group[g];
		struct kvt_json sizes;

		group->shape.n[KVT_AXIS_K] = 1;
		group->tokens_per_slot = -1;
		kvt_json_object(&sizes, in, "sizes");
		kvt_manifest_take_extent(group, KVT_AXIS_L, &sizes, "layers");
		kvt_manifest_take_extent(group, KVT_AXIS_B, &sizes, "num_blocks");
		kvt_json_int(&group->block_size, &sizes, "block_size", 0, KVT_MOST);
		kvt_json_int(&group->page_bytes, in, "page_bytes", 1, KVT_MOST);
		kvt_manifest_take_tables(group, in);
	}
	out->has_layout = true;
}
