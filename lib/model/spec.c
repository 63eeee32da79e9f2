/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec.c - what follows from a spec, and which specs contradict themselves
 *
 *	slot = content of a head * heads of the rank	page = slots of a block * slot
 *	planar content: the page is what it is, and heads cannot be cut from it
 *
 * In: a spec of the whole model and a rank.  Out: its share, sizes of slot and page, the
 * shape of a group.  Products are checked: a spec comes from files and options.
 */
#include "lib/kvt/spec.h"

#include <string.h>

/* Channels of a model, so that sums over ranks and layers have room. */
static const int64_t most = INT32_MAX;

enum kvt_axis kvt_spec_axis(const struct kvt_spec *spec)
{
	return spec->kind == KVT_MAMBA_CONV ? KVT_AXIS_D : KVT_AXIS_H;
}

int kvt_spec_parts(struct kvt_spec_part out[KVT_MAX_SPEC_PARTS],
		   const struct kvt_spec *spec)
{
	if (spec->kind != KVT_MAMBA_CONV) {
		out[0] = (struct kvt_spec_part){ "head", spec->total_heads, 1,
						 spec->no_replicas };
		return 1;
	}
	memcpy(out, spec->part, (size_t)spec->nparts * sizeof(*out));
	return spec->nparts;
}

/* ---- shares ------------------------------------------------------------- */

static enum kvt_status deal(struct kvt_range *out, const struct kvt_spec_part *part,
			    struct kvt_rank rank, struct kvt_error *err)
{
	int64_t units = part->units;

	if (rank.size > 0 && units > 0 && units % rank.size &&
	    (part->no_replicas || rank.size % units))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld cannot be divided evenly among %lld ranks%s",
				part->name, LL(units), LL(rank.size),
				part->no_replicas ? ", which must divide it" :
				": neither number divides the other");
	return kvt_owned(out, units, rank, err);
}

static enum kvt_status check_parts(const struct kvt_spec *spec, struct kvt_error *err)
{
	int64_t channels = 0;

	if (spec->kind != KVT_MAMBA_CONV)
		return KVT_OK;
	if (spec->nparts < 1 || spec->nparts > KVT_MAX_SPEC_PARTS)
		return kvt_fail(err, KVT_BAD_INPUT,
				"a conv state has %d parts, expected 1 to %d: its shape alone does not tell x, B and C apart",
				spec->nparts, KVT_MAX_SPEC_PARTS);
	if (spec->ncontent != 2)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the content of a conv state has %d extents, expected channels and taps", spec->ncontent);
	for (int i = 0; i < spec->nparts; i++) {
		const struct kvt_spec_part *part = &spec->part[i];
		int64_t n;

		if (part->units < 1 || part->rows < 1 ||
		    __builtin_mul_overflow(part->units, part->rows, &n) ||
		    n > most || (channels += n) > most)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: %lld times %lld channels, expected 1 to %lld", part->name,
					LL(part->units),
					LL(part->rows), LL(most));
	}
	return KVT_OK;
}

static enum kvt_status content_nbytes(int64_t *out, const struct kvt_spec *spec,
				      struct kvt_error *err)
{
	int64_t nbytes = spec->elem;

	if (spec->elem < 1 || spec->ncontent < 0 || spec->ncontent > KVT_MAX_CONTENT)
		return kvt_fail(err, KVT_BAD_INPUT,
				"content has %d extents of elements of %lld bytes",
				spec->ncontent, LL(spec->elem));
	for (int i = 0; i < spec->ncontent; i++)
		if (spec->content[i] < 1 ||
		    __builtin_mul_overflow(nbytes, spec->content[i], &nbytes))
			return kvt_fail(err, KVT_BAD_INPUT,
					"content extent %d is %lld", i,
					LL(spec->content[i]));
	*out = nbytes;
	return KVT_OK;
}

enum kvt_status kvt_spec_share(struct kvt_spec *out, const struct kvt_spec *in,
			       struct kvt_rank rank, struct kvt_error *err)
{
	struct kvt_spec_part part[KVT_MAX_SPEC_PARTS];
	struct kvt_spec spec = *in;
	struct kvt_range mine;
	enum kvt_status status;
	int64_t channels = 0;
	int n;

	if ((status = check_parts(in, err)))
		return status;
	n = kvt_spec_parts(part, in);
	for (int i = 0; i < n; i++) {
		if ((status = deal(&mine, &part[i], rank, err)))
			return status;
		channels += (mine.end - mine.begin) * part[i].rows;
	}
	spec.page_size_padded = 0;
	if (kvt_spec_axis(in) == KVT_AXIS_H) {
		spec.num_heads = mine.end - mine.begin;
		spec.head_start = mine.begin;
		spec.replication = kvt_is_replicated(in->total_heads, rank.size) ?
				   rank.size / in->total_heads : 1;
	} else {
		spec.content[0] = channels;
		spec.num_heads = spec.total_heads = spec.replication = 1;
		spec.head_start = 0;
		if ((status = content_nbytes(&spec.content_size, &spec, err)))
			return status;
	}
	*out = spec;
	return KVT_OK;
}

/* ---- contradictions ----------------------------------------------------- */

static enum kvt_status check_ratio(struct kvt_ratio r, struct kvt_error *err)
{
	if ((r.num == -1 && r.den == 1) ||
	    (r.num > 0 && r.den > 0 && (r.num == 1 || r.den == 1)))
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"tokens per slot are %lld/%lld, expected N, 1/N or -1",
			LL(r.num), LL(r.den));
}

