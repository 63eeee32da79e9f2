/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c - what was seen, in words, and where, as coordinates
 *
 * The sentences that fsck and describe share: how many NaN and infinities, in how many
 * slots, and the first of those that matter most, as kvtool-where(1) takes it.
 */
#include "lib/ops/numbers/numbers.h"

#include <stdio.h>
#include <string.h>

#include "lib/ops/describe/describe.h"

struct kvt_odd kvt_odd_total(const struct kvt_numbers *n)
{
	/* the first that matters most is the first of all */
	static const enum kvt_duty order[] = { KVT_DUTY_LIVE, KVT_DUTY_UNKNOWN,
					       KVT_DUTY_LEFT, KVT_DUTY_STALE,
					       KVT_DUTY_NULL };
	struct kvt_odd sum = { .nan = 0 };

	for (int i = 0; i < KVT_NDUTIES; i++) {
		const struct kvt_odd *odd = &n->by[order[i]];
		struct kvt_odd first = sum.slots ? sum : *odd;

		first.nan = sum.nan + odd->nan;
		first.inf = sum.inf + odd->inf;
		first.slots = sum.slots + odd->slots;
		sum = first;
	}
	return sum;
}

static void append(struct kvt_text *to, const char *text)
{
	size_t n = strlen(to->s);

	snprintf(to->s + n, sizeof(to->s) - n, "%s", text);
}

struct kvt_text kvt_columns_text(const struct kvt_numbers *n,
				 const struct kvt_group *group, unsigned columns)
{
	struct kvt_text out = { "" };

	for (int c = 0; c < n->ncolumns; c++) {
		const char *name = n->part[c % n->nparts].name;
		const char *of = kvt_component_name(group, c / n->nparts);

		if (!(columns >> c & 1))
			continue;
		append(&out, out.s[0] ? columns >> c >> 1 ? ", " : " and " : "");
		append(&out, name ? name : of);
		if (name && n->ncolumns > n->nparts) {
			append(&out, " of ");
			append(&out, of);
		}
	}
	return out;
}

struct kvt_text kvt_odd_text(const struct kvt_odd *odd)
{
	const char *infinities = odd->inf == 1 ? "infinity" : "infinities";
	struct kvt_text out;

	if (odd->nan && odd->inf)
		snprintf(out.s, sizeof(out.s), "%lld NaN and %lld %s", LL(odd->nan),
			 LL(odd->inf), infinities);
	else
		snprintf(out.s, sizeof(out.s), "%lld %s", LL(odd->nan + odd->inf),
			 odd->inf ? infinities : "NaN");
	return out;
}

/* Axes of one index say nothing; what follows is about parts has no such number. */
struct kvt_text kvt_odd_at(const struct kvt_numbers *n, const struct kvt_group *group,
			   const struct kvt_odd *odd)
{
	const int64_t *shape = group->shape.n, *at = odd->at;
	struct kvt_text out;
	int end;

	end = snprintf(out.s, sizeof(out.s), "group=%s,layer=%lld,block=%llu,slot=%lld",
		       group->id, LL(at[KVT_AXIS_L]),
		       (unsigned long long)kvt_block_id(group, at[KVT_AXIS_B]),
		       LL(at[KVT_AXIS_S]));
	if (shape[KVT_AXIS_H] > 1)
		end += snprintf(out.s + end, sizeof(out.s) - (size_t)end, ",head=%lld",
				LL(group->head_start + at[KVT_AXIS_H]));
	if (shape[KVT_AXIS_K] > 1)
		end += snprintf(out.s + end, sizeof(out.s) - (size_t)end, ",kv=%s",
				at[KVT_AXIS_K] ? "v" : "k");
	if (n->packing.rows > 1)
		end += snprintf(out.s + end, sizeof(out.s) - (size_t)end, ",row=%lld",
				LL(odd->row));
	if (!group->content.type)
		snprintf(out.s + end, sizeof(out.s) - (size_t)end, ",dim=%lld",
			 LL(at[KVT_AXIS_D]));
	return out;
}
