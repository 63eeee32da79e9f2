/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c - the same elements of two dumps, byte for byte: compare.h
 *
 * The groups of b are cut into boxes.  For each box all of them are read, then what
 * their pairs want of each a: in ranges, sorted by where they lie in it, so that a
 * tile is decoded once per box; what was seen already is compared by hash, and read only
 * if it differs.  An address is the sum of what each index adds to it
 * (address.h).  Of a box all is compared even after a difference was found, for the
 * ranges come in the order of a; the smallest differences are kept.
 *
 * Cost: one read of b, one of each a that has anything of it (several where pairs are
 * scattered), and one memcmp() a head.
 */
#include "lib/base/print.h"
#include "lib/ops/compare/compare.h"
#include "lib/kvt/share.h"

#include <stdlib.h>
#include <string.h>

#include "lib/dump/seen.h"
#include "lib/ops/compare/address.h"
#include "lib/ops/digest/digest.h"
#include "lib/tile/hash.h"

struct comparing {
	struct comparison *list;
	int n;
	int nb;				/* different dumps among the b of the list */
	int *number;			/* [n]: which of them */
	const struct kvt_dump **b;	/* [nb] */
	struct digest_job **digest;	/* [nb]; NULL: none */
	struct kvt_cut cut;
	unequal_fn *differs;
	void *context;
	int most;			/* differences of a box that are kept */
	bool any;			/* one was told */
	bool divided;			/* among processes */
};

/* ---- what was found ------------------------------------------------------ */

/* One box. */
struct found {
	struct comparing *c;
	struct placed *placed;		/* [nb] */
	struct addresses *address;	/* [nb][K] */
	int nk;
	int first, last;		/* comparisons that share what is read of a */
	int n;
	struct unequal at[MOST_DIFFERENCES];
	int64_t *nbytes;		/* [c->n] */
};

static int compare_places(const struct unequal *x, const struct unequal *y)
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (x->index[a] != y->index[a])
			return x->index[a] < y->index[a] ? -1 : 1;
	return x->in < y->in ? -1 : x->in > y->in;
}

/* Keeps it if it is among the first ones. */
static void keep(struct found *f, const struct unequal *d)
{
	int i = f->n;

	if (i == f->c->most && compare_places(d, &f->at[i - 1]) >= 0)
		return;
	if (i == f->c->most)
		i--;
	else
		f->n++;
	for (; i > 0 && compare_places(d, &f->at[i - 1]) < 0; i--)
		f->at[i] = f->at[i - 1];
	f->at[i] = *d;
}

static const struct kvt_group *group_of(const struct comparison *c)
{
	return kvt_dump_group(c->b, c->group_b);
}

/* ---- one head ------------------------------------------------------------ */

struct both {
	const struct addresses *a, *b;	/* keys or values */
	const struct comparison *in;
};

/* The channels of a head that begin at pa and pb; index[] has the others of it. */
static void compare_head(struct found *f, const struct both *p, const uint8_t *pa,
			 const uint8_t *pb, const int64_t index[KVT_NAXES])
{
	const int64_t *map = p->in->heads->channel;
	int64_t n = p->b->view.shape.n[KVT_AXIS_D], elem = p->b->view.shape.elem;
	struct unequal d = { .in = p->in };

	if (p->in->heads->same_channels && p->a->terms.dense && p->b->terms.dense &&
	    !memcmp(pa, pb, (size_t)(n * elem)))
		return;
	memcpy(d.index, index, sizeof(d.index));
	for (int64_t i = 0; i < n; i++) {
		const uint8_t *is = pb + p->b->terms.at[KVT_AXIS_D][i], *was;

		if (map[i] < 0)
			continue;
		was = pa + p->a->terms.at[KVT_AXIS_D][map[i]];
		if (!memcmp(is, was, (size_t)elem))
			continue;
		d.index[KVT_AXIS_D] = i;
		memcpy(d.is, is, (size_t)elem);
		memcpy(d.was, was, (size_t)elem);
		keep(f, &d);
	}
}

