/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline.c - the only file that starts threads
 *
 * Boxes are handed out by number.  What must happen in order (bytes of a stream, sums
 * whose last digits count) waits for its turn, so that results do not depend on the
 * number of threads; the failure that is told is the one of the lowest box.  Workers are
 * as many as memory has room for, and each has its buffers before the first box.
 */
#include "lib/run/pipeline.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"
#include "lib/kvt/share.h"
#include "lib/run/device.h"
#include "lib/run/leaf.h"

enum { MAX_THREADS = 64, DEFAULT_MAX_THREADS = 16 };

static const int64_t default_mem_limit = 256 << 20;
/* scratch of the codec (zstd contexts, shuffle planes) per thread */
static const int64_t codec_bytes = 2 << 20;

struct pipeline {
	const struct kvt_work *work;
	const struct kvt_run *run;
	int64_t progress;		/* bytes so far */
	pthread_mutex_t lock;
	pthread_cond_t turned;
	int64_t next;			/* box to hand out */
	int64_t turn;			/* box whose ordered part is next */
	bool *done;			/* ring of finished boxes, by index */
	int nworkers;
	struct kvt_device_pool *device;		/* NULL: the CPU */
	int64_t failed_at;		/* -1: none */
	enum kvt_status status;
	struct kvt_error err;
	int64_t end;			/* after the last box */
	struct kept_results *kept;	/* NULL: results are merged at once */
};

/* ---- how many, how much ------------------------------------------------- */

int64_t kvt_run_memory(const struct kvt_run *run)
{
	return run->memory ? run->memory : default_mem_limit;
}

static int64_t worker_bytes(const struct kvt_work *work, const struct kvt_run *run)
{
	int64_t nbytes = codec_bytes + 2 * work->tile_bytes + work->stored_bytes +
			 work->result_bytes;

	for (int i = 0; i < NBUFFERS; i++)
		nbytes += work->buffer_bytes[i];
	return nbytes + (device_pool_works(run->device) ? work->device_bytes : 0);
}

/* For that many boxes. */
static int workers_wanted(const struct kvt_work *work, const struct kvt_run *run,
			  int64_t count)
{
	int64_t limit = kvt_run_memory(run), n = run->threads, fit;

	if (!n)
		n = kvt_usable_cpus() < DEFAULT_MAX_THREADS ? kvt_usable_cpus() :
							  DEFAULT_MAX_THREADS;
	if (n > MAX_THREADS)
		n = MAX_THREADS;
	if (n > count)
		n = count;
	/* the limit is on top of one tile per thread, stored and plain */
	fit = limit / (worker_bytes(work,
				    run) - work->stored_bytes - 2 * work->tile_bytes);
	return (int)(n < fit ? n : fit);
}

int64_t kvt_cut_most(const struct kvt_run *run)
{
	int64_t memory = kvt_run_memory(run);

	return (memory < default_mem_limit ? memory : default_mem_limit) / 7;
}

int64_t kvt_work_memory(const struct kvt_work *work, const struct kvt_run *run)
{
	return workers_wanted(work, run, work->count) * worker_bytes(work, run);
}

/* ---- results ------------------------------------------------------------ */

/* Of boxes in a row, as struct kvt_unit_result has them. */
struct kept_results {
	uint8_t *bytes;
	int64_t nbytes, room;
};

static int64_t padded(int64_t n)
{
	return (n + 7) / 8 * 8;
}

static bool kept_add(struct kept_results *kept, const void *result, int64_t nbytes)
{
	int64_t needs = kept->nbytes + 8 + padded(nbytes);
	uint64_t n = (uint64_t)nbytes;

	if (needs > kept->room) {
		int64_t room = needs + kept->room;
		uint8_t *more = realloc(kept->bytes, (size_t)room);

		if (!more)
			return false;
		kept->bytes = more;
		kept->room = room;
	}
	memset(kept->bytes + needs - padded(nbytes), 0, (size_t)padded(nbytes));
	memcpy(kept->bytes + kept->nbytes, &n, 8);
	if (nbytes)
		memcpy(kept->bytes + kept->nbytes + 8, result, (size_t)nbytes);
	kept->nbytes = needs;
	return true;
}

/* ---- workers ------------------------------------------------------------ */

static void release(const struct kvt_worker *w, uint8_t *bytes)
{
	if (w->device)
		device_pool_unpin(w->device, bytes);
	else
		free(bytes);
}

