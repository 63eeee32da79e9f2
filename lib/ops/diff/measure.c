/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.c - by how much a pair differs, and where: the second pass
 *
 * A box leaves what it found in its result, of which each kind has its place: sums by
 * head, counts by segment, by slot, by dim, the worst elements.  Results enter those of
 * the pair in the order of the boxes.
 */
#include "lib/ops/diff/pass.h"

#include <stdlib.h>
#include <string.h>

/*
 * Findings of one box: its result.  Whatever there is one of for each slot is in the
 * order of the segments of the box.
 */
struct found {
	int64_t *nworst;
	struct diff_sums *by_head;		/* [layers][nheads] */
	struct heat *by_segment;		/* [layers][segments] */
	struct heat *by_half;			/* [layers][nkv] */
	struct heat *by_slot, *by_dim;		/* [slots]; [content], if wanted */
	uint8_t *bad_slot, *bad_dim;		/* [slots]; [content] */
	struct deviation *head_first, *segment_first;	/* of each of these, if wanted */
	struct deviation *first, *worst;	/* the last has only nworst */
	struct findings findings;
};

/* Where the next n things of 'size' bytes begin; all begin at multiples of 8. */
static void *after(uint8_t *bytes, int64_t *at, int64_t n, size_t size)
{
	int64_t begin = *at;

	*at += (n * (int64_t)size + 7) / 8 * 8;
	return bytes ? bytes + begin : NULL;
}

/* The places in a result, and the most bytes that it has; 'bytes' NULL: these alone. */
static struct found found_at(const struct pass *c, void *bytes, int64_t *nbytes)
{
	const bool *table = c->table;
	int64_t slots = c->cut.blocks * c->most_slots, at = 0;
	struct found f;

	f.nworst = after(bytes, &at, 1, sizeof(*f.nworst));
	f.by_head = after(bytes, &at, c->cut.layers * c->p->nheads, sizeof(*f.by_head));
	f.by_segment = after(bytes, &at, c->cut.layers * c->cut.blocks,
			     sizeof(*f.by_segment));
	f.by_half = after(bytes, &at, c->cut.layers * c->p->nkv, sizeof(*f.by_half));
	f.by_slot = after(bytes, &at, table[DIFF_TOKEN] ? slots : 0, sizeof(*f.by_slot));
	f.by_dim = after(bytes, &at, table[DIFF_DIM] ? c->p->content : 0,
			 sizeof(*f.by_dim));
	f.head_first = after(bytes, &at, c->firsts ? c->cut.layers * c->p->nheads : 0,
			     sizeof(*f.head_first));
	f.segment_first = after(bytes, &at, c->firsts ? c->cut.layers * c->cut.blocks : 0,
				sizeof(*f.segment_first));
	f.bad_slot = after(bytes, &at, slots, 1);
	f.bad_dim = after(bytes, &at, c->p->content, 1);
	f.first = after(bytes, &at, 1, sizeof(*f.first));
	f.worst = after(bytes, &at, c->nworst, sizeof(*f.worst));
	f.findings = (struct findings){ .worst = f.worst, .room = c->nworst,
					.bad_dim = f.bad_dim,
					.by_dim = table[DIFF_DIM] ? f.by_dim : NULL };
	*nbytes = at;
	return f;
}

static int64_t found_bytes(const struct pass *c)
{
	int64_t nbytes;

	found_at(c, NULL, &nbytes);
	return nbytes;
}

static struct found found_init(const struct pass *c, struct kvt_worker *worker)
{
	int64_t nbytes = found_bytes(c);

	return found_at(c, memset(worker->result, 0, (size_t)nbytes), &nbytes);
}

