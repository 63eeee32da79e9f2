/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_compare.c - any two texts, with a NUL between them, as results that
 * 'transfer-sim compare' reads: refused with a sentence, or as different one way
 * as the other; a text is no different from itself
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/cmd/options.h"
#include "tests/temporary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char name[2][TEMPORARY_NAME];

static void remove_files(void)
{
	unlink(name[0]);
	unlink(name[1]);
}

static void begin(void)
{
	for (int i = 0; i < 2; i++) {
		int fd;

		temporary_name(name[i], "/dev/shm", "kvt-fuzz-XXXXXX");
		if ((fd = mkstemp(name[i])) < 0)
			abort();
		close(fd);
	}
	atexit(remove_files);
	/* of what is printed only that it can be */
	if (!freopen("/dev/null", "w", stdout))
		abort();
}

static void put(const char *path, const uint8_t *text, size_t n)
{
	FILE *f = fopen(path, "wb");

	if (!f || fwrite(text, 1, n, f) != n || fclose(f))
		abort();
}

static enum kvt_status compared(int a, int b, bool json)
{
	struct kvt_error err = { "" };
	char command[] = "compare", option[] = "--json";
	char *argv[] = { command, name[a], name[b], json ? option : NULL, NULL };
	enum kvt_status status = transfer_compare.run(3 + json, argv, &err);

	if (status && !err.text[0])
		abort();
	return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
	size_t n = cut ? (size_t)(cut - data) : size;
	enum kvt_status status;

	if (!name[0][0])
		begin();
	put(name[0], data, n);
	put(name[1], cut ? cut + 1 : data, cut ? size - n - 1 : 0);
	status = compared(0, 1, false);
	if (compared(1, 0, true) != status)
		abort();
	status = compared(0, 0, false);
	if (status && status != KVT_BAD_INPUT)
		abort();
	return 0;
}
