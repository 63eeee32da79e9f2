/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_trace.h - a timed transfer as a trace that Perfetto and Chrome show */
#ifndef KVTOOL_SIM_TRACE_H
#define KVTOOL_SIM_TRACE_H

#include <stdio.h>

#include "lib/ops/transfer/pairs.h"

/*
 * At most about 'most' slices of each kind: one stands for as many operations as
 * that takes, spread evenly over the time of their batch.
 */
KVT_MUST_CHECK enum kvt_status
sim_trace_write(FILE *f, const struct sim_pairs *pairs, int64_t most,
		struct kvt_error *err);

#endif
