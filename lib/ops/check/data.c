/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.c - what only the data tells: checksums, what is no number, zeros where none
 * should be, and something where only zeros should be
 *
 * All of a group is read once, for checksums (integrity.c) and numbers (lib/ops/numbers)
 * together.  Then what was seen of slots is held against what the tables say of them:
 * live ones hold finite numbers that are not all zeros, the null block nothing; what is
 * stale and not zero is counted.  Padding of pages comes last.
 */
#include "lib/ops/check/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ops/check/integrity.h"
#include "lib/ops/numbers/numbers.h"
#include "lib/ops/where/where.h"
#include "lib/run/leaf.h"
#include "lib/run/pipeline.h"

static unsigned long long id_of(const struct kvt_group *group, int64_t block)
{
	return kvt_block_id(group, block);
}

/* What was seen of a group, and whom it is told. */
struct telling {
	struct kvt_findings *r;
	const struct kvt_snapshot *snapshot;
	int g;
	const struct kvt_group *group;
	const struct kvt_numbers *n;
};

/* ---- NaN and infinities ------------------------------------------------- */

/* "; request C, token 35", if it is known. */
static struct kvt_text whose(const struct telling *t, const struct kvt_odd *odd)
{
	struct kvt_where place = { .region = KVT_ELEMENT, .group = t->g };
	struct kvt_tenancy tenancy = { 0, 0 };
	struct kvt_tenant tenant;
	struct kvt_text out = { "" };

	memcpy(place.index, odd->at, sizeof(place.index));
	if (t->group->tokens_per_slot < 1)
		place.index[KVT_AXIS_S] = 0;
	if (!kvt_next_tenant(&tenant, &tenancy, t->snapshot, &place))
		return out;
	if (t->group->tokens_per_slot < 1)
		snprintf(out.s, sizeof(out.s), "; a recurrent state of request %.60s",
			 tenant.request->id);
	else if (tenant.token < 0)
		snprintf(out.s, sizeof(out.s), "; request %.60s", tenant.request->id);
	else
		snprintf(out.s, sizeof(out.s), "; request %.60s, token %lld",
			 tenant.request->id, LL(tenant.token));
	return out;
}

/* " in the scales", where there are parts. */
static struct kvt_text part_of(const struct telling *t, const struct kvt_odd *odd)
{
	unsigned column = 1u << (odd->at[KVT_AXIS_K] * t->n->nparts + odd->part);
	struct kvt_text out = { "" };

	if (t->n->nparts > 1)
		snprintf(out.s, sizeof(out.s), " in the %.120s",
			 kvt_columns_text(t->n, t->group, column).s);
	return out;
}

static void tell_odd(const struct telling *t, const char *rule, const struct kvt_odd *odd,
		     const char *slots)
{
	bool first = odd->nan + odd->inf > 1;

	if (odd->slots)
		kvt_find(t->r, rule,
			 kvt_find_at("%s", kvt_odd_at(t->n, t->group, odd).s),
			 "%s%s%s%s%s", kvt_odd_text(odd).s, slots,
			 first ? ", the first here" : "", part_of(t, odd).s,
			 whose(t, odd).s);
}

static struct kvt_text in_slots(const struct kvt_odd *odd)
{
	struct kvt_text out;

	snprintf(out.s, sizeof(out.s), " in %lld slot%s (counted in each layer)",
		 LL(odd->slots), odd->slots == 1 ? "" : "s");
	return out;
}

static void tell_numbers(const struct telling *t)
{
	static const struct {
		enum kvt_duty duty;
		const char *rule;
	} others[] = {
		{ KVT_DUTY_UNKNOWN, "pool.nonfinite" },
		{ KVT_DUTY_LEFT, "stale.nonfinite" },
		{ KVT_DUTY_STALE, "stale.nonfinite" },
		{ KVT_DUTY_NULL, "null.nonfinite" },
	};
	int64_t told = t->n->nlive < KVT_MAX_PLACES ? t->n->nlive : KVT_MAX_PLACES;

	for (int64_t i = 0; i < told; i++)
		tell_odd(t, "live.nonfinite", &t->n->live[i], "");
	kvt_find_more(t->r, "live.nonfinite", t->n->nlive - told);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		const struct kvt_odd *odd = &t->n->by[others[i].duty];

		tell_odd(t, others[i].rule, odd, in_slots(odd).s);
	}
}

