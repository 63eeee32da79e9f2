/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptor.c - the JSON that describes a tier of Dynamo's KVBM
 *
 * In: a LayoutDescriptor of version 1, or its LayoutConfig alone.  Out: extents, bytes
 * of an element, the order of axes, and whether layers have buffers of their own.
 * Addresses in it are of a process that is gone, and are not read.
 *
 *	{"version": 1,
 *	 "layout_config": {"num_blocks": 64, "num_layers": 32, "outer_dim": 2,
 *			   "page_size": 16, "inner_dim": 1024,
 *			   "dtype_width_bytes": 2, "alignment": 256, "num_heads": 8},
 *	 "layout_type_details":
 *		{"FullyContiguous": {"kv_block_layout": "OperationalNHD"}}, or
 *		{"LayerSeparate": {"kv_block_layout": .., "block_dim": ..}},
 *	 "memory_descriptors": [{"size": ..}, ..]}
 *
 *	FullyContiguous	B, then the axes of orders[]
 *	LayerSeparate	of each layer B K S H D; with BlockIsSecondDim K B S H D
 *
 * 'inner_dim' is heads times elements; 'outer_dim' 2 is keys and values.  Facts: as in
 * kvbm/format.c.
 */
#include "formats/kvbm/kvbm.h"

#include <string.h>

#include "formats/parse/json.h"

enum { MOST = 1 << 30 };

/* ---- axes --------------------------------------------------------------- */

static const struct order {
	const char *name, *axes;	/* of a block */
} orders[] = {
	{ "OperationalNHD", "LKSHD" }, { "OperationalHND", "LKHSD" },
	{ "UniversalTP", "HLKSD" }, { "Universal", "HLKSD" }, { "UniversalPP", "LHKSD" },
};

/* {"Custom": ["Head", "Layer", "Outer", "Page"]} */
static enum kvt_status custom_axes(char axes[8], const json_t *value,
				   const struct kvt_json *in)
{
	static const struct {
		const char *name;
		char letter;
	} dims[] = {
		{ "Layer", 'L' }, { "Outer", 'K' }, { "Page", 'S' }, { "Head", 'H' },
	};
	const json_t *list = json_object_get(value, "Custom");
	int n = 0;

	axes[0] = '\0';
	for (size_t i = 0; i < 4; i++) {
		const char *name = json_string_value(json_array_get(list, i));

		for (size_t d = 0; name && d < 4; d++)
			if (!strcmp(name, dims[d].name) &&
			    !strchr(axes, dims[d].letter)) {
				axes[n++] = dims[d].letter;
				axes[n] = '\0';
			}
	}
	if (n != 4 || json_array_size(list) != 4)
		return kvt_json_bad(in,
				    "a custom kv_block_layout is not an order of Layer, Outer, Page and Head");
	strcpy(axes + 4, "D");
	return KVT_OK;
}

static enum kvt_status block_axes(char axes[8], const struct kvt_json *details)
{
	const json_t *value = json_object_get(details->object, "kv_block_layout");
	const char *name = json_string_value(value);

	axes[0] = '\0';
	if (json_is_object(value))
		return custom_axes(axes, value, details);
	if (!value || (name && !strcmp(name, "Unknown")))
		return KVT_OK;
	for (size_t i = 0; name && i < sizeof(orders) / sizeof(orders[0]); i++)
		if (!strcmp(name, orders[i].name)) {
			strcpy(axes, orders[i].axes);
			return KVT_OK;
		}
	return kvt_json_refuse(details, KVT_UNSUPPORTED,
			       "kv_block_layout is '%.40s', which is not known",
			       name ? name : "not a text");
}

/* The axes of the file, blocks and all; content that is one has no K. */
static void join_axes(struct kvt_kvbm *out, const char *block, bool block_second)
{
	char *p = out->axes;

	if (!*block)
		return;
	if (out->separate) {
		/* layers are files; of each, blocks or keys and values come first */
		p += sprintf(p, block_second ? "LKB" : "LBK");
		sprintf(p, "%s", block + 2);
	} else {
		sprintf(p, "B%s", block);
	}
	if (out->outer == 1) {
		p = strchr(out->axes, 'K');
		memmove(p, p + 1, strlen(p));
	}
}

