/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lossy_graft.c - a wrong transfer for the program to find: linked with it in place of
 * kvt_dump_graft(), it loses the last run of slots of the first group
 */
#include <string.h>

#include "lib/kvt/derive.h"

enum kvt_status __real_kvt_dump_graft(struct kvt_dump **out, const struct kvt_dump *base,
				      const struct kvt_dump *donor,
				      const struct kvt_graft graft[KVT_MAX_GROUPS],
				      struct kvt_error *err);
enum kvt_status __wrap_kvt_dump_graft(struct kvt_dump **out, const struct kvt_dump *base,
				      const struct kvt_dump *donor,
				      const struct kvt_graft graft[KVT_MAX_GROUPS],
				      struct kvt_error *err);

enum kvt_status __wrap_kvt_dump_graft(struct kvt_dump **out, const struct kvt_dump *base,
				      const struct kvt_dump *donor,
				      const struct kvt_graft graft[KVT_MAX_GROUPS],
				      struct kvt_error *err)
{
	struct kvt_graft less[KVT_MAX_GROUPS];

	memcpy(less, graft, sizeof(less));
	less[0].nspans -= less[0].nspans > 0;
	return __real_kvt_dump_graft(out, base, donor, less, err);
}
