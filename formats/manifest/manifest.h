/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h - the JSON file beside a dump: found, read, proven, written
 *
 *	find.c, data.c	which manifest is of a file; of which file is a manifest
 *	manifest.c	its text, and the user's words, become a struct kvt_manifest
 *	proof.c		is it of this file?
 *	requests.c	block tables; blocks_of.c, prompts.c: told on the command line
 *	write.c		draws it, and writes one; sidecar.c: beside what is written
 *
 * What a group's object holds is read by formats/describe.
 */
#ifndef KVT_MANIFEST_H
#define KVT_MANIFEST_H

#include "formats/describe/describe.h"

/* What it says of its file. */
void kvt_manifest_take_sum(struct kvt_file_sum *out, const struct kvt_json *in);
/*
 * Holds a manifest against the file beside it, or that it was named for in
 * hints->manifest: sets ->proof, or refuses it with KVT_BAD_INPUT.  'own' is
 * false for the manifest of another file, which lies beside it, too.
 */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_prove(struct kvt_manifest *manifest, bool *own, const struct kvt_file *data,
		   const struct kvt_hints *hints, struct kvt_error *err);
/* The same question before a manifest is replaced: is it of another file there? */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_of_other(bool *out, const struct kvt_manifest *manifest, const char *path,
		      struct kvt_error *err);
/* Reads one as it is, without hints; takes 'name', which becomes its path. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_read(struct kvt_manifest *out, char *name, struct kvt_error *err);

/* Requests and their tables; 'groups' is the array of group objects or NULL. */
void kvt_manifest_requests(struct kvt_snapshot *out, const struct kvt_json *in,
			   const json_t *groups);

/*
 * Requests as hints->blocks_of, seq_lens and slot_mapping tell them.  KVT_BAD_INPUT if
 * the snapshot has requests and says anything else of these.
 */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_blocks_of(struct kvt_snapshot *snapshot, const struct kvt_hints *hints,
		       const char *path, struct kvt_error *err);

/* Is 'path' the manifest of 'data', which may be of any format? */
typedef bool kvt_manifest_question(const char *path, const char *data,
				   const struct kvt_hints *hints);
/*
 * The path of the data whose manifest 'path' is, malloc()ed; NULL where it is none, or
 * where hints say that it is data.  KVT_BAD_INPUT: a manifest, but not of which file.
 */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_data(char **out, const char *path, const struct kvt_hints *hints,
		  kvt_manifest_question *is_of, struct kvt_error *err);
/* Is there such a file?  Not being able to tell is KVT_SYSTEM. */
KVT_MUST_CHECK enum kvt_status
kvt_manifest_there(bool *there, const char *name, struct kvt_error *err);

#endif
