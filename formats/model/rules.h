/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - what the rules of model families work on: a config.json while it is read
 *
 *	config.c	the text model's object, its family (families.c, infer.c), then
 *	types.c		  of which type caches and states are
 *	keys.c		  is every key known?
 *	layers.c	  c->kind[i] of each layer; variants.c: what keys change in it
 *	caches.c	  groups of attention layers; indexed.c, heads.c
 *	states.c	  groups of recurrent ones
 *	held.c		  the same as transformers holds it, where that is asked
 *
 * A step returns at the first contradiction.  What is taken and not said in the file is
 * noted.
 */
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
	LAYER_SHARED,		/* sparse, by the choice of a layer before it */
	LAYER_SOURCE1, LAYER_SOURCE2,	/* V4.1: what others read, of 1 or 2 tokens */
	LAYER_CROSS,		/* the tokens of an encoder, which are not counted */
	LAYER_BOTH_WINDOW,	/* a window, and a state */
	LAYER_KINDS
};
#define KIND(k) (1u << (k))

enum {
	CONFIG_LAYERS = 4096,
	CONFIG_RUN_ELEM = 2,	/* bytes: what vLLM runs is bfloat16 or float16 */
};

struct config;
typedef enum kvt_status config_step(struct config *c);

struct config_family {
	const char *types;		/* model_type, in either config of a nested one */
	config_step *layers;		/* where no list of layers is given */
	config_step *choose;		/* what changes some of them, or NULL */
	config_step *attention;		/* NULL: has none */
	config_step *state;		/* NULL: has none */
	const char *types_key;		/* list of layers; NULL: "layer_types" */
	bool list_rules;		/* num_hidden_layers may be wrong */
	bool twice_window;		/* heads of layers with a window, by default */
	const char *layout;		/* that its backends demand; NULL: any */
	bool no_float16;		/* vLLM runs it in bfloat16 instead */
	const char *auto_type;		/* the cache's; NULL: the model's */
	const char *auto_depends;	/* "this or that": on the GPU; or NULL */
	const char *state_key;		/* which the class reads; NULL: none */
	const char *state_type;		/* without it; NULL: the model's */
	const char *state_why;		/* with a key: why that type */
	int64_t chunk;			/* tokens whose states vLLM 0.26 keeps, or 0 */
	const char *defaults;		/* "KEY N KEY N" of the class in transformers */
};

struct config {
	struct kvt_json in;		/* the text model's */
	const struct config_family *family;
	const struct kvt_config_hints *hints;
	struct config_family made;	/* of the keys, where the file's type has none */
	const char *type;		/* as the file has it, or --as */
	bool told;			/* by --as, and not by the file, too */
	bool unknown;			/* the type has no row of its own */
	bool foreign;			/* the file is of another family */
	struct kvt_model_config *out;
	int64_t nlayers;
	unsigned char kind[CONFIG_LAYERS];
	int64_t count[LAYER_KINDS], first[LAYER_KINDS];
	int64_t begins[KVT_MODEL_GROUPS];	/* the first layer of each group */
	unsigned kinds[KVT_MODEL_GROUPS];	/* the layers that it is of */
	int64_t rank[LAYER_KINDS], rope[LAYER_KINDS];	/* of latents */
	int64_t state_heads;		/* of a Mamba-1 layer; 0: it has none */
	int64_t more;			/* tokens that a prompt of the model's adds */
	json_t *layer;			/* 'in', while it is that of some layers */
	const json_t *of_all;		/* what it is then of all of them */
};

/* Names of one fact; the first is that of messages. */
#define KEYS_HIDDEN "hidden_size|n_embd|d_model"
#define KEYS_HEADS "num_attention_heads|n_head|n_heads|attention_heads|num_heads"
#define KEYS_SCONV "sconv_kernel_size|conv_kernel_size"
#define KEYS_DECODER_HEADS "decoder_attention_heads|num_decoder_attention_heads"

/* ---- facts (facts.c) ---------------------------------------------------- */

/*
 * 'keys' is one name or several, "n_groups|mamba_n_groups", that must not
 * contradict each other.  A fact that is absent, and not null, is the default of the
 * file's own family, which is noted; where there is none kvt_config_get() leaves *out as
 * it is, and kvt_config_need() refuses.  Numbers are 1 to 2^20.
 */
KVT_MUST_CHECK enum kvt_status
kvt_config_get(int64_t *out, struct config *c, const char *keys);
KVT_MUST_CHECK enum kvt_status
kvt_config_need(int64_t *out, struct config *c, const char *keys);

/* An absent key leaves *out as it is. */
KVT_MUST_CHECK enum kvt_status
kvt_config_flag(bool *out, struct config *c, const char *key);

/* A list with an entry a layer, and some for drafts; NULL: absent. */
KVT_MUST_CHECK enum kvt_status
kvt_config_layer_list(const json_t **out, struct config *c, const char *key);
/* The same; NULL: empty, too. */
KVT_MUST_CHECK enum kvt_status
kvt_config_used_list(const json_t **out, struct config *c, const char *key);

/* Absent, null, false, 0, nothing between brackets: not in use. */
bool kvt_config_is_off(const json_t *value);

/*
 * In between, facts are those of the layers of this kind: per_layer_config has what is
 * different of them.  KVT_UNSUPPORTED: it is not the same for all.
 */
KVT_MUST_CHECK enum kvt_status kvt_config_enter_kind(struct config *c, int kind);
void kvt_config_leave_kind(struct config *c);

/* Is num_hidden_layers there? */
KVT_MUST_CHECK enum kvt_status kvt_config_need_layers(struct config *c);

