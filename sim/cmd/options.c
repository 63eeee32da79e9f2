/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c - the words of transfer-sim's options, as what they mean
 *
 * One place for all modes: models, dumps, and what moves.  One side is side_words.c's,
 * the stack that posts it and the link below are those of posting.c.
 */
#include "sim/cmd/options.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "sim/print/link.h"
#include "cli/rewrite.h"
#include "print/out/streams.h"
#include "lib/base/nearest.h"
#include "lib/base/print.h"

const struct command transfer_modes = { .name = TRANSFER_SIM };

/* ---- operands and single words ------------------------------------------- */

enum { DEFAULT_TOKENS = 2048 };

static enum kvt_status none_of(const struct opt_said *said, const char *why,
			       struct kvt_error *err)
{
	for (; said->name; said++)
		if (said->given)
			return kvt_fail(err, KVT_USAGE, "--%s %s", said->name, why);
	return KVT_OK;
}

/* What a dump lacks can be said of a dump only; of a model there are other words. */
static enum kvt_status no_hints(const struct kvt_hints *h, struct kvt_error *err)
{
	const struct kvt_hint *hint;

	if (h->format && strchr(h->format, '='))
		return kvt_fail(err, KVT_USAGE,
				"--from is the format of a dump; a model's sides are --src=%.60s and --dst=KEY=VALUE",
				h->format);
	if (h->layout)
		return kvt_fail(err, KVT_USAGE,
				"--layout is of dumps; a model's sides have --src=layout=%.60s and --dst=layout=%.60s",
				h->layout, h->layout);
	if (h->block_size)
		return kvt_fail(err, KVT_USAGE,
				"--block-size is of dumps; a model's sides have --src=block-size=%lld and --dst=block-size=%lld",
				LL(h->block_size), LL(h->block_size));
	if (h->dtype)
		return kvt_fail(err, KVT_USAGE,
				"--dtype is of dumps; a model's cache has --cache-dtype=%.60s",
				h->dtype);
	for (int i = 0; (hint = kvt_hint_at(i)); i++)
		if (kvt_hint_said(h, hint))
			return kvt_fail(err, KVT_USAGE,
					"--%s is of dumps; other caches are said with --spec=KIND:KEY=N,...: kvtool help specs",
					hint->name);
	return KVT_OK;
}

/* A single operand that is a model's config.json. */
static bool is_config(const struct transfer_words *a, int n, char **argv)
{
	const char *end = "config.json";
	size_t length = n == 1 ? strlen(argv[0]) : 0;

	return length >= strlen(end) && !a->model.model && !a->model.config &&
	       !a->spec.n && !strcmp(argv[0] + length - strlen(end), end);
}

/* By its name: what benchmarks publish. */
static bool is_trace(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot && (!strcmp(dot, ".jsonl") || !strcmp(dot, ".csv"));
}

/* --spec is of the dumps, then: what they cache. */
static enum kvt_status take_dumps(struct transfer_words *a, int n, char **argv,
				  struct kvt_error *err)
{
	const struct opt_said made[] = {
		{ a->model.model, "model" }, { a->model.config, "config" },
		{ a->dtype, "cache-dtype" }, { a->tokens, "tokens" },
		{ a->src.text, "src" },
		{ a->spec.n > 1, "spec (more than one)" }, { 0 }
	};

	if (n == 1 && strpbrk(argv[0], "/") == NULL && !is_stream(argv[0]) &&
	    access(argv[0], F_OK))
		return kvt_fail(err, KVT_USAGE,
				"'%.100s' does not exist; a model is given as --model=%.100s",
				argv[0], argv[0]);
	if (n == 1 && is_trace(argv[0]))
		return kvt_fail(err, KVT_USAGE,
				"a trace is replayed: 'kvtool transfer-sim replay --model=llama-3.1-8b %.200s'",
				argv[0]);
	if (n == 1 && !a->dst.text)
		return kvt_fail(err, KVT_USAGE,
				"expected the dump of a destination, or --dst that describes it: 'kvtool transfer-sim %s%s%.200s --dst=tp=2'",
				a->mode, a->mode[0] ? " " : "", argv[0]);
	if (n > 2 && !a->dst.text)
		return kvt_fail(err, KVT_USAGE,
				"expected two dumps, got %d: one dump of each side is enough, whichever rank it is of (exec takes those of all ranks)",
				n);
	if (a->conv && !a->dst.text)
		return kvt_fail(err, KVT_USAGE,
				"--conv is what two dumps say themselves");
	a->src.file = argv[0];
	if (!a->dst.text)
		a->dst.file = argv[1];
	a->nfiles = n;
	a->files = (const char *const *)argv;
	if (a->spec.n)
		a->hints.spec = a->spec.s[0];
	return none_of(made, "is what dumps say themselves", err);
}

