/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - where the values of a Mooncake store lie
 *
 * In: the files of a folder.  A file of one key, a value under its name, buckets with
 * their metadata, or records of the offset allocator, which are found through the
 * allocator's table of nodes, or without it by scan.c.  Of two records with one key the
 * later one counts.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/mooncake/mooncake.h"

enum {
	MAX_BUCKET_META = 64 << 20,
	MAX_CHECKPOINT = 512 << 20,	/* a table of all nodes that there can be */
};

static const struct kvt_file *file_at(const struct kvt_mooncake *o, int file)
{
	return &o->reader->files.file[file];
}

/* All of file 'i', malloc()ed. */
static enum kvt_status read_whole(struct kvt_mooncake *o, uint8_t **out, int64_t *nbytes,
				  int *file, const struct kvt_tree *tree, int64_t i,
				  int64_t most)
{
	enum kvt_status status = kvt_tree_list(&o->reader->files, file, tree, i, o->err);

	if (status)
		return status;
	*nbytes = tree->file[i].nbytes;
	if (*nbytes > most)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: has %lld bytes, expected at most %lld",
				file_at(o, *file)->path, LL(*nbytes), LL(most));
	if (!(*out = malloc((size_t)*nbytes + 1)))
		return kvt_no_memory(o->err, o->path);
	status = kvt_file_read(file_at(o, *file), *out, *nbytes, 0, o->err);
	if (status) {
		free(*out);
		*out = NULL;
	}
	return status;
}

/* The file beside 'name' that ends in 'other' instead; -1 if there is none. */
static int64_t beside(const struct kvt_tree *tree, const char *name, const char *ending,
		      const char *other)
{
	size_t stem = strlen(name) - strlen(ending);
	char *text = malloc(stem + strlen(other) + 1);
	int64_t found = -1;

	if (text) {
		memcpy(text, name, stem);
		strcpy(text + stem, other);
		found = kvt_tree_find(tree, text);
	}
	free(text);
	return found;
}

/* ---- one key a file ------------------------------------------------------ */

enum kvt_status kvt_mooncake_value(struct kvt_mooncake *o, bool *entry, int index,
				   const char *base)
{
	const struct kvt_file *file = file_at(o, index);
	int64_t nbytes = file->nbytes;
	int64_t nhead = nbytes < KVT_MOONCAKE_HEAD ? nbytes : KVT_MOONCAKE_HEAD;
	uint8_t head[KVT_MOONCAKE_HEAD];
	enum kvt_status status;

	if ((status = kvt_file_read(file, head, nhead, 0, o->err)))
		return status;
	*entry = kvt_mooncake_is_entry(head, nhead, nbytes, base);
	if (*entry)
		return kvt_mooncake_entry_parse(&o->values, head, nhead, nbytes, index,
						file->path, o->err);
	if ((status = kvt_mooncake_values_add(&o->values, base, (int64_t)strlen(base),
					      &(struct kvt_mooncake_value){ .file = index,
							  .nbytes = nbytes },
					      file->path, o->err)))
		return status;
	o->values.value[o->values.count - 1].tenant = "";
	return KVT_OK;
}

/* A store has keys in its files, or values alone; a file without a byte fits either. */
static enum kvt_status take_files(struct kvt_mooncake *o, const struct kvt_tree *tree)
{
	int64_t first = -1;
	bool entry;
	enum kvt_status status;
	int file;

	for (int64_t i = 0; i < tree->count; i++) {
		const char *base = kvt_path_base(tree->file[i].name);

		if ((status = kvt_tree_list(&o->reader->files, &file, tree, i, o->err)) ||
		    (status = kvt_mooncake_value(o, &entry, file, base)))
			return status;
		if (!tree->file[i].nbytes)
			continue;
		if (first < 0) {
			first = i;
			o->recorded = entry;
		}
		if (entry != o->recorded)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: %s with its key, unlike %s: files of two stores, or one was cut",
					file_at(o, file)->path,
					entry ? "begins" : "does not begin",
					tree->file[first].name);
	}
	return KVT_OK;
}

