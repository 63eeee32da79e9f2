/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.h - dumps that are many files without a header, each a dense array
 *
 * What all presets of such files share.  A group first gets what the format
 * knows of one file; kvt_pages_fit() adds what the user says and derives what
 * follows; then the axis that the files count gets its extent, and each file is
 * added.
 */
#ifndef KVT_PAGES_H
#define KVT_PAGES_H

#include "formats/format.h"

/*
 * What is in one file.  Unknown extents are -1 (as those of
 * kvt_manifest_blank_group()); the axis that the number of files counts has the extent
 * of one.  What hints do not say either follows from 'nbytes', if it is one extent and
 * divides; of several, or without a layout or an element type, it is KVT_BAD_INPUT, and
 * the sentence lists all options that would say it.  'nbytes' is of the data of that
 * file and must be exact; -1 if the file does not tell what one holds, and then nothing
 * may be open.  Formats of ranks list the fact total-heads.  *unnoticed is set where an
 * extent followed from nbytes that the user has not given.
 */
struct kvt_pages_known {
	const char *name;		/* of the file, for messages */
	int64_t nbytes;
	const struct kvt_parallel *parallel;	/* NULL: one rank */
	const char **unnoticed;		/* of the leaf; NULL where nbytes are no file's */
};
KVT_MUST_CHECK enum kvt_status
kvt_pages_fit(struct kvt_group *group, const struct kvt_pages_known *known,
	      const struct kvt_hints *hints, struct kvt_error *err);

/*
 * File 'file' of the reader holds 'box' of a group as a dense array in the
 * group's layout (in pages of page_bytes, if the group has those with gaps),
 * after 'skip' bytes and before 'pad' more.  Any other size of the file is
 * KVT_BAD_INPUT with both sizes.
 */
KVT_MUST_CHECK enum kvt_status
kvt_pages_add(struct kvt_reader *reader, int group, int file, const struct kvt_box *box,
	      int64_t skip, int64_t pad, struct kvt_error *err);

/* A dense array (or pages) of 'box' alone at 'offset': for readers and writers. */
KVT_MUST_CHECK enum kvt_status
kvt_pages_part(struct kvt_file_part *out, const struct kvt_group *group,
		const struct kvt_box *box, int file, int64_t offset,
		struct kvt_error *err);

/* The same, added to a group's parts. */
KVT_MUST_CHECK enum kvt_status
kvt_pages_add_part(struct kvt_flat *flat, const struct kvt_group *group,
		    const struct kvt_box *box, int file, int64_t offset,
		    struct kvt_error *err);

/*
 * The same for 'tokens' tokens in order, somewhere in a file that holds more, from byte
 * 'offset' on: the array has one axis of tokens where the layout has B S, and the layers
 * of 'where'.  They fill blocks from its first one on; the slots of a last one that is
 * not full read as zeros.
 */
KVT_MUST_CHECK enum kvt_status
kvt_pages_place_tokens(struct kvt_reader *reader, int group, int file,
		       const struct kvt_box *where, int64_t tokens, int64_t offset,
		       struct kvt_error *err);

/* Bytes of such an array. */
KVT_MUST_CHECK enum kvt_status
kvt_pages_token_bytes(int64_t *out, const struct kvt_group *group, int64_t tokens,
		      struct kvt_error *err);

/* KVT_BAD_INPUT unless a file has just so many bytes. */
KVT_MUST_CHECK enum kvt_status
kvt_pages_expect(const struct kvt_file *file, int64_t skip, int64_t nbytes,
		 int64_t pad, struct kvt_error *err);

#endif