/* How many bytes of a slot are compared. */
static int64_t slot_bytes(const struct comparison *c)
{
	const struct kvt_group *g = group_of(c);
	int64_t heads = 0, channels = 0;

	for (int64_t h = 0; h < g->shape.n[KVT_AXIS_H]; h++)
		heads += c->heads->head[h] >= 0;
	for (int64_t d = 0; d < g->shape.n[KVT_AXIS_D]; d++)
		channels += c->heads->channel[d] >= 0;
	return heads * channels * g->shape.n[KVT_AXIS_K] * g->shape.elem;
}

/* Slots of one block of a layer; index[] has L and B of b, and K. */
static void compare_span(struct found *f, const struct both *p, int64_t layer,
			 const struct target_span *w, int64_t index[KVT_NAXES])
{
	const int64_t *const *ta = (const int64_t *const *)p->a->terms.at;
	const int64_t *const *tb = (const int64_t *const *)p->b->terms.at;
	const int64_t *head = p->in->heads->head;
	const int64_t from[KVT_NAXES] = { layer, w->span.block, w->span.slot };
	const int64_t to[KVT_NAXES] = { index[KVT_AXIS_L], w->to, w->span.at };
	const int64_t *a0 = p->a->at->box.begin, *b0 = p->b->at->box.begin;
	const uint8_t *pa = address_of_block(p->a, from);
	const uint8_t *pb = address_of_block(p->b, to);

	for (int64_t s = 0; s < w->span.count; s++) {
		int64_t x = w->span.slot + s - a0[KVT_AXIS_S];
		int64_t y = w->span.at + s - b0[KVT_AXIS_S];
		const uint8_t *sa = pa + ta[KVT_AXIS_S][x], *sb = pb + tb[KVT_AXIS_S][y];

		index[KVT_AXIS_S] = w->span.at + s;
		for (int64_t h = 0; h < p->b->view.shape.n[KVT_AXIS_H]; h++) {
			index[KVT_AXIS_H] = h;
			if (head[h] >= 0)
				compare_head(f, p, sa + ta[KVT_AXIS_H][head[h]],
					     sb + tb[KVT_AXIS_H][h], index);
		}
	}
}

/* ---- what was read together of a ----------------------------------------- */

/* The layer of b that layer l of a is for, of those in the box. */
static int64_t layer_here(const struct slot_pairs *slots, const struct kvt_box *box,
			  int64_t l)
{
	for (int64_t i = box->begin[KVT_AXIS_L]; slots->layer && i < box->end[0]; i++)
		if (slots->layer[i] == l)
			return i;
	return l;
}

/* Keys or values of one comparison. */
static enum kvt_status compare_half(struct found *f, const struct spans_read *read,
				    int i, int k, struct kvt_error *err)
{
	struct comparison *c = &f->c->list[i];
	const struct addresses *b = &f->address[f->c->number[i] * f->nk + k];
	struct addresses a = { 0 };
	struct both both = { &a, b, c };
	enum kvt_status status = addresses_init(&a, &read->src, c->heads->first_kv + k,
						b->view.shape.elem, err);

	for (int64_t l = read->layers[0]; !status && l < read->layers[1]; l++)
		for (int64_t w = 0; w < read->n; w++) {
			int64_t index[KVT_NAXES] = {
				[KVT_AXIS_L] = layer_here(c->slots, &b->at->box, l),
				[KVT_AXIS_B] = read->wanted[w].to, [KVT_AXIS_K] = k,
			};

			compare_span(f, &both, l, &read->wanted[w], index);
		}
	address_terms_free(&a.terms);
	return status;
}

static enum kvt_status compare_spans(void *context, const struct spans_read *read,
				     struct kvt_error *err)
{
	struct found *f = context;
	int64_t slots = 0;
	enum kvt_status status = KVT_OK;

	for (int64_t w = 0; w < read->n; w++)
		slots += read->wanted[w].span.count;
	for (int i = f->first; !status && i < f->last; i++) {
		for (int k = 0; !status && k < f->nk; k++)
			status = compare_half(f, read, i, k, err);
		f->nbytes[i] += slots * (read->layers[1] - read->layers[0]) *
				slot_bytes(&f->c->list[i]);
	}
	return status;
}

