/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_lists.c - block tables, lists and what a device does besides plans */
#include "tests/gpu_check.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 200, BLOCKS = 24, PARTS = 300, POISON = 0x3c };

/* 0 .. n - 1 in random order. */
static void random_order(int32_t order[], int n)
{
	for (int i = 0; i < n; i++)
		order[i] = i;
	for (int i = n - 1; i > 0; i--) {
		int j = (int)check_below(i + 1);
		int32_t x = order[i];

		order[i] = order[j];
		order[j] = x;
	}
}

/* n bytes in device memory of their own. */
static void *copy_of(struct gpu_test *t, const void *host, size_t n)
{
	struct kvt_error err = { "" };
	void *device;

	if (kvt_device_alloc(&device, t->device, (int64_t)n, &err) ||
	    kvt_device_copy_in(t->device, device, host, (int64_t)n, NULL, &err) ||
	    kvt_device_wait(t->device, NULL, &err))
		check_bail_out(err.text);
	return device;
}

/* ---- block tables ------------------------------------------------------- */

/* Layers of blocks of slots and heads; blocks are the loop in the middle. */
static bool random_blocks(struct gpu_test *t)
{
	const int64_t run = 1 + check_below(check_below(2) ? 300 : 40) *
			    (check_below(2) ? 16 : 1);
	const int64_t l = 2, s = 3, h = 2, block = s * h * run;
	const int n = 2 + (int)check_below(BLOCKS - 1);
	const struct kvt_plan plan = {
		.run = run, .nloops = 4, .n = { l, n, h, s },
		.src_stride = { n * block, block, run, h * run },
		.dst_stride = { n * block, block, s * run, run },
	};
	const bool have[2] = { check_below(4) > 0, check_below(4) > 0 };
	int32_t table[2][BLOCKS];
	int32_t *device[2] = { NULL, NULL };
	struct gpu_buffer src, dst;
	struct kvt_error err = { "" };
	bool ok;

	if (!gpu_buffer_new(&src, t, l * n * block, -1) ||
	    !gpu_buffer_new(&dst, t, l * n * block, POISON))
		return false;
	for (int i = 0; i < 2; i++) {
		random_order(table[i], n);
		for (int j = 0; !have[i] && j < n; j++)
			table[i][j] = j;
		if (have[i])
			device[i] = copy_of(t, table[i], sizeof(int32_t) * (size_t)n);
	}
	for (int64_t i = 0; i < l * n * s * h; i++) {
		const int64_t x = i % h, y = i / h % s, layer = i / h / s / n;
		const int64_t z = i / h / s % n;

		memcpy(gpu_expect(&dst) + (layer * n + table[1][z]) * block +
		       (x * s + y) * run,
		       gpu_expect(&src) + (layer * n + table[0][z]) * block +
		       (y * h + x) * run, (size_t)run);
	}
	t->device->blocks_max = 1 + check_below(9);
	t->device->launch_max = check_below(2) ? INT_MAX : 65536;
	ok = gpu_good(kvt_device_copy_blocks(t->device, gpu_at(&dst), gpu_at(&src),
					     &plan, 1, device[0], device[1], NULL,
					     &err), &err) &&
	     gpu_buffer_same(&dst, t, "blocks");
	kvt_device_free(t->device, device[0]);
	kvt_device_free(t->device, device[1]);
	gpu_buffer_free(&src, t);
	gpu_buffer_free(&dst, t);
	return ok;
}

/* ---- lists -------------------------------------------------------------- */

/* Parts of any length and alignment, in random order. */
static bool random_list(struct gpu_test *t)
{
	const int64_t most = 1 + check_below(check_below(2) ? 40 : 2000);
	const int n = 1 + (int)check_below(PARTS);
	const int64_t grain = (int64_t)1 << check_below(5);
	struct kvt_device_run run[PARTS], *list;
	int32_t order[PARTS];
	struct gpu_buffer src, dst;
	struct kvt_error err = { "" };
	int64_t size = 0;
	bool ok;

	random_order(order, n);
	for (int i = 0; i < n; i++) {
		struct kvt_device_run *r = &run[order[i]];

		r->len = (check_below(most) + 1) * grain;
		r->dst = size;
		size += r->len + check_below(3) * grain;
	}
	if (!gpu_buffer_new(&src, t, size, -1) ||
	    !gpu_buffer_new(&dst, t, size, POISON))
		return false;
	for (int i = 0; i < n; i++) {
		run[i].src = check_below((size - run[i].len) / grain + 1) * grain;
		memcpy(gpu_expect(&dst) + run[i].dst, gpu_expect(&src) + run[i].src,
		       (size_t)run[i].len);
	}
	list = copy_of(t, run, sizeof(run[0]) * (size_t)n);
	t->device->launch_max = check_below(2) ? INT_MAX : 512;
	ok = gpu_good(kvt_device_copy_runs(t->device, gpu_at(&dst), gpu_at(&src), list,
					   n, most * grain / 2, NULL, &err), &err) &&
	     gpu_buffer_same(&dst, t, "list");
	kvt_device_free(t->device, list);
	gpu_buffer_free(&src, t);
	gpu_buffer_free(&dst, t);
	return ok;
}

