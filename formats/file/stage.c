/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.c - files that get their names all together, or not at all
 *
 * See formats/stage.h.  Names are exchanged in one call of the system where it can do
 * that, so that a name is never without a file; else the old one is set aside first.
 * Whatever fails, what was done before is undone in reverse.
 */
#define _GNU_SOURCE		/* renameat2 */
#include "formats/stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/file/reads.h"
#include "formats/file/tree.h"

static const char suffix[] = ".tmp-";

/* ---- what is open when the process ends --------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kvt_stage *opened;	/* the last one that was opened */

/* There may be no memory: opendir() would need some.  A folder of ours is not deep. */
static void remove_all(int at, const char *name)
{
	_Alignas(struct dirent64) char bytes[2048];
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	const struct dirent64 *entry;
	ssize_t n;

	while (fd >= 0 && (n = getdents64(fd, bytes, sizeof(bytes))) > 0)
		for (ssize_t i = 0; i < n; i += entry->d_reclen) {
			entry = (const struct dirent64 *)(const void *)(bytes + i);
			if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
			    unlinkat(fd, entry->d_name, 0))
				remove_all(fd, entry->d_name);
		}
	if (fd >= 0)
		close(fd);
	unlinkat(at, name, AT_REMOVEDIR);
}

/* Ours, and nothing of it has a name: what is in the folder is nobody else's. */
static bool goes_away(const struct kvt_stage *stage)
{
	for (int i = 0; i < stage->n; i++)
		if (stage->file[i].state != KVT_STAGED)
			return false;
	return stage->folder && stage->pid == getpid();
}

static void remove_stages(void)
{
	/* who ends here may have the lock */
	if (pthread_mutex_trylock(&lock))
		return;
	for (const struct kvt_stage *s = opened; s; s = s->next)
		if (goes_away(s))
			remove_all(AT_FDCWD, s->folder);
	pthread_mutex_unlock(&lock);
}

static void enter(struct kvt_stage *stage)
{
	static bool told;

	pthread_mutex_lock(&lock);
	if (!told)
		told = !atexit(remove_stages);
	stage->pid = getpid();
	stage->next = opened;
	if (opened)
		opened->before = stage;
	opened = stage;
	pthread_mutex_unlock(&lock);
}

/* Fine for one that never entered. */
static void leave(struct kvt_stage *stage)
{
	pthread_mutex_lock(&lock);
	if (stage->next)
		stage->next->before = stage->before;
	if (stage->before)
		stage->before->next = stage->next;
	else if (opened == stage)
		opened = stage->next;
	pthread_mutex_unlock(&lock);
}

/* ---- opening ------------------------------------------------------------ */

static char *with_end(const char *path, const char *end)
{
	char *out = malloc(strlen(path) + strlen(end) + 1);

	if (out)
		sprintf(out, "%s%s", path, end);
	return out;
}

/* Process numbers come again, in containers at once: the name may be taken. */
static enum kvt_status make_folder(struct kvt_stage *stage, const char *path,
				   struct kvt_error *err)
{
	enum { TRIES = 100 };
	enum kvt_status status;
	char end[48];

	for (int i = 0; i < TRIES; i++) {
		char *folder;
		bool taken;

		snprintf(end, sizeof(end), i ? "%s%ld-%d" : "%s%ld", suffix,
			 (long)getpid(), i);
		if (!(folder = with_end(path, end)))
			return kvt_no_memory(err, path);
		if (!mkdir(folder, 0777)) {
			stage->folder = folder;
			return KVT_OK;
		}
		taken = errno == EEXIST;
		status = kvt_fail_errno(err, folder, "create");
		free(folder);
		if (!taken)
			return status;
	}
	return status;
}

static enum kvt_status add(struct kvt_stage *stage, const char *path, bool folder,
			   struct kvt_error *err)
{
	struct kvt_staged *f = &stage->file[stage->n];

