/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c - results of units as files
 *
 *	{"kvtool_unit": 1, "job": .., "unit": 12, "begin": .., "bytes": n, ..}\n
 *	n bytes, the result
 *	32 hex digits\n			XXH3 of 128 bits of all before it
 *
 * shard.h has their names.  A file appears whole or not at all; the digest finds what
 * happened to it later.
 */
#include "cli/shard/shard.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/file/reads.h"
#include "formats/parse/json.h"
#include "print/out/text_file.h"

enum { DIGEST_LINE = 33, MOST_RESULT = 1 << 30 };

static void unit_path(char *out, size_t room, const char *dir, struct shard_unit unit)
{
	snprintf(out, room, "%s/%06lld%s%s.unit", dir, LL(unit.unit),
		 unit.follows ? "." : "", unit.follows ? unit.follows : "");
}

void shard_part_path(char *out, size_t room, const char *dir, int64_t group, int64_t box)
{
	snprintf(out, room, "%s/part-%lld-%06lld.h5", dir, LL(group), LL(box));
}

static struct human digest_line(const char *bytes, size_t nbytes)
{
	struct kvt_digest d = kvt_digest_content(bytes, (int64_t)nbytes);
	struct human out;

	snprintf(out.s, sizeof(out.s), "%016" PRIx64 "%016" PRIx64 "\n", d.hi, d.lo);
	return out;
}

/* ---- writing ----------------------------------------------------------- */

static json_t *header_of(const struct shard_job *job, struct shard_unit unit,
			 const struct kvt_unit_result *r)
{
	const struct kvt_pass *pass = &job->list.pass[job->list.unit[unit.unit].pass];

	return json_pack("{si ss sI sI ss sI sI sI sI si ss sI}", "kvtool_unit", 1,
			 "job", job->fingerprint, "unit", (json_int_t)unit.unit,
			 "units", (json_int_t)job->list.nunits,
			 "pass", unit.follows ? unit.follows : pass->label,
			 "input", (json_int_t)pass->about, "part", (json_int_t)pass->part,
			 "begin", (json_int_t)r->begin, "end", (json_int_t)r->end,
			 "status", (int)r->status, "problem", r->status ? r->text : "",
			 "bytes", (json_int_t)r->nbytes);
}

enum kvt_status shard_unit_write(const struct shard_job *job, const char *dir,
				 struct shard_unit unit,
				 const struct kvt_unit_result *result,
				 struct kvt_error *err)
{
	json_t *header = header_of(job, unit, result);
	char *line = header ? kvt_json_dump(header, JSON_COMPACT | JSON_ENSURE_ASCII) :
			      NULL;
	size_t n = line ? strlen(line) : 0, nbytes = (size_t)result->nbytes;
	char *text = malloc(n + 1 + nbytes + DIGEST_LINE + 1), path[PATH_MAX];
	enum kvt_status status;

	json_decref(header);
	if (!line || !text) {
		free(line);
		free(text);
		return kvt_no_memory(err, NULL);
	}
	memcpy(text, line, n);
	text[n++] = '\n';
	if (nbytes)
		memcpy(text + n, result->bytes, nbytes);
	n += nbytes;
	memcpy(text + n, digest_line(text, n).s, DIGEST_LINE);
	unit_path(path, sizeof(path), dir, unit);
	status = text_file_write(path, text, n + DIGEST_LINE, true, err);
	free(line);
	free(text);
	return status;
}

/* ---- reading ----------------------------------------------------------- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

/* *out: the header at the beginning, if it is of this unit; else NULL, and why. */
static enum kvt_status take_header(json_t **out, const char **why, const char *file,
				   size_t nbytes, const struct shard_job *job,
				   struct shard_unit unit, struct kvt_error *err)
{
	const struct kvt_pass *pass = &job->list.pass[job->list.unit[unit.unit].pass];
	const char *end = memchr(file, '\n', nbytes);
	json_error_t bad;
	json_t *o = end ? kvt_json_load(file, (size_t)(end - file), 0, &bad) : NULL;

