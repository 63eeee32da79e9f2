/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.c - what only the data tells: checksums, zeros where none should be,
 * and something where only zeros should be
 *
 * Checksums first (integrity.c).  Then each group is read once more, in cell order, and
 * every slot is held against what the tables say of it: live ones hold something, the
 * null block nothing; what is stale and not zero is counted.  Where the tables say
 * nothing of a slot, nothing is expected.  Boxes are judged in their order, so that
 * findings do not depend on the number of threads.  Padding of pages comes last.
 */
#include "lib/ops/check/check.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/print.h"
#include "lib/dump/leaf.h"
#include "lib/dump/pipeline.h"
#include "lib/ops/check/integrity.h"
#include "lib/ops/write/plan.h"

/* What a slot is to be: live ones hold something, the others should not. */
enum duty { UNKNOWN, LIVE, STALE, NULL_BLOCK };

static unsigned long long id_of(const struct kvt_group *group, int64_t block)
{
	return kvt_block_id(group, block);
}

struct scanning {
	struct kvt_dump *dump;
	const struct kvt_group *group;
	int g;
	struct kvt_cut cut;
	/* [B] 0: in no table; else 1 + the slots before its first token */
	uint32_t *used;			/* NULL: not known */
	bool *live;			/* [B][S] of a group that forgets; else NULL */
	bool overlaid;			/* what is stale may be of another group */
	struct kvt_findings *report;
	int64_t stale;			/* slots with something in them */
};

/* ---- what a slot is ----------------------------------------------------- */

/* Slots before the first token of all that have the block belong to no request. */
static void use_block(struct scanning *c, const struct kvt_request *request, int64_t i)
{
	uint32_t *used = &c->used[request->blocks[c->g][i]], before = 0;

	if (!i && c->group->tokens_per_slot > 0)
		before = (uint32_t)(kvt_request_skip(request, c->group) /
				    c->group->tokens_per_slot);
	if (!*used || before + 1 < *used)
		*used = before + 1;
}

static bool mark_used(struct scanning *c, const struct kvt_snapshot *s)
{
	bool any = false;

	for (int64_t r = 0; r < s->nrequests; r++)
		any |= s->request[r].nblocks[c->g] > 0;
	if (!any)
		return true;
	c->used = calloc((size_t)c->group->shape.n[KVT_AXIS_B] + 1, sizeof(*c->used));
	for (int64_t r = 0; c->used && r < s->nrequests; r++)
		for (int64_t i = 0; i < s->request[r].nblocks[c->g]; i++)
			use_block(c, &s->request[r], i);
	return c->used != NULL;
}

/* Each leaves its own bytes in a block that another one gets. */
static bool is_overlaid(const struct kvt_snapshot *s, int g)
{
	for (int i = 0; i < s->ngroups; i++)
		if (i != g && kvt_groups_share(&s->group[i], &s->group[g]))
			return true;
	return false;
}

static bool mark_live(struct scanning *c, const struct kvt_snapshot *s)
{
	if (c->group->tokens_per_slot < 1 || !c->used || !kvt_group_forgets(s, c->g))
		return true;
	c->live = kvt_live_slots(s, c->g);
	return c->live != NULL;
}

/*
 * Of a recurrent group it is the block that counts.  What a window has passed is
 * left as it was.
 */
static enum duty duty_of(const struct scanning *c, int64_t block, int64_t slot)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(c->dump);
	const struct kvt_group *group = c->group;

	if (block == kvt_null_block(s, c->g))
		return NULL_BLOCK;
	if (c->used && c->used[block] && slot < c->used[block] - 1)
		return UNKNOWN;
	if (c->live && c->used[block])
		return c->live[block * group->shape.n[KVT_AXIS_S] + slot] ? LIVE :
									   UNKNOWN;
	if (group->block_valid)
		return slot < group->block_valid[block] ? LIVE : STALE;
	if (!c->used)
		return UNKNOWN;
	if (!c->used[block])
		return STALE;
	return group->tokens_per_slot < 1 ? LIVE : UNKNOWN;
}

