/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.h - do two dumps hold the same values, and if not, where and by how much
 *
 * Two sides are aligned group by group into pairs.  A pair says which layers,
 * slots, heads and channels both sides hold; its views bring just these, from
 * whatever layout, tiles and ranks, into one order (L B S H K D).  Comparing is
 * then a walk over two equal arrays:
 *
 *   kvt_diff_side_init()   a side, of one dump or of those of all ranks
 *   kvt_diff_align()       what both sides hold, and what only one does
 *   kvt_diff_compare()     a pair: equal or not, sums, worst elements, heat maps
 *   kvt_diff_diagnose()    the known fault that makes B of A, if there is one
 *
 * Nothing here opens a file or prints.  A finding holds indices; what they are in the
 * model, in the pool and in a file is looked up when it is shown.
 */
#ifndef KVT_OPS_DIFF_H
#define KVT_OPS_DIFF_H

#include "lib/derived/merge.h"
#include "lib/dump/read.h"
#include "lib/kvt/fault.h"

enum { SIDE_A, SIDE_B, NSIDES };

/* ---- sides -------------------------------------------------------------- */

struct diff_side {
	const char *name;		/* for messages: the file, or "A" */
	int nfiles;
	struct rank_file *file;		/* borrowed */
	const struct kvt_dump *dump;	/* the file, or all ranks as one */
	struct kvt_dump *merged;	/* owned; NULL of one file */
};

/*
 * The open dumps of all ranks, or one dump, as one side.  'files' is sorted by rank
 * and borrowed.  Several that are no complete set of ranks are KVT_BAD_INPUT.
 * Replicas are read and compared, because any of them may stand for the others:
 * KVT_MISMATCH if they differ.  Free in any case.
 */
KVT_MUST_CHECK enum kvt_status
kvt_diff_side_init(struct diff_side *side, const char *name, struct rank_file *files,
		   int nfiles, const struct kvt_run *run, struct kvt_error *err);
void kvt_diff_side_free(struct diff_side *side);
/* The same of two dumps, each of one file. */
KVT_MUST_CHECK enum kvt_status
kvt_diff_sides_init(struct diff_side side[NSIDES], struct rank_file file[NSIDES],
		    const struct kvt_run *run, struct kvt_error *err);
void kvt_diff_sides_free(struct diff_side side[NSIDES]);
/* KVT_BAD_INPUT if a file changed while it was read. */
KVT_MUST_CHECK enum kvt_status
kvt_diff_side_unchanged(const struct diff_side *side, struct kvt_error *err);

/* ---- alignment ---------------------------------------------------------- */

enum diff_by { BY_AUTO, BY_TOKENS, BY_BLOCKS };

struct diff_alignment {
	bool numbers;			/* not bytes, where that is a choice */
	enum diff_by by;		/* automatic: by tokens, if requests have any */
	/*
	 * "A=B": request A of the first side is request B of the other.  Not cut in
	 * two, for ids may hold '='.  Borrowed.
	 */
	int nmatches;
	const char *const *match;
	/* Requests of other names are paired by what they hold; NULL: no data is read. */
	const struct kvt_run *run;
	const struct diff_partners *partners;	/* kvt_diff_align() has them */
};

/* Requests of other names that are one, and how that is known. */
struct diff_found {
	int64_t request[NSIDES];
	bool by_name;			/* all but a suffix; otherwise by content */
	int64_t alike, sampled;		/* tokens */
};

struct diff_partners {
	int64_t *of[NSIDES];		/* [nrequests] of a side: the other's; -1: none */
	int64_t nfound;
	struct diff_found *found;	/* those that are of other names */
	char ask[512];			/* what is to be typed if some are left; "" */
};

/* What one side holds and the other does not. */
struct diff_unmatched {
	int n;				/* how many there are; the first ones kept */
	struct {
		int side;		/* that has it */
		char text[200];		/* "layers 3, 4 of g0" */
	} item[64];
};

/* Slots that are consecutive on both sides, in one block of either. */
struct diff_segment {
	int64_t block[NSIDES], slot[NSIDES];	/* of the first one */
	int64_t at[NSIDES];		/* of the block, in the blocks of the view */
	int64_t count;
	int64_t request;		/* of A; -1: by blocks */
	int64_t position;		/* of the first slot in the request */
	int64_t ordinal;		/* in the order of requests, or of blocks */
	int64_t before;			/* slots of those before it in that order */
};

/* Channels that are consecutive on both sides; one run but for conv states. */
struct diff_channels {
	int64_t at, from[NSIDES], count;
};

/*
 * Of a side that does not say whether it is rotated, keys and values apart: whether
 * there were vectors to tell from, whether one basis was near and the other not, what is
 * taken to be rotated together (1: as stored), and the mean cosine with the other side:
 * as stored, rotated.
 */
