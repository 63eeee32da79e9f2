/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pass.c - the one pass over the data: sums of channels, hashes of what is live
 *
 * All blocks are hashed, and looked at for the largest number.  Sums are taken of some
 * thousand slots of a layer, of blocks that are spread evenly over those in use: more
 * would tell no more.  Boxes are added up in their own order, so that the last digits do
 * not depend on the number of threads.  Memory: a word a block and layer, and what the
 * channels of all layers need, some 40 bytes for each element of a token.
 */
#include "lib/ops/strange/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/dump/read.h"
#include "lib/ops/numbers/duty.h"
#include "lib/run/pipeline.h"
#include "lib/tile/hash.h"

enum { ENOUGH_SLOTS = 4096, MOST_SUMS = 256 << 20 };

struct passing {
	struct kvt_dump *dump;
	struct kvt_cut cut;
	struct duties duty;
	struct strange_seen seen;
	bool *sampled;			/* [B] sums are taken of it */
	int64_t *top;			/* elements, the largest, the next to it */
	uint8_t code[256];		/* of a byte: 1 the largest, 2 the next to it */
};

/* What was seen in a box, in the buffers of its worker. */
struct boxed {
	double *sums;			/* of its layers */
	uint64_t *page, *head;
	int64_t *full, top[3];
};

/* ---- a page ----------------------------------------------------------------- */

struct page {
	const struct passing *p;
	const uint8_t *bytes;		/* in cell order */
	int64_t block;
	bool *live;			/* [S] */
	double *row[2];
};

static const uint8_t *row_at(const struct page *page, int64_t i, int64_t s)
{
	const struct kvt_shape *shape = &page->p->seen.group->shape;
	int64_t row = shape->n[KVT_AXIS_D] * shape->elem;

	return page->bytes + (i * shape->n[KVT_AXIS_S] + s) * row;
}

static bool any_bit(const uint8_t *bytes, int64_t n)
{
	return n > 0 && (bytes[0] || memcmp(bytes, bytes + 1, (size_t)n - 1));
}

/* How many slots of the page count. */
static int64_t find_live(struct page *page)
{
	const struct strange_seen *seen = &page->p->seen;
	const int64_t *n = seen->group->shape.n;
	int64_t rows = n[KVT_AXIS_H] * n[KVT_AXIS_K], count = 0;
	enum kvt_duty wanted = seen->known ? KVT_DUTY_LIVE : KVT_DUTY_UNKNOWN;

	for (int64_t s = 0; s < n[KVT_AXIS_S]; s++) {
		page->live[s] = false;
		if (duty_of(&page->p->duty, page->block, s) != wanted)
			continue;
		for (int64_t i = 0; i < rows && !page->live[s]; i++)
			page->live[s] = any_bit(row_at(page, i, s),
						n[KVT_AXIS_D] * seen->group->shape.elem);
		count += page->live[s];
	}
	return count;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t words[2] = { a, b };

	return kvt_cell_hash(words, sizeof(words));
}

/* Of the live slots of a head's keys or values; 0: they are zeros. */
static uint64_t hash_rows(const struct page *page, int64_t i)
{
	const struct kvt_shape *shape = &page->p->seen.group->shape;
	int64_t slots = shape->n[KVT_AXIS_S], row = shape->n[KVT_AXIS_D] * shape->elem;
	uint64_t hash = 0;
	bool any = false;

	for (int64_t s = 0, end; s < slots; s = end) {
		end = s + 1;
		if (!page->live[s])
			continue;
		while (end < slots && page->live[end])
			end++;
		any |= any_bit(row_at(page, i, s), (end - s) * row);
		hash = mix(hash + (uint64_t)s,
			   kvt_cell_hash(row_at(page, i, s), (end - s) * row));
	}
	return any ? hash | 1 : 0;
}

static void count_top(int64_t top[3], const struct page *page, int64_t i)
{
	const int64_t *n = page->p->seen.group->shape.n;

	for (int64_t s = 0; s < n[KVT_AXIS_S]; s++) {
		const uint8_t *row = row_at(page, i, s);

		if (!page->live[s])
			continue;
		top[0] += n[KVT_AXIS_D];
		for (int64_t d = 0; d < n[KVT_AXIS_D]; d++) {
			top[1] += page->p->code[row[d]] == 1;
			top[2] += page->p->code[row[d]] == 2;
		}
	}
}

/* ---- sums ------------------------------------------------------------------- */

static void decode_row(double *out, const struct kvt_group *group, const uint8_t *row)
{
	for (int64_t d = 0; d < group->shape.n[KVT_AXIS_D]; d++) {
		double x = kvt_dtype_decode(group->dtype, row + d * group->shape.elem);

		out[d] = isfinite(x) ? x : 0;
	}
}

