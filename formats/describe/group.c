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

static void take_extent(struct kvt_group *group, enum kvt_axis axis, int64_t n,
			const char *what, const struct kvt_json *in)
{
	if (!*in->status)
		*in->status = kvt_manifest_extent(group, axis, n, what, in->name,
						  in->err);
}

void kvt_manifest_take_extent(struct kvt_group *group, enum kvt_axis axis,
			      const struct kvt_json *in, const char *key)
{
	int64_t n = -1;

	kvt_json_int(&n, in, key, 0, KVT_MOST);
	if (n >= 0)
		take_extent(group, axis, n, key, in);
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

static void parse_layout(struct kvt_layout *out, const char *text,
			 const struct kvt_json *in)
{
	struct kvt_error why;
	enum kvt_status status = kvt_layout_parse(out, text, &why);

	/* the mistake is the file's, not the user's */
	if (status)
		kvt_json_refuse(in, status == KVT_USAGE ? KVT_BAD_INPUT : status, "%s",
				why.text);
}

/* ["L", "B", "S", "C"] as an axis string; false: there are none. */
static bool take_axes(struct kvt_layout *out, const struct kvt_json *in)
{
	const json_t *axes = NULL;
	char text[160] = "";
	size_t used = 0;

	kvt_json_array(&axes, in, "file_axes");
	for (size_t i = 0; i < json_array_size(axes); i++) {
		const char *axis = "";

		kvt_json_string_at(&axis, in, "file_axes", axes, i);
		if (strlen(axis) + 2 > sizeof(text) - used)
			kvt_json_bad(in, "file_axes has too many entries");
		else
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
						 used ? " " : "", axis);
	}
	if (axes && !*in->status)
		parse_layout(out, text, in);
	return axes && !*in->status;
}

static void take_layout(struct kvt_group *group, const struct kvt_json *in)
{
	struct kvt_layout axes;
	const char *text = NULL;
	bool has_axes;

	kvt_json_string(&text, in, "layout");
	has_axes = take_axes(&axes, in);
	if (text)
		parse_layout(&group->layout, text, in);
	else if (has_axes)
		group->layout = axes;
	if (text && has_axes && !kvt_layout_equal(&axes, &group->layout))
		kvt_json_bad(in, "layout is %s, but file_axes are %s",
			     kvt_layout_string(&group->layout).s,
			     kvt_layout_string(&axes).s);
}

/* ---- kind, element type, sizes ------------------------------------------ */

static void take_kind(struct kvt_group *group, const struct kvt_json *in)
{
	const char *kind = NULL;

	kvt_json_string(&kind, in, "kind");
	if (kind && !kvt_kind_find(&group->kind, kind))
		kvt_json_refuse(in, KVT_UNSUPPORTED, "unknown kind '%.40s'", kind);
}

void kvt_manifest_take_dtype(struct kvt_group *group, const struct kvt_json *in)
{
	const char *dtype = NULL;

	kvt_json_string(&dtype, in, "dtype");
	if (dtype && !(group->dtype = kvt_dtype_find(dtype)))
		kvt_json_bad(in, "dtype '%.40s' is not an element type", dtype);
	else if (dtype)
		group->shape.elem = group->dtype->elem;
}

/* The content is a K and a V of head_dim elements, or opaque. */
static void take_content(struct kvt_group *group, const struct kvt_json *sizes)
{
	int64_t head_dim = -1, content = -1;

	kvt_json_int(&head_dim, sizes, "head_dim", 0, KVT_MOST);
	kvt_json_int(&content, sizes, "content", 0, KVT_MOST);
	if (head_dim >= 0 && content >= 0)
		kvt_json_bad(sizes,
			     "sizes give head_dim %lld and content %lld, expected one of them",
			     LL(head_dim), LL(content));
	if (head_dim >= 0 || content >= 0) {
		group->shape.n[KVT_AXIS_K] = head_dim >= 0 ? 2 : 1;
		group->shape.n[KVT_AXIS_D] = head_dim >= 0 ? head_dim : content;
	}
}

static void take_sizes(struct kvt_group *group, const struct kvt_json *in)
{
	struct kvt_json sizes;

	kvt_json_object(&sizes, in, "sizes");
	kvt_manifest_take_extent(group, KVT_AXIS_L, &sizes, "layers");
	kvt_manifest_take_extent(group, KVT_AXIS_B, &sizes, "num_blocks");
	kvt_manifest_take_extent(group, KVT_AXIS_S, &sizes, "slots");
	kvt_manifest_take_extent(group, KVT_AXIS_S, &sizes, "states");
	kvt_manifest_take_extent(group, KVT_AXIS_H, &sizes, "num_kv_heads");
	kvt_manifest_take_extent(group, KVT_AXIS_H, in, "head_count");
	kvt_json_int(&group->block_size, &sizes, "block_size", 0, KVT_MOST);
	take_content(group, &sizes);
}

