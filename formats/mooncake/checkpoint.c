/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.c - kv_cache.meta: which ranges of kv_cache.data are in use
 *
 * A message that holds, among others, the allocator's own state: a few numbers,
 * its bins, and a table of nodes, of which those in use are ranges.
 *
 *	08 version  12 n state  18 number of the next record  22 .. 2a ..: keys, not read
 *
 *	state	   0 u64 base	   8 u64 shift	  16 u64 capacity   44 u32 n: nodes
 *		  60 bins, 1056 bytes; 1120 n nodes; 4 bytes a node, a list of free ones
 *	node	   0 u32 offset    4 u32 size	  24 u8 in use	    28
 *
 * A range begins at base + (offset << shift) and has size << shift bytes; it may be
 * larger than its record, never smaller.  Out: the ranges by offset, none of which
 * overlap.  Facts: OffsetAllocator and storage_backend.cpp of Mooncake, in the sources
 * and files that mooncake/format.c names.
 */
#include "formats/mooncake/mooncake.h"

#include <stdlib.h>

#include "lib/base/little_endian.h"
#include "formats/parse/protobuf.h"
#include "lib/base/order.h"

enum {
	VERSION = 3,
	/* of the allocator's state: where numbers are, and what stands before nodes */
	BASE = 0, SHIFT = 8, NODES = 44, BINS = 32 + 4 * 256,
	STATE = 60 + BINS + 4,
	/* of a node: where numbers are; NODE and FREE bytes a node */
	NODE_OFFSET = 0, NODE_SIZE = 4, NODE_USED = 24, NODE = 28, FREE = 4,
};

/* The message, taken apart. */
struct meta {
	uint64_t version, seq;
	struct kvt_pb_field state;
};

static enum kvt_status take_meta(struct meta *m, struct kvt_pb *pb)
{
	bool more, seen[6] = { false };
	struct kvt_pb_field f;
	enum kvt_status status;

	for (;;) {
		if ((status = kvt_pb_next(pb, &f, &more)) || !more)
			return status;
		/* 1 version, 2 state, 3 sequence number; 4 and 5 are lists */
		if (f.number > 5 || (f.number < 4 && seen[f.number]) ||
		    f.is_bytes == (f.number == 1 || f.number == 3))
			return kvt_fail(pb->err, KVT_BAD_INPUT,
					"%s: field %u of the message occurs twice, or is not expected",
					pb->name, (unsigned)f.number);
		seen[f.number] = true;
		if (f.number == 1)
			m->version = f.value;
		else if (f.number == 2)
			m->state = f;
		else if (f.number == 3)
			m->seq = f.value;
	}
}

/* ---- the allocator ------------------------------------------------------- */

static enum kvt_status take_node(struct kvt_mooncake_extent *out, const uint8_t *state,
				 const uint8_t *node, int64_t ndata,
				 const struct kvt_pb *pb)
{
	int shift = (int)kvt_le64(state + SHIFT);
	uint64_t begin = (uint64_t)kvt_le32(node + NODE_OFFSET) << shift, end;

	if (__builtin_add_overflow(begin, kvt_le64(state + BASE), &begin) ||
	    __builtin_add_overflow(begin, (uint64_t)kvt_le32(node + NODE_SIZE) << shift,
				   &end) || end > (uint64_t)ndata)
		return kvt_fail(pb->err, KVT_BAD_INPUT,
				"%s: a range of data begins at %llu and ends after the %lld bytes there are",
				pb->name, (unsigned long long)begin, LL(ndata));
	*out = (struct kvt_mooncake_extent){ (int64_t)begin, (int64_t)(end - begin) };
	return KVT_OK;
}

static enum kvt_status check_apart(const struct kvt_mooncake_checkpoint *c,
				   const struct kvt_pb *pb)
{
	for (int64_t i = 1; i < c->count; i++)
		if (c->extent[i].offset - c->extent[i - 1].offset <
		    c->extent[i - 1].nbytes)
			return kvt_fail(pb->err, KVT_BAD_INPUT,
					"%s: ranges of data at %lld and %lld overlap",
					pb->name, LL(c->extent[i - 1].offset),
					LL(c->extent[i].offset));
	return KVT_OK;
}

static enum kvt_status take_state(struct kvt_mooncake_checkpoint *out,
				  const struct kvt_pb_field *f, int64_t ndata,
				  const struct kvt_pb *pb)
{
	const uint8_t *state = f->bytes, *node;
	enum kvt_status status = KVT_OK;
	int64_t n;

	if (f->value < STATE)
		return kvt_fail(pb->err, KVT_BAD_INPUT,
				"%s: the allocator's state has %llu bytes, expected at least %d",
				pb->name, (unsigned long long)f->value, STATE);
	n = kvt_le32(state + NODES);
	if (f->value != (uint64_t)(STATE + (NODE + FREE) * n) ||
	    kvt_le64(state + SHIFT) >= 32)
		return kvt_fail(pb->err, KVT_BAD_INPUT,
				"%s: the allocator's state has %llu bytes, expected %lld for %lld nodes",
				pb->name, (unsigned long long)f->value,
				LL(STATE + (NODE + FREE) * n), LL(n));
	if (!(out->extent = calloc((size_t)n + 1, sizeof(*out->extent))))
		return kvt_no_memory(pb->err, pb->name);
	node = state + STATE;
	for (int64_t i = 0; !status && i < n; i++, node += NODE)
		if (node[NODE_USED])
			status = take_node(&out->extent[out->count++], state, node, ndata,
					   pb);
	if (status)
		return status;
	qsort(out->extent, (size_t)out->count, sizeof(*out->extent), kvt_by_int64);
	return check_apart(out, pb);
}

enum kvt_status kvt_mooncake_checkpoint_parse(struct kvt_mooncake_checkpoint *out,
					      const void *meta, int64_t nmeta,
					      int64_t ndata, const char *name,
					      struct kvt_error *err)
{
	struct kvt_pb pb = kvt_pb_open(meta, nmeta, name, err);
	struct meta m = { .version = 0 };
	enum kvt_status status = take_meta(&m, &pb);

	*out = (struct kvt_mooncake_checkpoint){ .seq = m.seq };
	if (status)
		return status;
	if (m.version != VERSION)
		return kvt_fail(err, m.version ? KVT_UNSUPPORTED : KVT_BAD_INPUT,
				"%s: version %llu, expected %d", name,
				(unsigned long long)m.version, VERSION);
	status = take_state(out, &m.state, ndata, &pb);
	/* numbers of records count from 0, and this is that of the next one */
	if (!status && out->count && !m.seq)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: has %lld ranges of data, but no sequence number",
				  name, LL(out->count));
	if (status) {
		free(out->extent);
		out->extent = NULL;
	}
	return status;
}
