/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_trace.c - a timed transfer as a trace that Perfetto and Chrome show
 *
 * A process is a rank: sources first, then destinations.  Thread 0 of a
 * destination is the CPU that posts; the others are its card, one thread for
 * each batch that is on the card at once, because slices of a thread may not
 * overlap.  Arrows lead from posting through the source's card to the
 * destination's.
 */
#include "sim/print/transfer.h"

#include <inttypes.h>
#include <stdlib.h>

#define US(ns) (int64_t)((ns) / 1000), (int)((ns) % 1000)
#define US_FORMAT "%" PRId64 ".%03d"

struct trace {
	FILE *f;
	const struct timeline *p;
	int64_t most;			/* slices of each kind */
	bool comma;
};

static void begin(struct trace *t, const char *phase, int64_t pid, int64_t tid,
		  int64_t ns)
{
	fprintf(t->f, "%s\n{\"ph\":\"%s\",\"pid\":%" PRId64 ",\"tid\":%" PRId64
		",\"ts\":" US_FORMAT, t->comma ? "," : "", phase, pid, tid, US(ns));
	t->comma = true;
}

static int64_t src_pid(const struct timeline_batch *b)
{
	return b->src_rank;
}

static int64_t dst_pid(const struct trace *t, const struct timeline_batch *b)
{
	return t->p->src_ranks + b->dst_rank;
}

/* ---- names --------------------------------------------------------------- */

static void name_process(struct trace *t, int64_t pid, const char *side, int64_t rank)
{
	begin(t, "M", pid, 0, 0);
	fprintf(t->f, ",\"name\":\"process_name\",\"args\":{\"name\":\"%s rank %" PRId64
		"\"}}", side, rank);
	begin(t, "M", pid, 0, 0);
	fprintf(t->f, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%" PRId64
		"}}", pid);
}

static void name_thread(struct trace *t, int64_t pid, int64_t tid)
{
	begin(t, "M", pid, tid, 0);
	fputs(",\"name\":\"thread_name\",\"args\":{\"name\":", t->f);
	if (tid)
		fprintf(t->f, "\"card, lane %" PRId64 "\"}}", tid);
	else
		fputs("\"posting CPU\"}}", t->f);
}

/* ---- lanes --------------------------------------------------------------- */

struct lane {
	int64_t busy, next;		/* until; the next lane of the rank, or -1 */
};

struct lanes {
	struct lane *lane;		/* those in use so far */
	int64_t *first;			/* of a process, or -1 */
	int64_t n;
};

/* The first lane of a process that is free at that time; it is taken. */
static int64_t take_lane(struct trace *t, struct lanes *l, int64_t pid,
			 const struct timeline_batch *b)
{
	int64_t *at = &l->first[pid], tid = 1;

	while (*at >= 0 && l->lane[*at].busy > b->begin) {
		at = &l->lane[*at].next;
		tid++;
	}
	if (*at < 0) {
		*at = l->n++;
		l->lane[*at].next = -1;
		name_thread(t, pid, tid);
	}
	l->lane[*at].busy = b->end;
	return tid;
}

/* ---- one batch ----------------------------------------------------------- */

static int64_t share(int64_t all, int64_t i, int64_t n)
{
	return (int64_t)((double)all * (double)i / (double)n);
}

/* As many slices of a batch as its part of all operations comes to. */
static int64_t slices_of(const struct trace *t, const struct timeline_batch *b)
{
	int64_t n = b->ops;

	if (t->p->ops > t->most)
		n = share(t->most, b->ops, t->p->ops);
	return n ? n : 1;
}

static void put_slice(struct trace *t, int64_t pid, int64_t tid, int64_t from, int64_t to,
		      int64_t ops, int64_t bytes)
{
	begin(t, "X", pid, tid, from);
	fprintf(t->f, ",\"dur\":" US_FORMAT ",\"name\":\"", US(to - from));
	if (ops == 1)
		fputs("op", t->f);
	else
		fprintf(t->f, "%" PRId64 " ops", ops);
	fprintf(t->f, "\",\"args\":{\"ops\":%" PRId64 ",\"bytes\":%" PRId64 "}}", ops,
		bytes);
}

static void put_arrow(struct trace *t, const char *phase, int64_t pid, int64_t tid,
		      int64_t ns, int64_t id)
{
	begin(t, phase, pid, tid, ns);
	fprintf(t->f, ",\"id\":%" PRId64 ",\"cat\":\"op\",\"name\":\"op\"%s}", id,
		*phase == 'f' ? ",\"bp\":\"e\"" : "");
}

static void put_depth(struct trace *t, int64_t pid, int64_t ns, int64_t depth)
{
	begin(t, "C", pid, 0, ns);
	fprintf(t->f, ",\"name\":\"queue depth\",\"args\":{\"ops\":%" PRId64 "}}",
		depth > 0 ? depth : 0);
}

/* Operations that are done at that time, if they are spread evenly. */
static int64_t done_by(const struct timeline_batch *b, int64_t ns)
{
	if (ns <= b->begin || b->end == b->begin)
		return ns < b->end ? 0 : b->ops;
	return ns >= b->end ? b->ops : share(b->ops, ns - b->begin, b->end - b->begin);
}

