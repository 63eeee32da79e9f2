/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transformers.c - caches of the transformers library, as people save them: keys
 * and values of each layer as [batch, heads, tokens, elements] in safetensors,
 * npz or torch files
 *
 * In a torch file a cache may be an object, which names its class, and programs of mlx
 * name theirs in the metadata.  Nothing else tells these axes from those of an engine's
 * blocks, so other files are read so on request only.  A row of the batch becomes a
 * request.
 */
#include "formats/caches/write.h"
#include "formats/caches/open.h"
#include "formats/tensor/names.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tensor/coded.h"
#include "formats/tensor/safetensors_header.h"

/* ---- tensors ------------------------------------------------------------ */

/* How the tensors of a file are read, by how it begins. */
static kvt_tensors_fn *reader_of(const char *path, const uint8_t *head, int64_t n)
{
	if (kvt_npz_format.probe(path, head, n))
		return kvt_npz_read;
	return kvt_torch_format.probe(path, head, n) ? kvt_torch_read : kvt_tensors_read;
}

static enum kvt_status read_file(struct kvt_tensors *out, const struct kvt_file *file,
				 struct kvt_error *err)
{
	int64_t n = file->nbytes < 256 ? file->nbytes : 256;
	enum kvt_status status;
	uint8_t head[256];

	if ((status = kvt_file_read(file, head, n, 0, err)))
		return status;
	if (kvt_npy_format.probe(file->path, head, n))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: is one array of numpy, whose axes --layout says: LKHSD is layers, keys and values, heads, tokens, elements of a head; an .npz of it is read with --set=axes=LKHTD, too",
				file->path);
	return reader_of(file->path, head, n)(out, file, err);
}

static enum kvt_status read_tensors(struct cache_opening *o)
{
	enum kvt_status status = read_file(&o->tensors, &o->reader->files.file[o->file],
					   o->err);

	if (status)
		return status;
	kvt_tensors_prove(o->reader, o->file, &o->tensors);
	return kvt_coded_files(o->reader, o->file, &o->tensors, o->err);
}

/* ---- parts ------------------------------------------------------------- */

/* Where the tokens of a row stand in the blocks of a group. */
struct span {
	int64_t block;			/* the first one of the group for this row */
	int64_t skip;			/* slots of it before the first token */
	int64_t slot, count;		/* of the tokens */
};

/* Slots of a layer that are neighbours on the axis, in their order. */
struct stretch {
	int64_t slot, at, count;	/* of the tensor, on the axis */
};

/* A ring that has begun anew is what it keeps, the older part, and the newer one. */
static void find_stretches(struct stretch out[3], const struct cache_opening *o,
			   const struct cache_layer *l)
{
	int64_t slots = l->half[0].shape[CACHE_TOKENS];
	int64_t keep = l->held.keep, next = l->held.next;

	memset(out, 0, 3 * sizeof(*out));
	if (!l->held.turned) {
		out[0] = (struct stretch){ 0, l->first, l->count };
		return;
	}
	out[0] = (struct stretch){ 0, 0, keep };
	out[1] = (struct stretch){ next, o->seen - (slots - keep), slots - next };
	out[2] = (struct stretch){ keep, o->seen - (next - keep), next - keep };
}

/* The tokens of a row, of those that it asks for, in one stretch. */
static enum kvt_status add_stretch(struct cache_opening *o, int g,
				   struct kvt_token_run run, const struct stretch *part,
				   const struct span *span)
{
	int64_t each = o->reader->leaf.snapshot.group[g].tokens_per_slot;
	int64_t begin = part->at > span->slot ? part->at : span->slot;
	int64_t end = part->at + part->count < span->slot + span->count ?
		      part->at + part->count : span->slot + span->count;

	if (end <= begin)
		return KVT_OK;
	/* where a slot stands for several both begin at token 0, and no part is there */
	run.token = (span->skip + begin - span->slot) / each;
	run.count = (end - begin) / each;
	/* a run's token counts from its block; its offset is that of the first one */
	run.offset += (part->slot + (begin - part->at) / each) * run.stride[KVT_AXIS_S];
	return kvt_token_run_add(&o->reader->flat[g],
				 &o->reader->leaf.snapshot.group[g], &run, o->err);
}

