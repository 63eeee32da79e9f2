/* SPDX-License-Identifier: Apache-2.0 */
/*
 * axis_oracle.h - where an element is, read off the axis string itself
 *
 * What the tests of views and plans are measured by.  It shares nothing with
 * lib/: no order, no stride, no parser, only letters and Horner's rule.  It
 * expects strings that are right.
 */
#ifndef AXIS_ORACLE_H
#define AXIS_ORACLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Of the shape and of one element, in the order of ORACLE_LETTERS. */
#define ORACLE_LETTERS "LBSHKD"

struct oracle_place {
	int64_t at, of;		/* this one, counted in elements, of so many */
};

static inline void oracle_step(struct oracle_place *p, int64_t i, int64_t n)
{
	p->at = p->at * n + i;
	p->of *= n;
}

/* An x of its own, not the one of "/x" or "%x". */
static inline bool oracle_x_follows(const char *s, const char *end)
{
	for (; s < end; s++)
		if (*s == 'x' && s[-1] != '/' && s[-1] != '%')
			return true;
	return false;
}

static inline struct oracle_place
oracle_order(const char *s, const char *end, const int64_t n[6], int64_t elem,
	     const int64_t index[6])
{
	const int64_t x = 16 / elem;
	struct oracle_place p = { 0, 1 };

	while (s < end) {
		char letter = *s++;
		size_t a;

		if (letter == ' ')
			continue;
		if (letter == 'C') {
			oracle_step(&p, index[4], n[4]);
			oracle_step(&p, index[5], n[5]);
			continue;
		}
		if (letter == 'x') {
			oracle_step(&p, index[5] % x, x);
			continue;
		}
		a = (size_t)(strchr(ORACLE_LETTERS, letter) - ORACLE_LETTERS);
		if (s < end && (*s == '/' || *s == '%')) {
			bool outer = *s++ == '/';
			char *after = (char *)s + 1;
			int64_t m = *s == 'x' ? x : strtol(s, &after, 10);

			s = after;
			oracle_step(&p, outer ? index[a] / m : index[a] % m,
				    outer ? n[a] / m : m);
		} else if (letter == 'D' && oracle_x_follows(s, end)) {
			oracle_step(&p, index[a] / x, n[a] / x);
		} else {
			oracle_step(&p, index[a], n[a]);
		}
	}
	return p;
}

/*
 * Byte offset of an element in the dense buffer of 'axes'.  'first_k' is what
 * index K 0 stands for: 1 if the buffer holds values only.
 */
static inline int64_t oracle_at(const char *axes, const int64_t n[6],
				int64_t elem, int64_t first_k,
				const int64_t index[6])
{
	const char *values = strstr(axes, " V:"), *end = axes + strlen(axes);
	int64_t plane[6], inside[6], k = first_k + index[4], before = 0;
	struct oracle_place p;

	if (!values)
		return oracle_order(axes, end, n, elem, index).at * elem;
	memcpy(plane, n, sizeof(plane));
	memcpy(inside, index, sizeof(inside));
	if (!memchr(axes + 2, 'K', (size_t)(values - axes - 2))) {
		plane[4] = 1;	/* two buffers, keys first */
		inside[4] = 0;
		before = index[4];
	}
	p = k ? oracle_order(values + 3, end, plane, elem, inside)
	      : oracle_order(axes + 2, values, plane, elem, inside);
	return (before * p.of + p.at) * elem;
}

/* Extents of 1 for the axes that the string lacks. */
static inline void oracle_drop_absent(int64_t n[6], const char *axes)
{
	for (int a = 0; a < 6; a++)
		if (!strchr(axes, ORACLE_LETTERS[a]) && !(a >= 4 && strchr(axes, 'C')))
			n[a] = 1;
}

/* Counts through all elements of a shape; false behind the last. */
static inline bool oracle_next(int64_t index[6], const int64_t n[6])
{
	for (int a = 5; a >= 0; a--) {
		if (++index[a] < n[a])
			return true;
		index[a] = 0;
	}
	return false;
}

#endif
