/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_text.c - a pool and maps as characters
 *
 * A block is the letter of its request.  A number is a shade of ten, which are digits
 * where there are no colours: so nothing is told by colour alone.
 */
#include <math.h>
#include <string.h>

#include "print/out/say.h"
#include "print/out/cells.h"
#include "print/describe.h"
#include "print/out/screen.h"
#include "print/view.h"

enum { LEFT = 12, ROWS = 16 };		/* columns of a label; rows of a pool */

/* ---- the pool ------------------------------------------------------------ */

/* A to Z and a to z by turns; requests that have a letter of their own keep it. */
static char letter_of(int64_t request)
{
	if (request < 0)
		return '?';
	return (char)(request % 52 < 26 ? 'A' + request % 52 : 'a' + request % 52 - 26);
}

static char sign_of(const struct kvt_view_run *r)
{
	switch (r->use) {
	case KVT_VIEW_FREE:   return '.';
	case KVT_VIEW_NULL:   return '0';
	case KVT_VIEW_SHARED: return '*';
	case KVT_VIEW_PASSED: return '-';
	case KVT_VIEW_OTHER:  return ':';
	case KVT_VIEW_OWNED:  break;
	}
	return letter_of(r->request);
}

static void print_legend(FILE *f, const struct kvt_snapshot *s,
			 const struct kvt_view_pool *pool)
{
	fplainf(f, "%*s", LEFT, "");
	for (int64_t r = 0; r < s->nrequests && r < 8; r++)
		fplainf(f, "%c %s  ", letter_of(r), s->request[r].id);
	fplainf(f, ". unused%s\n", pool->shared ? "  * shared" : "");
}

/* A character for 'step' blocks: the sign of the first of them. */
static void print_pool(FILE *f, const struct kvt_description *d, int g,
		       const struct kvt_view_pool *pool, int64_t rows)
{
	int64_t n = d->group[g].group->shape.n[KVT_AXIS_B];
	int64_t width = (int64_t)screen_room() - LEFT;
	int64_t step = n / (width * rows) + 1, at = 0;

	fplainf(f, "  pool      ");
	for (int64_t i = 0; i < pool->nruns; i++) {
		const struct kvt_view_run *r = &pool->run[i];

		for (int64_t b = (r->block + step - 1) / step * step;
		     b < r->block + r->count; b += step, at++) {
			if (at && at % width == 0)
				fplainf(f, "\n%*s", LEFT, "");
			if (pool->known)
				screen_shade(f, r->use == KVT_VIEW_FREE ? -1 :
					     r->use == KVT_VIEW_OWNED ?
					     (int)(r->request % 6) : 6);
			fputc(pool->known ? sign_of(r) : '?', f);
		}
	}
	screen_shade(f, -1);
	fputc('\n', f);
	if (step > 1)
		fplainf(f, "%*sa character for %lld blocks: the first of them\n", LEFT,
			"", LL(step));
	if (pool->known)
		print_legend(f, d->snapshot, pool);
}

enum kvt_status view_pools(FILE *f, const struct kvt_description *d, int rows,
			   struct kvt_error *err)
{
	enum { BESIDE = 3 };		/* lines of a group that are no pool */
	int n = d->snapshot->ngroups, each = n ? rows / n - BESIDE : 0;
	enum kvt_status status = KVT_OK;

	for (int g = 0; !status && g < n; g++) {
		struct kvt_view_pool pool;

		if ((status = kvt_view_pool(&pool, d->snapshot, g, err)))
			break;
		if (n > 1)
			fplainf(f, "  %s\n", d->group[g].group->id);
		print_pool(f, d, g, &pool, each > 1 ? each : 1);
		kvt_view_pool_free(&pool);
	}
	return status;
}

/* ---- maps ---------------------------------------------------------------- */

struct scale {
	double least, most;
};

