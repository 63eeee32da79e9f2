/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schema.c - what a snapshot says about itself in attributes
 *
 * hdf5.h draws the file.  Integers are rows of tables that reading and writing share:
 * an attribute is a row of group_fields or parallel_fields, and one that a reader must
 * not pass over a name in features.  What follows from others (num_heads, planes,
 * state_content_size, content_shape) is written for other programs, and must agree.
 */
#include "formats/file/snapshot_hash.h"
#include "formats/hdf5/hdf5.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "kvtool-kv-snapshot"
enum { MAJOR = 1, MINOR = 1 };
/*
 * A reader that ignores these takes wrong tokens: requests that begin after token 0,
 * null blocks of groups and windows that are not all that is kept, requests that lack
 * tokens.  Or it takes wrong numbers: elements that are to be multiplied.
 */
static const char *const features[] = { "first_token", "liveness", "holes", "scales" };
enum { FIRST_TOKEN, LIVENESS, HOLES, SCALES, NFEATURES };

/* ---- tables of integers ------------------------------------------------- */

struct field {
	const char *name;
	enum kvt_h5_int type;
	size_t at;			/* of an int64_t */
	bool required;
	int64_t absent;			/* value that need not be written */
};

#define GROUP(f) offsetof(struct kvt_group, f)
static const struct field group_fields[] = {
	{ "block_size",       KVT_H5_U64, GROUP(block_size),       true,  0 },
	{ "tokens_per_state", KVT_H5_I64, GROUP(tokens_per_slot), true,  0 },
	{ "total_num_heads",  KVT_H5_U64, GROUP(total_heads),      true,  0 },
	{ "head_start",       KVT_H5_U64, GROUP(head_start),       true,  0 },
	{ "replication",      KVT_H5_U32, GROUP(replication),      false, 1 },
	{ "page_size_bytes",  KVT_H5_U64, GROUP(page_bytes),       false, 0 },
	{ "page_offset",      KVT_H5_U64, GROUP(page_offset),      false, 0 },
	{ "window",           KVT_H5_I64, GROUP(window),           false, 0 },
	{ "retained_tokens",  KVT_H5_I64, GROUP(retained),         false, 0 },
};

#define RANK(f) offsetof(struct kvt_parallel, f)
static const struct field parallel_fields[] = {
	{ "tp_size",  KVT_H5_U32, RANK(tp_size),  true, 0 },
	{ "tp_rank",  KVT_H5_U32, RANK(tp_rank),  true, 0 },
	{ "pp_size",  KVT_H5_U32, RANK(pp_size),  true, 0 },
	{ "pp_rank",  KVT_H5_U32, RANK(pp_rank),  true, 0 },
	{ "dp_size",  KVT_H5_U32, RANK(dp_size),  true, 0 },
	{ "dp_rank",  KVT_H5_U32, RANK(dp_rank),  true, 0 },
	{ "dcp_size", KVT_H5_U32, RANK(dcp_size), true, 0 },
	{ "dcp_rank", KVT_H5_U32, RANK(dcp_rank), true, 0 },
};

enum {
	NGROUP = sizeof(group_fields) / sizeof(group_fields[0]),
	NPARALLEL = sizeof(parallel_fields) / sizeof(parallel_fields[0]),
};

static void read_fields(struct kvt_h5_in *in, hid_t object, const struct field *field,
			int n, void *out)
{
	for (int i = 0; i < n; i++) {
		int64_t value = field[i].absent;

		if (field[i].required || kvt_h5_has_attr(in, object, field[i].name))
			value = kvt_h5_get_int(in, object, field[i].name, field[i].type);
		memcpy((char *)out + field[i].at, &value, sizeof(value));
	}
}

static bool write_fields(hid_t object, const struct field *field, int n, const void *from)
{
	for (int i = 0; i < n; i++) {
		int64_t value;

		memcpy(&value, (const char *)from + field[i].at, sizeof(value));
		if (!field[i].required && value == field[i].absent)
			continue;
		if (!kvt_h5_put_int(object, field[i].name, field[i].type, value))
			return false;
	}
	return true;
}

/* A string that may be missing: NULL then. */
static char *read_optional(struct kvt_h5_in *in, hid_t object, const char *name)
{
	return object >= 0 && kvt_h5_has_attr(in, object, name) ?
	       kvt_h5_get_str(in, object, name) : NULL;
}

/* ---- the root ----------------------------------------------------------- */

static void check_format(struct kvt_h5_in *in)
{
	char *format;

	if (!kvt_h5_has_attr(in, in->file, "format"))
		kvt_h5_bad(in, -1,
			   "an HDF5 file, but not a kvtool snapshot: attribute format is missing");
	format = kvt_h5_get_str(in, in->file, "format");
	if (format && strcmp(format, SCHEMA))
		kvt_h5_bad(in, -1, "format is '%s', expected '%s'", format, SCHEMA);
	free(format);
}

