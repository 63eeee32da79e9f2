/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kind.h - kinds of cache, and how long each keeps the tokens of a request
 */
#ifndef KVT_KIND_H
#define KVT_KIND_H

#include "lib/kvt/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- cache kinds -------------------------------------------------------- */

enum kvt_kind {
	KVT_FULL_ATTENTION,
	KVT_SLIDING_WINDOW,
	KVT_CHUNKED_LOCAL,
	KVT_MLA,
	KVT_MAMBA_CONV,		/* S counts taps, D channels */
	KVT_MAMBA_SSM,
	KVT_CROSS,
	KVT_OPAQUE,
	KVT_RSWA,		/* a window over what was generated; the prompt stays */
	KVT_NKINDS
};
KVT_API const char *kvt_kind_name(enum kvt_kind kind);		/* "full_attention" */
bool kvt_kind_find(enum kvt_kind *out, const char *name);

/* Does a state stand for all tokens up to it? */
static inline bool kvt_is_recurrent(enum kvt_kind kind)
{
	return kind == KVT_MAMBA_CONV || kind == KVT_MAMBA_SSM;
}

/* ---- what a request still needs ------------------------------------------ */

/*
 * How long a cache keeps the tokens of a request.  Engines decide it by the kind:
 * a window that full attention carries is one of its kernels, and frees nothing.
 * Latents and opaque rows that have a window are those of a sliding one.
 */
struct kvt_retention {
	enum kvt_kind kind;
	int64_t window;			/* tokens of a window or a chunk; 0: unknown */
	int64_t retained;		/* tokens that a window keeps besides */
	int64_t prompt;			/* of an R-SWA request; 0: unknown */
};

/* Does it ever let go of a token?  Also where it is not known after how many. */
bool kvt_retention_forgets(const struct kvt_retention *keep);

/*
 * The tokens that nothing computed later looks at, when 'computed' of a request
 * are in the cache; as the managers of vLLM 0.32 have it:
 *
 *   sliding window of w     all but the last w - 1, and 'retained' before them
 *   chunks of c             all up to the last chunk's end, so all of them at c
 *   R-SWA of w              from the end of the prompt to the last w
 *   recurrent               all but the newest: its state stands for them
 *   anything else           none
 *
 * Empty where window or prompt would have to be known and are not.
 */
struct kvt_range kvt_dead_tokens(const struct kvt_retention *keep, int64_t computed);

/*
 * The blocks that live tokens of a request are in at most; 0: any number.  Tokens
 * of a step that still runs come on top.
 */
int64_t kvt_most_blocks(const struct kvt_retention *keep, int64_t block_size);

#ifdef __cplusplus
}
#endif

#endif
