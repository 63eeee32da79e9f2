/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.c - do the files of several ranks hold one model, once?
 *
 * First that every rank is there once, then that all say the same of the model, then
 * that a merge of them would have every head once, and at last, which reads data, that
 * replicas are equal.  The first of these that fails ends the check: what follows
 * would only repeat it.
 */
#include "lib/ops/check/check.h"

#include <stdlib.h>

#include "lib/derived/merge.h"
#include "lib/ops/compare/compare.h"

static const struct kvt_parallel *rank_of(const struct rank_file *file)
{
	return &kvt_dump_snapshot(file->reader)->parallel;
}

static int by_rank(const void *a, const void *b)
{
	int64_t x = rank_of(a)->tp_rank, y = rank_of(b)->tp_rank;

	return x < y ? -1 : x > y;
}

static void missing(struct kvt_findings *r, int64_t first, int64_t end, int64_t size)
{
	if (end - first == 1)
		kvt_find(r, "ranks.missing", kvt_find_at("%s", ""),
			 "rank %lld of %lld is in none of the files", LL(first),
			 LL(size));
	else if (end > first)
		kvt_find(r, "ranks.missing", kvt_find_at("%s", ""),
			 "ranks %lld to %lld of %lld are in none of the files",
			 LL(first), LL(end - 1), LL(size));
}

static bool all_there(struct kvt_findings *r, struct rank_file *files, int nfiles)
{
	int64_t size = rank_of(files)->tp_size, next = 0;
	int64_t before = r->total[KVT_ERROR];

	qsort(files, (size_t)nfiles, sizeof(*files), by_rank);
	for (int i = 0; i < nfiles; i++) {
		int64_t rank = rank_of(&files[i])->tp_rank;

		if (rank < next) {
			kvt_find(r, "ranks.duplicate", kvt_find_at("%s", ""),
				 "%.150s and %.150s are both rank %lld of %lld",
				 files[i - 1].name, files[i].name, LL(rank), LL(size));
			continue;
		}
		missing(r, next, rank, size);
		next = rank + 1;
	}
	missing(r, next, size, size);
	return r->total[KVT_ERROR] == before;
}

/* The sentence as a finding, if it says something of the files. */
static enum kvt_status found(struct kvt_findings *r, const char *name,
			     enum kvt_status status, const struct kvt_error *why,
			     struct kvt_error *err)
{
	if (status == KVT_BAD_INPUT || status == KVT_MISMATCH)
		kvt_find(r, name, kvt_find_at("%s", ""), "%.400s", why->text);
	else if (status == KVT_UNSUPPORTED)
		kvt_find(r, "ranks.unknown", kvt_find_at("%s", ""), "%.400s", why->text);
	else if (status)
		return kvt_fail(err, status, "%.400s", why->text);
	return KVT_OK;
}

enum kvt_status kvt_check_ranks(struct kvt_findings *r, struct rank_file *files,
				int nfiles, bool fast, const struct kvt_run *run,
				struct kvt_error *err)
{
	struct kvt_dump *joined = NULL;
	struct kvt_error why = { "" };
	enum kvt_status status, s;

	if (!all_there(r, files, nfiles))
		return KVT_OK;
	if ((status = rank_files_check(files, nfiles, &why)))
		return found(r, "ranks.differ", status, &why, err);
	s = rank_files_join(&joined, files, nfiles, &why);
	status = found(r, "ranks.coverage", s, &why, err);
	kvt_dump_close(joined);
	if (status || s || fast)
		return status;
	s = replicas_check(files, nfiles, run, &why);
	return found(r, "ranks.replicas", s, &why, err);
}
