/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shrink.c - delta debugging over what a dump can be sliced by
 *
 * Each axis in turn: of a list (layers, requests, blocks) some are left out, half of them
 * first and single ones at last; of a range (tokens, heads: what is left is one run)
 * something at its beginning or end.  A part that still shows it takes the place of the
 * one before.  What one axis lost may let another lose more, so all are gone through
 * until none loses anything: then nothing can be left out alone.
 *
 * To look at a part costs what the part is long.  So every axis first loses halves, for
 * as long as one of them does: where two of 80 layers matter, which two is asked of a few
 * tokens.
 */
#include "lib/ops/shrink/shrink.h"

#include <stdlib.h>
#include <string.h>

/* One layer, block or request of a part; the name is owned, and NULL but for requests. */
struct item {
	uint64_t id;
	char *name;
};

struct items {
	int64_t n;
	struct item *item;
};

struct search {
	struct shrink *shrink;
	struct shrink_parts now;	/* what is left, and shows it */
	bool smaller;			/* than when all axes began */
	bool halves;			/* nothing smaller is left out */
};

void kvt_shrink_parts_close(struct shrink_parts *parts)
{
	for (int s = 0; s < NSIDES; s++)
		kvt_dump_close(parts->part[s]);
	*parts = (struct shrink_parts){ { NULL } };
}

static const struct kvt_snapshot *side_of(const struct search *s, int side)
{
	return s->now.part[side] ? kvt_dump_snapshot(s->now.part[side]) : NULL;
}

/* ---- one part ----------------------------------------------------------- */

/* 'next' is closed, or what is left now. */
static enum kvt_status try_part(struct search *s, bool *shows,
				struct shrink_parts *next, struct kvt_error *err)
{
	struct shrink *shrink = s->shrink;
	enum kvt_status status;

	*shows = false;
	shrink->tries++;
	if (shrink->cancelled && shrink->cancelled(shrink->context))
		status = kvt_fail(err, KVT_SYSTEM, "interrupted");
	else
		status = shrink->shows(shrink->context, shows, next, err);
	*shows = *shows && !status;
	if (*shows) {
		kvt_shrink_parts_close(&s->now);
		s->now = *next;
		s->smaller = true;
	} else {
		kvt_shrink_parts_close(next);
	}
	return status;
}

/* Sides that lose nothing (NULL) stay; where one cannot be cut so, nothing is tried. */
static enum kvt_status try_slices(struct search *s, bool *shows,
				  const struct kvt_slice_options *const options[NSIDES],
				  struct kvt_error *err)
{
	static const struct kvt_slice_options all = { .mamba_groups = 0 };
	struct shrink_parts next = { { NULL } };
	enum kvt_status status = KVT_OK;
	struct kvt_error why = { "" };

	*shows = false;
	for (int side = 0; !status && side < NSIDES; side++)
		if (s->now.part[side])
			status = kvt_dump_slice(&next.part[side], s->now.part[side],
						options[side] ? options[side] : &all,
						&why);
	if (!status)
		return try_part(s, shows, &next, err);
	kvt_shrink_parts_close(&next);
	return status == KVT_SYSTEM ? kvt_fail(err, status, "%s", why.text) : KVT_OK;
}

/* ---- lists -------------------------------------------------------------- */

static int compare_items(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->name && y->name)
		return strcmp(x->name, y->name);
	return x->id < y->id ? -1 : x->id > y->id;
}

static void items_free(struct items *items)
{
	for (int64_t i = 0; i < items->n; i++)
		free(items->item[i].name);
	free(items->item);
	*items = (struct items){ 0, NULL };
}

static int64_t count_most(const struct kvt_snapshot *snapshot, enum kvt_axis axis)
{
	int64_t n = snapshot->nrequests;

	for (int g = 0; g < snapshot->ngroups; g++)
		n += snapshot->group[g].shape.n[axis];
	return n;
}

