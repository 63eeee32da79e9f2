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

/* ---- in files ----------------------------------------------------------- */

/* False if the part does not have it. */
static bool move_into(int64_t *index, const struct source_run *run)
{
	if (*index < run->at || *index >= run->at + run->count)
		return false;
	*index += run->from - run->at;
	return true;
}

static bool move_into_part(int64_t index[KVT_NAXES], const struct source_part *part)
{
	if (!move_into(&index[KVT_AXIS_H], &part->heads) ||
	    !move_into(&index[KVT_AXIS_K], &part->kv))
		return false;
	for (int i = 0; i < part->nruns; i++)
		if (move_into(&index[KVT_AXIS_D], &part->run[i]))
			return true;
	return false;
}

/* An index of the side as one of a reader. */
static int find_reader(int64_t out[KVT_NAXES], const struct diff_side *side, int group,
		       const int64_t index[KVT_NAXES])
{
	for (int i = 0; i < side_parts(side, group); i++) {
		struct source_part part = side_part(side, group, i);

		for (int a = 0; a < KVT_NAXES; a++)
			out[a] = index[a];
		if (!move_into_part(out, &part))
			continue;
		out[KVT_AXIS_L] = side_layer(side, group, index[KVT_AXIS_L]);
		out[KVT_AXIS_B] = side_block(side, group, index[KVT_AXIS_B]);
		return part.reader;
	}
	return 0;	/* never: every index is in a part */
}

static struct diff_place
locate_in_side(const struct diff_side *side, int group, const int64_t index[KVT_NAXES])
{
	int64_t at[KVT_NAXES], buffer;
	int r = find_reader(at, side, group, index);
	const struct kvt_dump *reader = side->reader[r];
	int from = side->source.whole ? group : side->source.group[group].from;
	struct diff_place place = { .file = side->name, .offset = -1,
				    .dim = at[KVT_AXIS_D], .in_memory =
					kvt_dump_tiling(reader, from) != NULL };
	enum kvt_space space = place.in_memory ? KVT_MEMORY : KVT_FILES;

	for (int i = 0; i < side->nfiles; i++)
		if (side->file[i].reader == reader)
			place.file = side->file[i].name;
	if (kvt_dump_locate(&buffer, &place.offset, reader, space, from, at, NULL) ||
	    buffer < 0)
		place.offset = -1;
	else
		place.buffer = kvt_dump_buffer_name(reader, space, buffer);
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

struct diff_coordinates kvt_diff_locate(const struct diff_pair *p,
					const struct deviation *deviation)
{
	const struct kvt_group *a = p->group[SIDE_A];
	const int64_t *key = deviation->key;
	const struct diff_segment *segment = &p->segment[p->ordered[key[KVT_AXIS_B]]];
	int64_t l = p->layer[SIDE_A][key[KVT_AXIS_L]];
	int64_t each = p->recurrent ? 1 : a->tokens_per_state;
	bool conv = a->kind == KVT_MAMBA_CONV;
	struct diff_coordinates c = { .token = -1, .kv = -1, .recurrent = p->recurrent };

	c.layer = (int64_t)kvt_layer_id(a, l);
	c.layer_name = a->layer_names ? a->layer_names[l] : NULL;
	if (segment->request >= 0) {
		c.request = source_snapshot(&p->side[SIDE_A]->source)
				    ->request[segment->request].id;
		c.token = segment->position * each;
		if (!p->recurrent)
			c.token += key[KVT_AXIS_S] * each;
	}
	c.head = conv ? -1 : a->head_start + p->head[SIDE_A] + key[KVT_AXIS_H];
	if (p->half >= 0)
		c.kv = p->half + key[KVT_AXIS_K];
	c.dim = channel_of(p, SIDE_A, key[KVT_AXIS_D]);
	for (int s = 0; s < NSIDES; s++) {
		const int64_t index[KVT_NAXES] = {
			p->layer[s][key[KVT_AXIS_L]], segment->block[s],
			segment->state[s] + key[KVT_AXIS_S],
			p->head[s] + key[KVT_AXIS_H],
			p->kv[s] + key[KVT_AXIS_K],
			stored_at(p, s, key[KVT_AXIS_D]),
		};

		c.block[s] = (int64_t)kvt_block_id(p->group[s], index[KVT_AXIS_B]);
		c.position[s] = index[KVT_AXIS_B];
		c.state[s] = index[KVT_AXIS_S];
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

struct diff_column kvt_diff_column(const struct diff_result *r, int64_t column)
{
	const struct diff_pair *p = r->pair;
	const struct kvt_group *a = p->group[SIDE_A];
	int64_t begin = column_begin(r, column), end = column_begin(r, column + 1);
	const struct diff_segment *first = &p->segment[p->ordered[begin]];
	const struct diff_segment *last = &p->segment[p->ordered[end - 1]];
	int64_t each = p->recurrent ? 1 : a->tokens_per_state;
	int64_t count = p->recurrent ? 1 : last->count;
	const struct kvt_request *request =
		source_snapshot(&p->side[SIDE_A]->source)->request;
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
