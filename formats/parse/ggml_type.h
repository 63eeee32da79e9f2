/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_type.h - element types of ggml, which llama.cpp has caches of */
#ifndef KVT_GGML_TYPE_H
#define KVT_GGML_TYPE_H

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

#endif
