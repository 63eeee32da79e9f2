/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drive.c - a command as it is, or one of its shards
 *
 *	shards: shard 1/2: 1 of 1 units, 1 done now, 0 before
 *
 * Without --shard and --shard-dir: the command.  One without the other is KVT_USAGE, and
 * so is an operand '-'.  Else the command is run for its work list, job.json is written
 * or must be of this job, and the units of the shard that have no result are done.
 */
#include "cli/shard/shard.h"

#include "cli/shard/sharing.h"
#include "print/out/json_out.h"
#include "print/out/signals.h"

/* ---- what is printed --------------------------------------------------- */

static enum kvt_status print_counts(const struct shard_words *w, int64_t index,
				    int64_t count, const struct shard_counts *c,
				    struct kvt_error *err)
{
	struct json_out out;

	if (shard_says(w, "--json", 'j')) {
		json_start(&out);
		json_put_text(&out, out.root, "shard_dir", w->dir);
		json_put_int(&out, out.root, "shard", index);
		json_put_int(&out, out.root, "shards", count);
		json_put_int(&out, out.root, "units", c->units);
		json_put_int(&out, out.root, "own_units", c->own);
		json_put_int(&out, out.root, "done_units", c->done);
		json_put_int(&out, out.root, "skipped_units", c->skipped);
		json_put_int(&out, out.root, "bytes", c->nbytes);
		return json_print(&out, false, err);
	}
	if (!shard_says(w, "--quiet", 'q'))
		plainf("%s: shard %lld/%lld: %lld of %lld units, %lld done now, "
		       "%lld before\n", w->dir, LL(index), LL(count), LL(c->own),
		       LL(c->units), LL(c->done), LL(c->skipped));
	return KVT_OK;
}

/* ---- running ----------------------------------------------------------- */

static enum kvt_status run_shard(const struct command *command, struct shard_words *w,
				 struct kvt_error *err)
{
	struct shard_job job = { .command = command, .argc = w->argc, .argv = w->argv };
	struct shard_counts counts;
	int64_t index, count;
	enum kvt_status status;

	if (!w->shard)
		return kvt_fail(err, KVT_USAGE,
				"--shard-dir needs --shard=I/N; to join the shards there: kvtool reduce %.200s",
				w->dir);
	if ((status = shard_number(&index, &count, w->shard, err)))
		return status;
	if (!w->dir)
		return kvt_fail(err, KVT_USAGE,
				"--shard needs --shard-dir=DIR, one folder for all shards");
	if ((status = shard_refuse_streams(w, err)))
		return status;
	signals_catch();
	if (!(status = shard_job_list(&job, err)) &&
	    !(status = shard_job_write(&job, w->dir, err)) &&
	    !(status = shard_do(&job, w->dir, index, count, &counts, err)))
		status = print_counts(w, index, count, &counts, err);
	shard_job_free(&job);
	return status;
}

enum kvt_status run_command(const struct command *command, int argc, char **argv,
			    struct kvt_error *err)
{
	static struct shard_words words;
	enum kvt_status status;

	if (!shard_can(command, argc, argv))
		return command->run(argc, argv, err);
	if ((status = shard_words_take(&words, argc, argv, false, err)))
		return status;
	if (!words.shard && !words.dir)
		return command->run(argc, argv, err);
	return run_shard(command, &words, err);
}
