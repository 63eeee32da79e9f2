/* SPDX-License-Identifier: Apache-2.0 */
/*
 * align.c - which groups, layers, heads and channels both sides have
 *
 * In: what each side says of itself; no data.  Groups of one kind that share a layer
 * become a pair; within a pair layers are matched by their number in the model, heads
 * by theirs, channels of a conv state by component and number, keys and values by
 * which half a group holds.  Whatever one side alone has goes to 'unmatched', so that
 * the caller can refuse a comparison that would leave something out.  What a single
 * slot is must be the same on both sides, for no part of it could be left out.
 *
 * Invariant: an element of a side is in at most one pair.  Cost: layers of A times
 * groups of B, sorted lists otherwise.
 */
#include "lib/ops/diff/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ops/compare/pairs.h"
#include "lib/snapshot/ids.h"

/* ---- layers ------------------------------------------------------------- */

/* One holds keys alone and the other values, in dumps where both are apart. */
static bool is_other_half(const struct kvt_group *a, const struct kvt_group *b)
{
	return kvt_group_half(a) >= 0 && kvt_group_half(b) >= 0 &&
	       kvt_group_half(a) != kvt_group_half(b);
}

static bool alike(const struct kvt_snapshot *const in[NSIDES],
		  const struct kvt_group *a, const struct kvt_group *b)
{
	return (a->kind == b->kind && !is_other_half(a, b)) ||
	       is_row_of(a, b, in[SIDE_B]) || is_row_of(b, a, in[SIDE_A]);
}

/*
 * A file of llama.cpp numbers the layers of each kind by themselves, from 0, where some
 * are recurrent: then they are the same ones in their order.
 */
static bool is_numbered_apart(const struct kvt_snapshot *const in[NSIDES])
{
	return has_state_rows(in[SIDE_A]) != has_state_rows(in[SIDE_B]);
}

/* Has side 's' a group of this name that has the layer and is like 'group'? */
static bool has_namesake(const struct kvt_snapshot *const in[NSIDES], int s,
			 const char *name, const struct kvt_group *group, uint64_t id)
{
	int g = kvt_group_named(in[s], name);
	const struct kvt_group *own = g < 0 ? NULL : &in[s]->group[g];

	return own && alike(in, s ? group : own, s ? own : group) &&
	       kvt_group_has_layer(own, id);
}

/*
 * Is a layer that both groups have the same one?  Several groups of one kind may
 * have a layer, two kinds of states say; those of one name belong together then.
 */
static bool same_layer(const struct kvt_snapshot *const in[NSIDES],
		       const struct kvt_group *a, const struct kvt_group *b, uint64_t id)
{
	return alike(in, a, b) &&
	       (!strcmp(a->id, b->id) || (!has_namesake(in, SIDE_B, a->id, a, id) &&
					  !has_namesake(in, SIDE_A, b->id, b, id)));
}

static enum kvt_status pair_in_order(struct diff_pair *p, struct kvt_error *err)
{
	int64_t a = p->group[SIDE_A]->shape.n[KVT_AXIS_L];
	int64_t b = p->group[SIDE_B]->shape.n[KVT_AXIS_L];

	if (a != b)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld layers in A and %lld in B, and a file of llama.cpp with recurrent layers does not say the numbers of either kind",
				p->id, LL(a), LL(b));
	for (; p->nlayers < a; p->nlayers++)
		p->layer[SIDE_A][p->nlayers] = p->layer[SIDE_B][p->nlayers] = p->nlayers;
	return KVT_OK;
}

static enum kvt_status pair_layers(struct diff_pair *p, struct kvt_error *err)
{
	const struct kvt_group *a = p->group[SIDE_A], *b = p->group[SIDE_B];
	const struct kvt_snapshot *in[NSIDES];
	struct id_index *list = id_index_of(b, KVT_AXIS_L);
	int64_t n = b->shape.n[KVT_AXIS_L], *in_a = NULL;
	enum kvt_status status = axis_pairs(&in_a, KVT_AXIS_L, a, b, err);

