/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objects.c - blocks that Dynamo's KVBM keeps as objects, copied to a folder
 *
 *	[<rank>/]<position>:<hash>[:<parent>]	a block: layer, outer, page, no header
 *	<position>:<hash>[:<parent>].meta	it was stored; .lock: it is being stored
 *
 * Hash and parent are 8 bytes in base58, and a parent is called as that block calls
 * itself; so blocks say which one they follow, and position says at which token they
 * begin even if that one is not there.  Facts: lib/kvbm-engine/src/object and lib/tokens
 * of Dynamo of 2026 (8097b0ee).
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "formats/describe/describe.h"
#include "formats/store/chunks.h"
#include "formats/store/store.h"

enum { MOST_POSITION = 1 << 24, MOST_FRAGMENT = 11 };

struct object_name {
	int64_t position;
	struct kvt_name_part rank, id, parent;	/* id: position and hash */
};

struct opening {
	struct kvt_reader *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	struct kvt_tree tree;
	struct kvt_chunks chunks;
	char **text;			/* owned: ids and parents */
	int64_t ntexts;
};

/* A number in base58: its end; NULL if it is none. */
static const char *take_fragment(const char *s)
{
	static const char digits[] =
		"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
	size_t n = strspn(s, digits);

	return n && n <= MOST_FRAGMENT ? s + n : NULL;
}

static bool parse(struct object_name *out, const char *name)
{
	const char *base = kvt_path_base(name), *p = base, *folder;

	out->rank = out->parent = (struct kvt_name_part){ base, 0 };
	if (base > name) {
		for (folder = base - 1; folder > name && folder[-1] != '/'; folder--)
			;
		out->rank = (struct kvt_name_part){ folder, (size_t)(base - 1 - folder) };
		if (strspn(folder, "0123456789") != out->rank.n)
			out->rank.n = 0;
	}
	for (out->position = 0; isdigit((unsigned char)*p); p++)
		if ((out->position = out->position * 10 + *p - '0') >= MOST_POSITION)
			return false;
	if (p == base || *p != ':' || (*base == '0' && p > base + 1) ||
	    !(p = take_fragment(p + 1)))
		return false;
	out->id = (struct kvt_name_part){ base, (size_t)(p - base) };
	if (*p == ':') {
		out->parent.s = p + 1;
		if (!(p = take_fragment(p + 1)))
			return false;
		out->parent.n = (size_t)(p - out->parent.s);
	}
	/* the first of a request follows none */
	return !*p && (out->position > 0) == (out->parent.n > 0);
}

static bool is_object(const char *name)
{
	struct object_name parsed;

	return parse(&parsed, name);
}

/* ---- objects become chunks ------------------------------------------------ */

static const char *keep(struct opening *o, const char *format, int64_t n,
			const struct kvt_name_part *part)
{
	char *text = malloc(part->n + 32);

	if (text)
		snprintf(text, part->n + 32, format, LL(n), (int)part->n, part->s);
	return o->text[o->ntexts++] = text;
}

static enum kvt_status take_object(struct opening *o, int64_t i,
				   const struct object_name *name, int64_t page)
{
	struct kvt_chunk chunk = { .layer = -1, .nbytes = o->tree.file[i].nbytes,
				   .tokens = -1, .parent = "",
				   .first = name->position * page };
	enum kvt_status status;

	if (!(chunk.id = keep(o, "%.0lld%.*s", 0, &name->id)) ||
	    (name->position && !(chunk.parent = keep(o, "%lld:%.*s", name->position - 1,
						     &name->parent))))
		return kvt_no_memory(o->err, o->path);
	status = kvt_tree_list(&o->reader->files, &chunk.file, &o->tree, i, o->err);
	return status ? status : kvt_chunks_add(&o->chunks, &chunk, o->err);
}

static enum kvt_status take_objects(struct opening *o)
{
	struct kvt_store_choice rank = { .key = "rank", .what = "ranks" };
	enum kvt_status status = KVT_OK;

	rank.asked = kvt_fact(o->hints, "rank");
	for (int64_t i = 0; !status && i < o->tree.count; i++) {
		struct object_name name;
		bool skip;

		if (kvt_path_ends(o->tree.file[i].name, ".meta"))
			continue;
		if (!parse(&name, o->tree.file[i].name))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%.200s/%.200s: is not an object of KVBM, expected [RANK/]POSITION:HASH[:PARENT]",
					o->path, o->tree.file[i].name);
		status = kvt_store_choose(&skip, &rank, &name.rank, o->path, o->err);
		if (!status && !skip)
			status = take_object(o, i, &name, o->hints->block_size);
	}
	return status ? status : kvt_store_chosen(&rank, o->path, o->err);
}

