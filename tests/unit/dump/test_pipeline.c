/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pipeline.c - boxes and threads: each once, in turn, and what ends a run
 *
 * Threads are made to meet by waiting for each other, not by sleeping, where a fault
 * would show only then.
 */
#include <sched.h>
#include <stdatomic.h>

#include "lib/dump/read.h"
#include "tests/unit/tests.h"

enum { MOST_BOXES = 400, MIB = 1 << 20 };

/* What the boxes of a run do, and what was seen of it. */
struct seen {
	_Atomic int begun[MOST_BOXES];
	_Atomic int total, workers_at_once, most_at_once;
	int64_t order[MOST_BOXES];	/* in their turns; under the lock */
	int nordered;
	/* these fail; the lowest of them waits until another has */
	int64_t fails[3];
	int nfails;
	_Atomic int failed;
	/* progress and cancellation */
	_Atomic int in_callback;
	bool wrong;			/* asserted by the main thread only */
	int calls, ended;
	int64_t done;
	int cancel_after;
	_Atomic int asked;
};

static enum kvt_status run(kvt_work_fn *fn, struct seen *seen, int64_t count, int threads,
			   struct kvt_error *err)
{
	const struct kvt_work work = { .fn = fn, .context = seen, .count = count,
				   .buffer_bytes = { 100, 0, 7 } };
	const struct kvt_run how = { .threads = threads };

	return kvt_work_run(&work, &how, err);
}

/* ---- each once ---------------------------------------------------------- */

static enum kvt_status count_box(struct kvt_worker *worker, void *context, int64_t i,
				 struct kvt_error *err)
{
	struct seen *seen = context;

	(void)err;
	seen->begun[i]++;
	seen->total++;
	/* the worker's own, for as long as the box takes */
	memset(worker->buffer[0], (int)i, 100);
	sched_yield();
	for (int b = 0; b < 100; b++)
		if (worker->buffer[0][b] != (uint8_t)i)
			return KVT_MISMATCH;
	return worker->buffer[1] || !worker->buffer[2] || worker->tile ||
	       (uintptr_t)worker->buffer[0] % 64 ? KVT_MISMATCH : KVT_OK;
}

static void test_each_once(void)
{
	for (int threads = 1; threads <= 8; threads++)
		for (int64_t count = 0; count < MOST_BOXES; count += 57) {
			struct seen seen = { .total = 0 };

			ok(run(count_box, &seen, count, threads, NULL));
			assert_int_equal(seen.total, count);
			for (int64_t i = 0; i < count; i++)
				assert_int_equal(seen.begun[i], 1);
		}
}

/* ---- in turn ------------------------------------------------------------ */

static enum kvt_status take_turn(struct kvt_worker *worker, void *context, int64_t i,
				 struct kvt_error *err)
{
	struct seen *seen = context;

	(void)err;
	for (int64_t n = i * 7 % 5; n > 0; n--)
		sched_yield();
	/* some boxes have no ordered part at all */
	if (i % 7 == 3)
		return KVT_OK;
	if (!kvt_worker_turn(worker, i))
		return KVT_MISMATCH;
	seen->order[seen->nordered++] = i;
	if (i % 2)
		kvt_worker_pass(worker, i);
	else
		kvt_worker_unlock(worker);
	sched_yield();
	return KVT_OK;
}

static void test_turns(void)
{
	for (int threads = 1; threads <= 8; threads++) {
		struct seen seen = { .total = 0 };
		int at = 0;

		ok(run(take_turn, &seen, MOST_BOXES, threads, NULL));
		for (int64_t i = 0; i < MOST_BOXES; i++)
			if (i % 7 != 3)
				assert_int_equal(seen.order[at++], i);
		assert_int_equal(seen.nordered, at);
	}
}

/* No thread gets further ahead of a slow box than the ring of finished ones holds. */
static enum kvt_status hold_up(struct kvt_worker *worker, void *context, int64_t i,
			       struct kvt_error *err)
{
	struct seen *seen = context;

	(void)worker, (void)err;
	seen->total++;
	while (i == 0 && seen->total < 64)
		sched_yield();
	for (int n = 0; i == 0 && n < 2000; n++)
		sched_yield();
	if (i == 0)
		seen->order[0] = seen->total;
	return KVT_OK;
}

static void test_a_slow_box(void)
{
	struct seen seen = { .total = 0 };

	ok(run(hold_up, &seen, MOST_BOXES, 4, NULL));
	assert_int_equal(seen.total, MOST_BOXES);
	assert_in_range(seen.order[0], 64, 128 - 1);
}

/* ---- failure ------------------------------------------------------------ */

