/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content.h - content that is not of one element type
 *
 * A quantised cache keeps numbers, their scales and sometimes rotary values of
 * another type side by side.  A content type says which bytes are what: of the
 * row of a (slot, head, kv), or of a whole page whose rows lie in planes.  The
 * element type of such a group is uint8, so that everything which moves bytes
 * needs to know nothing of this.  The conventions are those of kvt.h.
 */
#ifndef KVT_CONTENT_H
#define KVT_CONTENT_H

#include "lib/kvt/kvt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names are those of --spec where there is one. */
struct kvt_content_type {
	const char *name;	/* "fp8-ds-mla"; of a family "mlx-affine/4/64/bfloat16" */
	const char *what;	/* a few words on what it is */
	enum kvt_kind kind;	/* of a group that holds it */
	int64_t ratio;		/* tokens a row stands for; 0: any number */
	bool planar;		/* a slot is one page of planes */
	bool pairs;		/* keys and values have a row each */
	/* What engines call it, words with a space between; NULL: nothing known. */
	const char *vllm, *sglang, *kernels;	/* the last: FlashMLA, FlashInfer */
	bool all_heads;		/* a page holds those of all heads, keys and values */
};
const struct kvt_content_type *kvt_content_type_at(int i);	/* NULL past the last */

/* All zeros: elements of one type, which the group names. */
struct kvt_content {
	const struct kvt_content_type *type;
	const struct kvt_dtype *fp8;	/* which of the fp8 types; NULL: not said */
	/*
	 * Numbers of a head vector, where the bytes do not tell; of other pages the rows
	 * of a kernel's page, which a block may have several of.  0: not said.
	 */
	int64_t n;
	/*
	 * Of blocks of ggml, whose files do not tell: so many numbers of a key, of a
	 * value, are rotated together; 1: none are.  0: not said.
	 */
	int64_t turn[2];
};

/*
 * "fp8-ds-mla", "indexer/e4m3fnuz", "nvfp4-plain/128": a type and, behind slashes,
 * which fp8 it is made of and the number 'n'; "q8_0/k128/v64", "q8_0/plain": what is
 * rotated together.  Case does not matter; a dash may be
 * an underscore.  A word of an engine finds the one type that it means: KVT_BAD_INPUT
 * and a sentence with the candidates if it means several (fp8_ds_mla does; so does
 * each number of bytes), KVT_USAGE if there is none of that name, KVT_UNSUPPORTED if
 * it is a form that only a fork or an unmerged change has.
 */
KVT_MUST_CHECK enum kvt_status
kvt_content_parse(struct kvt_content *out, const char *name, struct kvt_error *err);
/* False where kvt_content_parse() fails. */
bool kvt_content_find(struct kvt_content *out, const char *name);
/* The name that finds it; empty for elements of one type. */
KVT_API struct kvt_text kvt_content_name(const struct kvt_content *content);
bool kvt_content_equal(const struct kvt_content *a, const struct kvt_content *b);

/* Bytes of a row that has a fixed number of them, else 0. */
int64_t kvt_content_row(const struct kvt_content *content);
/*
 * Rows of a kernel's page at most, where engines have the same for all: a block with
 * more of them is several pages, each with its own planes.  0: nothing known.
 */
int64_t kvt_content_page_rows(const struct kvt_content *content);
/* Bytes of a row of one head of so many numbers (or of its key); 0: none has them. */
int64_t kvt_content_row_of(const struct kvt_content *content, int64_t head_dim);

/* ---- which bytes are what ----------------------------------------------- */

enum kvt_field_role {
	KVT_FIELD_VALUES,	/* numbers, in the order of the model's */
	KVT_FIELD_SCALES,	/* what values are multiplied by, or what is added */
	KVT_FIELD_OTHER,	/* padding, or not documented */
};

/* In which basis a head vector is kept; decoding undoes it. */
enum kvt_rotation {
	KVT_ROTATION_NONE,
	KVT_ROTATION_HADAMARD,	/* by the normalised matrix of Sylvester */
	/*
	 * By signs, then by that matrix, not normalised, in blocks of the largest power
	 * of two that divides the size.
	 */
	KVT_ROTATION_SIGNED_HADAMARD,
};
const char *kvt_rotation_name(enum kvt_rotation rotation);	/* "hadamard" */

/* Where the scales of a row are. */
enum kvt_scale_order {
	KVT_SCALES_IN_ORDER,
	KVT_SCALES_BY_FOUR,	/* scale s at 8 * (s % 4) + s / 4: of nvfp4_ds_mla */
	KVT_SCALES_BY_ROWS,	/* of 4 rows together, scale by scale: of SM100 */
	KVT_NIBBLES_APART,	/* of a block: low halves of bytes, then high ones */
};

struct kvt_field {
	const char *name;		/* "nope", "scales", "rope" */
	enum kvt_field_role role;
	const char *type;		/* of an element: "float4_e2m1" */
	const struct kvt_dtype *dtype;	/* that type; NULL: no type of dumps */
	int bits;			/* of an element; if below 8, low bits first */
	int64_t count;			/* elements in a row */
	int64_t at, stride;		/* bytes: of row 0, and from row to row */
	int64_t block, step;		/* elements together, bytes to the next; 0, 0 */
	int scale, added;		/* fields: what multiplies, is added; or -1 */
	bool high;			/* the field before has the highest bit of each */
	/* Types that the number is rounded to, scaled and with what is added; or NULL. */
	const struct kvt_dtype *product, *result;
	enum kvt_rotation rotation;
	bool unit;			/* numbers of a vector whose norm is 'scale' */
	enum kvt_scale_order order;
	int coding;			/* not for callers */
};

