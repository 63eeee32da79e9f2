/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - what the commands and main() share
 *
 * A command is one file, cmd/<name>.c, and one row of the table in main.c.  It
 * prints its result on standard output, returns a status, and leaves one
 * sentence in 'err' if that is not KVT_OK; main() prints the sentence and turns
 * the status into the exit status.
 */
#ifndef KVT_CLI_H
#define KVT_CLI_H

#include <limits.h>
#include <stdio.h>

#include "print/out/say.h"

struct command {
	const char *name;
	const char *args;		/* operands, for the usage line */
	const char *summary;		/* one line, no period */
	/*
	 * argv[0] is the name.  A status other than KVT_OK with an empty
	 * err->text: all has been said already, with complain().
	 */
	enum kvt_status (*run)(int argc, char **argv, struct kvt_error *err);
	const char *examples;		/* lines for --help, each with its '\n' */
	/* NULL: it has no --shard; "": it has; else only with this first word */
	const char *shards;
	enum {
		STREAM_ALL,		/* "-" is an input, if dumps are opened */
		STREAM_FIRST,		/* operands are IN [OUT] */
		STREAM_OWN,		/* it calls stream_in() itself */
	} streams;
};

extern const struct command
	cmd_describe,
	cmd_doctor,
	cmd_view,
	cmd_relayout,
	cmd_convert,
	cmd_digest,
	cmd_where,
	cmd_slice,
	cmd_merge,
	cmd_reblock,
	cmd_copy_blocks,
	cmd_diff,
	cmd_mutate,
	cmd_shrink,
	cmd_expect,
	cmd_fsck,
	cmd_guess,
	cmd_prefix,
	cmd_import,
	cmd_workers,
	cmd_why,
	cmd_size,
	cmd_transfer_sim,
	cmd_reduce,
	cmd_bench;

/* Of the table of commands: "look", if it is the first of those for looking, or NULL. */
struct command_row {
	const char *purpose;
	const struct command *command;
};
/*
 * The table is in main.c, above all commands; two of them look others up (help, reduce)
 * and ask for it here.  It ends with a row of NULL.
 */
void commands_are(const struct command_row *rows);
/* The i-th command, NULL past the last one. */
const struct command *command_at(int i);
const char *command_purpose(int i);

/*
 * "kvtool CMD: sentence" on standard error (complain.c), for commands that go on after a
 * failure.
 */
void complain(const struct command *command, const char *format, ...)
	KVT_PRINTF(2, 3);

/*
 * While they are kept nothing is printed: a process that sees a part of the data may
 * complain of what the rest is.  At the end they are printed, as far as 4 KiB, or not.
 */
void complaints_keep(void);
void complaints_end(bool print);
/* The first since complaints_keep(); "": there was none. */
const char *complaints_first(void);

/* ---- help that is not a command's: help.c ------------------------------- */

void print_usage(FILE *stream);
void print_version(void);
/* "layouts", "formats", "dtypes"; false if there is no such topic. */
bool print_topic(const char *name);
/* Their names; NULL past the last one. */
const char *topic_at(int i);

/* What goes wrong, why, and what to type then: symptoms.c */
void symptoms_print(void);

/* ---- what lies beside the program: beside.c ------------------------------ */

/* The program's folder with 'below' after it; false if that is no folder. */
bool beside_program(char out[static PATH_MAX], const char *below);
/* The path of a model of --model=list, where *name is one and no file. */
void model_beside(const char **name);
/* Where other programs find the HDF5 filter; false if it is not there. */
bool plugin_folder(char out[static PATH_MAX]);

#endif
