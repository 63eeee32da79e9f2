/* SPDX-License-Identifier: Apache-2.0 */
/* test_commit.c - files that appear whole or not at all, whatever goes wrong */
#include "tests/unit/fixture.h"

#include "lib/kvt/derive.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- writing ------------------------------------------------------------ */

/* Formats write side by side what each needs: so many files for one dump. */
static const struct write_case {
	const char *name;
	int nfiles;
} writes[] = { { "a.npy", 2 }, { "a.safetensors", 1 }, { "a.bin", 2 } };

static void test_abandon(void **state)
{
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	struct kvt_writer *w;
	pid_t child;

	for (int i = 0; i < 3; i++) {
		struct path p = join(*state, writes[i].name);

		ok(kvt_create(&w, p.s, NULL, s, &why));
		assert_int_equal(count_entries(*state), 1);
		/* nor does a child that ends take it along */
		fflush(NULL);
		if (!(child = fork()))
			exit(0);
		assert_int_equal(waitpid(child, NULL, 0), child);
		assert_int_equal(access(kvt_writer_staged(w), F_OK), 0);
		kvt_close_writer(w);
		assert_int_equal(count_entries(*state), 0);
	}
}

static void test_commit(void **state)
{
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	int nfiles = 0;

	for (int i = 0; i < 3; i++) {
		struct path p = join(*state, writes[i].name);
		struct path dir = join(*state, "d");

		assert_int_equal(mkdir(dir.s, 0777), 0);
		p = join(dir.s, writes[i].name);
		ok(sample_write(p.s, s, NULL, &why));
		nfiles = count_entries(dir.s);
		assert_int_equal(nfiles, writes[i].nfiles);
		remove_tree(dir.s);
	}
}

static void test_existing(void **state)
{
	struct path p = join(*state, "a.npy"), side = join(*state, "a.json");
	struct kvt_create_options force = { .force = true };
	struct kvt_dump *reader;
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);

	write_text(p.s, "old");
	expect(sample_write(p.s, s, NULL, &why), KVT_SYSTEM, "a.npy: exists");
	unlink(p.s);
	assert_int_equal(symlink("nowhere", p.s), 0);
	expect(sample_write(p.s, s, NULL, &why), KVT_SYSTEM, "a.npy: exists");
	unlink(p.s);
	write_text(side.s, "old");
	expect(sample_write(p.s, s, NULL, &why), KVT_SYSTEM, "a.json: exists");
	assert_int_equal(count_entries(*state), 1);
	write_text(p.s, "old");
	ok(sample_write(p.s, s, &force, &why));
	assert_int_equal(count_entries(*state), 2);
	reader = open_dump(p.s);
	check_dump(reader);
}

/* Somebody makes one of the files while it is written: theirs stays, alone. */
static void test_overtaken(void **state)
{
	static const char *const names[] = { "a.npy", "a.json" };
	struct path p = join(*state, "a.npy");
	struct kvt_create_options force = { .force = true };
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	struct kvt_writer *w;
	size_t n;

	for (int i = 0; i < 2; i++) {
		struct path theirs = join(*state, names[i]);

		ok(kvt_create(&w, p.s, NULL, s, &why));
		write_text(theirs.s, "theirs");
		expect(kvt_commit(w, &why), KVT_SYSTEM, "in the meantime");
		kvt_close_writer(w);
		assert_int_equal(count_entries(*state), 1);
		assert_string_equal((char *)read_file(theirs.s, &n), "theirs");
		unlink(theirs.s);
	}
	ok(kvt_create(&w, p.s, &force, s, &why));
	assert_int_equal(mkdir(p.s, 0777), 0);
	expect(kvt_commit(w, &why), KVT_SYSTEM, "is a folder");
	kvt_close_writer(w);
	assert_int_equal(count_entries(*state), 1);
}

static void test_stale_temporary(void **state)
{
	struct path p = join(*state, "a.safetensors"), stale;
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	char name[64];

	snprintf(name, sizeof(name), "a.safetensors.tmp-%ld", (long)getpid());
	stale = join(*state, name);
	write_text(stale.s, "not ours");
	ok(sample_write(p.s, s, NULL, &why));
	assert_int_equal(count_entries(*state), 2);
	assert_int_equal(access(stale.s, F_OK), 0);
}

