/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attend_plan.c - which pairs have attention, whose queries, and what they see
 *
 * In: pairs, and the dump of queries, by what they say of themselves.  A pair holds keys
 * and values, or keys, and another one of the same layers and heads the values; or it is
 * a latent.  Each group of queries that has layers of it makes one list of cells.
 *
 * What a query at position p sees follows from the kind: all up to p, a window, a chunk,
 * the prompt and a window; of cross attention everything.  Of these the tokens count that
 * both sides hold; how many they lack is told.
 */
#include "lib/ops/diff/attend_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/keys.h"

/* ---- what is said of it ---------------------------------------------------- */

enum kvt_status kvt_attend_parse(struct diff_attend_options *out, const char *what,
				 const char *text, struct kvt_error *err)
{
#define OF(type, name) \
	{ #name, KVT_KEY_##type, offsetof(struct diff_attend_options, name), NULL }
	static const struct kvt_key key[] = {
		OF(REAL, scale), OF(REAL, cap), OF(COUNT, rank), OF(COUNT, sample), { 0 }
	};
#undef OF
	struct kvt_keys keys = { what, key, out, 0 };
	enum kvt_status status = kvt_keys_copy(&keys, text, err);

	for (int i = 0; !status && i < 2; i++) {
		double x = i ? out->cap : out->scale;

		if (keys.seen >> i & 1 && !(x > 0 && isfinite(x)))
			status = kvt_fail(err, KVT_USAGE,
					  "%s: %s is %g, expected a number above 0",
					  what, key[i].name, x);
	}
	return status;
}

/* What the caller leaves open is as the queries' note has it. */
static enum kvt_status complete(struct diff_attend_options *to,
				const struct diff_attend_options *options,
				struct kvt_error *err)
{
	static const char begin[] = "attention ";
	const char *note = options->queries ? kvt_dump_snapshot(options->queries)->note :
					      NULL;
	struct diff_attend_options said = { .scale = 0 };
	struct kvt_error why = { "" };

	*to = *options;
	if (!note || strncmp(note, begin, strlen(begin)))
		return KVT_OK;
	if (kvt_attend_parse(&said, "its note", note + strlen(begin), &why))
		return kvt_fail(err, KVT_BAD_INPUT, "%s: %s",
				kvt_dump_path(options->queries), why.text);
	to->scale = to->scale > 0 ? to->scale : said.scale;
	to->cap = to->cap > 0 ? to->cap : said.cap;
	to->rank = to->rank ? to->rank : said.rank;
	return KVT_OK;
}

/* ---- what a query sees ---------------------------------------------------- */

static int64_t greater(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

void attend_sees(struct kvt_range out[2], const struct attend_private *own,
		 const struct attend_request *request, int64_t position)
{
	int64_t begin = 0, end = position + 1, window = own->window;
	int64_t prompt = 0, first = request->base, last = first + request->span;

	if (own->kind == KVT_CROSS)
		end = last;
	else if (window && own->kind == KVT_CHUNKED_LOCAL)
		begin = position / window * window;
	else if (window)
		begin = greater(0, end - window);
	if (own->kind == KVT_RSWA)
		prompt = request->prompt < begin ? request->prompt : begin;
	out[0] = (struct kvt_range){ first, prompt };
	out[1] = (struct kvt_range){ greater(begin, first), end < last ? end : last };
	for (int i = 0; i < 2; i++) {
		out[i].begin -= first;
		out[i].end -= first;
		if (out[i].end < out[i].begin)
			out[i].end = out[i].begin;
	}
}

/* How many it would see if the sides held everything. */
static int64_t wanted_of(const struct attend_private *own,
			 const struct attend_request *request, int64_t position)
{
	struct attend_request whole = *request;
	struct kvt_range sees[2];

	if (own->kind != KVT_CROSS) {
		whole.base = 0;
		whole.span = position + 1;
	}
	attend_sees(sees, own, &whole, position);
	return sees[0].end - sees[0].begin + sees[1].end - sees[1].begin;
}

/* ---- pairs ---------------------------------------------------------------- */

static bool is_attention(const struct diff_pair *p)
{
	enum kvt_kind kind = p->group[SIDE_A]->kind;

	return p->nsegments && !p->recurrent && !kvt_is_recurrent(kind) &&
	       kind != KVT_OPAQUE && p->group[SIDE_A]->tokens_per_slot == 1 &&
	       p->group[SIDE_B]->tokens_per_slot == 1;
}

/* Same layers and heads, in the same order. */
static bool same_place(const struct diff_pair *a, const struct diff_pair *b)
{
	const struct kvt_group *ga = a->group[SIDE_A], *gb = b->group[SIDE_A];
	bool same = a->nlayers == b->nlayers && a->nheads == b->nheads &&
		    ga->head_start + a->head[SIDE_A] == gb->head_start + b->head[SIDE_A];

	for (int64_t l = 0; same && l < a->nlayers; l++)
		same = kvt_layer_id(ga, a->layer[SIDE_A][l]) ==
		       kvt_layer_id(gb, b->layer[SIDE_A][l]);
	return same;
}

/* The pair of the values to these keys; -1: none. */
static int values_of(const struct diff_pairs *pairs, int i)
{
	const struct diff_pair *p = &pairs->pair[i];

	if (p->nkv == 2 || p->group[SIDE_A]->kind == KVT_MLA)
		return i;
	for (int k = 0; p->half == 0 && k < pairs->n; k++)
		if (is_attention(&pairs->pair[k]) && pairs->pair[k].nkv == 1 &&
		    pairs->pair[k].half == 1 && same_place(p, &pairs->pair[k]))
			return k;
	return -1;
}

/* Of a latent: its first part, if it has two; of one without rotary numbers, all. */
static enum kvt_status rank_of(int64_t *rank, const struct diff_pair *p,
			       const struct diff_attend_options *options,
			       struct kvt_error *err)
{
	const struct kvt_group *g = p->group[SIDE_A];

	*rank = options->rank;
	for (int s = 0; !*rank && s < NSIDES; s++) {
		g = p->group[s];
		if (!g->content.type && g->ncomponents == 2)
			*rank = g->component[0].length;
	}
	if (*rank > 0 && *rank <= p->content)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			*rank ? "%s: a latent of %lld numbers has no value of %lld" :
			"%s: how many of the %lld numbers of a latent are its value is not said; give --attend=rank=N, the model's kv_lora_rank",
			p->id, LL(p->content), LL(*rank));
}

static enum kvt_status start(struct diff_attended *of, const struct diff_result *results,
			     const struct diff_pairs *pairs, int i,
			     const struct diff_attend_options *options,
			     struct kvt_error *err)
{
	const struct diff_pair *p = &pairs->pair[i], *v;
	bool latent = p->group[SIDE_A]->kind == KVT_MLA;

	of->pair[0] = i;
	of->pair[1] = values_of(pairs, i);
	of->key = p;
	of->value = v = &pairs->pair[of->pair[1]];
	of->nheads = p->nheads;
	of->dim = p->content;
	of->rank = v->content;
	of->cap = options->cap;
	of->scale = options->scale > 0 ? options->scale : 1 / sqrt((double)of->dim);
	of->equal = results[i].equal && results[of->pair[1]].equal;
	of->own = calloc(1, sizeof(*of->own));
	of->layer = calloc((size_t)p->nlayers + 1, sizeof(*of->layer));
	if (!of->own || !of->layer ||
	    !(of->own->from = calloc((size_t)p->nlayers + 1, sizeof(*of->own->from))))
		return kvt_no_memory(err, NULL);
	of->own->meter[0] = results[i].meter;
	of->own->meter[1] = results[of->pair[1]].meter;
	of->own->kv[1] = p == v && p->nkv == 2;
	of->own->kind = p->group[SIDE_A]->kind;
	of->own->window = p->group[SIDE_A]->window;
	if (!p->by_tokens)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is compared by blocks, which do not say which token a query sees: attention needs requests, such as --blocks-of=A=5,2,9:40",
				p->id);
	if (p->group[SIDE_B]->window != of->own->window)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a window of %lld tokens in A and %lld in B", p->id,
				LL(of->own->window), LL(p->group[SIDE_B]->window));
	if (latent && options->scale <= 0)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the scale of a latent does not follow from it; give --attend=scale=X, such as 1/sqrt(qk_nope_head_dim + qk_rope_head_dim)",
				p->id);
	return latent ? rank_of(&of->rank, p, options, err) : KVT_OK;
}

