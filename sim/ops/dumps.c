/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dumps.c - a transfer between two dumps, by what these say of themselves
 *
 * In: the snapshots of any rank of both sides.  Out: a proven transfer of the
 * requests that both have.
 *
 * A plan writes each slot once and reads each slot once.  Requests may share
 * blocks, so they are dealt out to waves, each a group of its own ("full",
 * "full.2", ...): a slot that the destination shares is written by the first
 * request that has it, and a request whose source slots go to a second place is
 * left to the next wave.  Two bits a slot of either pool decide that.
 */
#include "sim/ops/transfer.h"
#include "lib/layout/words.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

/* ---- waves --------------------------------------------------------------- */

/*
 * Requests that move together.  A slot that the destination shares is written
 * once, by the first.  A source slot that goes to two places cannot be in one
 * transfer: the second request is left to another wave.
 */
struct wave {
	struct kvt_transfer_move *move;
	int64_t nmoves;
	uint8_t *read;			/* bit: this source slot is moved */
};

struct waves {
	struct wave *wave;
	int n;
	uint8_t *written;		/* bit: this destination slot is, by any */
};

static bool bit(const uint8_t *bits, int64_t i)
{
	return bits[i / 8] >> i % 8 & 1;
}

static void set_bit(uint8_t *bits, int64_t i)
{
	bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << i % 8);
}

static int64_t slot_at(const struct kvt_block_table *t, int64_t i)
{
	i -= t->first;
	return t->ids[i / t->slots] * t->slots + i % t->slots;
}

static size_t slots_of(const struct kvt_block_table *t)
{
	return (size_t)(t->pool * t->slots) / 8 + 1;
}

static bool fits(const struct wave *w, const uint8_t *written,
		 const struct kvt_transfer_move *m)
{
	for (int64_t i = m->begin; i < m->end; i++)
		if (!bit(written, slot_at(&m->dst, i)) &&
		    bit(w->read, slot_at(&m->src, i)))
			return false;
	return true;
}

static enum kvt_status add_range(struct wave *w, const struct kvt_transfer_move *m,
				 int64_t begin, int64_t end, struct kvt_error *err)
{
	if (!KVT_GROW(&w->move, w->nmoves))
		return kvt_no_memory(err, NULL);
	w->move[w->nmoves] = *m;
	w->move[w->nmoves].begin = begin;
	w->move[w->nmoves++].end = end;
	return KVT_OK;
}

/* What of the request is not there yet, range by range. */
static enum kvt_status add_to_wave(struct wave *w, uint8_t *written,
				   const struct kvt_transfer_move *m,
				   struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = m->begin, begin; !status && i < m->end; i++) {
		if (bit(written, slot_at(&m->dst, i)))
			continue;
		for (begin = i; i < m->end && !bit(written, slot_at(&m->dst, i)); i++) {
			set_bit(written, slot_at(&m->dst, i));
			set_bit(w->read, slot_at(&m->src, i));
		}
		status = add_range(w, m, begin, i, err);
	}
	return status;
}

/* The tables hold all of the range, and their pools are the same in all calls. */
static enum kvt_status waves_add(struct waves *ws, const struct kvt_transfer_move *m,
				 struct kvt_error *err)
{
	struct wave *more;
	int i = 0;

	if (!ws->written && !(ws->written = calloc(slots_of(&m->dst), 1)))
		return kvt_no_memory(err, NULL);
	while (i < ws->n && !fits(&ws->wave[i], ws->written, m))
		i++;
	if (i < ws->n)
		return add_to_wave(&ws->wave[i], ws->written, m, err);
	if (!KVT_GROW(&ws->wave, i))
		return kvt_no_memory(err, NULL);
	more = ws->wave;
	more[i] = (struct wave){ .read = calloc(slots_of(&m->src), 1) };
	ws->n++;
	if (!more[i].read)
		return kvt_no_memory(err, NULL);
	return add_to_wave(&more[i], ws->written, m, err);
}

