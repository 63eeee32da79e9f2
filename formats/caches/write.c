/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c - safetensors that mlx-lm or transformers go on from
 *
 *	transformers	layers.{l}.keys, .values, .conv_states.0, .recurrent_states.0
 *	mlx-lm		{l}.0, {l}.1, as formats/tensor/mlx.c draws them
 *
 * Each has its names of tensors and its words for what a layer is.  mlx-lm makes its
 * caches of the metadata, which had three forms: to 0.26 a ring has five numbers, to 0.31
 * four, as texts; since 0.32 they are arrays of one number.  No file can be of two forms.
 * For transformers the metadata hold three lines of Python that fill a DynamicCache.
 *
 * A ring is written in the order of its tokens, as one that is full and whose next slot
 * is the first one behind those that it keeps: each of them goes on from that.
 */
#include "formats/caches/write.h"

#include <stdlib.h>
#include <string.h>

#include "formats/file/tree.h"
#include "formats/tensor/safetensors_header.h"
#include "lib/base/little_endian.h"

enum { MAX_LAYERS = 1 << 14, MAX_NUMBERS = 4, FILE_NOTES = 8 };

/* Of a layer: tensors, and texts that say what it is. */
enum { LAYER_TENSORS = CACHE_USES + MAX_NUMBERS, LAYER_NOTES = 2 * (MAX_NUMBERS + 1) };

enum form_of { TRANSFORMERS, MLX_WHOLE, MLX_FOUR, MLX_FIVE };

#define MLX_KEEPS .rings = true, .taps_first = true, .codes = true

static const struct form {
	const char *name;
	enum form_of form;
	struct cache_rules rules;
} forms[] = {
	{ "transformers", TRANSFORMERS,
	  { .engine = "transformers", .source = "transformers", .spare = 1 } },
	{ "mlx", MLX_WHOLE,
	  { .engine = "mlx-lm", .source = "mlx", MLX_KEEPS } },
	{ "mlx-0.28", MLX_FOUR,
	  { .engine = "mlx-lm", .source = "mlx", MLX_KEEPS } },
	{ "mlx-0.26", MLX_FIVE,
	  { .engine = "mlx-lm", .source = "mlx", MLX_KEEPS } },
};
enum { NFORMS = sizeof(forms) / sizeof(forms[0]) };

/* A tensor of the file: of a strip, or one number, or none. */
struct content {
	const struct cache_strip *strip;
	int32_t number;
};

struct output {
	struct cache_writing w;
	const struct form *form;
	struct kvt_tensors tensors;	/* with the notes; room for all was made */
	struct content *content;	/* [tensors.count] */
	int64_t scalars;		/* of mlx: how many are listed */
	bool failed;			/* no memory for a name */
};

/* ---- names, numbers, texts ---------------------------------------------- */

static struct kvt_tensor *add_tensor(struct output *o, const char *name,
				     struct content content)
{
	struct kvt_tensor *t = &o->tensors.tensor[o->tensors.count];

	o->content[o->tensors.count++] = content;
	if (!(t->name = strdup(name)))
		o->failed = true;
	return t;
}

static void add_piece(struct output *o, const char *name, const struct cache_place *part)
{
	const struct cache_strip *strip = part->strip;
	struct kvt_tensor *t = add_tensor(o, name, (struct content){ .strip = strip });

	t->dtype = strip->dtype;
	snprintf(t->type, sizeof(t->type), "%s", strip->dtype->safetensors);
	t->rank = strip->rank;
	memcpy(t->shape, strip->shape, sizeof(t->shape));
	t->end = strip->nbytes;
	t->begin = part->place;
}

static void add_note(struct output *o, const char *name, const char *text)
{
	struct kvt_note *note = &o->tensors.note[o->tensors.nnotes++];

	*note = (struct kvt_note){ strdup(name), strdup(text) };
	if (!note->name || !note->text)
		o->failed = true;
}

