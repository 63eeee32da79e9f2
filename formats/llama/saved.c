/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saved.c - what a context of llama.cpp must be like that takes a state back
 *
 * It has as many streams as the file: one, or one a sequence; types and transposition
 * are those of the file; and each stream has room for its cells.  A file of one sequence
 * goes into any.  Facts: state_read(), state_read_meta() and state_read_data() of
 * src/llama-kv-cache.cpp of 2026-10, which refuse anything else.
 */
#include "formats/llama/llama.h"
#include "lib/base/little_endian.h"
#include "lib/snapshot/saved.h"

#include <stdlib.h>
#include <string.h>

static void take_cache(struct kvt_saved *saved, const struct kvt_llama_opening *o, int i)
{
	const struct kvt_llama_cache *c = &o->state.cache[i];

	if (c->nstreams > saved->streams && o->state.streams)
		saved->streams = c->nstreams;
	saved->cache[i].windowed = i || (o->window && o->state.ncaches == 1);
	for (int64_t s = 0; s < c->nstreams; s++) {
		const struct kvt_llama_stream *stream = &c->stream[s];

		if (stream->ncells > saved->cache[i].cells)
			saved->cache[i].cells = stream->ncells;
		saved->transposed |= stream->transposed;
		for (int kv = 0; stream->nlayers && kv < 1 + stream->has_values; kv++) {
			const struct kvt_ggml_type *type = kvt_ggml_type(
				kvt_llama_rows_of(c, stream, kv, 0)->type);

			saved->type[kv] = type ? type->name : NULL;
		}
	}
	for (int64_t k = 0; k < c->nmembers; k++)
		if (c->member[k].sequence >= saved->sequences)
			saved->sequences = (int64_t)c->member[k].sequence + 1;
}

static enum kvt_status take_states(struct kvt_saved *saved,
				   const struct kvt_llama_opening *o)
{
	const struct kvt_llama_states *s = &o->state.states;

	saved->state = calloc((size_t)s->nmembers + 1, sizeof(*saved->state));
	if (!saved->state)
		return kvt_llama_no_memory(o);
	for (int64_t i = 0; i < s->nmembers; i++) {
		saved->state[i] = (struct kvt_saved_state){ s->member[i].sequence,
							  s->member[i].position };
		if (s->member[i].sequence >= saved->sequences)
			saved->sequences = (int64_t)s->member[i].sequence + 1;
	}
	saved->nstates = s->nmembers;
	return KVT_OK;
}

/* A list that is not one of the tokens there are, whatever it is of. */
static enum kvt_status take_list(struct kvt_saved *saved,
				 const struct kvt_llama_opening *o)
{
	const struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	const int64_t n = o->state.ntokens;
	enum kvt_status status;
	uint8_t *bytes;

	saved->nids = n;
	saved->is_tokens = n && s->nrequests == 1 && s->request->ntoken_ids &&
			  s->request->ntoken_ids + s->request->first_token == n;
	if (!n || saved->is_tokens)
		return KVT_OK;
	/* as many bytes as the file was found to have there */
	bytes = malloc((size_t)n * 4);
	saved->id = malloc((size_t)n * sizeof(*saved->id));
	status = !bytes || !saved->id ? kvt_llama_no_memory(o) :
		 kvt_file_read(&o->reader->files.file[o->file], bytes, n * 4,
			       o->state.tokens_at, o->err);
	for (int64_t i = 0; !status && i < n; i++)
		saved->id[i] = (int32_t)kvt_le32(bytes + 4 * i);
	free(bytes);
	return status;
}

bool kvt_llama_is_partial(const struct kvt_llama_opening *o)
{
	const struct kvt_llama_state *s = &o->state;
	int64_t all, windowed, layers = 0;

	if (!o->hints || !o->hints->of_model || strcmp(s->kind, "sequence"))
		return false;
	kvt_hints_model_layers(&all, &windowed, o->hints);
	/* states alone, of a model that keeps tokens, too */
	if (!s->ncaches)
		return s->states.nmembers && all + windowed;
	for (int64_t i = 0; i < s->cache[0].nstreams; i++)
		if (s->cache[0].stream[i].ncells)
			layers = s->cache[0].stream[i].nlayers;
	return s->ncaches == 1 && all && layers && layers == windowed;
}

enum kvt_status kvt_llama_slot(struct kvt_llama_opening *o)
{
	struct kvt_saved *saved = calloc(1, sizeof(*saved));
	enum kvt_status status;

	if (!saved)
		return kvt_llama_no_memory(o);
	o->reader->leaf.saved = saved;
	saved->engine = "llama.cpp";
	saved->kind = o->state.kind;
	saved->version = o->state.version;
	saved->whole = o->state.whole;
	saved->partial = kvt_llama_is_partial(o);
	saved->ncaches = o->state.ncaches;
	for (int i = 0; i < o->state.ncaches; i++)
		take_cache(saved, o, i);
	status = take_states(saved, o);
	return status ? status : take_list(saved, o);
}
