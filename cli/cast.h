/* SPDX-License-Identifier: Apache-2.0 */
/* cast.h - --cache-dtype and its scales, of the commands that write a dump */
#ifndef KVTOOL_CAST_H
#define KVTOOL_CAST_H

#include "cli/opt.h"
#include "lib/kvt/derive.h"
#include "lib/kvt/run.h"

struct cast_args {
	const char *type;		/* NULL: as it is */
	const char *scale, *from;	/* of what is written, of what is read; NULL */
};

#define OPT_CAST(c) \
	{ "cache-dtype", 0, OPT_STRING, &(c)->type, "TYPE", \
	  "write numbers as TYPE, as engines do: bfloat16, fp8, q8_0/plain" }, \
	{ "scale", 0, OPT_STRING, &(c)->scale, "X[,Y]", \
	  "of fp8 that is written: X[,Y] of keys, values; auto, auto-heads, FILE" }, \
	{ "from-scale", 0, OPT_STRING, &(c)->from, "X[,Y]", \
	  "of fp8 that is read and does not say it: X[,Y] or FILE" }

/* KVT_USAGE: scales without a type, or what cannot be meant. */
KVT_MUST_CHECK enum kvt_status cast_check(const struct cast_args *args,
					  struct kvt_error *err);

/*
 * The dump as it is to be written, and with 'proof' the same computed number by number
 * from the definition, for --verify.  'name' is the dump's, for messages.
 */
KVT_MUST_CHECK enum kvt_status
cast_open(struct kvt_dump **out, struct kvt_dump **proof, const struct kvt_dump *dump,
	  const char *name, const struct cast_args *args, const struct kvt_run *run,
	  struct kvt_error *err);

#endif
