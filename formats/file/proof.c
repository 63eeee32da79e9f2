/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proof.c - checksums of the bytes of a file, and reads and writes that go with them
 *
 * A run of a file is cut into ranges of 64 KiB, each with its XXH3.  A read of any
 * bytes hashes the whole ranges it touches, once each however often they are read;
 * a write hashes the ranges it has whole, and marks the others, which are read back
 * when the file is complete.  Cost: one pass over the bytes while they are in the
 * cache, and of ranges that a read touches in part one read more.
 *
 * A member of an archive has one CRC-32.  The ranges of it get theirs in the same way,
 * by any thread in any order; put together they are that of the member, for which the
 * ranges that nobody asked for are read at the end.
 */
#include "formats/file/proof.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "lib/base/grow.h"
#include "lib/tile/hash.h"

/*
 * Of a range.  Threads that meet at one do the same work twice; none of them
 * trusts a range that was not hashed.
 */
enum {
	UNKNOWN,		/* not read yet; nothing of it written yet */
	WHOLE,			/* the sum is that of all of its bytes */
	PARTIAL,		/* written in parts, so to be read at the end */
};

/* What a range of the file has of a range; all counted from the file's begin. */
struct part {
	int64_t range, begin, end;	/* of the range */
	int64_t from, to;		/* shared with the range */
};

int64_t kvt_range_count(int64_t nbytes)
{
	return nbytes / KVT_RANGE_BYTES + (nbytes % KVT_RANGE_BYTES != 0);
}

static void free_run(struct kvt_proof_run *run)
{
	free((void *)run->state);
	free((void *)run->crc);
	free(run->member);
}

/* Takes 'run', also when it fails.  Those of archives come in their order. */
static enum kvt_status add_run(struct kvt_file_proof *proof, struct kvt_proof_run *run,
			       struct kvt_error *err)
{
	int64_t n = proof->nruns, at = n;
	bool room = KVT_GROW(&proof->run, n);
	struct kvt_proof_run *more = proof->run;

	run->state = calloc((size_t)run->nranges + 1, sizeof(*run->state));
	if (!run->state || !room || (!run->sum && (!run->crc || !run->member))) {
		free_run(run);
		return kvt_fail(err, KVT_SYSTEM, "out of memory for %lld checksums",
				LL(run->nranges));
	}
	while (at > 0 && more[at - 1].at > run->at)
		at--;
	memmove(&more[at + 1], &more[at], (size_t)(n - at) * sizeof(*more));
	more[at] = *run;
	proof->nruns++;
	for (int64_t reach = at ? more[at - 1].reach : 0; at <= n; at++) {
		if (reach < more[at].at + more[at].nbytes)
			reach = more[at].at + more[at].nbytes;
		more[at].reach = reach;
	}
	return KVT_OK;
}

enum kvt_status kvt_proof_add(struct kvt_file_proof *proof, int64_t at, int64_t nbytes,
			      uint64_t *sum, struct kvt_error *err)
{
	struct kvt_proof_run run = { .at = at, .nbytes = nbytes, .sum = sum,
				     .nranges = kvt_range_count(nbytes) };

	return add_run(proof, &run, err);
}

enum kvt_status kvt_proof_add_member(struct kvt_file_proof *proof, int64_t at,
				     int64_t nbytes, uint32_t crc32, const char *member,
				     struct kvt_error *err)
{
	struct kvt_proof_run run = { .at = at, .nbytes = nbytes, .crc32 = crc32,
				     .nranges = kvt_range_count(nbytes),
				     .member = strdup(member) };

	run.crc = calloc((size_t)run.nranges + 1, sizeof(*run.crc));
	return add_run(proof, &run, err);
}

void kvt_proof_free(struct kvt_file_proof *proof)
{
	for (int64_t i = 0; i < proof->nruns; i++)
		free_run(&proof->run[i]);
	free(proof->run);
	*proof = (struct kvt_file_proof){ 0 };
}

/* ---- ranges of a range -------------------------------------------------- */