	*out = NULL;
	*why = NULL;
	if (end && !o && json_error_code(&bad) == json_error_out_of_memory)
		return kvt_no_memory(err, NULL);
	if (!o)
		*why = "has no header";
	else if (strcmp(text_of(o, "job"), job->fingerprint))
		*why = "is of another command, or of other inputs";
	else if (json_integer_value(json_object_get(o, "unit")) != unit.unit)
		*why = "is of another unit";
	else if (strcmp(text_of(o, "pass"), unit.follows ? unit.follows : pass->label))
		*why = "is of another pass";
	else
		*out = json_incref(o);
	json_decref(o);
	return KVT_OK;
}

/* Of all of the unit, or of none, for nobody wants it. */
static bool fits(const struct kvt_unit_result *r, const struct kvt_unit *unit,
		 int64_t nbytes)
{
	if (r->nbytes != nbytes || r->begin != unit->begin)
		return false;
	if (r->end == r->begin)
		return !r->status && !nbytes;
	return r->end == unit->end &&
	       (!r->status || r->status == KVT_MISMATCH || r->status == KVT_BAD_INPUT);
}

static bool fill(struct shard_result *out, const json_t *o, size_t nbytes,
		 const struct kvt_unit *unit)
{
	struct kvt_unit_result *r = &out->result;
	const char *text = text_of(o, "problem");
	size_t n = strcspn(out->file, "\n") + 1;
	json_int_t status = json_integer_value(json_object_get(o, "status"));

	r->begin = json_integer_value(json_object_get(o, "begin"));
	r->end = json_integer_value(json_object_get(o, "end"));
	r->status = (enum kvt_status)status;
	r->nbytes = json_integer_value(json_object_get(o, "bytes"));
	if (r->status != status || !fits(r, unit, (int64_t)(nbytes - n - DIGEST_LINE)))
		return false;
	/* results are numbers of 8 bytes, in a row */
	memmove(out->file, out->file + n, (size_t)r->nbytes);
	r->bytes = out->file;
	r->text = strcpy(out->file + r->nbytes, "");
	if (r->status) {
		if (strlen(text) + (size_t)r->nbytes >= nbytes)
			return false;
		strcpy(out->file + r->nbytes, text);
	}
	return true;
}

enum kvt_status shard_unit_read(struct shard_result *out, const struct shard_job *job,
				const char *dir, struct shard_unit unit,
				struct kvt_error *why, struct kvt_error *err)
{
	char path[PATH_MAX];
	const char *wrong = NULL;
	struct stat st;
	size_t nbytes;
	json_t *o;
	enum kvt_status status;

	*out = (struct shard_result){ .file = NULL };
	unit_path(path, sizeof(path), dir, unit);
	if (stat(path, &st) && errno == ENOENT) {
		kvt_fail(why, KVT_BAD_INPUT, "%s is missing", path);
		return KVT_OK;
	}
	if ((status = text_file_read_own(&out->file, &nbytes, path, MOST_RESULT, err)))
		return status;
	if (nbytes < DIGEST_LINE ||
	    memcmp(out->file + nbytes - DIGEST_LINE,
		   digest_line(out->file, nbytes - DIGEST_LINE).s, DIGEST_LINE))
		wrong = "is not what its digest says";
	else if ((status = take_header(&o, &wrong, out->file, nbytes, job, unit, err))) {
		shard_result_free(out);
		return status;
	} else if (o) {
		if (!fill(out, o, nbytes, &job->list.unit[unit.unit]))
			wrong = "has a header that fits neither its unit nor its bytes";
		json_decref(o);
	}
	if (!wrong)
		return KVT_OK;
	kvt_fail(why, KVT_BAD_INPUT, "%s %s", path, wrong);
	shard_result_free(out);
	return KVT_OK;
}

void shard_unit_is_input(const char *dir, struct shard_unit unit)
{
	char path[PATH_MAX];
	struct stat st;

	unit_path(path, sizeof(path), dir, unit);
	if (!stat(path, &st))
		kvt_reads_add(&st);
}

void shard_result_free(struct shard_result *result)
{
	free(result->file);
	*result = (struct shard_result){ .file = NULL };
}
