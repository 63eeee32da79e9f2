/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe_saved.c - what a state file of an engine holds, and what takes it back
 *
 *	  listed    40 token ids, which are not one for each position of one sequence
 *	  window    g1 of 0: tokens 0 to 39, 40; --model or --set=window=N says what ...
 *	  states    of sequence 0 after position 39, of sequence 1 after position 20
 *	  restore   needs a context of just 2 sequences with cells of their own, of 80 ...
 *
 *	"saved": {"engine": "llama.cpp", "kind": "ggsn", "version": 10, .., "listed": 40,
 *	          .., "windows": [..], "states": [..], "restore": {"streams": 2, ..}}
 *
 * And for any dump, where they are asked for, ids of tokens and their text, which the
 * vocabulary of a GGUF gives: without one there are ids, and why there is no text.
 * Bytes of a text that are not UTF-8 become U+FFFD, one each, as does a NUL.
 */
#include "print/describe.h"

#include <stdlib.h>
#include <string.h>

#include "formats/model/gguf.h"
#include "formats/model/vocab.h"
#include "lib/snapshot/saved.h"

/* ---- ids and text: as far as they were asked for ---------------------------- */

/* Of each request, and of a list that is not of its tokens. */
struct describe_tokens {
	struct kvt_ids *list;		/* [requests + 1] */
	int64_t n;
	char *no_text;			/* why; NULL: texts are there */
};

void describe_tokens_free(struct describe_tokens *t)
{
	for (int64_t i = 0; t && i < t->n; i++)
		free(t->list[i].text);
	if (t) {
		free(t->list);
		free(t->no_text);
	}
	free(t);
}

/* What is no UTF-8 becomes U+FFFD, byte by byte, as does a NUL. */
static bool clean(struct kvt_ids *list)
{
	const char *s = list->text, *end = s + list->nbytes;
	char *out = malloc(3 * (size_t)list->nbytes + 1), *p = out;

	if (!out)
		return false;
	while (s < end) {
		int n = *s ? kvt_character(s, end) : 0;

		memcpy(p, n ? s : "\xef\xbf\xbd", n ? (size_t)n : 3);
		p += n ? n : 3;
		s += n ? n : 1;
	}
	*p = '\0';
	free(list->text);
	list->text = out;
	list->nbytes = p - out;
	return true;
}

/* Without a vocabulary there are ids alone, and a sentence that says why. */
static enum kvt_status take_texts(struct describe_tokens *t, const char *gguf,
				  struct kvt_error *err)
{
	struct kvt_error why = { "--model=FILE.gguf has the vocabulary" };
	enum kvt_status status = KVT_UNSUPPORTED;
	bool cleaned = true;

	if (gguf && kvt_gguf_is(gguf))
		status = kvt_gguf_texts(t->list, t->n, gguf, &why);
	for (int64_t i = 0; !status && i < t->n; i++)
		cleaned = cleaned && clean(&t->list[i]);
	if (status == KVT_UNSUPPORTED)
		return (t->no_text = strdup(why.text)) ? KVT_OK : KVT_SYSTEM;
	return status ? kvt_fail(err, status, "%s", why.text) :
	       cleaned ? KVT_OK : KVT_SYSTEM;
}

enum kvt_status describe_tokens(struct describe_tokens **out,
				const struct kvt_description *d, const char *gguf,
				struct kvt_error *err)
{
	const struct kvt_snapshot *s = d->snapshot;
	const struct kvt_saved *saved = kvt_dump_saved(d->dump);
	struct describe_tokens *t = calloc(1, sizeof(*t));
	enum kvt_status status = KVT_SYSTEM;

	*out = t;
	if (t && (t->list = calloc((size_t)s->nrequests + 1, sizeof(*t->list)))) {
		t->n = s->nrequests + 1;
		for (int64_t r = 0; r < s->nrequests; r++)
			t->list[r] = (struct kvt_ids){ .id = s->request[r].token_ids,
						       .n = s->request[r].ntoken_ids };
		if (saved && saved->id)
			t->list[s->nrequests] = (struct kvt_ids){ .id = saved->id,
								  .n = saved->nids };
		status = take_texts(t, gguf, err);
	}
	return status == KVT_SYSTEM && !err->text[0] ?
	       kvt_fail(err, status, "%s: out of memory", d->path) : status;
}

