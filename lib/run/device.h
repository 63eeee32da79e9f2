/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - plans of the pipeline on a GPU, in place of the CPU (--device)
 *
 * A box or tile goes over: its source through one stream into the device, permuted
 * there on a second, back through a third.  Threads take a set of device memory
 * each, so that while one waits for its kernel the others load and unload.  Small
 * ranges of a box are put together by the CPU: all of the box would cross the host's
 * link for each.
 */
#ifndef KVTOOL_DEVICE_H
#define KVTOOL_DEVICE_H

#include "lib/kvt/device.h"
#include "lib/run/pipeline.h"

/*
 * What --device says; NULL: nothing.  *out is NULL for the CPU, also where "auto"
 * finds no GPU, which standard error is told.  A GPU that was asked for and cannot
 * be had is KVT_UNSUPPORTED.
 */
KVT_MUST_CHECK enum kvt_status
kvt_device_pool_new(struct kvt_device_pool **out, const char *spec,
		    const struct kvt_run *run, struct kvt_error *err);
void kvt_device_pool_free(struct kvt_device_pool *device);	/* NULL is allowed */

/* What worked: "cuda:0", or "cpu"; and the bytes that it wrote instead of the CPU. */
const char *kvt_device_pool_name(const struct kvt_device_pool *device);
int64_t kvt_device_pool_nbytes(const struct kvt_device_pool *device);

struct kvt_device *device_pool_gpu(const struct kvt_device_pool *device);

/* ---- the pipeline's part ------------------------------------------------ */

/* NULL, or "auto" gave up: the CPU works. */
bool device_pool_works(const struct kvt_device_pool *device);

/*
 * Sets for 'n' threads whose buffers have 'room' bytes at most; fewer sets, but
 * one, if its memory does not hold more.
 */
KVT_MUST_CHECK enum kvt_status
device_pool_reserve(struct kvt_device_pool *device, int n, int64_t room,
		    struct kvt_error *err);

/* Was it "auto" that wanted this one?  Then standard error is told why it is not
   used, and the CPU works from now on. */
bool device_pool_gives_up(struct kvt_device_pool *device, const struct kvt_error *why);

/* Memory of the host that the device reaches by itself. */
KVT_MUST_CHECK enum kvt_status
device_pool_pin(uint8_t **out, struct kvt_device_pool *device, int64_t nbytes,
		struct kvt_error *err);
void device_pool_unpin(struct kvt_device_pool *device, uint8_t *bytes);

/* ---- copies ------------------------------------------------------------- */

/*
 * kvt_cpu_copy_all(), on the device where there is one and the plans write at least
 * a quarter of the 'nbytes' of dst.  'worker' may be NULL: then the CPU does it.
 */
KVT_MUST_CHECK enum kvt_status
plans_run(struct kvt_worker *worker, uint8_t *dst, int64_t nbytes, const uint8_t *src,
	  const struct kvt_plans *plans, struct kvt_error *err);

/* Casts that write all of dst, of all of src, with factors of one table. */
struct device_casts {
	uint8_t *dst;
	const uint8_t *src;
	int64_t dst_bytes, src_bytes;
	const struct kvt_device_factors *factors;
	int64_t nfactors;
	int count;
	struct kvt_device_cast cast[2];
	int64_t first[2];		/* factor that a cast begins with */
};
/* *done is false where there is no device, or it has no room for them. */
KVT_MUST_CHECK enum kvt_status
casts_run(bool *done, struct kvt_worker *worker, const struct device_casts *casts,
	  struct kvt_error *err);

/*
 * Until device_drop() what plans_run() reads of these bytes is on the device
 * already: a box from which many tiles are made.  No waiting for another worker
 * in between, for the set that he may need is held.
 */
KVT_MUST_CHECK enum kvt_status
device_hold(struct kvt_worker *worker, const uint8_t *src, int64_t nbytes,
	    struct kvt_error *err);
void device_drop(struct kvt_worker *worker);

#endif
