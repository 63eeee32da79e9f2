/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drive.c - a command as the processes of one MPI job
 *
 * All make the same work list.  Rank 0 has it: who wants a unit of a pass asks rank 0,
 * and sends it the result.  When no pass has any left, rank 0 runs the command with all
 * results, as kvtool reduce does.
 *
 * Rank 0 does units itself.  A thread of it answers the others meanwhile: between its
 * start and its end no other thread of rank 0 calls MPI.
 */
#include <limits.h>
#include <mpi.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cli/progress.h"
#include "cli/shard/sharing.h"
#include "print/out/screen.h"
#include "print/out/signals.h"

enum tag { ASK = 1, UNIT, RESULT, LAST, END };

/* What rank 0 has of all units; [0] of the list, [1] of passes that follow. */
struct table {
	pthread_mutex_t lock;
	bool *taken[2];			/* [nunits]; owned */
	struct shard_result *result[2];	/* [nunits]; owned */
	int64_t done, before;		/* units of the list */
	int64_t nbytes;
};

static struct job {
	int rank, size;
	struct shard_words words;
	struct shard_job shard;
	struct table table;		/* of rank 0 */
	pthread_t server;
	struct kvt_run run;		/* for its progress */
	const char *name;
} job;

/* ---- ends for all ------------------------------------------------------ */

/* The sentence of the rank that failed, and no process goes on. */
static void fail_all(enum kvt_status status, const struct kvt_error *err)
{
	fplainf(stderr, "kvtool-mpi %s: rank %d: %s\n", job.name, job.rank, err->text);
	fflush(stderr);
	MPI_Abort(MPI_COMM_WORLD, (int)status);
	_exit((int)status);
}

static void sleep_a_little(void)
{
	nanosleep(&(struct timespec){ 0, 200000 }, NULL);
}

/*
 * Waiting inside MPI takes a processor, which may be the one that whoever is waited for
 * needs.  So nothing here blocks, but for what is small and on its way.
 */
static void finish(MPI_Request *request)
{
	int done = 0;

	while (MPI_Test(request, &done, MPI_STATUS_IGNORE), !done) {
		/* who would answer may be dead: the launcher tells by a signal */
		if (job.rank && interrupted)
			signals_die(true);
		sleep_a_little();
	}
}

