/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_slice.c - split, transfer and merge of small caches, byte by byte
 *
 * What a rank holds is dealt out here by hand, and bytes are found by an address
 * rule of this file: no view, plan or owner rule of the library is the oracle.
 */
#include "tests/fewer.h"
#include "tests/unit/lib/cut_views.h"
#include "tests/unit/tests.h"

/* ---- models -------------------------------------------------------------- */

struct model {
	const char *what, *orders[3];	/* of several caches of this kind */
	enum kvt_kind kind;
	int heads;			/* H kinds */
	bool no_replicas;
	int nparts;
	struct kvt_spec_part part[3];
	int ntransfers;			/* that can be dealt, TP 1 to 32 */
};

enum { LAYERS = 2, BLOCKS = 2, SLOTS = 2, NK = 2, DIM = 1, ELEM = 2, MAXTP = 32 };

#define ATTENTION { "LBSHKD", "BHLSKD", "LBHKSD" }
#define HEADS(n, transfers) { "attention, " #n " heads", ATTENTION, \
	KVT_FULL_ATTENTION, n, false, 0, { { 0 } }, transfers }
#define CONV(what, transfers, n, ...) { what, { "LBSD", "LBDS", "BLSD" }, \
	KVT_MAMBA_CONV, 1, false, n, { __VA_ARGS__ }, transfers }

static struct model models[] = {
	HEADS(1, 1024), HEADS(2, 289), HEADS(3, 121), HEADS(4, 100),
	HEADS(6, 64), HEADS(8, 49), HEADS(16, 36),
	{ "SSM, 12 heads that must divide", { "LBSHKD", "BHLSKD", "LHBSKD" },
	  KVT_MAMBA_SSM, 12, true, 0, { { 0 } }, 36 },
	CONV("Mamba-1, 24 channels", 64, 1, { "x", 24, 1, true }),
	CONV("Mamba-2, 8 groups", 16, 3,
	     { "x", 8, 2, true }, { "B", 8, 3, false }, { "C", 8, 3, false }),
	CONV("Mamba-2, 2 groups", 16, 3,
	     { "x", 8, 2, true }, { "B", 2, 3, false }, { "C", 2, 3, false }),
	CONV("Mamba-2, 1 group", 16, 3,
	     { "x", 8, 2, true }, { "B", 1, 3, false }, { "C", 1, 3, false }),
	CONV("Mamba-2, 12 heads, 1 group", 36, 3,
	     { "x", 12, 1, true }, { "B", 1, 2, false }, { "C", 1, 2, false }),
	CONV("Mamba-2, 12 heads, 6 groups", 25, 3,
	     { "x", 12, 1, true }, { "B", 6, 2, false }, { "C", 6, 2, false }),
	CONV("gated delta net, q k v", 9, 3,
	     { "q", 4, 2, true }, { "k", 4, 2, true }, { "v", 8, 3, true }),
};

/* ---- what a rank holds --------------------------------------------------- */

struct image {
	int n;				/* heads or channels */
	int id[128];			/* of each in the model */
	struct kvt_spec spec;
	struct kvt_shape shape;
	const char *order;
	int64_t nbytes;
	unsigned char *bytes, *times;
};

static bool can_deal(const struct model *m, int ranks)
{
	for (int p = 0; p < m->nparts; p++)
		if (m->part[p].units % ranks && (m->part[p].no_replicas ||
						 ranks % m->part[p].units))
			return false;
	if (!m->nparts && m->heads % ranks && (m->no_replicas || ranks % m->heads))
		return false;
	return true;
}

/* Hand 'units' to 'ranks' one after another; rank gets what falls to it. */
static void deal(struct image *image, int base, int units, int rows, int ranks,
		 int rank)
{
	int turn = 0, copies = units < ranks ? ranks / units : 1;
	int each = units < ranks ? 1 : units / ranks;

	for (int u = 0; u < units; u += each)
		for (int c = 0; c < copies; c++, turn++)
			for (int i = 0; turn == rank && i < each * rows; i++)
				image->id[image->n++] = base + u * rows + i;
}

