/* SPDX-License-Identifier: Apache-2.0 */
/* names.h - what names and shapes of tensors say of the cache they are */
#ifndef KVT_NAMES_H
#define KVT_NAMES_H

#include <string.h>

#include "formats/tensor/tensors.h"

/* Axes of one half of a layer: batch, heads, tokens, elements. */
#define KVT_CACHE_AXES "BHTD"

/* "batch, heads, tokens, elements" of "BHTD". */
struct kvt_text kvt_axes_text(const char *axes);

/*
 * KVT_USAGE unless each letter is one of L (layers), K (keys and values), B, H, T and D,
 * none is there twice, and T and D are.
 */
KVT_MUST_CHECK enum kvt_status
kvt_axes_check(const char *axes, struct kvt_error *err);

/*
 * KVT_BAD_INPUT: heads or tokens may come first in a tensor, whose axes begin with
 * 'first'.  The options of both are said with the sizes that follow, after 'before'; and
 * what blocks of an engine need, where they may be that: the layouts that they could
 * have, "" for any, or NULL.
 */
enum kvt_status kvt_axes_ask(const struct kvt_tensors *tensors,
			     const struct kvt_tensor *tensor, const char *first,
			     const char *before, const char *blocks, const char *path,
			     struct kvt_error *err);

/* Otherwise it may be of all layers. */
static inline bool kvt_name_is_numbered(const char *name)
{
	return strpbrk(name, "0123456789");
}

/* What a word in a name says; of recurrent states also their order. */
struct kvt_role_word {
	const char *word;
	enum kvt_role role;
	enum kvt_state_order order;
};
/* The first that is in a name, and what follows it; NULL: none. */
const struct kvt_role_word *kvt_role_word(const char *name, const char **after);
/*
 * What a tensor is, as the file says or by its name; *after is what follows the word in
 * it that says so, NULL where none does.
 */
enum kvt_role kvt_cache_role(const struct kvt_tensor *tensor, const char **after);

/* Names by which exporters of models call the caches of transformers. */
struct kvt_naming {
	const char *names;		/* as for --set=names */
	const char *axes;
};

/* An encoder-decoder has two caches, and a word in a name says which one it is of. */
enum { KVT_ALL = -1, KVT_SELF, KVT_CROSS_OF };
bool kvt_naming_is_of(const char *name, int which);
/* Are all keys and values of one of two caches, of a known naming? */
bool kvt_naming_is_two(const struct kvt_tensors *tensors);

/* Of all tensors with as many axes as keys have, or those of one cache; NULL: none. */
const struct kvt_naming *kvt_naming_find(const struct kvt_tensors *tensors, int which);

/*
 * The order of heads and tokens in [1, heads, tokens, elements], where the other one
 * would be of more heads than any model has; NULL: the shape does not say.
 */
enum { KVT_MOST_HEADS = 256 };
const char *kvt_axes_of_shape(const struct kvt_tensor *tensor);

/*
 * What may be meant by the names: a list as for --set=names, which the caller frees, or
 * NULL where kvt_tensors_layers() needs none.  Where several are as likely, or halves are
 * told by no word, KVT_BAD_INPUT, with each to be given after 'before'.
 */
KVT_MUST_CHECK enum kvt_status
kvt_names_guess(char **out, const struct kvt_tensors *tensors, const char *path,
		const char *before, struct kvt_error *err);

#endif
