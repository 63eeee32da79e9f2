/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h - what qsort() and bsearch() ask of a list, by what each of it begins with
 *
 * A list of numbers or of names, or of structs whose first member is one.
 */
#ifndef KVT_ORDER_H
#define KVT_ORDER_H

#include <stdint.h>
#include <string.h>

static inline int kvt_by_int64(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static inline int kvt_by_uint64(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static inline int kvt_by_double(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static inline int kvt_by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

#endif
