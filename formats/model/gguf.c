/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf.c - the layers of a model, out of the keys of a GGUF
 *
 *	general.architecture = ARCH		then of ARCH.:
 *	block_count, embedding_length		layers, width
 *	attention.head_count[_kv]		one number, or one a layer
 *	attention.key_length, value_length	of a head; _swa, _mla: of those layers
 *	attention.sliding_window[_pattern]	windows, and whose
 *	attention.indexer.*, shared_kv_layers, recurrent_layers
 *	ssm.*, wkv.*, shortconv.*, kda.*	recurrent states
 *
 * What a layer keeps follows from keys alone; an architecture is a row of
 * architectures[] for what llama.cpp does not read from keys: which layers have a window
 * where no list says so, and which are recurrent.  One without a row is taken from its
 * keys if all of them are known.
 *
 * Facts: llama.cpp's src/llama-hparams.cpp, llama-model.cpp and models/ of 2026-10, in
 * llama-cpp-python 0.3.36.
 */
#include "formats/model/gguf.h"
#include "formats/model/config.h"
#include "formats/parse/gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/print.h"

enum { MOST = 1 << 20, LONGEST = 1 << 30 };

/* Which layers have a window. */
enum windows {
	NO_WINDOW,		/* llama.cpp does not look for one */
	WINDOW_IF_SAID,		/* attention.sliding_window above 0 */
	WINDOW,			/* the same, and without it the file is refused */
};

/* Which layers are recurrent. */
enum recurrent {
	NOT_RECURRENT,
	ALL_RECURRENT,
	WITHOUT_HEADS,		/* those that have no heads of keys */
	WITHOUT_FORWARD,	/* the same, and no feed forward network (Nemotron) */
	BUT_EVERY_NTH,		/* recurrent_layers, or full_attention_interval */
	AND_ATTENTION,		/* every layer is both */
};

static const struct architecture {
	const char *names;		/* with spaces around each */
	enum windows windows;
	int period;			/* of layers without one; 0: a list must say */
	bool full_first;		/* they come first, not last */
	int window;			/* without a key, or whatever it says: 'fixed' */
	bool fixed, chunked;
	int own_layers;			/* with a cache; later ones use theirs; 0: all */
	enum recurrent recurrent;
	int interval;
} architectures[] = {
	{ .names = " llama deci falcon grok gpt2 gptj gptneox mpt baichuan starcoder "
	  "refact bloom stablelm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe "
	  "qwen3vl qwen3vlmoe phi2 phi3 phimoe plamo codeshell orion internlm2 "
	  "minicpm minicpm3 gemma starcoder2 xverse command-r dbrx olmo olmoe "
	  "openelm arctic deepseek deepseek2 deepseek2-ocr deepseek32 glm-dsa "
	  "hy_v4 chatglm glm4 glm4moe bitnet jais jais2 nemotron exaone granite "
	  "granitemoe chameleon plm bailingmoe bailingmoe2 dots1 arcee ernie4_5 "
	  "ernie4_5-moe hunyuan-moe hunyuan-dense hunyuan_vl hy_v3 smollm3 "
	  "seed_oss grovemoe apertus minimax-m2 cogvlm pangu-embedded mistral3 "
	  "mistral4 paddleocr llama-embed maincoder talkie hrm_text " },
	{ " afmoe olmo2 mellum ", WINDOW_IF_SAID, .period = 4 },
	{ " gemma3 ", WINDOW_IF_SAID, .period = 6 },
	{ " plamo3 ", WINDOW_IF_SAID, .period = 8 },
	{ " laguna ", WINDOW_IF_SAID, .period = 4, .full_first = true },
	{ " smallthinker ", WINDOW_IF_SAID, .period = 4, .full_first = true,
	  .window = 4096, .fixed = true },
	{ " cohere2 exaone-moe muse-glimmer ", WINDOW, .period = 4 },
	{ " cohere2moe ", WINDOW, .period = 4, .full_first = true },
	{ " gpt-oss ", WINDOW, .period = 2 },
	{ " gemma2 ", WINDOW, .period = 2, .window = 4096 },
	{ " gemma3n ", WINDOW, .period = 5, .own_layers = 20 },
	{ .names = " gemma4 maple mimo2 step35 spark2_5 granite_swa ",
	  .windows = WINDOW },
	{ " llama4 ", WINDOW, .period = 4, .window = 8192, .fixed = true,
	  .chunked = true },
	{ " exaone4 ", WINDOW, .period = 4, .window = 4096 },
	{ " mamba mamba2 rwkv6 rwkv6qwen2 rwkv7 arwkv7 ", .recurrent = ALL_RECURRENT },
	{ " jamba plamo2 granitehybrid lfm2moe kimi-linear kimi-k3 bailingmoe3 ",
	  .recurrent = WITHOUT_HEADS },
	{ " lfm2 ", WINDOW_IF_SAID, .period = -1, .recurrent = WITHOUT_HEADS },
	{ " falcon-h1 ", .recurrent = AND_ATTENTION },
	{ " nemotron_h nemotron_h_moe ", .recurrent = WITHOUT_FORWARD },
	{ " qwen3next qwen35 qwen35moe ", .recurrent = BUT_EVERY_NTH, .interval = 4 },
	{ " minimax-01 ", .recurrent = BUT_EVERY_NTH, .interval = 8 },
};
enum { NARCHITECTURES = sizeof(architectures) / sizeof(architectures[0]) };

