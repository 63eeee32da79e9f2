/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.h - what torch.save() writes of tensors, read without executing a thing
 *
 * A pickle is a program.  This reads the few instructions that build dicts,
 * lists, tuples and strings, and recognises by their names the calls that make a
 * tensor of a storage, and the classes of a cache of transformers, whose objects
 * are their attributes; any other name or instruction is KVT_UNSUPPORTED.
 */
#ifndef KVT_PICKLE_H
#define KVT_PICKLE_H

#include <stddef.h>
#include <stdint.h>

#include "lib/kvt/kvt.h"

/* Dimensions of a tensor at most, in any container. */
enum { KVT_TENSOR_MAX_RANK = 32 };

enum kvt_pickle_kind {
	KVT_PICKLE_NONE, KVT_PICKLE_BOOL, KVT_PICKLE_INT, KVT_PICKLE_STRING,
	KVT_PICKLE_TUPLE, KVT_PICKLE_LIST, KVT_PICKLE_DICT, KVT_PICKLE_OBJECT,
	KVT_PICKLE_STORAGE, KVT_PICKLE_TENSOR,
	KVT_PICKLE_GLOBAL,		/* a class or an element type by itself */
	KVT_PICKLE_MARK,		/* never in a finished tree */
};

/*
 * Entries of a tuple or list, or keys and values of a dict in turn; of an object
 * its dict, once it has one, and of a tensor that is an object what it was made of.
 */
struct kvt_pickle_items {
	int32_t count;
	int32_t *node;			/* owned; of lists and dicts by KVT_GROW() */
};

struct kvt_pickle_node {
	enum kvt_pickle_kind kind;
	int64_t number;			/* bool, int; elements of a storage;
					   tensor: torch calls its place static */
	const char *text;		/* string, or key of a storage; not terminated */
	int32_t ntext;
	int32_t global;			/* what is called; class of an object;
					   element type of a storage */
	struct kvt_pickle_items items;	/* of a tensor: its arguments */
};

struct kvt_pickle {
	int32_t count;
	struct kvt_pickle_node *node;	/* owned */
	int32_t root;
};

/*
 * Reads all of 'bytes', which must outlive the tree.  Truncated or malformed is
 * KVT_BAD_INPUT.  Nothing is allocated that is not in proportion to 'nbytes'.
 * A list may hold itself: a walk of the tree must count its steps.
 */
KVT_MUST_CHECK enum kvt_status
kvt_pickle_read(struct kvt_pickle *out, const uint8_t *bytes, int64_t nbytes,
		const char *name, struct kvt_error *err);
void kvt_pickle_free(struct kvt_pickle *pickle);

/* The value of a key of a dict, or of an attribute; -1: there is none, or no dict. */
int32_t kvt_pickle_value(const struct kvt_pickle *pickle, int32_t dict, const char *name);
int32_t kvt_pickle_attribute(const struct kvt_pickle *pickle,
			     const struct kvt_pickle_node *object, const char *name);

/*
 * A tensor's storage, and where and how it lies there, in elements.  KVT_BAD_INPUT
 * if it reaches beyond its storage, KVT_UNSUPPORTED if elements overlap.
 */
struct kvt_pickle_tensor {
	const char *key;		/* of the storage; not terminated */
	int32_t nkey;
	const struct kvt_dtype *dtype;
	const char *type;		/* as torch has it; dtype NULL: none of ours */
	int64_t elem;
	int64_t nbytes;			/* of the storage */
	int64_t offset;			/* bytes */
	int rank;
	int64_t shape[KVT_TENSOR_MAX_RANK], stride[KVT_TENSOR_MAX_RANK]; /* bytes */
	int64_t size;			/* bytes of all elements */
	bool strided;
};
KVT_MUST_CHECK enum kvt_status
kvt_pickle_tensor(struct kvt_pickle_tensor *out, const struct kvt_pickle *pickle,
		  int32_t node, const char *name, struct kvt_error *err);

/* ---- names that a pickle of tensors may call for ------------------------ */

/* The number of a name, -1 if it is none of them. */
int kvt_pickle_name(const char *module, int nmodule, const char *what, int nwhat);

/* What a call of it makes. */
enum kvt_pickle_call {
	KVT_CALL_NONE,			/* it cannot be called */
	KVT_CALL_TENSOR,
	KVT_CALL_RETYPE,		/* a tensor with attributes of its own */
	KVT_CALL_PARAMETER,		/* the tensor that is its first argument */
	KVT_CALL_WRAPPER,		/* and no elements: it is an object */
	KVT_CALL_SAME,			/* its argument, a tuple */
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
	KVT_CLASS_COMPRESSES = 16,	/* has rows of several tokens besides */
	KVT_CLASS_CODED = 32,		/* keys and values are packed codes and scales */
	KVT_CLASS_PART = 64,		/* what such a layer is made of, and no layer */
};
int kvt_pickle_class(int name);

/* Bytes of an element of a storage; 0: it is none. */
int64_t kvt_pickle_storage_elem(int name);

/* The type of its elements, or NULL. */
const struct kvt_dtype *kvt_pickle_dtype(int name);

#endif
