/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c - requests over time: Mooncake's JSON lines, CSV, or what a log says
 *
 *	Mooncake	{"timestamp": ms, "input_length": n, "output_length": n,
 *			 "hash_ids": [..]}	an id for each 512 tokens
 *	CSV		t,bytes,tokens		a heading; then ms, bytes, tokens
 *	FlexKV		{"event_type": ..}	trace_flexkv.c
 *	vLLM		KV Transfer metrics:	trace_vllm.c
 *
 * Text is taken line by line, and a message has the number of the line.  The first line
 * says which format it is.  A file may be compressed by zstd.  Facts: the traces that
 * Mooncake publishes.
 */
#include "formats/log/trace_impl.h"
#include "lib/base/random.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "lib/base/grow.h"

enum { LINE_MOST = 1 << 24 };
static const int64_t latest_ms = (int64_t)1 << 42;	/* ns fit 63 bits */

/* ---- lines ------------------------------------------------------------------ */

static enum kvt_status add_hash(struct kvt_trace *t, int64_t hash, struct kvt_error *err)
{
	if (!KVT_GROW(&t->hash, t->nhashes))
		return kvt_no_memory(err, NULL);
	t->hash[t->nhashes++] = hash;
	return KVT_OK;
}

static enum kvt_status take_hashes(struct kvt_trace *t, const struct kvt_json *in,
				   int64_t tokens, struct kvt_error *err)
{
	int64_t want = tokens / KVT_TRACE_BLOCK + !!(tokens % KVT_TRACE_BLOCK), id;
	const json_t *ids = NULL;
	enum kvt_status status = kvt_json_array(&ids, in, "hash_ids");

	if (!status && json_array_size(ids) != (size_t)want)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: %zu hash_ids, expected %lld: one for each %d of %lld tokens",
				  in->name, json_array_size(ids), LL(want),
				  KVT_TRACE_BLOCK, LL(tokens));
	for (size_t i = 0; !status && i < (size_t)want; i++) {
		status = kvt_json_int_at(&id, in, "hash_ids", ids, i, 0, INT64_MAX);
		if (!status)
			status = add_hash(t, id, err);
	}
	return status;
}

static enum kvt_status take_mooncake(struct kvt_trace *t, const struct kvt_json *in,
				     const struct trace_line *line, struct kvt_error *err)
{
	struct kvt_trace_row row = { .bytes = -1, .cached = -1, .hash = t->nhashes };
	int64_t ms = -1, output = 0;
	enum kvt_status status;

	if ((status = kvt_json_int(&ms, in, "timestamp", 0, latest_ms)) ||
	    (status = kvt_json_int(&row.tokens, in, "input_length", 1, UINT32_MAX)) ||
	    (status = kvt_json_int(&output, in, "output_length", 0, UINT32_MAX)))
		return status;
	if (ms < 0 || !row.tokens)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: there is no '%s'", line->name,
				ms < 0 ? "timestamp" : "input_length");
	row.arrival = ms * 1000000;
	if ((status = trace_check_order(t, line, row.arrival, err)) ||
	    (status = take_hashes(t, in, row.tokens, err)))
		return status;
	row.nhashes = t->nhashes - row.hash;
	return trace_add(t, &row, line, err);
}

/* A decimal number at *at, which ends with 'stop'. */
static bool take_number(double *out, const char **at, const char *end, char stop)
{
	char word[40], *rest;
	size_t n = 0;

	for (; *at + n < end && (*at)[n] != stop && n < sizeof(word) - 1; n++)
		word[n] = (*at)[n];
	word[n] = '\0';
	if (!n || word[strspn(word, "0123456789.")] || (*at + n < end) != (stop != '\0'))
		return false;
	*out = strtod(word, &rest);
	*at += n + 1;
	return !*rest;
}

static enum kvt_status take_csv(struct kvt_trace *t, const struct trace_line *line,
				struct kvt_error *err)
{
	const char *at = line->text, *end = at + line->nbytes;
	double ms, bytes, tokens;
	struct kvt_trace_row row = { .cached = -1 };
	enum kvt_status status;

	if (!take_number(&ms, &at, end, ',') || !take_number(&bytes, &at, end, ',') ||
	    !take_number(&tokens, &at, end, '\0') || ms > (double)latest_ms ||
	    bytes > 9e15 || tokens < 1 || tokens > UINT32_MAX)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: expected 't,bytes,tokens' with 1 to %lld tokens", line->name,
				LL(UINT32_MAX));
	row.arrival = (int64_t)(ms * 1e6 + 0.5);
	row.bytes = (int64_t)bytes;
	row.tokens = (int64_t)tokens;
	if ((status = trace_check_order(t, line, row.arrival, err)))
		return status;
	return trace_add(t, &row, line, err);
}

