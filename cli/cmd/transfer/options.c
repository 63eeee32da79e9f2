/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c - the words of transfer-sim's options, as what they mean
 *
 * One place for all modes: sides, what moves, the stack that posts it and the link
 * below.  Files that options name are read here.
 */
#include "cli/cmd/transfer/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/text_file.h"
#include "lib/base/nearest.h"

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

enum kvt_status transfer_operands(struct transfer_words *a, int n, char **argv,
				  struct kvt_error *err)
{
	const struct opt_said made[] = {
		{ a->model, "model" }, { a->spec.n, "spec" },
		{ a->dtype, "cache-dtype" }, { a->tokens, "tokens" },
		{ a->src.text, "src" }, { a->dst.text, "dst" }, { a->conv, "conv" },
		{ 0 }
	};
	const struct opt_said dumped[] = {
		{ a->request, "request" }, { a->mamba_groups, "mamba-groups" }, { 0 }
	};

	if (n && n != 2)
		return kvt_fail(err, KVT_USAGE, "expected no dumps or two, got %d", n);
	if (n) {
		a->src.file = argv[0];
		a->dst.file = argv[1];
		return none_of(made, "is what two dumps say themselves", err);
	}
	if (a->model && a->spec.n)
		return kvt_fail(err, KVT_USAGE, "--model and --spec exclude each other");
	if (!a->tokens)
		a->tokens = DEFAULT_TOKENS;
	return none_of(dumped, "is of two dumps", err);
}

enum kvt_status scope_take(enum kvt_scope *out, const char *name, struct kvt_error *err)
{
	int scope = KVT_SCOPE_RFC;

	if (name)
		for (scope = 0; scope < KVT_NSCOPES; scope++)
			if (!strcmp(kvt_scope_name((enum kvt_scope)scope), name))
				break;
	if (scope == KVT_NSCOPES)
		return kvt_fail(err, KVT_USAGE,
				"--scope is '%.40s', expected max, rfc or layer", name);
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

/* ---- one side ------------------------------------------------------------- */

static enum kvt_status take_number(int64_t *out, const char *name, const char *key,
				   const char *value, struct kvt_error *err)
{
	if (value[strspn(value, "0123456789")] || !size_parse(out, value) || *out < 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"--%s: %s is '%.40s', expected a whole number above 0",
				name, key, value);
	return KVT_OK;
}

static enum kvt_status take_ids(struct kvt_transfer_pool *p, struct side_ids *ids,
				const char *name, const char *value,
				struct kvt_error *err)
{
	p->ids = (struct kvt_id_pattern){ .words = ids->words };
	if (snprintf(ids->words, sizeof(ids->words), "%s",
		     value) < (int)sizeof(ids->words))
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE,
			"--%s: ids are longer than %zu characters: write them to a file",
			name, sizeof(ids->words) - 1);
}

/* 'seen' are the keys so far, bit by bit. */
static enum kvt_status take_key(struct kvt_transfer_pool *p, struct side_ids *ids,
				unsigned *seen, const char *name, const char *key,
				const char *value, struct kvt_error *err)
{
	enum { LAYOUT, IDS, TP, BLOCK_SIZE, POOL, NKEYS };
	static const char *const names[NKEYS] = {
		"layout", "ids", "tp", "block-size", "pool",
	};
	int64_t *numbers[] = { &p->ranks, &p->block_size, &p->blocks };
	int k = 0;

	while (k < NKEYS && strcmp(names[k], key))
		k++;
	if (k == NKEYS)
		return kvt_fail(err, KVT_USAGE,
				"--%s: there is no key '%.40s', expected layout, tp, block-size, pool or ids",
				name, key);
	if (*seen & 1u << k)
		return kvt_fail(err, KVT_USAGE, "--%s: %s is given twice", name, key);
	*seen |= 1u << k;
	if (k == LAYOUT)
		return kvt_layout_parse(&p->layout, value, err);
	if (k == IDS)
		return take_ids(p, ids, name, value, err);
	return take_number(numbers[k - TP], name, key, value, err);
}

/* What is longer than any list of use is cut, and refused when it is parsed. */
static enum kvt_status read_ids(struct kvt_id_pattern *out, struct side_ids *ids,
				struct kvt_error *err)
{
	const char *path = ids->words + 5;
	size_t most = kvt_id_list_most(), room = 4096, n = 0;
	FILE *file = fopen(path, "r");
	enum kvt_status status = KVT_OK;

