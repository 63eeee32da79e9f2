/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - is everything there that the layers of a model keep?
 *
 * A transfer that forgets a kind of layers leaves a dump without a contradiction: only
 * the model knows what should be there.  What a layer keeps is counted by role: a hybrid
 * one may have keys, values and two states, and one with an indexer has keys twice.
 * Where a file does not say which layers it has, their number must do.
 */
#include "lib/ops/check/check.h"

#include <stdlib.h>
#include <string.h>

#include "lib/derived/merge.h"
#include "lib/base/order.h"

enum role { KEYS, VALUES, CONV, SSM, NROLES };
enum { BIT_KEYS = 1 << KEYS, BIT_VALUES = 1 << VALUES, BIT_CONV = 1 << CONV,
       BIT_SSM = 1 << SSM };

static const struct {
	const char *rule, *what;
} roles[NROLES] = {
	[KEYS] = { "model.layer-missing", "keys or latents" },
	[VALUES] = { "model.layer-missing", "values" },
	[CONV] = { "model.state-missing", "convolution state" },
	[SSM] = { "model.state-missing", "SSM state" },
};

/* All stages of one rank, against the model. */
struct whole {
	struct kvt_findings *r;
	const struct kvt_model *model;
	char rank[40];				/* "rank 1 of 4: "; "" */
	bool part, stage;
	int64_t want[NROLES], found[NROLES];	/* in all layers */
	bool unnumbered[NROLES];
	uint8_t need[KVT_MODEL_LAYERS][NROLES], have[KVT_MODEL_LAYERS][NROLES];
};

/* ---- what the model keeps ------------------------------------------------- */

static unsigned kept_by(const struct kvt_model_group *g)
{
	enum kvt_kind kind;

	if (!kvt_spec_kind(&kind, g->spec) || kind == KVT_OPAQUE)
		return 0;
	if (kind == KVT_MAMBA_CONV)
		return BIT_CONV;
	if (kind == KVT_MAMBA_SSM)
		return BIT_SSM;
	return kind == KVT_MLA || g->args.latent ? BIT_KEYS : BIT_KEYS | BIT_VALUES;
}

static void take_model(struct whole *w)
{
	const struct kvt_model *m = w->model;

	for (int g = 0; g < m->ngroups; g++)
		for (int role = 0; role < NROLES; role++) {
			if (!(kept_by(&m->group[g]) >> role & 1))
				continue;
			w->want[role] += m->group[g].layers;
			for (int64_t i = 0; i < m->nlayers; i++)
				w->need[i][role] += m->layer[i] >> g & 1;
		}
}

/* ---- what is there -------------------------------------------------------- */

static unsigned held_by(const struct kvt_group *g)
{
	if (g->kind == KVT_MAMBA_CONV)
		return BIT_CONV;
	if (g->kind == KVT_MAMBA_SSM)
		return BIT_SSM;
	if (g->kind == KVT_OPAQUE)
		return BIT_KEYS | BIT_VALUES | BIT_CONV | BIT_SSM;
	switch (kvt_group_half(g)) {
	case 0: return BIT_KEYS;
	case 1: return BIT_VALUES;
	default: return BIT_KEYS | BIT_VALUES;
	}
}

/* -1: not known, or beyond the model. */
static int64_t number_of(const struct whole *w, const struct kvt_group *group, int64_t l)
{
	int64_t n;

	if (group->layer_ids)
		n = group->layer_ids[l];
	else if (!kvt_layer_number(&n, group->layer_names[l]))
		return -1;
	return n < w->model->nlayers ? n : -1;
}

/* Names that nobody gave count from 0, also where these layers keep something else. */
static bool is_numbered(const struct whole *w, const struct kvt_group *group, int role)
{
	if (group->layer_ids && w->model->nlayers)
		return true;
	for (int64_t l = 0; l < group->shape.n[KVT_AXIS_L]; l++) {
		int64_t n = number_of(w, group, l);

		if (n < 0 || (group->kind != KVT_OPAQUE && !w->need[n][role]))
			return false;
	}
	return true;
}

