/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - the files of a dump: opening, whole reads and writes at an offset
 *
 * Reads and writes are of all bytes or fail with a sentence; they have a place and move
 * no position, so threads share a file.  Folders of many files park those that are not
 * in use: such a file is opened for a read, and must be the one that it was.
 */
#include "formats/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/grow.h"

/* ---- opening ------------------------------------------------------------ */

static enum kvt_status grow(struct kvt_files *files, struct kvt_error *err)
{
	return KVT_GROW(&files->file, files->count) ? KVT_OK :
	       kvt_fail(err, KVT_SYSTEM, "out of memory for %lld files",
			LL(files->count));
}

/*
 * The page cache takes a long write in pages as large as it can get, which are
 * new memory; shorter ones reuse what was freed last.  That costs less than the
 * calls do, on Linux 6: 1 GiB to npy in 0.66 s, 1.39 s in one run a box.
 *
 * File systems of a cluster ask for more, by what stat() says of them: a stripe, or the
 * most that goes over the wire at once.  Each write is then as long as that and begins
 * where such a unit does, so far as what is written allows.
 */
enum { WRITE_BYTES = 128 << 10, MOST_UNIT = 16 << 20 };

static int64_t unit_of(const struct stat *st)
{
	int64_t unit = st->st_blksize;

	return unit <= WRITE_BYTES ? 0 : unit < MOST_UNIT ? unit : MOST_UNIT;
}

int64_t kvt_file_write_bytes(const struct kvt_file *file, int64_t nbytes, int64_t offset)
{
	int64_t most = file->unit ? file->unit - offset % file->unit : WRITE_BYTES;

	return nbytes < most ? nbytes : most;
}

/* Takes 'fd', also when it fails. */
static enum kvt_status add(struct kvt_files *files, int *index, int fd,
			   const char *path, struct kvt_error *err)
{
	enum kvt_status status;
	struct stat st;
	char *copy;

	if (fstat(fd, &st)) {
		status = kvt_fail_errno(err, path, "stat");
	} else if (!S_ISREG(st.st_mode)) {
		status = kvt_fail(err, KVT_BAD_INPUT, "%s: not a regular file", path);
	} else if (!(status = grow(files, err))) {
		if ((copy = strdup(path))) {
			*index = (int)files->count;
			files->file[files->count++] = (struct kvt_file){
				.fd = fd, .nbytes = st.st_size, .dev = st.st_dev,
				.ino = st.st_ino, .changed = st.st_mtim,
				.path = copy, .unit = unit_of(&st) };
			return KVT_OK;
		}
		status = kvt_no_memory(err, path);
	}
	close(fd);
	return status;
}

enum kvt_status kvt_files_finish(struct kvt_files *files, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; i < files->count; i++) {
		struct kvt_file *file = &files->file[i];

		if (file->fd >= 0 && close(file->fd) && !status)
			status = kvt_fail_errno(err, file->path, "write");
		file->fd = -1;
	}
	return status;
}

enum kvt_status kvt_files_open(struct kvt_files *files, int *index,
			       const char *path, struct kvt_error *err)
{
	/* a FIFO would block here until somebody writes to it */
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return kvt_fail_errno(err, path, "open");
	return add(files, index, fd, path, err);
}

enum kvt_status kvt_files_list(struct kvt_files *files, int *index,
			       const struct kvt_file *file, struct kvt_error *err)
{
	enum kvt_status status = grow(files, err);

	if (status)
		return status;
	*index = (int)files->count;
	files->file[files->count++] = *file;
	return KVT_OK;
}

enum kvt_status kvt_files_compute(struct kvt_files *files, int *index,
				  struct kvt_computed *computed, int64_t nbytes,
				  const char *path, struct kvt_error *err)
{
	struct kvt_file made = { .fd = -1, .nbytes = nbytes, .path = strdup(path),
				 .computed = computed };
	enum kvt_status status = made.path ? kvt_files_list(files, index, &made, err) :
				 kvt_no_memory(err, path);

	if (status) {
		free(made.path);
		free(computed);
	}
	return status;
}

enum kvt_status kvt_files_create(struct kvt_files *files, int *index, const char *path,
				 int64_t nbytes, struct kvt_error *err)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	enum kvt_status status;

	if (fd < 0)
		return kvt_fail_errno(err, path, "create");
	if (ftruncate(fd, nbytes)) {
		status = kvt_fail_errno(err, path, "set the size of");
		close(fd);
	} else if (!(status = add(files, index, fd, path, err))) {
		status = kvt_files_written(files, *index, err);
	}
	/* who does not have it listed could not remove it either */
	if (status)
		unlink(path);
	return status;
}

enum kvt_status kvt_files_written(struct kvt_files *files, int index,
				  struct kvt_error *err)
{
	return turn_new(&files->file[index].writing, err);
}

