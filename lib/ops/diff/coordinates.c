/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coordinates.c - what the indices of a finding are in the model and in the dumps
 *
 * A deviation is known by indices of its pair.  From there three ways lead out: to
 * the model (layer, request and token, head, channel), to the pools (block ids), and
 * through the part of the side that has the element to a byte of a file or, where
 * the file holds tiles, of the engine's tensor.  Used for the few that are shown.
 */
#include "lib/ops/diff/internal.h"

#include <string.h>

/* ---- in files ----------------------------------------------------------- */

static struct diff_address
locate_in_side(const struct diff_side *side, int group, const int64_t index[KVT_NAXES])
{
	struct diff_address place = { .file = side->name, .offset = -1,
				    .dim = index[KVT_AXIS_D] };
	int64_t at[KVT_NAXES], buffer;
	const struct kvt_dump *leaf;
	enum kvt_space space;
	int from;

	if (!(leaf = kvt_dump_trace(side->dump, group, index, &from, at)))
		return place;	/* never: every index is in a part */
	place.dim = at[KVT_AXIS_D];
	place.in_memory = kvt_dump_tiling(leaf, from) != NULL;
	space = place.in_memory ? KVT_MEMORY : KVT_FILES;
	for (int i = 0; i < side->nfiles; i++)
		if (side->file[i].reader == leaf)
			place.file = side->file[i].name;
	if (kvt_dump_locate(&buffer, &place.offset, leaf, space, from, at, NULL) ||
	    buffer < 0)
		place.offset = -1;
	else
		place.buffer = kvt_dump_buffer_name(leaf, space, buffer);
	return place;
}

/* ---- in the model ------------------------------------------------------- */

/* The channel of the side that channel d of the pair is. */
static int64_t channel_of(const struct diff_pair *p, int side, int64_t d)
{
	for (int i = 0; i < p->nruns; i++)
		if (d >= p->run[i].at && d < p->run[i].at + p->run[i].count)
			return d - p->run[i].at + p->run[i].from[side];
	return d;
}

/* Where along D of the side element d of the pair is stored. */
static int64_t stored_at(const struct diff_pair *p, int side, int64_t d)
{
	const struct kvt_packing *packing = &p->packing[side];

	if (p->decoded)
		return packing->nfields ? kvt_packing_at(packing, d) : d;
	return channel_of(p, side, d);
}

const char *kvt_diff_page(const struct diff_pair *p, const struct diff_segment *segment)
{
	const char *name[NSIDES];

	for (int s = 0; s < NSIDES; s++) {
		char **names = p->group[s]->block_names;

		name[s] = names ? names[segment->block[s]] : NULL;
	}
	return name[SIDE_A] && name[SIDE_B] && !strcmp(name[SIDE_A], name[SIDE_B]) ?
	       name[SIDE_A] : NULL;
}

struct diff_coordinates kvt_diff_locate(const struct diff_pair *p,
					const struct deviation *deviation)
{
	const struct kvt_group *a = p->group[SIDE_A];
	const int64_t *key = deviation->key;
	const struct diff_segment *segment = &p->segment[p->ordered[key[KVT_AXIS_B]]];
	int64_t l = p->layer[SIDE_A][key[KVT_AXIS_L]];
	int64_t each = p->recurrent ? 1 : a->tokens_per_slot;
	bool conv = a->kind == KVT_MAMBA_CONV;
	struct diff_coordinates c = { .token = -1, .kv = -1, .recurrent = p->recurrent };

	c.layer = (int64_t)kvt_layer_id(a, l);
	c.layer_name = a->layer_names ? a->layer_names[l] : NULL;
	if (segment->request >= 0) {
		c.request = kvt_dump_snapshot(p->side[SIDE_A]->dump)
				    ->request[segment->request].id;
		c.token = segment->position * each;
		if (!p->recurrent)
			c.token += key[KVT_AXIS_S] * each;
	}
	c.page = kvt_diff_page(p, segment);
	c.head = conv ? -1 : a->head_start + p->head[SIDE_A] + key[KVT_AXIS_H];
	if (p->half >= 0)
		c.kv = p->half + key[KVT_AXIS_K];
	c.dim = channel_of(p, SIDE_A, key[KVT_AXIS_D]);
	for (int s = 0; s < NSIDES; s++) {
		int64_t index[KVT_NAXES] = {
			p->layer[s][key[KVT_AXIS_L]], segment->block[s],
			segment->slot[s] + key[KVT_AXIS_S],
			p->head[s] + key[KVT_AXIS_H],
			p->kv[s] + key[KVT_AXIS_K],
			stored_at(p, s, key[KVT_AXIS_D]),
		};

		state_index(p, s, index);
		if (s == SIDE_A && !conv && p->inner[s])
			c.dim = index[KVT_AXIS_D];	/* as A has it */
		c.block[s] = (int64_t)kvt_block_id(p->group[s], index[KVT_AXIS_B]);
		c.position[s] = index[KVT_AXIS_B];
		c.slot[s] = index[KVT_AXIS_S];
		c.place[s] = locate_in_side(p->side[s], p->number[s], index);
	}
	if (conv)
		c.dim = (int64_t)kvt_head_id(a, c.dim);
	return c;
}

int64_t kvt_diff_layer(const struct diff_result *r, int64_t l)
{
	const struct diff_pair *p = r->pair;

	return (int64_t)kvt_layer_id(p->group[SIDE_A], p->layer[SIDE_A][l]);
}

int64_t kvt_diff_head(const struct diff_result *r, int64_t h)
{
	const struct diff_pair *p = r->pair;

	return p->group[SIDE_A]->head_start + p->head[SIDE_A] + h;
}

int64_t kvt_diff_dim(const struct diff_result *r, int64_t d)
{
	const struct diff_pair *p = r->pair;
	const struct kvt_group *a = p->group[SIDE_A];
	int64_t index[KVT_NAXES] = { [KVT_AXIS_D] = channel_of(p, SIDE_A, d) };

	if (a->kind == KVT_MAMBA_CONV)
		return (int64_t)kvt_head_id(a, index[KVT_AXIS_D]);
	if (!p->row[SIDE_A])		/* of a row it is the channel, or in the head */
		state_index(p, SIDE_A, index);
	return index[KVT_AXIS_D];
}

struct diff_column kvt_diff_column(const struct diff_result *r, int64_t column)
{
	const struct diff_pair *p = r->pair;
	const struct kvt_group *a = p->group[SIDE_A];
	int64_t begin = column_begin(r, column), end = column_begin(r, column + 1);
	const struct diff_segment *first = &p->segment[p->ordered[begin]];
	const struct diff_segment *last = &p->segment[p->ordered[end - 1]];
	int64_t each = p->recurrent ? 1 : a->tokens_per_slot;
	int64_t count = p->recurrent ? 1 : last->count;
	const struct kvt_request *request =
		kvt_dump_snapshot(p->side[SIDE_A]->dump)->request;
	struct diff_column c = { .block = {
		(int64_t)kvt_block_id(a, first->block[SIDE_A]),
		(int64_t)kvt_block_id(a, last->block[SIDE_A]),
	} };

	if (first->request < 0)
		return c;
	c.request[0] = request[first->request].id;
	c.request[1] = request[last->request].id;
	c.token[0] = first->position * each;
	c.token[1] = (last->position + count) * each - 1;
	return c;
}
