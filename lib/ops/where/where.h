/* SPDX-License-Identifier: Apache-2.0 */
/*
 * where.h - from a coordinate to its bytes, from a byte to what it means
 *
 * Questions are texts as people type them; answers are plain values.  Nothing here
 * reads data: a place follows from what a dump says of itself.
 */
#ifndef KVT_WHERE_H
#define KVT_WHERE_H

#include "lib/kvt/dump.h"

/* ---- coordinates: query.c ----------------------------------------------- */

/*
 * The element that "layer=3,block=17,head=2,kv=v,dim=4" names.  What has just one
 * value may be left out.  KVT_USAGE says what of the text is wrong or missing,
 * KVT_UNSUPPORTED that the block of a token is not known.
 */
KVT_MUST_CHECK enum kvt_status
kvt_where_parse_at(struct kvt_where *out, const struct kvt_snapshot *s,
		   const char *text, struct kvt_error *err);

/* Elements that follow each other; index[D] is the first one in each field. */
struct kvt_element_run {
	struct kvt_where place;
	int64_t row;			/* of a page of planes; else 0 */
	int64_t count;
};
enum { KVT_MAX_RUN = 4096 };

/* The same keys but byte; what is missing is the first.  Also row and count. */
KVT_MUST_CHECK enum kvt_status
kvt_where_parse_run(struct kvt_element_run *out, const struct kvt_snapshot *s,
		    const char *text, struct kvt_error *err);

/* ---- where it is, and what --------------------------------------------- */

/* A byte, and where it is in files and in the engine's tensors; -1: nowhere. */
struct kvt_whereabouts {
	struct kvt_where place;
	bool in_files, in_memory;	/* false: the numbers say nothing */
	int64_t file, file_offset, tensor, memory_offset;
};

/* The element that kvt_where_parse_at() finds. */
KVT_MUST_CHECK enum kvt_status
kvt_where_at(struct kvt_whereabouts *out, struct kvt_dump *dump, const char *text,
	     struct kvt_error *err);

/*
 * The byte that "1234" or "0x4d2" counts to in a space, with the name of a file or a
 * group and a colon before it where there are several.
 */
KVT_MUST_CHECK enum kvt_status
kvt_where_offset(struct kvt_whereabouts *out, struct kvt_dump *dump,
		 enum kvt_space space, const char *text, struct kvt_error *err);

/* The tile of an element, and its first byte there once it is decoded. */
struct kvt_tile_place {
	int64_t begin[KVT_NAXES], byte, nbytes;
};
/* False if the group has no tiles. */
bool kvt_where_tile(struct kvt_tile_place *out, struct kvt_dump *dump,
		    const struct kvt_where *place);

/* The component of the content that an element is in; NULL if none has a name. */
const struct kvt_component *kvt_where_component(const struct kvt_group *group,
						int64_t dim);

/* ---- whose it is -------------------------------------------------------- */

enum kvt_holding {
	KVT_HOLDS_UNKNOWN,		/* the tables do not say */
	KVT_HOLDS_LIVE,			/* a token that a request still needs */
	KVT_HOLDS_STALE,		/* nothing that any request needs */
	KVT_HOLDS_NULL,			/* the null block */
};
enum kvt_holding kvt_where_holds(const struct kvt_snapshot *s,
				 const struct kvt_where *place);
const char *kvt_holding_name(enum kvt_holding holding);

/* A request that has a slot, and which of its tokens. */
struct kvt_tenant {
	const struct kvt_request *request;
	int64_t token, ntokens;		/* in the slot; -1: not known which */
	int64_t seen;			/* tokens that one slot stands for; or -1 */
};

/* Walks the requests that have the slot of 'place'; begins as { 0, 0 }. */
struct kvt_tenancy {
	int64_t request, entry;		/* to look at next */
};
bool kvt_next_tenant(struct kvt_tenant *out, struct kvt_tenancy *at,
		     const struct kvt_snapshot *s, const struct kvt_where *place);

#endif
