/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.c - which layer of a config.json caches what: a list of words or numbers in the
 * file says it, or a rule of the family
 *
 * In: the file and its family's row.  Out: c->kind[i] for each layer, c->count and
 * c->first of each kind.  A list in the file goes before the rule; a list whose length
 * contradicts num_hidden_layers is refused, unless the family is known for that.
 *
 * Facts: configuration classes of transformers; its classes' own caches of each default
 * config are in the tests, layer by layer.
 */
#include "formats/model/rules.h"

#include <string.h>

/* ---- lists of words ----------------------------------------------------- */

/* Words change with the versions of transformers; "_attention" is left out. */
static const struct {
	const char *word;
	enum layer_kind kind;
	config_step *only;		/* of families with this attention */
} words[] = {
	{ "full", LAYER_FULL, NULL }, { "attention", LAYER_FULL, NULL },
	{ "sliding", LAYER_WINDOW, NULL }, { "chunked", LAYER_CHUNK, NULL },
	{ "linear", LAYER_STATE, NULL }, { "mamba", LAYER_STATE, NULL },
	{ "conv", LAYER_STATE, NULL },
	{ "deepseek_sparse", LAYER_SPARSE, NULL }, { "indexed", LAYER_SPARSE, NULL },
	{ "sparse", LAYER_SPARSE, kvt_caches_mla },
	{ "minimax_m3_sparse", LAYER_SPARSE, kvt_caches_minimax_m3 },
	{ "compressed_sparse", LAYER_C4, NULL },
	{ "heavily_compressed", LAYER_C128, NULL },
	{ "hybrid", LAYER_FULL, kvt_caches_inkling },
	{ "hybrid_sliding", LAYER_WINDOW, kvt_caches_inkling },
	{ "hybrid", LAYER_BOTH, NULL }, { "hybrid_sliding", LAYER_BOTH_WINDOW, NULL },
	{ "mlp", LAYER_NONE, NULL }, { "moe", LAYER_NONE, NULL },
};

static int kind_of(const char *word, config_step *attention)
{
	static const char suffix[] = "_attention";
	size_t n = strlen(word);

	if (n > strlen(suffix) && !strcmp(word + n - strlen(suffix), suffix))
		n -= strlen(suffix);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strlen(words[i].word) == n && !strncmp(words[i].word, word, n) &&
		    (!words[i].only || words[i].only == attention))
			return (int)words[i].kind;
	return -1;
}

/*
 * The list's length against num_hidden_layers; 0: neither says.  What is more is of
 * layers that draft tokens.
 */
static enum kvt_status take_length(struct config *c, const char *key, size_t n)
{
	int64_t drafts = 0;
	enum kvt_status status = kvt_json_int(&drafts, &c->in, "num_nextn_predict_layers",
					      0, CONFIG_LAYERS);

	if (status)
		return status;
	if (n < 1 || n > CONFIG_LAYERS)
		return kvt_json_bad(&c->in, "%s has %zu layers, expected 1 to %d", key, n,
				    CONFIG_LAYERS);
	if (c->nlayers && n <= CONFIG_LAYERS && (int64_t)n == c->nlayers + drafts)
		return KVT_OK;
	if (c->nlayers && c->nlayers != (int64_t)n) {
		if (!c->family->list_rules)
			return kvt_json_bad(&c->in,
					    "%s has %zu layers, but num_hidden_layers is %lld",
					    key, n, LL(c->nlayers));
		kvt_config_note(c,
				"num_hidden_layers is %lld, but %s has %zu layers, which are used",
				LL(c->nlayers), key, n);
	}
	c->nlayers = (int64_t)n;
	return KVT_OK;
}

static enum kvt_status take_words(struct config *c, const char *key, const json_t *list)
{
	enum kvt_status status = take_length(c, key, json_array_size(list));
	const char *word;

	for (size_t i = 0; !status && i < json_array_size(list); i++) {
		int kind;

		if ((status = kvt_json_string_at(&word, &c->in, key, list, i)))
			return status;
		if ((kind = kind_of(word, c->family->attention)) < 0)
			return kvt_json_bad(&c->in,
					    "%s: layer %zu is '%.40s', which is not a known kind",
					    key, i, word);
		c->kind[i] = (unsigned char)kind;
	}
	return status;
}

