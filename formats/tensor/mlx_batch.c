/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mlx_batch.c - BatchKVCache and BatchRotatingKVCache of mlx-lm
 *
 * Rows end in the same slot.  Two arrays say of each row how many slots of padding come
 * before its tokens, and how many tokens it was given.  A ring forgets padding as it does
 * tokens: its padding falls below zero, and then all of its slots are tokens.
 */
#include "formats/tensor/mlx_batch.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/little_endian.h"

/* Whole numbers, one for each row; *out stays NULL if it is none. */
static enum kvt_status read_rows(int64_t **out, const struct kvt_tensors *tensors,
				 const struct kvt_file *file,
				 const struct mlx_batch *batch, int number,
				 struct kvt_error *err)
{
	const struct kvt_tensor *t;
	int64_t nbytes;
	char name[80];
	uint8_t *bytes;
	enum kvt_status status;

	*out = NULL;
	snprintf(name, sizeof(name), "%s.%d", batch->arrays, number);
	t = kvt_tensors_find(tensors, name);
	if (!t || t->rank != 1 || t->shape[0] != batch->rows || !batch->rows ||
	    strcmp(t->type, "I32"))
		return KVT_OK;
	/* the file has as many bytes */
	nbytes = t->end - t->begin;
	bytes = malloc((size_t)nbytes);
	*out = malloc((size_t)batch->rows * sizeof(**out));
	if (!bytes || !*out)
		status = kvt_no_memory(err, file->path);
	else
		status = kvt_file_read(file, bytes, nbytes, tensors->data + t->begin,
				       err);
	for (int64_t i = 0; !status && i < batch->rows; i++)
		(*out)[i] = (int32_t)kvt_le(bytes + 4 * i, 4);
	free(bytes);
	return status;
}

/* How many slots are filled, from the first one on; -1: the numbers do not fit. */
static int64_t used_of(const struct mlx_batch *b)
{
	int64_t next = b->next < 0 && !b->ring ? b->slots : b->next;

	if (next < 0 || next > b->slots)
		return -1;
	if (!b->ring)
		return next;
	if (b->max_size < 1 || b->turned < 0 || b->turned > 1 ||
	    (b->turned && (b->slots != b->max_size || !next)))
		return -1;
	return b->turned ? b->slots : next;
}

/* What a row was given, and what it has: all of it, but in a ring that has let go. */
static bool row_fits(const struct mlx_batch *b, int64_t used, int64_t padding,
		     int64_t given)
{
	if (padding > 0 || !b->ring)
		return padding >= 0 && given == used - padding;
	return given >= used;
}

/* Rows of all layers were given the same tokens; takes 'given' over. */
static enum kvt_status keep_rows(struct kvt_tensors *tensors,
				 const struct mlx_batch *b, int64_t *given,
				 const struct kvt_file *file, struct kvt_error *err)
{
	int64_t i = 0;

	for (int64_t r = 0; r < b->rows; r++)
		given[r] = given[r] > 0 ? given[r] : 0;
	if (!tensors->given) {
		tensors->given = given;
		tensors->ngiven = b->rows;
		return KVT_OK;
	}
	while (i < b->rows && i < tensors->ngiven && given[i] == tensors->given[i])
		i++;
	free(given);
	if (i < b->rows || i < tensors->ngiven)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: arrays of %.40s say of row %lld another number of tokens than those of a layer before it",
				file->path, b->arrays, LL(i));
	return KVT_OK;
}

enum kvt_status kvt_mlx_batch(struct kvt_held *out, struct kvt_tensors *tensors,
			      const struct kvt_file *file, const struct mlx_batch *b,
			      struct kvt_error *err)
{
	int64_t *given = NULL, *padding = NULL, used = used_of(b);
	enum kvt_status status;
	bool fits;

	snprintf(out->class, sizeof(out->class), "%s", b->class);
	if ((status = read_rows(&given, tensors, file, b, 2, err)) ||
	    (status = read_rows(&padding, tensors, file, b, 3, err))) {
		free(given);
		free(padding);
		return status;
	}
	fits = used >= 0 && given && padding;
	for (int64_t r = 0; fits && r < b->rows; r++)
		fits = row_fits(b, used, padding[r], given[r]);
	free(padding);
	out->disordered = !fits;
	if (!fits) {
		free(given);
		return KVT_OK;
	}
	out->told = out->fixed = out->batch = true;
	out->seen = -1;
	out->used = used;
	out->ring = out->sliding = b->ring;
	out->window = b->ring ? b->max_size : 0;
	out->turned = b->turned > 0;
	out->next = out->turned ? b->next : 0;
	return keep_rows(tensors, b, given, file, err);
}
