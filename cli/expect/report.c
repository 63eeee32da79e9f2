/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c - results as other programs want them: JUnit, TAP, GitHub, JSON
 *
 *	JUnit	<testsuite> of each dump, <testcase> of each clause, <failure> or <error>
 *	TAP	version 13: a line of each clause; a dump that cannot be read is one, too
 *	GitHub	::error file=CONTRACT,line=N,title=..::TEXT	for what does not hold
 *
 * What a format would take for its own is escaped by a table each; bytes that are no
 * UTF-8 or act on a terminal are '?'.
 */
#include "cli/expect/expect.h"

#include <string.h>

/* "dump.npy: g0: layout is ..., expected ..." */
struct sentence {
	char s[1200];
};

static struct sentence sentence_of(const struct outcome *o)
{
	struct sentence out;

	outcome_text(out.s, sizeof(out.s), o);
	return out;
}

static int count_broken(const struct expect_result *file)
{
	int n = 0;

	for (int i = 0; i < file->noutcomes; i++)
		n += !file->outcome[i].holds;
	return n;
}

/* ---- text with characters that mean something --------------------------- */

struct escape {
	char c;
	const char *text;
};

/* Other control characters, and bytes that are no UTF-8, become '?'. */
static void put_escaped(FILE *out, const char *text, const struct escape *escapes)
{
	const char *end = text + strlen(text);
	char part[KVT_PLAIN_MAX];

	while (text < end) {
		const struct escape *e = escapes;
		const char *s = text;

		text += kvt_plain_next(part, s, end);
		while (e->c && e->c != *s)
			e++;
		if (e->c)
			fputs(e->text, out);
		else
			fputs(strncmp(part, s, strlen(part)) ? "?" : part, out);
	}
}

static const struct escape xml[] = {
	{ '&', "&amp;" }, { '<', "&lt;" }, { '>', "&gt;" }, { '"', "&quot;" },
	{ '\t', " " }, { '\n', " " }, { 0, NULL },
};
static const struct escape tap[] = { { '#', "\\#" }, { '\\', "\\\\" }, { 0, NULL } };
static const struct escape github[] = {
	{ '%', "%25" }, { '\r', "%0D" }, { '\n', "%0A" }, { 0, NULL },
};
static const struct escape github_property[] = {
	{ '%', "%25" }, { '\r', "%0D" }, { '\n', "%0A" }, { ':', "%3A" },
	{ ',', "%2C" }, { 0, NULL },
};

/* ---- JUnit -------------------------------------------------------------- */

static void put_attribute(FILE *out, const char *name, const char *value)
{
	fprintf(out, " %s=\"", name);
	put_escaped(out, value, xml);
	putc('"', out);
}

static void junit_case(FILE *out, const struct expect_results *r,
		       const struct expect_result *file, const struct outcome *o)
{
	char name[160];

	snprintf(name, sizeof(name), "%s%s%.80s (line %d)", o->group,
		 *o->group ? ": " : "", o->clause->name, o->clause->line);
	fputs("<testcase", out);
	put_attribute(out, "classname", file->path);
	put_attribute(out, "name", name);
	put_attribute(out, "file", r->contract);
	fprintf(out, " line=\"%d\"", o->clause->line);
	if (o->holds) {
		fputs("/>\n", out);
		return;
	}
	fputs("><failure", out);
	put_attribute(out, "message", sentence_of(o).s);
	fputs("/></testcase>\n", out);
}

static void junit(FILE *out, const struct expect_results *r)
{
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n", out);
	for (int i = 0; i < r->nfiles; i++) {
		const struct expect_result *file = &r->file[i];
		bool failed = *file->error;

		fputs("<testsuite", out);
		put_attribute(out, "name", file->path);
		fprintf(out, " tests=\"%d\" failures=\"%d\" errors=\"%d\">\n",
			file->noutcomes + failed, count_broken(file), failed);
		for (int k = 0; k < file->noutcomes; k++)
			junit_case(out, r, file, &file->outcome[k]);
		if (failed) {
			fputs("<testcase", out);
			put_attribute(out, "classname", file->path);
			fputs(" name=\"can be checked\"><error", out);
			put_attribute(out, "message", file->error);
			fputs("/></testcase>\n", out);
		}
		fputs("</testsuite>\n", out);
	}
	fputs("</testsuites>\n", out);
}

