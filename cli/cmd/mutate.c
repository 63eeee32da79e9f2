/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mutate.c - plant a fault in a dump, so that a check can be checked
 *
 * The bytes of one group, faulty, replace those of the dump: a derived dump, which is
 * written as any other.  What is printed is where the fault is and what it changed.
 */
#include <inttypes.h>
#include <string.h>

#include "cli/rewrite.h"
#include "lib/base/keys.h"
#include "lib/base/nearest.h"
#include "lib/ops/fault/plant.h"
#include "print/out/json_out.h"
#include "print/out/signals.h"

/* ---- the fault, as it was asked for ------------------------------------- */

static enum kvt_status unknown_fault(const char *name, struct kvt_error *err)
{
	const struct kvt_fault *fault;
	struct kvt_nearest near = kvt_nearest_start(name);

	for (int i = 0; (fault = kvt_fault_at(i)); i++)
		kvt_nearest_offer(&near, fault->name);
	return kvt_fail(err, KVT_USAGE, "no fault '%.60s'%s", name,
			kvt_nearest_hint(&near, "; see kvtool help faults").s);
}

/* The arguments of the fault, then those that all have; returns how many there are. */
static int keys_of(struct kvt_key out[KVT_FAULT_ARGS + 4], const struct kvt_fault *fault)
{
	int n = 0;

	for (; n < KVT_FAULT_ARGS && fault->arg[n].name; n++)
		out[n] = (struct kvt_key){ fault->arg[n].name, KVT_KEY_INTEGER,
					   offsetof(struct fault_request, arg) +
					   (size_t)n * sizeof(int64_t), NULL };
	if (fault->has_factor)
		out[n++] = (struct kvt_key){
			"factor", KVT_KEY_REAL, offsetof(struct fault_request, factor),
			NULL };
	out[n++] = (struct kvt_key){
		"layer", KVT_KEY_INTEGER, offsetof(struct fault_request, layer), NULL };
	out[n++] = (struct kvt_key){
		"block", KVT_KEY_INTEGER, offsetof(struct fault_request, block), NULL };
	out[n].name = NULL;
	return n;
}

static enum kvt_status take_keys(struct fault_request *asked, char *text,
				 struct kvt_error *err)
{
	struct kvt_key key[KVT_FAULT_ARGS + 4];
	int n = keys_of(key, asked->fault);
	struct kvt_keys keys = { "--fault", key, asked, 0 };
	enum kvt_status status = kvt_keys_parse(&keys, text, err);

	if (status)
		return status;
	for (int i = 0; i < KVT_FAULT_ARGS && asked->fault->arg[i].name; i++)
		asked->given[i] = keys.seen >> i & 1;
	asked->has_layer = keys.seen >> (n - 2) & 1;
	asked->has_block = keys.seen >> (n - 1) & 1;
	if (asked->fault->has_factor && keys.seen >> (n - 3) & 1 && asked->factor == 0)
		return kvt_fail(err, KVT_USAGE,
				"--fault: factor is 0, expected a number other than 0");
	return KVT_OK;
}

static enum kvt_status take_fault(struct fault_request *asked, const char *text,
				  struct kvt_error *err)
{
	char copy[256], *next = copy, *name;

	if (strlen(text) >= sizeof(copy))
		return kvt_fail(err, KVT_USAGE, "--fault is too long");
	memcpy(copy, text, strlen(text) + 1);
	name = strsep(&next, ",");
	if (!(asked->fault = kvt_fault_find(name)))
		return unknown_fault(name, err);
	return next ? take_keys(asked, next, err) : KVT_OK;
}

/* 'text' is written into, and stays in use. */
static enum kvt_status take_only(struct fault_limit *only, char *text,
				 struct kvt_error *err)
{
	static const struct kvt_key key[] = {
		{ "layers", KVT_KEY_SPAN, offsetof(struct fault_limit, layers), NULL },
		{ "heads", KVT_KEY_SPAN, offsetof(struct fault_limit, heads), NULL },
		{ "kv", KVT_KEY_TEXT, offsetof(struct fault_limit, kv), NULL },
		{ "request", KVT_KEY_TEXT, offsetof(struct fault_limit, request), NULL },
		{ 0 }
	};
	struct kvt_keys keys = { "--only", key, only, 0 };
	enum kvt_status status = kvt_keys_parse(&keys, text, err);

