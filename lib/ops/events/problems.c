/* SPDX-License-Identifier: Apache-2.0 */
/* problems.c - what no sound stream of cache events has, by name */
#include "lib/ops/events/replay.h"

static const struct {
	const char *name, *about;
} problems[KVT_CACHE_NFINDINGS] = {
	[KVT_CACHE_BATCH_LOST] = { "batch-lost", "batches are missing in the recording" },
	[KVT_CACHE_BATCH_AGAIN] = { "batch-again", "batches that came before" },
	[KVT_CACHE_REMOVED_UNSTORED] = { "removed-unstored",
		"removals of what was never stored" },
	[KVT_CACHE_REMOVED_ELSEWHERE] = { "removed-elsewhere",
		"removals from where a block is not, while another place has it" },
	[KVT_CACHE_REMOVED_TWICE] = { "removed-twice", "removals of what is gone already" },
	[KVT_CACHE_REMOVED_COPY] = { "removed-copy",
		"removals of one copy, while that place has another" },
	[KVT_CACHE_PARENT_UNKNOWN] = { "parent-unknown", "parents that were never stored" },
	[KVT_CACHE_PARENT_GROUP] = { "parent-group",
		"parents that were stored in other groups only" },
	[KVT_CACHE_PARENT_REMOVED] = { "parent-removed",
		"parents that were removed before what follows them was stored" },
	[KVT_CACHE_PARENT_DIFFERS] = { "parent-differs",
		"hashes that were stored before behind another parent" },
	[KVT_CACHE_SPAN] = { "span", "spans of tokens that are not those of their blocks" },
	[KVT_CACHE_EXTRA] = { "extra-keys", "extra keys that are not those of the blocks" },
	[KVT_CACHE_NO_FILE] = { "no-file", "hashes told as stored that no file has" },
	[KVT_CACHE_NOT_ALONE] = { "not-alone",
		"hashes inside a chunk, which only its last hash can find" },
	[KVT_CACHE_HASH] = { "hash", "hashes that are not those of their tokens" },
	[KVT_CACHE_STORED_TWICE] = { "stored-twice", "blocks stored where they were already" },
	[KVT_CACHE_COPY_STAYS] = { "copy-stays",
		"removals of blocks that another medium still has" },
	[KVT_CACHE_RESTART] = { "restart", "publishers that began again" },
};

const char *kvt_cache_problem_name(enum kvt_cache_problem problem)
{
	return problems[problem].name;
}

const char *kvt_cache_problem_about(enum kvt_cache_problem problem)
{
	return problems[problem].about;
}
