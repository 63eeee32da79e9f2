/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe_stats.c - the numbers of a group: a row a layer, head and component
 *
 * A table is read for the row that is not like the others, so such rows begin with '!',
 * and the last lines say of how many rows what is odd.  It fits into 80 columns.
 */
#include "print/out/say.h"
#include "print/describe.h"
#include "print/out/screen.h"
#include "lib/base/order.h"

#include <math.h>
#include <stdlib.h>

/* A deviation this many times the median of its component, or less than 1 / of it. */
enum { FAR = 16 };

enum oddity { NOT_FINITE, CONSTANT, SPREAD, NODDITIES };

static int64_t count_rows(const struct kvt_group *group)
{
	const int64_t *n = group->shape.n;

	return n[KVT_AXIS_L] * n[KVT_AXIS_H] * n[KVT_AXIS_K];
}

/* Of the deviations of component k; NaN: there is no memory for it, or no number. */
static double median(const struct kvt_group_facts *f, int64_t k)
{
	int64_t nk = f->group->shape.n[KVT_AXIS_K], rows = count_rows(f->group), n = 0;
	double *all = calloc((size_t)(rows / nk), sizeof(*all)), found;

	for (int64_t i = k; all && i < rows; i += nk)
		if (f->moments[i].finite)
			all[n++] = kvt_standard_deviation(&f->moments[i]);
	if (n)
		qsort(all, (size_t)n, sizeof(*all), kvt_by_double);
	found = n ? all[n / 2] : NAN;
	free(all);
	return found;
}

/* NODDITIES: it is like the others. */
static enum oddity oddity_of(const struct kvt_moments *m, double usual)
{
	double spread = kvt_standard_deviation(m);

	if (m->nan || m->inf || !m->finite)
		return NOT_FINITE;
	if (m->min == m->max && m->finite > 1)
		return CONSTANT;
	return spread > FAR * usual || spread * FAR < usual ? SPREAD : NODDITIES;
}

static void print_numbers(const struct kvt_moments *m)
{
	plainf(" %10.4g %10.4g %10.4g %10.4g %4lld %4lld %6lld", m->min, m->max, m->mean,
	       kvt_standard_deviation(m), LL(m->nan), LL(m->inf), LL(m->zero_blocks));
}

static void print_row(const struct kvt_group_facts *f, int64_t i, bool odd)
{
	const int64_t *n = f->group->shape.n;
	int64_t k = i % n[KVT_AXIS_K], h = i / n[KVT_AXIS_K] % n[KVT_AXIS_H];

	if (odd)
		screen_paint(SCREEN_DIFFERS);
	plainf("%c%5lld %4lld %-7s", odd ? '!' : ' ',
	       LL(i / n[KVT_AXIS_K] / n[KVT_AXIS_H]),
	       LL(f->group->head_start + h), kvt_component_name(f->group, k));
	print_numbers(&f->moments[i]);
	if (odd)
		screen_plain();
	putchar('\n');
}

static void print_totals(const struct kvt_group_facts *f)
{
	int64_t nk = f->group->shape.n[KVT_AXIS_K], rows = count_rows(f->group);

	for (int64_t k = 0; k < nk; k++) {
		struct kvt_moments sum = { .min = NAN, .max = NAN };

		for (int64_t i = k; i < rows; i += nk)
			kvt_moments_add(&sum, &f->moments[i]);
		sum.mean = sum.finite ? sum.mean : NAN;
		plainf(" %-10s %-7s", "total", kvt_component_name(f->group, k));
		print_numbers(&sum);
		putchar('\n');
	}
}

static void print_odd(const struct kvt_group_facts *f, const int64_t count[NODDITIES])
{
	static const char *const words[NODDITIES] = {
		[NOT_FINITE] = "with NaN or infinities",
		[CONSTANT]   = "of one value alone",
		[SPREAD]     = "whose std is 16 times the usual one, or a 16th of it",
	};
	struct kvt_odd odd = kvt_odd_total(f->numbers);

	for (int i = 0; i < NODDITIES; i++) {
		if (!count[i])
			continue;
		print_label("! odd");
		plainf("%lld of %lld row%s %s\n", LL(count[i]), LL(count_rows(f->group)),
		       plural(count_rows(f->group)), words[i]);
	}
	if (!odd.slots)
		return;
	print_label("");
	plainf("%s in %lld slot%s, first at %s\n", kvt_odd_text(&odd).s, LL(odd.slots),
	       plural(odd.slots), kvt_odd_at(f->numbers, f->group, &odd).s);
}

static void print_strange(const struct kvt_strangeness *s)
{
	for (int i = 0; i < s->n; i++) {
		print_label("! strange");
		plainf("%s (%s, %s): %s\n", kvt_strange_name(s->found[i].kind),
		       kvt_sure_name(s->found[i].sure), s->found[i].at, s->found[i].text);
	}
	if (s->count > s->n) {
		print_label("! strange");
		plainf("and %lld more\n", LL(s->count - s->n));
	}
}

void describe_stats_text(const struct kvt_group_facts *f)
{
	int64_t nk = f->group->shape.n[KVT_AXIS_K], rows = count_rows(f->group);
	double usual[2] = { median(f, 0), nk > 1 ? median(f, 1) : NAN };
	int64_t count[NODDITIES + 1] = { 0 };

	plainf("\n %5s %4s %-7s %10s %10s %10s %10s %4s %4s %6s\n", "layer", "head", "",
	       "min", "max", "mean", "std", "nan", "inf", "zeroed");
	for (int64_t i = 0; i < rows; i++) {
		enum oddity oddity = oddity_of(&f->moments[i], usual[i % nk]);

		count[oddity]++;
		print_row(f, i, oddity != NODDITIES);
	}
	print_totals(f);
	print_odd(f, count);
	if (f->strange)
		print_strange(f->strange);
}
