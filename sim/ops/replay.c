/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - requests of a trace on their way over one link
 *
 * A simulation of discrete events.  Pending events are in a queue by time
 * (events.c), batches on the wire are flows of lib/transfer/link_sim.c, and whichever
 * is next is handled: so the cost is a logarithm of the pending events and a pass
 * over the flows under way, an event.
 *
 * A request has an event for each piece of its prompt that is ready, and one for the
 * end of its lease, so every request ends.  With its first piece it enters the queue
 * of those that wait; when it moves, each ready piece becomes a job for each pair of
 * ranks.  A job waits for the rank that posts it, then its flow is under way; it
 * arrives, or is lost or damaged and posted again.  A rank reports when it has all
 * batches, and the last report ends the request.
 *
 * Each job is in the list of its request, and either waits for exactly one event or
 * has a flow.  A job that left the list while an event still names it has request
 * -1 and is freed by that event.  Chance depends on the seed and on what is asked
 * about, not on the order of asking: the result is the same for the same input.
 */
#include "sim/ops/replay.h"

#include <stdlib.h>

#include "lib/base/grow.h"
#include "sim/ops/events.h"

/* ---- a replay under way ------------------------------------------------------ */

/* One batch of a request: a piece of it, between one pair of ranks. */
struct job {
	struct kvt_flow flow;		/* first: a flow is its job */
	int64_t request, pair, piece, attempt;
	int64_t post, posting;
	struct kvt_batch batch;
	struct kvt_link link;
	bool moving;
	struct job *next, **link_back;	/* of the request's */
};

struct run {
	struct kvt_replay *s;
	const struct kvt_replay_how *how;
	struct kvt_request_sizes *sizes;
	const struct kvt_batches *pairs;
	struct kvt_sim sim;
	struct kvt_nic *nics;
	int64_t *busy;			/* until when a rank posts */
	struct events events;
	int64_t *queue, head, tail;	/* requests that wait, by number */
	int64_t moving;
	struct job **jobs;		/* of each request that moves */
	struct kvt_batch *batches;	/* room for one request's */
	bool dead;
	struct kvt_error *err;
	enum kvt_status status;
};

static void out_of_memory(struct run *r)
{
	if (!r->status)
		r->status = kvt_no_memory(r->err, NULL);
}

static void push_event(struct run *r, int64_t at, enum event_kind kind, int64_t request,
		 struct job *job)
{
	if (!events_push(&r->events, (struct event){ at, 0, kind, request, job }))
		out_of_memory(r);
}

/* ---- chance --------------------------------------------------------------- */

/* From 0 to below 1; 'about' tells the questions about one attempt apart. */
static double chance(const struct run *r, const struct job *j, uint64_t about)
{
	const uint64_t what[] = { (uint64_t)j->request, (uint64_t)j->pair,
				  (uint64_t)j->piece, (uint64_t)j->attempt, about };
	uint64_t z = r->how->seed;

	for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++) {
		z += 0x9e3779b97f4a7c15u + what[i];
		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
		z = (z ^ z >> 27) * 0x94d049bb133111ebu;
		z ^= z >> 31;
	}
	return (double)(z >> 11) / 9007199254740992.0;
}

/* ---- requests --------------------------------------------------------------- */

static int64_t share_of(int64_t whole, int64_t part, int64_t parts)
{
	return whole / parts * (part + 1) + whole % parts * (part + 1) / parts -
	       whole / parts * part - whole % parts * part / parts;
}

static void add_job(struct run *r, int64_t n, int64_t pair, int64_t piece)
{
	struct kvt_replay_request *q = &r->s->request[n];
	struct job *j = calloc(1, sizeof(*j));
	const struct kvt_batch *b = &r->batches[pair];
	int64_t parts = r->how->pieces;

	if (!j) {
		out_of_memory(r);
		return;
	}
	j->request = n;
	j->pair = pair;
	j->piece = piece;
	j->batch = *b;
	j->batch.bytes = share_of(b->bytes, piece, parts);
	j->batch.ops = share_of(b->ops, piece, parts);
	j->batch.merged = share_of(b->merged, piece, parts);
	if (!j->batch.ops && j->batch.bytes)
		j->batch.ops = 1;
	j->link = kvt_batch_link(r->how->posts, j->batch.ops, j->batch.bytes);
	j->next = r->jobs[n];
	j->link_back = &r->jobs[n];
	if (j->next)
		j->next->link_back = &j->next;
	r->jobs[n] = j;
	q->rank_left[b->dst_rank]++;
	push_event(r, r->sim.now, EVENT_POST, n, j);
}

