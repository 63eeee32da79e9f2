/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.h - a part of a dump, as a source that keeps its place in the model
 *
 * Layers, blocks and heads are named by their ids in the model and in the
 * engine's pool, as digest prints them, so that a part of a part is named as it
 * was in the whole.
 */
#ifndef KVTOOL_PICK_H
#define KVTOOL_PICK_H

#include "cli/opt.h"
#include "lib/dump/map.h"
#include "lib/kvt/spec.h"

enum { MAX_RANGES = 64 };

struct ranges {
	int n;				/* 0: everything */
	struct kvt_range range[MAX_RANGES];
};

/* "3", "0:4", "0,2,8:16"; 'option' is for the message. */
KVT_MUST_CHECK enum kvt_status
ranges_parse(struct ranges *out, const char *option, const char *text,
	     struct kvt_error *err);
bool ranges_have(const struct ranges *ranges, uint64_t id);

/* Names the first number that no group of the dump has. */
typedef uint64_t id_fn(const struct kvt_group *group, int64_t i);
KVT_MUST_CHECK enum kvt_status
check_ranges(const struct kvt_snapshot *snapshot, const struct ranges *ranges,
	     enum kvt_axis axis, id_fn *id_of, struct kvt_error *err);

struct pick {
	struct ranges layers, blocks;
	struct ranges heads, tokens;	/* one range each at most */
	struct opt_strings requests;	/* n 0: all of them */
	struct opt_strings components;	/* n 0: all of them */
	struct kvt_rank rank;		/* size 0: not wanted */
	struct kvt_rank to;		/* what 'rank' gives to this; size 0: all */
	int64_t mamba_groups;		/* of B and C in the model; 0: not known */
};

/*
 * The source must be freed, also its reader by the caller.  What is named and
 * not there is KVT_BAD_INPUT.  A rank that gives nothing to another is a source
 * without groups.
 */
KVT_MUST_CHECK enum kvt_status
pick_source(struct source *out, struct kvt_dump **reader, const struct pick *pick,
	    struct kvt_error *err);

/* ---- between the files of pick ------------------------------------------ */

/* Does anything of a group remain, by its layers and components? */
bool pick_wants(const struct kvt_group *group, const struct pick *pick);

/* Heads and channels of a group; 'group' becomes what the part has left. */
KVT_MUST_CHECK enum kvt_status
pick_width(struct source_part *part, struct kvt_group *group,
	   const struct kvt_snapshot *whole, const struct pick *pick,
	   struct kvt_error *err);

/* Where groups of another width stand in the engine's page. */
void place_in_pages(struct kvt_snapshot *snapshot);

/* Channels: pick_channels.c. */
enum { CONV_PARTS = 3 };

/* How the parts of a conv state are dealt to ranks, of which 'here' is a share. */
struct conv {
	const struct kvt_component *here[CONV_PARTS];	/* NULL: no such part */
	const char *name[CONV_PARTS];
	int64_t base[CONV_PARTS], total[CONV_PARTS], units[CONV_PARTS];
	bool no_replicas[CONV_PARTS];
};
KVT_MUST_CHECK enum kvt_status
conv_init(struct conv *conv, const struct kvt_group *group,
	  const struct kvt_snapshot *whole, int64_t mamba_groups,
	  struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
pick_channels(struct source_part *part, struct kvt_group *group,
	      const struct kvt_snapshot *whole, const struct pick *pick,
	      struct kvt_error *err);

/* Are all channels of a conv state in just one part each? */
KVT_MUST_CHECK enum kvt_status
check_parts(const struct kvt_group *group, struct kvt_error *err);

/* Must one part begin where the other ends?  before NULL: at channel 0. */
bool part_follows(const char *before, const char *name);

/* Makes the runs of a part one for each component, in their order. */
KVT_MUST_CHECK enum kvt_status
channel_runs(struct source_part *part, const struct kvt_group *group,
	     struct kvt_error *err);

/* Components: pick_component.c. */
KVT_MUST_CHECK enum kvt_status
pick_check_components(const struct kvt_snapshot *snapshot,
		      const struct opt_strings *names, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
pick_component(struct source_part *part, struct kvt_group *group,
	       const struct opt_strings *names, struct kvt_error *err);

/*
 * Transfers: pick_transfer.c.  What pick->rank gives of each group, once all
 * that all ranks give is proven to arrive once.
 */
KVT_MUST_CHECK enum kvt_status
pick_exchanges(struct kvt_exchange given[KVT_MAX_GROUPS],
	       const struct kvt_snapshot *whole, const struct pick *pick,
	       struct kvt_error *err);
/* Of what pick_width() left. */
KVT_MUST_CHECK enum kvt_status
pick_given(struct source_part *part, struct kvt_group *group,
	   const struct kvt_exchange *given, struct kvt_error *err);

/* Keeps the named ones only. */
KVT_MUST_CHECK enum kvt_status
pick_requests(struct kvt_snapshot *snapshot, const struct opt_strings *wanted,
	      struct kvt_error *err);
/* Then, of those, the tokens; in groups that remain. */
KVT_MUST_CHECK enum kvt_status
pick_tokens(struct kvt_snapshot *snapshot, const struct pick *pick,
	    struct kvt_error *err);
/* Tables of one group; inverse[] is -1 where a block is left out. */
void renumber_requests(struct kvt_snapshot *snapshot, int group,
		       const int64_t *inverse);
/* When all groups are renumbered: no more than the tokens that all still have. */
void cut_requests(struct kvt_snapshot *snapshot, const struct kvt_snapshot *before);

#endif
