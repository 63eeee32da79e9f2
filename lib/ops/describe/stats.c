/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.c - minimum, maximum, mean and the like, a head at a time
 *
 * Boxes go through the pipeline; each is put into cell order, where the values
 * of a (layer, block, head, kv) are one run.  The moments of a run are taken in two
 * passes and merged by the formula for two sets, so that nothing is lost to a large
 * mean.  Boxes are added up in their own order, so that the last digits do not depend
 * on the number of threads.  Costs one read of the data, one more for what is not
 * finite, by place (lib/ops/numbers), and one for what is strange (lib/ops/strange).
 */
#include "lib/ops/describe/describe.h"

#include <math.h>
#include <stdlib.h>

#include "lib/ops/write/plan.h"
#include "lib/run/pipeline.h"

struct summing {
	struct kvt_dump *dump;
	int group;
	struct kvt_cut cut;
	struct kvt_values values;
	const double *scale;		/* of keys, of values */
	struct kvt_moments *sum;		/* [L][H][K] */
};

static const struct kvt_moments nothing = { .min = NAN, .max = NAN, .mean = NAN };

double kvt_scale_of(const double scale[2], const struct kvt_group *group, int64_t k)
{
	int half = kvt_group_half(group);
	double x = scale[half >= 0 ? half : k];

	return x > 0 ? x : 1;
}

/* The numbers of a (layer, block, head, kv). */
static void decode_cell(double *out, const struct summing *s,
			const struct kvt_group *group, int64_t k, const uint8_t *bytes)
{
	double scale = kvt_scale_of(s->scale, group, k);

	for (int64_t i = 0; i < group->shape.n[KVT_AXIS_S]; i++) {
		kvt_values_decode(out, &s->values, k, bytes);
		for (int64_t v = 0; v < s->values.n; v++)
			out[v] *= scale;
		bytes += group->shape.n[KVT_AXIS_D] * group->shape.elem;
		out += s->values.n;
	}
}

/* Two passes: the squared distances then lose nothing to a large mean. */
static struct kvt_moments cell_moments(const double *value, int64_t n)
{
	struct kvt_moments m = nothing;
	bool zero = true;
	double sum = 0;

	for (int64_t i = 0; i < n; i++) {
		double x = value[i];

		zero &= x == 0;
		m.nan += isnan(x) != 0;
		m.inf += isinf(x) != 0;
		if (!isfinite(x))
			continue;
		m.finite++;
		sum += x;
		m.min = x < m.min || m.finite == 1 ? x : m.min;
		m.max = x > m.max || m.finite == 1 ? x : m.max;
	}
	m.zero_blocks = zero;
	if (m.finite)
		m.mean = sum / (double)m.finite;
	for (int64_t i = 0; i < n && m.max > m.min; i++) {
		double x = value[i];

		if (isfinite(x))
			m.squares += (x - m.mean) * (x - m.mean);
	}
	return m;
}

void kvt_moments_add(struct kvt_moments *to, const struct kvt_moments *m)
{
	double n = (double)to->finite + (double)m->finite, apart;

	to->nan += m->nan;
	to->inf += m->inf;
	to->zero_blocks += m->zero_blocks;
	if (!m->finite)
		return;
	if (!to->finite) {
		to->min = m->min;
		to->max = m->max;
		to->mean = m->mean;
		to->squares = m->squares;
		to->finite = m->finite;
		return;
	}
	/* the sums of two sets from their own means */
	apart = m->mean - to->mean;
	to->squares += m->squares +
		       apart * apart * (double)to->finite * (double)m->finite / n;
	to->mean += apart * (double)m->finite / n;
	to->min = m->min < to->min ? m->min : to->min;
	to->max = m->max > to->max ? m->max : to->max;
	to->finite += m->finite;
}

/* Moments of each (layer, head, kv) of the box, from its cells in order. */
static void box_moments(struct kvt_moments *sum, const struct summing *s,
			const struct kvt_box *box, const uint8_t *cells, double *scratch)
{
	const struct kvt_group *group = &kvt_dump_snapshot(s->dump)->group[s->group];
	const int64_t *n = group->shape.n;
	int64_t heads = n[KVT_AXIS_H] * n[KVT_AXIS_K];
	int64_t bytes = n[KVT_AXIS_S] * n[KVT_AXIS_D] * group->shape.elem;
	int64_t layers = box->end[KVT_AXIS_L] - box->begin[KVT_AXIS_L];
	int64_t blocks = box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B];

	for (int64_t i = 0; i < layers * heads; i++)
		sum[i] = nothing;
	for (int64_t l = 0; l < layers; l++)
		for (int64_t b = 0; b < blocks; b++)
			for (int64_t h = 0; h < heads; h++) {
				struct kvt_moments m;

				decode_cell(scratch, s, group, h % n[KVT_AXIS_K], cells);
				m = cell_moments(scratch, n[KVT_AXIS_S] * s->values.n);
				kvt_moments_add(&sum[l * heads + h], &m);
				cells += bytes;
			}
}

