/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dumps.c - kvt_diff(): two open dumps, told group by group and element by element
 *
 * Alignment, comparison, diagnosis, in that order, for all pairs; then what was found is
 * told through callbacks, so that a program over libkvt gets what kvtool diff prints.
 */
#include "lib/kvt/ops.h"
#include "lib/ops/diff/attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct dumps_diff {
	struct diff_side side[NSIDES];
	struct rank_file file[NSIDES];
	struct diff_pairs pairs;
	struct diff_result *result;		/* [pairs.n] */
	struct diff_attention attention;
	bool table[DIFF_AXES];
};

/* There is something that a fault could explain, in the types in which it was planted. */
static bool is_diagnosed(const struct diff_result *r)
{
	return r->measured && r->differs && r->first.set && !r->pair->decoded &&
	       !r->pair->reordered;
}

enum kvt_status kvt_diff_results(struct diff_result **out, const struct diff_pairs *pairs,
				 const struct diff_side side[NSIDES],
				 const struct diff_criteria *criteria,
				 const struct diff_options *options, bool diagnose,
				 struct kvt_error *err)
{
	struct diff_result *result = calloc((size_t)pairs->n + 1, sizeof(*result));
	struct kvt_run shortly = options->run;
	enum kvt_status status = KVT_OK;

	*out = result;
	if (!result)
		return kvt_no_memory(err, NULL);
	/* a diagnosis is short, and no process shares it */
	shortly.progress = NULL;
	shortly.share = NULL;
	for (int i = 0; !status && i < pairs->n; i++)
		status = kvt_diff_compare(&result[i], &pairs->pair[i], criteria, options,
					  err);
	for (int i = 0; !status && diagnose && i < pairs->n; i++)
		if (is_diagnosed(&result[i]))
			status = kvt_diff_diagnose(&result[i], options->only,
						   &shortly, err);
	for (int s = 0; !status && s < NSIDES; s++)
		status = kvt_diff_side_unchanged(&side[s], err);
	return status;
}

static void tell_group(const struct diff_result *r, const struct kvt_diff_told *told)
{
	const struct diff_diagnosis *d = r->diagnosis;
	const struct kvt_hypothesis *decided = d ? d->found.decided : NULL;
	bool known = r->measured;
	struct kvt_diff_group out = {
		.id = r->pair->id, .equal = r->equal, .differs = r->differs,
		.elements = diff_pair_elements(r->pair),
		.unequal = r->sums.unequal, .outside = r->sums.outside,
		.max_abs = r->sums.max_abs,
		.rel_l2 = known ? kvt_diff_rel_l2(&r->sums) : 0,
		.cosine = known ? kvt_diff_cosine(&r->sums) : 1,
		.pcc = known ? kvt_diff_pcc(&r->sums) : 1,
	};

	if (decided && decided->verdict == KVT_EXPLAINS) {
		out.fault = decided->fault->name;
		out.fault_text = decided->fault->summary;
		out.fault_args = d->args[decided - d->found.hypothesis].s;
	}
	if (told->group)
		told->group(told->context, &out);
}

static void tell_element(const struct diff_result *r, const struct deviation *worst,
			 const struct kvt_diff_told *told)
{
	struct diff_coordinates at = kvt_diff_locate(r->pair, worst);
	struct kvt_diff_element out = {
		.group = r->pair->id, .layer = at.layer, .layer_name = at.layer_name,
		.request = at.request, .token = at.token,
		.head = at.head, .kv = at.kv, .dim = at.dim, .error = worst->error,
	};

	for (int s = 0; s < NSIDES; s++) {
		out.block[s] = at.block[s];
		out.slot[s] = at.slot[s];
		out.value[s] = worst->value[s];
	}
	told->element(told->context, &out);
}

/* Sums that were not taken, because nothing differs, are 0. */
static void tell_cells(const struct diff_result *r, const struct kvt_diff_told *told)
{
	const struct diff_pair *p = r->pair;

	for (int64_t i = 0; i < p->nlayers * p->nheads; i++) {
		struct kvt_diff_cell out = {
			.group = p->id, .layer = kvt_diff_layer(r, i / p->nheads),
			.head = p->group[SIDE_A]->kind == KVT_MAMBA_CONV ?
				-1 : kvt_diff_head(r, i % p->nheads),
			.elements = p->nslots * p->nkv * p->content,
		};

		if (r->measured) {
			out.outside = r->by_head[i].bad;
			out.max_abs = r->by_head[i].max_abs;
			out.dd = r->by_head[i].dd;
			out.aa = r->by_head[i].aa;
			out.bb = r->by_head[i].bb;
			out.ab = r->by_head[i].ab;
		}
		told->cell(told->context, &out);
	}
}

