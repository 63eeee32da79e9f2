/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.c - state files of llama.cpp as dumps
 *
 * Cells become tokens and sequences requests.  The number of heads is not in the
 * file: it follows from the width of a key, and the values have as many.  Quantised
 * rows are blocks that must not be torn apart: where heads would, all are one row.  Keys
 * and values that differ in type or width are groups of their own.
 *
 * Versions: ggsn 9 and 10, ggsq 2 and 3, and the memory of a sequence as programs get
 * it (since about build 9049 with a magic number).  Facts: files that builds of
 * 2025-08 and 2026-10 wrote (testdata/engines), and src/llama-context.cpp,
 * llama-kv-cache.cpp and llama-memory-recurrent.cpp.
 */
#include "formats/llama/write.h"
#include "formats/describe/describe.h"

#include <stdlib.h>
#include <string.h>

/* ---- streams ------------------------------------------------------------ */

/* All streams of a cache hold the same layers; the first with cells is looked at. */
static const struct kvt_llama_stream *stream_of(const struct kvt_llama_cache *cache)
{
	for (int64_t i = 0; i < cache->nstreams; i++)
		if (cache->stream[i].ncells)
			return &cache->stream[i];
	return NULL;
}

static enum kvt_status check_streams(const struct kvt_llama_opening *o,
				     const struct kvt_llama_cache *cache)
{
	const struct kvt_llama_stream *first = stream_of(cache);

	for (int64_t i = 0; i < cache->nstreams; i++) {
		const struct kvt_llama_stream *s = &cache->stream[i];
		bool same = s->nlayers == first->nlayers &&
			    s->transposed == first->transposed &&
			    s->has_values == first->has_values;

		for (int64_t l = 0; s->ncells && same && l < s->nlayers; l++)
			for (int kv = 0; kv < 1 + s->has_values; kv++)
				same &= kvt_llama_same_rows(
					kvt_llama_rows_of(cache, s, kv, l),
					kvt_llama_rows_of(cache, first, kv, l));
		if (s->ncells && !same)
			return kvt_fail(o->err, KVT_UNSUPPORTED,
					"%s: streams differ in type or width",
					o->reader->leaf.path);
	}
	return KVT_OK;
}

/* The next layer from 'from' on that none before it is like; or one that is past all. */
static int64_t next_kind(const struct kvt_llama_cache *cache, int64_t from)
{
	const struct kvt_llama_stream *s = stream_of(cache);
	bool known = true;

	for (; from < s->nlayers; from++) {
		known = false;
		for (int64_t l = 0; l < from && !known; l++)
			known = kvt_llama_alike(cache, s, l, from);
		if (!known)
			break;
	}
	return from;
}

/* Those of the first stream that has any. */
static const struct kvt_llama_rows *rows_of(const struct kvt_llama_opening *o,
					    const struct kvt_llama_part *part, int kv)
{
	const struct kvt_llama_cache *cache = &o->state.cache[part->cache];

	return kvt_llama_rows_of(cache, stream_of(cache), kv, part->first);
}

/* ---- heads and rows ----------------------------------------------------------- */

/* Rows of a known type, in elements. */
static enum kvt_status take_type(const struct kvt_ggml_type **type, int64_t *elems,
				 const struct kvt_llama_opening *o,
				 const struct kvt_llama_rows *rows)
{
	*type = kvt_ggml_type(rows->type);
	if (!*type)
		return kvt_fail(o->err, KVT_UNSUPPORTED, "%s: rows of ggml type %d",
				o->reader->leaf.path, rows->type);
	if (rows->nbytes % (*type)->nbytes ||
	    (rows->elem && rows->elem != (*type)->nbytes))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: rows of %lld bytes are not %s", o->reader->leaf.path,
				LL(rows->nbytes), (*type)->name);
	*elems = rows->nbytes / (*type)->nbytes * (*type)->elems;
	return KVT_OK;
}

/* Keys and values of a token, by head: the heads of the keys, which the values share. */
static enum kvt_status check_rows(const struct kvt_llama_opening *o,
				  const struct kvt_llama_rows *rows, const char *what,
				  int64_t heads)
{
	const struct kvt_ggml_type *type;
	enum kvt_status status;
	int64_t elems;

	if ((status = take_type(&type, &elems, o, rows)))
		return status;
	if (elems % heads)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: %s of %lld elements cannot be divided into %lld heads",
				o->reader->leaf.path, what, LL(elems), LL(heads));
	return KVT_OK;
}

