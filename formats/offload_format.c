/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload_format.c - trees of vLLM's file-system offloading and of llm-d
 *
 * A file holds some blocks of a group, of each of them all layers, of each of
 * those as many bytes as the engine's tensors have there: rows, which may be
 * longer than a block needs.  A file with fewer blocks than its range has the
 * last ones of it.
 */
#include <stdlib.h>
#include "formats/json_read.h"
#include <string.h>
#include <sys/stat.h>

#include "formats/manifest.h"
#include "formats/offload_impl.h"

#define LL(x) ((long long)(x))

static bool is_block_file(const char *name)
{
	struct kvt_part_of_name hash;
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
	return !head && (kvt_offload_is_base(path) || kvt_tree_has(path, is_block_file));
}

/* ---- files -------------------------------------------------------------- */

/* Files of one group, as the tree has them; 'largest' of them; how many. */
struct files_of {
	int64_t count, largest;
	const char *name;		/* of the largest */
};

static enum kvt_status count_files(struct kvt_offload *o,
				   struct files_of out[KVT_MAX_GROUPS])
{
	for (int64_t i = 0; i < o->tree.count; i++) {
		const struct kvt_tree_file *f = &o->tree.file[i];
		struct kvt_part_of_name hash;
		int g;

		if (!kvt_offload_name(&hash, &g, f->name) || g >= KVT_MAX_GROUPS ||
		    (o->config.ngroups && g >= o->config.ngroups))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%.200s/%.200s: is no file of this offload tree, which has %d groups",
					o->folder, f->name,
					o->config.ngroups ? o->config.ngroups : 1);
		out[g].count++;
		if (f->nbytes >= out[g].largest) {
			out[g].largest = f->nbytes;
			out[g].name = f->name;
		}
	}
	return KVT_OK;
}

/* ---- a group ------------------------------------------------------------ */

static enum kvt_status take_layers(struct kvt_offload *o, struct kvt_group *group,
				   const struct kvt_offload_group *from)
{
	int64_t n = from->nlayers, number, last = -1;
	bool numbered = true;

	group->shape.n[KVT_AXIS_L] = n;
	group->layer_names = calloc((size_t)n + 1, sizeof(*group->layer_names));
	group->layer_ids = calloc((size_t)n + 1, sizeof(*group->layer_ids));
	if (!group->layer_names || !group->layer_ids)
		return kvt_fail(o->err, KVT_SYSTEM, "%s: out of memory", o->path);
	for (int64_t i = 0; i < n; i++) {
		const char *name = json_string_value(json_array_get(from->layers,
								    (size_t)i));

		if (!(group->layer_names[i] = strdup(name)))
			return kvt_fail(o->err, KVT_SYSTEM, "%s: out of memory", o->path);
		numbered = numbered && kvt_layer_number(&number, name) && number > last;
		if (numbered)
			group->layer_ids[i] = (uint32_t)(last = number);
	}
	if (!numbered) {
		free(group->layer_ids);
		group->layer_ids = NULL;
	}
	return KVT_OK;
}

/* The tree may say in which of two families its rows are. */
static enum kvt_status check_canonical(const struct kvt_offload *o,
				       const struct kvt_layout *layout)
{
	const char *said = o->config.canonical;
	int at[KVT_NAXES] = { 0 };
	bool nhd;

	if (!said)
		return KVT_OK;
	if (strcmp(said, "v1-nhd") && strcmp(said, "v1-hnd"))
		return kvt_fail(o->err, KVT_UNSUPPORTED,
				"%s: canonical_format is '%.40s', known are v1-nhd and v1-hnd",
				o->base, said);
	for (int i = 0; i < layout->plane[0].nparts; i++)
		at[layout->plane[0].part[i].axis] = i + 1;
	nhd = at[KVT_AXIS_S] < at[KVT_AXIS_H];
	if (at[KVT_AXIS_H] && nhd != !strcmp(said, "v1-nhd"))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: canonical_format is %s, which layout %s is not", o->base,
				said, kvt_layout_string(layout).s);
	return KVT_OK;
}

