/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_memory.c - device memory, and on the host what it must hold */
#include "tests/gpu_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t size_of(const struct gpu_buffer *b)
{
	return b->before + b->nbytes + b->after;
}

static bool to_device(struct gpu_buffer *b, struct gpu_test *t)
{
	struct kvt_error err = { "" };

	/* what is expected is written over it afterwards */
	return gpu_good(kvt_device_copy_in(t->device, b->device, b->host, size_of(b),
					   NULL, &err), &err) &&
	       gpu_good(kvt_device_wait(t->device, NULL, &err), &err);
}

/*
 * The executor sees every access outside an allocation, so there the end of
 * the buffer is the end of it.
 */
bool gpu_buffer_new(struct gpu_buffer *b, struct gpu_test *t, int64_t nbytes,
		    int poison)
{
	struct kvt_error err = { "" };
	void *device;

	*b = (struct gpu_buffer){ .nbytes = nbytes };
	b->before = check_below(2) ? check_below(32) : check_below(3) * 16;
	b->after = t->executor ? 0 : 64;
	if (size_of(b) == 0)
		b->before = 1;
	if (!gpu_good(kvt_device_alloc(&device, t->device, size_of(b), &err), &err))
		return false;
	b->device = device;
	b->host = malloc((size_t)size_of(b));
	if (!b->host)
		check_bail_out("out of memory");
	if (poison >= 0)
		return gpu_buffer_poison(b, t, poison);
	for (int64_t i = 0; i < size_of(b); i++)
		b->host[i] = (uint8_t)check_random();
	return to_device(b, t);
}

bool gpu_buffer_poison(struct gpu_buffer *b, struct gpu_test *t, int poison)
{
	memset(b->host, poison, (size_t)size_of(b));
	return to_device(b, t);
}

void gpu_buffer_free(struct gpu_buffer *b, struct gpu_test *t)
{
	kvt_device_free(t->device, b->device);
	free(b->host);
}

bool gpu_buffer_same(const struct gpu_buffer *b, struct gpu_test *t,
		     const char *what)
{
	const int64_t size = size_of(b);
	uint8_t *got = malloc((size_t)size);
	struct kvt_error err = { "" };
	int64_t at = 0;
	bool ok;

	if (!got)
		check_bail_out("out of memory");
	ok = gpu_good(kvt_device_copy_out(t->device, got, b->device, size, NULL,
					  &err), &err) &&
	     gpu_good(kvt_device_wait(t->device, NULL, &err), &err);
	while (ok && at < size && got[at] == b->host[at])
		at++;
	if (ok && at < size)
		printf("# %s: byte %lld of %lld is %02x, expected %02x\n", what,
		       (long long)(at - b->before), (long long)b->nbytes, got[at],
		       b->host[at]);
	free(got);
	return ok && at == size;
}

bool gpu_copy_plans(struct gpu_test *t, void *dst, const void *src,
		    const struct kvt_plans *plans)
{
	struct kvt_error err = { "" };

	for (int i = 0; i < plans->count; i++)
		if (!gpu_good(kvt_device_copy(t->device, dst, src, &plans->plan[i], NULL,
					      &err), &err))
			return false;
	return true;
}