	*f = (struct kvt_staged){
		.path = strdup(path), .folder = folder,
		.file = kvt_path_join(stage->folder, kvt_path_base(path), ""),
		/* now, for the way back must not need memory */
		.old = kvt_path_join(stage->folder, kvt_path_base(path), ".old"),
	};
	stage->n++;
	return f->path && f->file && f->old ? KVT_OK : kvt_no_memory(err, path);
}

enum kvt_status kvt_stage_open(struct kvt_stage *stage, const char *path,
			       const char *beside, bool folder, bool force,
			       struct kvt_error *err)
{
	enum kvt_status status;

	*stage = (struct kvt_stage){ .force = force };
	if ((status = make_folder(stage, path, err)))
		return status;
	enter(stage);
	if ((status = add(stage, path, folder, err)) ||
	    (beside && (status = add(stage, beside, false, err)))) {
		kvt_stage_close(stage);
		return status;
	}
	return KVT_OK;
}

/* ---- what may be written ------------------------------------------------ */

static bool is_empty(const char *path)
{
	DIR *dir = opendir(path);
	bool empty = dir != NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			empty = false;
	if (dir)
		closedir(dir);
	return empty;
}

enum kvt_status kvt_stage_check(const char *path, bool folder, bool force,
				const char *what, struct kvt_error *err)
{
	enum kvt_status status = kvt_reads_refuse(path, err);
	struct stat st;

	if (status)
		return status;
	if (stat(path, &st)) {
		if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
			return kvt_fail_errno(err, path, "stat");
		if (lstat(path, &st))
			return KVT_OK;
	}
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: not a regular file, and %s needs one", path, what);
	if (!force)
		return kvt_fail(err, KVT_SYSTEM, "%s: exists; --force replaces it", path);
	if (S_ISDIR(st.st_mode) && !folder)
		return kvt_fail(err, KVT_SYSTEM, "%s: is a folder", path);
	if (S_ISDIR(st.st_mode) && !is_empty(path))
		return kvt_fail(err, KVT_SYSTEM,
				"%s: is a folder that is not empty, which is never replaced",
				path);
	if (!S_ISDIR(st.st_mode) && folder)
		return kvt_fail(err, KVT_SYSTEM, "%s: is not a folder", path);
	return KVT_OK;
}

/* ---- making durable ----------------------------------------------------- */

enum kvt_status kvt_sync_path(const char *path, struct kvt_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	enum kvt_status status = KVT_OK;

	if (fd < 0)
		return kvt_fail_errno(err, path, "open");
	/* EINVAL: there are file systems that cannot sync a folder, and need not */
	if (fsync(fd) && errno != EINVAL)
		status = kvt_fail_errno(err, path, "write to disk");
	if (close(fd) && !status)
		status = kvt_fail_errno(err, path, "write to disk");
	return status;
}

static enum kvt_status sync_parent(const char *path, struct kvt_error *err)
{
	const char *slash = strrchr(path, '/');
	enum kvt_status status;
	char *parent;

	if (!slash)
		return kvt_sync_path(".", err);
	parent = strndup(path, slash == path ? 1 : (size_t)(slash - path));
	if (!parent)
		return kvt_no_memory(err, path);
	status = kvt_sync_path(parent, err);
	free(parent);
	return status;
}

static bool same_parent(const char *a, const char *b)
{
	size_t n = (size_t)(kvt_path_base(a) - a);

	return n == (size_t)(kvt_path_base(b) - b) && !memcmp(a, b, n);
}

/* ---- giving names ------------------------------------------------------- */

/* The file system, or the kernel, does not know renameat2() or these flags. */
static bool is_unknown(int error)
{
	return error == ENOSYS || error == EINVAL || error == EOPNOTSUPP;
}

/* Nothing may have the name, not even since somebody looked. */
static enum kvt_status name_new(struct kvt_staged *f, struct kvt_error *err)
{
	enum kvt_status status;
	struct stat st;

