/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fields.c - all of a state of llama.cpp but its rows: tokens, cells, types, lengths
 *
 * In what order is drawn in llama.h.  Fields are few and gathered in memory, with the
 * place in the file where each run of them goes; between the runs the rows' room is left
 * out.  What a field says of versions and types is the template's, byte for byte.
 */
#include "formats/llama/write.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/little_endian.h"

enum { GGSN = 0x6767736e, GGSQ = 0x67677371 };

/* ---- fields ------------------------------------------------------------- */

/* Bytes that stand together; rows are between them. */
struct segment {
	int64_t at;
	size_t from, n;
};

struct fields {
	uint8_t *byte;
	size_t n, room;
	struct segment *segment;
	size_t nsegments, more;
	int64_t at;			/* of the file */
	bool failed, apart;		/* no memory; a new segment begins */
};

static bool make_room(void **list, size_t *room, size_t n, size_t size)
{
	void *more;

	if (n <= *room)
		return true;
	*room = 2 * n + 64;
	if (!(more = realloc(*list, *room * size)))
		return false;
	*list = more;
	return true;
}

static void put(struct fields *f, const void *bytes, size_t n)
{
	if (f->failed || !make_room((void **)&f->byte, &f->room, f->n + n, 1) ||
	    !make_room((void **)&f->segment, &f->more, f->nsegments + 1,
		       sizeof(*f->segment))) {
		f->failed = true;
		return;
	}
	if (!f->nsegments || f->apart)
		f->segment[f->nsegments++] = (struct segment){ f->at, f->n, 0 };
	f->apart = false;
	if (n)
		memcpy(f->byte + f->n, bytes, n);
	f->n += n;
	f->at += (int64_t)n;
	f->segment[f->nsegments - 1].n += n;
}

static void put_number(struct fields *f, uint64_t value, size_t n)
{
	uint8_t bytes[8];

	kvt_put_le(bytes, value, (int)n);
	put(f, bytes, n);
}

static void put32(struct fields *f, int64_t value)
{
	put_number(f, (uint64_t)value, 4);
}

/* Rows, of which only the length is known. */
static void leave(struct fields *f, int64_t n, int64_t size)
{
	int64_t nbytes;

	if (__builtin_mul_overflow(n, size, &nbytes) ||
	    __builtin_add_overflow(f->at, nbytes, &f->at))
		f->failed = true;
	f->apart = true;
}

/* Some bytes of the template, as they are. */
static enum kvt_status put_again(struct fields *f, const struct kvt_llama_writing *w,
				 int64_t at, int64_t nbytes)
{
	enum kvt_status status = KVT_OK;
	uint8_t bytes[4096];

	while (!status && nbytes) {
		int64_t n = nbytes < (int64_t)sizeof(bytes) ? nbytes :
			    (int64_t)sizeof(bytes);

		status = kvt_file_read(&w->files.file[w->file], bytes, n, at, w->err);
		if (!status)
			put(f, bytes, (size_t)n);
		at += n;
		nbytes -= n;
	}
	return status;
}

/* ---- the beginning ------------------------------------------------------ */

/* One for each position, of the only request; or those of the template. */
static enum kvt_status put_tokens(struct fields *f, const struct kvt_llama_writing *w)
{
	const struct kvt_request *q = w->snapshot->request;

	if (w->snapshot->nrequests == 1 && !q->first_token &&
	    q->ntoken_ids == q->ntokens) {
		put32(f, q->ntokens);
		for (int64_t i = 0; i < q->ntokens; i++)
			put32(f, q->token_ids[i]);
		return KVT_OK;
	}
	if (!w->writer->options.as_is || w->foreign) {
		put32(f, 0);
		return KVT_OK;
	}
	put32(f, w->like.ntokens);
	return put_again(f, w, w->like.tokens_at, 4 * w->like.ntokens);
}

/* Of a state of all sequences one of a single one can be made: they go by pairs. */
static enum kvt_status put_head(struct fields *f, const struct kvt_llama_writing *w)
{
	const struct kvt_llama_state *like = &w->like;
	enum kvt_status status;

