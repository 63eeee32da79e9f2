/* SPDX-License-Identifier: Apache-2.0 */
/* time.h - the outputs of transfer-sim time; for sim_time*.c only */
#ifndef KVTOOL_SIM_TIME_H
#define KVTOOL_SIM_TIME_H

#include "lib/ops/transfer/clock.h"

struct time_report {
	const struct sim *sim;		/* no group: a uniform batch */
	const struct posts_how *how;
	const struct posts *posts;
	const struct clock_times *times;
	bool closed_form;
};
void time_text(const struct time_report *report);
KVT_MUST_CHECK enum kvt_status
time_json(const struct time_report *report, struct kvt_error *err);

/* One line an operation, in the order of posting. */
KVT_MUST_CHECK enum kvt_status
time_csv(const struct time_report *report, struct kvt_error *err);

#endif
