/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meter.c - how far apart two runs of elements are
 *
 * In: two runs of elements along D, of any two types, packed or scaled.  Out: sums,
 * the first deviation and the worst ones.  Elements are decoded 256 at a time into
 * doubles; runs of equal bytes are decoded once and only weighed, for the sums need
 * what is equal, too.
 *
 * All sums are of doubles and in the order of the elements: what comes out depends
 * neither on threads nor on where the elements were stored.
 */
#include "lib/ops/diff/internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- sums --------------------------------------------------------------- */

void sums_add(struct diff_sums *to, const struct diff_sums *from)
{
	to->n += from->n;
	to->unequal += from->unequal;
	to->outside += from->outside;
	to->nonfinite += from->nonfinite;
	to->lost += from->lost;
	to->saturated += from->saturated;
	to->zeroed += from->zeroed;
	if (to->max_ulp < from->max_ulp)
		to->max_ulp = from->max_ulp;
	if (to->max_abs < from->max_abs)
		to->max_abs = from->max_abs;
	to->dd += from->dd;
	to->aa += from->aa;
	to->bb += from->bb;
	to->ab += from->ab;
	to->a += from->a;
	to->b += from->b;
}

void heat_add_sums(struct heat *to, const struct diff_sums *from)
{
	to->n += from->n;
	to->bad += from->outside;
	to->lost += from->lost;
	to->saturated += from->saturated;
	to->zeroed += from->zeroed;
	if (to->max_abs < from->max_abs)
		to->max_abs = from->max_abs;
	to->dd += from->dd;
	to->aa += from->aa;
	to->bb += from->bb;
	to->ab += from->ab;
}

struct diff_sums kvt_diff_sums_of(const struct heat *h)
{
	return (struct diff_sums){
		.n = h->n, .outside = h->bad, .lost = h->lost, .saturated = h->saturated,
		.zeroed = h->zeroed, .dd = h->dd, .aa = h->aa, .bb = h->bb, .ab = h->ab,
		.max_abs = h->max_abs,
	};
}

void kvt_heat_add(struct heat *to, const struct heat *from)
{
	const struct diff_sums sums = kvt_diff_sums_of(from);

	heat_add_sums(to, &sums);
}

double kvt_diff_rel_l2(const struct diff_sums *s)
{
	return s->dd > 0 ? sqrt(s->dd / s->aa) : 0;
}

static double at_most_one(double x)
{
	return x > 1 ? 1 : x < -1 ? -1 : x;
}

double kvt_diff_cosine(const struct diff_sums *s)
{
	if (!(s->dd > 0))
		return 1;
	return at_most_one(s->ab / (sqrt(s->aa) * sqrt(s->bb)));
}

double kvt_diff_pcc(const struct diff_sums *s)
{
	double n = (double)(s->n - s->nonfinite);
	double va = s->aa - s->a * s->a / n, vb = s->bb - s->b * s->b / n;

	if (!(s->dd > 0))
		return 1;
	return at_most_one((s->ab - s->a * s->b / n) / (sqrt(va) * sqrt(vb)));
}

/* ---- the worst ---------------------------------------------------------- */

static bool deviation_before(const struct deviation *a, const struct deviation *b)
{
	for (int i = 0; i < KVT_NAXES; i++)
		if (a->key[i] != b->key[i])
			return a->key[i] < b->key[i];
	return false;
}

void kvt_deviation_keep(struct deviation *first, const struct deviation *d)
{
	if (d->set && (!first->set || deviation_before(d, first)))
		*first = *d;
}

static bool is_worse(const struct deviation *a, const struct deviation *b)
{
	if (a->error > b->error || a->error < b->error)
		return a->error > b->error;
	return deviation_before(a, b);
}

void worst_insert(struct deviation *list, int64_t *n, int64_t room,
		  const struct deviation *d)
{
	int64_t i = *n < room ? *n : room - 1;

	if (!room || (*n == room && !is_worse(d, &list[i])))
		return;
	for (; i > 0 && is_worse(d, &list[i - 1]); i--)
		list[i] = list[i - 1];
	list[i] = *d;
	*n += *n < room;
}

/* ---- decoding ----------------------------------------------------------- */

static uint64_t bits_of(const struct kvt_dtype *dtype, const uint8_t *element)
{
	uint64_t bits = 0;

	for (int i = 0; i < dtype->elem; i++)
		bits |= (uint64_t)element[i] << (8 * i);
	return bits;
}

