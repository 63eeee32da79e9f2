/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_json.c - a picture as JSON, which the script of a page draws
 *
 *	{"options": [], "dumps": [{"file": .., "sentence": .., "requests": [..], ..,
 *	  "groups": [{"id": "g0", .., "shape": {"L": 5, ..}, .., "block": 13, ..,
 *	    "layouts": [{"name": "nhd", "axes": "LBSHC", "views": [
 *	      {"offset": 0, "kv": null, "factors": [[axis, div, n, stride], ..]}]}, ..],
 *	    "pool": {.., "runs": [[block, count, use, request], ..],
 *	      "tables": [[[block, count, token], ..]], "offsets": [[file, offset], ..]},
 *	    "numbers": {.., "by_head": {"rms": [..], ..}, "by_position": {..}, ..},
 *	    "stored": null}]}], "diff": null}
 *
 * Maps are lists of numbers: by component, then row, then column.  What would grow with
 * the dump has a bound (MOST_..), most of which all groups of the page share: beyond it
 * are the first alone, sums over ranges of blocks, or nothing.
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "print/out/say.h"
#include "lib/kvt/tile.h"
#include "print/describe.h"
#include "print/fsck.h"
#include "print/out/words.h"
#include "print/view.h"

/* ---- where the elements of a block are ----------------------------------- */

static void put_view(struct json_out *out, json_t *list, const struct kvt_view *v, int k)
{
	json_t *o = json_append_object(out, list), *factors;

	json_put_int(out, o, "offset", v->offset);
	json_put_known(out, o, "kv", k, k >= 0);
	factors = json_put_array(out, o, "factors");
	for (int i = 0; i < v->nfactors; i++) {
		const struct kvt_factor *f = &v->factor[i];
		const char axis[2] = { kvt_axis_letter(f->axis), '\0' };
		json_t *terms = json_array();

		if (f->n < 2) {
			json_decref(terms);
			continue;
		}
		json_append(out, factors, terms);
		json_append_text(out, terms, axis);
		json_append_int(out, terms, f->div);
		json_append_int(out, terms, f->n);
		json_append_int(out, terms, f->stride);
	}
}

static void put_layout(struct json_out *out, json_t *list, const char *name,
		       const struct kvt_layout *layout, const struct kvt_views *views)
{
	json_t *o = json_append_object(out, list), *each;

	json_put_text(out, o, "name", name);
	json_put_text(out, o, "axes", kvt_layout_string(layout).s);
	each = json_put_array(out, o, "views");
	for (int i = 0; i < views->count; i++)
		put_view(out, each, &views->view[i],
			 views->count == 2 ? views->first_k + i : -1);
}

static bool is_of_states(const char *preset)
{
	return !strncmp(preset, "conv-", 5) || !strncmp(preset, "ssm", 3);
}

/*
 * Where elements are in the layout of the group, as its memory has them, and in all
 * others that have a name, as if there were no padding; of many groups its own alone.
 */
static void put_layouts(struct json_out *out, json_t *o, const struct kvt_group_facts *f,
			int64_t share)
{
	const struct kvt_group *group = f->group;
	struct kvt_box box = kvt_box_whole(&group->shape);
	json_t *list = json_put_array(out, o, "layouts");
	const char *own = kvt_layout_name(&group->layout, 0);
	const struct kvt_preset *p;
	struct kvt_views views;
	struct kvt_error err;

	put_layout(out, list, own ? own : "", &group->layout, &f->views);
	for (int i = 0; share <= 16 && (p = kvt_preset_at(i)); i++) {
		struct kvt_layout layout;

		/* those of states are named for what they hold */
		if (kvt_is_recurrent(group->kind) != is_of_states(p->name) ||
		    (own && !strcmp(own, p->name)) ||
		    p->latent != (group->shape.n[KVT_AXIS_K] == 1) ||
		    kvt_layout_parse(&layout, p->name, &err) ||
		    kvt_layout_equal(&layout, &group->layout) ||
		    kvt_layout_name(&layout, 0) != p->name ||
		    kvt_layout_views(&views, &layout, &box, group->shape.elem, &err))
			continue;
		put_layout(out, list, p->name, &layout, &views);
	}
}