/* ---- text --------------------------------------------------------------------- */

static void print_ids(const struct describe_tokens *t, int64_t i, const char *whose)
{
	const struct kvt_ids *list = &t->list[i];

	if (!list->n)
		return;
	print_label("ids");
	plainf("%s:", whose);
	for (int64_t k = 0; k < list->n; k++)
		plainf(" %ld", (long)list->id[k]);
	putchar('\n');
	print_label("text");
	if (t->no_text)
		plainf("%s: not known: %s\n", whose, t->no_text);
	else
		plainf("%s: %s\n", whose, list->text);
}

static void print_list(const struct kvt_saved *saved)
{
	print_label("listed");
	if (!saved->nids)
		plainf("no token ids: a program that is to go on has to know them\n");
	else
		plainf("%lld token id%s, %s\n", LL(saved->nids),
		       plural(saved->nids), saved->is_tokens ? "one for each position" :
		       "which are not one for each position of one sequence");
}

/* The last positions of a request that a group with a window has, without a gap. */
static struct kvt_range tail_of(const struct kvt_request *q, int g)
{
	struct kvt_range tail = { q->first_token, q->first_token + q->ntokens };

	for (int64_t i = 0; i < q->nholes; i++)
		if (q->hole[i].group == (uint32_t)g && q->hole[i].end > tail.begin)
			tail.begin = q->hole[i].end;
	return tail;
}

static void print_window(const struct kvt_group *g, const struct kvt_request *q,
			 struct kvt_range tail)
{
	int64_t n = tail.end - tail.begin, window = g->window;

	print_label("window");
	plainf("%s of %s: ", g->id, q->id);
	if (n < 1) {
		plainf("nothing\n");
		return;
	}
	plainf("tokens %lld to %lld, ", LL(tail.begin), LL(tail.end) - 1);
	if (!window)
		plainf("%lld; --model or --set=window=N says what it needs\n", LL(n));
	else
		plainf("%lld of %lld that it needs%s\n",
		       LL(n < window ? n : window), LL(window),
		       n >= window ? "" : tail.begin ? "; older ones are gone" :
		       ", as there are no more");
}

/* Values have the window of their keys. */
static bool has_window(const struct kvt_group *g)
{
	return g->kind == KVT_SLIDING_WINDOW && kvt_group_half(g) != 1;
}

static void print_windows(const struct kvt_snapshot *s)
{
	for (int g = 0; g < s->ngroups; g++)
		for (int64_t r = 0; r < s->nrequests && has_window(&s->group[g]); r++)
			print_window(&s->group[g], &s->request[r],
				     tail_of(&s->request[r], g));
}

static void print_states(const struct kvt_saved *saved)
{
	if (!saved->nstates)
		return;
	print_label("states");
	for (int64_t i = 0; i < saved->nstates; i++)
		plainf("%sof sequence %ld after position %ld", i ? ", " : "",
		       (long)saved->state[i].sequence, (long)saved->state[i].position);
	putchar('\n');
}

/* Tokens that a context must have room for; 0: any. */
static int64_t context_of(const struct kvt_saved *saved)
{
	int64_t most = 0;

	for (int i = 0; i < saved->ncaches; i++)
		if (saved->cache[i].cells > most)
			most = saved->cache[i].cells;
	return most * (saved->streams > 1 ? saved->streams : 1);
}

static int64_t window_cells(const struct kvt_saved *saved)
{
	int64_t cells = 0;

	for (int i = 0; i < saved->ncaches; i++)
		if (saved->cache[i].windowed)
			cells = saved->cache[i].cells;
	return cells;
}

static void print_restore(const struct kvt_saved *saved)
{
	const int64_t all = context_of(saved), window = window_cells(saved);

	print_label("restore");
	plainf("needs a context of ");
	if (saved->streams > 1)
		plainf("just %lld sequences with cells of their own", LL(saved->streams));
	else if (saved->whole && saved->sequences > 1)
		plainf("%lld sequences or more%s", LL(saved->sequences),
		       saved->streams ? " with unified cells" : "");
	else
		plainf("one sequence%s", saved->streams ? ", or unified cells" : "");
	if (all)
		plainf(", of %lld tokens or more", LL(all));
	if (window)
		plainf(", %lld in its window cache", LL(window));
	if (saved->type[0])
		plainf("; flash attention %s, keys %s", saved->transposed ? "off" : "on",
		       saved->type[0]);
	if (saved->type[1])
		plainf(", values %s", saved->type[1]);
	plainf("%s\n", saved->partial ?
	       "; and the rest of the sequence, which is not in this part" : "");
}

