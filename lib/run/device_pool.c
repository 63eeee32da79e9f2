/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_pool.c - opening a GPU, and sets of its memory for the workers of a pipeline
 *
 * A set is memory to copy from, to, and to keep; workers take one each and wait where
 * there are fewer.  As many are made as the device has room for, at least one.  With
 * --device=auto what fails before data was touched is told once, and the CPU does the
 * work.
 */
#include "lib/run/device_pool.h"

#include <stdlib.h>
#include <string.h>


/* ---- opening ------------------------------------------------------------ */

static enum kvt_status open_streams(struct kvt_device_pool *d, struct kvt_error *err)
{
	struct kvt_device_facts facts;
	enum kvt_status status = kvt_device_facts(&facts, d->gpu, err);

	memcpy(d->spec, facts.spec, sizeof(d->spec));
	for (int i = 0; !status && i < NSTREAMS; i++)
		status = kvt_device_stream_new(&d->stream[i], d->gpu, err);
	return status;
}

static void say_no_gpu(const struct kvt_device_pool *d, const struct kvt_error *why)
{
	kvt_run_warn(&d->run,
		"--device=auto: the CPU is used, because there is no GPU (%s)",
		     why->text);
}

/* No data was touched: a device that cannot do this is no device. */
static enum kvt_status unusable(enum kvt_status status)
{
	return status == KVT_SYSTEM ? KVT_UNSUPPORTED : status;
}

static enum kvt_status open_gpu(struct kvt_device_pool *d, const char *spec,
				struct kvt_error *err)
{
	enum kvt_status status = kvt_device_open(&d->gpu, spec, err);

	if (status == KVT_USAGE)
		return kvt_fail(err, KVT_USAGE,
				"--device is '%.100s', expected cpu, cuda, cuda:N, hip, hip:N or auto", spec);
	return unusable(status ? status : open_streams(d, err));
}

enum kvt_status kvt_device_pool_new(struct kvt_device_pool **out, const char *spec,
				    const struct kvt_run *run, struct kvt_error *err)
{
	enum kvt_status status;
	struct kvt_device_pool *d;

	*out = NULL;
	if (!spec || !strcmp(spec, "cpu"))
		return KVT_OK;
	d = calloc(1, sizeof(*d));
	if (!d)
		return kvt_no_memory(err, NULL);
	d->run = *run;
	d->automatic = !strcmp(spec, "auto");
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->given, NULL);
	status = open_gpu(d, spec, err);
	if (!status) {
		*out = d;
		return KVT_OK;
	}
	if (d->automatic) {
		say_no_gpu(d, err);
		status = KVT_OK;
	}
	kvt_device_pool_free(d);
	return status;
}

static void free_set(struct kvt_device_pool *d, struct buffer_set *s)
{
	for (int i = 0; i < NAREAS; i++)
		kvt_device_free(d->gpu, s->area[i]);
	for (int i = 0; i < NSTREAMS; i++)
		kvt_device_event_free(d->gpu, s->after[i]);
	memset(s, 0, sizeof(*s));
}

static void free_sets(struct kvt_device_pool *d)
{
	while (d->nsets)
		free_set(d, &d->set[--d->nsets]);
	d->free = NULL;
}

void kvt_device_pool_free(struct kvt_device_pool *d)
{
	if (!d)
		return;
	free_sets(d);
	for (int i = 0; i < NSTREAMS; i++)
		kvt_device_stream_free(d->gpu, d->stream[i]);
	kvt_device_close(d->gpu);
	pthread_cond_destroy(&d->given);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

bool device_pool_works(const struct kvt_device_pool *d)
{
	return d && !d->gone;
}

const char *kvt_device_pool_name(const struct kvt_device_pool *d)
{
	return device_pool_works(d) ? d->spec : "cpu";
}

struct kvt_device *device_pool_gpu(const struct kvt_device_pool *d)
{
	return d->gpu;
}

int64_t kvt_device_pool_nbytes(const struct kvt_device_pool *d)
{
	return d ? d->nbytes : 0;
}

bool device_pool_gives_up(struct kvt_device_pool *d, const struct kvt_error *why)
{
	if (!d->automatic)
		return false;
	say_no_gpu(d, why);
	free_sets(d);
	d->gone = true;
	return true;
}

/* ---- memory ------------------------------------------------------------- */

static enum kvt_status make_set(struct kvt_device_pool *d, struct buffer_set *s,
				struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < NAREAS; i++)
		status = kvt_device_alloc(&s->area[i], d->gpu, d->room, err);
	for (int i = 0; !status && i < NSTREAMS; i++)
		status = kvt_device_event_new(&s->after[i], d->gpu, err);
	return status;
}

enum kvt_status device_pool_reserve(struct kvt_device_pool *d, int n, int64_t room,
			       struct kvt_error *err)
{
	enum kvt_status status;
	struct kvt_error why;

	if (room < 1 || (n <= d->nsets && room <= d->room))
		return KVT_OK;
	free_sets(d);
	d->room = room;
	if ((status = make_set(d, &d->set[0], err))) {
		free_set(d, &d->set[0]);
		return unusable(status);
	}
	for (d->nsets = 1; d->nsets < n && d->nsets < MOST_SETS; d->nsets++)
		if (make_set(d, &d->set[d->nsets], &why)) {
			free_set(d, &d->set[d->nsets]);
			break;
		}
	for (int i = 0; i < d->nsets; i++) {
		d->set[i].next = d->free;
		d->free = &d->set[i];
	}
	return KVT_OK;
}

enum kvt_status device_pool_pin(uint8_t **out, struct kvt_device_pool *d, int64_t nbytes,
			   struct kvt_error *err)
{
	void *p;
	enum kvt_status status = kvt_device_pinned_alloc(&p, d->gpu, nbytes, err);

	if (!status)
		*out = p;
	return unusable(status);
}

void device_pool_unpin(struct kvt_device_pool *d, uint8_t *bytes)
{
	kvt_device_pinned_free(d->gpu, bytes);
}

struct buffer_set *set_take(struct kvt_device_pool *d)
{
	struct buffer_set *s;

	pthread_mutex_lock(&d->lock);
	while (!d->free)
		pthread_cond_wait(&d->given, &d->lock);
	s = d->free;
	d->free = s->next;
	pthread_mutex_unlock(&d->lock);
	return s;
}

void set_give(struct kvt_device_pool *d, struct buffer_set *s)
{
	s->held = NULL;
	pthread_mutex_lock(&d->lock);
	s->next = d->free;
	d->free = s;
	pthread_cond_signal(&d->given);
	pthread_mutex_unlock(&d->lock);
}
