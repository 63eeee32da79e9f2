/* SPDX-License-Identifier: Apache-2.0 */
/* text_file.c - reading and writing contracts and reports */
#include "cli/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum kvt_status failed(struct kvt_error *err, const char *path, const char *what)
{
	return kvt_fail(err, KVT_SYSTEM, "%s: cannot %s: %s", path, what,
			strerror(errno));
}

enum kvt_status text_file_read(char **out, size_t *nbytes, const char *path,
			       size_t most, struct kvt_error *err)
{
	FILE *file = fopen(path, "r");
	char *text;
	size_t n;

	if (!file)
		return failed(err, path, "open");
	/* also from a pipe, so the size is not known before */
	text = malloc(most + 1);
	n = text ? fread(text, 1, most + 1, file) : 0;
	if (!text || ferror(file)) {
		enum kvt_status status = failed(err, path, "read");

		fclose(file);
		free(text);
		return status;
	}
	fclose(file);
	if (n > most) {
		free(text);
		return kvt_fail(err, KVT_BAD_INPUT, "%s: more than %zu bytes", path,
				most);
	}
	*out = text;
	*nbytes = n;
	return KVT_OK;
}

enum kvt_status text_file_refuse(const char *path, char *const *inputs, int n,
				 struct kvt_error *err)
{
	struct stat out, in;

	if (stat(path, &out))
		return KVT_OK;
	for (int i = 0; i < n; i++)
		if (!stat(inputs[i], &in) && in.st_dev == out.st_dev &&
		    in.st_ino == out.st_ino)
			return kvt_fail(err, KVT_USAGE, "%s belongs to the input", path);
	return KVT_OK;
}

static enum kvt_status write_all(int fd, const char *path, const char *text,
				 size_t nbytes, struct kvt_error *err)
{
	while (nbytes) {
		ssize_t n = write(fd, text, nbytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return failed(err, path, "write");
		text += n;
		nbytes -= (size_t)n;
	}
	/* what is no file, a pipe say, cannot be synced */
	return fsync(fd) && errno != EINVAL && errno != EROFS ?
	       failed(err, path, "write") : KVT_OK;
}

static enum kvt_status write_and_close(int fd, const char *path, const char *text,
				       size_t nbytes, struct kvt_error *err)
{
	enum kvt_status status;

	if (fd < 0)
		return failed(err, path, "create");
	status = write_all(fd, path, text, nbytes, err);
	if (close(fd) && !status)
		status = failed(err, path, "write");
	return status;
}

enum kvt_status text_file_write(const char *path, const char *text, size_t nbytes,
				bool force, struct kvt_error *err)
{
	char *temporary;
	enum kvt_status status;
	struct stat st;
	bool exists = !stat(path, &st);

	if (exists && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return write_and_close(open(path, O_WRONLY | O_CLOEXEC), path, text,
				       nbytes, err);
	if (exists && !force)
		return kvt_fail(err, KVT_SYSTEM, "%s: exists; --force replaces it", path);
	if (!(temporary = malloc(strlen(path) + 32)))
		return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", path);
	sprintf(temporary, "%s.tmp-%ld", path, (long)getpid());
	status = write_and_close(open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC |
				      O_NOFOLLOW, 0666), path, text, nbytes, err);
	/* link() does not replace what appeared meanwhile */
	if (!status && (force ? rename(temporary, path) : link(temporary, path)))
		status = failed(err, path, "create");
	if (status || !force)
		unlink(temporary);
	free(temporary);
	return status;
}