static void take_group(struct whole *w, const struct kvt_group *group)
{
	for (int role = 0; role < NROLES; role++) {
		if (!(held_by(group) >> role & 1))
			continue;
		w->found[role] += group->shape.n[KVT_AXIS_L];
		if (!is_numbered(w, group, role)) {
			w->unnumbered[role] = true;
			continue;
		}
		for (int64_t l = 0; l < group->shape.n[KVT_AXIS_L]; l++) {
			int64_t n = number_of(w, group, l);

			if (n >= 0 && w->have[n][role] < UINT8_MAX)
				w->have[n][role]++;
		}
	}
}

/* ---- what is not ------------------------------------------------------------ */

/* "0 to 2, 4 and 60 more" of layers that are set. */
static struct kvt_text layers_text(const bool *set, int64_t n)
{
	struct kvt_text out = { "" };
	size_t at = 0;
	int64_t left = 0;

	for (int64_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && set[end] == set[i]; end++)
			;
		if (!set[i])
			continue;
		if (at > 160 || at + 60 > sizeof(out.s))
			left += end - i;
		else if (end - i == 1)
			at += (size_t)snprintf(out.s + at, sizeof(out.s) - at, "%s%lld",
					       at ? ", " : "", LL(i));
		else
			at += (size_t)snprintf(out.s + at, sizeof(out.s) - at,
					       "%s%lld to %lld", at ? ", " : "", LL(i),
					       LL(end - 1));
	}
	if (left)
		snprintf(out.s + at, sizeof(out.s) - at, " and %lld more", LL(left));
	return out;
}

static bool has_any(const struct whole *w, int64_t i)
{
	const uint8_t *have = w->have[i];

	return have[KEYS] || have[VALUES] || have[CONV] || have[SSM];
}

static bool needs_any(const struct whole *w, int64_t i)
{
	const uint8_t *need = w->need[i];

	return need[KEYS] || need[VALUES] || need[CONV] || need[SSM];
}

/* Layers that may be those of another stage, or of another part. */
static int64_t mark_others(bool *other, const struct whole *w)
{
	int64_t first = 0, end = w->model->nlayers, count = 0;

	memset(other, 0, KVT_MODEL_LAYERS * sizeof(*other));
	if (!w->part && !w->stage)
		return 0;
	while (first < end && !has_any(w, first))
		first++;
	while (end > first && !has_any(w, end - 1))
		end--;
	for (int64_t i = 0; i < w->model->nlayers; i++) {
		other[i] = needs_any(w, i) && !has_any(w, i) &&
			   (w->part || i < first || i >= end);
		count += other[i];
	}
	return count;
}

static void tell_role(struct whole *w, int role, const bool *other)
{
	bool lacks[KVT_MODEL_LAYERS] = { false };
	int64_t n = 0;

	for (int64_t i = 0; i < w->model->nlayers; i++) {
		lacks[i] = !other[i] && w->have[i][role] < w->need[i][role];
		/* a layer without keys is told once */
		if (role == VALUES && w->have[i][KEYS] < w->need[i][KEYS] &&
		    !w->have[i][VALUES])
			lacks[i] = false;
		n += lacks[i];
	}
	if (n)
		kvt_find(w->r, roles[role].rule, kvt_find_at("%s", ""),
			 "%s%lld of %lld layers of the model have no %s here: %s %s",
			 w->rank, LL(n), LL(w->model->nlayers), roles[role].what,
			 n == 1 ? "layer" : "layers",
			 layers_text(lacks, w->model->nlayers).s);
}