static enum kvt_status sum_box(struct kvt_worker *worker, void *context, int64_t i,
			       struct kvt_error *err)
{
	const struct summing *s = context;
	const struct kvt_group *group = &kvt_dump_snapshot(s->dump)->group[s->group];
	struct kvt_moments *mine = (struct kvt_moments *)worker->buffer[1], *all;
	struct kvt_box box = kvt_cut_box(&s->cut, i);
	int64_t heads = group->shape.n[KVT_AXIS_H] * group->shape.n[KVT_AXIS_K];
	int64_t layers = box.end[KVT_AXIS_L] - box.begin[KVT_AXIS_L];
	enum kvt_status status;

	if ((status = kvt_read(worker, s->dump, s->group, &box, &cell_layout,
			       worker->buffer[0], err)))
		return status;
	box_moments(mine, s, &box, worker->buffer[0], (double *)worker->buffer[2]);
	kvt_worker_progress(worker, s->cut.box_bytes);
	if (!kvt_worker_turn(worker, i))
		return KVT_OK;
	all = s->sum + box.begin[KVT_AXIS_L] * heads;
	for (int64_t h = 0; h < layers * heads; h++)
		kvt_moments_add(&all[h], &mine[h]);
	kvt_worker_unlock(worker);
	return KVT_OK;
}

static enum kvt_status stats_group(struct kvt_description *d, int g,
				   const double scale[2],
				   const struct kvt_run *run, struct kvt_error *err)
{
	struct kvt_group_facts *f = &d->group[g];
	const int64_t *n = f->group->shape.n;
	int64_t heads = n[KVT_AXIS_H] * n[KVT_AXIS_K];
	struct summing s = { .dump = d->dump, .group = g, .scale = scale };
	struct kvt_work work = { .fn = sum_box, .context = &s, .label = "statistics",
			     .total_bytes = f->data_bytes };
	int64_t limit = run->memory ? run->memory / 4 : INT64_MAX;
	struct kvt_error why;
	enum kvt_status status = kvt_values_init(&s.values, f->group, &why);

	if (status)
		return kvt_fail(err, status, "%s: %s: %.300s", d->path, f->group->id,
				why.text);
	f->moments = calloc((size_t)(n[KVT_AXIS_L] * heads + 1), sizeof(*f->moments));
	if (!f->moments)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < n[KVT_AXIS_L] * heads; i++)
		f->moments[i] = nothing;
	s.sum = f->moments;
	s.cut = kvt_cut_choose(f->group, f->tiling, NULL, NULL, limit);
	work.count = f->data_bytes ? s.cut.nboxes : 0;
	work.buffer_bytes[0] = s.cut.box_bytes;
	work.buffer_bytes[1] = s.cut.layers * heads * (int64_t)sizeof(*f->moments);
	if (f->data_bytes)	/* else extents may be anything */
		work.buffer_bytes[2] = n[KVT_AXIS_S] * s.values.n *
				       (int64_t)sizeof(double);
	kvt_work_reads(&work, s.dump, g, &s.cut, &cell_layout);
	return kvt_work_run(&work, run, err);
}

/* What all numbers of a group say together; none of it depends on a scale. */
static enum kvt_status look_at_group(struct kvt_description *d, int g,
				     const struct kvt_run *run, struct kvt_error *err)
{
	struct kvt_group_facts *f = &d->group[g];
	enum kvt_status status;

	f->numbers = calloc(1, sizeof(*f->numbers));
	f->strange = calloc(1, sizeof(*f->strange));
	if (!f->numbers || !f->strange)
		return kvt_no_memory(err, NULL);
	if ((status = kvt_look(f->numbers, d->dump, g, run, err)))
		return status;
	return kvt_seek_strange(f->strange, d->dump, g, run, err);
}

enum kvt_status kvt_describe_stats(struct kvt_description *d, const double scale[2],
				   const struct kvt_run *run, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct kvt_run unseen = *run;

	unseen.progress = NULL;		/* the look is a small part of it */
	for (int g = 0; !status && g < d->snapshot->ngroups; g++) {
		if (!(status = stats_group(d, g, scale, run, err)))
			status = look_at_group(d, g, &unseen, err);
	}
	return status;
}
