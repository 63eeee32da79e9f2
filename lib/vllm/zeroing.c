/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zeroing.c - are fresh blocks of a cache zeroed?
 *
 * As vLLM decides it: where there is a recurrent state, and since 0.32 where layers of
 * attention that share a pool differ in type or quantisation.
 */
#include "lib/kvt/choice.h"

#include <string.h>

static bool same(const char *a, const char *b)
{
	return !strcmp(a ? a : "", b ? b : "");
}

bool kvt_needs_zeroing(enum kvt_release release, const struct kvt_zeroing_spec *spec,
		       int n)
{
	const struct kvt_zeroing_spec *first = NULL;

	for (int i = 0; i < n; i++) {
		if (spec[i].kind == KVT_ZEROING_STATE)
			return true;
		/* types came into it with 0.32 */
		if (spec[i].kind != KVT_ZEROING_ATTENTION || spec[i].host_resident ||
		    release < KVT_VLLM_0_32)
			continue;
		if (first && (!same(first->dtype, spec[i].dtype) ||
			      !same(first->quant, spec[i].quant)))
			return true;
		first = &spec[i];
	}
	return false;
}
