/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode_content.c - numbers as a content: encode_content NAME COUNT [v]
 *
 * In: rows of COUNT float32.  Out: the bytes of each, of a key or of a value.  For
 * oracles: no command writes rows whose heads cut their blocks without a template.
 */
#include "lib/kvt/cast.h"

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
	const struct kvt_dtype *bytes = kvt_dtype_find("uint8");
	struct kvt_content content;
	struct kvt_caster caster;
	struct kvt_error err = { "" };
	float *number;
	void *row;

	if (count < 1 || count > 1 << 20)
		return fail("NAME COUNT [v]");
	if (kvt_content_parse(&content, argv[1], &err))
		return fail(err.text);
	if (argc > 3)
		content.turn[0] = content.turn[1];
	if (kvt_caster_init(&caster, bytes, &content, count, &err))
		return fail(err.text);
	number = calloc((size_t)caster.n, sizeof(*number));
	row = malloc((size_t)caster.nbytes);
	if (!number || !row)
		return fail("out of memory");
	while (fread(number, sizeof(*number), (size_t)count, stdin) == (size_t)count) {
		kvt_cast_row(&caster, row, 0, number, argc > 3, 1);
		fwrite(row, 1, (size_t)caster.nbytes, stdout);
	}
	free(number);
	free(row);
	return ferror(stdin) || fflush(stdout);
}
