/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_device.c - devices, their memory, streams and events
 *
 * Every call enters the device's context first, as frameworks in the same process change
 * it.  What lets go of memory is tried even where that fails.
 */
#include "kernels/gpu_host.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ------------------------------------------------------------ */

static enum kvt_status no_such_index(const struct kvt_device *d, int count,
				     struct kvt_error *err)
{
	const char *set = NULL;

	for (int i = 0; i < 3 && d->vendor->visible[i] && !set; i++)
		if (getenv(d->vendor->visible[i]))
			set = d->vendor->visible[i];
	return kvt_fail(err, KVT_UNSUPPORTED, "%s: no device %d (%d visible%s%s%s)",
			d->vendor->name, d->index, count, set ? "; " : "",
			set ? set : "", set ? " is set" : "");
}

static enum kvt_status find_device(struct kvt_device *d, struct kvt_error *err)
{
	int count = 0, code;

	code = d->driver.init(0);
	if (!code)
		code = d->driver.device_count(&count);
	if (!code && !count)
		code = 100;	/* the code that says so */
	if (code)
		return kvt_gpu_cannot(d, code, err);
	if (d->index >= count)
		return no_such_index(d, count, err);
	code = d->driver.device_get(&d->handle, d->index);
	for (int i = 0; i < GPU_NATTRIBUTES && !code; i++)
		code = d->driver.attribute(&d->facts[i], d->vendor->attribute[i],
					   d->handle);
	return code ? kvt_gpu_cannot(d, code, err) : KVT_OK;
}

static enum kvt_status load_kernels(struct kvt_device *d, struct kvt_error *err)
{
	int code = d->driver.context_retain(&d->context, d->handle);

	d->retained = !code;
	if (!code)
		code = d->driver.context_set(d->context);
	if (!code)
		code = d->driver.module_load(&d->module, d->vendor->image);
	for (int i = 0; i < GPU_NKERNELS && !code; i++)
		code = d->driver.function_get(&d->kernel[i], d->module,
					      kvt_gpu_kernel_name(i));
	return code ? kvt_gpu_cannot(d, code, err) : KVT_OK;
}

enum kvt_status kvt_gpu_open(struct kvt_device **out,
			     const struct gpu_vendor *vendor, int index,
			     struct kvt_error *err)
{
	struct kvt_device *d;
	enum kvt_status status;

	if (vendor->image_end == vendor->image && !vendor->kernels_in_library)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: not in this build (built without %s)",
				vendor->name, vendor->compiler);
	d = calloc(1, sizeof(*d));
	if (!d)
		return kvt_no_memory(err, vendor->name);
	d->vendor = vendor;
	d->index = index;
	d->launch_max = INT_MAX;
	if ((status = kvt_gpu_load(d, err)) || (status = find_device(d, err)) ||
	    (status = load_kernels(d, err))) {
		kvt_device_close(d);
		return status;
	}
	/* the blocks loop over what is more than these */
	d->blocks_max = (int64_t)d->facts[GPU_MULTIPROCESSORS] * 32;
	*out = d;
	return KVT_OK;
}

void kvt_device_close(struct kvt_device *d)
{
	if (!d)
		return;
	if (d->module)
		d->driver.module_unload(d->module);
	if (d->retained)
		d->driver.context_release(d->handle);
	kvt_gpu_unload(d);
	free(d);
}

/* "cuda" or "cuda:3"; false for anything else. */
static bool parse_index(int *index, const char *spec, const char *name)
{
	const size_t length = strlen(name);
	char *end;
	long n;

	if (strncmp(spec, name, length))
		return false;
	*index = 0;
	if (!spec[length])
		return true;
	if (spec[length] != ':' || spec[length + 1] < '0' || spec[length + 1] > '9')
		return false;
	n = strtol(spec + length + 1, &end, 10);
	*index = n < INT_MAX ? (int)n : INT_MAX;
	return !*end;
}

static enum kvt_status open_any(struct kvt_device **out, struct kvt_error *err)
{
	const struct gpu_vendor *v;
	char reasons[sizeof(err->text)] = "";
	size_t used = 0;

