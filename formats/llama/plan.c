/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c - which layers and tokens of a dump are which rows and cells of a state
 *
 * Layers of one cache are in the order of the model, and so are those of the dump: the
 * first that keeps all tokens is the first of the first cache, the first with a window
 * that of the second.  Types must be those of the template: bytes are moved, not made
 * (retype.c makes others, before).
 */
#include "formats/llama/write.h"
#include "lib/base/order.h"

#include <stdlib.h>
#include <string.h>

/* ---- what can be written ------------------------------------------------ */

static bool is_states(const struct kvt_group *g)
{
	return g->kind == KVT_OPAQUE && g->tokens_per_slot == -1;
}

static enum kvt_status check_group(const struct kvt_llama_writing *w,
				   const struct kvt_group *g)
{
	bool latent = g->kind == KVT_MLA;

	if (is_states(g) && !w->foreign)
		return KVT_OK;
	if (g->kind != KVT_FULL_ATTENTION && g->kind != KVT_SLIDING_WINDOW && !latent)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s is %s, which kvtool writes for llama.cpp only if it comes from there",
				g->id, kvt_kind_name(g->kind));
	if (latent && w->foreign && !w->writer->options.as_is)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s holds latents that do not come from llama.cpp, which has the rotated elements first; --as-is writes them as they are",
				g->id);
	if (g->tokens_per_slot != 1)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s has a slot for each %lld tokens, and llama.cpp one for each token",
				g->id, LL(g->tokens_per_slot));
	if (g->total_heads != g->shape.n[KVT_AXIS_H] || g->head_start)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s has %lld of %lld heads, and llama.cpp has them all",
				g->id, LL(g->shape.n[KVT_AXIS_H]), LL(g->total_heads));
	if (!latent && g->shape.n[KVT_AXIS_K] == 1 && kvt_group_half(g) < 0)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s has rows that are neither keys nor values, and llama.cpp keeps keys and values",
				g->id);
	return KVT_OK;
}

static enum kvt_status check_dump(const struct kvt_llama_writing *w)
{
	const struct kvt_snapshot *s = w->snapshot;
	const struct kvt_parallel *p = &s->parallel;
	enum kvt_status status = KVT_OK;

	if (!s->nrequests)
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"a state of llama.cpp is of tokens, and the dump has no block tables that say where they are");
	if (!w->whole && s->nrequests != 1)
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"a ggsq is of one request, and this dump has %lld of them",
				LL(s->nrequests));
	if (p->tp_size > 1 || p->pp_size > 1 || p->dcp_size > 1)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"llama.cpp has caches of whole models, and this dump is of one rank; kvtool merge makes one of all ranks");
	for (int64_t r = 0; r < s->nrequests; r++)
		if (s->request[r].ntokens < 1 || s->request[r].ntokens >
						 INT32_MAX - s->request[r].first_token)
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"request %.100s has %lld tokens, expected 1 to %d",
					s->request[r].id, LL(s->request[r].ntokens),
					INT32_MAX);
	for (int g = 0; !status && g < s->ngroups; g++)
		status = check_group(w, &s->group[g]);
	for (int64_t r = 0; !status && r < s->nrequests; r++)
		if (w->like.extra && (w->made || !w->writer->options.as_is) &&
		    (w->foreign || s->request[r].ntoken_ids != s->request[r].ntokens))
			status = kvt_fail(w->err, KVT_UNSUPPORTED,
					  "%s: is of a model whose tokens have several positions, as those of images do, and the dump %s; if the template has the same tokens, --as-is takes them from there",
					  w->path, w->foreign ?
					  "does not come from llama.cpp" :
					  "has no token ids, which only text has");
	return status;
}

/* ---- layers ------------------------------------------------------------- */

/*
 * The cache that a group is in: the second one is that of layers with a window, which
 * latents of llama.cpp's own are only by the name.
 */