/* ---- rules of families -------------------------------------------------- */

static enum kvt_status all(struct config *c, enum layer_kind kind)
{
	enum kvt_status status = kvt_config_need_layers(c);

	memset(c->kind, (int)kind, (size_t)c->nlayers);
	return status;
}

enum kvt_status kvt_layers_full(struct config *c)
{
	return all(c, LAYER_FULL);
}

/* Two attentions in a layer of num_layers; num_hidden_layers counts each. */
enum kvt_status kvt_layers_pairs(struct config *c)
{
	if (!json_is_integer(json_object_get(c->in.object, "num_hidden_layers")))
		c->nlayers *= 2;
	if (c->nlayers > CONFIG_LAYERS)
		return kvt_json_bad(&c->in, "%lld caches, expected %d at most",
				    LL(c->nlayers), CONFIG_LAYERS);
	return all(c, LAYER_FULL);
}

enum kvt_status kvt_layers_state(struct config *c)
{
	return all(c, LAYER_STATE);
}

enum kvt_status kvt_layers_both(struct config *c)
{
	return all(c, LAYER_BOTH);
}

enum kvt_status kvt_layers_sparse(struct config *c)
{
	return all(c, LAYER_SPARSE);
}

/* A window, where there is one, is every layer's. */
enum kvt_status kvt_layers_window(struct config *c)
{
	enum kvt_status status;
	int64_t window = 0;

	if ((status = kvt_config_get(&window, c, "sliding_window")))
		return status;
	return all(c, window ? LAYER_WINDOW : LAYER_FULL);
}

/* Layers from max_window_layers on, but only if use_sliding_window says so. */
enum kvt_status kvt_layers_upper_window(struct config *c)
{
	enum kvt_status status = all(c, LAYER_FULL);
	int64_t first = -1;
	bool used = false;

	if (status || (status = kvt_config_flag(&used, c, "use_sliding_window")) || !used)
		return status;
	if ((status = kvt_json_int(&first, &c->in, "max_window_layers", 0,
				   CONFIG_LAYERS)))
		return status;
	if (first < 0)
		return kvt_json_bad(&c->in,
				    "use_sliding_window is true, but max_window_layers is missing");
	for (int64_t i = first; i < c->nlayers; i++)
		c->kind[i] = LAYER_WINDOW;
	return KVT_OK;
}

/* attention_types: local layers look at a window, but keep all tokens. */
enum kvt_status kvt_layers_local(struct config *c)
{
	kvt_config_note(c, "attention_types: layers of local attention keep all tokens");
	return all(c, LAYER_FULL);
}

/* Every period-th layer is full, the others are 'kind'. */
static enum kvt_status every(struct config *c, const char *keys, enum layer_kind kind)
{
	enum kvt_status status = all(c, kind);
	int64_t period;

	if (status || (status = kvt_config_need(&period, c, keys)))
		return status;
	for (int64_t i = period - 1; i < c->nlayers; i += period)
		c->kind[i] = LAYER_FULL;
	return KVT_OK;
}

/* "LLLG": windows where L stands, again and again; whether at the end, is not said. */
static enum kvt_status by_letters(struct config *c, const char *key, const char *letters)
{
	enum kvt_status status = all(c, LAYER_FULL);
	size_t n = strlen(letters);

	if (status)
		return status;
	if (!n || n != strspn(letters, "LG") ||
	    letters[(size_t)(c->nlayers - 1) % n] != 'G')
		return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
				       "%s is '%.20s', expected L and G that end the %lld layers with G: give layer_types, or the caches with --spec",
				       key, letters, LL(c->nlayers));
	for (int64_t i = 0; i < c->nlayers; i++)
		if (letters[(size_t)i % n] == 'L')
			c->kind[i] = LAYER_WINDOW;
	return KVT_OK;
}

enum kvt_status kvt_layers_pattern(struct config *c)
{
	const char key[] = "sliding_window_pattern";
	const json_t *value = json_object_get(c->in.object, key);

	if (json_is_string(value))
		return by_letters(c, key, json_string_value(value));
	return every(c, "sliding_window_pattern|_sliding_window_pattern|"
			"global_attn_every_n_layers", LAYER_WINDOW);
}

enum kvt_status kvt_layers_interval(struct config *c)
{
	return every(c, "full_attention_interval|layer_group_size", LAYER_STATE);
}

