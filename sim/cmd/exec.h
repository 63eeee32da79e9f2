/* SPDX-License-Identifier: Apache-2.0 */
/* exec.h - what exec and wire share: dumps, outputs, telling */
#ifndef KVTOOL_TRANSFER_EXEC_H
#define KVTOOL_TRANSFER_EXEC_H

#include "lib/kvt/write.h"
#include "sim/cmd/options.h"
#include "sim/ops/exec.h"

struct exec_words {
	struct transfer_words transfer;
	struct kvt_create_options create;
	const char *output;		/* "%r" becomes the rank */
	int64_t fill, corrupt;		/* op to corrupt; -1: none */
	int64_t threads, memory;
	struct kvt_run run;		/* verifying does without its device */
	bool json, quiet, dry_run;
};

#define EXEC_OPTS(a) \
	{ "output", 'o', OPT_STRING, &(a)->output, "FILE", \
	  "where to write; %r becomes the rank" }, \
	{ "dst", 0, OPT_STRING, &(a)->transfer.dst.text, "KEY=VALUE,...", \
	  "make the destination: layout, tp, block-size, pool, ids" }, \
	{ "fill", 0, OPT_INT, &(a)->fill, "BYTE", \
	  "what a new destination holds where nothing arrives; default 0" }, \
	{ "request", 0, OPT_STRING, &(a)->transfer.request, "ID", \
	  "the request that moves; default: all that both sides have" }, \
	{ "cached", 0, OPT_INT, &(a)->transfer.cached, "N", \
	  "tokens in front that the destination has already" }, \
	{ "partial", 0, OPT_STRING, &(a)->transfer.partial, "valid|whole", \
	  "move only the valid slots of a last block (default), or all of it" }, \
	{ "conv", 0, OPT_STRING, &(a)->transfer.conv, "ds|sd", \
	  "order of conv states in a new destination; default: as in the source" }, \
	{ "mamba-groups", 0, OPT_COUNT, &(a)->transfer.mamba_groups, "N", \
	  "groups of B and C in the model" }, \
	{ "all-states", 0, OPT_FLAG, &(a)->transfer.all_states, NULL, \
	  "of recurrent groups every block of a table, not only the last" }, \
	{ "corrupt-op", 0, OPT_INT, &(a)->corrupt, "N", \
	  "spoil one byte of op N (from 0, scope rfc), to see it found" }, \
	{ "uncompressed", 0, OPT_FLAG, &(a)->create.uncompressed, NULL, \
	  "hdf5: one contiguous, mappable array a group" }, \
	OPT_NO_SYNC(&(a)->create.no_sync), \
	OPT_FORCE(&(a)->create.force), \
	OPT_THREADS(&(a)->threads), \
	OPT_MEMORY(&(a)->memory), \
	OPT_JSON(&(a)->json), \
	OPT_QUIET(&(a)->quiet)

/* The words of exec and wire before options are read. */
#define EXEC_WORDS { .corrupt = -1, .transfer.tokens = UINT32_MAX }

/*
 * The first operand says how many ranks the source has; those that follow them
 * are the destination, unless --dst describes a new one.
 */
KVT_MUST_CHECK enum kvt_status
exec_open(struct kvt_sides *out, const struct exec_words *words, int n, char **argv,
	  struct kvt_error *err);

/* Creates the outputs, which are empty; free 'out' also after a failure. */
KVT_MUST_CHECK enum kvt_status
exec_create(struct kvt_carried *out, const struct kvt_sides *sides,
	    const struct exec_words *words, struct kvt_error *err);

/* Reads the outputs again, where they are staged, and publishes them. */
KVT_MUST_CHECK enum kvt_status
exec_publish(struct kvt_verified *out, const struct kvt_sides *sides,
	     const struct kvt_carried *carried, const struct exec_words *words,
	     struct kvt_error *err);

KVT_MUST_CHECK enum kvt_status
exec_report(const struct kvt_sides *sides, const struct exec_words *words,
	    const struct kvt_carried *carried, const struct kvt_verified *verified,
	    struct kvt_error *err);

#endif
