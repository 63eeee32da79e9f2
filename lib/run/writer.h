/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.h - what a format implements to be written to
 *
 * The engine knows a writer by this head alone; what follows it is the format's.
 * Functions that may be NULL are what a format does not have.
 */
#ifndef KVT_WRITER_H
#define KVT_WRITER_H

#include "lib/kvt/tile.h"
#include "lib/kvt/write.h"

struct kvt_writer_ops {
	/* Arrays; from many threads at once for disjoint boxes. */
	enum kvt_status (*write_box)(struct kvt_writer *writer, int group,
				     const struct kvt_box *box, const void *buf,
				     struct kvt_error *err);
	/* Tiles, in the order of these calls; then their bytes, by any thread. */
	enum kvt_status (*place_tile)(struct kvt_writer *writer, int group,
				      const int64_t begin[KVT_NAXES],
				      const struct kvt_stored *stored, int64_t *offset,
				      struct kvt_error *err);
	enum kvt_status (*write_tiles)(struct kvt_writer *writer, const void *bytes,
				       int64_t nbytes, int64_t offset,
				       struct kvt_error *err);
	/* Content cells. */
	bool (*has_cells)(const struct kvt_writer *writer, int group);
	enum kvt_status (*store_cells)(struct kvt_writer *writer, int group,
				       const struct kvt_box *box, const uint64_t *cells,
				       struct kvt_error *err);
	/* Everything is written: complete, durable, readable where it is. */
	enum kvt_status (*finish)(struct kvt_writer *writer, struct kvt_error *err);
	void (*close)(struct kvt_writer *writer);
};

/* The first member of struct kvt_writer, wherever that is defined. */
struct kvt_writer_head {
	const struct kvt_writer_ops *ops;
	const struct kvt_format_info *info;
	const char *name;		/* for messages: where it goes; borrowed */
	struct kvt_snapshot snapshot;	/* a copy; owned by the format */
	struct kvt_tiling tiling[KVT_MAX_GROUPS];	/* nbytes 0: an array */
};

#endif
