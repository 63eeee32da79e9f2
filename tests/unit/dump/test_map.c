/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_map.c - composing random lists of parts, against arrays of numbers
 *
 * The model knows nothing of parts: a dump is an array that says for each element
 * which number it has, 0 for none.  Each step is carried out on the array by the
 * definition and by derive(); then everything that can be asked of the dump must be
 * what the array says: boxes in any layout, single elements, stored tiles, cells.
 * Leaves are arrays in memory, or tiles that this file makes.
 */
#include "lib/derived/derive.h"
#include "tests/unit/random.h"
#include "tests/unit/tests.h"

enum { MOST = 1 << 14, NCHAINS = 600 };

/* ---- the model --------------------------------------------------------------- */

struct model {
	int64_t n[KVT_NAXES];
	int32_t at[MOST];
};

static int64_t count(const int64_t n[KVT_NAXES])
{
	int64_t all = 1;

	for (int a = 0; a < KVT_NAXES; a++)
		all *= n[a];
	return all;
}

static int64_t place(const int64_t n[KVT_NAXES], const int64_t index[KVT_NAXES])
{
	int64_t at = 0;

	for (int a = 0; a < KVT_NAXES; a++)
		at = at * n[a] + index[a];
	return at;
}

static bool next(int64_t index[KVT_NAXES], const struct kvt_box *box)
{
	for (int a = KVT_NAXES - 1; a >= 0; a--) {
		if (++index[a] < box->end[a])
			return true;
		index[a] = box->begin[a];
	}
	return false;
}

/* ---- leaves ------------------------------------------------------------------ */

struct test_leaf {
	struct kvt_leaf leaf;
	struct model model;
};

static const struct test_leaf *test_leaf(const struct kvt_leaf *leaf)
{
	return (const struct test_leaf *)leaf;
}

static void put_dense(int32_t *out, const struct model *m, const struct kvt_group *g,
		      const struct kvt_box *box)
{
	int64_t index[KVT_NAXES], inside[KVT_NAXES];
	struct kvt_views views;

	ok(kvt_layout_views(&views, &g->layout, box, 4, NULL));
	memset(out, 0, (size_t)views.nbytes);
	memcpy(index, box->begin, sizeof(index));
	do {
		bool is_there = true;

		for (int a = 0; a < KVT_NAXES; a++) {
			inside[a] = index[a] - box->begin[a];
			is_there &= index[a] < m->n[a];
		}
		if (is_there)
			out[kvt_views_at(&views, inside) / 4] = m->at[place(m->n, index)];
	} while (next(index, box));
}

static enum kvt_status leaf_read(const struct kvt_leaf *leaf, int group,
				 const struct kvt_box *box, void *buf,
				 struct kvt_error *err)
{
	(void)err;
	put_dense(buf, &test_leaf(leaf)->model, &leaf->snapshot.group[group], box);
	return KVT_OK;
}

/* A tile's place is the number of its first element. */
static enum kvt_status leaf_find(const struct kvt_leaf *leaf, int group,
				 const int64_t begin[KVT_NAXES], struct kvt_extent *out,
				 struct kvt_error *err)
{
	const struct kvt_tiling *t = &leaf->tiling[group];
	const int64_t *n = leaf->snapshot.group[group].shape.n;

	(void)err;
	for (int a = 0; a < KVT_NAXES; a++) {
		assert_in_range(begin[a], 0, n[a] - 1);
		assert_int_equal(begin[a] % t->n[a], 0);
	}
	*out = (struct kvt_extent){ .offset = place(n, begin), .nbytes = t->nbytes };
	return KVT_OK;
}

static enum kvt_status leaf_load(const struct kvt_leaf *leaf,
				 const struct kvt_extent *extent,
				 struct kvt_stored *out, struct kvt_error *err)
{
	const struct kvt_group *g = &leaf->snapshot.group[0];
	int64_t begin[KVT_NAXES], rest = extent->offset;
	struct kvt_box box;

	(void)err;
	for (int a = KVT_NAXES - 1; a >= 0; a--) {
		begin[a] = rest % g->shape.n[a];
		rest /= g->shape.n[a];
	}
	box = tile_box(&leaf->tiling[0], begin);
	put_dense((int32_t *)(void *)out->bytes, &test_leaf(leaf)->model, g, &box);
	out->nbytes = extent->nbytes;
	out->filter_mask = 0;
	return KVT_OK;
}