	if (!file)
		return kvt_fail(err, KVT_SYSTEM, "%s: %s", path, strerror(errno));
	free(ids->list);
	ids->list = malloc(room + 1);
	while (ids->list && (n += fread(ids->list + n, 1, room - n, file)) == room &&
	       room < most) {
		char *more;

		room = 2 * room < most ? 2 * room : most;
		if (!(more = realloc(ids->list, room + 1)))
			free(ids->list);
		ids->list = more;
	}
	if (!ids->list)
		status = kvt_fail(err, KVT_SYSTEM, "out of memory");
	else if (ferror(file))
		status = kvt_fail(err, KVT_SYSTEM, "%s: cannot be read", path);
	else
		ids->list[n] = '\0';
	fclose(file);
	out->list = ids->list;
	out->nbytes = n;
	return status;
}

/* "KEY=VALUE,..."; an axis tuple after rfc: or vllm: has commas of its own. */
enum kvt_status pool_take(struct kvt_transfer_pool *p, struct side_ids *ids,
			  const char *name, const char *text, struct kvt_error *err)
{
	char word[2048], *at = word;
	enum kvt_status status = KVT_OK;
	unsigned seen = 0;

	if (snprintf(word, sizeof(word), "%s", text) >= (int)sizeof(word))
		return kvt_fail(err, KVT_USAGE, "--%s is longer than %zu characters",
				name, sizeof(word) - 1);
	while (!status && at) {
		char *value = strchr(at, '='), *next;

		if (!value)
			return kvt_fail(err, KVT_USAGE,
					"--%s: '%.60s', expected KEY=VALUE", name, at);
		*value++ = '\0';
		next = strchr(value, ',');
		while (next && next[1] >= '0' && next[1] <= '9')
			next = strchr(next + 1, ',');
		if (next)
			*next++ = '\0';
		status = take_key(p, ids, &seen, name, at, value, err);
		at = next;
	}
	if (status || p->ids.words != ids->words || strncmp(ids->words, "file:", 5))
		return status;
	return read_ids(&p->ids, ids, err);
}

/* ---- a transfer ------------------------------------------------------------ */

