/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_two_at_once.c - two operations in one process, each with a pipeline of its own
 *
 * Each writes a snapshot, copies it tile by tile with two workers in no order, and
 * reads the copy.  Nothing that they call says "one at a time": what HDF5 needs is
 * the format's affair.  Calls of HDF5 go through this file, which puts its own functions
 * into their table and sees two threads in it, whatever a sanitizer can see of a library
 * that is not instrumented.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/unit/tests.h"

#define KVT_H5_TABLE
#include "formats/hdf5/calls.h"
#include "lib/dump/read.h"
#include "tests/sample.h"

enum { OPERATIONS = 2, ROUNDS = 4, WORKERS = 2 };

/* ---- who is in HDF5 ----------------------------------------------------- */

static atomic_int inside;		/* threads */
static atomic_long calls, meetings;	/* of all; of those that found another thread */
static _Thread_local int depth;		/* HDF5 may call itself */

static void begin_call(void)
{
	if (depth++)
		return;
	atomic_fetch_add(&calls, 1);
	if (atomic_fetch_add(&inside, 1))
		atomic_fetch_add(&meetings, 1);
	sched_yield();
}

static void end_call(void)
{
	if (!--depth)
		atomic_fetch_sub(&inside, 1);
}

static struct kvt_h5_calls hdf5;		/* the table as it was */

#define WATCH(type, name, parameters, arguments)			\
static type watched_##name parameters					\
{									\
	type result;							\
									\
	begin_call();							\
	result = hdf5.name arguments;					\
	end_call();							\
	return result;							\
}

WATCH(hid_t, H5Fopen, (const char *name, unsigned flags, hid_t fapl), (name, flags, fapl))
WATCH(hid_t, H5Fcreate, (const char *name, unsigned flags, hid_t fcpl, hid_t fapl),
      (name, flags, fcpl, fapl))
WATCH(herr_t, H5Fclose, (hid_t file), (file))
WATCH(herr_t, H5Eset_auto2, (hid_t stack, H5E_auto2_t function, void *data),
      (stack, function, data))
WATCH(herr_t, H5Dread_chunk, (hid_t data, hid_t dxpl, const hsize_t *offset,
			      uint32_t *mask, void *buf), (data, dxpl, offset, mask, buf))
WATCH(herr_t, H5Dwrite_chunk, (hid_t data, hid_t dxpl, uint32_t mask,
			       const hsize_t *offset, size_t nbytes, const void *buf),
      (data, dxpl, mask, offset, nbytes, buf))
WATCH(herr_t, H5Dread, (hid_t data, hid_t type, hid_t memory, hid_t file, hid_t dxpl,
			void *buf), (data, type, memory, file, dxpl, buf))
WATCH(herr_t, H5Dwrite, (hid_t data, hid_t type, hid_t memory, hid_t file, hid_t dxpl,
			 const void *buf), (data, type, memory, file, dxpl, buf))

static void watch(void)
{
	struct kvt_error err;

	assert_false(kvt_h5_load("the table", &err));
	hdf5 = kvt_h5;
	kvt_h5.H5Fopen = watched_H5Fopen;
	kvt_h5.H5Fcreate = watched_H5Fcreate;
	kvt_h5.H5Fclose = watched_H5Fclose;
	kvt_h5.H5Eset_auto2 = watched_H5Eset_auto2;
	kvt_h5.H5Dread_chunk = watched_H5Dread_chunk;
	kvt_h5.H5Dwrite_chunk = watched_H5Dwrite_chunk;
	kvt_h5.H5Dread = watched_H5Dread;
	kvt_h5.H5Dwrite = watched_H5Dwrite;
}

/* ---- one operation ------------------------------------------------------ */

struct operation {
	char from[TEMPORARY_NAME], to[TEMPORARY_NAME];
	struct kvt_dump *reader;
	struct kvt_writer *writer;	/* NULL: only compare */
	enum kvt_status status;
	struct kvt_error err;
};

static const struct kvt_group *group_of(const struct operation *o)
{
	return &kvt_dump_snapshot(o->reader)->group[0];
}

static enum kvt_status do_tile(struct kvt_worker *worker, void *context,
			       const int64_t begin[KVT_NAXES], struct kvt_error *err)
{
	struct operation *o = context;
	const struct kvt_tiling *tiling = kvt_dump_tiling(o->reader, 0);
	struct kvt_stored stored = { .bytes = worker->stored,
				     .capacity = kvt_stored_bound(tiling) };
	struct kvt_box box = sample_tile_box(tiling, begin);
	enum kvt_status status;

	if ((status = kvt_read_tile(o->reader, 0, begin, &stored, err)) ||
	    (status = kvt_decode(worker->tile, &stored, tiling, worker->scratch, err)))
		return status;
	if (!sample_box(worker->tile, group_of(o), 0, &box, true))
		return kvt_fail(err, KVT_BAD_INPUT, "%s: not its tile", o->from);
	return o->writer ? sample_store_tile(o->writer, 0, begin, &stored, err) : KVT_OK;
}

