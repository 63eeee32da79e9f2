/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn.h - who comes while another is at it sleeps until that is through
 *
 * For what a system lets one thread do at a time anyway, while the others spin.
 */
#ifndef KVT_TURN_H
#define KVT_TURN_H

#include "lib/kvt/kvt.h"

struct turn;

KVT_MUST_CHECK enum kvt_status turn_new(struct turn **out, struct kvt_error *err);
void turn_free(struct turn *turn);

/* Of NULL, which is no turn, nothing happens, nor in turn_free(). */
void turn_take(struct turn *turn);
void turn_give(struct turn *turn);

#endif
