/* SPDX-License-Identifier: Apache-2.0 */
/* slice_ranges.c - does a dump have what ranges of ids name? */
#include "lib/dump/slice.h"

#include <stdlib.h>

#define LL(x) ((long long)(x))

bool ranges_have(const struct kvt_ranges *ranges, uint64_t id)
{
	for (int i = 0; i < ranges->n; i++)
		if (id >= (uint64_t)ranges->range[i].begin &&
		    id < (uint64_t)ranges->range[i].end)
			return true;
	return !ranges->n;
}

/* ---- is what is named there? -------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* All ids of an axis, ascending and each once; NULL: out of memory. */
static uint64_t *all_ids(int64_t *count, const struct kvt_snapshot *snapshot,
			 enum kvt_axis axis, id_fn *id_of)
{
	int64_t n = 0, kept = 0;
	uint64_t *ids;

	for (int g = 0; g < snapshot->ngroups; g++)
		n += snapshot->group[g].shape.n[axis];
	if (!(ids = calloc((size_t)n + 1, sizeof(*ids))))
		return NULL;
	n = 0;
	for (int g = 0; g < snapshot->ngroups; g++)
		for (int64_t i = 0; i < snapshot->group[g].shape.n[axis]; i++)
			ids[n++] = id_of(&snapshot->group[g], i);
	qsort(ids, (size_t)n, sizeof(*ids), compare_ids);
	for (int64_t i = 0; i < n; i++)
		if (!kept || ids[kept - 1] != ids[i])
			ids[kept++] = ids[i];
	*count = kept;
	return ids;
}

enum kvt_status check_ranges(const struct kvt_snapshot *snapshot,
			     const struct kvt_ranges *ranges, enum kvt_axis axis,
			     id_fn *id_of, struct kvt_error *err)
{
	uint64_t *ids;
	int64_t n = 0;
	enum kvt_status status = KVT_OK;

	if (!(ids = all_ids(&n, snapshot, axis, id_of)))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int i = 0; !status && i < ranges->n; i++) {
		uint64_t want = (uint64_t)ranges->range[i].begin;
		int64_t at = 0;

		while (at < n && ids[at] < want)
			at++;
		/* ends at the first that is missing, at the latest behind the last */
		while (at < n && ids[at] == want &&
		       want < (uint64_t)ranges->range[i].end) {
			want++;
			at++;
		}
		if (want < (uint64_t)ranges->range[i].end)
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "no %s %llu among the %lld from %llu to %llu",
					  kvt_axis_name(axis), (unsigned long long)want,
					  LL(n), (unsigned long long)(n ? ids[0] : 0),
					  (unsigned long long)(n ? ids[n - 1] : 0));
	}
	free(ids);
	return status;
}

