/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - a transfer of one request of a model, between two pools
 *
 * In: the groups of a model, and for each side a layout, ranks, a block size and
 * which blocks of its pool the request has.  Out: a proven transfer.  Tokens that a
 * group no longer keeps (a window, chunks) are left out on both sides; those that
 * are cached at the destination are left out of groups that keep all.
 */
#include "sim/ops/transfer.h"

#include <stdlib.h>
#include <string.h>

/* ---- groups ------------------------------------------------------------- */

enum kvt_status kvt_conv_layout(struct kvt_layout *out, const struct kvt_layout *layout,
				const char *conv, struct kvt_error *err)
{
	char text[8];
	int n = 0;

	if (!conv)
		return kvt_fail(err, KVT_BAD_INPUT,
				"conv states are stored by tap (vLLM's default) or by channel: give --conv=sd or --conv=ds");
	if (strcmp(conv, "sd") && strcmp(conv, "ds"))
		return kvt_fail(err, KVT_USAGE, "--conv is '%.40s', expected sd or ds",
				conv);
	for (int i = 0; i < layout->plane[0].nparts; i++) {
		enum kvt_axis axis = layout->plane[0].part[i].axis;

		if (axis == KVT_AXIS_L || axis == KVT_AXIS_B)
			text[n++] = kvt_axis_letter(axis);
	}
	snprintf(text + n, sizeof(text) - (size_t)n, "%s", conv[0] == 's' ? "SD" : "DS");
	return kvt_layout_parse(out, text, err);
}

/* What live tokens there are, in blocks of their own. */
static int64_t tokens_of(const struct kvt_spec *spec, int64_t tokens)
{
	const struct kvt_retention keep = { .kind = spec->kind, .window = spec->window };
	struct kvt_range dead = { 0, 0 };

	if (spec->tokens_per_slot.num > 0)
		dead = kvt_dead_tokens(&keep, tokens);
	return tokens - (dead.end - dead.begin);
}

/* ---- tokens that ranks deal out ------------------------------------------- */

/*
 * Each of 'dcp' ranks in a row has its tokens of the same heads, so what is left of TP
 * is a side of that many ranks for each of them.
 */
static enum kvt_status deal_end(struct kvt_transfer_end *end,
				const struct kvt_model_group *g,
				const struct kvt_transfer_pool *p,
				const struct kvt_model_transfer *t, struct kvt_error *err)
{
	enum kvt_spec_class c = kvt_spec_class_of(g->spec, &g->args);
	int64_t heads = end->spec.total_heads;

	if (p->dcp < 2)
		return KVT_OK;
	if (p->ranks % p->dcp)
		return kvt_fail(err, KVT_BAD_INPUT,
				"dcp=%lld does not divide tp=%lld", LL(p->dcp),
				LL(p->ranks));
	/* states are not dealt out: all of the ranks share them as ever */
	if (!kvt_class_rule(c)->sharded)
		return KVT_OK;
	if (end->spec.tokens_per_slot.num != 1 || end->spec.tokens_per_slot.den != 1)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: with dcp=%lld a slot must be one token", g->name,
				LL(p->dcp));
	if (g->args.window || tokens_of(&end->spec, t->tokens) != t->tokens)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: a window, which dcp=%lld ranks cannot share", g->name,
				LL(p->dcp));
	if (t->how.replicas == KVT_MODULO)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"dcp=%lld is of ranks in a row, not by --replica-map=modulo",
				LL(p->dcp));
	if (heads > 1 && p->ranks % (heads * p->dcp))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: tp=%lld and dcp=%lld: the %lld ranks of each part cannot hold %lld heads once or more, all alike",
				g->name, LL(p->ranks), LL(p->dcp), LL(p->ranks / p->dcp),
				LL(heads));
	if (end->table.slots % p->interleave)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: interleave=%lld does not divide blocks of %lld tokens",
				g->name, LL(p->interleave), LL(end->table.slots));
	end->ranks = p->ranks / p->dcp;
	end->deal = (struct kvt_deal){ .size = p->dcp, .chunk = p->interleave };
	return KVT_OK;
}

static enum kvt_status make_end(struct kvt_transfer_end *end, uint32_t **ids,
				const struct kvt_model_group *model,
				const struct kvt_transfer_pool *p,
				const struct kvt_model_transfer *t, struct kvt_error *err)
{
	struct kvt_model_group g = *model;
	struct kvt_rank one = { 1, 0 };
	struct kvt_spec_size size;
	enum kvt_status status;
	int64_t tokens, each;

	if (t->cache_dtype &&
	    (status = kvt_model_cached_as(&g, model, t->cache_dtype, err)))
		return status;
	if (!g.args.block_size)
		g.args.block_size = p->block_size;
	*end = (struct kvt_transfer_end){ .ranks = p->ranks, .layers = g.layers,
				 .layout = p->layout };
	if ((status = kvt_spec_make(&end->spec, g.spec, &g.args, one, err)) ||
	    (status = kvt_spec_size(&size, &end->spec, err)))
		return status;
	/* a quantised form of a group is what the group is */
	if (!kvt_spec_kind(&end->spec.kind, model->spec))
		return kvt_fail(err, KVT_USAGE, "there is no spec '%s'", model->spec);
	if (end->spec.kind == KVT_MAMBA_CONV &&
	    (status = kvt_conv_layout(&end->layout, &p->layout, t->conv, err)))
		return status;
	tokens = tokens_of(&end->spec, t->tokens);
	end->table.slots = size.num_slots;
	if ((status = deal_end(end, &g, p, t, err)))
		return status;
	/* a block id is one of all ranks that deal its tokens out */
	each = size.num_slots * kvt_deal_size(&end->deal);
	end->table.nids = kvt_ceil_div(kvt_spec_slots(&end->spec, tokens), each);
	end->table.pool = p->blocks;
	status = kvt_block_ids(ids, &end->table.pool, &p->ids, end->table.nids, err);
	end->table.ids = *ids;
	return status;
}

