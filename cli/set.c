/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.c - several dumps of one command line
 *
 * A shell's * names all that is in a folder: dumps, and what belongs to them.  Where each
 * becomes a dump, all names are known, and none is there twice, before one is written.
 */
#define _GNU_SOURCE		/* asprintf */
#include "cli/set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/progress.h"
#include "cli/shard/shard.h"
#include "formats/file/reads.h"
#include "formats/file/tree.h"
#include "print/out/signals.h"
#include "print/out/streams.h"

/* ---- manifests ---------------------------------------------------------- */

int pass_over_manifests(char **operands, int n, const struct kvt_hints *hints)
{
	int left = 0;

	for (int i = 0; i < n; i++) {
		bool manifest = false;

		if (kvt_path_ends(operands[i], ".json"))
			/* those before i that are left have moved to the front */
			for (int j = 0; j < n && !manifest; j++)
				manifest = (j < left || j > i) &&
					   kvt_is_manifest_of(operands[i], operands[j],
							      hints);
		if (!manifest)
			operands[left++] = operands[i];
	}
	return left;
}

/* ---- names in a folder -------------------------------------------------- */

struct pair {
	const char *in;
	char *out;			/* owned */
	double share;			/* of the work: of 1 for all */
};

/* What the output's name ends in: the format that is asked for, or that of the input. */
static const char *ending_for(const struct rewrite *r, const char *in, bool folder,
			      bool same_format)
{
	const struct kvt_format_info *info;
	struct kvt_error why;
	const char *dot = strrchr(in, '.');

	if (r->create.format)
		return kvt_output_ending(r->create.format);
	if (same_format && !folder && dot && !kvt_output_format(&info, in, NULL, &why))
		return dot;
	return kvt_output_ending("hdf5");
}

static enum kvt_status name_output(struct pair *p, const struct rewrite *r,
				   bool same_format, struct kvt_error *err)
{
	const char *base, *dot, *dir = r->out_dir;
	size_t n = strlen(p->in), room = strlen(dir);
	struct stat st;
	bool folder;

	if (is_stream(p->in) || !strcmp(p->in, stream_in_path))
		return kvt_fail(err, KVT_USAGE,
				"standard input has no name for a file in --out-dir; give -o OUT");
	while (n > 1 && p->in[n - 1] == '/')
		n--;
	base = memrchr(p->in, '/', n);
	base = base && n > 1 ? base + 1 : p->in;
	n -= (size_t)(base - p->in);
	if (*base == '.' && (n == 1 || (n == 2 && base[1] == '.')))
		return kvt_fail(err, KVT_USAGE,
				"'%.200s' has no name for a file in --out-dir; give -o OUT",
				p->in);
	folder = !stat(p->in, &st) && S_ISDIR(st.st_mode);
	dot = folder ? NULL : memrchr(base, '.', n);
	if (dot && dot > base)
		n = (size_t)(dot - base);
	if (asprintf(&p->out, "%s%s%.*s%s", dir, room && dir[room - 1] == '/' ? "" : "/",
		     (int)n, base, ending_for(r, p->in, folder, same_format)) < 0) {
		p->out = NULL;
		return kvt_no_memory(err, NULL);
	}
	return KVT_OK;
}

static int by_output(const void *a, const void *b)
{
	const struct pair *const *x = a, *const *y = b;

	return strcmp((*x)->out, (*y)->out);
}

static enum kvt_status refuse_twins(struct pair *pairs, int n, struct kvt_error *err)
{
	struct pair **sorted = calloc((size_t)n, sizeof(struct pair *));
	enum kvt_status status = KVT_OK;

	if (!sorted)
		return kvt_no_memory(err, NULL);
	for (int i = 0; i < n; i++)
		sorted[i] = &pairs[i];
	qsort(sorted, (size_t)n, sizeof(struct pair *), by_output);
	for (int i = 1; !status && i < n; i++)
		if (!by_output(&sorted[i - 1], &sorted[i]))
			status = kvt_fail(err, KVT_USAGE,
					  "%.200s and %.200s would both become %.200s; give one of them another --out-dir",
					  sorted[i - 1]->in, sorted[i]->in,
					  sorted[i]->out);
	free(sorted);
	return status;
}

/* ---- each --------------------------------------------------------------- */

/* As much work as it has bytes; the same for all, where one is a folder. */
static void share_work(struct pair *pairs, int n)
{
	double all = 0;
	struct stat st;

	for (int i = 0; i < n; i++) {
		if (stat(pairs[i].in, &st) || !S_ISREG(st.st_mode)) {
			all = 0;
			break;
		}
		pairs[i].share = (double)st.st_size;
		all += pairs[i].share;
	}
	for (int i = 0; i < n; i++)
		pairs[i].share = all > 0 ? pairs[i].share / all : 1.0 / n;
}

