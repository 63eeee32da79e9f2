/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - a transfer of one request of a model, between two pools
 *
 * In: the groups of a model, and for each side a layout, ranks, a block size and
 * which blocks of its pool the request has.  Out: a proven transfer.  Tokens that a
 * group no longer keeps (a window, chunks) are left out on both sides; those that
 * are cached at the destination are left out of groups that keep all.
 */
#include "lib/ops/transfer/transfer.h"

#include <stdlib.h>
#include <string.h>

/* ---- groups ------------------------------------------------------------- */

enum kvt_status kvt_conv_layout(struct kvt_layout *out,
				const struct kvt_layout *layout, const char *conv,
				struct kvt_error *err)
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

static enum kvt_status make_end(struct kvt_transfer_end *end, uint32_t **ids,
				const struct kvt_model_group *model,
				const struct kvt_transfer_pool *p,
				const struct kvt_model_transfer *t, struct kvt_error *err)
{
	struct kvt_model_group g = *model;
	struct kvt_rank one = { 1, 0 };
	struct kvt_spec_size size;
	enum kvt_status status;
	int64_t tokens;

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
	end->table.nids = (kvt_spec_slots(&end->spec, tokens) + size.num_slots - 1) /
			  size.num_slots;
	end->table.pool = p->blocks;
	status = kvt_block_ids(ids, &end->table.pool, &p->ids, end->table.nids, err);
	end->table.ids = *ids;
	return status;
}

static enum kvt_status add_group(struct kvt_transfer_plan *transfer,
				 const struct kvt_model_group *g,
				 const struct kvt_model_transfer *t,
				 struct kvt_error *err)
{
	uint32_t *ids[2] = { NULL, NULL };
	int64_t begin = 0, end;
	struct kvt_transfer_group *group = kvt_transfer_group_new(transfer, err);
	struct kvt_transfer_end from, to;
	enum kvt_status status;

	if (!group)
		return KVT_SYSTEM;
	if (!(status = make_end(&from, &ids[0], g, &t->src, t, err)) &&
	    !(status = make_end(&to, &ids[1], g, &t->dst, t, err))) {
		end = kvt_spec_slots(&from.spec, tokens_of(&from.spec, t->tokens));
		if (from.spec.tokens_per_slot.num > 0 && !g->args.window)
			begin = t->how.cached / from.spec.tokens_per_slot.num;
		if (t->how.whole)
			end = kvt_block_map_whole(&from.table, &to.table, end);
		from.replicas = to.replicas = t->how.replicas;
		status = kvt_transfer_group_init_one(group, g->name, &from, &to, begin,
						     end, err);
		transfer->ngroups += !status;
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