static void worker_free(struct kvt_worker *w)
{
	kvt_codec_scratch_free(w->scratch);
	for (int i = 0; i < NBUFFERS; i++)
		release(w, w->buffer[i]);
	release(w, w->tile);
	release(w, w->spare);
	release(w, w->unordered);
	free(w->stored);
	free(w->result);
	free(w->kept);
	free((void *)w->touched.leaf);
	free(w->copied);
	memset(w, 0, sizeof(*w));
}

static enum kvt_status allocate(uint8_t **out, struct kvt_device_pool *device,
				int64_t nbytes, struct kvt_error *err)
{
	void *p = NULL;

	if (!nbytes)
		return KVT_OK;
	if (device)
		return device_pool_pin(out, device, nbytes, err);
	/* whole cache lines: streaming stores then need no prologue */
	if (posix_memalign(&p, 64, (size_t)nbytes))
		return kvt_fail(err, KVT_SYSTEM, "out of memory: %lld bytes", LL(nbytes));
	*out = p;
	return KVT_OK;
}

static enum kvt_status worker_init(struct kvt_worker *w, struct pipeline *p,
				   struct kvt_error *err)
{
	const struct kvt_work *work = p->work;
	enum kvt_status status;

	w->pipeline = p;
	w->device = p->device;
	if ((status = allocate(&w->tile, w->device, work->tile_bytes, err)) ||
	    (status = allocate(&w->spare, w->device, work->tile_bytes, err)) ||
	    (status = allocate(&w->unordered, w->device,
			       w->device ? work->device_bytes : 0, err)) ||
	    (status = allocate(&w->stored, NULL, work->stored_bytes, err)) ||
	    (status = allocate(&w->result, NULL, work->result_bytes, err)))
		return status;
	for (int i = 0; !status && i < NBUFFERS; i++)
		status = allocate(&w->buffer[i], w->device, work->buffer_bytes[i], err);
	return status ? status : kvt_codec_scratch_new(&w->scratch, err);
}

const struct kvt_work *worker_work(const struct kvt_worker *worker)
{
	return worker->pipeline->work;
}

enum kvt_status worker_touches(struct kvt_worker *worker, const struct kvt_leaf *leaf,
			       struct kvt_error *err)
{
	struct kvt_leaf_list *list = &worker->touched;

	if (!leaf->settles)
		return KVT_OK;
	for (int i = list->n; i > 0; i--)
		if (list->leaf[i - 1] == leaf)
			return KVT_OK;
	if (!KVT_GROW(&list->leaf, list->n))
		return kvt_no_memory(err, NULL);
	list->leaf[list->n++] = leaf;
	return KVT_OK;
}

enum kvt_status kvt_worker_settle(const struct kvt_worker *worker, struct kvt_error *err)
{
	const struct kvt_run *run = worker->pipeline->run;
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < worker->touched.n; i++) {
		const struct kvt_leaf *leaf = worker->touched.leaf[i];
		int64_t first = 0;

		status = leaf->ops->settle(leaf, &first, false, run, err);
	}
	return status;
}

/* The lowest failing box wins, so that the message does not depend on timing. */
static void record(struct pipeline *p, int64_t i, enum kvt_status status,
		   const struct kvt_error *err)
{
	if (p->failed_at >= 0 && p->failed_at <= i)
		return;
	p->failed_at = i;
	p->status = status;
	p->err = *err;
}

/* Under the lock: passes the turn over all finished boxes at its head. */
static void finish(struct pipeline *p, int64_t i)
{
	p->done[i % (MAX_THREADS * 2)] = true;
	while (p->turn < p->next && p->done[p->turn % (MAX_THREADS * 2)]) {
		p->done[p->turn % (MAX_THREADS * 2)] = false;
		p->turn++;
	}
	pthread_cond_broadcast(&p->turned);
}

/* What a box left in its worker is merged, or kept for the process that merges it. */
static enum kvt_status deliver(struct kvt_worker *w, int64_t i, struct kvt_error *err)
{
	struct pipeline *p = w->pipeline;
	bool good;

	if (p->work->commutes && !p->kept)
		kvt_worker_lock(w);
	else if (!kvt_worker_turn(w, i))
		return KVT_OK;
	good = p->kept ? kept_add(p->kept, w->result, w->nresult) :
	       p->work->merge(p->work->context, i, w->result, w->nresult);
	kvt_worker_unlock(w);
	return good ? KVT_OK : kvt_no_memory(err, NULL);
}

static enum kvt_status do_box(struct kvt_worker *w, int64_t i, struct kvt_error *err)
{
	const struct kvt_work *work = w->pipeline->work;
	enum kvt_status status;

