/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proof.h - checksums of the bytes of a file: what is read is held against them,
 * and what is written makes them
 *
 * A run of a file is cut into pieces, each with its XXH3.  A reader may ask for
 * any bytes: of what it touches, whole pieces are read, hashed and marked, so
 * that a piece costs this once however often it is read.
 */
#ifndef KVT_PROOF_H
#define KVT_PROOF_H

#include "formats/format.h"

enum { KVT_PIECE_BYTES = 64 << 10 };

struct kvt_run {
	int64_t at, nbytes, npieces;	/* the last piece may be shorter */
	uint64_t *sum;			/* [npieces], the caller's */
	_Atomic uint8_t *state;		/* [npieces] see proof.c */
};

struct kvt_proof {
	int nruns;
	struct kvt_run run[2 * KVT_MAX_GROUPS];
};

int64_t kvt_piece_count(int64_t nbytes);

/* 'sum', of that many pieces, is the caller's: known, or made of what is written. */
KVT_MUST_CHECK enum kvt_status
kvt_proof_add(struct kvt_proof *proof, int64_t at, int64_t nbytes, uint64_t *sum,
	      struct kvt_error *err);
void kvt_proof_free(struct kvt_proof *proof);

/*
 * How much to read or write at once: to where a piece ends, so that it is hashed
 * while it is in the cache.
 */
int64_t kvt_proof_step(const struct kvt_proof *proof, int64_t offset, int64_t nbytes);

/*
 * What kvt_file_read() does with the bytes it has read of a file with a proof:
 * KVT_BAD_INPUT if they are not what was written.
 */
KVT_MUST_CHECK enum kvt_status
kvt_proof_check(const struct kvt_file *file, void *buf, int64_t nbytes, int64_t offset,
		struct kvt_error *err);

/* What kvt_file_write() does with the bytes that it writes. */
void kvt_proof_note(const struct kvt_file *file, const void *buf, int64_t nbytes,
		    int64_t offset);
/* Hashes the pieces that no single write had whole, as they are in the file. */
KVT_MUST_CHECK enum kvt_status
kvt_proof_complete(const struct kvt_file *file, struct kvt_error *err);

#endif