static void test_bad_targets(void **state)
{
	static const struct {
		const char *path, *format, *part;
		enum kvt_status status;
	} rows[] = {
		{ "-", "npy", "standard output", KVT_UNSUPPORTED },
		{ "/dev/stdout", "raw", "standard output", KVT_UNSUPPORTED },
		{ "/dev/fd/1", "raw", "standard output", KVT_UNSUPPORTED },
		{ "/dev/null", "safetensors", "not a regular file", KVT_UNSUPPORTED },
		{ "/proc/a.npy", NULL, "cannot create", KVT_SYSTEM },
		{ "/dev/null/a.npy", NULL, "cannot create", KVT_SYSTEM },
		{ "a.unknown", NULL, "--format", KVT_USAGE },
		{ "npy", NULL, "--format", KVT_USAGE },
		{ "a.npy", "zip", "there is no format", KVT_USAGE },
	};
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_create_options options = { .format = rows[i].format };

		expect(sample_write(rows[i].path, s, &options, &why), rows[i].status,
		       rows[i].part);
	}
	expect(sample_write(*state, s, &(struct kvt_create_options){ .format = "npy",
			  .force = true }, &why), KVT_SYSTEM, "is a folder");
	expect(sample_write(join(*state, "a.npy").s, s,
			    &(struct kvt_create_options){ .nparts = 1 }, &why),
	       KVT_USAGE, "npy has no virtual datasets");
}

/* What says less than it should; and sentences have the name that it would get. */
static void test_unread(void **state)
{
	struct path p = join(*state, "a.h5");
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	struct rlimit old, none = { 0, 0 };
	struct kvt_writer *w;

	ok(kvt_create(&w, p.s, NULL, s, &why));
	expect(kvt_commit(w, &why), KVT_SYSTEM, "cannot be read again");
	kvt_close_writer(w);
	assert_int_equal(count_entries(*state), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none.rlim_max = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	expect(kvt_create(&w, join(*state, "a.npy").s, NULL, s, &why), KVT_SYSTEM,
	       "/a.npy: cannot");
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_null(strstr(why.text, ".tmp-"));
}

/* A full disk: files may not grow beyond this. */
static void test_full_disk(void **state)
{
	struct rlimit old, limit = { 1024, 1024 };
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit.rlim_max = old.rlim_max;
	for (int i = 0; i < 3; i++) {
		struct path p = join(*state, writes[i].name);
		enum kvt_status status;

		assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		status = sample_write(p.s, s, NULL, &why);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
		expect(status, KVT_SYSTEM, writes[i].name);
		assert_int_equal(count_entries(*state), 0);
	}
}

/* The same in the middle of the data, and at the manifest. */
static void test_full_disk_later(void **state)
{
	struct path p = join(*state, "a.npy");
	struct rlimit old, limit = { 4096, 4096 };
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	struct kvt_writer *w;
	struct kvt_box box;
	uint8_t *buf = zeros(1 << 20);

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit.rlim_max = old.rlim_max;
	box = kvt_box_whole(&s->group[0].shape);
	ok(kvt_create(&w, p.s, NULL, s, &why));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	expect(kvt_write_box(w, 0, &box, buf, &why), KVT_SYSTEM, "cannot write");
	kvt_writer_retell(w, &why);
	assert_non_null(strstr(why.text, "/a.npy: cannot write"));
	assert_null(strstr(why.text, ".tmp-"));
	limit.rlim_cur = 16;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	expect(kvt_commit(w, &why), KVT_SYSTEM, "a.json");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	kvt_close_writer(w);
	assert_int_equal(count_entries(*state), 0);
}

/* The same where tiles have a place each and are written by themselves. */
static void test_full_disk_tiles(void **state)
{
	struct path p = join(*state, "a.h5");
	struct rlimit old, limit = { 16384, 16384 };
	static uint8_t bytes[32768];
	struct kvt_stored stored = { .bytes = bytes, .capacity = sizeof(bytes),
				     .nbytes = sizeof(bytes) };
	const int64_t begin[KVT_NAXES] = { 0 };
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	struct kvt_writer *w;
	int64_t offset;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit.rlim_max = old.rlim_max;
	ok(kvt_create(&w, p.s, NULL, s, &why));
	ok(kvt_place_tile(w, 0, begin, &stored, &offset, &why));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	expect(kvt_write_tiles(w, bytes, stored.nbytes, offset, &why), KVT_SYSTEM,
	       "cannot write at byte");
	expect(kvt_commit(w, &why), KVT_SYSTEM, "cannot write");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	kvt_close_writer(w);
	assert_int_equal(count_entries(*state), 0);
}

/* ---- durable ------------------------------------------------------------ */

static const char *bad_disk;		/* what ends in this cannot be synced */

int fsync(int fd)
{
	char link[32], path[512];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (!bad_disk || n < (ssize_t)strlen(bad_disk) ||
	    memcmp(path + n - strlen(bad_disk), bad_disk, strlen(bad_disk)))
		return 0;
	errno = EIO;
	return -1;
}

/* Files, their folders and the names: what is not on disk has none. */
static void test_durable(void **state)
{
	static const struct {
		const char *name, *format, *synced[3];
	} rows[] = {
		{ "a.npy", NULL, { "/a.npy", "/a.json" } },
		{ "a.h5", NULL, { "/a.h5" } },
		{ "a//", "vllm-2026-07", { ".safetensors", "/a/r", "/a" } },
	};
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	const char *parent = strrchr(*state, '/');

	add_request(s, "r", 16, IDS(1));
	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct path p = join(*state, rows[i].name);
		struct kvt_create_options options = { .format = rows[i].format };

		for (int k = 0; k < 4; k++) {
			bad_disk = k < 3 && rows[i].synced[k] ? rows[i].synced[k] :
				   parent;
			expect(sample_write(p.s, s, &options, &why), KVT_SYSTEM,
			       "write to disk");
			assert_int_equal(count_entries(*state), 0);
		}
		options.no_sync = true;
		bad_disk = "";
		ok(sample_write(p.s, s, &options, &why));
		remove_tree(p.s);
		unlink(p.s);
		unlink(join(*state, "a.json").s);
	}
	bad_disk = NULL;
}

