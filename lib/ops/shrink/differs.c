/* SPDX-License-Identifier: Apache-2.0 */
/* differs.c - do two parts differ as the wholes did: at all, and by the same fault */
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
		kvt_diff_result_free(&result[i]);
	}
	free(result);
	*out = d->asked && d->fault ? fault : differs;
	d->asked |= !status;
	return status;
}

enum kvt_status kvt_shrink_differs(void *context, bool *out,
				   const struct shrink_parts *parts,
				   struct kvt_error *err)
{
	struct shrink_differs *d = context;
	const struct diff_alignment how = {
		.numbers = d->criteria.exact || d->criteria.tolerance.given };
	struct diff_side side[NSIDES] = { { .name = "A" }, { .name = "B" } };
	struct rank_file file[NSIDES] = { { "A", parts->part[SIDE_A] },
					  { "B", parts->part[SIDE_B] } };
	struct diff_pairs pairs = { .n = 0 };
	enum kvt_status status = KVT_OK;

	*out = false;
	for (int s = 0; !status && s < NSIDES; s++)
		status = kvt_diff_side_init(&side[s], file[s].name, &file[s], 1, &d->run,
					    err);
	if (!status)
		status = kvt_diff_align(&pairs, side, &how, err);
	/* kvtool diff refuses what one of them has alone */
	if (!status && pairs.unmatched.n)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "only %c has %s; kvtool slice makes dumps of what both have",
				  "AB"[pairs.unmatched.item[0].side],
				  pairs.unmatched.item[0].text);
	if (!status)
		status = look(d, out, &pairs, side, err);
	/* parts that have nothing in common show nothing */
	else if (d->asked && status != KVT_SYSTEM)
		status = KVT_OK;
	kvt_diff_pairs_free(&pairs);
	for (int s = 0; s < NSIDES; s++)
		kvt_diff_side_free(&side[s]);
	return status;
}
