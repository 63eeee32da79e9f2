/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folders.c - a shard's units from and to its folder, and those of all folders
 *
 * A shard does what is its own, and not in the folder or not proven; who joins wants all
 * units of the list, each once.
 */
#include "cli/shard/shard.h"

#include <stdlib.h>
#include <string.h>

#include "cli/shard/sharing.h"

/* ---- one shard --------------------------------------------------------- */

struct one_shard {
	const struct shard_job *job;
	const char *dir;
	int64_t index, count;
	struct shard_counts *counts;
};

enum kvt_status shard_take_done(struct shard_result *out, const struct shard_job *job,
				const char *dir, struct shard_unit unit,
				struct kvt_error *err)
{
	struct kvt_error why = { "" };
	const struct kvt_pass *pass = &job->list.pass[job->list.unit[unit.unit].pass];
	enum kvt_status status = shard_unit_read(out, job, dir, unit, &why, err);

	if (status || !out->file)
		return status;
	/* what could not be read may be there by now */
	if (out->result.status == KVT_BAD_INPUT ||
	    (!out->result.status && !strcmp(pass->label, "writing") &&
	     !shard_part_proven(&out->result, dir, pass->part, &why)))
		shard_result_free(out);
	return KVT_OK;
}

static enum kvt_status take_own(void *context, struct shard_result *out, bool *todo,
				struct shard_unit unit, struct kvt_error *err)
{
	struct one_shard *s = context;
	enum kvt_status status;

	if (kvt_unit_owner(&s->job->list, unit.unit, s->count) != s->index)
		return KVT_OK;
	if ((status = shard_take_done(out, s->job, s->dir, unit, err)))
		return status;
	*todo = !out->file || shard_not_wanted(out);
	s->counts->skipped += !*todo;
	return KVT_OK;
}

static enum kvt_status store_own(void *context, struct shard_unit unit,
				 const struct kvt_unit_result *result,
				 struct kvt_error *err)
{
	struct one_shard *s = context;

	s->counts->done++;
	s->counts->nbytes += s->job->list.unit[unit.unit].nbytes;
	return shard_unit_write(s->job, s->dir, unit, result, err);
}

static const char *own_dir(void *context, int64_t unit)
{
	(void)unit;
	return ((struct one_shard *)context)->dir;
}

bool shard_not_wanted(struct shard_result *result)
{
	if (!result->file || result->result.begin < result->result.end)
		return false;
	shard_result_free(result);
	return true;
}

static enum kvt_status mark_unwanted(const struct shard_job *job, const char *dir,
				     int64_t u, struct kvt_error *err)
{
	const struct kvt_unit_result none = { .begin = job->list.unit[u].begin,
					      .end = job->list.unit[u].begin };
	struct kvt_error why = { "" };
	struct shard_result there;
	enum kvt_status status;

	status = shard_unit_read(&there, job, dir, (struct shard_unit){ u, NULL }, &why,
				 err);
	if (!status && !there.file)
		status = shard_unit_write(job, dir, (struct shard_unit){ u, NULL },
					  &none, err);
	shard_result_free(&there);
	return status;
}

enum kvt_status shard_do(struct shard_job *job, const char *dir, int64_t index,
			 int64_t count, struct shard_counts *counts,
			 struct kvt_error *err)
{
	struct one_shard s = { job, dir, index, count, counts };
	const struct shard_source source = { &s, take_own, NULL, store_own, own_dir };
	enum kvt_status status;
	bool unfinished;

	*counts = (struct shard_counts){ .units = job->list.nunits };
	for (int64_t u = 0; u < job->list.nunits; u++)
		counts->own += kvt_unit_owner(&job->list, u, count) == index;
	status = shard_run_share(job, &source, &unfinished, err);
	for (int64_t u = 0; !status && u < job->list.nunits; u++)
		if (kvt_unit_owner(&job->list, u, count) == index)
			status = mark_unwanted(job, dir, u, err);
	return status;
}

/* ---- all of them ------------------------------------------------------- */

struct all_shards {
	const struct shard_job *job;
	char *const *dirs;
	int ndirs;
	int *dir_of;			/* [nunits]; owned */
};

/* Of all folders; none is out->file NULL, and 'first' says why. */
static enum kvt_status find_unit(const struct all_shards *s, struct shard_result *out,
				 struct shard_unit unit, struct kvt_error *err)
{
	struct kvt_error why = { "" }, first = { "" };
	int found = -1;

	for (int d = 0; d < s->ndirs; d++) {
		struct shard_result one;
		enum kvt_status status = shard_unit_read(&one, s->job, s->dirs[d], unit,
							 &why, err);

		if (status) {
			shard_result_free(out);
			return status;
		}
		if (!d || !strstr(why.text, "missing"))
			first = why;
		if (one.file && found >= 0) {
			shard_result_free(&one);
			shard_result_free(out);
			return kvt_fail(err, KVT_BAD_INPUT,
					"unit %lld is both in %.300s and in %.300s",
					LL(unit.unit), s->dirs[found], s->dirs[d]);
		}
		if (one.file) {
			shard_unit_is_input(s->dirs[d], unit);
			*out = one;
			found = d;
		}
	}
	if (!unit.follows)
		s->dir_of[unit.unit] = found < 0 ? 0 : found;
	if (found >= 0 || unit.follows)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"unit %lld of %lld is not done: %s; run its shard again",
			LL(unit.unit), LL(s->job->list.nunits), first.text);
}

static enum kvt_status take_any(void *context, struct shard_result *out, bool *todo,
				struct shard_unit unit, struct kvt_error *err)
{
	enum kvt_status status = find_unit(context, out, unit, err);

	*todo = !status && (!out->file || shard_not_wanted(out));
	return status;
}

static const char *dir_of_unit(void *context, int64_t unit)
{
	const struct all_shards *s = context;

	return s->dirs[s->dir_of[unit]];
}

enum kvt_status shard_join(struct shard_job *job, char *const *dirs, int ndirs,
			   bool *complete, struct kvt_error *err)
{
	struct all_shards s = { job, dirs, ndirs,
				calloc((size_t)job->list.nunits + 1, sizeof(int)) };
	/* what followed, and no shard has done, is done here, and kept in memory */
	const struct shard_source source = { &s, take_any, NULL, NULL, dir_of_unit };
	enum kvt_status status = KVT_OK;

	if (!s.dir_of)
		return kvt_no_memory(err, NULL);
	for (int d = 0; d < ndirs; d++)
		shard_job_is_input(dirs[d]);
	/* all of them are there before the first word is printed */
	for (int64_t u = 0; !status && u < job->list.nunits; u++) {
		struct shard_result one = { .file = NULL };

		status = find_unit(&s, &one, (struct shard_unit){ u, NULL }, err);
		shard_result_free(&one);
	}
	*complete = !status;
	if (!status)
		status = shard_run_whole(job, &source, err);
	free(s.dir_of);
	return status;
}
