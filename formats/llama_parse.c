/* SPDX-License-Identifier: Apache-2.0 */
/* llama_parse.c - the ways to read a state file of llama.cpp, and which one fits */
#include "formats/llama_cursor.h"

#include <stdlib.h>
#include <string.h>

#include "formats/little_endian.h"

enum { GGSN = 0x6767736e, GGSQ = 0x67677371 };
#define SEQUENCE UINT32_C(0xaf143cd8)

/*
 * Builds of versions 9 and 2 wrote logits first, and no streams, until they did;
 * the next versions added a third number to the extra ones of a cell.
 */
static const struct {
	uint32_t magic;
	int version;
	const char *kind;
	bool older;			/* may have outputs, and no streams */
	int extra[3];			/* -1: none */
} versions[] = {
	{ GGSN, 9, "ggsn", true, { 0, 8, -1 } },
	{ GGSN, 10, "ggsn", false, { 0, 8, 12 } },
	{ GGSQ, 2, "ggsq", true, { 0, 8, -1 } },
	{ GGSQ, 3, "ggsq", false, { 0, 8, 12 } },
	{ SEQUENCE, 0, "sequence", false, { 0, 8, 12 } },
};
enum { NVERSIONS = sizeof(versions) / sizeof(versions[0]) };

const struct kvt_ggml_type *kvt_ggml_type(int id)
{
	static const struct kvt_ggml_type types[] = {
		{ 0, "f32", 1, 4, "float32" },   { 1, "f16", 1, 2, "float16" },
		{ 30, "bf16", 1, 2, "bfloat16" }, { 2, "q4_0", 32, 18, NULL },
		{ 3, "q4_1", 32, 20, NULL },     { 6, "q5_0", 32, 22, NULL },
		{ 7, "q5_1", 32, 24, NULL },     { 8, "q8_0", 32, 34, NULL },
		{ 20, "iq4_nl", 32, 18, NULL },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].id == id)
			return &types[i];
	return NULL;
}

/* ---- all readings ------------------------------------------------------- */

/* How the memory is read: which caches have values, and what follows them. */
struct reading {
	bool streams, outputs, recurrent;
	int extra, ncaches;
	bool values[KVT_LLAMA_CACHES];
};

struct search {
	struct llama_cursor cursor;
	int found;
	struct reading now, first, second;
};

static void found(struct search *s)
{
	*(s->found++ ? &s->second : &s->first) = s->now;
}

static void try_rest(struct search *s, int64_t at, bool any_cell);

/* Another cache, with values or without them. */
static void try_cache(struct search *s, int64_t at, bool any_cell)
{
	struct llama_cursor *c = &s->cursor;
	int ncaches = s->now.ncaches;

	for (int values = 1; values >= 0 && ncaches < KVT_LLAMA_CACHES; values--) {
		struct llama_members members = { NULL, 0 };
		bool asked = false;
		int64_t n;

		c->at = at;
		if (!llama_stream_count(&n, c) ||
		    !llama_streams(c, n, values, &asked, NULL, &members) ||
		    (!values && !asked))
			continue;
		s->now.values[ncaches] = values;
		s->now.ncaches = ncaches + 1;
		try_rest(s, c->at, any_cell || asked);
		s->now.ncaches = ncaches;
	}
}

static void try_states(struct search *s, int64_t at)
{
	struct kvt_llama_states states = { 0 };

	s->cursor.at = at;
	s->now.recurrent = llama_recurrent(&s->cursor, &states);
	if (s->now.recurrent)
		found(s);
	s->now.recurrent = false;
}

/* Behind a cache: nothing, states, or another one. */
static void try_rest(struct search *s, int64_t at, bool any_cell)
{
	if (at < s->cursor.file->nbytes) {
		try_states(s, at);
		try_cache(s, at, any_cell);
	} else if (any_cell || !s->cursor.extra) {
		/* what a cell has besides cannot be told where there is none */
		found(s);
	}
}