	if (!renameat2(AT_FDCWD, f->file, AT_FDCWD, f->path, RENAME_NOREPLACE)) {
		f->state = KVT_NAMED;
		return KVT_OK;
	}
	if (is_unknown(errno) && !f->folder && !link(f->file, f->path)) {
		if (!unlink(f->file) || !unlink(f->file)) {
			f->state = KVT_NAMED;
			return KVT_OK;
		}
		status = kvt_fail_errno(err, f->file, "remove");
		unlink(f->path);
		return status;
	}
	if (errno != EEXIST && !lstat(f->path, &st))
		errno = EEXIST;
	if (errno == EEXIST)
		return kvt_fail(err, KVT_SYSTEM,
				"%s: was created by another process in the meantime", f->path);
	/* no such call and no hard links on this file system: take the small risk */
	if (rename(f->file, f->path))
		return kvt_fail_errno(err, f->path, "rename the file to this");
	f->state = KVT_NAMED;
	return KVT_OK;
}

/* rename() itself refuses to replace a folder with something in it. */
static enum kvt_status name_folder(struct kvt_staged *f, struct kvt_error *err)
{
	struct stat st;
	bool exists = !lstat(f->path, &st);

	if (rename(f->file, f->path))
		return kvt_fail_errno(err, f->path, "rename the folder to this");
	f->state = exists ? KVT_REPLACED : KVT_NAMED;
	return KVT_OK;
}

/* Under two names for a moment, or under none where there are no hard links. */
static enum kvt_status set_aside(struct kvt_staged *f, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (link(f->path, f->old) && rename(f->path, f->old)) {
		status = kvt_fail_errno(err, f->path, "set the old file aside");
	} else if (rename(f->file, f->path)) {
		status = kvt_fail_errno(err, f->path, "rename the file to this");
		/* whichever way it was set aside */
		if (rename(f->old, f->path) && rename(f->old, f->path))
			status = kvt_fail_errno(err, f->old, "restore the name of");
		unlink(f->old);
	} else {
		f->state = KVT_SET_ASIDE;
	}
	return status;
}

static enum kvt_status name(struct kvt_staged *f, bool force, struct kvt_error *err)
{
	struct stat st;

	if (!force)
		return name_new(f, err);
	if (f->folder)
		return name_folder(f, err);
	if (lstat(f->path, &st))
		return name_new(f, err);
	if (S_ISDIR(st.st_mode))
		return kvt_fail(err, KVT_SYSTEM, "%s: is a folder", f->path);
	if (!renameat2(AT_FDCWD, f->file, AT_FDCWD, f->path, RENAME_EXCHANGE)) {
		f->state = KVT_EXCHANGED;
		return KVT_OK;
	}
	if (is_unknown(errno))
		return set_aside(f, err);
	return kvt_fail_errno(err, f->path, "rename the file to this");
}

/* ---- what is given no name ---------------------------------------------- */

/* A name, whatever it is called: the folder, and what the file is called there. */
struct place {
	dev_t dev;
	ino_t ino;
	const char *path, *base;
};

static int by_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return strcmp(x->base, y->base);
}

/* Of two files under one name the first would be lost. */
static enum kvt_status refuse_same(struct place *place, size_t n, struct kvt_error *err)
{
	qsort(place, n, sizeof(*place), by_place);
	for (size_t i = 1; i < n; i++)
		if (!by_place(&place[i - 1], &place[i]))
			return kvt_fail(err, KVT_USAGE,
					"%s and %s are one name, which two outputs cannot have; give one of them another",
					place[i - 1].path, place[i].path);
	return KVT_OK;
}

