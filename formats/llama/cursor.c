/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cursor.c - cells, rows, outputs and states of a state file of llama.cpp
 *
 * They are drawn in llama.h.  In: a place, and the way to read there (streams, bytes
 * that a cell has besides, whether cells name their sequences).  Out: where rows are,
 * and who holds which cell; false where the file cannot be read so.  Rows are skipped:
 * only their places are kept, so time goes with cells and layers, and reading ahead is
 * 64 KiB.
 *
 * Nothing is allocated here, and no count is believed beyond the bytes that are left;
 * where rows would reach past the end the farthest such place is kept, for cut.c.
 */
#include "formats/llama/llama.h"

#include <string.h>

#include "lib/base/little_endian.h"

enum { MAX_LAYERS = 4096, MAX_TYPE = 1023 };

/* ---- numbers of a file, in order ---------------------------------------- */

bool kvt_llama_take(uint64_t *out, struct kvt_llama_cursor *c, int n)
{
	if (c->status || c->file->nbytes - c->at < n)
		return false;
	if (c->at < c->begin || c->at + n > c->end) {
		c->begin = c->at;
		c->end = c->file->nbytes - c->at < KVT_LLAMA_WINDOW ? c->file->nbytes :
							    c->at + KVT_LLAMA_WINDOW;
		c->status = kvt_file_read(c->file, c->window, c->end - c->begin, c->begin,
					  c->err);
		if (c->status)
			return false;
	}
	*out = kvt_le(c->window + (c->at - c->begin), n);
	c->at += n;
	return true;
}

bool kvt_llama_count(int64_t *out, struct kvt_llama_cursor *c, int64_t most)
{
	uint64_t n;

	if (!kvt_llama_take(&n, c, 4) || n > (uint64_t)most)
		return false;
	*out = (int64_t)n;
	return true;
}

bool kvt_llama_skip(struct kvt_llama_cursor *c, int64_t n, int64_t size)
{
	int64_t nbytes;

	if (n < 0 || __builtin_mul_overflow(n, size, &nbytes) ||
	    nbytes > c->file->nbytes - c->at)
		return false;
	c->at += nbytes;
	return true;
}

/* ---- a cache ------------------------------------------------------------ */

static void add_member(struct kvt_llama_members *out, struct kvt_llama_member member)
{
	if (out->member)
		out->member[out->count] = member;
	out->count++;
}

static bool read_cell(struct kvt_llama_cursor *c, uint32_t stream, int64_t cell,
		      struct kvt_llama_members *out)
{
	struct kvt_llama_member member = { KVT_LLAMA_OWN, 0, stream, (uint32_t)cell };
	int64_t position, n, sequence;

	if (!kvt_llama_count(&position, c, INT32_MAX) ||
	    !kvt_llama_count(&n, c, KVT_LLAMA_SEQUENCES) ||
	    !kvt_llama_skip(c, 1, c->extra))
		return false;
	member.position = (int32_t)position;
	if (!n && !c->whole)
		add_member(out, member);
	for (int64_t i = 0; i < n; i++) {
		if (!kvt_llama_count(&sequence, c, KVT_LLAMA_SEQUENCES))
			return false;
		member.sequence = (int32_t)sequence;
		add_member(out, member);
	}
	return true;
}

/*
 * Rows of a type that caches have, of which the file has a part at most: 'n' of them, or,
 * where values are transposed, one of each element.
 */
static void note_cut(struct kvt_llama_cursor *c, struct kvt_llama_cut cut, int64_t type,
		     int64_t n, struct kvt_llama_rows rows)
{
	int64_t nbytes, row = rows.nbytes, left = c->file->nbytes - cut.at;

	if (!kvt_ggml_type((int)type) || cut.at <= c->cut.at ||
	    __builtin_mul_overflow(n, row, &nbytes) ||
	    __builtin_add_overflow(cut.at, nbytes, &cut.end))
		return;
	cut.turned = rows.elem > 0;
	cut.of = cut.turned ? row / rows.elem : n;
	cut.there = left / (nbytes / cut.of);
	c->cut = cut;
}

