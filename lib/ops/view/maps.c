/* SPDX-License-Identifier: Apache-2.0 */
/*
 * maps.c - numbers of a dump by layer and head, by layer and token
 *
 * Boxes go through the pipeline in cell order, as for statistics; of a large dump those
 * whose number hashes low.  What a box adds is kept by the worker until it is its turn,
 * so that the last digits do not depend on the number of threads.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ops/numbers/numbers.h"
#include "lib/ops/view/view.h"
#include "lib/ops/write/plan.h"
#include "lib/run/pipeline.h"

enum { MOST_ROWS = 128, SAMPLE_BOX = 1 << 20 };

/* ---- axes ---------------------------------------------------------------- */

int64_t kvt_view_member(const struct kvt_view_axis *axis, int64_t cell)
{
	return cell * axis->total / axis->n;
}

static int64_t cell_of(const struct kvt_view_axis *axis, int64_t member)
{
	int64_t i = member * axis->n / axis->total;

	while (kvt_view_member(axis, i + 1) <= member)
		i++;
	while (kvt_view_member(axis, i) > member)
		i--;
	return i;
}

static struct kvt_view_axis axis_of(int64_t total, int64_t most)
{
	int64_t n = total < most ? total : most;

	return (struct kvt_view_axis){ total, n > 1 ? n : 1 };
}

double kvt_view_rms(const struct kvt_view_cell *c)
{
	return c->finite ? sqrt(c->squares / (double)c->finite) : NAN;
}

double kvt_view_mean(const struct kvt_view_cell *c)
{
	return c->finite ? c->sum / (double)c->finite : NAN;
}

double kvt_view_step(const struct kvt_view_cell *c)
{
	return c->nsteps ? sqrt(c->steps / (double)c->nsteps) : NAN;
}

/* ---- what is summed ------------------------------------------------------ */

struct viewing {
	struct kvt_dump *dump;
	int group;
	struct kvt_cut cut;
	int64_t step;			/* one box of so many is read */
	struct kvt_values values;
	int32_t *column;		/* [B] of the positions axis; -1: not drawn */
	struct kvt_view_maps *maps;
};

/* Whichever boxes of one process or of several: the same ones. */
static bool is_chosen(const struct viewing *v, int64_t i)
{
	uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15;

	return v->step == 1 || (x >> 32) % (uint64_t)v->step == 0;
}

static void count(struct kvt_view_cell *cell, int64_t *bins, const double *value,
		  int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		double x = fabs(value[i]);
		int e;

		cell->nan += isnan(x) != 0;
		cell->inf += isinf(x) != 0;
		if (!isfinite(x))
			continue;
		cell->finite++;
		cell->sum += value[i];
		cell->squares += x * x;
		cell->largest = x > cell->largest ? x : cell->largest;
		if (x == 0) {
			cell->zero++;
			continue;
		}
		frexp(x, &e);
		e -= 1 + KVT_VIEW_LOW;
		bins[e < 0 ? 0 : e >= KVT_VIEW_BINS ? KVT_VIEW_BINS - 1 : e]++;
	}
}

static void count_steps(struct kvt_view_cell *cell, const double *value,
			const double *before, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		double x = value[i] - before[i];

		if (!isfinite(x))
			continue;
		cell->nsteps++;
		cell->steps += x * x;
	}
}

static void add(struct kvt_view_cell *to, const struct kvt_view_cell *c)
{
	to->finite += c->finite;
	to->zero += c->zero;
	to->nan += c->nan;
	to->inf += c->inf;
	to->sum += c->sum;
	to->squares += c->squares;
	to->nsteps += c->nsteps;
	to->steps += c->steps;
	to->largest = c->largest > to->largest ? c->largest : to->largest;
}

/* ---- a box --------------------------------------------------------------- */

/* What a box of the worker adds: cells of [heads][K], of [positions][K], and bins. */
struct part {
	struct kvt_view_cell *by_head, *by_position;
	int64_t *bins;
};

static struct part part_at(const struct viewing *v, uint8_t *bytes, int64_t row)
{
	const struct kvt_view_maps *m = v->maps;
	int64_t nhead = m->heads.n * m->kv, ncolumn = m->positions.n * m->kv;
	size_t each = (size_t)(nhead + ncolumn) * sizeof(struct kvt_view_cell) +
		      (size_t)m->kv * KVT_VIEW_BINS * sizeof(int64_t);
	struct part p;

	bytes += (size_t)row * each;
	p.by_head = (struct kvt_view_cell *)bytes;
	p.by_position = p.by_head + nhead;
	p.bins = (int64_t *)(p.by_position + ncolumn);
	return p;
}

static int64_t part_bytes(const struct viewing *v, int64_t rows)
{
	const struct kvt_view_maps *m = v->maps;

	return rows * ((m->heads.n + m->positions.n) * m->kv *
		       (int64_t)sizeof(struct kvt_view_cell) +
		       m->kv * KVT_VIEW_BINS * (int64_t)sizeof(int64_t));
}