static bool is_header(const struct trace_line *line)
{
	static const char header[] = "t,bytes,tokens";

	return line->nbytes == sizeof(header) - 1 &&
	       !memcmp(line->text, header, line->nbytes);
}

/* What the first line says that the text is. */
enum kind { MOONCAKE, FLEXKV, CSV, VLLM };

struct reader {
	struct kvt_trace *trace;
	const struct kvt_trace_unit *unit;
	enum kind kind;
	struct trace_tasks tasks;
	struct trace_log log;
	int64_t number;			/* of the line */
};

static enum kvt_status take_json(struct reader *r, const struct trace_line *line,
				 struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { NULL, line->name, err, &status };
	json_t *root;

	if ((status = kvt_json_parse(&root, line->text, line->nbytes, line->name, err)))
		return status;
	in.object = root;
	if (r->number == 1 && json_object_get(root, "event_type"))
		r->kind = FLEXKV;
	status = r->kind == FLEXKV ?
		 trace_take_flexkv(r->trace, &r->tasks, &in, line, err) :
		 take_mooncake(r->trace, &in, line, err);
	json_decref(root);
	return status;
}

static enum kvt_status take_line(struct reader *r, const struct trace_line *line,
				 struct kvt_error *err)
{
	if (r->kind == VLLM)
		return trace_take_vllm(r->trace, &r->log, r->unit, line, err);
	if (line->nbytes > LINE_MOST)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: a line of %zu bytes", line->name,
				line->nbytes);
	if (r->kind != CSV)
		return take_json(r, line, err);
	if (r->number > 1)
		return take_csv(r->trace, line, err);
	return is_header(line) ? KVT_OK :
	       kvt_fail(err, KVT_BAD_INPUT,
			"%s: neither a JSON object nor the header 't,bytes,tokens' nor a log with 'KV Transfer metrics:'",
			line->name);
}

static enum kvt_status parse(struct reader *r, const char *text, size_t nbytes,
			     const char *name, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	r->kind = nbytes && *text == '{' ? MOONCAKE :
		  trace_is_vllm(text, nbytes) ? VLLM : CSV;
	for (size_t at = 0; !status && at < nbytes;) {
		const char *newline = memchr(text + at, '\n', nbytes - at);
		size_t len = newline ? (size_t)(newline - text) - at : nbytes - at;
		struct trace_line line = { text + at, len, "" };

		at += len + 1;
		if (len && line.text[len - 1] == '\r')
			line.nbytes--;
		snprintf(line.name, sizeof(line.name), "%.200s:%lld", name,
			 (long long)++r->number);
		status = take_line(r, &line, err);
	}
	if (!status && !r->trace->n)
		status = kvt_fail(err, KVT_BAD_INPUT, "%s: there is no request", name);
	return status;
}