/* ---- the pool ------------------------------------------------------------ */

static const char *const uses[] = {
	[KVT_VIEW_FREE] = "free", [KVT_VIEW_NULL] = "null", [KVT_VIEW_OWNED] = "owned",
	[KVT_VIEW_SHARED] = "shared", [KVT_VIEW_PASSED] = "passed",
	[KVT_VIEW_OTHER] = "other",
};

enum { NUSES = sizeof(uses) / sizeof(uses[0]), MOST_RANGES = 1024 };

/* More of them are more than a page may have bytes; all groups of a page share them. */
enum {
	MOST_RUNS = 1 << 15, MOST_REQUESTS = 4096, MOST_NAMES = 1 << 16,
	MOST_PLACES = 4096, MOST_IDS = 1 << 16, MOST_FINDINGS = 128,
};

/* The first byte of a block in its file: of its first layer; false: it has none. */
static bool block_offset(int64_t *offset, const char **file, struct kvt_dump *dump, int g,
			 int64_t b)
{
	const int64_t index[KVT_NAXES] = { [KVT_AXIS_B] = b };
	int64_t buffer;

	if (kvt_dump_tiling(dump, g) || kvt_dump_decoded(dump) ||
	    kvt_dump_locate(&buffer, offset, dump, KVT_FILES, g, index, NULL) ||
	    buffer < 0)
		return false;
	*file = kvt_dump_buffer_name(dump, KVT_FILES, buffer);
	return true;
}

/* [file, offset] of the first element of each block, as where says it; few have one. */
static void put_offsets(struct json_out *out, json_t *p, const struct kvt_group *group,
			struct kvt_dump *dump, int g, int64_t most)
{
	json_t *list = json_put_array(out, p, "offsets");
	int64_t n = group->shape.n[KVT_AXIS_B], offset;
	bool has = group->shape.n[KVT_AXIS_L] && group->shape.n[KVT_AXIS_H] && n <= most;
	const char *file;

	for (int64_t b = 0; has && b < n; b++) {
		json_t *pair = json_array();

		json_append(out, list, pair);
		if (!block_offset(&offset, &file, dump, g, b))
			continue;
		json_append_text(out, pair, file ? file : "");
		json_append_int(out, pair, offset);
	}
}

/* Of each request [block id, how many that follow it, the first token of that one]. */
static void put_tables(struct json_out *out, json_t *p, const struct kvt_snapshot *s,
		       int g, int64_t most)
{
	const struct kvt_group *group = &s->group[g];
	json_t *tables = json_put_array(out, p, "tables");

	for (int64_t r = 0; r < s->nrequests && r < MOST_REQUESTS && most > 0; r++) {
		const struct kvt_request *q = &s->request[r];
		const struct kvt_table t = kvt_table_of(s, g, q);
		int64_t each = t.each * group->tokens_per_slot;
		json_t *table = json_array();

		json_append(out, tables, table);
		for (int64_t i = 0, end; i < q->nblocks[g] && most-- > 0; i = end) {
			uint64_t id = kvt_block_id(group, q->blocks[g][i]);
			json_t *run = json_array();

			for (end = i + 1; end < q->nblocks[g]; end++)
				if (kvt_block_id(group, q->blocks[g][end]) !=
				    id + (uint64_t)(end - i))
					break;
			json_append(out, table, run);
			json_append_int(out, run, (int64_t)id);
			json_append_int(out, run, end - i);
			json_append_int(out, run, (t.first + i) * each);
		}
	}
	json_put_bool(out, p, "tables_whole", most > 0 && s->nrequests <= MOST_REQUESTS);
}