/* Slots of a block that hold a live token come first. */
static int64_t live_slots(const struct kvt_group *group, int64_t b)
{
	int64_t n = group->shape.n[KVT_AXIS_S];

	if (!group->block_valid || group->block_valid[b] > n)
		return n;
	return group->block_valid[b];
}

/* The first slots of a block, of one head and component; 'scratch' has room for two. */
static void count_slots(struct kvt_view_cell *cell, int64_t *bins,
			const struct viewing *v, int64_t k, const uint8_t *cells,
			int64_t live, double *scratch)
{
	const struct kvt_group *group = v->maps->group;
	int64_t slot_bytes = group->shape.n[KVT_AXIS_D] * group->shape.elem;

	for (int64_t s = 0; s < live; s++) {
		double *now = scratch + s % 2 * v->values.n;

		kvt_values_decode(now, &v->values, k, cells + s * slot_bytes);
		count(cell, bins, now, v->values.n);
		if (s)
			count_steps(cell, now, scratch + (s - 1) % 2 * v->values.n,
				    v->values.n);
	}
}

static void count_box(const struct viewing *v, uint8_t *mine, const struct kvt_box *box,
		      const uint8_t *cells, double *scratch)
{
	const struct kvt_group *group = v->maps->group;
	const int64_t *n = group->shape.n;
	int64_t slot_bytes = n[KVT_AXIS_D] * group->shape.elem;
	int64_t first = cell_of(&v->maps->layers, box->begin[KVT_AXIS_L]);

	for (int64_t l = box->begin[KVT_AXIS_L]; l < box->end[KVT_AXIS_L]; l++)
		for (int64_t b = box->begin[KVT_AXIS_B]; b < box->end[KVT_AXIS_B]; b++)
			for (int64_t i = 0; i < n[KVT_AXIS_H] * n[KVT_AXIS_K]; i++) {
				int64_t h = i / n[KVT_AXIS_K], k = i % n[KVT_AXIS_K];
				struct part p = part_at(v, mine,
					cell_of(&v->maps->layers, l) - first);
				struct kvt_view_cell here = { 0 };
				int64_t live = v->column[b] < 0 ? 0 :
					       live_slots(group, b);

				count_slots(&here, p.bins + k * KVT_VIEW_BINS, v, k,
					    cells, live, scratch);
				cells += n[KVT_AXIS_S] * slot_bytes;
				if (!live)
					continue;
				add(&p.by_head[cell_of(&v->maps->heads, h) *
					       n[KVT_AXIS_K] + k], &here);
				add(&p.by_position[k + n[KVT_AXIS_K] * v->column[b]],
				    &here);
			}
}

static void add_part(const struct viewing *v, uint8_t *mine, int64_t row, int64_t rows)
{
	struct kvt_view_maps *m = v->maps;
	int64_t nhead = m->heads.n * m->kv, ncolumn = m->positions.n * m->kv;

	for (int64_t r = 0; r < rows; r++) {
		struct part p = part_at(v, mine, r);

		for (int64_t i = 0; i < nhead; i++)
			add(&m->by_head[(row + r) * nhead + i], &p.by_head[i]);
		for (int64_t i = 0; i < ncolumn; i++)
			add(&m->by_position[(row + r) * ncolumn + i], &p.by_position[i]);
		for (int64_t i = 0; i < m->kv * KVT_VIEW_BINS; i++)
			m->exponent[(row + r) * m->kv * KVT_VIEW_BINS + i] += p.bins[i];
	}
}

static enum kvt_status view_box(struct kvt_worker *worker, void *context, int64_t i,
				struct kvt_error *err)
{
	struct viewing *v = context;
	struct kvt_box box = kvt_cut_box(&v->cut, i);
	int64_t row = cell_of(&v->maps->layers, box.begin[KVT_AXIS_L]);
	int64_t rows = cell_of(&v->maps->layers, box.end[KVT_AXIS_L] - 1) + 1 - row;
	enum kvt_status status;

	if (is_chosen(v, i)) {
		memset(worker->buffer[1], 0, (size_t)part_bytes(v, rows));
		if ((status = kvt_read(worker, v->dump, v->group, &box, &cell_layout,
				       worker->buffer[0], err)))
			return status;
		count_box(v, worker->buffer[1], &box, worker->buffer[0],
			  (double *)worker->buffer[2]);
		kvt_worker_progress(worker, v->cut.box_bytes);
	}
	if (!kvt_worker_turn(worker, i))
		return KVT_OK;
	if (is_chosen(v, i)) {
		struct kvt_shape shape = kvt_box_shape(&box, v->cut.shape.elem);
		int64_t nbytes = 0;

		(void)!kvt_shape_nbytes(&nbytes, &shape, NULL);
		v->maps->read_bytes += nbytes;
		add_part(v, worker->buffer[1], row, rows);
	}
	kvt_worker_unlock(worker);
	return KVT_OK;
}

/* ---- which blocks, and where --------------------------------------------- */

