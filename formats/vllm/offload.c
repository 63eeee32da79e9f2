/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload.c - trees of vLLM's file-system tier and of llm-d
 *
 * What both have in common: config, groups, names.  What is in a file differs:
 * offload_rows.c, offload_llmd.c.
 *
 * Facts: trees that vLLM 0.32.0 wrote (testdata/engines), its file mapper from 0.25
 * on, and llm-d-kv-cache of 2026-06 at 7be76e1.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/describe/describe.h"
#include "formats/parse/json.h"
#include "formats/vllm/offload.h"

static bool is_block_file(const char *name)
{
	struct kvt_name_part hash;
	const char *p = name + strlen(name);
	int group;

	/* the last three parts; what is before them is of the tree */
	for (int slashes = 0; p > name; p--)
		if (p[-1] == '/' && ++slashes == 3)
			break;
	return kvt_offload_name(&hash, &group, p);
}

static bool offload_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	(void)nhead;
	return !head && kvt_offload_is_tree(path);
}

/* ---- files -------------------------------------------------------------- */

static enum kvt_status count_files(struct kvt_offload *o)
{
	for (int64_t i = 0; i < o->tree.count; i++) {
		const struct kvt_tree_file *f = &o->tree.file[i];
		int g = kvt_offload_group_of(o, i);

		if ((g < 0 || g >= KVT_MAX_GROUPS) && kvt_offload_leave_names(o, i))
			continue;
		if (g < 0 || g >= KVT_MAX_GROUPS)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%.200s/%.200s: is not a file of an offload tree", o->folder,
					f->name);
		o->of[g].count++;
		if (f->nbytes >= o->of[g].largest) {
			o->of[g].largest = f->nbytes;
			o->of[g].name = f->name;
		}
	}
	kvt_tree_drop(&o->tree);
	return KVT_OK;
}

/*
 * The number in a name is that of the engine's group.  Groups that it does not
 * store are not in the config: then numbers have gaps, and their order tells.
 */
static enum kvt_status number_groups(struct kvt_offload *o)
{
	int count = 0, last = 0, n = o->config.ngroups, at = 0;

	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		if (kvt_offload_has_group(o, g)) {
			count++;
			last = g;
		}
	if (n && last >= n && count != n)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: has files of %d groups, the last of them number %d, but its config lists %d: it is not known which of them these are",
				o->folder, count, last, n);
	for (int g = 0; n && g <= last; g++)
		if (kvt_offload_has_group(o, g))
			o->of[g].config = &o->config.group[last < n ? g : at++];
	return KVT_OK;
}

/* ---- a group ------------------------------------------------------------ */

static bool has_number(const uint32_t *ids, int64_t n, int64_t number)
{
	for (int64_t i = 0; i < n; i++)
		if (ids[i] == number)
			return true;
	return false;
}

static enum kvt_status take_layers(struct kvt_offload *o, struct kvt_group *group,
				   const struct kvt_offload_group *from)
{
	int64_t n = from->nlayers, number;
	bool numbered = true;

	group->shape.n[KVT_AXIS_L] = n;
	group->layer_names = calloc((size_t)n + 1, sizeof(*group->layer_names));
	group->layer_ids = calloc((size_t)n + 1, sizeof(*group->layer_ids));
	if (!group->layer_names || !group->layer_ids)
		return kvt_no_memory(o->err, o->path);
	for (int64_t i = 0; i < n; i++) {
		const char *name = json_string_value(json_array_get(from->layers,
								    (size_t)i));

		if (!(group->layer_names[i] = strdup(name)))
			return kvt_no_memory(o->err, o->path);
		/* vLLM lists them in the order of its memory */
		numbered = numbered && kvt_layer_number(&number, name) &&
			   !has_number(group->layer_ids, i, number);
		if (numbered)
			group->layer_ids[i] = (uint32_t)number;
	}
	if (!numbered) {
		free(group->layer_ids);
		group->layer_ids = NULL;
	}
	return KVT_OK;
}

