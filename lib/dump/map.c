/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.c - composing lists of parts
 *
 * See map.h for what a part is.  A step says for a group which product of layers,
 * blocks (or spans of slots), heads, keys and values, and channels comes from which
 * source; here it meets the parts of the sources, so that the result names leaves
 * only.
 */
#include "lib/dump/map.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

/* ---- lists ---------------------------------------------------------------- */

static struct map_list *list_new(int64_t n)
{
	struct map_list *list = malloc(sizeof(*list) + (size_t)n * sizeof(list->at[0]));

	if (list) {
		atomic_init(&list->refs, 1);
		list->n = n;
	}
	return list;
}

static struct map_list *list_share(struct map_list *list)
{
	if (list)
		atomic_fetch_add(&list->refs, 1);
	return list;
}

static void list_drop(struct map_list *list)
{
	if (list && atomic_fetch_sub(&list->refs, 1) == 1)
		free(list);
}

static struct map_spans *spans_share(struct map_spans *spans)
{
	if (spans)
		atomic_fetch_add(&spans->refs, 1);
	return spans;
}

static void spans_drop(struct map_spans *spans)
{
	if (!spans || atomic_fetch_sub(&spans->refs, 1) != 1)
		return;
	free(spans->first);
	free(spans->span);
	free(spans);
}

static struct map_spans *spans_new(int64_t nblocks, int64_t room)
{
	struct map_spans *spans = calloc(1, sizeof(*spans));

	if (!spans)
		return NULL;
	atomic_init(&spans->refs, 1);
	spans->nblocks = nblocks;
	spans->first = calloc((size_t)nblocks + 1, sizeof(*spans->first));
	spans->span = malloc(((size_t)room + 1) * sizeof(*spans->span));
	if (spans->first && spans->span)
		return spans;
	spans_drop(spans);
	return NULL;
}

void map_part_free(struct map_part *part)
{
	list_drop(part->layers);
	list_drop(part->blocks);
	spans_drop(part->spans);
	free(part->channels);
}

/* ---- composition ---------------------------------------------------------- */

/*
 * The lists of one step, and what they became for the last part of a source: parts
 * that come from one step share their lists, and so do those that follow from them.
 */
struct composing {
	const struct kvt_group *here;
	struct map_list *layers, *blocks;
	struct map_spans *spans;
	const struct map_list *last_layers, *last_blocks;
	const struct map_spans *last_spans;
	bool has_last;
	struct map_part last;		/* its lists only; a reference each */
};

/* Is it 0, 1, ... up to the last one of the source?  Then it says nothing. */
static bool says_nothing(const int64_t *at, int64_t n, int64_t extent)
{
	for (int64_t i = 0; i < n; i++)
		if (at[i] != i)
			return false;
	return n == extent;
}

static bool take_list(struct map_list **out, const int64_t *at, int64_t n, int64_t extent)
{
	*out = NULL;
	if (!at || says_nothing(at, n, extent))
		return true;
	if (!(*out = list_new(n)))
		return false;
	memcpy((*out)->at, at, (size_t)n * sizeof(*at));
	return true;
}

static bool take_spans(struct map_spans **out, const struct step_group *step, int64_t n)
{
	*out = NULL;
	if (!step->first)
		return true;
	if (!(*out = spans_new(n, step->first[n])))
		return false;
	memcpy((*out)->first, step->first, ((size_t)n + 1) * sizeof(*step->first));
	if (step->first[n])
		memcpy((*out)->span, step->span,
		       (size_t)step->first[n] * sizeof(*step->span));
	return true;
}

static struct kvt_segment meet(const struct kvt_segment *here,
			       const struct kvt_segment *there)
{
	int64_t begin = here->from > there->at ? here->from : there->at;
	int64_t end = here->from + here->count < there->at + there->count ?
		      here->from + here->count : there->at + there->count;

	return (struct kvt_segment){ here->at + begin - here->from,
				     there->from + begin - there->at,
				     end > begin ? end - begin : 0 };
}

