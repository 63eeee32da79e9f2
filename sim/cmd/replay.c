/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - kvtool transfer-sim replay and faults: a trace over a link
 *
 * Both are one simulation; faults is told what goes wrong in it.  In: a transfer of a
 * model, of any number of tokens, the stack and link that post it, and requests, read
 * (formats/log/trace.h) or made up by --synthetic.  sim/ops/replay.c runs them, and
 * sim/print/replay.c prints.  With --slo it is KVT_MISMATCH, after that, if fewer
 * requests than --slo-percent keep to it.
 *
 * Lengths are those of the trace, so what a request moves must follow from its length:
 * --tokens, --cached, dumps, pools and ids that do not lie alike all along are
 * KVT_USAGE.  A log of vLLM has transfers and no requests: find_unit() says how many
 * pairs of ranks and bytes of a token make one.
 */
#include "sim/ops/replay.h"

#include <stdlib.h>
#include <string.h>

#include "formats/log/trace.h"
#include "lib/base/number.h"
#include "print/out/text_file.h"
#include "sim/cmd/options.h"
#include "sim/print/transfer.h"

struct replay_args {
	struct transfer_words transfer;
	struct posting_words posting;
	const char *trace, *synthetic, *overlap, *slo, *slo_percent, *lease;
	int64_t prefill, concurrent;
	bool requests, json;
	/* faults */
	const char *drop, *corrupt, *nic_down, *peer_dead, *timeout;
	int64_t seed;
};

#define REPLAY_OPTS(a) \
	TRANSFER_OPTS(&(a)->transfer), \
	POSTING_OPTS(&(a)->posting), \
	{ "trace", 0, OPT_STRING, &(a)->trace, "FILE", \
	  "same as TRACE: requests of Mooncake, FlexKV, a log of vLLM, or CSV" }, \
	{ "synthetic", 0, OPT_STRING, &(a)->synthetic, "SEED,N", \
	  "make up N requests instead" }, \
	{ "prefill-rate", 0, OPT_COUNT, &(a)->prefill, "TOKENS", \
	  "a second; default: prompts take no time to compute" }, \
	{ "overlap", 0, OPT_STRING, &(a)->overlap, "layers:G", \
	  "move G layers as soon as they are computed; needs --push" }, \
	{ "concurrent", 0, OPT_COUNT, &(a)->concurrent, "N", \
	  "requests that move at once, others wait; default 64" }, \
	{ "lease", 0, OPT_STRING, &(a)->lease, "S", \
	  "seconds that a source keeps a request's blocks; default 480, as in vLLM" }, \
	{ "slo", 0, OPT_STRING, &(a)->slo, "MS", \
	  "end with status 1 if moving a prompt's cache takes longer, in milliseconds" }, \
	{ "slo-percent", 0, OPT_STRING, &(a)->slo_percent, "P", \
	  "percentage of the requests that must keep to --slo; default 99" }, \
	{ "requests", 0, OPT_FLAG, &(a)->requests, NULL, \
	  "with --json: an object for each request" }

/* ---- what was said -------------------------------------------------------- */

static enum kvt_status number(double *out, const char *text, const char *option,
			      double most, struct kvt_error *err)
{
	double x;

	if (!text)
		return KVT_OK;
	if (!kvt_real_parse(&x, text, strlen(text)) || !(x >= 0 && x <= most))
		return kvt_fail(err, KVT_USAGE,
				"--%s is '%.40s', expected a number from 0 to %g", option,
				text, most);
	*out = x;
	return KVT_OK;
}

/* "layers:G": how many groups of G layers there are. */
static enum kvt_status take_overlap(int64_t *pieces, const struct replay_args *a,
				    const struct kvt_model_transfer *from,
				    struct kvt_error *err)
{
	struct kvt_model_transfer one = *from;
	int64_t g = 0, layers = 0;
	struct kvt_transfer_plan transfer;
	enum kvt_status status;

	*pieces = 1;
	if (!a->overlap)
		return KVT_OK;
	if (strncmp(a->overlap, "layers:", 7) ||
	    !kvt_number_parse(&g, a->overlap + 7) || g < 1 || g == INT64_MAX)
		return kvt_fail(err, KVT_USAGE, "--overlap is '%.40s', expected layers:G",
				a->overlap);
	if (!a->posting.push || !a->prefill)
		return kvt_fail(err, KVT_USAGE,
				"--overlap needs --push and --prefill-rate: who pulls waits for the whole prompt");
	one.tokens = 1;
	if ((status = kvt_transfer_of_model(&transfer, &one, err)))
		return status;
	for (int i = 0; i < transfer.ngroups; i++)
		layers += transfer.group[i].xfer.layers;
	kvt_transfer_free(&transfer);
	*pieces = (layers + g - 1) / g;
	return KVT_OK;
}