/* Two of one name, each in a folder of its own. */
static void test_two_folders(void **state)
{
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	struct path folder[2] = { join(*state, "x"), join(*state, "y") };
	struct kvt_writer *w[2];

	for (int i = 0; i < 2; i++) {
		assert_int_equal(mkdir(folder[i].s, 0777), 0);
		ok(kvt_create(&w[i], join(folder[i].s, "a.npy").s, NULL, s, &why));
		ok(kvt_finish(w[i], &why));
	}
	for (int i = 0; i < 2; i++) {
		bad_disk = i ? "/y" : "/x";
		expect(kvt_publish(w, 2, &why), KVT_SYSTEM, "write to disk");
		assert_int_equal(count_entries(folder[0].s), 1);
		assert_int_equal(count_entries(folder[1].s), 1);
	}
	bad_disk = NULL;
	ok(kvt_publish(w, 2, &why));
	for (int i = 0; i < 2; i++) {
		kvt_close_writer(w[i]);
		assert_int_equal(count_entries(folder[i].s), 2);
	}
}

static void test_null(void **state)
{
	struct kvt_create_options options = { .format = "null" };
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);

	ok(sample_write("-", s, &options, &why));
	assert_int_equal(count_entries(*state), 0);
}

/* ---- opening ------------------------------------------------------------ */

static void test_open(void **state)
{
	struct path fifo = join(*state, "fifo"), empty = join(*state, "empty");
	struct path missing = join(*state, "missing");
	struct kvt_dump *reader = NULL;

	assert_int_equal(mkfifo(fifo.s, 0600), 0);
	write_text(empty.s, "");
	expect(kvt_open(&reader, fifo.s, NULL, &why), KVT_BAD_INPUT, "regular file");
	expect(kvt_open(&reader, empty.s, NULL, &why), KVT_BAD_INPUT, "is empty");
	expect(kvt_open(&reader, missing.s, NULL, &why), KVT_SYSTEM, "missing");
	expect(kvt_open(&reader, "/dev/zero", NULL, &why), KVT_BAD_INPUT, "regular");
	expect(kvt_open(&reader, empty.s, &(struct kvt_hints){ .format = "tar" }, &why),
	       KVT_USAGE, "there is no format");
	expect(kvt_open(&reader, empty.s, &(struct kvt_hints){ .format = "null" }, &why),
	       KVT_UNSUPPORTED, "cannot be read");
	expect(kvt_open(&reader, empty.s, &(struct kvt_hints){ .format = "folder" },
			&why), KVT_BAD_INPUT, "is not a folder");
	expect(kvt_open(&reader, *state, &(struct kvt_hints){ .format = "npy" }, &why),
	       KVT_BAD_INPUT, "regular file");
	assert_null(reader);
	kvt_dump_close(NULL);
	kvt_close_writer(NULL);
}