/* "2,4": of each cache. */
static enum kvt_status take_list(int64_t heads[KVT_LLAMA_CACHES],
				 const struct kvt_llama_opening *o)
{
	const char *text = kvt_fact(o->hints, "heads"), *at = text;

	for (int i = 0; text && i < o->state.ncaches; i++) {
		size_t n = strspn(at, "0123456789");

		heads[i] = n && n < 10 ? strtoll(at, NULL, 10) : 0;
		at += n + (at[n] == ',');
		if (!heads[i] || (at[-1] == ',') != (i + 1 < o->state.ncaches) ||
		    (*at && i + 1 == o->state.ncaches))
			return kvt_fail(o->err, KVT_USAGE,
					"%s: --set heads=%.40s, expected heads of each of %d caches",
					o->reader->leaf.path, text, o->state.ncaches);
	}
	return KVT_OK;
}

/* Those of a cache: as they are given, or from the width of a key. */
static enum kvt_status take_heads(int64_t *out, const struct kvt_llama_opening *o,
				  const struct kvt_llama_part *part, const char *group)
{
	const struct kvt_hints said = kvt_hints_of(o->hints, group);
	int64_t list[KVT_LLAMA_CACHES] = { 0 }, elems;
	const struct kvt_ggml_type *type;
	enum kvt_status status;

	if ((status = take_list(list, o)) ||
	    (status = take_type(&type, &elems, o, rows_of(o, part, 0))))
		return status;
	*out = list[part->cache];
	if (!*out && (status = kvt_hint_heads(out, elems, &said, o->reader->leaf.path,
					      o->err)))
		return status;
	status = check_rows(o, rows_of(o, part, 0), "keys", *out);
	return status ? status : check_rows(o, rows_of(o, part, 1), "values", *out);
}

/*
 * One number of heads for caches of other widths is wrong for one of them, unless
 * their heads differ in width: nothing in the file tells.
 */
static enum kvt_status check_widths(const struct kvt_llama_opening *o)
{
	const struct kvt_llama_rows *first = NULL, *k;
	const struct kvt_hints *h = o->hints;
	const struct kvt_llama_stream *s;

	if (!h || h->heads < 2 || h->head_dim || h->next || kvt_fact(h, "heads"))
		return KVT_OK;
	for (int i = 0; i < o->state.ncaches; i++) {
		s = stream_of(&o->state.cache[i]);
		for (int64_t l = 0; s && l < s->nlayers; l++) {
			k = kvt_llama_rows_of(&o->state.cache[i], s, 0, l);
			/* of what is no type of caches something else is said */
			if (!kvt_ggml_type(k->type))
				continue;
			first = first ? first : k;
			if (k->nbytes == first->nbytes && k->type == first->type)
				continue;
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: keys of its layers have %lld and %lld bytes, so --heads=%lld may be true of some only; give --head-dim, or --set heads=N,N of two caches",
					o->reader->leaf.path, LL(first->nbytes),
					LL(k->nbytes), LL(h->heads));
		}
	}
	return KVT_OK;
}

/* Rows that must not be torn apart: where heads would cut blocks, one head has all. */
static enum kvt_status take_blocks(struct kvt_group *group,
				   const struct kvt_llama_opening *o, int only,
				   bool latent, const struct kvt_ggml_type *type,
				   int64_t elems)
{
	int64_t *turn = group->content.turn, *heads = &group->shape.n[KVT_AXIS_H];
	int64_t vector = elems / *heads;

	if (!kvt_content_find(&group->content, type->name))
		return kvt_fail(o->err, KVT_UNSUPPORTED, "%s: rows of %s",
				o->reader->leaf.path, type->name);
	if (vector % type->elems) {
		group->content.n = vector;
		*heads = 1;
	}
	for (int kv = 0; kv < 2; kv++)
		turn[kv] = kvt_llama_turn(o->turn, &o->state, kv, vector, latent);
	/* of half of them, the other one is not rotated */
	if (latent)
		only = 0;
	if (only >= 0 && turn[only])
		turn[!only] = 1;
	return KVT_OK;
}