static enum kvt_status describe_group(struct kvt_offload *o, int number,
				      const struct kvt_offload_kind *kind)
{
	const struct kvt_offload_files *files = &o->of[number];
	const struct kvt_dtype *dtype = NULL;
	struct kvt_group *group;
	enum kvt_status status;
	char id[16];

	snprintf(id, sizeof(id), "g%d", number);
	if ((status = kvt_manifest_add_group(&group, &o->reader->leaf.snapshot, id,
					     o->path, o->err)))
		return status;
	o->number[group - o->reader->leaf.snapshot.group] = number;
	group->shape.n[KVT_AXIS_B] = 1;
	/* the type is of the model, from which that of its cache may differ */
	if (!kvt_hints_of(o->hints, id).dtype && o->config.dtype)
		dtype = kvt_dtype_find(o->config.dtype);
	if (dtype) {
		group->dtype = dtype;
		group->shape.elem = dtype->elem;
	}
	if (files->config) {
		group->block_size = files->config->block_size;
		if ((status = take_layers(o, group, files->config)))
			return status;
	}
	return kind->fit(o, group, files);
}

/* ---- all groups --------------------------------------------------------- */

static enum kvt_status keep_config(struct kvt_offload *o)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;

	s->model = strdup(o->config.model);
	s->note = kvt_offload_note(&o->config, o->rows ? &o->row : NULL);
	return s->model && s->note ? KVT_OK : kvt_no_memory(o->err, o->path);
}

static enum kvt_status describe(struct kvt_offload *o,
				const struct kvt_offload_kind *kind)
{
	int64_t asked = -1;
	enum kvt_status status;

	if ((status = kind->start(o)) ||
	    (status = kvt_fact_int(&asked, o->hints, "group", 0, KVT_MAX_GROUPS - 1,
				   o->err)))
		return status;
	for (int g = 0; !status && g < KVT_MAX_GROUPS; g++)
		if (o->of[g].count && (asked < 0 || asked == g))
			status = describe_group(o, g, kind);
	if (status)
		return status;
	if (!o->reader->leaf.snapshot.ngroups)
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: holds no blocks%s", o->folder,
				asked >= 0 ? " of this group" :
				": no file of a hash (*.bin) is left of what its config describes");
	return kind->ready(o);
}

static enum kvt_status open_tree(struct kvt_offload *o)
{
	const struct kvt_offload_kind *kind;
	enum kvt_status status;

	if ((status = kvt_offload_find(o)) ||
	    (status = kvt_offload_walk(o)) ||
	    (status = count_files(o)) || (status = number_groups(o)) ||
	    (status = kvt_offload_find_writer(o)))
		return status;
	kind = o->rows ? &kvt_offload_rows : &kvt_offload_llmd;
	if ((status = describe(o, kind)) || (status = keep_config(o)))
		return status;
	o->reader->leaf.checks = kind->checks;
	o->reader->leaf.unlisted = true;
	o->reader->named_by = "vllm";
	o->reader->named_unit = o->config.tokens_per_hash;
	o->reader->named_blocks = o->config.blocks_per_file;
	for (int g = 0; !status && g < o->reader->leaf.snapshot.ngroups; g++)
		status = kind->add(o, g);
	if (!status)
		kvt_offload_tell_leftovers(o);
	return status;
}

static enum kvt_status offload_open(struct kvt_reader *reader, const char *path,
				    const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_offload o = { .reader = reader, .path = path, .err = err,
				 .hints = hints };
	enum kvt_status status = open_tree(&o);

	kvt_tree_free(&o.tree);
	free(o.census);
	kvt_offload_free(&o.config);
	free(o.base);
	free(o.folder);
	return status;
}

static const char *const presets[] = { KVT_OFFLOAD_VLLM, KVT_OFFLOAD_LLMD, NULL };
static const char *const facts[] = {
	"cache", "rank", "group", "tp-size", "block-bytes", "row-align", "total-heads",
	NULL,
};

const struct kvt_format kvt_offload_format = {
	.info = { "offload", "trees of vLLM's file-system tier and of llm-d",
		  .reads = true, .writes = true },
	.presets = presets,
	.facts = facts,
	.directory = true,
	.row_ranks = true,
	.takes = KVT_TAKES_PROMPT,
	.in_layout = kvt_offload_in_layout,
	.probe = offload_probe,
	.holds = is_block_file,
	.open = offload_open,
	.create = kvt_offload_create,
	.finish = kvt_offload_finish,
};