static enum kvt_status no_model(const struct transfer_words *a, struct kvt_error *err)
{
	const char *more = a->trace_missing ?
			   "; and a trace: TRACE, --trace=FILE or --synthetic=SEED,N" : "";
	const char *mode = a->mode, *space = mode[0] ? " " : "";

	if (a->needs_trace)
		return kvt_fail(err, KVT_USAGE,
				"expected a model: --model=NAME|config.json or --spec%s; such as 'kvtool transfer-sim %s --model=llama-3.1-8b --src=tp=4 --dst=tp=8 %.200s'",
				more, mode, a->trace ? a->trace : "--synthetic=1,100");
	if (a->no_dumps)
		return kvt_fail(err, KVT_USAGE,
				"expected a model: --model=NAME|config.json or --spec; such as 'kvtool transfer-sim %s --model=llama-3.1-8b --tps=4:8'",
				mode);
	return kvt_fail(err, KVT_USAGE,
			"expected a model: --model=NAME|config.json or --spec; or the dumps of both sides; such as 'kvtool transfer-sim %s%s--model=llama-3.1-8b --src=tp=4 --dst=tp=8%s'",
			mode, space, a->example ? a->example : "");
}

enum kvt_status transfer_operands(struct transfer_words *a, int n, char **argv,
				  struct kvt_error *err)
{
	const struct opt_said dumped[] = {
		{ a->request, "request" }, { a->mamba_groups, "mamba-groups" }, { 0 }
	};
	const char *model;
	enum kvt_status status;

	if (is_config(a, n, argv)) {
		a->model.config = argv[0];
		n = 0;
	}
	if (n)
		return take_dumps(a, n, argv, err);
	if ((status = model_said(&model, &a->model, err)))
		return status;
	if (model && a->spec.n)
		return kvt_fail(err, KVT_USAGE, "--model and --spec exclude each other");
	if (!model && !a->spec.n)
		return no_model(a, err);
	if (!a->tokens)
		a->tokens = DEFAULT_TOKENS;
	if ((status = no_hints(&a->hints, err)))
		return status;
	return none_of(dumped, "is of two dumps", err);
}

bool transfer_listed(enum kvt_status *status, const struct transfer_words *a,
		     const char *link, const char *emulate, struct kvt_error *err)
{
	*status = KVT_OK;
	if (model_list_asked(&a->model))
		*status = models_print(a->model.folder, err);
	else if (link && !strcmp(link, "list"))
		link_print_presets();
	else if (emulate && !strcmp(emulate, "list"))
		stack_print_all();
	else
		return false;
	return true;
}

/* ---- words of lists ------------------------------------------------------- */

enum kvt_status scope_take(enum kvt_scope *out, const char *name, struct kvt_error *err)
{
	struct kvt_nearest near = kvt_nearest_start(name ? name : "");
	int scope = KVT_SCOPE_RFC;

	if (name)
		for (scope = 0; scope < KVT_NSCOPES; scope++) {
			kvt_nearest_offer(&near, kvt_scope_name((enum kvt_scope)scope));
			if (!strcmp(kvt_scope_name((enum kvt_scope)scope), name))
				break;
		}
	if (scope == KVT_NSCOPES)
		return kvt_fail(err, KVT_USAGE,
				"--scope is '%.40s', expected max, rfc or layer%s", name,
				kvt_nearest_hint(&near, "").s);
	*out = (enum kvt_scope)scope;
	return KVT_OK;
}

static bool said(const char *text, const char *word)
{
	return text && !strcmp(text, word);
}

enum kvt_status transfer_how_take(struct kvt_transfer_how *out,
				  const struct transfer_words *a, struct kvt_error *err)
{
	if (a->partial && !said(a->partial, "valid") && !said(a->partial, "whole"))
		return kvt_fail(err, KVT_USAGE,
				"--partial is '%.40s', expected valid or whole",
				a->partial);
	if (a->replicas && !said(a->replicas, "grouped") && !said(a->replicas, "modulo"))
		return kvt_fail(err, KVT_USAGE,
				"--replica-map is '%.40s', expected grouped or modulo",
				a->replicas);
	if (a->conv && !said(a->conv, "sd") && !said(a->conv, "ds"))
		return kvt_fail(err, KVT_USAGE, "--conv is '%.40s', expected sd or ds",
				a->conv);
	if (a->tokens > UINT32_MAX)
		return kvt_fail(err, KVT_BAD_INPUT,
				"--tokens is %lld, expected at most %lld",
				(long long)a->tokens, (long long)UINT32_MAX);
	if (!a->src.file && a->cached > a->tokens)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld of %lld tokens are at the destination already",
				(long long)a->cached, (long long)a->tokens);
	*out = (struct kvt_transfer_how){
		.request = a->request, .cached = a->cached,
		.mamba_groups = a->mamba_groups,
		.replicas = said(a->replicas, "modulo") ? KVT_MODULO : KVT_GROUPED,
		.whole = said(a->partial, "whole"), .all_states = a->all_states,
	};
	return KVT_OK;
}