static enum kvt_status describe(struct opening *o, struct kvt_group **group)
{
	enum kvt_status status;

	if (o->hints->block_size < 1)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: objects do not say how many tokens a block has; give --block-size",
				o->path);
	if ((status = kvt_manifest_add_group(group, &o->reader->leaf.snapshot, "g0",
					     o->path, o->err)))
		return status;
	(*group)->dtype = kvt_hint_dtype(NULL, o->hints, (*group)->id);
	if ((status = kvt_chunks_page_layout(*group, false, o->hints, o->err)) ||
	    (status = kvt_chunks_said(*group, -1, o->hints, o->path, o->err)))
		return status;
	if ((*group)->shape.n[KVT_AXIS_K] == 1)
		(*group)->kind = KVT_MLA;
	return kvt_chunks_finish(*group, &o->reader->leaf.snapshot.parallel, o->hints,
				 o->path, o->err);
}

/* All blocks are whole: others have been cut, or the numbers are wrong. */
static enum kvt_status check_tokens(const struct opening *o)
{
	for (int64_t i = 0; i < o->chunks.count; i++) {
		const struct kvt_chunk *c = &o->chunks.chunk[i];

		if (c->nbytes && c->tokens != o->hints->block_size)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: has %lld bytes, those of %lld tokens, expected %lld as --block-size says",
					o->reader->files.file[c->file].path,
					LL(c->nbytes), LL(c->tokens),
					LL(o->hints->block_size));
	}
	return KVT_OK;
}

/* Of each block that is marked as stored: is it there, of the rank that is read? */
static enum kvt_status check_marks(const struct opening *o)
{
	for (int64_t i = 0; i < o->tree.count; i++) {
		const char *name = o->tree.file[i].name;
		size_t n = strlen(name) - strlen(".meta");
		struct object_name mark;
		char *text;

		if (!kvt_path_ends(name, ".meta"))
			continue;
		if (!(text = strndup(name, n)))
			return kvt_no_memory(o->err, o->path);
		if (parse(&mark, text)) {
			text[mark.id.s + mark.id.n - text] = '\0';
			if (!kvt_chunks_find(&o->chunks, mark.id.s))
				kvt_tell(o->hints, "pool.missing",
					 "block %s is marked as stored, but not there",
					 mark.id.s);
		}
		free(text);
	}
	return KVT_OK;
}

static enum kvt_status open_objects(struct opening *o)
{
	struct kvt_group *group;
	enum kvt_status status;
	int64_t layers;

	if ((status = kvt_tree_walk(&o->tree, o->path, o->err)))
		return status;
	if (!(o->text = calloc((size_t)o->tree.count * 2 + 1, sizeof(*o->text))))
		return kvt_no_memory(o->err, o->path);
	o->chunks.where = o->path;
	o->reader->leaf.unlisted = true;
	if ((status = describe(o, &group)) || (status = take_objects(o)))
		return status;
	if (!o->chunks.count)
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: holds no object of KVBM",
				o->path);
	if ((status = kvt_chunks_count(&o->chunks, &o->reader->files, group, o->err)) ||
	    (status = check_tokens(o)) ||
	    (status = kvt_chunks_sort(&o->chunks, &layers, o->err)) ||
	    (o->hints->inspector && (status = check_marks(o))))
		return status;
	return kvt_chunks_place(o->reader, &o->chunks, o->hints, o->err);
}

static enum kvt_status objects_open(struct kvt_reader *reader, const char *path,
				    const struct kvt_hints *hints, struct kvt_error *err)
{
	struct opening o = { .reader = reader, .path = path, .hints = hints, .err = err };
	enum kvt_status status = open_objects(&o);

	for (int64_t i = 0; i < o.ntexts; i++)
		free(o.text[i]);
	free(o.text);
	kvt_chunks_free(&o.chunks);
	kvt_tree_free(&o.tree);
	return status;
}

static const char *const facts[] = { "rank", KVT_CHUNKS_ORDER, NULL };

const struct kvt_format kvt_kvbm_objects_format = {
	.info = { "kvbm-objects", "objects of Dynamo's KVBM, copied to a folder",
		  .reads = true, .writes = false },
	.facts = facts,
	.checks = "names, parents, lengths",
	.in_layout = kvt_chunks_in_page_layout,
	.holds = is_object,
	.open = objects_open,
};
