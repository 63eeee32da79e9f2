/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe.h - what kvtool describe finds out, and who prints it
 *
 * Facts come first, from the file's own description; the data is read only for
 * --stats and --verify.  Text and JSON are two ways to print the same facts.
 */
#ifndef KVT_DESCRIBE_H
#define KVT_DESCRIBE_H

#include "cli/json_out.h"
#include "cli/opt.h"
#include "lib/dump/pipeline.h"

struct describe_options {
	bool json, stats, verify, names, tuples, tables, canonical;
	struct kvt_run run;
	const char *canonical_layout;	/* instead of the dump's own; or NULL */
	const char *expect_layout;
	struct opt_strings expect;	/* KEY=VALUE */
	struct opt_strings peek;	/* places */
	double scale[2];		/* what keys and values are times; 0: 1 */
};

/* The largest box that --mem-limit leaves room for, with what goes with it. */
static inline int64_t box_limit(const struct describe_options *options)
{
	int64_t limit = options->run.memory;

	return limit ? limit / 4 : INT64_MAX;
}

/* Of content at K index k of a group: what its numbers are times. */
static inline double scale_of(const struct describe_options *options,
			      const struct kvt_group *group, int64_t k)
{
	int half = kvt_group_half(group);
	double scale = options->scale[half >= 0 ? half : k];

	return scale > 0 ? scale : 1;
}

/* Values of one (layer, head, kv), over all blocks and states. */
struct moments {
	int64_t finite, nan, inf, zero_blocks;
	double min, max, mean;
	double squares;			/* sum of squared distances from the mean */
};

/* The first damaged things are kept to be named, the rest is counted. */
enum { MAX_FINDINGS = 16 };
struct finding {
	int64_t at[KVT_NAXES];
	bool damaged;			/* else: sound, but not what its cell says */
	char text[200];
};

struct verify_result {
	int64_t tiles, damaged;
	int64_t cells, differing;	/* content cells of the file */
	int nfindings;
	struct finding finding[MAX_FINDINGS];
};

struct group_facts {
	const struct kvt_group *group;
	const struct kvt_tiling *tiling;	/* NULL: flat */
	struct kvt_views views;
	struct kvt_predicates is;
	int64_t data_bytes, layer_bytes, block_bytes;	/* block: of one layer */
	int64_t token_bytes;		/* of all layers; 0: states are not tokens */
	int64_t page_stride[2];		/* of L and B in the engine's pages; 0: dense */
	int64_t alignment;		/* of where blocks begin; 0: unknown */
	int64_t blocks_used, blocks_shared, blocks_unused; /* -1: no block tables */
	int64_t valid_states;		/* -1: unknown */
	bool has_cells, cells_proven;
	const char *checksum;		/* of the data; NULL: it has none */
	struct moments *moments;	/* [L][H][K]; NULL without --stats */
	struct verify_result *verified;	/* NULL without --verify */
};

struct description {
	const char *path;
	struct kvt_dump *reader;
	const struct kvt_snapshot *snapshot;
	int64_t data_bytes, file_bytes;
	struct group_facts group[KVT_MAX_GROUPS];
	struct canonical_facts *canonical;	/* NULL without --canonical */
	struct peeks *peeks;		/* NULL without --peek */
};

/* Everything that can be known without reading data.  Free it either way. */
KVT_MUST_CHECK enum kvt_status
describe_facts(struct description *d, const char *path, struct kvt_dump *reader,
	       struct kvt_error *err);
void describe_free(struct description *d);

/* Fill 'moments' and 'verified' of every group. */
KVT_MUST_CHECK enum kvt_status
describe_stats(struct description *d, const struct describe_options *options,
	       struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
describe_verify(struct description *d, const struct describe_options *options,
		struct kvt_error *err);

/* One tensor for all layers: describe_canonical.c. */
KVT_MUST_CHECK enum kvt_status
describe_canonical(struct description *d, const struct describe_options *options,
		   struct kvt_error *err);
void canonical_text(const struct canonical_facts *f);
void canonical_json(struct json_out *out, const struct canonical_facts *f);
void canonical_free(struct canonical_facts *f);

/* The numbers of some places: describe_peek.c. */
KVT_MUST_CHECK enum kvt_status
describe_peek(struct description *d, const struct describe_options *options,
	      struct kvt_error *err);
void peeks_text(const struct peeks *peeks);
void peeks_json(struct json_out *out, const struct peeks *peeks);
void peeks_free(struct peeks *peeks);	/* NULL is fine */

void describe_text(const struct description *d,
		   const struct describe_options *options);
/* Shared by the text: a line's first word, and the picture of the memory. */
void describe_label(const char *text);
void describe_memory(const struct group_facts *f);
void describe_packing(const struct kvt_group *group);

void describe_json(struct json_out *out, const struct description *d,
		   const struct describe_options *options);

/*
 * Complains about every expectation that does not hold; KVT_USAGE if one names
 * no field.  'json' is what describe_json() made.
 */
KVT_MUST_CHECK enum kvt_status
describe_expect(const struct description *d, const struct describe_options *options,
		const json_t *json, struct kvt_error *err);

/* The name of a K index ("keys", "values"), or "content" where K has extent 1. */
const char *component_name(const struct kvt_group *group, int64_t k);
double standard_deviation(const struct moments *m);
double compression_ratio(const struct description *d);

#endif
