/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h - what kvtool doctor has found out, and printing it */
#ifndef KVTOOL_PRINT_DOCTOR_H
#define KVTOOL_PRINT_DOCTOR_H

#include "lib/ops/check/check.h"
#include "lib/ops/describe/describe.h"
#include "lib/ops/guess/guess.h"
#include "print/diff.h"
#include "print/out/json_out.h"

/* A dump, and what was found in it alone. */
struct patient {
	const char *name;
	struct kvt_dump *dump;		/* NULL: it could not be opened */
	struct kvt_error refused;	/* then why */
	enum kvt_status status;		/* of opening and reading it */
	struct kvt_description *facts;
	struct kvt_findings check;
	struct kvt_strangeness *strange;	/* [groups] */
	/* The layout is what the data speaks for: nothing said one, or another one. */
	char guessed[384];		/* " --layout=hnd --dtype=..."; or "" */
	bool contradicted;
	struct kvt_guess_pages *pages;	/* [groups] order that the data contradicts */
};

enum doctor_verdict {
	DOCTOR_SOUND,			/* one dump, and nothing wrong was found */
	DOCTOR_SAME,			/* two, they hold the same, nothing wrong */
	DOCTOR_WRONG,			/* one of them has something wrong in itself */
	DOCTOR_DIFFERS,
	DOCTOR_APART,			/* they cannot be compared */
	DOCTOR_UNREADABLE,
};

struct doctor {
	int npatients;
	struct patient patient[NSIDES];
	struct diff *diff;		/* NULL: there was none */
	bool compared;
	struct kvt_error apart;		/* why they were not */
	enum doctor_verdict verdict;
	char sentence[1024];		/* the verdict in words */
	char next[2048];		/* a command that can be typed; "": none */
};

/* Of the first group whose data contradicts its layout; or NULL. */
const struct kvt_guess_pages *patient_pages(const struct patient *p);
void doctor_text(const struct doctor *d);
void doctor_json(struct json_out *out, const struct doctor *d);

#endif
