/* SPDX-License-Identifier: Apache-2.0 */
/* trace_file.c - a trace from a file, plain or compressed by zstd */
#include "formats/log/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

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
			return kvt_fail(err, KVT_SYSTEM, "out of memory");
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
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
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

enum kvt_status kvt_trace_read(struct kvt_trace *out, const char *path,
			       const struct kvt_trace_unit *unit, struct kvt_error *err)
{
	struct text text = { 0 }, plain = { 0 };
	FILE *file = fopen(path, "rb");
	enum kvt_status status;

	if (!file)
		return kvt_fail(err, KVT_SYSTEM, "%s: %s", path, strerror(errno));
	status = read_all(&text, file, path, err);
	fclose(file);
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
