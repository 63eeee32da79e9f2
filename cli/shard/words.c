/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words.c - --shard and its like, and what schedulers say in the environment
 *
 * --shard is taken before a command sees its words, as all commands that can be divided
 * have it.  With 'auto' exactly one of schedulers[] may be in the environment.  Facts:
 * Slurm's job arrays, Kubernetes' indexed jobs, Open MPI's mpirun; numbers that do not
 * begin at 0 or have steps are counted anew from 0.
 */
#include "cli/shard/shard.h"

#include <stdlib.h>
#include <string.h>

#include "cli/opt.h"
#include "cli/shard/sharing.h"
#include "lib/base/number.h"
#include "print/out/streams.h"

const char *opt_shard;

/* ---- the command line -------------------------------------------------- */

/* The value of "--NAME=VALUE" or "--NAME VALUE" at argv[*i]; NULL: it is not that. */
static const char *value_of(const char *name, int argc, char **argv, int *i)
{
	size_t n = strlen(name);

	if (strncmp(argv[*i], name, n) || (argv[*i][n] && argv[*i][n] != '='))
		return NULL;
	if (argv[*i][n])
		return argv[*i] + n + 1;
	return *i + 1 < argc ? argv[++*i] : "";
}

enum kvt_status shard_words_take(struct shard_words *out, int argc, char **argv,
				 bool mpi, struct kvt_error *err)
{
	bool operands = false;
	const char *value;
	int nwords = 0;

	*out = (struct shard_words){ .shard = NULL };
	for (int i = 0; i < argc; i++) {
		operands |= !strcmp(argv[i], "--");
		if (!operands && (value = value_of("--shard", argc, argv, &i)))
			out->shard = value;
		else if (!operands && (value = value_of("--shard-dir", argc, argv, &i)))
			out->dir = value;
		else if (!operands && mpi && !strcmp(argv[i], "--resume"))
			out->resume = true;
		else if (!operands && mpi && !strcmp(argv[i], "--one-file"))
			out->one_file = true;
		else if (nwords++ < SHARD_MAX_WORDS)
			out->argv[out->argc++] = argv[i];
	}
	if (nwords > SHARD_MAX_WORDS && (out->shard || out->dir || mpi))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%d words, but a command in shards has %d at most; divide the files among several",
				nwords, SHARD_MAX_WORDS);
	if (out->dir && !*out->dir)
		return kvt_fail(err, KVT_USAGE,
				"option '--shard-dir' needs a value: DIR");
	return KVT_OK;
}

bool shard_can(const struct command *command, int argc, char *const *argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") ||
		    !strcmp(argv[i], "--list-options"))
			return false;
	return command->shards && (!*command->shards ||
				   (argc > 1 && !strcmp(argv[1], command->shards)));
}

bool shard_says(const struct shard_words *w, const char *word, char letter)
{
	static const char flags[] = "fhjnq";	/* letters of commands, without a value */

	for (int i = 1; i < w->argc && strcmp(w->argv[i], "--"); i++) {
		const char *said = w->argv[i];

		if (!strcmp(said, word) ||
		    (said[0] == '-' && memchr(said + 1, letter, strspn(said + 1, flags))))
			return true;
	}
	return false;
}

enum kvt_status shard_refuse_streams(const struct shard_words *w, struct kvt_error *err)
{
	for (int i = 1; i < w->argc; i++)
		if (is_stream(w->argv[i]))
			return kvt_fail(err, KVT_USAGE,
					"'-' has no shards: expected files, which all of them can read");
	return KVT_OK;
}

/* ---- the environment --------------------------------------------------- */

/* Schedulers: the variable that says which, that says of how many, and the least. */
static const struct scheduler {
	const char *name, *index, *count, *least, *step;
	const char *hint;		/* if the count is not there */
} schedulers[] = {
	{ "a Slurm array", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT",
	  "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP", "" },
	{ "a Kubernetes indexed job", "JOB_COMPLETION_INDEX", "JOB_COMPLETIONS", NULL,
	  NULL, "; set it in the job's env to its completions" },
	{ "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, NULL, "" },
};
enum { NSCHEDULERS = sizeof(schedulers) / sizeof(schedulers[0]) };

static enum kvt_status variable(int64_t *out, const char *name, const char *hint,
				struct kvt_error *err)
{
	const char *text = getenv(name), *end = text;

	if (!text)
		return kvt_fail(err, KVT_USAGE, "--shard=auto: %s is not set%s", name,
				hint);
	if (!kvt_number_take(out, &end) || *end)
		return kvt_fail(err, KVT_USAGE,
				"--shard=auto: %s is '%.40s', expected a number", name,
				text);
	return KVT_OK;
}

static enum kvt_status of_scheduler(int64_t *index, int64_t *count,
				    const struct scheduler *s, struct kvt_error *err)
{
	int64_t least = 0, step = 1;
	enum kvt_status status;

	if ((status = variable(index, s->index, "", err)) ||
	    (status = variable(count, s->count, s->hint, err)) ||
	    (s->least && (status = variable(&least, s->least, "", err))) ||
	    (s->step && getenv(s->step) && (status = variable(&step, s->step, "", err))))
		return status;
	if (step < 1 || *index < least || (*index - least) % step ||
	    (*index - least) / step >= *count)
		return kvt_fail(err, KVT_USAGE,
				"--shard=auto: %s is %lld and %s is %lld, which do not go together; write --shard=I/N",
				s->index, LL(*index), s->count, LL(*count));
	*index = (*index - least) / step;
	return KVT_OK;
}

static enum kvt_status of_environment(int64_t *index, int64_t *count,
				      struct kvt_error *err)
{
	const struct scheduler *found = NULL;

	for (int i = 0; i < NSCHEDULERS; i++) {
		if (!getenv(schedulers[i].index))
			continue;
		if (found)
			return kvt_fail(err, KVT_USAGE,
					"--shard=auto: both %s and %s are set; write --shard=I/N",
					found->index, schedulers[i].index);
		found = &schedulers[i];
	}
	if (!found)
		return kvt_fail(err, KVT_USAGE,
				"--shard=auto: none of SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX, OMPI_COMM_WORLD_RANK is set");
	return of_scheduler(index, count, found, err);
}

enum kvt_status shard_number(int64_t *index, int64_t *count, const char *text,
			     struct kvt_error *err)
{
	const char *p = text;

	if (!strcmp(text, "auto"))
		return of_environment(index, count, err);
	if (kvt_number_take(index, &p) && *p++ == '/' && kvt_number_take(count, &p) &&
	    !*p && *index < *count)
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE,
			"--shard is '%.60s', expected I/N with I from 0 to N-1, such as 0/4, or auto",
			text);
}
