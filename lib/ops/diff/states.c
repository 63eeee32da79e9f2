/* SPDX-License-Identifier: Apache-2.0 */
/*
 * states.c - recurrent states of two engines, brought into one order
 *
 * Engines store one state in several ways.  A convolution keeps as many inputs as its
 * kernel has (transformers) or one fewer: the newest are compared.  A head is [value]
 * [key] or [key][value], which transformers decides by the model and does not say: the
 * parts of a convolution (q, k, v or x, B, C), the model of a file of llama.cpp or two
 * extents that differ tell it.  And a file of llama.cpp has rows, [channel][tap] or
 * [head][value][key], whose extents are those of the other side.
 *
 * All of these are one thing here: the layout that a side is read in (p->read), so that
 * equal elements are equal places, and 'inner', which says where an element came from.
 * What nothing tells is refused, never guessed: two states of 128 x 128 would compare
 * as different in every element, for no other reason than their order.
 */
#include "lib/ops/diff/internal.h"

#include <string.h>

#include "lib/base/print.h"

/* ---- rows of llama.cpp -------------------------------------------------- */

bool is_state_row(const struct kvt_group *group)
{
	return group->kind == KVT_OPAQUE && group->tokens_per_slot < 0 &&
	       (!strcmp(group->id, "r") || !strcmp(group->id, "s"));
}

/* The only group of a kind; NULL: there is none, or several. */
static const struct kvt_group *only_one(const struct kvt_snapshot *s, enum kvt_kind kind)
{
	const struct kvt_group *found = NULL;
	int n = 0;

	for (int g = 0; g < s->ngroups; g++)
		if (s->group[g].kind == kind && !n++)
			found = &s->group[g];
	return n == 1 ? found : NULL;
}

bool is_row_of(const struct kvt_group *row, const struct kvt_group *group,
	       const struct kvt_snapshot *in)
{
	enum kvt_kind kind = row->id[0] == 'r' ? KVT_MAMBA_CONV : KVT_MAMBA_SSM;

	return is_state_row(row) && only_one(in, kind) == group;
}

bool has_state_rows(const struct kvt_snapshot *s)
{
	for (int g = 0; g < s->ngroups; g++)
		if (is_state_row(&s->group[g]))
			return true;
	return false;
}

/* ---- what model it is --------------------------------------------------- */

/*
 * Models of llama.cpp whose rows are known: 'tiled' ones have the value heads of a key
 * head apart.  Those of other models may be anything.
 */
enum family { UNKNOWN, MAMBA, DELTA };
static const struct {
	const char *model;
	enum family family;
	bool tiled;
} models[] = {
	{ "mamba", MAMBA, false }, { "mamba2", MAMBA, false }, { "jamba", MAMBA, false },
	{ "falcon-h1", MAMBA, false }, { "granitehybrid", MAMBA, false },
	{ "nemotron_h", MAMBA, false }, { "nemotron_h_moe", MAMBA, false },
	{ "lfm2", UNKNOWN, false }, { "lfm2moe", UNKNOWN, false },
	{ "qwen3next", DELTA, false }, { "kimi-linear", DELTA, false },
	{ "qwen35", DELTA, true }, { "qwen35moe", DELTA, true },
	{ "qwen4exp", DELTA, true },
};
enum { NMODELS = sizeof(models) / sizeof(models[0]) };

static const struct kvt_snapshot *snapshot_of(const struct diff_pair *p, int side)
{
	return kvt_dump_snapshot(p->side[side]->dump);
}

static int model_of(const struct kvt_snapshot *s)
{
	int i = 0;

	while (i < NMODELS && (!s->model || strcmp(models[i].model, s->model)))
		i++;
	return i;
}

static enum family family_of(const struct diff_pair *p)
{
	for (int s = 0; s < NSIDES; s++) {
		const struct kvt_snapshot *in = snapshot_of(p, s);

		for (int g = 0; g < in->ngroups; g++) {
			if (in->group[g].kind != KVT_MAMBA_CONV)
				continue;
			if (kvt_component_named(&in->group[g], "q"))
				return DELTA;
			if (kvt_component_named(&in->group[g], "x"))
				return MAMBA;
		}
		if (has_state_rows(in) && model_of(in) < NMODELS)
			return models[model_of(in)].family;
	}
	return UNKNOWN;
}

/*
 * llama.cpp may have the value heads in an order of its own, where several share a key:
 * of some models it has, and a file of one sequence does not say its model.
 */
static enum kvt_status check_model(const struct diff_pair *p, int row,
				   struct kvt_error *err)
{
	const char *name = snapshot_of(p, row)->model;
	const struct kvt_snapshot *in = snapshot_of(p, !row);
	const struct kvt_group *conv = only_one(in, KVT_MAMBA_CONV);
	const struct kvt_group *ssm = only_one(in, KVT_MAMBA_SSM);
	int model = model_of(snapshot_of(p, row));
	int64_t heads, v, k, keys;

