/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens.c - runs of tokens at strides of the file's own become blocks
 *
 * A run is cut where blocks begin: a part of a block, whole blocks as one part, and a
 * part again.  Of tokens 2 to 13, in blocks of 4:
 *
 *	| . . 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13 . . |
 *	  part 1   part 2                part 3
 *
 * Each part is a box with a view into the file, at the run's strides; a run of no file
 * is zeros.
 */
#include "formats/file/tokens.h"

#include <stdlib.h>
#include <string.h>

/* Each part takes memory, and tokens in any order whatever make very many. */
enum { MAX_BLOCK = 1 << 30, MAX_PARTS = 1 << 18 };

enum kvt_status kvt_token_block_size(int64_t *out, const struct kvt_hints *hints,
				     struct kvt_error *err)
{
	*out = hints && hints->block_size ? hints->block_size : KVT_TOKEN_BLOCK;
	if (*out > MAX_BLOCK)
		return kvt_fail(err, KVT_USAGE,
				"--block-size is %lld, at most %d is supported",
				LL(*out), MAX_BLOCK);
	return KVT_OK;
}

static enum kvt_status add_box(struct kvt_flat *flat, const struct kvt_group *group,
			       const struct kvt_token_run *run, const struct kvt_box *box,
			       int64_t token, struct kvt_error *err)
{
	struct kvt_file_part part = { .file = run->file, .box = *box };
	struct kvt_view *view = &part.views.view[0];
	enum kvt_status status;
	int64_t step;

	if (flat->nparts == MAX_PARTS)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"group %s: tokens are in more than %d separate ranges",
				group->id, MAX_PARTS);
	if (run->file < 0)
		return kvt_flat_add(flat, &part, err);
	if ((status = kvt_layout_views(&part.views, &group->layout, box,
				       group->shape.elem, err)))
		return status;
	if (part.views.count != 1)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"layout %s has separate buffers for keys and values",
				kvt_layout_string(&group->layout).s);
	for (int a = 0; a < KVT_NAXES; a++)
		if (a != KVT_AXIS_B)
			kvt_view_set_stride(view, (enum kvt_axis)a, run->stride[a]);
	if (__builtin_mul_overflow(run->stride[KVT_AXIS_S], group->shape.n[KVT_AXIS_S],
				   &step))
		return kvt_fail(err, KVT_BAD_INPUT, "group %s: blocks of 2^63 bytes",
				group->id);
	kvt_view_set_stride(view, KVT_AXIS_B, step);
	view->offset = run->offset + token * run->stride[KVT_AXIS_S];
	return kvt_flat_add(flat, &part, err);
}

enum kvt_status kvt_token_run_add(struct kvt_flat *flat, const struct kvt_group *group,
				  const struct kvt_token_run *run, struct kvt_error *err)
{
	struct kvt_box box = kvt_box_whole(&group->shape);
	int64_t size = group->shape.n[KVT_AXIS_S], done = 0;
	enum kvt_status status = KVT_OK;

	for (int i = 0; i < 2; i++) {
		(i ? box.end : box.begin)[KVT_AXIS_L] = run->layers[i];
		(i ? box.end : box.begin)[KVT_AXIS_K] = run->kv[i];
		if (run->dim[1])
			(i ? box.end : box.begin)[KVT_AXIS_D] = run->dim[i];
	}
	while (!status && done < run->count) {
		int64_t at = run->token + done, left = run->count - done;
		int64_t within = at % size, n = size - within;

		if (!within && left >= size)
			n = left - left % size;
		else if (n > left)
			n = left;
		box.begin[KVT_AXIS_B] = run->block + at / size;
		box.end[KVT_AXIS_B] = run->block + (at + n + size - 1) / size;
		box.begin[KVT_AXIS_S] = within;
		box.end[KVT_AXIS_S] = n >= size ? size : within + n;
		status = add_box(flat, group, run, &box, done, err);
		done += n;
	}
	return status;
}

enum kvt_status kvt_token_zeros(struct kvt_reader *reader, int g, int64_t block,
				int64_t token, int64_t count, struct kvt_error *err)
{
	const struct kvt_group *group = &reader->leaf.snapshot.group[g];
	struct kvt_token_run run = { .file = -1, .block = block, .token = token,
				     .layers = { 0, group->shape.n[KVT_AXIS_L] },
				     .kv = { 0, group->shape.n[KVT_AXIS_K] },
				     .count = count };

	return kvt_token_run_add(&reader->flat[g], group, &run, err);
}

enum kvt_status kvt_token_request(struct kvt_snapshot *snapshot, const char *id,
				  int64_t ntokens, int64_t first,
				  int64_t nblocks[KVT_MAX_GROUPS], struct kvt_error *err)
{
	size_t n = (size_t)snapshot->nrequests;
	struct kvt_request *request;

	request = realloc(snapshot->request, (n + 1) * sizeof(*request));
	if (!request)
		return kvt_fail(err, KVT_SYSTEM, "out of memory for %zu requests", n);
	snapshot->request = request;
	request = &snapshot->request[snapshot->nrequests++];
	*request = (struct kvt_request){ .id = strdup(id), .ntokens = ntokens,
					 .first_token = first };
	for (int g = 0; g < snapshot->ngroups; g++) {
		int64_t size = snapshot->group[g].block_size;
		/* of recurrent states: none is counted by tokens */
		int64_t blocks = size ? (first % size + ntokens + size - 1) / size : 0;

		request->blocks[g] = calloc((size_t)blocks + 1, sizeof(uint32_t));
		if (!request->id || !request->blocks[g])
			return kvt_fail(err, KVT_SYSTEM,
					"out of memory for request %s", id);
		for (int64_t i = 0; i < blocks; i++)
			request->blocks[g][i] = (uint32_t)(nblocks[g] + i);
		request->nblocks[g] = blocks;
		nblocks[g] += blocks;
	}
	return KVT_OK;
}
