/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot.h - what a dump says of itself: groups, block tables, requests
 *
 * A snapshot is a list of groups: layers that share spec, layout and shape; and of
 * requests, which name the blocks of each group that their tokens are in.  It holds
 * no data and does not know where they are: that is dump.h.
 */
#ifndef KVT_SNAPSHOT_H
#define KVT_SNAPSHOT_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "lib/kvt/content.h"

/* ---- what a file says about itself -------------------------------------- */

/* A named range of the content (or of the channels of a conv state). */
struct kvt_component {
	char name[32];			/* "x", "B", "C", "kv_c_normed", ... */
	int64_t start, length;		/* in elements, on this rank */
	int64_t global_start;		/* in the model; = start if not sharded */
};

enum { KVT_MAX_COMPONENTS = 8, KVT_MAX_GROUPS = 32, KVT_STATE_AXES = 4 };

/*
 * Which way a head of a recurrent state is stored.  A model writes into it a sum of
 * products of a value and a key; of Mamba, of x and B.
 */
enum kvt_state_order {
	KVT_STATE_VK,			/* values outside keys; as most engines do */
	KVT_STATE_KV,			/* keys outside values */
	/* of transformers: kv, but vk if the model is a Mamba */
	KVT_STATE_EITHER,
	KVT_STATE_ORDERS
};

struct kvt_group {
	char id[32];			/* "g0", "conv", "ssm" */
	enum kvt_kind kind;
	const struct kvt_dtype *dtype;
	struct kvt_content content;	/* dtype is uint8 if it has a type */
	struct kvt_layout layout;
	struct kvt_shape shape;		/* L B S H K D on this rank */
	int64_t block_size;		/* tokens a block */
	int64_t tokens_per_slot;	/* 1, N, or -1: one slot for all tokens */
	int64_t total_heads;		/* of the model */
	int64_t head_start;		/* first head of this rank */
	int64_t replication;		/* ranks that hold the same heads; 1 */
	int64_t page_bytes;		/* a block of a layer in the engine; 0: dense */
	int64_t page_offset;		/* of this group's content inside that page */
	int64_t window;			/* or chunk, in tokens; 0: none, or unknown */
	int64_t retained;		/* tokens kept besides a sliding window */
	bool has_null;			/* it has a null block of its own: */
	int64_t null_block;		/* index into B; -1: none */
	char pool[32];			/* groups of one name share blocks; "": alone */
	int ncomponents;
	struct kvt_component component[KVT_MAX_COMPONENTS];
	/* Extents of a head of an SSM state, then 0s; all 0: unknown, or none. */
	int64_t state[KVT_STATE_AXES];
	enum kvt_state_order state_order;	/* of the first two of them */
	/*
	 * What its numbers were before kvtool wrote them as another type, as
	 * kvt_group_type() has it; "": nothing said.  They are the elements times
	 * these, [L][2][scale_heads] of keys and values, of a layer (1) or of each
	 * head of the model.  NULL: as they are.
	 */
	char cast_from[48];
	int64_t scale_heads;
	float *scales;

	/* Tables; NULL where the file has none.  Owned by the snapshot. */
	char     **layer_names;		/* [L] */
	uint32_t  *layer_ids;		/* [L] index in the model */
	uint64_t  *block_ids;		/* [B] id in the engine's pool */
	uint32_t  *block_valid;		/* [B] slots that hold a live token */
	char     **block_names;		/* [B] what a store calls it: a hash, ... */
};

/*
 * Positions [begin, end) of a request that have no slot in a group: an engine
 * has removed them, or a cache with a window has passed them.  Their slots stay,
 * so that a token is where its position says, and count for nothing.
 */
struct kvt_hole {
	int64_t group, begin, end;
};

struct kvt_request {
	char *id;
	int64_t ntokens;		/* tokens in the cache, those in holes too */
	int64_t first_token;		/* position of the first of them; see below */
	int64_t prompt_tokens;		/* of its tokens, the prompt's; 0: unknown */
	int32_t *token_ids;		/* NULL if unknown */
	int64_t ntoken_ids;
	uint32_t *blocks[KVT_MAX_GROUPS];	/* indices into B, token order */
	int64_t nblocks[KVT_MAX_GROUPS];
	int64_t nholes;
	struct kvt_hole *hole;		/* by group and position, not touching */
};

/*
 * Tables begin with the block that the first token is in, which need not be its
 * first token: how many others stand before it there.
 */
static inline int64_t kvt_request_skip(const struct kvt_request *request,
				       const struct kvt_group *group)
{
	return group->block_size ? request->first_token % group->block_size : 0;
}

