/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whose.c - counting rows that are seen twice
 *
 * Rows are known by their hashes, in a table of bounded size; files that come when it
 * is full are held against those in it, and against themselves.  Cost: a hash of all
 * bytes, and 72 bytes of memory a row of the files that are kept.
 */
#include "formats/vllm/whose_impl.h"

#include <stdlib.h>
#include <string.h>

#include "lib/tile/hash.h"

enum { MOST_ROWS = 1 << 20, MOST_PIECES = 1 << 16 };	/* kept; of a file */

/* ---- where the first layer is -------------------------------------------- */

static void put_bit(uint64_t *bits, int64_t i)
{
	bits[i / 64] |= UINT64_C(1) << i % 64;
}

/* Where the page of block 'b' with head 'h' of the first layer begins, in heads. */
static int64_t page_at(const struct kvt_whose_shape *s, enum kvt_whose_family family,
		       int64_t ranks, int64_t b, int64_t h)
{
	int64_t heads = s->heads / ranks, rank = h / heads, local = h % heads;
	int64_t first = rank * s->layers * s->blocks * heads;

	if (family == KVT_WHOSE_LAYERS)
		return first + b * heads;
	if (family == KVT_WHOSE_BLOCKS)
		return first + b * s->layers * heads;
	return first + (b * heads + local) * s->layers;
}

/* Values may lie anywhere in a page, or, where keys come first, in its second half. */
static void put_page(struct kvt_whose_order *o, int64_t at, int64_t heads)
{
	for (int64_t i = 0; i < 2 * heads; i++) {
		put_bit(o->parts, 2 * at + i);
		if (i >= heads)
			put_bit(o->halves, 2 * at + i);
	}
}

/* The same bytes under another name: a block that is alone is outermost as well. */
static void same_order(const struct kvt_whose_shape *s, enum kvt_whose_family *family,
		       int64_t *ranks)
{
	if (*family == KVT_WHOSE_HEADS && (s->blocks == 1 || *ranks == s->heads)) {
		*family = KVT_WHOSE_BLOCKS;
		*ranks = s->heads;
	}
	if (s->blocks == 1)
		*family = KVT_WHOSE_LAYERS;
}

int kvt_whose_order_of(const struct kvt_whose *w, enum kvt_whose_family family,
		       int64_t ranks)
{
	same_order(&w->shape, &family, &ranks);
	for (int i = 0; i < w->norders; i++)
		if (w->order[i].family == family && w->order[i].ranks == ranks)
			return i;
	return -1;
}

static bool add_order(struct kvt_whose *w, enum kvt_whose_family family, int64_t ranks)
{
	const struct kvt_whose_shape *s = &w->shape;
	struct kvt_whose_order *o = &w->order[w->norders];
	int64_t heads = page_heads(s, family, ranks);

	if (w->norders == KVT_WHOSE_ORDERS || kvt_whose_order_of(w, family, ranks) >= 0)
		return true;
	w->norders++;
	*o = (struct kvt_whose_order){ family, ranks, calloc((size_t)w->words, 8),
				       calloc((size_t)w->words, 8) };
	if (!o->parts || !o->halves)
		return false;
	for (int64_t b = 0; b < s->blocks; b++)
		for (int64_t h = 0; h < s->heads; h += heads)
			put_page(o, page_at(s, family, ranks, b, h), heads);
	return true;
}

/* ---- tables --------------------------------------------------------------- */

static bool table_init(struct table *t, int64_t n)
{
	t->size = 64;
	while (t->size < 2 * n)
		t->size *= 2;
	t->at = calloc((size_t)t->size, sizeof(*t->at));
	return t->at;
}

/* NULL: it was not there, and is now, unless 'put' is false. */
static struct seen *look_up(struct table *t, const struct seen *new, bool put)
{
	int64_t i = (int64_t)(new->hash & (uint64_t)(t->size - 1));

	for (; t->at[i].hash; i = (i + 1) & (t->size - 1))
		if (t->at[i].hash == new->hash)
			return &t->at[i];
	if (put)
		t->at[i] = *new;
	return NULL;
}

static bool is_again(struct table *t, uint64_t hash)
{
	const struct seen *found = look_up(t, &(struct seen){ .hash = hash }, false);

	return found && found->again;
}