static void check_version(struct kvt_h5_in *in)
{
	int n = kvt_h5_get_ints(in, in->file, "format_version", KVT_H5_U32, in->version,
				2);

	if (n != 2 || in->version[0] < 1)
		kvt_h5_bad(in, -1, "format_version is not a major and a minor number");
	/* A higher minor number only adds what may be ignored. */
	else if (in->version[0] > MAJOR)
		kvt_h5_refuse(in, -1, KVT_UNSUPPORTED,
			      "snapshot version %lld.%lld, this program reads up to %d.%d",
			      LL(in->version[0]), LL(in->version[1]), MAJOR, MINOR);
}

static bool is_known(const char *feature)
{
	for (int i = 0; i < NFEATURES; i++)
		if (!strcmp(feature, features[i]))
			return true;
	return false;
}

static void check_features(struct kvt_h5_in *in)
{
	enum { MOST = 32 };
	char *feature[MOST];
	int n = 0;

	if (kvt_h5_has_attr(in, in->file, "required_features"))
		n = kvt_h5_get_strs(in, in->file, "required_features", feature, MOST);
	for (int i = 0; i < n; i++) {
		if (!is_known(feature[i]))
			kvt_h5_refuse(in, -1, KVT_UNSUPPORTED,
				      "snapshot requires the feature '%s', which this program does not know",
				      feature[i]);
		free(feature[i]);
	}
}

static void check_complete(struct kvt_h5_in *in)
{
	if (!kvt_h5_has_attr(in, in->file, "complete") ||
	    kvt_h5_get_int(in, in->file, "complete", KVT_H5_U8) != 1)
		kvt_h5_bad(in, -1, "snapshot is not complete: its writer stopped early");
}

static void read_parallel(struct kvt_h5_in *in, struct kvt_snapshot *snapshot)
{
	hid_t object = kvt_h5_child(in, in->file, "parallel", H5I_GROUP);

	if (object < 0)
		return;
	read_fields(in, object, parallel_fields, NPARALLEL, &snapshot->parallel);
	snapshot->has_parallel = true;
	kvt_h5_drop(object);
}

/* Model and provenance: strings that say where the data is from. */
static void read_texts(struct kvt_h5_in *in, struct kvt_snapshot *snapshot)
{
	hid_t model = kvt_h5_child(in, in->file, "model", H5I_GROUP);
	hid_t from = kvt_h5_child(in, in->file, "provenance", H5I_GROUP);

	snapshot->model = read_optional(in, model, "name");
	snapshot->source_format = read_optional(in, from, "source_format");
	snapshot->note = read_optional(in, from, "note");
	kvt_h5_drop(from);
	kvt_h5_drop(model);
}

void kvt_h5_read_root(struct kvt_h5_in *in, struct kvt_snapshot *snapshot)
{
	check_format(in);
	check_version(in);
	check_features(in);
	check_complete(in);
	read_parallel(in, snapshot);
	read_texts(in, snapshot);
}

static bool write_texts(hid_t file, const struct kvt_snapshot *snapshot)
{
	bool ok = true;
	hid_t object;

	if (snapshot->model) {
		object = kvt_h5_new_group(file, "model");
		ok = object >= 0 && kvt_h5_put_str(object, "name", snapshot->model);
		kvt_h5_drop(object);
	}
	if (ok && (snapshot->source_format || snapshot->note)) {
		object = kvt_h5_new_group(file, "provenance");
		ok = object >= 0 &&
		     (!snapshot->source_format ||
		      kvt_h5_put_str(object, "source_format", snapshot->source_format)) &&
		     (!snapshot->note || kvt_h5_put_str(object, "note", snapshot->note));
		kvt_h5_drop(object);
	}
	return ok;
}

static bool write_features(hid_t file, const struct kvt_snapshot *snapshot)
{
	bool used[NFEATURES] = { [LIVENESS] = kvt_says_liveness(snapshot) };
	const char *list[NFEATURES];
	int n = 0;

	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		used[FIRST_TOKEN] |= snapshot->request[r].first_token != 0;
		used[HOLES] |= snapshot->request[r].nholes != 0;
	}
	for (int g = 0; g < snapshot->ngroups; g++)
		used[SCALES] |= snapshot->group[g].scales != NULL;
	for (int i = 0; i < NFEATURES; i++)
		if (used[i])
			list[n++] = features[i];
	return !n || kvt_h5_put_strs(file, "required_features", list, n);
}

void kvt_h5_version(int64_t version[2])
{
	version[0] = MAJOR;
	version[1] = MINOR;
}

