/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.c - the layers of a cache of transformers among named tensors
 *
 *	keys, values	[batch, heads, tokens, elements] of each layer
 *	of all layers	L and K among these axes: "LKBHTD"
 *	an indexer	[batch, tokens, elements]
 *
 * In: tensors and the letters of their axes.  Out: of each layer in the model's order
 * two halves, each a place and a stride for each axis, whatever the order in the tensor.
 * Keys and values of a layer have, but for their width, one shape, and one type unless
 * both are floats; all layers have as many rows of the batch.
 */
#include "formats/caches/open.h"
#include "formats/tensor/names.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tensor/mlx_codes.h"

/* ---- halves ------------------------------------------------------------- */

/*
 * A tensor of 'axes', at one layer of it and one half, where it has those.  Axes that it
 * has not are of one index.
 */
static void take_half(struct cache_half *out, const struct cache_opening *o,
		      const struct kvt_tensor *t, const char *axes, int64_t layer, int kv)
{
	int64_t elem = kvt_tensor_array(t, "").elem, dense = elem;
	struct cache_part *part = &out->part[0];

	*out = (struct cache_half){ .tensor = t, .nparts = 1, .shape = { 1, 1, 1, 1 } };
	*part = (struct cache_part){ .file = t->file ? t->file : o->file,
				     .begin = t->file ? 0 : o->tensors.data + t->begin,
				     .stride = { elem, elem, elem, elem } };
	for (int i = t->rank - 1; i >= 0; i--) {
		int64_t stride = t->strided ? t->stride[i] : dense;
		const char *axis = strchr(KVT_CACHE_AXES, axes[i]);

		if (axis) {
			out->shape[axis - KVT_CACHE_AXES] = t->shape[i];
			part->stride[axis - KVT_CACHE_AXES] = stride;
		} else {
			part->begin += (axes[i] == 'L' ? layer : kv) * stride;
		}
		/* below the bytes of the tensor, which the file has */
		dense *= t->shape[i];
	}
	part->width = out->shape[CACHE_DIM];
}

static enum kvt_status check_axes(const struct cache_opening *o,
				  const struct kvt_tensor *t, const char *axes)
{
	enum kvt_status status = kvt_tensor_check(t, o->reader->leaf.path, o->err);
	const char *halves = strchr(axes, 'K');

	if (status)
		return status;
	if (t->rank == CACHE_RANK - 1 && t->rank != (int)strlen(axes) &&
	    !kvt_fact(o->hints, "axes"))
		return kvt_axes_ask(&o->tensors, t, "", "", NULL, o->reader->leaf.path,
				    o->err);
	if (t->rank != (int)strlen(axes))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tensor %.100s has %d axes, expected %s (%s); if it has others, give --set=axes=ORDER",
				o->reader->leaf.path, t->name, t->rank, axes,
				kvt_axes_text(axes).s);
	if (halves && t->shape[halves - axes] != 2)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tensor %.100s has %lld halves, expected keys and values",
				o->reader->leaf.path, t->name,
				LL(t->shape[halves - axes]));
	return KVT_OK;
}

/* Keys and values of one layer, and of all layers as many rows. */
static enum kvt_status check_layer(const struct cache_opening *o,
				   const struct cache_layer *l)
{
	const struct cache_half *k = &l->half[0], *v = &l->half[1];
	const struct cache_half *first = &o->layer[0].half[0];

	/* without them any number of tokens takes no bytes */
	for (int i = 0; i < 2 - cache_is_alone(l); i++)
		if (!l->half[i].shape[CACHE_HEADS] || !l->half[i].shape[CACHE_DIM])
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: tensor %.100s has no heads or no elements",
					o->reader->leaf.path, l->half[i].tensor->name);
	if (!cache_is_alone(l) && (!kvt_tensors_types_fit(k->tensor, v->tensor) ||
	    !kvt_content_equal(&k->content, &v->content) ||
	    memcmp(k->shape, v->shape, CACHE_DIM * sizeof(*k->shape))))
		return kvt_tensors_unlike(k->tensor, v->tensor, true, KVT_UNSUPPORTED,
					  o->reader->leaf.path, o->err);
	if (k->shape[CACHE_BATCH] != first->shape[CACHE_BATCH])
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tensor %.100s has a batch of %lld and %.100s of %lld",
				o->reader->leaf.path, first->tensor->name,
				LL(first->shape[CACHE_BATCH]), k->tensor->name,
				LL(k->shape[CACHE_BATCH]));
	return KVT_OK;
}

