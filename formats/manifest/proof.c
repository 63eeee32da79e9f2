/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proof.c - is this the file that a manifest was written for?
 *
 *	"file_bytes": its size, "sample_crc32": the CRC-32 of pages of 4 KiB, in order
 *
 *	up to 4 MiB	all of it
 *	above		1,024 pages, one of each stretch of 1/1024th, and the last one
 *
 * So an older file, another one or half of a pair is not read with a layout that is not
 * its own.  Accidents are what it is for.  Where a page is in its stretch is scattered,
 * as a constant step would meet the same block of every layer; what opening costs does
 * not grow with the file.  kvtool-manifest(5) has the rule for other programs.
 */
#include "formats/manifest/manifest.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "formats/file/tree.h"

/* ---- samples ------------------------------------------------------------ */

enum { PAGE = 4096, PAGES = 1024 };

/*
 * Where the i-th page begins.  The file is cut into as many stretches as there
 * are samples, and the place within one is scattered: layers and blocks are
 * powers of two, and a constant step would meet the same block of every layer.
 */
static int64_t sample_at(int64_t nbytes, int64_t i)
{
	int64_t step = nbytes / PAGES;

	if (nbytes <= (int64_t)PAGE * PAGES)
		return i * PAGE;
	if (i == PAGES - 1)
		return nbytes - PAGE;
	return (i * step + (int64_t)((uint32_t)i * 2654435761u) % step) / PAGE * PAGE;
}

static int64_t sample_count(int64_t nbytes)
{
	int64_t pages = nbytes / PAGE + (nbytes % PAGE != 0);

	return pages < PAGES ? pages : PAGES;
}

/* Lets a disk fetch all of them at once; only a hint, and a small file needs none. */
static void announce(const struct kvt_file *file)
{
#ifdef POSIX_FADV_WILLNEED
	if (file->fd < 0 || file->nbytes <= (int64_t)PAGE * PAGES)
		return;
	for (int64_t i = 0; i < sample_count(file->nbytes); i++)
		posix_fadvise(file->fd, sample_at(file->nbytes, i), PAGE,
			      POSIX_FADV_WILLNEED);
#else
	(void)file;
#endif
}

enum kvt_status kvt_file_sum(struct kvt_file_sum *out, const struct kvt_file *file,
			     struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	uLong crc = crc32(0, NULL, 0);
	uint8_t page[PAGE];

	announce(file);
	for (int64_t i = 0; !status && i < sample_count(file->nbytes); i++) {
		int64_t at = sample_at(file->nbytes, i), left = file->nbytes - at;
		int64_t n = left < PAGE ? left : PAGE;

		if (!(status = kvt_file_read(file, page, n, at, err)))
			crc = crc32(crc, page, (uInt)n);
	}
	*out = (struct kvt_file_sum){ file->nbytes, (int64_t)crc };
	return status;
}

/* ---- what a manifest says ----------------------------------------------- */

void kvt_manifest_take_sum(struct kvt_file_sum *out, const struct kvt_json *in)
{
	*out = (struct kvt_file_sum){ -1, -1 };
	kvt_json_int(&out->nbytes, in, "file_bytes", 0, INT64_MAX);
	kvt_json_int(&out->crc32, in, "sample_crc32", 0, UINT32_MAX);
}

/* Does the file that the manifest names lie beside the manifest? */
static enum kvt_status names_neighbour(bool *out, const struct kvt_manifest *m,
				       struct kvt_error *err)
{
	size_t folder = (size_t)(kvt_path_base(m->path) - m->path);
	const char *name = kvt_path_base(m->file);
	char *path = malloc(folder + strlen(name) + 1);
	struct stat st;

	if (!path)
		return kvt_no_memory(err, m->path);
	memcpy(path, m->path, folder);
	strcpy(path + folder, name);
	*out = !stat(path, &st) && S_ISREG(st.st_mode);
	free(path);
	return KVT_OK;
}

