/* SPDX-License-Identifier: Apache-2.0 */
/* kind.c - names of the kinds of cache, as snapshots store them */
#include "lib/kvt/kind.h"

#include <string.h>

static const char *const names[KVT_NKINDS] = {
	[KVT_FULL_ATTENTION] = "full_attention",
	[KVT_SLIDING_WINDOW] = "sliding_window",
	[KVT_CHUNKED_LOCAL]  = "chunked_local",
	[KVT_MLA]            = "mla",
	[KVT_MAMBA_CONV]     = "mamba_conv",
	[KVT_MAMBA_SSM]      = "mamba_ssm",
	[KVT_CROSS]          = "cross",
	[KVT_OPAQUE]         = "opaque",
	[KVT_RSWA]           = "rswa",
};

const char *kvt_kind_name(enum kvt_kind kind)
{
	return names[kind];
}

bool kvt_kind_find(enum kvt_kind *out, const char *name)
{
	for (int i = 0; i < KVT_NKINDS; i++)
		if (!strcmp(name, names[i])) {
			*out = (enum kvt_kind)i;
			return true;
		}
	return false;
}