	put_number(f, w->whole ? GGSN : GGSQ, 4);
	put32(f, w->whole || !like->whole ? like->version : like->version - 7);
	if ((status = put_tokens(f, w)) || !w->whole)
		return status;
	put32(f, (int64_t)strlen(like->arch));
	put(f, like->arch, strlen(like->arch));
	/* no outputs: of ids, logits and embeddings none */
	if (w->made && like->outputs) {
		put32(f, 0);
		put_number(f, 0, 8);
		put_number(f, 0, 8);
	}
	return put_again(f, w, like->outputs_at, like->memory_at - like->outputs_at);
}

/* ---- caches ------------------------------------------------------------- */

bool kvt_llama_same_cell(const struct kvt_llama_held *a,
			 const struct kvt_llama_held *b)
{
	return a->stream == b->stream && a->order == b->order;
}

int64_t kvt_llama_count_cells(const struct kvt_llama_written *c, int64_t i,
			      int64_t stream)
{
	int64_t n = 0;

	for (int64_t first = i; i < c->nheld && c->held[i].stream == stream; i++)
		n += i == first || !kvt_llama_same_cell(&c->held[i], &c->held[i - 1]);
	return n;
}

/* Tokens that have ids are no image. */
static bool has_text(const struct kvt_llama_writing *w)
{
	bool text = !w->foreign;

	for (int64_t r = 0; text && r < w->snapshot->nrequests; r++)
		text = w->snapshot->request[r].ntoken_ids ==
		       w->snapshot->request[r].ntokens;
	return text;
}

/* What a cell of M-RoPE has besides; of what is no text it is the template's. */
static enum kvt_status put_extra(struct fields *f, const struct kvt_llama_writing *w,
				 int cache, const struct kvt_llama_held *h)
{
	const struct kvt_llama_cache *like = &w->like.cache[cache];
	const struct kvt_llama_stream *s = &like->stream[h->stream];
	int64_t at = s->cells_at;

	if (!w->like.extra)
		return KVT_OK;
	/* of text all of its positions are the same, and newer builds add the token */
	if (has_text(w)) {
		put32(f, h->position);
		put32(f, h->position);
		if (w->like.extra > 8)
			put32(f, w->snapshot->request[h->request].token_ids[h->at]);
		return KVT_OK;
	}
	/* cells before it have a sequence each, or several */
	if (like->nstreams == 1 && like->nmembers == s->ncells)
		at += 4 * h->like;
	else
		for (int64_t i = 0; i < like->nmembers; i++)
			at += 4 * (like->member[i].stream == h->stream &&
				   like->member[i].cell < h->like);
	at += h->like * (8 + w->like.extra) + 8;
	return put_again(f, w, at, w->like.extra);
}

static enum kvt_status put_cells(struct fields *f, const struct kvt_llama_writing *w,
				 int cache, int64_t i, int64_t stream)
{
	const struct kvt_llama_held *h = w->cache[cache].held;
	int64_t end = w->cache[cache].nheld;
	enum kvt_status status = KVT_OK;

	for (int64_t n; !status && i < end && h[i].stream == stream; i += n) {
		for (n = 1; i + n < end && kvt_llama_same_cell(&h[i], &h[i + n]);)
			n++;
		put32(f, h[i].position);
		put32(f, n);
		status = put_extra(f, w, cache, &h[i]);
		for (int64_t k = 0; k < n; k++)
			put32(f, h[i + k].sequence);
	}
	return status;
}

static void put_rows(struct fields *f, struct kvt_llama_writing *w, int cache, int kv,
		     int64_t *at, int64_t ncells)
{
	const struct kvt_llama_written *c = &w->cache[cache];
	const struct kvt_llama_rows *rows;

	for (int64_t l = 0; l < c->like->nlayers; l++) {
		rows = kvt_llama_rows_like(w, cache, kv, l);
		put32(f, rows->type);
		if (rows->elem) {
			put32(f, rows->elem);
			put32(f, rows->nbytes / rows->elem);
		} else {
			put_number(f, (uint64_t)rows->nbytes, 8);
		}
		at[l] = f->at;
		leave(f, ncells, rows->nbytes);
	}
}

