/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graft.c - a dump some of whose slots are another dump's
 *
 * What the donor gives of a group is a product: all layers, some slots of blocks,
 * and some heads or channels.  The base keeps the rest, which is at most two
 * products: the other slots with all heads and channels, and the given slots with
 * the heads or channels that the donor does not give.  So the parts stay disjoint,
 * and what is covered is never read.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/derived/derive.h"
#include "lib/kvt/connect.h"

/* One group on its way. */
struct grafting {
	struct derivation *d;
	int group;			/* of the base */
	const struct kvt_graft *graft;
	const struct kvt_group *base, *donor;
	int64_t slots;			/* of a block of the base */
	struct map_span *span;		/* what is given, by block and place; owned */
	int64_t *first;			/* [B + 1]; owned */
};

/* ---- what is given ------------------------------------------------------------- */

static int64_t span_blocks(const struct kvt_block_span *s)
{
	return s->nblocks > 0 ? s->nblocks : 1;
}

static bool is_inside(const struct grafting *g, const struct kvt_block_span *s)
{
	int64_t n = span_blocks(s), count = s->nblocks > 0 ? g->slots : s->count;
	int64_t src = g->donor->shape.n[KVT_AXIS_S];

	return s->src_block >= 0 && s->dst_block >= 0 && s->src_slot >= 0 &&
	       s->dst_slot >= 0 && count > 0 &&
	       s->src_block <= g->donor->shape.n[KVT_AXIS_B] - n &&
	       s->dst_block <= g->base->shape.n[KVT_AXIS_B] - n &&
	       s->src_slot <= src - count && s->dst_slot <= g->slots - count;
}

static int by_at(const void *a, const void *b)
{
	const struct map_span *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

/* Spans of one block: in order, and no slot of it twice. */
static enum kvt_status sort_block(const struct grafting *g, int64_t b,
				  struct kvt_error *err)
{
	struct map_span *span = g->span + g->first[b];
	int64_t n = g->first[b + 1] - g->first[b];

	if (n > 1)
		qsort(span, (size_t)n, sizeof(*span), by_at);
	for (int64_t i = 1; i < n; i++)
		if (span[i].at < span[i - 1].at + span[i - 1].count)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: slot %u of block %llu is listed twice",
					g->base->id, span[i].at,
					(unsigned long long)kvt_block_id(g->base, b));
	return KVT_OK;
}

/* Counts the spans of each block, then puts them there. */
static enum kvt_status take_spans(struct grafting *g, struct kvt_error *err)
{
	int64_t nblocks = g->base->shape.n[KVT_AXIS_B], total = 0, *next;
	enum kvt_status status = KVT_OK;

	g->first = calloc((size_t)nblocks + 2, sizeof(*g->first));
	if (!g->first)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < g->graft->nspans; i++) {
		const struct kvt_block_span *s = &g->graft->span[i];

		if (!is_inside(g, s))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: slots %lld of block %lld of the donor, for block %lld, are outside a pool",
					g->base->id, LL(s->src_slot),
					LL(s->src_block), LL(s->dst_block));
		for (int64_t b = 0; b < span_blocks(s); b++)
			g->first[s->dst_block + b + 2]++;
		total += span_blocks(s);
	}
	if (!(g->span = malloc(((size_t)total + 1) * sizeof(*g->span))))
		return kvt_no_memory(err, NULL);
	/* first[b + 1] is where the next span of b goes, and ends as the end of b */
	for (int64_t b = 0; b <= nblocks; b++)
		g->first[b + 1] += g->first[b];
	next = g->first + 1;
	for (int64_t i = 0; i < g->graft->nspans; i++) {
		const struct kvt_block_span *s = &g->graft->span[i];
		int64_t count = s->nblocks > 0 ? g->slots : s->count;

		for (int64_t b = 0; b < span_blocks(s); b++)
			g->span[next[s->dst_block + b]++] = (struct map_span){
				(uint32_t)(s->src_block + b), (uint32_t)s->src_slot,
				(uint32_t)s->dst_slot, (uint32_t)count,
			};
	}
	for (int64_t b = 0; !status && b < nblocks; b++)
		status = sort_block(g, b, err);
	return status;
}

/* ---- products ------------------------------------------------------------------ */

static struct step_group *add_step(struct grafting *g)
{
	struct step_group *step = calloc(1, sizeof(*step));