/* Adds those of a side; false: out of memory.  There is room. */
static bool add_requests(struct items *out, const struct kvt_snapshot *snapshot)
{
	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		char *name = strdup(snapshot->request[r].id);

		if (!name)
			return false;
		out->item[out->n++] = (struct item){ 0, name };
	}
	return true;
}

static bool add_layers(struct items *out, const struct kvt_snapshot *snapshot)
{
	for (int g = 0; g < snapshot->ngroups; g++)
		for (int64_t l = 0; l < snapshot->group[g].shape.n[KVT_AXIS_L]; l++)
			out->item[out->n++].id = kvt_layer_id(&snapshot->group[g], l);
	return true;
}

static bool add_blocks(struct items *out, const struct kvt_snapshot *snapshot)
{
	for (int g = 0; g < snapshot->ngroups; g++)
		for (int64_t b = 0; b < snapshot->group[g].shape.n[KVT_AXIS_B]; b++)
			out->item[out->n++].id = kvt_block_id(&snapshot->group[g], b);
	return true;
}

static const struct list_axis {
	enum kvt_axis axis;		/* of the shape; of requests any */
	bool (*add)(struct items *out, const struct kvt_snapshot *snapshot);
} layers = { KVT_AXIS_L, add_layers }, blocks = { KVT_AXIS_B, add_blocks },
  requests = { KVT_AXIS_L, add_requests };

/* What either side has, in order, each once. */
static enum kvt_status items_of(struct items *out, const struct search *s,
				const struct list_axis *axis, struct kvt_error *err)
{
	const struct kvt_snapshot *side[NSIDES] = { side_of(s, SIDE_A),
						    side_of(s, SIDE_B) };
	int64_t room = 1, kept = 0;

	for (int i = 0; i < NSIDES; i++)
		room += side[i] ? count_most(side[i], axis->axis) : 0;
	*out = (struct items){ 0, calloc((size_t)room, sizeof(*out->item)) };
	for (int i = 0; i < NSIDES; i++)
		if (!out->item || (side[i] && !axis->add(out, side[i])))
			return kvt_no_memory(err, NULL);
	qsort(out->item, (size_t)out->n, sizeof(*out->item), compare_items);
	for (int64_t i = 0; i < out->n; i++)
		if (kept && !compare_items(&out->item[kept - 1], &out->item[i]))
			free(out->item[i].name);
		else
			out->item[kept++] = out->item[i];
	out->n = kept;
	return KVT_OK;
}

/* What a side keeps of 'own' without 'gone'; both ascend. */
struct kept {
	int64_t n;
	struct kvt_range *range;	/* owned, [n], as is the next */
	const char **name;		/* borrowed */
};

static bool keep_without(struct kept *out, const struct items *own,
			 const struct item *gone, int64_t ngone)
{
	*out = (struct kept){ 0, calloc((size_t)own->n + 1, sizeof(*out->range)),
			      calloc((size_t)own->n + 1, sizeof(*out->name)) };
	for (int64_t i = 0; out->range && out->name && i < own->n; i++) {
		const struct item *item = &own->item[i];

		if (bsearch(item, gone, (size_t)ngone, sizeof(*gone), compare_items))
			continue;
		out->range[out->n] = (struct kvt_range){ (int64_t)item->id,
							 (int64_t)item->id + 1 };
		out->name[out->n++] = item->name;
	}
	return out->range && out->name;
}

static void set_kept(struct kvt_slice_options *options, const struct list_axis *axis,
		     const struct kept *kept)
{
	struct kvt_ranges ranges = { (int)kept->n, kept->range };

	*options = (struct kvt_slice_options){ .mamba_groups = 0 };
	if (axis == &requests)
		options->requests = (struct kvt_names){ (int)kept->n, kept->name };
	else if (axis == &layers)
		options->layers = ranges;
	else
		options->blocks = ranges;
}

/* Items of one side alone. */
static enum kvt_status own_items(struct items *out, const struct search *s, int side,
				 const struct list_axis *axis, struct kvt_error *err)
{
	struct search alone = { .now = { { NULL } } };

	alone.now.part[SIDE_A] = s->now.part[side];
	return items_of(out, &alone, axis, err);
}