	if (name && model == NMODELS)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: it is not known what llama.cpp keeps in the states of %.60s",
				p->id, name);
	if (family_of(p) == MAMBA || !conv || !ssm || !ssm->state[0] || !ssm->state[1] ||
	    (model < NMODELS && !models[model].tiled))
		return KVT_OK;
	heads = ssm->shape.n[KVT_AXIS_H];
	v = ssm->state[ssm->state_order != KVT_STATE_VK];
	k = ssm->state[ssm->state_order == KVT_STATE_VK];
	keys = conv->shape.n[KVT_AXIS_D] - heads * v;
	if (keys == 2 * heads * k)
		return KVT_OK;
	if (model < NMODELS)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: llama.cpp keeps the value heads of %s in an order of its own, the first ones of all key heads before the second ones; diff cannot undo that",
				p->id, models[model].model);
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: %c does not say its model, and of some models llama.cpp keeps the value heads in another order: give --set arch=qwen3next or what it is",
			p->id, "AB"[row]);
}

/* ---- convolutions ------------------------------------------------------- */

static void read_turned(struct diff_pair *p, int side, int64_t inner)
{
	struct kvt_order *order = &p->read[side].plane[0];

	p->inner[side] = inner;
	p->reordered = true;
	/* D is the last part */
	order->part[order->nparts - 1] =
		(struct kvt_part){ KVT_AXIS_D, KVT_INNER, inner };
	order->part[order->nparts++] = (struct kvt_part){ KVT_AXIS_D, KVT_OUTER, inner };
}

static bool is_in_order(const struct kvt_group *group)
{
	for (int i = 0; i < group->ncomponents; i++)
		if (group->component[i].start != group->component[i].global_start)
			return false;
	return true;
}

static enum kvt_status pair_taps(struct diff_pair *p, struct kvt_error *err)
{
	int64_t a = p->slots[SIDE_A], b = p->slots[SIDE_B];

	p->taps = a < b ? a : b;
	p->reordered |= a != b;
	if (a - p->taps > 1 || b - p->taps > 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld taps in A and %lld in B: it is not known which are the same, engines differ by one at most",
				p->id, LL(a), LL(b));
	return KVT_OK;
}

static enum kvt_status pair_conv(struct diff_pair *p, int row, struct kvt_error *err)
{
	for (int s = 0; s < NSIDES; s++)
		if (p->group[s]->ncomponents && !p->group[!s]->ncomponents &&
		    !is_in_order(p->group[s]))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: channels of %c are parts of the model's, and %c does not say which it has",
					p->id, "AB"[s], "BA"[s]);
	if (row >= 0) {
		int64_t width = p->group[row]->shape.n[KVT_AXIS_D];
		int64_t channels = p->group[!row]->shape.n[KVT_AXIS_D];

		p->content = channels;
		p->slots[row] = channels ? width / channels : 0;
		if (!p->slots[row] || width % channels)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: a row of %lld elements in %c is not of the %lld channels of %c",
					p->id, LL(width), "AB"[row], LL(channels),
					"BA"[row]);
		read_turned(p, row, p->slots[row]);
	}
	return pair_taps(p, err);
}

/* ---- heads -------------------------------------------------------------- */

static struct kvt_text inside_state(const struct kvt_group *group)
{
	int n = 0;

	while (n < KVT_STATE_AXES && group->state[n])
		n++;
	return kvt_extents_text(n, group->state);
}

static enum kvt_status other_extents(const struct diff_pair *p, bool turned,
				     struct kvt_error *err)
{
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: a head of a state is %s in A and %s in B%s", p->id, inside_state(p->group[SIDE_A]).s,
			inside_state(p->group[SIDE_B]).s, turned ?
			", keys outside values on one side, and inside on the other" : "");
}

static enum kvt_status unknown_order(const struct diff_pair *p, int side,
				     struct kvt_error *err)
{
	if (is_state_row(p->group[side]) && !snapshot_of(p, side)->model)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %c does not say its model, which the order of a head depends on: give --set arch=qwen3next or what it is",
				p->id, "AB"[side]);
	if (is_state_row(p->group[side]))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the order of a head of %c is known only of files of llama.cpp of version 10, or of version 3 if of one sequence",
				p->id, "AB"[side]);
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: it is not known whether a head of %s in %c is keys x values, or of Mamba values x keys: give --set recurrent=kv or --set recurrent=vk",
			p->id, inside_state(p->group[side]).s, "AB"[side]);
}

static enum kvt_state_order order_of(const struct diff_pair *p, int side,
				     enum family family)
{
	enum kvt_state_order order = p->group[side]->state_order;

	if (family == MAMBA)
		return order == KVT_STATE_EITHER ? KVT_STATE_VK : order;
	if (is_state_row(p->group[side]))
		return family == UNKNOWN ? KVT_STATE_EITHER : order;
	return order == KVT_STATE_EITHER && family == DELTA ? KVT_STATE_KV : order;
}

