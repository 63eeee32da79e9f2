/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_stream.c - the host's memory through a device: in, permuted, out
 *
 * As the commands do it, with a stream for each and a few slots of memory, so that
 * all three are busy with another chunk.  Each chunk is NHD to HND, and differs.
 */
#include "tests/gpu_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SETS = 3, RUN = 256, SLOTS = 16, HEADS = 8, BLOCK = SLOTS * HEADS * RUN };
enum { IN, KERNEL, OUT, NSTREAMS };

struct buffer_set {
	uint8_t *in, *out;		/* pinned */
	void *src, *dst;
	void *after[NSTREAMS];
	int64_t chunk;			/* that it holds; -1: none yet */
};

struct passage {
	struct gpu_test *t;
	struct kvt_plan plan;
	int64_t nbytes, nchunks;	/* of a chunk */
	void *stream[NSTREAMS];
	struct buffer_set set[SETS];
	int64_t wrong;
};

static void must(enum kvt_status status, const struct kvt_error *err)
{
	if (status)
		check_bail_out(err->text);
}

/* ---- content ------------------------------------------------------------ */

/* What stands at this run of this chunk. */
static uint64_t mark(int64_t chunk, int64_t run)
{
	return (uint64_t)(chunk * 1000003 + run) * 0x9e3779b97f4a7c15u;
}

static void fill(const struct passage *p, struct buffer_set *s, int64_t chunk)
{
	for (int64_t i = 0; i < p->nbytes / RUN; i++) {
		const uint64_t m = mark(chunk, i);

		memcpy(s->in + i * RUN, &m, sizeof(m));
		memcpy(s->in + (i + 1) * RUN - sizeof(m), &m, sizeof(m));
	}
	memset(s->out, 0xa5, (size_t)p->nbytes);
	s->chunk = chunk;
}

/* Runs of NHD, by block, slot and head, where HND has them. */
static int64_t wrong_runs(const struct passage *p, const struct buffer_set *s)
{
	int64_t wrong = 0;

	for (int64_t i = 0; i < p->nbytes / RUN; i++) {
		const int64_t b = i / (SLOTS * HEADS), slot = i / HEADS % SLOTS;
		const uint8_t *run = s->out + RUN *
			((b * HEADS + i % HEADS) * SLOTS + slot);
		const uint64_t m = mark(s->chunk, i);

		wrong += memcmp(run, &m, sizeof(m)) ||
			 memcmp(run + RUN - sizeof(m), &m, sizeof(m));
	}
	return wrong;
}

/* ---- a chunk ------------------------------------------------------------ */

static void send(const struct passage *p, struct buffer_set *s)
{
	struct kvt_device *d = p->t->device;
	struct kvt_error err;

	must(kvt_device_copy_in(d, s->src, s->in, p->nbytes, p->stream[IN], &err), &err);
	must(kvt_device_event_record(d, s->after[IN], p->stream[IN], &err), &err);
	must(kvt_device_stream_wait_event(d, p->stream[KERNEL], s->after[IN], &err),
	     &err);
	must(kvt_device_copy(d, s->dst, s->src, &p->plan, p->stream[KERNEL], &err), &err);
	must(kvt_device_event_record(d, s->after[KERNEL], p->stream[KERNEL], &err), &err);
	must(kvt_device_stream_wait_event(d, p->stream[OUT], s->after[KERNEL], &err),
	     &err);
	must(kvt_device_copy_out(d, s->out, s->dst, p->nbytes, p->stream[OUT], &err),
	     &err);
	must(kvt_device_event_record(d, s->after[OUT], p->stream[OUT], &err), &err);
}

static void receive(const struct passage *p, const struct buffer_set *s)
{
	struct kvt_error err;

	if (s->chunk >= 0)
		must(kvt_device_event_wait(p->t->device, s->after[OUT], &err), &err);
}

static void pass(struct passage *p, bool content)
{
	for (int64_t i = 0; i < p->nchunks + SETS; i++) {
		struct buffer_set *s = &p->set[i % SETS];

		receive(p, s);
		if (content && s->chunk >= 0)
			p->wrong += wrong_runs(p, s);
		s->chunk = -1;
		if (i >= p->nchunks)
			continue;
		if (content)
			fill(p, s, i);
		s->chunk = i;
		send(p, s);
	}
}

/* ---- all of them -------------------------------------------------------- */

static void begin(struct passage *p)
{
	struct kvt_device *d = p->t->device;
	struct kvt_error err;

	for (int i = 0; i < NSTREAMS; i++)
		must(kvt_device_stream_new(&p->stream[i], d, &err), &err);
	for (int i = 0; i < SETS; i++) {
		struct buffer_set *s = &p->set[i];
		void *in, *out;

		must(kvt_device_pinned_alloc(&in, d, p->nbytes, &err), &err);
		must(kvt_device_pinned_alloc(&out, d, p->nbytes, &err), &err);
		must(kvt_device_alloc(&s->src, d, p->nbytes, &err), &err);
		must(kvt_device_alloc(&s->dst, d, p->nbytes, &err), &err);
		for (int k = 0; k < NSTREAMS; k++)
			must(kvt_device_event_new(&s->after[k], d, &err), &err);
		s->in = in;
		s->out = out;
		s->chunk = -1;
	}
}

static void end(struct passage *p)
{
	struct kvt_device *d = p->t->device;

	for (int i = 0; i < SETS; i++) {
		kvt_device_pinned_free(d, p->set[i].in);
		kvt_device_pinned_free(d, p->set[i].out);
		kvt_device_free(d, p->set[i].src);
		kvt_device_free(d, p->set[i].dst);
		for (int k = 0; k < NSTREAMS; k++)
			kvt_device_event_free(d, p->set[i].after[k]);
	}
	for (int i = 0; i < NSTREAMS; i++)
		kvt_device_stream_free(d, p->stream[i]);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Times of the executor mean nothing; what it copies, in which order, does. */
void gpu_check_stream(struct gpu_test *t, bool small)
{
	const int64_t blocks = t->executor || small ? 2 : 512;
	struct passage p = { .t = t, .plan = gpu_plan_nhd(blocks, RUN),
			     .nbytes = blocks * BLOCK, .nchunks = 32 };
	double start;

	begin(&p);
	pass(&p, true);
	gpu_point(!p.wrong, "%lld chunks of %lld bytes through three streams",
		  (long long)p.nchunks, (long long)p.nbytes);
	if (!t->executor && !small) {
		start = now();
		pass(&p, false);
		printf("# host pipeline: %.2f GB/s in, and as many out\n",
		       (double)(p.nchunks * p.nbytes) / (now() - start) / 1e9);
	}
	end(&p);
}