static enum kvt_status take_pools(struct transfer_input *in,
				  const struct transfer_words *a, struct kvt_error *err)
{
	struct kvt_transfer_pool *src = &in->from.src, *dst = &in->from.dst;
	enum kvt_status status;

	*src = (struct kvt_transfer_pool){ .ranks = 1, .block_size = 16,
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

static enum kvt_status read_model(struct transfer_input *in,
				  const struct transfer_words *a, struct kvt_error *err)
{
	const struct kvt_config_hints none = { .nset = 0 };
	enum kvt_status status;

	if (!(in->config = malloc(sizeof(*in->config))))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	if ((status = model_read(in->config, a->model, a->models, &none, err)))
		return status;
	in->from.name = a->model;
	in->from.group = in->config->model.group;
	in->from.ngroups = in->config->model.ngroups;
	return KVT_OK;
}

static enum kvt_status read_specs(struct transfer_input *in,
				  const struct transfer_words *a, struct kvt_error *err)
{
	in->from.group = in->spec = calloc((size_t)a->spec.n, sizeof(*in->spec));
	if (!in->spec)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
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
	enum kvt_status status;

	if ((status = transfer_how_take(&in->from.how, a, err)))
		return status;
	if (!a->model == !a->spec.n)
		return kvt_fail(err, KVT_USAGE,
				"expected two dumps, --model or --spec");
	if ((status = take_pools(in, a, err)) ||
	    (status = a->model ? read_model(in, a, err) : read_specs(in, a, err)))
		return status;
	in->from.cache_dtype = a->dtype;
	in->from.conv = a->conv;
	in->from.tokens = a->tokens;
	return KVT_OK;
}

static enum kvt_status open_dumps(struct transfer_input *in,
				  const struct transfer_words *a, struct kvt_error *err)
{
	struct kvt_transfer_how how;
	struct kvt_transfer_dumps dumps = { .src_name = a->src.file,
					    .dst_name = a->dst.file };
	enum kvt_status status;

	if ((status = transfer_how_take(&how, a, err)) ||
	    (status = kvt_open(&in->dump[0], dumps.src_name, NULL, err)) ||
	    (status = kvt_open(&in->dump[1], dumps.dst_name, NULL, err)))
		return status;
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
	free(in->config);
	free(in->spec);
	in->config = NULL;
	in->spec = NULL;
}

/* ---- a link ------------------------------------------------------------------ */

enum { MOST_LINK_TEXT = 1 << 20 };

static enum kvt_status read_link(struct link_file *out, const char *path,
				 struct kvt_error *err)
{
	size_t nbytes;
	char *text;
	enum kvt_status status = text_file_read(&text, &nbytes, path, MOST_LINK_TEXT,
						err);

	if (status)
		return status;
	status = link_parse(out, text, nbytes, path, err);
	free(text);
	return status;
}

enum kvt_status link_take(struct link_file *out, const char *text, struct kvt_error *err)
{
	const struct kvt_link *preset;
	struct kvt_nearest near;

	kvt_nearest_start(&near, text);
	for (int i = 0; (preset = kvt_link_preset(i)); i++) {
		kvt_nearest_offer(&near, preset->name);
		if (strcmp(preset->name, text))
			continue;
		memset(out, 0, sizeof(*out));
		out->link = *preset;
		return KVT_OK;
	}
	if (!access(text, F_OK) || strchr(text, '/'))
		return read_link(out, text, err);
	if (kvt_nearest_found(&near))
		return kvt_fail(err, KVT_USAGE,
				"there is no link '%.60s' and no such file, did you mean '%s'?",
				text, kvt_nearest_found(&near));
	return kvt_fail(err, KVT_USAGE,
			"there is no link '%.60s' and no such file; --link=list prints the links",
			text);
}

enum kvt_status link_has_figures(const struct kvt_link *link, struct kvt_error *err)
{
	if (link->quality != KVT_CALIBRATE)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"link %s was never measured (%s): calibrate it where it is used, and name the file",
			link->name, link->source);
}

/* ---- words and numbers of a stack ------------------------------------------ */

/* "54.8" times 'unit', rounded; untouched if it was not said. */
static enum kvt_status take_figure(int64_t *out, const char *text, const char *option,
				   double unit, struct kvt_error *err)
{
	char *end;
	double x;

	if (!text)
		return KVT_OK;
	x = strtod(text, &end) * unit;
	if (end == text || *end || !(x >= 0 && x < 9e18))
		return kvt_fail(err, KVT_USAGE,
				"--%s is '%.40s', expected a number of 0 or more", option,
				text);
	*out = (int64_t)(x + 0.5);
	return KVT_OK;
}

/* Which of n words; 'out' is untouched if nothing was said. */
static enum kvt_status take_word(int *out, const char *text, const char *option,
				 const char *(*name)(int), int n, struct kvt_error *err)
{
	struct kvt_error words = { "" };
	size_t len = 0;

	for (int i = 0; text && i < n; i++) {
		if (!strcmp(text, name(i))) {
			*out = i;
			return KVT_OK;
		}
		len += (size_t)snprintf(words.text + len, sizeof(words.text) - len,
					"%s%s", i ? ", " : "", name(i));
	}
	return text ? kvt_fail(err, KVT_USAGE, "--%s is '%.40s', expected one of %.200s",
			       option, text, words.text) : KVT_OK;
}

static const char *coalesce_name(int i)
{
	return kvt_coalesce_name((enum kvt_coalesce)i);
}

static const char *stack_name(int i)
{
	return kvt_stack_name((enum kvt_stack)i);
}

static const char *share_name(int i)
{
	return kvt_share_name((enum kvt_share)i);
}

/* ---- the stack ------------------------------------------------------------ */

static enum kvt_status take_posting(struct kvt_batch_how *how,
				    const struct posting_words *a, struct kvt_error *err)
{
	int stack = KVT_STACK_RFC, coalesce = KVT_COALESCE_STACK, share = KVT_SHARE_FAIR;
	enum kvt_status status;

	if ((status = take_word(&stack, a->emulate, "emulate", stack_name, KVT_NSTACKS,
				err)) ||
	    (status = take_word(&coalesce, a->coalesce, "coalesce", coalesce_name,
				KVT_NCOALESCES, err)) ||
	    (status = take_word(&share, a->share, "share", share_name, KVT_NSHARES,
				err)) ||
	    (status =
		     take_figure(&how->copy_rate, a->copy_rate, "copy-rate", 1e9, err)))
		return status;
	if (!a->stage != !how->copy_rate)
		return kvt_fail(err, KVT_USAGE,
				"--stage and --copy-rate need each other: nobody can guess how fast the copies are");
	how->posting = (struct kvt_posting){
		.stack = (enum kvt_stack)stack, .coalesce = (enum kvt_coalesce)coalesce,
		.descending = a->descending, .sge = a->sge,
		.slice = a->slice ? a->slice : how->link.slice,
	};
	/* its engine lets a short rest join the slice before */
	if (stack == KVT_STACK_MOONCAKE && !a->slice && how->posting.slice)
		how->posting.fragment = KVT_MOONCAKE_FRAGMENT;
	how->share = (enum kvt_share)share;
	how->force = a->force;
	how->push = a->push;
	how->stage = a->stage;
	return KVT_OK;
}

/* ---- figures of the link --------------------------------------------------- */

/* Without --link, the one that was measured with the stack. */
static const char *default_link(const char *emulate)
{
	if (emulate && !strncmp(emulate, "nixl", 4))
		return "vllm-nixl-rc";
	if (emulate && !strcmp(emulate, "mooncake"))
		return "vllm-mooncake";
	return "cx7-400g-verbs";
}

static enum kvt_status take_overlap(int *out, const char *text, struct kvt_error *err)
{
	if (!text)
		return KVT_OK;
	if (!strcmp(text, "inf"))
		*out = KVT_OVERLAP_FULL;
	else if (strlen(text) == 1 && strchr("124", *text))
		*out = *text - '0';
	else
		return kvt_fail(err, KVT_USAGE,
				"--overlap-power is '%.40s', expected 1, 2, 4 or inf", text);
	return KVT_OK;
}

/* Some of these are figures enough for a link that was never measured. */
static enum kvt_status override(struct kvt_batch_how *how, const struct posting_words *a,
				struct kvt_error *err)
{
	struct kvt_link *link = &how->link;
	int64_t op = link->op_ps;
	enum kvt_status status;

	if ((status = take_overlap(&link->overlap, a->overlap, err)) ||
	    (status = take_figure(&link->setup_ns, a->setup, "setup", 1e3, err)) ||
	    (status = take_figure(&link->op_ps, a->op, "op", 1e3, err)) ||
	    (status = take_figure(&link->rate, a->rate, "rate", 1e9, err)) ||
	    (status = take_figure(&how->latency_ps, a->latency, "latency", 1e3, err)))
		return status;
	if (a->op)	/* posting keeps its share of it */
		link->post_ps = op ? (int64_t)((double)link->post_ps / (double)op *
					       (double)link->op_ps) : link->op_ps / 2;
	if ((status = take_figure(&link->post_ps, a->post, "post", 1e3, err)))
		return status;
	if (a->setup || a->op || a->rate || a->overlap || a->post)
		link->quality = KVT_GIVEN;
	if ((status = link_has_figures(link, err)) ||
	    (status = kvt_link_check(link, err)))
		return status;
	if (a->threads > 1) {
		link->op_ps -= link->post_ps - link->post_ps / a->threads;
		link->post_ps /= a->threads;
	}
	if (a->rails > 1) {
		if (link->rate > INT64_MAX / a->rails)
			return kvt_fail(err, KVT_USAGE, "%lld rails are too many",
					(long long)a->rails);
		link->rate *= a->rails;
	}
	return KVT_OK;
}

enum kvt_status posting_take(struct kvt_batch_how *out, struct link_file *file,
			     const struct posting_words *a, struct kvt_error *err)
{
	const char *name = a->link ? a->link : default_link(a->emulate);
	enum kvt_status status;

	memset(out, 0, sizeof(*out));
	out->run = run_watched(0, 0, false);
	out->run.context = (void *)(uintptr_t)&cmd_transfer_sim;
	if ((status = link_take(file, name, err)))
		return status;
	out->link = file->link;
	if ((status = override(out, a, err)))
		return status;
	if (a->window && !out->latency_ps)
		return kvt_fail(err, KVT_USAGE,
				"--window needs --latency: how long a completion takes to be seen");
	out->window = a->window;
	return take_posting(out, a, err);
}