/* What llama.cpp keeps nothing for, and what it keeps in ways that are not known here. */
static const char no_cache[] =
	" bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 "
	"eurobert wavtokenizer-dec gemma-embedding dream llada llada-moe rnd1 ";
static const char not_known[] =
	" clip deepseek4 minimax-m3 glm5-next qwen4exp dots3note dflash eagle3 "
	"gemma4-assistant graniteswitch nanbeige t5 t5encoder qwen3tts pockettts ";

/* Of an architecture that has no row: the keys that its layers may be read from. */
static const char understood[] =
	" context_length embedding_length block_count feed_forward_length vocab_size "
	"attention.head_count attention.head_count_kv attention.key_length "
	"attention.value_length attention.key_length_mla attention.value_length_mla "
	"attention.kv_lora_rank attention.q_lora_rank attention.causal attention.scale "
	"attention.layer_norm_epsilon attention.layer_norm_rms_epsilon "
	"attention.max_alibi_bias attention.clamp_kqv logit_scale use_parallel_residual "
	"leading_dense_block_count interleave_moe_layer_step attn_logit_softcapping "
	"final_logit_softcapping embedding_scale residual_scale ";

/* A token has several positions: always, or if rope.dimension_sections has two. */
static const char with_positions[] =
	" qwen2vl qwen3vl qwen3vlmoe qwen35 qwen35moe paddleocr ";
static const char with_sections[] = " glm4 glm4moe hunyuan_vl bailingmoe3 ";

struct reading {
	const struct kvt_gguf *gguf;
	const struct architecture *rules;
	char arch[64];
	int64_t layers, all;		/* 'all' with those that draft tokens */
	int64_t heads[KVT_LLAMA_LAYERS], kv_heads[KVT_LLAMA_LAYERS];
	int64_t forward[KVT_LLAMA_LAYERS];
	int64_t windowed[KVT_LLAMA_LAYERS], recurrent[KVT_LLAMA_LAYERS];
	int64_t indexed[KVT_LLAMA_LAYERS];
	int64_t dim[2], dim_v[2];	/* without a window, and with one */
	int64_t embedding, owned, indexer;
	bool latent;
	struct kvt_model_config *out;
	struct kvt_error *err;
};

/* ---- facts -------------------------------------------------------------- */

static const struct kvt_gguf_key *find(const struct reading *r, const char *name)
{
	char key[128];

	snprintf(key, sizeof(key), "%s.%s", r->arch, name);
	return kvt_gguf_find(r->gguf, key);
}

static enum kvt_status wrong(const struct reading *r, const char *name, const char *what,
			     int64_t most)
{
	return kvt_fail(r->err, KVT_BAD_INPUT,
			"%s: %s.%s%s, expected a whole number of at most %lld",
			r->gguf->path, r->arch, name, what, LL(most));
}

static enum kvt_status element(int64_t *out, const struct reading *r, const char *name,
			       const struct kvt_gguf_key *key, int64_t i, int64_t most)
{
	int64_t n;

	if (!kvt_gguf_int(&n, r->gguf, key, i))
		return wrong(r, name, " is no whole number", most);
	if (n < 0 || n > most)
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: %s.%s is %lld, expected 0 to %lld", r->gguf->path,
				r->arch, name, LL(n), LL(most));
	*out = n;
	return KVT_OK;
}

