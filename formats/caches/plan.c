/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c - which tensors one request is, as a cache of mlx-lm or transformers
 *
 * These know tokens and no blocks: the slots of a layer are the tokens of the request in
 * their order, in a layer with a window the newest ones.  Where each of them is in the
 * blocks of the dump its table says.  A token that a layer needs and no block has is
 * refused; one that it does not need any more may be zeros.
 */
#include "formats/caches/write.h"
#include "formats/file/tokens.h"

#include <stdlib.h>
#include <string.h>

static const struct kvt_group *group_of(const struct cache_writing *w,
					const struct cache_strip *strip)
{
	return &w->snapshot->group[strip->group];
}

/* ---- what can be written ------------------------------------------------ */

static enum kvt_status check_request(struct cache_writing *w)
{
	const struct kvt_snapshot *s = w->snapshot;
	const struct kvt_parallel *p = &s->parallel;

	if (s->nrequests != 1)
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"a cache of %s is one request, and this dump has %lld of them",
				w->rules->engine, LL(s->nrequests));
	w->request = &s->request[0];
	w->end = w->request->first_token + w->request->ntokens;
	if (w->request->ntokens < 1 || w->end > INT32_MAX)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"request %.100s has %lld tokens, expected 1 to %d",
				w->request->id, LL(w->end), INT32_MAX);
	if (p->tp_size > 1 || p->pp_size > 1 || p->dcp_size > 1)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s has caches of whole models, and this dump is of one rank; kvtool merge makes one of all ranks",
				w->rules->engine);
	return KVT_OK;
}

bool kvt_cache_codes(int64_t *bits, int64_t *group, const struct kvt_group *g)
{
	static const char family[] = "mlx-affine/";
	const char *name = g->content.type ? g->content.type->name : "";
	char *end;

	if (strncmp(name, family, strlen(family)))
		return false;
	*bits = strtoll(name + strlen(family), &end, 10);
	*group = *end == '/' ? strtoll(end + 1, NULL, 10) : 0;
	return *bits > 0 && *group > 0;
}

/*
 * A state is a matrix, which some engines transpose; llama.cpp has the elements of keys
 * in pairs for some architectures and in halves for others, and its files do not say it.
 */
static enum kvt_status check_order(const struct cache_writing *w,
				   const struct kvt_group *g)
{
	const char *source = w->snapshot->source_format;

	if (w->writer->options.as_is)
		return KVT_OK;
	if (kvt_is_recurrent(g->kind) && (!source || strcmp(source, w->rules->source)))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s holds recurrent states that do not come from %s, and each engine orders them in its own way; --as-is writes them as they are",
				g->id, w->rules->engine);
	/* "llama.cpp session version 9", or "llama" of who read a snapshot of it */
	if (source && !strncmp(source, "llama", strlen("llama")) &&
	    !strstr(source, "keys in halves"))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s comes from llama.cpp, which orders the elements of keys in pairs for llama and mistral, and as %s does for most others: read it with --set=keys=halves of these, or --as-is writes them as they are",
				g->id, w->rules->engine);
	return KVT_OK;
}

