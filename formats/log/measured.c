/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measured.c - measured batches, out of what benchmarks print
 *
 *	n,bytes,us			CSV: operations, bytes of the batch, time
 *	nixlbench, tebench, perftest	a heading of columns, rows of numbers
 *	ucx_perftest			"Message size:", then "Final:" and its averages
 *	vLLM				"KV Transfer metrics: ..", a line of a log each
 *
 * Line by line: a heading that is known says what the columns of the rows after it are;
 * lines that belong to no table are passed over.
 */
#include "formats/log/measured.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/log/trace.h"

enum { MOST_LINE = 1024, MOST_CELLS = 24 };

/* What a column means, by its heading. */
enum role { SIZE, COUNT, VALUE, NROLES };

static const struct table {
	const char *name;
	const char *heading[NROLES];	/* COUNT may be NULL: one operation */
	double unit;			/* bytes a second of VALUE; 0: it is us */
	bool csv;			/* SIZE is of the batch, not of an operation */
	bool threads;			/* a row is of one thread's batch */
} tables[] = {
	{ "CSV", { "bytes", "n", "us" }, 0, true, false },
	{ "CSV", { "bytes", NULL, "us" }, 0, true, false },
	{ "nixlbench", { "Block Size (B)", "Batch Size", "B/W (GB/Sec)" }, 1e9, false,
	  true },
	{ "tebench", { "BlkSize (B)", "Batch", "BW (GB/s)" }, 1e9, false, true },
	{ "perftest", { "#bytes", "#iterations", "BW average[MB/sec]" }, 1048576, false,
	  false },
	{ "perftest", { "#bytes", "#iterations", "BW average[MiB/sec]" }, 1048576, false,
	  false },
	{ "perftest", { "#bytes", "#iterations", "BW average[Gb/sec]" }, 1.25e8, false,
	  false },
	{ "perftest", { "#bytes", NULL, "t_avg[usec]" }, 0, false, false },
};
enum { NTABLES = sizeof(tables) / sizeof(tables[0]) };

/* The state of the parser: the table, and the run of ucx_perftest. */
struct reader {
	struct measured *out;
	const char *path;
	struct kvt_error *err;
	int64_t line, threads;
	const struct table *table;	/* NULL: none yet */
	int column[NROLES];
	double message;			/* ucx_perftest: bytes; 0: not said */
	bool latency;			/* it measures latency, not bandwidth */
};

static enum kvt_status wrong(const struct reader *r, const char *what)
{
	return kvt_fail(r->err, KVT_BAD_INPUT, "%s:%lld: %s", r->path, LL(r->line), what);
}

static enum kvt_status add(struct reader *r, const char *format, double n, double bytes,
			   double us, double post_us)
{
	struct measured *m = r->out;

	if (!(n >= 1 && n < 1e15 && bytes > 0 && bytes < 9e18 && us > 0 && us < 1e15 &&
	      post_us >= 0 && post_us < 1e15))
		return wrong(r,
				"operations, bytes and time must all be above 0, and finite");
	if (m->n == MEASURED_MOST)
		return wrong(r, "more than 4096 measurements");
	m->format = format;
	m->row[m->n++] = (struct kvt_measured){ n, bytes, us, post_us, r->line };
	return KVT_OK;
}

/* ---- tables -------------------------------------------------------------- */

/* A number and nothing else. */
static bool number(double *out, const char *text)
{
	char *end;

	*out = strtod(text, &end);
	return end != text && !*end && isfinite(*out);
}

static char *trim(char *text)
{
	size_t n;

	while (isspace((unsigned char)*text))
		text++;
	for (n = strlen(text); n && isspace((unsigned char)text[n - 1]); n--)
		;
	text[n] = '\0';
	return text;
}

/*
 * Cuts a line up.  Headings contain single blanks, so two part them, or one
 * before a '#'; values are parted by any, and CSV by commas.
 */
static int split(char *cell[MOST_CELLS], char *text, bool heading, bool csv)
{
	int n = 0;

	text = trim(text);
	while (*text && n < MOST_CELLS) {
		char *end = text;

		while (*end && !(csv ? *end == ',' :
				 isspace((unsigned char)*end) &&
				 (!heading || isspace((unsigned char)end[1]) ||
				  end[1] == '#')))
			end++;
		if (*end)
			*end++ = '\0';
		cell[n++] = trim(text);
		text = csv ? end : trim(end);
	}
	return n;
}

static int find_cell(char *cell[], int n, const char *name)
{
	for (int i = 0; name && i < n; i++)
		if (!strcmp(cell[i], name))
			return i;
	return -1;
}

/* Whether the line is the heading of a table; it begins then. */
static bool take_heading(struct reader *r, const char *line)
{
	for (int t = 0; t < NTABLES; t++) {
		char copy[MOST_LINE], *cell[MOST_CELLS];
		int n, at[NROLES];

		strcpy(copy, line);
		n = split(cell, copy, true, tables[t].csv);
		for (int i = 0; i < NROLES; i++)
			at[i] = find_cell(cell, n, tables[t].heading[i]);
		if (at[SIZE] < 0 || at[VALUE] < 0 || (tables[t].heading[COUNT] &&
						      at[COUNT] < 0))
			continue;
		r->table = &tables[t];
		memcpy(r->column, at, sizeof(at));
		return true;
	}
	return false;
}