static bool leaf_has_cells(const struct kvt_leaf *leaf, int group)
{
	return leaf->tiling[group].nbytes > 0;
}

/* A cell is the number of its first element. */
static enum kvt_status leaf_cells(const struct kvt_leaf *leaf, int group,
				  const struct kvt_box *box, uint64_t *cells,
				  struct kvt_error *err)
{
	const struct model *m = &test_leaf(leaf)->model;
	struct kvt_box firsts = *box;
	int64_t index[KVT_NAXES];

	(void)group, (void)err;
	box_take(&firsts, KVT_AXIS_S, 0, 1);
	box_take(&firsts, KVT_AXIS_D, 0, 1);
	memcpy(index, firsts.begin, sizeof(index));
	do {
		*cells++ = (uint64_t)m->at[place(m->n, index)];
	} while (next(index, &firsts));
	return KVT_OK;
}

static void leaf_close(struct kvt_leaf *leaf)
{
	free(leaf);
}

static const struct kvt_leaf_ops leaf_ops = {
	.read_box = leaf_read, .find_tile = leaf_find, .load_tile = leaf_load,
	.has_cells = leaf_has_cells, .fetch_cells = leaf_cells, .close = leaf_close,
};

static const char *const layouts[] = { "LBSHKD", "BLHKSD", "BLSKHD", "DKHSBL" };

static void random_layout(struct kvt_layout *out)
{
	ok(kvt_layout_parse(out, layouts[below(4)], NULL));
}

static void fill_group(struct kvt_group *g, const int64_t n[KVT_NAXES])
{
	strcpy(g->id, "g0");
	g->dtype = kvt_dtype_find("int32");
	if (!g->dtype)
		g->dtype = kvt_dtype_find("float32");
	assert_non_null(g->dtype);
	memcpy(g->shape.n, n, sizeof(g->shape.n));
	g->shape.elem = 4;
	g->block_size = n[KVT_AXIS_S];
	g->tokens_per_slot = 1;
	g->total_heads = n[KVT_AXIS_H];
	g->replication = 1;
}

/* Elements are numbered from *first on; tiled or not. */
static struct kvt_dump *make_leaf(struct model *m, int32_t *first,
				  const int64_t n[KVT_NAXES],
				  const struct kvt_layout *layout, bool tiled)
{
	struct test_leaf *t = calloc(1, sizeof(*t));
	struct kvt_dump *dump;

	assert_non_null(t);
	memcpy(t->model.n, n, sizeof(t->model.n));
	for (int64_t i = 0; i < count(n); i++)
		t->model.at[i] = ++*first;
	*m = t->model;
	t->leaf.ops = &leaf_ops;
	t->leaf.format = "test";
	kvt_snapshot_init(&t->leaf.snapshot);
	t->leaf.snapshot.ngroups = 1;
	fill_group(&t->leaf.snapshot.group[0], n);
	t->leaf.snapshot.group[0].layout = *layout;
	if (tiled) {
		struct kvt_tiling *tiling = &t->leaf.tiling[0];

		tiling->nbytes = tiling->elem = 4;
		for (int a = 0; a < KVT_NAXES; a++) {
			tiling->n[a] = a == KVT_AXIS_S || a == KVT_AXIS_D ? n[a] :
				       1 + below(2);
			tiling->nbytes *= tiling->n[a];
		}
	}
	ok(kvt_dump_of_leaf(&dump, &t->leaf, NULL));
	return dump;
}

/* ---- one step ---------------------------------------------------------------- */

static struct kvt_segment random_segment(int64_t extent)
{
	int64_t from = below(extent);

	return (struct kvt_segment){ 0, from, 1 + below(extent - from) };
}

/* Some of 0 to n - 1, ascending or in any order. */
static int64_t *random_list(int64_t *n, int64_t extent)
{
	int64_t *list = malloc((size_t)extent * sizeof(*list));
	bool ascending = below(2);

	*n = 0;
	for (int64_t i = 0; i < extent; i++)
		if (below(3) || (!*n && i + 1 == extent))
			list[(*n)++] = i;
	for (int64_t i = *n - 1; !ascending && i > 0; i--) {
		int64_t j = below(i + 1), swap = list[i];

		list[i] = list[j];
		list[j] = swap;
	}
	return list;
}

