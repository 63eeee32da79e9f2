/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coded.h - keys or values of a layer that a quantiser of transformers has packed
 *
 * [batch, heads, tokens, elements], whose first tokens are codes and the others numbers.
 * Groups of codes have a scale each, and run across tokens and heads, as the bits of a
 * unit do; so elements have no bytes, and are worked out when they are read: what the
 * quantiser's own dequantize() gives, rounded where that rounds.
 */
#ifndef KVT_CODED_H
#define KVT_CODED_H

#include "formats/tensor/tensors.h"

enum { CODED_BATCH, CODED_HEADS, CODED_TOKENS, CODED_DIM, CODED_RANK };

/*
 * A table of codes; element e of the coded tokens, counted as they lie, is in row
 * e / columns, column e % columns.  Rows are stored together in 'per' parts: the unit in
 * row r has the codes of rows r, r + step, r + 2 step, ...
 */
struct kvt_code_table {
	int64_t rows, columns, step;
	int64_t at;			/* of the units; byte of the file */
	int unit;			/* bytes */
	int bits, per;			/* of a code; codes of a unit */
	bool high_first;		/* the first part is in its highest bits */
	/*
	 * Or a row is a place in a group, and a column a group of one of 'dim' elements:
	 * element d of token-and-head i is in row i % rows and column
	 * d * columns / dim + i / rows.
	 */
	bool turned;
};

struct kvt_coded {
	struct kvt_computed computed;	/* first */
	const struct kvt_files *files;	/* where the codes are */
	int file;
	const char *quantiser;		/* "HQQ" */
	int nbits;			/* as it says itself */
	int64_t shape[CODED_RANK];
	int64_t ncoded;			/* tokens */
	const struct kvt_dtype *dtype;	/* of the elements */

	struct kvt_code_table table;
	bool row_scales;		/* one for each row; false: for each column */
	bool scale_first;	/* code * scale - zero; else (code - zero) * scale */
	const struct kvt_dtype *type;	/* of scales and zeros, and of each result */
	int64_t scale, zero;		/* bytes of the file */

	const struct kvt_dtype *rest_type;	/* NULL: all tokens are codes */
	int64_t rest, rest_stride[CODED_RANK];	/* byte of the file; bytes */
};

/* All elements; the caller has seen that codes and numbers are as many in the file. */
int64_t kvt_coded_bytes(const struct kvt_coded *coded);

/*
 * Makes files of the reader of those among the tensors, which were read from 'file', and
 * says of the dump what they were.
 */
KVT_MUST_CHECK enum kvt_status
kvt_coded_files(struct kvt_reader *reader, int file, struct kvt_tensors *tensors,
		struct kvt_error *err);

#endif