/* By its name, or the one it had before; by both only if they agree. */
static void take_tokens_per_slot(struct kvt_group *group, const struct kvt_json *in)
{
	static const char *const keys[] = { "tokens_per_slot", "tokens_per_state" };
	int64_t said = 0;

	for (int i = 0; i < 2; i++) {
		int64_t n = 0;

		if (!json_object_get(in->object, keys[i]))
			continue;
		kvt_json_int(&n, in, keys[i], -1, KVT_MOST);
		if (!n)
			kvt_json_bad(in, "%s is 0, expected -1, 1 or more", keys[i]);
		if (said && said != n)
			kvt_json_bad(in, "%s is %lld, but %s, its old name, is %lld",
				     keys[0], LL(said), keys[1], LL(n));
		said = group->tokens_per_slot = n;
	}
}

static void take_numbers(struct kvt_group *group, const struct kvt_json *in)
{
	kvt_json_int(&group->total_heads, in, "total_kv_heads", 1, KVT_MOST);
	kvt_json_int(&group->head_start, in, "head_start", 0, KVT_MOST);
	kvt_json_int(&group->replication, in, "replicas", 1, KVT_MOST);
	kvt_json_int(&group->page_bytes, in, "page_bytes", 0, KVT_MOST);
	kvt_json_int(&group->page_offset, in, "page_offset", 0, KVT_MOST);
	kvt_json_int(&group->window, in, "window", 0, KVT_MOST);
	kvt_json_int(&group->retained, in, "retained_tokens", 0, KVT_MOST);
	take_tokens_per_slot(group, in);
}

static void take_state_order(struct kvt_group *group, const struct kvt_json *in)
{
	const char *name = NULL;

	kvt_json_string(&name, in, "state_order");
	if (name && (group->state_order = kvt_state_order_find(name)) == KVT_STATE_ORDERS)
		kvt_json_bad(in, "state_order is '%.60s', expected vk, kv or either",
			     name);
}

/*
 * state_shape: [channels, taps] of a conv state, [heads, head_dim, state] and the like
 * of an SSM state.  It says extents, as sizes do.
 */
static void take_state(struct kvt_group *group, const struct kvt_json *in)
{
	static const char key[] = "state_shape";
	bool conv = group->kind == KVT_MAMBA_CONV;
	int64_t n[KVT_STATE_AXES] = { 0 }, rest = 1;
	const json_t *list = NULL;
	size_t count;

	kvt_json_array(&list, in, key);
	take_state_order(group, in);
	if (!list || *in->status)
		return;
	count = json_array_size(list);
	if (!kvt_is_recurrent(group->kind) || count < 2 ||
	    count > (conv ? 2 : KVT_STATE_AXES)) {
		kvt_json_bad(in,
			     "state_shape has %zu extents, expected 2 of kind mamba_conv, or 2 to %d of mamba_ssm",
			     count, KVT_STATE_AXES);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		kvt_json_int_at(&n[i], in, key, list, i, 1, KVT_MOST);
		if (i && __builtin_mul_overflow(rest, n[i], &rest))
			kvt_json_bad(in, "state_shape overflows");
	}
	take_extent(group, conv ? KVT_AXIS_D : KVT_AXIS_H, n[0], key, in);
	if (!conv && !*in->status)
		kvt_group_set_state(group, n + 1, (int)count - 1);
	take_extent(group, conv ? KVT_AXIS_S : KVT_AXIS_D, rest, key, in);
}

/* ---- components of the content ------------------------------------------ */

void kvt_manifest_add_component(struct kvt_group *group, const char *name, int64_t start,
				int64_t length, int64_t global, const struct kvt_json *in)
{
	struct kvt_component *c = &group->component[group->ncomponents];

	if (group->ncomponents == KVT_MAX_COMPONENTS)
		kvt_json_bad(in, "more than %d components of the content",
			     KVT_MAX_COMPONENTS);
	else if (!*name || strlen(name) >= sizeof(c->name))
		kvt_json_bad(in, "component name '%.40s' has not 1 to %zu characters",
			     name, sizeof(c->name) - 1);
	if (*in->status)
		return;
	strcpy(c->name, name);
	c->start = start;
	c->length = length;
	c->global_start = global;
	group->ncomponents++;
}

/* ["k_pe", 16] follows the one before it; an object says where it starts. */
static void take_component(struct kvt_group *group, int64_t *end, const json_t *entry,
			   const struct kvt_json *in)
{
	const struct kvt_json object = kvt_json_of(in, entry);
	int64_t start = *end, length = -1, global = -1;
	const char *name = NULL;

	if (json_is_array(entry) && json_array_size(entry) == 2) {
		kvt_json_string_at(&name, in, "content", entry, 0);
		kvt_json_int_at(&length, in, "content", entry, 1, 0, KVT_MOST);
	} else if (json_is_object(entry)) {
		kvt_json_string(&name, &object, "name");
		kvt_json_int(&start, &object, "start", 0, KVT_MOST);
		kvt_json_int(&length, &object, "length", 0, KVT_MOST);
		kvt_json_int(&global, &object, "global_start", 0, KVT_MOST);
	}
	if (!name || length < 0 || start > KVT_MOST - length) {
		kvt_json_bad(in, "content has an entry without a name and a length");
		return;
	}
	*end = start + length;
	kvt_manifest_add_component(group, name, start, length,
				   global < 0 ? start : global, in);
}

