/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunks.c - files or values of LMCache become chunks
 *
 * In: keys, places and lengths, from files or from a store of Mooncake.  Those of one
 * cache and rank are selected, by what the user asks for; headers are read, or made of
 * what the user says; each becomes a chunk, which store/chunks.c puts in order.
 */
#include "formats/lmcache/lmcache.h"

#include <stdlib.h>
#include <string.h>

#include "formats/store/pages.h"
#include "lib/base/grow.h"

const char *const kvt_lmcache_facts[] = {
	"model", "world", "worker", "dtype", "tags", "group", "total-heads",
	KVT_CHUNKS_ORDER, KVT_CHUNKS_SIZE, "serde", NULL,
};

/* ---- parts --------------------------------------------------------------- */

static const char *path_of(const struct kvt_lmcache *o,
			   const struct kvt_lmcache_part *part)
{
	return o->reader->files.file[part->file].path;
}

enum kvt_status kvt_lmcache_add(struct kvt_lmcache *o, char *text,
				const struct kvt_lmcache_part *part)
{
	int64_t n = o->count;
	enum kvt_status status;
	struct kvt_error why;

	if (!KVT_GROW(&o->part, n)) {
		free(text);
		return kvt_no_memory(o->err, o->path);
	}
	o->part[n] = *part;
	o->part[n].text = text;
	o->count++;
	if ((status = kvt_lmcache_key_parse(&o->part[n].key, text, &why)))
		return kvt_fail(o->err, status, "%.200s: %s", path_of(o, part), why.text);
	return KVT_OK;
}

void kvt_lmcache_free(struct kvt_lmcache *o)
{
	for (int64_t i = 0; i < o->count; i++)
		free(o->part[i].text);
	free(o->part);
	kvt_chunks_free(&o->chunks);
	*o = (struct kvt_lmcache){ .reader = o->reader };
}

/* ---- which of them ------------------------------------------------------- */

/*
 * What a key says under the name of a fact, by its place in kvt_lmcache_facts: the
 * first six choose.  "" if it does not.
 */
static const char *field_text(char out[32], int field, const struct kvt_lmcache_key *key)
{
	const int64_t number = field == 1 ? key->world : field == 2 ? key->worker :
							 key->group;

	out[0] = '\0';
	switch (field) {
	case 0:
		return key->model;
	case 3:
		return key->dtype ? key->dtype->name : "";
	case 4:
		return key->tags;
	default:
		if (number >= 0)
			snprintf(out, 32, "%lld", LL(number));
		return out;
	}
}
enum { NFIELDS = 6 };

static bool is_wanted(const struct kvt_lmcache *o, const struct kvt_lmcache_key *key)
{
	for (int f = 0; f < NFIELDS; f++) {
		const char *want = kvt_fact(o->hints, kvt_lmcache_facts[f]);
		const struct kvt_dtype *dtype = want && f == 3 ? kvt_dtype_find(want) :
								 NULL;
		char text[32];

		if (dtype)
			want = dtype->name;
		if (want && strcmp(want, field_text(text, f, key)))
			return false;
	}
	return true;
}

static enum kvt_status check_alike(const struct kvt_lmcache *o,
				   const struct kvt_lmcache_part *part)
{
	const struct kvt_lmcache_part *first = &o->part[0];

	for (int f = 0; f < NFIELDS; f++) {
		char a[32], b[32];
		const char *x = field_text(a, f, &first->key);
		const char *y = field_text(b, f, &part->key);

		if (strcmp(x, y))
			return kvt_fail(
				o->err, KVT_BAD_INPUT,
				"%.120s: holds chunks of %s '%.60s' and of %s '%.60s'; choose with --set %s=%.60s",
				o->path, kvt_lmcache_facts[f], x, kvt_lmcache_facts[f], y,
				kvt_lmcache_facts[f], x);
	}
	if (part->backend != first->backend)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%.200s and %.200s are not of the same backend of LMCache",
				path_of(o, first), path_of(o, part));
	return KVT_OK;
}

