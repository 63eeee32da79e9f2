/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrays.c - where the blocks of files of mlx-vlm and oMLX are
 *
 *	shard	k{l}, v{l}				[1, heads, tokens, elements]
 *		k_all, v_all (token_major_v2)		[tokens, layers, heads, elements]
 *	exact	c{l}_k, c{l}_v				[1, heads, tokens, elements]
 *	oMLX	layer_{l}_state_0, .._state_1, or .._keys, .._values	the same
 *
 * Their arrays are those of a cache, [batch, heads, tokens, elements] of each layer, so
 * layers and groups are found as in one (formats/caches/open.h); slots of the
 * arrays are tokens of blocks, one after the other.  All files of a dump have the layers
 * of the first.
 *
 * mlx-vlm once wrote all layers as one array, [tokens, layers, heads, elements]: that is
 * taken apart into arrays of layers.
 */
#include "formats/mlx/mlx.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tensor/names.h"
#include "formats/tensor/safetensors_header.h"

enum { ALL_RANK = 4 };			/* of an array of all layers */

/* ---- all layers in one array --------------------------------------------- */

static enum kvt_status no_memory(const struct cache_opening *c)
{
	return kvt_no_memory(c->err, c->reader->files.file[c->file].path);
}

/* Layer l of such an array, with the axes that other files have. */
static bool take_layer(struct kvt_tensor *out, const struct kvt_tensor *all, char half,
		       int64_t l)
{
	static const int from[CACHE_RANK] = { -1, 2, 0, 3 };	/* batch: none */
	int64_t stride[ALL_RANK], dense = kvt_tensor_array(all, "").elem;
	char name[32];

	for (int i = ALL_RANK - 1; i >= 0; i--) {
		stride[i] = dense;
		dense *= all->shape[i];
	}
	*out = *all;
	snprintf(name, sizeof(name), "%c%lld", half, LL(l));
	out->name = strdup(name);
	out->strided = true;
	for (int i = 0; i < CACHE_RANK; i++) {
		out->shape[i] = from[i] < 0 ? 1 : all->shape[from[i]];
		out->stride[i] = from[i] < 0 ? dense : stride[from[i]];
	}
	out->begin += l * stride[1];
	out->end = out->begin + (all->shape[1] ? dense / all->shape[1] : 0);
	return out->name != NULL;
}

static enum kvt_status split_layers(struct cache_opening *c)
{
	const struct kvt_tensor *k = kvt_tensors_find(&c->tensors, "k_all");
	const struct kvt_tensor *v = kvt_tensors_find(&c->tensors, "v_all");
	const char *path = c->reader->files.file[c->file].path;
	struct kvt_tensor *tensor, *all = c->tensors.tensor;
	int64_t count = c->tensors.count;
	enum kvt_status status = KVT_OK;

	if (!k && !v)
		return KVT_OK;
	if (!k || !v || count != 2 || k->rank != ALL_RANK || v->rank != ALL_RANK ||
	    k->shape[1] != v->shape[1] || k->shape[1] < 1 ||
	    k->shape[1] > k->end - k->begin)
		return kvt_fail(c->err, KVT_BAD_INPUT,
				"%s: expected k_all and v_all alone, of tokens, as many layers, heads and elements", path);
	if (!(tensor = calloc(2 * (size_t)k->shape[1], sizeof(*tensor))))
		return no_memory(c);
	c->tensors.tensor = tensor;
	c->tensors.count = 0;
	for (int64_t l = 0; !status && l < k->shape[1]; l++) {
		struct kvt_tensor *pair = &tensor[c->tensors.count];

		c->tensors.count += 2;
		if (!take_layer(&pair[0], k, 'k', l) || !take_layer(&pair[1], v, 'v', l))
			status = no_memory(c);
	}
	free(c->tensors.by_name);
	c->tensors.by_name = NULL;
	for (int64_t i = 0; i < count; i++)
		free(all[i].name);
	free(all);
	return status ? status : kvt_tensors_index(&c->tensors, path, c->err);
}

/* ---- layers -------------------------------------------------------------- */

