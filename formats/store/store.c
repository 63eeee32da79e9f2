/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c - choosing the files of one cache among those of several
 *
 * A folder may hold several models, ranks or pools.  Each part of a name that tells them
 * apart must be the same in all files, or be chosen with --set.
 *
 * Files are blocks: whatever layout a user gives, B is outermost.  Half a cache, or
 * other heads than the rank's, is nothing that files could say, and is not written.
 */
#include "formats/store/store.h"

#include <stdlib.h>
#include <string.h>

/* ---- names -------------------------------------------------------------- */

bool kvt_name_part_equal(const struct kvt_name_part *part, const char *text)
{
	return strlen(text) == part->n && !memcmp(part->s, text, part->n);
}

char *kvt_name_part_copy(const struct kvt_name_part *part)
{
	return strndup(part->s, part->n);
}

bool kvt_name_is_safe(const char *name)
{
	size_t n = strlen(name);

	if (!n || n > 200 || *name == '.' || *name == '-')
		return false;
	for (; *name; name++)
		if (*name == '/' || (unsigned char)*name < ' ' || *name == 0x7f)
			return false;
	return true;
}

enum kvt_status kvt_store_new_names(struct kvt_group *group, struct kvt_error *err)
{
	int64_t n = group->shape.n[KVT_AXIS_B];

	group->block_names = calloc((size_t)n + 1, sizeof(*group->block_names));
	return group->block_names ? KVT_OK :
	       kvt_fail(err, KVT_SYSTEM, "out of memory for %lld names", LL(n));
}

/* ---- one among several -------------------------------------------------- */

enum kvt_status kvt_store_choose(bool *skip, struct kvt_store_choice *choice,
				 const struct kvt_name_part *here, const char *path,
				 struct kvt_error *err)
{
	const struct kvt_name_part *first = &choice->first;

	*skip = choice->asked && !kvt_name_part_equal(here, choice->asked);
	if (*skip)
		return KVT_OK;
	if (!choice->any) {
		choice->first = *here;
		choice->any = true;
	}
	if (first->n == here->n && !memcmp(first->s, here->s, here->n))
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%.160s: holds %s '%.*s' and '%.*s', which are not one cache; choose with --set %s=%.*s",
			path, choice->what, (int)first->n, first->s, (int)here->n,
			here->s, choice->key, (int)first->n, first->s);
}

enum kvt_status kvt_store_chosen(const struct kvt_store_choice *choice, const char *path,
				 struct kvt_error *err)
{
	if (!choice->asked || choice->any)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT, "%.200s: holds no %s '%.100s'", path,
			choice->key, choice->asked);
}

/* ---- files whose names have numbers --------------------------------------- */

static int by_number(const void *a, const void *b)
{
	const struct kvt_store_file *x = a, *y = b;
	int i = x->number[0] == y->number[0];

	return x->number[i] < y->number[i] ? -1 : x->number[i] > y->number[i];
}

static enum kvt_status choose_files(struct kvt_store_files *out,
				    const struct kvt_store_names *names,
				    const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_store_choice choice = { .key = names->key, .what = names->what,
					   .asked = kvt_fact(hints, names->key) };
	const char *path = out->tree.path;
	enum kvt_status status;

	for (int64_t i = 0; i < out->tree.count; i++) {
		struct kvt_store_file file = { .at = i };
		bool skip;

		if (!names->parse(&file, out->tree.file[i].name))
			return kvt_fail(err, KVT_BAD_INPUT, "%.200s/%.200s: is %s", path,
					out->tree.file[i].name, names->expected);
		if ((status = kvt_store_choose(&skip, &choice, &file.part, path, err)))
			return status;
		if (!skip)
			out->file[out->count++] = file;
	}
	if ((status = kvt_store_chosen(&choice, path, err)))
		return status;
	if (!out->count)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: holds no files", path);
	qsort(out->file, (size_t)out->count, sizeof(*out->file), by_number);
	return KVT_OK;
}

enum kvt_status kvt_store_list(struct kvt_store_files *out, const char *path,
			       const struct kvt_store_names *names,
			       const struct kvt_hints *hints, struct kvt_error *err)
{
	enum kvt_status status = kvt_tree_walk(&out->tree, path, err);

	if (status)
		return status;
	out->file = calloc((size_t)out->tree.count + 1, sizeof(*out->file));
	return out->file ? choose_files(out, names, hints, err) :
			   kvt_no_memory(err, path);
}

