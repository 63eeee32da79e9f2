/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plant.c - find the group that a fault is for, and plant it in memory
 *
 * In: a dump, and a fault whose arguments are ids of the model and the pool.  Out: the
 * data of the first group that can have the fault, with it, and what it changed.  The
 * group is read whole, so it and a copy must fit in memory; the dump stays as it is.
 */
#include "lib/ops/fault/plant.h"

#include <stdlib.h>
#include <string.h>

/* ---- from ids to places in the window ----------------------------------- */

static enum kvt_status find_id(int64_t *out, const char *what, int64_t id,
			       const int64_t *ids, int64_t n, struct kvt_error *err)
{
	for (int64_t i = 0; i < n; i++)
		if (ids[i] == id) {
			*out = i;
			return KVT_OK;
		}
	return kvt_fail(err, KVT_USAGE, "there is no %s %lld", what, (long long)id);
}

static enum kvt_status place_arg(int64_t *out, const struct kvt_fault_arg *arg,
				 int64_t id, const struct kvt_window *w,
				 struct kvt_error *err)
{
	const int64_t heads = w->shape.n[KVT_AXIS_H];

	if (arg->axis == 'L')
		return find_id(out, "layer", id, w->layer_ids, w->shape.n[KVT_AXIS_L],
			       err);
	if (arg->axis == 'B')
		return find_id(out, "block", id, w->block_ids, w->shape.n[KVT_AXIS_B],
			       err);
	/* of a group without heads the fault itself says what it needs */
	if (arg->axis == 'H' && heads > 1 &&
	    (id < w->head_start || id - w->head_start >= heads))
		return kvt_fail(err, KVT_USAGE, "there is no head %lld", (long long)id);
	*out = arg->axis == 'H' ? id - w->head_start : id;
	return KVT_OK;
}

static enum kvt_status place_strike(struct kvt_strike *out,
				    const struct fault_request *asked,
				    const struct kvt_window *w, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	*out = (struct kvt_strike){ .fault = asked->fault, .layer = -1, .block = -1,
				    .seed = (uint64_t)asked->seed };
	out->args.factor = asked->factor;
	for (int i = 0; i < KVT_FAULT_ARGS && !status; i++) {
		out->given[i] = asked->given[i];
		if (asked->given[i])
			status = place_arg(&out->args.n[i], &asked->fault->arg[i],
					   asked->arg[i], w, err);
	}
	if (!status && asked->has_layer)
		status = find_id(&out->layer, "layer", asked->layer, w->layer_ids,
				 w->shape.n[KVT_AXIS_L], err);
	if (!status && asked->has_block)
		status = find_id(&out->block, "block", asked->block, w->block_ids,
				 w->shape.n[KVT_AXIS_B], err);
	return status;
}

/* ---- one group ---------------------------------------------------------- */

/* The data as they are and as they become; the rest is for the pipeline. */
static enum kvt_status check_memory(int64_t *nbytes, const struct kvt_group *group,
				    const struct kvt_run *run, struct kvt_error *err)
{
	int64_t limit = kvt_run_memory(run);
	enum kvt_status status = kvt_shape_nbytes(nbytes, &group->shape, err);

	if (status)
		return status;
	if (*nbytes <= limit / 2)
		return KVT_OK;
	return kvt_fail(err, KVT_UNSUPPORTED,
			"%s has %s and needs twice that, more than the %s of --mem-limit; slice the dump, or give more",
			group->id, kvt_size_string(*nbytes).s, kvt_size_string(limit).s);
}

static enum kvt_status plant_group(struct planted *out, const struct kvt_dump *dump,
				   int g, const struct fault_request *asked,
				   const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_snapshot *snapshot = kvt_dump_snapshot(dump);
	uint8_t *expected = NULL;
	enum kvt_status status;
	int64_t nbytes;

	out->id = snapshot->group[g].id;
	if ((status = check_memory(&nbytes, &snapshot->group[g], run, err)) ||
	    (status = kvt_window_init(&out->window, snapshot, g, err)))
		return status;
	expected = malloc((size_t)nbytes + 1);
	out->group = g;
	out->bytes = malloc((size_t)nbytes + 1);
	if (!expected || !out->bytes)
		status = kvt_fail(err, KVT_SYSTEM, "out of memory");
	else if (!(status = place_strike(&out->strike, asked, &out->window, err)) &&
		 !(status = kvt_window_read(expected, dump, g, run, err)) &&
		 !(status = kvt_fault_plant(out->bytes, &out->strike,
					    &out->window, expected, err)))
		kvt_window_compare(&out->difference, &out->window, expected,
				   out->bytes);
	free(expected);
	return status;
}

enum kvt_status kvt_plant_fault(struct planted *out, const struct kvt_dump *dump,
				const struct fault_request *asked,
				const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_snapshot *snapshot = kvt_dump_snapshot(dump);
	enum kvt_status status = KVT_UNSUPPORTED;
	bool any = false;

	for (int g = 0; g < snapshot->ngroups && status == KVT_UNSUPPORTED; g++) {
		if (asked->group && strcmp(asked->group, snapshot->group[g].id))
			continue;
		kvt_planted_free(out);
		status = plant_group(out, dump, g, asked, run, err);
		any = true;
	}
	if (!any)
		return kvt_fail(err, KVT_USAGE, "there is no group '%.60s'",
				asked->group ? asked->group : "");
	return status;
}

void kvt_planted_free(struct planted *planted)
{
	kvt_window_free(&planted->window);
	free(planted->bytes);
	planted->bytes = NULL;
}
