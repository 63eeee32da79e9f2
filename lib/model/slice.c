/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.c - what two ranks of a transfer exchange, as ranges
 *
 * In: a spec and a rank of each side.  Out: for each part (heads; of a conv state x, B
 * and C) where the common range begins on either side and how long it is.  Parts follow
 * each other on a rank, each as long as its share there.  Both specs must mean the same
 * slot; block sizes and pages may differ.  slice_proof.c shows that nothing is lost or
 * doubled, without these functions.
 */
#include "lib/kvt/spec.h"

#include <string.h>

/* ---- do both ends mean the same thing? ---------------------------------- */

static enum kvt_status unlike(struct kvt_error *err, const char *what,
			      int64_t src, int64_t dst)
{
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s is %lld on the source and %lld on the destination",
			what, LL(src), LL(dst));
}

static enum kvt_status same_parts(const struct kvt_spec *src, const struct kvt_spec *dst,
				  struct kvt_error *err)
{
	struct kvt_spec_part a[KVT_MAX_SPEC_PARTS], b[KVT_MAX_SPEC_PARTS];
	int n = kvt_spec_parts(a, src);

	if (n != kvt_spec_parts(b, dst))
		return unlike(err, "the number of parts", src->nparts, dst->nparts);
	for (int i = 0; i < n; i++) {
		if (strcmp(a[i].name, b[i].name))
			return kvt_fail(err, KVT_BAD_INPUT,
					"part %d is %s on the source and %s on the destination", i, a[i].name, b[i].name);
		if (a[i].units != b[i].units)
			return unlike(err, a[i].name, a[i].units, b[i].units);
		if (a[i].rows != b[i].rows)
			return unlike(err, a[i].name, a[i].rows, b[i].rows);
	}
	return KVT_OK;
}

/* Block sizes and pages may differ; whatever decides what a slot is may not. */
static enum kvt_status same_model(const struct kvt_spec *src, const struct kvt_spec *dst,
				  struct kvt_error *err)
{
	bool conv = kvt_spec_axis(src) == KVT_AXIS_D;

	if (src->kind != dst->kind)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the source holds %s, the destination %s",
				kvt_kind_name(src->kind), kvt_kind_name(dst->kind));
	if (src->tokens_per_slot.num != dst->tokens_per_slot.num ||
	    src->tokens_per_slot.den != dst->tokens_per_slot.den)
		return unlike(err, "the number of tokens per slot",
			      src->tokens_per_slot.num, dst->tokens_per_slot.num);
	if (src->planar != dst->planar)
		return unlike(err, "planar content", src->planar, dst->planar);
	if (!conv && src->content_size != dst->content_size)
		return unlike(err, "content_size", src->content_size, dst->content_size);
	if (conv && src->content[1] != dst->content[1])
		return unlike(err, "the number of taps",
			      src->content[1], dst->content[1]);
	if (conv && src->elem != dst->elem)
		return unlike(err, "the element size", src->elem, dst->elem);
	return same_parts(src, dst, err);
}

/* ---- ranges ------------------------------------------------------------- */

/*
 * Parts follow each other on each rank: 'src' and 'dst' are where this one
 * begins there, and move past it.
 */
static enum kvt_status cut_part(struct kvt_exchange *out, int64_t *src, int64_t *dst,
				const struct kvt_spec_part *part, struct kvt_rank from,
				struct kvt_rank to, struct kvt_error *err)
{
	struct kvt_range have, want, given;
	enum kvt_status status;

	if ((status = kvt_owned(&have, part->units, from, err)) ||
	    (status = kvt_owned(&want, part->units, to, err)) ||
	    (status = kvt_given(&given, part->units, from, to, err)))
		return status;
	if (given.begin < given.end)
		out->range[out->count++] = (struct kvt_exchange_range){
			.part = part->name,
			.src = *src + (given.begin - have.begin) * part->rows,
			.dst = *dst + (given.begin - want.begin) * part->rows,
			.count = (given.end - given.begin) * part->rows,
		};
	*src += (have.end - have.begin) * part->rows;
	*dst += (want.end - want.begin) * part->rows;
	return KVT_OK;
}

