/* SPDX-License-Identifier: Apache-2.0 */
/* rewrite.h - what all commands share that make a dump of a dump */
#ifndef KVTOOL_REWRITE_H
#define KVTOOL_REWRITE_H

#include "cli/cast.h"
#include "cli/opt.h"
#include "lib/dump/seen.h"
#include "lib/kvt/derive.h"
#include "lib/kvt/write.h"
#include "lib/run/device.h"
#include "print/out/json_out.h"

/* What a command has of its own where all others do the same; NULL: nothing. */
struct rewrite_own {
	const void *context;
	/* instead of comparing by ids of blocks */
	enum kvt_status (*verify)(const void *context, struct kvt_dump *written,
				  const struct seen *seen, const struct kvt_run *run,
				  struct kvt_error *err);
	/* more about a group: lines, keys of its object */
	void (*print)(const void *context, int group);
	void (*put)(const void *context, int group, struct json_out *out, json_t *o);
};

struct rewrite {
	const char *input, *output;		/* paths; of several inputs the first */
	char *const *more;			/* the other inputs */
	int nmore;
	const struct kvt_layout *layout;	/* NULL: keep each group's own */
	const char *layout_name;		/* as it was typed; may be NULL */
	struct kvt_hints hints;
	struct kvt_create_options create;
	const char *request;			/* for a format of one; or NULL */
	const char *cache_dtype, *rotation;	/* "template", of its build; or NULL */
	const char *device;			/* what --device says, or NULL */
	int64_t threads, memory, level, tile;
	bool verify, dry_run, json, quiet;
	bool to_stdout;			/* 'output' is where it is staged */
	const char *out_dir;		/* instead of 'output', for many inputs */
	bool to_another;		/* outputs there end as their format does */
	bool several;			/* this is one of them */
	const struct kvt_dump *origin;	/* --verify compares with it; NULL: the source */
	struct cast_args cast;
	bool is_cast;			/* the dump at hand was */
	struct rewrite_own own;
};

/* The rows that both commands have; their table begins with its own. */
#define REWRITE_OPTS(r) \
	OPT_FORMAT(&(r)->create.format), \
	{ "verify", 0, OPT_FLAG, &(r)->verify, NULL, \
	  "read the output again and compare every element" }, \
	OPT_NO_SYNC(&(r)->create.no_sync), \
	{ "uncompressed", 0, OPT_FLAG, &(r)->create.uncompressed, NULL, \
	  "hdf5: one contiguous array for each group" }, \
	{ "no-digest", 0, OPT_FLAG, &(r)->create.no_digest, NULL, \
	  "hdf5: store no digest of the content" }, \
	{ "level", 0, OPT_COUNT, &(r)->level, "N", \
	  "hdf5: zstd level, 1 to 19" }, \
	{ "tile", 0, OPT_SIZE, &(r)->tile, "SIZE", \
	  "hdf5: smallest size of a tile before compression" }, \
	OPT_FORCE(&(r)->create.force), \
	OPT_DRY_RUN(&(r)->dry_run), \
	OPT_THREADS(&(r)->threads), \
	OPT_MEMORY(&(r)->memory), \
	OPT_DEVICE(&(r)->device), \
	OPT_JSON(&(r)->json), \
	OPT_QUIET(&(r)->quiet), \
	OPT_SHARD, \
	OPT_INPUT(&(r)->hints)

/* "IN [OUT]", of which OUT may be -o's as well: KVT_USAGE for more, and for both. */
KVT_MUST_CHECK enum kvt_status
rewrite_operands(struct rewrite *r, char **argv, int n, struct kvt_error *err);

/*
 * For --in-order.  KVT_USAGE if numbers in names that are alike otherwise say another
 * order, as a shell's does: rank10 before rank2.
 */
KVT_MUST_CHECK enum kvt_status
names_in_order(int n, char *const *names, struct kvt_error *err);

/* All of r->input. */
KVT_MUST_CHECK enum kvt_status rewrite(const struct rewrite *r, struct kvt_error *err);

/* What the caller made of its inputs; r->input is a name only. */
KVT_MUST_CHECK enum kvt_status
rewrite_dump(const struct rewrite *r, const struct kvt_dump *dump, struct kvt_error *err);

/*
 * Options that describe a file are for files that do not describe themselves: of
 * several inputs each may have a layout of its own.  Facts say which part of a file
 * is meant, and in what order: they count for each whose format knows them.
 */
KVT_MUST_CHECK enum kvt_status
open_as_told(struct kvt_dump **out, const char *name, const struct kvt_hints *hints,
	     struct kvt_error *err);

/*
 * Is this input what was said, beside facts?  Of several that open_as_told() has opened
 * one must be, or options were given that describe none; 'why' not.
 */
bool is_as_told(const char *name, const struct kvt_hints *hints, struct kvt_error *why);

/* A name beside the input: "dir/kv.npy" becomes "dir/kv.WHAT.npy". */
KVT_MUST_CHECK enum kvt_status
rewrite_default_output(char *out, size_t room, const char *input, const char *what,
		       struct kvt_error *err);

/* ---- one output: rewrite_one.c ---------------------------------------------- */

/* What is to be made of a source: options, and a snapshot to be freed. */
KVT_MUST_CHECK enum kvt_status
rewrite_target(struct kvt_snapshot *to, struct kvt_create_options *options,
	       const struct rewrite *r, const struct kvt_dump *source,
	       struct kvt_error *err);

/* kvt_publish(), if no signal came before it; one that comes later ends nothing. */
KVT_MUST_CHECK enum kvt_status
publish(struct kvt_writer *const *writers, int n, struct kvt_error *err);

struct kvt_run rewrite_run(const struct rewrite *r);

/* ---- in shards: rewrite_parts.c --------------------------------------------- */

/* rewrite_dump() of a shard, or of kvtool reduce. */
KVT_MUST_CHECK enum kvt_status
rewrite_parts(const struct rewrite *r, const struct kvt_dump *dump,
	      struct kvt_error *err);
/* The same of one process, whatever shards there are. */
KVT_MUST_CHECK enum kvt_status
rewrite_alone(const struct rewrite *r, const struct kvt_dump *dump,
	      struct kvt_error *err);

#endif
