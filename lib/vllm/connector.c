/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connector.c - the order of a cache that each of vLLM's connectors asks for
 *
 * Most ask for none.  The others are a few rules, and a row says since and until which
 * release a connector has one; of several connectors together all must agree.
 */
#include "lib/kvt/choice.h"

#include <string.h>

enum rule { NOTHING, HEADS_FIRST, SLOTS_FIRST, PACKED, OFFLOAD, SEVERAL };

#define ALL KVT_VLLM_0_22, KVT_NEWEST_RELEASE
#define SINCE(release) KVT_VLLM_0_##release, KVT_NEWEST_RELEASE

static const struct {
	const char *name;
	enum kvt_release since, until;
	enum rule rule;
} connectors[] = {
	{ "DecodeBenchConnector", ALL, NOTHING },
	{ "ExampleConnector", ALL, NOTHING },
	{ "ExampleHiddenStatesConnector", ALL, SLOTS_FIRST },
	{ "FlexKVConnectorV1", ALL, NOTHING },
	{ "HF3FSKVConnector", ALL, NOTHING },
	{ "HiSparseConnector", SINCE(32), PACKED },
	{ "LMCacheConnectorV1", ALL, NOTHING },
	{ "LMCacheMPConnector", ALL, NOTHING },
	{ "MoRIIOConnector", ALL, NOTHING },
	{ "MooncakeConnector", ALL, HEADS_FIRST },
	{ "MooncakeStoreConnector", ALL, NOTHING },
	{ "MultiConnector", ALL, SEVERAL },
	{ "NixlConnector", ALL, HEADS_FIRST },
	{ "NixlPullConnector", SINCE(24), HEADS_FIRST },
	{ "NixlPushConnector", SINCE(24), HEADS_FIRST },
	{ "OffloadingConnector", ALL, OFFLOAD },
	{ "P2pNcclConnector", KVT_VLLM_0_22, KVT_VLLM_0_22, NOTHING },
	{ "SimpleCPUOffloadConnector", ALL, NOTHING },
};
enum { NCONNECTORS = sizeof(connectors) / sizeof(connectors[0]) };

static bool is_in(int i, enum kvt_release release)
{
	return connectors[i].since <= release && release <= connectors[i].until;
}

const char *kvt_connector_at(enum kvt_release release, int i)
{
	for (int at = 0; i >= 0 && at < NCONNECTORS; at++)
		if (is_in(at, release) && !i--)
			return connectors[at].name;
	return NULL;
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
		return m->hisparse && m->release >= KVT_VLLM_0_32 ? KVT_BLHNC : KVT_LBHNC;
	case NOTHING:
	case SEVERAL:
		break;
	}
	return -1;
}

/* "nixl" is not known: the engine takes the name of the class. */
static enum kvt_status find(int *out, const char *name, enum kvt_release release,
			    struct kvt_error *err)
{
	for (int i = 0; i < NCONNECTORS; i++)
		if (!strcmp(connectors[i].name, name)) {
			*out = i;
			if (is_in(i, release))
				return KVT_OK;
			return kvt_fail(err, KVT_USAGE,
					"release %s of vLLM has no %s, which is there %s %s",
					kvt_release_name(release), name,
					release < connectors[i].since ? "since" : "until",
					kvt_release_name(release < connectors[i].since ?
							 connectors[i].since :
							 connectors[i].until));
		}
	return kvt_fail(err, KVT_USAGE,
			"'%.60s' is no connector of vLLM, expected a name such as NixlConnector; 'kvtool expect connector' lists them", name);
}

static const char *name_of(int layout, const struct kvt_connector_model *m)
{
	return kvt_kv_layout_word((enum kvt_kv_layout)layout, m->release);
}

enum kvt_status kvt_connector_layout(int *out, const char *const *name, int n,
				     const struct kvt_connector_model *model,
				     struct kvt_error *err)
{
	int layout = -1, whose = 0, at = 0;
	enum kvt_status status;

	for (int i = 0; i < n; i++) {
		int one;

		if ((status = find(&at, name[i], model->release, err)))
			return status;
		if (connectors[at].rule == SEVERAL && n > 1)
			return kvt_fail(err, KVT_USAGE,
					"%s is what several connectors are already",
					name[i]);
		one = layout_of(connectors[at].rule, model);
		if (one >= 0 && layout >= 0 && one != layout)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s asks for %s, %s for %s: they cannot be used together",
					name[whose], name_of(layout, model), name[i],
					name_of(one, model));
		if (one >= 0 && layout < 0) {
			layout = one;
			whose = i;
		}
	}
	*out = layout;
	return KVT_OK;
}
