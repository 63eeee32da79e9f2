/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvt.h - layout algebra for KV-cache memory
 *
 * Everything kvtool knows about KV-cache layouts and nothing else: no I/O, no
 * allocation, no printing, no global state.  Every function is pure and may be
 * called from any thread.
 *
 * Conventions used throughout:
 *
 *   - Axes have names, never positions.  What is at (layer 3, block 7, state
 *     0, head 2) is one thing, wherever a layout puts it.
 *   - Sizes, strides and offsets are in BYTES and have type int64_t; extents
 *     count elements.
 *   - Structs declared here are plain values: copy them freely, there is
 *     nothing to release.
 *   - A function that can fail returns enum kvt_status.  Its outputs are
 *     written only on KVT_OK.  'err' may be NULL; otherwise it receives one
 *     sentence for a person to read.
 */
#ifndef KVT_H
#define KVT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVT_VERSION "0.1.0"

#if defined(__GNUC__)
#define KVT_MUST_CHECK   __attribute__((warn_unused_result))
#define KVT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define KVT_MUST_CHECK
#define KVT_PRINTF(f, a)
#endif

/* ---- errors ------------------------------------------------------------- */

/*
 * What went wrong, by what the caller can do about it.  kvtool(1) turns these
 * into its exit statuses, so the values are part of the interface: never reuse
 * one.
 */
enum kvt_status {
	KVT_OK          = 0,
	KVT_MISMATCH    = 1,	/* differs, or an expectation did not hold */
	KVT_USAGE       = 2,	/* the request itself makes no sense */
	KVT_BAD_INPUT   = 3,	/* malformed, ambiguous or not comparable */
	KVT_UNSUPPORTED = 4,	/* valid, but this build or machine cannot do it */
	KVT_SYSTEM      = 5,	/* memory, file or device failed */
};

struct kvt_error {
	char text[512];		/* one line: a sentence without newline or period */
};

/*
 * kvt_fail() records why and returns 'status', so that an error is raised in
 * one line: return kvt_fail(err, KVT_BAD_INPUT, "...").  Call it where the
 * cause is known; callers further up pass the status on unchanged.  Names in the
 * sentence may be any bytes: it is stored as kvt_plain_next() writes it.
 */
enum kvt_status kvt_fail(struct kvt_error *err, enum kvt_status status,
			 const char *format, ...) KVT_PRINTF(3, 4);
/* "path: why", but once only: many a reason names the file already. */
enum kvt_status kvt_fail_about(struct kvt_error *err, enum kvt_status status,
			       const char *path, const struct kvt_error *why);

/* ---- text --------------------------------------------------------------- */

/* Is 's' UTF-8? */
bool kvt_is_text(const char *s);

/*
 * Names come from files, and may be made to move the cursor of a terminal or to
 * look like further lines.  So people are shown one character at a time: as it is,
 * or, where it is a control character (C0, DEL, C1, of direction, a separator of
 * lines) or no UTF-8, as \n, \r, \t or its bytes, \x1b.  A backslash stays as it
 * is, so that what was escaped once is not escaped again.
 *
 * Writes the character at 's', below 'end', and a NUL; returns how many bytes of
 * 's' it took, 1 to 4.
 */
#define KVT_PLAIN_MAX 17
int kvt_plain_next(char out[KVT_PLAIN_MAX], const char *s, const char *end);

/* ---- axes and shapes ---------------------------------------------------- */

enum kvt_axis {
	KVT_AXIS_L,		/* layer */
	KVT_AXIS_B,		/* block */
	KVT_AXIS_S,		/* state: one token row of a block, or several */
	KVT_AXIS_H,		/* head; 1 of them if the content has none */
	KVT_AXIS_K,		/* key or value; 1 if the content is opaque */
	KVT_AXIS_D,		/* element of a head, or of opaque content */
	KVT_NAXES
};

/* The letter of an axis, and its English name ("layer"). */
char kvt_axis_letter(enum kvt_axis axis);
const char *kvt_axis_name(enum kvt_axis axis);

