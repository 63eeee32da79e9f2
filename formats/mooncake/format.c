/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.c - stores of Mooncake on disk, whose values are tensor objects,
 * chunks of LMCache, or bytes that the user describes
 *
 * Files are listed as keys and values (files.c); those of one tenant are kept; the
 * first value tells what they are.  Facts: stores that Mooncake 0.3.13 wrote
 * (testdata/engines), and its sources of 2026-08 at 3b5a5941.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/lmcache/lmcache.h"
#include "formats/describe/describe.h"
#include "formats/mooncake/mooncake.h"
#include "formats/store/store.h"

/* Those of LMCache first: its chunks may be what is in a store. */
static const char *const facts[] = {
	"model", "world", "worker", "dtype", "tags", "group", "total-heads",
	KVT_CHUNKS_ORDER, KVT_CHUNKS_SIZE, "serde", "tenant", "keys", "tp-rank",
	"rank", "pool", NULL,
};

static const char *path_of(const struct kvt_mooncake *o,
			   const struct kvt_mooncake_value *v)
{
	return o->reader->files.file[v->file].path;
}

/* ---- which values -------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
	const struct kvt_mooncake_value *x = a, *y = b;
	int order = strcmp(x->tenant, y->tenant);

	if (!order)
		order = strcmp(x->key, y->key);
	/* the newest of a key first */
	return order ? order : x->seq > y->seq ? -1 : x->seq < y->seq;
}

/* A record may lie there twice while a reader of the store held the old one. */
static enum kvt_status drop_old(struct kvt_mooncake *o)
{
	struct kvt_mooncake_values *v = &o->values;
	int64_t n = 0;

	if (v->count)
		qsort(v->value, (size_t)v->count, sizeof(*v->value), by_key);
	for (int64_t i = 0; i < v->count; i++) {
		struct kvt_mooncake_value *value = &v->value[i];

		if (!n || strcmp(value->tenant, v->value[n - 1].tenant) ||
		    strcmp(value->key, v->value[n - 1].key)) {
			v->value[n++] = *value;
			continue;
		}
		if (value->seq == v->value[n - 1].seq) {
			enum kvt_status status = kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: key %.100s occurs twice", path_of(o, value),
					kvt_mooncake_shown(value));

			/* those after it would be lost */
			memmove(&v->value[n], value,
				(size_t)(v->count - i) * sizeof(*value));
			v->count -= i - n;
			return status;
		}
		free(value->text);
	}
	v->count = n;
	return KVT_OK;
}

/*
 * Tenants may use the same keys for different caches: one of them is read.  Those
 * that have no such key do not matter.
 */
static enum kvt_status select_keys(struct kvt_mooncake *o)
{
	struct kvt_store_choice tenant = { .key = "tenant", .what = "keys of tenants" };
	const char *prefix = kvt_fact(o->hints, "keys");
	int64_t n = 0, all = o->values.count;
	enum kvt_status status = KVT_OK;

	tenant.asked = kvt_fact(o->hints, "tenant");
	if (tenant.asked && all && !o->recorded)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: its files hold only values, without a tenant; leave out --set tenant",
				o->path);
	for (int64_t i = 0; i < all; i++) {
		struct kvt_mooncake_value *value = &o->values.value[i];
		struct kvt_name_part here = { value->tenant, strlen(value->tenant) };
		bool skip = prefix && strncmp(value->key, prefix, strlen(prefix));

		/* a file without a byte says no tenant */
		if (!skip && !status && (*value->tenant || !o->recorded))
			status = kvt_store_choose(&skip, &tenant, &here, o->path, o->err);
		if (skip)
			free(value->text);
		else
			o->values.value[n++] = *value;
	}
	o->values.count = n;
	if (status)
		return status;
	if (all && !n && prefix)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%.120s: none of its %lld keys %s%.60s%sbegins with '%.60s'",
				o->path, LL(all), tenant.asked ? "is of tenant '" : "",
				tenant.asked ? tenant.asked : "",
				tenant.asked ? "' and " : "", prefix);
	if ((status = kvt_store_chosen(&tenant, o->path, o->err)))
		return status;
	if (!n)
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: holds no value", o->path);
	for (int64_t i = 0; i < n; i++)
		if (!kvt_mooncake_has_text(&o->values.value[i]))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: a key of %lld bytes is not printable, and requests are named by keys; leave it out with --set keys=PREFIX",
					path_of(o, &o->values.value[i]),
					LL(o->values.value[i].ntext));
	return KVT_OK;
}

/* ---- what values are ----------------------------------------------------- */