/* What is known, and what the user adds; extents of one block. */
static enum kvt_status fit_group(struct kvt_offload *o, struct kvt_group *group,
				 const struct files_of *files)
{
	struct kvt_pages_known known = { .name = o->folder, .nbytes = -1,
		.counted = KVT_AXIS_B, .parallel = &o->reader->snapshot.parallel };
	struct kvt_group all = *group;
	enum kvt_status status = kvt_pages_fit(&all, &known, o->hints, NULL);

	/* where a file holds one block, its size may tell the rest */
	if (status && o->config.blocks_per_file == 1) {
		known.nbytes = files->largest;
		all = *group;
	}
	if (status && (status = kvt_pages_fit(&all, &known, o->hints, o->err)))
		return status;
	*group = all;
	return check_canonical(o, &group->layout);
}

/* Bytes of a block of a layer: what it needs, or what the files show. */
static enum kvt_status find_row(struct kvt_offload *o, struct kvt_group *group,
				const struct files_of *files)
{
	int64_t per_file = o->config.blocks_per_file, most = (int64_t)1 << 40;
	int64_t layers = group->shape.n[KVT_AXIS_L], row, given = 0;
	struct kvt_shape page = group->shape;
	enum kvt_status status;

	page.n[KVT_AXIS_L] = page.n[KVT_AXIS_B] = 1;
	if ((status = kvt_shape_nbytes(&row, &page, o->err)) ||
	    (status = kvt_fact_int(&given, o->hints, "block-bytes", 1, most, o->err)))
		return status;
	if (row < 1 || row > most || layers > most / row)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: blocks of %lld bytes are none of a cache", o->folder,
				LL(row));
	if (!given && files->largest % (row * layers) == 0 &&
	    files->largest / (row * layers) <= per_file)
		return KVT_OK;
	if (!given && per_file == 1 && files->largest % layers == 0)
		given = files->largest / layers;
	if (given < row)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%.200s/%.120s: has %lld bytes, expected 1 to %lld blocks of %lld layers "
				"of %lld bytes each; if rows are longer, give --set block-bytes",
				o->folder, files->name, LL(files->largest), LL(per_file),
				LL(layers), LL(row));
	if (given > row)
		group->page_bytes = given;
	return KVT_OK;
}

static int64_t row_bytes(const struct kvt_group *group)
{
	struct kvt_shape page = group->shape;
	int64_t row = 1;

	page.n[KVT_AXIS_L] = page.n[KVT_AXIS_B] = 1;
	if (group->page_bytes)
		return group->page_bytes;
	/* find_row() has done the same */
	return kvt_shape_nbytes(&row, &page, NULL) ? 1 : row;
}

/* Engines give all tensors of all groups rows of one length. */
static enum kvt_status same_rows(const struct kvt_offload *o)
{
	const struct kvt_snapshot *s = &o->reader->snapshot;

	for (int g = 1; g < s->ngroups; g++)
		if (row_bytes(&s->group[g]) != row_bytes(&s->group[0]))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: blocks of a layer have %lld bytes in %s and %lld in %s, "
					"expected one number; give --set block-bytes, or one --set group",
					o->folder, LL(row_bytes(&s->group[0])),
					s->group[0].id, LL(row_bytes(&s->group[g])),
					s->group[g].id);
	return KVT_OK;
}

