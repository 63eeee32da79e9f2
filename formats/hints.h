/* SPDX-License-Identifier: Apache-2.0 */
/* hints.h - what a user says of an input: for filling gaps, and against the file */
#ifndef KVT_HINTS_H
#define KVT_HINTS_H

#include "lib/kvt/dump.h"

struct kvt_format;
struct kvt_reader;

/* Hints that are not of groups, and mean something to some formats only. */
enum { KVT_TAKES_MANIFEST = 1, KVT_TAKES_SKIP = 2, KVT_TAKES_PROMPT = 4 };

/* What is said of a group: of it, else of all.  'hints' may be NULL. */
struct kvt_hints kvt_hints_of(const struct kvt_hints *hints, const char *group);

/*
 * The one form in which what was said of an input is refused, KVT_BAD_INPUT unless
 * 'status' says more: "FILE: --NAME is SAID, but ...".
 */
KVT_MUST_CHECK enum kvt_status
kvt_hint_denied(struct kvt_error *err, enum kvt_status status, const char *path,
		const char *name, const struct kvt_hints *hints, const char *format, ...)
	KVT_PRINTF(6, 7);

/* Before it is opened: KVT_USAGE for words that mean nothing, or not to the format. */
KVT_MUST_CHECK enum kvt_status
kvt_hints_check(const struct kvt_hints *hints, const struct kvt_format *format,
		const char *path, struct kvt_error *err);
/* Only numbers: of a snapshot that was made without them. */
KVT_MUST_CHECK enum kvt_status
kvt_hints_compare_numbers(const struct kvt_hints *hints, const struct kvt_snapshot *s,
			  const char *path, struct kvt_error *err);
/* Afterwards: KVT_BAD_INPUT if the snapshot says anything else. */
KVT_MUST_CHECK enum kvt_status
kvt_hints_compare(const struct kvt_hints *hints, const struct kvt_reader *reader,
		  struct kvt_error *err);

/* ---- filling: describe/fill.c -------------------------------------------- */

/* The type of elements that the file calls 'own' (or NULL): integers may carry others. */
const struct kvt_dtype *kvt_hint_dtype(const struct kvt_dtype *own,
				       const struct kvt_hints *hints, const char *group);
/* KVT_USAGE if content that nothing else says is said to be two things. */
KVT_MUST_CHECK enum kvt_status
kvt_hint_content(const struct kvt_hints *said, struct kvt_error *err);
/*
 * Heads that rows of 'width' elements are of, which nothing but --heads or --head-dim
 * says; KVT_BAD_INPUT if neither does, or if they do not divide the rows.
 */
KVT_MUST_CHECK enum kvt_status
kvt_hint_heads(int64_t *heads, int64_t width, const struct kvt_hints *hints,
	       const char *path, struct kvt_error *err);

/* The numbers that all layers of hints->model have, where nothing is said of them. */
KVT_MUST_CHECK enum kvt_status
kvt_hints_of_model(struct kvt_hints *hints, struct kvt_error *err);

#endif
