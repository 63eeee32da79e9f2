/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_npy.c - any bytes as the header of a .npy file */
#include <stdlib.h>
#include <string.h>

#include "formats/parse/npy_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_npy_header header, again;
	uint8_t head[KVT_NPY_MAX_HEAD];
	struct kvt_error err = { "" };
	int64_t n;

	if (kvt_npy_parse(&header, data, (int64_t)size, "x", &err)) {
		if (!err.text[0])
			abort();
		return 0;
	}
	if (header.data > (int64_t)size || header.nbytes < 0)
		abort();
	/* what was read can be written, and says the same */
	if (header.rank > 8)
		return 0;
	n = kvt_npy_print(head, header.descr, header.rank, header.shape);
	if (kvt_npy_parse(&again, head, n, "x", &err) || again.rank != header.rank ||
	    again.nbytes != header.nbytes || again.dtype != header.dtype ||
	    memcmp(again.shape, header.shape, (size_t)header.rank * sizeof(*again.shape)))
		abort();
	return 0;
}