static enum kvt_status try_without(struct search *s, bool *shows,
				   const struct list_axis *axis, const struct item *gone,
				   int64_t ngone, struct kvt_error *err)
{
	struct kvt_slice_options options[NSIDES];
	const struct kvt_slice_options *chosen[NSIDES] = { NULL };
	struct items own[NSIDES] = { { 0, NULL } };
	struct kept kept[NSIDES] = { { 0, NULL, NULL } };
	enum kvt_status status = KVT_OK;
	bool nothing = false;

	for (int i = 0; !status && i < NSIDES && s->now.part[i]; i++) {
		if ((status = own_items(&own[i], s, i, axis, err)))
			break;
		if (!keep_without(&kept[i], &own[i], gone, ngone) || own[i].n > INT32_MAX)
			status = kvt_no_memory(err, NULL);
		nothing |= !kept[i].n;
		set_kept(&options[i], axis, &kept[i]);
		if (kept[i].n < own[i].n)
			chosen[i] = &options[i];
	}
	*shows = false;
	if (!status && !nothing)
		status = try_slices(s, shows, chosen, err);
	for (int i = 0; i < NSIDES; i++) {
		items_free(&own[i]);
		free(kept[i].range);
		free(kept[i].name);
	}
	return status;
}

static void drop_items(struct items *items, int64_t at, int64_t count)
{
	for (int64_t i = at; i < at + count; i++)
		free(items->item[i].name);
	memmove(&items->item[at], &items->item[at + count],
		(size_t)(items->n - at - count) * sizeof(*items->item));
	items->n -= count;
}

/* As many as 'size' at a time, from the first on; *any: some were left out. */
static enum kvt_status try_some(struct search *s, const struct list_axis *axis,
				  struct items *items, int64_t size, bool *any,
				  struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	*any = false;
	for (int64_t at = 0; !status && at < items->n && items->n > 1; ) {
		int64_t count = size < items->n - at ? size : items->n - at;
		bool shows;

		status = try_without(s, &shows, axis, &items->item[at], count, err);
		if (shows)
			drop_items(items, at, count);
		else
			at += count;
		*any |= shows;
	}
	return status;
}

static enum kvt_status shrink_list(struct search *s, const struct list_axis *axis,
				   struct kvt_error *err)
{
	struct items items;
	enum kvt_status status = items_of(&items, s, axis, err);
	int64_t size = (items.n + 1) / 2;
	bool any = true;

	while (!status && (size > 1 || any)) {
		status = try_some(s, axis, &items, size, &any, err);
		if (s->halves && !any)
			break;
		if (size > 1) {
			size /= 2;
			any = true;
		}
	}
	items_free(&items);
	return status;
}

/* ---- ranges ------------------------------------------------------------- */

static struct kvt_range heads_of(const struct kvt_snapshot *snapshot)
{
	struct kvt_range all = { INT64_MAX, 0 };

	for (int g = 0; g < snapshot->ngroups; g++) {
		const struct kvt_group *group = &snapshot->group[g];
		int64_t end = group->head_start + group->shape.n[KVT_AXIS_H];

		all.begin = group->head_start < all.begin ? group->head_start : all.begin;
		all.end = end > all.end ? end : all.end;
	}
	return all;
}

static struct kvt_range tokens_of(const struct kvt_snapshot *snapshot)
{
	struct kvt_range all = { INT64_MAX, 0 };

	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		const struct kvt_request *q = &snapshot->request[r];

		all.begin = q->first_token < all.begin ? q->first_token : all.begin;
		if (q->first_token + q->ntokens > all.end)
			all.end = q->first_token + q->ntokens;
	}
	return all;
}

/* Tokens of a slot are left out together. */
static int64_t token_step(const struct kvt_snapshot *snapshot)
{
	int64_t step = 1;

	for (int g = 0; g < snapshot->ngroups; g++)
		if (snapshot->group[g].tokens_per_slot > step)
			step = snapshot->group[g].tokens_per_slot;
	return step;
}