/* The list of cells, which each name a sequence, and the end of the file behind some. */
static void note_cells(struct kvt_llama_cursor *c, int64_t at, int64_t there, int64_t of)
{
	if (at > c->cut.at && there)
		c->cut = (struct kvt_llama_cut){ .at = at, .part = KVT_LLAMA_CELLS,
						 .there = there, .of = of };
}

static void add_rows(struct kvt_llama_members *out, struct kvt_llama_rows rows)
{
	if (out->row)
		out->row[out->nrows] = rows;
	out->nrows++;
}

/* The rows of all layers. */
static bool read_rows(struct kvt_llama_cursor *c, const struct kvt_llama_stream *s,
		      bool values, struct kvt_llama_members *out)
{
	bool transposed = values && s->transposed;

	for (int64_t l = 0; l < s->nlayers; l++) {
		uint64_t nbytes, elem = 0;
		int64_t type, width;

		if (!kvt_llama_count(&type, c, MAX_TYPE))
			return false;
		if (!transposed &&
		    (!kvt_llama_take(&nbytes, c, 8) || !nbytes || nbytes > INT64_MAX))
			return false;
		/* two numbers of 32 bits: no overflow */
		if (transposed && (!kvt_llama_take(&elem, c, 4) || !elem ||
				   !kvt_llama_count(&width, c, INT32_MAX) || !width ||
				   !(nbytes = elem * (uint64_t)width)))
			return false;
		add_rows(out, (struct kvt_llama_rows){ (int)type, (int64_t)nbytes, c->at,
						       (int64_t)elem });
		if (!kvt_llama_skip(c, c->hollow ? 0 : s->ncells, (int64_t)nbytes)) {
			note_cut(c, (struct kvt_llama_cut){
					 .at = c->at, .layer = l, .nlayers = s->nlayers,
					 .part = values ? KVT_LLAMA_VALUES :
							  KVT_LLAMA_KEYS },
				 type, s->ncells, (struct kvt_llama_rows){
					 .nbytes = (int64_t)nbytes,
					 .elem = (int64_t)elem });
			return false;
		}
	}
	return true;
}

static bool read_stream(struct kvt_llama_stream *s, struct kvt_llama_cursor *c,
			uint32_t number, bool values, bool *asked,
			struct kvt_llama_members *members)
{
	int64_t transposed, before = members->count;

	*s = (struct kvt_llama_stream){ 0 };
	if (!kvt_llama_count(&s->ncells, c, UINT32_MAX))
		return false;
	if (!s->ncells)
		return true;
	s->cells_at = c->at;
	for (int64_t i = 0; i < s->ncells; i++)
		if (!read_cell(c, number, i, members)) {
			if (c->file->nbytes - c->at < 12 && members->count - before >= i)
				note_cells(c, s->cells_at, i, s->ncells);
			return false;
		}
	s->first_row = members->nrows;
	if (!kvt_llama_count(&transposed, c, 1) || !kvt_llama_count(&s->nlayers, c,
								    MAX_LAYERS) ||
	    !read_rows(c, s, false, members))
		return false;
	s->transposed = transposed;
	s->has_values = values && s->nlayers;
	*asked |= s->nlayers > 0;
	return !values || read_rows(c, s, true, members);
}

bool kvt_llama_streams(struct kvt_llama_cursor *c, int64_t n, bool values, bool *asked,
			 struct kvt_llama_stream *out, struct kvt_llama_members *members)
{
	struct kvt_llama_stream one;

	for (int64_t i = 0; i < n; i++)
		if (!read_stream(out ? &out[i] : &one, c, (uint32_t)i, values, asked,
				 members))
			return false;
	return true;
}

