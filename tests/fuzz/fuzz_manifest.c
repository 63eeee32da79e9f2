/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_manifest.c - any text as a manifest: it is refused, or makes a snapshot
 * whose own manifest makes the same text again
 */
#include <stdlib.h>
#include <string.h>

#include "formats/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Data of the size that the manifest says, as far as it says one. */
static int64_t data_size(const struct kvt_manifest *m)
{
	int64_t nbytes = 0;

	if (kvt_snapshot_file_bytes(&nbytes, &m->snapshot,
				    kvt_snapshot_has_pages(&m->snapshot), NULL) ||
	    nbytes > 1 << 20)
		return 4096;
	return nbytes;
}

/* The manifest of the manifest's snapshot; NULL if there is none. */
static char *rewrite(const char *text, size_t size, int64_t *nbytes)
{
	struct kvt_array array = { .name = "data" };
	struct kvt_error err = { "" };
	struct kvt_manifest m;
	char *out = NULL;

	if (kvt_manifest_parse(&m, text, size, "m", NULL, &err)) {
		if (!err.text[0])
			abort();
		return NULL;
	}
	if (*nbytes < 0) {
		/* slots follow from the block size: fit once to know them */
		array.nbytes = data_size(&m);
		if (kvt_manifest_fit(&m, &array, NULL))
			array.nbytes = data_size(&m);
		*nbytes = array.nbytes;
	}
	array.nbytes = *nbytes;
	if (!kvt_manifest_fit(&m, &array, &err) &&
	    !kvt_snapshot_check(&m.snapshot, &err) &&
	    !kvt_snapshot_complete(&m.snapshot, &err)) {
		out = kvt_manifest_text(&m.snapshot,
					&(struct kvt_data_file){ .name = "data" });
		if (!out)
			abort();
	} else if (!err.text[0]) {
		abort();
	}
	kvt_manifest_free(&m);
	return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int64_t nbytes = -1;
	char *once = rewrite((const char *)data, size, &nbytes), *twice;

	if (!once)
		return 0;
	twice = rewrite(once, strlen(once), &nbytes);
	if (!twice || strcmp(once, twice))
		abort();
	free(once);
	free(twice);
	return 0;
}
