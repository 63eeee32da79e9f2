/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip.c - reading the directory of a zip archive
 *
 *	local header, name, extra, bytes [, descriptor]		for each member
 *	central header, name, extra, comment			for each member
 *	[zip64 end] [locator]			where 16 or 32 bits are too few
 *	end, comment
 *
 *	local	0 "PK\3\4"	 6 u16 flags	 8 u16 method	14 u32 crc
 *		18 u32 stored	22 u32 bytes	26 u16 name	28 u16 extra	30
 *	central	0 "PK\1\2"	 8 u16 flags	10 u16 method	16 u32 crc
 *		20 u32 stored	24 u32 bytes	28 u16 name	30 u16 extra
 *		32 u16 comment	34 u16 part	42 u32 where its local header is   46
 *	extra	0 u16 id	 2 u16 n	 4 n bytes: of id 1 an u64 for each of
 *		bytes, stored and place that is all ones above, in this order
 *	end	0 "PK\5\6"	 8 u16 members here	10 u16 members
 *		12 u32 bytes of directory	16 u32 its place	20 u16 comment	22
 *	zip64	0 "PK\6\6"	 4 u64 44	24 u64 members here	32 u64 members
 *		40 u64 bytes of directory	48 u64 its place	56
 *	locator	0 "PK\6\7"	 8 u64 where zip64 is	16 u32 1	20
 *	descr.	0 "PK\7\10"	 4 u32 crc	8 stored, bytes: of 32 or of 64 bits each
 *
 * The central directory, at the end, is what counts.  What stands before each
 * member says the same again and must agree, for other programs read that.  Everything is
 * little-endian; members are plain bytes (method 0), so that they can be read in place.
 * Facts: APPNOTE.TXT of PKWARE; what numpy.savez() and torch.save() leave.
 */
#include "formats/parse/zip.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/little_endian.h"
#include "lib/base/order.h"

enum {
	LOCAL = 0x04034b50, CENTRAL = 0x02014b50, END = 0x06054b50,
	END64 = 0x06064b50, LOCATOR64 = 0x07064b50, DESCRIPTOR = 0x08074b50,

	LOCAL_BYTES = 30, CENTRAL_BYTES = 46, END_BYTES = 22, END64_BYTES = 56,
	LOCATOR64_BYTES = 20,

	ENCRYPTED = 1 << 0, DESCRIBED = 1 << 3, UTF8 = 1 << 11,
	DEFLATED = 8,
	ZIP64_EXTRA = 1,
	MAX_DIRECTORY = 64 << 20, MAX_NAME = 4096, MAX_COMMENT = 0xffff,
};
#define NONE32 UINT32_C(0xffffffff)

struct zip {
	const struct kvt_file *file;
	struct kvt_zip *out;
	struct kvt_error *err;
	int64_t end;			/* of the members: where the directory begins */
	int64_t nbytes, count;		/* of the directory */
};

static enum kvt_status malformed(const struct zip *z, const char *what, int64_t at)
{
	return kvt_fail(z->err, KVT_BAD_INPUT, "%s: zip archive: %s at byte %lld",
			z->file->path, what, LL(at));
}

