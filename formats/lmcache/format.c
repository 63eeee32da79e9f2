/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.c - files that LMCache writes: local disk, the FS connector, GDS
 * and Weka, the adapters of its second level, and copies of objects
 *
 *	KEY.pt				local disk			the chunk
 *	KEY.data			FS connector, second level	[header] the chunk
 *	KEY.kvcache.safetensors		GDS				header, the chunk
 *	KEY.kvcache.safetensors.metadata	its header again
 *	KEY.weka1, .metadata		Weka				the same
 *	KEY				an object of S3, copied		the chunk
 *	any name			raw_block.c: slots of one file
 *
 * Endings say which backend wrote a file, names (key.c) of which model, rank and tokens
 * it is; headers (header.c), where there are any, say what is in it.  A chunk has its
 * arrays and nothing else, but for what a serde makes of it (serde.c).  Facts: files
 * that LMCache 0.5.6 wrote (testdata/engines), and its storage_backend and utils.py.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/file/tree.h"
#include "formats/lmcache/lmcache.h"

/* [a-p]/[a-p]/KEY is what Mooncake calls the value of a key. */
static bool is_of_mooncake(const char *path)
{
	const char *p = kvt_path_base(path);

	return p - path >= 4 && p[-1] == '/' && p[-3] == '/' && p[-2] >= 'a' &&
	       p[-2] <= 'p' && p[-4] >= 'a' && p[-4] <= 'p' &&
	       (p - path == 4 || p[-5] == '/');
}

/* Of a name that ends like one of LMCache's files, also its key must be one. */
static bool is_name(const char *path)
{
	enum kvt_lmcache_backend backend;
	struct kvt_lmcache_key key;
	bool good = false;
	size_t stem;
	char *text;

	if (!kvt_lmcache_backend(&backend, &stem, kvt_path_base(path)) ||
	    (backend == KVT_LMCACHE_OBJECT && is_of_mooncake(path)))
		return false;
	text = strndup(kvt_path_base(path), stem);
	if (text)
		good = !kvt_lmcache_key_parse(&key, text, NULL);
	free(text);
	return good;
}

static bool lmcache_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	return head && (is_name(path) || kvt_lmcache_is_gds(head, nhead) ||
			kvt_lmcache_is_raw_block(head, nhead));
}

/* ---- folders ------------------------------------------------------------- */

/* GDS names a file that is not finished NAME.tmp and eight digits. */
static bool is_unfinished(const char *name)
{
	size_t n = strlen(name);

	return n > 12 && !strncmp(name + n - 12, ".tmp", 4) &&
	       strspn(name + n - 8, "0123456789abcdef") == 8;
}

/* NAME.metadata is the header of NAME, which was written before. */
static enum kvt_status check_twin(struct kvt_lmcache *o, const struct kvt_tree *tree,
				  int64_t i)
{
	enum { N = KVT_LMCACHE_GDS_HEADER };
	const char *name = tree->file[i].name;
	char *data = strndup(name, strlen(name) - strlen(".metadata"));
	int64_t at;
	struct kvt_files *files = &o->reader->files;
	uint8_t a[N], b[N];
	enum kvt_status status;
	int x, y;

	if (!data)
		return kvt_no_memory(o->err, o->path);
	at = kvt_tree_find(tree, data);
	free(data);
	/* of a file without a byte nothing is left to compare */
	if (at >= 0 && !tree->file[at].nbytes)
		return KVT_OK;
	if (at < 0 || tree->file[i].nbytes != N || tree->file[at].nbytes < N)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s/%s: has %lld bytes, expected the first %d of the file beside it",
				o->path, name, LL(tree->file[i].nbytes), N);
	if ((status = kvt_tree_list(files, &x, tree, i, o->err)) ||
	    (status = kvt_tree_list(files, &y, tree, at, o->err)) ||
	    (status = kvt_file_read(&files->file[x], a, N, 0, o->err)) ||
	    (status = kvt_file_read(&files->file[y], b, N, 0, o->err)))
		return status;
	/* the data's own entry follows with the data */
	free(files->file[--files->count].path);
	if (memcmp(a, b, N))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s/%s: does not match the beginning of the file beside it", o->path, name);
	return KVT_OK;
}