static void add_number_note(struct output *o, const char *name, int64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%lld", LL(value));
	add_note(o, name, text);
}

/* ---- mlx-lm ------------------------------------------------------------- */

/* Since 0.32 what is no array is listed, with what it is. */
static void list_scalar(struct output *o, const char *path, const char *type)
{
	char name[40];

	o->scalars++;
	snprintf(name, sizeof(name), "2.%lld.0", LL(o->scalars));
	add_note(o, name, path);
	snprintf(name, sizeof(name), "2.%lld.1", LL(o->scalars));
	add_note(o, name, type);
}

static void add_scalar(struct output *o, int64_t layer, int at, int64_t value)
{
	struct kvt_tensor *t;
	char path[40];

	snprintf(path, sizeof(path), "%lld.%d", LL(layer), at);
	t = add_tensor(o, path, (struct content){ .number = (int32_t)value });
	strcpy(t->type, "I32");
	t->end = sizeof(int32_t);
	list_scalar(o, path, "scalar");
}

static void add_none(struct output *o, int64_t layer, int at)
{
	struct kvt_tensor *t;
	char path[40];

	snprintf(path, sizeof(path), "%lld.%d", LL(layer), at);
	t = add_tensor(o, path, (struct content){ 0 });
	strcpy(t->type, "F32");
	t->rank = 1;
	list_scalar(o, path, "none");
}

static void add_mlx_numbers(struct output *o, int64_t layer, const int64_t *n, int count)
{
	char name[48];

	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "0.%lld.%d", LL(layer), i);
		add_number_note(o, name, n[i]);
	}
	if (count)
		return;
	snprintf(name, sizeof(name), "0.%lld", LL(layer));
	add_note(o, name, "");
}

/* What the class says of itself behind its arrays, in the order of the form. */
static void add_mlx_meta(struct output *o, int64_t layer, const int64_t *n, int count,
			 int step)
{
	int64_t all[MAX_NUMBERS + 1];
	int used = 0;

	for (int i = 0; i < count; i++) {
		if (o->form->form == MLX_FIVE && i == step)
			all[used++] = 256;
		all[used++] = n[i];
	}
	add_mlx_numbers(o, layer, all, used);
}

/* Codes, scales and biases of both; keys first. */
static const char *add_mlx_codes(struct output *o, const struct cache_written *l)
{
	const struct kvt_group *g =
		&o->w.snapshot->group[l->part[CACHE_KEYS].strip->group];
	int64_t n[] = { o->w.end, 0, 0 };
	char name[48];

	kvt_cache_codes(&n[2], &n[1], g);
	for (int i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "%lld.%d.%d", LL(l->number), i % 2, i / 2);
		add_piece(o, name, &l->part[CACHE_KEYS + i]);
	}
	for (int i = 0; o->form->form == MLX_WHOLE && i < 3; i++)
		add_scalar(o, l->number, 2 + i, n[i]);
	if (o->form->form != MLX_WHOLE)
		add_mlx_meta(o, l->number, n, 3, 0);
	return "QuantizedKVCache";
}

/* Keys and values; a ring, where there is a window or the first tokens are kept. */
static const char *add_mlx_attention(struct output *o, const struct cache_written *l)
{
	const struct cache_strip *keys = l->part[CACHE_KEYS].strip;
	int64_t most = keys->keep ? keys->slots : keys->window;
	char name[40];

	if (l->part[CACHE_KEY_SCALES].strip)
		return add_mlx_codes(o, l);
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%lld.%d", LL(l->number), i);
		add_piece(o, name, &l->part[i ? CACHE_VALUES : CACHE_KEYS]);
	}
	if (o->form->form == MLX_WHOLE) {
		const int64_t n[] = { o->w.end, keys->keep, most, keys->slots };

		for (int i = 0; i < (most ? 4 : 1); i++)
			add_scalar(o, l->number, 2 + i, n[i]);
	} else {
		const int64_t n[] = { keys->keep, most, o->w.end, keys->slots };

		add_mlx_meta(o, l->number, n, most ? 4 : 0, 2);
	}
	return most ? "RotatingKVCache" : "KVCache";
}

