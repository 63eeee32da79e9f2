/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fewer.h - KVT_CASES=8 is every eighth of the cases that are drawn or counted out,
 * for runs in which each of them is slow: valgrind, sanitizers
 */
#ifndef KVT_TESTS_FEWER_H
#define KVT_TESTS_FEWER_H

#include <stdlib.h>

/* 1 without the variable: all of them. */
static inline int every(void)
{
	const char *text = getenv("KVT_CASES");
	int n = text ? atoi(text) : 1;

	return n > 1 ? n : 1;
}

static inline int fewer(int all)
{
	return (all + every() - 1) / every();
}

#endif
