/* SPDX-License-Identifier: Apache-2.0 */
/* dumps.c - a transfer between two dumps, by what these say of themselves */
#include "lib/ops/transfer/waves.h"

#include <stdlib.h>
#include <string.h>

struct file_side {
	const char *path;
	const struct kvt_snapshot *snapshot;
};

/* ---- specs -------------------------------------------------------------- */

/* x is dealt out by channel; of B and C one must know how many groups there are. */
static enum kvt_status take_parts(struct kvt_spec *spec, const struct kvt_group *g,
				  int64_t ranks, int64_t groups, struct kvt_error *err)
{
	if (g->ncomponents < 1 || g->ncomponents > KVT_MAX_SPEC_PARTS)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the dump does not say which channels are x, B and C",
				g->id);
	for (int i = 0; i < g->ncomponents; i++) {
		const struct kvt_component *c = &g->component[i];
		int64_t own = 1;

		if (!strcmp(c->name, "x")) {
			spec->part[spec->nparts++] = (struct kvt_spec_part){
				c->name, c->length * ranks, 1, true };
			continue;
		}
		if (!groups)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: the dump does not say how many groups %s has: say --mamba-groups",
					g->id, c->name);
		if (groups % ranks == 0)
			own = groups / ranks;
		if (c->length % own)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: %lld channels of %s are not %lld groups",
					g->id, (long long)c->length, c->name,
					(long long)own);
		spec->part[spec->nparts++] = (struct kvt_spec_part){
			c->name, groups, c->length / own, false };
	}
	return KVT_OK;
}

static enum kvt_status take_spec(struct kvt_spec *spec, const struct kvt_group *g,
				 int64_t ranks, int64_t groups, struct kvt_error *err)
{
	const int64_t *n = g->shape.n;
	int64_t elem = g->shape.elem;

	*spec = (struct kvt_spec){
		.kind = g->kind, .block_size = g->block_size,
		.total_heads = g->total_heads, .window = g->window,
		.tokens_per_state = { g->tokens_per_state, 1 }, .elem = elem,
		.ncontent = 1, .content = { n[KVT_AXIS_D] },
		.state_content_size = n[KVT_AXIS_K] * n[KVT_AXIS_D] * elem,
	};
	if (g->kind == KVT_MAMBA_CONV) {
		spec->ncontent = 2;
		spec->content[1] = n[KVT_AXIS_S];
		spec->state_content_size *= n[KVT_AXIS_S];
		spec->tokens_per_state.num = -1;
		return take_parts(spec, g, ranks, groups, err);
	}
	if (n[KVT_AXIS_K] == 2) {
		spec->ncontent = 2;
		spec->content[0] = 2;
		spec->content[1] = n[KVT_AXIS_D];
	}
	return KVT_OK;
}

/* ---- memory ------------------------------------------------------------- */

/* In the engine's pages a block takes page_bytes, whatever its content needs. */
static void take_pages(struct sim_end *end, const struct kvt_group *g)
{
	enum kvt_axis fast = KVT_AXIS_B, slow = KVT_AXIS_L;
	const struct kvt_order *order = &g->layout.plane[0];

	if (!g->page_bytes)
		return;
	for (int i = 0; i < order->nparts; i++) {
		if (order->part[i].axis == KVT_AXIS_L)
			break;
		if (order->part[i].axis == KVT_AXIS_B) {
			fast = KVT_AXIS_L;
			slow = KVT_AXIS_B;
			break;
		}
	}
	end->strides[fast] = g->page_bytes;
	if (__builtin_mul_overflow(g->page_bytes, g->shape.n[fast], &end->strides[slow]))
		end->strides[slow] = INT64_MAX;		/* refused as a view */
	end->offset = g->page_offset;
}

static enum kvt_status take_end(struct sim_end *end, const struct file_side *side,
				const struct kvt_group *g, int64_t groups,
				struct kvt_error *err)
{
	int64_t ranks = side->snapshot->parallel.tp_size;
	bool state = g->tokens_per_state < 0 || g->kind == KVT_MAMBA_CONV;
	enum kvt_status status;

