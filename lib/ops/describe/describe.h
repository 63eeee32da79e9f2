/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe.h - what a dump is: facts, and what its data adds to them
 *
 * Facts follow from the dump's description of itself and cost no reading of data.
 * Everything else is filled in on request: statistics, integrity, single numbers, the
 * tensor that all layers could share.
 */
#ifndef KVT_DESCRIBE_H
#define KVT_DESCRIBE_H

#include "lib/kvt/connect.h"
#include "lib/kvt/run.h"
#include "lib/kvt/dump.h"
#include "lib/ops/check/integrity.h"
#include "lib/ops/numbers/numbers.h"
#include "lib/ops/strange/strange.h"
#include "lib/ops/where/where.h"

/* Values of one (layer, head, kv), over all blocks and slots. */
struct kvt_moments {
	int64_t finite, nan, inf, zero_blocks;
	double min, max, mean;		/* of the finite ones; NaN: there are none */
	double squares;			/* sum of squared distances from the mean */
};
/* As if all elements had been of one row. */
void kvt_moments_add(struct kvt_moments *to, const struct kvt_moments *m);
double kvt_standard_deviation(const struct kvt_moments *m);

struct kvt_group_facts {
	const struct kvt_group *group;
	const struct kvt_tiling *tiling;	/* NULL: flat */
	const struct kvt_layout *indexed;	/* kvt_dump_indexed(), or NULL */
	struct kvt_views views;
	struct kvt_predicates is;
	int64_t data_bytes, layer_bytes, block_bytes;	/* block: of one layer */
	int64_t token_bytes;		/* of all layers; 0: slots are not tokens */
	int64_t kernel_block;		/* tokens of a kernel's block; 0: none seen */
	int64_t page_stride[2];		/* of L and B in the engine's pages; 0: dense */
	int64_t alignment;		/* of where blocks begin; 0: unknown */
	int64_t blocks_used, blocks_shared, blocks_unused; /* -1: no block tables */
	int64_t valid_slots;		/* -1: unknown */
	bool has_cells, cells_proven;
	const char *checksum;		/* of the data; NULL: it has none */
	struct kvt_moments *moments;	/* [L][H][K]; NULL: not asked for */
	struct kvt_numbers *numbers;	/* with these; else NULL */
	struct kvt_strangeness *strange;	/* likewise */
	struct kvt_integrity *integrity;	/* NULL: not asked for */
};

struct kvt_description {
	const char *path;
	struct kvt_dump *dump;
	const struct kvt_snapshot *snapshot;
	int64_t data_bytes, file_bytes;
	struct kvt_group_facts group[KVT_MAX_GROUPS];
	struct kvt_canonical_facts *canonical;	/* NULL: not asked for */
	struct kvt_peeks *peeks;	/* NULL: not asked for */
};

/*
 * Everything that can be known without reading data.  'path' and 'dump' are borrowed.
 * Free it either way; a zeroed one can be freed, too.
 */
KVT_MUST_CHECK enum kvt_status
kvt_describe(struct kvt_description *d, const char *path, struct kvt_dump *dump,
	     struct kvt_error *err);
void kvt_description_free(struct kvt_description *d);

/* Bytes of data for each byte of the files. */
double kvt_compression_ratio(const struct kvt_description *d);
/* The name of a K index ("keys", "values"), or "content" where K has extent 1. */
const char *kvt_component_name(const struct kvt_group *group, int64_t k);

/* ---- from the data ------------------------------------------------------ */

/* Fills 'integrity' of every group. */
KVT_MUST_CHECK enum kvt_status
kvt_describe_integrity(struct kvt_description *d, const struct kvt_run *run,
		       struct kvt_error *err);

/*
 * Fills 'moments', 'numbers' and 'strange' of every group.  Numbers are times 'scale',
 * of keys and of values; 0 is 1.  KVT_BAD_INPUT: the elements of a group are no numbers.
 */
