/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.h - a row of the table of faults, and what rows look at; private to lib/fault
 *
 *	heads.c, pages.c, shifts.c, moves.c, values.c	rows, and what each predicts
 *	table.c		all of them; plant.c: what is predicted, written
 *	window.c	what rows look at, and where elements of it are
 *	check.c, join.c, scale.c	is a prediction right, with which arguments?
 *	diagnose.c	which row explains what differs
 *
 * A fault that moves elements is one function: of an element's place, the place that its
 * value is taken from.  Planting and diagnosing ask the same one, so that what is planted
 * is what is looked for.
 */
#ifndef KVT_FAULT_H
#define KVT_FAULT_H

#include "lib/kvt/fault.h"
#include "lib/kvt/spec.h"

/* Where a fault takes an element from. */
enum fault_source {
	FROM_ELEMENT,			/* from[] of the expected cache */
	FROM_ZERO,
	FROM_NAN,
	FROM_OUTSIDE,			/* nobody here knows */
};

/* What lies where along an axis, by content: join.c. */
enum fault_moves {
	MOVES_NOTHING,
	MOVES_ONE,			/* a copy of another one */
	MOVES_PAIR,			/* two, exchanged */
	MOVES_ROUND,			/* all, by the same distance, around the end */
	MOVES_RANKS,			/* heads of two ranks, exchanged */
	MOVES_RANK,			/* heads of a rank, copied */
	MOVES_REQUESTS,			/* blocks of two requests, exchanged */
	MOVES_TABLE,			/* blocks of requests, by the same distance */
	MOVES_ORDER,			/* among themselves, in some other order */
	MOVES_COPIES,			/* several, taken from others */
};

struct fault_map {
	enum fault_moves moves;
	int64_t args[3];		/* of the row that it belongs to */
	int64_t count;			/* that are not in their place */
	int64_t *from;			/* [n] where it was; -1: nowhere */
};

/* What fault functions look at: a window, and what follows from it. */
struct fault_case {
	const struct kvt_window *window;
	const uint8_t *expected, *suspect;	/* suspect is NULL when planting */
	int64_t slots, heads, kv, dim;		/* extents of S, H, K, D */
	int64_t cell;				/* bytes of D */
	bool partial;				/* other faults may be here, too */
	bool has_memory, has_page;		/* the two below */
	struct kvt_views memory;		/* of the window, as if it were all */
	struct kvt_views page;			/* of one block of one layer */
	int64_t page_bytes;			/* of its content */

	/* Filled by the diagnosis before arguments are proposed. */
	int64_t seed[KVT_NAXES];		/* first element that differs */
	int64_t tail;				/* least memory offset of those, or -1 */
	int64_t token;				/* least position of those, or 0 */
	int64_t kv_begin, kv_end;		/* of K, where it differs */
	struct fault_map map[KVT_NAXES];	/* of L, B and H */
	struct fault_span *span;		/* [L][K], for "scale" */
};

/* Factors that are possible, elements that say so, and those at the limit. */
struct fault_span {
	double least, most;
	int64_t n, cut;
};

typedef bool fault_applies(const struct fault_case *c);
typedef bool fault_valid(const struct fault_case *c, const struct kvt_fault_args *args);
/* An element of the suspect, and which one of the other side it may be instead. */
struct fault_element {
	const struct fault_case *c;
	const int64_t *n;		/* the fault's arguments */
	const int64_t *at;		/* [KVT_NAXES] */
	int64_t *from;			/* [KVT_NAXES], as 'at' before it is predicted */
};
typedef enum fault_source fault_predict(const struct fault_element *e);
/* Is all that it puts into a block from outside the window? */
typedef bool fault_misses(const struct fault_case *c, const struct kvt_fault_args *args,
			  int64_t block);
/* From which to before which number an argument is worth trying. */
typedef struct kvt_range fault_range(const struct fault_case *c, int arg);

