/* SPDX-License-Identifier: Apache-2.0 */
/*
 * made.c - what a state would be like that has no template, by the GGUF of its model
 *
 * Layers and the widths of their rows follow from the keys of the GGUF.  What follows
 * from the context alone is taken from --context, else types are the dump's, and the
 * rest what llama.cpp has by default; all of it is said when the state is written.
 *
 * Layers with a window are in a second cache, or keys of an indexer are, and recurrent
 * layers have two rows of float32.  Facts: llama_model::create_memory(), and
 * state_write_meta() and state_write_data() of llama-kv-cache.cpp and
 * llama-memory-recurrent.cpp, in llama-cpp-python 0.3.36 and, for version 9, 0.3.16.
 */
#include "formats/llama/write.h"

#include <stdlib.h>
#include <string.h>

#include "formats/model/config.h"
#include "lib/base/keys.h"

/* ---- the context -------------------------------------------------------- */

struct context {
	const char *type[2];		/* of keys, of values; NULL: not said */
	const char *flash;
	int64_t sequences, version;	/* 0: not said */
	bool unified;
};

/* 'text' is what its texts are in. */
static enum kvt_status take_context(struct context *c, char *text,
				    const struct kvt_llama_writing *w)
{
	static const struct kvt_key keys[] = {
		{ "type-k", KVT_KEY_TEXT, offsetof(struct context, type[0]), NULL },
		{ "type-v", KVT_KEY_TEXT, offsetof(struct context, type[1]), NULL },
		{ "flash-attn", KVT_KEY_TEXT, offsetof(struct context, flash), NULL },
		{ "sequences", KVT_KEY_COUNT, offsetof(struct context, sequences), NULL },
		{ "unified", KVT_KEY_FLAG, offsetof(struct context, unified), NULL },
		{ "version", KVT_KEY_COUNT, offsetof(struct context, version), NULL },
		{ 0 }
	};
	struct kvt_keys list = { .what = "--context", .key = keys, .to = c };
	const int64_t newest = w->whole ? 10 : 3;
	enum kvt_status status = kvt_keys_parse(&list, text, w->err);

	for (int kv = 0; !status && kv < 2; kv++)
		if (c->type[kv] && !kvt_ggml_type_called(c->type[kv]))
			status = kvt_fail(w->err, KVT_USAGE,
					  "--context: type-%c is '%.40s', expected f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 or q5_1",
					  "kv"[kv], c->type[kv]);
	if (!status && c->flash && strcmp(c->flash, "on") && strcmp(c->flash, "off"))
		status = kvt_fail(w->err, KVT_USAGE,
				  "--context: flash-attn is '%.40s', expected on or off",
				  c->flash);
	if (!status && c->sequences > KVT_LLAMA_STREAMS)
		status = kvt_fail(w->err, KVT_USAGE,
				  "--context: sequences is %lld, expected at most %d",
				  LL(c->sequences), KVT_LLAMA_STREAMS);
	if (!status && c->version && c->version != newest && c->version != newest - 1)
		status = kvt_fail(w->err, KVT_UNSUPPORTED,
				  "--context: version is %lld, and of a %s kvtool writes %lld and %lld; a template may be of others",
				  LL(c->version), w->writer->format->info.name,
				  LL(newest - 1), LL(newest));
	return status;
}

/* Whether sequences have cells of their own is in the file, and for several unknown. */
static enum kvt_status count_streams(int64_t *out, const struct context *c,
				     const struct kvt_llama_writing *w)
{
	*out = c->unified || !c->sequences ? 1 : c->sequences;
	if (c->unified || c->sequences || w->snapshot->nrequests < 2)
		return KVT_OK;
	return kvt_fail(w->err, KVT_USAGE,
			"the dump has %lld requests, and only the context says whether they share its cells: give --context=unified, or --context=sequences=N for one that has N sequences with cells of their own",
			LL(w->snapshot->nrequests));
}

/* Of the dump's keys or values; f16 where it has none, or they are of no such type. */
static const struct kvt_ggml_type *type_of(const struct kvt_snapshot *s, int kv)
{
	static const char *const names[] = { "f16", "f32", "bf16" };

	for (int g = 0; g < s->ngroups; g++) {
		const struct kvt_group *group = &s->group[g];
		const struct kvt_ggml_type *type;

		if (group->kind == KVT_OPAQUE || !(group->kind == KVT_MLA ||
		    group->shape.n[KVT_AXIS_K] == 2 || kvt_group_half(group) == kv))
			continue;
		if (group->content.type &&
		    (type = kvt_ggml_type_called(group->content.type->name)))
			return type;
		for (int i = 0; !group->content.type && i < 3; i++) {
			type = kvt_ggml_type_called(names[i]);
			if (!strcmp(type->dtype, group->dtype->name))
				return type;
		}
		break;
	}
	return kvt_ggml_type_called("f16");
}