static void send_bytes(const void *bytes, size_t n, int to, enum tag tag)
{
	MPI_Request request;

	MPI_Isend(bytes, (int)n, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
	finish(&request);
}

static void receive_bytes(void *bytes, size_t n, int from, enum tag tag)
{
	MPI_Request request;

	MPI_Irecv(bytes, (int)n, MPI_BYTE, from, tag, MPI_COMM_WORLD, &request);
	finish(&request);
}

/* ---- rank 0: units and results ----------------------------------------- */

static int64_t claim(int64_t pass, bool follows)
{
	const struct kvt_work_list *list = &job.shard.list;
	struct table *t = &job.table;
	int64_t u = list->first[pass];

	pthread_mutex_lock(&t->lock);
	while (u < list->first[pass + 1] && t->taken[follows][u])
		u++;
	if (u == list->first[pass + 1])
		u = -1;
	else
		t->taken[follows][u] = true;
	pthread_mutex_unlock(&t->lock);
	return u;
}

/*
 * Launchers give a rank no terminal, but a file or a pipe: then it is a line of its own,
 * every ten seconds.
 */
static void tell_progress(void)
{
	static time_t last;
	const struct table *t = &job.table;
	int64_t total = job.shard.list.nbytes;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	last = last ? last : now.tv_sec;
	if (isatty(STDERR_FILENO))
		job.run.progress(NULL, "working", t->nbytes, total);
	else if (now.tv_sec - last >= 10) {
		last = now.tv_sec;
		fplainf(stderr, "kvtool-mpi %s: %lld of %lld units, %lld of %lld MiB\n",
			job.name, LL(t->done), LL(job.shard.list.nunits),
			LL(t->nbytes >> 20), LL(total >> 20));
	}
}

/* Takes the result over, at the end of whose bytes its text is. */
static void keep(int64_t unit, bool follows, const struct shard_result *result)
{
	struct table *t = &job.table;

	pthread_mutex_lock(&t->lock);
	shard_result_free(&t->result[follows][unit]);
	t->result[follows][unit] = *result;
	if (!follows) {
		t->done++;
		t->nbytes += job.shard.list.unit[unit].nbytes;
	}
	if (job.run.progress && !follows)
		tell_progress();
	pthread_mutex_unlock(&t->lock);
}

/* ---- messages ---------------------------------------------------------- */

/* What a result is sent as: these, its bytes, its text with the 0 at its end. */
enum { HEAD_UNIT, HEAD_FOLLOWS, HEAD_BEGIN, HEAD_END, HEAD_STATUS, HEAD_BYTES, NHEAD };

static void take_result(int from, int nbytes)
{
	char *bytes = malloc((size_t)nbytes + 1);
	struct shard_result r = { .file = bytes };
	int64_t head[NHEAD];

	if (!bytes)
		fail_all(KVT_SYSTEM, &(struct kvt_error){ "out of memory" });
	receive_bytes(bytes, (size_t)nbytes, from, RESULT);
	memcpy(head, bytes, sizeof(head));
	memmove(bytes, bytes + sizeof(head), (size_t)nbytes - sizeof(head));
	r.result = (struct kvt_unit_result){ head[HEAD_BEGIN], head[HEAD_END], bytes,
		head[HEAD_BYTES], (enum kvt_status)head[HEAD_STATUS],
		bytes + head[HEAD_BYTES] };
	keep(head[HEAD_UNIT], head[HEAD_FOLLOWS], &r);
}

static void *serve(void *unused)
{
	int left = job.size - 1;

	while (left && !interrupted) {
		MPI_Status from;
		int64_t ask[2], unit;
		int there, nbytes;

		MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, &from);
		if (!there) {
			sleep_a_little();
			continue;
		}
		if (from.MPI_TAG == RESULT) {
			MPI_Get_count(&from, MPI_BYTE, &nbytes);
			take_result(from.MPI_SOURCE, nbytes);
			continue;
		}
		receive_bytes(ask, sizeof(ask), from.MPI_SOURCE, (enum tag)from.MPI_TAG);
		if (from.MPI_TAG == LAST) {
			left--;
			continue;
		}
		unit = claim(ask[0], ask[1]);
		send_bytes(&unit, sizeof(unit), from.MPI_SOURCE, UNIT);
	}
	return unused;
}

/* ---- units of all ranks ------------------------------------------------ */

static int64_t next_unit(void *context, struct shard_unit pass)
{
	int64_t ask[2] = { pass.unit, pass.follows != NULL }, unit;

	(void)context;
	if (!job.rank)
		return claim(ask[0], ask[1]);
	send_bytes(ask, sizeof(ask), 0, ASK);
	receive_bytes(&unit, sizeof(unit), 0, UNIT);
	return unit;
}

static enum kvt_status store_unit(void *context, struct shard_unit unit,
				  const struct kvt_unit_result *r, struct kvt_error *err)
{
	const char *text = r->status ? r->text : "";
	const int64_t head[NHEAD] = { unit.unit, unit.follows != NULL, r->begin, r->end,
				      (int64_t)r->status, r->nbytes };
	size_t n = (size_t)r->nbytes, ntext = strlen(text) + 1, skip = sizeof(head);
	char *bytes;
	enum kvt_status status;

	(void)context;
	if (job.words.dir &&
	    (status = shard_unit_write(&job.shard, job.words.dir, unit, r, err)))
		return status;
	if (skip + n + ntext > INT_MAX || !(bytes = malloc(skip + n + ntext)))
		return kvt_no_memory(err, NULL);
	memcpy(bytes, head, skip);
	if (n)
		memcpy(bytes + skip, r->bytes, n);
	memcpy(bytes + skip + n, text, ntext);
	if (job.rank) {
		send_bytes(bytes, skip + n + ntext, 0, RESULT);
		free(bytes);
		return KVT_OK;
	}
	memmove(bytes, bytes + skip, n + ntext);
	keep(unit.unit, unit.follows, &(struct shard_result){
		{ r->begin, r->end, bytes, r->nbytes, r->status, bytes + n }, bytes });
	return KVT_OK;
}

static const char *dir_of(void *context, int64_t unit)
{
	(void)context;
	(void)unit;
	return job.words.dir;
}

