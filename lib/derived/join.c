/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - a patch of a dump as a dump, and a dump of its patches
 *
 * What several processes write of one dump is a file for each patch.  Joined they are
 * the dump again, tile for tile where patches begin at borders of tiles.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/derived/derive.h"
#include "lib/derived/slice.h"

/* ---- a patch ----------------------------------------------------------- */

static bool is_inside(const struct kvt_patch *p, const struct kvt_group *group)
{
	const int64_t *n = group->shape.n;

	return p->nlayers > 0 && p->nblocks > 0 && p->layer >= 0 && p->block >= 0 &&
	       p->layer <= n[KVT_AXIS_L] - p->nlayers &&
	       p->block <= n[KVT_AXIS_B] - p->nblocks;
}

static int64_t *count_up(int64_t begin, int64_t n)
{
	int64_t *list = malloc(((size_t)n + 1) * sizeof(*list));

	for (int64_t i = 0; list && i < n; i++)
		list[i] = begin + i;
	return list;
}

/* The one group, as it is there, without what only the whole has. */
static enum kvt_status snapshot_of(struct kvt_snapshot *out,
				   const struct kvt_snapshot *whole, int group,
				   struct kvt_error *err)
{
	struct kvt_snapshot one = *whole;

	one.ngroups = 1;
	one.group[0] = whole->group[group];
	one.nrequests = 0;
	one.request = NULL;
	one.null_block = -1;
	return kvt_snapshot_copy(out, &one, err);
}

enum kvt_status kvt_dump_patch(struct kvt_dump **out, const struct kvt_dump *dump,
			       const struct kvt_patch *patch, struct kvt_error *err)
{
	const struct kvt_snapshot *whole = kvt_dump_snapshot(dump);
	struct derivation d = { .nsources = 1, .source = &dump };
	struct step_group *step = &d.group[0];
	enum kvt_status status;

	kvt_snapshot_init(&d.snapshot);
	if (patch->group < 0 || patch->group >= whole->ngroups ||
	    !is_inside(patch, &whole->group[patch->group]))
		return kvt_fail(err, KVT_USAGE,
				"layers %lld and blocks %lld of group %d are not there",
				LL(patch->layer), LL(patch->block), patch->group);
	if (!(status = snapshot_of(&d.snapshot, whole, patch->group, err)))
		status = step_whole(step, &whole->group[patch->group], patch->group, err);
	step->layer = count_up(patch->layer, patch->nlayers);
	step->block = count_up(patch->block, patch->nblocks);
	if (!status && (!step->layer || !step->block ||
			!keep_layers(&d.snapshot.group[0], step->layer, patch->nlayers) ||
			!keep_blocks(&d.snapshot.group[0], step->block, patch->nblocks)))
		status = kvt_no_memory(err, NULL);
	return derive(out, &d, status, err);
}

/* ---- all patches ------------------------------------------------------- */

/* Positions there of n here, of which 'count' from 'begin' on are there. */
static int64_t *list_of(int64_t n, int64_t begin, int64_t count)
{
	int64_t *list = malloc(((size_t)n + 1) * sizeof(*list));

	for (int64_t i = 0; list && i < n; i++)
		list[i] = i < begin || i >= begin + count ? -1 : i - begin;
	return list;
}

static enum kvt_status check_shape(const struct kvt_group *here,
				   const struct kvt_group *part,
				   const struct kvt_patch *patch, struct kvt_error *err)
{
	int64_t n[KVT_NAXES];

	memcpy(n, here->shape.n, sizeof(n));
	n[KVT_AXIS_L] = patch->nlayers;
	n[KVT_AXIS_B] = patch->nblocks;
	if (is_inside(patch, here) && part->shape.elem == here->shape.elem &&
	    part->kind == here->kind && !memcmp(n, part->shape.n, sizeof(n)))
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: a part of %lld layers and %lld blocks is not %lld layers and %lld blocks of this group",
			here->id, LL(part->shape.n[KVT_AXIS_L]),
			LL(part->shape.n[KVT_AXIS_B]), LL(patch->nlayers),
			LL(patch->nblocks));
}

/* 'last' is the last step of each group so far; NULL: none. */
static enum kvt_status add_part(struct derivation *d, struct step_group **last, int64_t i,
				const struct kvt_patch *patch, struct kvt_error *err)
{
	const struct kvt_group *here = &d->snapshot.group[patch->group];
	struct step_group *step = last[patch->group];
	enum kvt_status status;

	if ((status = check_shape(here, kvt_dump_group(d->source[i], 0), patch, err)))
		return status;
	if (!step)
		step = &d->group[patch->group];
	else if (!(step = step->next = calloc(1, sizeof(*step))))
		return kvt_no_memory(err, NULL);
	last[patch->group] = step;
	if ((status = step_whole(step, here, 0, err)))
		return status;
	step->part->source = (int)i;
	step->layer = list_of(here->shape.n[KVT_AXIS_L], patch->layer, patch->nlayers);
	step->block = list_of(here->shape.n[KVT_AXIS_B], patch->block, patch->nblocks);
	return step->layer && step->block ? KVT_OK : kvt_no_memory(err, NULL);
}

static bool overlap(const struct kvt_patch *a, const struct kvt_patch *b)
{
	return a->group == b->group && a->layer < b->layer + b->nlayers &&
	       b->layer < a->layer + a->nlayers && a->block < b->block + b->nblocks &&
	       b->block < a->block + a->nblocks;
}

/* Patches that are disjoint, and as many pages as the groups have, are all of it. */
static enum kvt_status check_cover(const struct kvt_snapshot *s,
				   const struct kvt_patch *patches, int64_t n,
				   struct kvt_error *err)
{
	int64_t pages[KVT_MAX_GROUPS] = { 0 };

	for (int64_t i = 0; i < n; i++) {
		pages[patches[i].group] += patches[i].nlayers * patches[i].nblocks;
		for (int64_t j = 0; j < i; j++)
			if (overlap(&patches[i], &patches[j]))
				return kvt_fail(err, KVT_BAD_INPUT,
						"two parts have layer %lld, block %lld of %s",
						LL(patches[i].layer),
						LL(patches[i].block),
						s->group[patches[i].group].id);
	}
	for (int g = 0; g < s->ngroups; g++) {
		const int64_t *shape = s->group[g].shape.n;

		if (pages[g] != shape[KVT_AXIS_L] * shape[KVT_AXIS_B])
			return kvt_fail(err, KVT_BAD_INPUT,
					"the parts have %lld of %lld blocks of layers of %s",
					LL(pages[g]),
					LL(shape[KVT_AXIS_L] * shape[KVT_AXIS_B]),
					s->group[g].id);
	}
	return KVT_OK;
}

enum kvt_status kvt_dump_join(struct kvt_dump **out, const struct kvt_snapshot *info,
			      const struct kvt_dump *const *parts,
			      const struct kvt_patch *patches, int64_t n,
			      struct kvt_error *err)
{
	struct derivation d = { .nsources = (int)n, .source = parts };
	struct step_group *last[KVT_MAX_GROUPS] = { NULL };
	enum kvt_status status;

	kvt_snapshot_init(&d.snapshot);
	for (int64_t i = 0; i < n; i++)
		if (patches[i].group < 0 || patches[i].group >= info->ngroups)
			return kvt_fail(err, KVT_USAGE, "there is no group %d",
					patches[i].group);
	if (!(status = kvt_snapshot_copy(&d.snapshot, info, err)))
		status = check_cover(info, patches, n, err);
	for (int64_t i = 0; !status && i < n; i++)
		status = add_part(&d, last, i, &patches[i], err);
	return derive(out, &d, status, err);
}