static enum kvt_status take_types(const struct kvt_ggml_type *type[2],
				  const struct context *c, bool transposed,
				  const struct kvt_llama_writing *w)
{
	for (int kv = 0; kv < 2; kv++)
		type[kv] = c->type[kv] ? kvt_ggml_type_called(c->type[kv]) :
					 type_of(w->snapshot, kv);
	if (transposed && type[1]->elems > 1)
		return kvt_fail(w->err, KVT_USAGE,
				"--context: flash-attn is off, and llama.cpp has values of %s with flash attention only",
				type[1]->name);
	return KVT_OK;
}

/* ---- the model ---------------------------------------------------------- */

/* Those have one key a layer, in the second cache. */
static bool has_indexer(const struct kvt_llama_model *m)
{
	bool any = false;

	for (int i = 0; i < m->nkinds; i++)
		any |= m->kind[i].indexer > 0;
	return any;
}

/* What of a model's state is not known well enough to be written without one. */
static enum kvt_status check_model(const struct kvt_model_config *m,
				   const struct kvt_llama_writing *w, bool older)
{
	const struct kvt_llama_model *l = &m->llama;
	const char *why = l->assumed ? "which kvtool does not know" :
			  l->gaps ? "with layers that have rows of no elements" :
			  l->positions && older ?
			  "whose cells builds of that version wrote in two ways" : NULL;
	bool latent = false, values = false, indexed = has_indexer(l);

	for (int i = 0; i < l->nkinds; i++) {
		const struct kvt_llama_kind *k = &l->kind[i];

		latent |= k->heads && !k->head_dim_v;
		values |= k->heads && k->head_dim_v;
	}
	if (indexed && (values || l->window))
		why = "with an indexer beside values, or layers with a window";
	if (latent && values)
		why = "with latents in some layers and values in others";
	if (latent && older)
		why = "whose latents builds of that version wrote twice";
	return !why ? KVT_OK :
	       kvt_fail(w->err, KVT_UNSUPPORTED,
			"%s: is of architecture %s, %s: give --template=STATE, a state of the build and model that is to read this one",
			w->path, m->family, why);
}

/* Of keys or values that a layer has in a cache; 0: none. */
static int64_t elems_in(const struct kvt_llama_model *m, int64_t layer, int cache, int kv)
{
	const struct kvt_llama_kind *k = m->of[layer] ? &m->kind[m->of[layer] - 1] : NULL;

	if (!k || (m->window && k->windowed != cache))
		return 0;
	if (cache && !m->window)
		return kv ? 0 : k->indexer;
	return k->heads * (kv ? k->head_dim_v : k->head_dim);
}

/* Rows of the layers of a cache, in its first stream, which is what all are like. */
static enum kvt_status make_cache(struct kvt_llama_cache *c,
				  const struct kvt_llama_model *m, int cache,
				  const struct kvt_ggml_type *const type[2])
{
	struct kvt_llama_stream *s = c->stream;
	struct kvt_llama_rows *row = calloc(2 * KVT_LLAMA_LAYERS, sizeof(*row));

	if (!(c->row = row))
		return KVT_SYSTEM;
	for (int kv = 0; kv < 2; kv++)
		for (int64_t l = 0; l < m->nlayers; l++) {
			int64_t elems = elems_in(m, l, cache, kv);

			if (!elems)
				continue;
			s->nlayers += !kv;
			s->has_values |= kv;
			*row++ = (struct kvt_llama_rows){ .type = type[kv]->id,
				.nbytes = kvt_ggml_row(type[kv], elems),
				.elem = kv && s->transposed ? type[kv]->nbytes : 0 };
		}
	return KVT_OK;
}

static enum kvt_status make_caches(struct kvt_llama_state *like,
				   const struct kvt_llama_model *m, int64_t streams,
				   bool transposed,
				   const struct kvt_ggml_type *const type[2])
{
	const int ncaches = m->recurrent ? 0 : m->window || has_indexer(m) ? 2 : 1;
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < ncaches; i++) {
		struct kvt_llama_cache *c = &like->cache[i];

		like->ncaches = i + 1;
		if (!(c->stream = calloc((size_t)streams, sizeof(*c->stream))))
			return KVT_SYSTEM;
		c->nstreams = streams;
		c->stream[0].ncells = 1;
		c->stream[0].transposed = transposed;
		status = make_cache(c, m, i, type);
	}
	return status;
}

