/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_names.h - the names that a pickle of tensors may call for */
#ifndef KVT_PICKLE_NAMES_H
#define KVT_PICKLE_NAMES_H

#include "lib/kvt.h"

/* The number of a name, -1 if it is none of them. */
int kvt_pickle_name(const char *module, int nmodule, const char *what, int nwhat);

/* How many arguments a function takes; -1: not a function. */
int kvt_pickle_arguments(int name);

/* Bytes of an element of a storage, or of an element type; 0: neither. */
int64_t kvt_pickle_storage_elem(int name);
int64_t kvt_pickle_type_elem(int name);

/* As torch calls it: "BFloat16Storage"; and the type of its elements, or NULL. */
const char *kvt_pickle_type_name(int name);
const struct kvt_dtype *kvt_pickle_dtype(int name);

#endif
