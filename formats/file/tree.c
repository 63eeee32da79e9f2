/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c - walking a foreign folder
 *
 * It may be as large or as deep as it likes and change meanwhile: entries, lengths of
 * names and depth are bounded, no link is followed, and what is neither file nor
 * folder is refused.
 */
#include "formats/file/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/grow.h"
#include "lib/base/order.h"
#include "lib/tile/hash.h"

enum {
	MAX_ENTRIES = 1 << 20,
	MAX_NAME_BYTES = 128 << 20,	/* of all names */
	MAX_PATH = 1024,		/* of one, below the folder */
	MAX_DEPTH = 12,
	PROBE_ENTRIES = 256,
};

/* One walk: the path so far, and what it is for. */
struct walk {
	struct kvt_tree *tree;
	bool (*like)(const char *name);	/* NULL: collect, or .. */
	void (*skipped)(void *context, const char *name);
	void *context;
	const struct kvt_tree_watch *watch;	/* or a sample */
	bool found;
	int64_t entries;
	char name[MAX_PATH];
	struct kvt_error *err;
};

static enum kvt_status refuse(const struct walk *w, enum kvt_status status,
			      const char *what)
{
	return kvt_fail(w->err, status, "%.200s%s%.200s: %s", w->tree->path,
			w->name[0] ? "/" : "", w->name, what);
}

static bool is_skipped(const char *name)
{
	size_t n = strlen(name);

	return name[0] == '.' || kvt_path_ends(name, ".tmp") ||
	       kvt_path_ends(name, ".lock") || strstr(name, ".tmp-") ||
	       strstr(name, ".tmp.") || (n && name[n - 1] == '~');
}

/* The largest key is first, and none is larger than the one at half its number. */
static void sift(struct kvt_tree_file *file, int64_t n, int64_t i)
{
	for (int64_t child; (child = 2 * i + 1) < n; i = child) {
		struct kvt_tree_file swap = file[i];

		child += child + 1 < n && file[child + 1].key > file[child].key;
		if (file[child].key <= file[i].key)
			return;
		file[i] = file[child];
		file[child] = swap;
	}
}

static enum kvt_status add(struct walk *w, const struct stat *st);

/* Once there are enough, the one with the largest key goes for one with a smaller. */
static enum kvt_status sample(struct walk *w, const struct stat *st)
{
	uint64_t key = kvt_range_hash(w->name, (int64_t)strlen(w->name));
	struct kvt_tree *t = w->tree;
	struct kvt_tree_file *first = t->file;
	enum kvt_status status;
	char *name;

	if (!w->watch->seen(w->watch->context, w->name, st->st_size))
		return KVT_OK;
	if (t->count < w->watch->keep) {
		if ((status = add(w, st)))
			return status;
		t->file[t->count - 1].key = key;
		for (int64_t i = t->count / 2; t->count == w->watch->keep && i-- > 0; )
			sift(t->file, t->count, i);
		return KVT_OK;
	}
	if (key >= first->key)
		return KVT_OK;
	if (!(name = strdup(w->name)))
		return refuse(w, KVT_SYSTEM, "out of memory");
	free(first->name);
	*first = (struct kvt_tree_file){ name, st->st_size, st->st_dev, st->st_ino,
					 st->st_mtim, key };
	sift(t->file, t->count, 0);
	return KVT_OK;
}

static enum kvt_status add(struct walk *w, const struct stat *st)
{
	struct kvt_tree *t = w->tree;
	int64_t n = t->count;
	char *name;

	t->name_bytes += (int64_t)strlen(w->name) + 1;
	if (t->name_bytes > MAX_NAME_BYTES)
		return refuse(w, KVT_BAD_INPUT, "more names than kvtool supports");
	if (!KVT_GROW(&t->file, n))
		return refuse(w, KVT_SYSTEM, "out of memory");
	if (!(name = strdup(w->name)))
		return refuse(w, KVT_SYSTEM, "out of memory");
	t->file[t->count++] = (struct kvt_tree_file){ name, st->st_size, st->st_dev,
						      st->st_ino, st->st_mtim, 0 };
	return KVT_OK;
}

static enum kvt_status descend(struct walk *w, int parent, const char *entry,
			       size_t length, int depth);