bool kvt_llama_stream_count(int64_t *out, struct kvt_llama_cursor *c)
{
	*out = 1;
	return !c->streams || (kvt_llama_count(out, c, KVT_LLAMA_STREAMS) && *out > 0);
}

/* ---- what stands before and after --------------------------------------- */

/* Ids, logits and embeddings of the last batch. */
bool kvt_llama_outputs(struct kvt_llama_cursor *c)
{
	int64_t n;
	uint64_t floats;

	if (!kvt_llama_count(&n, c, INT32_MAX) || !kvt_llama_skip(c, n, 4))
		return false;
	for (int i = 0; i < 2; i++)
		if (!kvt_llama_take(&floats, c, 8) || floats > INT64_MAX ||
		    !kvt_llama_skip(c, (int64_t)floats, 4))
			return false;
	return true;
}

/*
 * A cell of a recurrent memory is all there is of a sequence: none has two.  That,
 * and the type, is what tells them from the cells of an older cache.  In a file of
 * one sequence they do not name it.
 */
static bool read_states(struct kvt_llama_cursor *c, struct kvt_llama_states *out)
{
	bool seen[KVT_LLAMA_SEQUENCES + 1] = { false };
	struct kvt_llama_members members = { .member = out->member };

	for (int64_t i = 0; i < out->ncells; i++) {
		struct kvt_llama_member member = { KVT_LLAMA_OWN, 0, 0, (uint32_t)i };
		int64_t position, n, sequence;

		if (!kvt_llama_count(&position, c, INT32_MAX) ||
		    !kvt_llama_count(&n, c, KVT_LLAMA_SEQUENCES) || (!n && c->whole))
			return false;
		member.position = (int32_t)position;
		if (!n)
			add_member(&members, member);
		for (int64_t j = 0; j < n; j++) {
			if (!kvt_llama_count(&sequence, c, KVT_LLAMA_SEQUENCES) ||
			    seen[sequence])
				return false;
			seen[sequence] = true;
			member.sequence = (int32_t)sequence;
			add_member(&members, member);
		}
	}
	out->nmembers = members.count;
	return true;
}

bool kvt_llama_recurrent(struct kvt_llama_cursor *c, struct kvt_llama_states *out)
{
	int64_t transposed, layers, records = 0, type;
	int which;
	uint64_t nbytes;

	if (!kvt_llama_count(&out->ncells, c, KVT_LLAMA_SEQUENCES) ||
	    !read_states(c, out) || !kvt_llama_count(&transposed, c, 0) ||
	    !kvt_llama_count(&layers, c, MAX_LAYERS))
		return false;
	out->listed = layers;
	for (; c->at < c->file->nbytes; records++) {
		if (records == 2 * layers || !kvt_llama_count(&type, c, 0) ||
		    !kvt_llama_take(&nbytes, c, 8) || nbytes > INT64_MAX)
			return false;
		which = records && records >= out->nlayers;
		if (!records || records == out->nlayers) {
			out->row[which].nbytes = (int64_t)nbytes;
			out->row[which].at = c->at;
			out->row[which].uneven = false;
		}
		out->row[which].uneven |= (int64_t)nbytes != out->row[which].nbytes;
		if (!kvt_llama_skip(c, c->hollow ? 0 : out->ncells, (int64_t)nbytes)) {
			note_cut(c, (struct kvt_llama_cut){
					 .at = c->at, .layer = records,
					 .part = KVT_LLAMA_STATES },
				 type, out->ncells,
				 (struct kvt_llama_rows){ .nbytes = (int64_t)nbytes });
			return false;
		}
		/* rows that are not there may have any length */
		if (__builtin_mul_overflow(out->ncells, out->row[which].nbytes,
					   &out->row[which].step) ||
		    __builtin_add_overflow(out->row[which].step, 12,
					   &out->row[which].step))
			return false;
	}
	out->nlayers = records / 2;
	return records > 0 && records % 2 == 0;
}