static const char *add_mlx_states(struct output *o, const struct cache_written *l)
{
	bool whole = o->form->form == MLX_WHOLE, both = l->part[CACHE_STATE].strip;
	char name[48];

	for (int i = 0; i < 1 + both; i++) {
		snprintf(name, sizeof(name), "%lld.%s%d", LL(l->number),
			 whole ? "0." : "", i);
		add_piece(o, name, &l->part[i ? CACHE_STATE : CACHE_CONV]);
	}
	if (whole) {
		/* padding on the left, and lengths, of a batch */
		add_none(o, l->number, 1);
		add_none(o, l->number, 2);
	} else {
		add_mlx_numbers(o, l->number, NULL, 0);
	}
	return o->form->form == MLX_FIVE && both ? "MambaCache" : "ArraysCache";
}

static enum kvt_status add_mlx_layer(struct output *o, int64_t i)
{
	const struct cache_written *l = &o->w.layer[i];
	bool attention = l->part[CACHE_KEYS].strip, conv = l->part[CACHE_CONV].strip;
	char name[40];

	if (l->number != i)
		return kvt_fail(o->w.err, KVT_UNSUPPORTED,
				"layer %lld is not in the dump, and mlx-lm counts caches without gaps",
				LL(i));
	if (attention && conv)
		return kvt_fail(o->w.err, KVT_UNSUPPORTED,
				"layer %lld has keys and values and a state, which kvtool does not write for mlx-lm",
				LL(i));
	snprintf(name, sizeof(name), "%d.%lld", o->form->form == MLX_WHOLE ? 1 : 2,
		 LL(i));
	add_note(o, name, attention ? add_mlx_attention(o, l) : add_mlx_states(o, l));
	return KVT_OK;
}

/* What mlx-lm leaves to its user: the model, and whose tokens they are. */
static void add_mlx_user(struct output *o)
{
	bool whole = o->form->form == MLX_WHOLE;

	if (whole)
		add_note(o, "2.0", "");
	add_note(o, whole ? "0.kvtool_request" : "1.kvtool_request", o->w.request->id);
	add_number_note(o, whole ? "0.kvtool_tokens" : "1.kvtool_tokens", o->w.end);
	if (o->w.snapshot->model)
		add_note(o, whole ? "0.model" : "1.model", o->w.snapshot->model);
}

/* ---- transformers ------------------------------------------------------- */

static void add_named(struct output *o, const struct cache_written *l, enum cache_use use,
		      const char *word)
{
	char name[64];

	if (!l->part[use].strip)
		return;
	snprintf(name, sizeof(name), "layers.%lld.%s", LL(l->number), word);
	add_piece(o, name, &l->part[use]);
}

static void add_hf_layer(struct output *o, int64_t i)
{
	const struct cache_written *l = &o->w.layer[i];
	const struct cache_strip *keys = l->part[CACHE_KEYS].strip;
	int64_t window = keys ? keys->window : 0;
	char name[64];

	add_named(o, l, CACHE_KEYS, "keys");
	add_named(o, l, CACHE_VALUES, "values");
	add_named(o, l, CACHE_CONV, "conv_states.0");
	add_named(o, l, CACHE_STATE, "recurrent_states.0");
	if (!window)
		return;
	snprintf(name, sizeof(name), "layers.%lld.sliding_window", LL(l->number));
	add_number_note(o, name, window);
}

static bool has_use(const struct output *o, enum cache_use use)
{
	for (int i = 0; i < o->w.nstrips; i++)
		if (o->w.strip[i].use == use)
			return true;
	return false;
}