/* Of a pool with more runs: [id of the first, blocks, how many of them of each use]. */
static void put_ranges(struct json_out *out, json_t *p, const struct kvt_view_pool *pool,
		       const struct kvt_group *group)
{
	struct kvt_view_axis axis = { group->shape.n[KVT_AXIS_B], MOST_RANGES };
	json_t *list = json_put_array(out, p, "ranges");
	const struct kvt_view_run *r = pool->run;
	int64_t left = r->count;

	for (int64_t i = 0; i < axis.n; i++) {
		int64_t b = kvt_view_member(&axis, i);
		int64_t end = kvt_view_member(&axis, i + 1);
		int64_t count[NUSES] = { 0 };
		json_t *range = json_array();

		json_append(out, list, range);
		json_append_int(out, range, (int64_t)kvt_block_id(group, b));
		json_append_int(out, range, end - b);
		for (int64_t n; b < end; b += n) {
			while (!left)
				left = (++r)->count;
			n = end - b < left ? end - b : left;
			count[r->use] += n;
			left -= n;
		}
		for (size_t u = 0; u < NUSES; u++)
			json_append_int(out, range, count[u]);
	}
}

static json_t *put_pool(struct json_out *out, json_t *o, const struct kvt_view_pool *pool,
		     const struct kvt_group *group, int64_t most)
{
	json_t *p = json_put_object(out, o, "pool"), *runs;

	json_put_bool(out, p, "known", pool->known);
	json_put_int(out, p, "used", pool->used);
	json_put_int(out, p, "shared", pool->shared);
	if (pool->nruns > most && group->shape.n[KVT_AXIS_B] > MOST_RANGES)
		put_ranges(out, p, pool, group);
	runs = json_put_array(out, p, "runs");
	for (int64_t i = 0; pool->nruns <= most && i < pool->nruns; i++) {
		const struct kvt_view_run *r = &pool->run[i];
		json_t *run = json_array();

		json_append(out, runs, run);
		json_append_int(out, run, (int64_t)kvt_block_id(group, r->block));
		json_append_int(out, run, r->count);
		json_append_text(out, run, uses[r->use]);
		json_append_int(out, run, r->request);
	}
	return p;
}

/* ---- maps ---------------------------------------------------------------- */

static double share_of(int64_t part, int64_t all)
{
	return all ? (double)part / (double)all : NAN;
}

static double largest_of(const struct kvt_view_cell *c)
{
	return c->finite ? c->largest : NAN;
}

static double zero_of(const struct kvt_view_cell *c)
{
	return share_of(c->zero, c->finite + c->nan + c->inf);
}

static double odd_of(const struct kvt_view_cell *c)
{
	return c->finite + c->nan + c->inf ? (double)(c->nan + c->inf) : NAN;
}

static const struct {
	const char *key;
	double (*of)(const struct kvt_view_cell *c);
} measures[] = {
	{ "rms", kvt_view_rms }, { "largest", largest_of }, { "zero", zero_of },
	{ "nonfinite", odd_of }, { "mean", kvt_view_mean }, { "step", kvt_view_step },
};

static void put_map(struct json_out *out, json_t *o, const char *key,
		    const struct kvt_view_cell *cell, int64_t rows, int64_t columns,
		    int64_t kv)
{
	json_t *map = json_put_object(out, o, key);

	for (size_t m = 0; m < sizeof(measures) / sizeof(measures[0]); m++) {
		json_t *list = json_put_array(out, map, measures[m].key);

		for (int64_t k = 0; k < kv; k++)
			for (int64_t i = 0; i < rows * columns; i++)
				json_append_real(out, list, json_rounded(
					measures[m].of(&cell[i * kv + k])));
	}
}

/* Where each cell of an axis begins, as people call it. */
static void put_axis(struct json_out *out, json_t *o, const char *key,
		     const struct kvt_view_axis *axis,
		     uint64_t (*id)(const struct kvt_view_maps *m, int64_t member),
		     const struct kvt_view_maps *m)
{
	json_t *list = json_put_array(out, o, key);

	for (int64_t i = 0; i < axis->n && axis->total; i++)
		json_append_int(out, list, (int64_t)id(m, kvt_view_member(axis, i)));
}

static uint64_t layer_id(const struct kvt_view_maps *m, int64_t l)
{
	return kvt_layer_id(m->group, l);
}

static uint64_t head_id(const struct kvt_view_maps *m, int64_t h)
{
	return kvt_head_id(m->group, h);
}

