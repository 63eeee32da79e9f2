/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.h - named tensors in one file, whatever container they came in, and
 * the dump that they make
 */
#ifndef KVT_TENSORS_H
#define KVT_TENSORS_H

#include "formats/describe/describe.h"
#include "formats/parse/layer_names.h"
#include "formats/parse/pickle.h"

struct kvt_coded;

enum { KVT_HELD_CLASS = 48, KVT_HELD_CONTENT = 32 };

/* What a tensor of a cache is. */
enum kvt_role {
	KVT_ROLE_PAIR,			/* keys or values, as far as is known */
	KVT_ROLE_KEYS, KVT_ROLE_VALUES,	/* of a part of a layer that has several */
	KVT_ROLE_INDEX,			/* keys of an indexer */
	KVT_ROLE_CONV, KVT_ROLE_STATE,	/* recurrent states */
	KVT_ROLE_MASK,			/* which slots are tokens; of an encoder, */
	KVT_ROLE_DECODER_MASK,		/* and this of its decoder */
	KVT_ROLE_SCALES,		/* of codes, or what is added to them */
	KVT_ROLE_UNKNOWN,		/* of a class that kvtool does not know */
};

/* What a file says of the tokens in a tensor that an engine's object held. */
struct kvt_held {
	enum kvt_role role;	/* of a tensor whose name does not say it */
	int64_t layer;		/* with that: its number in the model */
	int64_t part;		/* and which part of the layer it is of */
	bool taps_first;	/* of a convolution: [batch, taps, channels] */
	bool told;		/* its class is known; otherwise only 'fixed' counts */
	bool fixed;		/* slots are there before their tokens are */
	bool sliding;		/* of tokens that passed a window none is kept */
	int64_t window;		/* in tokens; 0: not said */
	int64_t seen;		/* tokens that the layer was given; -1: not said */
	bool ring;		/* begins anew when it is full */
	/*
	 * It has begun anew: slot 'next' is the oldest but for the first 'keep', which
	 * stay what they were, and the last slot is followed by slot 'keep'.
	 */
	bool turned;
	int64_t keep, next;
	bool chunk;		/* attention within chunks of 'window' tokens; */
	int64_t start;		/* the first slot is this token */
	/* Keys are values, too, where their bytes are equal. */
	bool single;
	/*
	 * Rows of 'each' tokens, from token 'start' on, that are a group of their own by
	 * this name; a row of one token is 'opaque' if it is no key.  0: as keys are.
	 */
	int64_t each;
	const char *id;
	bool opaque;
	bool batch;		/* rows end in slot 'used', and have own lengths */
	int64_t used;
	bool disordered;	/* slots are not, or may not be, tokens in order */
	char class[KVT_HELD_CLASS];	/* as the file calls it; "": it does not */
	int64_t bits, bits_group;	/* of codes, and numbers with one scale; -1 */
	/*
	 * Of codes: the content that their rows are with those of NAME.1 and NAME.2,
	 * in this order; "": they are numbers.
	 */
	char content[KVT_HELD_CONTENT];
};

/* A text in the metadata of a file, by its name. */
struct kvt_note {
	char *name, *text;
};

struct kvt_tensor {
	char *name;
	const struct kvt_dtype *dtype;	/* NULL: only bits, or none of ours */
	char type[16];			/* as the file calls it */
	int64_t elem;			/* bytes of one that has no dtype */
	int rank;
	int64_t shape[KVT_TENSOR_MAX_RANK];
	int64_t begin, end;		/* bytes from the start of the data */
	/*
	 * Not dense: the bytes an index moves by.  'end' then only says how many
	 * bytes of elements there are.
	 */
	bool strided;
	int64_t stride[KVT_TENSOR_MAX_RANK];
	/*
	 * Its elements are worked out of codes, which are not bytes of it: dense, in what
	 * becomes a file of its own (kvt_coded_files()).
	 */
	struct kvt_coded *coded;	/* owned, until it is that file; or NULL */
	int file;			/* of the reader; 0: the one it was read from */
	struct kvt_held held;
};

void kvt_tensor_free(struct kvt_tensor *tensor);

struct kvt_tensors {
	int64_t count;
	struct kvt_tensor *tensor;	/* owned; in the order of their bytes */
	const struct kvt_tensor **by_name;	/* owned; sorted; NULL: written */
	int64_t data;			/* offset of the data in the file */
	char *manifest;			/* what kvtool wrote about them; or NULL */
	int ncaches;			/* objects of transformers they come from */
	struct kvt_file_proof *proof;	/* of the file; owned; NULL: no checksums */
	int64_t nnotes;
	struct kvt_note *note;		/* owned; sorted; what else the header says */
	const char *names;		/* of keys and values, where the file tells */
	int64_t *given;			/* owned; tokens of each row; NULL: not said */
	int64_t ngiven;
	bool mlx;			/* a program of mlx saved them */
};

void kvt_tensors_free(struct kvt_tensors *tensors);

/*
 * Makes the proof of an archive.  torch.save() may be told to compute no checksums and
 * writes 0 then: 'zero_is_none'.
 */
struct kvt_zip;
KVT_MUST_CHECK enum kvt_status
kvt_tensors_sums(struct kvt_tensors *out, const struct kvt_zip *zip, bool zero_is_none,
		 struct kvt_error *err);
/* The file of the reader that they are in has their proof from here on. */
void kvt_tensors_prove(struct kvt_reader *reader, int file, struct kvt_tensors *tensors);
/* kvt_format.close of whoever calls that. */
void kvt_tensors_close(struct kvt_reader *reader);