/* Names of keys and values; until its version 3 oMLX gave them words. */
static const char *names_of(const struct kvt_mlx_file *file, const struct kvt_tensors *t)
{
	static const char *const names[] = {
		[KVT_MLX_SHARD] = "k{l},v{l}", [KVT_MLX_EXACT] = "c{l}_k,c{l}_v",
		[KVT_MLX_BLOCK] = "layer_{l}_state_0,layer_{l}_state_1",
	};

	for (int64_t i = 0; file->kind == KVT_MLX_BLOCK && i < t->count; i++)
		if (kvt_path_ends(t->tensor[i].name, "_keys"))
			return "layer_{l}_keys,layer_{l}_values";
	return names[file->kind];
}

/* What a file of caches says of the class of each. */
static enum kvt_status check_classes(const struct cache_opening *c,
				     const struct kvt_mlx_file *file, const char *path)
{
	for (int64_t i = 0; file->kind != KVT_MLX_SHARD && i < c->tensors.count; i++) {
		const struct kvt_tensor *t = &c->tensors.tensor[i];

		if (t->rank == CACHE_RANK && t->held.told && !t->held.ring &&
		    !t->held.role && !strstr(t->held.class, "Quantized"))
			continue;
		return kvt_fail(c->err, KVT_UNSUPPORTED,
				"%s: tensor %.100s is of a layer of %.60s: only blocks of plain keys and values can be read from a folder; try this file alone, with --from=mlx",
				path, t->name, t->held.class[0] ? t->held.class :
				"a class that the file does not name");
	}
	return KVT_OK;
}

/* One row, as many slots as the blocks need, and nothing that is no layer's. */
static enum kvt_status check_layers(const struct cache_opening *c,
				    const struct kvt_mlx_file *file, const char *path)
{
	const struct kvt_mlx_block *last = &file->block[file->count - 1];
	int64_t slots = last->slot + last->tokens;

	if (c->nrows != 1 || c->nstates || c->stacked ||
	    2 * c->nlayers != c->tensors.count)
		return kvt_fail(c->err, KVT_BAD_INPUT,
				"%s: has %lld tensors of %lld layers and %lld sequences, expected keys and values of each layer and one sequence",
				path, LL(c->tensors.count), LL(c->nlayers), LL(c->nrows));
	for (int64_t i = 0; i < c->nlayers; i++) {
		int64_t here = c->layer[i].half[0].shape[CACHE_TOKENS];

		if (here < slots || (file->kind != KVT_MLX_SHARD && here != slots))
			return kvt_fail(c->err, KVT_BAD_INPUT,
					"%s: tensor %.100s has %lld slots, but the metadata say %lld tokens: it was cut or changed",
					path, c->layer[i].name, LL(here), LL(slots));
	}
	return KVT_OK;
}

enum kvt_status kvt_mlx_read(struct cache_opening *out, const struct kvt_mlx *o,
			     const struct kvt_mlx_file *file)
{
	*out = (struct cache_opening){ .reader = o->reader, .hints = o->hints,
				       .err = o->err, .file = file->file,
				       .axes = KVT_CACHE_AXES };
	return kvt_tensors_read(&out->tensors, &o->reader->files.file[file->file],
				o->err);
}

enum kvt_status kvt_mlx_arrays(struct cache_opening *c, const struct kvt_mlx *o,
			       const struct kvt_mlx_file *file)
{
	const struct kvt_file *f = &o->reader->files.file[file->file];
	char *folder = o->reader->leaf.path;
	enum kvt_status status;

	if ((status = check_classes(c, file, f->path)) || (status = split_layers(c)))
		return status;
	c->tensors.names = names_of(file, &c->tensors);
	/* their order is known, and blocks say which tokens they hold */
	for (int64_t i = 0; i < c->tensors.count; i++)
		c->tensors.tensor[i].held = (struct kvt_held){ .told = true };
	/* what is wrong with a file is said of that, not of the folder */
	o->reader->leaf.path = f->path;
	status = kvt_cache_layers(c);
	o->reader->leaf.path = folder;
	return status ? status : check_layers(c, file, f->path);
}

void kvt_mlx_close(struct cache_opening *c)
{
	free(c->layer);
	free(c->state);
	kvt_tensors_free(&c->tensors);
	*c = (struct cache_opening){ 0 };
}

/* ---- all files ----------------------------------------------------------- */

static bool is_alike(const struct cache_layer *a, const struct cache_layer *b)
{
	bool same = a->number == b->number;

	for (int i = 0; i < 2; i++)
		same &= a->half[i].shape[CACHE_HEADS] == b->half[i].shape[CACHE_HEADS] &&
			a->half[i].shape[CACHE_DIM] == b->half[i].shape[CACHE_DIM] &&
			!strcmp(a->half[i].tensor->type, b->half[i].tensor->type);
	return same;
}

