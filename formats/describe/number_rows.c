/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number_rows.c - rows of whole numbers as engines log them, in JSON, npy or text
 *
 *	{"A": [5, 2, -1], "B": [..]}	JSON: a row each, by name
 *	[[5, 2], [9]]  or  [5, 2]	JSON: rows named "0", "1", ..
 *	npy, int or unsigned, [rows, n] or [n]		the same
 *	5 2 9				text: blanks, tabs, line ends: one row
 *
 * Block tables, lengths, slot mappings and prompts come out of a debugger in these
 * forms: what print() or json.dump() made of a list, what numpy.save() made of the
 * tensor that the engine had.  Numbers below 0 at the end of a row are its padding;
 * elsewhere they are refused.  What the numbers mean is not known here.
 */
#include "formats/describe/number_rows.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/describe/describe.h"
#include "lib/base/little_endian.h"
#include "formats/parse/npy_header.h"

enum { MOST_BYTES = 256 << 20 };

/* Of JSON or npy. */
struct source {
	const char *path;
	const uint8_t *bytes;
	int64_t nbytes;
	struct kvt_error *err;
};

static enum kvt_status out_of_memory(const struct source *s)
{
	return kvt_no_memory(s->err, s->path);
}

/* What is padded with numbers below 0 ends before them. */
static enum kvt_status cut_padding(const struct source *s, json_t *row)
{
	size_t n = json_array_size(row);

	while (n && json_integer_value(json_array_get(row, n - 1)) < 0)
		json_array_remove(row, --n);
	for (size_t i = 0; i < n; i++)
		if (json_integer_value(json_array_get(row, i)) < 0)
			return kvt_fail(s->err, KVT_BAD_INPUT,
					"%s: has %lld before the end of a row, expected 0 or more",
					s->path,
					LL(json_integer_value(json_array_get(row, i))));
	return KVT_OK;
}

/* Takes the row, which may be NULL. */
static enum kvt_status add_row(const struct source *s, json_t *rows, const char *name,
			       json_t *row)
{
	enum kvt_status status = KVT_OK;

	for (size_t i = 0; !status && i < json_array_size(row); i++)
		if (!json_is_integer(json_array_get(row, i)))
			status = kvt_fail(s->err, KVT_BAD_INPUT,
					  "%s: row %.60s has a value that is not a whole number",
					  s->path, name);
	if (!status && json_is_array(row))
		status = cut_padding(s, row);
	else if (!status && row)
		status = kvt_fail(s->err, KVT_BAD_INPUT,
				  "%s: %.60s is not a list of whole numbers", s->path, name);
	if (status)
		json_decref(row);
	else if (json_object_set_new(rows, name, row))
		status = out_of_memory(s);
	return status;
}

static enum kvt_status add_numbered(const struct source *s, json_t *rows, json_t *row)
{
	char name[24];

	snprintf(name, sizeof(name), "%zu", json_object_size(rows));
	return add_row(s, rows, name, row);
}

/* ---- JSON --------------------------------------------------------------- */

static enum kvt_status read_list(const struct source *s, json_t *rows, json_t *list)
{
	enum kvt_status status = KVT_OK;

	if (!json_is_array(json_array_get(list, 0)))
		return add_numbered(s, rows, json_incref(list));
	for (size_t i = 0; !status && i < json_array_size(list); i++)
		status = add_numbered(s, rows, json_incref(json_array_get(list, i)));
	return status;
}

static enum kvt_status read_json(const struct source *s, json_t *rows)
{
	enum kvt_status status = KVT_OK;
	json_error_t why;
	const char *name;
	json_t *all, *row;

	all = kvt_json_load((const char *)s->bytes, (size_t)s->nbytes, 0, &why);
	if (!all)
		return kvt_fail(s->err, KVT_BAD_INPUT,
				"%s: is neither a .npy file nor JSON: line %d: %.150s",
				s->path, why.line, why.text);
	if (json_is_array(all))
		status = read_list(s, rows, all);
	else
		json_object_foreach(all, name, row)
			if (!status)
				status = add_row(s, rows, name, json_incref(row));
	if (!status && !json_is_object(all) && !json_is_array(all))
		status = kvt_fail(s->err, KVT_BAD_INPUT,
				  "%s: is not a list of whole numbers", s->path);
	json_decref(all);
	return status;
}