static void do_units(void)
{
	const struct shard_source source = { NULL, NULL, next_unit, store_unit, dir_of };
	struct kvt_error err = { "" };
	enum kvt_status status;
	bool unfinished;

	if (!job.rank && pthread_create(&job.server, NULL, serve, NULL))
		fail_all(KVT_SYSTEM, &(struct kvt_error){ "cannot start a thread" });
	/* what does not open, say, is what rank 0 finds, too, when it has all */
	status = shard_run_share(&job.shard, &source, &unfinished, &err);
	if (interrupted)
		signals_die(true);
	if (status && unfinished)
		fail_all(status, &err);
	if (job.rank)
		send_bytes((int64_t[2]){ 0 }, 2 * sizeof(int64_t), 0, LAST);
	else
		pthread_join(job.server, NULL);
	if (interrupted)
		signals_die(true);
	if (job.run.progress)
		job.run.progress(NULL, NULL, 0, 0);
}

/* ---- all of them ------------------------------------------------------- */

static enum kvt_status take_kept(void *context, struct shard_result *out, bool *todo,
				 struct shard_unit unit, struct kvt_error *err)
{
	struct shard_result *r = &job.table.result[unit.follows != NULL][unit.unit];

	(void)context;
	(void)err;
	*out = *r;
	*r = (struct shard_result){ .file = NULL };
	*todo = !out->file;
	return KVT_OK;
}

static enum kvt_status join(struct kvt_error *err)
{
	const struct shard_source source = { NULL, take_kept, NULL, NULL, dir_of };
	const struct shard_reduce said = { .one_file = job.words.one_file };
	enum kvt_status status;

	shard_draws_nothing = false;
	shard_reduce = &said;
	status = shard_run_whole(&job.shard, &source, err);
	shard_reduce = NULL;
	return status;
}

/* ---- before the first unit --------------------------------------------- */

/* Results of a run before this one, of rank 0. */
static enum kvt_status resume(struct kvt_error *err)
{
	struct table *t = &job.table;
	enum kvt_status status = KVT_OK;

	for (int64_t u = 0; !status && u < job.shard.list.nunits; u++) {
		struct shard_unit unit = { u, NULL };
		struct shard_result r;

		status = shard_take_done(&r, &job.shard, job.words.dir, unit, err);
		if (status || !r.file || shard_not_wanted(&r))
			continue;
		t->taken[0][u] = true;
		t->before++;
		keep(u, false, &r);
	}
	if (!status && job.run.progress)
		fplainf(stderr, "kvtool-mpi %s: %lld of %lld units were done before\n",
			job.name, LL(t->before), LL(job.shard.list.nunits));
	return status;
}

static enum kvt_status prepare(struct kvt_error *err)
{
	struct table *t = &job.table;
	size_t n = (size_t)job.shard.list.nunits + 1;
	struct shard_job_file file;
	struct kvt_error why;

	pthread_mutex_init(&t->lock, NULL);
	for (int f = 0; f < 2; f++) {
		t->taken[f] = calloc(n, sizeof(**t->taken));
		t->result[f] = calloc(n, sizeof(**t->result));
		if (!t->taken[f] || !t->result[f])
			return kvt_no_memory(err, NULL);
	}
	if (!job.words.dir)
		return KVT_OK;
	if (!job.words.resume && !shard_job_read(&file, job.words.dir, &why)) {
		shard_job_file_free(&file);
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s has results; --resume goes on with them",
				job.words.dir);
	}
	return shard_job_write(&job.shard, job.words.dir, err);
}

static void table_free(struct table *t)
{
	for (int f = 0; f < 2; f++) {
		for (int64_t u = 0; t->result[f] && u < job.shard.list.nunits; u++)
			shard_result_free(&t->result[f][u]);
		free(t->result[f]);
		free(t->taken[f]);
	}
}

/* Every rank must have the list of rank 0. */
static enum kvt_status compare_lists(struct kvt_error *err)
{
	char first[sizeof(job.shard.fingerprint)];
	int same;

	memcpy(first, job.shard.fingerprint, sizeof(first));
	MPI_Bcast(first, sizeof(first), MPI_CHAR, 0, MPI_COMM_WORLD);
	same = !strcmp(first, job.shard.fingerprint);
	if (!same)
		return kvt_fail(err, KVT_BAD_INPUT,
				"sees other files under these names than rank 0");
	return KVT_OK;
}

