/* SPDX-License-Identifier: Apache-2.0 */
/* duty.h - whose a slot is, for who looks at what slots hold */
#ifndef KVT_DUTY_H
#define KVT_DUTY_H

#include "lib/ops/numbers/numbers.h"

struct duties {
	const struct kvt_snapshot *snapshot;
	const struct kvt_group *group;
	int g;
	/* [B] 0: in no table; else 1 + the slots before its first token */
	uint32_t *used;			/* NULL: not known */
	bool *live;			/* [B][S] of a group that forgets; else NULL */
	uint32_t *tokens;		/* [B][S] of slots of several; NULL: all */
	bool overlaid;			/* what is stale may be of another group */
};
bool duties_init(struct duties *d, const struct kvt_snapshot *s, int g);
void duties_free(struct duties *d);
/* Does the dump say of any slot that it is live? */
bool duties_known(const struct duties *d);
enum kvt_duty duty_of(const struct duties *d, int64_t block, int64_t slot);
/* Are all tokens there that the row of a page, or all of a slot, stands for? */
bool duty_is_full(const struct duties *d, const struct kvt_numbers *n, int64_t block,
		  int64_t slot, int64_t row);

#endif
