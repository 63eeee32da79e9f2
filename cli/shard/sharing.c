/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharing.c - the struct kvt_sharing of the three runs of a command: for its work list,
 * for its share, with all results
 *
 * A pass that follows another (kvt/share.h) is in no list: a shard makes it over its own
 * units if what it has seen asks for it, and who joins makes what nobody has made.
 */
#include "cli/shard/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/shard/sharing.h"
#include "print/out/signals.h"

const struct shard_reduce *shard_reduce;
bool shard_draws_nothing;

static struct {
	struct shard_job *job;
	struct shard_source source;	/* whose units, and where they go */
	struct kvt_sharing sharing;
	bool listing;
	/* the pass at hand */
	int64_t pass;			/* of the list */
	const char *follows;		/* its label, if it is not that one */
	int64_t nresults;
	struct shard_result *result;	/* by unit; owned */
	int64_t at;			/* the one that was told last */
	int64_t ntodo, next;		/* units to be done */
	int64_t *todo;			/* owned */
	/* of all passes */
	bool bad_data;			/* a unit has that as its result */
	bool open;			/* a unit was begun, and has none */
} now;

const struct kvt_sharing *shard_sharing(void)
{
	return now.job ? &now.sharing : NULL;
}

bool shard_whole(void)
{
	return !now.job || !now.sharing.partial;
}

void shard_writes(const char *path)
{
	if (!now.job || !now.listing)
		return;
	free(now.job->output);
	now.job->output = path ? strdup(path) : NULL;
}

const char *shard_dir_of(int64_t unit)
{
	return now.listing ? "" : now.source.dir_of(now.source.context, unit);
}

static int64_t unit_of(int64_t pass, int64_t box)
{
	/* all but the last have as many boxes as the first */
	const struct kvt_work_list *list = &now.job->list;
	const struct kvt_unit *first = &list->unit[list->first[pass]];

	return list->first[pass] + box / (first->end - first->begin);
}

int64_t shard_unit_of(const char *label, int64_t part, int64_t box)
{
	return unit_of(kvt_work_list_find(&now.job->list, label, 0, part), box);
}

/* ---- a pass ------------------------------------------------------------ */

static void forget_pass(void)
{
	for (int64_t i = 0; i < now.nresults; i++)
		shard_result_free(&now.result[i]);
	free(now.result);
	free(now.todo);
	now.result = NULL;
	now.todo = NULL;
	now.nresults = now.ntodo = now.next = 0;
}

static enum kvt_status list_pass(const struct kvt_pass *pass, struct kvt_error *err)
{
	if (pass->follows && kvt_work_list_find(&now.job->list, pass->follows,
						pass->about, pass->part) >= 0)
		return KVT_OK;
	return kvt_work_list_add(&now.job->list, pass, err);
}

/* Its units: those that there are, and those to be done. */
static enum kvt_status take_units(struct kvt_error *err)
{
	const struct kvt_work_list *list = &now.job->list;
	int64_t first = list->first[now.pass], end = list->first[now.pass + 1];
	enum kvt_status status = KVT_OK;

	now.result = calloc((size_t)(end - first) + 1, sizeof(*now.result));
	now.todo = calloc((size_t)(end - first) + 1, sizeof(*now.todo));
	if (!now.result || !now.todo)
		return kvt_no_memory(err, NULL);
	now.nresults = end - first;
	for (int64_t u = first; !status && u < end; u++) {
		bool todo = false;

		if (now.source.take)
			status = now.source.take(now.source.context,
						 &now.result[u - first], &todo,
						 (struct shard_unit){ u, now.follows },
						 err);
		if (!status && todo)
			now.todo[now.ntodo++] = u;
		if (now.result[u - first].file && now.result[u - first].result.status)
			now.bad_data = true;
	}
	return status;
}

static enum kvt_status begin(void *context, const struct kvt_pass *pass,
			     struct kvt_error *err)
{
	const struct kvt_work_list *list = &now.job->list;

	(void)context;
	forget_pass();
	if (now.listing)
		return list_pass(pass, err);
	now.follows = NULL;
	now.pass = kvt_work_list_find(list, pass->label, pass->about, pass->part);
	if (now.pass < 0 && pass->follows) {
		now.follows = pass->label;
		now.pass = kvt_work_list_find(list, pass->follows, pass->about,
					      pass->part);
	}
	if (now.pass < 0 || list->pass[now.pass].count != pass->count)
		return kvt_fail(err, KVT_BAD_INPUT,
				"pass '%s' is not what it was: inputs have changed",
				pass->label);
	return take_units(err);
}

static bool next(void *context, int64_t *from, int64_t *to)
{
	const struct shard_unit pass = { now.pass, now.follows };
	const struct kvt_unit *unit;
	int64_t u;

	(void)context;
	if (now.listing || interrupted)
		return false;
	u = now.source.next ? now.source.next(now.source.context, pass) :
	    now.next < now.ntodo ? now.todo[now.next++] : -1;
	if (u < 0)
		return false;
	unit = &now.job->list.unit[u];
	*from = unit->begin;
	*to = unit->end;
	now.open = true;
	return true;
}

