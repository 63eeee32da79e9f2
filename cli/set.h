/* SPDX-License-Identifier: Apache-2.0 */
/* set.h - several dumps of one command line, as a shell's * names them */
#ifndef KVTOOL_SET_H
#define KVTOOL_SET_H

#include "cli/cli.h"
#include "cli/rewrite.h"

/*
 * Leaves out of 'operands' the manifests of others among them, which are read with
 * these; how many are left.
 */
int pass_over_manifests(char **operands, int n, const struct kvt_hints *hints);

/*
 * Those of a command that has --out-dir: "IN [OUT]", or many IN.  A name of a folder
 * where OUT may be, "out/", is --out-dir=out/ and leaves one operand less in *n; the '/'
 * is asked for because the last of a shell's * may be a folder that is an input.
 */
KVT_MUST_CHECK enum kvt_status
rewrite_each_operands(struct rewrite *r, char **argv, int *n, struct kvt_error *err);

/* From r->input to r->output. */
typedef enum kvt_status rewrite_one(struct rewrite *r, void *context,
				    struct kvt_error *err);

/*
 * one() of r alone; with r->out_dir of each of n inputs: to a file in this folder, which
 * is made, with the name of the input and the ending of the format.  A failure is told
 * of at once and ends nothing but this one; the status is the highest of all.
 * KVT_USAGE, before anything is written, if two would have one name.
 */
KVT_MUST_CHECK enum kvt_status
rewrite_each(struct rewrite *r, const struct command *command, char **inputs, int n,
	     rewrite_one *one, void *context, struct kvt_error *err);

#endif