/* How far the pair (i, j) turned from one row to the next: the area between them. */
static void add_turns(double *sum, const struct pairing *p, const double *before,
		      const double *row)
{
	for (int64_t i = 0; i < p->count; i++) {
		int64_t a = p->apart == 1 ? 2 * i : i, b = a + p->apart;
		double turn = before[a] * row[b] - before[b] * row[a];

		sum[2 * i] += turn;
		sum[2 * i + 1] += turn * turn;
	}
}

static void add_rows(double *sum, const struct page *page, int64_t i)
{
	const struct strange_seen *seen = &page->p->seen;
	const int64_t *n = seen->group->shape.n;

	for (int64_t s = 0; s < n[KVT_AXIS_S]; s++) {
		double *row = page->row[s % 2], *turns = sum + 2 * n[KVT_AXIS_D];

		if (!page->live[s])
			continue;
		decode_row(row, seen->group, row_at(page, i, s));
		for (int64_t d = 0; d < n[KVT_AXIS_D]; d++) {
			sum[2 * d] += row[d];
			sum[2 * d + 1] += row[d] * row[d];
		}
		for (int p = 0; s && page->live[s - 1] && p < seen->npairings; p++) {
			add_turns(turns, &seen->pairing[p], page->row[!(s % 2)], row);
			turns += 2 * seen->pairing[p].count;
		}
	}
}

/* ---- boxes ------------------------------------------------------------------ */

static void look_at_page(struct boxed *out, struct page *page,
			 int64_t layers_before, uint64_t *hash)
{
	const struct strange_seen *seen = &page->p->seen;
	const int64_t *n = seen->group->shape.n;
	int64_t heads = n[KVT_AXIS_H], kvs = n[KVT_AXIS_K];
	double *sums = seen->numbers ? out->sums + layers_before * seen->layer_room :
		       NULL;
	int64_t live = find_live(page);

	*hash = 0;
	if (!live)
		return;
	if (seen->numbers && page->p->sampled[page->block])
		sums[0] += (double)live;
	/* cell order has keys and values of a head together, what was seen has not */
	for (int64_t i = 0; i < heads * kvs; i++) {
		int64_t to = i % kvs * heads + i / kvs;
		uint64_t rows = hash_rows(page, i);

		if (rows) {
			*hash += mix(rows, (uint64_t)to);
			out->head[layers_before * heads * kvs + to] +=
				mix(rows, (uint64_t)page->block);
		}
		if (page->p->code[0])
			count_top(out->top, page, i);
		if (seen->numbers && page->p->sampled[page->block])
			add_rows(sums + 1 + to * seen->each, page, i);
	}
}

static void take_box(struct passing *p, const struct kvt_box *box,
		     const struct boxed *from)
{
	struct strange_seen *seen = &p->seen;
	const int64_t *n = seen->group->shape.n, *begin = box->begin, *end = box->end;
	int64_t heads = n[KVT_AXIS_H] * n[KVT_AXIS_K], layer = begin[KVT_AXIS_L];
	int64_t layers = end[KVT_AXIS_L] - layer;
	int64_t blocks = end[KVT_AXIS_B] - begin[KVT_AXIS_B];

	for (int64_t i = 0; seen->numbers && i < layers * seen->layer_room; i++)
		seen->sums[layer * seen->layer_room + i] += from->sums[i];
	for (int64_t l = 0; l < layers; l++)
		memcpy(seen->page + (layer + l) * n[KVT_AXIS_B] + begin[KVT_AXIS_B],
		       from->page + l * blocks, (size_t)blocks * sizeof(*from->page));
	for (int64_t i = 0; i < layers * heads; i++)
		seen->head[layer * heads + i] += from->head[i];
	for (int64_t b = 0; b < blocks; b++)
		if (from->full[b] > seen->full[begin[KVT_AXIS_B] + b])
			seen->full[begin[KVT_AXIS_B] + b] = from->full[b];
	for (int i = 0; i < 3; i++)
		p->top[i] += from->top[i];
}

static struct boxed empty_box(const struct kvt_worker *worker, const struct passing *p,
			      int64_t layers, int64_t blocks)
{
	const int64_t *n = p->seen.group->shape.n;
	int64_t heads = n[KVT_AXIS_H] * n[KVT_AXIS_K];
	struct boxed out = { .sums = (double *)(void *)worker->buffer[1],
			     .page = (uint64_t *)(void *)worker->buffer[2] };

	out.head = out.page + layers * blocks;
	out.full = (int64_t *)(void *)(out.head + layers * heads);
	if (p->seen.numbers)
		memset(out.sums, 0, (size_t)(layers * p->seen.layer_room) *
			       sizeof(*out.sums));
	memset(out.page, 0, (size_t)(layers * (blocks + heads) + blocks) * 8);
	return out;
}