struct diff_basis {
	bool open;
	int side;
	bool sought[2], found[2];
	int64_t turn[2];
	double near[2][2];
};

/* A group of each side, and what both hold of it. */
struct diff_pair {
	const struct diff_side *side[NSIDES];
	int index;				/* of the pair */
	int number[NSIDES];			/* of the group */
	const struct kvt_group *group[NSIDES];
	char id[72];			/* "g0", or "g0 and g1" */

	int64_t nlayers, *layer[NSIDES];	/* indices in the groups */
	int64_t nheads, head[NSIDES];		/* the first of them */
	int nruns;
	struct diff_channels run[KVT_MAX_COMPONENTS];
	int64_t content;			/* elements along D, or numbers */
	int64_t stored[NSIDES];		/* elements along D of the dumps */
	bool decoded;			/* packed content is compared as numbers */
	struct kvt_packing packing[NSIDES];	/* of a side that is packed */
	enum kvt_rotation rotation[NSIDES];	/* undone where it is decoded */
	struct diff_basis basis;
	int64_t nkv, kv[NSIDES];	/* keys and values; the first of them */
	int64_t half;			/* that is: 0 keys, 1 values, -1 neither */

	/*
	 * Of recurrent states that the sides store in different ways: the layout that
	 * brings a side into the order of the pair, a row of llama.cpp that is all
	 * heads or channels, and whether element [i][j] is stored as [j][i], of that
	 * many i (0: it is not).  Of the taps of a block the newest are compared.
	 */
	bool reordered, row[NSIDES];
	struct kvt_layout read[NSIDES];
	int64_t inner[NSIDES];
	int64_t slots[NSIDES], taps;	/* of a block in the side; compared */

	bool by_tokens, recurrent;
	int64_t nsegments, nslots;
	struct diff_segment *segment;	/* in the order of reading */
	int64_t *ordered;		/* segment[ordered[i]] has ordinal i */
	struct kvt_dump *view[NSIDES];	/* owned; group 0: what is compared */
};

struct diff_pairs {
	int n;
	struct diff_pair *pair;
	struct diff_unmatched unmatched;
	struct diff_partners partners;
};

/*
 * Finds all that both sides hold; reads no data but of requests whose names one side
 * alone has, if 'how' has a run.  Nothing in common, or groups of
 * other shapes of a slot, is KVT_BAD_INPUT; a request that 'how' matches twice is
 * KVT_USAGE.  'sides' must outlive 'out', which is to be freed in any case.
 */
KVT_MUST_CHECK enum kvt_status
kvt_diff_align(struct diff_pairs *out, const struct diff_side sides[NSIDES],
	       const struct diff_alignment *how, struct kvt_error *err);
void kvt_diff_pairs_free(struct diff_pairs *pairs);

static inline int64_t diff_pair_elements(const struct diff_pair *p)
{
	return p->nlayers * p->nslots * p->nheads * p->nkv * p->content;
}

/* ---- criteria ----------------------------------------------------------- */

/*
 * The first three are of each element, the others of a pair as a whole; that of attention
 * is judged by kvt_diff_attend().
 */
enum diff_term {
	T_ATOL, T_RTOL, T_ULP, T_MAX_ABS, T_REL_L2, T_ATTENTION, T_COSINE, T_PCC, NTERMS
};

struct diff_tolerance {
	bool given;			/* otherwise bits decide */
	bool automatic;			/* atol and rtol by the element types */
	bool has[NTERMS];
	double value[NTERMS];
};

/* What a stored number stands for: itself times this, keys and values apart. */
struct diff_scale {
	bool given;
	double kv[2];
};

struct diff_criteria {
	bool exact;			/* values must be equal, whatever the types */
	struct diff_tolerance tolerance;
	struct diff_scale scale[NSIDES];
};

/* ---- comparing ---------------------------------------------------------- */

struct diff_sums {
	int64_t n, unequal, outside;
	int64_t nonfinite;		/* pairs with a NaN or infinity, not in: */
	int64_t lost;			/* of these, not the same on both sides */
	int64_t saturated;		/* the largest of B's type, and A is beyond it */
	int64_t zeroed;			/* 0 in B, and not in A */
	uint64_t max_ulp;
	double max_abs, dd, aa, bb, ab, a, b;	/* of (A - B)^2, A^2, B^2, A B, A, B */
};
double kvt_diff_rel_l2(const struct diff_sums *s);	/* against A */
double kvt_diff_cosine(const struct diff_sums *s);	/* not finite: undefined, */
double kvt_diff_pcc(const struct diff_sums *s);		/* all three */

/* An element, and how far apart the sides are. */
struct deviation {
	bool set;
	int64_t key[KVT_NAXES];		/* in the pair; B: ordinal of the segment */
	double value[NSIDES], error;
	uint64_t bits[NSIDES], ulp;
};

