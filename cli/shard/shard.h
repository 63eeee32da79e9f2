/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.h - a command as one of several processes that divide its work
 *
 * The command runs twice.  The first time nothing is read but metadata, and its passes
 * make the work list (kvt/share.h); all processes make the same one.  The second time it
 * does its units and leaves their results in a folder, a file for each:
 *
 *	job.json		the command, and what it was given
 *	000017.unit		the result of unit 17 of the list, and its digest
 *	000017.measuring.unit	of a pass that follows that one
 *	part-0-000017.h5	box 17 of group 0, of a command that writes
 *
 * Names do not say whose a unit was: the number of shards may change.  'kvtool reduce'
 * runs the command a third time, with all results, and prints what it prints.
 */
#ifndef KVTOOL_SHARD_H
#define KVTOOL_SHARD_H

#include "cli/cli.h"
#include "lib/kvt/share.h"
#include "lib/tile/hash.h"

/* ---- words of the command line: words.c -------------------------------- */

enum { SHARD_MAX_WORDS = 4096 };

/* What was said of shards, and the command without it. */
struct shard_words {
	const char *shard, *dir;	/* NULL: not said */
	bool resume, one_file;		/* options of kvtool-mpi */
	int argc;
	char *argv[SHARD_MAX_WORDS + 1];	/* borrowed words */
};

/* Takes the words of shards out, and those of kvtool-mpi. */
KVT_MUST_CHECK enum kvt_status
shard_words_take(struct shard_words *out, int argc, char **argv, bool mpi,
		 struct kvt_error *err);
/* Has it this option of the command, "--json", or "-j", perhaps in "-qj"? */
bool shard_says(const struct shard_words *words, const char *word, char letter);
/* Does the command have shards?  'argv' as in shard_words. */
bool shard_can(const struct command *command, int argc, char *const *argv);

/* "2/8", or "auto" for what the scheduler has set in the environment. */
KVT_MUST_CHECK enum kvt_status
shard_number(int64_t *index, int64_t *count, const char *text, struct kvt_error *err);

/* ---- what was asked for: job.c ----------------------------------------- */

struct shard_job {
	const struct command *command;
	int argc;
	char **argv;			/* borrowed; argv[0] is the command */
	char *output;			/* that it will write; owned; NULL: none */
	struct kvt_work_list list;
	char fingerprint[40];		/* of command, inputs and list */
};

/* Runs the command for its work list; then its fingerprint is known. */
KVT_MUST_CHECK enum kvt_status
shard_job_list(struct shard_job *job, struct kvt_error *err);
void shard_job_free(struct shard_job *job);
/*
 * Makes the folder and its job.json.  KVT_BAD_INPUT if it is there and of another
 * command, of other inputs or of another version of kvtool.
 */
KVT_MUST_CHECK enum kvt_status
shard_job_write(const struct shard_job *job, const char *dir, struct kvt_error *err);

/* What a job.json says; to be freed. */
struct shard_job_file {
	char fingerprint[40];
	int argc;
	char **argv;			/* owned */
};
KVT_MUST_CHECK enum kvt_status
shard_job_read(struct shard_job_file *out, const char *dir, struct kvt_error *err);
void shard_job_file_free(struct shard_job_file *file);

/* ---- results in files: store.c ----------------------------------------- */

/* A result; owned, to be freed. */
struct shard_result {
	struct kvt_unit_result result;
	char *file;			/* all of the file */
};

/* Number of the unit, and the label of the pass if it is not in the list; or NULL. */
struct shard_unit {
	int64_t unit;
	const char *follows;
};

KVT_MUST_CHECK enum kvt_status
shard_unit_write(const struct shard_job *job, const char *dir, struct shard_unit unit,
		 const struct kvt_unit_result *result, struct kvt_error *err);
/*
 * KVT_OK with out->file NULL: there is none, or one that is not proven: not of this job,
 * cut short, or not what its digest says.  'why' then says which.
 */
KVT_MUST_CHECK enum kvt_status
shard_unit_read(struct shard_result *out, const struct shard_job *job, const char *dir,
		struct shard_unit unit, struct kvt_error *why, struct kvt_error *err);
/* No output of who joins replaces these; a shard does a unit that is not proven. */
void shard_job_is_input(const char *dir);
void shard_unit_is_input(const char *dir, struct shard_unit unit);
void shard_result_free(struct shard_result *result);
/* DIR/part-0-000017.h5: of box 17 of group 0. */
void shard_part_path(char *out, size_t room, const char *dir, int64_t group, int64_t box);

/* ---- who does what: sharing.c ------------------------------------------ */

/* Of the run at hand; NULL: one process does all. */
const struct kvt_sharing *shard_sharing(void);
/* All processes have one line of progress, and this one does not draw it. */
extern bool shard_draws_nothing;
/* False if there are others: what only the whole can say is not to be said. */
bool shard_whole(void);
/* A command will write this: no input of it. */
void shard_writes(const char *path);
/* Where parts are written; of reduce: the folder that has this unit. */
const char *shard_dir_of(int64_t unit);
/* The unit that has a box of this pass of input 0. */
int64_t shard_unit_of(const char *label, int64_t part, int64_t box);

struct shard_counts {
	int64_t units, own, done, skipped;	/* of the list; of this process */
	int64_t nbytes;				/* of data, done */
};

/* Does the units of a shard that are not done in 'dir', by running the command. */
KVT_MUST_CHECK enum kvt_status
shard_do(struct shard_job *job, const char *dir, int64_t index, int64_t count,
	 struct shard_counts *counts, struct kvt_error *err);
/*
 * Runs the command with all results of the folders.  Not *complete: it was not run, for
 * one is missing or not proven.
 */
KVT_MUST_CHECK enum kvt_status
shard_join(struct shard_job *job, char *const *dirs, int ndirs, bool *complete,
	   struct kvt_error *err);

/* What kvtool reduce was told; NULL unless it runs the command. */
struct shard_reduce {
	bool one_file;
	int64_t threads, memory;
};
extern const struct shard_reduce *shard_reduce;

/* ---- running: drive.c -------------------------------------------------- */

/*
 * Runs a command, or its share.  What the program of one machine and that of MPI have
 * differently.
 */
KVT_MUST_CHECK enum kvt_status
run_command(const struct command *command, int argc, char **argv, struct kvt_error *err);

#endif
