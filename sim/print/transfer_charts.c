/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_charts.c - ranks by ranks, sizes of operations, and the timeline
 *
 * Of more than 64 ranks neighbours share a cell of the matrix, so that a picture has a
 * bound whatever the deployment.
 */
#include "sim/print/transfer_picture.h"

#include <inttypes.h>

#include "print/out/say.h"

enum {
	MOST_RANKS = 64,		/* rows and columns of the matrix */
	MOST_BARS = 64,			/* of the timeline */
	WIDTH = PICTURE_WIDTH,
};

/* ---- ranks by ranks ------------------------------------------------------ */

struct grid {
	int64_t ranks[2], bundle[2], n[2];	/* ranks, in a cell, cells */
	int64_t ops[MOST_RANKS][MOST_RANKS], bytes[MOST_RANKS][MOST_RANKS], most;
};

static void fill_grid(struct grid *g, const struct timeline *p)
{
	g->ranks[0] = p->src_ranks;
	g->ranks[1] = p->dst_ranks;
	for (int s = 0; s < 2; s++) {
		g->bundle[s] = (g->ranks[s] + MOST_RANKS - 1) / MOST_RANKS;
		g->n[s] = (g->ranks[s] + g->bundle[s] - 1) / g->bundle[s];
	}
	for (int64_t i = 0; i < p->n; i++) {
		const struct timeline_batch *b = &p->batch[i];
		int64_t y = b->src_rank / g->bundle[0], x = b->dst_rank / g->bundle[1];

		g->ops[y][x] += b->ops;
		g->bytes[y][x] += b->bytes;
		if (g->bytes[y][x] > g->most)
			g->most = g->bytes[y][x];
	}
}

static void grid_cell(FILE *f, const struct grid *g, int64_t y, int64_t x, int size)
{
	int left = 70 + (int)x * size, top = 40 + (int)y * size;
	int64_t ops = g->ops[y][x], bytes = g->bytes[y][x];

	fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\"", left,
		top, size - 2, size - 2);
	if (!ops) {
		fputs(" class=\"r\" fill-opacity=\".5\"/>\n", f);
		return;
	}
	fprintf(f, " class=\"m\" fill-opacity=\"%.2f\"><title>from %s %" PRId64 " to %s %"
		PRId64 ": %s in %s operation%s</title></rect>\n",
		.2 + .5 * (double)bytes / (double)g->most,
		g->bundle[0] > 1 ? "ranks from" : "rank", y * g->bundle[0],
		g->bundle[1] > 1 ? "ranks from" : "rank", x * g->bundle[1],
		kvt_size_string(bytes).s, human_count(ops).s, plural(ops));
	if (size < 76)
		return;
	fprintf(f, "<text class=\"on\" x=\"%d\" y=\"%d\" "
			"text-anchor=\"middle\">%s</text>\n"
		"<text class=\"on\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s ops</text>\n",
		left + size / 2, top + size / 2 - 4, kvt_size_string(bytes).s,
		left + size / 2, top + size / 2 + 11, human_count(ops).s);
}

static void grid_labels(FILE *f, const struct grid *g, int size)
{
	fprintf(f, "<text x=\"70\" y=\"14\">destination rank%s</text>\n"
		"<text x=\"0\" y=\"34\">source</text>\n",
		g->bundle[1] > 1 ? "s from" : "");
	for (int64_t x = 0; x < g->n[1]; x++)
		fprintf(f, "<text x=\"%d\" y=\"34\" text-anchor=\"middle\">%" PRId64
			"</text>\n", 70 + (int)x * size + size / 2, x * g->bundle[1]);
	for (int64_t y = 0; y < g->n[0]; y++)
		fprintf(f, "<text x=\"60\" y=\"%d\" text-anchor=\"end\">%s%" PRId64
			"</text>\n", 40 + (int)y * size + size / 2 + 4,
			g->bundle[0] > 1 ? "from " : "", y * g->bundle[0]);
}

int svg_matrix(FILE *f, const struct svg_place *at, const struct timeline *p)
{
	struct grid grid = { .bundle = { 0 } }, *g = &grid;
	int size, height;

	fill_grid(g, p);
	size = (WIDTH - 70) / (int)g->n[1];
	size = size > 88 ? 88 : size;
	height = 44 + size * (int)g->n[0];
	svg_begin(f, at, "ranks", WIDTH, height, "Bytes between ranks",
		  "A row for each source rank, a column for each destination rank; the darker, the more bytes");
	grid_labels(f, g, size);
	for (int64_t y = 0; y < g->n[0]; y++)
		for (int64_t x = 0; x < g->n[1]; x++)
			grid_cell(f, g, y, x, size);
	svg_end(f);
	return height;
}

/* ---- sizes --------------------------------------------------------------- */

struct bin {
	int64_t ops, bytes;
};