/* ---- requests and queries ------------------------------------------------- */

/* The queries that are this request's: of one name, or the only one of either. */
static const struct kvt_request *queries_of(const struct kvt_snapshot *s, const char *id,
					    bool only)
{
	const struct kvt_request *named = kvt_request_named(s, id);

	return named ? named : only && s->nrequests == 1 ? &s->request[0] : NULL;
}

/* 1 for each position that both sides hold, of keys. */
static uint8_t *held_by(const struct diff_pair *p, struct attend_request *q)
{
	int64_t begin = INT64_MAX, end = 0;
	uint8_t *held;

	for (int64_t i = 0; i < p->nsegments; i++) {
		const struct diff_segment *s = &p->segment[i];

		if (s->request != q->request)
			continue;
		begin = s->position < begin ? s->position : begin;
		end = greater(end, s->position + s->count);
	}
	q->base = begin < end ? begin : 0;
	q->span = begin < end ? end - begin : 0;
	held = calloc((size_t)q->span + 1, 1);
	for (int64_t i = 0; held && i < p->nsegments; i++)
		if (p->segment[i].request == q->request)
			memset(held + p->segment[i].position - q->base, 1,
			       (size_t)p->segment[i].count);
	return held;
}

static void add_query(struct diff_attended *of, struct attend_request *q,
		      struct attend_query query, const uint8_t *held)
{
	int64_t at = query.position - q->base;
	bool own = at >= 0 && at < q->span && held[at];
	struct kvt_range sees[2];

