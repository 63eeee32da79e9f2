/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.c - folders in which the prefix caches of mlx-vlm and oMLX keep blocks
 *
 *	mlx-vlm		shard_<32 digits>.safetensors	blocks
 *			exact_<32 digits>.safetensors	a whole cache
 *	oMLX		<digit>/<64 digits>.safetensors	a block
 *
 * Blocks of mlx-vlm say which one they follow, so requests are known; those of oMLX do
 * not, and each is a request until the user lists what belongs together.  Headers are
 * read twice: for the blocks of all files, and for where each is once it has a number.
 */
#include "formats/mlx/mlx.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "formats/store/chains.h"
#include "formats/tensor/safetensors_header.h"
#include "lib/base/grow.h"

/* ---- names --------------------------------------------------------------- */

static size_t hex(const char *text)
{
	return strspn(text, "0123456789abcdef");
}

/* What stands before ".safetensors" after the digits: "" of a file that is whole. */
static bool is_called(const char *path, bool unfinished)
{
	const char *name = kvt_path_base(path), *at = name;
	bool vlm = !strncmp(name, "shard_", 6) || !strncmp(name, "exact_", 6);

	at += vlm ? 6 : 0;
	if (hex(at) != (vlm ? 32 : 64))
		return false;
	at += hex(at);
	if (!unfinished)
		return !strcmp(at, ".safetensors");
	/* .PID-THREAD, or _tmp */
	if (vlm)
		at += *at == '.' && strspn(at + 1, "0123456789-") ?
		      1 + strspn(at + 1, "0123456789-") : 0;
	else
		at += strncmp(at, "_tmp", 4) ? 0 : 4;
	return at[-1] != '_' && !strcmp(at, ".safetensors");
}

static bool is_block(const char *path)
{
	return is_called(path, false);
}

/* One file is taken if it says that it is a shard; others are whole caches. */
static bool blocks_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	return head && kvt_mlx_is_shard(path, head, nhead);
}

/* ---- files --------------------------------------------------------------- */

static enum kvt_status add_file(struct kvt_mlx *o, int file)
{
	int64_t n = o->count;

	if (!KVT_GROW(&o->file, n))
		return kvt_no_memory(o->err, o->path);
	o->file[o->count++] = (struct kvt_mlx_file){ .file = file };
	return KVT_OK;
}

static enum kvt_status list_folder(struct kvt_mlx *o)
{
	struct kvt_tree tree;
	enum kvt_status status = kvt_tree_walk(&tree, o->path, o->err);

	if (status)
		return status;
	o->reader->leaf.unlisted = true;
	for (int64_t i = 0; !status && i < tree.count; i++) {
		const char *name = tree.file[i].name;
		int file = 0;

		if (is_called(name, true) && !is_block(name)) {
			kvt_tell(o->hints, "file.leftover",
				 "%.300s belongs to a writer that was killed or still runs",
				 name);
			continue;
		}
		if (!is_block(name))
			status = kvt_fail(o->err, KVT_BAD_INPUT,
					  "%.300s/%.300s: is not called as files of mlx-vlm or oMLX are, expected shard_ or exact_ and 32 digits, or 64 digits, and .safetensors",
					  o->path, name);
		else if (!(status = kvt_tree_list(&o->reader->files, &file, &tree, i,
						  o->err)))
			status = add_file(o, file);
	}
	kvt_tree_free(&tree);
	return status;
}

static enum kvt_status list_files(struct kvt_mlx *o)
{
	enum kvt_status status;
	int file = 0;

	if (kvt_is_folder(o->path))
		return list_folder(o);
	if ((status = kvt_files_open(&o->reader->files, &file, o->path, o->err)))
		return status;
	return add_file(o, file);
}

/* ---- which of them ------------------------------------------------------- */

/* Folders, of mlx-vlm, and models, of oMLX: a dump is of one. */
struct choices {
	struct kvt_store_choice cache, model;
	char *model_name;		/* the first one; owned */
};

