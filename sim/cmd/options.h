/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - what the modes of transfer-sim are told, and the transfer it makes
 *
 * Words are options as they were given; transfer_open() makes a transfer of them.
 */
#ifndef KVTOOL_TRANSFER_OPTIONS_H
#define KVTOOL_TRANSFER_OPTIONS_H

#include "cli/models.h"
#include "sim/print/link.h"
#include "cli/opt.h"
#include "formats/log/link_file.h"
#include "sim/ops/batches.h"
#include "lib/base/nearest.h"
#include "sim/ops/exec.h"
#include "sim/ops/transfer.h"

/* The modes, in the order of --help; each reads its own options. */
extern const struct command transfer_plan, transfer_exec, transfer_wire, transfer_time,
	transfer_replay, transfer_faults, transfer_report, transfer_sweep,
	transfer_matrix, transfer_compare, transfer_calibrate, transfer_emit,
	transfer_topology, transfer_receive;

/* The command that has them, by its name: what modes have in common complains as it. */
extern const struct command transfer_modes;
#define TRANSFER_SIM "transfer-sim"

/* ---- what moves ---------------------------------------------------------- */

/* One side: a file, or "layout=hnd,tp=4,block-size=16,pool=99,ids=contig". */
struct side_words {
	const char *file;		/* NULL: none; 'text' may still add to it */
	const char *text;		/* NULL: as the source, or the defaults */
};

