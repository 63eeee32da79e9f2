/* SPDX-License-Identifier: Apache-2.0 */
/* dump.c - all that is looked for in one dump, in the order in which it is told */
#include "lib/ops/check/check.h"

#include <stdio.h>

static struct kvt_looked_at looked_at(const struct kvt_dump *dump, bool data)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	struct kvt_looked_at out = {
		.files = kvt_dump_files(dump),
		.bytes = kvt_dump_file_bytes(dump),
		.groups = s->ngroups,
		.data = data,
		.checks = kvt_dump_checks(dump),
		.unlisted = kvt_dump_unlisted(dump),
	};

	for (int g = 0; g < s->ngroups; g++)
		out.blocks += s->group[g].shape.n[KVT_AXIS_B];
	return out;
}

enum kvt_status kvt_check_dump(struct kvt_findings *r, struct kvt_dump *dump,
			       const char *path, bool data, const struct kvt_run *run,
			       struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);

	snprintf(r->format, sizeof(r->format), "%s", kvt_dump_format(dump));
	r->looked = looked_at(dump, data);
	if (!kvt_check_tables(r, s) || !kvt_check_layers(r, s))
		r->out_of_memory = true;
	kvt_check_heads(r, s);
	return data ? kvt_check_data(r, dump, path, run, err) : KVT_OK;
}