	for (int i = 0; (v = kvt_gpu_vendor(i)); i++) {
		struct kvt_error why = { "" };

		if (!kvt_gpu_open(out, v, 0, &why))
			return KVT_OK;
		used = strlen(reasons);
		snprintf(reasons + used, sizeof(reasons) - used, "%s%.200s",
			 used ? "; " : "", why.text);
	}
	return kvt_fail(err, KVT_UNSUPPORTED, "%s", reasons);
}

enum kvt_status kvt_device_open(struct kvt_device **out, const char *spec,
				struct kvt_error *err)
{
	const struct gpu_vendor *v;
	int index;

	if (!strcmp(spec, "auto"))
		return open_any(out, err);
	for (int i = 0; (v = kvt_gpu_vendor(i)); i++)
		if (parse_index(&index, spec, v->name))
			return kvt_gpu_open(out, v, index, err);
	return kvt_fail(err, KVT_USAGE,
			"device '%.100s': expected cuda, hip, either with :N, or auto", spec);
}

/* ---- calls -------------------------------------------------------------- */

/* Frameworks change the current context between two calls of ours. */
static int enter(struct kvt_device *d)
{
	return d->driver.context_set(d->context);
}

static enum kvt_status done(const struct kvt_device *d, int code,
			    struct kvt_error *err)
{
	return code ? kvt_gpu_failed(d, code, err) : KVT_OK;
}

/* The call that follows where entering went well. */
#define CALL(d, name, ...)	\
	(code = enter(d), code ? code : (d)->driver.name(__VA_ARGS__))
/* One that is tried on a dead device, too: it may still let go of the host's memory. */
#define FREE(d, name, what)	\
	((what) ? ((void)enter(d), (void)(d)->driver.name(what)) : (void)0)

enum kvt_status kvt_device_facts(struct kvt_device_facts *out,
				 struct kvt_device *d, struct kvt_error *err)
{
	struct kvt_device_facts f = {
		.major = d->facts[GPU_MAJOR], .minor = d->facts[GPU_MINOR],
		.multiprocessors = d->facts[GPU_MULTIPROCESSORS],
		.warp = d->facts[GPU_WARP], .l2 = d->facts[GPU_L2],
	};
	size_t unused = 0, total = 0;
	int code, version = 0;

	snprintf(f.spec, sizeof(f.spec), "%s:%d", d->vendor->name, d->index);
	code = CALL(d, memory, &unused, &total);
	if (!code)
		code = d->driver.name(f.name, (int)sizeof(f.name) - 1, d->handle);
	if (!code)
		code = d->driver.version(&version);
	if (code)
		return kvt_gpu_failed(d, code, err);
	d->vendor->version(f.driver, sizeof(f.driver), version);
	f.free = (int64_t)unused;
	f.memory = (int64_t)total;
	*out = f;
	return KVT_OK;
}

/* ---- memory ------------------------------------------------------------- */

enum { OUT_OF_MEMORY = 2 };

static enum kvt_status no_memory(struct kvt_device *d, const char *whose,
				 int64_t nbytes, struct kvt_error *err)
{
	size_t left = 0, total = 0;

	if (d->driver.memory(&left, &total))
		left = 0;
	return kvt_fail(err, KVT_SYSTEM,
			"%s: out of %s memory: asked %lld bytes, free %lld", d->vendor->name, whose, (long long)nbytes,
			(long long)left);
}

enum kvt_status kvt_device_alloc(void **out, struct kvt_device *d,
				 int64_t nbytes, struct kvt_error *err)
{
	void *address;
	int code;

	if (nbytes < 1)
		return kvt_fail(err, KVT_USAGE, "%s: an allocation of %lld bytes",
				d->vendor->name, (long long)nbytes);
	code = CALL(d, alloc, &address, (size_t)nbytes);
	if (code == OUT_OF_MEMORY)
		return no_memory(d, "device", nbytes, err);
	if (code)
		return kvt_gpu_failed(d, code, err);
	*out = address;
	return KVT_OK;
}

void kvt_device_free(struct kvt_device *d, void *address)
{
	FREE(d, free, address);
}

enum kvt_status kvt_device_pinned_alloc(void **out, struct kvt_device *d,
					int64_t nbytes, struct kvt_error *err)
{
	void *address;
	int code;

	if (nbytes < 1)
		return kvt_fail(err, KVT_USAGE, "%s: an allocation of %lld bytes",
				d->vendor->name, (long long)nbytes);
	code = CALL(d, pinned_alloc, &address, (size_t)nbytes, 0);
	if (code == OUT_OF_MEMORY)
		return kvt_fail(err, KVT_SYSTEM,
				"%s: out of pinned memory: asked %lld bytes", d->vendor->name, (long long)nbytes);
	if (code)
		return kvt_gpu_failed(d, code, err);
	*out = address;
	return KVT_OK;
}

