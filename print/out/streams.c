/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.c - dumps from standard input, and to standard output
 *
 * Readers need files that they can read anywhere in.  Standard input is such a file, or
 * its bytes are first copied to one in TMPDIR that has no name any more: it is gone with
 * the process, however that ends.  Then the operand '-' is a path to descriptor 0.  What
 * goes to standard output is staged, verified, and copied when it is complete.
 */
#include "print/out/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "print/out/signals.h"

enum { COPY_BYTES = 1 << 18 };

const char stream_in_path[] = "/dev/stdin";

bool is_stream(const char *name)
{
	return name && !strcmp(name, "-");
}

bool is_stream_out(const char *name)
{
	return is_stream(name) || (name && !strcmp(name, "/dev/stdout"));
}

static const char *temporary_folder(void)
{
	const char *folder = getenv("TMPDIR");

	return folder && folder[0] ? folder : "/tmp";
}

/* All of 'from' to 'to'.  False, with errno, if either fails; *wrote tells which. */
static bool copy_all(int to, int from, bool *wrote)
{
	char *buf = malloc(COPY_BYTES);
	bool ok = buf != NULL;
	ssize_t n = 0, done;

	*wrote = false;
	while (ok && !interrupted && (n = read(from, buf, COPY_BYTES)) > 0)
		/* the second SIGPIPE kills; the first may have let a part through */
		for (ssize_t at = 0; ok && !interrupted && at < n; at += done) {
			done = write(to, buf + at, (size_t)(n - at));
			*wrote = done < 0;
			ok = done >= 0;
		}
	free(buf);
	return ok && n >= 0;
}

/* ---- input -------------------------------------------------------------- */

/* A pipe becomes a file that has no name and goes away with this process. */
static enum kvt_status keep_input(struct kvt_error *err)
{
	const char *folder = temporary_folder();
	enum kvt_status status = KVT_OK;
	char path[4096];
	bool wrote;
	int fd;

	if (snprintf(path, sizeof(path), "%s/kvtool-XXXXXX", folder) >= (int)sizeof(path))
		return kvt_fail(err, KVT_USAGE, "the name in TMPDIR is too long");
	fd = mkstemp(path);
	if (fd < 0)
		return kvt_fail(err, KVT_SYSTEM,
				"standard input cannot be kept in %s: %s; TMPDIR names another folder",
				folder, strerror(errno));
	unlink(path);
	if (!copy_all(fd, STDIN_FILENO, &wrote))
		status = kvt_fail(err, KVT_SYSTEM, wrote ?
				  "standard input cannot be kept in %s: %s; TMPDIR names another folder" :
				  "reading standard input (kept in %s): %s",
				  folder, strerror(errno));
	else if (dup2(fd, STDIN_FILENO) < 0)
		status = kvt_fail(err, KVT_SYSTEM, "standard input: %s", strerror(errno));
	close(fd);
	return status;
}

enum kvt_status stream_in(int n, char **operands, struct kvt_error *err)
{
	static char path[sizeof(stream_in_path)];
	struct stat st;
	int found = 0;

	strcpy(path, stream_in_path);
	for (int i = 0; i < n; i++)
		if (is_stream(operands[i])) {
			operands[i] = path;
			found++;
		}
	if (!found)
		return KVT_OK;
	if (found > 1)
		return kvt_fail(err, KVT_USAGE,
				"'-' is given %d times, but standard input can be read once",
				found);
	if (isatty(STDIN_FILENO))
		return kvt_fail(err, KVT_USAGE,
				"'-' is standard input, which is a terminal; expected a file or a pipe");
	if (fstat(STDIN_FILENO, &st))
		return kvt_fail(err, KVT_SYSTEM, "standard input: %s", strerror(errno));
	if (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode))
		return KVT_OK;
	return keep_input(err);
}

/* ---- output ------------------------------------------------------------- */

enum kvt_status stream_out_path(char *path, size_t room, struct kvt_error *err)
{
	if (isatty(STDOUT_FILENO))
		return kvt_fail(err, KVT_USAGE,
				"standard output is a terminal; expected a file or a pipe");
	/* one name for all runs of a user: the next one tells of what one left */
	if (snprintf(path, room, "%s/kvtool-stdout-%ld", temporary_folder(),
		     (long)geteuid()) >= (int)room)
		return kvt_fail(err, KVT_USAGE, "the name in TMPDIR is too long");
	return KVT_OK;
}

enum kvt_status stream_out(const char *staged, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct stat st;
	bool wrote;
	int fd;

	if (!staged[0])
		return KVT_OK;		/* format null */
	fd = open(staged, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		status = kvt_fail(err, KVT_SYSTEM, "%s: %s", staged, strerror(errno));
	else if (S_ISDIR(st.st_mode))
		status = kvt_fail(err, KVT_USAGE,
				  "a folder of files cannot go to standard output; expected -o FOLDER, or --format=hdf5");
	else if (!copy_all(STDOUT_FILENO, fd, &wrote))
		status = kvt_fail(err, KVT_SYSTEM, "writing standard output: %s",
				  strerror(errno));
	if (fd >= 0)
		close(fd);
	if (!status && interrupted)
		status = kvt_fail(err, KVT_SYSTEM, "interrupted");
	return status;
}
