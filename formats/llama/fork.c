/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.c - state files of forks of llama.cpp, by what only they write
 *
 * ik_llama.cpp left llama.cpp in 2024 and has its versions, so that a number means two
 * layouts: ggsn 8 to 10, ggsq 2 to 4.  It has a random number generator in front of the
 * outputs of ggsn, no streams, a third way to store values (none), types of its own, and
 * behind the rows one or two numbers that say whether states follow.  Facts: its
 * src/llama.cpp of 2026-08.  A file is only named, not read.
 */
#include "formats/llama/llama.h"

/* Layouts of caches that are not rows of all cells begin with these words. */
enum { COMPACT = 0x53574143, PARTIAL = 0x50414732 };

/* The state of a Mersenne twister as a text: 624 numbers and a place. */
static bool has_generator(struct kvt_llama_cursor *c, int64_t at)
{
	int64_t n;
	uint64_t letter;

	c->at = at;
	if (!kvt_llama_count(&n, c, 8192) || n < 1000)
		return false;
	for (int64_t i = 0; i < n; i++)
		if (!kvt_llama_take(&letter, c, 1) ||
		    (letter != ' ' && (letter < '0' || letter > '9')))
			return false;
	return true;
}

/* Rows of all layers: a type, perhaps none, and a size, or two of half as many bits. */
static bool skip_rows(struct kvt_llama_cursor *c, int64_t cells, int64_t layers)
{
	for (int64_t l = 0; l < layers; l++) {
		uint64_t type, nbytes;

		if (!kvt_llama_take(&type, c, 4) || !kvt_llama_take(&nbytes, c, 8))
			return false;
		if (type == UINT32_MAX && !nbytes)
			continue;
		if (type > 1023 || nbytes > INT32_MAX ||
		    !kvt_llama_skip(c, cells, (int64_t)nbytes))
			return false;
	}
	return true;
}

/* Cells of one sequence, which they do not name; rows, and whether states follow. */
static bool is_ik(struct kvt_llama_cursor *c, int64_t at)
{
	int64_t cells, values, layers, follow, none;
	uint64_t word, position;

	c->at = at;
	if (!kvt_llama_take(&word, c, 4))
		return false;
	if (word == COMPACT || word == PARTIAL)
		return true;
	c->at = at;
	if (!kvt_llama_count(&cells, c, INT32_MAX) || cells < 1)
		return false;
	for (int64_t i = 0; i < cells; i++)
		if (!kvt_llama_take(&position, c, 4) || position > INT32_MAX ||
		    !kvt_llama_count(&none, c, 0))
			return false;
	/* values that are transposed have two numbers before each row: not looked at */
	if (!kvt_llama_count(&values, c, 2) || !kvt_llama_count(&layers, c, 4096) ||
	    layers < 1 || !skip_rows(c, cells, layers))
		return false;
	if (values == 1)
		return true;
	return (values == 2 || skip_rows(c, cells, layers)) &&
	       kvt_llama_count(&follow, c, 1) &&
	       (follow || c->at == c->file->nbytes ||
		(kvt_llama_count(&follow, c, 1) && (follow || c->at == c->file->nbytes)));
}

const char *kvt_llama_fork(struct kvt_llama_cursor *c, bool whole, int64_t version,
			   int64_t at)
{
	/* ggsq 2 of both is one layout, which is read */
	if (whole ? has_generator(c, at) : version > 2 && is_ik(c, at))
		return "ik_llama.cpp";
	return NULL;
}
