/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_measured.c - any text as the output of a benchmark and as a link file: it
 * is refused, or its figures are in range
 */
#include <math.h>
#include <stdlib.h>

#include "formats/log/link_file.h"
#include "lib/transfer/link_fit.h"
#include "formats/log/measured.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void try_rows(const char *text, size_t size)
{
	static struct measured m;
	struct kvt_link link = { .name = "fuzz" };

	if (measured_parse(&m, text, size, 3, "fuzz", NULL))
		return;
	check(m.n > 0 && m.n <= MEASURED_MOST && m.format);
	for (int i = 0; i < m.n; i++) {
		const struct kvt_measured *r = &m.row[i];

		check(r->n >= 1 && r->bytes > 0 && r->us > 0 && r->post_us >= 0);
		check(isfinite(r->n) && isfinite(r->bytes) && isfinite(r->us));
	}
	if (m.n > 8)
		return;
	kvt_link_fit(&link, m.row, m.n, KVT_OVERLAP_FULL);
	check(!kvt_link_check(&link, NULL));
}

static void try_link(const char *text, size_t size)
{
	struct link_file link;

	if (link_parse(&link, text, size, "fuzz", NULL))
		return;
	check(!kvt_link_check(&link.link, NULL) && link.link.post_ps <= link.link.op_ps);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_rows((const char *)data, size);
	try_link((const char *)data, size);
	return 0;
}