	if (!own && of->own->kind != KVT_CROSS) {
		of->before++;
		return;
	}
	attend_sees(sees, of->own, q, query.position);
	query.missing = wanted_of(of->own, q, query.position);
	for (int r = 0; r < 2; r++)
		for (int64_t i = sees[r].begin; i < sees[r].end; i++)
			query.seen += held[i];
	query.missing -= query.seen;
	q->query[q->n++] = query;
}

/* Of a dump of queries. */
static bool add_real(struct diff_attended *of, struct attend_request *q,
		     const struct kvt_request *request, const uint8_t *held)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(of->own->queries);
	struct kvt_table t = kvt_table_named(s, of->own->group, request);
	int64_t room = t.slots.end - t.slots.begin;

	q->query = room > 0 ? calloc((size_t)room, sizeof(*q->query)) : NULL;
	for (int64_t at = t.slots.begin; q->query && at < t.slots.end; at++) {
		struct kvt_stretch here = kvt_table_at(&t, at);

		if (here.live)
			add_query(of, q, (struct attend_query){ at, here.block,
				  here.slot, 0, 0 }, held);
	}
	return room <= 0 || q->query;
}

/* Keys of A at equal distances, the last of them among these. */
static bool add_proxies(struct diff_attended *of, struct attend_request *q,
			int64_t sample, const uint8_t *held)
{
	const struct diff_pair *p = of->key;
	int64_t total = 0, step;

	for (int64_t i = 0; i < q->span; i++)
		total += held[i];
	if (sample > total)
		sample = total;
	if (!(q->query = calloc((size_t)sample + 1, sizeof(*q->query))))
		return false;
	step = sample ? total / sample : 1;
	for (int64_t i = 0; i < p->nsegments; i++) {
		const struct diff_segment *s = &p->segment[i];

		for (int64_t k = 0; s->request == q->request && k < s->count; k++) {
			int64_t at = s->position + k;
			int64_t from_end = q->base + q->span - 1 - at;

			if (from_end % step == 0 && from_end / step < sample)
				add_query(of, q, (struct attend_query){ at,
					  s->at[SIDE_A], s->slot[SIDE_A] + k, 0, 0 },
					  held);
		}
	}
	return true;
}

static bool has_segments(const struct diff_pair *p, int64_t request)
{
	for (int64_t i = 0; i < p->nsegments; i++)
		if (p->segment[i].request == request)
			return true;
	return false;
}

/* The values must be there wherever the keys are. */
static bool same_tokens(const struct diff_pair *key, const struct diff_pair *value,
			int64_t request, const uint8_t *held,
			const struct attend_request *q)
{
	struct attend_request other = { .request = request };
	uint8_t *values = key == value ? NULL : held_by(value, &other);
	bool same = key == value || (values && other.base == q->base &&
				     other.span == q->span &&
				     !memcmp(values, held, (size_t)q->span));

	free(values);
	return same;
}

static enum kvt_status plan_request(struct diff_attended *of, int64_t r, bool only,
				    const struct diff_attend_options *options,
				    struct kvt_error *err)
{
	const struct kvt_snapshot *a = kvt_dump_snapshot(of->key->side[SIDE_A]->dump);
	struct attend_request *q = &of->own->request[of->nrequests];
	const struct kvt_request *from = NULL;
	uint8_t *held;
	bool made;