/* "RAIL@T+D", seconds; a rail rests for 30 s at least, as in Mooncake. */
static enum kvt_status take_down(struct kvt_replay_how *how, const struct replay_args *a,
				 struct kvt_error *err)
{
	const char *text = a->nic_down, *plus;
	double at, span;
	int64_t rail;

	how->rails = a->posting.rails > 1 ? a->posting.rails : 1;
	how->down_at = -1;
	if (!a->nic_down)
		return KVT_OK;
	if (!kvt_number_take(&rail, &text) || *text++ != '@' || rail >= how->rails)
		return kvt_fail(err, KVT_USAGE,
				"--nic-down is '%.40s', expected RAIL@T+D with a rail below %lld",
				a->nic_down, (long long)how->rails);
	if (!(plus = strchr(text, '+')) ||
	    !kvt_real_parse(&at, text, (size_t)(plus - text)) ||
	    !kvt_real_parse(&span, plus + 1, strlen(plus + 1)) ||
	    !(at >= 0 && at < 1e9) || !(span >= 0 && span < 1e9))
		return kvt_fail(err, KVT_USAGE,
				"--nic-down is '%.40s', expected RAIL@T+D",
				a->nic_down);
	how->down_at = (int64_t)(at * 1e9);
	how->down_until = how->down_at + (int64_t)((span < 30 ? 30 : span) * 1e9);
	return KVT_OK;
}

static enum kvt_status take_how(struct kvt_replay_how *how, const struct replay_args *a,
				const struct kvt_model_transfer *from,
				const struct kvt_batch_how *posts, struct kvt_error *err)
{
	/* 4.096 us * 2^18, the timeout of InfiniBand that Mooncake asks for */
	double lease = 480, dead = -1, timeout = 4.096e-6 * 262144;
	enum kvt_status status;

	*how = (struct kvt_replay_how) { .posts = posts,
				    .prefill = a->prefill,
				    .concurrent = a->concurrent,
				    .seed = (uint64_t)a->seed };
	if ((status = number(&lease, a->lease, "lease", 1e9, err)) ||
	    (status = number(&how->drop, a->drop, "drop", 1, err)) ||
	    (status = number(&how->corrupt, a->corrupt, "corrupt", 1, err)) ||
	    (status = number(&timeout, a->timeout, "timeout", 1e9, err)) ||
	    (status = number(&dead, a->peer_dead, "peer-dead", 1e9, err)) ||
	    (status = take_overlap(&how->pieces, a, from, err)) ||
	    (status = take_down(how, a, err)))
		return status;
	how->lease_ns = (int64_t)(lease * 1e9);
	how->timeout_ns = (int64_t)(timeout * 1e9 + 0.5);
	how->dead_at = dead < 0 ? -1 : (int64_t)(dead * 1e9);
	if (posts->stage)
		return kvt_fail(err, KVT_USAGE,
				"--stage is of one transfer: 'transfer-sim time' knows its copies");
	return KVT_OK;
}

/* What a log of transfers needs to become requests. */
static enum kvt_status find_unit(struct kvt_trace_unit *out,
				 struct kvt_request_sizes *sizes, struct kvt_error *err)
{
	struct kvt_batch *one, *two;
	const struct kvt_batches *pairs;
	int64_t more = 0;
	enum kvt_status status = kvt_request_sizes_pairs(&pairs, sizes, err);

	if (status)
		return status;
	one = calloc((size_t)pairs->n * 2 + 1, sizeof(*one));
	if (!one)
		return kvt_no_memory(err, NULL);
	two = one + pairs->n;
	if (!(status = kvt_request_sizes_get(one, sizes, sizes->unit, err)) &&
	    !(status = kvt_request_sizes_get(two, sizes, 2 * sizes->unit, err)))
		for (int64_t i = 0; i < pairs->n; i++)
			more += two[i].bytes - one[i].bytes;
	free(one);
	*out = (struct kvt_trace_unit){ pairs->n, more / sizes->unit };
	return status;
}

static enum kvt_status read_trace(struct kvt_trace *out, const char *path,
				  const struct kvt_trace_unit *unit,
				  struct kvt_error *err)
{
	FILE *file = text_file_open(path);
	enum kvt_status status;

	path = text_file_name(path);
	if (!file)
		return kvt_fail_errno(err, path, "open");
	status = kvt_trace_read(out, file, path, unit, err);
	text_file_close(file);
	return status;
}

