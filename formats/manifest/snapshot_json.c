/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot_json.c - snapshots as JSON, with the keys of a manifest, and back
 *
 * The text is a manifest of no file: write.c makes it without the keys of one.  Back it
 * goes through the same parser, must leave nothing open, and is checked as that of any
 * dump.
 */
#include "formats/manifest/manifest.h"

#include <stdlib.h>
#include <string.h>

char *kvt_snapshot_json(const struct kvt_snapshot *snapshot)
{
	const struct kvt_data_file none = { 0 };

	return kvt_manifest_text(snapshot, &none);
}

enum kvt_status kvt_snapshot_from_json(struct kvt_snapshot **out, const char *json,
				       const char *name, struct kvt_error *err)
{
	struct kvt_manifest manifest;
	enum kvt_status status = kvt_manifest_parse(&manifest, json, strlen(json), name,
						    NULL, err);

	if (status)
		return status;
	if (!(status = kvt_manifest_complete(&manifest, name, err)) &&
	    !(status = kvt_snapshot_check(&manifest.snapshot, err)))
		status = kvt_snapshot_clone(out, &manifest.snapshot, err);
	kvt_manifest_free(&manifest);
	return status;
}

enum kvt_status kvt_snapshot_clone(struct kvt_snapshot **out,
				   const struct kvt_snapshot *in, struct kvt_error *err)
{
	struct kvt_snapshot *s = malloc(sizeof(*s));
	enum kvt_status status;

	if (!s)
		return kvt_no_memory(err, NULL);
	if ((status = kvt_snapshot_copy(s, in, err)))
		free(s);
	else
		*out = s;
	return status;
}

void kvt_snapshot_delete(struct kvt_snapshot *snapshot)
{
	if (snapshot)
		kvt_snapshot_free(snapshot);
	free(snapshot);
}