static enum kvt_status take_details(struct kvt_kvbm *out, const struct kvt_json *in)
{
	struct kvt_json details, whole, apart;
	const char *dim = NULL;
	enum kvt_status status;
	bool second;
	char axes[8];

	if ((status = kvt_json_object(&details, in, "layout_type_details")) ||
	    (status = kvt_json_object(&whole, &details, "FullyContiguous")) ||
	    (status = kvt_json_object(&apart, &details, "LayerSeparate")))
		return status;
	if (!whole.object == !apart.object)
		return kvt_json_bad(in,
				    "layout_type_details is neither FullyContiguous nor LayerSeparate");
	out->separate = apart.object != NULL;
	if ((status = block_axes(axes, out->separate ? &apart : &whole)) ||
	    (status = kvt_json_string(&dim, &apart, "block_dim")))
		return status;
	second = dim && !strcmp(dim, "BlockIsSecondDim");
	if (out->separate && !second && (!dim || strcmp(dim, "BlockIsFirstDim")))
		return kvt_json_bad(in,
				    "block_dim is '%.40s', expected BlockIsFirstDim or BlockIsSecondDim",
				    dim ? dim : "missing");
	if (out->separate && axes[0] && strncmp(axes, "LK", 2))
		return kvt_json_bad(in, "separate layers can have only NHD or HND order");
	join_axes(out, axes, second);
	return KVT_OK;
}

/* ---- numbers ------------------------------------------------------------ */

static void take_config(struct kvt_kvbm *out, const struct kvt_json *config)
{
	const struct {
		const char *key;
		int64_t *out, most;
	} rows[] = {
		{ "num_blocks",        &out->blocks,    UINT32_MAX },
		{ "num_layers",        &out->layers,    1 << 20 },
		{ "outer_dim",         &out->outer,     2 },
		{ "page_size",         &out->page,      1 << 24 },
		{ "inner_dim",         &out->inner,     MOST },
		{ "dtype_width_bytes", &out->width,     8 },
		{ "alignment",         &out->alignment, MOST },
		{ "num_heads",         &out->heads,     MOST },
	};
	enum { REQUIRED = 6 };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		kvt_json_int(rows[i].out, config, rows[i].key, 1, rows[i].most);
		if (i < REQUIRED && !*rows[i].out)
			kvt_json_bad(config, "%s is missing", rows[i].key);
	}
}

static void take_regions(struct kvt_kvbm *out, const struct kvt_json *in)
{
	const json_t *list = NULL;
	struct kvt_json first;

	kvt_json_array(&list, in, "memory_descriptors");
	first = kvt_json_of(in, json_array_get(list, 0));
	if (list && !json_is_object(first.object))
		kvt_json_bad(in, "memory_descriptors has an entry that is not an object");
	kvt_json_int(&out->region, &first, "size", 0, INT64_MAX);
}

static void take_descriptor(struct kvt_kvbm *out, const struct kvt_json *in)
{
	struct kvt_json config;
	int64_t version = -1;

	kvt_json_int(&version, in, "version", 0, INT64_MAX);
	kvt_json_object(&config, in, "layout_config");
	if (!config.object && version < 0) {
		take_config(out, in);
		return;
	}
	if (version != 1)
		kvt_json_refuse(in, version < 0 ? KVT_BAD_INPUT : KVT_UNSUPPORTED,
				"version of the descriptor is %lld, expected 1",
				LL(version));
	take_config(out, &config);
	take_details(out, in);
	take_regions(out, in);
}

enum kvt_status kvt_kvbm_parse(struct kvt_kvbm *out, const char *text, size_t nbytes,
			       const char *name, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { NULL, name, err, &status };
	json_t *json;

	*out = (struct kvt_kvbm){ .alignment = 1 };
	if ((status = kvt_json_parse(&json, text, nbytes, name, err)))
		return status;
	in.object = json;
	take_descriptor(out, &in);
	json_decref(json);
	return status;
}