/* ---- cells that were seen ------------------------------------------------- */

/* Are the slots of a head one run, of 'row' bytes each? */
static bool is_run(const struct address_terms *t, int64_t nslots, int64_t row)
{
	for (int64_t s = 0; s < nslots; s++)
		if (t->at[KVT_AXIS_S][s] != s * row)
			return false;
	return t->dense;
}

/* Has b, at pb, the bytes that this cell of a had? */
static bool is_cell(const struct comparison *c, const int64_t cell[KVT_NAXES],
		    const uint8_t *pb, int64_t nbytes)
{
	uint64_t hash = seen_cell(c->seen, leaf_of(c->a), c->group_a, cell);

	return hash && kvt_range_hash(pb, nbytes) == hash;
}

/* All heads, keys and values of a span of one layer: what compare_span() reads of a. */
static bool has_cells(const struct found *f, const struct comparison *c, int64_t l,
		      const struct target_span *w)
{
	const struct addresses *address = &f->address[f->c->number[c - f->c->list] *
						      f->nk];
	const struct kvt_shape *shape = &group_of(c)->shape;
	const int64_t row = shape->n[KVT_AXIS_D] * shape->elem, *head = c->heads->head;

	for (int k = 0; k < f->nk; k++) {
		const struct addresses *b = &address[k];
		const struct kvt_box *box = &b->at->box;
		const int64_t to[KVT_NAXES] = { layer_here(c->slots, box, l), w->to };
		const uint8_t *pb = address_of_block(b, to);

		if (!is_run(&b->terms, shape->n[KVT_AXIS_S], row))
			return false;
		pb += b->terms.at[KVT_AXIS_S][w->span.at - box->begin[KVT_AXIS_S]];
		for (int64_t h = 0; h < shape->n[KVT_AXIS_H]; h++) {
			const int64_t cell[KVT_NAXES] = {
				[KVT_AXIS_L] = l, [KVT_AXIS_B] = w->span.block,
				[KVT_AXIS_H] = head[h],
				[KVT_AXIS_K] = c->heads->first_kv + k,
			};

			if (head[h] >= 0 && !is_cell(c, cell, pb +
						     b->terms.at[KVT_AXIS_H][h],
						     w->span.count * row))
				return false;
		}
	}
	return true;
}

/* Whole blocks of a, all channels of them. */
static bool was_seen(const struct found *f, const struct comparison *c,
		     const int64_t layers[2], const struct target_span *w)
{
	const int64_t *n = kvt_dump_group(c->a, c->group_a)->shape.n;

	if (!c->seen || w->span.slot || w->span.count != n[KVT_AXIS_S] ||
	    !c->heads->same_channels || n[KVT_AXIS_D] != group_of(c)->shape.n[KVT_AXIS_D])
		return false;
	for (int64_t l = layers[0]; l < layers[1]; l++)
		if (!has_cells(f, c, l, w))
			return false;
	return true;
}

/*
 * Of 'wanted', those that must be read: all of whose cells were seen and are the same
 * are done.  What is not the same is read, to say which element it is.
 */
static int64_t not_seen(struct target_span *left, struct found *f,
			const int64_t layers[2], const struct target_span *wanted,
			int64_t n)
{
	int64_t nleft = 0;

	for (int64_t w = 0; w < n; w++) {
		bool same = true;

		for (int i = f->first; same && i < f->last; i++)
			same = was_seen(f, &f->c->list[i], layers, &wanted[w]);
		for (int i = f->first; same && i < f->last; i++)
			f->nbytes[i] += wanted[w].span.count * (layers[1] - layers[0]) *
					slot_bytes(&f->c->list[i]);
		if (!same)
			left[nleft++] = wanted[w];
	}
	return nleft;
}

/* ---- boxes --------------------------------------------------------------- */