static enum kvt_status find_place(struct place *out, const struct kvt_stage *stage,
				  const char *path, struct kvt_error *err)
{
	size_t n = strlen(stage->folder) + sizeof("/..");
	char *parent = malloc(n);
	enum kvt_status status = KVT_OK;
	struct stat st;

	if (!parent)
		return kvt_no_memory(err, path);
	snprintf(parent, n, "%s/..", stage->folder);
	if (stat(parent, &st))
		status = kvt_fail_errno(err, path, "look at the folder of");
	else
		*out = (struct place){ st.st_dev, st.st_ino, path, kvt_path_base(path) };
	free(parent);
	return status;
}

enum kvt_status kvt_stage_settle(struct kvt_stage *const *stages, int n,
				 struct kvt_error *err)
{
	struct place *place = calloc((size_t)n * KVT_STAGE_FILES + 1, sizeof(*place));
	enum kvt_status status = KVT_OK;
	size_t nplaces = 0;

	if (!place)
		return kvt_no_memory(err, NULL);
	for (int s = 0; s < n && !status; s++)
		for (int i = 0; i < stages[s]->n && !status; i++) {
			const char *path = stages[s]->file[i].path;

			if (!(status = kvt_reads_refuse(path, err)))
				status = find_place(&place[nplaces++], stages[s], path,
						    err);
		}
	if (!status)
		status = refuse_same(place, nplaces, err);
	free(place);
	return status;
}

/* ---- the way back, and the end ------------------------------------------ */

/* As it was, one way or another: nobody can be told that there is no way back. */
static void take_back(struct kvt_staged *f)
{
	switch (f->state) {
	case KVT_NAMED:
	case KVT_REPLACED:
		if (rename(f->path, f->file) && (f->folder ? rename(f->path, f->file) :
						 unlink(f->path)))
			return;
		if (f->state == KVT_REPLACED && mkdir(f->path, 0777))
			return;
		break;
	case KVT_EXCHANGED:
		if (renameat2(AT_FDCWD, f->file, AT_FDCWD, f->path, RENAME_EXCHANGE) &&
		    (unlink(f->path) || link(f->file, f->path)))
			return;
		break;
	case KVT_SET_ASIDE:
		if (rename(f->path, f->file) || rename(f->old, f->path))
			return;
		break;
	case KVT_STAGED:
	case KVT_DONE:
		return;
	}
	f->state = KVT_STAGED;
}

/* What was there before. */
static enum kvt_status forget_old(struct kvt_staged *f, struct kvt_error *err)
{
	const bool aside = f->state == KVT_SET_ASIDE;
	const char *old = aside ? f->old : f->file;
	enum kvt_status status = KVT_OK;

	if ((aside || f->state == KVT_EXCHANGED) && unlink(old) && unlink(old))
		status = kvt_fail(err, KVT_SYSTEM,
				  "%s: written, but the old file cannot be removed from %s: %s",
				  f->path, old, strerror(errno));
	f->state = KVT_DONE;
	return status;
}

/* It is empty; tried once more, as somebody would have to remove it by hand. */
static enum kvt_status remove_folder(struct kvt_stage *stage, struct kvt_error *err)
{
	if (rmdir(stage->folder) && rmdir(stage->folder))
		return kvt_fail_errno(err, stage->folder,
				    "remove the folder it was written in");
	free(stage->folder);
	stage->folder = NULL;
	return KVT_OK;
}

static enum kvt_status name_all(struct kvt_stage *const *stages, int n, bool sync,
				struct kvt_error *err)
{
	const char *last = NULL;
	enum kvt_status status = KVT_OK;

	for (int s = 0; s < n && !status; s++)
		for (int i = 0; i < stages[s]->n && !status; i++)
			status = name(&stages[s]->file[i], stages[s]->force, err);
	for (int s = 0; s < n && !status && sync; s++) {
		const char *path = stages[s]->file[0].path;

		if (!last || !same_parent(path, last))
			status = sync_parent(path, err);
		last = path;
	}
	return status;
}

enum kvt_status kvt_stage_publish(struct kvt_stage *const *stages, int n, bool sync,
				  struct kvt_error *err)
{
	enum kvt_status status = kvt_stage_settle(stages, n, err);

