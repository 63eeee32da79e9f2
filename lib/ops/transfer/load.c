/* SPDX-License-Identifier: Apache-2.0 */
/* load.c - a transfer out of options: models, sides, block ids */
#include "lib/ops/transfer/transfer.h"

#include <stdlib.h>
#include <string.h>

/* ---- one side ----------------------------------------------------------- */

enum { KEY_LAYOUT, KEY_IDS, KEY_TP, KEY_BLOCK_SIZE, KEY_POOL, NKEYS };

static enum kvt_status take_number(int64_t *out, const struct sim_place *p,
				   const char *key, const char *value,
				   struct kvt_error *err)
{
	if (value[strspn(value, "0123456789")] || !size_parse(out, value) || *out < 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"--%s: %s is '%.40s', expected a whole number above 0",
				p->name, key, value);
	return KVT_OK;
}

static enum kvt_status take_ids(struct sim_place *p, const char *value,
				struct kvt_error *err)
{
	if (snprintf(p->ids, sizeof(p->ids), "%s", value) < (int)sizeof(p->ids))
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE,
			"--%s: ids are longer than %zu characters: write them to a file",
			p->name, sizeof(p->ids) - 1);
}

/* 'seen' are the keys so far, bit by bit. */
static enum kvt_status take_key(struct sim_place *p, unsigned *seen, const char *key,
				const char *value, struct kvt_error *err)
{
	static const char *const names[NKEYS] = {
		"layout", "ids", "tp", "block-size", "pool",
	};
	int64_t *numbers[] = { &p->tp, &p->block_size, &p->pool };
	int k = 0;

	while (k < NKEYS && strcmp(names[k], key))
		k++;
	if (k == NKEYS)
		return kvt_fail(err, KVT_USAGE,
				"--%s: there is no key '%.40s', expected layout, tp, block-size, pool or ids",
				p->name, key);
	if (*seen & 1u << k)
		return kvt_fail(err, KVT_USAGE, "--%s: %s is given twice", p->name, key);
	*seen |= 1u << k;
	if (k == KEY_LAYOUT)
		return kvt_layout_parse(&p->layout, value, err);
	if (k == KEY_IDS)
		return take_ids(p, value, err);
	return take_number(numbers[k - KEY_TP], p, key, value, err);
}

/* "KEY=VALUE,..."; an axis tuple after rfc: or vllm: has commas of its own. */
enum kvt_status sim_take_place(struct sim_place *p, const char *text,
			       struct kvt_error *err)
{
	char word[2048], *at = word;
	enum kvt_status status = KVT_OK;
	unsigned seen = 0;

	if (snprintf(word, sizeof(word), "%s", text) >= (int)sizeof(word))
		return kvt_fail(err, KVT_USAGE, "--%s is longer than %zu characters",
				p->name, sizeof(word) - 1);
	while (!status && at) {
		char *value = strchr(at, '='), *next;

		if (!value)
			return kvt_fail(err, KVT_USAGE,
					"--%s: '%.60s', expected KEY=VALUE", p->name, at);
		*value++ = '\0';
		next = strchr(value, ',');
		while (next && next[1] >= '0' && next[1] <= '9')
			next = strchr(next + 1, ',');
		if (next)
			*next++ = '\0';
		status = take_key(p, &seen, at, value, err);
		at = next;
	}
	return status;
}

static enum kvt_status take_places(struct sim_place *src, struct sim_place *dst,
				   const struct sim_args *a, struct kvt_error *err)
{
	enum kvt_status status;

	*src = (struct sim_place){ .name = "src", .tp = 1, .block_size = 16,
			       .ids = "contig" };
	if ((status = kvt_layout_parse(&src->layout, "hnd", err)) ||
	    (a->src.text && (status = sim_take_place(src, a->src.text, err))))
		return status;
	*dst = *src;
	dst->name = "dst";
	if (dst->block_size != src->block_size)
		dst->pool = 0;
	return a->dst.text ? sim_take_place(dst, a->dst.text, err) : KVT_OK;
}