/* ---- buckets ------------------------------------------------------------- */

/* The key stands before each value once more. */
static enum kvt_status check_keys(struct kvt_mooncake *o, int64_t first)
{
	char text[KVT_MOONCAKE_KEY];

	for (int64_t i = first; i < o->values.count; i++) {
		const struct kvt_mooncake_value *v = &o->values.value[i];
		int64_t n = v->ntext;
		enum kvt_status status = kvt_file_read(file_at(o, v->file), text, n,
						       v->offset - n, o->err);

		if (status)
			return status;
		if (memcmp(text, v->text, (size_t)n))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: at byte %lld, expected key %.80s",
					file_at(o, v->file)->path, LL(v->offset - n),
					kvt_mooncake_shown(v));
	}
	return KVT_OK;
}

static enum kvt_status take_bucket(struct kvt_mooncake *o, const struct kvt_tree *tree,
				   int64_t meta, int64_t data)
{
	int64_t first = o->values.count, nbytes;
	enum kvt_status status;
	int file, bucket;
	uint8_t *bytes;

	if (meta < 0 || data < 0)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s/%s: has no .%s beside it; a bucket has both files", o->path,
				tree->file[meta < 0 ? data : meta].name,
				meta < 0 ? "meta" : "bucket");
	if ((status = read_whole(o, &bytes, &nbytes, &file, tree, meta, MAX_BUCKET_META)))
		return status;
	if (!(status = kvt_tree_list(&o->reader->files, &bucket, tree, data, o->err)))
		status = kvt_mooncake_bucket_parse(&o->values, bytes, nbytes,
						   tree->file[data].nbytes, bucket,
						   file_at(o, file)->path, o->err);
	free(bytes);
	return status ? status : check_keys(o, first);
}

/* ---- records ------------------------------------------------------------- */

/* 'head': the header and the key. */
static enum kvt_status check_sum(const struct kvt_file *file,
				 const struct kvt_mooncake_record *r, const uint8_t *head,
				 const struct kvt_mooncake_value *value,
				 struct kvt_error *err)
{
	enum kvt_status status;
	bool right;

	if ((status = kvt_mooncake_sum_is(&right, file, r, head, err)) || right)
		return status;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: record of key %.80s: its checksum is not 0x%08x, as is recorded",
			file->path, kvt_mooncake_shown(value), (unsigned)r->crc);
}

/* Between key and value, which begins at the next multiple of 4096, are zeros. */
static enum kvt_status check_gap(const struct kvt_file *file, const uint8_t *gap,
				 int64_t ngap, int64_t at, struct kvt_error *err)
{
	for (int64_t i = 0; i < ngap; i++)
		if (gap[i])
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: record at %lld: byte %lld before the value is 0x%02x, expected 0",
					file->path, LL(at), LL(ngap - i), gap[i]);
	return KVT_OK;
}

static enum kvt_status take_record(struct kvt_mooncake *o, int data,
				   const struct kvt_mooncake_extent *extent,
				   uint64_t next)
{
	enum { KEY = KVT_MOONCAKE_RECORD };
	const struct kvt_file *file = file_at(o, data);
	uint8_t head[KEY + KVT_MOONCAKE_KEY + KVT_MOONCAKE_ALIGNED];
	int64_t at = extent->offset, ngap;
	struct kvt_mooncake_record r;
	enum kvt_status status;

	if (extent->nbytes < KEY)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: range of %lld bytes at %lld holds no record", file->path,
				LL(extent->nbytes), LL(at));
	if ((status = kvt_file_read(file, head, KEY, at, o->err)) ||
	    (status = kvt_mooncake_record_parse(&r, head, extent, file->path, o->err)))
		return status;
	/* written after the checkpoint, in a place that another one had */
	if (r.seq >= next)
		return KVT_OK;
	ngap = r.value - at - KEY - r.key;
	if ((status = kvt_file_read(file, head + KEY, r.value - at - KEY, at + KEY,
				    o->err)) ||
	    (status = check_gap(file, head + KEY + r.key, ngap, at, o->err)) ||
	    (status = kvt_mooncake_values_add(&o->values, head + KEY, r.key,
					      &(struct kvt_mooncake_value){ .file = data,
							  .offset = r.value,
							  .nbytes = r.nbytes,
							  .seq = r.seq },
					      file->path, o->err)))
		return status;
	return !r.has_crc ? KVT_OK :
	       check_sum(file, &r, head, &o->values.value[o->values.count - 1], o->err);
}

