/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calibrate.c - kvtool transfer-sim calibrate: a link from what was measured
 *
 * In: rows of bytes, operations and time (formats/log/measured.c).
 * lib/transfer/link_fit.c fits; here the fit is also made of every second row and held
 * against the others, which is the error that one may expect of a size that was not
 * measured.
 */
#include <inttypes.h>
#include "formats/parse/json.h"
#include <stdlib.h>
#include <string.h>

#include "sim/cmd/options.h"
#include "sim/print/link.h"
#include "print/out/streams.h"
#include "print/out/text_file.h"
#include "lib/transfer/link_fit.h"
#include "formats/log/measured.h"

enum { MOST_BYTES = 64 << 20, FEWEST_ROWS = 3 };

struct calibrate_args {
	const char *overlap, *name, *source, *output;
	int64_t tolerance, threads;
	bool force, json;
};

struct calibration {
	const char *path, *file;	/* for messages; as given */
	struct measured *in;		/* owned */
	struct kvt_link link;
	struct kvt_link_error fit, held;	/* held.mean < 0: too few rows */
	bool same_n;			/* all batches have as many operations */
	char source[512];
};

/* ---- fitting ------------------------------------------------------------- */

/* From what vLLM logs of posting; without that, half of an operation. */
static int64_t post_ps(const struct measured *m, int64_t op_ps)
{
	double us = 0, n = 0;

	for (int i = 0; i < m->n; i++)
		if (m->row[i].post_us > 0) {
			us += m->row[i].post_us;
			n += m->row[i].n;
		}
	if (!(n > 0))
		return op_ps / 2;
	return us / n * 1e6 < (double)op_ps ? (int64_t)(us / n * 1e6 + .5) : op_ps;
}

/* Fits rows 1, 3, 5, ... and predicts the others. */
static enum kvt_status hold_out(struct calibration *c, struct kvt_error *err)
{
	const struct measured *m = c->in;
	int odd = (m->n + 1) / 2;
	struct kvt_measured *half = malloc((size_t)m->n * sizeof(*half));
	struct kvt_link link = { .name = "half" };

	c->held.mean = -1;
	if (!half)
		return kvt_no_memory(err, NULL);
	for (int i = 0; i < m->n; i++)
		half[i % 2 ? odd + i / 2 : i / 2] = m->row[i];
	if (odd >= FEWEST_ROWS && m->n > odd) {
		kvt_link_fit(&link, half, odd, c->link.overlap);
		c->held = kvt_link_errors(&link, half + odd, m->n - odd);
	}
	free(half);
	return KVT_OK;
}

static enum kvt_status fit(struct calibration *c, const struct calibrate_args *a,
			   int overlap, struct kvt_error *err)
{
	struct measured *m = c->in;

	if (m->n < FEWEST_ROWS)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %d measurement%s, and a fit of three figures needs at least %d", c->path, m->n,
				plural(m->n), FEWEST_ROWS);
	kvt_link_fit(&c->link, m->row, m->n, overlap);
	c->link.post_ps = post_ps(m, c->link.op_ps);
	c->link.name = a->name ? a->name : "calibrated";
	c->link.quality = KVT_GIVEN;
	snprintf(c->source, sizeof(c->source), "%.400s", a->source ? a->source : c->path);
	c->link.source = c->source;
	c->fit = kvt_link_errors(&c->link, m->row, m->n);
	c->same_n = true;
	for (int i = 1; i < m->n; i++)
		c->same_n &= m->row[i].n == m->row[0].n;
	return hold_out(c, err);
}

/* ---- printing ------------------------------------------------------------ */

static void print_text(const struct calibration *c)
{
	const struct kvt_link *l = &c->link;
	char k[8] = "inf";

	if (l->overlap)
		snprintf(k, sizeof(k), "%d", l->overlap);
	plainf("%s: %d measurements, %s\n\n%8s %12s %16s %14s %14s "
			"%8s\n", c->path, c->in->n,
	       c->in->format, "line", "ops", "bytes", "us", "fitted us", "off by");
	for (int i = 0; i < c->in->n; i++) {
		const struct kvt_measured *r = &c->in->row[i];
		double off = kvt_link_residual(l, r);

		plainf("%8" PRId64 " %12.0f %16.0f %14.6g %14.6g "
				"%+7.1f%%\n", r->line, r->n,
		       r->bytes, r->us, r->us * (1 + off), 100 * off);
	}
	plainf("\noverlap %s, setup %.4g us, operation %.4g ns, %.4g GB/s\n", k,
	       (double)l->setup_ns / 1e3, (double)l->op_ps / 1e3, (double)l->rate / 1e9);
	plainf("off by %.1f%% on average, %.1f%% at most\n", 100 * c->fit.mean,
	       100 * c->fit.most);
	if (c->held.mean >= 0)
		plainf("fitted to every other row it predicts the rest within %.1f%% on "
		       "average, %.1f%% at most\n", 100 * c->held.mean, 100 * c->held.most);
	if (c->same_n)
		puts("all batches have as many operations: what is setup and what the "
		     "operations cost rests on the overlap alone");
}

static void put_error(struct json_out *out, const char *key,
		      const struct kvt_link_error *e)
{
	json_t *o;

	if (e->mean < 0)
		return;
	o = json_put_object(out, out->root, key);
	json_put_real(out, o, "mean", e->mean);
	json_put_real(out, o, "most", e->most);
}

