/* SPDX-License-Identifier: Apache-2.0 */
/* replay_run.h - a replay under way; for sim_serve.c and sim_serve_jobs.c */
#ifndef KVTOOL_SIM_SERVE_RUN_H
#define KVTOOL_SIM_SERVE_RUN_H

#include "lib/ops/transfer/events.h"
#include "lib/ops/transfer/replay.h"

/*
 * One batch of a request: a piece of it, between one pair of ranks.
 * It is in the list of its request, and it waits for one event or its flow is under
 * way.  What left the list has request -1, and is freed by its event.
 */
struct job {
	struct kvt_flow flow;		/* first: a flow is its job */
	int64_t request, pair, piece, attempt;
	int64_t post, posting;
	struct posts_batch batch;
	struct kvt_link link;
	bool moving;
	struct job *next, **link_back;	/* of the request's */
};

struct run {
	struct serve *s;
	const struct serve_how *how;
	struct sizes *sizes;
	const struct posts *pairs;
	struct kvt_sim sim;
	struct kvt_nic *nics;
	int64_t *busy;			/* until when a rank posts */
	struct events events;
	int64_t *queue, head, tail;	/* requests that wait, by number */
	int64_t moving;
	struct job **jobs;		/* of each request that moves */
	struct posts_batch *batches;	/* room for one request's */
	bool dead;
	struct kvt_error *err;
	enum kvt_status status;
};

void serve_out_of_memory(struct run *r);
void serve_push(struct run *r, int64_t at, enum event_kind kind, int64_t request,
		struct job *job);

/* Requests that wait, as far as there is room. */
void serve_start_next(struct run *r);

/* Batches of the pieces that are ready and have none yet. */
void serve_start_pieces(struct run *r, int64_t n);

/* It moves no more, whatever the reason. */
void serve_end_request(struct run *r, int64_t n, enum serve_end how);

/* Of a job: its event is there; its flow is. */
void serve_post(struct run *r, struct job *j, int64_t at);
void serve_arrived(struct run *r, struct job *j);

#endif
