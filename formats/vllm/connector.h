/* SPDX-License-Identifier: Apache-2.0 */
/* connector.h - what reading and writing of connector folders share */
#ifndef KVT_CONNECTOR_H
#define KVT_CONNECTOR_H

#include "formats/file/tree.h"
#include "formats/parse/layer_names.h"
#include "formats/tensor/safetensors_header.h"

/*
 * vLLM's disk connector has stored a layer of a request in three shapes, as its
 * caches changed, and one more for MLA: tokens in order, blocks gone.
 */
struct kvt_generation {
	const char *preset;		/* "vllm-2026-07" */
	const char *layout;		/* of a group read from such a folder */
	const char *shape;		/* as people write it */
	int rank;
};

const struct kvt_generation *kvt_generation_at(int i);	/* NULL past the last one */
const struct kvt_generation *kvt_generation_find(const char *preset);

enum { KVT_CONNECTOR_OPEN_FILES = 64 };	/* all others are parked */

/* ---- what is in a folder ------------------------------------------------ */

struct kvt_connector_names {
	int64_t count;
	char **name;			/* owned; sorted */
};
void kvt_connector_names_free(struct kvt_connector_names *names);

/*
 * Names of the files in a folder that end in .safetensors, without the ending,
 * and of its folders, but for hidden ones.  A symbolic link with such a name is
 * KVT_BAD_INPUT, as are more entries than any dump has.
 */
KVT_MUST_CHECK enum kvt_status
kvt_connector_scan(struct kvt_connector_names *tensors,
		   struct kvt_connector_names *folders,
		   const char *path, struct kvt_error *err);

/* ---- reading ------------------------------------------------------------ */

/* A file: the place of its tensor. */
struct kvt_connector_file {
	int file;
	int64_t data;
	struct kvt_tensor tensor;	/* without its name */
};

/* A folder while it is opened. */
struct kvt_connector {
	struct kvt_reader *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	struct kvt_connector_names requests;	/* ids, which their folders are called */
	struct kvt_connector_names layers;	/* files of the first request; sorted */
	struct kvt_layer *layer;	/* the same in the order of the model */
	struct kvt_connector_file *source;	/* [request][layer] */
	const struct kvt_generation *generation;
	struct kvt_layout layout;	/* of the group */
	bool packed;			/* rows of blocks, see kvt_connector_choose() */
	int64_t block_size;
};

const struct kvt_connector_file *kvt_connector_file_of(const struct kvt_connector *o,
						       int64_t r, int64_t l);

/*
 * By what the user says, or by shapes that allow only one reading: fills
 * generation, layout and packed.
 *
 * The connector of vllm-2026-07 takes [T, H, 2*D] out of a view [B, H, S, 2*D] of
 * the engine's memory.  Where backends keep a token's key and value there, the
 * rows are those of tokens.  The CPU backend keeps other things in the same bytes
 * (kvtool-layouts(7), cpu-vec): then a row is some part of a packed block.  Files
 * do not tell which, so the layout is asked for.
 */
KVT_MUST_CHECK enum kvt_status kvt_connector_choose(struct kvt_connector *o);

/* ---- packed blocks ------------------------------------------------------ */

/* Does a CPU backend keep blocks in this layout? */
bool kvt_connector_packs(const struct kvt_layout *layout);
/*
 * Views of packed blocks become those of their rows in a file of vllm-2026-07;
 * KVT_UNSUPPORTED if those begin or end where kvtool cannot follow.
 */
KVT_MUST_CHECK enum kvt_status
kvt_connector_rows(struct kvt_views *views, const struct kvt_group *group,
		   const char *name, struct kvt_error *err);

/* Known once the generation is. */
int kvt_connector_token_axis(const struct kvt_connector *o);
int64_t kvt_connector_ntokens(const struct kvt_connector *o, int64_t r);
int64_t kvt_connector_nblocks(const struct kvt_connector *o, int64_t r);
KVT_MUST_CHECK enum kvt_status
kvt_connector_width(struct kvt_connector *o, struct kvt_group *group);

/* The members create and finish of the format. */
KVT_MUST_CHECK enum kvt_status
kvt_connector_create(struct kvt_writer *writer, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_connector_finish(struct kvt_writer *writer, struct kvt_error *err);

#endif
