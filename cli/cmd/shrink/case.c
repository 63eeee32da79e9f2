/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case.c - two small dumps, and a text that shows what is wrong with them
 *
 * The folder is made as OUT.tmp-PID/OUT.  The text is made last: kvtool diff is run in
 * the folder as a reader will run it, and what it prints is what the text shows.
 */
#include "cli/cmd/shrink/case.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/child.h"
#include "cli/cli.h"
#include "lib/kvt/write.h"
#include "print/out/leftovers.h"
#include "print/out/signals.h"
#include "print/out/text_file.h"

const char *const case_files[NSIDES] = { "a.h5", "b.h5" };
static const char readme[] = "README.md";

/* ---- sizes -------------------------------------------------------------- */

struct case_size case_size_of(const struct kvt_dump *dump)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	struct case_size out = { .requests = s->nrequests };

	for (int g = 0; g < s->ngroups; g++) {
		const int64_t *n = s->group[g].shape.n;
		int64_t elements = 1;

		for (int a = 0; a < KVT_NAXES; a++)
			elements *= n[a];
		out.layers += n[KVT_AXIS_L];
		out.blocks += n[KVT_AXIS_B];
		out.heads = n[KVT_AXIS_H] > out.heads ? n[KVT_AXIS_H] : out.heads;
		out.elements += elements;
	}
	for (int64_t r = 0; r < s->nrequests; r++)
		out.tokens += s->request[r].ntokens;
	return out;
}

void case_print_sizes(FILE *out, const struct shrink_case *c)
{
	const struct {
		const char *what;
		int64_t before, after;
	} rows[] = {
		{ "layer", c->before.layers, c->after.layers },
		{ "head", c->before.heads, c->after.heads },
		{ "block", c->before.blocks, c->after.blocks },
		{ "request", c->before.requests, c->after.requests },
		{ "token", c->before.tokens, c->after.tokens },
	};
	const char *separator = "";

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!rows[i].before)
			continue;
		fplainf(out, "%s%lld of %lld %s%s", separator, LL(rows[i].after),
			LL(rows[i].before), rows[i].what, plural(rows[i].before));
		separator = ", ";
	}
}

/* ---- the folder --------------------------------------------------------- */

static void path_of(char out[PATH_MAX + 16], const struct shrink_case *c,
		    const char *name)
{
	snprintf(out, PATH_MAX + 16, "%s/%s", c->folder, name);
}

enum kvt_status case_open(struct shrink_case *c, struct kvt_error *err)
{
	bool force = c->stage.force;
	enum kvt_status status = kvt_stage_check(c->output, true, force, "a case", err);

	if (status)
		return status;
	signals_catch_all();
	tell_leftovers(c->output);
	if ((status = kvt_stage_open(&c->stage, c->output, NULL, true, force, err)))
		return status;
	if (mkdir(c->stage.file[0].file, 0777) ||
	    !realpath(c->stage.file[0].file, c->folder))
		return kvt_fail_errno(err, c->output, "make");
	return KVT_OK;
}

void case_close(struct shrink_case *c)
{
	const char *const names[] = { case_files[SIDE_A], case_files[SIDE_B], readme };
	char path[PATH_MAX + 16];

	/* what is published is not there any more */
	for (int i = 0; i < 3 && *c->folder && c->stage.folder; i++) {
		path_of(path, c, names[i]);
		(void)unlink(path);
	}
	kvt_stage_close(&c->stage);
}

enum kvt_status case_publish(struct shrink_case *c, struct kvt_error *err)
{
	struct kvt_stage *stage = &c->stage;
	enum kvt_status status = kvt_sync_path(c->folder, err);

	if (status)
		return status;
	if (!signals_hold())
		return kvt_fail(err, KVT_SYSTEM, "interrupted");
	if (!(status = kvt_stage_publish(&stage, 1, true, err)))
		*c->folder = '\0';
	signals_release(!status);
	return status;
}

/* ---- the dumps ---------------------------------------------------------- */

static enum kvt_status write_dump(const struct shrink_case *c,
				  const struct kvt_dump *part,
				  const struct kvt_snapshot *named, const char *name,
				  bool sync, struct kvt_error *err)
{
	const struct kvt_create_options options = { .format = "hdf5",
						    .no_sync = !sync };
	struct kvt_writer *writer = NULL;
	char path[PATH_MAX + 16];
	enum kvt_status status;

	path_of(path, c, name);
	/* not replaced: COMMAND may have it open still */
	(void)unlink(path);
	if (!(status = kvt_create(&writer, path, &options, named, err)) &&
	    !(status = kvt_write(&writer, &part, 1, &c->run, err)))
		status = kvt_commit(writer, err);
	if (status && writer)
		kvt_writer_retell(writer, err);
	kvt_close_writer(writer);
	return status;
}

