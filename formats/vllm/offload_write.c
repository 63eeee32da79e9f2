/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload_write.c - trees that vLLM's file-system tier and llm-d read
 *
 * offload.h draws the tree, offload_row.c and offload_llmd.c what is in a file.  The
 * config comes first (offload_made.c), for its digest is in the names of folders;
 * then each file gets its length and its parts of the groups, and no order of writing.
 * Files are called by the hashes that blocks have: those of a dump without are refused.
 */
#include "formats/vllm/offload_write.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/number.h"

enum { OPEN_FILES = 16 };

/* ---- folders ------------------------------------------------------------ */

static enum kvt_status write_config(struct writing *w, const char *folder)
{
	char *text = kvt_offload_text(w->config, JSON_INDENT(2) |
						 (w->rows ? JSON_SORT_KEYS : 0));
	char *path = kvt_path_join(folder, "config", ".json");
	enum kvt_status status = text && path ? KVT_OK : kvt_no_memory(w->err, NULL);
	struct kvt_files *files = &w->writer->files;
	int64_t nbytes = 0;
	int file;

	if (!status)
		nbytes = (int64_t)strlen(text);
	if (!status)
		status = kvt_files_create(files, &file, path, nbytes, w->err);
	if (!status)
		status = kvt_file_write(&files->file[file], text, nbytes, 0, w->err);
	free(text);
	free(path);
	return status;
}

static enum kvt_status make_folders(struct writing *w)
{
	const struct kvt_parallel *p = &w->writer->head.snapshot.parallel;
	const char *model = json_string_value(json_object_get(w->config, "model_name"));
	char digest[13], name[256], rank[24];
	enum kvt_status status;
	char *folder;

	if (!kvt_offload_digest(digest, w->config))
		return kvt_no_memory(w->err, NULL);
	if (snprintf(name, sizeof(name), "%s_%s", model, digest) >= 220)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"the model's name is too long for that of a folder");
	for (char *c = name; *c; c++)
		if (*c == '/')
			*c = '_';
	if (!kvt_name_is_safe(name))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"the model's name cannot be used for a folder");
	snprintf(rank, sizeof(rank), "_r%lld",
		 (long long)(p->pp_rank * p->tp_size + p->tp_rank));
	folder = kvt_path_join(w->writer->temporary, name, "");
	w->folder = kvt_path_join(w->writer->temporary, name, rank);
	if (!folder || !w->folder)
		status = kvt_no_memory(w->err, NULL);
	else if (!(status = kvt_writer_folder(w->writer, w->writer->temporary, w->err)) &&
		 !(status = kvt_writer_folder(w->writer, folder, w->err)) &&
		 !(status = write_config(w, folder)))
		status = kvt_writer_folder(w->writer, w->folder, w->err);
	free(folder);
	return status;
}

/* ---- files -------------------------------------------------------------- */

static enum kvt_status bad_names(const struct writing *w, const struct kvt_group *group,
				 int64_t block)
{
	return kvt_fail(w->err, KVT_UNSUPPORTED,
			"group %s: the name of block %llu is '%.80s', expected the hash of its file and, in files of several blocks, :NUMBER up to %lld%s",
			group->id, (unsigned long long)kvt_block_id(group, block),
			group->block_names[block],
			(long long)w->per_file - 1,
			w->rows && w->per_file > 1 ? ", all of them" : "");
}

/* Blocks from 'first' on that share a file: they end with its last block. */
static enum kvt_status count_run(const struct writing *w, const struct kvt_group *group,
				 int64_t first, int64_t *out)
{
	char *const *names = group->block_names;
	size_t length, next;
	int64_t number = kvt_offload_place(names[first], &length), n = 1;

	if (w->per_file == 1)
		number = strchr(names[first], ':') ? -1 : 0;
	else if (!strchr(names[first], ':'))
		number = -1;
	*out = w->per_file - number;
	/* vLLM stores no part of a row */
	if (number < 0 || *out < 1 || (w->rows && number) ||
	    first + *out > group->shape.n[KVT_AXIS_B])
		return bad_names(w, group, first);
	for (; n < *out; n++)
		if (kvt_offload_place(names[first + n], &next) != number + n ||
		    next != length ||
		    strncmp(names[first], names[first + n], length))
			return bad_names(w, group, first + n);
	return KVT_OK;
}

/* Folders of three and two digits, then the name itself. */
static enum kvt_status make_path(const struct writing *w, const struct kvt_group *group,
				 int64_t block, char **out)
{
	const char *name = group->block_names[block];
	size_t length = strcspn(name, ":"), n = strlen(w->folder);
	struct kvt_name_part hash;
	char text[512], *path;
	enum kvt_status status;
	int number;

	if (length < 6 || length > 200)
		return bad_names(w, group, block);
	snprintf(text, sizeof(text), "%.3s/%.2s_%s/%.*s.bin", name, name + 3, group->id,
		 (int)length, name);
	if (!kvt_offload_name(&hash, &number, text))
		return bad_names(w, group, block);
	if (!(path = kvt_path_join(w->folder, text, "")))
		return kvt_no_memory(w->err, NULL);
	for (int i = 0; i < 2; i++) {
		char *slash = strchr(path + n + 1, '/');

		n = (size_t)(slash - path);
		*slash = '\0';
		if ((status = kvt_writer_folder(w->writer, path, w->err))) {
			free(path);
			return status;
		}
		*slash = '/';
	}
	*out = path;
	return KVT_OK;
}

