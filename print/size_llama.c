/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size_llama.c - what llama.cpp allocates for a GGUF, for people and as JSON
 *
 * Its caches are made when a context is, for all sequences: so the figures are of a
 * context and not of a request.  A row is a kind of cache; columns in which no kind has
 * anything are left out, and the legend speaks of those that are shown.
 */
#include "print/size.h"
#include "print/out/say.h"
#include "print/out/json_out.h"

#include <stdio.h>

#define bytes kvt_size_string

/* What of it is printed as a column: not where it is nothing in all kinds. */
enum { CELLS, KEYS, VALUES, INDEXER, STATES, COLUMNS };
static const char *const titles[] = { "CELLS", "KEYS", "VALUES", "INDEXER", "STATES" };

static int64_t column(const struct kvt_llama_bytes *b, int i)
{
	const int64_t columns[COLUMNS] = { b->cells, b->k, b->v, b->indexer, b->states };

	return columns[i];
}

static void print_cell(const struct kvt_llama_bytes *b, int i)
{
	int64_t n = column(b, i);

	if (!n)
		plainf(" %10s", "-");
	else if (i == CELLS)
		plainf(" %10lld", LL(n));
	else
		plainf(" %10s", bytes(n).s);
}

static const char *word(const struct kvt_llama_kind *k)
{
	if (!k->heads)
		return "states";
	if (k->conv || k->state)
		return "attention, states";
	return !k->head_dim_v ? "latents" : k->windowed ? "windows" : "attention";
}

static void print_kinds(const struct kvt_llama_model *m,
			const struct kvt_llama_size *size)
{
	bool shown[COLUMNS] = { false };

	for (int k = 0; k < m->nkinds; k++)
		for (int i = 0; i < COLUMNS; i++)
			shown[i] |= column(&size->kind[k], i) != 0;
	plainf("  %-19s %6s", "LAYERS THAT KEEP", "LAYERS");
	for (int i = 0; i < COLUMNS; i++)
		if (shown[i])
			plainf(" %10s", titles[i]);
	putchar('\n');
	for (int k = 0; k < m->nkinds; k++) {
		plainf("  %-19s %6lld", word(&m->kind[k]), LL(m->kind[k].layers));
		for (int i = 0; i < COLUMNS; i++)
			if (shown[i])
				print_cell(&size->kind[k], i);
		putchar('\n');
	}
	if (shown[CELLS])
		puts("\nCELLS: of all sequences, filled up to 256.");
}

/* "128 KiB a token, 16 GiB ..." */
static void print_answer(const struct size_llama *l)
{
	const struct kvt_llama_context *c = &l->context;

	plainf("%s a token; %s for %lld sequence%s of %lld tokens, in llama.cpp\n",
	       bytes(l->size.token).s, bytes(l->size.total).s, LL(c->sequences),
	       plural(c->sequences), LL(c->tokens));
}

void size_llama_text(const struct size_report *r)
{
	const struct size_llama *l = r->llama;
	const struct kvt_llama_context *c = &l->context;
	const struct kvt_model *model = &r->config.model;
	const struct kvt_llama_model *m = &r->config.llama;

	print_answer(l);
	if (r->memory && l->fit)
		plainf("in %s: %lld tokens in each of %lld sequence%s\n",
		       bytes(r->memory).s, LL(l->fit), LL(c->sequences),
		       plural(c->sequences));
	else if (r->memory)
		plainf("in %s: no context at all\n", bytes(r->memory).s);
	plainf("\n%s: %s, %lld layers\n", r->path, r->config.family,
	       LL(r->config.layers));
	for (int i = 0; i < r->config.nnotes; i++)
		plainf("  note: %s\n", r->config.note[i]);
	for (int i = 0; i < model->ngroups; i++)
		plainf("  %-19s %s\n", model->group[i].name,
		       kvt_model_group_text(&model->group[i]).s);
	plainf("\nkeys of %s, values of %s%s%s%s:\n", c->type_k, c->type_v,
	       c->unified ? ", unified" : "",
	       c->whole_windows ? ", windows as long as the context" : "",
	       c->no_flash ? ", without flash attention" : "");
	print_kinds(m, &l->size);
	puts("Exact bytes: --json.");
}

/* ---- JSON ------------------------------------------------------------------ */

static void put_kind(struct json_out *out, json_t *array, const struct kvt_llama_kind *k,
		     const struct kvt_llama_bytes *b)
{
	json_t *o = json_append_object(out, array);

	json_put_int(out, o, "layers", k->layers);
	json_put_bool(out, o, "windowed", k->windowed);
	json_put_int(out, o, "heads", k->heads);
	json_put_int(out, o, "head_dim", k->head_dim);
	json_put_int(out, o, "head_dim_v", k->head_dim_v);
	json_put_int(out, o, "cells", b->cells);
	json_put_int(out, o, "key_bytes", b->k);
	json_put_int(out, o, "value_bytes", b->v);
	json_put_int(out, o, "indexer_bytes", b->indexer);
	json_put_int(out, o, "state_bytes", b->states);
}

void size_llama_json(struct json_out *out, const struct size_report *r)
{
	const struct size_llama *l = r->llama;
	const struct kvt_llama_model *m = &r->config.llama;
	json_t *o = json_put_object(out, out->root, "llama_cpp"), *array;

	json_put_text(out, o, "cache_type_k", l->context.type_k);
	json_put_text(out, o, "cache_type_v", l->context.type_v);
	json_put_int(out, o, "tokens", l->context.tokens);
	json_put_int(out, o, "sequences", l->context.sequences);
	json_put_known(out, o, "window", m->window, m->window);
	json_put_known(out, o, "context_length", m->context, m->context);
	json_put_int(out, o, "token_bytes", l->size.token);
	json_put_int(out, o, "bytes", l->size.total);
	json_put_known(out, o, "fit_tokens", l->fit, r->memory);
	array = json_put_array(out, o, "caches");
	for (int i = 0; i < m->nkinds; i++)
		put_kind(out, array, &m->kind[i], &l->size.kind[i]);
}