static enum kvt_status write_each(const struct rewrite *r, const struct command *command,
				  const struct pair *pairs, int n, rewrite_one *one,
				  void *context, struct kvt_error *err)
{
	enum kvt_status worst = KVT_OK, status;
	struct progress_part part = { .n = n > 1 ? n : 0, .passes = r->verify ? 2 : 1 };
	struct kvt_error last = { "" };
	int i;

	for (i = 0; i < n && !interrupted; i++) {
		struct kvt_error why = { "" };
		struct rewrite this = *r;

		this.input = pairs[i].in;
		this.output = pairs[i].out;
		this.several = n > 1;
		part.i = i;
		part.share = pairs[i].share;
		progress_among(&part);
		status = one(&this, context, &why);
		part.before += part.share;
		worst = worse(worst, status);
		/* what is wrong with an option is wrong for all */
		if (status && !interrupted && strcmp(why.text, last.text) != 0)
			complain(command, "%s", why.text);
		last = why;
	}
	return interrupted && (worst || i < n) ?
	       kvt_fail(err, KVT_SYSTEM, "interrupted") : worst;
}

/* No output may replace what another one is to be made of. */
static void note_inputs(char **inputs, int n)
{
	struct stat st;

	for (int i = 0; i < n; i++)
		if (!stat(inputs[i], &st))
			kvt_reads_add(&st);
}

static enum kvt_status in_folder(const struct rewrite *r, const struct command *command,
				 const struct pair *pairs, int n, rewrite_one *one,
				 void *context, struct kvt_error *err)
{
	bool made = !mkdir(r->out_dir, 0777);
	enum kvt_status status;
	struct stat st;

	if (!made && errno == EEXIST && !stat(r->out_dir, &st) && !S_ISDIR(st.st_mode))
		errno = ENOTDIR;
	if (!made && errno != EEXIST)
		return kvt_fail(err, KVT_SYSTEM, "%s: cannot create the folder: %s",
				r->out_dir, strerror(errno));
	status = write_each(r, command, pairs, n, one, context, err);
	if (made)
		rmdir(r->out_dir);	/* if nothing is in it */
	return status;
}

/* ---- operands ----------------------------------------------------------- */

static bool ends_as_folder(const char *name)
{
	size_t n = strlen(name);

	return n && name[n - 1] == '/';
}

static void take_folder(struct rewrite *r, char **argv, int *n)
{
	bool last = !r->output && *n > 1;
	const char *out = last ? argv[*n - 1] : r->output;
	int inputs = *n - last;

	/* one input and --format: of a format whose output is a folder */
	if (!out || !ends_as_folder(out) || (inputs == 1 && r->create.format))
		return;
	for (int i = 0; last && i < inputs; i++)
		if (ends_as_folder(argv[i]) && !access(out, F_OK))
			return;		/* a shell's, of folders that are inputs */
	r->out_dir = out;
	r->output = NULL;
	*n = inputs;
}

enum kvt_status rewrite_each_operands(struct rewrite *r, char **argv, int *n,
				      struct kvt_error *err)
{
	bool folder;

	if (r->output && r->out_dir)
		return kvt_fail(err, KVT_USAGE,
				"-o and --out-dir both say where to write; expected one of them");
	if (!r->out_dir)
		take_folder(r, argv, n);
	if (r->out_dir) {
		r->input = *n > 0 ? argv[0] : NULL;
		return KVT_OK;
	}
	if (*n <= 2)
		return rewrite_operands(r, argv, *n, err);
	folder = !r->output && kvt_is_folder(argv[*n - 1]);
	return kvt_fail(err, KVT_USAGE,
			"expected one input and one output, got %d operands: '%.60s', '%.60s', '%.60s'%s; to write each of several inputs into a folder: --out-dir=%.100s",
			*n, argv[0], argv[1], argv[2], *n > 3 ? "..." : "",
			folder ? argv[*n - 1] : "DIR");
}

enum kvt_status rewrite_each(struct rewrite *r, const struct command *command,
			     char **inputs, int n, rewrite_one *one, void *context,
			     struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct pair *pairs;

	if (!r->out_dir)
		return one(r, context, err);
	if (shard_sharing())
		return kvt_fail(err, KVT_USAGE,
				"--shard divides the writing of one dump, and --out-dir writes several; expected one of them");
	n = pass_over_manifests(inputs, n, &r->hints);
	if (!(pairs = calloc((size_t)n, sizeof(*pairs))))
		return kvt_no_memory(err, NULL);
	for (int i = 0; !status && i < n; i++) {
		pairs[i].in = inputs[i];
		/* convert is for another format, the others keep it */
		status = name_output(&pairs[i], r, !r->to_another, err);
	}
	if (!status && !(status = refuse_twins(pairs, n, err))) {
		note_inputs(inputs, n);
		share_work(pairs, n);
		signals_catch();
		status = in_folder(r, command, pairs, n, one, context, err);
	}
	for (int i = 0; i < n; i++)
		free(pairs[i].out);
	free(pairs);
	return status;
}