/* Absent: *out stays. */
static enum kvt_status get(int64_t *out, const struct reading *r, const char *name,
			   int64_t most)
{
	const struct kvt_gguf_key *key = find(r, name);

	if (!key)
		return KVT_OK;
	if (key->is_array)
		return wrong(r, name, " is an array", most);
	return element(out, r, name, key, 0, most);
}

static enum kvt_status need(int64_t *out, const struct reading *r, const char *name,
			    int64_t most)
{
	enum kvt_status status = get(out, r, name, most);

	if (!status && !*out)
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: %s.%s is missing or 0, which its caches follow from",
				r->gguf->path, r->arch, name);
	return status;
}

/* A list with an entry a layer, of which those that draft may have none. */
static enum kvt_status list(int64_t out[static KVT_LLAMA_LAYERS],
			    const struct reading *r, const char *name,
			    const struct kvt_gguf_key *key, int64_t most)
{
	enum kvt_status status = KVT_OK;

	if (key->n < r->layers || key->n > r->all)
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: %s.%s has %lld entries, but %s.block_count is %lld",
				r->gguf->path, r->arch, name, LL(key->n), r->arch,
				LL(r->all));
	for (int64_t i = 0; !status && i < key->n; i++)
		status = element(&out[i], r, name, key, i, most);
	return status;
}

/* One number for all layers, or a list.  Absent: all stay; *found: is it there? */
static enum kvt_status get_layers(int64_t out[static KVT_LLAMA_LAYERS],
				  const struct reading *r, const char *name, int64_t most,
				  bool *found)
{
	const struct kvt_gguf_key *key = find(r, name);
	enum kvt_status status;

	if (found)
		*found = key != NULL;
	if (!key)
		return KVT_OK;
	if (key->is_array)
		return list(out, r, name, key, most);
	if ((status = element(&out[0], r, name, key, 0, most)))
		return status;
	for (int64_t i = 1; i < r->all; i++)
		out[i] = out[0];
	return KVT_OK;
}

static void note(const struct reading *r, const char *format, ...) KVT_PRINTF(2, 3);
static void note(const struct reading *r, const char *format, ...)
{
	va_list args;

	if (r->out->nnotes == KVT_CONFIG_NOTES)
		return;
	va_start(args, format);
	vsnprintf(r->out->note[r->out->nnotes++], sizeof(r->out->note[0]), format, args);
	va_end(args);
}

/* ---- architectures ------------------------------------------------------ */

static bool is_in(const char *names, const char *name, int64_t length)
{
	char word[130];

	if (length > 120)
		return false;
	snprintf(word, sizeof(word), " %.*s ", (int)length, name);
	return strstr(names, word) != NULL;
}

static enum kvt_status take_unknown(struct reading *r)
{
	const size_t n = strlen(r->arch);

	for (int64_t i = 0; i < r->gguf->nkeys; i++) {
		const struct kvt_gguf_key *key = &r->gguf->key[i];
		const char *name = key->name + n + 1;
		int64_t length = key->length - (int64_t)n - 1;

		if (length < 1 || memcmp(key->name, r->arch, n) || name[-1] != '.' ||
		    is_in(understood, name, length) ||
		    !strncmp(name, "rope.", length < 5 ? (size_t)length : 5) ||
		    !strncmp(name, "expert_", length < 7 ? (size_t)length : 7))
			continue;
		return kvt_fail(r->err, KVT_UNSUPPORTED,
				"%s: architecture %s is not known, and its key %.*s may concern the cache",
				r->gguf->path, r->arch,
				(int)(key->length < 100 ? key->length : 100), key->name);
	}
	r->rules = &architectures[0];
	r->out->llama.assumed = true;
	note(r, "architecture %s is not known: taken as full attention, from its keys",
	     r->arch);
	return KVT_OK;
}

static enum kvt_status take_architecture(struct reading *r)
{
	const struct kvt_gguf_key *key = kvt_gguf_find(r->gguf, "general.architecture");
	int64_t length;

