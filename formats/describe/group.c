/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - what a manifest says of a group of layers: its layout, type and sizes, the
 * parts of its content, its tables
 *
 * formats/manifest/write.c draws the object.  Extents are -1 until something says them,
 * and what is said twice must be the same.  What follows from the rest (heads of a rank,
 * a kind, a page) is filled in at the end, by kvt_manifest_finish_group().
 */
#include "formats/describe/describe.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/print.h"

/* ---- blank groups, and extents ------------------------------------------ */

void kvt_manifest_blank_group(struct kvt_group *group, const char *id)
{
	*group = (struct kvt_group){
		.kind = KVT_NKINDS, .block_size = -1, .total_heads = -1,
		.head_start = -1, .replication = -1,
	};
	snprintf(group->id, sizeof(group->id), "%s", id);
	for (int a = 0; a < KVT_NAXES; a++)
		group->shape.n[a] = -1;
}

enum kvt_status kvt_manifest_add_group(struct kvt_group **out,
				       struct kvt_snapshot *snapshot, const char *id,
				       const char *name, struct kvt_error *err)
{
	if (snapshot->ngroups == KVT_MAX_GROUPS)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: more than %d groups", name, KVT_MAX_GROUPS);
	*out = &snapshot->group[snapshot->ngroups++];
	kvt_manifest_blank_group(*out, id);
	return KVT_OK;
}

enum kvt_status kvt_manifest_extent(struct kvt_group *group, enum kvt_axis axis,
				    int64_t n, const char *what, const char *name,
				    struct kvt_error *err)
{
	int64_t known = group->shape.n[axis];

	if (known >= 0 && known != n)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %s is %lld, but the %s extent is %lld", name, what,
				LL(n), kvt_axis_name(axis), LL(known));
	group->shape.n[axis] = n;
	return KVT_OK;
}

enum kvt_status kvt_manifest_take_extent(struct kvt_group *group, enum kvt_axis axis,
				   const struct kvt_json *in, const char *key)
{
	enum kvt_status status;
	int64_t n = -1;

	if ((status = kvt_json_int(&n, in, key, 0, KVT_MOST)) || n < 0)
		return status;
	return kvt_manifest_extent(group, axis, n, key, in->name, in->err);
}

/* ---- layout ------------------------------------------------------------- */

/* The same order, with layers or of one. */
static bool is_same_order(const struct kvt_layout *named, const struct kvt_layout *said)
{
	struct kvt_layout one = *named;

	if (kvt_layout_equal(named, said))
		return true;
	if (one.nplanes != 1 || one.plane[0].part[0].axis != KVT_AXIS_L)
		return false;
	one.plane[0].nparts--;
	memcpy(one.plane[0].part, named->plane[0].part + 1,
	       (size_t)one.plane[0].nparts * sizeof(one.plane[0].part[0]));
	return kvt_layout_equal(&one, said);
}

bool kvt_layout_latent(const struct kvt_layout *layout)
{
	const struct kvt_preset *preset;
	struct kvt_layout named;

	for (int i = 0; (preset = kvt_preset_at(i)); i++)
		if (preset->latent && !kvt_layout_parse(&named, preset->axes, NULL) &&
		    is_same_order(&named, layout))
			return true;
	return false;
}

static enum kvt_status parse_layout(struct kvt_layout *out, const char *text,
				    const struct kvt_json *in)
{
	struct kvt_error why;
	enum kvt_status status = kvt_layout_parse(out, text, &why);

	if (!status)
		return KVT_OK;
	/* the mistake is the file's, not the user's */
	return kvt_fail(in->err, status == KVT_USAGE ? KVT_BAD_INPUT : status,
			"%s: %s", in->name, why.text);
}

/* ["L", "B", "S", "C"] as an axis string. */
static enum kvt_status take_axes(struct kvt_layout *out, bool *found,
				 const struct kvt_json *in)
{
	const json_t *axes = NULL;
	enum kvt_status status;
	char text[160] = "";
	const char *axis;
	size_t used = 0;

	*found = false;
	if ((status = kvt_json_array(&axes, in, "file_axes")) || !axes)
		return status;
	for (size_t i = 0; i < json_array_size(axes); i++) {
		if ((status = kvt_json_string_at(&axis, in, "file_axes", axes, i)))
			return status;
		if (strlen(axis) + 2 > sizeof(text) - used)
			return kvt_fail(in->err, KVT_BAD_INPUT,
					"%s: file_axes has too many entries", in->name);
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
					 used ? " " : "", axis);
	}
	*found = true;
	return parse_layout(out, text, in);
}