static enum kvt_status take_trace(struct kvt_trace *out, const struct replay_args *a,
				  struct kvt_request_sizes *sizes, struct kvt_error *err)
{
	struct kvt_trace_unit unit;
	unsigned long long seed;
	enum kvt_status status;
	char *end;
	int64_t n;

	if (a->trace) {
		status = find_unit(&unit, sizes, err);
		return status ? status : read_trace(out, a->trace, &unit, err);
	}
	seed = strtoull(a->synthetic, &end, 10);
	if (end == a->synthetic || *end != ',' || !kvt_number_parse(&n, end + 1) ||
	    n < 1 || n > 10000000)
		return kvt_fail(err, KVT_USAGE,
				"--synthetic is '%.40s', expected SEED,N with up to 10000000 requests",
				a->synthetic);
	return kvt_trace_make(out, seed, n, err);
}

/* ---- running -------------------------------------------------------------- */

static enum kvt_status finish(const struct replay_report *r, const struct replay_args *a,
			      double percent, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	double got;

	if (a->json)
		status = replay_json(r, err);
	else
		replay_text(r);
	if (status || !r->slo_ns)
		return status;
	got = 100 * kvt_replay_attainment(r->replay, r->slo_ns);
	if (got >= percent)
		return KVT_OK;
	return kvt_fail(err, KVT_MISMATCH,
			"%.2f %% of the requests have a KV part of at most %s ms, expected %.4g %%",
			got, a->slo, percent);
}

static enum kvt_status run_trace(const struct replay_args *a,
				 const struct kvt_batch_how *posts,
				 struct kvt_request_sizes *sizes,
				 const struct kvt_trace *trace, bool faults,
				 struct kvt_error *err)
{
	struct kvt_replay_how how;
	struct kvt_replay replay;
	struct replay_report r = {
		.replay = &replay, .how = &how, .sizes = sizes,
		.trace = a->trace ? text_file_name(a->trace) : "synthetic",
		.assumed = posting_assumed(&a->posting),
		.faults = faults, .requests = a->requests,
	};
	double slo = 0, percent = 99;
	enum kvt_status status;

	if ((status = number(&slo, a->slo, "slo", 1e9, err)) ||
	    (status = number(&percent, a->slo_percent, "slo-percent", 100, err)) ||
	    (status = take_how(&how, a, sizes->from, posts, err)) ||
	    (status = kvt_replay_run(&replay, trace, sizes, &how, err)))
		return status;
	r.slo_ns = (int64_t)(slo * 1e6 + 0.5);
	r.scattered = !strcmp(sizes->from->dst.ids.words, "scatter");
	status = finish(&r, a, percent, err);
	kvt_replay_free(&replay);
	return status;
}

static enum kvt_status check_said(struct replay_args *a, struct kvt_error *err)
{
	enum kvt_status status;

	if (a->transfer.tokens)
		return kvt_fail(err, KVT_USAGE,
				"--tokens is of one request: a trace has the lengths of its own");
	if (a->trace && a->synthetic)
		return kvt_fail(err, KVT_USAGE,
				"TRACE and --synthetic exclude each other");
	if (a->requests && !a->json)
		return kvt_fail(err, KVT_USAGE, "--requests needs --json");
	if (a->slo_percent && !a->slo)
		return kvt_fail(err, KVT_USAGE, "--slo-percent needs --slo");
	a->transfer.needs_trace = true;
	a->transfer.trace = a->trace;
	a->transfer.trace_missing = !a->trace && !a->synthetic;
	if ((status = transfer_operands(&a->transfer, 0, NULL, err)) ||
	    !a->transfer.trace_missing)
		return status;
	return kvt_fail(err, KVT_USAGE,
			"expected a trace: TRACE, --trace=FILE or --synthetic=SEED,N, such as --synthetic=1,100");
}

/* Only where blocks lie alike all along does a unit add what the last one did. */
static enum kvt_status check_ids(const struct transfer_words *a, struct kvt_error *err)
{
	const char *texts[] = { a->src.text, a->dst.text };

	for (int i = 0; i < 2; i++) {
		const char *ids = texts[i] ? strstr(texts[i], "ids=") : NULL;

		if (ids && strncmp(ids + 4, "contig", 6) &&
		    strncmp(ids + 4, "scatter", 7) && strncmp(ids + 4, "reverse", 7))
			return kvt_fail(
				err, KVT_USAGE,
				"ids of a trace's requests are contig, scatter or reverse, not '%.40s'",
				ids + 4);
	}
	if (a->src.file || a->cached || (a->src.text && strstr(a->src.text, "pool=")) ||
	    (a->dst.text && strstr(a->dst.text, "pool=")))
		return kvt_fail(err, KVT_USAGE,
				"requests of a trace have pools of their own: no dumps, pool or --cached");
	return KVT_OK;
}

