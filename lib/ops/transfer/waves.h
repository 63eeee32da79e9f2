/* SPDX-License-Identifier: Apache-2.0 */
/* waves.h - which requests of a dump can move together */
#ifndef KVTOOL_SIM_WAVES_H
#define KVTOOL_SIM_WAVES_H

#include "lib/ops/transfer/transfer.h"

/*
 * Requests that move together.  A state that the destination shares is written
 * once, by the first.  A source state that goes to two places cannot be in one
 * transfer: the second request is left to another wave.
 */
struct wave {
	struct sim_move *move;
	int64_t nmoves, room;
	uint8_t *read;			/* bit: this source state is moved */
};

struct waves {
	struct wave *wave;
	int n;
	uint8_t *written;		/* bit: this destination state is, by any */
};

/* The tables hold all of the range, and their pools are the same in all calls. */
KVT_MUST_CHECK enum kvt_status
waves_add(struct waves *waves, const struct sim_move *move, struct kvt_error *err);
void waves_free(struct waves *waves);

#endif
