/* SPDX-License-Identifier: Apache-2.0 */
/* replay_jobs.c - the batches of requests: posted, lost, sent again, there */
#include "lib/ops/transfer/replay_run.h"

#include <stdlib.h>

void serve_out_of_memory(struct run *r)
{
	if (!r->status)
		r->status = kvt_fail(r->err, KVT_SYSTEM, "out of memory");
}

void serve_push(struct run *r, int64_t at, enum event_kind kind, int64_t request,
		 struct job *job)
{
	if (!events_push(&r->events, (struct event){ at, 0, kind, request, job }))
		serve_out_of_memory(r);
}
/* ---- chance --------------------------------------------------------------- */

/* From 0 to below 1, by what it is about and not by when it is asked. */
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

/* ---- requests ------------------------------------------------------------- */

void serve_start_next(struct run *r)
{
	while (r->head < r->tail && r->moving < r->how->concurrent) {
		int64_t n = r->queue[r->head++];
		struct serve_request *q = &r->s->request[n];

		if (q->how != SERVE_WAITS)
			continue;
		q->how = SERVE_MOVES;
		q->start = r->sim.now;
		if (++r->moving > r->s->peak)
			r->s->peak = r->moving;
		serve_start_pieces(r, n);
	}
}

static void drop_job(struct run *r, struct job *j)
{
	*j->link_back = j->next;
	if (j->next)
		j->next->link_back = j->link_back;
	/* events may still name it; the last one of them frees it */
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

void serve_end_request(struct run *r, int64_t n, enum serve_end how)
{
	struct serve_request *q = &r->s->request[n];

	r->moving -= q->how == SERVE_MOVES;
	q->how = how;
	q->end = r->sim.now;
	if (q->end > r->s->end)
		r->s->end = q->end;
	while (r->jobs[n])
		drop_job(r, r->jobs[n]);
	free(q->rank_left);
	q->rank_left = NULL;
	serve_start_next(r);
}

static int64_t share_of(int64_t whole, int64_t part, int64_t parts)
{
	return whole / parts * (part + 1) + whole % parts * (part + 1) / parts -
	       whole / parts * part - whole % parts * part / parts;
}

static void add_job(struct run *r, int64_t n, int64_t pair, int64_t piece)
{
	struct serve_request *q = &r->s->request[n];
	struct job *j = calloc(1, sizeof(*j));
	const struct posts_batch *b = &r->batches[pair];
	int64_t parts = r->how->pieces;

	if (!j) {
		serve_out_of_memory(r);
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
	j->link = posts_link(r->how->posts, j->batch.ops, j->batch.bytes);
	j->next = r->jobs[n];
	j->link_back = &r->jobs[n];
	if (j->next)
		j->next->link_back = &j->next;
	r->jobs[n] = j;
	q->rank_left[b->dst_rank]++;
	serve_push(r, r->sim.now, EVENT_POST, n, j);
}

static bool sizes_of(struct run *r, int64_t n)
{
	const struct serve_request *q = &r->s->request[n];
	int64_t bytes = 0, given = q->bytes, sum = 0;

	r->status = sizes_get(r->batches, r->sizes, q->moved_tokens, r->err);
	if (r->status)
		return false;
	for (int64_t i = 0; i < r->pairs->n; i++)
		bytes += r->batches[i].bytes;
	if (given == bytes)
		return true;
	/* a trace that says how many bytes: the pairs keep their parts of it */
	for (int64_t i = 0; i < r->pairs->n; i++) {
		struct posts_batch *b = &r->batches[i];

		b->bytes = i + 1 == r->pairs->n ? given - sum :
			   (int64_t)((double)given * ((double)b->bytes / (double)bytes));
		sum += b->bytes;
	}
	return true;
}

void serve_start_pieces(struct run *r, int64_t n)
{
	struct serve_request *q = &r->s->request[n];

	if (r->status || !sizes_of(r, n))
		return;
	if (!q->rank_left) {
		q->rank_left = calloc((size_t)r->pairs->dst_ranks, sizeof(*q->rank_left));
		if (!q->rank_left) {
			serve_out_of_memory(r);
			return;
		}
	}
	for (; q->started_pieces < q->ready_pieces; q->started_pieces++)
		for (int64_t pair = 0; pair < r->pairs->n; pair++)
			add_job(r, n, pair, q->started_pieces);
}

/* A rank has all: it reports, and the last report ends the request. */
static void report(struct run *r, int64_t n, int64_t rank)
{
	struct serve_request *q = &r->s->request[n];

	if (q->rank_left[rank] || q->started_pieces < r->how->pieces)
		return;
	if (kvt_countdown_report(&q->reports, r->pairs->dst_ranks))
		serve_end_request(r, n, SERVE_DONE);
}

/* ---- batches -------------------------------------------------------------- */

static void again(struct run *r, struct job *j, int64_t after)
{
	struct serve_request *q = &r->s->request[j->request];

	r->s->failed_transfers++;
	if (j->attempt++ >= SERVE_RETRIES) {
		int64_t n = j->request;

		serve_end_request(r, n, SERVE_FAILED);
		free(j);
		return;
	}
	q->retries++;
	serve_push(r, r->sim.now + after, EVENT_POST, j->request, j);
}

void serve_post(struct run *r, struct job *j, int64_t at)
{
	int64_t rank = r->how->posts->push ? j->batch.src_rank :
		       r->pairs->src_ranks + j->batch.dst_rank;

	if (r->dead) {
		again(r, j, r->how->timeout_ns);
		return;
	}
	if (r->busy[rank] > at) {
		serve_push(r, r->busy[rank], EVENT_POST, j->request, j);
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

static void note_transfer(struct run *r, const struct job *j)
{
	struct serve *s = r->s;

	if (s->ntransfers == s->transfer_room) {
		int64_t room = 2 * s->transfer_room + 256;
		void *more = realloc(s->transfer, (size_t)room * sizeof(*s->transfer));

		if (!more) {
			serve_out_of_memory(r);
			return;
		}
		s->transfer = more;
		s->transfer_room = room;
	}
	s->transfer[s->ntransfers++] = (struct serve_transfer){
		j->flow.end - j->post, j->posting, j->batch.bytes, j->batch.merged,
	};
}

void serve_arrived(struct run *r, struct job *j)
{
	struct serve_request *q = &r->s->request[j->request];
	bool lost = r->how->drop > 0 && chance(r, j, 1) < r->how->drop;
	bool wrong = r->how->corrupt > 0 && chance(r, j, 2) < r->how->corrupt;
	int64_t n = j->request, rank = j->batch.dst_rank;

	j->moving = false;
	r->s->nic_bytes[j->batch.src_rank] += (double)j->batch.bytes;
	r->s->nic_bytes[r->pairs->src_ranks + rank] += (double)j->batch.bytes;
	if (lost || wrong) {
		q->retried_bytes += j->batch.bytes;
		r->s->retried_bytes += j->batch.bytes;
		again(r, j, lost ? r->how->timeout_ns : 0);
		return;
	}
	r->s->arrived_bytes += j->batch.bytes;
	q->arrived += j->batch.bytes;
	note_transfer(r, j);
	drop_job(r, j);
	free(j);
	q->rank_left[rank]--;
	report(r, n, rank);
}
