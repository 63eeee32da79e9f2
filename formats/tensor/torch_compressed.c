/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_compressed.c - what layers of DeepSeek V4 hold in transformers, besides a window
 *
 * 'compress_rate' tokens become a row, once they are there: of the compressor, and of
 * the indexer of one class.  Until then what was projected of them waits in a buffer, and
 * that class keeps what the next row needs of the tokens of the last one.  So rows of the
 * first n * rate tokens are there, the buffer has those after them, and the overlap the
 * rate tokens before it.  Where the lengths do not say that, nothing is read.
 *
 * Read from transformers 5.24.
 */
#include "formats/tensor/torch_walk.h"

enum { MOST_TOKENS = 1 << 30 };

enum part { ROWS, BUFFER, OVERLAP };

static const struct {
	const char *attribute, *key, *id;
	enum part part;
} states[TORCH_STATES] = {
	{ "compressed_kv", "compressor", "comp", ROWS },
	{ "compressed_kv", "indexer", "indexer", ROWS },
	{ "buffer_kv", "compressor", "buf.kv", BUFFER },
	{ "buffer_gate", "compressor", "buf.gate", BUFFER },
	{ "buffer_kv", "indexer", "ibuf.kv", BUFFER },
	{ "buffer_gate", "indexer", "ibuf.gate", BUFFER },
	{ "overlap_kv", "compressor", "old.kv", OVERLAP },
	{ "overlap_gate", "compressor", "old.gate", OVERLAP },
	{ "overlap_kv", "indexer", "iold.kv", OVERLAP },
	{ "overlap_gate", "indexer", "iold.gate", OVERLAP },
};

static int64_t number_of(const struct torch_walk *w, int32_t node)
{
	return node >= 0 && w->pickle.node[node].kind == KVT_PICKLE_INT ?
	       w->pickle.node[node].number : -1;
}

/* What there must be of a state, after so many rows. */
struct want {
	int64_t first, rows;		/* token of the first of so many rows */
};

static void expect(struct want *out, enum part part, int64_t rows, int64_t rate,
		   int64_t seen)
{
	if (part == ROWS)
		*out = (struct want){ 0, rows };
	else if (part == BUFFER)
		*out = (struct want){ rows * rate, seen - rows * rate };
	else
		*out = rows ? (struct want){ (rows - 1) * rate, rate } :
		       (struct want){ 0, 0 };
}

static void take_held(struct kvt_held *out, int i, const struct want *want, int64_t rate)
{
	bool rows = states[i].part == ROWS;

	out->role = KVT_ROLE_INDEX;
	out->id = states[i].id;
	out->start = want->first;
	out->each = rows ? rate : 1;
	out->opaque = out->sliding = !rows;
	out->window = states[i].part == BUFFER ? rate : 2 * rate;
	out->fixed = true;
}

/* As many rows as there must be; of none there may be nothing. */
static enum kvt_status check_rows(int64_t *held, const struct torch_walk *w, int i,
				  int32_t node, int64_t rows)
{
	struct kvt_pickle_tensor t;
	enum kvt_status status;

	*held = 0;
	if (node >= 0) {
		if ((status = kvt_pickle_tensor(&t, &w->pickle, node, w->file->path,
						w->err)))
			return status;
		*held = t.rank == 3 ? t.shape[1] : -1;
	}
	return *held == rows ? KVT_OK :
	       kvt_fail(w->err, KVT_BAD_INPUT,
			"%s: %.100s.%s.%s has %lld rows, but %lld by entry_count, compress_rate and cumulative_length",
			w->file->path, w->path, states[i].attribute, states[i].key,
			LL(*held), LL(rows));
}

enum kvt_status kvt_torch_compressed(struct torch_state *out, const struct torch_walk *w,
				     const struct kvt_pickle_node *layer, int64_t seen,
				     int i)
{
	const struct kvt_pickle *p = &w->pickle;
	int32_t dict = kvt_pickle_attribute(p, layer, states[i].attribute);
	int32_t counts = kvt_pickle_attribute(p, layer, "entry_count");
	int32_t node = kvt_pickle_value(p, dict, states[i].key);
	int64_t rate = number_of(w, kvt_pickle_attribute(p, layer, "compress_rate"));
	int64_t rows = number_of(w, kvt_pickle_value(p, counts, states[i].key)), held;
	struct want want;
	enum kvt_status status;

	out->attribute = states[i].attribute;
	out->key = states[i].key;
	out->node = -1;
	/* one class has no indexer and no overlap */
	if (node < 0)
		return KVT_OK;
	if (rate < 1 || rate > MOST_TOKENS || seen < 0 || seen > MOST_TOKENS ||
	    rows != seen / rate)
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"%s: %.100s has %lld rows of %lld tokens of %s, but was given %lld tokens",
				w->file->path, w->path, LL(rows), LL(rate),
				states[i].key, LL(seen));
	expect(&want, states[i].part, rows, rate, seen);
	if (p->node[node].kind != KVT_PICKLE_TENSOR)
		node = -1;
	if ((status = check_rows(&held, w, i, node, want.rows)) || !held)
		return status;
	out->node = node;
	take_held(&out->held, i, &want, rate);
	return KVT_OK;
}
