/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number.c - digits and units
 *
 * Whole numbers begin with a digit: strtoll() would take blanks and a sign, too.  A unit
 * is one letter for a power of 1024; 0x takes none.  A product that does not fit, and
 * for kvt_number_take() 2^63 - 1 itself, is no number, so that a caller may add 1.
 */
#include "lib/base/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool take(int64_t *out, const char **text, int base)
{
	char *end;
	long long n;

	errno = 0;
	n = strtoll(*text, &end, base);
	if (end == *text || errno)
		return false;
	*text = end;
	*out = n;
	return true;
}

bool kvt_number_take(int64_t *out, const char **text)
{
	int64_t n;

	if (!isdigit((unsigned char)**text) || !take(&n, text, 10) || n == INT64_MAX)
		return false;
	*out = n;
	return true;
}

bool kvt_number_parse(int64_t *out, const char *text)
{
	static const char units[] = "kmgt";
	const char *unit;
	int64_t n;

	if (text[0] == '0' && tolower((unsigned char)text[1]) == 'x') {
		if (!isxdigit((unsigned char)text[2]) || !take(&n, &text, 16) || *text)
			return false;
		*out = n;
		return true;
	}
	if (!isdigit((unsigned char)text[0]) || !take(&n, &text, 10))
		return false;
	if (!*text) {
		*out = n;
		return true;
	}
	unit = strchr(units, tolower((unsigned char)*text));
	if (!unit || text[1] ||
	    __builtin_mul_overflow(n, (int64_t)1 << 10 * (unit - units + 1), &n))
		return false;
	*out = n;
	return true;
}

bool kvt_real_parse(double *out, const char *text, size_t length)
{
	char copy[64], *end;
	size_t sign = length && text[0] == '-';

	if (length <= sign || length >= sizeof(copy) ||
	    !(isdigit((unsigned char)text[sign]) || text[sign] == '.'))
		return false;
	memcpy(copy, text, length);
	copy[length] = '\0';
	*out = strtod(copy, &end);
	return !*end && isfinite(*out);
}