/* Comparisons from 'first' on that share what is read of a. */
static int shared_end(const struct comparing *c, int first)
{
	int end = first + 1;

	while (end < c->n && c->list[end].a == c->list[first].a &&
	       c->list[end].group_a == c->list[first].group_a &&
	       c->list[end].slots == c->list[first].slots)
		end++;
	return end;
}

/* Rows of slots that a range of a has at most. */
static int64_t rows_of(const struct comparing *c)
{
	return c->cut.blocks * c->cut.shape.n[KVT_AXIS_S];
}

/* What this a has for the box: layers that follow each other there, too, together. */
static enum kvt_status compare_with(struct kvt_worker *worker, struct found *f,
				    const struct kvt_box *box, struct kvt_error *err)
{
	const struct comparison *c = &f->c->list[f->first];
	const int64_t *layer = c->slots->layer;
	int64_t n, end = box->end[KVT_AXIS_L], next;
	struct target_span *wanted = slot_pairs_in(&n, c->slots, box);
	struct target_span *left = calloc(wanted ? (size_t)n + 1 : 1, sizeof(*left));
	enum kvt_status status = KVT_OK;

	if (!wanted || !left)
		status = kvt_no_memory(err, NULL);
	for (int64_t l = box->begin[KVT_AXIS_L]; !status && n && l < end; l = next) {
		int64_t layers[2] = { layer ? layer[l] : l, 0 };

		for (next = l + 1; next < end && layers[0] >= 0 &&
		     (!layer || layer[next] == layer[next - 1] + 1); )
			next++;
		layers[1] = layers[0] + next - l;
		if (layers[0] >= 0)
			status = each_spans(worker, leaf_of(c->a), c->group_a, layers,
					    left, not_seen(left, f, layers, wanted, n),
					    rows_of(f->c), compare_spans, f, err);
	}
	free(left);
	free(wanted);
	return status;
}

/* In which b is read: of tiles that of its own, so that they are decoded in place. */
static const struct kvt_layout *layout_of(const struct comparison *c)
{
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(c->b);

	return leaf && kvt_dump_tiling(c->b, c->group_b) ? &leaf->runs[c->group_b] :
							  &group_of(c)->layout;
}

static enum kvt_status read_box(struct kvt_worker *worker, struct found *f,
				const struct kvt_box *box, struct kvt_error *err)
{
	struct comparing *c = f->c;
	uint8_t *bytes = worker->buffer[0];
	enum kvt_status status = KVT_OK;

	for (int i = 0, r = 0; !status && i < c->n; i++) {
		const struct comparison *in = &c->list[i];
		const struct kvt_group *g = group_of(in);
		struct kvt_box own = *box;
		struct kvt_shape shape;
		int64_t nbytes;

		if (c->number[i] != r)
			continue;	/* it was read */
		box_take(&own, KVT_AXIS_H, 0, g->shape.n[KVT_AXIS_H]);
		box_take(&own, KVT_AXIS_D, 0, g->shape.n[KVT_AXIS_D]);
		f->placed[r] = (struct placed){ layout_of(in), own, bytes };
		status = kvt_read(worker, in->b, in->group_b, &own, layout_of(in), bytes,
				  err);
		for (int k = 0; !status && k < f->nk; k++)
			status = addresses_init(&f->address[r * f->nk + k],
						&f->placed[r], k, g->shape.elem, err);
		if (!status && c->digest[r])
			status = digest_box(c->digest[r], worker, &f->placed[r],
					    worker->buffer[1], worker->buffer[2], err);
		shape = kvt_box_shape(&own, g->shape.elem);
		if (!status)
			status = kvt_shape_nbytes(&nbytes, &shape, err);
		if (!status)
			bytes += nbytes;
		r++;
	}
	return status;
}

static enum kvt_status differs_sentence(const struct unequal *d,
					struct kvt_error *err);

/* In the order of boxes. */
static enum kvt_status tell(struct kvt_worker *worker, int64_t i, struct found *f,
			    struct kvt_error *err)
{
	struct comparing *c = f->c;
	bool more = true;

