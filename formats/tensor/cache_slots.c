/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache_slots.c - which tokens the layers of a cache of transformers hold
 *
 * A cache that grows has as many slots as tokens, and a layer of it with a window
 * the last window - 1.  A static one was made with more: they are filled from the
 * first one on, and in a layer with a window, once it is full, move to the left,
 * so that the last slot is the newest token.  Read from transformers 4.36 to 5.23.
 */
#include "formats/tensor/cache_open.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/print.h"

enum { MAX_SLOTS = 1 << 30 };

static int64_t slots_of(const struct cache_layer *l)
{
	return l->half[0].shape[CACHE_TOKENS];
}

static int64_t most_slots(const struct cache_opening *o)
{
	int64_t most = 0;

	for (int64_t l = 0; l < o->nlayers; l++)
		if (slots_of(&o->layer[l]) > most)
			most = slots_of(&o->layer[l]);
	return most;
}

/* ---- what the tensors show ---------------------------------------------- */

/* One slot of the first head of the first row: *zero, or not. */
static enum kvt_status look_at(bool *zero, const struct cache_opening *o,
			       const struct cache_half *h, int64_t slot)
{
	int64_t elem = kvt_tensor_array(h->tensor, "").elem;
	int64_t n = h->shape[CACHE_DIM] * elem;
	uint8_t bytes[1024] = { 0 };
	enum kvt_status status;

	if (n > (int64_t)sizeof(bytes))
		n = sizeof(bytes) / elem * elem;
	status = kvt_file_read(&o->reader->files.file[o->file], bytes, n,
			       h->part[0].begin +
			       slot * h->part[0].stride[CACHE_TOKENS], o->err);
	*zero = true;
	for (int64_t i = 0; i < n; i++)
		*zero &= !bytes[i];
	return status;
}

/* Slots that were never filled are zeros; no key of a token is. */
static enum kvt_status find_empty(bool *out, const struct cache_opening *o,
				  const struct cache_layer *l)
{
	const struct cache_half *keys = &l->half[0];
	int64_t slots = slots_of(l);
	enum kvt_status status;
	bool first, last;

	*out = false;
	if (slots < 2 || !keys->shape[CACHE_BATCH] ||
	    (keys->shape[CACHE_DIM] > 1 &&
	     keys->part[0].stride[CACHE_DIM] != kvt_tensor_array(keys->tensor, "").elem))
		return KVT_OK;
	if ((status = look_at(&first, o, keys, 0)) ||
	    (status = look_at(&last, o, keys, slots - 1)))
		return status;
	*out = last && !first;
	return KVT_OK;
}

/* ---- windows ------------------------------------------------------------ */

/* Tensors without a class: shorter ones have a window, which the user tells. */
static enum kvt_status tell_window(struct cache_opening *o, struct cache_layer *l,
				   int64_t most, int64_t window)
{
	int64_t slots = slots_of(l);

	if (!window && slots == most)
		return KVT_OK;
	if (!window)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tensor %.100s holds %lld tokens and others %lld, so it has a sliding window; give --set window=%lld, or %lld if it is a static cache; a ring that has begun anew cannot be read",
				o->reader->leaf.path, l->name, LL(slots), LL(most),
				LL(slots) + 1, LL(slots));
	if (slots == window || (slots == window - 1 && !l->held.fixed)) {
		l->held.sliding = true;
		l->held.fixed = slots == window;
		l->held.window = window;
	} else if (slots != most) {
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tensor %.100s holds %lld tokens and others %lld, but a window of %lld keeps %lld, or %lld in a static cache",
				o->reader->leaf.path, l->name, LL(slots), LL(most),
				LL(window), LL(window - 1), LL(window));
	}
	return KVT_OK;
}

/* Layers of a class; 'window' is the user's, or 0. */
static enum kvt_status settle_window(struct cache_opening *o, struct cache_layer *l,
				     int64_t most, int64_t window)
{
	int64_t slots = slots_of(l);

	/* a list of tensors of some hybrid cache does not say which are shorter */
	if (l->held.fixed && l->held.seen < 0 && slots < most)
		l->held.sliding = true;
	if (l->held.sliding && l->held.fixed && !l->held.ring)
		l->held.window = slots;
	if (l->held.sliding && (l->held.window < 1 || l->held.window > MAX_SLOTS))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tensor %.100s has a window of %lld tokens",
				o->reader->leaf.path, l->name, LL(l->held.window));
	/* a static cache may have fewer slots than the window */
	if (l->held.sliding && window && window != l->held.window &&
	    !(l->held.fixed && slots == most && slots < window))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tensor %.100s has a window of %lld tokens, but %lld was given",
				o->reader->leaf.path, l->name, LL(l->held.window),
				LL(window));
	return KVT_OK;
}