static enum kvt_status check_group(const struct cache_writing *w,
				   const struct kvt_group *g)
{
	bool states = g->kind == KVT_MAMBA_CONV || g->kind == KVT_MAMBA_SSM;
	const char *engine = w->rules->engine;
	int64_t bits, of;

	if (g->kind != KVT_FULL_ATTENTION && g->kind != KVT_SLIDING_WINDOW && !states)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s is %s, which kvtool does not write for %s",
				g->id, kvt_kind_name(g->kind), engine);
	if (g->content.type ? !w->rules->codes || !kvt_cache_codes(&bits, &of, g) :
	    !g->dtype->safetensors)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s holds %s, which %s has no tensors of; kvtool convert --decode=float32 makes numbers of them",
				g->id, kvt_group_type(g).s, engine);
	if (g->content.type && g->kind != KVT_FULL_ATTENTION)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s has a window of codes, and %s quantises only what keeps all tokens",
				g->id, engine);
	if (!states && g->tokens_per_slot != 1)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s has a slot for each %lld tokens, and %s one for each token",
				g->id, LL(g->tokens_per_slot), engine);
	if (!states && (g->total_heads != g->shape.n[KVT_AXIS_H] || g->head_start))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s has %lld of %lld heads, and a cache of %s has them all",
				g->id, LL(g->shape.n[KVT_AXIS_H]), LL(g->total_heads),
				engine);
	if (!states && g->shape.n[KVT_AXIS_K] == 1 && kvt_group_half(g) < 0)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s has rows that are neither keys nor values, and %s keeps keys and values",
				g->id, engine);
	if (g->kind == KVT_SLIDING_WINDOW && !g->window)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s has a window whose length the dump does not say, and a cache of %s is of one",
				g->id, engine);
	if (g->kind == KVT_SLIDING_WINDOW && (g->window < 2 || g->retained))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s has a window of %lld tokens%s, which %s cannot hold",
				g->id, LL(g->window),
				g->retained ? " and retains others" : "", engine);
	return KVT_OK;
}

/* ---- tokens ------------------------------------------------------------- */

/* The first tokens, and the newest: what is between them is gone. */
static enum kvt_status take_hole(struct cache_strip *out, const struct cache_writing *w)
{
	const struct kvt_hole *found = NULL;
	int64_t n = 0;

	for (int64_t i = 0; i < w->request->nholes; i++)
		if (w->request->hole[i].group == out->group) {
			found = &w->request->hole[i];
			n++;
		}
	if (!n)
		return KVT_OK;
	if (!w->rules->rings || group_of(w, out)->content.type || n > 1 ||
	    found->begin < 1 || found->end >= w->end)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s lacks tokens %lld to %lld of request %.100s%s, which a cache of %s has no form for",
				group_of(w, out)->id, LL(found->begin),
				LL(found->end - 1), w->request->id,
				n > 1 ? " and others" : "", w->rules->engine);
	out->keep = found->begin;
	out->first = found->end;
	return KVT_OK;
}

/* What a window has passed may be missing in any way. */
static enum kvt_status take_tokens(struct cache_strip *out, const struct cache_writing *w)
{
	const struct kvt_group *g = group_of(w, out);
	enum kvt_status status = KVT_OK;
	int64_t kept;

	if (g->kind == KVT_SLIDING_WINDOW) {
		out->window = g->window;
		kept = g->window - w->rules->spare;
		out->first = w->end > kept ? w->end - kept : 0;
		out->needed = w->end >= g->window ? w->end - g->window + 1 : 0;
	} else {
		status = take_hole(out, w);
	}
	out->slots = out->keep + w->end - out->first;
	return status;
}

/* The next tokens of the file that follow each other, from 'token' on. */
static struct kvt_range next_tokens(const struct cache_strip *s, int64_t token,
				    int64_t end)
{
	if (token < s->keep)
		return (struct kvt_range){ token, s->keep };
	return (struct kvt_range){ token < s->first ? s->first : token, end };
}

/* ---- strips ------------------------------------------------------------- */

static enum kvt_status set_layout(struct cache_writing *w, struct kvt_group *g,
				  const char *name)
{
	g->page_bytes = g->page_offset = 0;
	return kvt_layout_parse(&g->layout, name, w->err);
}

static enum kvt_status finish_strip(struct cache_writing *w, struct cache_strip *strip)
{
	strip->nbytes = strip->dtype->elem;
	for (int i = 0; i < strip->rank; i++)
		if (__builtin_mul_overflow(strip->nbytes, strip->shape[i],
					   &strip->nbytes))
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"group %s: more than 2^63 bytes",
					group_of(w, strip)->id);
	w->nstrips++;
	return KVT_OK;
}

