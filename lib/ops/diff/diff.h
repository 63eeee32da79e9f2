/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.h - what kvtool diff compares, how, and what it finds
 *
 * Two sides are joined group by group into pairs.  A pair says which layers,
 * states, heads and channels both sides hold; its views bring just these, from
 * whatever layout, tiles and ranks, into one order (L B S H K D).  After that
 * a comparison is a walk over two equal arrays.
 */
#ifndef KVT_DIFF_H
#define KVT_DIFF_H

#include "cli/json_out.h"
#include "cli/opt.h"
#include "lib/dump/merge.h"
#include "lib/kvt/fault.h"

enum { SIDE_A, SIDE_B, NSIDES };

/* ---- sides: diff_side.c ------------------------------------------------- */

struct side {
	const char *name;		/* for messages: the file, or "A" */
	int nfiles;
	struct rank_file *file;
	struct kvt_dump **reader;
	struct source source;
};

KVT_MUST_CHECK enum kvt_status
side_open(struct side *side, char **names, int nfiles, const struct kvt_hints *hints,
	  const struct kvt_run *run, struct kvt_error *err);
void side_close(struct side *side);
/* KVT_BAD_INPUT if a file changed while it was read. */
KVT_MUST_CHECK enum kvt_status
side_unchanged(const struct side *side, struct kvt_error *err);

/* What one reader gives to a group of the side, also where it is all of it. */
int side_parts(const struct side *side, int group);
struct source_part side_part(const struct side *side, int group, int i);
/* The indices that readers have for what the side has at i. */
int64_t side_layer(const struct side *side, int group, int64_t i);
int64_t side_block(const struct side *side, int group, int64_t i);

/* Where an element of a side is. */
struct place {
	const char *file;		/* as it was named */
	bool in_memory;			/* tiles: offset in the engine's tensor */
	const char *buffer;		/* NULL: there is only one */
	int64_t offset;			/* -1: in no file, it reads as 0 */
	int64_t dim;			/* in the file */
};
struct place side_place(const struct side *side, int group,
			const int64_t index[KVT_NAXES]);

/* ---- what only one side has: diff_align.c ------------------------------- */

struct lack {
	int side;			/* that has it */
	char text[200];			/* "layers 3, 4 of g0" */
};

struct lacks {
	int n;				/* how many there are; the first ones kept */
	struct lack lack[64];
};
void lacks_add(struct lacks *lacks, int side, const char *format, ...) KVT_PRINTF(3, 4);

/* ---- pairs -------------------------------------------------------------- */

/* States that follow each other on both sides. */
struct span {
	int64_t block[NSIDES], state[NSIDES];
	int64_t at[NSIDES];		/* of the block in the list of the view */
	int64_t count;
	int64_t request;		/* of A; -1: by blocks */
	int64_t position;		/* of the first state in the request */
	int64_t ordinal;		/* in the order of requests, or of blocks */
};

/* Channels that follow each other on both sides; one run but for conv states. */
struct channels {
	int64_t at, from[NSIDES], count;
};

struct pair {
	const struct side *side[NSIDES];
	int number[NSIDES];
	const struct kvt_group *group[NSIDES];
	char id[72];			/* "g0", or "g0 and g1" */

	int64_t nlayers, *layer[NSIDES];	/* indices in the groups */
	int64_t nheads, head[NSIDES];		/* the first of them */
	int nruns;
	struct channels run[KVT_MAX_COMPONENTS];
	int64_t content;			/* elements along D, or numbers */
	int64_t stored[NSIDES];		/* elements along D of the dumps */
	bool decoded;			/* packed content is compared as numbers */
	struct kvt_packing packing[NSIDES];	/* of a side that is packed */
	int64_t nkv, kv[NSIDES];	/* keys and values; the first of them */
	int64_t half;			/* that is: 0 keys, 1 values, -1 neither */

	bool by_tokens, recurrent;
	int64_t nspans, nstates;
	struct span *span;		/* in the order of reading */
	int64_t *ordered;		/* span[ordered[i]] has ordinal i */
	struct source view[NSIDES];
};

enum diff_by { BY_AUTO, BY_TOKENS, BY_BLOCKS };

struct aligning {
	bool numbers;			/* not bytes, where that is a choice */
	enum diff_by by;
	struct opt_strings match;	/* "A=B": requests of different names */
};

