/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.h - what the modes of transfer-sim share: a transfer, group by group
 *
 * sim_load() makes one out of what was said; every mode begins with that and
 * ends with sim_free().
 */
#ifndef KVTOOL_SIM_H
#define KVTOOL_SIM_H

#include "cli/json_out.h"
#include "cli/models.h"
#include "cli/opt.h"
#include "lib/kvt/transfer.h"

/* ---- what was said ------------------------------------------------------ */

/* The modes, in the order of --help; each reads its own options. */
extern const struct command sim_plan, sim_exec, sim_wire, sim_time, sim_replay,
	sim_faults, sim_page, sim_sweep, sim_compare, sim_calibrate, sim_emit;

/* One side: a file, or "layout=hnd,tp=4,block-size=16,pool=99,ids=contig". */
struct sim_side_args {
	const char *file;		/* NULL: none; 'text' may still add to it */
	const char *text;		/* NULL: as the source, or the defaults */
};

struct sim_args {
	const char *model, *models, *dtype;
	struct opt_strings spec;
	struct sim_side_args src, dst;
	int64_t tokens;			/* 0: not said */
	int64_t cached;			/* tokens that the destination has already */
	const char *partial;		/* "valid" or "whole" */
	const char *replicas;		/* "grouped" or "modulo" */
	const char *conv;		/* "sd" or "ds" */
	const char *request;
	int64_t mamba_groups;		/* of B and C in the model; 0: not known */
	bool all_states;		/* of recurrent groups, not only the last one */
	const char *layout;		/* of both sides, instead of theirs; or NULL */
};

#define SIM_OPTS(a) \
	{ "model", 'm', OPT_STRING, &(a)->model, "NAME", \
	  "a model's caches: a config.json, or a name of 'list'" }, \
	OPT_MODELS(&(a)->models), \
	{ "spec", 0, OPT_STRINGS, &(a)->spec, "KIND:KEY=N,...", \
	  "a group of layers instead, such as gqa:layers=80,heads=8,head-dim=128" }, \
	{ "cache-dtype", 0, OPT_STRING, &(a)->dtype, "DTYPE", \
	  "type of the cache, not of the weights; default: the model's" }, \
	{ "tokens", 't', OPT_COUNT, &(a)->tokens, "N", \
	  "length of the request; default 2048" }, \
	{ "cached", 0, OPT_INT, &(a)->cached, "N", \
	  "tokens in front that the destination has already" }, \
	{ "src", 0, OPT_STRING, &(a)->src.text, "KEY=VALUE,...", \
	  "source: layout, tp, block-size, pool, ids" }, \
	{ "dst", 0, OPT_STRING, &(a)->dst.text, "KEY=VALUE,...", \
	  "destination; what is not said is as in the source" }, \
	{ "partial", 0, OPT_STRING, &(a)->partial, "valid|whole", \
	  "of a last block in part: its valid states (default), or all of it" }, \
	{ "conv", 0, OPT_STRING, &(a)->conv, "ds|sd", \
	  "order of conv states: by channel, or by tap as in vLLM" }, \
	{ "replica-map", 0, OPT_STRING, &(a)->replicas, "grouped|modulo", \
	  "which ranks hold the same heads; default grouped, as in vLLM" }, \
	{ "request", 0, OPT_STRING, &(a)->request, "ID", \
	  "of two dumps: the request that moves; default: all that both have" }, \
	{ "mamba-groups", 0, OPT_COUNT, &(a)->mamba_groups, "N", \
	  "of two dumps: groups of B and C in the model" }

/*
 * Operands of a mode: none, or two dumps.  Refuses options that would not count,
 * and puts in what was not said.
 */
KVT_MUST_CHECK enum kvt_status
sim_take_dumps(struct sim_args *args, int n, char **argv, struct kvt_error *err);

/* What --replica-map says. */
enum kvt_replicas sim_replicas(const struct sim_args *args);

/* The scope of this name; NULL is rfc. */
KVT_MUST_CHECK enum kvt_status
sim_take_scope(enum kvt_scope *out, const char *name, struct kvt_error *err);

/* ---- a transfer --------------------------------------------------------- */

struct sim_group {
	char name[32];
	struct kvt_layout src_layout, dst_layout;
	int src_group, dst_group;	/* of two dumps: their numbers there */
	const uint64_t *src_ids, *dst_ids;	/* of blocks; NULL: positions are */
	struct kvt_block_span *entry;	/* owned; of xfer */
	struct kvt_block_span *order;	/* owned; as the requests have them */
	int64_t *state;			/* owned; of its request, where each begins */
	int64_t norder;
	struct kvt_xfer xfer;
};

struct sim {
	const char *model;		/* borrowed; NULL */
	struct kvt_dump *readers[2];	/* of two dumps; else NULL */
	int64_t requests, tokens;	/* how many move; of all of them */
	bool whole;			/* blocks, not only valid states */
	int ngroups;
	struct sim_group *group;	/* owned */
};

/* KVT_MISMATCH if a destination would not be written exactly once. */
KVT_MUST_CHECK enum kvt_status
sim_load(struct sim *out, const struct sim_args *args, struct kvt_error *err);
void sim_free(struct sim *sim);

/* Room for one more group; NULL when out of memory.  Counts when ngroups does. */
struct sim_group *sim_group_new(struct sim *sim, struct kvt_error *err);

