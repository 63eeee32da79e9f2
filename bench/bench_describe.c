/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_describe.c - metadata of a snapshot whose data would be 100 GiB
 *
 * The file is made with all its metadata (128 requests, every table); a hole
 * of 70 GiB stands for the data, which describing never looks at.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/kvt/write.h"

enum { LAYERS = 80, SLOTS = 16, HEADS = 8, DIM = 128, REQUESTS = 128, RUNS = 21 };

/* 100 GiB of bf16 keys and values. */
static const int64_t blocks = ((int64_t)100 << 30) /
			      ((int64_t)LAYERS * SLOTS * HEADS * 2 * DIM * 2);

static struct kvt_request one_request(int64_t i)
{
	struct kvt_request r = { .nblocks = { blocks / REQUESTS } };
	char name[32];

	snprintf(name, sizeof(name), "request-%lld", (long long)i);
	r.id = strdup(name);
	r.ntokens = r.nblocks[0] * SLOTS;
	r.blocks[0] = malloc((size_t)r.nblocks[0] * sizeof(uint32_t));
	for (int64_t j = 0; r.blocks[0] && j < r.nblocks[0]; j++)
		r.blocks[0][j] = (uint32_t)(i * r.nblocks[0] + j);
	return r;
}

/* Storing the cells of one block gives the whole table its place. */
static enum kvt_status claim_cells(struct kvt_writer *writer,
				   const struct kvt_shape *shape,
				   struct kvt_error *err)
{
	static const uint64_t cells[HEADS * 2];
	struct kvt_box box = kvt_box_whole(shape);

	box.end[KVT_AXIS_L] = box.end[KVT_AXIS_B] = 1;
	return kvt_store_cells(writer, 0, &box, cells, err);
}

static enum kvt_status make(const char *path, struct kvt_error *err)
{
	struct kvt_create_options options = { .force = true, .no_sync = true };
	struct kvt_snapshot s;
	struct kvt_group *g = &s.group[0];
	struct kvt_writer *writer;
	enum kvt_status status;

	kvt_snapshot_init(&s);
	s.ngroups = 1;
	*g = (struct kvt_group){
		.id = "g0", .kind = KVT_FULL_ATTENTION,
		.dtype = kvt_dtype_find("bfloat16"),
		.shape = { { LAYERS, blocks, SLOTS, HEADS, 2, DIM }, 2 },
		.block_size = SLOTS, .tokens_per_slot = 1,
		.total_heads = HEADS, .replication = 1,
	};
	s.request = calloc(REQUESTS, sizeof(*s.request));
	for (int64_t i = 0; s.request && i < REQUESTS; i++)
		s.request[s.nrequests++] = one_request(i);
	if (!(status = kvt_layout_parse(&g->layout, "nhd", err)) &&
	    !(status = kvt_create(&writer, path, &options, &s, err))) {
		status = claim_cells(writer, &g->shape, err);
		if (!status)
			status = kvt_commit(writer, err);
		kvt_close_writer(writer);
	}
	kvt_snapshot_free(&s);
	return status;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Milliseconds; below 0: it failed. */
static double describe(const char *kvtool, const char *path, long *peak)
{
	struct timespec from, to;
	struct rusage usage;
	int status;
	pid_t pid;

	clock_gettime(CLOCK_MONOTONIC, &from);
	if (!(pid = fork())) {
		if (!freopen("/dev/null", "w", stdout))
			_exit(127);
		execl(kvtool, "kvtool", "describe", path, (char *)NULL);
		_exit(127);
	}
	if (wait4(pid, &status, 0, &usage) != pid || status) {
		fprintf(stderr, "bench_describe: %s failed\n", kvtool);
		return -1;
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	*peak = usage.ru_maxrss;
	return (double)(to.tv_sec - from.tv_sec) * 1e3 +
	       (double)(to.tv_nsec - from.tv_nsec) / 1e6;
}

int main(int argc, char **argv)
{
	const char *kvtool = getenv("KVTOOL");
	const char *folder = getenv("TMPDIR");
	char path[512];
	struct kvt_error err = { "" };
	struct stat st = { 0 };
	double ms[RUNS];
	long peak = 0;
	int fd, n;

	(void)argc, (void)argv;
	/* the X are mkstemps()'s, which has a name for them */
	n = snprintf(path, sizeof(path), "%s/kvt-describe-XXXXXX.h5",
		     folder && *folder ? folder : "/tmp");
	if (n < 0 || (size_t)n >= sizeof(path)) {
		fprintf(stderr, "bench_describe: TMPDIR is too long\n");
		return 1;
	}
	if ((fd = mkstemps(path, 3)) < 0) {
		perror(path);
		return 1;
	}
	close(fd);
	if (make(path, &err)) {
		fprintf(stderr, "bench_describe: %s\n", err.text);
		unlink(path);
		return 1;
	}
	if (stat(path, &st) || truncate(path, (off_t)70 << 30)) {
		perror(path);
		unlink(path);
		return 1;
	}
	for (int i = 0; i < RUNS; i++) {
		ms[i] = describe(kvtool ? kvtool : "build/kvtool", path, &peak);
		if (ms[i] < 0) {
			unlink(path);
			return 1;
		}
	}
	unlink(path);
	qsort(ms, RUNS, sizeof(ms[0]), by_value);
	printf("describe of 100 GiB in %lld blocks, %d requests, %.1f MiB of metadata: "
	       "%.1f ms (median of %d, best %.1f), %.1f MiB\n",
	       (long long)blocks, REQUESTS, (double)st.st_size / 1048576,
	       ms[RUNS / 2], RUNS, ms[0], (double)peak / 1024);
	return 0;
}