	if (!c->differs)
		return f->n ? differs_sentence(&f->at[0], err) : KVT_OK;
	if (!kvt_worker_turn(worker, i))
		return KVT_OK;
	c->any |= f->n > 0;
	for (int d = 0; more && d < f->n; d++)
		more = c->differs(c->context, &f->at[d]);
	kvt_worker_unlock(worker);
	return more ? KVT_OK : kvt_fail(err, KVT_MISMATCH, "dumps differ");
}

static enum kvt_status compare_box(struct kvt_worker *worker, void *context, int64_t i,
				   struct kvt_error *err)
{
	struct comparing *c = context;
	const struct kvt_box box = kvt_cut_box(&c->cut, i);
	struct found *f = calloc(1, sizeof(*f));
	enum kvt_status status = KVT_OK;

	if (!f)
		return kvt_no_memory(err, NULL);
	f->c = c;
	f->nk = (int)c->cut.shape.n[KVT_AXIS_K];
	f->placed = calloc((size_t)c->nb, sizeof(*f->placed));
	f->address = calloc((size_t)(c->nb * f->nk) + 1, sizeof(*f->address));
	f->nbytes = calloc((size_t)c->n, sizeof(*f->nbytes));
	if (!f->placed || !f->address || !f->nbytes)
		status = kvt_no_memory(err, NULL);
	else
		status = read_box(worker, f, &box, err);
	for (; !status && f->first < c->n; f->first = f->last) {
		f->last = shared_end(c, f->first);
		status = compare_with(worker, f, &box, err);
	}
	if (!status)
		status = tell(worker, i, f, err);
	if (c->divided && !status) {
		memcpy(worker->result, f->nbytes, sizeof(*f->nbytes));
		worker->nresult = sizeof(*f->nbytes);
	}
	kvt_worker_lock(worker);
	for (int j = 0; !c->divided && f->nbytes && j < c->n; j++)
		c->list[j].nbytes += f->nbytes[j];
	kvt_worker_unlock(worker);
	for (int j = 0; f->address && j < c->nb * f->nk; j++)
		address_terms_free(&f->address[j].terms);
	free(f->placed);
	free(f->address);
	free(f->nbytes);
	free(f);
	kvt_worker_progress(worker, c->cut.box_bytes * c->nb);
	return status;
}

/* kvt_merge_fn: what was compared of one comparison. */
static bool take_nbytes(void *context, int64_t i, const void *result, int64_t nbytes)
{
	struct comparing *c = context;
	int64_t compared;

	(void)i;
	if (nbytes != sizeof(compared))
		return false;
	memcpy(&compared, result, sizeof(compared));
	c->list[0].nbytes += compared;
	return true;
}

/* ---- all of it ----------------------------------------------------------- */

/* The largest box of a group of b, of those that are read together. */
static const struct comparison *largest(const struct comparing *c)
{
	const struct comparison *out = &c->list[0];
	int64_t most = -1;

	for (int i = 0; i < c->n; i++) {
		const int64_t *n = group_of(&c->list[i])->shape.n;

		if (n[KVT_AXIS_H] * n[KVT_AXIS_D] > most) {
			most = n[KVT_AXIS_H] * n[KVT_AXIS_D];
			out = &c->list[i];
		}
	}
	return out;
}

/* Do both sides have the same blocks in the same places? */
static bool in_step(const struct comparison *c)
{
	const int64_t *n = group_of(c)->shape.n, *block = c->slots->block;

	for (int64_t b = 0; block && b < n[KVT_AXIS_B]; b++)
		if (block[b] != b)
			return false;
	for (int64_t l = 0; c->slots->layer && l < n[KVT_AXIS_L]; l++)
		if (c->slots->layer[l] != l)
			return false;
	return block;
}

static struct target_span *wanted_in(int64_t *n, const void *context,
				     const struct kvt_box *box)
{
	return slot_pairs_in(n, context, box);
}

