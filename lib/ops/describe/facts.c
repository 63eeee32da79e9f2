/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.c - what follows from a dump's description of itself
 *
 * Sizes and predicates are computed from shape and layout, alignment from three
 * addresses in the engine's tensor, use of blocks from the tables of all requests.
 */
#include "lib/ops/describe/describe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>


/* The null block, and what holds none but dead tokens, are not in use. */
static bool is_used(const struct kvt_table *t, int64_t entry)
{
	return t->blocks[entry] != t->null_block &&
	       (kvt_entry_needed(t, entry) || kvt_entry_is_spare(t, entry));
}

/* In how many requests each block is, up to 2; NULL where no request has any. */
static enum kvt_status count_uses(uint8_t **out, const struct kvt_snapshot *s,
				  int g, struct kvt_error *err)
{
	int64_t nblocks = s->group[g].shape.n[KVT_AXIS_B];
	uint8_t *uses;
	bool any = false;

	*out = NULL;
	for (int64_t r = 0; r < s->nrequests; r++)
		any |= s->request[r].blocks[g] != NULL;
	if (!any || !nblocks)
		return KVT_OK;
	uses = calloc((size_t)nblocks, 1);
	if (!uses)
		return kvt_no_memory(err, NULL);
	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_table t = kvt_table_of(s, g, &s->request[r]);

		for (int64_t i = 0; i < t.nblocks; i++) {
			uint8_t *use = &uses[t.blocks[i]];

			*use += *use < 2 && is_used(&t, i);
		}
	}
	*out = uses;
	return KVT_OK;
}

static enum kvt_status block_facts(struct kvt_group_facts *f,
				   const struct kvt_snapshot *s, int g,
				   struct kvt_error *err)
{
	const struct kvt_group *group = f->group;
	int64_t nblocks = group->shape.n[KVT_AXIS_B];
	enum kvt_status status;
	uint8_t *uses;

	f->blocks_used = f->blocks_shared = f->blocks_unused = -1;
	f->valid_slots = -1;
	if (group->block_valid) {
		f->valid_slots = 0;
		for (int64_t b = 0; b < nblocks; b++)
			f->valid_slots += group->block_valid[b];
	}
	if ((status = count_uses(&uses, s, g, err)) || !uses)
		return status;
	f->blocks_used = f->blocks_shared = f->blocks_unused = 0;
	for (int64_t b = 0; b < nblocks; b++) {
		f->blocks_used += uses[b] > 0;
		f->blocks_shared += uses[b] > 1;
		f->blocks_unused += !uses[b] && b != kvt_null_block(s, g);
	}
	free(uses);
	return KVT_OK;
}

static enum kvt_status group_facts(struct kvt_group_facts *f,
				   const struct kvt_group *group, struct kvt_error *err)
{
	struct kvt_box box = kvt_box_whole(&group->shape);
	const int64_t *n = group->shape.n;
	enum kvt_status status;

	f->group = group;
	f->is = kvt_layout_predicates(&group->layout, &group->shape);
	if ((status = kvt_layout_views(&f->views, &group->layout, &box,
				       group->shape.elem, err)))
		return status;
	f->data_bytes = f->views.nbytes;
	/* no overflow: factors of the whole, which was checked; 0 stays 0 */
	f->block_bytes = n[KVT_AXIS_S] * n[KVT_AXIS_H] * n[KVT_AXIS_K] *
			 n[KVT_AXIS_D] * group->shape.elem;
	f->layer_bytes = n[KVT_AXIS_B] * f->block_bytes;
	if (group->tokens_per_slot > 0 && n[KVT_AXIS_S])
		f->token_bytes = f->block_bytes / n[KVT_AXIS_S] * n[KVT_AXIS_L] /
				 group->tokens_per_slot;
	if (group->tokens_per_slot > 0)
		f->kernel_block = f->is.kernel_slots * group->tokens_per_slot;
	return KVT_OK;
}

