/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_regions.c - any text as a table of regions: it is refused with a reason, or can
 * be checked, and compared with itself without a byte that goes astray
 */
#include <stdint.h>
#include <stdlib.h>

#include "formats/log/regions.h"
#include "lib/ops/regions/regions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool good)
{
	if (!good)
		abort();
}

/* From a table without an error to itself everything arrives, if it can be compared. */
static void compare(const struct kvt_region_table *t, bool sound)
{
	struct kvt_findings r = { .nfindings = 0 };
	struct kvt_regions_arrived arrived;
	struct kvt_error err = { "" };

	if (kvt_regions_transfer(&r, &arrived, t, t, &err))
		need(err.text[0] != '\0');
	else if (sound)
		need(!t->by_layer || arrived.whole <= arrived.views);
	if (!err.text[0] && sound && !t->by_layer)
		need(arrived.whole == arrived.views && !r.total[KVT_ERROR]);
	kvt_findings_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_findings r = { .nfindings = 0 };
	struct kvt_error err = { "" };
	struct kvt_regions regions;

	if (kvt_regions_parse(&regions, (const char *)data, size, "table", &err)) {
		need(err.text[0] != '\0');
		return 0;
	}
	if (kvt_regions_check(&r, &regions.table))
		compare(&regions.table, !r.total[KVT_ERROR]);
	kvt_findings_free(&r);
	kvt_regions_free(&regions);
	return 0;
}
