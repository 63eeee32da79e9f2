/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_config.c - any text as a model's config.json: refused with a sentence, or
 * caches whose sizes can be worked out or refused
 */
#include <stdlib.h>

#include "formats/model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* All layers are in a group once, no group is larger than a block, and none is empty. */
static void check_pool(const struct kvt_model_size *size)
{
	static const char *const names[] = { "LBNHC", "BLHNC", "BHLNC" };
	int64_t layers = 0, packed;

	for (int i = 0; i < size->ngroups; i++)
		if (kvt_state_groups(size, i) != 2)	/* its SSM state counts */
			layers += size->group[i].group.layers;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct kvt_error err = { "" };
		struct kvt_layout layout;
		struct kvt_pack pack;

		if (kvt_layout_parse(&layout, names[i], &err))
			abort();
		if (kvt_model_pack(&pack, size, &layout, &err)) {
			if (!err.text[0])
				abort();
			continue;
		}
		packed = 0;
		for (int r = 0; r < pack.nruns; r++) {
			if (pack.run[r].nparts < 1 || pack.run[r].nbytes < 1 ||
			    pack.run[r].nbytes > pack.block_nbytes)
				abort();
			for (int k = 0; k < pack.run[r].nparts; k++)
				packed += pack.run[r].times * pack.run[r].part[k].layers;
		}
		if (packed != layers)
			abort();
	}
}

/* More ranks never hold more, and more tokens never take less. */
static void check_sizes(const struct kvt_model *model)
{
	int64_t before = INT64_MAX;

	for (int64_t tp = 1; tp <= 64; tp *= 8) {
		struct kvt_deployment d = { .tp = tp, .block_size = 16,
					    .cache_dtype = "bfloat16", .apart = true,
					    .release = KVT_NEWEST_RELEASE };
		struct kvt_error err = { "" };
		struct kvt_model_size out;
		int64_t fit;

		if (kvt_model_size(&out, model, &d, &err)) {
			if (!err.text[0])
				abort();
			continue;
		}
		if (kvt_model_request(&out, 100) > before ||
		    kvt_model_request(&out, 100) > kvt_model_request(&out, 5000))
			abort();
		before = kvt_model_request(&out, 100);
		check_pool(&out);
		fit = kvt_model_tokens(&out, INT64_C(1) << 36);
		if (fit >= 0 && kvt_model_request(&out, fit) > INT64_C(1) << 36)
			abort();
		d.apart = false;
		if (!kvt_model_size(&out, model, &d, &err) && out.state_padded <
							      out.state_page)
			abort();
	}
}

/* What transformers holds: each layer of a kind that is there, in shapes of sizes. */
static void check_held(const uint8_t *data, size_t size)
{
	static struct kvt_held held;
	const struct kvt_config_hints hints = { .held = &held };
	struct kvt_model_config config;
	struct kvt_error err = { "" };

	held = (struct kvt_held){ .tokens = 7 };
	if (kvt_model_config_parse(&config, (const char *)data, size, "config", &hints,
				   &err)) {
		if (!err.text[0])
			abort();
		return;
	}
	if (held.layers < 1 || held.layers > KVT_HELD_LAYERS || !held.cache)
		abort();
	for (int64_t i = 0; i < held.layers; i++) {
		const struct kvt_held_kind *of = &held.of[held.kind[i]];

		if (!of->type || of->ntensors > KVT_HELD_TENSORS)
			abort();
		for (int t = 0; t < of->ntensors; t++)
			for (int d = 0; d < of->tensor[t].ndims; d++)
				if (of->tensor[t].shape[d] < 0)
					abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct kvt_config_hints none = { .nset = 0 };
	struct kvt_model_config config;
	struct kvt_error err = { "" };

	check_held(data, size);
	if (kvt_model_config_parse(&config, (const char *)data, size, "config", &none,
				   &err)) {
		if (!err.text[0])
			abort();
		return 0;
	}
	if (config.model.ngroups < 1 || config.layers < 1)
		abort();
	for (int i = 0; i < config.model.ngroups; i++)
		if (config.model.group[i].layers < 1 ||
		    config.model.group[i].layers > config.layers)
			abort();
	check_sizes(&config.model);
	return 0;
}
