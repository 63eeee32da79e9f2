/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matrix.c - every source with every destination, carried out and verified
 *
 * A source is made of what is held as any destination is, verified too, and stays in
 * memory while all destinations are made of it.  Its bytes that nothing moves to differ
 * from those of a destination, so that what is moved without need is seen.  Sources are
 * divided among threads; each row is its own, so that no result depends on them.
 */
#include "sim/ops/matrix.h"

#include <stdlib.h>
#include <string.h>

#include "lib/run/pipeline.h"

enum { SOURCE_FILL = 0xa5 };

const char *kvt_verdict_name(enum kvt_verdict verdict)
{
	static const char *const names[] = {
		[KVT_VERDICT_EQUAL] = "equal", [KVT_VERDICT_DIFFERS] = "differs",
		[KVT_VERDICT_REFUSED] = "refused",
	};

	return names[verdict];
}

/* ---- sides ------------------------------------------------------------- */

/* Plans a destination of what 'from' holds; 'sides' borrows that. */
static enum kvt_status plan(struct kvt_sides *sides, const struct kvt_ranks *from,
			    const struct kvt_matrix_side *side,
			    const struct kvt_transfer_how *how, uint8_t fill,
			    struct kvt_error *err)
{
	enum kvt_status status;

	*sides = (struct kvt_sides){ .src = *from, .fill = fill };
	status = kvt_sides_make_dst(sides, &side->made, err);
	return status ? status : kvt_sides_join(sides, "the source", "the destination",
						how, err);
}

static void forget(struct kvt_sides *sides)
{
	sides->src = (struct kvt_ranks){ .n = 0 };
	kvt_sides_free(sides);
}

static int64_t side_nbytes(const struct kvt_matrix *m, const struct kvt_matrix_side *side)
{
	struct kvt_sides sides = { .src = m->held->ranks };
	int64_t nbytes = 0;

	if (!kvt_sides_make_dst(&sides, &side->made, NULL))
		nbytes = kvt_ranks_nbytes(&sides.dst);
	forget(&sides);
	return nbytes;
}

void kvt_matrix_room(struct kvt_matrix *m, const struct kvt_run *run)
{
	int64_t largest = m->held->nbytes + 1, most = kvt_run_memory(run) / 2;

	for (int64_t i = 0; i < m->nsrc + m->ndst; i++) {
		int64_t n = side_nbytes(m, i < m->nsrc ? &m->src[i] :
					&m->dst[i - m->nsrc]);

		if (n > largest && n <= most)
			largest = n;
	}
	m->most = most;
	m->threads = run->threads ? run->threads : kvt_usable_cpus();
	if (m->threads > most / largest)
		m->threads = most >= largest ? (int)(most / largest) : 1;
}

/* ---- names of a row ------------------------------------------------------ */

/* The group that block sizes and layouts are of: the first that has tokens. */
static const struct kvt_group *shown(const struct kvt_snapshot *s)
{
	for (int g = 0; g < s->ngroups; g++)
		if (!kvt_is_recurrent(s->group[g].kind))
			return &s->group[g];
	return &s->group[0];
}

/* A row as it is before anything is known but what was asked for. */
static void name_row(struct kvt_matrix_row *row, const struct kvt_matrix *m,
		     const struct kvt_matrix_side *src, const struct kvt_matrix_side *dst)
{
	const struct kvt_group *g = shown(kvt_ranks_snapshot(&m->held->ranks, 0));
	const struct kvt_matrix_side *side[2] = { src, dst };
	struct kvt_text axes = kvt_layout_string(&g->layout);
	const char *name = kvt_layout_name(&g->layout, 0), *layout = name ? name : axes.s;
	int64_t tp = m->held->ranks.n, block_size = g->block_size;

	for (int s = 0; s < 2; s++) {
		const struct kvt_transfer_pool *pool = &side[s]->made.pool;

		layout = side[s]->layout ? side[s]->layout : layout;
		tp = pool->ranks ? pool->ranks : tp;
		block_size = pool->block_size ? pool->block_size : block_size;
		snprintf(row->plan.layout[s], sizeof(row->plan.layout[s]), "%.60s",
			 layout);
		row->plan.tp[s] = tp;
		row->plan.block_size[s] = block_size;
	}
	row->plan.stack = KVT_STACK_RFC;
	row->plan.sge = 1;
}