/* Every type of up to two bytes has its values in a float exactly. */
static float *table_of(const struct kvt_dtype *dtype)
{
	size_t n = (size_t)1 << (8 * dtype->elem);
	float *table = malloc(n * sizeof(*table));

	for (size_t i = 0; table && i < n; i++) {
		const uint8_t element[2] = { (uint8_t)i, (uint8_t)(i >> 8) };

		table[i] = (float)kvt_dtype_decode(dtype, element);
	}
	return table;
}

enum { STEP = 256 };	/* elements that are decoded at once */

/* Elements from 'first' on of the slot at 'bytes'. */
double meter_scale(const struct meter *m, int side, int64_t layer, int64_t head, int k)
{
	const struct diff_pair *p = m->pair;

	return m->said[side] ?
	       (double)kvt_group_scale(p->group[side], p->layer[side][layer],
				       p->head[side] + head, k) :
	       m->scale[side].kv[k];
}

void meter_values(const struct meter *m, int side, int k, double scale,
		  const uint8_t *bytes, int64_t first, int64_t n, double *out)
{
	const struct kvt_dtype *dtype = m->dtype[side];
	const float *table = m->table[side];

	if (m->packing[side]) {
		kvt_packing_decode(out, m->packing[side], k, bytes, first, n);
		for (int64_t i = 0; i < n; i++)
			out[i] *= scale;
		return;
	}
	bytes += first * dtype->elem;
	for (int64_t i = 0; i < n; i++, bytes += dtype->elem)
		out[i] = scale * (dtype->elem == 1 ? (double)table[bytes[0]] :
				  dtype->elem == 2 ?
				  (double)table[bytes[0] | bytes[1] << 8] :
				  kvt_dtype_decode(dtype, bytes));
}

/* Adds how far these may be from what was rounded to them. */
static void add_rounding(const struct meter *m, int side, int k, double scale,
			 const uint8_t *bytes, int64_t first, int64_t n,
			 const double *value, double *slack)
{
	double here[STEP];

	if (m->packing[side])
		kvt_packing_rounding(here, m->packing[side], k, bytes, first, n);
	else
		for (int64_t i = 0; i < n; i++)
			here[i] = kvt_dtype_rounding(m->dtype[side], value[i] / scale);
	/* an engine may have divided by the scale in float32 before it rounded */
	for (int64_t i = 0; i < n; i++)
		slack[i] += here[i] * scale * (1 + 0x1p-16);
}

/* The largest of those that the group says of its keys or values. */
static double largest_scale(const struct kvt_group *group, int k)
{
	int64_t heads = group->scale_heads;
	double most = 0;

	for (int64_t i = 0; i < kvt_group_nscales(group); i++)
		if (i / heads % 2 == k && (double)group->scales[i] > most)
			most = (double)group->scales[i];
	return most;
}

static bool same_scales(const struct diff_pair *p)
{
	const struct kvt_group *a = p->group[SIDE_A], *b = p->group[SIDE_B];
	int64_t n = kvt_group_nscales(a);

	if (!n || n != kvt_group_nscales(b) || a->scale_heads != b->scale_heads)
		return !n && !kvt_group_nscales(b);
	return !memcmp(a->scales, b->scales, (size_t)n * sizeof(*a->scales));
}

/* Of numbers with scales of their own there is none. */
static void find_top(struct meter *m)
{
	const struct kvt_dtype *dtype = m->dtype[SIDE_B];
	size_t n = m->table[SIDE_B] ? (size_t)1 << (8 * dtype->elem) : 0;

	if (m->packing[SIDE_B] || !dtype->is_float)
		return;
	m->top = n ? 0 : dtype->elem == 4 ? (double)FLT_MAX : DBL_MAX;
	for (size_t i = 0; i < n; i++)
		if (isfinite(m->table[SIDE_B][i]) && m->top < (double)m->table[SIDE_B][i])
			m->top = (double)m->table[SIDE_B][i];
	m->top_slack = kvt_dtype_rounding(dtype, m->top);
}