/* Keys or values: all of a row, or codes, scales and biases. */
static enum kvt_status add_half(struct cache_writing *w, int g, int64_t kv,
				enum cache_use use)
{
	const struct kvt_group *group = &w->snapshot->group[g];
	enum kvt_status status = KVT_OK;
	struct kvt_packing packing = { .nfields = 1 };
	int64_t at = 0;

	if (group->content.type)
		packing = kvt_group_packing(group);
	for (int i = 0; !status && i < packing.nfields; i++) {
		struct cache_strip *strip = &w->strip[w->nstrips];
		int64_t width = group->content.type ? kvt_field_bytes(&packing.field[i]) :
				group->shape.n[KVT_AXIS_D];

		*strip = (struct cache_strip){
			.use = use + 2 * (unsigned)i, .group = g, .kv = kv, .rank = 4,
			.dtype = !group->content.type ? group->dtype : i ?
				 packing.field[i].dtype : kvt_dtype_find("uint32"),
			.dim = { at, at + width },
		};
		if ((status = take_tokens(strip, w)))
			return status;
		strip->shape[0] = 1;
		strip->shape[1] = group->shape.n[KVT_AXIS_H];
		strip->shape[2] = strip->slots;
		strip->shape[3] = width * group->shape.elem / strip->dtype->elem;
		status = finish_strip(w, strip);
		at += width;
	}
	return status;
}

static enum kvt_status add_attention(struct cache_writing *w, int g)
{
	struct kvt_group *group = &w->snapshot->group[g];
	int half = kvt_group_half(group);
	enum kvt_status status = set_layout(w, group, half < 0 ? "LKBHSD" : "LBHSD");

	for (int kv = 0; !status && kv < group->shape.n[KVT_AXIS_K]; kv++)
		status = add_half(w, g, kv, half == 1 || kv ? CACHE_VALUES : CACHE_KEYS);
	return status;
}

static enum kvt_status add_conv(struct cache_writing *w, int g)
{
	struct kvt_group *group = &w->snapshot->group[g];
	struct cache_strip *strip = &w->strip[w->nstrips];
	bool first = w->rules->taps_first;
	enum kvt_status status = set_layout(w, group, first ? "conv-sd" : "conv-ds");

	if (status)
		return status;
	*strip = (struct cache_strip){ .use = CACHE_CONV, .group = g, .rank = 3,
				      .dtype = group->dtype };
	strip->shape[0] = 1;
	strip->shape[1 + first] = group->shape.n[KVT_AXIS_D];
	strip->shape[2 - first] = group->shape.n[KVT_AXIS_S];
	return finish_strip(w, strip);
}

static enum kvt_status add_state(struct cache_writing *w, int g)
{
	struct kvt_group *group = &w->snapshot->group[g];
	struct cache_strip *strip = &w->strip[w->nstrips];
	enum kvt_status status = set_layout(w, group, "ssm");
	int64_t shape[KVT_STATE_AXES];
	int n = kvt_group_state_shape(shape, group);

	if (status)
		return status;
	if (!n)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"group %s does not say the shape of its states, which %s needs",
				group->id, w->rules->engine);
	*strip = (struct cache_strip){ .use = CACHE_STATE, .group = g, .rank = 1 + n,
				      .dtype = group->dtype };
	strip->shape[0] = 1;
	memcpy(strip->shape + 1, shape, (size_t)n * sizeof(*shape));
	return finish_strip(w, strip);
}

static enum kvt_status add_group(struct cache_writing *w, int g)
{
	const struct kvt_group *group = &w->snapshot->group[g];
	enum kvt_status status = check_group(w, group);

	if (!status)
		status = check_order(w, group);
	return status ? status : group->kind == KVT_MAMBA_CONV ? add_conv(w, g) :
	       group->kind == KVT_MAMBA_SSM ? add_state(w, g) : add_attention(w, g);
}

/* ---- layers ------------------------------------------------------------- */

/* A tensor, by the layer that it is of. */
struct entry {
	int64_t number;
	struct cache_place part;
};