	if (step) {
		step->next = g->d->group[g->group].next;
		g->d->group[g->group].next = step;
	}
	return step;
}

static bool copy_spans(struct step_group *step, const struct grafting *g, bool identity)
{
	int64_t nblocks = g->base->shape.n[KVT_AXIS_B], n = g->first[nblocks];

	step->first = malloc(((size_t)nblocks + 1) * sizeof(*step->first));
	step->span = malloc(((size_t)n + 1) * sizeof(*step->span));
	if (!step->first || !step->span)
		return false;
	memcpy(step->first, g->first, ((size_t)nblocks + 1) * sizeof(*step->first));
	for (int64_t b = 0; b < nblocks; b++)
		for (int64_t i = g->first[b]; i < g->first[b + 1]; i++) {
			step->span[i] = g->span[i];
			if (identity) {
				step->span[i].block = (uint32_t)b;
				step->span[i].slot = g->span[i].at;
			}
		}
	return true;
}

/* All slots that are not given. */
static bool other_spans(struct step_group *step, const struct grafting *g)
{
	int64_t nblocks = g->base->shape.n[KVT_AXIS_B], n = 0;

	step->first = calloc((size_t)nblocks + 1, sizeof(*step->first));
	step->span = malloc(((size_t)(g->first[nblocks] + nblocks) + 1) *
			    sizeof(*step->span));
	if (!step->first || !step->span)
		return false;
	for (int64_t b = 0; b < nblocks; b++) {
		uint32_t at = 0;

		for (int64_t i = g->first[b]; i <= g->first[b + 1]; i++) {
			uint32_t end = i < g->first[b + 1] ? g->span[i].at :
							     (uint32_t)g->slots;

			if (at < end)
				step->span[n++] = (struct map_span){ (uint32_t)b, at, at,
								     end - at };
			if (i < g->first[b + 1])
				at = g->span[i].at + g->span[i].count;
		}
		step->first[b + 1] = n;
	}
	return true;
}

/* [begin, end) along the axis that is dealt out, of everything else. */
static struct step_part part_of(const struct kvt_group *group, enum kvt_axis axis,
				struct kvt_segment segment)
{
	const int64_t *n = group->shape.n;
	struct step_part part = {
		.heads = { 0, 0, n[KVT_AXIS_H] }, .kv = { 0, 0, n[KVT_AXIS_K] },
		.nchannels = 1, .channel = { { 0, 0, n[KVT_AXIS_D] } },
	};

	if (axis == KVT_AXIS_D)
		part.channel[0] = segment;
	else
		part.heads = segment;
	return part;
}

static int by_dst(const void *a, const void *b)
{
	const struct kvt_exchange_range *x = a, *y = b;

	return x->dst < y->dst ? -1 : x->dst > y->dst;
}

/* What the donor gives, and what is left of the same slots in between. */
static enum kvt_status give(struct grafting *g, struct step_group *donor,
			    struct step_group *rest, struct kvt_error *err)
{
	const struct kvt_exchange *given = g->graft->given;
	enum kvt_axis axis = given ? given->axis : KVT_AXIS_H;
	int64_t here = g->base->shape.n[axis], there = g->donor->shape.n[axis], at = 0;
	struct kvt_exchange_range range[KVT_MAX_SPEC_PARTS] = { { NULL, 0, 0, here } };
	int n = given ? given->count : 1;

	if (given)
		memcpy(range, given->range, sizeof(range));
	qsort(range, (size_t)n, sizeof(*range), by_dst);
	donor->part = calloc((size_t)n + 1, sizeof(*donor->part));
	rest->part = calloc((size_t)n + 1, sizeof(*rest->part));
	if (!donor->part || !rest->part)
		return kvt_no_memory(err, NULL);
	for (int i = 0; i <= n; i++) {
		int64_t end = i < n ? range[i].dst : here;

		if (end < at || end > here ||
		    (i < n && (range[i].src < 0 || range[i].count < 0 ||
			       range[i].src > there - range[i].count)))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: the range of %s is outside a group, or is listed twice",
					g->base->id, kvt_axis_name(axis));
		if (at < end)
			rest->part[rest->nparts++] = part_of(g->base, axis,
				(struct kvt_segment){ at, at, end - at });
		if (i == n)
			break;
		at = end + range[i].count;
		if (!range[i].count)
			continue;
		donor->part[donor->nparts] = part_of(g->base, axis, (struct kvt_segment){
			end, range[i].src, range[i].count });
		donor->part[donor->nparts++].source = 1;
	}
	return KVT_OK;
}

