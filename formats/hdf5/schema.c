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

static enum kvt_status read_fields(struct kvt_h5_in *in, hid_t object,
				   const struct field *field, int n, void *out,
				   struct kvt_error *err)
{
	for (int i = 0; i < n; i++) {
		int64_t value = field[i].absent;
		enum kvt_status status = KVT_OK;

		if (field[i].required || kvt_h5_has_attr(in, object, field[i].name))
			status = kvt_h5_get_int(in, object, field[i].name,
						field[i].type, &value, err);
		if (status)
			return status;
		memcpy((char *)out + field[i].at, &value, sizeof(value));
	}
	return KVT_OK;
}

static bool write_fields(hid_t object, const struct field *field, int n,
			 const void *from)
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
static enum kvt_status read_optional(struct kvt_h5_in *in, hid_t object,
				     const char *name, char **out,
				     struct kvt_error *err)
{
	if (object < 0 || !kvt_h5_has_attr(in, object, name))
		return KVT_OK;
	return kvt_h5_get_str(in, object, name, out, err);
}

/* ---- the root ----------------------------------------------------------- */

static enum kvt_status check_format(struct kvt_h5_in *in, struct kvt_error *err)
{
	enum kvt_status status;
	char *format = NULL;

	if (!kvt_h5_has_attr(in, in->file, "format"))
		return kvt_h5_bad(in, -1, err,
				  "an HDF5 file, but not a kvtool snapshot: attribute format is missing");
	if ((status = kvt_h5_get_str(in, in->file, "format", &format, err)))
		return status;
	if (strcmp(format, SCHEMA))
		status = kvt_h5_bad(in, -1, err, "format is '%s', expected '%s'",
				    format, SCHEMA);
	free(format);
	return status;
}

static enum kvt_status check_version(struct kvt_h5_in *in, struct kvt_error *err)
{
	int64_t version[2];
	enum kvt_status status;
	int n = 0;

	status = kvt_h5_get_ints(in, in->file, "format_version", KVT_H5_U32,
				 version, 2, &n, err);
	if (status)
		return status;
	if (n != 2 || version[0] < 1)
		return kvt_h5_bad(in, -1, err,
				  "format_version is not a major and a minor number");
	/* A higher minor number only adds what may be ignored. */
	if (version[0] > MAJOR)
		return kvt_h5_refuse(in, -1, KVT_UNSUPPORTED, err,
				     "snapshot version %lld.%lld, this program reads up to %d.%d",
				     (long long)version[0],
				     (long long)version[1], MAJOR, MINOR);
	in->version[0] = version[0];
	in->version[1] = version[1];
	return KVT_OK;
}

static bool is_known(const char *feature)
{
	for (int i = 0; i < NFEATURES; i++)
		if (!strcmp(feature, features[i]))
			return true;
	return false;
}

static enum kvt_status check_features(struct kvt_h5_in *in, struct kvt_error *err)
{
	enum { MOST = 32 };
	char *feature[MOST];
	enum kvt_status status;
	int n = 0;

	if (!kvt_h5_has_attr(in, in->file, "required_features"))
		return KVT_OK;
	status = kvt_h5_get_strs(in, in->file, "required_features", feature,
				 MOST, &n, err);
	if (status)
		return status;
	for (int i = 0; i < n; i++) {
		if (!status && !is_known(feature[i]))
			status = kvt_h5_refuse(in, -1, KVT_UNSUPPORTED, err,
					       "snapshot requires the feature '%s', which this program does not know",
					       feature[i]);
		free(feature[i]);
	}
	return status;
}

static enum kvt_status check_complete(struct kvt_h5_in *in, struct kvt_error *err)
{
	int64_t complete = 0;
	enum kvt_status status = KVT_OK;

	if (kvt_h5_has_attr(in, in->file, "complete"))
		status = kvt_h5_get_int(in, in->file, "complete", KVT_H5_U8,
					&complete, err);
	if (!status && complete != 1)
		status = kvt_h5_bad(in, -1, err,
				    "snapshot is not complete: its writer stopped early");
	return status;
}

static enum kvt_status read_parallel(struct kvt_h5_in *in,
				     struct kvt_snapshot *snapshot,
				     struct kvt_error *err)
{
	enum kvt_status status;
	hid_t object;

	status = kvt_h5_child(in, in->file, "parallel", H5I_GROUP, &object, err);
	if (status || object < 0)
		return status;
	status = read_fields(in, object, parallel_fields, NPARALLEL,
			     &snapshot->parallel, err);
	snapshot->has_parallel = !status;
	kvt_h5_drop(object);
	return status;
}

/* Model and provenance: strings that say where the data is from. */
static enum kvt_status read_texts(struct kvt_h5_in *in,
				  struct kvt_snapshot *snapshot,
				  struct kvt_error *err)
{
	hid_t model, from = -1;
	enum kvt_status status;