	if (!status && ((keys.seen & 1 && !only->layers[1]) ||
			(keys.seen & 2 && !only->heads[1])))
		return kvt_fail(err, KVT_USAGE,
				"--only: the end of a range is 0, expected 1 or more");
	return status;
}

/* ---- what was done ------------------------------------------------------ */

static void put_range(struct json_out *out, json_t *o, const char *key,
		      const int64_t *ids, int64_t start, int64_t begin, int64_t end)
{
	json_t *list = json_put_array(out, o, key);

	json_append_int(out, list, ids ? ids[begin] : start + begin);
	json_append_int(out, list, ids ? ids[end - 1] : start + end - 1);
}

static void put_where(struct json_out *out, const struct planted *p)
{
	const struct kvt_window *w = &p->window;
	const struct kvt_box *box = &p->difference.where;
	const int64_t *first = p->difference.first;
	json_t *o = json_put_object(out, out->root, "first");

	json_put_int(out, o, "layer", w->layer_ids[first[KVT_AXIS_L]]);
	json_put_int(out, o, "block", w->block_ids[first[KVT_AXIS_B]]);
	json_put_int(out, o, "slot", first[KVT_AXIS_S]);
	json_put_old(out, o, "state", "slot");
	json_put_int(out, o, "head", w->head_start + first[KVT_AXIS_H]);
	json_put_int(out, o, "kv", first[KVT_AXIS_K]);
	json_put_int(out, o, "dim", first[KVT_AXIS_D]);
	o = json_put_object(out, out->root, "where");
	put_range(out, o, "layers", w->layer_ids, 0, box->begin[0], box->end[0]);
	put_range(out, o, "blocks", w->block_ids, 0, box->begin[1], box->end[1]);
	put_range(out, o, "slots", NULL, 0, box->begin[2], box->end[2]);
	json_put_old(out, o, "states", "slots");
	put_range(out, o, "heads", NULL, w->head_start, box->begin[3], box->end[3]);
	put_range(out, o, "kvs", NULL, 0, box->begin[4], box->end[4]);
	put_range(out, o, "dims", NULL, 0, box->begin[5], box->end[5]);
}

static enum kvt_status print_json(const struct rewrite *r, const struct planted *p,
				  struct kvt_error *err)
{
	const struct kvt_fault *fault = p->strike.fault;
	struct json_out out;
	json_t *args;

	json_start(&out);
	json_put_text(&out, out.root, "file", r->input);
	json_put_text(&out, out.root, "output", r->dry_run ? NULL : r->output);
	json_put_text(&out, out.root, "group", p->id);
	json_put_text(&out, out.root, "fault", fault->name);
	args = json_put_object(&out, out.root, "arguments");
	for (int i = 0; i < KVT_FAULT_ARGS && fault->arg[i].name; i++)
		json_put_int(&out, args, fault->arg[i].name,
			     kvt_fault_id(&fault->arg[i], &p->window,
					  p->strike.args.n[i]));
	if (fault->has_factor)
		json_put_real(&out, args, "factor", p->strike.args.factor);
	json_put_int(&out, out.root, "seed", (int64_t)p->strike.seed);
	json_put_int(&out, out.root, "live", p->difference.live);
	json_put_int(&out, out.root, "changed", p->difference.count);
	put_where(&out, p);
	return json_print(&out, false, err);
}

static void print_span(const char *what, const int64_t *ids, int64_t start,
		       int64_t begin, int64_t end)
{
	int64_t first = ids ? ids[begin] : start + begin;
	int64_t last = ids ? ids[end - 1] : start + end - 1;

	if (first == last)
		plainf(", %s %" PRId64, what, first);
	else
		plainf(", %ss %" PRId64 " to %" PRId64, what, first, last);
}

static void print_text(const struct rewrite *r, const struct planted *p)
{
	const struct kvt_window *w = &p->window;
	const struct kvt_box *box = &p->difference.where;
	struct kvt_text args = kvt_fault_text(p->strike.fault, &p->strike.args, w);

	plainf("%s: %s%s%s: %" PRId64 " of %" PRId64 " live elements of %s",
	       r->dry_run ? r->input : r->output, p->strike.fault->name,
	       args.s[0] ? "," : "", args.s, p->difference.count, p->difference.live,
	       p->id);
	print_span("layer", w->layer_ids, 0, box->begin[0], box->end[0]);
	print_span("block", w->block_ids, 0, box->begin[1], box->end[1]);
	print_span("slot", NULL, 0, box->begin[2], box->end[2]);
	if (w->shape.n[KVT_AXIS_H] > 1)
		print_span("head", NULL, w->head_start, box->begin[3], box->end[3]);
	putchar('\n');
}

