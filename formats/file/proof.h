/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proof.h - checksums of the bytes of a file: what is read is held against them,
 * and what is written makes them
 *
 * kvt_file_read() and kvt_file_write() do both for a file that has a proof.
 */
#ifndef KVT_PROOF_H
#define KVT_PROOF_H

#include "formats/format.h"

enum { KVT_RANGE_BYTES = 64 << 10 };

struct kvt_proof_run {
	int64_t at, nbytes, nranges;	/* the last range may be shorter */
	uint64_t *sum;			/* [nranges], the caller's */
	_Atomic uint8_t *state;		/* [nranges] see proof.c */
};

struct kvt_proof {
	int nruns;
	struct kvt_proof_run run[2 * KVT_MAX_GROUPS];
};

int64_t kvt_range_count(int64_t nbytes);

/* 'sum', of that many ranges, is the caller's: known, or made of what is written. */
KVT_MUST_CHECK enum kvt_status
kvt_proof_add(struct kvt_proof *proof, int64_t at, int64_t nbytes, uint64_t *sum,
	      struct kvt_error *err);
void kvt_proof_free(struct kvt_proof *proof);

/* Hashes the ranges that no single write had whole, as they are in the file. */
KVT_MUST_CHECK enum kvt_status
kvt_proof_complete(const struct kvt_file *file, struct kvt_error *err);

#endif
