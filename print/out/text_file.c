/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text_file.c - reading and writing contracts, reports and other small files of text
 *
 * Read whole, up to a limit, from pipes as well.  Written beside the name first, then
 * renamed, all of several or none (formats/stage.h); what is a pipe or a device is
 * written to as it is.  A long text may instead be printed: standard output is that file
 * from text_divert() to text_divert_end(), and a signal makes printing fail, not the
 * program.
 */
#define _GNU_SOURCE		/* fopencookie */
#include "print/out/text_file.h"
#include "print/out/leftovers.h"
#include "print/out/signals.h"
#include "print/out/streams.h"
#include "formats/file/reads.h"
#include "formats/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_ROOM = 1 << 16 };

const char *text_file_name(const char *path)
{
	return is_stream(path) ? "standard input" : path;
}

static FILE *open_own(const char *path)
{
	return is_stream(path) ? stdin : fopen(path, "re");
}

FILE *text_file_open(const char *path)
{
	FILE *file = open_own(path);
	struct stat st;

	if (file && !fstat(fileno(file), &st) && S_ISREG(st.st_mode))
		kvt_reads_add(&st);
	return file;
}

void text_file_close(FILE *file)
{
	if (file != stdin)
		fclose(file);
}

/* Also from a pipe, so the size is not known before.  NULL: errno says why. */
static char *read_all(FILE *file, size_t most, size_t *nbytes)
{
	size_t room = most < FIRST_ROOM ? most : FIRST_ROOM, n = 0;
	char *text = malloc(room + 1), *more;

	/* there is room for one more, which says that there is too much */
	while (text && (n += fread(text + n, 1, room + 1 - n, file)) == room + 1 &&
	       room < most) {
		room = room < most / 2 ? 2 * room : most;
		if (!(more = realloc(text, room + 1)))
			free(text);
		text = more;
	}
	*nbytes = n;
	return text;
}

/* Takes 'file', which is NULL if it could not be opened. */
static enum kvt_status read_file(char **out, size_t *nbytes, FILE *file,
				 const char *path, size_t most, struct kvt_error *err)
{
	char *text;
	size_t n;

	path = text_file_name(path);
	if (!file)
		return kvt_fail_errno(err, path, "open");
	text = read_all(file, most, &n);
	if (!text || ferror(file)) {
		enum kvt_status status = kvt_fail_errno(err, path, "read");

		text_file_close(file);
		free(text);
		return status;
	}
	text_file_close(file);
	if (n > most) {
		free(text);
		return kvt_fail(err, KVT_BAD_INPUT, "%s: more than %zu bytes", path,
				most);
	}
	*out = text;
	*nbytes = n;
	return KVT_OK;
}

enum kvt_status text_file_read(char **out, size_t *nbytes, const char *path,
			       size_t most, struct kvt_error *err)
{
	return read_file(out, nbytes, text_file_open(path), path, most, err);
}

enum kvt_status text_file_read_own(char **out, size_t *nbytes, const char *path,
				   size_t most, struct kvt_error *err)
{
	return read_file(out, nbytes, open_own(path), path, most, err);
}