static enum kvt_status select_parts(struct kvt_lmcache *o)
{
	enum kvt_status status = KVT_OK;
	int64_t n = 0;

	for (int64_t i = 0; i < o->count; i++) {
		if (is_wanted(o, &o->part[i].key))
			o->part[n++] = o->part[i];
		else
			free(o->part[i].text);
	}
	if (!n && o->count)
		status = kvt_fail(o->err, KVT_BAD_INPUT,
				  "%s: none of its %lld chunks matches --set",
				  o->path, LL(o->count));
	else if (!n)
		status = kvt_fail(o->err, KVT_BAD_INPUT, "%s: holds no chunk of LMCache",
				  o->path);
	o->count = n;
	for (int64_t i = 1; !status && i < n; i++)
		status = check_alike(o, &o->part[i]);
	return status;
}

/* ---- headers ------------------------------------------------------------- */

static enum kvt_status read_header(struct kvt_lmcache *o, bool *found,
				   struct kvt_lmcache_header *h,
				   const struct kvt_lmcache_part *part)
{
	bool gds = part->backend == KVT_LMCACHE_GDS;
	int64_t nhead = gds ? KVT_LMCACHE_GDS_HEADER : KVT_LMCACHE_FS_HEADER;
	uint8_t head[KVT_LMCACHE_GDS_HEADER];
	enum kvt_status status;

	*found = gds || part->fmt;
	if (part->fmt) {
		*h = (struct kvt_lmcache_header){ .fmt = part->fmt, .narrays = 1,
						  .array = { part->said } };
		return KVT_OK;
	}
	/* local disk and L2 adapters write none */
	if (part->backend == KVT_LMCACHE_DISK || part->backend >= KVT_LMCACHE_OBJECT ||
	    part->key.group >= 0)
		return KVT_OK;
	if (nhead > part->nbytes)
		nhead = part->nbytes;
	if ((status = kvt_file_read(&o->reader->files.file[part->file], head, nhead,
				    part->offset, o->err)))
		return status;
	if (gds)
		return kvt_lmcache_gds_parse(h, head, nhead, part->nbytes,
					     path_of(o, part), o->err);
	return kvt_lmcache_fs_parse(h, found, head, nhead, part->nbytes, path_of(o, part),
				    o->err);
}

/* All headers say the same, but for the number of tokens. */
static enum kvt_status check_header(const struct kvt_lmcache *o,
				    const struct kvt_lmcache_header *h,
				    const struct kvt_lmcache_part *part)
{
	const struct kvt_lmcache_header *first = &o->header;
	bool alike = h->fmt == first->fmt && h->narrays == first->narrays;

	for (int i = 0; alike && i < h->narrays; i++)
		alike = h->array[i].dtype == first->array[i].dtype &&
			h->array[i].layers == first->array[i].layers &&
			h->array[i].width == first->array[i].width;
	if (!alike)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: differs in format, type or shape from the others",
				path_of(o, part));
	/* the name has one type, arrays may have several */
	for (int i = 0; part->key.dtype && i < h->narrays; i++)
		if (part->key.dtype == h->array[i].dtype)
			return KVT_OK;
	if (!part->key.dtype)
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: elements are %s in the name and %s in the header%s",
			path_of(o, part), part->key.dtype->name, h->array[0].dtype->name,
			h->narrays > 1 ? ", where no array has that type" : "");
}