static enum kvt_status take_layout(struct kvt_group *group, const struct kvt_json *in)
{
	struct kvt_layout axes;
	const char *text = NULL;
	enum kvt_status status;
	bool has_axes;

	if ((status = kvt_json_string(&text, in, "layout")) ||
	    (status = take_axes(&axes, &has_axes, in)))
		return status;
	if (!text) {
		if (has_axes)
			group->layout = axes;
		return KVT_OK;
	}
	if ((status = parse_layout(&group->layout, text, in)))
		return status;
	if (has_axes && !kvt_layout_equal(&axes, &group->layout))
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: layout is %s, but file_axes are %s", in->name,
				kvt_layout_string(&group->layout).s,
				kvt_layout_string(&axes).s);
	return KVT_OK;
}

/* ---- kind, element type, sizes ------------------------------------------ */

static enum kvt_status take_kind(struct kvt_group *group, const struct kvt_json *in)
{
	const char *kind = NULL;
	enum kvt_status status = kvt_json_string(&kind, in, "kind");

	if (status || !kind || kvt_kind_find(&group->kind, kind))
		return status;
	return kvt_fail(in->err, KVT_UNSUPPORTED, "%s: unknown kind '%.40s'",
			in->name, kind);
}

enum kvt_status kvt_manifest_take_dtype(struct kvt_group *group,
					const struct kvt_json *in)
{
	const char *dtype = NULL;
	enum kvt_status status = kvt_json_string(&dtype, in, "dtype");

	if (status || !dtype)
		return status;
	group->dtype = kvt_dtype_find(dtype);
	if (!group->dtype)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: dtype '%.40s' is not an element type", in->name, dtype);
	group->shape.elem = group->dtype->elem;
	return KVT_OK;
}

/* The content is a K and a V of head_dim elements, or opaque. */
static enum kvt_status take_content(struct kvt_group *group,
				    const struct kvt_json *sizes)
{
	int64_t head_dim = -1, content = -1;
	enum kvt_status status;

	if ((status = kvt_json_int(&head_dim, sizes, "head_dim", 0, KVT_MOST)) ||
	    (status = kvt_json_int(&content, sizes, "content", 0, KVT_MOST)))
		return status;
	if (head_dim >= 0 && content >= 0)
		return kvt_fail(sizes->err, KVT_BAD_INPUT,
				"%s: sizes give head_dim %lld and content %lld, expected one of them",
				sizes->name, LL(head_dim), LL(content));
	if (head_dim >= 0 || content >= 0) {
		group->shape.n[KVT_AXIS_K] = head_dim >= 0 ? 2 : 1;
		group->shape.n[KVT_AXIS_D] = head_dim >= 0 ? head_dim : content;
	}
	return KVT_OK;
}

static enum kvt_status take_sizes(struct kvt_group *group, const struct kvt_json *in)
{
	struct kvt_json sizes;
	enum kvt_status status;

	if ((status = kvt_json_object(&sizes, in, "sizes")) ||
	    (status = kvt_manifest_take_extent(group, KVT_AXIS_L, &sizes, "layers")) ||
	    (status = kvt_manifest_take_extent(group, KVT_AXIS_B, &sizes,
					       "num_blocks")) ||
	    (status = kvt_manifest_take_extent(group, KVT_AXIS_S, &sizes, "slots")) ||
	    (status = kvt_manifest_take_extent(group, KVT_AXIS_S, &sizes, "states")) ||
	    (status = kvt_manifest_take_extent(group, KVT_AXIS_H, &sizes,
					       "num_kv_heads")) ||
	    (status = kvt_manifest_take_extent(group, KVT_AXIS_H, in, "head_count")) ||
	    (status = kvt_json_int(&group->block_size, &sizes, "block_size", 0,
				   KVT_MOST)))
		return status;
	return take_content(group, &sizes);
}