static uint64_t place_id(const struct kvt_view_maps *m, int64_t i)
{
	return m->nblocks ? kvt_block_id(m->group, m->block[i]) : 0;
}

static void put_exponents(struct json_out *out, json_t *o, const struct kvt_view_maps *m)
{
	json_t *e = json_put_object(out, o, "exponents"), *list;

	json_put_int(out, e, "low", KVT_VIEW_LOW);
	json_put_int(out, e, "bins", KVT_VIEW_BINS);
	list = json_put_array(out, e, "counts");
	for (int64_t k = 0; k < m->kv; k++)
		for (int64_t l = 0; l < m->layers.n; l++)
			for (int i = 0; i < KVT_VIEW_BINS; i++)
				json_append_int(out, list, m->exponent[
					(l * m->kv + k) * KVT_VIEW_BINS + i]);
}

/* Which request each column begins in, and at which of its tokens; null: none. */
static void put_tokens(struct json_out *out, json_t *v, const struct kvt_view_maps *m,
		       const struct kvt_snapshot *s)
{
	json_t *list = json_put_array(out, v, "position_tokens");

	for (int64_t i = 0; s->nrequests && i < m->positions.n; i++) {
		int64_t at = kvt_view_member(&m->positions, i);
		json_t *pair = json_array();

		json_append(out, list, pair);
		json_append_int(out, pair, m->request[at]);
		json_append_int(out, pair, m->token[at]);
	}
}

static void put_maps(struct json_out *out, json_t *o, const struct view_group *g,
		     const struct kvt_snapshot *s)
{
	const struct kvt_view_maps *m = &g->maps;
	json_t *v;

	if (!m->by_head) {
		json_put_text(out, o, "numbers", NULL);
		json_put_text(out, o, "why", g->why.text[0] ? g->why.text : NULL);
		return;
	}
	v = json_put_object(out, o, "numbers");
	json_put_int(out, v, "read_bytes", m->read_bytes);
	json_put_int(out, v, "bytes", m->bytes);
	put_axis(out, v, "layers", &m->layers, layer_id, m);
	put_axis(out, v, "heads", &m->heads, head_id, m);
	put_axis(out, v, "positions", &m->positions, place_id, m);
	put_tokens(out, v, m, s);
	json_put_int(out, v, "blocks", m->nblocks);
	put_map(out, v, "by_head", m->by_head, m->layers.n, m->heads.n, m->kv);
	put_map(out, v, "by_position", m->by_position, m->layers.n, m->positions.n,
		m->kv);
	put_exponents(out, v, m);
}

/* ---- what is stored ------------------------------------------------------- */

static const struct {
	const char *key;
	size_t at;
} stored_keys[] = {
	{ "tiles", offsetof(struct kvt_view_row, tiles) },
	{ "seen", offsetof(struct kvt_view_row, seen) },
	{ "plain_bytes", offsetof(struct kvt_view_row, plain) },
	{ "stored_bytes", offsetof(struct kvt_view_row, stored) },
	{ "least", offsetof(struct kvt_view_row, least) },
	{ "most", offsetof(struct kvt_view_row, most) },
};

static void put_stored(struct json_out *out, json_t *o, const struct kvt_group *group,
		       const struct kvt_view_tiles *t)
{
	json_t *s = json_put_if(out, o, "stored", t->tiling), *list;

	if (!s)
		return;
	json_put_axes(out, s, "tile", t->tiling->n);
	json_put_int(out, s, "tile_bytes", t->tiling->nbytes);
	json_put_bool(out, s, "shuffle", t->tiling->shuffle);
	json_put_bool(out, s, "zstd", t->tiling->zstd);
	json_put_bool(out, s, "fletcher32", t->tiling->fletcher32);
	list = json_put_array(out, s, "layers");
	for (int64_t i = 0; i < t->nrows; i++)
		json_append_int(out, list, (int64_t)kvt_layer_id(group, t->row[i].layer));
	for (size_t k = 0; k < sizeof(stored_keys) / sizeof(stored_keys[0]); k++) {
		list = json_put_array(out, s, stored_keys[k].key);
		for (int64_t i = 0; i < t->nrows; i++)
			json_append_int(out, list, *(const int64_t *)(const void *)(
				(const char *)&t->row[i] + stored_keys[k].at));
	}
}

