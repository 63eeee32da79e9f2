/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - running plans on a GPU, in memory that is already there
 *
 * A device is reached through its vendor's driver library, which is opened at
 * run time: libcuda.so.1 for NVIDIA, libamdhip64.so for AMD.  Nothing of either
 * is linked, and one program runs where neither is installed.
 *
 * Conventions used throughout:
 *
 *   - Device addresses are void * that the host must not follow.  The driver's
 *     own (CUdeviceptr, hipDeviceptr_t) may be cast to them: memory need not
 *     come from kvt_device_alloc().
 *   - A stream is the driver's handle (CUstream, hipStream_t) as void *; NULL is
 *     the default stream.  What takes a stream returns before the work is done,
 *     and what is wrong with that work is told by the next call that waits.
 *   - The context is the device's primary one, as the vendor's runtime and the
 *     frameworks on top of it use.  Each call makes it current on the calling
 *     thread and leaves it so.
 *   - Threads may share a handle, for nothing in it changes once it is open; what
 *     must happen before what is said by streams and events.
 *   - What fails before any data is touched is KVT_UNSUPPORTED: there is no such
 *     device, or it cannot run this build.  What fails later is KVT_SYSTEM: the
 *     device failed, or its memory is full (then *nothing* of that allocation is
 *     held, so that a caller may ask for less).  After a fault every call fails
 *     and what the device wrote is worth nothing.
 */
#ifndef KVT_DEVICE_H
#define KVT_DEVICE_H

#include "lib/kvt/kvt.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- drivers of this build ---------------------------------------------- */

struct kvt_device_driver {
	const char *name;	/* "cuda", "hip" */
	bool built;		/* are its kernels in this build? */
	const char *archs;	/* what they were built for: "sm_80 and PTX 9.0" */
};

/* The i-th driver; false past the last one. */
bool kvt_device_driver(struct kvt_device_driver *out, int i);

/*
 * Has the kernel of this machine a node for devices of the i-th driver?  Opens
 * nothing, for a library of a vendor takes up to 20 ms to load: where there is a
 * node the device may still not be usable, where there is none it is not.  NULL:
 * none, else its path.
 */
const char *kvt_device_node(int i);

/* ---- devices ------------------------------------------------------------ */

struct kvt_device;

/*
 * 'spec' is "cuda", "hip", either with ":N" for the N-th that the driver shows,
 * or "auto": the first of cuda and hip that opens.  "auto" fails like the
 * others if none does, with the reasons of both; to fall back on the CPU is the
 * caller's decision.  KVT_USAGE for what is none of these.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_device_open(struct kvt_device **out, const char *spec, struct kvt_error *err);
KVT_API void kvt_device_close(struct kvt_device *device);	/* NULL is allowed */

struct kvt_device_facts {
	char spec[16];			/* "cuda:0" */
	char name[128];			/* what the driver calls it */
	char driver[32];		/* its version */
	int major, minor;		/* compute capability; HIP: of its gfx name */
	int multiprocessors, warp;
	int64_t l2, memory, free;	/* bytes; free as it is now */
};
KVT_MUST_CHECK enum kvt_status
kvt_device_facts(struct kvt_device_facts *out, struct kvt_device *device,
		 struct kvt_error *err);

/* ---- memory ------------------------------------------------------------- */

/* At least one byte, of no defined content; the caller frees it before the device. */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_device_alloc(void **out, struct kvt_device *device, int64_t nbytes,
		 struct kvt_error *err);
KVT_API void kvt_device_free(struct kvt_device *device, void *address);

/* Host memory that copies reach without a detour. */
KVT_MUST_CHECK enum kvt_status
kvt_device_pinned_alloc(void **out, struct kvt_device *device, int64_t nbytes,
			struct kvt_error *err);
void kvt_device_pinned_free(struct kvt_device *device, void *address);

/*
 * Into the device, out of it, inside it.  Host memory must stay as it is until
 * the stream has been waited for; only from pinned memory does the copy overlap
 * with anything.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_device_copy_in(struct kvt_device *device, void *dst, const void *host,
		   int64_t nbytes, void *stream, struct kvt_error *err);
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_device_copy_out(struct kvt_device *device, void *host, const void *src,
		    int64_t nbytes, void *stream, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_device_copy_within(struct kvt_device *device, void *dst, const void *src,
		       int64_t nbytes, void *stream, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_device_fill(struct kvt_device *device, void *dst, uint8_t byte,
		int64_t nbytes, void *stream, struct kvt_error *err);

/* ---- streams and events ------------------------------------------------- */

