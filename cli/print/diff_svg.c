/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_svg.c - where the differences are, as a picture
 *
 * One hue that gets darker: the order of the shades does not depend on telling
 * colours apart.  The share of different elements is shown by its magnitude, so
 * that one element of a thousand is not as pale as none.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/page/page.h"
#include "cli/print/diff.h"
#include "lib/base/print.h"

enum { LEFT = 90, GAP = 40, MAP_WIDTH = 720, TITLE = 30, AXIS = 44, ROW_MOST = 22 };

static void text_at(FILE *stream, double x, double y, const char *anchor,
		    const char *text)
{
	fprintf(stream, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
	html_text(stream, text);
	fprintf(stream, "</text>\n");
}

/* From 0 (one of 10^6 or fewer) to 1 (all); below 0: none. */
static double depth(const struct heat *h)
{
	double share;

	if (!h->bad || !h->n)
		return -1;
	share = log10((double)h->bad / (double)h->n) / 6 + 1;
	return share < 0 ? 0 : share;
}

static void fill(FILE *stream, double deep)
{
	static const int pale[3] = { 253, 231, 176 }, dark[3] = { 20, 24, 82 };
	int rgb[3];

	for (int i = 0; i < 3; i++)
		rgb[i] = pale[i] + (int)((dark[i] - pale[i]) * deep);
	if (deep < 0)
		fprintf(stream, "fill=\"#f4f4f4\"");
	else
		fprintf(stream, "fill=\"#%02x%02x%02x\"", rgb[0], rgb[1], rgb[2]);
}

struct map {
	const struct diff_result *r;
	const struct heat *heat;
	int64_t ncolumns;
	bool heads;			/* else tokens or blocks */
	double y, cell, row;		/* top, width and height of a cell */
};

static void column_text(char *out, size_t room, const struct map *m, int64_t column)
{
	if (m->heads)
		snprintf(out, room, "head %lld", LL(kvt_diff_head(m->r, column)));
	else
		snprintf(out, room, "%s", column_name(m->r, column).s);
}

static void cells(FILE *stream, const struct map *m)
{
	int64_t nlayers = m->r->pair->nlayers;
	char column[300];

	fprintf(stream, "<rect x=\"%d\" y=\"%.2f\" width=\"%d\" height=\"%.2f\" "
		"stroke=\"#888\" ", LEFT, m->y, MAP_WIDTH, (double)nlayers * m->row);
	fill(stream, -1);
	fprintf(stream, "/>\n");
	for (int64_t i = 0; i < nlayers * m->ncolumns; i++) {
		const struct heat *h = &m->heat[i];
		int64_t l = i / m->ncolumns, c = i % m->ncolumns;

		if (!h->bad)
			continue;
		fprintf(stream,
			"<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" ",
			LEFT + (double)c * m->cell, m->y + (double)l * m->row, m->cell,
			m->row);
		fill(stream, depth(h));
		column_text(column, sizeof(column), m, c);
		fprintf(stream, "><title>layer %lld, ", LL(kvt_diff_layer(m->r, l)));
		html_text(stream, column);
		fprintf(stream, ": %lld of %lld differ, max abs %.6g</title></rect>\n",
			LL(h->bad), LL(h->n), h->max_abs);
	}
}

static void axes(FILE *stream, const struct map *m)
{
	int64_t nl = m->r->pair->nlayers, step = (int64_t)(14 / m->row) + 1;
	double bottom = m->y + (double)nl * m->row;
	char text[300];

	for (int64_t l = 0; l < nl; l += step) {
		snprintf(text, sizeof(text), "%lld", LL(kvt_diff_layer(m->r, l)));
		text_at(stream, LEFT - 8, m->y + ((double)l + 0.5) * m->row + 4, "end",
			text);
	}
	text_at(stream, LEFT - 42, m->y + (bottom - m->y) / 2 + 4, "end", "layer");
	column_text(text, sizeof(text), m, 0);
	text_at(stream, LEFT, bottom + 16, "start", text);
	if (m->ncolumns > 1) {
		column_text(text, sizeof(text), m, m->ncolumns - 1);
		text_at(stream, LEFT + MAP_WIDTH, bottom + 16, "end", text);
	}
	text_at(stream, LEFT + MAP_WIDTH / 2.0, bottom + 32, "middle",
		m->heads ? "head" : m->r->pair->by_tokens ? "request and token" :
							    "block");
}

static double row_height(const struct diff_result *r)
{
	double row = 440.0 / (double)r->pair->nlayers;

	return row < ROW_MOST ? row : ROW_MOST;
}

/* From y on; returns the y below it. */
static double draw(FILE *stream, struct map *m, double y)
{
	char title[200];

	m->y = y + TITLE - 10;
	m->cell = (double)MAP_WIDTH / (double)m->ncolumns;
	m->row = row_height(m->r);
	snprintf(title, sizeof(title), "%s: share of different elements by layer and %s",
		 m->r->pair->id, m->heads ? "head" :
		 m->r->pair->by_tokens ? "token" : "block");
	text_at(stream, LEFT, m->y - 10, "start", title);
	cells(stream, m);
	axes(stream, m);
	return m->y + (double)m->r->pair->nlayers * m->row + AXIS;
}

static void legend(FILE *stream, double y)
{
	static const char *const label[] = { "none", "10^-6", "10^-5", "10^-4", "10^-3",
					     "1 %", "10 %", "all" };

	text_at(stream, LEFT, y - 8, "start", "share of elements that differ");
	for (int i = 0; i < 8; i++) {
		fprintf(stream, "<rect x=\"%d\" y=\"%.1f\" width=\"60\" height=\"14\" "
			"stroke=\"#888\" ", LEFT + i * 64, y);
		fill(stream, i ? (i - 1) / 6.0 : -1);
		fprintf(stream, "/>\n");
		text_at(stream, LEFT + i * 64 + 30, y + 28, "middle", label[i]);
	}
}

static bool drawn(const struct diff_result *r)
{
	return r->measured && !r->equal;
}

void diff_svg_maps(FILE *stream, const struct diff *d)
{
	double height = 120, y = 40;

	for (int i = 0; i < d->pairs.n; i++) {
		const struct diff_result *r = &d->result[i];

		if (drawn(r))
			height += (row_height(r) * (double)r->pair->nlayers + TITLE +
				   AXIS) * (r->pair->nheads > 1 ? 2 : 1);
	}
	fprintf(stream,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
		"viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" font-size=\"12\" "
		"role=\"img\">\n<title>kvtool diff: ", LEFT + MAP_WIDTH + GAP, height,
		LEFT + MAP_WIDTH + GAP, height);
	html_text(stream, d->side[SIDE_A].name);
	fprintf(stream, " and ");
	html_text(stream, d->side[SIDE_B].name);
	fprintf(stream, "</title>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n");
	for (int i = 0; i < d->pairs.n; i++) {
		const struct diff_result *r = &d->result[i];
		struct map heads = { .r = r, .heat = r->by_head, .heads = true,
				     .ncolumns = r->pair->nheads };
		struct map segments = { .r = r, .heat = r->by_segment,
				     .ncolumns = r->ncolumns };

		if (drawn(r) && heads.ncolumns > 1)
			y = draw(stream, &heads, y);
		if (drawn(r))
			y = draw(stream, &segments, y);
	}
	if (y < 41)
		text_at(stream, LEFT, y + 20, "start", "nothing differs");
	legend(stream, y + 50);
	fprintf(stream, "</svg>\n");
}