/* The third line: what a layer of the cache takes is what the file has for it. */
static void print_loop(const struct output *o, FILE *out)
{
	static const struct {
		enum cache_use use;
		const char *name, *call;
	} calls[] = {
		{ CACHE_KEYS, "keys",
		  "l.update(t[f\"layers.{i}.keys\"], t[f\"layers.{i}.values\"])" },
		{ CACHE_CONV, "conv_states.0",
		  "l.update_conv_state(t[f\"layers.{i}.conv_states.0\"])" },
		{ CACHE_STATE, "recurrent_states.0",
		  "l.update_recurrent_state(t[f\"layers.{i}.recurrent_states.0\"])" },
	};
	static const char count[] = "\"cumulative_length\"";
	const char *before = "";

	fprintf(out, "for i, l in enumerate(cache.layers): ");
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (has_use(o, calls[i].use)) {
			fprintf(out, "%sf\"layers.{i}.%s\" in t and %s", before,
				calls[i].name, calls[i].call);
			before = "; ";
		}
	for (int i = 0; i < o->w.nstrips; i++)
		if (o->w.strip[i].window) {
			fprintf(out, "%shasattr(l, %s) and setattr(l, %s, %lld)", before,
				count, count, LL(o->w.end));
			break;
		}
	fprintf(out, "\n");
}

/* Of names of files that need no escapes in Python. */
static bool is_plain(const char *name)
{
	for (const unsigned char *c = (const unsigned char *)name; *c; c++)
		if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
			return false;
	return true;
}

static void add_hf_notes(struct output *o)
{
	const char *name = kvt_path_base(o->w.writer->path);
	char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	add_note(o, "kvtool_cache", "transformers");
	add_note(o, "kvtool_request", o->w.request->id);
	add_number_note(o, "kvtool_tokens", o->w.end);
	if (!out) {
		o->failed = true;
		return;
	}
	fprintf(out, "from safetensors.torch import load_file; "
		"from transformers import DynamicCache\n"
		"t, cache = load_file(\"%s\"), DynamicCache(config=model.config)\n",
		is_plain(name) ? name : "FILE");
	print_loop(o, out);
	if (fclose(out) || !text)
		o->failed = true;
	else
		add_note(o, "kvtool_load", text);
	o->w.writer->use = text;
}

/* ---- where it all is ---------------------------------------------------- */

/* Strips of elements so wide, one behind the other. */
static enum kvt_status place_strips(struct output *o, int64_t *end, int elem)
{
	struct cache_writing *w = &o->w;
	int64_t nbytes;

	for (int i = 0; i < w->nstrips; i++) {
		struct cache_strip *strip = &w->strip[i];
		const struct kvt_group *g = &w->snapshot->group[strip->group];

		if (strip->dtype->elem != elem)
			continue;
		strip->begin = *end;
		if (__builtin_mul_overflow(strip->nbytes, g->shape.n[KVT_AXIS_L],
					   &nbytes) ||
		    __builtin_add_overflow(*end, nbytes, end))
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"%s: more than 2^63 bytes", w->writer->path);
	}
	return KVT_OK;
}

/* The widest first, so that all are aligned. */
static enum kvt_status place(struct output *o, int64_t *end)
{
	enum kvt_status status = KVT_OK;

	*end = 0;
	for (int elem = 16; !status && elem; elem /= 2) {
		status = place_strips(o, end, elem);
		for (int64_t i = 0; elem == 4 && i < o->tensors.count; i++) {
			struct kvt_tensor *t = &o->tensors.tensor[i];

			if (o->content[i].strip)
				continue;
			t->begin = *end;
			t->end = *end += t->end;
		}
	}
	for (int64_t i = 0; !status && i < o->tensors.count; i++) {
		struct kvt_tensor *t = &o->tensors.tensor[i];
		const struct cache_strip *strip = o->content[i].strip;

		if (!strip)
			continue;
		/* so far it was the place in the strip */
		t->begin = strip->begin + t->begin * strip->nbytes;
		t->end = t->begin + strip->nbytes;
	}
	return status;
}

/* ---- the file ----------------------------------------------------------- */

static enum kvt_status make_room(struct output *o)
{
	size_t n = (size_t)o->w.nlayers;