static bool is_lmcache_key(const char *key)
{
	struct kvt_lmcache_key parsed;
	char *text = strdup(key);
	bool good = text && !kvt_lmcache_key_parse(&parsed, text, NULL);

	free(text);
	return good;
}

enum kind { CHUNK, TENSOR, BYTES };

static enum kvt_status find_kind(enum kind *out, const struct kvt_mooncake *o,
				 const struct kvt_mooncake_value *v)
{
	uint8_t magic[4] = { 0 };
	enum kvt_status status = KVT_OK;

	*out = CHUNK;
	if (is_lmcache_key(v->key))
		return KVT_OK;
	if (v->nbytes >= (int64_t)sizeof(magic))
		status = kvt_file_read(&o->reader->files.file[v->file], magic,
				       sizeof(magic), v->offset, o->err);
	*out = kvt_mooncake_is_tensor(magic, sizeof(magic)) ? TENSOR : BYTES;
	return status;
}

/* One reading fits all values that have a byte, or none is taken. */
static enum kvt_status same_kind(enum kind *out, struct kvt_mooncake *o)
{
	static const char *const names[] = {
		"a chunk of LMCache", "a tensor",
		"neither a tensor nor a chunk of LMCache",
	};
	const struct kvt_mooncake_value *v = o->values.value;
	enum kvt_status status;

	while (o->first < o->values.count && !v[o->first].nbytes)
		o->first++;
	if (o->first == o->values.count)
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: value of %.100s is empty%s",
				path_of(o, v), v->key, o->first > 1 ?
				", and so are all others" : "");
	status = find_kind(out, o, &v[o->first]);
	for (int64_t i = o->first + 1; !status && i < o->values.count; i++) {
		enum kind here;

		if (!v[i].nbytes)
			continue;
		if ((status = find_kind(&here, o, &v[i])))
			break;
		if (here != *out)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%.160s: value of %.100s is %s, unlike that of %.100s; choose with --set keys=PREFIX",
					path_of(o, &v[i]), v[i].key, names[here],
					v[o->first].key);
	}
	return status;
}

/* ---- chunks of LMCache --------------------------------------------------- */

static enum kvt_status open_lmcache(struct kvt_mooncake *o)
{
	struct kvt_lmcache l = { .reader = o->reader, .path = o->path, .hints = o->hints,
				 .err = o->err, .recorded = o->recorded };
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < o->values.count; i++) {
		const struct kvt_mooncake_value *v = &o->values.value[i];
		struct kvt_lmcache_part part = { .backend = KVT_LMCACHE_FS,
						 .file = v->file,
						 .offset = v->offset,
						 .nbytes = v->nbytes };
		char *text = strdup(v->key);

		status = text ? kvt_lmcache_add(&l, text, &part) :
				kvt_no_memory(o->err, o->path);
	}
	if (!status)
		status = kvt_lmcache_open(&l);
	kvt_lmcache_free(&l);
	return status;
}

/* ---- tensors ------------------------------------------------------------- */

static int64_t tp_rank(const struct kvt_mooncake_tensor *t)
{
	const struct kvt_mooncake_axis *axis = kvt_mooncake_axis(t, KVT_MOONCAKE_TP);

	return axis ? axis->rank : 0;
}

/* All say the same, but for the number of tokens. */
static enum kvt_status check_alike(const struct kvt_mooncake *o,
				   const struct kvt_mooncake_tensor *t,
				   const struct kvt_group *group,
				   const struct kvt_mooncake_value *v)
{
	const struct kvt_mooncake_tensor *first = &o->tensor;
	bool alike = t->dtype == first->dtype && t->rank == first->rank &&
		     t->naxes == first->naxes;
	int64_t here = kvt_mooncake_tokens(t, group);
	int64_t there = kvt_mooncake_tokens(first, group);
	int differ = 0;

	for (int i = 0; alike && i < t->naxes; i++)
		alike = t->axis[i].kind == first->axis[i].kind &&
			t->axis[i].rank == first->axis[i].rank &&
			t->axis[i].count == first->axis[i].count &&
			t->axis[i].dim == first->axis[i].dim;
	for (int i = 0; alike && i < t->rank; i++)
		differ += t->local[i] != first->local[i];
	if (alike && differ <= (here != there))
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: tensor %.100s differs in type, shape or shard from %.100s; choose with --set keys=PREFIX",
			path_of(o, v), v->key, o->values.value[o->first].key);
}

/* Python names the shards of a tensor KEY_tp_0, KEY_tp_1, ... */
static void cut_rank(struct kvt_mooncake_value *v, const struct kvt_mooncake_tensor *t)
{
	char ending[32];

	if (!kvt_mooncake_axis(t, KVT_MOONCAKE_TP))
		return;
	snprintf(ending, sizeof(ending), "_tp_%lld", LL(tp_rank(t)));
	if (kvt_path_ends(v->key, ending))
		v->key[strlen(v->key) - strlen(ending)] = '\0';
}

