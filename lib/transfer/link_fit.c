/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_fit.c - the figures of a link out of measured batches
 *
 * Three figures, of which none may be negative and each may be of any magnitude:
 * so the search is over their logarithms, and without derivatives, because a
 * maximum has none.  The simplex method of Nelder and Mead, from several starts;
 * every step is fixed, so the same rows give the same link.
 */
#include "lib/transfer/link_fit.h"

#include <math.h>

enum { DIM = 3, STEPS = 600, ROUNDS = 3 };
enum { SETUP, OP, SPEED };		/* log of us, of us, of bytes per us */

struct point {
	double x[DIM], error;
};

struct problem {
	const struct kvt_measured *row;
	int n, overlap;
};

/* ---- the model ----------------------------------------------------------- */

static double combine(double a, double b, int overlap)
{
	double most = a > b ? a : b, least = a > b ? b : a, q = least / most, s = q;

	if (overlap == KVT_OVERLAP_FULL || !(least > 0))
		return most;
	for (int k = 1; k < overlap; k++)
		s *= q;
	s += 1;
	for (int k = overlap; k > 1; k /= 2)
		s = sqrt(s);
	return most * s;
}

static double error_of(const struct problem *p, const double x[DIM])
{
	double setup = exp(x[SETUP]), op = exp(x[OP]), speed = exp(x[SPEED]), sum = 0;

	for (int i = 0; i < p->n; i++) {
		const struct kvt_measured *r = &p->row[i];
		double us = setup + combine(r->n * op, r->bytes / speed, p->overlap);
		double d = log(us / r->us);

		sum += d * d;
	}
	return sum;
}

/* ---- the search ---------------------------------------------------------- */

static void sort_points(struct point p[DIM + 1])
{
	for (int i = 1; i <= DIM; i++) {
		struct point q = p[i];
		int at = i;

		for (; at && p[at - 1].error > q.error; at--)
			p[at] = p[at - 1];
		p[at] = q;
	}
}

/* The point that far from 'from' on the line through 'centre'. */
static struct point along(const struct problem *pr, const double centre[DIM],
			  const struct point *from, double by)
{
	struct point p;

	for (int i = 0; i < DIM; i++) {
		p.x[i] = centre[i] + by * (from->x[i] - centre[i]);
		/* nothing is decided by what is that small or that large */
		p.x[i] = p.x[i] < -20 ? -20 : p.x[i] > 40 ? 40 : p.x[i];
	}
	p.error = error_of(pr, p.x);
	return p;
}

static void step(const struct problem *pr, struct point p[DIM + 1])
{
	double centre[DIM] = { 0 };
	struct point turned, other;

	for (int i = 0; i < DIM; i++)
		for (int j = 0; j < DIM; j++)
			centre[i] += p[j].x[i] / DIM;
	turned = along(pr, centre, &p[DIM], -1);
	if (turned.error < p[0].error) {
		other = along(pr, centre, &p[DIM], -2);
		p[DIM] = other.error < turned.error ? other : turned;
	} else if (turned.error < p[DIM - 1].error) {
		p[DIM] = turned;
	} else {
		if (turned.error < p[DIM].error)
			p[DIM] = turned;
		other = along(pr, centre, &p[DIM], .5);
		if (other.error < p[DIM].error)
			p[DIM] = other;
		else
			for (int j = 1; j <= DIM; j++)
				p[j] = along(pr, p[0].x, &p[j], .5);
	}
	sort_points(p);
}

/* A simplex gets flat: it is spread again around what it found. */
static struct point search(const struct problem *pr, const double start[DIM])
{
	struct point best;

	for (int i = 0; i < DIM; i++)
		best.x[i] = start[i];
	best.error = error_of(pr, start);
	for (int round = 0; round < ROUNDS; round++) {
		struct point p[DIM + 1];

		for (int j = 0; j <= DIM; j++) {
			p[j] = best;
			if (j)
				p[j].x[j - 1] += round ? .1 : .7;
			p[j].error = error_of(pr, p[j].x);
		}
		sort_points(p);
		for (int i = 0; i < STEPS && p[DIM].error - p[0].error > 1e-15; i++)
			step(pr, p);
		best = p[0];
	}
	return best;
}

/* ---- starts -------------------------------------------------------------- */

/*
 * The shortest time is mostly fixed cost, or mostly operations, or neither; the
 * highest rate that was seen is nearly the link's.
 */
static struct point best_of(const struct problem *pr)
{
	static const double part[] = { .9, .3, .01 }, over[] = { 1.02, 1.3 };
	double us = INFINITY, op = INFINITY, speed = 0;
	struct point best = { .error = INFINITY };

	for (int i = 0; i < pr->n; i++) {
		const struct kvt_measured *r = &pr->row[i];

		us = r->us < us ? r->us : us;
		op = r->us / r->n < op ? r->us / r->n : op;
		speed = r->bytes / r->us > speed ? r->bytes / r->us : speed;
	}
	for (int s = 0; s < 3; s++)
		for (int o = 0; o < 3; o++)
			for (int v = 0; v < 2; v++) {
				double start[DIM] = {
					log(us * part[s]), log(op * part[o]),
					log(speed * over[v]),
				};
				struct point p = search(pr, start);

				if (p.error < best.error)
					best = p;
			}
	return best;
}

static int64_t whole(double x)
{
	return x < 9e18 ? (int64_t)(x + .5) : INT64_MAX;
}

void kvt_link_fit(struct kvt_link *out, const struct kvt_measured *row, int n,
		  int overlap)
{
	static const int all[] = { 1, 2, 4, KVT_OVERLAP_FULL };
	double least = INFINITY;

	for (int i = 0; i < 4; i++) {
		struct problem pr = { row, n, all[i] };
		struct point p;

		if (overlap >= 0 && overlap != all[i])
			continue;
		p = best_of(&pr);
		if (p.error >= least)
			continue;
		least = p.error;
		out->overlap = all[i];
		out->setup_ns = whole(exp(p.x[SETUP]) * 1e3);
		out->op_ps = whole(exp(p.x[OP]) * 1e6);
		out->rate = whole(exp(p.x[SPEED]) * 1e6);
		/* 0 is an infinite rate */
		if (!out->rate)
			out->rate = 1;
	}
}

/* ---- how good it is ------------------------------------------------------ */

double kvt_link_residual(const struct kvt_link *link, const struct kvt_measured *row)
{
	double us = (double)link->setup_ns / 1e3;

	us += combine(row->n * (double)link->op_ps / 1e6,
		      link->rate ? row->bytes * 1e6 / (double)link->rate : 0,
		      link->overlap);
	return us / row->us - 1;
}

struct kvt_link_error kvt_link_errors(const struct kvt_link *link,
				      const struct kvt_measured *row, int n)
{
	struct kvt_link_error e = { 0, 0 };

	for (int i = 0; i < n; i++) {
		double r = fabs(kvt_link_residual(link, &row[i]));

		e.mean += r / n;
		e.most = r > e.most ? r : e.most;
	}
	return e;
}
