/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.c - which tokens of a request a cache of some kind still needs
 *
 * lib/kvt/kind.h has the rule of each kind, as managers of vLLM 0.32 have it, and the
 * source is theirs: single_type_kv_cache_manager.py.  What is dead is one range, so what
 * is live is at most two.
 */
#include "lib/kvt/kind.h"

bool kvt_retention_forgets(const struct kvt_retention *keep)
{
	switch (keep->kind) {
	case KVT_SLIDING_WINDOW:
	case KVT_CHUNKED_LOCAL:
	case KVT_RSWA:
		return true;
	case KVT_MLA:
	case KVT_OPAQUE:
		/* there is no other word for latents, or rows, of a window */
		return keep->window > 0;
	default:
		return false;
	}
}

/* None of these sums: sizes come from files. */
static int64_t less(int64_t n, int64_t kept)
{
	return n > kept ? n - kept : 0;
}

struct kvt_range kvt_dead_tokens(const struct kvt_retention *keep, int64_t computed)
{
	int64_t w = keep->window, p = keep->prompt;
	struct kvt_range none = { 0, 0 };

	if (kvt_is_recurrent(keep->kind))
		return (struct kvt_range){ 0, less(computed, 1) };
	if (!kvt_retention_forgets(keep) || w < 1 || computed < 0)
		return none;
	if (keep->kind == KVT_CHUNKED_LOCAL)
		return (struct kvt_range){ 0, computed - computed % w };
	if (keep->kind == KVT_RSWA)
		return p > 0 && less(computed, w) > p ?
		       (struct kvt_range){ p, computed - w } : none;
	return (struct kvt_range){ 0, less(less(computed, w - 1), keep->retained) };
}

/* Tokens that begin 'before' tokens ahead of the end of a block. */
static int64_t blocks_from(int64_t before, int64_t tokens, int64_t block_size)
{
	int64_t more = less(tokens, before);

	return 1 + more / block_size + (more % block_size != 0);
}

int64_t kvt_most_blocks(const struct kvt_retention *keep, int64_t block_size)
{
	int64_t w = keep->window;

	if (!kvt_retention_forgets(keep) || w < 1 || keep->kind == KVT_RSWA)
		return 0;
	/* chunks begin at its multiples: only so near to the end of a block */
	if (keep->kind == KVT_CHUNKED_LOCAL)
		return blocks_from(kvt_gcd(w, block_size), w, block_size);
	/* one more is computed before the first of them is let go of */
	return blocks_from(1, w + keep->retained, block_size);
}
