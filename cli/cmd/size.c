/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size.c - kvtool size: the caches that a model needs, and what they take
 *
 * In: a model (config.json, params.json, GGUF, specs as words), and how it is run: TP,
 * types of the cache, blocks, drafts, requests.  Out: a row for each TP and type.  What a
 * row cannot be is said in it, unless it was asked for by name: then it is an error.  The
 * sizes are lib/model's; of transformers and llama.cpp those of formats/model.
 */
#include "cli/cmd/size_llama.h"
#include "cli/cmd/size_plan.h"
#include "cli/cmd/size_sample.h"
#include "cli/models.h"
#include "cli/opt.h"
#include "print/size.h"

#include <stdlib.h>
#include <string.h>

#include "lib/kvt/choice.h"
#include "lib/base/number.h"

enum { SIZE_DRAFTS = 1024 };

struct size_args {
	struct model_words model;
	const char *tp, *cache_dtype, *indexer_dtype, *layout, *engine;
	struct kvt_config_hints hints;
	struct opt_strings set, spec;
	struct size_llama_args llama;
	int64_t block_size, memory, requests, tokens, in_flight, dcp, encoder;
	int64_t draft, draft_layers;
	const char *on_disk;
	const char *draft_model;	/* NULL: the model's own layers */
	bool apart, json, list;
	enum kvt_release release;
};

/* ---- what is asked for -------------------------------------------------- */

/* "a,b,c", cut up in place. */
static enum kvt_status split(char *item[SIZE_CHOICES], int *n, char *text,
			     const char *option, struct kvt_error *err)
{
	for (*n = 0; text; (*n)++) {
		char *next = strchr(text, ',');

		if (next)
			*next++ = '\0';
		if (!*text || *n == SIZE_CHOICES)
			return kvt_fail(err, KVT_USAGE,
					"%s: expected a list of 1 to %d, with commas",
					option, SIZE_CHOICES);
		item[*n] = text;
		text = next;
	}
	return KVT_OK;
}

static enum kvt_status take_tp(int64_t tp[SIZE_CHOICES], int *n, char *text,
			       struct kvt_error *err)
{
	char *item[SIZE_CHOICES];
	enum kvt_status status = split(item, n, text, "--tp", err);

	for (int i = 0; !status && i < *n; i++)
		if (item[i][strspn(item[i], "0123456789")] ||
		    !kvt_number_parse(&tp[i], item[i]) || tp[i] < 1 || tp[i] > 1 << 20)
			status = kvt_fail(err, KVT_USAGE,
					  "--tp is '%.40s', expected a number of ranks",
					  item[i]);
	return status;
}

/* What is shown without a list: what vLLM takes, then the usual other form of rows. */
static const char *usual_dtypes(const struct kvt_model_config *config)
{
	const struct kvt_model *model = &config->model;
	const struct kvt_dtype *dtype = kvt_dtype_find(config->cache_dtype);
	static const struct {
		const char *begins, *dtypes;
	} rows[] = {
		{ "dsv41", "bfloat16,fp8_ds_mla_528,fp8_ds_mla_584,nvfp4_ds_mla" },
		{ "dsv4", "auto,bfloat16" }, { "mla", "auto,fp8_ds_mla" },
	};

	for (int i = 0; i < model->ngroups; i++)
		for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
			if (!strncmp(model->group[i].spec, rows[k].begins,
				     strlen(rows[k].begins)))
				return rows[k].dtypes;
	return config->cache_dtype[0] && !(dtype && dtype->elem == 2) ? "auto,bfloat16" :
	       "auto,fp8_e4m3";
}

static enum kvt_status no_auto(const struct kvt_model_config *config,
			       struct kvt_error *err)
{
	if (config->no_auto[0])
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: give a type, such as --cache-dtype=bfloat16",
				config->no_auto);
	return kvt_fail(err, KVT_BAD_INPUT,
			"the model's type is not known, and --cache-dtype=auto needs it: give an element type, such as --cache-dtype=bfloat16");
}

