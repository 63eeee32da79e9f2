/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - rates of commands on files, one thread, for kvtool size --plan
 *
 * The data are noise in bfloat16, which compresses as caches do: by a third.  Each rate
 * is the best of some rounds, with the files in the page cache: it is what a processor
 * does, and what a file system can do besides is asked of it elsewhere.
 */
#include "cli/bench/files.h"

#include <errno.h>
#include <spawn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "lib/kvt/ops.h"
#include "lib/kvt/write.h"
#include "print/out/leftovers.h"
#include "print/out/signals.h"
#include "print/out/text_file.h"

extern char **environ;

static const struct file_rate fields[] = {
#define FIELD(key, name) { key, offsetof(struct file_rates, name) }
	FIELD("start_seconds", start_seconds), FIELD("unit_seconds", unit_seconds),
	FIELD("digest_bytes_per_second", digest),
	FIELD("digest_hdf5_bytes_per_second", digest_hdf5),
	FIELD("diff_bytes_per_second", diff), FIELD("fsck_bytes_per_second", fsck),
	FIELD("fsck_hdf5_bytes_per_second", fsck_hdf5),
	FIELD("write_bytes_per_second", write),
	FIELD("write_hdf5_bytes_per_second", write_hdf5),
#undef FIELD
};

const struct file_rate *file_rate_at(int i)
{
	return i < (int)(sizeof(fields) / sizeof(fields[0])) ? &fields[i] : NULL;
}

/* ---- what is timed ----------------------------------------------------- */

enum { PLAIN, TILED, NFILES };

struct timing {
	char path[NFILES][4096], again[NFILES][4096], unit[4096];
	struct kvt_dump *source, *dump[NFILES];
	int64_t nbytes;
	struct kvt_run run;
};

static enum kvt_status write_file(struct timing *t, int which, struct kvt_error *err)
{
	const struct kvt_create_options options = { .force = true };
	const struct kvt_dump *source = t->source;
	/* what is read is never replaced */
	const char *path = t->dump[which] ? t->again[which] : t->path[which];
	struct kvt_writer *writer;
	enum kvt_status status;

	unlink(path);
	status = kvt_create(&writer, path, &options, kvt_dump_snapshot(source), err);

	if (status)
		return status;
	if (!(status = kvt_write(&writer, &source, 1, &t->run, err)))
		status = kvt_publish(&writer, 1, err);
	kvt_close_writer(writer);
	return status;
}

static enum kvt_status digest(struct timing *t, int which, struct kvt_error *err)
{
	struct kvt_text text;

	return kvt_dump_digest(&text, t->dump[which], KVT_SCOPE_TOKENS, &t->run, err);
}

static enum kvt_status diff(struct timing *t, int which, struct kvt_error *err)
{
	return kvt_diff(t->dump[which], t->source, NULL, NULL, &t->run, err);
}

static enum kvt_status fsck(struct timing *t, int which, struct kvt_error *err)
{
	return kvt_check(t->dump[which], true, NULL, NULL, &t->run, err);
}

static enum kvt_status start(struct timing *t, int which, struct kvt_error *err)
{
	char *const argv[] = { (char[]){ "kvtool" }, (char[]){ "--list-options" }, NULL };
	posix_spawn_file_actions_t quiet;
	int failed, status = 0;
	pid_t pid;

	(void)t;
	(void)which;
	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", 1, 0);
	failed = posix_spawn(&pid, "/proc/self/exe", &quiet, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&quiet);
	if (failed || waitpid(pid, &status, 0) < 0 || status)
		return kvt_fail(err, KVT_SYSTEM, "cannot start this program again");
	return KVT_OK;
}

static enum kvt_status unit(struct timing *t, int which, struct kvt_error *err)
{
	static const char result[8192] = "{}";

	(void)which;
	return text_file_write(t->unit, result, sizeof(result), true, err);
}

static const struct timed {
	size_t field;
	enum kvt_status (*run)(struct timing *t, int which, struct kvt_error *err);
	int which;
	bool rate;			/* bytes in a second, not seconds */
} timed[] = {
#define ROW(name, ...) { offsetof(struct file_rates, name), __VA_ARGS__ }
	ROW(start_seconds, start, 0, false), ROW(unit_seconds, unit, 0, false),
	ROW(digest, digest, PLAIN, true), ROW(digest_hdf5, digest, TILED, true),
	ROW(diff, diff, PLAIN, true), ROW(fsck, fsck, PLAIN, true),
	ROW(fsck_hdf5, fsck, TILED, true), ROW(write, write_file, PLAIN, true),
	ROW(write_hdf5, write_file, TILED, true),
#undef ROW
};

/* ---- the files --------------------------------------------------------- */

/* Of all blocks, whose tokens are then hashed, too. */
static enum kvt_status add_request(struct kvt_snapshot *s, struct kvt_error *err)
{
	int64_t n = s->group[0].shape.n[KVT_AXIS_B];
	struct kvt_request *r = s->request = calloc(1, sizeof(*r));