static enum kvt_status list_blocks(struct viewing *v, const struct kvt_snapshot *s,
				   struct kvt_error *err)
{
	struct kvt_view_maps *m = v->maps;
	int64_t n = m->group->shape.n[KVT_AXIS_B], null = kvt_null_block(s, v->group);

	m->block = calloc((size_t)n + 1, sizeof(*m->block));
	m->request = calloc((size_t)n + 1, sizeof(*m->request));
	m->token = calloc((size_t)n + 1, sizeof(*m->token));
	v->column = malloc(((size_t)n + 1) * sizeof(*v->column));
	if (!m->block || !m->request || !m->token || !v->column)
		return kvt_no_memory(err, NULL);
	for (int64_t b = 0; b < n; b++)
		v->column[b] = -1;
	for (int64_t r = 0; r < s->nrequests; r++)
		for (int64_t i = 0; i < s->request[r].nblocks[v->group]; i++) {
			int64_t b = s->request[r].blocks[v->group][i];

			if (v->column[b] < 0 && b != null) {
				v->column[b] = 0;
				m->request[m->nblocks] = r;
				m->token[m->nblocks] = s->request[r].first_token +
					i * m->group->block_size - (i ? kvt_request_skip(
					&s->request[r], m->group) : 0);
				m->block[m->nblocks++] = b;
			}
		}
	for (int64_t b = 0; b < n && !s->nrequests; b++)
		if (b != null)
			m->block[m->nblocks++] = b;
	return KVT_OK;
}

static void number_blocks(struct viewing *v)
{
	const struct kvt_view_maps *m = v->maps;

	for (int64_t i = 0; i < m->nblocks; i++)
		v->column[m->block[i]] = (int32_t)cell_of(&m->positions, i);
}

/* ---- the whole ----------------------------------------------------------- */

static enum kvt_status make_room(struct kvt_view_maps *m, int64_t cells,
				 struct kvt_error *err)
{
	int64_t rows, heads = m->heads.total;

	m->layers = axis_of(m->layers.total, cells < MOST_ROWS ? cells : MOST_ROWS);
	rows = m->layers.n * m->kv;
	m->heads = axis_of(heads, cells / rows);
	m->positions = axis_of(m->nblocks, cells / rows);
	m->by_head = calloc((size_t)(rows * m->heads.n), sizeof(*m->by_head));
	m->by_position = calloc((size_t)(rows * m->positions.n), sizeof(*m->by_position));
	m->exponent = calloc((size_t)(rows * KVT_VIEW_BINS), sizeof(*m->exponent));
	if (m->by_head && m->by_position && m->exponent)
		return KVT_OK;
	return kvt_no_memory(err, NULL);
}

static enum kvt_status view_boxes(struct viewing *v, int64_t most,
				  const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_group *group = v->maps->group;
	struct kvt_work work = { .fn = view_box, .context = v, .label = "reading" };
	int64_t limit = run->memory ? run->memory / 4 : INT64_MAX;

	if (v->maps->bytes > most && limit > SAMPLE_BOX)
		limit = SAMPLE_BOX;
	v->cut = kvt_cut_choose(group, kvt_dump_tiling(v->dump, v->group), NULL, NULL,
				limit);
	v->step = v->maps->bytes > most ? v->maps->bytes / most + 1 : 1;
	work.count = v->maps->bytes ? v->cut.nboxes : 0;
	work.total_bytes = v->maps->bytes / v->step;
	work.buffer_bytes[0] = v->cut.box_bytes;
	work.buffer_bytes[1] = part_bytes(v, v->cut.layers + 1);
	work.buffer_bytes[2] = 2 * v->values.n * (int64_t)sizeof(double);
	kvt_work_reads(&work, v->dump, v->group, &v->cut, &cell_layout);
	return kvt_work_run(&work, run, err);
}

enum kvt_status kvt_view_maps(struct kvt_view_maps *m, struct kvt_dump *dump, int g,
			      int64_t most, int64_t cells, const struct kvt_run *run,
			      struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	struct viewing v = { .dump = dump, .group = g, .maps = m };
	enum kvt_status status;

	*m = (struct kvt_view_maps){ .group = &s->group[g] };
	m->kv = m->group->shape.n[KVT_AXIS_K];
	m->layers.total = m->group->shape.n[KVT_AXIS_L];
	m->heads.total = m->group->shape.n[KVT_AXIS_H];
	if (!(status = kvt_shape_nbytes(&m->bytes, &m->group->shape, err)) &&
	    !(status = kvt_values_init(&v.values, m->group, err)) &&
	    !(status = list_blocks(&v, s, err)) &&
	    !(status = make_room(m, cells, err))) {
		number_blocks(&v);
		status = view_boxes(&v, most, run, err);
	}
	free(v.column);
	return status;
}

void kvt_view_maps_free(struct kvt_view_maps *m)
{
	free(m->block);
	free(m->request);
	free(m->token);
	free(m->by_head);
	free(m->by_position);
	free(m->exponent);
	*m = (struct kvt_view_maps){ 0 };
}
