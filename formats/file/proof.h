/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proof.h - checksums of the bytes of a file: what is read is held against them,
 * and what is written makes them
 *
 * kvt_file_read() and kvt_file_write() do both for a file that has a proof.  Where
 * each range of a run has a sum, a read refuses damage at once.  Where one sum is of
 * the whole run, reading only collects, and nothing that was read may be believed
 * before kvt_proof_settle() has seen the rest.
 */
#ifndef KVT_PROOF_H
#define KVT_PROOF_H

#include "formats/format.h"
#include "lib/kvt/run.h"

enum { KVT_RANGE_BYTES = 64 << 10 };

struct kvt_proof_run {
	int64_t at, nbytes, nranges;	/* the last range may be shorter */
	int64_t reach;			/* where this one and those before it end */
	uint64_t *sum;			/* [nranges], the caller's; NULL: one of all */
	_Atomic uint8_t *state;		/* [nranges] see proof.c */
	/* one CRC-32 of all */
	char *member;			/* what the archive calls it; owned */
	uint32_t crc32;
	_Atomic uint32_t *crc;		/* [nranges] of those that are WHOLE */
	_Atomic bool touched, settled;
};

struct kvt_file_proof {
	int64_t nruns;
	struct kvt_proof_run *run;	/* owned; by 'at' */
};

int64_t kvt_range_count(int64_t nbytes);

/* 'sum', of that many ranges, is the caller's: known, or made of what is written. */
KVT_MUST_CHECK enum kvt_status
kvt_proof_add(struct kvt_file_proof *proof, int64_t at, int64_t nbytes, uint64_t *sum,
	      struct kvt_error *err);
/* A member of an archive, which has one sum of all of its bytes. */
KVT_MUST_CHECK enum kvt_status
kvt_proof_add_member(struct kvt_file_proof *proof, int64_t at, int64_t nbytes,
		     uint32_t crc32, const char *member, struct kvt_error *err);
void kvt_proof_free(struct kvt_file_proof *proof);

/* Are there any members? */
bool kvt_proof_settles(const struct kvt_file_proof *proof);
/*
 * Holds members from *i on, of which something was read (or 'all'), against their
 * sums, and reads what is missing of them.  After KVT_BAD_INPUT *i is the member after
 * the damaged one.  What was settled once costs nothing more; from any thread.
 */
KVT_MUST_CHECK enum kvt_status
kvt_proof_settle(const struct kvt_file *file, int64_t *i, bool all,
		 const struct kvt_run *run, struct kvt_error *err);

/* Hashes the ranges that no single write had whole, as they are in the file. */
KVT_MUST_CHECK enum kvt_status
kvt_proof_complete(const struct kvt_file *file, struct kvt_error *err);

#endif
