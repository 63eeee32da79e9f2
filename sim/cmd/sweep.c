/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep.c - kvtool transfer-sim sweep: which deployment is fastest, and why
 *
 * All choices of block size, TP, stack, gather and layouts, in that order of loops, are
 * one list.  Each is planned and timed by itself, so that shards may have some of them;
 * rows come back in the order of the list, whoever made them.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/cmd/options.h"
#include "sim/print/transfer.h"
#include "cli/progress.h"
#include "cli/shard/shard.h"
#include "lib/base/grow.h"
#include "lib/run/pipeline.h"
#include "lib/kvt/share.h"
#include "lib/base/number.h"

enum { MOST_ITEMS = 32, MOST_TEXT = 2048 };

struct sweep_args {
	const struct transfer_words *transfer;
	const char *layouts, *block_sizes, *tps, *scopes, *sges, *link;
	struct kvt_sweep_stage stage;
	bool cross, json, csv;
};

/* What --layouts and the like say: words between commas. */
struct items {
	int n;
	char text[1024];
	const char *word[MOST_ITEMS];	/* into text */
};

static enum kvt_status take_items(struct items *out, const char *name, const char *list,
				  struct kvt_error *err)
{
	out->n = 0;
	if (!list)
		return KVT_OK;
	if (snprintf(out->text, sizeof(out->text), "%s", list) >= (int)sizeof(out->text))
		return kvt_fail(err, KVT_USAGE, "--%s is too long", name);
	for (char *at = strtok(out->text, ","); at; at = strtok(NULL, ",")) {
		if (out->n == MOST_ITEMS)
			return kvt_fail(err, KVT_USAGE, "--%s has more than %d items",
					name, MOST_ITEMS);
		out->word[out->n++] = at;
	}
	return out->n ? KVT_OK : kvt_fail(err, KVT_USAGE, "--%s is empty", name);
}

/* ---- one deployment ------------------------------------------------------ */

/* What one row adds to --src and --dst; NULL: nothing. */
struct choice {
	const char *layout[2], *block_size, *tp;
	enum kvt_stack stack;
	int64_t sge;
	bool first;			/* of the stacks and gathers of a deployment */
};

/* "A:B" is A of the source and B of the destination, "A" is of both. */
static void add_key(char *text, size_t room, const char *key, const char *value, int side)
{
	const char *colon = value ? strchr(value, ':') : NULL;
	size_t n = strlen(text);
	int len;

	if (!value)
		return;
	if (side && colon)
		value = colon + 1;
	len = !side && colon ? (int)(colon - value) : (int)strlen(value);
	snprintf(text + n, room - n, "%s%s=%.*s", n ? "," : "", key, len, value);
}

static enum kvt_status try_choice(struct kvt_sweep *s, const struct choice *c,
				  const struct sweep_args *a, struct kvt_error *err)
{
	struct transfer_words words = *a->transfer;
	char text[2][MOST_TEXT];
	struct transfer_input in;
	enum kvt_status status;

	for (int side = 0; side < 2; side++) {
		const char *said = side ? words.dst.text : words.src.text;

		if (snprintf(text[side], MOST_TEXT - 200, "%s", said ? said : "") >=
		    MOST_TEXT - 200)
			return kvt_fail(err, KVT_USAGE, "--%s is too long",
					side ? "dst" : "src");
		add_key(text[side], MOST_TEXT, "layout", c->layout[side], 0);
		add_key(text[side], MOST_TEXT, "block-size", c->block_size, side);
		add_key(text[side], MOST_TEXT, "tp", c->tp, side);
	}
	words.src.text = *text[0] ? text[0] : NULL;
	words.dst.text = *text[1] ? text[1] : NULL;
	if ((status = transfer_open(&in, &words, err)))
		return status;
	status = kvt_sweep_add(s, &in.transfer, c->layout, c->stack, c->sge, err);
	if (!status && c->first && a->stage.size)
		status = kvt_sweep_add_staged(s, &in.transfer, c->layout, c->stack,
					      c->sge, &a->stage, err);
	s->tokens = in.transfer.tokens;
	transfer_close(&in);
	return status;
}

