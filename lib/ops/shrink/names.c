/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c - a snapshot that tells nothing of whose it is
 *
 * Every text that an engine or a user chose is replaced or dropped.  What pairs by name
 * must go on to pair, so a name of either side is looked up in one list of both.
 */
#include "lib/ops/shrink/shrink.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"
#include "lib/base/order.h"

struct names {
	int64_t n;
	char **name;			/* owned */
};

/* Its number in the list, to which it is added if it is new; -1: out of memory. */
static int64_t number_of(struct names *list, const char *name)
{
	for (int64_t i = 0; i < list->n; i++)
		if (!strcmp(list->name[i], name))
			return i;
	if (!KVT_GROW(&list->name, list->n))
		return -1;
	if (!(list->name[list->n] = strdup(name)))
		return -1;
	return list->n++;
}

static void names_free(struct names *list)
{
	for (int64_t i = 0; i < list->n; i++)
		free(list->name[i]);
	free(list->name);
}

/* A to Z, AA, AB, ... */
static void letters(char out[16], int64_t number)
{
	char text[16];
	size_t n = 0;

	for (int64_t i = number; i >= 0; i = i / 26 - 1)
		text[n++] = (char)('A' + i % 26);
	for (size_t i = 0; i < n; i++)
		out[i] = text[n - 1 - i];
	out[n] = '\0';
}

static bool rename_requests(struct kvt_snapshot *s, struct names *known, bool tokens)
{
	for (int64_t r = 0; r < s->nrequests; r++) {
		struct kvt_request *q = &s->request[r];
		int64_t number = number_of(known, q->id);
		char name[16];

		if (number < 0)
			return false;
		letters(name, number);
		free(q->id);
		if (!(q->id = strdup(name)))
			return false;
		if (tokens)
			continue;
		free(q->token_ids);
		q->token_ids = NULL;
		q->ntoken_ids = 0;
	}
	return true;
}

/* "g0": a letter and the number of the name; empty stays so. */
static bool rename_short(char out[32], struct names *known, char letter)
{
	int64_t number = out[0] ? number_of(known, out) : 0;

	if (out[0] && number >= 0)
		snprintf(out, 32, "%c%lld", letter, LL(number));
	return number >= 0;
}

/* ---- blocks: there may be very many ---------------------------------------- */

/* The names of one side join those of the other; each may be there twice. */
static bool add_blocks(struct names *known, const struct kvt_group *g)
{
	int64_t n = g->block_names ? g->shape.n[KVT_AXIS_B] : 0;
	char **more = realloc(known->name, (size_t)(known->n + n + 1) * sizeof(*more));

	if (!more)
		return false;
	known->name = more;
	for (int64_t b = 0; b < n; b++) {
		char *name = g->block_names[b] ? strdup(g->block_names[b]) : NULL;

		if (name)
			known->name[known->n++] = name;
		else if (g->block_names[b])
			return false;
	}
	return true;
}

/* Ascending, each once: its index is its number. */
static void sort_blocks(struct names *known)
{
	int64_t kept = 0;

	if (known->n)
		qsort(known->name, (size_t)known->n, sizeof(*known->name), kvt_by_name);
	for (int64_t i = 0; i < known->n; i++)
		if (kept && !strcmp(known->name[kept - 1], known->name[i]))
			free(known->name[i]);
		else
			known->name[kept++] = known->name[i];
	known->n = kept;
}

static bool rename_blocks(struct kvt_group *g, const struct names *known)
{
	for (int64_t b = 0; g->block_names && b < g->shape.n[KVT_AXIS_B]; b++) {
		char **found, name[32];

		if (!g->block_names[b])
			continue;
		found = bsearch(&g->block_names[b], known->name, (size_t)known->n,
				sizeof(*known->name), kvt_by_name);
		snprintf(name, sizeof(name), "b%lld", LL(found - known->name));
		free(g->block_names[b]);
		if (!(g->block_names[b] = strdup(name)))
			return false;
	}
	return true;
}

/* ---- all of them ---------------------------------------------------------- */

static void forget(struct kvt_snapshot *s)
{
	char **const text[] = { &s->model, &s->source_format, &s->note };

	for (int i = 0; i < 3; i++) {
		free(*text[i]);
		*text[i] = NULL;
	}
}

/* By their numbers in the model: those that are given where there are none count on. */
static bool rename_layers(struct kvt_group *g)
{
	int64_t n = g->shape.n[KVT_AXIS_L];

	kvt_names_free(g->layer_names, n);
	g->layer_names = calloc((size_t)n + 1, sizeof(*g->layer_names));
	for (int64_t l = 0; g->layer_names && l < n; l++) {
		char name[32];

		snprintf(name, sizeof(name), "layers.%llu",
			 (unsigned long long)kvt_layer_id(g, l));
		if (!(g->layer_names[l] = strdup(name)))
			return false;
	}
	return g->layer_names != NULL;
}

struct kinds_of_names {
	struct names requests, groups, pools, blocks;
};

static bool rename_all(struct kvt_snapshot *s, struct kinds_of_names *known, bool tokens)
{
	for (int g = 0; g < s->ngroups; g++)
		if (!rename_short(s->group[g].id, &known->groups, 'g') ||
		    !rename_short(s->group[g].pool, &known->pools, 'p') ||
		    !rename_layers(&s->group[g]) ||
		    !rename_blocks(&s->group[g], &known->blocks))
			return false;
	return rename_requests(s, &known->requests, tokens);
}

enum kvt_status kvt_shrink_names(struct kvt_snapshot *a, struct kvt_snapshot *b,
				 bool tokens, struct kvt_error *err)
{
	struct kvt_snapshot *side[NSIDES] = { a, b };
	struct kinds_of_names known = { { 0, NULL }, { 0, NULL }, { 0, NULL },
					{ 0, NULL } };
	enum kvt_status status = KVT_OK;

	/* so that a name has one number, whichever side has it */
	for (int s = 0; s < NSIDES && side[s]; s++)
		for (int g = 0; g < side[s]->ngroups; g++)
			if (!add_blocks(&known.blocks, &side[s]->group[g]))
				status = kvt_no_memory(err, NULL);
	sort_blocks(&known.blocks);

	for (int s = 0; !status && s < NSIDES && side[s]; s++) {
		forget(side[s]);
		if (!rename_all(side[s], &known, tokens))
			status = kvt_no_memory(err, NULL);
		else
			status = kvt_snapshot_complete(side[s], err);
	}
	names_free(&known.requests);
	names_free(&known.groups);
	names_free(&known.pools);
	names_free(&known.blocks);
	return status;
}