/* Its work does not wait for that of the default stream; the caller frees it. */
KVT_MUST_CHECK enum kvt_status
kvt_device_stream_new(void **out, struct kvt_device *device, struct kvt_error *err);
void kvt_device_stream_free(struct kvt_device *device, void *stream);

/* Until all work of the stream is done; whether it went well is known then. */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_device_wait(struct kvt_device *device, void *stream, struct kvt_error *err);

/* An event is a point in a stream: another may wait for it, two tell a time. */
KVT_MUST_CHECK enum kvt_status
kvt_device_event_new(void **out, struct kvt_device *device, struct kvt_error *err);
void kvt_device_event_free(struct kvt_device *device, void *event);
KVT_MUST_CHECK enum kvt_status
kvt_device_event_record(struct kvt_device *device, void *event, void *stream,
			struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_device_stream_wait_event(struct kvt_device *device, void *stream, void *event,
			     struct kvt_error *err);
/* Until the host may rely on what came before the event; sleeps meanwhile. */
KVT_MUST_CHECK enum kvt_status
kvt_device_event_wait(struct kvt_device *device, void *event, struct kvt_error *err);
/* Waits for 'end'. */
KVT_MUST_CHECK enum kvt_status
kvt_device_event_elapsed(double *milliseconds, struct kvt_device *device,
			 void *begin, void *end, struct kvt_error *err);

/* ---- copies ------------------------------------------------------------- */

/*
 * Does in device memory what kvt_cpu_copy() does on the host: every plan that
 * lib/ makes, at any alignment of the two base addresses.  dst and src must not
 * overlap.  The plan's offsets must be inside what was allocated; nothing here
 * can check that.
 */
KVT_MUST_CHECK enum kvt_status
kvt_device_copy(struct kvt_device *device, void *dst, const void *src,
		const struct kvt_plan *plan, void *stream, struct kvt_error *err);

/*
 * The same with the entries of one of the plan's loops, blocks, taken through
 * tables in device memory: entry i of the loop is read as src_table[i] and
 * written as dst_table[i].  NULL: as it is.  The tables have as many entries as
 * the loop; they are not checked.  Entries of dst_table must differ.  A plan of
 * more than 6 loops is KVT_UNSUPPORTED here.
 */
KVT_MUST_CHECK enum kvt_status
kvt_device_copy_blocks(struct kvt_device *device, void *dst, const void *src,
		       const struct kvt_plan *plan, int loop,
		       const int32_t *src_table, const int32_t *dst_table,
		       void *stream, struct kvt_error *err);

/*
 * 'count' parts that a list in device memory names; src and dst count from the
 * two addresses.  Parts written must not overlap; the list is not checked.
 * 'typical' is about the length of one, to choose how many threads share it.
 */
struct kvt_device_run {
	int64_t src, dst, len;
};
KVT_MUST_CHECK enum kvt_status
kvt_device_copy_runs(struct kvt_device *device, void *dst, const void *src,
		     const struct kvt_device_run *list, int64_t count,
		     int64_t typical, void *stream, struct kvt_error *err);

/*
 * A copy whose elements become those of another type on the way, as kvt_cpu_cast() makes
 * them, bit for bit: 'plan' counts elements, of both sides.  'factors' are in device
 * memory, what a number is multiplied by and then divided by; entry i of loop j takes the
 * one that is i * step[j] further on.  NULL: numbers stay as they are.  KVT_UNSUPPORTED:
 * a type that is not cast often (kvt_cast_element()).
 */
struct kvt_device_factors {
	float times, by;
};
struct kvt_device_cast {
	const struct kvt_dtype *to, *from;
	struct kvt_plan plan;
	const struct kvt_device_factors *factors;
	int64_t step[KVT_MAX_LOOPS];
};
KVT_MUST_CHECK enum kvt_status
kvt_device_cast(struct kvt_device *device, void *dst, const void *src,
		const struct kvt_device_cast *cast, void *stream, struct kvt_error *err);

#ifdef __cplusplus
}
#endif

#endif