/* Where a file is below the folder of the dump. */
static struct kvt_name_part folder_of(const struct kvt_mlx *o, const char *path)
{
	const char *base = kvt_path_base(path), *below = path + strlen(o->path);

	below += below < base && *below == '/';
	return below < base ?
	       (struct kvt_name_part){ below, (size_t)(base - below - 1) } :
	       (struct kvt_name_part){ ".", 1 };
}

static enum kvt_status choose(bool *skip, struct choices *choices,
			      const struct kvt_mlx *o, const struct kvt_tensors *t,
			      const char *path)
{
	const char *model = kvt_tensors_note(t, "model_name");
	const struct kvt_name_part folder = folder_of(o, path);
	const struct kvt_name_part name = { model ? model : "",
					    model ? strlen(model) : 0 };
	enum kvt_status status;

	*skip = false;
	if (kvt_mlx_kind_of(t) != KVT_MLX_BLOCK)
		return kvt_store_choose(skip, &choices->cache, &folder, o->path, o->err);
	if ((status = kvt_store_choose(skip, &choices->model, &name, o->path, o->err)) ||
	    choices->model.first.s != name.s)
		return status;
	/* what says it is gone by the next file */
	if (!(choices->model_name = strdup(name.s)))
		return kvt_no_memory(o->err, o->path);
	choices->model.first.s = choices->model_name;
	return KVT_OK;
}

/* ---- blocks of a file ---------------------------------------------------- */

/* A shard's blocks are as large as any other's, or a multiple of it. */
static void take_size(struct kvt_mlx *o, const struct kvt_mlx_file *file)
{
	int64_t size = file->block[0].tokens;

	if (file->kind == KVT_MLX_SHARD && (!o->shard || size < o->shard))
		o->shard = size;
}

static enum kvt_status add_chunks(struct kvt_mlx *o, const struct kvt_mlx_file *file)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < file->count; i++) {
		const struct kvt_mlx_block *b = &file->block[i];

		status = kvt_chunks_add(&o->chunks, &(struct kvt_chunk){
				b->id, -1, file->file, b->slot, 0, b->tokens, b->parent,
				b->ids, 0 }, o->err);
	}
	return status;
}

static enum kvt_status take_file(struct kvt_mlx *o, struct choices *choices,
				 struct kvt_mlx_file *file)
{
	const char *path = o->reader->files.file[file->file].path;
	struct cache_opening c = { .file = file->file };
	enum kvt_status status;
	bool skip;

	(void)((status = kvt_mlx_read(&c, o, file)) ||
	       (status = choose(&skip, choices, o, &c.tensors, path)) || skip ||
	       (status = kvt_mlx_blocks(file, &c.tensors, path, o->err)));
	if (!status && file->count) {
		take_size(o, file);
		(void)((status = kvt_mlx_arrays(&c, o, file)) ||
		       (status = kvt_mlx_join(o, &c)) ||
		       (status = add_chunks(o, file)));
	} else if (!status && !skip) {
		o->apart = o->napart++ ? o->apart : path;
	}
	kvt_mlx_close(&c);
	return status;
}

static enum kvt_status take_files(struct kvt_mlx *o)
{
	struct choices choices = {
		.cache = { .key = "cache", .what = "caches" },
		.model = { .key = "model", .what = "models" },
	};
	enum kvt_status status = KVT_OK;

	choices.cache.asked = kvt_fact(o->hints, choices.cache.key);
	choices.model.asked = kvt_fact(o->hints, choices.model.key);
	for (int64_t i = 0; !status && i < o->count; i++)
		status = take_file(o, &choices, &o->file[i]);
	if (!status && !(status = kvt_store_chosen(&choices.cache, o->path, o->err)))
		status = kvt_store_chosen(&choices.model, o->path, o->err);
	if (!status && choices.model_name && choices.model_name[0] &&
	    !(o->reader->leaf.snapshot.model = strdup(choices.model_name)))
		status = kvt_no_memory(o->err, o->path);
	free(choices.model_name);
	return status;
}

/* ---- what is said -------------------------------------------------------- */

enum { MOST_SAID = 1200 };