static int cache_of(const struct kvt_llama_writing *w, const struct kvt_group *g)
{
	bool second = g->kind == KVT_SLIDING_WINDOW ||
		      (!w->foreign && g->kind == KVT_MLA && !strncmp(g->id, "g1", 2));

	return w->like.ncaches == 2 && second;
}

/* Has the group keys, or values? */
static bool has_rows(const struct kvt_group *g, int kv)
{
	if (g->kind == KVT_MLA)
		return !kv;
	return g->shape.n[KVT_AXIS_K] == 2 || kvt_group_half(g) == kv;
}

static const struct kvt_llama_stream *first_stream(const struct kvt_llama_cache *cache)
{
	for (int64_t i = 0; i < cache->nstreams; i++)
		if (cache->stream[i].ncells && cache->stream[i].nlayers)
			return &cache->stream[i];
	return NULL;
}

struct numbered {
	uint64_t number;
	struct kvt_llama_source source;
};

static enum kvt_status check_type(const struct kvt_llama_writing *w, int cache, int kv,
				  int64_t layer)
{
	const struct kvt_llama_rows *rows = kvt_llama_rows_like(w, cache, kv, layer);
	const struct kvt_llama_source *from = kvt_llama_source_of(&w->cache[cache], kv,
								 layer);
	const struct kvt_group *g = &w->snapshot->group[from->group];
	const struct kvt_ggml_type *type = kvt_ggml_type(rows->type);
	int64_t nbytes = g->shape.n[KVT_AXIS_H] * g->shape.n[KVT_AXIS_D] * g->shape.elem;
	const char *is = g->content.type ? g->content.type->name : g->dtype->name;

	if (!type)
		return kvt_fail(w->err, KVT_UNSUPPORTED, "%s: rows of ggml type %d",
				w->path, rows->type);
	if (strcmp(is, type->dtype ? type->dtype : type->name))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s has %s of %s, and %s has %s: give as the template a state file of a context with caches of that type, or --cache-dtype=template to write other numbers",
				g->id, kv ? "values" : "keys", is, w->path, type->name);
	if (nbytes != rows->nbytes)
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"group %s has %s of %lld bytes, and layer %lld of %s has %lld: they are of two models",
				g->id, kv ? "values" : "keys", LL(nbytes), LL(layer),
				w->path, LL(rows->nbytes));
	return KVT_OK;
}

/* Keys or values of a cache, in the order of the model's layers. */
static enum kvt_status take_layers(struct kvt_llama_writing *w, int cache, int kv)
{
	struct kvt_llama_written *c = &w->cache[cache];
	struct numbered *n;
	enum kvt_status status = KVT_OK;
	int64_t count = 0;

	for (int g = 0; g < w->snapshot->ngroups; g++)
		if (c->uses[g] && has_rows(&w->snapshot->group[g], kv))
			count += w->snapshot->group[g].shape.n[KVT_AXIS_L];
	if (count != c->like->nlayers)
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"the dump has %s of %lld layers%s, and %s has %lld: they are of two models",
				kv ? "values" : "keys", LL(count),
				cache ? " with a window" : "", w->path,
				LL(c->like->nlayers));
	if (!(n = calloc((size_t)count + 1, sizeof(*n))))
		return kvt_no_memory(w->err, NULL);
	count = 0;
	for (int g = 0; g < w->snapshot->ngroups; g++) {
		const struct kvt_group *group = &w->snapshot->group[g];

		for (int64_t l = 0; c->uses[g] && has_rows(group, kv) &&
				    l < group->shape.n[KVT_AXIS_L]; l++)
			n[count++] = (struct numbered){
				kvt_layer_id(group, l),
				{ g, l, group->shape.n[KVT_AXIS_K] == 2 ? kv : 0 } };
	}
	qsort(n, (size_t)count, sizeof(*n), kvt_by_uint64);
	for (int64_t i = 0; !status && i < count; i++) {
		if (i && n[i].number == n[i - 1].number)
			status = kvt_fail(w->err, KVT_UNSUPPORTED,
					  "layer %llu is in groups %s and %s, and %s has one cache: give a template of a model with a window",
					  (unsigned long long)n[i].number,
					  w->snapshot->group[n[i - 1].source.group].id,
					  w->snapshot->group[n[i].source.group].id,
					  w->path);
		c->source[(kv ? c->like->nlayers : 0) + i] = n[i].source;
		if (!status && !w->retypes)
			status = check_type(w, cache, kv, i);
	}
	free(n);
	return status;
}