static int by_arrival(const void *a, const void *b)
{
	const struct kvt_trace_row *x = a, *y = b;

	if (x->arrival != y->arrival)
		return x->arrival < y->arrival ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

enum kvt_status kvt_trace_parse(struct kvt_trace *out, const char *text, size_t nbytes,
				const struct kvt_trace_unit *unit, const char *name,
				struct kvt_error *err)
{
	struct kvt_trace t = { 0 };
	struct reader r = { .trace = &t, .unit = unit };
	enum kvt_status status = parse(&r, text, nbytes, name, err);

	free(r.tasks.task);
	if (status) {
		kvt_trace_free(&t);
		return status;
	}
	/* engines that log at one time had their transfers side by side */
	if (r.kind == VLLM)
		qsort(t.row, (size_t)t.n, sizeof(*t.row), by_arrival);
	*out = t;
	return KVT_OK;
}

/* ---- files ------------------------------------------------------------------- */

/* What a trace has at most, unpacked. */
static const size_t most = (size_t)1 << 30;

struct text {
	char *at;
	size_t n, room;
};

static enum kvt_status put(struct text *t, const char *data, size_t n, const char *path,
			   struct kvt_error *err)
{
	if (!n)		/* nowhere to copy it to, perhaps */
		return KVT_OK;
	if (n > most - t->n)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: more than 1 GiB of text", path);
	if (t->n + n > t->room) {
		size_t room = 2 * (t->n + n);
		char *more = realloc(t->at, room);

		if (!more)
			return kvt_no_memory(err, NULL);
		t->at = more;
		t->room = room;
	}
	memcpy(t->at + t->n, data, n);
	t->n += n;
	return KVT_OK;
}

static enum kvt_status read_all(struct text *t, FILE *file, const char *path,
				struct kvt_error *err)
{
	char chunk[1 << 15];
	enum kvt_status status = KVT_OK;
	size_t got;

	while (!status && (got = fread(chunk, 1, sizeof(chunk), file)))
		status = put(t, chunk, got, path, err);
	if (!status && ferror(file))
		status = kvt_fail(err, KVT_SYSTEM, "%s: %s", path, strerror(errno));
	return status;
}

static enum kvt_status unpack(struct text *out, const struct text *packed,
			      const char *path, struct kvt_error *err)
{
	ZSTD_inBuffer in = { packed->at, packed->n, 0 };
	ZSTD_DStream *stream = ZSTD_createDStream();
	enum kvt_status status = KVT_OK;
	char chunk[1 << 15];
	size_t left = 1;
	bool full = true;	/* it may hold more than it could say */

	if (!stream)
		return kvt_no_memory(err, NULL);
	while (!status && (in.pos < in.size || (left && full))) {
		ZSTD_outBuffer to = { chunk, sizeof(chunk), 0 };

		left = ZSTD_decompressStream(stream, &to, &in);
		full = to.pos == to.size;
		status = ZSTD_isError(left) ?
			 kvt_fail(err, KVT_BAD_INPUT, "%s: %s", path,
				  ZSTD_getErrorName(left)) :
			 put(out, chunk, to.pos, path, err);
	}
	if (!status && left)
		status = kvt_fail(err, KVT_BAD_INPUT, "%s: the zstd frame is cut off",
				  path);
	ZSTD_freeDStream(stream);
	return status;
}

static bool is_zstd(const struct text *t)
{
	return t->n >= 4 && !memcmp(t->at, "\x28\xb5\x2f\xfd", 4);
}

enum kvt_status kvt_trace_read(struct kvt_trace *out, FILE *file, const char *path,
			       const struct kvt_trace_unit *unit, struct kvt_error *err)
{
	struct text text = { 0 }, plain = { 0 };
	enum kvt_status status = read_all(&text, file, path, err);

	if (!status && is_zstd(&text))
		status = unpack(&plain, &text, path, err);
	if (!status)
		status = is_zstd(&text) ?
			 kvt_trace_parse(out, plain.n ? plain.at : "", plain.n, unit,
					 path, err) :
			 kvt_trace_parse(out, text.n ? text.at : "", text.n, unit, path,
					 err);
	free(text.at);
	free(plain.at);
	return status;
}

/* ---- made up ----------------------------------------------------------------- */

enum { TALKS = 64 };

/* One more turn of a conversation: its prefix, and new blocks. */
static enum kvt_status add_turn(struct kvt_trace *t, struct kvt_trace_row *talk,
				int64_t *next, uint64_t *state, int64_t arrival,
				struct kvt_error *err)
{
	int64_t more = 64 + (int64_t)(kvt_random(state) % 4096);
	int64_t shared = talk->tokens / KVT_TRACE_BLOCK;
	const struct trace_line none = { .name = "synthetic" };
	struct kvt_trace_row row = { .arrival = arrival, .bytes = -1, .cached = -1,
				     .tokens = talk->tokens + more, .hash = t->nhashes };
	enum kvt_status status = KVT_OK;

	row.nhashes = (row.tokens + KVT_TRACE_BLOCK - 1) / KVT_TRACE_BLOCK;
	for (int64_t i = 0; !status && i < row.nhashes; i++)
		status = add_hash(t, i < shared ? t->hash[talk->hash + i] : (*next)++,
				  err);
	if (!status)
		status = trace_add(t, &row, &none, err);
	*talk = row;
	/* the longest ones end, and another begins */
	if (row.tokens > 32768)
		*talk = (struct kvt_trace_row){ 0 };
	return status;
}

enum kvt_status kvt_trace_make(struct kvt_trace *out, uint64_t seed, int64_t n,
			       struct kvt_error *err)
{
	struct kvt_trace_row talk[TALKS] = { { 0 } };
	struct kvt_trace t = { 0 };
	int64_t next = 0, arrival = 0;
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < n; i++) {
		arrival += (int64_t)(kvt_random(&seed) % 600) * 1000000;
		status = add_turn(&t, &talk[kvt_random(&seed) % TALKS], &next, &seed,
				  arrival, err);
	}
	if (status)
		kvt_trace_free(&t);
	else
		*out = t;
	return status;
}