/* The ranges that the allocator had given when it kept kv_cache.meta. */
static enum kvt_status take_records(struct kvt_mooncake *o, const struct kvt_tree *tree,
				    int64_t meta, int data)
{
	struct kvt_mooncake_checkpoint c = { .count = 0 };
	enum kvt_status status;
	int64_t nbytes;
	uint8_t *bytes;
	int file;

	if ((status = read_whole(o, &bytes, &nbytes, &file, tree, meta, MAX_CHECKPOINT)))
		return status;
	status = kvt_mooncake_checkpoint_parse(&c, bytes, nbytes,
					       file_at(o, data)->nbytes,
					       file_at(o, file)->path, o->err);
	free(bytes);
	for (int64_t i = 0; !status && i < c.count; i++)
		status = take_record(o, data, &c.extent[i], c.seq);
	free(c.extent);
	return status;
}

/* kv_cache.data and kv_cache.meta, if it is there: files of the tree, or -1. */
static enum kvt_status open_records(struct kvt_mooncake *o, const struct kvt_tree *tree,
				    int64_t meta, int64_t data)
{
	enum kvt_status status;
	int index = -1;
	char *path;

	if (data < 0)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s/kv_cache.meta: has no kv_cache.data beside it",
				o->path);
	/* one file that all reads are of stays open */
	path = kvt_path_join(tree->path, tree->file[data].name, "");
	status = !path ? kvt_no_memory(o->err, o->path) :
			 kvt_files_open(&o->reader->files, &index, path, o->err);
	free(path);
	if (status)
		return status;
	return meta < 0 ? kvt_mooncake_scan(o, index) :
			  take_records(o, tree, meta, index);
}

/* ---- folders ------------------------------------------------------------- */

static enum kvt_status take_buckets(struct kvt_mooncake *o, const struct kvt_tree *tree)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < tree->count; i++) {
		const char *name = tree->file[i].name;

		if (kvt_path_ends(name, ".meta"))
			status = take_bucket(o, tree, i,
					     beside(tree, name, ".meta", ".bucket"));
		else if (!kvt_path_ends(name, ".bucket"))
			status = kvt_fail(o->err, KVT_BAD_INPUT,
					  "%s/%s: is not a file of a bucket store", o->path, name);
		else if (beside(tree, name, ".bucket", ".meta") < 0)
			status = take_bucket(o, tree, -1, i);
	}
	return status;
}

/* Buckets have numbers; whatever else ends so may be a key. */
static bool is_bucket_meta(const char *name)
{
	const char *base = kvt_path_base(name);
	size_t digits = strspn(base, "0123456789");

	return digits && !strcmp(base + digits, ".meta");
}

enum kvt_status kvt_mooncake_collect(struct kvt_mooncake *o, const struct kvt_tree *tree)
{
	int64_t meta = -1, data = -1;
	bool bucket = false;

	for (int64_t i = 0; i < tree->count; i++) {
		const char *name = tree->file[i].name;

		if (!strcmp(name, "kv_cache.meta"))
			meta = i;
		else if (!strcmp(name, "kv_cache.data"))
			data = i;
		bucket |= kvt_path_ends(name, ".bucket") || is_bucket_meta(name);
	}
	if (meta >= 0 || data >= 0) {
		if (tree->count > 2)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: holds other files beside kv_cache.meta and kv_cache.data",
					o->path);
		o->recorded = true;
		return open_records(o, tree, meta, data);
	}
	/* the allocator's table has all records; nothing has all files */
	o->reader->leaf.unlisted = true;
	o->recorded = bucket;
	return bucket ? take_buckets(o, tree) : take_files(o, tree);
}