	if (!key || !kvt_gguf_string(r->arch, sizeof(r->arch), r->gguf, key) ||
	    !r->arch[0])
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: general.architecture is missing, or no name of at most %zu characters",
				r->gguf->path, sizeof(r->arch) - 1);
	length = (int64_t)strlen(r->arch);
	if (is_in(no_cache, r->arch, length))
		return kvt_fail(r->err, KVT_UNSUPPORTED,
				"%s: is a model of architecture %s, which keeps no cache",
				r->gguf->path, r->arch);
	if (is_in(not_known, r->arch, length))
		return kvt_fail(r->err, KVT_UNSUPPORTED,
				"%s: what llama.cpp keeps for architecture %s is not known here; kvtool size takes the config.json of the model",
				r->gguf->path, r->arch);
	for (int i = 0; !r->rules && i < NARCHITECTURES; i++)
		if (is_in(architectures[i].names, r->arch, length))
			r->rules = &architectures[i];
	snprintf(r->out->family, sizeof(r->out->family), "%.60s", r->arch);
	return r->rules ? KVT_OK : take_unknown(r);
}

/* ---- heads -------------------------------------------------------------- */

static enum kvt_status take_heads(struct reading *r)
{
	enum kvt_status status;
	int64_t dim;

	if ((status = get_layers(r->heads, r, "attention.head_count", MOST, NULL)))
		return status;
	memcpy(r->kv_heads, r->heads, sizeof(r->heads));
	status = get_layers(r->kv_heads, r, "attention.head_count_kv", MOST, NULL);
	if (status ||
	    (status = get_layers(r->forward, r, "feed_forward_length", LONGEST, NULL)))
		return status;
	/* as llama.cpp has it: without heads in its first layer a model has none */
	if (!r->heads[0])
		return KVT_OK;
	dim = r->embedding / r->heads[0];
	r->dim[0] = r->dim_v[0] = dim;
	if ((status = get(&r->dim[0], r, "attention.key_length", MOST)) ||
	    (status = get(&r->dim_v[0], r, "attention.value_length", MOST)))
		return status;
	r->dim[1] = r->dim[0];
	r->dim_v[1] = r->dim_v[0];
	if ((status = get(&r->dim[1], r, "attention.key_length_swa", MOST)))
		return status;
	return get(&r->dim_v[1], r, "attention.value_length_swa", MOST);
}

/* A latent is kept once: keys hold the values. */
static enum kvt_status take_latent(struct reading *r)
{
	int64_t k = 0, v = 0, top = 1;
	enum kvt_status status;

	if ((status = get(&k, r, "attention.key_length_mla", MOST)) ||
	    (status = get(&v, r, "attention.value_length_mla", MOST)) ||
	    (status = get(&r->indexer, r, "attention.indexer.key_length", MOST)) ||
	    (status = get(&top, r, "attention.indexer.top_k", MOST)))
		return status;
	r->latent = k && v;
	if (!top)
		r->indexer = 0;
	if (!k != !v || (r->indexer && !r->latent))
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: of %s.attention.key_length_mla and value_length_mla one is missing",
				r->gguf->path, r->arch);
	return KVT_OK;
}

/* Layers with an indexer of their own: "full" ones, where some use that of another. */
static enum kvt_status take_indexers(struct reading *r)
{
	bool older = strcmp(r->arch, "glm-dsa") || r->out->llama.context < 1 << 20;
	bool found;
	enum kvt_status status;

	for (int64_t i = 0; i < r->layers; i++)
		r->indexed[i] = older || i < 2 || i % 4 == 2;
	status = get_layers(r->indexed, r, "attention.indexer.types", 1, &found);
	if (!status && r->indexer && !found && !strcmp(r->arch, "hy_v4"))
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: %s.attention.indexer.types is missing",
				r->gguf->path, r->arch);
	return status;
}

/* ---- which layers ------------------------------------------------------- */

static enum kvt_status take_pattern(struct reading *r)
{
	static const char name[] = "attention.sliding_window_pattern";
	const struct kvt_gguf_key *key = find(r, name);
	int64_t period = r->rules->period;
	enum kvt_status status;

	if (key && key->is_array)
		return list(r->windowed, r, name, key, 1);
	if (!period)
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: %s.%s is missing, or no list of layers",
				r->gguf->path, r->arch, name);
	if ((status = get(&period, r, name, MOST)))
		return status;
	for (int64_t i = 0; i < r->layers; i++)
		r->windowed[i] = period < 1 || (r->rules->full_first ? i % period != 0 :
						i % period < period - 1);
	return KVT_OK;
}