static enum kvt_status fail_box(struct kvt_worker *worker, void *context, int64_t i,
				struct kvt_error *err)
{
	struct seen *seen = context;

	(void)worker;
	seen->total++;
	for (int f = 0; f < seen->nfails; f++) {
		if (seen->fails[f] != i)
			continue;
		while (!f && seen->nfails > 1 && !seen->failed)
			sched_yield();
		if (!f)			/* let the other be recorded, too */
			for (int n = 0; n < 1000; n++)
				sched_yield();
		seen->failed++;
		return kvt_fail(err, f ? KVT_SYSTEM : KVT_BAD_INPUT, "box %d", (int)i);
	}
	return KVT_OK;
}

static void test_lowest_failure(void)
{
	for (int round = 0; round < 50; round++) {
		struct seen seen = { .fails = { 37, 41, 39 }, .nfails = 3 };

		assert_int_equal(run(fail_box, &seen, MOST_BOXES, 8, &why),
				 KVT_BAD_INPUT);
		assert_string_equal(why.text, "box 37");
		assert_true(seen.total < MOST_BOXES);
	}
}

static void test_failure_of_one_thread(void)
{
	struct seen seen = { .fails = { 5 }, .nfails = 1 };

	assert_int_equal(run(fail_box, &seen, MOST_BOXES, 1, NULL), KVT_BAD_INPUT);
	assert_int_equal(seen.total, 6);
}

/* Box 5 fails while later ones wait for it: none of them gets its turn. */
static enum kvt_status fail_in_turn(struct kvt_worker *worker, void *context, int64_t i,
				    struct kvt_error *err)
{
	struct seen *seen = context;

	seen->total++;
	while (i == 5 && seen->total < 8)
		sched_yield();
	if (i == 5)
		return kvt_fail(err, KVT_BAD_INPUT, "box 5");
	if (!kvt_worker_turn(worker, i))
		return KVT_OK;
	seen->order[seen->nordered++] = i;
	kvt_worker_pass(worker, i);
	return KVT_OK;
}

static void test_no_turn_after_failure(void)
{
	for (int round = 0; round < 50; round++) {
		struct seen seen = { .total = 0 };

		assert_int_equal(run(fail_in_turn, &seen, MOST_BOXES, 4, &why),
				 KVT_BAD_INPUT);
		assert_string_equal(why.text, "box 5");
		assert_true(seen.nordered <= 5);
		for (int i = 0; i < seen.nordered; i++)
			assert_int_equal(seen.order[i], i);
	}
}

/* ---- cancellation ------------------------------------------------------- */

static bool cancelled(void *context)
{
	struct seen *seen = context;

	return ++seen->asked > seen->cancel_after;
}

static void test_cancelled(void)
{
	for (int threads = 1; threads <= 8; threads += 7) {
		struct seen seen = { .cancel_after = 20 };
		const struct kvt_work work = { .fn = fail_box, .context = &seen,
					   .count = MOST_BOXES };
		const struct kvt_run how = { .threads = threads, .context = &seen,
					     .cancelled = cancelled };

		assert_int_equal(kvt_work_run(&work, &how, &why), KVT_SYSTEM);
		assert_string_equal(why.text, "interrupted");
		assert_int_equal(seen.total, 20);
	}
}

/* ---- progress ----------------------------------------------------------- */

static void hear(void *context, const char *what, int64_t done, int64_t total)
{
	struct seen *seen = context;

	seen->wrong |= seen->in_callback++ != 0;
	sched_yield();
	seen->wrong |= seen->ended != 0;
	if (what) {
		seen->wrong |= strcmp(what, "testing") || total != 10 * MOST_BOXES ||
			       done != (seen->calls ? seen->done + 10 : 0);
		seen->done = done;
	} else {
		seen->ended++;
	}
	seen->calls++;
	seen->in_callback--;
}

static enum kvt_status tell(struct kvt_worker *worker, void *context, int64_t i,
			    struct kvt_error *err)
{
	enum kvt_status status = fail_box(worker, context, i, err);

	if (!status)
		kvt_worker_progress(worker, 10);
	return status;
}

static void test_progress(void)
{
	for (int threads = 1; threads <= 8; threads++)
		for (int fails = 0; fails < 2; fails++) {
			struct seen seen = { .fails = { 100 }, .nfails = fails };
			struct kvt_work work = { .fn = tell, .context = &seen,
					     .count = MOST_BOXES, .label = "testing",
					     .total_bytes = 10 * MOST_BOXES };
			const struct kvt_run how = { .threads = threads,
						     .context = &seen,
						     .progress = hear };
			int calls;

			assert_int_equal(kvt_work_run(&work, &how, NULL),
					 fails ? KVT_BAD_INPUT : KVT_OK);
			assert_int_equal(seen.ended, 1);
			assert_false(seen.wrong);
			if (!fails)
				assert_int_equal(seen.calls, MOST_BOXES + 2);
			calls = seen.calls;
			work.label = NULL;		/* nothing is said of this one */
			seen.ended = 0;
			seen.failed = 0;
			(void)!kvt_work_run(&work, &how, NULL);
			assert_int_equal(seen.calls, calls);
		}
}