static enum kvt_status take_cache(struct kvt_llama_writing *w, int cache)
{
	struct kvt_llama_written *c = &w->cache[cache];
	enum kvt_status status;
	bool latent = false, any = false;

	c->like = first_stream(&w->like.cache[cache]);
	for (int g = 0; g < w->snapshot->ngroups; g++) {
		const struct kvt_group *group = &w->snapshot->group[g];

		c->uses[g] = !is_states(group) && cache_of(w, group) == cache;
		any |= c->uses[g];
		latent |= c->uses[g] && group->kind == KVT_MLA;
	}
	if (!c->like)
		return !any ? KVT_OK :
		       kvt_fail(w->err, KVT_BAD_INPUT,
				"%s: has no layers%s, which the dump has: a template holds a token at least",
				w->path,
				cache ? " with a window" : " that keep all tokens");
	if (latent == c->like->has_values)
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"the dump has %s, and %s %s: they are of two models, or of builds that keep latents in two ways",
				latent ? "latents" : "keys and values", w->path,
				latent ? "keys and values" : "keys alone");
	c->source = calloc(2 * (size_t)c->like->nlayers, sizeof(*c->source));
	if (!c->source)
		return kvt_no_memory(w->err, NULL);
	status = take_layers(w, cache, 0);
	return status || !c->like->has_values ? status : take_layers(w, cache, 1);
}

/* ---- sequences ---------------------------------------------------------- */

/* A name that is a number of a sequence; -1: it is none. */
static int32_t number_of(const char *id)
{
	size_t n = strspn(id, "0123456789");
	int64_t number = n && n < 6 && !id[n] ? strtoll(id, NULL, 10) : -1;

	return number < KVT_LLAMA_SEQUENCES ? (int32_t)number : -1;
}

/* The sequence that a file of one is of. */
static int32_t owner_of(const struct kvt_llama_state *like)
{
	for (int i = 0; i < like->ncaches; i++)
		if (like->cache[i].nmembers)
			return like->cache[i].member[0].sequence;
	return like->states.nmembers ? like->states.member[0].sequence : 0;
}

/* By their names if these are numbers, else as they come. */
static enum kvt_status take_sequences(struct kvt_llama_writing *w)
{
	const struct kvt_snapshot *s = w->snapshot;
	bool named = true;

	if (s->nrequests > KVT_LLAMA_SEQUENCES)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"the dump has %lld requests, and llama.cpp at most %d sequences",
				LL(s->nrequests), KVT_LLAMA_SEQUENCES);
	w->sequence = calloc((size_t)s->nrequests + 1, sizeof(*w->sequence));
	if (!w->sequence)
		return kvt_no_memory(w->err, NULL);
	for (int64_t r = 0; r < s->nrequests; r++) {
		w->sequence[r] = number_of(s->request[r].id);
		named &= w->sequence[r] >= 0;
		for (int64_t q = 0; q < r; q++)
			named &= w->sequence[q] != w->sequence[r];
	}
	for (int64_t r = 0; !named && r < s->nrequests; r++)
		w->sequence[r] = w->whole ? (int32_t)r : owner_of(&w->like);
	return KVT_OK;
}

/* ---- tokens ------------------------------------------------------------- */

/* Where each token of a request is in a group, as blocks and slots are counted. */
static enum kvt_status find_slots(struct kvt_llama_writing *w, int g, int64_t r)
{
	const struct kvt_request *q = &w->snapshot->request[r];
	const struct kvt_group *group = &w->snapshot->group[g];
	const struct kvt_table t = kvt_table_of(w->snapshot, g, q);
	int64_t end = q->first_token + q->ntokens, window = group->window;
	int64_t needed = window && window <= end ? end - window + 1 : 0;
	int64_t *slot = malloc((size_t)q->ntokens * sizeof(*slot));
	/* of llama.cpp's own all that is there; of others no more than a window needs */
	int64_t from = w->foreign && needed ? needed - 1 : 0;

