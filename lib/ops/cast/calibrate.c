/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calibrate.c - the largest magnitudes of keys and values, and the scales of them
 *
 * One read of the data.  What no request uses may be anything, and would make scales too
 * large: such slots count for nothing.  Largest numbers are the same in any order, so
 * threads need none.
 */
#include "lib/ops/cast/cast.h"

#include <math.h>
#include <stdlib.h>

#include "lib/dump/read.h"
#include "lib/kvt/cast.h"
#include "lib/kvt/kernels.h"
#include "lib/run/pipeline.h"

struct calibrating {
	const struct kvt_dump *dump;
	int group;
	struct kvt_cut cut;
	const bool *live;		/* [B][S]; NULL: all */
	int64_t heads;			/* 1, or those of the rank */
	float *most;			/* [L][2][heads] */
};

static void take(float *most, float here)
{
	/* NaN is larger than all */
	if (isnan(here) || here > *most)
		*most = here;
}

static void take_slot(float *most, const struct calibrating *c, const uint8_t *slot)
{
	const struct kvt_group *group = kvt_dump_group(c->dump, c->group);
	const int64_t *n = group->shape.n;
	int half = kvt_group_half(group);

	for (int64_t h = 0; h < n[KVT_AXIS_H]; h++)
		for (int64_t k = 0; k < n[KVT_AXIS_K]; k++) {
			float here = kvt_cpu_largest(slot, group->dtype, n[KVT_AXIS_D]);

			take(&most[(half < 0 ? k : half) * c->heads +
				   (c->heads > 1 ? h : 0)], here);
			slot += n[KVT_AXIS_D] * group->shape.elem;
		}
}

static enum kvt_status take_box(struct kvt_worker *worker, void *context, int64_t i,
				struct kvt_error *err)
{
	const struct calibrating *c = context;
	const struct kvt_group *group = kvt_dump_group(c->dump, c->group);
	const int64_t *n = group->shape.n;
	struct kvt_box box = kvt_cut_box(&c->cut, i);
	const uint8_t *slot = worker->buffer[0];
	float *mine = (float *)(void *)worker->buffer[1];
	enum kvt_status status = kvt_read(worker, c->dump, c->group, &box,
					  &kvt_layout_slots, worker->buffer[0], err);

	for (int64_t l = box.begin[KVT_AXIS_L]; !status && l < box.end[KVT_AXIS_L]; l++) {
		float *most = c->most + l * 2 * c->heads;

		for (int64_t j = 0; j < 2 * c->heads; j++)
			mine[j] = 0;
		for (int64_t b = box.begin[KVT_AXIS_B]; b < box.end[KVT_AXIS_B]; b++)
			for (int64_t s = 0; s < n[KVT_AXIS_S]; s++) {
				if (!c->live || c->live[b * n[KVT_AXIS_S] + s])
					take_slot(mine, c, slot);
				slot += n[KVT_AXIS_H] * n[KVT_AXIS_K] * n[KVT_AXIS_D] *
					group->shape.elem;
			}
		kvt_worker_lock(worker);
		for (int64_t j = 0; j < 2 * c->heads; j++)
			take(&most[j], mine[j]);
		kvt_worker_unlock(worker);
	}
	kvt_worker_progress(worker, c->cut.box_bytes);
	return status;
}

static enum kvt_status measure(struct calibrating *c, const struct kvt_run *run,
			       struct kvt_error *err)
{
	const struct kvt_group *group = kvt_dump_group(c->dump, c->group);
	const struct kvt_tiling *tiling = kvt_dump_tiling(c->dump, c->group);
	struct kvt_work work = { .fn = take_box, .context = c, .label = "calibrating" };
	enum kvt_status status = kvt_shape_nbytes(&work.total_bytes, &group->shape, err);

	if (status)
		return status;
	c->cut = kvt_cut_choose(group, tiling, NULL, NULL, kvt_cut_limit(run, 1));
	work.count = work.total_bytes ? c->cut.nboxes : 0;
	work.buffer_bytes[0] = c->cut.box_bytes;
	work.buffer_bytes[1] = 2 * c->heads * (int64_t)sizeof(float);
	kvt_work_reads(&work, c->dump, c->group, &c->cut, &kvt_layout_slots);
	return kvt_work_run(&work, run, err);
}

