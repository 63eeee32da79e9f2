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

/* Names are those of the presets of kvt_spec.h where there is one. */
struct kvt_content_type {
	const char *name;	/* "fp8-ds-mla" */
	const char *what;	/* a few words on what it is */
	enum kvt_kind kind;	/* of a group that holds it */
	int64_t ratio;		/* tokens a row stands for */
	bool planar;		/* a block is one page of planes: its only slot */
	bool pairs;		/* keys and values have a row each */
};
const struct kvt_content_type *kvt_content_type_at(int i);	/* NULL past the last */

/* All zeros: elements of one type, which the group names. */
struct kvt_content {
	const struct kvt_content_type *type;
	const struct kvt_dtype *fp8;	/* which of the fp8 types; NULL: not said */
};

/*
 * "fp8-ds-mla", "indexer/e4m3fnuz": a type and, where engines differ, which fp8
 * it is made of.  Case does not matter, nor do dash and underscore differ.
 * False if there is none of that name.
 */
bool kvt_content_find(struct kvt_content *out, const char *name);
/* The name that finds it; empty for elements of one type. */
struct kvt_text kvt_content_name(const struct kvt_content *content);
bool kvt_content_equal(const struct kvt_content *a, const struct kvt_content *b);

/* Bytes of a row that has a fixed number of them, else 0. */
int64_t kvt_content_row(const struct kvt_content *content);

/* ---- which bytes are what ----------------------------------------------- */

enum kvt_field_role {
	KVT_FIELD_VALUES,	/* numbers, in the order of the model's */
	KVT_FIELD_SCALES,	/* what values are multiplied by */
	KVT_FIELD_OTHER,	/* padding, or not documented */
};

struct kvt_field {
	const char *name;		/* "nope", "scales", "rope" */
	enum kvt_field_role role;
	const struct kvt_dtype *dtype;	/* of an element; uint8: bytes as they are */
	int64_t count;			/* elements in a row */
	int64_t at, stride;		/* bytes: of row 0, and from row to row */
	int scale;			/* field of their scales; -1: none */
};

enum { KVT_MAX_FIELDS = 4 };

/* The bytes of one (slot, head, kv). */
struct kvt_packing {
	struct kvt_content content;
	int64_t nbytes;
	int64_t rows;			/* 1, or those of a page */
	int64_t row_values;		/* numbers in a row; 0: they cannot be read */
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
 * Can its numbers be read?  KVT_BAD_INPUT: which fp8 it is was not said;
 * KVT_UNSUPPORTED: no public description says how.
 */
KVT_MUST_CHECK enum kvt_status
kvt_packing_readable(const struct kvt_packing *packing, struct kvt_error *err);

static inline int64_t kvt_packing_values(const struct kvt_packing *packing)
{
	return packing->rows * packing->row_values;
}

/*
 * 'count' numbers from number 'first' on, row after row, each times its scale.
 * The product is that of doubles.  Only of a packing that is readable.
 */
void kvt_packing_decode(double *out, const struct kvt_packing *packing,
			const void *bytes, int64_t first, int64_t count);

/* How far each of them may be from what was rounded to it (kvt_dtype_rounding()). */
void kvt_packing_rounding(double *out, const struct kvt_packing *packing,
			  const void *bytes, int64_t first, int64_t count);

/* The byte at which the number begins. */
int64_t kvt_packing_at(const struct kvt_packing *packing, int64_t value);

/* What a byte belongs to. */
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
