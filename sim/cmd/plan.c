/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c - kvtool transfer-sim plan: how many operations, of what size, and why
 *
 * In: a model, specs or dumps (transfer_open()).  Out: with --ops each operation, else
 * the figures of all scopes, as text or JSON; for sides that no dump holds also which of
 * six layouts on both would have the fewest operations, by counting each.  After that
 * --expect-ops and --max-ops are KVT_MISMATCH if they do not hold.  What would not count
 * together with --ops, or --pair without it, is KVT_USAGE.
 */
#include "sim/cmd/options.h"
#include "sim/print/transfer.h"

#include <string.h>

/* The options of plan alone. */
struct plan_args {
	const char *scope, *pair;
	int64_t expect_ops, max_ops;	/* -1: not given */
	bool ops, histogram, json;
};

static enum kvt_status count_all(int64_t *ops, const struct transfer_words *a,
				 enum kvt_scope scope, struct kvt_error *err)
{
	struct kvt_figures f;
	struct transfer_input in;
	enum kvt_status status = transfer_open(&in, a, err);

	if (status)
		return status;
	if (!(status = kvt_figures_init(&f, err))) {
		for (int g = 0; !status && g < in.transfer.ngroups; g++)
			status = kvt_figures_add(&f, &in.transfer.group[g], scope, err);
		*ops = f.tally.ops;
		kvt_figures_free(&f);
	}
	transfer_close(&in);
	return status;
}

/* The layout that would have the fewest ops, all else being as it is. */
static enum kvt_status find_best(struct plan_report *r, const struct transfer_words *a,
				 struct kvt_error *err)
{
	static const char *const names[] = {
		"hnd", "nhd", "blshc", "bhlsc", "lhbsc", "blhsc",
	};
	struct transfer_words like = *a;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int64_t ops;
		enum kvt_status status;

		like.layout = names[i];
		status = count_all(&ops, &like, r->scope, err);
		if (status == KVT_SYSTEM)
			return status;
		/* one that cannot be had here is not the best */
		if (!status && (!r->best_layout || ops < r->best_ops)) {
			r->best_layout = names[i];
			r->best_ops = ops;
		}
	}
	return KVT_OK;
}

static enum kvt_status check_ops(const struct plan_report *r, const struct plan_args *p,
				 struct kvt_error *err)
{
	int64_t ops = kvt_plan_figures_ops(&r->all, r->scope);

	if (p->expect_ops >= 0 && ops != p->expect_ops)
		return kvt_fail(err, KVT_MISMATCH, "%lld ops, expected %lld",
				LL(ops), LL(p->expect_ops));
	if (p->max_ops >= 0 && ops > p->max_ops)
		return kvt_fail(err, KVT_MISMATCH, "%lld ops, expected at most %lld",
				LL(ops), LL(p->max_ops));
	return KVT_OK;
}

static enum kvt_status report(const struct kvt_transfer_plan *transfer,
			      const struct transfer_words *a, const struct plan_args *p,
			      enum kvt_scope scope, struct kvt_error *err)
{
	struct plan_report r = { .scope = scope, .histogram = p->histogram };
	enum kvt_status status = kvt_plan_figures_init(&r.all, transfer, err);

	if (status)
		return status;
	if (!a->src.file)
		status = find_best(&r, a, err);
	if (!status)
		status = p->json ? plan_json(&r, err) : plan_text(&r, err);
	if (!status)
		status = check_ops(&r, p, err);
	kvt_plan_figures_free(&r.all);
	return status;
}

/* What would not count is refused. */
static enum kvt_status check_said(const struct plan_args *p, struct kvt_error *err)
{
	const struct opt_said figures[] = {
		{ p->json, "json" }, { p->histogram, "histogram" },
		{ p->expect_ops >= 0, "expect-ops" }, { p->max_ops >= 0, "max-ops" },
		{ 0 }
	};

	if (p->pair && !p->ops)
		return kvt_fail(err, KVT_USAGE, "--pair needs --ops");
	return opt_exclude((struct opt_said){ p->ops, "ops" }, figures, err);
}

static enum kvt_status plan(const struct transfer_words *a, const struct plan_args *p,
			    struct kvt_error *err)
{
	enum kvt_scope scope = KVT_SCOPE_RFC;
	struct transfer_input in;
	enum kvt_status status;

	if ((status = scope_take(&scope, p->scope, err)))
		return status;
	if ((status = transfer_open(&in, a, err)))
		return status;
	status = p->ops ? plan_ops(&in.transfer, scope, false, p->pair, err) :
			  report(&in.transfer, a, p, scope, err);
	transfer_close(&in);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct transfer_words a = { .mode = argv[0] };
	struct plan_args p = { .expect_ops = -1, .max_ops = -1 };
	const struct opt opts[] = {
		TRANSFER_OPTS(&a),
		{ "scope", 0, OPT_STRING, &p.scope, "max|rfc|layer",
		  "what an operation may cross, for the options below; default rfc" },
		{ "ops", 0, OPT_FLAG, &p.ops, NULL,
		  "print every operation as CSV, by ascending source offset" },
		{ "pair", 0, OPT_STRING, &p.pair, "SRC:DST",
		  "with --ops: only of these ranks, as 'src_off dst_off len'" },
		{ "histogram", 0, OPT_FLAG, &p.histogram, NULL,
		  "print how many operations have what size" },
		{ "expect-ops", 0, OPT_INT, &p.expect_ops, "N",
		  "end with status 1 if there are not N operations" },
		{ "max-ops", 0, OPT_INT, &p.max_ops, "N",
		  "end with status 1 if there are more than N operations" },
		OPT_JSON(&p.json),
		OPT_INPUT(&a.hints),
		{ 0 }
	};
	enum kvt_status status;
	int n = opt_parse(&transfer_plan, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (transfer_listed(&status, &a, NULL, NULL, err))
		return status;
	if ((status = check_said(&p, err)) ||
	    (status = transfer_operands(&a, n, argv, err)))
		return status;
	return plan(&a, &p, err);
}

const struct command transfer_plan = {
	.name = "transfer-sim plan",
	.args = "[SRC DST | SRC... --dst=...]",
	.summary = "count the operations of a transfer, and say why there are not fewer",
	.run = run,
	.examples =
		"  kvtool transfer-sim --model=llama-3.1-70b --src=layout=hnd,tp=4 --dst=tp=8\n"
		"  kvtool transfer-sim --spec=gqa:layers=32,heads=8,head-dim=128 --src=layout=nhd --dst=block-size=64\n"
		"  kvtool transfer-sim prefill.h5 decode.h5\n",
};