/* ---- TAP ---------------------------------------------------------------- */

static void tap_line(FILE *out, int n, const struct expect_result *file, bool ok,
		     const char *text)
{
	fprintf(out, "%sok %d - ", ok ? "" : "not ", n);
	put_escaped(out, file->path, tap);
	fputs(": ", out);
	put_escaped(out, text, tap);
	putc('\n', out);
}

static void report_tap(FILE *out, const struct expect_results *r)
{
	int n = 0;

	for (int i = 0; i < r->nfiles; i++)
		n += r->file[i].noutcomes + !!*r->file[i].error;
	fprintf(out, "TAP version 13\n1..%d\n", n);
	n = 0;
	for (int i = 0; i < r->nfiles; i++) {
		const struct expect_result *file = &r->file[i];

		for (int k = 0; k < file->noutcomes; k++) {
			const struct outcome *o = &file->outcome[k];
			char name[200];

			snprintf(name, sizeof(name), "%s%s%.100s, line %d",
				 o->group, *o->group ? ": " : "",
				 o->clause->name, o->clause->line);
			tap_line(out, ++n, file, o->holds,
				 o->holds ? name : sentence_of(o).s);
		}
		if (*file->error)
			tap_line(out, ++n, file, false, file->error);
	}
}

bool expect_report(FILE *stream, const char *format, const struct expect_results *r)
{
	static const struct {
		const char *name;
		void (*put)(FILE *out, const struct expect_results *r);
	} formats[] = { { "junit", junit }, { "tap", report_tap } };

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (!strcmp(format, formats[i].name)) {
			if (stream)
				formats[i].put(stream, r);
			return true;
		}
	return false;
}

/* ---- GitHub ------------------------------------------------------------- */

static void annotate(FILE *out, const char *contract, int line, const char *path,
		     const char *text)
{
	fputs("::error file=", out);
	put_escaped(out, contract, github_property);
	fprintf(out, ",line=%d,title=layout contract::", line);
	put_escaped(out, path, github);
	fputs(": ", out);
	put_escaped(out, text, github);
	putc('\n', out);
}

void expect_github(FILE *out, const struct expect_results *r)
{
	for (int i = 0; i < r->nfiles; i++) {
		const struct expect_result *file = &r->file[i];

		for (int k = 0; k < file->noutcomes; k++)
			if (!file->outcome[k].holds)
				annotate(out, r->contract, file->outcome[k].clause->line,
					 file->path, sentence_of(&file->outcome[k]).s);
		if (*file->error)
			annotate(out, r->contract, 1, file->path, file->error);
	}
}

/* ---- JSON --------------------------------------------------------------- */

static void put_releases(struct json_out *out, json_t *o, unsigned releases)
{
	json_t *list = json_put_array(out, o, "releases");

	for (int r = 0; r < KVT_NRELEASES; r++)
		if (releases >> r & 1)
			json_append_text(out, list,
					 kvt_release_name((enum kvt_release)r));
}

static void put_outcome(struct json_out *out, json_t *rows, const struct outcome *o)
{
	json_t *row = json_append_object(out, rows);

	json_put_int(out, row, "line", o->clause->line);
	json_put_text(out, row, "group", *o->group ? o->group : NULL);
	json_put_text(out, row, "clause", o->clause->name);
	json_put_bool(out, row, "holds", o->holds);
	json_put_text(out, row, "found", o->found);
	json_put_text(out, row, "expected", o->expected);
	put_releases(out, row, o->releases);
}

void expect_json(struct json_out *out, const struct expect_results *r)
{
	json_t *files;

	json_start(out);
	json_put_text(out, out->root, "contract", r->contract);
	files = json_put_array(out, out->root, "files");
	for (int i = 0; i < r->nfiles; i++) {
		const struct expect_result *file = &r->file[i];
		json_t *o = json_append_object(out, files), *list;

		json_put_text(out, o, "file", file->path);
		json_put_bool(out, o, "holds", !file->status);
		json_put_text(out, o, "error", *file->error ? file->error : NULL);
		put_releases(out, o, file->releases);
		list = json_put_array(out, o, "clauses");
		for (int k = 0; k < file->noutcomes; k++)
			put_outcome(out, list, &file->outcome[k]);
	}
}