/* Keys or values of a layer for one row. */
static enum kvt_status add_half(struct cache_opening *o, const struct cache_layer *l,
				int kv, int64_t row, const struct span *span)
{
	enum kvt_status status = KVT_OK;
	struct kvt_token_run run;
	struct stretch part[3];
	int g;

	find_stretches(part, o, l);
	for (int p = 0; p < l->half[kv].nparts; p++) {
		kvt_cache_run(&run, &g, l, kv, p, row);
		run.block = span->block;
		for (int i = 0; !status && i < 3; i++)
			status = add_stretch(o, g, run, &part[i], span);
	}
	return status;
}

/* The tokens between what a ring keeps and its oldest other one are gone. */
static enum kvt_status add_hole(struct cache_opening *o, const struct cache_layer *l,
				int64_t r, const struct span *span)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	struct kvt_request *request = &s->request[s->nrequests - 1];
	int64_t slots = l->half[0].shape[CACHE_TOKENS];
	int64_t begin = l->held.keep, end = o->seen - (slots - l->held.keep);
	enum kvt_status status;

	if (begin < span->slot)
		begin = span->slot;
	if (end > span->slot + span->count)
		end = span->slot + span->count;
	if (end <= begin)
		return KVT_OK;
	for (int g = l->group; g <= l->group + cache_is_apart(l); g++) {
		if ((status = kvt_token_zeros(o->reader, g, span->block,
					      span->skip + begin - span->slot,
					      end - begin, o->err)))
			return status;
		if (!kvt_request_add_hole(request, g, begin - o->row[r].begin,
					  end - o->row[r].begin))
			return kvt_no_memory(o->err, o->reader->leaf.path);
	}
	return KVT_OK;
}

/* ---- requests ----------------------------------------------------------- */

/* The first slot that any layer holds of a row, and so the request's first token. */
static int64_t first_slot(const struct cache_opening *o, const struct cache_row *row)
{
	int64_t first = o->nlayers ? o->layer[0].first : 0;

	for (int64_t i = 1; i < o->nlayers; i++)
		if (o->layer[i].first < first)
			first = o->layer[i].first;
	return first < row->begin ? row->begin : first > row->end ? row->end : first;
}

/* Blocks that a window has passed are the null block; of the next one a part is. */
static enum kvt_status add_table(struct cache_opening *o, int g, int64_t r,
				 struct span *span, int64_t *nblocks)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	struct kvt_request *request = &s->request[s->nrequests - 1];
	int64_t first = o->first[g], size = s->group[g].block_size;
	int64_t each = s->group[g].tokens_per_slot;
	int64_t skip = request->first_token % size, passed, end;
	enum kvt_status status;

	span->slot = o->row[r].begin + request->first_token;
	if (first > span->slot) {
		skip += first - span->slot;
		span->slot = first;
	}
	if (span->slot > o->row[r].end) {
		skip -= span->slot - o->row[r].end;
		span->slot = o->row[r].end;
	}
	span->count = o->row[r].end - span->slot;
	if (o->end[g] && o->end[g] < o->row[r].end)
		span->count = o->end[g] > span->slot ? o->end[g] - span->slot : 0;
	span->count -= span->count % s->group[g].tokens_per_slot;
	passed = skip / size < request->nblocks[g] ? skip / size : request->nblocks[g];
	for (int64_t i = 0; i < request->nblocks[g]; i++)
		request->blocks[g][i] =
			i < passed ? 0 : (uint32_t)(*nblocks + i - passed);
	span->block = *nblocks;
	span->skip = skip - passed * size;
	*nblocks += request->nblocks[g] - passed;
	/* the extent follows when all are counted, and is not asked before */
	end = span->skip + span->count;
	status = kvt_token_zeros(o->reader, g, span->block, 0, span->skip / each, o->err);
	if (!o->end[g] && !status)
		return kvt_token_zeros(o->reader, g, span->block, end,
				       (size - end % size) % size, o->err);
	return status ? status :
	       kvt_token_zeros(o->reader, g, span->block, end / each,
			       ((request->nblocks[g] - passed) * size - end) / each,
			       o->err);
}