/* ---- the whole ----------------------------------------------------------- */

/* The block that is drawn byte by byte, the first that a request has; of this layer. */
static void put_example(struct json_out *out, json_t *o, const struct kvt_group *group,
			const struct kvt_view_maps *m)
{
	int64_t b = m->nblocks ? m->block[0] : 0;

	json_put_known(out, o, "block", (int64_t)kvt_block_id(group, b),
		       group->shape.n[KVT_AXIS_B] > 0);
	json_put_int(out, o, "block_index", b);
	json_put_int(out, o, "layer", group->shape.n[KVT_AXIS_L] ?
				      (int64_t)kvt_layer_id(group, 0) : 0);
	json_put_int(out, o, "head", (int64_t)kvt_head_id(group, 0));
}

/* A field, or what a block of the row has of it. */
static void put_run(struct json_out *out, json_t *list, const struct kvt_field *field,
		    int64_t run)
{
	json_t *each = json_append_object(out, list);

	json_put_text(out, each, "name", field->name);
	json_put_text(out, each, "type", field->type);
	json_put_int(out, each, "bits", field->bits);
	json_put_int(out, each, "count", kvt_field_run(field));
	json_put_int(out, each, "at", field->at + run * field->step);
	json_put_int(out, each, "stride", field->stride);
}

/* What the bytes of a row are, if they are not elements of one type. */
static void put_fields(struct json_out *out, json_t *o, const struct kvt_group *group)
{
	json_t *list = json_put_array(out, o, "fields"), *named;
	struct kvt_packing packing = { .nfields = 0 };

	if (group->content.type)
		packing = kvt_group_packing(group);
	for (int i = 0; i < packing.nfields; i++)
		for (int64_t run = 0; run < kvt_field_runs(&packing.field[i]); run++)
			put_run(out, list, &packing.field[i], run);
	json_put_int(out, o, "rows", packing.nfields ? packing.rows : 1);
	named = json_put_array(out, o, "parts");
	for (int i = 0; i < group->ncomponents; i++) {
		json_t *each = json_append_object(out, named);

		json_put_text(out, each, "name", group->component[i].name);
		json_put_int(out, each, "start", group->component[i].start);
		json_put_int(out, each, "length", group->component[i].length);
	}
}

/* Of 'share' groups on the page. */
static void put_group(struct json_out *out, json_t *list, const struct view_dump *d,
		      int at, int64_t share)
{
	const struct kvt_snapshot *s = d->facts.snapshot;
	const struct kvt_group_facts *f = &d->facts.group[at];
	const struct view_group *g = &d->group[at];
	const struct kvt_group *group = f->group;
	const int64_t *n = group->shape.n;
	json_t *o = json_append_object(out, list), *shape, *parts, *pool;

	json_put_text(out, o, "id", group->id);
	json_put_text(out, o, "kind", kvt_kind_name(group->kind));
	json_put_text(out, o, "type", kvt_group_type(group).s);
	json_put_text(out, o, "layout", kvt_layout_called(&group->layout).s);
	shape = json_put_object(out, o, "shape");
	for (int a = 0; a < KVT_NAXES; a++) {
		const char axis[2] = { kvt_axis_letter(a), '\0' };

		json_put_int(out, shape, axis, n[a]);
	}
	json_put_int(out, shape, "elem", group->shape.elem);
	json_put_int(out, o, "block_size", group->block_size);
	json_put_int(out, o, "tokens_per_slot", group->tokens_per_slot);
	json_put_int(out, o, "window", group->window);
	json_put_int(out, o, "token_bytes", f->token_bytes);
	json_put_int(out, o, "block_bytes", f->block_bytes);
	json_put_int(out, o, "data_bytes", f->data_bytes);
	parts = json_put_array(out, o, "components");
	for (int64_t k = 0; k < n[KVT_AXIS_K]; k++)
		json_append_text(out, parts, kvt_component_name(group, k));
	put_example(out, o, group, &g->maps);
	put_fields(out, o, group);
	put_layouts(out, o, f, share);
	pool = put_pool(out, o, &g->pool, group, MOST_RUNS / share);
	put_tables(out, pool, s, at, MOST_RUNS / 2 / share);
	put_offsets(out, pool, group, d->dump, at, MOST_PLACES / share);
	put_maps(out, o, g, s);
	put_stored(out, o, group, &g->tiles);
}

