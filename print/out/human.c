/* SPDX-License-Identifier: Apache-2.0 */
/*
 * human.c - layouts and numbers as people say them
 *
 *	LBSHC (nhd, vllm:LBNHC)		axes, and the names that there is room for
 *	16,384
 *	2.99 ms				3 digits, or all before the point; us, ms, s
 *	999 ns				and below, whole
 */
#include "print/out/say.h"

#include <inttypes.h>
#include <string.h>

struct human human_layout(const struct kvt_layout *layout)
{
	struct human out;
	const char *name;
	size_t n;

	n = (size_t)snprintf(out.s, sizeof(out.s), "%s", kvt_layout_string(layout).s);
	for (int i = 0; (name = kvt_layout_name(layout, i)); i++)
		if (n + strlen(name) + 4 < sizeof(out.s))
			n += (size_t)sprintf(out.s + n, "%s%s", i ? ", " : " (", name);
	if (kvt_layout_name(layout, 0))
		strcpy(out.s + n, ")");
	return out;
}

struct human human_count(int64_t n)
{
	struct human out = { "" };
	char digits[32];
	int len = snprintf(digits, sizeof(digits), "%" PRId64, n), at = 0;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0 && digits[i - 1] != '-')
			out.s[at++] = ',';
		out.s[at++] = digits[i];
	}
	return out;
}

struct human human_time(int64_t ns)
{
	static const struct {
		double ns;
		const char *unit;
	} units[] = { { 1e9, "s" }, { 1e6, "ms" }, { 1e3, "us" } };
	struct human out;

	for (int i = 0; i < 3; i++)
		if ((double)ns >= units[i].ns) {
			snprintf(out.s, sizeof(out.s), "%.3g %s",
				 (double)ns / units[i].ns, units[i].unit);
			/* three digits of 1000 and more are not to be 1e+03 */
			if ((double)ns >= 999.5 * units[i].ns)
				snprintf(out.s, sizeof(out.s), "%.0f %s",
					 (double)ns / units[i].ns, units[i].unit);
			return out;
		}
	snprintf(out.s, sizeof(out.s), "%" PRId64 " ns", ns);
	return out;
}