/* Of one head, with its elements in a row. */
static enum kvt_status read_row(uint8_t *out, const struct cache_opening *o,
				const struct cache_half *h, int64_t row, int64_t token)
{
	return kvt_file_read(&o->reader->files.file[o->file], out,
			     h->shape[CACHE_DIM] * kvt_tensor_array(h->tensor, "").elem,
			     h->part[0].begin + row * h->part[0].stride[CACHE_BATCH] +
			     token * h->part[0].stride[CACHE_TOKENS], o->err);
}

/* Rows of one head that keys and values have in common, byte for byte. */
static enum kvt_status find_single(struct cache_layer *l, const struct cache_opening *o)
{
	const struct cache_half *k = &l->half[0], *v = &l->half[1];
	int64_t elem = kvt_tensor_array(k->tensor, "").elem;
	int64_t n = k->shape[CACHE_DIM] * elem;
	bool same = k->shape[CACHE_HEADS] == 1 && n <= 1 << 16 && k->nparts == 1 &&
		    v->nparts == 1 &&
		    k->shape[CACHE_DIM] == v->shape[CACHE_DIM] &&
		    k->part[0].stride[CACHE_DIM] == elem &&
		    v->part[0].stride[CACHE_DIM] == elem;
	uint8_t *bytes = same ? malloc(2 * (size_t)n) : NULL;
	enum kvt_status status = KVT_OK;

	if (same && !bytes)
		return kvt_no_memory(o->err, o->reader->leaf.path);
	for (int64_t b = 0; same && b < k->shape[CACHE_BATCH]; b++)
		for (int64_t t = 0; same && t < k->shape[CACHE_TOKENS]; t++) {
			status = read_row(bytes, o, k, b, t);
			if (status || (status = read_row(bytes + n, o, v, b, t)))
				break;
			same = !memcmp(bytes, bytes + n, (size_t)n);
		}
	free(bytes);
	if (!status && same)
		l->half[1].tensor = NULL;
	return status;
}

/* No model has as many heads as that would be. */
static enum kvt_status check_shape(const struct cache_opening *o,
				   const struct kvt_tensor *t)
{
	const char *axes = kvt_axes_of_shape(t);

	if (!axes || t->held.told || kvt_fact(o->hints, "axes") ||
	    !strcmp(axes, KVT_CACHE_AXES))
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: tensor %.100s looks like %lld tokens of %lld heads; give --set=axes=%s, or --set=axes=%s if it is %lld heads of %lld tokens",
			o->reader->leaf.path, t->name, LL(t->shape[1]), LL(t->shape[2]),
			axes, KVT_CACHE_AXES, LL(t->shape[1]), LL(t->shape[2]));
}

static enum kvt_status add_layer(struct cache_opening *o, const struct kvt_tensor *keys,
				 const struct kvt_tensor *values, int64_t number,
				 int64_t slice)
{
	struct cache_layer *l = &o->layer[o->nlayers];
	enum kvt_status status;

	/* one that a list has for order's sake; the model keeps nothing for it */
	if (cache_is_nothing(keys) && cache_is_nothing(values))
		return KVT_OK;
	if ((status = check_axes(o, keys, o->axes)) ||
	    (status = check_axes(o, values, o->axes)) ||
	    (status = check_shape(o, keys)))
		return status;
	*l = (struct cache_layer){ .name = keys->name, .number = number,
				   .held = keys->held };
	take_half(&l->half[0], o, keys, o->axes, slice, 0);
	take_half(&l->half[1], o, values, o->axes, slice, 1);
	for (int i = 0; !status && i < 2; i++)
		if (l->half[i].tensor->held.content[0])
			status = kvt_cache_pack(&l->half[i], o);
	if (status)
		return status;
	o->nlayers++;
	status = check_layer(o, l);
	return status || !l->held.single ? status : find_single(l, o);
}