/*
 * The first run of positions in [begin, end), of those from the first token on, that
 * are in no hole of the group; empty at 'end' if there is none.
 */
struct kvt_range kvt_request_live(const struct kvt_request *request, int group,
				  int64_t begin, int64_t end);
/* How many of the request's tokens the group has no slot of. */
int64_t kvt_request_missing(const struct kvt_request *request, int group);
/* Of positions [begin, end) only. */
void kvt_request_cut_holes(struct kvt_request *request, int64_t begin, int64_t end);
/* Appends one; those of a group must come in order.  False: out of memory. */
KVT_MUST_CHECK bool kvt_request_add_hole(struct kvt_request *request, int group,
					 int64_t begin, int64_t end);

struct kvt_parallel {
	int64_t tp_size, tp_rank, pp_size, pp_rank, dp_size, dp_rank,
		dcp_size, dcp_rank;	/* sizes are 1 where unknown */
};

struct kvt_snapshot {
	int ngroups;
	struct kvt_group group[KVT_MAX_GROUPS];
	int64_t nrequests;
	struct kvt_request *request;
	struct kvt_parallel parallel;
	bool has_parallel;		/* the file says so itself */
	int64_t null_block;		/* index into B of each; -1: none or unknown */
	char *model;			/* name; NULL if unknown */
	char *source_format;		/* provenance: "npy", ...; NULL */
	char *note;			/* free text of a manifest; NULL */
};

/* The block of a group that holds no token, whoever's table has it; -1: none. */
static inline int64_t kvt_null_block(const struct kvt_snapshot *snapshot, int group)
{
	return snapshot->group[group].has_null ? snapshot->group[group].null_block :
						 snapshot->null_block;
}

static inline void kvt_set_null(struct kvt_snapshot *snapshot, int group, int64_t block)
{
	snapshot->group[group].has_null = true;
	snapshot->group[group].null_block = block;
}
/* After all were set: says it once where it is the same for all. */
void kvt_share_null(struct kvt_snapshot *snapshot);

/*
 * Do blocks of these groups that have one id lie in the same memory?  Each block
 * belongs to one of them at a time.
 */
static inline bool kvt_groups_share(const struct kvt_group *a, const struct kvt_group *b)
{
	return a->pool[0] && !strcmp(a->pool, b->pool);
}

/*
 * Keys alone (0) or values alone (1): attention content of kv extent 1 that is
 * one component named k or v.  -1: both, or content that is neither.
 */
int kvt_group_half(const struct kvt_group *group);

/*
 * How a page of the group is cut by heads, whatever the TP (vLLM #46954): the model's
 * heads, the bytes of a head of one token and of all of them.  n_heads 0: it is not; then
 * 'replicated' says that every rank has the whole page.
 */
struct kvt_head_slices {
	int64_t n_heads, h_stride, bs_stride;
	bool replicated;
};
struct kvt_head_slices kvt_head_slices_of(const struct kvt_snapshot *snapshot, int group);

/* The scale of an element of this layer, head and half; 1 if none is said. */
float kvt_group_scale(const struct kvt_group *group, int64_t l, int64_t h, int64_t k);
static inline int64_t kvt_group_nscales(const struct kvt_group *group)
{
	return group->scales ? group->shape.n[KVT_AXIS_L] * 2 * group->scale_heads : 0;
}

/* What the elements are: the type of the content, or of each element. */
struct kvt_text kvt_group_type(const struct kvt_group *group);
/* Keys and values, or latents, of numbers; states of recurrent layers never are. */
bool kvt_group_casts(const struct kvt_group *group);
/* "bfloat16 to float8_e4m3fn, scale 0.0312", of one that was cast; else empty. */
struct kvt_text kvt_group_cast_text(const struct kvt_group *group);
bool kvt_group_same_type(const struct kvt_group *a, const struct kvt_group *b);
/*
 * The shape of a recurrent state on this rank, whatever its order in memory: channels
 * and taps, or heads and what each holds.  How many extents; 0: not known.
 */
int kvt_group_state_shape(int64_t out[KVT_STATE_AXES], const struct kvt_group *group);
/* Heads of an SSM group hold 'n' extents; false: more than it can say, so unknown. */
bool kvt_group_set_state(struct kvt_group *group, const int64_t *extents, int n);
/* False where both are known and differ: [head_dim, state] is no [state, head_dim]. */
bool kvt_group_same_state(const struct kvt_group *a, const struct kvt_group *b);
/* "vk", "kv", "either"; and the other way, KVT_STATE_ORDERS: it is none. */
const char *kvt_state_order_name(enum kvt_state_order order);
enum kvt_state_order kvt_state_order_find(const char *name);
/* Of a group with a content type that passed kvt_snapshot_check(). */
struct kvt_packing kvt_group_packing(const struct kvt_group *group);

