/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.c - what was seen in boxes, put together: counts, first places, and zeros
 * told in as few words as they can be
 *
 * Boxes are taken in in their order, so that what is kept are the first places, for any
 * number of threads.  A region of zeros is told once, by the widest that it is: layers,
 * then columns of layers (the values), then heads of them, and of a request; what is in
 * none of these slot by slot.
 */
#include "lib/ops/numbers/internal.h"

#include <stdlib.h>
#include <string.h>


/* ---- parts of a row --------------------------------------------------------- */

static void add_part(struct kvt_numbers *n, struct kvt_look_part part, const char *type)
{
	part.pattern = kvt_pattern_find(type);
	n->numbers |= part.pattern >= 0;
	n->part[n->nparts++] = part;
}

/* Do the components follow each other, and are they all of the row? */
static bool components_cover(const struct kvt_group *group)
{
	int64_t at = 0;

	for (int i = 0; i < group->ncomponents; i++) {
		if (group->component[i].start != at || group->component[i].length < 1)
			return false;
		at += group->component[i].length;
	}
	return group->ncomponents > 1 && at == group->shape.n[KVT_AXIS_D];
}

static void add_elements(struct kvt_numbers *n, const struct kvt_group *group)
{
	const int64_t elem = group->shape.elem;
	struct kvt_look_part part = { .nbytes = group->shape.n[KVT_AXIS_D] * elem,
				      .units = 1, .rows = 1, .must = true };

	if (!components_cover(group)) {
		add_part(n, part, group->dtype->name);
		return;
	}
	for (int i = 0; i < group->ncomponents; i++) {
		part.name = group->component[i].name;
		part.first = group->component[i].start;
		part.at = part.first * elem;
		part.nbytes = group->component[i].length * elem;
		add_part(n, part, group->dtype->name);
	}
}

/* What is added to numbers may well be 0, and nobody knows what else there is. */
static bool field_must(const struct kvt_packing *p, int field)
{
	bool scales = false, added = false;

	for (int i = 0; i < p->nfields; i++) {
		scales |= p->field[i].scale == field;
		added |= p->field[i].added == field;
	}
	return p->field[field].role == KVT_FIELD_VALUES || (scales && !added);
}

static void add_fields(struct kvt_numbers *n)
{
	const struct kvt_packing *p = &n->packing;

	for (int i = 0; i < p->nfields; i++) {
		const struct kvt_field *f = &p->field[i];
		int64_t rows = f->order == KVT_SCALES_BY_ROWS ? 4 : 1;

		struct kvt_look_part part = {
			.name = f->name, .field = f, .at = f->at,
			.stride = rows * f->stride, .units = p->rows / rows, .rows = rows,
			.nbytes = (rows - 1) * f->stride + kvt_field_bytes(f),
			.must = field_must(p, i) };

		/* a field of blocks is in so many places of its only row */
		if (f->block) {
			part.stride = f->step;
			part.units = kvt_field_runs(f);
			part.nbytes = kvt_field_bytes_of(f, f->block);
		}
		add_part(n, part, f->type);
	}
}

static void set_parts(struct kvt_numbers *n, const struct kvt_group *group)
{
	if (group->content.type) {
		n->packing = kvt_group_packing(group);
		add_fields(n);
	} else {
		add_elements(n, group);
	}
	n->ncolumns = (int)group->shape.n[KVT_AXIS_K] * n->nparts;
}

/* ---- who looks -------------------------------------------------------------- */

/* Requests of which heads are sought: none, where that would take too much memory. */
enum { MOST_LISTED = 64 << 20 };

/* What a request has: all of its tokens, or its last state. */
static int64_t first_entry(const struct kvt_looking *l, int64_t r)
{
	const struct kvt_request *q = &l->duty.snapshot->request[r];
	struct kvt_table t;
	int64_t i;

	if (l->duty.group->tokens_per_slot > 0)
		return 0;
	t = kvt_table_of(l->duty.snapshot, l->duty.g, q);
	for (i = t.nblocks - 1; i > 0 && kvt_entry_is_spare(&t, i); i--)
		;
	return i < 0 ? 0 : i;
}