/* By its name, or the one it had before; by both only if they agree. */
static enum kvt_status take_tokens_per_slot(struct kvt_group *group,
					    const struct kvt_json *in)
{
	static const char *const keys[] = { "tokens_per_slot", "tokens_per_state" };
	int64_t said = 0, n;

	for (int i = 0; i < 2; i++) {
		enum kvt_status status;

		if (!json_object_get(in->object, keys[i]))
			continue;
		n = 0;
		if ((status = kvt_json_int(&n, in, keys[i], -1, KVT_MOST)))
			return status;
		if (!n)
			return kvt_fail(in->err, KVT_BAD_INPUT,
					"%s: %s is 0, expected -1, 1 or more", in->name,
					keys[i]);
		if (said && said != n)
			return kvt_fail(in->err, KVT_BAD_INPUT,
					"%s: %s is %lld, but %s, its old name, is %lld",
					in->name, keys[0], LL(said), keys[1], LL(n));
		said = group->tokens_per_slot = n;
	}
	return KVT_OK;
}

static enum kvt_status take_numbers(struct kvt_group *group, const struct kvt_json *in)
{
	const struct {
		const char *key;
		int64_t *out, min;
	} rows[] = {
		{ "total_kv_heads",   &group->total_heads,       1 },
		{ "head_start",       &group->head_start,        0 },
		{ "replicas",         &group->replication,       1 },
		{ "page_bytes",       &group->page_bytes,        0 },
		{ "page_offset",      &group->page_offset,       0 },
		{ "window",           &group->window,            0 },
		{ "retained_tokens",  &group->retained,          0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		enum kvt_status status = kvt_json_int(rows[i].out, in, rows[i].key,
						      rows[i].min, KVT_MOST);

		if (status)
			return status;
	}
	return take_tokens_per_slot(group, in);
}

static enum kvt_status take_state_order(struct kvt_group *group,
					const struct kvt_json *in)
{
	const char *name = NULL;
	enum kvt_status status = kvt_json_string(&name, in, "state_order");

	if (status || !name)
		return status;
	group->state_order = kvt_state_order_find(name);
	if (group->state_order == KVT_STATE_ORDERS)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: state_order is '%.60s', expected vk, kv or either",
				in->name, name);
	return KVT_OK;
}

/*
 * state_shape: [channels, taps] of a conv state, [heads, head_dim, state] and the like
 * of an SSM state.  It says extents, as sizes do.
 */
static enum kvt_status take_state(struct kvt_group *group, const struct kvt_json *in)
{
	static const char key[] = "state_shape";
	bool conv = group->kind == KVT_MAMBA_CONV;
	int64_t n[KVT_STATE_AXES] = { 0 }, rest = 1;
	const json_t *list = NULL;
	enum kvt_status status = kvt_json_array(&list, in, key);
	size_t count = json_array_size(list);

	if (status || (status = take_state_order(group, in)) || !list)
		return status;
	if (!kvt_is_recurrent(group->kind) || count < 2 ||
	    count > (conv ? 2 : KVT_STATE_AXES))
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: state_shape has %zu extents, expected 2 of kind mamba_conv, or 2 to %d of mamba_ssm",
				in->name, count, KVT_STATE_AXES);
	for (size_t i = 0; i < count; i++) {
		if ((status = kvt_json_int_at(&n[i], in, key, list, i, 1, KVT_MOST)))
			return status;
		if (i && __builtin_mul_overflow(rest, n[i], &rest))
			return kvt_fail(in->err, KVT_BAD_INPUT,
					"%s: state_shape overflows", in->name);
	}
	if ((status = kvt_manifest_extent(group, conv ? KVT_AXIS_D : KVT_AXIS_H, n[0],
					  key, in->name, in->err)))
		return status;
	if (!conv)
		kvt_group_set_state(group, n + 1, (int)count - 1);
	return kvt_manifest_extent(group, conv ? KVT_AXIS_S : KVT_AXIS_D, rest, key,
				   in->name, in->err);
}

/* ---- components of the content ------------------------------------------ */

