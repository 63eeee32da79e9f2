/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_chunks.c - any bytes as what LMCache and Mooncake write around their data;
 * the first byte chooses which, the second how much data follows
 */
#include <stdlib.h>
#include <string.h>

#include "formats/lmcache/lmcache.h"
#include "formats/mooncake/mooncake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct kvt_error err;

static enum kvt_status try_key(const uint8_t *s, int64_t n, int64_t more)
{
	char *text = strndup((const char *)s, (size_t)n);
	struct kvt_lmcache_key key;
	enum kvt_status status = kvt_lmcache_key_parse(&key, text, &err);

	(void)more;
	if (!status && (!key.model[0] || !key.hash[0] || !key.tags || key.world < 1 ||
			key.worker < 0 || key.worker >= key.world))
		abort();
	free(text);
	return status;
}

static void check_header(const struct kvt_lmcache_header *h, int64_t nbytes)
{
	int64_t sum = h->data, pair = h->fmt == KVT_LMCACHE_MLA ? 1 : 2;

	if (!kvt_lmcache_axes(h->fmt) || h->narrays < 1 || h->narrays > KVT_MAX_GROUPS)
		abort();
	for (int i = 0; i < h->narrays; i++)
		sum += pair * h->array[i].layers * h->array[i].tokens *
		       h->array[i].width * h->array[i].dtype->elem;
	if (sum != nbytes)
		abort();
}

static enum kvt_status try_fs(const uint8_t *s, int64_t n, int64_t more)
{
	struct kvt_lmcache_header h;
	enum kvt_status status;
	bool found;

	status = kvt_lmcache_fs_parse(&h, &found, s, n, n + more, "x", &err);
	if (!status && found)
		check_header(&h, n + more);
	return status;
}

static enum kvt_status try_gds(const uint8_t *s, int64_t n, int64_t more)
{
	static uint8_t head[KVT_LMCACHE_GDS_HEADER];
	struct kvt_lmcache_header h;
	enum kvt_status status;

	/* the text alone, or no mutation would come through the length */
	memset(head, ' ', sizeof(head));
	memcpy(head, "\xf8\x0f\0\0\0\0\0", 8);
	memcpy(head + 8, s, n < KVT_LMCACHE_GDS_HEADER - 8 ? (size_t)n :
							     sizeof(head) - 8);
	status = kvt_lmcache_gds_parse(&h, head, sizeof(head), sizeof(head) + more, "x",
				       &err);
	if (!status)
		check_header(&h, sizeof(head) + more);
	return status;
}

static enum kvt_status try_tensor(const uint8_t *s, int64_t n, int64_t more)
{
	struct kvt_mooncake_tensor t;
	enum kvt_status status = kvt_mooncake_tensor_parse(&t, s, n, n + more, "x", &err);
	int64_t made;

	if (status)
		return status;
	made = t.dtype->elem;
	for (int i = 0; i < t.rank; i++)
		made = t.local[i] ? made * t.local[i] : 0;
	for (int i = 0; i < t.rank; i++)
		made = t.local[i] ? made : 0;
	if (made != t.nbytes || t.data + t.nbytes != n + more)
		abort();
	return status;
}

static void check_values(struct kvt_mooncake_values *values, int64_t nbytes)
{
	for (int64_t i = 0; i < values->count; i++)
		if (!values->value[i].key[0] || !values->value[i].tenant[0] ||
		    values->value[i].offset < 0 ||
		    values->value[i].nbytes < 0 ||
		    values->value[i].nbytes > nbytes - values->value[i].offset)
			abort();
}

static enum kvt_status try_entry(const uint8_t *s, int64_t n, int64_t more)
{
	struct kvt_mooncake_values values = { 0 };
	enum kvt_status status = kvt_mooncake_entry_parse(&values, s, n, n + more, 0, "x",
							  &err);

	if (!status)
		check_values(&values, n + more);
	/* the name need not be the key's: then a value explains all bytes */
	if (!status && (values.value[0].nbytes ?
			!kvt_mooncake_is_entry(s, n, n + more, "") : more > 0))
		abort();
	kvt_mooncake_values_free(&values);
	return status;
}

static enum kvt_status try_bucket(const uint8_t *s, int64_t n, int64_t more)
{
	struct kvt_mooncake_values values = { 0 };
	enum kvt_status status = kvt_mooncake_bucket_parse(&values, s, n, more, 0, "x",
							   &err);

	if (!status)
		check_values(&values, more);
	kvt_mooncake_values_free(&values);
	return status;
}

static enum kvt_status try_checkpoint(const uint8_t *s, int64_t n, int64_t more)
{
	struct kvt_mooncake_checkpoint c;
	enum kvt_status status;

	more *= 4096;
	status = kvt_mooncake_checkpoint_parse(&c, s, n, more, "x", &err);
	if (status)
		return status;
	for (int64_t i = 0; i < c.count; i++)
		if (c.extent[i].offset < 0 || c.extent[i].nbytes < 0 ||
		    c.extent[i].nbytes > more - c.extent[i].offset)
			abort();
	free(c.extent);
	return status;
}

static enum kvt_status try_record(const uint8_t *s, int64_t n, int64_t more)
{
	struct kvt_mooncake_extent extent = { 4096, more * 64 };
	uint8_t head[KVT_MOONCAKE_RECORD] = { 0 };
	struct kvt_mooncake_record r;
	enum kvt_status status;

	memcpy(head, s, n < KVT_MOONCAKE_RECORD ? (size_t)n : sizeof(head));
	status = kvt_mooncake_record_parse(&r, head, &extent, "x", &err);
	if (!status && (r.value % 4096 || r.nbytes < 0 || r.key < 1 ||
			r.value + r.nbytes > extent.offset + extent.nbytes))
		abort();
	return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static enum kvt_status (*const tries[])(const uint8_t *, int64_t, int64_t) = {
		try_key, try_fs, try_gds, try_tensor, try_entry, try_bucket,
		try_checkpoint, try_record,
	};
	enum { NTRIES = sizeof(tries) / sizeof(tries[0]) };

	if (size < 3)
		return 0;
	err.text[0] = '\0';
	if (tries[data[0] % NTRIES](data + 3, (int64_t)size - 3,
				    data[1] | data[2] << 8) &&
	    !err.text[0])
		abort();
	return 0;
}