/* Blocks of 'slots' slots; each is some of the source's slots, or none. */
static void random_spans(struct step_group *step, int64_t nblocks, int64_t slots,
			 const int64_t source[KVT_NAXES])
{
	int64_t room = nblocks * slots, n = 0, at, size = source[KVT_AXIS_S];
	bool aligned = slots % size == 0 || size % slots == 0;

	step->first = calloc((size_t)nblocks + 1, sizeof(*step->first));
	step->span = calloc((size_t)room + 1, sizeof(*step->span));
	for (int64_t b = 0; b < nblocks; b++) {
		for (at = 0; at < slots; ) {
			struct map_span s = { .at = (uint32_t)at };
			int64_t row = (b * slots + at) % (source[KVT_AXIS_B] * size);

			if (!aligned || !below(4))
				row = below(source[KVT_AXIS_B] * size);
			s.block = (uint32_t)(row / size);
			s.slot = (uint32_t)(row % size);
			s.count = (uint32_t)(size - s.slot);
			if (s.count > slots - at)
				s.count = (uint32_t)(slots - at);
			at += s.count;
			if (below(8))		/* else these are nothing's */
				step->span[n++] = s;
		}
		step->first[b + 1] = n;
	}
}

/* What the array has where the step says; 0 where no part does. */
static void apply(struct model *out, const struct step_group *step,
		  const struct model *const *source)
{
	struct kvt_box all = { .begin = { 0 } };
	int64_t i[KVT_NAXES] = { 0 };

	memcpy(all.end, out->n, sizeof(all.end));
	do {
		for (int p = 0; p < step->nparts; p++) {
			const struct step_part *part = &step->part[p];
			const struct model *from = source[part->source];
			int64_t there[KVT_NAXES], block = -1, slot = -1;

			if (step->first)
				for (int64_t s = step->first[i[1]];
				     s < step->first[i[1] + 1]; s++) {
					const struct map_span *span = &step->span[s];

					int64_t inside = i[2] - span->at;

					if (inside >= 0 && inside < span->count) {
						block = span->block;
						slot = span->slot + inside;
					}
				}
			else {
				block = step->block ? step->block[i[1]] : i[1];
				slot = i[2];
			}
			there[0] = step->layer ? step->layer[i[0]] : i[0];
			there[1] = block;
			there[2] = slot;
			there[3] = i[3] - part->heads.at + part->heads.from;
			there[4] = i[4] - part->kv.at + part->kv.from;
			if (there[0] < 0 || block < 0 || i[3] < part->heads.at ||
			    i[3] >= part->heads.at + part->heads.count ||
			    i[4] < part->kv.at || i[4] >= part->kv.at + part->kv.count)
				continue;
			for (int c = 0; c < part->nchannels; c++) {
				const struct kvt_segment *s = &part->channel[c];

				if (i[5] < s->at || i[5] >= s->at + s->count)
					continue;
				there[5] = i[5] - s->at + s->from;
				out->at[place(out->n, i)] =
					from->at[place(from->n, there)];
			}
		}
	} while (next(i, &all));
}

static struct step_part *new_part(struct step_group *step)
{
	step->part = realloc(step->part,
			     (size_t)(step->nparts + 1) * sizeof(*step->part));
	memset(&step->part[step->nparts], 0, sizeof(*step->part));
	return &step->part[step->nparts++];
}

static void whole_part(struct step_part *part, const int64_t n[KVT_NAXES])
{
	part->heads.count = n[KVT_AXIS_H];
	part->kv.count = n[KVT_AXIS_K];
	part->nchannels = 1;
	part->channel[0].count = n[KVT_AXIS_D];
}

/* Layers, blocks, heads, keys or values, channels of one dump. */
static void step_slice(struct derivation *d, struct model *out, const struct model *m)
{
	struct step_group *step = &d->group[0];
	struct step_part *part = new_part(step);

	memcpy(out->n, m->n, sizeof(out->n));
	whole_part(part, m->n);
	if (below(2))
		step->layer = random_list(&out->n[KVT_AXIS_L], m->n[KVT_AXIS_L]);
	if (below(2))
		step->block = random_list(&out->n[KVT_AXIS_B], m->n[KVT_AXIS_B]);
	if (below(2))
		part->heads = random_segment(m->n[KVT_AXIS_H]);
	if (!below(3))
		part->kv = random_segment(m->n[KVT_AXIS_K]);
	if (!below(3))
		part->channel[0] = random_segment(m->n[KVT_AXIS_D]);
	out->n[KVT_AXIS_H] = part->heads.count;
	out->n[KVT_AXIS_K] = part->kv.count;
	out->n[KVT_AXIS_D] = part->channel[0].count;
}

