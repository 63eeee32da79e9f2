/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time.c - kvtool transfer-sim time: how long one transfer takes on a link
 *
 * In: a transfer (transfer_open()), or --batch, so many operations of one size; the
 * stack that posts it, and the link (posting_take()).  sim/ops/batches.c counts what is
 * posted, sim/ops/clock.c when it arrives, and sim/print/transfer_time.c prints.  Behind
 * that: where no two pairs share a rank the simulation must be within 1 % of the closed
 * form, else it is KVT_MISMATCH.
 *
 * Of vLLM's stacks the answer is of a release, the newest whose connector registers such
 * regions on both sides; one of --release that does not is KVT_BAD_INPUT, but for
 * --force.
 */
#include "sim/cmd/options.h"

#include <string.h>

#include "lib/base/number.h"
#include "lib/kvt/connect.h"
#include "sim/print/transfer.h"

struct time_args {
	struct transfer_words transfer;
	struct posting_words posting;
	const char *batch;
	bool closed_form, json, csv;
	enum kvt_release release;	/* KVT_NRELEASES: not said */
};

/* "8192x8k" */
static enum kvt_status take_batch(struct kvt_batches *out, const char *text,
				  const struct kvt_batch_how *how, struct kvt_error *err)
{
	const char *at = text;
	int64_t ops, size;

	if (!kvt_number_take(&ops, &at) || *at++ != 'x' || ops < 1 ||
	    !kvt_number_parse(&size, at) || size < 1)
		return kvt_fail(
			err, KVT_USAGE,
			"--batch is '%.40s', expected COUNTxSIZE such as 8192x8k", text);
	return kvt_batches_uniform(out, ops, size, how, err);
}

static enum kvt_status print(const struct time_report *r, const struct time_args *a,
			     struct kvt_error *err)
{
	if (a->csv)
		return time_csv(r, err);
	if (a->json)
		return time_json(r, err);
	time_text(r);
	return KVT_OK;
}

/* Two ways to one figure: what the simulation makes of a batch alone. */
static enum kvt_status check(const struct kvt_batch_times *t, struct kvt_error *err)
{
	if (!t->alone || t->worst <= 0.01)
		return KVT_OK;
	return kvt_fail(err, KVT_MISMATCH,
			"without contention the simulation is %.3g %% off the closed form, expected at most 1 %%",
			100 * t->worst);
}

/* Of one rank's caches of a group, keys and values together. */
static struct kvt_shape shape_of(const struct kvt_xfer_side *side)
{
	struct kvt_shape shape = side->views.view[0].shape;

	if (side->views.count == 2)
		shape.n[KVT_AXIS_K] = 2;
	return shape;
}

/* The releases whose connectors register blocks of both sides as regions. */
static unsigned releases_of(const struct kvt_transfer_plan *t)
{
	const unsigned needed = KVT_NEED_BLOCKS_FIRST | KVT_NEED_K_WITH_V;
	unsigned out = (1u << KVT_NRELEASES) - 1;

	for (int g = 0; g < t->ngroups; g++) {
		const struct kvt_transfer_group *group = &t->group[g];
		const struct kvt_xfer *x = &group->xfer;
		const struct kvt_shape src = shape_of(&x->src), dst = shape_of(&x->dst);

		if (kvt_spec_axis(&x->src.spec) != KVT_AXIS_H)
			continue;
		for (int r = 0; r < KVT_NRELEASES; r++)
			if (needed &
			    (kvt_connector_unmet((enum kvt_release)r, &group->src_layout,
						 &src, false) |
			     kvt_connector_unmet((enum kvt_release)r, &group->dst_layout,
						 &dst, false)))
				out &= ~(1u << r);
	}
	return out;
}

/* Without --release the newest of them; none: the stack itself says why. */
static enum kvt_status take_release(struct time_report *r, const struct time_args *a,
				    struct kvt_error *err)
{
	enum kvt_stack stack = r->how->posting.stack;

	r->release = KVT_NRELEASES;
	if (!r->transfer->ngroups || !kvt_stack_is_vllm(stack))
		return a->release == KVT_NRELEASES ? KVT_OK :
		       kvt_fail(err, KVT_USAGE,
				"--release is for --emulate=nixl, nixl-packed or mooncake");
	r->releases = releases_of(r->transfer);
	for (int i = 0; i < KVT_NRELEASES; i++)
		if (r->releases >> i & 1)
			r->release = (enum kvt_release)i;
	if (a->release == KVT_NRELEASES)
		return KVT_OK;
	if (!(r->releases >> a->release & 1) && !a->posting.force)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s of release %s registers no such regions%s%s",
				kvt_stack_name(stack), kvt_release_name(a->release),
				r->releases ? "; expected release " : "",
				kvt_releases_text(r->releases).s);
	r->release = a->release;
	return KVT_OK;
}