static enum kvt_status take_width(struct kvt_group *group,
				  const struct kvt_llama_opening *o,
				  const struct kvt_llama_part *part, bool latent)
{
	const struct kvt_llama_rows *rows = rows_of(o, part, part->kv == 1);
	const struct kvt_ggml_type *type;
	int64_t heads = 1, elems;
	enum kvt_status status;

	if ((status = take_type(&type, &elems, o, rows)))
		return status;
	if (!latent && (status = take_heads(&heads, o, part, group->id)))
		return status;
	group->dtype = kvt_dtype_find(type->dtype ? type->dtype : "uint8");
	group->shape.elem = group->dtype->elem;
	group->shape.n[KVT_AXIS_H] = heads;
	if (!type->dtype && (status = take_blocks(group, o, part->kv, latent, type,
							      elems)))
		return status;
	group->shape.n[KVT_AXIS_D] = rows->nbytes / group->shape.n[KVT_AXIS_H] /
				     group->shape.elem;
	return KVT_OK;
}

/* ---- groups ------------------------------------------------------------- */

/* The axes of the file, with tokens as blocks. */
static const char *layout_of(const struct kvt_llama_stream *s, int kv)
{
	bool turned = s->transposed;

	if (!s->has_values)
		return "LBSC";
	if (kv < 0)
		return turned ? "K:L K B S H D V:L K B H D S" : "LKBSHD";
	return turned && kv == 1 ? "L B H D S" : "L B S H D";
}

/* The second cache is that of layers with a window; a single one may be, too. */
static bool has_window(const struct kvt_llama_opening *o, int cache)
{
	return cache || (o->window && o->state.ncaches == 1);
}

/* The layers that a group has, by their numbers in the cache where others are between. */
static enum kvt_status take_layers(struct kvt_group *group,
				   const struct kvt_llama_opening *o,
				   const struct kvt_llama_part *part)
{
	const struct kvt_llama_cache *cache = &o->state.cache[part->cache];
	const struct kvt_llama_stream *s = stream_of(cache);
	int64_t n = 0;

	for (int64_t l = part->first; l < s->nlayers; l++)
		n += kvt_llama_alike(cache, s, part->first, l);
	group->shape.n[KVT_AXIS_L] = n;
	if (n == s->nlayers)
		return KVT_OK;
	group->layer_ids = calloc((size_t)n, sizeof(*group->layer_ids));
	group->layer_names = calloc((size_t)n, sizeof(*group->layer_names));
	n = 0;
	for (int64_t l = part->first; l < s->nlayers; l++) {
		char name[32];

		if (!kvt_llama_alike(cache, s, part->first, l))
			continue;
		snprintf(name, sizeof(name), "layers.%lld", LL(l));
		if (!group->layer_ids || !group->layer_names ||
		    !(group->layer_names[n] = strdup(name)))
			return kvt_llama_no_memory(o);
		group->layer_ids[n++] = (uint32_t)l;
	}
	return KVT_OK;
}

/* Is there a number, and a letter, for one more group? */
static enum kvt_status check_room(const struct kvt_llama_opening *o, char kind)
{
	if (o->reader->leaf.snapshot.ngroups < KVT_MAX_GROUPS && kind <= 'z')
		return KVT_OK;
	return kvt_fail(o->err, KVT_UNSUPPORTED,
			"%s: layers of more kinds than groups have room for",
			o->reader->leaf.path);
}