enum kvt_status meter_init(struct meter *m, const struct diff_pair *p,
			   const struct diff_criteria *criteria, struct kvt_error *err)
{
	enum kvt_status status;

	*m = (struct meter){ .bits = true, .pair = p,
			     .first_kv = p->half > 0 ? p->half : 0,
			     .decoded = p->decoded,
			     .rounding = p->decoded && criteria->tolerance.automatic };
	for (int k = 0; k < 2; k++) {
		for (int s = 0; s < NSIDES; s++) {
			const struct diff_scale *told = &criteria->scale[s];

			m->said[s] = !told->given && p->group[s]->scales;
			m->scale[s].kv[k] = told->given ? told->kv[k] : m->said[s] ?
					    largest_scale(p->group[s], k) : 1;
		}
		m->bits &= !(m->scale[SIDE_A].kv[k] < m->scale[SIDE_B].kv[k] ||
			     m->scale[SIDE_A].kv[k] > m->scale[SIDE_B].kv[k]);
	}
	if (m->said[SIDE_A] || m->said[SIDE_B])
		m->bits = m->said[SIDE_A] && m->said[SIDE_B] && same_scales(p);
	if ((status = tolerance_of_pair(&m->tolerance, criteria, p, m->scale, err)))
		return status;
	for (int s = 0; m->rounding && s < NSIDES; s++)
		if (p->packing[s].nfields && !kvt_packing_bounded(&p->packing[s]))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s: how far numbers of %s may be from what was rounded to them is not known; give a tolerance",
					p->id, kvt_group_type(p->group[s]).s);
	for (int s = 0; s < NSIDES; s++) {
		m->dtype[s] = p->group[s]->dtype;
		m->packing[s] = p->packing[s].nfields ? &p->packing[s] : NULL;
		if (m->dtype[s]->elem <= 2 && !(m->table[s] = table_of(m->dtype[s])))
			return kvt_no_memory(err, NULL);
	}
	m->bits &= kvt_group_same_type(p->group[SIDE_A], p->group[SIDE_B]);
	find_top(m);
	m->has_ulp = m->bits && m->dtype[SIDE_A]->is_float;
	m->by_element = m->rounding;
	for (int t = T_ATOL; t <= T_ULP; t++)
		m->by_element |= m->tolerance.has[t];
	return KVT_OK;
}

void meter_free(struct meter *m)
{
	for (int s = 0; s < NSIDES; s++)
		free(m->table[s]);
}

/* ---- one element -------------------------------------------------------- */

/* Place among the values of the type, in ascending order. */
static int64_t rank_of(const struct kvt_dtype *dtype, uint64_t bits)
{
	uint64_t top = (uint64_t)1 << (8 * dtype->elem - 1);
	uint8_t tiny[8] = { 1 };

	tiny[dtype->elem - 1] |= 0x80;
	/* a type without a sign counts up all the way */
	if (!(bits & top) || kvt_dtype_decode(dtype, tiny) > 0)
		return (int64_t)bits;
	return -(int64_t)(bits & (top - 1));
}

static uint64_t ulps_between(const struct kvt_dtype *dtype, uint64_t a, uint64_t b)
{
	int64_t x = rank_of(dtype, a), y = rank_of(dtype, b);

	return x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
}

/* NaN is NaN, whatever its bits; infinities are near to themselves only. */
static bool within(const struct meter *m, double a, double b, double slack, double error,
		   uint64_t ulp)
{
	const struct diff_tolerance *t = &m->tolerance;

	if ((isnan(a) && isnan(b)) || a == b)
		return true;
	if (t->has[T_ULP] && (isnan(a) || isnan(b) || (double)ulp > t->value[T_ULP]))
		return false;
	if (!t->has[T_ATOL] && !t->has[T_RTOL] && !m->rounding)
		return true;
	return isfinite(a) && isfinite(b) &&
	       error <= slack + t->value[T_ATOL] + t->value[T_RTOL] * fabs(a);
}

static void add_values(struct diff_sums *s, double a, double b)
{
	s->dd += (a - b) * (a - b);
	s->aa += a * a;
	s->bb += b * b;
	s->ab += a * b;
	s->a += a;
	s->b += b;
}

/* Of element d of a slot; of a packed one without its scale. */
static uint64_t stored_bits(const struct meter *m, int side, const uint8_t *slot,
			    int64_t d)
{
	const struct kvt_packing *packing = m->packing[side];

	if (!packing)
		return bits_of(m->dtype[side], slot + d * m->dtype[side]->elem);
	return kvt_packing_bits(packing, slot, d);
}

static void add_dim(struct heat *to, double a, double b, bool bad, bool lost)
{
	double error = fabs(a - b);

	to->n++;
	to->bad += bad;
	to->lost += lost;
	if (!isfinite(a) || !isfinite(b))
		return;
	if (to->max_abs < error)
		to->max_abs = error;
	to->dd += error * error;
	to->aa += a * a;
	to->bb += b * b;
	to->ab += a * b;
}