	for (int s = 0; s < NSIDES; s++) {
		in[s] = kvt_dump_snapshot(p->side[s]->dump);
		p->layer[s] = calloc((size_t)n + 1, sizeof(*p->layer[s]));
		if (!status && (!list || !p->layer[s]))
			status = kvt_no_memory(err, NULL);
	}
	if (!status && is_numbered_apart(in)) {
		status = pair_in_order(p, err);
		n = 0;
	}
	for (int64_t i = 0; !status && i < n; i++) {
		int64_t l = list[i].index;

		/* an element is in one pair at most, also of ids that come twice */
		if (in_a[l] < 0 || (i && list[i].id == list[i - 1].id) ||
		    !same_layer(in, a, b, list[i].id))
			continue;
		p->layer[SIDE_A][p->nlayers] = in_a[l];
		p->layer[SIDE_B][p->nlayers++] = l;
	}
	free(list);
	free(in_a);
	return status;
}

/* Is a layer of a group of side 's' compared with one of the other side? */
static bool is_shared(const struct kvt_snapshot *const in[NSIDES], int s,
		      const struct kvt_group *group, uint64_t id)
{
	for (int g = 0; g < in[!s]->ngroups; g++) {
		const struct kvt_group *other = &in[!s]->group[g];

		if (is_numbered_apart(in) &&
		    alike(in, s ? other : group, s ? group : other))
			return true;
		if (kvt_group_has_layer(other, id) &&
		    same_layer(in, s ? other : group, s ? group : other, id))
			return true;
	}
	return false;
}

/* "3, 5-7", no longer than the buffer; false if there are none. */
static bool list_unmatched(char text[96], const struct kvt_snapshot *const in[NSIDES],
			   int s, const struct kvt_group *group, struct kvt_error *err)
{
	struct id_index *list = id_index_of(group, KVT_AXIS_L);
	int64_t n = group->shape.n[KVT_AXIS_L], begin = -1;
	int used = 0;

	if (!list) {
		kvt_no_memory(err, NULL);
		return false;
	}
	text[0] = '\0';
	for (int64_t i = 0; i <= n; i++) {
		bool alone = i < n && !is_shared(in, s, group, list[i].id);

		if (alone && begin < 0)
			begin = i;
		if (alone || begin < 0 || used > 60)
			continue;
		used += snprintf(text + used, 96 - (size_t)used, "%s%lld",
				 used ? ", " : "", LL(list[begin].id));
		if (i - begin > 1)
			used += snprintf(text + used, 96 - (size_t)used, "-%lld",
					 LL(list[i - 1].id));
		if (used > 60)
			snprintf(text + used, 96 - (size_t)used, ", ...");
		begin = -1;
	}
	free(list);
	return used > 0;
}

void unmatched_layers(struct diff_unmatched *unmatched,
		      const struct diff_side side[NSIDES], int s, struct kvt_error *err)
{
	const struct kvt_snapshot *in[NSIDES] = {
		kvt_dump_snapshot(side[SIDE_A].dump),
		kvt_dump_snapshot(side[SIDE_B].dump),
	};
	char text[96];

	for (int g = 0; g < in[s]->ngroups; g++)
		if (list_unmatched(text, in, s, &in[s]->group[g], err))
			unmatched_add(unmatched, s, "layers %s of %s (%s)", text,
				      in[s]->group[g].id,
				      kvt_kind_name(in[s]->group[g].kind));
}

/* ---- heads and channels ------------------------------------------------- */

static void unmatched_heads(const struct diff_pair *p, struct diff_unmatched *unmatched,
			    int side, int64_t begin, int64_t end)
{
	if (begin + 1 == end)
		unmatched_add(unmatched, side, "head %lld of %s", LL(begin),
			      p->group[side]->id);
	else if (begin < end)
		unmatched_add(unmatched, side, "heads %lld to %lld of %s", LL(begin),
			      LL(end - 1), p->group[side]->id);
}

static enum kvt_status no_heads(const struct diff_pair *p, struct kvt_error *err)
{
	int64_t first[NSIDES], last[NSIDES];

	for (int s = 0; s < NSIDES; s++) {
		first[s] = p->group[s]->head_start;
		last[s] = first[s] + p->group[s]->shape.n[KVT_AXIS_H] - 1;
	}
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: A holds heads %lld to %lld and B heads %lld to %lld: none in common",
			p->id, LL(first[SIDE_A]), LL(last[SIDE_A]), LL(first[SIDE_B]),
			LL(last[SIDE_B]));
}

/* Of both sides they follow each other. */
static enum kvt_status pair_heads(struct diff_pair *p, struct diff_unmatched *unmatched,
				  struct kvt_error *err)
{
	int64_t n = p->group[SIDE_B]->shape.n[KVT_AXIS_H], *in_a;
	enum kvt_status status;

