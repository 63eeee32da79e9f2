/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama.h - state files of llama.cpp: what is where, how the file is read, and the
 * dump that it becomes
 *
 *	ggsn	"nsgg"  u32 version  u32 n, n tokens  u32 n, n letters of the architecture
 *		[outputs]  memory			of all sequences
 *	ggsq	"qsgg"  u32 version  u32 n, n tokens  memory	of one
 *	sequence	d8 3c 14 af  u32 sequence  memory, or the memory alone
 *	state	u32 n, n letters of the architecture  [outputs]  memory
 *
 *	outputs	u32 n, n ids  u64 n, n floats (logits)  u64 n, n floats (embeddings)
 *	memory	one cache, or that of layers without a window and that of those with one;
 *		then recurrent states; or states alone
 *	cache	[u32 streams], and of each stream
 *		u32 cells	0: the stream has nothing more
 *		each cell	i32 position  u32 n  0, 8 or 12 bytes  n sequences
 *		u32 transposed  u32 layers
 *		keys		of each layer: u32 type  u64 r	cells * r bytes
 *		values, if any	the same, or if transposed
 *				u32 type  u32 e  u32 width	width * cells * e bytes
 *	states	u32 cells, each: i32 position  u32 n  n sequences
 *		u32 0  u32 layers
 *		convolutions	of each layer that has them: u32 0  u64 r  cells * r bytes
 *		recurrences	the same
 *
 * Tokens, ids and sequences are numbers of 32 bits.  All is little-endian and without
 * alignment.  A type is one of ggml, a row all heads of a cell; how many heads that are,
 * and which layers of the model have a cache, stands nowhere.
 *
 * Such a file does not say which of several ways it was written in: builds differ under
 * one version, and a cell has more fields for some models (two more positions of M-RoPE,
 * and the token since 2026).  All are tried, and just one must end where the file does
 * (parse.c).
 */
#ifndef KVT_LLAMA_H
#define KVT_LLAMA_H

#include "formats/file/tokens.h"
#include "formats/format.h"
#include "formats/parse/ggml_type.h"

/* ---- what is where in a file (parse.c) ---------------------------------- */

/* Where rows of keys or values of a layer are, one after each other. */
struct kvt_llama_rows {
	int type;			/* of ggml */
	int64_t nbytes;			/* of a cell */
	int64_t at;			/* of the first one */
	int64_t elem;			/* transposed only: bytes of an element */
};

/* Cells that are stored together; engines have one stream, or one a sequence. */
struct kvt_llama_stream {
	int64_t ncells, nlayers;
	int64_t cells_at;		/* the first one */
	bool transposed, has_values;
	int64_t first_row;		/* of the cache's: keys of each layer, values */
};

/* A sequence holds this cell of a stream. */
struct kvt_llama_member {
	int32_t sequence, position;
	uint32_t stream, cell;
};

/* One cache: all layers, or those with a window, or those without. */
struct kvt_llama_cache {
	int64_t nstreams, nmembers;
	struct kvt_llama_stream *stream;	/* owned */
	struct kvt_llama_member *member;	/* owned; by sequence, position, cell */
	struct kvt_llama_rows *row;		/* owned; of all streams */
};

/* Of a layer, whose keys the stream must have, or values. */
static inline const struct kvt_llama_rows *
kvt_llama_rows_of(const struct kvt_llama_cache *cache, const struct kvt_llama_stream *s,
		  int kv, int64_t layer)
{
	return &cache->row[s->first_row + (kv ? s->nlayers : 0) + layer];
}

/*
 * Recurrent layers: a cell has two rows in each, of all tokens of a sequence so far.
 * The first of these are convolution states where there are any.
 */
struct kvt_llama_states {
	int64_t ncells, nlayers, nmembers;	/* no cells: nothing is in them */
	int64_t listed;			/* how many layers the file says */
	struct kvt_llama_member *member;	/* owned; as above */
	struct {
		int64_t nbytes, at;	/* of a cell in a layer; of the first layer's */
		int64_t step;		/* from one layer to the next */
		bool uneven;		/* layers differ, and 'step' means nothing */
	} row[2];
};

enum { KVT_LLAMA_CACHES = 2 };

struct kvt_llama_state {
	const char *kind;		/* "ggsn", "ggsq", "state", "sequence" */
	int version;			/* 0: has none */
	int64_t ntokens, tokens_at;	/* what the program stored with it */
	char arch[64];			/* of the model; "" if unknown */
	int extra;			/* bytes that a cell has besides */
	bool outputs;			/* of the last batch, before the caches */
	bool whole;			/* of all sequences, not of one */
	bool streams;			/* a cache says how many it has */
	int64_t outputs_at, memory_at;	/* outputs, if any, and what follows them */
	int ncaches;
	struct kvt_llama_cache cache[KVT_LLAMA_CACHES];
	struct kvt_llama_states states;
};