/* What all pairs of a source have. */
struct source {
	const struct kvt_held_side *held;
	const struct kvt_ranks *whole;	/* NULL: it is what is held */
	struct kvt_held_side made;	/* owned, as is: */
	struct kvt_ranks hollow;
};

/* ---- one pair -------------------------------------------------------------- */

/* What a status is for a row; memory, and what ends a run, are not its own. */
static enum kvt_status judge(struct kvt_matrix_row *row, enum kvt_status status,
			     enum kvt_verdict verdict, const struct kvt_error *why,
			     struct kvt_error *err)
{
	if (status == KVT_SYSTEM)
		return kvt_fail(err, status, "%.500s", why->text);
	row->verdict = status == KVT_OK ? KVT_VERDICT_EQUAL :
		       status == KVT_UNSUPPORTED ? KVT_VERDICT_REFUSED :
		       status == KVT_MISMATCH ? KVT_VERDICT_DIFFERS : verdict;
	snprintf(row->why, sizeof(row->why), "%.390s", status ? why->text : "");
	return KVT_OK;
}

/* What the plan posts, and how long that takes. */
static enum kvt_status time_plan(struct kvt_matrix_row *row, const struct kvt_matrix *m,
				 const struct kvt_transfer_plan *transfer,
				 struct kvt_error *err)
{
	const char *const names[2] = { row->plan.layout[0], row->plan.layout[1] };
	struct kvt_sweep one = { .link = m->link };
	enum kvt_status status = kvt_sweep_add(&one, transfer, names, KVT_STACK_RFC, 1,
					       err);

	if (!status) {
		row->plan.ops = one.row[0].ops;
		row->plan.bytes = one.row[0].bytes;
		row->plan.ns = one.row[0].ns;
		row->plan.why = one.row[0].why;
	}
	kvt_sweep_free(&one);
	return status;
}

/* The same of all layers, where they are not held. */
static enum kvt_status time_whole(struct kvt_matrix_row *row, const struct kvt_matrix *m,
				  const struct kvt_ranks *src,
				  const struct kvt_matrix_side *dst,
				  struct kvt_error *err)
{
	struct kvt_sides sides;
	enum kvt_status status = plan(&sides, src, dst, &m->how, 0, err);

	if (!status)
		status = time_plan(row, m, &sides.transfer, err);
	forget(&sides);
	return status;
}

static enum kvt_status try_pair(struct kvt_matrix_row *row, const struct kvt_matrix *m,
				const struct source *src,
				const struct kvt_matrix_side *dst,
				const struct kvt_trial_how *how, struct kvt_error *err)
{
	struct kvt_verified verified = { .bytes = 0 };
	struct kvt_held_side landed;
	struct kvt_error why = { "" };
	struct kvt_sides sides;
	enum kvt_verdict verdict = KVT_VERDICT_REFUSED;
	enum kvt_status status = plan(&sides, &src->held->ranks, dst, &m->how, 0, &why);

	if (!status)
		status = src->whole ? time_whole(row, m, src->whole, dst, &why) :
				      time_plan(row, m, &sides.transfer, &why);
	if (!status) {
		verdict = KVT_VERDICT_DIFFERS;
		if (!(status = kvt_trial_run(&landed, &verified, &sides, src->held,
					     how, &why)))
			kvt_held_free(&landed);
	}
	row->compared = verified.bytes;
	row->untouched = verified.untouched;
	row->has_digest = !status && verified.has_digest;
	row->version = verified.version;
	row->digest = verified.digest;
	forget(&sides);
	return judge(row, status, verdict, &why, err);
}

/* ---- one source, and all ----------------------------------------------------- */

struct trying {
	struct kvt_matrix *matrix;
	const struct kvt_run *run;
};

