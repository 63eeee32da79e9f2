/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_maps.c - where the differences are: as text, as CSV, and into files
 *
 *	text	a character a cell: . none, 1 to 9 tenths that differ, # all
 *	CSV	group,map,layer,column,compared,different,max_abs,rel_l2
 *
 * A map is layers by heads, or layers by stretches of tokens or blocks; columns that are
 * too many for a line are added up.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "print/out/text_file.h"
#include "print/diff.h"

/* ---- text --------------------------------------------------------------- */

/* '.' none, 1 to 9 tenths, '#' all; any at all is at least a 1. */
static char shade(const struct heat *h)
{
	int64_t tenths = h->n ? h->bad * 10 / h->n : 0;

	if (!h->bad)
		return '.';
	if (h->bad == h->n)
		return '#';
	return (char)('0' + (tenths < 1 ? 1 : tenths));
}

static void print_map(FILE *stream, const struct diff_result *r, const struct heat *map,
		      int64_t ncolumns, const char *what)
{
	enum { WIDTH = 64 };
	int64_t shown = ncolumns < WIDTH ? ncolumns : WIDTH;

	fplainf(stream, "  layer x %s: . none, 1 to 9 tenths, # all\n", what);
	for (int64_t l = 0; l < r->pair->nlayers; l++) {
		fplainf(stream, "  %5lld  ", LL(kvt_diff_layer(r, l)));
		for (int64_t i = 0; i < shown; i++) {
			struct heat sum = { 0 };

			for (int64_t c = i * ncolumns / shown;
			     c < (i + 1) * ncolumns / shown; c++) {
				sum.n += map[l * ncolumns + c].n;
				sum.bad += map[l * ncolumns + c].bad;
			}
			fputc(shade(&sum), stream);
		}
		fputc('\n', stream);
	}
}

void diff_text_maps(FILE *stream, const struct diff *d)
{
	for (int i = 0; i < d->pairs.n; i++) {
		const struct diff_result *r = &d->result[i];
		char what[600];

		if (!r->measured || r->equal)
			continue;
		fplainf(stream, "%s\n", r->pair->id);
		if (r->pair->nheads > 1)
			print_map(stream, r, r->by_head, r->pair->nheads, "head");
		snprintf(what, sizeof(what), "%s, from %s to %s",
			 r->pair->by_tokens ? "token" : "block", column_name(r, 0).s,
			 column_name(r, r->ncolumns - 1).s);
		print_map(stream, r, r->by_segment, r->ncolumns, what);
	}
}

/* ---- CSV ---------------------------------------------------------------- */

static void csv_row(FILE *stream, const struct diff_result *r, const char *map, int64_t l,
		    const char *column, const struct heat *h)
{
	const struct diff_sums s = { .dd = h->dd, .aa = h->aa };

	fplainf(stream, "%s,%s,%lld,\"", r->pair->id, map, LL(kvt_diff_layer(r, l)));
	while (*column) {
		int n = (int)strcspn(column, "\"");

		fplainf(stream, "%.*s%s", n, column, column[n] ? "\"\"" : "");
		column += n + !!column[n];
	}
	fplainf(stream, "\",%lld,%lld,%.17g,%.17g\n", LL(h->n), LL(h->bad), h->max_abs,
		kvt_diff_rel_l2(&s));
}

static void diff_csv_maps(FILE *stream, const struct diff *d)
{
	fplainf(stream, "group,map,layer,column,compared,different,max_abs,rel_l2\n");
	for (int i = 0; i < d->pairs.n; i++) {
		const struct diff_result *r = &d->result[i];
		const struct diff_pair *p = r->pair;

		for (int64_t j = 0; r->measured && j < p->nlayers * p->nheads; j++) {
			char name[24];

			snprintf(name, sizeof(name), "%lld",
				 LL(kvt_diff_head(r, j % p->nheads)));
			csv_row(stream, r, "head", j / p->nheads, name, &r->by_head[j]);
		}
		for (int64_t j = 0; r->measured && j < p->nlayers * r->ncolumns; j++)
			csv_row(stream, r, "position", j / r->ncolumns,
				column_name(r, j % r->ncolumns).s, &r->by_segment[j]);
	}
}

/* ---- files -------------------------------------------------------------- */

static void write_json(FILE *stream, const struct diff *d)
{
	struct json_out out;

	diff_json_maps(&out, d);
	/* an error of memory shows as an empty file, which is refused below */
	if (!out.failed && !json_dumpf(out.root, stream, JSON_INDENT(2) |
				       JSON_REAL_PRECISION(15)))
		fputc('\n', stream);
	json_free(&out);
}

static const struct {
	const char *ending;
	void (*write)(FILE *stream, const struct diff *d);
} kinds[] = {
	{ ".svg", diff_svg_maps }, { ".csv", diff_csv_maps },
	{ ".json", write_json }, { ".txt", diff_text_maps },
};
enum { NKINDS = sizeof(kinds) / sizeof(kinds[0]) };

static int kind_of(const char *path)
{
	const char *dot = strrchr(path, '.');

	for (int i = 0; dot && i < NKINDS; i++)
		if (!strcasecmp(dot, kinds[i].ending))
			return i;
	return -1;
}

enum kvt_status heatmap_check(const char *path, bool force, struct kvt_error *err)
{
	struct stat st;

	if (kind_of(path) < 0)
		return kvt_fail(err, KVT_USAGE,
				"--heatmap is '%.200s', expected a name that ends in .svg, .csv, .json or .txt",
				path);
	if (!force && !lstat(path, &st))
		return kvt_fail(err, KVT_SYSTEM,
				"%.300s exists; --force replaces it", path);
	return KVT_OK;
}

enum kvt_status heatmap_write(const char *path, bool force, const struct diff *d,
			      struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct text_output out = { .path = path };
	FILE *stream = text_output_open(&out);
	bool bad = !stream;

	if (stream) {
		kinds[kind_of(path)].write(stream, d);
		bad = !text_output_close(stream);
	}
	status = bad ? kvt_no_memory(err, NULL) : text_files_write(&out, 1, force, err);
	free(out.text);
	return status;
}
