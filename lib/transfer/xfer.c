/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xfer.c - a transfer of one group: both sides, what moves, which ranks
 *
 * In: a spec, a layout, ranks and a pool of each side, and the entries of a block
 * mapping.  Out: a transfer that has been checked: both sides mean the same slot, entries
 * are inside their pools, no two elements of a side share a byte.  Ranks that deal heads
 * out by modulo are ranks of other names that hold them in groups, so that one way of
 * cutting does.
 */
#include "lib/transfer/xfer.h"

#include <string.h>

const char *kvt_scope_name(enum kvt_scope scope)
{
	static const char *const names[] = {
		[KVT_SCOPE_MAX] = "max", [KVT_SCOPE_RFC] = "rfc",
		[KVT_SCOPE_LAYER] = "layer",
	};

	return scope < KVT_NSCOPES ? names[scope] : NULL;
}

/* ---- replicas ----------------------------------------------------------- */

/*
 * Dealing heads out by modulo is dealing them out in groups to ranks of other
 * names.  Of several parts only those that all ranks hold may be replicated, or
 * one name would not do for all.
 */
static int64_t replicated_units(const struct kvt_xfer_side *side)
{
	struct kvt_spec_part part[KVT_MAX_SPEC_PARTS];
	int n = kvt_spec_parts(part, &side->spec);

	for (int i = 0; i < n; i++)
		if (side->replicas == KVT_MODULO && part[i].units > 1 &&
		    side->ranks > part[i].units)
			return part[i].units;
	return 0;
}

static int64_t grouped_rank(const struct kvt_xfer_side *side, int64_t rank)
{
	int64_t units = replicated_units(side);

	return units ? rank % units * (side->ranks / units) + rank / units : rank;
}

static int64_t named_rank(const struct kvt_xfer_side *side, int64_t grouped)
{
	int64_t units = replicated_units(side), copies;

	if (!units)
		return grouped;
	copies = side->ranks / units;
	return grouped % copies * units + grouped / copies;
}

static int64_t dealt(const struct kvt_xfer_side *side)
{
	return side->deal > 1 ? side->deal : 1;
}

int64_t kvt_xfer_side_ranks(const struct kvt_xfer_side *side)
{
	return side->ranks * dealt(side);
}

/* ---- a side ------------------------------------------------------------- */

static enum kvt_status place_views(struct kvt_views *views,
				   const int64_t strides[KVT_NAXES],
				   int64_t offset, struct kvt_error *err)
{
	for (int i = 0; i < views->count; i++) {
		struct kvt_view *view = &views->view[i];
		int64_t end;
		enum kvt_status status;

		for (int f = 0; strides && f < view->nfactors; f++) {
			enum kvt_axis axis = view->factor[f].axis;

			if (!strides[axis])
				continue;
			if (view->factor[f].div != 1 ||
			    view->factor[f].n != view->shape.n[axis])
				return kvt_fail(err, KVT_BAD_INPUT,
						"the %s axis is split: it has no one stride", kvt_axis_name(axis));
			view->factor[f].stride = strides[axis];
		}
		if (__builtin_add_overflow(view->offset, offset, &view->offset))
			return kvt_fail(err, KVT_BAD_INPUT, "offset is %lld", LL(offset));
		if ((status = kvt_view_end(&end, view, err)))
			return status;
		if (end > views->nbytes)
			views->nbytes = end;
	}
	return KVT_OK;
}

enum kvt_status kvt_xfer_side_init(struct kvt_xfer_side *out,
				   const struct kvt_spec *spec, int64_t ranks,
				   const struct kvt_layout *layout, int64_t layers,
				   int64_t pool, const int64_t strides[KVT_NAXES],
				   int64_t offset, struct kvt_error *err)
{
	struct kvt_rank rank = { ranks, 0 };
	struct kvt_xfer_side side = { .ranks = ranks };
	struct kvt_shape shape;
	struct kvt_box box;
	enum kvt_status status;

	if (layers < 1 || layers > KVT_MAX_XFER_LAYERS)
		return kvt_fail(err, KVT_BAD_INPUT,
				"there are %lld layers, expected 1 to %d",
				LL(layers), KVT_MAX_XFER_LAYERS);
	if (ranks < 1 || ranks > KVT_MAX_RANKS)
		return kvt_fail(err, KVT_BAD_INPUT,
				"there are %lld ranks, expected 1 to %d",
				LL(ranks), KVT_MAX_RANKS);
	if (pool < 1 || pool > UINT32_MAX)
		return kvt_fail(err, KVT_BAD_INPUT,
				"there are %lld blocks in the pool, expected 1 to 2^32 - 1", LL(pool));
	if ((status = kvt_spec_share(&side.spec, spec, rank, err)) ||
	    (status = kvt_spec_check(&side.spec, rank, err)) ||
	    (status = kvt_spec_shape(&shape, &side.spec, layers, pool, err)))
		return status;
	box = kvt_box_whole(&shape);
	if ((status = kvt_layout_views(&side.views, layout, &box, shape.elem, err)) ||
	    (status = place_views(&side.views, strides, offset, err)))
		return status;
	*out = side;
	return KVT_OK;
}