/* ---- layers in one tensor ----------------------------------------------- */

/* The pair that the user names without numbers. */
static enum kvt_status find_told(const struct kvt_tensor **keys,
				 const struct kvt_tensor **values,
				 const struct cache_opening *o, const char *names)
{
	const char *comma = strchr(names, ',');
	char *name = strndup(names, comma ? (size_t)(comma - names) : strlen(names));

	if (!name)
		return kvt_no_memory(o->err, o->reader->leaf.path);
	*keys = kvt_tensors_find(&o->tensors, name);
	*values = comma ? kvt_tensors_find(&o->tensors, comma + 1) : *keys;
	free(name);
	if (*keys && *values)
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: no tensors are named %.100s, but %.100s",
			o->reader->leaf.path, names,
			o->tensors.count ? o->tensors.tensor[0].name : "none");
}

/* What holds all layers: a pair, or one tensor; *keys stays NULL if there is none. */
static enum kvt_status find_stack(const struct kvt_tensor **keys,
				  const struct kvt_tensor **values,
				  const struct cache_opening *o)
{
	const char *names = kvt_fact(o->hints, "names");
	const char *axes = kvt_fact(o->hints, "axes");
	const struct kvt_tensors *t = &o->tensors;

	if (names && !strstr(names, "{l}") && (axes || strchr(names, ',')))
		return find_told(keys, values, o, names);
	if (axes && strchr(axes, 'K') && strchr(axes, 'L') && !names && t->count == 1)
		*keys = *values = t->tensor;
	/* where an axis does not tell keys from values, two tensors do */
	if (axes && !strchr(axes, 'K') && !names && kvt_tensors_two(keys, values, t))
		return KVT_OK;
	for (int64_t i = 0; !names && !*keys && t->count == 2 && i < 2; i++)
		if ((*values = kvt_tensors_partner(t, t->tensor[i].name, NULL)) &&
		    ((axes && strchr(axes, 'L')) ||
		     !kvt_name_is_numbered(t->tensor[i].name) ||
		     (!axes && t->tensor[i].rank == CACHE_RANK + 1)))
			*keys = &t->tensor[i];
	return KVT_OK;
}

static enum kvt_status add_stack(struct cache_opening *o, const struct kvt_tensor *keys,
				 const struct kvt_tensor *values)
{
	const char *at = strchr(o->axes, 'L');
	enum kvt_status status;
	int64_t n;

	o->stacked = true;
	if ((status = check_axes(o, keys, o->axes)) ||
	    (status = check_axes(o, values, o->axes)))
		return status;
	n = at ? keys->shape[at - o->axes] : 1;
	/* layers without data take no bytes */
	if (!n || (at && n != values->shape[at - o->axes]) ||
	    n > o->reader->files.file[o->file].nbytes)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tensors %.100s and %.100s hold %lld and %lld layers",
				o->reader->leaf.path, keys->name, values->name, LL(n),
				LL(at ? values->shape[at - o->axes] : 1));
	if (!(o->layer = calloc((size_t)n, sizeof(*o->layer))))
		return kvt_no_memory(o->err, o->reader->leaf.path);
	for (int64_t l = 0; !status && l < n; l++)
		status = add_layer(o, keys, values, l, l);
	return status;
}

/* ---- a pair for each layer ---------------------------------------------- */

/* All but what has a name of its own; tensors are borrowed, and the caller frees it. */
static enum kvt_status list_pairs(struct kvt_tensors *out, const struct cache_opening *o)
{
	bool told = kvt_fact(o->hints, "names") != NULL;
	const char *after;