/* Of two dumps: specs, layouts and block tables; no data is read. */
KVT_MUST_CHECK enum kvt_status
sim_load_files(struct sim *sim, const struct sim_args *args, struct kvt_error *err);

/* The same of what any rank of either side says; names are for messages. */
struct sim_dumps {
	const char *src_name, *dst_name;
	const struct kvt_snapshot *src, *dst;
};
KVT_MUST_CHECK enum kvt_status
sim_load_dumps(struct sim *out, const struct sim_dumps *dumps,
	       const struct sim_args *args, struct kvt_error *err);

/* The part of it that is not checked yet. */
KVT_MUST_CHECK enum kvt_status
sim_join_dumps(struct sim *sim, const struct sim_dumps *dumps,
	       const struct sim_args *args, struct kvt_error *err);

/* What --src and --dst say; what they do not say stays as it was. */
struct sim_place {
	const char *name;		/* of the option */
	struct kvt_layout layout;
	int64_t tp, block_size, pool;
	char ids[1024];
};
/* A key that comes twice is refused (KVT_USAGE). */
KVT_MUST_CHECK enum kvt_status
sim_take_place(struct sim_place *place, const char *text, struct kvt_error *err);

/*
 * The layout of a conv state: layers and blocks where 'layout' has them, then
 * channels and taps as the engine stores them: "sd" or "ds", which must be said.
 */
KVT_MUST_CHECK enum kvt_status
sim_conv_layout(struct kvt_layout *out, const struct kvt_layout *layout,
		const char *conv, struct kvt_error *err);

/* One side of a group, ready to be joined with the other. */
struct sim_end {
	struct kvt_spec spec;		/* of any rank */
	int64_t ranks, layers;
	struct kvt_layout layout;
	enum kvt_replicas replicas;
	int64_t strides[KVT_NAXES], offset;	/* 0: as the layout has them */
	struct kvt_block_table table;	/* of one request; ids borrowed */
};

/* The states of one request; tables borrowed. */
struct sim_move {
	struct kvt_block_table src, dst;
	int64_t begin, end;
};

/* 'out' needs sim_group_free() only on KVT_OK. */
KVT_MUST_CHECK enum kvt_status
sim_group_init(struct sim_group *out, const char *name, const struct sim_end *src,
	       const struct sim_end *dst, const struct sim_move *moves, int64_t nmoves,
	       struct kvt_error *err);

/* The states begin..end of the one request that both ends have. */
KVT_MUST_CHECK enum kvt_status
sim_group_init_one(struct sim_group *out, const char *name, const struct sim_end *src,
		   const struct sim_end *dst, int64_t begin, int64_t end,
		   struct kvt_error *err);
void sim_group_free(struct sim_group *group);

/* ---- figures ------------------------------------------------------------ */

enum { SIM_SIZES = 1 << 16 };

/* Of one group, or of all; over the pairs of ranks. */
struct sim_figures {
	int64_t pairs;
	struct kvt_tally tally;
	struct kvt_sizes sizes;		/* owned */
	int64_t least, most;		/* ops of a pair */
};
KVT_MUST_CHECK enum kvt_status
sim_figures_init(struct sim_figures *out, struct kvt_error *err);
void sim_figures_free(struct sim_figures *figures);
KVT_MUST_CHECK enum kvt_status
sim_count(struct sim_figures *figures, const struct sim_group *group,
	  enum kvt_scope scope, struct kvt_error *err);

/* ---- block ids: sim_ids.c ----------------------------------------------- */

enum { SIM_MOST_POOL = 1 << 26 };

/*
 * "contig", "scatter", "reverse", "half", "random:SEED", "aged:SEED",
 * "list:3:1:2", "file:PATH".  'pool' 0 is the least of the pattern's.  The
 * caller frees 'ids'.
 */
KVT_MUST_CHECK enum kvt_status
sim_ids(uint32_t **ids, int64_t *pool, const char *pattern, int64_t n,
	struct kvt_error *err);

/* ---- output ------------------------------------------------------------- */

/* "2048 tokens", "3 requests of 689 tokens" */
struct human human_requests(const struct sim *sim);

/* Figures of every group under every scope. */
struct sim_report {
	const struct sim *sim;
	enum kvt_scope scope;		/* whose breaks are told */
	bool histogram;
	const char *best_layout;	/* if both sides had it; NULL: not known */
	int64_t best_ops;		/* under 'scope', of all groups */
	struct sim_figures (*figures)[KVT_NSCOPES];	/* [ngroups] */
};
KVT_MUST_CHECK enum kvt_status
sim_report_init(struct sim_report *out, const struct sim *sim, struct kvt_error *err);
void sim_report_free(struct sim_report *report);

/* Of all groups, under its scope. */
int64_t sim_report_ops(const struct sim_report *report);

KVT_MUST_CHECK enum kvt_status
sim_plan_text(const struct sim_report *report, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
sim_plan_json(const struct sim_report *report, struct kvt_error *err);

/*
 * One line an op, as CSV or as a JSON object; of one pair and group alone it is
 * the canonical list "src_off dst_off len".  'pair' is "SRC:DST" or NULL.
 */
KVT_MUST_CHECK enum kvt_status
sim_print_ops(const struct sim *sim, enum kvt_scope scope, bool json, const char *pair,
	      struct kvt_error *err);

/* Reference cases and counts: sim_cases.c, sim_counts.c. */
KVT_MUST_CHECK enum kvt_status sim_cases(const char *path, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status sim_counts(const char *path, struct kvt_error *err);

#endif
