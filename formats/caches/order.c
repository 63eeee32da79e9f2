/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.c - whether slots of plain tensors are tokens in order
 *
 * Nothing in a tensor says that it was a ring, or kept its first tokens and dropped
 * others.  A word in the metadata may, or numbers beside it that are not those of slots
 * in order, or as many slots as the window of the model.  Then the user is asked, and
 * may say where the ring stands.
 */
#include "formats/caches/open.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/little_endian.h"

enum { MOST_NUMBERS = 1 << 16, MOST_SINKS = 16, MAX_TOKENS = 1 << 30 };

/* As a word of its own, "rotating" or "RotatingKVCache", they are of no other cache. */
static const char *const ring_words[] = {
	"ring", "rotating", "rotated", "circular", "rolling", "sink", "sinks", "streaming",
	"evict", "evicted", "evicting", "wrapped", NULL,
};

/* Numbers of such names count tokens or slots. */
static const char *const count_words[] = {
	"offset", "idx", "index", "next", "cursor", "start", "seen", "length", "lengths",
	"len", "position", "positions", "pos", NULL,
};

/* ---- words -------------------------------------------------------------- */

/* Whether a letter begins a word: after none, or a capital after a small one. */
static bool begins(const char *text, const char *at)
{
	return at == text || !isalpha((unsigned char)at[-1]) ||
	       (isupper((unsigned char)*at) && islower((unsigned char)at[-1]));
}

static bool has_word(const char *text, const char *const *words)
{
	for (const char *at = text; *at; at++) {
		if (!isalpha((unsigned char)*at) || !begins(text, at))
			continue;
		for (int i = 0; words[i]; i++) {
			size_t n = strlen(words[i]), same = 0;

			while (same < n && tolower((unsigned char)at[same]) ==
					   words[i][same])
				same++;
			if (same == n && (!isalpha((unsigned char)at[n]) ||
					  begins(text, at + n)))
				return true;
		}
	}
	return false;
}

/* A text that says no. */
static bool is_no(const char *text)
{
	static const char *const no[] = { "", "0", "false", "False", "no", "none", "None",
					  "null", NULL };

	for (int i = 0; no[i]; i++)
		if (!strcmp(text, no[i]))
			return true;
	return false;
}

/* ---- what is beside the tensors ----------------------------------------- */

static bool is_half(const struct cache_opening *o, const struct kvt_tensor *t)
{
	for (int64_t i = 0; i < o->nlayers; i++)
		if (o->layer[i].half[0].tensor == t || o->layer[i].half[1].tensor == t)
			return true;
	return false;
}

/* All of them the number of slots, or the last position, or positions up to that one? */
static bool in_order(const uint8_t *bytes, int64_t n, int elem, int64_t slots)
{
	int64_t first = (int64_t)kvt_le(bytes, elem), last = first;
	bool all = true, row = true;

	for (int64_t i = 0; i < n; i++) {
		last = (int64_t)kvt_le(bytes + i * elem, elem);
		all &= last == slots || last == slots - 1;
		row &= last == first + i;
	}
	return all || (row && last == slots - 1 && (first == 0 || n < slots));
}

/* Whole numbers of a name that counts: *odd where slots in order have others. */
static enum kvt_status look_at(bool *odd, const struct cache_opening *o,
			       const struct kvt_tensor *t, int64_t slots)
{
	int64_t n = t->end - t->begin, elem = kvt_tensor_array(t, "").elem;
	enum kvt_status status;
	uint8_t *bytes;

	*odd = false;
	if (!t->dtype || t->strided || !has_word(t->name, count_words) || is_half(o, t) ||
	    (strcmp(t->dtype->name, "int64") && strcmp(t->dtype->name, "int32")) ||
	    n < elem || n > MOST_NUMBERS * elem)
		return KVT_OK;
	if (!(bytes = malloc((size_t)n)))
		return kvt_no_memory(o->err, o->reader->leaf.path);
	status = kvt_file_read(&o->reader->files.file[o->file], bytes, n,
			       o->tensors.data + t->begin, o->err);
	*odd = !status && !in_order(bytes, n / elem, (int)elem, slots);
	free(bytes);
	return status;
}