	if (p->row[SIDE_A] || p->row[SIDE_B]) {
		p->nheads = p->group[p->row[SIDE_A]]->shape.n[KVT_AXIS_H];
		return KVT_OK;
	}
	status = axis_pairs(&in_a, KVT_AXIS_H, p->group[SIDE_A], p->group[SIDE_B], err);
	for (int64_t h = 0; !status && h < n; h++) {
		if (in_a[h] < 0)
			continue;
		if (!p->nheads++) {
			p->head[SIDE_A] = in_a[h];
			p->head[SIDE_B] = h;
		}
	}
	free(in_a);
	if (!status && !p->nheads)
		status = no_heads(p, err);
	for (int s = 0; !status && s < NSIDES; s++) {
		int64_t begin = p->group[s]->head_start, first = begin + p->head[s];

		unmatched_heads(p, unmatched, s, begin, first);
		unmatched_heads(p, unmatched, s, first + p->nheads,
				begin + p->group[s]->shape.n[KVT_AXIS_H]);
	}
	return status;
}

/* Of one component of a side: channels that the other has not. */
static void unmatched_channels(const struct diff_pair *p, int side,
			       const struct kvt_component *c,
			       struct diff_unmatched *unmatched)
{
	int64_t count = 0;

	if (!kvt_component_named(p->group[!side], c->name)) {
		unmatched_add(unmatched, side, "part %s of %s", c->name,
			      p->group[side]->id);
		return;
	}
	for (int r = 0; r < p->nruns; r++)
		if (p->run[r].from[side] >= c->start &&
		    p->run[r].from[side] < c->start + c->length)
			count += p->run[r].count;
	if (count < c->length)
		unmatched_add(unmatched, side,
			      "channels %lld to %lld (%s) of %s, or some of them",
			      LL(c->global_start), LL(c->global_start + c->length - 1),
			      c->name, p->group[side]->id);
}

/* Is channel i of A, which is j of B, the next one of the run, of the same component? */
static bool goes_on(const struct diff_pair *p, int64_t i, int64_t j)
{
	const struct diff_channels *run;
	const struct kvt_group *a = p->group[SIDE_A];

	if (!p->nruns)
		return false;
	run = &p->run[p->nruns - 1];
	return i == run->from[SIDE_A] + run->count &&
	       j == run->from[SIDE_B] + run->count &&
	       kvt_group_component(a, i) == kvt_group_component(a, i - 1);
}

static enum kvt_status pair_channels(struct diff_pair *p,
				     struct diff_unmatched *unmatched,
				     struct kvt_error *err)
{
	const struct kvt_group *a = p->group[SIDE_A], *b = p->group[SIDE_B];
	int64_t *in_b;
	enum kvt_status status = axis_pairs(&in_b, KVT_AXIS_D, b, a, err);

	for (int64_t i = 0; !status && i < a->shape.n[KVT_AXIS_D]; i++) {
		if (in_b[i] < 0)
			continue;
		if (p->nruns == KVT_MAX_COMPONENTS && !goes_on(p, i, in_b[i]))
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s: channels lie in more than %d runs", p->id,
					  KVT_MAX_COMPONENTS);
		else if (!goes_on(p, i, in_b[i]))
			p->run[p->nruns++] = (struct diff_channels){
				.at = p->content, .from = { i, in_b[i] },
			};
		p->run[p->nruns - 1].count++;
		p->content++;
	}
	free(in_b);
	for (int s = 0; !status && s < NSIDES; s++)
		for (int i = 0; i < p->group[s]->ncomponents; i++)
			unmatched_channels(p, s, &p->group[s]->component[i], unmatched);
	if (!status && !p->nruns)
		status = kvt_fail(err, KVT_BAD_INPUT, "%s: no channels in common", p->id);
	return status;
}

/* Slots of a packed content may be other slots when they are numbers. */
static const char *needs_decoding(const struct diff_pair *p)
{
	for (int s = 0; s < NSIDES; s++) {
		const struct kvt_group *g = p->group[s];
		struct kvt_packing packing;

		if (!g->content.type)
			continue;
		packing = kvt_group_packing(g);
		if (g->content.type->planar || packing.halves == 2 || packing.fold > 1)
			return s ?
			"; compare the output of kvtool convert --decode=float32 of B" :
			"; compare the output of kvtool convert --decode=float32 of A";
	}
	return "";
}

