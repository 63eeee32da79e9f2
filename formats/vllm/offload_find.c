/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload_find.c - which config and which rank of an offload tree are meant, who wrote
 * it, and what else lies there
 *
 * offload.h draws the tree.  The path may be the root, the folder of the config or that
 * of a rank; of several configs one is chosen with cache=, and objects without a config
 * are told of.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/vllm/offload.h"

enum { MOST_CONFIG = 16 << 20, MOST_ENTRIES = 1 << 16 };

static const char config_name[] = "config.json";

/* ---- paths -------------------------------------------------------------- */

static bool has_config(const char *folder)
{
	char *path = kvt_path_join(folder, config_name, "");
	struct stat st;
	bool is = path && !lstat(path, &st) && S_ISREG(st.st_mode);

	free(path);
	return is;
}

static bool is_base(const char *path)
{
	size_t n = strlen(path);

	while (n && path[n - 1] == '/')
		n--;
	return n > 13 && path[n - 13] == '_' &&
	       strspn(path + n - 12, "0123456789abcdef") >= 12 && has_config(path);
}

static bool has_base(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	bool found = false;

	for (int n = MOST_ENTRIES; dir && !found && n && (entry = readdir(dir)); n--) {
		char *name = entry->d_name[0] == '.' ? NULL :
			     kvt_path_join(path, entry->d_name, "");

		found = name && is_base(name);
		free(name);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* "x_r12" ends in a rank: its digits, and how long the rest is. */
static const char *rank_of(const char *path, size_t *base)
{
	size_t n = strlen(path), end = n;

	while (end && path[end - 1] >= '0' && path[end - 1] <= '9')
		end--;
	if (end == n || n - end > 5 || end < 3 || strncmp(path + end - 2, "_r", 2))
		return NULL;
	*base = end - 2;
	return path + end;
}

bool kvt_offload_is_tree(const char *path)
{
	size_t n = strlen(path), base;
	char *rank, *folder;
	bool is;

	while (n > 1 && path[n - 1] == '/')
		n--;
	if (!(folder = strndup(path, n)))
		return false;
	if ((rank = rank_of(folder, &base) ? folder + base : NULL))
		*rank = '\0';
	is = is_base(folder);
	if (rank)
		*rank = '_';
	is = is || has_base(folder);
	free(folder);
	return is;
}

typedef enum kvt_status entry_fn(struct kvt_offload *o, struct kvt_store_choice *choice,
				 char **found, const char *folder, const char *name);

/* Hands each entry of a folder to 'fn'. */
static enum kvt_status each_entry(struct kvt_offload *o, const char *folder,
				  struct kvt_store_choice *choice, char **found,
				  entry_fn *fn)
{
	enum kvt_status status = KVT_OK;
	DIR *dir = opendir(folder);
	struct dirent *entry;
	int n = 0;

	if (!dir)
		return kvt_fail(o->err, KVT_SYSTEM, "%s: cannot open: %s", folder,
				strerror(errno));
	while (!status && (entry = readdir(dir))) {
		if (++n > MOST_ENTRIES)
			status = kvt_fail(o->err, KVT_BAD_INPUT,
					  "%s: has more than %d entries, which no offload tree has",
					  folder, MOST_ENTRIES);
		else if (entry->d_name[0] != '.')
			status = fn(o, choice, found, folder, entry->d_name);
	}
	closedir(dir);
	return status ? status : kvt_store_chosen(choice, o->path, o->err);
}

/* Keeps 'path' if it is the chosen one; takes it. */
static enum kvt_status offer(struct kvt_offload *o, struct kvt_store_choice *choice,
			     char **found, char *path, const char *value)
{
	struct kvt_name_part part = { value, strlen(value) };
	enum kvt_status status;
	bool skip;

	if ((status = kvt_store_choose(&skip, choice, &part, o->path, o->err)) || skip) {
		free(path);
		return status;
	}
	free(*found);
	*found = path;
	/* what was offered is gone by the next call */
	choice->first.s = path + strlen(path) - part.n;
	return KVT_OK;
}

/* ---- the config --------------------------------------------------------- */

static enum kvt_status look_for_config(struct kvt_offload *o,
				       struct kvt_store_choice *choice, char **found,
				       const char *folder, const char *name)
{
	char *path = kvt_path_join(folder, name, "");

	if (!path)
		return kvt_no_memory(o->err, o->path);
	if (has_config(path))
		return offer(o, choice, found, path, name);
	free(path);
	return KVT_OK;
}

/* A folder below 'path' that has a folder with a config: one level too high was given. */
static char *tree_below(const char *path)
{
	DIR *dir = opendir(path), *below;
	struct dirent *entry, *inner;
	char *found = NULL;

	while (dir && !found && (entry = readdir(dir))) {
		char *name = entry->d_name[0] == '.' ? NULL :
			     kvt_path_join(path, entry->d_name, "");

		below = name ? opendir(name) : NULL;
		while (below && !found && (inner = readdir(below))) {
			char *base = inner->d_name[0] == '.' ? NULL :
				     kvt_path_join(name, inner->d_name, "");

			if (base && has_config(base))
				found = strdup(name);
			free(base);
		}
		if (below)
			closedir(below);
		free(name);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* "x_0123456789ab_r0", what is before the rank; or NULL.  malloc()ed. */
static char *objects_below(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char *found = NULL;
	size_t n;

	while (dir && !found && (entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (rank_of(name, &n) && n > 13 && name[n - 13] == '_' &&
		    strspn(name + n - 12, "0123456789abcdef") == 12)
			found = strndup(name, n);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* Copies of vLLM's tier obj, which keeps no config. */
static enum kvt_status refuse_objects(struct kvt_offload *o, char *base)
{
	kvt_fail(o->err, KVT_BAD_INPUT,
		 "%.200s: has no %s for %.150s_r0, as objects of vLLM's tier obj do not; put the one that its tier fs writes, for the same engine and one block a file, into %.200s/%.150s",
		 o->path, config_name, base, o->path, base);
	free(base);
	return KVT_BAD_INPUT;
}

static enum kvt_status refuse_no_tree(struct kvt_offload *o)
{
	char *base = objects_below(o->path);
	char *below = base ? NULL : tree_below(o->path);

	if (base)
		return refuse_objects(o, base);

	kvt_fail(o->err, KVT_BAD_INPUT,
		 "%s: no offload tree: expected a folder with a %s in it%s%s%s", o->path,
		 config_name, below ? "; there is one in " : "", below ? below : "",
		 below ? ": give that folder, with --layout, --heads and --head-dim" :
			 "");
	free(below);
	return KVT_BAD_INPUT;
}

static enum kvt_status find_base(struct kvt_offload *o, const char **rank)
{
	struct kvt_store_choice cache = { .key = "cache", .what = "caches" };
	size_t n = strlen(o->path), base;
	enum kvt_status status;
	char *path;

	while (n > 1 && o->path[n - 1] == '/')
		n--;
	if (!(path = strndup(o->path, n)))
		return kvt_no_memory(o->err, o->path);
	if ((*rank = rank_of(path, &base))) {
		path[base] = '\0';
		if (has_config(path)) {
			o->base = path;
			return KVT_OK;
		}
		path[base] = '_';
		*rank = NULL;
	}
	if (has_config(path)) {
		o->base = path;
		return KVT_OK;
	}
	cache.asked = kvt_fact(o->hints, "cache");
	status = each_entry(o, path, &cache, &o->base, look_for_config);
	free(path);
	if (!status && !o->base)
		return refuse_no_tree(o);
	return status;
}

static enum kvt_status read_config(struct kvt_offload *o)
{
	char *path = kvt_path_join(o->base, config_name, ""), *text = NULL, digest[13];
	const char *name = strrchr(o->base, '/') ? strrchr(o->base, '/') + 1 : o->base;
	size_t nbytes = 0, n = strlen(name);
	enum kvt_status status;

	if (!path)
		return kvt_no_memory(o->err, o->path);
	if (!(status = kvt_tree_text(&text, &nbytes, &o->reader->files, path, MOST_CONFIG,
				     o->err)))
		status = kvt_offload_parse(&o->config, text, nbytes, path, o->err);
	if (!status && !kvt_offload_digest(digest, o->config.json))
		status = kvt_no_memory(o->err, o->path);
	if (!status && (n < 13 || name[n - 13] != '_' || strcmp(name + n - 12, digest)))
		status = kvt_fail(o->err, KVT_BAD_INPUT,
				  "%.200s: its digest is %s, but the name of the folder is %.160s",
				  path, digest, name);
	free(text);
	free(path);
	return status;
}

/* ---- the rank ----------------------------------------------------------- */

static enum kvt_status look_for_rank(struct kvt_offload *o,
				     struct kvt_store_choice *choice,
				     char **found, const char *folder, const char *name)
{
	const char *slash = strrchr(o->base, '/'), *rank;
	const char *base = slash ? slash + 1 : o->base;
	size_t n;
	char *path;

	if (!(rank = rank_of(name, &n)) || n != strlen(base) || strncmp(name, base, n))
		return KVT_OK;
	o->other_ranks |= strcmp(rank, "0") != 0;
	if (!(path = kvt_path_join(folder, name, "")))
		return kvt_no_memory(o->err, o->path);
	return offer(o, choice, found, path, path + strlen(path) - strlen(rank));
}

static enum kvt_status find_rank(struct kvt_offload *o, const char *asked)
{
	struct kvt_store_choice rank = { .key = "rank", .what = "ranks", .asked = asked };
	const char *slash = strrchr(o->base, '/');
	char *root = slash ? strndup(o->base, slash == o->base ? 1 : (size_t)(slash -
				     o->base)) : strdup(".");
	enum kvt_status status;
	size_t n;

	if (!rank.asked)
		rank.asked = kvt_fact(o->hints, "rank");
	if (!root)
		return kvt_no_memory(o->err, o->path);
	status = each_entry(o, root, &rank, &o->folder, look_for_rank);
	free(root);
	if (!status && !o->folder)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: has no folder %s_r0 of a rank", o->path, o->base);
	if (!status)
		o->rank = strtoll(rank_of(o->folder, &n), NULL, 10);
	return status;
}

enum kvt_status kvt_offload_find(struct kvt_offload *o)
{
	const char *rank = NULL;
	enum kvt_status status;

	if ((status = find_base(o, &rank)) || (status = read_config(o)))
		return status;
	return find_rank(o, rank);
}

/* ---- the writer --------------------------------------------------------- */

/* Rows are whole pages of the machine; vLLM writes all of them as rank 0. */
static bool only_llmd(const struct kvt_offload *o)
{
	bool odd = o->other_ranks;

	for (int64_t i = 0; !odd && i < o->tree.count; i++)
		odd = o->tree.file[i].nbytes % 4096 != 0;
	return odd;
}

enum kvt_status kvt_offload_find_writer(struct kvt_offload *o)
{
	const char *said = o->hints->format;

	o->rows = said && !strcmp(said, KVT_OFFLOAD_VLLM);
	if (o->rows || (said && !strcmp(said, KVT_OFFLOAD_LLMD)))
		return KVT_OK;
	o->rows = !o->config.older_keys;
	if (o->rows || only_llmd(o))
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: llm-d and vLLM until 0.25 use such names and such a config, but write different bytes; give --from=" KVT_OFFLOAD_LLMD " or --from="
			KVT_OFFLOAD_VLLM, o->base);
}

/* ---- leftovers ---------------------------------------------------------- */

/* What vLLM's tier leaves of a write that did not end, or of a probe. */
static bool is_leftover(const char *name)
{
	const char *base = kvt_path_base(name), *tail = strrchr(base, '_');
	size_t digits = tail ? strspn(tail + 1, "0123456789") : 0;

	return !strncmp(base, ".o_direct_probe_", 16) ||
	       (digits && !strcmp(tail + 1 + digits, ".tmp"));
}

static void tell_leftover(void *context, const char *name)
{
	const struct kvt_inspector *inspector = context;
	char text[400];

	if (!is_leftover(name))
		return;
	snprintf(text, sizeof(text),
		 "%.300s belongs to a writer that was killed or still runs", name);
	inspector->found(inspector->context, "file.leftover", text);
}

void kvt_offload_tell_leftover(const struct kvt_offload *o, const char *name)
{
	if (o->hints->inspector) {
		struct kvt_inspector inspector = *o->hints->inspector;

		tell_leftover(&inspector, name);
	}
}

void kvt_offload_tell_leftovers(const struct kvt_offload *o)
{
	struct kvt_inspector inspector;

	if (!o->hints->inspector)
		return;
	inspector = *o->hints->inspector;
	kvt_tree_each_skipped(o->base, tell_leftover, &inspector);
	/* of a sample they were told when all files were seen */
	if (!o->hints->sample)
		kvt_tree_each_skipped(o->folder, tell_leftover, &inspector);
}