/*
 * What people know a block by: its id in the engine's pool.  Tables of requests
 * and everything else in memory have its position in the dump, 'b', which is the
 * id only where the dump lists none.
 */
static inline uint64_t kvt_block_id(const struct kvt_group *group, int64_t b)
{
	return group->block_ids ? group->block_ids[b] : (uint64_t)b;
}
/* The same of a layer, by its number in the model. */
static inline uint64_t kvt_layer_id(const struct kvt_group *group, int64_t l)
{
	return group->layer_ids ? group->layer_ids[l] : (uint64_t)l;
}

static inline bool kvt_group_has_layer(const struct kvt_group *group, uint64_t id)
{
	for (int64_t l = 0; l < group->shape.n[KVT_AXIS_L]; l++)
		if (kvt_layer_id(group, l) == id)
			return true;
	return false;
}
/* The named range that a channel is in; NULL if none is known. */
const struct kvt_component *kvt_group_component(const struct kvt_group *group, int64_t d);
/* The one of that name; NULL: there is none. */
const struct kvt_component *kvt_component_named(const struct kvt_group *group,
						const char *name);
/* Of a head in the model; of a conv state, of a channel. */
uint64_t kvt_head_id(const struct kvt_group *group, int64_t h);

/*
 * Fills what follows from the rest: names of layers, and how many slots of a
 * block are live where requests say so.
 */
KVT_MUST_CHECK enum kvt_status
kvt_snapshot_complete(struct kvt_snapshot *snapshot, struct kvt_error *err);

/* An empty snapshot (sizes 1, null_block -1). */
KVT_API void kvt_snapshot_init(struct kvt_snapshot *snapshot);
/* Forgets block_names; before the number of blocks changes. */
void kvt_group_drop_names(struct kvt_group *group);
/* Names and their list, which may be NULL. */
void kvt_names_free(char **names, int64_t n);
/* Deep copy; on failure 'out' is empty. */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_snapshot_copy(struct kvt_snapshot *out, const struct kvt_snapshot *in,
		  struct kvt_error *err);
KVT_API void kvt_snapshot_free(struct kvt_snapshot *snapshot);
/* Puts a copy of a group behind it, with its tables; on failure only to be freed. */
KVT_MUST_CHECK enum kvt_status
kvt_snapshot_double(struct kvt_snapshot *snapshot, int group, struct kvt_error *err);
/* The array, too. */
void kvt_requests_free(struct kvt_request *requests, int64_t n);

/*
 * Gives groups another layout, as a dump is to be written; those that hold another kind
 * of cache keep theirs.  KVT_UNSUPPORTED if a group cannot have it, or none takes it.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_snapshot_set_layout(struct kvt_snapshot *snapshot, const struct kvt_layout *layout,
			struct kvt_error *err);

/*
 * As JSON, with the keys of kvtool-manifest(5): all that a snapshot says.  The text is
 * malloc()ed; NULL: out of memory, or a name that is no UTF-8.
 */
KVT_API char *kvt_snapshot_json(const struct kvt_snapshot *snapshot);
/*
 * The other way, checked, on the heap, where everything has to be said that no file
 * can add; 'name' is for messages.  kvt_snapshot_delete() releases it.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_snapshot_from_json(struct kvt_snapshot **out, const char *json, const char *name,
		       struct kvt_error *err);
/* A copy, on the heap. */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_snapshot_clone(struct kvt_snapshot **out, const struct kvt_snapshot *in,
		   struct kvt_error *err);
/* NULL is allowed. */
KVT_API void kvt_snapshot_delete(struct kvt_snapshot *snapshot);

/* The number of the group with that id; -1: there is none. */
KVT_API int kvt_group_named(const struct kvt_snapshot *snapshot, const char *id);
/* NULL: there is none. */
KVT_API const struct kvt_request *kvt_request_named(const struct kvt_snapshot *snapshot,
					    const char *id);