/* Keys and values, or the half that one side has. */
static enum kvt_status pair_kv(struct diff_pair *p, struct kvt_error *err)
{
	static const char *const names[] = { "keys and values or something else",
					     "keys alone", "values alone" };
	int half[NSIDES];
	int64_t n[NSIDES];

	for (int s = 0; s < NSIDES; s++) {
		half[s] = kvt_group_half(p->group[s]);
		n[s] = p->group[s]->shape.n[KVT_AXIS_K];
	}
	p->nkv = n[SIDE_A] < n[SIDE_B] ? n[SIDE_A] : n[SIDE_B];
	p->half = p->nkv == 2 ? 0 : half[SIDE_A] >= 0 ? half[SIDE_A] : half[SIDE_B];
	if (n[SIDE_A] == n[SIDE_B] && half[SIDE_A] == half[SIDE_B])
		return KVT_OK;
	for (int s = 0; s < NSIDES; s++)
		if (n[s] == 2 && half[!s] >= 0) {
			p->kv[s] = half[!s];
			return KVT_OK;
		}
	return kvt_fail(err, KVT_BAD_INPUT, "%s: A holds %s, B holds %s%s", p->id,
			names[half[SIDE_A] + 1], names[half[SIDE_B] + 1],
			needs_decoding(p));
}

static enum kvt_rotation rotation_of(const struct kvt_group *group)
{
	const struct kvt_packing packing = kvt_group_packing(group);

	return kvt_packing_rotation(&packing);
}

/*
 * Where one side alone does not say whether it is rotated, the other one tells, if data
 * may be read: until then it has numbers as they are stored.
 */
static void seek_basis(struct diff_pair *p, int side, const struct diff_alignment *how)
{
	struct kvt_packing other = { .nfields = 0 };

	if (p->group[!side]->content.type)
		other = kvt_group_packing(p->group[!side]);
	if (!how->run || !kvt_packing_may_turn(&p->packing[side]) ||
	    (other.nfields && kvt_packing_may_turn(&other)))
		return;
	p->basis = (struct diff_basis){ .open = true, .side = side };
	kvt_packing_take_turn(&p->packing[side], false);
}

/*
 * Packed content is compared byte for byte with its like, unless numbers are
 * wanted; with anything else only numbers can be compared.
 */
static enum kvt_status pair_packed(struct diff_pair *p, const struct diff_alignment *how,
				   struct kvt_error *err)
{
	const struct kvt_group *a = p->group[SIDE_A], *b = p->group[SIDE_B];
	int64_t n[NSIDES];

	p->decoded = (a->content.type || b->content.type) &&
		     (how->numbers || !kvt_content_equal(&a->content, &b->content));
	for (int s = 0; s < NSIDES; s++) {
		const struct kvt_group *g = p->group[s];
		enum kvt_status status;
		struct kvt_error why;

		n[s] = p->stored[s] = g->shape.n[KVT_AXIS_D];
		if (g->content.type)
			p->rotation[s] = rotation_of(g);
		if (p->decoded && !g->content.type && !g->dtype->is_float)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s is %s in A and %s in B: give --content-type if both have it",
					p->id, kvt_group_type(a).s, kvt_group_type(b).s);
		if (!p->decoded || !g->content.type)
			continue;
		p->packing[s] = kvt_group_packing(g);
		seek_basis(p, s, how);
		n[s] = kvt_packing_values(&p->packing[s]);
		if ((status = kvt_packing_readable(&p->packing[s], &why)))
			return kvt_fail(err, status, "%s of %c: %s", g->id, "AB"[s],
					why.text);
	}
	if (p->decoded && n[SIDE_A] != n[SIDE_B])
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a slot has %lld numbers a head in A and %lld in B%s",
				p->id, LL(n[SIDE_A]), LL(n[SIDE_B]), needs_decoding(p));
	p->content = n[SIDE_A];
	return KVT_OK;
}

/* What a slot is must be the same: no part of it could be left out. */
static enum kvt_status pair_content(struct diff_pair *p, const struct diff_alignment *how,
				    struct diff_unmatched *unmatched,
				    struct kvt_error *err)
{
	const struct kvt_group *a = p->group[SIDE_A], *b = p->group[SIDE_B];
	bool parts = a->kind == KVT_MAMBA_CONV && a->ncomponents && b->ncomponents;
	bool row = is_state_row(a) != is_state_row(b);
	enum kvt_status status;

