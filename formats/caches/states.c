/* SPDX-License-Identifier: Apache-2.0 */
/*
 * states.c - recurrent states in a cache of transformers
 *
 *	conv	[batch, channels, taps], of mlx [batch, taps, channels]
 *	state	[batch, heads, ...]: what a recurrence has made of all tokens
 *
 * A state stands for all tokens up to it: of a short convolution the newest inputs.
 * States of one kind, shape and type are a
 * group, a row of the batch is a block of it.  A layer may have several, by number, and
 * each number is groups of its own.
 */
#include "formats/caches/open.h"

#include <stdlib.h>
#include <string.h>

#include "formats/describe/describe.h"
#include "formats/tensor/names.h"

enum { MAX_STATES = 64 };

/* ---- what there is ------------------------------------------------------ */

/* The number that stands before 'end' as a part of the name; -1: there is none. */
static int64_t number_before(const char *name, const char *end)
{
	int64_t out = -1;

	for (const char *at = name; at < end; at += strcspn(at, ".") + 1) {
		size_t n = strspn(at, "0123456789");

		if (n && n < 7 && (at[n] == '.' || !at[n]))
			out = strtoll(at, NULL, 10);
	}
	return out;
}

/* "layers.3.conv_states.0": state 0 of layer 3; "conv_states.3": that of layer 3. */
static bool take_numbers(struct cache_state *out, const char *name, const char *after)
{
	int64_t last;

	if (!after) {
		out->number = out->tensor->held.layer;
		return true;
	}
	last = *after ? number_before(after + 1, after + strlen(after)) : 0;

	out->number = number_before(name, after);
	out->which = last;
	if (out->number < 0) {
		out->number = *after ? last : -1;
		out->which = 0;
	}
	/* three in the place of one */
	if (after[-2] == '_' && strchr("qkv", after[-1]))
		out->which = strchr("qkv", after[-1]) - "qkv";
	return out->number >= 0 && out->which >= 0 && out->which < MAX_STATES;
}

static enum kvt_status take_state(struct cache_state *out, const struct cache_opening *o,
				  const struct kvt_tensor *t, enum kvt_role role,
				  const char *after)
{
	const char *path = o->reader->leaf.path;
	int least = role == KVT_ROLE_CONV ? 3 : 2;
	enum kvt_status status;

	*out = (struct cache_state){ .tensor = t, .role = role };
	if ((status = kvt_tensor_check(t, path, o->err)))
		return status;
	if (!take_numbers(out, t->name, after))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: cannot tell the layer of '%.100s'", path, t->name);
	if (t->rank < least || t->rank > 4 || (role == KVT_ROLE_CONV && t->rank != 3))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tensor %.100s has %d axes, expected batch, %s", path,
				t->name, t->rank, role == KVT_ROLE_CONV ?
				"channels and taps" : "heads and those of a state");
	for (int i = 1; i < t->rank; i++)
		if (!t->shape[i])
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: tensor %.100s has no elements", path, t->name);
	return KVT_OK;
}

static int in_order(const void *one, const void *other)
{
	const struct cache_state *a = one, *b = other;

	if (a->which != b->which)
		return a->which < b->which ? -1 : 1;
	if (a->role != b->role)
		return a->role < b->role ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

enum kvt_status kvt_cache_find_states(struct cache_opening *o)
{
	const struct kvt_tensors *t = &o->tensors;
	enum kvt_status status;
	const char *after;

	if (!(o->state = calloc((size_t)t->count + 1, sizeof(*o->state))))
		return kvt_no_memory(o->err, o->reader->leaf.path);
	for (int64_t i = 0; i < t->count; i++) {
		enum kvt_role role = kvt_cache_role(&t->tensor[i], &after);

		if (role == KVT_ROLE_UNKNOWN && !kvt_fact(o->hints, "names"))
			return kvt_fail(o->err, KVT_UNSUPPORTED,
					"%s: tensor %.100s is of a %.60s, which kvtool does not know; name tensors of others with --set names=KEYS,VALUES to leave it out",
					o->reader->leaf.path, t->tensor[i].name,
					t->tensor[i].held.class);
		if ((role != KVT_ROLE_CONV && role != KVT_ROLE_STATE) ||
		    cache_is_nothing(&t->tensor[i]))
			continue;
		if ((status = take_state(&o->state[o->nstates], o, &t->tensor[i], role,
					 after)))
			return status;
		o->nstates++;
	}
	qsort(o->state, (size_t)o->nstates, sizeof(*o->state), in_order);
	for (int64_t i = 1; i < o->nstates; i++)
		if (!in_order(&o->state[i - 1], &o->state[i]))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: tensors %.100s and %.100s are the same recurrent state",
					o->reader->leaf.path,
					o->state[i - 1].tensor->name,
					o->state[i].tensor->name);
	return KVT_OK;
}

