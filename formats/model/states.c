/* SPDX-License-Identifier: Apache-2.0 */
/*
 * states.c - what recurrent layers of a config.json cache
 *
 * Rules for Mamba 1 and 2 and what is built on them, gated delta nets, Kimi delta
 * attention, short convolutions and lightning attention: a conv state and an SSM state
 * each, as far as the family has both.
 *
 * Facts: the classes' own MambaStateShapeCalculator and types of states, as executed by
 * vLLM 0.22.1, 0.26.0 and 0.32.0 on random configs (tests/engines).
 */
#include "formats/model/rules.h"

#include <stdio.h>
#include <string.h>

/* 'args' have the element of the SSM state. */
static void add_both(struct config *c, const char *conv, const char *ssm,
		     const struct kvt_spec_args *args)
{
	const unsigned layers = KIND(LAYER_STATE) | KIND(LAYER_BOTH) |
				KIND(LAYER_BOTH_WINDOW);
	struct kvt_spec_args taps = *args;

	taps.elem = CONFIG_RUN_ELEM;
	kvt_config_add(c, "conv", conv, layers, &taps);
	kvt_config_add(c, "ssm", ssm, layers, args);
}

static enum kvt_status add_states(struct config *c, const char *conv, const char *ssm,
				  struct kvt_spec_args *args)
{
	enum kvt_status status = kvt_config_state_elem(&args->elem, c);

	if (!status)
		add_both(c, conv, ssm, args);
	return status;
}

/* ---- Mamba-1: channels -------------------------------------------------- */

enum kvt_status kvt_states_mamba1(struct config *c)
{
	struct kvt_spec_args args = { .inter = 0 };
	int64_t expand = 0, hidden = 0;
	enum kvt_status status;

	if ((status = kvt_config_need(&args.state_size, c, "mamba_d_state|state_size")) ||
	    (status = kvt_config_need(&args.kernel, c, "mamba_d_conv|conv_kernel")) ||
	    (status = kvt_config_need(&expand, c, "mamba_expand|expand")) ||
	    (status = kvt_config_need(&hidden, c, "hidden_size")))
		return status;
	args.inter = expand * hidden;
	if ((status = kvt_config_get(&c->state_heads, c, "n_mamba_heads")))
		return status;
	return add_states(c, "mamba1-conv", "mamba1-ssm", &args);
}

/* ---- Mamba-2: heads and groups ------------------------------------------ */

/* The names of the same facts. */
struct mamba2_keys {
	const char *heads, *dim, *state, *groups, *kernel, *expand;
};

/* The width of x may be said twice; the two must agree. */
static enum kvt_status check_inter(struct config *c, const struct kvt_spec_args *args,
				   int64_t inter, const char *what)
{
	if (inter && inter != args->heads * args->head_dim)
		return kvt_json_bad(&c->in, "%s is %lld, but %lld heads of %lld are %lld",
				    what, LL(inter), LL(args->heads), LL(args->head_dim),
				    LL(args->heads * args->head_dim));
	return KVT_OK;
}

static bool is_auto(struct config *c, const char *key)
{
	char first[32];
	const json_t *value;

	snprintf(first, sizeof(first), "%.*s", (int)strcspn(key, "|"), key);
	value = json_object_get(c->in.object, first);
	if (!value && strchr(key, '|'))
		return is_auto(c, strchr(key, '|') + 1);
	return !value || json_is_null(value) ||
	       (json_is_string(value) && !strcmp(json_string_value(value), "auto"));
}

/* A head's width, "auto": what is left of the channels for each of the heads. */
static enum kvt_status width_of(struct kvt_spec_args *args, struct config *c,
				const char *key, int64_t inter)
{
	if (!is_auto(c, key))
		return kvt_config_need(&args->head_dim, c, key);
	if (!inter || inter % args->heads)
		return kvt_json_bad(&c->in,
				    "%s is not given, and %lld channels are not those of %lld heads",
				    key, LL(inter), LL(args->heads));
	args->head_dim = inter / args->heads;
	return KVT_OK;
}

static enum kvt_status mamba2(struct config *c, const struct mamba2_keys *keys,
			      int64_t inter)
{
	struct kvt_spec_args args = { .heads = 0 };
	int64_t expand = 0, hidden = 0;
	enum kvt_status status;

	if ((status = kvt_config_need(&args.heads, c, keys->heads)) ||
	    (status = kvt_config_need(&args.state_size, c, keys->state)) ||
	    (status = kvt_config_need(&args.groups, c, keys->groups)) ||
	    (status = kvt_config_need(&args.kernel, c, keys->kernel)))
		return status;
	if (!inter && keys->expand) {
		if ((status = kvt_config_get(&expand, c, keys->expand)) ||
		    (status = kvt_config_get(&hidden, c, "hidden_size")))
			return status;
		inter = expand * hidden;
	}
	if ((status = width_of(&args, c, keys->dim, inter)) ||
	    (status = check_inter(c, &args, inter, "the width of the states")))
		return status;
	return add_states(c, "mamba2-conv", "mamba2-ssm", &args);
}

enum kvt_status kvt_states_mamba2(struct config *c)
{
	static const struct mamba2_keys keys = {
		"num_heads", "head_dim", "state_size", "n_groups", "conv_kernel", "expand",
	};

	return mamba2(c, &keys, 0);
}

/* 'expand' of these files is not what their models do. */
enum kvt_status kvt_states_nemotron(struct config *c)
{
	static const struct mamba2_keys keys = {
		"mamba_num_heads", "mamba_head_dim", "ssm_state_size|mamba_d_state",
		"n_groups|mamba_n_groups", "conv_kernel|mamba_d_conv", NULL,
	};