	if (!(w->slot[g][r] = slot))
		return kvt_no_memory(w->err, NULL);
	for (int64_t i = 0; i < q->ntokens; i++)
		slot[i] = -1;
	for (int64_t at = from > q->first_token ? from : q->first_token; at < end;) {
		struct kvt_stretch s = kvt_table_at(&t, at);
		int64_t last = s.end < end ? s.end : end;
		bool there = s.block >= 0 && s.block != t.null_block;

		for (; at < last; at++) {
			bool lacks = kvt_table_lacks(&t, at);

			if (there && !lacks)
				slot[at - q->first_token] = s.block * group->block_size +
							    s.slot + at - s.begin;
			else if (at >= needed && !lacks)
				return kvt_fail(w->err, KVT_BAD_INPUT,
						"token %lld of request %.100s is in no block of group %s: the engine has let go of it",
						LL(at), q->id, group->id);
		}
	}
	return KVT_OK;
}

static enum kvt_status find_all_slots(struct kvt_llama_writing *w)
{
	enum { MOST = 1 << 27 };	/* eight bytes each */
	const struct kvt_snapshot *s = w->snapshot;
	enum kvt_status status = KVT_OK;
	int64_t all = 0;

	for (int64_t r = 0; r < s->nrequests && all <= MOST; r++)
		all += s->request[r].ntokens * s->ngroups;
	if (all > MOST)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"the requests have more than %d positions in all groups: cut some of them out first",
				MOST);

	for (int g = 0; g < s->ngroups; g++) {
		if (is_states(&s->group[g]))
			continue;
		w->slot[g] = calloc((size_t)s->nrequests + 1, sizeof(*w->slot[g]));
		if (!w->slot[g])
			return kvt_no_memory(w->err, NULL);
		for (int64_t r = 0; !status && r < s->nrequests; r++)
			status = find_slots(w, g, r);
	}
	return status;
}

/* ---- cells -------------------------------------------------------------- */

/* Members of a sequence in the template; they stand together, by position. */
static const struct kvt_llama_member *
members_of(int64_t *n, const struct kvt_llama_cache *c, int32_t sequence)
{
	int64_t i = 0;

	while (i < c->nmembers && c->member[i].sequence < sequence)
		i++;
	for (*n = 0; i + *n < c->nmembers && c->member[i + *n].sequence == sequence;)
		++*n;
	return *n ? c->member + i : NULL;
}

/* Is the token there?  All groups of a cache have it, or none does. */
static enum kvt_status is_there(bool *there, const struct kvt_llama_writing *w, int cache,
				int64_t r, int64_t i)
{
	int first = -1;

	*there = true;
	for (int g = 0; g < w->snapshot->ngroups; g++) {
		bool here = w->cache[cache].uses[g] && w->slot[g][r][i] >= 0;

		if (!w->cache[cache].uses[g])
			continue;
		if (first >= 0 && here != *there)
			return kvt_fail(w->err, KVT_BAD_INPUT,
					"token %lld of request %.100s is in group %s and not in group %s, whose layers have one cache in llama.cpp",
					LL(w->snapshot->request[r].first_token + i),
					w->snapshot->request[r].id,
					w->snapshot->group[here ? g : first].id,
					w->snapshot->group[here ? first : g].id);
		first = first < 0 ? g : first;
		*there = here;
	}
	return KVT_OK;
}

