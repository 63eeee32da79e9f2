/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache_told.c - what kvtool said of a cache that it wrote
 *
 * Tensors of keys and values do not say whose tokens they are, nor that a window has
 * passed some.  It stands in the metadata, which is text that anybody may change: it is
 * held against the tensors as what other files say is.
 */
#include "formats/tensor/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

bool kvt_cache_is_own(const uint8_t *header, int64_t n)
{
	return kvt_header_has(header, n, "\"kvtool_cache\"", "\"transformers\"");
}

/* A note that is a number of tokens; -1: there is none. */
static int64_t count_note(const struct kvt_tensors *t, const char *name)
{
	const char *text = kvt_tensors_note(t, name);
	size_t n = text ? strspn(text, "0123456789") : 0;

	return n && n < 11 && !text[n] ? strtoll(text, NULL, 10) : -1;
}

void kvt_cache_tell(struct kvt_tensors *tensors)
{
	const char *own = kvt_tensors_note(tensors, "kvtool_cache");
	int64_t window, number;
	char name[64];

	if (!own || strcmp(own, "transformers"))
		return;
	for (int64_t i = 0; i < tensors->count; i++) {
		struct kvt_held *held = &tensors->tensor[i].held;

		if (!kvt_layer_number(&number, tensors->tensor[i].name))
			continue;
		snprintf(name, sizeof(name), "layers.%lld.sliding_window", LL(number));
		window = count_note(tensors, name);
		held->told = true;
		held->seen = count_note(tensors, "kvtool_tokens");
		held->sliding = kvt_tensors_note(tensors, name);
		held->window = window;
		snprintf(held->class, sizeof(held->class), "%s",
			 held->sliding ? "DynamicSlidingWindowLayer" : "DynamicLayer");
	}
}

const char *kvt_cache_note(const struct kvt_tensors *tensors, const char *what)
{
	static const char *const before[] = { "", "0.", "1." };
	const char *found = NULL;
	char name[48];

	for (int i = 0; !found && i < 3; i++) {
		snprintf(name, sizeof(name), "%skvtool_%s", before[i], what);
		found = kvt_tensors_note(tensors, name);
	}
	return found && found[0] ? found : NULL;
}