static struct scale scale_of(const struct kvt_view_cell *cell, int64_t n, int64_t kv,
			     int64_t k)
{
	struct scale s = { INFINITY, 0 };

	for (int64_t i = 0; i < n; i++) {
		double x = kvt_view_rms(&cell[i * kv + k]);

		if (x < s.least)
			s.least = x;
		if (x > s.most)
			s.most = x;
	}
	return s;
}

struct map {
	const struct kvt_view_maps *m;
	const struct kvt_view_cell *cell;
	int64_t k;
	struct scale scale;
};

static double depth_of(const struct cells *c, int64_t row, int64_t column)
{
	const struct map *map = c->context;
	const struct scale *s = &map->scale;
	double x = kvt_view_rms(&map->cell[map->k + map->m->kv *
					   (row * c->columns + column)]);

	if (isnan(x))
		return x;
	return s->most > s->least ? (x - s->least) / (s->most - s->least) : 0;
}

static int64_t layer_of(const struct cells *c, int64_t row)
{
	const struct kvt_view_maps *m = ((const struct map *)c->context)->m;

	return (int64_t)kvt_layer_id(m->group, kvt_view_member(&m->layers, row));
}

static void print_map(FILE *f, const struct kvt_view_maps *m,
		      const struct kvt_view_cell *cell, int64_t columns, int64_t k,
		      const char *what)
{
	struct map map = {
		m, cell, k, scale_of(cell, m->layers.n * columns, m->kv, k),
	};
	struct cells cells = { m->layers.n, columns, &map, depth_of, layer_of };

	fplainf(f, "  %-9s rms by layer and %s: 0 is %.3g, 9 is %.3g\n",
		kvt_component_name(m->group, k), what, map.scale.least, map.scale.most);
	cells_print(f, &cells);
}

void view_numbers_text(FILE *f, const struct view_group *g)
{
	const struct kvt_view_maps *m = &g->maps;

	if (!m->by_head) {
		if (g->why.text[0])
			fplainf(f, "  numbers   %s\n", g->why.text);
		return;
	}
	for (int64_t k = 0; k < m->kv; k++) {
		if (m->heads.n > 1)
			print_map(f, m, m->by_head, m->heads.n, k, "head");
		if (m->nblocks)
			print_map(f, m, m->by_position, m->positions.n, k, "block");
	}
	if (m->read_bytes < m->bytes)
		fplainf(f, "  a sample: %s of %s were read; --all reads all\n",
			kvt_size_string(m->read_bytes).s, kvt_size_string(m->bytes).s);
}

/* What is worse than a note; what it is, fsck tells. */
static void print_found(FILE *f, const struct view_dump *d)
{
	const int64_t *n = d->found.total;
	const char *between = n[KVT_ERROR] && n[KVT_WARNING] ? ", " : "";

	if (!n[KVT_ERROR] && !n[KVT_WARNING])
		return;
	fplainf(f, "  fsck      ");
	if (n[KVT_ERROR])
		fplainf(f, "%lld error%s", LL(n[KVT_ERROR]), plural(n[KVT_ERROR]));
	if (n[KVT_WARNING])
		fplainf(f, "%s%lld warning%s", between, LL(n[KVT_WARNING]),
			plural(n[KVT_WARNING]));
	fplainf(f, "; kvtool fsck %s tells them\n", d->facts.path);
}

void view_text(FILE *f, const struct view *view)
{
	for (int i = 0; i < view->n; i++) {
		const struct view_dump *d = &view->dump[i];

		fplainf(f, "%s%s\n", i ? "\n" : "", d->facts.path);
		describe_sentence(f, &d->facts);
		print_found(f, d);
		for (int g = 0; g < d->facts.snapshot->ngroups; g++) {
			if (d->facts.snapshot->ngroups > 1)
				fplainf(f, "\n  %s\n", d->facts.group[g].group->id);
			if (view->block)
				view_block_text(f, &d->facts.group[g]);
			print_pool(f, &d->facts, g, &d->group[g].pool, ROWS);
			view_numbers_text(f, &d->group[g]);
		}
	}
}