/* ---- zeros, and what should be zero ------------------------------------- */

/* "layers 3 to 4" */
static struct kvt_text range(const char *what, int64_t first, int64_t n)
{
	struct kvt_text out;

	if (n == 1)
		snprintf(out.s, sizeof(out.s), "%s %lld", what, LL(first));
	else
		snprintf(out.s, sizeof(out.s), "%ss %lld to %lld", what, LL(first),
			 LL(first + n - 1));
	return out;
}

/* ",kv=v" of columns that are all values, or all keys; else nothing. */
static const char *half_of(const struct kvt_numbers *n, unsigned columns)
{
	unsigned keys = (1u << n->nparts) - 1;

	if (n->ncolumns == n->nparts || !columns)
		return "";
	return !(columns & ~keys) ? ",kv=k" : !(columns & keys) ? ",kv=v" : "";
}

static void tell_zeros(const struct telling *t, const struct kvt_zeros *z)
{
	const char *rule = z->nheads ? "head.zero" : z->columns ? "component.zero" :
			   t->r->of_model ? "model.zero" : "layer.zero";
	struct kvt_text layers = range("layer", z->layer, z->nlayers), what = { "" };
	struct kvt_text heads = range("head", t->group->head_start + z->head, z->nheads);
	char of[80] = "", at[80] = "", head[40] = "";

	if (z->columns || !z->nheads)
		what = kvt_columns_text(t->n, t->group, z->columns ? z->columns :
							(1u << t->n->ncolumns) - 1);
	if (z->request >= 0) {
		snprintf(of, sizeof(of), " of request %.60s",
			 t->snapshot->request[z->request].id);
		snprintf(at, sizeof(at), ",request=%.60s",
			 t->snapshot->request[z->request].id);
	}
	if (z->nheads)
		snprintf(head, sizeof(head), ",head=%lld",
			 LL(t->group->head_start + z->head));
	kvt_find(t->r, rule,
		 kvt_find_at("group=%s,layer=%lld%s%s%s", t->group->id, LL(z->layer), at,
			     head, half_of(t->n, z->columns)),
		 "%s%s%s: zeros in every %sslot%s of %s", what.s,
		 what.s[0] && z->nheads ? " of " : "", z->nheads ? heads.s : "",
		 t->n->known ? "live " : "", of, layers.s);
}

static struct kvt_find_at slot_at(const struct telling *t, const struct kvt_slot_place *p,
				  const char *half)
{
	return kvt_find_at("group=%s,layer=%lld,block=%llu,slot=%lld%s", t->group->id,
			   LL(p->layer), id_of(t->group, p->block), LL(p->slot), half);
}

static void tell_slots(const struct telling *t, const char *rule,
		       const struct kvt_slots *slots, const char *half, const char *text)
{
	for (int i = 0; i < slots->n; i++)
		kvt_find(t->r, rule, slot_at(t, &slots->first[i], half), "%s", text);
	kvt_find_more(t->r, rule, slots->count - slots->n);
}

/* All of a request's are told slot by slot, unless a model says what must be there. */
static void tell_all_zeros(const struct telling *t)
{
	bool recurrent = t->group->tokens_per_slot < 1;

	for (int64_t i = 0; i < t->n->nzeros; i++)
		if (t->r->of_model || t->n->zeros[i].request < 0 || t->n->zeros[i].nheads)
			tell_zeros(t, &t->n->zeros[i]);
	tell_slots(t, t->r->of_model && recurrent && !t->n->by_request ? "model.zero" :
		   "live.zero", &t->n->zero, "",
		   recurrent ? "is the state of a request, but all zeros" :
			       "holds a live token, but is all zeros");
	for (int c = 0; c < t->n->ncolumns; c++) {
		struct kvt_text what = kvt_columns_text(t->n, t->group, 1u << c), text;

		snprintf(text.s, sizeof(text.s), "%.80s: all zeros; the rest is not",
			 what.s);
		tell_slots(t, "component.zero", &t->n->column[c],
			   half_of(t->n, 1u << c), text.s);
	}
	tell_slots(t, "null.nonzero", &t->n->null_block, "",
		   "the null block is not zero here");
	if (t->n->stale)
		kvt_find(t->r, "stale.slots", kvt_find_at("group=%s", t->group->id),
			 "%lld unused slot%s still %s old data (counted in each layer; harmless)",
			 LL(t->n->stale), t->n->stale == 1 ? "" : "s",
			 t->n->stale == 1 ? "holds" : "hold");
}

