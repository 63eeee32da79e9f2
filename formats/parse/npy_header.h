/* SPDX-License-Identifier: Apache-2.0 */
/* npy_header.h - the header of a .npy file */
#ifndef KVT_NPY_HEADER_H
#define KVT_NPY_HEADER_H

#include "formats/format.h"

enum {
	KVT_NPY_MAX_TEXT = 10000,	/* numpy's own limit for what it parses */
	KVT_NPY_MAX_HEAD = 12 + KVT_NPY_MAX_TEXT,
	KVT_NPY_MAX_RANK = 32,
};

struct kvt_npy_header {
	char descr[16];			/* "<u2" */
	/* What the descriptor means; NULL where it only carries bits. */
	const struct kvt_dtype *dtype;
	int64_t elem;
	int rank;
	int64_t shape[KVT_NPY_MAX_RANK];
	int64_t data;			/* offset of the first element */
	int64_t nbytes;			/* of all elements */
};

/*
 * Reads a header from the first bytes of a file.  Nothing in it is evaluated:
 * it is a dict of three known keys, or KVT_BAD_INPUT.  Arrays that cannot be
 * read in place (big-endian, Fortran order, objects, records) are
 * KVT_UNSUPPORTED.
 */
KVT_MUST_CHECK enum kvt_status
kvt_npy_parse(struct kvt_npy_header *out, const uint8_t *head, int64_t nhead,
	      const char *name, struct kvt_error *err);

/* The same from an open file, which the array fills to its end (tensor/npy.c). */
KVT_MUST_CHECK enum kvt_status
kvt_npy_read(struct kvt_npy_header *out, const struct kvt_file *file,
	     struct kvt_error *err);

/*
 * Writes a version 1 header whose length is a multiple of 64; returns that
 * length.  'head' has KVT_NPY_MAX_HEAD bytes, which a rank of 8 cannot exceed.
 */
int64_t kvt_npy_print(uint8_t *head, const char *descr, int rank, const int64_t *shape);

#endif
