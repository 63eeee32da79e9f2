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

#include "lib/ops/fault/limit.h"

/* ---- from ids to places in the window ----------------------------------- */

static enum kvt_status find_id(int64_t *out, const char *what, int64_t id,
			       const int64_t *ids, int64_t n, struct kvt_error *err)
{
	for (int64_t i = 0; i < n; i++)
		if (ids[i] == id) {
			*out = i;
			return KVT_OK;
		}
	return kvt_fail(err, KVT_USAGE, "there is no %s %lld", what, LL(id));
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
		return kvt_fail(err, KVT_USAGE, "there is no head %lld", LL(id));
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

static bool is_limited(const struct fault_limit *only)
{
	return only->layers[1] || only->heads[1] || only->kv || only->request;
}

/* Group and part, as they are and as they become; the rest is for the pipeline. */
static enum kvt_status check_memory(int64_t *nbytes, const struct kvt_group *group,
				    bool limited, const struct kvt_run *run,
				    struct kvt_error *err)
{
	const int64_t limit = kvt_run_memory(run) / (limited ? 2 : 1);
	enum kvt_status status = kvt_shape_nbytes(nbytes, &group->shape, err);

	if (status)
		return status;
	if (*nbytes <= limit / 2)
		return KVT_OK;
	return kvt_fail(err, KVT_UNSUPPORTED,
			"%s has %s and needs twice that, more than the %s of --mem-limit; slice the dump, or give more",
			group->id, kvt_size_string(*nbytes).s, kvt_size_string(limit).s);
}

/* Arguments of the part count from its beginning; what is shown, from the whole's. */
static void show_whole(struct kvt_strike *strike, const struct kvt_box *box)
{
	for (int i = 0; i < KVT_FAULT_ARGS; i++) {
		char axis = strike->fault->arg[i].axis;

		if (axis == 'L' || axis == 'H')
			strike->args.n[i] += box->begin[axis == 'L' ? KVT_AXIS_L :
								      KVT_AXIS_H];
	}
}

static enum kvt_status plant_whole(struct planted *out, const struct fault_request *asked,
				   const uint8_t *expected, struct kvt_error *err)
{
	enum kvt_status status = place_strike(&out->strike, asked, &out->window, err);

	return status ? status : kvt_fault_plant(out->bytes, &out->strike, &out->window,
						 expected, err);
}

static enum kvt_status plant_part(struct planted *out, const struct fault_part *part,
				  const struct fault_request *asked, uint8_t *expected,
				  struct kvt_error *err)
{
	enum kvt_status status;
	uint8_t *before, *after;
	int64_t nbytes;

	if ((status = place_strike(&out->strike, asked, &part->window, err)) ||
	    (status = kvt_shape_nbytes(&nbytes, &part->window.shape, err)))
		return status;
	before = malloc((size_t)nbytes + 1);
	after = malloc((size_t)nbytes + 1);
	if (!before || !after) {
		status = kvt_no_memory(err, NULL);
	} else {
		kvt_fault_part_copy(part, before, expected, false);
		status = kvt_fault_plant(after, &out->strike, &part->window, before, err);
	}
	if (!status) {
		kvt_fault_part_copy(part, after, out->bytes, true);
		show_whole(&out->strike, &part->box);
	}
	free(before);
	free(after);
	return status;
}

/* In a copy of the data; what it does to blocks of others is left out. */
static enum kvt_status plant_data(struct planted *out, const struct kvt_dump *dump,
				  const struct fault_request *asked, uint8_t *expected,
				  int64_t nbytes, const struct kvt_run *run,
				  struct kvt_error *err)
{
	struct fault_part part;
	enum kvt_status status = kvt_fault_part_init(&part, &out->window,
						     kvt_dump_snapshot(dump), out->group,
						     &asked->only, err);

	if (!status)
		status = kvt_window_read(expected, dump, out->group, run, err);
	if (!status) {
		memcpy(out->bytes, expected, (size_t)nbytes);
		status = is_limited(&asked->only) ?
			 plant_part(out, &part, asked, expected, err) :
			 plant_whole(out, asked, expected, err);
	}
	kvt_fault_part_free(&part);
	if (status)
		return status;
	kvt_window_compare(&out->difference, &out->window, expected, out->bytes);
	return out->difference.count ? KVT_OK :
	       kvt_fail(err, KVT_BAD_INPUT,
			"%s would not change any live element of this dump",
			asked->fault->name);
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
	if ((status = check_memory(&nbytes, &snapshot->group[g],
				   is_limited(&asked->only), run, err)) ||
	    (status = kvt_window_init(&out->window, snapshot, g, err)))
		return status;
	expected = malloc((size_t)nbytes + 1);
	out->group = g;
	out->bytes = malloc((size_t)nbytes + 1);
	if (!expected || !out->bytes)
		status = kvt_no_memory(err, NULL);
	else
		status = plant_data(out, dump, asked, expected, nbytes, run, err);
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