KVT_MUST_CHECK enum kvt_status
kvt_describe_stats(struct kvt_description *d, const double scale[2],
		   const struct kvt_run *run, struct kvt_error *err);

/* Elements of one field; content of one type is one field. */
struct kvt_peek_field {
	const char *name, *dtype;
	int64_t first, count;
	/* how many numbers were rotated together, undone; 1: none; 0: they never are */
	int64_t turn;
	double *value;
};

/* The first numbers of one place. */
struct kvt_peek {
	struct kvt_element_run run;
	const struct kvt_group *group;
	struct kvt_error raw;		/* why bytes are not numbers; or empty */
	int nfields;
	struct kvt_peek_field field[KVT_MAX_FIELDS];
};

struct kvt_peeks {
	int n;
	struct kvt_peek *peek;
};

/* Fills 'peeks' with what kvt_where_parse_run() finds in each of the texts. */
KVT_MUST_CHECK enum kvt_status
kvt_describe_peeks(struct kvt_description *d, const char *const *places, int n,
		   const double scale[2], const struct kvt_run *run,
		   struct kvt_error *err);
void kvt_peeks_free(struct kvt_peeks *peeks);	/* NULL is allowed */

/* ---- one tensor for all layers ------------------------------------------ */

struct kvt_canonical_facts {
	const struct kvt_snapshot *snapshot;
	const struct kvt_layout *layout[KVT_MAX_GROUPS];
	struct kvt_layout asked;	/* of all of them, if one was */
	struct kvt_spec spec[KVT_MAX_GROUPS];
	struct kvt_backend_order backend[KVT_MAX_GROUPS];
	char letters[KVT_MAX_GROUPS][KVT_NAXES + 1];
	struct kvt_canonical_group group[KVT_MAX_GROUPS];
	int64_t *tensor;
	struct kvt_canonical_request request;
	struct kvt_canonical_verdict verdict;
	struct kvt_canonical whole;	/* if no reason is against it */
};

/*
 * Fills 'canonical'.  'layout' is that of all groups; NULL: each has its own.
 * KVT_USAGE, KVT_BAD_INPUT: it is no layout; the dump has no pool for all groups.
 */
KVT_MUST_CHECK enum kvt_status
kvt_describe_canonical(struct kvt_description *d, const char *layout,
		       struct kvt_error *err);
void kvt_canonical_facts_free(struct kvt_canonical_facts *f);	/* NULL is allowed */

/*
 * Where a layer is in the first block: what the view says, or, of a padded page that
 * is one run, what its size says.  Not known: only the engine knows.
 */
struct kvt_canonical_place {
	bool known, one_run, has_view;
	int64_t offset;
	struct kvt_view view;
};
struct kvt_canonical_place
kvt_canonical_place(const struct kvt_canonical_facts *f, int group, int64_t layer);

/*
 * ---- vLLM's CanonicalKVCaches: tensors of pages, and where each layer has its own ----
 *
 * One tensor where blocks are outermost, else one for each position, which layers of
 * several groups share.  This says where bytes are, whoever allocates them so.
 */
struct kvt_cache_tensor {
	int64_t num_blocks, page_bytes;
};
struct kvt_cache_ref {
	int64_t tensor, offset;		/* of the layer's first byte in a page of it */
	int64_t page_bytes;		/* of the layer, without padding */
};

/* How many tensors; 0: the layouts are of another sort, or of two. */
int64_t kvt_cache_tensors(const struct kvt_canonical_facts *f);
struct kvt_cache_tensor kvt_cache_tensor(const struct kvt_canonical_facts *f, int64_t i);
struct kvt_cache_ref kvt_cache_ref(const struct kvt_canonical_facts *f, int group,
				   int64_t layer);

/* What numbers at K index k of a group are times. */
double kvt_scale_of(const double scale[2], const struct kvt_group *group, int64_t k);

#endif
