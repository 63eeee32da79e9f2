/* SPDX-License-Identifier: Apache-2.0 */
/* rules.h - what the rules of model families work on: a config.json while it is read */
#ifndef KVT_MODEL_RULES_H
#define KVT_MODEL_RULES_H

#include "formats/model/config.h"
#include "formats/parse/json.h"

/* What a layer caches. */
enum layer_kind {
	LAYER_NONE,		/* MLP, experts, or the cache of another layer */
	LAYER_FULL,
	LAYER_WINDOW,
	LAYER_CHUNK,
	LAYER_STATE,
	LAYER_BOTH,		/* keys and values, and a state */
	LAYER_SPARSE,		/* DeepSeek: latents that an indexer chooses from */
	LAYER_C4, LAYER_C128,	/* DeepSeek V4: compressed, beside a window */
	LAYER_KINDS
};

enum { CONFIG_LAYERS = 4096 };

struct config;
typedef enum kvt_status config_step(struct config *c);

struct config_family {
	const char *type;		/* model_type, in either config of a nested one */
	config_step *layers;		/* where no list of layers is given */
	config_step *attention;		/* NULL: has none */
	config_step *state;		/* NULL: has none */
	const char *types_key;		/* list of layers; NULL: "layer_types" */
	bool list_rules;		/* num_hidden_layers may be wrong */
	struct {
		const char *key;
		int64_t value;
	} defaults[6];			/* of the class in transformers */
};

struct config {
	struct kvt_json in;		/* the text model's */
	const struct config_family *family;
	const struct kvt_config_hints *hints;
	struct kvt_model_config *out;
	int64_t nlayers;
	unsigned char kind[CONFIG_LAYERS];
	int64_t count[LAYER_KINDS];
};

/* ---- facts: model_config_facts.c ---------------------------------------- */

/*
 * 'keys' is one name or several, "n_groups|mamba_n_groups", that must not
 * contradict each other.  A fact that is absent is the family's default, which
 * is noted; config_get() leaves *out as it is where there is none,
 * config_need() refuses.  Numbers are 1 to 2^20.
 */
KVT_MUST_CHECK enum kvt_status
config_get(int64_t *out, struct config *c, const char *keys);
KVT_MUST_CHECK enum kvt_status
config_need(int64_t *out, struct config *c, const char *keys);

/* head_dim, or what is left of hidden_size for each query head. */
KVT_MUST_CHECK enum kvt_status config_head_dim(int64_t *out, struct config *c);

/* An absent key leaves *out as it is. */
KVT_MUST_CHECK enum kvt_status
config_flag(bool *out, struct config *c, const char *key);

/* A file that lists caches instead: model_list.c. */
KVT_MUST_CHECK enum kvt_status
config_list(struct kvt_model_config *out, const struct kvt_json *in, const json_t *groups,
	    const struct kvt_config_hints *hints);

void config_note(struct config *c, const char *format, ...) KVT_PRINTF(2, 3);

/* ---- layers: model_config_layers.c, model_config_lists.c ----------------- */

/* Fills in kind, count and nlayers. */
KVT_MUST_CHECK enum kvt_status config_layers(struct config *c);
/* Is num_hidden_layers there? */
KVT_MUST_CHECK enum kvt_status config_need_layers(struct config *c);

config_step layers_full, layers_window, layers_upper_window, layers_pattern,
	    layers_alternate, layers_chunk, layers_period, layers_indices, layers_state,
	    layers_letters, layers_interval, layers_both, layers_sparse, layers_ratios,
	    layers_kda, layers_full_indices, layers_type_list;

/* ---- caches: model_config_caches.c, model_config_states.c ---------------- */

/* No more groups than there is room for are ever added. */
void config_add(struct config *c, const char *name, const char *spec, int64_t layers,
		const struct kvt_spec_args *args);

config_step caches_gqa, caches_mla, caches_v4;
config_step states_mamba1, states_mamba2, states_nemotron, states_bamba, states_falcon,
	    states_gdn, states_kda, states_short_conv, states_lightning;

#endif
