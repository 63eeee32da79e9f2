/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload_write.c - the tree that vLLM's file-system offloading reads
 *
 * A dump that came from such a tree still has its config (in its note) and the
 * names of its blocks; what the dump says itself, such as ranks and layers,
 * replaces that part of the config, and the digest follows.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/json_read.h"
#include "formats/offload.h"

enum { OPEN_FILES = 16 };

struct writing {
	struct kvt_writer *writer;
	struct kvt_error *err;
	json_t *config;
	bool old;			/* keys of the first generation */
	int64_t per_file;
	char *folder;			/* of the rank */
};

static enum kvt_status no_memory(const struct writing *w)
{
	return kvt_fail(w->err, KVT_SYSTEM, "out of memory");
}

/* ---- the config --------------------------------------------------------- */

/* Slots of the file that a name stands in: "HASH:3" is in one of at least 4. */
static int64_t slot_of(const char *name, size_t *length)
{
	const char *colon = strchr(name, ':');
	size_t n = colon ? strspn(colon + 1, "0123456789") : 0;

	*length = colon ? (size_t)(colon - name) : strlen(name);
	if (!colon)
		return 0;
	return n && n < 8 && !colon[1 + n] ? strtoll(colon + 1, NULL, 10) : -1;
}

static int64_t most_slots(const struct kvt_snapshot *s)
{
	int64_t most = 1;
	size_t n;

	for (int g = 0; g < s->ngroups; g++)
		for (int64_t b = 0; b < s->group[g].shape.n[KVT_AXIS_B]; b++) {
			int64_t slot = slot_of(s->group[g].block_names[b], &n);

			if (slot >= most)
				most = slot + 1;
		}
	return most;
}

static bool set_int(json_t *o, const char *key, int64_t n)
{
	return !json_object_set_new(o, key, json_integer((json_int_t)n));
}

static bool set_text(json_t *o, const char *key, const char *s)
{
	return !json_object_set_new(o, key, json_string(s));
}

static json_t *group_object(const struct writing *w, const struct kvt_group *group)
{
	json_t *o = json_object(), *names = json_array();
	bool ok = set_int(o, w->old ? "block_size" : "tokens_per_block",
			  group->block_size) &&
		  !json_object_set_new(o, "layer_names", names);

	for (int64_t l = 0; ok && l < group->shape.n[KVT_AXIS_L]; l++)
		ok = !json_array_append_new(names, json_string(group->layer_names[l]));
	if (ok)
		return o;
	json_decref(o);
	return NULL;
}

/* The config of a dump that came from elsewhere. */
static bool new_config(struct writing *w)
{
	const struct kvt_snapshot *s = &w->writer->snapshot;
	const char *format = w->writer->options.format;

	w->old = format && !strcmp(format, "llmd");
	w->config = json_object();
	return w->config && set_text(w->config, "model_name", s->model) &&
	       set_int(w->config, w->old ? "hash_block_size" : "tokens_per_hash",
		       s->group[0].block_size) &&
	       set_int(w->config, w->old ? "gpu_blocks_per_file" : "blocks_per_file",
		       w->per_file) &&
	       set_int(w->config, "pcp_size", 1) &&
	       set_text(w->config, "dtype", s->group[0].dtype->name) &&
	       set_text(w->config, "inference_engine", "vllm");
}

static enum kvt_status take_note(struct writing *w)
{
	const char *text = w->writer->snapshot.note + strlen(KVT_OFFLOAD_NOTE);
	struct kvt_offload_config config;
	enum kvt_status status;

	if ((status = kvt_offload_parse(&config, text, strlen(text), "note", w->err)))
		return status;
	w->config = config.json;
	w->per_file = config.blocks_per_file;
	w->old = json_object_get(w->config, "gpu_blocks_per_file") != NULL;
	return KVT_OK;
}

