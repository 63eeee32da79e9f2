/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot_hash.c - one XXH3 over all that a snapshot says about its data
 *
 *	number		8 bytes, little-endian, two's complement
 *	text		its length as a number, its bytes
 *	optional	the number 0; or 1, then the text
 *	table		the number 0; or 1, the number of entries, the entries: texts, or
 *			numbers in as many bytes as they have in memory
 *
 * The order of fields is that of kvtool-snapshot(5), for other programs to repeat.
 * Everything begins with its length: different snapshots give different bytes.
 */
#include "formats/file/snapshot_hash.h"
#include "lib/base/little_endian.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct kvt_hash {
	XXH3_state_t *state;
};

struct kvt_hash *kvt_hash_new(void)
{
	struct kvt_hash *hash = calloc(1, sizeof(*hash));

	if (!hash || !(hash->state = XXH3_createState())) {
		free(hash);
		return NULL;
	}
	XXH3_64bits_reset(hash->state);
	return hash;
}

uint64_t kvt_hash_end(struct kvt_hash *hash)
{
	uint64_t sum = XXH3_64bits_digest(hash->state);

	XXH3_freeState(hash->state);
	free(hash);
	return sum;
}

/* ---- what bytes there are ----------------------------------------------- */

static void add_bytes(struct kvt_hash *hash, const void *bytes, int64_t nbytes)
{
	if (nbytes > 0)
		XXH3_64bits_update(hash->state, bytes, (size_t)nbytes);
}

void kvt_hash_number(struct kvt_hash *hash, int64_t value)
{
	uint8_t bytes[8];

	kvt_put_le(bytes, (uint64_t)value, 8);
	add_bytes(hash, bytes, sizeof(bytes));
}

void kvt_hash_text(struct kvt_hash *hash, const char *text)
{
	int64_t n = (int64_t)strlen(text);

	kvt_hash_number(hash, n);
	add_bytes(hash, text, n);
}

/* 0; or 1 and the text. */
static void add_optional(struct kvt_hash *hash, const char *text)
{
	kvt_hash_number(hash, text != NULL);
	if (text)
		kvt_hash_text(hash, text);
}

void kvt_hash_table(struct kvt_hash *hash, const void *table, int64_t n, int64_t elem)
{
	kvt_hash_number(hash, table != NULL);
	if (!table)
		return;
	kvt_hash_number(hash, n);
	add_bytes(hash, table, n * elem);
}

static void hash_texts(struct kvt_hash *hash, char *const *table, int64_t n)
{
	kvt_hash_number(hash, table != NULL);
	if (!table)
		return;
	kvt_hash_number(hash, n);
	for (int64_t i = 0; i < n; i++)
		kvt_hash_text(hash, table[i]);
}

/* ---- what a snapshot says ----------------------------------------------- */

void kvt_hash_root(struct kvt_hash *hash, const struct kvt_snapshot *snapshot)
{
	const struct kvt_parallel *p = &snapshot->parallel;
	enum { NRANKS = 8 };
	const int64_t rank[NRANKS] = { p->tp_size, p->tp_rank, p->pp_size, p->pp_rank,
				 p->dp_size, p->dp_rank, p->dcp_size, p->dcp_rank };

	add_optional(hash, snapshot->model);
	add_optional(hash, snapshot->source_format);
	add_optional(hash, snapshot->note);
	kvt_hash_number(hash, snapshot->has_parallel);
	for (int i = 0; snapshot->has_parallel && i < NRANKS; i++)
		kvt_hash_number(hash, rank[i]);
	kvt_hash_number(hash, snapshot->null_block);
	kvt_hash_number(hash, snapshot->ngroups);
}

bool kvt_says_liveness(const struct kvt_snapshot *snapshot)
{
	bool says = false;

	for (int g = 0; g < snapshot->ngroups; g++)
		says |= snapshot->group[g].has_null || snapshot->group[g].retained ||
			snapshot->group[g].pool[0];
	for (int64_t r = 0; r < snapshot->nrequests; r++)
		says |= snapshot->request[r].prompt_tokens != 0;
	return says;
}