/* Of so many elements together. */
static inline int64_t kvt_field_bytes_of(const struct kvt_field *field, int64_t count)
{
	return field->bits < 8 ? (count * field->bits + 7) / 8 :
				 count * (field->bits / 8);
}

/* Of a row. */
static inline int64_t kvt_field_bytes(const struct kvt_field *field)
{
	return kvt_field_bytes_of(field, field->count);
}

/* Of a row: in how many runs its elements are, and the elements of each. */
static inline int64_t kvt_field_runs(const struct kvt_field *field)
{
	return field->block ? field->count / field->block : 1;
}
static inline int64_t kvt_field_run(const struct kvt_field *field)
{
	return field->block ? field->block : field->count;
}

enum { KVT_MAX_FIELDS = 6 };

/* The bytes of one (slot, head, kv). */
struct kvt_packing {
	struct kvt_content content;
	int64_t nbytes;
	int64_t rows;			/* 1, or those of a page */
	int64_t row_values;		/* numbers in a row; 0: they cannot be read */
	int64_t row_tokens;		/* tokens that a row of a page stands for */
	int64_t heads;			/* rows of a page: heads, then tokens */
	int64_t dim;			/* of a head vector, if that varies; else 0 */
	int64_t fold;			/* head vectors in an undivided row; or 1 */
	int64_t turn[2];		/* as the content's, of a key and a value */
	int halves;			/* 2: a row is the numbers of a key, a value */
	int nfields;
	struct kvt_field field[KVT_MAX_FIELDS];
};

/*
 * The packing of a group of this shape; KVT_BAD_INPUT if it cannot have such
 * content: elements of more than a byte, rows of another size, heads or slots
 * where there is one row or page.
 */
KVT_MUST_CHECK enum kvt_status
kvt_packing_init(struct kvt_packing *out, const struct kvt_content *content,
		 const struct kvt_shape *shape, int64_t tokens_per_slot,
		 struct kvt_error *err);

/*
 * Can its numbers be read?  KVT_BAD_INPUT: which fp8 it is was not said, or how many
 * numbers a head has; KVT_UNSUPPORTED: no public description says how.
 */
KVT_MUST_CHECK enum kvt_status
kvt_packing_readable(const struct kvt_packing *packing, struct kvt_error *err);

static inline int64_t kvt_packing_values(const struct kvt_packing *packing)
{
	return packing->rows * packing->row_values;
}

/* Could keys or values be rotated, and it is not said? */
bool kvt_packing_may_turn(const struct kvt_packing *packing);

/* Where it is not said: rotated as llama.cpp does, or not.  Makes it readable. */
void kvt_packing_take_turn(struct kvt_packing *packing, bool rotated);

/* That of a field whose numbers are rotated where they are kept. */
enum kvt_rotation kvt_packing_rotation(const struct kvt_packing *packing);

/*
 * 'count' numbers from number 'first' on, row after row, each times its scale, in
 * the basis of the model: rotations are undone.  'kv' is 1 for a value, if keys and
 * values have a row each.  The arithmetic is that of doubles, but where an engine
 * rounds to a type, so that numbers are those that it computes.  Only of a packing that
 * is readable.
 */
void kvt_packing_decode(double *out, const struct kvt_packing *packing, int64_t kv,
			const void *bytes, int64_t first, int64_t count);

/*
 * Is it known how far numbers may be from what was rounded to them?  False where a
 * number comes from all of a vector, or an engine may have clipped or rounded it.
 */
bool kvt_packing_bounded(const struct kvt_packing *packing);
/* How far each of them may be (kvt_dtype_rounding()); only if that is known. */
void kvt_packing_rounding(double *out, const struct kvt_packing *packing, int64_t kv,
			  const void *bytes, int64_t first, int64_t count);

/* The byte at which the number begins. */
int64_t kvt_packing_at(const struct kvt_packing *packing, int64_t value);
/* Its bits as they are kept, without scale. */
uint64_t kvt_packing_bits(const struct kvt_packing *packing, const void *bytes,
			  int64_t value);

/* Element i of a row of a field, as a number without its scale. */
double kvt_field_number(const struct kvt_field *field, const void *bytes, int64_t row,
			int64_t i);

/* What a byte belongs to; of elements below a byte the first that begins in it. */
struct kvt_packed_element {
	int field;
	int64_t row, element;
};
/* False: to nothing (there are no such gaps in the types of today). */
bool kvt_packing_find(struct kvt_packed_element *out, const struct kvt_packing *packing,
		      int64_t byte);

/*
 * Would this layout keep each row in one run?  KVT_UNSUPPORTED if it splits D
 * or has another axis inside it; elements of one type may lie anyhow.
 */
KVT_MUST_CHECK enum kvt_status
kvt_content_keeps(const struct kvt_content *content, const struct kvt_layout *layout,
		  const struct kvt_shape *shape, struct kvt_error *err);

#ifdef __cplusplus
}
#endif

#endif