/* ---- two sides ---------------------------------------------------------- */

static enum kvt_status unlike(struct kvt_error *err, const char *what,
			      int64_t src, int64_t dst)
{
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s is %lld on the source and %lld on the destination",
			what, LL(src), LL(dst));
}

static enum kvt_status check_replicas(const struct kvt_xfer_side *side,
				      struct kvt_error *err)
{
	struct kvt_spec_part part[KVT_MAX_SPEC_PARTS];
	int n = kvt_spec_parts(part, &side->spec);
	int64_t units = replicated_units(side);

	for (int i = 0; units && i < n; i++)
		if (part[i].units != units && part[i].units > 1)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%lld of %s and %lld others cannot both be replicated by modulo",
					LL(part[i].units), part[i].name, LL(units));
	return KVT_OK;
}

/* A caller may have put other strides into a side. */
static enum kvt_status check_views(const struct kvt_views *views, struct kvt_error *err)
{
	int64_t end;
	enum kvt_status status;

	for (int i = 0; i < views->count; i++)
		if ((status = kvt_view_end(&end, &views->view[i], err)))
			return status;
	return kvt_views_disjoint(views, err);
}

static enum kvt_status check_sides(const struct kvt_xfer *x, struct kvt_error *err)
{
	const struct kvt_shape *src = &x->src.views.view[0].shape;
	const struct kvt_shape *dst = &x->dst.views.view[0].shape;
	struct kvt_transfer t = { &x->src.spec, &x->dst.spec, x->src.ranks,
				  x->dst.ranks, x->layers };
	bool conv = kvt_spec_axis(&x->src.spec) == KVT_AXIS_D;
	enum kvt_status status;

	if (x->src.replicas != x->dst.replicas)
		return kvt_fail(err, KVT_BAD_INPUT,
				"heads are replicated in groups on one side and by modulo on the other");
	if (src->n[KVT_AXIS_L] != dst->n[KVT_AXIS_L])
		return unlike(err, "the number of layers", src->n[KVT_AXIS_L],
			      dst->n[KVT_AXIS_L]);
	if ((status = kvt_transfer_check(&t, err)) ||
	    (status = check_replicas(&x->src, err)) ||
	    (status = check_replicas(&x->dst, err)))
		return status;
	if (src->elem != dst->elem)
		return unlike(err, "the element size", src->elem, dst->elem);
	if (kvt_views_kv(&x->src.views) != kvt_views_kv(&x->dst.views))
		return unlike(err, "the number of keys and values a slot",
			      kvt_views_kv(&x->src.views), kvt_views_kv(&x->dst.views));
	if (!conv && src->n[KVT_AXIS_D] != dst->n[KVT_AXIS_D])
		return unlike(err, "the number of elements of a head",
			      src->n[KVT_AXIS_D], dst->n[KVT_AXIS_D]);
	if (kvt_xfer_is_recurrent(&x->src.spec) &&
	    src->n[KVT_AXIS_S] != dst->n[KVT_AXIS_S])
		return unlike(err, "the number of taps", src->n[KVT_AXIS_S],
			      dst->n[KVT_AXIS_S]);
	return KVT_OK;
}

/* A slot of planar content is no run, so only whole equal blocks can move. */
static enum kvt_status check_planar(const struct kvt_xfer *x, struct kvt_error *err)
{
	int64_t src = kvt_xfer_block_slots(&x->src);
	int64_t dst = kvt_xfer_block_slots(&x->dst);

	if (!x->src.spec.planar)
		return KVT_OK;
	if (src != dst)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"blocks of %lld slots cannot be cut to blocks of %lld: their content is planar", LL(src),
				LL(dst));
	for (int64_t i = 0; i < x->nentries; i++)
		if (x->entry[i].count != src)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%lld of %lld slots of block %lld cannot be moved: their content is planar; move whole blocks", LL(x->entry[i].count),
					LL(src),
					LL(x->entry[i].src_block));
	return KVT_OK;
}

enum kvt_status kvt_xfer_init(struct kvt_xfer *out, const struct kvt_xfer_side *src,
			      const struct kvt_xfer_side *dst,
			      struct kvt_block_span *entry, int64_t nentries,
			      struct kvt_error *err)
{
	struct kvt_xfer x = { .src = *src, .dst = *dst, .entry = entry,
			      .layers = src->views.view[0].shape.n[KVT_AXIS_L] };
	enum kvt_status status;

	if ((status = check_sides(&x, err)) ||
	    (status = check_views(&x.src.views, err)) ||
	    (status = check_views(&x.dst.views, err)) ||
	    (status = kvt_entries_sort(&x, entry, nentries, err)) ||
	    (status = check_planar(&x, err)))
		return status;
	*out = x;
	return KVT_OK;
}

/* ---- bytes -------------------------------------------------------------- */