enum kvt_status kvt_layers_alternate(struct config *c)
{
	enum kvt_status status = all(c, LAYER_FULL);

	for (int64_t i = 0; !status && i < c->nlayers; i += 2)
		c->kind[i] = LAYER_WINDOW;
	return status;
}

/* no_rope_layers: 1 where a layer has rotary positions, and chunks with them. */
enum kvt_status kvt_layers_chunk(struct config *c)
{
	enum kvt_status status = kvt_config_need_layers(c);
	const json_t *list = NULL;
	int64_t rope;

	if (status || (status = kvt_json_array(&list, &c->in, "no_rope_layers")))
		return status;
	if (!json_array_size(list))
		return every(c, "no_rope_layer_interval", LAYER_CHUNK);
	status = take_length(c, "no_rope_layers", json_array_size(list));
	for (size_t i = 0; !status && i < json_array_size(list); i++) {
		status = kvt_json_int_at(&rope, &c->in, "no_rope_layers", list, i, 0, 1);
		if (!status)
			c->kind[i] = rope ? LAYER_CHUNK : LAYER_FULL;
	}
	return status;
}

enum kvt_status kvt_layers_period(struct config *c)
{
	enum kvt_status status = all(c, LAYER_STATE);
	int64_t period, offset = -1;

	if (status || (status = kvt_config_need(&period, c, "attn_layer_period")) ||
	    (status = kvt_json_int(&offset, &c->in, "attn_layer_offset", 0, period - 1)))
		return status;
	if (offset < 0)
		return kvt_json_bad(&c->in, "attn_layer_offset is missing");
	for (int64_t i = offset; i < c->nlayers; i += period)
		c->kind[i] = LAYER_FULL;
	return KVT_OK;
}

enum kvt_status kvt_layers_indices(struct config *c)
{
	enum kvt_status status = all(c, LAYER_STATE);
	const json_t *list = NULL;
	int64_t at;

	if (status || (status = kvt_json_array(&list, &c->in, "attn_layer_indices")))
		return status;
	for (size_t i = 0; i < json_array_size(list); i++) {
		if ((status = kvt_json_int_at(&at, &c->in, "attn_layer_indices", list, i,
					      0, c->nlayers - 1)))
			return status;
		c->kind[at] = LAYER_FULL;
	}
	return KVT_OK;
}

/* hybrid_layer_ids: those that have keys and values beside their states. */
enum kvt_status kvt_layers_hybrid(struct config *c)
{
	enum kvt_status status = all(c, LAYER_STATE);
	const char key[] = "hybrid_layer_ids";
	const json_t *list = NULL;
	int64_t at;

	if (status || (status = kvt_json_array(&list, &c->in, key)))
		return status;
	for (size_t i = 0; i < json_array_size(list); i++) {
		if ((status = kvt_json_int_at(&at, &c->in, key, list, i, 0,
					      c->nlayers - 1)))
			return status;
		c->kind[at] = LAYER_BOTH;
	}
	return KVT_OK;
}

/* hybrid_override_pattern: a letter a layer. */
enum kvt_status kvt_layers_letters(struct config *c)
{
	static const char letters[] = "M*-E";
	static const unsigned char kinds[] = { LAYER_STATE, LAYER_FULL, LAYER_NONE,
					       LAYER_NONE };
	const char key[] = "hybrid_override_pattern", *text = NULL;
	enum kvt_status status;

	if ((status = kvt_json_string(&text, &c->in, key)))
		return status;
	if (!text)
		return kvt_json_bad(&c->in, "layers_block_type is missing, and %s too",
				    key);
	status = take_length(c, key, strlen(text));
	for (size_t i = 0; !status && text[i]; i++) {
		const char *at = strchr(letters, text[i]);

		if (!at)
			return kvt_json_bad(&c->in,
					    "%s: layer %zu is '%.1s', expected one of %s",
					    key, i, text + i, letters);
		c->kind[i] = kinds[at - letters];
	}
	return status;
}

/* ---- DeepSeek V4 -------------------------------------------------------- */

static const char v4_key[] = "compress_ratios";

/* The class's own order: two heavily compressed ones, then both in turn. */
static enum kvt_status v4_default(struct config *c)
{
	enum kvt_status status = kvt_config_need_layers(c);

