/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_foreign.c - a byte that chooses, then any bytes as a file of another
 * program: llama.cpp, npz, torch, a cache in any of these, or a pickle alone; from
 * a chosen byte on the user has told what a file need not say
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/parse/pickle.h"
#include "tests/fuzz/read_groups.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_BYTES = 1 << 20 };

static const struct kvt_hints choices[] = {
	{ .format = "llama", .heads = 2 },
	{ .format = "npz", .layout = "nhd", .dtype = "bf16" },
	{ .format = "torch", .layout = "hnd", .head_dim = 4 },
	{ .format = "transformers" },
	{ .format = "llama" },
};
enum { NCHOICES = sizeof(choices) / sizeof(choices[0]) };

enum { TOLD = 2 * (NCHOICES + 1) };

static const struct kvt_facts told = { 4, { "tokens=9,6", "padding=left", "slots=9",
					    "window=4" } };

static const struct kvt_facts rotated = { 1, { "rotation=hadamard" } };

/* Numbers that blocks cannot hold are refused while they are read. */
static void read_or_hear(const struct kvt_dump *dump)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);

	for (int g = 0; g < s->ngroups; g++) {
		struct kvt_box box = kvt_box_whole(&s->group[g].shape);
		struct kvt_error err = { "" };
		int64_t nbytes;
		void *buf;

		if (kvt_shape_nbytes(&nbytes, &s->group[g].shape, &err))
			abort();
		if (nbytes > MOST_BYTES)
			continue;
		buf = malloc((size_t)nbytes + 1);
		if (kvt_dump_read(dump, g, &box, NULL, buf, &err) && !err.text[0])
			abort();
		free(buf);
	}
}

/* As blocks that are not rotated, by a template that is the file itself. */
static void retype(const struct kvt_dump *dump, const char *path, bool whole)
{
	struct kvt_create_options options = { .format = whole ? "ggsn" : "ggsq",
					      .as_is = true, .template_path = path };
	int from[KVT_MAX_GROUPS];
	struct kvt_dump *retyped;
	struct kvt_error err = { "" };

	if (kvt_output_retype(&retyped, from, &options, "-", dump, "none", &err)) {
		if (!err.text[0])
			abort();
		return;
	}
	if (retyped)
		read_or_hear(retyped);
	kvt_dump_close(retyped);
}

/* Written again, with itself as the template; of far positions that takes too long. */
static void write_again(const struct kvt_dump *dump, const char *path, bool whole)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	const struct kvt_create_options options = {
		.format = whole ? "ggsn" : "ggsq", .no_sync = true, .as_is = true,
		.template_path = path };
	struct kvt_writer *writer;
	struct kvt_error err = { "" };
	int64_t tokens = 0;
	char out[64];

	for (int64_t r = 0; r < s->nrequests; r++)
		tokens += s->request[r].ntokens;
	if (tokens > 4096)
		return;
	snprintf(out, sizeof(out), "/tmp/kvt-fuzz-%ld.bin", (long)getpid());
	if (kvt_create(&writer, out, &options, s, &err)) {
		if (!err.text[0])
			abort();
		return;
	}
	if (kvt_write(&writer, &dump, 1, NULL, &err) && !err.text[0])
		abort();
	kvt_close_writer(writer);
}

static void try_file(const uint8_t *data, size_t size, const struct kvt_hints *hints)
{
	static FILE *file;
	struct kvt_error err = { "" };
	struct kvt_dump *reader;
	char path[40];

	if (!file && !(file = tmpfile()))
		abort();
	/* it has no name any more, but is still there */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(file));
	if (ftruncate(fileno(file), 0) ||
	    pwrite(fileno(file), data, size, 0) != (ssize_t)size)
		abort();
	if (!kvt_open(&reader, path, hints, &err)) {
		read_groups(reader, MOST_BYTES);
		if (hints->format && !strcmp(hints->format, "llama")) {
			retype(reader, path, size && data[0] == 'n');
			write_again(reader, path, size && data[0] == 'n');
		}
		kvt_dump_close(reader);
	} else if (!err.text[0]) {
		abort();
	}
}

static void try_pickle(const uint8_t *data, size_t size)
{
	struct kvt_error err = { "" };
	struct kvt_pickle pickle;
	struct kvt_pickle_tensor t;

	if (kvt_pickle_read(&pickle, data, (int64_t)size, "x", &err)) {
		if (!err.text[0])
			abort();
		return;
	}
	for (int32_t i = 0; i < pickle.count; i++)
		if (pickle.node[i].kind == KVT_PICKLE_TENSOR &&
		    !kvt_pickle_tensor(&t, &pickle, i, "x", &err) &&
		    (t.offset < 0 || t.size < 0 || t.offset > t.nbytes))
			abort();
	kvt_pickle_free(&pickle);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_hints hints;

	if (!size)
		return 0;
	if (data[0] % (NCHOICES + 1) == NCHOICES) {
		try_pickle(data + 1, size - 1);
		return 0;
	}
	hints = choices[data[0] % (NCHOICES + 1)];
	if (data[0] >= TOLD && hints.format && !strcmp(hints.format, "transformers"))
		hints.facts = told;
	/* heads of one width, quantised and rotated */
	if (data[0] >= TOLD && hints.format && !strcmp(hints.format, "llama")) {
		hints.heads = 0;
		hints.head_dim = data[0] >= 2 * TOLD ? 64 : 8;
		if (data[0] >= 2 * TOLD)
			hints.facts = rotated;
	}
	try_file(data + 1, size - 1, &hints);
	return 0;
}