/* ---- memory ------------------------------------------------------------- */

static enum kvt_status count_workers(struct kvt_worker *worker, void *context, int64_t i,
				     struct kvt_error *err)
{
	struct seen *seen = context;
	int now = ++seen->workers_at_once, most = seen->most_at_once;

	(void)worker, (void)i, (void)err;
	while (now > most && !atomic_compare_exchange_weak(&seen->most_at_once, &most,
							   now))
		;
	for (int n = 0; n < 50; n++)
		sched_yield();
	seen->workers_at_once--;
	return KVT_OK;
}

/* Of each worker: buffers, two plain tiles, a stored one, 2 MiB of the codec. */
static void test_memory(void)
{
	struct seen seen = { .total = 0 };
	struct kvt_work work = { .fn = count_workers, .context = &seen, .count = 100,
			     .buffer_bytes = { 6 * MIB, 0, 4 * MIB } };
	struct kvt_run how = { .threads = 8, .memory = 25 * MIB };

	assert_int_equal(kvt_work_memory(&work, &how), 2 * 12 * MIB);
	ok(kvt_work_run(&work, &how, &why));
	assert_in_range(seen.most_at_once, 1, 2);
	how.memory = 12 * MIB;
	assert_int_equal(kvt_work_memory(&work, &how), 12 * MIB);
	how.memory = 0;			/* 256 MiB */
	assert_int_equal(kvt_work_memory(&work, &how), 8 * 12 * MIB);
	work.count = 3;
	assert_int_equal(kvt_work_memory(&work, &how), 3 * 12 * MIB);
	/* a tile is needed whatever the limit is */
	work.tile_bytes = 30 * MIB;
	work.stored_bytes = 31 * MIB;
	how.memory = 13 * MIB;
	assert_int_equal(kvt_work_memory(&work, &how), (12 + 2 * 30 + 31) * MIB);
}

static void test_too_little_memory(void)
{
	struct seen seen = { .total = 0 };
	struct kvt_work work = { .fn = fail_box, .context = &seen, .count = 10,
			     .buffer_bytes = { 10 * MIB }, .label = "testing" };
	const struct kvt_run how = { .memory = 12 * MIB - 1, .context = &seen,
				     .progress = hear };

	assert_int_equal(kvt_work_memory(&work, &how), 0);
	assert_int_equal(kvt_work_run(&work, &how, &why), KVT_UNSUPPORTED);
	assert_string_equal(why.text,
			    "needs 13 MiB of memory, more than --mem-limit allows");
	assert_int_equal(seen.total, 0);
	assert_int_equal(seen.calls, 0);
	work.count = 0;
	ok(kvt_work_run(&work, &how, &why));
}

/* ---- the last range ----------------------------------------------------- */

/* A leaf of bytes that counts how often it is asked, and fails when told to. */
struct counting {
	struct kvt_leaf leaf;
	int reads, fails_at;
};

static enum kvt_status count_read(const struct kvt_leaf *leaf, int group,
				  const struct kvt_box *box, void *buf,
				  struct kvt_error *err)
{
	struct counting *c = (struct counting *)(uintptr_t)leaf;
	struct kvt_shape shape = kvt_box_shape(box, 1);
	int64_t nbytes;

	(void)group;
	ok(kvt_shape_nbytes(&nbytes, &shape, NULL));
	/* of a read that fails, something may be there */
	memset(buf, (int)(0x10 + box->begin[KVT_AXIS_L]), (size_t)nbytes);
	if (++c->reads == c->fails_at) {
		memset(buf, 0xee, (size_t)nbytes);
		return kvt_fail(err, KVT_SYSTEM, "read %d", c->reads);
	}
	return KVT_OK;
}

static void count_close(struct kvt_leaf *leaf)
{
	free(leaf);
}

static const struct kvt_leaf_ops count_ops = {
	.read_box = count_read, .close = count_close,
};