/* kvt_cut_rows_fn: rows of tiles of a. */
static int64_t tile_rows(const void *context, const struct kvt_cut *cut)
{
	const struct comparison *c = context;

	return rows_of_cut(cut, kvt_dump_group(c->a, c->group_a)->shape.n[KVT_AXIS_B],
			   kvt_dump_tiling(c->a, c->group_a)->n[KVT_AXIS_B], wanted_in,
			   c->slots);
}

static enum kvt_status choose_cut(struct comparing *c, const struct kvt_run *run,
				  struct kvt_error *err)
{
	const struct comparison *first = largest(c);
	const struct kvt_tiling *b = kvt_dump_tiling(first->b, first->group_b);
	const struct kvt_layout *layout = &kvt_dump_group(first->a,
							  first->group_a)->layout;
	enum kvt_status status = KVT_OK;

	c->cut = kvt_cut_choose(group_of(first), b, layout, in_step(first) ?
				kvt_dump_tiling(first->a, first->group_a) : NULL,
				kvt_cut_limit(run, c->nb));
	for (int i = 0; !status && i < c->n; i = shared_end(c, i)) {
		const struct comparison *in = &c->list[i];
		const struct kvt_tiling *tiling = kvt_dump_tiling(in->a, in->group_a);
		struct kvt_tiling row;
		struct kvt_cut least;

		/* of what was seen next to nothing is decoded */
		if (!tiling || seen_has(in->seen, leaf_of(in->a), in->group_a))
			continue;
		row = *tiling;
		row.n[KVT_AXIS_B] = 1;
		least = kvt_cut_choose(group_of(first), b, layout, &row, 0);
		status = kvt_cut_gather(&c->cut, &least, kvt_cut_most(run) / c->nb,
					tile_rows, in, err);
	}
	return status;
}

static void needs_of(struct kvt_work *work, const struct comparing *c)
{
	for (int r = 0; r < c->nb; r++)
		if (c->digest[r]) {
			int64_t sums = digest_job_cut(c->digest[r], &c->cut);

			work->buffer_bytes[1] = c->cut.box_bytes;
			if (work->buffer_bytes[2] < sums)
				work->buffer_bytes[2] = sums;
		}
	work->count = c->cut.nboxes;
	work->total_bytes = c->cut.nboxes * c->cut.box_bytes * c->nb;
	work->buffer_bytes[0] = c->cut.box_bytes * c->nb;
	for (int i = 0; i < c->n; i++) {
		const struct comparison *in = &c->list[i];

		kvt_work_reads(work, in->b, in->group_b, &c->cut, layout_of(in));
		work_needs_spans(work, leaf_of(in->a), in->group_a, c->cut.layers,
				 rows_of(c));
	}
}

static enum kvt_status number_dumps(struct comparing *c, struct kvt_error *err)
{
	c->number = calloc((size_t)c->n, sizeof(*c->number));
	c->b = calloc((size_t)c->n, sizeof(*c->b));
	c->digest = calloc((size_t)c->n, sizeof(*c->digest));
	if (!c->number || !c->b || !c->digest)
		return kvt_no_memory(err, NULL);
	for (int i = 0; i < c->n; i++) {
		int r = 0;

		while (r < c->nb && c->b[r] != c->list[i].b)
			r++;
		c->number[i] = r;
		if (r == c->nb)
			c->b[c->nb++] = c->list[i].b;
		if (c->list[i].digest)
			c->digest[r] = c->list[i].digest;
	}
	return KVT_OK;
}

/* Was each pair of elements looked at?  A pass that saw less proves less. */
static enum kvt_status check_all_seen(const struct comparison *c, struct kvt_error *err)
{
	const struct slot_pairs *p = c->slots;
	const int64_t *n = group_of(c)->shape.n;
	int64_t layers = 0, slots = 0, expected;

	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++)
		layers += !p->layer || p->layer[l] >= 0;
	for (int64_t b = 0; p->block && b < n[KVT_AXIS_B]; b++)
		slots += p->block[b] >= 0 ? n[KVT_AXIS_S] : 0;
	for (int64_t i = 0; !p->block && i < p->span.n; i++)
		slots += p->span.at[i].span.count;
	expected = layers * slots * slot_bytes(c);
	if (c->nbytes == expected)
		return KVT_OK;
	return kvt_fail(err, KVT_SYSTEM, "%s: compared %lld bytes of %lld",
			group_of(c)->id, LL(c->nbytes), LL(expected));
}