/* What the dump says is what the tree has to say. */
static enum kvt_status set_config(struct writing *w)
{
	const struct kvt_snapshot *s = &w->writer->snapshot;
	const struct kvt_parallel *p = &s->parallel;
	json_t *groups = json_array();
	bool ok = groups && set_int(w->config, "tp_size", p->tp_size) &&
		  set_int(w->config, "pp_size", p->pp_size) &&
		  set_int(w->config, "dcp_size", p->dcp_size);

	for (int g = 0; ok && g < s->ngroups; g++) {
		json_t *o = group_object(w, &s->group[g]);

		ok = o && !json_array_append_new(groups, o);
	}
	/* an empty list says nothing, and a tree that had one keeps it */
	if (ok && json_array_size(json_object_get(w->config, "kv_cache_groups")) == 0 &&
	    json_object_get(w->config, "kv_cache_groups"))
		json_decref(groups);
	else if (ok)
		ok = !json_object_set_new(w->config, "kv_cache_groups", groups);
	else
		json_decref(groups);
	return ok ? KVT_OK : no_memory(w);
}

static enum kvt_status make_config(struct writing *w)
{
	const struct kvt_snapshot *s = &w->writer->snapshot;
	enum kvt_status status = KVT_OK;

	if (s->note && !strncmp(s->note, KVT_OFFLOAD_NOTE, strlen(KVT_OFFLOAD_NOTE)))
		status = take_note(w);
	else if (!s->model)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"an offload tree is called after the model, and this dump names none");
	else if (w->per_file = most_slots(s), !new_config(w))
		return no_memory(w);
	return status ? status : set_config(w);
}

/* ---- folders ------------------------------------------------------------ */

static enum kvt_status make_folder(const struct writing *w, const char *path)
{
	if (!mkdir(path, 0777) || errno == EEXIST)
		return KVT_OK;
	return kvt_fail(w->err, KVT_SYSTEM, "%s: cannot create: %s", path,
			strerror(errno));
}

static enum kvt_status write_config(struct writing *w, const char *folder)
{
	char *text = kvt_offload_text(w->config, JSON_INDENT(2));
	char *path = kvt_path_join(folder, "config", ".json");
	enum kvt_status status = text && path ? KVT_OK : no_memory(w);
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
	const struct kvt_parallel *p = &w->writer->snapshot.parallel;
	const char *model = json_string_value(json_object_get(w->config, "model_name"));
	char digest[13], name[256], rank[24];
	enum kvt_status status;
	char *folder;

	if (!kvt_offload_digest(digest, w->config))
		return no_memory(w);
	if (snprintf(name, sizeof(name), "%s_%s", model, digest) >= 220)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"the model's name is too long for that of a folder");
	for (char *c = name; *c; c++)
		if (*c == '/')
			*c = '_';
	if (!kvt_name_is_safe(name))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"the model's name cannot be that of a folder");
	snprintf(rank, sizeof(rank), "_r%lld",
		 (long long)(p->pp_rank * p->tp_size + p->tp_rank));
	folder = kvt_path_join(w->writer->temporary, name, "");
	w->folder = kvt_path_join(w->writer->temporary, name, rank);
	if (!folder || !w->folder)
		status = no_memory(w);
	else if (!(status = make_folder(w, w->writer->temporary)) &&
		 !(status = make_folder(w, folder)) &&
		 !(status = write_config(w, folder)))
		status = make_folder(w, w->folder);
	free(folder);
	return status;
}

/* ---- files -------------------------------------------------------------- */

static enum kvt_status bad_names(const struct writing *w, const struct kvt_group *group,
				 int64_t block)
{
	return kvt_fail(w->err, KVT_UNSUPPORTED,
			"group %s: block %lld is called '%.80s', expected the hash of its file "
			"and, in files of several blocks, :SLOT up to %lld",
			group->id, (long long)block, group->block_names[block],
			(long long)w->per_file - 1);
}