	if (n > MAX_LAYERS)
		return kvt_fail(o->w.err, KVT_UNSUPPORTED,
				"%lld layers, expected at most %d", LL(o->w.nlayers),
				MAX_LAYERS);
	o->tensors.tensor = calloc(n * LAYER_TENSORS + 1, sizeof(*o->tensors.tensor));
	o->content = calloc(n * LAYER_TENSORS + 1, sizeof(*o->content));
	o->tensors.note = calloc(n * LAYER_NOTES + FILE_NOTES, sizeof(*o->tensors.note));
	return o->tensors.tensor && o->content && o->tensors.note ? KVT_OK :
	       kvt_no_memory(o->w.err, NULL);
}

static enum kvt_status describe(struct output *o)
{
	bool mlx = o->form->form != TRANSFORMERS;
	enum kvt_status status = make_room(o);

	for (int64_t i = 0; !status && i < o->w.nlayers; i++) {
		if (mlx)
			status = add_mlx_layer(o, i);
		else
			add_hf_layer(o, i);
	}
	if (status)
		return status;
	if (mlx)
		add_mlx_user(o);
	else
		add_hf_notes(o);
	return o->failed ? kvt_no_memory(o->w.err, NULL) : KVT_OK;
}

static enum kvt_status write_numbers(const struct output *o, const struct kvt_file *file,
				     int64_t data)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < o->tensors.count; i++) {
		const struct kvt_tensor *t = &o->tensors.tensor[i];
		uint8_t bytes[sizeof(int32_t)];

		if (o->content[i].strip || t->begin == t->end)
			continue;
		kvt_put_le(bytes, (uint32_t)o->content[i].number, sizeof(bytes));
		status = kvt_file_write(file, bytes, sizeof(bytes), data + t->begin,
					o->w.err);
	}
	return status;
}

static enum kvt_status write_file(struct output *o)
{
	struct kvt_writer *writer = o->w.writer;
	int64_t ndata = 0, nhead = 0;
	enum kvt_status status;
	char *head = NULL;
	int index;

	if ((status = place(o, &ndata)) ||
	    (status = kvt_tensors_print(&head, &nhead, &o->tensors, NULL, o->w.err)))
		return status;
	if (ndata > INT64_MAX - nhead)
		status = kvt_fail(o->w.err, KVT_UNSUPPORTED, "%s: more than 2^63 bytes",
				  writer->path);
	else
		status = kvt_files_create(&writer->files, &index, writer->temporary,
					  nhead + ndata, o->w.err);
	if (!status)
		status = kvt_file_write(&writer->files.file[index], head, nhead, 0,
					o->w.err);
	free(head);
	if (!status)
		status = write_numbers(o, &writer->files.file[index], nhead);
	return status ? status : kvt_cache_place(&o->w, index, nhead);
}

/* "hf" and its like are transformers. */
static const struct form *find_form(const struct kvt_writer *writer)
{
	for (int i = 0; i < NFORMS; i++)
		if (!strcmp(forms[i].name, writer->options.format))
			return &forms[i];
	return &forms[0];
}

enum kvt_status kvt_cache_create(struct kvt_writer *writer, struct kvt_error *err)
{
	struct output *o = calloc(1, sizeof(*o));
	enum kvt_status status;

	if (!o)
		return kvt_no_memory(err, NULL);
	o->form = find_form(writer);
	o->w.writer = writer;
	o->w.rules = &o->form->rules;
	o->w.snapshot = &writer->head.snapshot;
	o->w.err = err;
	if (!(status = kvt_cache_plan(&o->w)) && !(status = describe(o)))
		status = write_file(o);
	kvt_tensors_free(&o->tensors);
	free(o->content);
	free(o->w.layer);
	free(o);
	return status;
}

/* The header was complete before the data. */
enum kvt_status kvt_cache_finish(struct kvt_writer *writer, struct kvt_error *err)
{
	(void)writer;
	(void)err;
	return KVT_OK;
}