static enum kvt_status print_json(const struct calibration *c, struct kvt_error *err)
{
	struct json_out out;
	json_t *list;

	json_start(&out);
	json_put_text(&out, out.root, "file", c->path);
	json_put_text(&out, out.root, "format", c->in->format);
	link_put(&out, json_put_object(&out, out.root, "link"), &c->link);
	put_error(&out, "error", &c->fit);
	put_error(&out, "hold_out", &c->held);
	json_put_bool(&out, out.root, "same_ops", c->same_n);
	list = json_put_array(&out, out.root, "rows");
	for (int i = 0; i < c->in->n; i++) {
		const struct kvt_measured *r = &c->in->row[i];
		json_t *o = json_append_object(&out, list);

		json_put_int(&out, o, "line", r->line);
		json_put_real(&out, o, "ops", r->n);
		json_put_real(&out, o, "bytes", r->bytes);
		json_put_real(&out, o, "us", r->us);
		json_put_real(&out, o, "residual", kvt_link_residual(&c->link, r));
	}
	return json_print(&out, false, err);
}

static enum kvt_status write_link(const struct calibration *c,
				  const struct calibrate_args *a, struct kvt_error *err)
{
	struct json_out out;
	enum kvt_status status;
	char *text;

	json_start(&out);
	link_put(&out, out.root, &c->link);
	text = out.failed ? NULL :
	       kvt_json_dump(out.root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
	json_free(&out);
	if (!text)
		return kvt_no_memory(err, NULL);
	status = text_file_write(a->output, text, strlen(text), a->force, err);
	free(text);
	return status;
}

/* ---- the mode ------------------------------------------------------------ */

static enum kvt_status read_file(struct calibration *c, const struct calibrate_args *a,
				 struct kvt_error *err)
{
	size_t nbytes;
	char *text;
	enum kvt_status status = text_file_read(&text, &nbytes, c->file, MOST_BYTES, err);

	if (status)
		return status;
	status = measured_parse(c->in, text, nbytes, a->threads, c->path, err);
	free(text);
	return status;
}

/* Then there is nothing else on standard output. */
static bool prints_link(const struct calibrate_args *a)
{
	return is_stream(a->output);
}

static enum kvt_status calibrate(struct calibration *c, const struct calibrate_args *a,
				 struct kvt_error *err)
{
	static const char *const names[] = { "inf", "1", "2", NULL, "4" };
	enum kvt_status status;
	int overlap = -1;

	for (int i = 0; a->overlap && i < 5; i++)
		if (names[i] && !strcmp(names[i], a->overlap))
			overlap = i;
	if (a->overlap && overlap < 0)
		return kvt_fail(err, KVT_USAGE,
				"--overlap is '%.40s', expected 1, 2, 4 or inf",
				a->overlap);
	if ((status = read_file(c, a, err)) || (status = fit(c, a, overlap, err)))
		return status;
	if (!a->json && !prints_link(a))
		print_text(c);
	else if (a->json && (status = print_json(c, err)))
		return status;
	if (c->fit.most * 100 > (double)a->tolerance)
		return kvt_fail(err, KVT_MISMATCH,
				"%s: a time is %.1f%% off, more than %lld%%; no link was written", c->path, 100 * c->fit.most,
				LL(a->tolerance));
	return a->output ? write_link(c, a, err) : KVT_OK;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct calibrate_args a = { .tolerance = 10, .threads = 1 };
	const struct opt opts[] = {
		{ "overlap", 0, OPT_STRING, &a.overlap, "1|2|4|inf",
		  "how posting and the wire overlap; default: what fits best" },
		{ "threads", 0, OPT_COUNT, &a.threads, "N",
		  "threads or processes of nixlbench or tebench, each with its batch" },
		{ "tolerance", 0, OPT_INT, &a.tolerance, "PERCENT",
		  "end with status 1 if a row is further off; default 10" },
		{ "name", 0, OPT_STRING, &a.name, "TEXT", "what the link is called" },
		{ "source", 0, OPT_STRING, &a.source, "TEXT",
		  "where the figures are from; default: the file" },
		OPT_OUTPUT(&a.output),
		OPT_FORCE(&a.force),
		OPT_JSON(&a.json),
		{ 0 }
	};
	struct calibration c = { .in = NULL };
	enum kvt_status status;
	int n = opt_parse(&transfer_calibrate, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (n != 1)
		return kvt_fail(err, KVT_USAGE,
				"expected one file, or - for standard input, got %d", n);
	if (a.json && prints_link(&a))
		return kvt_fail(err, KVT_USAGE,
				"--json and -o - both print on standard output: give one");
	c.path = text_file_name(argv[0]);
	c.file = argv[0];
	if ((status = text_file_check(a.output, argv, n, a.force, err)))
		return status;
	if (!(c.in = malloc(sizeof(*c.in))))
		return kvt_no_memory(err, NULL);
	status = calibrate(&c, &a, err);
	free(c.in);
	return status;
}

const struct command transfer_calibrate = {
	.name = "transfer-sim calibrate",
	.args = "FILE",
	.summary = "fit a link to what a benchmark or vLLM printed",
	.run = run,
	.examples =
		"  nixlbench --max_batch_size=1024 >bench.log\n"
		"  kvtool transfer-sim calibrate bench.log -o rack7.json\n"
		"  kvtool transfer-sim sweep -m llama-3.1-70b --tps=4:8 --link=rack7.json\n",
};
