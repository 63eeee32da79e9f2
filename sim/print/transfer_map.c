/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_map.c - a block as rows of bytes, coloured by operation
 *
 * A row is a run of addresses, cut where an operation ends or bytes do not follow each
 * other; of more than 64 such parts a row has neighbours drawn together.  data-at,
 * data-n and data-op say what a rectangle is, so that a test can hold them against the
 * list of operations.
 */
#include "sim/print/transfer_picture.h"

#include <inttypes.h>

#include "print/out/say.h"

enum {
	WIDTH = MAP_WIDTH, LEFT = 92, RIGHT = 4, ROW = 11, TOP = 4,
	/* finer pieces of a row cannot be seen, and make the file large */
	MOST_PIECES = 64,
};

/* Cells that follow each other and belong to one op. */
struct piece {
	int64_t first, end, ops;
};

static void row_label(FILE *f, const struct kvt_picture_side *m, int64_t row)
{
	const struct kvt_picture_cell *c = &m->cells[row * m->columns];
	const struct kvt_picture_cell *above = row ? c - m->columns : NULL;
	bool layer = !above || above->index[KVT_AXIS_L] != c->index[KVT_AXIS_L];

	fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\"", LEFT - 6,
		(int)(TOP + row * ROW + ROW - 2));
	if (layer)
		fputs(" class=\"on\"", f);
	fputs(">", f);
	if (layer)
		fprintf(f, "layer %" PRId64, c->index[KVT_AXIS_L]);
	if (m->axis != KVT_AXIS_L)
		fprintf(f, "%s%s %" PRId64, layer ? ", " : "", kvt_axis_name(m->axis),
			c->index[m->axis]);
	fputs("</text>\n", f);
}

static void draw_piece(FILE *f, const struct kvt_picture_side *m, int64_t row,
		       const struct piece *p)
{
	double per = (double)(WIDTH - LEFT - RIGHT) / (double)m->columns;
	const struct kvt_picture_cell *c = &m->cells[row * m->columns + p->first];
	double width = per * (double)(p->end - p->first);
	int64_t nbytes = (p->end - p->first) * m->cell;

	fprintf(f, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"",
		LEFT + per * (double)p->first, (int)(TOP + row * ROW),
		width > 1.5 ? width - .7 : width, ROW - 1);
	if (c->op < 0)
		fprintf(f, " class=\"r\"");
	else
		fprintf(f, " class=\"c%d\"", (int)(c->op % 10));
	/* what a test can hold against the list of operations */
	if (p->ops == 1)
		fprintf(f, " data-at=\"%" PRId64 "\" data-n=\"%" PRId64 "\" data-op=\"%"
			PRId64 "\"", c->at, nbytes, c->op);
	fputs("><title>", f);
	if (p->ops > 1)
		fprintf(f, "%s operations", human_count(p->ops).s);
	else if (c->op < 0)
		fputs("not moved between these ranks", f);
	else
		fprintf(f, "operation %s", human_count(c->op).s);
	fprintf(f, ": %s from byte %s</title></rect>\n", kvt_size_string(nbytes).s,
		human_count(c->at).s);
}

/* Where an op ends, or its bytes do not follow each other. */
static bool ends(const struct kvt_picture_cell *a, int64_t nbytes)
{
	return a[0].op != a[1].op || a[0].at + nbytes != a[1].at;
}

static void draw_row(FILE *f, const struct kvt_picture_side *m, int64_t row)
{
	const struct kvt_picture_cell *c = &m->cells[row * m->columns];
	int64_t pieces = 1, least = 1;
	struct piece p = { 0, 0, 1 };

	for (int64_t i = 1; i < m->columns; i++)
		pieces += ends(&c[i - 1], m->cell);
	if (pieces > MOST_PIECES)
		least = (m->columns + MOST_PIECES - 1) / MOST_PIECES;
	for (int64_t i = 1; i <= m->columns; i++) {
		bool end = i == m->columns || ends(&c[i - 1], m->cell);

		if (i < m->columns && (!end || i - p.first < least)) {
			p.ops += end;
			continue;
		}
		p.end = i;
		draw_piece(f, m, row, &p);
		p = (struct piece){ i, i, 1 };
	}
}

struct human map_title(const struct kvt_picture_side *m, const char *name,
		       const char *layout)
{
	struct human out;

	snprintf(out.s, sizeof(out.s), "Block %" PRIu64 " of the %s, %.160s", m->id,
		 name, layout);
	return out;
}

int svg_map(FILE *f, const struct svg_place *at, const struct kvt_picture_side *m,
	    const char *id, const char *name)
{
	int height = (int)(2 * TOP + m->rows * ROW);
	char title[128], about[512];

	snprintf(title, sizeof(title), "Byte map of %s block %" PRIu64, name, m->id);
	snprintf(about, sizeof(about), "%" PRId64 " of %" PRId64 " rows of %s each, by "
		 "ascending address; one colour an operation, grey is not moved", m->rows,
		 m->all_rows, kvt_size_string(m->columns * m->cell).s);
	svg_begin(f, at, id, WIDTH, height, title, about);
	for (int64_t row = 0; row < m->rows; row++) {
		row_label(f, m, row);
		draw_row(f, m, row);
	}
	svg_end(f);
	return height;
}

void html_map(FILE *f, const struct kvt_picture_side *m, const char *id, const char *name,
	      const char *layout)
{
	fputs("<figure style=\"margin:0\">\n<h3>", f);
	html_text(f, map_title(m, name, layout).s);
	fputs("</h3>\n", f);
	if (!m->cells) {
		fputs("<p class=\"dim\">A block has too many pieces to draw.</p>\n"
		      "</figure>\n", f);
		return;
	}
	svg_map(f, NULL, m, id, name);
	fprintf(f, "<figcaption class=\"dim\">%s of %s rows, %s each</figcaption>\n"
		"</figure>\n", human_count(m->rows).s, human_count(m->all_rows).s,
		kvt_size_string(m->columns * m->cell).s);
}