enum kvt_status kvt_manifest_add_component(struct kvt_group *group, const char *name,
				     int64_t start, int64_t length, int64_t global,
				     const struct kvt_json *in)
{
	struct kvt_component *c = &group->component[group->ncomponents];

	if (group->ncomponents == KVT_MAX_COMPONENTS)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: more than %d components of the content", in->name,
				KVT_MAX_COMPONENTS);
	if (!*name || strlen(name) >= sizeof(c->name))
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: component name '%.40s' has not 1 to %zu characters",
				in->name, name, sizeof(c->name) - 1);
	strcpy(c->name, name);
	c->start = start;
	c->length = length;
	c->global_start = global;
	group->ncomponents++;
	return KVT_OK;
}

/* ["k_pe", 16] follows the one before it; an object says where it starts. */
static enum kvt_status take_component(struct kvt_group *group, int64_t *end,
				      const json_t *entry, const struct kvt_json *in)
{
	struct kvt_json object = { entry, in->name, in->err };
	int64_t start = *end, length = -1, global = -1;
	const char *name = NULL;
	enum kvt_status status;

	if (json_is_array(entry) && json_array_size(entry) == 2) {
		if ((status = kvt_json_string_at(&name, in, "content", entry,
						 0)) ||
		    (status = kvt_json_int_at(&length, in, "content", entry, 1,
					      0, KVT_MOST)))
			return status;
	} else if (json_is_object(entry)) {
		if ((status = kvt_json_string(&name, &object, "name")) ||
		    (status = kvt_json_int(&start, &object, "start", 0,
					   KVT_MOST)) ||
		    (status = kvt_json_int(&length, &object, "length", 0,
					   KVT_MOST)) ||
		    (status = kvt_json_int(&global, &object, "global_start", 0,
					   KVT_MOST)))
			return status;
	}
	if (!name || length < 0 || start > KVT_MOST - length)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: content has an entry without a name and a length",
				in->name);
	*end = start + length;
	return kvt_manifest_add_component(group, name, start, length,
					  global < 0 ? start : global,
			     in);
}

static enum kvt_status take_components(struct kvt_group *group, const struct kvt_json *in)
{
	const json_t *list = NULL;
	enum kvt_status status = kvt_json_array(&list, in, "content");
	int64_t end = 0;

	for (size_t i = 0; !status && i < json_array_size(list); i++)
		status = take_component(group, &end, json_array_get(list, i), in);
	return status;
}

/* ---- tables ------------------------------------------------------------- */

/* A table as long as an axis, whose length therefore says the extent. */
static enum kvt_status take_table(void **out, struct kvt_group *group,
				  enum kvt_axis axis, const struct kvt_json *in,
				  const char *key, size_t elem)
{
	bool text = strstr(key, "_names") != NULL;
	const json_t *list = NULL;
	enum kvt_status status;
	size_t n;

	if ((status = kvt_json_array(&list, in, key)) || !list)
		return status;
	n = json_array_size(list);
	if ((status = kvt_manifest_extent(group, axis, (int64_t)n, key, in->name,
					  in->err)))
		return status;
	if (!(*out = calloc(n ? n : 1, elem)))
		return kvt_no_memory(in->err, in->name);
	for (size_t i = 0; !status && i < n; i++) {
		const char *s;
		int64_t v = 0;

		if (text) {
			status = kvt_json_string_at(&s, in, key, list, i);
			if (!status && !(((char **)*out)[i] = strdup(s)))
				status = kvt_no_memory(in->err, in->name);
		} else {
			status = kvt_json_int_at(&v, in, key, list, i, 0,
						 elem == 8 ? KVT_MOST : UINT32_MAX);
			if (elem == 8)
				((uint64_t *)*out)[i] = (uint64_t)v;
			else
				((uint32_t *)*out)[i] = (uint32_t)v;
		}
	}
	return status;
}

enum kvt_status kvt_manifest_take_tables(struct kvt_group *group,
					 const struct kvt_json *in)
{
	void *names = NULL, *layers = NULL, *ids = NULL, *valid = NULL, *stored = NULL;
	enum kvt_status status;

	(void)((status = take_table(&names, group, KVT_AXIS_L, in, "layer_names",
				    sizeof(char *))) ||
	       (status = take_table(&layers, group, KVT_AXIS_L, in, "layer_ids",
				    sizeof(uint32_t))) ||
	       (status = take_table(&ids, group, KVT_AXIS_B, in, "block_ids",
				    sizeof(uint64_t))) ||
	       (status = take_table(&valid, group, KVT_AXIS_B, in, "block_valid",
				    sizeof(uint32_t))) ||
	       (status = take_table(&stored, group, KVT_AXIS_B, in, "block_names",
				    sizeof(char *))));
	/* also on failure: the snapshot frees them */
	group->layer_names = names;
	group->layer_ids = layers;
	group->block_ids = ids;
	group->block_valid = valid;
	group->block_names = stored;
	return status;
}