/* The offset in the engine's tensor, from that of the group's first element. */
static int64_t offset_from_first(const struct kvt_dump *dump, int g, enum kvt_axis axis)
{
	int64_t index[KVT_NAXES] = { 0 }, buffer, first, offset;

	if (kvt_dump_locate(&buffer, &first, dump, KVT_MEMORY, g, index, NULL))
		return 0;
	index[axis] = 1;
	if (kvt_dump_locate(&buffer, &offset, dump, KVT_MEMORY, g, index, NULL))
		return 0;	/* there is just one */
	return offset - first;
}

/* The largest power of two that divides where any block of any layer begins. */
static void page_facts(struct kvt_group_facts *f, const struct kvt_dump *dump, int g)
{
	const struct kvt_group *group = f->group;
	int64_t page = group->page_bytes ? group->page_bytes : f->block_bytes;
	int64_t layer = offset_from_first(dump, g, KVT_AXIS_L);
	int64_t block = offset_from_first(dump, g, KVT_AXIS_B);
	int64_t bits = layer | block | group->page_offset;

	if (page != f->block_bytes) {
		f->page_stride[0] = layer;
		f->page_stride[1] = block;
	}
	if (kvt_splits_k_and_v(&group->layout, &group->shape))
		bits |= offset_from_first(dump, g, KVT_AXIS_K);
	if (!bits)
		bits = page;
	f->alignment = bits & -bits;
}

enum kvt_status kvt_describe(struct kvt_description *d, const char *path,
			     struct kvt_dump *dump, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	memset(d, 0, sizeof(*d));
	d->path = path;
	d->dump = dump;
	d->snapshot = kvt_dump_snapshot(dump);
	d->file_bytes = kvt_dump_file_bytes(dump);
	for (int g = 0; !status && g < d->snapshot->ngroups; g++) {
		struct kvt_group_facts *f = &d->group[g];

		status = group_facts(f, &d->snapshot->group[g], err);
		if (!status)
			status = block_facts(f, d->snapshot, g, err);
		if (!status)
			page_facts(f, dump, g);
		f->tiling = kvt_dump_tiling(dump, g);
		f->indexed = g ? NULL : kvt_dump_indexed(dump);
		f->has_cells = kvt_dump_has_cells(dump, g);
		f->cells_proven = kvt_dump_proven(dump)->cells[g];
		f->checksum = kvt_checksum_name(dump, g);
		d->data_bytes += f->data_bytes;
	}
	return status;
}

void kvt_description_free(struct kvt_description *d)
{
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		free(d->group[g].moments);
		free(d->group[g].integrity);
		if (d->group[g].numbers)
			kvt_numbers_free(d->group[g].numbers);
		free(d->group[g].numbers);
		if (d->group[g].strange)
			kvt_strangeness_free(d->group[g].strange);
		free(d->group[g].strange);
	}
	kvt_canonical_facts_free(d->canonical);
	kvt_peeks_free(d->peeks);
	memset(d, 0, sizeof(*d));
}

const char *kvt_component_name(const struct kvt_group *group, int64_t k)
{
	if (kvt_group_half(group) >= 0)
		k = kvt_group_half(group);
	else if (group->shape.n[KVT_AXIS_K] < 2)
		return "content";
	return k ? "values" : "keys";
}

double kvt_standard_deviation(const struct kvt_moments *m)
{
	return m->finite ? sqrt(m->squares / (double)m->finite) : NAN;
}

double kvt_compression_ratio(const struct kvt_description *d)
{
	return d->file_bytes ? (double)d->data_bytes / (double)d->file_bytes : NAN;
}

enum kvt_status kvt_describe_integrity(struct kvt_description *d,
				       const struct kvt_run *run, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int g = 0; !status && g < d->snapshot->ngroups; g++) {
		if (!(d->group[g].integrity = calloc(1, sizeof(struct kvt_integrity))))
			return kvt_no_memory(err, NULL);
		status = kvt_check_integrity(d->group[g].integrity, d->dump, g, d->path,
					     NULL, run, err);
	}
	return status;
}