/* ---- text --------------------------------------------------------------- */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* JSON of more than one number begins with a bracket. */
static bool is_text(const struct source *s)
{
	const char *at = (const char *)s->bytes, *end = at + s->nbytes;

	while (at < end && is_blank(*at))
		at++;
	return at < end && ((*at >= '0' && *at <= '9') || *at == '-');
}

/* Numbers with blanks or line ends between them; the bytes end with a NUL. */
static enum kvt_status read_text(const struct source *s, json_t *rows)
{
	const char *at = (const char *)s->bytes, *end = at + s->nbytes;
	json_t *row = json_array();
	int line = 1;

	while (row && at < end) {
		char *after = (char *)at;
		long long value;

		if (is_blank(*at)) {
			line += *at++ == '\n';
			continue;
		}
		errno = 0;
		value = isspace((unsigned char)*at) ? 0 : strtoll(at, &after, 10);
		if (after == at || errno || (after < end && !is_blank(*after))) {
			json_decref(row);
			return kvt_fail(s->err, KVT_BAD_INPUT,
					"%s: line %d is not a whole number", s->path, line);
		}
		at = after;
		if (json_array_append_new(row, json_integer(value))) {
			json_decref(row);
			row = NULL;
		}
	}
	return row ? add_numbered(s, rows, row) : out_of_memory(s);
}

/* ---- npy ---------------------------------------------------------------- */

static int64_t element(const uint8_t *at, const struct kvt_npy_header *head)
{
	uint64_t bits = kvt_le(at, (int)head->elem);
	int unused = 64 - 8 * (int)head->elem;

	return head->descr[1] == 'i' ? (int64_t)(bits << unused) >> unused :
	       bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
}

static enum kvt_status add_elements(const struct source *s, json_t *rows,
				    const struct kvt_npy_header *head, int64_t row,
				    int64_t n)
{
	const uint8_t *at = s->bytes + head->data + row * n * head->elem;
	json_t *list = json_array();

	for (int64_t i = 0; list && i < n; i++)
		if (json_array_append_new(list, json_integer(element(at + i * head->elem,
								     head)))) {
			json_decref(list);
			list = NULL;
		}
	return list ? add_numbered(s, rows, list) : out_of_memory(s);
}

static enum kvt_status read_npy(const struct source *s, json_t *rows)
{
	struct kvt_npy_header head;
	enum kvt_status status;
	int64_t n, most;

	if ((status = kvt_npy_parse(&head, s->bytes, s->nbytes, s->path, s->err)))
		return status;
	if (head.rank < 1 || head.rank > 2 || !strchr("iu", head.descr[1]) ||
	    head.nbytes != s->nbytes - head.data)
		return kvt_fail(s->err, KVT_BAD_INPUT,
				"%s: is not an array of whole numbers with one axis or two",
				s->path);
	n = head.shape[head.rank - 1];
	/* of rows of nothing there may be said to be any number */
	most = head.rank == 1 ? 1 : n ? head.shape[0] : 0;
	for (int64_t row = 0; !status && row < most; row++)
		status = add_elements(s, rows, &head, row, n);
	return status;
}

/* ---- a file -------------------------------------------------------------- */

enum kvt_status kvt_number_rows_read(json_t **rows, const char *path,
				     struct kvt_error *err)
{
	struct source s = { .path = path, .err = err };
	enum kvt_status status;
	char *bytes;

	*rows = NULL;
	if (!(status = kvt_read_whole(&bytes, &s.nbytes, path, MOST_BYTES,
				      "rows of numbers", err)) &&
	    !(*rows = json_object()))
		status = out_of_memory(&s);
	s.bytes = (const uint8_t *)bytes;
	if (!status)
		status = s.nbytes > 6 && !memcmp(bytes, "\x93NUMPY", 6) ?
			 read_npy(&s, *rows) :
			 is_text(&s) ? read_text(&s, *rows) : read_json(&s, *rows);
	free(bytes);
	if (status) {
		json_decref(*rows);
		*rows = NULL;
	}
	return status;
}
