/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grafts.c - what the ranks of a destination hold after a transfer, as dumps
 *
 * Each is what was there, or the fill, with one graft for each rank of the source that
 * gives it heads or channels.  Which slots move is the plan's: the entries of all its
 * parts that write to a group.  Requests share blocks, so parts may write a slot
 * twice, of which one is enough.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/kvt/derive.h"
#include "sim/ops/exec.h"

/* What moves into one group of the destination. */
struct incoming {
	int part;			/* the first of the plan; -1: none */
	struct kvt_block_span *span;	/* owned; no slot twice */
	int64_t n;
};

/* ---- slots --------------------------------------------------------------- */

static int64_t blocks_in(const struct kvt_block_span *s)
{
	return s->nblocks > 0 ? s->nblocks : 1;
}

/* An entry, block by block.  A block of a recurrent group moves whole. */
static void add_entry(struct incoming *in, const struct kvt_block_span *s,
		      const struct kvt_group *group)
{
	bool whole = s->nblocks > 0 || group->tokens_per_slot < 0;

	for (int64_t b = 0; b < blocks_in(s); b++)
		in->span[in->n++] = (struct kvt_block_span){
			.src_block = s->src_block + b,
			.src_slot = whole ? 0 : s->src_slot,
			.dst_block = s->dst_block + b,
			.dst_slot = whole ? 0 : s->dst_slot,
			.count = whole ? group->shape.n[KVT_AXIS_S] : s->count,
		};
}

/* What an earlier one writes, too, is cut off; spans are sorted. */
static void drop_doubles(struct incoming *in)
{
	int64_t n = 0, block = -1, end = 0;

	for (int64_t i = 0; i < in->n; i++) {
		struct kvt_block_span s = in->span[i];
		int64_t cut;

		if (s.dst_block != block)
			end = 0;
		block = s.dst_block;
		cut = s.dst_slot < end ? end - s.dst_slot : 0;
		if (cut >= s.count)
			continue;
		s.src_slot += cut;
		s.dst_slot += cut;
		s.count -= cut;
		end = s.dst_slot + s.count;
		in->span[n++] = s;
	}
	in->n = n;
}

static enum kvt_status find_incoming(struct incoming *out, const struct kvt_sides *sides,
				     int group, struct kvt_error *err)
{
	const struct kvt_transfer_plan *plan = &sides->transfer;
	const struct kvt_group *to = &kvt_ranks_snapshot(&sides->dst, 0)->group[group];
	int64_t total = 0;

	*out = (struct incoming){ .part = -1 };
	for (int p = plan->ngroups - 1; p >= 0; p--) {
		if (plan->group[p].dst_group != group)
			continue;
		out->part = p;
		for (int64_t i = 0; i < plan->group[p].xfer.nentries; i++)
			total += blocks_in(&plan->group[p].xfer.entry[i]);
	}
	if (!(out->span = malloc(((size_t)total + 1) * sizeof(*out->span))))
		return kvt_no_memory(err, NULL);
	for (int p = 0; p < plan->ngroups; p++)
		for (int64_t i = 0; plan->group[p].dst_group == group &&
				    i < plan->group[p].xfer.nentries; i++)
			add_entry(out, &plan->group[p].xfer.entry[i], to);
	qsort(out->span, (size_t)out->n, sizeof(*out->span), kvt_span_by_target);
	drop_doubles(out);
	return KVT_OK;
}

/* ---- ranks --------------------------------------------------------------- */

/* What rank 'src' gives to rank 'dst' of each group; false: nothing. */
static bool gives(struct kvt_graft graft[KVT_MAX_GROUPS],
		  struct kvt_exchange given[KVT_MAX_GROUPS],
		  const struct kvt_sides *sides,
		  const struct incoming *in, int ngroups, int src, int dst)
{
	bool any = false;

	for (int g = 0; g < ngroups; g++) {
		const struct kvt_transfer_group *part;
		struct kvt_pair_walk walk = { 0, 0 };
		struct kvt_pair pair;

		graft[g] = (struct kvt_graft){ .from = 0 };
		if (in[g].part < 0 || !in[g].n)
			continue;
		part = &sides->transfer.group[in[g].part];
		while (kvt_pair_next(&pair, &walk, &part->xfer)) {
			if (pair.src_rank != src || pair.dst_rank != dst)
				continue;
			given[g] = pair.exchange;
			graft[g] = (struct kvt_graft){
				.from = part->src_group, .span = in[g].span,
				.nspans = in[g].n, .given = &given[g],
			};
			any = true;
		}
	}
	return any;
}

/* The grafts of all ranks of the source on what rank 'dst' is before; 'base' is owned. */
static enum kvt_status graft_rank(struct kvt_dump **out, struct kvt_dump *base,
				  const struct kvt_sides *sides,
				  const struct incoming *in, int dst,
				  struct kvt_error *err)
{
	int ngroups = kvt_ranks_snapshot(&sides->dst, dst)->ngroups;
	const struct kvt_dump *from = base ? base : sides->dst.file[dst].reader;
	struct kvt_graft graft[KVT_MAX_GROUPS];
	struct kvt_exchange given[KVT_MAX_GROUPS];
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < sides->src.n; s++) {
		struct kvt_dump *grafted;

		/* the last one comes also if it gives nothing, so that there is one */
		if (!gives(graft, given, sides, in, ngroups, s, dst) &&
		    (base || s < sides->src.n - 1))
			continue;
		status = kvt_dump_graft(&grafted, from, sides->src.file[s].reader, graft,
					err);
		if (status)
			break;
		kvt_dump_close(base);
		base = grafted;
		from = grafted;
	}
	if (status)
		kvt_dump_close(base);
	else
		*out = base;
	return status;
}

void kvt_sides_close(struct kvt_dump **dumps, int n)
{
	for (int i = 0; dumps && i < n; i++)
		kvt_dump_close(dumps[i]);
	free(dumps);
}

enum kvt_status kvt_sides_dumps(struct kvt_dump ***out, const struct kvt_sides *sides,
				struct kvt_error *err)
{
	int n = sides->dst.n, ngroups = kvt_ranks_snapshot(&sides->dst, 0)->ngroups;
	struct kvt_dump **dumps = calloc((size_t)n + 1, sizeof(*dumps));
	struct incoming in[KVT_MAX_GROUPS] = { { .part = -1 } };
	enum kvt_status status = dumps ? KVT_OK : kvt_no_memory(err, NULL);

	for (int g = 0; !status && g < ngroups; g++)
		status = find_incoming(&in[g], sides, g, err);
	for (int r = 0; !status && r < n; r++) {
		struct kvt_dump *base = NULL;

		if (sides->dst.made)
			status = kvt_dump_of_constant(&base, &sides->dst.made[r],
						      sides->fill, err);
		if (!status)
			status = graft_rank(&dumps[r], base, sides, in, r, err);
	}
	for (int g = 0; g < ngroups; g++)
		free(in[g].span);
	if (status)
		kvt_sides_close(dumps, n);
	else
		*out = dumps;
	return status;
}