/* ---- streams and memory ------------------------------------------------- */

/* In on one stream, out on another, and an event between them. */
static bool two_streams(struct gpu_test *t)
{
	struct kvt_device *d = t->device;
	struct kvt_error err = { "" };
	void *stream[2] = { 0 }, *event[2] = { 0 }, *memory = NULL, *pinned = NULL;
	double ms = -1;
	bool ok;

	ok = !kvt_device_stream_new(&stream[0], d, &err) &&
	     !kvt_device_stream_new(&stream[1], d, &err) &&
	     !kvt_device_event_new(&event[0], d, &err) &&
	     !kvt_device_event_new(&event[1], d, &err) &&
	     !kvt_device_alloc(&memory, d, 8192, &err) &&
	     !kvt_device_pinned_alloc(&pinned, d, 8192, &err);
	if (ok)
		memset(pinned, 7, 4096);
	ok = ok && !kvt_device_event_record(d, event[0], stream[0], &err) &&
	     !kvt_device_copy_in(d, memory, pinned, 4096, stream[0], &err) &&
	     !kvt_device_copy_within(d, (char *)memory + 4096, memory, 4096,
				     stream[0], &err) &&
	     !kvt_device_event_record(d, event[1], stream[0], &err) &&
	     !kvt_device_stream_wait_event(d, stream[1], event[1], &err) &&
	     !kvt_device_copy_out(d, (char *)pinned + 4096, (char *)memory + 4096,
				  4096, stream[1], &err) &&
	     !kvt_device_wait(d, stream[1], &err) &&
	     !kvt_device_event_elapsed(&ms, d, event[0], event[1], &err);
	ok = gpu_good(ok ? KVT_OK : KVT_SYSTEM, &err) && ms >= 0 &&
	     !memcmp(pinned, (char *)pinned + 4096, 4096);
	kvt_device_pinned_free(d, pinned);
	kvt_device_free(d, memory);
	for (int i = 0; i < 2; i++) {
		kvt_device_event_free(d, event[i]);
		kvt_device_stream_free(d, stream[i]);
	}
	return ok;
}

static bool refusals(struct gpu_test *t)
{
	const struct kvt_plan plan = { .run = 4, .nloops = 1, .n = { 2 },
				       .src_stride = { 4 }, .dst_stride = { 4 } };
	struct kvt_error err = { "" };
	void *p;

	return kvt_device_alloc(&p, t->device, 0, &err) == KVT_USAGE &&
	       kvt_device_alloc(&p, t->device, INT64_MAX / 2, &err) == KVT_SYSTEM &&
	       strstr(err.text, "out of device memory: asked ") &&
	       kvt_device_copy_blocks(t->device, NULL, NULL, &plan, 1, NULL, NULL,
				      NULL, &err) == KVT_USAGE;
}

void gpu_check_lists(struct gpu_test *t)
{
	const int64_t blocks = t->device->blocks_max;
	const int rounds = t->cases < ROUNDS ? (int)t->cases : ROUNDS;
	int failed = 0;

	for (int i = 0; i < rounds && failed < 5; i++)
		failed += !random_blocks(t);
	gpu_point(!failed, "%d copies through block tables", rounds);
	failed = 0;
	for (int i = 0; i < rounds && failed < 5; i++)
		failed += !random_list(t);
	gpu_point(!failed, "%d lists of parts", rounds);
	t->device->blocks_max = blocks;
	t->device->launch_max = INT_MAX;
	gpu_point(two_streams(t), "two streams, an event between them");
	gpu_point(refusals(t), "what makes no sense is refused");
}