static enum kvt_status seek_box(struct kvt_worker *worker, void *context, int64_t i,
				struct kvt_error *err)
{
	struct passing *p = context;
	const struct kvt_shape *shape = &p->seen.group->shape;
	const struct kvt_box box = kvt_cut_box(&p->cut, i);
	int64_t layers = box.end[KVT_AXIS_L] - box.begin[KVT_AXIS_L];
	int64_t blocks = box.end[KVT_AXIS_B] - box.begin[KVT_AXIS_B];
	int64_t cell = shape->n[KVT_AXIS_H] * shape->n[KVT_AXIS_K] *
		       shape->n[KVT_AXIS_S] * shape->n[KVT_AXIS_D] * shape->elem;
	struct boxed out = empty_box(worker, p, layers, blocks);
	struct page page = { .p = p, .bytes = worker->buffer[0] };
	enum kvt_status status;

	page.row[0] = (double *)(void *)worker->buffer[3];
	page.row[1] = page.row[0] + shape->n[KVT_AXIS_D];
	page.live = (bool *)(page.row[1] + shape->n[KVT_AXIS_D]);
	if ((status = kvt_read(worker, p->dump, p->seen.g, &box, &cell_layout,
			       worker->buffer[0], err)))
		return status;
	for (int64_t l = 0; l < layers; l++)
		for (int64_t b = 0; b < blocks; b++) {
			int64_t live = 0;

			page.block = box.begin[KVT_AXIS_B] + b;
			look_at_page(&out, &page, l, &out.page[l * blocks + b]);
			for (int64_t s = 0; s < shape->n[KVT_AXIS_S]; s++)
				live += page.live[s];
			if (live > out.full[b])
				out.full[b] = live;
			page.bytes += cell;
		}
	kvt_worker_progress(worker, p->cut.box_bytes);
	if (!kvt_worker_turn(worker, i))
		return KVT_OK;
	take_box(p, &box, &out);
	kvt_worker_unlock(worker);
	return KVT_OK;
}

/* ---- before and after ------------------------------------------------------- */

static void choose_pairings(struct strange_seen *seen)
{
	int64_t dim = seen->group->shape.n[KVT_AXIS_D];

	seen->pairing[seen->npairings++] = (struct pairing){ 1, dim / 2 };
	for (int64_t part = 2; part <= 8; part *= 2)
		if (dim % part == 0 && dim / part > 1)
			seen->pairing[seen->npairings++] =
				(struct pairing){ dim / part, dim / part };
	seen->each = 2 * dim;
	for (int p = 0; p < seen->npairings; p++)
		seen->each += 2 * seen->pairing[p].count;
}

/* A type of one byte has few numbers: which is the largest, and the next to it? */
static void rank_codes(uint8_t code[256], const struct kvt_dtype *dtype)
{
	double most = 0, next = 0;

	for (int i = 0; i < 256; i++) {
		double x = fabs(kvt_dtype_decode(dtype, &(uint8_t){ (uint8_t)i }));

		if (isfinite(x) && x > most) {
			next = most;
			most = x;
		} else if (isfinite(x) && x > next && x < most) {
			next = x;
		}
	}
	for (int i = 0; i < 256; i++) {
		double x = fabs(kvt_dtype_decode(dtype, &(uint8_t){ (uint8_t)i }));

		code[i] = x == most ? 1 : x == next ? 2 : 3;
	}
}

/* Blocks with slots that may count, as many as are enough, spread evenly. */
static void choose_blocks(struct passing *p)
{
	const int64_t *n = p->seen.group->shape.n;
	enum kvt_duty wanted = p->seen.known ? KVT_DUTY_LIVE : KVT_DUTY_UNKNOWN;
	int64_t used = 0, step, at = 0;

	for (int64_t b = 0; b < n[KVT_AXIS_B]; b++)
		for (int64_t s = 0; s < n[KVT_AXIS_S] && !p->sampled[b]; s++)
			p->sampled[b] = duty_of(&p->duty, b, s) == wanted;
	for (int64_t b = 0; b < n[KVT_AXIS_B]; b++)
		used += p->sampled[b];
	step = (used * n[KVT_AXIS_S] + ENOUGH_SLOTS - 1) / ENOUGH_SLOTS;
	for (int64_t b = 0; b < n[KVT_AXIS_B]; b++)
		if (p->sampled[b])
			p->sampled[b] = at++ % step == 0;
}

