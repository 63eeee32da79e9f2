/* SPDX-License-Identifier: Apache-2.0 */
/* torch_walk.h - from what torch.save() pickled to a list of named tensors */
#ifndef KVT_TORCH_WALK_H
#define KVT_TORCH_WALK_H

#include "formats/parse/pickle.h"
#include "formats/parse/zip.h"
#include "formats/tensor/coded.h"
#include "formats/tensor/tensors.h"

enum { TORCH_MAX_PATH = 4096 };

struct torch_walk {
	const struct kvt_file *file;	/* with its proof */
	const struct kvt_zip *zip;
	const char *prefix;		/* of all members */
	int nprefix;
	struct kvt_pickle pickle;
	struct kvt_tensors *out;
	struct kvt_error *err;
	char path[TORCH_MAX_PATH];	/* the names that lead to where it stands */
	struct kvt_held held;		/* of the tensors there */
	bool single;			/* keys of windows are values, too */
	int steps;
};

/* Bytes of a member that is data of no tensor: held against its checksum at once. */
KVT_MUST_CHECK enum kvt_status
kvt_torch_take(const struct torch_walk *w, void *buf, int64_t nbytes, int64_t offset);

/* A tensor that a layer of DeepSeek V4 has besides keys; node -1: not this one. */
struct torch_state {
	const char *attribute, *key;
	int32_t node;
	struct kvt_held held;
};

/* The i-th of them, of TORCH_STATES; 'seen' tokens were given to the layer. */
enum { TORCH_STATES = 10 };
KVT_MUST_CHECK enum kvt_status
kvt_torch_compressed(struct torch_state *out, const struct torch_walk *w,
		     const struct kvt_pickle_node *layer, int64_t seen, int i);
/* The value of an attribute of an object, or of a key of a dict; -1: there is none. */
int32_t kvt_torch_attribute(const struct torch_walk *w,
			    const struct kvt_pickle_node *object, const char *name);

/* A tensor, and where its first element is in the file. */
KVT_MUST_CHECK enum kvt_status
kvt_torch_place(struct kvt_pickle_tensor *out, int64_t *begin, const struct torch_walk *w,
		int32_t node);

/*
 * Keys or values that are codes, and those of the newest tokens, which are not coded yet;
 * for the caller to free.  torch_coded.c
 */
KVT_MUST_CHECK enum kvt_status
kvt_torch_coded(struct kvt_coded **out, const struct torch_walk *w, int32_t codes,
		int32_t rest);

/* Adds the tensors of the pickle to 'out', in its order; no index is made. */
KVT_MUST_CHECK enum kvt_status kvt_torch_walk(struct torch_walk *w);

#endif