/* ---- all of them --------------------------------------------------------- */

struct axes {
	struct items layouts, block_sizes, tps, scopes, sges;
};

/* All of them, in the order of their rows. */
struct choices {
	int64_t n;
	struct choice *at;		/* owned */
};

static enum kvt_status add_choice(struct choices *to, const struct choice *c,
				  struct kvt_error *err)
{
	if (!KVT_GROW(&to->at, to->n))
		return kvt_no_memory(err, NULL);
	to->at[to->n++] = *c;
	return KVT_OK;
}

static enum kvt_status try_layouts(struct choices *s, struct choice *c,
				   const struct axes *x, const struct sweep_args *a,
				   struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < x->layouts.n; i++)
		for (int j = 0; !status && j < x->layouts.n; j++) {
			if (!a->cross && i != j)
				continue;
			c->layout[0] = x->layouts.word[i];
			c->layout[1] = x->layouts.word[j];
			status = add_choice(s, c, err);
		}
	return status;
}

static enum kvt_status take_stack(enum kvt_stack *out, const char *word,
				  struct kvt_error *err)
{
	struct kvt_nearest near;

	if (kvt_stack_find(out, word))
		return KVT_OK;
	near = kvt_nearest_start(word);
	for (int i = 0; i < KVT_NSTACKS; i++)
		kvt_nearest_offer(&near, kvt_stack_name((enum kvt_stack)i));
	return kvt_fail(err, KVT_USAGE,
			"--scopes has '%.40s', expected layer, rfc, max, nixl, nixl-packed or mooncake%s",
			word, kvt_nearest_hint(&near, "").s);
}

/* Whose operations, and how many runs of bytes one may gather. */
static enum kvt_status try_stacks(struct choices *s, struct choice *c,
				  const struct axes *x, const struct sweep_args *a,
				  struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int o = 0; !status && o < x->scopes.n; o++)
		for (int g = 0; !status && g < x->sges.n; g++) {
			if ((status = take_stack(&c->stack, x->scopes.word[o], err)))
				return status;
			if (!kvt_number_parse(&c->sge, x->sges.word[g]) || c->sge < 1)
				return kvt_fail(err, KVT_USAGE,
						"--sges has '%.40s', expected a whole number above 0",
						x->sges.word[g]);
			c->first = !o && !g;
			status = try_layouts(s, c, x, a, err);
		}
	return status;
}

static enum kvt_status try_all(struct choices *s, const struct axes *x,
			       const struct sweep_args *a, struct kvt_error *err)
{
	struct choice c = { .block_size = NULL };
	enum kvt_status status = KVT_OK;

	for (int b = 0; !status && b < x->block_sizes.n + !x->block_sizes.n; b++)
		for (int t = 0; !status && t < x->tps.n + !x->tps.n; t++) {
			c.block_size = x->block_sizes.n ? x->block_sizes.word[b] : NULL;
			c.tp = x->tps.n ? x->tps.word[t] : NULL;
			status = try_stacks(s, &c, x, a, err);
		}
	return status;
}

/* What a choice gives: one row, or two. */
struct tried {
	int64_t tokens, n;
	struct kvt_sweep_row row[2];
};

struct trying {
	const struct sweep_args *args;
	const struct choices *choices;
	struct kvt_sweep *sweep;
	bool failed;			/* out of memory */
};

/* kvt_work_fn */
static enum kvt_status try_one(struct kvt_worker *worker, void *context, int64_t i,
			       struct kvt_error *err)
{
	const struct trying *t = context;
	struct tried *out = memset(worker->result, 0, sizeof(*out));
	struct kvt_sweep one = { .link = t->sweep->link };
	enum kvt_status status = try_choice(&one, &t->choices->at[i], t->args, err);