/* Becomes 'd', if that is set and comes before it. */
void kvt_deviation_keep(struct deviation *first, const struct deviation *d);

/* A cell of a heat map, or a row of a table. */
struct heat {
	int64_t n, bad;			/* bad: outside the tolerance, or unequal */
	int64_t lost, saturated, zeroed;	/* as in struct diff_sums */
	double max_abs, dd, aa, bb, ab;
};

/* What it has of them. */
struct diff_sums kvt_diff_sums_of(const struct heat *heat);
/* The sums of both. */
void kvt_heat_add(struct heat *to, const struct heat *from);

/* What a table has a row for each of. */
enum diff_axis {
	DIFF_LAYER, DIFF_HEAD, DIFF_TOKEN, DIFF_DIM, DIFF_KV, DIFF_BLOCK, DIFF_REQUEST,
	DIFF_AXES
};
const char *kvt_diff_axis_name(enum diff_axis axis);

enum { DIFF_MAX_COLUMNS = 256, DIFF_MAX_WORST = 100 };

struct diff_diagnosis {
	struct kvt_diagnosis found;
	struct kvt_text args[KVT_MAX_FAULTS];	/* of each hypothesis */
	int64_t layers, blocks;		/* that were looked at */
	struct kvt_text says;		/* what lies where; or empty */
	/*
	 * What the fault, or the difference, is limited to: 0 or 1 of each layer, head,
	 * request, and of keys and values.  NULL where it spares nothing, or where not
	 * all was looked at.
	 */
	const uint8_t *only_layers, *only_heads, *only_requests, *only_kv;
	void *scratch, *requests;	/* owned: what these are in */
};

struct diff_result {
	const struct diff_pair *pair;
	struct diff_tolerance tolerance;	/* with atol and rtol, if automatic */
	bool rounding;			/* it is how each number was rounded */
	bool by_element;		/* it has terms of each element */
	bool has_ulp;			/* both sides are of one floating type */
	bool recoded;			/* B's numbers are of another type, or were */
	bool has_top;			/* its type has a largest number for all */
	bool equal;			/* element for element */
	bool differs;			/* the verdict */
	enum diff_term broken;		/* the term that decided, or NTERMS */
	int64_t by_digest;		/* elements that were not decoded */

	bool measured;			/* all below; otherwise it is zero */
	struct diff_sums sums;
	struct deviation first;		/* by layer, then ordinal, slot, head, ... */
	int64_t nworst;
	struct deviation *worst;	/* the largest error first */
	struct heat *by_head;		/* [nlayers][nheads] */
	int64_t ncolumns;		/* segments, or that many equal parts of them */
	struct heat *by_segment;	/* [nlayers][ncolumns] */
	struct heat *by_part;		/* [nsegments], by ordinal */
	struct heat by_kv[2];
	struct heat *by_half;		/* [nlayers][nkv] */
	uint8_t *bad_slot, *bad_dim;	/* [nslots], by ordinal; [content]: is any bad? */
	struct heat *by_slot, *by_dim;	/* the same; NULL: no such table was asked for */
	/* of each cell of by_head and by_segment; NULL: not asked for */
	struct deviation *head_first, *segment_first;
	struct diff_diagnosis *diagnosis;	/* NULL: none was made */

	struct meter *meter;		/* private to lib/ops/diff */
};

struct diff_options {
	struct kvt_run run;
	bool deep;			/* read also what digests call equal */
	bool verdict_only;		/* how much they differ is not wanted */
	int64_t nworst;			/* to keep; at most DIFF_MAX_WORST */
	bool table[DIFF_AXES];		/* that are wanted */
	bool firsts;			/* the first deviation of each cell is, too */
	const struct kvt_fault *only;	/* a diagnosis is to find this, or nothing */
};

/*
 * Compares all of a pair, which must outlive the result.  Types that nothing in
 * 'criteria' makes comparable are KVT_BAD_INPUT.  That they differ is no failure.
 * The result is the same for any number of threads; free it in any case.
 */
KVT_MUST_CHECK enum kvt_status
kvt_diff_compare(struct diff_result *out, const struct diff_pair *p,
		 const struct diff_criteria *criteria,
		 const struct diff_options *options, struct kvt_error *err);
void kvt_diff_result_free(struct diff_result *result);

/* Those of all pairs, and their array; NULL is allowed. */
void kvt_diff_results_free(struct diff_result *results, const struct diff_pairs *pairs);

/*
 * Fills result->diagnosis of a measured pair that differs and is not decoded; with
 * 'only', as kvt_diagnose_only().  Where the dump does not allow one it warns and leaves
 * it NULL.
 */
KVT_MUST_CHECK enum kvt_status
kvt_diff_diagnose(struct diff_result *result, const struct kvt_fault *only,
		  const struct kvt_run *run, struct kvt_error *err);

