/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.c - composing lists of parts, and what follows from them
 *
 * See map.h for what a part is.  A derivation says for each group which products
 * of layers, blocks (or spans of states), heads, keys and values, and channels come
 * from which source; here these meet the parts of the sources, so that the result
 * names leaves only.  The caller guarantees that the products are disjoint; then so
 * are the parts, which is what makes counting a proof: a box has stored tiles if its
 * parts keep as many tiles as it has, and all its elements come from somewhere if
 * the parts have as many.
 */
#include "lib/dump/map.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- steps ---------------------------------------------------------------- */

int64_t *count_up(int64_t n)
{
	int64_t *list = calloc((size_t)n + 1, sizeof(*list));

	for (int64_t i = 0; list && i < n; i++)
		list[i] = i;
	return list;
}

enum kvt_status step_whole(struct step_group *step, const struct kvt_group *group,
			   int index, struct kvt_error *err)
{
	step->from = index;
	step->nparts = 1;
	step->part = calloc(1, sizeof(*step->part));
	if (!step->part)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	step->part->heads.count = group->shape.n[KVT_AXIS_H];
	step->part->kv.count = group->shape.n[KVT_AXIS_K];
	step->part->nchannels = 1;
	step->part->channel[0].count = group->shape.n[KVT_AXIS_D];
	return KVT_OK;
}

static void step_free(struct step_group *step)
{
	free(step->layer);
	free(step->block);
	free(step->first);
	free(step->span);
	free(step->part);
}

void derivation_free(struct derivation *d)
{
	kvt_snapshot_free(&d->snapshot);
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		struct step_group *next;

		for (struct step_group *s = d->group[g].next; s; s = next) {
			next = s->next;
			step_free(s);
			free(s);
		}
		step_free(&d->group[g]);
	}
	memset(d->group, 0, sizeof(d->group));
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
static bool push_span(struct map_spans *spans, int64_t *room, int64_t *n,
		      struct map_span span)
{
	if (*n == *room) {
		int64_t more = 2 * *room + 64;
		void *p = realloc(spans->span, (size_t)more * sizeof(span));

		if (!p)
			return false;
		spans->span = p;
		*room = more;
	}
	spans->span[(*n)++] = span;
	return true;
}