/* "auto" is what vLLM makes of it. */
static enum kvt_status take_dtypes(const char *dtype[SIZE_CHOICES], int *n, char *text,
				   const struct kvt_model_config *config,
				   struct kvt_error *err)
{
	char *item[SIZE_CHOICES];
	enum kvt_status status;

	if ((status = split(item, n, text, "--cache-dtype", err)))
		return status;
	for (int i = 0; i < *n; i++) {
		dtype[i] = item[i];
		if (strcmp(item[i], "auto"))
			continue;
		if (!config->cache_dtype[0])
			return no_auto(config, err);
		dtype[i] = config->cache_dtype;
	}
	return KVT_OK;
}

/* ---- caches ------------------------------------------------------------- */

static enum kvt_status take_specs(struct kvt_model_config *out,
				  const struct opt_strings *spec, struct kvt_error *err)
{
	struct kvt_model_config config = { .block_size = 16 };

	if (spec->n > KVT_MODEL_GROUPS)
		return kvt_fail(err, KVT_USAGE,
				"--spec is given %d times, expected %d at most", spec->n,
				KVT_MODEL_GROUPS);
	for (int i = 0; i < spec->n; i++) {
		struct kvt_model_group *g = &config.model.group[i];
		struct kvt_error why = { "" };
		enum kvt_status status = kvt_model_group_parse(g, spec->s[i], &why);

		if (status)
			return kvt_fail(err, status, "--spec: %.400s", why.text);
		snprintf(g->name, sizeof(g->name), "g%d", i);
		if (!g->layers)
			g->layers = 1;
		config.layers += g->layers;
		config.model.ngroups++;
	}
	*out = config;
	return KVT_OK;
}

static enum kvt_status load(struct size_report *r, struct size_args *a, int n,
			    char **argv, struct kvt_error *err)
{
	const char *said;
	enum kvt_status status = model_said(&said, &a->model, err);

	if (status)
		return status;
	if (n + !!said > 1)
		return kvt_fail(err, KVT_USAGE, "expected one model, got %d", n + !!said);
	r->path = said ? said : n ? argv[0] : NULL;
	if (!r->path == !a->spec.n)
		return kvt_fail(err, KVT_USAGE,
				"expected a config.json, --model or --spec%s",
				r->path ? ", and only one of them" : "");
	if (!r->path)
		return take_specs(&r->config, &a->spec, err);
	a->hints.nset = a->set.n;
	a->hints.set = a->set.s;
	return model_read(&r->config, r->path, a->model.folder, &a->hints, err);
}

/* ---- transformers -------------------------------------------------------- */

/* What only vLLM is started with. */
static enum kvt_status check_engine(bool *held, const struct size_args *a,
				    struct kvt_error *err)
{
	const struct {
		bool given;
		const char *option;
	} vllm[] = {
		{ a->tp, "tp" }, { a->indexer_dtype, "indexer-dtype" },
		{ a->layout, "layout" }, { a->block_size, "block-size" },
		{ a->memory, "memory" }, { a->requests, "requests" },
		{ a->on_disk, "on-disk" },
		{ a->in_flight != 8192, "in-flight" }, { a->dcp != 1, "dcp" },
		{ a->encoder, "encoder-tokens" }, { a->apart, "apart" },
		{ a->spec.n, "spec" }, { a->hints.ssm_dtype, "ssm-dtype" },
		{ a->draft, "draft" }, { a->draft_layers, "draft-layers" },
		{ a->draft_model, "draft-model" },
		{ a->release != KVT_NEWEST_RELEASE, "release" },
	};

	*held = a->engine && !strcmp(a->engine, "transformers");
	if (a->engine && !*held && strcmp(a->engine, "vllm"))
		return kvt_fail(err, KVT_USAGE,
				"--engine is '%.40s', expected vllm or transformers",
				a->engine);
	for (size_t i = 0; *held && i < sizeof(vllm) / sizeof(vllm[0]); i++)
		if (vllm[i].given)
			return kvt_fail(err, KVT_USAGE,
					"--%s is of vLLM's pool, which --engine=transformers has not: give one of them",
					vllm[i].option);
	if (*held && !a->tokens)
		return kvt_fail(err, KVT_USAGE,
				"--engine=transformers needs the length of a request: --tokens=N");
	return KVT_OK;
}

