/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce.c - what the whole command says, from the results of its shards
 *
 * The command that job.json has is run twice more, without a look at the data of its
 * inputs.  First for its work list, whose fingerprint must be the one in job.json: else
 * inputs have changed since, or it is another version of kvtool, KVT_BAD_INPUT.  Then
 * with the results of all units, if each is there and proven: it prints, complains and
 * ends as it would without shards.  All folders must be of one job.
 */
#include <string.h>

#include "cli/opt.h"
#include "cli/shard/shard.h"
#include "print/out/signals.h"

static const struct command *command_of(const char *name)
{
	const struct command *c;

	for (int i = 0; (c = command_at(i)); i++)
		if (!strcmp(c->name, name))
			return c->shards ? c : NULL;
	return NULL;
}

/* All folders must be of one job; its words are those of the first. */
static enum kvt_status read_jobs(struct shard_job_file *out, char **dirs, int n,
				 struct kvt_error *err)
{
	enum kvt_status status = shard_job_read(out, dirs[0], err);

	for (int i = 1; !status && i < n; i++) {
		struct shard_job_file other;

		if ((status = shard_job_read(&other, dirs[i], err)))
			break;
		if (strcmp(other.fingerprint, out->fingerprint))
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%.300s and %.300s are of different commands or inputs",
					  dirs[0], dirs[i]);
		shard_job_file_free(&other);
		if (!status && !strcmp(dirs[i], dirs[i - 1]))
			status = kvt_fail(err, KVT_BAD_INPUT, "%.300s is given twice",
					  dirs[i]);
	}
	return status;
}

static enum kvt_status join(struct shard_job *job, const struct shard_job_file *file,
			    char **dirs, int n, struct kvt_error *err)
{
	enum kvt_status status = shard_job_list(job, err);
	bool complete = false;

	/* when shards took these words there was nothing wrong with them */
	if (status == KVT_USAGE) {
		const struct kvt_error why = *err;

		return kvt_fail(err, KVT_BAD_INPUT,
				"%.200s: job.json is not what was written: %s", dirs[0],
				why.text);
	}
	if (!status && strcmp(job->fingerprint, file->fingerprint))
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: the inputs have changed since, or this is another version of kvtool; run the shards again",
				  dirs[0]);
	if (status)
		return status;
	status = shard_join(job, dirs, n, &complete, err);
	/* as the command itself would say it */
	if (complete && status && err->text[0] && !interrupted) {
		complain(job->command, "%s", err->text);
		err->text[0] = '\0';
	}
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct shard_reduce said = { .one_file = false };
	const struct opt opts[] = {
		{ "one-file", 0, OPT_FLAG, &said.one_file, NULL,
		  "of a command that writes: one file, with the stored tiles of all parts" },
		OPT_THREADS(&said.threads),
		OPT_MEMORY(&said.memory),
		{ 0 }
	};
	struct shard_job_file file = { .argc = 0 };
	struct shard_job job = { .argc = 0 };
	enum kvt_status status;
	int n = opt_parse(&cmd_reduce, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if ((status = opt_need(&cmd_reduce, (struct opt_need[]){
			{ n, "a folder of shards" }, { 0 } }, err)))
		return status;
	signals_catch();
	shard_reduce = &said;
	if (!(status = read_jobs(&file, argv, n, err))) {
		job.argc = file.argc;
		job.argv = file.argv;
		job.command = command_of(file.argv[0]);
		if (!job.command)
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s: '%.60s' is not a command with shards",
					  argv[0], file.argv[0]);
		else
			status = join(&job, &file, argv, n, err);
	}
	shard_job_free(&job);
	shard_job_file_free(&file);
	shard_reduce = NULL;
	return status;
}

const struct command cmd_reduce = {
	.name = "reduce",
	.args = "DIR...",
	.summary = "join the results of all shards of a command",
	.run = run,
	.examples =
		"  kvtool reduce shards\n"
		"  kvtool reduce --one-file shards\n",
};