	if (status)
		return status;
	status = name_all(stages, n, sync, err);
	for (int s = n; s-- > 0 && status;)
		for (int i = stages[s]->n; i-- > 0;)
			take_back(&stages[s]->file[i]);
	if (status)
		return status;
	for (int s = 0; s < n; s++)
		for (int i = 0; i < stages[s]->n; i++) {
			enum kvt_status one = forget_old(&stages[s]->file[i], err);

			status = status ? status : one;
		}
	for (int s = 0; s < n; s++) {
		enum kvt_status one = remove_folder(stages[s], err);

		status = status ? status : one;
	}
	return status;
}

/* What has no name yet, and is no folder with something in it. */
static void discard(struct kvt_staged *f)
{
	if (f->file && f->state == KVT_STAGED &&
	    (f->folder ? rmdir(f->file) : unlink(f->file)) && errno != ENOENT)
		(void)(f->folder ? rmdir(f->file) : unlink(f->file));
	free(f->path);
	free(f->file);
	free(f->old);
}

void kvt_stage_close(struct kvt_stage *stage)
{
	leave(stage);
	for (int i = 0; i < stage->n; i++)
		discard(&stage->file[i]);
	/* it must go if it can: one more try costs nothing */
	if (stage->folder && rmdir(stage->folder))
		(void)rmdir(stage->folder);
	free(stage->folder);
	*stage = (struct kvt_stage){ .folder = NULL };
}

void kvt_stage_retell(const struct kvt_stage *stage, struct kvt_error *err)
{
	const char *name = stage->folder ? kvt_path_base(stage->folder) : NULL;
	char *at = err && name ? strstr(err->text, stage->folder) : NULL;
	size_t n = name ? strlen(name) : 0;

	for (; at; at = strstr(at + 1, stage->folder)) {
		char *from = at + (name - stage->folder);

		if (from[n] == '/')
			memmove(from, from + n + 1, strlen(from + n + 1) + 1);
	}
}

/* ---- what killed runs left ---------------------------------------------- */

/* "NAME.tmp-123" or "NAME.tmp-123-4". */
static bool is_of(const char *entry, const char *name)
{
	const char *at = NULL, *next = entry;

	while ((next = strstr(next, suffix))) {
		at = next;
		next += sizeof(suffix) - 1;
	}
	if (!at || at == entry || (name && (strlen(name) != (size_t)(at - entry) ||
					    memcmp(entry, name, (size_t)(at - entry)))))
		return false;
	at += sizeof(suffix) - 1;
	return *at >= '1' && *at <= '9' && !at[strspn(at, "0123456789-")];
}

bool kvt_stage_is_one(const char *entry)
{
	return is_of(entry, NULL);
}

static bool is_open(const char *folder)
{
	struct stat a, b;
	bool found = false;

	pthread_mutex_lock(&lock);
	for (const struct kvt_stage *s = opened; s && !found; s = s->next)
		found = s->folder && !stat(s->folder, &a) && !stat(folder, &b) &&
			a.st_dev == b.st_dev && a.st_ino == b.st_ino;
	pthread_mutex_unlock(&lock);
	return found;
}

void kvt_stage_leftovers(const char *folder, const char *path,
			 void (*fn)(void *context, const char *left), void *context)
{
	const char *name = path ? kvt_path_base(path) : NULL;
	size_t n = path ? (size_t)(name - path) : strlen(folder);
	bool ends = !n || (path ? path : folder)[n - 1] == '/';
	char *parent = path ? strndup(path, n) : with_end(folder, ends ? "" : "/");
	DIR *dir = parent ? opendir(*parent ? parent : ".") : NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char *left;

		if (is_of(entry->d_name, name) &&
		    (left = with_end(parent, entry->d_name))) {
			if (!is_open(left))
				fn(context, left);
			free(left);
		}
	}
	if (dir)
		closedir(dir);
	free(parent);
}