static enum kvt_status do_cells(struct operation *o, const struct kvt_box *box,
				uint64_t *cells, struct kvt_error *err)
{
	const struct kvt_group *group = group_of(o);
	int64_t heads = group->shape.n[KVT_AXIS_H], i = 0;
	enum kvt_status status = kvt_read_cells(o->reader, 0, box, cells, err);

	if (status)
		return status;
	for (int64_t b = box->begin[KVT_AXIS_B]; b < box->end[KVT_AXIS_B]; b++)
		for (int64_t j = 0; j < heads * 2; j++)
			if (cells[i++] != sample_cell(group, 0, box->begin[KVT_AXIS_L],
						      b, j / 2, j % 2))
				return kvt_fail(err, KVT_BAD_INPUT, "%s: not its cells",
						o->from);
	return o->writer ? kvt_store_cells(o->writer, 0, box, cells, err) : KVT_OK;
}

/* Box i is a layer of one tile's blocks. */
static enum kvt_status do_box(struct kvt_worker *worker, void *context, int64_t i,
			      struct kvt_error *err)
{
	struct operation *o = context;
	const struct kvt_tiling *tiling = kvt_dump_tiling(o->reader, 0);
	const struct kvt_shape *shape = &group_of(o)->shape;
	int64_t each = tiling->n[KVT_AXIS_B], nb = shape->n[KVT_AXIS_B];
	int64_t nboxes = (nb + each - 1) / each;
	struct kvt_box box = kvt_box_whole(shape);
	enum kvt_status status;

	box.begin[KVT_AXIS_L] = i / nboxes;
	box.end[KVT_AXIS_L] = i / nboxes + 1;
	box.begin[KVT_AXIS_B] = i % nboxes * each;
	if (box.end[KVT_AXIS_B] > box.begin[KVT_AXIS_B] + each)
		box.end[KVT_AXIS_B] = box.begin[KVT_AXIS_B] + each;
	status = each_tile(worker, tiling, &box, do_tile, o, err);
	return status ? status :
	       do_cells(o, &box, (uint64_t *)(void *)worker->buffer[0], err);
}

static enum kvt_status do_all(struct operation *o, struct kvt_error *err)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(o->reader, 0);
	const int64_t *n = group_of(o)->shape.n, each = tiling->n[KVT_AXIS_B];
	const struct kvt_run run = { .threads = WORKERS };
	struct kvt_work work = {
		.fn = do_box, .context = o,
		.count = n[KVT_AXIS_L] * ((n[KVT_AXIS_B] + each - 1) / each),
		.buffer_bytes = { each * n[KVT_AXIS_H] * n[KVT_AXIS_K] * 8 },
	};

	if (tiling->n[KVT_AXIS_L] != 1)
		return kvt_fail(err, KVT_USAGE, "tiles of several layers");
	work_needs_tiles(&work, tiling);
	return kvt_work_run(&work, &run, err);
}

static enum kvt_status copy(struct operation *o, struct kvt_error *err)
{
	const struct kvt_create_options options = { .format = "hdf5", .tile_bytes = 4096,
						    .force = true };
	enum kvt_status status;

	if ((status = kvt_open(&o->reader, o->from, NULL, err)))
		return status;
	status = kvt_create(&o->writer, o->to, &options, kvt_dump_snapshot(o->reader),
			    err);
	if (!status && !(status = do_all(o, err)))
		status = kvt_commit(o->writer, err);
	kvt_close_writer(o->writer);
	o->writer = NULL;
	kvt_dump_close(o->reader);
	return status;
}

static enum kvt_status compare(struct operation *o, struct kvt_error *err)
{
	enum kvt_status status = kvt_open(&o->reader, o->to, NULL, err);

	if (status)
		return status;
	status = do_all(o, err);
	kvt_dump_close(o->reader);
	return status;
}

static void *operate(void *argument)
{
	static const int64_t n[KVT_NAXES] = { 3, 21, 16, 2, 2, 32 };
	const struct kvt_create_options options = { .format = "hdf5", .tile_bytes = 4096,
						    .force = true };
	struct operation *o = argument;
	struct kvt_snapshot snapshot;

	kvt_snapshot_init(&snapshot);
	snapshot.ngroups = 1;
	o->status = sample_group(&snapshot.group[0], "nhd", "bfloat16", n, &o->err);
	for (int i = 0; i < ROUNDS && !o->status; i++)
		if (!(o->status = sample_write(o->from, &snapshot, &options, &o->err)) &&
		    !(o->status = copy(o, &o->err)))
			o->status = compare(o, &o->err);
	return NULL;
}

/* ---- both --------------------------------------------------------------- */

static void two_at_once(void)
{
	struct operation o[OPERATIONS] = { 0 };
	pthread_t thread[OPERATIONS];

	watch();
	for (int i = 0; i < OPERATIONS; i++) {
		char name[32];

		snprintf(name, sizeof(name), "two-from-%d", i);
		temporary_file(o[i].from, name);
		snprintf(name, sizeof(name), "two-to-%d", i);
		temporary_file(o[i].to, name);
		assert_int_equal(pthread_create(&thread[i], NULL, operate, &o[i]), 0);
	}
	for (int i = 0; i < OPERATIONS; i++) {
		pthread_join(thread[i], NULL);
		unlink(o[i].from);
		unlink(o[i].to);
	}
	for (int i = 0; i < OPERATIONS; i++)
		if (o[i].status)
			fail_msg("operation %d: %d: %s", i, o[i].status, o[i].err.text);
	/* the calls that are watched are those that are made */
	assert_true(calls > 1000);
	assert_int_equal(meetings, 0);
}

TESTS("two at once",
	TEST(two_at_once))
