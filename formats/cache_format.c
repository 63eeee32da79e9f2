/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache_format.c - caches of the transformers library, as people save them: keys
 * and values of each layer as [batch, heads, tokens, elements] in safetensors,
 * npz or torch files
 *
 * Nothing in such a file tells these axes from those of an engine's blocks, so it
 * is read on request only.  A row of the batch becomes a request.
 */
#include "formats/tensors.h"
#include "formats/token_runs.h"

#include <stdlib.h>
#include <string.h>

#include "formats/safetensors_header.h"

#define LL(x) ((long long)(x))

enum { BATCH, HEADS, TOKENS, DIM, RANK };

struct opening {
	struct kvt_reader *reader;
	const struct kvt_hints *hints;
	struct kvt_tensors tensors;
	struct kvt_layer *layer;
	int64_t nlayers;
	const struct kvt_tensor *first;
	int64_t *tokens;		/* [batch] */
	bool left;			/* padding stands before the tokens */
	int file;
	struct kvt_error *err;
};

/* ---- tensors ------------------------------------------------------------ */

static enum kvt_status read_tensors(struct opening *o)
{
	const struct kvt_file *file = &o->reader->files.file[o->file];
	int64_t n = file->nbytes < 256 ? file->nbytes : 256;
	enum kvt_status status;
	uint8_t head[256];

	if ((status = kvt_file_read(file, head, n, 0, o->err)))
		return status;
	if (kvt_npz_format.probe(file->path, head, n))
		return kvt_npz_read(&o->tensors, file, o->err);
	if (kvt_torch_format.probe(file->path, head, n))
		return kvt_torch_read(&o->tensors, file, o->err);
	return kvt_tensors_read(&o->tensors, file, o->err);
}

static const struct kvt_tensor *keys_of(const struct opening *o, int64_t l)
{
	return &o->tensors.tensor[o->layer[l].index];
}

static const struct kvt_tensor *values_of(const struct opening *o,
					  const struct kvt_tensor *keys)
{
	return kvt_tensors_partner(&o->tensors, keys->name, kvt_fact(o->hints, "names"));
}

static enum kvt_status check_shape(const struct opening *o, const struct kvt_tensor *t)
{
	const struct kvt_tensor *f = o->first;

	if (t->rank == RANK && !strcmp(t->type, f->type) &&
	    !memcmp(t->shape, f->shape, RANK * sizeof(*t->shape)))
		return KVT_OK;
	if (t->rank == RANK && f->rank == RANK && t->shape[TOKENS] != f->shape[TOKENS])
		return kvt_fail(o->err, KVT_UNSUPPORTED,
				"%s: tensor %.100s holds %lld tokens and %.100s %lld; layers with a window are not read",
				o->reader->path, f->name, LL(f->shape[TOKENS]), t->name,
				LL(t->shape[TOKENS]));
	if (t->rank != RANK)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tensor %.100s has %d axes, expected batch, heads, tokens and elements",
				o->reader->path, t->name, t->rank);
	return kvt_fail(o->err, KVT_UNSUPPORTED,
			"%s: tensors %.100s and %.100s differ in shape or type",
			o->reader->path, f->name, t->name);
}

static enum kvt_status list_layers(struct opening *o)
{
	enum kvt_status status;
	bool apart;

	if ((status = kvt_tensors_layers(&o->layer, &o->nlayers, &apart, &o->tensors,
					 kvt_fact(o->hints, "names"), o->reader->path,
					 o->err)))
		return status;
	o->first = keys_of(o, 0);
	if (!apart)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: names like %.100s do not tell keys from values; "
				"give --set names=KEYS,VALUES, with {l} for the layer",
				o->reader->path, o->first->name);
	if ((status = kvt_tensor_check_type(o->first, o->reader->path, o->err)))
		return status;
	/* without them any number of tokens takes no bytes */
	if (o->first->rank == RANK && (!o->first->shape[HEADS] || !o->first->shape[DIM]))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tensor %.100s has no heads or no elements",
				o->reader->path, o->first->name);
	for (int64_t l = 0; !status && l < o->nlayers; l++) {
		const struct kvt_tensor *t = keys_of(o, l);

		status = check_shape(o, t);
		if (!status)
			status = check_shape(o, values_of(o, t));
	}
	return status;
}