static enum kvt_status write_all(int fd, const char *path, const char *text,
				 size_t nbytes, struct kvt_error *err)
{
	while (nbytes) {
		ssize_t n = write(fd, text, nbytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			errno = EIO;
		if (n <= 0)
			return kvt_fail_errno(err, path, "write");
		text += n;
		nbytes -= (size_t)n;
	}
	/* what is no file, a pipe say, cannot be synced */
	return fsync(fd) && errno != EINVAL && errno != EROFS ?
	       kvt_fail_errno(err, path, "write") : KVT_OK;
}

static enum kvt_status write_and_close(int fd, const struct text_output *out,
				       struct kvt_error *err)
{
	enum kvt_status status;

	if (fd < 0)
		return kvt_fail_errno(err, out->path, "create");
	status = write_all(fd, out->path, out->text, out->nbytes, err);
	if (close(fd) && !status)
		status = kvt_fail_errno(err, out->path, "write");
	return status;
}

/* Standard output is closed, and checked, when the program ends. */
static enum kvt_status write_stream(const struct text_output *out, struct kvt_error *err)
{
	if (!is_stream(out->path))
		return write_and_close(open(out->path, O_WRONLY | O_CLOEXEC), out, err);
	fwrite(out->text, 1, out->nbytes, stdout);
	return KVT_OK;
}

static ssize_t take(void *cookie, const char *bytes, size_t n)
{
	struct text_output *out = cookie;
	char *more = realloc(out->text, out->nbytes + n + 1);

	if (!more)
		return 0;
	memcpy(more + out->nbytes, bytes, n);
	out->text = more;
	out->nbytes += n;
	more[out->nbytes] = '\0';
	return (ssize_t)n;
}

FILE *text_output_open(struct text_output *out)
{
	return fopencookie(out, "w", (cookie_io_functions_t){ .write = take });
}

bool text_output_close(FILE *stream)
{
	bool bad = ferror(stream);

	return !fclose(stream) && !bad;
}

/* Is it something to write to as it is? */
static bool is_special(const char *path)
{
	struct stat st;

	return is_stream(path) ||
	       (!stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

enum kvt_status text_file_check(const char *path, char *const *inputs, int n, bool force,
				struct kvt_error *err)
{
	struct stat st;

	for (int i = 0; i < n; i++)
		if (!stat(inputs[i], &st) && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
			kvt_reads_add(&st);
	return !path || is_special(path) ? KVT_OK :
	       kvt_stage_check(path, false, force, "text", err);
}

/* The file that will have the name, open; below 0: errno says why. */
static enum kvt_status stage_open(int *fd, struct kvt_stage *out, const char *path,
				  bool force, struct kvt_error *err)
{
	enum kvt_status status = kvt_stage_check(path, false, force, "text", err);

	tell_leftovers(path);
	if (status || (status = kvt_stage_open(out, path, NULL, false, force, err)))
		return status;
	*fd = open(out->file[0].file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC |
		   O_NOFOLLOW, 0666);
	return KVT_OK;
}

static enum kvt_status stage(struct kvt_stage *out, const struct text_output *text,
			     bool force, struct kvt_error *err)
{
	int fd = -1;
	enum kvt_status status = stage_open(&fd, out, text->path, force, err);

	return status ? status : write_and_close(fd, text, err);
}

static enum kvt_status publish(struct kvt_stage *const *stages, int n,
			       struct kvt_error *err)
{
	enum kvt_status status;

	if (!signals_hold())
		return kvt_fail(err, KVT_SYSTEM, "interrupted");
	status = kvt_stage_publish(stages, n, true, err);
	signals_release(!status);
	return status;
}

enum kvt_status text_files_write(const struct text_output *out, int n, bool force,
				 struct kvt_error *err)
{
	struct kvt_stage *stages = calloc((size_t)n + 1, sizeof(*stages));
	struct kvt_stage **staged = calloc((size_t)n + 1, sizeof(*staged));
	enum kvt_status status = KVT_OK;
	int nstaged = 0, nprinted = 0;

	signals_catch_all();
	if (!stages || !staged)
		status = kvt_no_memory(err, NULL);
	for (int i = 0; i < n && !status; i++)
		if (is_stream(out[i].path) && nprinted++)
			status = kvt_fail(err, KVT_USAGE,
					  "'-' is given for two outputs, but standard output is one; name a file");
	for (int i = 0; i < n && !status; i++)
		if (!is_special(out[i].path)) {
			staged[nstaged] = &stages[nstaged];
			status = stage(staged[nstaged++], &out[i], force, err);
		}
	if (!status)
		status = kvt_stage_settle(staged, nstaged, err);
	for (int i = 0; i < n && !status; i++)
		if (is_special(out[i].path))
			status = write_stream(&out[i], err);
	if (!status && nstaged)
		status = publish(staged, nstaged, err);
	for (int i = 0; i < nstaged; i++)
		kvt_stage_close(staged[i]);
	free(stages);
	free(staged);
	return status;
}

enum kvt_status text_file_write(const char *path, const char *text, size_t nbytes,
				bool force, struct kvt_error *err)
{
	const struct text_output out = { path, (char *)(uintptr_t)text, nbytes };

	return text_files_write(&out, 1, force, err);
}

/* ---- text that is printed to a file ---------------------------------------- */

/* Nothing more is taken after a signal: the printer looks at ferror(). */
static ssize_t pass_on(void *cookie, const char *bytes, size_t n)
{
	struct text_diversion *d = cookie;
	size_t done = 0;

	while (done < n && !interrupted) {
		ssize_t some = write(d->fd, bytes + done, n - done);

		if (some < 0 && errno == EINTR)
			continue;
		if (some <= 0) {
			d->why = some ? errno : EIO;
			return 0;
		}
		done += (size_t)some;
	}
	return interrupted ? 0 : (ssize_t)n;
}

enum kvt_status text_divert(struct text_diversion *out, const char *path, bool force,
			    struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	*out = (struct text_diversion){ .path = path, .fd = -1 };
	if (!path || is_stream(path))
		return KVT_OK;
	signals_catch_all();
	out->staged = !is_special(path);
	if (!out->staged)
		out->fd = open(path, O_WRONLY | O_CLOEXEC);
	else
		status = stage_open(&out->fd, &out->stage, path, force, err);
	if (!status && out->fd < 0)
		status = kvt_fail_errno(err, path, "create");
	if (!status && !(out->stream = fopencookie(out, "w", (cookie_io_functions_t){
						   .write = pass_on })))
		status = kvt_no_memory(err, NULL);
	if (status) {
		if (out->fd >= 0)
			close(out->fd);
		kvt_stage_close(&out->stage);
		return status;
	}
	out->before = stdout;
	stdout = out->stream;
	return KVT_OK;
}

enum kvt_status text_divert_end(struct text_diversion *d, enum kvt_status status,
				struct kvt_error *err)
{
	struct kvt_stage *stage = &d->stage;
	bool bad;

	if (!d->stream)
		return status;
	stdout = d->before;
	bad = !text_output_close(d->stream) || (d->staged && fsync(d->fd));
	if (d->why)
		errno = d->why;
	if (bad && !status)
		status = interrupted ? kvt_fail(err, KVT_SYSTEM, "interrupted") :
			 kvt_fail_errno(err, d->path, "write");
	if (close(d->fd) && !status)
		status = kvt_fail_errno(err, d->path, "write");
	if (!status && d->staged)
		status = publish(&stage, 1, err);
	kvt_stage_close(stage);
	d->stream = NULL;
	return status;
}