/* What of 'span' the part has: whole blocks of a list, or spans that it meets. */
static bool push_through(struct map_spans *out, int64_t *room, int64_t *n,
			 const struct map_span *span, const struct map_part *part)
{
	const struct map_spans *in = part->spans;
	int64_t end = (int64_t)span->state + span->count;

	if (!in) {
		struct map_span to = *span;
		int64_t block = list_at(part->blocks, span->block);

		to.block = (uint32_t)block;
		return block < 0 || push_span(out, room, n, to);
	}
	for (int64_t i = in->first[span->block]; i < in->first[span->block + 1]; i++) {
		const struct map_span *s = &in->span[i];
		int64_t b = s->at > span->state ? s->at : span->state;
		int64_t e = (int64_t)s->at + s->count < end ? (int64_t)s->at + s->count :
							      end;

		if (b < e && !push_span(out, room, n, (struct map_span){
				s->block, (uint32_t)(s->state + b - s->at),
				(uint32_t)(span->at + b - span->state),
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
		    last->state + last->count == span[i].state &&
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
	int64_t states = c->here->shape.n[KVT_AXIS_S], n = 0, room = nblocks;

	if (!(*out = spans_new(nblocks, room)))
		return false;
	for (int64_t b = 0; b < nblocks; b++) {
		int64_t begin = n, block = c->spans ? 0 : list_at(c->blocks, b);
		const struct map_span all = { (uint32_t)block, 0, 0, (uint32_t)states };

		for (int64_t i = c->spans ? c->spans->first[b] : 0;
		     i < (c->spans ? c->spans->first[b + 1] : block >= 0); i++)
			if (!push_through(*out, &room, &n,
					  c->spans ? &c->spans->span[i] : &all, part))
				return false;
		n = begin + join_spans((*out)->span + begin, n - begin);
		(*out)->first[b + 1] = n;
	}
	return true;
}

/* Spans that are whole blocks are a list of blocks; NULL if they are not. */
static bool spans_to_blocks(struct map_list **out, const struct map_spans *spans,
			    int64_t states, const struct kvt_group *there)
{
	*out = NULL;
	if (there->shape.n[KVT_AXIS_S] != states)
		return true;
	for (int64_t b = 0; b < spans->nblocks; b++) {
		const struct map_span *s = &spans->span[spans->first[b]];
		int64_t n = spans->first[b + 1] - spans->first[b];

		if (n > 1 || (n && (s->state || s->at || s->count != states)))
			return true;
	}
	if (!(*out = list_new(spans->nblocks)))
		return false;
	for (int64_t b = 0; b < spans->nblocks; b++)
		(*out)->at[b] = spans->first[b] < spans->first[b + 1] ?
				(int64_t)spans->span[spans->first[b]].block : -1;
	return true;
}

static bool compose_states(struct map_part *out, const struct composing *c,
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
		    !compose_states(&made, c, part)) {
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
	void *more;

	out.heads = meet(&step->heads, &part->heads);
	out.kv = meet(&step->kv, &part->kv);
	if (!out.heads.count || !out.kv.count)
		return true;
	if (!meet_channels(&out, step, part))
		return false;
	more = realloc(map->part, ((size_t)map->nparts + 1) * sizeof(out));
	if (more)
		map->part = more;
	if (!more || (out.nchannels && !compose_lists(&out, c, part))) {
		map_part_free(&out);
		return false;
	}
	if (out.nchannels)
		map->part[map->nparts++] = out;
	else
		map_part_free(&out);
	return true;
}

/* Parts of all sources that one product has something of. */
static bool compose_step(struct kvt_dump *to, int g, const struct derivation *d,
			 const struct step_group *step)
{
	const struct kvt_group *here = &d->snapshot.group[g];
	const struct kvt_group *there = kvt_dump_group(d->source[step->nparts ?
					step->part[0].source : 0], step->from);
	struct composing c = { .here = here };
	bool done = take_list(&c.layers, step->layer, here->shape.n[KVT_AXIS_L],
			      there->shape.n[KVT_AXIS_L]) &&
		    take_list(&c.blocks, step->block, here->shape.n[KVT_AXIS_B],
			      there->shape.n[KVT_AXIS_B]) &&
		    take_spans(&c.spans, step, here->shape.n[KVT_AXIS_B]);

	for (int i = 0; done && i < step->nparts; i++) {
		const struct map_group *map =
			&d->source[step->part[i].source]->group[step->from];

		for (int p = 0; done && p < map->nparts; p++)
			done = compose_part(&to->group[g], &c, &step->part[i],
					    &map->part[p]);
	}
	map_part_free(&c.last);
	list_drop(c.layers);
	list_drop(c.blocks);
	spans_drop(c.spans);
	return done;
}

/* All of the sources, also those whose data are not wanted: none may be written to. */
static bool take_leaves(struct kvt_dump *dump, const struct derivation *d)
{
	for (int s = 0; s < d->nsources; s++)
		for (int l = 0; l < d->source[s]->nleaves; l++) {
			struct kvt_leaf *leaf = d->source[s]->leaf[l];
			bool known = false;
			void *more;

			for (int i = 0; i < dump->nleaves; i++)
				known |= dump->leaf[i] == leaf;
			if (known)
				continue;
			more = realloc(dump->leaf, ((size_t)dump->nleaves + 1) *
					sizeof(struct kvt_leaf *));
			if (!more)
				return false;
			dump->leaf = more;
			dump->leaf[dump->nleaves++] = leaf;
			atomic_fetch_add(&leaf->refs, 1);
		}
	return true;
}

enum kvt_status derive(struct kvt_dump **out, struct derivation *d, struct kvt_error *err)
{
	struct kvt_dump *dump = calloc(1, sizeof(*dump));
	bool done = dump != NULL;

	for (int g = 0; done && g < d->snapshot.ngroups; g++)
		for (const struct step_group *s = &d->group[g]; done && s; s = s->next)
			done = compose_step(dump, g, d, s);
	if (dump) {
		dump->snapshot = d->snapshot;
		kvt_snapshot_init(&d->snapshot);
		done = done && take_leaves(dump, d);
	}
	derivation_free(d);
	if (!done) {
		kvt_dump_close(dump);
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	}
	map_seal(dump);
	*out = dump;
	return KVT_OK;
}

/* ---- what follows from the parts ------------------------------------------- */

static bool is_all(const struct kvt_segment *segment, int64_t here, int64_t there)
{
	return !segment->at && !segment->from && segment->count == here &&
	       segment->count == there;
}

static bool has_whole_content(const struct map_part *part, const struct kvt_group *here)
{
	return part->nchannels == 1 &&
	       is_all(&part->channels[0], here->shape.n[KVT_AXIS_D],
		      part_group(part)->shape.n[KVT_AXIS_D]);
}

static int64_t count_list(const struct map_list *list, int64_t n)
{
	int64_t count = 0;

	if (!list)
		return n;
	for (int64_t i = 0; i < list->n; i++)
		count += list->at[i] >= 0;
	return count;
}

/* Elements of the group that the part has. */
static int64_t count_elements(const struct map_part *part, const struct kvt_group *here)
{
	const int64_t *n = here->shape.n;
	int64_t layers = count_list(part->layers, n[KVT_AXIS_L]), states = 0;
	int64_t channels = 0;

	if (!part->spans)
		states = count_list(part->blocks, n[KVT_AXIS_B]) * n[KVT_AXIS_S];
	for (int64_t i = 0; part->spans && i < part->spans->first[part->spans->nblocks];
	     i++)
		states += part->spans->span[i].count;
	for (int i = 0; i < part->nchannels; i++)
		channels += part->channels[i].count;
	return layers * states * part->heads.count * part->kv.count * channels;
}

static bool is_whole(const struct map_group *map, const struct kvt_group *here)
{
	const struct map_part *part = map->part;
	const int64_t *n;

	if (map->nparts != 1 || part->layers || part->blocks || part->spans)
		return false;
	n = part_group(part)->shape.n;
	return is_all(&part->heads, here->shape.n[KVT_AXIS_H], n[KVT_AXIS_H]) &&
	       is_all(&part->kv, here->shape.n[KVT_AXIS_K], n[KVT_AXIS_K]) &&
	       has_whole_content(part, here) &&
	       here->shape.n[KVT_AXIS_L] == n[KVT_AXIS_L] &&
	       here->shape.n[KVT_AXIS_B] == n[KVT_AXIS_B] &&
	       here->shape.n[KVT_AXIS_S] == n[KVT_AXIS_S];
}

static bool segment_keeps_tiles(const struct kvt_segment *s, int64_t here, int64_t there,
				int64_t tile)
{
	bool ends = s->at + s->count == here && s->from + s->count == there;

	return s->at % tile == 0 && s->from % tile == 0 && (s->count % tile == 0 || ends);
}

/* What tiles of the leaf are here, if lists of layers and blocks let them be. */
static void find_tiling(struct map_part *part, const struct kvt_group *here)
{
	const struct kvt_tiling *own = part_tiling(part);
	const struct kvt_group *there = part_group(part);
	const int64_t *n;

	part->tiling.nbytes = 0;
	if (!own || !has_whole_content(part, here) ||
	    !kvt_layout_equal(&there->layout, &here->layout))
		return;
	n = own->n;
	if (!segment_keeps_tiles(&part->heads, here->shape.n[KVT_AXIS_H],
				 there->shape.n[KVT_AXIS_H], n[KVT_AXIS_H]) ||
	    !segment_keeps_tiles(&part->kv, here->shape.n[KVT_AXIS_K],
				 there->shape.n[KVT_AXIS_K], n[KVT_AXIS_K]))
		return;
	if (!part->spans)
		part->tiling = *own;
	else if (!spans_keep_tiles(&part->tiling, part, here))
		part->tiling.nbytes = 0;
}

static bool same_tiles(const struct kvt_tiling *a, const struct kvt_tiling *b)
{
	return a->nbytes && b->nbytes && !memcmp(a->n, b->n, sizeof(a->n)) &&
	       kvt_tiling_same_codec(a, b);
}

static void seal_group(struct map_group *map, const struct kvt_group *here)
{
	const int64_t *n = here->shape.n;
	int64_t all = 1, has = 0;

	for (int a = 0; a < KVT_NAXES; a++)
		all *= n[a];
	map->has_cells = map->cells_proven = map->nparts > 0;
	for (int p = 0; p < map->nparts; p++) {
		struct map_part *part = &map->part[p];
		const struct kvt_leaf *leaf = part->leaf;

		has += count_elements(part, here);
		find_tiling(part, here);
		if (!map->tiling.nbytes)
			map->tiling = part->tiling;
		/* a cell is of a block: none of blocks of another size */
		map->has_cells &= leaf->ops->has_cells && !part->spans &&
				  leaf->ops->has_cells(leaf, part->group) &&
				  has_whole_content(part, here);
		map->cells_proven &= leaf->proven.cells[part->group];
	}
	map->sparse = has < all;
	map->has_cells &= !map->sparse;
	map->cells_proven &= map->has_cells;
	map->whole = is_whole(map, here);
}

void map_seal(struct kvt_dump *dump)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);

	for (int g = 0; g < s->ngroups; g++)
		seal_group(&dump->group[g], &s->group[g]);
}

/* ---- which tiles are tiles of leaves ---------------------------------------- */

static int64_t first_of(int64_t begin, int64_t tile)
{
	return (begin + tile - 1) / tile * tile;
}

/* Of tiles that begin in [begin, end), those that the list leaves as full as they are. */
static int64_t kept_by_list(const struct map_list *list, int64_t begin, int64_t end,
			    int64_t here, int64_t there, int64_t tile)
{
	int64_t kept = 0;

	for (int64_t i = first_of(begin, tile); i < end; i += tile) {
		int64_t first = list_at(list, i);
		int64_t want = here - i < tile ? here - i : tile;
		int64_t have = there - first < tile ? there - first : tile;
		bool keeps = first >= 0 && first % tile == 0 && want == have;

		for (int64_t j = 1; keeps && list && j < want; j++)
			keeps = list->at[i + j] == first + j;
		kept += keeps;
	}
	return kept;
}

static int64_t kept_by_segment(const struct kvt_segment *s, int64_t begin, int64_t end,
			       int64_t tile)
{
	int64_t b = begin > s->at ? begin : s->at;
	int64_t e = end < s->at + s->count ? end : s->at + s->count;

	b = first_of(b, tile);
	return b < e ? (e - b + tile - 1) / tile : 0;
}

static int64_t tiles_between(int64_t begin, int64_t end, int64_t tile)
{
	begin = first_of(begin, tile);
	return begin < end ? (end - begin + tile - 1) / tile : 0;
}

bool kvt_dump_has_tiles(const struct kvt_dump *dump, int group, const struct kvt_box *box)
{
	static const enum kvt_axis axes[] = { KVT_AXIS_L, KVT_AXIS_B, KVT_AXIS_H,
					      KVT_AXIS_K };
	const struct map_group *map = &dump->group[group];
	const struct kvt_group *here = kvt_dump_group(dump, group);
	const int64_t *b = box->begin, *e = box->end, *n = map->tiling.n;
	int64_t all = 1, kept = 0;

	if (!map->tiling.nbytes || map->whole)
		return map->tiling.nbytes > 0;
	for (int i = 0; i < 4; i++)
		all *= tiles_between(b[axes[i]], e[axes[i]], n[axes[i]]);
	for (int p = 0; p < map->nparts; p++) {
		const struct map_part *part = &map->part[p];
		const int64_t *there = part_group(part)->shape.n;
		int64_t blocks;

		if (!same_tiles(&part->tiling, &map->tiling))
			continue;
		/* of blocks that are spans all tiles stay, or none */
		blocks = part->spans ? tiles_between(b[KVT_AXIS_B], e[KVT_AXIS_B],
						     n[KVT_AXIS_B]) :
			 kept_by_list(part->blocks, b[KVT_AXIS_B], e[KVT_AXIS_B],
				      here->shape.n[KVT_AXIS_B], there[KVT_AXIS_B],
				      n[KVT_AXIS_B]);
		kept += blocks *
			kept_by_list(part->layers, b[KVT_AXIS_L], e[KVT_AXIS_L],
				     here->shape.n[KVT_AXIS_L], there[KVT_AXIS_L],
				     n[KVT_AXIS_L]) *
			kept_by_segment(&part->heads, b[KVT_AXIS_H], e[KVT_AXIS_H],
					n[KVT_AXIS_H]) *
			kept_by_segment(&part->kv, b[KVT_AXIS_K], e[KVT_AXIS_K],
					n[KVT_AXIS_K]);
	}
	return kept == all;
}