/* ---- boxes -------------------------------------------------------------- */

static bool is_zero(const uint8_t *bytes, int64_t n)
{
	return !n || (!bytes[0] && !memcmp(bytes, bytes + 1, (size_t)n - 1));
}

/* A slot of all heads, keys and values; in cell order each is a run. */
static bool slot_is_zero(const struct scanning *c, const uint8_t *page, int64_t slot,
			 int64_t nslots)
{
	const int64_t *n = c->group->shape.n;
	int64_t row = n[KVT_AXIS_D] * c->group->shape.elem;
	int64_t cell = n[KVT_AXIS_S] * row;

	for (int64_t i = 0; i < n[KVT_AXIS_H] * n[KVT_AXIS_K]; i++)
		if (!is_zero(page + i * cell + slot * row, row * nslots))
			return false;
	return true;
}

static struct kvt_find_at slot_at(const struct scanning *c, int64_t layer, int64_t block,
				  int64_t slot)
{
	return kvt_find_at("group=%s,layer=%lld,block=%llu,slot=%lld", c->group->id,
			   LL(layer), id_of(c->group, block), LL(slot));
}

static void judge(struct scanning *c, int64_t layer, int64_t block, int64_t slot,
		  bool zero)
{
	switch (duty_of(c, block, slot)) {
	case NULL_BLOCK:
		if (!zero)
			kvt_find(c->report, "null.nonzero",
				 slot_at(c, layer, block, slot),
				 "the null block is not zero here");
		break;
	case LIVE:
		if (zero)
			kvt_find(c->report, "live.zero", slot_at(c, layer, block, slot),
				 "holds a live token, but is all zeros");
		break;
	case STALE:
		c->stale += !zero && !c->overlaid;
		break;
	default:
		break;
	}
}

/* Of a page; the taps of a conv state are one slot. */
static int64_t slots_of(const struct scanning *c)
{
	return c->group->tokens_per_slot < 1 ? 1 : c->group->shape.n[KVT_AXIS_S];
}

static int64_t pages_of(const struct kvt_box *box)
{
	return (box->end[KVT_AXIS_L] - box->begin[KVT_AXIS_L]) *
	       (box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B]);
}

static enum kvt_status scan_box(struct kvt_worker *worker, void *context, int64_t i,
				struct kvt_error *err)
{
	struct scanning *c = context;
	struct kvt_box box = kvt_cut_box(&c->cut, i);
	int64_t npages = pages_of(&box), slots = slots_of(c);
	int64_t one = c->group->shape.n[KVT_AXIS_S] / slots;
	uint8_t *page = worker->buffer[0], *zero = worker->result;
	enum kvt_status status;

	if ((status = kvt_read(worker, c->dump, c->g, &box, &cell_layout, page, err)))
		return status;
	for (int64_t p = 0; p < npages; p++) {
		for (int64_t s = 0; s < slots; s++)
			*zero++ = slot_is_zero(c, page, s, one);
		page += c->cut.box_bytes / c->cut.layers / c->cut.blocks;
	}
	worker->nresult = npages * slots;
	kvt_worker_progress(worker, c->cut.box_bytes);
	return KVT_OK;
}

/* kvt_merge_fn: of each slot of a box whether it is all zeros. */
static bool take_zeros(void *context, int64_t i, const void *result, int64_t nbytes)
{
	struct scanning *c = context;
	struct kvt_box box = kvt_cut_box(&c->cut, i);
	const uint8_t *zero = result;

	if (nbytes != pages_of(&box) * slots_of(c))
		return false;
	for (int64_t l = box.begin[KVT_AXIS_L]; l < box.end[KVT_AXIS_L]; l++)
		for (int64_t b = box.begin[KVT_AXIS_B]; b < box.end[KVT_AXIS_B]; b++)
			for (int64_t s = 0; s < slots_of(c); s++)
				judge(c, l, b, s, *zero++);
	return true;
}