static int64_t single(const struct kvt_snapshot *snapshot)
{
	(void)snapshot;
	return 1;
}

static const struct range_axis {
	struct kvt_range (*of)(const struct kvt_snapshot *snapshot);
	int64_t (*step)(const struct kvt_snapshot *snapshot);
} heads = { heads_of, single }, tokens = { tokens_of, token_step };

static enum kvt_status try_range(struct search *s, bool *shows,
				 const struct range_axis *axis, struct kvt_range want,
				 struct kvt_error *err)
{
	struct kvt_slice_options options[NSIDES];
	const struct kvt_slice_options *chosen[NSIDES] = { NULL };
	struct kvt_range part[NSIDES];

	*shows = false;
	for (int i = 0; i < NSIDES && s->now.part[i]; i++) {
		const struct kvt_range has = axis->of(side_of(s, i));

		part[i].begin = want.begin > has.begin ? want.begin : has.begin;
		part[i].end = want.end < has.end ? want.end : has.end;
		if (part[i].begin >= part[i].end)
			return KVT_OK;
		options[i] = (struct kvt_slice_options){ .mamba_groups = 0 };
		*(axis == &heads ? &options[i].heads : &options[i].tokens) =
			(struct kvt_ranges){ 1, &part[i] };
		if (part[i].begin > has.begin || part[i].end < has.end)
			chosen[i] = &options[i];
	}
	return try_slices(s, shows, chosen, err);
}

/* As much as 'step' at the beginning and at the end, as often as that goes. */
static enum kvt_status cut_ends(struct search *s, const struct range_axis *axis,
				struct kvt_range *have, int64_t step, bool *any,
				struct kvt_error *err)
{
	const int64_t unit = axis->step(side_of(s, SIDE_A));
	enum kvt_status status = KVT_OK;

	*any = false;
	for (int end = 0; !status && end < 2; ) {
		struct kvt_range want = *have;
		bool shows = false;

		if (end)
			want.end = (want.end - step) / unit * unit;
		else
			want.begin = (want.begin + step + unit - 1) / unit * unit;
		if (want.begin < want.end)
			status = try_range(s, &shows, axis, want, err);
		if (shows)
			*have = want;
		else
			end++;
		*any |= shows;
	}
	return status;
}

static enum kvt_status shrink_range(struct search *s, const struct range_axis *axis,
				    struct kvt_error *err)
{
	struct kvt_range have = axis->of(side_of(s, SIDE_A));
	int64_t step = (have.end - have.begin + 1) / 2;
	enum kvt_status status = KVT_OK;
	bool any = have.begin < have.end;

	while (!status && any) {
		status = cut_ends(s, axis, &have, step, &any, err);
		if (s->halves && !any)
			break;
		if (step > 1) {
			step /= 2;
			any = true;
		}
	}
	return status;
}

/* ---- all axes ----------------------------------------------------------- */

static enum kvt_status shrink_all(struct search *s, struct kvt_error *err)
{
	enum kvt_status status;

	if ((status = shrink_list(s, &layers, err)) ||
	    (status = shrink_list(s, &requests, err)) ||
	    (status = shrink_range(s, &tokens, err)) ||
	    (status = shrink_list(s, &blocks, err)))
		return status;
	return shrink_range(s, &heads, err);
}

enum kvt_status kvt_shrink(struct shrink_parts *out, struct shrink *shrink,
			   const struct kvt_dump *const whole[NSIDES],
			   struct kvt_error *err)
{
	static const struct kvt_slice_options all = { .mamba_groups = 0 };
	struct search s = { shrink, { { NULL } }, true, true };
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < NSIDES && whole[i]; i++)
		status = kvt_dump_slice(&s.now.part[i], whole[i], &all, err);
	while (!status && (s.smaller || s.halves)) {
		s.halves &= s.smaller;
		s.smaller = false;
		status = shrink_all(&s, err);
	}
	*out = s.now;
	return status;
}