/* The two specs have been checked. */
static enum kvt_status exchange(struct kvt_exchange *out, const struct kvt_side *src,
				const struct kvt_side *dst, struct kvt_error *err)
{
	struct kvt_exchange x = { .axis = kvt_spec_axis(src->spec) };
	struct kvt_spec_part part[KVT_MAX_SPEC_PARTS];
	int n = kvt_spec_parts(part, src->spec);
	int64_t from = 0, to = 0;
	enum kvt_status status;

	for (int i = 0; i < n; i++) {
		status = cut_part(&x, &from, &to, &part[i], src->rank, dst->rank, err);
		if (status)
			return status;
	}
	if (src->spec->planar && x.count &&
	    (x.range[0].count != from || x.range[0].count != to))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%lld of %lld heads cannot be sliced from planar content",
				LL(x.range[0].count), LL(from > to ? from : to));
	*out = x;
	return KVT_OK;
}

enum kvt_status kvt_exchange_init(struct kvt_exchange *out, const struct kvt_side *src,
				  const struct kvt_side *dst, struct kvt_error *err)
{
	enum kvt_status status;

	if ((status = kvt_spec_check(src->spec, src->rank, err)) ||
	    (status = kvt_spec_check(dst->spec, dst->rank, err)) ||
	    (status = same_model(src->spec, dst->spec, err)))
		return status;
	return exchange(out, src, dst, err);
}

/* ---- all pairs ---------------------------------------------------------- */

enum kvt_status kvt_transfer_check(const struct kvt_transfer *transfer,
				   struct kvt_error *err)
{
	struct kvt_rank from = { transfer->src_ranks, 0 };
	struct kvt_rank to = { transfer->dst_ranks, 0 };
	struct kvt_spec src, dst;
	enum kvt_status status;

	if (transfer->layers < 0 || transfer->layers > INT32_MAX)
		return kvt_fail(err, KVT_BAD_INPUT, "there are %lld layers",
				LL(transfer->layers));
	if ((status = kvt_spec_share(&src, transfer->src, from, err)) ||
	    (status = kvt_spec_share(&dst, transfer->dst, to, err)) ||
	    (status = kvt_spec_check(&src, from, err)) ||
	    (status = kvt_spec_check(&dst, to, err)) ||
	    (status = same_model(&src, &dst, err)))
		return status;
	if (src.planar && src.num_heads != dst.num_heads)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%lld heads a rank cannot be cut from planar content of %lld", LL(dst.num_heads),
				LL(src.num_heads));
	return KVT_OK;
}

/* All source ranks that may give some part to 'dst'. */
static struct kvt_range sources(const struct kvt_transfer *transfer, struct kvt_rank dst)
{
	struct kvt_spec_part part[KVT_MAX_SPEC_PARTS];
	struct kvt_range all = { transfer->src_ranks, 0 };
	int n = kvt_spec_parts(part, transfer->src);

	for (int i = 0; i < n; i++) {
		struct kvt_range r;

		if (kvt_candidates(&r, part[i].units, transfer->src_ranks, dst, NULL))
			continue;
		if (r.begin < all.begin)
			all.begin = r.begin;
		if (r.end > all.end)
			all.end = r.end;
	}
	return all;
}

bool kvt_move_next(struct kvt_move *out, struct kvt_move_walk *walk,
		   const struct kvt_transfer *transfer)
{
	for (; walk->dst_rank < transfer->dst_ranks; walk->dst_rank++) {
		struct kvt_side dst = { transfer->dst,
			{ transfer->dst_ranks, walk->dst_rank } };
		struct kvt_range from = sources(transfer, dst.rank);

		if (walk->src_rank < from.begin)
			walk->src_rank = from.begin;
		for (; walk->src_rank < from.end; walk->src_rank++) {
			struct kvt_side src = { transfer->src,
				{ transfer->src_ranks, walk->src_rank } };
			const struct kvt_exchange_range *range;
			struct kvt_exchange x;

			if (!exchange(&x, &src, &dst, NULL) && walk->range < x.count) {
				range = &x.range[walk->range++];
				*out = (struct kvt_move){
					src.rank.index, dst.rank.index,
					{ 0, transfer->layers },
					range->src, range->dst, range->count };
				return true;
			}
			walk->range = 0;
		}
		walk->src_rank = 0;
	}
	return false;
}