/* What a model keeps: rows of tokens, states of recurrent layers, or both. */
enum kvt_llama_memory {
	KVT_LLAMA_ATTENTION, KVT_LLAMA_RECURRENT, KVT_LLAMA_HYBRID, KVT_LLAMA_UNKNOWN,
	KVT_LLAMA_MEMORIES = KVT_LLAMA_UNKNOWN
};
extern const char *const kvt_llama_memory_names[];	/* the first three */

/*
 * What of it the file is to be, where the user says; and a file that begins with
 * the memory itself, as older programs got it for a sequence, is read if 'bare'.
 */
struct kvt_llama_asked {
	enum kvt_llama_memory memory;
	bool bare;
};

/*
 * KVT_BAD_INPUT if no reading ends with the file or several do; KVT_UNSUPPORTED
 * for a version that is not known.  Memory is in proportion to the cells that are
 * there.
 */
KVT_MUST_CHECK enum kvt_status
kvt_llama_parse(struct kvt_llama_state *out, const struct kvt_file *file,
		const struct kvt_llama_asked *asked, struct kvt_error *err);
void kvt_llama_free(struct kvt_llama_state *state);

/* Do the first bytes of a file look like one? */
bool kvt_llama_probe(const uint8_t *head, int64_t nhead);

/* ---- reading the parts, one way or another (cursor.c) ------------------- */

/* Bytes read at once; more streams or sequences than any build has. */
enum { KVT_LLAMA_WINDOW = 1 << 16, KVT_LLAMA_STREAMS = 4096, KVT_LLAMA_SEQUENCES = 4096 };

/* What the file is too short for: where it begins, and would end if that is known. */
struct kvt_llama_cut {
	int64_t at, end;		/* 0, 0: none */
	enum kvt_llama_parts {
		KVT_LLAMA_CELLS, KVT_LLAMA_KEYS, KVT_LLAMA_VALUES, KVT_LLAMA_STATES,
	} part;
	int64_t layer, nlayers;		/* rows of 'layer' are whole, of all */
	int64_t there, of;		/* rows of the next one, or cells */
	bool turned;			/* those rows are of an element, not of a cell */
};

/* A place to read at, and the way the file is read there. */
struct kvt_llama_cursor {
	const struct kvt_file *file;
	int64_t at;
	uint8_t *window;		/* bytes around it */
	int64_t begin, end;
	enum kvt_status status;		/* the file could not be read */
	struct kvt_error *err;

	bool whole;			/* of all sequences: cells name theirs */
	bool streams;			/* there is a number of streams */
	bool hollow;			/* rows are not there, but what is said of them */
	int extra;			/* bytes a cell has besides */

	struct kvt_llama_cut cut;	/* the farthest */
};

/* cut.c: KVT_BAD_INPUT, with how much is whole of what the file is too short for. */
enum kvt_status kvt_llama_tell_cut(const struct kvt_llama_cursor *c, int64_t listed);

/* The next 'n' bytes as a number; false: the file has no more, or failed. */
bool kvt_llama_take(uint64_t *out, struct kvt_llama_cursor *c, int n);
/* A number of 32 bits up to 'most'. */
bool kvt_llama_count(int64_t *out, struct kvt_llama_cursor *c, int64_t most);
bool kvt_llama_skip(struct kvt_llama_cursor *c, int64_t n, int64_t size);

/* In a file of one sequence cells need not say which that is. */
enum { KVT_LLAMA_OWN = -1 };

/* Where members and rows go; NULL: they are only counted. */
struct kvt_llama_members {
	struct kvt_llama_member *member;
	int64_t count;
	struct kvt_llama_rows *row;
	int64_t nrows;
};

/* How many streams follow. */
bool kvt_llama_stream_count(int64_t *out, struct kvt_llama_cursor *c);
/*
 * These, and where what is.  Values that are not there leave no trace: 'values'
 * is a guess, and 'asked' says whether it made a difference.  'out' may be NULL.
 */
bool kvt_llama_streams(struct kvt_llama_cursor *c, int64_t n, bool values, bool *asked,
		       struct kvt_llama_stream *out, struct kvt_llama_members *members);

/* Over the outputs of the last batch. */
bool kvt_llama_outputs(struct kvt_llama_cursor *c);
/*
 * States, which end with the file.  How many layers have some is found out by a
 * first call, without layers in 'out'; rows and members are true after a second.
 */
