/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tables.c - the tables of a group: components, names and ids of layers and blocks; and
 * the requests, with a table of blocks for each group
 *
 * hdf5.h draws where each lies.  A table is a dataset of one dimension, as long as the
 * axis that it is of, and may be missing: then ids are indices, and names there are
 * none.  Read with the limits of dataset.c, so that a length in a file allocates nothing
 * by itself.
 */
#include "formats/hdf5/hdf5.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- components --------------------------------------------------------- */

/* One column of the component table; any number of rows. */
static void read_column(struct kvt_h5_in *in, hid_t object, const char *name, int64_t n,
			int64_t *out)
{
	int64_t count;
	uint64_t *value = kvt_h5_get_table(in, object, name, KVT_H5_U64, n, &count);

	if (!value)
		kvt_h5_bad(in, object, "dataset %s is missing", name);
	for (int64_t i = 0; i < count; i++) {
		out[i] = (int64_t)value[i];
		if (value[i] > INT64_MAX)
			kvt_h5_bad(in, object, "component %lld: %s is above 2^63",
				   LL(i), name);
	}
	free(value);
}

static void read_columns(struct kvt_h5_in *in, hid_t object, char *const *name, int n,
			 struct kvt_group *group)
{
	int64_t start[KVT_MAX_COMPONENTS], length[KVT_MAX_COMPONENTS];
	int64_t global[KVT_MAX_COMPONENTS];
	bool sharded = kvt_h5_has_link(in, object, "global_start");

	read_column(in, object, "start", n, start);
	read_column(in, object, "length", n, length);
	if (sharded)
		read_column(in, object, "global_start", n, global);
	for (int i = 0; i < n && !in->status; i++) {
		struct kvt_component *c = &group->component[i];

		if (!name[i][0] || strlen(name[i]) >= sizeof(c->name))
			kvt_h5_bad(in, object,
				   "component %d has a name of %zu bytes, expected 1 to %zu",
				   i, strlen(name[i]), sizeof(c->name) - 1);
		else
			strcpy(c->name, name[i]);
		c->start = start[i];
		c->length = length[i];
		c->global_start = sharded ? global[i] : start[i];
	}
	group->ncomponents = n;
}

static void read_components(struct kvt_h5_in *in, hid_t parent, struct kvt_group *group)
{
	hid_t object = kvt_h5_child(in, parent, "components", H5I_GROUP);
	char **name = NULL;
	int64_t n = 0;

	/* Fields of mixed types have offsets instead; they are no ranges. */
	if (object >= 0 && kvt_h5_has_link(in, object, "start")) {
		name = kvt_h5_get_str_table(in, object, "name", -1, &n);
		if (n > KVT_MAX_COMPONENTS)
			kvt_h5_refuse(in, object, KVT_UNSUPPORTED,
				      "%lld components, expected at most %d",
				      LL(n), KVT_MAX_COMPONENTS);
		else if (!name)
			kvt_h5_bad(in, object, "dataset name is missing");
		else
			read_columns(in, object, name, (int)n, group);
	}
	kvt_names_free(name, n);
	kvt_h5_drop(object);
}

static bool put_column(hid_t object, const char *name,
		       const struct kvt_group *group, size_t at)
{
	int64_t value[KVT_MAX_COMPONENTS];

	for (int i = 0; i < group->ncomponents; i++)
		memcpy(&value[i], (const char *)&group->component[i] + at,
		       sizeof(value[i]));
	return kvt_h5_put_table(object, name, KVT_H5_U64, value, group->ncomponents);
}

static bool write_components(hid_t parent, const struct kvt_group *group)
{
	const char *names[KVT_MAX_COMPONENTS];
	hid_t object;
	bool ok;

	if (!group->ncomponents)
		return true;
	for (int i = 0; i < group->ncomponents; i++)
		names[i] = group->component[i].name;
	object = kvt_h5_new_group(parent, "components");
	ok = object >= 0 &&
	     kvt_h5_put_str(object, "axis", group->kind == KVT_MAMBA_CONV ?
			    "channel" : "content") &&
	     kvt_h5_put_str_table(object, "name", names, group->ncomponents) &&
	     put_column(object, "start", group, offsetof(struct kvt_component, start)) &&
	     put_column(object, "length", group,
			offsetof(struct kvt_component, length)) &&
	     put_column(object, "global_start", group,
			offsetof(struct kvt_component, global_start));
	kvt_h5_drop(object);
	return ok;
}

/* ---- tables along layers and blocks ------------------------------------- */

static void read_scales(struct kvt_h5_in *in, hid_t object, struct kvt_group *group)
{
	int64_t pairs = 2 * group->shape.n[KVT_AXIS_L], n;

	group->scales = kvt_h5_get_table(in, object, "scales", KVT_H5_F32, -1, &n);
	if (!group->scales)
		return;
	if (!pairs || n % pairs)
		kvt_h5_bad(in, object,
			   "%lld scales are not as many for each key and value of %lld layers",
			   LL(n), LL(pairs / 2));
	else
		group->scale_heads = n / pairs;
}

