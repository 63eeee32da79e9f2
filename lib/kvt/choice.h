/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choice.h - what vLLM chooses for a cache before it allocates it
 *
 * The order that all layers of a model have, what connectors ask for, and whether
 * fresh blocks are zeroed; of release 0.32 where nothing else is said.  The
 * conventions are those of kvt.h.
 */
#ifndef KVT_CHOICE_H
#define KVT_CHOICE_H

#include "lib/kvt/base.h"
#include "lib/kvt/release.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- named orders ------------------------------------------------------- */

/* vLLM's KVCacheLayout, in its order; -1 stands for none. */
enum kvt_kv_layout {
	KVT_LBHNC,
	KVT_LBNHC,
	KVT_LHBNC,
	KVT_BLHNC,
	KVT_BLNHC,
	KVT_BHLNC,
	KVT_NKV_LAYOUTS
};
const char *kvt_kv_layout_name(enum kvt_kv_layout layout);

/* How a release calls it: before 0.32 there were NHD and HND alone. */
const char *kvt_kv_layout_word(enum kvt_kv_layout layout, enum kvt_release release);

/* A name, or NHD or HND, which are other names of two.  KVT_USAGE if it is none. */
KVT_MUST_CHECK enum kvt_status
kvt_kv_layout_parse(enum kvt_kv_layout *out, const char *name, struct kvt_error *err);

bool kvt_kv_layout_block_compact(enum kvt_kv_layout layout);	/* ends in H, N, C */
bool kvt_kv_layout_block_outermost(enum kvt_kv_layout layout);

/* Orders that something takes, the one it prefers first. */
struct kvt_kv_layouts {
	int n;				/* 0: it declares none, any will do */
	enum kvt_kv_layout at[KVT_NKV_LAYOUTS];
};

/* "LBHNC BLHNC"; KVT_USAGE for an unknown name or one that is listed twice. */
KVT_MUST_CHECK enum kvt_status
kvt_kv_layouts_parse(struct kvt_kv_layouts *out, const char *names,
		     struct kvt_error *err);

/*
 * What all of them take: a list that they share as it is, else what is in each,
 * with what most prefer first.  KVT_BAD_INPUT if nothing is in each.
 */
KVT_MUST_CHECK enum kvt_status
kvt_kv_layouts_common(struct kvt_kv_layouts *out, const struct kvt_kv_layouts *list,
		      int n, struct kvt_error *err);

/* ---- what connectors ask for -------------------------------------------- */

/* What their answer depends on. */
struct kvt_connector_model {
	enum kvt_release release;
	bool mla, hisparse;
	bool unknown;			/* no model is configured */
};

/* The connectors of a release; NULL past the last. */
const char *kvt_connector_at(enum kvt_release release, int i);

/*
 * The order that a cache must have for all of the connectors, -1 if none is asked
 * for.  More than one are those of a MultiConnector, which none of them may be.
 * KVT_USAGE for an unknown name; KVT_BAD_INPUT if they ask for different ones.
 */
KVT_MUST_CHECK enum kvt_status
kvt_connector_layout(int *out, const char *const *name, int n,
		     const struct kvt_connector_model *model, struct kvt_error *err);

/* ---- the order of a cache ----------------------------------------------- */

/* What the rule looks at, of one spec. */
struct kvt_layout_spec {
	int64_t heads, states, page;
	/* of attention whose slots a mapping says: is it sharded by DCP?  -1: other */
	int dcp_sharded;
};

struct kvt_layout_request {
	int resolved;			/* by an earlier run; -1: not yet */
	const struct kvt_kv_layouts *worker;	/* what each worker takes, n above 0 */
	int nworkers;
	const struct kvt_layout_spec *spec;
	int nspecs;
	int requested;			/* VLLM_KV_CACHE_LAYOUT; -1: not set */
	int connector;			/* kvt_connector_layout() */
};

enum kvt_layout_why {
	KVT_LAYOUT_RESOLVED,		/* it was chosen before */
	KVT_LAYOUT_REQUESTED,
	KVT_LAYOUT_CONNECTOR,
	KVT_LAYOUT_FIRST,		/* nothing is asked for */
	KVT_LAYOUT_DROPPED,		/* the first: the connector's is none of them */
};

struct kvt_layout_choice {
	enum kvt_kv_layout layout;
	enum kvt_layout_why why;
	struct kvt_kv_layouts candidates;	/* n 0 where resolved */
};

/* KVT_BAD_INPUT where vLLM raises an error. */
KVT_MUST_CHECK enum kvt_status
kvt_layout_choose(struct kvt_layout_choice *out, const struct kvt_layout_request *request,
		  struct kvt_error *err);

/* ---- fresh blocks ------------------------------------------------------- */

enum kvt_zeroing_kind { KVT_ZEROING_ATTENTION, KVT_ZEROING_STATE, KVT_ZEROING_OTHER };

/* Of each spec of each group. */
struct kvt_zeroing_spec {
	enum kvt_zeroing_kind kind;	/* STATE: Mamba and the like */
	const char *dtype, *quant;	/* of attention; quant NULL: none */
	bool host_resident;		/* its group is */
};

/*
 * vLLM's needs_kv_cache_zeroing: where it is false, a fresh block holds what was in
 * it before.
 */
bool kvt_needs_zeroing(enum kvt_release release, const struct kvt_zeroing_spec *spec,
		       int n);

#ifdef __cplusplus
}
#endif

#endif