/* ---- padding ------------------------------------------------------------ */

static int64_t first_nonzero(const uint8_t *bytes, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (bytes[i])
			return i;
	return -1;
}

/* A box is one page; its result: where the first byte is that is not 0, or -1, and it. */
struct padding {
	struct kvt_dump *dump;
	int g;
	struct kvt_findings *report;
};

static enum kvt_status padding_box(struct kvt_worker *worker, void *context, int64_t i,
				   struct kvt_error *err)
{
	const struct padding *p = context;
	const struct kvt_group *group = kvt_dump_group(p->dump, p->g);
	int64_t *at = (int64_t *)(void *)worker->result;
	int64_t nb = group->shape.n[KVT_AXIS_B];
	uint8_t *page = worker->buffer[0];
	enum kvt_status status;

	if ((status = kvt_read_padding(page, p->dump, p->g, i / nb, i % nb, err)))
		return status;
	at[0] = first_nonzero(page, group->page_bytes);
	at[1] = at[0] < 0 ? 0 : page[at[0]];
	worker->nresult = 2 * sizeof(*at);
	return KVT_OK;
}

/* kvt_merge_fn */
static bool take_padding(void *context, int64_t i, const void *result, int64_t nbytes)
{
	const struct padding *p = context;
	const struct kvt_group *group = kvt_dump_group(p->dump, p->g);
	int64_t nb = group->shape.n[KVT_AXIS_B], at[2];

	if (nbytes != sizeof(at))
		return false;
	memcpy(at, result, sizeof(at));
	if (at[0] >= 0)
		kvt_find(p->report, "padding.nonzero",
			 kvt_find_at("group=%s,layer=%lld,block=%llu", group->id,
				     LL(i / nb), id_of(group, i % nb)),
			 "byte %lld of the page is 0x%02x", LL(at[0]), (unsigned)at[1]);
	return true;
}

static enum kvt_status check_padding(struct kvt_findings *r, struct kvt_dump *dump, int g,
				     const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_group *group = kvt_dump_group(dump, g);
	struct padding p = { dump, g, r };
	struct kvt_work work = { .fn = padding_box, .context = &p, .label = "padding",
				 .merge = take_padding, .part = g,
				 .result_bytes = 2 * sizeof(int64_t) };

	if (!kvt_dump_has_padding(dump, g))
		return KVT_OK;
	work.count = group->shape.n[KVT_AXIS_L] * group->shape.n[KVT_AXIS_B];
	work.total_bytes = work.count * group->page_bytes;
	work.buffer_bytes[0] = group->page_bytes;
	return kvt_work_run(&work, run, err);
}

/* ---- checksums and digests ---------------------------------------------- */

static void tell_damage(struct kvt_findings *r, const struct kvt_group *group,
			const struct kvt_integrity *v)
{
	int64_t damaged = 0, differing = 0;

	for (int i = 0; i < v->nfound; i++) {
		const struct kvt_damage *one = &v->found[i];

		damaged += one->damaged;
		differing += !one->damaged;
		kvt_find(r, one->damaged ? "tile.damaged" : "digest.cell",
			 kvt_find_at("group=%s,layer=%lld,block=%llu,head=%lld,kv=%s",
				     group->id, LL(one->at[KVT_AXIS_L]),
				     id_of(group, one->at[KVT_AXIS_B]),
				     LL(group->head_start + one->at[KVT_AXIS_H]),
				     one->at[KVT_AXIS_K] ? "v" : "k"),
			 "%s", one->damaged ? one->text :
			 "the data does not match content_digest");
	}
	/* the first ones only have a text */
	kvt_find_more(r, "tile.damaged", v->damaged - damaged);
	kvt_find_more(r, "digest.cell", v->differing - differing);
}