static enum kvt_status run_posts(const struct kvt_transfer_plan *transfer,
				 const struct kvt_batches *posts,
				 const struct kvt_batch_how *how,
				 const struct time_args *a, struct kvt_error *err)
{
	struct kvt_batch_times times;
	struct time_report r = { transfer, how, posts, &times, a->closed_form,
				 posting_assumed(&a->posting), 0, KVT_NRELEASES };
	enum kvt_status status = take_release(&r, a, err);

	if (!status)
		status = kvt_clock_run(&times, posts, how, err);

	if (status)
		return status;
	if (!(status = print(&r, a, err)))
		status = check(&times, err);
	kvt_clock_free(&times);
	return status;
}

static enum kvt_status run_transfer(const struct time_args *a,
				    const struct kvt_batch_how *how,
				    struct kvt_error *err)
{
	struct kvt_batches posts = { 0 };
	struct transfer_input in;
	enum kvt_status status = transfer_open(&in, &a->transfer, err);

	if (status)
		return status;
	if (!(status = kvt_batches_count(&posts, &in.transfer, how, err)))
		status = run_posts(&in.transfer, &posts, how, a, err);
	kvt_batches_free(&posts);
	transfer_close(&in);
	return status;
}

static enum kvt_status no_operands(int n, struct kvt_error *err)
{
	return n ? kvt_fail(err, KVT_USAGE, "--batch takes no dumps") : KVT_OK;
}

static enum kvt_status run_batch(const struct time_args *a,
				 const struct kvt_batch_how *how, struct kvt_error *err)
{
	const struct kvt_transfer_plan none = { 0 };
	struct kvt_batches posts = { 0 };
	enum kvt_status status;

	if (!(status = take_batch(&posts, a->batch, how, err)))
		status = run_posts(&none, &posts, how, a, err);
	kvt_batches_free(&posts);
	return status;
}

static enum kvt_status check_said(const struct time_args *a, struct kvt_error *err)
{
	const struct opt_said tables[] = {
		{ a->json, "json" }, { a->closed_form, "closed-form" }, { 0 }
	};
	const struct opt_said sides[] = {
		{ a->csv, "csv" }, { a->transfer.model.model, "model" },
		{ a->transfer.model.config, "config" },
		{ a->transfer.spec.n, "spec" },
		{ a->transfer.dtype, "cache-dtype" }, { a->transfer.tokens, "tokens" },
		{ a->transfer.cached, "cached" }, { a->transfer.src.text, "src" },
		{ a->transfer.dst.text, "dst" }, { a->transfer.partial, "partial" },
		{ a->transfer.conv, "conv" }, { a->transfer.replicas, "replica-map" },
		{ a->transfer.request, "request" },
		{ a->transfer.mamba_groups, "mamba-groups" },
		{ 0 }
	};
	enum kvt_status status = opt_exclude((struct opt_said){ a->csv, "csv" }, tables,
					     err);

	return status ? status :
	       opt_exclude((struct opt_said){ a->batch, "batch" }, sides, err);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct time_args a = { .transfer.mode = "time", .release = KVT_NRELEASES };
	const struct opt opts[] = {
		TRANSFER_OPTS(&a.transfer),
		POSTING_OPTS(&a.posting),
		{ "batch", 0, OPT_STRING, &a.batch, "NxSIZE",
		  "instead of a transfer: N operations of SIZE bytes, one pair of ranks" },
		{ "closed-form", 0, OPT_FLAG, &a.closed_form, NULL,
		  "print what the formula says of each pair of ranks alone, too" },
		{ "csv", 0, OPT_FLAG, &a.csv, NULL, "print one line an operation" },
		OPT_RELEASE(&a.release),
		OPT_JSON(&a.json),
		OPT_INPUT(&a.transfer.hints),
		{ 0 }
	};
	struct link_file file;
	struct kvt_batch_how how;
	enum kvt_status status;
	int n = opt_parse(&transfer_time, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (transfer_listed(&status, &a.transfer, a.posting.link, a.posting.emulate, err))
		return status;
	if ((status = check_said(&a, err)) ||
	    (a.batch && (status = no_operands(n, err))) ||
	    (!a.batch && (status = transfer_operands(&a.transfer, n, argv, err))) ||
	    (status = posting_take(&how, &file, &a.posting, err)))
		return status;
	return a.batch ? run_batch(&a, &how, err) : run_transfer(&a, &how, err);
}

const struct command transfer_time = {
	.name = "transfer-sim time",
	.args = "[SRC DST | SRC... --dst=...]",
	.summary = "say how long a transfer takes, with what a software stack posts",
	.run = run,
	.examples =
		"  kvtool transfer-sim time -m llama-3.1-70b --src tp=4 --dst tp=8 --emulate nixl\n"
		"  kvtool transfer-sim time -m llama-3.1-8b --tokens=8k --src=tp=4,layout=nhd --dst=tp=8,layout=hnd --link=cx7-400g-verbs\n"
		"  kvtool transfer-sim time prefill.h5 --dst=tp=2,layout=hnd\n"
		"  kvtool transfer-sim time --batch=8192x8k --link=pcie5-ce-batch\n"
		"  kvtool transfer-sim time --link=list\n",
};
