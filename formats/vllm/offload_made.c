/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload_made.c - the config of an offload tree that is written, and its rows
 *
 * A dump that came from such a tree still has its config (in its note) and the names of
 * its blocks; what the dump says itself, such as ranks and layers, replaces that part of
 * the config, and the digest follows.  Whose tree it was decides what a file holds,
 * unless the format that was asked for does.
 */
#include "formats/vllm/offload_write.h"

#include <stdlib.h>
#include <string.h>

/* ---- the config --------------------------------------------------------- */

int64_t kvt_offload_place(const char *name, size_t *length)
{
	const char *colon = strchr(name, ':');
	size_t n = colon ? strspn(colon + 1, "0123456789") : 0;

	*length = colon ? (size_t)(colon - name) : strlen(name);
	if (!colon)
		return 0;
	return n && n < 8 && !colon[1 + n] ? strtoll(colon + 1, NULL, 10) : -1;
}

static int64_t most_blocks(const struct kvt_snapshot *s)
{
	int64_t most = 1;
	size_t n;

	for (int g = 0; g < s->ngroups; g++)
		for (int64_t b = 0; b < s->group[g].shape.n[KVT_AXIS_B]; b++) {
			int64_t number = kvt_offload_place(
				s->group[g].block_names[b], &n);

			if (number >= most)
				most = number + 1;
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

static const char *size_key(const struct writing *w)
{
	return w->old ? "block_size" : "tokens_per_block";
}

static json_t *group_object(const struct writing *w, const struct kvt_group *group)
{
	json_t *o = json_object(), *names = json_array();
	bool ok = set_int(o, size_key(w), group->block_size) &&
		  !json_object_set_new(o, "layer_names", names);

	for (int64_t l = 0; ok && l < group->shape.n[KVT_AXIS_L]; l++)
		ok = !json_array_append_new(names, json_string(group->layer_names[l]));
	if (ok)
		return o;
	json_decref(o);
	return NULL;
}

/* Tokens that are hashed together, and blocks of a file. */
static bool set_units(struct writing *w, int64_t hashed)
{
	const char *tokens = w->old ? "hash_block_size" : "tokens_per_hash";
	const char *blocks = w->old ? "gpu_blocks_per_file" : "blocks_per_file";

	return set_int(w->config, tokens, hashed) &&
	       set_int(w->config, blocks, w->per_file);
}

/* The config of a dump that came from elsewhere. */
static bool new_config(struct writing *w)
{
	const struct kvt_snapshot *s = &w->writer->head.snapshot;

	w->old = !w->rows;
	w->config = json_object();
	return w->config && set_text(w->config, "model_name", s->model) &&
	       set_units(w, s->group[0].block_size) &&
	       set_int(w->config, "pcp_size", 1) &&
	       set_text(w->config, "dtype", s->group[0].dtype->name) &&
	       set_text(w->config, "inference_engine", "vllm");
}

/*
 * vLLM gives trees of all TP one name where the order of ranks is that of heads:
 * then a config does not have this key.
 */
static bool set_agnostic(struct writing *w)
{
	const struct kvt_snapshot *s = &w->writer->head.snapshot;

	return (s->ngroups == 1 && s->group[0].kind == KVT_FULL_ATTENTION) ||
	       !json_object_set_new(w->config, "parallel_agnostic", json_false());
}

static enum kvt_status take_note(struct writing *w, const char *text)
{
	struct kvt_offload_config config;
	enum kvt_status status;

	if ((status = kvt_offload_parse(&config, text, strlen(text), "note", w->err)))
		return status;
	w->config = config.json;
	w->per_file = config.blocks_per_file;
	w->old = config.older_keys;
	return KVT_OK;
}

static bool set_ranks(struct writing *w)
{
	const struct kvt_parallel *p = &w->writer->head.snapshot.parallel;

	return set_int(w->config, "tp_size", p->tp_size) &&
	       set_int(w->config, "pp_size", p->pp_size) &&
	       set_int(w->config, "dcp_size", p->dcp_size);
}

static json_int_t size_in(const struct writing *w, const json_t *list, size_t i)
{
	return json_integer_value(json_object_get(json_array_get(list, i), size_key(w)));
}

/*
 * Blocks of another size than those of the tree: no padding of its pages is left, and
 * names say what a file has.  vLLM hashes as many tokens as a block has, and of unequal
 * ones as many as divide all: another number is in no config that an engine looks for.
 */
static bool set_resized(struct writing *w, const json_t *list)
{
	json_int_t all = 0;

	w->row.page = 0;
	w->per_file = most_blocks(&w->writer->head.snapshot);
	for (size_t i = 0; i < json_array_size(list); i++)
		for (json_int_t n = size_in(w, list, i), rest; n; n = rest) {
			rest = all % n;
			all = n;
		}
	return set_units(w, all);
}

/* A config lists groups that are not in this dump, too: those stay. */
static bool set_group(struct writing *w, json_t *list, int g)
{
	const struct kvt_snapshot *s = &w->writer->head.snapshot;
	size_t number = w->number[g], n = json_array_size(list);
	json_t *o = group_object(w, &s->group[g]);

	if (!o)
		return false;
	/* names have the numbers of the engine's groups, which may leave some out */
	if (n && number >= n)
		number = (size_t)g;
	if (number < n && size_in(w, list, number) != s->group[g].block_size)
		w->resized = true;
	return number < n ? !json_array_set_new(list, number, o) :
			    !json_array_append_new(list, o);
}

/* What the dump says is what the tree has to say. */
static enum kvt_status set_config(struct writing *w)
{
	const struct kvt_snapshot *s = &w->writer->head.snapshot;
	json_t *list = json_object_get(w->config, "kv_cache_groups");
	/* ranks whose rows these are may have been other ones */
	bool ok = (w->rows && !w->is_new) || set_ranks(w);

	/* an empty list says nothing, and a tree that had one keeps it */
	if (ok && list && !json_array_size(list))
		return KVT_OK;
	if (ok && !list) {
		list = json_array();
		ok = !json_object_set_new(w->config, "kv_cache_groups", list);
	}
	if (ok && !w->rows)
		ok = !json_array_clear(list);
	for (int g = 0; ok && g < s->ngroups; g++)
		ok = set_group(w, list, g);
	if (ok && w->resized)
		ok = set_resized(w, list);
	return ok ? KVT_OK : kvt_no_memory(w->err, NULL);
}

/* Whose files: by the name of the format, or else those that the dump came from. */
enum kvt_status kvt_offload_make_config(struct writing *w)
{
	const struct kvt_snapshot *s = &w->writer->head.snapshot;
	const char *format = w->writer->options.format, *text;
	bool vllm = format && !strcmp(format, KVT_OFFLOAD_VLLM);
	bool llmd = format && !strcmp(format, KVT_OFFLOAD_LLMD), was_row = false;
	bool came = kvt_offload_read_note(&text, &w->row, &was_row, s->note);
	enum kvt_status status = KVT_OK;

	w->rows = vllm || (!llmd && (!came || was_row));
	came = came && w->rows == was_row;
	w->is_new = !came;
	if (!came)
		w->row = (struct kvt_offload_row){ .ranks = 1 };
	if (came)
		status = take_note(w, text);
	else if (!s->model)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"the name of an offload tree contains the model, and this dump has no model name");
	else if (w->per_file = most_blocks(s), !new_config(w) ||
		 (w->rows && !set_agnostic(w)))
		return kvt_no_memory(w->err, NULL);
	return status ? status : set_config(w);
}

/* ---- rows --------------------------------------------------------------- */

static int64_t most_layers(const struct writing *w)
{
	const json_t *list = json_object_get(w->config, "kv_cache_groups");
	const struct kvt_snapshot *s = &w->writer->head.snapshot;
	int64_t most = 1;

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *names = json_object_get(json_array_get(list, i),
						      "layer_names");

		if ((int64_t)json_array_size(names) > most)
			most = (int64_t)json_array_size(names);
	}
	for (int g = 0; g < s->ngroups; g++)
		if (s->group[g].shape.n[KVT_AXIS_L] > most)
			most = s->group[g].shape.n[KVT_AXIS_L];
	return most;
}