/* A file that lists caches instead (list.c). */
KVT_MUST_CHECK enum kvt_status
kvt_config_list(struct kvt_model_config *out, const struct kvt_json *in,
		const json_t *groups, const struct kvt_config_hints *hints);

/* What follows a word of so many characters in "a b c", NULL where it is none of them. */
const char *kvt_config_word(const char *words, const char *word, size_t n);

void kvt_config_note(struct config *c, const char *format, ...) KVT_PRINTF(2, 3);

/* ---- types (types.c) ---------------------------------------------------- */

/* dtype, cache_dtype and no_auto of c->out; 'outer' is the whole file. */
KVT_MUST_CHECK enum kvt_status
kvt_config_types(struct config *c, const struct kvt_json *outer);

/* The type that vLLM runs weights of this one in. */
const char *kvt_config_run_type(const struct kvt_dtype *dtype);
void kvt_config_set_auto(struct kvt_model_config *out, const char *cache_dtype);

/* Bytes of an element of the SSM state. */
KVT_MUST_CHECK enum kvt_status kvt_config_state_elem(int64_t *out, struct config *c);

/* ---- families (families.c) ----------------------------------------------- */

/* NULL: the type has no row. */
const struct config_family *kvt_config_family(const char *type);

/* ---- a type without a row (infer.c) -------------------------------------- */

/* Chooses rules by the keys that are there. */
void kvt_config_infer(struct config *c);
/* The note that says so, once the layers are known. */
void kvt_config_note_inferred(struct config *c);
/* The object that the keys of layers and heads stand in. */
KVT_MUST_CHECK enum kvt_status
kvt_config_text(struct kvt_json *out, const struct kvt_json *outer);

/* ---- transformers (held.c) ----------------------------------------------- */

/* Fills in hints->held, once all groups are there. */
KVT_MUST_CHECK enum kvt_status kvt_config_hold(struct config *c);

/* ---- keys (keys.c) ------------------------------------------------------ */

/* Refuses a key that may concern a cache and that no rule of the family reads. */
KVT_MUST_CHECK enum kvt_status
kvt_config_check_keys(const struct config *c, const struct kvt_json *outer);

/* ---- heads (heads.c) ---------------------------------------------------- */

/* head_dim, or what is left of hidden_size for each query head. */
KVT_MUST_CHECK enum kvt_status kvt_config_head_dim(int64_t *out, struct config *c);
/* Heads of queries. */
KVT_MUST_CHECK enum kvt_status kvt_config_queries(int64_t *out, struct config *c);
/* Heads of keys, by whatever name, and their widths. */
KVT_MUST_CHECK enum kvt_status
kvt_config_heads(struct kvt_spec_args *args, struct config *c);
/* Changes what layers with a window have of their own. */
KVT_MUST_CHECK enum kvt_status
kvt_config_window_heads(struct kvt_spec_args *args, struct config *c);
/* Of each layer, by block_configs; 0: none.  *found: is it there? */
KVT_MUST_CHECK enum kvt_status
kvt_config_block_heads(int64_t *heads, bool *found, struct config *c);

/* ---- layers (layers.c, variants.c) -------------------------------------- */

/* Fills in kind, count and nlayers. */
KVT_MUST_CHECK enum kvt_status kvt_config_layers(struct config *c);

/* What some keys change in it, of keys and values; 'listed': words list the layers. */
KVT_MUST_CHECK enum kvt_status kvt_config_variants(struct config *c, bool listed);

config_step kvt_layers_full, kvt_layers_window, kvt_layers_upper_window,
	    kvt_layers_pattern, kvt_layers_alternate, kvt_layers_chunk,
	    kvt_layers_period, kvt_layers_indices, kvt_layers_state, kvt_layers_letters,
	    kvt_layers_interval, kvt_layers_both, kvt_layers_sparse, kvt_layers_ratios,
	    kvt_layers_kda, kvt_layers_full_indices, kvt_layers_type_list,
	    kvt_layers_glm5, kvt_layers_freq, kvt_layers_inkling,
	    kvt_layers_dsv41, kvt_layers_hybrid, kvt_layers_local,
	    kvt_layers_pairs;
config_step kvt_choose_indexers, kvt_choose_listed, kvt_choose_sparse,
	    kvt_choose_last_full;

/* ---- caches (caches.c, states.c) ---------------------------------------- */

/*
 * The layers of some kinds, KIND(k) | ..., cache this; nothing is added where there are
 * none, and no more groups than there is room for ever are.
 */
void kvt_config_add(struct config *c, const char *name, const char *spec, unsigned kinds,
		    const struct kvt_spec_args *args);
/* The same of so many layers, from the 'first' on. */
void kvt_config_add_some(struct config *c, const char *name, const char *spec,
			 int64_t layers, int64_t first, const struct kvt_spec_args *args);
/* Rows of an indexer are those of one head of 128, which a kernel demands. */
KVT_MUST_CHECK enum kvt_status kvt_config_indexer(struct config *c);

config_step kvt_caches_gqa, kvt_caches_mla, kvt_caches_v4, kvt_caches_gemma4,
	    kvt_caches_glm5, kvt_caches_qwen4, kvt_caches_minimax_m3, kvt_caches_dsv41,
	    kvt_caches_dots3, kvt_caches_inkling, kvt_caches_cca;
config_step kvt_states_mamba1, kvt_states_mamba2, kvt_states_nemotron, kvt_states_bamba,
	    kvt_states_gdn, kvt_states_kda, kvt_states_short_conv,
	    kvt_states_lightning, kvt_states_qwen4;

#endif