struct kvt_shape {
	int64_t n[KVT_NAXES];	/* indexed by enum kvt_axis; absent axes are 1 */
	int64_t elem;		/* bytes of one element */
};

/*
 * Product of all extents times 'elem'.  Refuses (KVT_BAD_INPUT) a negative
 * extent, an elem below 1, and a product beyond INT64_MAX.  An extent of 0 is
 * legal and means no data.
 */
KVT_MUST_CHECK enum kvt_status
kvt_shape_nbytes(int64_t *out, const struct kvt_shape *shape,
		 struct kvt_error *err);

/* A half-open range along every axis: begin[a] <= i < end[a]. */
struct kvt_box {
	int64_t begin[KVT_NAXES], end[KVT_NAXES];
};

/* The box that holds all of 'shape'. */
struct kvt_box kvt_box_whole(const struct kvt_shape *shape);

/* Extents of the box, with the element size of 'elem'. */
struct kvt_shape kvt_box_shape(const struct kvt_box *box, int64_t elem);

/* ---- element types ------------------------------------------------------ */

struct kvt_dtype {
	const char *name;	/* torch-like: "bfloat16" */
	const char *safetensors;/* "BF16", NULL if that format has no name for it */
	const char *npy;	/* descriptor that carries the bits: "<u2" */
	int elem;		/* bytes of one element */
	bool is_float;		/* no integer, no bool */
	int index;		/* kvt_dtype_at(index) is this one */
};

/*
 * Find a type by its name or an alias ("bf16", "half", "torch.float16",
 * "fp8_e4m3"); case does not matter.  NULL if there is none: "auto" and "fp8"
 * name no single type and are not found.
 */
const struct kvt_dtype *kvt_dtype_find(const char *name);
const struct kvt_dtype *kvt_dtype_at(int i);	/* NULL past the last one */

/*
 * The value of one little-endian element, which need not be aligned.  Exact
 * for all types but integers beyond 2^53, which are rounded.
 */
double kvt_dtype_decode(const struct kvt_dtype *dtype, const void *element);

/*
 * Half the gap between two neighbours of the type near 'value': no number that
 * was rounded to the value is farther from it.  0 for what is not finite.
 */
double kvt_dtype_rounding(const struct kvt_dtype *dtype, double value);

/* ---- orders and layouts ------------------------------------------------- */

/*
 * One letter of an axis string.  S and D may be split once: "D/8" is the
 * outer part (index div 8), "D%8" the inner one (index mod 8).  A split of 0
 * is the 'x' of the engines: as many elements as fit 16 bytes.
 */
struct kvt_part {
	enum kvt_axis axis;
	enum { KVT_WHOLE, KVT_OUTER, KVT_INNER } kind;
	int64_t split;		/* 0 if whole, or if x */
};

enum { KVT_MAX_PARTS = 8 };	/* L B H K and both parts of S and D */

/* Axes from slowest to fastest. */
struct kvt_order {
	int nparts;
	struct kvt_part part[KVT_MAX_PARTS];
};

/*
 * Where the bytes of a cache are.  With one plane its order holds the axes (C
 * is kept as K, D); any but D may be absent and then has extent 1.  With two,
 * keys and values have an order each, of the same axes; if both hold K, the
 * planes share a buffer and K stands where they meet ("K:L K B H D/x S x V:L K
 * B H D S"), and what precedes K is the same in both; without K they are
 * buffers of their own.
 */
struct kvt_layout {
	int nplanes;			/* 1 or 2 */
	struct kvt_order plane[2];	/* of keys, of values */
};

/*
 * Read a layout: a preset ("nhd", "rocm-paged", "vLLM:LBNHC"), an axis string
 * ("LBHSC", "L B H D/x S x", "LBHDSx"), two planes ("K:... V:..."), or a tuple
 * with its convention ("rfc:0,1,3,2,4", "vllm:0,1,2,3,4").  Case does not
 * matter in presets.  Text that is no layout is KVT_USAGE; code that took the
 * text from a file reports KVT_BAD_INPUT instead.  A bare tuple, or a name
 * that projects use differently, is ambiguous: KVT_BAD_INPUT, and the sentence
 * lists the readings.  A known name of something that is no order of axes
 * ("nvfp4-hnd") is KVT_UNSUPPORTED.
 */