/* ---- how many tokens ---------------------------------------------------- */

/* "N" for all rows, or "N,N,..." for each. */
static enum kvt_status take_tokens(struct opening *o)
{
	const char *text = kvt_fact(o->hints, "tokens"), *at = text;
	const char *padding = kvt_fact(o->hints, "padding");
	int64_t rows = o->first->shape[BATCH], most = o->first->shape[TOKENS];

	if (padding && strcmp(padding, "left") && strcmp(padding, "right"))
		return kvt_fail(o->err, KVT_USAGE,
				"padding is '%.40s', expected left or right", padding);
	o->left = padding && !strcmp(padding, "left");
	/* rows without tokens take no bytes either */
	if (rows > o->reader->files.file[o->file].nbytes)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: a batch of %lld rows without data",
				o->reader->path, LL(rows));
	if (!(o->tokens = calloc((size_t)rows + 1, sizeof(*o->tokens))))
		return kvt_fail(o->err, KVT_SYSTEM, "%s: out of memory", o->reader->path);
	for (int64_t r = 0; r < rows; r++) {
		size_t n = at ? strspn(at, "0123456789") : 0;

		o->tokens[r] = !text ? most : n && n < 19 ? strtoll(at, NULL, 10) : -1;
		if (o->tokens[r] < 0 || o->tokens[r] > most)
			return kvt_fail(o->err, KVT_USAGE,
					"tokens is '%.60s', expected 0 to %lld, once or for each of %lld rows",
					text, LL(most), LL(rows));
		if (at && at[n] == ',' && r + 1 < rows)
			at += n + 1;
		else if (at && (at[n] || (at != text && r + 1 < rows)))
			return kvt_fail(o->err, KVT_USAGE,
					"tokens is '%.60s', expected one number, or one for each of %lld rows",
					text, LL(rows));
	}
	return KVT_OK;
}

/* ---- the snapshot ------------------------------------------------------- */

static int64_t blocks_of(const struct kvt_group *group, int64_t tokens)
{
	return tokens / group->block_size + (tokens % group->block_size != 0);
}

static enum kvt_status describe(struct opening *o)
{
	struct kvt_manifest m = { .has_layout = true };
	struct kvt_hints hints = o->hints ? *o->hints : (struct kvt_hints){ 0 };
	int64_t blocks = 0;
	struct kvt_group *group;
	enum kvt_status status;

	kvt_snapshot_init(&m.snapshot);
	if ((status = kvt_manifest_add_group(&group, &m.snapshot, "g0", o->reader->path,
					     o->err)) ||
	    (status = kvt_layout_parse(&group->layout, "LKBHSD", o->err)))
		return status;
	group->kind = KVT_FULL_ATTENTION;
	group->tokens_per_state = 1;
	if ((status = kvt_token_block_size(&group->block_size, o->hints, o->err)))
		return status;
	for (int64_t r = 0; r < o->first->shape[BATCH]; r++)
		blocks += blocks_of(group, o->tokens[r]);
	group->shape.n[KVT_AXIS_L] = o->nlayers;
	group->shape.n[KVT_AXIS_B] = blocks;
	group->shape.n[KVT_AXIS_S] = group->block_size;
	group->shape.n[KVT_AXIS_H] = o->first->shape[HEADS];
	group->shape.n[KVT_AXIS_K] = 2;
	group->shape.n[KVT_AXIS_D] = o->first->shape[DIM];
	/* integers may carry what a container has no name for */
	if (o->first->dtype && (o->first->dtype->is_float || !hints.dtype)) {
		group->dtype = o->first->dtype;
		group->shape.elem = group->dtype->elem;
	}
	if (hints.layout || hints.skip || hints.manifest)
		return kvt_fail(o->err, KVT_USAGE,
				"%s: a cache of transformers takes no layout, no manifest and no bytes to skip",
				o->reader->path);
	if ((status = kvt_manifest_hints(&m, &hints, o->reader->path, o->err)))
		return status;
	if (!group->dtype ||
	    group->shape.elem != kvt_tensor_array(o->first, "").elem)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: elements are %s, not %s; give --dtype",
				o->reader->path, o->first->type,
				group->dtype ? group->dtype->name : "of a known type");
	if ((status = kvt_manifest_finish_group(group, &m.snapshot.parallel,
						o->reader->path, o->err)))
		return status;
	o->reader->snapshot = m.snapshot;
	return kvt_layers_tables(&o->reader->snapshot.group[0], o->layer, o->nlayers,
				 o->reader->path, o->err);
}