/* Elements are the same of every row, and of one that was not measured, too. */
static void tell_table(const struct diff_result *r, enum diff_axis axis,
		       enum kvt_diff_axis as, const struct diff_table *t,
		       const struct kvt_diff_told *told)
{
	for (int64_t i = 0; i < t->n; i++) {
		const struct diff_row *row = &t->row[i];
		const struct kvt_diff_row out = {
			.group = r->pair->id, .axis = as, .id = row->id,
			.request = row->request,
			.block = axis == DIFF_TOKEN ? row->block[SIDE_A] : -1,
			.slot = row->slot,
			.elements = diff_pair_elements(r->pair) / t->total,
			.outside = row->heat.bad, .max_abs = row->heat.max_abs,
			.dd = row->heat.dd, .aa = row->heat.aa, .bb = row->heat.bb,
			.ab = row->heat.ab,
		};

		told->row(told->context, &out);
	}
}

static const struct {
	enum diff_axis axis;
	enum kvt_diff_axis as;
} told_tables[] = {
	{ DIFF_TOKEN, KVT_DIFF_TOKEN }, { DIFF_DIM, KVT_DIFF_DIM },
	{ DIFF_KV, KVT_DIFF_KV },
};
enum { NTOLD = sizeof(told_tables) / sizeof(told_tables[0]) };

static enum kvt_status tell_tables(const struct dumps_diff *d, int i,
				   const struct kvt_diff_told *told,
				   struct kvt_error *err)
{
	bool made = true;

	for (int k = 0; told->row && made && k < NTOLD; k++) {
		struct diff_table t;

		if (!d->table[told_tables[k].axis])
			continue;
		made = kvt_diff_table(&t, &d->result[i], told_tables[k].axis, false);
		if (made)
			tell_table(&d->result[i], told_tables[k].axis, told_tables[k].as,
				   &t, told);
		kvt_diff_table_free(&t);
	}
	return made ? KVT_OK : kvt_no_memory(err, NULL);
}

/* Those that are told, where there is room for them. */
static void choose_tables(struct dumps_diff *d, const struct kvt_run *run)
{
	for (int k = 0; k < NTOLD; k++) {
		enum diff_axis axis = told_tables[k].axis;

		d->table[axis] = true;
		for (int i = 0; i < d->pairs.n; i++)
			d->table[axis] &= kvt_diff_table_bytes(&d->pairs.pair[i], axis) <=
					  kvt_run_memory(run) / 2;
	}
}

static void tell_paired(const struct dumps_diff *d, const struct kvt_diff_told *told)
{
	const struct diff_partners *partners = &d->pairs.partners;

	for (int64_t i = 0; i < partners->nfound; i++) {
		const struct diff_found *f = &partners->found[i];
		struct kvt_diff_paired out = { .by_name = f->by_name, .alike = f->alike,
					       .sampled = f->sampled };

		for (int s = 0; s < NSIDES; s++)
			out.request[s] = kvt_dump_snapshot(d->side[s].dump)
						 ->request[f->request[s]].id;
		told->paired(told->context, &out);
	}
}

static void tell_attention(const struct diff_attended *of,
			   const struct kvt_diff_told *told)
{
	int64_t heads = of->nheads * of->ratio;

	for (int64_t i = 0; i < of->nlayers * heads; i++) {
		const struct diff_attend_cell *c = &of->cell[i];
		const struct kvt_diff_attended out = {
			.group = of->key->id, .layer = kvt_attend_layer(of, i / heads),
			.head = of->first_head + i % heads, .queries = c->n,
			.top_changed = c->top, .lost = c->lost,
			.change = c->n ? c->change / (double)c->n : 0,
			.change_max = c->most, .rel_l2 = kvt_attend_error(c),
			.worst = c->worst,
		};

		told->attended(told->context, &out);
	}
}

static enum kvt_status attend(struct dumps_diff *d,
			      const struct kvt_diff_options *options,
			      const struct kvt_run *run, struct kvt_error *err)
{
	const struct diff_attend_options how = {
		.queries = options->queries, .sample = options->attention_sample,
		.rank = options->attention_rank, .scale = options->attention_scale,
		.cap = options->attention_cap,
	};

	return options->attention ? kvt_diff_attend(&d->attention, d->result, &d->pairs,
						    &how, run, err) : KVT_OK;
}

static enum kvt_status tell(const struct dumps_diff *d, const struct kvt_diff_told *told,
			    struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (told->paired)
		tell_paired(d, told);
	for (int i = 0; told->only && i < d->pairs.unmatched.n && i < 64; i++)
		told->only(told->context, d->pairs.unmatched.item[i].side,
			   d->pairs.unmatched.item[i].text);
	for (int i = 0; i < d->pairs.n; i++) {
		tell_group(&d->result[i], told);
		for (int64_t w = 0; told->element && w < d->result[i].nworst; w++)
			tell_element(&d->result[i], &d->result[i].worst[w], told);
		if (told->cell)
			tell_cells(&d->result[i], told);
		if (!status)
			status = tell_tables(d, i, told, err);
	}
	for (int i = 0; told->attended && i < d->attention.n; i++)
		tell_attention(&d->attention.of[i], told);
	return status;
}

