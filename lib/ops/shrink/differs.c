/* SPDX-License-Identifier: Apache-2.0 */
/*
 * differs.c - do two parts differ as the wholes did: at all, and by the same fault
 *
 * The first question is asked of the wholes.  What it finds, a fault or that they
 * differ, is what each part is asked for: no other fault is looked for in parts.
 */
#include "lib/ops/shrink/shrink.h"

#include <stdlib.h>

/* A fault that explains a pair; NULL: none does, or several do. */
static const struct kvt_hypothesis *decided(const struct diff_result *result)
{
	return result->diagnosis ? result->diagnosis->found.decided : NULL;
}

/* Does a result show the fault?  The first one that any explains says which it is. */
static bool shows_fault(struct shrink_differs *d, const struct diff_result *result)
{
	const struct kvt_hypothesis *found = decided(result);

	if (!found || (d->asked && found->fault != d->fault))
		return false;
	d->fault = found->fault;
	d->args = result->diagnosis->args[found - result->diagnosis->found.hypothesis];
	return true;
}

static enum kvt_status look(struct shrink_differs *d, bool *out,
			    const struct diff_pairs *pairs,
			    const struct diff_side side[NSIDES], struct kvt_error *err)
{
	bool diagnose = d->diagnose && (!d->asked || d->fault);
	const struct diff_options options = { .run = d->run, .nworst = 1,
					      .verdict_only = !diagnose,
					      .only = d->fault };
	struct diff_result *result = NULL;
	enum kvt_status status = kvt_diff_results(&result, pairs, side, &d->criteria,
						  &options, diagnose, err);
	bool differs = false, fault = false;

	for (int i = 0; result && i < pairs->n; i++) {
		differs |= !status && result[i].differs;
		if (!status && diagnose && !fault)
			fault = shows_fault(d, &result[i]);
	}
	kvt_diff_results_free(result, pairs);
	*out = d->asked && d->fault ? fault : differs;
	d->asked |= !status;
	return status;
}

/* Two dumps, side by side.  Free with both_free() in any case. */
struct both {
	struct rank_file file[NSIDES];
	struct diff_side side[NSIDES];
	struct diff_pairs pairs;
};

static enum kvt_status both_init(struct both *both, const struct shrink_differs *d,
				 const struct kvt_dump *a, const struct kvt_dump *b,
				 struct kvt_error *err)
{
	const struct diff_alignment how = {
		.numbers = d->criteria.exact || d->criteria.tolerance.given,
		/* parts of requests have the names that the whole was given */
		.run = d->asked ? NULL : &d->run,
	};
	enum kvt_status status;

	*both = (struct both){
		.file = { { "A", (struct kvt_dump *)(uintptr_t)a },
			  { "B", (struct kvt_dump *)(uintptr_t)b } },
		.side = { { .name = "A" }, { .name = "B" } },
	};
	status = kvt_diff_sides_init(both->side, both->file, &d->run, err);
	return status ? status : kvt_diff_align(&both->pairs, both->side, &how, err);
}

static void both_free(struct both *both)
{
	kvt_diff_pairs_free(&both->pairs);
	kvt_diff_sides_free(both->side);
}

enum kvt_status kvt_shrink_pair(const struct shrink_differs *d, const struct kvt_dump *a,
				struct kvt_dump **b, struct kvt_error *err)
{
	const struct kvt_snapshot *of_a = kvt_dump_snapshot(a);
	const struct kvt_snapshot *of_b = kvt_dump_snapshot(*b);
	const char **name = calloc((size_t)of_b->nrequests + 1, sizeof(*name));
	struct kvt_dump *renamed = NULL;
	struct both both;
	enum kvt_status status = both_init(&both, d, a, *b, err);
	const struct diff_partners *partners = &both.pairs.partners;

	if (!status && !name)
		status = kvt_no_memory(err, NULL);
	for (int64_t r = 0; !status && r < of_b->nrequests; r++)
		name[r] = of_b->request[r].id;
	for (int64_t i = 0; !status && i < partners->nfound; i++)
		name[partners->found[i].request[SIDE_B]] =
			of_a->request[partners->found[i].request[SIDE_A]].id;
	if (!status && partners->nfound)
		status = kvt_dump_rename(&renamed, *b, name, err);
	both_free(&both);
	free(name);
	if (renamed) {
		kvt_dump_close(*b);
		*b = renamed;
	}
	return status;
}

enum kvt_status kvt_shrink_differs(void *context, bool *out,
				   const struct shrink_parts *parts,
				   struct kvt_error *err)
{
	struct shrink_differs *d = context;
	struct both both;
	enum kvt_status status = both_init(&both, d, parts->part[SIDE_A],
					   parts->part[SIDE_B], err);
	const struct diff_unmatched *unmatched = &both.pairs.unmatched;

	*out = false;
	/* kvtool diff refuses what one of them has alone */
	if (!status && unmatched->n)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "only %c has %s; kvtool slice makes dumps of what both have",
				  "AB"[unmatched->item[0].side], unmatched->item[0].text);
	if (!status)
		status = look(d, out, &both.pairs, both.side, err);
	/* parts that have nothing in common show nothing */
	else if (d->asked && status != KVT_SYSTEM)
		status = KVT_OK;
	both_free(&both);
	return status;
}