static enum kvt_status refuse_unlike(const struct kvt_mlx *o,
				     const struct cache_opening *c, int64_t i)
{
	const struct kvt_file *file = o->reader->files.file;
	const char *path = file[c->file].path, *first = file[o->like].path;
	const struct cache_half *h;

	if (i < 0)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%.300s: has %lld layers, but %.300s has %lld: they are of two models; give the folder of one",
				path, LL(c->nlayers), first, LL(o->first.nlayers));
	h = c->layer[i].half;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%.300s: tensor %.100s is %s of %lld heads of %lld, unlike %.300s: they are of two models; give the folder of one",
			path, c->layer[i].name, h->tensor->type,
			LL(h->shape[CACHE_HEADS]), LL(h->shape[CACHE_DIM]), first);
}

enum kvt_status kvt_mlx_join(struct kvt_mlx *o, struct cache_opening *c)
{
	char *folder = o->reader->leaf.path;
	enum kvt_status status;

	if (o->like < 0) {
		o->like = c->file;
		o->reader->leaf.path = o->reader->files.file[c->file].path;
		status = kvt_cache_groups(c);
		o->reader->leaf.path = folder;
		o->first = *c;
		*c = (struct cache_opening){ 0 };
		return status;
	}
	if (c->nlayers != o->first.nlayers)
		return refuse_unlike(o, c, -1);
	for (int64_t i = 0; i < c->nlayers; i++) {
		if (!is_alike(&c->layer[i], &o->first.layer[i]))
			return refuse_unlike(o, c, i);
		c->layer[i].group = o->first.layer[i].group;
		c->layer[i].place = o->first.layer[i].place;
	}
	return KVT_OK;
}

/* ---- places -------------------------------------------------------------- */

/* The first block of the dump that one fills; -1: it is not read from here. */
static int64_t number_of(const struct kvt_mlx *o, const struct kvt_mlx_file *file,
			 int64_t i)
{
	const struct kvt_mlx_block *b = &file->block[i];
	const struct kvt_chunk_run *run = kvt_chunks_find(&o->chunks, b->id);
	const struct kvt_chunk *chunk = run ? &o->chunks.chunk[run->first] : NULL;

	return chunk && chunk->file == file->file && chunk->offset == b->slot ?
	       run->block : -1;
}

/* Tokens that follow each other in the file and in the dump, of all layers. */
static enum kvt_status place_tokens(struct kvt_mlx *o, const struct cache_opening *c,
				    int64_t slot, int64_t tokens, int64_t block)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; i < c->nlayers; i++)
		for (int kv = 0; !status && kv < 2; kv++) {
			struct kvt_token_run run;
			int g;

			kvt_cache_run(&run, &g, &c->layer[i], kv, 0, 0);
			run.offset += slot * run.stride[KVT_AXIS_S];
			run.block = block;
			run.count = tokens;
			status = kvt_token_run_add(&o->reader->flat[g], &s->group[g],
						   &run, o->err);
		}
	for (int g = 0; !status && g < s->ngroups; g++) {
		int64_t rest = tokens % s->group[g].block_size;

		if (rest)
			status = kvt_token_zeros(o->reader, g, block, tokens,
						 s->group[g].block_size - rest, o->err);
	}
	return status;
}

enum kvt_status kvt_mlx_place(struct kvt_mlx *o, const struct kvt_mlx_file *file)
{
	int64_t size = o->reader->leaf.snapshot.group[0].block_size, next = 0;
	struct cache_opening c;
	enum kvt_status status;

	(void)((status = kvt_mlx_read(&c, o, file)) ||
	       (status = kvt_mlx_arrays(&c, o, file)) ||
	       (status = kvt_mlx_join(o, &c)));
	for (int64_t i = 0; !status && i < file->count; i = next) {
		int64_t block = number_of(o, file, i), tokens = file->block[i].tokens;

		next = i + 1;
		while (block >= 0 && next < file->count && tokens % size == 0 &&
		       number_of(o, file, next) == block + tokens / size)
			tokens += file->block[next++].tokens;
		if (block >= 0)
			status = place_tokens(o, &c, file->block[i].slot, tokens, block);
	}
	kvt_mlx_close(&c);
	return status;
}