	if (!r)
		return kvt_no_memory(err, NULL);
	s->nrequests = 1;
	r->id = strdup("A");
	r->blocks[0] = malloc((size_t)n * sizeof(**r->blocks));
	if (!r->id || !r->blocks[0])
		return kvt_no_memory(err, NULL);
	r->ntokens = n * s->group[0].block_size;
	r->nblocks[0] = n;
	for (int64_t b = 0; b < n; b++)
		r->blocks[0][b] = (uint32_t)b;
	return KVT_OK;
}

/* Of 4 layers: blocks of 64 KiB. */
static enum kvt_status make_source(struct timing *t, uint8_t **bytes,
				   struct kvt_error *err)
{
	struct kvt_snapshot s;
	struct kvt_group *g = &s.group[0];
	const int64_t n[KVT_NAXES] = { 4, t->nbytes / (4 * 65536) + 1, 16, 8, 2, 128 };
	uint32_t draw = 1;
	enum kvt_status status;

	kvt_snapshot_init(&s);
	s.ngroups = 1;
	*g = (struct kvt_group){ .id = "g0", .kind = KVT_FULL_ATTENTION,
		.dtype = kvt_dtype_find("bf16"), .block_size = 16, .tokens_per_slot = 1,
		.total_heads = 8, .replication = 1 };
	memcpy(g->shape.n, n, sizeof(n));
	g->shape.elem = 2;
	if ((status = kvt_layout_parse(&g->layout, "nhd", err)) ||
	    (status = kvt_shape_nbytes(&t->nbytes, &g->shape, err)))
		return status;
	if (!(*bytes = malloc((size_t)t->nbytes)))
		return kvt_no_memory(err, NULL);
	/* sign, an exponent near that of 1, a mantissa */
	for (int64_t i = 0; i < t->nbytes; i += 2) {
		draw = draw * 1664525 + 1013904223;
		(*bytes)[i] = (uint8_t)(draw >> 24);
		(*bytes)[i + 1] = (uint8_t)(0x3f - (__builtin_clz(draw | 1) >> 1) +
					    (draw >> 8 & 0x80));
	}
	if (!(status = add_request(&s, err)))
		status = kvt_dump_of_memory(&t->source, &s, (const void *[]){ *bytes },
					    err);
	kvt_snapshot_free(&s);
	return status;
}

static enum kvt_status time_all(struct file_rates *out, struct timing *t, int rounds,
				struct kvt_error *err)
{
	for (size_t i = 0; i < sizeof(timed) / sizeof(timed[0]); i++) {
		double *field = (double *)(void *)((char *)out + timed[i].field);
		double best = 0;

		for (int r = 0; r < rounds; r++) {
			double began = bench_now(), took;
			enum kvt_status status = timed[i].run(t, timed[i].which, err);

			if (!status && interrupted)
				status = kvt_fail(err, KVT_SYSTEM, "interrupted");
			if (status)
				return status;
			took = bench_now() - began;
			best = !r || took < best ? took : best;
		}
		*field = timed[i].rate ? (double)t->nbytes / best : best;
	}
	return KVT_OK;
}

enum kvt_status bench_files(struct file_rates *out, const char *folder, int64_t nbytes,
			    int rounds, struct kvt_error *err)
{
	static const char *const ending[] = { "npy", "h5" };
	struct timing *t = calloc(1, sizeof(*t));
	uint8_t *bytes = NULL;
	char dir[4000];
	enum kvt_status status;

	if (!t)
		return kvt_no_memory(err, NULL);
	t->nbytes = nbytes;
	t->run = (struct kvt_run){ .threads = 1 };
	snprintf(dir, sizeof(dir), "%s/kvtool-bench", folder);
	tell_leftovers(dir);
	snprintf(dir, sizeof(dir), "%s/kvtool-bench.tmp-%ld", folder, (long)getpid());
	if (mkdir(dir, 0777)) {
		kvt_fail(err, KVT_SYSTEM, "%s: cannot make a folder there: %s", folder,
			 strerror(errno));
		free(t);
		return KVT_SYSTEM;
	}
	snprintf(t->unit, sizeof(t->unit), "%s/unit", dir);
	for (int i = 0; i < NFILES; i++) {
		snprintf(t->path[i], sizeof(t->path[i]), "%s/kv.%s", dir, ending[i]);
		snprintf(t->again[i], sizeof(t->again[i]), "%s/again.%s", dir, ending[i]);
	}
	status = make_source(t, &bytes, err);
	for (int i = 0; !status && i < NFILES; i++)
		if (!(status = write_file(t, i, err)))
			status = kvt_open(&t->dump[i], t->path[i], NULL, err);
	if (!status)
		status = time_all(out, t, rounds, err);
	for (int i = 0; i < NFILES; i++) {
		kvt_dump_close(t->dump[i]);
		unlink(t->path[i]);
		unlink(t->again[i]);
	}
	snprintf(t->path[0], sizeof(t->path[0]), "%s/kv.json", dir);
	unlink(t->path[0]);
	snprintf(t->path[0], sizeof(t->path[0]), "%s/again.json", dir);
	unlink(t->path[0]);
	unlink(t->unit);
	rmdir(dir);
	kvt_dump_close(t->source);
	free(bytes);
	free(t);
	return status;
}