static void try_readings(struct search *s, int version, bool outputs, int64_t at)
{
	bool older = versions[version].older;

	s->now = (struct reading){ .outputs = outputs, .streams = !older };
	try_states(s, at);
	for (int i = 0; i < 3 && versions[version].extra[i] >= 0; i++)
		for (int streams = !older; streams <= 1; streams++) {
			s->now = (struct reading){ .outputs = outputs, .streams = streams,
						   .extra = versions[version].extra[i] };
			s->cursor.extra = s->now.extra;
			s->cursor.streams = streams;
			try_cache(s, at, false);
		}
}

static void try_all(struct search *s, int version, int64_t at)
{
	try_readings(s, version, false, at);
	s->cursor.at = at;
	if (versions[version].magic == GGSN && versions[version].older &&
	    llama_outputs(&s->cursor))
		try_readings(s, version, true, s->cursor.at);
}

static int by_member(const void *a, const void *b)
{
	const struct kvt_llama_member *m = a, *n = b;

	if (m->sequence != n->sequence)
		return m->sequence < n->sequence ? -1 : 1;
	if (m->position != n->position)
		return m->position < n->position ? -1 : 1;
	if (m->stream != n->stream)
		return m->stream < n->stream ? -1 : 1;
	return m->cell < n->cell ? -1 : m->cell > n->cell;
}

/* The cache again, this time to keep. */
static enum kvt_status keep_cache(struct kvt_llama_cache *out, struct llama_cursor *c,
				  bool values)
{
	struct llama_members members = { NULL, 0 };
	bool asked = false;
	int64_t at, n;

	if (!llama_stream_count(&n, c))
		return KVT_BAD_INPUT;
	at = c->at;
	out->stream = calloc((size_t)n, sizeof(*out->stream));
	if (!out->stream)
		return KVT_SYSTEM;
	out->nstreams = n;
	if (!llama_streams(c, n, values, &asked, NULL, &members))
		return KVT_BAD_INPUT;
	out->member = calloc((size_t)members.count + 1, sizeof(*out->member));
	if (!out->member)
		return KVT_SYSTEM;
	c->at = at;
	out->nmembers = members.count;
	members = (struct llama_members){ out->member, 0 };
	if (!llama_streams(c, n, values, &asked, out->stream, &members))
		return KVT_BAD_INPUT;
	qsort(out->member, (size_t)out->nmembers, sizeof(*out->member), by_member);
	return KVT_OK;
}

static enum kvt_status keep_states(struct kvt_llama_states *out, struct llama_cursor *c)
{
	int64_t at = c->at;

	if (!llama_recurrent(c, out))
		return KVT_BAD_INPUT;
	out->member = calloc((size_t)out->nmembers + 1, sizeof(*out->member));
	if (!out->member)
		return KVT_SYSTEM;
	c->at = at;
	if (!llama_recurrent(c, out))
		return KVT_BAD_INPUT;
	qsort(out->member, (size_t)out->nmembers, sizeof(*out->member), by_member);
	return KVT_OK;
}

static enum kvt_status keep(struct kvt_llama_state *out, struct search *s, int64_t at)
{
	struct llama_cursor *c = &s->cursor;
	enum kvt_status status = KVT_OK;

	c->extra = s->first.extra;
	c->streams = s->first.streams;
	c->at = at;
	if (s->first.outputs && !llama_outputs(c))
		status = KVT_BAD_INPUT;
	for (int i = 0; !status && i < s->first.ncaches; i++) {
		out->ncaches = i + 1;
		status = keep_cache(&out->cache[i], c, s->first.values[i]);
	}
	out->extra = s->first.extra;
	if (!status && s->first.recurrent)
		status = keep_states(&out->states, c);
	if (!status)
		return KVT_OK;
	return kvt_fail(c->err, status, "%s: %s", c->file->path,
			status == KVT_SYSTEM ? "out of memory" :
			"changed while it was read");
}

static const char *describe(char text[120], const struct reading *r)
{
	snprintf(text, 120, "%d cache%s%s%s with %d extra bytes a cell%s", r->ncaches,
		 r->ncaches == 1 ? "" : "s",
		 r->ncaches && !r->values[0] ? " without values" : "",
		 r->recurrent ? " and states" : "", r->extra,
		 r->outputs ? " behind outputs" : r->streams ? "" : " and no streams");
	return text;
}