static enum kvt_status take_windows(struct reading *r)
{
	const struct architecture *a = r->rules;
	int64_t window = a->window;
	enum kvt_status status;
	bool said = find(r, "attention.sliding_window") != NULL;

	if ((status = get(&window, r, "attention.sliding_window", INT64_C(0xffffffff))))
		return status;
	if (a->windows == NO_WINDOW) {
		if (window)
			note(r,
			     "attention.sliding_window is set aside, as llama.cpp does with %s",
			     r->arch);
		return KVT_OK;
	}
	if ((a->windows == WINDOW_IF_SAID && !(said && window)) ||
	    (a->chunked && said && !window) ||
	    (!strcmp(r->arch, "exaone4") && r->layers != 64))
		return KVT_OK;
	if (a->fixed)
		window = a->window;
	if (!window)
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: %s.attention.sliding_window is missing or 0, which its caches follow from",
				r->gguf->path, r->arch);
	r->out->llama.window = window < LONGEST ? window : LONGEST;
	r->out->llama.chunked = a->chunked;
	return take_pattern(r);
}

static enum kvt_status take_recurrent(struct reading *r)
{
	const struct architecture *a = r->rules;
	int64_t interval = a->interval;
	enum kvt_status status;
	bool found = false;

	if (a->recurrent == BUT_EVERY_NTH) {
		if ((status = get_layers(r->recurrent, r, "attention.recurrent_layers", 1,
					 &found)) ||
		    (status = get(&interval, r, "full_attention_interval", MOST)))
			return status;
		if (!interval)
			return wrong(r, "full_attention_interval", " is 0", MOST);
	}
	for (int64_t i = 0; i < r->layers && !found; i++)
		r->recurrent[i] = a->recurrent == ALL_RECURRENT ||
			a->recurrent == AND_ATTENTION ||
			(a->recurrent == WITHOUT_HEADS && !r->kv_heads[i]) ||
			(a->recurrent == WITHOUT_FORWARD && !r->kv_heads[i] &&
			 !r->forward[i]) ||
			(a->recurrent == BUT_EVERY_NTH && (i + 1) % interval);
	return KVT_OK;
}

/* Later layers read the caches of earlier ones. */
static enum kvt_status take_shared(struct reading *r)
{
	int64_t shared = 0;
	enum kvt_status status = KVT_OK;

	r->owned = r->rules->own_layers ? r->rules->own_layers : r->all;
	if (!strcmp(r->arch, "gemma4"))
		status = get(&shared, r, "attention.shared_kv_layers", r->all - 1);
	r->owned -= shared;
	return status;
}

/* ---- recurrent states --------------------------------------------------- */

/* The states of a recurrent layer, as specs and in elements. */
struct states {
	const char *conv, *ssm;		/* presets; NULL: has none */
	struct kvt_spec_args args;
	int64_t nconv, nssm;
};

static enum kvt_status take_wkv(struct states *s, const struct reading *r, int64_t size)
{
	int64_t shift = 2;
	enum kvt_status status = get(&shift, r, "token_shift_count", 64);

	if (status)
		return status;
	if (r->embedding % size)
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: %s.wkv.head_size is %lld, which does not divide embedding_length, %lld",
				r->gguf->path, r->arch, LL(size), LL(r->embedding));
	*s = (struct states){ shift ? "short-conv" : NULL, "linear-attention",
		{ .inter = r->embedding, .kernel = shift + 1,
		  .heads = r->embedding / size, .head_dim = size },
		shift * r->embedding, r->embedding * size };
	return KVT_OK;
}

/* Mamba 1 and 2, and gated delta nets, whose keys have the same names. */
static enum kvt_status take_scan(struct states *s, const struct reading *r)
{
	int64_t kernel = 0, inner = 0, state = 0, rank = 0, groups = 0;
	bool one = strstr(" mamba jamba ", r->arch) != NULL;
	enum kvt_status status;