/*
 * What any rank cannot do none does: the sentence is that of the first.  The others get
 * its status, too.
 */
static enum kvt_status agree(enum kvt_status status, const struct kvt_error *err)
{
	int mine = status ? job.rank : job.size, first, what = (int)status;

	MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	if (first == job.size)
		return KVT_OK;
	MPI_Bcast(&what, 1, MPI_INT, first, MPI_COMM_WORLD);
	if (first == job.rank)
		fplainf(stderr, "kvtool-mpi %s: rank %d: %s\n", job.name, job.rank,
			err->text);
	return (enum kvt_status)what;
}

/* Nobody takes a processor from who joins. */
static void wait_for_first(void)
{
	char end = 0;

	for (int r = 1; !job.rank && r < job.size; r++)
		send_bytes(&end, 1, r, END);
	if (job.rank)
		receive_bytes(&end, 1, 0, END);
}

static enum kvt_status check_words(struct kvt_error *err)
{
	if (job.words.shard)
		return kvt_fail(err, KVT_USAGE,
				"--shard is an option of kvtool; here the ranks divide the work");
	if ((job.words.resume || job.words.one_file) && !job.words.dir)
		return kvt_fail(err, KVT_USAGE,
				"--resume and --one-file need --shard-dir=DIR");
	return shard_refuse_streams(&job.words, err);
}

static enum kvt_status run_job(const struct command *command, struct kvt_error *err)
{
	enum kvt_status status = check_words(err);

	job.shard = (struct shard_job){ .command = command, .argc = job.words.argc,
					.argv = job.words.argv };
	signals_catch();
	shard_draws_nothing = true;
	screen_none();
	if (!status)
		status = shard_job_list(&job.shard, err);
	if ((status = agree(status, err)) ||
	    (status = agree(compare_lists(err), err)) ||
	    (status = agree(job.rank ? KVT_OK : prepare(err), err)) ||
	    (status = agree(job.rank || !job.words.resume ? KVT_OK : resume(err), err))) {
		err->text[0] = '\0';
		return status;
	}
	if (job.run.progress)
		job.run.progress(NULL, "working", 0, job.shard.list.nbytes);
	do_units();
	if (!job.rank)
		status = join(err);
	wait_for_first();
	table_free(&job.table);
	shard_job_free(&job.shard);
	return status;
}

/*
 * Open MPI looks at every kind of network when it begins, which takes longer than a small
 * job.  Ranks that are all on one machine have no use for one: they take shared memory,
 * unless somebody has chosen.
 */
static void choose_transport(void)
{
	const char *all = getenv("OMPI_COMM_WORLD_SIZE");
	const char *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");

	if (all && here && !strcmp(all, here))
		setenv("OMPI_MCA_pml", "ob1", 0);
}

/*
 * PMIx 4 sends a message to the launcher in two writes, of which the second waits for the
 * receiver's delayed acknowledgement of the first: 40 ms in MPI_Finalize().
 */
static void hold_nothing_back(void)
{
	const int on = 1;

	for (int fd = STDERR_FILENO + 1; fd < 256; fd++)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

enum kvt_status run_command(const struct command *command, int argc, char **argv,
			    struct kvt_error *err)
{
	struct kvt_error why = { "" };
	enum kvt_status status;
	int has;

	choose_transport();
	MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &has);
	hold_nothing_back();
	MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &job.size);
	job.name = command->name;
	if (has < MPI_THREAD_SERIALIZED)
		fail_all(KVT_UNSUPPORTED,
			 &(struct kvt_error){ "this MPI allows no thread beside main" });
	/* what is not divided, and --help, is what one process says */
	if (!shard_can(command, argc, argv))
		status = job.rank ? KVT_OK : command->run(argc, argv, &why);
	else if (!(status = shard_words_take(&job.words, argc, argv, true, &why))) {
		bool quiet = shard_says(&job.words, "--quiet", 'q');

		job.run = run_watched(0, 0, quiet || job.rank > 0);
		status = run_job(command, &why);
	}
	if (status && !job.rank)
		kvt_fail(err, status, "%s", why.text);
	fflush(stdout);
	MPI_Finalize();
	return job.rank ? KVT_OK : status;
}
