/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice_transfer.c - what one rank sends to another, of a transfer that is proven
 *
 * Heads and channels come from the exchange of lib/; before anything is cut, all moves
 * between all ranks pass the proof that each position arrives just once.
 *
 * A group becomes the spec of the model, whose shares the two ranks have.  Where the
 * dump is the sender's own, what it sends is counted from the dump's first head.  Of
 * opaque content nobody knows how it is divided: between as many ranks each gives its
 * own to its equal.
 */
#include "lib/derived/slice.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 1024 };	/* the proof walks all pairs */

/* ---- specs -------------------------------------------------------------- */

static enum kvt_status conv_spec(struct kvt_spec *spec, const struct kvt_group *group,
				 const struct kvt_snapshot *whole,
				 const struct kvt_slice_options *options,
				 struct kvt_error *err)
{
	struct conv conv;
	enum kvt_status status = conv_init(&conv, group, whole, options->mamba_groups,
					   err);

	if (status)
		return status;
	for (int p = 0; p < CONV_PARTS; p++)
		if (conv.here[p])
			spec->part[spec->nparts++] = (struct kvt_spec_part){
				conv.name[p], conv.units[p],
				conv.total[p] / conv.units[p], conv.no_replicas[p],
			};
	spec->total_heads = spec->num_heads = 1;
	spec->ncontent = 2;
	spec->content[0] = 1;	/* follows from the parts */
	spec->content[1] = group->shape.n[KVT_AXIS_S];
	return KVT_OK;
}

/* Of the model; the shares of ranks follow. */
static enum kvt_status group_spec(struct kvt_spec *out, const struct kvt_group *group,
				  const struct kvt_snapshot *whole,
				  const struct kvt_slice_options *options,
				  struct kvt_error *err)
{
	int64_t width = group->shape.n[KVT_AXIS_K] * group->shape.n[KVT_AXIS_D];

	*out = (struct kvt_spec){
		.kind = group->kind, .block_size = group->block_size,
		.num_heads = group->total_heads, .total_heads = group->total_heads,
		.replication = 1, .no_replicas = group->kind == KVT_MAMBA_SSM,
		.tokens_per_slot = { group->tokens_per_slot, 1 },
		.content_size = width * group->shape.elem,
		.ncontent = 1, .content = { width }, .elem = group->shape.elem,
	};
	if (out->block_size < 1)
		out->block_size = 1;
	return group->kind == KVT_MAMBA_CONV ?
	       conv_spec(out, group, whole, options, err) : KVT_OK;
}

/* ---- the proof ---------------------------------------------------------- */

static enum kvt_status prove(const struct kvt_transfer *t, struct kvt_error *err)
{
	struct kvt_move_walk walk = { .range = 0 };
	struct kvt_move move, *moves;
	struct kvt_proof proof;
	enum kvt_status status;
	int64_t n = 0;

	if ((status = kvt_transfer_check(t, err)))
		return status;
	while (kvt_move_next(&move, &walk, t))
		n++;
	if (!(moves = calloc((size_t)n + 1, sizeof(*moves))))
		return kvt_no_memory(err, NULL);
	walk = (struct kvt_move_walk){ .range = 0 };
	for (int64_t i = 0; i < n; i++)
		(void)kvt_move_next(&moves[i], &walk, t);
	status = kvt_moves_prove(&proof, t, moves, n, err);
	free(moves);
	return status;
}

/* ---- one group ---------------------------------------------------------- */

/* Whatever an opaque page is, each rank may hand its own to its equal. */
static enum kvt_status give_opaque(struct kvt_exchange *given,
				   const struct kvt_group *group,
				   const struct kvt_slice_options *options,
				   struct kvt_error *err)
{
	if (options->rank.size != options->to.size)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"it is not known how opaque content is divided among ranks");
	*given = (struct kvt_exchange){
		.axis = KVT_AXIS_H, .count = options->rank.index == options->to.index,
		.range = { { "head", 0, 0, group->shape.n[KVT_AXIS_H] } },
	};
	return KVT_OK;
}

static enum kvt_status give(struct kvt_exchange *given, const struct kvt_group *group,
			    const struct kvt_snapshot *whole,
			    const struct kvt_slice_options *options,
			    struct kvt_error *err)
{
	struct kvt_spec model, from, to;
	struct kvt_side src = { &from, options->rank }, dst = { &to, options->to };
	struct kvt_transfer all = { &model, &model, options->rank.size, options->to.size,
				    group->shape.n[KVT_AXIS_L] };
	enum kvt_status status;

	if (group->kind == KVT_OPAQUE)
		return give_opaque(given, group, options, err);
	if ((status = group_spec(&model, group, whole, options, err)) ||
	    (status = prove(&all, err)) ||
	    (status = kvt_spec_share(&from, &model, options->rank, err)) ||
	    (status = kvt_spec_share(&to, &model, options->to, err)))
		return status;
	return kvt_exchange_init(given, &src, &dst, err);
}