	if ((status = need(&kernel, r, "ssm.conv_kernel", MOST)) ||
	    (status = need(&inner, r, "ssm.inner_size", MOST)) ||
	    (status = need(&state, r, "ssm.state_size", MOST)) ||
	    (status = need(&rank, r, "ssm.time_step_rank", MOST)) ||
	    (!one && (status = get(&groups, r, "ssm.group_count", MOST))))
		return status;
	s->args = (struct kvt_spec_args){ .kernel = kernel, .inter = inner,
					  .state_size = state };
	s->nconv = (kernel - 1) * (inner + 2 * groups * state);
	s->nssm = state * inner;
	s->conv = "mamba1-conv";
	s->ssm = "mamba1-ssm";
	if (!one && groups && inner % rank == 0) {
		s->args.inter = 0;
		s->args.heads = rank;
		s->args.head_dim = inner / rank;
		s->args.groups = groups;
		s->conv = "mamba2-conv";
		s->ssm = "mamba2-ssm";
	}
	if (r->rules->recurrent == BUT_EVERY_NTH && s->args.groups) {
		s->args.key_heads = groups;
		s->args.key_dim = state;
		s->args.groups = s->args.state_size = 0;
		s->conv = "gdn-conv";
		s->ssm = "gdn-ssm";
	}
	if (kernel == 1)
		s->conv = NULL;
	return KVT_OK;
}

static enum kvt_status take_states(struct states *s, const struct reading *r)
{
	int64_t wkv = 0, conv = 0, kda = 0, kernel = 0;
	enum kvt_status status;

	*s = (struct states){ .conv = NULL };
	if ((status = get(&wkv, r, "wkv.head_size", MOST)) ||
	    (status = get(&conv, r, "shortconv.l_cache", MOST)) ||
	    (status = get(&kda, r, "kda.head_dim", MOST)))
		return status;
	if (wkv)
		return take_wkv(s, r, wkv);
	if (conv) {
		*s = (struct states){ conv > 1 ? "short-conv" : NULL, NULL,
			{ .inter = r->embedding, .kernel = conv },
			(conv - 1) * r->embedding, 0 };
		return KVT_OK;
	}
	if (!strcmp(r->arch, "minimax-01")) {
		*s = (struct states){ NULL, "linear-attention",
			{ .heads = r->heads[0], .head_dim = r->dim[0] },
			0, r->heads[0] * r->dim[0] * r->dim[0] };
		return KVT_OK;
	}
	if (!kda)
		return take_scan(s, r);
	if ((status = need(&kernel, r, "ssm.conv_kernel", MOST)))
		return status;
	*s = (struct states){ kernel > 1 ? "kda-conv" : NULL, "kda-ssm",
		{ .heads = r->heads[0], .head_dim = kda, .kernel = kernel },
		3 * (kernel - 1) * r->heads[0] * kda, kda * kda * r->heads[0] };
	return KVT_OK;
}

/* ---- kinds -------------------------------------------------------------- */

static bool alike(const struct kvt_llama_kind *a, const struct kvt_llama_kind *b)
{
	return a->heads == b->heads && a->head_dim == b->head_dim &&
	       a->head_dim_v == b->head_dim_v && a->indexer == b->indexer &&
	       a->windowed == b->windowed && a->conv == b->conv && a->state == b->state;
}

static enum kvt_status add_kind(struct reading *r, int64_t layer,
				const struct kvt_llama_kind *kind)
{
	struct kvt_llama_model *m = &r->out->llama;
	int i = 0;

	while (i < m->nkinds && !alike(&m->kind[i], kind))
		i++;
	if (i == KVT_LLAMA_KINDS)
		return kvt_fail(r->err, KVT_UNSUPPORTED,
				"%s: its layers are of more than %d kinds", r->gguf->path,
				KVT_LLAMA_KINDS);
	if (i == m->nkinds)
		m->kind[m->nkinds++] = *kind;
	m->kind[i].layers++;
	m->of[layer] = (unsigned char)(1 + i);
	return KVT_OK;
}

/* Layers that draft tokens have a cache of their own, except in some hybrids. */
static bool keeps_tokens(const struct reading *r, int64_t i)
{
	const struct architecture *a = r->rules;

	if (i >= r->owned || (i >= r->layers && a->recurrent != WITHOUT_HEADS))
		return false;
	if (a->recurrent == WITHOUT_FORWARD && r->forward[i])
		return false;
	return a->recurrent == AND_ATTENTION ||
	       (a->recurrent != ALL_RECURRENT && !r->recurrent[i]);
}