static bool split_batches(struct run *r, int64_t n)
{
	const struct kvt_replay_request *q = &r->s->request[n];
	int64_t bytes = 0, given = q->bytes, sum = 0;

	r->status = kvt_request_sizes_get(r->batches, r->sizes, q->moved_tokens, r->err);
	if (r->status)
		return false;
	for (int64_t i = 0; i < r->pairs->n; i++)
		bytes += r->batches[i].bytes;
	if (given == bytes)
		return true;
	/* a trace that says how many bytes: the pairs keep their parts of it */
	for (int64_t i = 0; i < r->pairs->n; i++) {
		struct kvt_batch *b = &r->batches[i];

		b->bytes = i + 1 == r->pairs->n ? given - sum :
			   (int64_t)((double)given * ((double)b->bytes / (double)bytes));
		sum += b->bytes;
	}
	return true;
}

/* Batches of the pieces that are ready and have none yet. */
static void start_pieces(struct run *r, int64_t n)
{
	struct kvt_replay_request *q = &r->s->request[n];

	if (r->status || !split_batches(r, n))
		return;
	if (!q->rank_left) {
		q->rank_left = calloc((size_t)r->pairs->dst_ranks, sizeof(*q->rank_left));
		if (!q->rank_left) {
			out_of_memory(r);
			return;
		}
	}
	for (; q->started_pieces < q->ready_pieces; q->started_pieces++)
		for (int64_t pair = 0; pair < r->pairs->n; pair++)
			add_job(r, n, pair, q->started_pieces);
}

/* Requests that wait, as far as there is room. */
static void start_waiting(struct run *r)
{
	while (r->head < r->tail && r->moving < r->how->concurrent) {
		int64_t n = r->queue[r->head++];
		struct kvt_replay_request *q = &r->s->request[n];

		if (q->outcome != KVT_REPLAY_WAITS)
			continue;
		q->outcome = KVT_REPLAY_MOVES;
		q->start = r->sim.now;
		if (++r->moving > r->s->peak)
			r->s->peak = r->moving;
		start_pieces(r, n);
	}
}

static void drop_job(struct run *r, struct job *j)
{
	*j->link_back = j->next;
	if (j->next)
		j->next->link_back = j->link_back;
	/* an event that still names it frees it; one with a flow has none */
	j->request = -1;
	if (j->moving) {
		double moved = (double)j->flow.bytes - j->flow.left;

		kvt_sim_cancel(&r->sim, &j->flow);
		r->s->abandoned_bytes += (int64_t)(moved + 0.5);
		r->s->nic_bytes[j->batch.src_rank] += moved;
		r->s->nic_bytes[r->pairs->src_ranks + j->batch.dst_rank] += moved;
		free(j);
	}
}

/* Drops its jobs, and lets the next request move. */
static void end_request(struct run *r, int64_t n, enum kvt_replay_outcome how)
{
	struct kvt_replay_request *q = &r->s->request[n];

	r->moving -= q->outcome == KVT_REPLAY_MOVES;
	q->outcome = how;
	q->end = r->sim.now;
	if (q->end > r->s->end)
		r->s->end = q->end;
	while (r->jobs[n])
		drop_job(r, r->jobs[n]);
	free(q->rank_left);
	q->rank_left = NULL;
	start_waiting(r);
}

/* A rank has all: it reports, and the last report ends the request. */
static void report(struct run *r, int64_t n, int64_t rank)
{
	struct kvt_replay_request *q = &r->s->request[n];

	if (q->rank_left[rank] || q->started_pieces < r->how->pieces)
		return;
	if (kvt_countdown_report(&q->reports, r->pairs->dst_ranks))
		end_request(r, n, KVT_REPLAY_DONE);
}

/* ---- batches -------------------------------------------------------------- */

static void retry(struct run *r, struct job *j, int64_t after)
{
	struct kvt_replay_request *q = &r->s->request[j->request];

	r->s->failed_transfers++;
	if (j->attempt++ >= KVT_REPLAY_RETRIES) {
		int64_t n = j->request;

		end_request(r, n, KVT_REPLAY_FAILED);
		free(j);
		return;
	}
	q->retries++;
	push_event(r, r->sim.now + after, EVENT_POST, j->request, j);
}

static void post_job(struct run *r, struct job *j, int64_t at)
{
	int64_t rank = r->how->posts->push ? j->batch.src_rank :
		       r->pairs->src_ranks + j->batch.dst_rank;

	if (r->dead) {
		retry(r, j, r->how->timeout_ns);
		return;
	}
	if (r->busy[rank] > at) {
		push_event(r, r->busy[rank], EVENT_POST, j->request, j);
		return;
	}
	j->post = at;
	j->posting = kvt_link_post_ns(&j->link, j->batch.ops);
	r->busy[rank] = at + j->posting;
	j->flow.src = &r->nics[j->batch.src_rank];
	j->flow.dst = &r->nics[r->pairs->src_ranks + j->batch.dst_rank];
	j->moving = true;
	kvt_sim_add(&r->sim, &j->flow, &j->link, j->batch.ops, j->batch.bytes);
}