static void size_row(FILE *f, int at, int exponent, const struct bin *b,
		     const struct bin *sum)
{
	double ops = (double)b->ops / (double)sum->ops;
	double bytes = (double)b->bytes / (double)sum->bytes;

	fprintf(f, "<text x=\"150\" y=\"%d\" text-anchor=\"end\">%s to &lt; %s</text>\n",
		at + 14, kvt_size_string((int64_t)1 << exponent).s,
		exponent < 62 ?
		kvt_size_string((int64_t)1 << (exponent + 1)).s : "8 EiB");
	fprintf(f, "<rect class=\"p\" x=\"160\" y=\"%d\" width=\"%.1f\" height=\"9\" "
		"rx=\"2\"><title>%s operation%s</title></rect>\n", at, 1 + 640 * ops,
		human_count(b->ops).s, plural(b->ops));
	fprintf(f, "<rect class=\"w\" x=\"160\" y=\"%d\" width=\"%.1f\" height=\"9\" "
		"rx=\"2\"><title>%s</title></rect>\n", at + 10, 1 + 640 * bytes,
		kvt_size_string(b->bytes).s);
	fprintf(f, "<text class=\"on\" x=\"%.1f\" y=\"%d\">%s ops, %s</text>\n",
		168 + 640 * (ops > bytes ? ops : bytes), at + 14, human_count(b->ops).s,
		kvt_size_string(b->bytes).s);
}

int svg_sizes(FILE *f, const struct svg_place *at, const char *id,
	      const struct kvt_sizes *sizes)
{
	struct bin bins[64] = { { 0, 0 } }, sum = { 0, 0 };
	int rows = 0, row = 0;

	for (int i = 0; i < sizes->n; i++) {
		const struct kvt_size_count *c = &sizes->bin[i];
		struct bin *b = &bins[63 - __builtin_clzll((unsigned long long)c->size)];

		rows += !b->ops;
		b->ops += c->count;
		b->bytes += c->count * c->size;
		sum.ops += c->count;
		sum.bytes += c->count * c->size;
	}
	svg_begin(f, at, id, WIDTH, 28 * rows + 4, "Sizes of operations",
		  "Two bars for each power of two: how many operations are of that size, and how many bytes are in them");
	for (int i = 0; i < 63; i++)
		if (bins[i].ops)
			size_row(f, 4 + 28 * row++, i, &bins[i], &sum);
	svg_end(f);
	return 28 * rows + 4;
}

/* ---- timeline ------------------------------------------------------------ */

/* A step of 1, 2 or 5 times a power of ten that gives about eight marks. */
static int64_t tick_step(int64_t ns)
{
	int64_t step = 1;

	for (int i = 0; ns / step > 10; i++)
		step = i % 3 == 1 ? step / 2 * 5 : step * 2;
	return step;
}

static void draw_ticks(FILE *f, int64_t ns, int bottom)
{
	int64_t step = tick_step(ns);

	for (int64_t t = 0; t <= ns; t += step) {
		double x = 110 + 900 * (double)t / (double)(ns ? ns : 1);

		fprintf(f, "<line class=\"g\" x1=\"%.1f\" x2=\"%.1f\" y1=\"18\" "
				"y2=\"%d\"/>\n<text x=\"%.1f\" y=\"12\" text-anchor=\"middle\">%s</text>\n",
			x, x, bottom, x, t ? human_time(t).s : "0");
	}
}

static void draw_bar(FILE *f, const char *kind, int top, int height, int64_t from,
		     int64_t to, int64_t all, const char *what)
{
	double per = 900 / (double)(all ? all : 1);

	fprintf(f, "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" "
		"rx=\"1\"><title>%s: %s, ", kind, 110 + per * (double)from, top,
		per * (double)(to - from) < .5 ? .5 : per * (double)(to - from), height,
		what, human_time(to - from).s);
	fprintf(f, "from %s on</title></rect>\n", from ? human_time(from).s : "0");
}

int svg_timeline(FILE *f, const struct svg_place *at, const struct timeline *p)
{
	int n = p->n < MOST_BARS ? (int)p->n : MOST_BARS, bottom = 22 + 22 * n;

	svg_begin(f, at, "time", WIDTH, bottom + 4, "Timeline",
		  "Two bars for each pair of ranks: when the destination posts the operations, and when the card moves the bytes");
	draw_ticks(f, p->duration, bottom);
	for (int i = 0; i < n; i++) {
		const struct timeline_batch *b = &p->batch[i];
		int top = 24 + 22 * i;

		fprintf(f, "<text x=\"100\" y=\"%d\" text-anchor=\"end\">rank %" PRId64
			" to %" PRId64 "</text>\n", top + 12, b->src_rank, b->dst_rank);
		draw_bar(f, "p", top, 6, b->post, b->posted, p->duration, "posting");
		draw_bar(f, "w", top + 7, 9, b->begin, b->end, p->duration,
			 "on the card");
	}
	svg_end(f);
	return bottom + 4;
}

void html_timeline(FILE *f, const struct timeline *p)
{
	svg_timeline(f, NULL, p);
	if (p->n > MOST_BARS)
		fprintf(f, "<p class=\"dim\">The first %d of %s pairs of ranks.</p>\n",
			MOST_BARS, human_count(p->n).s);
}
