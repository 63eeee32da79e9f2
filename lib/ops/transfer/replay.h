/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.h - requests of a trace on their way over one link; for replay and faults
 *
 * A request is ready when its prompt is computed, or bit by bit while it is.  It
 * waits until few enough others move, then each pair of ranks has a batch for it.
 * It is done when every destination rank has reported.
 */
#ifndef KVTOOL_SIM_SERVE_H
#define KVTOOL_SIM_SERVE_H

#include "formats/log/trace.h"
#include "lib/kvt/connect.h"
#include "lib/ops/transfer/posts.h"

/* ---- what a request moves: sim_sizes.c ------------------------------------ */

/*
 * Batches by the length of a request: exact up to two units, from there on each
 * unit adds what the second one did.
 */
struct sizes {
	const struct sim_args *args;	/* borrowed */
	const struct posts_how *how;
	int64_t unit, states;		/* tokens; of a destination block */
	struct posts *of;		/* [2 * unit], made when they are asked for */
};
KVT_MUST_CHECK enum kvt_status
sizes_init(struct sizes *out, const struct sim_args *args, const struct posts_how *how,
	   struct kvt_error *err);
void sizes_free(struct sizes *sizes);

/* The batches of so many tokens: out[0] to out[n], the same pairs for every length. */
KVT_MUST_CHECK enum kvt_status
sizes_get(struct posts_batch *out, struct sizes *sizes, int64_t tokens,
	  struct kvt_error *err);

/* That of the pairs, with no figures. */
KVT_MUST_CHECK enum kvt_status
sizes_pairs(const struct posts **out, struct sizes *sizes, struct kvt_error *err);

/* ---- what happens ------------------------------------------------------- */

enum { SERVE_RETRIES = 9 };

struct serve_how {
	const struct posts_how *posts;
	int64_t prefill;		/* tokens a second; 0: no time */
	int64_t pieces;			/* that are ready one by one; 1: all at once */
	int64_t concurrent;		/* requests that move at once */
	int64_t lease_ns;		/* the source keeps blocks so long */
	/* faults */
	uint64_t seed;
	double drop, corrupt;		/* chance of a batch */
	int64_t timeout_ns;		/* until a lost one is noticed */
	int64_t down_at, down_until;	/* a rail; -1: none */
	int64_t rails;
	int64_t dead_at;		/* the peer; -1: never */
};

enum serve_end { SERVE_WAITS, SERVE_MOVES, SERVE_DONE, SERVE_FAILED, SERVE_EXPIRED };

struct serve_request {
	int64_t arrival, tokens, moved_tokens;	/* moved: those not there */
	int64_t bytes, arrived;		/* to move, and of them those that are there */
	int64_t ready, start, end;	/* all is ready; it moves; it is over */
	int64_t first;			/* ready, of its pieces */
	int64_t retries, retried_bytes;
	enum serve_end how;
	/* internal */
	struct kvt_countdown reports;
	int64_t *rank_left;		/* batches by rank; owned while it moves */
	int64_t ready_pieces, started_pieces;
};

/* One batch that has arrived, as vLLM counts it: a transfer of a rank. */
struct serve_transfer {
	int64_t duration, posting, bytes, descriptors;
};

struct serve {
	int64_t n;
	struct serve_request *request;		/* owned; as in the trace */
	int64_t ntransfers, transfer_room;
	struct serve_transfer *transfer;	/* owned; as they arrive */
	int64_t begin, end;			/* first arrival, last end */
	int64_t peak, failed_transfers;
	int64_t hit_tokens, tokens;
	/* bytes that left: arrived for good, again, given up on the way */
	int64_t arrived_bytes, retried_bytes, abandoned_bytes;
	int64_t nnics;
	double *nic_bytes;			/* owned; sources, then destinations */
};
KVT_MUST_CHECK enum kvt_status
serve_run(struct serve *out, const struct kvt_trace *trace, struct sizes *sizes,
	  const struct serve_how *how, struct kvt_error *err);
void serve_free(struct serve *serve);

/* ---- output: sim_serve_out.c --------------------------------------------- */

struct serve_report {
	const struct serve *serve;
	const struct serve_how *how;
	const struct sizes *sizes;
	const char *trace;
	int64_t slo_ns;			/* 0: none */
	bool faults, requests;		/* print what is about them */
	bool scattered;			/* block ids are 0, 2, 4, ... */
};
void serve_text(const struct serve_report *report);
KVT_MUST_CHECK enum kvt_status
serve_json(const struct serve_report *report, struct kvt_error *err);

/* "metrics", as vLLM gives them to Prometheus: sim_serve_prom.c */
void serve_put_metrics(struct json_out *out, json_t *object, const struct serve *serve);

/* The share of the requests that are done, with their KV part in time. */
double serve_attainment(const struct serve *serve, int64_t slo_ns);

#endif