static int by_number(const void *one, const void *other)
{
	const struct entry *a = one, *b = other;

	if (a->number != b->number)
		return a->number < b->number ? -1 : 1;
	return (a->part.strip > b->part.strip) - (a->part.strip < b->part.strip);
}

static enum kvt_status add_entry(struct cache_writing *w, const struct entry *e)
{
	struct cache_written *layer = &w->layer[w->nlayers - 1];
	struct cache_place *part;

	if (!w->nlayers || layer->number != e->number)
		*(layer = &w->layer[w->nlayers++]) =
			(struct cache_written){ .number = e->number };
	part = &layer->part[e->part.strip->use];
	if (part->strip)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"layer %lld is in groups %s and %s, and %s has one of a kind",
				LL(layer->number), group_of(w, part->strip)->id,
				group_of(w, e->part.strip)->id, w->rules->engine);
	*part = e->part;
	return KVT_OK;
}

static enum kvt_status add_layers(struct cache_writing *w)
{
	enum kvt_status status = KVT_OK;
	struct entry *entry;
	int64_t n = 0;

	for (int i = 0; i < w->nstrips; i++)
		n += group_of(w, &w->strip[i])->shape.n[KVT_AXIS_L];
	entry = calloc((size_t)n + 1, sizeof(*entry));
	w->layer = calloc((size_t)n + 1, sizeof(*w->layer));
	if (!entry || !w->layer) {
		free(entry);
		return kvt_no_memory(w->err, NULL);
	}
	n = 0;
	for (int i = 0; i < w->nstrips; i++) {
		const struct kvt_group *g = group_of(w, &w->strip[i]);

		for (int64_t l = 0; l < g->shape.n[KVT_AXIS_L]; l++)
			entry[n++] = (struct entry){ (int64_t)kvt_layer_id(g, l),
						     { &w->strip[i], l } };
	}
	qsort(entry, (size_t)n, sizeof(*entry), by_number);
	for (int64_t i = 0; !status && i < n; i++)
		status = add_entry(w, &entry[i]);
	free(entry);
	return status;
}

static enum kvt_status check_layer(const struct cache_writing *w,
				   const struct cache_written *l)
{
	const struct cache_strip *k = l->part[CACHE_KEYS].strip;
	const struct cache_strip *v = l->part[CACHE_VALUES].strip;

	if (l->part[CACHE_STATE].strip && !l->part[CACHE_CONV].strip)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"layer %lld has a recurrent state and no convolution, which kvtool does not write for %s",
				LL(l->number), w->rules->engine);
	if (!k != !v)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"layer %lld has only its %s", LL(l->number),
				k ? "keys" : "values");
	if (k && k->shape[1] == 1 && v->shape[3] <= k->shape[3] / 2)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"layer %lld has one head with keys of %lld and values of %lld elements, which in a cache of %s are a latent",
				LL(l->number), LL(k->shape[3]), LL(v->shape[3]),
				w->rules->engine);
	if (k && !kvt_group_same_type(group_of(w, k), group_of(w, v)))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"layer %lld has keys of %s and values of %s, and a cache of %s has one type",
				LL(l->number), kvt_group_type(group_of(w, k)).s,
				kvt_group_type(group_of(w, v)).s, w->rules->engine);
	if (k && (k->slots != v->slots || k->first != v->first || k->keep != v->keep))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"layer %lld has keys and values of other tokens",
				LL(l->number));
	return KVT_OK;
}

enum kvt_status kvt_cache_plan(struct cache_writing *w)
{
	enum kvt_status status = check_request(w);

	for (int g = 0; !status && g < w->snapshot->ngroups; g++)
		status = add_group(w, g);
	if (!status)
		status = add_layers(w);
	for (int64_t i = 0; !status && i < w->nlayers; i++)
		status = check_layer(w, &w->layer[i]);
	return status;
}

/* ---- parts -------------------------------------------------------------- */