/* Of what its elements are, which may be scaled themselves. */
static enum kvt_status settle(struct calibrated *out, const struct calibrating *c,
			      const struct kvt_caster *caster, struct kvt_error *err)
{
	const struct kvt_group *group = kvt_dump_group(c->dump, c->group);
	int64_t layers = group->shape.n[KVT_AXIS_L];
	int half = kvt_group_half(group);

	out->heads = c->heads;
	out->scale = malloc(((size_t)(layers * 2 * c->heads) + 1) * sizeof(*out->scale));
	if (!out->scale)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < layers * 2 * c->heads; i++) {
		int64_t l = i / c->heads / 2, k = i / c->heads % 2, h = i % c->heads;
		float most = c->most[i] * kvt_group_scale(group, l, h, half < 0 ? k : 0);

		if (!isfinite(most))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: %s of layer %llu are not all finite, so no scale can be calibrated; kvtool fsck --data finds them, and --scale=X[,Y] gives one",
					group->id, k ? "values" : "keys",
					(unsigned long long)kvt_layer_id(group, l));
		out->scale[i] = kvt_caster_scale(caster, most);
	}
	/* a latent has no values, and what has one half has not the other */
	for (int64_t i = 0; i < layers * 2 * c->heads; i++)
		if (group->shape.n[KVT_AXIS_K] == 1 && half < 0 && i / c->heads % 2)
			out->scale[i] = out->scale[i - c->heads];
	return KVT_OK;
}

static enum kvt_status calibrate_group(struct calibrated *out, struct calibrating *c,
				       const struct kvt_caster *caster,
				       const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(c->dump);
	const struct kvt_group *group = &s->group[c->group];
	size_t n = (size_t)group->shape.n[KVT_AXIS_L] * 2 * (size_t)c->heads;
	bool *live = s->nrequests ? kvt_live_slots(s, c->group) : NULL;
	enum kvt_status status;

	if (s->nrequests && !live)
		return kvt_no_memory(err, NULL);
	c->live = live;
	c->most = calloc(n + 1, sizeof(*c->most));
	status = c->most ? measure(c, run, err) : kvt_no_memory(err, NULL);
	if (!status)
		status = settle(out, c, caster, err);
	free(live);
	free(c->most);
	return status;
}

static enum kvt_status calibrate(struct calibrated out[KVT_MAX_GROUPS],
				 const struct kvt_dump *numbers,
				 const struct kvt_dtype *dtype,
				 const struct kvt_content *content, bool heads,
				 const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(numbers);
	enum kvt_status status = KVT_OK;

	for (int g = 0; !status && g < s->ngroups; g++) {
		const struct kvt_group *group = &s->group[g];
		struct calibrating c = { .dump = numbers, .group = g, .heads = 1 };
		struct kvt_caster caster;

		if (!kvt_group_casts(group) || group->content.type)
			continue;
		if ((status = kvt_caster_init(&caster, dtype, content,
					      group->shape.n[KVT_AXIS_D], err)) ||
		    !kvt_caster_scaled(&caster))
			continue;
		if (heads && group->total_heads != group->shape.n[KVT_AXIS_H])
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: has heads %lld to %lld of %lld; scales of heads are calibrated where all are, as kvtool merge puts them together",
					group->id, LL(group->head_start),
					LL(group->head_start +
					   group->shape.n[KVT_AXIS_H] - 1),
					LL(group->total_heads));
		if (heads)
			c.heads = group->total_heads;
		status = calibrate_group(&out[g], &c, &caster, run, err);
	}
	return status;
}

enum kvt_status cast_calibrate(struct calibrated out[KVT_MAX_GROUPS],
			       const struct kvt_dump *dump, const struct kvt_dtype *dtype,
			       const struct kvt_content *content, bool heads,
			       const struct kvt_run *run, struct kvt_error *err)
{
	struct kvt_dump *numbers;
	enum kvt_status status = kvt_dump_decode_contents(&numbers, dump, err);

	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		out[g] = (struct calibrated){ .heads = 1 };
	if (status)
		return status;
	status = calibrate(out, numbers, dtype, content, heads, run, err);
	kvt_dump_close(numbers);
	return status;
}