/* Of the type that is said, or of the file; transformers takes that as it is. */
static enum kvt_status take_held_dtype(struct size_report *r, const char *said,
				       struct kvt_error *err)
{
	struct kvt_model_config *config = &r->config;

	if (said && strcmp(said, "auto"))
		return kvt_dtype_parse(&r->held->dtype, said, err);
	if (r->held->dtype)
		return KVT_OK;
	r->held->dtype = kvt_dtype_find("bfloat16");
	if (config->nnotes < KVT_CONFIG_NOTES)
		snprintf(config->note[config->nnotes++], sizeof(config->note[0]),
			 "no type is given: bfloat16; --cache-dtype gives another");
	return KVT_OK;
}

static enum kvt_status show_held(struct size_report *r, struct size_args *a, int n,
				 char **argv, struct kvt_error *err)
{
	enum kvt_status status;

	r->held->tokens = a->tokens;
	a->hints.held = r->held;
	if ((status = load(r, a, n, argv, err)) ||
	    (status = take_held_dtype(r, a->cache_dtype, err)))
		return status;
	if (!(size_held_bytes(r) < 0x1p62))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a request of %lld tokens takes more than 2^62 bytes",
				r->path, LL(a->tokens));
	if (a->json)
		return size_held_json(r, err);
	size_held_text(r);
	return KVT_OK;
}

/* ---- drafts --------------------------------------------------------------- */

/* The model's own layers that draft, which somebody must have said. */
static enum kvt_status own_layers(int64_t *out, const struct size_report *r,
				  const struct size_args *a, struct kvt_error *err)
{
	int64_t file = r->config.draft_layers;

	*out = a->draft_layers ? a->draft_layers : file;
	if (*out > 0 && (file < 1 || *out == file))
		return KVT_OK;
	if (*out > 0)
		return kvt_fail(err, KVT_BAD_INPUT,
				"--draft-layers is %lld, %s says %lld", LL(*out),
				r->path, LL(file));
	return kvt_fail(err, KVT_BAD_INPUT,
			"--draft: %s %s: give --draft-layers=N, --draft-model=FILE of what drafts (an Eagle head, a small model), or --draft-model=none",
			r->path ? r->path : "--spec",
			file ? "says two numbers of layers that draft" :
			"has no layers that draft");
}

static enum kvt_status add_draft(struct size_report *r, const struct size_args *a,
				 struct kvt_error *err)
{
	bool own = !a->draft_model, none = !own && !strcmp(a->draft_model, "none");
	int64_t layers = 0;
	const struct kvt_config_hints as_it_is = { .family = NULL };
	struct kvt_model_config head = { .layers = 0 };
	struct kvt_error why = { "" };
	enum kvt_status status;

	if (!a->draft)
		return !a->draft_model && !a->draft_layers ? KVT_OK :
		       kvt_fail(err, KVT_USAGE,
				"--draft-%s needs --draft=N, the tokens that are drafted",
				a->draft_model ? "model" : "layers");
	if (a->draft_model && a->draft_layers)
		return kvt_fail(err, KVT_USAGE,
				"--draft-model and --draft-layers exclude each other");
	if (a->draft > SIZE_DRAFTS)
		return kvt_fail(err, KVT_USAGE, "--draft is %lld, expected %d at most",
				LL(a->draft), SIZE_DRAFTS);
	if ((own && (status = own_layers(&layers, r, a, err))) ||
	    (!own && !none && (status = model_read(&head, a->draft_model, a->model.folder,
						   &as_it_is, err))))
		return status;
	if ((status = kvt_model_draft(&r->config.model, a->draft, layers, &why)) ||
	    (status = kvt_model_join(&r->config.model, &head.model, &why)))
		return kvt_fail(err, status, "--draft: %.400s", why.text);
	r->config.layers += layers + head.layers;
	return KVT_OK;
}

