/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.c - the ways to read a state file of llama.cpp, and which one fits
 *
 * Fields were added without a new version, and some depend on the model, so that the
 * first bytes do not tell how the others are to be read.  All readings are tried: with
 * and without streams and outputs, with 0, 8 or 12 bytes more in a cell, one or two
 * caches, recurrent states or none.  One that ends where the file does is right; none
 * or several are refused, with what they differ in.  Time: readings times cells, for
 * rows are skipped.
 */
#include "formats/llama/llama.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/little_endian.h"

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
	bool whole;			/* of all sequences, behind the architecture */
	bool older;			/* may have outputs, and no streams */
	int extra[3];			/* -1: none */
} versions[] = {
	{ GGSN, 9, "ggsn", true, true, { 0, 8, -1 } },
	{ GGSN, 10, "ggsn", true, false, { 0, 8, 12 } },
	{ GGSQ, 2, "ggsq", false, true, { 0, 8, -1 } },
	{ GGSQ, 3, "ggsq", false, false, { 0, 8, 12 } },
	{ SEQUENCE, 0, "sequence", false, false, { 0, 8, 12 } },
	{ 0, 0, "state", true, true, { 0, 8, 12 } },	/* llama.cpp's, behind tokens */
	{ 0, 0, "sequence", false, true, { 0, 8, -1 } },	/* the memory alone */
};
enum { BARE = sizeof(versions) / sizeof(versions[0]) - 1, BARE_STATE = BARE - 1 };

/* ---- all readings ------------------------------------------------------- */

/* How the memory is read: which caches have values, and what follows them. */
struct reading {
	bool streams, outputs, recurrent;
	int extra, ncaches;
	int64_t cells;			/* in the last cache */
	bool values[KVT_LLAMA_CACHES];
};

struct search {
	struct kvt_llama_cursor cursor;
	/* of each memory: how many, and the first two of them */
	int found[KVT_LLAMA_MEMORIES];
	struct reading now, first[KVT_LLAMA_MEMORIES], second[KVT_LLAMA_MEMORIES];
	int64_t ended;			/* where a reading ended before the file does */
};

static void found(struct search *s)
{
	enum kvt_llama_memory memory = !s->now.recurrent ? KVT_LLAMA_ATTENTION :
				       s->now.ncaches ? KVT_LLAMA_HYBRID :
							KVT_LLAMA_RECURRENT;

	(s->found[memory]++ ? s->second : s->first)[memory] = s->now;
}

static void try_rest(struct search *s, int64_t at, bool any_cell);

/* Another cache, with values or without them. */
static void try_cache(struct search *s, int64_t at, bool any_cell)
{
	struct kvt_llama_cursor *c = &s->cursor;
	int64_t cells = s->now.cells;
	int ncaches = s->now.ncaches;

	for (int values = 1; values >= 0 && ncaches < KVT_LLAMA_CACHES; values--) {
		struct kvt_llama_members members = { .count = 0 };
		bool asked = false;
		int64_t n;

		c->at = at;
		if (!kvt_llama_stream_count(&n, c) ||
		    !kvt_llama_streams(c, n, values, &asked, NULL, &members) ||
		    (!values && !asked))
			continue;
		/* layers with a window have no token that the others do not have */
		if (ncaches && members.count && !cells)
			continue;
		s->now.cells = members.count;
		s->now.values[ncaches] = values;
		s->now.ncaches = ncaches + 1;
		try_rest(s, c->at, any_cell || asked);
		s->now.ncaches = ncaches;
		s->now.cells = cells;
	}
}

static void try_states(struct search *s, int64_t at)
{
	struct kvt_llama_states states = { 0 };

	s->cursor.at = at;
	s->now.recurrent = kvt_llama_recurrent(&s->cursor, &states);
	if (s->now.recurrent)
		found(s);
	s->now.recurrent = false;
}