/* ---- the command -------------------------------------------------------- */

static enum kvt_status mutate(const struct rewrite *r, const struct fault_request *asked,
			      struct kvt_error *err)
{
	const struct kvt_run run = rewrite_run(r);
	struct rewrite quiet = *r;
	struct kvt_dump *dump, *faulty = NULL;
	struct planted planted = { .id = NULL };
	struct kvt_error why = { "" };
	enum kvt_status status;

	signals_catch();
	if ((status = kvt_open(&dump, r->input, &r->hints, err)))
		return status;
	if ((status = kvt_plant_fault(&planted, dump, asked, &run, &why))) {
		kvt_fail_about(err, status, r->input, &why);
	} else {
		quiet.quiet = true;	/* what is said comes from here */
		quiet.json = false;
		if (!r->dry_run &&
		    !(status = kvt_dump_replace(&faulty, dump, planted.group,
						&kvt_layout_slots, planted.bytes, err)))
			status = rewrite_dump(&quiet, faulty, err);
		if (!status && r->json)
			status = print_json(r, &planted, err);
		else if (!status && !r->quiet)
			print_text(r, &planted);
	}
	kvt_dump_close(faulty);
	kvt_planted_free(&planted);
	kvt_dump_close(dump);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	const char *fault = NULL, *only = NULL;
	char part[512] = "";
	struct rewrite r = { 0 };
	struct fault_request asked = { .group = NULL };
	const struct opt opts[] = {
		OPT_OUTPUT(&r.output),
		{ "fault", 0, OPT_STRING, &fault, "FAULT",
		  "NAME[,KEY=VALUE...]; see kvtool help faults" },
		{ "only", 0, OPT_STRING, &only, "PART",
		  "layers=A:B, heads=A:B, kv=k or v, request=ID: that alone" },
		{ "seed", 0, OPT_INT, &asked.seed, "N",
		  "seed for what --fault does not give; default: 0" },
		{ "group", 0, OPT_STRING, &asked.group, "ID",
		  "group of layers; default: the first that can have the fault" },
		OPT_FORMAT(&r.create.format),
		OPT_NO_SYNC(&r.create.no_sync),
		OPT_FORCE(&r.create.force),
		OPT_DRY_RUN(&r.dry_run),
		OPT_THREADS(&r.threads),
		OPT_MEMORY(&r.memory),
		OPT_JSON(&r.json),
		OPT_QUIET(&r.quiet),
		OPT_INPUT(&r.hints),
		{ 0 }
	};
	enum kvt_status status;
	int nargs = opt_parse(&cmd_mutate, opts, argc, argv, err);

	if (nargs < 0)
		return opt_status(nargs);
	if ((status = rewrite_operands(&r, argv, nargs, err)) ||
	    (status = opt_need(&cmd_mutate, (struct opt_need[]){
			{ nargs, "a dump" },
			{ fault, "--fault=NAME (see kvtool help faults)" },
			{ r.output || r.dry_run, "an output" }, { 0 } }, err)) ||
	    (status = take_fault(&asked, fault, err)))
		return status;
	if (only && strlen(only) >= sizeof(part))
		return kvt_fail(err, KVT_USAGE, "--only is too long");
	if (only) {
		memcpy(part, only, strlen(only) + 1);
		if ((status = take_only(&asked.only, part, err)))
			return status;
	}
	return mutate(&r, &asked, err);
}

const struct command cmd_mutate = {
	.name = "mutate",
	.args = "--fault=NAME[,KEY=VALUE...] IN OUT",
	.summary = "plant a fault in a dump, to test a check",
	.run = run,
	.examples =
		"  kvtool mutate --fault=swap-heads,a=0,b=2 snapshot.h5 bad.h5\n"
		"  kvtool mutate --fault=swap-kv --only=heads=2:4 dump.npy bad.npy\n"
		"  kvtool mutate --fault=flip-bits --seed=7 -o bad.h5 snapshot.h5\n",
	.streams = STREAM_FIRST,
};