/* Blocks of another size. */
static void step_reblock(struct derivation *d, struct model *out, const struct model *m)
{
	struct step_group *step = &d->group[0];
	int64_t rows = m->n[KVT_AXIS_B] * m->n[KVT_AXIS_S];

	memcpy(out->n, m->n, sizeof(out->n));
	out->n[KVT_AXIS_S] = below(2) ? m->n[KVT_AXIS_S] : 1 + below(6);
	out->n[KVT_AXIS_B] = (rows + out->n[KVT_AXIS_S] - 1) / out->n[KVT_AXIS_S];
	whole_part(new_part(step), m->n);
	random_spans(step, out->n[KVT_AXIS_B], out->n[KVT_AXIS_S], m->n);
}

/* Two dumps of one shape, side by side along heads. */
static void step_merge(struct derivation *d, struct model *out, const struct model *m)
{
	struct step_group *step = &d->group[0];

	memcpy(out->n, m->n, sizeof(out->n));
	out->n[KVT_AXIS_H] = 2 * m->n[KVT_AXIS_H];
	for (int i = 0; i < 2; i++) {
		struct step_part *part = new_part(step);

		whole_part(part, m->n);
		part->source = i;
		part->heads.at = i * m->n[KVT_AXIS_H];
	}
}

/* Blocks of one where they are in the list, of the other elsewhere. */
static void step_graft(struct derivation *d, struct model *out, const struct model *m)
{
	struct step_group *step = &d->group[0], *other = calloc(1, sizeof(*other));
	int64_t nb = m->n[KVT_AXIS_B];

	memcpy(out->n, m->n, sizeof(out->n));
	step->next = other;
	step->block = malloc((size_t)nb * sizeof(*step->block));
	other->block = malloc((size_t)nb * sizeof(*step->block));
	for (int64_t b = 0; b < nb; b++) {
		bool grafted = below(2);

		step->block[b] = grafted ? -1 : b;
		other->block[b] = grafted ? below(nb) : -1;
	}
	whole_part(new_part(step), m->n);
	whole_part(new_part(other), m->n);
	other->part->source = 1;
}

/* The leaves that a step needs are made here; what it was made of is closed. */
static void take_step(struct kvt_dump **dump, struct model *m, int32_t *numbers,
		      bool tiled)
{
	static void (*const steps[])(struct derivation *, struct model *,
				     const struct model *) = {
		step_slice, step_reblock, step_merge, step_graft,
	};
	struct model *out = calloc(1, sizeof(*out)), *second = calloc(1, sizeof(*second));
	const struct model *models[] = { m, second };
	const struct kvt_dump *source[] = { *dump, NULL };
	struct derivation d = { .nsources = 1, .source = source };
	struct kvt_dump *other = NULL, *made;
	bool fits;

	steps[below(4)](&d, out, m);
	fits = count(out->n) <= MOST;
	if (fits && (d.group[0].next || d.group[0].nparts > 1)) {
		other = make_leaf(second, numbers, m->n, &kvt_dump_group(*dump,
									 0)->layout,
				  tiled);
		source[1] = other;
		d.nsources = 2;
	}
	kvt_snapshot_init(&d.snapshot);
	if (!fits) {
		assert_int_equal(derive(&made, &d, KVT_USAGE, NULL), KVT_USAGE);
	} else {
		for (const struct step_group *s = &d.group[0]; s; s = s->next)
			apply(out, s, models);
		d.snapshot.ngroups = 1;
		d.snapshot.group[0] = *kvt_dump_group(*dump, 0);
		fill_group(&d.snapshot.group[0], out->n);
		ok(derive(&made, &d, KVT_OK, NULL));
		/* what it was made of may go: it holds the leaves */
		kvt_dump_close(*dump);
		kvt_dump_close(other);
		*dump = made;
		*m = *out;
	}
	free(out);
	free(second);
}

/* ---- everything that can be asked ---------------------------------------------- */

static struct kvt_box random_box(const int64_t n[KVT_NAXES])
{
	struct kvt_box box;

	for (int a = 0; a < KVT_NAXES; a++) {
		bool all = below(2);

		box.begin[a] = all ? 0 : below(n[a]);
		box.end[a] = all ? n[a] : box.begin[a] + 1 + below(n[a] - box.begin[a]);
	}
	return box;
}