static enum kvt_status choose(struct kvt_llama_state *out, struct search *s, int version,
			      int64_t at)
{
	struct llama_cursor *c = &s->cursor;
	char a[120], b[120];

	try_all(s, version, at);
	if (c->status)
		return c->status;
	if (!s->found)
		return kvt_fail(c->err, KVT_BAD_INPUT,
				"%s: no reading of %s version %d ends with the file", c->file->path,
				out->kind, out->version);
	if (s->found > 1)
		return kvt_fail(c->err, KVT_BAD_INPUT, "%s: can be read as %s and as %s",
				c->file->path, describe(a, &s->first),
				describe(b, &s->second));
	return keep(out, s, at);
}

/* ---- the beginning ------------------------------------------------------ */

static bool take_arch(char out[64], struct llama_cursor *c)
{
	int64_t n;
	uint64_t letter;

	if (!llama_count(&n, c, 63))
		return false;
	for (int64_t i = 0; i < n; i++) {
		if (!llama_take(&letter, c, 1) || letter < ' ' || letter > '~')
			return false;
		out[i] = (char)letter;
	}
	out[n] = '\0';
	return true;
}

static enum kvt_status cut_off(const struct llama_cursor *c)
{
	return c->status ? c->status :
	       kvt_fail(c->err, KVT_BAD_INPUT, "%s: malformed before byte %lld",
			c->file->path, (long long)c->at);
}

static enum kvt_status find_version(int *out, struct llama_cursor *c)
{
	uint64_t magic, version = 0;

	if (!llama_take(&magic, c, 4) ||
	    (magic != SEQUENCE && !llama_take(&version, c, 4)))
		return cut_off(c);
	for (*out = 0; *out < NVERSIONS; ++*out)
		if (versions[*out].magic == magic &&
		    versions[*out].version == (int64_t)version)
			return KVT_OK;
	if (magic != GGSN && magic != GGSQ)
		return kvt_fail(c->err, KVT_BAD_INPUT, "%s: no state file of llama.cpp",
				c->file->path);
	return kvt_fail(c->err, KVT_UNSUPPORTED,
			"%s: %s version %llu, expected %s", c->file->path,
			magic == GGSN ? "ggsn" : "ggsq", (unsigned long long)version,
			magic == GGSN ? "9 or 10" : "2 or 3");
}

static enum kvt_status parse(struct kvt_llama_state *out, struct search *s)
{
	struct llama_cursor *c = &s->cursor;
	enum kvt_status status;
	uint64_t sequence;
	int version;

	if ((status = find_version(&version, c)))
		return status;
	out->kind = versions[version].kind;
	out->version = versions[version].version;
	if (versions[version].magic == SEQUENCE) {
		if (!llama_take(&sequence, c, 4))
			return cut_off(c);
	} else if (!llama_count(&out->ntokens, c, INT32_MAX) ||
		   (out->tokens_at = c->at, !llama_skip(c, out->ntokens, 4))) {
		return cut_off(c);
	}
	if (versions[version].magic == GGSN && !take_arch(out->arch, c))
		return cut_off(c);
	return choose(out, s, version, c->at);
}

enum kvt_status kvt_llama_parse(struct kvt_llama_state *out, const struct kvt_file *file,
				struct kvt_error *err)
{
	struct search s = { .cursor = { .file = file, .err = err } };
	enum kvt_status status;

	*out = (struct kvt_llama_state){ 0 };
	if (!(s.cursor.window = malloc(KVT_LLAMA_WINDOW)))
		return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", file->path);
	status = parse(out, &s);
	free(s.cursor.window);
	if (status)
		kvt_llama_free(out);
	return status;
}

void kvt_llama_free(struct kvt_llama_state *state)
{
	for (int i = 0; i < state->ncaches; i++) {
		free(state->cache[i].stream);
		free(state->cache[i].member);
	}
	free(state->states.member);
	*state = (struct kvt_llama_state){ 0 };
}

bool kvt_llama_probe(const uint8_t *head, int64_t nhead)
{
	uint32_t magic = nhead >= 8 ? kvt_le32(head) : 0;

	return magic == GGSN || magic == GGSQ || magic == SEQUENCE;
}