/* Ids of tokens as far as there is room; null: not known, or not asked for. */
static void put_token_ids(struct json_out *out, json_t *o, const struct kvt_request *q,
			  int64_t *room)
{
	json_t *list;

	if (!q->token_ids || *room <= 0) {
		json_put(out, o, "token_ids", json_null());
		return;
	}
	list = json_put_array(out, o, "token_ids");
	for (int64_t i = 0; i < q->ntoken_ids && (*room)-- > 0; i++)
		json_append_int(out, list, q->token_ids[i]);
}

static void put_requests(struct json_out *out, json_t *o, const struct kvt_snapshot *s,
			 int64_t ndumps, bool token_ids)
{
	int64_t room = MOST_NAMES / ndumps, ids = token_ids ? MOST_IDS / ndumps : 0;

	json_t *list = json_put_array(out, o, "requests");

	json_put_int(out, o, "nrequests", s->nrequests);
	for (int64_t r = 0; r < s->nrequests && r < MOST_REQUESTS && room > 0; r++) {
		json_t *q = json_append_object(out, list);

		json_put_text(out, q, "id", s->request[r].id);
		json_put_int(out, q, "tokens", s->request[r].ntokens);
		json_put_int(out, q, "first_token", s->request[r].first_token);
		put_token_ids(out, q, &s->request[r], &ids);
		room -= (int64_t)strlen(s->request[r].id) + 16;
	}
}

static void put_sentence(struct json_out *out, json_t *o, const struct kvt_description *d)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	if (f) {
		describe_sentence(f, d);
		fclose(f);
	}
	while (text && n && strchr("\n ", text[n - 1]))
		text[--n] = '\0';
	json_put_text(out, o, "sentence", text ? text + strspn(text, " ") : NULL);
	free(text);
}

/* What commands of the page need to open the same files; null: it cannot be said. */
static void put_options(struct json_out *out, const struct view *view)
{
	struct words w = { 0 };
	json_t *list = NULL;

	words_add_hints(&w, view->hints);
	if (w.failed)
		json_put(out, out->root, "options", json_null());
	else
		list = json_put_array(out, out->root, "options");
	for (int i = 0; list && i < w.n; i++)
		json_append_text(out, list, w.s[i]);
	words_free(&w);
}

void view_json(struct json_out *out, const struct view *view)
{
	int64_t share = 0;
	json_t *dumps;

	for (int i = 0; i < view->n; i++)
		share += view->dump[i].facts.snapshot->ngroups;
	share = share ? share : 1;
	json_start(out);
	put_options(out, view);
	dumps = json_put_array(out, out->root, "dumps");
	for (int i = 0; i < view->n; i++) {
		const struct view_dump *d = &view->dump[i];
		json_t *o = json_append_object(out, dumps), *groups;

		json_put_text(out, o, "file", d->facts.path);
		json_put_text(out, o, "format", kvt_dump_format(d->dump));
		put_sentence(out, o, &d->facts);
		json_put_text(out, o, "model", d->facts.snapshot->model);
		json_put_int(out, o, "data_bytes", d->facts.data_bytes);
		json_put_int(out, o, "file_bytes", d->facts.file_bytes);
		put_requests(out, o, d->facts.snapshot, view->n, view->token_ids);
		fsck_json(out, json_put_object(out, o, "fsck"), &d->found,
			  MOST_FINDINGS / view->n);
		groups = json_put_array(out, o, "groups");
		for (int g = 0; g < d->facts.snapshot->ngroups; g++)
			put_group(out, groups, d, g, share);
	}
	if (view->diff)
		view_diff_json(out, json_put_object(out, out->root, "diff"), view);
	else
		json_put(out, out->root, "diff", json_null());
}