	*q = (struct attend_request){ .request = r,
				      .prompt = a->request[r].prompt_tokens };
	if (of->own->group >= 0 &&
	    !(from = queries_of(kvt_dump_snapshot(of->own->queries), a->request[r].id,
				only)))
		return KVT_OK;
	if (of->own->kind == KVT_RSWA && !q->prompt)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the prompt of request %.80s, which every query sees, is not said: prompt_tokens of the manifest",
				of->key->id, a->request[r].id);
	if (!(held = held_by(of->key, q)))
		return kvt_no_memory(err, NULL);
	if (!same_tokens(of->key, of->value, r, held, q)) {
		free(held);
		return kvt_fail(err, KVT_BAD_INPUT,
				"request %.80s has tokens with keys in %s and no values in %s",
				a->request[r].id, of->key->id, of->value->id);
	}
	made = from ? add_real(of, q, from, held) :
		      add_proxies(of, q, options->sample ? options->sample :
				  ATTEND_SAMPLE, held);
	free(held);
	of->nqueries += q->n;
	of->nrequests++;
	return made ? KVT_OK : kvt_no_memory(err, NULL);
}

static enum kvt_status plan_requests(struct diff_attended *of,
				     const struct diff_attend_options *options,
				     struct kvt_error *err)
{
	int64_t n = kvt_dump_snapshot(of->key->side[SIDE_A]->dump)->nrequests, with = 0;
	enum kvt_status status = KVT_OK;

	of->own->request = calloc((size_t)n + 1, sizeof(*of->own->request));
	if (!of->own->request)
		return kvt_no_memory(err, NULL);
	for (int64_t r = 0; r < n; r++)
		with += has_segments(of->key, r);
	for (int64_t r = 0; !status && r < n; r++)
		if (has_segments(of->key, r))
			status = plan_request(of, r, with == 1, options, err);
	return status;
}

/* ---- groups of queries ---------------------------------------------------- */

static bool is_of_queries(const struct kvt_group *g)
{
	return strcmp(g->id, "sinks") && !kvt_is_recurrent(g->kind) &&
	       g->shape.n[KVT_AXIS_K] == 1 && g->tokens_per_slot == 1;
}

/* Layers of the pair that the group has; all of them where keys stand in. */
static void common_layers(struct diff_attended *of, const struct kvt_group *queries)
{
	const struct diff_pair *p = of->key;

	for (int64_t l = 0; l < p->nlayers; l++) {
		uint64_t id = kvt_layer_id(p->group[SIDE_A], p->layer[SIDE_A][l]);
		int64_t from = queries ? 0 : l;
		int64_t n = queries ? queries->shape.n[KVT_AXIS_L] : l + 1;

		while (queries && from < n && kvt_layer_id(queries, from) != id)
			from++;
		if (from == n)
			continue;
		of->own->from[of->nlayers] = from;
		of->layer[of->nlayers++] = l;
	}
}

/* Which heads of queries a head of keys has. */
static enum kvt_status share_heads(struct diff_attended *of, const struct kvt_group *g,
				   struct kvt_error *err)
{
	const struct kvt_group *a = of->key->group[SIDE_A];
	int64_t first = a->head_start + of->key->head[SIDE_A];
	int64_t has = g->shape.n[KVT_AXIS_H];

	if (g->content.type || !g->dtype->is_float || g->shape.n[KVT_AXIS_D] != of->dim)
		return kvt_fail(err, KVT_BAD_INPUT,
				"queries in %s are %lld %s a head, expected %lld numbers, as keys of %s have them",
				g->id, LL(g->shape.n[KVT_AXIS_D]), kvt_group_type(g).s,
				LL(of->dim), of->key->id);
	of->ratio = a->total_heads > 0 ? g->total_heads / a->total_heads : 0;
	if (of->ratio < 1 || g->total_heads % a->total_heads)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld heads of queries in %s are not a multiple of the %lld of keys in %s",
				LL(g->total_heads), g->id, LL(a->total_heads),
				of->key->id);
	of->first_head = first * of->ratio;
	of->own->query_head = of->first_head - g->head_start;
	if (of->own->query_head < 0 || of->own->query_head + of->nheads * of->ratio > has)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s has queries of heads %lld to %lld, expected %lld to %lld, which read the keys of %s",
				g->id, LL(g->head_start), LL(g->head_start + has - 1),
				LL(of->first_head),
				LL(of->first_head + of->nheads * of->ratio - 1),
				of->key->id);
	return KVT_OK;
}

/* A number for each layer and head of queries, if the dump has them. */
static enum kvt_status read_sinks(struct diff_attended *of, struct kvt_error *err)
{
	const struct kvt_dump *dump = of->own->queries;
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	int number = kvt_group_named(s, "sinks");
	int64_t n = of->nheads * of->ratio;
	const struct kvt_group *g = number < 0 ? NULL : &s->group[number];
	enum kvt_status status = KVT_OK;

