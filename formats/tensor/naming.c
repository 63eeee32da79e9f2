/* SPDX-License-Identifier: Apache-2.0 */
/*
 * naming.c - names that say which cache a tensor is of, and so which axes it has
 *
 * Models that were exported to ONNX call the inputs and outputs of a cache by fixed
 * names, whose axes are those of transformers.  A model with an encoder has two.
 *
 * A row of namings fits if all tensors of four axes or more, but for states and masks,
 * match its names and there are as many keys as values.  {l} is the number of a layer.
 * Two caches are told apart by words in names, and only if every tensor has such a word.
 */
#include "formats/tensor/names.h"

#include <string.h>

/* Inputs and outputs of models as transformers, optimum and onnxruntime export them. */
#define PAIR(start, end) start "{l}" end "key," start "{l}" end "value"
static const struct kvt_naming namings[] = {
	{ PAIR("past_key_values.", "."), KVT_CACHE_AXES },
	{ PAIR("past.", "."), KVT_CACHE_AXES },
	{ PAIR("present.", "."), KVT_CACHE_AXES },
	{ PAIR("present_key_values.", "."), KVT_CACHE_AXES },
	{ PAIR("past_key_values.", ".decoder."), KVT_CACHE_AXES },
	{ PAIR("present.", ".decoder."), KVT_CACHE_AXES },
	{ PAIR("past_key_values.", ".encoder."), KVT_CACHE_AXES },
	{ PAIR("present.", ".encoder."), KVT_CACHE_AXES },
	{ "past_key_self_{l},past_value_self_{l}", KVT_CACHE_AXES },
	{ "present_key_self_{l},present_value_self_{l}", KVT_CACHE_AXES },
	{ "past_key_cross_{l},past_value_cross_{l}", KVT_CACHE_AXES },
	{ "present_key_cross_{l},present_value_cross_{l}", KVT_CACHE_AXES },
	{ "past_{l}", "K" KVT_CACHE_AXES }, { "present_{l}", "K" KVT_CACHE_AXES },
};
enum { NNAMINGS = sizeof(namings) / sizeof(namings[0]) };

static const struct {
	const char *decoder, *encoder;
} words[] = {
	{ "self_attention_cache.", "cross_attention_cache." },
	{ ".decoder.", ".encoder." }, { "_self_", "_cross_" },
};
enum { NWORDS = sizeof(words) / sizeof(words[0]) };

bool kvt_naming_is_of(const char *name, int which)
{
	for (int i = 0; i < NWORDS; i++)
		if (strstr(name, words[i].decoder) || strstr(name, words[i].encoder))
			return which == (strstr(name, words[i].decoder) ? KVT_SELF :
									  KVT_CROSS_OF);
	return false;
}

/* Of a half of a cache, or of none; tensors of one or two axes are no part of one. */
static bool counts(const struct kvt_tensor *t, int which)
{
	const char *after;

	return t->rank >= 4 && kvt_cache_role(t, &after) == KVT_ROLE_PAIR &&
	       (which == KVT_ALL || kvt_naming_is_of(t->name, which));
}

static bool fits(const struct kvt_naming *naming, const struct kvt_tensors *tensors,
		 int which)
{
	int64_t n[2] = { 0 };
	bool whole = true;

	for (int64_t i = 0; whole && i < tensors->count; i++) {
		const struct kvt_tensor *t = &tensors->tensor[i];
		int64_t layer;
		int half = -1;

		if (!counts(t, which))
			continue;
		whole = kvt_names_match(&layer, &half, naming->names, t->name) &&
			t->rank == (int)strlen(naming->axes) &&
			(naming->axes[0] != 'K' || t->shape[0] == 2);
		n[half > 0] += whole;
	}
	return whole && n[0] && (n[1] == n[0] || naming->axes[0] == 'K');
}

const struct kvt_naming *kvt_naming_find(const struct kvt_tensors *tensors, int which)
{
	for (int i = 0; i < NNAMINGS; i++)
		if (fits(&namings[i], tensors, which))
			return &namings[i];
	return NULL;
}

bool kvt_naming_is_two(const struct kvt_tensors *tensors)
{
	int64_t all = 0, halves = 0;

	for (int64_t i = 0; i < tensors->count; i++) {
		all += counts(&tensors->tensor[i], KVT_ALL);
		halves += counts(&tensors->tensor[i], KVT_SELF) +
			  counts(&tensors->tensor[i], KVT_CROSS_OF);
	}
	return all == halves && kvt_naming_find(tensors, KVT_SELF) &&
	       kvt_naming_find(tensors, KVT_CROSS_OF);
}

/* ---- words in names ------------------------------------------------------------ */

/*
 * What the words in a name say; the number after them counts states of a layer.  Of
 * recurrent states also their order: since 5.0 all models share one name, before that
 * ssm_states were those of Mamba.
 */
static const struct kvt_role_word role_words[] = {
	{ "conv_states", KVT_ROLE_CONV, KVT_STATE_VK },
	{ "conv_state", KVT_ROLE_CONV, KVT_STATE_VK },
	{ "conv_cache", KVT_ROLE_CONV, KVT_STATE_VK },
	{ "conv_states_q", KVT_ROLE_CONV, KVT_STATE_VK },
	{ "conv_states_k", KVT_ROLE_CONV, KVT_STATE_VK },
	{ "conv_states_v", KVT_ROLE_CONV, KVT_STATE_VK },
	{ "recurrent_states", KVT_ROLE_STATE, KVT_STATE_EITHER },
	{ "recurrent_state", KVT_ROLE_STATE, KVT_STATE_EITHER },
	{ "ssm_states", KVT_ROLE_STATE, KVT_STATE_VK },
	{ "ssm_state", KVT_ROLE_STATE, KVT_STATE_VK },
	{ "linear_cache", KVT_ROLE_STATE, KVT_STATE_KV },
	/* of models that were exported to ONNX */
	{ "past_conv", KVT_ROLE_CONV, KVT_STATE_VK },
	{ "present_conv", KVT_ROLE_CONV, KVT_STATE_VK },
	{ "past_recurrent", KVT_ROLE_STATE, KVT_STATE_EITHER },
	{ "present_recurrent", KVT_ROLE_STATE, KVT_STATE_EITHER },
	{ "indexer_keys", KVT_ROLE_INDEX, KVT_STATE_VK },
	{ "idx_keys", KVT_ROLE_INDEX, KVT_STATE_VK },
	{ "attention_mask", KVT_ROLE_MASK, KVT_STATE_VK },
	{ "decoder_attention_mask", KVT_ROLE_DECODER_MASK, KVT_STATE_VK },
};
enum { NROLES = sizeof(role_words) / sizeof(role_words[0]) };

const struct kvt_role_word *kvt_role_word(const char *name, const char **after)
{
	for (int i = 0; i < NROLES; i++) {
		size_t n = strlen(role_words[i].word);
		const char *at = strstr(name, role_words[i].word);

		if (!at || (at > name && at[-1] != '.') || (at[n] && at[n] != '.'))
			continue;
		*after = at + n;
		return &role_words[i];
	}
	return NULL;
}

enum kvt_role kvt_cache_role(const struct kvt_tensor *tensor, const char **after)
{
	const struct kvt_role_word *word;

	*after = NULL;
	if (tensor->held.role)
		return tensor->held.role;
	word = kvt_role_word(tensor->name, after);
	return word ? word->role : KVT_ROLE_PAIR;
}