static enum kvt_status read_tensor(struct kvt_mooncake *o, struct kvt_mooncake_tensor *t,
				   const struct kvt_mooncake_value *v)
{
	int64_t nhead = v->nbytes < KVT_MOONCAKE_HEADER ? v->nbytes : KVT_MOONCAKE_HEADER;
	uint8_t head[KVT_MOONCAKE_HEADER];
	enum kvt_status status = kvt_file_read(&o->reader->files.file[v->file], head,
					       nhead, v->offset, o->err);

	return status ? status : kvt_mooncake_tensor_parse(t, head, nhead, v->nbytes,
							   v->key, o->err);
}

/* The rank that the user wants, or that all have: -1 at first. */
static enum kvt_status choose_rank(struct kvt_mooncake *o, int64_t *rank,
				   const struct kvt_mooncake_tensor *t,
				   const struct kvt_mooncake_value *v)
{
	if (*rank < 0)
		*rank = tp_rank(t);
	if (*rank == tp_rank(t))
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: holds tensors of TP ranks %lld and %lld (%.100s); choose with --set tp-rank=%lld",
			o->path, LL(*rank), LL(tp_rank(t)), v->key, LL(*rank));
}

/* A value without a byte: of which rank, nobody says. */
static enum kvt_status add_empty(struct kvt_mooncake *o,
				 const struct kvt_mooncake_value *v)
{
	return kvt_chunks_add(&o->chunks, &(struct kvt_chunk){ v->key, -1, v->file,
			      v->offset, 0, 0, NULL, NULL, 0 }, o->err);
}

/* One pass to choose the rank, before anything is compared. */
static enum kvt_status take_tensors(struct kvt_mooncake *o, struct kvt_group *group)
{
	int64_t asked = -1, rank;
	enum kvt_status status;

	if ((status = kvt_fact_int(&asked, o->hints, "tp-rank", 0, INT32_MAX, o->err)))
		return status;
	rank = asked;
	for (int64_t i = 0; i < o->values.count; i++) {
		struct kvt_mooncake_value *v = &o->values.value[i];
		struct kvt_mooncake_tensor t;

		if (!v->nbytes) {
			if ((status = add_empty(o, v)))
				return status;
			continue;
		}
		if ((status = read_tensor(o, &t, v)))
			return status;
		if (asked >= 0 && tp_rank(&t) != asked)
			continue;
		if ((status = choose_rank(o, &rank, &t, v)))
			return status;
		if (!o->tensor.dtype) {
			o->tensor = t;
			if ((status = kvt_mooncake_group(o, group, v->key)))
				return status;
		}
		if ((status = check_alike(o, &t, group, v)))
			return status;
		cut_rank(v, &t);
		if ((status = kvt_chunks_add(&o->chunks, &(struct kvt_chunk){
				v->key, -1, v->file, v->offset + t.data, t.nbytes,
				kvt_mooncake_tokens(&t, group), NULL, NULL, 0 }, o->err)))
			return status;
	}
	if (!o->tensor.dtype)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: holds no tensor of TP rank %lld", o->path,
				LL(asked));
	return kvt_chunks_finish(group, &o->reader->leaf.snapshot.parallel, o->hints,
				 o->path, o->err);
}

/* ---- bytes --------------------------------------------------------------- */

/* Are they pages of SGLang, all of them? */
static enum kvt_status find_pages(bool *out, const struct kvt_mooncake *o)
{
	const struct kvt_mooncake_value *v = o->values.value;
	int64_t n = 0;

	for (int64_t i = 0; i < o->values.count; i++)
		n += kvt_mooncake_is_page(&v[i]);
	*out = n == o->values.count;
	return !n || *out ? KVT_OK :
	       kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: %lld of its %lld values are pages of SGLang (HASH_RANK_k); choose with --set keys=PREFIX",
			o->path, LL(n), LL(o->values.count));
}

static enum kvt_status add_bytes(struct kvt_mooncake *o, struct kvt_group *group)
{
	enum kvt_status status;

	group->dtype = kvt_hint_dtype(NULL, o->hints, group->id);
	if ((status = kvt_chunks_asked_layout(group, false, o->hints, o->err)) ||
	    (status = kvt_chunks_said(group, -1, o->hints,
				      o->values.value[o->first].key, o->err)))
		return status;
	if (group->shape.n[KVT_AXIS_K] == 1)
		group->kind = KVT_MLA;
	for (int64_t i = 0; !status && i < o->values.count; i++) {
		const struct kvt_mooncake_value *v = &o->values.value[i];

		status = kvt_chunks_add(&o->chunks, &(struct kvt_chunk){
				v->key, -1, v->file, v->offset, v->nbytes, -1,
				NULL, NULL, 0 }, o->err);
	}
	return status;
}

