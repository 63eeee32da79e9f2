/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_config.c - any text as a model's config.json: refused with a sentence, or
 * caches whose sizes can be worked out or refused
 */
#include <stdlib.h>

#include "formats/model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* More ranks never hold more, and more tokens never take less. */
static void check_sizes(const struct kvt_model *model)
{
	int64_t before = INT64_MAX;

	for (int64_t tp = 1; tp <= 64; tp *= 8) {
		struct kvt_deployment d = { .tp = tp, .block_size = 16,
					    .cache_dtype = "bfloat16", .apart = true };
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
		fit = kvt_model_tokens(&out, INT64_C(1) << 36);
		if (fit >= 0 && kvt_model_request(&out, fit) > INT64_C(1) << 36)
			abort();
		d.apart = false;
		if (!kvt_model_size(&out, model, &d, &err) && out.state_padded <
							      out.state_page)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct kvt_config_hints none = { .nset = 0 };
	struct kvt_model_config config;
	struct kvt_error err = { "" };

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