/* Bytes of a position of the dealt axis in one slot of one layer. */
static int64_t position_nbytes(const struct kvt_xfer *x)
{
	const struct kvt_spec *spec = &x->src.spec;

	return kvt_spec_axis(spec) == KVT_AXIS_D ? spec->content[1] * spec->elem :
						   spec->content_size;
}

enum kvt_status kvt_xfer_nbytes(int64_t *bytes, int64_t *unique,
				const struct kvt_xfer *x, struct kvt_error *err)
{
	struct kvt_spec_part part[KVT_MAX_SPEC_PARTS];
	int n = kvt_spec_parts(part, &x->dst.spec);
	int64_t held = 0, global = 0, each = position_nbytes(x);
	bool beyond = __builtin_mul_overflow(each, x->layers, &each) ||
		      __builtin_mul_overflow(each, x->slots, &each);

	for (int i = 0; i < n; i++) {
		int64_t own = part[i].units > x->dst.ranks ?
			      part[i].units / x->dst.ranks : 1;

		held += own * part[i].rows;
		global += part[i].units * part[i].rows;
	}
	beyond |= __builtin_mul_overflow(held, x->dst.ranks, &held) ||
		  __builtin_mul_overflow(held, each, &held) ||
		  __builtin_mul_overflow(global, each, &global);
	if (beyond)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld slots on %lld ranks are more than 2^63 bytes",
				LL(x->slots), LL(x->dst.ranks));
	*bytes = held;
	*unique = global;
	return KVT_OK;
}

/* ---- pairs -------------------------------------------------------------- */

/* The part of the destination rank that a position lies in. */
static int part_at(int64_t *global, const struct kvt_xfer *x, int64_t grouped,
		   int64_t position)
{
	struct kvt_spec_part part[KVT_MAX_SPEC_PARTS];
	int n = kvt_spec_parts(part, &x->dst.spec);
	struct kvt_rank rank = { x->dst.ranks, grouped };
	struct kvt_range own = { 0, 0 };

	for (int i = 0; i < n; i++) {
		int64_t rows;

		if (kvt_owned(&own, part[i].units, rank, NULL))
			break;
		rows = (own.end - own.begin) * part[i].rows;
		if (position < rows) {
			*global = own.begin * part[i].rows + position;
			return i;
		}
		position -= rows;
	}
	return 0;
}

static void add_range(struct kvt_pair *pair, const struct kvt_xfer *x,
		      const struct kvt_move *move)
{
	static const char *const head = "head";
	struct kvt_exchange *e = &pair->exchange;
	int64_t global = 0;
	int part = part_at(&global, x, move->dst_rank, move->dst);

	if (!e->count)
		pair->global = global;
	e->range[e->count++] = (struct kvt_exchange_range){
		x->dst.spec.nparts ? x->dst.spec.part[part].name : head,
		move->src, move->dst, move->count };
}

/* The next source of a destination rank, by the names of the ranks. */
static bool next_source(struct kvt_pair *out, const struct kvt_xfer *x,
			int64_t dst_rank, int64_t least)
{
	struct kvt_transfer t = { &x->src.spec, &x->dst.spec, x->src.ranks,
				  x->dst.ranks, x->layers };
	int64_t grouped = grouped_rank(&x->dst, dst_rank);
	struct kvt_move_walk walk = { .dst_rank = grouped };
	struct kvt_pair pair = { .src_rank = INT64_MAX, .dst_rank = dst_rank };
	struct kvt_move move;

	while (kvt_move_next(&move, &walk, &t) && move.dst_rank == grouped) {
		int64_t rank = named_rank(&x->src, move.src_rank);

		if (rank < least || rank > pair.src_rank)
			continue;
		if (rank < pair.src_rank)
			pair.exchange.count = 0;
		pair.src_rank = rank;
		add_range(&pair, x, &move);
	}
	pair.exchange.axis = kvt_spec_axis(&x->src.spec);
	*out = pair;
	return pair.exchange.count > 0;
}

bool kvt_pair_next(struct kvt_pair *out, struct kvt_pair_walk *walk,
		   const struct kvt_xfer *x)
{
	for (; walk->dst_rank < x->dst.ranks; walk->dst_rank++) {
		if (next_source(out, x, walk->dst_rank, walk->src_rank)) {
			walk->src_rank = out->src_rank + 1;
			out->src_rank = out->src_rank * dealt(&x->src) + x->src.deal_rank;
			out->dst_rank = out->dst_rank * dealt(&x->dst) + x->dst.deal_rank;
			return true;
		}
		walk->src_rank = 0;
	}
	return false;
}

int64_t kvt_xfer_nmoves(const struct kvt_xfer *x)
{
	struct kvt_transfer t = { &x->src.spec, &x->dst.spec, x->src.ranks,
				  x->dst.ranks, x->layers };
	struct kvt_move_walk walk = { 0, 0, 0 };
	struct kvt_move move;
	int64_t n = 0;

	while (kvt_move_next(&move, &walk, &t))
		n++;
	return n;
}
