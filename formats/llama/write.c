/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c - a state of llama.cpp, written as its template is
 *
 * Fields of cells and rows are written once the plan is known (fields.c), and the file
 * has its length from the beginning; rows are parts of the writer's groups, so that
 * their bytes go where they belong in whatever order they come.
 */
#include "formats/llama/write.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/print.h"

/* ---- rows --------------------------------------------------------------- */

/* Layers of one group that follow each other there and, at one distance, here. */
static int64_t count_layers(int64_t *step, const struct kvt_llama_written *c, int kv,
			    const int64_t *at, int64_t l)
{
	const struct kvt_llama_source *s = kvt_llama_source_of(c, kv, l);
	int64_t n = 1;

	*step = 0;
	for (; l + n < c->like->nlayers; n++)
		if (s[n].group != s->group || s[n].kv != s->kv ||
		    s[n].layer != s->layer + n ||
		    (n > 1 && at[l + n] - at[l + n - 1] != *step))
			break;
		else
			*step = at[l + n] - at[l + n - 1];
	return n;
}

/* Keys in halves are the first elements of all pairs, then the second ones. */
static enum kvt_status add_run(const struct kvt_llama_writing *w, int g, int kv,
			       struct kvt_token_run run)
{
	const struct kvt_group *group = &w->snapshot->group[g];
	struct kvt_flat *flat = &w->writer->flat[g];
	int64_t dim = group->shape.n[KVT_AXIS_D], step = run.stride[KVT_AXIS_D];
	enum kvt_status status = KVT_OK;

	if (!w->pairs || kv)
		return kvt_token_run_add(flat, group, &run, w->err);
	run.stride[KVT_AXIS_D] = 2 * step;
	for (int half = 0; !status && half < 2; half++, run.offset += step) {
		run.dim[0] = half * (dim / 2);
		run.dim[1] = run.dim[0] + dim / 2;
		status = kvt_token_run_add(flat, group, &run, w->err);
	}
	return status;
}

/* Cells from the i-th that is held on whose tokens follow each other in the group. */
static int64_t count_run(int64_t *held, const struct kvt_llama_writing *w, int g,
			 const struct kvt_llama_written *c, int64_t i)
{
	int64_t first = w->slot[g][c->held[i].request][c->held[i].at], n = 0, k = i;

	while (k < c->nheld && c->held[k].stream == c->held[i].stream &&
	       w->slot[g][c->held[k].request][c->held[k].at] == first + n) {
		for (n++, k++; k < c->nheld &&
		     kvt_llama_same_cell(&c->held[k], &c->held[k - 1]);)
			k++;
	}
	*held = k - i;
	return n;
}

static enum kvt_status place_layers(const struct kvt_llama_writing *w, int cache, int kv,
				    int64_t stream, int64_t from, int64_t l, int64_t n,
				    int64_t step)
{
	const struct kvt_llama_written *c = &w->cache[cache];
	const struct kvt_llama_source *s = kvt_llama_source_of(c, kv, l);
	const struct kvt_llama_rows *rows = kvt_llama_rows_like(w, cache, kv, l);
	const struct kvt_group *g = &w->snapshot->group[s->group];
	int64_t ncells = kvt_llama_count_cells(c, from, stream), cell = 0, held;
	int64_t at = c->at[(2 * stream + kv) * c->like->nlayers + l];
	enum kvt_status status = KVT_OK;
	struct kvt_token_run run = {
		.file = 0, .layers = { s->layer, s->layer + n },
		.kv = { s->kv, s->kv + 1 },
	};

	run.stride[KVT_AXIS_L] = step;
	run.stride[KVT_AXIS_S] = rows->elem ? rows->elem : rows->nbytes;
	run.stride[KVT_AXIS_D] = rows->elem ? rows->elem * ncells : g->shape.elem;
	run.stride[KVT_AXIS_H] = run.stride[KVT_AXIS_D] * g->shape.n[KVT_AXIS_D];
	for (int64_t i = from; !status && cell < ncells; i += held) {
		int64_t slot = w->slot[s->group][c->held[i].request][c->held[i].at];

		run.count = count_run(&held, w, s->group, c, i);
		run.block = slot / g->block_size;
		run.token = slot % g->block_size;
		run.offset = at + cell * run.stride[KVT_AXIS_S];
		status = add_run(w, s->group, kv, run);
		cell += run.count;
	}
	return status;
}

