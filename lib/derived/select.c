/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.c - one group of a dump by explicit indices
 *
 * In: lists of layers and blocks, and runs of heads, K and channels, each with where it
 * comes from and where it goes.  Out: a dump of one group with that, and an error if any
 * slot of it would have an element that the source does not have.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/derived/derive.h"

static int64_t *copy_list(const int64_t *list, int64_t n)
{
	int64_t *out = malloc(((size_t)n + 1) * sizeof(*out));

	if (out && n)
		memcpy(out, list, (size_t)n * sizeof(*out));
	return out;
}

static int64_t end_of(const struct kvt_segment *s)
{
	return s->at + s->count;
}

/* The group as it is here: no tables, and as wide as the selection. */
static struct kvt_group narrow(const struct kvt_group *from, const struct kvt_select *s)
{
	struct kvt_group group = *from;
	int64_t *n = group.shape.n;

	group.layer_names = NULL;
	group.layer_ids = NULL;
	group.scales = NULL;
	group.block_ids = NULL;
	group.block_valid = NULL;
	group.block_names = NULL;
	n[KVT_AXIS_L] = s->nlayers;
	n[KVT_AXIS_B] = s->nblocks;
	n[KVT_AXIS_H] = end_of(&s->heads);
	n[KVT_AXIS_K] = end_of(&s->kv);
	n[KVT_AXIS_D] = 0;
	for (int i = 0; i < s->nchannels; i++)
		if (end_of(&s->channel[i]) > n[KVT_AXIS_D])
			n[KVT_AXIS_D] = end_of(&s->channel[i]);
	return group;
}

/* How much of a segment the source has. */
static int64_t there(const struct kvt_segment *s, int64_t n)
{
	int64_t left = n - s->from;

	return s->from < 0 || left < 0 ? 0 : s->count < left ? s->count : left;
}

/*
 * Elements of a slot that are not in the source, or that nobody asked for.  Parts
 * are not asked: slots that none has are zeros, in the source too.
 */
static int64_t count_lacking(const struct kvt_select *s, const struct kvt_group *from,
			     const struct kvt_group *here)
{
	const int64_t *had = from->shape.n, *n = here->shape.n;
	int64_t channels = 0;

	for (int i = 0; i < s->nchannels; i++)
		channels += there(&s->channel[i], had[KVT_AXIS_D]);
	return n[KVT_AXIS_H] * n[KVT_AXIS_K] * n[KVT_AXIS_D] -
	       there(&s->heads, had[KVT_AXIS_H]) * there(&s->kv, had[KVT_AXIS_K]) *
	       channels;
}

enum kvt_status kvt_dump_select(struct kvt_dump **out, const struct kvt_dump *dump,
				const struct kvt_select *select, struct kvt_error *err)
{
	struct derivation d = { .nsources = 1, .source = &dump };
	struct step_group *step = &d.group[0];
	enum kvt_status status;
	int64_t lacks;

	if (select->nchannels > KVT_MAX_COMPONENTS)
		return kvt_fail(err, KVT_UNSUPPORTED, "%d runs of channels, at most %d",
				select->nchannels, KVT_MAX_COMPONENTS);
	kvt_snapshot_init(&d.snapshot);
	d.snapshot.ngroups = 1;
	d.snapshot.group[0] = narrow(kvt_dump_group(dump, select->group), select);
	step->from = select->group;
	step->layer = copy_list(select->layer, select->nlayers);
	step->block = copy_list(select->block, select->nblocks);
	step->part = calloc(1, sizeof(*step->part));
	step->nparts = 1;
	if (!step->layer || !step->block || !step->part)
		return derive(out, &d, kvt_no_memory(err, NULL), err);
	step->part->heads = select->heads;
	step->part->kv = select->kv;
	step->part->nchannels = select->nchannels;
	for (int i = 0; i < select->nchannels; i++)
		step->part->channel[i] = select->channel[i];
	if ((status = derive(out, &d, KVT_OK, err)))
		return status;
	lacks = count_lacking(select, kvt_dump_group(dump, select->group),
			      kvt_dump_group(*out, 0));
	if (!lacks)
		return KVT_OK;
	kvt_dump_close(*out);
	*out = NULL;
	return kvt_fail(err, KVT_BAD_INPUT, "slots of %s lack %lld elements",
			kvt_dump_group(dump, select->group)->id, LL(lacks));
}