	*out = o->tensors;
	out->count = 0;
	out->by_name = NULL;
	out->tensor = calloc((size_t)o->tensors.count + 1, sizeof(*out->tensor));
	if (!out->tensor)
		return kvt_no_memory(o->err, o->reader->leaf.path);
	for (int64_t i = 0; i < o->tensors.count; i++) {
		enum kvt_role role = kvt_cache_role(&o->tensors.tensor[i], &after);

		/* the user may name any */
		if (role == KVT_ROLE_PAIR || role == KVT_ROLE_UNKNOWN ||
		    (told && (role == KVT_ROLE_KEYS || role == KVT_ROLE_VALUES)))
			out->tensor[out->count++] = o->tensors.tensor[i];
	}
	return kvt_tensors_index(out, o->reader->leaf.path, o->err);
}

/* Keys of an indexer: one head, also where that has no axis. */
static enum kvt_status add_index(struct cache_opening *o, const struct kvt_tensor *t,
				 int64_t number)
{
	const char *axes = t->rank == CACHE_RANK - 1 ? "BTD" : KVT_CACHE_AXES;
	struct cache_layer *l = &o->layer[o->nlayers];
	enum kvt_status status;

	if ((status = check_axes(o, t, axes)))
		return status;
	*l = (struct cache_layer){ .name = t->name, .number = number,
				   .part = t->held.part, .held = t->held };
	take_half(&l->half[0], o, t, axes, 0, 0);
	o->nlayers++;
	return check_layer(o, l);
}

static enum kvt_status add_indexes(struct cache_opening *o)
{
	enum kvt_status status = KVT_OK;
	const char *after;

	for (int64_t i = 0; !status && i < o->tensors.count; i++) {
		const struct kvt_tensor *t = &o->tensors.tensor[i];
		int64_t number;

		if (kvt_cache_role(t, &after) != KVT_ROLE_INDEX || cache_is_nothing(t))
			continue;
		/* of mlx the metadata told it */
		number = t->held.layer;
		if (!o->tensors.names && !kvt_layer_number(&number, t->name))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: cannot tell the layer of '%.100s'",
					o->reader->leaf.path, t->name);
		status = add_index(o, t, number);
	}
	return status;
}

/* ---- parts of layers ------------------------------------------------------ */

static int by_part(const void *one, const void *other)
{
	const struct kvt_held *a = &(*(const struct kvt_tensor *const *)one)->held;
	const struct kvt_held *b = &(*(const struct kvt_tensor *const *)other)->held;

	if (a->part != b->part)
		return a->part < b->part ? -1 : 1;
	if (a->layer != b->layer)
		return a->layer < b->layer ? -1 : 1;
	return (int)a->role - (int)b->role;
}

/* Values that an indexer has because its cache must have some: no elements, or zeros. */
static enum kvt_status find_hollow(bool *out, const struct cache_opening *o,
				   const struct kvt_tensor *t)
{
	enum kvt_status status = KVT_OK;
	uint8_t bytes[1 << 14];

	*out = t->held.part > 0 && t->rank == CACHE_RANK && t->shape[CACHE_HEADS] == 1;
	for (int64_t at = t->begin; *out && !status && at < t->end;) {
		int64_t n = t->end - at;

		if (n > (int64_t)sizeof(bytes))
			n = sizeof(bytes);
		status = kvt_file_read(&o->reader->files.file[o->file], bytes, n,
				       o->tensors.data + at, o->err);
		at += n;
		while (*out && n > 0)
			*out = !bytes[--n];
	}
	return status;
}

static enum kvt_status add_part(struct cache_opening *o, const struct kvt_tensor *keys,
				const struct kvt_tensor *values)
{
	enum kvt_status status;
	bool hollow;

	if (keys->held.role != KVT_ROLE_KEYS || !values ||
	    values->held.role != KVT_ROLE_VALUES ||
	    keys->held.part != values->held.part ||
	    keys->held.layer != values->held.layer)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: %.100s is not one of a pair of keys and values",
				o->reader->leaf.path, keys->name);
	if ((status = find_hollow(&hollow, o, values)))
		return status;
	if (hollow)
		return add_index(o, keys, keys->held.layer);
	if (!(status = add_layer(o, keys, values, keys->held.layer, 0)))
		o->layer[o->nlayers - 1].part = keys->held.part;
	return status;
}