/* ---- run ---------------------------------------------------------------- */

/* What of a hybrid's blocks neither the release nor the model decides. */
static void note_blocks(struct kvt_model_config *config, const struct size_args *a)
{
	const struct kvt_model *model = &config->model;
	bool states = false, latents = false;
	const char *note = NULL;

	for (int i = 0; i < model->ngroups; i++) {
		states |= strstr(model->group[i].spec, "conv") != NULL;
		latents |= model->group[i].args.latent > 0;
	}
	if (!states || a->apart)
		return;
	if (latents && a->release < KVT_VLLM_0_32 && !a->block_size)
		note =
			"blocks grow by 64 tokens, as FLASHMLA has it: --block-size=16 is FLASH_ATTN_MLA and TRITON_MLA, 32 FLASHINFER_MLA, 128 CUTLASS_MLA";
	else if (a->release == KVT_VLLM_0_26 && !model->state_chunk && !config->family[0])
		note =
			"blocks of Jamba, Nemotron-H, Granite 4 and Falcon-H1 grow by whole chunks in vLLM 0.26: state_chunk of a list, or config.json, gives them";
	if (note && config->nnotes < KVT_CONFIG_NOTES)
		snprintf(config->note[config->nnotes++], sizeof(config->note[0]), "%s",
			 note);
}

/* What all requests take: every rank holds as much as another. */
static enum kvt_status add_sums(struct size_row *row, const struct size_report *r,
				struct kvt_error *err)
{
	int64_t request = kvt_model_request(&row->size, r->tokens);

	if (!r->summed)
		return KVT_OK;
	if (request == INT64_MAX ||
	    __builtin_mul_overflow(request, r->requests, &row->rank_bytes) ||
	    __builtin_mul_overflow(row->rank_bytes, row->tp, &row->all_bytes))
		return kvt_fail(err, KVT_BAD_INPUT,
				"--requests is %lld: on %lld ranks they take more than 2^63 bytes",
				LL(r->requests), LL(row->tp));
	row->disk_bytes = !r->sample.path ? -1 :
			  size_sample_bytes(&r->sample, row->all_bytes, row->cache_dtype);
	if (r->sample.path && row == r->row && row->disk_bytes < 0)
		return kvt_fail(err, KVT_BAD_INPUT,
				"--on-disk: %s holds %s, which does not tell how a cache of %s compresses: give a sample of that, or another --cache-dtype",
				r->sample.path, r->sample.dtype->name, row->cache_dtype);
	return KVT_OK;
}

/* Of a request, or of all: what they need to be known. */
static enum kvt_status take_requests(struct size_report *r, const struct size_args *a,
				     struct kvt_error *err)
{
	struct kvt_model_config *config = &r->config;
	enum kvt_status status;

	if (a->on_disk && !a->tokens)
		return kvt_fail(err, KVT_USAGE,
				"--on-disk needs the length of a request: --tokens=N");
	if (a->requests && !a->tokens && !a->memory)
		return kvt_fail(err, KVT_USAGE,
				"--requests needs the length of a request, --tokens=N, or the memory that they share, --memory=SIZE");
	r->summed = a->tokens && (a->requests || a->on_disk);
	if (!a->on_disk)
		return KVT_OK;
	for (int i = 0; i < config->model.ngroups; i++)
		if (strstr(config->model.group[i].spec, "ssm") ||
		    strstr(config->model.group[i].spec, "conv"))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"--on-disk: the model has recurrent states, which compress in another way than tokens do");
	if ((status = size_sample_read(&r->sample, a->on_disk, err)))
		return status;
	if (r->sample.unlisted && config->nnotes < KVT_CONFIG_NOTES)
		snprintf(config->note[config->nnotes++], sizeof(config->note[0]),
			 "%.80s has no requests: all of its blocks are taken to be in use",
			 a->on_disk);
	return KVT_OK;
}