static enum kvt_status start(struct replay_args *a, bool faults,
			     struct kvt_error *err)
{
	struct transfer_input in = { .dump = { NULL } };
	struct link_file file;
	struct kvt_batch_how posts;
	struct kvt_trace trace;
	struct kvt_request_sizes sizes = { .of = NULL };
	enum kvt_status status;

	if (transfer_listed(&status, &a->transfer, a->posting.link, a->posting.emulate,
			    err))
		return status;
	if ((status = check_said(a, err)) ||
	    (status = posting_take(&posts, &file, &a->posting, err)) ||
	    (status = check_ids(&a->transfer, err)))
		return status;
	if (!(status = transfer_describe(&in, &a->transfer, err)) &&
	    !(status = kvt_request_sizes_init(&sizes, &in.from, &posts, err)) &&
	    !(status = take_trace(&trace, a, &sizes, err))) {
		status = run_trace(a, &posts, &sizes, &trace, faults, err);
		kvt_trace_free(&trace);
	}
	kvt_request_sizes_free(&sizes);
	transfer_close(&in);
	return status;
}

/* The trace is an operand, or that of --trace. */
static enum kvt_status take_operand(struct replay_args *a, int n, char **argv,
				    struct kvt_error *err)
{
	if (n + !!a->trace > 1)
		return kvt_fail(err, KVT_USAGE, "expected one trace, got %d",
				n + !!a->trace);
	if (n)
		a->trace = argv[0];
	return KVT_OK;
}

static enum kvt_status run_replay(int argc, char **argv, struct kvt_error *err)
{
	struct replay_args a = { .concurrent = 64, .transfer.mode = "replay" };
	const struct opt opts[] = {
		REPLAY_OPTS(&a),
		OPT_JSON(&a.json),
		{ 0 }
	};
	enum kvt_status status;
	int n = opt_parse(&transfer_replay, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	status = take_operand(&a, n, argv, err);
	return status ? status : start(&a, false, err);
}

static enum kvt_status run_faults(int argc, char **argv, struct kvt_error *err)
{
	struct replay_args a = { .concurrent = 64, .transfer.mode = "faults" };
	const struct opt opts[] = {
		REPLAY_OPTS(&a),
		{ "drop", 0, OPT_STRING, &a.drop, "P",
		  "chance that a batch is lost, and noticed after the timeout" },
		{ "corrupt", 0, OPT_STRING, &a.corrupt, "P",
		  "chance that a batch arrives damaged, and is found so at once" },
		{ "nic-down", 0, OPT_STRING, &a.nic_down, "RAIL@T+D",
		  "a rail of every rank fails after T seconds, for D (30 at least)" },
		{ "peer-dead", 0, OPT_STRING, &a.peer_dead, "T",
		  "after T seconds the sources do not answer any more" },
		{ "timeout", 0, OPT_STRING, &a.timeout, "S",
		  "seconds until a loss is noticed; default 1.07, that of InfiniBand" },
		{ "seed", 0, OPT_INT, &a.seed, "N", "of chance; default 0" },
		OPT_JSON(&a.json),
		{ 0 }
	};
	enum kvt_status status;
	int n = opt_parse(&transfer_faults, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	status = take_operand(&a, n, argv, err);
	return status ? status : start(&a, true, err);
}

const struct command transfer_replay = {
	.name = "transfer-sim replay",
	.args = "[TRACE]",
	.summary = "send the requests of a trace over a link that they share",
	.run = run_replay,
	.examples =
		"  kvtool transfer-sim replay -m llama-3.1-8b --emulate=nixl "
		"conversation.jsonl\n"
		"  kvtool transfer-sim replay -m llama-3.1-70b --src tp=4 --dst tp=8 "
		"--synthetic=1,500 --slo=50\n",
};

const struct command transfer_faults = {
	.name = "transfer-sim faults",
	.args = "[TRACE]",
	.summary = "replay a trace while batches are lost, rails fail or the peer dies",
	.run = run_faults,
	.examples =
		"  kvtool transfer-sim faults -m llama-3.1-8b --synthetic=1,100 "
		"--drop=0.01 --corrupt=0.001\n"
		"  kvtool transfer-sim faults -m llama-3.1-8b --synthetic=1,100 "
		"--peer-dead=10\n",
};
