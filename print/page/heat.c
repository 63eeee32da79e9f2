/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heat.c - maps of shades in SVG
 *
 * Cells are drawn over a ground that says "nothing", so only those with something to say
 * take bytes.  Colours are numbers, for programs that know no styles.
 */
#include "print/page/heat.h"

#include "print/page/page.h"

enum { TITLE = 30, AXIS = 44, ROW_MOST = 22 };

/* From --pale to --deep of page.c. */
static void fill(FILE *f, double deep)
{
	static const int pale[3] = { 219, 230, 243 }, dark[3] = { 11, 58, 122 };
	int rgb[3];

	for (int i = 0; i < 3; i++)
		rgb[i] = pale[i] + (int)((dark[i] - pale[i]) * deep);
	if (deep < 0)
		fprintf(f, "fill=\"#f4f4f4\"");
	else
		fprintf(f, "fill=\"#%02x%02x%02x\"", rgb[0], rgb[1], rgb[2]);
}

void heat_text(FILE *f, double x, double y, const char *anchor, const char *text)
{
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
	html_text(f, text);
	fprintf(f, "</text>\n");
}

static double row_height(const struct heat_map *m)
{
	double row = 440.0 / (double)m->rows;

	return row < ROW_MOST ? row : ROW_MOST;
}

static void cells(FILE *f, const struct heat_map *m, double y)
{
	double width = (double)HEAT_WIDTH / (double)m->columns, height = row_height(m);
	char words[HEAT_WORDS];

	fprintf(f, "<rect x=\"%d\" y=\"%.2f\" width=\"%d\" height=\"%.2f\" "
		"stroke=\"#888\" ", HEAT_LEFT, y, HEAT_WIDTH, (double)m->rows * height);
	fill(f, -1);
	fprintf(f, "/>\n");
	for (int64_t i = 0; i < m->rows * m->columns; i++) {
		int64_t r = i / m->columns, c = i % m->columns;
		double deep = m->depth(m, r, c);

		if (deep < 0)
			continue;
		fprintf(f,
			"<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" ",
			HEAT_LEFT + (double)c * width, y + (double)r * height, width,
			height);
		fill(f, deep);
		fprintf(f, "><title>");
		m->cell(words, m, r, c);
		html_text(f, words);
		fprintf(f, "</title></rect>\n");
	}
}

static void axes(FILE *f, const struct heat_map *m, double y)
{
	double height = row_height(m), bottom = y + (double)m->rows * height;
	int64_t step = (int64_t)(14 / height) + 1;
	char words[HEAT_WORDS];

	for (int64_t r = 0; r < m->rows; r += step) {
		m->row(words, m, r);
		heat_text(f, HEAT_LEFT - 8, y + ((double)r + 0.5) * height + 4, "end",
			  words);
	}
	heat_text(f, HEAT_LEFT - 42, y + (bottom - y) / 2 + 4, "end", m->row_name);
	m->column(words, m, 0);
	heat_text(f, HEAT_LEFT, bottom + 16, "start", words);
	if (m->columns > 1) {
		m->column(words, m, m->columns - 1);
		heat_text(f, HEAT_LEFT + HEAT_WIDTH, bottom + 16, "end", words);
	}
	heat_text(f, HEAT_LEFT + HEAT_WIDTH / 2.0, bottom + 32, "middle", m->column_name);
}

double heat_height(const struct heat_map *m)
{
	return row_height(m) * (double)m->rows + TITLE + AXIS;
}

double heat_draw(FILE *f, const struct heat_map *m, double y)
{
	double top = y + TITLE - 10;

	heat_text(f, HEAT_LEFT, top - 10, "start", m->title);
	cells(f, m, top);
	axes(f, m, top);
	return y + heat_height(m) - 10;
}

void heat_legend(FILE *f, double y, const char *title, const char *const *label, int n)
{
	heat_text(f, HEAT_LEFT, y - 8, "start", title);
	for (int i = 0; i < n; i++) {
		fprintf(f, "<rect x=\"%d\" y=\"%.1f\" width=\"60\" height=\"14\" "
			"stroke=\"#888\" ", HEAT_LEFT + i * 64, y);
		fill(f, i ? (double)(i - 1) / (n - 2) : -1);
		fprintf(f, "/>\n");
		heat_text(f, HEAT_LEFT + i * 64 + 30, y + 28, "middle", label[i]);
	}
}