/* 'kind': 'a' and on of the kinds of layers that a cache has; 0: there is one. */
static enum kvt_status add_group(struct kvt_llama_opening *o, struct kvt_llama_part part,
				 char kind)
{
	const struct kvt_llama_stream *s = stream_of(&o->state.cache[part.cache]);
	int cache = part.cache, kv = part.kv;
	struct kvt_snapshot *snapshot = &o->reader->leaf.snapshot;
	bool latent = !s->has_values;
	struct kvt_group *group;
	enum kvt_status status;
	char id[16];

	if ((status = check_room(o, kind)))
		return status;
	snprintf(id, sizeof(id), "g%d%.1s%s", cache, &kind,
		 kv < 0 ? "" : kv ? ".v" : ".k");
	o->part[snapshot->ngroups] = part;
	if ((status = kvt_manifest_add_group(&group, snapshot, id, o->reader->leaf.path,
					     o->err)) ||
	    (status = take_width(group, o, &part, latent)) ||
	    (status = take_layers(group, o, &part)) ||
	    (status = kvt_layout_parse(&group->layout, layout_of(s, kv), o->err)))
		return status;
	group->kind = latent ? KVT_MLA : has_window(o, cache) ? KVT_SLIDING_WINDOW :
								KVT_FULL_ATTENTION;
	if (has_window(o, cache))
		group->window = o->window;
	group->tokens_per_slot = 1;
	if ((status = kvt_token_block_size(&group->block_size, o->hints, o->err)))
		return status;
	group->shape.n[KVT_AXIS_S] = group->block_size;
	group->shape.n[KVT_AXIS_K] = kv < 0 && !latent ? 2 : 1;
	if (kv >= 0) {
		strcpy(group->component[0].name, kv ? "v" : "k");
		group->component[0].length = group->shape.n[KVT_AXIS_D];
		group->ncomponents = 1;
	}
	return kvt_manifest_finish_group(group, &snapshot->parallel, o->reader->leaf.path,
					 o->err);
}

/*
 * One kind of state of all recurrent layers: what is in it depends on the model,
 * and the file says nothing of that.
 */
static enum kvt_status add_states(struct kvt_llama_opening *o, int which)
{
	const struct kvt_llama_states *states = &o->state.states;
	int64_t nbytes = states->row[which].nbytes;
	struct kvt_snapshot *snapshot = &o->reader->leaf.snapshot;
	struct kvt_group *group;
	enum kvt_status status;

	if (states->row[which].uneven || nbytes % 4)
		return kvt_fail(o->err, KVT_UNSUPPORTED,
				"%s: states of recurrent layers differ in width",
				o->reader->leaf.path);
	/* some models have no states of one kind */
	if (!nbytes)
		return KVT_OK;
	if ((status = check_room(o, 0)))
		return status;
	o->part[snapshot->ngroups] = (struct kvt_llama_part){ -1, which, 0 };
	if ((status = kvt_manifest_add_group(&group, snapshot, which ? "s" : "r",
					     o->reader->leaf.path, o->err)) ||
	    (status = kvt_layout_parse(&group->layout, "LBD", o->err)))
		return status;
	group->kind = KVT_OPAQUE;
	group->dtype = kvt_dtype_find("float32");
	group->shape = (struct kvt_shape){
		{ states->nlayers, -1, 1, 1, 1, nbytes / 4 }, 4 };
	group->tokens_per_slot = -1;
	/* that builds of before stored keys inside values is not known */
	if (which && o->state.version < (o->state.whole ? 10 : 3))
		group->state_order = KVT_STATE_EITHER;
	return kvt_manifest_finish_group(group, &snapshot->parallel, o->reader->leaf.path,
					 o->err);
}

/* What is said of rotation is of blocks. */
static enum kvt_status check_rotation(const struct kvt_llama_opening *o)
{
	const struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	const char *text = kvt_fact(o->hints, "rotation");

	for (int g = 0; g < s->ngroups; g++)
		if (s->group[g].content.type)
			return KVT_OK;
	return !text || !s->ngroups ? KVT_OK :
	       kvt_fail(o->err, KVT_USAGE,
			"%s: --set rotation=%.40s, but neither keys nor values are quantised",
			o->reader->leaf.path, text);
}

/* Keys that are to be read in halves are numbers, and have halves. */
static enum kvt_status check_pairs(const struct kvt_llama_opening *o)
{
	const struct kvt_snapshot *s = &o->reader->leaf.snapshot;

	for (int g = 0; o->pairs && g < s->ngroups; g++) {
		bool keys = o->part[g].cache >= 0 && o->part[g].kv != 1 &&
			    s->group[g].kind != KVT_MLA;

		if (keys && (s->group[g].content.type ||
			     s->group[g].shape.n[KVT_AXIS_D] % 2))
			return kvt_fail(o->err, KVT_UNSUPPORTED,
					"%s: --set keys=halves, but group %s has keys of %s",
					o->reader->leaf.path, s->group[g].id,
					kvt_group_type(&s->group[g]).s);
	}
	return KVT_OK;
}

/* Cells, but no rows of them, are no dump; neither is an empty one. */
static enum kvt_status check_groups(const struct kvt_llama_opening *o)
{
	int64_t ncells = o->state.states.nmembers;