void kvt_files_park(struct kvt_files *files, int index)
{
	struct kvt_file *file = &files->file[index];

	if (file->fd >= 0)
		close(file->fd);
	file->fd = -1;
}

void kvt_files_close(struct kvt_files *files)
{
	for (int64_t i = 0; i < files->count; i++) {
		if (files->file[i].fd >= 0)
			close(files->file[i].fd);
		turn_free(files->file[i].writing);
		free(files->file[i].path);
		free(files->file[i].computed);
	}
	free(files->file);
	*files = (struct kvt_files){ 0 };
}

enum kvt_status kvt_files_unchanged(const struct kvt_files *files, struct kvt_error *err)
{
	for (int64_t i = 0; i < files->count; i++) {
		const struct kvt_file *file = &files->file[i];
		struct stat st;

		if (file->computed)
			continue;
		if (file->fd >= 0 ? fstat(file->fd, &st) : stat(file->path, &st))
			return kvt_fail_errno(err, file->path, "stat");
		if (st.st_size != file->nbytes)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: had %lld bytes and now has %lld: it changed while it was read",
					file->path, LL(file->nbytes), LL(st.st_size));
		if (st.st_ino != file->ino || st.st_dev != file->dev ||
		    st.st_mtim.tv_sec != file->changed.tv_sec ||
		    st.st_mtim.tv_nsec != file->changed.tv_nsec)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: changed while it was read", file->path);
	}
	return KVT_OK;
}

/* ---- reading and writing ------------------------------------------------ */

/* The descriptor of a file, opened again if it is parked. */
static enum kvt_status borrow(int *fd, const struct kvt_file *file, int flags,
			      struct kvt_error *err)
{
	struct stat st;

	*fd = file->fd;
	if (*fd >= 0)
		return KVT_OK;
	*fd = open(file->path, flags | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW);
	if (*fd < 0)
		return kvt_fail_errno(err, file->path, "open");
	if (!fstat(*fd, &st) && st.st_dev == file->dev && st.st_ino == file->ino)
		return KVT_OK;
	close(*fd);
	return kvt_fail(err, KVT_BAD_INPUT, "%s: replaced while in use", file->path);
}

static void give_back(int fd, const struct kvt_file *file)
{
	if (file->fd < 0)
		close(fd);
}

static enum kvt_status read_all(int fd, const struct kvt_file *file, char *buf,
				int64_t nbytes, int64_t offset, struct kvt_error *err)
{
	while (nbytes > 0) {
		ssize_t n = pread(fd, buf, (size_t)nbytes, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return kvt_fail(err, KVT_SYSTEM,
					"%s: cannot read at byte %lld: %s", file->path,
					LL(offset), strerror(errno));
		if (n == 0)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: ends at byte %lld, %lld more expected",
					file->path, LL(offset), LL(nbytes));
		buf += n;
		nbytes -= n;
		offset += n;
	}
	return KVT_OK;
}

enum kvt_status kvt_file_pread(const struct kvt_file *file, void *buf, int64_t nbytes,
			       int64_t offset, struct kvt_error *err)
{
	enum kvt_status status;
	int fd;

	if (file->computed)
		return file->computed->read(file->computed, buf, nbytes, offset, err);
	if ((status = borrow(&fd, file, O_RDONLY, err)))
		return status;
	status = read_all(fd, file, buf, nbytes, offset, err);
	give_back(fd, file);
	return status;
}

/*
 * The page cache takes writes from one thread at a time, and the others spin.  Two that
 * write at once so hold each other up to the end, and then work at once and write at
 * once again; one that sleeps until the other is through works while that writes, ever
 * after.
 */
static enum kvt_status write_all(int fd, const struct kvt_file *file, const char *buf,
				 int64_t nbytes, int64_t offset, struct kvt_error *err)
{
	while (nbytes > 0) {
		int64_t most = kvt_file_write_bytes(file, nbytes, offset);
		ssize_t n = pwrite(fd, buf, (size_t)most, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return kvt_fail(err, KVT_SYSTEM,
					"%s: cannot write at byte %lld: %s",
					file->path, LL(offset),
					n ? strerror(errno) : "nothing was written");
		buf += n;
		nbytes -= n;
		offset += n;
	}
	return KVT_OK;
}

enum kvt_status kvt_file_pwrite(const struct kvt_file *file, const void *buf,
				int64_t nbytes, int64_t offset, struct kvt_error *err)
{
	enum kvt_status status;
	int fd;

	if ((status = borrow(&fd, file, O_WRONLY, err)))
		return status;
	turn_take(file->writing);
	status = write_all(fd, file, buf, nbytes, offset, err);
	turn_give(file->writing);
	give_back(fd, file);
	return status;
}