	*end = (struct sim_end){
		.ranks = ranks, .layers = g->shape.n[KVT_AXIS_L], .layout = g->layout,
		.table = { .states = state ? 1 : g->shape.n[KVT_AXIS_S],
			   .pool = g->shape.n[KVT_AXIS_B] },
	};
	if (ranks == 1 && !groups)
		groups = 1;
	if ((status = take_spec(&end->spec, g, ranks, groups, err)))
		return status;
	take_pages(end, g);
	return KVT_OK;
}

/* ---- requests ----------------------------------------------------------- */

static const struct kvt_request *request_of(const struct kvt_snapshot *s, const char *id)
{
	for (int64_t i = 0; i < s->nrequests; i++)
		if (!strcmp(s->request[i].id, id))
			return &s->request[i];
	return NULL;
}

/* Of recurrent states only the last block counts. */
static struct kvt_block_table table_of(const struct kvt_request *r, int g,
				       const struct kvt_block_table *like)
{
	struct kvt_block_table t = *like;

	t.ids = r->blocks[g];
	t.nids = r->nblocks[g];
	return t;
}

struct pairing {
	const struct file_side *src, *dst;
	int src_group, dst_group;
	const struct sim_end *from, *to;
	const struct sim_args *args;
};

static int64_t first_state(const struct file_side *side, int g,
			   const struct kvt_request *r)
{
	const struct kvt_table t = kvt_table_of(side->snapshot, g, r);

	return t.first * t.each;
}

/* A token that one side lacks would be said to be there, or to be missing. */
static enum kvt_status same_holes(const struct pairing *p, const struct kvt_request *a,
				  const struct kvt_request *b, struct kvt_error *err)
{
	int64_t at = a->first_token, end = at + a->ntokens;

	while ((a->nholes || b->nholes) && at < end) {
		struct kvt_range x = kvt_request_live(a, p->src_group, at, end);
		struct kvt_range y = kvt_request_live(b, p->dst_group, at, end);
		bool in_src = x.begin > y.begin || (x.begin == y.begin && x.end < y.end);

		if (x.begin != y.begin || x.end != y.end)
			return kvt_fail(err, KVT_BAD_INPUT,
					"request '%.60s' has no state of token %lld in %s, and one in %s",
					a->id,
					(long long)(x.begin != y.begin ?
						    (x.begin < y.begin ? x : y).begin :
						    (x.end < y.end ? x : y).end),
					(in_src ? p->src : p->dst)->path,
					(in_src ? p->dst : p->src)->path);
		at = x.end;
	}
	return KVT_OK;
}

/* The whole of a request; of tokens waves_of() takes what of it is live. */
static enum kvt_status take_move(struct sim_move *m, const struct pairing *p,
				 const struct kvt_request *r, struct kvt_error *err)
{
	const struct kvt_request *other = request_of(p->dst->snapshot, r->id);
	int64_t per = p->from->spec.tokens_per_state.num, last;
	enum kvt_status status;

	*m = (struct sim_move){ table_of(r, p->src_group, &p->from->table),
				table_of(other, p->dst_group, &p->to->table), 0,
				kvt_spec_states(&p->from->spec,
						r->first_token + r->ntokens) };
	if (r->first_token != other->first_token)
		return kvt_fail(err, KVT_BAD_INPUT,
				"request '%.60s' begins with token %lld in %s and %lld in %s",
				r->id, (long long)r->first_token, p->src->path,
				(long long)other->first_token, p->dst->path);
	if ((status = same_holes(p, r, other, err)))
		return status;
	if (per > 0) {
		m->src.first = first_state(p->src, p->src_group, r);
		m->dst.first = first_state(p->dst, p->dst_group, other);
		last = p->args->cached < r->ntokens ? p->args->cached : r->ntokens;
		m->begin = (r->first_token + last) / per;
		return KVT_OK;
	}
	if (p->args->all_states && m->src.nids == m->dst.nids) {
		m->end = m->src.nids;
		return KVT_OK;
	}
	if ((status = kvt_block_table_last(&m->src, &m->src, 1, err)) ||
	    (status = kvt_block_table_last(&m->dst, &m->dst, 1, err)))
		return status;
	m->src.first = m->dst.first = 0;
	return KVT_OK;
}

/* ---- one group ---------------------------------------------------------- */

