/* SPDX-License-Identifier: Apache-2.0 */
/* tensors.c - lists of named tensors, and finding one of them */
#include "formats/tensor/tensors.h"

#include <stdlib.h>
#include <string.h>

void kvt_tensors_free(struct kvt_tensors *tensors)
{
	for (int64_t i = 0; i < tensors->count; i++)
		free(tensors->tensor[i].name);
	free(tensors->tensor);
	free(tensors->by_name);
	free(tensors->manifest);
	*tensors = (struct kvt_tensors){ 0 };
}

static int by_name(const void *a, const void *b)
{
	const struct kvt_tensor *const *s = a, *const *t = b;

	return strcmp((*s)->name, (*t)->name);
}

const struct kvt_tensor *kvt_tensors_find(const struct kvt_tensors *tensors,
					  const char *name)
{
	const struct kvt_tensor key = { .name = (char *)name }, *p = &key;
	const struct kvt_tensor **found;

	if (!tensors->count)
		return NULL;
	found = bsearch(&p, tensors->by_name, (size_t)tensors->count,
			sizeof(*tensors->by_name), by_name);
	return found ? *found : NULL;
}

struct kvt_array kvt_tensor_array(const struct kvt_tensor *tensor, const char *name)
{
	struct kvt_array array = {
		.name = name, .rank = tensor->rank, .dtype = tensor->dtype,
		.elem = tensor->dtype ? tensor->dtype->elem : tensor->elem,
		.nbytes = tensor->end - tensor->begin,
	};

	memcpy(array.shape, tensor->shape, sizeof(array.shape));
	return array;
}

enum kvt_status kvt_tensors_index(struct kvt_tensors *tensors, const char *path,
				  struct kvt_error *err)
{
	size_t n = (size_t)tensors->count;

	tensors->by_name = calloc(n ? n : 1, sizeof(*tensors->by_name));
	if (!tensors->by_name)
		return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", path);
	for (size_t i = 0; i < n; i++)
		tensors->by_name[i] = &tensors->tensor[i];
	qsort(tensors->by_name, n, sizeof(*tensors->by_name), by_name);
	for (size_t i = 1; i < n; i++)
		if (!strcmp(tensors->by_name[i - 1]->name, tensors->by_name[i]->name))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: two tensors named %.100s", path,
					tensors->by_name[i]->name);
	return KVT_OK;
}

enum kvt_status kvt_tensor_check_type(const struct kvt_tensor *tensor, const char *path,
				      struct kvt_error *err)
{
	if (tensor->dtype || tensor->elem)
		return KVT_OK;
	return kvt_fail(err, KVT_UNSUPPORTED, "%s: tensor %.100s has elements of %s",
			path, tensor->name, tensor->type);
}
