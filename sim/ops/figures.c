/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures.c - how many operations a transfer has, of what sizes, and why they end
 *
 * Each pair of ranks is counted by kvt_pair_tally(), which is in closed form: the
 * cost is that of the entries and loops of a plan, not of its operations.  Sizes
 * are kept as (size, count), at most KVT_MOST_SIZES different ones.
 */
#include "sim/ops/transfer.h"

#include <stdlib.h>

enum kvt_status kvt_figures_init(struct kvt_figures *out, struct kvt_error *err)
{
	*out = (struct kvt_figures){ .sizes.room = KVT_MOST_SIZES };
	out->sizes.bin = malloc(KVT_MOST_SIZES * sizeof(*out->sizes.bin));
	return out->sizes.bin ? KVT_OK : kvt_no_memory(err, NULL);
}

void kvt_figures_free(struct kvt_figures *figures)
{
	free(figures->sizes.bin);
}

enum kvt_status kvt_figures_add(struct kvt_figures *f,
				const struct kvt_transfer_group *group,
				enum kvt_scope scope, struct kvt_error *err)
{
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_nest nest;
	struct kvt_pair pair;
	enum kvt_status status;

	while (kvt_pair_next(&pair, &walk, &group->xfer)) {
		int64_t ops = f->tally.ops;

		if ((status = kvt_nest_init(&nest, &group->xfer, &pair, err)) ||
		    (status = kvt_pair_tally(&f->tally, &f->sizes, &nest, scope, err)))
			return status;
		ops = f->tally.ops - ops;
		if (!f->pairs++ || ops < f->least)
			f->least = ops;
		if (ops > f->most)
			f->most = ops;
	}
	return KVT_OK;
}

/* ---- every scope -------------------------------------------------------- */

void kvt_plan_figures_free(struct kvt_plan_figures *r)
{
	for (int g = 0; r->figures && g < r->transfer->ngroups; g++)
		for (int s = 0; s < KVT_NSCOPES; s++)
			kvt_figures_free(&r->figures[g][s]);
	free(r->figures);
	r->figures = NULL;
}

enum kvt_status kvt_plan_figures_init(struct kvt_plan_figures *out,
				      const struct kvt_transfer_plan *transfer,
				      struct kvt_error *err)
{
	struct kvt_plan_figures r = { .transfer = transfer };
	enum kvt_status status = KVT_OK;

	r.figures = calloc((size_t)transfer->ngroups + 1, sizeof(*r.figures));
	if (!r.figures)
		return kvt_no_memory(err, NULL);
	for (int g = 0; !status && g < transfer->ngroups; g++)
		for (int s = 0; !status && s < KVT_NSCOPES; s++)
			if (!(status = kvt_figures_init(&r.figures[g][s], err)))
				status = kvt_figures_add(&r.figures[g][s],
							 &transfer->group[g],
							 (enum kvt_scope)s, err);
	if (status)
		kvt_plan_figures_free(&r);
	else
		*out = r;
	return status;
}

int64_t kvt_plan_figures_ops(const struct kvt_plan_figures *r, enum kvt_scope scope)
{
	int64_t ops = 0;

	for (int g = 0; g < r->transfer->ngroups; g++)
		ops += r->figures[g][scope].tally.ops;
	return ops;
}
