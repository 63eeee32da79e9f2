/* SPDX-License-Identifier: Apache-2.0 */
/* spec_text.c - caches as words, and as a config.json */
#include "cli/spec_text.h"
#include "cli/opt.h"
#include "cli/text_file.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define KEY(n, m) { n, offsetof(struct kvt_model_group, m) }
static const struct {
	const char *name;
	size_t offset;
} keys[] = {
	KEY("layers", layers), KEY("heads", args.heads), KEY("head-dim", args.head_dim),
	KEY("head-dim-v", args.head_dim_v), KEY("latent", args.latent),
	KEY("ratio", args.ratio), KEY("window", args.window), KEY("inter", args.inter),
	KEY("groups", args.groups), KEY("state-size", args.state_size),
	KEY("key-heads", args.key_heads), KEY("key-dim", args.key_dim),
	KEY("kernel", args.kernel), KEY("spec-tokens", args.spec_tokens),
	KEY("elem", args.elem), KEY("block-size", args.block_size),
};
enum { NKEYS = sizeof(keys) / sizeof(keys[0]) };

static enum kvt_status take_number(struct kvt_model_group *g, const char *key,
				   const char *value, struct kvt_error *err)
{
	int64_t n;

	for (int i = 0; i < NKEYS; i++) {
		if (strcmp(keys[i].name, key))
			continue;
		if (value[strspn(value, "0123456789")] || !size_parse(&n, value) || n < 1)
			return kvt_fail(err, KVT_BAD_INPUT,
					"--spec: %s is '%.40s', expected a whole number "
					"above 0", key, value);
		memcpy((char *)g + keys[i].offset, &n, sizeof(n));
		return KVT_OK;
	}
	return kvt_fail(err, KVT_USAGE, "--spec: there is no key '%.40s'", key);
}

enum kvt_status spec_parse(struct kvt_model_group *out, char *word, struct kvt_error *err)
{
	struct kvt_model_group g = { .name = "g0", .spec = word };
	char *at = strchr(word, ':');
	enum kvt_status status = KVT_OK;

	if (at)
		*at++ = '\0';
	while (!status && at) {
		char *value = strchr(at, '='), *next;

		if (!value)
			return kvt_fail(err, KVT_USAGE,
					"--spec: '%.60s', expected KEY=N", at);
		*value++ = '\0';
		if ((next = strchr(value, ',')))
			*next++ = '\0';
		status = take_number(&g, at, value, err);
		at = next;
	}
	if (!status)
		*out = g;
	return status;
}

struct spec_text spec_text(const struct kvt_model_group *group)
{
	struct spec_text out;
	size_t n = (size_t)snprintf(out.s, sizeof(out.s), "%.40s", group->spec);
	char mark = ':';

	for (int i = 0; i < NKEYS; i++) {
		int64_t value;

		memcpy(&value, (const char *)group + keys[i].offset, sizeof(value));
		if (!value || n >= sizeof(out.s))
			continue;
		n += (size_t)snprintf(out.s + n, sizeof(out.s) - n, "%c%s=%lld", mark,
				      keys[i].name, (long long)value);
		mark = ',';
	}
	return out;
}

enum kvt_status config_read(struct kvt_model_config *out, const char *path,
			    const struct kvt_config_hints *hints, struct kvt_error *err)
{
	enum { MOST = 16 << 20 };
	enum kvt_status status;
	size_t nbytes;
	char *text;

	if ((status = text_file_read(&text, &nbytes, path, MOST, err)))
		return status;
	status = kvt_model_config_parse(out, text, nbytes, path, hints, err);
	free(text);
	return status;
}