void kvt_store_files_free(struct kvt_store_files *files)
{
	free(files->file);
	kvt_tree_free(&files->tree);
}

/* ---- layouts ------------------------------------------------------------ */

struct kvt_layout kvt_layout_blocks_first(const struct kvt_layout *in, bool layers)
{
	static const struct kvt_part block = { .axis = KVT_AXIS_B, .kind = KVT_WHOLE };
	static const struct kvt_part layer = { .axis = KVT_AXIS_L, .kind = KVT_WHOLE };
	struct kvt_layout out = { .nplanes = in->nplanes };

	for (int p = 0; p < in->nplanes; p++) {
		const struct kvt_order *from = &in->plane[p];
		struct kvt_order *to = &out.plane[p];
		bool has_layers = false;

		for (int i = 0; i < from->nparts; i++)
			has_layers |= from->part[i].axis == KVT_AXIS_L;
		to->part[to->nparts++] = block;
		if (layers || !has_layers)
			to->part[to->nparts++] = layer;
		for (int i = 0; i < from->nparts && to->nparts < KVT_MAX_PARTS; i++)
			if (from->part[i].axis != KVT_AXIS_B &&
			    (from->part[i].axis != KVT_AXIS_L || !layers))
				to->part[to->nparts++] = from->part[i];
	}
	return out;
}

bool kvt_store_in_layout(const struct kvt_group *group, const struct kvt_layout *said)
{
	const struct kvt_layout first = kvt_layout_blocks_first(said, false);

	return kvt_layout_equal(&first, &group->layout);
}

enum kvt_status kvt_store_layout(struct kvt_group *group, const struct kvt_hints *hints,
				 bool layers, struct kvt_error *err)
{
	const char *said = kvt_hints_of(hints, group->id).layout;
	enum kvt_status status;

	if (!said)
		return KVT_OK;
	if ((status = kvt_layout_parse(&group->layout, said, err)))
		return status;
	group->layout = kvt_layout_blocks_first(&group->layout, layers);
	return KVT_OK;
}

/* ---- what files cannot say ----------------------------------------------- */

enum kvt_status kvt_store_check_kv(const struct kvt_group *group, const char *format,
				   struct kvt_error *err)
{
	int half = kvt_group_half(group);

	return half < 0 ? KVT_OK :
	       kvt_fail(err, KVT_UNSUPPORTED,
			"%s holds keys and values, but %s has only %s", format,
			group->id, half ? "values" : "keys");
}

enum kvt_status kvt_store_check_heads(const struct kvt_group *group,
				      const struct kvt_parallel *parallel,
				      const char *format, struct kvt_error *err)
{
	int64_t n = group->shape.n[KVT_AXIS_H], total = group->total_heads;
	int64_t share = total > parallel->tp_size ? total / parallel->tp_size : 1;
	int64_t first = parallel->tp_rank * total / parallel->tp_size;

	if (n == share && group->head_start == first)
		return KVT_OK;
	return kvt_fail(err, KVT_UNSUPPORTED,
			"%s does not record which heads it holds, and this dump has heads %lld to %lld of %lld, not %lld to %lld; merge the ranks first, or write another format",
			format, LL(group->head_start), LL(group->head_start + n - 1),
			LL(total), LL(first), LL(first + share - 1));
}

enum kvt_status kvt_store_check_group(const struct kvt_group *group,
				      const struct kvt_parallel *parallel, bool mla,
				      const char *format, struct kvt_error *err)
{
	enum kvt_status status = kvt_store_check_kv(group, format, err);

	if (status)
		return status;
	if (group->kind != (mla ? KVT_MLA : KVT_FULL_ATTENTION))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s is read as %s, and %s is %s; write another format",
				format, kvt_kind_name(mla ? KVT_MLA : KVT_FULL_ATTENTION),
				group->id, kvt_kind_name(group->kind));
	return kvt_store_check_heads(group, parallel, format, err);
}

enum kvt_status kvt_store_check_layers(const struct kvt_group *group, const char *format,
				       struct kvt_error *err)
{
	for (int64_t l = 0; l < group->shape.n[KVT_AXIS_L]; l++) {
		int64_t id = group->layer_ids ? (int64_t)group->layer_ids[l] : l, number;

		if (!kvt_layer_number(&number, group->layer_names[l]) || number != id)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s takes the number of a layer from its name, but '%.100s' is layer %lld",
					format, group->layer_names[l], LL(id));
	}
	return KVT_OK;
}