static bool is_moved(const struct sim_args *a, const struct kvt_snapshot *dst,
		     const struct kvt_request *r)
{
	return (!a->request || !strcmp(a->request, r->id)) && request_of(dst, r->id);
}

/* The map is not walked here: it says whether the tables suffice. */
static enum kvt_status add_move(struct waves *ws, const struct sim_move *m,
				struct kvt_error *err)
{
	struct kvt_block_map map;
	enum kvt_status status = kvt_block_map_init(&map, &m->src, &m->dst, m->begin,
						    m->end, err);

	return status ? status : waves_add(ws, m, err);
}

/* The entries that states begin to end are in: others may be the null block. */
static void trim(struct kvt_block_table *t, int64_t begin, int64_t end)
{
	int64_t skip = (begin - t->first) / t->states;
	int64_t last = (end - 1 - t->first) / t->states;

	if (begin < t->first || last >= t->nids)
		return;		/* does not suffice: refused with its reason */
	t->ids += skip;
	t->nids = last + 1 - skip;
	t->first += skip * t->states;
}

/* A token that is needed, but is in the null block, cannot be moved. */
static enum kvt_status check_nulls(const struct kvt_table *t, const struct pairing *p,
				   const struct kvt_request *r, struct kvt_error *err)
{
	for (int64_t i = 0; i < t->nblocks; i++)
		if (t->blocks[i] == t->null_block && !kvt_entry_is_spare(t, i) &&
		    !kvt_entry_may_be_null(t, i, r))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: %s: entry %lld of request '%.60s' is the null block, but its tokens are needed",
					p->src->path, t->group->id, (long long)i, r->id);
	return KVT_OK;
}

/* What of a request is live; with a gap, as R-SWA leaves one, it is two ranges. */
static enum kvt_status add_live(struct waves *ws, const struct sim_move *all,
				const struct pairing *p, const struct kvt_request *r,
				bool whole, struct kvt_error *err)
{
	const struct kvt_table t = kvt_table_of(p->src->snapshot, p->src_group, r);
	enum kvt_status status = check_nulls(&t, p, r, err);
	struct kvt_range live;

	if (t.states.end < all->end)
		return add_move(ws, all, err);		/* refused with its reason */
	for (int64_t at = all->begin; !status; at = live.end) {
		struct sim_move m = *all;

		live = kvt_table_next(&t, at);
		if (live.begin == live.end)
			break;
		m.begin = live.begin;
		m.end = live.end;
		if (whole && m.end == all->end)
			m.end = kvt_block_map_whole(&m.src, &m.dst, m.end);
		trim(&m.src, m.begin, m.end);
		trim(&m.dst, m.begin, m.end);
		status = add_move(ws, &m, err);
	}
	return status;
}

static enum kvt_status take_requests(struct waves *ws, struct sim *sim,
				     const struct pairing *p, struct kvt_error *err)
{
	const struct kvt_snapshot *s = p->src->snapshot;
	enum kvt_status status;

	for (int64_t i = 0; i < s->nrequests; i++) {
		const struct kvt_request *r = &s->request[i];
		struct sim_move m;

		if (!is_moved(p->args, p->dst->snapshot, r))
			continue;
		if ((status = take_move(&m, p, r, err)) ||
		    (status = p->from->spec.tokens_per_state.num > 0 ?
			      add_live(ws, &m, p, r, sim->whole, err) :
			      add_move(ws, &m, err)))
			return status;
	}
	return KVT_OK;
}

static enum kvt_status join_groups(struct sim *sim, const struct pairing *p,
				   struct kvt_error *err)
{
	const struct kvt_group *from = &p->src->snapshot->group[p->src_group];
	const struct kvt_group *to = &p->dst->snapshot->group[p->dst_group];
	struct kvt_error why = { "" };
	const char *id = from->id;
	struct waves ws = { .n = 0 };
	enum kvt_status status = take_requests(&ws, sim, p, err);