/* It is said also of what has no layers. */
static bool is_transposed(const struct kvt_llama_cache *like)
{
	bool transposed = false;

	for (int64_t i = 0; i < like->nstreams; i++)
		transposed |= like->stream[i].transposed;
	return transposed;
}

static enum kvt_status put_cache(struct fields *f, struct kvt_llama_writing *w, int cache)
{
	struct kvt_llama_written *c = &w->cache[cache];
	const struct kvt_llama_cache *like = &w->like.cache[cache];
	int64_t layers = c->like ? c->like->nlayers : 0, i = 0;
	int64_t streams = like->nstreams;
	enum kvt_status status = KVT_OK;

	c->at = calloc((size_t)(2 * streams * layers + 1), sizeof(*c->at));
	if (!c->at)
		return kvt_no_memory(w->err, NULL);
	if (w->like.streams)
		put32(f, streams);
	for (int64_t s = 0; !status && s < streams; s++) {
		int64_t n = kvt_llama_count_cells(c, i, s), *at = &c->at[2 * s * layers];
		int64_t first = i;

		while (i < c->nheld && c->held[i].stream == s)
			i++;
		put32(f, n);
		if (!n)
			continue;
		status = put_cells(f, w, cache, first, s);
		put32(f, is_transposed(like));
		put32(f, layers);
		for (int kv = 0; layers && kv < 1 + c->like->has_values; kv++)
			put_rows(f, w, cache, kv, at + kv * layers, n);
	}
	return status;
}

/* ---- states ------------------------------------------------------------- */

static enum kvt_status put_states(struct fields *f, struct kvt_llama_writing *w)
{
	struct kvt_llama_kept *k = &w->states;
	const struct kvt_llama_states *like = &w->like.states;

	if (!like->ncells)
		return KVT_OK;
	put32(f, k->ncells);
	for (int64_t cell = 0; cell < k->ncells; cell++) {
		int64_t n = 0, end = 0;

		for (int64_t r = 0; r < w->snapshot->nrequests; r++) {
			const struct kvt_request *q = &w->snapshot->request[r];

			if (k->cell[r] != cell)
				continue;
			if (n++ && q->first_token + q->ntokens != end)
				return kvt_fail(w->err, KVT_BAD_INPUT,
						"request %.100s shares its recurrent state with one of another length",
						q->id);
			end = q->first_token + q->ntokens;
		}
		put32(f, end - 1);
		put32(f, w->whole ? n : 0);
		for (int64_t r = 0; w->whole && r < w->snapshot->nrequests; r++)
			if (k->cell[r] == cell)
				put32(f, w->sequence[r]);
	}
	put32(f, 0);
	put32(f, like->listed);
	for (int64_t l = 0; l < 2 * like->nlayers; l++) {
		int which = l >= like->nlayers;

		put32(f, 0);
		put_number(f, (uint64_t)like->row[which].nbytes, 8);
		if (l == which * like->nlayers)
			k->at[which] = f->at;
		leave(f, k->ncells, like->row[which].nbytes);
		k->step[which] = 12 + k->ncells * like->row[which].nbytes;
	}
	return KVT_OK;
}

enum kvt_status kvt_llama_write_fields(struct kvt_llama_writing *w, int *file)
{
	struct kvt_writer *writer = w->writer;
	struct fields f = { .n = 0 };
	enum kvt_status status = put_head(&f, w);

	for (int i = 0; !status && i < w->like.ncaches; i++)
		status = put_cache(&f, w, i);
	if (!status)
		status = put_states(&f, w);
	if (!status && f.failed)
		status = kvt_no_memory(w->err, NULL);
	if (!status)
		status = kvt_files_create(&writer->files, file, writer->temporary, f.at,
					  w->err);
	for (size_t i = 0; !status && i < f.nsegments; i++)
		status = kvt_file_write(&writer->files.file[*file],
					f.byte + f.segment[i].from,
					(int64_t)f.segment[i].n, f.segment[i].at, w->err);
	free(f.byte);
	free(f.segment);
	return status;
}
