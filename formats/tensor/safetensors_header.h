/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_header.h - the header of a .safetensors file */
#ifndef KVT_SAFETENSORS_HEADER_H
#define KVT_SAFETENSORS_HEADER_H

#include "formats/tensor/tensors.h"

/*
 * Reads the JSON of a header, with the rules of the reference reader: the
 * tensors fill the 'ndata' bytes after the header without holes or overlap.
 * A malformed header is KVT_BAD_INPUT, an unknown element type
 * KVT_UNSUPPORTED.
 */
KVT_MUST_CHECK enum kvt_status
kvt_tensors_parse(struct kvt_tensors *out, const char *json, int64_t njson,
		  int64_t ndata, const char *name, struct kvt_error *err);
/* The same from an open file. */
KVT_MUST_CHECK enum kvt_status
kvt_tensors_read(struct kvt_tensors *out, const struct kvt_file *file,
		 struct kvt_error *err);

/* Is the header of the file one that 'is' knows?  It may be longer than 'head'. */
bool kvt_header_probe(const char *path, const uint8_t *head, int64_t nhead,
		      bool (*is)(const uint8_t *header, int64_t n));
/* Has it this key, in quotes, and a value that begins so? */
bool kvt_header_has(const uint8_t *header, int64_t n, const char *key, const char *value);

/* Did a program of mlx save it?  The metadata say so, wherever they are in the header. */
bool kvt_mlx_probe(const char *path, const uint8_t *head, int64_t nhead);
/* Is it a file of blocks of mlx-vlm? */
bool kvt_mlx_is_shard(const char *path, const uint8_t *head, int64_t nhead);

/* Fills 'held' of what programs of mlx saved, and the names they have there (mlx.c). */
KVT_MUST_CHECK enum kvt_status
kvt_mlx_tell(struct kvt_tensors *tensors, const struct kvt_file *file,
	     struct kvt_error *err);

/*
 * The first bytes of a file with these tensors, up to the data: malloc()ed, a
 * multiple of 8 long.  'begin' and 'end' of each are filled in, in the order
 * given.  'manifest' may be NULL; the notes of the tensors are written, too.
 */
KVT_MUST_CHECK enum kvt_status
kvt_tensors_print(char **out, int64_t *nbytes, struct kvt_tensors *tensors,
		  const char *manifest, struct kvt_error *err);

/* ---- of caches that were written here: cache_told.c ------------------------- */

/* Is it a header that was written here, for transformers? */
bool kvt_cache_is_own(const uint8_t *header, int64_t n);
/* Fills 'held' of such tensors. */
void kvt_cache_tell(struct kvt_tensors *tensors);
/* What was written of the request, of either: its name, its tokens; NULL: nothing. */
const char *kvt_cache_note(const struct kvt_tensors *tensors, const char *what);

#endif