static enum kvt_status take_bytes(struct kvt_mooncake *o, struct kvt_group *group)
{
	enum kvt_status status;
	bool pages;

	if ((status = find_pages(&pages, o)) ||
	    (status = pages ? kvt_mooncake_pages(o, group) : add_bytes(o, group)) ||
	    (status = kvt_chunks_finish(group, &o->reader->leaf.snapshot.parallel,
					o->hints, o->path, o->err)))
		return status;
	o->chunks.bare = !o->recorded;
	if (o->chunks.bare)
		o->reader->leaf.unnoticed = KVT_CHUNKS_UNNOTICED;
	return kvt_chunks_count(&o->chunks, &o->reader->files, group, o->err);
}

/* ---- the format ---------------------------------------------------------- */

static enum kvt_status open_chunks(struct kvt_mooncake *o, enum kind kind)
{
	struct kvt_group *group;
	enum kvt_status status;
	int64_t layers;

	o->chunks.where = o->path;
	if ((status = kvt_manifest_add_group(&group, &o->reader->leaf.snapshot, "g0",
					     o->path, o->err)) ||
	    (status = kind == TENSOR ? take_tensors(o, group) : take_bytes(o, group)) ||
	    (status = kvt_chunks_sort(&o->chunks, &layers, o->err)))
		return status;
	return kvt_chunks_place(o->reader, &o->chunks, o->hints, o->err);
}

/* A value by itself; what only a folder explains is none. */
static enum kvt_status take_single(struct kvt_mooncake *o)
{
	const char *name = kvt_path_base(o->path), *ending = strrchr(name, '.');
	enum kvt_status status;
	bool entry = false;
	int file;

	if (!strncmp(name, "kv_cache.", 9) || (ending && (!strcmp(ending, ".bucket") ||
							  !strcmp(ending, ".meta"))))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: is one of two files of a store; give their folder",
				o->path);
	if ((status = kvt_files_open(&o->reader->files, &file, o->path, o->err)))
		return status;
	status = kvt_mooncake_value(o, &entry, file, name);
	o->recorded = entry;
	return status;
}

static enum kvt_status collect(struct kvt_mooncake *o)
{
	struct kvt_tree tree;
	enum kvt_status status;

	if (!kvt_is_folder(o->path))
		return take_single(o);
	if ((status = kvt_tree_walk(&tree, o->path, o->err)))
		return status;
	status = kvt_mooncake_collect(o, &tree);
	kvt_tree_free(&tree);
	return status;
}

static enum kvt_status mooncake_open(struct kvt_reader *reader, const char *path,
				     const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_mooncake o = { .reader = reader, .path = path, .err = err,
				  .hints = hints };
	enum kvt_status status;
	enum kind kind;

	if (!(status = collect(&o)) && !(status = drop_old(&o)) &&
	    !(status = select_keys(&o)) && !(status = same_kind(&kind, &o)))
		status = kind == CHUNK ? open_lmcache(&o) : open_chunks(&o, kind);
	kvt_mooncake_values_free(&o.values);
	kvt_chunks_free(&o.chunks);
	return status;
}

/* One key a file: <a to p>/<a to p>/<key>, in some folder. */
static bool is_hashed(const char *name, const char *slash)
{
	return slash && slash - name >= 3 && slash[-2] == '/' && slash[-1] >= 'a' &&
	       slash[-1] <= 'p' && slash[-3] >= 'a' && slash[-3] <= 'p' &&
	       (slash - name == 3 || slash[-4] == '/');
}

static bool is_name(const char *name)
{
	const char *slash = strrchr(name, '/'), *base = kvt_path_base(name);

	return !strcmp(base, "kv_cache.meta") || !strcmp(base, "kv_cache.data") ||
	       is_hashed(name, slash) || kvt_path_ends(base, ".bucket");
}

static bool mooncake_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	(void)path;
	return head && kvt_mooncake_is_tensor(head, nhead);
}

const struct kvt_format kvt_mooncake_format = {
	.info = { "mooncake", "stores of Mooncake: files of one key, buckets, records",
		  .reads = true, .writes = false },
	.facts = facts,
	.checks = "keys, headers and checksums where there are any, lengths",
	.takes = KVT_TAKES_PROMPT,
	.in_layout = kvt_chunks_in_page_layout,
	.probe = mooncake_probe,
	.holds = is_name,
	.open = mooncake_open,
};