static enum kvt_status take_row(struct reader *r, const char *line)
{
	const struct table *t = r->table;
	char copy[MOST_LINE], *cell[MOST_CELLS];
	double v[NROLES] = { 0, 1, 0 }, size;
	int n;

	strcpy(copy, line);
	n = split(cell, copy, false, t->csv);
	if (!n || !isdigit((unsigned char)cell[0][0]))
		return t->csv && n && cell[0][0] != '#' ?
		       wrong(r, "expected numbers between commas") : KVT_OK;
	for (int i = 0; i < NROLES; i++)
		if (r->column[i] >= 0 && (r->column[i] >= n ||
					  !number(&v[i], cell[r->column[i]])))
			return wrong(r,
					"a column of the table is missing or not a number");
	if (t->threads)
		v[COUNT] *= (double)r->threads;
	size = t->csv ? v[SIZE] : v[SIZE] * v[COUNT];
	if (t->unit > 0)
		v[VALUE] = size / t->unit / v[VALUE] * 1e6;
	return add(r, t->name, v[COUNT], size, v[VALUE], 0);
}

/* ---- ucx_perftest -------------------------------------------------------- */

/* The frame around its table says what is measured; true if the line is of it. */
static bool take_frame(struct reader *r, const char *line)
{
	const char *size = strstr(line, "Message size:");

	if (*line != '|' && *line != '+')
		return false;
	if (size)
		r->message = strtod(size + strlen("Message size:"), NULL);
	if (strstr(line, "latency (usec)"))
		r->latency = true;
	if (strstr(line, "overhead (usec)"))
		r->latency = false;
	return true;
}

/* "Final: iterations 50%ile average overall average overall average overall" */
static enum kvt_status take_final(struct reader *r, const char *line)
{
	char copy[MOST_LINE], *cell[MOST_CELLS];
	double count, average, rate;
	int n;

	strcpy(copy, line);
	n = split(cell, copy, false, false);
	if (n < 7 || !number(&count, cell[1]) || !number(&average, cell[3]) ||
	    !number(&rate, cell[6]))
		return wrong(r, "a final line of ucx_perftest without its columns");
	if (!(r->message > 0))
		return wrong(r,
				"the message size is missing before this line of ucx_perftest");
	if (r->latency)
		return add(r, "ucx_perftest", 1, r->message, average, 0);
	return add(r, "ucx_perftest", count, count * r->message,
		   count * r->message / 1048576 / rate * 1e6, 0);
}

/* ---- vLLM ---------------------------------------------------------------- */

/* A line without descriptors, or of an interval without transfers, tells nothing. */
static enum kvt_status take_metrics(struct reader *r, const char *line)
{
	double transfers, ms, post = 0, mib, descriptors;

	if (!kvt_log_field(&transfers, line, "Num successful transfers") ||
	    transfers < 1 ||
	    !kvt_log_field(&descriptors, line, "Avg number of descriptors"))
		return KVT_OK;
	if (!kvt_log_field(&ms, line, "Avg xfer time (ms)") ||
	    !kvt_log_field(&mib, line, "Avg MB per transfer"))
		return wrong(r, "a line of KV transfer metrics without time or MB");
	kvt_log_field(&post, line, "Avg post time (ms)");
	return add(r, "vLLM", descriptors, mib * 1048576, ms * 1e3, post * 1e3);
}

/* ---- all ----------------------------------------------------------------- */

static enum kvt_status take_line(struct reader *r, const char *line)
{
	if (strstr(line, "KV Transfer metrics:"))
		return take_metrics(r, line);
	if (take_frame(r, line))
		return KVT_OK;
	if (!strncmp(line, "Final:", 6))
		return take_final(r, line);
	if (take_heading(r, line) || !r->table)
		return KVT_OK;
	return take_row(r, line);
}

enum kvt_status measured_parse(struct measured *out, const char *text, size_t nbytes,
			       int64_t threads, const char *path, struct kvt_error *err)
{
	struct reader r = { .out = out, .path = path, .err = err, .threads = threads };
	const char *end = text + nbytes;
	enum kvt_status status = KVT_OK;

	out->n = 0;
	out->format = NULL;
	while (!status && text < end) {
		const char *next = memchr(text, '\n', (size_t)(end - text));
		size_t len = (size_t)((next ? next : end) - text);
		char line[MOST_LINE], *start;

		r.line++;
		/* longer ones are of no benchmark; what follows a NUL is not seen */
		if (len < sizeof(line)) {
			memcpy(line, text, len);
			line[len] = '\0';
			start = trim(line);
			if (*start)
				status = take_line(&r, start);
		}
		text = next ? next + 1 : end;
	}
	if (!status && !out->n)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: not the output of a known benchmark; a CSV has a line with n,bytes,us", path);
	return status;
}
