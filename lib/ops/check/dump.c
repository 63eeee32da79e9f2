/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump.c - all that is looked for in one dump, in the order in which it is told
 *
 * Tables, layers, heads and contents, which follow from what the dump says of itself;
 * then all data, where that is asked for.  If reading fails, what was found until then
 * stays, and r->cut says that it is not all.  kvt_check() is the same for the library,
 * and makes KVT_MISMATCH of errors and warnings.
 */
#include "lib/kvt/ops.h"
#include "lib/ops/check/check.h"
#include "lib/ops/check/integrity.h"
#include "lib/run/leaf.h"

#include <stdio.h>
#include <string.h>

static struct kvt_looked_at looked_at(const struct kvt_dump *dump, bool data)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);
	struct kvt_looked_at out = {
		.files = kvt_dump_files(dump),
		.bytes = kvt_dump_file_bytes(dump),
		.groups = s->ngroups,
		.data = data,
		.members = data && leaf && leaf->settles,
		.checks = kvt_dump_checks(dump),
		.unlisted = kvt_dump_unlisted(dump),
		.files_of = kvt_dump_files_of(dump),
	};

	for (int g = 0; g < s->ngroups; g++) {
		out.blocks += s->group[g].shape.n[KVT_AXIS_B];
		out.checksums += data && kvt_checksum_name(dump, g);
	}
	return out;
}

enum kvt_status kvt_check_dump(struct kvt_findings *r, struct kvt_dump *dump,
			       const char *path, bool data, const struct kvt_run *run,
			       struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	const char *unnoticed = kvt_dump_unnoticed(dump);
	const char *written_by = kvt_dump_written_by(dump);
	enum kvt_status status;

	snprintf(r->format, sizeof(r->format), "%s", kvt_dump_format(dump));
	r->looked = looked_at(dump, data);
	/* findings outlive the dump, which may have made the text */
	if (unnoticed && !(r->looked.unnoticed = strdup(unnoticed)))
		r->out_of_memory = true;
	if (written_by && !(r->looked.written_by = strdup(written_by)))
		r->out_of_memory = true;
	if (!kvt_check_tables(r, s) || !kvt_check_layers(r, s))
		r->out_of_memory = true;
	kvt_check_heads(r, s);
	kvt_check_contents(r, s);
	if (!data || !(status = kvt_check_data(r, dump, path, run, err)))
		return KVT_OK;
	r->looked.data = false;
	r->cut = true;
	return status;
}

enum kvt_status kvt_check(const struct kvt_dump *dump, bool data,
			  void (*found)(void *context,
					const struct kvt_broken_rule *rule),
			  void *context, const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_run quiet = { 0 };
	struct kvt_findings r = { .path = "" };
	const char *path = kvt_dump_path(dump);
	enum kvt_status status;

	status = kvt_check_dump(&r, (struct kvt_dump *)(uintptr_t)dump, path ? path : "",
				data, run ? run : &quiet, err);
	if (!status && r.out_of_memory)
		status = kvt_no_memory(err, NULL);
	for (int i = 0; !status && found && i < r.nfindings; i++) {
		const struct kvt_rule *rule = kvt_rule_at(r.finding[i].rule);

		found(context, &(struct kvt_broken_rule){ rule->name,
			kvt_severity_name(rule->severity), r.finding[i].at,
			r.finding[i].text });
	}
	if (!status && r.total[KVT_ERROR] + r.total[KVT_WARNING])
		status = kvt_fail(err, KVT_MISMATCH, "%lld errors, %lld warnings",
				  LL(r.total[KVT_ERROR]), LL(r.total[KVT_WARNING]));
	kvt_findings_free(&r);
	return status;
}