static enum kvt_status place_cache(const struct kvt_llama_writing *w, int cache)
{
	const struct kvt_llama_written *c = &w->cache[cache];
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0, stream; c->like && !status && i < c->nheld;) {
		stream = c->held[i].stream;
		for (int kv = 0; !status && kv < 1 + c->like->has_values; kv++) {
			const int64_t *at = &c->at[(2 * stream + kv) * c->like->nlayers];

			for (int64_t l = 0, n, step; !status && l < c->like->nlayers;
			     l += n) {
				n = count_layers(&step, c, kv, at, l);
				status = place_layers(w, cache, kv, stream, i, l, n,
						      step);
			}
		}
		while (i < c->nheld && c->held[i].stream == stream)
			i++;
	}
	return status;
}

static enum kvt_status place_states(const struct kvt_llama_writing *w)
{
	const struct kvt_llama_kept *k = &w->states;
	enum kvt_status status = KVT_OK;

	for (int which = 0; which < 2; which++)
		for (int64_t i = 0; !status && k->group[which] >= 0 && i < k->ncells;
		     i++) {
			int g = k->group[which];
			const struct kvt_group *group = &w->snapshot->group[g];
			struct kvt_file_part part = {
				.file = 0, .box = kvt_box_whole(&group->shape) };

			part.box.begin[KVT_AXIS_B] = k->block[i];
			part.box.end[KVT_AXIS_B] = k->block[i] + 1;
			if ((status = kvt_layout_views(&part.views, &group->layout,
						       &part.box, group->shape.elem,
						       w->err)))
				return status;
			kvt_view_set_stride(&part.views.view[0], KVT_AXIS_L,
					    k->step[which]);
			part.views.view[0].offset =
				k->at[which] + i * w->like.states.row[which].nbytes;
			status = kvt_flat_add(&w->writer->flat[g], &part, w->err);
		}
	return status;
}

/* ---- the template ------------------------------------------------------- */

/* What the dump is says how a template is read that may be two things. */
static enum kvt_llama_memory memory_of(const struct kvt_snapshot *s)
{
	int n = 0;

	for (int g = 0; g < s->ngroups; g++)
		n += s->group[g].kind == KVT_OPAQUE;
	return !n ? KVT_LLAMA_ATTENTION : n < s->ngroups ? KVT_LLAMA_HYBRID :
							   KVT_LLAMA_RECURRENT;
}

static enum kvt_status open_template(struct kvt_llama_writing *w)
{
	const struct kvt_llama_asked asked = { .memory = memory_of(w->snapshot) };
	enum kvt_status status;

	if (!(w->path = w->writer->options.template_path))
		return w->writer->options.model_path ? kvt_llama_make(w) :
		       kvt_fail(w->err, KVT_USAGE,
				"--format=%s needs --template=STATE, a state that the build of llama.cpp wrote which is to read this one, of the same model; or --model=FILE.gguf",
				w->writer->format->info.name);
	if (w->writer->options.context)
		return kvt_fail(w->err, KVT_USAGE,
				"--context is for --model=FILE.gguf, and %s, the template, says what it would",
				w->path);
	if ((status = kvt_files_open(&w->files, &w->file, w->path, w->err)) ||
	    (status = kvt_llama_parse(&w->like, &w->files.file[w->file], &asked,
				      w->err)))
		return status;
	if (w->whole ? strcmp(w->like.kind, "ggsn") != 0 :
		       strncmp(w->like.kind, "ggs", 3) != 0)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s: is a %s, and the template of a %s is a file that llama_state_%s wrote",
				w->path, w->like.kind, w->writer->format->info.name,
				w->whole ? "save_file()" :
					   "seq_save_file() or llama_state_save_file()");
	return KVT_OK;
}

/* ---- order of elements -------------------------------------------------- */

/*
 * Where a model turns the elements of a key in pairs, GGUF has the rows of its weights in
 * another order than safetensors: other engines have these pairs as two halves.
 */
static const struct {
	const char *arch;
	bool pairs;
} orders[] = {
	{ "llama", true },     { "granite", true },   { "qwen2", false },
	{ "qwen2moe", false }, { "qwen3", false },    { "qwen3moe", false },
	{ "gemma", false },    { "gemma2", false },   { "gemma3", false },
	{ "phi2", false },     { "phi3", false },     { "olmo2", false },
	{ "gpt-oss", false },  { "stablelm", false },
};

static enum kvt_status take_order(struct kvt_llama_writing *w)
{
	const char *source = w->snapshot->source_format;
	const char *said = w->writer->options.key_order;