static void take_components(struct kvt_group *group, const struct kvt_json *in)
{
	const json_t *list = NULL;
	int64_t end = 0;

	kvt_json_array(&list, in, "content");
	for (size_t i = 0; !*in->status && i < json_array_size(list); i++)
		take_component(group, &end, json_array_get(list, i), in);
}

/* ---- tables ------------------------------------------------------------- */

/* A table as long as an axis, whose length therefore says the extent; NULL: none. */
static void *take_table(struct kvt_group *group, enum kvt_axis axis,
			const struct kvt_json *in, const char *key, size_t elem)
{
	bool text = strstr(key, "_names") != NULL;
	const json_t *list = NULL;
	void *out;
	size_t n;

	kvt_json_array(&list, in, key);
	if (!list)
		return NULL;
	n = json_array_size(list);
	take_extent(group, axis, (int64_t)n, key, in);
	if (*in->status)
		return NULL;
	if (!(out = calloc(n ? n : 1, elem)))
		kvt_json_no_memory(in);
	for (size_t i = 0; !*in->status && i < n; i++) {
		const char *s;
		int64_t v = 0;

		if (text) {
			if (!kvt_json_string_at(&s, in, key, list, i) &&
			    !(((char **)out)[i] = strdup(s)))
				kvt_json_no_memory(in);
			continue;
		}
		kvt_json_int_at(&v, in, key, list, i, 0,
				elem == 8 ? KVT_MOST : UINT32_MAX);
		if (elem == 8)
			((uint64_t *)out)[i] = (uint64_t)v;
		else
			((uint32_t *)out)[i] = (uint32_t)v;
	}
	/* also on failure: the snapshot frees it */
	return out;
}

void kvt_manifest_take_tables(struct kvt_group *group, const struct kvt_json *in)
{
	group->layer_names = take_table(group, KVT_AXIS_L, in, "layer_names",
					sizeof(char *));
	group->layer_ids = take_table(group, KVT_AXIS_L, in, "layer_ids",
				      sizeof(uint32_t));
	group->block_ids = take_table(group, KVT_AXIS_B, in, "block_ids",
				      sizeof(uint64_t));
	group->block_valid = take_table(group, KVT_AXIS_B, in, "block_valid",
					sizeof(uint32_t));
	group->block_names = take_table(group, KVT_AXIS_B, in, "block_names",
					sizeof(char *));
}

/* ---- a group ------------------------------------------------------------ */

/* The name of something, in a field of 'room' bytes. */
static void take_name(char *out, size_t room, const struct kvt_json *in, const char *key,
		      const char *what)
{
	const char *name = NULL;

	kvt_json_string(&name, in, key);
	if (name && (!*name || strlen(name) >= room))
		kvt_json_bad(in, "%s '%.40s' has not 1 to %zu characters", what, name,
			     room - 1);
	else if (name)
		strcpy(out, name);
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
static void take_cast(struct kvt_group *group, const struct kvt_json *in)
{
	const json_t *cast = json_object_get(in->object, "cast"), *list = NULL;
	const struct kvt_json object = kvt_json_of(in, cast);

	if (!cast)
		return;
	if (!json_is_object(cast))
		kvt_json_bad(in, "cast is not an object");
	take_name(group->cast_from, sizeof(group->cast_from), &object, "from",
		  "cast's from");
	kvt_json_array(&list, &object, "scales");
	if (list)
		take_extent(group, KVT_AXIS_L, (int64_t)json_array_size(list), "scales",
			    in);
	if (!group->cast_from[0])
		kvt_json_bad(in, "cast does not say from what type");
	for (size_t l = 0; !*in->status && l < json_array_size(list); l++)
		if (!take_layer_scales(group, (int64_t)l, json_array_get(list, l)))
			kvt_json_bad(in,
				     "scales of layer %zu are not a list of numbers for keys and one for values, as long as those of the first",
				     l);
}

void kvt_manifest_group(struct kvt_manifest *out, struct kvt_group *group,
			const struct kvt_json *in)
{
	take_name(group->id, sizeof(group->id), in, "id", "group id");
	take_name(group->pool, sizeof(group->pool), in, "pool", "pool");
	take_kind(group, in);
	kvt_manifest_take_dtype(group, in);
	kvt_manifest_take_content_type(group, in);
	take_layout(group, in);
	take_sizes(group, in);
	take_state(group, in);
	take_numbers(group, in);
	take_components(group, in);
	kvt_manifest_take_tables(group, in);
	take_cast(group, in);
	out->has_layout = group->layout.nplanes > 0;
}