/* Of two extents that differ, each can be only one of them. */
static void order_by_extents(enum kvt_state_order order[NSIDES], const int64_t *a,
			     const int64_t *b)
{
	for (int s = 0; a[0] != a[1] && s < NSIDES; s++)
		if (order[s] == KVT_STATE_EITHER && order[!s] != KVT_STATE_EITHER)
			order[s] = !memcmp(a, b, 2 * sizeof(*a)) ? order[!s] :
				   order[!s] == KVT_STATE_VK ? KVT_STATE_KV :
							       KVT_STATE_VK;
}

static enum kvt_status check_extents(const struct diff_pair *p, bool turned,
				     struct kvt_error *err)
{
	const int64_t *a = p->group[SIDE_A]->state, *b = p->group[SIDE_B]->state;

	if (!a[0] || !b[0])
		return KVT_OK;
	if (turned ? a[0] == b[1] && a[1] == b[0] :
		     !memcmp(a, b, sizeof(p->group[SIDE_A]->state)))
		return KVT_OK;
	return other_extents(p, turned, err);
}

static enum kvt_status pair_order(struct diff_pair *p, int row, struct kvt_error *err)
{
	const int64_t *state[NSIDES] = { p->group[SIDE_A]->state,
					 p->group[SIDE_B]->state };
	const enum family family = family_of(p);
	enum kvt_state_order order[NSIDES];
	int known = state[SIDE_A][0] ? SIDE_A : SIDE_B;

	for (int s = 0; s < NSIDES; s++)
		order[s] = order_of(p, s, family);
	/* a head of one extent, or of unknown ones in both, has no other order */
	if (!state[known][0] || !state[known][1] || state[known][2])
		return check_extents(p, false, err);
	if (state[!known][0])
		order_by_extents(order, state[SIDE_A], state[SIDE_B]);
	if (order[SIDE_A] == order[SIDE_B] && (row < 0 || order[row] == KVT_STATE_VK))
		return check_extents(p, false, err);
	for (int s = 0; s < NSIDES; s++)
		if (order[s] == KVT_STATE_EITHER)
			return unknown_order(p, row >= 0 && order[row] ==
					     KVT_STATE_EITHER ? row : s, err);
	/* the one of keys outside is turned; a row never is */
	known = order[SIDE_A] == KVT_STATE_KV ? SIDE_A : SIDE_B;
	if (!state[known][0])
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %c does not say the extents of a head, so its order cannot be changed",
				p->id, "AB"[known]);
	read_turned(p, known, state[known][1]);
	return check_extents(p, true, err);
}

static enum kvt_status pair_ssm(struct diff_pair *p, int row, struct kvt_error *err)
{
	const struct kvt_group *other = p->group[row == SIDE_A];
	int64_t width, heads = other->shape.n[KVT_AXIS_H];

	if (row < 0)
		return pair_order(p, row, err);
	width = p->group[row]->shape.n[KVT_AXIS_D];
	p->content = other->shape.n[KVT_AXIS_D];
	if (other->head_start || other->total_heads != heads)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %c has all heads of the model, and %c some of them",
				p->id, "AB"[row], "BA"[row]);
	if (width != heads * p->content)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a row of %lld elements in %c is not of the %lld heads of %lld of %c",
				p->id, LL(width), "AB"[row], LL(heads), LL(p->content),
				"BA"[row]);
	return pair_order(p, row, err);
}

enum kvt_status pair_states(struct diff_pair *p, struct kvt_error *err)
{
	int row = -1;
	enum kvt_status status;

	for (int s = 0; s < NSIDES; s++)
		if (is_state_row(p->group[s]) && !is_state_row(p->group[!s])) {
			p->row[s] = true;
			p->reordered = true;
			row = s;
		}
	if (row >= 0 && (status = check_model(p, row, err)))
		return status;
	status = p->group[row == SIDE_A]->kind == KVT_MAMBA_CONV ?
		 pair_conv(p, row, err) : pair_ssm(p, row, err);
	for (int s = 0; !status && row >= 0 && s < NSIDES; s++)
		p->stored[s] = p->content;
	return status;
}

/* ---- where an element is ------------------------------------------------ */

void state_index(const struct diff_pair *p, int side, int64_t index[KVT_NAXES])
{
	int64_t d = index[KVT_AXIS_D], inner = p->inner[side];

	if (p->row[side] && inner) {
		index[KVT_AXIS_D] = d * inner + index[KVT_AXIS_S];
		index[KVT_AXIS_S] = 0;
	} else if (p->row[side]) {
		index[KVT_AXIS_D] = index[KVT_AXIS_H] * p->content + d;
		index[KVT_AXIS_H] = 0;
	} else if (inner) {
		int64_t outer = p->content / inner;

		index[KVT_AXIS_D] = d % outer * inner + d / outer;
	}
}
