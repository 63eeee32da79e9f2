/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_hashes.c - the hashes that the files of a tree or store are named by
 *
 *	3fa/1c_g0/3fa1c...9e.bin		vLLM: a group in the folder
 *	model@0x00000100@0@6309ed...71c.data	LMCache; -18f1... of the old ones
 *	cf97ad...b72_model_0_1.bin		SGLang, and its pools
 *
 * In all of them a hash is a run of hex digits of its own, and nothing else in a name is
 * that long: 32 or 64 digits; of LMCache, whose numbers lose their zeros, what stands
 * between two '@' or after the last one, of 8 digits and more.
 */
#include "formats/events/file_hashes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int by_hash(const void *a, const void *b)
{
	const struct kvt_file_hash *x = a, *y = b;
	int order = strcmp(x->hash, y->hash);

	return order ? order : (x->group > y->group) - (x->group < y->group);
}

static const char *end_of(const struct kvt_file_hash *name)
{
	return name->hash + strlen(name->hash) - 16;
}

static int by_end(const void *a, const void *b)
{
	return strcmp(end_of(*(struct kvt_file_hash *const *)a),
		      end_of(*(struct kvt_file_hash *const *)b));
}

static size_t hex_run(const char *s)
{
	size_t n = 0;

	while (isdigit((unsigned char)s[n]) || (s[n] >= 'a' && s[n] <= 'f'))
		n++;
	return n;
}

/* The hash in a file's name, with its sign; 0: there is none. */
static size_t find_hash(const char **out, const char *base)
{
	bool at = strchr(base, '@');

	for (const char *s = base; *s;) {
		size_t sign = s > base + 1 && s[-1] == '-' && s[-2] == '@';
		size_t n = hex_run(s);
		bool whole = (s == base || !isalnum((unsigned char)s[-1])) &&
			     !isalnum((unsigned char)s[n]);

		if (whole && (n == 32 || n == 64 ||
			      (at && n >= 8 && n <= 16 && (s[-1 - (int)sign] == '@')))) {
			*out = s - sign;
			return n + sign;
		}
		s += n ? n : 1;
	}
	return 0;
}

/* "3fa/1c_g2/..." is of group 2. */
static int group_of(const char *name)
{
	const char *base = kvt_path_base(name), *s = base;

	while (s > name && s[-1] != 'g')
		if (--s < base - 12)
			return -1;
	return s > name + 1 && s < base && s[-2] == '_' && isdigit((unsigned char)*s) ?
	       atoi(s) : -1;
}

static enum kvt_status take(struct kvt_file_hashes *names, const char *path,
			    const char *file, struct kvt_error *err)
{
	const char *hash, *base = kvt_path_base(file);
	struct kvt_file_hash *name = &names->name[names->count];
	size_t n;

	if (!strcmp(base, "config.json") && !names->nconfigs++ &&
	    !(names->config = kvt_path_join(path, file, "")))
		return kvt_no_memory(err, path);
	if (!(n = find_hash(&hash, base)))
		return KVT_OK;
	*name = (struct kvt_file_hash){ .group = group_of(file) };
	memcpy(name->hash, hash, n);
	names->count++;
	return KVT_OK;
}

static enum kvt_status sort(struct kvt_file_hashes *names, struct kvt_error *err)
{
	qsort(names->name, (size_t)names->count, sizeof(*names->name), by_hash);
	names->by_end = malloc((size_t)(names->count + 1) *
			       sizeof(struct kvt_file_hash *));
	if (!names->by_end)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < names->count; i++)
		if (strlen(names->name[i].hash) >= 16)
			names->by_end[names->nends++] = &names->name[i];
	qsort(names->by_end, (size_t)names->nends, sizeof(*names->by_end), by_end);
	return KVT_OK;
}

enum kvt_status kvt_file_hashes_read(struct kvt_file_hashes *out, const char *path,
			       struct kvt_error *err)
{
	struct kvt_tree tree;
	enum kvt_status status = kvt_tree_walk(&tree, path, err);

	*out = (struct kvt_file_hashes){ 0 };
	if (status)
		return status;
	out->files = tree.count;
	out->name = malloc((size_t)(tree.count + 1) * sizeof(*out->name));
	if (!out->name)
		status = kvt_no_memory(err, path);
	for (int64_t i = 0; !status && i < tree.count; i++)
		status = take(out, path, tree.file[i].name, err);
	kvt_tree_free(&tree);
	if (!status)
		status = sort(out, err);
	if (status)
		kvt_file_hashes_free(out);
	return status;
}

void kvt_file_hashes_free(struct kvt_file_hashes *names)
{
	free(names->name);
	free(names->by_end);
	free(names->config);
	*names = (struct kvt_file_hashes){ 0 };
}

/* ---- is it there? ------------------------------------------------------- */

const struct kvt_file_hash *
kvt_file_hashes_find(const struct kvt_file_hashes *names, const char *hash, int group)
{
	int64_t low = 0, high = names->count;

	while (low < high) {
		int64_t mid = low + (high - low) / 2;

		if (strcmp(names->name[mid].hash, hash) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < names->count && !strcmp(names->name[low].hash, hash); low++)
		if (group < 0 || names->name[low].group < 0 ||
		    names->name[low].group == group)
			return &names->name[low];
	return NULL;
}

/* Integers: the last 8 bytes, as vLLM has them; or the first ones, as SGLang. */
static const struct kvt_file_hash *
find_short(const struct kvt_file_hashes *names, const char *hex, int group)
{
	int64_t low = 0, high = names->nends;

	while (low < high) {
		int64_t mid = low + (high - low) / 2;

		if (strcmp(end_of(names->by_end[mid]), hex) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < names->nends && !strcmp(end_of(names->by_end[low]), hex); low++)
		if (group < 0 || names->by_end[low]->group < 0 ||
		    names->by_end[low]->group == group)
			return names->by_end[low];
	for (low = 0, high = names->count; low < high;) {
		int64_t mid = low + (high - low) / 2;

		if (strncmp(names->name[mid].hash, hex, 16) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low < names->count && !strncmp(names->name[low].hash, hex, 16) ?
	       &names->name[low] : NULL;
}

const struct kvt_file_hash *
kvt_file_hashes_find_id(const struct kvt_file_hashes *names,
			const struct kvt_block_id *id, int group)
{
	static const char digits[] = "0123456789abcdef";
	char hex[65];

	for (int i = 0; i < id->nbytes; i++) {
		hex[2 * i] = digits[id->bytes[i] >> 4];
		hex[2 * i + 1] = digits[id->bytes[i] & 15];
	}
	hex[2 * id->nbytes] = '\0';
	return id->nbytes == 8 ? find_short(names, hex, group) :
	       kvt_file_hashes_find(names, hex, group);
}