/* ---- a group ------------------------------------------------------------ */

/* The name of something, in a field of 'room' bytes. */
static enum kvt_status take_name(char *out, size_t room, const struct kvt_json *in,
				 const char *key, const char *what)
{
	const char *name = NULL;
	enum kvt_status status = kvt_json_string(&name, in, key);

	if (status || !name)
		return status;
	if (!*name || strlen(name) >= room)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: %s '%.40s' has not 1 to %zu characters",
				in->name, what, name, room - 1);
	strcpy(out, name);
	return KVT_OK;
}

/* Those of a layer: [[keys], [values]], of as many heads as the first. */
static bool take_layer_scales(struct kvt_group *group, int64_t l, const json_t *layer)
{
	const size_t heads = json_array_size(json_array_get(layer, 0));

	if (l == 0) {
		group->scale_heads = (int64_t)heads;
		group->scales = heads > UINT16_MAX ? NULL :
				calloc((size_t)group->shape.n[KVT_AXIS_L] * 2 * heads + 1,
				       sizeof(*group->scales));
	}
	if (!group->scales || json_array_size(layer) != 2)
		return false;
	for (size_t k = 0; k < 2; k++) {
		const json_t *half = json_array_get(layer, k);

		if ((int64_t)json_array_size(half) != group->scale_heads || !heads)
			return false;
		for (size_t h = 0; h < heads; h++) {
			const json_t *x = json_array_get(half, h);

			if (!json_is_number(x))
				return false;
			group->scales[((size_t)l * 2 + k) * heads + h] =
				(float)json_number_value(x);
		}
	}
	return true;
}

/* "cast": { "from": TYPE, "scales": [[[...], [...]], ...] } */
static enum kvt_status take_cast(struct kvt_group *group, const struct kvt_json *in)
{
	const json_t *cast = json_object_get(in->object, "cast"), *list = NULL;
	struct kvt_json object = { cast, in->name, in->err };
	enum kvt_status status;

	if (!cast)
		return KVT_OK;
	if (!json_is_object(cast))
		return kvt_fail(in->err, KVT_BAD_INPUT, "%s: cast is not an object",
				in->name);
	if ((status = take_name(group->cast_from, sizeof(group->cast_from), &object,
				"from", "cast's from")) ||
	    (status = kvt_json_array(&list, &object, "scales")) ||
	    (list && (status = kvt_manifest_extent(group, KVT_AXIS_L,
						   (int64_t)json_array_size(list),
						   "scales", in->name, in->err))))
		return status;
	if (!group->cast_from[0])
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: cast does not say from what type", in->name);
	for (size_t l = 0; l < json_array_size(list); l++)
		if (!take_layer_scales(group, (int64_t)l, json_array_get(list, l)))
			return kvt_fail(in->err, KVT_BAD_INPUT,
					"%s: scales of layer %zu are not a list of numbers for keys and one for values, as long as those of the first",
					in->name, l);
	return KVT_OK;
}

enum kvt_status kvt_manifest_group(struct kvt_manifest *out, struct kvt_group *group,
				   const struct kvt_json *in)
{
	enum kvt_status status;

	if ((status = take_name(group->id, sizeof(group->id), in, "id", "group id")) ||
	    (status = take_name(group->pool, sizeof(group->pool), in, "pool", "pool")) ||
	    (status = take_kind(group, in)) ||
	    (status = kvt_manifest_take_dtype(group, in)) ||
	    (status = kvt_manifest_take_content_type(group, in)) ||
	    (status = take_layout(group, in)) ||
	    (status = take_sizes(group, in)) ||
	    (status = take_state(group, in)) ||
	    (status = take_numbers(group, in)) ||
	    (status = take_components(group, in)) ||
	    (status = kvt_manifest_take_tables(group, in)) ||
	    (status = take_cast(group, in)))
		return status;
	out->has_layout = group->layout.nplanes > 0;
	return KVT_OK;
}