/* What may be none of a cache in order; *what stays NULL where there is nothing. */
static enum kvt_status find_sign(const char **what, const struct cache_opening *o,
				 int64_t slots)
{
	const struct kvt_tensors *t = &o->tensors;
	enum kvt_status status = KVT_OK;
	bool odd = false;

	for (int64_t i = 0; !*what && i < t->nnotes; i++)
		if ((has_word(t->note[i].name, ring_words) && !is_no(t->note[i].text)) ||
		    has_word(t->note[i].text, ring_words))
			*what = t->note[i].name;
	/* numbers of several rows count with their padding */
	for (int64_t i = 0; !status && !*what && o->nrows == 1 && i < t->count; i++) {
		if (is_half(o, &t->tensor[i]))
			continue;
		odd = has_word(t->tensor[i].name, ring_words);
		if (!odd)
			status = look_at(&odd, o, &t->tensor[i], slots);
		if (odd)
			*what = t->tensor[i].name;
	}
	return status;
}

/* ---- what the user says ------------------------------------------------- */

/* "NEXT" or "NEXT,KEEP" */
static bool read_ring(int64_t *next, int64_t *keep, const char *text)
{
	size_t n = strspn(text, "0123456789"), m = 0;

	*keep = 0;
	if (!n || n > 9)
		return false;
	*next = strtoll(text, NULL, 10);
	if (text[n] != ',')
		return !text[n];
	m = strspn(text + n + 1, "0123456789");
	*keep = m && m < 10 ? strtoll(text + n + 1, NULL, 10) : -1;
	return *keep >= 0 && !text[n + 1 + m];
}

/* Layers with fewer slots than there were tokens are rings. */
static enum kvt_status take_ring(struct cache_opening *o, const char *text, int64_t slots)
{
	const char *path = o->reader->leaf.path;
	int64_t next, keep, seen = slots;
	enum kvt_status status;
	bool found = false;

	if (!read_ring(&next, &keep, text))
		return kvt_fail(o->err, KVT_USAGE,
				"ring is '%.40s', expected no, NEXT or NEXT,KEEP: the slot of the oldest token, and how many first ones are kept",
				text);
	if ((status = kvt_fact_int(&seen, o->hints, "slots", 0, MAX_TOKENS, o->err)))
		return status;
	for (int64_t i = 0; i < o->nlayers; i++) {
		struct cache_layer *l = &o->layer[i];
		int64_t n = l->half[0].shape[CACHE_TOKENS];

		if (l->held.told || n >= seen)
			continue;
		if (keep >= n || next < keep || next > n)
			return kvt_fail(o->err, KVT_USAGE,
					"%s: ring is '%.40s', but %.100s has %lld slots",
					path, text, l->name, LL(n));
		l->held = (struct kvt_held){
			.told = true, .fixed = true, .ring = true, .turned = true,
			.keep = keep, .next = next, .seen = seen, .sliding = !keep,
			.window = keep ? 0 : n };
		found = true;
	}
	return found ? KVT_OK :
	       kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: no layer has fewer slots than %lld tokens, so none is a ring that has begun anew; give --set=slots=N, the tokens that there were",
			path, LL(seen));
}

static enum kvt_status model_window(int64_t *out, const struct cache_opening *o)
{
	*out = 0;
	if (!o->hints)
		return KVT_OK;
	if (o->hints->of_model)
		kvt_hints_model_window(out, o->hints);
	return kvt_hints_window(out, o->hints, o->err);
}

enum kvt_status kvt_cache_order(struct cache_opening *o)
{
	const char *ring = kvt_fact(o->hints, "ring"), *what = NULL;
	const struct cache_layer *plain = NULL;
	int64_t slots = 0, window;
	enum kvt_status status;

	for (int64_t i = 0; i < o->nlayers; i++) {
		const struct cache_layer *l = &o->layer[i];

		if (l->half[0].shape[CACHE_TOKENS] > slots)
			slots = l->half[0].shape[CACHE_TOKENS];
		/* transformers leaves a mark on tensors of its own, which are in order */
		if (!plain && !l->held.told && !l->held.fixed)
			plain = l;
	}
	if (!plain || (ring && !strcmp(ring, "no")))
		return KVT_OK;
	if (ring)
		return take_ring(o, ring, slots);
	if ((status = model_window(&window, o)) || (status = find_sign(&what, o, slots)))
		return status;
	if (!what && window && slots >= window && slots <= window + MOST_SINKS)
		what = "the window of the model";
	o->reader->leaf.unnoticed =
		"plain tensors do not say which token a slot holds: in order from the first one on is assumed; for a ring that has begun anew give --set=ring=NEXT[,KEEP]";
	return !what ? KVT_OK :
	       kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: by %.100s, %.100s of %lld slots may be a ring, or keep its first tokens and drop others; give --set=ring=no if slot i holds token i, or --set=slots=TOKENS and --set=ring=NEXT[,KEEP]",
			o->reader->leaf.path, what, plain->name,
			LL(plain->half[0].shape[CACHE_TOKENS]));
}