struct transfer_words {
	const char *mode;		/* "time"; "" if none was named */
	struct model_words model;
	struct kvt_hints hints;		/* of dumps that do not say it */
	const char *const *files;	/* of dumps: transfer_operands() */
	int nfiles;
	/* for the message that a model is missing */
	const char *trace, *example;	/* an operand; more options of the example */
	bool needs_trace, trace_missing, no_dumps;
	const char *dtype;
	struct opt_strings spec;
	struct side_words src, dst;
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

#define TRANSFER_OPTS(a) \
	OPT_MODEL(&(a)->model), \
	{ "spec", 0, OPT_STRINGS, &(a)->spec, "KIND:KEY=N,...", \
	  "a group of layers instead, such as gqa:layers=80,heads=8,head-dim=128" }, \
	{ "cache-dtype", 0, OPT_STRING, &(a)->dtype, "DTYPE", \
	  "type of the cache, not of the weights; default: the model's" }, \
	{ "tokens", 't', OPT_COUNT, &(a)->tokens, "N", \
	  "length of the request, such as 8192 or 8k; default 2048" }, \
	{ "cached", 0, OPT_INT, &(a)->cached, "N", \
	  "tokens in front that the destination has already" }, \
	{ "src", 0, OPT_STRING, &(a)->src.text, "KEY=VALUE,...", \
	  "source: layout, tp, block-size, pool, ids, dcp, interleave" }, \
	{ "dst", 0, OPT_STRING, &(a)->dst.text, "KEY=VALUE,...", \
	  "destination; what is not said is as in the source" }, \
	{ "partial", 0, OPT_STRING, &(a)->partial, "valid|whole", \
	  "move only the valid slots of a last block (default), or all of it" }, \
	{ "conv", 0, OPT_STRING, &(a)->conv, "ds|sd", \
	  "order of conv states: by channel, or by tap as in vLLM" }, \
	{ "replica-map", 0, OPT_STRING, &(a)->replicas, "grouped|modulo", \
	  "which ranks hold the same heads; default grouped, as in vLLM" }, \
	{ "request", 0, OPT_STRING, &(a)->request, "ID", \
	  "of two dumps: the request that moves; default: all that both have" }, \
	{ "mamba-groups", 0, OPT_COUNT, &(a)->mamba_groups, "N", \
	  "of two dumps: groups of B and C in the model" }

/*
 * Operands of a mode: none; a config.json; two dumps; or, with --dst, the dumps of all
 * ranks of a source.  Refuses options that would not count, and puts in what was not
 * said.  All that is missing is asked for at once.
 */
KVT_MUST_CHECK enum kvt_status
transfer_operands(struct transfer_words *words, int n, char **argv,
		  struct kvt_error *err);

/* Was a list asked for, of models, links or stacks?  Then it was printed. */
bool transfer_listed(enum kvt_status *status, const struct transfer_words *words,
		     const char *link, const char *emulate, struct kvt_error *err);

/* The scope of this name; NULL is rfc. */
KVT_MUST_CHECK enum kvt_status
scope_take(enum kvt_scope *out, const char *name, struct kvt_error *err);

/* Which blocks, where --src or --dst says so. */
struct side_ids {
	char words[1024];
	char *list;			/* owned; of file:PATH */
};

/*
 * What "layout=hnd,tp=4,..." of --NAME says; the rest of 'pool' stays as it was.  A
 * key that comes twice is refused.  'ids' must outlive 'pool'.
 */
KVT_MUST_CHECK enum kvt_status
pool_take(struct kvt_transfer_pool *pool, struct side_ids *ids, const char *name,
	  const char *text, struct kvt_error *err);

/* What a word without = is: the key of "tp4", "bs16" or the name of a layout; or NULL. */
const char *side_bare_key(const char **value, const char *word);

/* What of the requests moves. */
KVT_MUST_CHECK enum kvt_status
transfer_how_take(struct kvt_transfer_how *out, const struct transfer_words *words,
		  struct kvt_error *err);

/* A transfer and what it borrows; not to be copied. */
struct transfer_input {
	struct kvt_transfer_plan transfer;
	struct kvt_dump *dump[2];	/* of two dumps; else NULL */
	struct kvt_sides sides;		/* of dumps and --dst */
	struct kvt_model_transfer from;	/* of a model, or of --spec */
	struct kvt_model_config *config;	/* owned */
	struct kvt_model_group *spec;	/* owned */
	struct side_ids ids[2];
};

/* Only out->from, of a zeroed one, which is to be closed even if this fails. */
KVT_MUST_CHECK enum kvt_status
transfer_describe(struct transfer_input *out, const struct transfer_words *words,
		  struct kvt_error *err);

/* KVT_MISMATCH if a destination would not be written exactly once. */
KVT_MUST_CHECK enum kvt_status
transfer_open(struct transfer_input *out, const struct transfer_words *words,
	      struct kvt_error *err);
void transfer_close(struct transfer_input *input);

/*
 * All ranks of a side that exists; free it even if this fails.  'words' may be NULL.
 * What they say of dumps counts for all of one side, and of two for those that do not
 * say it themselves.
 */
KVT_MUST_CHECK enum kvt_status
transfer_open_ranks(struct kvt_ranks *side, int n, const char *const *names,
		    const struct transfer_words *words, struct kvt_error *err);

/* Of how many ranks this dump is one. */
KVT_MUST_CHECK enum kvt_status
transfer_count_ranks(int *out, const char *name, const struct transfer_words *words,
		     struct kvt_error *err);

/* The destination of --dst, of a source that is open. */
KVT_MUST_CHECK enum kvt_status
transfer_make_dst(struct kvt_sides *sides, const struct transfer_words *words,
		  struct kvt_error *err);

/* ---- a stack, and the link below it --------------------------------------- */

struct posting_words {
	const char *emulate, *coalesce;
	bool force, descending;
	int64_t sge, slice, stage;
	const char *copy_rate;		/* 10^9 bytes a second */
	const char *link, *overlap, *setup, *op, *post, *rate, *latency;
	int64_t rails, threads, window;
	const char *share;
	bool push;
};

#define POSTING_OPTS(a) \
	{ "emulate", 0, OPT_STRING, &(a)->emulate, "STACK", \
	  "what posts: nixl, nixl-packed, mooncake, rfc (default), layer, max, or 'list'" }, \
	{ "force", 'f', OPT_FLAG, &(a)->force, NULL, \
	  "where the stack refuses, warn and count the operations of scope layer" }, \
	{ "coalesce", 0, OPT_STRING, &(a)->coalesce, "HOW", \
	  "which neighbours are merged: stack (as it does; default), off, nixl, full" }, \
	{ "merge-descending", 0, OPT_FLAG, &(a)->descending, NULL, \
	  "where neighbours are merged, also those that descend" }, \
	{ "sge", 0, OPT_COUNT, &(a)->sge, "N", \
	  "gather up to N runs of bytes into an operation that writes one run" }, \
	{ "slice", 0, OPT_SIZE, &(a)->slice, "SIZE", \
	  "cut operations longer than this; default: as the link does" }, \
	{ "stage", 0, OPT_SIZE, &(a)->stage, "SIZE", \
	  "copy through buffers of this size on both sides; needs --copy-rate" }, \
	{ "copy-rate", 0, OPT_STRING, &(a)->copy_rate, "GB/S", \
	  "rate of the copies of --stage, in 10^9 bytes a second" }, \
	{ "link", 0, OPT_STRING, &(a)->link, "NAME|FILE", \
	  "what it goes over, or 'list'; the default changes with --emulate" }, \
	{ "overlap-power", 0, OPT_STRING, &(a)->overlap, "1|2|4|inf", \
	  "how far posting and the wire overlap, instead of the link's" }, \
	{ "setup", 0, OPT_STRING, &(a)->setup, "US", \
	  "microseconds before a batch, instead of the link's" }, \
	{ "op", 0, OPT_STRING, &(a)->op, "NS", \
	  "nanoseconds an operation, instead of the link's" }, \
	{ "post", 0, OPT_STRING, &(a)->post, "NS", \
	  "part of --op spent in the posting thread" }, \
	{ "rate", 0, OPT_STRING, &(a)->rate, "GB/S", \
	  "10^9 bytes a second, instead of the link's: 50 for 400 Gb/s" }, \
	{ "latency", 0, OPT_STRING, &(a)->latency, "NS", \
	  "time until a completion is seen; counts with --window" }, \
	{ "rails", 0, OPT_COUNT, &(a)->rails, "N", \
	  "number of such links side by side" }, \
	{ "threads", 0, OPT_COUNT, &(a)->threads, "N", "threads that post" }, \
	{ "window", 0, OPT_COUNT, &(a)->window, "N", \
	  "operations that may be outstanding; default: all" }, \
	{ "share", 0, OPT_STRING, &(a)->share, "fair|fifo|none", \
	  "how transfers that meet at a network card share it; default fair" }, \
	{ "push", 0, OPT_FLAG, &(a)->push, NULL, \
	  "sources post, as in SGLang; default: destinations, as in vLLM" }

/* What was not said, so that a default counts. */
static inline struct assumed posting_assumed(const struct posting_words *a)
{
	return (struct assumed){ .emulate = !a->emulate, .link = !a->link };
}

/* 'file' must outlive 'out', whose link borrows its words. */
KVT_MUST_CHECK enum kvt_status
posting_take(struct kvt_batch_how *out, struct link_file *file,
	     const struct posting_words *words, struct kvt_error *err);

/*
 * The preset of that name, or else the file.  A preset that has no figures is
 * taken, too: link_has_figures() tells.
 */
KVT_MUST_CHECK enum kvt_status
link_take(struct link_file *out, const char *text, struct kvt_error *err);

/* Refuses (KVT_BAD_INPUT) a link that was never measured. */
KVT_MUST_CHECK enum kvt_status
link_has_figures(const struct kvt_link *link, struct kvt_error *err);

/* Of modes that know a link only; NULL is LINK_DEFAULT. */
#define OPT_LINK(p)    { "link", 0, OPT_STRING, p, "NAME|FILE", \
			 "what it goes over, or 'list'; default: cx7-400g-verbs" }
#define LINK_DEFAULT   "cx7-400g-verbs"

#endif