static void test_files_of_reader(void **state)
{
	struct path p = join(*state, "a.npy"), side = join(*state, "a.json");
	struct stat data, manifest;
	struct kvt_dump *reader;
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);

	ok(sample_write(p.s, s, NULL, &why));
	assert_int_equal(stat(p.s, &data) | stat(side.s, &manifest), 0);
	reader = open_dump(p.s);
	assert_int_equal(kvt_dump_file_bytes(reader), data.st_size + manifest.st_size);
	assert_true(kvt_dump_has_file(reader, data.st_dev, data.st_ino));
	assert_true(kvt_dump_has_file(reader, manifest.st_dev, manifest.st_ino));
	assert_false(kvt_dump_has_file(reader, data.st_dev + 1, data.st_ino));
	assert_null(kvt_dump_tiling(reader, 0));
	assert_false(kvt_dump_has_cells(reader, 0));
	assert_string_equal(kvt_dump_format(reader), "npy");
}

/* What is written box by box is of no dump that the writer knows. */
static void refuse_over(const char *path, const struct kvt_dump *dump, const char *what)
{
	struct kvt_create_options force = { .force = true };
	struct kvt_writer *w = NULL;

	expect(kvt_create(&w, path, &force, kvt_dump_snapshot(dump), &why), KVT_USAGE,
	       what);
	assert_null(w);
}

static void test_over_source(void **state)
{
	struct path p = join(*state, "a.npy"), hard = join(*state, "b.npy");
	struct path beside = join(*state, "a"), free = join(*state, "c.safetensors");
	struct kvt_create_options force = { .force = true };
	struct kvt_dump *source, *first, *both;
	struct kvt_writer *w[2];
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	const struct kvt_slice_options all = { .layers.n = 0 };

	ok(sample_write(p.s, s, NULL, &why));
	assert_int_equal(link(p.s, hard.s), 0);
	source = open_dump(p.s);
	refuse_over(p.s, source, "a.npy belongs to the input");
	refuse_over(hard.s, source, "b.npy belongs to the input");
	force.format = "raw";
	expect(kvt_create(w, beside.s, &force, s, &why), KVT_USAGE,
	       "a.json belongs to the input");
	force.format = NULL;
	/* a dump of a dump is of its files, also when nobody else has it open */
	ok(kvt_dump_slice(&first, source, &all, &why));
	keep_dump(first);
	ok(kvt_dump_slice(&both, first, &all, &why));
	keep_dump(both);
	drop_now(first);
	drop_now(source);
	refuse_over(p.s, both, "a.npy belongs to the input");
	drop_now(both);
	/* what is opened after the writer was made counts, too */
	ok(kvt_create(&w[0], p.s, &force, s, &why));
	ok(kvt_finish(w[0], &why));
	source = open_dump(p.s);
	expect(kvt_publish(w, 1, &why), KVT_USAGE, "a.npy belongs to the input");
	drop_now(source);
	ok(kvt_publish(w, 1, &why));
	kvt_close_writer(w[0]);
	/* two under one name */
	ok(kvt_create(&w[0], free.s, NULL, s, &why));
	ok(kvt_create(&w[1], join(*state, "./c.safetensors").s, NULL, s, &why));
	for (int i = 0; i < 2; i++)
		ok(kvt_finish(w[i], &why));
	expect(kvt_publish(w, 2, &why), KVT_USAGE, "are one name");
	kvt_close_writer(w[0]);
	kvt_close_writer(w[1]);
	assert_int_equal(access(free.s, F_OK), -1);
}

TESTS("commit",
	NAMED_IN_FOLDER(test_abandon, "a closed writer leaves nothing"),
	NAMED_IN_FOLDER(test_commit, "a commit leaves the files of a format"),
	NAMED_IN_FOLDER(test_existing, "what exists is replaced with force only"),
	NAMED_IN_FOLDER(test_overtaken, "a file made meanwhile is not replaced"),
	NAMED_IN_FOLDER(test_stale_temporary, "a temporary of others is left alone"),
	NAMED_IN_FOLDER(test_bad_targets, "targets that cannot be written"),
	NAMED_IN_FOLDER(test_unread, "what cannot be read again gets no name"),
	NAMED_IN_FOLDER(test_full_disk, "a full disk at the start"),
	NAMED_IN_FOLDER(test_full_disk_tiles, "a full disk in the middle of tiles"),
	NAMED_IN_FOLDER(test_full_disk_later, "a full disk in the middle"),
	NAMED_IN_FOLDER(test_durable, "what cannot be synced gets no name"),
	NAMED_IN_FOLDER(test_two_folders, "one name in two folders"),
	NAMED_IN_FOLDER(test_null, "null writes nothing"),
	NAMED_IN_FOLDER(test_open, "files that are no dump"),
	NAMED_IN_FOLDER(test_over_source, "no dump is written over what it is of"),
	NAMED_IN_FOLDER(test_files_of_reader, "a reader knows its files"))
