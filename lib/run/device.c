/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c - plans through a GPU: in, permuted, out
 *
 *	upload stream	[in of box 1][in of box 2]...
 *	kernel stream		     [plan of 1  ][plan of 2]...
 *	download stream				  [out of 1 ]...
 *
 * Steps of a box follow each other by events, those of several boxes overlap.
 */
#include "lib/run/device_pool.h"

#include "lib/kvt/kernels.h"

/* ---- steps of a copy ---------------------------------------------------- */

/*
 * Each step is put into its stream and begins when the set's step before it has
 * ended.  What other sets have put into the streams meanwhile does no harm: an
 * event then comes a little later.
 */
static enum kvt_status upload(struct kvt_device_pool *d, struct buffer_set *s, void *to,
			      const void *host, int64_t nbytes, struct kvt_error *err)
{
	enum kvt_status status = kvt_device_copy_in(d->gpu, to, host, nbytes,
						    d->stream[UPLOAD], err);

	if (!status)
		status = kvt_device_event_record(d->gpu, s->after[UPLOAD],
						 d->stream[UPLOAD], err);
	return status ? status :
	       kvt_device_stream_wait_event(d->gpu, d->stream[KERNEL], s->after[UPLOAD],
					    err);
}

static enum kvt_status launched(struct kvt_device_pool *d, struct buffer_set *s,
				int64_t nbytes, struct kvt_error *err)
{
	pthread_mutex_lock(&d->lock);
	d->nbytes += nbytes;
	pthread_mutex_unlock(&d->lock);
	return kvt_device_event_record(d->gpu, s->after[KERNEL], d->stream[KERNEL], err);
}

static enum kvt_status launch(struct kvt_device_pool *d, struct buffer_set *s, void *dst,
			      const void *src, const struct kvt_plan *plan,
			      struct kvt_error *err)
{
	enum kvt_status status = kvt_device_copy(d->gpu, dst, src, plan,
						 d->stream[KERNEL], err);

	return status ? status : launched(d, s, kvt_plan_nbytes(plan), err);
}

/*
 * And waits for it: then all of the set's work is done.  Where no plan was run the
 * upload is all that there was.
 */
static enum kvt_status download(struct kvt_device_pool *d, struct buffer_set *s, int area,
				uint8_t *host, int64_t nbytes, struct kvt_error *err)
{
	enum kvt_status status;

	if ((status = kvt_device_stream_wait_event(d->gpu, d->stream[DOWNLOAD],
						   s->after[UPLOAD], err)) ||
	    (status = kvt_device_stream_wait_event(d->gpu, d->stream[DOWNLOAD],
						   s->after[KERNEL], err)) ||
	    (status = kvt_device_copy_out(d->gpu, host, s->area[area], nbytes,
					  d->stream[DOWNLOAD], err)) ||
	    (status = kvt_device_event_record(d->gpu, s->after[DOWNLOAD],
					      d->stream[DOWNLOAD], err)))
		return status;
	return kvt_device_event_wait(d->gpu, s->after[DOWNLOAD], err);
}

/* After a failure: nothing may use the worker's buffers once they are freed. */
static enum kvt_status drain(struct kvt_device_pool *d, enum kvt_status status)
{
	struct kvt_error ignored;

	for (int i = 0; status && i < NSTREAMS; i++)
		if (kvt_device_wait(d->gpu, d->stream[i], &ignored))
			break;		/* the device is dead, and does nothing more */
	return status;
}

/* ---- what fills a destination ------------------------------------------- */

/* First and last byte that the plans read; strides are not negative. */
static void span_of(int64_t span[2], const struct kvt_plans *plans)
{
	span[0] = INT64_MAX;
	span[1] = 0;
	for (int i = 0; i < plans->count; i++) {
		const struct kvt_plan *p = &plans->plan[i];
		int64_t end = p->src_offset + p->run;

		for (int l = 0; l < p->nloops; l++)
			end += (p->n[l] - 1) * p->src_stride[l];
		span[0] = p->src_offset < span[0] ? p->src_offset : span[0];
		span[1] = end > span[1] ? end : span[1];
	}
	/* what was aligned for the CPU stays so */
	span[0] -= span[0] % 256;
}

static bool is_held(const struct buffer_set *s, const uint8_t *src, int64_t end)
{
	return s && src == s->held && end <= s->held_bytes;
}

static int64_t plans_nbytes(const struct kvt_plans *plans)
{
	int64_t nbytes = 0;

	for (int i = 0; i < plans->count; i++)
		nbytes += kvt_plan_nbytes(&plans->plan[i]);
	return nbytes;
}