KVT_MUST_CHECK enum kvt_status
kvt_layout_parse(struct kvt_layout *out, const char *text,
		 struct kvt_error *err);

struct kvt_text {
	char s[160];
};

/*
 * The axis string, which is a layout's identity: compact where every part is a
 * letter ("LBHSC"), else with blanks ("L B H S/8 D S%8"), planes as "K:... V:...".
 * K directly before D at the end is written C.
 */
struct kvt_text kvt_layout_string(const struct kvt_layout *layout);

/* The i-th preset name of exactly this axis string; NULL past the last. */
const char *kvt_layout_name(const struct kvt_layout *layout, int i);

/* Presets in the order of the table: name, axis string, where it is found. */
struct kvt_preset {
	const char *name, *axes, *found_in;
	bool latent;		/* content is opaque: K has extent 1 */
};
const struct kvt_preset *kvt_preset_at(int i);	/* NULL past the last */

bool kvt_layout_equal(const struct kvt_layout *a, const struct kvt_layout *b);

/*
 * Do both put every byte of this shape in the same place?  Axes of extent 1 stand
 * anywhere: with one head LBSHC and LBHSC agree.
 */
bool kvt_layout_agree(const struct kvt_layout *a, const struct kvt_layout *b,
		      const struct kvt_shape *shape);

enum kvt_convention {
	KVT_RFC,		/* semantic [L,B,S,H,C] */
	KVT_VLLM,		/* semantic [L,B,H,N,C] (vLLM #51718) */
};

/*
 * physical[i] = semantic[order[i]].  False if the layout is no permutation of
 * five axes with C innermost as one piece or elsewhere unsplit.
 */
bool kvt_layout_tuple(int order[5], const struct kvt_layout *layout,
		      enum kvt_convention convention);

/*
 * What an order promises about runs.  Axes of extent 1 are treated as absent,
 * and an absent axis stands in nobody's way.  Of two planes both must fulfil
 * it; separate buffers count as K outermost.
 */
struct kvt_predicates {
	bool layer_compact;	/* L outermost: a layer is one run */
	bool block_compact;	/* L and B outermost: a page is one run */
	bool block_contiguous;	/* ends H,S,C (vLLM's meaning): so is a range
				 * of heads of a page */
	bool block_outermost;	/* B outermost: a block over all layers is a run */
	bool head_run;		/* ends S,C: all states of one head are one run */
	bool kernel_split_neutral; /* S directly follows B */
	int  kv_position;	/* how many parts stand before K; -1 if no K */
};
struct kvt_predicates kvt_layout_predicates(const struct kvt_layout *layout,
					    const struct kvt_shape *shape);

/* ---- views -------------------------------------------------------------- */

/*
 * One term of an address: ((index[axis] / div) % n) * stride.  An axis without
 * a factor has extent 1.
 */
struct kvt_factor {
	enum kvt_axis axis;
	int64_t div, n, stride;
};

enum { KVT_MAX_FACTORS = 12 };

/*
 * A box of KV-cache elements inside some buffer.  Layouts, slices, blocks and
 * tiles are all views; they differ only in how they were made.
 */
struct kvt_view {
	struct kvt_shape shape;
	int64_t offset;			/* of the element with all indices 0 */
	int nfactors;			/* slowest first as the layout has them */
	struct kvt_factor factor[KVT_MAX_FACTORS];
};

/*
 * What a layout makes of a shape: one view, or one for keys and one for
 * values (each with K extent 1) where the planes differ.
 */
struct kvt_views {
	int count;			/* 1 or 2 */
	int first_k;			/* K index of view[0] */
	struct kvt_view view[2];
	int64_t nbytes;			/* of the dense buffer that holds them */
};