enum kvt_status compare_elements(struct comparison *list, int n, const char *label,
				 const struct kvt_run *how, unequal_fn *differs,
				 void *context, struct kvt_error *err)
{
	struct comparing c = { .list = list, .n = n, .differs = differs,
			       .context = context,
			       .most = differs ? MOST_DIFFERENCES : 1,
			       .divided = list->divided && how->share };
	struct kvt_work work = { .fn = compare_box, .context = &c, .label = label };
	struct kvt_run run = *how;
	enum kvt_status status;

	if (!n)
		return KVT_OK;
	run.device = NULL;		/* it is not to judge its own work */
	if (!(status = number_dumps(&c, err)) &&
	    !(status = choose_cut(&c, &run, err))) {
		needs_of(&work, &c);
		if (c.divided) {
			work.merge = take_nbytes;
			work.result_bytes = sizeof(int64_t);
			work.part = list->part;
		}
		if (work.total_bytes)
			status = kvt_work_run(&work, &run, err);
	}
	free(c.number);
	free(c.b);
	free(c.digest);
	if (!status && c.any)
		status = kvt_fail(err, KVT_MISMATCH, "dumps differ");
	for (int i = 0; !status && i < n && !(c.divided && how->share->partial); i++)
		status = check_all_seen(&list[i], err);
	return status;
}

/* ---- the sentence -------------------------------------------------------- */

/* An element as a number, the most significant byte first. */
static void hex(char out[35], const uint8_t *bytes, int64_t n)
{
	int at = sprintf(out, "0x");

	for (int64_t i = n - 1; i >= 0; i--)
		at += sprintf(out + at, "%02x", bytes[i]);
}

/* "request A token 17, block 4 slot 1 layer 2 head 0 kv 1 dim 5 is 0x.., expected .." */
static enum kvt_status differs_sentence(const struct unequal *d, struct kvt_error *err)
{
	const struct comparison *in = d->in;
	const struct kvt_group *g = group_of(in);
	const int64_t *at = d->index;
	bool conv = g->kind == KVT_MAMBA_CONV;
	char who[160] = "", what[120], is[35], was[35];
	int64_t token = 0;
	const struct kvt_request *request = request_at(&token,
		(struct pairs_side){ kvt_dump_snapshot(in->b), in->group_b },
		at[KVT_AXIS_B], at[KVT_AXIS_S]);

	if (request)
		snprintf(who, sizeof(who), "request %.100s %s %lld, ", request->id,
			 g->tokens_per_slot < 1 ? "entry" : "token", LL(token));
	if (conv)
		snprintf(what, sizeof(what), "channel %lld",
			 LL(element_id(g, KVT_AXIS_D, at[KVT_AXIS_D])));
	else
		snprintf(what, sizeof(what), "head %lld kv %lld dim %lld",
			 LL(element_id(g, KVT_AXIS_H, at[KVT_AXIS_H])),
			 LL(kvt_group_half(g) > 0 ? 1 : at[KVT_AXIS_K]),
			 LL(at[KVT_AXIS_D]));
	hex(is, d->is, g->shape.elem);
	hex(was, d->was, g->shape.elem);
	return kvt_fail(err, KVT_MISMATCH,
			"%s: %s%s%sblock %llu %s %lld layer %llu %s is %s, expected %s%s",
			g->id, in->name ? in->name : "", in->name ? ": " : "", who,
			(unsigned long long)kvt_block_id(g, at[KVT_AXIS_B]),
			conv ? "tap" : "slot", LL(at[KVT_AXIS_S]),
			(unsigned long long)kvt_layer_id(g,
							 at[KVT_AXIS_L]), what, is, was,
			in->was ? in->was : "");
}