	for (int i = 0; i < o->state.ncaches; i++)
		ncells += o->state.cache[i].nmembers;
	if (o->window && o->state.ncaches == 0)
		return kvt_fail(o->err, KVT_USAGE,
				"%s: window=%lld, but it has recurrent states only",
				o->reader->leaf.path, LL(o->window));
	o->reader->empty = !o->reader->leaf.snapshot.ngroups && !ncells;
	if (o->reader->leaf.snapshot.ngroups || !ncells)
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT, "%s: %lld cells, but no layers",
			o->reader->leaf.path, LL(ncells));
}

/* Keys and values of one type and width are one group, others are two. */
static enum kvt_status add_kind(struct kvt_llama_opening *o, struct kvt_llama_part part,
				char kind)
{
	const struct kvt_llama_stream *s = stream_of(&o->state.cache[part.cache]);
	const struct kvt_llama_rows *k = rows_of(o, &part, 0);
	enum kvt_status status = KVT_OK;

	part.kv = -1;
	if (!s->has_values)
		return add_group(o, part, kind);
	if (rows_of(o, &part, 1)->type == k->type &&
	    rows_of(o, &part, 1)->nbytes == k->nbytes)
		return add_group(o, part, kind);
	for (part.kv = 0; !status && part.kv < 2; part.kv++)
		status = add_group(o, part, kind);
	return status;
}

/* Layers may have other numbers of heads: those that are alike are a group. */
static enum kvt_status add_cache(struct kvt_llama_opening *o, int i)
{
	const struct kvt_llama_cache *cache = &o->state.cache[i];
	const struct kvt_llama_stream *s = stream_of(cache);
	enum kvt_status status;
	char kind;

	/* of layers with a window only, the other cache has cells and no rows */
	if (!s || !s->nlayers)
		return KVT_OK;
	if ((status = check_streams(o, cache)))
		return status;
	kind = next_kind(cache, 1) < s->nlayers ? 'a' : '\0';
	for (int64_t l = 0; !status && l < s->nlayers; l = next_kind(cache, l + 1)) {
		status = add_kind(o, (struct kvt_llama_part){ i, -1, l }, kind);
		kind += kind > 0;
	}
	return status;
}

static enum kvt_status add_groups(struct kvt_llama_opening *o)
{
	enum kvt_status status = check_widths(o);

	for (int i = 0; !status && i < o->state.ncaches; i++)
		status = add_cache(o, i);
	for (int which = 0; !status && o->state.states.ncells && which < 2; which++)
		status = add_states(o, which);
	if (status || (status = check_rotation(o)) || (status = check_pairs(o)))
		return status;
	return check_groups(o);
}

/* ---- the format --------------------------------------------------------- */

static enum kvt_status take_facts(struct kvt_llama_opening *o,
				  struct kvt_llama_asked *asked)
{
	enum kvt_status status = kvt_llama_rotation(o->turn, "--set rotation",
						    kvt_fact(o->hints, "rotation"),
						    o->err);
	const char *memory = kvt_fact(o->hints, "memory");
	const char *keys = kvt_fact(o->hints, "keys");
	int m = 0;

	*asked = (struct kvt_llama_asked){
		.memory = KVT_LLAMA_UNKNOWN, .bare = o->hints && o->hints->format };
	while (memory && m < KVT_LLAMA_MEMORIES &&
	       strcmp(memory, kvt_llama_memory_names[m]))
		m++;
	if (status)
		return status;
	o->pairs = keys && !strcmp(keys, "halves");
	if (keys && !o->pairs)
		return kvt_fail(o->err, KVT_USAGE, "--set keys=%.60s, expected halves",
				keys);
	if (memory && m == KVT_LLAMA_MEMORIES)
		return kvt_fail(o->err, KVT_USAGE,
				"--set memory=%.60s, expected attention, recurrent or hybrid",
				memory);
	if (memory)
		asked->memory = (enum kvt_llama_memory)m;
	return kvt_fact_int(&o->window, o->hints, "window", 1, INT32_MAX, o->err);
}

/*
 * With LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY a program gets of a sequence the layers with a
 * window, or the states, alone; nothing in the file says so.
 */