static void table_clear(struct table *t)
{
	memset(t->at, 0, (size_t)t->size * sizeof(*t->at));
}

/*
 * Where else is it seen?  NULL: nowhere.  Of a file that is not kept, its own rows are
 * in a table of their own.
 */
static struct seen *elsewhere(struct kvt_whose *w, struct table *all, struct table *own,
			      const struct seen *new)
{
	bool keep = w->nfiles < w->kept;
	struct seen *first = look_up(all, new, keep);

	if (!keep && (!first || (first->place == new->place && !first->again)))
		first = look_up(own, new, true);
	if (!first || (first->place == new->place && !(!keep && first->again)))
		return NULL;
	first->again = 1;
	return first;
}

static struct counts *counts_of(struct kvt_whose *w, int64_t file)
{
	return &w->count[file < w->kept ? file : w->kept];
}

static uint64_t *hashes_of(const struct kvt_whose *w, int64_t file)
{
	return w->hash + (file < w->kept ? file : w->kept) * w->rows;
}

/* ---- a file --------------------------------------------------------------- */

/* Zeros, and whatever else has but one number, are no token's. */
static bool is_constant(const uint8_t *row, int64_t n)
{
	return n > 8 && !memcmp(row, row + 8, (size_t)(n - 8));
}

static void hash_rows(struct kvt_whose *w, const uint8_t *bytes)
{
	uint64_t *hash = hashes_of(w, w->nfiles);
	int64_t n = w->shape.row;

	for (int64_t i = 0; i < w->rows; i++) {
		const uint8_t *row = bytes + i * n;

		hash[i] = is_constant(row, n) ? 0 : kvt_range_hash(row, n) | 1;
	}
}

static void mark_rows(struct kvt_whose *w)
{
	struct counts *mine = counts_of(w, w->nfiles), *theirs;
	const uint64_t *hash = hashes_of(w, w->nfiles);
	int64_t each = w->rows / w->parts;

	for (int64_t i = 0; i < w->rows; i++) {
		const struct seen new = { .hash = hash[i], .file = (uint32_t)w->nfiles,
					  .place = (uint32_t)i & INT32_MAX };
		const struct seen *first = new.hash ? elsewhere(w, &w->all, &w->own,
								&new) : NULL;

		w->repeats[i] = first;
		if (!first)
			continue;
		theirs = counts_of(w, first->file);
		put_bit(mine->marks, i / each);
		put_bit(theirs->marks, first->place / each);
		mine->again++;
		mine->others += first->file != new.file;
		theirs->others += first->file != new.file;
	}
}

/* Rows from one slot to the next, from a head to the next, from keys to values. */
struct strides {
	int64_t n, h, k;
};

static struct strides strides_of(const char order[3], int64_t slots, int64_t heads)
{
	struct strides out = { 1, 1, 1 };
	int64_t step = 1;

	for (int i = 2; i >= 0; i--) {
		int64_t *to = order[i] == 'N' ? &out.n : order[i] == 'H' ? &out.h :
			      &out.k;

		*to = step;
		step *= to == &out.n ? slots : to == &out.h ? heads : 2;
	}
	return out;
}

/* The row of head 'h' of the keys of a token. */
static int64_t key_of(const struct kvt_whose *w, const struct kvt_whose_order *o,
		      const struct strides *stride, int64_t token, int64_t h)
{
	const struct kvt_whose_shape *s = &w->shape;
	int64_t page = page_at(s, o->family, o->ranks, token / s->slots, h);

	return page * 2 * s->slots + token % s->slots * stride->n +
	       h % page_heads(s, o->family, o->ranks) * stride->h;
}

/* All heads of it; 0: some are constant. */
static uint64_t token_hash(const struct kvt_whose *w, const struct kvt_whose_order *o,
			   const struct strides *stride, int64_t file, int64_t token)
{
	const uint64_t *hash = hashes_of(w, file);
	uint64_t all = 0;

	for (int64_t h = 0; h < w->shape.heads; h++) {
		uint64_t one = hash[key_of(w, o, stride, token, h) + stride->k];

		if (!one)
			return 0;
		all = (all ^ one) * UINT64_C(0x9e3779b97f4a7c15);
		all ^= all >> 29;
	}
	return all | 1;
}