	for (int i = 0; !status && i < ws.n; i++) {
		struct sim_group *group = sim_group_new(sim, err);
		char name[sizeof(group->name) + 16];

		if (!group) {
			status = KVT_SYSTEM;
			break;
		}
		if (i)
			snprintf(name, sizeof(name), "%s.%d", id, i + 1);
		else
			snprintf(name, sizeof(name), "%s", id);
		status = sim_group_init(group, name, p->from, p->to, ws.wave[i].move,
					ws.wave[i].nmoves, &why);
		if (status) {
			/* plans know positions only */
			kvt_fail(err, status, "%.460s%s", why.text,
				 from->block_ids || to->block_ids ?
				 "; blocks are positions in the dump here" : "");
			break;
		}
		group->src_group = p->src_group;
		group->dst_group = p->dst_group;
		group->src_ids = from->block_ids;
		group->dst_ids = to->block_ids;
		sim->ngroups++;
	}
	waves_free(&ws);
	return status;
}

/* ---- both dumps --------------------------------------------------------- */

static int group_like(const struct kvt_snapshot *s, const struct kvt_group *g)
{
	for (int i = 0; i < s->ngroups; i++)
		if (!strcmp(s->group[i].id, g->id))
			return i;
	return -1;
}

static enum kvt_status count_requests(struct sim *sim, const struct file_side *src,
				      const struct file_side *dst,
				      const struct sim_args *a, struct kvt_error *err)
{
	sim->requests = sim->tokens = 0;
	for (int64_t i = 0; i < src->snapshot->nrequests; i++) {
		const struct kvt_request *r = &src->snapshot->request[i];

		if (!is_moved(a, dst->snapshot, r))
			continue;
		sim->requests++;
		sim->tokens += r->ntokens;
	}
	if (sim->requests)
		return KVT_OK;
	if (a->request)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s and %s do not both have request '%.60s'",
				src->path, dst->path, a->request);
	return kvt_fail(err, KVT_BAD_INPUT, "%s and %s have no request in common",
			src->path, dst->path);
}

static enum kvt_status load(struct sim *sim, const struct file_side *src,
			    const struct file_side *dst, const struct sim_args *a,
			    struct kvt_error *err)
{
	enum kvt_status status = count_requests(sim, src, dst, a, err);

	if (status)
		return status;
	if (src->snapshot->ngroups != dst->snapshot->ngroups)
		return kvt_fail(err, KVT_BAD_INPUT, "%s has %d groups, %s has %d",
				src->path, src->snapshot->ngroups, dst->path,
				dst->snapshot->ngroups);
	sim->model = src->snapshot->model;
	for (int i = 0; !status && i < src->snapshot->ngroups; i++) {
		const struct kvt_group *g = &src->snapshot->group[i];
		const struct kvt_group *other;
		struct sim_end from, to;
		struct pairing p = { src, dst, i, group_like(dst->snapshot, g), &from,
				     &to, a };

		if (p.dst_group < 0)
			return kvt_fail(err, KVT_BAD_INPUT, "%s has no group '%s'",
					dst->path, g->id);
		other = &dst->snapshot->group[p.dst_group];
		if (other->kind != g->kind)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: the source holds %s, the destination %s",
					g->id, kvt_kind_name(g->kind),
					kvt_kind_name(other->kind));
		if (!(status = take_end(&from, src, g, a->mamba_groups, err)) &&
		    !(status = take_end(&to, dst, other, a->mamba_groups, err))) {
			from.replicas = to.replicas = sim_replicas(a);
			status = join_groups(sim, &p, err);
		}
	}
	return status;
}

enum kvt_status sim_join_dumps(struct sim *sim, const struct sim_dumps *dumps,
			       const struct sim_args *a, struct kvt_error *err)
{
	struct file_side src = { dumps->src_name, dumps->src };
	struct file_side dst = { dumps->dst_name, dumps->dst };

	return load(sim, &src, &dst, a, err);
}

enum kvt_status sim_load_files(struct sim *sim, const struct sim_args *a,
			       struct kvt_error *err)
{
	struct sim_dumps dumps = { .src_name = a->src.file, .dst_name = a->dst.file };
	enum kvt_status status;

	if ((status = kvt_open(&sim->readers[0], dumps.src_name, NULL, err)) ||
	    (status = kvt_open(&sim->readers[1], dumps.dst_name, NULL, err)))
		return status;
	dumps.src = kvt_dump_snapshot(sim->readers[0]);
	dumps.dst = kvt_dump_snapshot(sim->readers[1]);
	return sim_join_dumps(sim, &dumps, a, err);
}
