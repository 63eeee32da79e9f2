/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_type.h - element types of ggml, which llama.cpp has caches of */
#ifndef KVT_GGML_TYPE_H
#define KVT_GGML_TYPE_H

#include <stdint.h>

/* Those with several elements a block are quantised. */
struct kvt_ggml_type {
	int id;
	const char *name;
	int elems, nbytes;		/* of a block */
	const char *dtype;		/* NULL: quantised */
};

/* NULL: not known */
const struct kvt_ggml_type *kvt_ggml_type(int id);
const struct kvt_ggml_type *kvt_ggml_type_called(const char *name);
/* Bytes of so many elements, in whole blocks. */
static inline int64_t kvt_ggml_row(const struct kvt_ggml_type *type, int64_t elems)
{
	return (elems + type->elems - 1) / type->elems * type->nbytes;
}

#endif