/* Not what cannot be decoded, nor what is held against cells that differ. */
static bool can_be_read(const struct kvt_dump *dump, int g, const struct kvt_integrity *v)
{
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);

	return !v->damaged && !(v->differing && leaf && leaf->held[g]);
}

/* Of files that have one for much at once: also of what no group has data in. */
static enum kvt_status check_members(struct kvt_findings *r, const struct kvt_dump *dump,
				     const char *path, const struct kvt_run *run,
				     bool *damaged, struct kvt_error *err)
{
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);
	struct kvt_error why = { "" };
	enum kvt_status status = KVT_OK;
	int64_t i = 0;

	*damaged = false;
	if (!leaf || !leaf->settles)
		return KVT_OK;
	while ((status = leaf->ops->settle(leaf, &i, true, run, &why)) == KVT_BAD_INPUT) {
		kvt_find(r, "tile.damaged", kvt_find_at("%s", ""), "%s",
			 kvt_without_path(why.text, path));
		*damaged = true;
	}
	return status ? kvt_fail(err, status, "%s", why.text) : KVT_OK;
}

/* Reads all of a group, for its checksums and its numbers. */
static enum kvt_status read_group(struct kvt_integrity *v, struct kvt_numbers *n,
				  struct kvt_dump *dump, int g, const char *path,
				  const struct kvt_run *run, struct kvt_error *err)
{
	struct kvt_looking *looking = kvt_looking_new(n, kvt_dump_snapshot(dump), g);
	enum kvt_status status;

	if (!looking)
		return kvt_no_memory(err, NULL);
	status = kvt_check_integrity(v, dump, g, path, looking, run, err);
	if (!status && !kvt_looking_finish(looking))
		status = kvt_no_memory(err, NULL);
	kvt_looking_free(looking);
	return status;
}

/* What of a group is damaged has numbers that nobody wrote. */
static void tell_group(struct kvt_findings *r, const struct kvt_dump *dump, int g,
		       const struct kvt_integrity *v, const struct kvt_numbers *n)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	const struct telling t = { r, s, g, &s->group[g], n };

	tell_damage(r, &s->group[g], v);
	if (!can_be_read(dump, g, v))
		return;
	tell_numbers(&t);
	tell_all_zeros(&t);
	if (n->numbers)
		r->looked.numbers++;
}

/* It may be that nothing is in use, but then in no group. */
static void tell_empty(struct kvt_findings *r, const struct kvt_snapshot *s,
		       const struct kvt_numbers *n)
{
	int used = 0;

	while (used < s->ngroups && n[used].empty)
		used++;
	for (int g = 0; used < s->ngroups && g < s->ngroups; g++)
		if (n[g].empty)
			kvt_find(r, "model.zero", kvt_find_at("group=%s", s->group[g].id),
				 "zeros in every slot of every layer, but not in group %s",
				 s->group[used].id);
}

/* Checksums of all groups come first: they say whether the rest can be believed. */
enum kvt_status kvt_check_data(struct kvt_findings *r, struct kvt_dump *dump,
			       const char *path, const struct kvt_run *run,
			       struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	struct kvt_integrity *v = calloc((size_t)s->ngroups + 1, sizeof(*v));
	struct kvt_numbers *n = calloc((size_t)s->ngroups + 1, sizeof(*n));
	enum kvt_status status = KVT_OK;
	bool damaged = false;

	if (!v || !n)
		status = kvt_no_memory(err, NULL);
	else
		status = check_members(r, dump, path, run, &damaged, err);
	for (int g = 0; !status && !damaged && g < s->ngroups; g++)
		status = read_group(&v[g], &n[g], dump, g, path, run, err);
	for (int g = 0; !status && !damaged && g < s->ngroups; g++) {
		tell_group(r, dump, g, &v[g], &n[g]);
		status = check_padding(r, dump, g, run, err);
	}
	if (!status && !damaged && r->of_model)
		tell_empty(r, s, n);
	for (int g = 0; n && g < s->ngroups; g++)
		kvt_numbers_free(&n[g]);
	free(n);
	free(v);
	return status || damaged ? status : kvt_dump_unchanged(dump, err);
}
