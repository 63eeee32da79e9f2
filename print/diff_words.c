/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_words.c - names of terms of a tolerance and of columns of a map, in any output
 *
 *	block 3, block 3-4	ids in A's pool, the first and the last
 *	A:0-15			tokens of a request, both inclusive
 *	A:416 to B:15		the same of a column that goes from one request to another
 */
#include "print/diff.h"

const char *diff_term_name(enum diff_term term)
{
	static const char *const names[NTERMS] = {
		[T_ATOL] = "atol", [T_RTOL] = "rtol", [T_ULP] = "ulp",
		[T_MAX_ABS] = "max-abs", [T_REL_L2] = "rel-l2", [T_COSINE] = "cosine",
		[T_PCC] = "pcc", [T_ATTENTION] = "attention",
	};

	return names[term];
}

struct human column_name(const struct diff_result *r, int64_t column)
{
	struct diff_column c = kvt_diff_column(r, column);
	struct human name;

	if (!c.request[0] && c.block[0] == c.block[1])
		snprintf(name.s, sizeof(name.s), "block %lld", LL(c.block[0]));
	else if (!c.request[0])
		snprintf(name.s, sizeof(name.s), "block %lld-%lld", LL(c.block[0]),
			 LL(c.block[1]));
	else if (c.request[0] == c.request[1])
		snprintf(name.s, sizeof(name.s), "%.100s:%lld-%lld", c.request[0],
			 LL(c.token[0]), LL(c.token[1]));
	else
		snprintf(name.s, sizeof(name.s), "%.100s:%lld to %.100s:%lld",
			 c.request[0], LL(c.token[0]), c.request[1], LL(c.token[1]));
	return name;
}