/* Fills by_name.  Two tensors of one name are KVT_BAD_INPUT; 'path' for messages. */
KVT_MUST_CHECK enum kvt_status
kvt_tensors_index(struct kvt_tensors *tensors, const char *path, struct kvt_error *err);

/* NULL if there is none. */
const struct kvt_tensor *kvt_tensors_find(const struct kvt_tensors *tensors,
					  const char *name);

/* NULL: the file says nothing of that name. */
const char *kvt_tensors_note(const struct kvt_tensors *tensors, const char *name);

/* The array that a tensor is; 'name' of the file. */
struct kvt_array kvt_tensor_array(const struct kvt_tensor *tensor, const char *name);

/* Are they of one shape and type? */
bool kvt_tensors_alike(const struct kvt_tensor *a, const struct kvt_tensor *b);
/* One type, or two of floats where the shapes are one: codes and their scales are not. */
bool kvt_tensors_types_fit(const struct kvt_tensor *a, const struct kvt_tensor *b);
/* Two tensors of a tuple, or of numpy.savez(): keys and values, or layers. */
bool kvt_tensors_two(const struct kvt_tensor **first, const struct kvt_tensor **second,
		     const struct kvt_tensors *tensors);
/*
 * That two are not alike which are to be read together, keys and values if they are a
 * 'pair', and what to do about it.
 */
enum kvt_status kvt_tensors_unlike(const struct kvt_tensor *a, const struct kvt_tensor *b,
				   bool pair, enum kvt_status status, const char *path,
				   struct kvt_error *err);

/*
 * The order in which the elements of a tensor lie, whose axes are those of 'indexed'
 * without that of layers if it is one 'of_layer'.  False: they do not lie without gaps,
 * are where 'indexed' has them, or the axes are others.
 */
bool kvt_tensor_memory(struct kvt_layout *out, const struct kvt_layout *indexed,
		       const struct kvt_shape *shape, const struct kvt_tensor *tensor,
		       bool of_layer);

/* KVT_UNSUPPORTED if it holds nothing a cache is made of, or its slots in no order. */
KVT_MUST_CHECK enum kvt_status
kvt_tensor_check(const struct kvt_tensor *tensor, const char *path,
		 struct kvt_error *err);

/*
 * The arrays of numpy.savez(), and the tensors of torch.save(), in an open file.
 * Where torch saved caches as objects there are only the tensors of these; a layer
 * that holds nothing has tensors of no elements.
 */
KVT_MUST_CHECK enum kvt_status
kvt_npz_read(struct kvt_tensors *out, const struct kvt_file *file, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_torch_read(struct kvt_tensors *out, const struct kvt_file *file,
	       struct kvt_error *err);

/*
 * The tensor that holds the values where 'name' holds the keys; NULL: 'name' is
 * no name of keys, or there are no such values.  'names' is what the user says
 * of them ("layers.{l}.k,layers.{l}.v"), or NULL.
 */
const struct kvt_tensor *kvt_tensors_partner(const struct kvt_tensors *tensors,
					     const char *name, const char *names);

enum { KVT_MAX_NAME = 4096 };

/* Is it a name of 'names'?  Then of which layer, and half: 0 the first, 1 the second. */
bool kvt_names_match(int64_t *layer, int *half, const char *names, const char *name);
/*
 * What values are called where keys have this name, by the i-th pair of words; false if
 * it has no such word, *more if there are other words.
 */
bool kvt_names_values(char out[KVT_MAX_NAME + 16], bool *more, const char *name, int i);

/*
 * The layers, in the order of the model; the index of each is that of its tensor,
 * or of the one with its keys where those are 'apart'.  The caller frees them.
 * Tensors that 'names' leaves out are none of the cache's; without it all are.
 */
KVT_MUST_CHECK enum kvt_status
kvt_tensors_layers(struct kvt_layer **out, int64_t *count, bool *apart,
		   const struct kvt_tensors *tensors, const char *names,
		   const char *path, struct kvt_error *err);

/* One of the readers above. */
typedef enum kvt_status kvt_tensors_fn(struct kvt_tensors *out,
				       const struct kvt_file *file,
				       struct kvt_error *err);

/*
 * Fills the reader from the tensors that 'read' finds in a file: one tensor for
 * all layers, keys and values in a tensor each, a tensor (or such a pair) for
 * each layer, or one for each group of a manifest.
 */
KVT_MUST_CHECK enum kvt_status
kvt_tensors_open(struct kvt_reader *reader, const char *path,
		 const struct kvt_hints *hints, kvt_tensors_fn *read,
		 struct kvt_error *err);

/* The same of tensors that were read from several files of the reader. */
KVT_MUST_CHECK enum kvt_status
kvt_tensors_make(struct kvt_reader *reader, const struct kvt_tensors *tensors,
		 const struct kvt_hints *hints, struct kvt_error *err);

/*
 * Says so if heads have more elements than anything is in: they end in zeros in all
 * blocks that are looked at.
 */
KVT_MUST_CHECK enum kvt_status
kvt_tell_padding(struct kvt_reader *reader, struct kvt_error *err);
/* Leaves out of each row what the user says is padding; KVT_BAD_INPUT if it is not. */
KVT_MUST_CHECK enum kvt_status
kvt_tensors_cut(struct kvt_reader *reader, struct kvt_tensors *tensors,
		const struct kvt_file *file, const struct kvt_hints *hints,
		struct kvt_error *err);

/* Is it that of the group, or of a tensor of a layer?  For kvt_format.in_layout. */
bool kvt_tensors_in_layout(const struct kvt_group *group, const struct kvt_layout *said);
/* What it takes from the hints; ends with NULL. */
extern const char *const kvt_tensors_facts[];

#endif