void describe_saved_text(const struct kvt_description *d, const struct describe_tokens *t)
{
	const struct kvt_snapshot *s = d->snapshot;
	const struct kvt_saved *saved = kvt_dump_saved(d->dump);

	for (int64_t r = 0; t && r < s->nrequests; r++)
		print_ids(t, r, s->request[r].id ? s->request[r].id : "?");
	if (!saved)
		return;
	if (saved->version)
		print_list(saved);
	if (t)
		print_ids(t, s->nrequests, "list");
	print_windows(s);
	print_states(saved);
	print_restore(saved);
}

/* ---- JSON ----------------------------------------------------------------------- */

void describe_ids_json(struct json_out *out, json_t *o, const struct describe_tokens *t,
		       int64_t r)
{
	const struct kvt_ids *list;
	json_t *ids;

	if (!t)
		return;
	list = &t->list[r < 0 ? t->n - 1 : r];
	if (!list->id) {
		json_put(out, o, "token_ids", json_null());
		json_put(out, o, "text", json_null());
		return;
	}
	ids = json_put_array(out, o, "token_ids");
	for (int64_t i = 0; i < list->n; i++)
		json_append_int(out, ids, list->id[i]);
	json_put_text(out, o, "text", t->no_text ? NULL : list->text);
	json_put_text(out, o, "no_text", t->no_text);
}

static void put_windows(struct json_out *out, json_t *o, const struct kvt_snapshot *s)
{
	json_t *list = json_put_array(out, o, "windows");

	for (int g = 0; g < s->ngroups; g++)
		for (int64_t r = 0; r < s->nrequests && has_window(&s->group[g]); r++) {
			struct kvt_range tail = tail_of(&s->request[r], g);
			json_t *w = json_append_object(out, list);

			json_put_text(out, w, "group", s->group[g].id);
			json_put_text(out, w, "request", s->request[r].id);
			json_put_int(out, w, "begin", tail.begin);
			json_put_int(out, w, "end", tail.end);
			json_put_known(out, w, "window", s->group[g].window,
				       s->group[g].window > 0);
		}
}

static void put_restore(struct json_out *out, json_t *o, const struct kvt_saved *saved)
{
	json_t *r = json_put_object(out, o, "restore");
	const int64_t cells = window_cells(saved);

	json_put_known(out, r, "streams", saved->streams, saved->streams > 0);
	json_put_int(out, r, "sequences", !saved->whole ? 1 : saved->sequences);
	json_put_int(out, r, "tokens", context_of(saved));
	json_put_known(out, r, "window_cells", cells, cells > 0);
	json_put_text(out, r, "type_k", saved->type[0]);
	json_put_text(out, r, "type_v", saved->type[1]);
	json_put_text(out, r, "flash_attention", !saved->type[0] ? NULL :
		      saved->transposed ? "off" : "on");
}

void describe_saved_json(struct json_out *out, const struct kvt_description *d,
			const struct describe_tokens *t)
{
	const struct kvt_saved *saved = kvt_dump_saved(d->dump);
	json_t *o = json_put_if(out, out->root, "saved", saved), *list;

	if (!o)
		return;
	json_put_text(out, o, "engine", saved->engine);
	json_put_text(out, o, "kind", saved->kind);
	json_put_known(out, o, "version", saved->version, saved->version > 0);
	json_put_bool(out, o, "partial", saved->partial);
	json_put_int(out, o, "listed", saved->nids);
	json_put_bool(out, o, "listed_are_tokens", saved->is_tokens);
	describe_ids_json(out, o, t, -1);
	put_windows(out, o, d->snapshot);
	list = json_put_array(out, o, "states");
	for (int64_t i = 0; i < saved->nstates; i++) {
		json_t *state = json_append_object(out, list);

		json_put_int(out, state, "sequence", saved->state[i].sequence);
		json_put_int(out, state, "position", saved->state[i].position);
	}
	put_restore(out, o, saved);
}