static void say(char *said, const char *format, ...) KVT_PRINTF(2, 3);

static void say(char *said, const char *format, ...)
{
	size_t n = strlen(said);
	va_list args;

	if (n && n + 2 < MOST_SAID) {
		strcpy(said + n, "; ");
		n += 2;
	}
	va_start(args, format);
	vsnprintf(said + n, MOST_SAID - n, format, args);
	va_end(args);
}

static enum kvt_status say_all(struct kvt_mlx *o)
{
	const struct kvt_chunks *c = &o->chunks;
	char *said = calloc(1, MOST_SAID);

	if (!said)
		return kvt_no_memory(o->err, o->path);
	o->reader->leaf.said = said;
	if (c->nlost)
		say(said,
		    "%lld block%s of no request, as what comes before is not there (the first is %.70s, after %.70s): --set=" KVT_CHUNKS_BEFORE "=%.70s:N says that N tokens do",
		    LL(c->nlost), c->nlost > 1 ? "s are" : " is", c->lost->id,
		    c->lost->parent, c->lost->parent);
	if (!kvt_chains_known(c) && !kvt_fact(o->hints, KVT_CHUNKS_ORDER))
		say(said,
		    "blocks do not say which tokens they hold: each is a request from token 0 on, unless --set=" KVT_CHUNKS_ORDER "=FILE lists which follow each other");
	if (o->napart)
		say(said,
		    "%lld whole cache%s more than plain keys and values and %s not read here (the first is %.200s): read each by itself",
		    LL(o->napart), o->napart > 1 ? "s have" : " has",
		    o->napart > 1 ? "are" : "is", kvt_path_base(o->apart));
	if (said[0])
		o->reader->leaf.unnoticed = said;
	return KVT_OK;
}

/* ---- the format ---------------------------------------------------------- */

static enum kvt_status place_all(struct kvt_mlx *o)
{
	struct kvt_hints hints = *o->hints;
	enum kvt_status status;
	int64_t layers;

	if (!o->chunks.count)
		return kvt_fail(o->err, KVT_UNSUPPORTED,
				"%.300s: holds no blocks, but %lld whole caches with more than plain keys and values: read one by itself, such as %.300s",
				o->path, LL(o->napart), o->apart ? o->apart : "none");
	/* whole caches have no blocks of their own */
	if (!hints.block_size)
		hints.block_size = o->shard ? o->shard : kvt_chains_known(&o->chunks) ?
				   KVT_TOKEN_BLOCK : 0;
	if ((status = kvt_chunks_sort(&o->chunks, &layers, o->err)) ||
	    (status = kvt_chunks_place(o->reader, &o->chunks, &hints, o->err)))
		return status;
	for (int64_t i = 0; !status && i < o->count; i++)
		if (o->file[i].count)
			status = kvt_mlx_place(o, &o->file[i]);
	return status ? status : say_all(o);
}

static enum kvt_status blocks_open(struct kvt_reader *reader, const char *path,
				   const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_mlx o = { .reader = reader, .path = path, .err = err, .like = -1,
			     .hints = hints };
	enum kvt_status status;

	o.chunks = (struct kvt_chunks){ .where = path, .again = true, .elsewhere = true };
	if (!(status = list_files(&o)) && !(status = take_files(&o)))
		status = place_all(&o);
	for (int64_t i = 0; i < o.count; i++)
		kvt_mlx_file_free(&o.file[i]);
	free(o.file);
	kvt_mlx_close(&o.first);
	kvt_chunks_free(&o.chunks);
	return status;
}

static const char *const facts[] = { "cache", "model", KVT_CHUNKS_ORDER,
				     KVT_CHUNKS_BEFORE, NULL };

const struct kvt_format kvt_mlx_blocks_format = {
	.info = { "mlx-blocks", "blocks that the caches of mlx-vlm and oMLX keep",
		  .reads = true, .writes = false },
	.facts = facts,
	.checks = "names, headers, extents, parents",
	.probe = blocks_probe,
	.holds = is_block,
	.open = blocks_open,
};
