/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_names.h - the names that a pickle of tensors may call for */
#ifndef KVT_PICKLE_NAMES_H
#define KVT_PICKLE_NAMES_H

#include "lib/kvt/kvt.h"

/* The number of a name, -1 if it is none of them. */
int kvt_pickle_name(const char *module, int nmodule, const char *what, int nwhat);

/* What a call of it makes. */
enum kvt_pickle_call {
	KVT_CALL_NONE,			/* it cannot be called */
	KVT_CALL_TENSOR,
	KVT_CALL_RETYPE,		/* a tensor with attributes of its own */
	KVT_CALL_DICT,
	KVT_CALL_IGNORED,		/* a device, a set: nothing of a cache */
};
enum kvt_pickle_call kvt_pickle_call(int name);

/* How many arguments it takes; -1: any number. */
int kvt_pickle_arguments(int name);

/* What an object of a class is, as flags; 0: not a class. */
enum {
	KVT_CLASS_CACHE = 1,		/* of all layers */
	KVT_CLASS_LAYER = 2,		/* or of one */
	KVT_CLASS_FIXED = 4,		/* slots are there before their tokens are */
	KVT_CLASS_WINDOW = 8,		/* of tokens that passed a window none is kept */
};
int kvt_pickle_class(int name);

/* Bytes of an element of a storage, or of an element type; 0: neither. */
int64_t kvt_pickle_storage_elem(int name);
int64_t kvt_pickle_type_elem(int name);

/* As it is called: "BFloat16Storage"; and the type of its elements, or NULL. */
const char *kvt_pickle_type_name(int name);
const struct kvt_dtype *kvt_pickle_dtype(int name);

#endif