static enum kvt_status describe_group(struct kvt_offload *o, int number,
				      const struct files_of *files)
{
	const struct kvt_offload_group *from = &o->config.group[number];
	const struct kvt_dtype *dtype = NULL;
	struct kvt_group *group;
	enum kvt_status status;
	char id[16];

	snprintf(id, sizeof(id), "g%d", number);
	if ((status = kvt_manifest_add_group(&group, &o->reader->snapshot, id, o->path,
					     o->err)) ||
	    (status = kvt_store_layout(&group->layout, o->hints, true, o->err)))
		return status;
	group->shape.n[KVT_AXIS_B] = 1;
	/* the type is of the model, from which that of its cache may differ */
	if (!o->hints->dtype && o->config.dtype)
		dtype = kvt_dtype_find(o->config.dtype);
	if (dtype) {
		group->dtype = dtype;
		group->shape.elem = dtype->elem;
	}
	if (o->config.ngroups) {
		group->block_size = from->block_size;
		if ((status = take_layers(o, group, from)))
			return status;
	}
	if ((status = fit_group(o, group, files)))
		return status;
	return find_row(o, group, files);
}

/* ---- blocks ------------------------------------------------------------- */

static enum kvt_status name_blocks(struct kvt_offload *o, char **names,
				   const struct kvt_part_of_name *hash, int64_t n)
{
	int64_t each = o->config.blocks_per_file;
	char text[512];

	for (int64_t i = 0; i < n; i++) {
		int length = (int)hash->n;

		/* of a range of blocks the file has the last ones */
		if (each == 1)
			snprintf(text, sizeof(text), "%.*s", length, hash->s);
		else
			snprintf(text, sizeof(text), "%.*s:%lld", length, hash->s,
				 LL(each - n + i));
		if (!(names[i] = strdup(text)))
			return kvt_fail(o->err, KVT_SYSTEM, "%s: out of memory", o->path);
	}
	return KVT_OK;
}

static enum kvt_status add_file(struct kvt_offload *o, int g, int64_t i, int64_t *block)
{
	struct kvt_group *group = &o->reader->snapshot.group[g];
	int64_t each = row_bytes(group) * group->shape.n[KVT_AXIS_L];
	int64_t n = o->tree.file[i].nbytes / each;
	struct kvt_box box = kvt_box_whole(&group->shape);
	struct kvt_part_of_name hash;
	enum kvt_status status;
	int number, file;

	box.begin[KVT_AXIS_B] = *block;
	box.end[KVT_AXIS_B] = *block + n;
	kvt_offload_name(&hash, &number, o->tree.file[i].name);
	if ((status = name_blocks(o, group->block_names + *block, &hash, n)) ||
	    (status = kvt_tree_list(&o->reader->files, &file, &o->tree, i, o->err)))
		return status;
	*block += n;
	return kvt_pages_add(o->reader, g, file, &box, 0, 0, o->err);
}

/* Blocks of all files of a group; each file has some, all of them whole. */
static enum kvt_status count_blocks(struct kvt_offload *o, int number, int64_t each,
				    int64_t *out)
{
	int64_t per_file = o->config.blocks_per_file;

	*out = 0;
	for (int64_t i = 0; i < o->tree.count; i++) {
		const struct kvt_tree_file *f = &o->tree.file[i];
		struct kvt_part_of_name hash;
		int g;

		if (!kvt_offload_name(&hash, &g, f->name) || g != number)
			continue;
		if (!f->nbytes || f->nbytes % each || f->nbytes / each > per_file)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%.200s/%.120s: has %lld bytes, expected 1 to %lld blocks of %lld bytes",
					o->folder, f->name, LL(f->nbytes), LL(per_file),
					LL(each));
		*out += f->nbytes / each;
	}
	return KVT_OK;
}

static enum kvt_status add_files(struct kvt_offload *o, int g)
{
	struct kvt_group *group = &o->reader->snapshot.group[g];
	int number = atoi(group->id + 1), here;
	int64_t each = row_bytes(group) * group->shape.n[KVT_AXIS_L], n, block = 0;
	struct kvt_part_of_name hash;
	enum kvt_status status;

	if ((status = count_blocks(o, number, each, &n)) ||
	    (status = kvt_pages_count(group, KVT_AXIS_B, n, o->hints, o->path, o->err)) ||
	    (status = kvt_names_new(group, o->err)))
		return status;
	for (int64_t i = 0; !status && i < o->tree.count; i++)
		if (kvt_offload_name(&hash, &here, o->tree.file[i].name) &&
		    here == number)
			status = add_file(o, g, i, &block);
	return status;
}

