/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.c - passes into units, and which shard a unit belongs to
 *
 * Nothing here knows how many shards there are but kvt_unit_owner(), so that results of
 * units stay good when their number changes.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"
#include "lib/kvt/share.h"

/* bytes times boxes, or times shards */
__extension__ typedef __int128 wide;

static bool same_pass(const struct kvt_pass *p, const char *label, int64_t about,
		      int64_t part)
{
	return p->about == about && p->part == part && !strcmp(p->label, label);
}

int64_t kvt_work_list_find(const struct kvt_work_list *list, const char *label,
			   int64_t about, int64_t part)
{
	for (int64_t i = 0; i < list->npasses; i++)
		if (same_pass(&list->pass[i], label, about, part))
			return i;
	return -1;
}

enum kvt_status kvt_work_list_add(struct kvt_work_list *list,
				  const struct kvt_pass *pass, struct kvt_error *err)
{
	if (kvt_work_list_find(list, pass->label, pass->about, pass->part) >= 0)
		return kvt_fail(err, KVT_SYSTEM,
				"two passes '%s' over part %lld of input %lld",
				pass->label, LL(pass->part), LL(pass->about));
	if (!KVT_GROW(&list->pass, list->npasses))
		return kvt_no_memory(err, NULL);
	list->pass[list->npasses++] = *pass;
	return KVT_OK;
}

/* ---- units ---------------------------------------------------------------- */

/* Boxes of a pass in one unit. */
static int64_t boxes_of_unit(const struct kvt_pass *pass, int64_t unit_bytes)
{
	int64_t box = pass->count ? pass->nbytes / pass->count : 0;

	if (box < 1)
		return pass->count ? pass->count : 1;
	return box < unit_bytes ? unit_bytes / box : 1;
}

static int64_t units_of_pass(const struct kvt_pass *pass, int64_t unit_bytes)
{
	return kvt_ceil_div(pass->count, boxes_of_unit(pass, unit_bytes));
}

/* Of the boxes before i, so that a pass has its bytes whatever is lost in dividing. */
static int64_t bytes_before(const struct kvt_pass *pass, int64_t i)
{
	return pass->count ? (int64_t)((wide)pass->nbytes * i / pass->count) : 0;
}

static void cut_pass(struct kvt_work_list *list, int64_t p)
{
	const struct kvt_pass *pass = &list->pass[p];
	int64_t boxes = boxes_of_unit(pass, list->unit_bytes);

	for (int64_t i = 0; i < pass->count; i += boxes) {
		int64_t end = pass->count - i < boxes ? pass->count : i + boxes;

		list->unit[list->nunits++] = (struct kvt_unit){
			p, i, end, bytes_before(pass, end) - bytes_before(pass, i) };
	}
}

enum kvt_status kvt_work_list_cut(struct kvt_work_list *list, struct kvt_error *err)
{
	int64_t nunits = 0;

	list->nbytes = 0;
	for (int64_t p = 0; p < list->npasses; p++)
		if (__builtin_add_overflow(list->nbytes, list->pass[p].nbytes,
					   &list->nbytes))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"more than 2^63 bytes of data");
	list->unit_bytes = KVT_UNIT_BYTES;
	while (list->nbytes / list->unit_bytes > KVT_MAX_UNITS)
		list->unit_bytes *= 2;
	for (int64_t p = 0; p < list->npasses; p++)
		nunits += units_of_pass(&list->pass[p], list->unit_bytes);
	list->first = calloc((size_t)list->npasses + 1, sizeof(*list->first));
	list->unit = calloc((size_t)nunits + 1, sizeof(*list->unit));
	list->nunits = 0;
	if (!list->first || !list->unit)
		return kvt_no_memory(err, NULL);
	for (int64_t p = 0; p < list->npasses; p++) {
		list->first[p] = list->nunits;
		cut_pass(list, p);
	}
	list->first[list->npasses] = list->nunits;
	return KVT_OK;
}

void kvt_work_list_free(struct kvt_work_list *list)
{
	free(list->pass);
	free(list->first);
	free(list->unit);
	memset(list, 0, sizeof(*list));
}

/* ---- owners --------------------------------------------------------------- */

/* Where a unit begins among the bytes of the list. */
static int64_t bytes_at(const struct kvt_work_list *list, int64_t unit)
{
	int64_t at = 0;

	for (int64_t p = 0; p < list->unit[unit].pass; p++)
		at += list->pass[p].nbytes;
	return at + bytes_before(&list->pass[list->unit[unit].pass],
				 list->unit[unit].begin);
}

int64_t kvt_unit_owner(const struct kvt_work_list *list, int64_t unit, int64_t count)
{
	wide middle = 2 * (wide)bytes_at(list, unit) + list->unit[unit].nbytes;
	int64_t owner;

	if (!list->nbytes)
		return unit * count / list->nunits;
	owner = (int64_t)(middle * count / (2 * (wide)list->nbytes));
	return owner < count ? owner : count - 1;
}