/* All slots of a segment in one layer; the first of them is slot 'at' of the box. */
static void measure_segment(const struct pass *c, struct found *f,
			    const struct chunk *chunk, int64_t layer,
			    const struct diff_segment *segment, int64_t at,
			    struct heat *heat)
{
	const struct diff_pair *p = c->p;
	const uint8_t *a = pass_slots_at(c, chunk, SIDE_A, layer, segment);
	const uint8_t *b = pass_slots_at(c, chunk, SIDE_B, layer, segment);
	int64_t head = (layer - chunk->layer) * p->nheads, mine = heat - f->by_segment;
	struct heat *half = f->by_half + (layer - chunk->layer) * p->nkv;

	for (int64_t s = 0; s < segment->count; s++) {
		struct diff_sums slot = { 0 };

		for (int64_t h = 0; h < p->nheads; h++)
		for (int64_t k = 0; k < p->nkv; k++) {
			const int64_t key[KVT_NAXES] = { layer, segment->ordinal, s, h,
							 k };
			struct deviation first = { .set = false };
			struct diff_sums sums = { 0 };

			f->findings.first = &first;
			f->findings.sums = &sums;
			meter_run(c->out->meter, a, b, p->content, key, &f->findings);
			a += p->stored[SIDE_A] * p->group[SIDE_A]->dtype->elem;
			b += p->stored[SIDE_B] * p->group[SIDE_B]->dtype->elem;
			kvt_deviation_keep(f->first, &first);
			if (c->firsts) {
				kvt_deviation_keep(&f->head_first[head + h], &first);
				kvt_deviation_keep(&f->segment_first[mine], &first);
			}
			sums_add(&f->by_head[head + h], &sums);
			sums_add(&slot, &sums);
			heat_add_sums(&half[k], &sums);
		}
		heat_add_sums(heat, &slot);
		f->bad_slot[at + s] |= slot.outside > 0;
		if (c->table[DIFF_TOKEN])
			heat_add_sums(&f->by_slot[at + s], &slot);
	}
}

static int64_t column_of(const struct diff_result *r, int64_t ordinal)
{
	return ordinal * r->ncolumns / r->pair->nsegments;
}

/* What a box has of each slot of a segment; the first of them is slot 'at' of it. */
static void merge_slots(struct diff_result *out, const struct found *f,
			const struct diff_segment *segment, int64_t at)
{
	for (int64_t s = 0; s < segment->count; s++) {
		out->bad_slot[segment->before + s] |= f->bad_slot[at + s];
		if (out->by_slot)
			kvt_heat_add(&out->by_slot[segment->before + s],
				   &f->by_slot[at + s]);
	}
}

static void merge_slices(struct diff_result *out, const struct chunk *chunk,
			 const struct found *f)
{
	int64_t nkv = out->pair->nkv, n = (chunk->end_layer - chunk->layer) * nkv;

	for (int64_t i = 0; i < n; i++) {
		kvt_heat_add(&out->by_kv[i % nkv], &f->by_half[i]);
		kvt_heat_add(&out->by_half[chunk->layer * nkv + i], &f->by_half[i]);
	}
	for (int64_t d = 0; d < out->pair->content; d++) {
		out->bad_dim[d] |= f->bad_dim[d];
		if (out->by_dim)
			kvt_heat_add(&out->by_dim[d], &f->by_dim[d]);
	}
}

