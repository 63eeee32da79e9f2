/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h - what the files of kvtool doctor share */
#ifndef KVTOOL_CMD_DOCTOR_H
#define KVTOOL_CMD_DOCTOR_H

#include "print/doctor.h"

/* Options of the command line that describe inputs, as they were typed. */
enum { DOCTOR_WORDS = 64 };
struct doctor_said {
	int n;
	const char *word[DOCTOR_WORDS];
	bool of_sides;			/* --a or --b among them: only diff has these */
};

/* Fills verdict, sentence and next; the status that the command ends with. */
enum kvt_status doctor_judge(struct doctor *d, const struct doctor_said *said);

#endif