static uint32_t count_keys(const struct kvt_whose *w, const struct kvt_whose_order *o,
			   const struct strides *stride, int64_t token)
{
	uint32_t n = 0;

	for (int64_t h = 0; h < w->shape.heads; h++)
		n += w->repeats[key_of(w, o, stride, token, h)];
	return n;
}

/*
 * Tokens of a file that repeat, if it is of order 'i / WHOSE_PAGES'.  The same token has
 * the same hash in all orders, so that files of one are known in those of another; its
 * place is that of its first row, for the same reason.
 */
static void count_tokens(struct kvt_whose *w, int64_t file, int i, bool settled)
{
	const struct kvt_whose_shape *s = &w->shape;
	const struct kvt_whose_order *o = &w->order[i / WHOSE_PAGES];
	const char *page = kvt_whose_pages[i % WHOSE_PAGES].order;
	const struct strides stride = strides_of(page, s->slots,
						 page_heads(s, o->family, o->ranks));
	struct counts *count = counts_of(w, file);

	count->tokens[i] = count->keys[i] = 0;
	for (int64_t t = 0; t < s->blocks * s->slots; t++) {
		int64_t place = key_of(w, o, &stride, t, 0) + stride.k;
		const struct seen new = {
			.hash = token_hash(w, o, &stride, file, t),
			.file = (uint32_t)file, .place = (uint32_t)place & INT32_MAX,
		};

		count->keys[i] += count_keys(w, o, &stride, t);
		if (new.hash)
			count->tokens[i] += settled ? is_again(&w->tokens, new.hash) :
				elsewhere(w, &w->tokens, &w->own_tokens, &new) != NULL;
	}
}

/* Which of its rows and tokens repeat is known of a kept file when all are seen. */
static void settle_file(struct kvt_whose *w, int64_t file)
{
	const uint64_t *hash = hashes_of(w, file);
	struct counts *count = counts_of(w, file);

	count->again = 0;
	for (int64_t i = 0; i < w->rows; i++) {
		w->repeats[i] = hash[i] && is_again(&w->all, hash[i]);
		count->again += w->repeats[i];
	}
	for (int i = 0; i < w->norders * WHOSE_PAGES; i++)
		count_tokens(w, file, i, true);
}

void kvt_whose_settle(struct kvt_whose *w)
{
	for (int64_t f = 0; !w->settled && f < w->kept && f < w->nfiles; f++)
		settle_file(w, f);
	w->settled = true;
}

void kvt_whose_see(struct kvt_whose *w, const uint8_t *bytes)
{
	struct counts *spare = &w->count[w->kept];

	if (w->nfiles == w->files)
		return;
	if (w->nfiles >= w->kept) {
		kvt_whose_settle(w);
		memset(spare->marks, 0, (size_t)w->words * 8);
		spare->others = spare->again = 0;
		table_clear(&w->own);
		table_clear(&w->own_tokens);
	}
	hash_rows(w, bytes);
	mark_rows(w);
	for (int i = 0; i < w->norders * WHOSE_PAGES; i++)
		count_tokens(w, w->nfiles, i, false);
	if (w->nfiles >= w->kept) {
		w->fits[w->nfiles - w->kept] = kvt_whose_fitting(w, spare);
		w->answer[w->nfiles - w->kept] = kvt_whose_judge(w, spare);
		w->foreign[w->nfiles - w->kept] = kvt_whose_strange(w, spare);
		for (int64_t i = 0; i < w->words; i++)
			w->every[i] |= spare->marks[i];
	}
	w->nfiles++;
}

/* ---- the beginning and the end ------------------------------------------- */

bool kvt_whose_can_tell(const struct kvt_whose_shape *s)
{
	int64_t parts, rows;

	return s->layers > 1 && s->heads > 1 && s->blocks > 0 && s->slots > 0 &&
	       s->row >= 16 &&
	       !__builtin_mul_overflow(s->layers, s->heads, &parts) &&
	       !__builtin_mul_overflow(parts, s->blocks, &parts) &&
	       parts <= MOST_PIECES && s->slots <= MOST_ROWS &&
	       !__builtin_mul_overflow(parts, 2 * s->slots, &rows) && rows <= MOST_ROWS;
}

