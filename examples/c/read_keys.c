/* SPDX-License-Identifier: Apache-2.0 */
/* read_keys.c - the keys of some tokens of a request, in one layer; build: README.md */
#include <kvt/derive.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const struct kvt_error *err)
{
	fprintf(stderr, "read_keys: %s\n", err->text);
	return 1;
}

int main(int argc, char **argv)
{
	const struct kvt_range tokens = { 64, 72 };
	struct kvt_dump *dump, *row;
	const struct kvt_group *g;
	struct kvt_layout layout;
	struct kvt_error err;
	struct kvt_box box;
	int64_t first, nbytes;
	struct kvt_shape shape;
	uint8_t *keys;

	if (argc != 4) {
		fputs("usage: read_keys DUMP REQUEST LAYER\n", stderr);
		return 2;
	}
	/* The slots of 'row' are those of the request, in the order of its tokens. */
	if (kvt_open(&dump, argv[1], NULL, &err) ||
	    kvt_dump_tokens(&row, &first, dump, 0, argv[2], tokens, &err))
		return fail(&err);
	g = kvt_dump_group(row, 0);
	box = kvt_box_whole(&g->shape);
	box.begin[KVT_AXIS_L] = atoll(argv[3]);
	box.end[KVT_AXIS_L] = box.begin[KVT_AXIS_L] + 1;
	box.end[KVT_AXIS_K] = 1;			/* keys come before values */
	shape = kvt_box_shape(&box, g->shape.elem);
	if (kvt_shape_nbytes(&nbytes, &shape, &err) ||
	    kvt_layout_parse(&layout, "LKBSHD", &err))
		return fail(&err);
	keys = malloc((size_t)nbytes);
	if (!keys || kvt_dump_read(row, 0, &box, &layout, keys, &err))
		return fail(&err);
	for (int64_t t = tokens.begin; t < tokens.end; t++) {
		int64_t at = (first + t - tokens.begin) * shape.n[KVT_AXIS_H] *
			     shape.n[KVT_AXIS_D] * g->shape.elem;

		printf("token %lld, head 0:", (long long)t);
		for (int64_t d = 0; d < shape.n[KVT_AXIS_D] && d < 4; d++)
			printf(" %g", kvt_dtype_decode(g->dtype,
						       keys + at + d * g->shape.elem));
		putchar('\n');
	}
	free(keys);
	kvt_dump_close(row);
	kvt_dump_close(dump);
	return 0;
}
