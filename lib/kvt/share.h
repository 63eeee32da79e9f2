/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h - one operation, done by many processes
 *
 * An operation looks at data in passes: "hashing" of group 2 of file 7 is one.  A pass
 * is boxes, numbered from 0, and each box has a result, some bytes.  What the operation
 * says in the end follows from the results alone, in the order of the boxes.  So
 * processes can divide the boxes among them, and whoever has all results says what one
 * process would have said, to the last bit.
 *
 * The work list is all passes in the order in which one process would make them, each
 * cut into units: runs of neighbouring boxes.  It follows from the inputs and the
 * options, not from the number of processes, and nor does the result of a unit.
 *
 * Pure: no file is opened, nothing is sent.  That is what callbacks are for.
 */
#ifndef KVT_SHARE_H
#define KVT_SHARE_H

#include "lib/kvt/kvt.h"

/* ---- the work list -------------------------------------------------------- */

/* Which pass: what is done, of which input, of which of its groups. */
struct kvt_pass {
	const char *label;		/* a constant: "hashing" */
	/*
	 * A pass that may turn out not to be needed goes over the boxes of this one, and
	 * is divided as it is; NULL: it is in the work list itself.
	 */
	const char *follows;
	int64_t about;			/* the input, as the caller numbers them */
	int64_t part;			/* the group, or what else there are several of */
	int64_t count;			/* boxes */
	int64_t nbytes;			/* of data, of all boxes */
};

/* Boxes of a pass that are done together. */
struct kvt_unit {
	int64_t pass;			/* number in the list */
	int64_t begin, end;		/* boxes */
	int64_t nbytes;			/* of data */
};

struct kvt_work_list {
	int64_t npasses;
	struct kvt_pass *pass;		/* owned; labels are borrowed */
	int64_t *first;			/* [npasses + 1] the first unit of each; owned */
	int64_t nunits;
	struct kvt_unit *unit;		/* owned */
	int64_t nbytes;			/* of data, of all passes */
	int64_t unit_bytes;		/* the most of a unit, unless a box is more */
};

enum { KVT_UNIT_BYTES = 64 << 20, KVT_MAX_UNITS = 16384 };

/* Adds a pass at the end.  KVT_SYSTEM: no memory, or a pass of that name is there. */
KVT_MUST_CHECK enum kvt_status
kvt_work_list_add(struct kvt_work_list *list, const struct kvt_pass *pass,
		  struct kvt_error *err);
/*
 * Cuts all passes into units, once all are added.  A unit is as many boxes of one pass as
 * have KVT_UNIT_BYTES together, at least one; the bytes are doubled until the units that
 * all data would fill are at most KVT_MAX_UNITS.
 */
KVT_MUST_CHECK enum kvt_status
kvt_work_list_cut(struct kvt_work_list *list, struct kvt_error *err);
void kvt_work_list_free(struct kvt_work_list *list);

/* The number of the pass with this label, input and part; -1: there is none. */
int64_t kvt_work_list_find(const struct kvt_work_list *list, const char *label,
			   int64_t about, int64_t part);

/*
 * Whose a unit is: the bytes of the list in a row are cut into 'count' equal lengths,
 * and a unit belongs to the one that its middle is in.  So each unit has one owner, a
 * shard's units are neighbours, and no shard has more than its length and one unit.
 */
int64_t kvt_unit_owner(const struct kvt_work_list *list, int64_t unit, int64_t count);

/* ---- a process that does some of it --------------------------------------- */

/* What came of a unit. */
struct kvt_unit_result {
	int64_t begin, end;		/* boxes */
	/* of each box the bytes of its result, a number of 8 bytes, then these, and zeros
	   up to a multiple of 8 */
	const void *bytes;
	int64_t nbytes;
	/* or the data could not be read, or is not what it should be, at one of them */
	enum kvt_status status;
	const char *text;		/* the sentence */
};

/*
 * Asked by an operation whose struct kvt_run has it, for each pass: begin(), then next()
 * until it has none, each box of which is done and stored, then known() of 0, 1 and on,
 * whose results are taken in.  All by the thread that called the operation.
 */
struct kvt_sharing {
	void *context;
	/* Others have the rest: no verdict, and nothing that only the whole can say. */
	bool partial;
	enum kvt_status (*begin)(void *context, const struct kvt_pass *pass,
				 struct kvt_error *err);
	/* Boxes to do now, in units of the list; false: no more. */
	bool (*next)(void *context, int64_t *begin, int64_t *end);
	enum kvt_status (*store)(void *context, const struct kvt_unit_result *result,
				 struct kvt_error *err);
	/* The i-th result there is of the pass, by its boxes; NULL: no more. */
	const struct kvt_unit_result *(*known)(void *context, int64_t i);
};

#endif