/* Where the layers of the base are in the donor, by their ids. */
static enum kvt_status pair_layers(int64_t **out, const struct grafting *g,
				   struct kvt_error *err)
{
	int64_t n = g->base->shape.n[KVT_AXIS_L], there = g->donor->shape.n[KVT_AXIS_L];

	if (!(*out = malloc(((size_t)n + 1) * sizeof(**out))))
		return kvt_no_memory(err, NULL);
	for (int64_t l = 0; l < n; l++) {
		uint64_t id = kvt_layer_id(g->base, l);
		int64_t at = l < there && kvt_layer_id(g->donor, l) == id ? l : 0;

		while (at < there && kvt_layer_id(g->donor, at) != id)
			at++;
		if (at == there)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: no layer %llu on the other side",
					g->base->id, (unsigned long long)id);
		(*out)[l] = at;
	}
	return KVT_OK;
}

static enum kvt_status check_alike(const struct grafting *g, struct kvt_error *err)
{
	const int64_t *a = g->base->shape.n, *b = g->donor->shape.n;
	enum kvt_axis axis = g->graft->given ? g->graft->given->axis : KVT_AXIS_S;

	for (int x = KVT_AXIS_H; x < KVT_NAXES; x++)
		if (x != (int)axis && a[x] != b[x])
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: %s extent is %lld in one and %lld in the other",
					g->base->id, kvt_axis_name(x), LL(a[x]),
					LL(b[x]));
	if (!kvt_group_same_type(g->base, g->donor))
		return kvt_fail(err, KVT_BAD_INPUT, "%s: the elements have other types",
				g->base->id);
	if (!kvt_group_same_state(g->base, g->donor))
		return kvt_fail(err, KVT_BAD_INPUT, "%s: the states have other shapes",
				g->base->id);
	return KVT_OK;
}

/* The product that a derivation begins with is what the base keeps whole. */
static enum kvt_status graft_slots(struct grafting *g, struct kvt_error *err)
{
	struct step_group *keep = &g->d->group[g->group], *rest, *donor;
	enum kvt_status status;

	if ((status = check_alike(g, err)) || (status = take_spans(g, err)))
		return status;
	rest = add_step(g);
	donor = add_step(g);
	if (!rest || !donor || !other_spans(keep, g) || !copy_spans(rest, g, true) ||
	    !copy_spans(donor, g, false))
		return kvt_no_memory(err, NULL);
	rest->from = g->group;
	donor->from = g->graft->from;
	if (!(status = pair_layers(&donor->layer, g, err)))
		status = give(g, donor, rest, err);
	return status;
}

static enum kvt_status graft_group(struct derivation *d, int group,
				   const struct kvt_graft *graft, struct kvt_error *err)
{
	const struct kvt_snapshot *donor = kvt_dump_snapshot(d->source[1]);
	struct grafting g = {
		.d = d, .group = group, .graft = graft,
		.base = kvt_dump_group(d->source[0], group),
	};
	enum kvt_status status = step_whole(&d->group[group], g.base, group, err);

	if (status || !graft->nspans)
		return status;
	if (graft->from < 0 || graft->from >= donor->ngroups)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: the donor has no group %d",
				g.base->id, graft->from);
	g.donor = &donor->group[graft->from];
	g.slots = g.base->shape.n[KVT_AXIS_S];
	status = graft_slots(&g, err);
	free(g.first);
	free(g.span);
	/* the name of a block is of its content */
	kvt_group_drop_names(&d->snapshot.group[group]);
	return status;
}

enum kvt_status kvt_dump_graft(struct kvt_dump **out, const struct kvt_dump *base,
			       const struct kvt_dump *donor,
			       const struct kvt_graft graft[KVT_MAX_GROUPS],
			       struct kvt_error *err)
{
	const struct kvt_snapshot *from = kvt_dump_snapshot(base);
	const struct kvt_dump *source[] = { base, donor };
	struct derivation d = { .nsources = 2, .source = source };
	enum kvt_status status;

	kvt_snapshot_init(&d.snapshot);
	status = kvt_snapshot_copy(&d.snapshot, from, err);
	for (int g = 0; !status && g < from->ngroups; g++)
		status = graft_group(&d, g, &graft[g], err);
	return derive(out, &d, status, err);
}
