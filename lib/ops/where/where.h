/* SPDX-License-Identifier: Apache-2.0 */
/*
 * where.h - what kvtool where asks, finds out and prints
 *
 * Every question is answered before anything is printed, so that a wrong one
 * leaves no half of a list behind.
 */
#ifndef KVT_WHERE_H
#define KVT_WHERE_H

#include "cli/json_out.h"
#include "cli/opt.h"

struct where {
	const char *path;
	struct kvt_dump *reader;
	const struct kvt_snapshot *snapshot;
	enum kvt_space space;		/* that --offset counts in */
};

/* A byte and all that is known of it. */
struct answer {
	const char *option, *query;	/* "at", "layer=3,..." */
	struct kvt_place place;
	/* Where it is in files, and in the engine's tensors; buffer -1: nowhere. */
	bool in_files, in_memory;
	int64_t file, file_offset, tensor, memory_offset;
};

/* ---- questions: where_at.c ---------------------------------------------- */

/* Decimal, or hexadecimal with 0x. */
bool where_number(int64_t *out, const char *text);

/* The element that "layer=3,block=17,..." names. */
KVT_MUST_CHECK enum kvt_status
where_parse_at(struct kvt_place *out, const struct where *w, const char *text,
	       struct kvt_error *err);

/* Elements that follow each other; index[D] is the first one in each field. */
struct where_run {
	struct kvt_place place;
	int64_t row;			/* of a page of planes; 0 */
	int64_t count;
};
enum { WHERE_MOST = 4096 };

/* The same keys but byte; what is missing is the first.  Also row and count. */
KVT_MUST_CHECK enum kvt_status
where_parse_run(struct where_run *out, const struct where *w, const char *text,
		struct kvt_error *err);

/* ---- who lives there: where_tenant.c ------------------------------------ */

enum holding { HOLDS_UNKNOWN, HOLDS_LIVE, HOLDS_STALE, HOLDS_NULL };
enum holding where_holds(const struct kvt_snapshot *s, const struct kvt_place *place);
const char *where_holding_name(enum holding holding);

/* A request that has a state, and which of its tokens. */
struct tenant {
	const struct kvt_request *request;
	int64_t token, ntokens;		/* in the state; -1: not known which */
	int64_t seen;			/* tokens that one state stands for; or -1 */
};

/*
 * Where a search for tenants is: the request and its table entry that come
 * next.  Begins as { 0, 0 }.
 */
struct tenancy {
	int64_t request, entry;
};
bool where_next_tenant(struct tenant *out, struct tenancy *at,
		       const struct kvt_snapshot *s, const struct kvt_place *place);

/* Does the table of a request have an entry for every token, in order? */
bool where_table_is_whole(const struct kvt_snapshot *s, int group,
			  const struct kvt_request *request);

/* ---- answers: where_text.c, where_json.c -------------------------------- */

/* The tile of an element, and its first byte there when it is decoded. */
struct tile_place {
	int64_t begin[KVT_NAXES], byte, nbytes;
};
/* False if the group has no tiles. */
bool where_tile(struct tile_place *out, const struct where *w,
		const struct kvt_place *place);

/* The part of the content that an element is in; NULL if none has a name. */
const struct kvt_component *where_part(const struct kvt_group *group, int64_t dim);

void where_text(const struct where *w, const struct answer *a);
void where_json(struct json_out *out, const struct where *w,
		const struct answer *answer, int n);

#endif