void kvt_hash_liveness(struct kvt_hash *hash, const struct kvt_snapshot *snapshot)
{
	if (!kvt_says_liveness(snapshot))
		return;
	for (int g = 0; g < snapshot->ngroups; g++) {
		const struct kvt_group *group = &snapshot->group[g];

		kvt_hash_number(hash, group->has_null);
		if (group->has_null)
			kvt_hash_number(hash, group->null_block);
		kvt_hash_number(hash, group->retained);
		add_optional(hash, group->pool[0] ? group->pool : NULL);
	}
	for (int64_t r = 0; r < snapshot->nrequests; r++)
		kvt_hash_number(hash, snapshot->request[r].prompt_tokens);
}

void kvt_hash_group(struct kvt_hash *hash, const struct kvt_group *group)
{
	const int64_t layers = group->shape.n[KVT_AXIS_L];
	const int64_t blocks = group->shape.n[KVT_AXIS_B];
	const int64_t field[] = { group->block_size, group->tokens_per_slot,
				  group->total_heads, group->head_start,
				  group->replication, group->page_bytes,
				  group->page_offset, group->window };

	kvt_hash_text(hash, group->id);
	kvt_hash_text(hash, kvt_kind_name(group->kind));
	kvt_hash_text(hash, group->dtype->name);
	add_optional(hash, group->content.type ? kvt_content_name(&group->content).s :
						 NULL);
	kvt_hash_text(hash, kvt_layout_string(&group->layout).s);
	for (size_t i = 0; i < sizeof(field) / sizeof(*field); i++)
		kvt_hash_number(hash, field[i]);
	hash_texts(hash, group->layer_names, layers);
	kvt_hash_table(hash, group->layer_ids, layers, sizeof(*group->layer_ids));
	kvt_hash_table(hash, group->block_ids, blocks, sizeof(*group->block_ids));
	kvt_hash_table(hash, group->block_valid, blocks, sizeof(*group->block_valid));
	hash_texts(hash, group->block_names, blocks);
	kvt_hash_number(hash, group->ncomponents);
	for (int i = 0; i < group->ncomponents; i++) {
		const struct kvt_component *c = &group->component[i];

		kvt_hash_text(hash, c->name);
		kvt_hash_number(hash, c->start);
		kvt_hash_number(hash, c->length);
		kvt_hash_number(hash, c->global_start);
	}
	if (!group->cast_from[0])
		return;
	kvt_hash_text(hash, group->cast_from);
	kvt_hash_table(hash, group->scales, kvt_group_nscales(group),
		       sizeof(*group->scales));
}

void kvt_hash_requests(struct kvt_hash *hash, const struct kvt_snapshot *snapshot)
{
	kvt_hash_number(hash, snapshot->nrequests);
	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		const struct kvt_request *request = &snapshot->request[r];

		kvt_hash_text(hash, request->id);
		kvt_hash_number(hash, request->ntokens);
		kvt_hash_number(hash, request->first_token);
		kvt_hash_table(hash, request->token_ids, request->ntoken_ids,
			       sizeof(*request->token_ids));
		for (int g = 0; g < snapshot->ngroups; g++)
			kvt_hash_table(hash, request->blocks[g], request->nblocks[g],
				       sizeof(*request->blocks[g]));
		/* after all else, and nothing where there are none */
		for (int64_t i = 0; i < request->nholes; i++) {
			kvt_hash_text(hash, snapshot->group[request->hole[i].group].id);
			kvt_hash_number(hash, request->hole[i].begin);
			kvt_hash_number(hash, request->hole[i].end);
		}
	}
}

uint64_t kvt_cells_sum(const uint64_t *cells, int64_t n, int64_t first)
{
	uint64_t sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += XXH3_64bits_withSeed(&cells[i], sizeof(cells[i]),
					    (uint64_t)(first + i));
	return sum;
}
