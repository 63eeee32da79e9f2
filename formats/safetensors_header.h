/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_header.h - the header of a .safetensors file */
#ifndef KVT_SAFETENSORS_HEADER_H
#define KVT_SAFETENSORS_HEADER_H

#include "formats/format.h"

enum { KVT_SAFETENSORS_MAX_RANK = 32 };

struct kvt_tensor {
	char *name;
	const struct kvt_dtype *dtype;	/* NULL: none of ours, still checked */
	char type[16];			/* as the file calls it */
	int rank;
	int64_t shape[KVT_SAFETENSORS_MAX_RANK];
	int64_t begin, end;		/* bytes from the start of the data */
};

struct kvt_tensors {
	int64_t count;
	struct kvt_tensor *tensor;	/* owned; in the order of their bytes */
	const struct kvt_tensor **by_name;	/* owned; sorted; NULL: written */
	int64_t data;			/* offset of the data in the file */
	char *manifest;			/* what kvtool wrote about them; or NULL */
};

/*
 * Reads the JSON of a header, with the rules of the reference reader: the
 * tensors fill the 'ndata' bytes behind the header without holes or overlap.
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
void kvt_tensors_free(struct kvt_tensors *tensors);

/* NULL if there is none. */
const struct kvt_tensor *kvt_tensors_find(const struct kvt_tensors *tensors,
					  const char *name);

/*
 * The first bytes of a file with these tensors, up to the data: malloc()ed, a
 * multiple of 8 long.  'begin' and 'end' of each are filled in, in the order
 * given.  'manifest' may be NULL.
 */
KVT_MUST_CHECK enum kvt_status
kvt_tensors_print(char **out, int64_t *nbytes, struct kvt_tensors *tensors,
		  const char *manifest, struct kvt_error *err);

/* The members create and finish of the format. */
KVT_MUST_CHECK enum kvt_status
kvt_safetensors_create(struct kvt_writer *writer, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_safetensors_finish(struct kvt_writer *writer, struct kvt_error *err);

/* The array that a tensor is; 'name' of the file. */
struct kvt_array kvt_tensor_array(const struct kvt_tensor *tensor, const char *name);

#endif