/* The first run that ends after 'offset': those before it have none of what follows. */
static int64_t first_run(const struct kvt_file_proof *proof, int64_t offset)
{
	int64_t from = 0, to = proof->nruns;

	while (from < to) {
		int64_t mid = from + (to - from) / 2;

		if (proof->run[mid].reach <= offset)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

/* The part of range 'i'; false: there is none, nor of those after it. */
static bool part_at(struct part *out, const struct kvt_proof_run *run, int64_t i,
		    int64_t offset, int64_t end)
{
	out->range = i;
	out->begin = run->at + i * KVT_RANGE_BYTES;
	out->end = out->begin + KVT_RANGE_BYTES;
	if (i >= run->nranges || out->begin >= end)
		return false;
	if (out->end > run->at + run->nbytes)
		out->end = run->at + run->nbytes;
	out->from = offset > out->begin ? offset : out->begin;
	out->to = end < out->end ? end : out->end;
	/* a range may begin after the run, where its last range would go on */
	return out->from < out->to;
}

static int64_t first_range(const struct kvt_proof_run *run, int64_t offset)
{
	return offset > run->at ? (offset - run->at) / KVT_RANGE_BYTES : 0;
}

static bool is_whole(const struct part *part)
{
	return part->from == part->begin && part->to == part->end;
}

/* As much as ends where a range does: it is hashed while it is in the cache. */
static int64_t step_bytes(const struct kvt_file_proof *proof, int64_t offset,
			  int64_t nbytes)
{
	enum { MOST = 2 * KVT_RANGE_BYTES };

	for (int64_t r = first_run(proof, offset); r < proof->nruns; r++) {
		const struct kvt_proof_run *run = &proof->run[r];

		if (offset < run->at)
			break;
		if (offset < run->at + run->nbytes) {
			int64_t most = MOST - (offset - run->at) % KVT_RANGE_BYTES;

			return nbytes < most ? nbytes : most;
		}
	}
	return nbytes;
}

/* The whole range as it is in the file. */
static enum kvt_status read_range(const struct kvt_file *file, const struct part *part,
				  uint8_t *range, struct kvt_error *err)
{
	return kvt_file_pread(file, range, part->end - part->begin, part->begin, err);
}

/* ---- reading ------------------------------------------------------------ */

static void collect(struct kvt_proof_run *run, const struct part *part,
		    const uint8_t *bytes)
{
	atomic_store(&run->crc[part->range],
		     (uint32_t)crc32_z(0, bytes, (size_t)(part->end - part->begin)));
	atomic_store(&run->state[part->range], WHOLE);
}

static enum kvt_status check_part(const struct kvt_file *file, struct kvt_proof_run *run,
				  const struct part *part, uint8_t *bytes,
				  struct kvt_error *err)
{
	uint8_t range[KVT_RANGE_BYTES];
	const uint8_t *whole = bytes;
	enum kvt_status status;
	uint64_t sum;

	if (!is_whole(part)) {
		if ((status = read_range(file, part, range, err)))
			return status;
		/* what was hashed is what the caller gets */
		memcpy(bytes, range + (part->from - part->begin),
		       (size_t)(part->to - part->from));
		whole = range;
	}
	if (!run->sum) {
		collect(run, part, whole);
		return KVT_OK;
	}
	sum = kvt_range_hash(whole, part->end - part->begin);
	if (sum != run->sum[part->range])
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: data is damaged between bytes %lld and %lld: XXH3 is %016llx, expected %016llx",
				file->path, LL(part->begin), LL(part->end),
				(unsigned long long)sum,
				(unsigned long long)run->sum[part->range]);
	atomic_store(&run->state[part->range], WHOLE);
	return KVT_OK;
}

static enum kvt_status check_bytes(const struct kvt_file *file, void *buf, int64_t nbytes,
				   int64_t offset, struct kvt_error *err)
{
	const struct kvt_file_proof *proof = file->proof;
	enum kvt_status status = KVT_OK;

	for (int64_t r = first_run(proof, offset);
	     r < proof->nruns && proof->run[r].at < offset + nbytes; r++) {
		struct kvt_proof_run *run = &proof->run[r];
		struct part part;

		if (atomic_load(&run->settled))
			continue;
		atomic_store(&run->touched, true);
		for (int64_t i = first_range(run, offset);
		     !status && part_at(&part, run, i, offset, offset + nbytes); i++)
			if (atomic_load(&run->state[i]) != WHOLE)
				status = check_part(file, run, &part, (uint8_t *)buf +
						    (part.from - offset), err);
	}
	return status;
}

enum kvt_status kvt_file_read(const struct kvt_file *file, void *buf, int64_t nbytes,
			      int64_t offset, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	uint8_t *to = buf;

	if (!file->proof)
		return kvt_file_pread(file, buf, nbytes, offset, err);
	while (!status && nbytes > 0) {
		int64_t n = step_bytes(file->proof, offset, nbytes);

		if (!(status = kvt_file_pread(file, to, n, offset, err)))
			status = check_bytes(file, to, n, offset, err);
		to += n;
		nbytes -= n;
		offset += n;
	}
	return status;
}

/* ---- one sum of all ------------------------------------------------------- */

static enum kvt_status settle_run(const struct kvt_file *file, struct kvt_proof_run *run,
				  const struct kvt_run *how, struct kvt_error *err)
{
	uint8_t range[KVT_RANGE_BYTES];
	enum kvt_status status;
	struct part part;
	uLong sum = 0;

	for (int64_t i = 0; part_at(&part, run, i, run->at, run->at + run->nbytes); i++) {
		if (how && how->cancelled && how->cancelled(how->context))
			return kvt_fail(err, KVT_SYSTEM, "interrupted");
		if (atomic_load(&run->state[i]) != WHOLE) {
			if ((status = read_range(file, &part, range, err)))
				return status;
			collect(run, &part, range);
		}
		sum = crc32_combine(sum, atomic_load(&run->crc[i]),
				    part.end - part.begin);
	}
	if ((uint32_t)sum != run->crc32)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: member %.100s is damaged: its CRC-32 is %08x, expected %08x", file->path, run->member, (unsigned)sum,
				(unsigned)run->crc32);
	atomic_store(&run->settled, true);
	return KVT_OK;
}