static bool meet_channels(struct map_part *out, const struct step_part *step,
			  const struct map_part *part)
{
	out->channels = calloc((size_t)(step->nchannels * part->nchannels) + 1,
			       sizeof(*out->channels));
	if (!out->channels)
		return false;
	for (int i = 0; i < step->nchannels; i++)
		for (int j = 0; j < part->nchannels; j++) {
			struct kvt_segment both = meet(&step->channel[i],
						       &part->channels[j]);

			if (both.count)
				out->channels[out->nchannels++] = both;
		}
	return true;
}

static bool compose_list(struct map_list **out, struct map_list *here,
			 struct map_list *there)
{
	*out = NULL;
	if (!here || !there) {
		*out = list_share(here ? here : there);
		return true;
	}
	if (!(*out = list_new(here->n)))
		return false;
	for (int64_t i = 0; i < here->n; i++)
		(*out)->at[i] = here->at[i] < 0 ? -1 : there->at[here->at[i]];
	return true;
}

/* A growing list of spans for the block at hand. */
static bool push_span(struct map_spans *spans, int64_t *n, struct map_span span)
{
	if (!KVT_GROW(&spans->span, *n))
		return false;
	spans->span[(*n)++] = span;
	return true;
}

/* What of 'span' the part has: whole blocks of a list, or spans that it meets. */
static bool push_through(struct map_spans *out, int64_t *n,
			 const struct map_span *span, const struct map_part *part)
{
	const struct map_spans *in = part->spans;
	int64_t end = (int64_t)span->slot + span->count;

	if (!in) {
		struct map_span to = *span;
		int64_t block = list_at(part->blocks, span->block);

		to.block = (uint32_t)block;
		return block < 0 || push_span(out, n, to);
	}
	for (int64_t i = in->first[span->block]; i < in->first[span->block + 1]; i++) {
		const struct map_span *s = &in->span[i];
		int64_t b = s->at > span->slot ? s->at : span->slot;
		int64_t e = (int64_t)s->at + s->count < end ? (int64_t)s->at + s->count :
							      end;

		if (b < e && !push_span(out, n, (struct map_span){
				s->block, (uint32_t)(s->slot + b - s->at),
				(uint32_t)(span->at + b - span->slot),
				(uint32_t)(e - b) }))
			return false;
	}
	return true;
}

/* Neighbours on both sides become one; they come in the order of 'at'. */
static int64_t join_spans(struct map_span *span, int64_t n)
{
	int64_t kept = 0;

	for (int64_t i = 0; i < n; i++) {
		struct map_span *last = kept ? &span[kept - 1] : NULL;

		if (last && last->block == span[i].block &&
		    last->slot + last->count == span[i].slot &&
		    last->at + last->count == span[i].at)
			last->count += span[i].count;
		else
			span[kept++] = span[i];
	}
	return kept;
}

static bool compose_spans(struct map_spans **out, const struct composing *c,
			  const struct map_part *part)
{
	int64_t nblocks = c->here->shape.n[KVT_AXIS_B];
	int64_t slots = c->here->shape.n[KVT_AXIS_S], n = 0;

	if (!(*out = spans_new(nblocks, 0)))
		return false;
	for (int64_t b = 0; b < nblocks; b++) {
		int64_t begin = n, block = c->spans ? 0 : list_at(c->blocks, b);
		const struct map_span all = { (uint32_t)block, 0, 0, (uint32_t)slots };

		for (int64_t i = c->spans ? c->spans->first[b] : 0;
		     i < (c->spans ? c->spans->first[b + 1] : block >= 0); i++)
			if (!push_through(*out, &n,
					  c->spans ? &c->spans->span[i] : &all, part))
				return false;
		n = begin + join_spans((*out)->span + begin, n - begin);
		(*out)->first[b + 1] = n;
	}
	return true;
}

/* Spans that are whole blocks are a list of blocks; NULL if they are not. */
static bool spans_to_blocks(struct map_list **out, const struct map_spans *spans,
			    int64_t slots, const struct kvt_group *there)
{
	*out = NULL;
	if (there->shape.n[KVT_AXIS_S] != slots)
		return true;
	for (int64_t b = 0; b < spans->nblocks; b++) {
		const struct map_span *s = &spans->span[spans->first[b]];
		int64_t n = spans->first[b + 1] - spans->first[b];

		if (n > 1 || (n && (s->slot || s->at || s->count != slots)))
			return true;
	}
	if (!(*out = list_new(spans->nblocks)))
		return false;
	for (int64_t b = 0; b < spans->nblocks; b++)
		(*out)->at[b] = spans->first[b] < spans->first[b + 1] ?
				(int64_t)spans->span[spans->first[b]].block : -1;
	return true;
}