static bool names_other(const struct kvt_manifest *m, const char *path)
{
	return m->file[0] && strcmp(kvt_path_base(m->file), kvt_path_base(path));
}

enum kvt_status kvt_manifest_of_other(bool *out, const struct kvt_manifest *manifest,
				      const char *path, struct kvt_error *err)
{
	*out = names_other(manifest, path);
	return *out ? names_neighbour(out, manifest, err) : KVT_OK;
}

/* ---- held against a file ------------------------------------------------ */

static enum kvt_manifest_proof judge(const struct kvt_file_sum *said,
			    const struct kvt_file_sum *is)
{
	if (said->nbytes >= 0 && said->nbytes != is->nbytes)
		return KVT_PROOF_FAILED;
	if (said->crc32 >= 0)
		return said->crc32 == is->crc32 ? KVT_PROOF_SAMPLES : KVT_PROOF_FAILED;
	return said->nbytes >= 0 ? KVT_PROOF_SIZE : KVT_PROOF_NONE;
}

static enum kvt_status refuse(const struct kvt_file *data, const struct kvt_hints *hints,
			      const char *why, struct kvt_error *err)
{
	const struct kvt_inspector *inspector = hints ? hints->inspector : NULL;

	if (inspector)
		inspector->found(inspector->context, "manifest.mismatch", why);
	return kvt_fail(err, KVT_BAD_INPUT, "%.100s: %s", data->path, why);
}

static enum kvt_status refuse_sum(const struct kvt_manifest *m,
				  const struct kvt_file_sum *is,
				  const struct kvt_file *data,
				  const struct kvt_hints *hints, struct kvt_error *err)
{
	const char *file = m->file[0] ? kvt_path_base(m->file) : "a file";
	char why[400], facts[240];

	if (m->sum.nbytes >= 0 && m->sum.nbytes != is->nbytes)
		snprintf(facts, sizeof(facts),
			 "has %lld bytes, but manifest %.80s was written for %.60s with %lld bytes",
			 LL(is->nbytes), kvt_path_base(m->path), file, LL(m->sum.nbytes));
	else
		snprintf(facts, sizeof(facts),
			 "samples have CRC-32 %lld, but manifest %.80s was written for %.60s with %lld",
			 LL(is->crc32), kvt_path_base(m->path), file, LL(m->sum.crc32));
	snprintf(why, sizeof(why),
		 "%s; give the right one with --manifest, or if the data was changed on purpose: kvtool convert --trust-manifest", facts);
	return refuse(data, hints, why, err);
}

static enum kvt_status refuse_name(const struct kvt_manifest *m,
				   const struct kvt_file *data,
				   const struct kvt_hints *hints, struct kvt_error *err)
{
	char why[400];

	snprintf(why, sizeof(why),
		 "manifest %.80s is for %.80s and has no checksum; if this is the same data: kvtool convert --trust-manifest",
		 kvt_path_base(m->path), kvt_path_base(m->file));
	return refuse(data, hints, why, err);
}

enum kvt_status kvt_manifest_prove(struct kvt_manifest *m, bool *own,
				   const struct kvt_file *data,
				   const struct kvt_hints *hints, struct kvt_error *err)
{
	bool told = hints && hints->manifest, other = false;
	struct kvt_file_sum is = { data->nbytes, -1 };
	enum kvt_status status;

	*own = true;
	if (m->sum.crc32 >= 0 && (status = kvt_file_sum(&is, data, err)))
		return status;
	m->proof = judge(&m->sum, &is);
	/* a pair may have been renamed: what proves it counts, not the name */
	if (m->proof == KVT_PROOF_SAMPLES)
		return KVT_OK;
	if (!told && (status = kvt_manifest_of_other(&other, m, data->path, err)))
		return status;
	*own = !other;
	if (other || (hints && hints->trust_manifest))
		return KVT_OK;
	if (m->proof == KVT_PROOF_FAILED)
		return refuse_sum(m, &is, data, hints, err);
	if (!told && names_other(m, data->path))
		return refuse_name(m, data, hints, err);
	return KVT_OK;
}