	w->foreign = !source || strncmp(source, "llama", strlen("llama")) != 0;
	if (said && strcmp(said, "pairs") && strcmp(said, "halves"))
		return kvt_fail(w->err, KVT_USAGE,
				"--key-order is '%.40s', expected pairs or halves", said);
	if (said && !w->foreign)
		return kvt_fail(w->err, KVT_USAGE,
				"--key-order is of dumps of other engines, and this one comes from %s",
				source);
	/* its own keys come as they were, or as they were asked for */
	w->pairs = w->foreign ? said && !strcmp(said, "pairs") :
				strstr(source, KVT_LLAMA_IN_HALVES) != NULL;
	if (!w->foreign || said || w->writer->options.as_is)
		return KVT_OK;
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
		if (!strcmp(orders[i].arch, w->like.arch)) {
			w->pairs = orders[i].pairs;
			return KVT_OK;
		}
	return kvt_fail(w->err, KVT_UNSUPPORTED,
			"the dump does not come from llama.cpp, which has the elements of keys in pairs for llama, mistral and granite, and in halves as other engines for most others; give --key-order=pairs or --key-order=halves");
}

static enum kvt_status check_pairs(const struct kvt_llama_writing *w)
{
	for (int g = 0; w->pairs && g < w->snapshot->ngroups; g++) {
		const struct kvt_group *group = &w->snapshot->group[g];

		if (group->content.type || group->shape.n[KVT_AXIS_D] % 2)
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"group %s holds %s, whose keys cannot be put in pairs; kvtool convert --decode makes numbers of them",
					group->id, kvt_group_type(group).s);
	}
	return KVT_OK;
}

/* ---- the writer --------------------------------------------------------- */

static enum kvt_status take_layouts(struct kvt_llama_writing *w)
{
	enum kvt_status status = KVT_OK;

	for (int g = 0; !status && g < w->snapshot->ngroups; g++) {
		struct kvt_group *group = &w->snapshot->group[g];

		group->page_bytes = group->page_offset = 0;
		status = kvt_layout_parse(&group->layout,
					  group->kind == KVT_OPAQUE ? "LBD" :
					  group->kind == KVT_MLA ? "LBSC" :
					  group->shape.n[KVT_AXIS_K] == 2 ? "LKBSHD" :
								       "LBSHD", w->err);
	}
	return status;
}

/* Layers are counted from 0 in each cache, whatever numbers the model has for them. */
static enum kvt_status number_layers(const struct kvt_llama_writing *w)
{
	for (int g = 0; g < w->snapshot->ngroups; g++) {
		struct kvt_group *group = &w->snapshot->group[g];
		int64_t n = group->shape.n[KVT_AXIS_L];

		if (group->layer_ids || group->kind == KVT_OPAQUE)
			continue;
		if (!(group->layer_ids = calloc((size_t)n + 1,
						sizeof(*group->layer_ids))))
			return kvt_no_memory(w->err, NULL);
	}
	for (int i = 0; i < w->like.ncaches; i++) {
		const struct kvt_llama_written *c = &w->cache[i];

		for (int kv = 0; c->like && kv < 1 + c->like->has_values; kv++)
			for (int64_t l = 0; l < c->like->nlayers; l++) {
				const struct kvt_llama_source *s =
					kvt_llama_source_of(c, kv, l);

				w->snapshot->group[s->group].layer_ids[s->layer] =
					(uint32_t)l;
			}
	}
	return KVT_OK;
}

static void add_fact(struct kvt_writer *writer, const char *text)
{
	char *fact = writer->fact[writer->facts.n];

	snprintf(fact, sizeof(writer->fact[0]), "%s", text);
	writer->facts.s[writer->facts.n++] = fact;
}

/*
 * Heads of the keys of a cache, and how wide one is; 0: there are none, or they differ.
 */
static int64_t heads_of(int64_t *dim, const struct kvt_llama_writing *w, int cache)
{
	const struct kvt_llama_written *c = &w->cache[cache];
	int64_t heads = 0;

	for (int64_t l = 0; c->like && c->like->has_values && l < c->like->nlayers; l++) {
		const struct kvt_group *g =
			&w->snapshot->group[kvt_llama_source_of(c, 0, l)->group];
		const struct kvt_llama_rows *rows = kvt_llama_rows_like(w, cache, 0, l);
		const struct kvt_ggml_type *type = kvt_ggml_type(rows->type);
		int64_t row = g->shape.n[KVT_AXIS_D] / type->nbytes * type->elems;
		int64_t n = g->content.n ? row / g->content.n : g->shape.n[KVT_AXIS_H];
		int64_t wide = rows->nbytes / type->nbytes * type->elems / n;

		heads = !l || heads == n ? n : 0;
		*dim = !*dim || *dim == wide ? wide : -1;
	}
	return heads;
}