enum kvt_status case_write(const struct shrink_case *c, const struct shrink_parts *parts,
			   bool sync, struct kvt_error *err)
{
	struct kvt_snapshot named[NSIDES];
	enum kvt_status status = KVT_OK;

	for (int s = 0; s < NSIDES; s++)
		kvt_snapshot_init(&named[s]);
	for (int s = 0; !status && s < NSIDES && parts->part[s]; s++)
		status = kvt_snapshot_copy(&named[s], kvt_dump_snapshot(parts->part[s]),
					   err);
	if (!status)
		status = kvt_shrink_names(&named[SIDE_A],
					  parts->part[SIDE_B] ? &named[SIDE_B] : NULL,
					  c->tokens, err);
	for (int s = 0; !status && s < NSIDES && parts->part[s]; s++)
		status = write_dump(c, parts->part[s], &named[s], case_files[s], sync,
				    err);
	for (int s = 0; s < NSIDES; s++)
		kvt_snapshot_free(&named[s]);
	return status;
}

/* ---- the text ----------------------------------------------------------- */

/* What kvtool diff says of the case: printed, and asked for its status. */
static enum kvt_status run_diff(FILE *out, const struct shrink_case *c,
				struct kvt_error *err)
{
	const char *const argv[] = { "kvtool", "diff",
				     *c->terms ? c->terms + 1 : case_files[SIDE_A],
				     *c->terms ? case_files[SIDE_A] : case_files[SIDE_B],
				     *c->terms ? case_files[SIDE_B] : NULL, NULL };
	const struct child child = { .program = "/proc/self/exe", .argv = argv,
				     .folder = c->folder, .out = fileno(out) };
	int said = 0;
	enum kvt_status status;

	fplainf(out, "$ kvtool diff%s %s %s\n", c->terms, case_files[SIDE_A],
		case_files[SIDE_B]);
	if (fflush(out))
		return kvt_fail_errno(err, readme, "write");
	if ((status = child_run(&said, &child, err)))
		return status;
	/* both write to the end of the same file */
	if (fseek(out, 0, SEEK_END))
		return kvt_fail_errno(err, readme, "write");
	return said == KVT_MISMATCH ? KVT_OK :
	       kvt_fail(err, KVT_BAD_INPUT,
			"kvtool diff ends with status %d on what is left, where 1 was expected; --while='kvtool diff \"$A\" \"$B\"' asks it about every part",
			said);
}

static void print_command(FILE *out, const struct shrink_case *c, bool two)
{
	fplainf(out, "$ export A=\"$PWD/%s\"\n", case_files[SIDE_A]);
	if (two)
		fplainf(out, "$ export B=\"$PWD/%s\"\n", case_files[SIDE_B]);
	/* lines of it as they are: it was typed, and is to be pasted */
	fplainf(out, "$ ");
	for (const char *line = c->command; line; ) {
		size_t n = strcspn(line, "\n");

		fplainf(out, "%.*s\n", (int)n, line);
		line = line[n] ? line + n + 1 : NULL;
	}
}

static void print_about(FILE *out, const struct shrink_case *c, bool two)
{
	fplainf(out, "\nLeft of the whole: ");
	case_print_sizes(out, c);
	fplainf(out,
		".\nValues are those of the whole, bit for bit. Layers, heads, tokens and blocks have the numbers that they had there. Requests, groups, pools and blocks of a store have new names; the model's name%s left out.\n",
		c->tokens ? " is" : " and the ids of tokens are");
	fplainf(out,
		"\nBefore you pass this on: values of a cache tell about its text, and whoever has the model can find much of that. Blocks are whole, so tokens beside those that are counted here are in the file%s, too.\n",
		two ? "s" : "");
}

static enum kvt_status print_readme(FILE *out, const struct shrink_case *c, bool two,
				    struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	fplainf(out,
		"# A case\n\nPart of %s, made by kvtool shrink %s. In this folder this shows what is wrong:\n\n```console\n",
		two ? "two dumps of a KV cache" : "a dump of a KV cache", KVT_VERSION);
	if (c->command)
		print_command(out, c, two);
	else
		status = run_diff(out, c, err);
	fplainf(out, "```\n");
	if (c->text)
		fplainf(out, "\nIt prints: %s\n", c->text);
	else if (c->command)
		fplainf(out, "\nIt ends with status %d.\n", c->status);
	print_about(out, c, two);
	return status;
}

enum kvt_status case_explain(const struct shrink_case *c,
			     const struct shrink_parts *parts, struct kvt_error *err)
{
	char path[PATH_MAX + 16];
	enum kvt_status status;
	FILE *out;
	int fd;

	path_of(path, c, readme);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
		  0666);
	if (fd < 0 || !(out = fdopen(fd, "a"))) {
		status = kvt_fail_errno(err, readme, "make");
		if (fd >= 0)
			close(fd);
		return status;
	}
	status = print_readme(out, c, parts->part[SIDE_B] != NULL, err);
	if (!status && (fflush(out) || ferror(out) || fsync(fd)))
		status = kvt_fail_errno(err, readme, "write");
	if (fclose(out) && !status)
		status = kvt_fail_errno(err, readme, "write");
	return status;
}