/* Are two tokens the same slots in all groups of a cache? */
static bool same_slots(const struct kvt_llama_writing *w, int cache,
		       const struct kvt_llama_held *a, int64_t r, int64_t i)
{
	bool same = w->snapshot->request[a->request].first_token + a->at ==
		    w->snapshot->request[r].first_token + i;
	int n = 0;

	for (int g = 0; same && g < w->snapshot->ngroups; g++)
		if (w->cache[cache].uses[g]) {
			same = w->slot[g][a->request][a->at] == w->slot[g][r][i];
			n++;
		}
	return same && n;
}

/* The cell that another sequence has for this token, where sequences share cells. */
static const struct kvt_llama_held *
find_shared(const struct kvt_llama_writing *w, int cache, int64_t nbefore,
	    const int64_t *first, int64_t r, int64_t i)
{
	const struct kvt_llama_written *c = &w->cache[cache];
	int64_t position = w->snapshot->request[r].first_token + i;

	for (int64_t q = 0; w->like.cache[cache].nstreams == 1 && q < r; q++) {
		int64_t from = first[q], to = q + 1 < r ? first[q + 1] : nbefore;

		while (from < to) {
			int64_t mid = from + (to - from) / 2;
			const struct kvt_request *other =
				&w->snapshot->request[c->held[mid].request];

			if (other->first_token + c->held[mid].at < position)
				from = mid + 1;
			else
				to = mid;
		}
		if (from < (q + 1 < r ? first[q + 1] : nbefore) &&
		    same_slots(w, cache, &c->held[from], r, i))
			return &c->held[from];
	}
	return NULL;
}

static enum kvt_status stream_for(uint32_t *out, const struct kvt_llama_writing *w,
				  int cache, int32_t sequence)
{
	int64_t n = w->like.cache[cache].nstreams, has;
	const struct kvt_llama_member *m = members_of(&has, &w->like.cache[cache],
						      sequence);

	*out = has ? m->stream : n == 1 ? 0 : (uint32_t)sequence;
	/* a file of one sequence is read into any, but has as many streams */
	if (!w->whole && *out >= n)
		*out = 0;
	return *out < n ? KVT_OK :
	       kvt_fail(w->err, KVT_BAD_INPUT,
			"%s: is of a context for %lld sequences, and the dump has one with number %ld: give a state file of a context for more, or a unified one",
			w->path, LL(n), (long)sequence);
}

/* Tokens of a request, as long as there are any. */
static enum kvt_status hold_request(struct kvt_llama_writing *w, int cache, int64_t r,
				    int64_t *first, int64_t *ncells)
{
	struct kvt_llama_written *c = &w->cache[cache];
	const struct kvt_request *q = &w->snapshot->request[r];
	const struct kvt_llama_held *shared;
	enum kvt_status status;
	uint32_t stream = 0;
	bool there;

	first[r] = c->nheld;
	for (int64_t i = 0; i < q->ntokens; i++) {
		if ((status = is_there(&there, w, cache, r, i)))
			return status;
		if (!there)
			continue;
		if (c->nheld == first[r] &&
		    (status = stream_for(&stream, w, cache, w->sequence[r])))
			return status;
		shared = find_shared(w, cache, first[r], first, r, i);
		c->held[c->nheld++] = (struct kvt_llama_held){
			stream, shared ? shared->order : (*ncells)++, w->sequence[r],
			(int32_t)(q->first_token + i), r, i, -1 };
	}
	return KVT_OK;
}

/*
 * Cells of the template, where it has the same sequences with the same tokens: in their
 * order then, and with what else it says of each.
 */
static bool follow(struct kvt_llama_writing *w, int cache)
{
	struct kvt_llama_written *c = &w->cache[cache];
	const struct kvt_llama_cache *like = &w->like.cache[cache];
	int64_t n;

	if (c->nheld != like->nmembers)
		return false;
	for (int64_t i = 0, k = 0; i < c->nheld; i += k) {
		const struct kvt_llama_member *m = members_of(&n, like,
							      c->held[i].sequence);
		bool counted = false;

		for (int64_t j = 1; j < n; j++)
			counted |= m[j].position == m[j - 1].position;
		for (k = 0; i + k < c->nheld &&
			    c->held[i + k].request == c->held[i].request; k++)
			if (k >= n || m[k].stream != c->held[i + k].stream ||
			    (!counted && m[k].position != c->held[i + k].position))
				return false;
		if (k != n)
			return false;
		for (k = 0; k < n; k++) {
			c->held[i + k].position = m[k].position;
			c->held[i + k].like = m[k].cell;
		}
	}
	return true;
}

