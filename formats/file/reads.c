/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reads.c - what this process reads, which nothing that it writes may replace
 *
 * Opening costs nothing: readers are in a list, and are asked for their files when
 * something is to be written.  What is closed and still counts is copied.
 */
#define _GNU_SOURCE		/* O_PATH */
#include "formats/file/reads.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/file/tree.h"
#include "lib/base/grow.h"

struct id {
	dev_t dev;
	ino_t ino;
};

struct ids {
	struct id *id;
	size_t n;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kvt_reader *readers;	/* the last one that entered */
static bool keeps;
/* Of what is closed, or was no reader; in no order. */
static struct ids kept_files, kept_folders;
static bool lost;			/* one had no memory: nobody knows which */

static void keep(struct ids *ids, dev_t dev, ino_t ino)
{
	if (!KVT_GROW(&ids->id, ids->n)) {
		lost = true;
		return;
	}
	ids->id[ids->n++] = (struct id){ dev, ino };
}

/* ---- what is read ------------------------------------------------------- */

void kvt_reads_enter(struct kvt_reader *reader)
{
	struct stat st;

	if (!stat(reader->leaf.path, &st) && S_ISDIR(st.st_mode)) {
		reader->folder_dev = st.st_dev;
		reader->folder_ino = st.st_ino;
	}
	pthread_mutex_lock(&lock);
	reader->entered = true;
	reader->next = readers;
	if (readers)
		readers->before = reader;
	readers = reader;
	pthread_mutex_unlock(&lock);
}

void kvt_reads_leave(struct kvt_reader *reader)
{
	const struct kvt_files *files = &reader->files;

	if (!reader->entered)
		return;
	pthread_mutex_lock(&lock);
	if (reader->next)
		reader->next->before = reader->before;
	*(reader->before ? &reader->before->next : &readers) = reader->next;
	for (int64_t i = 0; keeps && i < files->count; i++)
		keep(&kept_files, files->file[i].dev, files->file[i].ino);
	if (keeps && reader->folder_ino)
		keep(&kept_folders, reader->folder_dev, reader->folder_ino);
	pthread_mutex_unlock(&lock);
}

void kvt_reads_keep(bool yes)
{
	keeps = yes;
}

void kvt_reads_add(const struct stat *st)
{
	pthread_mutex_lock(&lock);
	keep(S_ISDIR(st->st_mode) ? &kept_folders : &kept_files, st->st_dev, st->st_ino);
	pthread_mutex_unlock(&lock);
}

/* ---- may it be replaced? ------------------------------------------------ */

static bool has(const struct ids *ids, const struct stat *st)
{
	for (size_t i = 0; i < ids->n; i++)
		if (ids->id[i].dev == st->st_dev && ids->id[i].ino == st->st_ino)
			return true;
	return false;
}

static bool has_file(const struct kvt_files *files, const struct stat *st)
{
	for (int64_t i = 0; i < files->count; i++)
		if (files->file[i].dev == st->st_dev && files->file[i].ino == st->st_ino)
			return true;
	return false;
}

static bool is_read(const struct stat *st)
{
	bool folder = S_ISDIR(st->st_mode), found;

	pthread_mutex_lock(&lock);
	found = has(folder ? &kept_folders : &kept_files, st);
	for (const struct kvt_reader *r = readers; r && !found; r = r->next)
		found = folder ? r->folder_dev == st->st_dev &&
				 r->folder_ino == st->st_ino :
				 has_file(&r->files, st);
	pthread_mutex_unlock(&lock);
	return found;
}

static int open_folder(int at, const char *path)
{
	return openat(at, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The folder that holds 'path'; below 0: there is none. */
static int open_parent(const char *path)
{
	size_t n = (size_t)(kvt_path_base(path) - path);
	char *parent = n ? strndup(path, n) : strdup(".");
	int fd = parent ? open_folder(AT_FDCWD, parent) : -1;

	free(parent);
	return fd;
}

/* Of the folders from this one up to the root, is one read?  Takes 'fd'. */
static bool below_one(int fd)
{
	struct stat st, last = { .st_ino = 0 };
	bool found = false;

	while (fd >= 0 && !found && !fstat(fd, &st) &&
	       (st.st_ino != last.st_ino || st.st_dev != last.st_dev)) {
		int above = open_folder(fd, "..");

		found = is_read(&st);
		last = st;
		close(fd);
		fd = above;
	}
	if (fd >= 0)
		close(fd);
	return found;
}

enum kvt_status kvt_reads_refuse(const char *path, struct kvt_error *err)
{
	struct stat st;

	if (lost)
		return kvt_fail(err, KVT_SYSTEM,
				"%s: out of memory for the names of the input", path);
	if (!stat(path, &st) && is_read(&st))
		return kvt_fail(err, KVT_USAGE,
				"%s belongs to the input, which is never replaced; %sgive the output another name",
				path, keeps ? "" : "close the dump that reads it, or ");
	if (below_one(open_parent(path)))
		return kvt_fail(err, KVT_USAGE,
				"%s lies in a folder that is read, where nothing is written; give the output another folder",
				path);
	return KVT_OK;
}