/* Nothing says which layers these are. */
static void tell_count(struct whole *w, int role)
{
	bool part = w->part || w->stage;

	if (role == VALUES && w->found[KEYS] - w->want[KEYS] ==
			      w->found[VALUES] - w->want[VALUES])
		return;
	if (w->found[role] < w->want[role])
		kvt_find(w->r, part ? "model.part" : roles[role].rule,
			 kvt_find_at("%s", ""),
			 "%s%s: of %lld layers here, of %lld in the model", w->rank,
			 roles[role].what, LL(w->found[role]), LL(w->want[role]));
}

static void tell_whole(struct whole *w)
{
	bool other[KVT_MODEL_LAYERS];
	int64_t others = mark_others(other, w);

	for (int role = 0; role < NROLES; role++)
		if (w->unnumbered[role] || !w->model->nlayers)
			tell_count(w, role);
		else
			tell_role(w, role, other);
	if (others)
		kvt_find(w->r, "model.part", kvt_find_at("%s", ""),
			 "%s%lld of %lld layers of the model are not here: %s", w->rank,
			 LL(others), LL(w->model->nlayers),
			 layers_text(other, w->model->nlayers).s);
}

/* ---- requests --------------------------------------------------------------- */

static bool has_tables(const struct kvt_snapshot *s, int g)
{
	for (int64_t r = 0; r < s->nrequests; r++)
		if (s->request[r].nblocks[g])
			return true;
	return false;
}

/* A group that has the request's tokens; -1: none. */
static int group_with(const struct kvt_snapshot *s, const struct kvt_request *q)
{
	for (int g = 0; g < s->ngroups; g++)
		if (q->nblocks[g])
			return g;
	return -1;
}

static void check_group_requests(struct kvt_findings *r, const struct kvt_snapshot *s,
				 int g)
{
	const struct kvt_group *group = &s->group[g];
	bool tables = has_tables(s, g);

	for (int64_t i = 0; i < s->nrequests; i++) {
		const struct kvt_request *q = &s->request[i];
		int with = group_with(s, q);

		if (!q->ntokens || q->nblocks[g] || with < 0)
			continue;
		if (!tables) {
			kvt_find(r, "model.no-tables", kvt_find_at("group=%s", group->id),
				 "no request has a block table here, as in group %s: whose the blocks are cannot be checked",
				 s->group[with].id);
			return;
		}
		kvt_find(r, "model.request",
			 kvt_find_at("group=%s,request=%.60s", group->id, q->id),
			 "no block here, but %lld tokens in group %s", LL(q->ntokens),
			 s->group[with].id);
	}
}

/* Requests of one file that another lacks.  False: out of memory. */
static bool compare_requests(struct kvt_findings *r, const struct rank_file *has,
			     const struct rank_file *lacks)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(has->reader);
	const struct kvt_snapshot *other = kvt_dump_snapshot(lacks->reader);
	size_t n = (size_t)other->nrequests;
	const char **ids = calloc(n + 1, sizeof(*ids));

	if (!ids)
		return false;
	for (size_t i = 0; i < n; i++)
		ids[i] = other->request[i].id;
	qsort(ids, n, sizeof(*ids), kvt_by_name);
	for (int64_t i = 0; i < s->nrequests; i++) {
		const struct kvt_request *q = &s->request[i];

		if (q->ntokens && !bsearch(&q->id, ids, n, sizeof(*ids), kvt_by_name))
			kvt_find(r, "model.request", kvt_find_at("request=%.60s", q->id),
				 "%lld tokens in %.100s, none in %.100s", LL(q->ntokens),
				 has->name, lacks->name);
	}
	free(ids);
	return true;
}

/* ---- ranks ------------------------------------------------------------------ */

static const struct kvt_snapshot *snapshot_of(const struct rank_file *file)
{
	return kvt_dump_snapshot(file->reader);
}

static const struct kvt_parallel *rank_of(const struct rank_file *file)
{
	return &snapshot_of(file)->parallel;
}

/* Ranks of one place in all stages hold all layers together. */
static bool same_column(const struct rank_file *a, const struct rank_file *b)
{
	return rank_of(a)->tp_rank == rank_of(b)->tp_rank &&
	       rank_of(a)->dcp_rank == rank_of(b)->dcp_rank;
}