struct pairs {
	int n;
	struct pair *pair;
	struct lacks lacks;
};

/*
 * Finds all that both sides have.  Nothing, or things of other shapes, is
 * KVT_BAD_INPUT; what only one has goes to 'lacks'.
 */
KVT_MUST_CHECK enum kvt_status
pairs_find(struct pairs *out, const struct side side[NSIDES],
	   const struct aligning *how, struct kvt_error *err);
void pairs_free(struct pairs *pairs);

static inline int64_t pair_elements(const struct pair *p)
{
	return p->nlayers * p->nstates * p->nheads * p->nkv * p->content;
}

/* diff_span.c: the states of a pair, by request and token or by block. */
KVT_MUST_CHECK enum kvt_status
pair_spans(struct pair *p, const struct aligning *how, struct lacks *lacks,
	   struct kvt_error *err);
/* diff_view.c: the sources that bring both into one order. */
KVT_MUST_CHECK enum kvt_status
pair_views(struct pair *p, struct kvt_error *err);

/* ---- when two values are near enough: diff_judge.c ---------------------- */

enum term { T_ATOL, T_RTOL, T_ULP, T_MAX_ABS, T_REL_L2, T_COSINE, T_PCC, NTERMS };

struct tolerance {
	bool given;			/* otherwise bits decide */
	bool automatic;			/* atol and rtol by the element types */
	bool has[NTERMS];
	double value[NTERMS];
};
const char *term_name(enum term term);

/* "auto", "atol=1e-3,rtol=0.01", "auto,cosine=0.999". */
KVT_MUST_CHECK enum kvt_status
tolerance_parse(struct tolerance *out, const char *text, struct kvt_error *err);

/* What a stored number stands for: itself times this, keys and values apart. */
struct scale {
	bool given;
	double kv[2];
};
KVT_MUST_CHECK enum kvt_status
scale_parse(struct scale *out, const char *option, const char *text,
	    struct kvt_error *err);

struct judging {
	bool exact;			/* --exact: values, whatever the types */
	struct tolerance tolerance;
	struct scale scale[NSIDES];
};

/* The tolerance for a pair; KVT_BAD_INPUT if nothing can decide. */
KVT_MUST_CHECK enum kvt_status
judge_pair(struct tolerance *out, const struct judging *how, const struct pair *p,
	   const struct scale scale[NSIDES], struct kvt_error *err);

/* What rounding one number to the types of both sides can do. */
void tolerance_of_types(double *atol, double *rtol, const struct pair *p,
			const struct scale scale[NSIDES]);

/* ---- numbers: diff_meter.c ---------------------------------------------- */

struct sums {
	int64_t n, unequal, outside;
	int64_t nonfinite;		/* pairs with a NaN or infinity, not in: */
	int64_t lost;			/* of these, not the same on both sides */
	uint64_t max_ulp;
	double max_abs, dd, aa, bb, ab, a, b;
};
void sums_add(struct sums *to, const struct sums *from);
double sums_rel_l2(const struct sums *s);	/* against A; not finite: undefined */
double sums_cosine(const struct sums *s);
double sums_pcc(const struct sums *s);

/* An element, and how far apart the sides are. */
struct spot {
	bool set;
	int64_t key[KVT_NAXES];		/* in the pair; for B the ordinal of the span */
	double value[NSIDES], error;
	uint64_t bits[NSIDES], ulp;
};
bool spot_before(const struct spot *a, const struct spot *b);
/* Into a list of the worst, worst first; *n of at most 'room'. */
void spots_offer(struct spot *list, int64_t *n, int64_t room, const struct spot *spot);

struct meter {
	const struct kvt_dtype *dtype[NSIDES];
	float *table[NSIDES];		/* of types of one or two bytes */
	struct scale scale[NSIDES];
	bool bits;			/* equal bits mean equal values */
	bool has_ulp;
	int64_t first_kv;		/* of the pair, for the scale */
	struct tolerance tolerance;
	bool judges_elements;
	/* packed content: NULL is a side that is not */
	bool decoded;
	const struct kvt_packing *packing[NSIDES];
	bool rounding;			/* the tolerance is how each number was rounded */
};
KVT_MUST_CHECK enum kvt_status
meter_init(struct meter *m, const struct pair *p, const struct judging *how,
	   struct kvt_error *err);