/* Blocks from 'first' on that share a file: they end with its last slot. */
static enum kvt_status count_run(const struct writing *w, const struct kvt_group *group,
				 int64_t first, int64_t *out)
{
	char *const *names = group->block_names;
	size_t length, next;
	int64_t slot = slot_of(names[first], &length), n = 1;

	if (w->per_file == 1)
		slot = strchr(names[first], ':') ? -1 : 0;
	else if (!strchr(names[first], ':'))
		slot = -1;
	*out = w->per_file - slot;
	if (slot < 0 || *out < 1 || first + *out > group->shape.n[KVT_AXIS_B])
		return bad_names(w, group, first);
	for (; n < *out; n++)
		if (slot_of(names[first + n], &next) != slot + n || next != length ||
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
	struct kvt_part_of_name hash;
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
		return no_memory(w);
	for (int i = 0; i < 2; i++) {
		char *slash = strchr(path + n + 1, '/');

		n = (size_t)(slash - path);
		*slash = '\0';
		if ((status = make_folder(w, path))) {
			free(path);
			return status;
		}
		*slash = '/';
	}
	*out = path;
	return KVT_OK;
}

static enum kvt_status create_file(struct writing *w, int g, int64_t first, int64_t n)
{
	const struct kvt_group *group = &w->writer->snapshot.group[g];
	struct kvt_files *files = &w->writer->files;
	struct kvt_box box = kvt_box_whole(&group->shape);
	struct kvt_shape shape;
	enum kvt_status status;
	int64_t nbytes;
	int file = -1;
	char *path = NULL;

	box.begin[KVT_AXIS_B] = first;
	box.end[KVT_AXIS_B] = first + n;
	shape = kvt_box_shape(&box, group->shape.elem);
	if ((status = kvt_shape_nbytes(&nbytes, &shape, w->err)))
		return status;
	if (kvt_group_has_gaps(group) &&
	    (__builtin_mul_overflow(n * group->shape.n[KVT_AXIS_L], group->page_bytes,
				    &nbytes)))
		return kvt_fail(w->err, KVT_UNSUPPORTED, "group %s: pages are too large",
				group->id);
	if ((status = make_path(w, group, first, &path)))
		return status;
	if (!(status = kvt_files_create(files, &file, path, nbytes, w->err)))
		status = kvt_piece_of_box(&w->writer->flat[g], group, &box, file, 0,
					  w->err);
	if (file >= OPEN_FILES)
		kvt_files_park(files, file);
	for (int i = 0; file < 0 && i < 2; i++) {
		*strrchr(path, '/') = '\0';
		rmdir(path);
	}
	free(path);
	return status;
}

static enum kvt_status create_files(struct writing *w, int g)
{
	const struct kvt_group *group = &w->writer->snapshot.group[g];
	enum kvt_status status = KVT_OK;
	int64_t n;

	for (int64_t b = 0; !status && b < group->shape.n[KVT_AXIS_B]; b += n)
		if (!(status = count_run(w, group, b, &n)))
			status = create_file(w, g, b, n);
	return status;
}

/* ---- the format --------------------------------------------------------- */

static enum kvt_status check(const struct writing *w)
{
	struct kvt_snapshot *s = &w->writer->snapshot;

	for (int g = 0; g < s->ngroups; g++) {
		struct kvt_group *group = &s->group[g];
		char id[16];

		snprintf(id, sizeof(id), "g%d", g);
		if (strcmp(group->id, id))
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"group %s: groups of an offload tree are g0, g1, ...",
					group->id);
		if (!group->block_names)
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"an offload tree finds blocks by their names, and those of group %s have none",
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

	if (!(status = check(&w)) && !(status = make_config(&w)))
		status = make_folders(&w);
	for (int g = 0; !status && g < writer->snapshot.ngroups; g++)
		status = create_files(&w, g);
	/* if it is empty: no file leads to it */
	if (status && w.folder)
		rmdir(w.folder);
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