/* The data of a source, of what is held. */
static enum kvt_status fill_source(struct source *out, enum kvt_verdict *verdict,
				   const struct kvt_matrix *m,
				   const struct kvt_matrix_side *side,
				   const struct kvt_transfer_how *all,
				   const struct kvt_trial_how *how, struct kvt_error *err)
{
	struct kvt_trial_how sound = *how;
	struct kvt_verified verified;
	struct kvt_sides sides;
	enum kvt_status status = plan(&sides, &m->held->ranks, side, all, SOURCE_FILL,
				      err);

	sound.corrupt = -1;
	if (!status) {
		*verdict = KVT_VERDICT_DIFFERS;
		status = kvt_trial_run(&out->made, &verified, &sides, m->held, &sound,
				       err);
	}
	forget(&sides);
	out->held = &out->made;
	return status;
}

/* Of what is not held, its description. */
static enum kvt_status describe_source(struct source *out, const struct kvt_matrix *m,
				       const struct kvt_matrix_side *side,
				       struct kvt_error *err)
{
	struct kvt_sides sides = { .src = *m->whole };
	enum kvt_status status = kvt_sides_make_dst(&sides, &side->made, err);

	if (!status)
		status = kvt_ranks_hollow(&out->hollow, &sides.dst, err);
	forget(&sides);
	out->whole = &out->hollow;
	return status;
}

static enum kvt_status make_source(struct source *out, enum kvt_verdict *verdict,
				   const struct kvt_matrix *m,
				   const struct kvt_matrix_side *side,
				   const struct kvt_trial_how *how, struct kvt_error *err)
{
	const struct kvt_transfer_how all = {
		.mamba_groups = m->how.mamba_groups, .all_states = true,
	};
	enum kvt_status status;

	*verdict = KVT_VERDICT_REFUSED;
	*out = (struct source){ .held = m->held, .whole = m->whole };
	if (side->as_it_is)
		return KVT_OK;
	status = fill_source(out, verdict, m, side, &all, how, err);
	return status || !m->whole ? status : describe_source(out, m, side, err);
}

/* All destinations of one source.  kvt_work_fn */
static enum kvt_status try_source(struct kvt_worker *worker, void *context, int64_t i,
				  struct kvt_error *err)
{
	const struct trying *t = context;
	struct kvt_matrix *m = t->matrix;
	const struct kvt_matrix_side *side = &m->src[i];
	const struct kvt_trial_how how = { *t->run, m->most, m->corrupt };
	struct kvt_error why = { "" };
	enum kvt_verdict verdict;
	struct source src;
	enum kvt_status bad = make_source(&src, &verdict, m, side, &how, &why);
	enum kvt_status status = KVT_OK;

	for (int64_t j = 0; !status && j < m->ndst; j++) {
		struct kvt_matrix_row *row = &m->row[i * m->ndst + j];

		name_row(row, m, side, &m->dst[j]);
		status = bad ? judge(row, bad, verdict, &why, err) :
			       try_pair(row, m, &src, &m->dst[j], &how, err);
		kvt_worker_progress(worker, m->held->nbytes);
	}
	kvt_held_free(&src.made);
	kvt_ranks_free(&src.hollow);
	return status;
}

enum kvt_status kvt_matrix_run(struct kvt_matrix *m, const struct kvt_run *run,
			       struct kvt_error *err)
{
	struct kvt_run pairs = *run, inner = *run;
	struct trying t = { m, &inner };
	const struct kvt_work work = {
		.fn = try_source, .context = &t, .count = m->nsrc, .label = "trying",
		.total_bytes = m->nsrc * m->ndst * m->held->nbytes,
	};
	enum kvt_status status;

	m->row = calloc((size_t)(m->nsrc * m->ndst) + 1, sizeof(*m->row));
	if (!m->row)
		return kvt_no_memory(err, NULL);
	pairs.threads = m->threads;
	pairs.share = inner.share = NULL;
	inner.threads = 1;
	inner.memory = 0;
	inner.device = NULL;
	inner.progress = NULL;
	if ((status = kvt_work_run(&work, &pairs, err)))
		return status;
	for (int64_t i = 0; i < m->nsrc * m->ndst; i++)
		m->count[m->row[i].verdict]++;
	return KVT_OK;
}