static void name_part(char *out, size_t size, const struct kvt_llama_opening *o)
{
	const struct kvt_llama_state *s = &o->state;
	const struct kvt_request *request = o->reader->leaf.snapshot.request;

	*out = '\0';
	if (strcmp(s->kind, "sequence") || o->reader->leaf.snapshot.nrequests != 1)
		return;
	if (kvt_llama_is_partial(o))
		snprintf(out, size,
			 ", %s alone: taken with LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY",
			 s->ncaches ? "layers with a window" : "states");
	else if (o->hints && o->hints->of_model)
		return;
	else if (!s->ncaches && s->states.nmembers)
		snprintf(out, size,
			 ", states alone: of a recurrent model, or a part of a hybrid one");
	else if (s->ncaches == 1 && request->first_token && !o->window &&
		 !s->states.nmembers)
		snprintf(out, size,
			 ", of layers with a window alone, or without its first %lld tokens",
			 LL(request->first_token));
}

static enum kvt_status name_source(struct kvt_llama_opening *o)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	const char *told = kvt_fact(o->hints, "arch");
	char text[160], part[100];

	if (told && o->state.arch[0] && strcmp(told, o->state.arch))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: --set arch=%.60s, but the file says %s",
				o->reader->leaf.path, told, o->state.arch);
	name_part(part, sizeof(part), o);
	snprintf(text, sizeof(text), "llama.cpp %s %d%s%s", o->state.kind,
		 o->state.version, part, o->pairs ? KVT_LLAMA_IN_HALVES : "");
	s->source_format = strdup(text);
	if (o->state.arch[0] || told)
		s->model = strdup(o->state.arch[0] ? o->state.arch : told);
	return s->source_format && (s->model || !(o->state.arch[0] || told)) ? KVT_OK :
	       kvt_no_memory(o->err, o->reader->leaf.path);
}

static bool llama_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	(void)path;
	return head && kvt_llama_probe(head, nhead);
}

static enum kvt_status llama_open(struct kvt_reader *reader, const char *path,
				  const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_llama_opening o = { .reader = reader, .hints = hints, .err = err };
	struct kvt_llama_asked asked;
	enum kvt_status status;

	if ((status = take_facts(&o, &asked)) ||
	    (status = kvt_files_open(&reader->files, &o.file, path, err)) ||
	    (status = kvt_llama_parse(&o.state, &reader->files.file[o.file], &asked,
				      err)))
		return status;
	/* two caches: the second one is of the layers that have a window */
	if (!o.window && o.state.ncaches == 2 && hints && hints->of_model)
		kvt_hints_model_window(&o.window, hints);
	(void)((status = add_groups(&o)) ||
	       (status = kvt_llama_requests(&o)) || (status = name_source(&o)) ||
	       (status = kvt_llama_slot(&o)));
	kvt_llama_free(&o.state);
	return status;
}

static const char *const presets[] = { "llama.cpp", NULL };
static const char *const facts[] = { "arch", "heads", "keys", "memory", "rotation",
				     "window", NULL };

const struct kvt_format kvt_llama_format = {
	.info = { "llama", "state files of llama.cpp",
		  .reads = true, .writes = false },
	.presets = presets,
	.facts = facts,
	.checks = "every field, length",
	.probe = llama_probe,
	.open = llama_open,
};

/* The same, to be written: each is a form of its own, of one sequence or of all. */
static const char *const one_ending[] = { ".ggsq", NULL };
static const char *const all_ending[] = { ".ggsn", NULL };

const struct kvt_format kvt_ggsq_format = {
	.info = { "ggsq", "state of one sequence of llama.cpp, by a template",
		  .reads = true, .writes = true, .one_request = true, .by_tokens = true },
	.endings = one_ending,
	.facts = facts,
	.checks = "every field, length",
	.open = llama_open,
	.retype = kvt_llama_retype,
	.create = kvt_llama_create,
	.finish = kvt_llama_finish,
};

const struct kvt_format kvt_ggsn_format = {
	.info = { "ggsn", "state of all sequences of llama.cpp, by a template",
		  .reads = true, .writes = true, .by_tokens = true },
	.endings = all_ending,
	.facts = facts,
	.checks = "every field, length",
	.open = llama_open,
	.retype = kvt_llama_retype,
	.create = kvt_llama_create,
	.finish = kvt_llama_finish,
};