/* A size that was asked for must be possible; one of the usual ones need not. */
static enum kvt_status make_rows(struct size_report *r, const struct size_args *a,
				 char *tps, char *dtypes, struct kvt_error *err)
{
	const char *dtype[SIZE_CHOICES];
	int64_t tp[SIZE_CHOICES];
	int ntp, ndtypes;
	enum kvt_status status;

	if ((status = take_tp(tp, &ntp, tps, err)) ||
	    (status = take_dtypes(dtype, &ndtypes, dtypes, &r->config, err)))
		return status;
	for (int i = 0; i < ntp * ndtypes; i++) {
		int64_t block_size = a->block_size ? a->block_size : r->config.block_size;
		struct size_row *row = &r->row[r->nrows];
		struct kvt_error why = { "" };
		struct kvt_deployment d = {
			.tp = tp[i / ndtypes], .cache_dtype = dtype[i % ndtypes],
			.block_size = block_size, .apart = a->apart,
			.indexer_dtype = a->indexer_dtype, .release = a->release,
			.dcp = a->dcp,
		};

		*row = (struct size_row){ .tp = d.tp, .cache_dtype = d.cache_dtype };
		status = kvt_model_size(&row->size, &r->config.model, &d, &why);
		/* few ranks cannot share tokens: the first row is of those that can */
		if (status == KVT_BAD_INPUT && a->dcp > 1 && !a->tp && !r->nrows &&
		    i < (ntp - 1) * ndtypes)
			continue;
		if (status && (status == KVT_USAGE ||
			       ((a->tp || i < ndtypes || !r->nrows) &&
				(a->cache_dtype || i % ndtypes == 0))))
			return kvt_fail(err, status, "tp %lld, %.40s: %.300s",
					LL(d.tp), d.cache_dtype, why.text);
		snprintf(row->why_not, sizeof(row->why_not), "%.250s", why.text);
		if (!status && (status = add_sums(row, r, err)))
			return status;
		r->nrows++;
	}
	return KVT_OK;
}

/* One of vLLM's, also as others write it; LBNHC if no backend wants another. */
static enum kvt_status take_layout(struct size_report *r, const char *said,
				   struct kvt_error *err)
{
	const char *name = said ? said : r->config.model.layout ? r->config.model.layout :
			   kvt_kv_layout_name(KVT_LBNHC);
	struct kvt_layout asked;
	enum kvt_status status = kvt_layout_parse(&asked, name, err);

	if (status)
		return status;
	for (int i = 0; i < KVT_NKV_LAYOUTS; i++) {
		r->layout_name = kvt_kv_layout_name((enum kvt_kv_layout)i);
		if ((status = kvt_layout_parse(&r->layout, r->layout_name, err)) ||
		    kvt_layout_equal(&r->layout, &asked))
			return status;
	}
	return kvt_fail(err, KVT_USAGE,
			"--layout is '%.40s', which no pool of vLLM has: expected LBNHC (nhd), LBHNC (hnd), BLNHC, BLHNC, BHLNC or LHBNC", name);
}

/* An option that llama.cpp has nothing like, or NULL. */
static const char *said_of_vllm(const struct size_args *a)
{
	return a->tp ? "tp" : a->cache_dtype ? "cache-dtype" :
	       a->indexer_dtype ? "indexer-dtype" : a->layout ? "layout" :
	       a->block_size ? "block-size" : a->apart ? "apart" :
	       a->dcp > 1 ? "dcp" : a->encoder ? "encoder-tokens" : a->engine ? "engine" :
	       a->release != KVT_NEWEST_RELEASE ? "release" : a->draft ? "draft" :
	       a->draft_layers ? "draft-layers" : a->draft_model ? "draft-model" :
	       a->on_disk ? "on-disk" : NULL;
}

static enum kvt_status work(struct size_report *r, const struct size_args *a,
			    struct kvt_error *err)
{
	char tps[256], dtypes[512];
	enum kvt_status status;