static enum kvt_status take_file(struct kvt_lmcache *o, const struct kvt_tree *tree,
				 int64_t i)
{
	const char *name = kvt_path_base(tree->file[i].name);
	struct kvt_lmcache_part part = { .nbytes = tree->file[i].nbytes };
	enum kvt_status status;
	size_t stem;
	char *text;

	if (is_unfinished(name))
		return KVT_OK;
	if (!kvt_lmcache_backend(&part.backend, &stem, name))
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s/%s: is not a file of LMCache",
				o->path, tree->file[i].name);
	if (part.backend == KVT_LMCACHE_TWIN)
		return check_twin(o, tree, i);
	if ((status = kvt_tree_list(&o->reader->files, &part.file, tree, i, o->err)))
		return status;
	/* models of objects have kept their slashes, which have made folders */
	text = part.backend == KVT_LMCACHE_OBJECT ? strdup(tree->file[i].name) :
						    strndup(name, stem);
	if (!text)
		return kvt_no_memory(o->err, o->path);
	return kvt_lmcache_add(o, text, &part);
}

static enum kvt_status take_folder(struct kvt_lmcache *o)
{
	struct kvt_tree tree;
	enum kvt_status status = kvt_tree_walk(&tree, o->path, o->err);

	if (status)
		return status;
	o->reader->leaf.unlisted = true;
	for (int64_t i = 0; !status && i < tree.count; i++)
		status = take_file(o, &tree, i);
	kvt_tree_free(&tree);
	return status;
}

/* ---- the format ---------------------------------------------------------- */

static enum kvt_status is_raw_block(bool *out, const struct kvt_file *file,
				    struct kvt_error *err)
{
	uint8_t head[32];
	enum kvt_status status = KVT_OK;

	*out = file->nbytes >= (int64_t)sizeof(head);
	if (*out && !(status = kvt_file_read(file, head, sizeof(head), 0, err)))
		*out = kvt_lmcache_is_raw_block(head, sizeof(head));
	return status;
}

static enum kvt_status take_single(struct kvt_lmcache *o)
{
	const char *name = kvt_path_base(o->path);
	struct kvt_lmcache_part part = { .file = 0 };
	enum kvt_status status;
	bool slots;
	size_t stem;
	char *text;

	if ((status = kvt_files_open(&o->reader->files, &part.file, o->path, o->err)))
		return status;
	if ((status = is_raw_block(&slots, &o->reader->files.file[part.file], o->err)) ||
	    slots)
		return status ? status : kvt_lmcache_raw_block(o, part.file);
	part.nbytes = o->reader->files.file[part.file].nbytes;
	if (!kvt_lmcache_backend(&part.backend, &stem, name) ||
	    part.backend == KVT_LMCACHE_TWIN)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: its name is not that of a chunk of LMCache: KEY.data, KEY.pt, KEY.kvcache.safetensors or KEY.weka1",
				o->path);
	if (!(text = strndup(name, stem)))
		return kvt_no_memory(o->err, o->path);
	return kvt_lmcache_add(o, text, &part);
}

static enum kvt_status lmcache_open(struct kvt_reader *reader, const char *path,
				    const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_lmcache o = { .reader = reader, .path = path, .err = err,
				 .hints = hints };
	enum kvt_status status = kvt_is_folder(path) ? take_folder(&o) : take_single(&o);

	if (!status)
		status = kvt_lmcache_open(&o);
	kvt_lmcache_free(&o);
	return status;
}

const struct kvt_format kvt_lmcache_format = {
	.info = { "lmcache", "chunks of LMCache: local disk, FS, GDS, second level",
		  .reads = true, .writes = false },
	.facts = kvt_lmcache_facts,
	.checks = "names, headers where there are any, lengths",
	.in_layout = kvt_chunks_in_layout,
	.takes = KVT_TAKES_PROMPT,
	.probe = lmcache_probe,
	.holds = is_name,
	.open = lmcache_open,
};
