/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receive.c - transfer-sim receive: what vLLM does to blocks that it has received
 *
 * A block of the receiver is 'ratio' blocks of the sender, one after the other, each
 * with heads outside of slots: "L B S/x H S%x C".  lib/ops/receive plans the permutation
 * of one block; here it is printed, or done to blocks of a dump, or undone.
 */
#include "sim/cmd/options.h"

#include <string.h>

#include "cli/rewrite.h"
#include "print/out/signals.h"
#include "sim/ops/receive.h"

enum { FEW_RUNS = 16 };

struct asked {
	struct rewrite r;
	const char *to, *blocks, *group;
	int64_t ratio;
	bool undo, runs;
	struct opt_ranges ids;
};

/* ---- what is done to one block ------------------------------------------- */

struct work {
	enum kvt_receive which;
	struct kvt_receive_block block;
	const struct kvt_plan *plan;
	bool undo;
};

/* "L B S/2 H S%2 C": the order of what arrives. */
static struct kvt_text arrives_as(const struct kvt_receive_block *b)
{
	struct kvt_text text;
	int64_t slots = b->slots / b->ratio;

	if (b->ratio == 1)
		snprintf(text.s, sizeof(text.s), "LBHSC");
	else
		snprintf(text.s, sizeof(text.s), "L B S/%lld H S%%%lld C", LL(slots),
			 LL(slots));
	return text;
}

static void print_runs(const struct work *w, bool all)
{
	int64_t n = kvt_plan_nruns(w->plan), shown = 0;
	struct kvt_plan_walk walk;

	plainf("in each block %lld run%s of %lld byte%s move%s\n", LL(n), plural(n),
	       LL(w->plan->run), plural(w->plan->run), n == 1 ? "s" : "");
	kvt_plan_walk_start(&walk, w->plan);
	for (; shown < n && (all || shown < FEW_RUNS); shown++) {
		plainf("  %lld -> %lld\n", LL(walk.src), LL(walk.dst));
		kvt_plan_walk_next(&walk);
	}
	if (shown < n)
		plainf("  and %lld more, --runs prints them\n", LL(n - shown));
}

static void print_work(const struct work *w, bool all)
{
	const struct kvt_receive_block *b = &w->block;
	const char *wanted = w->which == KVT_RECEIVE_BLOCKS ? "LBHSC" : "LBSHC";

	plainf("%s%s\n", kvt_receive_name(w->which), w->undo ? ", undone" : "");
	plainf("a block of %lld head%s, %lld slots and %lld B arrives as %lld of %lld "
	       "slots,\neach with its heads one after the other: %s, and becomes %s\n",
	       LL(b->heads), plural(b->heads), LL(b->slots), LL(b->content),
	       LL(b->ratio), LL(b->slots / b->ratio), arrives_as(b).s, wanted);
	if (w->which == KVT_RECEIVE_BLOCKS)
		plainf("head h of small block j moves from j,h to h,j\n");
	else
		plainf("slot s of head h of small block j moves from j,h,s to j,s,h\n");
	print_runs(w, all);
}

static void put_work(struct json_out *out, json_t *o, const struct work *w)
{
	json_t *list, *run;
	struct kvt_plan_walk walk;

	json_put_text(out, o, "function", kvt_receive_name(w->which));
	json_put_bool(out, o, "undone", w->undo);
	json_put_int(out, o, "heads", w->block.heads);
	json_put_int(out, o, "slots", w->block.slots);
	json_put_int(out, o, "content_bytes", w->block.content);
	json_put_int(out, o, "block_size_ratio", w->block.ratio);
	json_put_text(out, o, "arrives_as", arrives_as(&w->block).s);
	json_put_text(out, o, "becomes", w->which == KVT_RECEIVE_BLOCKS ? "LBHSC" :
		      "LBSHC");
	json_put_int(out, o, "run_bytes", w->plan->run);
	list = json_put_array(out, o, "runs");
	kvt_plan_walk_start(&walk, w->plan);
	for (int64_t i = 0; i < kvt_plan_nruns(w->plan); i++) {
		run = json_append_object(out, list);
		json_put_int(out, run, "from", walk.src);
		json_put_int(out, run, "to", walk.dst);
		kvt_plan_walk_next(&walk);
	}
}

static enum kvt_status show(const struct work *w, const struct asked *a,
			    const struct received *done, struct kvt_error *err)
{
	struct json_out out;

	if (!a->r.json) {
		if (!a->r.quiet)
			print_work(w, a->runs);
		if (done && !a->r.quiet)
			plainf("%lld block%s of each layer changed\n",
			       LL(done->nblocks), plural(done->nblocks));
		return KVT_OK;
	}
	json_start(&out);
	put_work(&out, out.root, w);
	if (done)
		json_put_int(&out, out.root, "blocks", done->nblocks);
	return json_print(&out, false, err);
}

/* ---- of a size, and of a dump -------------------------------------------- */

static enum kvt_status of_size(const struct asked *a, struct kvt_error *err)
{
	const struct kvt_hints *h = &a->r.hints;
	struct kvt_plan plan;
	struct work w = { .block = { h->heads, h->block_size, h->content, a->ratio },
			  .plan = &plan, .undo = a->undo };
	enum kvt_status status;