void kvt_device_pinned_free(struct kvt_device *d, void *address)
{
	FREE(d, pinned_free, address);
}

/* The driver's calls for the three directions have one shape. */
static enum kvt_status copy(struct kvt_device *d,
			    int (*call)(void *to, const void *from, size_t n,
					void *stream),
			    void *dst, const void *src, int64_t nbytes,
			    void *stream, struct kvt_error *err)
{
	int code;

	if (nbytes <= 0)
		return KVT_OK;
	code = enter(d);
	return done(d, code ? code : call(dst, src, (size_t)nbytes, stream), err);
}

enum kvt_status kvt_device_copy_in(struct kvt_device *d, void *dst,
				   const void *host, int64_t nbytes,
				   void *stream, struct kvt_error *err)
{
	return copy(d, d->driver.copy_in, dst, host, nbytes, stream, err);
}

enum kvt_status kvt_device_copy_out(struct kvt_device *d, void *host,
				    const void *src, int64_t nbytes,
				    void *stream, struct kvt_error *err)
{
	return copy(d, d->driver.copy_out, host, src, nbytes, stream, err);
}

enum kvt_status kvt_device_copy_within(struct kvt_device *d, void *dst,
				       const void *src, int64_t nbytes,
				       void *stream, struct kvt_error *err)
{
	return copy(d, d->driver.copy_within, dst, src, nbytes, stream, err);
}

enum kvt_status kvt_device_fill(struct kvt_device *d, void *dst, uint8_t byte,
				int64_t nbytes, void *stream,
				struct kvt_error *err)
{
	int code;

	if (nbytes <= 0)
		return KVT_OK;
	code = CALL(d, fill, dst, byte, (size_t)nbytes, stream);
	return done(d, code, err);
}

/* ---- streams and events ------------------------------------------------- */

/*
 * 1 in both drivers: a stream that does not wait for the default one, and an
 * event whose waiters sleep and leave the processor to others.
 */
enum { NON_BLOCKING = 1, SLEEP = 1 };

enum kvt_status kvt_device_stream_new(void **out, struct kvt_device *d,
				      struct kvt_error *err)
{
	int code = CALL(d, stream_new, out, NON_BLOCKING);

	return done(d, code, err);
}

void kvt_device_stream_free(struct kvt_device *d, void *stream)
{
	FREE(d, stream_free, stream);
}

enum kvt_status kvt_device_wait(struct kvt_device *d, void *stream,
				struct kvt_error *err)
{
	int code = CALL(d, stream_wait, stream);

	return done(d, code, err);
}

enum kvt_status kvt_device_event_new(void **out, struct kvt_device *d,
				     struct kvt_error *err)
{
	int code = CALL(d, event_new, out, SLEEP);

	return done(d, code, err);
}

void kvt_device_event_free(struct kvt_device *d, void *event)
{
	FREE(d, event_free, event);
}

enum kvt_status kvt_device_event_record(struct kvt_device *d, void *event,
					void *stream, struct kvt_error *err)
{
	int code = CALL(d, event_record, event, stream);

	return done(d, code, err);
}

enum kvt_status kvt_device_stream_wait_event(struct kvt_device *d, void *stream,
					     void *event, struct kvt_error *err)
{
	int code = CALL(d, stream_wait_event, stream, event, 0);

	return done(d, code, err);
}

enum kvt_status kvt_device_event_wait(struct kvt_device *d, void *event,
				      struct kvt_error *err)
{
	int code = CALL(d, event_wait, event);

	return done(d, code, err);
}

enum kvt_status kvt_device_event_elapsed(double *milliseconds,
					 struct kvt_device *d, void *begin,
					 void *end, struct kvt_error *err)
{
	float elapsed;
	int code = CALL(d, event_wait, end);

	if (!code)
		code = d->driver.event_elapsed(&elapsed, begin, end);
	if (code)
		return kvt_gpu_failed(d, code, err);
	*milliseconds = (double)elapsed;
	return KVT_OK;
}
