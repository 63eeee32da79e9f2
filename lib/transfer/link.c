/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c - the closed form: one batch of operations on an idle link
 *
 *	time = setup + f(n * op, bytes / rate)
 *
 * f says how far operations and the wire overlap: their sum (1), the root of the sum of
 * squares (2) or fourth powers (4), or the larger (inf).  All in doubles, by operations
 * that are exact or correctly rounded, so that it is the same everywhere.
 */
#include "lib/kvt/link.h"

#include <math.h>

const char *kvt_quality_name(enum kvt_quality quality)
{
	static const char *const name[] = {
		"published", "derived", "extrapolated", "calibrate-on-site", "given",
	};

	return quality < KVT_NQUALITIES ? name[quality] : "unknown";
}

enum kvt_status kvt_link_check(const struct kvt_link *link, struct kvt_error *err)
{
	const char *name = link->name ? link->name : "link";

	if (link->overlap != KVT_OVERLAP_FULL && link->overlap != 1 &&
	    link->overlap != 2 && link->overlap != 4)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: overlap is %d, expected 1, 2, 4 or inf", name,
				link->overlap);
	if (link->setup_ns < 0 || link->op_ps < 0 || link->post_ps < 0 ||
	    link->rate < 0 || link->slice < 0)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: a number is below 0", name);
	if (link->post_ps > link->op_ps)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: posting an operation takes %lld ps, longer than the operation, %lld ps",
				name, LL(link->post_ps), LL(link->op_ps));
	return KVT_OK;
}

/* The sum of a and b as far as they cannot overlap. */
static double combine(double a, double b, int overlap)
{
	switch (overlap) {
	case 1:
		return a + b;
	case 2:
		return sqrt(a * a + b * b);
	case 4:
		return sqrt(sqrt(a * a * a * a + b * b * b * b));
	default:
		return a > b ? a : b;
	}
}

static int64_t nanoseconds(double ns)
{
	return ns < 9.2e18 ? (int64_t)(ns + 0.5) : INT64_MAX;
}

int64_t kvt_link_ns(const struct kvt_link *link, int64_t nops, int64_t nbytes)
{
	double wire = link->rate ? (double)nbytes * 1e9 / (double)link->rate : 0;

	if (nops == 0)
		return 0;
	return nanoseconds((double)link->setup_ns +
			   combine((double)nops * (double)link->op_ps / 1e3, wire,
				   link->overlap));
}

int64_t kvt_link_post_ns(const struct kvt_link *link, int64_t nops)
{
	return nanoseconds((double)nops * (double)link->post_ps / 1e3);
}