static void merge_found(struct diff_result *out, const struct pass *c,
			const struct chunk *chunk, const struct found *f)
{
	const struct diff_pair *p = c->p;
	int64_t nsegments = chunk->end_segment - chunk->segment, at = 0;

	for (int64_t i = 0; i < nsegments; i++) {
		const struct diff_segment *segment = &p->segment[chunk->segment + i];

		merge_slots(out, f, segment, at);
		at += segment->count;
	}
	merge_slices(out, chunk, f);
	for (int64_t l = chunk->layer; l < chunk->end_layer; l++) {
		int64_t local = l - chunk->layer;

		for (int64_t h = 0; h < p->nheads; h++) {
			const struct diff_sums *sums = &f->by_head[local * p->nheads + h];

			sums_add(&out->sums, sums);
			heat_add_sums(&out->by_head[l * p->nheads + h], sums);
			if (c->firsts)
				kvt_deviation_keep(&out->head_first[l * p->nheads + h],
					       &f->head_first[local * p->nheads + h]);
		}
		for (int64_t i = 0; i < nsegments; i++) {
			int64_t ordinal = p->segment[chunk->segment + i].ordinal;
			int64_t column = column_of(out, ordinal);

			kvt_heat_add(&out->by_segment[l * out->ncolumns + column],
				   &f->by_segment[local * nsegments + i]);
			kvt_heat_add(&out->by_part[ordinal],
				   &f->by_segment[local * nsegments + i]);
			if (c->firsts)
				kvt_deviation_keep(&out->segment_first[l * out->ncolumns +
								   column],
					       &f->segment_first[local * nsegments + i]);
		}
	}
	kvt_deviation_keep(&out->first, f->first);
	for (int64_t i = 0; i < *f->nworst; i++)
		worst_insert(out->worst, &out->nworst, c->nworst, &f->worst[i]);
}

/* Results come from files, too: is it an element of the pair, or none? */
static bool is_deviation(const struct deviation *d, const struct diff_pair *p)
{
	const int64_t n[KVT_NAXES] = {
		p->nlayers, p->nsegments, INT64_MAX, p->nheads, p->nkv, p->content,
	};
	uint8_t set;

	memcpy(&set, &d->set, sizeof(set));
	if (set > 1)
		return false;
	for (int a = 0; set && a < KVT_NAXES; a++)
		if (d->key[a] < 0 || d->key[a] >= n[a])
			return false;
	return !set || d->key[KVT_AXIS_S] <
		       p->segment[p->ordered[d->key[KVT_AXIS_B]]].count;
}

static bool are_deviations(const struct found *f, const struct pass *c)
{
	int64_t heads = c->firsts ? c->cut.layers * c->p->nheads : 0;
	int64_t segments = c->firsts ? c->cut.layers * c->cut.blocks : 0;
	bool good = is_deviation(f->first, c->p);

	for (int64_t i = 0; good && i < *f->nworst; i++)
		good = is_deviation(&f->worst[i], c->p) && f->worst[i].set;
	for (int64_t i = 0; good && i < heads; i++)
		good = is_deviation(&f->head_first[i], c->p);
	for (int64_t i = 0; good && i < segments; i++)
		good = is_deviation(&f->segment_first[i], c->p);
	return good;
}

/* kvt_merge_fn */
static bool take_found(void *context, int64_t i, const void *result, int64_t nbytes)
{
	const struct pass *c = context;
	const struct chunk chunk = pass_chunk(c, NULL, i);
	int64_t most, least;
	struct found f = found_at(c, (void *)(uintptr_t)result, &most);

	least = most - c->nworst * (int64_t)sizeof(*f.worst);

	if (nbytes < least || *f.nworst < 0 || *f.nworst > c->nworst ||
	    nbytes != least + *f.nworst * (int64_t)sizeof(*f.worst) ||
	    !are_deviations(&f, c))
		return false;
	merge_found(c->out, c, &chunk, &f);
	return true;
}

static enum kvt_status measure_box(struct kvt_worker *worker, void *context, int64_t i,
				   struct kvt_error *err)
{
	struct pass *c = context;
	struct chunk chunk = pass_chunk(c, worker, i);
	int64_t nsegments = chunk.end_segment - chunk.segment;
	struct found f = found_init(c, worker);
	enum kvt_status status = pass_read(worker, c, &chunk, err);

	if (status)
		return status;
	for (int64_t l = chunk.layer; l < chunk.end_layer; l++)
		for (int64_t j = 0, at = 0; j < nsegments; j++) {
			const struct diff_segment *segment =
				&c->p->segment[chunk.segment + j];

			measure_segment(c, &f, &chunk, l, segment, at,
					&f.by_segment[(l - chunk.layer) * nsegments + j]);
			at += segment->count;
		}
	*f.nworst = f.findings.nworst;
	worker->nresult = (uint8_t *)(f.worst + *f.nworst) - worker->result;
	kvt_worker_progress(worker, pass_elements(c, &chunk) * element_bytes(c));
	return KVT_OK;
}