	for (int64_t i = 0; !status && i < c->nlayers; i++)
		c->kind[i] = i < 2 || i % 2 == 0 ? LAYER_C128 : LAYER_C4;
	if (!status)
		kvt_config_note(c,
				"layer_types is missing: two of ratio 128, then 128 and 4 in turn, as %s has it by default",
				c->type);
	return status;
}

/* compress_ratios: 0 is a layer with nothing but a window. */
enum kvt_status kvt_layers_ratios(struct config *c)
{
	const json_t *list = NULL;
	enum kvt_status status = kvt_config_layer_list(&list, c, v4_key);
	int64_t ratio;

	if (status || !list)
		return status ? status : v4_default(c);
	for (int64_t i = 0; !status && i < c->nlayers; i++) {
		if ((status = kvt_json_int_at(&ratio, &c->in, v4_key, list, (size_t)i, 0,
					      128)))
			return status;
		if (ratio && ratio != 4 && ratio != 128)
			return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
					       "%s: layer %lld has %lld, expected 0, 4 or 128",
					       v4_key, LL(i), LL(ratio));
		c->kind[i] = !ratio ? LAYER_WINDOW : ratio == 4 ? LAYER_C4 : LAYER_C128;
	}
	return status;
}

/* ---- MiniMax ------------------------------------------------------------ */

/* attn_type_list: 1 is a layer of full attention; else they alternate. */
enum kvt_status kvt_layers_type_list(struct config *c)
{
	const char key[] = "attn_type_list";
	const json_t *list = NULL;
	enum kvt_status status = kvt_config_layer_list(&list, c, key);
	int64_t full;

	if (status || (status = kvt_config_need_layers(c)))
		return status;
	for (int64_t i = 0; i < c->nlayers; i++) {
		full = i % 2 == 0;
		if (list && (status = kvt_json_int_at(&full, &c->in, key, list, (size_t)i,
						      0, 1)))
			return status;
		c->kind[i] = full ? LAYER_FULL : LAYER_STATE;
	}
	if (!list)
		kvt_config_note(c,
				"layer_types is missing: full and linear in turn, as %s has it by default",
				c->type);
	return KVT_OK;
}

/* ---- lists of some layers ----------------------------------------------- */

/* Marks the layers of a list, whose first is 'base'; a layer is listed once. */
static enum kvt_status mark(struct config *c, const struct kvt_json *in, const char *key,
			    int64_t base, enum layer_kind kind, bool *found)
{
	const json_t *list = NULL;
	enum kvt_status status = kvt_json_array(&list, in, key);
	int64_t at;

	*found = list != NULL;
	for (size_t i = 0; !status && i < json_array_size(list); i++) {
		if ((status = kvt_json_int_at(&at, in, key, list, i, base,
					      c->nlayers - 1 + base)))
			return status;
		if (c->kind[at - base] != LAYER_KINDS)
			return kvt_json_bad(in, "%s: layer %lld is listed twice", key,
					    LL(at));
		c->kind[at - base] = (unsigned char)kind;
	}
	return status;
}

/* What no list has. */
static void mark_rest(struct config *c, enum layer_kind kind)
{
	for (int64_t i = 0; i < c->nlayers; i++)
		if (c->kind[i] == LAYER_KINDS)
			c->kind[i] = (unsigned char)kind;
}

/* full_attn_idxs; without it every layer is full. */
enum kvt_status kvt_layers_full_indices(struct config *c)
{
	const char key[] = "full_attn_idxs";
	enum kvt_status status = kvt_config_need_layers(c);
	bool listed;

	memset(c->kind, LAYER_KINDS, (size_t)c->nlayers);
	if (status || (status = mark(c, &c->in, key, 0, LAYER_FULL, &listed)))
		return status;
	mark_rest(c, listed ? LAYER_STATE : LAYER_FULL);
	return KVT_OK;
}

/* linear_attn_config: two lists, which count layers from 1. */
enum kvt_status kvt_layers_kda(struct config *c)
{
	const char key[] = "linear_attn_config";
	enum kvt_status status = kvt_config_need_layers(c);
	struct kvt_json in;
	bool full, kda;