static bool index_uses(struct kvt_looking *l)
{
	const struct kvt_snapshot *s = l->duty.snapshot;
	const int g = l->duty.g;
	int64_t nblocks = l->duty.group->shape.n[KVT_AXIS_B], total = 0;

	for (int64_t r = 0; r < s->nrequests; r++)
		total += s->request[r].nblocks[g];
	l->first_use = calloc((size_t)nblocks + 2, sizeof(*l->first_use));
	l->use = calloc((size_t)total + 1, sizeof(*l->use));
	if (!l->first_use || !l->use)
		return false;
	for (int64_t r = 0; l->nlists > 1 && r < s->nrequests; r++)
		for (int64_t i = first_entry(l, r); i < s->request[r].nblocks[g]; i++)
			l->first_use[s->request[r].blocks[g][i] + 2]++;
	/* counting sort: [b + 1] is where the uses of b begin, then moves on */
	for (int64_t b = 0; b < nblocks; b++)
		l->first_use[b + 2] += l->first_use[b + 1];
	for (int64_t r = 0; l->nlists > 1 && r < s->nrequests; r++)
		for (int64_t i = first_entry(l, r); i < s->request[r].nblocks[g]; i++)
			l->use[l->first_use[s->request[r].blocks[g][i] + 1]++] = r;
	return true;
}

static bool make_lists(struct kvt_looking *l)
{
	const struct kvt_snapshot *s = l->duty.snapshot;
	const int64_t *n = l->duty.group->shape.n;
	int64_t each = n[KVT_AXIS_L] * (1 + l->words), kinds = 1 + l->out->ncolumns;
	int64_t kept = n[KVT_AXIS_L] < MOST_LAYERS ? n[KVT_AXIS_L] : MOST_LAYERS;

	l->nlists = 1;
	if ((s->nrequests > 1 || l->duty.group->tokens_per_slot < 1) &&
	    each < MOST_LISTED / 8 / (s->nrequests + 1))
		l->nlists += s->nrequests;
	l->out->by_request = l->nlists > 1;
	l->nonzero = calloc((size_t)(l->nlists * each) + 1, sizeof(*l->nonzero));
	l->zeros = calloc((size_t)(n[KVT_AXIS_L] * kinds) + 1, sizeof(*l->zeros));
	l->zero_at = calloc((size_t)(kept * kinds) + 1, sizeof(*l->zero_at));
	return l->nonzero && l->zeros && l->zero_at && index_uses(l);
}

/* Without them extents may be anything. */
static bool has_elements(const struct kvt_shape *shape)
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (!shape->n[a])
			return false;
	return true;
}

struct kvt_looking *kvt_looking_new(struct kvt_numbers *out,
				    const struct kvt_snapshot *s, int g)
{
	const struct kvt_group *group = &s->group[g];
	struct kvt_looking *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	*out = (struct kvt_numbers){ .nzeros = 0 };
	l->out = out;
	l->duty.group = group;
	set_parts(out, group);
	if (!has_elements(&group->shape))
		return l;
	l->slots = group->tokens_per_slot < 1 ? 1 : group->shape.n[KVT_AXIS_S];
	l->words = (group->shape.n[KVT_AXIS_H] * out->ncolumns + 63) / 64;
	for (int c = 0; c < out->ncolumns; c++)
		l->must |= (unsigned)out->part[c % out->nparts].must << c;
	if (!duties_init(&l->duty, s, g) || !make_lists(l)) {
		kvt_looking_free(l);
		return NULL;
	}
	out->known = duties_known(&l->duty);
	return l;
}

void kvt_looking_free(struct kvt_looking *l)
{
	if (!l)
		return;
	duties_free(&l->duty);
	free(l->nonzero);
	free(l->first_use);
	free(l->use);
	free(l->zeros);
	free(l->zero_at);
	free(l);
}

void kvt_numbers_free(struct kvt_numbers *n)
{
	free(n->zeros);
	n->zeros = NULL;
	n->nzeros = 0;
}

/* ---- boxes ------------------------------------------------------------------ */

static void list_page(uint64_t *to, const uint64_t *page, int64_t words)
{
	to[0] += page[0];
	for (int64_t w = 1; w <= words; w++)
		to[w] |= page[w];
}