/* Tokens of one block: all layers of the strip at once. */
static enum kvt_status place_run(struct cache_writing *w, const struct cache_strip *strip,
				 int file, int64_t data, const struct kvt_stretch *at,
				 int64_t end)
{
	const struct kvt_group *g = group_of(w, strip);
	int64_t row = (strip->dim[1] - strip->dim[0]) * g->shape.elem;
	int64_t slot = at->begin < strip->keep ? at->begin :
		       strip->keep + at->begin - strip->first;
	struct kvt_token_run run = {
		.file = file, .offset = data + strip->begin + slot * row,
		.layers = { 0, g->shape.n[KVT_AXIS_L] },
		.kv = { strip->kv, strip->kv + 1 },
		.dim = { strip->dim[0], strip->dim[1] },
		.block = at->block, .token = at->slot, .count = end - at->begin,
	};

	run.stride[KVT_AXIS_L] = strip->nbytes;
	run.stride[KVT_AXIS_S] = row;
	run.stride[KVT_AXIS_H] = strip->slots * row;
	run.stride[KVT_AXIS_D] = g->shape.elem;
	return kvt_token_run_add(&w->writer->flat[strip->group], g, &run, w->err);
}

/* Blocks that follow each other in the dump, too, are one run. */
static enum kvt_status place_tokens(struct cache_writing *w,
				    const struct cache_strip *strip, int file,
				    int64_t data)
{
	const struct kvt_table t = kvt_table_of(w->snapshot, strip->group, w->request);
	struct kvt_range want = next_tokens(strip, 0, w->end);
	enum kvt_status status = KVT_OK;

	while (!status && want.begin < want.end) {
		struct kvt_stretch s = kvt_table_at(&t, want.begin), next;
		int64_t needed = s.begin > strip->needed ? s.begin : strip->needed;
		bool there = s.block >= 0 && s.block != t.null_block &&
			     !kvt_table_lacks(&t, s.begin);

		if (!there && (s.end < want.end ? s.end : want.end) > strip->needed)
			return kvt_fail(w->err, KVT_BAD_INPUT,
					"token %lld of request %.100s is in no block of group %s: the engine has let go of it",
					LL(needed), w->request->id, t.group->id);
		for (next = s; there && next.end < want.end; s.end = next.end) {
			int64_t block = next.block;

			next = kvt_table_at(&t, next.end);
			if (next.slot || next.block != block + 1 ||
			    next.block == t.null_block ||
			    kvt_table_lacks(&t, next.begin))
				break;
		}
		if (s.end > want.end)
			s.end = want.end;
		if (there)
			status = place_run(w, strip, file, data, &s, s.end);
		want = next_tokens(strip, s.end, w->end);
	}
	return status;
}

/* The newest state, as a block of it lies there. */
static enum kvt_status place_state(struct cache_writing *w,
				   const struct cache_strip *strip, int file,
				   int64_t data)
{
	const struct kvt_group *g = group_of(w, strip);
	const struct kvt_table t = kvt_table_of(w->snapshot, strip->group, w->request);
	struct kvt_stretch s = kvt_table_at(&t, t.slots.end - 1);
	struct kvt_file_part part = { .file = file, .box = kvt_box_whole(&g->shape) };
	enum kvt_status status;

	if (t.slots.end < 1 || !s.live)
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"request %.100s has no recurrent state in group %s",
				w->request->id, g->id);
	part.box.begin[KVT_AXIS_B] = s.block;
	part.box.end[KVT_AXIS_B] = s.block + 1;
	if ((status = kvt_layout_views(&part.views, &g->layout, &part.box, g->shape.elem,
				       w->err)))
		return status;
	part.views.view[0].offset = data + strip->begin;
	return kvt_flat_add(&w->writer->flat[strip->group], &part, w->err);
}

enum kvt_status kvt_cache_place(struct cache_writing *w, int file, int64_t data)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < w->nstrips; i++)
		status = w->strip[i].slots ? place_tokens(w, &w->strip[i], file, data) :
					     place_state(w, &w->strip[i], file, data);
	return status;
}