static void forget(struct scanning *c)
{
	free(c->used);
	free(c->live);
}

static enum kvt_status scan_group(struct kvt_findings *r, struct kvt_dump *dump, int g,
				  const struct kvt_run *run,
				  struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	struct scanning c = { .dump = dump, .group = &s->group[g], .g = g,
			      .report = r };
	struct kvt_work work = { .fn = scan_box, .context = &c, .label = "scanning",
				 .merge = take_zeros, .part = g };
	const struct kvt_tiling *tiling = kvt_dump_tiling(dump, g);
	int64_t limit = run->memory ? run->memory / 4 : INT64_MAX;
	enum kvt_status status;

	if (!mark_used(&c, s) || !mark_live(&c, s)) {
		forget(&c);
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	}
	c.overlaid = is_overlaid(s, g);
	c.cut = kvt_cut_choose(c.group, tiling, NULL, NULL, limit);
	work.count = c.group->shape.n[KVT_AXIS_L] && c.group->shape.n[KVT_AXIS_B] ?
		     c.cut.nboxes : 0;
	work.total_bytes = work.count * c.cut.box_bytes;
	work.buffer_bytes[0] = c.cut.box_bytes;
	work.result_bytes = c.cut.layers * c.cut.blocks * slots_of(&c);
	kvt_work_reads(&work, dump, g, &c.cut, &cell_layout);
	status = kvt_work_run(&work, run, err);
	forget(&c);
	if (!status && c.stale)
		kvt_find(r, "stale.slots", kvt_find_at("group=%s", c.group->id),
			 "%lld slot%s that no request uses %s not zero (counted in each "
			 "layer)",
			 LL(c.stale), c.stale == 1 ? "" : "s",
			 c.stale == 1 ? "is" : "are");
	return status;
}

/* ---- padding ------------------------------------------------------------ */

static int64_t first_nonzero(const uint8_t *bytes, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (bytes[i])
			return i;
	return -1;
}

/* A box is one page; its result: where the first byte is that is not 0, or -1, and it. */
struct padding {
	struct kvt_dump *dump;
	int g;
	struct kvt_findings *report;
};

static enum kvt_status padding_box(struct kvt_worker *worker, void *context, int64_t i,
				   struct kvt_error *err)
{
	const struct padding *p = context;
	const struct kvt_group *group = kvt_dump_group(p->dump, p->g);
	int64_t *at = (int64_t *)(void *)worker->result;
	int64_t nb = group->shape.n[KVT_AXIS_B];
	uint8_t *page = worker->buffer[0];
	enum kvt_status status;

	if ((status = kvt_read_padding(page, p->dump, p->g, i / nb, i % nb, err)))
		return status;
	at[0] = first_nonzero(page, group->page_bytes);
	at[1] = at[0] < 0 ? 0 : page[at[0]];
	worker->nresult = 2 * sizeof(*at);
	return KVT_OK;
}

/* kvt_merge_fn */
static bool take_padding(void *context, int64_t i, const void *result, int64_t nbytes)
{
	const struct padding *p = context;
	const struct kvt_group *group = kvt_dump_group(p->dump, p->g);
	int64_t nb = group->shape.n[KVT_AXIS_B], at[2];

	if (nbytes != sizeof(at))
		return false;
	memcpy(at, result, sizeof(at));
	if (at[0] >= 0)
		kvt_find(p->report, "padding.nonzero",
			 kvt_find_at("group=%s,layer=%lld,block=%llu", group->id,
				     LL(i / nb), id_of(group, i % nb)),
			 "byte %lld of the page is 0x%02x", LL(at[0]), (unsigned)at[1]);
	return true;
}