static bool keeps_state(const struct reading *r, int64_t i)
{
	return i < r->layers && r->recurrent[i] &&
	       !(r->rules->recurrent == WITHOUT_FORWARD && r->forward[i]);
}

static enum kvt_status take_kinds(struct reading *r, const struct states *s)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < r->all; i++) {
		bool windowed = r->out->llama.window && r->windowed[i];
		struct kvt_llama_kind kind = { .windowed = windowed };
		int64_t v = r->kv_heads[i] * r->dim_v[windowed];

		if (v > r->out->llama.widest_v)
			r->out->llama.widest_v = v;
		r->out->llama.gaps |= keeps_tokens(r, i) && !r->kv_heads[i];
		if (keeps_tokens(r, i) && r->kv_heads[i]) {
			kind.heads = r->kv_heads[i];
			kind.head_dim = r->dim[windowed];
			kind.head_dim_v = r->latent ? 0 : r->dim_v[windowed];
			kind.indexer = r->indexed[i] ? r->indexer : 0;
		}
		if (keeps_state(r, i)) {
			kind.conv = s->nconv;
			kind.state = s->nssm;
		}
		if (kind.heads * kind.head_dim > MOST || v > MOST ||
		    kind.conv > LONGEST || kind.state > LONGEST ||
		    (kind.heads && !kind.head_dim))
			return kvt_fail(r->err, KVT_BAD_INPUT,
					"%s: layer %lld keeps %lld heads of %lld and %lld elements, and no model is like that",
					r->gguf->path, LL(i), LL(kind.heads),
					LL(kind.head_dim), LL(r->dim_v[windowed]));
		if (kind.heads || kind.conv || kind.state)
			status = add_kind(r, i, &kind);
	}
	if (!status && !r->out->llama.nkinds)
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: none of its layers keeps anything", r->gguf->path);
	return status;
}

/* ---- groups ------------------------------------------------------------- */

static enum kvt_status add_group(struct reading *r, const char *name, const char *spec,
				 int64_t layers, const struct kvt_spec_args *args)
{
	struct kvt_model *m = &r->out->model;
	struct kvt_model_group *g = &m->group[m->ngroups];
	int same = 1;

	if (m->ngroups == KVT_MODEL_GROUPS)
		return kvt_fail(r->err, KVT_UNSUPPORTED,
				"%s: its caches are of more than %d kinds", r->gguf->path,
				KVT_MODEL_GROUPS);
	for (int i = 0; i < m->ngroups; i++)
		same += !strncmp(m->group[i].name, name, strlen(name));
	*g = (struct kvt_model_group){ .spec = spec, .layers = layers, .args = *args };
	snprintf(g->name, sizeof(g->name), "%s", name);
	if (same > 1)
		snprintf(g->name, sizeof(g->name), "%s%d", name, same);
	m->ngroups++;
	return KVT_OK;
}

static enum kvt_status add_tokens(struct reading *r, const struct kvt_llama_kind *k)
{
	const struct kvt_llama_model *m = &r->out->llama;
	struct kvt_spec_args args = { .heads = k->heads, .head_dim = k->head_dim };
	enum kvt_status status;

	if (!k->head_dim_v) {
		args = (struct kvt_spec_args){ .latent = k->heads * k->head_dim };
		status = add_group(r, "latent", "mla", k->layers, &args);
	} else {
		args.head_dim_v = k->head_dim_v == k->head_dim ? 0 : k->head_dim_v;
		args.window = k->windowed ? m->window < MOST ? m->window : MOST : 0;
		status = add_group(r, k->windowed ? "window" : "attn",
				   !k->windowed ? "gqa" : m->chunked ? "chunked-local" :
				   "sliding-window", k->layers, &args);
	}
	if (status || !k->indexer)
		return status;
	args = (struct kvt_spec_args){ .latent = k->indexer };
	return add_group(r, "indexer", "index-key", k->layers, &args);
}

/* It is in the groups from 'first' on. */
static void number_layer(struct reading *r, int64_t layer, int first)
{
	struct kvt_model *m = &r->out->model;

	for (int g = first; g < m->ngroups; g++)
		m->layer[layer] |= (uint16_t)(1u << g);
}