static enum kvt_status run_on(struct kvt_device_pool *d, struct buffer_set *s,
			      uint8_t *dst, int64_t nbytes, const uint8_t *src,
			      const int64_t span[2], const struct kvt_plans *plans,
			      struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	uint8_t *from;

	if (plans_nbytes(plans) < nbytes)	/* the rest stays as it is */
		status = upload(d, s, s->area[TO], dst, nbytes, err);
	if (status)
		return drain(d, status);
	if (is_held(s, src, span[1])) {
		from = s->area[KEPT];
	} else {
		from = (uint8_t *)s->area[FROM] - span[0];
		status = upload(d, s, s->area[FROM], src + span[0], span[1] - span[0],
				err);
	}
	for (int i = 0; !status && i < plans->count; i++)
		status = launch(d, s, s->area[TO], from, &plans->plan[i], err);
	if (!status)
		status = download(d, s, TO, dst, nbytes, err);
	return drain(d, status);
}

/* Is it worth the way, and is there room? */
static bool goes_over(int64_t span[2], const struct kvt_device_pool *d,
		      const struct buffer_set *s,
		      int64_t nbytes, const uint8_t *src, const struct kvt_plans *plans)
{
	const int64_t moved = plans_nbytes(plans);

	if (!moved || moved < nbytes / 4 || nbytes > d->room)
		return false;
	span_of(span, plans);
	return span[1] - span[0] <= d->room || is_held(s, src, span[1]);
}

enum kvt_status plans_run(struct kvt_worker *worker, uint8_t *dst, int64_t nbytes,
			  const uint8_t *src, const struct kvt_plans *plans,
			  struct kvt_error *err)
{
	struct kvt_device_pool *d = worker ? worker->device : NULL;
	struct buffer_set *s;
	enum kvt_status status;
	int64_t span[2];

	if (!d || !goes_over(span, d, worker->set, nbytes, src, plans)) {
		kvt_cpu_copy_all(dst, src, plans);
		return KVT_OK;
	}
	s = worker->set ? worker->set : set_take(d);
	status = run_on(d, s, dst, nbytes, src, span, plans, err);
	if (!worker->set)
		set_give(d, s);
	return status;
}

/* ---- casts -------------------------------------------------------------- */

/* Where the table begins, behind the source. */
static int64_t table_at(const struct device_casts *c)
{
	return (c->src_bytes + 255) / 256 * 256;
}

static enum kvt_status cast_on(struct kvt_device_pool *d, struct buffer_set *s,
			       const struct device_casts *c, struct kvt_error *err)
{
	uint8_t *table = (uint8_t *)s->area[FROM] + table_at(c);
	enum kvt_status status = upload(d, s, s->area[FROM], c->src, c->src_bytes, err);

	if (!status)
		status = upload(d, s, table, c->factors,
				c->nfactors * (int64_t)sizeof(*c->factors), err);
	for (int i = 0; !status && i < c->count; i++) {
		struct kvt_device_cast cast = c->cast[i];

		cast.factors = (const struct kvt_device_factors *)(void *)table +
			       c->first[i];
		status = kvt_device_cast(d->gpu, s->area[TO], s->area[FROM], &cast,
					 d->stream[KERNEL], err);
	}
	if (!status)
		status = launched(d, s, c->dst_bytes, err);
	if (!status)
		status = download(d, s, TO, c->dst, c->dst_bytes, err);
	return drain(d, status);
}

enum kvt_status casts_run(bool *done, struct kvt_worker *worker,
			  const struct device_casts *casts, struct kvt_error *err)
{
	struct kvt_device_pool *d = worker->device;
	const int64_t beside = casts->nfactors * (int64_t)sizeof(*casts->factors);
	struct buffer_set *s;
	enum kvt_status status;

	*done = d && casts->dst_bytes <= d->room && table_at(casts) + beside <= d->room;
	if (!*done)
		return KVT_OK;
	s = worker->set ? worker->set : set_take(d);
	status = cast_on(d, s, casts, err);
	if (!worker->set)
		set_give(d, s);
	return status;
}

/* ---- a source for many destinations ------------------------------------- */

enum kvt_status device_hold(struct kvt_worker *worker, const uint8_t *src, int64_t nbytes,
			    struct kvt_error *err)
{
	struct kvt_device_pool *d = worker->device;
	enum kvt_status status;

	if (!device_pool_works(d) || nbytes > d->room)
		return KVT_OK;
	worker->set = set_take(d);
	worker->set->held = src;
	worker->set->held_bytes = nbytes;
	status = drain(d, upload(d, worker->set, worker->set->area[KEPT], src, nbytes,
					err));
	if (status)
		device_drop(worker);
	return status;
}

void device_drop(struct kvt_worker *worker)
{
	if (worker->set)
		set_give(worker->device, worker->set);
	worker->set = NULL;
}