static enum kvt_status check_padding(struct kvt_findings *r, struct kvt_dump *dump,
				     int g, const struct kvt_run *run,
				     struct kvt_error *err)
{
	const struct kvt_group *group = kvt_dump_group(dump, g);
	struct padding p = { dump, g, r };
	struct kvt_work work = { .fn = padding_box, .context = &p, .label = "padding",
				 .merge = take_padding, .part = g,
				 .result_bytes = 2 * sizeof(int64_t) };

	if (!kvt_dump_has_padding(dump, g))
		return KVT_OK;
	work.count = group->shape.n[KVT_AXIS_L] * group->shape.n[KVT_AXIS_B];
	work.total_bytes = work.count * group->page_bytes;
	work.buffer_bytes[0] = group->page_bytes;
	return kvt_work_run(&work, run, err);
}

/* ---- checksums and digests ---------------------------------------------- */

static void tell_damage(struct kvt_findings *r, const struct kvt_group *group,
			const struct kvt_integrity *v)
{
	int64_t damaged = 0, differing = 0;

	for (int i = 0; i < v->nfound; i++) {
		const struct kvt_damage *one = &v->found[i];

		damaged += one->damaged;
		differing += !one->damaged;
		kvt_find(r, one->damaged ? "tile.damaged" : "digest.cell",
			 kvt_find_at("group=%s,layer=%lld,block=%llu,head=%lld,kv=%s",
				     group->id, LL(one->at[KVT_AXIS_L]),
				     id_of(group, one->at[KVT_AXIS_B]),
				     LL(group->head_start + one->at[KVT_AXIS_H]),
				     one->at[KVT_AXIS_K] ? "v" : "k"),
			 "%s", one->damaged ? one->text :
			 "the data does not match content_digest");
	}
	/* the first ones only have a text */
	kvt_find_more(r, "tile.damaged", v->damaged - damaged);
	kvt_find_more(r, "digest.cell", v->differing - differing);
}

/* Not what cannot be decoded, nor what is held against cells that differ. */
static bool can_be_read(const struct kvt_dump *dump, int g, const struct kvt_integrity *v)
{
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);

	return !v->damaged && !(v->differing && leaf && leaf->held[g]);
}

/* Of files that have one for much at once: also of what no group has data in. */
static enum kvt_status check_members(struct kvt_findings *r, const struct kvt_dump *dump,
				     const char *path, const struct kvt_run *run,
				     bool *damaged, struct kvt_error *err)
{
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);
	struct kvt_error why = { "" };
	enum kvt_status status = KVT_OK;
	int64_t i = 0;

	*damaged = false;
	if (!leaf || !leaf->settles)
		return KVT_OK;
	while ((status = leaf->ops->settle(leaf, &i, true, run, &why)) == KVT_BAD_INPUT) {
		kvt_find(r, "tile.damaged", kvt_find_at("%s", ""), "%s",
			 kvt_without_path(why.text, path));
		*damaged = true;
	}
	return status ? kvt_fail(err, status, "%s", why.text) : KVT_OK;
}

/* Checksums of all groups come first: they say whether the rest can be believed. */
enum kvt_status kvt_check_data(struct kvt_findings *r, struct kvt_dump *dump,
			       const char *path, const struct kvt_run *run,
			       struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	struct kvt_integrity *v = calloc((size_t)s->ngroups + 1, sizeof(*v));
	enum kvt_status status;
	bool damaged;

	if (!v)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	if ((status = check_members(r, dump, path, run, &damaged, err)) || damaged) {
		free(v);
		return status;
	}
	for (int g = 0; !status && g < s->ngroups; g++)
		status = kvt_check_integrity(&v[g], dump, g, path, run, err);
	for (int g = 0; !status && g < s->ngroups; g++) {
		tell_damage(r, &s->group[g], &v[g]);
		if (can_be_read(dump, g, &v[g]))
			status = scan_group(r, dump, g, run, err);
		if (!status)
			status = check_padding(r, dump, g, run, err);
	}
	free(v);
	return status ? status : kvt_dump_unchanged(dump, err);
}
