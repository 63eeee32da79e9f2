/* SPDX-License-Identifier: Apache-2.0 */
/* null.c - throws bytes away, so that the rest can be timed without a disk */
#include "formats/format.h"

/* No parts: kvt_flat_write() then finds nothing to write to. */
static enum kvt_status null_create(struct kvt_writer *writer, struct kvt_error *err)
{
	(void)writer;
	(void)err;
	return KVT_OK;
}

const struct kvt_format kvt_null_format = {
	.info = { "null", "stores nothing, to measure the time without "
			  "writing", .reads = false, .writes = true,
		  .keeps_scales = true },
	.nowhere = true,
	.create = null_create,
	.finish = null_create,
};