static bool compose_slots(struct map_part *out, const struct composing *c,
			  const struct map_part *part)
{
	const struct kvt_group *there = part_group(part);

	if (!c->spans && !c->blocks) {
		out->blocks = list_share(part->blocks);
		out->spans = spans_share(part->spans);
		return true;
	}
	if (!c->spans && !part->spans)
		return compose_list(&out->blocks, c->blocks, part->blocks);
	if (!compose_spans(&out->spans, c, part) ||
	    !spans_to_blocks(&out->blocks, out->spans, c->here->shape.n[KVT_AXIS_S],
			     there))
		return false;
	if (out->blocks) {
		spans_drop(out->spans);
		out->spans = NULL;
		if (says_nothing(out->blocks->at, out->blocks->n,
				 there->shape.n[KVT_AXIS_B])) {
			list_drop(out->blocks);
			out->blocks = NULL;
		}
	}
	return true;
}

static bool compose_lists(struct map_part *out, struct composing *c,
			  const struct map_part *part)
{
	if (!c->has_last || part->layers != c->last_layers ||
	    part->blocks != c->last_blocks || part->spans != c->last_spans ||
	    part_group(part)->shape.n[KVT_AXIS_S] !=
	    part_group(&c->last)->shape.n[KVT_AXIS_S]) {
		struct map_part made = { .leaf = part->leaf, .group = part->group };

		if (!compose_list(&made.layers, c->layers, part->layers) ||
		    !compose_slots(&made, c, part)) {
			map_part_free(&made);
			return false;
		}
		map_part_free(&c->last);
		c->last = made;
		c->last_layers = part->layers;
		c->last_blocks = part->blocks;
		c->last_spans = part->spans;
		c->has_last = true;
	}
	out->layers = list_share(c->last.layers);
	out->blocks = list_share(c->last.blocks);
	out->spans = spans_share(c->last.spans);
	return true;
}

static bool compose_part(struct map_group *map, struct composing *c,
			 const struct step_part *step, const struct map_part *part)
{
	struct map_part out = { .leaf = part->leaf, .group = part->group };

	out.heads = meet(&step->heads, &part->heads);
	out.kv = meet(&step->kv, &part->kv);
	if (!out.heads.count || !out.kv.count)
		return true;
	if (!meet_channels(&out, step, part))
		return false;
	if (!KVT_GROW(&map->part, map->nparts) ||
	    (out.nchannels && !compose_lists(&out, c, part))) {
		map_part_free(&out);
		return false;
	}
	if (out.nchannels)
		map->part[map->nparts++] = out;
	else
		map_part_free(&out);
	return true;
}

/* Parts of all sources that the product has something of. */
bool map_compose(struct map_group *to, const struct step_group *step,
		 const struct kvt_group *here, const struct kvt_group *there,
		 const struct kvt_dump *const *source)
{
	struct composing c = { .here = here };
	bool done = take_list(&c.layers, step->layer, here->shape.n[KVT_AXIS_L],
			      there->shape.n[KVT_AXIS_L]) &&
		    take_list(&c.blocks, step->block, here->shape.n[KVT_AXIS_B],
			      there->shape.n[KVT_AXIS_B]) &&
		    take_spans(&c.spans, step, here->shape.n[KVT_AXIS_B]);

	for (int i = 0; done && i < step->nparts; i++) {
		const struct map_group *from =
			&source[step->part[i].source]->group[step->from];

		for (int p = 0; done && p < from->nparts; p++)
			done = compose_part(to, &c, &step->part[i], &from->part[p]);
	}
	map_part_free(&c.last);
	list_drop(c.layers);
	list_drop(c.blocks);
	spans_drop(c.spans);
	return done;
}