static void put_batch(struct trace *t, const struct timeline_batch *b, int64_t src_lane,
		      int64_t dst_lane, int64_t *id)
{
	int64_t n = slices_of(t, b), dst = dst_pid(t, b);

	for (int64_t i = 0; i < n; i++) {
		int64_t ops = share(b->ops, i + 1, n) - share(b->ops, i, n);
		int64_t bytes = share(b->bytes, i + 1, n) - share(b->bytes, i, n);
		int64_t post = b->post + share(b->posted - b->post, i, n);
		int64_t posted = b->post + share(b->posted - b->post, i + 1, n);
		int64_t from = b->begin + share(b->end - b->begin, i, n);
		int64_t to = b->begin + share(b->end - b->begin, i + 1, n);

		put_slice(t, dst, 0, post, posted, ops, bytes);
		put_slice(t, src_pid(b), src_lane, from, to, ops, bytes);
		put_slice(t, dst, dst_lane, from, to, ops, bytes);
		/* nothing is on the wire before it was posted */
		put_arrow(t, "s", dst, 0, post, *id);
		put_arrow(t, "t", src_pid(b), src_lane, from > post ? from : post, *id);
		put_arrow(t, "f", dst, dst_lane, to > post ? to : post, (*id)++);
		put_depth(t, dst, posted, share(b->ops, i + 1, n) - done_by(b, posted));
	}
	put_depth(t, dst, b->end > b->posted ? b->end : b->posted, 0);
}

/* ---- rates --------------------------------------------------------------- */

struct change {
	int64_t ns, pid;
	double rate;			/* GB/s more */
};

static int by_rank_and_time(const void *a, const void *b)
{
	const struct change *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return (x->ns > y->ns) - (x->ns < y->ns);
}

/* What flows into a rank, as the mean of each batch while it is on the card. */
static void put_rates(struct trace *t, struct change *c)
{
	int64_t n = 0;
	double rate = 0;

	for (int64_t i = 0; i < t->p->n; i++) {
		const struct timeline_batch *b = &t->p->batch[i];
		double gbps = b->end > b->begin ?
			      (double)b->bytes / (double)(b->end - b->begin) : 0;

		c[n++] = (struct change){ b->begin, dst_pid(t, b), gbps };
		c[n++] = (struct change){ b->end, dst_pid(t, b), -gbps };
	}
	qsort(c, (size_t)n, sizeof(*c), by_rank_and_time);
	for (int64_t i = 0; i < n; i++) {
		bool last = i + 1 == n || c[i + 1].pid != c[i].pid;

		rate += c[i].rate;
		if (last)
			rate = 0;
		else if (c[i + 1].ns == c[i].ns)
			continue;
		begin(t, "C", c[i].pid, 0, c[i].ns);
		fprintf(t->f, ",\"name\":\"GB/s\",\"args\":{\"GB/s\":%.3f}}",
			rate > 0 ? rate : 0);
	}
}

/* ---- all ----------------------------------------------------------------- */

static void put_all(struct trace *t, struct lanes *l, struct change *changes)
{
	const struct timeline *p = t->p;
	int64_t id = 1;

	for (int64_t r = 0; r < p->src_ranks; r++)
		name_process(t, r, "source", r);
	for (int64_t r = 0; r < p->dst_ranks; r++) {
		name_process(t, p->src_ranks + r, "destination", r);
		name_thread(t, p->src_ranks + r, 0);
	}
	for (int64_t i = 0; i < p->src_ranks + p->dst_ranks; i++)
		l->first[i] = -1;
	for (int64_t i = 0; i < p->n; i++) {
		const struct timeline_batch *b = &p->batch[i];
		int64_t src = take_lane(t, l, src_pid(b), b);

		put_batch(t, b, src, take_lane(t, l, dst_pid(t, b), b), &id);
	}
	put_rates(t, changes);
}

enum kvt_status put_trace(FILE *f, const struct timeline *p, int64_t most,
				struct kvt_error *err)
{
	struct trace t = { .f = f, .p = p, .most = most };
	struct lanes l = { .n = 0 };
	size_t n = (size_t)p->n * 2 + 1;
	struct change *changes = malloc(n * sizeof(*changes));
	enum kvt_status status = KVT_OK;

	l.lane = malloc(n * sizeof(*l.lane));
	l.first = malloc((size_t)(p->src_ranks + p->dst_ranks + 1) * sizeof(*l.first));
	if (changes && l.lane && l.first) {
		fprintf(f, "{\"displayTimeUnit\":\"ns\",\"otherData\":{"
			"\"ops\":%" PRId64 ",\"bytes\":%" PRId64
			",\"duration_ns\":%" PRId64
			"},\n\"traceEvents\":[", p->ops, p->bytes,
			p->duration);
		put_all(&t, &l, changes);
		fputs("\n]}\n", f);
	} else {
		status = kvt_no_memory(err, NULL);
	}
	free(changes);
	free(l.lane);
	free(l.first);
	return status;
}