	if ((status = pair_kv(p, err)) || (status = pair_packed(p, how, err)))
		return status;
	if (a->shape.n[KVT_AXIS_D] != b->shape.n[KVT_AXIS_D] && !parts && !row &&
	    !p->decoded)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a slot has %lld elements a head in A and %lld in B",
				p->id, LL(a->shape.n[KVT_AXIS_D]),
				LL(b->shape.n[KVT_AXIS_D]));
	if (p->recurrent && (status = pair_states(p, err)))
		return status;
	if (a->tokens_per_slot != b->tokens_per_slot)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a slot stands for %lld tokens in A and for %lld in B%s",
				p->id, LL(a->tokens_per_slot), LL(b->tokens_per_slot),
				needs_decoding(p));
	p->nruns = 1;
	p->run[0].count = p->content;
	if (!parts)
		return KVT_OK;
	p->nruns = 0;
	p->content = 0;
	status = pair_channels(p, unmatched, err);
	p->stored[SIDE_A] = p->stored[SIDE_B] = p->content;
	return status;
}

/* ---- groups ------------------------------------------------------------- */

void pair_free(struct diff_pair *p)
{
	for (int s = 0; s < NSIDES; s++) {
		free(p->layer[s]);
		kvt_dump_close(p->view[s]);
	}
	free(p->segment);
	free(p->ordered);
}

static void pair_start(struct diff_pair *p, const struct diff_side side[NSIDES],
		       const int group[NSIDES])
{
	memset(p, 0, sizeof(*p));
	for (int s = 0; s < NSIDES; s++) {
		p->side[s] = &side[s];
		p->number[s] = group[s];
		p->group[s] = &kvt_dump_snapshot(side[s].dump)->group[group[s]];
		p->read[s] = kvt_layout_slots;
		p->slots[s] = p->group[s]->shape.n[KVT_AXIS_S];
	}
	p->taps = p->slots[SIDE_A];
	p->recurrent = p->group[SIDE_A]->tokens_per_slot < 0;
	snprintf(p->id, sizeof(p->id), "%s", p->group[SIDE_A]->id);
	if (strcmp(p->group[SIDE_A]->id, p->group[SIDE_B]->id))
		snprintf(p->id, sizeof(p->id), "%s and %s", p->group[SIDE_A]->id,
			 p->group[SIDE_B]->id);
}

enum kvt_status pair_shape(struct diff_pair *p, const struct diff_side side[NSIDES],
			   const int group[NSIDES], const struct diff_alignment *how,
			   struct diff_unmatched *unmatched, struct kvt_error *err)
{
	const struct kvt_snapshot *const in[NSIDES] = {
		kvt_dump_snapshot(side[SIDE_A].dump),
		kvt_dump_snapshot(side[SIDE_B].dump),
	};
	enum kvt_status status;

	pair_start(p, side, group);
	if (!alike(in, p->group[SIDE_A], p->group[SIDE_B]))
		return KVT_OK;
	if ((status = pair_layers(p, err)) || !p->nlayers)
		return status;
	if ((status = pair_content(p, how, unmatched, err)))
		return status;
	return pair_heads(p, unmatched, err);
}

enum kvt_status nothing_in_common(const struct diff_side side[NSIDES],
				  struct kvt_error *err)
{
	const struct kvt_group *a = &kvt_dump_snapshot(side[SIDE_A].dump)->group[0];
	const struct kvt_group *b = &kvt_dump_snapshot(side[SIDE_B].dump)->group[0];

	if (a->kind != b->kind)
		return kvt_fail(err, KVT_BAD_INPUT,
				"nothing in common: %s of A is %s, %s of B is %s", a->id,
				kvt_kind_name(a->kind), b->id, kvt_kind_name(b->kind));
	if (is_other_half(a, b))
		return kvt_fail(err, KVT_BAD_INPUT,
				"nothing in common: A holds %s alone, B holds %s alone",
				kvt_group_half(a) ? "values" : "keys",
				kvt_group_half(b) ? "values" : "keys");
	return kvt_fail(err, KVT_BAD_INPUT,
			"nothing in common: layer %lld is the first of A, layer %lld of B",
			LL(kvt_layer_id(a, 0)), LL(kvt_layer_id(b, 0)));
}