	out->tokens = one.tokens;
	out->n = one.n;
	for (int64_t r = 0; r < one.n && r < 2; r++)
		out->row[r] = one.row[r];
	worker->nresult = sizeof(*out);
	kvt_sweep_free(&one);
	return status;
}

static bool is_bool(const bool *value)
{
	uint8_t byte;

	memcpy(&byte, value, sizeof(byte));
	return byte < 2;
}

/* Results come from files, too: is it a row that can be printed? */
static bool is_row(const struct kvt_sweep_row *r)
{
	return memchr(r->layout[0], 0, sizeof(r->layout[0])) &&
	       memchr(r->layout[1], 0, sizeof(r->layout[1])) &&
	       memchr(r->refused, 0, sizeof(r->refused)) &&
	       (unsigned)r->stack < KVT_NSTACKS &&
	       (unsigned)r->why.cause < KVT_SWEEP_NCAUSES &&
	       (unsigned)r->why.axis < KVT_NAXES && is_bool(&r->pareto) &&
	       is_bool(&r->why.at_source) && is_bool(&r->why.channels);
}

/* kvt_merge_fn */
static bool take_tried(void *context, int64_t i, const void *result, int64_t nbytes)
{
	const struct tried *tried = result;
	struct trying *t = context;

	(void)i;
	if (nbytes != sizeof(*tried) || tried->n < 0 || tried->n > 2 ||
	    !is_row(&tried->row[0]) || !is_row(&tried->row[1]))
		return false;
	t->sweep->tokens = tried->tokens;
	for (int64_t r = 0; r < tried->n; r++)
		t->failed |= kvt_sweep_add_row(t->sweep, &tried->row[r], NULL) != KVT_OK;
	return true;
}

/* One after the other; each is as much as a unit of data, where they are divided. */
static enum kvt_status try_choices(struct kvt_sweep *s, const struct axes *x,
				   const struct sweep_args *a, struct kvt_error *err)
{
	struct choices choices = { 0 };
	struct trying t = { a, &choices, s, false };
	struct kvt_run run = run_watched(1, 0, true);
	struct kvt_work work = { .fn = try_one, .context = &t, .label = "trying",
				 .merge = take_tried,
				 .result_bytes = sizeof(struct tried) };
	enum kvt_status status = try_all(&choices, x, a, err);

	work.count = choices.n;
	work.total_bytes = choices.n * KVT_UNIT_BYTES;
	if (!status)
		status = kvt_work_run(&work, &run, err);
	free(choices.at);
	return status || !t.failed ? status : kvt_no_memory(err, NULL);
}

/* --src and --dst must not have a key that a list varies. */
static enum kvt_status check_side(const char *option, const char *text,
				  const struct axes *x, struct kvt_error *err)
{
	const struct {
		const char *key, *list;
		const struct items *items;
	} lists[] = {
		{ "layout=", "layouts", &x->layouts },
		{ "block-size=", "block-sizes", &x->block_sizes },
		{ "tp=", "tps", &x->tps },
	};

	for (size_t i = 0; text && i < sizeof(lists) / sizeof(lists[0]); i++) {
		const char *at = strstr(text, lists[i].key);

		if (lists[i].items->n && at && (at == text || at[-1] == ','))
			return kvt_fail(err, KVT_USAGE,
					"--%s says %.*s, which --%s goes through", option,
					(int)strlen(lists[i].key) - 1, lists[i].key,
					lists[i].list);
	}
	return KVT_OK;
}

static enum kvt_status sweep(const struct sweep_args *a, const struct kvt_link *link,
			     struct kvt_error *err)
{
	const struct transfer_words *s = a->transfer;
	struct kvt_sweep out = { .link = link };
	const struct assumed assumed = { .link = !a->link };
	struct axes x;
	enum kvt_status status;