/* Latents are the same on all ranks, of which vLLM stores one copy, and says so. */
static bool set_copies(struct writing *w, int64_t ranks)
{
	static const char *const keys[] = { "parallel_agnostic", "replicated_layout" };
	bool several = ranks > 1;

	w->row.ranks = 1;
	json_object_del(w->config, keys[!several]);
	return set_int(w->config, "tp_size", 1) &&
	       !json_object_set_new(w->config, keys[several], json_boolean(several));
}

/*
 * Rows for another number of ranks.  A config that is not the same for all of them
 * has the number, and so has one from here on whose ranks share heads.
 */
static enum kvt_status set_row_ranks(struct writing *w)
{
	const struct kvt_group *group = &w->writer->head.snapshot.group[0];
	int64_t ranks = w->writer->options.row_ranks;
	bool ok = true;

	if (!ranks)
		return KVT_OK;
	if (ranks > KVT_OFFLOAD_MOST_RANKS)
		return kvt_fail(w->err, KVT_UNSUPPORTED, "%lld ranks are more than %d",
				(long long)ranks, KVT_OFFLOAD_MOST_RANKS);
	/* padding was that of a rank's pages, which are other ones now */
	if (ranks != w->row.ranks)
		w->row.page = 0;
	w->row.ranks = ranks;
	if (kvt_group_opaque(group) && !w->row.canonical)
		return set_copies(w, ranks) ? KVT_OK : kvt_no_memory(w->err, NULL);
	if (w->row.canonical)
		return KVT_OK;
	if (group->shape.n[KVT_AXIS_H] % ranks)
		ok = !json_object_set_new(w->config, "parallel_agnostic", json_false());
	if (ok && json_object_get(w->config, "parallel_agnostic"))
		ok = set_int(w->config, "tp_size", ranks);
	return ok ? KVT_OK : kvt_no_memory(w->err, NULL);
}

