/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_names.c - layers in the order of the model, where names are all there is
 *
 * kvt_layer_number() says which layer a name is of; two names of one layer are refused,
 * as they come of several ranks in one folder.  kvt_layers_sort() wants all numbers
 * between the first and the last; who has layers of several kinds takes
 * kvt_layers_order().
 */
#include "formats/parse/layer_names.h"

#include <stdlib.h>
#include <string.h>

static int by_number(const void *a, const void *b)
{
	const struct kvt_layer *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

enum kvt_status kvt_layers_sort(struct kvt_layer *layer, int64_t count,
				const char *where, struct kvt_error *err)
{
	enum kvt_status status;

	for (int64_t i = 0; i < count; i++)
		if (!kvt_layer_number(&layer[i].number, layer[i].name))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: cannot tell the layer of '%.100s'", where,
					layer[i].name);
	if ((status = kvt_layers_order(layer, count, where, err)))
		return status;
	for (int64_t i = 1; i < count; i++)
		if (layer[i].number != layer[i - 1].number + 1)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: layer %lld is missing before '%.80s'", where,
					LL(layer[i - 1].number) + 1, layer[i].name);
	return KVT_OK;
}

enum kvt_status kvt_layers_order(struct kvt_layer *layer, int64_t count,
				 const char *where, struct kvt_error *err)
{
	qsort(layer, (size_t)count, sizeof(*layer), by_number);
	for (int64_t i = 1; i < count; i++)
		if (layer[i].number == layer[i - 1].number)
			return kvt_fail(
				err, KVT_BAD_INPUT,
				"%s: '%.80s' and '%.80s' are both layer %lld; files of several ranks in one folder are not one cache",
				where, layer[i - 1].name, layer[i].name,
				LL(layer[i].number));
	return KVT_OK;
}

enum kvt_status kvt_layers_tables(struct kvt_group *group, const struct kvt_layer *layer,
				  int64_t count, const char *where, struct kvt_error *err)
{
	size_t n = count > 0 ? (size_t)count : 1;
	bool ok;

	if (group->layer_names || group->layer_ids)
		return KVT_OK;	/* a manifest knows better */
	group->layer_names = calloc(n, sizeof(*group->layer_names));
	group->layer_ids = calloc(n, sizeof(*group->layer_ids));
	ok = group->layer_names && group->layer_ids;
	for (int64_t i = 0; ok && i < count; i++) {
		group->layer_ids[i] = (uint32_t)layer[i].number;
		ok = (group->layer_names[i] = strdup(layer[i].name)) != NULL;
	}
	return ok ? KVT_OK : kvt_no_memory(err, where);
}
