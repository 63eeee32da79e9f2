/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chains.c - requests of chunks that say which one they follow
 *
 * Chunks and what they follow are trees.  Each leaf is the end of a request; what two
 * requests begin with is there once.  A tree whose first chunk follows one that is not
 * there has no place: its tokens are known by number only from that chunk on, so it is of
 * no request until the user says how many came before.
 *
 * Files are foreign: circles are found, and the sum of all chains has a bound, as it may
 * grow with the square of the chunks.  Time: the chunks, and that sum.
 */
#include "formats/store/chains.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LINKS = 1 << 26 };

/* ---- what others make chains of, too --------------------------------------- */

const struct kvt_chunk_run *kvt_chunks_find(const struct kvt_chunks *c, const char *id)
{
	int64_t from = 0, to = c->nruns;

	while (from < to) {
		int64_t mid = from + (to - from) / 2;
		int order = strcmp(c->chunk[c->run[mid].first].id, id);

		if (!order)
			return &c->run[mid];
		if (order < 0)
			from = mid + 1;
		else
			to = mid;
	}
	return NULL;
}

enum kvt_status kvt_chains_reserve(struct kvt_chains *order, int64_t requests,
				  int64_t runs, const char *where, struct kvt_error *err)
{
	order->chain = calloc((size_t)requests + 1, sizeof(*order->chain));
	order->runs = calloc((size_t)runs + 1, sizeof(*order->runs));
	if (!order->chain || !order->runs)
		return kvt_no_memory(err, where);
	return KVT_OK;
}

/* ---- trees ---------------------------------------------------------------- */

/* Of a run. */
struct node {
	int64_t before;			/* the run that it follows; ROOT, or LOST */
	int64_t depth;			/* runs up to it, itself too; 0: not known yet */
	int64_t top;			/* the first of them */
	bool followed;
};
enum { ROOT = -1, LOST = -2, ON_THE_WAY = -1 };

static const struct kvt_chunk *chunk_of(const struct kvt_chunks *c, int64_t run)
{
	return &c->chunk[c->run[run].first];
}

bool kvt_chains_known(const struct kvt_chunks *c)
{
	for (int64_t i = 0; i < c->nruns; i++)
		if (chunk_of(c, i)->parent)
			return true;
	return false;
}

static void link_nodes(struct node *node, const struct kvt_chunks *c)
{
	for (int64_t i = 0; i < c->nruns; i++) {
		const char *parent = chunk_of(c, i)->parent;
		const struct kvt_chunk_run *found = NULL;

		node[i].before = LOST;
		if (parent && !*parent)
			node[i].before = ROOT;
		else if (parent && (found = kvt_chunks_find(c, parent)))
			node[i].before = found - c->run;
		if (found)
			node[node[i].before].followed = true;
	}
}

/* How far each is from its first one. */
static enum kvt_status measure(struct node *node, int64_t *way,
			       const struct kvt_chunks *c, struct kvt_error *err)
{
	for (int64_t i = 0; i < c->nruns; i++) {
		int64_t n = 0, at = i, depth = 0, top;

		for (; at >= 0 && !node[at].depth; at = node[at].before) {
			node[at].depth = ON_THE_WAY;
			way[n++] = at;
		}
		if (at >= 0 && node[at].depth == ON_THE_WAY)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: block %.80s follows itself: what its parents say is no chain", c->where,
					chunk_of(c, at)->id);
		top = at >= 0 ? node[at].top : n ? way[n - 1] : i;
		if (at >= 0)
			depth = node[at].depth;
		while (n) {
			node[way[--n]].depth = ++depth;
			node[way[n]].top = top;
		}
	}
	return KVT_OK;
}

/* ---- what the user says of those that are lost --------------------------- */

/* "PARENT:N,PARENT:N": the number of that one; -1: it is not in the list. */
static int64_t said_before(const char *list, const char *parent)
{
	size_t n = strlen(parent);

	for (const char *at = list; at && *at; at += strcspn(at, ",")) {
		at += *at == ',';
		if (!strncmp(at, parent, n) && at[n] == ':')
			return strtoll(at + n + 1, NULL, 10);
	}
	return -1;
}