/* ---- pieces ------------------------------------------------------------- */

/* One row of keys or values of a layer. */
static enum kvt_status add_row(struct opening *o, const struct kvt_tensor *t, int64_t l,
			       int k, int64_t row, int64_t block)
{
	const struct kvt_group *group = &o->reader->snapshot.group[0];
	struct kvt_token_run run = { .file = o->file, .layers = { l, l + 1 },
				     .kv = { k, k + 1 }, .block = block,
				     .count = o->tokens[row] };
	int64_t stride[RANK], dense = group->shape.elem;

	for (int i = RANK - 1; i >= 0; i--) {
		stride[i] = t->strided ? t->stride[i] : dense;
		dense *= t->shape[i];
	}
	run.stride[KVT_AXIS_S] = stride[TOKENS];
	run.stride[KVT_AXIS_H] = stride[HEADS];
	run.stride[KVT_AXIS_D] = stride[DIM];
	run.offset = o->tensors.data + t->begin + row * stride[BATCH];
	if (o->left)
		run.offset += (t->shape[TOKENS] - run.count) * stride[TOKENS];
	return kvt_token_run_add(&o->reader->flat[0], group, &run, o->err);
}

/* What is behind the last token of a request. */
static enum kvt_status add_rest(struct opening *o, int64_t row, int64_t block)
{
	const struct kvt_group *group = &o->reader->snapshot.group[0];
	int64_t n = o->tokens[row];
	struct kvt_token_run run = { .file = -1, .layers = { 0, o->nlayers },
				     .kv = { 0, 2 }, .block = block, .token = n };

	run.count = blocks_of(group, n) * group->block_size - n;
	return kvt_token_run_add(&o->reader->flat[0], group, &run, o->err);
}

static enum kvt_status add_requests(struct opening *o)
{
	int64_t nblocks[KVT_MAX_GROUPS] = { 0 };
	enum kvt_status status = KVT_OK;

	for (int64_t r = 0; !status && r < o->first->shape[BATCH]; r++) {
		int64_t block = nblocks[0];
		char id[24];

		snprintf(id, sizeof(id), "%lld", LL(r));
		status = kvt_token_request(&o->reader->snapshot, id, o->tokens[r], 0,
					   nblocks, o->err);
		for (int64_t l = 0; !status && l < o->nlayers; l++) {
			const struct kvt_tensor *t = keys_of(o, l);

			if (!(status = add_row(o, t, l, 0, r, block)))
				status = add_row(o, values_of(o, t), l, 1, r, block);
		}
		if (!status)
			status = add_rest(o, r, block);
	}
	return status;
}

static enum kvt_status cache_open(struct kvt_reader *reader, const char *path,
				  const struct kvt_hints *hints, struct kvt_error *err)
{
	struct opening o = { .reader = reader, .hints = hints, .err = err };
	enum kvt_status status;

	if ((status = kvt_files_open(&reader->files, &o.file, path, err)))
		return status;
	(void)((status = read_tensors(&o)) || (status = list_layers(&o)) ||
	       (status = take_tokens(&o)) || (status = describe(&o)) ||
	       (status = add_requests(&o)));
	kvt_tensors_free(&o.tensors);
	free(o.layer);
	free(o.tokens);
	return status;
}

static const char *const facts[] = { "names", "padding", "tokens", NULL };

const struct kvt_format kvt_cache_format = {
	.info = { "transformers", "keys and values as [batch, heads, tokens, elements]",
		  true, false },
	.facts = facts,
	.open = cache_open,
};