static void take_page(struct kvt_looking *l, int64_t layer, int64_t block,
		      const uint64_t *page)
{
	if (!page[0])
		return;
	list_page(list_at(l, 0, layer), page, l->words);
	for (int64_t u = l->first_use[block]; u < l->first_use[block + 1]; u++)
		list_page(list_at(l, 1 + l->use[u], layer), page, l->words);
}

/* 'kind': 0 of all of it, else 1 + the column. */
static void add_place(struct kvt_looking *l, int64_t layer, int kind, int64_t block,
		      int64_t slot)
{
	int64_t at = layer * (1 + l->out->ncolumns) + kind, i = l->zeros[at]++;

	if (layer < MOST_LAYERS && i < KVT_MAX_PLACES) {
		l->zero_at[at].first[i].block = block;
		l->zero_at[at].first[i].slot = slot;
	}
}

static void take_slot(struct kvt_looking *l, int64_t layer, int64_t block, int64_t slot,
		      uint32_t flag)
{
	uint32_t some = flag & (SLOT_IS_ODD - 1);
	enum kvt_duty duty = duty_of(&l->duty, block, slot);
	struct kvt_slots *null = &l->out->null_block;

	if (duty == KVT_DUTY_STALE)
		l->out->stale += some && !l->duty.overlaid;
	if (duty == KVT_DUTY_NULL && some && null->count++ < KVT_MAX_PLACES)
		null->first[null->n++] = (struct kvt_slot_place){ layer, block, slot };
	if (duty == KVT_DUTY_LIVE && !some)
		add_place(l, layer, 0, block, slot);
	for (int c = 0; some && (flag & SLOT_COUNTS) && c < l->out->ncolumns; c++)
		if (l->must >> c & 1 && !(some >> c & 1))
			add_place(l, layer, 1 + c, block, slot);
}

/* It may come from a file that another process wrote. */
static bool is_sound(const struct kvt_looking *l, const struct kvt_odd *odd)
{
	const int64_t *n = l->duty.group->shape.n;

	for (int a = 0; odd->slots && a < KVT_NAXES; a++)
		if (odd->at[a] < 0 || odd->at[a] >= n[a])
			return false;
	return odd->part >= 0 && (!odd->part || odd->part < l->out->nparts);
}

static bool are_sound(const struct kvt_looking *l, const struct box_seen *seen)
{
	bool sound = seen->nlive >= 0;

	for (int d = 0; d < KVT_NDUTIES; d++)
		sound &= is_sound(l, &seen->by[d]);
	for (int i = 0; i < KVT_MAX_PLACES; i++)
		sound &= is_sound(l, &seen->live[i]);
	return sound;
}

bool kvt_looking_take(struct kvt_looking *l, const struct kvt_box *box,
		      const void *result, int64_t nbytes)
{
	const int64_t *begin = box->begin, *end = box->end;
	int64_t layers = end[KVT_AXIS_L] - begin[KVT_AXIS_L];
	int64_t blocks = end[KVT_AXIS_B] - begin[KVT_AXIS_B];
	const struct box_seen *seen = result;
	const uint64_t *page = (const void *)(seen + 1);
	const uint32_t *flag = (const void *)(page + layers * blocks * (1 + l->words));

	if (nbytes != kvt_looking_bytes(l, layers, blocks) || !are_sound(l, seen))
		return false;
	for (int d = 0; d < KVT_NDUTIES; d++)
		if (seen->by[d].slots)
			odd_add(&l->out->by[d], &seen->by[d]);
	for (int64_t i = 0; i < seen->nlive; i++)
		if (l->out->nlive++ < KVT_MAX_PLACES && i < KVT_MAX_PLACES)
			l->out->live[l->out->nlive - 1] = seen->live[i];
	for (int64_t layer = begin[KVT_AXIS_L]; layer < end[KVT_AXIS_L]; layer++)
		for (int64_t b = begin[KVT_AXIS_B]; b < end[KVT_AXIS_B]; b++) {
			take_page(l, layer, b, page);
			for (int64_t s = 0; s < l->slots; s++)
				take_slot(l, layer, b, s, flag[s]);
			page += 1 + l->words;
			flag += l->slots;
		}
	return true;
}
