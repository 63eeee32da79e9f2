/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.h - a state file of llama.cpp that is made of a dump: what its parts share
 *
 * The file is one of a build and a model, which a template is: another state of theirs,
 * or what is made of the model's GGUF.  What it says of versions, types and layers is
 * said again; cells, tokens and rows are the dump's.
 */
#ifndef KVT_LLAMA_WRITE_H
#define KVT_LLAMA_WRITE_H

#include "formats/llama/llama.h"

/* Which part of a group the rows of a layer are. */
struct kvt_llama_source {
	int group;			/* -1: none yet */
	int64_t layer;			/* of the group */
	int64_t kv;			/* of its K axis */
};

/* A sequence holds a cell; those of one cell stand together. */
struct kvt_llama_held {
	uint32_t stream;
	int64_t order;			/* of the cell; not dense */
	int32_t sequence, position;
	int64_t request, at;		/* a token of it, from its first one on */
	int64_t like;			/* cell of the template's stream; -1: none */
};

struct kvt_llama_written {
	struct kvt_llama_source *source;	/* owned; [keys, values][layers] */
	const struct kvt_llama_stream *like;	/* of the template; NULL: no layers */
	bool uses[KVT_MAX_GROUPS];
	int64_t nheld;
	struct kvt_llama_held *held;	/* owned; in the order of the file */
	int64_t *at;			/* owned; [streams][keys, values][layers] */
};

/* States of recurrent layers: a cell of each sequence, or of several. */
struct kvt_llama_kept {
	int group[2];			/* -1: none */
	int64_t ncells;
	uint32_t *block;		/* owned; of a cell, in both */
	int64_t *cell;			/* owned; of a request */
	int64_t at[2], step[2];
};

struct kvt_llama_writing {
	struct kvt_writer *writer;
	struct kvt_snapshot *snapshot;	/* the writer's */
	struct kvt_error *err;
	bool whole;			/* of all sequences */
	bool foreign;			/* the dump comes from another engine */
	bool pairs;			/* keys come in halves, and go in pairs */
	bool retypes;			/* types may differ from those of the template */
	struct kvt_files files;		/* of the template */
	int file;
	const char *path;		/* of the template */
	char *made;			/* owned; that where there is none: made.c */
	struct kvt_llama_state like;
	int32_t *sequence;		/* owned; of a request */
	int64_t **slot[KVT_MAX_GROUPS];	/* owned; [requests][tokens]; -1: not there */
	struct kvt_llama_written cache[KVT_LLAMA_CACHES];
	struct kvt_llama_kept states;
};

/*
 * made.c: what a template would be like, of the GGUF that options.model_path names and
 * options.context.  KVT_UNSUPPORTED: an architecture whose states do not follow from it.
 */
KVT_MUST_CHECK enum kvt_status kvt_llama_make(struct kvt_llama_writing *w);

/*
 * plan.c: which layers are which, and the cells.  KVT_UNSUPPORTED or KVT_BAD_INPUT, with
 * what it is, if the template has no place for something of the dump, or wants more.
 */
KVT_MUST_CHECK enum kvt_status kvt_llama_plan(struct kvt_llama_writing *w);
/* The layers alone. */
KVT_MUST_CHECK enum kvt_status kvt_llama_plan_layers(struct kvt_llama_writing *w);

/*
 * fields.c: creates the file, in its length, and writes all but rows; where those of each
 * layer begin goes into ->at.
 */
KVT_MUST_CHECK enum kvt_status
kvt_llama_write_fields(struct kvt_llama_writing *w, int *file);
/* Are both in one cell?  And cells of a stream, from the i-th that is held on. */
bool kvt_llama_same_cell(const struct kvt_llama_held *a, const struct kvt_llama_held *b);
int64_t kvt_llama_count_cells(const struct kvt_llama_written *c, int64_t i,
			      int64_t stream);

/* write.c: of zeros; opens the template, whose model says how keys are ordered. */
void kvt_llama_writing_init(struct kvt_llama_writing *w, struct kvt_writer *writer,
			    struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status kvt_llama_take_template(struct kvt_llama_writing *w);
void kvt_llama_writing_free(struct kvt_llama_writing *w);

/* In a row of a layer; NULL if the cache has no values. */
static inline const struct kvt_llama_source *
kvt_llama_source_of(const struct kvt_llama_written *c, int kv, int64_t layer)
{
	return &c->source[(kv ? c->like->nlayers : 0) + layer];
}

/* What the rows of a layer are to be, by the template. */
static inline const struct kvt_llama_rows *
kvt_llama_rows_like(const struct kvt_llama_writing *w, int cache, int kv, int64_t layer)
{
	return kvt_llama_rows_of(&w->like.cache[cache], w->cache[cache].like, kv, layer);
}

/* kvt_format.retype, .create and .finish */
KVT_MUST_CHECK enum kvt_status
kvt_llama_retype(struct kvt_dump **out, int from[KVT_MAX_GROUPS],
		 struct kvt_writer *writer, const struct kvt_dump *dump,
		 const char *rotation, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_llama_create(struct kvt_writer *writer, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_llama_finish(struct kvt_writer *writer, struct kvt_error *err);

#endif