static void check_box(const struct kvt_dump *dump, const struct model *m,
		      const struct kvt_box *box, const struct kvt_layout *layout)
{
	struct kvt_group g = *kvt_dump_group(dump, 0);
	int32_t *want = malloc(4 * MOST), *got = malloc(4 * MOST);
	struct kvt_views views;

	if (layout)
		g.layout = *layout;
	ok(kvt_layout_views(&views, &g.layout, box, 4, NULL));
	put_dense(want, m, &g, box);
	memset(got, 0xa5, 4 * MOST);
	ok(kvt_dump_read(dump, 0, box, layout, got, NULL));
	assert_memory_equal(want, got, (size_t)views.nbytes);
	free(want);
	free(got);
}

static void check_elements(const struct kvt_dump *dump, const struct model *m)
{
	struct kvt_box all = { .begin = { 0 } };
	int64_t index[KVT_NAXES] = { 0 }, there[KVT_NAXES];
	bool sparse = false;

	memcpy(all.end, m->n, sizeof(all.end));
	do {
		int32_t want = m->at[place(m->n, index)];
		int group;
		const struct kvt_dump *leaf = kvt_dump_trace(dump, 0, index, &group,
							     there);

		sparse |= !want;
		if (!want) {
			assert_null(leaf);
			continue;
		}
		assert_non_null(leaf);
		assert_int_equal(group, 0);
		assert_int_equal(test_leaf(kvt_dump_is_leaf(leaf))->model.at[
				place(kvt_dump_group(leaf, 0)->shape.n, there)], want);
	} while (next(index, &all));
	assert_int_equal(dump->group[0].sparse, sparse);
}

/* Does a leaf store just this tile? */
static bool is_stored(const struct kvt_dump *dump, const struct kvt_box *tile,
		      const struct kvt_tiling *tiling)
{
	const struct kvt_dump *leaf;
	int64_t there[KVT_NAXES];
	int group;

	if (!(leaf = kvt_dump_trace(dump, 0, tile->begin, &group, there)))
		return false;
	for (int a = 0; a < KVT_NAXES; a++) {
		int64_t extent = kvt_dump_group(leaf, 0)->shape.n[a];
		int64_t n = leaf_of(leaf)->tiling[0].n[a];
		int64_t left = extent - there[a] < n ? extent - there[a] : n;

		/* of blocks of another size other numbers make the same tile */
		if (a != KVT_AXIS_B && a != KVT_AXIS_S &&
		    (tiling->n[a] != n || left != tile->end[a] - tile->begin[a]))
			return false;
		if (there[a] % n)
			return false;
	}
	return true;
}

static void check_tiles(const struct kvt_dump *dump, const struct model *m)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(dump, 0);
	const struct kvt_group *g = kvt_dump_group(dump, 0);
	struct kvt_box all = { .begin = { 0 } }, grid = all;
	int64_t at[KVT_NAXES] = { 0 };
	int32_t *want = malloc(4 * MOST), *got = malloc(4 * MOST);

	memcpy(all.end, m->n, sizeof(all.end));
	for (int a = 0; tiling && a < KVT_NAXES; a++)
		grid.end[a] = (m->n[a] + tiling->n[a] - 1) / tiling->n[a];
	if (tiling)
		do {
			struct kvt_stored stored = { .bytes = (uint8_t *)got,
						     .capacity = 4 * MOST };
			int64_t begin[KVT_NAXES];
			struct kvt_box tile, part;

			for (int a = 0; a < KVT_NAXES; a++)
				begin[a] = at[a] * tiling->n[a];
			tile = tile_box(tiling, begin);
			part = box_cut(&tile, &g->shape);
			if (!kvt_dump_has_tiles(dump, 0, &part))
				continue;
			assert_true(is_stored(dump, &part, tiling));
			put_dense(want, m, g, &tile);
			memset(got, 0xa5, 4 * MOST);
			ok(kvt_read_tile(dump, 0, begin, &stored, NULL));
			assert_int_equal(stored.nbytes, tiling->nbytes);
			assert_memory_equal(want, got, (size_t)tiling->nbytes);
		} while (next(at, &grid));
	free(want);
	free(got);
}