static bool is_stage(const struct rank_file *files, int n)
{
	for (int i = 1; i < n; i++)
		if (rank_of(&files[i])->pp_rank != rank_of(files)->pp_rank)
			return false;
	return rank_of(files)->pp_size > 1;
}

static void check_column(struct whole *w, const struct rank_file *files, int n, int first)
{
	const struct kvt_parallel *p = rank_of(&files[first]);

	memset(w->have, 0, sizeof(w->have));
	memset(w->found, 0, sizeof(w->found));
	memset(w->unnumbered, 0, sizeof(w->unnumbered));
	w->rank[0] = '\0';
	if (p->tp_size > 1)
		snprintf(w->rank, sizeof(w->rank), "rank %lld of %lld: ", LL(p->tp_rank),
			 LL(p->tp_size));
	for (int i = first; i < n; i++)
		for (int g = 0; same_column(&files[i], &files[first]) &&
				g < snapshot_of(&files[i])->ngroups; g++)
			take_group(w, &snapshot_of(&files[i])->group[g]);
	tell_whole(w);
}

static bool comes_first(const struct rank_file *files, int i)
{
	for (int k = 0; k < i; k++)
		if (same_column(&files[k], &files[i]))
			return false;
	return true;
}

/* Of one stage kvt_check_ranks() tells which are missing; one alone is told. */
static void check_all_there(struct kvt_findings *r, const struct rank_file *files, int n,
			    bool stage)
{
	const struct kvt_parallel *p = rank_of(files);
	int64_t tp = 0;

	for (int i = 0; i < n; i++)
		tp += comes_first(files, i) &&
		      rank_of(&files[i])->dcp_rank == p->dcp_rank;
	if (n == 1 && p->tp_size > 1)
		kvt_find(r, "model.part", kvt_find_at("%s", ""),
			 "rank %lld of %lld alone", LL(p->tp_rank), LL(p->tp_size));
	else if (tp < p->tp_size && p->pp_size > 1 && !stage)
		kvt_find(r, "ranks.missing", kvt_find_at("%s", ""),
			 "%lld of %lld ranks are in none of the files",
			 LL(p->tp_size - tp), LL(p->tp_size));
	if (stage)
		kvt_find(r, "model.part", kvt_find_at("%s", ""),
			 "pipeline rank %lld of %lld alone", LL(p->pp_rank),
			 LL(p->pp_size));
}

/* Ranks of one stage were compared by kvt_check_ranks(). */
static bool compare_stages(struct kvt_findings *r, const struct rank_file *files, int n)
{
	bool ok = true;

	for (int i = 1; ok && i < n; i++)
		if (rank_of(&files[i])->pp_rank != rank_of(files)->pp_rank)
			ok = compare_requests(r, files, &files[i]) &&
			     compare_requests(r, &files[i], files);
	return ok;
}

enum kvt_status kvt_check_model(struct kvt_findings *r, const struct rank_file *files,
				int nfiles, const struct kvt_model *model, bool part,
				struct kvt_error *err)
{
	struct whole *w = calloc(1, sizeof(*w));

	if (!w)
		return kvt_no_memory(err, NULL);
	w->r = r;
	w->model = model;
	w->part = part;
	w->stage = is_stage(files, nfiles);
	take_model(w);
	check_all_there(r, files, nfiles, w->stage);
	for (int i = 0; i < nfiles; i++) {
		const struct kvt_snapshot *s = snapshot_of(&files[i]);

		if (comes_first(files, i))
			check_column(w, files, nfiles, i);
		for (int g = 0; s->nrequests && g < s->ngroups; g++)
			check_group_requests(r, s, g);
	}
	free(w);
	return compare_stages(r, files, nfiles) ? KVT_OK : kvt_no_memory(err, NULL);
}