/* Two elements that are not known to be equal. */
static void measure(const struct meter *m, const uint8_t *ea, const uint8_t *eb, double a,
		    double b, double slack, struct deviation *d, struct findings *out)
{
	struct diff_sums *s = out->sums;
	bool finite = isfinite(a) && isfinite(b), same, bad, lost;

	d->bits[SIDE_A] = stored_bits(m, SIDE_A, ea, d->key[KVT_AXIS_D]);
	d->bits[SIDE_B] = stored_bits(m, SIDE_B, eb, d->key[KVT_AXIS_D]);
	d->error = finite ? fabs(a - b) :
		      (isnan(a) && isnan(b)) || a == b ? 0 : (double)INFINITY;
	d->ulp = m->has_ulp && !isnan(a) && !isnan(b) ?
		    ulps_between(m->dtype[SIDE_A], d->bits[SIDE_A], d->bits[SIDE_B]) : 0;
	same = m->bits && !m->decoded ? d->bits[SIDE_A] == d->bits[SIDE_B] :
			 a == b || (isnan(a) && isnan(b));
	if (finite)
		add_values(s, a, b);
	/* a number that only just rounds to the largest is not beyond it */
	s->saturated += finite && out->top > 0 && fabs(b) >= out->top &&
			fabs(a) - fabs(b) > out->top_slack;
	s->zeroed += finite && !(fabs(b) > 0) && fabs(a) > 0;
	s->nonfinite += !finite;
	lost = isinf(d->error) != 0 && !finite;
	s->lost += lost;
	s->unequal += !same;
	if (finite && s->max_abs < d->error)
		s->max_abs = d->error;
	if (s->max_ulp < d->ulp)
		s->max_ulp = d->ulp;
	bad = m->by_element ? !within(m, a, b, slack, d->error, d->ulp) : !same;
	s->outside += bad;
	if (out->by_dim)
		add_dim(&out->by_dim[d->key[KVT_AXIS_D]], a, b, bad, lost);
	if (!bad)
		return;
	out->bad_dim[d->key[KVT_AXIS_D]] = 1;
	d->set = true;
	d->value[SIDE_A] = a;
	d->value[SIDE_B] = b;
	kvt_deviation_keep(out->first, d);
	worst_insert(out->worst, &out->nworst, out->room, d);
}

/* Equal ones: only what they weigh. */
static void add_equal(struct diff_sums *s, const double *a, int64_t n)
{
	double sum = 0, square = 0;

	for (int64_t i = 0; i < n; i++) {
		sum += a[i];
		square += a[i] * a[i];
	}
	if (!isfinite(square)) {
		sum = square = 0;
		for (int64_t i = 0; i < n; i++)
			if (isfinite(a[i])) {
				sum += a[i];
				square += a[i] * a[i];
			} else {
				s->nonfinite++;
			}
	}
	s->a += sum;
	s->b += sum;
	s->aa += square;
	s->bb += square;
	s->ab += square;
}

/* Are these elements stored as the same bytes? */
static bool same_bytes(const struct meter *m, const uint8_t *a, const uint8_t *b,
		       int64_t first, int64_t n)
{
	int elem = m->dtype[SIDE_A]->elem;

	/* equal numbers of a row may have other scales */
	if (m->packing[SIDE_A])
		return m->bits && !memcmp(a, b, (size_t)m->packing[SIDE_A]->nbytes);
	return m->bits && !memcmp(a + first * elem, b + first * elem, (size_t)(n * elem));
}

void meter_run(const struct meter *m, const uint8_t *a, const uint8_t *b, int64_t n,
	       const int64_t key[KVT_NAXES], struct findings *out)
{
	double va[STEP], vb[STEP], slack[STEP] = { 0 };
	int k = (int)(m->first_kv + key[KVT_AXIS_K]);
	double sa = meter_scale(m, SIDE_A, key[KVT_AXIS_L], key[KVT_AXIS_H], k);
	double sb = meter_scale(m, SIDE_B, key[KVT_AXIS_L], key[KVT_AXIS_H], k);

	out->sums->n += n;
	out->top = m->top * sb * (1 - 0x1p-40);
	out->top_slack = m->top_slack * sb * (1 + 0x1p-16);
	for (int64_t done = 0; done < n; done += STEP) {
		int64_t count = n - done < STEP ? n - done : STEP;

		meter_values(m, SIDE_A, k, sa, a, done, count, va);
		if (same_bytes(m, a, b, done, count)) {
			add_equal(out->sums, va, count);
			for (int64_t i = 0; out->by_dim && i < count; i++)
				add_dim(&out->by_dim[done + i], va[i], va[i], false,
					false);
			continue;
		}
		meter_values(m, SIDE_B, k, sb, b, done, count, vb);
		if (m->rounding) {
			memset(slack, 0, sizeof(slack));
			add_rounding(m, SIDE_A, k, sa, a, done, count, va, slack);
			add_rounding(m, SIDE_B, k, sb, b, done, count, vb, slack);
		}
		for (int64_t i = 0; i < count; i++) {
			struct deviation d = { .set = false };

			memcpy(d.key, key, sizeof(d.key));
			d.key[KVT_AXIS_D] = done + i;
			measure(m, a, b, va[i], vb[i], slack[i], &d, out);
		}
	}
}