void kvt_h5_read_tables(struct kvt_h5_in *in, hid_t object, struct kvt_group *group)
{
	int64_t layers = group->shape.n[KVT_AXIS_L];
	int64_t blocks = group->shape.n[KVT_AXIS_B], n;

	group->layer_names = kvt_h5_get_str_table(in, object, "layer_names", layers, &n);
	group->layer_ids = kvt_h5_get_table(in, object, "layer_ids", KVT_H5_U32, layers,
					    &n);
	group->block_ids = kvt_h5_get_table(in, object, "block_ids", KVT_H5_U64, blocks,
					    &n);
	group->block_valid = kvt_h5_get_table(in, object, "block_valid", KVT_H5_U32,
					      blocks, &n);
	group->block_names = kvt_h5_get_str_table(in, object, "block_names", blocks, &n);
	read_scales(in, object, group);
	read_components(in, object, group);
}

bool kvt_h5_write_tables(hid_t object, const struct kvt_group *group)
{
	int64_t layers = group->shape.n[KVT_AXIS_L];
	int64_t blocks = group->shape.n[KVT_AXIS_B];

	return (!group->layer_names ||
		kvt_h5_put_str_table(object, "layer_names",
				     (const char *const *)group->layer_names, layers)) &&
	       (!group->layer_ids ||
		kvt_h5_put_table(object, "layer_ids", KVT_H5_U32,
				 group->layer_ids, layers)) &&
	       (!group->block_ids ||
		kvt_h5_put_table(object, "block_ids", KVT_H5_U64,
				 group->block_ids, blocks)) &&
	       (!group->block_valid ||
		kvt_h5_put_table(object, "block_valid", KVT_H5_U32,
				 group->block_valid, blocks)) &&
	       (!group->block_names ||
		kvt_h5_put_str_table(object, "block_names",
				     (const char *const *)group->block_names, blocks)) &&
	       (!group->scales ||
		kvt_h5_put_table(object, "scales", KVT_H5_F32, group->scales,
				 kvt_group_nscales(group))) &&
	       write_components(object, group);
}

/* ---- requests ----------------------------------------------------------- */

static void read_blocks(struct kvt_h5_in *in, hid_t object,
			const struct kvt_snapshot *snapshot, struct kvt_request *request)
{
	hid_t tables = kvt_h5_child(in, object, "block_table", H5I_GROUP);

	for (int g = 0; g < snapshot->ngroups && tables >= 0; g++)
		request->blocks[g] = kvt_h5_get_table(in, tables, snapshot->group[g].id,
						      KVT_H5_U32, -1,
						      &request->nblocks[g]);
	kvt_h5_drop(tables);
}

/* Pairs of numbers: where a hole begins and where it ends. */
static void read_holes_of(struct kvt_h5_in *in, hid_t tables, int g,
			  const struct kvt_group *group, struct kvt_request *request)
{
	int64_t n;
	uint64_t *pairs = kvt_h5_get_table(in, tables, group->id, KVT_H5_U64, -1, &n);

	if (n % 2)
		kvt_h5_bad(in, tables, "an odd number of hole positions");
	for (int64_t i = 0; i < n && !in->status; i += 2)
		if (pairs[i] > INT64_MAX || pairs[i + 1] > INT64_MAX)
			kvt_h5_bad(in, tables, "a hole of 2^63 tokens");
		else if (!kvt_request_add_hole(request, g, (int64_t)pairs[i],
					       (int64_t)pairs[i + 1]))
			in->status = kvt_no_memory(in->err, in->path);
	free(pairs);
}

static void read_holes(struct kvt_h5_in *in, hid_t object,
		       const struct kvt_snapshot *snapshot, struct kvt_request *request)
{
	hid_t tables = kvt_h5_child(in, object, "holes", H5I_GROUP);

	for (int g = 0; g < snapshot->ngroups && tables >= 0; g++)
		read_holes_of(in, tables, g, &snapshot->group[g], request);
	kvt_h5_drop(tables);
}

static void read_request(struct kvt_h5_in *in, hid_t parent, int64_t index,
			 const struct kvt_snapshot *snapshot, struct kvt_request *request)
{
	char name[24];
	hid_t object;

	snprintf(name, sizeof(name), "%lld", LL(index));
	object = kvt_h5_need(in, parent, name, H5I_GROUP);
	request->id = kvt_h5_get_str(in, object, "request_id");
	request->ntokens = kvt_h5_get_int(in, object, "num_computed_tokens", KVT_H5_U64);
	if (kvt_h5_has_attr(in, object, "first_token"))
		request->first_token = kvt_h5_get_int(in, object, "first_token",
						      KVT_H5_U64);
	if (kvt_h5_has_attr(in, object, "prompt_tokens"))
		request->prompt_tokens = kvt_h5_get_int(in, object, "prompt_tokens",
							KVT_H5_U64);
	request->token_ids = kvt_h5_get_table(in, object, "token_ids", KVT_H5_I32, -1,
					      &request->ntoken_ids);
	read_blocks(in, object, snapshot, request);
	read_holes(in, object, snapshot, request);
	kvt_h5_drop(object);
}