/* ---- all groups --------------------------------------------------------- */

static enum kvt_status set_rank(struct kvt_offload *o)
{
	struct kvt_parallel *p = &o->reader->snapshot.parallel;
	const struct kvt_offload_config *c = &o->config;

	if (o->rank >= c->tp_size * c->pp_size)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: rank %lld of a config with %lld", o->folder, LL(o->rank),
				LL(c->tp_size * c->pp_size));
	p->tp_size = c->tp_size;
	p->tp_rank = o->rank % c->tp_size;
	p->pp_size = c->pp_size;
	p->pp_rank = o->rank / c->tp_size;
	p->dcp_size = c->dcp_size;
	p->dcp_rank = p->tp_rank % c->dcp_size;
	o->reader->snapshot.has_parallel = c->tp_size * c->pp_size * c->dcp_size > 1;
	return KVT_OK;
}

static enum kvt_status keep_config(struct kvt_offload *o)
{
	struct kvt_snapshot *s = &o->reader->snapshot;
	char *text = kvt_json_dump(o->config.json, JSON_COMPACT);
	size_t n = text ? strlen(text) + sizeof(KVT_OFFLOAD_NOTE) : 0;

	s->model = strdup(o->config.model);
	if (text && (s->note = malloc(n)))
		snprintf(s->note, n, "%s%s", KVT_OFFLOAD_NOTE, text);
	free(text);
	return s->model && s->note ? KVT_OK :
	       kvt_fail(o->err, KVT_SYSTEM, "%s: out of memory", o->path);
}

static enum kvt_status describe(struct kvt_offload *o)
{
	struct files_of files[KVT_MAX_GROUPS] = { { 0 } };
	int64_t asked = -1;
	enum kvt_status status;

	if ((status = count_files(o, files)) || (status = set_rank(o)) ||
	    (status = keep_config(o)) ||
	    (status = kvt_fact_int(&asked, o->hints, "group", 0, KVT_MAX_GROUPS - 1,
				   o->err)))
		return status;
	for (int g = 0; !status && g < KVT_MAX_GROUPS; g++)
		if (files[g].count && (asked < 0 || asked == g))
			status = describe_group(o, g, &files[g]);
	if (status)
		return status;
	if (!o->reader->snapshot.ngroups)
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: holds no blocks%s", o->folder,
				asked < 0 ? "" : " of this group");
	return same_rows(o);
}

static enum kvt_status open_tree(struct kvt_offload *o)
{
	enum kvt_status status;

	if ((status = kvt_offload_find(o)) ||
	    (status = kvt_tree_walk(&o->tree, o->folder, o->err)) ||
	    (status = describe(o)))
		return status;
	for (int g = 0; !status && g < o->reader->snapshot.ngroups; g++)
		status = add_files(o, g);
	return status;
}

static enum kvt_status offload_open(struct kvt_reader *reader, const char *path,
				    const struct kvt_hints *hints, struct kvt_error *err)
{
	static const struct kvt_hints none;
	struct kvt_offload o = { .reader = reader, .path = path, .err = err,
				 .hints = hints ? hints : &none };
	enum kvt_status status = open_tree(&o);

	kvt_tree_free(&o.tree);
	kvt_offload_free(&o.config);
	free(o.base);
	free(o.folder);
	return status;
}

static const char *const presets[] = { "llmd", NULL };
static const char *const facts[] = {
	"cache", "rank", "group", "block-bytes", "total-heads", NULL,
};

const struct kvt_format kvt_offload_format = {
	.info = { "offload", "trees of vLLM's file-system offloading and of llm-d", true,
		  true },
	.presets = presets,
	.facts = facts,
	.directory = true,
	.probe = offload_probe,
	.open = offload_open,
	.create = kvt_offload_create,
	.finish = kvt_offload_finish,
};
