/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size_sample.c - how well snapshots of a cache compress, measured on one of them
 *
 * What compresses is the content, so a ratio is worth as much as the sample is like what
 * will be stored: of the same type, and of blocks that hold tokens, since zeros of
 * unused ones would promise too much.
 */
#include "cli/cmd/size_sample.h"

#include <stdlib.h>
#include <string.h>

#include "lib/kvt/dump.h"
#include "lib/kvt/tile.h"
#include "lib/ops/describe/describe.h"

static enum kvt_status check_group(struct size_sample *out, const char *path,
				   const struct kvt_group_facts *f,
				   const struct kvt_group *group, struct kvt_error *err)
{
	if (!f->tiling || !f->tiling->zstd)
		return kvt_fail(err, KVT_BAD_INPUT,
				"--on-disk: group %s of %s is not compressed, so it does not tell how well others are; make a sample: kvtool convert %s sample.h5",
				group->id, path, path);
	if (f->blocks_unused > 0)
		return kvt_fail(err, KVT_BAD_INPUT,
				"--on-disk: group %s of %s has %lld blocks that no request uses, and they may compress better than others; make a sample without them: kvtool reblock --compact --block-size=%lld %s sample.h5",
				group->id, path, LL(f->blocks_unused),
				LL(group->block_size), path);
	if (group->content.type || (out->dtype && out->dtype != group->dtype))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"--on-disk: %s holds more than elements of one type, and each compresses in its own way",
				path);
	out->dtype = group->dtype;
	out->unlisted |= f->blocks_unused < 0;
	return KVT_OK;
}

static enum kvt_status measure(struct size_sample *out, struct kvt_description *d,
			       const char *path, struct kvt_dump *dump,
			       struct kvt_error *err)
{
	enum kvt_status status = kvt_describe(d, path, dump, err);

	for (int g = 0; !status && g < d->snapshot->ngroups; g++)
		status = check_group(out, path, &d->group[g], &d->snapshot->group[g],
				     err);
	if (!status && (!d->data_bytes || !d->file_bytes))
		status = kvt_fail(err, KVT_BAD_INPUT, "--on-disk: %s has no data", path);
	if (!status)
		out->ratio = kvt_compression_ratio(d);
	kvt_description_free(d);
	return status;
}

enum kvt_status size_sample_read(struct size_sample *out, const char *path,
				 struct kvt_error *err)
{
	const struct kvt_hints none = { .manifest = NULL };
	struct kvt_description *d;
	struct kvt_dump *dump;
	enum kvt_status status;

	*out = (struct size_sample){ .path = path };
	if ((status = kvt_open(&dump, path, &none, err)))
		return status;
	if ((d = calloc(1, sizeof(*d))))
		status = measure(out, d, path, dump, err);
	else
		status = kvt_no_memory(err, NULL);
	free(d);
	kvt_dump_close(dump);
	return status;
}

int64_t size_sample_bytes(const struct size_sample *sample, int64_t nbytes,
			  const char *cache_dtype)
{
	double n = (double)nbytes / sample->ratio;
	const char *type = strcmp(cache_dtype, "fp8") ? cache_dtype : "fp8_e4m3";

	return kvt_dtype_find(type) != sample->dtype ? -1 :
	       n < 0x1p62 ? (int64_t)n : (int64_t)1 << 62;
}