/* What the dump says of rotation, which the file does not; of unlike heads the rule. */
static void tell_rotation(const struct kvt_llama_writing *w)
{
	int64_t turn[2] = { 0, 0 };
	bool blocks = false, apart = false;
	char text[48];
	int n;

	for (int g = 0; g < w->snapshot->ngroups; g++) {
		const struct kvt_content *content = &w->snapshot->group[g].content;

		blocks |= content->type != NULL;
		for (int kv = 0; content->type && kv < 2; kv++) {
			apart |= turn[kv] > 1 && content->turn[kv] > 1 &&
				 turn[kv] != content->turn[kv];
			turn[kv] = content->turn[kv] > turn[kv] ? content->turn[kv] :
								 turn[kv];
		}
	}
	n = snprintf(text, sizeof(text), "rotation=%s", !turn[0] ? "unknown" :
		     turn[0] == 1 && turn[1] == 1 ? "none" : "");
	for (int kv = 0; kv < 2; kv++)
		if (turn[kv] > 1)
			n += snprintf(text + n, sizeof(text) - (size_t)n,
				      apart ? "%s%c" : "%s%c%lld",
				      kv && turn[0] > 1 ? "/" : "", "kv"[kv],
				      LL(turn[kv]));
	if (blocks)
		add_fact(w->writer, text);
}

/* What has to be said of the file when it is read, as far as one option can. */
static void tell(const struct kvt_llama_writing *w)
{
	int64_t heads[KVT_LLAMA_CACHES] = { 0 }, window = 0, dim = 0;
	char text[48];

	snprintf(text, sizeof(text), "memory=%s",
		 kvt_llama_memory_names[memory_of(w->snapshot)]);
	add_fact(w->writer, text);
	for (int i = 0; i < w->like.ncaches; i++)
		heads[i] = w->cache[i].like ? heads_of(&dim, w, i) : 1;
	snprintf(text, sizeof(text), w->like.ncaches > 1 ? "heads=%lld,%lld" :
		 "heads=%lld", LL(heads[0]), LL(heads[1]));
	if (heads[0] && (w->like.ncaches < 2 || heads[1]))
		add_fact(w->writer, text);
	else if (dim > 0)
		w->writer->head_dim = dim;
	for (int g = 0; g < w->snapshot->ngroups; g++) {
		const struct kvt_group *group = &w->snapshot->group[g];

		window = group->window > window ? group->window : window;
	}
	tell_rotation(w);
	if (w->pairs)
		add_fact(w->writer, "keys=halves");
	snprintf(text, sizeof(text), "window=%lld", LL(window));
	if (window)
		add_fact(w->writer, text);
}

void kvt_llama_writing_init(struct kvt_llama_writing *w, struct kvt_writer *writer,
			    struct kvt_error *err)
{
	w->writer = writer;
	w->snapshot = &writer->head.snapshot;
	w->err = err;
	w->whole = !strcmp(writer->format->info.name, "ggsn");
	w->states.group[0] = w->states.group[1] = -1;
}

enum kvt_status kvt_llama_take_template(struct kvt_llama_writing *w)
{
	enum kvt_status status = open_template(w);

	return status ? status : take_order(w);
}

void kvt_llama_writing_free(struct kvt_llama_writing *w)
{
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		for (int64_t r = 0; w->slot[g] && r < w->snapshot->nrequests; r++)
			free(w->slot[g][r]);
		free(w->slot[g]);
	}
	for (int i = 0; i < KVT_LLAMA_CACHES; i++) {
		free(w->cache[i].source);
		free(w->cache[i].held);
		free(w->cache[i].at);
	}
	free(w->states.block);
	free(w->states.cell);
	free(w->sequence);
	free(w->made);
	kvt_llama_free(&w->like);
	kvt_files_close(&w->files);
}

enum kvt_status kvt_llama_create(struct kvt_writer *writer, struct kvt_error *err)
{
	struct kvt_llama_writing *w = calloc(1, sizeof(*w));
	enum kvt_status status;
	int file = 0;

	if (!w)
		return kvt_no_memory(err, NULL);
	kvt_llama_writing_init(w, writer, err);
	(void)((status = kvt_llama_take_template(w)) ||
	       (status = check_pairs(w)) || (status = kvt_llama_plan(w)) ||
	       (status = take_layouts(w)) || (status = kvt_llama_write_fields(w, &file)));
	for (int i = 0; !status && i < w->like.ncaches; i++)
		status = place_cache(w, i);
	(void)(status || (status = place_states(w)) || (status = number_layers(w)));
	if (!status)
		tell(w);
	kvt_llama_writing_free(w);
	free(w);
	return status;
}

/* All fields were written before the data. */
enum kvt_status kvt_llama_finish(struct kvt_writer *writer, struct kvt_error *err)
{
	(void)writer;
	(void)err;
	return KVT_OK;
}