static void waves_free(struct waves *ws)
{
	for (int i = 0; i < ws->n; i++) {
		free(ws->wave[i].move);
		free(ws->wave[i].read);
	}
	free(ws->wave);
	free(ws->written);
}

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
				"%s: it is not known which channels are x, B and C",
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
					"%s: the number of groups of %s is not known: give --mamba-groups",
					g->id, c->name);
		if (groups % ranks == 0)
			own = groups / ranks;
		if (c->length % own)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: %lld channels of %s are not %lld groups",
					g->id, LL(c->length), c->name, LL(own));
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
		.tokens_per_slot = { g->tokens_per_slot, 1 }, .elem = elem,
		.ncontent = 1, .content = { n[KVT_AXIS_D] },
		.content_size = n[KVT_AXIS_K] * n[KVT_AXIS_D] * elem,
	};
	if (g->kind == KVT_MAMBA_CONV) {
		spec->ncontent = 2;
		spec->content[1] = n[KVT_AXIS_S];
		spec->content_size *= n[KVT_AXIS_S];
		spec->tokens_per_slot.num = -1;
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
static void take_pages(struct kvt_transfer_end *end, const struct kvt_group *g)
{
	bool first = kvt_order_blocks_first(&g->layout.plane[0]);
	enum kvt_axis fast = first ? KVT_AXIS_L : KVT_AXIS_B;
	enum kvt_axis slow = first ? KVT_AXIS_B : KVT_AXIS_L;

	if (!g->page_bytes)
		return;
	end->strides[fast] = g->page_bytes;
	if (__builtin_mul_overflow(g->page_bytes, g->shape.n[fast], &end->strides[slow]))
		end->strides[slow] = INT64_MAX;		/* refused as a view */
	end->offset = g->page_offset;
}

static enum kvt_status take_end(struct kvt_transfer_end *end,
				const struct file_side *side, const struct kvt_group *g,
				int64_t groups, struct kvt_error *err)
{
	int64_t ranks = side->snapshot->parallel.tp_size;
	bool state = g->tokens_per_slot < 0 || g->kind == KVT_MAMBA_CONV;
	enum kvt_status status;

	*end = (struct kvt_transfer_end){
		.ranks = ranks, .layers = g->shape.n[KVT_AXIS_L], .layout = g->layout,
		.table = { .slots = state ? 1 : g->shape.n[KVT_AXIS_S],
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
	const struct kvt_transfer_end *from, *to;
	const struct kvt_transfer_how *how;
};

static int64_t first_slot(const struct file_side *side, int g,
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
					"request '%.60s' has no slot of token %lld in %s, but has one in %s",
					a->id,
					LL(x.begin != y.begin ?
						    (x.begin < y.begin ? x : y).begin :
						    (x.end < y.end ? x : y).end),
					(in_src ? p->src : p->dst)->path,
					(in_src ? p->dst : p->src)->path);
		at = x.end;
	}
	return KVT_OK;
}

/* The whole of a request; of tokens waves_of() takes what of it is live. */
static enum kvt_status take_move(struct kvt_transfer_move *m, const struct pairing *p,
				 const struct kvt_request *r, struct kvt_error *err)
{
	const struct kvt_request *other = kvt_request_named(p->dst->snapshot, r->id);
	int64_t per = p->from->spec.tokens_per_slot.num, last;
	enum kvt_status status;

	*m = (struct kvt_transfer_move){ table_of(r, p->src_group, &p->from->table),
				table_of(other, p->dst_group, &p->to->table), 0,
				kvt_spec_slots(&p->from->spec,
					       r->first_token + r->ntokens) };
	if (r->first_token != other->first_token)
		return kvt_fail(err, KVT_BAD_INPUT,
				"request '%.60s' begins with token %lld in %s and %lld in %s",
				r->id, LL(r->first_token), p->src->path,
				LL(other->first_token), p->dst->path);
	if ((status = same_holes(p, r, other, err)))
		return status;
	if (per > 0) {
		m->src.first = first_slot(p->src, p->src_group, r);
		m->dst.first = first_slot(p->dst, p->dst_group, other);
		last = p->how->cached < r->ntokens ? p->how->cached : r->ntokens;
		m->begin = (r->first_token + last) / per;
		return KVT_OK;
	}
	if (p->how->all_states && m->src.nids == m->dst.nids) {
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

static bool is_moved(const struct kvt_transfer_how *how, const struct kvt_snapshot *dst,
		     const struct kvt_request *r)
{
	return (!how->request || !strcmp(how->request, r->id)) &&
	       kvt_request_named(dst, r->id);
}

/* The map is not walked here: it says whether the tables suffice. */
static enum kvt_status add_move(struct waves *ws, const struct kvt_transfer_move *m,
				struct kvt_error *err)
{
	struct kvt_block_map map;
	enum kvt_status status = kvt_block_map_init(&map, &m->src, &m->dst, m->begin,
						    m->end, err);

	return status ? status : waves_add(ws, m, err);
}

/* The entries that slots begin to end are in: others may be the null block. */
static void trim(struct kvt_block_table *t, int64_t begin, int64_t end)
{
	int64_t skip = (begin - t->first) / t->slots;
	int64_t last = (end - 1 - t->first) / t->slots;

	if (begin < t->first || last >= t->nids)
		return;		/* does not suffice: refused with its reason */
	t->ids += skip;
	t->nids = last + 1 - skip;
	t->first += skip * t->slots;
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
					p->src->path, t->group->id, LL(i), r->id);
	return KVT_OK;
}

/* What of a request is live; with a gap, as R-SWA leaves one, it is two ranges. */
static enum kvt_status add_live(struct waves *ws, const struct kvt_transfer_move *all,
				const struct pairing *p, const struct kvt_request *r,
				bool whole, struct kvt_error *err)
{
	const struct kvt_table t = kvt_table_of(p->src->snapshot, p->src_group, r);
	enum kvt_status status = check_nulls(&t, p, r, err);
	struct kvt_range live;

	if (t.slots.end < all->end)
		return add_move(ws, all, err);		/* refused with its reason */
	for (int64_t at = all->begin; !status; at = live.end) {
		struct kvt_transfer_move m = *all;

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

static enum kvt_status take_requests(struct waves *ws, struct kvt_transfer_plan *transfer,
				     const struct pairing *p, struct kvt_error *err)
{
	const struct kvt_snapshot *s = p->src->snapshot;
	enum kvt_status status;

	for (int64_t i = 0; i < s->nrequests; i++) {
		const struct kvt_request *r = &s->request[i];
		struct kvt_transfer_move m;

		if (!is_moved(p->how, p->dst->snapshot, r))
			continue;
		if ((status = take_move(&m, p, r, err)) ||
		    (status = p->from->spec.tokens_per_slot.num > 0 ?
			      add_live(ws, &m, p, r, transfer->whole, err) :
			      add_move(ws, &m, err)))
			return status;
	}
	return KVT_OK;
}

static enum kvt_status join_groups(struct kvt_transfer_plan *transfer,
				   const struct pairing *p, struct kvt_error *err)
{
	const struct kvt_group *from = &p->src->snapshot->group[p->src_group];
	const struct kvt_group *to = &p->dst->snapshot->group[p->dst_group];
	struct kvt_error why = { "" };
	const char *id = from->id;
	struct waves ws = { .n = 0 };
	enum kvt_status status = take_requests(&ws, transfer, p, err);

	for (int i = 0; !status && i < ws.n; i++) {
		struct kvt_transfer_group *group = kvt_transfer_group_new(transfer, err);
		char name[sizeof(group->name) + 16];

		if (!group) {
			status = KVT_SYSTEM;
			break;
		}
		if (i)
			snprintf(name, sizeof(name), "%s.%d", id, i + 1);
		else
			snprintf(name, sizeof(name), "%s", id);
		status = kvt_transfer_group_init(group, name, p->from, p->to,
						 ws.wave[i].move, ws.wave[i].nmoves,
						 &why);
		if (status) {
			/* plans know positions only */
			kvt_fail(err, status, "%.460s%s", why.text,
				 from->block_ids || to->block_ids ?
				 "; blocks are counted from the first one of the dump here" : "");
			break;
		}
		group->src_group = p->src_group;
		group->dst_group = p->dst_group;
		group->src_ids = from->block_ids;
		group->dst_ids = to->block_ids;
		transfer->ngroups++;
	}
	waves_free(&ws);
	return status;
}

/* ---- both dumps --------------------------------------------------------- */

static enum kvt_status count_requests(struct kvt_transfer_plan *transfer,
				      const struct file_side *src,
				      const struct file_side *dst,
				      const struct kvt_transfer_how *how,
				      struct kvt_error *err)
{
	transfer->requests = transfer->tokens = 0;
	for (int64_t i = 0; i < src->snapshot->nrequests; i++) {
		const struct kvt_request *r = &src->snapshot->request[i];

		if (!is_moved(how, dst->snapshot, r))
			continue;
		transfer->requests++;
		transfer->tokens += r->ntokens;
	}
	if (transfer->requests)
		return KVT_OK;
	if (how->request)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s and %s do not both have request '%.60s'",
				src->path, dst->path, how->request);
	if (!src->snapshot->nrequests)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s and %s have no request in common: the first has no requests; give its blocks, such as --blocks-of=A=5,2,9:40 of request A with 40 tokens, or --manifest=FILE",
				src->path, dst->path);
	return kvt_fail(err, KVT_BAD_INPUT, "%s and %s have no request in common",
			src->path, dst->path);
}

/* Their tables count slots of a rank: only a rank that was dealt the same has these. */
static enum kvt_status check_dealt(const struct file_side *src,
				   const struct file_side *dst, struct kvt_error *err)
{
	const struct kvt_parallel *a = &src->snapshot->parallel;
	const struct kvt_parallel *b = &dst->snapshot->parallel;

	if (a->dcp_size < 2 && b->dcp_size < 2)
		return KVT_OK;
	if (a->dcp_size == b->dcp_size && a->tp_size == b->tp_size)
		return KVT_OK;
	return kvt_fail(err, KVT_UNSUPPORTED,
			"tp=%lld, dcp=%lld in %s and tp=%lld, dcp=%lld in %s: no dump says which tokens its rank was dealt; plan it with --model, --src and --dst",
			LL(a->tp_size), LL(a->dcp_size), src->path, LL(b->tp_size),
			LL(b->dcp_size), dst->path);
}

static enum kvt_status load(struct kvt_transfer_plan *transfer,
			    const struct file_side *src, const struct file_side *dst,
			    const struct kvt_transfer_how *how, struct kvt_error *err)
{
	enum kvt_status status = count_requests(transfer, src, dst, how, err);

	if (status || (status = check_dealt(src, dst, err)))
		return status;
	if (src->snapshot->ngroups != dst->snapshot->ngroups)
		return kvt_fail(err, KVT_BAD_INPUT, "%s has %d groups, %s has %d",
				src->path, src->snapshot->ngroups, dst->path,
				dst->snapshot->ngroups);
	transfer->model = src->snapshot->model;
	for (int i = 0; !status && i < src->snapshot->ngroups; i++) {
		const struct kvt_group *g = &src->snapshot->group[i];
		const struct kvt_group *other;
		struct kvt_transfer_end from, to;
		struct pairing p = { src, dst, i, kvt_group_named(dst->snapshot, g->id),
				     &from, &to, how };

		if (p.dst_group < 0)
			return kvt_fail(err, KVT_BAD_INPUT, "%s has no group '%s'",
					dst->path, g->id);
		other = &dst->snapshot->group[p.dst_group];
		if (other->kind != g->kind)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: the source holds %s, the destination %s",
					g->id, kvt_kind_name(g->kind),
					kvt_kind_name(other->kind));
		if (!(status = take_end(&from, src, g, how->mamba_groups, err)) &&
		    !(status = take_end(&to, dst, other, how->mamba_groups, err))) {
			from.replicas = to.replicas = how->replicas;
			status = join_groups(transfer, &p, err);
		}
	}
	return status;
}

enum kvt_status kvt_transfer_of_dumps(struct kvt_transfer_plan *out,
				      const struct kvt_transfer_dumps *dumps,
				      const struct kvt_transfer_how *how,
				      struct kvt_error *err)
{
	struct kvt_transfer_plan transfer = { .whole = how->whole };
	struct file_side src = { dumps->src_name, dumps->src };
	struct file_side dst = { dumps->dst_name, dumps->dst };
	enum kvt_status status = load(&transfer, &src, &dst, how, err);

	if (!status)
		status = kvt_transfer_prove(&transfer, err);
	if (status)
		kvt_transfer_free(&transfer);
	else
		*out = transfer;
	return status;
}
