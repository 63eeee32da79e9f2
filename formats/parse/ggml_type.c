/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ggml_type.c - ids and names, as ggml has them
 *
 * Those that llama.cpp takes for keys and values (kv_cache_types of common/arg.cpp).  Ids
 * are those of GGML's ggml.h, which files have in them and which never change; elements
 * and bytes of a block those of the structs in GGML's ggml-common.h.
 */
#include "formats/parse/ggml_type.h"

#include <stddef.h>
#include <string.h>

static const struct kvt_ggml_type types[] = {
	{ 0, "f32", 1, 4, "float32" },   { 1, "f16", 1, 2, "float16" },
	{ 30, "bf16", 1, 2, "bfloat16" }, { 2, "q4_0", 32, 18, NULL },
	{ 3, "q4_1", 32, 20, NULL },     { 6, "q5_0", 32, 22, NULL },
	{ 7, "q5_1", 32, 24, NULL },     { 8, "q8_0", 32, 34, NULL },
	{ 20, "iq4_nl", 32, 18, NULL },
};
enum { NTYPES = sizeof(types) / sizeof(types[0]) };

const struct kvt_ggml_type *kvt_ggml_type(int id)
{
	for (int i = 0; i < NTYPES; i++)
		if (types[i].id == id)
			return &types[i];
	return NULL;
}

const struct kvt_ggml_type *kvt_ggml_type_called(const char *name)
{
	for (int i = 0; i < NTYPES; i++)
		if (!strcmp(types[i].name, name))
			return &types[i];
	return NULL;
}