	if (snprintf(tps, sizeof(tps), "%s", a->tp ? a->tp : "1,2,4,8,16") >=
	    (int)sizeof(tps))
		return kvt_fail(err, KVT_USAGE, "--tp is too long");
	if (snprintf(dtypes, sizeof(dtypes), "%s", a->cache_dtype ? a->cache_dtype :
		     usual_dtypes(&r->config)) >= (int)sizeof(dtypes))
		return kvt_fail(err, KVT_USAGE, "--cache-dtype is too long");
	if ((status = take_requests(r, a, err)) ||
	    (status = take_layout(r, a->layout, err)) ||
	    (status = make_rows(r, a, tps, dtypes, err)))
		return status;
	if (a->json)
		return size_json(r, err);
	size_text(r);
	return KVT_OK;
}

static enum kvt_status run_plan(struct size_plan *plan, const char *limit, char **files,
				int n, struct kvt_error *err)
{
	enum kvt_status status = opt_need(&cmd_size, (struct opt_need[]){
		{ n, "dumps" }, { limit, "--time=SECONDS" }, { 0 } }, err);

	if (status)
		return status;
	if (!kvt_real_parse(&plan->seconds, limit, strlen(limit)) || !(plan->seconds > 0))
		return kvt_fail(err, KVT_USAGE,
				"--time is '%.40s', expected a number of seconds above 0",
				limit);
	return size_plan(plan, files, n, err);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct size_plan plan = { .job = "digest", .threads = 1 };
	const char *limit = NULL;
	struct size_report r = { .path = NULL };
	struct size_args a = { .in_flight = 8192, .dcp = 1,
				.release = KVT_NEWEST_RELEASE };
	const struct opt opts[] = {
		OPT_MODEL(&a.model),
		{ "list", 0, OPT_FLAG, &a.list, NULL, NULL },
		{ "as", 0, OPT_STRING, &a.hints.family, "FAMILY",
		  "use the rules of this model_type" },
		{ "set", 0, OPT_STRINGS, &a.set, "KEY=VALUE",
		  "set a field that is missing or wrong; may be repeated" },
		{ "spec", 0, OPT_STRINGS, &a.spec, "KIND:KEY=N,...",
		  "caches, such as gqa:layers=80,heads=8,head-dim=128" },
		{ "tp", 0, OPT_STRING, &a.tp, "N,...",
		  "tensor parallel sizes; default 1,2,4,8,16" },
		{ "cache-dtype", 0, OPT_STRING, &a.cache_dtype, "DTYPE,...",
		  "types of the cache; default: the model's, and fp8" },
		{ "indexer-dtype", 0, OPT_STRING, &a.indexer_dtype, "DTYPE",
		  "type of an indexer's keys: fp8, mxfp4 or bfloat16" },
		{ "ssm-dtype", 0, OPT_STRING, &a.hints.ssm_dtype, "DTYPE",
		  "type of recurrent states; default: as in the file" },
		{ "block-size", 0, OPT_COUNT, &a.block_size, "N",
		  "tokens in a block; default 16, 64 of latents" },
		OPT_RELEASE(&a.release),
		{ "apart", 0, OPT_FLAG, &a.apart, NULL,
		  "keep pages of states and of tokens at their own sizes" },
		{ "engine", 0, OPT_STRING, &a.engine, "NAME",
		  "vllm (default), or transformers: its cache, layer by layer" },
		{ "layout", 0, OPT_STRING, &a.layout, "LAYOUT",
		  "order of vLLM's pool; default: what the model's backends want" },
		{ "memory", 0, OPT_SIZE, &a.memory, "SIZE",
		  "memory for caches on a rank, such as 40G: how many tokens fit" },
		{ "requests", 0, OPT_COUNT, &a.requests, "N",
		  "so many requests: what all take (--tokens), or share (--memory)" },
		{ "tokens", 't', OPT_COUNT, &a.tokens, "N",
		  "print the memory of a request of this length" },
		{ "on-disk", 0, OPT_STRING, &a.on_disk, "SAMPLE",
		  "with --tokens: what snapshots take, compressed as this one is" },
		{ "in-flight", 0, OPT_COUNT, &a.in_flight, "N",
		  "with --tokens: tokens of steps that run; default 8192" },
		{ "dcp", 0, OPT_COUNT, &a.dcp, "N",
		  "context parallel ranks of decoding, which share the tokens" },
		{ "draft", 0, OPT_COUNT, &a.draft, "N",
		  "tokens that are drafted a step, by the model's own layers (MTP)" },
		{ "draft-layers", 0, OPT_COUNT, &a.draft_layers, "N",
		  "how many layers these are, if the file does not say" },
		{ "draft-model", 0, OPT_STRING, &a.draft_model, "NAME|FILE",
		  "what drafts them instead: an Eagle head, a model, or none" },
		{ "encoder-tokens", 0, OPT_COUNT, &a.encoder, "N",
		  "with --tokens: tokens of an encoder, for cross attention" },
		OPT_LLAMA(&a.llama),
		{ "plan", 0, OPT_STRING, &plan.rates, "RATES",
		  "of dumps: shards of a command; RATES: bench --files=DIR --json" },
		{ "job", 0, OPT_STRING, &plan.job, "COMMAND",
		  "with --plan: digest (default), diff, fsck or convert" },
		{ "time", 0, OPT_STRING, &limit, "SECONDS",
		  "with --plan: what it may take" },
		{ "threads", 0, OPT_COUNT, &plan.threads, "N",
		  "with --plan: threads of a shard; default: 1" },
		OPT_JSON(&a.json),
		{ 0 }
	};
	enum kvt_status status;
	bool held;
	int n = opt_parse(&cmd_size, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	plan.json = a.json;
	if (plan.rates)
		return run_plan(&plan, limit, argv, n, err);
	if (a.tokens > KVT_ANY_TOKENS)
		return kvt_fail(err, KVT_USAGE, "--tokens is %lld, expected %d at most",
				LL(a.tokens), KVT_ANY_TOKENS);
	r.release = a.release;
	r.memory = a.memory;
	r.requests = a.requests ? a.requests : 1;
	r.tokens = a.tokens;
	r.demand = (struct kvt_demand){ .tokens = a.tokens, .in_flight = a.in_flight,
					.dcp = a.dcp, .encoder = a.encoder,
					.drafts = a.draft };
	if (a.list || model_list_asked(&a.model))
		return models_print(a.model.folder, err);
	if ((status = check_engine(&held, &a, err)))
		return status;
	if (held) {
		if (!(r.held = calloc(1, sizeof(*r.held))))
			return kvt_no_memory(err, NULL);
		status = show_held(&r, &a, n, argv, err);
		free(r.held);
		return status;
	}
	if ((status = load(&r, &a, n, argv, err)) ||
	    (status = size_llama_check(&a.llama, r.config.llama.nkinds, said_of_vllm(&a),
				       err)))
		return status;
	if (r.config.llama.nkinds)
		return size_llama(&r, &a.llama, a.json, err);
	if ((status = add_draft(&r, &a, err)))
		return status;
	note_blocks(&r.config, &a);
	if (!(r.row = calloc(SIZE_ROWS, sizeof(*r.row))))
		return kvt_no_memory(err, NULL);
	status = work(&r, &a, err);
	free(r.row);
	return status;
}

const struct command cmd_size = {
	.name    = "size",
	.args    = "[NAME|FILE]",
	.summary = "compute how much memory the caches of a model take",
	.run     = run,
	.examples =
		"  kvtool size config.json\n"
		"  kvtool size --model=llama-3.1-70b --tp=8\n"
		"  kvtool size --model=llama-3.1-70b --tp=8 --tokens=128k --requests=500\n"
		"  kvtool size --tp=8 --cache-dtype=fp8 --memory=40G config.json\n"
		"  kvtool size --spec gqa:layers=80,heads=8,head-dim=128 --cache-dtype=bfloat16\n",
};