/* ---- a transfer ------------------------------------------------------------ */

static enum kvt_status take_pools(struct transfer_input *in,
				  const struct transfer_words *a, struct kvt_error *err)
{
	struct kvt_transfer_pool *src = &in->from.src, *dst = &in->from.dst;
	enum kvt_status status;

	*src = (struct kvt_transfer_pool){ .ranks = 1, .block_size = 16,
					   .dcp = 1, .interleave = 1,
					   .ids = { .words = "contig" } };
	if ((status = kvt_layout_parse(&src->layout, "hnd", err)) ||
	    (a->src.text &&
	     (status = pool_take(src, &in->ids[0], "src", a->src.text, err))))
		return status;
	*dst = *src;
	if (a->dst.text &&
	    (status = pool_take(dst, &in->ids[1], "dst", a->dst.text, err)))
		return status;
	if (!a->layout)
		return KVT_OK;
	if ((status = kvt_layout_parse(&src->layout, a->layout, err)))
		return status;
	dst->layout = src->layout;
	return KVT_OK;
}

static enum kvt_status read_model(struct transfer_input *in, const char *model,
				  const struct transfer_words *a, struct kvt_error *err)
{
	const struct kvt_config_hints none = { .nset = 0 };
	enum kvt_status status;

	if (!(in->config = malloc(sizeof(*in->config))))
		return kvt_no_memory(err, NULL);
	if ((status = model_read(in->config, model, a->model.folder, &none, err)))
		return status;
	for (int i = 0; i < in->config->nnotes; i++)
		complain(&transfer_modes, "note: %s: %s", model, in->config->note[i]);
	in->from.name = is_stream(model) ? "model" : model;
	in->from.group = in->config->model.group;
	in->from.ngroups = in->config->model.ngroups;
	return KVT_OK;
}

/* What "auto" is where it is not the two bytes that specs have anyway. */
static const char *quantised(const struct kvt_model_config *config)
{
	const struct kvt_dtype *dtype;

	if (!config || !config->cache_dtype[0])
		return NULL;
	dtype = kvt_dtype_find(config->cache_dtype);
	return dtype && dtype->elem == 2 ? NULL : config->cache_dtype;
}

static enum kvt_status read_specs(struct transfer_input *in,
				  const struct transfer_words *a, struct kvt_error *err)
{
	in->from.group = in->spec = calloc((size_t)a->spec.n, sizeof(*in->spec));
	if (!in->spec)
		return kvt_no_memory(err, NULL);
	for (int i = 0; i < a->spec.n; i++) {
		struct kvt_model_group *g = &in->spec[in->from.ngroups++];
		struct kvt_error why = { "" };
		enum kvt_status status = kvt_model_group_parse(g, a->spec.s[i], &why);

		if (status)
			return kvt_fail(err, status, "--spec: %.400s", why.text);
		snprintf(g->name, sizeof(g->name), "g%d", i);
	}
	return KVT_OK;
}

enum kvt_status transfer_describe(struct transfer_input *in,
				  const struct transfer_words *a, struct kvt_error *err)
{
	const char *model;
	enum kvt_status status;

	if ((status = transfer_how_take(&in->from.how, a, err)) ||
	    (status = model_said(&model, &a->model, err)) ||
	    (status = take_pools(in, a, err)) ||
	    (status = model ? read_model(in, model, a, err) : read_specs(in, a, err)))
		return status;
	in->from.cache_dtype = a->dtype ? a->dtype : quantised(in->config);
	in->from.conv = a->conv;
	in->from.tokens = a->tokens;
	return KVT_OK;
}

/* ---- dumps ------------------------------------------------------------------- */

static enum kvt_status open_one(struct kvt_dump **out, const char *name,
				const struct transfer_words *a, struct kvt_error *err)
{
	if (!a)
		return kvt_open(out, name, NULL, err);
	return a->dst.text ? kvt_open(out, name, &a->hints, err) :
			     open_as_told(out, name, &a->hints, err);
}

/* More dumps than the first says that there are ranks. */
static enum kvt_status too_many(struct kvt_ranks *side, struct kvt_error *err)
{
	int64_t ranks = kvt_ranks_snapshot(side, 0)->parallel.tp_size;

	if (side->n > ranks)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is one of %lld rank%s, expected so many dumps of its side, got %d",
				side->file[0].name, LL(ranks), plural(ranks), side->n);
	return kvt_ranks_check(side, err);
}