/* What waits, or is let go of, has no row: positions around those of a group. */
static enum kvt_status add_gaps(struct cache_opening *o, int g, int64_t r,
				const struct span *span)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	struct kvt_request *request = &s->request[s->nrequests - 1];
	int64_t begin = request->first_token, end = begin + request->ntokens;
	int64_t first = span->slot - o->row[r].begin;

	if (!o->end[g])
		return KVT_OK;
	if ((first > begin && !kvt_request_add_hole(request, g, begin, first)) ||
	    (first + span->count < end &&
	     !kvt_request_add_hole(request, g, first + span->count, end)))
		return kvt_no_memory(o->err, o->reader->leaf.path);
	return KVT_OK;
}

/* The newest state of a row is its block. */
static enum kvt_status add_state(struct cache_opening *o, int g, int64_t r)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	struct kvt_request *request = &s->request[s->nrequests - 1];

	request->blocks[g][0] = (uint32_t)r;
	request->nblocks[g] = 1;
	return KVT_OK;
}

/* What the encoder was given is not what the decoder was: the groups know no tokens. */
static void leave_groups(struct kvt_request *request, int end)
{
	for (int g = 0; g < end; g++)
		request->nblocks[g] = 0;
}

static enum kvt_status add_request(struct cache_opening *o, int64_t r,
				   int64_t nblocks[KVT_MAX_GROUPS])
{
	int64_t first = first_slot(o, &o->row[r]), counted[KVT_MAX_GROUPS] = { 0 };
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	struct span span[KVT_MAX_GROUPS];
	enum kvt_status status;
	const char *told = o->nrows == 1 ? kvt_cache_note(&o->tensors, "request") : NULL;
	char id[32];

	snprintf(id, sizeof(id), "%lld%s", LL(r), o->cross ? ".cross" : "");
	status = kvt_token_request(s, told ? told : id, o->row[r].end - first,
				   first - o->row[r].begin, counted, o->err);
	if (!status)
		leave_groups(&s->request[s->nrequests - 1], o->base);
	for (int g = o->base; !status && g < s->ngroups; g++)
		if (kvt_is_recurrent(s->group[g].kind))
			status = add_state(o, g, r);
		else if (!(status = add_table(o, g, r, &span[g], &nblocks[g])))
			status = add_gaps(o, g, r, &span[g]);
	/* the first layer of a group says it for all of them */
	for (int64_t i = 0; !status && i < o->nlayers; i++)
		if (o->layer[i].held.turned && o->layer[i].held.keep &&
		    !o->layer[i].place)
			status = add_hole(o, &o->layer[i], r, &span[o->layer[i].group]);
	for (int64_t i = 0; !status && i < o->nlayers; i++)
		for (int kv = 0; !status && kv < 2 - cache_is_alone(&o->layer[i]); kv++)
			status = add_half(o, &o->layer[i], kv, r,
					  &span[o->layer[i].group]);
	return status;
}

static enum kvt_status add_requests(struct cache_opening *o)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	int64_t nblocks[KVT_MAX_GROUPS] = { 0 };
	enum kvt_status status = KVT_OK;

	for (int64_t i = 1; i < o->nlayers; i++)
		if (o->layer[i].first != o->layer[0].first)
			s->null_block = 0;
	for (int g = o->base; s->null_block == 0 && g < s->ngroups; g++) {
		nblocks[g] = 1;
		if (kvt_is_recurrent(s->group[g].kind))
			kvt_set_null(s, g, -1);
	}
	for (int64_t r = 0; !status && o->row && r < o->nrows; r++)
		status = add_request(o, r, nblocks);
	for (int g = o->base; !status && g < s->ngroups; g++) {
		if (kvt_is_recurrent(s->group[g].kind))
			continue;
		s->group[g].shape.n[KVT_AXIS_B] = nblocks[g];
		if (s->null_block == 0)
			status = kvt_token_zeros(o->reader, g, 0, 0,
						 s->group[g].shape.n[KVT_AXIS_S], o->err);
	}
	return status;
}

/* ---- the format --------------------------------------------------------- */

/* The name of a class in a pickle, which is not compressed: "transformers.models.x". */
static bool cache_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	static const char *const wanted[] = { "ctransformers.cache_utils\n",
					      "ctransformers.models." };

	if (kvt_header_probe(path, head, nhead, kvt_cache_is_own))
		return true;
	if (!kvt_torch_format.probe(path, head, nhead))
		return false;
	for (int64_t i = 0; i < 2 * nhead; i++) {
		int64_t at = i / 2, n = (int64_t)strlen(wanted[i % 2]);

		if (at + n <= nhead && !memcmp(head + at, wanted[i % 2], (size_t)n))
			return true;
	}
	return false;
}