	if (status || (status = kvt_json_object(&in, &c->in, key)))
		return status;
	memset(c->kind, LAYER_KINDS, (size_t)c->nlayers);
	if ((status = mark(c, &in, "full_attn_layers", 1, LAYER_FULL, &full)) ||
	    (status = mark(c, &in, "kda_layers", 1, LAYER_STATE, &kda)))
		return status;
	for (int64_t i = 0; i < c->nlayers; i++)
		if (c->kind[i] == LAYER_KINDS && full == kda)
			return kvt_json_bad(&in,
					    "%s: layer %lld is in neither kda_layers nor full_attn_layers",
					    key, LL(i + 1));
	mark_rest(c, full ? LAYER_STATE : LAYER_FULL);
	return KVT_OK;
}

/* GLM-5.3: lists as above, but from 0; else every fourth is no state. */
enum kvt_status kvt_layers_glm5(struct config *c)
{
	enum kvt_status status = kvt_config_need_layers(c);
	struct kvt_json in;
	bool full, kda;

	if (status || (status = kvt_json_object(&in, &c->in, "linear_attn_config")))
		return status;
	memset(c->kind, LAYER_KINDS, (size_t)c->nlayers);
	if ((status = mark(c, &in, "full_attn_layers", 0, LAYER_FULL, &full)) ||
	    (status = mark(c, &in, "kda_layers", 0, LAYER_STATE, &kda)))
		return status;
	for (int64_t i = 0; !full && !kda && i < c->nlayers; i++)
		c->kind[i] = i % 4 == 3 ? LAYER_FULL : LAYER_STATE;
	mark_rest(c, full ? LAYER_STATE : LAYER_FULL);
	return KVT_OK;
}

/* Inkling: local_layer_ids, which have a window. */
enum kvt_status kvt_layers_inkling(struct config *c)
{
	const char key[] = "local_layer_ids";
	enum kvt_status status = kvt_config_need_layers(c);
	bool listed;

	memset(c->kind, LAYER_KINDS, (size_t)c->nlayers);
	if (status || (status = mark(c, &c->in, key, 0, LAYER_WINDOW, &listed)))
		return status;
	if (!listed)
		return kvt_json_bad(&c->in,
				    "%s is missing, and layer_types too: transformers and vLLM have other defaults",
				    key);
	mark_rest(c, LAYER_FULL);
	return KVT_OK;
}

/* Gemma 4: the last one is full, whatever the list says. */
enum kvt_status kvt_choose_last_full(struct config *c)
{
	if (c->kind[c->nlayers - 1] == LAYER_WINDOW)
		c->kind[c->nlayers - 1] = LAYER_FULL;
	return KVT_OK;
}

/* ---- all of it ---------------------------------------------------------- */

/* Layers at the end that read what an earlier one caches. */
static enum kvt_status drop_shared(struct config *c)
{
	const char key[] = "num_kv_shared_layers";
	int64_t shared = -1;
	enum kvt_status status = kvt_json_int(&shared, &c->in, key, 0, c->nlayers - 1);

	if (!status && shared < 0)
		status = kvt_config_get(&shared, c, key);
	if (status || shared < 1)
		return status;
	if (shared >= c->nlayers)
		return kvt_json_bad(&c->in, "%s is %lld, of %lld layers", key, LL(shared),
				    LL(c->nlayers));
	memset(c->kind + c->nlayers - shared, LAYER_NONE, (size_t)shared);
	kvt_config_note(c,
		"the last %lld layers use the caches of other layers and have none",
			LL(shared));
	return KVT_OK;
}

/* By whatever name; of an encoder and a decoder those of the decoder count. */
static enum kvt_status count_layers(struct config *c)
{
	static const char *const keys[] = { "decoder_layers", "num_decoder_layers",
					    "num_hidden_layers", "n_layer", "n_layers",
					    "num_layers" };
	enum kvt_status status = KVT_OK;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && !status; i++) {
		int64_t n = 0;

		if ((status = kvt_json_int(&n, &c->in, keys[i], 1, CONFIG_LAYERS)) || !n)
			continue;
		if (c->unknown && i > 2 && c->nlayers && n != c->nlayers &&
		    !json_object_get(c->in.object, keys[0]) &&
		    !json_object_get(c->in.object, keys[1]))
			return kvt_json_bad(&c->in,
					    "%s is %lld, but there are %lld layers by another key",
					    keys[i], LL(n), LL(c->nlayers));
		c->nlayers = c->nlayers ? c->nlayers : n;
	}
	if (!status && c->unknown && !c->nlayers && !c->family->types_key)
		return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
				       "model_type '%.60s' is not known, and its keys do not say how many layers there are: give --as=FAMILY to use the rules of another, such as llama, or the caches with --spec",
				       c->type);
	return status;
}

