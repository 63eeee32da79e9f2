/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alike.c - requests that names do not pair, by what they hold
 *
 * In: requests of both sides that have no partner.  Of each some tokens are read, at the
 * same positions of all, of two layers; of keys and values the values, for these do not
 * depend on where a token stands.  A token becomes a sketch: its numbers summed up with
 * eight patterns of signs, in double, less what all tokens have in common.  Two tokens
 * are alike if sketches of a layer point the same way, whatever the type, the layout,
 * the rounding or the scale of either side.
 *
 * Two requests are one if at least half of their tokens are alike, of the last quarter,
 * too, and no other request is as near to either: what it has in common with one of them
 * must be less, and but for chance a part of what these two have.  So requests that begin
 * alike are told apart by their ends, and two that hold the same stay unpaired.
 *
 * Cost: a block for each token that is read, and 64 bytes for each in memory.
 */
#include "lib/ops/diff/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/kvt/spec.h"
#include "lib/base/order.h"

enum {
	SIGNS = 8,		/* sums of a sketch */
	FEW = 32,		/* positions from the first on; then each 1/16 further */
	LAYERS = 2,
	MOST = 256,		/* requests of both sides together */
	LEAST = 4,		/* tokens that decide anything */
};

struct sketch {
	bool read;
	double sum[LAYERS * SIGNS];
};

/* A token that is read: of request 'r' of the search, position 'at' of the grid. */
struct sample {
	int64_t block, slot;
	int64_t r, at;
};

struct search {
	struct diff_pair p;		/* what both have, and no requests yet */
	struct meter meter;
	int64_t n[NSIDES];		/* requests without a partner */
	int64_t *request[NSIDES];	/* their numbers in the snapshot */
	int64_t ngrid, *grid;		/* positions, ascending, in slots */
	struct sketch *sketch[NSIDES];	/* [n][ngrid] */
	uint8_t *alike;			/* [n of A][n of B][ngrid]: SEEN, SAME */
};

enum { SEEN = 1, SAME = 2 };

static const struct kvt_snapshot *snapshot_of(const struct search *f, int side)
{
	return kvt_dump_snapshot(f->p.side[side]->dump);
}

static struct kvt_table table_of(const struct search *f, int side, int64_t r)
{
	const struct kvt_snapshot *s = snapshot_of(f, side);

	return kvt_table_of(s, f->p.number[side], &s->request[f->request[side][r]]);
}

/* ---- which tokens ------------------------------------------------------- */

/* The first ones, then fewer and fewer, and the last one of each request. */
static bool make_grid(struct search *f)
{
	int64_t longest = 0, n = 0, room = FEW + 16 * 64 + f->n[SIDE_A] + f->n[SIDE_B];

	if (!(f->grid = calloc((size_t)room, sizeof(*f->grid))))
		return false;
	for (int s = 0; s < NSIDES; s++)
		for (int64_t r = 0; r < f->n[s]; r++) {
			int64_t end = table_of(f, s, r).slots.end;

			longest = longest < end ? end : longest;
			if (end > 0)
				f->grid[n++] = end - 1;
		}
	for (int64_t at = 0; at < longest && n < room; at += 1 + (at < FEW ? 0 : at / 16))
		f->grid[n++] = at;
	qsort(f->grid, (size_t)n, sizeof(*f->grid), kvt_by_int64);
	for (int64_t i = 0; i < n; i++)
		if (!i || f->grid[i] != f->grid[i - 1])
			f->grid[f->ngrid++] = f->grid[i];
	return true;
}

/* Two layers of those that both have: one in the middle, and the last. */
static void choose_layers(struct diff_pair *p)
{
	int64_t some[LAYERS] = { p->nlayers / 2, p->nlayers - 1 };
	int64_t n = some[0] < some[1] ? 2 : 1;

	for (int s = 0; s < NSIDES; s++)
		for (int64_t l = 0; l < n; l++)
			p->layer[s][l] = p->layer[s][n == 1 ? some[1] : some[l]];
	p->nlayers = n;
}

/* ---- reading ------------------------------------------------------------ */

static int by_place(const void *a, const void *b)
{
	const struct sample *x = a, *y = b;

	if (x->block != y->block)
		return x->block < y->block ? -1 : 1;
	return x->r != y->r ? (x->r < y->r ? -1 : 1) : x->at < y->at ? -1 : x->at > y->at;
}