	w->nresult = 0;
	status = work->fn(w, work->context, i, err);
	return status || !work->merge ? status : deliver(w, i, err);
}

static void *work_main(void *argument)
{
	struct kvt_worker *w = argument;
	struct pipeline *p = w->pipeline;
	struct kvt_error err = { "" };

	pthread_mutex_lock(&p->lock);
	while (p->next < p->end && p->failed_at < 0) {
		enum kvt_status status;
		int64_t i = p->next++;

		pthread_mutex_unlock(&p->lock);
		w->passed = false;
		if (p->run->cancelled && p->run->cancelled(p->run->context))
			status = kvt_fail(&err, KVT_SYSTEM, "interrupted");
		else
			status = do_box(w, i, &err);
		pthread_mutex_lock(&p->lock);
		if (status)
			record(p, i, status, &err);
		/* a box may not get further ahead of a slow one than the ring holds */
		if (!w->passed)
			finish(p, i);
		while (p->next - p->turn >= MAX_THREADS && p->failed_at < 0)
			pthread_cond_wait(&p->turned, &p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

void kvt_worker_lock(struct kvt_worker *worker)
{
	pthread_mutex_lock(&worker->pipeline->lock);
}

void kvt_worker_unlock(struct kvt_worker *worker)
{
	pthread_mutex_unlock(&worker->pipeline->lock);
}

bool kvt_worker_turn(struct kvt_worker *worker, int64_t i)
{
	struct pipeline *p = worker->pipeline;

	pthread_mutex_lock(&p->lock);
	while (p->turn != i && p->failed_at < 0)
		pthread_cond_wait(&p->turned, &p->lock);
	if (p->failed_at < 0)
		return true;
	pthread_mutex_unlock(&p->lock);
	return false;
}

void kvt_worker_pass(struct kvt_worker *worker, int64_t i)
{
	worker->passed = true;
	finish(worker->pipeline, i);
	pthread_mutex_unlock(&worker->pipeline->lock);
}

void kvt_worker_progress(struct kvt_worker *worker, int64_t nbytes)
{
	struct pipeline *p = worker->pipeline;

	pthread_mutex_lock(&p->lock);
	p->progress += nbytes;
	if (p->work->label && p->run->progress)
		p->run->progress(p->run->context, p->work->label, p->progress,
				 p->work->total_bytes);
	pthread_mutex_unlock(&p->lock);
}

/* ---- running ------------------------------------------------------------ */

/* What a copy of the device reads or writes at most. */
static int64_t largest_buffer(const struct kvt_work *work)
{
	int64_t most = work->tile_bytes > work->device_bytes ? work->tile_bytes :
							       work->device_bytes;

	if (work->worked_bytes > most)
		most = work->worked_bytes;
	for (int i = 0; i < NBUFFERS; i++)
		if (work->buffer_bytes[i] > most)
			most = work->buffer_bytes[i];
	return most;
}

static enum kvt_status workers_init(struct pipeline *p, struct kvt_worker *w,
				    struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (p->device)
		status = device_pool_reserve(p->device, p->nworkers,
					largest_buffer(p->work), err);
	for (int i = 0; !status && i < p->nworkers; i++)
		status = worker_init(&w[i], p, err);
	return status;
}

static void workers_free(const struct pipeline *p, struct kvt_worker *w)
{
	for (int i = 0; i < p->nworkers; i++)
		worker_free(&w[i]);
}

/* The calling thread is a worker too: with one thread none is started. */
static enum kvt_status run_workers(struct pipeline *p, struct kvt_worker *w,
				   struct kvt_error *err)
{
	pthread_t thread[MAX_THREADS];
	enum kvt_status status = workers_init(p, w, err);
	int started = 0;

	if (status && p->device && device_pool_gives_up(p->device, err)) {
		workers_free(p, w);
		p->device = NULL;
		status = workers_init(p, w, err);
	}
	if (status)
		return status;
	for (int i = 1; i < p->nworkers; i++) {
		if (pthread_create(&thread[started], NULL, work_main, &w[i]))
			break;		/* fewer threads do the same work */
		started++;
	}
	work_main(&w[0]);
	for (int i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
	if (p->failed_at >= 0) {
		if (err)
			*err = p->err;
		return p->status;
	}
	return KVT_OK;
}

/* Boxes begin to end - 1; 'kept' NULL: merges their results. */
static enum kvt_status run_boxes(const struct kvt_work *work, const struct kvt_run *run,
				 int64_t begin, int64_t end, struct kept_results *kept,
				 struct kvt_error *err)
{
	struct kvt_worker workers[MAX_THREADS] = { 0 };
	bool done[MAX_THREADS * 2] = { false };
	struct pipeline p = { .work = work, .run = run, .failed_at = -1, .done = done,
			      .next = begin, .turn = begin, .end = end, .kept = kept,
			      .device = device_pool_works(run->device) ?
					run->device : NULL };
	enum kvt_status status;

	if (begin == end)
		return KVT_OK;
	p.nworkers = workers_wanted(work, run, end - begin);
	if (p.nworkers < 1)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"needs %lld MiB of memory, more than --mem-limit allows",
				LL(worker_bytes(work, run) >> 20) + 1);
	pthread_mutex_init(&p.lock, NULL);
	pthread_cond_init(&p.turned, NULL);
	if (work->label && run->progress)
		run->progress(run->context, work->label, 0, work->total_bytes);
	status = run_workers(&p, workers, err);
	for (int i = 0; !status && i < p.nworkers; i++)
		status = kvt_worker_settle(&workers[i], err);
	if (work->label && run->progress)
		run->progress(run->context, NULL, 0, 0);
	workers_free(&p, workers);
	pthread_cond_destroy(&p.turned);
	pthread_mutex_destroy(&p.lock);
	return status;
}

/* ---- several processes ---------------------------------------------------- */

/* Bad data is a result, as others are; what this process lacks is none. */
static bool is_result(enum kvt_status status)
{
	return !status || status == KVT_BAD_INPUT || status == KVT_MISMATCH;
}

static enum kvt_status do_units(const struct kvt_work *work, const struct kvt_run *run,
				struct kvt_error *err)
{
	const struct kvt_sharing *share = run->share;
	struct kvt_unit_result unit = { 0 };
	enum kvt_status status = KVT_OK;

	while (!status && share->next(share->context, &unit.begin, &unit.end)) {
		struct kept_results kept = { 0 };
		struct kvt_error why = { "" };

		status = run_boxes(work, run, unit.begin, unit.end, &kept, &why);
		if (!status || (is_result(status) && !work->writes)) {
			unit.status = status;
			unit.text = why.text;
			unit.bytes = status ? NULL : kept.bytes;
			unit.nbytes = status ? 0 : kept.nbytes;
			status = share->store(share->context, &unit, err);
		} else {
			kvt_fail(err, status, "%s", why.text);
		}
		free(kept.bytes);
	}
	return status;
}

static enum kvt_status merge_unit(const struct kvt_work *work,
				  const struct kvt_unit_result *unit,
				  struct kvt_error *err)
{
	const uint8_t *at = unit->bytes;
	int64_t left = unit->nbytes;
	uint64_t n;
	bool good = true;

	if (unit->status)
		return kvt_fail(err, unit->status, "%s", unit->text);
	for (int64_t i = unit->begin; good && i < unit->end; i++) {
		if (!(good = left >= 8))
			break;
		memcpy(&n, at, 8);
		good = n <= (uint64_t)work->result_bytes &&
		       padded((int64_t)n) <= left - 8 &&
		       work->merge(work->context, i, at + 8, (int64_t)n);
		if (!good)
			break;
		at += 8 + padded((int64_t)n);
		left -= 8 + padded((int64_t)n);
	}
	if (good && !left)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: the result of boxes %lld to %lld is damaged",
			work->label, LL(unit->begin), LL(unit->end) - 1);
}

static enum kvt_status run_shared(const struct kvt_work *work, const struct kvt_run *run,
				  struct kvt_error *err)
{
	const struct kvt_sharing *share = run->share;
	const struct kvt_pass pass = { .label = work->label, .follows = work->follows,
				       .about = run->about, .part = work->part,
				       .count = work->count,
				       .nbytes = work->total_bytes };
	const struct kvt_unit_result *unit;
	enum kvt_status status;

	if ((status = share->begin(share->context, &pass, err)) ||
	    (status = do_units(work, run, err)))
		return status;
	for (int64_t i = 0; !status && (unit = share->known(share->context, i)); i++)
		status = merge_unit(work, unit, err);
	return status;
}

enum kvt_status kvt_work_run(const struct kvt_work *work, const struct kvt_run *run,
			     struct kvt_error *err)
{
	if (!work->count)
		return KVT_OK;
	if (run->share && work->merge)
		return run_shared(work, run, err);
	return run_boxes(work, run, 0, work->count, NULL, err);
}