/* All recurrent layers of a model have states of one size. */
static void make_states(struct kvt_llama_states *s, const struct kvt_llama_model *m)
{
	for (int64_t l = 0; l < m->nlayers; l++) {
		const struct kvt_llama_kind *k = &m->kind[m->of[l] - 1];

		if (!m->of[l] || (!k->conv && !k->state))
			continue;
		s->ncells = 1;
		s->nlayers++;
		s->row[0].nbytes = 4 * k->conv;
		s->row[1].nbytes = 4 * k->state;
	}
	s->listed = m->listed;
}

/* ---- both --------------------------------------------------------------- */

static enum kvt_status read_model(struct kvt_model_config *m, struct kvt_llama_writing *w)
{
	const struct kvt_config_hints none = { .nset = 0 };
	const char *path = w->writer->options.model_path;
	enum kvt_status status = kvt_model_open(m, path, &none, w->err);

	if (!status && !m->llama.nkinds)
		status = kvt_fail(w->err, KVT_USAGE,
				  "%s: is no GGUF, and layers of llama.cpp follow from one: give --model=FILE.gguf, or --template=STATE",
				  path);
	return status;
}

/* "a context of model.gguf", as what is said of a template names it */
static enum kvt_status name(struct kvt_llama_writing *w)
{
	const char *path = w->writer->options.model_path;
	const size_t n = strlen(path) + sizeof("a context of ");

	if (!(w->made = malloc(n)))
		return kvt_no_memory(w->err, NULL);
	snprintf(w->made, n, "a context of %s", path);
	w->path = w->made;
	return KVT_OK;
}

static const char *by_default(bool said)
{
	return said ? "" : " (default)";
}

/* What was taken for granted, for whoever loads the file. */
static enum kvt_status tell_use(struct kvt_llama_writing *w, const struct context *c,
				int64_t streams,
				const struct kvt_ggml_type *const type[2])
{
	char rows[96] = "", cells[64] = "one sequence, or unified cells", text[320];

	if (w->like.ncaches)
		snprintf(rows, sizeof(rows),
			 ", keys %s, values %s, flash attention %s%s", type[0]->name,
			 type[1]->name, c->flash ? c->flash : "on", by_default(c->flash));
	if (streams > 1)
		snprintf(cells, sizeof(cells), "%lld sequences with cells of their own",
			 LL(streams));
	snprintf(text, sizeof(text), "for llama.cpp: %s %d%s of %s%s, %s%s\n",
		 w->like.kind, w->like.version, by_default(c->version), w->like.arch,
		 rows, cells, by_default(c->sequences || c->unified));
	w->writer->use = strdup(text);
	return w->writer->use ? KVT_OK : kvt_no_memory(w->err, NULL);
}

static enum kvt_status make(struct kvt_llama_writing *w, const struct context *c,
			    const struct kvt_model_config *m)
{
	const bool transposed = c->flash && !strcmp(c->flash, "off");
	const int64_t newest = w->whole ? 10 : 3;
	const bool older = c->version && c->version != newest;
	struct kvt_llama_state *like = &w->like;
	const struct kvt_ggml_type *type[2];
	enum kvt_status status;
	int64_t streams;

	if ((status = check_model(m, w, older)) || (status = count_streams(&streams, c,
									   w)) ||
	    (status = take_types(type, c, transposed, w)))
		return status;
	like->kind = w->writer->format->info.name;
	like->version = (int)(c->version ? c->version : newest);
	like->whole = w->whole;
	like->streams = true;
	like->outputs = older && w->whole;
	like->extra = m->llama.positions ? 12 : 0;
	snprintf(like->arch, sizeof(like->arch), "%s", m->family);
	if (make_caches(like, &m->llama, streams, transposed, type))
		return kvt_no_memory(w->err, NULL);
	make_states(&like->states, &m->llama);
	return tell_use(w, c, streams, type);
}

enum kvt_status kvt_llama_make(struct kvt_llama_writing *w)
{
	const char *said = w->writer->options.context;
	struct kvt_model_config *m = malloc(sizeof(*m));
	char *text = strdup(said ? said : "");
	struct context c = { .flash = NULL };
	enum kvt_status status = m && text ? name(w) : kvt_no_memory(w->err, NULL);

	if (!status && said)
		status = take_context(&c, text, w);
	(void)(status || (status = read_model(m, w)) || (status = make(w, &c, m)));
	free(text);
	free(m);
	return status;
}
