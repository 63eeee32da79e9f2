/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_svg.c - a transfer as one picture, for documents and slides
 *
 *	KV transfer, llama-3.1-8b
 *	attn: full_attention, 32 layers, 16,384 operations	of each group:
 *	  map of a source block    map of a destination block
 *	  sizes of operations
 *	Between ranks						ranks by ranks
 *	Time							the timeline
 *
 * Parts follow each other downwards, each as high as it says it is.  The height of the
 * whole stands before them in the file, so they are drawn into memory first.
 */
#include <stdlib.h>

#include "print/out/text_file.h"
#include "sim/print/transfer_picture.h"

enum { MARGIN = 24, GAP = 20, HEADING = 26 };

/* What is drawn so far goes from the top down to y. */
struct sheet {
	FILE *f;
	int y;
};

static void put_text(struct sheet *s, const char *kind, int x, int y, const char *text)
{
	fprintf(s->f, "<text class=\"%s\" x=\"%d\" y=\"%d\">", kind, x, y);
	html_text(s->f, text);
	fputs("</text>\n", s->f);
}

static void put_heading(struct sheet *s, const char *text)
{
	put_text(s, "h2", MARGIN, s->y + 14, text);
	s->y += HEADING;
}

static void put_head(struct sheet *s, const struct page *p)
{
	const struct timeline *pairs = &p->pairs;
	char text[2048];

	s->y = MARGIN;
	snprintf(text, sizeof(text), "KV transfer%s%.100s",
		 p->transfer->model ? ", " : "",
		 p->transfer->model ? p->transfer->model : "");
	put_text(s, "h1", MARGIN, s->y + 18, text);
	snprintf(text, sizeof(text),
		 "%s, %s; scope %s: %s operation%s, %s, %s pair%s of ranks, %s on %.60s",
		 human_requests(p->transfer).s,
		 p->transfer->whole ? "whole blocks" : "valid slots only",
		 kvt_scope_name(p->scope), human_count(pairs->ops).s, plural(pairs->ops),
		 kvt_size_string(pairs->bytes).s, human_count(pairs->n).s,
		 plural(pairs->n), human_time(pairs->duration).s, p->link->name);
	put_text(s, "on", MARGIN, s->y + 40, text);
	s->y += 40 + GAP;
}

/* ---- a group ------------------------------------------------------------- */

static void put_map(struct sheet *s, const struct kvt_picture_side *map, int g, int side,
		    const struct kvt_layout *layout, int *bottom)
{
	const char *name = side ? "destination" : "source";
	struct svg_place at = { MARGIN + side * MAP_WIDTH, s->y + 20 };
	char id[32];

	put_text(s, "on", at.x, s->y + 12,
		 map_title(map, name, kvt_layout_string(layout).s).s);
	if (!map->cells) {
		put_text(s, "on", at.x, at.y + 12, "has too many parts to draw");
		at.y += 16;
	} else {
		snprintf(id, sizeof(id), "map%d-%d", g, side);
		at.y += svg_map(s->f, &at, map, id, name);
	}
	if (at.y > *bottom)
		*bottom = at.y;
}

static enum kvt_status put_maps(struct sheet *s, const struct page *p, int g,
				struct kvt_error *err)
{
	const struct kvt_transfer_group *group = &p->transfer->group[g];
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_picture maps;
	struct kvt_pair pair;
	enum kvt_status status;
	int bottom = s->y;

	if (!kvt_pair_next(&pair, &walk, &group->xfer) || !group->xfer.nentries)
		return KVT_OK;
	if ((status = kvt_picture_init(&maps, group, &pair, p->scope, err)))
		return status;
	put_map(s, &maps.side[0], g, 0, &group->src_layout, &bottom);
	put_map(s, &maps.side[1], g, 1, &group->dst_layout, &bottom);
	kvt_picture_free(&maps);
	s->y = bottom + GAP;
	return KVT_OK;
}

static enum kvt_status put_group(struct sheet *s, const struct page *p, int g,
				 struct kvt_error *err)
{
	const struct kvt_transfer_group *group = &p->transfer->group[g];
	struct kvt_figures figures;
	char text[1024];
	enum kvt_status status = kvt_figures_init(&figures, err);

	if (status)
		return status;
	if (!(status = kvt_figures_add(&figures, group, p->scope, err))) {
		snprintf(text, sizeof(text), "%s: %s, %s layer%s, %s operation%s",
			 group->name, kvt_kind_name(group->xfer.src.spec.kind),
			 human_count(group->xfer.layers).s, plural(group->xfer.layers),
			 human_count(figures.tally.ops).s, plural(figures.tally.ops));
		put_heading(s, text);
		status = put_maps(s, p, g, err);
	}
	if (!status) {
		struct svg_place at = { MARGIN, s->y };

		snprintf(text, sizeof(text), "sizes%d", g);
		s->y += svg_sizes(s->f, &at, text, &figures.sizes) + GAP;
	}
	kvt_figures_free(&figures);
	return status;
}

/* ---- all of it ----------------------------------------------------------- */

static enum kvt_status put_body(struct sheet *s, const struct page *p,
				struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct svg_place at = { MARGIN, 0 };

	put_head(s, p);
	for (int g = 0; !status && g < p->transfer->ngroups; g++)
		status = put_group(s, p, g, err);
	if (status)
		return status;
	put_heading(s, "Between ranks");
	at.y = s->y;
	s->y += svg_matrix(s->f, &at, &p->pairs) + GAP;
	put_heading(s, "Time: the destination posts (upper bars), bytes on the card");
	at.y = s->y;
	s->y += svg_timeline(s->f, &at, &p->pairs) + MARGIN;
	return KVT_OK;
}

/* How high it is must be said first. */
enum kvt_status put_svg(FILE *f, const struct page *p, struct kvt_error *err)
{
	struct text_output body = { .path = NULL };
	struct sheet s = { .f = text_output_open(&body) };
	enum kvt_status status;

	if (!s.f)
		return kvt_no_memory(err, NULL);
	status = put_body(&s, p, err);
	if (!text_output_close(s.f) && !status)
		status = kvt_no_memory(err, NULL);
	if (!status) {
		svg_document_begin(f, PICTURE_WIDTH + 2 * MARGIN, s.y, "KV transfer");
		fwrite(body.text, 1, body.nbytes, f);
		svg_end(f);
	}
	free(body.text);
	return status;
}
