/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.h - which ranks of other engines a rank reads from
 *
 * vLLM's TransferTopology and the mapping that its NIXL connector makes of it, as
 * release 0.32 computes them: one rank here, any number of remote engines, each with
 * ranks of its own.  The conventions are those of kvt.h.
 */
#ifndef KVT_TOPOLOGY_H
#define KVT_TOPOLOGY_H

#include "lib/kvt/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KVT_MAX_REMOTE_RANKS = 1024 };

/* The rank that reads. */
struct kvt_topology {
	const char *engine;		/* its id */
	int64_t tp_rank, tp_size;
	int64_t block_size;		/* tokens */
	int64_t kv_heads;		/* of the model */
	int64_t dcp_size;		/* 1: not sharded */
	bool mla;
	bool has_states;		/* groups of Mamba, beside attention or alone */
};

/* An engine that is read from: one pipeline rank of it. */
struct kvt_remote {
	const char *engine;
	int64_t pp_rank, tp_size;
	int64_t block_size;		/* tokens */
	int64_t block_len;		/* bytes; 0: not known */
	int64_t physical;		/* physical blocks of a logical one */
	int64_t start_layer, end_layer;	/* of the model; both 0: not known */
	int64_t dcp_size;
};

/* Ranks, ascending unless said. */
struct kvt_rank_list {
	int64_t n, at[KVT_MAX_REMOTE_RANKS];
};

/*
 * KVT_BAD_INPUT for sizes below 1, a rank that is none, more ranks than fit; for a
 * remote also one with the engine's own id.
 */
KVT_MUST_CHECK enum kvt_status
kvt_topology_check(const struct kvt_topology *local, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_remote_check(const struct kvt_topology *local, const struct kvt_remote *remote,
		 struct kvt_error *err);

/* KV heads that the rank holds, at least 1. */
int64_t kvt_topology_heads(const struct kvt_topology *local);
/* Do several ranks hold the same, here and there? */
bool kvt_topology_replicates(const struct kvt_topology *local);
bool kvt_remote_replicates(const struct kvt_topology *local,
			   const struct kvt_remote *remote);

/* Whom it asks for metadata first; KVT_BAD_INPUT where TP sizes do not divide. */
KVT_MUST_CHECK enum kvt_status
kvt_handshake_ranks(struct kvt_rank_list *out, const struct kvt_topology *local,
		    const struct kvt_remote *remote, struct kvt_error *err);

/* What it reads of one remote engine. */
struct kvt_tp_mapping {
	struct kvt_rank_list attention;	/* sources of groups of attention, in order */
	struct kvt_rank_list states;	/* of groups of Mamba; n 0 without any */
	struct kvt_rank_list all;
	int64_t slot[KVT_MAX_REMOTE_RANKS];	/* of all.at[i]: its heads here */
	int64_t offset;			/* which part of the remote's heads it takes */
	int64_t consumers;		/* ranks here that read from one there */
};
KVT_MUST_CHECK enum kvt_status
kvt_tp_mapping(struct kvt_tp_mapping *out, const struct kvt_topology *local,
	       const struct kvt_remote *remote, struct kvt_error *err);

#ifdef __cplusplus
}
#endif

#endif
