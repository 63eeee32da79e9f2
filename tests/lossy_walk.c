/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lossy_walk.c - a wrong plan for the program to find: linked with it in place of
 * kvt_xfer_region_next(), it loses the first region of all
 */
#include <stdatomic.h>

#include "lib/kvt/transfer.h"

bool __real_kvt_xfer_region_next(struct kvt_xfer_region *out,
				 struct kvt_xfer_regions *regions);
bool __wrap_kvt_xfer_region_next(struct kvt_xfer_region *out,
				 struct kvt_xfer_regions *regions);

bool __wrap_kvt_xfer_region_next(struct kvt_xfer_region *out,
				 struct kvt_xfer_regions *regions)
{
	static atomic_flag lost = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&lost) &&
	    !__real_kvt_xfer_region_next(out, regions))
		return false;
	return __real_kvt_xfer_region_next(out, regions);
}