/* A number of the directory; one that no offset can be becomes the greatest. */
static int64_t get64(const uint8_t *p)
{
	uint64_t n = kvt_le64(p);

	return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

/* ---- the end ------------------------------------------------------------ */

/* Reads what 16 and 32 bits were too few for; 'at' is of the end record. */
static enum kvt_status read_end64(struct zip *z, int64_t *at, bool *found)
{
	uint8_t b[END64_BYTES];
	enum kvt_status status;
	int64_t begin;

	*found = false;
	if (*at < LOCATOR64_BYTES + END64_BYTES)
		return KVT_OK;
	if ((status = kvt_file_read(z->file, b, LOCATOR64_BYTES, *at - LOCATOR64_BYTES,
				    z->err)))
		return status;
	if (kvt_le32(b) != LOCATOR64)
		return KVT_OK;
	begin = get64(b + 8);
	if (kvt_le32(b + 4) || kvt_le32(b + 16) != 1)
		return kvt_fail(z->err, KVT_UNSUPPORTED,
				"%s: zip archive in several parts", z->file->path);
	if (begin != *at - LOCATOR64_BYTES - END64_BYTES)
		return malformed(z, "locator of the zip64 record points elsewhere", *at);
	if ((status = kvt_file_read(z->file, b, END64_BYTES, begin, z->err)))
		return status;
	if (kvt_le32(b) != END64 || kvt_le64(b + 4) != END64_BYTES - 12 ||
	    kvt_le32(b + 16) || kvt_le32(b + 20) || kvt_le64(b + 24) != kvt_le64(b + 32))
		return malformed(z, "broken zip64 record", begin);
	z->count = get64(b + 32);
	z->nbytes = get64(b + 40);
	z->end = get64(b + 48);
	*at = begin;
	*found = true;
	return KVT_OK;
}

/* 16 or 32 bits are as the 64 say, or all ones. */
static bool agrees(const uint8_t *p, int nbytes, int64_t wanted)
{
	uint64_t n = kvt_le(p, nbytes), ones = nbytes == 2 ? 0xffff : NONE32;

	return n == ones || n == (uint64_t)wanted;
}

static enum kvt_status read_end(struct zip *z, const uint8_t *b, int64_t at)
{
	int64_t end = at;
	enum kvt_status status;
	bool found;

	if (kvt_le(b + 4, 2) || kvt_le(b + 6, 2))
		return kvt_fail(z->err, KVT_UNSUPPORTED,
				"%s: zip archive in several parts", z->file->path);
	if ((status = read_end64(z, &end, &found)))
		return status;
	if (!found) {
		z->count = (int64_t)kvt_le(b + 10, 2);
		z->nbytes = kvt_le32(b + 12);
		z->end = kvt_le32(b + 16);
	}
	if (!agrees(b + 8, 2, z->count) || !agrees(b + 10, 2, z->count) ||
	    !agrees(b + 12, 4, z->nbytes) || !agrees(b + 16, 4, z->end))
		return malformed(z, "two records of the end differ", at);
	if (z->nbytes > end || z->end != end - z->nbytes)
		return malformed(z, "directory ends elsewhere than is recorded", at);
	if (z->count > z->nbytes / CENTRAL_BYTES)
		return malformed(z, "more members than the directory has room for", at);
	if (z->nbytes > MAX_DIRECTORY)
		return kvt_fail(z->err, KVT_UNSUPPORTED,
				"%s: zip directory of %lld bytes, at most %d are supported",
				z->file->path, LL(z->nbytes), MAX_DIRECTORY);
	return KVT_OK;
}

/* The record stands at the very end, with only a comment of its own after it. */
static enum kvt_status find_end(struct zip *z)
{
	int64_t size = z->file->nbytes, n = END_BYTES + MAX_COMMENT;
	enum kvt_status status;
	uint8_t *tail;

	if (size < END_BYTES)
		return malformed(z, "ends", size);
	n = n < size ? n : size;
	if (!(tail = malloc((size_t)n)))
		return kvt_no_memory(z->err, z->file->path);
	if (!(status = kvt_file_read(z->file, tail, n, size - n, z->err))) {
		int64_t i = n - END_BYTES;

		while (i >= 0 && (kvt_le32(tail + i) != END ||
				  (int64_t)kvt_le(tail + i + 20, 2) != n - END_BYTES - i))
			i--;
		status = i < 0 ? malformed(z, "no record of its end", size) :
				 read_end(z, tail + i, size - n + i);
	}
	free(tail);
	return status;
}

/* ---- members ------------------------------------------------------------ */

/*
 * Sizes and offset that did not fit 32 bits are in the extra field, in this
 * order, each only if it did not.
 */
static enum kvt_status read_extra(struct zip *z, int64_t *const wide[], int nwide,
				  const uint8_t *extra, int64_t nextra, int64_t at)
{
	for (int64_t i = 0; i + 4 <= nextra;) {
		int64_t id = (int64_t)kvt_le(extra + i, 2);
		int64_t n = (int64_t)kvt_le(extra + i + 2, 2);

		if (n > nextra - i - 4)
			return malformed(z, "extra field too long", at);
		if (id == ZIP64_EXTRA) {
			if (n < 8 * nwide)
				return malformed(z, "zip64 field too short", at);
			for (int j = 0; j < nwide; j++)
				*wide[j] = get64(extra + i + 4 + 8 * j);
			return KVT_OK;
		}
		i += 4 + n;
	}
	return nwide ? malformed(z, "no zip64 field for a size of all ones", at) : KVT_OK;
}

/* What both headers of a member say. */
struct facts {
	int flags, method;
	uint32_t crc;
	int64_t stored, nbytes, header;
};

static enum kvt_status check_kind(const struct zip *z, const struct facts *f,
				  const char *name)
{
	if (f->flags & ENCRYPTED)
		return kvt_fail(z->err, KVT_UNSUPPORTED, "%s: member %.100s is encrypted",
				z->file->path, name);
	if (f->method == DEFLATED)
		return kvt_fail(z->err, KVT_UNSUPPORTED,
				"%s: member %.100s is compressed; write it with numpy.savez(), not savez_compressed()",
				z->file->path, name);
	if (f->method || (f->flags & ~(DESCRIBED | UTF8)))
		return kvt_fail(z->err, KVT_UNSUPPORTED,
				"%s: member %.100s has zip method %d and flags 0x%x, expected plain bytes",
				z->file->path, name, f->method, (unsigned)f->flags);
	if (f->stored != f->nbytes)
		return kvt_fail(z->err, KVT_BAD_INPUT,
				"%s: member %.100s is stored in %lld bytes, but has %lld",
				z->file->path, name, LL(f->stored), LL(f->nbytes));
	return KVT_OK;
}

static enum kvt_status take_name(char **out, struct zip *z, const uint8_t *name,
				 int64_t n, int64_t at)
{
	for (int64_t i = 0; i < n; i++)
		if (name[i] < ' ' || name[i] == 0x7f)
			return malformed(z, "name with a control character", at);
	if (!n || n > MAX_NAME)
		return malformed(z, "name of 0 or more than 4096 bytes", at);
	*out = strndup((const char *)name, (size_t)n);
	return *out ? KVT_OK : kvt_no_memory(z->err, z->file->path);
}

/* One entry of the directory; 'left' bytes of it are there. */
static enum kvt_status read_central(struct zip *z, struct facts *f, const uint8_t *b,
				    int64_t left, int64_t at, int64_t *used)
{
	struct kvt_zip_member *m = &z->out->member[z->out->count];
	int64_t nname, nextra, *wide[3];
	enum kvt_status status;
	int nwide = 0;

	if (left < CENTRAL_BYTES || kvt_le32(b) != CENTRAL)
		return malformed(z, "no entry of the directory", at);
	nname = (int64_t)kvt_le(b + 28, 2);
	nextra = (int64_t)kvt_le(b + 30, 2);
	*used = CENTRAL_BYTES + nname + nextra + (int64_t)kvt_le(b + 32, 2);
	if (*used > left)
		return malformed(z, "entry goes beyond the directory", at);
	*f = (struct facts){ (int)kvt_le(b + 8, 2), (int)kvt_le(b + 10, 2),
			     kvt_le32(b + 16), kvt_le32(b + 20), kvt_le32(b + 24),
			     kvt_le32(b + 42) };
	if (kvt_le(b + 34, 2))
		return kvt_fail(z->err, KVT_UNSUPPORTED,
				"%s: zip archive in several parts", z->file->path);
	if (f->nbytes == NONE32)
		wide[nwide++] = &f->nbytes;
	if (f->stored == NONE32)
		wide[nwide++] = &f->stored;
	if (f->header == NONE32)
		wide[nwide++] = &f->header;
	if ((status = take_name(&m->name, z, b + CENTRAL_BYTES, nname, at)))
		return status;
	z->out->count++;	/* the name is freed with the list from here on */
	if ((status = read_extra(z, wide, nwide, b + CENTRAL_BYTES + nname, nextra, at)))
		return status;
	m->header = f->header;
	m->nbytes = f->nbytes;
	m->crc32 = f->crc;
	return check_kind(z, f, m->name);
}

/*
 * Where a header was written before the bytes were known, zeros stand in it and
 * the facts follow the bytes; their width is nowhere said.
 */
static enum kvt_status check_descriptor(struct zip *z, const struct facts *f,
					struct kvt_zip_member *m)
{
	int64_t at = m->data + m->nbytes, n = z->end - at;
	enum kvt_status status;
	uint8_t b[24];

	if (n > (int64_t)sizeof(b))
		n = sizeof(b);
	if (n < 16)
		return malformed(z, "no room for a data descriptor", at);
	if ((status = kvt_file_read(z->file, b, n, at, z->err)))
		return status;
	if (kvt_le32(b) == DESCRIPTOR && kvt_le32(b + 4) == f->crc &&
	    ((kvt_le32(b + 8) == f->stored && kvt_le32(b + 12) == f->nbytes) ||
	     (n == 24 && get64(b + 8) == f->stored && get64(b + 16) == f->nbytes)))
		return KVT_OK;
	return malformed(z, "data descriptor and directory differ", at);
}

static bool zero_or(uint64_t got, uint64_t wanted, bool may_be_zero)
{
	return got == wanted || (may_be_zero && !got);
}

static enum kvt_status read_local(struct zip *z, const struct facts *f,
				  struct kvt_zip_member *m)
{
	int64_t at = m->header, nname = (int64_t)strlen(m->name), nextra, stored, nbytes;
	bool late = f->flags & DESCRIBED;
	uint8_t b[LOCAL_BYTES + MAX_NAME];
	int64_t *wide[2] = { &nbytes, &stored };
	enum kvt_status status;
	uint8_t *extra;

	if (at > z->end || z->end - at < LOCAL_BYTES + nname)
		return malformed(z, "member begins after all members", at);
	if ((status = kvt_file_read(z->file, b, LOCAL_BYTES + nname, at, z->err)))
		return status;
	if (kvt_le32(b) != LOCAL || (int)kvt_le(b + 6, 2) != f->flags ||
	    (int)kvt_le(b + 8, 2) != f->method || (int64_t)kvt_le(b + 26, 2) != nname ||
	    !zero_or(kvt_le32(b + 14), f->crc, late) ||
	    memcmp(b + LOCAL_BYTES, m->name, (size_t)nname))
		return malformed(z, "header of a member and directory differ", at);
	nextra = (int64_t)kvt_le(b + 28, 2);
	stored = kvt_le32(b + 18);
	nbytes = kvt_le32(b + 22);
	m->data = at + LOCAL_BYTES + nname + nextra;
	if (m->data > z->end || m->nbytes > z->end - m->data)
		return malformed(z, "member goes beyond the directory", at);
	if (nbytes == NONE32 || stored == NONE32) {
		if (!(extra = malloc((size_t)nextra + 1)))
			return kvt_no_memory(z->err, z->file->path);
		if (!(status = kvt_file_read(z->file, extra, nextra, m->data - nextra,
					     z->err)))
			status = read_extra(z, wide, 2, extra, nextra, at);
		free(extra);
		if (status)
			return status;
	}
	if (!zero_or((uint64_t)stored, (uint64_t)f->stored, late) ||
	    !zero_or((uint64_t)nbytes, (uint64_t)f->nbytes, late))
		return malformed(z, "header of a member and directory differ in size",
				 at);
	return late ? check_descriptor(z, f, m) : KVT_OK;
}

static int by_header(const void *a, const void *b)
{
	const struct kvt_zip_member *m = a, *n = b;

	return m->header < n->header ? -1 : m->header > n->header;
}

static enum kvt_status check_names(const struct zip *z)
{
	int64_t n = z->out->count;
	char **name = malloc((size_t)(n + 1) * sizeof(*name));
	enum kvt_status status = KVT_OK;

	if (!name)
		return kvt_no_memory(z->err, z->file->path);
	for (int64_t i = 0; i < n; i++)
		name[i] = z->out->member[i].name;
	qsort(name, (size_t)n, sizeof(*name), kvt_by_name);
	for (int64_t i = 1; !status && i < n; i++)
		if (!strcmp(name[i - 1], name[i]))
			status = kvt_fail(z->err, KVT_BAD_INPUT,
					  "%s: two members named %.100s", z->file->path,
					  name[i]);
	free(name);
	return status;
}

static enum kvt_status check_overlap(struct zip *z)
{
	struct kvt_zip_member *m = z->out->member;

	qsort(m, (size_t)z->out->count, sizeof(*m), by_header);
	for (int64_t i = 1; i < z->out->count; i++)
		if (m[i].header < m[i - 1].data + m[i - 1].nbytes)
			return kvt_fail(z->err, KVT_BAD_INPUT,
					"%s: members %.100s and %.100s overlap",
					z->file->path, m[i - 1].name, m[i].name);
	return check_names(z);
}

static enum kvt_status read_members(struct zip *z, const uint8_t *directory)
{
	enum kvt_status status = KVT_OK;
	int64_t at = 0, used = 0;
	struct facts facts;

	while (!status && z->out->count < z->count) {
		int64_t i = z->out->count;

		status = read_central(z, &facts, directory + at, z->nbytes - at,
				      z->end + at, &used);
		if (!status)
			status = read_local(z, &facts, &z->out->member[i]);
		at += used;
	}
	if (!status && at != z->nbytes)
		status = malformed(z, "more directory than members", z->end + at);
	return status ? status : check_overlap(z);
}

enum kvt_status kvt_zip_read(struct kvt_zip *out, const struct kvt_file *file,
			     struct kvt_error *err)
{
	struct zip z = { .file = file, .out = out, .err = err };
	enum kvt_status status;
	uint8_t *directory;

	*out = (struct kvt_zip){ 0 };
	if ((status = find_end(&z)))
		return status;
	directory = malloc((size_t)z.nbytes + 1);
	out->member = calloc((size_t)z.count + 1, sizeof(*out->member));
	if (!directory || !out->member)
		status = kvt_no_memory(err, file->path);
	else if (!(status = kvt_file_read(file, directory, z.nbytes, z.end, err)))
		status = read_members(&z, directory);
	free(directory);
	if (status)
		kvt_zip_free(out);
	return status;
}

void kvt_zip_free(struct kvt_zip *zip)
{
	for (int64_t i = 0; i < zip->count; i++)
		free(zip->member[i].name);
	free(zip->member);
	*zip = (struct kvt_zip){ 0 };
}

const struct kvt_zip_member *kvt_zip_find(const struct kvt_zip *zip, const char *name)
{
	for (int64_t i = 0; i < zip->count; i++)
		if (!strcmp(zip->member[i].name, name))
			return &zip->member[i];
	return NULL;
}

bool kvt_zip_probe(const uint8_t *head, int64_t nhead)
{
	/* an archive without members is only an end */
	return nhead >= 4 && (kvt_le32(head) == LOCAL || kvt_le32(head) == END);
}
