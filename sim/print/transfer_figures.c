/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_figures.c - the figures of a plan as a table
 *
 *	attn: full_attention, 32 layers, 2048 slots
 *	  source       LBHSC (hnd, ...), 4 ranks, 16 slots a block, pool of 259 blocks
 *	  moves        256 MiB between 8 pairs of ranks; no byte moves twice
 *	  scope             ops    of one pair   smallest     median    largest     x max
 *	  rfc             32768           4096      8 KiB      8 KiB      8 KiB         1
 *	  why ops end in scope rfc:
 *	           32512 end after a block: the bytes behind it do not move
 *
 * A row for each scope; why operations end, and the histogram of --histogram by powers
 * of two, are those of one.  Reasons go from the innermost axis outwards: the first is
 * the one to mend.
 */
#include "sim/print/transfer.h"

#include <string.h>

/* ---- words -------------------------------------------------------------- */

struct human human_requests(const struct kvt_transfer_plan *transfer)
{
	struct human out;
	int n = 0;

	if (transfer->requests != 1)
		n = snprintf(out.s, sizeof(out.s), "%lld requests of ",
			     LL(transfer->requests));
	snprintf(out.s + n, sizeof(out.s) - (size_t)n, "%lld token%s",
		 LL(transfer->tokens), plural(transfer->tokens));
	return out;
}

/* ---- why ---------------------------------------------------------------- */

/* How many heads (or channels) a rank of a side holds. */
static int64_t held(const struct kvt_xfer_side *side)
{
	return kvt_spec_axis(&side->spec) == KVT_AXIS_H ? side->spec.num_heads :
							  side->spec.content[0];
}

static const char *end_of(enum kvt_scope scope, enum kvt_axis axis)
{
	if (axis == KVT_AXIS_B)
		return "a block";
	if (scope == KVT_SCOPE_LAYER && axis == KVT_AXIS_L)
		return "a layer";
	return "a slice, block or layer";
}

/* The view of a conv state has taps where others have slots. */
static const char *axis_word(const struct kvt_xfer *x, enum kvt_axis axis)
{
	if (!x->src.spec.nparts)
		return kvt_axis_name(axis);
	return axis == KVT_AXIS_S ? "tap" :
	       axis == KVT_AXIS_D ? "channel" : kvt_axis_name(axis);
}

static void print_break(const struct kvt_xfer *x, enum kvt_scope scope,
			enum kvt_axis axis, enum kvt_break why, int64_t n)
{
	const char *what = x->src.spec.nparts ? "channels" : "heads";
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_pair pair;
	int64_t moved = 0;

	if (kvt_pair_next(&pair, &walk, x))
		moved = pair.exchange.range[0].count;
	plainf("  %14lld end after a %s: ", LL(n), axis_word(x, axis));
	if (why == KVT_BREAK_SCOPE) {
		plainf("both sides continue, but scope %s ends with %s\n",
		       kvt_scope_name(scope), end_of(scope, axis));
		return;
	}
	if (why != KVT_BREAK_DESTINATION && axis != KVT_AXIS_B && held(&x->src) > moved)
		plainf("the destination takes only %lld of the source's %lld %s",
		       LL(moved), LL(held(&x->src)), what);
	else if (why != KVT_BREAK_DESTINATION)
		plainf("the bytes behind it do not move");
	if (why == KVT_BREAK_BOTH)
		plainf("; ");
	if (why != KVT_BREAK_SOURCE && axis != KVT_AXIS_B && held(&x->dst) > moved)
		plainf("the source has only %lld of the destination's %lld %s",
		       LL(moved), LL(held(&x->dst)), what);
	else if (why != KVT_BREAK_SOURCE)
		plainf("the destination continues elsewhere");
	putchar('\n');
}

static void print_breaks(const struct kvt_xfer *x, enum kvt_scope scope,
			 const struct kvt_tally *tally)
{
	/* the innermost axis that breaks is the one to mend first */
	static const enum kvt_axis order[] = {
		KVT_AXIS_D, KVT_AXIS_K, KVT_AXIS_S, KVT_AXIS_H, KVT_AXIS_B, KVT_AXIS_L,
	};

	for (int a = 0; a < KVT_NAXES; a++)
		for (int w = 0; w < KVT_NBREAKS; w++)
			if (tally->breaks[order[a]][w])
				print_break(x, scope, order[a], w,
					    tally->breaks[order[a]][w]);
}

/* ---- the table ---------------------------------------------------------- */

static void print_side(const char *name, const struct kvt_xfer_side *side,
		       const struct kvt_layout *layout)
{
	const struct kvt_shape *shape = &side->views.view[0].shape;
	bool state = side->spec.tokens_per_slot.num < 0;

	plainf("  %-12s %s, %lld rank%s", name, human_layout(layout).s,
	       LL(side->ranks), plural(side->ranks));
	if (side->deal > 1)
		plainf(" of %lld, the one%s of DCP rank %lld of %lld",
		       LL(kvt_xfer_side_ranks(side)), plural(side->ranks),
		       LL(side->deal_rank), LL(side->deal));
	plainf(", ");
	if (state)
		plainf("1 state a block, ");
	else
		plainf("%lld slot%s a block, ", LL(shape->n[KVT_AXIS_S]),
		       plural(shape->n[KVT_AXIS_S]));
	plainf("pool of %lld block%s\n", LL(shape->n[KVT_AXIS_B]),
	       plural(shape->n[KVT_AXIS_B]));
}

