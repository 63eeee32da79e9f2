/* SPDX-License-Identifier: Apache-2.0 */
/* waves.c - requests that share states, as few transfers */
#include "lib/ops/transfer/waves.h"

#include <stdlib.h>

static bool bit(const uint8_t *bits, int64_t i)
{
	return bits[i / 8] >> i % 8 & 1;
}

static void set_bit(uint8_t *bits, int64_t i)
{
	bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << i % 8);
}

static int64_t state_at(const struct kvt_block_table *t, int64_t i)
{
	i -= t->first;
	return t->ids[i / t->states] * t->states + i % t->states;
}

static size_t states_of(const struct kvt_block_table *t)
{
	return (size_t)(t->pool * t->states) / 8 + 1;
}

static bool fits(const struct wave *w, const uint8_t *written, const struct sim_move *m)
{
	for (int64_t i = m->begin; i < m->end; i++)
		if (!bit(written, state_at(&m->dst, i)) &&
		    bit(w->read, state_at(&m->src, i)))
			return false;
	return true;
}

static enum kvt_status add_range(struct wave *w, const struct sim_move *m, int64_t begin,
				 int64_t end, struct kvt_error *err)
{
	if (w->nmoves == w->room) {
		int64_t room = 2 * w->room + 8;
		struct sim_move *more = realloc(w->move, (size_t)room * sizeof(*more));

		if (!more)
			return kvt_fail(err, KVT_SYSTEM, "out of memory");
		w->move = more;
		w->room = room;
	}
	w->move[w->nmoves] = *m;
	w->move[w->nmoves].begin = begin;
	w->move[w->nmoves++].end = end;
	return KVT_OK;
}

/* What of the request is not there yet, range by range. */
static enum kvt_status add_move(struct wave *w, uint8_t *written,
				const struct sim_move *m, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = m->begin, begin; !status && i < m->end; i++) {
		if (bit(written, state_at(&m->dst, i)))
			continue;
		for (begin = i; i < m->end && !bit(written, state_at(&m->dst, i)); i++) {
			set_bit(written, state_at(&m->dst, i));
			set_bit(w->read, state_at(&m->src, i));
		}
		status = add_range(w, m, begin, i, err);
	}
	return status;
}

enum kvt_status waves_add(struct waves *ws, const struct sim_move *m,
			  struct kvt_error *err)
{
	struct wave *more;
	int i = 0;

	if (!ws->written && !(ws->written = calloc(states_of(&m->dst), 1)))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	while (i < ws->n && !fits(&ws->wave[i], ws->written, m))
		i++;
	if (i < ws->n)
		return add_move(&ws->wave[i], ws->written, m, err);
	more = realloc(ws->wave, (size_t)(i + 1) * sizeof(*more));
	if (!more)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	ws->wave = more;
	more[i] = (struct wave){ .read = calloc(states_of(&m->src), 1) };
	ws->n++;
	if (!more[i].read)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	return add_move(&more[i], ws->written, m, err);
}

void waves_free(struct waves *ws)
{
	for (int i = 0; i < ws->n; i++) {
		free(ws->wave[i].move);
		free(ws->wave[i].read);
	}
	free(ws->wave);
	free(ws->written);
}
