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

/* ---- facts (facts.c) ---------------------------------------------------- */

/*
 * 'keys' is one name or several, "n_groups|mamba_n_groups", that must not
 * contradict each other.  A fact that is absent is the family's default, which
 * is noted; kvt_config_get() leaves *out as it is where there is none,
 * kvt_config_need() refuses.  Numbers are 1 to 2^20.
 */
KVT_MUST_CHECK enum kvt_status
kvt_config_get(int64_t *out, struct config *c, const char *keys);
KVT_MUST_CHECK enum kvt_status
kvt_config_need(int64_t *out, struct config *c, const char *keys);

/* head_dim, or what is left of hidden_size for each query head. */
KVT_MUST_CHECK enum kvt_status kvt_config_head_dim(int64_t *out, struct config *c);

/* An absent key leaves *out as it is. */
KVT_MUST_CHECK enum kvt_status
kvt_config_flag(bool *out, struct config *c, const char *key);

/* A file that lists caches instead (list.c). */
KVT_MUST_CHECK enum kvt_status
kvt_config_list(struct kvt_model_config *out, const struct kvt_json *in,
		const json_t *groups, const struct kvt_config_hints *hints);

void kvt_config_note(struct config *c, const char *format, ...) KVT_PRINTF(2, 3);

/* ---- layers (layers.c) -------------------------------------------------- */

/* Fills in kind, count and nlayers. */
KVT_MUST_CHECK enum kvt_status kvt_config_layers(struct config *c);
/* Is num_hidden_layers there? */
KVT_MUST_CHECK enum kvt_status kvt_config_need_layers(struct config *c);

config_step kvt_layers_full, kvt_layers_window, kvt_layers_upper_window,
	    kvt_layers_pattern, kvt_layers_alternate, kvt_layers_chunk,
	    kvt_layers_period, kvt_layers_indices, kvt_layers_state, kvt_layers_letters,
	    kvt_layers_interval, kvt_layers_both, kvt_layers_sparse, kvt_layers_ratios,
	    kvt_layers_kda, kvt_layers_full_indices, kvt_layers_type_list;

/* ---- caches (caches.c, states.c) ---------------------------------------- */

/* No more groups than there is room for are ever added. */
void kvt_config_add(struct config *c, const char *name, const char *spec, int64_t layers,
		    const struct kvt_spec_args *args);

config_step kvt_caches_gqa, kvt_caches_mla, kvt_caches_v4;
config_step kvt_states_mamba1, kvt_states_mamba2, kvt_states_nemotron, kvt_states_bamba,
	    kvt_states_falcon, kvt_states_gdn, kvt_states_kda, kvt_states_short_conv,
	    kvt_states_lightning;

#endif