static void print_sizes(const struct kvt_sizes *sizes)
{
	int64_t bins[64] = { 0 };

	for (int i = 0; i < sizes->n; i++)
		bins[63 - __builtin_clzll((unsigned long long)sizes->bin[i].size)] +=
			sizes->bin[i].count;
	for (int i = 0; i < 63; i++)
		if (bins[i])
			plainf("  %14lld of %s to below %s\n", LL(bins[i]),
			       kvt_size_string((int64_t)1 << i).s,
			       i < 62 ?
			       kvt_size_string((int64_t)1 << (i + 1)).s : "8 EiB");
}

static void print_scope(const struct kvt_figures *f, const struct kvt_figures *max,
			enum kvt_scope scope)
{
	int64_t ops = f->tally.ops;

	plainf("  %-6s %14lld %14lld %10s %10s %10s", kvt_scope_name(scope), LL(ops),
	       LL(f->most), kvt_size_string(kvt_sizes_at(&f->sizes, 0)).s,
	       kvt_size_string(kvt_sizes_at(&f->sizes, (ops - 1) / 2)).s,
	       kvt_size_string(kvt_sizes_at(&f->sizes, ops - 1)).s);
	if (scope == KVT_SCOPE_MAX)
		plainf(" %9s\n", "1");
	else
		plainf(" %9.3g\n", (double)ops / (double)max->tally.ops);
}

static enum kvt_status print_group(const struct plan_report *r, int g,
				   struct kvt_error *err)
{
	const struct kvt_transfer_group *group = &r->all.transfer->group[g];
	const struct kvt_xfer *x = &group->xfer;
	const struct kvt_figures *f = r->all.figures[g];
	int64_t bytes, unique;
	enum kvt_status status = kvt_xfer_nbytes(&bytes, &unique, x, err);

	if (status)
		return status;
	plainf("\n%s: %s, %lld layer%s, %lld %s%s\n", group->name,
	       kvt_kind_name(x->src.spec.kind), LL(x->layers), plural(x->layers),
	       LL(x->slots), x->src.spec.tokens_per_slot.num < 0 ? "state" : "slot",
	       plural(x->slots));
	print_side("source", &x->src, &group->src_layout);
	print_side("destination", &x->dst, &group->dst_layout);
	plainf("  %-12s %s between %lld pair%s of ranks", "moves",
	       kvt_size_string(bytes).s, LL(f[0].pairs), plural(f[0].pairs));
	if (unique != bytes)
		plainf(", %s of it unique", kvt_size_string(unique).s);
	plainf("; no byte moves twice\n");
	if (!bytes)
		return KVT_OK;
	plainf("  %-6s %14s %14s %10s %10s %10s %9s\n", "scope", "ops", "of one pair",
	       "smallest", "median", "largest", "x max");
	for (int s = 0; s < KVT_NSCOPES; s++)
		print_scope(&f[s], &f[KVT_SCOPE_MAX], (enum kvt_scope)s);
	if (r->histogram) {
		plainf("  sizes of ops in scope %s:\n", kvt_scope_name(r->scope));
		print_sizes(&f[r->scope].sizes);
	}
	plainf("  why ops end in scope %s:\n", kvt_scope_name(r->scope));
	print_breaks(x, r->scope, &f[r->scope].tally);
	return KVT_OK;
}

static void print_best(const struct plan_report *r)
{
	int64_t ops = kvt_plan_figures_ops(&r->all, r->scope);

	if (!r->best_layout || !ops)
		return;
	if (r->best_ops >= ops)
		plainf("\nno layout on both sides has fewer ops in scope %s\n",
		       kvt_scope_name(r->scope));
	else
		plainf("\nwith layout %s on both sides there would be %lld op%s in "
		       "scope %s, %.4g times fewer\n",
		       r->best_layout, LL(r->best_ops), plural(r->best_ops),
		       kvt_scope_name(r->scope), (double)ops / (double)r->best_ops);
}

static void print_legend(void)
{
	plainf("\nop: an operation, one run of bytes that is contiguous on both sides\n"
	       "scope: what an op may cross: max anything, rfc all layers of one block, layer one block of one layer\n"
	       "of one pair: ops of the pair of ranks that has the most\n"
	       "x max: how many times the ops of scope max\n");
}

enum kvt_status plan_text(const struct plan_report *r, struct kvt_error *err)
{
	const struct kvt_transfer_plan *transfer = r->all.transfer;
	enum kvt_status status = KVT_OK;

	plainf("%s: %s, %s; figures are sums over all ranks\n",
	       transfer->model ? transfer->model : "transfer", human_requests(transfer).s,
	       transfer->whole ? "whole blocks" : "valid slots only");
	for (int g = 0; !status && g < transfer->ngroups; g++)
		status = print_group(r, g, err);
	if (!status) {
		print_best(r);
		print_legend();
	}
	return status;
}
