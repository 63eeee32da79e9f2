/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_check.h - what the parts of check_gpu share */
#ifndef GPU_CHECK_H
#define GPU_CHECK_H

#include "kernels/gpu_host.h"
#include "tests/gpu_executor.h"
#include "tests/kernel_check.h"

/* The device under test; 'exec' is there if it is the executor. */
struct gpu_test {
	struct kvt_device *device;
	uint64_t seed;
	int64_t cases;
	bool executor;
	kvt_exec_seed_fn *exec_seed;
	kvt_exec_fault_fn *exec_fault;
	kvt_exec_trouble_fn *exec_trouble;
	kvt_exec_reset_fn *exec_reset;
	kvt_exec_count_fn *exec_count;
	kvt_exec_read_fn *exec_read;
};

/* One line of TAP. */
void gpu_point(bool ok, const char *format, ...) KVT_PRINTF(2, 3);
/* A comment, if this is a failure; its status. */
bool gpu_good(enum kvt_status status, const struct kvt_error *err);

/* ---- gpu_memory.c ------------------------------------------------------- */

/*
 * Device memory with a copy on the host of what it must hold.  'before' and
 * 'after' are bytes around the part that is used; nobody may write them.
 */
struct gpu_buffer {
	uint8_t *device, *host;
	int64_t before, nbytes, after;
};

/* Random content; or poison, on both sides.  False: out of memory. */
bool gpu_buffer_new(struct gpu_buffer *b, struct gpu_test *t, int64_t nbytes,
		    int poison);
bool gpu_buffer_poison(struct gpu_buffer *b, struct gpu_test *t, int poison);
void gpu_buffer_free(struct gpu_buffer *b, struct gpu_test *t);

/* Plan after plan. */
bool gpu_copy_plans(struct gpu_test *t, void *dst, const void *src,
		    const struct kvt_plans *plans);

/* Does the device hold what the host expects?  Says where it does not. */
bool gpu_buffer_same(const struct gpu_buffer *b, struct gpu_test *t,
		     const char *what);

static inline uint8_t *gpu_at(const struct gpu_buffer *b)
{
	return b->device + b->before;
}
static inline uint8_t *gpu_expect(const struct gpu_buffer *b)
{
	return b->host + b->before;
}

/* ---- the tests ---------------------------------------------------------- */

void gpu_check_plans(struct gpu_test *t);	/* gpu_plans.c */
void gpu_check_layouts(struct gpu_test *t);	/* gpu_layouts.c */
void gpu_check_reblock(struct gpu_test *t);	/* gpu_reblock.c */
void gpu_check_stream(struct gpu_test *t, bool small);	/* gpu_stream.c */
void gpu_check_lists(struct gpu_test *t);	/* gpu_lists.c */
void gpu_check_casts(struct gpu_test *t);	/* gpu_casts.c */
void gpu_check_traffic(struct gpu_test *t);	/* gpu_gates.c, executor only */
void gpu_check_cast_traffic(struct gpu_test *t);	/* gpu_gates.c, executor only */
void gpu_check_faults(struct gpu_test *t);	/* gpu_gates.c, executor only */
void gpu_check_large(struct gpu_test *t);	/* gpu_bench.c, GPUs only */
/* 'nbytes' of each buffer, 0: as is usual.  The number of rows with bad bytes. */
int gpu_bench(struct gpu_test *t, int64_t nbytes, const char *json);

/*
 * NHD to HND: four blocks of 16 slots and 8 heads, or 'blocks' of them, whose
 * runs have 'run' bytes.
 */
struct kvt_plan gpu_plan_nhd(int64_t blocks, int64_t run);

#endif