static enum kvt_status take_part(struct kvt_lmcache *o,
				 const struct kvt_lmcache_part *part)
{
	struct kvt_chunk chunk = { part->key.hash, part->key.layer, part->file,
				   part->offset, part->nbytes, -1, NULL, NULL, 0 };
	struct kvt_lmcache_header h = { .data = 0 };
	enum kvt_status status;
	bool found;

	/* without a byte it holds nothing, whatever the others are */
	if (!part->nbytes)
		return kvt_chunks_add(&o->chunks, &chunk, o->err);
	if ((status = read_header(o, &found, &h, part)))
		return status;
	if (!o->first) {
		o->first = part;
		o->header = h;
		o->headers = found;
	}
	if (found != o->headers)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%.200s has a header, %.200s has %lld bytes and none: that one was cut, or is of another store",
				path_of(o, found ? part : o->first),
				path_of(o, found ? o->first : part),
				LL(found ? o->first->nbytes : part->nbytes));
	if ((status = found ? check_header(o, &h, part) :
			      kvt_lmcache_decode(o, &chunk, part)))
		return status;
	if (found) {
		chunk.offset += h.data;
		chunk.tokens = h.array[0].tokens;
	}
	return kvt_chunks_add(&o->chunks, &chunk, o->err);
}

/* ---- all of it ----------------------------------------------------------- */

static int64_t count_layers(const struct kvt_lmcache *o)
{
	int64_t last = -1;

	for (int64_t i = 0; i < o->count; i++)
		if (o->part[i].key.layer > last)
			last = o->part[i].key.layer;
	return last < 0 ? -1 : last + 1;
}

static enum kvt_status take_parts(struct kvt_lmcache *o)
{
	enum kvt_status status = kvt_lmcache_take_serde(o);

	for (int64_t i = 0; !status && i < o->count; i++)
		status = take_part(o, &o->part[i]);
	if (!status && !o->first)
		status = kvt_fail(o->err, KVT_BAD_INPUT, "%s: is empty%s",
				  path_of(o, &o->part[0]),
				  o->count > 1 ? ", and so are all others" : "");
	if (!status && o->headers && kvt_fact(o->hints, "serde"))
		status = kvt_fail(o->err, KVT_BAD_INPUT,
				  "%s: has a header, and coded chunks have none; leave out --set=serde", path_of(o, o->first));
	return status;
}

static enum kvt_status count_tokens(struct kvt_lmcache *o)
{
	struct kvt_group token = o->reader->leaf.snapshot.group[0];
	enum kvt_status status;
	int64_t nbytes;

	o->chunks.bare = !o->headers && !o->recorded && o->serde != KVT_LMCACHE_CHECKSUM;
	/* session.py of its server: it keeps no chunk that is not full */
	if (o->first->key.group >= 0)
		o->chunks.whole = "LMCache's second level keeps whole chunks alone, so "
				  "it was cut, or a serde has coded it; see serde in kvtool-formats(7)";
	o->reader->leaf.unnoticed = kvt_lmcache_unnoticed(o);
	if (o->chunks.chunk[0].layer >= 0)
		token.shape.n[KVT_AXIS_L] = 1;
	if (!o->headers &&
	    ((status = kvt_pages_token_bytes(&nbytes, &token, 1, o->err)) ||
	     (status = kvt_lmcache_check_sealed(o, nbytes))))
		return status;
	return kvt_chunks_count(&o->chunks, &o->reader->files,
				&o->reader->leaf.snapshot.group[0], o->err);
}

enum kvt_status kvt_lmcache_open(struct kvt_lmcache *o)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	enum kvt_status status;
	int64_t layers;

	o->chunks.where = o->path;
	if (o->hints->inspector && (status = kvt_lmcache_check_workers(o)))
		return status;
	if ((status = select_parts(o)) || (status = take_parts(o)) ||
	    (status = kvt_lmcache_groups(o, count_layers(o))) ||
	    (status = count_tokens(o)) ||
	    (status = kvt_chunks_sort(&o->chunks, &layers, o->err)))
		return status;
	o->chunks.named_by = o->part[0].key.group >= 0 ? "lmcache-mp" : "lmcache";
	if (!(s->model = strdup(o->part[0].key.model)))
		return kvt_no_memory(o->err, o->path);
	return kvt_chunks_place(o->reader, &o->chunks, o->hints, o->err);
}