/* ---- groups ------------------------------------------------------------- */

enum kvt_status sim_conv_layout(struct kvt_layout *out,
				const struct kvt_layout *layout, const char *conv,
				struct kvt_error *err)
{
	char text[8];
	int n = 0;

	if (!conv)
		return kvt_fail(err, KVT_BAD_INPUT,
				"conv states are stored by tap (vLLM's default) or by "
				"channel: say --conv=sd or --conv=ds");
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

	if (spec->tokens_per_state.num > 0)
		dead = kvt_dead_tokens(&keep, tokens);
	return tokens - (dead.end - dead.begin);
}

static enum kvt_status make_end(struct sim_end *end, uint32_t **ids,
				const struct kvt_model_group *model,
				const struct sim_place *p,
				const struct sim_args *a, int64_t tokens,
				struct kvt_error *err)
{
	struct kvt_model_group g = *model;
	struct kvt_rank one = { 1, 0 };
	struct kvt_spec_size size;
	enum kvt_status status;

	if (a->dtype && (status = kvt_model_cached_as(&g, model, a->dtype, err)))
		return status;
	if (!g.args.block_size)
		g.args.block_size = p->block_size;
	*end = (struct sim_end){ .ranks = p->tp, .layers = g.layers,
				 .layout = p->layout };
	if ((status = kvt_spec_make(&end->spec, g.spec, &g.args, one, err)) ||
	    (status = kvt_spec_size(&size, &end->spec, err)))
		return status;
	/* a quantised form of a group is what the group is */
	if (!kvt_spec_kind(&end->spec.kind, model->spec))
		return kvt_fail(err, KVT_USAGE, "there is no spec '%s'", model->spec);
	if (end->spec.kind == KVT_MAMBA_CONV &&
	    (status = sim_conv_layout(&end->layout, &p->layout, a->conv, err)))
		return status;
	tokens = tokens_of(&end->spec, tokens);
	end->table.states = size.num_states;
	end->table.nids = (kvt_spec_states(&end->spec, tokens) + size.num_states - 1) /
			  size.num_states;
	end->table.pool = p->pool;
	status = sim_ids(ids, &end->table.pool, p->ids, end->table.nids, err);
	end->table.ids = *ids;
	return status;
}

static bool said(const char *text, const char *word)
{
	return text && !strcmp(text, word);
}

static enum kvt_status add_group(struct sim *sim, const struct kvt_model_group *g,
				 const struct sim_place *src, const struct sim_place *dst,
				 const struct sim_args *a, struct kvt_error *err)
{
	uint32_t *ids[2] = { NULL, NULL };
	int64_t tokens = sim->tokens, begin = 0, end;
	struct sim_group *group = sim_group_new(sim, err);
	struct sim_end from, to;
	enum kvt_status status;

	if (!group)
		return KVT_SYSTEM;
	if (!(status = make_end(&from, &ids[0], g, src, a, tokens, err)) &&
	    !(status = make_end(&to, &ids[1], g, dst, a, tokens, err))) {
		end = kvt_spec_states(&from.spec, tokens_of(&from.spec, tokens));
		if (from.spec.tokens_per_state.num > 0 && !g->args.window)
			begin = a->cached / from.spec.tokens_per_state.num;
		if (sim->whole)
			end = kvt_block_map_whole(&from.table, &to.table, end);
		from.replicas = to.replicas = sim_replicas(a);
		status = sim_group_init_one(group, g->name, &from, &to, begin, end,
					    err);
		sim->ngroups += !status;
	}
	free(ids[0]);
	free(ids[1]);
	return status;
}

static enum kvt_status add_model(struct sim *sim, const struct sim_place *src,
				 const struct sim_place *dst, const struct sim_args *a,
				 struct kvt_error *err)
{
	const struct kvt_config_hints none = { .nset = 0 };
	struct kvt_model_config config;
	enum kvt_status status = model_read(&config, a->model, a->models, &none, err);

	sim->model = a->model;
	for (int i = 0; !status && i < config.model.ngroups; i++)
		status = add_group(sim, &config.model.group[i], src, dst, a, err);
	return status;
}