static void record_transfer(struct run *r, const struct job *j)
{
	struct kvt_replay *s = r->s;

	if (!KVT_GROW(&s->transfer, s->ntransfers)) {
		out_of_memory(r);
		return;
	}
	s->transfer[s->ntransfers++] = (struct kvt_replay_transfer){
		j->flow.end - j->post, j->posting, j->batch.bytes, j->batch.merged,
	};
}

static void job_arrived(struct run *r, struct job *j)
{
	struct kvt_replay_request *q = &r->s->request[j->request];
	bool lost = r->how->drop > 0 && chance(r, j, 1) < r->how->drop;
	bool wrong = r->how->corrupt > 0 && chance(r, j, 2) < r->how->corrupt;
	int64_t n = j->request, rank = j->batch.dst_rank;

	j->moving = false;
	r->s->nic_bytes[j->batch.src_rank] += (double)j->batch.bytes;
	r->s->nic_bytes[r->pairs->src_ranks + rank] += (double)j->batch.bytes;
	if (lost || wrong) {
		q->retried_bytes += j->batch.bytes;
		r->s->retried_bytes += j->batch.bytes;
		retry(r, j, lost ? r->how->timeout_ns : 0);
		return;
	}
	r->s->arrived_bytes += j->batch.bytes;
	q->arrived += j->batch.bytes;
	record_transfer(r, j);
	drop_job(r, j);
	free(j);
	q->rank_left[rank]--;
	report(r, n, rank);
}

/* ---- events ------------------------------------------------------------------ */

static void piece_ready(struct run *r, int64_t n)
{
	struct kvt_replay_request *q = &r->s->request[n];

	if (q->outcome > KVT_REPLAY_MOVES)
		return;
	if (q->ready_pieces++ == 0) {
		r->queue[r->tail++] = n;
		start_waiting(r);
	} else if (q->outcome == KVT_REPLAY_MOVES) {
		start_pieces(r, n);
	}
}

static void set_rails(struct run *r, int64_t rails)
{
	double rate = r->how->posts->link.rate ? (double)r->how->posts->link.rate : 1e30;

	for (int64_t i = 0; i < r->s->nnics; i++)
		kvt_sim_set_rate(&r->sim, &r->nics[i],
				 rate * (double)rails / (double)r->how->rails);
}

/* What is on the wire is lost, which is noticed after the timeout. */
static void peer_dies(struct run *r)
{
	r->dead = true;
	for (struct kvt_flow *f = r->sim.flows, *next; f; f = next) {
		struct job *j = (struct job *)f;
		double moved = (double)f->bytes - f->left;

		next = f->next;
		kvt_sim_cancel(&r->sim, f);
		j->moving = false;
		r->s->abandoned_bytes += (int64_t)(moved + 0.5);
		r->s->nic_bytes[j->batch.src_rank] += moved;
		r->s->nic_bytes[r->pairs->src_ranks + j->batch.dst_rank] += moved;
		/* counted now, given up only later: others are still being walked */
		j->attempt++;
		r->s->failed_transfers++;
		r->s->request[j->request].retries++;
		push_event(r, r->sim.now + r->how->timeout_ns, EVENT_POST, j->request, j);
	}
}

static void handle_event(struct run *r, const struct event *e)
{
	switch (e->kind) {
	case EVENT_PIECE:
		piece_ready(r, e->request);
		break;
	case EVENT_POST:
		if (e->job->request < 0)
			free(e->job);
		else
			post_job(r, e->job, e->at);
		break;
	case EVENT_EXPIRE:
		if (r->s->request[e->request].outcome <= KVT_REPLAY_MOVES)
			end_request(r, e->request, KVT_REPLAY_EXPIRED);
		break;
	case EVENT_DOWN:
		set_rails(r, r->how->rails - 1);
		break;
	case EVENT_UP:
		set_rails(r, r->how->rails);
		break;
	case EVENT_DEAD:
		peer_dies(r);
		break;
	}
}

/* Every request has an event that ends it, when its lease is over. */
static void run_events(struct run *r)
{
	while (!r->status && (r->events.n || r->sim.nflows)) {
		int64_t until = r->events.n ? r->events.heap[0].at : INT64_MAX;
		struct kvt_flow *done = kvt_sim_next(&r->sim, until);
		struct event e;

		if (done) {
			job_arrived(r, (struct job *)done);
			continue;
		}
		if (!r->events.n)
			break;
		e = events_pop(&r->events);
		handle_event(r, &e);
	}
}

/* ---- the trace ------------------------------------------------------------ */