/* A copy of what was stored, to be merged. */
static bool keep(struct shard_result *to, const struct kvt_unit_result *result)
{
	size_t n = (size_t)result->nbytes, text = result->text ? strlen(result->text) : 0;
	char *copy = malloc(n + text + 1);

	if (!copy)
		return false;
	if (n)
		memcpy(copy, result->bytes, n);
	memcpy(copy + n, result->text ? result->text : "", text + 1);
	to->file = copy;
	to->result = *result;
	to->result.bytes = copy;
	to->result.text = copy + n;
	return true;
}

static enum kvt_status store(void *context, const struct kvt_unit_result *result,
			     struct kvt_error *err)
{
	int64_t u = unit_of(now.pass, result->begin);
	enum kvt_status status = KVT_OK;

	(void)context;
	now.bad_data |= result->status != KVT_OK;
	if (now.source.store)
		status = now.source.store(now.source.context,
					  (struct shard_unit){ u, now.follows }, result,
					  err);
	if (!status && !keep(&now.result[u - now.job->list.first[now.pass]], result))
		status = kvt_no_memory(err, NULL);
	now.open = status != KVT_OK;
	return status;
}

static const struct kvt_unit_result *known(void *context, int64_t i)
{
	(void)context;
	now.at = i ? now.at + 1 : 0;	/* they are asked for in a row */
	while (now.at < now.nresults && !now.result[now.at].file)
		now.at++;
	return now.at < now.nresults ? &now.result[now.at].result : NULL;
}

/* ---- a run of the command ---------------------------------------------- */

/* Standard output, and the other one too, are nothing until unsilence(). */
struct silence {
	int fd[2];
};

static enum kvt_status silence(struct silence *s, bool errors, struct kvt_error *err)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	*s = (struct silence){ { -1, -1 } };
	if (null < 0)
		return kvt_fail(err, KVT_SYSTEM, "/dev/null: %s", strerror(errno));
	fflush(stdout);
	for (int i = 0; i < 1 + errors; i++) {
		s->fd[i] = fcntl(STDOUT_FILENO + i, F_DUPFD_CLOEXEC, 3);
		dup2(null, STDOUT_FILENO + i);
	}
	close(null);
	return KVT_OK;
}

static void unsilence(struct silence *s)
{
	fflush(stdout);
	for (int i = 0; i < 2; i++)
		if (s->fd[i] >= 0) {
			dup2(s->fd[i], STDOUT_FILENO + i);
			close(s->fd[i]);
		}
}

static enum kvt_status run_with(struct shard_job *job, bool listing, bool partial,
				struct kvt_error *err)
{
	char **argv = calloc((size_t)job->argc + 1, sizeof(*argv));
	enum kvt_status status;

	if (!argv)
		return kvt_no_memory(err, NULL);
	/* who parses puts options before operands */
	memcpy(argv, job->argv, (size_t)job->argc * sizeof(*argv));
	now.job = job;
	now.listing = listing;
	now.bad_data = false;
	now.open = false;
	now.sharing = (struct kvt_sharing){ NULL, partial, begin, next, store, known };
	status = job->command->run(job->argc, argv, err);
	forget_pass();
	now.job = NULL;
	free(argv);
	return status;
}

enum kvt_status shard_job_list(struct shard_job *job, struct kvt_error *err)
{
	struct silence quiet;
	struct kvt_error why = { "" };
	enum kvt_status status = silence(&quiet, true, err);

	if (status)
		return status;
	complaints_keep();
	status = run_with(job, true, true, &why);
	unsilence(&quiet);
	complaints_end(false);
	/* of data who has all says it; what cannot be read now has no list */
	if (status && status != KVT_MISMATCH && status != KVT_BAD_INPUT)
		return kvt_fail(err, status, "%s",
				why.text[0] ? why.text : complaints_first());
	return shard_job_finish(job, err);
}

enum kvt_status shard_run_share(struct shard_job *job, const struct shard_source *source,
				bool *unfinished, struct kvt_error *err)
{
	struct silence quiet;
	struct kvt_error why = { "" };
	enum kvt_status status = silence(&quiet, false, err);

	*unfinished = true;
	if (status)
		return status;
	/* each unit has the buffers of the one before, which the kernel has cleared */
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	now.source = *source;
	complaints_keep();
	status = run_with(job, false, true, &why);
	unsilence(&quiet);
	*unfinished = now.open || interrupted;
	if (!status && (now.open || interrupted))
		status = kvt_fail(&why, KVT_SYSTEM, "interrupted");
	/* the verdict is that of the whole; bad data is a result */
	if (!now.open && (status == KVT_MISMATCH ||
			  (status == KVT_BAD_INPUT && now.bad_data)))
		status = KVT_OK;
	complaints_end(status != KVT_OK && (*unfinished || !source->next));
	return status ? kvt_fail(err, status, "%s", why.text) : KVT_OK;
}

enum kvt_status shard_run_whole(struct shard_job *job, const struct shard_source *source,
				struct kvt_error *err)
{
	now.source = *source;
	return run_with(job, false, false, err);
}