enum kvt_status kvt_offload_make_rows(struct writing *w)
{
	struct kvt_snapshot *s = &w->writer->head.snapshot;
	const char *form = w->writer->options.row_form, *canonical;
	struct kvt_offload_row first = { .ranks = 0 };
	enum kvt_status status;

	if (s->parallel.tp_size * s->parallel.pp_size * s->parallel.dcp_size > 1)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"vLLM's tier stores all ranks in one file, and this dump is of one rank: merge them first, or write --format="
				KVT_OFFLOAD_LLMD);
	/* what an engine's own pages have beside their content, its rows have, too */
	for (int g = 0; w->is_new && g < s->ngroups; g++)
		if (s->group[g].page_bytes > w->row.page && !s->group[g].page_offset &&
		    kvt_group_has_gaps(&s->group[g]))
			w->row.page = s->group[g].page_bytes;
	if ((status = kvt_offload_set_form(w->config, &w->row, s, form, w->err)))
		return status;
	canonical = json_string_value(json_object_get(w->config, "canonical_format"));
	w->row.canonical = canonical != NULL;
	w->row.per_file = w->per_file;
	w->row.layers = most_layers(w);
	if ((status = set_row_ranks(w)))
		return status;
	for (int g = 0; g < s->ngroups; g++) {
		struct kvt_group *group = &s->group[g];

		if ((status = kvt_offload_row_layout(&group->layout, w->err)) ||
		    (status = kvt_offload_check_canonical(canonical, group, "output",
							  w->err)) ||
		    (status = kvt_offload_row_measure(&w->row, group, group->id, w->err)))
			return status;
		if (g && w->row.rank_bytes != first.rank_bytes)
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"groups %s and %s have different block sizes, which vLLM's tier cannot have",
					s->group[0].id, group->id);
		first = w->row;
		group->page_bytes = group->page_offset = 0;
	}
	return KVT_OK;
}