static void add_events(struct run *r, int64_t n)
{
	struct kvt_replay_request *q = &r->s->request[n];
	double prefill = r->how->prefill ? (double)q->moved_tokens * 1e9 /
					   (double)r->how->prefill : 0;

	for (int64_t i = 0; i < r->how->pieces; i++) {
		q->ready = q->arrival + (int64_t)(prefill * (double)(i + 1) /
						  (double)r->how->pieces + 0.5);
		if (!i)
			q->first = q->ready;
		push_event(r, q->ready, EVENT_PIECE, n, NULL);
	}
	push_event(r, q->ready + r->how->lease_ns, EVENT_EXPIRE, n, NULL);
}

static void add_request(struct run *r, const struct kvt_trace_row *row, int64_t hit,
			int64_t n)
{
	struct kvt_replay_request *q = &r->s->request[n];

	*q = (struct kvt_replay_request){ .arrival = row->arrival, .tokens = row->tokens,
				     .moved_tokens = row->tokens - hit };
	r->s->tokens += row->tokens;
	r->s->hit_tokens += hit;
	q->ready = q->first = q->start = q->end = q->arrival;
	if (!q->moved_tokens) {		/* all of it is there already */
		q->outcome = KVT_REPLAY_DONE;
		return;
	}
	r->status = kvt_request_sizes_get(r->batches, r->sizes, q->moved_tokens, r->err);
	for (int64_t i = 0; !r->status && i < r->pairs->n; i++)
		q->bytes += r->batches[i].bytes;
	if (row->bytes >= 0)
		q->bytes = row->bytes;
	add_events(r, n);
}

static void add_requests(struct run *r, const struct kvt_trace *t)
{
	int64_t *hits = malloc((size_t)t->n * sizeof(*hits));

	if (!hits) {
		out_of_memory(r);
		return;
	}
	r->status = kvt_trace_hits(hits, t, r->err);
	for (int64_t n = 0; !r->status && n < t->n; n++)
		add_request(r, &t->row[n], hits[n], n);
	free(hits);
	if (r->how->down_at >= 0) {
		push_event(r, r->how->down_at, EVENT_DOWN, 0, NULL);
		push_event(r, r->how->down_until, EVENT_UP, 0, NULL);
	}
	if (r->how->dead_at >= 0)
		push_event(r, r->how->dead_at, EVENT_DEAD, 0, NULL);
}

/* ---- all of it ------------------------------------------------------------ */

static void init_run(struct run *r, const struct kvt_trace *t)
{
	struct kvt_replay *s = r->s;
	size_t nics, n = (size_t)t->n;

	s->n = t->n;
	s->begin = s->end = t->row[0].arrival;
	s->nnics = r->pairs->src_ranks + r->pairs->dst_ranks;
	nics = (size_t)s->nnics;
	s->request = calloc(n + 1, sizeof(*s->request));
	s->nic_bytes = calloc(nics, sizeof(*s->nic_bytes));
	r->nics = calloc(nics, sizeof(*r->nics));
	r->busy = calloc(nics, sizeof(*r->busy));
	r->queue = calloc(n + 1, sizeof(*r->queue));
	r->jobs = calloc(n + 1, sizeof(*r->jobs));
	r->batches = calloc((size_t)r->pairs->n + 1, sizeof(*r->batches));
	if (!s->request || !s->nic_bytes || !r->nics || !r->busy || !r->queue ||
	    !r->jobs || !r->batches)
		out_of_memory(r);
	else
		set_rails(r, r->how->rails);
}

static void free_run(struct run *r)
{
	while (r->events.n) {
		struct event e = events_pop(&r->events);

		if (e.job && e.job->request < 0)
			free(e.job);
	}
	for (int64_t n = 0; r->jobs && n < r->s->n; n++)
		for (struct job *j = r->jobs[n], *next; j; j = next) {
			next = j->next;
			free(j);
		}
	free(r->nics);
	free(r->busy);
	free(r->queue);
	free(r->jobs);
	free(r->batches);
	events_free(&r->events);
}

enum kvt_status kvt_replay_run(struct kvt_replay *out, const struct kvt_trace *trace,
			       struct kvt_request_sizes *sizes,
			       const struct kvt_replay_how *how, struct kvt_error *err)
{
	struct run r = { .s = out, .how = how, .sizes = sizes, .err = err };

	*out = (struct kvt_replay){ 0 };
	if ((r.status = kvt_request_sizes_pairs(&r.pairs, sizes, err)))
		return r.status;
	kvt_sim_init(&r.sim, how->posts->share);
	init_run(&r, trace);
	if (!r.status)
		add_requests(&r, trace);
	if (!r.status)
		run_events(&r);
	free_run(&r);
	if (r.status)
		kvt_replay_free(out);
	return r.status;
}

void kvt_replay_free(struct kvt_replay *s)
{
	for (int64_t n = 0; s->request && n < s->n; n++)
		free(s->request[n].rank_left);
	free(s->request);
	free(s->transfer);
	free(s->nic_bytes);
	*s = (struct kvt_replay){ 0 };
}