static int in_order(const void *one, const void *other)
{
	const struct cache_layer *a = one, *b = other;
	int ids = strcmp(a->held.id ? a->held.id : "", b->held.id ? b->held.id : "");

	if (ids)
		return ids;
	if (cache_is_alone(a) != cache_is_alone(b))
		return cache_is_alone(a) ? 1 : -1;
	if (a->part != b->part)
		return a->part < b->part ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

/* A layer that is a list of caches; those of one place in it are alike. */
static enum kvt_status add_parts(struct cache_opening *o)
{
	const struct kvt_tensor **list;
	enum kvt_status status = KVT_OK;
	int64_t n = 0;

	if (!(list = calloc((size_t)o->tensors.count + 1, sizeof(const void *))))
		return kvt_no_memory(o->err, o->reader->leaf.path);
	for (int64_t i = 0; i < o->tensors.count; i++)
		if (o->tensors.tensor[i].held.role == KVT_ROLE_KEYS ||
		    o->tensors.tensor[i].held.role == KVT_ROLE_VALUES)
			list[n++] = &o->tensors.tensor[i];
	qsort(list, (size_t)n, sizeof(const void *), by_part);
	for (int64_t i = 0; !status && i < n; i += 2)
		status = add_part(o, list[i], i + 1 < n ? list[i + 1] : NULL);
	free(list);
	return status;
}

/* Layers that a file tells tensor by tensor, whatever these are called. */
static bool has_told(const struct cache_opening *o)
{
	int64_t i = 0;

	while (i < o->tensors.count && o->tensors.tensor[i].held.role != KVT_ROLE_KEYS &&
	       o->tensors.tensor[i].held.role != KVT_ROLE_INDEX)
		i++;
	return i < o->tensors.count && !kvt_fact(o->hints, "names");
}

/* Names that the file implies are those of keys and values that are one array each. */
static enum kvt_status take_quantised(struct cache_opening *o)
{
	enum kvt_status status = kvt_mlx_codes(&o->tensors, o->reader->leaf.path, o->err);

	if (status)
		return status;
	for (int64_t i = 0; i < o->tensors.count; i++) {
		const struct kvt_tensor *t = &o->tensors.tensor[i];

		if (strstr(t->held.class, "Quantized") && !t->held.content[0] &&
		    t->held.role != KVT_ROLE_SCALES)
			return kvt_fail(o->err, KVT_UNSUPPORTED,
					"%s: tensor %.100s is of a %.60s, whose numbers kvtool cannot decode",
					o->reader->leaf.path, t->name, t->held.class);
	}
	return KVT_OK;
}

/* Names must tell keys from values where the axes do not, and the other way. */
static enum kvt_status check_apart(const struct cache_opening *o, bool apart,
				   const struct kvt_layer *list)
{
	bool fused = strchr(o->axes, 'K');
	const struct kvt_tensor *first, *second;

	if (strchr(o->axes, 'L'))
		return kvt_fail(o->err, KVT_USAGE,
				"%s: axes is '%.20s', but %.100s is of one layer",
				o->reader->leaf.path, o->axes, list[0].name);
	if (apart && fused)
		return kvt_fail(o->err, KVT_USAGE,
				"%s: axes is '%.20s', but %.100s and its values are two tensors",
				o->reader->leaf.path, o->axes, list[0].name);
	if (!apart && !fused && kvt_tensors_two(&first, &second, &o->tensors))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: names %.100s and %.100s do not distinguish keys from values; give --set=axes=%s if one is keys and one values, --set=axes=K%s if each is both, or --set names=KEYS,VALUES",
				o->reader->leaf.path, first->name, second->name,
				first->rank > CACHE_RANK ? "L" KVT_CACHE_AXES :
				KVT_CACHE_AXES, KVT_CACHE_AXES);
	if (!apart && !fused)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: names such as %.100s do not distinguish keys from values; give --set names=KEYS,VALUES, with {l} for the layer, or --set axes=K%s if each is both",
				o->reader->leaf.path, list[0].name, KVT_CACHE_AXES);
	return KVT_OK;
}