static int by_order(const void *a, const void *b)
{
	const struct kvt_llama_held *m = a, *n = b;

	if (m->stream != n->stream)
		return m->stream < n->stream ? -1 : 1;
	if (m->order != n->order)
		return m->order < n->order ? -1 : 1;
	return m->sequence < n->sequence ? -1 : m->sequence > n->sequence;
}

/* Only if what is one cell here is one there, too. */
static void take_order(struct kvt_llama_written *c)
{
	bool same = true;

	for (int64_t i = 1; i < c->nheld; i++)
		same &= c->held[i].stream != c->held[i - 1].stream ||
			(c->held[i].order == c->held[i - 1].order) ==
			(c->held[i].like == c->held[i - 1].like);
	for (int64_t i = 0; same && i < c->nheld; i++)
		c->held[i].order = c->held[i].like;
}

/* As many at most: those that the first of its groups has. */
static int64_t count_there(const struct kvt_llama_writing *w, int cache, int64_t r)
{
	int64_t n = 0, ntokens = w->snapshot->request[r].ntokens;
	int g = 0;

	while (g < w->snapshot->ngroups && !w->cache[cache].uses[g])
		g++;
	for (int64_t i = 0; i < ntokens; i++)
		n += g == w->snapshot->ngroups || w->slot[g][r][i] >= 0;
	return n;
}

static enum kvt_status hold_cells(struct kvt_llama_writing *w, int cache)
{
	struct kvt_llama_written *c = &w->cache[cache];
	int64_t total = 0, ncells = 0, *first;
	enum kvt_status status = KVT_OK;

	for (int64_t r = 0; r < w->snapshot->nrequests; r++)
		total += count_there(w, cache, r);
	c->held = malloc(((size_t)total + 1) * sizeof(*c->held));
	first = calloc((size_t)w->snapshot->nrequests + 1, sizeof(*first));
	if (!c->held || !first) {
		free(first);
		return kvt_no_memory(w->err, NULL);
	}
	for (int64_t r = 0; !status && r < w->snapshot->nrequests; r++)
		status = hold_request(w, cache, r, first, &ncells);
	free(first);
	if (status)
		return status;
	if (follow(w, cache)) {
		qsort(c->held, (size_t)c->nheld, sizeof(*c->held), by_order);
		take_order(c);
	} else if (w->like.extra && w->writer->options.as_is) {
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"%s: has other positions than the dump, and --as-is takes what belongs to them",
				w->path);
	}
	qsort(c->held, (size_t)c->nheld, sizeof(*c->held), by_order);
	return KVT_OK;
}

/* ---- states ------------------------------------------------------------- */

static int states_group(const struct kvt_llama_writing *w, const char *id)
{
	for (int g = 0; g < w->snapshot->ngroups; g++)
		if (is_states(&w->snapshot->group[g]) &&
		    !strcmp(w->snapshot->group[g].id, id))
			return g;
	return -1;
}

static enum kvt_status check_states(const struct kvt_llama_writing *w, int which)
{
	const struct kvt_llama_states *like = &w->like.states;
	const struct kvt_group *g = w->states.group[which] < 0 ? NULL :
				    &w->snapshot->group[w->states.group[which]];
	int64_t nbytes = g ? g->shape.n[KVT_AXIS_D] * g->shape.elem : 0;
	bool older = w->like.version < (w->like.whole ? 10 : 3);