bool kvt_h5_write_root(hid_t file, const struct kvt_snapshot *snapshot)
{
	static const int64_t version[2] = { MAJOR, MINOR };
	bool ok = kvt_h5_put_str(file, "format", SCHEMA) &&
		  kvt_h5_put_ints(file, "format_version", KVT_H5_U32, version, 2) &&
		  kvt_h5_put_str(file, "creator", "kvtool " KVT_VERSION) &&
		  write_features(file, snapshot) &&
		  write_texts(file, snapshot);

	if (ok && snapshot->has_parallel) {
		hid_t object = kvt_h5_new_group(file, "parallel");

		ok = object >= 0 && write_fields(object, parallel_fields,
						 NPARALLEL, &snapshot->parallel);
		kvt_h5_drop(object);
	}
	return ok;
}

/* ---- a group ------------------------------------------------------------ */

static void read_kind(struct kvt_h5_in *in, hid_t object, struct kvt_group *group)
{
	char *kind = kvt_h5_get_str(in, object, "kind");

	if (kind && !kvt_kind_find(&group->kind, kind))
		kvt_h5_refuse(in, object, KVT_UNSUPPORTED, "kind '%s' is not known",
			      kind);
	free(kind);
}

static void read_dtype(struct kvt_h5_in *in, hid_t object, struct kvt_group *group)
{
	char *dtype = kvt_h5_get_str(in, object, "dtype");

	if (dtype && !(group->dtype = kvt_dtype_find(dtype)))
		kvt_h5_refuse(in, object, KVT_UNSUPPORTED, "dtype '%s' is not known",
			      dtype);
	if (group->dtype)
		group->shape.elem = group->dtype->elem;
	free(dtype);
}

static void read_content_type(struct kvt_h5_in *in, hid_t object, struct kvt_group *group)
{
	char *name = read_optional(in, object, "content_type");
	struct kvt_error why;
	enum kvt_status found = name ? kvt_content_parse(&group->content, name, &why) :
				KVT_OK;

	if (found == KVT_USAGE)
		kvt_h5_refuse(in, object, KVT_UNSUPPORTED,
			      "content_type '%.60s' is not known", name);
	else if (found)
		kvt_h5_refuse(in, object, found, "%.400s", why.text);
	free(name);
}

/* A string that may be missing, in a field of 'room' bytes. */
static void read_name(struct kvt_h5_in *in, hid_t object, const char *name, char *out,
		      size_t room, const char *what)
{
	char *text = read_optional(in, object, name);

	if (text && strlen(text) >= room)
		kvt_h5_bad(in, object, "%s has more than %zu bytes", what, room - 1);
	else if (text)
		strcpy(out, text);
	free(text);
}

/* Of a conv state all of it is said elsewhere, of an SSM state the number of heads. */
static void read_state(struct kvt_h5_in *in, hid_t object, struct kvt_group *group)
{
	int64_t shape[KVT_STATE_AXES];
	int n = 0;

	if (kvt_h5_has_attr(in, object, "state_shape"))
		n = kvt_h5_get_ints(in, object, "state_shape", KVT_H5_U64, shape,
				    KVT_STATE_AXES);
	if (group->kind == KVT_MAMBA_SSM && n > 1)
		kvt_group_set_state(group, shape + 1, n - 1);
}

static void read_state_order(struct kvt_h5_in *in, hid_t object, struct kvt_group *group)
{
	char *name = read_optional(in, object, "state_order");

	if (name && (group->state_order = kvt_state_order_find(name)) == KVT_STATE_ORDERS)
		kvt_h5_bad(in, object,
			   "state_order is '%.60s', expected vk, kv or either", name);
	free(name);
}

void kvt_h5_read_group(struct kvt_h5_in *in, hid_t object, struct kvt_group *group)
{
	read_kind(in, object, group);
	read_dtype(in, object, group);
	read_content_type(in, object, group);
	read_state(in, object, group);
	read_state_order(in, object, group);
	read_name(in, object, "cast_from", group->cast_from, sizeof(group->cast_from),
		  "cast_from");
	read_fields(in, object, group_fields, NGROUP, group);
	/* its own null block, and with whom it shares its blocks */
	group->has_null = kvt_h5_has_attr(in, object, "null_block");
	if (group->has_null)
		group->null_block = kvt_h5_get_int(in, object, "null_block", KVT_H5_I64);
	read_name(in, object, "pool", group->pool, sizeof(group->pool),
		  "the name of its pool");
}

static int64_t slot_bytes(const struct kvt_group *group)
{
	return group->shape.n[KVT_AXIS_K] * group->shape.n[KVT_AXIS_D] *
	       group->shape.elem;
}