static bool is_that_rank(const struct kvt_snapshot *whole, struct kvt_rank rank)
{
	return whole->parallel.tp_size == rank.size &&
	       whole->parallel.tp_rank == rank.index;
}

/* The heads given count in all that the rank holds, of which the dump may be a cut. */
static enum kvt_status count_in_dump(struct kvt_exchange *given,
				     const struct kvt_group *group, struct kvt_rank rank,
				     struct kvt_error *err)
{
	int64_t first = group->head_start, count = group->shape.n[KVT_AXIS_H];
	struct kvt_exchange_range *range = given->range;
	struct kvt_range own;
	enum kvt_status status;

	if (!given->count || given->axis == KVT_AXIS_D || group->kind == KVT_OPAQUE)
		return KVT_OK;
	if ((status = kvt_owned(&own, group->total_heads, rank, err)))
		return status;
	range->src += own.begin - first;
	if (range->src >= 0 && range->src + range->count <= count)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"rank %lld of %lld sends heads %lld to %lld, and the dump has only %lld to %lld",
			LL(rank.index), LL(rank.size), LL(first + range->src),
			LL(first + range->src + range->count - 1), LL(first),
			LL(first + count - 1));
}

enum kvt_status slice_exchanges(struct kvt_exchange given[KVT_MAX_GROUPS],
			       const struct kvt_snapshot *whole,
			       const struct kvt_slice_options *options,
			       struct kvt_error *err)
{
	const struct kvt_parallel *p = &whole->parallel;

	if (!options->to.size)
		return KVT_OK;
	if (options->rank.size > MAX_RANKS || options->to.size > MAX_RANKS)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"a transfer from %lld to %lld ranks, at most %d are supported",
				LL(options->rank.size), LL(options->to.size), MAX_RANKS);
	if (p->tp_size == options->rank.size && p->tp_rank != options->rank.index)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the dump is that of rank %lld of %lld, not of rank %lld",
				LL(p->tp_rank), LL(p->tp_size), LL(options->rank.index));
	for (int g = 0; g < whole->ngroups; g++) {
		const struct kvt_group *group = &whole->group[g];
		struct kvt_error why;
		enum kvt_status status;

		if (!slice_wants(group, options))
			continue;
		if ((status = give(&given[g], group, whole, options, &why)) ||
		    (is_that_rank(whole, options->rank) &&
		     (status = count_in_dump(&given[g], group, options->rank, &why))))
			return kvt_fail(err, status, "%s: %.400s", group->id, why.text);
	}
	return KVT_OK;
}

/* ---- cutting ------------------------------------------------------------ */

/* The parts stand in the order of their names, whatever that of the dump is. */
static int64_t before_part(const struct kvt_group *group, const char *name)
{
	const char *previous = NULL;
	int64_t at = 0;

	for (int i = 0; i < group->ncomponents; i++)
		if (part_follows(group->component[i].name, name))
			previous = group->component[i].name;
	if (!previous)
		return 0;
	for (int i = 0; i < group->ncomponents; i++)
		if (!strcmp(group->component[i].name, previous))
			at = group->component[i].length;
	return at + before_part(group, previous);
}

static enum kvt_status give_channels(struct step_part *part, struct kvt_group *group,
				     const struct kvt_exchange *given,
				     struct kvt_error *err)
{
	struct kvt_group out = *group;
	struct kvt_segment run[KVT_MAX_COMPONENTS];
	enum kvt_status status = channel_runs(part, group, err);
	int64_t at = 0;

	if (status)
		return status;
	for (int r = 0; r < given->count; r++) {
		const struct kvt_exchange_range *range = &given->range[r];
		int i = 0;
		int64_t in = range->src - before_part(group, range->part);

		while (strcmp(group->component[i].name, range->part))
			i++;	/* the exchange was made of these */
		if (in < 0 || in + range->count > group->component[i].length)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: the dump lacks channels of part %s that the rank holds",
					group->id, range->part);
		run[r] = (struct kvt_segment){ at, part->channel[i].from + in,
					       range->count };
		out.component[r] = group->component[i];
		out.component[r].start = at;
		out.component[r].length = range->count;
		out.component[r].global_start += in;
		at += range->count;
	}
	memcpy(part->channel, run, (size_t)given->count * sizeof(*run));
	part->nchannels = out.ncomponents = given->count;
	out.shape.n[KVT_AXIS_D] = at;
	*group = out;
	return KVT_OK;
}

enum kvt_status slice_given(struct step_part *part, struct kvt_group *group,
			    const struct kvt_exchange *given, struct kvt_error *err)
{
	const struct kvt_exchange_range *range = given->range;

	if (given->axis == KVT_AXIS_D)
		return give_channels(part, group, given, err);
	part->heads.from += range->src;
	part->heads.count = range->count;
	group->head_start += range->src;
	group->shape.n[KVT_AXIS_H] = range->count;
	return KVT_OK;
}