enum kvt_status transfer_open_ranks(struct kvt_ranks *side, int n,
				    const char *const *names,
				    const struct transfer_words *words,
				    struct kvt_error *err)
{
	enum kvt_status status;

	side->n = n;
	side->file = calloc((size_t)n + 1, sizeof(*side->file));
	if (!side->file)
		return kvt_no_memory(err, NULL);
	for (int i = 0; i < n; i++) {
		side->file[i].name = names[i];
		if ((status = open_one(&side->file[i].reader, names[i], words, err)))
			return status;
	}
	return too_many(side, err);
}

enum kvt_status transfer_count_ranks(int *out, const char *name,
				     const struct transfer_words *words,
				     struct kvt_error *err)
{
	struct kvt_dump *reader;
	enum kvt_status status = open_one(&reader, name, words, err);

	if (status)
		return status;
	*out = (int)kvt_dump_snapshot(reader)->parallel.tp_size;
	kvt_dump_close(reader);
	return KVT_OK;
}

enum kvt_status transfer_make_dst(struct kvt_sides *sides, const struct transfer_words *a,
				  struct kvt_error *err)
{
	struct kvt_new_side side = {
		.pool = { .ids = { .words = "contig" } },
		.conv = a->conv, .mamba_groups = a->mamba_groups,
	};
	struct side_ids ids = { .list = NULL };
	enum kvt_status status = pool_take(&side.pool, &ids, "dst", a->dst.text, err);

	/* a dump says nothing of tokens that are not in a row */
	if (!status && side.pool.dcp > 1)
		status = kvt_fail(err, KVT_UNSUPPORTED,
				  "--dst: dcp=%lld is of a model's sides: no dump holds tokens that ranks have dealt out",
				  LL(side.pool.dcp));
	if (!status)
		status = kvt_sides_make_dst(sides, &side, err);
	free(ids.list);
	return status;
}

/* The destination that exec --dst would make of these ranks. */
static enum kvt_status open_made(struct transfer_input *in,
				 const struct transfer_words *a, struct kvt_error *err)
{
	enum kvt_status status;
	int ranks;

	if ((status = transfer_count_ranks(&ranks, a->files[0], a, err)))
		return status;
	if (ranks != a->nfiles)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is one of %d rank%s, and --dst needs all of them, got %d file%s",
				a->files[0], ranks, plural(ranks), a->nfiles,
				plural(a->nfiles));
	status = transfer_open_ranks(&in->sides.src, ranks, a->files, a, err);
	return status ? status : transfer_make_dst(&in->sides, a, err);
}

static enum kvt_status open_dumps(struct transfer_input *in,
				  const struct transfer_words *a, struct kvt_error *err)
{
	struct kvt_transfer_how how;
	struct kvt_transfer_dumps dumps = { .src_name = a->src.file,
					    .dst_name = a->dst.file };
	enum kvt_status status;

	if ((status = transfer_how_take(&how, a, err)))
		return status;
	if (!a->dst.file) {
		if ((status = open_made(in, a, err)))
			return status;
		dumps.dst_name = "the destination";
		dumps.src = kvt_ranks_snapshot(&in->sides.src, 0);
		dumps.dst = kvt_ranks_snapshot(&in->sides.dst, 0);
		return kvt_transfer_of_dumps(&in->transfer, &dumps, &how, err);
	}
	if ((status = open_one(&in->dump[0], a->src.file, a, err)) ||
	    (status = open_one(&in->dump[1], a->dst.file, a, err)))
		return status;
	if (!is_as_told(a->src.file, &a->hints, err) &&
	    !is_as_told(a->dst.file, &a->hints, err))
		return KVT_BAD_INPUT;
	dumps.src = kvt_dump_snapshot(in->dump[0]);
	dumps.dst = kvt_dump_snapshot(in->dump[1]);
	return kvt_transfer_of_dumps(&in->transfer, &dumps, &how, err);
}

enum kvt_status transfer_open(struct transfer_input *in, const struct transfer_words *a,
			      struct kvt_error *err)
{
	enum kvt_status status;

	*in = (struct transfer_input){ .dump = { NULL } };
	if (a->src.file)
		status = open_dumps(in, a, err);
	else if (!(status = transfer_describe(in, a, err)))
		status = kvt_transfer_of_model(&in->transfer, &in->from, err);
	if (status)
		transfer_close(in);
	return status;
}

void transfer_close(struct transfer_input *in)
{
	kvt_transfer_free(&in->transfer);
	for (int i = 0; i < 2; i++) {
		kvt_dump_close(in->dump[i]);
		in->dump[i] = NULL;
		free(in->ids[i].list);
		in->ids[i].list = NULL;
	}
	kvt_sides_free(&in->sides);
	free(in->config);
	free(in->spec);
	in->config = NULL;
	in->spec = NULL;
}