static enum kvt_status differs(struct kvt_error *err, const char *what, int64_t found,
			       int64_t expected, struct kvt_rank rank)
{
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s is %lld, expected %lld on rank %lld of %lld", what, LL(found),
			LL(expected), LL(rank.index), LL(rank.size));
}

enum kvt_status kvt_spec_check(const struct kvt_spec *spec,
			       struct kvt_rank rank, struct kvt_error *err)
{
	struct kvt_spec_size size;
	struct kvt_spec share;
	enum kvt_status status;
	int64_t nbytes;

	if ((status = kvt_spec_share(&share, spec, rank, err)) ||
	    (status = kvt_spec_size(&size, spec, err)))
		return status;
	if (spec->ncontent) {
		if ((status = content_nbytes(&nbytes, spec, err)))
			return status;
		if (nbytes != spec->content_size)
			return kvt_fail(err, KVT_BAD_INPUT,
					"content_size is %lld, but the content has %lld bytes",
					LL(spec->content_size), LL(nbytes));
	}
	if (spec->num_heads != share.num_heads)
		return differs(err, "num_heads", spec->num_heads, share.num_heads, rank);
	if (spec->head_start != share.head_start)
		return differs(err, "head_start", spec->head_start,
			       share.head_start, rank);
	if (spec->replication != share.replication)
		return differs(err, "replication", spec->replication,
			       share.replication, rank);
	if (spec->content_size != share.content_size)
		return differs(err, "content_size", spec->content_size,
			       share.content_size, rank);
	return KVT_OK;
}

/* ---- sizes -------------------------------------------------------------- */

static enum kvt_status count_slots(int64_t *out, const struct kvt_spec *spec,
				   struct kvt_error *err)
{
	struct kvt_ratio r = spec->tokens_per_slot;
	enum kvt_status status = check_ratio(r, err);
	int64_t n;

	if (status)
		return status;
	if (r.num == -1) {
		*out = 1;
		return KVT_OK;
	}
	if (spec->block_size < 1 || __builtin_mul_overflow(spec->block_size, r.den, &n))
		return kvt_fail(err, KVT_BAD_INPUT, "block size is %lld tokens",
				LL(spec->block_size));
	if (n % r.num)
		return kvt_fail(err, KVT_BAD_INPUT,
				"a block of %lld tokens does not hold whole slots of %lld tokens", LL(spec->block_size),
				LL(r.num));
	*out = n / r.num;
	return KVT_OK;
}

enum kvt_status kvt_spec_size(struct kvt_spec_size *out,
			      const struct kvt_spec *spec, struct kvt_error *err)
{
	int64_t align = spec->alignment > 1 ? spec->alignment : 1;
	struct kvt_spec_size size;
	enum kvt_status status;

	if ((status = count_slots(&size.num_slots, spec, err)))
		return status;
	if (spec->num_heads < 1 || spec->content_size < 1 ||
	    __builtin_mul_overflow(size.num_slots, spec->num_heads, &size.unpadded) ||
	    __builtin_mul_overflow(size.unpadded, spec->content_size, &size.unpadded) ||
	    __builtin_add_overflow(size.unpadded, align - 1, &size.page))
		return kvt_fail(err, KVT_BAD_INPUT,
				"a page of %lld slots of %lld heads of %lld bytes",
				LL(size.num_slots), LL(spec->num_heads),
				LL(spec->content_size));
	size.page -= size.page % align;
	if (spec->page_size_padded) {
		if (spec->page_size_padded < size.unpadded)
			return kvt_fail(err, KVT_BAD_INPUT,
					"the padded page has %lld bytes, its content %lld", LL(spec->page_size_padded),
					LL(size.unpadded));
		size.page = spec->page_size_padded;
	}
	*out = size;
	return KVT_OK;
}

int64_t kvt_spec_slots(const struct kvt_spec *spec, int64_t ntokens)
{
	struct kvt_ratio r = spec->tokens_per_slot;

	if (r.num < 0)
		return 1;
	return ntokens / r.num * r.den + (ntokens % r.num * r.den + r.num - 1) / r.num;
}

enum kvt_status kvt_spec_shape(struct kvt_shape *out, const struct kvt_spec *spec,
			       int64_t layers, int64_t blocks, struct kvt_error *err)
{
	struct kvt_shape shape = { .elem = spec->ncontent ? spec->elem : 1 };
	struct kvt_spec_size size;
	enum kvt_status status;
	int64_t nbytes;

	if ((status = kvt_spec_size(&size, spec, err)) ||
	    (spec->ncontent && (status = content_nbytes(&nbytes, spec, err))))
		return status;
	shape.n[KVT_AXIS_L] = layers;
	shape.n[KVT_AXIS_B] = blocks;
	shape.n[KVT_AXIS_S] = size.num_slots;
	shape.n[KVT_AXIS_H] = spec->num_heads;
	shape.n[KVT_AXIS_K] = 1;
	shape.n[KVT_AXIS_D] = spec->content_size / shape.elem;
	if (spec->kind == KVT_MAMBA_CONV && spec->ncontent == 2) {
		shape.n[KVT_AXIS_S] = spec->content[1];
		shape.n[KVT_AXIS_D] = spec->content[0];
	} else if (spec->kind != KVT_MAMBA_SSM && spec->ncontent == 2 &&
		   spec->content[0] == 2) {
		shape.n[KVT_AXIS_K] = 2;
		shape.n[KVT_AXIS_D] = spec->content[1];
	}
	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)))
		return status;
	*out = shape;
	return KVT_OK;
}