	if (!g)
		return KVT_OK;
	if (g->shape.n[KVT_AXIS_D] != 1 || g->shape.n[KVT_AXIS_B] != 1 ||
	    g->shape.n[KVT_AXIS_S] != 1 || g->shape.n[KVT_AXIS_K] != 1 ||
	    of->own->query_head + n > g->shape.n[KVT_AXIS_H] || !g->dtype->is_float)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: group sinks has another shape than one number a layer and head of queries",
				kvt_dump_path(dump));
	of->own->sink = calloc((size_t)(of->nlayers * n) + 1, sizeof(*of->own->sink));
	of->sinks = true;
	if (!of->own->sink)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; !status && i < of->nlayers * n; i++) {
		struct kvt_box box = kvt_box_whole(&g->shape);
		uint8_t bytes[8] = { 0 };
		int64_t id = kvt_attend_layer(of, i / n), l = 0;

		while (l < g->shape.n[KVT_AXIS_L] && (int64_t)kvt_layer_id(g, l) != id)
			l++;
		if (l == g->shape.n[KVT_AXIS_L])
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: group sinks lacks layer %lld",
					kvt_dump_path(dump), LL(id));
		box_take(&box, KVT_AXIS_L, l, 1);
		box_take(&box, KVT_AXIS_H, of->own->query_head + i % n, 1);
		status = kvt_dump_read(dump, number, &box, NULL, bytes, err);
		of->own->sink[i] = (float)kvt_dtype_decode(g->dtype, bytes);
	}
	return status;
}

/* One group of queries, or keys that stand in for them, and a pair. */
static enum kvt_status plan_one(struct diff_attention *out, int i, int group,
				const struct diff_result *results,
				const struct diff_pairs *pairs,
				const struct diff_attend_options *options,
				struct kvt_error *err)
{
	struct diff_attended *of = &out->of[out->n++];
	const struct kvt_group *g = group < 0 ? NULL :
				    kvt_dump_group(options->queries, group);
	enum kvt_status status = start(of, results, pairs, i, options, err);

	if (status)
		return status;
	of->own->group = group;
	of->own->queries = options->queries;
	of->ratio = 1;
	of->first_head = of->key->group[SIDE_A]->head_start + of->key->head[SIDE_A];
	common_layers(of, g);
	if (of->nlayers &&
	    ((g && ((status = share_heads(of, g, err)) ||
		    (status = read_sinks(of, err)))) ||
	     (status = plan_requests(of, options, err))))
		return status;
	of->cell = calloc((size_t)(of->nlayers * of->nheads * of->ratio) + 1,
			  sizeof(*of->cell));
	return of->cell ? KVT_OK : kvt_no_memory(err, NULL);
}

static enum kvt_status nothing_fits(const struct diff_attention *out, int nattend,
				    const struct diff_attend_options *options,
				    struct kvt_error *err)
{
	if (!nattend)
		return kvt_fail(err, KVT_BAD_INPUT,
				"nothing that is compared has keys and values of single tokens: there is no attention");
	if (!out->n)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: no group of it is of queries, which have one vector of a token and head where a cache has keys and values",
				kvt_dump_path(options->queries));
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: no query of a layer, request and position that both dumps hold; requests have the same names there, and layers the same numbers",
			options->queries ? kvt_dump_path(options->queries) : "A");
}

enum kvt_status attend_plan(struct diff_attention *out, const struct diff_result *results,
			    const struct diff_pairs *pairs,
			    const struct diff_attend_options *options,
			    struct kvt_error *err)
{
	const struct kvt_snapshot *queries = options->queries ?
					     kvt_dump_snapshot(options->queries) : NULL;
	int ngroups = queries ? queries->ngroups : 1;
	struct diff_attend_options how;
	enum kvt_status status;
	int64_t total = 0;
	int nattend = 0;

	if ((status = complete(&how, options, err)))
		return status;
	out->proxy = !queries;
	out->of = calloc((size_t)pairs->n * (size_t)ngroups + 1, sizeof(*out->of));
	if (!out->of)
		return kvt_no_memory(err, NULL);
	for (int i = 0; !status && i < pairs->n; i++) {
		if (!is_attention(&pairs->pair[i]) || values_of(pairs, i) < 0)
			continue;
		nattend++;
		for (int g = 0; !status && g < ngroups; g++)
			if (!queries || is_of_queries(&queries->group[g]))
				status = plan_one(out, i, queries ? g : -1, results,
						  pairs, &how, err);
	}
	for (int i = 0; i < out->n; i++)
		total += out->of[i].nqueries * out->of[i].nlayers;
	return status || total ? status : nothing_fits(out, nattend, options, err);
}