/* content_shape and content_axes: as many names as numbers. */
static void check_content(struct kvt_h5_in *in, hid_t object,
			  const struct kvt_group *group)
{
	enum { MOST = 8 };
	int64_t shape[MOST], nbytes = group->shape.elem;
	char *name[MOST];
	int n = kvt_h5_get_ints(in, object, "content_shape", KVT_H5_U64, shape, MOST);
	int names = kvt_h5_get_strs(in, object, "content_axes", name, MOST);

	for (int i = 0; i < names; i++)
		free(name[i]);
	for (int i = 0; i < n; i++)
		if (__builtin_mul_overflow(nbytes, shape[i], &nbytes))
			nbytes = -1;
	if (nbytes != slot_bytes(group) || n != names)
		kvt_h5_bad(in, object,
			   "content_shape and content_axes do not describe %lld bytes a slot and head",
			   LL(slot_bytes(group)));
}

/* What was read of it, and what the data has, is all of it. */
static void check_state(struct kvt_h5_in *in, hid_t object, const struct kvt_group *group)
{
	int64_t said[KVT_STATE_AXES], is[KVT_STATE_AXES];
	int n, known = kvt_group_state_shape(is, group);

	if (!kvt_h5_has_attr(in, object, "state_shape"))
		return;
	n = kvt_h5_get_ints(in, object, "state_shape", KVT_H5_U64, said, KVT_STATE_AXES);
	if (n != known || memcmp(said, is, (size_t)n * sizeof(*is)))
		kvt_h5_bad(in, object,
			   "state_shape is not the shape of a recurrent state of the data");
}

void kvt_h5_check_shape(struct kvt_h5_in *in, hid_t object, const struct kvt_group *group)
{
	const struct {
		const char *name;
		int64_t expected;
	} rows[] = {
		{ "num_heads", group->shape.n[KVT_AXIS_H] },
		{ "state_content_size", slot_bytes(group) },
	};

	for (int i = 0; i < 2; i++) {
		int64_t value = kvt_h5_get_int(in, object, rows[i].name, KVT_H5_U64);

		if (value != rows[i].expected)
			kvt_h5_bad(in, object, "%s is %lld, but the data has %lld",
				   rows[i].name, LL(value), LL(rows[i].expected));
	}
	check_content(in, object, group);
	check_state(in, object, group);
}

static bool write_content(hid_t object, const struct kvt_group *group)
{
	const char *only = group->content.type ? "byte" :
			   group->kind == KVT_MLA ? "latent" :
			   group->kind == KVT_MAMBA_CONV ? "channel" :
			   group->kind == KVT_OPAQUE ? "byte" : "dim";
	const char *kv[] = { "kv", only };
	int64_t shape[2] = { 2, group->shape.n[KVT_AXIS_D] };
	bool both = group->shape.n[KVT_AXIS_K] == 2;

	return kvt_h5_put_ints(object, "content_shape", KVT_H5_U64,
			       both ? shape : shape + 1, both ? 2 : 1) &&
	       kvt_h5_put_strs(object, "content_axes", both ? kv : &only, both ? 2 : 1);
}

static bool write_state(hid_t object, const struct kvt_group *group)
{
	int64_t shape[KVT_STATE_AXES];
	int n = kvt_group_state_shape(shape, group);

	return (!n || kvt_h5_put_ints(object, "state_shape", KVT_H5_U64, shape, n)) &&
	       (!group->state_order ||
		kvt_h5_put_str(object, "state_order",
			       kvt_state_order_name(group->state_order)));
}

bool kvt_h5_write_group(hid_t object, const struct kvt_group *group)
{
	static const char *const planes[] = { "data_k", "data_v" };
	struct kvt_text axes = kvt_layout_string(&group->layout);

	return kvt_h5_put_str(object, "kind", kvt_kind_name(group->kind)) &&
	       kvt_h5_put_str(object, "dtype", group->dtype->name) &&
	       (!group->content.type ||
		kvt_h5_put_str(object, "content_type",
			       kvt_content_name(&group->content).s)) &&
	       kvt_h5_put_str(object, "axes", axes.s) &&
	       write_fields(object, group_fields, NGROUP, group) &&
	       (!group->has_null || kvt_h5_put_int(object, "null_block", KVT_H5_I64,
						   group->null_block)) &&
	       (!group->pool[0] || kvt_h5_put_str(object, "pool", group->pool)) &&
	       (!group->cast_from[0] ||
		kvt_h5_put_str(object, "cast_from", group->cast_from)) &&
	       kvt_h5_put_int(object, "num_heads", KVT_H5_U64,
			      group->shape.n[KVT_AXIS_H]) &&
	       kvt_h5_put_int(object, "state_content_size", KVT_H5_U64,
			      slot_bytes(group)) &&
	       write_content(object, group) && write_state(object, group) &&
	       (group->layout.nplanes == 1 ||
		kvt_h5_put_strs(object, "planes", planes, 2));
}