/* ---- groups ------------------------------------------------------------- */

static bool is_alike(const struct cache_state *a, const struct cache_state *b)
{
	return a->role == b->role && a->which == b->which &&
	       a->tensor->rank == b->tensor->rank &&
	       !memcmp(a->tensor->shape, b->tensor->shape,
		       (size_t)a->tensor->rank * sizeof(*a->tensor->shape)) &&
	       !strcmp(a->tensor->type, b->tensor->type);
}

/* The id says the kind; the number of the state, where a layer has several. */
static void name_group(char id[16], const struct kvt_snapshot *s,
		       const struct cache_state *state)
{
	const char *kind = state->role == KVT_ROLE_CONV ? "conv" : "ssm";
	int n = 0;

	for (int g = 0; g < s->ngroups; g++)
		n += !strncmp(s->group[g].id, kind, strlen(kind));
	snprintf(id, 16, n ? "%s%d" : "%s", kind, n);
}

/*
 * The order that a head is stored in: as the name has it, as the user says, or as mlx
 * does it in all models.  A head of one extent has just one.
 */
static enum kvt_status take_order(struct kvt_group *group, const struct cache_opening *o,
				  const struct kvt_tensor *t)
{
	const char *told = kvt_fact(o->hints, "recurrent"), *after;
	enum kvt_state_order order;
	const struct kvt_role_word *word = t->held.role ? NULL :
					   kvt_role_word(t->name, &after);

	kvt_group_set_state(group, t->shape + 2, t->rank - 2);
	if (t->rank != 4)
		return KVT_OK;
	group->state_order = word ? word->order : KVT_STATE_VK;
	if (!told || !word)
		return KVT_OK;
	order = kvt_state_order_find(told);
	if (order != KVT_STATE_VK && order != KVT_STATE_KV)
		return kvt_fail(o->err, KVT_USAGE,
				"--set recurrent=%.60s, expected vk (heads of values x keys, as Mamba's) or kv (keys x values)",
				told);
	if (group->state_order != KVT_STATE_EITHER && group->state_order != order)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: --set recurrent=%s, but %.100s is of order %s",
				o->reader->leaf.path, told, t->name,
				kvt_state_order_name(group->state_order));
	group->state_order = order;
	return KVT_OK;
}

