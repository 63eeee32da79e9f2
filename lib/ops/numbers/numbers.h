/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.h - what the elements of a group are: NaN, infinities and zeros, and where
 *
 * One look at the data answers it for whoever asks: fsck, which makes findings of it,
 * and describe, which counts.  What it means depends on whose the slot is, so all is
 * told by that.  A pass of its own is kvt_look(); an operation that has boxes in cell
 * order anyway gives them to struct kvt_looking.
 */
#ifndef KVT_NUMBERS_H
#define KVT_NUMBERS_H

#include "lib/kvt/run.h"
#include "lib/kvt/dump.h"

/* ---- the numbers of a slot: values.c -------------------------------------- */

/* How the content of a slot, of one head and component, becomes numbers. */
struct kvt_values {
	const struct kvt_group *group;	/* borrowed */
	struct kvt_packing packing;	/* of content with a type */
	int64_t n;			/* numbers of a slot */
};
/* KVT_BAD_INPUT: its elements are no numbers; KVT_UNSUPPORTED: none that are read. */
KVT_MUST_CHECK enum kvt_status
kvt_values_init(struct kvt_values *out, const struct kvt_group *group,
		struct kvt_error *err);
/* 'slot' is dense: D of the group. */
void kvt_values_decode(double *out, const struct kvt_values *values, int64_t kv,
		       const uint8_t *slot);

/* ---- whose a slot is ------------------------------------------------------ */

/* What a slot is to be: live ones hold something, the others should not. */
enum kvt_duty {
	KVT_DUTY_UNKNOWN,	/* the dump does not say whether anyone uses it */
	KVT_DUTY_LIVE,
	KVT_DUTY_LEFT,		/* of a block in use, but of no token that is needed */
	KVT_DUTY_STALE,		/* of no request */
	KVT_DUTY_NULL,		/* of the null block */
	KVT_NDUTIES
};

enum { KVT_MAX_PLACES = 16 };	/* kept of a kind, the first; others are counted */

/* Elements that are NaN or infinite, of a slot or of many, and the first of them. */
struct kvt_odd {
	int64_t nan, inf, slots;
	int64_t at[KVT_NAXES];		/* D counts in the part, if there are several */
	int64_t part, row;		/* of the row; of a page of planes */
};

/*
 * The parts that a row is looked at by: components of the content, fields of a packed
 * one; or all of it.  With keys and values each part is a column for either.
 */
enum {
	KVT_MAX_LOOK_PARTS = KVT_MAX_COMPONENTS,
	KVT_MAX_COLUMNS = 2 * KVT_MAX_LOOK_PARTS,
};
struct kvt_look_part {
	const char *name;		/* NULL: the row */
	const struct kvt_field *field;	/* of struct kvt_numbers's packing; or NULL */
	int64_t at, stride, nbytes;	/* of a unit of rows, in a page */
	int64_t units, rows;		/* of a page; rows of a unit */
	int64_t first;			/* element of the row */
	int pattern;			/* which bits are no number; -1: all are */
	bool must;			/* zeros alone are strange */
};

/* Slots of layers. */
struct kvt_slots {
	int64_t count;
	int n;				/* places that are known of them */
	struct kvt_slot_place { int64_t layer, block, slot; } first[KVT_MAX_PLACES];
};

/*
 * Zeros in every slot that should hold something: of some layers, and of a request if
 * one is given.
 */
struct kvt_zeros {
	int64_t layer, nlayers;
	int64_t request;		/* -1: of all */
	unsigned columns;		/* 1 << column; 0: all */
	int64_t head, nheads;		/* of this rank; nheads 0: all */
};

struct kvt_numbers {
	bool numbers;			/* elements have a type with NaN or infinity */
	bool known;			/* the dump says which slots are live */
	bool empty;			/* it does not, and all are zeros */
	bool by_request;		/* zeros are known of each request, too */
	struct kvt_odd by[KVT_NDUTIES];	/* of all slots of a duty */
	int64_t nlive;
	struct kvt_odd live[KVT_MAX_PLACES];	/* of each live slot that has some */

	int64_t stale;			/* slots that no request uses and are not zero */
	struct kvt_slots null_block;	/* slots of the null block that are not zero */
	/* What is in none of 'zeros' already: */
	struct kvt_slots zero;		/* live slots that are all zeros */
	struct kvt_slots column[KVT_MAX_COLUMNS];	/* this is, and another not */
	int64_t nzeros;
	struct kvt_zeros *zeros;

	int nparts, ncolumns;
	struct kvt_look_part part[KVT_MAX_LOOK_PARTS];
	struct kvt_packing packing;	/* of content with a type */
};
void kvt_numbers_free(struct kvt_numbers *n);

/* Of all duties; the first of all. */
struct kvt_odd kvt_odd_total(const struct kvt_numbers *n);
/* "values", "scales of keys"; of several columns "keys and values". */
struct kvt_text kvt_columns_text(const struct kvt_numbers *n,
				 const struct kvt_group *group, unsigned columns);
/* "3 NaN and 1 infinity" */
struct kvt_text kvt_odd_text(const struct kvt_odd *odd);
/* "group=g0,layer=2,block=10,slot=3,head=1,kv=k,dim=5", as kvtool-where(1) takes it. */
struct kvt_text kvt_odd_at(const struct kvt_numbers *n, const struct kvt_group *group,
			   const struct kvt_odd *odd);

/* Reads all data of the group once.  Free 'out' either way. */
KVT_MUST_CHECK enum kvt_status
kvt_look(struct kvt_numbers *out, struct kvt_dump *dump, int group,
	 const struct kvt_run *run, struct kvt_error *err);

/* ---- for who reads the boxes ------------------------------------------------ */

struct kvt_looking;
struct kvt_cut;

/* NULL: out of memory.  'out' is borrowed and zeroed. */
struct kvt_looking *kvt_looking_new(struct kvt_numbers *out,
				    const struct kvt_snapshot *snapshot, int group);
void kvt_looking_free(struct kvt_looking *looking);	/* NULL is allowed */
/* Bytes of what was seen in a box of so many; a multiple of 8. */
int64_t kvt_looking_bytes(const struct kvt_looking *looking, int64_t layers,
			  int64_t blocks);
/* Any thread: what is in a box that lies in cell order.  Returns its bytes. */
int64_t kvt_look_at_box(void *result, const struct kvt_looking *looking,
			const struct kvt_box *box, const uint8_t *cells);
/* In the order of the boxes.  False: this is no result of such a box. */
bool kvt_looking_take(struct kvt_looking *looking, const struct kvt_box *box,
		      const void *result, int64_t nbytes);
/* After the last; false: out of memory. */
bool kvt_looking_finish(struct kvt_looking *looking);

/* ---- bits: patterns.c ------------------------------------------------------- */

/* Of elements of the type of this name; -1: all its bits are numbers. */
int kvt_pattern_find(const char *type);
/*
 * Of up to 64 rows of 'n' bytes, a bit of each: is any byte of it not 0; may any element
 * be NaN or infinite?  No is certain.
 */
struct kvt_seen_rows {
	uint64_t any, odd;
};
struct kvt_seen_rows kvt_look_at_rows(const uint8_t *bytes, int64_t n, int64_t stride,
				      int rows, int pattern);

#endif