/* Numbers, of parents that are missing, and tokens that fill whole blocks. */
static enum kvt_status check_said(const char *list, const struct node *node,
				  const struct kvt_chunks *c, int64_t each,
				  struct kvt_error *err)
{
	for (const char *at = list; at && *at;) {
		const char *colon = strchr(at, ':'), *digits = colon ? colon + 1 : "";
		size_t n = strspn(digits, "0123456789");
		size_t name = colon ? (size_t)(colon - at) : 0;
		bool used = false;

		if (!name || !n || n > 9 || (digits[n] && digits[n] != ',') ||
		    strtoll(digits, NULL, 10) % each)
			return kvt_fail(err, KVT_USAGE,
					"before is '%.100s', expected BLOCK:TOKENS,..., with a multiple of %lld tokens", list, LL(each));
		for (int64_t i = 0; !used && i < c->nruns; i++) {
			const char *parent = chunk_of(c, i)->parent;

			used = node[i].before == LOST && parent &&
			       strlen(parent) == name && !strncmp(parent, at, name);
		}
		if (!used)
			return kvt_fail(err, KVT_USAGE,
					"before is '%.100s', but no block follows a missing one %.*s", list,
					name < 80 ? (int)name : 80, at);
		at = digits + n + (digits[n] == ',');
	}
	return KVT_OK;
}

/* Tokens before the first chunk of a chain; -1: nobody says. */
static int64_t tokens_before(const struct node *node, int64_t top, const char *said,
			     const struct kvt_chunks *c)
{
	const char *parent = chunk_of(c, top)->parent;

	if (node[top].before == ROOT)
		return 0;
	if (chunk_of(c, top)->first)
		return chunk_of(c, top)->first;
	return parent ? said_before(said, parent) : -1;
}

/* ---- the order ----------------------------------------------------------- */

static enum kvt_status make_chains(struct kvt_chains *out, const struct node *node,
				   const char *said, const struct kvt_chunks *c,
				   struct kvt_error *err)
{
	int64_t links = 0, used = 0;
	enum kvt_status status;

	for (int64_t i = 0; i < c->nruns; i++)
		if (!node[i].followed && (links += node[i].depth) > MOST_LINKS)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: its requests have more than %d blocks in all",
					c->where, MOST_LINKS);
	if ((status = kvt_chains_reserve(out, c->nruns, links, c->where, err)))
		return status;
	for (int64_t i = 0; i < c->nruns; i++) {
		int64_t first = tokens_before(node, node[i].top, said, c);
		struct kvt_chain *chain = &out->chain[out->count];

		if (node[i].followed || first < 0)
			continue;
		*chain = (struct kvt_chain){ chunk_of(c, i)->id, node[i].depth,
					     &out->runs[used], first };
		for (int64_t at = i, k = node[i].depth; k > 0; at = node[at].before)
			chain->run[--k] = at;
		used += node[i].depth;
		out->count++;
	}
	return KVT_OK;
}

static void count_lost(struct kvt_chunks *c, const struct node *node, const char *said)
{
	for (int64_t i = 0; i < c->nruns; i++) {
		if (tokens_before(node, node[i].top, said, c) >= 0)
			continue;
		c->nlost++;
		if (!c->lost)
			c->lost = chunk_of(c, node[i].top);
	}
}

enum kvt_status kvt_chains_order(struct kvt_chains *out, struct kvt_chunks *c,
				 const struct kvt_hints *hints, struct kvt_error *err)
{
	const char *said = kvt_fact(hints, KVT_CHUNKS_BEFORE);
	struct node *node = calloc((size_t)c->nruns + 1, sizeof(*node));
	int64_t *way = calloc((size_t)c->nruns + 1, sizeof(*way));
	int64_t each = hints->block_size > 0 ? hints->block_size : 1;
	enum kvt_status status;

	if (!node || !way) {
		status = kvt_no_memory(err, c->where);
	} else {
		link_nodes(node, c);
		if (!(status = measure(node, way, c, err)) &&
		    !(status = check_said(said, node, c, each, err)) &&
		    !(status = make_chains(out, node, said, c, err)))
			count_lost(c, node, said);
	}
	free(node);
	free(way);
	return status;
}