/*
 * The dense buffer that holds just 'box' of a cache with this layout; indices
 * inside the views start at 0.  Separate planes follow each other, keys first.
 * Fails (KVT_BAD_INPUT) if a split does not divide its axis, if an axis that
 * the layout lacks has an extent above 1, or if the size overflows.  The box
 * must cover all of a split axis (S or D).
 */
KVT_MUST_CHECK enum kvt_status
kvt_layout_views(struct kvt_views *out, const struct kvt_layout *layout,
		 const struct kvt_box *box, int64_t elem,
		 struct kvt_error *err);

/*
 * The part of 'in' with begin <= index < end along 'axis', renumbered from 0.
 * On a split axis the range must be a union of whole inner parts, or lie
 * inside one of them; otherwise KVT_UNSUPPORTED.
 */
KVT_MUST_CHECK enum kvt_status
kvt_view_narrow(struct kvt_view *out, const struct kvt_view *in,
		enum kvt_axis axis, int64_t begin, int64_t end,
		struct kvt_error *err);

/* Narrow along every axis, in every view; 'box' counts from the views' own 0. */
KVT_MUST_CHECK enum kvt_status
kvt_views_narrow(struct kvt_views *out, const struct kvt_views *in,
		 const struct kvt_box *box, struct kvt_error *err);

/* Byte offset of one element; the index must lie inside the shape. */
int64_t kvt_view_at(const struct kvt_view *view, const int64_t index[KVT_NAXES]);

/*
 * The inverse: the element that byte 'offset' is part of.  False if none is
 * there: before the view, behind it, or in a gap that its strides leave.  The
 * view must have passed kvt_view_end().  This takes one step a factor where no
 * index reaches into the next one of a slower axis, as in every layout, padded
 * or not; in other views it searches.  Where elements overlap, one is found.
 */
bool kvt_view_find(const struct kvt_view *view, int64_t offset,
		   int64_t index[KVT_NAXES]);

/* The same two for views that belong together; indices count from their box. */
int64_t kvt_views_at(const struct kvt_views *views, const int64_t index[KVT_NAXES]);
bool kvt_views_find(const struct kvt_views *views, int64_t offset,
		    int64_t index[KVT_NAXES]);

/*
 * Replace the stride of an unsplit axis, for padded pages and shared tensors:
 * there strides come from a descriptor, never from extents.
 */
void kvt_view_set_stride(struct kvt_view *view, enum kvt_axis axis,
			 int64_t stride);

/*
 * One past the last byte of the view, 0 if it is empty.  Refuses
 * (KVT_BAD_INPUT) a negative offset or stride and an end beyond 2^63.  A view
 * with strides from a file must pass here, and its end be compared with the
 * buffer, before anything else is done with it.
 */
KVT_MUST_CHECK enum kvt_status
kvt_view_end(int64_t *out, const struct kvt_view *view, struct kvt_error *err);

/* ---- plans -------------------------------------------------------------- */

enum { KVT_MAX_LOOPS = 12 };

/*
 * A strided copy in its simplest equivalent form.  Relayout, slice, merge,
 * reblock and transfer all reduce to this; kernels see nothing else.
 *
 * 'run' bytes are contiguous on both sides.  Around them are 'nloops' loops,
 * slowest destination stride first, no two of which could be fused.
 */
struct kvt_plan {
	int     nloops;
	int64_t n[KVT_MAX_LOOPS];		/* each at least 2 */
	int64_t src_stride[KVT_MAX_LOOPS];
	int64_t dst_stride[KVT_MAX_LOOPS];
	int64_t run;				/* 0: nothing to copy */
	int64_t src_offset;
	int64_t dst_offset;
};

/*
 * Both views must have one shape (KVT_BAD_INPUT).  Splits of an axis on the
 * two sides must nest (one divides the other), else KVT_UNSUPPORTED.
 */
KVT_MUST_CHECK enum kvt_status
kvt_plan_init(struct kvt_plan *out, const struct kvt_view *dst,
	      const struct kvt_view *src, struct kvt_error *err);

/* One plan, or one for keys and one for values. */
struct kvt_plans {
	int count;
	struct kvt_plan plan[2];
};

