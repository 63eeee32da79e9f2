/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft.c - what speculative decoding adds to the caches of a model
 *
 * Of every draft token a request has one more state, and a conv state one more tap, so
 * that it can be taken back.  Layers that draft have caches of their own: those of the
 * model (MTP) like its other layers, those of a draft model or an Eagle head as it says.
 */
#include "lib/kvt/model.h"

#include <stdio.h>
#include <string.h>

static enum kvt_status unknown(const struct kvt_model_group *g, const char *what,
			       struct kvt_error *err)
{
	return kvt_fail(err, KVT_UNSUPPORTED, "%s: %s, %s", g->name, g->spec, what);
}

/* Drafts are states of their own; of a conv state their inputs are taps, too. */
static enum kvt_status add_states(struct kvt_model_group *g, int64_t tokens,
				  struct kvt_error *err)
{
	enum kvt_kind kind;

	if (!kvt_spec_kind(&kind, g->spec) || !kvt_is_recurrent(kind))
		return KVT_OK;
	if (!strncmp(g->spec, "mamba1-", 7) || !strcmp(g->spec, "short-conv") ||
	    !strcmp(g->spec, "linear-attention"))
		return unknown(g, "which vLLM does not keep for draft tokens", err);
	g->args.drafts = tokens;
	if (kind == KVT_MAMBA_CONV)
		g->args.spec_tokens += tokens;
	return KVT_OK;
}

/*
 * Layers that draft are like those that keep all tokens, if these are all alike; each has
 * an indexer of its own where the others have.
 */
static enum kvt_status add_layers(struct kvt_model_group *g, int64_t layers, bool *found,
				  struct kvt_error *err)
{
	enum kvt_spec_class c = kvt_spec_class_of(g->spec, &g->args);

	if (c == KVT_CLASS_STATE)
		return KVT_OK;
	if ((c != KVT_CLASS_FULL && c != KVT_CLASS_MLA) ||
	    (*found && strncmp(g->spec, "indexer", 7)))
		return unknown(g, "so it is not known what layers that draft keep", err);
	g->layers += layers;
	*found = true;
	return KVT_OK;
}

enum kvt_status kvt_model_draft(struct kvt_model *model, int64_t tokens, int64_t layers,
				struct kvt_error *err)
{
	struct kvt_model out = *model;
	bool found = false;

	for (int i = 0; i < out.ngroups; i++) {
		struct kvt_model_group *g = &out.group[i];
		enum kvt_spec_class c = kvt_spec_class_of(g->spec, &g->args);
		enum kvt_status status;

		if (c == KVT_CLASS_RING || c == KVT_CLASS_HOT)
			return unknown(g, "whose size with draft tokens is not known",
				       err);
		if ((status = add_states(g, tokens, err)) ||
		    (layers && (status = add_layers(g, layers, &found, err))))
			return status;
	}
	if (layers && !found)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"no layer keeps all tokens, so it is not known what layers that draft keep");
	out.nlayers = 0;
	*model = out;
	return KVT_OK;
}

static bool same_cache(const struct kvt_model_group *a, const struct kvt_model_group *b)
{
	return !strcmp(a->spec, b->spec) && !memcmp(&a->args, &b->args, sizeof(a->args));
}

enum kvt_status kvt_model_join(struct kvt_model *model, const struct kvt_model *draft,
			       struct kvt_error *err)
{
	model->nlayers = 0;
	for (int i = 0; i < draft->ngroups; i++) {
		const struct kvt_model_group *g = &draft->group[i];
		struct kvt_model_group *to = NULL;

		for (int j = 0; j < model->ngroups && !to; j++)
			if (same_cache(&model->group[j], g))
				to = &model->group[j];
		if (to) {
			to->layers += g->layers;
			continue;
		}
		if (model->ngroups == KVT_MODEL_GROUPS)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"a model and what drafts for it have more than %d groups",
					KVT_MODEL_GROUPS);
		to = &model->group[model->ngroups++];
		*to = *g;
		snprintf(to->name, sizeof(to->name), "draft-%.20s", g->name);
	}
	return KVT_OK;
}