static enum kvt_status add_group(struct cache_opening *o, const struct cache_state *state)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	const struct kvt_tensor *t = state->tensor;
	bool conv = state->role == KVT_ROLE_CONV;
	struct kvt_group *group;
	enum kvt_status status;
	char id[16];

	name_group(id, s, state);
	if ((status = kvt_manifest_add_group(&group, s, id, o->reader->leaf.path,
					     o->err)) ||
	    (status = kvt_layout_parse(&group->layout, !conv ? "ssm" :
				       t->held.taps_first ? "conv-sd" : "conv-ds",
				       o->err)))
		return status;
	group->dtype = t->dtype;
	if (!group->dtype)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: elements of %.100s are %s, not of a known type",
				o->reader->leaf.path, t->name, t->type);
	group->kind = conv ? KVT_MAMBA_CONV : KVT_MAMBA_SSM;
	group->tokens_per_slot = -1;
	group->shape.elem = group->dtype->elem;
	group->shape.n[KVT_AXIS_L] = 0;
	group->shape.n[KVT_AXIS_B] = t->shape[0];
	group->shape.n[KVT_AXIS_K] = 1;
	group->shape.n[KVT_AXIS_S] = conv ? t->shape[2 - t->held.taps_first] : 1;
	group->shape.n[KVT_AXIS_H] = conv ? 1 : t->shape[1];
	group->shape.n[KVT_AXIS_D] = conv ? t->shape[1 + t->held.taps_first] : 1;
	/* below the bytes of the file */
	for (int i = 2; !conv && i < t->rank; i++)
		group->shape.n[KVT_AXIS_D] *= t->shape[i];
	return conv ? KVT_OK : take_order(group, o, t);
}

enum kvt_status kvt_cache_state_groups(struct cache_opening *o)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < o->nstates; i++) {
		struct cache_state *state = &o->state[i];
		int64_t j = 0;

		if (state->tensor->shape[0] != o->nrows)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: tensor %.100s has a batch of %lld, others of %lld",
					o->reader->leaf.path, state->tensor->name,
					LL(state->tensor->shape[0]), LL(o->nrows));
		while (j < i && !is_alike(state, &o->state[j]))
			j++;
		state->group = j < i ? o->state[j].group : s->ngroups;
		if (j == i)
			status = add_group(o, state);
		if (!status)
			state->place = s->group[state->group].shape.n[KVT_AXIS_L]++;
	}
	return status;
}

/* ---- data --------------------------------------------------------------- */

/* The axes of a state lie as they are written; one that is strided is refused. */
static enum kvt_status add_state(struct cache_opening *o, const struct cache_state *state)
{
	const struct kvt_group *group = &o->reader->leaf.snapshot.group[state->group];
	struct kvt_file_part part = { .file = o->file };
	const struct kvt_tensor *t = state->tensor;
	struct kvt_view *view = &part.views.view[0];
	int64_t dense = group->shape.elem, stride[4];
	enum kvt_status status;

	part.box = kvt_box_whole(&group->shape);
	part.box.begin[KVT_AXIS_L] = state->place;
	part.box.end[KVT_AXIS_L] = state->place + 1;
	for (int i = t->rank - 1; i >= 0; i--) {
		stride[i] = t->strided ? t->stride[i] : dense;
		dense *= t->shape[i];
	}
	for (int i = 2; state->role == KVT_ROLE_STATE && i + 1 < t->rank; i++)
		if (stride[i] != stride[i + 1] * t->shape[i + 1])
			return kvt_fail(o->err, KVT_UNSUPPORTED,
					"%s: the elements of a recurrent state in tensor %.100s are not in a row; save a contiguous() one",
					o->reader->leaf.path, t->name);
	if ((status = kvt_layout_views(&part.views, &group->layout, &part.box,
				       group->shape.elem, o->err)))
		return status;
	kvt_view_set_stride(view, KVT_AXIS_B, stride[0]);
	if (state->role == KVT_ROLE_CONV) {
		kvt_view_set_stride(view, KVT_AXIS_D, stride[1 + t->held.taps_first]);
		kvt_view_set_stride(view, KVT_AXIS_S, stride[2 - t->held.taps_first]);
	} else {
		kvt_view_set_stride(view, KVT_AXIS_H, stride[1]);
		kvt_view_set_stride(view, KVT_AXIS_D, t->rank > 2 ? stride[t->rank - 1] :
				    group->shape.elem);
	}
	view->offset = o->tensors.data + t->begin;
	return kvt_flat_add(&o->reader->flat[state->group], &part, o->err);
}

enum kvt_status kvt_cache_state_data(struct cache_opening *o)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < o->nstates; i++)
		status = add_state(o, &o->state[i]);
	return status;
}