static void read_each(struct kvt_h5_in *in, hid_t parent, struct kvt_snapshot *snapshot)
{
	enum { LEAST = 64 };		/* bytes of a request in a file */
	H5G_info_t info;

	if (H5Gget_info(parent, &info) < 0 || info.nlinks > (hsize_t)(in->left / LEAST)) {
		kvt_h5_bad(in, parent, "more requests than fit into the file");
		return;
	}
	if (!info.nlinks || !kvt_h5_spend(in, parent, (int64_t)info.nlinks * LEAST))
		return;
	snapshot->request = calloc((size_t)info.nlinks, sizeof(*snapshot->request));
	if (!snapshot->request) {
		in->status = kvt_no_memory(in->err, in->path);
		return;
	}
	snapshot->nrequests = (int64_t)info.nlinks;
	for (int64_t i = 0; i < snapshot->nrequests && !in->status; i++)
		read_request(in, parent, i, snapshot, &snapshot->request[i]);
}

void kvt_h5_read_requests(struct kvt_h5_in *in, struct kvt_snapshot *snapshot)
{
	hid_t parent = kvt_h5_child(in, in->file, "requests", H5I_GROUP);

	if (parent >= 0)
		read_each(in, parent, snapshot);
	kvt_h5_drop(parent);
}

static bool write_blocks(hid_t object, const struct kvt_snapshot *snapshot,
			 const struct kvt_request *request)
{
	hid_t tables = kvt_h5_new_group(object, "block_table");
	bool ok = tables >= 0;

	for (int g = 0; g < snapshot->ngroups && ok; g++)
		ok = !request->blocks[g] ||
		     kvt_h5_put_table(tables, snapshot->group[g].id, KVT_H5_U32,
				      request->blocks[g], request->nblocks[g]);
	kvt_h5_drop(tables);
	return ok;
}

static bool write_holes_of(hid_t tables, const char *id,
			   const struct kvt_request *request, int g)
{
	uint64_t *pairs = calloc((size_t)request->nholes, 2 * sizeof(*pairs));
	int64_t n = 0;
	bool ok;

	for (int64_t i = 0; pairs && i < request->nholes; i++)
		if (request->hole[i].group == g) {
			pairs[n++] = (uint64_t)request->hole[i].begin;
			pairs[n++] = (uint64_t)request->hole[i].end;
		}
	ok = pairs && (!n || kvt_h5_put_table(tables, id, KVT_H5_U64, pairs, n));
	free(pairs);
	return ok;
}

static bool write_holes(hid_t object, const struct kvt_snapshot *snapshot,
			const struct kvt_request *request)
{
	hid_t tables;
	bool ok;

	if (!request->nholes)
		return true;
	tables = kvt_h5_new_group(object, "holes");
	ok = tables >= 0;
	for (int g = 0; g < snapshot->ngroups && ok; g++)
		ok = write_holes_of(tables, snapshot->group[g].id, request, g);
	kvt_h5_drop(tables);
	return ok;
}

static bool write_request(hid_t parent, int64_t index,
			  const struct kvt_snapshot *snapshot)
{
	const struct kvt_request *request = &snapshot->request[index];
	char name[24];
	hid_t object;
	bool ok;

	snprintf(name, sizeof(name), "%lld", LL(index));
	object = kvt_h5_new_group(parent, name);
	ok = object >= 0 &&
	     kvt_h5_put_str(object, "request_id", request->id) &&
	     kvt_h5_put_int(object, "num_computed_tokens", KVT_H5_U64,
			    request->ntokens) &&
	     (!request->first_token ||
	      kvt_h5_put_int(object, "first_token", KVT_H5_U64, request->first_token)) &&
	     (!request->prompt_tokens ||
	      kvt_h5_put_int(object, "prompt_tokens", KVT_H5_U64,
			     request->prompt_tokens)) &&
	     (!request->token_ids ||
	      kvt_h5_put_table(object, "token_ids", KVT_H5_I32,
			       request->token_ids, request->ntoken_ids)) &&
	     write_blocks(object, snapshot, request) &&
	     write_holes(object, snapshot, request);
	kvt_h5_drop(object);
	return ok;
}

bool kvt_h5_write_requests(hid_t file, const struct kvt_snapshot *snapshot)
{
	bool ok = true;
	hid_t parent;

	if (!snapshot->nrequests)
		return true;
	parent = kvt_h5_new_group(file, "requests");
	ok = parent >= 0;
	for (int64_t i = 0; i < snapshot->nrequests && ok; i++)
		ok = write_request(parent, i, snapshot);
	kvt_h5_drop(parent);
	return ok;
}
