/* SPDX-License-Identifier: Apache-2.0 */
/*
 * release.c - the releases of vLLM whose facts are known
 *
 * A release stands for those up to the next one here: a row says what changed with it.
 */
#include "lib/kvt/release.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name, *summary;
} releases[KVT_NRELEASES] = {
	[KVT_VLLM_0_22] = { "0.22", "keys and values are two halves of a layer" },
	[KVT_VLLM_0_24] = { "0.24", "keys and values are two halves of a block" },
	[KVT_VLLM_0_26] = { "0.26", "keys and values are side by side in a slot" },
	[KVT_VLLM_0_32] = { "0.32", "the same, and the layout has a name: LBNHC" },
};

const char *kvt_release_name(enum kvt_release release)
{
	return releases[release].name;
}

const char *kvt_release_summary(enum kvt_release release)
{
	return releases[release].summary;
}

struct kvt_text kvt_releases_text(unsigned bits)
{
	struct kvt_text out = { "" };
	size_t n = 0;

	for (int r = 0; r < KVT_NRELEASES; r++)
		if (bits >> r & 1)
			n += (size_t)snprintf(out.s + n, sizeof(out.s) - n, "%s%s",
					      n ? ", " : "", releases[r].name);
	return out;
}

/* A number of its own, such as that of a correction, may follow the name. */
static bool is_it(const char *text, const char *name)
{
	size_t n = strlen(name);

	return !strncmp(text, name, n) &&
	       (!text[n] || (text[n] == '.' && text[n + 1] &&
			     !text[n + 1 + strspn(text + n + 1, "0123456789")]));
}

enum kvt_status kvt_release_parse(enum kvt_release *out, const char *text,
				  struct kvt_error *err)
{
	char known[64] = "";
	size_t n = 0;

	for (int i = 0; i < KVT_NRELEASES; i++) {
		if (is_it(text + (*text == 'v'), releases[i].name)) {
			*out = (enum kvt_release)i;
			return KVT_OK;
		}
		n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s", !i ? "" :
				      i == KVT_NRELEASES - 1 ? " or " : ", ",
				      releases[i].name);
	}
	return kvt_fail(err, KVT_USAGE,
			"'%.40s' is no release of vLLM whose facts are known, expected %s",
			text, known);
}