static enum kvt_status compare_pairs(struct dumps_diff *d,
				     const struct kvt_diff_options *options,
				     const struct kvt_run *run, struct kvt_error *err)
{
	struct diff_criteria criteria = {
		.exact = options->exact,
		.tolerance = {
			.given = options->automatic || options->has_atol ||
				 options->has_rtol || options->has_bound,
			.has[T_ATTENTION] = options->has_bound,
			.value[T_ATTENTION] = options->bound,
			.automatic = options->automatic,
			.has[T_ATOL] = options->has_atol, .value[T_ATOL] = options->atol,
			.has[T_RTOL] = options->has_rtol, .value[T_RTOL] = options->rtol,
		},
	};
	struct diff_options how = { .run = *run, .nworst = options->most };

	memcpy(how.table, d->table, sizeof(how.table));
	for (int s = 0; s < NSIDES; s++) {
		criteria.scale[s].given = options->has_scale[s];
		for (int k = 0; k < 2; k++)
			criteria.scale[s].kv[k] = options->scale[s][k];
	}
	return kvt_diff_results(&d->result, &d->pairs, d->side, &criteria, &how,
				!options->no_diagnosis, err);
}

static enum kvt_status align(struct dumps_diff *d, const struct kvt_diff_options *options,
			     const struct kvt_run *run, struct kvt_error *err)
{
	const struct diff_alignment how = {
		.numbers = options->exact || options->automatic || options->has_atol ||
			   options->has_rtol || options->attention,
		.by = options->by == KVT_DIFF_TOKENS ? BY_TOKENS :
		      options->by == KVT_DIFF_BLOCKS ? BY_BLOCKS : BY_AUTO,
		.nmatches = options->nmatches, .match = options->match, .run = run,
	};
	const char *ask = d->pairs.partners.ask;
	enum kvt_status status;

	if ((status = kvt_diff_sides_init(d->side, d->file, run, err)) ||
	    (status = kvt_diff_align(&d->pairs, d->side, &how, err)))
		return status;
	if (d->pairs.unmatched.n && !options->common)
		return kvt_fail(err, KVT_BAD_INPUT,
				"only %c has %s; %s%s--common compares what both have",
				"AB"[d->pairs.unmatched.item[0].side],
				d->pairs.unmatched.item[0].text, ask,
				ask[0] ? " pairs requests of two names, " : "");
	return KVT_OK;
}

static enum kvt_status check_scales(const struct kvt_diff_options *options,
				    struct kvt_error *err)
{
	for (int s = 0; s < NSIDES; s++)
	for (int k = 0; options->has_scale[s] && k < 2; k++)
		if (!(options->scale[s][k] > 0 && isfinite(options->scale[s][k])))
			return kvt_fail(err, KVT_USAGE,
					"scale of %c: %g, expected a number above 0",
					"AB"[s], options->scale[s][k]);
	return KVT_OK;
}

enum kvt_status kvt_diff(const struct kvt_dump *a, const struct kvt_dump *b,
			 const struct kvt_diff_options *options,
			 const struct kvt_diff_told *told, const struct kvt_run *run,
			 struct kvt_error *err)
{
	static const struct kvt_diff_options none;
	static const struct kvt_diff_told nobody;
	const struct kvt_run quiet = { 0 };
	const struct kvt_dump *dumps[NSIDES] = { a, b };
	struct dumps_diff d = { 0 };
	enum kvt_status status;

	options = options ? options : &none;
	run = run ? run : &quiet;
	if (options->most < 0 || options->most > DIFF_MAX_WORST)
		return kvt_fail(err, KVT_USAGE, "%d elements, expected at most %d",
				options->most, DIFF_MAX_WORST);
	if (options->has_bound && (!options->attention || !(options->bound >= 0)))
		return kvt_fail(err, KVT_USAGE, options->attention ?
				"a bound is %g, expected a number from 0 on" :
				"a bound of %g is of attention, which is not asked for",
				options->bound);
	if ((status = check_scales(options, err)))
		return status;
	for (int s = 0; s < NSIDES; s++) {
		const char *path = kvt_dump_path(dumps[s]);

		d.file[s].name = path && path[0] ? path : s ? "B" : "A";
		d.file[s].reader = (struct kvt_dump *)(uintptr_t)dumps[s];
	}
	status = align(&d, options, run, err);
	if (told && told->row)
		choose_tables(&d, run);
	if (!status)
		status = compare_pairs(&d, options, run, err);
	if (!status)
		status = attend(&d, options, run, err);
	if (!status)
		status = tell(&d, told ? told : &nobody, err);
	for (int i = 0; !status && i < d.pairs.n; i++)
		if (d.result[i].differs)
			status = kvt_fail(err, KVT_MISMATCH, "%s differs",
					  d.pairs.pair[i].id);
	kvt_diff_attention_free(&d.attention);
	kvt_diff_results_free(d.result, &d.pairs);
	kvt_diff_pairs_free(&d.pairs);
	kvt_diff_sides_free(d.side);
	return status;
}