static void describe(struct image *image, const struct model *m, int ranks)
{
	struct kvt_spec *spec = &image->spec;

	*spec = (struct kvt_spec){
		.kind = m->kind, .block_size = SLOTS, .num_heads = 1,
		.total_heads = 1, .replication = 1, .no_replicas = m->no_replicas,
		.tokens_per_slot = { 1, 1 }, .elem = ELEM, .ncontent = 2,
		.content = { NK, DIM }, .nparts = m->nparts,
	};
	memcpy(spec->part, m->part, sizeof(spec->part));
	image->shape = (struct kvt_shape){ { LAYERS, BLOCKS, SLOTS, 1, NK, DIM }, ELEM };
	if (m->kind == KVT_FULL_ATTENTION) {
		spec->replication = ranks > m->heads ? ranks / m->heads : 1;
	} else {
		spec->tokens_per_slot.num = -1;
		image->shape.n[KVT_AXIS_S] = 1;
	}
	if (m->nparts) {
		spec->content[0] = image->n;
		spec->content[1] = image->shape.n[KVT_AXIS_S] = 3;	/* taps */
		image->shape.n[KVT_AXIS_K] = 1;
		image->shape.n[KVT_AXIS_D] = image->n;
	} else {
		spec->num_heads = image->shape.n[KVT_AXIS_H] = image->n;
		spec->total_heads = m->heads;
		spec->head_start = image->id[0];
	}
	spec->content_size = spec->content[0] * spec->content[1] * ELEM;
}

static struct image image_new(const struct model *m, const char *order, int ranks,
			      int rank)
{
	struct image image = { .order = order };

	if (!m->nparts)
		deal(&image, 0, m->heads, 1, ranks, rank);
	for (int p = 0, base = 0; p < m->nparts; p++) {
		deal(&image, base, (int)m->part[p].units, (int)m->part[p].rows,
		     ranks, rank);
		base += (int)(m->part[p].units * m->part[p].rows);
	}
	describe(&image, m, ranks);
	image.nbytes = ELEM;
	for (int a = 0; a < KVT_NAXES; a++)
		image.nbytes *= image.shape.n[a];
	image.bytes = calloc(1, (size_t)image.nbytes);
	image.times = calloc(1, (size_t)image.nbytes);
	assert_non_null(image.bytes);
	assert_non_null(image.times);
	return image;
}

static void image_free(struct image *image)
{
	free(image->bytes);
	free(image->times);
}

/* ---- bytes --------------------------------------------------------------- */

/* Row-major through the letters of the order. */
static int64_t address(const struct image *image, const int64_t index[KVT_NAXES])
{
	int64_t at = 0;

	for (const char *c = image->order; *c; c++) {
		int axis = (int)(strchr("LBSHKD", *c) - "LBSHKD");

		at = at * image->shape.n[axis] + index[axis];
	}
	return at * ELEM;
}

/* What belongs there, by its coordinate in the model; never 0. */
static unsigned char truth(const struct image *image, const int64_t index[KVT_NAXES],
			   int byte)
{
	bool conv = image->spec.nparts > 0;
	unsigned id = (unsigned)image->id[index[conv ? KVT_AXIS_D : KVT_AXIS_H]];
	unsigned h = 2166136261u;

	for (int a = 0; a < KVT_NAXES; a++) {
		bool dealt = a == (conv ? KVT_AXIS_D : KVT_AXIS_H);

		h = (h ^ (dealt ? id : (unsigned)index[a])) * 16777619u;
	}
	h = (h ^ (unsigned)byte) * 16777619u;
	return (unsigned char)(h >> 16 | 1);
}

enum pass { FILL, COMPARE };

static void each_byte(struct image *image, enum pass pass)
{
	int64_t i[KVT_NAXES] = { 0 };

	for (int a = 0; a >= 0;) {
		int64_t at = address(image, i);

		for (int b = 0; b < ELEM; b++) {
			unsigned char want = truth(image, i, b);

			if (pass == FILL) {
				image->bytes[at + b] = want;
			} else if (image->bytes[at + b] != want ||
				   image->times[at + b] != 1) {
				fail_msg("byte %lld: %d, expected %d, written %d times",
					 (long long)at, image->bytes[at + b], want,
					 image->times[at + b]);
			}
		}
		for (a = KVT_NAXES - 1; a >= 0; a--) {
			if (++i[a] < image->shape.n[a])
				break;
			i[a] = 0;
		}
	}
}