/* A table of slots, or of all of a slot, is in memory as a whole. */
int64_t kvt_diff_table_bytes(const struct diff_pair *p, enum diff_axis axis)
{
	int64_t rows = axis == DIFF_TOKEN ? p->nslots : axis == DIFF_DIM ? p->content : 0;

	return rows * (int64_t)(sizeof(struct heat) + sizeof(struct diff_row));
}

static enum kvt_status check_tables(const struct pass *c, const struct kvt_run *run,
				    struct kvt_error *err)
{
	int64_t limit = kvt_run_memory(run);

	for (int axis = 0; axis < DIFF_AXES; axis++) {
		int64_t nbytes = kvt_diff_table_bytes(c->p, axis);

		if (c->table[axis] && nbytes > limit / 2)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s: a table of %lld %ss needs %s, more than half of the %s of --mem-limit; slice the dumps, or give more",
					c->p->id, LL(axis == DIFF_TOKEN ? c->p->nslots :
									  c->p->content),
					kvt_diff_axis_name(axis),
					kvt_size_string(nbytes).s,
					kvt_size_string(limit).s);
	}
	return KVT_OK;
}

/* Of everything that a pair has one of for each: n of 'size' bytes, all zeros. */
static void *zeros(int64_t n, size_t size)
{
	return calloc((size_t)n + 1, size);
}

static enum kvt_status start_result(struct pass *c, struct kvt_error *err)
{
	const struct diff_pair *p = c->p;
	struct diff_result *out = c->out;

	out->ncolumns = p->nsegments < DIFF_MAX_COLUMNS ? p->nsegments : DIFF_MAX_COLUMNS;
	out->by_head = zeros(p->nlayers * p->nheads, sizeof(*out->by_head));
	out->by_segment = zeros(p->nlayers * out->ncolumns, sizeof(*out->by_segment));
	out->by_part = zeros(p->nsegments, sizeof(*out->by_part));
	out->worst = zeros(c->nworst, sizeof(*out->worst));
	out->by_half = zeros(p->nlayers * p->nkv, sizeof(*out->by_half));
	out->bad_slot = zeros(p->nslots, 1);
	out->bad_dim = zeros(p->content, 1);
	if (c->table[DIFF_TOKEN])
		out->by_slot = zeros(p->nslots, sizeof(*out->by_slot));
	if (c->table[DIFF_DIM])
		out->by_dim = zeros(p->content, sizeof(*out->by_dim));
	if (c->firsts) {
		out->head_first = zeros(p->nlayers * p->nheads, sizeof(*out->head_first));
		out->segment_first = zeros(p->nlayers * out->ncolumns,
					   sizeof(*out->segment_first));
	}
	if (!out->head_first != !c->firsts || !out->segment_first != !c->firsts ||
	    !out->by_half || !out->by_head || !out->by_segment || !out->by_part ||
	    !out->worst || !out->bad_slot || !out->bad_dim ||
	    !out->by_slot != !c->table[DIFF_TOKEN] || !out->by_dim != !c->table[DIFF_DIM])
		return kvt_no_memory(err, NULL);
	return KVT_OK;
}

enum kvt_status pass_measure(struct pass *c, const struct kvt_run *run,
			     struct kvt_error *err)
{
	struct diff_result *out = c->out;
	struct kvt_work work = pass_work(c, measure_box, "measuring");
	enum kvt_status status;

	if ((status = check_tables(c, run, err)) || (status = start_result(c, err)))
		return status;
	work.merge = take_found;
	work.result_bytes = found_bytes(c);
	work.follows = "comparing";
	if ((status = kvt_work_run(&work, run, err)))
		return status;
	out->measured = true;
	out->by_digest = 0;
	out->equal = !out->sums.unequal;
	return KVT_OK;
}