static void check_cells(const struct kvt_dump *dump, const struct model *m)
{
	struct kvt_box box = random_box(m->n), firsts;
	int64_t index[KVT_NAXES];
	uint64_t *cells = malloc(8 * MOST);
	int64_t i = 0;

	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++)
		box_take(&box, (enum kvt_axis)a, 0, m->n[a]);
	firsts = box;
	box_take(&firsts, KVT_AXIS_S, 0, 1);
	box_take(&firsts, KVT_AXIS_D, 0, 1);
	memcpy(index, firsts.begin, sizeof(index));
	if (kvt_dump_has_cells(dump, 0)) {
		ok(kvt_read_cells(dump, 0, &box, cells, NULL));
		do {
			assert_int_equal(cells[i++], m->at[place(m->n, index)]);
		} while (next(index, &firsts));
	} else {
		assert_int_equal(kvt_read_cells(dump, 0, &box, cells, NULL), KVT_USAGE);
	}
	free(cells);
}

static void run_chain(int chain)
{
	struct model *m = calloc(1, sizeof(*m));
	struct kvt_dump *dump;
	struct kvt_layout layout;
	int32_t numbers = 0;
	bool tiled = chain % 2;
	int64_t n[KVT_NAXES];

	seed = (uint64_t)chain + 1;
	for (int a = 0; a < KVT_NAXES; a++)
		n[a] = 1 + below(a == KVT_AXIS_K ? 2 : a == KVT_AXIS_B ? 6 : 4);
	random_layout(&layout);
	dump = make_leaf(m, &numbers, n, &layout, tiled);
	for (int64_t steps = below(5), i = 0; i <= steps; i++) {
		for (int b = 0; b < 3; b++) {
			struct kvt_box box = random_box(m->n);

			random_layout(&layout);
			check_box(dump, m, &box, b ? &layout : NULL);
		}
		check_elements(dump, m);
		check_tiles(dump, m);
		check_cells(dump, m);
		if (i < steps)
			take_step(&dump, m, &numbers, tiled);
	}
	kvt_dump_close(dump);
	free(m);
}

static void test_chains(void)
{
	for (int chain = 0; chain < NCHAINS; chain++)
		run_chain(chain);
}

/* ---- what composition is for ------------------------------------------------------ */

/* Blocks cut in two and joined again are blocks, and their tiles are tiles. */
static void test_there_and_back(void)
{
	const int64_t n[KVT_NAXES] = { 2, 4, 4, 2, 1, 3 };
	struct model *m = calloc(1, sizeof(*m));
	struct kvt_layout layout;
	struct kvt_dump *dump;
	struct kvt_box all;
	int32_t numbers = 0;

	seed = 1;
	ok(kvt_layout_parse(&layout, "LBSHKD", NULL));
	dump = make_leaf(m, &numbers, n, &layout, true);
	for (int half = 0; half < 2; half++) {
		const struct kvt_dump *source = dump;
		struct derivation d = { .nsources = 1, .source = &source };
		int64_t nb = half ? 4 : 8, slots = half ? 4 : 2;
		struct step_group *step = &d.group[0];
		struct kvt_dump *made;

		kvt_snapshot_init(&d.snapshot);
		d.snapshot.ngroups = 1;
		d.snapshot.group[0] = *kvt_dump_group(dump, 0);
		d.snapshot.group[0].shape.n[KVT_AXIS_B] = nb;
		d.snapshot.group[0].shape.n[KVT_AXIS_S] = slots;
		whole_part(new_part(step), n);
		step->first = calloc((size_t)nb + 1, sizeof(*step->first));
		step->span = calloc(16, sizeof(*step->span));
		for (int64_t i = 0; i < 8; i++) {	/* two slots each */
			int64_t row = 2 * i, size = half ? 2 : 4;

			step->span[i] = (struct map_span){
				(uint32_t)(row / size), (uint32_t)(row % size),
				(uint32_t)(row % slots), 2 };
			step->first[row / slots + 1] = i + 1;
		}
		ok(derive(&made, &d, KVT_OK, NULL));
		kvt_dump_close(dump);
		dump = made;
	}
	assert_true(dump->group[0].whole);
	assert_null(dump->group[0].part->blocks);
	assert_null(dump->group[0].part->spans);
	all = kvt_box_whole(&kvt_dump_group(dump, 0)->shape);
	assert_true(kvt_dump_has_tiles(dump, 0, &all));
	assert_true(kvt_dump_has_cells(dump, 0));
	kvt_dump_close(dump);
	free(m);
}

TESTS("map",
	TEST(test_chains), TEST(test_there_and_back))