static enum kvt_status settle_windows(struct cache_opening *o)
{
	int64_t most = most_slots(o), window = 0, slots = 0;
	bool fixed = kvt_fact(o->hints, "slots") != NULL;
	enum kvt_status status;

	if ((status = kvt_hints_window(&window, o->hints, o->err)) ||
	    (status = kvt_fact_int(&window, o->hints, "window", 2, MAX_SLOTS, o->err)) ||
	    (status = kvt_fact_int(&slots, o->hints, "slots", 0, MAX_SLOTS, o->err)))
		return status;
	for (int64_t i = 0; i < o->nlayers; i++) {
		struct cache_layer *l = &o->layer[i];

		if (l->held.told)
			status = settle_window(o, l, most, window);
		else if (!(status = tell_window(o, l, most, window)) && !i &&
			 !l->held.sliding && !l->held.fixed)
			status = find_empty(&l->held.fixed, o, l);
		if (status)
			return status;
		fixed |= !l->held.told && l->held.fixed;
	}
	/* one class of cache has made them all */
	for (int64_t i = 0; i < o->nlayers; i++)
		if (!o->layer[i].held.told) {
			o->layer[i].held.seen = -1;
			o->layer[i].held.fixed |= fixed && !o->layer[i].held.sliding;
		}
	return KVT_OK;
}

/* ---- how many were given ------------------------------------------------ */

/* By what the layers say; -1: none does. */
static enum kvt_status agree(struct cache_opening *o)
{
	const struct cache_layer *said = NULL;

	o->seen = -1;
	for (int64_t i = 0; i < o->nlayers; i++) {
		const struct cache_layer *l = &o->layer[i];
		int64_t seen = l->held.seen;

		if (!l->held.sliding && !l->held.fixed)
			seen = slots_of(l);
		if (seen < 0)
			continue;
		if (said && seen != o->seen)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: %.100s has received %lld tokens, but %.100s %lld",
					o->reader->leaf.path, said->name, LL(o->seen),
					l->name, LL(seen));
		said = l;
		o->seen = seen;
	}
	return KVT_OK;
}

/* The largest number in a list of them; -1: it is none. */
static int64_t largest(const char *list)
{
	int64_t out = -1;

	while (list && *list) {
		size_t n = strspn(list, "0123456789");

		if (!n || n > 10)
			return -1;
		out = strtoll(list, NULL, 10) > out ? strtoll(list, NULL, 10) : out;
		list += n + (list[n] == ',');
	}
	return out;
}

static enum kvt_status take_seen(struct cache_opening *o, bool left)
{
	const char *tokens = kvt_fact(o->hints, "tokens");
	int64_t told = -1;
	enum kvt_status status;

	if ((status = kvt_fact_int(&told, o->hints, "slots", 0, MAX_SLOTS, o->err)) ||
	    (status = agree(o)))
		return status;
	if (o->seen > MAX_SLOTS)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: a cache of %lld tokens, at most %d are supported",
				o->reader->leaf.path, LL(o->seen), MAX_SLOTS);
	if (told >= 0 && o->seen >= 0 && told != o->seen)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: %lld slots are filled, but %lld was given",
				o->reader->leaf.path, LL(o->seen), LL(told));
	if (o->seen < 0)
		o->seen = told;
	/* padding that is not there, or after the tokens, needs no slots */
	if (o->seen < 0 && tokens && !left)
		o->seen = largest(tokens);
	if (o->seen < 0 && !tokens)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: the file does not record how many of the %lld slots of %.100s are filled; give --set slots=N",
				o->reader->leaf.path, LL(slots_of(&o->layer[0])),
				o->layer[0].name);
	if (o->seen < 0)
		return kvt_fail(o->err, left ? KVT_BAD_INPUT : KVT_USAGE,
				left ?
					"%s: with tokens=%.60s and padding=left, the number of filled slots is needed, too: give --set slots=N" :
				       "%s: tokens is '%.60s', expected numbers",
				o->reader->leaf.path, tokens);
	return KVT_OK;
}

/* The run of slots that a layer holds. */
static enum kvt_status place(struct cache_opening *o, struct cache_layer *l)
{
	int64_t slots = slots_of(l);
	bool wrong;