bool kvt_proof_settles(const struct kvt_file_proof *proof)
{
	for (int64_t i = 0; i < proof->nruns; i++)
		if (!proof->run[i].sum)
			return true;
	return false;
}

enum kvt_status kvt_proof_settle(const struct kvt_file *file, int64_t *i, bool all,
				 const struct kvt_run *how, struct kvt_error *err)
{
	struct kvt_file_proof *proof = file->proof;
	enum kvt_status status = KVT_OK;

	while (!status && *i < proof->nruns) {
		struct kvt_proof_run *run = &proof->run[(*i)++];

		if (!run->sum && !atomic_load(&run->settled) &&
		    (all || atomic_load(&run->touched)))
			status = settle_run(file, run, how, err);
	}
	return status;
}

/* ---- writing ------------------------------------------------------------ */

static void hash_bytes(const struct kvt_file *file, const void *buf, int64_t nbytes,
		       int64_t offset)
{
	struct kvt_file_proof *proof = file->proof;

	for (int64_t r = first_run(proof, offset);
	     r < proof->nruns && proof->run[r].at < offset + nbytes; r++) {
		struct kvt_proof_run *run = &proof->run[r];
		struct part part;

		for (int64_t i = first_range(run, offset);
		     part_at(&part, run, i, offset, offset + nbytes); i++) {
			const uint8_t *bytes = buf;

			bytes += part.from - offset;
			if (!is_whole(&part)) {
				atomic_store(&run->state[i], PARTIAL);
			} else if (atomic_load(&run->state[i]) != PARTIAL) {
				run->sum[i] = kvt_range_hash(bytes, part.to - part.from);
				atomic_store(&run->state[i], WHOLE);
			}
		}
	}
}

enum kvt_status kvt_file_write(const struct kvt_file *file, const void *buf,
			       int64_t nbytes, int64_t offset, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	const uint8_t *from = buf;

	if (!file->proof)
		return kvt_file_pwrite(file, buf, nbytes, offset, err);
	while (!status && nbytes > 0) {
		int64_t n = file->unit ? kvt_file_write_bytes(file, nbytes, offset) :
			    step_bytes(file->proof, offset, nbytes);

		for (int64_t at = 0, step; at < n; at += step) {
			step = step_bytes(file->proof, offset + at, n - at);
			hash_bytes(file, from + at, step, offset + at);
		}
		status = kvt_file_pwrite(file, from, n, offset, err);
		from += n;
		nbytes -= n;
		offset += n;
	}
	return status;
}

enum kvt_status kvt_proof_complete(const struct kvt_file *file, struct kvt_error *err)
{
	struct kvt_file_proof *proof = file->proof;
	uint8_t range[KVT_RANGE_BYTES];

	for (int64_t r = 0; r < proof->nruns; r++) {
		struct kvt_proof_run *run = &proof->run[r];
		struct part part;

		for (int64_t i = 0; part_at(&part, run, i, run->at,
					    run->at + run->nbytes); i++) {
			enum kvt_status status;

			if (atomic_load(&run->state[i]) == WHOLE)
				continue;
			if ((status = read_range(file, &part, range, err)))
				return status;
			run->sum[i] = kvt_range_hash(range, part.end - part.begin);
		}
	}
	return KVT_OK;
}

/* ---- small files, whole ---------------------------------------------------- */

enum kvt_status kvt_read_whole(char **bytes, int64_t *nbytes, const char *path,
			       int64_t most, const char *what, struct kvt_error *err)
{
	struct kvt_files files = { 0 };
	enum kvt_status status;
	int index;

	*bytes = NULL;
	if ((status = kvt_files_open(&files, &index, path, err)))
		return status;
	*nbytes = files.file[index].nbytes;
	if (*nbytes > most)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: %lld bytes are too many for %s, at most %lld",
				  path, LL(*nbytes), what, LL(most));
	else if (!(*bytes = malloc((size_t)*nbytes + 1)))
		status = kvt_no_memory(err, path);
	else
		status = kvt_file_read(&files.file[index], *bytes, *nbytes, 0, err);
	kvt_files_close(&files);
	if (!status)
		(*bytes)[*nbytes] = '\0';
	if (status) {
		free(*bytes);
		*bytes = NULL;
	}
	return status;
}