KVT_MUST_CHECK enum kvt_status
kvt_plans_init(struct kvt_plans *out, const struct kvt_views *dst,
	       const struct kvt_views *src, struct kvt_error *err);

int64_t kvt_plan_nruns(const struct kvt_plan *plan);
int64_t kvt_plan_nbytes(const struct kvt_plan *plan);

/*
 * Share 'part' of 'nparts' (0 based), cut along the slowest loops; shares
 * write disjoint bytes and together do all the work.  A share may be empty
 * (run 0).
 */
struct kvt_plan kvt_plan_part(const struct kvt_plan *plan, int part, int nparts);

/* Walks the runs of a plan in destination order. */
struct kvt_plan_walk {
	const struct kvt_plan *plan;	/* borrowed */
	int64_t i[KVT_MAX_LOOPS];
	int64_t src, dst;		/* offsets of the current run */
	bool done;
};
void kvt_plan_walk_start(struct kvt_plan_walk *walk, const struct kvt_plan *plan);
void kvt_plan_walk_next(struct kvt_plan_walk *walk);

/*
 * Proof that the plans write every byte of [0, nbytes) of the destination
 * exactly once and nothing else.  KVT_MISMATCH names what is wrong.  Keys and
 * values must lie one behind the other or alternate evenly, as all layouts
 * place them; what else might fit together is refused.
 */
KVT_MUST_CHECK enum kvt_status
kvt_plans_cover(const struct kvt_plans *plans, int64_t nbytes,
		struct kvt_error *err);

/* ---- cache kinds -------------------------------------------------------- */

enum kvt_kind {
	KVT_FULL_ATTENTION,
	KVT_SLIDING_WINDOW,
	KVT_CHUNKED_LOCAL,
	KVT_MLA,
	KVT_MAMBA_CONV,		/* S counts taps, D channels */
	KVT_MAMBA_SSM,
	KVT_CROSS,
	KVT_OPAQUE,
	KVT_RSWA,		/* a window over what was generated; the prompt stays */
	KVT_NKINDS
};
const char *kvt_kind_name(enum kvt_kind kind);		/* "full_attention" */
bool kvt_kind_find(enum kvt_kind *out, const char *name);

struct kvt_range {
	int64_t begin, end;		/* half open; empty if equal */
};

/* Greatest common divisor of numbers that are not negative; of 0 and b it is b. */
static inline int64_t kvt_gcd(int64_t a, int64_t b)
{
	while (b) {
		int64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* ---- what a request still needs ------------------------------------------ */

/*
 * How long a cache keeps the tokens of a request.  Engines decide it by the kind:
 * a window that full attention carries is one of its kernels, and frees nothing.
 * Latents and opaque rows that have a window are those of a sliding one.
 */
struct kvt_retention {
	enum kvt_kind kind;
	int64_t window;			/* tokens of a window or a chunk; 0: unknown */
	int64_t retained;		/* tokens that a window keeps besides */
	int64_t prompt;			/* of an R-SWA request; 0: unknown */
};

/* Does it ever let go of a token?  Also where it is not known after how many. */
bool kvt_retention_forgets(const struct kvt_retention *keep);

/*
 * The tokens that nothing computed later looks at, when 'computed' of a request
 * are in the cache; as the managers of vLLM 0.32 have it:
 *
 *   sliding window of w     all but the last w - 1, and 'retained' before them
 *   chunks of c             all up to the last chunk's end, so all of them at c
 *   R-SWA of w              from the end of the prompt to the last w
 *   recurrent               all but the newest: its state stands for them
 *   anything else           none
 *
 * Empty where window or prompt would have to be known and are not.
 */
struct kvt_range kvt_dead_tokens(const struct kvt_retention *keep, int64_t computed);

/*
 * The blocks that live tokens of a request are in at most; 0: any number.  Tokens
 * of a step that still runs come on top.
 */
int64_t kvt_most_blocks(const struct kvt_retention *keep, int64_t block_size);

#ifdef __cplusplus
}
#endif

#endif