	status = kvt_h5_child(in, in->file, "model", H5I_GROUP, &model, err);
	if (!status)
		status = kvt_h5_child(in, in->file, "provenance", H5I_GROUP,
				      &from, err);
	if (!status)
		status = read_optional(in, model, "name", &snapshot->model, err);
	if (!status)
		status = read_optional(in, from, "source_format",
				       &snapshot->source_format, err);
	if (!status)
		status = read_optional(in, from, "note", &snapshot->note, err);
	kvt_h5_drop(from);
	kvt_h5_drop(model);
	return status;
}

enum kvt_status kvt_h5_read_root(struct kvt_h5_in *in,
				 struct kvt_snapshot *snapshot,
				 struct kvt_error *err)
{
	enum kvt_status status;

	if ((status = check_format(in, err)) ||
	    (status = check_version(in, err)) ||
	    (status = check_features(in, err)) ||
	    (status = check_complete(in, err)) ||
	    (status = read_parallel(in, snapshot, err)))
		return status;
	return read_texts(in, snapshot, err);
}

static bool write_texts(hid_t file, const struct kvt_snapshot *snapshot)
{
	bool ok = true;
	hid_t object;

	if (snapshot->model) {
		object = kvt_h5_new_group(file, "model");
		ok = object >= 0 &&
		     kvt_h5_put_str(object, "name", snapshot->model);
		kvt_h5_drop(object);
	}
	if (ok && (snapshot->source_format || snapshot->note)) {
		object = kvt_h5_new_group(file, "provenance");
		ok = object >= 0 &&
		     (!snapshot->source_format ||
		      kvt_h5_put_str(object, "source_format",
				     snapshot->source_format)) &&
		     (!snapshot->note ||
		      kvt_h5_put_str(object, "note", snapshot->note));
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

static enum kvt_status read_kind(struct kvt_h5_in *in, hid_t object,
				 struct kvt_group *group, struct kvt_error *err)
{
	enum kvt_status status;
	char *kind = NULL;

	if ((status = kvt_h5_get_str(in, object, "kind", &kind, err)))
		return status;
	if (!kvt_kind_find(&group->kind, kind))
		status = kvt_h5_refuse(in, object, KVT_UNSUPPORTED, err,
				       "kind '%s' is not known", kind);
	free(kind);
	return status;
}

static enum kvt_status read_dtype(struct kvt_h5_in *in, hid_t object,
				  struct kvt_group *group, struct kvt_error *err)
{
	enum kvt_status status;
	char *dtype = NULL;

	if ((status = kvt_h5_get_str(in, object, "dtype", &dtype, err)))
		return status;
	group->dtype = kvt_dtype_find(dtype);
	if (!group->dtype)
		status = kvt_h5_refuse(in, object, KVT_UNSUPPORTED, err,
				       "dtype '%s' is not known", dtype);
	else
		group->shape.elem = group->dtype->elem;
	free(dtype);
	return status;
}

static enum kvt_status read_content_type(struct kvt_h5_in *in, hid_t object,
					 struct kvt_group *group, struct kvt_error *err)
{
	char *name = NULL;
	struct kvt_error why;
	enum kvt_status status = read_optional(in, object, "content_type", &name, err);
	enum kvt_status found = status || !name ? KVT_OK :
				kvt_content_parse(&group->content, name, &why);

	if (found == KVT_USAGE)
		status = kvt_h5_refuse(in, object, KVT_UNSUPPORTED, err,
				       "content_type '%.60s' is not known", name);
	else if (found)
		status = kvt_h5_refuse(in, object, found, err, "%.400s", why.text);
	free(name);
	return status;
}

static enum kvt_status read_cast(struct kvt_h5_in *in, hid_t object,
				 struct kvt_group *group, struct kvt_error *err)
{
	char *name = NULL;
	enum kvt_status status = read_optional(in, object, "cast_from", &name, err);

	if (!status && name && strlen(name) >= sizeof(group->cast_from))
		status = kvt_h5_bad(in, object, err,
				    "cast_from has more than %zu bytes",
				    sizeof(group->cast_from) - 1);
	if (!status && name)
		strcpy(group->cast_from, name);
	free(name);
	return status;
}

/* Its own null block, and with whom it shares its blocks. */
static enum kvt_status read_pool(struct kvt_h5_in *in, hid_t object,
				 struct kvt_group *group, struct kvt_error *err)
{
	char *name = NULL;
	enum kvt_status status = KVT_OK;

	group->has_null = kvt_h5_has_attr(in, object, "null_block");
	if (group->has_null)
		status = kvt_h5_get_int(in, object, "null_block", KVT_H5_I64,
					&group->null_block, err);
	if (!status)
		status = read_optional(in, object, "pool", &name, err);
	if (!status && name && strlen(name) >= sizeof(group->pool))
		status = kvt_h5_bad(in, object, err,
				    "the name of its pool has more than %zu bytes",
				    sizeof(group->pool) - 1);
	if (!status && name)
		strcpy(group->pool, name);
	free(name);
	return status;
}

/* Of a conv state all of it is said elsewhere, of an SSM state the number of heads. */
static enum kvt_status read_state(struct kvt_h5_in *in, hid_t object,
				  struct kvt_group *group, struct kvt_error *err)
{
	int64_t shape[KVT_STATE_AXES];
	enum kvt_status status;
	int n = 0;

	if (!kvt_h5_has_attr(in, object, "state_shape"))
		return KVT_OK;
	status = kvt_h5_get_ints(in, object, "state_shape", KVT_H5_U64, shape,
				 KVT_STATE_AXES, &n, err);
	if (!status && group->kind == KVT_MAMBA_SSM && n > 1)
		kvt_group_set_state(group, shape + 1, n - 1);
	return status;
}

static enum kvt_status read_state_order(struct kvt_h5_in *in, hid_t object,
					struct kvt_group *group, struct kvt_error *err)
{
	char *name = NULL;
	enum kvt_status status;

	if (!kvt_h5_has_attr(in, object, "state_order"))
		return KVT_OK;
	if ((status = kvt_h5_get_str(in, object, "state_order", &name, err)))
		return status;
	group->state_order = kvt_state_order_find(name);
	if (group->state_order == KVT_STATE_ORDERS)
		status = kvt_h5_bad(in, object, err,
				    "state_order is '%.60s', expected vk, kv or either", name);
	free(name);
	return status;
}

enum kvt_status kvt_h5_read_group(struct kvt_h5_in *in, hid_t object,
				  struct kvt_group *group, struct kvt_error *err)
{
	enum kvt_status status;

	if ((status = read_kind(in, object, group, err)) ||
	    (status = read_dtype(in, object, group, err)) ||
	    (status = read_content_type(in, object, group, err)) ||
	    (status = read_state(in, object, group, err)) ||
	    (status = read_state_order(in, object, group, err)) ||
	    (status = read_cast(in, object, group, err)))
		return status;
	if ((status = read_fields(in, object, group_fields, NGROUP, group, err)))
		return status;
	return read_pool(in, object, group, err);
}

static int64_t slot_bytes(const struct kvt_group *group)
{
	return group->shape.n[KVT_AXIS_K] * group->shape.n[KVT_AXIS_D] *
	       group->shape.elem;
}

/* content_shape and content_axes: as many names as numbers. */
static enum kvt_status check_content(struct kvt_h5_in *in, hid_t object,
				     const struct kvt_group *group,
				     struct kvt_error *err)
{
	enum { MOST = 8 };
	int64_t shape[MOST], nbytes = group->shape.elem;
	enum kvt_status status;
	char *name[MOST];
	int n = 0, names = 0;

	status = kvt_h5_get_ints(in, object, "content_shape", KVT_H5_U64, shape,
				 MOST, &n, err);
	if (!status)
		status = kvt_h5_get_strs(in, object, "content_axes", name, MOST,
					 &names, err);
	if (status)
		return status;
	for (int i = 0; i < names; i++)
		free(name[i]);
	for (int i = 0; i < n; i++)
		if (__builtin_mul_overflow(nbytes, shape[i], &nbytes))
			nbytes = -1;
	if (nbytes != slot_bytes(group) || n != names)
		return kvt_h5_bad(in, object, err,
				  "content_shape and content_axes do not describe %lld bytes a slot and head",
				  (long long)slot_bytes(group));
	return KVT_OK;
}

/* What was read of it, and what the data has, is all of it. */
static enum kvt_status check_state(struct kvt_h5_in *in, hid_t object,
				   const struct kvt_group *group, struct kvt_error *err)
{
	int64_t said[KVT_STATE_AXES], is[KVT_STATE_AXES];
	enum kvt_status status;
	int n = 0, known = kvt_group_state_shape(is, group);

	if (!kvt_h5_has_attr(in, object, "state_shape"))
		return KVT_OK;
	status = kvt_h5_get_ints(in, object, "state_shape", KVT_H5_U64, said,
				 KVT_STATE_AXES, &n, err);
	if (!status && (n != known || memcmp(said, is, (size_t)n * sizeof(*is))))
		return kvt_h5_bad(in, object, err,
				  "state_shape is not the shape of a recurrent state of the data");
	return status;
}

enum kvt_status kvt_h5_check_shape(struct kvt_h5_in *in, hid_t object,
				   const struct kvt_group *group,
				   struct kvt_error *err)
{
	const struct {
		const char *name;
		int64_t expected;
	} rows[] = {
		{ "num_heads", group->shape.n[KVT_AXIS_H] },
		{ "state_content_size", slot_bytes(group) },
	};

	enum kvt_status status;

	for (int i = 0; i < 2; i++) {
		int64_t value = 0;

		status = kvt_h5_get_int(in, object, rows[i].name, KVT_H5_U64,
					&value, err);
		if (status)
			return status;
		if (value != rows[i].expected)
			return kvt_h5_bad(in, object, err,
					  "%s is %lld, but the data has %lld",
					  rows[i].name, (long long)value,
					  (long long)rows[i].expected);
	}
	if ((status = check_content(in, object, group, err)))
		return status;
	return check_state(in, object, group, err);
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
	       kvt_h5_put_strs(object, "content_axes", both ? kv : &only,
			       both ? 2 : 1);
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