/* Do the parts that a destination rank gets, each proved alone, write a slot twice? */
static enum kvt_status check_once(const struct kvt_transfer_plan *transfer, int first,
				  const struct kvt_transfer_end *to,
				  struct kvt_error *err)
{
	size_t nbytes = (size_t)(to->table.pool * to->table.slots) / 8 + 1;
	uint8_t *written = malloc(nbytes);
	int64_t twice = 0;

	if (!written)
		return kvt_no_memory(err, NULL);
	for (int64_t rank = 0; rank < kvt_deal_size(&to->deal); rank++) {
		memset(written, 0, nbytes);
		for (int g = first; g < transfer->ngroups; g++) {
			const struct kvt_xfer *x = &transfer->group[g].xfer;

			for (int64_t i = 0; x->dst.deal_rank == rank &&
					    i < x->nentries; i++)
				for (int64_t s = 0; s < x->entry[i].count; s++) {
					int64_t at = x->entry[i].dst_block *
						     to->table.slots +
						     x->entry[i].dst_slot + s;

					twice += written[at / 8] >> at % 8 & 1;
					written[at / 8] |= (uint8_t)(1u << at % 8);
				}
		}
	}
	free(written);
	return twice ? kvt_fail(err, KVT_MISMATCH, "%lld slots would be written twice",
				LL(twice)) : KVT_OK;
}

/* A part for each rank that deals here, and each there, which have tokens in common. */
static enum kvt_status add_parts(struct kvt_transfer_plan *transfer, const char *name,
				 struct kvt_transfer_end *from,
				 struct kvt_transfer_end *to, int64_t begin, int64_t end,
				 struct kvt_error *err)
{
	int64_t ns = kvt_deal_size(&from->deal), nd = kvt_deal_size(&to->deal), slots = 0;
	int first = transfer->ngroups;

	for (int64_t i = 0; i < ns * nd; i++) {
		struct kvt_transfer_group *group = kvt_transfer_group_new(transfer, err);
		int number = transfer->ngroups - first;
		enum kvt_status status;
		char part[48];

		from->deal.rank = i / nd;
		to->deal.rank = i % nd;
		snprintf(part, sizeof(part), number ? "%s.%d" : "%s", name, number + 1);
		if (!group)
			return KVT_SYSTEM;
		if ((status = kvt_transfer_group_init_dealt(group, part, from, to, begin,
							    end, err)))
			return status;
		if (!group->xfer.slots && (number || i + 1 < ns * nd)) {
			kvt_transfer_group_free(group);
			continue;
		}
		slots += group->xfer.slots;
		transfer->ngroups++;
	}
	if (slots != end - begin)
		return kvt_fail(err, KVT_MISMATCH, "%s: %lld of %lld slots would move",
				name, LL(slots), LL(end - begin));
	return ns * nd > 1 ? check_once(transfer, first, to, err) : KVT_OK;
}

/* Up to the end of the last block, all ranks that deal its tokens taken together. */
static int64_t whole_end(const struct kvt_transfer_end *from,
			 const struct kvt_transfer_end *to, int64_t end)
{
	struct kvt_block_table src = from->table, dst = to->table;

	src.slots *= kvt_deal_size(&from->deal);
	dst.slots *= kvt_deal_size(&to->deal);
	return kvt_block_map_whole(&src, &dst, end);
}

static enum kvt_status add_group(struct kvt_transfer_plan *transfer,
				 const struct kvt_model_group *g,
				 const struct kvt_model_transfer *t,
				 struct kvt_error *err)
{
	uint32_t *ids[2] = { NULL, NULL };
	int64_t begin = 0, end;
	struct kvt_transfer_end from, to;
	enum kvt_status status;

	if (!(status = make_end(&from, &ids[0], g, &t->src, t, err)) &&
	    !(status = make_end(&to, &ids[1], g, &t->dst, t, err))) {
		end = kvt_spec_slots(&from.spec, tokens_of(&from.spec, t->tokens));
		if (from.spec.tokens_per_slot.num > 0 && !g->args.window)
			begin = t->how.cached / from.spec.tokens_per_slot.num;
		if (t->how.whole)
			end = whole_end(&from, &to, end);
		from.replicas = to.replicas = t->how.replicas;
		status = add_parts(transfer, g->name, &from, &to, begin, end, err);
	}
	free(ids[0]);
	free(ids[1]);
	return status;
}

enum kvt_status kvt_transfer_of_model(struct kvt_transfer_plan *out,
				      const struct kvt_model_transfer *t,
				      struct kvt_error *err)
{
	struct kvt_transfer_plan transfer = {
		.model = t->name, .requests = 1, .tokens = t->tokens,
		.whole = t->how.whole,
	};
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < t->ngroups; i++)
		status = add_group(&transfer, &t->group[i], t, err);
	if (!status)
		status = kvt_transfer_prove(&transfer, err);
	if (status)
		kvt_transfer_free(&transfer);
	else
		*out = transfer;
	return status;
}