bool kvt_llama_recurrent(struct kvt_llama_cursor *c, struct kvt_llama_states *out);

/*
 * fork.c: whose state it is, if its memory at 'at' is not as llama.cpp writes it but as a
 * fork does; NULL: nobody's that is known.
 */
const char *kvt_llama_fork(struct kvt_llama_cursor *c, bool whole, int64_t version,
			   int64_t at);

/* ---- rotation (rotation.c) ----------------------------------------------- */

/*
 * What is rotated, of keys and values, as a user says it: "none", "unknown";
 * "hadamard", both as llama.cpp chooses; "k", "v", one of them; with a number, so many
 * together: "k128/v64".  NULL leaves zeros: nothing is said.
 */
KVT_MUST_CHECK enum kvt_status
kvt_llama_rotation(int64_t turn[2], const char *option, const char *text,
		   struct kvt_error *err);
/* So many numbers of a vector are rotated together, 1: none; 0: nothing tells. */
int64_t kvt_llama_turn(const int64_t told[2], const struct kvt_llama_state *state, int kv,
		       int64_t vector, bool latent);

/* ---- a file on its way to a dump (format.c) ----------------------------- */

/*
 * What a group is of: those layers of a cache whose rows are as its first one's, and
 * their keys, values, or both; or states.
 */
struct kvt_llama_part {
	int cache;			/* -1: states */
	int kv;				/* -1: both; which rows of states */
	int64_t first;			/* layer of the cache */
};

struct kvt_llama_opening {
	struct kvt_reader *reader;
	const struct kvt_hints *hints;
	struct kvt_llama_state state;
	struct kvt_llama_part part[KVT_MAX_GROUPS];
	int64_t window;			/* as the user says; 0: unknown */
	int64_t turn[2];		/* that, too: kvt_llama_rotation() */
	bool pairs;			/* and that keys have theirs as neighbours */
	int file;
	struct kvt_error *err;
};

/* Of one type and size? */
bool kvt_llama_same_rows(const struct kvt_llama_rows *a, const struct kvt_llama_rows *b);
/* Are the rows of two layers alike, of keys and, if there are any, of values? */
bool kvt_llama_alike(const struct kvt_llama_cache *cache,
		     const struct kvt_llama_stream *s, int64_t a, int64_t b);
/* What the name of the source ends in, where keys in pairs were read in halves. */
#define KVT_LLAMA_IN_HALVES ", keys in halves"

/* Fails with KVT_SYSTEM. */
enum kvt_status kvt_llama_no_memory(const struct kvt_llama_opening *o);

/* saved.c: what a context must be like that takes it back; requests must be there. */
KVT_MUST_CHECK enum kvt_status kvt_llama_slot(struct kvt_llama_opening *o);
/* Is it by the model some layers of a sequence alone, as PARTIAL_ONLY has them? */
bool kvt_llama_is_partial(const struct kvt_llama_opening *o);

/* The sequences as requests, and where their tokens are; groups must be there. */
KVT_MUST_CHECK enum kvt_status
kvt_llama_requests(struct kvt_llama_opening *o);

/* ---- tokens of a group: blocks.c ---------------------------------------- */

/*
 * The cells of one sequence in a cache, by position.  Where positions repeat (those
 * of an image do) they do not tell tokens apart, and these are counted instead.
 */
struct kvt_llama_sequence {
	const struct kvt_llama_member *member;
	int64_t count;
	bool counted;
};

static inline int64_t kvt_llama_position(const struct kvt_llama_sequence *q, int64_t i)
{
	return q->counted ? i : q->member[i].position;
}

/* Blocks of a group, while tables of requests are made. */
struct kvt_llama_blocks {
	struct kvt_llama_opening *o;
	int g;
	int64_t n;			/* blocks so far */
	int64_t *first_cell;		/* [streams] as the file's cells are counted */
	int64_t *chain;			/* [cells] into shared[], -1: none; or NULL */
	struct kvt_llama_shared *shared;
	int64_t nshared;
};

/* Free with kvt_llama_blocks_free() in any case. */
KVT_MUST_CHECK enum kvt_status
kvt_llama_blocks_init(struct kvt_llama_blocks *b, struct kvt_llama_opening *o, int g);
void kvt_llama_blocks_free(struct kvt_llama_blocks *b);

/*
 * The table of a request, whose tokens are known, in the group: a block or the null
 * block for each entry, and a hole for each run of positions that 'q' lacks.
 */
KVT_MUST_CHECK enum kvt_status
kvt_llama_table(struct kvt_llama_blocks *b, struct kvt_request *request,
		const struct kvt_llama_sequence *q);

#endif
