/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.c - which tokens the layers of a cache of transformers hold
 *
 * A cache that grows has as many slots as tokens, and a layer of it with a window
 * the last window - 1.  A static one was made with more: they are filled from the
 * first one on, and in a layer with a window, once it is full, move to the left,
 * so that the last slot is the newest token.  Read from transformers 4.36 to 5.23.
 */
#include "formats/caches/open.h"
#include "formats/caches/write.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tensor/safetensors_header.h"

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
	status = kvt_file_read(&o->reader->files.file[h->part[0].file], bytes, n,
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
	/* of rows that say where they are none of this is asked */
	if (l->held.each)
		return KVT_OK;
	if (l->held.sliding && l->held.fixed && !l->held.ring && !l->held.chunk)
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

/* Of a batch whose file tells rows: they end with the axis, and so does each layer. */
static int64_t longest(const struct cache_opening *o)
{
	int64_t most = -1;

	for (int64_t r = 0; r < o->tensors.ngiven; r++)
		if (o->tensors.given[r] > most)
			most = o->tensors.given[r];
	for (int64_t i = 0; most >= 0 && i < o->nlayers; i++)
		if (o->layer[i].held.batch && o->layer[i].held.used > most)
			most = o->layer[i].held.used;
	return most;
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
	if (longest(o) >= 0 && o->seen >= 0 && o->seen != longest(o))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: rows of %lld tokens at most, but a layer without rows has received %lld",
				o->reader->leaf.path, LL(longest(o)), LL(o->seen));
	if (longest(o) >= 0)
		o->seen = longest(o);
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
	if (l->held.chunk)
		l->count = o->seen - l->held.start;
	if (l->held.batch)
		l->count = l->held.used;
	if (l->held.each) {
		l->count = slots * l->held.each;
		l->first = l->held.start;
		return KVT_OK;
	}
	l->first = o->seen - l->count;
	wrong = l->first < 0 || l->count < 0 || (l->held.chunk && l->count > slots) ||
		(!l->held.sliding && !l->held.batch && l->first > 0);
	return !wrong ? KVT_OK :
	       kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: tensor %.100s has %lld slots, but the cache was given %lld tokens",
			o->reader->leaf.path, l->name, LL(slots), LL(o->seen));
}

/* States alone do not say how many tokens they stand for. */
static enum kvt_status count_states(struct cache_opening *o)
{
	const char *told = kvt_fact(o->hints, "tokens");
	const char *tokens = told ? told : kvt_cache_note(&o->tensors, "tokens");

	if (!tokens)
		return KVT_OK;
	o->seen = largest(tokens);
	if (o->seen < 0 || o->seen > MAX_SLOTS)
		return kvt_fail(o->err, told ? KVT_USAGE : KVT_BAD_INPUT,
				"%s: tokens is '%.60s', expected numbers up to %d",
				o->reader->leaf.path, tokens, MAX_SLOTS);
	return kvt_cache_rows(o, false);
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
	left |= o->tensors.given != NULL;
	if ((status = kvt_cache_order(o)) || (status = settle_windows(o)) ||
	    (status = take_seen(o, left)))
		return status;
	for (int64_t i = 0; !status && i < o->nlayers; i++)
		status = place(o, &o->layer[i]);
	return status ? status : kvt_cache_rows(o, left);
}