/* Which axes below a page tell apart the parts that a fault hits or spares. */
enum {
	PER_SLOT = 1 << KVT_AXIS_S,
	PER_HEAD = 1 << KVT_AXIS_H,
	PER_KV = 1 << KVT_AXIS_K,
	ALL_AT_ONCE = 1 << KVT_AXIS_L,	/* no part is spared: pages neither */
};

struct fault {
	struct kvt_fault says;
	const char *needs;		/* of a cache; said where it does not apply */
	unsigned part;
	fault_applies *applies;
	fault_range *range;		/* NULL: takes no arguments */
	fault_valid *valid;		/* NULL: all in range */
	fault_predict *predict;
	fault_misses *misses;		/* NULL: not known before it is predicted */
	bool one_block;			/* strikes a single one unless told */
	bool swaps_bytes;		/* of the element that is taken */
	unsigned usual;			/* arguments that are 0 unless they are given */
	bool yields;			/* to any other that explains as much */
	/* Tests all at once, where elements are not taken from elsewhere. */
	void (*explains)(struct kvt_hypothesis *out, struct fault_case *c);
};

/* Is what changes places two things? */
fault_valid kvt_two_places;

const struct fault *kvt_fault_row(int i);	/* NULL past the last one */

/* What the fault makes of an element; false: nobody knows. */
bool kvt_fault_value(uint8_t value[8], const struct fault_case *c, const struct fault *f,
		     const struct kvt_fault_args *args, const int64_t at[KVT_NAXES]);

/* Rows of the table, by the file that holds their functions. */
enum { NHEADS = 3, NPAGES = 8, NPLACES = 6, NMOVES = 12, NVALUES = 8 };
extern const struct fault kvt_head_faults[NHEADS], kvt_page_faults[NPAGES],
	kvt_place_faults[NPLACES], kvt_move_faults[NMOVES], kvt_value_faults[NVALUES];

/* ---- windows: window.c -------------------------------------------------- */

KVT_MUST_CHECK enum kvt_status
kvt_fault_check_window(const struct kvt_window *window, struct kvt_error *err);
void kvt_fault_case_init(struct fault_case *c, const struct kvt_window *window,
			 const void *expected, const void *suspect);

/* Byte offset of an element in the window. */
int64_t kvt_fault_offset(const struct kvt_window *window, const int64_t at[KVT_NAXES]);

bool kvt_fault_is_live(const struct kvt_window *window, int64_t block, int64_t slot);
/* Are two elements equal, or as close as the window allows? */
bool kvt_fault_same(const struct kvt_window *window, const uint8_t *a, const uint8_t *b);

/* Attention: rows of tokens, with heads and perhaps K and V. */
bool kvt_fault_has_tokens(const struct kvt_window *window);

/* The block of that id, likely there; KVT_NOT_HERE if the window lacks it. */
int64_t kvt_fault_block(const struct kvt_window *window, int64_t id, int64_t likely);

/* Advance at[] within S, H, K, D below the given axis; false past the end. */
bool kvt_fault_next(int64_t at[KVT_NAXES], const struct kvt_shape *shape,
		    enum kvt_axis first, enum kvt_axis last);

/* ---- factors and flipped bits: scale.c ---------------------------------- */

enum { MAX_FLIPS = 64 };

/* The element next to 'value' * 'factor'; the type is a float with a zero. */
void kvt_fault_scale(uint8_t out[8], const struct kvt_dtype *dtype, const uint8_t *value,
		     double factor);
bool kvt_fault_can_scale(const struct kvt_dtype *dtype);
double kvt_fault_largest(const struct kvt_dtype *dtype);	/* finite one */
void kvt_explain_scale(struct kvt_hypothesis *out, struct fault_case *c);
void kvt_explain_saturation(struct kvt_hypothesis *out, struct fault_case *c);
void kvt_explain_nan(struct kvt_hypothesis *out, struct fault_case *c);
void kvt_explain_flips(struct kvt_hypothesis *out, struct fault_case *c);

#endif
