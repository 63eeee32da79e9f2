/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derive.h - how a dump is made of dumps: steps, composed with what the sources are
 *
 * Each of slice, merge, reblock, graft, join, select says what every group of the result
 * takes of which source; derive() meets that with the parts of these (lib/dump/map.h).
 */
#ifndef KVT_DERIVE_STEPS_H
#define KVT_DERIVE_STEPS_H

#include "lib/dump/map.h"

/*
 * A dump on its way: fill snapshot and groups (zeroed before), then derive().  All
 * lists are allocated with malloc() and belong to the derivation.
 */
struct derivation {
	int nsources;
	const struct kvt_dump *const *source;	/* borrowed */
	struct kvt_snapshot snapshot;
	struct step_group group[KVT_MAX_GROUPS];
};

/* All of group 'index' of source 0. */
KVT_MUST_CHECK enum kvt_status
step_whole(struct step_group *step, const struct kvt_group *group, int index,
	   struct kvt_error *err);

/*
 * Composes, where 'filled' says that the derivation was filled, and otherwise is the
 * answer; frees it, whose snapshot the dump has then, in any case.
 */
KVT_MUST_CHECK enum kvt_status
derive(struct kvt_dump **out, struct derivation *d, enum kvt_status filled,
       struct kvt_error *err);

#endif
