/* SPDX-License-Identifier: Apache-2.0 */
/*
 * while.c - does the user's command still fail on what is left?
 *
 * It is run on files of the part in the folder that is being made, with their names in A
 * and B; its exit status, or a text in what it prints, is what the whole is asked for
 * first.
 */
#include "cli/cmd/shrink/case.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli/child.h"

static bool has(const char *bytes, size_t nbytes, const char *text, size_t n)
{
	const char *end = bytes + nbytes, *at = bytes;

	for (; n <= (size_t)(end - at); at++)
		if (*at == *text && !memcmp(at, text, n))
			return true;
	return false;
}

enum { LONGEST_TEXT = 1 << 12, STEP = 1 << 16 };

/* Is the text in the file?  Each step has the end of the one before it in front. */
static enum kvt_status file_has(bool *out, int fd, const char *text,
				struct kvt_error *err)
{
	char part[LONGEST_TEXT + STEP], *step = part + LONGEST_TEXT;
	size_t n = strlen(text), kept = 0;
	ssize_t got;

	*out = false;
	if (n > LONGEST_TEXT)
		return kvt_fail(err, KVT_USAGE, "--text has %zu bytes, at most %d", n,
				LONGEST_TEXT);
	if (lseek(fd, 0, SEEK_SET) < 0)
		return kvt_fail_errno(err, "output of --while", "seek");
	while (!*out && (got = read(fd, part + LONGEST_TEXT, STEP)) > 0) {
		size_t all = kept + (size_t)got;

		*out = has(step - kept, all, text, n);
		kept = n && all > n - 1 ? n - 1 : n ? all : 0;
		memmove(step - kept, step + got - kept, kept);
	}
	return !*out && got < 0 ? kvt_fail_errno(err, "output of --while", "read") :
				  KVT_OK;
}

/* A file without a name, in the folder that is being made. */
static int unnamed(const struct shrink_case *c)
{
	char path[PATH_MAX + 16];
	int fd;

	snprintf(path, sizeof(path), "%s/output", c->folder);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0)
		(void)unlink(path);
	return fd;
}

enum kvt_status while_run(bool *shows, int *said, const struct shrink_case *c,
			  const char *const path[NSIDES], struct kvt_error *err)
{
	const char *const argv[] = { "sh", "-c", c->command, NULL };
	struct child child = { .program = "/bin/sh", .argv = argv, .out = unnamed(c),
			       .set = { { "A", path[SIDE_A] },
					{ path[SIDE_B] ? "B" : NULL, path[SIDE_B] } } };
	enum kvt_status status;

	*shows = false;
	if (child.out < 0)
		return kvt_fail_errno(err, c->folder, "write to");
	status = child_run(said, &child, err);
	if (!status && c->text)
		status = file_has(shows, child.out, c->text, err);
	else if (!status)
		*shows = *said == c->status;
	close(child.out);
	return status;
}

enum kvt_status while_shows(void *context, bool *out, const struct shrink_parts *parts,
			    struct kvt_error *err)
{
	const struct shrink_case *c = context;
	char file[NSIDES][PATH_MAX + 16];
	const char *path[NSIDES] = { NULL };
	enum kvt_status status = case_write(c, parts, false, err);
	int said;

	*out = false;
	for (int s = 0; s < NSIDES && parts->part[s]; s++) {
		snprintf(file[s], sizeof(file[s]), "%s/%s", c->folder, case_files[s]);
		path[s] = file[s];
	}
	return status ? status : while_run(out, &said, c, path, err);
}