static enum kvt_status add_groups(struct reading *r, const struct states *s)
{
	const struct kvt_llama_model *m = &r->out->llama;
	struct kvt_spec_args conv = s->args, ssm = s->args;
	enum kvt_status status = KVT_OK;

	r->out->model.nlayers = r->all;
	conv.elem = ssm.elem = 4;
	ssm.kernel = ssm.groups = ssm.key_heads = 0;
	for (int i = 0; !status && i < m->nkinds; i++) {
		const struct kvt_llama_kind *k = &m->kind[i];
		int before = r->out->model.ngroups;

		if (k->heads)
			status = add_tokens(r, k);
		if (!status && k->conv)
			status = add_group(r, "conv", s->conv, k->layers, &conv);
		if (!status && k->state)
			status = add_group(r, "ssm", s->ssm, k->layers, &ssm);
		for (int64_t l = 0; l < r->all; l++)
			if (m->of[l] == 1 + i)
				number_layer(r, l, before);
	}
	return status;
}

/* ---- all of it ---------------------------------------------------------- */

static void take_positions(struct reading *r)
{
	const struct kvt_gguf_key *key = find(r, "rope.dimension_sections");
	const int64_t length = (int64_t)strlen(r->arch);
	bool sections = key && key->is_array && key->n > 1;
	int64_t n;

	for (int i = 0; sections && i < 2; i++)
		sections = kvt_gguf_int(&n, r->gguf, key, i) && n > 0;
	r->out->llama.positions = is_in(with_positions, r->arch, length) ||
				  (is_in(with_sections, r->arch, length) && sections);
}

/* The first of several files has the keys; the others have tensors. */
static enum kvt_status check_split(const struct reading *r)
{
	const struct kvt_gguf_key *no = kvt_gguf_find(r->gguf, "split.no");
	const struct kvt_gguf_key *of = kvt_gguf_find(r->gguf, "split.count");
	int64_t n = 0, count = 0;

	if (no && !no->is_array && kvt_gguf_int(&n, r->gguf, no, 0) && n &&
	    of && !of->is_array && kvt_gguf_int(&count, r->gguf, of, 0))
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: is file %lld of %lld that one model was split into; give the first, whose name has -00001-of- in it",
				r->gguf->path, LL(n + 1), LL(count));
	return KVT_OK;
}

static enum kvt_status take_layers(struct reading *r)
{
	int64_t drafts = 0;
	enum kvt_status status;

	if ((status = need(&r->all, r, "block_count", KVT_LLAMA_LAYERS)) ||
	    (status = need(&r->embedding, r, "embedding_length", MOST)) ||
	    (status = get(&r->out->llama.context, r, "context_length", LONGEST)) ||
	    (status = get(&drafts, r, "nextn_predict_layers", r->all - 1)))
		return status;
	r->layers = r->all - drafts;
	r->out->layers = r->layers;
	r->out->llama.nlayers = r->all;
	r->out->llama.listed = r->layers;
	r->out->llama.recurrent = r->rules->recurrent == ALL_RECURRENT;
	return KVT_OK;
}

enum kvt_status kvt_gguf_model(struct kvt_model_config *out, const struct kvt_gguf *gguf,
			       struct kvt_error *err)
{
	struct reading *r = calloc(1, sizeof(*r));
	struct states states = { .conv = NULL };
	enum kvt_status status;
	bool recurrent = false;

	if (!r)
		return kvt_no_memory(err, NULL);
	*out = (struct kvt_model_config){ .block_size = 16, .cache_dtype = "float16" };
	r->gguf = gguf;
	r->out = out;
	r->err = err;
	if ((status = check_split(r)) || (status = take_architecture(r)) ||
	    (status = take_layers(r)) || (status = take_heads(r)) ||
	    (status = take_latent(r)) || (status = take_indexers(r)) ||
	    (status = take_windows(r)) || (status = take_recurrent(r)) ||
	    (status = take_shared(r)))
		goto out;
	take_positions(r);
	for (int64_t i = 0; i < r->layers; i++)
		recurrent |= r->recurrent[i];
	if ((recurrent && (status = take_states(&states, r))) ||
	    (status = take_kinds(r, &states)))
		goto out;
	status = add_groups(r, &states);
out:
	free(r);
	return status;
}