/* Four layers of which a dump has 0 and 2: two ranges. */
static struct counting *make_counting(struct kvt_dump **whole, struct kvt_dump **part)
{
	static const struct kvt_range ranges[] = { { 0, 1 }, { 2, 3 } };
	const struct kvt_slice_options options = { .layers = { 2, ranges } };
	const int64_t n[] = { 4, 3, 2, 1, 1, 5 };
	struct counting *c = calloc(1, sizeof(*c));
	struct kvt_group *g = &c->leaf.snapshot.group[0];

	c->leaf.ops = &count_ops;
	c->leaf.format = "test";
	kvt_snapshot_init(&c->leaf.snapshot);
	c->leaf.snapshot.ngroups = 1;
	*g = (struct kvt_group){ .kind = KVT_MLA, .dtype = kvt_dtype_find("uint8"),
				 .block_size = 2, .tokens_per_slot = 1,
				 .total_heads = 1, .replication = 1,
				 .shape = { .elem = 1 } };
	strcpy(g->id, "g0");
	memcpy(g->shape.n, n, sizeof(n));
	ok(kvt_layout_parse(&g->layout, "LBKSHD", NULL));
	ok(kvt_dump_of_leaf(whole, &c->leaf, NULL));
	ok(kvt_dump_slice(part, *whole, &options, NULL));
	return c;
}

struct reading {
	struct kvt_dump *dump[2];
	struct counting *leaf[2];
};

static enum kvt_status read_layer(struct kvt_worker *worker, const struct kvt_dump *dump,
				  int64_t layer, int want)
{
	struct kvt_box box = kvt_box_whole(&kvt_dump_group(dump, 0)->shape);
	enum kvt_status status;
	uint8_t bytes[30];

	box_take(&box, KVT_AXIS_L, layer, 1);
	memset(bytes, 0, sizeof(bytes));
	status = kvt_read(worker, dump, 0, &box, NULL, bytes, NULL);
	for (int i = 0; !status && i < 30; i++)
		assert_int_equal(bytes[i], want);
	return status;
}

static enum kvt_status read_twice(struct kvt_worker *worker, void *context, int64_t i,
				  struct kvt_error *err)
{
	struct reading *r = context;
	struct counting *a = r->leaf[0], *b = r->leaf[1];

	(void)i, (void)err;
	ok(read_layer(worker, r->dump[0], 0, 0x10));
	ok(read_layer(worker, r->dump[0], 0, 0x10));
	assert_int_equal(a->reads, 1);
	/* another range of it, and the first one is gone */
	ok(read_layer(worker, r->dump[0], 1, 0x12));
	assert_int_equal(a->reads, 2);
	ok(read_layer(worker, r->dump[0], 0, 0x10));
	assert_int_equal(a->reads, 3);
	/* the same range of another leaf */
	ok(read_layer(worker, r->dump[1], 0, 0x10));
	assert_int_equal(b->reads, 1);
	/* after a read that failed neither its range is there nor the one before */
	b->fails_at = 2;
	assert_int_equal(read_layer(worker, r->dump[1], 1, 0x12), KVT_SYSTEM);
	ok(read_layer(worker, r->dump[1], 0, 0x10));
	assert_int_equal(b->reads, 3);
	b->fails_at = 4;
	assert_int_equal(read_layer(worker, r->dump[1], 1, 0x12), KVT_SYSTEM);
	ok(read_layer(worker, r->dump[1], 1, 0x12));
	assert_int_equal(b->reads, 5);
	return KVT_OK;
}

static void test_last_range(void)
{
	struct reading r;
	struct kvt_work work = { .fn = read_twice, .context = &r, .count = 1 };
	const struct kvt_run how = { .threads = 1 };
	struct kvt_dump *whole[2];

	for (int i = 0; i < 2; i++) {
		struct kvt_cut cut;

		r.leaf[i] = make_counting(&whole[i], &r.dump[i]);
		cut = kvt_cut_choose(kvt_dump_group(r.dump[i], 0), NULL, NULL, NULL, 30);
		assert_int_equal(cut.layers, 1);
		kvt_work_reads(&work, r.dump[i], 0, &cut, NULL);
		/* the range buffer, and nothing else */
		assert_int_equal(work.buffer_bytes[RANGE_BUFFER], 30);
	}
	ok(kvt_work_run(&work, &how, NULL));
	for (int i = 0; i < 2; i++) {
		kvt_dump_close(whole[i]);
		kvt_dump_close(r.dump[i]);
	}
}

TESTS("pipeline",
	TEST(test_each_once), TEST(test_turns), TEST(test_a_slow_box),
	TEST(test_lowest_failure), TEST(test_failure_of_one_thread),
	TEST(test_no_turn_after_failure), TEST(test_cancelled), TEST(test_progress),
	TEST(test_memory), TEST(test_too_little_memory), TEST(test_last_range))
