/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tree.c - a byte that chooses what is said of it, then files, as a folder
 * that an engine left: it is refused with a sentence, or all of it can be read
 *
 * A file is "PATH SIZE\n" and so many bytes, zeros where the input ends.  Of the first
 * byte 0x80 opens the file "one" alone, and 0x40 has somebody listen, as fsck does.  The
 * checksum in a file of raw_block is made right, for no mutation would find it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "lib/base/little_endian.h"
#include "tests/fuzz/read_groups.h"
#include "tests/temporary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_BYTES = 1 << 20, MOST_FILES = 24, MOST_FILE = 1 << 16, MOST_PATH = 300 };

#define SMALL .dtype = "bf16", .block_size = 8, .heads = 2, .head_dim = 4
static const struct kvt_hints choices[] = {
	{ .layout = "hicache-page-first", SMALL },
	{ .layout = "hicache-layer-first", SMALL, .layers = 3 },
	{ .format = "trtllm", SMALL },
	{ .layout = "flexkv:LAYERFIRST", SMALL, .layers = 3,
	  .facts = { 1, { "placement=consecutive" } } },
	{ .layout = "flexkv:BLOCKFIRST", SMALL, .layers = 3,
	  .facts = { 2, { "placement=interleaved", "round-robin=1" } } },
	{ .layout = "nhd", .heads = 2, .head_dim = 4 },
	{ .layout = "hnd", .heads = 2, .head_dim = 4, .dtype = "bf16" },
	{ .layout = "hicache-page-first", SMALL,
	  .facts = { 2, { "rank=0_2", "total-heads=4" } } },
	{ .format = "trtllm", SMALL, .facts = { 1, { "pool=0" } } },
	{ .layers = 0 },
	{ .format = "vllm-offload", .layout = "hnd", .heads = 2, .head_dim = 4,
	  .facts = { 1, { "tp-size=2" } } },
	{ .format = "vllm-offload", .layout = "bhlsc", .heads = 2, .head_dim = 4,
	  .facts = { 2, { "tp-size=4", "row-align=64" } } },
	{ .layout = "cpu-amx", .block_size = 32 },
	{ .format = "lmcache", .heads = 2 },
	{ .format = "mooncake", .layout = "KLSHD", .dtype = "bf16", .layers = 2,
	  .heads = 2, .head_dim = 4 },
	{ .layout = "BLKSHD", SMALL, .layers = 2 },
};
enum { NCHOICES = sizeof(choices) / sizeof(choices[0]) };

/* ---- the folder --------------------------------------------------------- */

static char root[TEMPORARY_NAME];

static void remove_tree(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char inner[4096];

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
		if (unlink(inner))
			remove_tree(inner);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

static void remove_root(void)
{
	if (root[0])
		remove_tree(root);
}

/* A name below the folder, and nowhere else. */
static bool is_inside(const char *path)
{
	return path[0] && path[0] != '/' && !strstr(path, "..") && !strstr(path, "//");
}

static void mend(uint8_t *bytes, size_t n)
{
	size_t text = n < 28 ? 0 : kvt_le64(bytes + 20);

	if (n > 4096 && !memcmp(bytes, "LMCIDX01", 8) && text <= n - 4096) {
		uint32_t crc = (uint32_t)crc32(0, bytes + 4096, (uInt)text);

		for (int i = 0; i < 4; i++)
			bytes[28 + i] = (uint8_t)(crc >> 8 * i);
	}
}

static void put_file(const char *path, const uint8_t *from, size_t n, size_t size)
{
	static uint8_t bytes[MOST_FILE];
	char full[TEMPORARY_NAME + MOST_PATH + 2];
	int fd;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *s = full + strlen(root) + 1; (s = strchr(s, '/')); s++) {
		*s = '\0';
		mkdir(full, 0700);
		*s = '/';
	}
	memcpy(bytes, from, n);
	mend(bytes, n);
	/* a folder may have that name, or a file that of a folder */
	if ((fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0600)) < 0)
		return;
	if (write(fd, bytes, n) != (ssize_t)n || ftruncate(fd, (off_t)size))
		abort();
	close(fd);
}

static void unpack(const uint8_t *at, const uint8_t *end)
{
	for (int i = 0; i < MOST_FILES && at < end; i++) {
		const uint8_t *line = memchr(at, '\n', (size_t)(end - at));
		char path[MOST_PATH], *blank;
		size_t size, n;

		if (!line || line - at >= MOST_PATH)
			return;
		memcpy(path, at, (size_t)(line - at));
		path[line - at] = '\0';
		at = line + 1;
		if (!(blank = strrchr(path, ' ')))
			return;
		*blank = '\0';
		size = strtoul(blank + 1, NULL, 10) % MOST_FILE;
		n = size < (size_t)(end - at) ? size : (size_t)(end - at);
		if (is_inside(path))
			put_file(path, at, n, size);
		at += n;
	}
}

static void hear(void *context, const char *name, const char *text)
{
	(void)context;
	if (!*name || !*text)
		abort();
}

static enum kvt_status open_it(struct kvt_dump **out, uint8_t how, struct kvt_error *err)
{
	static const struct kvt_inspector inspector = { .found = hear };
	struct kvt_hints hints = choices[(how & 0x3f) % NCHOICES];
	char one[TEMPORARY_NAME + 8];

	if (how & 0x40)
		hints.inspector = &inspector;
	snprintf(one, sizeof(one), "%s%s", root, how & 0x80 ? "/one" : "");
	return kvt_open(out, one, &hints, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_error err = { "" };
	struct kvt_dump *reader;

	if (!size)
		return 0;
	if (!root[0]) {
		temporary_name(root, "/dev/shm", "kvt-fuzz-XXXXXX");
		if (!mkdtemp(root))
			abort();
		atexit(remove_root);
	} else if (mkdir(root, 0700) && errno != EEXIST) {
		abort();
	}
	unpack(data + 1, data + size);
	if (!open_it(&reader, data[0], &err)) {
		read_groups(reader, MOST_BYTES);
		kvt_dump_close(reader);
	} else if (!err.text[0]) {
		abort();
	}
	remove_tree(root);
	return 0;
}
