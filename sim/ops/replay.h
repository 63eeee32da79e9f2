/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.h - requests of a trace on their way over one link
 *
 * A request is ready when its prompt is computed, or bit by bit while it is.  It
 * waits until few enough others move, then each pair of ranks has a batch for it.
 * It is done when every destination rank has reported.
 */
#ifndef KVT_OPS_REPLAY_H
#define KVT_OPS_REPLAY_H

#include "lib/kvt/connect.h"
#include "lib/transfer/trace.h"
#include "sim/ops/batches.h"

/* ---- what a request moves -------------------------------------------------- */

/*
 * Batches by the length of a request: exact up to two units, from there on each
 * unit adds what the second one did.
 */
struct kvt_request_sizes {
	const struct kvt_model_transfer *from;	/* borrowed; any number of tokens */
	const struct kvt_batch_how *how;	/* borrowed */
	int64_t unit, slots;		/* tokens; of a destination block */
	struct kvt_batches *of;		/* [2 * unit + 1], made when they are asked for */
};

/*
 * 'from' must have ids that lie alike all along, pools of their own and nothing
 * cached.  KVT_UNSUPPORTED: block sizes that hardly ever meet.
 */
KVT_MUST_CHECK enum kvt_status
kvt_request_sizes_init(struct kvt_request_sizes *out,
		       const struct kvt_model_transfer *from,
		       const struct kvt_batch_how *how, struct kvt_error *err);
void kvt_request_sizes_free(struct kvt_request_sizes *sizes);

/* The batches of so many tokens: out[0] to out[n], the same pairs for every length. */
KVT_MUST_CHECK enum kvt_status
kvt_request_sizes_get(struct kvt_batch *out, struct kvt_request_sizes *sizes,
		      int64_t tokens, struct kvt_error *err);

/* That of the pairs, with no figures. */
KVT_MUST_CHECK enum kvt_status
kvt_request_sizes_pairs(const struct kvt_batches **out, struct kvt_request_sizes *sizes,
			struct kvt_error *err);

/* ---- a replay: replay.c ---------------------------------------------------- */

/* A batch that fails after so many retries fails its request. */
enum { KVT_REPLAY_RETRIES = 9 };

/* Times are nanoseconds of the trace. */
struct kvt_replay_how {
	const struct kvt_batch_how *posts;	/* borrowed; of every batch */
	int64_t prefill;		/* tokens a second; 0: no time */
	int64_t pieces;			/* that are ready one by one; 1: all at once */
	int64_t concurrent;		/* requests that move at once */
	int64_t lease_ns;		/* the source keeps blocks so long */
	/* faults */
	uint64_t seed;			/* of chance */
	double drop, corrupt;		/* chance of a batch, 0 to 1 */
	int64_t timeout_ns;		/* until a lost one is noticed */
	int64_t down_at, down_until;	/* of a rail of every rank; -1: none */
	int64_t rails;			/* that the link has */
	int64_t dead_at;		/* of the sources; -1: never */
};

enum kvt_replay_outcome {
	KVT_REPLAY_WAITS,
	KVT_REPLAY_MOVES,
	KVT_REPLAY_DONE,
	KVT_REPLAY_FAILED,
	KVT_REPLAY_EXPIRED,
};

struct kvt_replay_request {
	int64_t arrival, tokens, moved_tokens;	/* moved: those not there */
	int64_t bytes, arrived;		/* to move; of them those that have arrived */
	int64_t ready, start, end;	/* all is ready; it moves; it is over */
	int64_t first;			/* ready, of its pieces */
	int64_t retries, retried_bytes;
	enum kvt_replay_outcome outcome;
	/* private to replay.c */
	struct kvt_countdown reports;
	int64_t *rank_left;		/* batches by rank; owned while it moves */
	int64_t ready_pieces, started_pieces;
};

/* One batch that has arrived, as vLLM counts it: a transfer of a rank. */
struct kvt_replay_transfer {
	int64_t duration, posting;	/* ns */
	int64_t bytes, descriptors;
};

struct kvt_replay {
	int64_t n;
	struct kvt_replay_request *request;	/* owned; as in the trace */
	int64_t ntransfers;
	struct kvt_replay_transfer *transfer;	/* owned; as they arrive */
	int64_t begin, end;		/* first arrival, last end */
	int64_t peak;			/* requests that moved at once */
	int64_t failed_transfers;	/* batches lost, damaged or to a dead peer */
	int64_t hit_tokens, tokens;	/* at the destination already, of all */
	/* bytes that left: arrived for good, sent again, given up on the way */
	int64_t arrived_bytes, retried_bytes, abandoned_bytes;
	int64_t nnics;
	double *nic_bytes;		/* owned; sources, then destinations */
};

/* Every request of the trace ends: done, failed after retries, or expired. */
KVT_MUST_CHECK enum kvt_status
kvt_replay_run(struct kvt_replay *out, const struct kvt_trace *trace,
	       struct kvt_request_sizes *sizes, const struct kvt_replay_how *how,
	       struct kvt_error *err);
void kvt_replay_free(struct kvt_replay *replay);

/* ---- figures: replay_sums.c ------------------------------------------------ */

struct kvt_spread {
	double p50, p90, p99, mean;
};

struct kvt_replay_sums {
	int64_t done, failed, expired, retries;
	int64_t bytes, good;		/* of all requests; of those done in time */
	struct kvt_spread kv, wait;	/* ns a request: the KV part of TTFT, the queue */
	struct kvt_spread xfer, posting;	/* us a transfer, whole ones as in vLLM */
	double xfer_ns, mib, descriptors;	/* sums over transfers */
	double jain, use_mean, use_most;	/* fairness; of the cards' time */
	double seconds, pinned;		/* all of it; bytes x seconds at the source */
};

/* slo_ns 0: whatever is done is in time. */
KVT_MUST_CHECK enum kvt_status
kvt_replay_sum(struct kvt_replay_sums *out, const struct kvt_replay *replay, double rate,
	       int64_t slo_ns, struct kvt_error *err);

/* Nanoseconds from when all is ready to the end. */
int64_t kvt_replay_kv_part(const struct kvt_replay_request *request);

/* The share of the requests that are done, with their KV part in time. */
double kvt_replay_attainment(const struct kvt_replay *replay, int64_t slo_ns);

/* As vLLM's NIXL connector gives it to Prometheus: its names, units and bounds. */
enum { KVT_REPLAY_HISTOGRAMS = 4, KVT_MOST_BOUNDS = 16 };
struct kvt_histogram {
	const char *name;
	double sum, bound[KVT_MOST_BOUNDS];	/* bound 0 ends them */
	int64_t count[KVT_MOST_BOUNDS];	/* up to each bound, as Prometheus has it */
};
void kvt_replay_histogram(struct kvt_histogram *out, const struct kvt_replay *replay,
			  int i);

/* ---- what a request has already: prefix_hits.c ----------------------------- */

/*
 * Tokens at the front of each of the t->n requests that earlier ones had, in a
 * cache that keeps all: the leading blocks whose hash ids came before.
 */
KVT_MUST_CHECK enum kvt_status
kvt_trace_hits(int64_t *tokens, const struct kvt_trace *trace, struct kvt_error *err);

#endif