/* Is all of it what iterating over a cache gives, keys, values and a window? */
static bool are_told(const struct kvt_tensors *t)
{
	bool told = t->count;

	for (int64_t i = 0; i < t->count; i++)
		told &= t->tensor[i].held.told;
	return told;
}

/* Does the shape of all say which axis is heads, and their names which layer each is? */
static bool shapes_tell(const struct kvt_tensors *t)
{
	struct kvt_layer *layer = NULL;
	bool apart = false, good = true;
	char *names = NULL;
	const char *after;
	int64_t count;

	for (int64_t i = 0; good && i < t->count; i++) {
		const char *axes = kvt_axes_of_shape(&t->tensor[i]);

		good = kvt_cache_role(&t->tensor[i], &after) == KVT_ROLE_PAIR &&
		       axes && !strcmp(axes, KVT_CACHE_AXES);
	}
	good = good && t->count && !kvt_names_guess(&names, t, "", "", NULL) &&
	       !kvt_tensors_layers(&layer, &count, &apart, t, names, "", NULL) && apart;
	free(layer);
	free(names);
	return good;
}

/* Are there keys and values of all layers, of one sequence and not of too many heads? */
static bool stack_tells(const struct kvt_tensors *t)
{
	const struct kvt_tensor *k = t->tensor, *v = t->count == 2 ? k + 1 : NULL;

	return v && kvt_tensors_alike(k, v) && k->rank == CACHE_RANK + 1 &&
	       (kvt_tensors_partner(t, k->name, NULL) ||
		kvt_tensors_partner(t, v->name, NULL)) && k->shape[1] == 1 &&
	       k->shape[2] <= KVT_MOST_HEADS && k->shape[3] > KVT_MOST_HEADS;
}

bool kvt_cache_is_meant(const struct kvt_format *format, const char *path,
			const struct kvt_hints *hints)
{
	struct kvt_manifest manifest = { 0 };
	struct kvt_files files = { 0 };
	struct kvt_tensors t = { 0 };
	bool found, meant = false;
	int file;

	if ((format != &kvt_safetensors_format && format != &kvt_npz_format &&
	     format != &kvt_torch_format) ||
	    (hints && (hints->layout || hints->manifest || hints->next)))
		return false;
	if (!kvt_files_open(&files, &file, path, NULL) &&
	    !read_file(&t, &files.file[file], NULL)) {
		meant = !t.manifest && !t.names &&
			(t.ncaches || are_told(&t) || shapes_tell(&t) ||
			 stack_tells(&t) || kvt_naming_find(&t, KVT_ALL) ||
			 kvt_naming_is_two(&t));
		if (meant && !kvt_manifest_load(&manifest, &found, &files.file[file],
						hints, NULL)) {
			meant = !found;
			kvt_manifest_free(&manifest);
		}
		kvt_tensors_free(&t);
	}
	kvt_files_close(&files);
	return meant;
}

/* All tensors, or those of one of two caches, to the snapshot. */
static enum kvt_status add_cache(struct cache_opening *o)
{
	enum kvt_status status;

	o->base = o->reader->leaf.snapshot.ngroups;
	(void)((status = kvt_cache_layers(o)) || (status = kvt_cache_slots(o)) ||
	       (status = kvt_cache_groups(o)) || (status = add_requests(o)) ||
	       (status = kvt_cache_state_data(o)));
	free(o->layer);
	free(o->state);
	free(o->row);
	return status;
}

static bool is_mask(const struct kvt_tensor *t)
{
	const char *after;
	enum kvt_role role = kvt_cache_role(t, &after);

	return role == KVT_ROLE_MASK || role == KVT_ROLE_DECODER_MASK;
}

/*
 * The cache of an encoder-decoder is two: what the decoder was given, and what it looks
 * at of the encoder, whose tokens are other ones.  So a row is two requests.
 */
static enum kvt_status add_two(const struct cache_opening *whole)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < 2; i++) {
		struct cache_opening o = *whole;