/*
 * Checks everything that must hold between the fields, whatever file they come
 * from: extents, heads against TP, block tables inside the pool, valid counts,
 * splits that divide, sizes that do not overflow.  KVT_BAD_INPUT otherwise.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_snapshot_check(const struct kvt_snapshot *snapshot, struct kvt_error *err);

/* The same for who wants to hear of all flaws, with names (kvtool-fsck(1)). */
struct kvt_inspector {
	void (*found)(void *context, const char *name, const char *text);
	void *context;
	/* The same for n more, of which nothing is said; NULL: they are not counted. */
	void (*more)(void *context, const char *name, int64_t n);
	/* So many files were seen by now.  NULL: it is not told. */
	void (*seen)(void *context, int64_t files);
};
void kvt_snapshot_inspect(const struct kvt_snapshot *snapshot,
			  const struct kvt_inspector *inspector);

/*
 * How many slots of each block the requests say hold a live token, raised in
 * 'live' [B] (zeros before; NULL: only ask).  False: their tables do not tell.
 */
bool kvt_snapshot_live(uint32_t *live, const struct kvt_snapshot *snapshot, int group);

/*
 * ---- which slots of a request are needed ----------------------------------
 *
 * Everything that asks whether a slot is live asks here: digest, diff, describe,
 * fsck, where, slice and transfers.  Slots count from token 0 of the request; of a
 * recurrent group each entry of the table is one.
 */
struct kvt_table {
	const struct kvt_group *group;
	const struct kvt_request *request;	/* whose holes count */
	int number;			/* of the group */
	const uint32_t *blocks;		/* of the snapshot */
	int64_t nblocks;
	int64_t each;			/* slots a block; 1 if recurrent */
	int64_t first;			/* entry 0 is this block of the request */
	int64_t null_block;
	struct kvt_range slots;		/* that have a token, and an entry */
	struct kvt_range dead;		/* of them, what is needed no more */
};
/*
 * A table that is shorter than the request is the end of one, if there may be such.
 * Slots of several tokens are dead when all these are.  Older states of a recurrent
 * group are for others that begin alike: those let go of are in the null block.
 */
KVT_API struct kvt_table kvt_table_of(const struct kvt_snapshot *snapshot, int group,
			      const struct kvt_request *request);

/* All slots that it names are live here, null blocks and dead ones, too. */
KVT_API struct kvt_table kvt_table_named(const struct kvt_snapshot *snapshot, int group,
				 const struct kvt_request *request);

/* Neighbours in one block that are all live, or all not. */
struct kvt_stretch {
	int64_t begin, end;
	bool live;
	int64_t block, slot;		/* where the first one is; -1: nowhere */
};
/* The one that begins with slot 'at'; INT64_MAX ends one that nothing follows. */
KVT_API struct kvt_stretch kvt_table_at(const struct kvt_table *table, int64_t at);
/* Are all tokens of the slot in holes of the request? */
KVT_API bool kvt_table_lacks(const struct kvt_table *table, int64_t at);
/* Is it needed, wherever it is?  Of what is in the null block nothing is live. */
static inline bool kvt_table_needs(const struct kvt_table *t, int64_t at)
{
	return at >= t->slots.begin && at < t->slots.end &&
	       (at < t->dead.begin || at >= t->dead.end) && !kvt_table_lacks(t, at);
}
/* The next slots from 'at' on that are live, over blocks; empty: none is left. */
KVT_API struct kvt_range kvt_table_next(const struct kvt_table *table, int64_t at);

/* Does an entry stand for live slots, wherever they would be?  Then it is no null. */
bool kvt_entry_needed(const struct kvt_table *table, int64_t entry);
/* Can the null block stand there?  It can where it is not known what is needed. */
bool kvt_entry_may_be_null(const struct kvt_table *table, int64_t entry,
			   const struct kvt_request *request);
/* Does it stand for no token yet? */
bool kvt_entry_is_spare(const struct kvt_table *table, int64_t entry);

/* May tables of the group be the end of one, without what a window has passed? */
bool kvt_table_may_end(const struct kvt_group *group);

/* Does the table of a request have an entry for every token, in order? */
bool kvt_table_is_whole(const struct kvt_snapshot *s, int group,
			const struct kvt_request *request);

struct kvt_retention kvt_group_retention(const struct kvt_group *group,
					 const struct kvt_request *request);
/* Do its live slots differ from all slots that its tables name? */
bool kvt_group_forgets(const struct kvt_snapshot *snapshot, int group);
/*
 * The slots of each block that live tokens of requests are in: true in live[B][S].
 * NULL if memory is out.
 */
bool *kvt_live_slots(const struct kvt_snapshot *snapshot, int group);

/* The number of a layer by its name ("model.layers.12.self_attn.attn"). */
bool kvt_layer_number(int64_t *out, const char *name);

#endif
