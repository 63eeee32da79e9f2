/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode_content.c - numbers as a content: encode_content NAME COUNT [v]
 *
 * In: rows of COUNT float32.  Out: the bytes of each, of a key or of a value.  For
 * oracles, until a command writes such content.
 */
#include "lib/kvt/content.h"

#include <stdio.h>
#include <stdlib.h>

static int fail(const char *why)
{
	fprintf(stderr, "encode_content: %s\n", why);
	return 2;
}

int main(int argc, char **argv)
{
	int64_t count = argc > 2 ? strtoll(argv[2], NULL, 10) : 0;
	struct kvt_shape shape = { { 1, 1, 1, 1, 1, 0 }, 1 };
	struct kvt_content content;
	struct kvt_packing packing;
	struct kvt_error err = { "" };
	float *row;
	double *number;
	void *bytes;

	if (count < 1 || count > 1 << 20)
		return fail("NAME COUNT [v]");
	if (kvt_content_parse(&content, argv[1], &err))
		return fail(err.text);
	if (argc > 3)
		content.turn[0] = content.turn[1];
	shape.n[KVT_AXIS_D] = kvt_content_row_of(&content, count);
	if (kvt_packing_init(&packing, &content, &shape, 1, &err) ||
	    kvt_packing_writable(&packing, &err))
		return fail(err.text);
	row = calloc((size_t)count, sizeof(*row));
	number = calloc((size_t)count, sizeof(*number));
	bytes = malloc((size_t)packing.nbytes);
	if (!row || !number || !bytes)
		return fail("out of memory");
	while (fread(row, sizeof(*row), (size_t)count, stdin) == (size_t)count) {
		for (int64_t i = 0; i < count; i++)
			number[i] = (double)row[i];
		kvt_packing_encode(bytes, &packing, argc > 3, number);
		fwrite(bytes, 1, (size_t)packing.nbytes, stdout);
	}
	free(row);
	free(number);
	free(bytes);
	return ferror(stdin) || fflush(stdout);
}