		o.cross = i;
		o.masked = i ? KVT_ROLE_MASK : KVT_ROLE_DECODER_MASK;
		o.tensors.ncaches = 1;
		o.tensors.count = 0;
		o.tensors.by_name = NULL;
		o.tensors.tensor = calloc((size_t)whole->tensors.count + 1,
					  sizeof(*o.tensors.tensor));
		if (!o.tensors.tensor)
			return kvt_no_memory(o.err, o.reader->leaf.path);
		for (int64_t t = 0; t < whole->tensors.count; t++)
			if (kvt_naming_is_of(whole->tensors.tensor[t].name, i) ||
			    is_mask(&whole->tensors.tensor[t]))
				o.tensors.tensor[o.tensors.count++] =
					whole->tensors.tensor[t];
		status = kvt_tensors_index(&o.tensors, o.reader->leaf.path, o.err);
		/* of a decoder that has run for no step, or looked at nothing */
		if (!status && o.tensors.count)
			status = add_cache(&o);
		free(o.tensors.tensor);
		free(o.tensors.by_name);
	}
	return status;
}

static bool is_two(const struct cache_opening *o)
{
	int64_t n = 0;

	if (kvt_fact(o->hints, "names"))
		return false;
	if (!o->tensors.ncaches)
		return kvt_naming_is_two(&o->tensors);
	for (int64_t i = 0; i < o->tensors.count; i++)
		n += strstr(o->tensors.tensor[i].name, "self_attention_cache.") ||
		     strstr(o->tensors.tensor[i].name, "cross_attention_cache.") ||
		     is_mask(&o->tensors.tensor[i]);
	return o->tensors.ncaches == 2 && n == o->tensors.count;
}

/* What the user says of names and axes, or the file, or what goes without saying. */
static enum kvt_status take_axes(struct cache_opening *o)
{
	const struct kvt_naming *naming = NULL;
	const char *told = kvt_fact(o->hints, "axes");

	o->axes = told ? told : KVT_CACHE_AXES;
	if (!kvt_fact(o->hints, "names") && !o->tensors.names && !o->tensors.ncaches)
		naming = kvt_naming_find(&o->tensors, KVT_ALL);
	if (naming) {
		o->tensors.names = naming->names;
		o->axes = told ? told : naming->axes;
	}
	return kvt_axes_check(o->axes, o->err);
}

static enum kvt_status cache_open(struct kvt_reader *reader, const char *path,
				  const struct kvt_hints *hints, struct kvt_error *err)
{
	struct cache_opening o = { .reader = reader, .hints = hints, .err = err,
				   .masked = KVT_ROLE_MASK };
	enum kvt_status status;

	if ((status = kvt_files_open(&reader->files, &o.file, path, err)))
		return status;
	status = read_tensors(&o);
	/* whatever was asked for: states of the two are not alike */
	reader->format = o.tensors.mlx ? &kvt_mlx_format : &kvt_cache_format;
	if (!status && !(status = take_axes(&o)))
		status = is_two(&o) ? add_two(&o) : add_cache(&o);
	kvt_tensors_free(&o.tensors);
	return status;
}

static const char *const facts[] = { "axes", "names", "padding", "recurrent", "ring",
				     "slots", "tokens", "window", NULL };

const struct kvt_format kvt_cache_format = {
	.info = { "transformers", "keys and values as [batch, heads, tokens, elements]",
		  .reads = true, .writes = true, .one_request = true },
	.facts = facts,
	.checks = "headers, extents, lengths",
	.probe = cache_probe,
	.open = cache_open,
	.close = kvt_tensors_close,
	.create = kvt_cache_create,
	.finish = kvt_cache_finish,
};

/* The same, with what programs of mlx say in the metadata. */
static const char *const mlx_forms[] = { "mlx-0.28", "mlx-0.26", NULL };

const struct kvt_format kvt_mlx_format = {
	.info = { "mlx", "prompt caches of mlx-lm, mlx-vlm and oMLX",
		  .reads = true, .writes = true, .one_request = true },
	.presets = mlx_forms,
	.facts = facts,
	.checks = "headers, extents, lengths",
	.probe = kvt_mlx_probe,
	.open = cache_open,
	.close = kvt_tensors_close,
	.create = kvt_cache_create,
	.finish = kvt_cache_finish,
};
