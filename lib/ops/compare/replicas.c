/* SPDX-License-Identifier: Apache-2.0 */
/* replicas.c - do ranks that hold the same elements hold the same bytes? */
#include "lib/ops/compare/compare.h"

#include "lib/dump/merge.h"

static enum kvt_status compare_files(const struct rank_file *a,
				     const struct rank_file *b, int g,
				     const struct kvt_run *run,
				     bool *shared, struct kvt_error *err)
{
	struct kvt_error why = { "" };
	struct correspondence both;
	enum kvt_status status = correspond_by_ids(&both, a->reader, g, b->reader, g,
						   &why);

	if (!status) {
		*shared = correspondence_any(&both);
		status = compare_elements(&both, "replicas", run, &why);
		correspondence_free(&both);
	}
	if (status)
		kvt_fail(err, status, "%s and %s: %.300s", a->name, b->name, why.text);
	return status;
}

/* With the first that holds the same; the rest follows. */
enum kvt_status replicas_check(const struct rank_file *files, int nfiles,
			       const struct kvt_run *run,
			       struct kvt_error *err)
{
	int ngroups = kvt_dump_snapshot(files[0].reader)->ngroups;

	for (int g = 0; g < ngroups; g++)
		for (int j = 1; j < nfiles; j++) {
			bool shared = false;

			for (int i = 0; i < j && !shared; i++) {
				enum kvt_status status =
					compare_files(&files[i], &files[j], g,
						      run, &shared, err);

				if (status)
					return status;
			}
		}
	return KVT_OK;
}
