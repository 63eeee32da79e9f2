/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.h - private to the files of slice; merge shares what is said of channels
 *
 *	slice.c			requests' blocks, layers, blocks; then heads of groups
 *	slice_channels.c	channels of a conv state, and components
 *	slice_transfer.c	what one rank gives another
 *	slice_requests.c	requests, their tokens, tables numbered anew
 *
 * A slice reads nothing: it is a derivation (derive.h) of the source, of which each group
 * lists the layers and blocks that it keeps and the runs of heads and channels.
 */
#ifndef KVT_SLICE_H
#define KVT_SLICE_H

#include <string.h>

#include "lib/derived/derive.h"
#include "lib/kvt/spec.h"

static inline bool ranges_have(const struct kvt_ranges *ranges, uint64_t id)
{
	for (int i = 0; i < ranges->n; i++)
		if (id >= (uint64_t)ranges->range[i].begin &&
		    id < (uint64_t)ranges->range[i].end)
			return true;
	return !ranges->n;
}

static inline bool names_have(const struct kvt_names *names, const char *name)
{
	for (int i = 0; i < names->n; i++)
		if (!strcmp(names->s[i], name))
			return true;
	return false;
}

/* Names the first number that no group of the dump has. */
typedef uint64_t id_fn(const struct kvt_group *group, int64_t i);

/* Does anything of a group remain, by its layers and components? */
bool slice_wants(const struct kvt_group *group, const struct kvt_slice_options *options);

/* Heads and channels of a group; 'group' becomes what the part has left. */
KVT_MUST_CHECK enum kvt_status
slice_width(struct step_part *part, struct kvt_group *group,
	   const struct kvt_snapshot *whole, const struct kvt_slice_options *options,
	   struct kvt_error *err);

/* Keep the layers, or blocks, of an ascending list; false: out of memory. */
bool keep_layers(struct kvt_group *group, const int64_t *list, int64_t count);
bool keep_blocks(struct kvt_group *group, const int64_t *list, int64_t count);

/* Where groups of another width stand in the engine's page. */
void place_in_pages(struct kvt_snapshot *snapshot);

/* Channels: slice_channels.c. */
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
	  const struct kvt_snapshot *whole, int64_t mamba_groups, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
slice_channels(struct step_part *part, struct kvt_group *group,
	      const struct kvt_snapshot *whole, const struct kvt_slice_options *options,
	      struct kvt_error *err);

/* Are all channels of a conv state in just one part each? */
KVT_MUST_CHECK enum kvt_status
check_parts(const struct kvt_group *group, struct kvt_error *err);

/* Must one part begin where the other ends?  before NULL: at channel 0. */
bool part_follows(const char *before, const char *name);

/* Makes the runs of a part one for each component, in their order. */
KVT_MUST_CHECK enum kvt_status
channel_runs(struct step_part *part, const struct kvt_group *group,
	     struct kvt_error *err);

/* Components: slice_channels.c. */
KVT_MUST_CHECK enum kvt_status
slice_check_components(const struct kvt_snapshot *snapshot,
		      const struct kvt_names *names, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
slice_component(struct step_part *part, struct kvt_group *group,
	       const struct kvt_names *names, struct kvt_error *err);

/*
 * Transfers: slice_transfer.c.  What options->rank gives of each group, once all
 * that all ranks give is proven to arrive once.
 */
KVT_MUST_CHECK enum kvt_status
slice_exchanges(struct kvt_exchange given[KVT_MAX_GROUPS],
	       const struct kvt_snapshot *whole, const struct kvt_slice_options *options,
	       struct kvt_error *err);
/* Of what slice_width() left. */
KVT_MUST_CHECK enum kvt_status
slice_given(struct step_part *part, struct kvt_group *group,
	    const struct kvt_exchange *given, struct kvt_error *err);

/* Keeps the named ones only. */
KVT_MUST_CHECK enum kvt_status
slice_requests(struct kvt_snapshot *snapshot, const struct kvt_names *wanted,
	      struct kvt_error *err);
/* Then, of those, the tokens; in groups that remain. */
KVT_MUST_CHECK enum kvt_status
slice_tokens(struct kvt_snapshot *snapshot, const struct kvt_slice_options *options,
	    struct kvt_error *err);
/* Tables of one group; inverse[] is -1 where a block is left out. */
void renumber_requests(struct kvt_snapshot *snapshot, int group, const int64_t *inverse);
/* When all groups are renumbered: no more than the tokens that all still have. */
void cut_requests(struct kvt_snapshot *snapshot, const struct kvt_snapshot *before);

#endif
