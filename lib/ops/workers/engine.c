/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - invalid blocks of a step, and what the engine made of it */
#include "lib/ops/workers/workers_impl.h"

#include <stdlib.h>

/* ---- blocks ------------------------------------------------------------- */

static struct block_slot *find_block(const struct blocks *b, int64_t id, int64_t step)
{
	uint64_t hash = (uint64_t)id * UINT64_C(0x9e3779b97f4a7c15);
	size_t at = (size_t)(hash ^ hash >> 32) & (b->room - 1);

	while (b->slot[at].step == step + 1 && b->slot[at].id != id)
		at = (at + 1) & (b->room - 1);
	return &b->slot[at];
}

static bool has_block(const struct replay *r, int64_t id)
{
	return r->invalid.n && find_block(&r->invalid, id, r->step)->step == r->step + 1;
}

/* Room for one more, in the list and in the table. */
static enum kvt_status make_room(struct replay *r)
{
	struct blocks *b = &r->invalid, larger = *b;

	if (b->n == b->id_room) {
		size_t room = b->id_room ? b->id_room * 2 : 64;
		int64_t *more = realloc(b->id, room * sizeof(*more));

		if (!more)
			return workers_no_memory(r);
		b->id = larger.id = more;
		b->id_room = larger.id_room = room;
	}
	if (b->room && b->n < b->room / 2)
		return KVT_OK;
	larger.room = b->room ? b->room * 2 : 128;
	larger.slot = calloc(larger.room, sizeof(*larger.slot));
	if (!larger.slot)
		return workers_no_memory(r);
	for (size_t i = 0; i < b->n; i++)
		*find_block(&larger, b->id[i], r->step) =
			*find_block(b, b->id[i], r->step);
	free(b->slot);
	*b = larger;
	return KVT_OK;
}

static enum kvt_status add_block(struct replay *r, int64_t id)
{
	enum kvt_status status = make_room(r);

	if (status)
		return status;
	*find_block(&r->invalid, id, r->step) =
		(struct block_slot){ id, r->step + 1, false };
	r->invalid.id[r->invalid.n++] = id;
	return KVT_OK;
}

enum kvt_status workers_report_blocks(struct replay *r, const struct kvt_log_line *line)
{
	enum kvt_status status;

	for (size_t i = 0; i < line->nblocks; i++) {
		int64_t block = kvt_log_block(line, i);

		if (r->dropped) {
			workers_problem(r, PROBLEM_LOST, r->worker, NULL,
				"invalid block %lld: worker %lld reports it in a step without output, where nothing is counted",
				LL(block), LL(r->worker));
			continue;
		}
		if (has_block(r, block))
			continue;
		if ((status = add_block(r, block)))
			return status;
		r->totals->invalid++;
		r->tell->invalid(r->tell->arg, r->step, block);
	}
	return KVT_OK;
}

/* ---- what the engine made of it ----------------------------------------- */

static void compare_ids(struct replay *r, const struct kvt_log_line *line,
			enum kvt_direction direction)
{
	for (size_t i = 0; i < line->nids[direction]; i++) {
		const char *id = kvt_log_id(line, direction, i);
		struct entry *e = workers_entry(r, id, direction);

		if (e && e->finished == r->step)
			e->engine_has = true;
		else
			workers_problem(r, PROBLEM_INVENTED, -1, id,
				"%s of '%.100s': the engine has it finished in step %lld, the reports do not",
				kvt_direction_name(direction), id, LL(r->step));
	}
}

static void compare_blocks(struct replay *r, const struct kvt_log_line *line)
{
	const struct blocks *b = &r->invalid;

	for (size_t i = 0; i < line->nblocks; i++) {
		int64_t block = kvt_log_block(line, i);

		if (has_block(r, block))
			find_block(b, block, r->step)->engine_has = true;
		else
			workers_problem(r, PROBLEM_INVENTED, -1, NULL,
				"invalid block %lld: the engine has it in step %lld, the reports do not",
				LL(block), LL(r->step));
	}
	for (size_t i = 0; i < b->n; i++)
		if (!find_block(b, b->id[i], r->step)->engine_has)
			workers_problem(r, PROBLEM_LOST, -1, NULL,
				"invalid block %lld: reported in step %lld, and the engine does not have it",
				LL(b->id[i]), LL(r->step));
}

void workers_compare(struct replay *r, const struct kvt_log_line *line)
{
	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		compare_ids(r, line, (enum kvt_direction)d);
	for (size_t i = 0; i < r->nemitted; i++)
		if (!r->emitted[i]->engine_has)
			workers_problem(r, PROBLEM_LOST, -1, r->emitted[i]->id,
				"%s of '%.100s': finished in step %lld, and the engine does not have it",
				kvt_direction_name(r->emitted[i]->direction),
				r->emitted[i]->id, LL(r->step));
	compare_blocks(r, line);
}