static enum kvt_status look(struct walk *w, int folder, const struct dirent *found,
			    size_t length, int depth)
{
	const char *entry = found->d_name;
	struct stat st;

	if (found->d_type == DT_DIR)
		return descend(w, folder, entry, length, depth + 1);
	if (w->skipped && found->d_type == DT_REG) {
		if (is_skipped(kvt_path_base(w->name)))
			w->skipped(w->context, w->name);
		return KVT_OK;
	}
	if (fstatat(folder, entry, &st, AT_SYMLINK_NOFOLLOW))
		return refuse(w, KVT_SYSTEM, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return descend(w, folder, entry, length, depth + 1);
	if (w->skipped) {
		if (is_skipped(kvt_path_base(w->name)))
			w->skipped(w->context, w->name);
		return KVT_OK;
	}
	if (w->like) {
		w->found = S_ISREG(st.st_mode) && w->like(w->name);
		return KVT_OK;
	}
	if (!S_ISREG(st.st_mode))
		return refuse(w, KVT_BAD_INPUT,
			      "is neither a regular file nor a folder; links are refused");
	return w->watch ? sample(w, &st) : add(w, &st);
}

static bool is_plain(const char *name)
{
	for (const char *c = name; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return false;
	return kvt_is_text(name);
}

static enum kvt_status enter(struct walk *w, int folder, const struct dirent *found,
			     size_t length, int depth)
{
	const char *entry = found->d_name;
	size_t n = strlen(entry);

	if (++w->entries > (w->like ? PROBE_ENTRIES : MAX_ENTRIES) && !w->watch)
		return refuse(w, KVT_BAD_INPUT,
			      "more entries than kvtool supports; fsck --sample=N looks at any number");
	/* what follows may print it, and put it into JSON */
	if (!is_plain(entry))
		return refuse(w, KVT_BAD_INPUT, "holds a name that is not plain text");
	if (length + n + 2 > sizeof(w->name))
		return refuse(w, KVT_BAD_INPUT, "a path that is too long");
	if (length)
		w->name[length++] = '/';
	memcpy(w->name + length, entry, n + 1);
	return look(w, folder, found, length + n, depth);
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* What a walk for a sample passes over is told at once. */
static void skip(struct walk *w, const char *entry, size_t length)
{
	int n = snprintf(w->name + length, sizeof(w->name) - length, "%s%s",
			 length ? "/" : "", entry);

	if (n > 0 && (size_t)n < sizeof(w->name) - length && w->watch->skipped)
		w->watch->skipped(w->watch->context, w->name);
	w->name[length] = '\0';
}

/* Takes 'fd'; 'length' is of the path below the folder that is walked. */
static enum kvt_status scan(struct walk *w, int fd, size_t length, int depth)
{
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	enum kvt_status status = KVT_OK;
	struct dirent *entry;

	if (!dir) {
		status = refuse(w, errno == ENOTDIR ? KVT_BAD_INPUT : KVT_SYSTEM,
				strerror(errno));
		if (fd >= 0)
			close(fd);
		return status;
	}
	while (!status && !w->found && (entry = readdir(dir))) {
		w->name[length] = '\0';
		if (w->skipped ? !is_dots(entry->d_name) : !is_skipped(entry->d_name))
			status = enter(w, fd, entry, length, depth);
		else if (w->watch && !is_dots(entry->d_name))
			skip(w, entry->d_name, length);
	}
	closedir(dir);
	return status;
}

static enum kvt_status descend(struct walk *w, int parent, const char *entry,
			       size_t length, int depth)
{
	if (depth > MAX_DEPTH)
		return refuse(w, KVT_BAD_INPUT,
				"more levels of folders than kvtool supports");
	return scan(w, openat(parent, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW |
				     O_CLOEXEC), length, depth);
}

static enum kvt_status walk_all(struct kvt_tree *out, const char *path,
				const struct kvt_tree_watch *watch, struct kvt_error *err)
{
	struct walk w = { .tree = out, .watch = watch, .err = err };
	enum kvt_status status;

	*out = (struct kvt_tree){ .path = path };
	/* the folder itself may be a link: the user named it */
	status = scan(&w, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0, 0);
	if (status) {
		kvt_tree_free(out);
		return status;
	}
	if (out->count)
		qsort(out->file, (size_t)out->count, sizeof(*out->file), kvt_by_name);
	return KVT_OK;
}

enum kvt_status kvt_tree_walk(struct kvt_tree *out, const char *path,
			      struct kvt_error *err)
{
	return walk_all(out, path, NULL, err);
}

enum kvt_status kvt_tree_sample(struct kvt_tree *out, const char *path,
				const struct kvt_tree_watch *watch, struct kvt_error *err)
{
	return walk_all(out, path, watch, err);
}

void kvt_tree_drop(struct kvt_tree *tree)
{
	int64_t kept = 0;

	for (int64_t i = 0; i < tree->count; i++) {
		if (tree->file[i].nbytes < 0)
			free(tree->file[i].name);
		else
			tree->file[kept++] = tree->file[i];
	}
	tree->count = kept;
}

static int name_of(const void *name, const void *file)
{
	return strcmp(name, ((const struct kvt_tree_file *)file)->name);
}

int64_t kvt_tree_find(const struct kvt_tree *tree, const char *name)
{
	const struct kvt_tree_file *found = NULL;

	if (tree->count)
		found = bsearch(name, tree->file, (size_t)tree->count,
				sizeof(*tree->file), name_of);
	return found ? found - tree->file : -1;
}

void kvt_tree_free(struct kvt_tree *tree)
{
	for (int64_t i = 0; i < tree->count; i++)
		free(tree->file[i].name);
	free(tree->file);
	*tree = (struct kvt_tree){ 0 };
}

bool kvt_tree_has(const char *path, bool (*like)(const char *name))
{
	struct kvt_tree tree = { .path = path };
	struct walk w = { .tree = &tree, .like = like };

	if (scan(&w, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0, 0))
		return false;
	return w.found;
}

void kvt_tree_each_skipped(const char *path,
			   void (*fn)(void *context, const char *name), void *context)
{
	struct kvt_tree tree = { .path = path };
	struct walk w = { .tree = &tree, .skipped = fn, .context = context };

	(void)!scan(&w, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0, 0);
}

/* ---- files -------------------------------------------------------------- */

const char *kvt_path_base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

bool kvt_path_ends(const char *path, const char *ending)
{
	size_t n = strlen(path), m = strlen(ending);

	return n > m && !strcmp(path + n - m, ending);
}

bool kvt_is_folder(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

char *kvt_path_join(const char *folder, const char *name, const char *suffix)
{
	size_t n = strlen(folder) + strlen(name) + strlen(suffix) + 2;
	char *out = malloc(n);

	if (out)
		snprintf(out, n, "%s/%s%s", folder, name, suffix);
	return out;
}

enum kvt_status kvt_tree_list(struct kvt_files *files, int *index,
			      const struct kvt_tree *tree, int64_t i,
			      struct kvt_error *err)
{
	const struct kvt_tree_file *file = &tree->file[i];
	char *path = kvt_path_join(tree->path, file->name, "");
	enum kvt_status status;

	if (!path)
		return kvt_no_memory(err, tree->path);
	status = kvt_files_list(files, index, &(struct kvt_file){
				.fd = -1, .nbytes = file->nbytes, .dev = file->dev,
				.ino = file->ino, .changed = file->changed,
				.path = path }, err);
	if (status)
		free(path);
	return status;
}

enum kvt_status kvt_tree_text(char **out, size_t *nbytes, struct kvt_files *files,
			      const char *path, int64_t most, struct kvt_error *err)
{
	const struct kvt_file *file;
	enum kvt_status status;
	int index;

	if ((status = kvt_files_open(files, &index, path, err)))
		return status;
	file = &files->file[index];
	if (file->nbytes > most)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has %lld bytes, expected at most %lld", path,
				LL(file->nbytes), LL(most));
	if (!(*out = malloc((size_t)file->nbytes + 1)))
		return kvt_no_memory(err, path);
	*nbytes = (size_t)file->nbytes;
	(*out)[*nbytes] = '\0';
	if ((status = kvt_file_read(file, *out, file->nbytes, 0, err))) {
		free(*out);
		*out = NULL;
	}
	kvt_files_park(files, index);
	return status;
}