/* Bytes of a file of llm-d: blocks, layers, rows. */
static enum kvt_status llmd_bytes(int64_t *out, const struct writing *w,
				  const struct kvt_group *group,
				  const struct kvt_box *box)
{
	struct kvt_shape shape = kvt_box_shape(box, group->shape.elem);
	int64_t pages = shape.n[KVT_AXIS_B] * shape.n[KVT_AXIS_L];

	if (!kvt_group_has_gaps(group))
		return kvt_shape_nbytes(out, &shape, w->err);
	if (__builtin_mul_overflow(pages, group->page_bytes, out))
		return kvt_fail(w->err, KVT_UNSUPPORTED, "group %s: pages are too large",
				group->id);
	return KVT_OK;
}

static enum kvt_status create_file(struct writing *w, int g, int64_t first, int64_t n)
{
	const struct kvt_group *group = &w->writer->head.snapshot.group[g];
	struct kvt_files *files = &w->writer->files;
	struct kvt_flat *flat = &w->writer->flat[g];
	struct kvt_box box = kvt_box_whole(&group->shape);
	int64_t nbytes = w->row.nbytes;
	enum kvt_status status;
	char *path = NULL;
	int file = -1;

	box.begin[KVT_AXIS_B] = first;
	box.end[KVT_AXIS_B] = first + n;
	if ((!w->rows && (status = llmd_bytes(&nbytes, w, group, &box))) ||
	    (status = make_path(w, group, first, &path)))
		return status;
	if (!(status = kvt_files_create(files, &file, path, nbytes, w->err)))
		status = w->rows ?
			 kvt_offload_row_place(flat, &w->row, group, first, file, true,
					       w->err) :
			 kvt_pages_add_part(flat, group, &box, file, 0, w->err);
	if (file >= OPEN_FILES)
		kvt_files_park(files, file);
	free(path);
	return status;
}

static enum kvt_status create_files(struct writing *w, int g)
{
	const struct kvt_group *group = &w->writer->head.snapshot.group[g];
	enum kvt_status status = KVT_OK;
	int64_t n;

	for (int64_t b = 0; !status && b < group->shape.n[KVT_AXIS_B]; b += n)
		if (!(status = count_run(w, group, b, &n)))
			status = create_file(w, g, b, n);
	return status;
}

/* ---- the format --------------------------------------------------------- */

static void add_fact(struct kvt_writer *writer, const char *key, int64_t n)
{
	char *text = writer->fact[writer->facts.n];

	snprintf(text, sizeof(writer->fact[0]), "%s=%lld", key, (long long)n);
	writer->facts.s[writer->facts.n++] = text;
}

/* A tree does not say what its rows are like. */
static void tell_reader(struct writing *w)
{
	if (!w->rows)
		w->writer->preset = KVT_OFFLOAD_LLMD;
	else if (w->old)
		w->writer->preset = KVT_OFFLOAD_VLLM;
	if (!w->rows)
		return;
	add_fact(w->writer, "tp-size", w->row.ranks);
	if (w->row.page)
		add_fact(w->writer, "block-bytes", w->row.page);
	if (w->row.align)
		add_fact(w->writer, "row-align", w->row.align);
}

/* Groups are called by the number that folders have: g0 to g99. */
static bool take_number(size_t *out, const char *id)
{
	int64_t number;

	if (id[0] != 'g' || !isdigit((unsigned char)id[1]) || (id[1] == '0' && id[2]) ||
	    !kvt_number_parse(&number, id + 1) || number > 99)
		return false;
	*out = (size_t)number;
	return true;
}

static enum kvt_status check(struct writing *w)
{
	const struct kvt_snapshot *s = &w->writer->head.snapshot;

	for (int g = 0; g < s->ngroups; g++) {
		const struct kvt_group *group = &s->group[g];
		enum kvt_status status;

		if (!take_number(&w->number[g], group->id))
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"group %s: groups of an offload tree are g0, g1, ...",
					group->id);
		if (!group->block_names)
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"an offload tree needs names of blocks, and those of group %s have none",
					group->id);
		if ((status = kvt_store_check_kv(group, "an offload tree", w->err)) ||
		    (status = kvt_store_check_heads(group, &s->parallel,
						    "an offload tree", w->err)) ||
		    (status = kvt_store_check_layers(group, "an offload tree", w->err)))
			return status;
	}
	return KVT_OK;
}

static enum kvt_status check_llmd(struct writing *w)
{
	struct kvt_snapshot *s = &w->writer->head.snapshot;

	for (int g = 0; g < s->ngroups; g++) {
		struct kvt_group *group = &s->group[g];

		if (w->number[g] != (size_t)g)
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"group %s: groups of an offload tree are g0, g1, ...",
					group->id);
		group->layout = kvt_layout_blocks_first(&group->layout, true);
		if (group->page_offset)
			group->page_bytes = group->page_offset = 0;
	}
	return KVT_OK;
}

enum kvt_status kvt_offload_create(struct kvt_writer *writer, struct kvt_error *err)
{
	struct writing w = { .writer = writer, .err = err };
	enum kvt_status status;

	if (!(status = check(&w)) && !(status = kvt_offload_make_config(&w)) && !w.rows &&
	    (writer->options.row_ranks || writer->options.row_form))
		status = kvt_fail(err, KVT_USAGE,
				"llm-d has no files of several ranks; leave out --row-ranks and --row-form");
	if (!status &&
	    !(status = w.rows ? kvt_offload_make_rows(&w) : check_llmd(&w)))
		status = make_folders(&w);
	for (int g = 0; !status && g < writer->head.snapshot.ngroups; g++)
		status = create_files(&w, g);
	tell_reader(&w);
	json_decref(w.config);
	free(w.folder);
	return status;
}

/* Each file was complete but for its data. */
enum kvt_status kvt_offload_finish(struct kvt_writer *writer, struct kvt_error *err)
{
	(void)writer;
	(void)err;
	return KVT_OK;
}
