/* SPDX-License-Identifier: Apache-2.0 */
/* problems.c - what no sound stream of cache events has, by name: see kvtool-why(1) */
#include "lib/ops/events/replay.h"

const char *kvt_cache_problem_name(enum kvt_cache_problem problem)
{
	static const char *const names[KVT_CACHE_NFINDINGS] = {
		[KVT_CACHE_BATCH_LOST] = "batch-lost",
		[KVT_CACHE_BATCH_AGAIN] = "batch-again",
		[KVT_CACHE_REMOVED_UNSTORED] = "removed-unstored",
		[KVT_CACHE_REMOVED_ELSEWHERE] = "removed-elsewhere",
		[KVT_CACHE_REMOVED_TWICE] = "removed-twice",
		[KVT_CACHE_REMOVED_COPY] = "removed-copy",
		[KVT_CACHE_PARENT_UNKNOWN] = "parent-unknown",
		[KVT_CACHE_PARENT_GROUP] = "parent-group",
		[KVT_CACHE_PARENT_REMOVED] = "parent-removed",
		[KVT_CACHE_PARENT_DIFFERS] = "parent-differs",
		[KVT_CACHE_SPAN] = "span",
		[KVT_CACHE_EXTRA] = "extra-keys",
		[KVT_CACHE_NO_FILE] = "no-file",
		[KVT_CACHE_NOT_ALONE] = "not-alone",
		[KVT_CACHE_HASH] = "hash",
		[KVT_CACHE_STORED_TWICE] = "stored-twice",
		[KVT_CACHE_COPY_STAYS] = "copy-stays",
		[KVT_CACHE_RESTART] = "restart",
	};

	return names[problem];
}