	if (!a->to || !strcmp(a->to, "hnd"))
		w.which = KVT_RECEIVE_BLOCKS;
	else if (!strcmp(a->to, "nhd"))
		w.which = KVT_RECEIVE_BOTH;
	else
		return kvt_fail(err, KVT_USAGE, "--to is '%.40s', expected hnd or nhd",
				a->to);
	if (!h->heads || !h->block_size || !h->content)
		return kvt_fail(err, KVT_USAGE,
				"expected a dump, or --heads, --block-size and --content-size in bytes");
	if (a->blocks || a->r.output)
		return kvt_fail(err, KVT_USAGE, "--blocks and --output are for a dump");
	if ((status = kvt_receive_plan(&plan, w.which, &w.block, a->undo, err)))
		return status;
	return show(&w, a, NULL, err);
}

static enum kvt_status find_group(int *out, const struct kvt_dump *dump, const char *id,
				  struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);

	for (*out = 0; *out < s->ngroups; ++*out)
		if (id ? !strcmp(s->group[*out].id, id) : s->ngroups == 1)
			return KVT_OK;
	return id ? kvt_fail(err, KVT_USAGE, "%s has no group '%.40s'",
			     kvt_dump_path(dump), id) :
	       kvt_fail(err, KVT_USAGE,
	       	"%s has %d groups: --group=%s, for example, says which one is meant", kvt_dump_path(dump), s->ngroups,
			s->group[0].id);
}

static enum kvt_status of_dump(const struct asked *a, struct kvt_error *err)
{
	const struct kvt_run run = rewrite_run(&a->r);
	struct rewrite quiet = a->r;
	struct received done = { .bytes = NULL };
	struct kvt_dump *dump, *changed = NULL;
	struct kvt_error why = { "" };
	enum kvt_status status;
	int g;

	signals_catch();
	if ((status = kvt_open(&dump, a->r.input, &a->r.hints, err)))
		return status;
	if ((status = find_group(&g, dump, a->group, err)))
		goto end;
	status = kvt_receive_group(&done, dump, g, a->ratio, a->blocks ? a->ids.range :
				   NULL, a->ids.n, a->undo, &run, &why);
	if (status) {
		kvt_fail_about(err, status, a->r.input, &why);
		goto end;
	}
	quiet.quiet = true;
	quiet.json = false;
	if (!a->r.dry_run &&
	    !(status = kvt_dump_replace(&changed, dump, g, &done.layout, done.bytes,
					err)))
		status = rewrite_dump(&quiet, changed, err);
	if (!status) {
		const struct work w = { done.which, done.block, &done.plan, a->undo };

		status = show(&w, a, &done, err);
	}
end:
	kvt_dump_close(changed);
	kvt_received_free(&done);
	kvt_dump_close(dump);
	return status;
}

/* ---- the command -------------------------------------------------------- */

static enum kvt_status receive(struct asked *a, int n, struct kvt_error *err)
{
	enum kvt_status status;

	if (!a->ratio)
		return kvt_fail(err, KVT_USAGE,
				"--ratio=N is missing: how many blocks of the sender fill one");
	if (!n)
		return of_size(a, err);
	if (a->to)
		return kvt_fail(err, KVT_USAGE,
				"--to is for no dump: the order of this one says what is done");
	if (!a->r.output && !a->r.dry_run)
		return kvt_fail(err, KVT_USAGE,
				"an output is missing; --dry-run says what would be done");
	if (a->blocks && !*a->blocks)
		return kvt_fail(err, KVT_USAGE, "--blocks is empty");
	if (a->blocks && (status = opt_ranges_parse(&a->ids, "blocks", a->blocks, err)))
		return status;
	return of_dump(a, err);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct asked a = { .ratio = 0 };
	const struct opt opts[] = {
		OPT_OUTPUT(&a.r.output),
		{ "ratio", 0, OPT_COUNT, &a.ratio, "N",
		  "blocks of the sender that fill one" },
		{ "to", 't', OPT_STRING, &a.to, "LAYOUT",
		  "without a dump: order of the receiver, hnd (default) or nhd" },
		{ "blocks", 0, OPT_STRING, &a.blocks, "IDS",
		  "blocks that were received, such as 3,8:12; default: all" },
		{ "group", 0, OPT_STRING, &a.group, "ID",
		  "group of layers; default: the only one" },
		{ "undo", 0, OPT_FLAG, &a.undo, NULL, "the other way" },
		{ "runs", 0, OPT_FLAG, &a.runs, NULL, "print all runs of the plan" },
		OPT_FORMAT(&a.r.create.format),
		OPT_FORCE(&a.r.create.force),
		OPT_DRY_RUN(&a.r.dry_run),
		OPT_MEMORY(&a.r.memory),
		OPT_JSON(&a.r.json),
		OPT_QUIET(&a.r.quiet),
		OPT_INPUT(&a.r.hints),
		{ 0 }
	};
	int n = opt_parse(&transfer_receive, opts, argc, argv, err);
	enum kvt_status status;

	if (n < 0)
		return opt_status(n);
	if ((status = rewrite_operands(&a.r, argv, n, err)))
		return status;
	return receive(&a, n, err);
}

const struct command transfer_receive = {
	.name = "transfer-sim receive",
	.args = "--ratio=N [IN OUT]",
	.summary = "say or do what vLLM does to blocks that came as smaller ones",
	.run = run,
	.examples =
		"  kvtool transfer-sim receive --ratio=2 --heads=2 --block-size=4 --content-size=1\n"
		"  kvtool transfer-sim receive --ratio=4 --blocks=3,8:12 in.npy out.npy\n",
	.streams = STREAM_FIRST,
};