/* Behind a cache: nothing, states, or another one. */
static void try_rest(struct search *s, int64_t at, bool any_cell)
{
	if (at < s->cursor.file->nbytes) {
		if (any_cell && s->ended < at)
			s->ended = at;
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
	if (versions[version].whole && versions[version].older &&
	    kvt_llama_outputs(&s->cursor))
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
static enum kvt_status keep_cache(struct kvt_llama_cache *out, struct kvt_llama_cursor *c,
				  bool values)
{
	struct kvt_llama_members members = { .count = 0 };
	bool asked = false;
	int64_t at, n;

	if (!kvt_llama_stream_count(&n, c))
		return KVT_BAD_INPUT;
	at = c->at;
	out->stream = calloc((size_t)n, sizeof(*out->stream));
	if (!out->stream)
		return KVT_SYSTEM;
	out->nstreams = n;
	if (!kvt_llama_streams(c, n, values, &asked, NULL, &members))
		return KVT_BAD_INPUT;
	out->member = calloc((size_t)members.count + 1, sizeof(*out->member));
	out->row = calloc((size_t)members.nrows + 1, sizeof(*out->row));
	if (!out->member || !out->row)
		return KVT_SYSTEM;
	c->at = at;
	out->nmembers = members.count;
	members = (struct kvt_llama_members){ .member = out->member, .row = out->row };
	return kvt_llama_streams(c, n, values, &asked, out->stream, &members) ?
	       KVT_OK : KVT_BAD_INPUT;
}

static enum kvt_status keep_states(struct kvt_llama_states *out,
				   struct kvt_llama_cursor *c)
{
	int64_t at = c->at;

	if (!kvt_llama_recurrent(c, out))
		return KVT_BAD_INPUT;
	out->member = calloc((size_t)out->nmembers + 1, sizeof(*out->member));
	if (!out->member)
		return KVT_SYSTEM;
	c->at = at;
	return kvt_llama_recurrent(c, out) ? KVT_OK : KVT_BAD_INPUT;
}

static enum kvt_status keep(struct kvt_llama_state *out, struct search *s,
			    const struct reading *r, int64_t at)
{
	struct kvt_llama_cursor *c = &s->cursor;
	enum kvt_status status = KVT_OK;

	c->extra = r->extra;
	c->streams = r->streams;
	c->at = at;
	if (r->outputs && !kvt_llama_outputs(c))
		status = KVT_BAD_INPUT;
	out->outputs_at = at;
	out->memory_at = c->at;
	out->streams = r->streams;
	for (int i = 0; !status && i < r->ncaches; i++) {
		out->ncaches = i + 1;
		status = keep_cache(&out->cache[i], c, r->values[i]);
	}
	out->extra = r->extra;
	out->outputs = r->outputs;
	if (!status && r->recurrent)
		status = keep_states(&out->states, c);
	if (!status)
		return KVT_OK;
	return kvt_fail(c->err, status, "%s: %s", c->file->path,
			status == KVT_SYSTEM ? "out of memory" :
			"changed while it was read");
}

/* ---- which one ---------------------------------------------------------- */

const char *const kvt_llama_memory_names[] = {
	[KVT_LLAMA_ATTENTION] = "attention", [KVT_LLAMA_RECURRENT] = "recurrent",
	[KVT_LLAMA_HYBRID] = "hybrid", NULL
};

/* Of these architectures it is known; a cell alone may look like either. */
static enum kvt_llama_memory memory_of(const char *arch)
{
	static const struct {
		const char *arch;
		enum kvt_llama_memory memory;
	} rows[] = {
		{ "mamba", KVT_LLAMA_RECURRENT },     { "mamba2", KVT_LLAMA_RECURRENT },
		{ "rwkv6", KVT_LLAMA_RECURRENT },     { "rwkv7", KVT_LLAMA_RECURRENT },
		{ "rwkv6qwen2", KVT_LLAMA_RECURRENT }, { "arwkv7", KVT_LLAMA_RECURRENT },
		{ "jamba", KVT_LLAMA_HYBRID },        { "lfm2", KVT_LLAMA_HYBRID },
		{ "falcon-h1", KVT_LLAMA_HYBRID },    { "plamo2", KVT_LLAMA_HYBRID },
		{ "granitehybrid", KVT_LLAMA_HYBRID }, { "nemotron_h", KVT_LLAMA_HYBRID },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(rows[i].arch, arch))
			return rows[i].memory;
	return KVT_LLAMA_UNKNOWN;
}

static const char *describe(char text[120], const struct reading *r)
{
	snprintf(text, 120, "%d cache%s%s%s with %d extra bytes a cell%s", r->ncaches,
		 r->ncaches == 1 ? "" : "s",
		 r->ncaches && !r->values[0] ? " without values" : "",
		 r->recurrent ? " and states" : "", r->extra,
		 r->outputs ? " after outputs" : r->streams ? "" : " and no streams");
	return text;
}

static enum kvt_status ambiguous(const struct search *s, enum kvt_llama_memory memory)
{
	const struct reading *r[2] = { NULL, NULL };
	char a[120], b[120], choice[64] = "";

	if (memory != KVT_LLAMA_UNKNOWN && s->found[memory] > 1) {
		r[0] = &s->first[memory];
		r[1] = &s->second[memory];
	}
	for (int m = 0; m < KVT_LLAMA_MEMORIES && !r[1]; m++)
		if (s->found[m]) {
			r[r[0] != NULL] = &s->first[m];
			snprintf(choice + strlen(choice), 32, "%s%s",
				 r[1] ? " or memory=" : "; give --set memory=",
				 kvt_llama_memory_names[m]);
		}
	return kvt_fail(s->cursor.err, KVT_BAD_INPUT, "%s: can be read as %s and as %s%s",
			s->cursor.file->path, describe(a, r[0]), describe(b, r[1]),
			choice);
}

/* ---- why none is ---------------------------------------------------------- */

/* The same as the file begins with, behind the end of one. */
static bool begins_again(struct kvt_llama_cursor *c, int64_t at)
{
	uint64_t first = 0, again = 1;

	c->at = 0;
	if (!kvt_llama_take(&first, c, 8))
		return false;
	c->at = at;
	return kvt_llama_take(&again, c, 8) && first == again;
}

/* A state that was taken with its rows left where they are. */
static bool is_hollow(struct search *s, int version, int64_t at)
{
	struct search hollow = { .cursor = s->cursor };
	int all = 0;

	hollow.cursor.hollow = true;
	try_all(&hollow, version, at);
	for (int m = 0; m < KVT_LLAMA_MEMORIES; m++)
		all += hollow.found[m];
	return all > 0;
}

/* No reading ends with the file: as much as can be said of why. */
static enum kvt_status refuse(struct search *s, const struct kvt_llama_state *out,
			      int version, int64_t at)
{
	struct kvt_llama_cursor *c = &s->cursor;
	const struct kvt_llama_cut cut = c->cut;
	const char *path = c->file->path, *fork;
	int64_t nbytes = c->file->nbytes;

	if ((fork = kvt_llama_fork(c, out->whole, out->version, at)))
		return kvt_fail(c->err, KVT_UNSUPPORTED,
				"%s: a state file of %s, whose layout is not that of llama.cpp and not read",
				path, fork);
	if (is_hollow(s, version, at))
		return kvt_fail(c->err, KVT_BAD_INPUT,
				"%s: a state without its data: taken with LLAMA_STATE_SEQ_FLAGS_ON_DEVICE, which leaves keys and values on the device",
				path);
	if (cut.at > s->ended)
		return kvt_llama_tell_cut(c, out->ntokens);
	if (s->ended && begins_again(c, s->ended))
		return kvt_fail(c->err, KVT_BAD_INPUT,
				"%s: a state file of %lld bytes, then another one: it has %lld bytes",
				path, LL(s->ended), LL(nbytes));
	if (s->ended)
		return kvt_fail(c->err, KVT_BAD_INPUT,
				"%s: a state file may end at byte %lld, but the file has %lld bytes",
				path, LL(s->ended), LL(nbytes));
	return kvt_fail(c->err, KVT_BAD_INPUT,
			"%s: no variant of %s version %d fits the length of the file, %lld bytes",
			path, out->kind, out->version, LL(nbytes));
}

/* The only reading; of the memory that was asked, or that the model has, if several. */
static enum kvt_status choose(struct kvt_llama_state *out, struct search *s, int version,
			      int64_t at, enum kvt_llama_memory memory)
{
	struct kvt_llama_cursor *c = &s->cursor;
	int all = 0, last = 0;

	try_all(s, version, at);
	if (c->status)
		return c->status;
	for (int m = 0; m < KVT_LLAMA_MEMORIES; m++) {
		all += s->found[m];
		last = s->found[m] ? m : last;
	}
	if (!all)
		return c->status ? c->status : refuse(s, out, version, at);
	if (memory != KVT_LLAMA_UNKNOWN && !s->found[memory])
		return kvt_fail(c->err, KVT_BAD_INPUT,
				"%s: no variant of %s version %d with memory=%s fits the length of the file",
				c->file->path, out->kind, out->version,
				kvt_llama_memory_names[memory]);
	if (memory == KVT_LLAMA_UNKNOWN && all > 1)
		memory = memory_of(out->arch);
	else if (memory == KVT_LLAMA_UNKNOWN)
		memory = (enum kvt_llama_memory)last;
	if (memory == KVT_LLAMA_UNKNOWN || s->found[memory] != 1)
		return ambiguous(s, all == s->found[last] ?
				    (enum kvt_llama_memory)last : memory);
	return keep(out, s, &s->first[memory], at);
}

/* ---- whose cells -------------------------------------------------------- */

/*
 * In a file of one sequence some cells name it and some do not: they are all of
 * it.  Where none does, it has the number that the file began with, or 0.
 */
static void own_cells(struct kvt_llama_member *member, int64_t n, int32_t owner)
{
	for (int64_t i = 0; i < n; i++)
		if (member[i].sequence == KVT_LLAMA_OWN)
			member[i].sequence = owner;
	if (n)
		qsort(member, (size_t)n, sizeof(*member), by_member);
}

static enum kvt_status own(struct kvt_llama_state *s, int32_t owner,
			   const struct kvt_llama_cursor *c)
{
	const struct kvt_llama_member *named = NULL, *other = NULL;
	bool anonymous = false;

	for (int i = 0; i <= s->ncaches; i++) {
		const struct kvt_llama_member *m = i < s->ncaches ? s->cache[i].member :
								    s->states.member;
		int64_t n = i < s->ncaches ? s->cache[i].nmembers : s->states.nmembers;

		for (int64_t k = 0; k < n; k++) {
			if (m[k].sequence == KVT_LLAMA_OWN)
				anonymous = true;
			else if (!named)
				named = &m[k];
			else if (m[k].sequence != named->sequence)
				other = &m[k];
		}
	}
	if (anonymous && other)
		return kvt_fail(c->err, KVT_BAD_INPUT,
				"%s: has llama.cpp cells of sequences %ld and %ld, and some without a sequence",
				c->file->path, (long)named->sequence,
				(long)other->sequence);
	if (named)
		owner = named->sequence;
	for (int i = 0; i < s->ncaches; i++)
		own_cells(s->cache[i].member, s->cache[i].nmembers, owner);
	own_cells(s->states.member, s->states.nmembers, owner);
	return KVT_OK;
}

/* ---- the beginning ------------------------------------------------------ */

static bool take_arch(char out[64], struct kvt_llama_cursor *c)
{
	int64_t n;
	uint64_t letter;

	if (!kvt_llama_count(&n, c, 63))
		return false;
	for (int64_t i = 0; i < n; i++) {
		if (!kvt_llama_take(&letter, c, 1) || letter < ' ' || letter > '~')
			return false;
		out[i] = (char)letter;
	}
	out[n] = '\0';
	return true;
}

static enum kvt_status cut_off(const struct kvt_llama_cursor *c)
{
	if (c->status)
		return c->status;
	if (!c->file->nbytes)
		return kvt_fail(c->err, KVT_BAD_INPUT, "%s: the file is empty, 0 bytes",
				c->file->path);
	return kvt_fail(c->err, KVT_BAD_INPUT,
			"%s: malformed before byte %lld of %lld, or cut there",
			c->file->path, LL(c->at), LL(c->file->nbytes));
}

/* The name of an architecture behind its length: letters, digits and dashes. */
static bool begins_with_arch(const uint8_t *head, int64_t nhead)
{
	int64_t n = nhead < 8 ? 0 : kvt_le32(head);

	if (n < 2 || n > 40 || nhead < 4 + n || head[4] < 'a' || head[4] > 'z')
		return false;
	for (int64_t i = 0; i < n; i++)
		if (!memchr("abcdefghijklmnopqrstuvwxyz0123456789-_.", head[4 + i], 39))
			return false;
	return true;
}

static enum kvt_status find_version(int *out, struct kvt_llama_cursor *c, bool bare)
{
	uint64_t magic, version = 0;

	if (!kvt_llama_take(&magic, c, 4))
		return cut_off(c);
	if (magic != GGSN && magic != GGSQ && magic != SEQUENCE &&
	    begins_with_arch(c->window, c->end)) {
		c->at = 0;
		*out = BARE_STATE;
		return KVT_OK;
	}
	if (bare && magic != GGSN && magic != GGSQ && magic != SEQUENCE) {
		c->at = 0;
		*out = BARE;
		return KVT_OK;
	}
	if (magic != SEQUENCE && !kvt_llama_take(&version, c, 4))
		return cut_off(c);
	for (*out = 0; *out < BARE_STATE; ++*out)
		if (versions[*out].magic == magic &&
		    versions[*out].version == (int64_t)version)
			return KVT_OK;
	if (magic != GGSN && magic != GGSQ)
		return kvt_fail(c->err, KVT_BAD_INPUT,
				"%s: not a state file of llama.cpp", c->file->path);
	return kvt_fail(c->err, KVT_UNSUPPORTED,
			"%s: %s version %llu%s, expected %s", c->file->path,
			magic == GGSN ? "ggsn" : "ggsq", (unsigned long long)version,
			magic == GGSQ && version == 4 ?
			", which ik_llama.cpp writes since 2026-07" : "",
			magic == GGSN ? "9 or 10" : "2 or 3");
}

static enum kvt_status parse(struct kvt_llama_state *out, struct search *s,
			     const struct kvt_llama_asked *asked)
{
	struct kvt_llama_cursor *c = &s->cursor;
	enum kvt_status status;
	int64_t owner = 0;
	int version;

	if ((status = find_version(&version, c, asked->bare)))
		return status;
	out->kind = versions[version].kind;
	out->version = versions[version].version;
	out->whole = c->whole = versions[version].whole;
	if (versions[version].magic == SEQUENCE) {
		if (!kvt_llama_count(&owner, c, KVT_LLAMA_SEQUENCES))
			return cut_off(c);
	} else if (version < BARE_STATE) {
		if (!kvt_llama_count(&out->ntokens, c, INT32_MAX))
			return cut_off(c);
		out->tokens_at = c->at;
		if (!kvt_llama_skip(c, out->ntokens, 4))
			return kvt_fail(c->err, KVT_BAD_INPUT,
					"%s: cut: it has %lld bytes, and %lld of its %lld token ids, nothing else",
					c->file->path, LL(c->file->nbytes),
					LL(c->file->nbytes - c->at) / 4,
					LL(out->ntokens));
	}
	if (out->whole && !take_arch(out->arch, c))
		return cut_off(c);
	status = choose(out, s, version, c->at, asked->memory);
	return status ? status : own(out, (int32_t)owner, c);
}

enum kvt_status kvt_llama_parse(struct kvt_llama_state *out, const struct kvt_file *file,
				const struct kvt_llama_asked *asked,
				struct kvt_error *err)
{
	struct search s = { .cursor = { .file = file, .err = err } };
	enum kvt_status status;

	*out = (struct kvt_llama_state){ 0 };
	if (!(s.cursor.window = malloc(KVT_LLAMA_WINDOW)))
		return kvt_no_memory(err, file->path);
	status = parse(out, &s, asked);
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
		free(state->cache[i].row);
	}
	free(state->states.member);
	*state = (struct kvt_llama_state){ 0 };
}

bool kvt_llama_probe(const uint8_t *head, int64_t nhead)
{
	uint32_t magic = nhead >= 8 ? kvt_le32(head) : 0;

	return magic == GGSN || magic == GGSQ || magic == SEQUENCE ||
	       begins_with_arch(head, nhead);
}

/* ---- layers that are alike ------------------------------------------------ */

bool kvt_llama_same_rows(const struct kvt_llama_rows *a, const struct kvt_llama_rows *b)
{
	return a->type == b->type && a->nbytes == b->nbytes && a->elem == b->elem;
}

bool kvt_llama_alike(const struct kvt_llama_cache *cache,
		     const struct kvt_llama_stream *s, int64_t a, int64_t b)
{
	for (int kv = 0; kv < 1 + s->has_values; kv++)
		if (!kvt_llama_same_rows(kvt_llama_rows_of(cache, s, kv, a),
					 kvt_llama_rows_of(cache, s, kv, b)))
			return false;
	return true;
}