static enum kvt_status add_specs(struct sim *sim, const struct sim_place *src,
				 const struct sim_place *dst, const struct sim_args *a,
				 struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < a->spec.n; i++) {
		struct kvt_error why = { "" };
		struct kvt_model_group g;

		if ((status = kvt_model_group_parse(&g, a->spec.s[i], &why)))
			return kvt_fail(err, status, "--spec: %.400s", why.text);
		snprintf(g.name, sizeof(g.name), "g%d", i);
		status = add_group(sim, &g, src, dst, a, err);
	}
	return status;
}

static enum kvt_status check_words(const struct sim_args *a, struct kvt_error *err)
{
	if (a->partial && !said(a->partial, "valid") && !said(a->partial, "whole"))
		return kvt_fail(err, KVT_USAGE,
				"--partial is '%.40s', expected valid or whole",
				a->partial);
	if (a->replicas && !said(a->replicas, "grouped") && !said(a->replicas, "modulo"))
		return kvt_fail(err, KVT_USAGE,
				"--replica-map is '%.40s', expected grouped or modulo",
				a->replicas);
	if (a->tokens > UINT32_MAX)
		return kvt_fail(err, KVT_BAD_INPUT,
				"--tokens is %lld, expected at most %lld",
				(long long)a->tokens, (long long)UINT32_MAX);
	if (!a->src.file && a->cached > a->tokens)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld of %lld tokens are at the destination already",
				(long long)a->cached, (long long)a->tokens);
	return KVT_OK;
}

static enum kvt_status load_spec(struct sim *sim, const struct sim_args *a,
				 struct kvt_error *err)
{
	struct sim_place src, dst;
	enum kvt_status status;

	if (!a->model == !a->spec.n)
		return kvt_fail(err, KVT_USAGE,
				"expected two dumps, --model or --spec");
	if ((status = take_places(&src, &dst, a, err)))
		return status;
	if (a->layout) {
		if ((status = kvt_layout_parse(&src.layout, a->layout, err)))
			return status;
		dst.layout = src.layout;
	}
	if (a->model)
		return add_model(sim, &src, &dst, a, err);
	return add_specs(sim, &src, &dst, a, err);
}

/* ---- proof -------------------------------------------------------------- */

static enum kvt_status prove(const struct sim_group *g, struct kvt_error *err)
{
	int64_t n = kvt_xfer_nmoves(&g->xfer);
	struct kvt_move *moves = malloc((size_t)(n + 1) * sizeof(*moves));
	struct kvt_error why = { "" };
	struct kvt_proof proof;
	enum kvt_status status;

	if (!moves)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	status = kvt_xfer_prove(&proof, &g->xfer, moves, &why);
	free(moves);
	return status ? kvt_fail(err, status, "%s: %.400s", g->name, why.text) : KVT_OK;
}

static enum kvt_status finish(struct sim *out, struct sim *sim, enum kvt_status status,
			      struct kvt_error *err)
{
	for (int i = 0; !status && i < sim->ngroups; i++)
		status = prove(&sim->group[i], err);
	if (status)
		sim_free(sim);
	else
		*out = *sim;
	return status;
}

enum kvt_status sim_load(struct sim *out, const struct sim_args *a, struct kvt_error *err)
{
	struct sim sim = { .requests = 1, .tokens = a->tokens,
			   .whole = said(a->partial, "whole") };
	enum kvt_status status = check_words(a, err);

	if (!status)
		status = a->src.file ? sim_load_files(&sim, a, err) :
				       load_spec(&sim, a, err);
	return finish(out, &sim, status, err);
}

enum kvt_status sim_load_dumps(struct sim *out, const struct sim_dumps *dumps,
			       const struct sim_args *a, struct kvt_error *err)
{
	struct sim sim = { .whole = said(a->partial, "whole") };
	enum kvt_status status = check_words(a, err);

	if (!status)
		status = sim_join_dumps(&sim, dumps, a, err);
	return finish(out, &sim, status, err);
}