	return mamba2(c, &keys, 0);
}

static const struct mamba2_keys bamba_keys = {
	"mamba_n_heads|n_mamba_heads", "mamba_d_head|mamba_headdim", "mamba_d_state",
	"mamba_n_groups|mamba_ngroups", "mamba_d_conv", "mamba_expand",
};

enum kvt_status kvt_states_bamba(struct config *c)
{
	int64_t inter = 0;
	enum kvt_status status = kvt_config_get(&inter, c, "mamba_d_ssm");

	return status ? status : mamba2(c, &bamba_keys, inter);
}

/* ---- gated delta net ---------------------------------------------------- */

enum kvt_status kvt_states_gdn(struct config *c)
{
	struct kvt_spec_args args = { .heads = 0 };
	enum kvt_status status;

	if ((status = kvt_config_need(&args.heads, c, "linear_num_value_heads")) ||
	    (status = kvt_config_need(&args.head_dim, c, "linear_value_head_dim")) ||
	    (status = kvt_config_need(&args.key_heads, c, "linear_num_key_heads")) ||
	    (status = kvt_config_need(&args.key_dim, c, "linear_key_head_dim")) ||
	    (status = kvt_config_need(&args.kernel, c, "linear_conv_kernel_dim")))
		return status;
	return add_states(c, "gdn-conv", "gdn-ssm", &args);
}

/* ---- Kimi delta attention ----------------------------------------------- */

static enum kvt_status kda_args(struct kvt_spec_args *args, struct config *c)
{
	enum kvt_status status;

	if ((status = kvt_config_need(&args->heads, c, "num_heads")) ||
	    (status = kvt_config_need(&args->head_dim, c, "head_dim")))
		return status;
	return kvt_config_need(&args->kernel, c, "short_conv_kernel_size");
}

/* Its facts stand in an object of their own, or in the text model itself. */
enum kvt_status kvt_states_kda(struct config *c)
{
	const struct kvt_json outer = c->in;
	struct kvt_spec_args args = { .heads = 0 };
	struct kvt_json in;
	enum kvt_status status = kvt_json_object(&in, &outer, "linear_attn_config");

	if (status)
		return status;
	if (in.object) {
		c->in = in;
		status = kda_args(&args, c);
		c->in = outer;
	} else if ((status = kvt_config_need(&args.heads, c, "linear_num_heads")) ||
		   (status = kvt_config_need(&args.head_dim, c, "linear_head_dim"))) {
		return status;
	} else {
		status = kvt_config_need(&args.kernel, c, "linear_conv_kernel_dim|"
						"short_conv_kernel_size");
	}
	if (status || (status = kvt_config_state_elem(&args.elem, c)))
		return status;
	add_both(c, "kda-conv", "kda-ssm", &args);
	return KVT_OK;
}

/* ---- Qwen4 --------------------------------------------------------------- */

/* Layers, listed from 1, that add embeddings of n-grams: all of it on each rank. */
static enum kvt_status add_ple(struct config *c)
{
	const char key[] = "ple_layer_ids";
	struct kvt_spec_args args = { .elem = CONFIG_RUN_ELEM };
	const json_t *list = NULL;
	int64_t hidden, streams, kernel, grams, at, first = CONFIG_LAYERS;
	enum kvt_status status = kvt_json_array(&list, &c->in, key);

	if (status || !json_array_size(list))
		return status;
	for (size_t i = 0; i < json_array_size(list); i++) {
		if ((status = kvt_json_int_at(&at, &c->in, key, list, i, 1, c->nlayers)))
			return status;
		first = at - 1 < first ? at - 1 : first;
	}
	if ((status = kvt_config_need(&hidden, c, "hidden_size")) ||
	    (status = kvt_config_need(&streams, c, "hc_count")) ||
	    (status = kvt_config_need(&kernel, c, "ple_conv_kernel_size")) ||
	    (status = kvt_config_need(&grams, c, "ngram_size")))
		return status;
	args.inter = hidden * streams;
	args.kernel = (kernel - 1) * grams + 1;
	kvt_config_add_some(c, "ple", "conv-whole", (int64_t)json_array_size(list), first,
			    &args);
	return KVT_OK;
}

enum kvt_status kvt_states_qwen4(struct config *c)
{
	enum kvt_status status = kvt_states_gdn(c);

	return status ? status : add_ple(c);
}

/* ---- short convolutions, lightning attention ---------------------------- */

/* As wide as the model, unless conv_dim says otherwise; no other state. */
enum kvt_status kvt_states_short_conv(struct config *c)
{
	struct kvt_spec_args args = { .elem = CONFIG_RUN_ELEM };
	enum kvt_status status;

	if ((status = kvt_config_get(&args.inter, c, "conv_dim")) ||
	    (!args.inter && (status = kvt_config_need(&args.inter, c, "hidden_size"))) ||
	    (status = kvt_config_need(&args.kernel, c, "conv_L_cache")))
		return status;
	kvt_config_add(c, "conv", "short-conv", KIND(LAYER_STATE), &args);
	return KVT_OK;
}

/* A matrix for each query head, of the model's own type in vLLM. */
enum kvt_status kvt_states_lightning(struct config *c)
{
	struct kvt_spec_args args = { .heads = 0 };
	enum kvt_status status;

	if ((status = kvt_config_need(&args.heads, c, "num_attention_heads")) ||
	    (status = kvt_config_head_dim(&args.head_dim, c)) ||
	    (status = kvt_config_state_elem(&args.elem, c)))
		return status;
	kvt_config_add(c, "ssm", "linear-attention", KIND(LAYER_STATE), &args);
	return KVT_OK;
}