	if ((status = model_said(&out.model, &s->model, err)) ||
	    (status = take_items(&x.layouts, "layouts", a->layouts, err)) ||
	    (status = take_items(&x.block_sizes, "block-sizes", a->block_sizes, err)) ||
	    (status = take_items(&x.tps, "tps", a->tps, err)) ||
	    (status = take_items(&x.scopes, "scopes", a->scopes, err)) ||
	    (status = take_items(&x.sges, "sges", a->sges, err)) ||
	    (status = check_side("src", s->src.text, &x, err)) ||
	    (status = check_side("dst", s->dst.text, &x, err)))
		return status;
	if (!(status = try_choices(&out, &x, a, err)) && shard_whole()) {
		kvt_sweep_rank(&out);
		if (a->json)
			status = sweep_json(&out, assumed, err);
		else if (a->csv)
			sweep_csv(&out);
		else
			sweep_text(&out, assumed);
	}
	kvt_sweep_free(&out);
	return status;
}

static enum kvt_status no_dumps(struct kvt_error *err)
{
	return kvt_fail(err, KVT_USAGE, "a sweep takes --model or --spec, no dumps");
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct transfer_words s = { .mode = "sweep", .no_dumps = true };
	struct sweep_args a = { .transfer = &s,
				.layouts = "nhd,hnd,blshc,bhlsc,lhbsc,blhsc",
				.scopes = "rfc", .sges = "1" };
	const struct opt opts[] = {
		TRANSFER_OPTS(&s),
		{ "layouts", 0, OPT_STRING, &a.layouts, "NAME,...",
		  "layouts of both sides; default nhd,hnd,blshc,bhlsc,lhbsc,blhsc" },
		{ "cross", 0, OPT_FLAG, &a.cross, NULL,
		  "every layout of the source with every one of the destination" },
		{ "block-sizes", 0, OPT_STRING, &a.block_sizes, "N|N:N,...",
		  "block sizes, of both sides or source:destination" },
		{ "tps", 0, OPT_STRING, &a.tps, "N|N:N,...",
		  "tensor parallel sizes, in the same way" },
		{ "scopes", 0, OPT_STRING, &a.scopes, "NAME,...",
		  "whose operations: layer, rfc (default), max, nixl, nixl-packed, mooncake; 'list' explains them" },
		{ "sges", 0, OPT_STRING, &a.sges, "N,...",
		  "runs of bytes that an operation may gather; default 1" },
		{ "stage", 0, OPT_SIZE, &a.stage.size, "SIZE",
		  "try each also through buffers of this size on both sides" },
		{ "copy-rate", 0, OPT_COUNT, &a.stage.copy_rate, "GB/s",
		  "how fast a rank gathers into such a buffer, or scatters out of it" },
		OPT_LINK(&a.link),
		{ "csv", 0, OPT_FLAG, &a.csv, NULL, "print CSV" },
		OPT_JSON(&a.json),
		OPT_SHARD,
		{ 0 }
	};
	struct link_file link;
	enum kvt_status status;
	int n = opt_parse(&transfer_sweep, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (transfer_listed(&status, &s, a.link,
			    strcmp(a.scopes, "list") ? NULL : "list", err))
		return status;
	if ((status = transfer_operands(&s, n, argv, err)) ||
	    (s.src.file && (status = no_dumps(err))) ||
	    (status = opt_exclude((struct opt_said){ a.csv, "csv" },
				  (struct opt_said[]){ { a.json, "json" }, { 0 } },
				  err)))
		return status;
	if (!a.stage.size != !a.stage.copy_rate)
		return kvt_fail(err, KVT_USAGE,
				"--stage and --copy-rate go together: a copy costs what it costs on your machine");
	if ((status = link_take(&link, a.link, err)) ||
	    (status = link_has_figures(&link.link, err)))
		return status;
	return sweep(&a, &link.link, err);
}

const struct command transfer_sweep = {
	.name = "transfer-sim sweep",
	.args = "",
	.summary = "rank layouts, block sizes and TP by time, and say what breaks the "
			"others",
	.run = run,
	.examples =
		"  kvtool transfer-sim sweep -m llama-3.1-70b --tps=4:8\n"
		"  kvtool transfer-sim sweep -m llama-3.1-8b --block-sizes=16:64,64 --link=vllm-nixl-rc --csv\n",
};