void meter_free(struct meter *m);

/* Where the findings of one run of elements along D go. */
struct findings {
	struct sums *sums;
	struct spot *first;
	struct spot *top;
	int64_t ntop, room;
};
double meter_value(const struct meter *m, int side, int k, const uint8_t *element);
/* key[]: of the first element of the run. */
void meter_run(const struct meter *m, const uint8_t *a, const uint8_t *b, int64_t n,
	       const int64_t key[KVT_NAXES], struct findings *out);

/* ---- running: diff_run.c ------------------------------------------------ */

/* What a cell of a map has. */
struct heat {
	int64_t n, bad;			/* bad: outside the tolerance, or unequal */
	double max_abs, dd, aa;
};

enum { MAX_COLUMNS = 256, MAX_TOP = 100 };

struct result {
	const struct pair *pair;
	struct meter meter;
	bool equal;			/* element for element */
	bool differs;			/* the verdict */
	enum term broken;		/* the term that decided, or NTERMS */
	int64_t by_digest;		/* elements that were not decoded */
	bool measured;
	struct sums sums;
	struct spot first;
	int64_t ntop;
	struct spot *top;
	struct heat *by_head;		/* [nlayers][nheads] */
	int64_t ncolumns;
	struct heat *by_span;		/* [nlayers][ncolumns] */
	struct diagnosis *diagnosis;	/* NULL: none was made */
};

struct diagnosis {
	struct kvt_diagnosis found;
	struct kvt_text args[KVT_MAX_FAULTS];	/* of each hypothesis */
	int64_t layers, blocks;		/* that were looked at */
};

struct running {
	struct kvt_run run;
	bool deep;			/* read also what digests call equal */
	bool verdict_only;		/* how much they differ is not wanted */
	int64_t top;
};

/* Free with result_free() in any case. */
KVT_MUST_CHECK enum kvt_status
pair_compare(struct result *out, const struct pair *p, const struct judging *judging,
	     const struct running *how, struct kvt_error *err);
void result_free(struct result *result);

/* diff_diagnose.c: fills result->diagnosis. */
KVT_MUST_CHECK enum kvt_status
diagnose_result(struct result *result, const struct kvt_run *run,
		struct kvt_error *err);

/* The column of by_span that an ordinal is in, and where columns begin. */
int64_t result_column(const struct result *r, int64_t ordinal);
int64_t column_begin(const struct result *r, int64_t column);

/* ---- telling ------------------------------------------------------------ */

struct diff {
	struct side side[NSIDES];
	struct pairs pairs;
	struct result *result;		/* one a pair */
	struct judging judging;
	struct running running;
	bool common, map, quiet, no_diagnosis;
};

/* diff_name.c: names of what a spot or a column is. */
struct coordinate {
	int64_t layer;			/* in the model */
	const char *layer_name;		/* NULL: none */
	const char *request;		/* NULL: by blocks */
	int64_t token;			/* or entry of the table, if recurrent; -1 */
	int64_t block[NSIDES];		/* ids in the pools */
	int64_t position[NSIDES], state[NSIDES];	/* in the dumps */
	int64_t head, kv, dim;		/* in the model; -1: the content has none */
	bool recurrent;			/* token is an entry */
	struct place place[NSIDES];
};
struct coordinate spot_coordinate(const struct pair *p, const struct spot *spot);
/* Index in the model. */
int64_t result_layer(const struct result *r, int64_t l);
struct human column_name(const struct result *r, int64_t column);

void diff_text(const struct diff *d);
void diff_text_maps(FILE *stream, const struct diff *d);
void diff_json(struct json_out *out, const struct diff *d);
/* The maps alone, as an object of their own. */
void diff_json_maps(struct json_out *out, const struct diff *d);
void diff_csv_maps(FILE *stream, const struct diff *d);
void diff_svg_maps(FILE *stream, const struct diff *d);

/* .svg, .csv, .json or .txt, by the end of the name. */
KVT_MUST_CHECK enum kvt_status
heatmap_check(const char *path, bool force, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
heatmap_write(const char *path, bool force, const struct diff *d, struct kvt_error *err);

#endif