/*
 * All of it, after kvt_diff_align(): every pair is compared, those that differ are
 * diagnosed if that is asked for, and neither side has changed meanwhile.  *out has
 * pairs->n results, which are the caller's to free, each and the array, in any case.
 */
KVT_MUST_CHECK enum kvt_status
kvt_diff_results(struct diff_result **out, const struct diff_pairs *pairs,
		 const struct diff_side side[NSIDES],
		 const struct diff_criteria *criteria, const struct diff_options *options,
		 bool diagnose, struct kvt_error *err);

/* ---- where a finding is ------------------------------------------------- */

/* Of an element in a dump. */
struct diff_address {
	const char *file;		/* as it was named */
	bool in_memory;			/* tiles: offset in the engine's tensor */
	const char *buffer;		/* NULL: there is only one */
	int64_t offset;			/* -1: in no file, it reads as 0 */
	int64_t dim;			/* in the file */
};

struct diff_coordinates {
	int64_t layer;			/* in the model */
	const char *layer_name;		/* NULL: none */
	const char *request;		/* NULL: by blocks */
	int64_t token;			/* or entry of the table, if recurrent; -1 */
	int64_t block[NSIDES];		/* ids in the pools */
	const char *page;		/* what stores call it; NULL: not both do so */
	int64_t position[NSIDES], slot[NSIDES];		/* in the dumps */
	int64_t head, kv, dim;		/* in the model; -1: the content has none */
	bool recurrent;			/* token is an entry */
	struct diff_address place[NSIDES];
};
struct diff_coordinates kvt_diff_locate(const struct diff_pair *p,
					const struct deviation *deviation);

/* What both sides call the block of a segment; NULL: one has no name, or another. */
const char *kvt_diff_page(const struct diff_pair *p, const struct diff_segment *segment);

/* Index in the model of layer l of the result. */
int64_t kvt_diff_layer(const struct diff_result *r, int64_t l);
/* Index in the model of head h. */
int64_t kvt_diff_head(const struct diff_result *r, int64_t h);

/* A column of by_segment: tokens of A from one position to another, or blocks. */
struct diff_column {
	const char *request[2];		/* of the first and the last; NULL: by blocks */
	int64_t token[2];		/* or entry; both inclusive */
	int64_t block[2];		/* ids in A's pool */
};
struct diff_column kvt_diff_column(const struct diff_result *r, int64_t column);

/* Index in the model of element d of a slot, as kvt_diff_locate() has it. */
int64_t kvt_diff_dim(const struct diff_result *r, int64_t d);

/* ---- tables and lists --------------------------------------------------- */

/* What is the sum over all axes but one; what an axis does not have is -1 or NULL. */
struct diff_row {
	struct heat heat;
	int64_t id;			/* layer, head, dim, kv, block of A, token */
	int64_t block[NSIDES], slot;	/* of a token in A; of a block */
	const char *page;		/* the same of it; NULL */
	const char *request;		/* of a token, or it is one */
};

/* What a table takes of memory, before there is a result. */
int64_t kvt_diff_table_bytes(const struct diff_pair *p, enum diff_axis axis);

struct diff_table {
	int64_t total;			/* rows there are; 0: the pair has no such axis */
	int64_t n;			/* of them, those where anything differs */
	struct diff_row *row;		/* owned */
};

/*
 * Of a result that was asked for this table; the worst rows first if 'sorted', and then
 * only those where anything differs.  Of one that was not measured nothing differs, and
 * all sums are 0.  False: out of memory.  Free in any case.
 */
KVT_MUST_CHECK bool
kvt_diff_table(struct diff_table *out, const struct diff_result *r, enum diff_axis axis,
	       bool sorted);
void kvt_diff_table_free(struct diff_table *table);

/* Neighbours that differ; both ends are in it. */
struct diff_span {
	const char *request;		/* of tokens; NULL: none */
	int64_t first, last;
};

/* All on an axis where anything is outside the tolerance, or unequal. */
struct diff_spans {
	int64_t count, total;		/* that differ, of all that were compared */
	int64_t n;
	struct diff_span *span;		/* owned */
};

/* By enum diff_axis, but of requests; the blocks of B come last. */
enum { DIFF_BLOCKS_OF_B = DIFF_REQUEST, DIFF_LISTS = DIFF_AXES };
struct diff_where {
	struct diff_spans on[DIFF_LISTS];
	int64_t npages;			/* blocks of A by what both stores call them */
	const char **page;		/* owned; the names are not */
};
/* Of a measured result.  False: out of memory.  Free in any case. */
KVT_MUST_CHECK bool
kvt_diff_where(struct diff_where *out, const struct diff_result *r);
void kvt_diff_where_free(struct diff_where *where);

#endif