/* ---- transfers ----------------------------------------------------------- */

static struct kvt_view view_of(const struct image *image)
{
	struct kvt_box box = kvt_box_whole(&image->shape);
	struct kvt_layout layout;
	struct kvt_views views;

	if (kvt_layout_parse(&layout, image->order, &why) ||
	    kvt_layout_views(&views, &layout, &box, ELEM, &why))
		fail_msg("%s", why.text);
	return views.view[0];
}

static void copy(struct image *dst, const struct kvt_view *to,
		 const struct image *src, const struct kvt_view *from)
{
	struct kvt_plan_walk walk;
	struct kvt_plan plan;

	ok(kvt_plan_init(&plan, to, from, &why));
	for (kvt_plan_walk_start(&walk, &plan); !walk.done; kvt_plan_walk_next(&walk)) {
		assert_true(walk.src >= 0 && walk.src + plan.run <= src->nbytes);
		assert_true(walk.dst >= 0 && walk.dst + plan.run <= dst->nbytes);
		memcpy(dst->bytes + walk.dst, src->bytes + walk.src, (size_t)plan.run);
		for (int64_t b = 0; b < plan.run; b++)
			dst->times[walk.dst + b]++;
	}
}

/* Every pair is asked, so that one which should exchange nothing shows. */
static void transfer(struct image *dst, int nd, struct image *src, int ns)
{
	for (int d = 0; d < nd; d++) {
		struct kvt_side to = { &dst[d].spec, { nd, d } };
		struct kvt_view dst_view = view_of(&dst[d]);

		for (int s = 0; s < ns; s++) {
			struct kvt_side from = { &src[s].spec, { ns, s } };
			struct kvt_view src_view = view_of(&src[s]);
			struct cut_views cut;

			if (cut_views(&cut, &from, &src_view, &to, &dst_view, &why))
				fail_msg("%d of %d to %d of %d: %s", s, ns, d, nd,
					 why.text);
			for (int i = 0; i < cut.count; i++)
				copy(&dst[d], &cut.dst[i], &src[s], &cut.src[i]);
		}
		each_byte(&dst[d], COMPARE);
	}
}

static void refuse(const struct model *m, int ns, int nd)
{
	struct image one = image_new(m, m->orders[0], 1, 0);
	struct kvt_transfer t = { &one.spec, &one.spec, ns, nd, LAYERS };

	assert_int_equal(kvt_transfer_check(&t, NULL), KVT_BAD_INPUT);
	image_free(&one);
}

static void test_transfers(void **state)
{
	const struct model *m = *state;
	struct image src[MAXTP], dst[MAXTP], whole;
	int ntransfers = 0;

	for (int ns = 1; ns <= MAXTP; ns++)
	for (int nd = 1; nd <= MAXTP; nd++) {
		if (!can_deal(m, ns) || !can_deal(m, nd)) {
			refuse(m, ns, nd);
			continue;
		}
		if (ntransfers++ % every())
			continue;
		for (int s = 0; s < ns; s++) {		/* split */
			src[s] = image_new(m, m->orders[nd % 3], ns, s);
			each_byte(&src[s], FILL);
		}
		for (int d = 0; d < nd; d++)
			dst[d] = image_new(m, m->orders[(nd + ns) % 3], nd, d);
		transfer(dst, nd, src, ns);
		whole = image_new(m, m->orders[0], 1, 0);
		transfer(&whole, 1, dst, nd);		/* merge */
		image_free(&whole);
		for (int s = 0; s < ns; s++)
			image_free(&src[s]);
		for (int d = 0; d < nd; d++)
			image_free(&dst[d]);
	}
	assert_int_equal(ntransfers, m->ntransfers);
}

TESTS("slice",
	EACH(models, test_transfers))
