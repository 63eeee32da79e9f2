/* SPDX-License-Identifier: Apache-2.0 */
/* zip.h - where the members of a zip archive are; none is unpacked */
#ifndef KVT_ZIP_FILE_H
#define KVT_ZIP_FILE_H

#include "formats/format.h"

struct kvt_zip_member {
	char *name;
	int64_t header;			/* offset of its local header */
	int64_t data, nbytes;		/* of the bytes as they are */
	uint32_t crc32;			/* of these, as both headers say */
};

struct kvt_zip {
	int64_t count;
	struct kvt_zip_member *member;	/* owned; in the order of their bytes */
};

/*
 * Reads the central directory and holds every member's local header (and data
 * descriptor, where there is one) against it.  Members that overlap or share a
 * name, and whatever else contradicts itself, are KVT_BAD_INPUT; compression,
 * encryption and archives in parts are KVT_UNSUPPORTED.  Checksums of the
 * members are not computed.
 */
KVT_MUST_CHECK enum kvt_status
kvt_zip_read(struct kvt_zip *out, const struct kvt_file *file, struct kvt_error *err);
void kvt_zip_free(struct kvt_zip *zip);

/* NULL if there is none. */
const struct kvt_zip_member *kvt_zip_find(const struct kvt_zip *zip, const char *name);

/* Do the first bytes of a file look like one? */
bool kvt_zip_probe(const uint8_t *head, int64_t nhead);

#endif
