/* SPDX-License-Identifier: Apache-2.0 */
/* required.c - the order of a cache that each of vLLM's connectors asks for */
#include "lib/kvt/choice.h"

#include <string.h>

enum rule { NOTHING, HEADS_FIRST, SLOTS_FIRST, PACKED, OFFLOAD, SEVERAL };

static const struct {
	const char *name;
	enum rule rule;
} connectors[] = {
	{ "DecodeBenchConnector", NOTHING },
	{ "ExampleConnector", NOTHING },
	{ "ExampleHiddenStatesConnector", SLOTS_FIRST },
	{ "FlexKVConnectorV1", NOTHING },
	{ "HF3FSKVConnector", NOTHING },
	{ "HiSparseConnector", PACKED },
	{ "LMCacheConnectorV1", NOTHING },
	{ "LMCacheMPConnector", NOTHING },
	{ "MoRIIOConnector", NOTHING },
	{ "MooncakeConnector", HEADS_FIRST },
	{ "MooncakeStoreConnector", NOTHING },
	{ "MultiConnector", SEVERAL },
	{ "NixlConnector", HEADS_FIRST },
	{ "NixlPullConnector", HEADS_FIRST },
	{ "NixlPushConnector", HEADS_FIRST },
	{ "OffloadingConnector", OFFLOAD },
	{ "SimpleCPUOffloadConnector", NOTHING },
};
enum { NCONNECTORS = sizeof(connectors) / sizeof(connectors[0]) };

const char *kvt_connector_at(int i)
{
	return i >= 0 && i < NCONNECTORS ? connectors[i].name : NULL;
}

static int layout_of(enum rule rule, const struct kvt_connector_model *m)
{
	switch (rule) {
	case HEADS_FIRST:
		return m->unknown || m->mla ? -1 : KVT_LBHNC;
	case SLOTS_FIRST:
		return KVT_LBNHC;
	case PACKED:
		return KVT_BLHNC;
	case OFFLOAD:
		return m->hisparse ? KVT_BLHNC : KVT_LBHNC;
	case NOTHING:
	case SEVERAL:
		break;
	}
	return -1;
}

/* "nixl" is not known: the engine takes the name of the class. */
static enum kvt_status find(int *out, const char *name, struct kvt_error *err)
{
	for (int i = 0; i < NCONNECTORS; i++)
		if (!strcmp(connectors[i].name, name)) {
			*out = i;
			return KVT_OK;
		}
	return kvt_fail(err, KVT_USAGE,
			"'%.60s' is no connector of vLLM, expected a name such as NixlConnector; 'kvtool expect connector' lists them", name);
}

enum kvt_status kvt_connector_layout(int *out, const char *const *name, int n,
				     const struct kvt_connector_model *model,
				     struct kvt_error *err)
{
	int layout = -1, whose = 0, at = 0;
	enum kvt_status status;

	for (int i = 0; i < n; i++) {
		int one;

		if ((status = find(&at, name[i], err)))
			return status;
		if (connectors[at].rule == SEVERAL && n > 1)
			return kvt_fail(err, KVT_USAGE,
					"%s is what several connectors are already",
					name[i]);
		one = layout_of(connectors[at].rule, model);
		if (one >= 0 && layout >= 0 && one != layout)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s asks for %s, %s for %s: they cannot be used together", name[whose],
					kvt_kv_layout_name((enum kvt_kv_layout)layout),
					name[i],
					kvt_kv_layout_name((enum kvt_kv_layout)one));
		if (one >= 0 && layout < 0) {
			layout = one;
			whose = i;
		}
	}
	*out = layout;
	return KVT_OK;
}