	if (like->row[which].uneven)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s: states of recurrent layers differ in width", w->path);
	if (nbytes != like->row[which].nbytes ||
	    (g && g->shape.n[KVT_AXIS_L] != like->nlayers))
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"the dump has %lld recurrent layers with states of %lld bytes, and %s has %lld with %lld: they are of two models",
				LL(g ? g->shape.n[KVT_AXIS_L] : 0), LL(nbytes), w->path,
				LL(like->nlayers), LL(like->row[which].nbytes));
	if (g && which && (g->state_order == KVT_STATE_EITHER) != older &&
	    !w->writer->options.as_is)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s holds recurrent states of %s build than %s, and builds order them in two ways; --as-is writes them as they are",
				g->id, older ? "a newer" : "an older", w->path);
	return KVT_OK;
}

/* The newest state of a request, which another may have, too. */
static enum kvt_status take_state(struct kvt_llama_writing *w, int64_t r)
{
	struct kvt_llama_kept *k = &w->states;
	int64_t block[2] = { -1, -1 }, cell = 0;

	for (int i = 0; i < 2; i++) {
		const struct kvt_table t = kvt_table_of(w->snapshot, k->group[i] < 0 ? 0 :
							k->group[i],
							&w->snapshot->request[r]);
		struct kvt_stretch s;

		if (k->group[i] < 0)
			continue;
		s = t.nblocks ? kvt_table_at(&t, t.slots.end - 1) :
				(struct kvt_stretch){ .live = false };
		if (t.slots.end < 1 || !s.live)
			return kvt_fail(w->err, KVT_BAD_INPUT,
					"request %.100s has no recurrent state in group %s",
					w->snapshot->request[r].id,
					w->snapshot->group[k->group[i]].id);
		block[i] = s.block;
	}
	if (block[0] >= 0 && block[1] >= 0 && block[0] != block[1])
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"request %.100s has its recurrent states in blocks %lld and %lld, and llama.cpp in one cell",
				w->snapshot->request[r].id, LL(block[0]), LL(block[1]));
	block[0] = block[0] < 0 ? block[1] : block[0];
	while (cell < k->ncells && k->block[cell] != block[0])
		cell++;
	if (cell == k->ncells)
		k->block[k->ncells++] = (uint32_t)block[0];
	k->cell[r] = cell;
	return KVT_OK;
}

static enum kvt_status take_states(struct kvt_llama_writing *w)
{
	static const char *const ids[] = { "r", "s" };
	struct kvt_llama_kept *k = &w->states;
	size_t n = (size_t)w->snapshot->nrequests;
	enum kvt_status status = KVT_OK;

	for (int i = 0; i < 2; i++)
		k->group[i] = states_group(w, ids[i]);
	if (!w->like.states.ncells && k->group[0] < 0 && k->group[1] < 0)
		return KVT_OK;
	for (int i = 0; !status && i < 2; i++)
		status = check_states(w, i);
	k->block = calloc(n + 1, sizeof(*k->block));
	k->cell = calloc(n + 1, sizeof(*k->cell));
	if (!status && (!k->block || !k->cell))
		return kvt_no_memory(w->err, NULL);
	for (size_t r = 0; !status && r < n; r++)
		status = take_state(w, (int64_t)r);
	return status;
}

enum kvt_status kvt_llama_plan_layers(struct kvt_llama_writing *w)
{
	enum kvt_status status = check_dump(w);

	for (int i = 0; !status && i < w->like.ncaches; i++)
		status = take_cache(w, i);
	if (!status && !w->like.ncaches)
		for (int g = 0; !status && g < w->snapshot->ngroups; g++)
			if (!is_states(&w->snapshot->group[g]))
				status = kvt_fail(w->err, KVT_BAD_INPUT,
						  "%s: has recurrent states alone, and the dump keys and values: they are of two models",
						  w->path);
	return status;
}

enum kvt_status kvt_llama_plan(struct kvt_llama_writing *w)
{
	enum kvt_status status = kvt_llama_plan_layers(w);

	(void)(status || (status = take_sequences(w)) || (status = find_all_slots(w)));
	for (int i = 0; !status && i < w->like.ncaches; i++)
		status = hold_cells(w, i);
	return status ? status : take_states(w);
}