int64_t kvt_whose_bytes(const struct kvt_whose_shape *s)
{
	return s->layers * s->heads * s->blocks * s->slots * 2 * s->row;
}

static bool make_orders(struct kvt_whose *w)
{
	bool ok = true;

	for (int f = KVT_WHOSE_LAYERS; f <= KVT_WHOSE_HEADS; f++)
		for (int64_t t = 1; ok && t <= w->shape.heads; t++)
			if (w->shape.heads % t == 0)
				ok = add_order(w, f, t);
	return ok;
}

static bool make_counts(struct kvt_whose *w)
{
	int64_t rest = w->files > w->kept ? w->files - w->kept : 0;
	bool ok;

	w->count = calloc((size_t)w->kept + 1, sizeof(*w->count));
	w->answer = calloc((size_t)rest + 1, sizeof(*w->answer));
	w->foreign = calloc((size_t)rest + 1, sizeof(*w->foreign));
	w->fits = calloc((size_t)rest + 1, sizeof(*w->fits));
	ok = w->count && w->answer && w->foreign && w->fits;
	for (int64_t i = 0; ok && i <= w->kept; i++) {
		w->count[i].marks = calloc((size_t)w->words, 8);
		w->count[i].tokens = calloc((size_t)(w->norders * WHOSE_PAGES), 4);
		w->count[i].keys = calloc((size_t)(w->norders * WHOSE_PAGES), 4);
		ok = w->count[i].marks && w->count[i].tokens && w->count[i].keys;
	}
	return ok;
}

/* Hashes of tokens of a file, one in each order. */
static int64_t token_hashes(const struct kvt_whose *w)
{
	return w->shape.blocks * w->shape.slots * w->norders * WHOSE_PAGES;
}

/* How many files have room. */
static int64_t most_kept(const struct kvt_whose *w)
{
	int64_t rows = w->rows > token_hashes(w) ? w->rows : token_hashes(w);
	int64_t kept = rows < MOST_ROWS ? MOST_ROWS / rows : 1;

	return kept < w->files ? kept : w->files;
}

static bool make_tables(struct kvt_whose *w)
{
	int64_t tokens = token_hashes(w);

	w->hash = calloc((size_t)(w->rows * (w->kept + 1)), sizeof(*w->hash));
	w->repeats = calloc((size_t)w->rows, sizeof(*w->repeats));
	if (!w->hash || !w->repeats)
		return false;
	return table_init(&w->all, w->kept * w->rows) && table_init(&w->own, w->rows) &&
	       table_init(&w->tokens, w->kept * tokens) &&
	       table_init(&w->own_tokens, tokens);
}

struct kvt_whose *kvt_whose_new(const struct kvt_whose_shape *shape, int64_t files)
{
	struct kvt_whose *w = kvt_whose_can_tell(shape) ? calloc(1, sizeof(*w)) : NULL;

	if (!w)
		return NULL;
	w->shape = *shape;
	w->parts = shape->layers * shape->heads * shape->blocks * 2;
	w->words = (w->parts + 63) / 64;
	w->rows = w->parts * shape->slots;
	w->files = files;
	w->every = calloc((size_t)w->words, sizeof(*w->every));
	if (w->every && make_orders(w)) {
		w->kept = most_kept(w);
		if (make_counts(w) && make_tables(w))
			return w;
	}
	kvt_whose_free(w);
	return NULL;
}

void kvt_whose_free(struct kvt_whose *w)
{
	if (!w)
		return;
	for (int i = 0; i < w->norders; i++) {
		free(w->order[i].parts);
		free(w->order[i].halves);
	}
	for (int64_t i = 0; w->count && i <= w->kept; i++) {
		free(w->count[i].marks);
		free(w->count[i].tokens);
		free(w->count[i].keys);
	}
	free(w->all.at);
	free(w->own.at);
	free(w->tokens.at);
	free(w->own_tokens.at);
	free(w->count);
	free(w->answer);
	free(w->foreign);
	free(w->fits);
	free(w->hash);
	free(w->every);
	free(w->repeats);
	free(w);
}
