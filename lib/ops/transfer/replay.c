/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c - requests of a trace on their way over one link */
#include "lib/ops/transfer/replay_run.h"

#include <stdlib.h>

/* ---- what happens --------------------------------------------------------- */

static void piece_ready(struct run *r, int64_t n)
{
	struct serve_request *q = &r->s->request[n];

	if (q->how > SERVE_MOVES)
		return;
	if (q->ready_pieces++ == 0) {
		r->queue[r->tail++] = n;
		serve_start_next(r);
	} else if (q->how == SERVE_MOVES) {
		serve_start_pieces(r, n);
	}
}

static void set_rails(struct run *r, int64_t rails)
{
	double rate = r->how->posts->link.rate ? (double)r->how->posts->link.rate : 1e30;

	for (int64_t i = 0; i < r->s->nnics; i++)
		kvt_sim_set_rate(&r->sim, &r->nics[i],
				 rate * (double)rails / (double)r->how->rails);
}

/* What is on its way is noticed to be lost after a timeout. */
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
		serve_push(r, r->sim.now + r->how->timeout_ns, EVENT_POST, j->request, j);
	}
}

static void happen(struct run *r, const struct event *e)
{
	switch (e->kind) {
	case EVENT_PIECE:
		piece_ready(r, e->request);
		break;
	case EVENT_POST:
		if (e->job->request < 0)
			free(e->job);
		else
			serve_post(r, e->job, e->at);
		break;
	case EVENT_EXPIRE:
		if (r->s->request[e->request].how <= SERVE_MOVES)
			serve_end_request(r, e->request, SERVE_EXPIRED);
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
static void loop(struct run *r)
{
	while (!r->status && (r->events.n || r->sim.nflows)) {
		int64_t until = r->events.n ? r->events.heap[0].at : INT64_MAX;
		struct kvt_flow *done = kvt_sim_next(&r->sim, until);
		struct event e;

		if (done) {
			serve_arrived(r, (struct job *)done);
			continue;
		}
		if (!r->events.n)
			break;
		e = events_pop(&r->events);
		happen(r, &e);
	}
}

/* ---- the trace ------------------------------------------------------------ */

static void add_events(struct run *r, int64_t n)
{
	struct serve_request *q = &r->s->request[n];
	double prefill = r->how->prefill ? (double)q->moved_tokens * 1e9 /
					   (double)r->how->prefill : 0;

	for (int64_t i = 0; i < r->how->pieces; i++) {
		q->ready = q->arrival + (int64_t)(prefill * (double)(i + 1) /
						  (double)r->how->pieces + 0.5);
		if (!i)
			q->first = q->ready;
		serve_push(r, q->ready, EVENT_PIECE, n, NULL);
	}
	serve_push(r, q->ready + r->how->lease_ns, EVENT_EXPIRE, n, NULL);
}

static void add_request(struct run *r, const struct kvt_trace_row *row, int64_t hit,
			int64_t n)
{
	struct serve_request *q = &r->s->request[n];

	*q = (struct serve_request){ .arrival = row->arrival, .tokens = row->tokens,
				     .moved_tokens = row->tokens - hit };
	r->s->tokens += row->tokens;
	r->s->hit_tokens += hit;
	q->ready = q->first = q->start = q->end = q->arrival;
	if (!q->moved_tokens) {		/* all of it is there already */
		q->how = SERVE_DONE;
		return;
	}
	r->status = sizes_get(r->batches, r->sizes, q->moved_tokens, r->err);
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
		serve_out_of_memory(r);
		return;
	}
	r->status = kvt_trace_hits(hits, t, r->err);
	for (int64_t n = 0; !r->status && n < t->n; n++)
		add_request(r, &t->row[n], hits[n], n);
	free(hits);
	if (r->how->down_at >= 0) {
		serve_push(r, r->how->down_at, EVENT_DOWN, 0, NULL);
		serve_push(r, r->how->down_until, EVENT_UP, 0, NULL);
	}
	if (r->how->dead_at >= 0)
		serve_push(r, r->how->dead_at, EVENT_DEAD, 0, NULL);
}

/* ---- all of it ------------------------------------------------------------ */

static void run_init(struct run *r, const struct kvt_trace *t)
{
	struct serve *s = r->s;
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
		serve_out_of_memory(r);
	else
		set_rails(r, r->how->rails);
}

static void run_free(struct run *r)
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

enum kvt_status serve_run(struct serve *out, const struct kvt_trace *trace,
			  struct sizes *sizes, const struct serve_how *how,
			  struct kvt_error *err)
{
	struct run r = { .s = out, .how = how, .sizes = sizes, .err = err };

	*out = (struct serve){ 0 };
	if ((r.status = sizes_pairs(&r.pairs, sizes, err)))
		return r.status;
	kvt_sim_init(&r.sim, how->posts->share);
	run_init(&r, trace);
	if (!r.status)
		add_requests(&r, trace);
	if (!r.status)
		loop(&r);
	run_free(&r);
	if (r.status)
		serve_free(out);
	return r.status;
}

void serve_free(struct serve *s)
{
	for (int64_t n = 0; s->request && n < s->n; n++)
		free(s->request[n].rank_left);
	free(s->request);
	free(s->transfer);
	free(s->nic_bytes);
	*s = (struct serve){ 0 };
}