static enum kvt_status add_list(struct cache_opening *o)
{
	const char *told = kvt_fact(o->hints, "names");
	const char *names = told ? told : o->tensors.names;
	struct kvt_layer *list = NULL;
	char *guessed = NULL;
	struct kvt_tensors pairs;
	enum kvt_status status;
	int64_t count = 0;
	bool apart = true;

	if (!told && (status = take_quantised(o)))
		return status;
	status = list_pairs(&pairs, o);
	if (!status && !names &&
	    !(status = kvt_names_guess(&guessed, &pairs, o->reader->leaf.path, "",
				       o->err)))
		names = guessed;
	for (int64_t i = 0; !status && i < pairs.count; i++)
		count += kvt_tensors_partner(&pairs, pairs.tensor[i].name, names) != NULL;
	/* what is left beside states may be nothing, or arrays of nothing */
	if (!status && (count || (!o->nstates && !has_told(o))))
		status = kvt_tensors_layers(&list, &count, &apart, &pairs, names,
					    o->reader->leaf.path, o->err);
	if (!status && list)
		status = check_apart(o, apart, list);
	if (!status && !(o->layer = calloc((size_t)o->tensors.count + 1,
					   sizeof(*o->layer))))
		status = kvt_no_memory(o->err, o->reader->leaf.path);
	for (int64_t i = 0; !status && i < count; i++) {
		const struct kvt_tensor *t = kvt_tensors_find(&o->tensors, list[i].name);

		status = add_layer(o, t, !apart ? t :
				   kvt_tensors_partner(&o->tensors, t->name, names),
				   list[i].number, 0);
	}
	free(guessed);
	free(list);
	free(pairs.tensor);
	free(pairs.by_name);
	if (!status)
		status = add_indexes(o);
	if (!status && has_told(o)) {
		status = add_parts(o);
		/* tensors come in any order, layers of a group in the model's */
		qsort(o->layer, (size_t)o->nlayers, sizeof(*o->layer), in_order);
	}
	if (!status && !o->nlayers && !o->nstates)
		status = kvt_fail(o->err, KVT_BAD_INPUT, "%s: a cache that holds nothing",
				  o->reader->leaf.path);
	return status;
}

enum kvt_status kvt_cache_layers(struct cache_opening *o)
{
	const struct kvt_tensor *keys = NULL, *values = NULL;
	enum kvt_status status;

	if (o->tensors.ncaches > 1 && !kvt_fact(o->hints, "names"))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: holds %d caches, the first one with %.100s; give --set names=KEYS,VALUES, with {l} for the layer",
				o->reader->leaf.path, o->tensors.ncaches,
				o->tensors.count ? o->tensors.tensor[0].name : "nothing");
	if (o->tensors.count == 1 && o->tensors.tensor[0].rank > CACHE_RANK &&
	    !strchr(o->axes, 'K'))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: has only tensor %.100s; expected separate tensors for keys and values, or their axes, such as --set=axes=%s",
				o->reader->leaf.path, o->tensors.tensor[0].name,
				o->tensors.tensor[0].rank > CACHE_RANK + 1 ? "LKBHTD" :
				"LKHTD");
	if ((status = kvt_cache_find_states(o)) ||
	    (status = find_stack(&keys, &values, o)))
		return status;
	if (keys && !kvt_fact(o->hints, "axes") && keys->rank == CACHE_RANK)
		return kvt_axes_ask(&o->tensors, keys, "L", "", NULL,
				    o->reader->leaf.path, o->err);
	if (keys && !kvt_fact(o->hints, "axes"))
		o->axes = "L" KVT_CACHE_AXES;
	if ((status = keys ? add_stack(o, keys, values) : add_list(o)))
		return status;
	o->nrows = o->nlayers ? o->layer[0].half[0].shape[CACHE_BATCH] :
				o->state[0].tensor->shape[0];
	/* rows without tokens take no bytes */
	if (o->nrows > o->reader->files.file[o->file].nbytes)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: a batch of %lld without data",
				o->reader->leaf.path, LL(o->nrows));
	return KVT_OK;
}
