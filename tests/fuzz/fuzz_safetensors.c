/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_safetensors.c - four bytes of data size, then any header; its data are zeros */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tensor/safetensors_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The tensors tile the data, and each is found by its name. */
static void check(const struct kvt_tensors *tensors, int64_t ndata)
{
	int64_t at = 0;

	for (int64_t i = 0; i < tensors->count; i++) {
		const struct kvt_tensor *t = &tensors->tensor[i];

		if (t->begin != at || t->end < t->begin ||
		    kvt_tensors_find(tensors, t->name) != t)
			abort();
		at = t->end;
	}
	if (at != ndata)
		abort();
}

/* Whatever the metadata says of layers, what is told is one thing or the other. */
static void tell(struct kvt_tensors *tensors, int64_t ndata)
{
	static struct kvt_file zeros = { .fd = -1, .path = (char *)"zeros" };
	struct kvt_error err = { "" };

	if (zeros.fd < 0 && (zeros.fd = open("/dev/zero", O_RDONLY | O_CLOEXEC)) < 0)
		abort();
	zeros.nbytes = ndata;
	if (kvt_mlx_tell(tensors, &zeros, &err))
		abort();
	for (int64_t i = 0; i < tensors->count; i++) {
		const struct kvt_held *held = &tensors->tensor[i].held;

		if (held->told && (held->disordered || held->seen < 0 || !tensors->names))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_error err = { "" };
	struct kvt_tensors tensors;
	uint32_t ndata;

	if (size < 4)
		return 0;
	memcpy(&ndata, data, 4);
	if (kvt_tensors_parse(&tensors, (const char *)data + 4, (int64_t)size - 4, ndata,
			      "x", &err)) {
		if (!err.text[0])
			abort();
		return 0;
	}
	check(&tensors, ndata);
	tell(&tensors, ndata);
	kvt_tensors_free(&tensors);
	return 0;
}