/* Which layers run how often: each pass has a cache of its own. */
static enum kvt_status passes(int64_t *begin, int64_t *end, int64_t *n, struct config *c)
{
	int64_t recurrent = 0;
	enum kvt_status status;

	if (json_object_get(c->in.object, "n_recurrent_loops")) {
		if ((status = kvt_config_need(begin, c, "n_input_layers")) ||
		    (status = kvt_config_need(&recurrent, c, "n_recurrent_layers")) ||
		    (status = kvt_config_need(n, c, "n_recurrent_loops")))
			return status;
		*end = *begin + recurrent;
		return KVT_OK;
	}
	if ((status = kvt_json_int(n, &c->in, "loop_num_passes", 1, CONFIG_LAYERS)) ||
	    (status = kvt_json_int(begin, &c->in, "loop_layer_index_start", 0,
				   c->nlayers)))
		return status;
	return kvt_json_int(end, &c->in, "loop_layer_index_end", 0, c->nlayers);
}

static enum kvt_status repeat_passes(struct config *c)
{
	const char mode_key[] = "recurrent_kv_cache_mode", *mode = "per_loop";
	unsigned char once[CONFIG_LAYERS];
	int64_t begin = 0, end = 0, n = 1, at = 0;
	enum kvt_status status = passes(&begin, &end, &n, c);

	if (status || (status = kvt_json_string(&mode, &c->in, mode_key)) || n == 1)
		return status;
	if (strcmp(mode, "per_loop"))
		return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
				       "%s is '%.40s', expected per_loop: give the caches with --spec",
				       mode_key, mode);
	if (begin >= end || end > c->nlayers ||
	    c->nlayers + (n - 1) * (end - begin) > CONFIG_LAYERS)
		return kvt_json_bad(&c->in,
				    "layers %lld to %lld, of %lld, run %lld times: expected layers of the model, and %d caches at most",
				    LL(begin), LL(end), LL(c->nlayers), LL(n),
				    CONFIG_LAYERS);
	memcpy(once, c->kind, sizeof(once));
	for (int64_t i = 0, pass = 1; i < c->nlayers; i++) {
		if (once[i] != LAYER_NONE)
			c->kind[at++] = once[i];
		if (i == end - 1 && pass++ < n)
			i = begin - 1;
	}
	c->nlayers = at;
	kvt_config_note(c, "layers %lld to %lld run %lld times, each time with a cache",
			LL(begin), LL(end - 1), LL(n));
	return KVT_OK;
}

enum kvt_status kvt_config_layers(struct config *c)
{
	const char *key = c->family->types_key ? c->family->types_key : "layer_types";
	unsigned char before[CONFIG_LAYERS];
	const json_t *list = NULL, *letters;
	enum kvt_status status;

	if ((status = count_layers(c)) || (status = kvt_json_array(&list, &c->in, key)))
		return status;
	if ((status = list ? take_words(c, key, list) : c->family->layers(c)))
		return status;
	letters = json_object_get(c->in.object, "hybrid_override_pattern");
	if (list && c->family->layers == kvt_layers_letters && json_is_string(letters)) {
		memcpy(before, c->kind, sizeof(before));
		if ((status = kvt_layers_letters(c)))
			return status;
		if (memcmp(before, c->kind, sizeof(before)))
			return kvt_json_bad(&c->in,
					    "%s and hybrid_override_pattern contradict each other",
					    key);
	}
	if ((status = kvt_config_variants(c, list != NULL)) || (status = drop_shared(c)))
		return status;
	if (c->family->choose && (status = c->family->choose(c)))
		return status;
	if ((status = repeat_passes(c)))
		return status;
	for (int64_t i = c->nlayers; i-- > 0;) {
		c->count[c->kind[i]]++;
		c->first[c->kind[i]] = i;
	}
	c->out->layers = c->nlayers;
	return KVT_OK;
}