/* Keys and values, or a latent, in numbers. */
static bool has_numbers(const struct kvt_group *group)
{
	return group->tokens_per_slot == 1 && !group->content.type &&
	       group->dtype->is_float && group->dtype->number != KVT_POWER &&
	       group->shape.n[KVT_AXIS_D] > 1;
}

static bool prepare(struct passing *p)
{
	struct strange_seen *seen = &p->seen;
	const int64_t *n = seen->group->shape.n;
	int64_t heads = n[KVT_AXIS_H] * n[KVT_AXIS_K];

	if (!duties_init(&p->duty, seen->snapshot, seen->g))
		return false;
	seen->known = duties_known(&p->duty);
	choose_pairings(seen);
	seen->layer_room = 1 + heads * seen->each;
	seen->numbers = has_numbers(seen->group) &&
			n[KVT_AXIS_L] < MOST_SUMS / 8 / seen->layer_room;
	if (seen->numbers) {
		seen->sums = calloc((size_t)(n[KVT_AXIS_L] * seen->layer_room),
				    sizeof(*seen->sums));
		if (!seen->sums)
			return false;
		if (seen->group->dtype->elem == 1)
			rank_codes(p->code, seen->group->dtype);
	}
	p->sampled = calloc((size_t)n[KVT_AXIS_B], sizeof(*p->sampled));
	seen->full = calloc((size_t)n[KVT_AXIS_B], sizeof(*seen->full));
	seen->page = calloc((size_t)(n[KVT_AXIS_L] * n[KVT_AXIS_B]), 8);
	seen->head = calloc((size_t)(n[KVT_AXIS_L] * heads), 8);
	if (!p->sampled || !seen->full || !seen->page || !seen->head)
		return false;
	choose_blocks(p);
	return true;
}

static enum kvt_status pass(struct passing *p, const struct kvt_run *run,
			    struct kvt_error *err)
{
	const struct strange_seen *seen = &p->seen;
	const int64_t *n = seen->group->shape.n;
	int64_t heads = n[KVT_AXIS_H] * n[KVT_AXIS_K];
	struct kvt_work work = { .fn = seek_box, .context = p, .label = "looking" };
	int64_t limit = run->memory ? run->memory / 4 : INT64_MAX;
	enum kvt_status status;

	p->cut = kvt_cut_choose(seen->group, kvt_dump_tiling(p->dump, seen->g), NULL,
				NULL, limit);
	if ((status = kvt_shape_nbytes(&work.total_bytes, &seen->group->shape, err)))
		return status;
	work.count = p->cut.nboxes;
	work.buffer_bytes[0] = p->cut.box_bytes;
	if (seen->numbers)
		work.buffer_bytes[1] = p->cut.layers * seen->layer_room * 8;
	work.buffer_bytes[2] = (p->cut.layers * (p->cut.blocks + heads) +
				p->cut.blocks) * 8;
	work.buffer_bytes[3] = 2 * n[KVT_AXIS_D] * 8 + n[KVT_AXIS_S];
	kvt_work_reads(&work, p->dump, seen->g, &p->cut, &cell_layout);
	return kvt_work_run(&work, run, err);
}

/* States are no rows of tokens, and what has no elements has nothing strange. */
static bool is_sought(const struct kvt_group *group)
{
	bool any = group->tokens_per_slot >= 1;

	for (int a = 0; a < KVT_NAXES; a++)
		any &= group->shape.n[a] > 0;
	return any;
}

enum kvt_status kvt_seek_strange(struct kvt_strangeness *out, struct kvt_dump *dump,
				 int g, const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	struct passing p = { .dump = dump };
	int64_t top[3] = { 0, 0, 0 };
	enum kvt_status status;

	*out = (struct kvt_strangeness){ .n = 0 };
	p.seen = (struct strange_seen){ .snapshot = s, .group = &s->group[g], .g = g };
	p.top = top;
	if (!is_sought(p.seen.group))
		return KVT_OK;
	status = prepare(&p) ? pass(&p, run, err) : kvt_no_memory(err, NULL);
	out->elements = top[0];
	out->top = top[1];
	out->below = top[2];
	if (!status && !(strange_measure(out, &p.seen) &&
			 strange_find_twice(out, &p.seen) && strange_judge(out, &p.seen)))
		status = kvt_no_memory(err, NULL);
	duties_free(&p.duty);
	free(p.sampled);
	free(p.seen.sums);
	free(p.seen.full);
	free(p.seen.page);
	free(p.seen.head);
	return status;
}

void kvt_strangeness_free(struct kvt_strangeness *s)
{
	free(s->turning);
	free(s->unit);
	s->turning = s->unit = NULL;
}