	l->count = l->held.fixed && o->seen < slots ? o->seen : slots;
	/* what a ring keeps is the beginning; what it lacks is a hole */
	if (l->held.turned && l->held.keep)
		l->count = o->seen;
	l->first = o->seen - l->count;
	wrong = l->first < 0 || (!l->held.sliding && l->first > 0);
	return !wrong ? KVT_OK :
	       kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: tensor %.100s has %lld slots, but the cache was given %lld tokens",
			o->reader->leaf.path, l->name, LL(slots), LL(o->seen));
}

/* ---- rows --------------------------------------------------------------- */

/* "N" for all rows, or "N,N,..." for each. */
static enum kvt_status take_tokens(struct cache_opening *o, bool left)
{
	const char *text = kvt_fact(o->hints, "tokens"), *at = text;

	for (int64_t r = 0; r < o->nrows; r++) {
		size_t n = at ? strspn(at, "0123456789") : 0;
		int64_t tokens = !text ? o->seen :
				 n && n < 19 ? strtoll(at, NULL, 10) : -1;

		if (tokens < 0 || tokens > o->seen)
			return kvt_fail(o->err, KVT_USAGE,
					"tokens is '%.60s', expected 0 to %lld, once or for each of %lld sequences",
					text, LL(o->seen), LL(o->nrows));
		o->row[r].begin = left ? o->seen - tokens : 0;
		o->row[r].end = o->row[r].begin + tokens;
		if (at && at[n] == ',' && r + 1 < o->nrows)
			at += n + 1;
		else if (at && (at[n] || (at != text && r + 1 < o->nrows)))
			return kvt_fail(o->err, KVT_USAGE,
					"tokens is '%.60s', expected one number, or one for each of %lld sequences",
					text, LL(o->nrows));
	}
	return KVT_OK;
}

/* A window that moved over padding has lost tokens of a row that it still needs. */
static enum kvt_status check_row(const struct cache_opening *o, int64_t r)
{
	const struct cache_row *row = &o->row[r];

	for (int64_t i = 0; row->end > row->begin && i < o->nlayers; i++) {
		const struct cache_layer *l = &o->layer[i];
		int64_t need = row->end - l->held.window + 1;

		if (need < row->begin)
			need = row->begin;
		if (l->held.sliding && need < row->end && l->first > need)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: %.100s holds slots %lld to %lld, but the window of sequence %lld begins at %lld; give --set padding=left",
					o->reader->leaf.path, l->name, LL(l->first),
					LL(o->seen - 1), LL(r), LL(need));
	}
	return KVT_OK;
}

static enum kvt_status take_rows(struct cache_opening *o, bool left)
{
	enum kvt_status status;

	if (!(o->row = calloc((size_t)o->nrows + 1, sizeof(*o->row))))
		return kvt_fail(o->err, KVT_SYSTEM, "%s: out of memory",
				o->reader->leaf.path);
	status = take_tokens(o, left);
	for (int64_t r = 0; !status && r < o->nrows; r++)
		status = check_row(o, r);
	return status;
}

/* States alone do not say how many tokens they stand for. */
static enum kvt_status count_states(struct cache_opening *o)
{
	const char *tokens = kvt_fact(o->hints, "tokens");

	if (!tokens)
		return KVT_OK;
	o->seen = largest(tokens);
	if (o->seen < 0 || o->seen > MAX_SLOTS)
		return kvt_fail(o->err, KVT_USAGE,
				"%s: tokens is '%.60s', expected numbers up to %d",
				o->reader->leaf.path, tokens, MAX_SLOTS);
	return take_rows(o, false);
}

enum kvt_status kvt_cache_slots(struct cache_opening *o)
{
	const char *padding = kvt_fact(o->hints, "padding");
	bool left = padding && !strcmp(padding, "left");
	enum kvt_status status;

	if (padding && !left && strcmp(padding, "right"))
		return kvt_fail(o->err, KVT_USAGE,
				"padding is '%.40s', expected left or right", padding);
	if (!o->nlayers)
		return count_states(o);
	if (o->nrows > 1 && !kvt_fact(o->hints, "tokens"))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: the file does not record which of the %lld slots of %lld sequences are padding; give --set tokens=N or N,N..., and padding=left if the padding is first",
				o->reader->leaf.path, LL(most_slots(o)), LL(o->nrows));
	if ((status = kvt_cache_order(o)) || (status = settle_windows(o)) ||
	    (status = take_seen(o, left)))
		return status;
	for (int64_t i = 0; !status && i < o->nlayers; i++)
		status = place(o, &o->layer[i]);
	return status ? status : take_rows(o, left);
}
