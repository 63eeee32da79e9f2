/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - axes and shapes, element types, and the orders that axes stand in
 *
 * Which axis varies fastest, and nothing of where a buffer lies: a layout and a
 * shape make addresses in view.h.
 */
#ifndef KVT_LAYOUT_H
#define KVT_LAYOUT_H

#include "lib/kvt/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- axes and shapes ---------------------------------------------------- */

enum kvt_axis {
	KVT_AXIS_L,		/* layer */
	KVT_AXIS_B,		/* block */
	KVT_AXIS_S,		/* slot: one token row of a block, or several */
	KVT_AXIS_H,		/* head; 1 of them if the content has none */
	KVT_AXIS_K,		/* key or value; 1 if the content is opaque */
	KVT_AXIS_D,		/* element of a head, or of opaque content */
	KVT_NAXES
};

/* The letter of an axis, and its English name ("layer"). */
KVT_API char kvt_axis_letter(enum kvt_axis axis);
KVT_API const char *kvt_axis_name(enum kvt_axis axis);

struct kvt_shape {
	int64_t n[KVT_NAXES];	/* indexed by enum kvt_axis; absent axes are 1 */
	int64_t elem;		/* bytes of one element */
};

/*
 * Product of all extents times 'elem'.  Refuses (KVT_BAD_INPUT) a negative
 * extent, an elem below 1, and a product beyond INT64_MAX.  An extent of 0 is
 * legal and means no data.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_shape_nbytes(int64_t *out, const struct kvt_shape *shape,
		 struct kvt_error *err);

/* A half-open range along every axis: begin[a] <= i < end[a]. */
struct kvt_box {
	int64_t begin[KVT_NAXES], end[KVT_NAXES];
};

/* The box that holds all of 'shape'. */
KVT_API struct kvt_box kvt_box_whole(const struct kvt_shape *shape);

/* Extents of the box, with the element size of 'elem'. */
KVT_API struct kvt_shape kvt_box_shape(const struct kvt_box *box, int64_t elem);

/* ---- element types ------------------------------------------------------ */

/* What the bits of an element are: sign, exponent and fraction, or a whole number. */
enum kvt_number {
	KVT_IEEE,	/* infinities and NaNs in the largest exponent */
	KVT_FN,		/* no infinity; all ones is NaN */
	KVT_FNUZ,	/* no infinity and no -0; that one is NaN */
	KVT_POWER,	/* an exponent alone, of no sign and never 0; all ones is NaN */
	KVT_SIGNED, KVT_UNSIGNED,
	KVT_TRUTH,	/* 0, or anything else */
};

enum { KVT_DTYPE_ALIASES = 3 };

struct kvt_dtype {
	const char *name;	/* "bfloat16" */
	const char *safetensors;/* "BF16", NULL if that format has no name for it */
	const char *npy;	/* descriptor that carries the bits: "<u2" */
	const char *torch;	/* "float8_e8m0fnu", NULL if torch has none */
	const char *ml_dtypes;	/* that of numpy's extension, NULL for numpy's own */
	const char *alias[KVT_DTYPE_ALIASES + 1];	/* of engines; NULL ends them */
	int elem;		/* bytes of one element */
	bool is_float;		/* no integer, no bool */
	int index;		/* kvt_dtype_at(index) is this one */
	enum kvt_number number;
	int fraction, exponent, bias;	/* bits, bits, value; of a float */
};

/*
 * Find a type by its name or an alias ("bf16", "half", "torch.float16",
 * "fp8_e4m3"); case does not matter.  NULL if there is none: "auto" and "fp8"
 * name no single type and are not found.
 */
KVT_API const struct kvt_dtype *kvt_dtype_find(const char *name);
KVT_API const struct kvt_dtype *kvt_dtype_at(int i);	/* NULL past the last one */
/* The same, but a name that is none is KVT_USAGE, with those that may be meant. */
KVT_MUST_CHECK enum kvt_status
kvt_dtype_parse(const struct kvt_dtype **out, const char *name, struct kvt_error *err);

/*
 * The value of one little-endian element, which need not be aligned.  Exact
 * for all types but integers beyond 2^53, which are rounded.
 */
KVT_API double kvt_dtype_decode(const struct kvt_dtype *dtype, const void *element);

/*
 * The nearest value of the type, ties to even.  What is too large is infinity, or the
 * largest of a type that has none; NaN of an integer is 0, 0 of a power of two its least.
 */
KVT_API void kvt_dtype_encode(const struct kvt_dtype *dtype, void *element, double value);

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

/* L B S H K D in one plane: a slot is one run, and so is a head's content. */
extern const struct kvt_layout kvt_layout_slots;

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
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_layout_parse(struct kvt_layout *out, const char *text,
		 struct kvt_error *err);
/* ", did you mean 'hnd'?" if 'text' is probably a misspelling of a name, else "". */
struct kvt_text kvt_layout_hint(const char *text);

/*
 * The axis string, which is a layout's identity: compact where every part is a
 * letter ("LBHSC"), else with blanks ("L B H S/8 D S%8"), planes as "K:... V:...".
 * K directly before D at the end is written C.
 */
KVT_API struct kvt_text kvt_layout_string(const struct kvt_layout *layout);
/* "nhd (LBSHC)": with its first name, if it has one; for sentences. */
struct kvt_text kvt_layout_called(const struct kvt_layout *layout);

/* The i-th preset name of exactly this axis string; NULL past the last. */
KVT_API const char *kvt_layout_name(const struct kvt_layout *layout, int i);

/* Presets in the order of the table: name, axis string, where it is found. */
struct kvt_preset {
	const char *name, *axes, *found_in;
	bool latent;		/* content is opaque: K has extent 1 */
};
KVT_API const struct kvt_preset *kvt_preset_at(int i);	/* NULL past the last */

/* The same axes in the same order, whatever the shape: kvt_layout_agree() knows that. */
KVT_API bool kvt_layout_equal(const struct kvt_layout *a, const struct kvt_layout *b);

/*
 * Do both put every byte of this shape at the same offset?  Axes of extent 1 stand
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
 * five axes with C innermost as one range or elsewhere unsplit.
 */
bool kvt_layout_tuple(int order[5], const struct kvt_layout *layout,
		      enum kvt_convention convention);

/*
 * What an order promises about runs.  Axes of extent 1 are treated as absent,
 * and an absent axis is ignored.  Of two planes both must fulfil
 * it; separate buffers count as K outermost.
 */
struct kvt_predicates {
	bool layer_compact;	/* L outermost: a layer is one run */
	bool block_compact;	/* L and B outermost: a page is one run */
	bool block_contiguous;	/* ends H,S,C (vLLM's meaning): so is a range
				 * of heads of a page */
	bool block_outermost;	/* B outermost: a block over all layers is a run */
	bool head_run;		/* ends S,C: all slots of one head are one run */
	bool kernel_split_neutral; /* S directly follows B */
	int  kv_position;	/* how many parts stand before K; -1 if no K */
	int64_t kernel_slots;	/* slots of a kernel's block, where S/n that follows B
				 * shows that a block is several; 0: it does not */
};
struct kvt_predicates kvt_layout_predicates(const struct kvt_layout *layout,
					    const struct kvt_shape *shape);
/*
 * Are all bytes of a block in a page, or in a row of them?  KVT_AXIS_B: blocks are
 * outermost; KVT_AXIS_L: layers, and then blocks; KVT_NAXES: something else is.
 */
enum kvt_axis kvt_layout_outermost(const struct kvt_layout *layout);

#ifdef __cplusplus
}
#endif

#endif