/* Those of a side that have a slot, by block; -1: out of memory. */
static int64_t list_samples(struct sample **out, const struct search *f, int side)
{
	int64_t n = 0, room = f->n[side] * f->ngrid;
	struct sample *list = calloc((size_t)room + 1, sizeof(*list));

	*out = list;
	for (int64_t r = 0; list && r < f->n[side]; r++) {
		struct kvt_table table = table_of(f, side, r);

		for (int64_t i = 0; i < f->ngrid; i++) {
			struct kvt_stretch at = kvt_table_at(&table, f->grid[i]);

			if (at.live)
				list[n++] = (struct sample){ at.block, at.slot, r, i };
		}
	}
	if (list && n)
		qsort(list, (size_t)n, sizeof(*list), by_place);
	return list ? n : -1;
}

struct reading {
	struct search *f;
	int side;
	struct sample *sample;
	int64_t *first;			/* [blocks + 1] sample of each block */
	int64_t slot_bytes, page_bytes;
};

static uint64_t scramble(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* Elements from 'first' on of a head, with the signs that they have in any request. */
static void add_numbers(double sum[SIGNS], const double *value, int64_t n, int64_t first)
{
	for (int64_t i = 0; i < n; i++) {
		uint64_t signs = scramble((uint64_t)(first + i + 1) * 0x9e3779b97f4a7c15);
		double x = isfinite(value[i]) ? value[i] : 0;

		for (int s = 0; s < SIGNS; s++)
			sum[s] += signs >> s & 1 ? x : -x;
	}
}

static void sketch_slot(const struct reading *c, const uint8_t *bytes, double *sum)
{
	const struct diff_pair *p = &c->f->p;
	int64_t row = p->stored[c->side] * p->group[c->side]->dtype->elem;
	int k = p->nkv == 2 ? 1 : 0;
	double value[256];

	for (int64_t h = 0; h < p->nheads; h++) {
		const uint8_t *head = bytes + (h * p->nkv + k) * row;

		for (int64_t d = 0, n; d < p->content; d += n) {
			n = p->content - d < 256 ? p->content - d : 256;
			meter_values(&c->f->meter, c->side, c->f->meter.first_kv + k, 1,
				     head, d, n, value);
			add_numbers(sum, value, n, h * p->content + d);
		}
	}
}

/* kvt_work_fn: a block, whose samples nobody else has. */
static enum kvt_status read_block(struct kvt_worker *worker, void *context, int64_t i,
				  struct kvt_error *err)
{
	const struct reading *c = context;
	const struct kvt_dump *view = c->f->p.view[c->side];
	struct kvt_box box = kvt_box_whole(&kvt_dump_group(view, 0)->shape);
	enum kvt_status status;

	box_take(&box, KVT_AXIS_B, i, 1);
	status = kvt_read(worker, view, 0, &box, &c->f->p.read[c->side],
			  worker->buffer[0], err);
	for (int64_t s = c->first[i]; !status && s < c->first[i + 1]; s++) {
		const struct sample *sample = &c->sample[s];
		struct sketch *to = &c->f->sketch[c->side][sample->r * c->f->ngrid +
							   sample->at];

		to->read = true;
		for (int64_t l = 0; l < c->f->p.nlayers; l++)
			sketch_slot(c, worker->buffer[0] + l * c->page_bytes +
				    sample->slot * c->slot_bytes, to->sum + l * SIGNS);
	}
	return status;
}

/* The blocks of the samples become those of the view, each once. */
static bool take_blocks(struct reading *c, int64_t nsamples)
{
	struct diff_pair *p = &c->f->p;
	int64_t n = 0;

	free(p->segment);
	p->segment = calloc((size_t)nsamples + 1, sizeof(*p->segment));
	c->first = calloc((size_t)nsamples + 1, sizeof(*c->first));
	if (!p->segment || !c->first)
		return false;
	for (int64_t i = 0; i < nsamples; i++) {
		if (i && c->sample[i].block == c->sample[i - 1].block)
			continue;
		c->first[n] = i;
		p->segment[n].block[c->side] = c->sample[i].block;
		p->segment[n].at[c->side] = n;
		n++;
	}
	c->first[n] = nsamples;
	p->nsegments = n;
	return true;
}

static enum kvt_status read_blocks(struct reading *c, const struct kvt_run *run,
				   struct kvt_error *err)
{
	struct diff_pair *p = &c->f->p;
	enum kvt_status status = pair_view(p, c->side, err);
	struct kvt_work work = { .fn = read_block, .context = c, .count = p->nsegments };
	struct kvt_run quietly = *run;
	struct kvt_cut cut;

	if (status)
		return status;
	quietly.progress = NULL;
	quietly.share = NULL;		/* short, and every process has to know */
	quietly.device = NULL;
	cut.shape = kvt_dump_group(p->view[c->side], 0)->shape;
	c->slot_bytes = p->nheads * cut.shape.n[KVT_AXIS_K] * p->stored[c->side] *
			cut.shape.elem;
	c->page_bytes = cut.shape.n[KVT_AXIS_S] * c->slot_bytes;
	cut.layers = p->nlayers;
	cut.blocks = 1;
	cut.nboxes = p->nsegments;
	cut.box_bytes = work.buffer_bytes[0] = p->nlayers * c->page_bytes;
	kvt_work_reads(&work, p->view[c->side], 0, &cut, &p->read[c->side]);
	status = kvt_work_run(&work, &quietly, err);
	kvt_dump_close(p->view[c->side]);
	p->view[c->side] = NULL;
	return status;
}

static enum kvt_status read_side(struct search *f, int side, const struct kvt_run *run,
				 struct kvt_error *err)
{
	struct reading c = { .f = f, .side = side };
	int64_t n = list_samples(&c.sample, f, side);
	enum kvt_status status = KVT_OK;

	if (n < 0 || !take_blocks(&c, n))
		status = kvt_no_memory(err, NULL);
	else if (n)
		status = read_blocks(&c, run, err);
	free(c.sample);
	free(c.first);
	return status;
}

/* ---- what is alike ------------------------------------------------------ */

static void center(struct search *f)
{
	double mean[LAYERS * SIGNS] = { 0 };
	int64_t n = 0;

	for (int pass = 0; pass < 2; pass++)
		for (int s = 0; s < NSIDES; s++)
			for (int64_t i = 0; i < f->n[s] * f->ngrid; i++) {
				struct sketch *k = &f->sketch[s][i];

				n += !pass && k->read;
				for (int j = 0; k->read && j < LAYERS * SIGNS; j++)
					if (pass)
						k->sum[j] -= mean[j] / (double)n;
					else
						mean[j] += k->sum[j];
			}
}

/* Closer than 18 degrees, in one of the layers. */
static bool are_alike(const struct sketch *a, const struct sketch *b)
{
	for (int l = 0; l < LAYERS; l++) {
		const double *x = a->sum + l * SIGNS, *y = b->sum + l * SIGNS;
		double aa = 0, bb = 0, ab = 0;

		for (int s = 0; s < SIGNS; s++) {
			aa += x[s] * x[s];
			bb += y[s] * y[s];
			ab += x[s] * y[s];
		}
		if (ab > 0 && ab * ab > 0.9 * aa * bb)
			return true;
	}
	return false;
}

static uint8_t *row_of(const struct search *f, int64_t a, int64_t b)
{
	return f->alike + (a * f->n[SIDE_B] + b) * f->ngrid;
}

static void compare_all(struct search *f)
{
	for (int64_t a = 0; a < f->n[SIDE_A]; a++)
		for (int64_t b = 0; b < f->n[SIDE_B]; b++)
			for (int64_t i = 0; i < f->ngrid; i++) {
				const struct sketch *x, *y;

				x = &f->sketch[SIDE_A][a * f->ngrid + i];
				y = &f->sketch[SIDE_B][b * f->ngrid + i];
				if (x->read && y->read)
					row_of(f, a, b)[i] = SEEN | (are_alike(x, y) ?
								     SAME : 0);
			}
}

/* ---- which are one ------------------------------------------------------ */

/* At least half of those that both have, and of those in the last quarter. */
static bool is_near(const struct search *f, const uint8_t *row, struct diff_found *out)
{
	int64_t seen = 0, same = 0, late = 0, same_late = 0, last = 0;

	for (int64_t i = 0; i < f->ngrid; i++)
		last = row[i] ? f->grid[i] : last;
	for (int64_t i = 0; i < f->ngrid; i++) {
		bool is_late = f->grid[i] >= last - last / 4;

		seen += row[i] != 0;
		same += row[i] == (SEEN | SAME);
		late += is_late && row[i];
		same_late += is_late && row[i] == (SEEN | SAME);
	}
	out->sampled = seen;
	out->alike = same;
	return seen >= LEAST && 2 * same >= seen && 2 * same_late >= late;
}

/* Has 'other' clearly less in common than 'row', and but for chance a part of it? */
static bool is_farther(const struct search *f, const uint8_t *other, const uint8_t *row)
{
	int64_t less = 0, more = 0;

	for (int64_t i = 0; i < f->ngrid; i++) {
		less += row[i] == (SEEN | SAME) && other[i] != (SEEN | SAME);
		more += row[i] != (SEEN | SAME) && other[i] == (SEEN | SAME);
	}
	return less && 8 * more <= less;
}

static bool is_certain(const struct search *f, int64_t a, int64_t b,
		       struct diff_found *out)
{
	const uint8_t *row = row_of(f, a, b);

	if (!is_near(f, row, out))
		return false;
	for (int64_t i = 0; i < f->n[SIDE_A]; i++)
		if (i != a && !is_farther(f, row_of(f, i, b), row))
			return false;
	for (int64_t i = 0; i < f->n[SIDE_B]; i++)
		if (i != b && !is_farther(f, row_of(f, a, i), row))
			return false;
	return true;
}

/* One request has one partner: of two that were certain neither would be farther. */
static void join_certain(struct diff_partners *out, const struct search *f)
{
	for (int64_t a = 0; a < f->n[SIDE_A]; a++)
		for (int64_t b = 0; b < f->n[SIDE_B]; b++) {
			struct diff_found found = {
				.request = { f->request[SIDE_A][a],
					     f->request[SIDE_B][b] },
			};

			if (!is_certain(f, a, b, &found))
				continue;
			out->of[SIDE_A][found.request[SIDE_A]] = found.request[SIDE_B];
			out->of[SIDE_B][found.request[SIDE_B]] = found.request[SIDE_A];
			out->found[out->nfound++] = found;
		}
}

/* ---- all of it ---------------------------------------------------------- */

static bool list_requests(struct search *f, const struct diff_partners *partners,
			  const struct diff_side side[NSIDES])
{
	for (int s = 0; s < NSIDES; s++) {
		int64_t n = kvt_dump_snapshot(side[s].dump)->nrequests;

		if (!(f->request[s] = calloc((size_t)n + 1, sizeof(*f->request[s]))))
			return false;
		for (int64_t r = 0; r < n; r++)
			if (partners->of[s][r] < 0)
				f->request[s][f->n[s]++] = r;
	}
	return true;
}

/* The first groups of tokens that can be compared; a failure is told later. */
static bool find_groups(struct search *f, const struct diff_side side[NSIDES],
			const struct diff_alignment *how)
{
	const struct diff_alignment numbers = { .numbers = true, .by = how->by };
	int n[NSIDES];

	for (int s = 0; s < NSIDES; s++)
		n[s] = kvt_dump_snapshot(side[s].dump)->ngroups;
	for (int i = 0; i < n[SIDE_A] * n[SIDE_B]; i++) {
		const int group[NSIDES] = { i / n[SIDE_B], i % n[SIDE_B] };
		struct diff_unmatched unmatched = { .n = 0 };
		struct kvt_error err = { "" };

		if (!pair_shape(&f->p, side, group, &numbers, &unmatched, &err) &&
		    f->p.nlayers && !f->p.recurrent && !f->p.row[SIDE_A])
			return true;
		pair_free(&f->p);
		memset(&f->p, 0, sizeof(f->p));
	}
	return false;
}

static enum kvt_status search(struct search *f, const struct kvt_run *run,
			      struct kvt_error *err)
{
	const struct diff_scale one = { true, { 1, 1 } };	/* lengths do not count */
	const struct diff_criteria criteria = { .exact = true, .scale = { one, one } };
	int64_t pairs = f->n[SIDE_A] * f->n[SIDE_B];
	struct kvt_error why = { "" };
	enum kvt_status status;

	if (meter_init(&f->meter, &f->p, &criteria, &why))
		return KVT_OK;		/* nothing can be compared: told later */
	choose_layers(&f->p);
	if (!make_grid(f))
		return kvt_no_memory(err, NULL);
	f->alike = calloc((size_t)(pairs * f->ngrid) + 1, 1);
	for (int s = 0; s < NSIDES; s++)
		f->sketch[s] = calloc((size_t)(f->n[s] * f->ngrid) + 1,
				      sizeof(*f->sketch[s]));
	if (!f->alike || !f->sketch[SIDE_A] || !f->sketch[SIDE_B])
		return kvt_no_memory(err, NULL);
	for (int s = 0; s < NSIDES; s++)
		if ((status = read_side(f, s, run, err)))
			return status;
	center(f);
	compare_all(f);
	return KVT_OK;
}

enum kvt_status find_alike(struct diff_partners *out, const struct diff_side side[NSIDES],
			   const struct diff_alignment *how, struct kvt_error *err)
{
	struct search f = { .n = { 0, 0 } };
	enum kvt_status status = KVT_OK;

	if (!list_requests(&f, out, side))
		status = kvt_no_memory(err, NULL);
	if (!status && f.n[SIDE_A] + f.n[SIDE_B] <= MOST && find_groups(&f, side, how) &&
	    !(status = search(&f, how->run, err)) && f.alike)
		join_certain(out, &f);
	meter_free(&f.meter);
	pair_free(&f.p);
	for (int s = 0; s < NSIDES; s++) {
		free(f.request[s]);
		free(f.sketch[s]);
	}
	free(f.grid);
	free(f.alike);
	return status;
}
